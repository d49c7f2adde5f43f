//! Node fences: a job on a silent node runs again when its processes there have surely ended by themselves.

use squall_model::config::{Config, PartitionConfig};
use squall_model::id::JobId;
use squall_model::job::options::Chosen;
use squall_model::job::{JobSpec, JobState, Need};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal};

use super::driver::{Driver, batch};

fn fenced(fence_s: u64) -> JobSpec {
    JobSpec { options: Chosen { node_fence_s: Some(fence_s), ..Chosen::default() }.into(), ..batch() }
}

/// How the cluster refuses a job.
fn refused(d: &mut Driver, spec: JobSpec) -> String {
    let key = d.key();
    match d.submit_with(key, spec).remove(0) {
        Answer::Refused(Refusal::InvalidValue { option, problem, .. }) => format!("{option}: {problem}"),
        answer => panic!("{answer:?}"),
    }
}

fn term_of(d: &Driver, job: JobId) -> Option<Span> {
    d.c.state().jobs[&job].spec.options.get().and_then(Chosen::node_fence)
}

#[test]
fn a_fenced_job_runs_again_when_its_fence_has_passed() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(fenced(31));
    d.pass(25);
    assert_eq!(d.attempt(job).attempt.0, 1);
    // Heartbeats came after 10 and 20 s. The second one acknowledged the answer to the first.
    d.lose("n1");
    d.pass(27);
    assert_eq!((d.state_of(job), d.attempt(job).attempt.0), (Some(JobState::Running), 1));
    // 20 s + 31 s + 2 s.
    d.pass(2);
    assert_eq!((d.state_of(job), d.attempt(job).attempt.0), (Some(JobState::Running), 2), "no operator had to say so");
    let plain = d.submit(batch());
    assert_eq!(d.state_of(plain), Some(JobState::Pending));
    // The node comes back, and ends what it may still have.
    let old = squall_model::job::JobAttempt { job, attempt: squall_model::id::Attempt(1) };
    d.register("n1", &[old]);
    assert!(d.ended().contains(&(old, "n1".to_owned())));
    d.report("n1", &[squall_model::report::Report::JobGone { job: old }]);
    assert_eq!((d.state_of(plain), d.attempt(job).attempt.0), (Some(JobState::Running), 2));
}

#[test]
fn a_fence_of_a_node_that_is_heard_never_passes_and_other_jobs_wait() {
    let mut d = Driver::new(2, 2);
    let (job, plain) = (d.submit(fenced(31)), d.submit(batch()));
    d.pass(600);
    d.lose("n1");
    d.pass(20);
    let jobs = [d.attempt(job), d.attempt(plain)];
    d.register("n1", &jobs);
    d.pass(600);
    d.lose("n1");
    d.pass(2000);
    assert_eq!((d.attempt(job).attempt.0, d.attempt(plain).attempt.0), (2, 1));
}

#[test]
fn a_controller_that_starts_waits_for_the_whole_fence() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(fenced(31));
    d.pass(25);
    d.lose("n1");
    d.pass_in_silence(20);
    d.restart();
    d.pass_in_silence(32);
    assert_eq!(d.attempt(job).attempt.0, 1, "the one before may have heard the node until its end");
    d.register("n2", &[]);
    d.pass_in_silence(2);
    assert_eq!(d.attempt(job).attempt.0, 2);
}

#[test]
fn fences_are_configured_and_short_ones_refused() {
    let mut d = Driver::new(1, 4);
    assert_eq!(
        refused(&mut d, fenced(0)),
        "node-fence: no node_fence_s is configured: give the seconds, as --node-fence=60"
    );
    assert!(refused(&mut d, fenced(30)).starts_with("node-fence: use 31 or more seconds"));
    let long = PartitionConfig { name: "long".into(), node_fence_s: Some(90), ..PartitionConfig::default() };
    let plain = PartitionConfig { default: true, ..PartitionConfig::default() };
    let mut d = Driver::empty(Config { node_fence_s: Some(40), partitions: vec![plain, long], ..Config::default() });
    d.add_node("n1", 9);
    let ids = [batch(), fenced(0), fenced(50), JobSpec { partition: Some("long".into()), ..batch() }].map(|spec| {
        let need = Need { ntasks: Some(1), ..spec.need.clone() };
        d.submit(JobSpec { need, ..spec })
    });
    assert_eq!(ids.map(|id| term_of(&d, id).map(Span::secs)), [Some(40), Some(40), Some(50), Some(90)]);
}
