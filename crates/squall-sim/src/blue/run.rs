//! The run: a queue that is kept full, EASY backfill, and jobs that are slowed down by others' traffic.

use super::Settings;
use super::machine::{Machine, Seat};
use super::traffic::{Share, Traffic};
use super::workload::{self, APPLICATIONS, Job};
use crate::Seed;

/// Seconds from one scheduling pass to the next.
const PASS_S: u32 = 60;
/// Passes after which the slowdown of all jobs is worked out anew.
const LOADS_EVERY: u32 = 5;

/// The oldest that a job gets in the queue, seconds.
const MAX_AGE_S: u32 = 7 * 24 * 3600;
/// What the whole machine counts in a job's priority beside the greatest age: sites with machines for large jobs let
/// these go first, and what is packed in falling sizes leaves the fewest holes.
const SIZE_WEIGHT: f64 = 3.0;
/// Nodes of the whole machine.
const MACHINE_NODES: f64 = 27_648.0;
/// What one run counts in what users have seen.
const LATELY: f64 = 0.05;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Usable nodes that jobs used, over all usable nodes; surplus nodes of prisms count as idle.
    pub utilisation: f64,
    /// Work done, as if every job ran alone in the widest prism, over all usable node-seconds.
    pub throughput: f64,
    /// Work done over node-seconds used.
    pub efficiency: f64,
    /// Mean run time of sensitive jobs over what they would take on the same nodes alone.
    pub stretch: f64,
    /// Its coefficient of variation.
    pub variation: f64,
    /// Jobs that ended in the window.
    pub jobs: usize,
    /// Mean wait of jobs that started in the window, seconds.
    pub mean_wait_s: f64,
    /// Share of node-seconds in jobs of more than 512 nodes.
    pub large: f64,
    /// Shares of all usable node-seconds that nobody used: in prisms, kept for the first that waited, elsewhere.
    pub idle: [f64; 3],
}

/// How much longer than alone the runs of each application have taken of late: users ask for what they have seen, and
/// what a placement costs in run time does not make their jobs run over their limits.
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
    /// Seconds of its own time that are left.
    left_s: f64,
    started: u32,
    /// By which factor it is slower at present than in the widest prism alone, and than alone where it is.
    stretch: (f64, f64),
}

/// Simulates one machine.
pub fn run(settings: &Settings) -> Outcome {
    let mut random = Seed::new(settings.seed);
    let mut machine = Machine::new(settings.placement, &mut random);
    let mut traffic = Traffic::new(&machine.frame);
    let mut number = 0;
    let mut queue: Vec<(Job, u32)> = Vec::new();
    let mut running: Vec<Running> = Vec::new();
    let mut tally = Tally::default();
    let end = settings.warm_up_s + settings.window_s;
    let mut head: Option<u32> = None;
    let mut experience = Experience::default();
    for pass in 0..end / PASS_S {
        let now = pass * PASS_S;
        let counts = now >= settings.warm_up_s;
        let ended = advance(&mut running, (&mut machine, &mut traffic), &mut experience, (now, counts), &mut tally);
        while queue.len() < settings.backlog {
            number += 1;
            let mut job = workload::job(&mut random, number, workload::NODES_MAX);
            job.estimate_s = (f64::from(job.estimate_s) * experience.of[job.application]) as u32;
            queue.push((job, now));
        }
        schedule(&mut machine, &mut traffic, &mut queue, &mut running, &mut head, (now, ended), |wait_s| {
            if counts {
                tally.waits.push(f64::from(wait_s));
            }
        });
        if counts {
            let idle = machine.idle();
            tally.idle.iter_mut().zip(idle).for_each(|(sum, nodes)| *sum += f64::from(nodes) * f64::from(PASS_S));
        }
        if pass.is_multiple_of(LOADS_EVERY) {
            for other in &mut running {
                other.stretch = traffic.stretch(&other.job, &other.share);
            }
        }
    }
    tally.outcome(machine.board.usable_nodes() as f64 * f64::from(settings.window_s))
}

/// A minute passes. True: some job has ended.
fn advance(
    running: &mut Vec<Running>,
    (machine, traffic): (&mut Machine, &mut Traffic),
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

/// What a job is worth in the queue, as by `PriorityWeightAge` and `PriorityWeightJobSize`.
fn priority(job: &Job, waited_s: u32) -> f64 {
    f64::from(waited_s.min(MAX_AGE_S)) / f64::from(MAX_AGE_S) + SIZE_WEIGHT * f64::from(job.nodes) / MACHINE_NODES
}

/// One pass of EASY: who can start does, in order; the first who can't keeps its place; others may pass it if that
/// does not put it off.
fn schedule(
    machine: &mut Machine,
    traffic: &mut Traffic,
    queue: &mut Vec<(Job, u32)>,
    running: &mut Vec<Running>,
    head: &mut Option<u32>,
    (now, ended): (u32, bool),
    mut waited: impl FnMut(u32),
) {
    queue.sort_by(|(a, since), (b, other)| priority(b, now - other).total_cmp(&priority(a, now - since)));
    let mut blocked: Option<Blocked> = None;
    let mut at = 0;
    for _ in 0..queue.len() {
        let Some(&(job, submit)) = queue.get(at) else { break };
        let end = now + job.estimate_s;
        let may = blocked.as_ref().is_none_or(|blocked| blocked.lets(machine, &job, end));
        let seat = if may { machine.place(&job, end, blocked.is_none()) } else { None };
        let Some(seat) = seat else {
            if blocked.is_none() {
                // A prism that was kept stays, unless something has changed.
                if ended || *head != Some(job.number) {
                    machine.reserve(machine.wants_prism(&job).then_some(&job), now);
                }
                *head = Some(job.number);
                blocked = Some(Blocked::new(machine, &job, running));
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

/// The first job that found no room.
struct Blocked {
    /// Whether a count of nodes is kept for it rather than a prism.
    counted: bool,
    /// When it can start at the latest.
    from: u32,
    /// Nodes that it leaves then.
    spare: u64,
}

impl Blocked {
    fn new(machine: &Machine, job: &Job, running: &[Running]) -> Self {
        if machine.wants_prism(job) {
            return Self { counted: false, from: u32::MAX, spare: u64::MAX };
        }
        let mut ends: Vec<(u32, u32)> =
            running.iter().map(|other| (other.started + other.job.estimate_s, other.job.nodes)).collect();
        let (from, spare) = Machine::count_reservation(&mut ends, machine.board.free_nodes(), job.nodes);
        Self { counted: true, from, spare }
    }
    /// Whether a later job may start now.
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
    /// Of sensitive jobs: number, slowdown, seconds of their own time.
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
        }
    }
}
