//! One run: a queue of constant length, EASY backfill, and jobs that other jobs' traffic slows down.

use super::Settings;
use super::machine::{self, Machine, Part, Seat};
use super::traffic::{Share, Traffic};
use super::workload::{self, APPLICATIONS, Job};
use squall_replay::TraceJob;
use squall_sim::Seed;

/// Seconds between scheduling passes.
const PASS_S: u32 = 60;
/// Number of passes between recalculations of all jobs' slowdowns.
const LOADS_EVERY: u32 = 5;

/// Queue age at which a job's age factor stops growing, seconds.
const MAX_AGE_S: u32 = 7 * 24 * 3600;
/// Weight of a job's share of the machine in its priority; the weight of the age is 1. Sites with machines for large
/// jobs prefer these, and packing in order of falling size leaves the fewest holes.
const SIZE_WEIGHT: f64 = 3.0;
/// Number of nodes of the whole machine, including those of service routers.
const MACHINE_NODES: f64 = 27_648.0;
/// Share of the machine's nodes that is in the block with GPUs.
const GPU_SHARE: f64 = 4320.0 / MACHINE_NODES;
/// Time at the start during which all jobs are scattered when a fragmented machine is requested, seconds.
const SCATTERED_S: u32 = 3600;
/// Weight of the latest run in the moving average of slowdowns that users have seen.
const LATELY: f64 = 0.05;

/// Results of one simulation of Blue Waters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Usable nodes that jobs used, over all usable nodes. Surplus nodes of prisms count as idle.
    pub(crate) utilisation: f64,
    /// Work done over all usable node-seconds. Work is run time as if the job ran alone in the widest prism.
    pub(crate) throughput: f64,
    /// Work done over node-seconds used by jobs.
    pub(crate) efficiency: f64,
    /// Mean slowdown of sensitive jobs by other jobs' traffic: run time divided by run time alone on the same nodes.
    pub(crate) stretch: f64,
    /// Coefficient of variation of `stretch` over sensitive jobs.
    pub(crate) variation: f64,
    /// Number of jobs that ended in the measured time.
    pub(crate) jobs: usize,
    /// Mean waiting time of jobs that started in the measured time, seconds.
    pub(crate) mean_wait_s: f64,
    /// Share of used node-seconds in jobs of more than 512 nodes.
    pub(crate) large: f64,
    /// Shares of usable node-seconds that were idle: in jobs' prisms, in the reserved prism, elsewhere.
    pub(crate) idle: [f64; 3],
    /// Number of usable nodes of the machine.
    pub(crate) nodes: u32,
    /// Use of each router at the end, z varying fastest.
    pub(crate) map: Vec<Spot>,
    /// All submitted jobs by number, with the run time that each has alone.
    pub(crate) workload: Vec<TraceJob>,
}

/// Use of one router at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The router has no nodes for jobs.
    Service,
    /// The router has nodes for jobs, and no job uses it.
    Free,
    /// The job with this number uses the router; the first of them if several do.
    Job(u32),
}

/// Moving average of each application's slowdown. Users request time by what they have seen, so a placement's cost in
/// run time does not push jobs over their limits.
struct Experience {
    of: [f64; APPLICATIONS.len()],
}

impl Default for Experience {
    fn default() -> Self {
        Self { of: [1.0; APPLICATIONS.len()] }
    }
}

impl Experience {
    fn gains(&mut self, job: &Job, took_s: u32) {
        let of = &mut self.of[job.application];
        *of += LATELY * ((f64::from(took_s) / job.run_s).max(1.0) - *of);
    }
}

struct Running {
    job: Job,
    seat: Seat,
    share: Share,
    /// Run time left, in seconds that the job would take alone in the widest prism.
    left_s: f64,
    started: u32,
    /// Current slowdowns: compared with running alone in the widest prism, and compared with running alone on the same
    /// nodes.
    stretch: (f64, f64),
}

/// Queue and state of a part of the machine (nodes with or without GPUs), which is scheduled by itself.
struct Lane {
    machine: Machine,
    /// Number of pending jobs that the workload keeps in this queue.
    backlog: usize,
    /// Number of nodes of the largest job that the workload submits to this queue.
    largest: u32,
    /// Number of nodes, including those of service routers.
    nodes: f64,
    /// Pending jobs of this part of the machine, each with its submit time in seconds.
    queue: Vec<(Job, u32)>,
    running: Vec<Running>,
    /// Number of the pending job that holds the reservation. None: there is no reservation.
    head: Option<u32>,
}

impl Lane {
    /// Creates the queue and an empty machine for a part that has `share` (0 to 1) of the machine's nodes.
    fn new(settings: &Settings, part: Part, share: f64, service: &[usize]) -> Self {
        Self {
            machine: Machine::new(settings.placement, part, service),
            backlog: (settings.backlog as f64 * share).round() as usize,
            largest: (f64::from(workload::NODES_MAX) * share) as u32,
            nodes: MACHINE_NODES * share,
            queue: Vec::new(),
            running: Vec::new(),
            head: None,
        }
    }
}

/// Simulates one machine and returns the results.
pub(crate) fn run(settings: &Settings) -> Outcome {
    let mut random = Seed::new(settings.seed);
    let service = machine::service(&mut random);
    let parts = if settings.gpu_block {
        vec![(Part::WithoutGpus, 1.0 - GPU_SHARE), (Part::WithGpus, GPU_SHARE)]
    } else {
        vec![(Part::Whole, 1.0)]
    };
    let lane = |(part, share): (Part, f64)| Lane::new(settings, part, share, &service);
    let mut lanes: Vec<Lane> = parts.into_iter().map(lane).collect();
    let mut traffic = Traffic::new(&lanes[0].machine.frame, settings.patterns);
    let mut number = 0;
    let mut tally = Tally::default();
    let end = settings.warm_up_s + settings.window_s;
    let mut experience = Experience::default();
    for pass in 0..end / PASS_S {
        let now = pass * PASS_S;
        let counts = now >= settings.warm_up_s;
        for lane in &mut lanes {
            lane.machine.scatter_all(settings.fragmented && now < SCATTERED_S);
            let ended = advance(lane, &mut traffic, &mut experience, (now, counts), &mut tally);
            while lane.queue.len() < lane.backlog {
                number += 1;
                let mut job = workload::job(&mut random, number, lane.largest, settings.equal_runs);
                tally.workload.push(job.as_traced(now));
                job.estimate_s = (f64::from(job.estimate_s) * experience.of[job.application]) as u32;
                lane.queue.push((job, now));
            }
            schedule(lane, &mut traffic, (now, ended), |wait_s| {
                if counts {
                    tally.waits.push(f64::from(wait_s));
                }
            });
            if counts {
                let idle = lane.machine.idle();
                tally.idle.iter_mut().zip(idle).for_each(|(sum, nodes)| *sum += f64::from(nodes) * f64::from(PASS_S));
            }
        }
        if pass.is_multiple_of(LOADS_EVERY) {
            for other in lanes.iter_mut().flat_map(|lane| &mut lane.running) {
                other.stretch = traffic.stretch(&other.job, &other.share);
            }
        }
    }
    let nodes = lanes.iter().map(|lane| lane.machine.board.usable_nodes()).sum::<u64>() as u32;
    let maps = lanes.iter().map(|lane| lane.machine.map());
    // Routers of another part have the same mark as service nodes.
    let both = |one: Spot, other: Spot| if one == Spot::Service { other } else { one };
    let map = maps.reduce(|map, more| map.into_iter().zip(more).map(|(one, other)| both(one, other)).collect());
    let outcome = tally.outcome(f64::from(nodes) * f64::from(settings.window_s));
    Outcome { nodes, map: map.unwrap_or_default(), ..outcome }
}

/// Advances all running jobs by one scheduling interval. Returns whether a job has ended. `(now, counts)`: the time in
/// seconds, and whether the interval is within the measured time.
fn advance(
    Lane { machine, running, .. }: &mut Lane,
    traffic: &mut Traffic,
    experience: &mut Experience,
    (now, counts): (u32, bool),
    tally: &mut Tally,
) -> bool {
    let before = running.len();
    running.retain_mut(|job| {
        let step = (f64::from(PASS_S) / job.stretch.0).min(job.left_s);
        if counts {
            tally.used += f64::from(job.job.nodes) * step * job.stretch.0;
            tally.done += f64::from(job.job.nodes) * step;
            if job.job.nodes > 512 {
                tally.large += f64::from(job.job.nodes) * step * job.stretch.0;
            }
        }
        job.left_s -= step;
        if job.job.sensitive && counts {
            tally.minutes.push((job.job.number, job.stretch.1, step));
        }
        if job.left_s > 0.0 {
            return true;
        }
        experience.gains(&job.job, now - job.started);
        machine.leave(job.job.number, &job.seat);
        traffic.remove(&job.share);
        tally.jobs += usize::from(counts);
        false
    });
    running.len() < before
}

/// Returns a job's priority from its waiting time (as `PriorityWeightAge`) and its size (as `PriorityWeightJobSize`).
fn priority(job: &Job, waited_s: u32, nodes: f64) -> f64 {
    f64::from(waited_s.min(MAX_AGE_S)) / f64::from(MAX_AGE_S) + SIZE_WEIGHT * f64::from(job.nodes) / nodes
}

/// Runs one pass of EASY backfill in priority order. The first job that cannot start gets a reservation; later jobs
/// start only if they do not delay it. `(now, ended)`: the time in seconds, and whether a job has ended since the last
/// pass. `waited` is called with the waiting time of each job that starts, seconds.
fn schedule(lane: &mut Lane, traffic: &mut Traffic, (now, ended): (u32, bool), mut waited: impl FnMut(u32)) {
    let Lane { machine, queue, running, head, nodes, .. } = lane;
    let priority = |(job, since): &(Job, u32)| priority(job, now - since, *nodes);
    queue.sort_by(|a, b| priority(b).total_cmp(&priority(a)));
    let mut blocked: Option<BlockedJob> = None;
    let mut at = 0;
    for _ in 0..queue.len() {
        let Some(&(job, submit)) = queue.get(at) else { break };
        let end = now + job.estimate_s;
        let may = blocked.as_ref().is_none_or(|blocked| blocked.lets(machine, &job, end));
        let seat = if may { machine.place(&job, end, blocked.is_none()) } else { None };
        let Some(seat) = seat else {
            if blocked.is_none() {
                // The reservation stays as it is while nothing has changed.
                if ended || *head != Some(job.number) {
                    machine.reserve(machine.wants_prism(&job).then_some(&job), now);
                }
                *head = Some(job.number);
                blocked = Some(BlockedJob::new(machine, &job, running));
            }
            at += 1;
            continue;
        };
        machine.seat(&job, &seat, end);
        if let Some(blocked) = &mut blocked
            && end > blocked.from
        {
            blocked.spare = blocked.spare.saturating_sub(job.nodes.into());
        }
        let cells: Vec<usize> = seat.cells.iter().map(|(cell, _)| *cell).collect();
        let share = traffic.share_beside(&machine.frame, &job, &cells, &machine.ideal(&job));
        traffic.add(&share);
        let stretch = traffic.stretch(&job, &share);
        running.push(Running { job, seat, share, left_s: job.run_s, started: now, stretch });
        waited(now - submit);
        queue.remove(at);
    }
    if blocked.is_none() {
        *head = None;
        machine.reserve(None, now);
    }
}

/// The first pending job that cannot start, and its reservation.
struct BlockedJob {
    /// True: the reservation is a number of nodes. False: it is a prism.
    counted: bool,
    /// Time at which enough nodes are free for the blocked job at the latest, seconds.
    from: u32,
    /// Number of free nodes that the blocked job does not need at `from`.
    spare: u64,
}

impl BlockedJob {
    fn new(machine: &Machine, job: &Job, running: &[Running]) -> Self {
        if machine.wants_prism(job) {
            return Self { counted: false, from: u32::MAX, spare: u64::MAX };
        }
        let mut ends: Vec<(u32, u32)> =
            running.iter().map(|other| (other.started + other.job.estimate_s, other.job.nodes)).collect();
        let (from, spare) = Machine::count_reservation(&mut ends, machine.board.free_nodes(), job.nodes);
        Self { counted: true, from, spare }
    }
    /// Returns whether a later job may start now without delaying the blocked job.
    fn lets(&self, machine: &Machine, job: &Job, end: u32) -> bool {
        !self.counted || end <= self.from || u64::from(job.nodes) <= self.spare.min(machine.board.free_nodes())
    }
}

#[derive(Default)]
struct Tally {
    used: f64,
    done: f64,
    large: f64,
    idle: [f64; 3],
    jobs: usize,
    waits: Vec<f64>,
    workload: Vec<TraceJob>,
    /// Samples of sensitive jobs: job number, slowdown, seconds of run time alone.
    minutes: Vec<(u32, f64, f64)>,
}

impl Tally {
    fn outcome(mut self, all: f64) -> Outcome {
        self.minutes.sort_by_key(|(job, ..)| *job);
        let stretches: Vec<f64> = self
            .minutes
            .chunk_by(|a, b| a.0 == b.0)
            .map(|minutes| {
                let own: f64 = minutes.iter().map(|(_, _, step)| step).sum();
                minutes.iter().map(|(_, stretch, step)| stretch * step).sum::<f64>() / own.max(1e-9)
            })
            .collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let stretch = mean(&stretches);
        let squares: Vec<f64> = stretches.iter().map(|value| (value - stretch).powi(2)).collect();
        Outcome {
            utilisation: self.used / all,
            throughput: self.done / all,
            efficiency: self.done / self.used.max(1e-9),
            stretch,
            variation: mean(&squares).sqrt() / stretch.max(1e-9),
            jobs: self.jobs,
            mean_wait_s: mean(&self.waits),
            large: self.large / self.used.max(1e-9),
            idle: self.idle.map(|sum| sum / all),
            workload: self.workload,
            ..Outcome::default()
        }
    }
}
