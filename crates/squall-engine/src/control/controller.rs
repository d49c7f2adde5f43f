//! The controller as data: the state, what is derived from it, its connections; and `commit`, through which every event
//! passes.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::Config;
use squall_model::event::{Event, Record};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{JobAttempt, PendingReason};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::Newer;
use squall_model::wire::info::Diag;
use squall_model::wire::node::Down;
use squall_sched::Item;

use crate::control::index::desk::Desk;
use crate::control::index::feed::Feed;
use crate::control::index::foreign::Foreign;
use crate::control::index::gang::Gang;
use crate::control::index::leases::Leases;
use crate::control::index::lists::Lists;
use crate::control::index::losing::Losing;
use crate::control::index::next::NextStart;
use crate::control::index::power::Powers;
use crate::control::index::programs::Programs;
use crate::control::index::queue::Queue;
use crate::control::index::signals::Signals;
use crate::control::index::timers::Timers;
use crate::control::index::todo::{Leaving, Todo};
use crate::control::index::waits::Waits;
use crate::control::net::broadcasts::Broadcasts;
use crate::control::net::links::Links;
use crate::control::net::queries::Queries;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::control::state::sealed::SealedState;

/// Two optional functions that keep soft state up to date: one runs before each event is applied, one after.
#[derive(Debug)]
pub(crate) struct Observer {
    /// Optional function that is called before the event is applied, with the state still as it was.
    pub(crate) before: Option<fn(&mut Controller, Time, &Event, &mut Out)>,
    /// Optional function that is called after the event was applied.
    pub(crate) after: Option<fn(&mut Controller, Time, &Event)>,
}

/// The controller as a state machine without input or output of its own.
///
/// Every event in `Out::events` was applied with the `now` of the step that made it. So all events of one journal
/// record must come from steps with the same `now`, and the record's time must be that `now`.
#[derive(Debug)]
pub struct Controller {
    /// The state that the journal restores.
    pub(crate) state: SealedState,
    /// Name of this host.
    pub(crate) host: String,
    /// The addresses and ports with which this run began, which are not journaled.
    pub(crate) here: Box<Config>,
    /// This program's version.
    pub(crate) version: String,
    /// The newest version of a cluster that this controller can work with.
    pub(crate) speaks: ClusterVersion,
    /// Whether the controller may go on from a state older than the one that nodes have seen, losing the jobs in
    /// between.
    pub(crate) accepts_loss: bool,
    /// For how long another controller may have decided what this state lacks, as it is that of a backup. None: it is
    /// not, or was started since.
    pub(crate) restores: Option<Span>,
    /// The last job id that was assigned before this run of the controller.
    pub(crate) began_after: JobId,
    /// Nodes that have registered in this run of the controller.
    pub(crate) met: NodeSet,
    /// Nodes that say that they know of a newer state, with what they have heard. None: another machine says so of the
    /// node.
    pub(crate) doubts: BTreeMap<NodeId, Option<Newer>>,
    /// Whether this is a rehearsal without a cluster, in which every node counts as connected.
    pub(crate) rehearsal: bool,
    /// Whether the journal's disk is full. Requests that need disk space are then refused.
    pub(crate) disk_full: bool,
    /// Connections of the controller's children in the tree of node daemons, and messages queued for nodes.
    pub(crate) links: Links,
    /// Broadcasts of files to nodes that are under way.
    pub(crate) broadcasts: Broadcasts,
    /// Queries sent to nodes and not answered yet.
    pub(crate) queries: Queries,
    /// Lists of jobs that are sent to clients page by page.
    pub(crate) lists: Lists,
    /// The latest events, and the clients that follow them.
    pub(crate) feed: Feed,
    /// Clients that still wait for an answer, such as `sbatch --wait`.
    pub(crate) waits: Waits,
    /// Questions between this cell and others that are not answered yet.
    pub(crate) foreign: Foreign,
    /// Steps that wait for cores or run.
    pub(crate) steps: Desk,
    /// Pending jobs in scheduling order, and the reasons why some of them can't start.
    pub(crate) queue: Queue,
    /// Running jobs with a line that can take more leased jobs. A line is a list of jobs that a node runs
    /// one after the other on the same cores.
    pub(crate) leases: Leases,
    /// Soft state of gang scheduling.
    pub(crate) gang: Gang,
    /// Timers that are set, each for one purpose.
    pub(crate) timers: Timers,
    /// Effects that the controller still has to run in this turn (one iteration of the controller).
    pub(crate) todo: Todo,
    /// Job attempts that a node still runs and should not run, by node. An entry stays until the node reports the
    /// attempt's end.
    pub(crate) strays: BTreeMap<NodeId, BTreeSet<JobAttempt>>,
    /// Running jobs with places of failed nodes that wait for a node; soft state.
    pub(crate) vacant: BTreeSet<JobId>,
    /// What is kept for jobs that end and start again in place, as the node of their script failed.
    pub(crate) kept: BTreeMap<JobId, NextStart>,
    /// Nodes that wait to be powered up or down.
    pub(crate) powers: Powers,
    /// Programs around jobs that jobs wait for.
    pub(crate) programs: Programs,
    /// Nodes that are gone, as the host was told in this run of the controller.
    pub(crate) dismissed: NodeSet,
    /// Signals for jobs that nodes may not have got; soft state.
    pub(crate) signals: Signals,
    /// Launches in a row that each node failed by its own fault; soft state.
    pub(crate) failures: BTreeMap<NodeId, (u32, Time)>,
    /// Nodes that running jobs have lost; soft state.
    pub(crate) losses: BTreeMap<JobId, Losing>,
    /// The shutdown under way; None: no shutdown was requested.
    pub(crate) leaving: Option<Leaving>,
    /// When the controller last looked for records of ended jobs that are old enough to be removed.
    pub(crate) forget_checked: Time,
    /// Working memory of the scheduling policy, kept from one scheduling pass to the next.
    pub(crate) scratch: squall_sched::Scratch,
    /// Counters for `sdiag`.
    pub(crate) diag: Diag,
    /// Whether an input was processed and its effects have not run yet.
    pub(crate) unsettled: bool,
    /// When this run of the controller started.
    pub(crate) started: Time,
    /// Functions that keep soft state up to date, run at each event in this order.
    observers: &'static [Observer],
}

impl Controller {
    /// Makes a controller for a replayed state, with the observers that run at each event.
    pub(crate) fn over(state: State, observers: &'static [Observer]) -> Self {
        Self {
            began_after: state.last_id,
            state: SealedState::new(state),
            observers,
            host: String::default(),
            here: Box::default(),
            version: String::default(),
            speaks: ClusterVersion::OWN,
            accepts_loss: Default::default(),
            restores: Option::default(),
            met: NodeSet::default(),
            doubts: BTreeMap::default(),
            rehearsal: Default::default(),
            disk_full: Default::default(),
            links: Links::default(),
            broadcasts: Broadcasts::default(),
            queries: Queries::default(),
            lists: Lists::default(),
            feed: Feed::default(),
            waits: Waits::default(),
            foreign: Foreign::default(),
            steps: Desk::default(),
            queue: Queue::default(),
            leases: Leases::default(),
            gang: Gang::default(),
            timers: Timers::default(),
            todo: Todo::default(),
            strays: BTreeMap::default(),
            vacant: BTreeSet::default(),
            kept: BTreeMap::default(),
            powers: Powers::default(),
            programs: Programs::default(),
            dismissed: NodeSet::default(),
            signals: Signals::default(),
            failures: BTreeMap::default(),
            losses: BTreeMap::default(),
            leaving: Option::default(),
            forget_checked: Time::default(),
            scratch: squall_sched::Scratch::default(),
            diag: Diag::default(),
            unsettled: Default::default(),
            started: Time::default(),
        }
    }
    /// Returns the journaled state.
    pub fn state(&self) -> &State {
        &self.state
    }
    /// Returns the journaled state, to be given to the controller that leads from now on.
    pub fn into_state(self) -> State {
        self.state.into_state()
    }
    /// Applies a record of another controller, which leads. Nothing is decided.
    pub fn follow(&mut self, record: &Record) {
        for event in &record.events {
            self.state.apply(record.time, event);
        }
    }
    /// Returns whether a node has a session.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.links.connected().contains(node)
    }
    /// Returns why a job waits; `None` if it does not.
    pub fn reason(&self, id: JobId, now: Time) -> PendingReason {
        self.queue.reason(&self.state, now, Item { id, array: false })
    }
    /// Returns the uids of users with jobs that have not ended.
    pub fn users_with_jobs(&self) -> Vec<u32> {
        self.state.index.users.with_jobs().collect()
    }
    /// Returns whether a node of this name has a session.
    pub fn has_connected(&self, name: &str) -> bool {
        self.state.ever_id(name).is_some_and(|node| self.is_connected(node))
    }
    /// Returns whether a user has a job on the node with the given name. Only then may that node make requests for the
    /// user.
    pub fn has_user_on(&self, node: &str, uid: u32) -> bool {
        let jobs = self.state.node_id(node).and_then(|id| self.state.node(id)).map(|node| &node.jobs);
        let owner = |job| self.state.jobs.get(job).map(|job| job.owner.uid);
        jobs.is_some_and(|jobs| jobs.iter().any(|job| owner(job) == Some(uid)))
    }
    /// Returns whether some job was submitted by a user for whom a node vouched.
    pub fn has_vouched_jobs(&self) -> bool {
        let jobs = self.state.jobs.values().filter(|job| !job.is_ended()).map(|job| &job.spec);
        jobs.chain(self.state.arrays.values().map(|array| &array.spec)).any(|spec| spec.vouched_by.is_some())
    }
    /// Makes this controller one of a release that can work with clusters of this version at most.
    pub fn speak(&mut self, newest: ClusterVersion) {
        self.speaks = newest;
    }
    /// Sets the maximum number of jobs in one page of a job list.
    pub fn set_page(&mut self, jobs: usize) {
        self.lists.page = jobs;
    }
    /// Moves the first job list of which the client can receive to the front: the next page comes from it. Returns false if
    /// no client is ready.
    pub fn rotate_lists(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        self.lists.turn(ready)
    }
    /// Lets the controller go on if most nodes have heard a newer epoch. It then takes one above theirs.
    pub fn accept_loss(&mut self) {
        self.accepts_loss = true;
    }
    /// Tells the controller, before its start, that the state lacks what was decided in a time of length `lost`: it was
    /// restored from a backup, or its end was lost. The start begins an epoch that there never was, passes over the job
    /// ids that may have been given out since, and holds the jobs that may have run.
    pub fn restore(&mut self, lost: Span) {
        self.restores = Some(lost);
    }
    /// Returns whether a job list has pages that are not sent yet; each [`Input::Page`] sends one.
    pub fn lists(&self) -> bool {
        self.lists.is_open()
    }
    /// Records the number of the journal record to which the events from now on belong.
    pub(crate) fn begin_record(&mut self, record: u64) {
        self.feed.begin_record(record);
    }
    /// Returns whether some follower of events has not got all of them; each [`Input::Feed`] sends a page.
    pub fn has_news(&self) -> bool {
        self.feed.has_news()
    }
    /// Makes the next page of events go to the first follower that has not got all events and is ready. Returns false
    /// if there is none.
    pub fn turn_followers(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        self.feed.turn(ready)
    }
    /// Returns the counters since the start or the last reset. The host fills in times and figures of the journal.
    pub fn diag(&self) -> &Diag {
        &self.diag
    }

    /// Applies an event to the state at once and appends it to `out`. The host journals the event before it sends
    /// anything else of this step.
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

    /// Queues a message for a node; it leaves at the end of this step, in order. Without a connection it is dropped, as
    /// a node gets everything again from the state when it registers.
    pub(crate) fn send(&mut self, node: NodeId, message: Down) {
        self.links.push(node, message);
    }
}
