//! Nodes that are created, join, and are removed: no job starts there, none is lost, and nothing of them stays.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig, NodeStart};
use squall_model::event::Event;
use squall_model::id::{JobId, NodeId};
use squall_model::job::{EndState, JobSpec, JobState, Need, PendingReason};
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::info::NodeInfo;
use squall_model::wire::node::Down;
use squall_sched::Item;

use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, batch};

const ENDED: Option<JobState> = Some(JobState::Ended(EndState::Completed));

fn configured(nodes: &str, partition: &str) -> Config {
    let mut config = Config::default();
    config.nodes.push(NodeConfig { name: nodes.into(), ..NodeConfig::default() });
    config.partitions.push(squall_model::config::PartitionConfig {
        name: "debug".into(),
        nodes: partition.into(),
        ..Default::default()
    });
    config.complete();
    config
}

fn reconfigure(d: &mut Driver, config: Config) {
    d.config = config.clone();
    d.commit(Event::Configured { config: Arc::new(config) });
    d.pass(1);
}

fn shown(d: &mut Driver) -> Vec<NodeInfo> {
    match d.ask(90, 0, Request::Nodes).remove(0) {
        Answer::Nodes(nodes) => nodes,
        other => panic!("{other:?}"),
    }
}

fn names(d: &mut Driver) -> String {
    shown(d).into_iter().map(|node| node.name).collect::<Vec<_>>().join(",")
}

fn futures(d: &mut Driver) -> String {
    match d.ask(91, ADA, Request::FutureNodes).remove(0) {
        Answer::Nodes(nodes) => nodes.into_iter().map(|node| node.name).collect::<Vec<_>>().join(","),
        other => panic!("{other:?}"),
    }
}

fn delete(d: &mut Driver, nodes: &str) -> Answer {
    d.ask(92, 0, Request::DeleteNodes(nodes.into())).remove(0)
}

fn create(d: &mut Driver, node: NodeConfig) -> Answer {
    d.ask(93, 0, Request::CreateNodes(Box::new(node))).remove(0)
}

fn named(name: &str) -> NodeConfig {
    NodeConfig { name: name.into(), cpus: Some(2), memory_mb: Some(500), ..NodeConfig::default() }
}

/// Names of the nodes that were told that they are refused.
fn refused(d: &mut Driver) -> Vec<String> {
    let of = |(name, message): &(String, Down)| matches!(message, Down::Refused { .. }).then(|| name.clone());
    let told = d.sent.iter().filter_map(of).collect();
    d.sent.retain(|(_, message)| !matches!(message, Down::Refused { .. }));
    told
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(d.c.state(), d.now, Item { id, array: false })
}

fn on(node: &str) -> JobSpec {
    JobSpec { need: Need { nodelist: Some(node.into()), ..Need::default() }, ..batch() }
}

#[test]
fn a_removed_node_finishes_its_jobs_and_is_gone() {
    let mut d = Driver::new(2, 1);
    let jobs = [d.submit(on("n1")), d.submit(on("n2"))];
    let waits = d.submit(on("n2"));
    assert_eq!(delete(&mut d, "n2"), Answer::Done);
    assert_eq!(delete(&mut d, "n2"), Answer::Done, "twice is once");
    assert_eq!((names(&mut d).as_str(), refused(&mut d)), ("n1,n2", vec![]));
    let seen = shown(&mut d).remove(1);
    assert_eq!(seen.reason.map(|(text, ..)| text).as_deref(), Some("Removed: its jobs run to their end"));
    assert!(seen.partitions.is_empty());
    // The controller and then the node's daemon are started again.
    d.restart();
    let attempt = d.attempt(jobs[1]);
    d.register("n1", &[d.attempt(jobs[0])]);
    d.register("n2", &[attempt]);
    assert_eq!((d.state_of(jobs[1]), refused(&mut d)), (Some(JobState::Running), vec![]));
    d.finish(jobs[1], 0);
    assert_eq!((d.state_of(jobs[1]), names(&mut d).as_str()), (ENDED, "n1"));
    assert_eq!((refused(&mut d), std::mem::take(&mut d.gone)), (vec!["n2".to_owned()], vec!["n2".to_owned()]));
    // No job starts there, and one that asks for it by name goes on waiting.
    d.pass(60);
    assert_eq!(d.state_of(waits), Some(JobState::Pending));
    assert_eq!(reason(&d, waits), PendingReason::ReqNodeNotAvail);
    let request = Request::Submit {
        spec: on("n2").into(),
        script: b"#!/bin/sh\n".to_vec().into(),
        env: Vec::new().into(),
        key: d.key(),
    };
    assert_eq!(d.ask(94, ADA, request), [Answer::Refused(Refusal::InvalidNode("n2".into()))]);
    d.register("n2", &[]);
    assert_eq!((refused(&mut d), names(&mut d).as_str()), (vec!["n2".to_owned()], "n1"));
    // The host revokes the key at the next start, too, as this one may have died before.
    d.restart();
    assert_eq!(std::mem::take(&mut d.gone), ["n2"]);
    // It comes back under its name and with its id, and with nothing else.
    assert_eq!(create(&mut d, NodeConfig { cpus: None, memory_mb: None, ..named("n[2-3]") }), Answer::Done);
    assert_eq!((names(&mut d).as_str(), d.c.state().node_id("n2")), ("n1,n2,n3", Some(NodeId(1))));
    d.register("n2", &[]);
    d.register("n1", &[d.attempt(jobs[0])]);
    assert_eq!(d.state_of(waits), Some(JobState::Running));
}

#[test]
fn an_idle_node_is_gone_at_once_and_a_named_one_is_refused() {
    let mut d = Driver::empty(configured("n[1-2]", "ALL"));
    for name in ["n1", "n2", "n3"] {
        d.add_node(name, 1);
    }
    let Answer::Refused(Refusal::Contradiction(what, problem)) = delete(&mut d, "n[2-3]") else { panic!() };
    assert_eq!(what, "nodename=n2");
    assert!(problem.contains("scontrol reconfigure"), "{problem}");
    assert_eq!(names(&mut d), "n1,n2,n3", "all or none");
    assert_eq!((delete(&mut d, "n3"), names(&mut d).as_str()), (Answer::Done, "n1,n2"));
    assert_eq!(delete(&mut d, "n3"), Answer::Refused(Refusal::InvalidNode("n3".into())));
    assert_eq!(delete(&mut d, "n9"), Answer::Refused(Refusal::InvalidNode("n9".into())));
    let denied = d.ask(95, ADA, Request::DeleteNodes("n1".into()));
    assert_eq!(denied, [Answer::Refused(Refusal::AccessDenied)]);
}

#[test]
fn a_node_leaves_by_reconfigure_with_its_reservations_and_partitions() {
    let mut d = Driver::empty(configured("n[1-3]", "n[1-3]"));
    (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let job = d.submit(on("n3"));
    let (start, end) = (d.now + Span::from_secs(9000), d.now + Span::from_secs(9999));
    let nodes = [NodeId(1), NodeId(2)].into_iter().collect();
    let reservation = Reservation { name: "r".into(), start, end, nodes, ..Reservation::default() };
    d.commit(Event::ReservationSet { reservation: Box::new(reservation) });
    reconfigure(&mut d, configured("n[1-2]", "n[1-2]"));
    assert_eq!((names(&mut d).as_str(), d.state_of(job)), ("n1,n2,n3", Some(JobState::Running)));
    assert_eq!(d.c.state().reservations["r"].nodes, NodeSet::one(NodeId(1)));
    assert_eq!(d.c.state().partitions[0].nodes.len(), 2);
    // It is named again before its job has ended: nothing has happened.
    reconfigure(&mut d, configured("n[1-3]", "n[1-3]"));
    assert_eq!(d.c.state().partitions[0].nodes.len(), 3);
    reconfigure(&mut d, configured("n[1-2]", "n[1-2]"));
    d.restart();
    d.register("n3", &[d.attempt(job)]);
    d.finish(job, 0);
    assert_eq!((d.state_of(job), names(&mut d).as_str()), (ENDED, "n1,n2"));
    assert_eq!(std::mem::take(&mut d.gone), ["n3"]);
    // A partition that names the node keeps it.
    reconfigure(&mut d, configured("n1", "n[1-2]"));
    assert_eq!(names(&mut d), "n1,n2");
}

#[test]
fn a_removed_node_that_comes_back_at_once_goes_on() {
    let mut d = Driver::new(1, 1);
    assert_eq!(delete(&mut d, "n1"), Answer::Done);
    assert_eq!(refused(&mut d), ["n1"]);
    assert_eq!(create(&mut d, NodeConfig { cpus: None, ..named("n1") }), Answer::Done);
    let job = d.submit(batch());
    assert_eq!(d.state_of(job), Some(JobState::Pending), "its daemon was told to end");
    d.register("n1", &[]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn a_future_node_is_seen_when_it_joins() {
    let mut d = Driver::empty(Config { open: false, ..configured("n1", "ALL") });
    d.add_node("n1", 1);
    let future = NodeConfig { state: NodeStart::Future, features: vec!["big".into()], ..named("f[1-2]") };
    assert_eq!(create(&mut d, future), Answer::Done);
    assert_eq!((names(&mut d).as_str(), futures(&mut d).as_str()), ("n1", "f1,f2"));
    let Answer::Refused(Refusal::Contradiction(what, _)) = create(&mut d, named("f2")) else { panic!() };
    assert_eq!(what, "nodename=f2");
    assert_eq!(d.c.state().partitions[0].nodes.len(), 1);
    d.restart();
    d.add_node("f2", 2);
    let seen = shown(&mut d).remove(1);
    assert_eq!((seen.name.as_str(), seen.features, seen.partitions), ("f2", vec!["big".into()], vec!["debug".into()]));
    assert_eq!(futures(&mut d), "f1");
    let job = d.submit(on("f2"));
    assert_eq!(d.state_of(job), Some(JobState::Running));
    assert_eq!(delete(&mut d, "f1"), Answer::Done);
    assert_eq!((futures(&mut d).as_str(), names(&mut d).as_str()), ("", "n1,f2"));
    // The configuration may have them as well.
    let mut config = configured("n1", "ALL");
    config.nodes.push(NodeConfig { name: "g1".into(), state: NodeStart::Future, ..NodeConfig::default() });
    reconfigure(&mut d, config.clone());
    assert_eq!((futures(&mut d).as_str(), names(&mut d).as_str()), ("g1", "n1,f2"));
    d.add_node("g1", 1);
    reconfigure(&mut d, config);
    assert_eq!((futures(&mut d).as_str(), names(&mut d).as_str()), ("", "n1,f2,g1"));
}

#[test]
fn a_node_has_the_features_that_the_configuration_gives_it_now() {
    let with = |features: &[&str]| {
        let mut config = configured("n1", "ALL");
        config.nodes[0].features = features.iter().map(|name| (*name).to_owned()).collect();
        config
    };
    let mut d = Driver::empty(with(&["old", "both"]));
    d.add_node("n1", 1);
    reconfigure(&mut d, with(&["both", "new"]));
    assert_eq!(shown(&mut d)[0].features, ["both", "new"]);
    assert_eq!(d.take_answers(CallerId(1)), []);
}
