//! `--json` of what has no file of its own: steps, and whether the controller answers.

use serde_json::{Value, json};
use squall_model::time::Time;
use squall_model::wire::info::StepInfo;

use crate::format::job::{JobRow, tres};
use crate::format::json::{number, time};
use crate::format::words;

/// A step that runs.
pub(super) fn step(row: &JobRow, step: &StepInfo, cluster: &str, now: Time) -> Value {
    let state = step.end.as_ref().map_or("RUNNING", |(_, how)| words::end(how.state).0);
    let (array_job, array_task) = row.info.task.as_ref().map_or((0, 0), |task| (task.array.0, task.index));
    json!({
        "array": {"job_id": array_job, "task_id": array_task},
        "cluster": cluster,
        "container": "",
        "container_id": "",
        "cpu": {"frequency": {"min": number(None), "max": number(None), "governor": number(None)}},
        "id": format!("{}.{}", row.info.id, step.step),
        "name": step.name,
        "network": "",
        "nodes": step.nodes,
        "number_cpus": step.num_cpus,
        "number_tasks": step.num_tasks,
        "partition": row.class.partition,
        "reserved_ports": "",
        "srun": {"host": row.spec.submit_host, "pid": 0},
        "state": [state],
        "submit_line": "",
        "task": {"distribution": "Block"},
        "time": {
            "running": number(Some(now.since(step.start).secs())),
            "start": time(Some(step.start)),
            "limit": number(None),
        },
        "tres": {
            "allocation": tres(step.num_cpus, &row.memory(step.memory_mb), step.num_nodes),
            "binding": "",
            "frequency": "",
            "per": {"cpu": "", "memory": "", "step": "", "node": "", "socket": "", "task": ""},
        },
        "user": row.owner.user,
    })
}

/// The controller, which answered after so many microseconds or does not.
pub(super) fn ping(host: &str, answered_us: Option<u64>) -> Value {
    json!({
        "hostname": host,
        "pinged": if answered_us.is_some() { "UP" } else { "DOWN" },
        "latency": answered_us.unwrap_or(0),
        "mode": "primary",
    })
}
