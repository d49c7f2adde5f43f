//! Checkpoints of jobs with several nodes: each makes a part, and all go on together.

use squall_model::checkpoint::{CheckpointNote, CheckpointOrder, CheckpointPlan, CheckpointVerb, Made};
use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::report::Report;
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::step::{Inside, StepSpec, TaskProgram};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, JobRef, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch, interface};
use crate::control::tests::hooks::cluster;

const USER: u64 = 7;
/// What the parts of two nodes say of the connections between them, if nothing is under way.
const LINKS: u64 = 0x1234;

/// Starts a job on two nodes that asks for checkpoints.
fn begin() -> (Driver, JobId) {
    begin_with("")
}

/// The same, and all nodes share the checkpoints.
fn begin_sharing() -> (Driver, JobId) {
    begin_with("checkpoint_shared = true\n")
}

fn two() -> Need {
    Need { nodes_min: Some(2), nodes_max: Some(2), ..batch().need }
}

fn begin_with(keys: &str) -> (Driver, JobId) {
    begin_in(cluster(&format!("checkpoint_dir = \"/c\"\n{keys}")))
}

fn begin_in(mut d: Driver) -> (Driver, JobId) {
    let mut spec = JobSpec { need: two(), ..batch() };
    spec.options.checkpoint = Some(CheckpointPlan { every_s: 0, must: false });
    let id = d.submit(spec);
    assert_eq!(started(&mut d, id), ["n1", "n2"], "the other node keeps the job's steps");
    (d, id)
}

/// The nodes that were told to begin with something of a job.
fn started(d: &mut Driver, id: JobId) -> Vec<String> {
    let begins = |message: &Down| matches!(message, Down::StartJob { facts, batch: Some(_) } if facts.key.job == id);
    let sent = std::mem::take(&mut d.sent);
    let mut nodes: Vec<String> =
        sent.iter().filter(|(_, message)| begins(message)).map(|(node, _)| node.clone()).collect();
    nodes.sort();
    nodes
}

/// The orders about checkpoints that nodes were sent.
fn orders(d: &mut Driver) -> Vec<(String, CheckpointOrder)> {
    let order = |(node, message)| if let Down::Checkpoint(order) = message { Some((node, *order)) } else { None };
    let mut orders: Vec<_> = std::mem::take(&mut d.sent).into_iter().filter_map(order).collect();
    orders.sort_by(|a, b| a.0.cmp(&b.0));
    orders
}

/// The nodes that were told to go on.
fn gone_on(d: &mut Driver) -> Vec<String> {
    let go = |(node, order): (String, CheckpointOrder)| (order.verb == CheckpointVerb::Go).then_some(node);
    orders(d).into_iter().filter_map(go).collect()
}

fn order(d: &mut Driver, id: JobId, verb: CheckpointVerb) -> CheckpointOrder {
    assert_eq!(d.ask(USER, ADA, Request::Checkpoint(id, verb)), []);
    let [(first, order), (second, same)] = &orders(d)[..] else { panic!("both nodes get it") };
    assert_eq!((first.as_str(), second.as_str(), order), ("n1", "n2", same));
    order.clone()
}

fn made(d: &mut Driver, node: &str, order: &CheckpointOrder, links: Result<u64, &str>) {
    let pid = if node == "n1" { 4711 } else { 4712 };
    let stood = Span::from_millis(if node == "n1" { 100 } else { 190 });
    let made = links.ok().map(|links| Made { bytes: 4 << 20, stood, pid, links: Some(links) });
    let CheckpointOrder { job, number, verb, given, .. } = *order;
    let made = made.filter(|_| verb != CheckpointVerb::Able);
    let error = links.err().map(str::to_owned);
    d.note(
        node,
        NodeNote::Checkpoint(Box::new(CheckpointNote { job, number, verb, made, error, damaged: false, given })),
    );
}

fn kept(d: &Driver, id: JobId) -> Vec<(u64, Made, NodeSet)> {
    let all = d.c.state().jobs[&id].checkpoints.as_ref();
    let all = all.map(|all| all.kept.iter().map(|one| (one.number, one.made, one.holders())).collect());
    all.unwrap_or_default()
}

fn both() -> NodeSet {
    [NodeId(0), NodeId(1)].into_iter().collect()
}

#[test]
fn a_checkpoint_counts_when_all_parts_are_made_and_fit_together() {
    let (mut d, id) = begin();
    let first = order(&mut d, id, CheckpointVerb::Create);
    made(&mut d, "n1", &first, Ok(LINKS));
    made(&mut d, "n1", &first, Ok(LINKS));
    assert_eq!((kept(&d, id).len(), orders(&mut d).len()), (0, 0), "one part counts for nothing, however often");
    made(&mut d, "n2", &first, Ok(LINKS ^ 1));
    let again = orders(&mut d);
    assert_eq!((again.len(), kept(&d, id).len()), (2, 0), "something was under way: all parts are made again");
    let again = again[0].1.clone();
    assert!(again.given > first.given && again.number == first.number);
    made(&mut d, "n1", &first, Ok(LINKS));
    made(&mut d, "n2", &again, Ok(LINKS));
    assert_eq!(kept(&d, id).len(), 0, "a part of before does not fit");
    made(&mut d, "n1", &again, Ok(LINKS));
    let whole = Made { bytes: 8 << 20, stood: Span::from_millis(190), pid: 4711, links: None };
    assert_eq!(kept(&d, id), [(1, whole, both())]);
    assert_eq!(gone_on(&mut d), ["n1", "n2"]);
    assert_eq!(d.take_answers(crate::control::port::CallerId(USER)), [Answer::Done]);
    assert_eq!(d.c.state().jobs[&id].spec.need.nodelist.as_deref(), Some("n[1-2]"), "connections have these addresses");
}

#[test]
fn a_connection_to_elsewhere_refuses_and_the_job_goes_on() {
    let (mut d, id) = begin();
    let mut next = order(&mut d, id, CheckpointVerb::Vacate);
    for _ in 0..5 {
        made(&mut d, "n1", &next, Ok(LINKS));
        made(&mut d, "n2", &next, Ok(7));
        match orders(&mut d).first() {
            Some((_, order)) if order.verb == CheckpointVerb::Vacate => next = order.clone(),
            Some((_, order)) => assert_eq!(order.verb, CheckpointVerb::Go),
            None => panic!("the nodes are told something"),
        }
    }
    let answers = d.take_answers(crate::control::port::CallerId(USER));
    let [Answer::Refused(Refusal::WrongState(why))] = &answers[..] else { panic!("{answers:?}") };
    assert!(why.contains("none of the job's"), "{why}");
    assert_eq!((d.state_of(id), kept(&d, id).len()), (Some(JobState::Running), 0));
}

#[test]
fn a_node_that_can_not_make_its_part_has_the_others_go_on() {
    let (mut d, id) = begin();
    let ordered = order(&mut d, id, CheckpointVerb::Vacate);
    made(&mut d, "n2", &ordered, Err("no CRIU"));
    assert_eq!(gone_on(&mut d), ["n1", "n2"]);
    let answers = d.take_answers(crate::control::port::CallerId(USER));
    assert!(matches!(&answers[..], [Answer::Refused(Refusal::WrongState(why))] if why == "no CRIU"), "{answers:?}");
    // It was at work on its part when it heard that.
    made(&mut d, "n1", &ordered, Ok(LINKS));
    assert_eq!(gone_on(&mut d), ["n1"]);
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

/// Has a job leave its nodes by a checkpoint, and come back; returns the number of the checkpoint.
fn leave_and_return(d: &mut Driver, id: JobId) -> u64 {
    let ordered = order(d, id, CheckpointVerb::Vacate);
    made(d, "n1", &ordered, Ok(LINKS));
    made(d, "n2", &ordered, Ok(LINKS));
    let job = d.attempt(id);
    assert_eq!(gone_on(d).len(), 0, "what is frozen is killed");
    let reports = d.script_end(id, 0);
    d.report("n1", &reports);
    d.report("n2", &[Report::JobGone { job }]);
    assert_eq!(started(d, id), ["n1", "n2"]);
    ordered.number
}

#[test]
fn a_job_comes_back_to_its_nodes_even_if_one_has_become_a_spare_one() {
    let text =
        "checkpoint_dir = \"/c\"\n[[nodes]]\nname = \"n[1-3]\"\n[[partitions]]\nname = \"debug\"\nspare_nodes = 1\n";
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let (mut d, id) = begin_in(d);
    let ordered = order(&mut d, id, CheckpointVerb::Hold);
    made(&mut d, "n1", &ordered, Ok(LINKS));
    made(&mut d, "n2", &ordered, Ok(LINKS));
    let job = d.attempt(id);
    let reports = d.script_end(id, 0);
    d.report("n1", &reports);
    d.report("n2", &[Report::JobGone { job }]);
    let spare = |d: &Driver| d.c.state().reservations["spare_debug"].clone();
    d.commit(Event::ReservationSet {
        reservation: Box::new(Reservation { nodes: NodeSet::one(NodeId(1)), ..spare(&d) }),
    });
    d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Restart));
    assert_eq!(started(&mut d, id), ["n1", "n2"]);
    let next = d.submit(batch());
    assert_eq!(d.state_of(next), Some(JobState::Pending));
    assert_eq!(spare(&d).nodes, NodeSet::one(NodeId(2)), "another node is a spare one now");
}

#[test]
fn restored_parts_go_on_when_all_are_there() {
    let (mut d, id) = begin();
    let number = leave_and_return(&mut d, id);
    let job = d.attempt(id);
    let run = d.c.state().jobs[&id].run().expect("it runs");
    assert_eq!((run.alloc.nodes(), run.restore.map(|restore| restore.number)), (both(), Some(number)));
    let held = |d: &mut Driver, node: &str| {
        let (verb, given) = (CheckpointVerb::Go, Time(0));
        let note = CheckpointNote { job, number, verb, made: None, error: None, damaged: false, given };
        d.note(node, NodeNote::Checkpoint(Box::new(note)));
    };
    held(&mut d, "n2");
    held(&mut d, "n2");
    assert_eq!(gone_on(&mut d).len(), 0);
    held(&mut d, "n1");
    assert_eq!(gone_on(&mut d), ["n1", "n2"]);
    // A node that may have missed it says so again, and the others too, as to another controller.
    held(&mut d, "n1");
    held(&mut d, "n2");
    assert_eq!(gone_on(&mut d), ["n1", "n2"]);
}

#[test]
fn restored_parts_do_not_wait_for_a_node_that_is_given_back() {
    let (mut d, id) = begin();
    let number = leave_and_return(&mut d, id);
    let (job, verb, given) = (d.attempt(id), CheckpointVerb::Go, Time(0));
    let note = CheckpointNote { job, number, verb, made: None, error: None, damaged: false, given };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
    assert_eq!(gone_on(&mut d).len(), 0);
    let jobs = JobSelection { ids: vec![JobRef::Job(id)], ..JobSelection::default() };
    let change = Box::new(JobUpdate { nodes: Some((1, None)), ..JobUpdate::default() });
    d.ask(USER, ADA, Request::UpdateJob { jobs, change });
    assert_eq!(d.c.state().jobs[&id].run().expect("it runs").alloc.nodes(), NodeSet::one(NodeId(0)));
    assert_eq!(gone_on(&mut d), ["n1"]);
}

/// Makes a checkpoint of a job on the first two nodes.
fn create(d: &mut Driver, id: JobId) {
    let ordered = order(d, id, CheckpointVerb::Create);
    made(d, "n1", &ordered, Ok(LINKS));
    made(d, "n2", &ordered, Ok(LINKS));
    assert_eq!(gone_on(d), ["n1", "n2"]);
}

#[test]
fn a_job_goes_on_on_other_nodes_if_all_share_its_checkpoints() {
    let (mut d, id) = begin_sharing();
    d.add_node("n3", 1);
    create(&mut d, id);
    d.lose("n1");
    let down = Request::UpdateNodes {
        nodes: "n1".into(),
        admin: Some(NodeAdmin::Down),
        reason: Some("fan".into()),
        change: None,
    };
    assert_eq!(d.ask(USER + 1, 0, down), [Answer::Done]);
    let job = d.attempt(id);
    d.report("n2", &[Report::JobGone { job }]);
    d.pass(1);
    let begins = |message: &Down| {
        if let Down::StartJob { facts, batch: Some(_) } = message { Some(facts.clone()) } else { None }
    };
    let told: Vec<_> = d.sent.iter().filter_map(|(node, message)| Some((node.as_str(), begins(message)?))).collect();
    let [("n2", facts), ("n3", same)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((facts, facts.restore.map(|from| from.number)), (same, Some(1)));
    // The part of n1 is now on n2, and that of n2 on n3.
    let [n1, n2, n3] = [1, 2, 3].map(|node| interface(node).address);
    assert_eq!(facts.moved, Some(vec![(n1, n2), (n2, n3)]));
    // It begins from the start if the checkpoint is bad, and has the size again that it asked for.
    let key = StepKey { job: id, attempt: d.attempt(id).attempt, step: StepNo::BATCH };
    d.report("n2", &[Report::LaunchFailed { key, error: "no".into(), node_fault: false }]);
    assert_eq!(d.c.state().jobs[&id].spec.need, two());
}

/// Steps that are restored with their job get the nodes where their tasks are, in whatever order they ask.
#[test]
fn a_restored_step_is_where_its_tasks_are() {
    let (mut d, id) = begin();
    leave_and_return(&mut d, id);
    for (place, node) in [(1, "n2"), (0, "n1")] {
        let inside = Inside { resumes: Some(StepNo(place)), places: Some([place].into_iter().collect()) };
        let spec = Box::new(StepSpec { inside: Some(inside), ntasks: Some(1), ..StepSpec::default() });
        let program = Box::new(TaskProgram { inside: Some(true), ..TaskProgram::default() });
        let key = d.key();
        let answers = d.ask(u64::from(place), ADA, Request::CreateStep { job: id, spec, program, key });
        let [Answer::StepCreated { step, layout, .. }] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((*step, layout.nodes.as_str()), (StepNo(place), node));
    }
}

/// A job with different shares on its nodes would not fit elsewhere.
#[test]
fn a_job_of_parts_that_differ_is_bound_to_its_nodes() {
    let mut d = cluster("checkpoint_dir = \"/c\"\ncheckpoint_shared = true\n");
    d.add_node("n3", 2);
    let need = Need { nodes_min: Some(2), ntasks: Some(3), nodelist: Some("n3".into()), ..batch().need };
    let mut spec = JobSpec { need: need.clone(), ..batch() };
    spec.options.checkpoint = Some(CheckpointPlan { every_s: 0, must: false });
    let id = d.submit(spec);
    let nodes = started(&mut d, id);
    assert_eq!(d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Create)), []);
    let (_, ordered) = orders(&mut d).swap_remove(0);
    for node in &nodes {
        made(&mut d, node, &ordered, Ok(LINKS));
    }
    let bound = &d.c.state().jobs[&id].spec.need;
    let wanted = Need { nodelist: Some("n[1,3]".into()), nodes_max: Some(2), ..need };
    assert_eq!((bound, kept(&d, id).len()), (&wanted, 1), "also to the one that it did not name");
}

#[test]
fn a_part_that_can_not_be_restored_sends_the_job_back() {
    let (mut d, id) = begin();
    leave_and_return(&mut d, id);
    let job = d.attempt(id);
    let key = StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH };
    let failed = Report::LaunchFailed { key, error: "pid 4711 is taken".into(), node_fault: false };
    d.report("n2", &[failed]);
    assert!(d.sent.iter().any(|(node, message)| node == "n1" && matches!(message, Down::EndJob { .. })));
    assert_eq!(kept(&d, id).len(), 0, "it no longer counts");
    let known = d.c.state().jobs[&id].checkpoints.as_ref().and_then(|all| all.failed.clone());
    assert_eq!(known.as_deref(), Some("pid 4711 is taken"));
}

#[test]
fn jobs_with_several_nodes_must_ask_for_checkpoints() {
    let mut d = cluster("checkpoint_dir = \"/c\"\n");
    let id = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..batch().need }, ..batch() });
    assert_eq!(started(&mut d, id), ["n1"]);
    let refused = d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Create));
    let [Answer::Refused(Refusal::WrongState(why))] = &refused[..] else { panic!("{refused:?}") };
    assert!(why.contains("--checkpoint"), "{why}");
}
