//! Keys by which a site says what jobs inherit, when they end and who may submit them.

use squall_model::config::Config;
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::step::{Program, StepDefaults, StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch};
use crate::control::tests::hooks::cluster;

/// Numbers of the limits core (4) and memlock (8).
const LIMITS: [(u32, u64); 2] = [(4, 0), (8, 65_536)];

fn submitted(d: &mut Driver, uid: u32, spec: JobSpec) -> Vec<Answer> {
    let (key, contents) = (d.key(), Vec::new());
    d.ask(
        7,
        uid,
        Request::Submit { spec: spec.into(), script: b"#!/bin/sh\n".to_vec().into(), env: contents.into(), key },
    )
}

#[test]
fn jobs_and_steps_inherit_only_the_limits_that_the_site_names_unless_the_user_does() {
    let mut d = cluster("PropagateResourceLimitsExcept = \"MEMLOCK\"\nJobFileAppend = \"YES\"\n");
    let mut spec = JobSpec { rlimits: LIMITS.to_vec(), ..batch() };
    let id = d.submit(spec.clone());
    let job = &d.c.state().jobs[&id].spec;
    assert_eq!((&job.rlimits[..], job.append), (&LIMITS[..1], Some(true)));
    let program = TaskProgram { rlimits: LIMITS.to_vec(), ..TaskProgram::default() };
    let request = Request::CreateStep { job: id, spec: Box::default(), program: Box::new(program), key: d.key() };
    d.ask(8, ADA, request);
    let limits = d.sent.iter().rev().find_map(|(_, message)| {
        let Down::StartStep(start) = message else { return None };
        let Program::Tasks(program) = &start.program else { return None };
        Some(program.rlimits.clone())
    });
    assert_eq!(limits.as_deref(), Some(&LIMITS[..1]));
    spec.options.names_limits = Some(true);
    spec.append = Some(false);
    let named = d.submit(spec);
    let named = &d.c.state().jobs[&named].spec;
    assert_eq!((&named.rlimits[..], named.append), (&LIMITS[..], Some(false)));
}

#[test]
fn a_job_may_run_beyond_its_time_limit_as_long_as_partition_or_cluster_say() {
    for (text, ends_after) in [
        ("", Some(60)),
        ("OverTimeLimit = 1\n", Some(120)),
        ("OverTimeLimit = 1\n[[partitions]]\nname = \"p\"\nOverTimeLimit = 0\n", Some(60)),
        ("[[partitions]]\nname = \"p\"\nOverTimeLimit = \"UNLIMITED\"\n", None),
    ] {
        let mut d = cluster(text);
        let id = d.submit(JobSpec { time_limit_s: Some(60), ..batch() });
        d.pass(ends_after.unwrap_or(1_000_000) - 1);
        assert_eq!(d.state_of(id), Some(JobState::Running), "{text}");
        d.pass(2);
        let state = d.state_of(id);
        let expected = ends_after.map_or(JobState::Running, |_| JobState::Completing(EndState::Timeout));
        assert_eq!(state, Some(expected), "{text}");
    }
}

#[test]
fn a_site_keeps_root_or_others_out_and_asks_for_reservations() {
    let p = "[[partitions]]\nname = \"p\"\n";
    let denied = |answers: &[Answer]| matches!(answers, [Answer::Refused(Refusal::AccessDenied)]);
    let mut d = cluster("DisableRootJobs = \"YES\"\n");
    assert!(denied(&submitted(&mut d, 0, batch())) && !denied(&submitted(&mut d, ADA, batch())));
    let mut d = cluster(&format!("DisableRootJobs = \"YES\"\n{p}DisableRootJobs = \"NO\"\n"));
    assert!(!denied(&submitted(&mut d, 0, batch())));
    let mut d = cluster(&format!("{p}RootOnly = \"YES\"\n"));
    assert!(denied(&submitted(&mut d, ADA, batch())) && !denied(&submitted(&mut d, 0, batch())));
    let mut d = cluster(&format!("{p}ReqResv = \"YES\"\n"));
    let answers = submitted(&mut d, ADA, batch());
    let [Answer::Refused(Refusal::InvalidValue { problem, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert!(problem.contains("--reservation"), "{problem}");
}

#[test]
fn exit_codes_of_the_site_requeue_a_job_that_may_be() {
    let text = "RequeueExit = \"10-20\"\nRequeueExitHold = \"99\"\n";
    for (code, requeue, after) in [
        (11, None, JobState::Running),
        (99, None, JobState::Pending),
        (1, None, JobState::Ended(EndState::Failed)),
        (11, Some(false), JobState::Ended(EndState::Failed)),
        (0, None, JobState::Ended(EndState::Completed)),
    ] {
        let mut d = cluster(text);
        let id = d.submit(JobSpec { requeue, ..batch() });
        d.finish(id, code);
        assert_eq!(d.state_of(id), Some(after), "{code} {requeue:?}");
        let job = &d.c.state().jobs[&id];
        let attempts = if matches!(after, JobState::Ended(_)) { 1 } else { 2 };
        assert!(job.attempt.0 <= attempts, "{code}");
    }
}

#[test]
fn srun_is_told_what_the_site_wants_of_steps() {
    let mut d = cluster("KillOnBadExit = \"YES\"\nWaitTime = 30\n");
    let id = d.submit(batch());
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let answers = d.ask(8, ADA, Request::CreateStep { job: id, spec: Box::<StepSpec>::default(), program, key });
    let [Answer::StepCreated { usual, .. }] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*usual, Some(StepDefaults { kill_on_bad_exit: true, wait_s: 30 }));
}

#[test]
fn a_partition_takes_jobs_from_its_hosts_and_gives_others_its_alternate() {
    let two = "[[partitions]]\nname = \"a\"\nAlternate = \"b\"\nState = \"DRAIN\"\n[[partitions]]\nname = \"b\"\n";
    let mut d = cluster(two);
    let id = d.submit(batch());
    assert_eq!(d.c.state().jobs[&id].spec.partition.as_deref(), Some("b"));
    let both = d.submit(JobSpec { partition: Some("a,b".into()), ..batch() });
    assert_eq!(d.c.state().jobs[&both].spec.partition.as_deref(), Some("b"));
    let mut d = cluster(&two.replace("name = \"b\"", "name = \"b\"\nAlternate = \"a\"\nState = \"INACTIVE\""));
    let answers = submitted(&mut d, ADA, batch());
    assert!(matches!(&answers[..], [Answer::Refused(Refusal::PartitionNotAvailable(_))]), "{answers:?}");
    let mut d = cluster("[[partitions]]\nname = \"p\"\nAllocNodes = \"login[1-2]\"\n");
    let from = |host: &str| JobSpec { submit_host: host.into(), ..batch() };
    let answers = submitted(&mut d, ADA, from("n1"));
    let [Answer::Refused(Refusal::InvalidValue { problem, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert!(problem.contains("login[1-2]"), "{problem}");
    let answers = submitted(&mut d, ADA, from("login2"));
    assert!(matches!(&answers[..], [Answer::Submitted { .. }]), "{answers:?}");
}

#[test]
fn jobs_of_hidden_partitions_are_left_out_unless_they_are_asked_for() {
    let mut d = cluster("[[partitions]]\nname = \"a\"\n[[partitions]]\nname = \"b\"\nHidden = \"YES\"\n");
    let seen = d.submit(batch());
    let hidden = d.submit(JobSpec { partition: Some("b".into()), ..batch() });
    let both = d.submit(JobSpec { partition: Some("a,b".into()), hold: true, ..batch() });
    let mut listed = |no_hidden: bool| {
        let jobs = JobSelection { no_hidden, ..JobSelection::default() };
        let answers = d.ask(9, ADA, Request::Jobs { jobs, ended: true, steps: false });
        let [Answer::Jobs(page)] = &answers[..] else { panic!("{answers:?}") };
        page.jobs.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!((listed(false), listed(true)), (vec![seen, hidden, both], vec![seen, both]));
}

#[test]
fn a_job_with_gpus_gets_the_cpus_of_its_partition_for_each() {
    let text = "DefCPUPerGPU = 2\n[[nodes]]\nname = \"n1\"\ngres = \"gpu:2\"\n[[partitions]]\nname = \"a\"\n\
                [[partitions]]\nname = \"b\"\nDefCPUPerGPU = 3\n";
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    d.add_node("n1", 8);
    let gpu = |partition: &str| {
        let need = Need { gres: Some("gpu:1".into()), ..Need::default() };
        JobSpec { partition: Some(partition.into()), need, ..batch() }
    };
    let cpus = |d: &mut Driver, spec: JobSpec| {
        let id = d.submit(JobSpec { hold: true, ..spec });
        d.c.state().jobs[&id].spec.options.get().and_then(|options| options.gpus.cpus)
    };
    assert_eq!((cpus(&mut d, gpu("a")), cpus(&mut d, gpu("b"))), (Some(2), Some(3)));
    assert_eq!(cpus(&mut d, batch()), None, "it asks for no GPU");
    let mut said = gpu("a");
    said.need.cpus_per_task = Some(1);
    assert_eq!(cpus(&mut d, said), None);
}

#[test]
fn a_step_has_no_more_tasks_on_a_node_than_the_site_allows() {
    let mut d = Driver::empty(Config { max_tasks_per_node: 2, ..Config::default() });
    d.add_node("n1", 8);
    let many = JobSpec { need: Need { ntasks_per_node: Some(3), ..Need::default() }, ..batch() };
    let answers = submitted(&mut d, ADA, many);
    let [Answer::Refused(Refusal::InvalidValue { option, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(option, "ntasks-per-node");
    let id = d.submit(JobSpec { need: Need { cpus_min: Some(8), ..Need::default() }, ..batch() });
    let mut step = |tasks: u32| {
        let spec = StepSpec { ntasks: Some(tasks), overcommit: true, ..StepSpec::default() };
        let (program, key) = (Box::new(TaskProgram::default()), d.key());
        d.ask(8, ADA, Request::CreateStep { job: id, spec: Box::new(spec), program, key })
    };
    assert!(matches!(&step(2)[..], [Answer::StepCreated { .. }]));
    let refused = step(3);
    assert!(matches!(&refused[..], [Answer::Refused(_)]), "{refused:?}");
}
