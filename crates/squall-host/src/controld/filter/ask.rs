//! Requests that pass the submit filter before the controller decides them, and what the filter makes of them.

use std::time::Duration;

use squall_engine::control::{CallerId, Input, Who};
use squall_engine::filter::{Changed, Parts, apply, changed, is_retry, parts, refusal};
use squall_model::config::Config;
use squall_model::wire::client::{Answer, AnyRequest, JobName, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::filter::{Verdict, script_of};
use tracing::{debug, error, info};

use super::FilterEvent;
use crate::controld::connection::{Asked, Held};
use crate::controld::turn::Daemon;

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
        let messages = match parts(self.pipeline.machine(), &asked.who, request) {
            Ok(Parts { messages, changes }) => {
                asked.changes = changes;
                messages
            }
            Err(refusal) => {
                self.refuse(asked.id, refusal);
                return None;
            }
        };
        if messages.is_empty() {
            return Some(asked);
        }
        if let Some(problem) = self.filters.trouble() {
            let refusal = Refusal::Filtered(1, problem.to_owned());
            self.refuse(asked.id, refusal);
            return None;
        }
        let now = self.pipeline.machine().state().partitions.iter().map(|partition| &partition.config);
        self.filters.note_partitions(now);
        self.filters.submit(asked.who.owner.uid, messages, Held::Asked(asked));
        None
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
                // The same request that came before may have been accepted since.
                if let AnyRequest::Machine(request) = &asked.request
                    && is_retry(self.pipeline.machine(), &asked.who, request)
                {
                    return self.decide_asked(asked);
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
            if let Some(refusal) = refusal(&verdicts) {
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
        mut asked: Asked,
        jobs: &JobSelection,
        change: &JobUpdate,
        verdicts: Vec<Verdict>,
    ) -> Duration {
        let seen = std::mem::take(&mut asked.changes);
        let (requests, mut refused) = match changed(self.pipeline.machine(), (jobs, change), seen, verdicts) {
            Changed::All => return self.decide_asked(asked),
            Changed::Each(requests, refused) => (requests, refused),
        };
        let Asked { id, who, via, at, .. } = asked;
        let (mut done, mut took) = (Vec::new(), Duration::ZERO);
        for (number, request) in requests {
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
