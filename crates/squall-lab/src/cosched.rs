//! Coscheduling policies compared on one mixed workload: a pure model of nodes, ranks and barriers, in ticks of 100
//! µs.
//!
//! A job is a sequence of phases: every rank computes, then all meet at a barrier. Fine-grained balanced jobs lose all
//! time during which not all of their ranks run. Unbalanced jobs waste time at every barrier. Coarse-grained jobs lose
//! hardly anything. The policies are STORM's: batch, gang, implicit (spin, then block, with each node's own
//! scheduler), flexible (FCS) and buffered (BCS). In BCS a message that is sent in one slice is scheduled in the next
//! slice and delivered at the start of the one after.

use std::collections::{BTreeMap, VecDeque};

use squall_model::gang::Turn;
use squall_model::id::{JobId, NodeId};
use squall_model::resource::Alloc;
use squall_sched::{Piece, turns};

use squall_sim::Seed;

const NODES: usize = 8;
const TICK_US: u64 = 100;

/// Length of a time slot of gang scheduling, ticks of 100 µs.
const SLOT: u64 = 100;
/// Length of a time slice of buffered coscheduling, ticks.
const SLICE: u64 = 5;
/// Length of a time slice of a node's own scheduler, ticks.
const LOCAL: u64 = 30;
/// Time for which a waiting process spins before it blocks, ticks.
const SPIN: u64 = 2;

/// Cost of a context switch on a node, microseconds.
const SWITCH_US: u64 = 50;

/// Maximum number of jobs that share a node.
const ROWS: usize = 3;

/// Number of jobs of a simulated workload.
const JOBS: u32 = 18;
/// Mean time between two arrivals of jobs, ticks.
const BETWEEN: u64 = 9_000;

/// Shortest computing time between barriers, microseconds, with which a process does not need coscheduling.
const COARSE_US: u64 = 10_000;

/// Percentage of its time that a process must wait at barriers to count as frustrated.
const FRUSTRATED: u64 = 25;

/// Time in its own slots after which a process is classified, ticks.
const MEASURE: u64 = 2 * SLOT;
/// Interval at which processes are classified again, ticks.
const ANEW: u64 = 50 * SLOT;

/// Maximum length of a simulation, ticks.
const LONGEST: u64 = 5_000_000;

/// A coscheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    /// Jobs run one after the other.
    Batch,
    /// Jobs alternate in time slots; all ranks of a job run in the same slots.
    Gang,
    /// A waiting process blocks; each node's own scheduler chooses the process to run.
    Implicit,
    /// Jobs that need it alternate in time slots; other processes fill the time left.
    Flexible,
    /// BCS: messages are scheduled and delivered at the boundaries of time slices.
    Buffered,
}

impl Method {
    /// All policies.
    pub(crate) const ALL: [Self; 5] = [Self::Batch, Self::Gang, Self::Implicit, Self::Flexible, Self::Buffered];

    /// Returns the policy's name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Gang => "gang",
            Self::Implicit => "implicit",
            Self::Flexible => "fcs",
            Self::Buffered => "bcs",
        }
    }
}

/// Results of a simulated workload under one coscheduling policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyResult {
    /// Mean time from a job's arrival to its end, microseconds.
    pub(crate) response_us: u64,
    /// Time of the last job's end, microseconds.
    pub(crate) makespan_us: u64,
    /// Share of the machine's time that was spent computing, in millionths.
    pub(crate) computed_ppm: u64,
}

/// Measured need of a process for coscheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    /// The process must run at the same time as the job's other ranks.
    #[default]
    Together,
    /// The process should run at the same time as the job's other ranks, but mostly waits for slower ones.
    Frustrated,
    /// The process rarely waits for other ranks and does not need coscheduling.
    Careless,
}

/// A process of a parallel job in the model.
#[derive(Clone, Debug, Default)]
struct Rank {
    /// Computing time in each phase, microseconds; ranks of a job may have different loads.
    load_us: u64,
    left_us: u64,
    /// Run time since the rank reached the barrier, ticks. None: the rank has not reached the barrier yet and computes.
    waits: Option<u64>,
    /// Run time so far, by which the node's own scheduler shares fairly, microseconds.
    used_us: u64,
    class: Class,
    own_ticks: u64,
    computed_us: u64,
    waited_us: u64,
    phases: u64,
}

#[derive(Clone, Debug)]
struct Job {
    id: JobId,
    arrives: u64,
    width: usize,
    phases: u64,
    loads_us: Vec<u64>,
}

/// A running job of the model.
struct Running {
    job: Job,
    alloc: Alloc,
    phases: u64,
    ranks: BTreeMap<usize, Rank>,
    /// Tick at which buffered coscheduling ends the barrier, once all ranks have reached it.
    released: Option<u64>,
    turn: Turn,
}

/// Returns the workload of a seed: a third each of fine-grained balanced, unbalanced and coarse-grained jobs, in
/// random order.
fn workload(seed: u64, jobs: u32) -> VecDeque<Job> {
    let mut chance = Seed::new(seed);
    let mut at = 0;
    let job = |number| {
        at += chance.between(1, 2 * BETWEEN);
        let width = if chance.below(3) == 0 { NODES / 2 } else { NODES };
        let (grain_us, least) = match chance.below(3) {
            0 => (chance.between(300, 1500), 100),
            1 => (chance.between(1000, 4000), 30),
            _ => (chance.between(100_000, 400_000), 90),
        };
        let work_us = chance.spread(50_000, 4_000_000);
        let load = |chance: &mut Seed| grain_us * chance.between(least, 100) / 100;
        let loads_us = (0..width).map(|_| load(&mut chance)).collect();
        Job { id: JobId(number + 1), arrives: at, width, phases: (work_us / grain_us).max(1), loads_us }
    };
    (0..jobs).map(job).collect()
}

/// Runs the workload of a seed under a policy.
pub(crate) fn simulate(method: Method, seed: u64) -> PolicyResult {
    fare_with(method, workload(seed, JOBS))
}

fn fare_with(method: Method, queue: VecDeque<Job>) -> PolicyResult {
    let mut machine = Machine::new(method, queue);
    while machine.now < LONGEST && machine.tick() {}
    let jobs = machine.responses.len().max(1) as u64;
    PolicyResult {
        response_us: machine.responses.iter().sum::<u64>() * TICK_US / jobs,
        makespan_us: machine.now * TICK_US,
        computed_ppm: machine.computed_us * 1_000_000 / (machine.now.max(1) * TICK_US * NODES as u64),
    }
}

struct Machine {
    method: Method,
    now: u64,
    queue: VecDeque<Job>,
    running: BTreeMap<JobId, Running>,
    /// Job that each node ran in the last tick.
    last: [Option<JobId>; NODES],
    responses: Vec<u64>,
    computed_us: u64,
}

impl Machine {
    fn new(method: Method, queue: VecDeque<Job>) -> Self {
        let running = BTreeMap::new();
        Self { method, now: 0, queue, running, last: [None; NODES], responses: Vec::new(), computed_us: 0 }
    }

    /// Advances the model by one tick. Returns false when all jobs have ended.
    fn tick(&mut self) -> bool {
        self.admit();
        for node in 0..NODES {
            let chosen = self.choose(node);
            let switched = chosen != self.last[node];
            let budget = if switched { TICK_US - SWITCH_US } else { TICK_US };
            self.last[node] = chosen;
            if let Some(rank) = chosen.and_then(|id| self.running.get_mut(&id)?.ranks.get_mut(&node)) {
                self.computed_us += rank.run(budget);
            }
            self.pass(node, chosen);
        }
        self.now += 1;
        self.meet();
        !self.queue.is_empty() || !self.running.is_empty()
    }

    /// Starts jobs in the order of arrival, as long as each node of the next one has fewer jobs than may share it.
    fn admit(&mut self) {
        let rows = if self.method == Method::Batch { 1 } else { ROWS };
        let mut changed = false;
        while let Some(job) = self.queue.front().filter(|job| job.arrives <= self.now) {
            let jobs_on = |node: usize| self.running.values().filter(|r| r.ranks.contains_key(&node)).count();
            let blocks = (0..NODES).step_by(job.width).map(|first| first..first + job.width);
            let least = blocks.min_by_key(|nodes| nodes.clone().map(jobs_on).max().unwrap_or(0));
            let Some(nodes) = least.filter(|nodes| nodes.clone().all(|node| jobs_on(node) < rows)) else { break };
            let Some(job) = self.queue.pop_front() else { break };
            let mut alloc = Alloc::default();
            for node in nodes.clone() {
                alloc.push(NodeId(node as u32), [0].into_iter().collect(), 0);
            }
            let rank = |load_us: &u64| Rank { load_us: *load_us, left_us: *load_us, ..Rank::default() };
            let ranks = nodes.zip(job.loads_us.iter().map(rank)).collect();
            let turn = Turn { slot: u32::MAX, ..Turn::default() };
            self.running.insert(job.id, Running { phases: job.phases, job, alloc, ranks, released: None, turn });
            changed = true;
        }
        if changed {
            self.pack();
        }
    }

    fn pack(&mut self) {
        let pieces = self.running.iter().map(|(&job, running)| {
            // New jobs go behind all others.
            Piece { job, slot: running.turn.slot, rank: 0, alloc: &running.alloc, runs: true }
        });
        let turns = turns(&pieces.collect::<Vec<_>>(), true);
        for (job, turn) in turns {
            if let Some(running) = self.running.get_mut(&job) {
                running.turn = turn;
            }
        }
    }

    /// Returns the job of the rank that a node runs in this tick.
    fn choose(&self, node: usize) -> Option<JobId> {
        let here =
            || self.running.iter().filter_map(move |(&id, running)| Some((id, running, running.ranks.get(&node)?)));
        let slot = |turn: Turn| (self.now / SLOT % u64::from(turn.of)) as u32;
        let in_turn = || here().find(|(_, running, _)| running.turn.runs_in(slot(running.turn)));
        match self.method {
            Method::Batch => here().next().map(|(id, ..)| id),
            Method::Gang => in_turn().map(|(id, ..)| id),
            Method::Implicit => self.local(node, |_| true),
            Method::Flexible => match in_turn() {
                Some((id, _, rank)) if rank.class == Class::Together => Some(id),
                Some((id, _, rank)) if rank.class == Class::Frustrated && rank.wants() => Some(id),
                _ => self.local(node, |rank| rank.class != Class::Together),
            },
            Method::Buffered => {
                let jobs: Vec<(JobId, &Rank)> = here().map(|(id, _, rank)| (id, rank)).collect();
                let first = (self.now / SLOT) as usize % jobs.len().max(1);
                let order = jobs.iter().cycle().skip(first).take(jobs.len());
                order.filter(|(_, rank)| rank.waits.is_none()).map(|(id, _)| *id).next()
            }
        }
    }

    /// Returns the job that a node's own scheduler chooses: the one with the process that has run least. The current
    /// process keeps its time slice. `may` tells which processes can be chosen.
    fn local(&self, node: usize, may: impl Fn(&Rank) -> bool) -> Option<JobId> {
        let wanting = self.running.iter().filter_map(|(&id, running)| Some((id, running.ranks.get(&node)?)));
        let wanting = || wanting.clone().filter(|(_, rank)| rank.wants() && may(rank));
        let (least, id) = wanting().map(|(id, rank)| (rank.used_us, id)).min()?;
        let last = self.last[node].and_then(|last| wanting().find(|(id, _)| *id == last));
        let stays = last.filter(|(_, rank)| rank.used_us < least + LOCAL * TICK_US);
        Some(stays.map_or(id, |(last, _)| last))
    }

    /// Updates waiting times and classes of a node's ranks after a tick in which the node ran the job `chosen`.
    fn pass(&mut self, node: usize, chosen: Option<JobId>) {
        for (id, running) in &mut self.running {
            let slot = (self.now / SLOT % u64::from(running.turn.of)) as u32;
            let own = running.turn.runs_in(slot);
            let Some(rank) = running.ranks.get_mut(&node) else { continue };
            if let Some(ticks) = &mut rank.waits {
                *ticks += u64::from(chosen == Some(*id));
            }
            if own && self.method == Method::Flexible {
                rank.measure();
            }
        }
    }

    /// Ends each barrier that all ranks of its job have reached. The job's next phase begins, or the job ends.
    fn meet(&mut self) {
        let (now, buffered) = (self.now, self.method == Method::Buffered);
        let mut ended = Vec::new();
        for (id, running) in &mut self.running {
            if running.ranks.values().any(|rank| rank.waits.is_none()) {
                continue;
            }
            if buffered {
                let released = *running.released.get_or_insert((now / SLICE + 2) * SLICE);
                if now < released {
                    continue;
                }
                running.released = None;
            }
            running.phases -= 1;
            if running.phases == 0 {
                ended.push(*id);
            }
            for rank in running.ranks.values_mut() {
                (rank.waits, rank.left_us) = (None, rank.load_us);
                rank.phases += 1;
            }
        }
        for id in &ended {
            if let Some(running) = self.running.remove(id) {
                self.responses.push(now - running.job.arrives);
            }
        }
        if !ended.is_empty() {
            self.pack();
        }
    }
}

impl Rank {
    /// Returns whether the rank can use the CPU, either to compute or to spin at the barrier.
    fn wants(&self) -> bool {
        self.waits.is_none_or(|ticks| ticks < SPIN)
    }

    /// Runs the rank for `budget_us`. Returns the time spent computing, microseconds.
    fn run(&mut self, budget_us: u64) -> u64 {
        self.used_us += budget_us;
        if self.waits.is_some() {
            return 0;
        }
        let done = self.left_us.min(budget_us);
        self.left_us -= done;
        self.computed_us += done;
        if self.left_us == 0 {
            self.waits = Some(0);
        }
        done
    }

    /// Updates the rank's class after a tick in one of its own slots.
    fn measure(&mut self) {
        self.own_ticks += 1;
        self.waited_us += if self.waits.is_some() { TICK_US } else { 0 };
        if self.own_ticks == MEASURE {
            let grain_us = self.computed_us / self.phases.max(1);
            let waits = self.waited_us * 100 / (self.waited_us + self.computed_us).max(1);
            self.class = match (grain_us >= COARSE_US, waits >= FRUSTRATED) {
                (true, _) => Class::Careless,
                (false, true) => Class::Frustrated,
                (false, false) => Class::Together,
            };
        }
        if self.own_ticks == ANEW {
            self.class = Class::Together;
            (self.own_ticks, self.computed_us, self.waited_us, self.phases) = (0, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Method, PolicyResult, fare_with, workload};

    /// Runs a workload of few jobs, because tests are compiled without optimization.
    fn few(method: Method, seed: u64) -> PolicyResult {
        fare_with(method, workload(seed, 5))
    }

    #[test]
    fn the_same_seed_gives_the_same_workload_and_the_same_times() {
        assert_eq!(workload(3, 5).len(), 5);
        assert_eq!(few(Method::Gang, 3), few(Method::Gang, 3));
        assert_ne!(few(Method::Gang, 3), few(Method::Gang, 4));
    }

    #[test]
    fn everybody_computes_the_same_work() {
        let work = |method| {
            let fared = few(method, 5);
            fared.computed_ppm * fared.makespan_us / 1_000_000
        };
        let all = Method::ALL.map(work);
        assert!(all.iter().all(|work| work.abs_diff(all[0]) <= all[0] / 500), "{all:?}");
    }
}
