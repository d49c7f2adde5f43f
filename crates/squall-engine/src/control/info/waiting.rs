//! The reason and priority of pending jobs as users see them.

use squall_model::hostlist::expand_within;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, JobSpec, Owner, PendingReason};
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::index::lanes::request_of;
use crate::control::index::pending::partitions_of;
use crate::control::index::reckon::Standee;
use crate::control::index::view::Sight;
use crate::control::info::cluster::names;
use crate::control::state::job::{Hold, Job, Queue};
use crate::control::state::node::Partition;

/// A pending job, or the tasks of an array without a record of their own, for display.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits<'a> {
    /// The id of the job or array.
    pub(crate) id: JobId,
    /// The user who submitted the job or array.
    pub(crate) owner: &'a Owner,
    /// The specification of the job or array.
    pub(crate) spec: &'a JobSpec,
    /// Hold, priority and other settings that can change after the submission.
    pub(crate) queue: &'a Queue,
    /// Array and index, if the job is an array task.
    pub(crate) task: Option<ArrayTask>,
    /// The job; None: the entry is for tasks of an array without a record of their own.
    pub(crate) job: Option<&'a Job>,
}

/// Returns the priority of a job or array that users see, in the first partition that it names; 0: the job is held.
pub(crate) fn priority(c: &Controller, standee: &Standee<'_>, now: Time) -> u32 {
    let partition = partitions_of(&c.state, standee.spec).next().unwrap_or_default();
    match standee.standing.hold {
        Hold::No => c.queue.reckoning.priority(&c.state, standee, partition, now),
        _ => 0,
    }
}

/// Most nodes that a reason names. Lists of jobs are long, and the names are made for each job.
const NAMED_MAX: usize = 64;

/// Returns the first reason that keeps the job from running.
pub(crate) fn reason(c: &Controller, waits: &Waits<'_>, now: Time) -> PendingReason {
    match c.queue.reason(&c.state, now, waits.item()) {
        PendingReason::ReqNodeNotAvail => unavailable(c, waits.spec),
        PendingReason::None | PendingReason::Priority | PendingReason::Resources
            if waits.job.is_some_and(|job| job.restore().is_some()) =>
        {
            PendingReason::Checkpointed
        }
        // A pass does not look behind the first pending job for jobs that can never start.
        reason @ (PendingReason::None | PendingReason::Priority) => too_large(c, waits.spec, now).unwrap_or(reason),
        reason => reason,
    }
}

/// Returns why a job is too large for each of its partitions, as `squall why` does. None: one is large enough.
fn too_large(c: &Controller, spec: &JobSpec, now: Time) -> Option<PendingReason> {
    let need = &spec.need;
    let nodes = need.nodes_min.unwrap_or(1);
    let tasks = nodes.saturating_mul(need.ntasks_per_node.unwrap_or(1)).max(nodes).max(need.ntasks.unwrap_or(1));
    let cpus = u64::from(tasks) * u64::from(need.task_cpus());
    // Lists are long: a job that asks for no more CPUs than there are nodes is not looked at more closely.
    let is_small = |partition: &Partition| {
        cpus <= partition.nodes.len() as u64 && partition.config.max_nodes.is_none_or(|most| nodes <= most)
    };
    if c.state.partitions_of(spec).any(is_small) {
        return None;
    }
    let (request, sight) = (request_of(&c.state, spec)?, Sight { state: &c.state, queue: &c.queue, now });
    let all: Option<Vec<PendingReason>> =
        partitions_of(&c.state, spec).map(|at| squall_sched::too_large(&sight, &request, at)).collect();
    all?.into_iter().next()
}

/// Returns the reason of a job that waits for nodes where no job may start: with the names of those that it requests,
/// or of all in its partitions if it requests no such node.
fn unavailable(c: &Controller, spec: &JobSpec) -> PendingReason {
    let mut nodes = NodeSet::new();
    c.state.partitions_of(spec).for_each(|partition| nodes.union_with(&partition.nodes));
    nodes.subtract(&c.queue.reachable);
    let named = spec.need.nodelist.as_deref().and_then(|list| expand_within(list, c.state.nodes.len()).ok());
    let named = named.iter().flatten().filter_map(|name| c.state.node_id(name));
    let named: NodeSet = named.filter(|id| nodes.contains(*id)).collect();
    let shown = if named.is_empty() { nodes } else { named };
    if shown.is_empty() || shown.len() > NAMED_MAX {
        return PendingReason::ReqNodeNotAvail;
    }
    PendingReason::NodesNotAvail(names(&c.state, &shown))
}
