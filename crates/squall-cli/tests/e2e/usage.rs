//! What steps use over time, measured by real daemons.

use serde_json::Value;

use crate::harness::Cluster;

/// Returns the usage over time of a step of a job as the report has it.
fn over_time(c: &Cluster, job: &str, step: usize) -> Value {
    let text = c.ok(&["report", job, "--json"]);
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    report["jobs"][0]["steps"][step]["over_time"].clone()
}

#[test]
#[ignore = "nodes measure each 10 s: half a minute; make nightly runs it"]
fn what_steps_use_over_time_is_reported_while_they_run_and_afterwards() {
    let c = Cluster::new("usage", "series");
    c.ok(&["up", "--nodes", "2"]);
    // One of the two tasks is idle.
    let task = "test $SLURM_PROCID = 1 && sleep 33 || timeout 33 sh -c 'while :; do :; done'; true";
    let script = format!("SQUALL srun -N2 -n2 sh -c \"{}\"", task.replace('$', "\\$"));
    let job = c.ok(&["sbatch", "--parsable", "-N2", "-o", "/dev/null", "--wrap", &c.filled(&script)]);
    std::thread::sleep(std::time::Duration::from_secs(26));
    let live = over_time(&c, job.trim(), 1);
    assert_eq!(live["nodes"], 2, "{live}");
    c.until("the job ends", || c.ok(&["squeue", "-h", "-j", job.trim()]).is_empty());
    let kept = over_time(&c, job.trim(), 1);
    let numbers =
        |name: &str| -> Vec<f64> { kept[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect() };
    assert!(numbers("cpus").len() >= 3 && numbers("memory_kb").iter().all(|kb| *kb > 100.0), "{kept}");
    let (low, high) = (numbers("node_cpus_min"), numbers("node_cpus_max"));
    assert!(low.iter().all(|cpus| *cpus < 0.2) && high.iter().any(|cpus| *cpus > 0.2), "{kept}");
    assert!(c.ok(&["report", job.trim()]).contains("step 0 over time, a bar is 00:00:10"));
}
