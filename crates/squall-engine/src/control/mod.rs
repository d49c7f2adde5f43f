//! The controller: decides (`request`), records (`apply`), makes it so (`drive`).

pub mod layout;

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::job::{Blob, Owner};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::node::{DownFrame, UpFrame};

/// A client connection, numbered by who runs the machine. Never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(pub u64);

/// A node connection, numbered by who runs the machine. Never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Who asks, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The user.
    pub owner: Arc<Owner>,
    /// May act on everybody's jobs and on nodes: root, or the user who runs the cluster.
    pub operator: bool,
}

/// What the controller is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// First input after replay: a new life begins. The configuration is journaled if it differs.
    Start {
        /// The configuration that was read.
        config: Box<Config>,
        /// This program's version.
        version: String,
        /// Name of this host.
        host: String,
    },
    /// A client asks.
    Ask {
        /// On which connection.
        caller: CallerId,
        /// Who.
        who: Who,
        /// What.
        request: Box<Request>,
    },
    /// A client's connection has ended.
    Hangup {
        /// Which.
        caller: CallerId,
    },
    /// A frame from a node.
    Frame {
        /// On which connection; the first is a registration.
        link: LinkId,
        /// The frame.
        frame: Box<UpFrame>,
    },
    /// A node's connection has ended.
    Lost {
        /// Which.
        link: LinkId,
    },
    /// Room on the journal's disk: with `full`, requests that need room are refused, all else goes on.
    Disk {
        /// Whether it is full.
        full: bool,
    },
    /// Time has passed.
    Tick,
}

/// What the controller wants done, in this order: blobs and events to the journal, flush, then the rest.
#[derive(Debug, Default)]
pub struct Out {
    /// Content that events refer to by digest; durable together with them.
    pub blobs: Vec<Blob>,
    /// What happened. Already applied to the machine's own state.
    pub events: Vec<Event>,
    /// Frames for nodes (without blobs).
    pub sends: Vec<(LinkId, DownFrame)>,
    /// Connections of nodes to be closed (another one took over).
    pub drops: Vec<LinkId>,
    /// Answers for clients.
    pub answers: Vec<(CallerId, Answer)>,
    /// The daemon may end now (after a `ShutDown` was dealt with).
    pub exit: bool,
}
