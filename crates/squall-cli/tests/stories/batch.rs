//! Stories of batch jobs: scripts, environments, arrays, dependencies, bad input.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("task_counts_as_slurm_sets_them", counts),
    ("first_job", first_job),
    ("my_old_script", my_old_script),
    ("script_on_standard_input_with_arguments", script_on_standard_input),
    ("outer_variables_do_not_leak_into_an_inner_sbatch", no_leak),
    ("big_scripts_that_start_at_once_all_arrive", big_scripts),
    ("precedence_command_line_environment_script", precedence),
    ("array_runs_every_index_once", array),
    ("a_million_tasks_are_one_record", million),
    ("pipeline_of_dependencies", pipeline),
    ("missing_output_folders_are_made", output_folder),
    ("an_output_file_that_cannot_be_opened_is_0_53", output_denied),
    ("bad_input_gets_slurms_error", bad_input),
    ("a_job_that_cannot_run_waits_with_its_reason", too_large),
    ("wait_gives_the_jobs_exit_code", wait),
    ("a_report_is_the_last_line_of_the_output", report),
];

fn first_job(c: &Cluster) {
    let done = c.run(&["sbatch", "--wrap", "echo hello from $SLURM_JOB_ID"]);
    assert!(done.out.starts_with("Submitted batch job "), "{done:?}");
    let id = done.out.trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read(&format!("slurm-{id}.out")), format!("hello from {id}\n"));
}

fn my_old_script(c: &Cluster) {
    c.write(
        "old.sh",
        "#!/bin/bash\n#SBATCH --job-name=old\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=2\n#SBATCH -t 0-01:00\n\
         #SBATCH --mem=100M\n#SBATCH --output=%x-%j.out   # a comment\n#SBATCH --mail-type=END\n##SBATCH --nodes=99\n\
         echo hi\n#SBATCH --nodes=77\nenv | grep ^SLURM_ | sort\npwd\nhostname\n",
    );
    let id = c.sbatch(&["old.sh"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    let out = c.read(&format!("old-{id}.out"));
    for line in [
        format!("SLURM_JOB_ID={id}"),
        format!("SLURM_JOBID={id}"),
        "SLURM_JOB_NAME=old".into(),
        "SLURM_JOB_NUM_NODES=2".into(),
        "SLURM_NNODES=2".into(),
        "SLURM_NTASKS=4".into(),
        "SLURM_NTASKS_PER_NODE=2".into(),
        "SLURM_TASKS_PER_NODE=2(x2)".into(),
        "SLURM_JOB_CPUS_PER_NODE=2(x2)".into(),
        "SLURM_MEM_PER_NODE=100".into(),
        "SLURM_JOB_PARTITION=debug".into(),
        "SLURM_PROCID=0".into(),
        format!("SLURM_SUBMIT_DIR={}", c.path("work")),
    ] {
        assert!(out.lines().any(|l| l == line), "no line {line:?} in\n{out}");
    }
    assert!(out.lines().any(|l| l.starts_with("SLURM_JOB_NODELIST=n[")), "{out}");
    assert!(!out.contains("SLURM_CPUS_PER_TASK"), "set although -c was not given");
}

fn counts(c: &Cluster) {
    let tell =
        "echo ${SLURM_NTASKS-none} $SLURM_TASKS_PER_NODE ${SLURM_NTASKS_PER_NODE-none} ${SLURM_CPUS_PER_TASK-none}";
    for (options, expected) in [
        (&["-N2"][..], "none 1(x2) none none"),
        (&["-N2", "--exclusive"], "none 4(x2) none none"),
        (&["-N1", "--exclusive", "-c3"], "none 1 none 3"),
        (&["-N2", "-n5"], "5 4,1 none none"),
        (&["-N2", "--ntasks-per-node=2"], "4 2(x2) 2 none"),
    ] {
        assert_eq!(c.ok(&[&["salloc", "-Q"], options, &["sh", "-c", tell]].concat()), expected, "{options:?}");
    }
    let inner = format!("srun -N1 -n2 -c1 sh -c '{tell}' | sort -u; srun -E -N1 -n1 sh -c '{tell}'");
    let out = c.ok(&["salloc", "-Q", "-N2", "-n4", "-c2", "sh", "-c", &inner]);
    assert_eq!(out, "2 2 none 1\n4 2(x2) none 2");
}

fn script_on_standard_input(c: &Cluster) {
    let done = c.run_with(&["sbatch", "--parsable", "-o", "stdin.out"], &[], "#!/bin/sh\necho from stdin\n");
    assert_eq!(c.end_of(done.out.trim()), "COMPLETED|0:0");
    assert_eq!(c.read("stdin.out"), "from stdin\n");
    c.write("args.sh", "#!/bin/bash -e\necho \"$# $2\"\n");
    let id = c.sbatch(&["-o", "args.out", "args.sh", "one", "two three"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read("args.out"), "2 two three\n");
}

fn no_leak(c: &Cluster) {
    c.write("inner.sh", "#!/bin/sh\nenv | grep ^SLURM_ | sort\n");
    c.write("outer.sh", "#!/bin/sh\n#SBATCH -n 3 -c 1 --mem=50\nsbatch --wait -o inner.out inner.sh\n");
    let id = c.sbatch(&["-o", "outer.out", "outer.sh"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    let out = c.read("inner.out");
    assert!(
        !out.contains(&format!("={id}\n")) && !out.contains("SLURM_NTASKS=3") && !out.contains("SLURM_MEM"),
        "{out}"
    );
}

fn big_scripts(c: &Cluster) {
    let blocker = c.sbatch(&["-w", "n1", "--exclusive", "--wrap", "sleep 60"]);
    c.until_state(&blocker, "RUNNING");
    let filler = "# filler\n".repeat(430_000);
    let jobs: Vec<String> = (1..=4)
        .map(|number| {
            c.write("big.sh", &format!("#!/bin/sh\necho {number}\nexit 0\n{filler}"));
            c.sbatch(&["-w", "n1", "--no-requeue", "-o", &format!("big-{number}.out"), "big.sh"])
        })
        .collect();
    // The node becomes free: all four start in the same moment.
    c.ok(&["scancel", &blocker]);
    for (number, job) in (1..).zip(&jobs) {
        assert_eq!(c.end_of(job), "COMPLETED|0:0");
        assert_eq!(c.read(&format!("big-{number}.out")), format!("{number}\n"));
    }
}

fn precedence(c: &Cluster) {
    c.write("names.sh", "#!/bin/sh\n#SBATCH -J script\n#SBATCH -o names-%x.out\necho $SLURM_JOB_NAME\n");
    let name = |env: &[(&str, &str)], args: &[&str]| {
        let done = c.run_with(&[&["sbatch", "--parsable"], args, &["names.sh"]].concat(), env, "");
        c.end_of(done.out.trim());
        c.ok(&["sacct", "-n", "-X", "-P", "-o", "JobName", "-j", done.out.trim()])
    };
    assert_eq!(name(&[], &[]), "script");
    assert_eq!(name(&[("SBATCH_JOB_NAME", "environment")], &[]), "environment");
    assert_eq!(name(&[("SBATCH_JOB_NAME", "environment")], &["-J", "line"]), "line");
}

fn array(c: &Cluster) {
    let id = c.sbatch(&[
        "--array=1-7:2%2",
        "-o",
        "array-%A_%a.out",
        "--wrap",
        "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT",
    ]);
    assert_eq!(c.end_of(&id), ["COMPLETED|0:0"; 4].join("\n"));
    for index in [1, 3, 5, 7] {
        assert_eq!(c.read(&format!("array-{id}_{index}.out")), format!("{index} of 4\n"));
    }
    let said = c.ok(&["sacct", "-n", "-X", "-P", "-o", "JobID", "-j", &format!("{id}_5")]);
    assert_eq!(said, format!("{id}_5"));
}

fn million(c: &Cluster) {
    let start = std::time::Instant::now();
    let id = c.sbatch(&["--hold", "--array=0-999999%50", "-o", "/dev/null", "--wrap", "true"]);
    let took = start.elapsed();
    assert!(took.as_millis() < 1000, "{took:?}");
    let queue = c.ok(&["squeue", "-h", "-o", "%i %t %r", "-j", &id]);
    assert_eq!(queue, format!("{id}_[0-999999%50] PD JobHeldUser"));
    c.ok(&["scancel", &format!("{id}_[5-999999]")]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%i", "-j", &id]), format!("{id}_[0-4%50]"));
    c.ok(&["scancel", &id]);
    c.until("the array has left the queue", || c.ok(&["squeue", "-h"]).is_empty());
}

fn pipeline(c: &Cluster) {
    let first = c.sbatch(&["-o", "/dev/null", "--hold", "--wrap", "exit 3"]);
    let second = c.sbatch(&["-o", "b.out", "-d", &format!("afterok:{first}"), "--wrap", "echo b"]);
    let doomed =
        c.sbatch(&["-o", "d.out", "-d", &format!("afterok:{first}"), "--kill-on-invalid-dep=yes", "--wrap", "echo d"]);
    let after = c.sbatch(&["-o", "e.out", "-d", &format!("afterany:{first}"), "--wrap", "echo e"]);
    let last = c.sbatch(&["-o", "f.out", "-d", &format!("afternotok:{first},afterany:{after}"), "--wrap", "echo f"]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%r", "-j", &second]), "Dependency");
    c.ok(&["scontrol", "release", &first]);
    assert_eq!(c.end_of(&first), "FAILED|3:0");
    assert_eq!(c.end_of(&after), "COMPLETED|0:0");
    assert_eq!(c.end_of(&last), "COMPLETED|0:0");
    assert!(c.end_of(&doomed).starts_with("CANCELLED"), "{}", c.end_of(&doomed));
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%r", "-j", &second]), "DependencyNeverSatisfied");
    c.ok(&["scancel", &second]);
    assert!(c.end_of(&second).starts_with("CANCELLED by "), "{}", c.end_of(&second));
    // One that never started began when it ended, and accounting says that there was no start.
    let held = c.ok(&["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true"]);
    c.ok(&["scancel", &held]);
    assert!(c.end_of(&held).starts_with("CANCELLED by "), "{}", c.end_of(&held));
    let shown = c.ok(&["scontrol", "show", "job", &held]);
    let value = |key: &str| shown.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap_or_default();
    assert!(value("StartTime=").len() > 8 && value("StartTime=") == value("EndTime="), "{shown}");
    assert_eq!(c.ok(&["sacct", "-X", "-n", "-P", "-j", &held, "-o", "start"]), "None");
}

fn output_folder(c: &Cluster) {
    let id = c.sbatch(&["-o", "log/%j/out", "--wrap", "echo there"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read(&format!("log/{id}/out")), "there\n");
}

fn output_denied(c: &Cluster) {
    c.write("a-file", "");
    let id = c.sbatch(&["-o", "a-file/out", "--wrap", "echo never"]);
    assert_eq!(c.end_of(&id), "FAILED|0:53");
}

fn bad_input(c: &Cluster) {
    c.write("no-shebang.sh", "echo hi\n");
    for (args, status, text) in [
        (&["sbatch", "-p", "nowhere", "--wrap", "true"][..], 1, "sbatch: error: invalid partition specified: nowhere"),
        (
            &["sbatch", "-p", "nowhere", "--wrap", "true"],
            1,
            "Batch job submission failed: Invalid partition name specified",
        ),
        (&["sbatch", "--mem=1T", "--wrap", "true"], 1, "sbatch: error: Memory specification can not be satisfied"),
        (&["sbatch", "-t", "abc", "--wrap", "true"], 255, "sbatch: error: Invalid --time specification"),
        (&["sbatch", "--no-such-option", "--wrap", "true"], 255, "Try \"sbatch --help\" for more information"),
        (&["sbatch", "/nonexistent"], 1, "sbatch: error: Unable to open file /nonexistent"),
        (&["sbatch", "no-shebang.sh"], 1, "sbatch: error: This does not look like a batch script.  The first"),
        (&["scontrol", "show", "job", "99999999"], 1, "slurm_load_jobs error: Invalid job id specified"),
        (&["squeue", "-j", "99999999"], 1, "slurm_load_jobs error: Invalid job id specified"),
    ] {
        let done = c.run(args);
        assert_eq!(done.status, status, "{args:?}: {done:?}");
        assert!(done.err.contains(text), "{args:?}: {done:?}");
    }
    assert_eq!(c.run(&["scancel", "99999999"]).status, 0);
}

fn too_large(c: &Cluster) {
    let id = c.sbatch(&["-n", "1000", "--wrap", "true"]);
    c.until("it has a reason", || c.ok(&["squeue", "-h", "-o", "%r", "-j", &id]) != "None");
    let reason = c.ok(&["squeue", "-h", "-o", "%T %r", "-j", &id]);
    assert!(reason.starts_with("PENDING "), "{reason}");
    // It must not stand in the way of others.
    let other = c.sbatch(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(c.end_of(&other), "COMPLETED|0:0");
    c.ok(&["scancel", &id]);
}

fn wait(c: &Cluster) {
    let done = c.run(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "exit 3"]);
    assert_eq!(done.status, 3, "{done:?}");
    let done = c.run(&["sbatch", "--test-only", "--wrap", "true"]);
    assert!(done.err.starts_with("sbatch: Job ") && done.err.contains(" to start at "), "{done:?}");
}

fn report(c: &Cluster) {
    c.write(
        "told.sh",
        "#!/bin/sh\n#SBATCH --report -o told.out -e told.err -t 5 --mem=50M\necho out; (sleep 1; echo late) & exit 3\n",
    );
    let id = c.sbatch(&["told.sh"]);
    assert_eq!(c.end_of(&id), "FAILED|3:0");
    let told = c.read("told.out");
    let begin = format!("out\nsquall: job {id}: FAILED. It ended with exit code 3. Time 00:00:0");
    assert!(told.starts_with(&begin), "{told}");
    assert!(told.contains(" of 00:05:00. Its script used 00:00:0") && told.ends_with(" %) memory.\n"), "{told}");
    assert_eq!(c.read("told.err"), "");
    // A terminal or pipe as standard output takes a step daemon of its own; the report is for files.
    let id = c.sbatch(&["--report", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    let last = |name: &str| c.read(name).lines().last().map(str::to_owned).unwrap_or_default();
    let id = c.sbatch(&["--report", "--array=4", "-o", "array.out", "--wrap", "echo one; exec sleep 1000"]);
    let task = format!("{id}_4");
    c.until_state(&task, "RUNNING");
    let begun = || std::fs::read_to_string(c.path("work/array.out")).is_ok_and(|text| text.contains("one"));
    c.until("the task has begun", begun);
    c.ok(&["scancel", &task]);
    c.until("the task has ended", || last("array.out").starts_with("squall:"));
    let told = last("array.out");
    assert!(told.starts_with(&format!("squall: job {task}: CANCELLED. It was cancelled. Time 00:00:")), "{told}");
    let done = c.run_with(
        &["sbatch", "--wait", "--report=0", "-o", "no.out", "--wrap", "echo no"],
        &[("SBATCH_REPORT", "1")],
        "",
    );
    assert_eq!((done.status, c.read("no.out").as_str()), (0, "no\n"), "{done:?}");
    let done = c.run_with(&["sbatch", "--wait", "-o", "yes.out", "--wrap", "echo yes"], &[("SBATCH_REPORT", "1")], "");
    assert_eq!(done.status, 0, "{done:?}");
    assert!(last("yes.out").contains(": COMPLETED. It ended by itself, with exit code 0. Time "), "{done:?}");
}
