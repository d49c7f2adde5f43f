//! What follows from programs around jobs, from checks of nodes, and from reboots.

use squall_model::config::Config;
use squall_model::event::NodeAdmin;
use squall_model::id::{StepKey, StepNo};
use squall_model::job::{EndState, JobAttempt, JobKind, JobSpec, JobState};
use squall_model::report::Report;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::hook::{Hook, NodeNote};
use squall_model::wire::node::Down;

use crate::control::state::job::Hold;
use crate::control::tests::driver::{Driver, batch};

/// Returns a cluster of two nodes with this text in its configuration.
pub(super) fn cluster(text: &str) -> Driver {
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    d.add_node("n1", 1);
    d.add_node("n2", 1);
    d
}

fn failed(job: JobAttempt) -> NodeNote {
    NodeNote::Prolog { job, error: Some("exit code 1".into()) }
}

/// Returns the only entry of a list.
fn one(list: Vec<(JobAttempt, String)>) -> (JobAttempt, String) {
    let [one] = <[_; 1]>::try_from(list).expect("there is one");
    one
}

impl Driver {
    /// Returns state and reason of a node.
    pub(super) fn seen(&self, name: &str) -> (NodeAdmin, String) {
        let state = self.c.state();
        let node = state.node(state.node_id(name).unwrap()).unwrap();
        (node.admin, node.reason.as_ref().map_or_else(String::new, |reason| reason.text.clone()))
    }
    /// The first node of a job releases it.
    fn release(&mut self, job: JobAttempt, name: &str) {
        self.report(name, &[Report::JobGone { job }]);
    }
    fn reboots(&mut self) -> usize {
        let count = self.sent.iter().filter(|(_, message)| matches!(message, Down::Reboot { .. })).count();
        self.sent.clear();
        count
    }
}

#[test]
fn a_failed_prolog_drains_the_node_and_the_job_starts_elsewhere() {
    let mut d = cluster("hooks.prolog = \"/p\"\n");
    let job = d.submit(batch());
    let (first, name) = one(d.launched());
    d.note(&name, failed(first));
    assert_eq!(d.seen(&name), (NodeAdmin::Drain, "Prolog error".to_owned()));
    assert_eq!(d.ended(), [(first, name.clone())]);
    d.release(first, &name);
    let (second, other) = one(d.launched());
    assert!(second.attempt > first.attempt && other != name);
    // A repetition of the report has no effect.
    d.note(&name, failed(first));
    assert!(d.ended().is_empty());
    // Where it fails everywhere the job is held.
    d.note(&other, failed(second));
    d.release(second, &other);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    assert!(d.c.state().jobs[&job].queue.hold != Hold::No);
}

#[test]
fn with_nohold_on_prolog_fail_the_job_waits_for_a_node() {
    let mut d = cluster("SchedulerParameters = \"nohold_on_prolog_fail\"\nhooks.prolog = \"/p\"\n");
    let job = d.submit(batch());
    for _ in 0..2 {
        let (attempt, name) = one(d.launched());
        d.note(&name, failed(attempt));
        d.release(attempt, &name);
    }
    assert!(d.c.state().jobs[&job].queue.hold == Hold::No);
}

#[test]
fn an_allocation_ends_with_its_prolog() {
    let mut d = cluster("hooks.prolog = \"/p\"\nhooks.prolog_flags = \"NoHold\"\n");
    let spec = JobSpec { kind: JobKind::Allocation, ..batch() };
    let job = d.submit(spec);
    let attempt = d.attempt(job);
    d.note("n1", failed(attempt));
    d.release(attempt, "n1");
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::BootFail)));
}

#[test]
fn a_failed_epilog_drains_the_node_once() {
    let mut d = cluster("hooks.epilog = \"/e\"\n");
    let job = d.submit(batch());
    let (attempt, name) = one(d.launched());
    let (name, note) = (name, NodeNote::Epilog { job: attempt, error: "hangs".into() });
    d.cancel(job);
    let exits = d.sent.iter().filter(|(_, message)| matches!(message, Down::EndJob { exit: Some(_), .. }));
    assert_eq!(exits.count(), 1);
    d.note(&name, note.clone());
    assert_eq!(d.seen(&name), (NodeAdmin::Drain, "Epilog error".to_owned()));
    d.release(attempt, &name);
    assert!(matches!(d.state_of(job), Some(JobState::Ended(_))));
    let set = |admin| Request::UpdateNodes { nodes: name.clone(), admin: Some(admin), reason: None, change: None };
    d.ask(5, 0, set(NodeAdmin::Resume));
    d.note(&name, note);
    assert_eq!(d.seen(&name).0, NodeAdmin::Resume);
}

#[test]
fn checks_drain_and_return_their_nodes_only() {
    let mut d = cluster("health.program = \"/c\"\nhealth.resume = true\n");
    let bad = |text: &str| NodeNote::Health { error: Some(text.into()) };
    d.note("n1", bad("no scratch"));
    assert_eq!(d.seen("n1"), (NodeAdmin::Drain, "Health check failed: no scratch".to_owned()));
    d.note("n1", NodeNote::Health { error: None });
    assert_eq!(d.seen("n1").0, NodeAdmin::Resume);
    let drain = Request::UpdateNodes {
        nodes: "n2".into(),
        admin: Some(NodeAdmin::Drain),
        reason: Some("fan".into()),
        change: None,
    };
    d.ask(5, 0, drain);
    d.note("n2", bad("no scratch"));
    d.note("n2", NodeNote::Health { error: None });
    assert_eq!(d.seen("n2"), (NodeAdmin::Drain, "fan".to_owned()));
}

#[test]
fn a_script_may_wait_for_the_prologs_of_all_nodes() {
    let mut d = cluster("hooks.prolog = \"/p\"\nhooks.prolog_flags = \"DeferBatch\"\n");
    let mut spec = batch();
    spec.need.nodes_min = Some(2);
    let job = d.submit(spec);
    assert!(d.launched().is_empty());
    let attempt = d.attempt(job);
    d.note("n1", NodeNote::Prolog { job: attempt, error: None });
    assert!(d.launched().is_empty());
    d.note("n2", NodeNote::Prolog { job: attempt, error: None });
    assert_eq!(d.launched().len(), 1);
}

#[test]
fn the_controllers_programs_run_before_and_after_and_survive_its_restart() {
    let mut d = cluster("hooks.prolog_slurmctld = \"/p\"\nhooks.epilog_slurmctld = \"/e\"\n");
    let job = d.submit(batch());
    assert_eq!(d.programs.len(), 1);
    assert_eq!((d.programs[0].hook, d.launched().len()), (Hook::PrologSlurmctld, 0));
    d.programs.clear();
    d.restart();
    for name in ["n1", "n2"] {
        d.register(name, &[]);
    }
    assert_eq!((d.programs.len(), d.launched().len()), (1, 0));
    d.program_ends(None);
    assert_eq!(d.launched().len(), 1);
    d.finish(job, 3);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Failed)));
    assert_eq!((d.programs[0].hook, d.programs[0].exit.map(|exit| exit.code)), (Hook::EpilogSlurmctld, Some(3)));
    d.programs.clear();
    d.restart();
    assert_eq!(d.programs.len(), 1);
    d.program_ends(Some("it failed"));
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
}

#[test]
fn a_failed_prolog_of_the_controller_requeues_the_job() {
    let mut d = cluster("hooks.prolog_slurmctld = \"/p\"\n");
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    d.program_ends(Some("no"));
    let (_, name) = one(d.ended());
    d.release(attempt, &name);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    assert_eq!(d.seen(&name).0, NodeAdmin::Resume);
    d.pass(31);
    assert_eq!(d.programs.len(), 1);
}

#[test]
fn a_reboot_waits_for_the_jobs_and_ends_with_a_new_incarnation() {
    let mut d = cluster("health.reboot_program = \"/r\"\nhealth.resume_timeout_s = 100\n");
    let job = d.submit(batch());
    let (_, name) = one(d.launched());
    let reboot = Request::Reboot { nodes: name.clone(), asap: true, next: None, reason: None };
    assert_eq!(d.ask(5, 0, reboot.clone()), [Answer::Done]);
    assert_eq!(d.ask(5, 1000, reboot.clone()).len(), 1, "users may not");
    assert_eq!(d.reboots(), 0);
    d.finish(job, 0);
    assert_eq!(d.reboots(), 1);
    // A daemon that restarts before its machine does is told again.
    d.register(&name, &[]);
    assert_eq!(d.reboots(), 1);
    d.reboot(&name);
    assert_eq!((d.reboots(), d.seen(&name).0), (0, NodeAdmin::Resume));
    assert!(d.c.state().nodes.iter().all(|node| node.reboot.is_none()));
    // A node that does not come back is down.
    d.ask(5, 0, reboot);
    d.pass(101);
    assert_eq!(d.seen(&name), (NodeAdmin::Down, "reboot timed out".to_owned()));
}

#[test]
fn return_to_service_is_slurms() {
    for (value, reboots, down) in [(1, NodeAdmin::Drain, NodeAdmin::Down), (2, NodeAdmin::Resume, NodeAdmin::Resume)] {
        let mut d = cluster(&format!("health.return_to_service = {value}\n"));
        d.reboot("n1");
        assert_eq!(d.seen("n1").0, reboots);
        let set = Request::UpdateNodes {
            nodes: "n2".into(),
            admin: Some(NodeAdmin::Down),
            reason: Some("x".into()),
            change: None,
        };
        d.ask(5, 0, set);
        d.register("n2", &[]);
        assert_eq!(d.seen("n2").0, down);
    }
}

#[test]
fn launches_that_fail_in_a_row_drain_the_node() {
    let mut d = cluster("health.launch_failures = 2\n");
    let set =
        |admin| Request::UpdateNodes { nodes: "n2".into(), admin: Some(admin), reason: Some("x".into()), change: None };
    d.ask(5, 0, set(NodeAdmin::Drain));
    for _ in 0..2 {
        let job = d.submit(JobSpec { requeue: Some(false), ..batch() });
        let key = StepKey { job, attempt: d.attempt(job).attempt, step: StepNo::BATCH };
        let failed = Report::LaunchFailed { key, error: "spool: read-only".into(), node_fault: true };
        d.report("n1", &[failed, Report::JobGone { job: d.attempt(job) }]);
        d.pass(11);
    }
    assert_eq!(d.seen("n1"), (NodeAdmin::Drain, "Launch failed 2 times: spool: read-only".to_owned()));
}
