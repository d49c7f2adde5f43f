//! On a torus: a grid gets a prism and its ranks go where their neighbours are near; what lies nowhere is refused.

use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::step::{Distribution, Layout, StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Refusal, Request};

use super::driver::{ADA, Driver, batch, in_network};

/// 4 x 4 x 4 nodes of 4 cores.
fn cluster() -> Driver {
    let text = "TorusName=t Dims=4x4x4 Nodes=n[1-64]\n".to_owned();
    let node = NodeConfig { name: "n[1-64]".into(), ..NodeConfig::default() };
    let topology = TopologyFile { name: "topology.conf".into(), text };
    let mut d = Driver::empty(Config { topology, nodes: vec![node], ..Config::default() });
    for n in 1..=64 {
        d.add_node(&format!("n{n}"), 4);
    }
    d
}

fn job(tasks: u32, pairs: &[(&str, &str)]) -> JobSpec {
    JobSpec { need: Need { ntasks: Some(tasks), ..Need::default() }, options: in_network(pairs), ..batch() }
}

fn nodes_of(d: &Driver, id: JobId) -> NodeSet {
    d.c.state().jobs[&id].run().unwrap().alloc.nodes()
}

/// The layout of a step of so many tasks, or why there is none.
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

/// Hops between neighbours of a grid of 4 x 4 x n: most, and all together.
fn hops(d: &Driver, layout: &Layout, extents: [usize; 3]) -> (u32, u32) {
    let state = d.c.state();
    let ids: Vec<NodeId> =
        (0..layout.nodes.len()).map(|at| state.node_id(&layout.nodes.get(at).unwrap()).unwrap()).collect();
    let node = |rank: usize| ids[layout.node_of(rank as u32).unwrap()];
    let (mut most, mut all) = (0, 0);
    for rank in 0..extents.iter().product() {
        let at = [rank / (extents[1] * extents[2]), rank / extents[2] % extents[1], rank % extents[2]];
        for (axis, stride) in [(0, extents[1] * extents[2]), (1, extents[2]), (2, 1)] {
            if at[axis] + 1 < extents[axis] {
                let hops = state.index.topology.distance(node(rank), node(rank + stride)).unwrap();
                (most, all) = (most.max(hops), all + hops);
            }
        }
    }
    (most, all)
}

#[test]
fn a_grid_gets_a_prism_and_neighbours_are_near() {
    let mut d = cluster();
    let id = d.submit(job(64, &[("grid", "4x4x4")]));
    assert_eq!(d.state_of(id), Some(JobState::Running));
    let nodes = nodes_of(&d, id);
    assert!(d.c.state().index.topology.closed(&nodes) && nodes.len() >= 16, "{nodes:?}");
    let layout = step(&mut d, id, tasks(64), &[]).unwrap();
    assert!(matches!(layout.distribution, Distribution::Arbitrary(_)));
    let mut ranks: Vec<u32> = (0..layout.nodes.len()).flat_map(|place| layout.ranks_on(place)).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..64).collect::<Vec<_>>());
    assert!((0..layout.nodes.len()).all(|place| (1..=4).contains(&layout.ranks_on(place).len())));
    let near = hops(&d, &layout, [4, 4, 4]);
    // A step that says how its ranks go gets what it says.
    let plain = step(&mut d, id, StepSpec { distribution: Distribution::Plane(3), ..tasks(64) }, &[]).unwrap();
    assert_eq!(plain.distribution, Distribution::Plane(3));
    let far = hops(&d, &plain, [4, 4, 4]);
    assert!(near.0 <= 1 && near.1 * 3 < far.1 * 2, "{near:?} {far:?}");
    // As does one with a grid of its own.
    let own = step(&mut d, id, tasks(32), &[("grid", "8x4:periodic"), ("stencil", "1,8")]).unwrap();
    assert_eq!((own.ntasks(), matches!(own.distribution, Distribution::Arbitrary(_))), (32, true));
    assert!(matches!(
        step(&mut d, id, tasks(32), &[("grid", "4x4")]),
        Err(Refusal::InvalidValue { problem, .. }) if problem.contains("16 processes")
    ));
}

#[test]
fn two_grids_and_others_do_not_meet_and_the_rest_waits() {
    let mut d = cluster();
    let first = d.submit(job(128, &[("grid", "8x4x4"), ("stencil", "1,2,4")]));
    let second = d.submit(job(64, &[("grid", "8x8"), ("geometry", "4x4x1")]));
    let third = d.submit(job(256, &[("grid", "16x16")]));
    let states: Vec<_> = [first, second, third].iter().map(|id| d.state_of(*id)).collect();
    assert_eq!(states, [Some(JobState::Running), Some(JobState::Running), Some(JobState::Pending)]);
    let (a, b) = (nodes_of(&d, first), nodes_of(&d, second));
    let topology = &d.c.state().index.topology;
    assert!(a.intersection(&b).is_empty() && topology.closed(&a) && topology.closed(&b));
    assert_eq!(b.len(), 16, "the geometry says how many");
    for id in [first, second] {
        let (job, names) = (d.attempt(id), nodes_of(&d, id));
        d.finish(id, 0);
        for node in names.iter().skip(1) {
            d.report(&format!("n{}", node.0 + 1), &[Report::JobGone { job }]);
        }
    }
    assert_eq!((d.state_of(third), nodes_of(&d, third).len()), (Some(JobState::Running), 64));
}

#[test]
fn a_grid_that_lies_nowhere_is_refused() {
    let mut d = cluster();
    let mut said = |spec: JobSpec| {
        let key = d.key();
        match d.submit_with(key, spec).into_iter().next() {
            Some(Answer::Refused(Refusal::InvalidValue { option, problem, .. })) => format!("{option}: {problem}"),
            other => panic!("{other:?}"),
        }
    };
    let large = said(job(729, &[("grid", "9x9x9")]));
    assert_eq!(large, "grid: 729 processes, at most 4 on a node, lie on no prism of the 64 nodes");
    let mut odd = job(12, &[("grid", "4x3")]);
    (odd.need.nodes_min, odd.need.nodes_max) = (Some(3), Some(3));
    let odd = said(odd);
    assert!(
        odd.starts_with("grid: 12 processes, at most 4 on a node, lie on no prism of 3 nodes; they would on 4"),
        "{odd}"
    );
    assert!(said(job(16, &[("grid", "4x4"), ("stencil", "1,2,3")])).starts_with("stencil: what neighbours"));
    assert_eq!(said(job(15, &[("grid", "4x4")])), "grid: it has 16 processes, so --ntasks must be 16");
}
