//! What failures of nodes cost running jobs: each cause has its time, and a job that loses no node pays nothing.

use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::options::Chosen;
use squall_model::job::{ExitCode, JobSpec, JobState, Need};
use squall_model::places::OnNodeFail;
use squall_model::report::{Report, StepEnd};
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobUpdate, Request};

use crate::control::tests::driver::{ADA, Driver, batch, these};

fn job(nodes: u32, action: OnNodeFail) -> JobSpec {
    let options = Chosen { on_node_fail: Some(action), ..Chosen::default() };
    JobSpec { need: Need { nodes_min: Some(nodes), ..Need::default() }, options: options.into(), ..batch() }
}

fn set_down(d: &mut Driver, node: u32) {
    let nodes = NodeSet::one(NodeId(node));
    d.commit(Event::NodesSet { nodes, admin: NodeAdmin::Down, reason: None, by: 0 });
}

fn starts_step(d: &mut Driver, job: JobId, tasks: u32) {
    let spec = Box::new(StepSpec { ntasks: Some(tasks), nodes_min: Some(tasks), ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let answers = d.ask(7, ADA, Request::CreateStep { job, spec, program, key });
    assert!(matches!(answers.last(), Some(Answer::StepCreated { .. })), "{answers:?}");
}

fn says(d: &mut Driver, job: JobId, progress: &str) {
    let change = Box::new(JobUpdate { progress: Some(progress.into()), ..JobUpdate::default() });
    let answers = d.ask(8, ADA, Request::UpdateJob { jobs: these(job), change });
    assert!(matches!(&answers[..], [Answer::Affected { refused, .. }] if refused.is_empty()), "{answers:?}");
}

/// Nodes lost, and seconds of work, detect, replace and launch.
fn lost(d: &Driver) -> (u64, [u64; 4]) {
    (d.c.diag.nodes_lost, d.c.diag.lost.causes().map(|(_, span)| span.secs()))
}

#[test]
fn each_cause_has_its_time_until_the_step_starts_again() {
    let mut d = Driver::new(3, 1);
    let id = d.submit(job(2, OnNodeFail::Replace));
    let other = d.submit(batch());
    starts_step(&mut d, id, 2);
    d.pass(30);
    says(&mut d, id, "step 1200");
    d.pass(20);
    d.lose("n2");
    d.pass(40);
    set_down(&mut d, 1);
    d.pass(7);
    d.finish(other, 0);
    d.pass(3);
    assert_eq!(lost(&d), (1, [0; 4]), "the time is counted when the step starts again");
    let (job, step) = (d.attempt(id), StepNo(0));
    let (key, end) = (StepKey { job: id, attempt: job.attempt, step }, d.end(0));
    d.report("n1", &[Report::StepEnded { key, end }]);
    starts_step(&mut d, id, 2);
    assert_eq!(lost(&d), (1, [20, 40, 7, 3]));
    // Nothing was kept since.
    d.pass(50);
    set_down(&mut d, 2);
    assert_eq!(d.state_of(id), Some(JobState::Running));
    d.finish(id, 0);
    assert_eq!(lost(&d), (2, [70, 40, 7, 3]));
}

#[test]
fn a_job_that_is_requeued_loses_its_run_since_its_last_progress() {
    for (progress, work) in [(false, 100), (true, 60)] {
        let mut d = Driver::new(2, 1);
        let id = d.submit(job(2, OnNodeFail::Requeue));
        d.pass(40);
        starts_step(&mut d, id, 2);
        if progress {
            says(&mut d, id, "half");
        }
        d.pass(60);
        set_down(&mut d, 1);
        assert_eq!(lost(&d), (1, [work, 0, 0, 0]));
    }
}

#[test]
fn the_silence_before_a_restart_is_no_work() {
    let mut d = Driver::new(1, 1);
    d.submit(batch());
    d.pass(30);
    d.lose("n1");
    d.pass(15);
    d.reboot("n1");
    assert_eq!(lost(&d), (1, [30, 15, 0, 0]));
}

#[test]
fn a_step_that_dies_with_its_step_daemon_is_lost_and_one_that_runs_on_is_not() {
    let mut d = Driver::new(3, 1);
    let id = d.submit(job(2, OnNodeFail::Replace));
    d.pass(10);
    starts_step(&mut d, id, 2);
    d.pass(25);
    let key = StepKey { job: id, attempt: d.attempt(id).attempt, step: StepNo(0) };
    let exit = ExitCode { code: 0, signal: 9 };
    let end = StepEnd { exit, lost: true, note: Some("the step daemon died".to_owned()), ..d.end(0) };
    d.report("n2", &[Report::StepEnded { key, end }]);
    d.finish(id, 0);
    assert_eq!(lost(&d), (1, [25, 0, 0, 0]));
    // No step is on the node that fails.
    let mut d = Driver::new(3, 1);
    d.submit(job(2, OnNodeFail::Shrink));
    d.pass(10);
    set_down(&mut d, 1);
    assert_eq!(lost(&d), (0, [0; 4]));
}

#[test]
fn controllers_of_an_older_version_get_no_such_event() {
    let mut d = Driver::speaking(ClusterVersion(2), Config::default());
    d.add_node("n1", 1);
    d.submit(batch());
    d.pass(10);
    set_down(&mut d, 0);
    assert_eq!(lost(&d), (0, [0; 4]));
}
