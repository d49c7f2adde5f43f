//! The step daemon as a machine: from the launch of one node's tasks to the report of their end.
//!
//! Who runs it feeds [`StepInput`]s and carries out [`StepAct`]s in the order given. The life of a step:
//!
//! ```text
//! Start → Spawn … Spawned | SpawnFailed (each rank once) … Exited (each spawned rank once)
//!       → KillLeft … Gone → Drain … Drained → WriteResult, Node(Ended), Client(Done) … ClientLost → Exit
//! ```
//!
//! `Exit` waits for `ClientLost` only where output could still be lost: an `srun` on another machine acknowledges
//! `Client(Done)` by closing its link.
//!
//! `Refuse` or `Fail` may come instead of `Start`. `Signal`, `End`, `ClientLost`, `Oom` and `Tick` may come at any time,
//! also before `Start`: what can't be done yet is done as soon as it can.

mod delivery;
mod end;
mod machine;
#[cfg(test)]
mod tests;

use squall_model::id::{StepKey, StepNo};
use squall_model::job::{ExitCode, Usage};
use squall_model::step::{ClientAddress, FromStep, Program, StepLaunch};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::FromStepd;

pub use delivery::{Delivery, Heard, may_leave};
pub use machine::StepMachine;

/// What the machine must know of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSetup {
    /// Which step of which attempt.
    pub key: StepKey,
    /// Ranks of the tasks on this node, rising. A batch script is rank 0.
    pub ranks: Vec<u32>,
    /// Whether an `srun` takes part: if it vanishes the step ends.
    pub client: bool,
    /// Seconds between TERM and KILL where nobody says otherwise.
    pub kill_wait_s: u64,
    /// `--kill-on-bad-exit`: a failing task ends the others.
    pub kill_on_bad_exit: bool,
}

impl StepSetup {
    /// What a launch says to the machine.
    pub fn of(launch: &StepLaunch) -> Self {
        let mut setup = Self {
            key: launch.key,
            ranks: launch.ranks(),
            client: false,
            kill_wait_s: launch.kill_wait_s,
            kill_on_bad_exit: false,
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

    /// Whether it is a batch script.
    pub fn is_batch(&self) -> bool {
        self.key.step == StepNo::BATCH
    }
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepInput {
    /// Once: everything is ready for the tasks (privileges dropped, files open, `srun` connected).
    Start,
    /// Instead of `Start`: the job can't run by its own fault, and that is how it counts (`0:53`: output file).
    Refuse {
        /// How the step ends.
        exit: ExitCode,
        /// Why.
        note: String,
    },
    /// Instead of `Start`: nothing could be started.
    Fail {
        /// Why.
        error: String,
        /// The node's own fault: another try elsewhere makes sense.
        node_fault: bool,
    },
    /// A task runs.
    Spawned {
        /// Which.
        rank: u32,
        /// Its process.
        pid: u32,
    },
    /// A task could not be executed.
    SpawnFailed {
        /// Which.
        rank: u32,
        /// The exit code that it counts as: the errno of the failing call.
        code: u8,
        /// In words: `execve(): nosuchcmd: No such file or directory`.
        error: String,
    },
    /// A task was not started, because the step was ended before: as if the end had come before `Start`.
    Unspawned {
        /// Which.
        rank: u32,
    },
    /// A task's own process has ended and was reaped.
    Exited {
        /// Which.
        rank: u32,
        /// How.
        exit: ExitCode,
        /// What it used, with the children that it waited for.
        usage: Usage,
        /// It caught TERM when that was sent to it: its end may be the answer.
        heard: bool,
    },
    /// A process that had lost its parent has ended and was reaped; it counts for the step, not for a task.
    Orphan {
        /// What it used.
        usage: Usage,
    },
    /// Processes of the step were killed for their memory, or (`kill`) must be now.
    /// Comes before the `Exited` of the tasks that it ended.
    Oom {
        /// How many were killed, at least 1.
        kills: u64,
        /// Peak memory of the step, KiB.
        peak_kb: u64,
        /// Its limit, MiB.
        limit_mb: u64,
        /// Nobody has killed anything yet: the step went over its limit where no cgroup watches.
        kill: bool,
    },
    /// Signal the tasks (`all`: with their descendants).
    Signal {
        /// Signal number.
        signal: i32,
        /// With all their descendants.
        all: bool,
    },
    /// End the step: TERM, then KILL.
    End {
        /// Seconds between TERM and KILL; 0: KILL at once.
        kill_wait_s: u64,
        /// What for.
        why: EndReason,
    },
    /// A task, or its fate, ends the whole step with this exit code.
    Abort {
        /// The exit code.
        code: u8,
        /// Why, for the user.
        text: String,
    },
    /// The `srun` is gone (or was never there).
    ClientLost,
    /// Answer to `KillLeft`: no process of the step is left.
    Gone,
    /// Answer to `Drain`: all output has been given to the link of `srun`.
    Drained {
        /// It reaches `srun` even if the step daemon ends now: both are on one machine, or there is no `srun`.
        delivered: bool,
    },
    /// Time has passed.
    Tick,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAct {
    /// Start every task of the setup; answered by `Spawned` or `SpawnFailed` for each.
    Spawn,
    /// Send a signal to each task's own process, or (`all`) to all processes of the step.
    Signal {
        /// Signal number.
        signal: i32,
        /// To all processes of the step.
        all: bool,
    },
    /// Kill all processes of the step until none is left. Answered by `Gone`; tasks that end by it
    /// are told by `Exited` before that.
    KillLeft,
    /// Bring all output to `srun`. Answered by `Drained`.
    Drain,
    /// Tell the user that the step is ended, with the time of day.
    NoticeEnd(EndReason),
    /// Tell the user (`slurmstepd: error: …`).
    Notice(String),
    /// Write the last word to the spool, before it is sent to anybody.
    WriteResult(FromStepd),
    /// Tell the node daemon, if it is connected. `Ended` and `Failed` are also the first thing that a
    /// node daemon hears that connects later.
    Node(FromStepd),
    /// Tell `srun`, if it is connected.
    Client(FromStep),
    /// The daemon may end when what it told has left.
    Exit,
}

/// Acts, in order.
pub type StepOut = Vec<StepAct>;
