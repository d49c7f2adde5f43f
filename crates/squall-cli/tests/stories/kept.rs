//! Stories of what is kept for jobs: GPUs, reservations, and why a job waits for them.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] =
    &[("gpus_are_held_and_told_of", gpus), ("a_reservation_keeps_its_node_and_why_says_so", reserved)];

fn gpus(c: &Cluster) {
    c.write(
        "gpus.sh",
        "#!/bin/sh\necho $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES\nsrun -l sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort\n",
    );
    let id = c.sbatch(&["-n2", "--gpus-per-task=1", "-N1", "-o", "gpus.out", "gpus.sh"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read("gpus.out"), "0,1 0,1\n0: 0\n1: 1\n");
    let holds = c.sbatch(&["--gres=gpu:2", "-w", "n1", "--wrap", "sleep 100"]);
    c.until_state(&holds, "RUNNING");
    let node = c.ok(&["scontrol", "show", "node", "n1"]);
    assert!(node.contains("Gres=gpu:2") && node.contains("GresUsed=gpu:2(IDX:0-1)"), "{node}");
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%b", "-j", &holds]), "gres/gpu:2");
    let shown = c.ok(&["scontrol", "show", "job", "-d", &holds]);
    let told: Vec<&str> = shown.lines().filter(|line| line.contains("GRES=")).map(str::trim_start).collect();
    assert!(matches!(told[..], ["JOB_GRES=gpu:2", on] if on.starts_with("Nodes=n1 ")), "{shown}");
    assert!(told[1].ends_with(" GRES=gpu:2(IDX:0-1)"), "{shown}");
    let waits = c.sbatch(&["--gpus=1", "-w", "n1", "--wrap", "true"]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%r", "-j", &waits]), "Resources");
    let why = c.ok(&["squall", "why", &waits]);
    assert!(why.contains("1 GPUs or other resources held by jobs         n1"), "{why}");
    let helps = |change: &str| why.lines().any(|line| line.trim_start().starts_with(change));
    assert!(helps("no --nodelist ") && helps("no --gres and --gpus ") && why.contains("Expected to start: "), "{why}");
    let none = c.run(&["sbatch", "--gres=tpu:1", "--wrap", "true"]);
    assert!(none.status != 0 && none.err.contains("Invalid generic resource (gres) specification"), "{none:?}");
    c.ok(&["scancel", &holds]);
    assert_eq!(c.end_of(&waits), "COMPLETED|0:0");
}

fn reserved(c: &Cluster) {
    let user = c.ok(&["srun", "id", "-un"]);
    let users = format!("Users={user}");
    let create = ["scontrol", "create", "reservation", "StartTime=now", "Duration=60", "ReservationName=mine", &users];
    assert_eq!(c.ok(&[&create[..], &["Nodes=n2"]].concat()), "Reservation created: mine");
    let twice = c.run(&["scontrol", "create", "reservation", "StartTime=now", "Duration=60", &users, "Nodes=n2"]);
    assert!(twice.err.contains("Requested reservation overlaps with another reservation"), "{twice:?}");
    let shown = c.ok(&["scontrol", "show", "reservation", "mine"]);
    for word in ["ReservationName=mine ", "Duration=01:00:00", "Nodes=n2 NodeCnt=1 ", "State=ACTIVE"] {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
    assert!(c.ok(&["sinfo", "-T", "-h"]).starts_with("mine "));
    assert!(c.ok(&["sinfo", "-h", "-o", "%t %N"]).lines().any(|line| line == "resv n2"));
    let own =
        c.sbatch(&["--reservation=mine", "-o", "own.out", "--wrap", "echo $SLURM_JOB_RESERVATION $SLURMD_NODENAME"]);
    assert_eq!(c.end_of(&own), "COMPLETED|0:0");
    assert_eq!(c.read("own.out"), "mine n2\n");
    let barred = c.sbatch(&["-w", "n2", "-t", "5", "--wrap", "true"]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%r", "-j", &barred]), "ReqNodeNotAvail");
    let why = c.ok(&["squall", "why", &barred]);
    assert!(why.contains("Reservation mine: ") && why.contains("kept by a reservation"), "{why}");
    assert!(why.contains("3 not named by --nodelist                      n[1,3-4]"), "{why}");
    c.ok(&["scontrol", "delete", "reservation", "mine"]);
    assert_eq!(c.end_of(&barred), "COMPLETED|0:0");
    let gone = c.run(&["scontrol", "show", "reservation", "mine"]);
    assert_eq!((gone.status, gone.out.as_str()), (1, "Reservation mine not found\n"));
}
