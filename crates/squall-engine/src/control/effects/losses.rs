//! Nodes that cost running jobs work: they are recorded, and the time lost is counted.

use squall_model::cost::{Loss, LostTime};
use squall_model::event::Event;
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::time::Time;
use squall_model::version::ClusterVersion;

use crate::control::controller::Controller;
use crate::control::port::Out;
use crate::invariant::invariant;

/// Records that work of a running job stops because the job has lost a node, which was last heard at `heard`. `steps` are
/// those that stop; None: the whole job does.
pub(crate) fn note(
    c: &mut Controller,
    now: Time,
    (id, node): (JobId, NodeId),
    (heard, steps): (Time, Option<&[StepNo]>),
    out: &mut Out,
) {
    // because other controllers may be too old for the event
    if c.state.cluster_version < ClusterVersion::NODES_REPLACED {
        return;
    }
    let Some((job, run)) = c.state.jobs.get(&id).and_then(|job| Some((job, job.run()?))) else {
        return invariant!("a job that loses a node runs");
    };
    let of_steps = steps.and_then(|steps| steps.iter().filter_map(|no| run.steps.get(no)).map(|step| step.start).min());
    let since = of_steps.unwrap_or(run.start);
    let kept = run.progress.as_ref().map_or(since, |(time, _)| since.max(*time));
    let (attempt, kept) = (job.attempt, kept.min(now));
    // because each step on the node reports its end
    if c.losses.get(&id).is_some_and(|losing| losing.tells(node, kept)) {
        return;
    }
    c.commit(now, Event::NodeLost { id, attempt, node, heard: heard.min(now), kept }, out);
}

/// Counts what jobs lose with their nodes.
pub(crate) fn after(c: &mut Controller, now: Time, event: &Event) {
    match event {
        Event::NodeLost { id, node, heard, kept, .. } => {
            c.diag.nodes_lost += 1;
            let loss = Loss { kept: *kept, heard: *heard, lost: now, replaced: None, again: None };
            let losing = c.losses.entry(*id).or_default();
            losing.nodes.push(*node);
            losing.all.push(loss);
        }
        Event::NodeReplaced { id, .. } => {
            let all = c.losses.get_mut(id).map(|losing| &mut losing.all);
            let open = |loss: &&mut Loss| loss.replaced.is_none() && loss.again.is_none();
            let first = all.and_then(|all| all.iter_mut().find(open));
            if let Some(loss) = first {
                loss.replaced = Some(now);
            }
        }
        Event::StepStarted { job, step, .. } if *step != StepNo::BATCH => count(c, now, *job),
        Event::JobEnding { id, .. } => {
            count(c, now, *id);
            c.losses.remove(id);
        }
        _ => {}
    }
}

/// Counts what a job has lost until its work starts again, or ends.
fn count(c: &mut Controller, now: Time, id: JobId) {
    // because most jobs lose no node
    let Some(losing) = c.losses.get_mut(&id) else { return };
    for loss in &mut losing.all {
        loss.again.get_or_insert(now);
    }
    let lost = LostTime::until(now, &losing.all);
    c.diag.lost = c.diag.lost.plus(&lost.since(&losing.counted));
    losing.counted = lost;
}
