//! Requests that pass the submit filter before the controller decides them, and what the filter makes of them.

use std::sync::Arc;
use std::time::Duration;

use squall_engine::control::state::job::Phase;
use squall_engine::control::{CallerId, Input, Who};
use squall_model::config::Config;
use squall_model::encoding::ByteBuf;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::limits::HET_COMPONENTS_MAX;
use squall_model::wire::client::{Answer, AnyRequest, JobName, JobRef, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::filter::{About, Modification, Submission, ToFilter, Verdict, script_of};
use tracing::{debug, error, info};

use super::FilterEvent;
use crate::controld::connection::{Asked, Held};
use crate::controld::turn::Daemon;

/// What the filter sees of a request, and the jobs that it changes: what names them, and their ids.
type Parts = (Vec<ToFilter>, Vec<(JobRef, JobId)>);

/// Most jobs that a request may change where a filter sees each.
const CHANGED_MAX: usize = 4096;

impl Daemon {
    /// Loads the script of the configuration, if it names one.
    pub(in crate::controld) fn begin_filter(&mut self) {
        if let Some(script) = self.script_of(&self.pipeline.machine().state().config) {
            self.filters.load(script, None);
        }
    }

    fn script_of(&self, config: &Config) -> Option<squall_model::wire::filter::FilterScript> {
        let beside = self.files.config_folder();
        let partitions = self.pipeline.machine().state().partitions.iter().map(|partition| partition.config.clone());
        script_of(&config.submit, &beside, partitions.collect())
    }

    /// Has the filter see a request that submits or changes a job. Returns any other one.
    pub(in crate::controld) fn divert(&mut self, mut asked: Asked) -> Option<Asked> {
        let AnyRequest::Machine(request) = &asked.request else { return Some(asked) };
        let parts = match self.parts(&asked.who, request) {
            Ok((parts, changes)) => {
                asked.changes = changes;
                parts
            }
            Err(refusal) => {
                self.refuse(asked.id, refusal);
                return None;
            }
        };
        if parts.is_empty() {
            return Some(asked);
        }
        if let Some(problem) = self.filters.trouble() {
            let refusal = Refusal::Filtered(1, problem.to_owned());
            self.refuse(asked.id, refusal);
            return None;
        }
        let now = self.pipeline.machine().state().partitions.iter().map(|partition| &partition.config);
        self.filters.note_partitions(now);
        self.filters.submit(asked.who.owner.uid, parts, Held::Asked(asked));
        None
    }

    /// Returns the parts of a request that the filter sees: each job; and what names the jobs that it changes. No parts: the
    /// request needs no filter, or it is a retry of one that has passed.
    fn parts(&self, who: &Who, request: &Request) -> Result<Parts, Refusal> {
        if let Request::UpdateJob { jobs, change } = request {
            let mut selected = self.pipeline.machine().to_change(who, jobs)?;
            if selected.len() > CHANGED_MAX {
                let problem = format!("the submit filter sees each job: change at most {CHANGED_MAX} at once");
                return Err(Refusal::NotSupported(problem));
            }
            let mut parts = Vec::new();
            selected.retain(|(_, id)| {
                let part = self.modification(who, *id, change);
                let seen = part.is_some();
                parts.extend(part);
                seen
            });
            return Ok((parts, selected));
        }
        Ok((self.submissions(who, request), Vec::new()))
    }

    /// Returns the jobs of a submission, unless it is a retry of one that has passed.
    fn submissions(&self, who: &Who, request: &Request) -> Vec<ToFilter> {
        let machine = self.pipeline.machine();
        let known = |key| machine.has_accepted(who.owner.uid, key);
        let one = |spec: &Arc<JobSpec>, script: &ByteBuf, env: &ByteBuf, immediate| {
            vec![self.submission(&who.owner, spec, (script, env), None, immediate)]
        };
        let none = ByteBuf::new();
        match request {
            Request::Submit { key, .. } | Request::Allocate { key, .. } | Request::SubmitHet { key, .. }
                if known(*key) =>
            {
                Vec::new()
            }
            Request::Submit { spec, script, env, .. } => one(spec, script, env, false),
            Request::TestSubmit { spec } => one(spec, &none, &none, false),
            Request::Allocate { spec, env, immediate_s, .. } => one(spec, &none, env, immediate_s.is_some()),
            // More are refused anyway.
            Request::SubmitHet { specs, script, env, immediate_s, .. } if specs.len() <= HET_COMPONENTS_MAX => {
                let component = |(at, spec): (u32, &JobSpec)| {
                    let contents = if at == 0 { (script, env) } else { (&none, &none) };
                    self.submission(&who.owner, spec, contents, Some(at), immediate_s.is_some())
                };
                (0..).zip(specs).map(component).collect()
            }
            _ => Vec::new(),
        }
    }

    fn submission(
        &self,
        owner: &Owner,
        spec: &JobSpec,
        (script, env): (&ByteBuf, &ByteBuf),
        component: Option<u32>,
        immediate: bool,
    ) -> ToFilter {
        let about = self.about(owner, spec);
        let (spec, script, env) = (spec.clone(), script.clone(), env.clone());
        ToFilter::Submit(Box::new(Submission { spec, script, env, about, component, immediate }))
    }

    /// Returns what the filter sees of a change of a job. None: there is no such job, which the controller tells.
    fn modification(&self, who: &Who, id: JobId, change: &JobUpdate) -> Option<ToFilter> {
        let state = self.pipeline.machine().state();
        let (spec, owner, number) = match (state.jobs.get(&id), state.arrays.get(&id)) {
            (Some(job), _) if matches!(job.phase, Phase::Ended(_)) => return None,
            (Some(job), _) => (&job.spec, &job.owner, u32::from(!job.is_pending())),
            (None, Some(array)) => (&array.spec, &array.owner, 0),
            (None, None) => return None,
        };
        let about = self.about(owner, spec);
        let (spec, change, modify_uid) = (JobSpec::clone(spec), change.clone(), who.owner.uid);
        Some(ToFilter::Modify(Box::new(Modification { job: id, spec, change, about, modify_uid, state: number })))
    }

    fn about(&self, owner: &Owner, spec: &JobSpec) -> About {
        let state = self.pipeline.machine().state();
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

    /// Takes in what the filter reports. Returns how long it took to decide.
    pub(in crate::controld) fn filtered(&mut self, event: FilterEvent<Held>) -> Duration {
        match event {
            FilterEvent::Loaded { result: Ok(loaded), waits: None } => self.filters.adopt(*loaded),
            FilterEvent::Loaded { result: Err(problem), waits: None } => {
                let refusal = Refusal::Filtered(1, problem.clone());
                let waiting = self.filters.fail(problem);
                for held in waiting {
                    self.refuse(held.id(), refusal.clone());
                }
            }
            FilterEvent::Loaded { result, waits: Some(Held::Reconfigure { id, who, config }) } => match result {
                Ok(loaded) => {
                    self.reconfigure(id, who, config);
                    // The controller may have refused the configuration for another reason.
                    let now = self.script_of(&self.pipeline.machine().state().config);
                    if now.is_some_and(|now| loaded.is_of(&now)) {
                        self.filters.adopt(*loaded);
                    }
                }
                Err(problem) => {
                    error!(problem, "new submit filter refused, the one before stays in force");
                    let value = config.submit.lua;
                    self.refuse(id, Refusal::InvalidValue { option: "configuration".to_owned(), value, problem });
                }
            },
            // Because a configuration alone waits for a script.
            FilterEvent::Loaded { waits: Some(Held::Asked(_)), .. } => {}
            FilterEvent::Done { uid, process } => self.filters.done(uid, process.map(|process| *process)),
            FilterEvent::Decided { request, result } => {
                let Held::Asked(asked) = request else { return Duration::ZERO };
                // A client that is gone sends its request again, under the same key.
                if !self.peers.contains_key(&asked.id) {
                    return Duration::ZERO;
                }
                return match result {
                    Ok(verdicts) => self.conclude(asked, verdicts),
                    Err(problem) => {
                        error!(
                            problem,
                            user = asked.who.owner.user,
                            "a submission is refused: the submit filter failed"
                        );
                        self.refuse(asked.id, Refusal::Filtered(1, problem));
                        Duration::ZERO
                    }
                };
            }
        }
        Duration::ZERO
    }

    /// Decides a request after the filter.
    fn conclude(&mut self, mut asked: Asked, verdicts: Vec<Verdict>) -> Duration {
        let user = &asked.who.owner.user;
        for (level, line) in verdicts.iter().flat_map(|verdict| &verdict.log) {
            match level {
                0 => error!(user, "submit filter: {line}"),
                1 => info!(user, "submit filter: {line}"),
                _ => debug!(user, "submit filter: {line}"),
            }
        }
        if let AnyRequest::Machine(request) = &mut asked.request {
            if let Request::UpdateJob { jobs, change } = &**request {
                let (jobs, change) = (jobs.clone(), change.clone());
                return self.change_each(asked, &jobs, &change, verdicts);
            }
            if let Some(refused) = verdicts.iter().find(|verdict| verdict.error != 0) {
                let refusal = Refusal::Filtered(refused.error, refused.message.clone());
                self.refuse(asked.id, refusal);
                return Duration::ZERO;
            }
        }
        let messages: Vec<&str> =
            verdicts.iter().map(|verdict| verdict.message.as_str()).filter(|text| !text.is_empty()).collect();
        let told = Some(messages.join("\n")).filter(|text| !text.is_empty());
        if let AnyRequest::Machine(request) = &mut asked.request {
            apply(request, verdicts);
        }
        let before = self.pipeline.open_out().map_or(0, |out| out.answers.len());
        let took = self.decide_asked(asked);
        for (_, answer) in self.pipeline.open_out().into_iter().flat_map(|out| &mut out.answers[before..]) {
            if let Answer::Submitted { message, .. } = answer {
                message.clone_from(&told);
            }
        }
        took
    }

    /// Changes each job as the filter says. The answers for all of them become one.
    fn change_each(
        &mut self,
        asked: Asked,
        jobs: &JobSelection,
        change: &JobUpdate,
        verdicts: Vec<Verdict>,
    ) -> Duration {
        let fine = verdicts.iter().all(|verdict| verdict.error == 0 && verdict.change.is_none());
        // The filter has not seen a job that did not exist then.
        if fine && asked.changes.len() == jobs.ids.len() {
            return self.decide_asked(asked);
        }
        let Asked { id, who, via, at, changes, .. } = asked;
        let unseen = jobs.ids.iter().filter(|job| !changes.iter().any(|(seen, _)| seen.id() == job.id()));
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        refused.extend(unseen.map(|job| {
            let known = self.pipeline.machine().state().jobs.get(&job.id()).is_some();
            let refusal = if known { Refusal::AlreadyDone } else { Refusal::InvalidJobId };
            (JobName { id: job.id(), task: None }, refusal)
        }));
        let mut took = Duration::ZERO;
        for ((job, number), verdict) in changes.into_iter().zip(verdicts) {
            if verdict.error != 0 {
                let name = JobName { id: number, task: None };
                refused.push((name, Refusal::Filtered(verdict.error, verdict.message)));
                continue;
            }
            let change = verdict.change.unwrap_or_else(|| Box::new(change.clone()));
            let request = Request::UpdateJob { jobs: JobSelection { ids: vec![job], ..jobs.clone() }, change };
            let before = self.pipeline.open_out().map_or(0, |out| out.answers.len());
            let (who, via, request) = (who.clone(), via.clone(), AnyRequest::Machine(Box::new(request)));
            took += self.decide_asked(Asked { id, who, via, request, at, claim: None, changes: Vec::new() });
            let answers = self.pipeline.open_out().map(|out| out.answers.split_off(before)).unwrap_or_default();
            for (caller, answer) in answers {
                match answer {
                    Answer::Affected { jobs, refused: not } if caller == CallerId(id) => {
                        done.extend(jobs);
                        refused.extend(not);
                    }
                    Answer::Refused(refusal) if caller == CallerId(id) => {
                        refused.push((JobName { id: number, task: None }, refusal));
                    }
                    answer => {
                        self.pipeline.open_out().into_iter().for_each(|out| out.answers.push((caller, answer.clone())));
                    }
                }
            }
        }
        if let Some(out) = self.pipeline.open_out() {
            out.answers.push((CallerId(id), Answer::Affected { jobs: done, refused }));
        }
        took
    }

    /// Loads the script of a new configuration, for which the request waits. Returns the configuration if it needs none.
    pub(in crate::controld) fn refit(&mut self, id: u64, who: &Who, config: Box<Config>) -> Option<Box<Config>> {
        let Some(script) = self.script_of(&config) else { return Some(config) };
        self.filters.load(script, Some(Held::Reconfigure { id, who: who.clone(), config }));
        None
    }

    /// Filters nothing from now on if the configuration names no filter any more.
    pub(in crate::controld) fn unfit(&mut self) {
        if self.filters.is_on() && !self.pipeline.machine().state().config.submit.is_on() {
            info!("submissions are not filtered any more");
            for held in self.filters.stop() {
                if let Held::Asked(asked) = held {
                    self.decide_asked(asked);
                }
            }
        }
    }

    /// Has the state machine take a new configuration.
    fn reconfigure(&mut self, id: u64, who: Who, config: Box<Config>) {
        let request = Box::new(Request::Reconfigure { config: Some(config) });
        self.step(Input::Ask { caller: CallerId(id), who, request });
    }
}

/// Applies verdicts to a submission: a verdict for each job of it.
fn apply(request: &mut Request, verdicts: Vec<Verdict>) {
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
