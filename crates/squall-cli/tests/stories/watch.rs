//! Stories of those who look at running steps from outside, and speak to them.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("sattach_hears_what_was_said_and_speaks_to_the_tasks", attach),
    ("scontrol_lists_the_processes_of_jobs_and_tells_users", processes),
    ("tail_follows_a_job_s_output_until_the_job_ends", tail),
];

fn attach(c: &Cluster) {
    let script = "srun -N2 -n3 -o step.out sh -c 'echo waits $SLURM_PROCID; read word; echo got $word; \
                  [ $SLURM_PROCID != 2 ] || exit 5'";
    let later = "{ while [ ! -e second ]; do sleep 0.02; done; echo second; }";
    let job = c.sbatch(&["-N2", "-n3", "-o", "/dev/null", "--wrap", &format!("{later} | {script}")]);
    let step = format!("{job}.0");
    c.until("its tasks wait", || {
        std::fs::read_to_string(c.path("work/step.out")).is_ok_and(|t| t.lines().count() == 3)
    });
    let layout = c.ok(&["sattach", "--layout", &step]);
    let lines: Vec<&str> = layout.lines().collect();
    assert!(lines[1].starts_with("\t3 tasks, 2 nodes (n["), "{layout}");
    assert!(lines[3].starts_with("\tNode 0 (n") && lines[3].ends_with("), 2 task(s): 0 1 "), "{layout}");
    let done = c.run(&["sattach", &format!("{job}.7")]);
    assert_eq!((done.status, done.out.as_str()), (1, ""), "{done:?}");
    assert!(done.err.starts_with("sattach: error: Could not get job step info: "), "{done:?}");
    // It hears what was said before it came; what it says goes to whom it wants; that it has no more to say ends nothing.
    let heard = |text: &str| std::fs::read_to_string(c.path("work/step.out")).is_ok_and(|said| said.contains(text));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            c.until("the first word was heard", || heard("got first"));
            c.write("second", "");
        });
        c.run_with(&["sattach", "-l", "--input-filter=2", "--output-filter=2", &step], &[], "first\n")
    });
    assert_eq!(done.out, "2: waits 2\n2: got first\n", "{done:?}");
    assert!(done.err.contains(": task 2: Exited with exit code 5\n"), "{done:?}");
    assert_eq!(done.status, 5, "{done:?}");
    assert_eq!(c.end_of(&job), "FAILED|5:0");
    let mut lines: Vec<String> = c.read("step.out").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["got first", "got second", "got second", "waits 0", "waits 1", "waits 2"]);
}

fn processes(c: &Cluster) {
    let job = c.sbatch(&["-n2", "-o", "told.out", "--wrap", "srun sh -c 'sleep 600; true'; true"]);
    c.until("both tasks run", || c.run(&["scontrol", "listpids", &format!("{job}.0")]).out.lines().count() == 5);
    let listed = c.ok(&["scontrol", "listpids", &format!("{job}.0")]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["PID", "JOBID", "STEPID", "LOCALID", "GLOBALID"]);
    assert_eq!(lines[1][1..], [job.as_str(), "0", "0", "0"]);
    assert_eq!(lines[2][1..], [job.as_str(), "0", "1", "1"]);
    assert!(lines[3..].iter().all(|line| line[1..] == [job.as_str(), "0", "-", "-"]), "{listed}");
    assert!(c.ok(&["scontrol", "listpids", &job]).contains(" batch    0       0"), "the script is listed, too");
    let info = c.ok(&["scontrol", "pidinfo", lines[1][0]]);
    assert!(info.starts_with(&format!("Slurm JobId={job} ends at 20")), "{info}");
    assert!(info.ends_with(" seconds") && info.contains("\nJob remaining time is "), "{info}");
    let done = c.run(&["scontrol", "pidinfo", "1"]);
    assert_eq!((done.status, done.err.as_str()), (1, "Failed to locate job for requested pid\n"));
    let done = c.run(&["scontrol", "listpids", "4000000.0"]);
    assert_eq!((done.status, done.err.as_str()), (1, "StepId=4000000.0 does not exist on node (null).\n"));
    c.ok(&["scontrol", "notify", &job, "hello", "you"]);
    c.until("its script's standard error says so", || c.read("told.out").contains("slurmstepd: error: hello you\n"));
    c.ok(&["scancel", &job]);
    c.end_of(&job);
    let tell = "scontrol notify $SLURM_JOB_ID look here; srun scontrol notify $SLURM_JOB_ID and here";
    let done = c.run(&["salloc", "-Q", "sh", "-c", tell]);
    assert_eq!((done.status, done.err.as_str()), (0, "salloc: look here\nsalloc: and here\n"), "{done:?}");
    let done = c.run(&["srun", "sh", "-c", "scontrol notify $SLURM_JOB_ID now"]);
    assert_eq!((done.status, done.err.as_str()), (0, "srun: now\n"), "{done:?}");
    let done = c.run(&["scontrol", "notify", &job, "late"]);
    assert!(done.status == 1 && done.err.starts_with("job notify failure: "), "{done:?}");
}

fn tail(c: &Cluster) {
    let script = "echo one; while [ ! -e say-two ]; do sleep 0.02; done; echo two";
    let job = c.sbatch(&["-o", "tail.out", "--wrap", script]);
    let shown = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = || std::fs::read_to_string(c.path("work/tail.out")).is_ok_and(|text| text == "one\n");
            c.until("the first line is there", begun);
            c.write("say-two", "");
        });
        c.ok(&["squall", "tail", &job])
    });
    assert_eq!(shown, "one\ntwo");
    assert_eq!(c.ok(&["squall", "tail", "-n1", &job]), "two");
}
