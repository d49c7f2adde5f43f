//! Jobs as `squeue` and `scontrol` show them.

use squall_model::gres::{self, Grant};
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{ExitCode, JobSpec, JobState, Need, Outcome, PendingReason};
use squall_model::resource::Memory;
use squall_model::set::{CoreSet, IndexSet};
use squall_model::time::{Span, Time};
use squall_model::wire::info::{JobInfo, StepInfo};
use squall_sched::Item;

use super::cluster::names;
use super::waiting::{self, Waits};
use crate::control::Controller;
use crate::control::drive::reckon::Standee;
use crate::control::facts;
use crate::control::state::State;
use crate::control::state::array::Array;
use crate::control::state::job::{Hold, Job, Phase, Queue, Run, Step};
use crate::dependency::dependency_status;

/// A job of its own.
pub(crate) fn of_job(c: &Controller, id: JobId, job: &Job, with_steps: bool, now: Time) -> JobInfo {
    let state = &c.state;
    let waits = Waits { id, owner: &job.owner, spec: &job.spec, queue: &job.queue, task: job.task, job: Some(job) };
    let mut info = waiting_info(c, &waits, job.submit, job.is_pending(), now);
    info.array_limit = job.task.and_then(|task| state.arrays.get(&task.array)?.limit);
    info.state = job.state();
    info.outcome = job.outcome().cloned();
    info.attempt = job.attempt;
    if job.is_leased() {
        // For those who run in its place, on its node.
        info.reason = PendingReason::Resources;
    }
    if let Some(run) = job.last_run() {
        show_run(state, &mut info, run, job);
        if with_steps {
            info.steps = run.steps.iter().map(|(&no, step)| step_info(state, no, step, run)).collect();
        }
    }
    share_time(state, &mut info, id, job, now);
    info.end = match &job.phase {
        Phase::Pending | Phase::Leased(_) => None,
        Phase::Running(run) => facts::end_time(state, id, job, run),
        Phase::Completing(_, ending) => Some(ending.time),
        Phase::Ended(ended) => Some(ended.time),
    };
    info
}

/// Who is out of turn is suspended for now, and time in which it did not run is not time that it used.
fn share_time(state: &State, info: &mut JobInfo, id: JobId, job: &Job, now: Time) {
    let Some(run) = job.last_run() else { return };
    info.idle = Span(run.suspended_total.0 + state.idle_since(id, now).0);
    let slice = state.config.scheduler_time_slice.0;
    if info.state == JobState::Running && state.gang.get(&id).is_some_and(|place| !place.turn.runs_at(now, slice)) {
        info.state = JobState::Suspended;
        info.suspended = Some(now);
    }
}

/// Tasks of an array as one entry: that nothing happened to yet, or that ended alike without starting.
pub(crate) fn of_tasks(
    c: &Controller,
    id: JobId,
    array: &Array,
    tasks: IndexSet,
    ended: Option<(Outcome, Time)>,
    now: Time,
) -> JobInfo {
    let waits = Waits { id, owner: &array.owner, spec: &array.spec, queue: &array.queue, task: None, job: None };
    let mut info = waiting_info(c, &waits, array.submit, ended.is_none(), now);
    info.pending_tasks = Some(tasks);
    info.array_limit = array.limit;
    if let Some((outcome, time)) = ended {
        info.state = JobState::Ended(outcome.state);
        info.outcome = Some(outcome);
        info.end = Some(time);
    }
    info
}

/// What can be said of any job; all that it holds is left empty.
fn waiting_info(c: &Controller, waits: &Waits<'_>, submit: Time, pending: bool, now: Time) -> JobInfo {
    let (state, spec) = (&c.state, waits.spec);
    let partition = match (&spec.partition, state.default_partition()) {
        (Some(named), _) => named.clone(),
        (None, Some(default)) => default.config.name.clone(),
        (None, None) => String::new(),
    };
    let size = size(&spec.need, state.config.def_mem_per_cpu_mb);
    let dependency = if pending { open_dependency(c, waits, now) } else { String::new() };
    let first_partition = partition.split(',').next().unwrap_or_default();
    let reason = if pending { waiting::reason(c, waits, now) } else { PendingReason::None };
    let standee = Standee { id: waits.id, owner: waits.owner, spec, standing: waits.queue, submit };
    let weighed = waits.job.and_then(|job| job.last_run()).map_or(now, |run| run.start);
    JobInfo {
        id: waits.id,
        task: waits.task,
        pending_tasks: None,
        array_limit: None,
        spec: 0,
        owner: 0,
        state: JobState::Pending,
        outcome: None,
        derived_exit: ExitCode::OK,
        attempt: Attempt(0),
        priority: waiting::priority(c, &standee, weighed),
        account: spec.account.clone().unwrap_or_else(|| state.config.default_account.clone()),
        qos: spec.qos.clone().unwrap_or_else(|| state.config.default_qos.clone()),
        submit,
        eligible: eligible(waits, submit, !dependency.is_empty()),
        start: spec.begin.filter(|_| reason == PendingReason::BeginTime),
        reason,
        end: None,
        suspended: None,
        idle: Span(0),
        time_limit_s: limit_s(state, waits.queue, spec, first_partition),
        partition,
        nodes: String::new(),
        batch_host: String::new(),
        num_nodes: size.nodes,
        num_cpus: size.cpus,
        num_tasks: size.tasks,
        memory_mb: size.memory_mb,
        per_node: Vec::new(),
        dependency,
        steps: Vec::new(),
        gres: Vec::new(),
        het: state.het_of(waits.id),
    }
}

/// As Slurm: not known while a job is held that never was released, or waits for others.
fn eligible(waits: &Waits<'_>, submit: Time, depends: bool) -> Time {
    let since = match waits.queue {
        _ if depends => return Time::default(),
        _ if !waits.spec.is_held() => submit,
        Queue { released: Some(released), .. } => *released,
        Queue { hold: Hold::No, .. } => submit,
        _ => return Time::default(),
    };
    waits.spec.begin.map_or(since, |begin| begin.max(since))
}

fn limit_s(state: &State, queue: &Queue, spec: &JobSpec, partition: &str) -> Option<u64> {
    let set = queue.time_limit_s.or(spec.limit_s());
    set.unwrap_or_else(|| facts::default_limit_s(state, partition))
}

fn open_dependency(c: &Controller, waits: &Waits<'_>, now: Time) -> String {
    let Some(dependency) = &waits.spec.dependency else { return String::new() };
    dependency_status(dependency, c.queue.open_terms(&c.state, now, waits.item()))
}

/// What a job will take at least.
pub(crate) struct Size {
    /// Nodes.
    pub(crate) nodes: u32,
    /// Tasks.
    pub(crate) tasks: u32,
    /// CPUs.
    pub(crate) cpus: u32,
    /// Memory over all nodes, MiB.
    pub(crate) memory_mb: u64,
}

/// What a need comes to.
pub(crate) fn size(need: &Need, default_mb_per_cpu: u64) -> Size {
    let tasks_per_node = need.ntasks_per_node.filter(|n| *n > 0);
    let by_tasks = match (need.ntasks, tasks_per_node) {
        (Some(tasks), Some(per_node)) => tasks.div_ceil(per_node),
        _ => 1,
    };
    let nodes = need.nodes_min.unwrap_or(by_tasks).max(1);
    let tasks = need.tasks_on(nodes);
    let cpus = tasks.saturating_mul(need.task_cpus()).max(nodes.saturating_mul(need.cpus_min.unwrap_or(1)));
    let cpus = if need.overcommit { nodes.max(need.task_cpus()) } else { cpus };
    let memory_mb = match need.memory {
        Memory::PerNodeMb(mb) => mb.saturating_mul(u64::from(nodes)),
        Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(cpus)),
        Memory::Unset => default_mb_per_cpu.saturating_mul(u64::from(cpus)),
    };
    Size { nodes, tasks, cpus, memory_mb }
}

fn show_run(state: &State, info: &mut JobInfo, run: &Run, job: &Job) {
    let nodes = run.alloc.nodes();
    info.derived_exit = run.derived_exit();
    info.partition.clone_from(&run.partition);
    info.start = Some(run.start);
    info.suspended = run.suspended;
    // As Slurm has it, a deadline is a limit once the job runs.
    let until_deadline = job.spec.deadline.map(|deadline| deadline.since(run.start).secs());
    info.time_limit_s = facts::time_limit_s(state, job, &run.partition).into_iter().chain(until_deadline).min();
    info.batch_host = run.batch_node().and_then(|id| state.node(id)).map(|node| node.name.clone()).unwrap_or_default();
    info.num_nodes = nodes.len() as u32;
    info.num_cpus = run.alloc.cpus();
    info.num_tasks = job.spec.need.tasks_on(info.num_nodes);
    info.memory_mb = run.alloc.memory_mb();
    let group = |group: &squall_model::resource::AllocGroup| {
        (names(state, &group.nodes), core_list(&group.cores), group.memory_mb)
    };
    info.per_node = run.alloc.groups.iter().map(group).collect();
    info.nodes = names(state, &nodes);
    let of_grant = |grant: &Grant| {
        let devices = format!("{}:{}(IDX:{})", grant.name, grant.indices.len(), gres::index_text(&grant.indices));
        (names(state, &grant.nodes.intersection(&nodes)), devices)
    };
    let granted = state.grants.get(&info.id);
    let here = |grant: &&Grant| !grant.nodes.is_disjoint(&nodes);
    info.gres = granted.iter().flat_map(|granted| &granted.job).filter(here).map(of_grant).collect();
}

/// `0-3,6`.
fn core_list(cores: &CoreSet) -> String {
    cores.iter().map(|core| core as u32).collect::<IndexSet>().to_string()
}

fn step_info(state: &State, no: StepNo, step: &Step, run: &Run) -> StepInfo {
    let nodes = step.alloc.nodes();
    let shares = step.alloc.groups.iter().flat_map(|group| group.nodes.iter().map(move |node| (node, group)));
    let cpus = |(node, group): (_, &squall_model::resource::AllocGroup)| {
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
        start: step.start,
        time_limit_s: step.spec.time_limit_s,
        end: step.ended.clone(),
    }
}

impl Waits<'_> {
    /// As it stands in the queue.
    pub(crate) fn item(&self) -> Item {
        Item { id: self.id, array: self.job.is_none() }
    }
}
