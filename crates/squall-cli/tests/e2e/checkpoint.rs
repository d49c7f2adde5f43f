//! Jobs step aside to disk and come back where they were, with a real CRIU. Skipped where none can be had, or without
//! root.

mod kills;
mod mpi;
mod nodes;
mod restores;
mod steps;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use crate::criu::criu;
use crate::harness::{Cluster, accepted, text};
use crate::traces::processes;

/// Counts to `$1`, a number each tenth of a second, in a pipeline with a child, and ends with exit code 7.
const COUNTER: &str = "#!/bin/bash\n( for i in $(seq \"$1\"); do echo $i; sleep 0.1; done ) | cat\nexit 7\n";

fn cluster(test: &str) -> Option<Cluster> {
    cluster_with(test, "", "")
}

/// Keys and tables by which jobs of the partition `high` preempt those of `low`.
const KEYS: &str = "PreemptType = \"preempt/partition_prio\"\nPreemptMode = \"CHECKPOINT,REQUEUE\"\n";
const PARTITIONS: &str = "[[partitions]]\nname = \"low\"\ndefault = true\n\
                          [[partitions]]\nname = \"high\"\npriority_tier = 2\n";

/// Starts a cluster of one node whose configuration has more keys and tables.
fn cluster_with(test: &str, keys: &str, tables: &str) -> Option<Cluster> {
    let criu = criu()?;
    let c = Cluster::new("checkpoint", test);
    let dir = c.path("checkpoints");
    // CRIU, which is killed in the next dump of a job if the file `kill` is there. The file `hold` names the moment at which
    // the next restore stops, until the file `held` is gone: before CRIU, or at an action of CRIU.
    let text = "case \"$*\" in\n\
                dump*--freeze-cgroup*) [ ! -e DIR/kill ] || { rm DIR/kill; kill -9 $$; };;\n\
                restore*) CRTOOLS_SCRIPT_ACTION=begin DIR/action; set -- \"$@\" --action-script DIR/action;;\n\
                esac\n\
                exec CRIU \"$@\"";
    c.script("criu", &text.replace("CRIU", criu.to_str().unwrap()));
    c.script(
        "action",
        "[ \"$CRTOOLS_SCRIPT_ACTION\" = \"$(cat DIR/hold 2>/dev/null)\" ] || exit 0\n\
         mv DIR/hold DIR/held\n\
         while [ -e DIR/held ]; do sleep 0.01; done",
    );
    // Where cgroups of version 1 limit the cores, scripts have step daemons of their own, which restore nothing yet.
    let config = format!(
        "constrain_cores = false\ncheckpoint_dir = \"{dir}\"\ncriu = \"{}\"\n{keys}[[nodes]]\nname = \"n1\"\n{tables}",
        c.path("criu")
    );
    c.write("c.toml", &config);
    c.said(&["up", "--config", "c.toml"]);
    c.write("count.sh", COUNTER);
    Some(c)
}

/// Returns the folders in shared memory of which tasks of the cluster's steps know.
fn rooms(c: &Cluster) -> BTreeSet<PathBuf> {
    let environments = processes(&c.dir).into_iter().map(|(pid, _)| fs::read(format!("/proc/{pid}/environ")));
    let words =
        environments.flatten().flat_map(|bytes| bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>());
    let rooms = words.filter_map(|word| {
        word.strip_prefix(b"PMIX_SERVER_TMPDIR=").map(|room| String::from_utf8_lossy(room).into_owned())
    });
    // Those of mpirun have other names.
    rooms.filter(|room| room.contains("/squall-")).map(PathBuf::from).collect()
}

/// Waits until folders in shared memory are gone.
fn gone(c: &Cluster, rooms: &BTreeSet<PathBuf>) {
    c.until("nothing is left in shared memory", || !rooms.iter().any(|room| room.exists()));
}

fn numbers(c: &Cluster) -> Vec<u32> {
    c.read("out").lines().map(|line| line.parse().unwrap()).collect()
}

/// Returns the numbers of an output, without what else is in it.
fn numbers_in(out: &str) -> Vec<u32> {
    out.lines().filter_map(|line| line.parse().ok()).collect()
}

fn counted(c: &Cluster, least: usize) -> bool {
    c.dir.join("out").exists() && numbers_in(&c.read("out")).len() >= least
}

fn state(c: &Cluster) -> String {
    c.ok(&["squeue", "-h", "-j", "1", "-t", "all", "-o", "%T %r"])
}

/// The whole way: the job is asked, checkpointed while it runs, put aside and held, shown, and comes back; each line of
/// its output is there once, and its exit code is its own.
#[test]
fn a_job_steps_aside_and_comes_back_where_it_was() {
    let Some(c) = cluster("aside") else { return };
    c.ok(&["sbatch", "-o", "out", "count.sh", "150"]);
    c.until("it counts", || counted(&c, 5));
    assert_eq!(c.ok(&["scontrol", "checkpoint", "able", "1"]), "Yes");
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(shown.contains("JobState=RUNNING") && shown.contains("Checkpoint=1 "), "{shown}");
    c.until("it counts on", || counted(&c, 30));
    c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
    c.until("it is held", || state(&c).starts_with("PENDING"));
    let why = c.ok(&["why", "1"]);
    assert!(why.contains("Checkpointed"), "{why}");
    let there = numbers(&c).len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(numbers(&c).len(), there, "nothing of it runs");
    c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    c.until("it counts on", || counted(&c, there + 5));
    // The node daemon's next run knows the restored processes.
    c.kill("node-n1");
    c.said(&["up"]);
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(numbers(&c), (1..=150).collect::<Vec<_>>());
    let rows = c.ok(&["sacct", "-D", "-X", "-n", "-P", "-j", "1", "-o", "State,ExitCode"]);
    assert_eq!(rows, "REQUEUED|0:0\nFAILED|7:0");
    assert!(c.ok(&["scontrol", "show", "job", "1"]).contains("Checkpoint=2 "));
    c.until("its checkpoints are gone", || !c.dir.join("checkpoints/1").exists());
}

/// What went on after a checkpoint is taken back: processes, memory and output.
#[test]
fn a_running_job_goes_back_to_its_last_checkpoint() {
    let Some(c) = cluster("back") else { return };
    c.ok(&["sbatch", "-o", "out", "count.sh", "60"]);
    c.until("it counts", || counted(&c, 5));
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    c.until("it counts on", || counted(&c, 30));
    c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(numbers(&c), (1..=60).collect::<Vec<_>>());
}

/// What can't be checkpointed is refused with its cause, and the job runs on.
#[test]
fn what_can_not_be_checkpointed_is_refused_by_name() {
    let Some(c) = cluster("refused") else { return };
    c.write("left.sh", "#!/bin/bash\n(sleep 100 &)\nsleep 100\n");
    c.ok(&["sbatch", "left.sh"]);
    c.until("it runs", || state(&c).starts_with("RUNNING"));
    std::thread::sleep(Duration::from_millis(300));
    let out = c.squall(&["scontrol", "checkpoint", "vacate", "1"]);
    assert!(!out.status.success() && text(&out).contains("runs on in the background"), "{}", text(&out));
    assert!(state(&c).starts_with("RUNNING"));
    c.script("step.sh", "SQUALL srun sleep 100");
    c.ok(&["sbatch", "step.sh"]);
    c.until("its step runs", || c.ok(&["squeue", "-h", "-s"]).contains("2.0"));
    let out = c.squall(&["scontrol", "checkpoint", "able", "2"]);
    assert!(!out.status.success() && text(&out).contains("step 0 runs"), "{}", text(&out));
    c.ok(&["scancel", "1", "2"]);
    // A connection to elsewhere.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    c.write(
        "connected.sh",
        &format!("#!/bin/bash\nsleep 0.1 | exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; read <&3'\n"),
    );
    c.ok(&["sbatch", "connected.sh"]);
    let _connected = accepted(&server);
    let out = c.squall(&["scontrol", "checkpoint", "able", "3"]);
    let said = text(&out);
    assert!(!out.status.success() && said.contains("(bash) is connected to 127.0.0.1:"), "{said}");
    c.ok(&["scancel", "3"]);
    // CRIU would be what its mounts have under that name.
    c.write("mounts.sh", "#!/bin/sh\nexec unshare --user --map-root-user --mount sleep 100\n");
    c.ok(&["sbatch", "mounts.sh"]);
    let mut said = String::new();
    c.until("it is refused", || {
        said = text(&c.squall(&["scontrol", "checkpoint", "able", "4"]));
        said.contains("has a user namespace of its own")
    });
    assert!(said.starts_with("No: process "), "{said}");
    c.ok(&["scancel", "4"]);
}

/// The node daemon, and CRIU, are killed while a job is being checkpointed: it runs on, to the right result.
#[test]
fn kills_while_a_checkpoint_is_made_leave_the_running_job() {
    let Some(c) = cluster("killed") else { return };
    c.ok(&["sbatch", "-o", "out", "count.sh", "100"]);
    c.until("it counts", || counted(&c, 5));
    for pause in [5, 40, 90] {
        let mut vacate = c.command(&["scontrol", "checkpoint", "create", "1"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        c.kill("node-n1");
        c.said(&["up"]);
        // Its order is sent again to the node daemon.
        assert!(vacate.wait().unwrap().success());
    }
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(numbers(&c), (1..=100).collect::<Vec<_>>());
}

/// Submits a job that takes the place of the counting one for a moment.
fn preempt(c: &Cluster) -> String {
    let said = c.ok(&["sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 0.2"]);
    said.split_whitespace().last().unwrap().to_owned()
}

fn completed(c: &Cluster, id: &str) -> bool {
    c.ok(&["squeue", "-h", "-j", id, "-t", "all", "-o", "%T"]) == "COMPLETED"
}

/// A preempted job goes to disk and comes back by itself, five times (or SQUALL_CHECKPOINT_ROUNDS), although it may not be
/// requeued.
#[test]
fn a_preempted_job_steps_aside_and_comes_back_by_itself() {
    let Some(c) = cluster_with("preempted", KEYS, PARTITIONS) else { return };
    let rounds = std::env::var("SQUALL_CHECKPOINT_ROUNDS").map_or(5, |text| text.parse().unwrap());
    let most = 12 * rounds + 40;
    c.ok(&["sbatch", "--exclusive", "--no-requeue", "-o", "out", "count.sh", &most.to_string()]);
    for round in 1..=rounds {
        c.until("it counts", || counted(&c, 8 * round));
        let other = preempt(&c);
        c.until("the other job has run", || completed(&c, &other));
    }
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(numbers(&c), (1..=most as u32).collect::<Vec<_>>());
    let rows = c.ok(&["sacct", "-D", "-X", "-n", "-P", "-j", "1", "-o", "State,ExitCode"]);
    assert_eq!(rows, format!("{}FAILED|7:0", "PREEMPTED|0:0\n".repeat(rounds)));
}

/// A job that can't be checkpointed is requeued in place of that.
#[test]
fn a_preempted_job_that_can_not_be_checkpointed_is_requeued() {
    let Some(c) = cluster_with("requeued", KEYS, PARTITIONS) else { return };
    c.write("own.sh", "#!/bin/bash\necho run >> runs\nexec unshare --user sleep 2\n");
    c.ok(&["sbatch", "--exclusive", "--requeue", "own.sh"]);
    c.until("it runs", || c.dir.join("runs").exists());
    let other = preempt(&c);
    c.until("the other job has run", || completed(&c, &other));
    c.until("it has ended", || completed(&c, "1"));
    assert_eq!(c.read("runs"), "run\nrun\n");
}

/// The controller checkpoints a job by itself, and ends one that can't be but must.
#[test]
fn a_job_is_checkpointed_by_itself_and_must_be() {
    let Some(c) = cluster("itself") else { return };
    c.ok(&["sbatch", "--checkpoint=0:01", "-o", "out", "count.sh", "80"]);
    let checkpointed = |number: u32| c.ok(&["scontrol", "show", "job", "1"]).contains(&format!("Checkpoint={number} "));
    c.until("two checkpoints count", || checkpointed(2));
    c.ok(&["scontrol", "requeue", "1"]);
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(numbers(&c), (1..=80).collect::<Vec<_>>());
    c.write("own.sh", "#!/bin/bash\nexec unshare --user sleep 100\n");
    c.ok(&["sbatch", "--checkpoint=0:01,must", "-o", "must", "own.sh"]);
    c.until("it has ended", || c.ok(&["squeue", "-h", "-j", "2", "-t", "all", "-o", "%T"]) == "FAILED");
    let shown = c.ok(&["scontrol", "show", "job", "2"]);
    assert!(shown.contains("ExitCode=1:0") && shown.contains("has_a_user_namespace_of_its_own"), "{shown}");
    assert!(c.read("must").contains("CAN'T BE CHECKPOINTED"), "{}", c.read("must"));
}
