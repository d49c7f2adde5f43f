//! Messages between a node daemon and the step daemons that it started, over each step daemon's own socket.

use minicbor::{Decode, Encode};

use crate::id::{NodeId, StepKey};
use crate::job::Usage;
use crate::report::StepEnd;
use crate::series::Series;
use crate::step::Watcher;
use crate::wire::node::EndReason;
use crate::wire::peer::PeerMessage;
use crate::wire::sealed::Sealed;

/// Message from the node daemon to a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToStepd {
    /// Sends a signal to the tasks of the step.
    #[n(0)]
    Signal {
        /// Signal number.
        #[n(0)]
        signal: i32,
        /// Whether all descendants of the tasks get the signal too.
        #[n(1)]
        all: bool,
    },
    /// Ends the step: signal TERM, then KILL after `kill_wait_s`.
    #[n(1)]
    End {
        /// Seconds between the signals TERM and KILL; 0: KILL at once.
        #[n(0)]
        kill_wait_s: u64,
        /// Why the step is ended, for the message to the user.
        #[n(1)]
        why: EndReason,
    },
    /// Asks for the resources that the tasks have used so far.
    #[n(2)]
    Usage,
    /// Asks the step daemon to connect to an `sattach` client that wants to follow the step.
    #[n(3)]
    Watch(#[n(0)] Watcher),
    /// Text to show to the user: by `srun`, or in the standard error of a batch script.
    #[n(4)]
    Notice(#[n(0)] String),
    /// A message from the step daemon of the same step on another node, relayed through the distribution tree.
    #[n(5)]
    Letter {
        /// Node of the step daemon that sent the message.
        #[n(0)]
        from: NodeId,
        /// Message that the other step daemon sent.
        #[n(1)]
        message: Sealed<PeerMessage>,
    },
}

/// Message from a step daemon to the node daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromStepd {
    /// First message on each connection of a step daemon to the node daemon.
    #[n(0)]
    Hello {
        /// The step that the daemon runs.
        #[n(0)]
        key: StepKey,
        /// Process ids of the tasks started so far: (rank, pid).
        #[n(1)]
        tasks: Vec<(u32, u32)>,
    },
    /// The tasks of the step were started.
    #[n(1)]
    Started {
        /// Process ids of the tasks: (rank, pid).
        #[n(0)]
        tasks: Vec<(u32, u32)>,
    },
    /// Resources that the step's tasks have used so far on this node, and over time. Answers `ToStepd::Usage`.
    #[n(2)]
    Usage(#[n(0)] Usage, #[n(1)] Option<Box<Series>>),
    /// Acknowledges `ToStepd::End`: no further task starts, and running tasks have been signalled.
    #[n(3)]
    Ending,
    /// No task of the step could be started.
    #[n(4)]
    Failed {
        /// Why no task could be started, as a text for users.
        #[n(0)]
        error: String,
        /// Whether the node is at fault, not the job.
        #[n(1)]
        node_fault: bool,
    },
    /// All tasks have ended. The report is written to the spool before it is sent; after it, the step daemon exits.
    #[n(5)]
    Ended(#[n(0)] StepEnd),
    /// A message to the step daemon of the same step on another node, to be relayed through the distribution tree.
    #[n(6)]
    Letter {
        /// Node of the step daemon that is to receive the message.
        #[n(0)]
        to: NodeId,
        /// Message for the other step daemon.
        #[n(1)]
        message: Sealed<PeerMessage>,
    },
}
