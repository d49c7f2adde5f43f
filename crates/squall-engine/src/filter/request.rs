//! What a filter sees of requests, and what its verdicts make of them.

use std::sync::Arc;

use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{JobSpec, Owner};
use squall_model::limits::HET_COMPONENTS_MAX;
use squall_model::wire::client::{JobName, JobRef, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::filter::{About, Modification, Submission, ToFilter, Verdict};

use crate::control::state::job::Phase;
use crate::control::{Controller, Who};

/// Most jobs that a request may change where a filter sees each.
const CHANGED_MAX: usize = 4096;

/// What a filter sees of a request.
#[derive(Debug, Default)]
pub struct Parts {
    /// A message for each job. Empty: the request needs no filter.
    pub messages: Vec<ToFilter>,
    /// Jobs that the request changes, one for each message: what names them, and their ids. Empty: it changes none.
    pub changes: Vec<(JobRef, JobId)>,
}

/// What is left of a request that changes jobs.
#[derive(Debug, PartialEq, Eq)]
pub enum Changed {
    /// The request as it is.
    All,
    /// A request for each job that the filter lets pass, with the job's id; and the other jobs, each with the reason.
    Each(Vec<(JobId, Request)>, Vec<(JobName, Refusal)>),
}

/// Returns what a filter sees of a request. It sees nothing of the retry of a submission that was accepted.
pub fn parts(machine: &Controller, who: &Who, request: &Request) -> Result<Parts, Refusal> {
    let Request::UpdateJob { jobs, change } = request else {
        return Ok(Parts { messages: submissions(machine, who, request), changes: Vec::new() });
    };
    let mut changes = machine.to_change(who, jobs)?;
    if changes.len() > CHANGED_MAX {
        let problem = format!("the submit filter sees each job: change at most {CHANGED_MAX} at once");
        return Err(Refusal::NotSupported(problem));
    }
    let mut messages = Vec::new();
    changes.retain(|(_, id)| {
        let message = modification(machine, who, *id, change);
        let seen = message.is_some();
        messages.extend(message);
        seen
    });
    Ok(Parts { messages, changes })
}

/// Returns whether a request is the retry of a submission that was accepted. It needs no filter: its answer is known.
pub fn is_retry(machine: &Controller, who: &Who, request: &Request) -> bool {
    key_of(request).is_some_and(|key| machine.has_accepted(who.owner.uid, key))
}

fn key_of(request: &Request) -> Option<ClientKey> {
    match request {
        Request::Submit { key, .. } | Request::Allocate { key, .. } | Request::SubmitHet { key, .. } => Some(*key),
        _ => None,
    }
}

fn submissions(machine: &Controller, who: &Who, request: &Request) -> Vec<ToFilter> {
    if is_retry(machine, who, request) {
        return Vec::new();
    }
    let one = |spec: &Arc<JobSpec>, script: &ByteBuf, env: &ByteBuf, immediate| {
        vec![submission(machine, &who.owner, spec, (script, env), None, immediate)]
    };
    let none = ByteBuf::new();
    match request {
        Request::Submit { spec, script, env, .. } => one(spec, script, env, false),
        Request::TestSubmit { spec } => one(spec, &none, &none, false),
        Request::Allocate { spec, env, immediate_s, .. } => one(spec, &none, env, immediate_s.is_some()),
        // More are refused anyway.
        Request::SubmitHet { specs, script, env, immediate_s, .. } if specs.len() <= HET_COMPONENTS_MAX => {
            let component = |(at, spec): (u32, &JobSpec)| {
                let contents = if at == 0 { (script, env) } else { (&none, &none) };
                submission(machine, &who.owner, spec, contents, Some(at), immediate_s.is_some())
            };
            (0..).zip(specs).map(component).collect()
        }
        _ => Vec::new(),
    }
}

fn submission(
    machine: &Controller,
    owner: &Owner,
    spec: &JobSpec,
    (script, env): (&ByteBuf, &ByteBuf),
    component: Option<u32>,
    immediate: bool,
) -> ToFilter {
    let about = about(machine, owner, spec);
    let (spec, script, env) = (spec.clone(), script.clone(), env.clone());
    ToFilter::Submit(Box::new(Submission { spec, script, env, about, component, immediate }))
}

/// Returns what a filter sees of a change of a job. None: there is no such job, which the controller tells.
fn modification(machine: &Controller, who: &Who, id: JobId, change: &JobUpdate) -> Option<ToFilter> {
    let state = machine.state();
    let (spec, owner, number) = match (state.jobs.get(&id), state.arrays.get(&id)) {
        (Some(job), _) if matches!(job.phase, Phase::Ended(_)) => return None,
        (Some(job), _) => (&job.spec, &job.owner, u32::from(!job.is_pending())),
        (None, Some(array)) => (&array.spec, &array.owner, 0),
        (None, None) => return None,
    };
    let about = about(machine, owner, spec);
    let (spec, change, modify_uid) = (JobSpec::clone(spec), change.clone(), who.owner.uid);
    Some(ToFilter::Modify(Box::new(Modification { job: id, spec, change, about, modify_uid, state: number })))
}

fn about(machine: &Controller, owner: &Owner, spec: &JobSpec) -> About {
    let state = machine.state();
    let (policy, config) = (&state.policy, &state.config);
    let user = policy.users.get(&owner.user);
    let account = user.map(|user| user.default_account.clone()).filter(|account| !account.is_empty());
    let own = spec.account.clone().or_else(|| account.clone()).unwrap_or_else(|| config.default_account.clone());
    let partition = spec.partition.as_deref().and_then(|names| names.split(',').next());
    let association = policy.association(&own, &owner.user, partition.unwrap_or_default());
    let qos = association.and_then(|found| policy.default_qos(&own, found)).map(str::to_owned);
    let allowed_qos = association.map(|found| policy.allowed_qos(&own, found).join(","));
    About { owner: owner.clone(), account, qos, allowed_qos }
}

/// Returns why a submission with these verdicts is refused. None: it passes.
pub fn refusal(verdicts: &[Verdict]) -> Option<Refusal> {
    let refused = verdicts.iter().find(|verdict| verdict.error != 0)?;
    Some(Refusal::Filtered(refused.error, refused.message.clone()))
}

/// Applies verdicts to a submission: a verdict for each job of it.
pub fn apply(request: &mut Request, verdicts: Vec<Verdict>) {
    let mut verdicts = verdicts.into_iter();
    match request {
        Request::Submit { spec, script, env, .. } => {
            verdicts.for_each(|verdict| apply_to(Arc::make_mut(spec), script, env, verdict));
        }
        Request::Allocate { spec, env, .. } => {
            verdicts.for_each(|verdict| apply_to(Arc::make_mut(spec), &mut ByteBuf::new(), env, verdict));
        }
        Request::TestSubmit { spec } => {
            let (mut script, mut env) = (ByteBuf::new(), ByteBuf::new());
            verdicts.for_each(|verdict| apply_to(Arc::make_mut(spec), &mut script, &mut env, verdict));
        }
        Request::SubmitHet { specs, script, env, .. } => {
            let (mut others, mut own) = (ByteBuf::new(), ByteBuf::new());
            for (at, spec) in specs.iter_mut().enumerate() {
                let Some(verdict) = verdicts.next() else { break };
                let (script, env) = if at == 0 { (&mut *script, &mut *env) } else { (&mut others, &mut own) };
                apply_to(spec, script, env, verdict);
            }
        }
        // Because no other request has parts that are submissions.
        _ => {}
    }
}

/// Applies a verdict to a job. Its owner and its kind stay.
fn apply_to(spec: &mut JobSpec, script: &mut ByteBuf, env: &mut ByteBuf, verdict: Verdict) {
    if let Some(changed) = verdict.spec {
        let JobSpec { kind, within, vouched_by, .. } = *spec;
        *spec = JobSpec { kind, within, vouched_by, ..*changed };
    }
    if let Some(changed) = verdict.script {
        *script = changed;
    }
    if let Some(changed) = verdict.env {
        *env = changed;
    }
    let filtered = Some(verdict.changed.join(",")).filter(|names| !names.is_empty());
    if filtered.is_some() || spec.options.get().is_some_and(|options| options.filtered.is_some()) {
        spec.options.filtered = filtered;
    }
}

/// Applies verdicts to a change of jobs, of which the filter has seen `seen`.
pub fn changed(
    machine: &Controller,
    (jobs, change): (&JobSelection, &JobUpdate),
    seen: Vec<(JobRef, JobId)>,
    verdicts: Vec<Verdict>,
) -> Changed {
    let fine = verdicts.iter().all(|verdict| verdict.error == 0 && verdict.change.is_none());
    // The filter has not seen a job that did not exist then.
    if fine && seen.len() == jobs.ids.len() {
        return Changed::All;
    }
    let unseen = jobs.ids.iter().filter(|job| !seen.iter().any(|(seen, _)| seen.id() == job.id()));
    let mut refused: Vec<_> = unseen
        .map(|job| {
            let known = machine.state().jobs.get(&job.id()).is_some();
            let refusal = if known { Refusal::AlreadyDone } else { Refusal::InvalidJobId };
            (JobName { id: job.id(), task: None }, refusal)
        })
        .collect();
    let mut requests = Vec::new();
    for ((job, number), verdict) in seen.into_iter().zip(verdicts) {
        if verdict.error != 0 {
            let name = JobName { id: number, task: None };
            refused.push((name, Refusal::Filtered(verdict.error, verdict.message)));
            continue;
        }
        let change = verdict.change.unwrap_or_else(|| Box::new(change.clone()));
        requests.push((number, Request::UpdateJob { jobs: JobSelection { ids: vec![job], ..jobs.clone() }, change }));
    }
    Changed::Each(requests, refused)
}
