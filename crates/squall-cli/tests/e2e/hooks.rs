//! Programs around jobs and on nodes, with real processes: prologs, epilogs, checks, reboots.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Cluster, text};

/// Starts a cluster of two nodes with these tables in its configuration, and these scripts in its folder.
fn cluster(name: &str, tables: &str, scripts: &[(&str, &str)]) -> Cluster {
    let c = Cluster::new("hooks", name);
    for (name, text) in scripts {
        c.script(name, text);
    }
    c.up(&format!("[[nodes]]\nname = \"n[1-2]\"\ncpus = 2\nforce = true\n{tables}"), &[]);
    c
}

trait Hooks {
    fn state_of(&self, node: &str) -> String;
    fn submit(&self, wrap: &str) -> String;
    fn seen(&self, args: &[&str], expected: impl Fn(&str) -> bool) -> String;
}

impl Hooks for Cluster {
    fn state_of(&self, node: &str) -> String {
        self.ok(&["sinfo", "-h", "-N", "-n", node, "-o", "%t %E"])
    }

    fn submit(&self, wrap: &str) -> String {
        self.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", wrap])
    }

    /// Waits until a command prints what is expected, and returns that.
    fn seen(&self, args: &[&str], expected: impl Fn(&str) -> bool) -> String {
        self.until(&format!("{args:?}"), || expected(&self.ok(args)));
        self.ok(args)
    }
}

const BOTH: &str = "[hooks]\nprolog = \"DIR/prolog\"\nepilog = \"DIR/epilog\"\n";

#[test]
fn prolog_and_epilog_run_around_a_job_with_slurms_variables() {
    let told = "echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_UID $SLURM_JOB_PARTITION $SLURMD_NODENAME \
                $SLURM_JOB_EXIT_CODE2 >> DIR/told; id -u >> DIR/uid; env >> DIR/env; echo said $SLURM_JOB_ID";
    let c = cluster("around", BOTH, &[("prolog", told), ("epilog", told)]);
    let out = c.dir.join("out");
    let script = format!("echo script >> {}/told; exit 3", c.dir.display());
    let export = ["--export=ALL,LD_PRELOAD=/tmp/evil.so,BASH_ENV=/tmp/evil", "--job-name=$(touch /tmp/owned)"];
    let job = c.squall(&[
        "sbatch",
        "--parsable",
        "-w",
        "n1",
        export[0],
        export[1],
        "-o",
        out.to_str().unwrap(),
        "--wrap",
        &script,
    ]);
    assert!(job.status.success(), "{}", text(&job));
    let job = String::from_utf8(job.stdout).unwrap().trim().to_owned();
    c.seen(&["squeue", "-h", "-o", "%i"], str::is_empty);
    let uid = fs::metadata(&c.dir).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap();
    let lines = [
        format!("prolog_slurmd {job} {uid} debug n1"),
        "script".to_owned(),
        format!("epilog_slurmd {job} {uid} debug n1 3:0"),
    ];
    assert_eq!(c.read("told").lines().map(str::trim).collect::<Vec<_>>(), lines);
    assert_eq!(c.read("uid"), format!("{uid}\n{uid}\n"));
    let env = c.read("env");
    assert!(!env.contains("evil") && !env.contains("owned") && !env.contains("LANG="), "{env}");
    assert!(c.read("state/log/node-n1.log").contains(&format!("said {job}")));
    assert!(c.ok(&["scontrol", "show", "config"]).contains(&format!("= {}/prolog", c.dir.display())));
}

#[test]
fn a_prolog_that_fails_drains_its_node_and_the_job_starts_elsewhere() {
    let prolog = "echo $SLURM_JOB_ID >> DIR/tried; test $SLURMD_NODENAME != n1";
    let c = cluster("prolog", "[hooks]\nprolog = \"DIR/prolog\"\n", &[("prolog", prolog)]);
    let job = c.submit("true");
    c.seen(&["squeue", "-h", "-o", "%i"], str::is_empty);
    assert_eq!(c.ok(&["sacct", "-nXPj", &job, "-o", "State,NodeList"]).lines().last(), Some("COMPLETED|n2"));
    assert_eq!(c.state_of("n1"), "drain Prolog error");
    assert_eq!(c.read("tried"), format!("{job}\n{job}\n"));
    // An allocation ends with words.
    c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
    let out = c.squall(&["srun", "-w", "n1", "true"]);
    assert!(!out.status.success() && text(&out).contains("prolog"), "{}", text(&out));
    assert_eq!(c.state_of("n1"), "drain Prolog error");
    // Where it fails everywhere the job is held.
    c.script("prolog", "exit 4");
    let job = c.submit("true");
    c.seen(&["squeue", "-h", "-j", &job, "-o", "%t %r"], |said| said == "PD JobHoldMaxRequeue");
    assert_eq!(c.state_of("n2"), "drain Prolog error");
}

#[test]
fn an_epilog_that_hangs_is_killed_and_its_node_drained() {
    let tables = "[hooks]\nepilog = \"DIR/epilog\"\nepilog_timeout_s = 3\n";
    let c = cluster("epilog", tables, &[("epilog", "sleep 1000 & echo $! >> DIR/child; sleep 1000")]);
    let job = c.ok(&["sbatch", "--parsable", "-w", "n1", "-o", "/dev/null", "--wrap", "true"]).trim().to_owned();
    c.seen(&["squeue", "-h", "-j", &job, "-o", "%t"], |said| said == "CG");
    c.seen(&["squeue", "-h", "-o", "%i"], str::is_empty);
    assert_eq!(c.state_of("n1"), "drain Epilog error");
    let child = c.read("child");
    assert!(fs::metadata(format!("/proc/{}", child.trim())).is_err(), "its processes are killed, too");
    assert_eq!(c.ok(&["sacct", "-nXPj", &job, "-o", "State"]).trim(), "COMPLETED");
}

#[test]
fn a_node_daemon_that_dies_repeats_no_prolog_and_forgets_no_epilog() {
    let script =
        "echo $SLURM_SCRIPT_CONTEXT >> DIR/told; while test -e DIR/wait-$SLURM_SCRIPT_CONTEXT; do sleep 0.05; done";
    let c = cluster("dies", BOTH, &[("prolog", script), ("epilog", script)]);
    fs::write(c.dir.join("wait-epilog_slurmd"), "").unwrap();
    c.ok(&["sbatch", "--parsable", "-w", "n1", "-o", "/dev/null", "--wrap", "sleep 2"]);
    c.seen(&["squeue", "-h", "-o", "%t"], |said| said == "R");
    while c.read("told").is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    c.kill("node-n1");
    c.ok(&["up"]);
    c.seen(&["squeue", "-h", "-o", "%t"], |said| said == "CG");
    while c.read("told").lines().count() < 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    c.kill("node-n1");
    fs::remove_file(c.dir.join("wait-epilog_slurmd")).unwrap();
    c.ok(&["up"]);
    c.seen(&["squeue", "-h", "-o", "%i"], str::is_empty);
    // The epilog that was cut off ran again.
    assert_eq!(c.read("told"), "prolog_slurmd\nepilog_slurmd\nepilog_slurmd\n");
}

#[test]
fn programs_of_the_controller_run_before_and_after_the_nodes() {
    let tables = "[hooks]\nprolog_slurmctld = \"DIR/before\"\nepilog_slurmctld = \"DIR/after\"\n";
    let told = "echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_EXIT_CODE >> DIR/told; test ! -e DIR/fail";
    let c = cluster("head", tables, &[("before", told), ("after", told)]);
    let script = format!("echo script >> {}/told; exit 2", c.dir.display());
    c.submit(&script);
    c.seen(&["squeue", "-h", "-o", "%i"], str::is_empty);
    let told: Vec<String> = c.read("told").lines().map(|line| line.trim().to_owned()).collect();
    assert_eq!(told, ["prolog_slurmctld", "script", "epilog_slurmctld 512"]);
    assert_eq!(c.ok(&["srun", "echo", "ran"]), "ran");
    fs::write(c.dir.join("fail"), "").unwrap();
    let job = c.submit("true");
    c.seen(&["squeue", "-h", "-j", &job, "-o", "%t"], |said| said == "PD");
    assert_eq!(c.state_of("n1").split(' ').next(), Some("idle"), "nodes are not at fault");
    c.ok(&["scancel", &job]);
}

#[test]
fn a_check_drains_its_node_and_returns_it() {
    let tables = "[health]\nprogram = \"DIR/check\"\ninterval_s = 1\nresume = true\n";
    let check = "test -e DIR/bad || exit 0; echo scratch is not mounted; echo more; exit 1";
    let c = cluster("check", tables, &[("check", check)]);
    c.ok(&["scontrol", "update", "nodename=n2", "state=drain", "reason=fan"]);
    fs::write(c.dir.join("bad"), "").unwrap();
    let sinfo = ["sinfo", "-h", "-N", "-n", "n1", "-o", "%t %E"];
    c.seen(&sinfo, |said| said == "drain Health check failed: scratch is not mounted");
    fs::remove_file(c.dir.join("bad")).unwrap();
    c.seen(&sinfo, |said| said.starts_with("idle"));
    assert_eq!(c.state_of("n2"), "drain fan");
}

#[test]
fn a_reboot_waits_for_the_jobs_and_the_node_comes_back() {
    let tables = "[health]\nreboot_program = \"DIR/reboot now\"\nresume_timeout_s = 50\n";
    // What a reboot does: all processes of the node end, and its spool in memory is gone.
    let reboot =
        "echo $1 >> DIR/told; kill -9 $(cat DIR/state/run/node-n1.pid); rm -r DIR/state/node/n1; echo >> DIR/done";
    let c = cluster("reboot", tables, &[("reboot", reboot)]);
    let job = c.ok(&["sbatch", "--parsable", "-w", "n1", "-o", "/dev/null", "--wrap", "sleep 3"]).trim().to_owned();
    c.seen(&["squeue", "-h", "-j", &job, "-o", "%t"], |said| said == "R");
    c.ok(&["scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel", "n1"]);
    assert_eq!(c.state_of("n1").split(' ').next(), Some("mix@"));
    c.ok(&["scontrol", "cancel_reboot", "n1"]);
    assert_eq!(c.state_of("n1").split(' ').next(), Some("mix"));
    c.ok(&["scontrol", "reboot", "ASAP", "n1"]);
    let sinfo = ["sinfo", "-h", "-N", "-n", "n1", "-o", "%t"];
    c.seen(&sinfo, |said| said == "boot^");
    assert_eq!(c.ok(&["sacct", "-nXPj", &job, "-o", "State"]).trim(), "COMPLETED");
    let begin = Instant::now();
    while c.read("done").is_empty() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(c.read("told"), "now\n");
    c.ok(&["up"]);
    c.seen(&sinfo, |said| said == "idle");
    assert_eq!(c.ok(&["srun", "-w", "n1", "echo", "back"]), "back");
    let refused = c.squall(&["scontrol", "reboot", "n9"]);
    assert!(!refused.status.success() && text(&refused).contains("n9"), "{}", text(&refused));
}

/// What a reboot does: all processes of the node end, its spool in memory is gone, and its daemon is started again. The
/// program itself outlives that, as the daemon's start does on a real machine.
const REBOOT: &str = "tree() { for child in $(cat /proc/$1/task/*/children); do
    [ $child = $$ ] || { echo $child; tree $child; }; done; }
daemon=$(cat DIR/state/run/node-$SLURMD_NODENAME.pid)
cat DIR/state/run/node-$SLURMD_NODENAME.pid >> DIR/ended
kill -9 $daemon $(tree $daemon); rm -r DIR/state/node/$SLURMD_NODENAME
while test -e DIR/off; do sleep 0.05; done
setsid SQUALL node $SLURMD_NODENAME --state=DIR/state >> DIR/state/log/node-$SLURMD_NODENAME.log 2>&1 < /dev/null &";

#[test]
fn a_job_that_asks_for_it_gets_nodes_that_have_rebooted() {
    let tables = "[health]\nreboot_program = \"DIR/reboot\"\nresume_timeout_s = 50\n";
    let script = REBOOT.replace("SQUALL", env!("CARGO_BIN_EXE_squall"));
    let c = cluster("job-reboots", tables, &[("reboot", &script)]);
    let pids = || ["n1", "n2"].map(|node| c.read(&format!("state/run/node-{node}.pid")).trim().to_owned());
    let before = pids();
    fs::write(c.dir.join("off"), "").unwrap();
    let told = format!("echo $SLURM_PROCID $SLURM_RESTART_COUNT. $SLURM_JOB_NODELIST >> {}/told", c.dir.display());
    let wrap = format!("{} srun sh -c '{told}'", env!("CARGO_BIN_EXE_squall"));
    let submit = ["sbatch", "--parsable", "--reboot", "-N2", "-n2", "-o", "/dev/null", "--wrap", &wrap];
    let job = c.ok(&submit).trim().to_owned();
    let queue = ["squeue", "-h", "-t", "all", "-j", &job, "-o", "%t"];
    assert_eq!(c.ok(&queue).trim(), "CF");
    let begin = Instant::now();
    while c.read("ended").lines().count() < 2 {
        assert!(begin.elapsed() < Duration::from_mins(1), "no reboot: {}", c.ok(&["sinfo", "-N"]));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its nodes are away: it waits, and nothing of it runs.
    assert_eq!((c.ok(&queue).trim(), &*c.read("told")), ("CF", ""));
    fs::remove_file(c.dir.join("off")).unwrap();
    c.seen(&queue, |said| said == "CD");
    let mut told: Vec<_> = c.read("told").lines().map(str::to_owned).collect();
    told.sort();
    assert_eq!(told, ["0 . n[1-2]", "1 . n[1-2]"], "once, on nodes that it got first");
    assert!(before.iter().zip(pids()).all(|(old, new)| *old != new), "other daemons run: {before:?}, {:?}", pids());
    c.seen(&["sinfo", "-h", "-N", "-o", "%t"], |said| said == "idle\nidle");
}

#[test]
fn a_node_that_has_killed_a_job_is_checked_before_its_next_one() {
    let tables = "[health]\nafter_fault = \"DIR/check\"\ninterval_s = 1\n";
    let check = "echo $SLURMD_NODENAME >> DIR/checked; test -e DIR/good || { echo fan is broken; exit 1; }";
    let reboot = REBOOT.replace("SQUALL", env!("CARGO_BIN_EXE_squall"));
    let c = cluster("after-fault", tables, &[("check", check), ("reboot", &reboot)]);
    let job = c.submit("sleep 60").trim().to_owned();
    let queue = ["squeue", "-h", "-j", &job, "-o", "%t %N"];
    c.seen(&queue, |said| said == "R n1");
    let run = Command::new("sh").arg(c.dir.join("reboot")).env("SLURMD_NODENAME", "n1").status().unwrap();
    assert!(run.success());
    c.seen(&queue, |said| said == "R n2");
    c.until("the check fails", || c.state_of("n1") == "drain after_fault: fan is broken");
    let shown = c.ok(&["scontrol", "show", "node", "n1"]);
    assert!(shown.contains("Faults=reboot@") && shown.contains(&format!("({job})")), "{shown}");
    let listed = c.ok(&["sinfo", "-h", "-N", "-n", "n1,n2", "-O", "NodeHost:4,Faults:80"]);
    assert!(listed.contains("n1  reboot@") && listed.contains("n2  (null)"), "{listed}");
    fs::write(c.dir.join("good"), "").unwrap();
    c.until("the check passes", || c.state_of("n1").starts_with("idle"));
    assert!(c.read("checked").lines().all(|node| node == "n1"));
    assert_eq!(c.ok(&["srun", "-w", "n1", "echo", "back"]), "back");
}
