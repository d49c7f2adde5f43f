//! `squall bench schedule`: duration of a scheduling pass of the controller with very many pending jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use squall_engine::control::Rehearsal;
use squall_model::config::{Config, NodeConfig};
use squall_model::event::Event;
use squall_model::id::{ClientKey, Incarnation, JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobSpec, Need, Outcome, Owner};
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_sim::Seed;

use super::{BenchOptions, Finding, round};

const NODES: u32 = 10_000;
const PENDING: u32 = 100_000;
const CPUS: u32 = 16;
/// Number of timed scheduling passes of each kind.
const TIMES: usize = 30;
/// Numbers of pending jobs with reservations for which passes are timed, in addition to one.
const KEPT: [usize; 2] = [10, 50];
/// Simulated time at which the benchmark starts.
const BEGIN: Time = Time::from_secs(1_000_000);
/// Longest time limit of the jobs, seconds.
const LIMIT_S: u32 = 48 * 3600;

/// Distribution of the jobs' sizes and time limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// Sizes are powers of two and time limits are multiples of five minutes, as users tend to choose them.
    Round,
    /// Sizes and time limits vary so much that hardly any two jobs have the same request.
    Odd,
}

/// Durations of scheduling passes, with counts.
struct Times {
    /// Duration of a pass over all pending jobs that starts none, microseconds.
    full_us: f64,
    /// Median duration of a pass after the end of one job, which starts others in its place, microseconds.
    next_us: f64,
    /// Longest duration of a pass after the end of one job, microseconds.
    next_max_us: f64,
    looked_at: u64,
    started: u64,
    /// Milliseconds of `squall why` for the first pending job, for the last one that has only planned jobs before it,
    /// and for the last job.
    why_ms: [f64; 3],
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let (nodes, pending) = (options.nodes.unwrap_or(NODES), options.pending.unwrap_or(PENDING));
    if nodes == 0 {
        return Err("--nodes: at least one node is needed".into());
    }
    let [round_mix, odd] = [Mix::Round, Mix::Odd].map(|mix| time(mix, 1, nodes, pending));
    let kept = KEPT.map(|kept| (kept, round(time(Mix::Round, kept, nodes, pending).next_us / 1e3)));
    let fields = vec![
        ("nodes", json!(nodes)),
        ("pending", json!(pending)),
        ("full_pass_ms", json!(round(round_mix.full_us / 1e3))),
        ("looked_at", json!(round_mix.looked_at)),
        ("after_one_end_us", json!(round(round_mix.next_us))),
        ("after_one_end_max_us", json!(round(round_mix.next_max_us))),
        ("started_after_ends", json!(round_mix.started)),
        ("why_ms", json!(round_mix.why_ms.map(round))),
        ("all_different_why_ms", json!(odd.why_ms.map(round))),
        ("after_one_end_with_room_kept_for_ms", json!(BTreeMap::from(kept))),
        ("all_different_full_pass_ms", json!(round(odd.full_us / 1e3))),
        ("all_different_looked_at", json!(odd.looked_at)),
        ("all_different_after_one_end_us", json!(round(odd.next_us))),
    ];
    Ok(Finding { bench: "schedule", figure: round_mix.full_us / 1e3, unit: "ms for a pass", limit: None, fields })
}

/// Times passes that reserve nodes for up to `kept` pending jobs.
fn time(mix: Mix, kept: usize, nodes: u32, pending: u32) -> Times {
    let (mut rehearsal, mut seed) = (cluster(nodes, kept), Seed::new(7));
    // The jobs that fill the cluster are submitted first.
    let mut submitted = 0;
    let mut waiting = 0;
    while waiting < u64::from(pending) {
        let more = (u64::from(pending) - waiting).min(10_000);
        for _ in 0..more {
            submitted += 1;
            submit(&mut rehearsal, JobId(submitted), spec(mix, &mut seed));
        }
        let (started, _) = rehearsal.pass(BEGIN);
        waiting += more - started.min(waiting + more);
    }
    let mut full = Vec::new();
    let mut looked_at = 0;
    for _ in 0..TIMES {
        let begin = Instant::now();
        let (_, looked) = rehearsal.pass(BEGIN);
        full.push(begin.elapsed().as_secs_f64() * 1e6);
        looked_at = looked;
    }
    let (mut next, mut started) = (Vec::new(), 0);
    for at in 0..TIMES {
        let now = BEGIN + Span::from_secs(60 + at as u64);
        if !end_one(&mut rehearsal, now) {
            break;
        }
        let begin = Instant::now();
        started += rehearsal.pass(now).0;
        next.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let (full_us, next_us) = (middle(&mut full), middle(&mut next));
    let next_max_us = next.last().copied().unwrap_or_default();
    let why_ms = if kept == 1 { why(&mut rehearsal) } else { [0.0; 3] };
    Times { full_us, next_us, next_max_us, looked_at, started, why_ms }
}

fn why(rehearsal: &mut Rehearsal) -> [f64; 3] {
    let waiting = rehearsal.state().jobs.iter().filter(|(_, job)| job.is_pending());
    let waiting: Vec<JobId> = waiting.map(|(id, _)| *id).collect();
    [0, 49, waiting.len().saturating_sub(1)].map(|place| {
        let Some(id) = waiting.get(place) else { return 0.0 };
        let begin = Instant::now();
        rehearsal.why(BEGIN + Span::from_secs(3600), *id);
        begin.elapsed().as_secs_f64() * 1e3
    })
}

/// Returns a cluster of equal, idle nodes that reserves nodes for `kept` pending jobs.
fn cluster(nodes: u32, kept: usize) -> Rehearsal {
    let mut rehearsal = Rehearsal::new();
    let mut config = Config::default();
    config.nodes.push(NodeConfig { name: format!("n[1-{nodes}]"), ..NodeConfig::default() });
    config.scheduler_parameters.bf_job_part_count_reserve = kept;
    config.complete();
    rehearsal.happens(BEGIN, Event::Configured { config: Arc::new(config) });
    for at in 0..nodes {
        let hardware = Hardware { cpus: CPUS, memory_mb: 64_000, ..Hardware::default() };
        let (node, name) = (NodeId(at), format!("n{}", at + 1));
        rehearsal.happens(BEGIN, Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
    }
    rehearsal
}

fn spec(mix: Mix, seed: &mut Seed) -> JobSpec {
    let mut below = |limit: u32| seed.below(u64::from(limit)) as u32;
    let (wide, limit_s) = match mix {
        Mix::Round => (1 << below(10), 300 * (1 + below(LIMIT_S / 300))),
        Mix::Odd => (1 + below(512), 60 + below(LIMIT_S)),
    };
    let need = match below(10) {
        0..3 => Need { ntasks: Some(1 << below(4)), ..Need::default() },
        _ => Need { nodes_min: Some(wide), exclusive: true, ..Need::default() },
    };
    JobSpec { need, time_limit_s: Some(limit_s.into()), ..JobSpec::default() }
}

fn submit(rehearsal: &mut Rehearsal, id: JobId, spec: JobSpec) {
    let (key, owner) = (ClientKey(id.0.into()), Arc::new(Owner::default()));
    rehearsal.happens(BEGIN, Event::JobSubmitted { id, key, owner, spec: Arc::new(spec) });
}

/// Ends the first running job. Returns false if none runs.
fn end_one(rehearsal: &mut Rehearsal, now: Time) -> bool {
    let jobs = &rehearsal.state().jobs;
    let running = jobs.iter().find_map(|(id, job)| Some((*id, job.attempt, job.run()?.left.clone())));
    let Some((id, attempt, nodes)) = running else { return false };
    let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
    rehearsal.happens(now, Event::JobEnding { id, outcome, requeue: None });
    rehearsal.happens(now, Event::NodesReleased { id, attempt, nodes });
    true
}
