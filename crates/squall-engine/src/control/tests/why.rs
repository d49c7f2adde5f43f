//! `squall why`: what keeps a job, and what would let it start sooner.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig, NodeLostAction, PartitionConfig, TopologyFile};
use squall_model::id::{JobId, NodeId};
use squall_model::job::options::SegmentPlacing;
use squall_model::job::{EndState, JobSpec, JobState, Need, PendingReason, Seat, Together};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::info::{Why, WhyChange, WhyMisfit, WhySilent};

use super::driver::{ADA, Driver, array, batch, in_network, these};

/// Nodes of 4 CPUs in a network.
fn network(name: &str, text: &str, nodes: u32) -> Driver {
    let topology = TopologyFile { name: name.into(), text: text.into() };
    let node = NodeConfig { name: format!("n[1-{nodes}]"), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { topology, nodes: vec![node], ..Config::default() });
    for n in 1..=nodes {
        d.add_node(&format!("n{n}"), 4);
    }
    d
}

/// 4 x 4 x 4.
fn torus() -> Driver {
    network("topology.conf", "TorusName=t Dims=4x4x4 Nodes=n[1-64]\n", 64)
}

fn texts(option: &str, value: &str) -> Vec<(String, String)> {
    vec![(option.to_owned(), value.to_owned())]
}

fn on(nodes: &str, pairs: &[(&str, &str)]) -> JobSpec {
    let need = Need { nodelist: Some(nodes.into()), exclusive: true, ..Need::default() };
    JobSpec { need, options: in_network(pairs), time_limit_s: Some(600), ..batch() }
}

/// Whole nodes.
fn wide(nodes: u32, pairs: &[(&str, &str)]) -> JobSpec {
    let need = Need { nodes_min: Some(nodes), nodes_max: Some(nodes), exclusive: true, ..Need::default() };
    JobSpec { need, options: in_network(pairs), time_limit_s: Some(600), ..batch() }
}

fn why(d: &mut Driver, id: JobId) -> Why {
    let answers = d.ask(5, ADA, Request::Why { job: id });
    let [Answer::Why(told)] = &answers[..] else { panic!("{answers:?}") };
    (**told).clone()
}

fn misfit(d: &mut Driver, id: JobId) -> WhyMisfit {
    assert_eq!(d.state_of(id), Some(JobState::Pending));
    let told = why(d, id);
    told.partitions[0].misfit.clone().unwrap_or_else(|| panic!("{told:?}"))
}

/// faults.md J3 of the third trial: a job that runs with a dead node was said to wait for nothing.
#[test]
fn a_running_job_is_told_which_node_is_silent_since_when_and_what_follows() {
    for (node_lost_action, job_requeue) in [(NodeLostAction::Wait, false), (NodeLostAction::Requeue, true)] {
        let mut d = Driver::empty(Config { node_lost_action, job_requeue, ..Config::default() });
        (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 1));
        let id = d.submit(wide(3, &[]));
        assert_eq!((why(&mut d, id).silent, listed(&mut d, id)), (None, PendingReason::None));
        d.pass(25);
        let heard = d.c.links.heard(NodeId(2)).expect("it answers");
        d.lose("n3");
        let given_up = job_requeue.then(|| heard + Span::from_secs(300));
        let expected = WhySilent { nodes: "n3".into(), since: heard, given_up, again: job_requeue, fenced: None };
        let told = why(&mut d, id);
        assert_eq!((told.state, told.silent), (JobState::Running, Some(expected)));
        assert_eq!(told.runs, Some(("n[1-3]".to_owned(), None)));
        assert_eq!(listed(&mut d, id), PendingReason::NodeNotResponding);
        d.restart();
        assert_eq!(why(&mut d, id).silent, None, "nodes register when a controller starts");
        d.pass(61);
        assert_eq!(why(&mut d, id).silent.map(|silent| silent.nodes), Some("n[1-3]".to_owned()));
    }
}

#[test]
fn who_runs_is_told_how_its_nodes_stand_and_why() {
    let mut d = network("topology.conf", "TorusName=t Dims=4x4x4 Nodes=n[1-64] Placements=1x2x4 Order=2Y\n", 64);
    let mut seat = |spec: JobSpec| {
        let id = d.submit(spec);
        let told = why(&mut d, id);
        assert_eq!(told.state, JobState::Running);
        told.runs.expect("it runs").1
    };
    assert!(matches!(seat(wide(16, &[("geometry", "4x4x1")])), Some(Seat::Asked(prism)) if prism.contains(" of t")));
    assert!(matches!(seat(wide(8, &[])), Some(Seat::Listed(prism)) if prism.starts_with("1x2x4 at")));
    assert!(matches!(seat(wide(16, &[])), Some(Seat::Prism(prism)) if prism.contains(" of t")));
    assert_eq!(seat(wide(1, &[])), None);
    // 23 are left, and no prism of 19 is among them.
    assert_eq!(seat(wide(19, &[("network", "tolerant")])), Some(Seat::Order("2Y".into())));
    let mut tree = network("topology.conf", "SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n[5-8]\n", 8);
    for (nodes, switches) in [(3, &["s1"][..]), (5, &["s1", "s2"])] {
        let id = tree.submit(wide(nodes, &[]));
        let at = switches.iter().map(|name| (*name).to_owned()).collect();
        let told = why(&mut tree, id).runs.expect("it runs");
        assert_eq!(told.1, Some(Seat::Groups("switch".into(), at)), "{told:?}");
    }
}

#[test]
fn enough_nodes_but_no_prism_among_them() {
    let mut d = torus();
    // One node of each plane along each axis: 60 are free, and no prism of 4 x 4 x 2.
    d.submit(on("n[1,22,43,64]", &[("network", "tolerant")]));
    let shaped = d.submit(wide(32, &[("geometry", "4x4x2")]));
    let found = misfit(&mut d, shaped);
    assert_eq!((found.together, found.free), (Together::Geometry, true));
    assert_eq!(found.options, texts("geometry", "4x4x2"));
    assert_eq!(found.shapes, ["4x4x2", "4x2x4", "2x4x4"].map(String::from).to_vec());
    let told = why(&mut d, shaped);
    assert!(!told.partitions[0].room && told.partitions[0].empty && told.reasons == [PendingReason::Resources]);
    d.cancel(shaped);
    // Most jobs say nothing and have links of their own all the same.
    let unsaid = d.submit(wide(60, &[]));
    let found = misfit(&mut d, unsaid);
    assert_eq!((found.together, found.free, found.options), (Together::Prism, true, vec![]));
    assert!(found.shapes.contains(&"4x4x4".to_owned()), "{:?}", found.shapes);
    d.cancel(unsaid);
    let tolerant = d.submit(wide(60, &[("network", "tolerant")]));
    assert_eq!(d.state_of(tolerant), Some(JobState::Running), "anywhere there is room");
}

#[test]
fn too_few_nodes_are_no_matter_of_shapes() {
    let mut d = torus();
    d.submit(wide(48, &[]));
    let rest = d.submit(wide(32, &[]));
    let told = why(&mut d, rest);
    assert_eq!((told.partitions[0].misfit.clone(), told.partitions[0].empty), (None, true));
}

#[test]
fn a_prism_that_no_end_makes_room_for() {
    let mut d = torus();
    let broken = ["n1", "n22", "n43", "n64"];
    for node in broken {
        d.lose(node);
    }
    d.pass(600);
    let id = d.submit(wide(32, &[("geometry", "4x4x2")]));
    let told = why(&mut d, id);
    let here = &told.partitions[0];
    assert_eq!((here.room, here.empty, here.ideal), (false, false, true), "all have holes");
    assert!(
        here.misfit.as_ref().is_some_and(|misfit| misfit.free) && told.reasons[0] == PendingReason::ReqNodeNotAvail
    );
    d.cancel(id);
    // More nodes than the prism has.
    let id = d.submit(wide(33, &[("geometry", "4x4x2")]));
    let told = why(&mut d, id);
    let here = &told.partitions[0];
    assert_eq!((here.empty, here.ideal, here.misfit.is_some()), (false, false, true));
    assert_eq!(told.reasons, [PendingReason::BadConstraints]);
}

/// A job of so many nodes in segments.
fn in_segments(nodes: u32, segment: u32, placing: SegmentPlacing) -> JobSpec {
    let mut spec = wide(nodes, &[]);
    spec.options.segment = Some(segment);
    spec.options.segments = Some(placing).filter(|placing| *placing != SegmentPlacing::default());
    spec
}

#[test]
fn segments_of_a_job_wait_for_blocks() {
    let text = "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockSizes=4,8\n";
    let mut d = network("topology.conf", text, 8);
    let plain = SegmentPlacing::default();
    let first = d.submit(in_segments(4, 2, SegmentPlacing { apart: true, ..plain }));
    assert_eq!(d.state_of(first), Some(JobState::Running));
    let nodes = d.c.state().jobs[&first].run().map(|run| run.working_nodes().iter().map(|node| node.0).collect());
    assert_eq!(nodes, Some(vec![0, 1, 4, 5]));
    // Six nodes are free, three in each block, which are three pairs in no way.
    let mut d = network("topology.conf", text, 8);
    d.submit(on("n[2,6]", &[]));
    let id = d.submit(in_segments(6, 2, plain));
    let found = misfit(&mut d, id);
    assert_eq!((found.together, found.free, found.options), (Together::Segments, true, texts("segment", "2")));
    assert!(changes(&mut d, id).iter().any(|(change, _)| *change == WhyChange::WithoutSegments));
    d.cancel(id);
    let id = d.submit(in_segments(3, 4, plain));
    assert_eq!(d.state_of(id), Some(JobState::Running), "one segment is not divided");
    let key = d.key();
    for (spec, said) in [
        (in_segments(6, 4, plain), "6 nodes can't be divided into parts of 4"),
        (in_segments(4, 1, SegmentPlacing { apart: true, ..plain }), "there are 2 blocks for 4 segments apart"),
        (
            JobSpec { need: on("n[1-3,5]", &[]).need, ..in_segments(4, 2, plain) },
            "3 nodes of --nodelist are in one block",
        ),
    ] {
        let answers = d.submit_with(key, spec);
        let [Answer::Refused(Refusal::InvalidValue { option, problem, .. })] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(option == "segment" && problem.starts_with(said), "{option}: {problem}");
    }
}

// The cases of testsuite/python/tests/test_150_2.py of Slurm. It also takes more nodes by --nodelist than the job has, of
// which whole segments are chosen; here that is refused.
#[test]
fn segments_of_named_nodes() {
    let text = "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockSizes=4,8\n";
    for (nodes, list, segment, said) in [
        (4, "n[1-4]", 2, None),
        (4, "n[1,2,5,6]", 2, None),
        (6, "n[1-3,5-7]", 3, None),
        (6, "n[1-8]", 3, Some("name as many nodes by --nodelist as the job has")),
        (6, "n[1-6]", 3, Some("4 nodes of --nodelist are in one block, which are no whole parts of 3")),
        (6, "n[1-5]", 3, Some("name as many nodes by --nodelist as the job has")),
    ] {
        let mut d = network("topology.conf", text, 8);
        let mut spec = in_segments(nodes, segment, SegmentPlacing::default());
        spec.need.nodelist = Some(list.into());
        let key = d.key();
        let answers = d.submit_with(key, spec);
        match (&answers[..], said) {
            ([Answer::Submitted { job, .. }], None) => assert_eq!(d.state_of(*job), Some(JobState::Running), "{list}"),
            ([Answer::Refused(Refusal::InvalidValue { problem, .. })], Some(said)) => assert_eq!(problem, said),
            other => panic!("{list}: {other:?}"),
        }
    }
}

#[test]
fn a_job_waits_for_a_block_that_holds_it() {
    let mut d = network("topology.conf", "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockSizes=4,8\n", 8);
    d.submit(on("n[1-2,5-7]", &[]));
    let id = d.submit(wide(3, &[]));
    let found = misfit(&mut d, id);
    assert_eq!((found.together, found.free, found.options), (Together::Block, true, vec![]));
    let tolerant = d.submit(wide(3, &[("network", "tolerant")]));
    assert_eq!(d.state_of(tolerant), Some(JobState::Running));
}

#[test]
fn few_switches_and_neighbours() {
    let text = "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-8]\nSwitchName=top Switches=s[0-1]\n";
    let mut d = network("topology.conf", text, 8);
    d.submit(on("n[2,6]", &[]));
    let id = d.submit(wide(4, &[("switches", "1@600")]));
    let found = misfit(&mut d, id);
    assert_eq!((found.together, found.free, found.options), (Together::Switches, true, texts("switches", "1@600")));
    d.cancel(id);
    let mut spec = wide(4, &[]);
    spec.need.contiguous = true;
    let id = d.submit(spec);
    assert_eq!((misfit(&mut d, id).together, misfit(&mut d, id).free), (Together::Contiguous, true));
    d.cancel(id);
    // It would never be: no four nodes of one switch are left.
    d.lose("n1");
    d.lose("n5");
    d.pass(600);
    let id = d.submit(wide(4, &[("switches", "1@60000")]));
    let told = why(&mut d, id);
    let here = &told.partitions[0];
    assert_eq!((here.room, here.empty, here.ideal), (false, false, true));
    assert!(here.misfit.is_some() && told.reasons.contains(&PendingReason::ReqNodeNotAvail), "{told:?}");
}

/// When it is expected to start, seconds from now, as `squall why` and `squeue --start` say it.
fn expected(d: &mut Driver, id: JobId) -> Option<u64> {
    let answers = d.ask(7, 0, Request::Expected);
    let [Answer::Expected(starts)] = &answers[..] else { panic!("{answers:?}") };
    let listed = starts.iter().find(|start| start.id == id).cloned();
    let told = why(d, id);
    assert_eq!(told.start.as_ref().map(|start| start.time), listed.as_ref().map(|start| start.time), "one plan");
    assert_eq!(told.start.as_ref().map(|start| &start.nodes), listed.as_ref().map(|start| &start.nodes));
    listed.map(|start| start.time.since(d.now).secs())
}

/// What would let it start sooner, and when, seconds from now.
fn changes(d: &mut Driver, id: JobId) -> Vec<(WhyChange, u64)> {
    let told = why(d, id);
    told.changes.into_iter().map(|(change, time)| (change, time.since(d.now).secs())).collect()
}

fn for_s(seconds: u64, spec: JobSpec) -> JobSpec {
    JobSpec { time_limit_s: Some(seconds), ..spec }
}

#[test]
fn changes_are_told_behind_those_ahead() {
    let mut d = Driver::new(4, 4);
    d.submit(for_s(7200, wide(3, &[])));
    let head = d.submit(for_s(1000, wide(4, &[])));
    let id = d.submit(for_s(20_000, wide(2, &[])));
    assert_eq!((expected(&mut d, head), expected(&mut d, id)), (Some(7200), Some(8200)));
    // One node is free, but only until the head starts: a shorter time alone does not help, nor does one node alone.
    assert_eq!(changes(&mut d, id), []);
    let small = d.submit(for_s(20_000, wide(1, &[])));
    assert_eq!(changes(&mut d, small)[0], (WhyChange::TimeLimit(7200), 0));
    assert_eq!(changes(&mut d, small).len(), 1, "no further step gains more");
    // It is so.
    let short = d.submit(for_s(7200, wide(1, &[])));
    assert_eq!(d.state_of(short), Some(JobState::Running));
    assert_eq!(changes(&mut d, small), [], "somebody else has it now");
}

#[test]
fn fewer_nodes_start_sooner_and_how_much() {
    let mut d = Driver::new(4, 4);
    for (node, seconds) in [("n1", 1000), ("n2", 2000), ("n3", 3000), ("n4", 4000)] {
        d.submit(for_s(seconds, on(node, &[])));
    }
    let id = d.submit(for_s(500, wide(4, &[])));
    assert_eq!(expected(&mut d, id), Some(4000));
    let steps = [(WhyChange::Nodes(1), 1000), (WhyChange::Nodes(2), 2000), (WhyChange::Nodes(3), 3000)];
    assert_eq!(changes(&mut d, id), steps);
    let held = JobSpec { hold: true, ..for_s(500, wide(4, &[])) };
    let held = d.submit(held);
    let told = why(&mut d, held);
    assert!(told.start.is_none() && told.changes.is_empty(), "whoever holds it has to let it go");
}

#[test]
fn other_partitions_and_what_may_be_left_out() {
    let partition = |name: &str, nodes: &str, users: &[&str]| PartitionConfig {
        name: name.into(),
        nodes: nodes.into(),
        default: name == "debug",
        allow_users: users.iter().map(|user| (*user).to_owned()).collect(),
        ..PartitionConfig::default()
    };
    let partitions = vec![
        partition("debug", "n[1-2]", &[]),
        partition("other", "n[3-4]", &[]),
        partition("closed", "n5", &["nobody"]),
    ];
    let node = NodeConfig { name: "n[1-5]".into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { partitions, nodes: vec![node], ..Config::default() });
    (1..=5).for_each(|n| d.add_node(&format!("n{n}"), 4));
    d.submit(for_s(1000, on("n1", &[])));
    let id = d.submit(for_s(500, on("n1", &[])));
    // Not the partition that would not take it, nor the one without its node.
    assert_eq!((expected(&mut d, id), changes(&mut d, id)), (Some(1000), vec![(WhyChange::WithoutNodelist, 0)]));
    d.submit(for_s(1000, on("n2", &[])));
    d.cancel(id);
    let id = d.submit(for_s(500, wide(1, &[])));
    assert_eq!(changes(&mut d, id), [(WhyChange::Partition("other".into()), 0)]);
}

#[test]
fn a_prism_and_when_it_is_free() {
    let mut d = torus();
    d.submit(for_s(3000, on("n[1,22,43,64]", &[("network", "tolerant")])));
    let id = d.submit(JobSpec { options: in_network(&[("geometry", "4x4x2")]), ..batch() });
    assert_eq!(expected(&mut d, id), Some(3000));
    let told = why(&mut d, id);
    let prism = told.start.and_then(|start| start.prism).unwrap();
    assert!(prism.starts_with("4x4x2 at ") && prism.ends_with(" of t"), "{prism}");
    // Other prisms of as many nodes there are none either.
    assert_eq!(changes(&mut d, id), []);
    d.cancel(id);
    let id = d.submit(wide(32, &[]));
    assert_eq!(changes(&mut d, id)[0], (WhyChange::Network, 0));
}

#[test]
fn reservations_and_licenses_are_minded() {
    let mut d = Driver::empty(Config { licenses: "foo:2".into(), ..Config::default() });
    d.add_node("n1", 4);
    let with = |seconds, licenses: &str| {
        let need = Need { licenses: Some(licenses.into()), ..Need::default() };
        for_s(seconds, JobSpec { need, ..batch() })
    };
    d.submit(with(1000, "foo:2"));
    let first = d.submit(with(300, "foo:2"));
    let second = d.submit(with(300, "foo"));
    assert_eq!((expected(&mut d, first), expected(&mut d, second)), (Some(1000), Some(1300)));
    assert_eq!(changes(&mut d, second), [(WhyChange::WithoutLicenses, 0)]);
}

#[test]
fn nobody_waits_for_few_switches_longer_than_may_be() {
    let text = "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-8]\nSwitchName=top Switches=s[0-1]\n";
    let cluster = |parameters: &str| {
        let topology = TopologyFile { name: "topology.conf".into(), text: text.into() };
        let node = NodeConfig { name: "n[1-8]".into(), ..NodeConfig::default() };
        let scheduler_parameters = parameters.to_owned().try_into().unwrap();
        let mut d = Driver::empty(Config { topology, nodes: vec![node], scheduler_parameters, ..Config::default() });
        (1..=8).for_each(|n| d.add_node(&format!("n{n}"), 4));
        d.submit(for_s(2000, on("n[2,6]", &[])));
        d
    };
    for (parameters, switches, seconds) in
        [("", "1", 300), ("", "1@5", 300), ("", "1@2:00", 120), ("max_switch_wait=60", "1", 60)]
    {
        let mut d = cluster(parameters);
        let spec = wide(4, &[("switches", switches)]);
        let answers = d.ask(7, 0, Request::TestSubmit { spec: Arc::new(spec.clone()) });
        let [Answer::WouldStart { time, .. }] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(time.since(d.now).secs(), seconds, "{parameters} {switches}");
        let id = d.submit(spec);
        assert_eq!((expected(&mut d, id), changes(&mut d, id)[0].clone()), {
            (Some(seconds), (WhyChange::WithoutSwitches, 0))
        });
        d.pass(seconds - 1);
        assert_eq!(d.state_of(id), Some(JobState::Pending));
        d.pass(2);
        assert_eq!(d.state_of(id), Some(JobState::Running), "{parameters} {switches}");
    }
    let mut d = cluster("max_switch_wait=0");
    let id = d.submit(wide(4, &[("switches", "1")]));
    assert_eq!(d.state_of(id), Some(JobState::Running), "nobody waits at all");
}

#[test]
fn behind_very_many_it_is_told_what_would_start_now() {
    let mut d = Driver::new(2, 4);
    d.submit(for_s(7200, on("n1", &[])));
    d.submit(for_s(1000, wide(2, &[])));
    let last = (0..210).map(|_| d.submit(for_s(1000, wide(2, &[])))).last().unwrap();
    let told = why(&mut d, last);
    assert_eq!((told.start.clone(), told.ahead_total), (None, 210));
    assert_eq!(changes(&mut d, last), [(WhyChange::Nodes(1), 0)]);
    let short = d.submit(for_s(1000, wide(1, &[])));
    assert_eq!(d.state_of(short), Some(JobState::Running), "it is so");
}

/// The reason that squeue lists.
fn listed(d: &mut Driver, id: JobId) -> PendingReason {
    let answers = d.ask(6, ADA, Request::Jobs { jobs: these(id), ended: false, steps: false });
    let [Answer::Jobs(page)] = &answers[..] else { panic!("{answers:?}") };
    page.jobs[0].reason.clone()
}

/// D4 of the trial by a newcomer: of 16 nodes 12 were said to be there sooner, in the same second.
#[test]
fn what_is_hardly_sooner_is_not_told_and_a_shorter_time_comes_first() {
    let mut d = Driver::new(4, 4);
    for (node, seconds) in [("n1", 1000), ("n2", 3900), ("n3", 3990), ("n4", 4000)] {
        d.submit(for_s(seconds, on(node, &[])));
    }
    let id = d.submit(for_s(500, wide(4, &[])));
    assert_eq!(expected(&mut d, id), Some(4000));
    assert_eq!(changes(&mut d, id), [(WhyChange::Nodes(1), 1000)], "100 and 10 s of 4000 are nothing");
}

// faults.md C, D12: that it never starts comes first, and nothing contradicts it.
#[test]
fn d12_what_can_never_start_is_said_first() {
    let mut d = Driver::new(4, 4);
    let tasks = |n| JobSpec { need: Need { ntasks: Some(n), ..Need::default() }, time_limit_s: Some(600), ..batch() };
    d.submit(tasks(16));
    let waits = d.submit(tasks(16));
    let many = d.submit(tasks(20));
    let nodes = d.submit(JobSpec { need: Need { nodes_min: Some(9), ..Need::default() }, ..tasks(1) });
    assert_eq!((d.state_of(waits), listed(&mut d, waits)), (Some(JobState::Pending), PendingReason::Resources));
    for (id, reason, needed, change) in [
        (many, PendingReason::PartitionConfig, 5, WhyChange::Tasks(16)),
        (nodes, PendingReason::PartitionNodeLimit, 9, WhyChange::Nodes(4)),
    ] {
        let told = why(&mut d, id);
        let here = &told.partitions[0];
        assert_eq!((&told.reasons, told.ahead_total), (&vec![reason.clone()], 0));
        assert_eq!(listed(&mut d, id), reason, "squeue has the same verdict");
        assert_eq!((here.ideal, here.nodes_min, &here.tests), (false, needed, &vec![]), "{told:?}");
        assert_eq!(told.changes.first().map(|change| &change.0), Some(&change));
    }
}

#[test]
fn an_array_that_ended_or_runs_does_not_wait() {
    let mut d = Driver::new(1, 2);
    let ended = |state| JobState::Ended(state);
    // Cancelled before any task started: the array, and each task.
    let held = d.submit(JobSpec { hold: true, ..array(3, None) });
    assert_eq!(why(&mut d, held).reasons, [PendingReason::JobHeldUser]);
    d.cancel(held);
    for id in [held, JobId(held.0 + 2)] {
        let told = why(&mut d, id);
        let cancelled = matches!(told.state, JobState::Ended(EndState::Cancelled { .. }));
        assert!(cancelled && told.reasons.is_empty(), "{id:?}: {told:?}");
    }
    // All its tasks run, and then all have ended.
    let runs = d.submit(array(1, None));
    assert_eq!(why(&mut d, runs).state, JobState::Running);
    d.finish(runs, 0);
    d.finish(JobId(runs.0 + 1), 3);
    assert_eq!(why(&mut d, runs).state, ended(EndState::Failed));
}
