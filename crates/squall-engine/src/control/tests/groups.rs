//! Parallel groups of ranks (`--groups`): those with the most traffic stand in a block, ranks follow the blocks, and
//! `squall why` tells how far groups reach.

use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::id::JobId;
use squall_model::job::network::GroupKind;
use squall_model::job::options::AsGiven;
use squall_model::job::{JobSpec, JobState, Need, Together};
use squall_model::step::{Distribution, Layout, StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::info::{Why, WhyChange, WhySpan};

use super::driver::{ADA, Driver, batch, in_network};

/// Nodes of 4 CPUs in a network.
fn network(text: &str, nodes: u32) -> Driver {
    let topology = TopologyFile { name: "topology.conf".into(), text: text.into() };
    let node = NodeConfig { name: format!("n[1-{nodes}]"), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { topology, nodes: vec![node], ..Config::default() });
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), 4));
    d
}

/// Four blocks of six nodes.
fn blocks() -> Driver {
    let lines =
        "BlockName=a Nodes=n[1-6]\nBlockName=b Nodes=n[7-12]\nBlockName=c Nodes=n[13-18]\nBlockName=d Nodes=n[19-24]\n";
    network(&format!("{lines}BlockSizes=6,12\n"), 24)
}

fn job(nodes: u32, tasks: u32, pairs: &[(&str, &str)]) -> JobSpec {
    let (nodes, ntasks) = (Some(nodes), Some(tasks));
    let need = Need { nodes_min: nodes, nodes_max: nodes, ntasks, exclusive: true, ..Need::default() };
    JobSpec { need, options: in_network(pairs), time_limit_s: Some(600), ..batch() }
}

fn on(nodes: &str) -> JobSpec {
    let need = Need { nodelist: Some(nodes.into()), exclusive: true, ..Need::default() };
    JobSpec { need, time_limit_s: Some(600), ..batch() }
}

fn why(d: &mut Driver, id: JobId) -> Why {
    let answers = d.ask(5, ADA, Request::Why { job: id });
    let [Answer::Why(told)] = &answers[..] else { panic!("{answers:?}") };
    (**told).clone()
}

fn spans(d: &mut Driver, id: JobId) -> Vec<(String, u32, u32)> {
    let told = why(d, id).spans.into_iter();
    told.map(|WhySpan { name, most, mean_hundredths }| (name, most, mean_hundredths)).collect()
}

/// Names of a job's nodes, as numbers.
fn nodes_of(d: &Driver, id: JobId) -> Vec<u32> {
    let run = d.c.state().jobs[&id].run().unwrap();
    run.working_nodes().iter().map(|node| node.0 + 1).collect()
}

/// The layout of a step, or why there is none.
fn step(d: &mut Driver, job: JobId, spec: StepSpec, pairs: &[(&str, &str)]) -> Result<Layout, Refusal> {
    let program = Box::new(TaskProgram { options: in_network(pairs), ..TaskProgram::default() });
    let key = d.key();
    let answers = d.ask(9, ADA, Request::CreateStep { job, spec: Box::new(spec), program, key });
    match answers.into_iter().next() {
        Some(Answer::StepCreated { layout, .. }) => Ok(*layout),
        Some(Answer::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn tasks(ntasks: u32) -> StepSpec {
    StepSpec { ntasks: Some(ntasks), overlap: true, ..StepSpec::default() }
}

/// Name of the node of each rank.
fn ranks(layout: &Layout) -> Vec<String> {
    (0..layout.ntasks()).map(|rank| layout.nodes.get(layout.node_of(rank).unwrap()).unwrap().clone()).collect()
}

#[test]
fn groups_with_the_most_traffic_stand_in_blocks() {
    let mut d = blocks();
    d.submit(on("n[1-2,7-8]"));
    // Four nodes with the groups `tp` and `pp` stand in each block, though two blocks have six free.
    let id = d.submit(job(12, 48, &[("groups", "tp:4,pp:4,dp:3")]));
    assert_eq!(d.state_of(id), Some(JobState::Running));
    assert_eq!(nodes_of(&d, id), [3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16]);
    assert_eq!(spans(&mut d, id), [("tp".into(), 1, 100), ("pp".into(), 1, 100), ("dp".into(), 3, 300)]);
    let layout = step(&mut d, id, tasks(48), &[]).unwrap();
    assert_eq!(layout.distribution, Distribution::Block, "the ranks follow the nodes");
    // Eight nodes are free in two blocks, five and three: without groups the job would start.
    let mut d = blocks();
    d.submit(on("n[1,7-9,13-24]"));
    let id = d.submit(job(8, 32, &[("groups", "tp:4,pp:4,dp:2")]));
    let told = why(&mut d, id);
    let found = told.partitions[0].misfit.clone().unwrap();
    let options = vec![("groups".to_owned(), "tp:4,pp:4,dp:2".to_owned())];
    assert_eq!((found.together, found.free, found.options), (Together::Segments, true, options));
    assert!(told.changes.iter().any(|(change, _)| *change == WhyChange::WithoutGroups), "{:?}", told.changes);
    let tolerant = d.submit(job(8, 32, &[("groups", "tp:4,pp:4,dp:2"), ("network", "tolerant")]));
    assert_eq!(d.state_of(tolerant), Some(JobState::Running));
}

#[test]
fn ranks_of_a_group_are_in_one_block() {
    let mut d = blocks();
    let mut spec = job(12, 48, &[("groups", "tp:4,pp:4,dp:3")]);
    spec.need.nodelist = Some("n[1-6,7-10,13-14]".into());
    let id = d.submit(spec);
    assert_eq!(d.state_of(id), Some(JobState::Running), "a job with a list of nodes gets these");
    let layout = step(&mut d, id, tasks(48), &[]).unwrap();
    let named = |nodes: &[u32]| -> Vec<String> {
        nodes.iter().flat_map(|node| std::iter::repeat_n(format!("n{node}"), 4)).collect()
    };
    assert_eq!(ranks(&layout), named(&[7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 13, 14]));
    assert_eq!(spans(&mut d, id), [("tp".into(), 1, 100), ("pp".into(), 2, 133), ("dp".into(), 3, 250)]);
    // A step that says how its ranks go, or of other tasks, gets what it says; one with groups of its own goes by these.
    let plain = StepSpec { distribution: Distribution::Cyclic, ..tasks(48) };
    assert_eq!(step(&mut d, id, plain, &[]).unwrap().distribution, Distribution::Cyclic);
    assert_eq!(step(&mut d, id, tasks(24), &[]).unwrap().distribution, Distribution::Block);
    let own = step(&mut d, id, tasks(24), &[("groups", "cp:4,dp:6")]).unwrap();
    assert_eq!(ranks(&own)[..8], ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"]);
    assert!(matches!(own.distribution, Distribution::Block), "groups of two nodes are in one block by themselves");
    let own = step(&mut d, id, tasks(12), &[("groups", "pp:4,dp:3")]).unwrap();
    assert_eq!(ranks(&own)[..4], ["n7", "n8", "n9", "n10"]);
    assert!(matches!(
        step(&mut d, id, tasks(24), &[("groups", "pp:4,dp:3")]),
        Err(Refusal::InvalidValue { option, problem, .. }) if option == "groups" && problem.contains("12 ranks")
    ));
}

#[test]
fn groups_that_no_job_can_have_are_refused() {
    let said = |d: &mut Driver, spec: JobSpec| {
        let key = d.key();
        match d.submit_with(key, spec).into_iter().next() {
            Some(Answer::Refused(Refusal::InvalidValue { option, problem, .. })) => format!("{option}: {problem}"),
            Some(Answer::Submitted { .. }) => "fine".to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let named = ("groups", "tp:4,pp:4,dp:3");
    let d = &mut blocks();
    assert_eq!(said(d, job(12, 40, &[named])), "groups: these are 48 ranks, and the job has 40: --ntasks must be 48");
    assert_eq!(said(d, job(18, 48, &[named])), "groups: 48 ranks don't lie evenly on 18 nodes");
    let both = job(12, 48, &[named, ("grid", "4x4x3")]);
    assert_eq!(said(d, both), "groups: --grid says itself where ranks go: leave one of them out");
    let each = Need { ntasks: None, ntasks_per_node: Some(4), ..job(12, 48, &[]).need };
    assert_eq!(said(d, JobSpec { need: each, ..job(12, 48, &[named]) }), "fine");
    let open = Need { ntasks: None, nodes_max: Some(13), ..job(12, 48, &[]).need };
    let open = said(d, JobSpec { need: open, ..job(12, 48, &[named]) });
    assert_eq!(open, "groups: these are 48 ranks: --ntasks must be 48");
    // What no command sends.
    let mut hostile = job(12, 48, &[]);
    let kinds = vec![GroupKind { name: String::new(), ranks: 48 }];
    hostile.options.network.groups = Some(AsGiven { text: "x".into(), value: kinds });
    assert!(said(d, hostile).starts_with("groups: names and numbers of ranks"));
    let torus = &mut network("TorusName=t Dims=4x4x4 Nodes=n[1-64]\n", 64);
    assert!(said(torus, job(12, 48, &[named])).starts_with("groups: on a torus --grid"));
    let ring = "RingName=r Nodes=n[1-12]\n";
    assert!(said(&mut network(ring, 12), job(12, 48, &[named])).starts_with("groups: a ring has no blocks"));
    // Where all nodes are alike they mean nothing.
    let flat = &mut Driver::new(12, 4);
    let id = flat.submit(job(12, 48, &[named]));
    assert_eq!((flat.state_of(id), why(flat, id).spans), (Some(JobState::Running), vec![]));
}
