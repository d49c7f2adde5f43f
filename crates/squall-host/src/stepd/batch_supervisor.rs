//! The batch supervisor: one step daemon for many steps. It is the parent of those batch scripts of a node that need
//! nothing but a parent.
//!
//! A process for each job that only waits for another costs as much as the job. So the zygote makes one copy of itself
//! that stays, keeps root's rights, and starts scripts as their users. It opens their files with the user's file
//! permissions, and the child becomes the user before it accesses anything. Each script is created in its step's v2
//! cgroup, which identifies its processes; a step without one has a step daemon of its own. The step's folder is the
//! same as for other step daemons, and so is the handling of the supervisor's death: the zygote records how the scripts
//! end.
//!
//! No user may delay the others: the supervisor opens plain files only, without waiting, and returns every step that
//! needs more (a FIFO, a leased file, an error that the user has to be told); such a step gets a step daemon of its
//! own. A script that is not executed in time is killed. If a file system hangs, the supervisor hangs too: then the
//! node daemon, which gets no answer, kills it.
//!
//! It listens at `DIR/node/NAME/foster.sock` for the node daemon, one after another, and ends when it has neither a
//! node daemon nor a script.

mod messages;
mod restore;

pub(crate) use messages::{FromSupervisor, Order, ToSupervisor};
pub(crate) use restore::Restoring;
use squall_files::place::SocketPath;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use squall_engine::machine::Machine;
use squall_engine::step::{StepAct, StepInput, StepMachine, StepSetup};
use squall_model::id::StepKey;
use squall_model::job::{ExitCode, Usage};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};

use super::checkpoint::set_frozen;
use super::daemon::{end_notice, write_report};
use super::environment::Environment;
use super::files::{Opening, null};
use super::folder::{Folder, FolderError};
use super::frames::{Filled, Frames};
use super::meter::{Meter, io_bytes};
use super::ports::abort;
use super::prepare::{Prepared, Ready, prepare};
use super::processes::KILL_AGAIN;
use super::starters::{Script, Starters};
use super::streams::Streams;
use crate::cgroup::{StepGroups, kill_group, members};
use crate::processes::catches;
use crate::signing::Authority;
use crate::sys::clock::steady;
use crate::sys::fsuser::with_files_of;
use crate::sys::identity::{Identity, become_user};
use crate::sys::offspring::set_command_line;
use crate::sys::peer::peer_of;
use crate::sys::pidfd;
use crate::sys::signals::{SignalFd, kill};
use crate::sys::wait::{Peeked, Reaped, Waited, peek, reap_pid};

/// Name of the supervisor's socket in the node's spool.
pub(crate) const SOCK: &str = "foster.sock";

/// Command line of an idle supervisor; a busy one has that of a step daemon with the folder of all steps.
pub(super) const IDLE_TITLE: [&[u8]; 3] = [b"squall", b"step", b"--batch-supervisor"];

/// Time that the supervisor waits for its first node daemon.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Interval at which memory use is sampled.
const SAMPLE: Duration = Duration::from_secs(1);

/// Time for processes to freeze which are then killed.
const FREEZE: Duration = Duration::from_millis(5);

/// Time limit for the execution of a step's script, and for the end of a script that was killed before it was executed.
const START: Duration = Duration::from_secs(30);
const START_OF_ENDED: Duration = Duration::from_secs(1);
/// A step that the supervisor serves.
struct Ward {
    machine: StepMachine,
    folder: Folder,
    order: Order,
    meter: Meter,
    /// The prepared script; None once it is being started.
    ready: Option<Ready>,
    /// The step's cgroup, opened, until the script is being started.
    birthplace: Option<File>,
    /// State of the script's start; None before and after.
    starting: Option<Starting>,
    /// Process id of the script, until it is reaped.
    pid: Option<u32>,
    /// Whether the script had a handler for SIGTERM when it was sent that signal.
    heard: bool,
    /// The script's standard error, for notices to the user; None: it is not open.
    stderr: Option<File>,
    /// The script's standard output, for the report at its end; None: there is none to write.
    stdout: Option<File>,
    next_sample: Instant,
    /// Time of the next kill while all processes of the step are being killed; None: they are not being killed.
    killing: Option<Instant>,
    /// What the process that restores the script writes. None: it is not being restored.
    log: Option<File>,
    /// How a restored part of a job waits for the others.
    gate: restore::Gate,
    /// Whether the step ends because its job goes back to the queue.
    returns: bool,
}

/// State of a script from its start until it is executed.
struct Starting {
    /// Inputs for the state machine that have arrived since the start began.
    later: Vec<StepInput>,
    /// Time limit of the start: a process that has not executed the script by then is killed.
    kill_at: Instant,
    /// Set when the script must not be started any more.
    ended: Arc<AtomicBool>,
}

impl Ward {
    fn group(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.order.birthplace))
    }

    fn identity(&self) -> Identity {
        let owner = &self.order.launch.facts.owner;
        Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() }
    }

    fn notice(&mut self, text: &str) {
        if let Some(file) = &mut self.stderr {
            drop(file.write_all(format!("slurmstepd: error: {text}\n").as_bytes()));
        } else {
            tracing::warn!("{text}");
        }
    }

    /// Signals all processes of the step.
    fn signal_all(&mut self, signal: i32) {
        if signal == libc::SIGKILL && self.returns && self.order.launch.facts.nodes.len() > 1 {
            // None must see that its connections are gone.
            drop(set_frozen(self.group(), true));
            std::thread::sleep(FREEZE);
            abort(&members(self.group()));
        }
        // All at once, where the kernel can: none must see that another one is gone, and tidy up what a restore needs.
        if signal == libc::SIGKILL && kill_group(self.group()) {
            return;
        }
        if signal == libc::SIGTERM {
            self.heard |= self.pid.is_some_and(|pid| catches(pid, signal));
        }
        let found = members(self.group()).into_iter().filter_map(|pid| Some((pid, pidfd::open(pid).ok()?)));
        let found: Vec<_> = found.collect();
        // Only processes that are still in the group: their ids were not reused before their pidfds were opened.
        let still = members(self.group());
        for (_, fd) in found.iter().filter(|(pid, _)| still.contains(pid)) {
            // It may have ended by itself.
            let _ = pidfd::signal(fd.as_fd(), signal);
        }
    }

    /// Whether all processes of the step are gone. Otherwise they are killed, and the next check is scheduled.
    fn is_cleared(&mut self) -> bool {
        let gone = match fs::remove_dir(self.group()) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            // The group may contain groups made by the step.
            Err(_) => members(self.group()).is_empty(),
        } && self.pid.is_none();
        self.killing = (!gone).then(|| Instant::now() + KILL_AGAIN);
        if !gone {
            self.signal_all(libc::SIGKILL);
        }
        gone
    }

    fn deadline(&self) -> Option<Instant> {
        let machine = self
            .machine
            .deadline()
            .filter(|_| self.starting.is_none())
            .map(|at| Instant::now() + Duration::from_micros(at.since(steady()).0));
        let starting = self.starting.as_ref().map(|starting| starting.kill_at);
        [machine, self.killing, starting, Some(self.next_sample)].into_iter().flatten().min()
    }
}

/// A connection of a node daemon to the batch supervisor.
struct Link {
    frames: Frames,
    greeted: bool,
    broken: bool,
}

/// The running batch supervisor.
pub(super) struct BatchSupervisor {
    steps: PathBuf,
    authority: Authority,
    signals: SignalFd,
    listener: UnixListener,
    links: Vec<Link>,
    wards: BTreeMap<StepKey, Ward>,
    starters: Starters,
    /// Steps by the process id of their script.
    scripts: HashMap<u32, StepKey>,
    /// Steps by the id of the process that restores their script.
    restores: HashMap<u32, StepKey>,
    /// Messages to node daemons, sent at the end of this iteration of the loop.
    words: Vec<FromSupervisor>,
    /// Whether the command line shows at present that the supervisor serves steps.
    busy: bool,
    /// Earliest time at which the supervisor may end: it ends when it then has neither a node daemon nor a script.
    until: Instant,
}

impl BatchSupervisor {
    /// Opens the supervisor of the node with the folders of its steps in `steps`.
    pub(super) fn new(steps: &Path) -> io::Result<Self> {
        let signals = SignalFd::new(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        let path = steps.parent().unwrap_or(steps).join(SOCK);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(SocketPath::new(&path)?.as_path())?;
        listener.set_nonblocking(true)?;
        let (links, wards, scripts, restores, words) = Default::default();
        let until = Instant::now() + FIRST_WAIT;
        // Made after the descriptor of signals, so that the threads have these signals blocked.
        let starters = Starters::new()?;
        let (steps, authority) = (steps.to_owned(), Authority::of(steps)?);
        Ok(Self {
            steps,
            authority,
            signals,
            listener,
            links,
            wards,
            starters,
            scripts,
            restores,
            words,
            busy: false,
            until,
        })
    }

    /// Runs until there is nothing to do; returns the exit status.
    pub(super) fn run(mut self) -> i32 {
        while !(self.wards.is_empty() && self.links.is_empty() && Instant::now() >= self.until) {
            self.turn();
        }
        0
    }

    fn turn(&mut self) {
        let (signal, started, caller, speaking) = self.wait();
        self.hear_gates();
        if caller {
            self.accept();
        }
        for at in speaking {
            self.listen(at);
        }
        if started {
            self.take_started();
        }
        if signal {
            self.take_signals();
        }
        self.look_after();
        self.show();
        self.speak();
    }

    /// Shows by the command line whether steps are served.
    fn show(&mut self) {
        if self.busy == self.wards.is_empty() {
            self.busy = !self.busy;
            let steps = self.steps.as_os_str().as_bytes();
            // Only `ps` shows it, so errors are ignored.
            drop(if self.busy {
                set_command_line(&[b"squall", b"step", b"--spool", steps])
            } else {
                set_command_line(&IDLE_TITLE)
            });
        }
    }

    /// Waits for an event; returns whether there is a signal, a started script, a caller, and the indexes of readable
    /// connections.
    fn wait(&self) -> (bool, bool, bool, Vec<usize>) {
        let sending = |f: &Frames| if f.backlog() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let fixed = [self.signals.as_fd(), self.starters.bell(), self.listener.as_fd()].map(|fd| (fd, PollFlags::IN));
        let links = self.links.iter().map(|link| (link.frames.as_fd(), PollFlags::IN | sending(&link.frames)));
        let gates = self.wards.values().filter_map(|ward| ward.gate.waits_for()).map(|fd| (fd, PollFlags::IN));
        let fds = fixed.into_iter().chain(links).chain(gates).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        let idle = (self.wards.is_empty() && self.links.is_empty()).then_some(self.until);
        let next = self.wards.values().filter_map(Ward::deadline).chain(idle).chain(self.starters.deadline()).min();
        let timeout = next.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return (false, false, false, Vec::new());
        }
        let hit: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let links = hit.iter().skip(3).take(self.links.len()).enumerate().filter(|(_, hit)| **hit).map(|(at, _)| at);
        (hit[0], hit[1], hit[2], links.collect())
    }

    fn accept(&mut self) {
        let own = rustix::process::geteuid().as_raw();
        while let Ok((stream, _)) = self.listener.accept() {
            let peer = peer_of(&stream).map(|peer| peer.uid);
            let Ok(mut frames) = Frames::new(stream) else { continue };
            if peer.is_ok_and(|uid| uid == 0 || uid == own) {
                frames.send(&Hello::new(Role::Step));
                frames.send(&FromSupervisor::Serves(self.wards.keys().copied().collect()));
                self.wards.values().filter_map(Ward::held).for_each(|word| frames.send(&word));
                self.links.push(Link { frames, greeted: false, broken: false });
            }
        }
    }

    fn listen(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.frames.flush();
        link.broken = link.frames.fill() == Filled::Closed;
        loop {
            let link = &mut self.links[at];
            let word = if link.greeted {
                link.frames.take::<ToSupervisor>()
            } else {
                match link.frames.take::<Hello>() {
                    Ok(Some(hello)) if hello.agreed().is_ok() => {
                        link.greeted = true;
                        continue;
                    }
                    Ok(None) => Ok(None),
                    Ok(Some(_)) | Err(_) => return link.broken = true,
                }
            };
            match word {
                Ok(Some(ToSupervisor::Serve(order))) => self.serve(*order),
                Ok(Some(ToSupervisor::Tell { key, message })) => match message {
                    ToStepd::Signal { signal, all } => self.feed(key, StepInput::Signal { signal, all }),
                    ToStepd::End { kill_wait_s, why } => {
                        // A script that was executed meanwhile is ended in the usual way.
                        self.take_started();
                        self.feed(key, StepInput::End { kill_wait_s, why });
                    }
                    ToStepd::Usage => self.measure(key),
                    ToStepd::Notice(text) => {
                        if let Some(ward) = self.wards.get_mut(&key) {
                            ward.notice(&text);
                        }
                    }
                    ToStepd::Letter { .. } | ToStepd::Watch(_) => {}
                },
                Ok(Some(ToSupervisor::Go(key))) => {
                    if let Some(ward) = self.wards.get_mut(&key) {
                        ward.gate.open();
                    }
                }
                Ok(Some(ToSupervisor::Ping)) => self.links[at].frames.queue(&FromSupervisor::Alive),
                Ok(None) => return,
                Err(e) => {
                    tracing::error!(error = %e, "the connection to the node daemon is broken");
                    return link.broken = true;
                }
            }
        }
    }

    /// Sends the messages that were collected in `words`, and removes broken connections.
    fn speak(&mut self) {
        for word in self.words.drain(..) {
            self.links.iter_mut().for_each(|link| link.frames.queue(&word));
        }
        self.links.iter_mut().filter(|link| link.frames.backlog() > 0).for_each(|link| link.frames.flush());
        if self.links.iter().any(|link| link.broken) {
            self.links.retain(|link| !link.broken);
            self.until = Instant::now();
        }
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            if signal != libc::SIGCHLD {
                for key in self.wards.keys().copied().collect::<Vec<_>>() {
                    let kill_wait_s = self.wards.get(&key).map_or(0, |ward| ward.order.launch.kill_wait_s);
                    self.feed(key, StepInput::End { kill_wait_s, why: EndReason::None });
                }
            }
        }
        self.reap();
    }
}

/// Functions for the start and end of scripts.
impl BatchSupervisor {
    fn serve(&mut self, mut order: Order) {
        let key = order.launch.key;
        if let Err(problem) = self.check(&order) {
            // A step daemon of its own checks what stands in the folder, and tells the user.
            tracing::error!("{problem}");
            return self.words.push(FromSupervisor::Returned(key));
        }
        let environment = std::mem::take(&mut order.environment).into_vec();
        let folder = Folder::adopt(self.steps.join(key.to_string()), order.launch.clone(), environment);
        let folder = match folder {
            Ok(folder) => folder,
            Err(e) => {
                if !matches!(e, FolderError::Taken) {
                    tracing::error!(step = %key, error = %e, "the step's folder can't be taken");
                }
                return self.words.push(FromSupervisor::Lost(key));
            }
        };
        let ward = Ward {
            machine: StepMachine::new(StepSetup::of(&order.launch)),
            meter: Meter::new(&order.launch, StepGroups::from_text(&order.groups)),
            folder,
            order,
            ready: None,
            birthplace: None,
            starting: None,
            pid: None,
            heard: false,
            stderr: None,
            stdout: None,
            next_sample: Instant::now() + SAMPLE,
            killing: None,
            log: None,
            gate: restore::Gate::default(),
            returns: false,
        };
        if let Some(first) = self.wards.entry(key).or_insert(ward).begin() {
            self.feed(key, first);
        } else {
            self.wards.remove(&key);
            self.words.push(FromSupervisor::Returned(key));
        }
    }

    /// Checks that the controller has ordered a step.
    fn check(&mut self, order: &Order) -> Result<(), String> {
        let check = |authority: &Authority| authority.check(&order.launch, order.warrant.as_ref());
        if check(&self.authority).is_ok() {
            return Ok(());
        }
        // The controllers may have another key now.
        self.authority = Authority::of(&self.steps).map_err(|e| e.to_string())?;
        check(&self.authority)
    }

    fn measure(&mut self, key: StepKey) {
        let Some(ward) = self.wards.get_mut(&key) else { return };
        let script = ward.pid.map(|pid| (0, pid));
        let used = ward.meter.so_far(script.as_slice());
        self.words.push(FromSupervisor::Used(key, used, ward.machine.series()));
    }

    /// Steps a step's state machine with an input and carries out its acts, until it has none.
    fn feed(&mut self, key: StepKey, input: StepInput) {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            let Some(ward) = self.wards.get_mut(&key) else { return };
            if let Some(starting) = &mut ward.starting {
                // A script that was not executed when its step is ended never is. A requeue gives it time.
                match input {
                    StepInput::End { why: EndReason::Requeued, .. } => {
                        starting.kill_at = starting.kill_at.min(Instant::now() + START_OF_ENDED);
                    }
                    StepInput::End { .. } => {
                        starting.ended.store(true, Ordering::SeqCst);
                        starting.kill_at = Instant::now();
                    }
                    _ => {}
                }
                starting.later.push(input);
                continue;
            }
            let mut acts = Vec::new();
            ward.machine.step(steady(), input, &mut acts);
            for act in acts {
                self.act(key, act, &mut queue);
            }
        }
    }

    fn act(&mut self, key: StepKey, act: StepAct, answers: &mut VecDeque<StepInput>) {
        let Some(ward) = self.wards.get_mut(&key) else { return };
        match act {
            StepAct::Spawn => match ward.script() {
                Ok(script) => {
                    let (later, ended) = (Vec::new(), Arc::clone(&script.ended));
                    ward.starting = Some(Starting { later, kill_at: Instant::now() + START, ended });
                    if let Some(failed) = self.starters.start(script) {
                        ward.starting = None;
                        answers.push_back(failed);
                    }
                }
                Err(failed) => answers.push_back(failed),
            },
            StepAct::Signal { signal, all: true } => ward.signal_all(signal),
            StepAct::Signal { signal, all: false } => {
                // It is our child, so its id is not reused until we reap it.
                drop(ward.pid.map(|pid| kill(pid, signal)));
            }
            StepAct::KillLeft => answers.extend(ward.is_cleared().then_some(StepInput::Gone)),
            StepAct::Drain => answers.push_back(StepInput::Drained { delivered: true }),
            StepAct::NoticeEnd(why) => {
                ward.returns = matches!(why, EndReason::Requeued | EndReason::RequeuesItself);
                ward.notice(&end_notice(&ward.order.launch, why));
            }
            StepAct::Notice(text) => ward.notice(&text),
            StepAct::Report { end, why } => {
                let file = ward.stdout.take();
                write_report(file, &ward.order.launch, &end, why);
            }
            StepAct::WriteResult(last) => {
                if let Err(e) = ward.folder.write_result(&last) {
                    tracing::error!(step = %key, error = %e, "cannot write the result of the step");
                }
            }
            StepAct::Node(word @ (FromStepd::Ended(_) | FromStepd::Failed { .. })) => {
                self.words.push(FromSupervisor::Over(key, word));
            }
            StepAct::Node(FromStepd::Ending) => self.words.push(FromSupervisor::Ending(key)),
            StepAct::Node(_) | StepAct::Client(_) => {}
            StepAct::Exit => drop(self.wards.remove(&key)),
        }
    }

    /// Takes the results of starts: scripts that were started, or could not be.
    fn take_started(&mut self) {
        for (key, answer) in self.starters.started() {
            let Some(ward) = self.wards.get_mut(&key) else { continue };
            if let StepInput::Spawned { pid, .. } = answer {
                if let (Some(starting), Some(_)) = (&mut ward.starting, ward.order.launch.facts.restore) {
                    self.restores.insert(pid, key);
                    if starting.later.is_empty() {
                        starting.kill_at = Instant::now() + restore::RESTORE;
                    }
                    continue;
                }
                ward.pid = Some(pid);
                self.scripts.insert(pid, key);
            }
            let later = ward.starting.take().map(|starting| starting.later).unwrap_or_default();
            let answer = match answer {
                // What does not restore the script must not end as if it had run.
                StepInput::SpawnFailed { error, .. } if ward.log.is_some() => {
                    StepInput::Fail { error, node_fault: true }
                }
                answer => answer,
            };
            for input in [answer].into_iter().chain(later) {
                self.feed(key, input);
            }
        }
        self.reap();
    }

    /// Reaps children that have ended.
    fn reap(&mut self) {
        while let Peeked::Ended(Reaped { pid, exit, usage }) = peek() {
            if let Some(key) = self.restores.remove(&pid) {
                let Ok(Waited::Reaped(_)) = reap_pid(pid) else { return };
                self.restored(key, exit == ExitCode::OK);
                continue;
            }
            let Some(key) = self.scripts.remove(&pid).or_else(|| self.restored_script(pid)) else {
                let of = self.whose(pid);
                let starting = |key| self.wards.get(&key).is_some_and(|ward| ward.starting.is_some());
                if self.starters.are_at_work() && of.is_none_or(starting) {
                    // It may be a script, with its start not reported yet.
                    break;
                }
                self.reap_orphan(pid, of);
                continue;
            };
            let io = io_bytes(pid);
            // One that is being restored may have been ended by CRIU.
            if let Some(ward) = self.wards.get(&key).filter(|ward| ward.starting.is_none()) {
                // After it is reaped its exit can't be read any more.
                ward.folder.note_exit(0, exit, &usage);
            }
            let Ok(Waited::Reaped(mut reaped)) = reap_pid(pid) else { return };
            let Some(ward) = self.wards.get_mut(&key) else { continue };
            ward.pid = None;
            if let Some(starting) = &mut ward.starting {
                starting.kill_at = starting.kill_at.min(Instant::now() + restore::RESTORE_OF_ENDED);
            }
            ward.meter.complete(0, &mut reaped.usage, io);
            let heard = std::mem::take(&mut ward.heard);
            let kills = (exit.signal == libc::SIGKILL as u8).then(|| ward.meter.kernel_kills()).flatten();
            if let Some(kills) = kills {
                self.feed(key, kills);
            }
            self.feed(key, StepInput::Exited { rank: 0, exit: reaped.exit, usage: reaped.usage, heard });
        }
        // Processes left by the dead ones are children of the supervisor now.
        self.kill_on(|_| true);
    }

    /// Returns the step of an ended process that is not reaped yet: the step with the process in its group. None: no
    /// served step has it.
    fn whose(&self, pid: u32) -> Option<StepKey> {
        let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let group = group.lines().find_map(|line| line.strip_prefix("0::/")).filter(|group| !group.is_empty())?;
        self.wards.iter().find(|(_, ward)| ward.group().ends_with(group)).map(|(key, _)| *key)
    }

    /// Reaps an ended process that had lost its parent. If it was in the group of a step (`of`), its
    /// usage counts for that step.
    fn reap_orphan(&mut self, pid: u32, of: Option<StepKey>) {
        let io = io_bytes(pid);
        let Ok(Waited::Reaped(reaped)) = reap_pid(pid) else { return };
        let usage = Usage { read_bytes: io.0, write_bytes: io.1, ..reaped.usage };
        if let Some(key) = of {
            self.feed(key, StepInput::Orphan { usage });
        }
    }

    /// Continues to kill the processes of steps for which the next kill is due.
    fn kill_on(&mut self, due: impl Fn(Instant) -> bool) {
        let clearing = self.wards.iter_mut().filter(|(_, ward)| ward.killing.is_some_and(&due));
        let cleared = clearing.filter_map(|(key, ward)| ward.is_cleared().then_some(*key));
        for key in cleared.collect::<Vec<_>>() {
            if let Some(ward) = self.wards.get_mut(&key)
                && let Some(kills) = ward.meter.kernel_kills()
            {
                self.feed(key, kills);
            }
            self.feed(key, StepInput::Gone);
        }
    }

    /// Handles what is due by the clock: kills, samples of memory use, deadlines of steps, and stuck starts.
    fn look_after(&mut self) {
        let (clock, time) = (Instant::now(), steady());
        self.kill_on(|at| at <= clock);
        self.starters.relieve(clock);
        let mut inputs = Vec::new();
        for (key, ward) in &mut self.wards {
            if ward.starting.as_ref().is_some_and(|starting| starting.kill_at <= clock) {
                ward.kill_starting(clock);
            }
            if ward.starting.is_none() && ward.machine.deadline().is_some_and(|at| time >= at) {
                inputs.push((*key, StepInput::Tick));
            }
            if ward.next_sample <= clock {
                ward.next_sample = clock + SAMPLE;
                let processes = members(ward.group());
                inputs.extend(ward.meter.sample_group(processes).into_iter().map(|input| (*key, input)));
            }
        }
        for (key, input) in inputs {
            self.feed(key, input);
        }
    }
}

impl Ward {
    /// Opens the script's files. None: the step needs a step daemon of its own.
    fn begin(&mut self) -> Option<StepInput> {
        let identity = self.identity();
        if !rustix::process::geteuid().is_root()
            && let Err(e) = become_user(&identity)
        {
            return Some(StepInput::Fail { error: e.to_string(), node_fault: true });
        }
        // Without its group the script would run without limits.
        self.birthplace = Some(File::open(self.group()).ok()?);
        let own = rustix::process::umask(self.umask());
        let ready = with_files_of(&identity, || prepare(&self.folder, None, None, Opening::AtOnce));
        rustix::process::umask(own);
        match ready {
            Ok(Ok(mut ready)) if ready.notes.is_empty() || self.order.restoring.is_some() => {
                (self.stderr, self.stdout) = (ready.stderr.take(), ready.stdout.take());
                self.ready = Some(ready);
                Some(StepInput::Start)
            }
            Ok(Err(refusal)) if self.order.restoring.is_some() => {
                Some(StepInput::Fail { error: refusal.note, node_fault: false })
            }
            // Only a process that has become the user can report this to the user, and check whether it holds for the
            // user.
            Ok(_) => None,
            Err(e) => {
                let error = format!("cannot use files as the user: {e}");
                Some(StepInput::Fail { error, node_fault: true })
            }
        }
    }

    /// Kills a script that was not executed in time. Causes may be an interpreter with a lease on it, a file system
    /// that hangs, or a user who has stopped it.
    fn kill_starting(&mut self, now: Instant) {
        if self.log.is_none() && self.starting.as_ref().is_some_and(|starting| starting.later.is_empty()) {
            self.notice(&format!("the script was not executed within {} s: killed", START.as_secs()));
        }
        self.signal_all(libc::SIGKILL);
        if let Some(starting) = &mut self.starting {
            starting.kill_at = now + START_OF_ENDED;
        }
    }

    fn umask(&self) -> Mode {
        Mode::from_raw_mode(self.order.launch.facts.spec.umask & 0o777)
    }

    /// Returns the script to be started. Err: the input that reports why it can't be started.
    fn script(&mut self) -> Result<Script, StepInput> {
        let failed = |e: io::Error| StepInput::SpawnFailed {
            rank: 0,
            code: e.raw_os_error().unwrap_or(libc::EIO) as u8,
            error: format!("the script can't be started here: {e}"),
        };
        let group = self.birthplace.take().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        self.folder.note_begun().map_err(failed)?;
        let task = self.ready.take().and_then(|mut ready| Some((ready.tasks.pop()?, ready)));
        let (mut task, ready) = task.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        task.cpus.clone_from(&self.order.cpus);
        if self.order.restoring.is_some() {
            return self.restoring_script(task, group).map_err(failed);
        }
        let (identity, umask) = (self.identity(), self.umask().as_raw_mode());
        let notes = Some(self.folder.notes().clone());
        let (key, ended) = (self.order.launch.key, Arc::default());
        let keeps_orphans = self.order.launch.facts.inside == Some(true);
        Ok(Script { key, task, ready, identity, umask, keeps_orphans, group, notes, ended })
    }
}
