//! JSON of `squeue --json` and `scontrol show job --json`: jobs as the controller knows them.

use serde_json::{Value, json};
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::resource::Memory;

use crate::columns::jobs::requeue;
use crate::format::job::{JobRow, as_given};
use crate::shapes::{exit, joined, narrow, number, or_infinite, time};

/// Returns the JSON of a job.
pub fn job(row: &JobRow) -> Value {
    joined([identity(row), state(row), times(row), resources(row), held(row), files(row)])
}

fn identity(row: &JobRow) -> Value {
    let (info, spec, owner) = (&row.info, &row.spec, &row.owner);
    let (notes, shown) = (&spec.options.notes, &spec.options.shown);
    json!({
        "account": row.class.account,
        "admin_comment": notes.admin_comment.as_deref().unwrap_or_default(),
        "allocating_node": spec.submit_host,
        "array_job_id": number(Some(u64::from(row.array_job().unwrap_or(0)))),
        "array_task_id": number(info.task.map(|t| u64::from(t.index))),
        "array_max_tasks": number(Some(u64::from(info.array_limit.unwrap_or(0)))),
        "array_task_string": info.pending_tasks.as_ref().map(|t| row.task_expression(t)).unwrap_or_default(),
        "batch_features": shown.batch.as_deref().unwrap_or_default(),
        "batch_flag": row.is_batch(),
        "batch_host": if row.started() { info.run().batch_host.as_str() } else { "" },
        "burst_buffer": "",
        "cluster": &*row.cluster,
        "cluster_features": "",
        "comment": spec.comment.as_deref().unwrap_or_default(),
        "container": spec.options.bundle().unwrap_or_default(),
        "extra": notes.extra.as_deref().unwrap_or_default(),
        "group_id": owner.gid,
        "group_name": owner.group,
        "het_job_id": number(Some(info.het.map_or(0, |het| u64::from(het.leader.0)))),
        "het_job_id_set": row.het_ids().unwrap_or_default(),
        "het_job_offset": number(Some(info.het.map_or(0, |het| u64::from(het.offset(info.id))))),
        "job_id": info.id.0,
        "mail_type": spec.mail_type.iter().flat_map(|list| list.split(',')).flat_map(mail_type).collect::<Vec<_>>(),
        "mail_user": spec.mail_user.as_deref().unwrap_or(&owner.user),
        "mcs_label": "",
        "name": spec.name,
        "network": as_given(spec.options.network.class.as_ref()).unwrap_or_default(),
        "partition": row.class.partition,
        "qos": row.class.qos,
        "resv_name": spec.reservation.as_deref().unwrap_or_default(),
        "step_id": {"job_id": number(Some(u64::from(info.id.0)))},
        "user_id": owner.uid,
        "user_name": owner.user,
        "wckey": spec.wckey.as_deref().unwrap_or_default(),
    })
}

/// Translates a word of `--mail-type` into its form in JSON: `TIME_LIMIT_90` is `TIME=90%`.
pub(super) fn mail_type(word: &str) -> Vec<String> {
    let word = word.trim().to_uppercase();
    match word.strip_prefix("TIME_LIMIT") {
        Some("") => vec!["TIME=100%".to_owned()],
        Some(percent) => vec![format!("TIME={}%", percent.trim_start_matches('_'))],
        None => match word.as_str() {
            "ALL" => ["BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "INVALID_DEPENDENCY"].map(str::to_owned).into(),
            // Slurm has no mail about silent nodes, and no word for it.
            "NONE" | "NODE_FAIL" | "" => Vec::new(),
            "INVALID_DEPEND" => vec!["INVALID_DEPENDENCY".to_owned()],
            _ => vec![word],
        },
    }
}

fn state(row: &JobRow) -> Value {
    let info = &row.info;
    let (reason, description) = row.named_reason();
    json!({
        "dependency": info.dependency,
        "derived_exit_code": exit(info.run().derived_exit),
        "exit_code": exit(row.exit()),
        "flags": if requeue(row) { json!(["JOB_WAS_RUNNING"]) } else { json!([]) },
        "job_state": row.state_list(),
        "state_reason": reason,
        "state_description": description,
        "nice": row.spec.nice,
        "priority": narrow(Some(info.priority)),
        "hold": info.priority == 0,
        "profile": ["NOT_SET"],
        "reboot": row.spec.options.reboots(),
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
        "delay_boot": number(Some(spec.options.delay_boot_s.unwrap_or(0))),
        "eligible_time": time(Some(info.eligible)),
        "end_time": time(info.end),
        "last_sched_evaluation": time(Some(info.eligible)),
        "start_time": time(row.start_shown()),
        "submit_time": time(Some(info.submit)),
        "suspend_time": time(info.run().suspended.filter(|_| !pending)),
        "time_limit": or_infinite(info.time_limit_s.map(|s| s.div_ceil(60))),
        "time_minimum": number(Some(spec.time_min_s.map_or(0, |s| s.div_ceil(60)))),
    })
}

fn resources(row: &JobRow) -> Value {
    let need = &row.spec.need;
    let options = &row.spec.options;
    let gpus = |given| as_given(given).map(|count| format!("gres/gpu:{count}")).unwrap_or_default();
    let (per_node, per_cpu) = match need.memory {
        Memory::Unset => (Some(0), None),
        Memory::PerNodeMb(mb) => (Some(mb), None),
        Memory::PerCpuMb(mb) => (None, Some(mb)),
    };
    let (shared, exclusive) = match row.over_subscribe() {
        "NO" => (json!(["none"]), json!(["true"])),
        "USER" => (json!(["user"]), json!(["user"])),
        "TOPO" => (json!(["topo"]), json!(["topo"])),
        "YES" => (json!(["oversubscribe"]), json!([])),
        _ => (json!([]), json!([])),
    };
    let switches = options.network.switches.as_ref().map_or(0, |given| given.value.count);
    json!({
        "contiguous": need.contiguous,
        "core_spec": 0,
        // Slurm's number for no specialized threads.
        "thread_spec": 32766,
        "cpus_per_task": number(Some(u64::from(need.task_cpus()))),
        "cpus_per_tres": options.gpus.cpus.map(|count| format!("gres/gpu:{count}")).unwrap_or_default(),
        "excluded_nodes": need.exclude.as_deref().unwrap_or_default(),
        "exclusive": exclusive,
        "features": need.constraint.as_deref().unwrap_or_default(),
        "licenses": need.licenses.as_deref().unwrap_or_default(),
        "max_nodes": number(Some(u64::from(need.nodes_max.unwrap_or(0)))),
        "memory_per_cpu": number(per_cpu),
        "memory_per_node": number(per_node),
        "memory_per_tres": as_given(options.gpus.memory_mb.as_ref()).map(|size| format!("gres/gpu:{size}")).unwrap_or_default(),
        "minimum_cpus_per_node": number(Some(u64::from(row.min_cpus()))),
        "minimum_switches": switches,
        "required_switches": switches,
        "minimum_tmp_disk_per_node": number(Some(need.tmp_disk_mb)),
        "oversubscribe": !need.exclusive,
        "prefer": options.prefer.as_deref().unwrap_or_default(),
        "required_nodes": need.nodelist.as_deref().unwrap_or_default(),
        "shared": shared,
        "tasks_per_node": number(Some(need.ntasks_per_node.map_or(0, u64::from))),
        "tres_bind": as_given(options.gpus.bind.as_ref()).map(|how| format!("gres/gpu:{how}")).unwrap_or_default(),
        "tres_freq": options.shown.gpu_freq.as_ref().map(|how| format!("gpu:{how}")).unwrap_or_default(),
        "tres_per_job": gpus(options.gpus.total.as_ref()),
        "tres_per_node": row.tres_per_node(),
        "tres_per_socket": gpus(options.gpus.per_socket.as_ref()),
        "tres_per_task": gpus(options.gpus.per_task.as_ref()),
    })
}

/// Returns the resources that the job holds, or for a pending job those that it requests.
fn held(row: &JobRow) -> Value {
    let info = &row.info;
    json!({
        "billable_tres": f64::from(info.num_cpus),
        "cpus": number(Some(u64::from(info.num_cpus))),
        "gres_detail": if row.started() { devices(row) } else { Vec::new() },
        "job_resources": if row.started() { allocation(row) } else { Value::Null },
        "node_count": number(Some(u64::from(info.num_nodes))),
        "nodes": info.run().nodes,
        "scheduled_nodes": row.expected_nodes,
        "tasks": number(Some(u64::from(info.num_tasks))),
        "tres_alloc_str": if row.started() { row.tres() } else { String::new() },
        "tres_req_str": row.tres(),
    })
}

/// Returns a text such as `gpu:2(IDX:0-1)` for each node on which the job holds devices.
fn devices(row: &JobRow) -> Vec<&str> {
    let run = row.info.run();
    let many = |hosts: &str| hostlist::expand(hosts).map_or(0, |names| names.len());
    run.gres.iter().flat_map(|(hosts, words)| std::iter::repeat_n(words.as_str(), many(hosts))).collect()
}

/// Returns the nodes that the job holds, one entry each, with the job's cores on it.
fn allocation(row: &JobRow) -> Value {
    let run = row.info.run();
    let mut nodes = Vec::new();
    for (hosts, cores, memory_mb) in &run.per_node {
        let each: Vec<Value> = cores
            .split(',')
            .flat_map(range)
            .map(|core| json!({"index": core, "status": ["ALLOCATED", "IN_USE"]}))
            .collect();
        for name in hostlist::expand(hosts).unwrap_or_default() {
            nodes.push(json!({
                "index": nodes.len(),
                "name": name,
                "cpus": {"count": each.len(), "used": each.len()},
                "memory": {"used": 0, "allocated": memory_mb},
                // The controller does not report which sockets the cores belong to, so all are listed under one.
                "sockets": [{"index": 0, "cores": each}],
            }));
        }
    }
    json!({
        "select_type": ["CPU", "MEMORY"],
        "nodes": {
            "count": row.info.num_nodes,
            "select_type": ["AVAILABLE"],
            "list": run.nodes,
            "whole": row.spec.need.exclusive,
            "allocation": nodes,
        },
        "cpus": row.info.num_cpus,
    })
}

/// Reads a number or a range: `3` or `0-3`. Malformed texts give an empty range.
fn range(text: &str) -> std::ops::RangeInclusive<u32> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) => low..=high,
        _ => std::ops::RangeInclusive::new(1, 0),
    }
}

fn files(row: &JobRow) -> Value {
    json!({
        "command": row.command(),
        "current_working_directory": row.spec.work_dir,
        "standard_error": row.stderr(),
        "standard_input": row.stdin(),
        "standard_output": row.stdout(),
        "stdin_expanded": row.stdin(),
        "stdout_expanded": row.stdout(),
        "stderr_expanded": row.stderr(),
        "submit_line": row.spec.submit_line,
    })
}
