//! Threads that start the batch supervisor's scripts. Starting a process without copying memory blocks until it
//! executes, and so until a CPU is free, which may be busy with other scripts. The supervisor itself must not wait that
//! long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use squall_engine::step::StepInput;
use squall_model::id::StepKey;

use super::folder::Notes;
use super::prepare::{Prepared, Ready};
use super::processes::{Birth, start};
use super::search::NotFound;
use crate::sys::identity::Identity;
use crate::sys::signals::kill;

/// Most threads while no start is stuck.
const MOST: usize = 4;

/// Time after which a start counts as stuck, so that one more thread is made.
const STUCK: Duration = Duration::from_millis(200);
/// Most threads while all of them are stuck.
const MOST_STUCK: usize = 256;

/// A script with all that is needed to start it.
pub(super) struct Script {
    /// The step of the script.
    pub(super) key: StepKey,
    /// The program to execute, with arguments and environment.
    pub(super) task: Prepared,
    /// The script's working directory, limits and streams.
    pub(super) ready: Ready,
    /// User and groups to run as.
    pub(super) identity: Identity,
    /// File mode mask (umask).
    pub(super) umask: u32,
    /// Whether processes below the script that lose their parent become its children: a checkpoint is one of a process and
    /// those below.
    pub(super) keeps_orphans: bool,
    /// The v2 cgroup in which the script's process is created.
    pub(super) group: File,
    /// The file `pids` of the step's folder, in which the script's process records itself. None: it only restores one.
    pub(super) notes: Option<Notes>,
    /// Set when the step was ended: the script must not be started any more.
    pub(super) ended: Arc<AtomicBool>,
}

impl Script {
    fn start(&self) -> StepInput {
        if self.ended.load(Ordering::SeqCst) {
            return StepInput::Unspawned { rank: 0 };
        }
        let Self { identity, umask, keeps_orphans, .. } = self;
        let birth = Birth { identity, umask: *umask, keeps_orphans: *keeps_orphans, group: self.group.as_fd() };
        match start(&self.task, &self.ready, self.notes.as_ref().map(|notes| notes.line(0)), Some(&birth)) {
            Ok(pid) => {
                // The ending process did not see it in its group. It is our child, and is not reaped before it is
                // reported.
                if self.ended.load(Ordering::SeqCst) {
                    drop(kill(pid, libc::SIGKILL));
                }
                StepInput::Spawned { rank: 0, pid }
            }
            Err(NotFound { code, error }) => StepInput::SpawnFailed { rank: 0, code, error },
        }
    }
}

/// Most scripts that may wait for a thread, and most results that may wait to be taken.
const SCRIPTS_MAX: usize = 16_384;
/// Exit code of a script that is not started because too many wait; as of a shell that can't execute a command.
const NO_ROOM: u8 = 126;

/// The threads that start scripts, with their queues.
pub(super) struct Starters {
    scripts: SyncSender<Script>,
    waiting: Arc<Mutex<Receiver<Script>>>,
    tell: SyncSender<(StepKey, StepInput)>,
    started: Receiver<(StepKey, StepInput)>,
    bell: Arc<OwnedFd>,
    threads: usize,
    /// Scripts that are being started, each with the time when its start began.
    under_way: BTreeMap<StepKey, Instant>,
    /// Time at which a thread was last added because all were stuck.
    relieved: Instant,
}

impl Starters {
    /// Starts a thread for each CPU, up to `MOST`. Signals that the calling thread has blocked are blocked in them.
    pub(super) fn new() -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (scripts, waiting) = sync_channel::<Script>(SCRIPTS_MAX);
        let (tell, started) = sync_channel(SCRIPTS_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let (under_way, relieved) = (BTreeMap::new(), Instant::now());
        let mut starters = Self { scripts, waiting, tell, started, bell, threads: 0, under_way, relieved };
        for _ in 0..thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MOST)) {
            starters.add_thread()?;
        }
        Ok(starters)
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let (waiting, tell, bell) = (Arc::clone(&self.waiting), self.tell.clone(), Arc::clone(&self.bell));
        let work = move || {
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            while let Ok(script) = next() {
                if tell.send((script.key, script.start())).is_err() {
                    return;
                }
                // Fails only if the counter is full, so that it is readable anyway.
                let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
            }
        };
        thread::Builder::new().name("starter".into()).spawn(work)?;
        self.threads += 1;
        Ok(())
    }

    /// Returns when `relieve` must be called next; None: not at all.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let may = self.under_way.len() >= self.threads && self.threads < MOST_STUCK;
        let oldest = self.under_way.values().min().filter(|_| may)?;
        Some(*oldest.max(&self.relieved) + STUCK)
    }

    /// Adds a thread if all are stuck.
    pub(super) fn relieve(&mut self, now: Instant) {
        if self.deadline().is_some_and(|due| due <= now) {
            self.relieved = now;
            if let Err(e) = self.add_thread() {
                tracing::error!(error = %e, "no further thread to start scripts");
            }
        }
    }

    /// Queues a script to be started; `started` returns the result. Some: too many wait, and this one is not started.
    /// The supervisor never waits for a thread. A thread may wait for the supervisor, which takes all results whenever
    /// it wakes.
    pub(super) fn start(&mut self, script: Script) -> Option<StepInput> {
        let key = script.key;
        // The threads last as long as this.
        if self.scripts.try_send(script).is_err() {
            let error = "too many scripts of this node wait to be started".to_owned();
            return Some(StepInput::SpawnFailed { rank: 0, code: NO_ROOM, error });
        }
        self.under_way.insert(key, Instant::now());
        None
    }

    /// Whether scripts are being started: then an unknown child may be one of them.
    pub(super) fn are_at_work(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Returns the results of starts since the last call.
    pub(super) fn started(&mut self) -> Vec<(StepKey, StepInput)> {
        // It is signalled again for results that come after this.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        let started: Vec<_> = self.started.try_iter().collect();
        for (key, _) in &started {
            self.under_way.remove(key);
        }
        started
    }

    /// Returns a descriptor that is readable when `started` has results.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
