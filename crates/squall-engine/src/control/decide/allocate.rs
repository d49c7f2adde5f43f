//! `salloc`, and `srun` outside of an allocation: resources that last as long as the connection that asked for them.

use crate::control::info::hindrance::AT_ONCE_S;
use crate::control::info::hindrance::hindrance;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::step::FirstStep;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal};
use squall_sched::Item;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::submit::{Contents, accept, no_mail};
use crate::control::effects::steps;
use crate::control::index::desk::Waiting;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase};

/// Requests an allocation, optionally with a first step. The answer has the job's id; another answer follows when it
/// has started.
pub(crate) fn allocate(
    c: &mut Controller,
    ask: &Ask<'_>,
    spec: Arc<JobSpec>,
    env: Vec<u8>,
    (key, immediate_s, step): (ClientKey, Option<u32>, Option<Box<FirstStep>>),
    out: &mut Out,
) -> Reply {
    if !spec.kind.is_owned() {
        return Err(Refusal::NotSupported("batch jobs are submitted".to_owned()));
    }
    let waiting = |step: Box<FirstStep>| Waiting::new(&c.state.config, ask.caller, step.key, step.spec, step.program);
    let first = step.map(waiting).transpose()?;
    let unsupported = no_mail(&c.state, &spec);
    let (job, fresh) = accept(c, ask, spec, Contents { script: Vec::new(), env }, key, out)?;
    own(c, ask, job, immediate_s.filter(|_| fresh));
    if let Some(first) = first {
        steps::ask_with_job(c, job, first);
    }
    let note = c.queue.reason(&c.state, ask.now, Item { id: job, array: false });
    let note = hindrance(c, job, &note).filter(|_| immediate_s.is_none_or(|seconds| seconds > AT_ONCE_S));
    Ok(Some(Answer::Submitted { job, note: unsupported.or(note), message: None }))
}

/// Makes the caller's connection the owner of an allocation. With `immediate_s` the allocation is refused if it has not
/// started in that many seconds.
pub(crate) fn own(c: &mut Controller, ask: &Ask<'_>, job: JobId, immediate_s: Option<u32>) {
    c.waits.own(job, ask.caller);
    c.timers.clear(Timer::Owner(job));
    c.todo.touched.insert(job);
    if let Some(seconds) = immediate_s {
        // At least one microsecond, so that a scheduling pass comes first.
        let patience = Span(Span::from_secs(u64::from(seconds)).0.max(1));
        c.timers.set(Timer::Immediate(job), ask.now + patience);
    }
}

/// Makes the caller's connection the owner of an allocation that has lost its owner, as after a restart of the
/// controller or with `salloc --no-shell`.
pub(crate) fn attach(c: &mut Controller, ask: &Ask<'_>, id: JobId) -> Reply {
    let job = known(&c.state, id)?;
    if !job.spec.kind.is_owned() {
        return Err(Refusal::WrongState("it is a batch job".to_owned()));
    }
    if job.outcome().is_some() {
        return Err(Refusal::Revoked);
    }
    c.waits.own(id, ask.caller);
    c.timers.clear(Timer::Owner(id));
    c.todo.touched.insert(id);
    Ok(None)
}

/// Ends an allocation at the request of the client that owns it.
pub(crate) fn finish(c: &mut Controller, ask: &Ask<'_>, id: JobId, exit: ExitCode, out: &mut Out) -> Reply {
    let job = known(&c.state, id)?;
    if !job.spec.kind.is_owned() {
        return Err(Refusal::WrongState("it is a batch job".to_owned()));
    }
    let state = match &job.phase {
        Phase::Pending => EndState::Cancelled { by: ask.who.owner.uid },
        Phase::Running(_) if exit.is_ok() => EndState::Completed,
        Phase::Running(_) if exit == ExitCode::OUT_OF_MEMORY => EndState::OutOfMemory,
        Phase::Running(_) => EndState::Failed,
        Phase::Completing(..) | Phase::Ended(_) | Phase::Leased(_) => return Ok(Some(Answer::Done)),
    };
    c.waits.disown(id);
    let outcome = Outcome { state, exit, reason: None };
    c.commit(ask.now, Event::JobEnding { id, outcome, requeue: None }, out);
    Ok(Some(Answer::Done))
}

/// Returns the job `id`, or a refusal if it has no record.
fn known(state: &State, id: JobId) -> Result<&Job, Refusal> {
    state.jobs.get(&id).map(|job| &**job).ok_or(Refusal::InvalidJobId)
}
