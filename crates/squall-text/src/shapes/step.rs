//! JSON of `scontrol show step --json` and `scontrol ping --json`.

use serde_json::{Value, json};
use squall_model::time::Time;
use squall_model::wire::info::{ControllerInfo, ControllerRole, StepInfo};

use crate::format::job::{JobRow, tres};
use crate::format::words;
use crate::shapes::{number, or_infinite, time};

/// Slurm's task index of a job that is not a task of an array.
const NO_TASK: u32 = u32::MAX - 1;

/// Returns the JSON of a running step.
pub fn step(row: &JobRow, step: &StepInfo, cluster: &str, now: Time) -> Value {
    let state = step.end.as_ref().map_or("RUNNING", |(_, how)| words::end(how.state).0);
    let (array_job, array_task) = row.info.task.as_ref().map_or((0, NO_TASK), |task| (task.array.0, task.index));
    json!({
        "array": {"job_id": array_job, "task_id": array_task},
        "cluster": cluster,
        "id": format!("{}.{}", row.info.id, step.step),
        "name": step.name,
        "nodes": step.nodes,
        "number_cpus": step.num_cpus,
        "number_tasks": step.num_tasks,
        "partition": row.class.partition,
        "srun": {"host": row.spec.submit_host, "pid": 0},
        "state": [state],
        "task": {"distribution": "Block"},
        "time": {
            "running": number(Some(now.since(step.start).secs())),
            "start": time(Some(step.start)),
            "limit": or_infinite(step.time_limit_s.map(|s| s.div_ceil(60))),
        },
        "tres": {
            "allocation": tres(step.num_cpus, &row.memory(step.memory_mb), step.num_nodes, None),
        },
        "user": row.owner.user,
    })
}

/// Returns Slurm's word for the controller with this index, of `all`: `primary`, or `backup` and a number.
pub fn mode(index: usize, all: usize) -> String {
    match index {
        0 => "primary".to_owned(),
        1 if all == 2 => "backup".to_owned(),
        index => format!("backup{index}"),
    }
}

/// Returns how long the answer of a controller took, microseconds, as one of them has told what it knows of all after
/// `answered_us`; 0: that one does not know. None: the controller does not run.
pub fn answered(one: &ControllerInfo, answered_us: u64) -> Option<u64> {
    match one.role {
        ControllerRole::Down => None,
        ControllerRole::Leader => Some(answered_us),
        ControllerRole::Standby | ControllerRole::Joining => Some(0),
    }
}

/// Returns the JSON about a controller that answered after `answered_us` microseconds. None: it did not answer. `mode`:
/// `primary`, or `backup` and a number.
pub fn ping(host: &str, mode: &str, answered_us: Option<u64>) -> Value {
    json!({
        "hostname": host,
        "pinged": if answered_us.is_some() { "UP" } else { "DOWN" },
        "latency": answered_us.unwrap_or(0),
        "mode": mode,
        "responding": answered_us.is_some(),
        "primary": mode == "primary",
        "status": ping_status(answered_us.is_some()),
    })
}

/// Returns Slurm's word for whether a daemon has answered a ping.
pub fn ping_status(answered: bool) -> &'static str {
    if answered { "No error" } else { "Unable to contact slurm controller (connect failure)" }
}
