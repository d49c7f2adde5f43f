//! Nodes that fall silent: how soon that shows, and that no other node goes down with it.

use std::time::{Duration, Instant};

use super::Life;
use crate::harness::Cluster;

/// Starts four nodes in a tree where n1 is the parent of n2, and n3 that of n4.
fn four(test: &str, config: &str) -> Cluster {
    let c = Cluster::new("silence", test);
    let nodes = "tree_width = 2\n[[nodes]]\nname = \"n[1-4]\"\ncpus = 1\nmemory_mb = 100\nforce = true\n";
    c.up(&format!("{config}\n{nodes}"), &[]);
    for (node, parent) in [("n2", "n1"), ("n4", "n3")] {
        assert!(c.read(&format!("state/log/node-{node}.log")).contains(&format!("attached to {parent}")));
    }
    c
}

/// The states of all nodes, as `idle*`.
fn states(c: &Cluster) -> Vec<String> {
    c.ok(&["sinfo", "-hN", "-o", "%t"]).lines().map(str::to_owned).collect()
}

#[test]
fn a_connection_that_is_reset_shows_at_once() {
    let c = four("reset", "");
    // Heartbeats come every 10 s, and two of them must be missed: they can't be what shows it.
    let soon = |what: &str, holds: &dyn Fn(&[String]) -> bool| {
        let begin = Instant::now();
        while !holds(&states(&c)) {
            assert!(begin.elapsed() < Duration::from_secs(8), "{what}: {:?}", states(&c));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    c.kill("node-n2");
    soon("the child of a node", &|states| states == ["idle", "idle*", "idle", "idle"]);
    c.kill("node-n3");
    soon("a relay, and the node behind it is heard again", &|states| states == ["idle", "idle*", "idle*", "idle"]);
}

#[test]
fn silence_is_seen_within_a_small_timeout_and_takes_nobody_along() {
    let c = four("small", "node_timeout_s = 9");
    c.write("short.toml", "node_timeout_s = 5\ntree_width = 2\n[[nodes]]\nname = \"n[1-4]\"\ncpus = 1\n");
    c.fails(&["check", &c.path("short.toml")], "node_timeout_s = 5: use 6 or more, as less takes down healthy nodes");
    let begin = Instant::now();
    c.signal("node-n1", "-STOP");
    while states(&c)[0] != "down*" {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", states(&c));
        assert!(states(&c)[1..].iter().all(|state| !state.starts_with("down")), "{:?}", states(&c));
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(begin.elapsed() > Duration::from_secs(5), "not before its time");
    assert_eq!(c.ok(&["srun", "-N3", "-w", "n[2-4]", "-l", "true"]), "");
    c.signal("node-n1", "-CONT");
    c.until("it is back", || states(&c) == ["idle", "idle", "idle", "idle"]);
}

/// The process ids that the tasks of a job wrote on a node, in the given attempt.
fn tasks_on(c: &Cluster, attempt: &str, node: &str) -> Vec<u32> {
    let begin = format!("task {attempt} {node} ");
    c.read("marks").lines().filter_map(|line| line.strip_prefix(&begin)?.parse().ok()).collect()
}

#[test]
fn a_fenced_job_ends_on_a_silent_node_by_itself_and_runs_again_without_an_operator() {
    let c = Cluster::new("silence", "fence");
    let nodes = "[[nodes]]\nname = \"n[1-3]\"\ncpus = 1\nmemory_mb = 100\nforce = true\n";
    c.up(&format!("node_timeout_s = 6\n{nodes}"), &[]);
    c.fails(&["sbatch", "--node-fence", "--wrap", "true"], "no node_fence_s is configured");
    c.fails(&["sbatch", "--node-fence=29", "--wrap", "true"], "use 30 or more seconds");
    c.script("task", "echo task $1 $SLURMD_NODENAME $$ >>DIR/marks; exec sleep 600");
    let script = "echo begin $SLURM_RESTART_COUNT $SLURM_JOB_NODELIST >>DIR/marks\n\
                  [ \"$SLURM_RESTART_COUNT\" = 1 ] && exit 0\n\
                  SQUALL srun DIR/task 0";
    c.script("job", script);
    let job = c.ok(&["sbatch", "--parsable", "--node-fence=30", "-N2", "-o", "/dev/null", &c.path("job")]);
    c.until("its tasks run", || ["n1", "n2"].iter().all(|node| tasks_on(&c, "0", node).len() == 1));
    let task = tasks_on(&c, "0", "n1")[0];
    let begin = Instant::now();
    // Nothing that could end the task is left to the node but the guard.
    c.signal("node-n1", "-STOP");
    c.until("it shows", || c.ok(&["squeue", "-h", "-o", "%r"]) == "NodeNotResponding");
    assert!(
        c.ok(&["squall", "why", &job][1..]).contains("It has a node fence: its processes there end by themselves.")
    );
    c.until("the guard ends its task", || crate::harness::is_over(task));
    assert!(begin.elapsed() > Duration::from_secs(25), "not before its time: {:?}", begin.elapsed());
    c.until("it runs again", || c.read("marks").contains("begin 1 n[2-3]"));
    assert!(begin.elapsed() < Duration::from_secs(50), "{:?}", begin.elapsed());
    c.signal("node-n1", "-CONT");
    c.until("it is over", || c.ok(&["squeue", "-h"]).is_empty());
    c.until("n1 is back", || states(&c) == ["idle", "idle", "idle"]);
    assert_eq!(c.read("marks").matches("begin").count(), 2);
}
