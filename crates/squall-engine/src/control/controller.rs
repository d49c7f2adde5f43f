//! The controller as data: the state, what follows from it, its connections; and the one way in which an event happens.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::event::Event;
use squall_model::id::{JobId, NodeId};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::info::Diag;
use squall_model::wire::node::Down;

use crate::control::index::desk::Desk;
use crate::control::index::foreign::Foreign;
use crate::control::index::gang::Gang;
use crate::control::index::leases::Leases;
use crate::control::index::lists::Lists;
use crate::control::index::queue::Queue;
use crate::control::index::timers::Timers;
use crate::control::index::todo::{Leaving, Todo};
use crate::control::index::waits::Waits;
use crate::control::net::broadcasts::Broadcasts;
use crate::control::net::links::Links;
use crate::control::net::queries::Queries;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::control::state::kept::Kept;

/// Soft state that follows from events, and how it learns of them.
#[derive(Debug)]
pub(crate) struct Observer {
    /// Called while state is still as it was.
    pub(crate) before: Option<fn(&mut Controller, Time, &Event, &mut Out)>,
    /// Called when the event is applied.
    pub(crate) after: Option<fn(&mut Controller, Time, &Event)>,
}

/// The controller's machine.
///
/// Every event in `Out::events` was applied with the `now` of the step that made it, so all events of one
/// journal record must come from steps with the same `now`, and the record's time must be that `now`.
#[derive(Debug)]
pub struct Controller {
    /// What the journal says.
    pub(crate) state: Kept,
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
    pub(crate) broadcasts: Broadcasts,
    /// What nodes are asked.
    pub(crate) queries: Queries,
    /// Lists of jobs of which there is more to tell.
    pub(crate) lists: Lists,
    /// Callers to whom an answer is owed.
    pub(crate) waits: Waits,
    /// What is open between this cell and others.
    pub(crate) foreign: Foreign,
    /// Steps that wait or run.
    pub(crate) steps: Desk,
    /// What waits to start.
    pub(crate) queue: Queue,
    /// Where there is room for leases.
    pub(crate) leases: Leases,
    /// Gang scheduling.
    pub(crate) gang: Gang,
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
    pub(crate) started: Time,
    /// What learns of every event, in this order.
    observers: &'static [Observer],
}

impl Controller {
    /// A controller over a replayed state, with what is to learn of every event.
    pub(crate) fn over(state: State, observers: &'static [Observer]) -> Self {
        Self {
            began_after: state.last_id,
            state: Kept::new(state),
            observers,
            host: Default::default(),
            version: Default::default(),
            accepts_loss: Default::default(),
            met: Default::default(),
            rehearsal: Default::default(),
            disk_full: Default::default(),
            links: Default::default(),
            broadcasts: Default::default(),
            queries: Default::default(),
            lists: Default::default(),
            waits: Default::default(),
            foreign: Default::default(),
            steps: Default::default(),
            queue: Default::default(),
            leases: Default::default(),
            gang: Default::default(),
            timers: Default::default(),
            todo: Default::default(),
            strays: Default::default(),
            leaving: Default::default(),
            forget_checked: Default::default(),
            scratch: Default::default(),
            diag: Default::default(),
            unsettled: Default::default(),
            started: Default::default(),
        }
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

    /// Makes an event happen: applied at once, journaled before anything else leaves.
    pub(crate) fn commit(&mut self, now: Time, event: Event, out: &mut Out) {
        for before in self.observers.iter().filter_map(|observer| observer.before) {
            before(self, now, &event, out);
        }
        self.state.apply(now, &event);
        for after in self.observers.iter().filter_map(|observer| observer.after) {
            after(self, now, &event);
        }
        out.events.push(event);
    }

    /// Queues a message for a node; it leaves at the end of this step, in order. Without a connection it is
    /// dropped: registration makes up for it from state.
    pub(crate) fn send(&mut self, node: NodeId, message: Down) {
        self.links.push(node, message);
    }
}
