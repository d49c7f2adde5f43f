//! `scontrol checkpoint` and `scontrol suspend --to-disk`.

use squall_model::checkpoint::CheckpointVerb;
use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::checkpoint::{give, wrong};
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Hold, Phase};

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
    give(c, ask.now, id, verb, (Some(ask.caller), false))?;
    Ok(None)
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
