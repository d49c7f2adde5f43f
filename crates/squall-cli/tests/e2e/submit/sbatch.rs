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
    Cluster::play(|_, _| vec![say(Answer::Submitted { job: JobId(7), note: None, message: None })])
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
fn silent_mistakes_are_hinted_at_where_that_is_wanted() {
    let cluster = accepting();
    let script = "#!/bin/bash\n#SBTACH -n 2\necho hi\n#SBATCH -n 9\n";
    fs::write(cluster.dir().join("job.sh"), script).unwrap();
    let said = |hints: &str| {
        let mut command = cluster.command("sbatch");
        command.args(["-t", "24:00", "job.sh", "-N", "2"]).env("SQUALL_HINTS", hints);
        texts(&command.output().unwrap())
    };
    let submitted = "Submitted batch job 7\n".to_owned();
    let lines = "\
sbatch: hint: line 2: `#SBTACH` begins a comment: lines with options begin with `#SBATCH`
sbatch: hint: line 4: #SBATCH is ignored here, after the first command in line 3: move it up
sbatch: hint: `-N` goes to the script: write options of sbatch before `job.sh`
sbatch: hint: --time=24:00 means 24 minutes: for 24 hours write --time=24:00:00
";
    assert_eq!(said("1"), (0, submitted.clone(), lines.to_owned()));
    for hints in ["", "0"] {
        assert_eq!(said(hints), (0, submitted.clone(), String::new()));
    }
    let odd = cluster.command("sbatch").args(["\u{2013}-nodes=2", "job.sh"]).env("SQUALL_HINTS", "1").output().unwrap();
    let lines = "\
sbatch: hint: `\u{2013}-nodes=2` begins with a dash of a word processor: write `--nodes=2`
sbatch: error: Unable to open file \u{2013}-nodes=2
";
    assert_eq!(texts(&odd), (1, String::new(), lines.to_owned()));
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
        _ => vec![say(Answer::Submitted { job: JobId(9), note: None, message: None })],
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
            0 => vec![say(Answer::Submitted { job: JobId(7), note: None, message: None })],
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

/// What sbatch asks for with a script, and what it says.
fn asked(script: &str, args: &[&str]) -> (JobSpec, String) {
    let cluster = accepting();
    fs::write(cluster.dir().join("job.sh"), script).unwrap();
    let (code, _, said) = cluster.run("sbatch", &[args, &["job.sh"]].concat());
    assert_eq!(code, 0, "{script}: {said}");
    (submitted(&cluster).0, said)
}

/// faults.md D12.
#[test]
fn d12_pbs_lines_are_options() {
    let script = "#!/bin/bash\n#SBATCH -J other -n1\n#PBS -N mypbs -l nodes=2:ppn=2,walltime=00:10:00,mem=100mb\n\
                  #PBS -q debug -o out -e err -A acct # a comment\n#PBS -j oe -k oe -r y -S /bin/bash -V -z -v A=b,C=d\n\
                  #PBS -v E -m abe -M me@x -p 5 -W umask=027\ndate\n#PBS -h\n#PBS -t 1-3\n";
    let spec = asked(script, &[]).0;
    assert_eq!((spec.name.as_str(), spec.partition.as_deref()), ("mypbs", Some("debug")));
    assert_eq!((spec.need.nodes_min, spec.need.ntasks), (Some(2), Some(4)));
    assert_eq!((spec.need.memory, spec.time_limit_s), (Memory::PerNodeMb(100), Some(600)));
    assert_eq!((spec.stdout.as_deref(), spec.stderr.as_deref()), (Some("out"), Some("err")));
    assert_eq!((spec.account.as_deref(), spec.mail_user.as_deref()), (Some("acct"), Some("me@x")));
    assert_eq!((spec.mail_type.as_deref(), spec.nice, spec.umask), (Some("BEGIN,END,FAIL"), 5, 0o027));
    assert!(spec.hold && spec.array.is_some(), "options after the first command count, too");
    assert_eq!(spec.options.shown.export.as_deref(), Some("A=b,C=d,E"));

    let (spec, said) = asked("#!/bin/sh\n#PBS -l select=2:ncpus=4:mpiprocs=2 -W foo=bar --job_name=x\n", &["-v"]);
    assert_eq!((spec.name.as_str(), spec.need.nodes_min, spec.need.ntasks_per_node), ("x", Some(2), Some(2)));
    assert_eq!(spec.need.cpus_per_task, Some(2));
    assert!(said.starts_with("sbatch: Ignored PBS attributes: foo=bar\n"), "{said}");
    let spec = asked("#!/bin/sh\n#PBS -l nodes=n1+n2:ppn=2,naccelerators=1\n", &["-n3"]).0;
    assert_eq!((spec.need.nodelist.as_deref(), spec.need.ntasks), (Some("n[1-2]"), Some(3)), "the command line wins");

    for (script, args) in
        [("#!/bin/sh\n#SBATCH --ignore-pbs\n#PBS -N a\n", &[][..]), ("#!/bin/sh\n#PBS -N a\n", &["--ignore-pbs"])]
    {
        assert_eq!(asked(script, args).0.name, "job.sh");
    }
    let far = format!("#!/bin/sh\n{}#PBS -N a\n", "true\n".repeat(101));
    assert_eq!(asked(&far, &[]).0.name, "job.sh");
    // faults.md F4: a variable that is 0 resets the flag.
    for (value, name) in [("0", "a"), ("1", "job.sh"), ("", "job.sh")] {
        let cluster = accepting();
        fs::write(cluster.dir().join("job.sh"), "#!/bin/sh\n#PBS -N a\n").unwrap();
        let mut sbatch = cluster.command("sbatch");
        assert!(sbatch.arg("job.sh").env("SBATCH_IGNORE_PBS", value).output().unwrap().status.success());
        assert_eq!(submitted(&cluster).0.name, name, "SBATCH_IGNORE_PBS={value}");
    }
}

/// faults.md D12.
#[test]
fn d12_bsub_lines_are_options_and_go_before_pbs_lines() {
    let script = "#!/bin/sh\n#BSUB -J foo -n 2,4 -W 10 -q debug -M 100 -m \"n1 n2\" -x -o out -cwd /tmp\n#PBS -N bar\n";
    let spec = asked(script, &[]).0;
    assert_eq!((spec.name.as_str(), spec.need.ntasks, spec.time_limit_s), ("foo", Some(4), Some(600)));
    assert_eq!((spec.need.nodelist.as_deref(), spec.work_dir.as_str()), (Some("n1,n2"), "/tmp"));
    assert_eq!((spec.partition.as_deref(), spec.stdout.as_deref()), (Some("debug"), Some("out")));
}

/// faults.md D12.
#[test]
fn d12_lines_of_other_schedulers_are_refused_in_slurms_words() {
    let cluster = accepting();
    let unknown = "Unrecognized command line parameter ?";
    for (line, code, first) in [
        ("#PBS -x", 1, format!("sbatch: invalid option -- 'x'\nsbatch: error: {unknown}\n")),
        ("#PBS --foo", 1, format!("sbatch: unrecognized option '--foo'\nsbatch: error: {unknown}\n")),
        ("#PBS -N", 1, format!("sbatch: option requires an argument -- 'N'\nsbatch: error: {unknown}\n")),
        ("#PBS -N a b -A c", 1, "sbatch: error: Invalid argument: b\n".into()),
        ("#PBS -l walltime=x", 255, "sbatch: error: Invalid --time specification\n".into()),
        ("#PBS -l naccelerators=0", 1, "sbatch: error: Invalid numeric value \"0\" for naccelerators.\n".into()),
        ("#BSUB -n 2,", 1, "sbatch: error: #BSUB -n format not correct given: '2,'\n".into()),
        ("#PBS -N \"a", 1, "sbatch: fatal: job.sh: line 2: Unmatched `\"` in [ \"a]\n".into()),
        ("#SBATCH -N1 : -n1", 1, "sbatch: fatal: job.sh: line 2: Unexpected `:` in [ : -n1]\n".into()),
        (
            "#SLURM -x",
            255,
            "sbatch: error: Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch\n"
                .into(),
        ),
    ] {
        fs::write(cluster.dir().join("job.sh"), format!("#!/bin/sh\n{line}\n")).unwrap();
        let (got, _, error) = cluster.run("sbatch", &["job.sh"]);
        let error = error.replace(&format!("{}/", cluster.dir().display()), "");
        assert!(got == code && error.starts_with(&first), "{line}: {got} {error}");
    }
    assert!(cluster.heard.lock().unwrap().is_empty());
}

/// faults.md D12: the lines are Slurm 22.05.8's.
#[test]
fn d12_verbose_shows_options_as_slurm_does() {
    let shown = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let said = asked("#!/bin/sh\ntrue\n", &[&["-v"][..], &words].concat()).1;
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("  : ")).collect();
        lines.into_iter().find(|line| !line.contains("verbose")).map(|line| line["sbatch: ".len()..].to_owned())
    };
    for (line, right) in [
        ("--begin=2030-01-01T00:00", "begin               : 2030-01-01T00:00:00"),
        ("--delay-boot=5", "delay-boot          : 00:05:00"),
        ("--error=/x", "error               : /x"),
        ("--exclusive", "exclusive           : exclusive"),
        ("--exclusive=user", "exclusive           : user"),
        ("--get-user-env", "get-user-env        : 0"),
        ("--gres=gpu:1", "gres                : gres:gpu:1"),
        ("--hold", "hold                : set"),
        ("--mail-type=ALL", "mail-type           : INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT"),
        ("--mem=1500M", "mem                 : 1500"),
        ("--mem=2048", "mem                 : 2G"),
        ("--mem-per-cpu=100M", "mem-per-cpu         : 100"),
        ("--nice", "nice                : 100"),
        ("--no-requeue", "no-requeue          : no-requeue"),
        ("-N1-3", "nodes               : 1-3"),
        ("--open-mode=append", "open-mode           : a"),
        ("--oversubscribe", "oversubscribe       : oversubscribe"),
        ("--profile=none", "profile             : None"),
        ("--propagate", "propagate           : ALL"),
        ("--signal=USR1@60", "signal              : USR1"),
        ("--signal=B:sigusr1@30", "signal              : B:USR1@30"),
        ("--switches=1@5", "switches            : 1@00:05:00"),
        ("--time=1-0", "time                : 1-00:00:00"),
        ("--time-min=3", "time-min            : 00:03:00"),
        ("--tmp=1G", "tmp                 : 1G"),
    ] {
        assert_eq!(shown(line).as_deref(), Some(right), "{line}");
    }
    let said = asked("#!/bin/sh\n#SBATCH -N 2\n#PBS -N a\n", &["-vvv"]).1;
    let words =
        ["-N", "2", "-N", "a"].map(|word| format!("sbatch: debug2: Found in script, argument \"{word}\"\n")).concat();
    assert!(said.starts_with(&format!("{words}sbatch: defined options\nsbatch: ----")), "{said}");
    assert!(
        said.contains("\nsbatch: debug:  propagating RLIMIT_CORE=") && said.contains(" propagating UMASK=0"),
        "{said}"
    );
}
