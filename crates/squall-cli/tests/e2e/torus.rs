//! A live cluster of emulated nodes on a torus places the synthetic workload as the simulator does.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_live_torus_places_jobs_as_the_simulator_does() {
    let out = Command::new(env!("CARGO_BIN_EXE_squall"))
        .args(["bench", "torus", "--nodes", "6", "--jobs", "60", "--seeds", "5", "--json"])
        .env_remove("SQUALL_STATE")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((found["figure"].as_f64(), found["ratio"].as_f64()), (Some(60.0), Some(1.0)), "{found}");
    // Not all of them start in turn, and most of the time most of the machine is in use.
    assert!(found["passed_others"].as_u64() > Some(5) && found["utilisation"].as_f64() > Some(0.4), "{found}");
}
