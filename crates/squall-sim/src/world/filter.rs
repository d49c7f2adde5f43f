//! The simulated submit filter: its processes, which give verdicts, take their time and are killed.
//!
//! The filter gives each job a mark in its name, and refuses some submissions and some changes.

use std::collections::{BTreeMap, BTreeSet};

use squall_engine::commit::Pipeline;
use squall_engine::control::{CallerId, Input, Who as Asker};
use squall_engine::filter::{Batch, Changed, Parts, Queue, apply, changed, is_retry, parts, refusal};
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobRef, JobUpdate, Refusal, Request};
use squall_model::wire::filter::{ToFilter, Verdict};

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::order::Order;
use crate::world::{Happening, World};

/// What the filter appends to the name of each job.
pub(crate) const MARK: &str = "+filtered";
/// Longest time until the controller notices that a connection has ended.
const UNNOTICED: Span = Span::from_secs(3);
/// Probability that a process is killed amid a verdict, in millionths; and with a bug that shows only then.
const KILLED_PPM: (u32, u32) = (50_000, 400_000);

/// The filter of a controller.
#[derive(Debug, Default)]
pub(crate) struct FilterHost {
    queue: Queue<Held>,
    /// What processes filter, by user id.
    running: BTreeMap<u32, Process>,
    /// Connections that have ended, which the controller has not noticed.
    leaving: BTreeSet<u64>,
}

/// A process with the requests that it filters.
#[derive(Debug)]
struct Process {
    /// Number of the verdict that it works on. No other process has the same.
    turn: u64,
    batch: Batch<Held>,
}

/// A request that waits for verdicts.
#[derive(Debug)]
struct Held {
    caller: u64,
    who: Asker,
    request: Box<Request>,
    changes: Vec<(JobRef, JobId)>,
}

/// Returns whether the filter refuses the submission of a job order.
pub(crate) fn refuses_order(tag: usize) -> bool {
    tag % 16 == 11
}

/// Returns whether the filter refuses a change that asks for this time limit.
pub(crate) fn refuses_limit(limit_s: u64) -> bool {
    limit_s % 8 == 3
}

/// Returns the filter's verdict on a message.
fn verdict_on(message: &ToFilter) -> Verdict {
    let refused = |error| Verdict { error, message: "refused".to_owned(), ..Verdict::default() };
    match message {
        ToFilter::Submit(submission) => {
            let spec = &submission.spec;
            if Order::tag_of(spec).is_some_and(refuses_order) {
                return refused(7);
            }
            let spec = Box::new(JobSpec { name: format!("{}{MARK}", spec.name), ..spec.clone() });
            Verdict { spec: Some(spec), changed: vec!["name".to_owned()], ..Verdict::default() }
        }
        ToFilter::Modify(modification) => match modification.change {
            JobUpdate { time_limit_s: Some(Some(limit_s)), .. } if refuses_limit(limit_s) => refused(8),
            _ => Verdict::default(),
        },
        ToFilter::Load(_) | ToFilter::Partitions(_) => Verdict::default(),
    }
}

impl World {
    /// Passes a request to a controller, by way of the submit filter if that sees it.
    pub(crate) fn ask_controller(&mut self, of: usize, caller: u64, who: Asker, request: Box<Request>) {
        let machine = self.controllers[of].pipeline.as_ref().map(Pipeline::machine);
        let Some(machine) = machine.filter(|_| self.setup.filter.is_some()) else {
            return self.tell_controller(of, Input::Ask { caller: CallerId(caller), who, request });
        };
        match parts(machine, &who, &request) {
            Err(refusal) => self.filter_answers(caller, Answer::Refused(refusal)),
            Ok(Parts { messages, .. }) if messages.is_empty() => {
                self.tell_controller(of, Input::Ask { caller: CallerId(caller), who, request });
            }
            Ok(Parts { messages, changes }) => {
                let uid = who.owner.uid;
                self.controllers[of].filter.queue.add(uid, messages, Held { caller, who, request, changes });
                self.start_filters(of);
            }
        }
    }

    /// Tells a controller that a client's connection has ended. With a filter it notices that late.
    pub(crate) fn end_connection(&mut self, of: usize, caller: u64) {
        if self.setup.filter.is_none() {
            return self.tell_controller(of, Input::Hangup { caller: CallerId(caller), away: self.clients.away });
        }
        self.controllers[of].filter.leaving.insert(caller);
        let late = self.seed.span(Span(0), UNNOTICED);
        let life = self.controllers[of].life;
        self.after(late, Happening::ConnectionEnds { of, life, caller });
    }

    pub(crate) fn connection_ends(&mut self, of: usize, life: u64, caller: u64) {
        if life == self.controllers[of].life && self.controllers[of].filter.leaving.remove(&caller) {
            self.tell_controller(of, Input::Hangup { caller: CallerId(caller), away: self.clients.away });
        }
    }

    fn start_filters(&mut self, of: usize) {
        while let Some(batch) = self.controllers[of].filter.queue.take() {
            self.filter_works(of, batch);
        }
    }

    /// Has a process work on its next verdict.
    fn filter_works(&mut self, of: usize, batch: Batch<Held>) {
        let span = self.seed.span(Span(200), self.setup.filter.unwrap_or_default().max(Span(201)));
        self.clients.filter_turns += 1;
        let (turn, uid) = (self.clients.filter_turns, batch.uid);
        self.controllers[of].filter.running.insert(uid, Process { turn, batch });
        self.after(span, Happening::FilterDecides { of, uid, turn });
    }

    pub(crate) fn filter_decides(&mut self, of: usize, uid: u32, turn: u64) {
        if self.controllers[of].filter.running.get(&uid).is_none_or(|process| process.turn != turn) {
            return;
        }
        let planted = self.setup.mutation.is_some_and(Mutation::is_of_filter);
        let killed = if planted { KILLED_PPM.1 } else { KILLED_PPM.0 };
        if self.nemesis.is_active() && self.seed.chance(killed) {
            return self.kill_filter(of, uid);
        }
        let Some(Process { mut batch, .. }) = self.controllers[of].filter.running.remove(&uid) else { return };
        let verdict = batch.next().map(verdict_on).unwrap_or_default();
        if let Some((held, verdicts)) = batch.take(verdict) {
            self.filtered(of, held, Some(verdicts));
        }
        self.filter_goes_on(of, batch);
    }

    fn filter_goes_on(&mut self, of: usize, batch: Batch<Held>) {
        if batch.is_empty() {
            self.controllers[of].filter.queue.done(batch.uid);
            return self.start_filters(of);
        }
        self.filter_works(of, batch);
    }

    /// Kills all filter processes of a controller. Returns whether there were some.
    pub(crate) fn kill_filters(&mut self, of: usize) -> bool {
        let users: Vec<u32> = self.controllers[of].filter.running.keys().copied().collect();
        for &uid in &users {
            self.kill_filter(of, uid);
        }
        !users.is_empty()
    }

    fn kill_filter(&mut self, of: usize, uid: u32) {
        let Some(Process { mut batch, .. }) = self.controllers[of].filter.running.remove(&uid) else { return };
        self.strike(Fault::FilterKilled, u64::from(uid));
        if self.is_planted(Mutation::FilterForgets) {
            drop(batch.fail(true));
        } else if self.is_planted(Mutation::FilterSkipped) {
            if let Some(held) = batch.fail(true) {
                self.filtered(of, held, Some(Vec::new()));
            }
        } else if let Some(held) = batch.fail(false) {
            self.filtered(of, held, None);
        }
        self.filter_goes_on(of, batch);
    }

    /// Decides a request after the filter. None: two processes have ended amid it.
    fn filtered(&mut self, of: usize, held: Held, verdicts: Option<Vec<Verdict>>) {
        let Held { caller, who, mut request, changes } = held;
        let is_there = self.clients.controller_of(caller).is_some();
        let Some(machine) = self.controllers[of].pipeline.as_ref().map(Pipeline::machine) else { return };
        if !is_there && !self.controllers[of].filter.leaving.contains(&caller) {
            return;
        }
        let known = is_retry(machine, &who, &request) && !self.is_planted(Mutation::AcceptedRefused);
        let refused = match verdicts {
            _ if known => None,
            None => Some(Answer::Refused(Refusal::Filtered(1, "the filter's process has ended".to_owned()))),
            Some(verdicts) => match &mut *request {
                Request::UpdateJob { jobs, change } => match changed(machine, (jobs, change), changes, verdicts) {
                    Changed::All => None,
                    // because users change one job at a time here
                    Changed::Each(mut requests, refused) => match requests.pop() {
                        Some((_, one)) => {
                            *request = one;
                            None
                        }
                        None => Some(Answer::Affected { jobs: Vec::new(), refused }),
                    },
                },
                submission => {
                    let refused = refusal(&verdicts).map(Answer::Refused);
                    apply(submission, verdicts);
                    refused
                }
            },
        };
        match refused {
            Some(answer) => self.filter_answers(caller, answer),
            None => self.tell_controller(of, Input::Ask { caller: CallerId(caller), who, request }),
        }
    }

    fn filter_answers(&mut self, caller: u64, answer: Answer) {
        self.release_answers(vec![(CallerId(caller), answer)]);
    }
}
