//! Facts about an allocation that its processes are given: nodes, CPUs, tasks, memory, end time.

use std::sync::Arc;

use squall_model::hostlist::HostList;
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobKind, JobSpec};
use squall_model::limits::OVER_TIME_UNLIMITED;
use squall_model::places::Changed;
use squall_model::policy::PreemptMode;
use squall_model::reservation::{Flag, Reservation};
use squall_model::runs::Runs;
use squall_model::set::NodeSet;
use squall_model::step::{Addresses, JobFacts};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;

use crate::control::index::elsewhere;
use crate::control::index::terms::terms;
use crate::control::state::State;
use crate::control::state::gang::InTurn;
use crate::control::state::job::{Job, Run};

/// Returns the facts about a job that holds resources, for its processes; None: the job holds none. The first component
/// of a heterogeneous job gets the facts about all components.
pub(crate) fn facts(state: &State, id: JobId) -> Option<JobFacts> {
    let mut facts = own_facts(state, id)?;
    if let Some(het) = state.het_of(id).filter(|het| het.leader == id) {
        facts.components = het.ids().filter_map(|id| own_facts(state, id)).collect();
    }
    Some(facts)
}

fn own_facts(state: &State, id: JobId) -> Option<JobFacts> {
    let job = state.jobs.get(&id)?;
    let run = job.run()?;
    let order = run.working_nodes();
    let ids: NodeSet = order.iter().copied().collect();
    let mut facts = JobFacts {
        key: StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH },
        array: job.task,
        owner: state.index.groups.of_now(&job.owner),
        spec: Arc::clone(&job.spec),
        partition: run.partition.clone(),
        account: job.spec.account.clone().unwrap_or_else(|| state.config.default_account.clone()),
        qos: job.spec.qos.clone().unwrap_or_else(|| state.config.default_qos.clone()),
        cluster: state.config.cluster.clone(),
        nodes: HostList::default(),
        cpus: Runs::new(),
        memory_mb: Runs::new(),
        tasks: Runs::new(),
        start: run.start,
        end: end_time(state, id, job, run),
        restarts: job.restarts,
        addresses: addresses(state, &order),
        ids,
        gres: run.gres.clone(),
        ganged: state.gang.contains_key(&id),
        components: Vec::new(),
        changed: None,
        restore: run.restore,
        inside: contains_steps(state, id, job, run).then_some(true),
        moved: elsewhere::moves(state, job, run),
    };
    for group in order.iter().filter_map(|node| run.alloc.on(*node)) {
        facts.cpus.push(group.cores.len() as u32);
        facts.memory_mb.push(group.memory_mb);
    }
    facts.nodes = order.iter().filter_map(|node| state.node(*node)).map(|node| &node.name).collect();
    facts.tasks = tasks_by_node(job, &facts.cpus, state.config.select_type_parameters.pack_nodes);
    if let Some(places) = &run.places {
        let order = if places.replaced.is_empty() { Vec::new() } else { order };
        let spares = places.spares.iter().filter_map(|node| state.node(node)).map(|node| &node.name).collect();
        facts.changed = Some(Box::new(Changed { order, spares }));
    }
    Some(facts)
}

/// Returns whether checkpoints of a job are to contain its steps: it asks for checkpoints, or is preempted by one.
pub(crate) fn contains_steps(state: &State, id: JobId, job: &Job, run: &Run) -> bool {
    if state.config.checkpoint_dir.is_empty() || state.cluster_version < ClusterVersion::CHECKPOINTS {
        return false;
    }
    let asks = job.spec.options.get().is_some_and(|options| options.checkpoint.is_some());
    let plain = job.spec.kind == JobKind::Batch && run.gres.is_empty() && run.places.is_none();
    plain && state.het_of(id).is_none() && (asks || terms(state, job, run).mode == PreemptMode::Checkpoint)
}

/// Returns when an attempt ends at the latest: by its time limit, the end of its reservation or its deadline. None: it
/// has none of these.
pub(crate) fn end_time(state: &State, id: JobId, job: &Job, run: &Run) -> Option<Time> {
    end_with(state, (id, job, run), Some(0), Some(0))
}

/// Returns when an attempt is ended: at its time limit and the time that partition or cluster give beyond it
/// (`OverTimeLimit`), or by its reservation (and `ResvOverRun`) or deadline. None: never.
pub(crate) fn kill_time(state: &State, id: JobId, job: &Job, run: &Run) -> Option<Time> {
    let of_partition = state.partition(&run.partition).and_then(|partition| partition.config.over_time_limit_min);
    let minutes = of_partition.unwrap_or(state.config.over_time_limit_min);
    let some = |minutes: u64| Some(minutes).filter(|minutes| *minutes < OVER_TIME_UNLIMITED);
    end_with(state, (id, job, run), some(minutes), some(state.config.resv_over_run_min))
}

/// Returns when an attempt ends if it may exceed its time limit and the end of its reservation by so many minutes. None
/// of them: without end.
fn end_with(
    state: &State,
    (id, job, run): (JobId, &Job, &Run),
    over_min: Option<u64>,
    resv_over_min: Option<u64>,
) -> Option<Time> {
    // What the job ran before its checkpoint counts.
    let before = run.restore.map_or(0, |restore| restore.ran.0);
    let limit =
        time_limit_s(state, job, &run.partition).map(|limit| Span(Span::from_secs(limit).0.saturating_sub(before)));
    let over = |limit: Span| over_min.map(|minutes| Span(limit.0.saturating_add(Span::from_secs(60 * minutes).0)));
    let end = limit.and_then(over).and_then(|limit| limit_end(state, id, run, limit));
    let reserved = reservation_end(state, &job.spec, run);
    let reserved = reserved.and_then(|end| Some(end + Span::from_secs(60 * resv_over_min?)));
    let others = [reserved, deadline_end(state, id, job, run)];
    end.into_iter().chain(others.into_iter().flatten()).min()
}

/// Returns when an attempt is ended by the job's deadline. As in Slurm, the deadline becomes a time limit once the job
/// runs, so time in which the job is suspended is added. None: the job has no deadline.
pub(crate) fn deadline_end(state: &State, id: JobId, job: &Job, run: &Run) -> Option<Time> {
    limit_end(state, id, run, job.spec.deadline?.since(run.start))
}

/// Returns when a job will have run for `limit`, if its time slices stay as they are. Only time in which the job runs
/// counts.
fn limit_end(state: &State, id: JobId, run: &Run, limit: Span) -> Option<Time> {
    let Some(InTurn { turn, since }) = state.gang.get(&id).filter(|place| place.turn.mask != 0) else {
        return Some(run.start + run.suspended_total + limit);
    };
    let ran = since.since(run.start + run.suspended_total);
    Some(*since + turn.stretch(Span(limit.0.saturating_sub(ran.0)))?)
}

/// Returns when the reservation in which a job runs ends the job; None: no reservation does.
fn reservation_end(state: &State, spec: &JobSpec, run: &Run) -> Option<Time> {
    let own = spec.reservations().filter_map(|name| state.reservations.get(name));
    own.filter(|one| !one.is(Flag::Flex) && runs_in(spec, run, one)).map(|one| one.end).min()
}

/// Returns whether a job runs in a reservation. The job must have named it: as the only one, or as one of several if
/// the job holds nodes of it.
pub(crate) fn runs_in(spec: &JobSpec, run: &Run, one: &Reservation) -> bool {
    let alone = spec.reservations().count() == 1;
    spec.reservations().any(|name| name == one.name) && (alone || !one.nodes.is_disjoint(&run.alloc.nodes()))
}

/// Returns the time limit of a job in a partition, seconds; None: unlimited.
pub(crate) fn time_limit_s(state: &State, job: &Job, partition: &str) -> Option<u64> {
    job.time_limit_s().unwrap_or_else(|| default_limit_s(state, partition))
}

/// Returns the time limit of a partition's jobs that set none, seconds; None: unlimited.
pub(crate) fn default_limit_s(state: &State, partition: &str) -> Option<u64> {
    let config = &state.partition(partition)?.config;
    config.default_time_s.or(config.max_time_s)
}

/// Returns the number of tasks on each node of the allocation. Tasks are dealt evenly as far as CPUs suffice, at least
/// one a node. A job that gives no number of tasks gets a task for each group of CPUs that a task needs, as in Slurm;
/// `mpirun` relies on it. `pack`: whether each node is filled before the next one.
fn tasks_by_node(job: &Job, cpus: &Runs<u32>, pack: bool) -> Runs<u32> {
    let need = &job.spec.need;
    let per_task = need.task_cpus();
    if need.ntasks.is_none() && need.ntasks_per_node.is_none() {
        return cpus.iter().map(|cpus| (cpus / per_task).max(1)).collect::<Vec<_>>().into();
    }
    let total = need.tasks_on(cpus.len() as u32);
    let most = |cpus: u32| {
        let fit = if need.overcommit { total } else { cpus / per_task };
        need.ntasks_per_node.map_or(fit, |most| fit.min(most)).max(1)
    };
    let most: Vec<u32> = cpus.iter().map(|&cpus| most(cpus)).collect();
    let deal = if pack { squall_sched::deal_in_turn } else { squall_sched::deal_evenly };
    let mut tasks = deal(total, &most);
    for count in &mut *tasks {
        *count = (*count).max(1);
    }
    if let Some(last) = tasks.last_mut() {
        let fits = most.iter().fold(0_u32, |sum, most| sum.saturating_add(*most));
        *last += total.saturating_sub(fits);
    }
    tasks.into()
}

/// Returns the topology addresses of the nodes of an allocation; empty if the network has no topology.
pub(crate) fn addresses(state: &State, nodes: &[NodeId]) -> Addresses {
    let topology = &state.index.topology;
    let mut found = Addresses::default();
    if topology.is_flat() {
        return found;
    }
    for node in nodes.iter().filter_map(|id| Some((*id, state.node(*id)?))) {
        let (address, pattern) = topology.address(node.0, &node.1.name);
        let above = address.strip_suffix(&node.1.name).unwrap_or_default().to_owned();
        found.above.push(above);
        found.pattern = pattern;
    }
    found
}
