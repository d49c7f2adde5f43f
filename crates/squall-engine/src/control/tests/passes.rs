//! A pass looks only at jobs that may have found room; looking at all jobs would find the same.

use std::sync::Arc;

use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use squall_model::config::{Config, NodeConfig, PartitionConfig};
use squall_model::event::Event;
use squall_model::id::{ClientKey, Incarnation, JobId, NodeId};
use squall_model::job::options::Chosen;
use squall_model::job::{EndState, ExitCode, JobSpec, Need, Outcome, Owner};
use squall_model::resource::{Hardware, Memory};
use squall_model::time::{Span, Time};
use squall_sched::{Candidate, Lanes, Nodes, Plan, Queues, Request, Scratch, Single, plan};

use crate::control::Rehearsal;
use crate::control::controller::Controller;
use crate::control::effects::work::rules;
use crate::control::index::ordered::Ordered;
use crate::control::index::view::Sight;
use crate::control::tests::driver::{array, batch};

const NODES: u32 = 8;
const CPUS: u32 = 4;

/// A queue from which no job is left out.
struct Everybody<'a>(Sight<'a>);

impl Queues for Everybody<'_> {
    type Need = Request;

    fn partition_count(&self) -> usize {
        self.0.partition_count()
    }
    fn tier(&self, partition: usize) -> Option<u32> {
        self.0.tier(partition)
    }
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_>> {
        Single(Ordered::new(self.0, partition))
    }
}

/// What a pass would decide; `whole`: if it looked at all jobs.
fn pass(c: &Controller, now: Time, whole: bool) -> Plan {
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut scratch = Scratch::default();
    let mut room = Nodes::new(&sight, &mut scratch, now, c.state.config.scheduler_parameters.window());
    let rules = rules(&c.state.config);
    if whole { plan(&Everybody(sight), &mut room, rules) } else { plan(&sight, &mut room, rules) }
}

/// No job that is left out would have started, nor changed where others start.
pub(super) fn check(c: &Controller, now: Time) {
    let (few, all) = (pass(c, now, false), pass(c, now, true));
    assert_eq!((few.starts, few.heads, few.evictions), (all.starts, all.heads, all.evictions));
    assert!(few.looked_at <= all.looked_at);
}

/// Something that happens. Numbers are reduced to what there is.
#[derive(Clone, Debug)]
enum Op {
    Submit { nodes: u8, tasks: u8, limit: u8, other: u8 },
    Array { last: u8, limit: u8 },
    End { which: u8 },
    Cancel { which: u8 },
    Down { node: u8, up: bool },
    Pass { seconds: u8 },
}

fn ops() -> impl Strategy<Value = Op> {
    let b = any::<u8>;
    prop_oneof![
        8 => (b(), b(), b(), b()).prop_map(|(nodes, tasks, limit, other)| Op::Submit { nodes, tasks, limit, other }),
        1 => (b(), b()).prop_map(|(last, limit)| Op::Array { last, limit }),
        4 => b().prop_map(|which| Op::End { which }),
        1 => b().prop_map(|which| Op::Cancel { which }),
        1 => (b(), any::<bool>()).prop_map(|(node, up)| Op::Down { node, up }),
        1 => b().prop_map(|seconds| Op::Pass { seconds }),
    ]
}

/// A cluster with jobs that come and go.
struct World {
    rehearsal: Rehearsal,
    now: Time,
    last: u32,
    /// Some jobs are `--exclusive=user`.
    apart: bool,
}

impl World {
    fn new(partitions: usize, kept: usize, apart: bool) -> Self {
        let now = Time::from_secs(1_800_000_000);
        let mut config = Config::default();
        config.scheduler_parameters.bf_job_part_count_reserve = kept;
        config.nodes.push(NodeConfig { name: format!("n[1-{NODES}]"), ..NodeConfig::default() });
        let all = [("all", String::new(), 1), ("some", "n[3-6]".to_owned(), 1), ("first", "n[5-8]".to_owned(), 2)];
        let partition = |(name, nodes, tier): (&str, String, u32)| PartitionConfig {
            name: name.into(),
            nodes,
            priority_tier: tier,
            ..PartitionConfig::default()
        };
        config.partitions = all.into_iter().take(partitions).map(partition).collect();
        config.complete();
        let mut world = Self { rehearsal: Rehearsal::new(), now, last: 0, apart };
        world.happens(Event::Configured { config: Arc::new(config) });
        for at in 0..NODES {
            let hardware = Hardware { cpus: CPUS, memory_mb: 4000, ..Hardware::default() };
            let (node, name) = (NodeId(at), format!("n{}", at + 1));
            world.happens(Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
        }
        world
    }

    fn happens(&mut self, event: Event) {
        self.rehearsal.happens(self.now, event);
    }

    /// What runs is as it is noted for a pass.
    fn look_around(&mut self) {
        let c = &mut self.rehearsal.c;
        c.queue.look_around(&c.state, self.now);
    }

    /// No job runs beside another user's where one of the two is `--exclusive=user`.
    fn users_are_apart(&self) {
        let state = self.rehearsal.state();
        for node in &state.nodes {
            let jobs = || node.jobs.iter().map(|id| &state.jobs[id]);
            let alone = jobs().find(|job| job.spec.keeps_others_off());
            let mixed = alone.is_some_and(|alone| jobs().any(|job| job.owner.uid != alone.owner.uid));
            assert!(!mixed, "{}: {:?}", node.name, node.jobs);
        }
    }

    fn submit(&mut self, uid: u32, spec: JobSpec, ids: u32) {
        let id = JobId(self.last + 1);
        self.last += ids;
        let (key, owner) = (ClientKey(id.0.into()), Arc::new(Owner { uid, ..Owner::default() }));
        self.happens(Event::JobSubmitted { id, key, owner, spec: Arc::new(spec) });
    }

    /// The jobs that run, or those that wait.
    fn some(&self, run: bool, which: u8) -> Option<JobId> {
        let jobs = self.rehearsal.state().jobs.iter();
        let some: Vec<JobId> =
            jobs.filter(|(_, job)| if run { job.is_running() } else { job.is_pending() }).map(|(id, _)| *id).collect();
        some.get(usize::from(which) % some.len().max(1)).copied()
    }

    fn happen(&mut self, op: &Op) {
        let outcome = |state| Outcome { state, exit: ExitCode::OK, reason: None };
        match *op {
            Op::Submit { nodes, tasks, limit, other } => {
                let need = match nodes % 3 {
                    0 => Need { ntasks: Some(1 + u32::from(tasks) % 9), ..Need::default() },
                    1 => Need { nodes_min: Some(1 + u32::from(nodes / 3) % NODES), exclusive: true, ..Need::default() },
                    _ => Need { nodes_min: Some(1 + u32::from(nodes / 3) % 4), ..Need::default() },
                };
                let memory = if other % 4 == 0 { Memory::PerNodeMb(1000) } else { Memory::Unset };
                let names: Vec<String> =
                    self.rehearsal.state().partitions.iter().map(|partition| partition.config.name.clone()).collect();
                let partition = match usize::from(other / 4) % (names.len() + 1) {
                    0 => names.join(","),
                    at => names[at - 1].clone(),
                };
                let priority = (other / 16 == 0).then(|| u32::from(tasks));
                let time_limit_s = (limit % 16 > 0).then(|| 60 * u64::from(limit % 16));
                let need = Need { memory, ..need };
                let user = u32::from(limit / 16) % 3;
                let alone = self.apart && nodes % 3 > 1 && tasks % 4 == 0;
                let options = Chosen { exclusive_user: alone, ..Chosen::default() }.into();
                let partition = Some(partition);
                self.submit(user, JobSpec { need, partition, time_limit_s, priority, options, ..batch() }, 1);
            }
            Op::Array { last, limit } => {
                let last = u32::from(last) % 6;
                let spec = array(last, (limit % 3 > 0).then_some(u32::from(limit % 3)));
                self.submit(u32::from(limit / 16) % 3, spec, last + 1);
            }
            Op::End { which } => {
                let Some(id) = self.some(true, which) else { return };
                let job = &self.rehearsal.state().jobs[&id];
                let (attempt, nodes) = (job.attempt, job.run().unwrap().left.clone());
                self.happens(Event::JobEnding { id, outcome: outcome(EndState::Completed), requeue: None });
                self.happens(Event::NodesReleased { id, attempt, nodes });
            }
            Op::Cancel { which } => {
                let Some(id) = self.some(false, which) else { return };
                self.happens(Event::JobEnding { id, outcome: outcome(EndState::Cancelled { by: 0 }), requeue: None });
            }
            Op::Down { node, up } => {
                let node = NodeId(u32::from(node) % NODES);
                let down = Event::NodeDown { node, reason: "test".into() };
                self.happens(if up { Event::NodeUp { node } } else { down });
            }
            Op::Pass { seconds } => {
                self.now = self.now + Span::from_secs(u64::from(seconds));
                // No job is ended here when its time is up: an overdue job is expected to end later than before.
                self.rehearsal.c.queue.kick = true;
            }
        }
    }
}

proptest! {
    #[test]
    fn who_is_left_out_of_a_pass_would_not_have_started(
        partitions in 1..4_usize,
        kept in 0..4_usize,
        // faults.md E, `--exclusive=user`
        apart in any::<bool>(),
        ops in proptest::collection::vec(ops(), 1..120),
    ) {
let mut world = World::new(partitions, kept, apart);
        // It is of the last pass, which may be some events ago.
        let mut moved = false;
        for op in ops {
            world.happen(&op);
            world.look_around();
            world.users_are_apart();
            check(&world.rehearsal.c, world.now);
            while world.rehearsal.c.queue.kick {
                let next = pass(&world.rehearsal.c, world.now, false);
                moved = !(next.reserved.is_empty() || next.starts.is_empty());
                world.rehearsal.pass(world.now);
                world.look_around();
                world.users_are_apart();
                check(&world.rehearsal.c, world.now);
            }
            // A job that starts beside those with room kept for them may change where that room is, which the next pass
            // finds.
            if !moved {
                let left = pass(&world.rehearsal.c, world.now, true).starts;
                assert!(left.is_empty(), "somebody could start, and nobody looks: {left:?}");
            }
        }
    }
}
