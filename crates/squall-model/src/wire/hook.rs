//! Programs that daemons run as root around jobs and on nodes, and what nodes report about them and about themselves.

use minicbor::{Decode, Encode};

use crate::checkpoint::CheckpointNote;
use crate::job::JobAttempt;
use crate::time::Time;

/// Kind of a program that a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// `Prolog`: on each node, before the job's first process there.
    Prolog,
    /// `Epilog`: on each node, after the job's last process there.
    Epilog,
    /// `PrologSlurmctld`: on the controller's machine, before the job is sent to its nodes.
    PrologSlurmctld,
    /// `EpilogSlurmctld`: on the controller's machine, after the job has left its nodes.
    EpilogSlurmctld,
    /// `HealthCheckProgram`: on each node.
    Health,
    /// `after_fault`: on a node with a fault, before its next job.
    AfterFault,
    /// `UnkillableStepProgram`: on a node with processes that can't be killed.
    Unkillable,
    /// `RebootProgram`: on a node that is to reboot.
    Reboot,
    /// `SuspendProgram`: on the controller's machine, for nodes to be powered down.
    Suspend,
    /// `ResumeProgram`: on the controller's machine, for nodes to be powered up.
    Resume,
    /// `ResumeFailProgram`: on the controller's machine, for nodes that did not come.
    ResumeFail,
    /// Makes a checkpoint of a job: Squall's own, on the node.
    Checkpoint,
}

impl Hook {
    /// Returns the key of slurm.conf that configures the program, or ours where Slurm has none.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prolog => "Prolog",
            Self::Epilog => "Epilog",
            Self::PrologSlurmctld => "PrologSlurmctld",
            Self::EpilogSlurmctld => "EpilogSlurmctld",
            Self::Health => "HealthCheckProgram",
            Self::AfterFault => "after_fault",
            Self::Unkillable => "UnkillableStepProgram",
            Self::Reboot => "RebootProgram",
            Self::Suspend => "SuspendProgram",
            Self::Resume => "ResumeProgram",
            Self::ResumeFail => "ResumeFailProgram",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Returns the value of SLURM_SCRIPT_CONTEXT for the program. None: Slurm sets none.
    pub fn context(self) -> Option<&'static str> {
        match self {
            Self::Prolog => Some("prolog_slurmd"),
            Self::Epilog => Some("epilog_slurmd"),
            Self::PrologSlurmctld => Some("prolog_slurmctld"),
            Self::EpilogSlurmctld => Some("epilog_slurmctld"),
            _ => None,
        }
    }
}

/// Report of a node about its programs and about itself. It describes a state, so that a repetition has no effect. A
/// node repeats it in every session: one about a job until the job's `JobGone` is acknowledged, another one until it
/// changes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NodeNote {
    /// The job's prolog has ended on the node. Success is reported only if the job's start waits for it.
    #[n(0)]
    Prolog {
        /// The job of the prolog.
        #[n(0)]
        job: JobAttempt,
        /// Why the prolog failed, as a text for users. None: it succeeded.
        #[n(1)]
        error: Option<String>,
    },
    /// The job's epilog has failed on the node.
    #[n(1)]
    Epilog {
        /// The job of the epilog.
        #[n(0)]
        job: JobAttempt,
        /// Why the epilog failed, as a text for users.
        #[n(1)]
        error: String,
    },
    /// The node was checked.
    #[n(2)]
    Health {
        /// Why the check failed, as a text for users. None: it succeeded.
        #[n(0)]
        error: Option<String>,
    },
    /// Processes of the job are left on the node long after the signal KILL.
    #[n(3)]
    Unkillable {
        /// The job of the processes.
        #[n(0)]
        job: JobAttempt,
    },
    /// The program that was to reboot the node has failed.
    #[n(4)]
    Reboot {
        /// Why the program failed, as a text for users.
        #[n(0)]
        error: String,
    },
    /// The node was checked after a fault.
    #[n(5)]
    AfterFault {
        /// When the fault was found, by the controller's clock.
        #[n(0)]
        fault: Time,
        /// Why the check failed, as a text for users. None: it succeeded.
        #[n(1)]
        error: Option<String>,
    },
    /// An answer to an order about a job's checkpoints. The numbers from 6 to 9 are left out.
    #[n(10)]
    Checkpoint(#[n(0)] Box<CheckpointNote>),
}

impl NodeNote {
    /// Returns the job that the report is about; None: it is about the node.
    pub fn job(&self) -> Option<JobAttempt> {
        match self {
            Self::Prolog { job, .. } | Self::Epilog { job, .. } | Self::Unkillable { job } => Some(*job),
            Self::Checkpoint(note) => Some(note.job),
            Self::Health { .. } | Self::Reboot { .. } | Self::AfterFault { .. } => None,
        }
    }

    /// Returns the kind of program that the report is about.
    pub fn hook(&self) -> Hook {
        match self {
            Self::Prolog { .. } => Hook::Prolog,
            Self::Epilog { .. } => Hook::Epilog,
            Self::Unkillable { .. } => Hook::Unkillable,
            Self::Health { .. } => Hook::Health,
            Self::Reboot { .. } => Hook::Reboot,
            Self::AfterFault { .. } => Hook::AfterFault,
            Self::Checkpoint(_) => Hook::Checkpoint,
        }
    }
}
