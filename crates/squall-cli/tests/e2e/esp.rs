//! Light-ESP, scaled, on emulated nodes: whatever the aggregation and whoever dies, each end is counted once.

use std::process::Command;

use serde_json::Value;

#[test]
fn no_end_is_lost_or_counted_twice_with_aggregation_without_it_and_while_collectors_die() {
    let folder = std::env::temp_dir().join(format!("squall-esp-{}", std::process::id()));
    let out = Command::new(env!("CARGO_BIN_EXE_squall"))
        .args(["bench", "aggregate", "--nodes", "504", "--scale", "0.005", "--json", "--pictures"])
        .arg(&folder)
        .args(["--run", "on", "--run", "off", "--run", "kills", "--kill-every", "0.5", "--kills", "6"])
        .env_remove("SQUALL_STATE")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{told}");
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    let number = |run: usize, key: &str| found["runs"][run][key].as_i64().unwrap();
    for run in 0..3 {
        assert_eq!((number(run, "lost"), number(run, "failed")), (0, 0), "{}", found["runs"][run]);
        assert_eq!(number(run, "node_epilogs"), number(run, "oracle"));
    }
    // Each of so many nodes reports the end of each of its jobs.
    let [on, off] = [0, 1].map(|run| number(run, "messages"));
    assert!(off >= number(1, "oracle"), "without aggregation {off} messages");
    assert!(on * 4 < off, "with aggregation {on} messages, without {off}");
    assert_eq!(number(2, "kills"), 6);
    for name in ["esp-utilisation.svg", "esp-waits.svg"] {
        assert!(folder.join(name).metadata().unwrap().len() > 1000, "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
