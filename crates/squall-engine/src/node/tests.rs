//! Tests of a node machine in a small world that crashes it, cuts its link and kills its step daemons.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use squall_model::id::{Attempt, Epoch, JobId, NodeId, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::report::{Report, StepEnd};
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::step::{BatchStart, Distribution, JobFacts, Layout, StepStart};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::{Comparison, Composite, DownFrame, Query, Test, UpFrame, Upward, Variable, Window};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::{Down, EndReason, Registration, SignalTarget};
use squall_model::wire::stepd::ToStepd;

use crate::control::net::links::Links;
use crate::control::{LinkId, Out};
use crate::fabric::child::composite_of;
use crate::fabric::{Dial, NetInput};
use crate::machine::Machine;
use crate::node::disk::{Disk, Spooled, end};
use crate::node::{Boot, Health, NodeAct, NodeInput, NodeMachine, NodeOut, attempt_of};

mod checkpoint;
mod ends;
mod fence;
mod found;
mod hooks;
mod proven;

fn key(job: u32, step: StepNo) -> StepKey {
    StepKey { job: JobId(job), attempt: Attempt(1), step }
}

fn facts(key: StepKey, nodes: usize) -> JobFacts {
    JobFacts {
        key: StepKey { step: StepNo::BATCH, ..key },
        nodes: (0..nodes).map(|n| format!("n{n}")).collect(),
        ids: (0..nodes as u32).map(NodeId).collect(),
        cpus: vec![1; nodes].into(),
        memory_mb: vec![500; nodes].into(),
        tasks: vec![1; nodes].into(),
        ..JobFacts::default()
    }
}

/// The node under test; jobs on several nodes have their script here.
const HERE: NodeId = NodeId(0);

fn start_job(key: StepKey, nodes: usize) -> Down {
    let batch = BatchStart { node: HERE, cores: CoreSet::default(), kill_wait_s: 30, leased: false, report: false };
    Down::StartJob { facts: Arc::new(facts(key, nodes)), batch: Some(batch) }
}

fn start_step(key: StepKey, nodes: usize) -> Down {
    let facts = Arc::new(facts(key, nodes));
    let mut shares = Alloc::default();
    for node in facts.ids.iter() {
        shares.push(node, CoreSet::default(), 0);
    }
    let tasks = vec![1; nodes].into();
    let layout =
        Layout { nodes: facts.nodes.clone(), tasks, distribution: Distribution::Block, cpus_per_task: 1, ports: None };
    Down::StartStep(Box::new(StepStart { key, facts, layout, shares, kill_wait_s: 30, ..StepStart::default() }))
}

/// One node machine, with its host and its controller.
struct World {
    now: Time,
    machine: NodeMachine,
    disk: Disk,
    inputs: VecDeque<NodeInput>,
    acts: Vec<NodeAct>,
    exited: bool,
    // State of the controller.
    epoch: u64,
    root: Links,
    link: LinkId,
    /// Number of the last message on the present connection.
    hop: u64,
    registrations: u64,
    next_beat: Time,
    /// Whether the controller sends heartbeat queries.
    beats: bool,
    /// Whether the next frame to the node gets lost.
    lose_next: bool,
    lost: Option<DownFrame>,
    running: BTreeMap<JobAttempt, usize>,
    over: BTreeSet<JobAttempt>,
    gone: BTreeSet<JobAttempt>,
    ended: BTreeMap<StepKey, Vec<Report>>,
    notes: Vec<NodeNote>,
    /// Whether the controller is slow, so that frames to it wait.
    mute: bool,
    unheard: Vec<UpFrame>,
}

impl World {
    fn is_live(&self, key: StepKey) -> bool {
        self.machine.jobs.get(&attempt_of(key)).is_some_and(|job| job.is_live(key.step))
    }
    fn new() -> Self {
        let mut world = Self {
            now: Time::from_secs(1000),
            machine: NodeMachine::new(Boot::default()),
            disk: Disk::default(),
            inputs: VecDeque::new(),
            acts: Vec::new(),
            exited: false,
            epoch: 1,
            root: Links::default(),
            link: LinkId(0),
            hop: 0,
            registrations: 0,
            next_beat: Time::from_secs(1000),
            beats: true,
            lose_next: false,
            lost: None,
            running: BTreeMap::new(),
            over: BTreeSet::new(),
            gone: BTreeSet::new(),
            ended: BTreeMap::new(),
            notes: Vec::new(),
            mute: false,
            unheard: Vec::new(),
        };
        world.root.begin(Epoch(1));
        world.boot();
        world
    }

    /// Kills the daemon (kill -9) and starts it again.
    fn boot(&mut self) {
        self.inputs.clear();
        self.disconnect();
        self.acts.clear();
        let (machine, found) = self.disk.boot("n1", Vec::new(), Hardware::default());
        self.machine = machine;
        self.inputs.extend(found);
        self.inputs.push_back(NodeInput::Tick { health: Health::default() });
        self.run();
    }

    /// Replaces the controller with a new one.
    fn restart_controller(&mut self) {
        self.epoch += 1;
        self.disconnect();
        self.root = Links::default();
        self.root.begin(Epoch(self.epoch));
        self.inputs.push_back(NodeInput::Net(NetInput::ParentClosed));
    }

    /// Drops the connection with all that is under way on it.
    fn disconnect(&mut self) {
        self.root.closed(self.link);
        self.unheard.clear();
        self.lose_next = false;
        self.inputs.retain(|input| !matches!(input, NodeInput::Net(_)));
    }

    fn connect(&mut self) {
        self.disconnect();
        self.link.0 += 1;
        self.root.opened(self.now, self.link, (Window::default(), Span::from_secs(10)), None);
        self.inputs.push_back(NodeInput::Net(NetInput::ParentOpened));
    }

    /// Sends what the controller has for the node.
    fn flush(&mut self) {
        let mut out = Out::default();
        self.root.flush(self.now, &mut out);
        for (_, frame) in out.sends {
            self.hop = frame.hop + frame.says.len() as u64 - 1;
            if std::mem::take(&mut self.lose_next) {
                self.lost = Some(frame);
            } else {
                self.inputs.push_back(NodeInput::Net(NetInput::FromParent(Box::new(frame))));
            }
        }
    }

    fn run(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            let mut out = NodeOut::default();
            self.machine.step(self.now, input, &mut out);
            for act in out.acts {
                self.inputs.extend(self.disk.act(&act));
                self.acts.push(act);
            }
            if out.net.hang_up {
                self.disconnect();
            }
            if let Some(frame) = out.net.up {
                self.unheard.push(frame);
            }
            if let Some(dial) = out.net.dial {
                assert_eq!(dial, Dial::Controller);
                self.connect();
            }
            self.exited |= out.exit;
            self.controller();
        }
    }

    fn finish(&mut self, key: StepKey, end: StepEnd) {
        self.inputs.extend(self.disk.finish(key, end));
    }

    fn orphan(&mut self, key: StepKey) {
        if let Some((_, state @ Spooled::Alive)) = self.disk.spool.get_mut(&key) {
            *state = Spooled::Orphaned;
            self.inputs.push_back(NodeInput::Orphaned { key });
            self.run();
        }
    }

    /// Lets the controller handle the frames that have come, and send what follows.
    fn controller(&mut self) {
        if !self.mute {
            for frame in std::mem::take(&mut self.unheard) {
                assert_eq!(self.root.next(self.now, self.link, &frame), Some(true), "{frame:?}");
                for say in frame.says {
                    if let Upward::Composite { batch, composite } = say {
                        self.take(*composite);
                        self.root.taken(self.link, batch);
                    }
                }
            }
        }
        self.flush();
    }

    fn take(&mut self, composite: Composite) {
        let ended = composite.ended.iter().flat_map(|(key, ends)| ends.iter().map(|(_, end)| (*key, end.clone())));
        for (key, end) in ended {
            self.over(key, Report::StepEnded { key, end });
        }
        for (_, failure) in composite.failed {
            let (key, error, node_fault) = (failure.key, failure.error, failure.node_fault);
            self.over(key, Report::LaunchFailed { key, error, node_fault });
        }
        self.notes.extend(composite.notes.into_iter().flatten().map(|(_, note)| note));
        for (job, nodes) in composite.gone {
            self.root.know_job(job, &nodes);
            self.running.remove(&job);
            self.over.insert(job);
            self.gone.insert(job);
        }
        for (route, name) in composite.knocks {
            self.root.offer(self.link, route, name);
        }
        for registration in composite.registrations {
            self.register(&registration);
        }
    }

    fn over(&mut self, key: StepKey, report: Report) {
        self.root.know_step(key, &NodeSet::one(HERE));
        if key.step == StepNo::BATCH && self.running.remove(&attempt_of(key)).is_some() {
            self.over.insert(attempt_of(key));
            self.end(key.job.0, 30);
        }
        let known = self.ended.entry(key).or_default();
        if !known.contains(&report) {
            known.push(report);
        }
    }

    fn register(&mut self, registration: &Registration) {
        let Some(offer) = self.root.take_offer(&registration.name, registration.session) else { return };
        self.registrations += 1;
        self.root.welcome(HERE, (offer, registration.name.clone()), ("1".into(), ClusterVersion::OWN));
        let wanted: Vec<_> = self.running.iter().map(|(job, nodes)| (*job, *nodes)).collect();
        for (job, nodes) in wanted {
            if !registration.steps.contains(&key(job.job.0, StepNo::BATCH)) {
                self.start(job.job.0, nodes);
            }
        }
        for job in self.over.difference(&self.gone).copied().collect::<Vec<_>>() {
            self.end(job.job.0, 0);
        }
    }

    fn send(&mut self, messages: Vec<Down>) {
        for message in messages {
            self.root.push(HERE, message);
        }
        self.flush();
    }

    fn start(&mut self, job: u32, nodes: usize) {
        let key = key(job, StepNo::BATCH);
        if !self.over.contains(&attempt_of(key)) {
            self.running.insert(attempt_of(key), nodes);
            self.send(vec![start_job(key, nodes)]);
        }
    }

    fn order(&mut self, message: Down) {
        self.send(vec![message]);
        self.run();
    }

    fn end(&mut self, job: u32, kill_wait_s: u64) {
        let job = attempt_of(key(job, StepNo::BATCH));
        self.running.remove(&job);
        self.over.insert(job);
        self.send(vec![Down::EndJob { job, kill_wait_s, cont: true, why: EndReason::Cancelled, exit: None }]);
    }

    fn tick(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            let dues = [self.machine.deadline(), self.root.deadline(), Some(self.next_beat)];
            let Some(due) = dues.into_iter().flatten().min().filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            self.beat();
            self.inputs.push_back(NodeInput::Tick { health: Health::default() });
            self.run();
            assert!(
                self.machine.deadline().is_none_or(|next| next > self.now),
                "a tick must deal with what is due: {:?} at {:?}",
                self.machine,
                self.now
            );
        }
        self.now = until;
    }

    /// Sends the controller's heartbeat query, and closes a connection that has been silent too long.
    fn beat(&mut self) {
        if self.next_beat <= self.now {
            self.next_beat = self.now + Span::from_secs(10);
            let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
            let (to, time_us) = (NodeSet::one(HERE), 5_000_000);
            if self.beats {
                self.root.ask(Query {
                    epoch: Epoch(0),
                    number: 0,
                    to,
                    test,
                    wait: false,
                    time_us,
                    health: false,
                    heard: Vec::new(),
                });
            }
        }
        if !self.root.silent(self.now).is_empty() {
            self.disconnect();
            self.inputs.push_back(NodeInput::Net(NetInput::ParentClosed));
        }
        self.flush();
    }

    fn reports_of(&self, key: StepKey) -> usize {
        self.ended.get(&key).map_or(0, Vec::len)
    }
}

const BATCH: StepNo = StepNo::BATCH;

#[test]
fn the_end_of_a_script_on_one_node_is_told_with_its_jobs_end() {
    let mut world = World::new();
    world.start(1, 1);
    world.run();
    assert_eq!(world.disk.started[&key(1, BATCH)], 1);
    world.finish(key(1, BATCH), end(3));
    world.inputs.clear();
    let mut out = NodeOut::default();
    world.machine.step(world.now, NodeInput::Ended { key: key(1, BATCH), end: end(3) }, &mut out);
    let job = attempt_of(key(1, BATCH));
    assert_eq!((out.acts, out.net.up), (vec![NodeAct::Sweep { job }], None));
    let mut out = NodeOut::default();
    world.machine.step(world.now, NodeInput::Swept { job }, &mut out);
    let expected = [Report::StepEnded { key: key(1, BATCH), end: end(3) }, Report::JobGone { job }];
    let frame = out.net.up.expect("it has something to say");
    assert!(
        matches!(&frame.says[..], [Upward::Composite { composite, .. }] if **composite == composite_of(HERE, &expected)),
        "{frame:?}"
    );
    world.unheard.push(frame);
    world.controller();
    world.run();
    assert!(world.disk.spool.is_empty() && world.machine.jobs.is_empty());
    assert!(world.acts.contains(&NodeAct::ForgetJob { job }));
}

#[test]
fn a_sweep_that_takes_long_does_not_delay_the_end_of_the_script() {
    let mut world = World::new();
    world.disk.slow_sweep = true;
    world.start(1, 1);
    world.run();
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert_eq!(world.reports_of(key(1, BATCH)), 0);
    world.tick(Span::from_secs(2));
    assert_eq!(world.reports_of(key(1, BATCH)), 1);
    assert!(world.gone.is_empty());
    world.inputs.push_back(NodeInput::Swept { job: attempt_of(key(1, BATCH)) });
    world.run();
    assert_eq!(world.gone.len(), 1);
    assert!(world.disk.spool.is_empty());
}

#[test]
fn each_node_takes_its_own_share_of_what_all_are_told() {
    let mut world = World::new();
    let (job, step) = (key(1, BATCH), key(1, StepNo(0)));
    let elsewhere =
        BatchStart { node: NodeId(1), cores: CoreSet::default(), kill_wait_s: 30, leased: false, report: false };
    world.send(vec![Down::StartJob { facts: Arc::new(facts(job, 2)), batch: Some(elsewhere) }, start_step(step, 2)]);
    world.run();
    assert!(!world.disk.started.contains_key(&job), "the script runs elsewhere");
    assert!(world.acts.iter().any(|a| matches!(a, NodeAct::OpenJob { memory_mb: 500, batch: false, .. })));
    let launch = &world.disk.spool[&step].0;
    assert_eq!((launch.node.as_str(), launch.node_index, launch.ranks()), ("n0", 0, vec![0]));
}

/// Makes a message that starts a job on the first core. Jobs after the first are leased: they wait if the core is
/// taken.
fn leased(job: u32) -> Down {
    let batch = BatchStart { node: HERE, cores: CoreSet::first(1), kill_wait_s: 30, leased: job > 1, report: false };
    Down::StartJob { facts: Arc::new(facts(key(job, BATCH), 1)), batch: Some(batch) }
}

/// Returns the jobs of which the scripts were started, in order.
fn started(world: &World) -> Vec<u32> {
    let spawned = world.acts.iter().filter_map(|act| match act {
        NodeAct::Spawn(launch) => Some(launch.key.job.0),
        _ => None,
    });
    spawned.collect()
}

#[test]
fn leased_jobs_begin_one_after_the_other_when_the_one_before_is_gone() {
    let mut world = World::new();
    world.send((1..=4).map(leased).collect());
    world.run();
    assert_eq!(started(&world), [1]);
    world.mute = true;
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert_eq!(started(&world), [1, 2], "the controller need not say anything");
    world.mute = false;
    world.send(vec![Down::Recall { job: attempt_of(key(2, BATCH)) }, Down::Recall { job: attempt_of(key(3, BATCH)) }]);
    world.run();
    assert!(world.is_live(key(2, BATCH)), "it had begun");
    assert!(world.gone.contains(&attempt_of(key(3, BATCH))));
    world.send(vec![leased(4)]);
    world.finish(key(2, BATCH), end(0));
    world.run();
    assert_eq!(started(&world), [1, 2, 4], "who was given back does not begin, and nobody twice");
}

/// The report of a failed launch is not on disk: a daemon that dies finds the job unstarted, and the controller sends it again.
#[test]
fn the_next_in_line_waits_until_a_failed_launch_is_known() {
    let mut world = World::new();
    world.send((1..=3).map(leased).collect());
    world.run();
    world.mute = true;
    world.inputs.push_back(NodeInput::Failed { key: key(1, BATCH), error: "no".into(), node_fault: true });
    world.run();
    assert_eq!(started(&world), [1], "the cores are not free before the controller knows");
    world.mute = false;
    world.inputs.push_back(NodeInput::Tick { health: Health::default() });
    world.run();
    assert_eq!(started(&world), [1, 2]);
}

/// A job that is known here without its script gets it like any leased job: after those before it, and once.
#[test]
fn a_job_without_its_script_waits_in_line() {
    let mut world = World::new();
    let open = Down::StartJob { facts: Arc::new(facts(key(2, BATCH), 1)), batch: None };
    world.send(vec![leased(1), open, leased(2), leased(2)]);
    world.run();
    assert_eq!(started(&world), [1]);
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert_eq!(started(&world), [1, 2]);
}

#[test]
fn ends_wait_for_each_other_as_long_as_there_are_jobs_in_hand() {
    let mut world = World::new();
    world.send((1..=4).map(leased).collect());
    world.run();
    for job in [1, 2] {
        world.finish(key(job, BATCH), end(0));
        world.run();
    }
    assert_eq!(started(&world), [1, 2, 3]);
    assert!(world.ended.is_empty(), "nobody waits for these");
    world.now = world.machine.deadline().unwrap();
    world.inputs.push_back(NodeInput::Tick { health: Health::default() });
    world.run();
    assert_eq!(world.ended.len(), 2, "but not for long");
    world.finish(key(3, BATCH), end(0));
    world.run();
    assert!(world.ended.contains_key(&key(3, BATCH)), "without a job in hand the node asks for more at once");
}

#[test]
fn who_waits_is_told_of_and_ended_without_having_begun() {
    let mut world = World::new();
    world.send((1..=3).map(leased).collect());
    world.run();
    world.end(2, 30);
    world.run();
    assert!(world.gone.contains(&attempt_of(key(2, BATCH))) && world.is_live(key(1, BATCH)));
    assert_eq!(world.machine.leased().collect::<Vec<_>>(), [attempt_of(key(3, BATCH))]);
    world.boot();
    assert_eq!(world.machine.leased().count(), 0, "a daemon that dies forgets it");
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert_eq!(world.disk.started.len(), 1);
}

#[test]
fn steps_left_by_a_script_get_term_then_kill() {
    let mut world = World::new();
    world.start(1, 1);
    world.run();
    let step = key(1, StepNo(0));
    world.send(vec![start_step(step, 1)]);
    world.run();
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert_eq!(world.reports_of(key(1, BATCH)), 1, "not kept back while steps live");
    assert!(
        world.acts.iter().any(|a| matches!(a, NodeAct::Tell { message: ToStepd::End { kill_wait_s: 30, .. }, .. }))
    );
    world.orphan(step);
    world.tick(Span::from_secs(29));
    assert!(!world.acts.contains(&NodeAct::KillStep { key: step }));
    world.tick(Span::from_secs(2));
    assert!(world.acts.contains(&NodeAct::KillStep { key: step }), "an orphaned step gets no grace");
    assert_eq!(world.gone.len(), 1);
}

#[test]
fn what_is_not_here_is_said_to_be_gone() {
    let mut world = World::new();
    world.end(5, 30);
    world.send(vec![Down::EndStep { key: key(6, StepNo(1)), kill_wait_s: 0, why: EndReason::None }]);
    world.send(vec![start_step(key(7, StepNo(0)), 1)]);
    world.run();
    assert!(world.gone.contains(&attempt_of(key(5, BATCH))));
    assert!(matches!(&world.ended[&key(6, StepNo(1))][..], [Report::StepEnded { end, .. }] if end.lost));
    assert!(matches!(&world.ended[&key(7, StepNo(0))][..], [Report::LaunchFailed { node_fault: false, .. }]));
    assert!(world.machine.jobs.is_empty());
}

#[test]
fn another_attempt_waits_until_the_first_is_gone() {
    let mut world = World::new();
    world.start(1, 1);
    world.run();
    let second = StepKey { attempt: Attempt(2), ..key(1, BATCH) };
    let start = || start_job(second, 1);
    world.send(vec![start()]);
    world.run();
    assert!(matches!(&world.ended[&second][..], [Report::LaunchFailed { node_fault: true, .. }]));
    assert!(!world.disk.started.contains_key(&second));
    world.finish(key(1, BATCH), end(0));
    world.run();
    world.send(vec![start()]);
    world.run();
    assert_eq!(world.disk.started[&second], 1);
    world.send(vec![start_job(key(1, BATCH), 1)]);
    world.run();
    assert_eq!(world.disk.started[&key(1, BATCH)], 1, "an old attempt never runs again");
}

#[test]
fn who_was_refused_does_not_start_while_that_is_being_told() {
    let mut world = World::new();
    world.start(1, 1);
    world.run();
    world.mute = true;
    let second = StepKey { attempt: Attempt(2), ..key(1, BATCH) };
    world.send(vec![start_job(second, 1)]);
    world.run();
    world.finish(key(1, BATCH), end(0));
    world.run();
    // The obstacle is gone, and a controller that has not had the report yet asks again.
    world.send(vec![start_job(second, 1)]);
    world.run();
    world.mute = false;
    world.controller();
    world.run();
    assert!(matches!(&world.ended[&second][..], [Report::LaunchFailed { node_fault: true, .. }]));
    assert!(!world.disk.started.contains_key(&second));
}

#[test]
fn signals_go_to_the_processes_that_are_meant() {
    let mut world = World::new();
    world.start(1, 1);
    world.send(vec![start_step(key(1, StepNo(0)), 1)]);
    world.run();
    let mut told = |target| {
        world.acts.clear();
        world.send(vec![Down::Signal { job: attempt_of(key(1, BATCH)), target, signal: 10 }]);
        world.run();
        let steps = world.acts.iter().filter_map(|act| match act {
            NodeAct::Tell { key, message: ToStepd::Signal { all, .. } } => Some((key.step, *all)),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    assert_eq!(told(SignalTarget::Steps), [(StepNo(0), false)]);
    assert_eq!(told(SignalTarget::All), [(StepNo(0), false), (BATCH, false)]);
    assert_eq!(told(SignalTarget::Batch), [(BATCH, false)]);
    assert_eq!(told(SignalTarget::Full), [(StepNo(0), false), (BATCH, true)]);
    assert_eq!(told(SignalTarget::Step(StepNo(0))), [(StepNo(0), false)]);
    assert_eq!(told(SignalTarget::Step(StepNo(4))), []);
}

#[test]
fn a_gap_makes_it_register_anew_and_old_puts_are_refused() {
    let mut world = World::new();
    let before = world.registrations;
    world.lose_next = true;
    world.send(vec![start_job(key(8, BATCH), 1)]);
    let lost = world.lost.take().expect("it was lost");
    world.send(vec![start_job(key(9, BATCH), 1)]);
    world.run();
    assert_eq!(world.registrations, before + 1);
    assert!(world.disk.started.is_empty());
    for _ in 0..2 {
        // Sends a frame late, as a relay that still held it might.
        let old = DownFrame { hop: world.hop + 1, ..lost.clone() };
        world.inputs.push_back(NodeInput::Net(NetInput::FromParent(Box::new(old))));
        world.run();
        assert!(world.disk.started.is_empty(), "also a later life refuses them");
        world.boot();
    }
}

#[test]
fn silence_is_answered_by_another_knock() {
    let mut world = World::new();
    let before = world.registrations;
    world.tick(Span::from_secs(3600));
    assert_eq!(world.registrations, before, "heartbeats that are answered keep the session");
    world.beats = false;
    world.tick(Span::from_secs(69));
    assert_eq!(world.registrations, before + 1, "the connection stands, but the controller was not heard of");
}

#[test]
fn what_a_slow_controller_has_not_taken_waits_for_it_and_survives_the_connection() {
    let mut world = World::new();
    world.mute = true;
    world.start(1, 1);
    world.run();
    world.finish(key(1, BATCH), end(2));
    world.run();
    assert_eq!((world.reports_of(key(1, BATCH)), world.unheard.len()), (0, 1));
    world.disconnect();
    world.mute = false;
    world.inputs.push_back(NodeInput::Net(NetInput::ParentClosed));
    world.run();
    assert_eq!((world.reports_of(key(1, BATCH)), world.gone.len()), (1, 1));
    assert!(world.disk.spool.is_empty());
}

#[test]
fn what_was_never_started_waits_for_the_controllers_word() {
    let mut world = World::new();
    world.start(1, 1);
    world.start(2, 1);
    world.run();
    for key in [key(1, BATCH), key(2, BATCH)] {
        world.disk.spool.get_mut(&key).expect("it was spawned").1 = Spooled::Unstarted;
        world.disk.started.remove(&key);
    }
    // The controller has given up the second job meanwhile.
    world.running.remove(&attempt_of(key(2, BATCH)));
    world.boot();
    assert_eq!(world.disk.started.into_iter().collect::<Vec<_>>(), [(key(1, BATCH), 1)]);
    assert_eq!(world.disk.spool.len(), 1);
}

#[test]
fn a_shutdown_ends_everything_and_keeps_the_results() {
    let mut world = World::new();
    world.start(1, 1);
    world.start(2, 2);
    world.run();
    world.send(vec![Down::ShutDown { keep_jobs: false }]);
    world.run();
    assert!(world.exited && world.ended.is_empty());
    assert!(world.disk.spool.values().all(|(_, state)| matches!(state, Spooled::Ended(_))));
    world.boot();
    assert_eq!(world.gone.len(), 2, "told by the next life");
    let mut world = World::new();
    world.start(1, 1);
    world.send(vec![Down::ShutDown { keep_jobs: true }]);
    world.run();
    assert!(world.exited && world.is_live(key(1, BATCH)));
}

/// Makes an event happen to the node: `op` chooses which, `arg` its target.
fn happen(world: &mut World, op: u8, arg: u8) {
    let job = u32::from(arg % 6) + 1;
    let step = key(job, StepNo(u32::from(arg / 6 % 3)));
    match op {
        0..4 => world.start(job, 1 + usize::from(arg / 64)),
        4..6 => {
            if world.running.contains_key(&attempt_of(step)) && !world.disk.started.contains_key(&step) {
                world.send(vec![start_step(step, 1)]);
            }
        }
        6 => world.end(job, u64::from(arg % 2) * 30),
        7 => world.send(vec![Down::EndStep { key: step, kill_wait_s: 5, why: EndReason::None }]),
        8..10 => world.finish(key(job, BATCH), end(arg)),
        10 => world.finish(step, end(arg)),
        11 => world.orphan(key(job, BATCH)),
        12 => world.orphan(step),
        13 => world.boot(),
        14 => {
            world.disconnect();
            world.inputs.push_back(NodeInput::Net(NetInput::ParentClosed));
        }
        15 => world.lose_next = true,
        16 => world.disk.fail_spawns ^= true,
        17 => {
            world.mute ^= true;
            world.controller();
        }
        18 => {
            // A crash between the commit of the folder and the start of its daemon.
            let fresh = world.disk.spool.iter_mut().find(|(key, (_, state))| {
                key.job.0 == job && *state == Spooled::Alive && world.disk.started.get(key) == Some(&1)
            });
            if let Some((key, (_, state))) = fresh {
                *state = Spooled::Unstarted;
                *world.disk.started.get_mut(key).unwrap() -= 1;
                world.boot();
            }
        }
        19 => {
            // A step daemon that reports that it could not start anything.
            let key = key(job, BATCH);
            if let Some((_, state @ Spooled::Alive)) = world.disk.spool.get_mut(&key) {
                *state = Spooled::Failed;
                world.inputs.push_back(NodeInput::Failed { key, error: "no".into(), node_fault: false });
            }
        }
        20 => world.disk.slow_sweep ^= true,
        21 => world.restart_controller(),
        _ => world.tick(Span::from_millis(u64::from(arg) * 100)),
    }
    world.run();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_starts_twice_and_everything_ends(story in prop::collection::vec((0u8..25, any::<u8>()), 1..120)) {
        let mut world = World::new();
        for (op, arg) in story {
            happen(&mut world, op, arg);
            for (key, times) in &world.disk.started {
                prop_assert!(*times <= 1, "{key} started {times} times");
            }
        }
        (world.mute, world.disk.fail_spawns, world.disk.slow_sweep) = (false, false, false);
        world.boot();
        for job in world.running.keys().copied().collect::<Vec<_>>() {
            world.finish(StepKey { job: job.job, attempt: job.attempt, step: BATCH }, end(0));
        }
        world.run();
        world.tick(Span::from_secs(120));
        prop_assert!(world.running.is_empty(), "{:?}", world.running);
        prop_assert_eq!(&world.over, &world.gone);
        prop_assert!(world.machine.jobs.is_empty(), "{:?}", world.machine);
        prop_assert!(world.disk.spool.is_empty() && world.disk.marks.is_empty(), "{:?}", world.disk.spool);
        prop_assert!(world.machine.timers.is_empty());
        let known = world.disk.started.iter().filter(|(_, times)| **times > 0);
        for (key, _) in known {
            prop_assert!(world.reports_of(*key) > 0, "the end of {key} was not told");
        }
    }
}
