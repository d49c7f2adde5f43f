//! Ports that steps reserve: never one twice on a node, none lost over a restart, waiting for those of other jobs.

use squall_model::config::{Config, Ports};
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::report::Report;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Refusal, Request};

use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, batch};

/// Makes a cluster of one node of 8 CPUs with four ports for steps.
fn cluster(mpi_ports: Option<Ports>) -> Driver {
    let mut d = Driver::empty(Config { mpi_ports, ..Config::default() });
    d.restart();
    d.add_node("n1", 8);
    d
}

fn ask(d: &mut Driver, caller: u64, job: JobId, resv_ports: Option<u32>) -> Vec<Answer> {
    let spec = Box::new(StepSpec { ntasks: Some(1), overlap: true, resv_ports, ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    d.ask(caller, ADA, Request::CreateStep { job, spec, program, key })
}

/// Returns the ports of the step that an answer is about.
fn ports(answers: &[Answer]) -> Option<String> {
    answers.iter().find_map(|answer| match answer {
        Answer::StepCreated { layout, .. } => Some(layout.ports.as_ref().map(ToString::to_string).unwrap_or_default()),
        _ => None,
    })
}

fn end(d: &mut Driver, job: JobId, step: u32) {
    let attempt = d.attempt(job);
    let key = StepKey { job, attempt: attempt.attempt, step: StepNo(step) };
    let end = d.end(0);
    d.report("n1", &[Report::StepEnded { key, end }]);
}

#[test]
fn two_steps_on_a_node_have_no_port_in_common_and_a_restart_keeps_them() {
    let mut d = cluster(Some(Ports { first: 12000, last: 12003 }));
    let jobs = [d.submit(batch()), d.submit(batch())];
    assert_eq!(ports(&ask(&mut d, 11, jobs[0], None)).as_deref(), Some("12000-12001"), "a task and one more");
    d.restart();
    let known = jobs.map(|job| d.attempt(job));
    let step = StepKey { job: jobs[0], attempt: known[0].attempt, step: StepNo(0) };
    let scripts = known.map(|job| StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH });
    d.register_with("n1", &known, &[step, scripts[0], scripts[1]]);
    assert_eq!(ports(&ask(&mut d, 12, jobs[1], Some(2))).as_deref(), Some("12002-12003"));
    assert_eq!(ask(&mut d, 13, jobs[1], Some(1)), [], "it waits");
    assert_eq!(ports(&ask(&mut d, 14, jobs[1], Some(0))).as_deref(), Some(""), "it asks for none");
    end(&mut d, jobs[0], 0);
    assert_eq!(ports(&d.take_answers(CallerId(13))).as_deref(), Some("12000"), "of another job's step");
    end(&mut d, jobs[1], 0);
    assert_eq!(ports(&ask(&mut d, 15, jobs[0], Some(3))).as_deref(), Some("12001-12003"));
}

#[test]
fn ports_that_do_not_exist_are_refused() {
    let problem = |answers: Vec<Answer>| match &answers[..] {
        [Answer::Refused(Refusal::InvalidValue { option, problem, .. })] if option == "resv-ports" => problem.clone(),
        other => panic!("{other:?}"),
    };
    let mut d = cluster(Some(Ports { first: 12000, last: 12003 }));
    let job = d.submit(batch());
    assert_eq!(problem(ask(&mut d, 11, job, Some(5))), "the cluster has 4 ports for steps (mpi_ports)");
    let mut d = cluster(None);
    let job = d.submit(batch());
    assert!(problem(ask(&mut d, 11, job, Some(1))).contains("mpi_ports"));
    assert_eq!(ports(&ask(&mut d, 12, job, None)).as_deref(), Some(""));
    assert_eq!(ports(&ask(&mut d, 13, job, Some(0))).as_deref(), Some(""));
}
