//! Faults of nodes, and what follows from them.

use squall_model::event::NodeAdmin;
use squall_model::fault::FaultKind;
use squall_model::id::{JobId, NodeId};
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch};
use crate::control::tests::hooks::cluster;

fn wide(nodes: u32) -> JobSpec {
    JobSpec { need: Need { nodes_min: Some(nodes), ..Need::default() }, ..batch() }
}

/// The nodes of a job, by number.
fn nodes(d: &Driver, job: JobId) -> Vec<u32> {
    let run = d.c.state().jobs[&job].run();
    run.map_or(Vec::new(), |run| run.alloc.nodes().iter().map(|node| node.0).collect())
}

/// Kinds and jobs of a node's faults.
fn faults(d: &Driver, node: usize) -> Vec<(FaultKind, Vec<JobId>)> {
    d.c.state().nodes[node].faults.iter().map(|fault| (fault.kind, fault.jobs.clone())).collect()
}

fn set(d: &mut Driver, node: u32, admin: NodeAdmin) {
    let nodes = NodeSet::one(NodeId(node));
    d.commit(squall_model::event::Event::NodesSet { nodes, admin, reason: None, by: 0 });
}

/// The checks that nodes were told to run since the last look: name of the node, time of the fault.
fn checks(d: &mut Driver) -> Vec<(String, Time)> {
    let sent = std::mem::take(&mut d.sent).into_iter();
    let check = |(node, message)| if let Down::Check { fault } = message { Some((node, fault)) } else { None };
    let mut checks: Vec<(String, Time)> = sent.filter_map(check).collect();
    checks.dedup();
    checks
}

#[test]
fn a_job_does_not_return_to_the_node_that_killed_it_while_another_fits() {
    // Five nodes, so that a job of one is not wide.
    let mut d = Driver::new(5, 1);
    let id = d.submit(batch());
    assert_eq!(nodes(&d, id), [0]);
    d.reboot("n1");
    assert_eq!((nodes(&d, id), faults(&d, 0)), (vec![1], vec![(FaultKind::Reboot, vec![id])]));
    let other = d.submit(batch());
    assert_eq!(nodes(&d, other), [0], "other jobs take it");
    // The state is the same after a restart of the controller.
    let attempt = d.attempt(id);
    let others = d.attempt(other);
    d.restart();
    d.register("n1", &[others]);
    d.register("n2", &[attempt]);
    for name in ["n3", "n4", "n5"] {
        d.register(name, &[]);
    }
    d.finish(other, 0);
    d.reboot("n2");
    assert_eq!(nodes(&d, id), [2]);
    // Where nothing else fits, it takes one of them.
    for node in [1, 3, 4] {
        set(&mut d, node, NodeAdmin::Drain);
    }
    d.reboot("n3");
    assert_eq!(nodes(&d, id), [0]);
    let answers = d.ask(5, ADA, Request::Nodes);
    let [Answer::Nodes(infos)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(infos.iter().map(|info| info.faults.len()).collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
}

#[test]
fn wide_jobs_prefer_nodes_without_recent_faults() {
    let mut d = Driver::new(8, 1);
    let id = d.submit(batch());
    d.reboot("n1");
    d.cancel(id);
    let attempt = d.attempt(id);
    d.report("n2", &[squall_model::report::Report::JobGone { job: attempt }]);
    let (two, one) = (d.submit(wide(2)), d.submit(batch()));
    assert_eq!((nodes(&d, two), nodes(&d, one)), (vec![1, 2], vec![0]));
    d.finish(one, 0);
    let rest = d.submit(wide(6));
    assert_eq!(nodes(&d, rest), [0, 3, 4, 5, 6, 7], "where it does not fit without, it has nodes with faults");
}

#[test]
fn silence_that_costs_a_job_its_node_is_a_fault_and_an_operators_down_of_a_node_that_answers_is_not() {
    let mut d = Driver::new(3, 1);
    let (first, second) = (d.submit(batch()), d.submit(batch()));
    d.lose("n1");
    set(&mut d, 0, NodeAdmin::Down);
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!(faults(&d, 0), [(FaultKind::Lost, vec![first])]);
    assert_eq!((faults(&d, 1), d.state_of(second).is_some()), (vec![], true));
}

#[test]
fn a_node_with_a_fault_is_drained_until_its_check_has_passed() {
    let mut d = cluster("health.after_fault = \"/etc/check\"\n");
    let id = d.submit(batch());
    d.reboot("n1");
    assert_eq!(nodes(&d, id), [1]);
    let owed = (NodeAdmin::Drain, "after_fault has yet to run, after a fault: reboot".to_owned());
    assert_eq!(d.seen("n1"), owed);
    let told = checks(&mut d);
    let [(name, fault)] = &told[..] else { panic!("{told:?}") };
    let (name, fault) = (name.clone(), *fault);
    assert_eq!(name, "n1");
    let other = d.submit(batch());
    let said = |error: Option<&str>, fault| NodeNote::AfterFault { fault, error: error.map(str::to_owned) };
    d.note("n1", said(None, Time(1)));
    d.note("n1", said(Some("fan is\nbroken"), fault));
    assert_eq!(d.seen("n1"), (NodeAdmin::Drain, "after_fault: fan isbroken".to_owned()));
    assert_eq!(d.state_of(other), Some(JobState::Pending), "what was said after an earlier fault does not count");
    // A controller that starts has the node checked again.
    let attempt = d.attempt(id);
    d.restart();
    d.register("n2", &[attempt]);
    d.register("n1", &[]);
    assert_eq!(checks(&mut d), [(name, fault)]);
    d.note("n1", said(None, fault));
    assert_eq!((d.seen("n1").0, nodes(&d, other)), (NodeAdmin::Resume, vec![0]));
    // An operator has the last word.
    d.reboot("n1");
    let (_, fault) = checks(&mut d).pop().expect("it is checked again");
    set(&mut d, 0, NodeAdmin::Resume);
    d.note("n1", said(Some("fan"), fault));
    assert_eq!(d.seen("n1").0, NodeAdmin::Resume);
}

#[test]
fn a_drain_for_another_reason_is_not_lifted() {
    let mut d = cluster("health.after_fault = \"/etc/check\"\nhealth.program = \"/etc/nhc\"\n");
    d.note("n1", NodeNote::Health { error: Some("no scratch".into()) });
    assert_eq!((checks(&mut d), faults(&d, 0)), (vec![], vec![(FaultKind::Health, vec![])]));
    d.note("n1", NodeNote::Health { error: Some("no scratch".into()) });
    let fault = d.c.state().nodes[0].faults[0].time;
    d.note("n1", NodeNote::AfterFault { fault, error: None });
    assert_eq!(d.seen("n1"), (NodeAdmin::Drain, "Health check failed: no scratch".to_owned()));
    assert_eq!(faults(&d, 0).len(), 1, "a drained node that fails again has no new fault");
}
