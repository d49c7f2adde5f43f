//! Any mixture of requests, ends, lost nodes and restarts: nothing is held twice, no caller is left without an answer,
//! and when all is cancelled nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::Config as Proptest;
use squall_model::config::{Config, PartitionConfig};
use squall_model::gang::{Coscheduling, OverSubscribe, Preempt, Turn};
use squall_model::id::{ClientKey, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt, JobKind, JobSpec, Need};
use squall_model::policy::PreemptType;
use squall_model::report::Report;
use squall_model::set::{CoreSet, IndexSet};
use squall_model::step::StepSpec;
use squall_model::wire::client::{Answer, JobRef, JobSelection, JobUpdate, Request};
use squall_model::wire::node::{Down, SignalTarget};

use crate::control::port::{CallerId, Input};
use crate::control::state::job::Phase;
use crate::control::tests::driver::{ADA, Driver, array, batch};
use crate::control::tests::passes;

const NODES: u32 = 3;
const BOB: u32 = ADA + 1;

/// How jobs share cores: not, in turns, or in turns and stopped for those of higher tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Apart,
    Turns,
    Stop,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Apart), Just(Kind::Turns), Just(Kind::Stop)]
}

/// One thing that happens. Numbers are reduced to what there is.
#[derive(Clone, Debug)]
enum Op {
    Submit { user: u8, tasks: u8, nodes: u8 },
    Array { user: u8, last: u8, limit: u8 },
    Allocate { user: u8, tasks: u8 },
    Step { job: u8, user: u8, tasks: u8, exact: bool, overlap: bool },
    Cancel { job: u8, user: u8 },
    CancelTasks { job: u8, user: u8, first: u8 },
    CancelStep { job: u8, step: u8 },
    Signal { job: u8 },
    Hold { job: u8, user: u8, release: bool },
    Requeue { job: u8, user: u8, hold: bool },
    Suspend { job: u8, suspend: bool },
    Update { job: u8, user: u8, limit: u8 },
    Await { job: u8, user: u8 },
    Finish { job: u8, user: u8 },
    Hangup { caller: u8 },
    End { node: u8, which: u8, code: u8 },
    Lose { node: u8 },
    Return { node: u8 },
    Pass { seconds: u8 },
    Silence { seconds: u8 },
    Restart,
}

fn ops() -> impl Strategy<Value = Op> {
    let b = any::<u8>;
    prop_oneof![
        4 => (b(), b(), b()).prop_map(|(user, tasks, nodes)| Op::Submit { user, tasks, nodes }),
        2 => (b(), b(), b()).prop_map(|(user, last, limit)| Op::Array { user, last, limit }),
        2 => (b(), b()).prop_map(|(user, tasks)| Op::Allocate { user, tasks }),
        6 => (b(), b(), b(), any::<bool>(), any::<bool>())
            .prop_map(|(job, user, tasks, exact, overlap)| Op::Step { job, user, tasks, exact, overlap }),
        2 => (b(), b()).prop_map(|(job, user)| Op::Cancel { job, user }),
        1 => (b(), b(), b()).prop_map(|(job, user, first)| Op::CancelTasks { job, user, first }),
        1 => (b(), b()).prop_map(|(job, step)| Op::CancelStep { job, step }),
        1 => b().prop_map(|job| Op::Signal { job }),
        2 => (b(), b(), any::<bool>()).prop_map(|(job, user, release)| Op::Hold { job, user, release }),
        2 => (b(), b(), any::<bool>()).prop_map(|(job, user, hold)| Op::Requeue { job, user, hold }),
        1 => (b(), any::<bool>()).prop_map(|(job, suspend)| Op::Suspend { job, suspend }),
        1 => (b(), b(), b()).prop_map(|(job, user, limit)| Op::Update { job, user, limit }),
        1 => (b(), b()).prop_map(|(job, user)| Op::Await { job, user }),
        1 => (b(), b()).prop_map(|(job, user)| Op::Finish { job, user }),
        1 => b().prop_map(|caller| Op::Hangup { caller }),
        8 => (b(), b(), b()).prop_map(|(node, which, code)| Op::End { node, which, code }),
        1 => b().prop_map(|node| Op::Lose { node }),
        2 => b().prop_map(|node| Op::Return { node }),
        1 => b().prop_map(|seconds| Op::Pass { seconds }),
        1 => b().prop_map(|seconds| Op::Silence { seconds }),
        1 => Just(Op::Restart),
    ]
}

/// What a pretended node knows.
#[derive(Default)]
struct Node {
    connected: bool,
    jobs: BTreeMap<JobAttempt, BTreeSet<StepNo>>,
    /// Attempts with a script that was started here.
    started: BTreeSet<JobAttempt>,
    reports: Vec<Report>,
    /// When its jobs run, as far as it was told.
    turns: BTreeMap<JobAttempt, Turn>,
}

struct World {
    d: Driver,
    nodes: BTreeMap<String, Node>,
    callers: u64,
    /// Callers that are owed a last answer, and what they asked.
    owed: BTreeMap<CallerId, String>,
}

fn who(n: u8) -> u32 {
    [ADA, BOB, 0][usize::from(n % 3)]
}

fn attempt_of(key: StepKey) -> JobAttempt {
    JobAttempt { job: key.job, attempt: key.attempt }
}

impl World {
    fn new(kind: Kind) -> Self {
        let names = (1..=NODES).map(|n| (format!("n{n}"), Node { connected: true, ..Node::default() }));
        let mut config = Config::default();
        if kind != Kind::Apart {
            config.coscheduling = Some(Coscheduling::Gang);
            config.partitions = vec![PartitionConfig { oversubscribe: OverSubscribe::Force(3), ..Default::default() }];
        }
        if kind == Kind::Stop {
            config.preempt_type = PreemptType::Partition;
            config.preempt_mode = Preempt::try_from("SUSPEND,GANG".to_owned()).unwrap();
            let high =
                |name: &str, priority_tier| PartitionConfig { name: name.into(), priority_tier, ..Default::default() };
            config.partitions.extend([high("high", 2), high("higher", 3)]);
        }
        let mut d = Driver::empty(config);
        (1..=NODES).for_each(|n| d.add_node(&format!("n{n}"), 4));
        let mut world = Self { d, nodes: names.collect(), callers: 100, owed: BTreeMap::new() };
        world.settle();
        world
    }

    fn id(&self, n: u8) -> JobId {
        JobId(1 + u32::from(n) % (self.d.c.state().last_id.0 + 1))
    }

    fn ids(&self, n: u8) -> JobSelection {
        JobSelection { ids: vec![JobRef::Job(self.id(n))], ..JobSelection::default() }
    }

    fn ask(&mut self, uid: u32, request: Request, owes: bool) {
        self.callers += 1;
        let caller = CallerId(self.callers);
        if owes {
            self.owed.insert(caller, format!("{request:?}"));
        }
        let mut answers = self.d.ask(self.callers, uid, request);
        self.d.answers.extend(answers.drain(..).map(|answer| (caller, answer)));
    }

    fn happen(&mut self, op: &Op) {
        match *op {
            Op::Hangup { caller } => {
                let caller = CallerId(100 + u64::from(caller) % (self.callers - 99));
                self.owed.remove(&caller);
                self.d.step(Input::Hangup { caller, away: caller.0 % 2 == 1 });
            }
            Op::End { node, which, code } => self.end(node, which, code),
            Op::Lose { node } => self.lose(node),
            Op::Return { node } => self.come_back(node),
            Op::Pass { seconds } => self.d.pass(u64::from(seconds % 40)),
            Op::Silence { seconds } => self.fall_silent(u64::from(seconds % 80)),
            Op::Restart => self.restart(),
            Op::Submit { .. } | Op::Array { .. } | Op::Allocate { .. } | Op::Step { .. } => self.ask_for_more(op),
            _ => self.ask_for_change(op),
        }
        self.settle();
    }

    fn ask_for_more(&mut self, op: &Op) {
        match *op {
            Op::Submit { user, tasks, nodes } => {
                let need = Need { ntasks: Some(1 + u32::from(tasks % 5)), ..Need::default() };
                let need = Need { nodes_min: (nodes % 2 == 0).then_some(1 + u32::from(nodes % 3)), ..need };
                let names = self.d.config.partitions.iter().map(|partition| &partition.name);
                let partition = names.cycle().nth(usize::from(tasks / 5 % 3)).cloned();
                let spec = Arc::new(JobSpec { need, partition, ..batch() });
                let (script, env, key) = (b"#!/bin/sh\n".to_vec().into(), Vec::new().into(), self.d.key());
                self.ask(who(user), Request::Submit { spec, script, env, key }, false);
            }
            Op::Array { user, last, limit } => {
                let spec = Arc::new(array(u32::from(last % 6), (limit % 3 > 0).then_some(u32::from(limit % 3))));
                let (script, env, key) = (b"#!/bin/sh\n".to_vec().into(), Vec::new().into(), self.d.key());
                self.ask(who(user), Request::Submit { spec, script, env, key }, false);
            }
            Op::Allocate { user, tasks } => {
                let need = Need { ntasks: Some(1 + u32::from(tasks % 6)), ..Need::default() };
                let spec = Arc::new(JobSpec { kind: JobKind::Allocation, need, ..batch() });
                let (env, key) = (Vec::new().into(), self.d.key());
                self.ask(who(user), Request::Allocate { spec, env, key, immediate_s: None, step: None }, false);
            }
            Op::Step { job, user, tasks, exact, overlap } => {
                let ntasks = Some(1 + u32::from(tasks % 4));
                let spec = Box::new(StepSpec { ntasks, exact, overlap, ..StepSpec::default() });
                let (job, key) = (self.id(job), self.d.key());
                let owner = self.d.c.state().jobs.get(&job).map(|job| job.owner.uid);
                let uid = owner.filter(|_| user % 8 > 0).unwrap_or_else(|| who(user));
                self.ask(uid, Request::CreateStep { job, spec, program: Box::default(), key }, true);
            }
            _ => {}
        }
    }

    fn ask_for_change(&mut self, op: &Op) {
        match *op {
            Op::Cancel { job, user } => {
                let jobs = self.ids(job);
                self.ask(who(user), Request::Cancel { jobs, signal: None, step: None, verbose: true }, true);
            }
            Op::CancelTasks { job, user, first } => {
                let first = u32::from(first % 8);
                let ids = vec![JobRef::Tasks(self.id(job), IndexSet::range(first, first + 2))];
                let jobs = JobSelection { ids, ..JobSelection::default() };
                self.ask(who(user), Request::Cancel { jobs, signal: None, step: None, verbose: true }, true);
            }
            Op::CancelStep { job, step } => {
                let (jobs, step) = (self.ids(job), Some(StepNo(u32::from(step % 4))));
                self.ask(0, Request::Cancel { jobs, signal: None, step, verbose: true }, true);
            }
            Op::Signal { job } => {
                let (jobs, signal) = (self.ids(job), Some((10, SignalTarget::All)));
                self.ask(0, Request::Cancel { jobs, signal, step: None, verbose: true }, true);
            }
            Op::Hold { job, user, release: false } => {
                let jobs = self.ids(job);
                self.ask(who(user), Request::Hold { jobs, user: false }, true);
            }
            Op::Hold { job, user, release: true } => {
                let jobs = self.ids(job);
                self.ask(who(user), Request::Release { jobs }, true);
            }
            Op::Requeue { job, user, hold } => {
                let jobs = self.ids(job);
                self.ask(who(user), Request::Requeue { jobs, hold, from: None, special: None }, true);
            }
            Op::Suspend { job, suspend } => {
                let jobs = self.ids(job);
                self.ask(0, Request::Suspend { jobs, suspend }, true);
            }
            Op::Update { job, user, limit } => {
                let jobs = self.ids(job);
                // Running jobs give back nodes, those that wait ask for as many.
                let nodes = (limit % 4 > 1).then_some((u32::from(limit % 3), None));
                let (limit, name) = (Some(Some(u64::from(limit))), Some("new".into()));
                let change = Box::new(JobUpdate { time_limit_s: limit, name, nodes, ..Default::default() });
                self.ask(who(user), Request::UpdateJob { jobs, change }, true);
            }
            Op::Await { job, user } => {
                let job = self.id(job);
                self.ask(who(user), Request::AwaitJob { job }, true);
            }
            Op::Finish { job, user } => {
                let job = self.id(job);
                self.ask(who(user), Request::Finish { job, exit: ExitCode::OK }, true);
            }
            _ => {}
        }
    }

    fn name(node: u8) -> String {
        format!("n{}", 1 + u32::from(node) % NODES)
    }

    /// Some step ends by itself; a script's end is the end of its job there.
    fn end(&mut self, node: u8, which: u8, code: u8) {
        let node = self.nodes.get_mut(&Self::name(node)).unwrap();
        let live: Vec<(JobAttempt, StepNo)> =
            node.jobs.iter().flat_map(|(job, steps)| steps.iter().map(|step| (*job, *step))).collect();
        let Some(&(job, step)) = live.get(usize::from(which) % live.len().max(1)) else { return };
        node.jobs.get_mut(&job).unwrap().remove(&step);
        let key = StepKey { job: job.job, attempt: job.attempt, step };
        node.reports.push(Report::StepEnded { key, end: self.d.end(code % 3) });
    }

    fn lose(&mut self, node: u8) {
        let name = Self::name(node);
        if std::mem::take(&mut self.nodes.get_mut(&name).unwrap().connected) {
            self.d.lose(&name);
        }
    }

    fn come_back(&mut self, node: u8) {
        let name = Self::name(node);
        if !self.nodes[&name].connected {
            self.register(&name);
        }
    }

    fn register(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).unwrap();
        node.connected = true;
        let jobs: Vec<JobAttempt> = node.jobs.keys().copied().collect();
        let key = |job: &JobAttempt, step: &StepNo| StepKey { job: job.job, attempt: job.attempt, step: *step };
        let live = node.jobs.iter().flat_map(|(job, steps)| steps.iter().map(move |step| key(job, step)));
        let steps: Vec<StepKey> = live.collect();
        self.d.register_with(name, &jobs, &steps);
    }

    /// No node says anything for a while; then those that were connected come back.
    fn fall_silent(&mut self, seconds: u64) {
        self.d.pass_in_silence(seconds);
        self.all_register();
    }

    fn all_register(&mut self) {
        let up: Vec<String> = self.nodes.iter().filter(|(_, n)| n.connected).map(|(name, _)| name.clone()).collect();
        for name in up {
            self.register(&name);
        }
    }

    /// The controller dies: all connections are gone, so is what was owed on them.
    fn restart(&mut self) {
        self.owed.clear();
        self.d.restart();
        self.all_register();
    }

    /// Nodes hear what was sent and say what they have to say, until nothing is said any more.
    fn settle(&mut self) {
        loop {
            self.collect_answers();
            let sent = std::mem::take(&mut self.d.sent);
            for (name, message) in sent {
                self.hear(&name, message);
            }
            let talks = |(_, node): &(&String, &Node)| node.connected && !node.reports.is_empty();
            let Some(name) = self.nodes.iter().find(talks).map(|(name, _)| name.clone()) else {
                if self.d.sent.is_empty() {
                    // What nodes were asked is answered when they have heard all.
                    self.d.answer();
                    if self.d.sent.is_empty() && self.d.answers.is_empty() {
                        break;
                    }
                }
                continue;
            };
            let reports = std::mem::take(&mut self.nodes.get_mut(&name).unwrap().reports);
            self.d.report(&name, &reports);
        }
        self.check();
    }

    fn hear(&mut self, name: &str, message: Down) {
        let end = self.d.end(0);
        let node = self.nodes.get_mut(name).unwrap();
        match message {
            Down::StartJob { facts, batch } => {
                let job = attempt_of(facts.key);
                let steps = node.jobs.entry(job).or_default();
                if batch.is_some() && node.started.insert(job) {
                    steps.insert(StepNo::BATCH);
                }
            }
            Down::StartStep(launch) => {
                let job = node.jobs.get_mut(&attempt_of(launch.key)).expect("a step of a job that is not here");
                job.insert(launch.key.step);
            }
            Down::EndStep { key, .. } => {
                node.jobs.entry(attempt_of(key)).or_default().remove(&key.step);
                node.reports.push(Report::StepEnded { key, end });
            }
            Down::EndJob { job, .. } | Down::Recall { job } => {
                for step in node.jobs.remove(&job).unwrap_or_default() {
                    let key = StepKey { job: job.job, attempt: job.attempt, step };
                    node.reports.push(Report::StepEnded { key, end: end.clone() });
                }
                node.reports.push(Report::JobGone { job });
            }
            Down::Turns(turns) => node.turns.extend(turns),
            Down::Identify
            | Down::Knock
            | Down::Write { .. }
            | Down::Welcome { .. }
            | Down::Signal { .. }
            | Down::Known { .. }
            | Down::Watch { .. }
            | Down::Notify { .. }
            | Down::Reboot { .. }
            | Down::Keys(_)
            | Down::Check { .. }
            | Down::Checkpoint(_)
            | Down::ForgetCheckpoints { .. }
            | Down::Strobe(_) => {}
            Down::Refused { reason, .. } => panic!("refused: {reason}"),
            Down::Expect { .. }
            | Down::Commit { .. }
            | Down::Abort { .. }
            | Down::Place(_)
            | Down::Hear { .. }
            | Down::ShutDown { .. } => {
                panic!("nobody asked for that")
            }
        }
    }

    fn collect_answers(&mut self) {
        for (caller, answer) in std::mem::take(&mut self.d.answers) {
            let last = !matches!(answer, Answer::StepCreated { .. } | Answer::Submitted { .. } | Answer::Allocated(_));
            if last {
                self.owed.remove(&caller);
            }
        }
    }

    fn check(&self) {
        self.check_covers();
        passes::check(&self.d.c, self.d.now);
        let state = self.d.c.state();
        let mut held: BTreeMap<NodeId, CoreSet> = BTreeMap::new();
        let mut rows: BTreeMap<(NodeId, u32, u32), CoreSet> = BTreeMap::new();
        for (id, job) in state.jobs.iter() {
            let Some(run) = job.run() else { continue };
            // What it has given back is held until the node has released it.
            let own = |node| &run.alloc.on(node).or_else(|| run.leaving.on(node)).unwrap().cores;
            for node in run.left.iter() {
                let cores = own(node);
                let row = state.gang.get(id).map_or(0, |place| place.turn.slot);
                assert!(row < 3, "job {id} is in row {row}");
                let rank = if state.is_ranked() { state.rank(&run.partition) } else { 0 };
                let all = rows.entry((node, rank, row)).or_default();
                assert!(all.is_disjoint(cores), "cores of node {node} held twice, by job {id} too");
                all.union_with(cores);
                held.entry(node).or_default().union_with(cores);
                self.check_turn(*id, node);
            }
            let mut used: BTreeMap<NodeId, CoreSet> = BTreeMap::new();
            let steps = run.steps.iter().filter(|(no, step)| **no != StepNo::BATCH && step.ended.is_none());
            for (no, step) in steps {
                for node in step.left.iter() {
                    let cores = &step.alloc.on(node).unwrap().cores;
                    assert!(cores.is_subset(own(node)), "step {id}.{no} is outside of its job");
                    let all = used.entry(node).or_default();
                    assert!(all.is_disjoint(cores), "cores held by two steps, {id}.{no} too");
                    all.union_with(cores);
                }
            }
        }
        for (at, node) in state.nodes.iter().enumerate() {
            assert_eq!(node.cores, held.remove(&NodeId(at as u32)).unwrap_or_default(), "books of {}", node.name);
        }
        let pending: u64 = state.arrays.values().map(|array| array.tally.untouched.len() as u64).sum::<u64>()
            + state.jobs.values().filter(|job| job.is_pending()).count() as u64;
        assert_eq!(state.index.pending, pending);
        for array in state.arrays.values() {
            assert!(array.limit.is_none_or(|limit| array.tally.active <= limit), "array limit");
        }
    }

    /// A job is stopped just as long as one of a higher tier, that is not stopped, runs on one of its cores.
    fn check_covers(&self) {
        let state = self.d.c.state();
        for (id, job) in state.jobs.iter().filter(|(id, job)| job.is_running() && state.gang.contains_key(id)) {
            let run = job.run().unwrap();
            let above = |other: &JobId| {
                let Some(theirs) = state.jobs.get(other).and_then(|job| job.run()) else { return false };
                let both = run.left.intersection(&theirs.left);
                // Not on nodes that one of them has given back.
                let mut meet = both.iter().filter_map(|node| Some((run.alloc.on(node)?, theirs.alloc.on(node)?)));
                let higher = state.is_ranked() && state.rank(&theirs.partition) > state.rank(&run.partition);
                higher && state.works(*other) && meet.any(|(own, other)| !own.cores.is_disjoint(&other.cores))
            };
            let covered = state.jobs.keys().any(above);
            assert_eq!(state.is_covered(*id), covered && run.suspended.is_none(), "job {id}");
        }
    }

    /// A node that can be reached knows when a job of it runs.
    fn check_turn(&self, id: JobId, node: NodeId) {
        let state = self.d.c.state();
        let (Some(place), Some(job)) = (state.gang.get(&id), state.jobs.get(&id)) else { return };
        let name = &state.nodes[node.index()].name;
        if self.d.connected(name) && self.nodes[name].connected && job.is_running() {
            let told = self.nodes[name].turns.get(&self.d.attempt(id));
            assert_eq!(told, Some(&place.turn), "job {id} on {name}");
        }
    }

    /// Everything is cancelled and every node is there: nothing may be left, and no caller may wait.
    fn wind_up(&mut self) {
        for node in 0..NODES as u8 {
            self.come_back(node);
        }
        self.settle();
        let all = Request::Cancel { jobs: JobSelection::default(), signal: None, step: None, verbose: true };
        self.ask(0, all, true);
        self.settle();
        // The longest that `scancel` waits for nodes that do not answer.
        self.d.pass(3);
        self.settle();
        let state = self.d.c.state();
        for (id, job) in state.jobs.iter() {
            assert!(matches!(job.phase, Phase::Ended(_)), "job {id}: {:?}", job.phase);
        }
        assert_eq!((state.index.active, state.index.pending), (0, 0));
        assert!(state.nodes.iter().all(|node| node.cores.is_empty() && node.jobs.is_empty() && node.memory_mb == 0));
        assert_eq!(self.owed, BTreeMap::new(), "left without an answer");
        let left: Vec<_> = self.nodes.values().flat_map(|node| node.jobs.keys()).collect();
        assert!(left.is_empty(), "left on nodes: {left:?}");
    }
}

proptest! {
    #![proptest_config(Proptest { cases: 100, max_shrink_iters: 2000, ..Proptest::default() })]
    #[test]
    fn whatever_happens(kind in kinds(), ops in proptest::collection::vec(ops(), 1..80)) {
        let mut world = World::new(kind);
        for op in ops {
            world.happen(&op);
        }
        world.wind_up();
    }
}

#[test]
fn keys_are_not_mixed_up_between_jobs() {
    let mut world = World::new(Kind::Apart);
    for _ in 0..2 {
        let spec = Arc::new(JobSpec { kind: JobKind::Allocation, ..batch() });
        let (env, key) = (Vec::new().into(), world.d.key());
        world.ask(ADA, Request::Allocate { spec, env, key, immediate_s: None, step: None }, false);
        world.settle();
    }
    for job in [JobId(1), JobId(2)] {
        let (spec, program, key) = (Box::default(), Box::default(), ClientKey(7));
        world.ask(ADA, Request::CreateStep { job, spec, program, key }, true);
        world.settle();
        assert_eq!(world.d.c.state().jobs[&job].run().unwrap().steps.len(), 1);
    }
}
