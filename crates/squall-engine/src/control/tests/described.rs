//! `scontrol update node`: weights, features, generic resources and comments are kept and acted upon.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig};
use squall_model::event::{Event, NodeAdmin, NodeChange};
use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::info::NodeInfo;

use crate::control::tests::driver::{ADA, Driver, batch};

fn change(d: &mut Driver, uid: u32, nodes: &str, change: NodeChange) -> Answer {
    let change = Some(Box::new(change));
    let request = Request::UpdateNodes { nodes: nodes.into(), admin: None, reason: None, change };
    d.ask(7, uid, request).remove(0)
}

fn done(d: &mut Driver, nodes: &str, what: NodeChange) {
    assert_eq!(change(d, 0, nodes, what), Answer::Done);
}

fn option(answer: &Answer) -> &str {
    let Answer::Refused(Refusal::InvalidValue { option, .. }) = answer else { panic!("{answer:?}") };
    option
}

fn info(d: &mut Driver, name: &str) -> NodeInfo {
    let Answer::Nodes(nodes) = d.ask(8, ADA, Request::Nodes).remove(0) else { panic!("no nodes") };
    nodes.into_iter().find(|node| node.name == name).unwrap()
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn node_of(d: &mut Driver, job: JobId) -> String {
    let launched = d.launched();
    launched.into_iter().find(|(attempt, _)| attempt.job == job).map(|(_, node)| node).unwrap_or_default()
}

fn with(need: Need) -> JobSpec {
    JobSpec { need, ..batch() }
}

// faults.md E: `scontrol update node` Weight.
#[test]
fn e_nodes_of_less_weight_are_given_first() {
    let mut d = Driver::new(3, 2);
    done(&mut d, "n1", NodeChange { weight: Some(10), ..NodeChange::default() });
    done(&mut d, "n2", NodeChange { weight: Some(5), ..NodeChange::default() });
    assert_eq!((info(&mut d, "n1").weight, info(&mut d, "n3").weight), (10, 1));
    let whole = || with(Need { cpus_per_task: Some(2), ..Need::default() });
    let jobs: Vec<JobId> = (0..3).map(|_| d.submit(whole())).collect();
    let launched = d.launched();
    let nodes: Vec<&str> = launched.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, ["n3", "n2", "n1"]);
    for job in jobs {
        d.finish(job, 0);
    }
    // Of nodes that could take as many tasks the lighter ones are taken; a controller that restarts knows the weights.
    d.restart();
    for name in ["n1", "n2", "n3"] {
        d.register(name, &[]);
    }
    let wide = d.submit(with(Need { ntasks: Some(4), nodes_min: Some(2), nodes_max: Some(2), ..Need::default() }));
    let run = d.c.state().jobs[&wide].run().unwrap().alloc.nodes();
    let names: Vec<&str> = run.iter().map(|id| d.c.state().nodes[id.index()].name.as_str()).collect();
    assert_eq!(names, ["n2", "n3"]);
}

#[test]
fn e_weights_may_be_configured() {
    let entry = |name: &str, weight| NodeConfig { name: name.into(), weight, ..NodeConfig::default() };
    let nodes = vec![entry("n1", Some(4)), entry("n2", None)];
    let mut d = Driver::empty(Config { nodes, ..Config::default() });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 2));
    let job = d.submit(batch());
    assert_eq!(node_of(&mut d, job), "n2");
}

// faults.md E: `scontrol update node` features.
#[test]
fn e_constraints_ask_for_active_features() {
    let mut d = Driver::new(2, 2);
    let features = |available: &[&str], active: &[&str]| NodeChange {
        features: Some(list(available)),
        active_features: Some(list(active)),
        ..NodeChange::default()
    };
    done(&mut d, "n2", features(&["fast", "big"], &["fast"]));
    let seen = info(&mut d, "n2");
    assert_eq!(
        (seen.features, seen.hardware.features.clone()),
        (vec!["fast".into(), "big".into()], vec!["fast".into()])
    );
    let constrained = |feature: &str| with(Need { constraint: Some(feature.into()), ..Need::default() });
    let job = d.submit(constrained("fast"));
    assert_eq!(node_of(&mut d, job), "n2");
    // Those that a node has are among those that it may have.
    let answer =
        change(&mut d, 0, "n[1-2]", NodeChange { active_features: Some(list(&["slow"])), ..NodeChange::default() });
    assert_eq!(option(&answer), "active-features");
    let answer = change(&mut d, 0, "n2", NodeChange { features: Some(list(&["slow"])), ..NodeChange::default() });
    assert_eq!(option(&answer), "active-features");
    // A node keeps them when it registers again.
    d.restart();
    d.register("n2", &[]);
    assert_eq!(info(&mut d, "n2").hardware.features, ["fast"]);
}

// faults.md E: `scontrol update node` Gres, Comment, Extra.
#[test]
fn e_what_is_said_of_nodes_is_kept() {
    let mut d = Driver::new(2, 2);
    let text = |text: &str| Some(text.to_owned());
    let said = NodeChange {
        comment: text("bad fan"),
        extra: text("{}"),
        instance_id: text("i-7"),
        gres: text("gpu:a100:2"),
        weight: Some(3),
        ..NodeChange::default()
    };
    done(&mut d, "n1", said);
    d.restart();
    d.register("n1", &[]);
    let seen = info(&mut d, "n1");
    assert_eq!((&*seen.comment, &*seen.extra, &*seen.instance.0), ("bad fan", "{}", "i-7"));
    assert_eq!((&*seen.gres, seen.weight), ("gpu:a100:2", 3));
    let gpu = with(Need { gres: Some("gpu:2".into()), ..Need::default() });
    let job = d.submit(gpu);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    // Devices that a job holds stay; nonsense is refused; users change nothing.
    let gres = |text: &str| NodeChange { gres: Some(text.into()), ..NodeChange::default() };
    assert_eq!(option(&change(&mut d, 0, "n1", gres("gpu:1"))), "gres");
    assert_eq!(option(&change(&mut d, 0, "n2", gres("gpu:x:y:z"))), "gres");
    assert_eq!(change(&mut d, ADA, "n1", gres("")), Answer::Refused(Refusal::AccessDenied));
    // What the configuration says as well goes with the next one; comments stay.
    done(&mut d, "n1", NodeChange { comment: text("worse"), ..NodeChange::default() });
    let mut config = Config { kill_wait_s: 7, ..(*d.c.state().config).clone() };
    config.complete();
    d.commit(Event::Configured { config: Arc::new(config) });
    let seen = info(&mut d, "n1");
    assert_eq!((&*seen.comment, seen.weight, &*seen.gres), ("worse", 1, ""));
}

#[test]
fn e_a_node_that_may_fail_gets_no_jobs_and_a_reason_alone_changes_no_state() {
    let mut d = Driver::new(1, 2);
    let ask = |admin, reason: &str| Request::UpdateNodes {
        nodes: "n1".into(),
        admin,
        reason: Some(reason.into()),
        change: None,
    };
    assert_eq!(d.ask(7, 0, ask(Some(NodeAdmin::Fail), "noise")), [Answer::Done]);
    let job = d.submit(batch());
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    assert_eq!(d.ask(7, 0, ask(None, "a fan")), [Answer::Done]);
    let seen = info(&mut d, "n1");
    assert_eq!((seen.admin, &*seen.reason.unwrap().0), (NodeAdmin::Fail, "a fan"));
    assert_eq!(d.ask(7, 0, ask(Some(NodeAdmin::Resume), "better")), [Answer::Done]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}
