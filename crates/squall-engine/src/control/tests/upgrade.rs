//! The version of the cluster: raising it, what hinders that, and which nodes are refused afterwards.

use squall_model::config::Config;
use squall_model::policy::{Limit, PolicyChange, Qos, Scope, Tres};
use squall_model::rotation::ControllerKeys;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::node::{Down, Registration};

use crate::control::tests::driver::{ADA, Driver, batch};

const OLD: ClusterVersion = ClusterVersion::FIRST;
const NEW: ClusterVersion = ClusterVersion::OWN;

fn raise(to: Option<u16>, others: &[(&str, ClusterVersion)]) -> Request {
    let others = others.iter().map(|(name, speaks)| ((*name).to_owned(), *speaks)).collect();
    Request::RaiseVersion { to: to.map(ClusterVersion), others }
}

/// Returns why a request is refused.
fn refused(d: &mut Driver, uid: u32, request: Request) -> String {
    match &d.ask(9, uid, request)[..] {
        [Answer::Refused(Refusal::InvalidValue { problem, .. })] => problem.clone(),
        other => panic!("{other:?}"),
    }
}

/// A cluster that an older release has founded, with a controller of this release, node n1 of this release and n2 of
/// the older one.
fn mixed() -> Driver {
    let mut d = Driver::speaking(OLD, Config::default());
    d.add_node("n1", 1);
    d.add_node("n2", 1);
    d.restart();
    d.register("n1", &[]);
    older(&mut d, "n2");
    d
}

fn older(d: &mut Driver, name: &str) {
    d.connect(name);
    d.knock(name);
    let said = Registration { speaks: OLD, version: "0.1.9".to_owned(), ..d.registration(name, &[], &[]) };
    d.say(name, |child| child.register(said));
}

#[test]
fn a_new_cluster_has_the_version_of_its_controller() {
    assert_eq!(Driver::empty(Config::default()).c.state().cluster_version, NEW);
    let mut d = Driver::speaking(OLD, Config::default());
    assert_eq!(d.c.state().cluster_version, OLD);
    // Another release reads it, and raises nothing by itself.
    d.restart();
    assert_eq!(d.c.state().cluster_version, OLD);
    assert_eq!(d.ask(9, 0, raise(None, &[])), [Answer::Done]);
    assert_eq!(d.c.state().cluster_version, NEW);
}

#[test]
fn limits_that_an_older_release_can_not_read_come_with_the_version() {
    let mut d = mixed();
    let limits = [(Limit::of(Scope::UserDue, Tres::Cpu), 60)].into();
    let changes = vec![PolicyChange::Qos("long".into(), Some(Qos { limits, ..Qos::default() }))];
    let change = |d: &Driver| Request::ChangePolicy { version: d.c.state().policy.version, changes: changes.clone() };
    let asked = change(&d);
    assert!(matches!(&d.ask(9, 0, asked)[..], [Answer::Refused(Refusal::NotSupported(_))]));
    let mut d = Driver::empty(Config::default());
    let asked = change(&d);
    assert_eq!(d.ask(9, 0, asked), [Answer::Done]);
}

#[test]
fn daemons_that_are_older_or_silent_hinder_it_by_name() {
    let mut d = mixed();
    assert_eq!(d.ask(9, ADA, raise(None, &[])), [Answer::Refused(Refusal::AccessDenied)]);
    let why = refused(&mut d, 0, raise(None, &[("head2", OLD), ("head3", NEW)]));
    let expected = "older are the controllers head2; older are the node daemons of n2. Upgrade and start them first";
    assert_eq!(why, expected);
    d.register("n2", &[]);
    d.lose("n1");
    let why = refused(&mut d, 0, raise(None, &[]));
    assert_eq!(why, "no answer, but maybe jobs, have the nodes n1. Upgrade and start them first");
    d.register("n1", &[]);
    assert_eq!(d.ask(9, 0, raise(Some(NEW.0), &[])), [Answer::Done]);
    assert_eq!(d.ask(9, 0, raise(Some(NEW.0), &[("head2", NEW)])), [Answer::Done], "it has that version already");
}

#[test]
fn it_is_never_lowered_and_not_raised_above_what_the_controller_knows() {
    let mut d = Driver::new(1, 1);
    let why = refused(&mut d, 0, raise(Some(OLD.0), &[]));
    assert_eq!(why, format!("the cluster has version {NEW}, which is never lowered"));
    let why = refused(&mut d, 0, raise(Some(NEW.0 + 1), &[]));
    assert_eq!(why, format!("squall 1, which the controller is, can work with {NEW} at most"));
    d.restart();
    assert_eq!(d.c.state().cluster_version, NEW);
}

/// A node of version 1 would not understand new keys, and a controller of that version not the record of them: it stops
/// at the one that raises the version.
#[test]
fn keys_are_rotated_from_the_version_on_that_all_daemons_understand() {
    let mut d = mixed();
    let keys = ControllerKeys { key: [1; 32], signer: [2; 32], until: Time(9) };
    let rotate = || Request::RotateKeys { grace_s: 0, keys: Some(Box::new(keys.clone())) };
    let told = |d: &Driver| d.sent.iter().filter(|(_, down)| matches!(down, Down::Keys(_))).count();
    assert_eq!(d.ask(9, ADA, rotate()), [Answer::Refused(Refusal::AccessDenied)]);
    match &d.ask(9, 0, rotate())[..] {
        [Answer::Refused(Refusal::NotSupported(why))] => assert!(why.contains("`scontrol upgrade`"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((d.c.state().keys.as_deref(), told(&d)), (None, 0));
    d.register("n2", &[]);
    assert_eq!(d.ask(9, 0, raise(None, &[])), [Answer::Done]);
    assert_eq!(d.ask(9, 0, rotate()), [Answer::Done]);
    assert_eq!((d.c.state().keys.as_deref(), told(&d)), (Some(&keys), 2));
    d.restart();
    assert_eq!(d.c.state().keys.as_deref(), Some(&keys));
}

#[test]
fn a_node_that_is_older_than_the_cluster_is_refused_in_words_and_keeps_its_jobs() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    d.lose("n1");
    d.sent.clear();
    older(&mut d, "n1");
    let refused = d.sent.iter().find_map(|(name, down)| match down {
        Down::Refused { reason, .. } => Some((name.as_str(), reason.clone())),
        _ => None,
    });
    let why = format!(
        "the cluster has version {NEW}, and squall 0.1.9, which this node daemon is, can work with {OLD} at most: install \
         the release that the controller has, squall 1"
    );
    assert_eq!(refused, Some(("n1", why)));
    assert!(!d.connected("n1"));
    d.register("n1", &[attempt]);
    d.finish(job, 0);
    assert_eq!(d.attempt(job), attempt);
}
