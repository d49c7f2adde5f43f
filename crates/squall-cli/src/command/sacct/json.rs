//! `sacct --json`: jobs with their steps in the shape of Slurm's data parser.

use serde_json::{Value, json};
use squall_model::hostlist;
use squall_model::resource::Memory;
use squall_model::time::{Span, Time};

use crate::command::sacct::row::Row;
use crate::format::json::{exit, joined, number, or_infinite};
use crate::format::words;

/// Jobs of rows in which each job's line stands before those of its steps.
pub(crate) fn jobs(rows: &[Row]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for row in rows {
        if row.is_step() {
            if let Some(steps) = all.last_mut().and_then(|job| job.get_mut("steps")).and_then(Value::as_array_mut) {
                steps.push(step(row));
            }
        } else {
            all.push(joined([identity(row), state(row), resources(row)]));
        }
    }
    all
}

fn seconds(time: Option<Time>) -> u64 {
    time.map_or(0, Time::secs)
}

fn span(span: Span) -> Value {
    json!({"seconds": span.secs(), "microseconds": span.0 % 1_000_000})
}

fn identity(row: &Row) -> Value {
    let (data, spec) = (&row.data, &row.data.spec);
    let array = data.task.map(|t| t.array).or(data.pending_tasks.as_ref().map(|_| data.id));
    json!({
        "account": data.account,
        "comment": {"administrator": "", "job": spec.comment.as_deref().unwrap_or_default(), "system": ""},
        "allocation_nodes": data.num_nodes,
        "array": {
            "job_id": array.map_or(0, |a| a.0),
            "limits": {"max": {"running": {"tasks": 0}}},
            "task_id": number(data.task.map(|t| u64::from(t.index))),
            "task": data.pending_tasks.as_ref().map(ToString::to_string).unwrap_or_default(),
        },
        "association": {
            "account": data.account, "cluster": &*row.cluster, "partition": "", "user": data.owner.user, "id": 0,
        },
        "cluster": &*row.cluster,
        "constraints": spec.need.constraint.as_deref().unwrap_or_default(),
        "container": "",
        "group": data.owner.group,
        "het": {
            "job_id": data.het.map_or(0, |het| het.leader.0),
            "job_offset": number(data.het.map(|het| u64::from(het.offset(data.id)))),
        },
        "job_id": data.id.0,
        "name": data.name,
        "licenses": spec.need.licenses.as_deref().unwrap_or_default(),
        "nodes": if data.nodes.is_empty() { "None assigned" } else { data.nodes.as_str() },
        "partition": data.partition,
        "priority": number(spec.priority.map(u64::from)),
        "qos": data.qos,
        "reservation": {"id": 0, "name": spec.reservation.as_deref().unwrap_or_default()},
        "restart_cnt": data.attempt.0.saturating_sub(1),
        "user": data.owner.user,
        "wckey": {"wckey": spec.wckey.as_deref().unwrap_or_default(), "flags": []},
        "working_directory": spec.work_dir,
        "submit_line": data.submit_line,
    })
}

fn killer(row: &Row) -> String {
    row.cancelled_by().map(|uid| uid.to_string()).unwrap_or_default()
}

fn state(row: &Row) -> Value {
    let data = &row.data;
    json!({
        "derived_exit_code": exit(data.derived_exit),
        "exit_code": exit(data.exit),
        "flags": [],
        "kill_request_user": killer(row),
        "state": {"current": words::state_list(data.state), "reason": row.reason()},
        "time": {
            "elapsed": row.elapsed(),
            "eligible": data.eligible.secs(),
            "end": seconds(row.end()),
            "planned": number(Some(row.planned())),
            "start": seconds(data.start),
            "submission": data.submit.secs(),
            "suspended": data.suspended_s,
            "system": span(data.usage.system),
            "limit": or_infinite(data.time_limit_s.map(|s| s.div_ceil(60))),
            "total": span(row.total_cpu()),
            "user": span(data.usage.user),
        },
    })
}

fn resources(row: &Row) -> Value {
    let data = &row.data;
    let (per_node, per_cpu) = match data.spec.need.memory {
        Memory::Unset => (None, None),
        Memory::PerNodeMb(mb) => (Some(mb), None),
        Memory::PerCpuMb(mb) => (None, Some(mb)),
    };
    let held = data.start.map(|_| tres(data.num_cpus, data.memory_mb, data.num_nodes));
    json!({
        "required": {"CPUs": data.req_cpus, "memory_per_cpu": number(per_cpu), "memory_per_node": number(per_node)},
        "tres": {
            "allocated": held.unwrap_or_else(|| json!([])),
            "requested": tres(data.req_cpus, row.req_memory_mb(), row.req_nodes()),
        },
        "steps": [],
    })
}

fn tres(cpus: u32, memory_mb: u64, nodes: u32) -> Value {
    json!([
        {"type": "cpu", "name": "", "id": 1, "count": cpus},
        {"type": "mem", "name": "", "id": 2, "count": memory_mb},
        {"type": "node", "name": "", "id": 4, "count": nodes},
        {"type": "billing", "name": "", "id": 5, "count": cpus},
    ])
}

fn step(row: &Row) -> Value {
    let data = &row.data;
    let peak = json!({
        "type": "mem", "name": "", "id": 2, "count": data.usage.max_rss_kb * 1024,
        "task": data.usage.max_rss_task, "node": row.first_node(),
    });
    let average = json!({"type": "mem", "name": "", "id": 2, "count": row.average(data.usage.total_rss_kb) * 1024});
    json!({
        "time": {
            "elapsed": row.elapsed(),
            "end": number(Some(seconds(row.end()))),
            "start": number(Some(seconds(data.start))),
            "suspended": data.suspended_s,
            "system": span(data.usage.system),
            "total": span(row.total_cpu()),
            "user": span(data.usage.user),
        },
        "exit_code": exit(data.exit),
        "nodes": {
            "count": data.num_nodes,
            "range": data.nodes,
            "list": hostlist::expand(&data.nodes).unwrap_or_default(),
        },
        "tasks": {"count": data.num_tasks},
        "kill_request_user": killer(row),
        "state": words::state_list(data.state),
        "step": {"id": row.raw_id(), "name": data.name},
        "task": {"distribution": if row.is_batch() { "Unknown" } else { "Block" }},
        "tres": {
            "allocated": tres(data.num_cpus, data.memory_mb, data.num_nodes),
            "requested": {"max": [peak], "average": [average]},
        },
    })
}
