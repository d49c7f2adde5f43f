//! `scontrol checkpoint` and `scontrol suspend --to-disk`.

use squall_model::checkpoint::{CheckpointOrder, CheckpointVerb};
use squall_model::event::{Event, Requeue};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, Outcome};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::index::waits::Ordered;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Hold, Job, Phase, Run};

/// Orders a checkpoint of a running job, which is answered when it counts, or has a job go on from its last one.
pub(crate) fn checkpoint(c: &mut Controller, ask: &Ask<'_>, id: JobId, verb: CheckpointVerb, out: &mut Out) -> Reply {
    if verb == CheckpointVerb::Restart {
        let event = restart(&c.state, id)?;
        c.commit(ask.now, event, out);
        return Ok(Some(Answer::Done));
    }
    if c.waits.checkpoints.contains_key(&id) {
        return Err(wrong("another checkpoint of the job is being made: wait for it"));
    }
    let (node, order) = order(&c.state, id, verb)?;
    c.links.push(node, Down::Checkpoint(Box::new(order.clone())));
    c.waits.checkpoints.insert(id, Ordered { caller: ask.caller, node, order });
    Ok(None)
}

fn wrong(why: impl Into<String>) -> Refusal {
    Refusal::WrongState(why.into())
}

/// Returns the order to the job's node, or why the job can't be checkpointed. What only the node knows it says itself.
fn order(state: &State, id: JobId, verb: CheckpointVerb) -> Result<(NodeId, CheckpointOrder), Refusal> {
    let job = state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let run = match &job.phase {
        Phase::Running(run) if !run.configures() => run,
        Phase::Running(_) | Phase::Pending | Phase::Leased(_) => return Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
    };
    if state.cluster_version < ClusterVersion::CHECKPOINTS {
        return Err(wrong("jobs are checkpointed from version 3 of the cluster on: scontrol upgrade"));
    }
    if state.config.checkpoint_dir.is_empty() {
        return Err(wrong("the cluster has no folder for checkpoints: set checkpoint_dir in squall.toml"));
    }
    let node = fits(state, id, job, run).map_err(wrong)?;
    let all = job.checkpoints.as_deref();
    let order = CheckpointOrder {
        job: JobAttempt { job: id, attempt: job.attempt },
        number: all.map_or(0, |all| all.last) + 1,
        verb,
        kept: all.iter().flat_map(|all| &all.kept).map(|one| one.number).collect(),
    };
    Ok((node, order))
}

/// Returns the node of a job that is of a kind which can be checkpointed, or why it is not.
fn fits(state: &State, id: JobId, job: &Job, run: &Run) -> Result<NodeId, String> {
    if job.spec.kind != JobKind::Batch {
        return Err("only batch jobs are checkpointed".into());
    }
    let nodes = run.alloc.nodes();
    let only = nodes.first().filter(|_| nodes.len() == 1 && run.places.is_none() && state.het_of(id).is_none());
    let Some(node) = only else {
        return Err("jobs with several nodes or components are not checkpointed yet".into());
    };
    if !run.gres.is_empty() {
        return Err("jobs with GPUs or other devices are not checkpointed yet".into());
    }
    if run.suspended.is_some() {
        return Err("the job is suspended: resume it first".into());
    }
    if state.gang.contains_key(&id) {
        return Err("jobs that share their CPUs in turns are not checkpointed yet".into());
    }
    let step = run.steps.iter().find(|(no, step)| **no != StepNo::BATCH && step.ended.is_none());
    if let Some((no, _)) = step {
        return Err(format!("step {no} runs: jobs with running steps (srun) are not checkpointed yet"));
    }
    Ok(node)
}

/// Returns the event by which a job goes on from its last checkpoint.
fn restart(state: &State, id: JobId) -> Result<Event, Refusal> {
    let job = state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let Some(restore) = job.restore() else { return Err(wrong("the job has no checkpoint")) };
    match (&job.phase, job.queue.hold) {
        (Phase::Pending, Hold::Requeue | Hold::User) => Ok(Event::JobReleased { id, whole: false }),
        (Phase::Pending, Hold::Admin | Hold::Special) => Err(Refusal::HeldByAdmin),
        (Phase::Pending | Phase::Leased(_), _) => {
            let number = restore.number;
            Err(wrong(format!("pending: it goes on from checkpoint {number} as soon as its node is free")))
        }
        (Phase::Running(_), _) => {
            let outcome = Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason: None };
            let requeue = Some(Requeue { hold: false, not_before: None, special: None, expedite: None });
            Ok(Event::JobEnding { id, outcome, requeue })
        }
        (Phase::Completing(..) | Phase::Ended(_), _) => Err(Refusal::AlreadyDone),
    }
}
