//! `squeue --json`, `scontrol show job --json`: jobs in the shape of Slurm's data parser.

use serde_json::{Value, json};
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::resource::Memory;

use crate::command::squeue::fields::requeue;
use crate::format::job::JobRow;
use crate::format::json::{exit, joined, number, or_infinite, time};
use crate::format::words;

/// A job.
pub(crate) fn job(row: &JobRow) -> Value {
    joined([identity(row), state(row), times(row), resources(row), files(row)])
}

fn identity(row: &JobRow) -> Value {
    let (info, spec, owner) = (&row.info, &row.spec, &row.owner);
    json!({
        "account": row.class.account,
        "admin_comment": row.other("admin-comment").unwrap_or_default(),
        "allocating_node": spec.submit_host,
        "array_job_id": number(Some(u64::from(row.array_job().unwrap_or(0)))),
        "array_task_id": number(info.task.map(|t| u64::from(t.index))),
        "array_max_tasks": number(Some(u64::from(info.array_limit.unwrap_or(0)))),
        "array_task_string": info.pending_tasks.as_ref().map(|t| row.task_expression(t)).unwrap_or_default(),
        "association_id": 0,
        "batch_features": "",
        "batch_flag": row.is_batch(),
        "batch_host": if row.started() { info.run().batch_host.as_str() } else { "" },
        "cluster": &*row.cluster,
        "comment": spec.comment.as_deref().unwrap_or_default(),
        "group_id": owner.gid,
        "group_name": owner.group,
        "het_job_id": number(Some(info.het.map_or(0, |het| u64::from(het.leader.0)))),
        "het_job_id_set": row.het_ids().unwrap_or_default(),
        "het_job_offset": number(Some(info.het.map_or(0, |het| u64::from(het.offset(info.id))))),
        "job_id": info.id.0,
        "name": spec.name,
        "partition": row.class.partition,
        "qos": row.class.qos,
        "resv_name": spec.reservation.as_deref().unwrap_or_default(),
        "user_id": owner.uid,
        "user_name": owner.user,
        "wckey": spec.wckey.as_deref().unwrap_or_default(),
        "mail_type": spec.mail_type.iter().flat_map(|m| m.split(',')).collect::<Vec<_>>(),
        "mail_user": spec.mail_user.as_deref().unwrap_or_default(),
    })
}

fn state(row: &JobRow) -> Value {
    let info = &row.info;
    json!({
        "dependency": info.dependency,
        "derived_exit_code": exit(info.run().derived_exit),
        "exit_code": exit(row.exit()),
        "flags": if requeue(row) { json!(["JOB_WAS_RUNNING"]) } else { json!([]) },
        "job_state": words::state_list(info.state),
        "state_reason": row.reason(),
        "state_description": "",
        "nice": row.spec.nice,
        "priority": number(Some(u64::from(info.priority))),
        "hold": info.priority == 0,
        "reboot": false,
        "requeue": requeue(row),
        "restart_cnt": row.restarts(),
    })
}

fn times(row: &JobRow) -> Value {
    let (info, spec) = (&row.info, &row.spec);
    let pending = info.state == JobState::Pending;
    json!({
        "accrue_time": time(Some(info.eligible)),
        "deadline": time(spec.deadline),
        "eligible_time": time(Some(info.eligible)),
        "end_time": time(info.end),
        "last_sched_evaluation": time(Some(info.eligible)),
        "pre_sus_time": time(None),
        "preempt_time": time(None),
        "preemptable_time": time(None),
        "resize_time": time(None),
        "start_time": time(info.start),
        "submit_time": time(Some(info.submit)),
        "suspend_time": time(info.run().suspended.filter(|_| !pending)),
        "time_limit": or_infinite(info.time_limit_s.map(|s| s.div_ceil(60))),
        "time_minimum": number(Some(spec.time_min_s.map_or(0, |s| s.div_ceil(60)))),
    })
}

fn resources(row: &JobRow) -> Value {
    let (info, need) = (&row.info, &row.spec.need);
    let (per_node, per_cpu) = match need.memory {
        Memory::Unset => (None, None),
        Memory::PerNodeMb(mb) => (Some(mb), None),
        Memory::PerCpuMb(mb) => (None, Some(mb)),
    };
    json!({
        "billable_tres": {"set": true, "infinite": false, "number": f64::from(info.num_cpus)},
        "contiguous": need.contiguous,
        "core_spec": Value::Null,
        "cores_per_socket": number(None),
        "sockets_per_node": number(None),
        "threads_per_core": number(None),
        "cpus": number(Some(u64::from(info.num_cpus))),
        "cpus_per_task": number(need.cpus_per_task.map(u64::from)),
        "excluded_nodes": need.exclude.as_deref().unwrap_or_default(),
        "exclusive": match row.over_subscribe() {
            "NO" => json!(["true"]),
            "USER" => json!(["user"]),
            _ => json!([]),
        },
        "features": need.constraint.as_deref().unwrap_or_default(),
        "job_resources": if row.started() { held(row) } else { Value::Null },
        "licenses": need.licenses.as_deref().unwrap_or_default(),
        "max_cpus": number(Some(0)),
        "max_nodes": number(Some(u64::from(need.nodes_max.unwrap_or(0)))),
        "memory_per_cpu": number(per_cpu),
        "memory_per_node": number(per_node),
        "minimum_cpus_per_node": number(Some(u64::from(row.min_cpus()))),
        "minimum_tmp_disk_per_node": number(Some(need.tmp_disk_mb)),
        "node_count": number(Some(u64::from(info.num_nodes))),
        "nodes": info.run().nodes,
        "required_nodes": need.nodelist.as_deref().unwrap_or_default(),
        "scheduled_nodes": "",
        "shared": if need.oversubscribe { json!(["none"]) } else { json!([]) },
        "tasks": number(Some(u64::from(info.num_tasks))),
        "tasks_per_node": number(need.ntasks_per_node.map(u64::from)),
        "tres_per_node": row.tres_per_node(),
        "tres_req_str": row.tres(),
        "tres_alloc_str": if row.started() { row.tres() } else { String::new() },
    })
}

/// Nodes that the job holds, one entry each.
fn held(row: &JobRow) -> Value {
    let mut nodes = Vec::new();
    for (hosts, cores, memory_mb) in &row.info.run().per_node {
        let cpus: u64 = cores.split(',').map(count).sum();
        for name in hostlist::expand(hosts).unwrap_or_default() {
            nodes.push(json!({"nodename": name, "cpus_used": cpus, "memory_allocated": memory_mb, "memory_used": 0}));
        }
    }
    json!({
        "nodes": row.info.run().nodes,
        "allocated_cores": row.info.num_cpus,
        "allocated_cpus": row.info.num_cpus,
        "allocated_hosts": row.info.num_nodes,
        "allocated_nodes": nodes,
    })
}

/// How many numbers `3` or `0-3` stands for.
fn count(range: &str) -> u64 {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    match (low.parse::<u64>(), high.parse::<u64>()) {
        (Ok(low), Ok(high)) if high >= low => high - low + 1,
        _ => 0,
    }
}

fn files(row: &JobRow) -> Value {
    json!({
        "command": row.command(),
        "current_working_directory": row.spec.work_dir,
        "standard_error": row.stderr(),
        "standard_input": row.stdin(),
        "standard_output": row.stdout(),
        "submit_line": row.spec.submit_line,
    })
}
