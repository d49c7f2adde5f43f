//! Tests of job descriptions.

use serde_json::{Value, json};
use squall_model::job::JobKind;
use squall_model::resource::Memory;
use squall_model::time::Time;

use super::{COUNTS, Caller, FIELDS, OF_GPUS, Parsed, Submission, Take, allocate, submit};
use crate::options::Tool;
use crate::options::table::options_of;
use crate::rest::body::{bodies, shape};
use crate::shapes::Problem;
use crate::shapes::table::Shape;

const ANN: Caller<'_> = Caller { user: "ann", uid: 1000, gid: 100, home: "/home/ann", cluster: "c", host: "10.0.0.9" };

fn job(job: Value) -> Result<Parsed<Submission>, Problem> {
    let mut job = job;
    if job["environment"].is_null() {
        job["environment"] = json!(["A=1"]);
    }
    submit(&json!({"script": "#!/bin/sh\ntrue\n", "job": job}), &ANN)
}

fn problem(given: Value) -> (String, u32) {
    let problem = job(given).unwrap_err();
    (problem.source, problem.number)
}

#[test]
fn each_field_of_a_job_description_is_known() {
    let Shape::Object(fields) = shape("job_desc_msg") else { panic!() };
    let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    for (name, _) in fields {
        assert!(known.contains(&name.as_str()), "{name} is accepted and ignored");
    }
    for (name, take) in FIELDS {
        assert!(fields.iter().any(|(field, _)| field == name), "{name} is no field");
        let (Take::Option(long) | Take::Flag(long)) = take else { continue };
        assert!(options_of(Tool::Sbatch).any(|option| option.long == *long), "{name}: no option {long}");
    }
    for (name, long) in COUNTS.iter().chain(OF_GPUS) {
        assert!(options_of(Tool::Sbatch).any(|option| option.long == *long), "{name}: no option {long}");
    }
    assert!(bodies().iter().any(|(name, _)| name == "update_node_msg"));
}

#[test]
fn both_places_of_a_script_are_taken() {
    let outside = job(json!({"name": "a"})).unwrap();
    let inside = json!({"job": {"name": "a", "script": "#!/bin/sh\ntrue\n", "environment": {"A": "1"}}});
    assert_eq!(submit(&inside, &ANN).unwrap(), outside);
    let Submission { specs, script, env } = outside.value;
    assert_eq!((script.as_slice(), env.as_slice()), (&b"#!/bin/sh\ntrue\n"[..], &b"A=1\0"[..]));
    let spec = &specs[0];
    assert_eq!((spec.name.as_str(), spec.work_dir.as_str(), spec.kind), ("a", "/home/ann", JobKind::Batch));
    let none = submit(&json!({"job": {"name": "a"}}), &ANN).unwrap_err();
    assert_eq!((none.number, none.error.as_str()), (2009, "Job script not specified"));
    assert_eq!(submit(&json!({"script": "#!/bin/sh"}), &ANN).unwrap_err().number, 9002);
}

#[test]
fn fields_become_options() {
    let given = json!({
        "time_limit": {"set": true, "infinite": false, "number": 60}, "memory_per_node": "2048", "tasks": 4,
        "nodes": "2", "required_nodes": ["n1", "n2"], "tres_per_node": "gres/gpu:2", "hold": true,
        "begin_time": 1_800_000_000, "deadline": "2033-05-18T03:33:20", "argv": ["s", "a b"], "mail_type": ["TIME=90%", "END"], "kill_warning_signal": "USR1",
        "kill_warning_delay": 120, "kill_warning_flags": ["BATCH_JOB"], "required_switches": 1,
        "wait_for_switch": 90, "array": "1-10%2", "current_working_directory": "/scratch",
        "shared": ["user"], "requeue": false, "tasks_per_board": 0, "reboot": false, "cpus_per_task": 65_534,
        "user_id": "1000", "rlimits": {"core": 0, "stack": {"infinite": true}},
    });
    let Parsed { value, warnings } = job(given).unwrap();
    let spec = &value.specs[0];
    assert_eq!((spec.time_limit_s, spec.need.memory), (Some(3600), Memory::PerNodeMb(2048)));
    assert_eq!(
        (spec.need.ntasks, spec.need.nodes_min, spec.need.nodelist.as_deref()),
        (Some(4), Some(2), Some("n1,n2"))
    );
    assert_eq!((spec.need.gres.as_deref(), spec.hold, spec.requeue), (Some("gpu:2"), true, Some(false)));
    let signal = spec.signal.unwrap();
    assert_eq!((signal.signal, signal.before_s, signal.batch_only), (10, 120, true));
    assert_eq!(spec.options.network.switches.as_ref().unwrap().text, "1@1:30");
    assert_eq!((spec.options.exclusive_user, spec.work_dir.as_str()), (true, "/scratch"));
    assert_eq!((spec.mail_type.as_deref(), spec.need.cpus_per_task), (Some("TIME_LIMIT_90,END"), None));
    assert_eq!((spec.args.as_slice(), spec.begin.map(Time::secs)), (&["a b".to_owned()][..], Some(1_800_000_000)));
    assert!(spec.deadline.is_some_and(|at| at.secs().abs_diff(2_000_000_000) < 86_400));
    assert_eq!(spec.rlimits, [(3, u64::MAX), (4, 0)]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn what_is_wrong_or_not_done_is_named() {
    assert_eq!(problem(json!({"array": "x"})), ("job.array".into(), 2081));
    assert_eq!(problem(json!({"tasks": "many"})), ("job.tasks".into(), 9001));
    assert_eq!(problem(json!({"container_id": "c"})), ("job.container_id".into(), 2036));
    assert_eq!(problem(json!({"crontab": {"minute": "1"}})), ("job.crontab".into(), 2036));
    assert_eq!(problem(json!({"user_id": "0"})), ("job.user_id".into(), 2002));
    assert_eq!(problem(json!({"current_working_directory": "x"})), ("job.current_working_directory".into(), 9001));
    let unknown = job(json!({"nosuch": 1, "environment": ["A=1", "/bin"], "spank_environment": ["A=1", "SPANK_B=2"]}));
    let unknown = unknown.unwrap();
    let sources: Vec<&str> = unknown.warnings.iter().map(|warning| warning.source.as_str()).collect();
    assert_eq!(sources, ["job.nosuch", "job.environment"]);
    assert_eq!(problem(json!({"spank_environment": ["A B=1"]})), ("job.spank_environment".into(), 9001));
}

#[test]
fn several_components_and_allocations() {
    let components = json!([{"tasks": 2, "environment": ["A=1"]}, {"tasks": 3}]);
    let het = submit(&json!({"script": "#!/bin/sh", "jobs": components}), &ANN).unwrap();
    let tasks: Vec<_> = het.value.specs.iter().map(|spec| spec.need.ntasks).collect();
    assert_eq!(tasks, [Some(2), Some(3)]);
    let one = allocate(&json!({"job": {"tasks": 2}}), &ANN).unwrap();
    let spec = &one.value.specs[0];
    assert!(spec.kind == JobKind::Allocation && spec.options.no_shell && spec.get_user_env);
    assert!(allocate(&json!({"job": {"script": "#!/bin/sh"}}), &ANN).is_err());
}

/// Bodies as airflow-provider-slurm 0.1.0 and pyslurmutils 1.7.0 send them.
#[test]
fn jobs_of_known_clients_are_taken_without_warnings() {
    let airflow = json!({"script": "#!/bin/bash\ntrue\n", "job": {
        "name": "airflow-d-t", "partition": "compute", "tasks": 1, "cpus_per_task": 1, "memory_per_node": "4G",
        "time_limit": 3600, "current_working_directory": "/tmp/airflow", "environment": {"PATH": "/bin", "N": "1"},
        "standard_output": "/tmp/log", "standard_error": "/tmp/log",
    }});
    let number = |number: u32| json!({"number": number, "set": true, "infinite": false});
    let pyslurmutils = json!({"job": {
        "name": "worker", "script": "#!/bin/bash\ntrue\n", "standard_input": "/dev/null", "environment": ["A=1"],
        "standard_output": "/o", "standard_error": "/e", "current_working_directory": "/tmp", "comment": "{}",
        "time_limit": number(60), "time_minimum": number(10), "memory_per_cpu": number(512),
    }});
    for body in [airflow, pyslurmutils] {
        let taken = submit(&body, &ANN).unwrap();
        assert!(taken.warnings.is_empty() && taken.value.specs[0].time_limit_s.is_some(), "{:?}", taken.warnings);
    }
}
