//! Generic resources: each device has one holder, on each node, over restarts and requeues.

use squall_model::config::{Config, NodeConfig};
use squall_model::gres::{Ask, on_node};
use squall_model::id::{JobId, NodeId};
use squall_model::job::gpus::GpuCount;
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};

use crate::control::tests::driver::{ADA, Driver, batch};

fn cluster(nodes: u32, gres: &str) -> Driver {
    let node = NodeConfig { name: format!("n[1-{nodes}]"), gres: gres.into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { nodes: vec![node], ..Config::default() });
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), 8));
    d
}

fn with(options: &[(&str, &str)], need: Need) -> JobSpec {
    let gres = options.iter().find(|(name, _)| *name == "gres").map(|(_, value)| (*value).to_owned());
    let mut spec = JobSpec { need: Need { gres, ..need }, ..batch() };
    let gpus = &mut spec.options.gpus;
    for (option, value) in options.iter().filter(|(name, _)| *name != "gres") {
        match *option {
            "gpus" => gpus.total = GpuCount::parse(value),
            "gpus-per-node" => gpus.per_node = GpuCount::parse(value),
            "gpus-per-socket" => gpus.per_socket = GpuCount::parse(value),
            "gpus-per-task" => gpus.per_task = GpuCount::parse(value),
            "cpus-per-gpu" => gpus.cpus = value.parse().ok(),
            other => panic!("{other}"),
        }
    }
    spec
}

/// The GPUs that a job holds on a node.
fn gpus(d: &Driver, id: JobId, node: u32) -> Vec<usize> {
    let held = on_node(&d.c.state().jobs[&id].run().unwrap().gres, NodeId(node));
    held.get("gpu").into_iter().flat_map(squall_model::set::BitSet::iter).collect()
}

fn refusal(d: &mut Driver, spec: JobSpec) -> Refusal {
    let key = d.key();
    let answers = d.submit_with(key, spec);
    let [Answer::Refused(refusal)] = &answers[..] else { panic!("{answers:?}") };
    refusal.clone()
}

#[test]
fn jobs_on_one_node_hold_different_gpus_and_wait_for_more() {
    let mut d = cluster(1, "gpu:a100:3,gpu:v100:1");
    let typed = d.submit(with(&[("gres", "gpu:v100:1")], Need::default()));
    let two = d.submit(with(&[("gpus-per-node", "2")], Need::default()));
    let more = d.submit(with(&[("gpus", "2")], Need::default()));
    assert_eq!((gpus(&d, typed, 0), gpus(&d, two, 0)), (vec![3], vec![0, 1]));
    assert_eq!(d.state_of(more), Some(JobState::Pending));
    d.restart();
    d.register("n1", &[d.attempt(typed), d.attempt(two)]);
    assert_eq!(d.state_of(more), Some(JobState::Pending), "a restart forgets nothing of what is held");
    d.finish(two, 0);
    assert_eq!(gpus(&d, more, 0), [0, 1]);
    d.finish(typed, 0);
    d.finish(more, 0);
    assert!(d.c.state.index.gres[&NodeId(0)].held.is_empty());
}

#[test]
fn gpus_of_a_job_and_of_tasks_are_spread_over_nodes() {
    let mut d = cluster(3, "gpu:4");
    let six = d.submit(with(&[("gpus", "6")], Need::default()));
    assert_eq!((gpus(&d, six, 0).len(), gpus(&d, six, 1).len()), (3, 3));
    let tasks =
        d.submit(with(&[("gpus-per-task", "2"), ("cpus-per-gpu", "2")], Need { ntasks: Some(2), ..Need::default() }));
    assert_eq!(gpus(&d, tasks, 2), [0, 1, 2, 3]);
    let run = d.c.state.jobs[&tasks].run().unwrap();
    assert_eq!(run.alloc.cpus(), 8, "two for each GPU");
    let one = d.submit(with(&[("gres", "gpu")], Need::default()));
    assert_eq!(gpus(&d, one, 0), [3]);
    assert_eq!(Ask::of_job(&d.c.state.jobs[&tasks].spec).unwrap().totals(1, 2)["gpu"], 4);
}

/// A node without a task would have GPUs that nothing uses, as in Slurm.
#[test]
fn gpus_of_a_job_are_on_as_many_nodes_as_it_has_tasks() {
    let mut d = cluster(2, "gpu:2");
    let of = |gpus, ntasks, on: Option<&str>| {
        let nodelist = on.map(str::to_owned);
        with(&[("gpus", gpus)], Need { ntasks: Some(ntasks), nodelist, ..Need::default() })
    };
    assert!(matches!(refusal(&mut d, of("3", 1, None)), Refusal::NodeConfigNotAvailable(_)));
    let holds = d.submit(of("1", 1, Some("n1")));
    let waits = d.submit(of("2", 1, Some("n1")));
    assert!(d.c.state.jobs[&waits].run().is_none(), "one of them is on n1, and its task would be there");
    d.finish(holds, 0);
    assert_eq!((gpus(&d, waits, 0), gpus(&d, waits, 1)), (vec![0, 1], vec![]));
    d.finish(waits, 0);
    let two = d.submit(of("3", 2, None));
    assert_eq!((gpus(&d, two, 0), gpus(&d, two, 1)), (vec![0, 1], vec![0]));
}

#[test]
fn a_job_is_shown_with_its_devices_by_type_in_the_nodes_order() {
    let mut d = cluster(2, "gpu:h100:2,gpu:a100:2,fpga:3");
    let mixed = d.submit(with(&[("gres", "fpga:2,gpu:a100:1,gpu:h100:1")], Need::default()));
    let wide = Need { nodes_min: Some(2), ..Need::default() };
    let wide = d.submit(with(&[("gres", "gpu:a100:1")], wide));
    let mut shown = |id| {
        let jobs = JobSelection { ids: vec![JobRef::Job(id)], ..JobSelection::default() };
        match d.ask(5, ADA, Request::Jobs { jobs, ended: false, steps: false }).remove(0) {
            Answer::Jobs(mut page) => page.jobs.remove(0).run.unwrap().gres,
            other => panic!("{other:?}"),
        }
    };
    let on = |words: &[(&str, &str)]| -> Vec<(String, String)> {
        words.iter().map(|(hosts, word)| ((*hosts).to_owned(), (*word).to_owned())).collect()
    };
    let one = on(&[("n1", "gpu:h100:1(IDX:0)"), ("n1", "gpu:a100:1(IDX:2)"), ("n1", "fpga:2(IDX:0-1)")]);
    assert_eq!(shown(mixed), one);
    assert_eq!(shown(wide), on(&[("n1", "gpu:a100:1(IDX:3)"), ("n2", "gpu:a100:1(IDX:2)")]));
}

#[test]
fn what_no_node_has_is_refused_in_slurms_words() {
    let mut d = cluster(2, "gpu:4");
    let mut refused = |options: &[(&str, &str)]| refusal(&mut d, with(options, Need::default()));
    assert!(matches!(refused(&[("gres", "fpga:1")]), Refusal::InvalidValue { option, .. } if option == "gres"));
    assert!(matches!(refused(&[("gres", "x:y:z:1")]), Refusal::InvalidValue { option, .. } if option == "gres"));
    assert!(matches!(refused(&[("gpus-per-node", "5")]), Refusal::NodeConfigNotAvailable(_)));
    assert!(matches!(refused(&[("gpus", "9")]), Refusal::NodeConfigNotAvailable(_)));
    assert!(matches!(refused(&[("gpus-per-socket", "1")]), Refusal::NotSupported(_)));
}

/// `--gres-flags=enforce-binding`: a job gets only CPUs near its devices, and waits for them.
#[test]
fn a_job_that_binds_gets_only_cpus_near_its_devices() {
    let gres =
        squall_model::gres::parse_conf("Name=gpu File=/dev/a Cores=0-3\nName=gpu File=/dev/b Cores=4-7\n").unwrap();
    let node = NodeConfig { name: "n1".into(), gres: "gpu:2".into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { nodes: vec![node], gres, ..Config::default() });
    d.add_node("n1", 8);
    let of = |cpus, gpus: &str, bound: bool| {
        let need = Need { cpus_per_task: Some(cpus), ..Need::default() };
        let asked = [("gpus", gpus)];
        let mut spec = with(&asked[usize::from(gpus.is_empty())..], need);
        spec.options.enforce_binding = bound.then_some(true);
        spec
    };
    let cores = |d: &Driver, id: JobId| {
        let run = d.c.state.jobs[&id].run().unwrap().clone();
        run.alloc.groups[0].cores.iter().collect::<Vec<_>>()
    };
    // Two CPUs near the first GPU are taken: three are free near the second one only.
    let other = d.submit(of(2, "", false));
    let bound = d.submit(of(3, "1", true));
    assert_eq!((cores(&d, other), cores(&d, bound), gpus(&d, bound, 0)), (vec![0, 1], vec![4, 5, 6], vec![1]));
    // Three CPUs are free, but two of them near the GPU. Without binding it would start.
    let waits = d.submit(of(3, "1", true));
    assert_eq!(d.state_of(waits), Some(JobState::Pending));
    d.cancel(waits);
    let prefers = d.submit(of(3, "1", false));
    assert_eq!(cores(&d, prefers), [2, 3, 7]);
    d.finish(prefers, 0);
    // It waits until those near its GPU are free.
    let waits = d.submit(of(3, "1", true));
    d.finish(other, 0);
    assert_eq!((cores(&d, waits), gpus(&d, waits, 0)), (vec![0, 1, 2], vec![0]));
    // Both GPUs have all CPUs near them.
    d.finish(waits, 0);
    d.finish(bound, 0);
    let all = d.submit(of(8, "2", true));
    assert_eq!(cores(&d, all).len(), 8);
    // More than are near one GPU: never.
    assert!(matches!(refusal(&mut d, of(5, "1", true)), Refusal::NodeConfigNotAvailable(_)));
}
