//! Threads that start the foster's scripts. Who starts a process without copying anything waits until it executes, and so
//! for a processor that may be busy with other scripts: the foster has more to do meanwhile.

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

/// Most threads while scripts execute at once.
const MOST: usize = 4;

/// A start that takes longer holds up its thread: then there is one more, up to so many.
const STUCK: Duration = Duration::from_millis(200);
const MOST_STUCK: usize = 256;

/// A script with all that it starts with.
pub(super) struct Script {
    /// Of this step.
    pub(super) key: StepKey,
    /// What to execute.
    pub(super) task: Prepared,
    /// Where.
    pub(super) ready: Ready,
    /// As whom.
    pub(super) identity: Identity,
    /// With this file mode mask.
    pub(super) umask: u32,
    /// In this v2 cgroup.
    pub(super) group: File,
    /// Where it notes its process.
    pub(super) notes: Notes,
    /// The step was ended: it does not begin any more.
    pub(super) ended: Arc<AtomicBool>,
}

impl Script {
    fn start(&self) -> StepInput {
        if self.ended.load(Ordering::SeqCst) {
            return StepInput::Unspawned { rank: 0 };
        }
        let birth = Birth { identity: &self.identity, umask: self.umask, group: self.group.as_fd() };
        match start(&self.task, &self.ready, self.notes.line(0), Some(&birth)) {
            Ok(pid) => {
                // Whoever ended it has not seen it in its group. It is our child, and nobody reaps it before it is told of.
                if self.ended.load(Ordering::SeqCst) {
                    drop(kill(pid, libc::SIGKILL));
                }
                StepInput::Spawned { rank: 0, pid }
            }
            Err(NotFound { code, error }) => StepInput::SpawnFailed { rank: 0, code, error },
        }
    }
}

/// Scripts that may wait for a thread, and starts that may wait to be told of.
const SCRIPTS_MAX: usize = 16_384;
/// The exit code of a script that was not started for want of room, as of a shell that cannot execute.
const NO_ROOM: u8 = 126;

/// The threads.
pub(super) struct Starters {
    scripts: SyncSender<Script>,
    waiting: Arc<Mutex<Receiver<Script>>>,
    tell: SyncSender<(StepKey, StepInput)>,
    started: Receiver<(StepKey, StepInput)>,
    bell: Arc<OwnedFd>,
    threads: usize,
    /// Scripts that are being started, since when.
    under_way: BTreeMap<StepKey, Instant>,
    /// When the last thread was added.
    relieved: Instant,
}

impl Starters {
    /// As many as there are processors for. Signals that this thread has blocked are blocked in them.
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
                // A bell that can't be rung has been rung often enough.
                let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
            }
        };
        thread::Builder::new().name("starter".into()).spawn(work)?;
        self.threads += 1;
        Ok(())
    }

    /// When `relieve` must be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let may = self.under_way.len() >= self.threads && self.threads < MOST_STUCK;
        let oldest = self.under_way.values().min().filter(|_| may)?;
        Some(*oldest.max(&self.relieved) + STUCK)
    }

    /// Adds a thread if all are held up.
    pub(super) fn relieve(&mut self, now: Instant) {
        if self.deadline().is_some_and(|due| due <= now) {
            self.relieved = now;
            if let Err(e) = self.add_thread() {
                tracing::error!(error = %e, "no further thread to start scripts");
            }
        }
    }

    /// Has a script started; `started` will tell. Some: too many wait, and this one is not started. The supervisor never
    /// waits for a thread. A thread may wait for the supervisor, which takes all that was started whenever it wakes.
    pub(super) fn start(&mut self, script: Script) -> Option<StepInput> {
        let key = script.key;
        // The threads live as long as this.
        if self.scripts.try_send(script).is_err() {
            let error = "too many scripts of this node wait to be started".to_owned();
            return Some(StepInput::SpawnFailed { rank: 0, code: NO_ROOM, error });
        }
        self.under_way.insert(key, Instant::now());
        None
    }

    /// Whether some are being started: then a process that nobody knows may be one of them.
    pub(super) fn are_at_work(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// What was started since, or failed to.
    pub(super) fn started(&mut self) -> Vec<(StepKey, StepInput)> {
        // It is rung again for what comes after this.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        let started: Vec<_> = self.started.try_iter().collect();
        for (key, _) in &started {
            self.under_way.remove(key);
        }
        started
    }

    /// Readable when there is something that `started` tells.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
