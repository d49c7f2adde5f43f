//! JSON of `sacct --json`: ended and running jobs in accounting, with their steps.

use serde_json::{Value, json};
use squall_model::gres;
use squall_model::hostlist;
use squall_model::policy::Tres;
use squall_model::resource::Memory;
use squall_model::time::{Span, Time};

use crate::columns::accounting::{stderr, stdin, stdout};
use crate::format::accounting::Row;
use crate::format::words;
use crate::shapes::{exit, joined, narrow, number, or_infinite, time};

/// Returns the jobs, each with its steps. In `rows`, steps follow the job that they belong to.
pub fn jobs(rows: &[Row], user: &dyn Fn(u32) -> String) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for row in rows {
        if row.is_step() {
            if let Some(steps) = all.last_mut().and_then(|job| job.get_mut("steps")).and_then(Value::as_array_mut) {
                steps.push(step(row, user));
            }
        } else {
            all.push(joined([identity(row), state(row, user), files(row), resources(row)]));
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
    let notes = &spec.options.notes;
    json!({
        "account": data.account,
        "comment": {
            "administrator": notes.admin_comment.as_deref().unwrap_or_default(), "job": spec.comment.as_deref().unwrap_or_default(),
            "system": system_comment(row),
        },
        "allocation_nodes": data.num_nodes,
        "array": {
            "job_id": array.map_or(0, |a| a.0),
            "limits": {"max": {"running": {"tasks": spec.array.as_ref().and_then(|array| array.limit).unwrap_or(0)}}},
            "task_id": number(data.task.map(|t| u64::from(t.index))),
            "task": data.pending_tasks.as_ref().map(ToString::to_string).unwrap_or_default(),
        },
        "association": {"account": data.account, "cluster": &*row.cluster, "user": data.owner.user},
        "cluster": &*row.cluster,
        "constraints": spec.need.constraint.as_deref().unwrap_or_default(),
        "container": "",
        "extra": notes.extra.as_deref().unwrap_or_default(),
        "group": data.owner.group,
        "het": {
            "job_id": data.het.map_or(0, |het| het.leader.0),
            "job_offset": number(data.het.map(|het| u64::from(het.offset(data.id)))),
        },
        "job_id": data.id.0,
        "name": data.name,
        "licenses": spec.need.licenses.as_deref().unwrap_or_default(),
        "mcs": {"label": ""},
        "nodes": if data.nodes.is_empty() { "None assigned" } else { data.nodes.as_str() },
        "partition": data.partition,
        "hold": spec.is_held(),
        "priority": narrow(spec.priority),
        "qos": data.qos,
        "qosreq": spec.qos.as_deref().unwrap_or_default(),
        "reservation": {
            "name": spec.reservation.as_deref().unwrap_or_default(),
            "requested": spec.reservation.as_deref().unwrap_or_default(),
        },
        "submit_line": data.submit_line,
        "user": data.owner.user,
        "wckey": {"wckey": spec.wckey.as_deref().unwrap_or_default()},
    })
}

fn killer(row: &Row, user: &dyn Fn(u32) -> String) -> String {
    row.cancelled_by().map(user).unwrap_or_default()
}

/// Returns the comment of the system. By default it says what failed nodes have cost the job, in seconds.
fn system_comment(row: &Row) -> String {
    if let Some(comment) = &row.data.spec.options.notes.system_comment {
        return comment.clone();
    }
    let Some(losses) = &row.data.losses else { return String::new() };
    let cost = row.cost();
    let causes = cost.lost.causes().map(|(cause, span)| format!(" {cause}={}", span.secs()));
    format!("nodes_lost={} ettr={:.3}{}", losses.losses.len(), cost.ettr(), causes.concat())
}

fn state(row: &Row, user: &dyn Fn(u32) -> String) -> Value {
    let data = &row.data;
    json!({
        "derived_exit_code": exit(data.derived_exit),
        "exit_code": exit(data.exit),
        "kill_request_user": killer(row, user),
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

fn files(row: &Row) -> Value {
    let spec = &row.data.spec;
    let pattern = |path: &Option<String>| path.clone().unwrap_or_default();
    json!({
        "stdin_expanded": stdin(row),
        "stdout_expanded": stdout(row),
        "stderr_expanded": stderr(row),
        "stdout": pattern(&spec.stdout),
        "stderr": pattern(&spec.stderr),
        "stdin": spec.stdin.as_deref().unwrap_or("/dev/null"),
        "working_directory": spec.work_dir,
    })
}

fn resources(row: &Row) -> Value {
    let data = &row.data;
    let (per_node, per_cpu) = match data.spec.need.memory {
        Memory::Unset => (Some(0), None),
        Memory::PerNodeMb(mb) => (Some(mb), None),
        Memory::PerCpuMb(mb) => (None, Some(mb)),
    };
    let asked = gres::Ask::of_job(&data.spec).unwrap_or_default();
    let tres = |cpus: u32, memory_mb: u64, nodes: u32, billing: u64| {
        let mut all = tres(cpus, memory_mb, nodes);
        all.push(resource(Tres::Billing.name(), "", Tres::Billing.id(), billing));
        let devices = asked.totals(nodes, data.num_tasks).into_iter();
        all.extend(devices.map(|(name, count)| resource("gres", &name, GRES_ID, u64::from(count))));
        all
    };
    json!({
        "required": {"CPUs": data.req_cpus, "memory_per_cpu": number(per_cpu), "memory_per_node": number(per_node)},
        "tres": {
            "allocated": data
                .start
                .map(|_| tres(data.num_cpus, data.memory_mb, data.num_nodes, row.billing()))
                .unwrap_or_default(),
            "requested": tres(data.req_cpus, row.req_memory_mb(), row.req_nodes(), row.req_billing()),
        },
        "steps": [],
    })
}

/// Slurm's lowest id of generic resources as trackable resources, which is that of GPUs.
const GRES_ID: u32 = Tres::Gpu.id();

/// Slurm's id of energy as a trackable resource.
const ENERGY_ID: u32 = 3;

/// Returns the JSON of an amount of a trackable resource.
fn resource(kind: &str, name: &str, id: u32, count: u64) -> Value {
    json!({"type": kind, "name": name, "id": id, "count": count})
}

fn tres(cpus: u32, memory_mb: u64, nodes: u32) -> Vec<Value> {
    vec![
        resource(Tres::Cpu.name(), "", Tres::Cpu.id(), u64::from(cpus)),
        resource(Tres::Mem.name(), "", Tres::Mem.id(), memory_mb),
        resource(Tres::Node.name(), "", Tres::Node.id(), u64::from(nodes)),
    ]
}

fn step(row: &Row, user: &dyn Fn(u32) -> String) -> Value {
    let data = &row.data;
    json!({
        "time": {
            "elapsed": row.elapsed(),
            "end": time(row.end()),
            "start": time(data.start),
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
        "CPU": {"governor": "Unknown"},
        "kill_request_user": killer(row, user),
        "state": words::state_list(data.state),
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": number(Some(data.usage.energy_j.unwrap_or(0)))}},
        "step": {"id": row.raw_id(), "name": data.name},
        "task": {"distribution": if row.is_batch() { "Unknown" } else { "Block" }},
        "tres": used(row),
    })
}

/// Returns the resources that a step used. As in Slurm, `requested` contains reads, CPU and memory, and `consumed`
/// writes.
fn used(row: &Row) -> Value {
    let usage = &row.data.usage;
    let cpu_ms = row.total_cpu().millis();
    let bytes = |kb: u64| kb.saturating_mul(1024);
    let mut came_in = vec![
        ("cpu", "", 1, cpu_ms, row.average(cpu_ms)),
        ("mem", "", 2, bytes(usage.max_rss_kb), bytes(row.average(usage.total_rss_kb))),
        ("fs", "disk", 6, usage.read_bytes, row.average(usage.read_bytes)),
        ("vmem", "", 7, bytes(usage.max_vm_kb), bytes(usage.max_vm_kb)),
        ("pages", "", 8, usage.major_faults, row.average(usage.major_faults)),
    ];
    came_in.extend(usage.energy_j.map(|joules| ("energy", "", ENERGY_ID, joules, row.average(joules))));
    let went_out = [("fs", "disk", 6, usage.write_bytes, row.average(usage.write_bytes))];
    let peaks = |all: &[(&str, &str, u32, u64, u64)]| -> Vec<Value> {
        let at = json!({"task": usage.max_rss_task, "node": row.first_node()});
        all.iter().map(|(kind, name, id, most, _)| joined([resource(kind, name, *id, *most), at.clone()])).collect()
    };
    let means = |all: &[(&str, &str, u32, u64, u64)]| -> Vec<Value> {
        all.iter().map(|(kind, name, id, _, mean)| resource(kind, name, *id, *mean)).collect()
    };
    let sums = |all: &[(&str, &str, u32, u64, u64)]| -> Vec<Value> {
        let tasks = u64::from(row.data.num_tasks.max(1));
        let sum = |kind: &str, most: u64, mean: u64| if kind == "mem" { mean.saturating_mul(tasks) } else { most };
        all.iter().map(|(kind, name, id, most, mean)| resource(kind, name, *id, sum(kind, *most, *mean))).collect()
    };
    let of = |all: &[(&str, &str, u32, u64, u64)]| json!({"max": peaks(all), "min": peaks(all), "average": means(all), "total": sums(all)});
    json!({
        "requested": of(&came_in),
        "consumed": of(&went_out),
        "allocated": tres(row.data.num_cpus, row.data.memory_mb, row.data.num_nodes),
    })
}
