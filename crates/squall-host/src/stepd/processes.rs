//! The tasks' processes: started, signalled, reaped, and in the end all gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use squall_engine::step::StepInput;
use squall_model::job::{ExitCode, Usage};

use super::folder::Folder;
use super::meter::{Meter, io_bytes};
use super::prepare::{Prepared, Ready};
use super::scripts::Epilog;
use super::search::NotFound;
use super::tree::{descendants, signal_all};
use crate::processes::catches;
use crate::sys::identity::Identity;
use crate::sys::signals::kill;
use crate::sys::spawn::{Note, Spawn, SpawnError};
use crate::sys::wait::{Peeked, Reaped, Waited, peek, reap_pid};

/// How soon those that are being killed are looked at again if none of them reports its end.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(100);

/// How often, and how long apart, a program that somebody still writes is tried.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// All processes of the step.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Rank by process id, of tasks that run.
    ranks: BTreeMap<u32, u32>,
    /// Tasks that caught TERM when it was sent.
    heard: BTreeSet<u32>,
    /// What is to run when the task of a rank has ended.
    epilogs: BTreeMap<u32, Epilog>,
    /// By the process of an epilog: the end of its task, told when that has ended too.
    held: BTreeMap<u32, StepInput>,
    /// Everything is to be killed until nothing is left; the time of the next look.
    killing: Option<Instant>,
    /// The emulated task: how long it lasts and how it ends.
    timer: Option<(Instant, u8)>,
}

impl Processes {
    /// Starts the tasks. Each is answered for.
    pub(super) fn spawn(&mut self, ready: &mut Ready, folder: &mut Folder) -> Vec<StepInput> {
        let tasks = std::mem::take(&mut ready.tasks);
        let mut inputs = Vec::with_capacity(tasks.len());
        let begun = folder.note_begun();
        for mut task in tasks {
            let rank = task.rank;
            if let Err(e) = &begun {
                // Nobody could tell later whether it ran.
                let code = e.raw_os_error().unwrap_or(libc::EIO) as u8;
                inputs.push(StepInput::SpawnFailed { rank, code, error: format!("the spool can't be written: {e}") });
                continue;
            }
            inputs.push(match start(&task, ready, folder.notes().line(rank), None) {
                Ok(pid) => {
                    folder.noted(rank);
                    reset_score(pid);
                    self.ranks.insert(pid, rank);
                    self.epilogs.extend(task.epilog.take().map(|epilog| (rank, epilog)));
                    StepInput::Spawned { rank, pid }
                }
                Err(NotFound { code, error }) => StepInput::SpawnFailed { rank, code, error },
            });
        }
        inputs
    }

    /// Starts an emulated task, which has no process.
    pub(super) fn start_timer(&mut self, length: Duration, code: u8) -> StepInput {
        self.timer = Some((Instant::now() + length, code));
        StepInput::Spawned { rank: 0, pid: std::process::id() }
    }

    /// Tasks that run: (rank, pid).
    pub(super) fn tasks(&self) -> Vec<(u32, u32)> {
        self.ranks.iter().map(|(&pid, &rank)| (rank, pid)).collect()
    }

    /// Sends a signal to each task, or to all processes.
    pub(super) fn signal(&mut self, signal: i32, all: bool) -> Option<StepInput> {
        if signal == libc::SIGTERM {
            self.heard.extend(self.ranks.keys().filter(|pid| catches(**pid, signal)));
        }
        if all {
            signal_all(&descendants(std::process::id()), signal);
        } else {
            for &pid in self.ranks.keys() {
                let _ = kill(pid, signal);
            }
        }
        let ends = self.timer.is_some() && [libc::SIGTERM, libc::SIGKILL, libc::SIGINT].contains(&signal);
        ends.then(|| self.end_timer(ExitCode { code: 0, signal: signal as u8 }))
    }

    /// Kills everything, until `reap` says that nothing is left.
    pub(super) fn kill_left(&mut self) -> Option<StepInput> {
        self.kill_now();
        self.timer.is_some().then(|| self.end_timer(ExitCode { code: 0, signal: libc::SIGKILL as u8 }))
    }

    fn kill_now(&mut self) {
        self.killing = Some(Instant::now() + KILL_AGAIN);
        if peek() != Peeked::None {
            signal_all(&descendants(std::process::id()), libc::SIGKILL);
        }
    }

    fn end_timer(&mut self, exit: ExitCode) -> StepInput {
        self.timer = None;
        StepInput::Exited { rank: 0, exit, usage: Usage::default(), heard: false }
    }

    /// Takes children that have ended. While everything is killed: again, as long as something is left.
    pub(super) fn reap(&mut self, meter: &mut Meter, folder: &Folder) -> Vec<StepInput> {
        let mut inputs = Vec::new();
        let mut orphaned = false;
        let mut found = peek();
        while let Peeked::Ended(Reaped { pid, exit, usage }) = found {
            let io = io_bytes(pid);
            if let Some(&rank) = self.ranks.get(&pid) {
                // Once it is reaped nobody else can learn it any more.
                folder.note_exit(rank, exit, &usage);
            }
            let Ok(Waited::Reaped(reaped)) = reap_pid(pid) else { break };
            found = peek();
            let mut usage = reaped.usage;
            if let Some(end) = self.held.remove(&pid) {
                if reaped.exit != ExitCode::OK {
                    let ExitCode { code, signal } = reaped.exit;
                    tracing::warn!("TaskEpilog failed status={code}:{signal}");
                }
                inputs.push(end);
                continue;
            }
            let Some(rank) = self.ranks.remove(&pid) else {
                orphaned = true;
                inputs.push(StepInput::Orphan { usage: Usage { read_bytes: io.0, write_bytes: io.1, ..usage } });
                continue;
            };
            meter.complete(rank, &mut usage, io);
            if reaped.exit.signal == libc::SIGKILL as u8 {
                inputs.extend(meter.kernel_kills());
            }
            let heard = self.heard.remove(&pid);
            let end = StepInput::Exited { rank, exit: reaped.exit, usage, heard };
            // When everything is being killed nothing more is started.
            let epilog = self.epilogs.remove(&rank).filter(|_| self.killing.is_none());
            match epilog.map(|epilog| epilog.start(pid)) {
                Some(Ok(epilog)) => drop(self.held.insert(epilog, end)),
                Some(Err(e)) => {
                    tracing::error!(task = rank, error = %e, "the epilog of the task can't be started");
                    inputs.push(end);
                }
                None => inputs.push(end),
            }
        }
        if self.killing.is_some() {
            if found == Peeked::None {
                self.killing = None;
                inputs.extend(meter.kernel_kills());
                inputs.push(StepInput::Gone);
            } else if orphaned || !inputs.is_empty() || self.killing.is_some_and(|at| Instant::now() >= at) {
                // What the dead leave behind is ours now.
                self.kill_now();
            }
        }
        inputs
    }

    /// The emulated task's end, if its time has come.
    pub(super) fn timer_end(&mut self) -> Option<StepInput> {
        let (at, code) = self.timer?;
        (Instant::now() >= at).then(|| self.end_timer(ExitCode { code, signal: 0 }))
    }

    /// When to look again though nothing was heard.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.killing.into_iter().chain(self.timer.map(|(at, _)| at)).min()
    }
}

/// A file that was just written can't be executed as long as some process has it open for writing, even if that is only a
/// copy made by a fork elsewhere, on its way to exec: that passes.
pub(super) fn again_while_busy<T>(start: impl Fn() -> Result<T, SpawnError>) -> Result<T, SpawnError> {
    for _ in 0..BUSY_TRIES {
        match start() {
            Err(e) if e.errno() == libc::ETXTBSY => std::thread::sleep(BUSY_PAUSE),
            result => return result,
        }
    }
    start()
}

/// How a task starts that is not the child of a daemon of its own.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    /// Who it becomes.
    pub(super) identity: &'a Identity,
    /// Its file mode mask.
    pub(super) umask: u32,
    /// The v2 cgroup that it is born in.
    pub(super) group: BorrowedFd<'a>,
}

/// Starts a task; its process.
pub(super) fn start(
    task: &Prepared,
    ready: &Ready,
    note: Note<'_>,
    birth: Option<&Birth<'_>>,
) -> Result<u32, NotFound> {
    let program = task.program.as_ref().map_err(Clone::clone)?;
    let spawn = Spawn {
        program,
        argv: &task.argv,
        env: task.env.entries(),
        env_pid: task.env_pid,
        dir: Some(&ready.dir),
        stdio: [task.stdio[0].as_fd(), task.stdio[1].as_fd(), task.stdio[2].as_fd()],
        session: task.session,
        umask: birth.map(|birth| birth.umask),
        rlimits: &ready.rlimits,
        cpus: &task.cpus,
        further: task.further.as_ref().map(AsFd::as_fd),
        // Without root it is that user already.
        identity: birth.map(|birth| birth.identity).filter(|_| rustix::process::geteuid().is_root()),
        note: Some(note),
    };
    let start = || birth.map_or_else(|| spawn.start(), |birth| spawn.start_in(birth.group));
    let child = again_while_busy(start).map_err(|e| {
        let name = task.argv.first().map_or(program.as_c_str(), |n| n.as_c_str());
        NotFound::of(&e, name, program)
    })?;
    if let Some(verbose) = &task.verbose {
        verbose.say(&task.stdio[2], child.pid);
    }
    Ok(child.pid)
}

/// The daemon's own score was inherited; without root it was never changed.
fn reset_score(pid: u32) {
    if fs::read("/proc/self/oom_score_adj").is_ok_and(|s| s.starts_with(b"-")) {
        let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), "0");
    }
}
