//! The step daemon as a state machine: from the launch of one node's tasks to the report of their end.
//!
//! The host feeds [`StepInput`]s and carries out [`StepAct`]s in the order given. The course of a step:
//!
//! ```text
//! Start → Spawn … Spawned | SpawnFailed (each rank once) … Exited (each spawned rank once)
//!       → KillLeft … Gone → Drain … Drained → WriteResult, Node(Ended), Client(Done) … ClientLost → Exit
//! ```
//!
//! `Exit` waits for `ClientLost` only where output could still be lost: an `srun` on another machine acknowledges
//! `Client(Done)` by closing its link.
//!
//! `Refuse` or `Fail` may come instead of `Start`. `Signal`, `End`, `ClientLost`, `Oom` and `Tick` may come at any
//! time, also before `Start`: an action that is not possible yet is done as soon as it is.

mod delivery;
mod end;
mod machine;
#[cfg(test)]
mod tests;

use squall_model::id::{StepKey, StepNo};
use squall_model::job::{ExitCode, Usage};
use squall_model::report::StepEnd;
use squall_model::series::Sample;
use squall_model::step::{ClientAddress, FromStep, Program, StepLaunch};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::FromStepd;

pub use delivery::{Delivery, Heard, may_leave};
pub use machine::StepMachine;

/// Parameters of a launch that the machine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSetup {
    /// The step and its attempt.
    pub key: StepKey,
    /// Ranks of the tasks on this node, ascending. A batch script is rank 0.
    pub ranks: Vec<u32>,
    /// Whether an `srun` is attached to the step. If it vanishes the step ends.
    pub client: bool,
    /// Seconds between TERM and KILL by default.
    pub kill_wait_s: u64,
    /// `--kill-on-bad-exit`: a failing task ends the others.
    pub kill_on_bad_exit: bool,
    /// `--oom-kill-step`: a task that runs out of memory ends the others.
    pub oom_kill_step: bool,
    /// `--report`: the output of a batch script ends with a line about the job's end and usage.
    pub report: bool,
}

impl StepSetup {
    /// Returns the parameters of a launch.
    pub fn of(launch: &StepLaunch) -> Self {
        let mut setup = Self {
            key: launch.key,
            ranks: launch.ranks(),
            client: false,
            kill_wait_s: launch.kill_wait_s,
            kill_on_bad_exit: false,
            oom_kill_step: launch.oom_kill_step,
            report: launch.report,
        };
        match &launch.program {
            Program::Tasks(tasks) => {
                setup.client = tasks.client != ClientAddress::None;
                setup.kill_on_bad_exit = tasks.kill_on_bad_exit;
            }
            Program::Batch | Program::Timer { .. } => setup.ranks = vec![0],
        }
        setup
    }

    /// Returns whether the step is a batch script.
    pub fn is_batch(&self) -> bool {
        self.key.step == StepNo::BATCH
    }
}

/// Input of the step machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepInput {
    /// Everything is ready for the tasks (privileges dropped, files open, `srun` connected). Given once.
    Start,
    /// Instead of `Start`: the job can't run by its own fault, and ends with this exit code. Example: `0:53` if the
    /// output file can't be opened.
    Refuse {
        /// Exit of the step.
        exit: ExitCode,
        /// Text for the user.
        note: String,
    },
    /// Instead of `Start`: nothing could be started.
    Fail {
        /// Error text.
        error: String,
        /// Whether the node is at fault, so that a retry on another node makes sense.
        node_fault: bool,
    },
    /// A task was started.
    Spawned {
        /// Rank of the task.
        rank: u32,
        /// Process id.
        pid: u32,
    },
    /// A task could not be executed.
    SpawnFailed {
        /// Rank of the task.
        rank: u32,
        /// Exit code of the task: the error number of the failed call.
        code: u8,
        /// Error text, such as `execve(): nosuchcmd: No such file or directory`.
        error: String,
    },
    /// A task was not started because the step was ended before. It counts as if `End` had come before `Start`.
    Unspawned {
        /// Rank of the task.
        rank: u32,
    },
    /// A task's own process has ended and was reaped.
    Exited {
        /// Rank of the task.
        rank: u32,
        /// Exit of the task.
        exit: ExitCode,
        /// Usage of the task, with the children that it waited for.
        usage: Usage,
        /// Whether the task caught the TERM that was sent to it, so that its end may be the response.
        heard: bool,
    },
    /// A process that had lost its parent has ended and was reaped; it counts for the step, not for a task.
    Orphan {
        /// Usage of the process.
        usage: Usage,
    },
    /// What all tasks use was measured, for the step's usage over time.
    Sampled {
        /// The measurement.
        sample: Sample,
    },
    /// Processes of the step were killed for lack of memory, or must be killed now (`kill`). Comes before the
    /// `Exited` of those tasks.
    Oom {
        /// Number of processes killed, at least 1.
        kills: u64,
        /// Peak memory of the step, KiB.
        peak_kb: u64,
        /// Memory limit of the step, MiB.
        limit_mb: u64,
        /// Whether the machine has to kill the step. True where no cgroup enforces the limit, and the step exceeded
        /// it.
        kill: bool,
    },
    /// Request to signal the tasks.
    Signal {
        /// Signal number.
        signal: i32,
        /// Whether the tasks' descendants get the signal too.
        all: bool,
    },
    /// Request to end the step: TERM, then KILL.
    End {
        /// Seconds between TERM and KILL; 0: KILL at once.
        kill_wait_s: u64,
        /// Reason, for the message to the user.
        why: EndReason,
    },
    /// Request to end the whole step with this exit code, made by a task or because of how it ended.
    Abort {
        /// The exit code.
        code: u8,
        /// Text for the user.
        text: String,
    },
    /// The `srun` is gone, or never connected.
    ClientLost,
    /// Answer to `KillLeft`: no process of the step is left.
    Gone,
    /// Answer to `Drain`: all output has been written to the link of `srun`.
    Drained {
        /// Whether the output reaches `srun` even if the step daemon ends now, because both are on one machine or there
        /// is no `srun`.
        delivered: bool,
    },
    /// Time has passed.
    Tick,
}

/// Action for the host, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAct {
    /// Start every task of the setup; answered by `Spawned` or `SpawnFailed` for each.
    Spawn,
    /// Send a signal to each task's own process, or (`all`) to all processes of the step.
    Signal {
        /// Signal number.
        signal: i32,
        /// Whether all processes of the step get the signal, not only each task's own process.
        all: bool,
    },
    /// Kill all processes of the step until none is left. Answered by `Gone`, after the `Exited` of each task that
    /// ends thereby.
    KillLeft,
    /// Send all output to `srun`. Answered by `Drained`.
    Drain,
    /// Write a message to the user that the step is ended for this reason, with the time of day.
    NoticeEnd(EndReason),
    /// Write a message to the user (`slurmstepd: error: …`).
    Notice(String),
    /// Write a line about the end of the job to the batch script's output, for `--report`.
    Report {
        /// How the script ended, and what it used.
        end: StepEnd,
        /// The first reason that was given for ending it. `None`: it ended by itself.
        why: EndReason,
    },
    /// Write the final message to the spool, before it is sent to any process.
    WriteResult(FromStepd),
    /// Send a message to the node daemon, if that is connected. A node daemon that connects later first gets `Ended`
    /// or `Failed`.
    Node(FromStepd),
    /// Send a message to `srun`, if that is connected.
    Client(FromStep),
    /// End the step daemon once its messages are sent.
    Exit,
}

/// Actions for the host, in the order in which it carries them out.
pub type StepOut = Vec<StepAct>;
