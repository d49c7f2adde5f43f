//! Inputs and outputs of the controller.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::{JobId, NodeId};
use squall_model::job::{Blob, ExitCode, JobAttempt, Owner};
use squall_model::power::PowerPhase;
use squall_model::set::NodeSet;
use squall_model::step::JobFacts;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Bytes, DownFrame, Newer, StreamKey, UpFrame, Upward};
use squall_model::wire::hook::Hook;

/// A client connection. The program around the controller (daemon or simulation) numbers them and never reuses a number
/// within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(pub u64);

/// The connection of a child of the controller in the tree of node daemons. The program around the controller (daemon
/// or simulation) numbers them and never reuses a number within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The user behind a request, as authenticated by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The user's uid, name and groups.
    pub owner: Arc<Owner>,
    /// Whether the user may act on all users' jobs and on nodes: root, or the user who runs the cluster.
    pub operator: bool,
    /// The node that vouches for the user. The user then acts on jobs that this node has, and on those submitted from
    /// within them. None: the user is known otherwise, and acts on all of their jobs.
    pub by: Option<NodeId>,
    /// The job in which the user's command runs, as the kernel tells on the command's machine. If a node vouched for the
    /// user when that job was submitted, the command reaches that job alone, and those submitted from within it. None: it
    /// runs in none, or that is not known.
    pub job: Option<JobId>,
}

/// An input of the controller: a request, a report, or a change around it.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begins a new run of the controller; the first input after replay. The configuration is journaled if it differs
    /// from the one in the state.
    Start {
        /// The configuration as read from its file.
        config: Box<Config>,
        /// This program's version.
        version: String,
        /// Name of this host.
        host: String,
    },
    /// A client has sent a request.
    Ask {
        /// The client's connection, which gets the answer.
        caller: CallerId,
        /// The user of the client.
        who: Who,
        /// The request.
        request: Box<Request>,
    },
    /// A client's connection has ended.
    Hangup {
        /// The client's connection.
        caller: CallerId,
        /// Whether the client came through another daemon: of another machine, or a front of cells. Then that or the
        /// network may be the cause, and the client may come back.
        away: bool,
    },
    /// A child in the tree of node daemons has connected.
    Opened {
        /// The child's connection.
        link: LinkId,
        /// Name of the child's node, proved by its key; the controller accepts only reports about that node and those
        /// below it. None: the child runs on this machine as the cluster's owner and may report about every node.
        name: Option<String>,
    },
    /// A frame has arrived from a child in the tree of node daemons.
    Frame {
        /// The child's connection.
        link: LinkId,
        /// The frame.
        frame: Box<UpFrame>,
    },
    /// The connection of a child in the tree of node daemons has ended.
    Lost {
        /// The child's connection.
        link: LinkId,
    },
    /// The journal's disk became full or has space again. While it is full, requests that need space are refused and no
    /// job is started, so that the reserved space lasts for the ends of running jobs.
    Disk {
        /// Whether the disk is full.
        full: bool,
    },
    /// Files can be sent by multicast from now on. The keys of the streams are derived from this secret, which is valid
    /// for this run of the controller only.
    Multicast {
        /// Random bytes, from which the keys of the streams are derived.
        secret: [u8; 32],
    },
    /// The last piece of a multicast stream (`Cast::last`) has been sent.
    CastOut {
        /// Number of the stream.
        stream: u64,
    },
    /// The wall clock was set, so its difference to the monotonic time that nodes are sent has changed.
    ClockSet {
        /// Change of that difference, microseconds; positive: the wall clock was set forward.
        by_us: i64,
    },
    /// The groups of users with jobs were looked up. Jobs and steps that start from now on have these.
    Groups {
        /// Uids, each with all groups of its account.
        users: Vec<(u32, Vec<u32>)>,
    },
    /// A program around a job has ended ([`Program`]).
    ProgramEnded {
        /// The attempt for which it ran.
        job: JobAttempt,
        /// Kind of the program.
        hook: Hook,
        /// Why it failed, as a text for users. None: it succeeded.
        error: Option<String>,
    },
    /// A program for the power of nodes has ended ([`PowerProgram`]).
    PowerProgramEnded {
        /// The phase of the program.
        phase: PowerPhase,
        /// The nodes that it was called with.
        nodes: NodeSet,
    },
    /// There is time for one more page of a long job list ([`Controller::lists`]).
    Page,
    /// There is time for one more page of events ([`Controller::has_news`](super::Controller::has_news)).
    Feed,
    /// Time has passed: the controller handles timers that are due.
    Tick,
}

impl Input {
    /// Returns whether the effects of this input may run together with those of the inputs that follow. True for
    /// submissions, for frames that report only ends, and for pages of events.
    pub(crate) fn can_wait(&self) -> bool {
        match self {
            Self::Ask { request, .. } => matches!(**request, Request::Submit { .. }),
            Self::Frame { frame, .. } => frame.says.iter().all(|say| match say {
                Upward::Composite { composite, .. } => !composite.is_urgent() && !composite.lets_in(),
                Upward::Tally { .. } | Upward::Chunk(_) | Upward::Letter(_) => false,
            }),
            Self::Feed => true,
            _ => false,
        }
    }
}

/// What the controller wants done after inputs, in this order: blobs and events are journaled and flushed, then
/// everything else is sent.
#[derive(Debug, Default)]
pub struct Out {
    /// Content that events refer to by digest; must be durable together with them.
    pub blobs: Vec<Blob>,
    /// Events to journal. Already applied to the controller's own state.
    pub events: Vec<Event>,
    /// Frames to send to children in the tree, without the blobs that their messages refer to.
    pub sends: Vec<(LinkId, DownFrame)>,
    /// Connections of children to close. The controller has already forgotten them.
    pub drops: Vec<LinkId>,
    /// Pieces of files to send by multicast; delivery is not guaranteed.
    pub casts: Vec<Cast>,
    /// Answers for clients.
    pub answers: Vec<(CallerId, Answer)>,
    /// Programs around jobs to run on this host.
    pub programs: Vec<Program>,
    /// Programs for the power of nodes to run on this host.
    pub power: Vec<PowerProgram>,
    /// Names of nodes that were removed and are gone: their keys are to be revoked.
    pub gone: Vec<String>,
    /// Set if most nodes know of a newer state and `--accept-loss` was not given: the daemon then ends.
    pub newer: Option<Newer>,
    /// The daemon may end now, as a `ShutDown` request has been carried out.
    pub exit: bool,
}

/// A program around a job that the controller's host is to run. `Input::ProgramEnded` reports its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Kind of the program.
    pub hook: Hook,
    /// The attempt for which it runs.
    pub job: JobAttempt,
    /// Facts of the job.
    pub facts: Box<JobFacts>,
    /// Paths of the programs, which run one after the other.
    pub paths: Vec<String>,
    /// Time limit of each program, seconds. None: it has none.
    pub limit_s: Option<u64>,
    /// Exit code of the job (epilogs only).
    pub exit: Option<ExitCode>,
    /// Highest exit code of the job's steps (epilogs only).
    pub derived: Option<ExitCode>,
}

/// A program that powers nodes up or down, or that is told of those that did not come. `Input::PowerProgramEnded`
/// reports its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerProgram {
    /// The phase of the nodes.
    pub phase: PowerPhase,
    /// The nodes.
    pub nodes: NodeSet,
    /// The program's argument: the names of the nodes as a host list.
    pub argument: String,
    /// Path of the program.
    pub path: String,
    /// Time limit of the program, seconds.
    pub limit_s: u64,
    /// The jobs for which nodes are powered up.
    pub jobs: Vec<BootingJob>,
}

/// A job that waits for nodes to be powered up, as `ResumeProgram` is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootingJob {
    /// Id of the job.
    pub id: JobId,
    /// The partition in which it runs.
    pub partition: String,
    /// All of its nodes, as a host list.
    pub nodes: String,
    /// Those of its nodes that the program is called with, as a host list.
    pub resumed: String,
    /// Features that it wants (`--constraint`).
    pub features: Option<String>,
    /// Its reservation.
    pub reservation: Option<String>,
    /// Text of its user (`--extra`).
    pub extra: Option<String>,
    /// Whether it has whole nodes.
    pub exclusive: bool,
    /// Whether no job of another user is on its nodes.
    pub own_nodes: bool,
    /// Whether no other job is in its blocks.
    pub own_blocks: bool,
    /// Whether it may share cores.
    pub oversubscribe: bool,
}

/// A piece of a file to be sent by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Number of the stream; nodes learned of it by `Down::Hear`.
    pub stream: u64,
    /// The key that seals the datagrams.
    pub key: StreamKey,
    /// Offset of the piece in the file, bytes.
    pub at: u64,
    /// Content of the piece.
    pub bytes: Bytes,
    /// Rate at which to send, bytes per second.
    pub rate: u64,
    /// Whether this is the last piece before nodes are asked what they lack. The controller then gets `Input::CastOut`
    /// when the piece has been sent.
    pub last: bool,
}
