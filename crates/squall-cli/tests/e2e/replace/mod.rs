//! Nodes of running jobs that fail and are replaced, with real processes.

mod faults;
mod kills;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::harness::{Cluster, SQUALL, text};
use crate::traces::processes;

const NODES: &str = "[[nodes]]\nname = \"n[1-5]\"\ncpus = 1\nforce = true\n";

/// A task that notes where and how often it runs, and waits until it may end.
const TASK: &str = "echo \"$SLURM_PROCID $SLURM_NODEID $SLURMD_NODENAME ${SQUALL_STEP_RESTART:-0}\" >> DIR/ran
test -n \"$SQUALL_LOST_NODES\" && echo \"$SQUALL_LOST_NODES\" >> DIR/lost
until test -e DIR/go; do sleep 0.05; done; echo \"rank $SLURM_PROCID of $SLURM_NTASKS\"";

/// Sends processes a signal, all at once. Some may have ended.
fn signal(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    drop(Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status());
}

fn cluster(name: &str) -> Cluster {
    let c = Cluster::new("replace", name);
    c.program("task", TASK);
    c.up(NODES, &[]);
    c
}

/// Kinds of processes of a node.
#[derive(Clone, Copy)]
enum Kind {
    /// Daemons, step daemons, tasks, guards of node fences.
    All,
    AllButGuards,
    StepDaemons,
}

trait Failing {
    fn program(&self, name: &str, text: &str);
    fn fail(&self, node: &str);
    fn set_down(&self, node: &str);
    fn of_node(&self, node: &str, kind: Kind) -> Vec<u32>;
    fn ran(&self) -> Vec<String>;
    fn submit(&self, options: &[&str], script: &str) -> String;
    fn clean(&self);
}

impl Failing for Cluster {
    /// Starts the daemons of killed nodes again: they remove what is left of their jobs.
    fn clean(&self) {
        self.ok(&["up"]);
        let states = || self.ok(&["sinfo", "-hN", "-o", "%t"]);
        self.until("all nodes are clean", || states().lines().all(|state| ["idle", "drain", "down"].contains(&state)));
    }

    /// Writes a shell script with the cluster's folder for `DIR` and the program for `@`.
    fn program(&self, name: &str, text: &str) {
        self.write(name, &format!("#!/bin/sh\n{text}\n").replace("DIR", &self.path("")).replace('@', SQUALL));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Kills all processes of a node, and says that it is down, as its operator would.
    fn fail(&self, node: &str) {
        signal("-9", &self.of_node(node, Kind::All));
        self.set_down(node);
    }

    fn set_down(&self, node: &str) {
        self.ok(&["scontrol", "update", &format!("NodeName={node}"), "State=DOWN", "Reason=killed"]);
    }

    /// Returns the processes of a node of one kind.
    fn of_node(&self, node: &str, kind: Kind) -> Vec<u32> {
        let folder = format!("/node/{node}/");
        let is_its = |pid: u32, line: &str| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).replace('\0', " ") + " ";
            let is_named = line.contains(&folder) || line.contains(&format!(" {node} "));
            is_named || environment.contains(&format!("SLURMD_NODENAME={node} "))
        };
        let is_kind = |line: &str| match kind {
            Kind::All => true,
            Kind::AllButGuards => !line.contains(" step --guard "),
            Kind::StepDaemons => line.contains(" step --spool "),
        };
        let all = processes(&self.dir).into_iter();
        all.filter(|(pid, line)| is_kind(line) && is_its(*pid, line)).map(|(pid, _)| pid).collect()
    }

    /// Returns the lines that the tasks wrote, sorted: rank, node's place, node, restarts.
    fn ran(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.read("ran").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn submit(&self, options: &[&str], script: &str) -> String {
        self.program("job", script);
        let (out, job) = (self.path("out"), self.path("job"));
        self.ok(&[&["sbatch", "--parsable", "-o", &out], options, &[&job]].concat())
    }
}

#[test]
fn a_spare_takes_the_place_of_a_failed_node_and_the_step_starts_again_in_the_same_job() {
    let c = cluster("spare");
    let options = ["-N3", "--spare-nodes=1", "--on-node-fail=replace"];
    let job =
        c.submit(&options, "@ srun --restarts=3 DIR/task; echo \"srun: $?\"; echo \"spares: $SQUALL_SPARE_NODELIST\"");
    c.until("all tasks run", || c.ran().len() == 3);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%D %N"]), "3 n[1-3]");
    let shown = c.ok(&["scontrol", "show", "job", &job]);
    assert!(shown.contains("SpareNodes=n4 NodesToReplace=(null)") && shown.contains("AllocTRES=cpu=4,"), "{shown}");
    c.ok(&["scontrol", "update", &format!("JobId={job}"), "Progress=half way"]);
    assert!(c.ok(&["scontrol", "show", "job", &job]).contains("Progress=half way"));
    c.fail("n2");
    c.until("all tasks run again", || c.ran().len() == 6);
    assert_eq!(c.ran(), ["0 0 n1 0", "0 0 n1 1", "1 1 n2 0", "1 1 n4 1", "2 2 n3 0", "2 2 n3 1"]);
    assert_eq!(c.read("lost"), "n2\nn2\nn2\n");
    // The spare is used up: the free node is next.
    c.fail("n3");
    c.until("all tasks run once more", || c.ran().len() == 9);
    let last: Vec<String> = c.ran().into_iter().filter(|line| line.ends_with(" 2")).collect();
    assert_eq!(last, ["0 0 n1 2", "1 1 n4 2", "2 2 n5 2"]);
    c.write("go", "");
    c.until("the job has ended", || c.ok(&["squeue", "-h"]).is_empty());
    let out = c.read("out");
    for words in
        ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3", "srun: 0\n", "spares: n4\n", "step lost n2", "step lost n3"]
    {
        assert_eq!(out.matches(words).count(), 1, "{words}: {out}");
    }
    let ended = c.ok(&["sacct", "-n", "-X", "-j", &job, "-o", "State,NNodes,Restarts"]);
    assert_eq!(ended.split_whitespace().collect::<Vec<_>>(), ["COMPLETED", "3", "0"], "one attempt: {ended}");
    what_it_cost(&c, &job);
    c.clean();
}

/// Checks what is said of a job that has lost two nodes.
fn what_it_cost(c: &Cluster, job: &str) {
    let report = c.ok(&["report", job]);
    assert!(report.contains("Lost with 2 failed nodes: "), "{report}");
    let told = c.ok(&["sacct", "-nXP", "-j", job, "-o", "TimeLost,ETTR"]);
    let (lost, ratio) = told.split_once('|').expect("two columns");
    let ratio: f64 = ratio.parse().unwrap();
    assert!(lost.starts_with("00:") && ratio > 0.0 && ratio < 1.0, "{told}");
    let json = c.ok(&["sacct", "--json", "-j", job]);
    assert!(json.contains(&format!("nodes_lost=2 ettr={ratio:.3} work=")), "{json}");
    let columns = "format=Jobs,Failures,Lost,ETTR";
    let goodput = c.ok(&["sreport", "-nP", "job", "goodput", "start=now-1hour", "end=now+1hour", columns]);
    let line = format!("1|2|{lost}|{ratio:.3}");
    assert_eq!(goodput, format!("{line}\n{line}"), "the cluster, then the user's account");
    let metrics = c.ok(&["metrics"]);
    assert!(metrics.contains("\nsquall_jobs_nodes_lost_total 2\n"), "{metrics}");
    assert!(metrics.contains("\nsquall_jobs_lost_seconds_total{cause=\"work\"} "), "{metrics}");
}

#[test]
fn a_script_whose_node_fails_starts_again_in_place_before_a_job_that_waits() {
    let c = cluster("script");
    let script = "echo \"run ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME\"; @ srun DIR/task; echo \"srun: $?\"";
    let job = c.submit(&["-N3", "--on-node-fail=replace"], script);
    c.until("all tasks run", || c.ran().len() == 3);
    // It could run as soon as the nodes of the first job are free.
    let other = c.ok(&["sbatch", "--parsable", "-N4", "-o", "/dev/null", "--wrap", "true"]);
    c.fail("n1");
    c.until("all tasks run again", || c.ran().len() == 6);
    assert_eq!(c.ok(&["squeue", "-h", "-j", &job, "-o", "%T %N"]), "RUNNING n[2-4]");
    assert_eq!(c.ok(&["squeue", "-h", "-j", &other, "-o", "%T"]), "PENDING");
    assert_eq!(c.ran(), ["0 0 n1 0", "0 0 n2 0", "1 1 n2 0", "1 1 n3 0", "2 2 n3 0", "2 2 n4 0"]);
    c.write("go", "");
    c.until("both jobs have ended", || c.ok(&["squeue", "-h"]).is_empty());
    let out = c.read("out");
    for words in ["run 0 on n1", "run 1 on n2", "rank 0 of 3", "rank 1 of 3", "rank 2 of 3", "srun: 0\n"] {
        assert_eq!(out.matches(words).count(), 1, "{words}: {out}");
    }
    let ended = c.ok(&["sacct", "-n", "-X", "-j", &job, "-o", "State,NNodes,Restarts"]);
    assert_eq!(ended.split_whitespace().collect::<Vec<_>>(), ["COMPLETED", "3", "1"], "{ended}");
    c.clean();
}

#[test]
fn only_the_tasks_of_the_failed_node_start_again_where_the_others_go_on() {
    let c = cluster("only");
    let script = "@ srun -l --restarts=2 --restart-only-lost DIR/task; echo \"srun: $?\"";
    c.submit(&["-N3", "--on-node-fail=replace"], script);
    c.until("all tasks run", || c.ran().len() == 3);
    c.fail("n2");
    c.until("the failed node's task runs again", || c.ran().len() == 4);
    assert_eq!(c.ran(), ["0 0 n1 0", "1 1 n2 0", "1 1 n4 1", "2 2 n3 0"]);
    c.write("go", "");
    c.until("the job has ended", || c.ok(&["squeue", "-h"]).is_empty());
    let out = c.read("out");
    for words in ["0: rank 0 of 3", "1: rank 1 of 3", "2: rank 2 of 3", "srun: 0\n"] {
        assert_eq!(out.matches(words).count(), 1, "{words}: {out}");
    }
    c.clean();
}

#[test]
fn an_srun_of_its_own_goes_on_too_and_ends_with_its_job_when_nothing_is_replaced() {
    let c = cluster("own");
    let log = || fs::File::create(c.path("log")).unwrap();
    let task = c.path("task");
    let mut srun = c.command(&["srun", "-N2", "--on-node-fail=replace", "--restarts=1", &task]);
    let mut srun = srun.stderr(log()).stdout(fs::File::create(c.path("out")).unwrap()).spawn().unwrap();
    c.until("both tasks run", || c.ran().len() == 2);
    c.fail("n1");
    c.until("both tasks run again", || c.ran().len() == 4);
    c.write("go", "");
    assert!(srun.wait().unwrap().success(), "{}", c.read("log"));
    assert_eq!(c.read("out").lines().count(), 2, "{}", c.read("out"));
    drop((fs::remove_file(c.path("go")), fs::remove_file(c.path("ran"))));
    let mut srun = c.command(&["srun", "-N2", "--on-node-fail=end", "--restarts=1", &task]);
    let mut srun = srun.stderr(log()).spawn().unwrap();
    c.until("both tasks run", || c.ran().len() == 2);
    let node = c.ran()[1].split(' ').nth(2).unwrap().to_owned();
    c.fail(&node);
    assert!(!srun.wait().unwrap().success());
    assert!(c.read("log").contains("Node failure on"), "{}", c.read("log"));
    assert_eq!(c.ran().len(), 2, "not again");
    c.clean();
}

#[test]
fn a_drained_node_is_replaced_ahead_and_a_vacant_place_says_for_what_it_waits() {
    let c = cluster("ahead");
    let job = c.submit(&["-N3", "--on-node-fail=replace"], "@ srun --restarts=3 DIR/task");
    c.until("all tasks run", || c.ran().len() == 3);
    let refused = c.squall(&["scontrol", "replace", &job, "n2"]);
    assert!(!refused.status.success() && text(&refused).contains("neither drained nor failing"), "{}", text(&refused));
    c.ok(&["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan"]);
    c.ok(&["scontrol", "replace", &job, "n2"]);
    c.until("all tasks run again", || c.ran().len() == 6);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%N %r"]), "n[1,3-4] None");
    c.until("the node is free", || c.ok(&["sinfo", "-h", "-n", "n2", "-o", "%t"]) == "drain");
    c.ok(&["scontrol", "update", "NodeName=n5", "State=DRAIN", "Reason=fan"]);
    c.fail("n3");
    c.until("a place is vacant", || c.ok(&["squeue", "-h", "-o", "%N %r"]) == "n[1,4] NodeToBeReplaced");
    let why = c.ok(&["why", &job]);
    assert!(why.contains("The place of n3 (node 2 of the job) is vacant since"), "{why}");
    c.ok(&["scontrol", "update", "NodeName=n2", "State=RESUME"]);
    c.until("all tasks run once more", || c.ran().len() == 9);
    let last: Vec<String> = c.ran().into_iter().filter(|line| line.ends_with(" 2")).collect();
    assert_eq!(last, ["0 0 n1 2", "1 1 n4 2", "2 2 n2 2"]);
    c.write("go", "");
    c.until("the job has ended", || c.ok(&["squeue", "-h"]).is_empty());
    c.clean();
}
