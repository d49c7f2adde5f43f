//! What salloc asks, runs and says.

use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, JobKind, Outcome};
use squall_model::wire::client::{Answer, Refusal, Request};

use super::played::{Cluster, facts, say};

fn granting() -> Cluster {
    Cluster::play(|_, request| match request {
        Request::Allocate { spec, .. } => vec![
            say(Answer::Submitted { job: JobId(5), note: None, message: None }),
            say(Answer::Allocated(Box::new(facts(5, 2, spec)))),
        ],
        Request::Finish { .. } => vec![say(Answer::Done)],
        other => panic!("{other:?}"),
    })
}

#[test]
fn the_command_runs_here_with_the_jobs_variables() {
    let cluster = granting();
    let script = "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_JOB_NUM_NODES; exit 9";
    assert_eq!(
        cluster.run("salloc", &["-N2", "sh", "-c", script]),
        (9, "5 n[1-2] 2\n".into(), "salloc: Granted job allocation 5\nsalloc: Relinquishing job allocation 5\n".into())
    );
    let heard = cluster.heard.lock().unwrap();
    let [Request::Allocate { spec, .. }, Request::Finish { job: JobId(5), exit }] = heard.as_slice() else {
        panic!("{heard:?}")
    };
    assert_eq!((spec.kind, spec.name.as_str(), spec.need.nodes_min), (JobKind::Allocation, "interactive", Some(2)));
    assert_eq!(*exit, ExitCode { code: 9, signal: 0 });
}

#[test]
fn quiet_and_without_a_shell() {
    let cluster = granting();
    assert_eq!(cluster.run("salloc", &["-Q", "true"]), (0, String::new(), String::new()));
    let cluster = granting();
    assert_eq!(cluster.run("salloc", &["--no-shell"]), (0, String::new(), "salloc: Granted job allocation 5\n".into()));
    assert_eq!(cluster.heard.lock().unwrap().len(), 1);
}

/// faults.md P13: what is wrong is said in Slurm's words, before the allocation is given back.
#[test]
fn p13_a_command_that_does_not_exist() {
    let cluster = granting();
    let folder = cluster.dir().to_string_lossy().into_owned();
    for name in ["no-such-command", "./no-such-command", "/no/such/command", folder.as_str()] {
        let (code, _, error) = cluster.run("salloc", &[name]);
        let said = format!(
            "salloc: Granted job allocation 5\n\
             salloc: error: _fork_command: Unable to find command \"{name}\"\n\
             salloc: Relinquishing job allocation 5\n"
        );
        assert_eq!((code, error), (1, said));
    }
}

/// faults.md F13: the command gets its name as typed, so a launcher that looks at it finds what the user meant.
#[test]
fn f13_a_command_gets_its_name_as_typed() {
    let cluster = granting();
    std::os::unix::fs::symlink("/bin/sh", cluster.dir().join("named")).unwrap();
    for name in ["named", "./named", "sh", "/bin/sh"] {
        assert_eq!(cluster.run("salloc", &["-Q", name, "-c", "echo $0"]), (0, format!("{name}\n"), String::new()));
    }
}

#[test]
fn a_command_in_the_working_directory() {
    let cluster = granting();
    let script = cluster.dir().join("test.sh");
    std::fs::write(&script, "#!/bin/sh\necho here\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(cluster.run("salloc", &["-Q", "test.sh"]), (0, "here\n".into(), String::new()), "PATH, then here");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(cluster.run("salloc", &["-Q", "test.sh"]).0, 1);
}

/// faults.md F16: what `--immediate` says when its time is over.
#[test]
fn f16_the_time_of_immediate_is_over() {
    for (option, why) in [("-I", "Requested nodes are busy"), ("-I3", "Connection timed out")] {
        let cluster = Cluster::play(|_, _| {
            vec![
                say(Answer::Submitted { job: JobId(5), note: None, message: None }),
                say(Answer::Refused(Refusal::Busy)),
            ]
        });
        let said = format!("salloc: error: Unable to allocate resources: {why}\n");
        assert_eq!(cluster.run("salloc", &[option, "true"]), (1, String::new(), said));
    }
}

#[test]
fn a_refused_allocation() {
    let cluster = Cluster::play(|_, _| vec![say(Answer::Refused(Refusal::InvalidPartition("X".into())))]);
    assert_eq!(
        cluster.run("salloc", &["-p", "X", "true"]),
        (
            1,
            String::new(),
            "salloc: error: invalid partition specified: X\n\
             salloc: error: Job submit/allocate failed: Invalid partition name specified\n"
                .into()
        )
    );
}

#[test]
fn an_allocation_that_ends_before_its_command() {
    for (state, text) in [
        (EndState::Cancelled { by: 0 }, "salloc: Job allocation 5 has been revoked.\n"),
        (EndState::Timeout, "salloc: Job 5 has exceeded its time limit and its allocation has been revoked.\n"),
    ] {
        let cluster = Cluster::play(move |_, request| {
            let Request::Allocate { spec, .. } = request else { panic!("{request:?}") };
            vec![
                say(Answer::Submitted { job: JobId(5), note: None, message: None }),
                say(Answer::Allocated(Box::new(facts(5, 1, spec)))),
                say(Answer::JobDone { job: JobId(5), outcome: Outcome { state, exit: ExitCode::OK, reason: None } }),
            ]
        });
        let (code, _, error) = cluster.run("salloc", &["-K", "sleep", "60"]);
        assert_eq!((code, error), (1, format!("salloc: Granted job allocation 5\n{text}")));
    }
}
