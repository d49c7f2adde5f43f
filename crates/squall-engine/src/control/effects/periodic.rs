//! When the controller checkpoints a job by itself (`sbatch --checkpoint`): first a trial, then each so many minutes, and at
//! last before the time limit, after which the job waits on disk until it is released with a longer limit.

use squall_model::checkpoint::{CheckpointPlan, best_interval};
use squall_model::fault::Fault;
use squall_model::id::JobId;
use squall_model::limits::{CHECKPOINT_BEFORE_LIMIT_S, CHECKPOINT_TRIAL_S};
use squall_model::time::{Span, Time};

use crate::control::controller::Controller;
use crate::control::index::facts;
use crate::control::index::timers::Timer;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase, Run};

/// Cost of a checkpoint of a job that has none yet, and the least cost: how long the job stands still.
const CHECKPOINT_COST: Span = Span::from_secs(1);
const CHECKPOINT_COST_LEAST: Span = Span::from_millis(100);
/// Time for which a node's fault counts for the interval of checkpoints: a month, a twelfth of a year.
const CHECKPOINT_FAULTS: Span = Span::from_secs(2_629_800);
/// The shortest and the longest interval that is chosen.
const CHECKPOINT_AUTO: (Span, Span) = (Span::from_secs(60), Span::from_secs(86_400));

/// Sets the timer of the next checkpoint of a running job. `after`: when its node answered last, and whether it refused;
/// None: not known.
pub(crate) fn arm(c: &mut Controller, id: JobId, after: Option<(Time, bool)>) {
    let job = c.state.jobs.get(&id).filter(|job| job.spec.options.get().is_some_and(|o| o.checkpoint.is_some()));
    // because most jobs have no such timer
    let Some(job) = job else { return };
    match next(&c.state, id, job, after) {
        Some(time) => c.timers.set(Timer::Checkpoint(id), time),
        None => c.timers.clear(Timer::Checkpoint(id)),
    }
}

/// Returns when a job is checkpointed next. None: it is not, or its processes stand still.
fn next(state: &State, id: JobId, job: &Job, after: Option<(Time, bool)>) -> Option<Time> {
    job.spec.options.get()?.checkpoint?;
    let Phase::Running(run) = &job.phase else { return None };
    if !state.works(id) || run.booting.is_some() {
        return None;
    }
    let last = job.checkpoints.as_ref().and_then(|all| Some(all.kept.last()?.time));
    let since = after.map(|(time, _)| time).or(last).unwrap_or(run.start).max(run.start);
    let trial = (after.is_none() && last.is_none()).then(|| run.start + Span::from_secs(CHECKPOINT_TRIAL_S));
    let each = interval(state, job, run).map(|interval| since + interval);
    // A node that has just refused it refuses it again.
    let refused = |leave: &Time| after.is_some_and(|(time, refused)| refused && *leave <= time);
    let leave = leaves(state, id, job, run).filter(|leave| !refused(leave));
    [trial, each, leave].into_iter().flatten().min()
}

/// Returns the time between two checkpoints of a running job. None: it is only checkpointed to leave its node.
pub(crate) fn interval(state: &State, job: &Job, run: &Run) -> Option<Span> {
    match job.spec.options.get()?.checkpoint?.every_s {
        0 => None,
        CheckpointPlan::AUTO_S => Some(chosen(state, job, run)),
        seconds => Some(Span::from_secs(seconds)),
    }
}

/// Returns the best interval by how long the job stood still for its last checkpoint, and by the recent faults of its
/// nodes. A node without any is taken to fail once a year.
fn chosen(state: &State, job: &Job, run: &Run) -> Span {
    let last = job.checkpoints.as_ref().and_then(|all| all.kept.last());
    let cost = last.map_or(CHECKPOINT_COST, |last| last.made.stood).max(CHECKPOINT_COST_LEAST);
    let nodes: Vec<_> = run.alloc.nodes().iter().filter_map(|node| state.node(node)).collect();
    let recent = |fault: &&Fault| fault.time + CHECKPOINT_FAULTS >= run.start;
    let faults = nodes.iter().flat_map(|node| &node.faults).filter(recent).count();
    // Twelve times the span in which faults count are a year.
    let between = 12 * CHECKPOINT_FAULTS.0 / (12 * faults + nodes.len()).max(1) as u64;
    let (least, most) = CHECKPOINT_AUTO;
    best_interval(cost, Span(between)).clamp(least, most)
}

/// Returns when a job leaves its node before its time limit. None: it has no limit, or a short one.
pub(crate) fn leaves(state: &State, id: JobId, job: &Job, run: &Run) -> Option<Time> {
    let (before, short) = (CHECKPOINT_BEFORE_LIMIT_S, 2 * CHECKPOINT_BEFORE_LIMIT_S);
    let end = facts::end_time(state, id, job, run).filter(|end| end.since(run.start) > Span::from_secs(short));
    end.map(|end| end - Span::from_secs(before))
}
