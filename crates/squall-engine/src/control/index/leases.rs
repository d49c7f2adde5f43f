//! Running jobs with a line on the node that can take more leased jobs, and whether jobs may be leased at all.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::gres;
use squall_model::id::JobId;
use squall_model::job::{JobKind, JobSpec};
use squall_model::policy::PreemptType;

use crate::control::index::facts;
use crate::control::state::job::Hold;
use crate::control::state::node::Partition;
use crate::control::state::{LineId, State};

/// Running jobs with a line that can take more leased jobs. A line is a list of jobs that a node runs one
/// after the other on the same cores. Derived from the state.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Whether any partition allows leases (`lease_jobs` above 0).
    pub(crate) any: bool,
    /// Running jobs behind which more jobs can be leased: position of the job's partition, number of jobs leased behind
    /// it, and its id. So in a partition the job with the fewest behind comes first.
    pub(crate) room: BTreeSet<(usize, u32, JobId)>,
    /// The entries of `room` by job: position of the partition, and number of jobs leased behind the job.
    pub(crate) of: BTreeMap<JobId, (usize, u32)>,
    /// The job at the head of the line that the current event makes shorter.
    pub(crate) leader: Option<JobId>,
}

impl Leases {
    /// Updates the entry of a running job: how many jobs are leased behind it, and whether more can be.
    pub(crate) fn look(&mut self, state: &State, id: JobId) {
        if !self.any {
            return;
        }
        if let Some((at, behind)) = self.of.remove(&id) {
            self.room.remove(&(at, behind, id));
        }
        if let Some((at, behind)) = room_behind(state, id) {
            self.of.insert(id, (at, behind));
            self.room.insert((at, behind, id));
        }
    }

    /// Rebuilds the entries of all jobs from the state.
    pub(crate) fn rebuild(&mut self, state: &State) {
        let any = state.partitions.iter().any(|partition| partition.config.lease_jobs > 0);
        *self = Self { any, ..Self::default() };
        if any {
            state.jobs.keys().for_each(|id| self.look(state, *id));
        }
    }
}

/// Returns the position of a running job's partition and the number of jobs leased behind the job. None: no more jobs
/// may be leased behind it.
pub(crate) fn room_behind(state: &State, id: JobId) -> Option<(usize, u32)> {
    let job = state.jobs.get(&id).filter(|job| job.is_running() && is_plain(&job.spec))?;
    let run = job.run()?;
    let at = state.partitions.iter().position(|partition| partition.config.name == run.partition)?;
    let most = state.partitions[at].config.lease_jobs;
    // A job that waits for its node to be powered up is not known there, so no other can wait behind it.
    if most == 0
        || run.booting.is_some()
        || state.gang.contains_key(&id)
        || facts::time_limit_s(state, job, &run.partition).is_none()
    {
        return None;
    }
    let line = state.lines.get(&LineId::of(&run.alloc)?);
    let behind = line.map_or(0, |members| members.len() as u32 - 1);
    (behind < most).then_some((at, behind))
}

/// Returns whether a job needs only cores and memory of one node, and has no reservation, deadline or dependency. Only
/// such jobs are leased.
pub(crate) fn is_plain(spec: &JobSpec) -> bool {
    let need = &spec.need;
    let shares = need.exclusive || need.oversubscribe || need.licenses.is_some();
    let apart = spec.reservation.is_some() || spec.deadline.is_some() || spec.dependency.is_some();
    let gres = gres::Ask::of_job(spec) != Some(gres::Ask::default());
    let fenced = spec.options.get().is_some_and(|options| options.node_fence_s.is_some());
    spec.kind == JobKind::Batch && !shares && !apart && !gres && !fenced
}

/// Returns whether jobs of a partition may be leased to nodes under the current configuration. They may not if jobs
/// share cores or can be preempted, if the partition keeps spare nodes, or if there are reservations.
pub(crate) fn may_lend(state: &State, partition: &Partition) -> bool {
    let shares = partition.config.oversubscribe.rows(true) > 1 || state.config.preempt_type != PreemptType::None;
    let spares = partition.config.spare_nodes.is_some_and(|count| count > 0);
    partition.config.lease_jobs > 0 && partition.starts_jobs() && !shares && !spares && state.reservations.is_empty()
}

/// Returns the line to which a job that holds resources belongs, by node and first core. None: there are no
/// lines, or the job has more than one node.
pub(crate) fn line_of(state: &State, id: JobId) -> Option<LineId> {
    if state.lines.is_empty() { None } else { LineId::of(&state.jobs.get(&id)?.run()?.alloc) }
}

/// Returns whether a leased job should be recalled from its node: the job is held, or its node or partition no longer
/// allows it to start.
pub(crate) fn is_unwanted(state: &State, id: JobId) -> bool {
    let Some(job) = state.jobs.get(&id) else { return false };
    let Some((run, node)) = job.run().and_then(|run| Some((run, state.node(run.batch_node()?)?))) else { return false };
    let held = job.queue.hold != Hold::No;
    held || !node.usable() || state.partition(&run.partition).is_none_or(|partition| !may_lend(state, partition))
}
