//! A job's life: submitted, started, ended, forgotten, each exactly once.

use squall_model::event::NodeAdmin;
use squall_model::id::{Attempt, Epoch, JobId, Session};
use squall_model::job::{EndState, JobAttempt, JobSpec, JobState};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::fabric::{Composite, Newer};
use squall_model::wire::node::Registration;

use crate::control::state::job::Hold;
use crate::control::tests::driver::{ADA, Driver, array, batch};

#[test]
fn a_job_runs_once_ends_and_is_forgotten() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    let launched = d.launched();
    assert_eq!(launched, [(d.attempt(job), "n1".to_owned())]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.finish(job, 3);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
    assert_eq!(d.ended(), [], "a job that ended by itself is not ended again");
    assert!(d.c.state().nodes[0].jobs.is_empty() && d.c.state().nodes[0].cores.is_empty());
    d.pass(290);
    assert!(d.state_of(job).is_some());
    d.pass(40);
    assert_eq!(d.state_of(job), None);
    assert!(d.c.state().index.keys.is_empty());
}

/// A client that was not answered repeats its submission to the next controller, when the job has long ended (seed 196
/// of the simulator).
#[test]
fn a_submission_is_known_again_by_a_controller_that_has_just_started() {
    let mut d = Driver::new(1, 2);
    let key = d.key();
    let answers = d.submit_with(key, batch());
    let [Answer::Submitted { job, .. }] = answers[..] else { panic!("{answers:?}") };
    d.finish(job, 0);
    d.pass(295);
    d.restart();
    d.pass(50);
    let again = d.submit_with(key, batch());
    assert!(matches!(again[..], [Answer::Submitted { job: same, .. }] if same == job), "{again:?}");
    d.pass(30);
    assert_eq!(d.state_of(job), None);
}

/// Its end was decided longer ago than `MinJobAge` when its last node let go of it (seed 6815 of the simulator).
#[test]
fn who_waits_for_a_job_is_answered_before_it_is_forgotten() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    assert_eq!(d.ask(7, ADA, Request::AwaitJob { job }), []);
    d.cancel(job);
    d.pass(400);
    assert!(d.state_of(job).is_some());
    let reports = d.script_end(job, 0);
    // Nothing was looked at for so long that old jobs are looked for with this very message.
    d.now = d.now + Span::from_secs(20);
    d.report("n1", &reports);
    assert_eq!(d.state_of(job), None);
    let answers = d.take_answers(crate::control::CallerId(7));
    assert!(matches!(&answers[..], [Answer::JobDone { job: told, .. }] if *told == job), "{answers:?}");
}

#[test]
fn the_same_key_is_the_same_job_and_another_spec_under_it_is_refused() {
    let mut d = Driver::new(1, 2);
    let key = d.key();
    let first = d.submit_with(key, batch());
    assert_eq!(d.submit_with(key, batch()), first);
    d.restart();
    assert_eq!(d.submit_with(key, batch()), first);
    let other = JobSpec { args: vec!["x".into()], ..batch() };
    assert_eq!(d.submit_with(key, other), [Answer::Refused(Refusal::KeyReused)]);
    assert_eq!(d.c.state().jobs.len(), 1);
}

#[test]
fn reports_that_come_twice_count_once() {
    let mut d = Driver::new(1, 1);
    let first = d.submit(batch());
    let second = d.submit(batch());
    let reports = d.script_end(first, 0);
    d.report("n1", &reports);
    assert_eq!(d.state_of(second), Some(JobState::Running));
    let before = d.c.state().clone();
    let counted = d.c.diag().fabric.clone();
    assert_eq!((counted.node_epilogs, counted.repeats), (1, 0));
    assert_eq!(counted.windows, [2, 1], "a knock, a registration, and one message of two reports");
    d.report("n1", &reports);
    assert_eq!(&before, d.c.state());
    let again = &d.c.diag().fabric;
    assert_eq!((again.node_epilogs, again.repeats), (1, 2));
}

#[test]
fn a8_a_state_that_is_older_than_what_nodes_have_heard_is_refused_or_gone_on_from() {
    let mut d = Driver::new(1, 2);
    let waits = d.submit(JobSpec { hold: true, ..batch() });
    let newer = || Newer { name: "n1".into(), session: Session { epoch: Epoch(9), number: 4 }, last_job: JobId(20) };
    let contradict = |d: &mut Driver| {
        d.connect("n1");
        d.knock("n1");
        d.say("n1", |child| child.composite(Composite { newer: vec![newer()], reports: 1, ..Composite::default() }));
    };
    contradict(&mut d);
    assert_eq!(d.newer.take(), Some(newer()), "the daemon says so and ends");
    d.c.accept_loss();
    contradict(&mut d);
    assert_eq!((d.newer.take(), d.c.state().epoch, d.connected("n1")), (None, Epoch(10), false));
    assert_eq!(d.submit(JobSpec { hold: true, ..batch() }), JobId(21), "no id that a node knows is given again");
    // What runs there and is not known here, or only as waiting, is left alone.
    let attempt = |job, attempt| JobAttempt { job, attempt: Attempt(attempt) };
    let unknown = [attempt(waits, 1), attempt(JobId(20), 1)];
    let forgotten = attempt(JobId(21), 0);
    d.register("n1", &[unknown[0], unknown[1], forgotten]);
    assert_eq!(d.ended(), [(forgotten, "n1".to_owned())], "that is nothing that a backup lacks");
    let node = &d.c.state().nodes[0];
    let reason = node.reason.as_ref().map(|reason| reason.text.clone()).unwrap_or_default();
    assert!(node.admin == NodeAdmin::Drain && reason.ends_with(&format!("does not know: {waits},20")), "{reason}");
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
    let (running, lost) = (d.attempt(runs), d.attempt(ended));
    let last = d.c.state().last_id;
    d.restore(1000);
    assert!(d.c.state().epoch > Epoch(1_000_000));
    assert_eq!(d.submit(JobSpec { hold: true, ..batch() }), JobId(last.0 + 1001));
    // What runs goes on. What has ended since waits, held, like all that may have run.
    let later = JobAttempt { job: waits, attempt: Attempt(1) };
    d.register("n1", &[running, later]);
    assert_eq!((d.newer.take(), d.ended(), d.launched()), (None, vec![], vec![]));
    assert_eq!(d.state_of(runs), Some(JobState::Running));
    assert_eq!(d.state_of(ended), Some(JobState::Pending), "{lost:?}");
    let state = d.c.state();
    assert!([waits, ended].iter().all(|id| state.jobs.get(id).is_some_and(|job| job.queue.hold != Hold::No)));
    assert!(state.arrays[&tasks].queue.hold != Hold::No && state.waiting() == 0);
    // A node that comes later, to another run of the controller, knows no more than the one before.
    d.restart();
    d.register("n1", &[running, later]);
    assert_eq!((d.newer.take(), d.ended(), d.launched()), (None, vec![], vec![]));
    // But one that knows more since then is of a newer state, again.
    d.restart();
    let heard = Session { epoch: d.c.state().epoch, number: 1 };
    d.connect("n1");
    d.knock("n1");
    let said = Registration { heard, last_job: JobId(5000), ..d.registration("n1", &[running], &[]) };
    d.say("n1", |child| child.register(said));
    assert_eq!(d.newer.take().map(|newer| newer.last_job), Some(JobId(5000)));
}

#[test]
fn a8_a_backup_without_a_later_life_is_noticed_by_jobs_that_it_does_not_know() {
    for attempt in [1, 2] {
        let mut d = Driver::new(1, 2);
        let (job, next) = (d.submit(batch()), JobId(2));
        d.script_end(job, 0);
        // The next life's epoch is above all that nodes have heard, whether it is of a backup or not.
        d.restart();
        // A submission that comes first makes its id no better.
        assert_eq!(d.submit(JobSpec { hold: true, ..batch() }), next);
        let running = JobAttempt { job: if attempt == 1 { next } else { job }, attempt: Attempt(attempt) };
        d.register("n1", &[running]);
        let newer = d.newer.take().expect("the daemon says so and ends");
        assert_eq!((newer.last_job, d.ended(), d.connected("n1")), (running.job, vec![], false));
        // With `--accept-loss` the controller goes on and lets the job run.
        d.restart();
        d.c.accept_loss();
        d.register("n1", &[running]);
        assert_eq!((d.newer.take(), d.ended()), (None, vec![]));
        assert_eq!(d.c.state().nodes[0].admin, NodeAdmin::Drain);
    }
}
