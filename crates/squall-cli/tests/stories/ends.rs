//! Stories of how jobs end: limits, signals, memory, cancellation, requeue; nothing is left behind.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("cancel_of_a_tree_that_ignores_term", cancel_stubborn),
    ("a_double_forked_task_is_gone_at_the_end", double_fork),
    ("the_signal_before_the_limit_and_the_limit", time_limit),
    ("out_of_memory_is_said_with_the_peak", out_of_memory),
    ("final_states_of_jobs_and_steps", final_states),
    ("special_exit_and_incomplete_jobs", special_exit),
    ("requeue_from_within_the_job", requeue),
    ("scancel_sends_signals", signals),
    ("hold_and_release", hold),
];

fn cancel_stubborn(c: &Cluster) {
    c.write("stubborn.sh", "#!/bin/bash\ntrap '' TERM\n(trap '' TERM; while :; do sleep 1; done) &\ntouch stubborn.started\nwhile :; do sleep 1; done\n");
    let id = c.sbatch(&["-o", "/dev/null", "stubborn.sh"]);
    c.read("stubborn.started");
    c.ok(&["scancel", &id]);
    assert!(c.end_of(&id).starts_with("CANCELLED by "), "{}", c.end_of(&id));
    nothing_left(c, &id);
}

fn double_fork(c: &Cluster) {
    c.write(
        "daemon.sh",
        "#!/bin/bash\n(trap '' TERM HUP; setsid sleep 1000 >/dev/null 2>&1 & ) &\nsleep 0.2\necho started\n",
    );
    let id = c.sbatch(&["-o", "daemon.out", "daemon.sh"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    nothing_left(c, &id);
}

fn time_limit(c: &Cluster) {
    c.write(
        "limit.sh",
        "#!/bin/bash\n#SBATCH -t 1\n#SBATCH --signal=B:USR1@55\ntrap 'echo got USR1' USR1\ntrap 'echo got TERM' TERM\nfor i in $(seq 200); do sleep 1; done\n",
    );
    let id = c.sbatch(&["-o", "limit.out", "limit.sh"]);
    c.until("the signal has come", || {
        std::fs::read_to_string(c.path("work/limit.out")).is_ok_and(|t| t.contains("got USR1"))
    });
    // The rest of the minute need not be waited for: a shorter limit is one.
    c.ok(&["scontrol", "update", &format!("jobid={id}"), "timelimit=0:06"]);
    assert!(c.end_of(&id).starts_with("TIMEOUT"), "{}", c.end_of(&id));
    nothing_left(c, &id);
}

fn out_of_memory(c: &Cluster) {
    let eat = "x=$(head -c 120000000 /dev/zero | tr '\\0' x); sleep 60; echo not reached ${#x}";
    let id = c.sbatch(&["--mem=40M", "-o", "oom.out", "--wrap", eat]);
    assert_eq!(c.end_of(&id), "OUT_OF_MEMORY|0:125");
    assert!(c.read("oom.out").to_lowercase().contains("oom"), "{}", c.read("oom.out"));
    // The limit is less than the kernel counts for the step daemon itself. With still less, the kernel would take that one in a
    // container, where it can't be spared.
    let said = c.run(&["srun", "-J", "eats", "--mem=10M", "bash", "-c", eat]).err;
    assert!(said.contains("Out Of Memory") && !said.contains("step daemon died"), "{said}");
    // faults F6: job and step alike.
    let states = ["sacct", "-nP", "--name=eats", "-o", "state,exitcode"];
    c.until("the ends are recorded", || !c.ok(&states).contains("RUNNING"));
    assert_eq!(c.ok(&states), "OUT_OF_MEMORY|0:125\nOUT_OF_MEMORY|0:125");
}

/// faults F6: how steps end, and how the job of a step by `srun` does (`engine/control/tests/records.rs` has all ways).
fn final_states(c: &Cluster) {
    for (name, script, status, states) in [
        ("exits", "exit 3", 3, "FAILED|3:0\nFAILED|3:0"),
        ("segfault", "kill -11 $$", 139, "FAILED|0:11\nCANCELLED|0:11"),
        ("good", "exit 0", 0, "COMPLETED|0:0\nCOMPLETED|0:0"),
    ] {
        assert_eq!(c.run(&["srun", "-J", name, "bash", "-c", script]).status, status, "{name}");
        let asked = ["sacct", "-nP", &format!("--name={name}"), "-o", "state,exitcode"];
        c.until("the ends are recorded", || !c.ok(&asked).contains("RUNNING"));
        assert_eq!(c.ok(&asked), states, "{name}");
    }
}

/// faults F7, F12: `scontrol requeuehold State=SpecialExit` and `requeue incomplete`.
fn special_exit(c: &Cluster) {
    let id = c.sbatch(&["-o", "/dev/null", "--wrap", "exit 4"]);
    assert_eq!(c.end_of(&id), "FAILED|4:0");
    // What has ended is not incomplete.
    c.ok(&["scontrol", "requeue", "incomplete", &id]);
    c.ok(&["scontrol", "requeuehold", "State=SpecialExit", &id]);
    let shown = |format: &str| c.ok(&["squeue", "-h", "-j", &id, "-o", format]);
    assert_eq!(shown("%t %T %r"), "SE SPECIAL_EXIT job requeued in held state");
    assert_eq!(c.ok(&["squeue", "-h", "-t", "SE", "-o", "%i"]), id);
    assert!(!c.ok(&["squeue", "-h", "-t", "PD", "-o", "%i"]).lines().any(|line| line == id));
    let job = c.ok(&["scontrol", "show", "job", &id]);
    for part in ["JobState=SPECIAL_EXIT Reason=job_requeued_in_held_state", "Restarts=1"] {
        assert!(job.contains(part), "{part}: {job}");
    }
    let refused = c.run(&["scontrol", "requeuehold", &id]);
    assert_eq!((refused.status, refused.err.as_str()), (1, &*format!("Job is pending execution for job {id}\n")));
    c.ok(&["scontrol", "release", &id]);
    assert_eq!(c.end_of(&id), "FAILED|4:0");
    let runs = c.sbatch(&["-o", "/dev/null", "--wrap", "sleep 600"]);
    c.until("it runs", || c.ok(&["squeue", "-h", "-j", &runs, "-o", "%T"]) == "RUNNING");
    c.ok(&["scontrol", "requeue", "incomplete", &runs]);
    assert!(c.ok(&["scontrol", "show", "job", &runs]).contains("Restarts=1"));
    c.ok(&["scancel", &runs]);
    // faults P11: a job that has ended matches no filter.
    assert!(c.end_of(&runs).starts_with("CANCELLED by "));
    let error = format!("scancel: error: Kill job error on job id {runs}: Invalid job id specified\n");
    c.until("it is over", || {
        let refused = c.run(&["scancel", "-t", "RUNNING", &runs]);
        (refused.status, &refused.err) == (1, &error)
    });
    assert_eq!(c.run(&["scancel", &runs]).status, 0);
}

fn requeue(c: &Cluster) {
    c.write(
        "again.sh",
        "#!/bin/bash\n#SBATCH --requeue\necho \"restart ${SLURM_RESTART_COUNT:-0}\"\nif [ -z \"$SLURM_RESTART_COUNT\" ]; then scontrol requeue $SLURM_JOB_ID && echo answered; sleep 100; fi\n",
    );
    let id = c.sbatch(&["-o", "again.out", "again.sh"]);
    c.until("it has run twice", || {
        std::fs::read_to_string(c.path("work/again.out")).is_ok_and(|t| t.contains("restart 1"))
    });
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert!(c.read("again.out").starts_with("restart 0\nanswered\n"), "{}", c.read("again.out"));
}

fn signals(c: &Cluster) {
    c.write(
        "usr.sh",
        "#!/bin/bash\ntrap 'echo usr2; exit 4' USR2\necho ready > usr.ready\nwhile :; do sleep 0.1; done\n",
    );
    let id = c.sbatch(&["-o", "usr.out", "usr.sh"]);
    c.read("usr.ready");
    c.ok(&["scancel", "--signal=USR2", "--batch", &id]);
    assert_eq!(c.end_of(&id), "FAILED|4:0");
    assert_eq!(c.read("usr.out"), "usr2\n");
}

fn hold(c: &Cluster) {
    let id = c.sbatch(&["--hold", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%T %r", "-j", &id]), "PENDING JobHeldUser");
    c.ok(&["scontrol", "release", &id]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
}

/// No process has the job's id in its environment.
fn nothing_left(c: &Cluster, id: &str) {
    let mark = format!("SLURM_JOB_ID={id}\0").into_bytes();
    c.until(&format!("nothing is left of job {id}"), || {
        !std::fs::read_dir("/proc").unwrap().flatten().any(|e| {
            std::fs::read(e.path().join("environ")).is_ok_and(|env| env.windows(mark.len()).any(|w| w == mark))
        })
    });
}
