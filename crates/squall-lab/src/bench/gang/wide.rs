//! CPU time that strobes cost a controller with many emulated nodes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use squall_model::encoding::ByteBuf;
use squall_model::id::ClientKey;
use squall_model::job::{JobSpec, Need};
use squall_model::wire::client::{Answer, Request};

use crate::bench::cluster::Cluster;
use crate::bench::round;
use crate::client::unexpected;

/// Time for which the controller is observed, with and without strobes.
const WATCHED: Duration = Duration::from_secs(8);

/// Configuration with time slices of 10 ms.
const CONFIG: &str = "coscheduling = \"gang\"\nSchedulerTimeSlice = \"10ms\"\n\
    [[partitions]]\nname = \"gang\"\nOverSubscribe = \"FORCE:2\"\n";

pub(super) fn strobe(nodes: u32) -> Result<Value, String> {
    let cluster = Cluster::rack(nodes, CONFIG)?;
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, nodes)?;
    let text = std::fs::read_to_string(cluster.place().controller_pid()).map_err(|e| e.to_string())?;
    let pid = text.split_whitespace().next().unwrap_or_default().to_owned();
    let watch = || -> Result<f64, String> {
        let before = cpu_s(&pid)?;
        std::thread::sleep(WATCHED);
        Ok(cpu_s(&pid)? - before)
    };
    let without = watch()?;
    for number in 0..2 {
        match client.ask(&job(nodes, number)).map_err(|e| e.to_string())? {
            Answer::Submitted { .. } => {}
            _ => return Err(unexpected().to_string()),
        }
    }
    // By then all tasks have been launched.
    std::thread::sleep(Duration::from_secs(2));
    let before = Cluster::diag(&mut client)?.gang;
    let with = watch()?;
    let after = Cluster::diag(&mut client)?.gang;
    let strobes = (after.strobes - before.strobes).max(1);
    let each_us = (with - without).max(0.0) * 1e6 / strobes as f64;
    Ok(json!({
        "nodes": after.nodes,
        "jobs": after.jobs,
        "strobes": strobes,
        "cpu_of_each_us": round(each_us),
        "controller_cpu_percent": round(with / WATCHED.as_secs_f64() * 100.0),
        "without_gangs_percent": round(without / WATCHED.as_secs_f64() * 100.0),
        "model_of_one_each_10_ms_percent": round(each_us * 100.0 / 1e4 + without / WATCHED.as_secs_f64() * 100.0),
    }))
}

/// Returns the CPU time of a process in seconds.
fn cpu_s(pid: &str) -> Result<f64, String> {
    let path = format!("/proc/{pid}/task");
    let mut total = 0.0;
    for thread in std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?.flatten() {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        total += text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9;
    }
    Ok(total)
}

/// Returns a submission of a job that takes all cores of all nodes.
fn job(nodes: u32, number: u64) -> Request {
    let need = Need { nodes_min: Some(nodes), nodes_max: Some(nodes), exclusive: true, ..Need::default() };
    let spec = JobSpec {
        name: "gang".into(),
        work_dir: "/".into(),
        command: "gang".into(),
        stdout: Some("/dev/null".into()),
        submit_line: "squall bench gang".into(),
        comment: Some("timer_ms=60000".into()),
        need,
        ..JobSpec::default()
    };
    let key = ClientKey(u128::from(number) << 64 | u128::from(std::process::id()));
    Request::Submit {
        spec: Arc::new(spec),
        script: ByteBuf::from(b"#!/bin/true\n".to_vec()),
        env: ByteBuf::from(b"PATH=/usr/bin:/bin\0".to_vec()),
        key,
    }
}
