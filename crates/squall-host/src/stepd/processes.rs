//! The processes of a step: starts, signals and reaps tasks, and kills all that is left in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use squall_engine::step::StepInput;
use squall_model::job::{ExitCode, Usage};
use squall_model::step::Program;

use super::folder::Folder;
use super::meter::{Meter, io_bytes};
use super::prepare::{Prepared, Ready};
use super::scripts::Epilog;
use super::search::NotFound;
use crate::descendants::{descendants, signal_all, stat_field};
use crate::processes::{catches, variable};
use crate::sys::identity::Identity;
use crate::sys::signals::kill;
use crate::sys::spawn::{Note, Spawn, SpawnError};
use crate::sys::wait::{Peeked, Reaped, Waited, peek, reap_pid};

/// Interval at which SIGKILL is repeated if no child's end is reported meanwhile.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(100);

/// Number of tries to execute a program that is still being written, and the pause between them.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Value of `oom_score_adj` of tasks, where the step daemon has the usual one.
const TASK_SCORE: &str = "1000";

/// All processes of a step.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Ranks of running tasks by process id.
    ranks: BTreeMap<u32, u32>,
    /// Process ids of tasks that had a handler for SIGTERM when they were sent that signal.
    heard: BTreeSet<u32>,
    /// Epilogs to run after a task's end, by rank.
    epilogs: BTreeMap<u32, Epilog>,
    /// Ends of tasks that are reported when their epilog has ended, by the epilog's process id.
    held: BTreeMap<u32, StepInput>,
    /// Whether a task lasts until the processes that it has left behind have ended (`--wait-for-children`).
    waits_for_children: bool,
    /// Tasks that have ended before processes that they had left behind, by their process id: rank and end.
    left: BTreeMap<u32, (u32, StepInput)>,
    /// Texts for the user about epilogs that failed, not sent yet.
    complaints: Vec<String>,
    /// Time of the next kill while all processes of the step are being killed; None: they are not being killed.
    killing: Option<Instant>,
    /// End time and exit code of an emulated task; None: there is none.
    timer: Option<(Instant, u8)>,
}

impl Processes {
    /// Returns the processes of a step that runs this program, none yet.
    pub(super) fn of(program: &Program) -> Self {
        let waits = matches!(program, Program::Tasks(tasks) if tasks.wait_for_children == Some(true));
        Self { waits_for_children: waits, ..Self::default() }
    }

    /// Starts the tasks; returns an input of the state machine for each: the task was started, or could not be.
    pub(super) fn spawn(&mut self, ready: &mut Ready, folder: &mut Folder) -> Vec<StepInput> {
        let tasks = std::mem::take(&mut ready.tasks);
        let mut inputs = Vec::with_capacity(tasks.len());
        let begun = folder.note_begun();
        for mut task in tasks {
            let rank = task.rank;
            if let Err(e) = &begun {
                // Without this record it could not be determined later whether the task ran.
                let code = e.raw_os_error().unwrap_or(libc::EIO) as u8;
                inputs.push(StepInput::SpawnFailed { rank, code, error: format!("the spool can't be written: {e}") });
                continue;
            }
            inputs.push(match start(&task, ready, Some(folder.notes().line(rank)), None) {
                Ok(pid) => {
                    folder.noted(rank);
                    set_score(pid, folder.launch.memory_mb > 0);
                    self.ranks.insert(pid, rank);
                    self.epilogs.extend(task.epilog.take().map(|epilog| (rank, epilog)));
                    StepInput::Spawned { rank, pid }
                }
                Err(NotFound { code, error }) => StepInput::SpawnFailed { rank, code, error },
            });
        }
        inputs
    }

    /// Takes over a task that the process with the plugins has made; returns an input of the state machine.
    pub(super) fn adopt(&mut self, (rank, pid): (u32, u32), epilog: Option<Epilog>, folder: &mut Folder) -> StepInput {
        if let Err(e) = folder.note_made(rank, pid) {
            let code = e.raw_os_error().unwrap_or(libc::EIO) as u8;
            return StepInput::SpawnFailed { rank, code, error: format!("the spool can't be written: {e}") };
        }
        set_score(pid, folder.launch.memory_mb > 0);
        self.ranks.insert(pid, rank);
        self.epilogs.extend(epilog.map(|epilog| (rank, epilog)));
        StepInput::Spawned { rank, pid }
    }

    /// Starts an emulated task, which has no process.
    pub(super) fn start_timer(&mut self, length: Duration, code: u8) -> StepInput {
        self.timer = Some((Instant::now() + length, code));
        StepInput::Spawned { rank: 0, pid: std::process::id() }
    }

    /// Returns the running tasks: (rank, pid).
    pub(super) fn tasks(&self) -> Vec<(u32, u32)> {
        self.ranks.iter().map(|(&pid, &rank)| (rank, pid)).collect()
    }

    /// Sends a signal to each task, or (`all`) to all processes of the step. Returns the end of an emulated task that
    /// the signal ends.
    pub(super) fn signal(&mut self, signal: i32, all: bool) -> Option<StepInput> {
        if signal == libc::SIGTERM {
            self.heard.extend(self.ranks.keys().filter(|pid| catches(**pid, signal)));
        }
        // What ended tasks have left behind is signalled in their place.
        if all || !self.left.is_empty() {
            signal_all(&descendants(std::process::id()), signal);
        } else {
            for &pid in self.ranks.keys() {
                let _ = kill(pid, signal);
            }
        }
        let ends = self.timer.is_some() && [libc::SIGTERM, libc::SIGKILL, libc::SIGINT].contains(&signal);
        ends.then(|| self.end_timer(ExitCode { code: 0, signal: signal as u8 }))
    }

    /// Kills all processes, and has `reap` repeat that until none is left. Returns the end of an emulated task.
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

    /// Reaps children that have ended, and reports them. While all are being killed, repeats the kill.
    pub(super) fn reap(&mut self, meter: &mut Meter, folder: &Folder) -> Vec<StepInput> {
        let mut inputs = Vec::new();
        let mut orphaned = false;
        let mut found = peek();
        while let Peeked::Ended(Reaped { pid, exit, usage }) = found {
            let io = io_bytes(pid);
            if let Some(&rank) = self.ranks.get(&pid) {
                // After it is reaped its exit can't be read any more.
                folder.note_exit(rank, exit, &usage);
            }
            let Ok(Waited::Reaped(reaped)) = reap_pid(pid) else { break };
            found = peek();
            let mut usage = reaped.usage;
            if let Some(end) = self.held.remove(&pid) {
                if reaped.exit != ExitCode::OK {
                    // As in Slurm, the status is that of wait(2).
                    let ExitCode { code, signal } = reaped.exit;
                    let status = u32::from(code) << 8 | u32::from(signal);
                    self.complaints.push(format!("TaskEpilog failed status={status}"));
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
            let ends = reaped.exit != ExitCode::OK && kills_on_bad_exit(&folder.launch.program);
            if self.waits_for_children && !ends {
                self.left.insert(pid, (rank, end));
            } else {
                self.end_task((pid, rank), end, &mut inputs);
            }
        }
        self.end_childless(&mut inputs);
        if self.killing.is_some() {
            if found == Peeked::None {
                self.killing = None;
                inputs.extend(meter.kernel_kills());
                inputs.push(StepInput::Gone);
            } else if orphaned || !inputs.is_empty() || self.killing.is_some_and(|at| Instant::now() >= at) {
                // Processes left by the dead ones are children of this process now.
                self.kill_now();
            }
        }
        inputs
    }

    /// Reports the end of a task, after its epilog if it has one.
    fn end_task(&mut self, (pid, rank): (u32, u32), end: StepInput, inputs: &mut Vec<StepInput>) {
        // While all processes are being killed nothing is started.
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

    /// Reports the end of tasks of which no process is left. A process belongs to a task if it is in its session, or if
    /// its environment has the task's rank.
    fn end_childless(&mut self, inputs: &mut Vec<StepInput>) {
        if self.left.is_empty() {
            return;
        }
        let others = if self.killing.is_some() { Vec::new() } else { descendants(std::process::id()) };
        let others: Vec<u32> = others.into_iter().filter(|pid| !self.ranks.contains_key(pid)).collect();
        let has_children = |task: u32, rank: u32| {
            let rank = rank.to_string();
            let session = |pid: &u32| stat_field(*pid, 6) == Some(u64::from(task));
            let marked = |pid: &u32| variable(*pid, "SLURM_PROCID").is_some_and(|text| text == rank.as_bytes());
            others.iter().any(|pid| session(pid) || marked(pid))
        };
        let over = self.left.iter().filter(|(pid, (rank, _))| !has_children(**pid, *rank)).map(|(pid, _)| *pid);
        for pid in over.collect::<Vec<u32>>() {
            if let Some((rank, end)) = self.left.remove(&pid) {
                self.end_task((pid, rank), end, inputs);
            }
        }
    }

    /// Takes the texts for the user about epilogs that failed.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Returns the end of the emulated task, if its time has come.
    pub(super) fn timer_end(&mut self) -> Option<StepInput> {
        let (at, code) = self.timer?;
        (Instant::now() >= at).then(|| self.end_timer(ExitCode { code, signal: 0 }))
    }

    /// Returns when to check again even if no event arrives; None: never.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.killing.into_iter().chain(self.timer.map(|(at, _)| at)).min()
    }
}

/// Returns whether a step ends when a task of it fails.
fn kills_on_bad_exit(program: &Program) -> bool {
    matches!(program, Program::Tasks(tasks) if tasks.kill_on_bad_exit)
}

/// Repeats a start while the program's file is open for writing in some process, which may just be a fork on its way to
/// exec. Gives up after `BUSY_TRIES`.
pub(crate) fn again_while_busy<T>(start: impl Fn() -> Result<T, SpawnError>) -> Result<T, SpawnError> {
    for _ in 0..BUSY_TRIES {
        match start() {
            Err(e) if e.errno() == libc::ETXTBSY => std::thread::sleep(BUSY_PAUSE),
            result => return result,
        }
    }
    start()
}

/// Settings with which the batch supervisor starts a task.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    /// User and groups that the task gets.
    pub(super) identity: &'a Identity,
    /// The task's file mode mask (umask).
    pub(super) umask: u32,
    /// Whether processes below the task that lose their parent become its children.
    pub(super) keeps_orphans: bool,
    /// The v2 cgroup in which the task is created.
    pub(super) group: BorrowedFd<'a>,
}

/// Starts a task; returns its process id.
pub(super) fn start(
    task: &Prepared,
    ready: &Ready,
    note: Option<Note<'_>>,
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
        keeps_orphans: birth.is_some_and(|birth| birth.keeps_orphans),
        // Without root it is that user already.
        identity: birth.map(|birth| birth.identity).filter(|_| rustix::process::geteuid().is_root()),
        note,
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

/// Sets the `oom_score_adj` of a task, so that the kernel kills tasks rather than the step daemon when memory is short.
/// Where the daemon could not lower its own (without root, or in a container), that of its tasks is raised if the step
/// has a memory limit (`limited`).
fn set_score(pid: u32, limited: bool) {
    let lowered = fs::read("/proc/self/oom_score_adj").is_ok_and(|score| score.starts_with(b"-"));
    if lowered || limited {
        let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), if lowered { "0" } else { TASK_SCORE });
    }
}
