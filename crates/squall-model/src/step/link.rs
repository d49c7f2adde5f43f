//! Messages between a step daemon and its `srun`, and how others watch its tasks.

use minicbor::{Decode, Encode};

use crate::encoding::ByteBuf;
use crate::id::StepNo;
use crate::set::IndexSet;
use crate::step::{ClientAddress, Program, StepLaunch};
use crate::wire::node::EndReason;
use crate::wire::peer::PeerMessage;

/// Messages from a step daemon to its `srun`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromStep {
    /// First message on the connection.
    #[n(0)]
    Hello {
        /// The cookie of the launch, as proof.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
        /// Index of the step daemon's node in the layout.
        #[n(1)]
        node_index: u32,
    },
    /// The node's tasks have started: rank and process id of each.
    #[n(1)]
    Started(#[n(0)] Vec<(u32, u32)>),
    /// A task could not be started.
    #[n(2)]
    Failed {
        /// Rank of the task.
        #[n(0)]
        rank: u32,
        /// The exit code that the task is counted with (2: command not found, 13: not executable, …).
        #[n(1)]
        code: u8,
        /// Description of the error: `execve(): nosuchcmd: No such file or directory`.
        #[n(2)]
        error: String,
    },
    /// Output of a task.
    #[n(3)]
    Output {
        /// Rank of the task.
        #[n(0)]
        rank: u32,
        /// Whether the output is standard error rather than standard output.
        #[n(1)]
        stderr: bool,
        /// The output; empty: the stream has ended.
        #[n(2)]
        bytes: ByteBuf,
    },
    /// A task has ended.
    #[n(4)]
    Exited {
        /// Rank of the task.
        #[n(0)]
        rank: u32,
        /// How the task ended.
        #[n(1)]
        exit: crate::job::ExitCode,
        /// Whether the task was killed for exceeding its memory limit.
        #[n(2)]
        oom: bool,
    },
    /// Notice for the user, displayed after `slurmstepd: `.
    #[n(5)]
    Notice(#[n(0)] String),
    /// Last message: no process of the step is left on this node.
    #[n(6)]
    Done,
    /// Whether any task of the node is between MPI_Init and MPI_Finalize. Sent at each change.
    #[n(7)]
    Within(#[n(0)] bool),
    /// A task of the node called abort or failed in a way that ends the whole step.
    #[n(8)]
    Aborted {
        /// Exit code of the step.
        #[n(0)]
        code: u8,
    },
    /// Message for the step daemon on another machine. `srun`, to which all step daemons connect, forwards it.
    #[n(9)]
    Pass {
        /// Index in the layout of the receiver's node.
        #[n(0)]
        to: u32,
        /// Message to be forwarded.
        #[n(1)]
        message: Box<PeerMessage>,
    },
    /// What an X client on the node says to the user's display.
    #[n(13)]
    X11 {
        /// Number of the client on this node.
        #[n(0)]
        client: u32,
        /// The bytes; empty: it has closed the connection.
        #[n(1)]
        bytes: ByteBuf,
    },
    /// First message in place of `Hello`: asks `srun` to start the process that serves the step, if none does yet. Answered
    /// by `ToStep::Inside`.
    #[n(14)]
    Birth(#[n(0)] Box<Birth>),
}

/// A step of which the tasks descend from its `srun`, so that a checkpoint of the job's script contains them. On the other
/// nodes of its job they descend from a process that stands in for the script there, the keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Inside {
    /// The step's number, if the tasks run already because they were restored from a checkpoint. None: they begin.
    #[n(0)]
    pub resumes: Option<StepNo>,
    /// Places of the nodes where they run, among those of the job. None: they begin, or an earlier release asks.
    #[n(1)]
    pub places: Option<IndexSet>,
}

impl StepLaunch {
    /// Returns whether the step's tasks descend from its `srun` or from the node's keeper ([`Inside`]).
    pub fn is_inside(&self) -> bool {
        matches!(&self.program, Program::Tasks(program) if program.inside == Some(true))
    }

    /// Returns whether this node's part of the job descends from a keeper, which stands in for the script: that runs on the
    /// job's first node, and checkpoints of the job contain its steps.
    pub fn has_keeper(&self) -> bool {
        self.facts.inside == Some(true) && self.job_node_index > 0
    }
}

/// What a process needs that serves a step as a child of its `srun` or keeper.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Birth {
    /// The step.
    #[n(0)]
    pub launch: StepLaunch,
    /// The CPUs that its tasks may use, as the kernel counts them; empty: all.
    #[n(1)]
    pub cpus: Vec<u32>,
    /// Path of the step's folder in the node's spool, by which its processes are known as the step's.
    #[n(2)]
    pub folder: ByteBuf,
    /// The cookie of the launch, as proof.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
}

/// Messages from `srun` to a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToStep {
    /// First message on the connection.
    #[n(0)]
    Hello {
        /// The cookie of the launch, as proof.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
    },
    /// Standard input for one task or for all.
    #[n(1)]
    Input {
        /// Rank of the task. None: all tasks.
        #[n(0)]
        rank: Option<u32>,
        /// The input; empty: end of input.
        #[n(1)]
        bytes: ByteBuf,
    },
    /// Number of a signal to send to all tasks.
    #[n(2)]
    Signal(#[n(0)] i32),
    /// New size of the terminal: rows, columns.
    #[n(3)]
    Resize(#[n(0)] u16, #[n(1)] u16),
    /// End the tasks: SIGTERM, then SIGKILL.
    #[n(4)]
    End {
        /// Seconds between SIGTERM and SIGKILL.
        #[n(0)]
        kill_wait_s: u64,
        /// Reason of the end, for the notice to the user.
        #[n(1)]
        why: EndReason,
    },
    /// Message that the step daemon on another machine sent through `srun`.
    #[n(5)]
    Passed {
        /// Index in the layout of the sender's node.
        #[n(0)]
        from: u32,
        /// The forwarded message.
        #[n(1)]
        message: Box<PeerMessage>,
    },
    /// What the user's display says to an X client on the node.
    #[n(9)]
    X11 {
        /// Number of the client on the node.
        #[n(0)]
        client: u32,
        /// The bytes; empty: the display has closed the connection.
        #[n(1)]
        bytes: ByteBuf,
    },
    /// Name of the abstract socket on which the process listens that serves the step as a child of `srun`.
    #[n(10)]
    Inside(#[n(0)] String),
}

/// A further client of a running step (`sattach`), which gets the tasks' output and may send input.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Watcher {
    /// Address at which this client listens for step daemons.
    #[n(0)]
    pub client: ClientAddress,
    /// Secret by which this client and a step daemon authenticate each other when the daemon connects.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
}
