//! Machines that stand in the middle of their work and get whatever decodes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use squall_engine::control::state::State;
use squall_engine::control::{CallerId, Controller, Input, LinkId, Out, Who};
use squall_engine::fabric::child::Child;
use squall_engine::fabric::proof::Pinned;
use squall_engine::fabric::{Delivery, NetInput, NetOut, Relay};
use squall_engine::machine::Machine;
use squall_engine::node::{Boot, NodeInput, NodeMachine, NodeOut};
use squall_engine::wireup::pmi::{Pmi, PmiAct};
use squall_model::config::{Config, HealthConfig, Hooks};
use squall_model::encoding;
use squall_model::event::Record;
use squall_model::id::{ClientKey, Incarnation, JobId, Session};
use squall_model::job::{ArraySpec, JobSpec, Owner};
use squall_model::resource::Hardware;
use squall_model::runs::Runs;
use squall_model::set::IndexSet;
use squall_model::step::{Distribution, Layout};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::fabric::{DownFrame, Downward, Health, UpFrame, Upward};
use squall_model::wire::info::JobsPage;
use squall_model::wire::node::Registration;

/// The longest input that machines get: longer ones say nothing that shorter ones don't, but more slowly.
const BYTES_MAX: usize = 4096;
const NOW: Time = Time::from_secs(1_800_000_000);
/// User ids of the callers: an operator and two users.
const USERS: [u32; 3] = [0, 1000, 1001];

/// Splits bytes into pieces, each behind a byte of choice and two bytes of length.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[kind, low, high], rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        bytes = rest;
        Some((kind, piece))
    })
}

fn who(uid: u32) -> Who {
    let owner = Owner { uid, gid: uid, groups: vec![uid], user: format!("u{uid}"), group: format!("g{uid}") };
    Who { owner: Arc::new(owner), operator: uid == 0, by: None, job: None }
}

/// A controller with two nodes.
struct Cluster {
    controller: Controller,
    now: Time,
    nodes: Vec<Child>,
    /// The state that replaying the events so far gives; None: the target does not compare it.
    replayed: Option<State>,
    answers: Vec<Answer>,
}

impl Cluster {
    fn of(state: State, replayed: Option<State>) -> Self {
        let nodes = vec![Child::default(), Child::default()];
        let mut cluster = Self { controller: Controller::new(state), now: NOW, nodes, replayed, answers: Vec::new() };
        let mut config = Box::new(Config::default());
        config.complete();
        cluster.step(Input::Start { config, version: "1".into(), host: "head".into() });
        (0..2).for_each(|at| cluster.register(at));
        cluster
    }

    /// A cluster with a running job, a pending one and an array, made once.
    fn busy() -> Self {
        static STATE: OnceLock<State> = OnceLock::new();
        let state = STATE.get_or_init(|| {
            let mut new = Self::of(State::default(), Some(State::default()));
            for (key, array) in [(1, None), (2, None), (3, Some(IndexSet::range(0, 9)))] {
                let array = array.map(|indices| ArraySpec { indices, limit: Some(2), text: String::new() });
                let spec = JobSpec { name: "job".into(), work_dir: "/".into(), array, ..JobSpec::default() };
                let spec = Arc::new(JobSpec { hold: key == 2, ..spec });
                let (script, env) = (b"#!/bin/sh\n".to_vec().into(), Vec::new().into());
                let request = Request::Submit { spec, script, env, key: ClientKey(key) };
                new.ask(1000, request);
            }
            new.pass(5);
            new.replayed.take().expect("it was asked for")
        });
        Self::of(state.clone(), None)
    }

    fn register(&mut self, at: usize) {
        let (link, name) = (LinkId(at as u64 + 1), format!("n{}", at + 1));
        self.step(Input::Opened { link, name: Some(name.clone()) });
        let knock = self.nodes[at].knock(&name);
        self.frame(at, knock);
        let registration = Registration {
            unstarted: Vec::new(),
            name,
            session: self.nodes[at].offered,
            incarnation: Incarnation(1),
            hardware: Hardware { cpus: 4, memory_mb: 4000, ..Hardware::default() },
            jobs: Vec::new(),
            steps: Vec::new(),
            last_job: JobId(0),
            health: Health::default(),
            version: "1".into(),
            heard: Session::default(),
            speaks: ClusterVersion::OWN,
        };
        let frame = self.nodes[at].register(registration);
        self.frame(at, frame);
    }

    fn frame(&mut self, at: usize, frame: UpFrame) {
        self.step(Input::Frame { link: LinkId(at as u64 + 1), frame: Box::new(frame) });
    }

    fn ask(&mut self, uid: u32, request: Request) {
        self.step(Input::Ask { caller: CallerId(u64::from(uid)), who: who(uid), request: Box::new(request) });
    }

    fn step(&mut self, input: Input) {
        let mut out = Out::default();
        self.controller.step(self.now, input, &mut out);
        if let Some(replayed) = &mut self.replayed {
            let record = Record { seq: 1, time: self.now, events: out.events };
            let bytes = encoding::to_vec(&record);
            replayed.apply_record(&encoding::from_slice(&bytes).expect("its own record"));
            assert_eq!(replayed, self.controller.state(), "replay differs");
        }
        for (link, frame) in out.sends {
            if let Some(node) = self.nodes.get_mut((link.0 as usize).wrapping_sub(1)) {
                node.hear(frame);
            }
        }
        self.answers.extend(out.answers.into_iter().map(|(_, answer)| answer));
    }

    fn pass(&mut self, seconds: u64) {
        let end = self.now + Span::from_secs(seconds);
        for _ in 0..1000 {
            match self.controller.deadline() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.step(Input::Tick);
                }
                _ => break,
            }
        }
        self.now = end;
    }
}

/// Returns the page of jobs that squeue gets of a busy cluster.
pub(crate) fn page() -> JobsPage {
    let mut cluster = Cluster::busy();
    cluster.ask(0, Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false });
    let mut pages = cluster.answers.into_iter().filter_map(|answer| match answer {
        Answer::Jobs(page) => Some(*page),
        _ => None,
    });
    pages.next().unwrap_or_default()
}

/// Requests of an operator and two users; replay must give the same state.
pub(crate) fn controller(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let requests: Vec<(u8, Request)> =
        pieces(bytes).filter_map(|(kind, piece)| Some((kind, encoding::from_slice(piece).ok()?))).collect();
    if requests.is_empty() {
        return;
    }
    let mut cluster = Cluster::busy();
    cluster.replayed = Some(cluster.controller.state().clone());
    for (kind, request) in requests {
        cluster.ask(USERS[usize::from(kind) % USERS.len()], request);
        if kind >= 128 {
            cluster.pass(60);
        }
    }
}

/// Messages of a node that proved its key: about itself and, as it may be rooted, about everything.
pub(crate) fn reports(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let says: Vec<Upward> = pieces(bytes).filter_map(|(_, piece)| encoding::from_slice(piece).ok()).collect();
    if says.is_empty() {
        return;
    }
    let mut cluster = Cluster::busy();
    cluster.replayed = Some(cluster.controller.state().clone());
    for say in says {
        let frame = cluster.nodes[0].say(vec![say]);
        cluster.frame(0, frame);
    }
    cluster.pass(1);
}

/// Messages of a parent for a node.
pub(crate) fn node(bytes: &[u8]) {
    let says: Vec<Downward> = pieces(bytes).filter_map(|(_, piece)| encoding::from_slice(piece).ok()).collect();
    if says.is_empty() || bytes.len() > BYTES_MAX {
        return;
    }
    let mut machine = NodeMachine::new(Boot {
        name: "n1".into(),
        incarnation: Incarnation(1),
        life: 1,
        session: Session::default(),
        above: Vec::new(),
        hardware: Hardware { cpus: 4, memory_mb: 4000, ..Hardware::default() },
        version: "1".into(),
        pinned: Pinned::default(),
        hooks: Hooks::default(),
        health: HealthConfig::default(),
        fenced: BTreeSet::new(),
    });
    let mut out = NodeOut::default();
    machine.step(NOW, NodeInput::Net(NetInput::ParentOpened), &mut out);
    for (hop, say) in (1..).zip(says) {
        let frame = Box::new(DownFrame { hop, says: vec![say] });
        machine.step(NOW, NodeInput::Net(NetInput::FromParent(frame)), &mut out);
    }
}

/// Messages of a child and of the parent for a relay.
pub(crate) fn relay(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let mut relay = Relay::new(vec!["n0".into()]);
    let (mut local, mut out): (Vec<Delivery>, _) = (Vec::new(), NetOut::default());
    relay.take(NOW, NetInput::ParentOpened, &mut local, &mut out);
    relay.take(NOW, NetInput::ChildOpened { link: 1 }, &mut local, &mut out);
    let (mut up, mut down) = (1, 1);
    for (kind, piece) in pieces(bytes) {
        if kind % 2 == 0 {
            let Ok(say) = encoding::from_slice::<Upward>(piece) else { continue };
            let frame = Box::new(UpFrame { hop: up, says: vec![say] });
            relay.take(NOW, NetInput::FromChild { link: 1, frame }, &mut local, &mut out);
            up += 1;
        } else {
            let Ok(say) = encoding::from_slice::<Downward>(piece) else { continue };
            let frame = Box::new(DownFrame { hop: down, says: vec![say] });
            relay.take(NOW, NetInput::FromParent(frame), &mut local, &mut out);
            down += 1;
        }
    }
    relay.settle(NOW, (|_: &_| 0, |_: &_| None, Health::default()), &mut local, &mut out);
}

thread_local! {
    static LAYOUT: RefCell<Option<Layout>> = const { RefCell::new(None) };
}

/// What two tasks say over `PMI_FD`, and what all ranks have brought to a barrier.
pub(crate) fn pmi(bytes: &[u8]) {
    let layout = LAYOUT.with_borrow_mut(|layout| {
        layout
            .get_or_insert_with(|| Layout {
                nodes: ["n1"].into_iter().collect(),
                tasks: Runs::from_iter([2]),
                distribution: Distribution::Block,
                cpus_per_task: 1,
                ports: None,
            })
            .clone()
    });
    let (mut pmi, mut out) = (Pmi::new("7.0".into(), &layout, &[0, 1]), Vec::new());
    for (kind, piece) in pieces(bytes) {
        match kind % 4 {
            rank @ 0..2 => pmi.hear(u32::from(rank), piece, &mut out),
            2 => pmi.gathered(Ok(piece), &mut out),
            _ => pmi.named(u32::from(kind / 4 % 2), Ok(std::str::from_utf8(piece).ok()), &mut out),
        }
    }
    let barriers: Vec<Vec<u8>> =
        out.into_iter().filter_map(|act| if let PmiAct::Barrier(data) = act { Some(data) } else { None }).collect();
    for data in &barriers {
        pmi.gathered(Ok(data), &mut Vec::new());
    }
}
