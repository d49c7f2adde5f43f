//! Stories of programs that run around steps and tasks.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("task_prologs_change_the_environment_and_epilogs_come_after", around_tasks),
    ("a_task_whose_prolog_fails_does_not_run", failing_prolog),
    ("srun_runs_a_prolog_and_an_epilog_itself", around_srun),
];

fn script(c: &Cluster, name: &str, text: &str) {
    c.write(name, &format!("#!/bin/sh\n{text}\n"));
    set_permissions(c.path(&format!("work/{name}")), Permissions::from_mode(0o755)).unwrap();
}

fn around_tasks(c: &Cluster) {
    script(
        c,
        "before.sh",
        "echo export FROM_PROLOG=$SLURM_PROCID of $SLURM_NTASKS $SLURM_SCRIPT_CONTEXT; echo unset SECRET\n\
         echo print said by $SLURM_PROCID; echo nothing to anybody; [ $SLURM_TASK_PID = $PPID ] || exit 9",
    );
    script(c, "after.sh", "echo $SLURM_SCRIPT_CONTEXT $SLURM_PROCID $SLURM_TASK_PID > after.$SLURM_PROCID");
    let tell = "echo $FROM_PROLOG/$SECRET/$SLURM_SCRIPT_CONTEXT/$SLURM_TASK_PID/$$";
    let done = c.run_with(
        &["srun", "-N2", "-n2", "--task-prolog=before.sh", "--task-epilog=./after.sh", "sh", "-c", tell],
        &[("SECRET", "x")],
        "",
    );
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines[2..], ["said by 0", "said by 1"], "{done:?}");
    for (rank, line) in lines[..2].iter().enumerate() {
        let parts: Vec<&str> = line.split('/').collect();
        assert_eq!(parts[..3], [&format!("{rank} of 2 prolog_task"), "", ""], "{line}");
        assert_eq!(parts[3], parts[4], "the task is the process in which its prolog ran: {line}");
        // A task is over when its epilog is.
        assert_eq!(c.read(&format!("after.{rank}")), format!("epilog_task {rank} {}\n", parts[3]));
    }
}

fn failing_prolog(c: &Cluster) {
    script(c, "fails.sh", "exit 3");
    let done = c.run(&["srun", "-w", "n1", "--task-prolog=fails.sh", "touch", "ran"]);
    assert_eq!(done.status, 3, "{done:?}");
    assert!(done.err.contains("slurmstepd: error: --task-prolog failed status=3\n"), "{done:?}");
    assert!(done.err.contains("srun: error: n1: task 0: Exited with exit code 3"), "{done:?}");
    let done = c.run(&["srun", "--task-prolog=nosuch.sh", "touch", "ran"]);
    assert_eq!(done.status, 1, "{done:?}");
    assert!(done.err.contains("srun: error: task-prolog 'nosuch.sh' not found in PATH or CWD"), "{done:?}");
    assert!(done.err.contains("slurmstepd: error: --task-prolog failed status=1\n"), "{done:?}");
    assert!(!std::path::Path::new(&c.path("work/ran")).exists());
    // What can't be executed is told as ever, and where to look may come from the prolog.
    script(c, "path.sh", &format!("echo export PATH={}", c.path("work")));
    script(c, "only-here", "echo found");
    assert_eq!(c.ok(&["srun", "--task-prolog=path.sh", "only-here"]), "found");
    let done = c.run(&["srun", "--task-prolog=path.sh", "nosuchcmd"]);
    assert_eq!(done.status, 2, "{done:?}");
    assert!(done.err.contains("slurmstepd: error: execve(): nosuchcmd: No such file or directory"), "{done:?}");
    // An epilog that does not end is ended, and with it the step.
    script(c, "hangs.sh", "sleep 1000");
    let done = c.run(&["srun", "--task-epilog=hangs.sh", "echo", "over"]);
    // faults.md F16: and the user is told, with the status of wait(2).
    let text = |status: u32| format!("slurmstepd: error: TaskEpilog failed status={status}\n");
    assert_eq!((done.status, done.out.as_str(), done.err), (0, "over\n", text(9)));
    assert_eq!(c.run(&["srun", "--task-epilog=fails.sh", "true"]).err, text(3 << 8));
}

fn around_srun(c: &Cluster) {
    script(c, "pro.sh", "echo $SLURM_SCRIPT_CONTEXT $# $2 $([ -n \"$SLURM_JOB_ID\" ] && echo has a job)");
    script(c, "epi.sh", "echo $SLURM_SCRIPT_CONTEXT $2; exit 4");
    let done = c.run(&["srun", "--prolog=pro.sh", "--epilog=epi.sh", "echo", "task", "here"]);
    assert_eq!(done.out, "prolog_srun 3 task has a job\ntask here\nepilog_srun task\n", "{done:?}");
    assert_eq!((done.status, done.err.as_str()), (0, "srun: error: srun epilog failed status=4\n"), "{done:?}");
    let done = c.run(&["srun", "--prolog=epi.sh", "echo", "task"]);
    assert_eq!((done.status, done.out.as_str()), (1, "prolog_srun task\n"), "{done:?}");
    assert!(done.err.contains("srun: error: srun prolog failed rc = 4. Aborting step."), "{done:?}");
    assert_eq!(c.ok(&["srun", "--prolog=none", "echo", "task"]), "task");
}
