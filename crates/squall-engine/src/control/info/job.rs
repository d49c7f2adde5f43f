//! Jobs as `squeue` and `scontrol` show them.

use crate::control::index::size::Size;
use crate::control::index::size::size;
use std::sync::Arc;

use squall_model::checkpoint::CheckpointInfo;
use squall_model::gres::{self, Grant, NodeGres};
use squall_model::hostlist::HostList;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{ArrayTask, JobSpec, JobState, Outcome, Owner, PendingReason};
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::{CoreSet, IndexSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_model::wire::info::{JobInfo, PlacesInfo, RunInfo, StepInfo};
use squall_sched::{Grain, Item};

use crate::control::controller::Controller;
use crate::control::index::facts;
use crate::control::index::page::{Class, Row};
use crate::control::index::reckon::Standee;
use crate::control::info::cluster::names;
use crate::control::info::silent;
use crate::control::info::waiting;
use crate::control::info::waiting::Waits;
use crate::control::state::State;
use crate::control::state::array::Array;
use crate::control::state::billing;
use crate::control::state::job::{Hold, Job, Phase, Queue, Run, Step};
use crate::dependency::dependency_status;

/// Returns the list row of a job, or of an array task that has a record of its own.
pub(crate) fn of_job<'a>(c: &'a Controller, id: JobId, job: &'a Job, with_steps: bool, now: Time) -> Row<'a> {
    let state = &c.state;
    let waits = Waits { id, owner: &job.owner, spec: &job.spec, queue: &job.queue, task: job.task, job: Some(job) };
    let mut row = waiting_row(c, &waits, (&job.spec, &job.owner), job.submit, job.is_pending(), now);
    let info = &mut row.info;
    info.array_limit = job.task.and_then(|task| state.arrays.get(&task.array)?.limit);
    info.state = job.shown_state();
    info.attempt = job.attempt;
    match job.queue.hold {
        Hold::No if job.is_leased() => {
            // The leased job waits for the jobs before it in its line on the node.
            info.reason = PendingReason::Resources;
        }
        // A hold of a running job takes effect when it is requeued.
        Hold::Admin if !job.is_ended() => info.reason = PendingReason::JobHeldAdmin,
        Hold::User if !job.is_ended() => info.reason = PendingReason::JobHeldUser,
        _ => {
            if let Phase::Running(run) = &job.phase
                && !silent::nodes(c, run).is_empty()
            {
                info.reason = PendingReason::NodeNotResponding;
            } else if let Phase::Running(run) = &job.phase
                && !run.vacant().is_empty()
            {
                info.reason = PendingReason::NodeToBeReplaced;
            }
        }
    }
    if let Some(run) = job.last_run() {
        let mut shown = show_run(state, info, run, job);
        if with_steps {
            shown.steps = run.steps.iter().map(|(&no, step)| step_info(state, no, step, run)).collect();
        }
        share_time(state, info, &mut shown, run, now);
        row.class.partition = &run.partition;
        info.run = Some(Box::new(shown));
    }
    if let Some(outcome) = job.outcome() {
        info.run.get_or_insert_default().outcome = Some(outcome.clone());
    }
    info.end = match &job.phase {
        Phase::Pending | Phase::Leased(_) => None,
        Phase::Running(run) => facts::end_time(state, id, job, run),
        Phase::Completing(_, ending) => Some(ending.time),
        Phase::Ended(ended) => Some(ended.time),
    };
    row
}

/// Shows a job outside of its gang scheduling time slice as suspended, and sets for how long the job has stood still,
/// which does not count as run time.
fn share_time(state: &State, info: &mut JobInfo, shown: &mut RunInfo, run: &Run, now: Time) {
    shown.idle = Span(run.suspended_total.0 + state.idle_since(info.id, now).0);
    let slice = state.config.scheduler_time_slice.0;
    let out_of_turn = || state.gang.get(&info.id).is_some_and(|place| !place.turn.runs_at(now, slice));
    if info.state == JobState::Running && out_of_turn() {
        info.state = JobState::Suspended;
        shown.suspended = Some(now);
    }
}

/// Returns the list row of array tasks that form one entry: pending tasks without a record of their own, or tasks that
/// ended in the same way without starting.
pub(crate) fn of_tasks<'a>(
    c: &'a Controller,
    id: JobId,
    array: &'a Array,
    tasks: IndexSet,
    ended: Option<(Outcome, Time)>,
    now: Time,
) -> Row<'a> {
    let waits = Waits { id, owner: &array.owner, spec: &array.spec, queue: &array.queue, task: None, job: None };
    let mut row = waiting_row(c, &waits, (&array.spec, &array.owner), array.submit, ended.is_none(), now);
    let info = &mut row.info;
    info.array_limit = array.limit;
    // As in Slurm, the last pending task is shown as a job of its own when others have started.
    let last = tasks.first().filter(|_| tasks.len() == 1 && ended.is_none() && array.tally.last_start.is_some());
    match last.and_then(|index| Some((index, array.task_id(id, index)?))) {
        Some((index, own)) => (info.id, info.task) = (own, Some(ArrayTask { array: id, index })),
        None => info.pending_tasks = Some(tasks),
    }
    if let Some((outcome, time)) = ended {
        info.state = JobState::Ended(outcome.state);
        info.run.get_or_insert_default().outcome = Some(outcome);
        info.end = Some(time);
    }
    row
}

/// Returns the list row of a job, array or task with everything that does not depend on a run.
fn waiting_row<'a>(
    c: &'a Controller,
    waits: &Waits<'_>,
    (spec, owner): (&'a Arc<JobSpec>, &'a Arc<Owner>),
    submit: Time,
    pending: bool,
    now: Time,
) -> Row<'a> {
    let state = &c.state;
    let partition = match (&spec.partition, state.default_partition()) {
        (Some(named), _) => named.as_str(),
        (None, Some(default)) => default.config.name.as_str(),
        (None, None) => "",
    };
    let class = Class {
        partition,
        account: spec.account.as_deref().unwrap_or(&state.config.default_account),
        qos: spec.qos.as_deref().unwrap_or(&state.config.default_qos),
    };
    let size = size(&spec.need, state.config.def_mem_per_cpu_mb);
    let nodes = if pending { likely_nodes(state, partition, spec, &size) } else { size.nodes };
    let dependency = if pending { open_dependency(c, waits, now) } else { String::new() };
    let first_partition = partition.split(',').next().unwrap_or_default();
    let reason = if pending { waiting::reason(c, waits, now) } else { PendingReason::None };
    let standee = Standee { id: waits.id, owner: waits.owner, spec, standing: waits.queue, submit };
    let asked = (nodes, size.tasks, size.cpus, size.memory_mb);
    let billing = if pending { billing::of_request(state, spec, first_partition, asked) } else { None };
    let weighed = waits.job.and_then(|job| job.last_run()).map_or(now, |run| run.start);
    let info = JobInfo {
        id: waits.id,
        task: waits.task,
        pending_tasks: None,
        array_limit: None,
        spec: 0,
        owner: 0,
        class: 0,
        state: JobState::Pending,
        attempt: Attempt(0),
        priority: waiting::priority(c, &standee, weighed),
        submit,
        eligible: eligible(waits, submit, !dependency.is_empty()),
        start: spec.begin.filter(|_| reason == PendingReason::BeginTime),
        reason,
        end: None,
        time_limit_s: limit_s(state, waits.queue, spec, first_partition),
        num_nodes: nodes,
        num_cpus: size.cpus,
        num_tasks: size.tasks,
        memory_mb: size.memory_mb,
        dependency,
        het: state.het_of(waits.id),
        run: None,
        restarts: waits.job.map_or(0, Job::shown_restarts),
        checkpoint: waits.job.and_then(|job| last_checkpoint(state, job)),
        billing,
    };
    Row { info, spec, owner, class }
}

/// Returns a job's last checkpoint as users see it. None: it never had one.
fn last_checkpoint(state: &State, job: &Job) -> Option<Box<CheckpointInfo>> {
    let all = job.checkpoints.as_ref()?;
    let mut info = CheckpointInfo { number: all.last, failed: all.failed.clone(), ..CheckpointInfo::default() };
    info.refused.clone_from(&all.refused);
    if let Some(last) = all.kept.last() {
        let names =
            last.holders().iter().filter_map(|node| state.node(node)).map(|node| &node.name).collect::<HostList>();
        names.as_str().clone_into(&mut info.node);
        (info.number, info.time, info.made) = (last.number, Some(last.time), last.made);
    }
    Some(Box::new(info))
}

/// Returns since when a job could run. As in Slurm that is unknown (time 0) for a held job that was never released, and
/// for a job that waits for a dependency.
fn eligible(waits: &Waits<'_>, submit: Time, depends: bool) -> Time {
    let since = match waits.queue {
        _ if depends => return Time::default(),
        _ if !waits.spec.is_held() => submit,
        Queue { released: Some(released), .. } => *released,
        Queue { hold: Hold::No, .. } => submit,
        _ => return Time::default(),
    };
    waits.spec.begin.max(waits.queue.independent).map_or(since, |later| later.max(since))
}

fn limit_s(state: &State, queue: &Queue, spec: &JobSpec, partition: &str) -> Option<u64> {
    let set = queue.time_limit_s.or(spec.limit_s());
    set.unwrap_or_else(|| facts::default_limit_s(state, partition))
}

fn open_dependency(c: &Controller, waits: &Waits<'_>, now: Time) -> String {
    let Some(dependency) = &waits.spec.dependency else { return String::new() };
    let is_array = |id| c.state.arrays.contains_key(&id);
    dependency_status(dependency, c.queue.open_terms(&c.state, now, waits.item()), is_array)
}

/// Estimates on how many nodes a job's tasks and GPUs fit, by the hardware of the first node of its partition. Of a
/// range of node counts the highest one is taken. Lists call it for each pending job, so it looks at no other node.
fn likely_nodes(state: &State, partition: &str, spec: &JobSpec, size: &Size) -> u32 {
    let need = &spec.need;
    let first = partition.split(',').next().unwrap_or_default();
    if let Some(most) = need.nodes_max.filter(|most| *most > size.nodes) {
        let there = state.partition(first).map_or(most, |partition| partition.nodes.len() as u32);
        return most.min(need.ntasks.unwrap_or(most)).min(there).max(size.nodes);
    }
    let gpus = spec.options.get().and_then(|options| options.gpus.total.as_ref()?.count()).unwrap_or(0);
    if gpus == 0 && (need.overcommit || need.ntasks_per_node.is_some() || size.tasks <= size.nodes) {
        return size.nodes;
    }
    let nodes = || state.partition(first).into_iter().flat_map(|partition| partition.nodes.iter());
    let has = nodes().next().filter(|_| gpus > 0).and_then(|id| state.index.gres.get(&id)).map(NodeGres::whole);
    let has: u32 =
        has.iter().flatten().filter(|count| count.name == "gpu").fold(0, |sum, count| sum.saturating_add(count.count));
    let least = if has > 0 { size.nodes.max(gpus.div_ceil(has)) } else { size.nodes };
    let cpus = nodes().filter_map(|id| state.node(id)).map(|node| node.hardware.cpus).find(|cpus| *cpus > 0);
    let each = cpus.unwrap_or(u32::MAX) / need.task_cpus();
    let wanted = size.tasks.div_ceil(each.max(1));
    wanted.min(need.nodes_max.unwrap_or(u32::MAX)).max(least)
}

fn show_run(state: &State, info: &mut JobInfo, run: &Run, job: &Job) -> RunInfo {
    let nodes: NodeSet = run.working_nodes().into_iter().collect();
    info.start = Some(run.start);
    // As in Slurm, a deadline is a time limit once the job runs.
    let until_deadline = job.spec.deadline.map(|deadline| deadline.since(run.start).secs());
    info.time_limit_s = facts::time_limit_s(state, job, &run.partition).into_iter().chain(until_deadline).min();
    info.num_nodes = nodes.len() as u32;
    info.num_cpus = run.alloc.cpus();
    info.billing = run.billing;
    info.num_tasks = job.spec.need.tasks_on(info.num_nodes);
    info.memory_mb = run.alloc.memory_mb();
    let granted = &run.gres[..];
    let parts = alike(&run.alloc, granted);
    let (mut per_node, mut gres) = (Vec::new(), Vec::new());
    for (nodes, group) in &parts {
        let hosts = names(state, nodes);
        let has = nodes.first().and_then(|first| Some((first, state.index.gres.get(&first)?)));
        let words = has.map(|(first, has)| has.held_texts(&gres::on_node(granted, first))).unwrap_or_default();
        gres.extend(words.into_iter().map(|word| (hosts.clone(), word)));
        let unit = state.config.select_type_parameters.unit;
        let node = nodes.first().and_then(|first| state.node(first));
        let grain = node.map_or(Grain::CPU, |node| Grain::of(unit, &node.hardware));
        per_node.push((hosts, core_list(&grain.core_by_core(&group.cores)), group.memory_mb));
    }
    RunInfo {
        outcome: None,
        derived_exit: run.derived_exit(),
        suspended: run.suspended,
        idle: Span(0),
        nodes: names(state, &nodes),
        batch_host: run.batch_node().and_then(|id| state.node(id)).map(|node| node.name.clone()).unwrap_or_default(),
        per_node,
        gres,
        steps: Vec::new(),
        places: run.places.as_ref().map(|places| {
            let vacant: NodeSet = places.vacant.iter().map(|one| one.lost).collect();
            Box::new(PlacesInfo { spares: names(state, &places.spares), vacant: names(state, &vacant) })
        }),
        progress: run.progress.as_ref().map(|(_, text)| text.clone()),
    }
}

/// Returns the sets of nodes on which a job holds the same cores, memory and devices, in the order of nodes, with that
/// part of the allocation.
fn alike<'a>(alloc: &'a Alloc, granted: &[Grant]) -> Vec<(NodeSet, &'a AllocGroup)> {
    let mut parts: Vec<(NodeSet, &AllocGroup)> = Vec::new();
    for group in &alloc.groups {
        let mut of_group = vec![group.nodes.clone()];
        for grant in granted {
            let split = |nodes: NodeSet| {
                let (with, mut without) = (nodes.intersection(&grant.nodes), nodes);
                without.subtract(&with);
                [with, without]
            };
            of_group = of_group.into_iter().flat_map(split).filter(|nodes| !nodes.is_empty()).collect();
        }
        parts.extend(of_group.into_iter().map(|nodes| (nodes, group)));
    }
    parts.sort_by_key(|(nodes, _)| nodes.first());
    parts
}

/// Formats cores as ranges such as `0-3,6`.
fn core_list(cores: &CoreSet) -> String {
    cores.iter().map(|core| core as u32).collect::<IndexSet>().to_string()
}

fn step_info(state: &State, no: StepNo, step: &Step, run: &Run) -> StepInfo {
    let nodes = step.alloc.nodes();
    let shares = step.alloc.groups.iter().flat_map(|group| group.nodes.iter().map(move |node| (node, group)));
    let cpus = |(node, group): (_, &AllocGroup)| {
        let own = group.cores.len();
        if own > 0 { own } else { run.alloc.on(node).map_or(0, |held| held.cores.len()) }
    };
    StepInfo {
        step: no,
        name: if no == StepNo::BATCH { "batch".to_owned() } else { step.spec.name.clone() },
        nodes: names(state, &nodes),
        num_nodes: nodes.len() as u32,
        num_cpus: shares.map(cpus).sum::<usize>() as u32,
        num_tasks: step.layout.ntasks().max(1),
        memory_mb: match step.alloc.memory_mb() {
            0 => nodes.iter().filter_map(|node| run.alloc.on(node)).map(|held| held.memory_mb).sum(),
            own => own,
        },
        start: step.start,
        time_limit_s: step.spec.time_limit_s,
        end: step.ended.clone(),
        ports: step.layout.ports.clone(),
        cpu_freq: step.spec.cpu_freq.clone(),
        tres_per_node: step.spec.tres_per_node.clone(),
    }
}

impl Waits<'_> {
    /// Returns the queue entry of this pending job or array.
    pub(crate) fn item(&self) -> Item {
        Item { id: self.id, array: self.job.is_none() }
    }
}
