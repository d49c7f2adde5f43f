//! Jobs that want their nodes rebooted (`--reboot`), and jobs that wait for nodes that are up (`--delay-boot`).

use squall_model::config::Config;
use squall_model::event::NodeAdmin;
use squall_model::id::JobId;
use squall_model::job::options::Chosen;
use squall_model::job::{EndState, JobKind, JobSpec, JobState, Need, PendingReason};
use squall_model::power::PowerWish;
use squall_model::wire::client::{Answer, JobUpdate, Refusal, Request};
use squall_model::wire::node::Down;
use std::sync::Arc;

use crate::control::tests::driver::{ADA, Driver, batch, these};

const REBOOTS: &str = "health.reboot_program = \"/r\"\nhealth.resume_timeout_s = 100\n";
const SLEEPS: &str =
    "[power]\nsuspend_program = \"/off\"\nresume_program = \"/on\"\nsuspend_rate = 0\nresume_rate = 0\n";

fn cluster(nodes: u32, cpus: u32, config: &str) -> Driver {
    let mut d = Driver::empty(Config::from_toml(config).expect("it is right"));
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), cpus));
    d
}

/// A job of so many nodes that wants them rebooted.
fn rebooting(nodes: u32) -> JobSpec {
    let need = Need { nodes_min: Some(nodes), nodes_max: Some(nodes), ntasks: Some(nodes), ..Need::default() };
    JobSpec { need, options: Chosen { reboot: Some(true), ..Chosen::default() }.into(), ..batch() }
}

fn delayed(seconds: u64) -> JobSpec {
    JobSpec { options: Chosen { delay_boot_s: Some(seconds), ..Chosen::default() }.into(), ..batch() }
}

impl Driver {
    fn submit_as_root(&mut self, spec: JobSpec) -> JobId {
        let (key, script) = (self.key(), b"#!/bin/sh\n".to_vec().into());
        let request = Request::Submit { spec: Arc::new(spec), script, env: Vec::new().into(), key };
        let answers = self.ask(1, 0, request);
        let Some(Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
        *job
    }
    /// Nodes that were ordered to reboot since the last look.
    fn ordered(&mut self) -> Vec<String> {
        let ordered = self.sent.iter().filter(|(_, message)| matches!(message, Down::Reboot { .. }));
        let ordered = ordered.map(|(node, _)| node.clone()).collect();
        self.sent.retain(|(_, message)| !matches!(message, Down::Reboot { .. }));
        ordered
    }
    fn looks(&self, id: JobId) -> JobState {
        self.c.state().jobs[&id].shown_state()
    }
    fn set(&self, name: &str) -> (NodeAdmin, String) {
        let state = self.c.state();
        let node = state.node(state.node_id(name).unwrap()).unwrap();
        (node.admin, node.reason.as_ref().map_or_else(String::new, |reason| reason.text.clone()))
    }
    fn sleep(&mut self, nodes: &[&str]) {
        for name in nodes {
            let wish = PowerWish::Down;
            assert_eq!(self.ask(5, 0, Request::Power { nodes: (*name).into(), wish }), [Answer::Done]);
            self.lose(name);
        }
        self.pass(30);
        self.power.clear();
    }
    fn woken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.power).into_iter().map(|program| program.argument).collect()
    }
    fn waits_for(&self, id: JobId) -> PendingReason {
        let item = squall_sched::Item { id, array: false };
        self.c.queue.reason(self.c.state(), self.now, item)
    }
}

#[test]
fn the_nodes_of_a_job_reboot_before_it_starts() {
    let mut d = cluster(3, 2, REBOOTS);
    let job = d.submit_as_root(rebooting(2));
    assert_eq!((d.ordered(), d.looks(job)), (vec!["n1".to_owned(), "n2".into()], JobState::Configuring));
    assert!(d.c.state().jobs[&job].spec.need.exclusive, "a node is rebooted for one job");
    // No other job comes there, and none is disturbed.
    let other = d.submit(batch());
    assert_eq!(d.launched(), [(d.attempt(other), "n3".to_owned())]);
    d.pass(40);
    d.reboot("n2");
    assert!(d.launched().is_empty() && d.looks(job) == JobState::Configuring);
    d.reboot("n1");
    assert_eq!((d.launched(), d.looks(job)), (vec![(d.attempt(job), "n1".to_owned())], JobState::Running));
    let run = d.c.state().jobs[&job].run().unwrap();
    assert_eq!((run.start, d.attempt(job).attempt.0), (d.now, 1), "its time begins now");
    d.finish(job, 0);
    assert!(d.c.state().nodes.iter().all(|node| node.reboot.is_none()));
    assert_eq!(d.set("n1"), (NodeAdmin::Resume, String::new()));
}

#[test]
fn only_operators_have_nodes_rebooted_and_only_by_a_program() {
    let mut d = cluster(1, 1, REBOOTS);
    let key = d.key();
    let refused = d.submit_with(key, rebooting(1));
    let Some(Answer::Refused(Refusal::InvalidValue { option, problem, .. })) = refused.first() else {
        panic!("{refused:?}")
    };
    assert_eq!((option.as_str(), problem.as_str()), ("reboot", "only operators may have nodes rebooted"));
    let held = d.submit(JobSpec { hold: true, ..batch() });
    let change = JobUpdate { reboot: Some(true), ..JobUpdate::default() };
    let update = Request::UpdateJob { jobs: these(held), change: Box::new(change) };
    d.ask(5, ADA, update.clone());
    assert!(!d.c.state().jobs[&held].reboots());
    d.ask(5, 0, update.clone());
    assert!(d.c.state().jobs[&held].reboots());
    d.ask(5, 0, Request::Release { jobs: these(held) });
    assert_eq!((d.ordered(), d.looks(held)), (vec!["n1".to_owned()], JobState::Configuring));

    let mut d = cluster(1, 1, "");
    let request = Request::Submit {
        spec: Arc::new(rebooting(1)),
        script: b"#!/bin/sh\n".to_vec().into(),
        env: Vec::new().into(),
        key: d.key(),
    };
    let refused = d.ask(5, 0, request);
    assert!(format!("{refused:?}").contains("RebootProgram is not configured"), "{refused:?}");
}

#[test]
fn a_node_that_does_not_come_back_is_down_and_the_job_runs_elsewhere() {
    let mut d = cluster(3, 1, REBOOTS);
    let job = d.submit_as_root(rebooting(2));
    assert_eq!(d.ordered(), ["n1", "n2"]);
    d.lose("n1");
    d.lose("n2");
    d.reboot("n1");
    d.pass(100);
    assert_eq!(d.set("n2"), (NodeAdmin::Down, "reboot timed out".to_owned()));
    assert_eq!((d.ordered(), d.looks(job)), (vec!["n3".to_owned(), "n1".into()], JobState::Configuring));
    assert_eq!(d.c.state().jobs[&job].restarts, 0, "it never began");
    assert!(d.ended().is_empty(), "no node was told of it");
    d.reboot("n1");
    d.reboot("n3");
    assert_eq!((d.launched().len(), d.looks(job)), (1, JobState::Running));
    // A job that may not be requeued ends.
    let once = d.submit_as_root(JobSpec { requeue: Some(false), ..rebooting(1) });
    d.finish(job, 0);
    d.report("n3", &[squall_model::report::Report::JobGone { job: d.attempt(job) }]);
    let on = d.ordered();
    assert_eq!(on.len(), 1);
    d.pass(101);
    assert_eq!(d.state_of(once), Some(JobState::Ended(EndState::NodeFail)));
}

#[test]
fn the_silence_of_a_rebooting_node_is_no_loss() {
    let config = "node_timeout_s = 30\nnode_lost_s = 30\nnode_lost_action = \"requeue\"\n";
    let mut d = cluster(1, 1, &format!("{config}{REBOOTS}"));
    let job = d.submit_as_root(rebooting(1));
    d.lose("n1");
    d.pass(90);
    assert_eq!((d.looks(job), d.attempt(job).attempt.0), (JobState::Configuring, 1));
    d.reboot("n1");
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
    assert_eq!(d.attempt(job).attempt.0, 1);
}

#[test]
fn a_crash_of_the_controller_changes_nothing() {
    let mut d = cluster(2, 1, REBOOTS);
    let job = d.submit_as_root(rebooting(2));
    assert_eq!(d.ordered(), ["n1", "n2"]);
    d.reboot("n1");
    d.restart();
    assert_eq!(d.looks(job), JobState::Configuring);
    // n1 has rebooted, n2 has not and is told again.
    d.register("n1", &[]);
    d.register("n2", &[]);
    assert_eq!((d.ordered(), d.launched()), (vec!["n2".to_owned()], Vec::new()));
    d.restart();
    d.register("n1", &[]);
    d.reboot("n2");
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
    assert_eq!((d.looks(job), d.attempt(job).attempt.0), (JobState::Running, 1));
    // A node that does not come back gets its whole time again, and no more.
    d.finish(job, 0);
    d.report("n2", &[squall_model::report::Report::JobGone { job: d.attempt(job) }]);
    let next = d.submit_as_root(rebooting(1));
    d.restart();
    d.register("n2", &[]);
    d.pass(99);
    assert_eq!(d.set("n1").0, NodeAdmin::Resume);
    d.pass(2);
    assert_eq!((d.set("n1").0, d.ordered()), (NodeAdmin::Down, vec!["n2".to_owned()]));
    assert_eq!(d.looks(next), JobState::Configuring);
}

#[test]
fn nodes_that_are_powered_up_are_not_rebooted_once_more() {
    let mut d = cluster(2, 1, &format!("{REBOOTS}{SLEEPS}"));
    d.sleep(&["n1"]);
    let job = d.submit_as_root(rebooting(2));
    assert_eq!((d.ordered(), d.woken()), (vec!["n2".to_owned()], vec!["n1".to_owned()]));
    d.reboot("n1");
    assert!(d.launched().is_empty());
    d.reboot("n2");
    assert_eq!((d.launched().len(), d.looks(job)), (1, JobState::Running));
}

#[test]
fn a_job_that_is_cancelled_leaves_its_nodes_at_once() {
    let mut d = cluster(1, 1, REBOOTS);
    let job = d.submit_as_root(rebooting(1));
    d.ask(5, 0, Request::Cancel { jobs: these(job), signal: None, step: None, verbose: false });
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { by: 0 })));
    // The node is on its way, and takes jobs when it is back.
    let next = d.submit(batch());
    assert!(d.launched().is_empty());
    d.reboot("n1");
    assert_eq!(d.launched(), [(d.attempt(next), "n1".to_owned())]);
    d.finish(next, 0);
    // A reboot that was not ordered yet is not wanted any more.
    d.lose("n1");
    d.register("n1", &[d.attempt(next)]);
    d.ordered();
    let id = d.c.state().node_id("n1").unwrap();
    assert!(d.c.state().node(id).unwrap().reboot.is_none());
}

#[test]
fn an_allocation_is_told_when_its_nodes_are_back() {
    let mut d = cluster(1, 1, REBOOTS);
    let spec = JobSpec { kind: JobKind::Allocation, ..rebooting(1) };
    let request =
        Request::Allocate { spec: Arc::new(spec), env: Vec::new().into(), key: d.key(), immediate_s: None, step: None };
    let granted = |answers: &[Answer]| answers.iter().any(|answer| matches!(answer, Answer::Allocated { .. }));
    let answers = d.ask(1, 0, request);
    assert!(!granted(&answers), "{answers:?}");
    d.reboot("n1");
    let answers = d.take_answers(crate::control::port::CallerId(1));
    assert!(granted(&answers), "{answers:?}");
}

#[test]
fn a_job_waits_for_nodes_that_are_up_and_no_longer_than_it_says() {
    let mut d = cluster(2, 1, SLEEPS);
    d.sleep(&["n1", "n2"]);
    let job = d.submit(delayed(60));
    assert_eq!((d.state_of(job), d.waits_for(job)), (Some(JobState::Pending), PendingReason::Resources));
    d.pass(59);
    assert!(d.woken().is_empty() && d.state_of(job) == Some(JobState::Pending));
    d.pass(1);
    assert_eq!((d.woken(), d.looks(job)), (vec!["n1".to_owned()], JobState::Configuring));
    // A node that comes up meanwhile is taken at once.
    let next = d.submit(delayed(600));
    d.pass(20);
    d.register("n2", &[]);
    assert_eq!(d.launched(), [(d.attempt(next), "n2".to_owned())]);
    assert!(d.woken().is_empty());
}

#[test]
fn jobs_that_wait_their_own_time_start_in_their_own_time() {
    let mut d = cluster(3, 1, SLEEPS);
    d.sleep(&["n1", "n2", "n3"]);
    let late = d.submit(delayed(100));
    d.pass(10);
    // An equal job begins to wait later, as it was held; another does not wait.
    let held = d.submit(JobSpec { hold: true, ..delayed(100) });
    let at_once = d.submit(batch());
    // The first node is kept for the job that waits.
    assert_eq!((d.woken(), d.looks(at_once)), (vec!["n2".to_owned()], JobState::Configuring));
    d.register("n2", &[]);
    d.pass(40);
    d.ask(5, ADA, Request::Release { jobs: these(held) });
    d.pass(50);
    assert_eq!(
        (d.woken(), d.looks(late), d.looks(held)),
        (vec!["n1".to_owned()], JobState::Configuring, JobState::Pending)
    );
    d.register("n1", &[]);
    d.pass(49);
    assert_eq!(d.looks(held), JobState::Pending);
    d.pass(1);
    assert_eq!((d.woken().len(), d.looks(held)), (1, JobState::Configuring));
}

#[test]
fn the_cluster_says_how_long_jobs_wait_that_say_nothing() {
    let words = "SchedulerParameters = \"delay_boot=1\"\n";
    let mut d = cluster(1, 1, &format!("{words}{SLEEPS}"));
    d.sleep(&["n1"]);
    let (job, hasty) = (d.submit(batch()), d.submit(JobSpec { time_limit_s: Some(30), ..delayed(0) }));
    assert_eq!(d.c.state().jobs[&job].spec.options.delay_boot_s, Some(60));
    assert_eq!((d.looks(job), d.looks(hasty)), (JobState::Pending, JobState::Configuring));
    // It can be changed while the job waits.
    d.cancel(hasty);
    let change = JobUpdate { delay_boot_s: Some(20), ..JobUpdate::default() };
    d.ask(5, ADA, Request::UpdateJob { jobs: these(job), change: Box::new(change) });
    d.pass(20);
    assert_eq!(d.looks(job), JobState::Configuring);
    // Without nodes that sleep nothing is noted.
    let mut d = cluster(1, 1, words);
    let job = d.submit(batch());
    assert_eq!((d.c.state().jobs[&job].spec.options.get(), d.looks(job)), (None, JobState::Running));
}

#[test]
fn a_crash_of_the_controller_does_not_lengthen_the_wait() {
    let mut d = cluster(1, 1, SLEEPS);
    d.sleep(&["n1"]);
    let job = d.submit(delayed(60));
    d.pass(40);
    d.restart();
    d.pass(19);
    assert_eq!(d.looks(job), JobState::Pending);
    d.pass(1);
    assert_eq!((d.woken(), d.looks(job)), (vec!["n1".to_owned()], JobState::Configuring));
}
