//! Replay of past jobs: they arrive and run as long as they did, and the production policy decides again when and
//! where each starts, under the same or another configuration.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use squall_engine::control::Rehearsal;
use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::{ClientKey, Incarnation, JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobSpec, Need, Outcome, Owner};
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};

use crate::swf::{Trace, TraceJob};

/// A job that ran in the past, to be replayed.
#[derive(Clone, Debug)]
pub struct Past {
    /// Id of the job. Of jobs that become eligible at the same time, the one with the lower id is first.
    pub id: JobId,
    /// The job's specification.
    pub spec: Arc<JobSpec>,
    /// The job's owner.
    pub owner: Arc<Owner>,
    /// Time at which the job became eligible to start.
    pub eligible: Time,
    /// The job's run time.
    pub run: Span,
}

impl Past {
    /// Returns the jobs of a trace as jobs of a cluster: one task on one CPU for each processor, on the requested
    /// number of nodes if there is one. `nodes` maps a property or node name to the list of nodes that have it; the
    /// job's other required or excluded (`^name`) properties are ignored.
    pub fn of_trace(trace: &Trace, nodes: &BTreeMap<String, String>) -> Vec<Self> {
        let owner = Arc::new(Owner::default());
        let past = |(job, id): (&TraceJob, u32)| {
            let mut need = Need { ntasks: Some(job.processors), ..Need::default() };
            if let Some(spec) = job.spec {
                (need.nodes_min, need.nodes_max) = (Some(spec.nodes), Some(spec.nodes));
                (need.ntasks_per_node, need.exclusive) = (spec.per_node, spec.exclusive);
                let wanted = trace.properties.get(spec.properties).into_iter().flatten();
                let (mut features, mut names, mut without) = (Vec::new(), Vec::new(), Vec::new());
                for name in wanted {
                    match property(name, nodes) {
                        Some((_, having)) if name.starts_with('^') => without.push(having),
                        Some((name, having)) if name == having => names.push(name),
                        Some((name, _)) => features.push(name),
                        None => {}
                    }
                }
                let list = |words: Vec<&str>, by: &str| (!words.is_empty()).then(|| words.join(by));
                need.constraint = list(features, "&");
                (need.nodelist, need.exclude) = (list(names, ","), list(without, ","));
            }
            let spec = JobSpec { need, time_limit_s: Some(job.estimate), ..JobSpec::default() };
            let (eligible, run) = (Time::from_secs(job.submit), Span::from_secs(job.run));
            Self { id: JobId(id), spec: Arc::new(spec), owner: Arc::clone(&owner), eligible, run }
        };
        trace.jobs.iter().zip(1..).map(past).collect()
    }
}

/// Returns a trace's property as (name, list of nodes that have it), looked up in `nodes`. Traces write nodes as full
/// domain names or as `host=name`, and exclusions as `^name`. None: `nodes` has no such name.
pub fn property<'a>(name: &str, nodes: &'a BTreeMap<String, String>) -> Option<(&'a str, &'a str)> {
    let name = name.trim_start_matches('^').trim_start_matches("host=");
    let known = nodes.get_key_value(name).or_else(|| nodes.get_key_value(name.split_once('.')?.0))?;
    Some((known.0, known.1))
}

/// Results of a replay of past jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// Start time of each job, in the order of the input. None: the job never starts, because it does not fit on these
    /// nodes.
    pub starts: Vec<Option<Time>>,
    /// Greatest number of pending jobs, including jobs that can never start.
    pub queue_max: usize,
    /// Number of scheduling passes.
    pub passes: u64,
}

/// Replays jobs on the given nodes (name and hardware of each). `watch` is called now and then with the number of jobs
/// started.
pub fn again(config: &Config, nodes: &[(String, Hardware)], jobs: &[Past], mut watch: impl FnMut(usize)) -> Course {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| (jobs[*at].eligible, jobs[*at].id));
    let begin = order.first().map_or(Time(0), |at| jobs[*at].eligible);
    let mut rehearsal = cluster(config, nodes, begin);
    let mut course = Course { starts: vec![None; jobs.len()], queue_max: 0, passes: 0 };
    let (mut waiting, mut ends) = (Vec::<usize>::new(), BinaryHeap::<Reverse<(Time, usize)>>::new());
    let (mut next, mut started) = (0, 0);
    // Ids are given in the order of eligibility: original ids may have another order, or be of several cells.
    let mut ids = vec![JobId(0); jobs.len()];
    order.iter().zip(1..).for_each(|(at, id)| ids[*at] = JobId(id));
    loop {
        let arrival = order.get(next).map(|at| jobs[*at].eligible);
        let end = ends.peek().map(|Reverse((end, _))| *end);
        let Some(now) = [arrival, end].into_iter().flatten().min() else { break };
        while let Some(Reverse((_, at))) = ends.peek().copied().filter(|Reverse((end, _))| *end == now) {
            ends.pop();
            for event in end_of(&rehearsal, ids[at]) {
                rehearsal.happens(now, event);
            }
        }
        while let Some(&at) = order.get(next).filter(|at| jobs[**at].eligible == now) {
            let (Past { spec, owner, .. }, id) = (&jobs[at], ids[at]);
            let (key, owner, spec) = (ClientKey(u128::from(id.0)), Arc::clone(owner), alone(spec));
            rehearsal.happens(now, Event::JobSubmitted { id, key, owner, spec });
            waiting.push(at);
            next += 1;
        }
        course.queue_max = course.queue_max.max(waiting.len());
        course.passes += 1;
        let fresh = rehearsal.pass(now).0;
        if fresh > 0 {
            started += fresh as usize;
            watch(started);
            waiting.retain(|&at| {
                let runs = rehearsal.state().jobs.get(&ids[at]).is_some_and(|job| job.run().is_some());
                if runs {
                    course.starts[at] = Some(now);
                    ends.push(Reverse((now + jobs[at].run, at)));
                }
                !runs
            });
        }
    }
    course
}

/// Returns a job's specification without anything that delayed it before it became eligible.
fn alone(spec: &JobSpec) -> Arc<JobSpec> {
    Arc::new(JobSpec {
        dependency: None,
        array: None,
        hold: false,
        begin: None,
        deadline: None,
        reservation: None,
        ..spec.clone()
    })
}

/// Returns a rehearsal (scheduler without processes) of a cluster of idle nodes; nodes of several cells form one
/// cluster.
fn cluster(config: &Config, nodes: &[(String, Hardware)], begin: Time) -> Rehearsal {
    let mut rehearsal = Rehearsal::new();
    let config = Config { cell: None, ..config.clone() };
    rehearsal.happens(begin, Event::Configured { config: Arc::new(config) });
    for (name, hardware) in nodes {
        let fresh = NodeId(rehearsal.state().nodes.len() as u32);
        let node = rehearsal.state().node_id(name).unwrap_or(fresh);
        let (name, hardware) = (name.clone(), hardware.clone());
        rehearsal.happens(begin, Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
    }
    rehearsal
}

/// Returns the events of a job's end, which all its nodes report at once.
pub fn end_of(rehearsal: &Rehearsal, id: JobId) -> Vec<Event> {
    let Some(job) = rehearsal.state().jobs.get(&id) else { return Vec::new() };
    let Some(run) = job.run() else { return Vec::new() };
    let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
    let (attempt, nodes) = (job.attempt, run.left.clone());
    vec![Event::JobEnding { id, outcome, requeue: None }, Event::NodesReleased { id, attempt, nodes }]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::config::{Config, NodeConfig, SchedulerType};
    use squall_model::id::JobId;
    use squall_model::job::{JobSpec, Need, Owner};
    use squall_model::resource::Hardware;
    use squall_model::time::{Span, Time};

    use super::{Past, again};

    fn job(id: u32, nodes: u32, at: u64, run: u64, limit: u64) -> Past {
        let need = Need { nodes_min: Some(nodes), exclusive: true, ..Need::default() };
        let spec = JobSpec { need, time_limit_s: Some(limit), ..JobSpec::default() };
        let (spec, owner) = (Arc::new(spec), Arc::new(Owner::default()));
        Past { id: JobId(id), spec, owner, eligible: Time::from_secs(1000 + at), run: Span::from_secs(run) }
    }

    // Finding D8 of faults.md.
    #[test]
    fn d8_ids_of_several_cells_and_in_another_order_start_all_the_same() {
        let jobs = [job(67_108_864, 1, 0, 10, 10), job(3, 1, 1, 10, 10), job(2, 1, 2, 10, 10)];
        let mut config = Config { cell: Some(0), ..Config::default() };
        config.nodes.push(NodeConfig { name: "n1".into(), ..NodeConfig::default() });
        config.complete();
        let hardware = Hardware { cpus: 4, memory_mb: 1000, ..Hardware::default() };
        let starts = again(&config, &[("n1".to_owned(), hardware)], &jobs, |_| {}).starts;
        assert_eq!(starts, [1000, 1010, 1020].map(|secs| Some(Time::from_secs(secs))));
    }

    #[test]
    fn the_same_jobs_under_two_policies_and_on_more_nodes() {
        let jobs = [
            job(1, 1, 0, 100, 100),
            job(2, 2, 1, 50, 60),
            job(3, 1, 2, 30, 40),
            job(4, 1, 3, 500, 600),
            job(5, 9, 4, 1, 1),
        ];
        let starts = |scheduler_type, nodes: u32| {
            let mut config = Config { scheduler_type, ..Config::default() };
            config.nodes.push(NodeConfig { name: format!("n[1-{nodes}]"), ..NodeConfig::default() });
            config.complete();
            let hardware = Hardware { cpus: 4, memory_mb: 1000, ..Hardware::default() };
            let nodes: Vec<_> = (1..=nodes).map(|n| (format!("n{n}"), hardware.clone())).collect();
            let starts = again(&config, &nodes, &jobs, |_| {}).starts;
            starts.into_iter().map(|start| start.map(|time| time.secs() - 1000)).collect::<Vec<_>>()
        };
        assert_eq!(starts(SchedulerType::Builtin, 2), [Some(0), Some(100), Some(150), Some(150), None]);
        assert_eq!(starts(SchedulerType::Backfill, 2), [Some(0), Some(100), Some(2), Some(150), None]);
        assert_eq!(starts(SchedulerType::Builtin, 3), [Some(0), Some(1), Some(51), Some(51), None]);
    }
}
