//! Between a node daemon and the step daemons that it started (over each step daemon's own socket).

use minicbor::{Decode, Encode};

use crate::id::{NodeId, StepKey};
use crate::job::Usage;
use crate::report::StepEnd;
use crate::step::Watcher;
use crate::wire::node::EndReason;
use crate::wire::peer::PeerMessage;
use crate::wire::sealed::Sealed;

/// What the node daemon tells a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToStepd {
    /// Signal the tasks (`all`: with all their children).
    #[n(0)]
    Signal {
        /// Signal number.
        #[n(0)]
        signal: i32,
        /// With all their descendants.
        #[n(1)]
        all: bool,
    },
    /// End: TERM, then KILL after so many seconds.
    #[n(1)]
    End {
        /// Seconds between TERM and KILL; 0: KILL at once.
        #[n(0)]
        kill_wait_s: u64,
        /// What for, told to the user.
        #[n(1)]
        why: EndReason,
    },
    /// Say what the tasks have used so far.
    #[n(2)]
    Usage,
    /// Call somebody who wants to watch.
    #[n(3)]
    Watch(#[n(0)] Watcher),
    /// Tell the user.
    #[n(4)]
    Notice(#[n(0)] String),
    /// From the step daemon on another node, through the tree.
    #[n(5)]
    Letter {
        /// The node.
        #[n(0)]
        from: NodeId,
        /// What it says.
        #[n(1)]
        message: Sealed<PeerMessage>,
    },
}

/// What a step daemon tells the node daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromStepd {
    /// First frame on each connection.
    #[n(0)]
    Hello {
        /// Which step it serves.
        #[n(0)]
        key: StepKey,
        /// Its tasks' process ids, as far as started: (rank, pid).
        #[n(1)]
        tasks: Vec<(u32, u32)>,
    },
    /// The tasks run.
    #[n(1)]
    Started {
        /// (rank, pid).
        #[n(0)]
        tasks: Vec<(u32, u32)>,
    },
    /// What the tasks have used so far.
    #[n(2)]
    Usage(#[n(0)] Usage),
    /// The answer to `End`: no task begins any more, and those that run were told.
    #[n(3)]
    Ending,
    /// Nothing could be started.
    #[n(4)]
    Failed {
        /// Why.
        #[n(0)]
        error: String,
        /// The node's own fault.
        #[n(1)]
        node_fault: bool,
    },
    /// All tasks have ended; also written to the spool before it is sent. The daemon exits after it.
    #[n(5)]
    Ended(#[n(0)] StepEnd),
    /// For the step daemon on another node, through the tree.
    #[n(6)]
    Letter {
        /// The node.
        #[n(0)]
        to: NodeId,
        /// What it is to hear.
        #[n(1)]
        message: Sealed<PeerMessage>,
    },
}
