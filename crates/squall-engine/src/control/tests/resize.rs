//! Running jobs that give back nodes: these are told to end them, and are free when they have.

use squall_model::config::{Config, NodeLostAction};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::policy::{Limit, PolicyChange, Qos};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, JobUpdate, Refusal, Request};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch, these};

fn wide(nodes: u32) -> JobSpec {
    JobSpec { need: Need { nodes_min: Some(nodes), ..Need::default() }, ..batch() }
}

fn update(d: &mut Driver, job: JobId, change: JobUpdate) -> Answer {
    d.ask(9, ADA, Request::UpdateJob { jobs: these(job), change: Box::new(change) }).remove(0)
}

fn to(nodes: u32) -> JobUpdate {
    JobUpdate { nodes: Some((nodes, None)), ..JobUpdate::default() }
}

fn within(list: &str) -> JobUpdate {
    JobUpdate { nodelist: Some(Some(list.into())), ..JobUpdate::default() }
}

fn refused(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(why) => why,
        Answer::Affected { refused, .. } => refused.into_iter().next().expect("one is refused").1,
        other => panic!("{other:?}"),
    }
}

fn nodes(d: &Driver, job: JobId) -> Vec<u32> {
    let run = d.c.state.jobs[&job].run();
    run.map(|run| run.alloc.nodes().iter().map(|node| node.0).collect()).unwrap_or_default()
}

fn told_to_end(d: &mut Driver) -> Vec<String> {
    d.ended().into_iter().map(|(_, node)| node).collect()
}

#[test]
fn nodes_that_are_given_back_are_free_when_they_have_let_go() {
    let mut d = Driver::new(3, 1);
    let job = d.submit(wide(3));
    let next = d.submit(wide(2));
    let attempt = d.attempt(job);
    assert!(matches!(update(&mut d, job, to(1)), Answer::Affected { .. }));
    assert_eq!((nodes(&d, job), told_to_end(&mut d)), (vec![0], vec!["n2".to_owned(), "n3".to_owned()]));
    assert_eq!(d.state_of(next), Some(JobState::Pending), "their cores are taken until it is gone from there");
    d.report("n2", &[Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(next), Some(JobState::Pending));
    // A new controller, and a node that has not heard of it.
    d.restart();
    d.register("n1", &[attempt]);
    d.register("n2", &[]);
    d.register("n3", &[attempt]);
    assert_eq!(told_to_end(&mut d), ["n3"]);
    assert_eq!((d.state_of(job), nodes(&d, job)), (Some(JobState::Running), vec![0]));
    d.report("n3", &[Report::JobGone { job: attempt }]);
    assert_eq!((nodes(&d, next), d.state_of(job)), (vec![1, 2], Some(JobState::Running)));
    d.finish(job, 0);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
    assert!(d.c.state().jobs.values().all(|job| job.run().is_none_or(|run| run.leaving.groups.is_empty())));
}

/// A node was lost when a step was launched on it, and the job gave it back before it returned.
#[test]
fn a_step_ends_on_a_node_that_never_had_it_and_was_given_back() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(wide(2));
    let attempt = d.attempt(job);
    d.lose("n2");
    let spec = Box::new(StepSpec { ntasks: Some(2), overlap: true, ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let answers = d.ask(9, ADA, Request::CreateStep { job, spec, program, key });
    assert!(matches!(answers[..], [Answer::StepCreated { .. }]), "{answers:?}");
    assert!(matches!(update(&mut d, job, to(1)), Answer::Affected { .. }));
    d.sent.clear();
    d.register("n2", &[attempt]);
    assert_eq!(told_to_end(&mut d), ["n2"]);
    let starts = d.sent.iter().filter(|(_, message)| matches!(message, Down::StartStep(_))).count();
    assert_eq!(starts, 0, "no step is started after its job was ended there");
    d.report("n2", &[Report::JobGone { job: attempt }]);
    let run = d.c.state().jobs[&job].run().unwrap();
    let step = &run.steps[&StepNo(0)];
    assert_eq!((step.left.clone(), step.ended.is_none()), (NodeSet::one(NodeId(0)), true));
    assert_eq!(step.tally.as_ref().map(|end| (end.lost, end.exit.signal)), Some((true, 9)));
}

#[test]
fn a_list_says_which_nodes_stay() {
    let mut d = Driver::new(3, 1);
    let job = d.submit(wide(3));
    assert_eq!(
        refused(update(&mut d, job, within("n[2-3]"))),
        Refusal::InvalidNode("n[2-3]".into()),
        "not its script's"
    );
    assert!(matches!(refused(update(&mut d, job, within("n[1,9]"))), Refusal::InvalidNode(_)), "no such node");
    for count in [0, 4] {
        assert_eq!(refused(update(&mut d, job, to(count))), Refusal::TooManyRequested("nodes".into()));
    }
    update(&mut d, job, to(3));
    assert_eq!((nodes(&d, job), told_to_end(&mut d)), (vec![0, 1, 2], vec![]), "it has so many");
    update(&mut d, job, within("n[1,3]"));
    assert_eq!((nodes(&d, job), told_to_end(&mut d)), (vec![0, 2], vec!["n2".to_owned()]));
    assert!(matches!(refused(update(&mut d, job, within("n[1-3]"))), Refusal::InvalidNode(_)), "it can't grow");
    let mut stranger = update(&mut d, job, to(2));
    assert!(matches!(stranger, Answer::Affected { .. }));
    stranger = d.ask(9, 77, Request::UpdateJob { jobs: these(job), change: Box::new(to(1)) }).remove(0);
    assert_eq!(refused(stranger), Refusal::AccessDenied);
}

#[test]
fn the_end_waits_for_nodes_that_were_given_back() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(wide(2));
    let attempt = d.attempt(job);
    update(&mut d, job, to(1));
    d.finish(job, 0);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Completed)));
    d.report("n2", &[Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
    assert!(d.c.state().jobs.values().all(|job| job.run().is_none_or(|run| run.leaving.groups.is_empty())));
    assert!(d.c.state.nodes.iter().all(|node| node.jobs.is_empty() && node.cores.is_empty()));
}

#[test]
fn a_node_that_is_lost_after_it_was_given_back_is_no_loss() {
    let mut d = Driver::empty(Config { node_lost_action: NodeLostAction::Requeue, ..Config::default() });
    (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let job = d.submit(wide(3));
    update(&mut d, job, to(1));
    d.commit(Event::NodesSet { nodes: NodeSet::one(NodeId(1)), admin: NodeAdmin::Down, reason: None, by: 0 });
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.lose("n3");
    d.pass(10_000);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    assert!(d.c.state.nodes[2].jobs.is_empty(), "given up");
}

#[test]
fn limits_count_what_is_left() {
    let mut d = Driver::new(4, 1);
    let qos = Qos { limits: [(Limit::GrpNode, 3)].into_iter().collect(), ..Qos::default() };
    let changes = vec![PolicyChange::Qos("few".into(), Some(qos))];
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version: 0, changes }), [Answer::Done]);
    let of = |nodes| JobSpec { qos: Some("few".into()), ..wide(nodes) };
    let (job, next) = (d.submit(of(3)), d.submit(of(1)));
    assert_eq!(d.state_of(next), Some(JobState::Pending));
    update(&mut d, job, to(2));
    assert_eq!(nodes(&d, next), [3]);
    let mut again = d.c.state().clone();
    again.retally();
    assert_eq!(again.index.tallies, d.c.state().index.tallies, "counted anew it is the same");
}
