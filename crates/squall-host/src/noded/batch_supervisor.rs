//! Connects to the batch supervisor of this node (`stepd::supervisor`), exchanges messages with it, and handles its death.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use squall_engine::node::{NodeInput, attempt_of};
use squall_files::place::SocketPath;
use squall_model::codec;
use squall_model::encoding::Decoded;
use squall_model::id::StepKey;
use squall_model::series::Used;
use squall_model::step::{Program, StepLaunch};
use squall_model::wire::stepd::FromStepd;
use squall_model::wire::{Hello, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::error;

use super::steps::{By, Served};
use super::{Daemon, Event};
use crate::cgroup::StepGroups;
use crate::link;
use crate::processes::Stat;
use crate::stepd::batch_supervisor::{FromSupervisor, Order, SOCK, ToSupervisor};
use crate::sys::peer::peer_of;
use crate::sys::pidfd;
use crate::sys::watch::Watched;

/// Time limit for starting the batch supervisor and connecting to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect to the batch supervisor.
const PAUSE: Duration = Duration::from_millis(1);

/// Interval of the check whether the batch supervisor has answered, after a message to it.
const ASK: Duration = Duration::from_secs(1);
/// Number of intervals within which the batch supervisor must answer; otherwise it counts as stuck.
const ANSWERS_WITHIN: u32 = 5;

/// Time for which steps get step daemons of their own after no batch supervisor could be started.
const AGAIN: Duration = Duration::from_secs(10);

/// Most messages that may be queued for the batch supervisor: more than a node has for all its steps at once.
const WORDS_MAX: usize = 16_384;

/// The node daemon's connection to the batch supervisor. After it is dropped, queued messages are still sent.
pub(super) struct BatchSupervisor {
    words: Sender<Vec<u8>>,
    /// Notified when a message did not fit into the queue.
    overrun: Rc<Notify>,
}

impl BatchSupervisor {
    pub(super) fn tell(&self, word: &ToSupervisor) {
        // The loop does not wait, as it must receive the supervisor's messages meanwhile. A supervisor with so many
        // queued messages is stuck, and is killed. If the link has ended, that is reported separately.
        if let Err(TrySendError::Full(_)) = self.words.try_send(encoded(word)) {
            self.overrun.notify_one();
        }
    }
}

fn encoded(word: &ToSupervisor) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(e) = codec::encode(word, &mut bytes) {
        error!(error = %e, "a message for the batch supervisor could not be made");
    }
    bytes
}

/// An event of the batch supervisor.
pub(super) enum SupervisorEvent {
    /// The batch supervisor has sent this message.
    Said(FromSupervisor),
    /// The batch supervisor has ended.
    Gone,
}

impl Daemon {
    /// Whether the batch supervisor can serve a step: the step needs only a parent process, and its cgroup identifies
    /// its processes. Not if that group may be frozen: a thread that starts a process in it waits until the process
    /// executes, and the supervisor has few threads.
    pub(super) fn is_for_supervisor(&self, launch: &StepLaunch, groups: &StepGroups) -> bool {
        let memory = launch.memory_mb == 0 || groups.memory_dir().is_some();
        cfg!(target_arch = "x86_64")
            && !self.own_step_daemons
            && launch.program == Program::Batch
            && !launch.facts.spec.get_user_env
            && !launch.facts.ganged
            && launch.site.is_empty()
            && launch.plugins.is_none()
            && launch.container().is_none()
            && launch.private.is_empty()
            && memory
            && !groups.has_to_join()
            && self.cgroups.birthplace(launch.key).is_some()
    }

    /// Has the batch supervisor serve a step with a prepared folder, starting the supervisor if needed. Err: there is
    /// no supervisor; the order is returned.
    pub(super) fn give_to_supervisor(&mut self, order: Order) -> Result<(), Box<Order>> {
        if self.supervisor.is_none() && self.unsupervised.is_none_or(|since| since.elapsed() > AGAIN) {
            let steps = self.spool.steps_dir();
            let born = self.with_zygote(|zygote| zygote.birth_supervisor(&steps));
            let met = born.map(|pid| meet(&steps, || Stat::of(pid).is_some_and(|stat| !stat.is_dead())));
            self.unsupervised = Some(Instant::now());
            match met {
                Some(Ok((stream, pid, _))) => self.follow_supervisor(stream, pid),
                Some(Err(e)) => error!(error = %e, "no batch supervisor: batch scripts get step daemons of their own"),
                None => {}
            }
        }
        let Some(supervisor) = &self.supervisor else { return Err(Box::new(order)) };
        let key = order.launch.key;
        supervisor.tell(&ToSupervisor::Serve(Box::new(order)));
        self.served.insert(key, Served::by(By::BatchSupervisor));
        Ok(())
    }

    /// Finds the batch supervisor of an earlier incarnation at the start; returns the steps that it serves.
    pub(super) fn find_supervisor(&mut self) -> BTreeSet<StepKey> {
        match meet(&self.spool.steps_dir(), || false) {
            Ok((stream, pid, keys)) => {
                self.follow_supervisor(stream, pid);
                keys.into_iter().collect()
            }
            Err(_) => BTreeSet::new(),
        }
    }

    /// Returns the steps that the batch supervisor serves now.
    pub(super) fn served_by_supervisor(&self) -> BTreeSet<StepKey> {
        let again = self.supervisor.as_ref().and_then(|_| meet(&self.spool.steps_dir(), || false).ok());
        again.map(|(_, _, keys)| keys.into_iter().collect()).unwrap_or_default()
    }

    fn follow_supervisor(&mut self, stream: UnixStream, pid: u32) {
        let followed = || -> io::Result<_> {
            stream.set_read_timeout(None)?;
            stream.set_nonblocking(true)?;
            Ok((tokio::net::UnixStream::from_std(stream)?, Watched::new(pidfd::open(pid)?)?))
        };
        match followed() {
            Ok((stream, process)) => {
                let (words, queue) = channel(WORDS_MAX);
                let overrun = Rc::<Notify>::default();
                let (events, too_many) = (self.events.clone(), Rc::clone(&overrun));
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        () = converse(stream, queue, &events) => {}
                        () = too_many.notified() => error!("the batch supervisor takes no messages: killing it"),
                    }
                    // A supervisor that is disconnected must not continue.
                    let _ = pidfd::signal(process.as_fd(), libc::SIGKILL);
                    process.readable().await;
                    drop(events.send(Event::BatchSupervisor(SupervisorEvent::Gone)).await);
                });
                self.supervisor = Some(BatchSupervisor { words, overrun });
                self.unsupervised = None;
            }
            Err(e) => error!(error = %e, "the batch supervisor can't be followed"),
        }
    }

    pub(super) fn hear_supervisor(&mut self, event: SupervisorEvent) {
        match event {
            SupervisorEvent::Said(FromSupervisor::Over(key, word)) => {
                if self.served.get(&key).is_none_or(|served| !served.is_supervised()) {
                    return;
                }
                self.served.remove(&key);
                self.inputs.extend(match word {
                    FromStepd::Ended(end) => Some(NodeInput::Ended { key, end }),
                    FromStepd::Failed { error, node_fault } => Some(NodeInput::Failed { key, error, node_fault }),
                    _ => None,
                });
            }
            SupervisorEvent::Said(FromSupervisor::Used(key, usage, series)) => {
                self.inputs.push_back(NodeInput::Used { key, used: Used { usage, series } });
            }
            SupervisorEvent::Said(FromSupervisor::Ending(key)) => self.inputs.push_back(NodeInput::Ending { key }),
            SupervisorEvent::Said(FromSupervisor::Held(key, number)) => {
                self.inputs.push_back(NodeInput::Restored { job: attempt_of(key), number });
            }
            SupervisorEvent::Said(FromSupervisor::Lost(key)) => self.daemon_died(key),
            SupervisorEvent::Said(FromSupervisor::Returned(key)) => self.after_supervisor(key),
            SupervisorEvent::Said(FromSupervisor::Serves(_) | FromSupervisor::Alive) => {}
            SupervisorEvent::Gone => {
                self.supervisor = None;
                let left = self.served.iter().filter(|(_, served)| served.is_supervised());
                for key in left.map(|(key, _)| *key).collect::<Vec<_>>() {
                    self.after_supervisor(key);
                }
            }
        }
    }
}

impl Daemon {
    /// Handles a step that the batch supervisor no longer serves, because it died or has returned the step. If nothing
    /// of the step has begun, the step gets a step daemon of its own.
    fn after_supervisor(&mut self, key: StepKey) {
        let Some(served) = self.served.get(&key).filter(|served| served.is_supervised()) else { return };
        let free = !served.ended && self.spool.release(key);
        let launch = self.spool.launch(key).filter(|_| free);
        let Some(launch) = launch else { return self.daemon_died(key) };
        self.served.remove(&key);
        let cpus: Vec<usize> = launch.cores.iter().filter(|_| self.binds).collect();
        match self.start_daemon(&launch, &cpus) {
            Ok(()) => self.regroup(attempt_of(key)),
            Err(e) => self.spawn_failed(key, &e),
        }
    }
}

/// Connects to the batch supervisor; returns stream, pid and served steps. Retries while `hope` holds, up to
/// `PATIENCE`.
fn meet(steps: &Path, hope: impl Fn() -> bool) -> io::Result<(UnixStream, u32, Vec<StepKey>)> {
    let path = steps.parent().unwrap_or(steps).join(SOCK);
    let socket = SocketPath::new(&path)?;
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        match UnixStream::connect(socket.as_path()) {
            Ok(stream) => break stream,
            Err(e) if Instant::now() >= until || !hope() => return Err(e),
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    let peer = peer_of(&stream)?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let theirs: Hello = take(&mut stream)?;
    let mut greeting = Vec::new();
    codec::encode(&Hello::new(Role::Node(String::new())), &mut greeting).map_err(io::Error::other)?;
    stream.write_all(&greeting)?;
    let pid = peer.pid.ok_or(io::ErrorKind::NotFound)?;
    match (take(&mut stream)?, theirs.agreed()) {
        (_, Err(e)) => Err(io::Error::other(e)),
        (FromSupervisor::Serves(keys), Ok(_)) => Ok((stream, pid, keys)),
        _ => Err(io::Error::other("it does not tell what it serves")),
    }
}

fn take<T: Decoded>(stream: &mut UnixStream) -> io::Result<T> {
    let mut head = [0; codec::HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let (length, crc) = codec::header(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    codec::decode(&body, crc).map_err(io::Error::other)
}

/// Reads and writes until the link ends or the node daemon does.
async fn converse(mut stream: tokio::net::UnixStream, mut queue: Receiver<Vec<u8>>, events: &Sender<Event>) {
    let (reader, mut writer) = stream.split();
    let mut reader = tokio::io::BufReader::new(reader);
    // Clock ticks since the supervisor was asked; None: nothing is unanswered. Time in which this daemon itself was
    // stopped does not count.
    let asked: Cell<Option<u32>> = Cell::new(None);
    let listen = async {
        while let Ok(Some(word)) = link::read(&mut reader).await {
            if matches!(word, FromSupervisor::Alive) {
                asked.set(None);
                continue;
            }
            if events.send(Event::BatchSupervisor(SupervisorEvent::Said(word))).await.is_err() {
                return;
            }
        }
    };
    let speak = async {
        let mut clock = interval(ASK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unasked = false;
        loop {
            let mut pinged = false;
            let mut bytes = tokio::select! {
                bytes = queue.recv() => match bytes {
                    Some(bytes) => bytes,
                    // The node daemon ends; the supervisor stays.
                    None => std::future::pending().await,
                },
                _ = clock.tick(), if unasked || asked.get().is_some() => match asked.get() {
                    Some(ticks) if ticks >= ANSWERS_WITHIN => break,
                    Some(ticks) => {
                        asked.set(Some(ticks + 1));
                        continue;
                    }
                    None => {
                        asked.set(Some(0));
                        (unasked, pinged) = (false, true);
                        encoded(&ToSupervisor::Ping)
                    }
                },
            };
            while let Ok(more) = queue.try_recv() {
                bytes.extend(more);
                pinged = false;
            }
            unasked |= !pinged;
            match timeout(PATIENCE, writer.write_all(&bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break,
            }
        }
        error!("the batch supervisor does not answer: killing it");
    };
    tokio::select! {
        biased;
        () = listen => {}
        () = speak => {}
    }
}
