//! What goes into the controller and what comes out of it.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::job::{Blob, Owner};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Bytes, DownFrame, Newer, StreamKey, UpFrame, Upward};

/// A client connection, numbered by who runs the machine. Never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(pub u64);

/// The connection of a child in the tree, numbered by who runs the machine. Never reused within a run.
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
    /// A child in the tree has connected.
    Opened {
        /// Its connection.
        link: LinkId,
        /// Its node's name where a key proves it; it is heard on that node and those below it only. None: it is of this
        /// machine and of the cluster's owner, who may say anything.
        name: Option<String>,
    },
    /// A frame from a child.
    Frame {
        /// On which connection.
        link: LinkId,
        /// The frame.
        frame: Box<UpFrame>,
    },
    /// A child's connection has ended.
    Lost {
        /// Which.
        link: LinkId,
    },
    /// Room on the journal's disk: with `full`, requests that need room are refused and no job is started,
    /// so that the room that is reserved lasts for the ends of those that run.
    Disk {
        /// Whether it is full.
        full: bool,
    },
    /// Files may be sent by multicast: the keys of streams are made of this secret, which is of this life only.
    Multicast {
        /// Random bytes.
        secret: [u8; 32],
    },
    /// The last of `Out::casts` that said so has left.
    CastOut {
        /// Of which stream.
        stream: u64,
    },
    /// The wall clock was set: it is ahead of the time that machines are told by so many microseconds more than before.
    ClockSet {
        /// How many.
        by_us: i64,
    },
    /// There is time for a page of a list ([`Controller::lists`]).
    Page,
    /// Time has passed.
    Tick,
}

impl Input {
    /// Whether what follows from it can be drawn together with what follows from others: submissions, and frames that
    /// only say what has ended.
    pub(crate) fn can_wait(&self) -> bool {
        match self {
            Self::Ask { request, .. } => matches!(**request, Request::Submit { .. }),
            Self::Frame { frame, .. } => frame.says.iter().all(|say| match say {
                Upward::Composite { composite, .. } => !composite.is_urgent() && !composite.lets_in(),
                Upward::Tally { .. } | Upward::Chunk(_) | Upward::Letter(_) => false,
            }),
            _ => false,
        }
    }
}

/// What the controller wants done, in this order: blobs and events to the journal, flush, then the rest.
#[derive(Debug, Default)]
pub struct Out {
    /// Content that events refer to by digest; durable together with them.
    pub blobs: Vec<Blob>,
    /// What happened. Already applied to the machine's own state.
    pub events: Vec<Event>,
    /// Frames for children in the tree (parcels without blobs).
    pub sends: Vec<(LinkId, DownFrame)>,
    /// Connections of children to be closed. They are gone for the machine.
    pub drops: Vec<LinkId>,
    /// Pieces of files to be sent by multicast; whether they arrive is not known.
    pub casts: Vec<Cast>,
    /// Answers for clients.
    pub answers: Vec<(CallerId, Answer)>,
    /// A node has heard a newer controller, and that is not to be gone on from: the daemon ends.
    pub newer: Option<Newer>,
    /// The daemon may end now (after a `ShutDown` was dealt with).
    pub exit: bool,
}

/// A piece of a file to be sent by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Of which stream; nodes were told so by `Down::Hear`.
    pub stream: u64,
    /// What seals the datagrams.
    pub key: StreamKey,
    /// Where in the file it begins.
    pub at: u64,
    /// The piece.
    pub bytes: Bytes,
    /// How quickly, bytes per second.
    pub rate: u64,
    /// The last one before nodes are asked: when it has left, the controller is told (`Input::CastOut`).
    pub last: bool,
}
