//! Between a node daemon and the step daemons that it started (over each step daemon's own socket).

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, StepKey};
use crate::job::Usage;
use crate::report::StepEnd;
use crate::step::Watcher;
use crate::wire::node::EndReason;
use crate::wire::peer::PeerMessage;
use crate::wire::sealed::Sealed;

/// What the node daemon tells a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStepd {
    /// Signal the tasks (`all`: with all their children).
    Signal {
        /// Signal number.
        signal: i32,
        /// With all their descendants.
        all: bool,
    },
    /// End: TERM, then KILL after so many seconds.
    End {
        /// Seconds between TERM and KILL; 0: KILL at once.
        kill_wait_s: u64,
        /// What for, told to the user.
        why: EndReason,
    },
    /// Say what the tasks have used so far.
    Usage,
    /// Call somebody who wants to watch.
    Watch(Watcher),
    /// Tell the user.
    Notice(String),
    /// From the step daemon on another node, through the tree.
    Letter {
        /// The node.
        from: NodeId,
        /// What it says.
        message: Sealed<PeerMessage>,
    },
}

/// What a step daemon tells the node daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStepd {
    /// First frame on each connection.
    Hello {
        /// Which step it serves.
        key: StepKey,
        /// Its tasks' process ids, as far as started: (rank, pid).
        tasks: Vec<(u32, u32)>,
    },
    /// The tasks run.
    Started {
        /// (rank, pid).
        tasks: Vec<(u32, u32)>,
    },
    /// What the tasks have used so far.
    Usage(Usage),
    /// The answer to `End`: no task begins any more, and those that run were told.
    Ending,
    /// Nothing could be started.
    Failed {
        /// Why.
        error: String,
        /// The node's own fault.
        node_fault: bool,
    },
    /// All tasks have ended; also written to the spool before it is sent. The daemon exits after it.
    Ended(StepEnd),
    /// For the step daemon on another node, through the tree.
    Letter {
        /// The node.
        to: NodeId,
        /// What it is to hear.
        message: Sealed<PeerMessage>,
    },
}
