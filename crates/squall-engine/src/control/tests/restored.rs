//! A state that lacks its end: restored from a backup, once or again, or an old copy; and nodes that know more, or say so.

use squall_model::config::{Config, NodeConfig};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, Epoch, JobId, NodeId, Session};
use squall_model::job::{EndState, JobAttempt, JobKind, JobSpec, JobState};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Composite, Newer, UpFrame};
use squall_model::wire::node::Registration;

use crate::control::port::{Input, LinkId};
use crate::control::state::State;
use crate::control::state::job::Hold;
use crate::control::tests::driver::{Driver, array, batch};
use crate::fabric::child::Child;

/// What a node says that has heard this epoch and this job.
fn newer(name: &str, epoch: u64, job: u32) -> Newer {
    Newer { name: name.into(), session: Session { epoch: Epoch(epoch), number: 4 }, last_job: JobId(job) }
}

fn composite(newer: Newer) -> Composite {
    Composite { newer: vec![newer], reports: 1, ..Composite::default() }
}

/// A node connects, and answers an offer with the session that it has heard.
fn contradicts(d: &mut Driver, newer: Newer) {
    let name = newer.name.clone();
    d.connect(&name);
    d.knock(&name);
    d.say(&name, |child| child.composite(composite(newer)));
}

fn reason(d: &Driver, name: &str) -> (NodeAdmin, String) {
    let state = d.c.state();
    let node = state.node_id(name).and_then(|id| state.node(id)).unwrap();
    (node.admin, node.reason.as_ref().map(|reason| reason.text.clone()).unwrap_or_default())
}

fn hold(d: &Driver, id: JobId) -> Hold {
    d.c.state().jobs.get(&id).unwrap().queue.hold
}

fn held() -> JobSpec {
    JobSpec { hold: true, ..batch() }
}

fn attempt(job: JobId, attempt: u32) -> JobAttempt {
    JobAttempt { job, attempt: Attempt(attempt) }
}

#[test]
fn a8_a_state_that_is_older_than_what_nodes_have_heard_is_refused_or_gone_on_from() {
    let mut d = Driver::new(1, 2);
    let waits = d.submit(held());
    contradicts(&mut d, newer("n1", 9, 20));
    assert_eq!(d.newer.take(), Some(newer("n1", 9, 20)), "the daemon says so and ends");
    d.accept_loss(0);
    assert!(d.c.state().epoch > Epoch(9), "an epoch that there never was");
    let fresh = d.submit(held());
    assert!(fresh > JobId(20), "no id that a node knows is given again");
    // What runs there and is not known here, or only as waiting, is left alone.
    let (unknown, forgotten) = ([attempt(waits, 1), attempt(JobId(20), 1)], attempt(fresh, 0));
    d.register("n1", &[unknown[0], unknown[1], forgotten]);
    assert_eq!((d.newer.take(), d.ended()), (None, vec![(forgotten, "n1".to_owned())]));
    let (admin, text) = reason(&d, "n1");
    assert!(admin == NodeAdmin::Drain && text.ends_with(&format!("does not know: {waits},20")), "{text}");
    // A later life knows that, too.
    d.restart();
    d.register("n1", &unknown);
    assert_eq!((d.newer.take(), d.ended()), (None, vec![]));
}

#[test]
fn a8_a_restored_state_gives_no_id_again_and_runs_nothing_that_may_have_run() {
    let mut d = Driver::new(1, 2);
    let [runs, ended, waits] = [(); 3].map(|()| d.submit(batch()));
    let tasks = d.submit(array(2, None));
    let running = d.attempt(runs);
    let last = d.c.state().last_id;
    d.restore(0);
    assert!(d.submit(held()) > JobId(last.0 + 1000));
    // What runs goes on. What has ended since waits, held, like all that may have run.
    let later = attempt(waits, 1);
    d.register("n1", &[running, later]);
    assert_eq!((d.newer.take(), d.ended(), d.launched()), (None, vec![], vec![]));
    assert_eq!(d.state_of(runs), Some(JobState::Running));
    assert_eq!(d.state_of(ended), Some(JobState::Pending));
    assert!([waits, ended].iter().all(|id| hold(&d, *id) != Hold::No));
    assert!(d.c.state().arrays[&tasks].queue.hold != Hold::No && d.c.state().waiting() == 0);
    // A node that comes later, to another run of the controller, knows no more than the one before.
    d.restart();
    d.register("n1", &[running, later]);
    assert_eq!((d.newer.take(), d.ended(), d.launched()), (None, vec![], vec![]));
    // But one that knows more since then is of a newer state, again.
    d.restart();
    d.connect("n1");
    d.knock("n1");
    let said = Registration { last_job: JobId(5_000_000), ..d.registration("n1", &[running], &[]) };
    d.say("n1", |child| child.register(said));
    assert_eq!(d.newer.take().map(|newer| newer.last_job), Some(JobId(5_000_000)));
}

#[test]
fn a8_a_backup_without_a_later_life_is_noticed_by_jobs_that_it_does_not_know() {
    for number in [1, 2] {
        let mut d = Driver::new(1, 2);
        let (job, next) = (d.submit(batch()), JobId(2));
        d.script_end(job, 0);
        // The next life's epoch is above all that nodes have heard, whether it is of a backup or not.
        d.restart();
        // A submission that comes first makes its id no better.
        assert_eq!(d.submit(held()), next);
        let running = attempt(if number == 1 { next } else { job }, number);
        d.register("n1", &[running]);
        let newer = d.newer.take().expect("the daemon says so and ends");
        assert_eq!((newer.last_job, d.ended(), d.connected("n1")), (running.job, vec![], false));
        // With `--accept-loss` the controller goes on and lets the job run.
        d.accept_loss(0);
        d.register("n1", &[running]);
        assert_eq!((d.newer.take(), d.ended()), (None, vec![]));
        assert_eq!(d.c.state().nodes[0].admin, NodeAdmin::Drain);
    }
}

/// faults.md A3: one rooted node ended the controller, for all, as often as it liked.
#[test]
fn a3_one_nodes_word_drains_it_and_no_other_and_the_controller_goes_on() {
    let mut d = Driver::new(4, 1);
    contradicts(&mut d, newer("n2", 900, 999_999));
    assert_eq!((d.newer.take(), d.connected("n2")), (None, false));
    let (admin, text) = reason(&d, "n2");
    assert!(
        admin == NodeAdmin::Drain && text.contains("epoch 900") && text.contains("remove its folder node/n2"),
        "{text}"
    );
    // It says so with a registration, too, and again and again.
    for _ in 0..3 {
        d.connect("n3");
        d.knock("n3");
        let said = Registration { last_job: JobId(4_000_000), ..d.registration("n3", &[], &[]) };
        d.say("n3", |child| child.register(said));
        contradicts(&mut d, newer("n2", 901, 999_999));
    }
    assert_eq!((d.newer.take(), reason(&d, "n3").0, d.connected("n3")), (None, NodeAdmin::Drain, false));
    // The others work on, with the ids and the epoch that there were.
    let (job, epoch) = (d.submit(batch()), d.c.state().epoch);
    assert_eq!((job, epoch), (JobId(1), Epoch(1)));
    assert_eq!(d.launched(), [(attempt(job, 1), "n1".to_owned())]);
    assert!(["n1", "n4"].iter().all(|name| reason(&d, name) == (NodeAdmin::Resume, String::new())));
    // A node that has mended its ways is let in, and waits for an operator.
    d.register("n3", &[]);
    assert_eq!((d.connected("n3"), reason(&d, "n3").0), (true, NodeAdmin::Drain));
    // Three of four are most of them.
    contradicts(&mut d, newer("n4", 900, 5));
    assert_eq!(d.newer.take(), None);
    contradicts(&mut d, newer("n1", 900, 7));
    assert_eq!(d.newer.take(), Some(newer("n4", 900, 5)));
}

/// A node that runs what a restored state lacks may say so when it comes for the first time. Later it holds nobody's jobs.
#[test]
fn a3_a_node_of_a_restored_state_holds_no_jobs_of_others() {
    let mut d = Driver::new(1, 1);
    let runs = d.submit(batch());
    d.restore(30);
    d.pass(1);
    let many = (0..200).map(|at| attempt(JobId(2 + at), 1));
    let many: Vec<JobAttempt> = [d.attempt(runs)].into_iter().chain(many).collect();
    d.register("n1", &many);
    let (admin, text) = reason(&d, "n1");
    assert!(admin == NodeAdmin::Drain && text.ends_with(" and 100 more"), "{text}");
    let new = d.submit(batch());
    d.register("n1", &[d.attempt(runs), attempt(new, 1), attempt(JobId(2), 1)]);
    assert_eq!((hold(&d, new), d.ended()), (Hold::No, vec![]));
}

/// A machine that is a relay does not speak for the nodes below it.
#[test]
fn a3_a_relays_word_about_others_counts_for_nothing() {
    let nodes = vec![NodeConfig { name: "n[1-3]".into(), cpus: Some(1), ..NodeConfig::default() }];
    let mut d = Driver::empty(Config { nodes, tree_width: 2, ..Config::default() });
    for name in ["n1", "n2", "n3"] {
        d.add_node(name, 1);
    }
    let (link, mut relay) = (LinkId(77), Child::default());
    d.step(Input::Opened { link, name: Some("n1".into()) });
    let say = |d: &mut Driver, frame: UpFrame| d.step(Input::Frame { link, frame: Box::new(frame) });
    for name in ["n2", "n3"] {
        say(&mut d, relay.composite(composite(newer(name, 900, 5))));
        assert_eq!((d.newer.take(), reason(&d, name).0, d.connected(name)), (None, NodeAdmin::Resume, true));
    }
    // Of itself it may say so, and about a node below only that comes by itself.
    say(&mut d, relay.composite(composite(newer("n1", 900, 5))));
    assert_eq!((d.newer.take(), reason(&d, "n1").0), (None, NodeAdmin::Drain));
    d.register("n2", &[]);
    assert_eq!((d.connected("n2"), reason(&d, "n2").0), (true, NodeAdmin::Resume));
}

#[test]
fn a3_no_epoch_wraps_and_none_is_taken_that_cant_have_been() {
    for epoch in [u64::MAX, u64::MAX - 1, 1 << 62] {
        let mut d = Driver::new(3, 1);
        d.accept_loss(0);
        let own = d.c.state().epoch;
        for name in ["n1", "n2", "n3"] {
            contradicts(&mut d, newer(name, epoch, u32::MAX));
        }
        assert_eq!((d.newer.take().map(|newer| newer.session.epoch), d.c.state().epoch), (Some(Epoch(epoch)), own));
    }
    // What most of them can have heard is believed, and nothing above that.
    let mut d = Driver::new(3, 1);
    d.accept_loss(0);
    let own = d.c.state().epoch.0;
    for (name, epoch) in [("n1", u64::MAX), ("n2", own + 7), ("n3", own + 5)] {
        contradicts(&mut d, newer(name, epoch, 5));
    }
    assert_eq!((d.newer.take(), d.c.state().epoch), (None, Epoch(own + 8)));
    assert!(["n1", "n2", "n3"].iter().all(|name| !d.connected(name) && reason(&d, name).0 == NodeAdmin::Resume));
}

/// A state that lacks its end, as it begins: the backup is restored, or its copy accepted.
fn again(d: &mut Driver, backup: &State, seconds: u64, accepts: bool) -> (Epoch, JobId) {
    d.replayed_from(backup);
    if accepts {
        d.accept_loss(seconds);
    } else {
        d.restore(seconds);
    }
    let id = d.submit(held());
    (d.c.state().epoch, id)
}

/// faults.md R1: the second restoration got the first one's epoch, so that nodes seemed to know all that it did.
#[test]
fn r1_a_backup_that_is_restored_again_runs_nothing_again_and_gives_no_id_again() {
    for accepts in [false, true] {
        let mut d = Driver::new(2, 3);
        let once = d.submit(JobSpec { requeue: Some(false), ..batch() });
        let first = d.replayed();
        let (back, late) = (d.submit(batch()), d.submit(batch()));
        let allocation = d.submit(JobSpec { kind: JobKind::Allocation, ..batch() });
        let second = d.replayed();
        for job in [once, back, late] {
            d.finish(job, 0);
        }
        d.launched();
        let (mut epochs, mut ids) = (vec![d.c.state().epoch], vec![d.c.state().last_id]);
        // The newer one, the older one, and both again, some seconds apart.
        for (number, backup) in [&second, &first, &second, &second].into_iter().enumerate() {
            d.pass(5);
            let (epoch, id) = again(&mut d, backup, 60 + 5 * number as u64, accepts);
            assert!(epochs.iter().all(|known| epoch > *known), "{epoch:?} after {epochs:?}");
            assert!(ids.iter().all(|known| id > *known), "{id} after {ids:?}");
            d.register("n1", &[]);
            // One node has been told to forget all, with its folder.
            d.reboot("n2");
            assert_eq!((d.newer.take(), d.launched()), (None, vec![]), "restoration {number}");
            assert_eq!(d.state_of(once), Some(JobState::Ended(EndState::NodeFail)));
            if !std::ptr::eq(backup, &raw const first) {
                assert!([back, late].iter().all(|job| d.state_of(*job) == Some(JobState::Pending)));
                assert!([back, late].iter().all(|job| hold(&d, *job) != Hold::No));
                assert_eq!(d.state_of(allocation), Some(JobState::Ended(EndState::NodeFail)));
            }
            let last = [(); 5].map(|()| d.submit(held()))[4];
            epochs.push(epoch);
            ids.push(last);
        }
    }
}

/// The nodes of a job never come again: what an operator decides about them does not start it once more.
#[test]
fn r1_a_job_whose_nodes_stay_away_after_a_restoration_waits_held() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    let set = |d: &mut Driver, node| {
        let (nodes, admin) = (NodeSet::one(NodeId(node)), NodeAdmin::Down);
        d.commit(Event::NodesSet { nodes, admin, reason: None, by: 0 });
    };
    d.restore(30);
    d.register("n2", &[]);
    set(&mut d, 0);
    assert_eq!((d.state_of(job), hold(&d, job)), (Some(JobState::Pending), Hold::Requeue));
    assert_eq!(d.launched(), []);
    // One that its node names is as sure as any other.
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    d.restore(30);
    d.register("n1", &[d.attempt(job)]);
    d.register("n2", &[]);
    set(&mut d, 0);
    let reports = d.script_end(job, 0);
    d.report("n1", &reports);
    assert_eq!(hold(&d, job), Hold::No);
}

/// What was about to be requeued may have been, and have run.
#[test]
fn r1_a_job_that_was_about_to_be_requeued_waits_held_after_a_restoration() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    d.commit(Event::JobEnding {
        id: job,
        outcome: squall_model::job::Outcome {
            state: EndState::Preempted,
            exit: squall_model::job::ExitCode::OK,
            reason: None,
        },
        requeue: Some(squall_model::event::Requeue { hold: false, not_before: None, special: None, expedite: None }),
    });
    d.restore(30);
    d.register("n1", &[]);
    d.launched();
    d.report("n1", &[squall_model::report::Report::JobGone { job: d.attempt(job) }]);
    assert_eq!((d.state_of(job), d.launched()), (Some(JobState::Pending), vec![]));
    assert_eq!(hold(&d, job), Hold::User);
}

/// However long ago the backup was made, and in whatever order backups are restored, restorations are apart.
#[test]
fn r1_ids_of_restorations_are_apart() {
    let d = Driver::new(1, 1);
    let state = d.c.state();
    let at = |now: u64, lost: u64| state.passed_over(Time::from_secs(now), Span::from_secs(lost)).0;
    for lost in [0, 1, 60, 3600, 86_400, 30 * 86_400, 400 * 86_400] {
        for gap in [5, 60, 1000] {
            // The same backup, or one that was made later or earlier.
            for other in [lost + gap, lost / 2, lost + 5 * gap] {
                let (low, high) = (at(1_800_000_000, lost), at(1_800_000_000 + gap, other));
                assert!(low.abs_diff(high) >= 200 * gap as u32, "{lost} s, {other} s, {gap} s: {low} {high}");
                assert!(low.min(high) >= 1000);
            }
        }
    }
}
