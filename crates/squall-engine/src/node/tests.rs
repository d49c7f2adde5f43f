//! A node machine in a small world that crashes it, cuts its link and loses its step daemons.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use squall_model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::report::{Report, StepEnd};
use squall_model::resource::Alloc;
use squall_model::set::CoreSet;
use squall_model::step::{BatchStart, Distribution, JobFacts, Layout, StepLaunch, StepStart};
use squall_model::time::{Span, Time};
use squall_model::wire::node::{Down, DownFrame, EndReason, SignalTarget, UpFrame};
use squall_model::wire::stepd::ToStepd;

use crate::machine::Machine;
use crate::node::{Boot, FoundStep, Health, NodeAct, NodeInput, NodeMachine, NodeOut, attempt_of};
use crate::session::Sender;

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

/// The node of this world; jobs on several nodes have their script here.
const HERE: NodeId = NodeId(0);

fn start_job(key: StepKey, nodes: usize) -> Down {
    let batch = BatchStart { node: HERE, cores: CoreSet::default(), kill_wait_s: 30 };
    Down::StartJob { facts: Box::new(facts(key, nodes)), batch: Some(batch) }
}

fn start_step(key: StepKey, nodes: usize) -> Down {
    let facts = facts(key, nodes);
    let mut shares = Alloc::default();
    facts.ids.iter().for_each(|node| shares.push(node, CoreSet::default(), 0));
    let tasks = vec![1; nodes].into();
    let layout = Layout { nodes: facts.nodes.clone(), tasks, distribution: Distribution::Block, cpus_per_task: 1 };
    Down::StartStep(Box::new(StepStart { key, facts, layout, shares, kill_wait_s: 30, ..StepStart::default() }))
}

fn end(code: u8) -> StepEnd {
    StepEnd { exit: ExitCode { code, signal: 0 }, ..StepEnd::default() }
}

/// What the spool holds of a step.
#[derive(Clone, Debug, PartialEq)]
enum Spooled {
    Unstarted,
    Alive,
    Orphaned,
    Ended(StepEnd),
    Failed,
}

/// The world and the controller around one node machine.
struct World {
    now: Time,
    machine: NodeMachine,
    life: u64,
    session: Session,
    spool: BTreeMap<StepKey, (Box<StepLaunch>, Spooled)>,
    marks: BTreeMap<JobAttempt, Box<JobFacts>>,
    inputs: VecDeque<NodeInput>,
    acts: Vec<NodeAct>,
    /// Every start of tasks, ever.
    started: BTreeMap<StepKey, u32>,
    fail_spawns: bool,
    slow_sweep: bool,
    exited: bool,
    // The controller.
    epoch: u64,
    sender: Option<Sender>,
    running: BTreeMap<JobAttempt, usize>,
    over: BTreeSet<JobAttempt>,
    gone: BTreeSet<JobAttempt>,
    ended: BTreeMap<StepKey, Vec<Report>>,
    taken: u64,
    mute: bool,
}

impl World {
    fn is_live(&self, key: StepKey) -> bool {
        self.machine.jobs.get(&attempt_of(key)).is_some_and(|job| job.is_live(key.step))
    }
    fn new() -> Self {
        let mut world = Self {
            now: Time::from_secs(1000),
            machine: NodeMachine::new(Boot::default()),
            life: 0,
            session: Session::default(),
            spool: BTreeMap::new(),
            marks: BTreeMap::new(),
            inputs: VecDeque::new(),
            acts: Vec::new(),
            started: BTreeMap::new(),
            fail_spawns: false,
            slow_sweep: false,
            exited: false,
            epoch: 1,
            sender: None,
            running: BTreeMap::new(),
            over: BTreeSet::new(),
            gone: BTreeSet::new(),
            ended: BTreeMap::new(),
            taken: 0,
            mute: false,
        };
        world.boot();
        world
    }

    /// kill -9 of the daemon, and its next life.
    fn boot(&mut self) {
        self.life += 1;
        self.sender = None;
        self.inputs.clear();
        self.acts.clear();
        self.machine = NodeMachine::new(Boot {
            name: "n1".into(),
            incarnation: Incarnation(7),
            life: self.life,
            session: self.session,
            ..Boot::default()
        });
        let jobs = self.marks.values().map(|facts| NodeInput::FoundJob { facts: facts.clone() });
        let steps = self.spool.values().map(|(launch, state)| {
            let state = match state {
                Spooled::Unstarted => FoundStep::Unstarted,
                Spooled::Alive => FoundStep::Alive,
                Spooled::Orphaned => FoundStep::Orphaned,
                Spooled::Ended(end) => FoundStep::Ended(end.clone()),
                Spooled::Failed => FoundStep::Failed { error: "no".into(), node_fault: true },
            };
            NodeInput::FoundStep { launch: launch.clone(), state }
        });
        self.inputs.extend(jobs.chain(steps).collect::<Vec<_>>());
        self.inputs.push_back(NodeInput::Linked);
        self.run();
    }

    fn run(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            let mut out = NodeOut::default();
            self.machine.step(self.now, input, &mut out);
            for act in out.acts {
                self.act(&act);
                self.acts.push(act);
            }
            for frame in out.sends {
                self.controller(frame);
            }
            if out.drop_link {
                self.sender = None;
                self.inputs.push_back(NodeInput::Linked);
            }
            self.exited |= out.exit;
        }
    }

    fn act(&mut self, act: &NodeAct) {
        match act {
            NodeAct::SaveSession(session) => self.session = *session,
            NodeAct::OpenJob { facts, batch: false, .. } => {
                self.marks.insert(attempt_of(facts.key), facts.clone());
            }
            NodeAct::Spawn(launch) if self.fail_spawns => {
                self.spool.remove(&launch.key);
                self.inputs.push_back(NodeInput::Failed { key: launch.key, error: "full".into(), node_fault: true });
            }
            NodeAct::Spawn(launch) => {
                self.spool.insert(launch.key, (launch.clone(), Spooled::Alive));
                *self.started.entry(launch.key).or_default() += 1;
            }
            NodeAct::Tell { key, message: ToStepd::End { kill_wait_s: 0, .. } } | NodeAct::KillStep { key } => {
                self.finish(*key, end(9));
            }
            NodeAct::Sweep { job } => {
                let left: Vec<StepKey> = self.spool.keys().copied().filter(|k| attempt_of(*k) == *job).collect();
                for key in left {
                    self.finish(key, end(9));
                }
                if !self.slow_sweep {
                    self.inputs.push_back(NodeInput::Swept { job: *job });
                }
            }
            NodeAct::Forget { key } => {
                self.spool.remove(key);
            }
            NodeAct::ForgetJob { job } => {
                self.marks.remove(job);
                self.spool.retain(|key, _| attempt_of(*key) != *job);
            }
            NodeAct::OpenJob { .. } | NodeAct::Tell { .. } | NodeAct::Say(_) => {}
        }
    }

    fn finish(&mut self, key: StepKey, end: StepEnd) {
        let Some((_, state)) = self.spool.get_mut(&key) else { return };
        if matches!(state, Spooled::Alive | Spooled::Orphaned) {
            *state = Spooled::Ended(end.clone());
            self.inputs.push_back(NodeInput::Ended { key, end });
        }
    }

    fn orphan(&mut self, key: StepKey) {
        if let Some((_, state @ Spooled::Alive)) = self.spool.get_mut(&key) {
            *state = Spooled::Orphaned;
            self.inputs.push_back(NodeInput::Orphaned { key });
            self.run();
        }
    }

    /// The controller takes a frame.
    fn controller(&mut self, frame: UpFrame) {
        match frame {
            UpFrame::Register(registration) => {
                self.epoch += 1;
                let session = Session { epoch: Epoch(self.epoch), number: 1 };
                self.sender = Some(Sender::new(session));
                self.send(vec![Down::Welcome { node: HERE, heartbeat_s: 10 }]);
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
            UpFrame::Reports { session, first, reports } => {
                if self.sender.as_ref().is_none_or(|s| s.session() != session) || self.mute {
                    return;
                }
                for (number, report) in (first..).zip(reports) {
                    if number > self.taken {
                        self.taken = number;
                        self.take(report);
                    }
                }
                self.send(vec![Down::Ack { up_to: self.taken }]);
            }
            UpFrame::Heartbeat { .. } => self.send(Vec::new()),
        }
    }

    fn take(&mut self, report: Report) {
        match &report {
            Report::StepEnded { key, .. } | Report::LaunchFailed { key, .. } => {
                if key.step == StepNo::BATCH && self.running.remove(&attempt_of(*key)).is_some() {
                    self.over.insert(attempt_of(*key));
                    self.end(key.job.0, 30);
                }
                self.ended.entry(*key).or_default().push(report);
            }
            Report::JobGone { job } => {
                self.running.remove(job);
                self.over.insert(*job);
                self.gone.insert(*job);
            }
        }
    }

    fn send(&mut self, messages: Vec<Down>) {
        if let Some(sender) = &mut self.sender {
            let frame = sender.frame(messages);
            self.inputs.push_back(NodeInput::Frame(Box::new(frame)));
        }
    }

    fn start(&mut self, job: u32, nodes: usize) {
        let key = key(job, StepNo::BATCH);
        if !self.over.contains(&attempt_of(key)) {
            self.running.insert(attempt_of(key), nodes);
            self.send(vec![start_job(key, nodes)]);
        }
    }

    fn end(&mut self, job: u32, kill_wait_s: u64) {
        let job = attempt_of(key(job, StepNo::BATCH));
        self.running.remove(&job);
        self.over.insert(job);
        self.send(vec![Down::EndJob { job, kill_wait_s, cont: true, why: EndReason::Cancelled }]);
    }

    fn tick(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(due) = self.machine.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
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
    assert_eq!(world.started[&key(1, BATCH)], 1);
    world.mute = true;
    world.finish(key(1, BATCH), end(3));
    world.inputs.clear();
    let mut out = NodeOut::default();
    world.machine.step(world.now, NodeInput::Ended { key: key(1, BATCH), end: end(3) }, &mut out);
    let job = attempt_of(key(1, BATCH));
    assert_eq!(out.acts, [NodeAct::Sweep { job }]);
    assert!(out.sends.is_empty());
    let mut out = NodeOut::default();
    world.machine.step(world.now, NodeInput::Swept { job }, &mut out);
    let expected = vec![Report::StepEnded { key: key(1, BATCH), end: end(3) }, Report::JobGone { job }];
    assert!(matches!(&out.sends[..], [UpFrame::Reports { reports, .. }] if *reports == expected), "{out:?}");
    let ack = Down::Ack { up_to: (1 << 32) + 2 };
    world.send(vec![ack]);
    world.run();
    assert!(world.spool.is_empty() && world.machine.jobs.is_empty());
    assert!(world.acts.contains(&NodeAct::ForgetJob { job }));
}

#[test]
fn a_sweep_that_takes_long_does_not_delay_the_end_of_the_script() {
    let mut world = World::new();
    world.slow_sweep = true;
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
    assert!(world.spool.is_empty());
}

#[test]
fn on_several_nodes_the_controller_ends_the_job() {
    let mut world = World::new();
    world.start(1, 2);
    world.run();
    let step = key(1, StepNo(0));
    world.send(vec![start_step(step, 2)]);
    world.run();
    let job = attempt_of(step);
    world.mute = true;
    world.finish(key(1, BATCH), end(0));
    world.run();
    assert!(!world.acts.contains(&NodeAct::Sweep { job }) && world.is_live(step));
    world.mute = false;
    world.tick(Span::from_secs(6));
    let why = EndReason::Cancelled;
    assert!(world.acts.contains(&NodeAct::Tell { key: step, message: ToStepd::End { kill_wait_s: 30, why } }));
    world.tick(Span::from_secs(60));
    assert!(world.acts.contains(&NodeAct::KillStep { key: step }), "it does not answer");
    assert_eq!(world.gone.len(), 1);
    assert_eq!(world.reports_of(step), 1);
    assert!(world.spool.is_empty() && world.marks.is_empty());
}

#[test]
fn each_node_takes_its_own_share_of_what_all_are_told() {
    let mut world = World::new();
    let (job, step) = (key(1, BATCH), key(1, StepNo(0)));
    let elsewhere = BatchStart { node: NodeId(1), cores: CoreSet::default(), kill_wait_s: 30 };
    world.send(vec![Down::StartJob { facts: Box::new(facts(job, 2)), batch: Some(elsewhere) }, start_step(step, 2)]);
    world.run();
    assert!(!world.started.contains_key(&job), "the script runs elsewhere");
    assert!(world.acts.iter().any(|a| matches!(a, NodeAct::OpenJob { memory_mb: 500, batch: false, .. })));
    let launch = &world.spool[&step].0;
    assert_eq!((launch.node.as_str(), launch.node_index, launch.ranks()), ("n0", 0, vec![0]));
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
    assert!(!world.started.contains_key(&second));
    world.finish(key(1, BATCH), end(0));
    world.run();
    world.send(vec![start()]);
    world.run();
    assert_eq!(world.started[&second], 1);
    world.send(vec![start_job(key(1, BATCH), 1)]);
    world.run();
    assert_eq!(world.started[&key(1, BATCH)], 1, "an old attempt never runs again");
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
fn a_gap_makes_it_register_anew_and_old_frames_are_refused() {
    let mut world = World::new();
    let lost = world.sender.as_mut().unwrap().frame(Vec::new());
    let before = world.epoch;
    let start = start_job(key(9, BATCH), 1);
    world.send(vec![start.clone()]);
    world.run();
    assert_eq!(world.epoch, before + 1);
    assert!(!world.started.contains_key(&key(9, BATCH)));
    let old = DownFrame { messages: vec![start], ..lost };
    world.inputs.push_back(NodeInput::Frame(Box::new(old.clone())));
    world.run();
    world.boot();
    world.inputs.push_back(NodeInput::Frame(Box::new(old)));
    world.run();
    assert!(world.started.is_empty(), "also a later life refuses them");
}

#[test]
fn silence_and_missing_acknowledgements_are_answered() {
    let mut world = World::new();
    let before = world.epoch;
    world.tick(Span::from_secs(3600));
    assert_eq!(world.epoch, before, "heartbeats that are answered keep the session");
    world.sender = None;
    world.tick(Span::from_secs(120));
    assert_eq!(world.epoch, before + 1, "silence makes it register");
}

#[test]
fn what_was_never_started_waits_for_the_controllers_word() {
    let mut world = World::new();
    world.start(1, 1);
    world.start(2, 1);
    world.run();
    for key in [key(1, BATCH), key(2, BATCH)] {
        world.spool.get_mut(&key).expect("it was spawned").1 = Spooled::Unstarted;
        world.started.remove(&key);
    }
    // The controller has given up the second meanwhile.
    world.running.remove(&attempt_of(key(2, BATCH)));
    world.boot();
    assert_eq!(world.started.into_iter().collect::<Vec<_>>(), [(key(1, BATCH), 1)]);
    assert_eq!(world.spool.len(), 1);
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
    assert!(world.spool.values().all(|(_, state)| matches!(state, Spooled::Ended(_))));
    world.boot();
    assert_eq!(world.gone.len(), 2, "told by the next life");
    let mut world = World::new();
    world.start(1, 1);
    world.send(vec![Down::ShutDown { keep_jobs: true }]);
    world.run();
    assert!(world.exited && world.is_live(key(1, BATCH)));
}

/// What may happen to the node, by number.
fn happen(world: &mut World, op: u8, arg: u8) {
    let job = u32::from(arg % 6) + 1;
    let step = key(job, StepNo(u32::from(arg / 6 % 3)));
    match op {
        0..4 => world.start(job, 1 + usize::from(arg / 64)),
        4..6 => {
            if world.running.contains_key(&attempt_of(step)) && !world.started.contains_key(&step) {
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
            world.inputs.push_back(NodeInput::Unlinked);
            world.inputs.push_back(NodeInput::Linked);
            world.sender = None;
        }
        15 => drop(world.sender.as_mut().map(|sender| sender.frame(Vec::new()))),
        16 => world.fail_spawns ^= true,
        17 => world.mute ^= true,
        18 => {
            // A crash between the commit of the folder and the start of its daemon.
            let fresh = world.spool.iter_mut().find(|(key, (_, state))| {
                key.job.0 == job && *state == Spooled::Alive && world.started.get(key) == Some(&1)
            });
            if let Some((key, (_, state))) = fresh {
                *state = Spooled::Unstarted;
                *world.started.get_mut(key).unwrap() -= 1;
                world.boot();
            }
        }
        19 => {
            // A step daemon that reports that it could not start anything.
            let key = key(job, BATCH);
            if let Some((_, state @ Spooled::Alive)) = world.spool.get_mut(&key) {
                *state = Spooled::Failed;
                world.inputs.push_back(NodeInput::Failed { key, error: "no".into(), node_fault: false });
            }
        }
        20 => world.slow_sweep ^= true,
        _ => world.tick(Span::from_millis(u64::from(arg) * 100)),
    }
    world.run();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_starts_twice_and_everything_ends(story in prop::collection::vec((0u8..24, any::<u8>()), 1..120)) {
        let mut world = World::new();
        for (op, arg) in story {
            happen(&mut world, op, arg);
            for (key, times) in &world.started {
                prop_assert!(*times <= 1, "{key} started {times} times");
            }
        }
        (world.mute, world.fail_spawns, world.slow_sweep) = (false, false, false);
        world.boot();
        for job in world.running.keys().copied().collect::<Vec<_>>() {
            world.finish(StepKey { job: job.job, attempt: job.attempt, step: BATCH }, end(0));
        }
        world.run();
        world.tick(Span::from_secs(120));
        prop_assert!(world.running.is_empty(), "{:?}", world.running);
        prop_assert_eq!(&world.over, &world.gone);
        prop_assert!(world.machine.jobs.is_empty(), "{:?}", world.machine);
        prop_assert!(world.spool.is_empty() && world.marks.is_empty(), "{:?}", world.spool);
        prop_assert!(world.machine.timers.is_empty());
        let known = world.started.iter().filter(|(_, times)| **times > 0);
        for (key, _) in known {
            prop_assert!(world.reports_of(*key) > 0, "the end of {key} was not told");
        }
    }
}
