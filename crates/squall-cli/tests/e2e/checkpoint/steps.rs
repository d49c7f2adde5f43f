//! Steps of `srun` in a batch script with `--checkpoint` step aside with it, and come back where they were.

use super::mpi::ring;
use super::{cluster, counted, state};
use crate::harness::Cluster;

/// Returns the numbers and states of the steps that accounting has of an attempt of job 1, but for its script.
fn steps(c: &Cluster) -> String {
    let rows = c.ok(&["sacct", "-D", "-n", "-P", "-j", "1", "-o", "JobID,State"]);
    rows.lines().filter(|row| row.contains('.') && !row.contains("batch")).collect::<Vec<_>>().join(" ")
}

/// The step is a step for all commands, and after the restore it is the same one again; a step before it and one after it
/// are none of the checkpoint's business. Each line is there once.
#[test]
fn a_step_comes_back_with_its_script() {
    let Some(c) = cluster("step") else { return };
    c.script(
        "steps.sh",
        "SQUALL srun true\n\
         SQUALL srun -n 1 bash -c 'for i in $(seq 100); do echo $i; sleep 0.1; done; exit 5'\n\
         echo step ended $?\n\
         SQUALL srun echo last of $SLURM_JOB_ID",
    );
    c.ok(&["sbatch", "--checkpoint=signal", "-o", "out", "steps.sh"]);
    c.until("it counts", || counted(&c, 5));
    assert_eq!(c.ok(&["scontrol", "checkpoint", "able", "1"]), "Yes");
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    c.until("it counts on", || counted(&c, 25));
    // The node daemon's next run knows the step.
    c.kill("node-n1");
    c.said(&["up"]);
    assert!(c.ok(&["squeue", "-h", "-s"]).contains("1.1"), "{}", c.ok(&["squeue", "-h", "-s"]));
    c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
    c.until("it is held", || state(&c).starts_with("PENDING"));
    let there = c.read("out").lines().count();
    c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    c.until("it counts on", || c.read("out").lines().count() > there + 5);
    c.until("the step is listed again", || c.ok(&["squeue", "-h", "-s"]).contains("1.1"));
    c.until("it has ended", || state(&c).starts_with("COMPLETED"));
    let expected: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    let out = c.read("out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..100], expected, "{out}");
    assert_eq!(
        lines[100..].iter().filter(|line| !line.starts_with("srun: error:")).collect::<Vec<_>>(),
        [&"step ended 5", &"last of 1"]
    );
    assert!(steps(&c).ends_with("1.1|FAILED 1.2|COMPLETED"), "{}", steps(&c));
}

/// Starts two ranks of either library.
const SRUN: &str = "SQUALL srun -n 2 --overcommit";

#[test]
fn a_ring_of_open_mpi_by_srun_comes_back() {
    ring("srun-openmpi", "mpicc.openmpi", SRUN);
}

#[test]
fn a_ring_of_mpich_by_srun_comes_back() {
    ring("srun-mpich", "mpicc.mpich", SRUN);
}

/// Where steps end: a step that is cancelled, one whose `srun` is killed, and one whose tasks fail end as any step does.
#[test]
fn steps_inside_end_as_others_do() {
    let Some(c) = cluster("step-ends") else { return };
    c.script(
        "ends.sh",
        "SQUALL srun sleep 100\necho cancelled $?\n\
         SQUALL srun sleep 101 & sleep 1; kill -9 $!; wait $!; echo killed $?\n\
         SQUALL srun sh -c 'kill -USR1 $$'; echo signal $?\n\
         echo word | SQUALL srun -n 2 --overcommit sh -c 'read line; echo $line from $SLURM_PROCID'; echo input $?\n\
         SQUALL srun nosuchprogram; echo missing $?",
    );
    c.ok(&["sbatch", "--checkpoint=signal", "-n", "2", "-o", "out", "ends.sh"]);
    c.until("the step runs", || c.ok(&["squeue", "-h", "-s"]).contains("1.0"));
    c.ok(&["scancel", "1.0"]);
    c.until("it has ended", || state(&c).starts_with("COMPLETED"));
    let out = c.read("out");
    for line in ["cancelled 143", "killed 137", "signal 138", "word from 0", "input 0", "missing 2"] {
        assert!(out.lines().any(|said| said == line), "{line} is missing: {out}");
    }
}
