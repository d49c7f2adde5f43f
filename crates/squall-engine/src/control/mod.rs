//! The controller: decides (`request`), records (`apply`), makes it so (`drive`).
//!
//! `State` is what the journal says; only `State::apply` writes it, and a replay of the journal gives it again.
//! Everything else in [`Controller`] (connections, waiting callers, timers, the queue's order) is soft: lost in
//! a crash and rebuilt from `State` at [`Input::Start`].

mod apply;
pub(crate) mod broadcasts;
pub mod cast;
pub(crate) mod drive;
pub(crate) mod facts;
pub(crate) mod fair;
pub(crate) mod foreign;
pub(crate) mod info;
mod layout;
pub mod limits;
pub(crate) mod links;
pub(crate) mod lists;
pub(crate) mod queries;
pub(crate) mod request;
mod scope;
pub mod state;
pub(crate) mod steps;
pub(crate) mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::{JobId, NodeId};
use squall_model::job::{Blob, Digest, JobAttempt, Owner};
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::fabric::{DownFrame, Newer, UpFrame, Upward};
use squall_model::wire::info::Diag;
use squall_model::wire::node::Down;

use crate::machine::Machine;
use drive::Todo;
use drive::queue::Queue;
use drive::shutdown::Leaving;
use drive::timers::Timers;
use links::Links;
use lists::Lists;
use queries::Queries;
use state::State;
use waits::Waits;

pub use drive::rehearsal::Rehearsal;

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
    fn can_wait(&self) -> bool {
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
    pub casts: Vec<cast::Cast>,
    /// Answers for clients.
    pub answers: Vec<(CallerId, Answer)>,
    /// A node has heard a newer controller, and that is not to be gone on from: the daemon ends.
    pub newer: Option<Newer>,
    /// The daemon may end now (after a `ShutDown` was dealt with).
    pub exit: bool,
}

/// The controller's machine.
///
/// Every event in `Out::events` was applied with the `now` of the step that made it, so all events of one
/// journal record must come from steps with the same `now`, and the record's time must be that `now`.
#[derive(Debug, Default)]
pub struct Controller {
    /// What the journal says.
    pub(crate) state: State,
    /// Name of this host.
    pub(crate) host: String,
    /// This program's version.
    pub(crate) version: String,
    /// What a state that is older than what nodes have heard lacks may be lost.
    pub(crate) accepts_loss: bool,
    /// The last id that was given before this life.
    pub(crate) began_after: JobId,
    /// Nodes that have registered in this life.
    pub(crate) met: NodeSet,
    /// There is no cluster: every node counts as connected.
    pub(crate) rehearsal: bool,
    /// The journal's disk is full: what needs room is refused.
    pub(crate) disk_full: bool,
    /// The tree.
    pub(crate) links: Links,
    /// Files on their way to nodes.
    pub(crate) broadcasts: broadcasts::Broadcasts,
    /// What nodes are asked.
    pub(crate) queries: Queries,
    /// Lists of jobs of which there is more to tell.
    pub(crate) lists: Lists,
    /// Callers to whom an answer is owed.
    pub(crate) waits: Waits,
    /// What is open between this cell and others.
    pub(crate) foreign: foreign::Foreign,
    /// Steps that wait or run.
    pub(crate) steps: steps::Desk,
    /// What waits to start.
    pub(crate) queue: Queue,
    /// Where there is room for leases.
    pub(crate) leases: drive::lease::Leases,
    /// Gang scheduling.
    pub(crate) gang: drive::gang::Gang,
    /// What has to happen at a time.
    pub(crate) timers: Timers,
    /// What this turn has to do.
    pub(crate) todo: Todo,
    /// Jobs that nodes have and should not, until they are rid of them.
    pub(crate) strays: BTreeMap<NodeId, BTreeSet<JobAttempt>>,
    /// A shutdown under way.
    pub(crate) leaving: Option<Leaving>,
    /// When ended jobs were looked at last, to be forgotten.
    pub(crate) forget_checked: Time,
    /// The policy's memory.
    pub(crate) scratch: squall_sched::Scratch,
    /// Counters.
    pub(crate) diag: Diag,
    /// Something was taken whose consequences were not drawn yet.
    pub(crate) unsettled: bool,
    /// When it started.
    started: Time,
}

impl Controller {
    /// A controller over a replayed state. Inert until its first input, which is [`Input::Start`].
    pub fn new(state: State) -> Self {
        Self { began_after: state.last_id, state, ..Self::default() }
    }
    /// The journaled state.
    pub fn state(&self) -> &State {
        &self.state
    }
    /// Whether a node is in session.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.links.connected().contains(node)
    }
    /// Whether a user has a job on the node of that name: only then the node is believed to speak for that user.
    pub fn has_user_on(&self, node: &str, uid: u32) -> bool {
        let jobs = self.state.node_id(node).and_then(|id| self.state.node(id)).map(|node| &node.jobs);
        let owner = |job| self.state.jobs.get(job).map(|job| job.owner.uid);
        jobs.is_some_and(|jobs| jobs.iter().any(|job| owner(job) == Some(uid)))
    }
    /// Has lists come in pages of so many jobs at most.
    pub fn set_page(&mut self, jobs: usize) {
        self.lists.page = jobs;
    }
    /// Has the next page be of the first list whose caller is ready for it. False: nobody is.
    pub fn turn_lists(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        self.lists.turn(ready)
    }
    /// Has it go on from a state that is older than what nodes have heard: above their epoch and the ids that they know.
    pub fn accept_loss(&mut self) {
        self.accepts_loss = true;
    }
    /// Whether there is more of a list to be told, at each [`Input::Page`] a page.
    pub fn lists(&self) -> bool {
        self.lists.is_open()
    }
    /// Counters since the start or the last reset (times and journal figures are the host's to fill in).
    pub fn diag(&self) -> &Diag {
        &self.diag
    }

    /// The script of a job, for its owner or an operator. The content is the host's to find.
    pub fn script_of(&self, who: &Who, job: JobId) -> Result<Digest, Refusal> {
        request::script_of(&self.state, who, job)
    }

    /// Takes one of several inputs of the same moment, of which [`Controller::settle`] ends the last. What follows from
    /// submissions and from reports of ends is found out once for all of them; before anything else, and after it,
    /// nothing is open.
    pub fn take(&mut self, now: Time, input: Input, out: &mut Out) {
        let waits = input.can_wait();
        if !waits {
            self.settle(now, out);
        }
        self.unsettled = true;
        self.decide(now, input, out);
        if !waits {
            self.settle(now, out);
        }
    }

    /// Draws the consequences of what was taken: starts, answers, frames.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        if std::mem::take(&mut self.unsettled) {
            drive::settle(self, now, out);
        }
    }

    /// `bench/path` counts what this and [`drive::settle`] take.
    #[inline(never)]
    fn decide(&mut self, now: Time, input: Input, out: &mut Out) {
        match input {
            Input::Start { config, version, host } => drive::start(self, now, *config, version, host, out),
            Input::Ask { caller, who, request } => request::ask(self, now, caller, &who, *request, out),
            Input::Hangup { caller } => {
                for job in self.waits.hangup(caller) {
                    drive::work::abandon(self, now, job, out);
                }
                steps::hangup(self, now, caller);
                queries::hangup(self, caller);
                self.lists.hangup(caller);
                self.foreign.hangup(caller);
                broadcasts::give_up(self, caller);
            }
            Input::Frame { link, frame } => request::reports::frame(self, now, link, *frame, out),
            Input::Opened { link, name } => {
                let config = &self.state.config;
                let keyed = name.map(|name| scope::Keyed::new(config, name));
                self.links.opened(now, link, config.msg_aggregation_params.0, keyed);
            }
            Input::Lost { link } => drive::nodes::child_closed(self, link),
            Input::Disk { full } => {
                self.disk_full = full;
                self.queue.kick |= !full;
            }
            Input::Multicast { secret } => self.broadcasts.air.open(secret),
            Input::CastOut { stream } => cast::left(self, now, stream),
            Input::ClockSet { by_us } => drive::wall::stepped(self, now, by_us, out),
            Input::Page => lists::page(self, now, out),
            Input::Tick => {}
        }
    }

    /// Makes an event happen: applied at once, journaled before anything else leaves.
    pub(crate) fn commit(&mut self, now: Time, event: Event, out: &mut Out) {
        drive::gang::before(self, now, &event, out);
        drive::notice::before(self, &event);
        let leader = drive::lease::leader(self, &event);
        self.state.apply(now, &event);
        drive::notice::after(self, now, &event);
        drive::gang::after(self, &event);
        drive::lease::after(self, &event, leader);
        drive::het::after(self, &event);
        out.events.push(event);
    }

    /// Queues a message for a node; it leaves at the end of this step, in order. Without a connection it is
    /// dropped: registration makes up for it from state.
    pub(crate) fn send(&mut self, node: NodeId, message: Down) {
        self.links.push(node, message);
    }
}

impl Machine for Controller {
    type Input = Input;
    type Out = Out;

    fn step(&mut self, now: Time, input: Input, out: &mut Out) {
        self.take(now, input, out);
        self.settle(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        drive::deadline(self)
    }
}

#[cfg(test)]
mod tests;
