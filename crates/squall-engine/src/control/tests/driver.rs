//! A controller with pretended nodes and clients; after every step replay and snapshot must equal the live state.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, ClientKey, Incarnation, JobId, Session, StepKey, StepNo};
use squall_model::interface::Interface;
use squall_model::job::network;
use squall_model::job::options::{Chosen, Options};
use squall_model::job::{ExitCode, JobAttempt, JobKind, JobSpec, JobState, Owner};
use squall_model::report::{Report, StepEnd};
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Request};
use squall_model::wire::fabric::{Composite, DownFrame, Health, Newer, UpFrame};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::{Down, Registration};

use crate::control::controller::Controller;
use crate::control::port::{CallerId, Input, LinkId, Out, PowerProgram, Program, Who};
use crate::control::state::State;
use crate::control::state::snapshot::Part;
use crate::fabric::child::Child;
use crate::machine::Machine;

/// A user who is no operator.
pub(super) const ADA: u32 = 1000;

/// A controller, its journal, and what it said.
pub(super) struct Driver {
    pub(super) c: Controller,
    pub(super) now: Time,
    pub(super) config: Config,
    /// What replay makes of the journal so far.
    replayed: State,
    links: u64,
    keys: u128,
    nodes: Vec<Node>,
    /// Messages that nodes got and that no test has looked at.
    pub(super) sent: Vec<(String, Down)>,
    /// Answers that no test has looked at.
    pub(super) answers: Vec<(CallerId, Answer)>,
    /// Programs of this host that were started and that no test has looked at.
    pub(super) programs: Vec<Program>,
    /// Programs for the power of nodes that were started and that no test has looked at.
    pub(super) power: Vec<PowerProgram>,
    /// Names of removed nodes that the host was told to revoke and that no test has looked at.
    pub(super) gone: Vec<String>,
    pub(super) exit: bool,
    pub(super) drops: Vec<LinkId>,
    /// A node has heard a newer controller.
    pub(super) newer: Option<Newer>,
    /// Nodes neither answer nor beat.
    silence: bool,
}

/// A pretended node.
struct Node {
    name: String,
    incarnation: Incarnation,
    cpus: u32,
    link: LinkId,
    child: Child,
    last: UpFrame,
    /// On the connection before this one.
    old: Option<(LinkId, Child)>,
}

/// The address of a node `n1`, `n2` …: 10.0.0.1, 10.0.0.2 …
pub(super) fn interface(node: u8) -> Interface {
    Interface { address: 0xffff_0a00_0000 + u128::from(node), prefix: 120 }
}

pub(super) fn who(uid: u32) -> Who {
    let owner = Owner { uid, gid: uid, groups: vec![uid], user: format!("u{uid}"), group: format!("g{uid}") };
    Who { owner: Arc::new(owner), operator: uid == 0, by: None, job: None }
}

pub(super) fn these(id: JobId) -> JobSelection {
    JobSelection { ids: vec![JobRef::Job(id)], ..JobSelection::default() }
}

/// Options about the network, by their names.
pub(super) fn in_network(pairs: &[(&str, &str)]) -> Options {
    let mut chosen = Chosen::default();
    for (option, value) in pairs {
        match *option {
            "network" => chosen.network.class = Some(network::class(value)),
            "geometry" => chosen.network.geometry = network::geometry(value),
            "grid" => chosen.network.grid = network::grid(value),
            "stencil" => chosen.network.stencil = network::stencil(value),
            "switches" => chosen.network.switches = network::switches(value),
            "groups" => chosen.network.groups = network::groups(value),
            other => panic!("{other}"),
        }
    }
    chosen.into()
}

/// A batch job of one task.
pub(super) fn batch() -> JobSpec {
    JobSpec { name: "job".into(), work_dir: "/".into(), ..JobSpec::default() }
}

pub(super) fn array(last: u32, limit: Option<u32>) -> JobSpec {
    let indices = squall_model::set::IndexSet::range(0, last);
    let array = squall_model::job::ArraySpec { indices, limit, text: String::new() };
    JobSpec { array: Some(array), ..batch() }
}

impl Driver {
    /// A started controller without nodes.
    pub(super) fn empty(config: Config) -> Self {
        Self::speaking(ClusterVersion::OWN, config)
    }
    /// A started controller of a release that can work with this version at most.
    pub(super) fn speaking(newest: ClusterVersion, config: Config) -> Self {
        let mut driver = Self {
            c: Controller::new(State::default()),
            now: Time::from_secs(1_800_000_000),
            config,
            replayed: State::default(),
            links: 0,
            keys: 0,
            nodes: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            programs: Vec::new(),
            power: Vec::new(),
            gone: Vec::new(),
            exit: false,
            drops: Vec::new(),
            newer: None,
            silence: false,
        };
        driver.c.speak(newest);
        driver.start();
        driver
    }
    /// A cluster of so many nodes n1, n2, … of so many CPUs.
    pub(super) fn new(nodes: u32, cpus: u32) -> Self {
        let mut driver = Self::empty(Config::default());
        for n in 1..=nodes {
            driver.add_node(&format!("n{n}"), cpus);
        }
        driver
    }
    fn start(&mut self) {
        let mut config = Box::new(self.config.clone());
        config.complete();
        self.step(Input::Start { config, version: "1".into(), host: "head".into() });
    }
    /// Kills the controller; another starts from the journal, and the nodes that still stand register.
    pub(super) fn restart(&mut self) {
        self.c = Controller::new(self.replayed.clone());
        (self.sent, self.answers) = (Vec::new(), Vec::new());
        self.start();
    }
    /// The journal is that of a backup: what was decided in the seconds since is lost.
    pub(super) fn restore(&mut self, seconds: u64) {
        self.c = Controller::new(self.replayed.clone());
        self.c.restore(Span::from_secs(seconds));
        (self.sent, self.answers) = (Vec::new(), Vec::new());
        self.start();
    }
    /// What the journal gives now.
    pub(super) fn replayed(&self) -> State {
        self.replayed.clone()
    }
    /// The journal is replaced by an older one.
    pub(super) fn replayed_from(&mut self, state: &State) {
        self.replayed.clone_from(state);
    }
    /// The journal lacks its end, of so many seconds, and the controller is started with `--accept-loss`.
    pub(super) fn accept_loss(&mut self, seconds: u64) {
        self.c = Controller::new(self.replayed.clone());
        self.c.accept_loss();
        self.c.restore(Span::from_secs(seconds));
        (self.sent, self.answers) = (Vec::new(), Vec::new());
        self.start();
    }
    pub(super) fn add_node(&mut self, name: &str, cpus: u32) {
        let (incarnation, child) = (Incarnation(1), Child::default());
        let last = UpFrame { hop: 0, says: Vec::new() };
        self.nodes.push(Node { name: name.into(), incarnation, cpus, link: LinkId(0), child, last, old: None });
        self.register(name, &[]);
    }
    /// A node connects and says which jobs it knows; their scripts run there.
    pub(super) fn register(&mut self, name: &str, jobs: &[JobAttempt]) {
        let script = |job: &JobAttempt| StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH };
        self.register_with(name, jobs, &jobs.iter().map(script).collect::<Vec<_>>());
    }
    /// A node connects and says which jobs and steps it knows.
    pub(super) fn register_with(&mut self, name: &str, jobs: &[JobAttempt], steps: &[StepKey]) {
        self.connect(name);
        self.knock(name);
        self.identify(name, jobs, steps);
    }
    /// A node has a new connection; the one before is left as it is.
    pub(super) fn connect(&mut self, name: &str) {
        self.links += 1;
        let link = LinkId(self.links);
        let node = self.node(name);
        let child = Child::new(node.child.node);
        node.old = Some((node.link, std::mem::replace(&mut node.child, child)));
        node.link = link;
        self.step(Input::Opened { link, name: None });
    }
    /// A node wants to register.
    pub(super) fn knock(&mut self, name: &str) {
        self.say(name, |child| child.knock(name));
    }
    /// A node registers under the session that it was offered last.
    pub(super) fn identify(&mut self, name: &str, jobs: &[JobAttempt], steps: &[StepKey]) {
        let registration = self.registration(name, jobs, steps);
        self.say(name, |child| child.register(registration));
    }
    /// A registration under the session that was offered last.
    pub(super) fn registration(&mut self, name: &str, jobs: &[JobAttempt], steps: &[StepKey]) -> Registration {
        let node = self.node(name);
        let interfaces =
            name.strip_prefix('n').and_then(|number| number.parse().ok()).map(|number| vec![interface(number)]);
        let memory_mb = 1000 * u64::from(node.cpus);
        let hardware = Hardware { cpus: node.cpus, memory_mb, interfaces, ..Hardware::default() };
        Registration {
            unstarted: Vec::new(),
            name: name.into(),
            session: node.child.offered,
            incarnation: node.incarnation,
            hardware,
            jobs: jobs.to_vec(),
            steps: steps.to_vec(),
            last_job: JobId(0),
            health: Health::default(),
            version: "1".into(),
            heard: Session::default(),
            speaks: ClusterVersion::OWN,
        }
    }
    /// A frame of a node.
    pub(super) fn say(&mut self, name: &str, say: impl FnOnce(&mut Child) -> UpFrame) {
        let node = self.node(name);
        let (link, frame) = (node.link, Box::new(say(&mut node.child)));
        node.last = UpFrame::clone(&frame);
        self.step(Input::Frame { link, frame });
    }
    /// A node's last frame comes again.
    pub(super) fn repeat_last(&mut self, name: &str) {
        let Node { link, last, .. } = self.node(name);
        let (link, frame) = (*link, Box::new(last.clone()));
        self.step(Input::Frame { link, frame });
    }
    /// A frame on the connection before the last.
    pub(super) fn say_on_old_link(&mut self, name: &str, say: impl FnOnce(&mut Child) -> UpFrame) {
        let (link, child) = self.node(name).old.as_mut().expect("it had one before");
        let (link, frame) = (*link, Box::new(say(child)));
        self.step(Input::Frame { link, frame });
    }
    /// The node loses all that it knew.
    pub(super) fn reboot(&mut self, name: &str) {
        self.reboot_knowing(name, &[]);
    }
    /// The node restarts, and knows of these that they never began.
    pub(super) fn reboot_knowing(&mut self, name: &str, unstarted: &[JobAttempt]) {
        let node = self.node(name);
        node.incarnation = Incarnation(node.incarnation.0 + 1);
        self.connect(name);
        self.knock(name);
        let registration = Registration { unstarted: unstarted.to_vec(), ..self.registration(name, &[], &[]) };
        self.say(name, |child| child.register(registration));
    }
    pub(super) fn lose(&mut self, name: &str) {
        let link = self.node(name).link;
        self.step(Input::Lost { link });
    }
    /// The connection before the last one ends.
    pub(super) fn lose_old_link(&mut self, name: &str) {
        let link = self.node(name).old.take().expect("it had one before").0;
        self.step(Input::Lost { link });
    }
    /// The session that a node was offered on the connection before the last.
    pub(super) fn offered_before(&mut self, name: &str) -> Session {
        self.node(name).old.as_ref().expect("it had one before").1.offered
    }
    /// Whether a node is in session.
    pub(super) fn connected(&self, name: &str) -> bool {
        self.c.state().node_id(name).is_some_and(|id| self.c.links.connected().contains(id))
    }
    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.name == name).unwrap()
    }
    /// One input; whatever comes of it must survive replay and snapshot.
    pub(super) fn step(&mut self, input: Input) {
        let mut out = Out::default();
        self.c.step(self.now, input, &mut out);
        let record = Record { seq: 1, time: self.now, events: out.events };
        let bytes = squall_model::encoding::to_vec(&record);
        self.replayed.apply_record(&squall_model::encoding::from_slice::<Record>(&bytes).unwrap());
        assert_eq!(&self.replayed, self.c.state(), "replay differs");
        let parts = self.c.state().parts().map(|part| {
            let bytes = squall_model::encoding::to_vec(&part);
            squall_model::encoding::from_slice::<Part>(&bytes).unwrap().restore().unwrap()
        });
        assert_eq!(&State::assemble(parts).unwrap(), self.c.state(), "snapshot differs");
        for (link, frame) in out.sends {
            self.deliver(link, frame);
        }
        self.answers.extend(out.answers);
        self.programs.extend(out.programs);
        self.power.extend(out.power);
        self.gone.extend(out.gone);
        self.drops.extend(out.drops);
        self.newer = out.newer.or(self.newer.take());
        self.exit |= out.exit;
    }
    fn deliver(&mut self, link: LinkId, frame: DownFrame) {
        if let Some((_, old)) = self.nodes.iter_mut().filter_map(|node| node.old.as_mut()).find(|old| old.0 == link) {
            old.hear(frame);
            return;
        }
        let Some(node) = self.nodes.iter_mut().find(|node| node.link == link) else { return };
        let messages = node.child.hear(frame);
        self.sent.extend(messages.into_iter().map(|message| (node.name.clone(), message)));
    }
    /// Time passes; the machine is called whenever it asked for it, and connected nodes answer what they are asked.
    pub(super) fn pass(&mut self, seconds: u64) {
        let end = self.now + Span::from_secs(seconds);
        for _ in 0..100_000 {
            match self.c.deadline() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.step(Input::Tick);
                    self.answer();
                    assert!(self.c.deadline().is_none_or(|next| next > self.now), "it would spin");
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("too many ticks");
    }
    /// Time passes; no node says anything.
    pub(super) fn pass_in_silence(&mut self, seconds: u64) {
        self.silence = true;
        self.pass(seconds);
        self.silence = false;
    }
    /// Nodes answer what they were asked.
    pub(super) fn answer(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            if let Some(frame) = node.child.answer().filter(|_| !self.silence) {
                let link = node.link;
                self.step(Input::Frame { link, frame: Box::new(frame) });
            }
        }
    }
    /// An event as some verb would decide it, and what follows.
    pub(super) fn commit(&mut self, event: Event) {
        let mut out = Out::default();
        self.c.commit(self.now, event, &mut out);
        let record = Record { seq: 1, time: self.now, events: out.events };
        self.replayed.apply_record(&record);
        self.step(Input::Tick);
    }
    pub(super) fn cancel(&mut self, id: JobId) {
        let request = Request::Cancel { jobs: these(id), signal: None, step: None, verbose: false };
        self.ask(99, ADA, request);
    }
    pub(super) fn ask(&mut self, caller: u64, uid: u32, request: Request) -> Vec<Answer> {
        let caller = CallerId(caller);
        self.step(Input::Ask { caller, who: who(uid), request: Box::new(request) });
        self.take_answers(caller)
    }
    pub(super) fn take_answers(&mut self, caller: CallerId) -> Vec<Answer> {
        let (own, others) = std::mem::take(&mut self.answers).into_iter().partition(|(to, _)| *to == caller);
        self.answers = others;
        let own: Vec<(CallerId, Answer)> = own;
        own.into_iter().map(|(_, answer)| answer).collect()
    }
    pub(super) fn key(&mut self) -> ClientKey {
        self.keys += 1;
        ClientKey(self.keys)
    }
    pub(super) fn submit_with(&mut self, key: ClientKey, spec: JobSpec) -> Vec<Answer> {
        let request = match spec.kind {
            JobKind::Batch => {
                let script = b"#!/bin/sh\n".to_vec().into();
                Request::Submit { spec: Arc::new(spec), script, env: Vec::new().into(), key }
            }
            _ => Request::Allocate { spec: Arc::new(spec), env: Vec::new().into(), key, immediate_s: None, step: None },
        };
        self.ask(1, ADA, request)
    }
    pub(super) fn submit(&mut self, spec: JobSpec) -> JobId {
        let key = self.key();
        let answers = self.submit_with(key, spec);
        let Some(Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
        *job
    }
    pub(super) fn state_of(&self, id: JobId) -> Option<JobState> {
        self.c.state().jobs.get(&id).map(|job| job.state())
    }
    pub(super) fn attempt(&self, id: JobId) -> JobAttempt {
        let attempt = self.c.state().jobs.get(&id).map_or(Attempt(0), |job| job.attempt);
        JobAttempt { job: id, attempt }
    }
    /// Jobs of which a node was told to start the script since the last look, and on which node.
    pub(super) fn launched(&mut self) -> Vec<(JobAttempt, String)> {
        let launched = self.sent.iter().filter_map(|(node, message)| match message {
            Down::StartJob { facts, batch: Some(_) } => {
                Some((JobAttempt { job: facts.key.job, attempt: facts.key.attempt }, node.clone()))
            }
            _ => None,
        });
        let launched = launched.collect();
        self.sent.retain(|(_, message)| !matches!(message, Down::StartJob { .. }));
        launched
    }
    /// Jobs that nodes were told to end since the last look.
    pub(super) fn ended(&mut self) -> Vec<(JobAttempt, String)> {
        let ended = self.sent.iter().filter_map(|(node, message)| match message {
            Down::EndJob { job, .. } => Some((*job, node.clone())),
            _ => None,
        });
        let ended = ended.collect();
        self.sent.retain(|(_, message)| !matches!(message, Down::EndJob { .. }));
        ended
    }
    /// A node reports.
    pub(super) fn report(&mut self, name: &str, reports: &[Report]) {
        self.say(name, |child| child.report(reports));
        assert_eq!(self.node(name).child.unconfirmed(), 0, "reports are taken at once");
    }
    /// A node reports about a program, or about itself.
    pub(super) fn note(&mut self, name: &str, note: NodeNote) {
        self.say(name, |child| {
            let notes = Some(vec![(child.node.expect("it was welcomed"), note)]);
            child.composite(Composite { notes, reports: 1, ..Composite::default() })
        });
    }
    /// A program of this host ends.
    pub(super) fn program_ends(&mut self, error: Option<&str>) {
        let program = self.programs.remove(0);
        let error = error.map(str::to_owned);
        self.step(Input::ProgramEnded { job: program.job, hook: program.hook, error });
    }
    /// What a node says when a script has ended there.
    pub(super) fn script_end(&self, id: JobId, code: u8) -> Vec<Report> {
        let job = self.attempt(id);
        let key = StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH };
        let mut end = self.end(code);
        if matches!(self.state_of(id), Some(JobState::Completing(_))) {
            end.note_told();
        }
        vec![Report::StepEnded { key, end }, Report::JobGone { job }]
    }
    pub(super) fn end(&self, code: u8) -> StepEnd {
        StepEnd { exit: ExitCode { code, signal: 0 }, started: self.now, ended: self.now, ..StepEnd::default() }
    }
    /// The script of a job ends on the first of its nodes.
    pub(super) fn finish(&mut self, id: JobId, code: u8) {
        let run = self.c.state().jobs[&id].run().unwrap();
        let node = self.c.state().node(run.batch_node().unwrap()).unwrap().name.clone();
        let reports = self.script_end(id, code);
        self.report(&node, &reports);
    }
}
