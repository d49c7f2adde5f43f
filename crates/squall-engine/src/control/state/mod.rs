//! All that the controller must not forget. Changed by `apply` alone; equal after replay.

pub(crate) mod apply;
pub mod array;
pub mod by_id;
pub mod gang;
pub(crate) mod gates;
mod ids;
pub mod job;
pub(crate) mod kept;
pub mod ledger;
pub mod node;
pub(crate) mod reading;
pub mod snapshot;
pub mod users;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::config::Config;
use squall_model::event::NodeChange;
use squall_model::foreign::{Question, Reply};
use squall_model::gres::NodeGres;
use squall_model::id::{ClientKey, Epoch, JobId, NodeId};
use squall_model::job::{ArrayTask, Digest, Het, JobSpec, Owner};
use squall_model::license;
use squall_model::policy::{Policy, Tres, Whose};
use squall_model::reservation::Reservation;
use squall_model::resource::Alloc;
use squall_model::time::Time;
use squall_model::wire::client::JobName;
use squall_sched::topology::{Source, Topology};

use crate::control::state::array::Array;
use crate::control::state::by_id::ById;
use crate::control::state::gates::Tallies;
use crate::control::state::job::Job;
use crate::control::state::ledger::{Decay, Ledger};
use crate::control::state::node::{Node, Partition};

/// What the journal says, and nothing else: `State::default()` with every event applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The controller's incarnation.
    pub epoch: Epoch,
    /// Version of the controller that wrote last.
    pub version: String,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// Its partitions, in its order.
    pub partitions: Vec<Partition>,
    /// Every node ever seen or configured, by [`NodeId`].
    pub nodes: Vec<Node>,
    /// The id that was given (or reserved) last. The search for the next one begins after it.
    pub last_id: JobId,
    /// When ids last began again, if ever. Jobs submitted before that are older than jobs with lower ids.
    pub ids_began: Option<Time>,
    /// Ranges of ids that a controller with a newer state may have given, by the first of each. Their jobs are unknown,
    /// and the ids are not given again.
    pub lost_ids: BTreeMap<JobId, JobId>,
    /// Jobs that are not arrays, and array tasks that something happened to.
    pub jobs: ById<Box<Job>>,
    /// Arrays. The task with the highest index bears the same id in `jobs`.
    pub arrays: BTreeMap<JobId, Array>,
    /// Accounts, users, associations, levels of service.
    pub policy: Policy,
    /// What associations and levels of service used of each resource.
    pub usage: BTreeMap<(Whose, Tres), Ledger>,
    /// Heterogeneous jobs: how many components each has, by the first.
    pub hets: BTreeMap<JobId, u32>,
    /// Jobs that share cores with others: the matrix.
    pub gang: BTreeMap<JobId, gang::InTurn>,
    /// Where jobs are leased: who runs in a place, or goes from it, and who comes next, in order.
    pub lines: BTreeMap<LineId, Vec<JobId>>,
    /// Ended jobs before this time are forgotten.
    pub forgotten_before: Time,
    /// What operators changed of how nodes are described.
    pub node_changes: BTreeMap<NodeId, NodeChange>,
    /// Reservations that have not ended, by name.
    pub reservations: BTreeMap<String, Reservation>,
    /// What other cells have answered to jobs that depend on theirs.
    pub foreign: BTreeMap<Question, Reply>,
    /// Follows from the rest.
    pub index: Index,
}

/// A place on a node that jobs have one after the other: the node, and the first of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct LineId(#[n(0)] pub NodeId, #[n(1)] pub u32);

impl LineId {
    /// The place of an allocation on one node. None: there are more, or no cores.
    pub fn of(alloc: &Alloc) -> Option<Self> {
        let [group] = &alloc.groups[..] else { return None };
        let node = group.nodes.first().filter(|_| group.nodes.len() == 1)?;
        Some(Self(node, group.cores.iter().next()? as u32))
    }
}

/// What follows from the rest of the state, kept so that no event has to look at all jobs. Not part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The submission of a user's key.
    pub keys: BTreeMap<(u32, ClientKey), JobId>,
    /// Node ids by name.
    pub names: BTreeMap<String, NodeId>,
    /// Ended jobs that are still kept, by end time.
    pub ended: BTreeSet<(Time, JobId)>,
    /// Ended arrays that are still kept, by end time.
    pub ended_arrays: BTreeSet<(Time, JobId)>,
    /// How many pending jobs and arrays name this id in their dependency.
    pub wanted: BTreeMap<JobId, u32>,
    /// Pending jobs; array tasks count one each.
    pub pending: u64,
    /// Running and completing jobs.
    pub active: u64,
    /// The network, as the configuration has it.
    pub topology: Arc<Topology>,
    /// Generic resources of nodes that have some, with what jobs hold of them.
    pub gres: BTreeMap<NodeId, NodeGres>,
    /// All nodes, those of less weight first; empty: all weigh the same.
    pub by_weight: Vec<NodeId>,
    /// Licenses that running and completing jobs hold, by name.
    pub licenses: BTreeMap<String, u32>,
    /// What counts against limits.
    pub tallies: Tallies,
    /// What each user has.
    pub users: users::Users,
    /// Specs and owners seen last, so that equal ones are kept once.
    pub recent: Recent,
}

/// The specs and owners seen last. Equal to any other: what it holds is a matter of chance, not of state.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    specs: VecDeque<Arc<JobSpec>>,
    owners: VecDeque<Arc<Owner>>,
    /// Specs as many clients' requests share them, and what they are with their contents.
    came: VecDeque<(Arc<JobSpec>, Arc<JobSpec>)>,
}

impl PartialEq for Recent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Recent {}

impl Recent {
    /// How many are remembered.
    const KEPT: usize = 8;

    /// The shared copy of an equal spec, or this one.
    pub(crate) fn spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        share(&mut self.specs, spec)
    }
    /// Lays down in a spec what it was sent with. One that many requests share stays as it is, and they share another.
    pub(crate) fn lay_contents(&mut self, spec: &mut Arc<JobSpec>, env: Digest, script: Option<Digest>) {
        if let Some(own) = Arc::get_mut(spec) {
            (own.env, own.script) = (env, script);
            return;
        }
        let fits = |with: &JobSpec| with.env == env && with.script == script;
        let known = self.came.iter().find(|(came, with)| Arc::ptr_eq(came, spec) && fits(with));
        if let Some((_, with)) = known {
            *spec = Arc::clone(with);
            return;
        }
        let came = Arc::clone(spec);
        let changed = Arc::make_mut(spec);
        (changed.env, changed.script) = (env, script);
        self.came.truncate(Self::KEPT - 1);
        self.came.push_front((came, Arc::clone(spec)));
    }
    /// The shared copy of an equal owner, or this one.
    pub(crate) fn owner(&mut self, owner: &Arc<Owner>) -> Arc<Owner> {
        share(&mut self.owners, owner)
    }
}

fn share<T: PartialEq>(recent: &mut VecDeque<Arc<T>>, value: &Arc<T>) -> Arc<T> {
    if let Some(known) = recent.iter().find(|known| Arc::ptr_eq(known, value) || *known == value) {
        return Arc::clone(known);
    }
    if recent.len() == Recent::KEPT {
        recent.pop_back();
    }
    recent.push_front(Arc::clone(value));
    Arc::clone(value)
}

/// What an id stands for. An array's own id stands for its last task here; ask `State::arrays` for the array.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A job of its own.
    Job(&'a Job),
    /// A pending task of an array that nothing happened to yet.
    Untouched(&'a Array, ArrayTask),
}

impl State {
    /// Whether it can go on with this configuration: one with ids of another cell would be looked for there.
    pub fn keeps_cell(&self, config: &Config) -> bool {
        self.last_id == JobId(0) || self.config.cell == config.cell
    }
    /// Whether another cell gives this id.
    pub fn is_foreign(&self, id: JobId) -> bool {
        self.config.cell.is_some_and(|cell| cell != id.cell())
    }
    /// A job or an untouched array task; None: never existed, or forgotten.
    pub fn find(&self, id: JobId) -> Option<Found<'_>> {
        if let Some(job) = self.jobs.get(&id) {
            return Some(Found::Job(job));
        }
        let (array_id, array) = self.array_of(id)?;
        let index = array.index_of(array_id, id)?;
        let task = ArrayTask { array: array_id, index };
        array.tally.untouched.contains(index).then_some(Found::Untouched(array, task))
    }
    /// The array that reserved this id, whether for itself or for a task.
    pub fn array_of(&self, id: JobId) -> Option<(JobId, &Array)> {
        let (&array_id, array) = self.arrays.range(..=id).next_back()?;
        (id.0 - array_id.0 < array.size()).then_some((array_id, array))
    }
    /// Jobs of their own among an array's tasks, by rising id.
    pub fn touched(&self, array: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        let size = self.arrays.get(&array).map_or(0, Array::size);
        let range = self.jobs.range(array..JobId(array.0.saturating_add(size)));
        range.map(|(&id, job)| (id, &**job))
    }
    /// The heterogeneous job of which this is a component.
    pub fn het_of(&self, id: JobId) -> Option<Het> {
        let (&leader, &size) = self.hets.range(..=id).next_back()?;
        (id.0 - leader.0 < size).then_some(Het { leader, size })
    }
    /// How users name a job.
    pub fn name_of(&self, id: JobId) -> JobName {
        let task = match self.find(id) {
            Some(Found::Job(job)) => job.task,
            Some(Found::Untouched(_, task)) => Some(task),
            None => None,
        };
        JobName { id, task }
    }
    /// Whether a job has given back a node that has not released it yet.
    pub fn leaves(&self, id: JobId, node: NodeId) -> bool {
        self.jobs.get(&id).and_then(|job| job.run()).is_some_and(|run| run.leaving.on(node).is_some())
    }
    /// What an association or QOS used of a resource, times seconds, and for how many seconds its jobs ran.
    pub fn used(&self, whose: Whose, tres: Tres, id: u32, now: Time, decay: Decay) -> (f64, f64) {
        self.usage.get(&(whose, tres)).map_or((0.0, 0.0), |ledger| ledger.used(id, now, decay))
    }
    /// How many there are of each license.
    pub fn license_totals(&self) -> BTreeMap<String, u32> {
        license::parse(&self.config.licenses).unwrap_or_default()
    }
    /// The network that the configuration says. Hosts refuse a file with a fault; without any, nodes are alike.
    pub(crate) fn read_topology(&mut self) {
        let file = &self.config.topology;
        let (plugin, param) = (&self.config.topology_plugin, &self.config.topology_param);
        let source = Source { name: &file.name, text: &file.text, plugin, param };
        let found = if file.name.is_empty() {
            Topology::default()
        } else {
            Topology::read(&source, &|name| self.node_id(name), &[]).unwrap_or_default()
        };
        self.index.topology = Arc::new(found);
    }
    /// The node of that name.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.index.names.get(name).copied()
    }
    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }
    /// The partition of that name.
    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.config.name == name)
    }
    /// The partition for jobs that name none.
    pub fn default_partition(&self) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.config.default)
    }
    /// The partitions that a job names, or the default one; unknown names are left out.
    pub(crate) fn partitions_of<'a>(&'a self, spec: &'a JobSpec) -> impl Iterator<Item = &'a Partition> {
        let named = spec.partition.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let default = spec.partition.is_none().then(|| self.default_partition()).flatten();
        named.filter_map(|name| self.partition(name)).chain(default)
    }
}
