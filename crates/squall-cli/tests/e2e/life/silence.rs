//! Nodes that fall silent: how soon that shows, and that it takes nobody else along.

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
