//! A tree of node machines with a controller at its root, for tests. Messages arrive at once and in order. Every
//! message that would go over a wire is encoded and decoded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::encoding::{Decoded, Encoded};
use squall_model::event::Event;
use squall_model::id::{Attempt, ClientKey, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobAttempt, JobKind, JobSpec, Need, Owner};
use squall_model::resource::Hardware;
use squall_model::series::Used;
use squall_model::set::NodeSet;
use squall_model::step::StepSpec;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Chunk, DownFrame, Downward, UpFrame, Upward};

use crate::control::Cast;
use crate::control::state::State;
use crate::control::{CallerId, Controller, Input, LinkId, Out, Who};
use crate::fabric::{Dial, NetInput, NetOut, shape};
use crate::machine::Machine;
use crate::node::disk::{Disk, end};
use crate::node::{ContentAct, Health, NodeAct, NodeInput, NodeMachine, NodeOut};

/// How long a node that dials waits for an answer of one that hangs.
const GREETING: Span = Span::from_secs(10);

/// Receiver of a message: a node by its number, or the controller (None).
pub(super) type To = Option<usize>;

/// A connection; each end may have closed it.
struct Wire {
    child: usize,
    parent: To,
    child_open: bool,
    parent_open: bool,
}

enum Post {
    Up(u32, UpFrame),
    Down(u32, DownFrame),
    /// The child has closed its end.
    ChildLeft(u32),
    /// The parent has closed its end.
    ParentLeft(u32),
    Opened(u32),
    Dialled(u32),
    DialFailed,
    Node(NodeInput),
    Root(Box<Input>),
}

/// A node: its daemon, while it runs, and its disk.
pub(super) struct Node {
    pub(super) machine: Option<NodeMachine>,
    pub(super) disk: Disk,
    parent: Option<u32>,
    /// All actions that the node's machine has asked for.
    pub(super) acts: Vec<NodeAct>,
    /// Bytes of files that the node has sent to other nodes.
    pub(super) passed: u64,
}

fn bytes_of(frame: &DownFrame) -> u64 {
    let bytes = |say: &Downward| if let Downward::Chunk(chunk) = say { chunk.bytes.0.len() as u64 } else { 0 };
    frame.says.iter().map(bytes).sum()
}

/// The tree with all that is under way in it.
pub(super) struct Grove {
    pub(super) now: Time,
    pub(super) c: Controller,
    pub(super) nodes: Vec<Node>,
    width: usize,
    wires: BTreeMap<u32, Wire>,
    last: u32,
    queue: VecDeque<(To, Post)>,
    /// Processes that hang: nodes by number (None: the controller). Messages for them are in `waiting`.
    stalled: BTreeSet<To>,
    waiting: Vec<(To, Post)>,
    later: BTreeMap<(Time, u32), (To, Post)>,
    pub(super) events: Vec<Event>,
    pub(super) answers: Vec<(CallerId, Answer)>,
    /// Number of composites (messages of merged reports) that the controller received; `reports` counts the reports in
    /// them.
    pub(super) composites: u64,
    pub(super) reports: u64,
    keys: u128,
    config: Config,
    /// Returns whether a multicast chunk at this offset arrives at this node. None: there is no multicast.
    pub(super) air: Option<fn(usize, u64) -> bool>,
    /// Bytes that the controller sent by multicast.
    pub(super) cast: u64,
}

fn over_the_wire<T: Encoded + Decoded>(frame: &T) -> T {
    squall_model::encoding::from_slice(&squall_model::encoding::to_vec(frame)).unwrap()
}

pub(super) fn name(node: usize) -> String {
    format!("n{node}")
}

impl Grove {
    /// Makes `count` nodes in a healthy tree of that width, all in session.
    pub(super) fn new(count: usize, width: usize) -> Self {
        let config = Config { node_lost_s: 1 << 30, ..Config::default() };
        let mut grove = Self {
            now: Time::from_secs(1_800_000_000),
            c: Controller::new(State::default()),
            nodes: Vec::new(),
            width,
            wires: BTreeMap::new(),
            last: 0,
            queue: VecDeque::new(),
            stalled: BTreeSet::new(),
            waiting: Vec::new(),
            later: BTreeMap::new(),
            events: Vec::new(),
            answers: Vec::new(),
            composites: 0,
            reports: 0,
            keys: 0,
            config,
            air: None,
            cast: 0,
        };
        grove.start_root();
        for _ in 0..count {
            let (disk, acts) = (Disk::default(), Vec::new());
            grove.nodes.push(Node { machine: None, disk, parent: None, acts, passed: 0 });
        }
        (0..count).for_each(|node| grove.boot(node));
        grove.run();
        assert_eq!(grove.connected(), count);
        grove.quiet();
        grove
    }

    /// Resets the counters and records of the test.
    pub(super) fn quiet(&mut self) {
        (self.composites, self.reports) = (0, 0);
        self.answers.clear();
        self.nodes.iter_mut().for_each(|node| node.acts.clear());
    }

    /// Turns multicast on.
    pub(super) fn open_air(&mut self, arrives: fn(usize, u64) -> bool) {
        self.air = Some(arrives);
        self.queue.push_back((None, Post::Root(Box::new(Input::Multicast { secret: [7; 32] }))));
        self.run();
    }

    fn broadcast(&mut self, cast: &Cast) {
        self.cast += cast.bytes.0.len() as u64;
        let Some(arrives) = self.air else { panic!("there is no multicast") };
        for (at, node) in self.nodes.iter().enumerate() {
            let heard = node.acts.iter().find_map(|act| match act {
                NodeAct::Content(ContentAct::Hear { content, stream, key }) if *stream == cast.stream => {
                    assert_eq!(*key, cast.key);
                    Some(*content)
                }
                _ => None,
            });
            if let Some(content) = heard.filter(|_| arrives(at, cast.at)) {
                let (to, bytes) = (NodeSet::new(), cast.bytes.clone());
                let chunk = Chunk { to, cascade: None, content, at: cast.at, bytes };
                self.queue.push_back((Some(at), Post::Node(NodeInput::Net(NetInput::Beside(chunk)))));
            }
        }
        if cast.last {
            let told = Box::new(Input::CastOut { stream: cast.stream });
            self.queue.push_back((None, Post::Root(told)));
        }
    }

    pub(super) fn connected(&self) -> usize {
        self.c.links.connected().len()
    }

    pub(super) fn id(&self, node: usize) -> NodeId {
        self.c.state().node_id(&name(node)).unwrap()
    }

    pub(super) fn ids(&self, nodes: impl IntoIterator<Item = usize>) -> NodeSet {
        nodes.into_iter().map(|node| self.id(node)).collect()
    }

    /// Returns the present parent of a node (None: the controller).
    pub(super) fn parent(&self, node: usize) -> To {
        self.wires[&self.nodes[node].parent.unwrap()].parent
    }

    /// Returns the nodes above a node in a healthy tree, nearest first.
    pub(super) fn above(&self, node: usize) -> Vec<usize> {
        shape::above(node, self.nodes.len(), self.width)
    }

    fn start_root(&mut self) {
        let (config, version, host) = (Box::new(self.config.clone()), "1".into(), "head".into());
        self.queue.push_back((None, Post::Root(Box::new(Input::Start { config, version, host }))));
        self.run();
    }
}

/// Starts, deaths and broken connections.
impl Grove {
    /// Starts a node's daemon.
    pub(super) fn boot(&mut self, node: usize) {
        let above = self.above(node).into_iter().map(name).collect();
        let hardware = Hardware { cpus: 64, memory_mb: 64_000, ..Hardware::default() };
        let (machine, found) = self.nodes[node].disk.boot(&name(node), above, hardware);
        self.nodes[node].machine = Some(machine);
        self.queue.extend(found.into_iter().map(|input| (Some(node), Post::Node(input))));
        self.tick(node);
    }

    /// Kills a node's daemon (kill -9).
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].machine = None;
        self.nodes[node].parent = None;
        self.die(Some(node));
    }

    /// Kills the controller (kill -9) and starts another one from its journal.
    pub(super) fn restart_root(&mut self) {
        self.die(None);
        self.c = Controller::new(self.c.state().clone());
        self.start_root();
    }

    fn die(&mut self, who: To) {
        self.stalled.remove(&who);
        self.queue.retain(|(to, _)| *to != who);
        self.waiting.retain(|(to, _)| *to != who);
        self.later.retain(|_, (to, _)| *to != who);
        for (&wire, ends) in &mut self.wires {
            if Some(ends.child) == who && std::mem::take(&mut ends.child_open) {
                self.queue.push_back((ends.parent, Post::ChildLeft(wire)));
            }
            if ends.parent == who && std::mem::take(&mut ends.parent_open) {
                self.queue.push_back((Some(ends.child), Post::ParentLeft(wire)));
            }
        }
    }

    /// Makes a process hang: nothing reaches it, and it does nothing.
    pub(super) fn stall(&mut self, who: To) {
        self.stalled.insert(who);
    }

    /// Ends a process's hang.
    pub(super) fn wake(&mut self, who: To) {
        if self.stalled.remove(&who) {
            let (its, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(to, _)| *to == who);
            self.waiting = others;
            let its: Vec<_> = its;
            its.into_iter().rev().for_each(|post| self.queue.push_front(post));
        }
    }

    /// Breaks the connection of a node to its parent; both sides notice.
    pub(super) fn cut(&mut self, node: usize) {
        let Some(wire) = self.nodes[node].parent else { return };
        let Some(ends) = self.wires.get_mut(&wire) else { return };
        self.queue.push_back((Some(node), Post::ParentLeft(wire)));
        self.queue.push_back((ends.parent, Post::ChildLeft(wire)));
    }
}

/// Delivery of messages, and time.
impl Grove {
    /// Delivers messages until none is left.
    pub(super) fn run(&mut self) {
        while let Some((to, post)) = self.queue.pop_front() {
            if self.stalled.contains(&to) {
                self.waiting.push((to, post));
            } else {
                self.arrive(to, post);
            }
        }
    }

    fn arrive(&mut self, to: To, post: Post) {
        match (post, to) {
            (Post::Node(input), Some(node)) => self.step(node, input),
            (Post::Root(input), None) => self.step_root(*input),
            (Post::DialFailed, Some(node)) => self.step(node, NodeInput::Net(NetInput::DialFailed)),
            (Post::Dialled(wire), Some(node)) => {
                if let Some(old) = self.nodes[node].parent.replace(wire) {
                    self.leave(old);
                }
                self.step(node, NodeInput::Net(NetInput::ParentOpened));
            }
            (Post::Down(wire, frame), Some(node)) => {
                if self.nodes[node].parent == Some(wire) {
                    self.step(node, NodeInput::Net(NetInput::FromParent(Box::new(over_the_wire(&frame)))));
                }
            }
            (Post::ParentLeft(wire), Some(node)) => {
                if self.nodes[node].parent == Some(wire) {
                    self.nodes[node].parent = None;
                    self.leave(wire);
                    self.step(node, NodeInput::Net(NetInput::ParentClosed));
                }
            }
            (Post::Opened(wire), _) => self.parent_side(wire, NetInput::ChildOpened { link: wire }),
            (Post::ChildLeft(wire), _) => {
                if self.wires.get_mut(&wire).is_some_and(|ends| std::mem::take(&mut ends.parent_open)) {
                    self.parent_side(wire, NetInput::ChildClosed { link: wire });
                }
            }
            (Post::Up(wire, frame), _) => {
                if self.wires.get(&wire).is_some_and(|ends| ends.parent_open) {
                    let frame = Box::new(over_the_wire(&frame));
                    self.parent_side(wire, NetInput::FromChild { link: wire, frame });
                }
            }
            _ => unreachable!("what is for nodes only, or for the controller only"),
        }
    }

    fn parent_side(&mut self, wire: u32, input: NetInput) {
        if let Some(node) = self.wires[&wire].parent {
            return self.step(node, NodeInput::Net(input));
        }
        let link = LinkId(u64::from(wire));
        let input = match input {
            NetInput::ChildOpened { .. } => Input::Opened { link, name: None },
            NetInput::FromChild { frame, .. } => {
                for say in &frame.says {
                    if let Upward::Composite { composite, .. } = say {
                        self.composites += 1;
                        self.reports += composite.reports;
                    }
                }
                Input::Frame { link, frame }
            }
            _ => Input::Lost { link },
        };
        self.step_root(input);
    }

    /// Closes the child's end of a connection.
    fn leave(&mut self, wire: u32) {
        let Some(ends) = self.wires.get_mut(&wire) else { return };
        if std::mem::take(&mut ends.child_open) {
            self.queue.push_back((ends.parent, Post::ChildLeft(wire)));
        }
    }

    /// Closes the parent's end of a connection.
    fn drop_child(&mut self, wire: u32) {
        let Some(ends) = self.wires.get_mut(&wire) else { return };
        ends.parent_open = false;
        self.queue.push_back((Some(ends.child), Post::ParentLeft(wire)));
    }

    fn step(&mut self, at: usize, input: NodeInput) {
        let node = &mut self.nodes[at];
        let Some(machine) = &mut node.machine else { return };
        let mut out = NodeOut::default();
        machine.step(self.now, input, &mut out);
        assert!(!out.exit, "{:?}", out.acts);
        for act in out.acts {
            self.queue.extend(node.disk.act(&act).into_iter().map(|input| (Some(at), Post::Node(input))));
            node.acts.push(act);
        }
        self.carry_out(at, out.net);
    }

    fn carry_out(&mut self, at: usize, net: NetOut) {
        if let (Some(frame), Some(wire)) = (net.up, self.nodes[at].parent) {
            self.queue.push_back((self.wires[&wire].parent, Post::Up(wire, frame)));
        }
        for (wire, frame) in net.down {
            self.nodes[at].passed += bytes_of(&frame);
            self.queue.push_back((Some(self.wires[&wire].child), Post::Down(wire, frame)));
        }
        net.drop.into_iter().for_each(|wire| self.drop_child(wire));
        if net.hang_up
            && let Some(wire) = self.nodes[at].parent.take()
        {
            self.leave(wire);
        }
        if let Some(dial) = net.dial {
            self.dial(at, &dial);
        }
        for (name, chunk) in net.beside {
            self.nodes[at].passed += chunk.bytes.0.len() as u64;
            let to = name[1..].parse().unwrap();
            self.queue.push_back((Some(to), Post::Node(NodeInput::Net(NetInput::Beside(chunk)))));
        }
    }

    fn dial(&mut self, child: usize, to: &Dial) {
        let parent: To = match to {
            Dial::Controller => None,
            Dial::Node(name) => Some(name[1..].parse().unwrap()),
        };
        self.last += 1;
        if parent.is_some_and(|parent| self.nodes[parent].machine.is_none()) {
            return self.queue.push_back((Some(child), Post::DialFailed));
        }
        if self.stalled.contains(&parent) {
            self.later.insert((self.now + GREETING, self.last), (Some(child), Post::DialFailed));
            return;
        }
        self.wires.insert(self.last, Wire { child, parent, child_open: true, parent_open: true });
        self.queue.push_back((parent, Post::Opened(self.last)));
        self.queue.push_back((Some(child), Post::Dialled(self.last)));
    }

    fn step_root(&mut self, input: Input) {
        let mut out = Out::default();
        self.c.step(self.now, input, &mut out);
        for (link, frame) in out.sends {
            let wire = link.0 as u32;
            self.queue.push_back((Some(self.wires[&wire].child), Post::Down(wire, frame)));
        }
        out.drops.into_iter().for_each(|link| self.drop_child(link.0 as u32));
        out.casts.iter().for_each(|cast| self.broadcast(cast));
        self.events.extend(out.events);
        self.answers.extend(out.answers);
    }

    fn tick(&mut self, node: usize) {
        self.queue.push_back((Some(node), Post::Node(NodeInput::Tick { health: Health::default() })));
    }

    fn due(&self) -> Option<Time> {
        let root = Some(&self.c).filter(|_| !self.stalled.contains(&None)).and_then(Machine::deadline);
        let live = (0..self.nodes.len()).filter(|&node| !self.stalled.contains(&Some(node)));
        let nodes = live.filter_map(|node| self.nodes[node].machine.as_ref()?.deadline());
        nodes.chain(root).chain(self.later.keys().next().map(|(at, _)| *at)).min()
    }

    /// Lets a span of time pass.
    pub(super) fn pass(&mut self, span: Span) {
        self.run();
        let end = self.now + span;
        for _ in 0..100_000 {
            let Some(due) = self.due().filter(|due| *due <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(due);
            while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= self.now) {
                self.queue.push_back(first.remove());
            }
            for node in 0..self.nodes.len() {
                let deadline = self.nodes[node].machine.as_ref().and_then(NodeMachine::deadline);
                if deadline.is_some_and(|due| due <= self.now) {
                    self.tick(node);
                }
            }
            self.queue.push_back((None, Post::Root(Box::new(Input::Tick))));
            self.run();
        }
        panic!("too many ticks");
    }

    /// Lets seconds pass.
    pub(super) fn pass_s(&mut self, seconds: u64) {
        self.pass(Span::from_secs(seconds));
    }
}

/// Requests of users, and ends of tasks.
impl Grove {
    /// Sends a request of the client `caller`, as an operator, to the controller.
    pub(super) fn ask(&mut self, caller: u64, request: Request) {
        let owner = Owner { user: "root".into(), group: "root".into(), ..Owner::default() };
        let (caller, who) = (CallerId(caller), Who { owner: Arc::new(owner), operator: true, by: None, job: None });
        let input = Input::Ask { caller, who, request: Box::new(request) };
        self.queue.push_back((None, Post::Root(Box::new(input))));
        self.run();
    }

    /// Ends a client's connection.
    pub(super) fn hang_up(&mut self, caller: u64) {
        self.queue.push_back((None, Post::Root(Box::new(Input::Hangup { caller: CallerId(caller), away: false }))));
        self.run();
    }

    fn key(&mut self) -> ClientKey {
        self.keys += 1;
        ClientKey(self.keys)
    }

    /// Submits a batch job on `nodes` nodes.
    pub(super) fn submit(&mut self, nodes: u32) -> JobId {
        let need = Need { nodes_min: Some(nodes), ..Need::default() };
        let spec = Arc::new(JobSpec { name: "job".into(), work_dir: "/".into(), need, ..JobSpec::default() });
        let (script, env, key) = (b"#!/bin/sh\n".to_vec().into(), Vec::new().into(), self.key());
        let id = JobId(self.c.state().last_id.0 + 1);
        self.ask(1, Request::Submit { spec, script, env, key });
        id
    }

    /// Starts a step of one task on each of `nodes` nodes, in an allocation of its own.
    pub(super) fn step_on(&mut self, nodes: u32) -> StepKey {
        let need = Need { nodes_min: Some(nodes), ntasks: Some(nodes), ntasks_per_node: Some(1), ..Need::default() };
        let kind = JobKind::Allocation;
        let spec = Arc::new(JobSpec { name: "job".into(), work_dir: "/".into(), need, kind, ..JobSpec::default() });
        let (env, key, job) = (Vec::new().into(), self.key(), JobId(self.c.state().last_id.0 + 1));
        self.ask(2, Request::Allocate { spec, env, key, immediate_s: None, step: None });
        let (spec, key) = (StepSpec { nodes_min: Some(nodes), ntasks: Some(nodes), ..StepSpec::default() }, self.key());
        self.ask(2, Request::CreateStep { job, spec: Box::new(spec), program: Box::default(), key });
        StepKey { job, attempt: Attempt(1), step: StepNo(0) }
    }

    pub(super) fn attempt(&self, job: JobId) -> JobAttempt {
        JobAttempt { job, attempt: self.c.state().jobs[&job].attempt }
    }

    /// Ends the tasks of a step on a node; returns whether any were running.
    pub(super) fn finish(&mut self, node: usize, key: StepKey, code: u8) -> bool {
        let ended = self.nodes[node].disk.finish(key, end(code));
        let lives = ended.is_some();
        // A daemon that is away finds the end in the spool.
        if self.nodes[node].machine.is_some() {
            self.queue.extend(ended.map(|input| (Some(node), Post::Node(input))));
        }
        lives
    }

    /// Ends the tasks of a step on some nodes.
    pub(super) fn finish_on(&mut self, nodes: impl IntoIterator<Item = usize>, key: StepKey, code: u8) {
        for node in nodes {
            self.finish(node, key, code);
        }
    }

    /// Lets the step daemon of a node report the usage of its tasks.
    pub(super) fn say_usage(&mut self, node: usize, key: StepKey, used: Used) {
        self.queue.push_back((Some(node), Post::Node(NodeInput::Used { key, used })));
        self.run();
    }

    /// Lets the step daemon of a node acknowledge that the step is to end.
    pub(super) fn heed(&mut self, node: usize, key: StepKey) {
        self.queue.push_back((Some(node), Post::Node(NodeInput::Ending { key })));
        self.run();
    }

    /// Ends all tasks of a step.
    pub(super) fn finish_all(&mut self, key: StepKey, code: u8) {
        self.finish_on(0..self.nodes.len(), key, code);
    }

    /// Releases a job's allocation.
    pub(super) fn release(&mut self, job: JobId) {
        self.ask(2, Request::Finish { job, exit: squall_model::job::ExitCode::OK });
    }

    /// Returns how many nodes have reported an attempt as gone; checks that none did twice.
    pub(super) fn epilogs(&self, of: JobAttempt) -> usize {
        let mut all = NodeSet::new();
        for event in &self.events {
            if let Event::NodesReleased { id, attempt, nodes } = event
                && (JobAttempt { job: *id, attempt: *attempt }) == of
            {
                assert!(all.is_disjoint(nodes), "{of:?} ended twice on {:?}", all.intersection(nodes));
                all.union_with(nodes);
            }
        }
        all.len()
    }

    /// Returns how many nodes reported each exit code of a step; checks that none did twice.
    pub(super) fn ends(&self, key: StepKey) -> BTreeMap<u8, usize> {
        let (mut all, mut ends) = (NodeSet::new(), BTreeMap::new());
        for event in &self.events {
            if let Event::StepNodesEnded { job, attempt, step, nodes, end, cut: None } = event
                && (StepKey { job: *job, attempt: *attempt, step: *step }) == key
            {
                assert!(all.is_disjoint(nodes), "{key} ended twice on {:?}", all.intersection(nodes));
                all.union_with(nodes);
                *ends.entry(end.exit.code).or_default() += nodes.len();
            }
        }
        ends
    }
}
