//! Tests that the JSON of the commands has the fields and types of its version of the data parser.

use serde_json::{Value, json};
use squall_model::wire::client::Answer;
use squall_model::wire::info::{LicenseInfo, ReservationInfo};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::fake::{NOW, fake, run, run_with};
use crate::command::sacct::sacct;
use crate::command::sacctmgr::sacctmgr;
use crate::command::scontrol::scontrol;
use crate::command::sdiag::sdiag;
use crate::command::sinfo::sinfo;
use crate::command::squeue::squeue;
use crate::command::sshare::sshare;
use squall_text::shapes::table::{Shape, differences};
use squall_text::shapes::{AnswerKind, Version, license, reservation};

type Main = fn(&mut Call<'_>, &[String]) -> Result<(), Fail>;

fn answer(name: &'static str, main: Main, args: &[&str], version: Version) -> Value {
    let json = format!("--json={}", version.name());
    let args: Vec<&str> = args.iter().copied().chain([json.as_str()]).collect();
    let mut fake = fake();
    if args.contains(&"ping") {
        fake.answers.push(Answer::Pong {
            host: "vm".into(),
            version: "0.1.0".into(),
            nodes_up: 4,
            nodes_expected: 4,
            trouble: None,
            started: squall_model::time::Time::from_secs(NOW),
            next_job: squall_model::id::JobId(34),
            cluster_version: squall_model::version::ClusterVersion(2),
            speaks: squall_model::version::ClusterVersion(2),
            records: None,
        });
    }
    let seen = run_with(&mut fake, name, main, &args, &[]);
    assert_eq!(seen.code, 0, "{name} {args:?}: {}", seen.err);
    serde_json::from_str(&seen.out).unwrap_or_else(|error| panic!("{name} {args:?}: {error}: {}", seen.out))
}

// faults.md E: JSON that names a version of the data parser has the fields and types of that version.
#[test]
fn e_json_has_the_fields_of_its_version_with_their_types() {
    let commands: [(&str, Main, &[&str], AnswerKind); 18] = [
        ("squeue", squeue, &["-t", "all"], AnswerKind::Jobs),
        ("squeue", squeue, &["--only-job-state"], AnswerKind::Jobs),
        ("scontrol", scontrol, &["show", "job"], AnswerKind::Jobs),
        ("scontrol", scontrol, &["show", "node"], AnswerKind::Nodes),
        ("scontrol", scontrol, &["show", "partition"], AnswerKind::Partitions),
        ("scontrol", scontrol, &["show", "step"], AnswerKind::Steps),
        ("scontrol", scontrol, &["ping"], AnswerKind::Ping),
        ("sinfo", sinfo, &[], AnswerKind::Groups),
        ("sacct", sacct, &["-S", "1970-01-01-00:00:01"], AnswerKind::Accounting),
        ("sshare", sshare, &["-a"], AnswerKind::Shares),
        ("sdiag", sdiag, &[], AnswerKind::Diag),
        ("sacctmgr", sacctmgr, &["show", "account", "withassoc"], AnswerKind::Accounts),
        ("sacctmgr", sacctmgr, &["show", "user", "withassoc"], AnswerKind::Users),
        ("sacctmgr", sacctmgr, &["show", "assoc"], AnswerKind::Associations),
        ("sacctmgr", sacctmgr, &["show", "qos"], AnswerKind::Qos),
        ("sacctmgr", sacctmgr, &["show", "cluster"], AnswerKind::Clusters),
        ("sacctmgr", sacctmgr, &["show", "tres"], AnswerKind::Tres),
        ("sacctmgr", sacctmgr, &["show", "wckey"], AnswerKind::Wckeys),
    ];
    for version in Version::ALL {
        for (name, main, args, kind) in commands {
            let found = differences(version, kind, &answer(name, main, args, version));
            assert!(found.is_empty(), "{version:?} {name} {args:?}: {found:#?}");
        }
    }
}

#[test]
fn e_json_of_licenses_and_reservations_has_the_fields_of_v0_0_41() {
    let version = Version::V41;
    let filled = |kind: AnswerKind, key: &str, value: Value| Shape::of(version, kind).fill(&json!({key: [value]}));
    let licenses = filled(AnswerKind::Licenses, "licenses", license::license(&LicenseInfo::default()));
    assert_eq!(differences(version, AnswerKind::Licenses, &licenses), Vec::<String>::new());
    let one = reservation::reservation(&ReservationInfo::default());
    let reservations = filled(AnswerKind::Reservations, "reservations", one);
    assert_eq!(differences(version, AnswerKind::Reservations, &reservations), Vec::<String>::new());
}

#[test]
fn e_json_of_a_running_job_says_what_it_holds() {
    let mut fake = fake();
    let run = fake.page.jobs.iter_mut().find(|job| job.id.0 == 10).and_then(|job| job.run.as_mut()).unwrap();
    run.gres = vec![("n[1-2]".into(), "gpu:a100:1(IDX:0)".into())];
    run.per_node = vec![("n[1-2]".into(), "0-1,3".into(), 1024)];
    let seen = run_with(&mut fake, "squeue", squeue, &["-j", "10", "--json"], &[]);
    let jobs: Value = serde_json::from_str(&seen.out).unwrap();
    let job = &jobs["jobs"][0];
    assert_eq!(job["gres_detail"], json!(["gpu:a100:1(IDX:0)", "gpu:a100:1(IDX:0)"]));
    let nodes = &job["job_resources"]["nodes"];
    assert_eq!((&nodes["count"], &nodes["list"], &nodes["whole"]), (&json!(2), &json!("n[1-2]"), &json!(false)));
    let second = &nodes["allocation"][1];
    assert_eq!((&second["index"], &second["name"]), (&json!(1), &json!("n2")));
    assert_eq!((&second["cpus"]["count"], &second["memory"]["allocated"]), (&json!(3), &json!(1024)));
    let cores: Vec<&Value> = second["sockets"][0]["cores"].as_array().unwrap().iter().map(|c| &c["index"]).collect();
    assert_eq!(cores, [0, 1, 3]);
    let pending = answer("squeue", squeue, &["-j", "30"], Version::V41);
    assert_eq!(pending["jobs"][0]["job_resources"], Value::Null);
}

#[test]
fn e_json_names_its_parser_and_refuses_others() {
    let seen = |value: &str| run("squeue", squeue, &[value]);
    for value in ["--json", "--json=v0.0.41", "--json=data_parser/v0.0.41", "--json=v0.0.41+fast"] {
        let text = seen(value).out;
        let meta = &serde_json::from_str::<Value>(&text).unwrap()["meta"];
        assert_eq!(meta["plugin"]["data_parser"], "data_parser/v0.0.41", "{value}");
        assert_eq!(meta["slurm"]["version"], json!({"major": "24", "micro": "8", "minor": "05"}));
        assert_eq!((&meta["client"]["user"], &meta["command"]), (&json!("ann"), &json!(["squeue"])));
    }
    assert!(seen("--yaml=v0.0.41").out.starts_with("---\n"));
    let list = seen("--json=list");
    let all = Version::ALL.map(|version| format!("data_parser/{}\n", version.name())).concat();
    assert_eq!((list.code, &list.out), (0, &all));
    let newer: Value = serde_json::from_str(&seen("--json=v0.0.43").out).unwrap();
    assert_eq!(newer["meta"]["plugin"]["data_parser"], "data_parser/v0.0.43");
    assert!(newer["jobs"][0]["priority_by_partition"].is_array() && newer["jobs"][0]["exclusive"].is_null());
    for (value, has) in [("--json=v0.0.44", [true, true]), ("--json=v0.0.45", [true, false])] {
        let job = &serde_json::from_str::<Value>(&seen(value).out).unwrap()["jobs"][0];
        assert_eq!([job["step_id"].is_object(), job["power"].is_object()], has, "{value}");
    }
    assert!(seen("--yaml=v0.0.45").out.contains("data_parser/v0.0.45"));
    assert_eq!(list.err, "Possible data_parser plugins:\n");
    for value in ["--json=v0.0.38", "--yaml=v0.0.39", "--json=nosuch"] {
        let refused = seen(value);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{value}");
        let parser = value.split_once('=').unwrap().1;
        let first = format!("squeue: error: load_plugins: unable to find plugin: data_parser/{parser}\n");
        assert!(refused.err.starts_with(&first) && refused.err.contains(&Version::names()), "{}", refused.err);
    }
}
