//! What each verb does, refuses and answers, on a small cluster without a scheduler.

mod changes;
mod lists;
mod paging;
mod privacy;
pub(crate) mod rights;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, ClientKey, Incarnation, JobId, NodeId, StepKey};
use squall_model::job::{ArraySpec, ExitCode, JobAttempt, JobSpec, Outcome, Owner};
use squall_model::report::StepEnd;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, IndexSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::fabric::Window;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::effects::steps as desk;
use crate::control::port::{CallerId, LinkId, Out, Who};
use crate::control::state::State;
use crate::control::state::job::Hold;
use crate::fabric::child::Child;

const ADA: u32 = 1000;
const BOB: u32 = 1001;

/// Four nodes of four CPUs and 4000 MiB. Jobs start when the test says so.
pub(crate) struct World {
    pub(crate) c: Controller,
    pub(crate) now: Time,
    /// The nodes' connections, numbered like the nodes.
    children: Vec<Child>,
    callers: u64,
    keys: u128,
}

pub(crate) fn user(uid: u32) -> Who {
    let owner = Owner { uid, gid: 100, groups: vec![100], user: format!("u{uid}"), group: "users".into() };
    Who { owner: Arc::new(owner), operator: false, by: None, job: None }
}

/// `scontrol update node`, for that reason.
pub(crate) fn update_nodes(nodes: &str, admin: NodeAdmin) -> Request {
    Request::UpdateNodes { nodes: nodes.into(), admin: Some(admin), reason: Some("test".into()), change: None }
}

pub(crate) fn operator() -> Who {
    Who { operator: true, ..user(0) }
}

impl World {
    pub(crate) fn new() -> Self {
        let now = Time::from_secs(1_800_000_000);
        let mut world = Self { c: Controller::new(State::default()), now, children: Vec::new(), callers: 0, keys: 0 };
        let mut config = Config::default();
        config.complete();
        world.commit(Event::Configured { config: Arc::new(config) });
        for at in 0..4 {
            let hardware = Hardware { cpus: 4, memory_mb: 4000, ..Hardware::default() };
            let (node, name) = (NodeId(at), format!("n{}", at + 1));
            world.connect(node, &name);
            world.commit(Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
        }
        world
    }

    fn connect(&mut self, node: NodeId, name: &str) {
        let link = LinkId(u64::from(node.0));
        self.children.push(Child::default());
        self.c.links.opened(self.now, link, (Window::default(), Span::from_secs(10)), None);
        self.c.links.offer(link, Vec::new(), name.to_owned());
        self.sends(Out::default());
        let offered = self.children.last().expect("it was pushed").offered;
        let offer = self.c.links.take_offer(name, offered).expect("it was made");
        self.c.links.welcome(node, (offer, name.to_owned()), ("1".into(), ClusterVersion::OWN));
        self.sends(Out::default());
    }

    /// What the nodes are told.
    fn sends(&mut self, mut out: Out) -> Vec<(NodeId, Down)> {
        self.c.links.flush(self.now, &mut out);
        let mut sends = Vec::new();
        for (link, frame) in out.sends {
            let messages = self.children[link.0 as usize].hear(frame);
            sends.extend(messages.into_iter().map(|message| (NodeId(link.0 as u32), message)));
        }
        sends
    }

    pub(crate) fn commit(&mut self, event: Event) {
        self.c.commit(self.now, event, &mut Out::default());
    }

    pub(crate) fn submit(&mut self, uid: u32, spec: JobSpec) -> JobId {
        let id = JobId(self.c.state.last_id.0 + 1);
        let key = self.key();
        self.commit(Event::JobSubmitted { id, key, owner: user(uid).owner, spec: Arc::new(spec) });
        id
    }

    pub(crate) fn array(&mut self, uid: u32, last: u32) -> JobId {
        let array = ArraySpec { indices: IndexSet::range(0, last), limit: None, text: format!("0-{last}") };
        self.submit(uid, JobSpec { array: Some(array), ..JobSpec::default() })
    }

    /// The job holds so many cores on each of so many nodes.
    pub(crate) fn start(&mut self, id: JobId, nodes: u32, cores: usize) {
        let mut alloc = Alloc::default();
        for node in 0..nodes {
            alloc.push(NodeId(node), CoreSet::first(cores), 1000);
        }
        let attempt = Attempt(self.c.state.jobs.get(&id).map_or(0, |job| job.attempt.0) + 1);
        self.commit(Event::JobStarted { id, attempt, partition: "debug".into(), alloc });
    }

    pub(crate) fn running(&mut self, uid: u32) -> JobId {
        let id = self.submit(uid, JobSpec::default());
        self.start(id, 1, 1);
        id
    }

    pub(crate) fn release(&mut self, id: JobId) {
        let job = &self.c.state.jobs[&id];
        let (attempt, nodes) = (job.attempt, job.run().map(|run| run.left.clone()).unwrap_or_default());
        self.commit(Event::NodesReleased { id, attempt, nodes });
    }

    pub(crate) fn ended(&mut self, uid: u32) -> JobId {
        let id = self.running(uid);
        let outcome = Outcome { state: squall_model::job::EndState::Completed, exit: ExitCode::OK, reason: None };
        self.commit(Event::JobEnding { id, outcome, requeue: None });
        self.release(id);
        id
    }

    pub(crate) fn key(&mut self) -> ClientKey {
        self.keys += 1;
        ClientKey(self.keys)
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(&mut self, who: &Who, request: Request) -> Turn {
        self.callers += 1;
        self.ask_on(CallerId(self.callers), who, request)
    }

    pub(crate) fn ask_on(&mut self, caller: CallerId, who: &Who, request: Request) -> Turn {
        let mut out = Out::default();
        crate::control::decide::ask(&mut self.c, self.now, caller, who, request, &mut out);
        self.turn(caller, out)
    }

    /// There is time for a page of a list.
    pub(crate) fn list_on(&mut self, caller: CallerId) -> Turn {
        let mut out = Out::default();
        crate::control::decide::lists::page(&mut self.c, self.now, &mut out);
        self.turn(caller, out)
    }

    /// One answer, where just one is due.
    pub(crate) fn answer(&mut self, who: &Who, request: Request) -> Answer {
        let mut turn = self.ask(who, request);
        assert_eq!(turn.answers.len(), 1, "{:?}", turn.answers);
        turn.answers.remove(0).1
    }

    pub(crate) fn refusal(&mut self, who: &Who, request: Request) -> Refusal {
        match self.answer(who, request) {
            Answer::Refused(refusal) => refusal,
            Answer::Affected { mut refused, .. } if refused.len() == 1 => refused.remove(0).1,
            answer => panic!("not refused: {answer:?}"),
        }
    }

    /// How many jobs an update was refused for.
    pub(crate) fn refusals(&mut self, who: &Who, request: Request) -> usize {
        affected(self.answer(who, request)).1.len()
    }

    pub(crate) fn turn(&mut self, caller: CallerId, mut out: Out) -> Turn {
        let (events, mut answers) = (std::mem::take(&mut out.events), std::mem::take(&mut out.answers));
        // Nodes hear of ends in time.
        answers.extend(std::mem::take(&mut self.c.todo.heeded).into_iter().map(|(caller, answer, _)| (caller, answer)));
        Turn { caller, events, sends: self.sends(out), answers }
    }

    /// A node's share of a step ends; what follows for the job's steps.
    pub(crate) fn end_step_on(&mut self, key: StepKey, node: NodeId, code: u8) -> Turn {
        self.end_step_with(key, node, ExitCode { code, signal: 0 })
    }

    pub(crate) fn end_step_with(&mut self, key: StepKey, node: NodeId, exit: ExitCode) -> Turn {
        let end = StepEnd { exit, started: self.now, ended: self.now, ..StepEnd::default() };
        let (job, attempt, step) = (key.job, key.attempt, key.step);
        self.commit(Event::StepNodesEnded { job, attempt, step, nodes: NodeSet::one(node), end, cut: None });
        self.settle(job)
    }

    pub(crate) fn settle(&mut self, job: JobId) -> Turn {
        let mut out = Out::default();
        desk::settle(&mut self.c, self.now, job, &mut out);
        self.turn(CallerId(0), out)
    }

    pub(crate) fn hold_of(&self, id: JobId) -> Hold {
        self.c.state.jobs[&id].queue.hold
    }
}

/// What one request led to.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) caller: CallerId,
    pub(crate) events: Vec<Event>,
    pub(crate) sends: Vec<(NodeId, Down)>,
    pub(crate) answers: Vec<(CallerId, Answer)>,
}

/// Jobs by id.
pub(crate) fn these(ids: &[JobId]) -> JobSelection {
    JobSelection { ids: ids.iter().map(|&id| JobRef::Job(id)).collect(), ..JobSelection::default() }
}

pub(crate) fn tasks(array: JobId, first: u32, last: u32) -> JobSelection {
    JobSelection { ids: vec![JobRef::Tasks(array, IndexSet::range(first, last))], ..JobSelection::default() }
}

pub(crate) fn cancel(jobs: JobSelection) -> Request {
    Request::Cancel { jobs, signal: None, step: None, verbose: true }
}

/// The names in an `Affected`, and the refusals by name.
pub(crate) fn affected(answer: Answer) -> (Vec<String>, BTreeMap<String, Refusal>) {
    let Answer::Affected { jobs, refused } = answer else { panic!("{answer:?}") };
    let refused = refused.into_iter().map(|(name, refusal)| (name.to_string(), refusal)).collect();
    (jobs.iter().map(ToString::to_string).collect(), refused)
}

pub(crate) fn attempt(job: JobId, attempt: u32) -> JobAttempt {
    JobAttempt { job, attempt: Attempt(attempt) }
}

pub(crate) fn nodes(ids: &[u32]) -> NodeSet {
    ids.iter().map(|&id| NodeId(id)).collect()
}
