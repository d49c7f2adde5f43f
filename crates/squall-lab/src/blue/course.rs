//! Runs the synthetic workload under the production policy and records the order of events and the nodes that each job
//! gets. A real cluster on which the same events happen can be compared with it.

use std::sync::Arc;

use squall_engine::control::Rehearsal;
use squall_model::config::{Config, TopologyFile};
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::id::{ClientKey, Incarnation, JobId, NodeId};
use squall_model::job::network::{self, Network};
use squall_model::job::options::{Chosen, Options};
use squall_model::job::{JobKind, JobSpec, Need, Owner};
use squall_model::resource::Hardware;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use super::workload::{self, SMALL_NODES};
use squall_replay::end_of;
use squall_sim::Seed;

/// Time at which the simulated cluster starts.
const BEGIN: Time = Time::from_secs(1_800_000_000);
/// Simulated time between two acts (submissions or ends of jobs). All acts together take less than the differences
/// between time limits, so the policy's comparisons do not depend on how fast a cluster processes them.
const ACT: Span = Span::from_millis(10);
/// Unit of time limits, seconds: every job's limit is a multiple of this.
const LIMITS_S: u64 = 1800;
/// Number of pending jobs that the workload keeps in the queue.
const BACKLOG: usize = 12;
/// Divisor that limits job sizes: the largest job requests at most the machine's nodes divided by this.
const LARGEST: u32 = 3;

/// One event of a course: the submission or the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The job with this index in `Course::jobs` is submitted.
    Submit(usize),
    /// The job with this index in `Course::jobs` ends.
    End(usize),
}

/// A workload, the events that happened and the resulting placements.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Course {
    /// Job specifications, in the order of submission.
    pub(crate) jobs: Vec<JobSpec>,
    /// Submissions and ends, in the order in which they happened.
    pub(crate) acts: Vec<Act>,
    /// Nodes of each job as a compressed host list, by job index; empty for a job that has not started.
    pub(crate) placed: Vec<String>,
    /// Number of jobs that started before a job that was submitted earlier.
    pub(crate) passed: usize,
    /// Mean share of all nodes that was allocated to jobs, from 0 to 1.
    pub(crate) utilisation: f64,
}

/// Returns the configuration of a torus with these extents: one node at each router, named n1, n2 and so on. The first
/// axis varies fastest.
pub(crate) fn torus(extents: &[u32]) -> Config {
    let nodes: u32 = extents.iter().product();
    let dims = extents.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
    let text = format!("TorusName=t Dims={dims} Nodes=n[1-{nodes}]\n");
    Config { topology: TopologyFile { name: "topology.conf".into(), text }, ..Config::default() }
}

/// A running job of a simulated course of events.
struct Running {
    job: usize,
    /// When the job ends, seconds since the start of the workload.
    ends_s: f64,
    nodes: usize,
}

/// Runs `jobs` jobs of the synthetic workload on a cluster with this configuration.
pub(crate) fn course(config: &Config, extents: &[u32], seed: u64, jobs: usize) -> Course {
    let nodes: u32 = extents.iter().product();
    let (mut rehearsal, mut random) = (cluster(config, nodes), Seed::new(seed));
    let (mut course, mut running, mut runs) = (Course::default(), Vec::<Running>::new(), Vec::new());
    let (mut clock_s, mut used) = (0.0, 0.0);
    course.placed = vec![String::new(); jobs];
    loop {
        while course.jobs.len() < jobs && course.jobs.len() - started(&course) < BACKLOG {
            let number = course.jobs.len();
            let (spec, run_s) = job(&mut random, number, nodes);
            let id = JobId(number as u32 + 1);
            let (key, owner) = (ClientKey(u128::from(id.0)), Arc::new(Owner::default()));
            course.jobs.push(spec.clone());
            runs.push(run_s);
            act(
                &mut rehearsal,
                &mut course,
                Act::Submit(number),
                [Event::JobSubmitted { id, key, owner, spec: Arc::new(spec) }],
            );
            note_starts(&rehearsal, &mut course, &mut running, &runs, clock_s);
        }
        let first = running.iter().enumerate().min_by(|(_, a), (_, b)| a.ends_s.total_cmp(&b.ends_s)).map(|(at, _)| at);
        let Some(at) = first else { break };
        let busy: usize = running.iter().map(|one| one.nodes).sum();
        let Running { job, ends_s, .. } = running.swap_remove(at);
        used += busy as f64 * (ends_s - clock_s);
        clock_s = ends_s;
        let events = end_of(&rehearsal, JobId(job as u32 + 1));
        act(&mut rehearsal, &mut course, Act::End(job), events);
        note_starts(&rehearsal, &mut course, &mut running, &runs, clock_s);
    }
    course.utilisation = used / (clock_s * f64::from(nodes)).max(1.0);
    course
}

/// Returns the number of jobs that have started.
fn started(course: &Course) -> usize {
    course.placed.iter().filter(|nodes| !nodes.is_empty()).count()
}

/// Applies one act's events to the cluster and runs a scheduling pass.
fn act(rehearsal: &mut Rehearsal, course: &mut Course, what: Act, events: impl IntoIterator<Item = Event>) {
    course.acts.push(what);
    let now = BEGIN + Span(ACT.0 * course.acts.len() as u64);
    events.into_iter().for_each(|event| rehearsal.happens(now, event));
    rehearsal.pass(now);
}

/// Records the placements of jobs that the last scheduling pass started.
fn note_starts(rehearsal: &Rehearsal, course: &mut Course, running: &mut Vec<Running>, runs: &[f64], clock_s: f64) {
    let waited = (0..course.jobs.len()).filter(|at| course.placed[*at].is_empty()).collect::<Vec<_>>();
    let mut behind = false;
    for job in waited {
        let Some(run) = rehearsal.state().jobs.get(&JobId(job as u32 + 1)).and_then(|job| job.run()) else {
            behind = true;
            continue;
        };
        let nodes = run.alloc.nodes();
        course.placed[job] = names(&nodes);
        course.passed += usize::from(behind);
        running.push(Running { job, ends_s: clock_s + runs[job], nodes: nodes.len() });
    }
}

/// Returns the names of nodes as a compressed host list.
fn names(nodes: &NodeSet) -> String {
    hostlist::compress(nodes.iter().map(|id| format!("n{}", id.0 + 1)).collect::<Vec<_>>())
}

/// Returns a rehearsal (scheduler without processes) of an idle cluster of `nodes` equal nodes.
fn cluster(config: &Config, nodes: u32) -> Rehearsal {
    let mut rehearsal = Rehearsal::new();
    let mut config = config.clone();
    config.nodes.push(squall_model::config::NodeConfig { name: format!("n[1-{nodes}]"), ..Default::default() });
    config.complete();
    rehearsal.happens(BEGIN, Event::Configured { config: Arc::new(config) });
    for at in 0..nodes {
        let hardware = Hardware { cpus: 16, memory_mb: 65_536, ..Hardware::default() };
        let (node, name) = (NodeId(at), format!("n{}", at + 1));
        rehearsal.happens(BEGIN, Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
    }
    rehearsal
}

/// Returns the next job's specification and its run time, seconds.
fn job(random: &mut Seed, number: usize, nodes: u32) -> (JobSpec, f64) {
    let job = workload::job(random, number as u32, (nodes / LARGEST).max(SMALL_NODES + 2), false);
    let limit_s = u64::from(job.estimate_s).div_ceil(LIMITS_S) * LIMITS_S;
    let wide = job.nodes > SMALL_NODES;
    let class = Some(network::class(if job.sensitive { "sensitive" } else { "tolerant" }));
    let network = Network { class, ..Network::default() };
    let need = Need { nodes_min: Some(job.nodes), nodes_max: Some(job.nodes), exclusive: true, ..Need::default() };
    let spec = JobSpec {
        kind: JobKind::Batch,
        name: format!("blue{number}"),
        // Run time for emulated nodes: longer than any job lasts, so the driver ends each job.
        comment: Some(format!("timer_ms={}", limit_s * 1000)),
        need,
        time_limit_s: Some(limit_s),
        requeue: Some(false),
        options: if wide { Chosen { network, ..Chosen::default() }.into() } else { Options::default() },
        work_dir: "/".into(),
        command: "blue".into(),
        submit_line: "squall bench torus".into(),
        stdout: Some("/dev/null".into()),
        ..JobSpec::default()
    };
    (spec, job.run_s)
}

#[cfg(test)]
mod tests {
    use super::{Act, course, torus};

    #[test]
    fn the_same_seed_is_the_same_course_and_everybody_is_placed() {
        let config = torus(&[6, 6, 6]);
        let one = course(&config, &[6, 6, 6], 3, 60);
        assert_eq!(one, course(&config, &[6, 6, 6], 3, 60));
        assert!(one.placed.iter().all(|nodes| !nodes.is_empty()));
        assert_eq!(one.acts.iter().filter(|act| matches!(act, Act::End(_))).count(), 60);
        assert!(one.passed > 5 && one.utilisation > 0.4, "{} passed, {}", one.passed, one.utilisation);
        assert_ne!(one.placed, course(&config, &[6, 6, 6], 4, 60).placed);
    }
}
