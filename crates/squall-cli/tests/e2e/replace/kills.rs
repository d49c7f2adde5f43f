//! Jobs that go on through many failures of nodes, with programs that know nothing of them: 20 kills in sum.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Failing, Kind, signal};
use crate::harness::Cluster;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/replace");

/// Three nodes that work, a spare, and enough others that some are free while failed ones are away.
const NODES: &str = "node_timeout_s = 6\nnode_fence_s = 30\n[[nodes]]\nname = \"n[1-7]\"\ncpus = 1\nforce = true\n";

const PLAIN: &str = "echo \"$SLURM_PROCID $SLURM_NODEID $SLURMD_NODENAME ${SQUALL_STEP_RESTART:-0}\" >> DIR/ran
until test -e DIR/go; do sleep 0.05; done; echo \"rank $SLURM_PROCID of $SLURM_NTASKS is right\"";

/// How a node fails, and what makes it lost.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// All its processes are killed, and its operator sets it DOWN.
    Dead,
    /// Its operator sets it DOWN while all its processes run.
    Down,
    /// All its processes are killed, and its daemon starts again and tells what has ended.
    Restarted,
}

const FAULTS: [Fault; 3] = [Fault::Dead, Fault::Down, Fault::Restarted];

/// A job of three ranks, of which each kill takes one.
struct Trial<'a> {
    c: &'a Cluster,
    /// Whether the other ranks stay.
    only_lost: bool,
    down: Vec<String>,
}

impl Trial<'_> {
    /// Runs a job with the step `srun --restarts=20 STEP` through this number of kills.
    fn run(c: &Cluster, step: &str, kills: usize) {
        let mut trial = Trial { c, only_lost: step.contains("only-lost"), down: Vec::new() };
        let options = ["-N3", "--spare-nodes=1", "--node-fence", "--on-node-fail=replace"];
        let job = c.submit(&options, &format!("@ srun --restarts=20 {step}; echo \"srun: $?\""));
        c.until("all ranks run", || trial.starts() == 3);
        for kill in 0..kills {
            trial.kill(1 + kill % 2, FAULTS[kill % FAULTS.len()]);
            assert_eq!(c.ok(&["squeue", "-h", "-o", "%i %D %T"]), format!("{job} 3 RUNNING"));
            if trial.down.len() > 1 {
                trial.bring_back();
            }
        }
        c.write("go", "");
        c.until("the job has ended", || c.ok(&["squeue", "-h"]).is_empty());
        let out = c.read("out");
        for words in ["rank 0 of 3 is right", "rank 1 of 3 is right", "rank 2 of 3 is right", "srun: 0\n"] {
            assert_eq!(out.matches(words).count(), 1, "{words}: {out}");
        }
        let ended = c.ok(&["sacct", "-n", "-X", "-j", &job, "-o", "State,NNodes,Restarts"]);
        assert_eq!(ended.split_whitespace().collect::<Vec<_>>(), ["COMPLETED", "3", "0"], "one attempt: {ended}");
        // Daemons that start again remove what the killed ones have left.
        trial.bring_back();
        c.clean();
        for file in ["go", "ran", "out"] {
            std::fs::remove_file(c.path(file)).unwrap();
        }
    }

    fn starts(&self) -> usize {
        self.c.ran().len()
    }

    /// Returns the node on which each rank was started last.
    fn nodes(&self) -> BTreeMap<usize, String> {
        let text = self.c.read("ran");
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].parse().unwrap(), words[2].to_owned())
        };
        text.lines().map(line).collect()
    }

    /// Has the node of a rank fail, and waits until all ranks run again.
    fn kill(&mut self, rank: usize, fault: Fault) {
        let (c, node) = (self.c, self.nodes()[&rank].clone());
        let wanted = self.starts() + if self.only_lost { 1 } else { 3 };
        if !matches!(fault, Fault::Down) {
            signal("-9", &c.of_node(&node, Kind::All));
        }
        let lost = Instant::now();
        if matches!(fault, Fault::Restarted) {
            c.ok(&["up"]);
        } else {
            c.set_down(&node);
            self.down.push(node.clone());
        }
        c.until(&format!("all ranks run again after {fault:?} of {node}"), || self.starts() == wanted);
        eprintln!("{node} {fault:?}: all ranks run {:.2} s after it was lost", lost.elapsed().as_secs_f64());
        assert_eq!(self.nodes()[&rank] == node, matches!(fault, Fault::Restarted), "a node that is well is kept");
    }

    /// Starts the daemons of failed nodes again, which their operator resumes.
    fn bring_back(&mut self) {
        self.c.ok(&["up"]);
        for node in std::mem::take(&mut self.down) {
            self.c.ok(&["scontrol", "update", &format!("NodeName={node}"), "State=RESUME"]);
        }
    }
}

/// Starts a cluster with a program of ours. None: its compiler is not here.
fn with_program(test: &str, compiler: &str, source: &str) -> Option<Cluster> {
    let c = Cluster::new("kills", test);
    let mut cc = Command::new(compiler);
    cc.arg(format!("{SOURCES}/{source}.c")).arg("-o").arg(c.path(source));
    let Ok(made) = cc.stderr(Stdio::inherit()).status() else {
        eprintln!("skipped: {compiler} is not installed");
        return None;
    };
    assert!(made.success(), "{compiler} {source}.c");
    c.up(NODES, &[]);
    Some(c)
}

#[test]
fn a_plain_step_goes_on_through_kills() {
    let c = Cluster::new("kills", "plain");
    c.program("task", PLAIN);
    c.up(NODES, &[]);
    Trial::run(&c, "DIR/task", 6);
}

#[test]
fn an_mpi_ring_goes_on_through_kills() {
    for compiler in ["mpicc.openmpi", "mpicc.mpich"] {
        let Some(c) = with_program(compiler, compiler, "ring") else { continue };
        Trial::run(&c, "DIR/ring DIR/ran DIR/go", 4);
    }
}

#[test]
fn members_that_find_each_other_again_go_on_through_kills() {
    let Some(c) = with_program("agents", "cc", "agents") else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Trial::run(&c, &format!("--restart-only-lost DIR/agents {port} DIR/ran DIR/go"), 6);
}
