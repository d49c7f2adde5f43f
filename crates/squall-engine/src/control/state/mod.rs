//! The durable state of the controller. Only `apply` changes it, and a replay of the journal gives an equal one.

pub(crate) mod apply;
pub mod array;
pub(crate) mod billing;
pub mod by_id;
pub mod gang;
pub(crate) mod gates;
mod ids;
pub mod job;
pub mod ledger;
pub mod node;
pub(crate) mod reading;
pub(crate) mod sealed;
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
use squall_model::rotation::ControllerKeys;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::JobName;
use squall_sched::topology::{Source, Topology};

use crate::control::state::array::Array;
use crate::control::state::by_id::ById;
use crate::control::state::gates::Tallies;
use crate::control::state::job::{Job, Phase};
use crate::control::state::ledger::{Decay, Ledger};
use crate::control::state::node::{Node, Partition};

/// The durable state: what the journal contains, and nothing else. It is `State::default()` with every event applied in
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Number of the current run of the controller; it rises with each start.
    pub epoch: Epoch,
    /// Version of the controller that started last.
    pub version: String,
    /// Version of the cluster, which says what its daemons may use.
    pub cluster_version: ClusterVersion,
    /// The controllers' keys. None: they were never rotated.
    pub keys: Option<Box<ControllerKeys>>,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The partitions, in the configuration's order.
    pub partitions: Vec<Partition>,
    /// Every node ever seen or configured, by [`NodeId`].
    pub nodes: Vec<Node>,
    /// The job id that was assigned (or reserved) last. The search for the next one begins after it.
    pub last_id: JobId,
    /// When job ids last wrapped around; None: never. Jobs submitted before that are older than jobs with lower ids.
    pub ids_began: Option<Time>,
    /// Ranges of ids that a controller with a newer state may have assigned: first id to last id. Nothing is known
    /// about their jobs, and the ids are not assigned again.
    pub lost_ids: BTreeMap<JobId, JobId>,
    /// When, and in which run of the controller, the state last began without its end, as it was restored from a backup
    /// or its end was lost; None: it never did.
    pub restored: Option<(Time, Epoch)>,
    /// Jobs that are not arrays, and array tasks with a record of their own.
    pub jobs: ById<Box<Job>>,
    /// Job arrays. The task with the highest index has the array's own id in `jobs`.
    pub arrays: BTreeMap<JobId, Array>,
    /// Accounts, users, associations and QOS.
    pub policy: Policy,
    /// Usage of associations and of QOS, by kind of resource.
    pub usage: BTreeMap<(Whose, Tres), Ledger>,
    /// Number of components of each heterogeneous job, by its first component.
    pub hets: BTreeMap<JobId, u32>,
    /// Places in the gang scheduling matrix of jobs that share cores with others.
    pub gang: BTreeMap<JobId, gang::InTurn>,
    /// Lines of leases, by node and first core: the job that runs there (or is being released), then the leased
    /// jobs that will use the same cores, in order.
    pub lines: BTreeMap<LineId, Vec<JobId>>,
    /// Records of jobs that ended before this time were removed.
    pub forgotten_before: Time,
    /// Operators' changes of the features, weight and generic resources of nodes.
    pub node_changes: BTreeMap<NodeId, NodeChange>,
    /// Reservations that have not ended, by name.
    pub reservations: BTreeMap<String, Reservation>,
    /// Answers of other cells about jobs there on which jobs here depend.
    pub foreign: BTreeMap<Question, Reply>,
    /// Lookup tables and counts that follow from the rest of the state.
    pub index: Index,
}

/// Identifies a line: the node and the first core that its jobs use one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct LineId(#[n(0)] pub NodeId, #[n(1)] pub u32);

impl LineId {
    /// Returns the line to which jobs with this allocation belong. None: the allocation has more than one node,
    /// or no cores.
    pub fn of(alloc: &Alloc) -> Option<Self> {
        let [group] = &alloc.groups[..] else { return None };
        let node = group.nodes.first().filter(|_| group.nodes.len() == 1)?;
        Some(Self(node, group.cores.iter().next()? as u32))
    }
}

/// Lookup tables and counts that follow from the rest of the state, kept so that no event has to look at all jobs. Not
/// part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Job ids by submitting user (uid) and the client's key, so that a repeated submission finds the first.
    pub keys: BTreeMap<(u32, ClientKey), JobId>,
    /// Node ids by name.
    pub names: BTreeMap<String, NodeId>,
    /// Position of each node's entry in the configuration, by node id. None: the configuration has none.
    pub entries: Vec<Option<usize>>,
    /// Ended jobs that still have a record, by end time.
    pub ended: BTreeSet<(Time, JobId)>,
    /// Ended arrays that still have a record, by end time.
    pub ended_arrays: BTreeSet<(Time, JobId)>,
    /// Number of jobs and arrays that have not ended and name this id in their dependency.
    pub wanted: BTreeMap<JobId, u32>,
    /// Number of pending jobs, each array task counted.
    pub pending: u64,
    /// Number of running, completing and leased jobs.
    pub active: u64,
    /// The network topology from the configuration.
    pub topology: Arc<Topology>,
    /// Generic resources of the nodes that have any, and which of them jobs hold.
    pub gres: BTreeMap<NodeId, NodeGres>,
    /// All nodes, lowest weight first. Empty: all weights are equal.
    pub by_weight: Vec<NodeId>,
    /// Nodes that are not powered up.
    pub asleep: NodeSet,
    /// Nodes with faults.
    pub faulty: NodeSet,
    /// Nodes with faults from which a job suffered, by job. The job gets others as long as it fits there.
    pub avoid: BTreeMap<JobId, NodeSet>,
    /// Number of licenses that running and completing jobs hold, by name.
    pub licenses: BTreeMap<String, u32>,
    /// Jobs and resources that count against shared limits.
    pub tallies: Tallies,
    /// Number of jobs and stored bytes of each user.
    pub users: users::Users,
    /// Specs and owners seen last, so that equal ones are stored once.
    pub recent: Recent,
    /// Groups of users as they are now.
    pub groups: users::Groups,
}

/// A small cache of the specs and owners seen last. Two caches always count as equal, as the content depends on chance
/// and not on the state.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    specs: VecDeque<Arc<JobSpec>>,
    owners: VecDeque<Arc<Owner>>,
    /// Pairs of a spec as it came with a request and is shared by others, and its copy that also has the digests of
    /// environment and script.
    came: VecDeque<(Arc<JobSpec>, Arc<JobSpec>)>,
}

impl PartialEq for Recent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Recent {}

impl Recent {
    /// Maximum number of entries of each cache.
    const KEPT: usize = 8;

    /// Returns the stored copy of an equal spec. If there is none, stores this one and returns it.
    pub(crate) fn spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        share(&mut self.specs, spec)
    }
    /// Writes the digests of a job's environment and script into its spec. A spec that other requests share is replaced
    /// by a changed copy; requests with the same contents share that copy.
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
    /// Returns the stored copy of an equal owner. If there is none, stores this one and returns it.
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

/// What a job id stands for. An array's own id stands for its last task here; use `State::arrays` for the array.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A job or array task with a record of its own.
    Job(&'a Job),
    /// A pending array task without a record of its own: its array, and its array id and index.
    Untouched(&'a Array, ArrayTask),
}

impl State {
    /// Returns whether this state can be used with a configuration. It can't if the configuration has another cell and
    /// ids were assigned, because those ids would then be looked for in the former cell.
    pub fn keeps_cell(&self, config: &Config) -> bool {
        self.last_id == JobId(0) || self.config.cell == config.cell
    }
    /// Returns the number of pending jobs that are not held, each task of an array counted.
    pub fn waiting(&self) -> u64 {
        let is_free = |queue: &job::Queue| queue.hold == job::Hold::No;
        let jobs = self.jobs.values().filter(|job| job.is_pending() && is_free(&job.queue)).count() as u64;
        let arrays = self.arrays.values().filter(|array| is_free(&array.queue));
        jobs + arrays.map(|array| array.tally.untouched.len() as u64).sum::<u64>()
    }
    /// Returns whether this id belongs to another cell.
    pub fn is_foreign(&self, id: JobId) -> bool {
        self.config.cell.is_some_and(|cell| cell != id.cell())
    }
    /// Finds a job, or an array task without a record of its own. None: it never existed, or its record was removed.
    pub fn find(&self, id: JobId) -> Option<Found<'_>> {
        if let Some(job) = self.jobs.get(&id) {
            return Some(Found::Job(job));
        }
        let (array_id, array) = self.array_of(id)?;
        let index = array.index_of(array_id, id)?;
        let task = ArrayTask { array: array_id, index };
        array.tally.untouched.contains(index).then_some(Found::Untouched(array, task))
    }
    /// Returns the array that reserved this id, for itself or for a task. None: no array did.
    pub fn array_of(&self, id: JobId) -> Option<(JobId, &Array)> {
        let (&array_id, array) = self.arrays.range(..=id).next_back()?;
        (id.0 - array_id.0 < array.size()).then_some((array_id, array))
    }
    /// Returns those tasks of an array that have a record of their own, by rising id.
    pub fn touched(&self, array: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        let size = self.arrays.get(&array).map_or(0, Array::size);
        let range = self.jobs.range(array..JobId(array.0.saturating_add(size)));
        range.map(|(&id, job)| (id, &**job))
    }
    /// Returns the heterogeneous job of which this job is a component; None: it is not a component.
    pub fn het_of(&self, id: JobId) -> Option<Het> {
        let (&leader, &size) = self.hets.range(..=id).next_back()?;
        (id.0 - leader.0 < size).then_some(Het { leader, size })
    }
    /// Returns a job's name as users see it, e.g. `17_3` for an array task.
    pub fn name_of(&self, id: JobId) -> JobName {
        let task = match self.find(id) {
            Some(Found::Job(job)) => job.task,
            Some(Found::Untouched(_, task)) => Some(task),
            None => None,
        };
        JobName { id, task }
    }
    /// Returns whether a job has given back this node and the node has not released it yet.
    pub fn leaves(&self, id: JobId, node: NodeId) -> bool {
        self.jobs.get(&id).and_then(|job| job.run()).is_some_and(|run| run.leaving.on(node).is_some())
    }
    /// Returns the decayed usage of an association or QOS at `now`: amount of the resource times seconds, and run time
    /// of its jobs in seconds.
    pub fn used(&self, whose: Whose, tres: Tres, id: u32, now: Time, decay: Decay) -> (f64, f64) {
        // What is billed has no ledger as long as it is CPUs.
        let known = self.usage.get(&(whose, tres)).or_else(|| {
            let cpus = (tres == Tres::Billing).then_some((whose, Tres::Cpu));
            cpus.and_then(|cpus| self.usage.get(&cpus))
        });
        known.map_or((0.0, 0.0), |ledger| ledger.used(id, now, decay))
    }
    /// Returns the configured number of each license, by name.
    pub fn license_totals(&self) -> BTreeMap<String, u32> {
        license::parse(&self.config.licenses).unwrap_or_default()
    }
    /// Reads the network topology from the configuration's topology file. The host refuses a faulty file before.
    /// Without a file all nodes are alike.
    pub(crate) fn read_topology(&mut self) {
        let file = &self.config.topology;
        let (plugin, param) = (&self.config.topology_plugin, &self.config.topology_param);
        let source = Source { name: &file.name, text: &file.text, plugin, param };
        let found = if file.name.is_empty() {
            Topology::default()
        } else {
            Topology::read(&source, &|name| self.ever_id(name), &[]).unwrap_or_default()
        };
        self.index.topology = Arc::new(found);
    }
    /// Returns the id of the node with that name; None: there is none, or it was removed and is gone.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.ever_id(name).filter(|id| self.node(*id).is_some_and(|node| !node.is_gone()))
    }
    /// Returns the id of the node that has or had that name; None: there never was one.
    pub(crate) fn ever_id(&self, name: &str) -> Option<NodeId> {
        self.index.names.get(name).copied()
    }
    /// Returns all nodes but those that were removed and are gone.
    pub(crate) fn present(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| !node.is_gone()).map(|(id, _)| id)
    }
    /// Returns the node with that id; None: there is none.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }
    /// Returns whether a node has not registered since the state was restored. What ran there may have ended since.
    pub(crate) fn is_unmet(&self, id: NodeId) -> bool {
        self.restored.is_some() && self.node(id).is_none_or(|node| node.registered == Time(0))
    }
    /// Returns whether a running job may have ended already, and even run again: it began before the state was restored,
    /// and one of its nodes has not registered since.
    pub(crate) fn is_doubtful(&self, job: &Job) -> bool {
        let Phase::Running(run) = &job.phase else { return false };
        self.restored.is_some_and(|(time, _)| run.start <= time) && run.left.iter().any(|node| self.is_unmet(node))
    }
    /// Returns the partition with that name; None: there is none.
    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.config.name == name)
    }
    /// Returns the partition for jobs that name none; None: no partition is the default.
    pub fn default_partition(&self) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.config.default)
    }
    /// Returns the partitions that a job names, or the default one. Unknown names are left out.
    pub(crate) fn partitions_of<'a>(&'a self, spec: &'a JobSpec) -> impl Iterator<Item = &'a Partition> {
        let named = spec.partition.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let default = spec.partition.is_none().then(|| self.default_partition()).flatten();
        named.filter_map(|name| self.partition(name)).chain(default)
    }
}
