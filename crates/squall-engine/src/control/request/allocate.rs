//! `salloc` and `srun` outside of an allocation: resources that live as long as the connection that asked.

use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome, PendingReason};
use squall_model::step::FirstStep;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal};
use squall_sched::Item;

use super::rights::{Deed, can};
use super::submit::{Contents, accept};
use super::{Ask, Reply};
use crate::control::drive::timers::Timer;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase};
use crate::control::steps::{self, Waiting};
use crate::control::{Controller, Out};

/// `--immediate` for so many seconds wants an allocation at once.
const AT_ONCE_S: u32 = 1;

/// Asks for an allocation, and perhaps for a step in it. The answer is its id; another follows when it has started.
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
    let first = step.map(|step| Waiting::new(ask.caller, step.key, step.spec, step.program)).transpose()?;
    let (job, fresh) = accept(c, ask, spec, Contents { script: Vec::new(), env }, key, out)?;
    own(c, ask, job, immediate_s.filter(|_| fresh));
    if let Some(first) = first {
        steps::ask_with_job(c, job, first);
    }
    let note = c.queue.reason(&c.state, ask.now, Item { id: job, array: false });
    let note = hindrance(c, job, &note).filter(|_| immediate_s.is_none_or(|seconds| seconds > AT_ONCE_S));
    Ok(Some(Answer::Submitted { job, note }))
}

/// What keeps an allocation from starting soon, if its user should hear of it.
fn hindrance(c: &Controller, id: JobId, reason: &PendingReason) -> Option<Refusal> {
    match reason {
        PendingReason::JobHeldUser | PendingReason::JobHeldAdmin => Some(Refusal::Held),
        PendingReason::PartitionDown => {
            let named = c.state.jobs.get(&id).and_then(|job| job.spec.partition.clone());
            Some(Refusal::PartitionDown(named.unwrap_or_default()))
        }
        PendingReason::ReqNodeNotAvail => Some(Refusal::NodeNotAvailable),
        _ => None,
    }
}

/// Why an allocation is refused whose `--immediate` is over.
pub(crate) fn too_late(c: &Controller, now: Time, id: JobId) -> Refusal {
    let at_once = c.state.jobs.get(&id).is_some_and(|job| now < job.submit + Span::from_secs(AT_ONCE_S.into()));
    let reason = c.queue.reason(&c.state, now, Item { id, array: false });
    match (hindrance(c, id, &reason), reason) {
        // After a wait only its end counts.
        _ if !at_once => Refusal::Busy,
        (Some(Refusal::Held), _) | (_, PendingReason::Dependency | PendingReason::BeginTime) => {
            Refusal::DependencyProblem
        }
        (hindrance, _) => hindrance.unwrap_or(Refusal::Busy),
    }
}

/// A new allocation is the caller's, who may want it at once or not at all.
pub(super) fn own(c: &mut Controller, ask: &Ask<'_>, job: JobId, immediate_s: Option<u32>) {
    c.waits.own(job, ask.caller);
    c.timers.clear(Timer::Owner(job));
    c.todo.touched.insert(job);
    if let Some(seconds) = immediate_s {
        // One microsecond: the scheduler has its turn first.
        let patience = Span(Span::from_secs(u64::from(seconds)).0.max(1));
        c.timers.set(Timer::Immediate(job), ask.now + patience);
    }
}

/// The owner is back on a new connection.
pub(crate) fn attach(c: &mut Controller, ask: &Ask<'_>, id: JobId) -> Reply {
    let job = entered(&c.state, ask, id)?;
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

/// The owner is done.
pub(crate) fn finish(c: &mut Controller, ask: &Ask<'_>, id: JobId, exit: ExitCode, out: &mut Out) -> Reply {
    let job = entered(&c.state, ask, id)?;
    if !job.spec.kind.is_owned() {
        return Err(Refusal::WrongState("it is a batch job".to_owned()));
    }
    let state = match &job.phase {
        Phase::Pending => EndState::Cancelled { by: ask.who.owner.uid },
        Phase::Running(_) if exit.is_ok() => EndState::Completed,
        Phase::Running(_) => EndState::Failed,
        Phase::Completing(..) | Phase::Ended(_) | Phase::Leased(_) => return Ok(Some(Answer::Done)),
    };
    c.waits.disown(id);
    let outcome = Outcome { state, exit, reason: None };
    c.commit(ask.now, Event::JobEnding { id, outcome, requeue: None }, out);
    Ok(Some(Answer::Done))
}

/// A job in which the caller may run things.
fn entered<'a>(state: &'a State, ask: &Ask<'_>, id: JobId) -> Result<&'a Job, Refusal> {
    let job = state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    if can(ask.who, Deed::Enter(&job.owner)) { Ok(job) } else { Err(Refusal::AccessDenied) }
}
