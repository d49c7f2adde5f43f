//! Simulates one seed: random users and faults over a cluster, and the final checks.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use squall_engine::commit::Pipeline;
use squall_model::config::{Config, NodeLostAction, PartitionConfig};
use squall_model::gang::Preempt;
use squall_model::limits::TREE_WIDTH;
use squall_model::policy::{Limit, PolicyChange, PreemptMode, PreemptType, Qos};
use squall_model::time::Span;

use crate::cells;
use crate::coverage::{Coverage, Phase};
use crate::judge::Violation;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::setup::{BEGIN, Setup};
use crate::setup::{FAST, HIGH, LOW};
use crate::world::client::Wish;
use crate::world::nemesis::Profile;
use crate::world::node::SKEW_MAX;
use crate::world::restore;
use crate::world::workload::Workload;
use crate::world::{Happening, World};

/// Settings of one simulation.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Random seed: equal seeds give equal runs.
    pub seed: u64,
    /// Number of simulated nodes.
    pub nodes: u32,
    /// Simulated time during which users and faults are active. Afterwards everything heals and all jobs must end.
    pub span: Span,
    /// Number of cells, which with their front replace the single controller and its nodes; 0: no cells.
    pub cells: u32,
    /// Number of controllers; 0: the seed decides.
    pub controllers: u32,
    /// Bug that is planted in the simulation. None: none is.
    pub mutation: Option<Mutation>,
    /// Whether to keep the whole trace. False: only its last lines.
    pub trace: bool,
}

/// Results of one simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seed of the simulation.
    pub seed: u64,
    /// First invariant that was violated. None: all held.
    pub violation: Option<Violation>,
    /// Simulated time from the beginning to the violation or the end.
    pub ended: Span,
    /// Counts of injected faults, by the phases that jobs were in.
    pub coverage: Coverage,
    /// Hash of the trace: equal runs have equal hashes.
    pub trace_hash: u64,
    /// Lines of the trace that were kept.
    pub trace: Vec<String>,
    /// Number of simulated events.
    pub steps: u64,
    /// Number of jobs, with array tasks counted one by one.
    pub jobs: u64,
}

/// Longest time after the last fault in which no job starts or ends, although some are left.
const PATIENCE: Span = Span::from_secs(3600);

/// Longest time after the last fault in all. It detects a job that starts and ends again and again.
const PATIENCE_IN_ALL: Span = Span::from_secs(7 * 86_400);

/// Number of controllers in a world of several.
const SEVERAL: u32 = 3;
/// Maximum number of controllers.
const CONTROLLERS_MAX: u32 = 9;

/// Number of equal parts into which a run's active time is divided. After every second part the live state is compared
/// with a replay of the journal.
const CHUNKS: u64 = 4;

/// Simulates one seed and returns the report.
pub fn run(settings: &Settings) -> Report {
    if settings.cells > 0 || settings.mutation.is_some_and(Mutation::is_of_cells) {
        return cells::run(settings);
    }
    if settings.mutation.map_or(settings.seed % 16 == 3, Mutation::is_of_backups) {
        return restore::run(settings);
    }
    let mut seed = Seed::new(settings.seed ^ 0x005a_11ed);
    let setup = setup_of(settings, &mut seed);
    let mut world = World::new(setup, settings.seed);
    plan(&mut world, settings, &mut seed);
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut world, settings)));
    let violation = played.unwrap_or_else(|panic| Err(Box::new(panicked(panic.as_ref())))).err();
    report(world, settings.seed, violation.map(|v| *v))
}

/// Returns the violation for a panic of a machine, with its message.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Violation { invariant: "machines do not panic", details: text.unwrap_or("for reasons unknown").to_owned() }
}

pub(crate) fn report(world: World, seed: u64, violation: Option<Violation>) -> Report {
    let jobs = world.judge.files.len() as u64 + world.judge.skipped.values().map(|&n| u64::from(n)).sum::<u64>();
    Report {
        seed,
        violation,
        ended: world.now.since(BEGIN),
        coverage: world.coverage,
        trace_hash: world.trace.hash(),
        trace: world.trace.lines(),
        steps: world.steps,
        jobs,
    }
}

pub(crate) fn setup_of(settings: &Settings, seed: &mut Seed) -> Setup {
    let names = (1..=settings.nodes).map(|n| format!("n{n}")).collect();
    let cores = seed.spread(1, 16) as u32;
    let mut setup = Setup::of(names, cores, u64::from(cores) * seed.between(500, 4000));
    setup.tree_width = [0, 2, 3, 4, 8][seed.below(5) as usize];
    setup.multicast = seed.chance(400_000).then(|| [0, 20_000, 300_000][seed.below(3) as usize]);
    setup.mutation = settings.mutation;
    let signs = |planted| matches!(planted, Mutation::ProofIgnored | Mutation::KeyUntold);
    setup.signed = settings.mutation.map_or(settings.seed % 4 == 2, signs);
    setup.controllers = controllers_of(settings);
    setup.trace = settings.trace;
    setup.config.kill_wait_s = seed.spread(1, 30);
    setup.config.min_job_age_s = seed.spread(30, 600);
    setup.config.kill_invalid_depend = seed.chance(500_000);
    if seed.chance(300_000) && settings.nodes > 1 {
        let nodes = format!("n[1-{}]", settings.nodes / 2);
        let fast = PartitionConfig { name: FAST.into(), nodes, priority_tier: 2, ..PartitionConfig::default() };
        setup.config.partitions = vec![PartitionConfig { default: true, ..PartitionConfig::default() }, fast];
    }
    if seed.chance(250_000) && settings.mutation.is_none() {
        setup.config.preempt_type = PreemptType::Qos;
        setup.config.preempt_mode.way = if seed.chance(700_000) { PreemptMode::Requeue } else { PreemptMode::Cancel };
    }
    if seed.chance(200_000) && settings.mutation.is_none() {
        setup.config.node_lost_s = 300;
        setup.config.node_lost_action =
            if seed.chance(500_000) { NodeLostAction::Requeue } else { NodeLostAction::Wait };
    }
    // A second stream of randomness, so that the other worlds stay as they were.
    // Where machines are switched off, two relays may go one after the other: then those behind them are called down.
    let small = settings.seed.is_multiple_of(3) && !matches!(settings.seed % 16, 4 | 9);
    if settings.mutation.map_or(small, |planted| planted == Mutation::BeatUntold) {
        let width = if setup.tree_width == 0 { TREE_WIDTH } else { setup.tree_width };
        let least = Config { tree_width: width, ..Config::default() }.node_timeout_min_s(settings.nodes as usize);
        setup.config.node_timeout_s = least + settings.seed / 3 % 8;
    }
    // Controllers of an older release accept no fences.
    setup.fences = settings.mutation.map_or(settings.seed % 5 == 2 && settings.seed % 16 != 3, Mutation::is_of_fences)
        && setup.controllers == 1;
    let several = settings.nodes > 3 && settings.seed % 16 != 7;
    if several && settings.mutation.map_or(settings.seed % 5 == 4, Mutation::is_of_places) {
        setup.keep_spares(1);
    }
    let stops = match settings.mutation {
        None => settings.seed.is_multiple_of(2) && setup.config.preempt_type == PreemptType::None,
        Some(mutation) => mutation == Mutation::WakeForgotten,
    };
    if stops && setup.config.partitions.len() > 1 {
        setup.config.preempt_type = PreemptType::Partition;
        setup.config.preempt_mode = Preempt { way: PreemptMode::Suspend, gang: true };
    }
    let leases = settings.mutation.map_or(settings.seed % 4 == 1, Mutation::is_of_leases);
    if leases && setup.config.preempt_type == PreemptType::None {
        if setup.config.partitions.is_empty() {
            setup.config.partitions.push(PartitionConfig { default: true, ..PartitionConfig::default() });
        }
        for partition in &mut setup.config.partitions {
            (partition.lease_jobs, partition.default_time_s) = (1 + settings.seed as u32 % 5, Some(3600));
        }
    }
    if settings.mutation.map_or(settings.seed % 10 == 3, |planted| planted == Mutation::CompletionUnawaited) {
        setup.config.complete_wait_s = 1 + settings.seed / 10 % 30;
    }
    run_programs(&mut setup, settings);
    let in_blocks = settings.mutation.map_or(settings.seed % 7 == 5, |planted| planted == Mutation::BlocksShared);
    if in_blocks && settings.nodes > 3 && setup.config.preempt_type == PreemptType::None {
        setup = setup.on_network("block", "2").expect("two nodes are a block");
    }
    if settings.mutation.map_or(matches!(settings.seed % 16, 4 | 9), Mutation::is_of_power) {
        setup.save_power(&mut Seed::new(settings.seed ^ 0x5a3e));
    }
    setup
}

/// Adds programs: the submit filter, and what nodes run around jobs, after faults, and for checkpoints.
fn run_programs(setup: &mut Setup, settings: &Settings) {
    if settings.mutation.map_or(settings.seed % 9 == 4, Mutation::is_of_filter) {
        setup.filter = Some(Span::from_millis(1 + settings.seed.wrapping_mul(619) % 2000));
    }
    if settings.mutation.map_or(settings.seed % 6 == 1, Mutation::is_of_places) {
        setup.check_after_faults(300_000);
    }
    if settings.mutation.map_or(settings.seed % 8 == 6, Mutation::is_of_programs) {
        setup.config.hooks.prolog = vec!["/prolog".to_owned()];
        setup.config.hooks.epilog = vec!["/epilog".to_owned()];
        let flags = &mut setup.config.hooks.prolog_flags;
        (flags.alloc, flags.serial) = (settings.seed % 16 == 6, settings.seed.is_multiple_of(3));
    }
    if settings.mutation.map_or(settings.seed % 8 == 7, Mutation::is_of_checkpoints) {
        "/checkpoints".clone_into(&mut setup.config.checkpoint_dir);
        setup.config.checkpoint_shared = settings.seed / 32 % 2 == 1;
        if settings.seed / 8 % 2 == 1 && setup.config.preempt_type != PreemptType::Partition {
            setup.config.preempt_type = PreemptType::Qos;
            setup.config.preempt_mode.way = PreemptMode::Checkpoint;
        }
    }
}

/// Returns the number of controllers.
fn controllers_of(settings: &Settings) -> u32 {
    let several = settings.mutation.map_or(matches!(settings.seed % 16, 2 | 5 | 11), Mutation::is_of_peers);
    match settings.controllers {
        0 if several => SEVERAL,
        count => count.clamp(1, CONTROLLERS_MAX),
    }
}

/// Returns policy changes that create two QOS with limits that no single job exceeds, which has at most eight nodes and a
/// spare one. `cpus`: CPUs of so many nodes. Jobs of the QOS `high` may
/// preempt jobs of the QOS `low`.
fn levels(seed: &mut Seed, cpus: u64) -> Vec<PolicyChange> {
    let mut low = Qos { grace_s: seed.below(3) * seed.spread(1, 30), ..Qos::default() };
    let mut high = Qos { priority: 10, preempt: vec![LOW.into()], ..Qos::default() };
    low.limits.insert(Limit::UserJobs, seed.spread(4, 20));
    high.limits.insert(Limit::GrpCpu, cpus + seed.below(2 * cpus));
    vec![PolicyChange::Qos(LOW.into(), Some(low)), PolicyChange::Qos(HIGH.into(), Some(high))]
}

pub(crate) fn plan(world: &mut World, settings: &Settings, seed: &mut Seed) {
    let until = BEGIN + settings.span;
    let per_hour = seed.spread(400, 1800) * u64::from(settings.nodes).clamp(24, 64) / 64;
    world.workload = Some(Workload::new(until, per_hour, &world.setup));
    world.after(Span::from_secs(1), Happening::Work);
    if world.setup.config.preempt_type == PreemptType::Qos {
        let levels = levels(seed, u64::from(world.setup.cores) * 9);
        world.wish(Wish::Policy(levels));
    }
    if settings.mutation.map_or(settings.seed % 2 == 1, Mutation::is_of_events) {
        world.add_viewer(settings.seed);
    }
    let gap = Span::from_millis(seed.spread(4_000, 240_000));
    let weights = match seed.below(8) {
        0 => [0; 8],
        1 => [10, 2, 0, 0, 0, 0, 2, 0],
        2 => [0, 0, 10, 10, 4, 0, 0, 2],
        3 => [0, 0, 0, 0, 0, 10, 2, 0],
        4 => [4, 0, 2, 2, 10, 2, 0, 0],
        _ => [10, 2, 6, 6, 3, 10, 3, 2],
    };
    if seed.chance(300_000) {
        for node in &mut world.nodes {
            node.skew = seed.span(Span(0), Span(2 * SKEW_MAX.0));
        }
    }
    for node in &mut world.nodes {
        node.deaf = seed.chance(100_000);
    }
    // Other faults hide whose silence it is.
    let stops = settings.mutation.map_or(settings.seed % 16 == 12, Mutation::is_of_stops);
    if stops {
        world.add_stops(settings.seed, until);
    } else if weights != [0; 8] {
        world.nemesis.profile = Some(Profile { until, gap, weights });
        world.after(gap, Happening::FaultStrikes);
    }
    if world.setup.fences && !stops {
        world.add_fence_faults(settings.seed, until);
    }
    world.plan_peers(until, seed);
    if world.setup.signed && settings.mutation != Some(Mutation::ProofIgnored) {
        world.add_rotations(settings.seed, until);
    }
    if settings.nodes > 1 && settings.mutation.map_or(settings.seed % 16 == 7, Mutation::is_of_members) {
        world.add_removals(settings.seed, until);
    }
}

fn play(world: &mut World, settings: &Settings) -> Result<(), Box<Violation>> {
    for chunk in 1..=CHUNKS {
        world.run_until(BEGIN + Span(settings.span.0 * chunk / CHUNKS))?;
        if chunk % 2 == 0 {
            world.check_replay_of(world.leader());
        }
    }
    world.heal_everything();
    world.disturb(Span(0));
    run_to_rest(world)?;
    world.judge.check_over()
}

/// Runs until every job has ended and all nodes are empty, or until there is no more progress. Then makes the final
/// checks.
pub(crate) fn run_to_rest(world: &mut World) -> Result<(), Box<Violation>> {
    let (begin, mut round) = (world.now, 0);
    let mut idle = BTreeMap::new();
    world.run_until(world.now + Span::from_secs(30))?;
    world.free_everything();
    world.end_removals()?;
    while world.now.since(begin.max(world.judge.progress)) < PATIENCE
        && world.now.since(begin) < PATIENCE_IN_ALL
        && !(world.is_quiet() && world.clients.are_content())
    {
        world.run_until(world.now + Span::from_secs(20))?;
        round += 1;
        world.check_stopped(&mut idle);
        match round % 30 {
            0 => world.free_everything(),
            15 => world.cancel_hopeless(),
            _ => {}
        }
    }
    // Long enough for late answers and for retries.
    world.run_until(world.now + Span::from_secs(90))?;
    world.check_quiet();
    world.check_viewer();
    world.check_replay();
    world.wish(Wish::AuditJobs);
    world.wish(Wish::AuditNodes);
    world.wish(Wish::AuditTree);
    world.wish(Wish::AuditCounters);
    world.run_until(world.now + Span::from_secs(6))?;
    world.check_followed()
}

impl World {
    /// Returns whether every job has ended and the nodes are empty.
    pub(crate) fn is_quiet(&self) -> bool {
        let idle = |order: usize| {
            let placed = &self.clients.placed[order];
            let Some(id) = self.judge.ids.get(&order) else { return placed.refused.is_some() || placed.abandoned };
            self.judge.is_over(*id)
        };
        (0..self.clients.placed.len()).all(idle)
            && self.nodes.iter().all(|n| n.steps.is_empty() && n.spool.steps.is_empty() && n.spool.jobs.is_empty())
    }

    /// Cancels pending jobs with dependencies that may never be fulfilled, in the name of their users.
    pub(crate) fn cancel_hopeless(&mut self) {
        let waiting: Vec<usize> = (0..self.clients.placed.len())
            .filter(|&order| !self.clients.placed[order].order.after.is_empty())
            .filter(|&order| {
                let files = self.judge.files_of(order, None);
                files.len() < self.clients.placed[order].order.array_tasks() as usize
                    || files.iter().any(|id| self.judge.files.get(id).is_some_and(|f| f.phase == Phase::Pending))
            })
            .collect();
        for order in waiting {
            self.wish(Wish::Cancel { order, index: None });
        }
    }

    /// Checks the end state: every submission is answered, every job has ended, and nothing is left on nodes.
    fn check_quiet(&mut self) {
        for order in 0..self.clients.placed.len() {
            let placed = &self.clients.placed[order];
            if placed.refused.is_none() && placed.id.is_none() && !placed.abandoned {
                self.judge.violate("every submission is answered", format!("order {order}"));
            }
        }
        let unfinished = self.judge.unfinished().next().map(|(id, f)| {
            let order = self.clients.order(f.order).map(|o| (o.kind, o.nodes, o.cores, o.memory_mb, &o.after));
            let machine = self.controllers[self.leader()].pipeline.as_ref().map(Pipeline::machine);
            let shown = machine.and_then(|machine| {
                let job = machine.state().jobs.get(&id)?;
                Some((job.state(), job.queue, machine.reason(id, self.now)))
            });
            format!("job {id} attempt {} is {} ({order:?}), the controller says {shown:?}", f.attempt, f.phase.name())
        });
        if let Some(text) = unfinished {
            self.judge.violate("every job ends", text);
        }
        for node in 0..self.nodes.len() {
            let host = &self.nodes[node];
            let left = host.steps.keys().chain(host.spool.steps.keys()).map(ToString::to_string).next();
            let left = left.or_else(|| host.spool.jobs.keys().map(|job| format!("{}.{}", job.job, job.attempt)).next());
            if let Some(text) = left {
                let text = format!("{text} on {}", host.name);
                self.judge.violate("nothing leaks", text);
            }
            if self.nodes[node].cores.iter().any(Option::is_some) {
                let text = self.nodes[node].name.clone();
                self.judge.violate("nothing leaks", format!("cores of {text}"));
            }
        }
        if !self.is_quiet() {
            let open = self.judge.submitted.keys().find(|id| !self.judge.is_over(**id)).copied();
            let known = open.and_then(|id| Some((id, self.judge.submitted.get(&id)?.0, self.judge.skipped.get(&id))));
            let shown =
                open.and_then(|id| self.controllers[self.leader()].state()?.arrays.get(&id)).map(|array| &array.tally);
            let text = format!("array, tasks, ended without start: {known:?}, the controller says {shown:?}");
            self.judge.violate("every job ends", text);
        }
        if !self.clients.are_content() {
            self.judge.violate("every request is answered", self.clients.first_waiting());
        }
    }
}
