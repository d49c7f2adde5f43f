//! Benchmarks of one minute and less run to their end, at sizes that take no time. Figures are not looked at.

use std::process::Command;

use serde_json::Value;

#[test]
fn benchmarks_run_to_their_end() {
    for args in [
        &["restart", "--pending", "2000", "--running", "200"][..],
        &["spawn", "--seconds", "1", "--workers", "2"],
        &["throughput", "--emulated", "50", "--jobs", "500"],
        &["throughput", "--emulated", "50", "--jobs", "500", "--cells", "2"],
        &["submit", "--jobs", "500"],
        &["records", "--jobs", "3000", "--clients", "2"],
        &["query", "--nodes", "50", "--real", "2"],
        &["hop"],
        &["wide", "--nodes", "50", "--jobs", "45"],
        &["layout"],
        &["schedule", "--nodes", "50", "--pending", "500"],
    ] {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_squall"));
        bench.arg("bench").args(args).arg("--json").env_remove("SQUALL_STATE");
        let out = bench.output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let found: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(found["bench"] == args[0] && found["figure"].as_f64() > Some(0.0), "{found}");
    }
}
