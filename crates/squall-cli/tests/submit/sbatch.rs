//! What sbatch asks, and what users see of the answers.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use squall_model::id::{ClientKey, JobId};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::resource::Memory;
use squall_model::wire::client::{Answer, Refusal, Request};

use super::played::{Cluster, Deed, say, texts};

fn accepting() -> Cluster {
    Cluster::play(|_, _| vec![say(Answer::Submitted { job: JobId(7), note: None })])
}

/// The only submission that was heard: spec, script, environment.
fn submitted(cluster: &Cluster) -> (JobSpec, String, Vec<String>) {
    let heard = cluster.heard.lock().unwrap();
    let [Request::Submit { spec, script, env, .. }] = heard.as_slice() else { panic!("{heard:?}") };
    let env = String::from_utf8_lossy(env).trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    ((**spec).clone(), String::from_utf8_lossy(script).into_owned(), env)
}

#[test]
fn a_script_with_directives_variables_and_options() {
    let cluster = accepting();
    let script =
        "#!/bin/bash\n#SBATCH --job-name=\"my job\" --mem=1G # big\n#SBATCH -n 2 -t 5\necho hi\n#SBATCH -n 9\n";
    fs::write(cluster.dir().join("job.sh"), script).unwrap();
    let output = cluster
        .command("sbatch")
        .args(["-t", "10", "--open-mode=append", "job.sh", "one", "--two"])
        .envs([("SBATCH_PARTITION", "long"), ("SBATCH_TIMELIMIT", "7"), ("SLURM_JOB_ID", "3"), ("SLURM_NTASKS", "8")])
        .output()
        .unwrap();
    assert_eq!(texts(&output), (0, "Submitted batch job 7\n".into(), String::new()));
    let (spec, content, env) = submitted(&cluster);
    assert_eq!(content, script);
    assert_eq!(spec.name, "my job");
    assert_eq!(spec.need.ntasks, Some(2));
    assert_eq!(spec.need.memory, Memory::PerNodeMb(1024));
    assert_eq!(spec.partition.as_deref(), Some("long"));
    assert_eq!(spec.time_limit_s, Some(600));
    assert_eq!(spec.append, Some(true));
    assert_eq!(spec.args, ["one", "--two"]);
    assert_eq!(spec.command, cluster.dir().join("job.sh").to_string_lossy());
    assert_eq!(spec.work_dir, cluster.dir().to_string_lossy());
    assert_eq!(spec.submit_line, "sbatch -t 10 --open-mode=append job.sh one --two");
    assert_eq!(spec.rlimits.len(), 10);
    assert!(env.iter().any(|entry| entry == "PATH=/usr/bin:/bin"), "{env:?}");
    assert!(!env.iter().any(|entry| entry.starts_with("SLURM_")), "{env:?}");
}

#[test]
fn scripts_from_standard_input_and_wrapped_commands() {
    let cluster = accepting();
    let mut child = cluster.command("sbatch").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"#!/bin/sh\ntrue\n").unwrap();
    assert_eq!(texts(&child.wait_with_output().unwrap()).1, "Submitted batch job 7\n");
    assert_eq!((submitted(&cluster).0.name, submitted(&cluster).1), ("sbatch".into(), "#!/bin/sh\ntrue\n".into()));

    let cluster = accepting();
    assert_eq!(cluster.run("sbatch", &["--parsable", "--wrap", "hostname; date"]).1, "7\n");
    let (spec, script, _) = submitted(&cluster);
    assert_eq!((spec.name.as_str(), spec.command.as_str()), ("wrap", ""));
    assert_eq!(script, "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nhostname; date\n");
}

#[test]
fn what_is_printed_follows_the_options() {
    let cluster = accepting();
    let out = |args: &[&str]| cluster.run("sbatch", args);
    assert_eq!(out(&["--wrap=x", "--quiet"]), (0, String::new(), String::new()));
    assert_eq!(out(&["--wrap=x", "-M", "played"]).1, "Submitted batch job 7 on cluster played\n");
    assert_eq!(out(&["--wrap=x", "-M", "played", "--parsable"]).1, "7;played\n");
    let (code, _, error) = out(&["--wrap=x", "-M", "other"]);
    assert_eq!(code, 1);
    assert!(error.starts_with("sbatch: error: 'other' can't be reached now"), "{error}");
}

#[test]
fn refusals_in_slurms_words() {
    let cluster = Cluster::play(|_, _| vec![say(Answer::Refused(Refusal::InvalidPartition("X".into())))]);
    assert_eq!(
        cluster.run("sbatch", &["-p", "X", "--wrap=x"]),
        (
            1,
            String::new(),
            "sbatch: error: invalid partition specified: X\n\
             sbatch: error: Batch job submission failed: Invalid partition name specified\n"
                .into()
        )
    );
}

#[test]
fn files_that_are_no_scripts() {
    let cluster = accepting();
    assert_eq!(
        cluster.run("sbatch", &["/nonexistent"]),
        (1, String::new(), "sbatch: error: Unable to open file /nonexistent\n".into())
    );
    fs::write(cluster.dir().join("bad.sh"), "#!/bin/sh\n#SBATCH -n 2\n#SBATCH --time=abc\n").unwrap();
    let (code, _, error) = cluster.run("sbatch", &["bad.sh"]);
    assert_eq!(code, 255);
    assert!(error.starts_with("sbatch: error: Invalid --time specification\n"), "{error}");
    assert!(error.contains("bad.sh: line 3: #SBATCH --time=abc"), "{error}");
    fs::write(cluster.dir().join("odd.sh"), "#!/bin/sh\n#SBATCH -n 2 word\n").unwrap();
    let (code, _, error) = cluster.run("sbatch", &["odd.sh"]);
    assert_eq!(code, 255);
    assert!(error.starts_with("sbatch: error: Invalid directive found in batch script: word\n"), "{error}");
    fs::write(cluster.dir().join("new.sh"), "#!/bin/sh\n#SBATCH --foo\n").unwrap();
    let (code, _, error) = cluster.run("sbatch", &["new.sh"]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!((code, lines[0]), (255, "sbatch: unrecognized option '--foo'"));
    assert!(lines[1].ends_with("new.sh: line 2: #SBATCH --foo"), "{error}");
    assert_eq!(lines[2], "Try \"sbatch --help\" for more information");
    assert!(cluster.heard.lock().unwrap().is_empty());
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let cluster = Cluster::play(|at, _| match at {
        0 => vec![Deed::Leave],
        1 => vec![say(Answer::Refused(Refusal::ShuttingDown))],
        _ => vec![say(Answer::Submitted { job: JobId(9), note: None })],
    });
    assert_eq!(cluster.run("sbatch", &["--wrap=x"]), (0, "Submitted batch job 9\n".into(), String::new()));
    let keys: Vec<ClientKey> = cluster
        .heard
        .lock()
        .unwrap()
        .iter()
        .map(|request| match request {
            Request::Submit { key, .. } => *key,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn waiting_ends_with_the_jobs_exit_code() {
    let ended = |exit, state| {
        let cluster = Cluster::play(move |at, _| match at {
            0 => vec![say(Answer::Submitted { job: JobId(7), note: None })],
            1 => vec![Deed::Leave],
            _ => vec![say(Answer::JobDone { job: JobId(7), outcome: Outcome { state, exit, reason: None } })],
        });
        let (code, out, _) = cluster.run("sbatch", &["--wait", "--wrap=x"]);
        assert_eq!(out, "Submitted batch job 7\n");
        code
    };
    assert_eq!(ended(ExitCode { code: 3, signal: 0 }, EndState::Failed), 3);
    assert_eq!(ended(ExitCode::OK, EndState::Completed), 0);
    assert_eq!(ended(ExitCode { code: 0, signal: 9 }, EndState::Failed), 1);
    assert_eq!(ended(ExitCode::OK, EndState::Cancelled { by: 0 }), 1);
}

#[test]
fn without_a_cluster_it_says_so() {
    let cluster = accepting();
    let gone = cluster.dir().join("nothing");
    let output =
        cluster.command("sbatch").arg("--wrap=x").env("SQUALL_STATE", &gone).env("HOME", &gone).output().unwrap();
    let (code, _, error) = texts(&output);
    assert_eq!(code, 1);
    let last = error.lines().last();
    assert_eq!(
        last,
        Some("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)")
    );
}
