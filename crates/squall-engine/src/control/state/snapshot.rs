//! A state in parts, for snapshots. Each part is written, read and restored by itself, so that threads can share the
//! work. A part stores each spec and owner once; derived indexes are not stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::checkpoint::Checkpoints;
use squall_model::config::Config;
use squall_model::event::NodeChange;
use squall_model::foreign::{Question, Reply};
use squall_model::gres::Grant;
use squall_model::id::{Attempt, ClientKey, Epoch, JobId, NodeId, StepNo};
use squall_model::job::{ArraySpec, ArrayTask, JobSpec, Outcome, Owner};
use squall_model::policy::{Policy, Tres, Whose};
use squall_model::reservation::Reservation;
use squall_model::resource::Alloc;
use squall_model::rotation::ControllerKeys;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;

use crate::control::state::array::{Array, ArrayTally};
use crate::control::state::by_id::ById;
use crate::control::state::gang::InTurn;
use crate::control::state::job::{Job, Phase, Queue};
use crate::control::state::ledger::Ledger;
use crate::control::state::node::{Node, Partition};
use crate::control::state::users::{Users, content_of};
use crate::control::state::{Index, LineId, State};

/// Number of jobs in a part: enough that specs are shared, few enough that the part fits a processor's cache.
const JOBS_PER_PART: usize = 1024;

/// A part of a state. Made by [`State::parts`]; [`Part::restore`] and [`State::assemble`] make a state of parts again.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Part {
    /// Everything that is not in the other parts. A snapshot has exactly one such part.
    #[n(0)]
    Cluster(#[n(0)] Box<Cluster>),
    /// Some of the jobs and arrays.
    #[n(1)]
    Rows(#[n(0)] Rows),
    /// Accounts and their usage, if there are any. A snapshot has at most one such part.
    #[n(2)]
    Standing(#[n(0)] Box<Standing>),
    /// Generic resources that jobs hold. Builds before [`Run::gres`] wrote this part; it is still read, but no longer
    /// written.
    #[n(3)]
    Grants(#[n(0)] BTreeMap<JobId, Granted>),
    /// All reservations.
    #[n(4)]
    Reservations(#[n(0)] Vec<Reservation>),
    /// Places in the gang scheduling matrix of jobs that share cores, if there are any.
    #[n(5)]
    Gang(#[n(0)] Vec<(JobId, InTurn)>),
    /// Heterogeneous jobs, if there are any: number of components by first component.
    #[n(6)]
    Hets(#[n(0)] BTreeMap<JobId, u32>),
    /// Lines of leased jobs by node and first core, if there are any.
    #[n(7)]
    Lines(#[n(0)] BTreeMap<LineId, Vec<JobId>>),
    /// Answers of other cells about their jobs, if there are any.
    #[n(8)]
    Foreign(#[n(0)] Vec<(Question, Reply)>),
    /// Usage of each kind of resource by associations and QOS, if there is any.
    #[n(9)]
    Spent(#[n(0)] BTreeMap<(Whose, Tres), Ledger>),
    /// What running jobs gave back and nodes had not released yet. Builds before [`Run::leaving`] wrote this part; it
    /// is still read, but no longer written.
    #[n(10)]
    Leaving(#[n(0)] BTreeMap<JobId, Alloc>),
    /// Ranges of job ids that a controller with a newer state may have assigned (first and last id), if there are any.
    #[n(11)]
    LostIds(#[n(0)] BTreeMap<JobId, JobId>),
    /// When job ids last wrapped around, if they did.
    #[n(12)]
    IdsBegan(#[n(0)] Time),
    /// Operators' changes of the features, weight and generic resources of nodes, if there are any.
    #[n(13)]
    NodeChanges(#[n(0)] BTreeMap<NodeId, NodeChange>),
    /// When, and in which run of the controller, the state was last restored from a backup, if it was.
    #[n(14)]
    Restored(#[n(0)] Time, #[n(1)] Epoch),
    /// Version of the cluster, if it was raised.
    #[n(15)]
    Version(#[n(0)] ClusterVersion),
    /// The controllers' keys, if they were rotated. The numbers from 16 to 27 are left out.
    #[n(28)]
    Keys(#[n(0)] Box<ControllerKeys>),
}

/// Generic resources of a job's latest attempt, in snapshots of early builds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Granted {
    /// Devices that the job holds on each node.
    #[n(0)]
    job: Vec<Grant>,
    /// Those of the job's devices that a step holds, by step. A step without an entry shares all of them.
    #[n(1)]
    steps: BTreeMap<StepNo, Vec<Grant>>,
}

/// Accounts, users, associations and QOS, and what they used.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Standing {
    #[n(0)]
    policy: Policy,
    /// CPU usage of associations, in snapshots of builds before [`State::usage`]; empty in new snapshots.
    #[n(1)]
    ledger: Ledger,
    /// When grace times of preempted jobs end, in snapshots of builds before [`Run::grace`]; empty in new snapshots.
    #[n(2)]
    graces: BTreeMap<JobId, Time>,
}

/// What a state contains apart from jobs, arrays, accounts and the rarer parts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Cluster {
    #[n(0)]
    epoch: Epoch,
    #[n(1)]
    version: String,
    #[n(2)]
    #[cbor(with = "squall_model::encoding::arc")]
    config: Arc<Config>,
    #[n(3)]
    partitions: Vec<Partition>,
    #[n(4)]
    nodes: Vec<Node>,
    #[n(5)]
    last_id: JobId,
    #[n(6)]
    forgotten_before: Time,
}

/// Some jobs and arrays, by rising id, with the owners and specs that they share.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Rows {
    #[n(0)]
    #[cbor(with = "squall_model::encoding::arcs")]
    owners: Vec<Arc<Owner>>,
    #[n(1)]
    #[cbor(with = "squall_model::encoding::arcs")]
    specs: Vec<Arc<JobSpec>>,
    #[n(2)]
    jobs: Vec<JobRow>,
    #[n(3)]
    arrays: Vec<ArrayRow>,
}

/// A job; `owner` and `spec` are positions in the lists of its part of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct JobRow {
    #[n(0)]
    id: JobId,
    #[n(1)]
    owner: u32,
    #[n(2)]
    spec: u32,
    #[n(3)]
    key: Option<ClientKey>,
    #[n(4)]
    task: Option<ArrayTask>,
    #[n(5)]
    own_spec: bool,
    #[n(6)]
    submit: Time,
    #[n(7)]
    queue: Queue,
    #[n(8)]
    attempt: Attempt,
    #[n(9)]
    restarts: u32,
    #[n(10)]
    launch_failures: u32,
    #[n(11)]
    phase: Phase,
    #[n(12)]
    last: Option<Outcome>,
    #[n(13)]
    checkpoints: Option<Box<Checkpoints>>,
}

/// An array; `owner` and `spec` are positions in the lists of its part of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct ArrayRow {
    #[n(0)]
    id: JobId,
    #[n(1)]
    owner: u32,
    #[n(2)]
    spec: u32,
    #[n(3)]
    #[cbor(with = "squall_model::encoding::arc")]
    tasks: Arc<ArraySpec>,
    #[n(4)]
    key: ClientKey,
    #[n(5)]
    submit: Time,
    #[n(6)]
    queue: Queue,
    #[n(7)]
    limit: Option<u32>,
    #[n(8)]
    tally: ArrayTally,
}

/// Collects shared values for a part of a snapshot, each once. Equal addresses count as the same value.
struct Table<T> {
    places: BTreeMap<usize, u32>,
    values: Vec<Arc<T>>,
}

impl<T> Table<T> {
    fn new() -> Self {
        Self { places: BTreeMap::new(), values: Vec::new() }
    }
    fn place(&mut self, value: &Arc<T>) -> u32 {
        let fresh = self.values.len() as u32;
        let place = *self.places.entry(Arc::as_ptr(value).addr()).or_insert(fresh);
        if place == fresh {
            self.values.push(Arc::clone(value));
        }
        place
    }
}

/// A part of a snapshot in the form that the state needs, with the entries that it adds to the state's index.
#[derive(Debug, Default)]
pub struct Restored {
    cluster: Option<Box<Cluster>>,
    standing: Option<Box<Standing>>,
    jobs: Vec<(JobId, Box<Job>)>,
    arrays: Vec<(JobId, Array)>,
    keys: Vec<((u32, ClientKey), JobId)>,
    ended: Vec<(Time, JobId)>,
    ended_arrays: Vec<(Time, JobId)>,
    gang: Vec<(JobId, InTurn)>,
    hets: BTreeMap<JobId, u32>,
    lines: BTreeMap<LineId, Vec<JobId>>,
    foreign: Vec<(Question, Reply)>,
    wanting: Vec<Arc<JobSpec>>,
    holding: Vec<Arc<JobSpec>>,
    grants: BTreeMap<JobId, Granted>,
    reservations: Vec<Reservation>,
    spent: BTreeMap<(Whose, Tres), Ledger>,
    leaving: BTreeMap<JobId, Alloc>,
    lost_ids: BTreeMap<JobId, JobId>,
    ids_began: Option<Time>,
    node_changes: BTreeMap<NodeId, NodeChange>,
    from_backup: Option<(Time, Epoch)>,
    cluster_version: ClusterVersion,
    rotated: Option<Box<ControllerKeys>>,
    pending: u64,
    active: u64,
    users: Users,
}

impl State {
    /// Returns all parts of the state, in the order that [`State::assemble`] needs.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let cluster = Cluster {
            epoch: self.epoch,
            version: self.version.clone(),
            config: Arc::clone(&self.config),
            partitions: self.partitions.clone(),
            nodes: self.nodes.clone(),
            last_id: self.last_id,
            forgotten_before: self.forgotten_before,
        };
        let (mut jobs, mut arrays) = (self.jobs.iter(), self.arrays.iter());
        let rows = std::iter::from_fn(move || {
            let jobs = jobs.by_ref().take(JOBS_PER_PART);
            let rows = Rows::of(jobs, arrays.by_ref().take(JOBS_PER_PART));
            (!rows.jobs.is_empty() || !rows.arrays.is_empty()).then_some(Part::Rows(rows))
        });
        let Self { policy, usage, .. } = self;
        let standing = (*policy != Policy::default()).then(|| {
            let (policy, ledger, graces) = (policy.clone(), Ledger::default(), BTreeMap::new());
            Part::Standing(Box::new(Standing { policy, ledger, graces }))
        });
        let reserved = self.reservations.values().cloned().collect::<Vec<_>>();
        let reserved = (!reserved.is_empty()).then_some(Part::Reservations(reserved));
        let gang: Vec<(JobId, InTurn)> = self.gang.iter().map(|(&id, &turn)| (id, turn)).collect();
        let gang = (!gang.is_empty()).then_some(Part::Gang(gang));
        let hets = (!self.hets.is_empty()).then(|| Part::Hets(self.hets.clone()));
        let lines = (!self.lines.is_empty()).then(|| Part::Lines(self.lines.clone()));
        let foreign: Vec<(Question, Reply)> = self.foreign.iter().map(|(q, reply)| (q.clone(), *reply)).collect();
        let foreign = (!foreign.is_empty()).then_some(Part::Foreign(foreign));
        let spent = (!usage.is_empty()).then(|| Part::Spent(usage.clone()));
        let rest = reserved.into_iter().chain(gang).chain(hets).chain(lines).chain(foreign).chain(spent);
        let lost = (!self.lost_ids.is_empty()).then(|| Part::LostIds(self.lost_ids.clone()));
        let changes = (!self.node_changes.is_empty()).then(|| Part::NodeChanges(self.node_changes.clone()));
        let restored = self.restored.map(|(time, epoch)| Part::Restored(time, epoch));
        let raised = (self.cluster_version != ClusterVersion::FIRST).then_some(Part::Version(self.cluster_version));
        let rest = rest.chain(lost).chain(self.ids_began.map(Part::IdsBegan)).chain(changes);
        let rest = rest.chain(restored).chain(raised).chain(self.keys.clone().map(Part::Keys));
        std::iter::once(Part::Cluster(Box::new(cluster))).chain(standing).chain(rows).chain(rest)
    }

    /// Makes a state from its restored parts, given in their order. None: the parts contradict each other.
    pub fn assemble(parts: impl IntoIterator<Item = Restored>) -> Option<Self> {
        let mut all = Restored::default();
        for part in parts {
            all.absorb(part)?;
        }
        let cluster = *all.cluster?;
        let named = cluster.nodes.iter().enumerate();
        let index = Index {
            names: named.map(|(at, node)| (node.name.clone(), NodeId(at as u32))).collect(),
            keys: all.keys.into_iter().collect(),
            ended: all.ended.into_iter().collect(),
            ended_arrays: all.ended_arrays.into_iter().collect(),
            pending: all.pending,
            active: all.active,
            users: all.users,
            ..Index::default()
        };
        let standing = all.standing.map(|standing| *standing);
        let (policy, ledger, graces) = standing.map_or_else(Default::default, |s| (s.policy, s.ledger, s.graces));
        let mut usage = all.spent;
        if ledger != Ledger::default() {
            usage.insert((Whose::Association, Tres::Cpu), ledger);
        }
        let mut jobs: ById<Box<Job>> = all.jobs.into_iter().collect();
        join(&mut jobs, graces, all.grants, all.leaving);
        let mut state = Self {
            policy,
            usage,
            lost_ids: all.lost_ids,
            ids_began: all.ids_began,
            node_changes: all.node_changes,
            restored: all.from_backup,
            epoch: cluster.epoch,
            version: cluster.version,
            cluster_version: all.cluster_version,
            keys: all.rotated,
            config: cluster.config,
            partitions: cluster.partitions,
            nodes: cluster.nodes,
            last_id: cluster.last_id,
            jobs,
            arrays: all.arrays.into_iter().collect(),
            gang: all.gang.into_iter().collect(),
            hets: all.hets,
            lines: all.lines,
            foreign: all.foreign.into_iter().collect(),
            forgotten_before: cluster.forgotten_before,
            reservations: all.reservations.into_iter().map(|one| (one.name.clone(), one)).collect(),
            index,
        };
        state.find_entries();
        state.note_removed();
        state.read_topology();
        state.count_gres();
        state.order_nodes();
        state.count_sleepers();
        state.count_faults();
        for spec in all.wanting {
            state.want(&spec);
        }
        for spec in all.holding {
            state.index.take_licenses(&spec);
        }
        state.retally();
        Some(state)
    }
}

/// Adds to the jobs the grace times, generic resources and returned nodes that early builds wrote in parts of their
/// own.
fn join(
    jobs: &mut ById<Box<Job>>,
    graces: BTreeMap<JobId, Time>,
    grants: BTreeMap<JobId, Granted>,
    leaving: BTreeMap<JobId, Alloc>,
) {
    for (id, until) in graces {
        // because parts are read one by one, and a damaged one may name a job that has no attempt
        let Some(run) = jobs.get_mut(&id).and_then(|job| job.run_mut()) else { continue };
        run.grace = Some(until);
    }
    for (id, alloc) in leaving {
        // because a damaged part may name a job that has no attempt
        let Some(run) = jobs.get_mut(&id).and_then(|job| job.run_mut()) else { continue };
        run.leaving = alloc;
    }
    for (id, Granted { job, steps }) in grants {
        // because a damaged part may name a job that has no attempt
        let Some(run) = jobs.get_mut(&id).and_then(|job| job.run_mut()) else { continue };
        run.gres = job;
        for (no, held) in steps {
            if let Some(step) = run.steps.get_mut(&no) {
                step.gres = Some(held);
            }
        }
    }
}

impl Rows {
    fn of<'a>(
        jobs: impl Iterator<Item = (&'a JobId, &'a Box<Job>)>,
        arrays: impl Iterator<Item = (&'a JobId, &'a Array)>,
    ) -> Self {
        let (mut owners, mut specs) = (Table::new(), Table::new());
        let jobs = jobs.map(|(&id, job)| JobRow {
            id,
            owner: owners.place(&job.owner),
            spec: specs.place(&job.spec),
            key: job.key,
            task: job.task,
            own_spec: job.own_spec,
            submit: job.submit,
            queue: job.queue,
            attempt: job.attempt,
            restarts: job.restarts,
            launch_failures: job.launch_failures,
            phase: job.phase.clone(),
            last: job.last.clone(),
            checkpoints: job.checkpoints.clone(),
        });
        let jobs = jobs.collect();
        let arrays = arrays.map(|(&id, array)| ArrayRow {
            id,
            owner: owners.place(&array.owner),
            spec: specs.place(&array.spec),
            tasks: Arc::clone(&array.tasks),
            key: array.key,
            submit: array.submit,
            queue: array.queue,
            limit: array.limit,
            tally: array.tally.clone(),
        });
        let arrays = arrays.collect();
        Self { owners: owners.values, specs: specs.values, jobs, arrays }
    }

    /// Restores the jobs and arrays of a part. None: an owner or spec is missing.
    fn restore(self) -> Option<Restored> {
        let Self { owners, specs, jobs, arrays } = self;
        let shared =
            |owner: u32, spec: u32| Some((owners.get(owner as usize)?.clone(), specs.get(spec as usize)?.clone()));
        let mut restored = Restored::default();
        restored.jobs.reserve(jobs.len());
        restored.keys.reserve(jobs.len());
        for row in jobs {
            let (owner, spec) = shared(row.owner, row.spec)?;
            let job = Job {
                owner,
                spec,
                key: row.key,
                task: row.task,
                own_spec: row.own_spec,
                submit: row.submit,
                queue: row.queue,
                attempt: row.attempt,
                restarts: row.restarts,
                launch_failures: row.launch_failures,
                phase: row.phase,
                last: row.last,
                checkpoints: row.checkpoints,
            };
            restored.job(row.id, job);
        }
        for row in arrays {
            let (owner, spec) = shared(row.owner, row.spec)?;
            let ArrayRow { id, tasks, key, submit, queue, limit, tally, .. } = row;
            restored.array(id, Array { owner, spec, tasks, key, submit, queue, limit, tally });
        }
        Some(restored)
    }
}

impl Part {
    /// Restores one part of a snapshot. None: it contradicts itself.
    pub fn restore(self) -> Option<Restored> {
        match self {
            Self::Standing(standing) => Some(Restored { standing: Some(standing), ..Restored::default() }),
            Self::Cluster(cluster) => Some(Restored { cluster: Some(cluster), ..Restored::default() }),
            Self::Rows(rows) => rows.restore(),
            Self::Reservations(reservations) => Some(Restored { reservations, ..Restored::default() }),
            Self::Grants(grants) => Some(Restored { grants, ..Restored::default() }),
            Self::Gang(gang) => Some(Restored { gang, ..Restored::default() }),
            Self::Hets(hets) => Some(Restored { hets, ..Restored::default() }),
            Self::Lines(lines) => Some(Restored { lines, ..Restored::default() }),
            Self::Foreign(foreign) => Some(Restored { foreign, ..Restored::default() }),
            Self::Spent(spent) => Some(Restored { spent, ..Restored::default() }),
            Self::Leaving(leaving) => Some(Restored { leaving, ..Restored::default() }),
            Self::LostIds(lost_ids) => Some(Restored { lost_ids, ..Restored::default() }),
            Self::IdsBegan(began) => Some(Restored { ids_began: Some(began), ..Restored::default() }),
            Self::NodeChanges(node_changes) => Some(Restored { node_changes, ..Restored::default() }),
            Self::Keys(keys) => Some(Restored { rotated: Some(keys), ..Restored::default() }),
            Self::Version(cluster_version) => Some(Restored { cluster_version, ..Restored::default() }),
            Self::Restored(time, epoch) => Some(Restored { from_backup: Some((time, epoch)), ..Restored::default() }),
        }
    }
}

impl Restored {
    fn job(&mut self, id: JobId, mut job: Job) {
        if let Phase::Ended(ended) = &mut job.phase
            && let Some(run) = &mut ended.run
        {
            // Snapshots of earlier versions still have the script.
            run.forget_script();
        }
        self.keys.extend(job.key.map(|key| ((job.owner.uid, key), id)));
        match &job.phase {
            Phase::Pending => self.pending += 1,
            Phase::Running(_) | Phase::Completing(..) | Phase::Leased(_) => {
                self.active += 1;
                self.holding.extend(job.spec.need.licenses.is_some().then(|| Arc::clone(&job.spec)));
            }
            Phase::Ended(end) => self.ended.push((end.time, id)),
        }
        self.users.change(job.owner.uid, |user| {
            user.jobs += u64::from(!job.is_ended());
            user.content += if job.task.is_none() { content_of(&job.spec) } else { 0 };
        });
        if job.spec.dependency.is_some() && job.has_own_wants() && !job.is_ended() {
            self.wanting.push(Arc::clone(&job.spec));
        }
        self.jobs.push((id, Box::new(job)));
    }

    fn array(&mut self, id: JobId, array: Array) {
        self.keys.push(((array.owner.uid, array.key), id));
        self.pending += array.tally.untouched.len() as u64;
        self.users.change(array.owner.uid, |user| {
            user.jobs += array.tally.untouched.len() as u64;
            user.content += content_of(&array.spec);
        });
        if array.is_ended() {
            self.ended_arrays.extend(array.tally.last_end.map(|time| (time, id)));
        } else if array.spec.dependency.is_some() {
            self.wanting.push(Arc::clone(&array.spec));
        }
        self.arrays.push((id, array));
    }

    /// Merges the next part into this one. None: a part of which a snapshot has only one came twice.
    fn absorb(&mut self, mut next: Self) -> Option<()> {
        if next.cluster.is_some() && self.cluster.is_some() || next.standing.is_some() && self.standing.is_some() {
            return None;
        }
        self.standing = self.standing.take().or(next.standing);
        self.cluster = self.cluster.take().or(next.cluster);
        self.jobs.append(&mut next.jobs);
        self.arrays.append(&mut next.arrays);
        self.gang.append(&mut next.gang);
        self.hets.append(&mut next.hets);
        self.lines.append(&mut next.lines);
        self.foreign.append(&mut next.foreign);
        self.spent.append(&mut next.spent);
        self.leaving.append(&mut next.leaving);
        self.lost_ids.append(&mut next.lost_ids);
        self.ids_began = self.ids_began.or(next.ids_began);
        self.node_changes.append(&mut next.node_changes);
        self.from_backup = self.from_backup.or(next.from_backup);
        self.cluster_version = self.cluster_version.max(next.cluster_version);
        self.rotated = next.rotated.or(self.rotated.take());
        self.keys.append(&mut next.keys);
        self.ended.append(&mut next.ended);
        self.ended_arrays.append(&mut next.ended_arrays);
        self.wanting.append(&mut next.wanting);
        self.holding.append(&mut next.holding);
        self.grants.append(&mut next.grants);
        self.reservations.append(&mut next.reservations);
        self.pending += next.pending;
        self.active += next.active;
        self.users.absorb(&next.users);
        Some(())
    }
}
