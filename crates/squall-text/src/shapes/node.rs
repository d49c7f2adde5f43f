//! JSON of `scontrol show node --json`.

use serde_json::{Value, json};
use squall_model::event::NodeAdmin;
use squall_model::time::Time;
use squall_model::wire::info::NodeInfo;

use crate::format::node::{NodeState, has, holds};
use crate::shapes::{joined, number, time};

/// Port of Slurm's node daemons, which programs that read the JSON expect. Squall does not use it.
pub const PORT: u32 = 6818;

/// Returns the JSON of a node. `user` returns the name of a user id.
pub fn node(node: &NodeInfo, cluster: &str, user: &dyn Fn(u32) -> String) -> Value {
    joined([machine(node, cluster), state(node, user)])
}

fn machine(node: &NodeInfo, cluster: &str) -> Value {
    let hardware = &node.hardware;
    let kept = node.kept.clone().unwrap_or_default();
    let free_cpus = hardware.cpus.saturating_sub(node.cpus_used);
    json!({
        "architecture": hardware.arch,
        "address": hardware.address,
        "hostname": node.name,
        "name": node.name,
        "cluster_name": cluster,
        "boards": 1,
        "boot_time": time(Some(Time::from_secs(hardware.boot_time_s))),
        "cores": hardware.cores_per_socket,
        "sockets": hardware.sockets,
        "threads": hardware.threads_per_core,
        "cpus": hardware.cpus.saturating_add(kept.cpus),
        "effective_cpus": hardware.cpus,
        "alloc_cpus": node.cpus_used,
        "alloc_idle_cpus": free_cpus,
        "cpu_load": node.load_centi,
        "specialized_cores": kept.cores,
        "specialized_cpus": kept.cpu_list,
        "specialized_memory": kept.memory_mb,
        "real_memory": hardware.memory_mb.saturating_add(kept.memory_mb),
        "alloc_memory": node.memory_used_mb,
        "free_mem": number(node.up.then_some(node.free_mb)),
        "temporary_disk": hardware.tmp_disk_mb,
        "features": node.features,
        "active_features": hardware.features,
        "instance_id": node.instance.0,
        "instance_type": node.instance.1,
        "comment": node.comment,
        "extra": node.extra,
    })
}

fn state(node: &NodeInfo, user: &dyn Fn(u32) -> String) -> Value {
    let (hardware, reason) = (&node.hardware, node.reason.as_ref());
    json!({
        "gres": node.gres,
        "gres_drained": "N/A",
        "gres_used": node.gres_used,
        "last_busy": time(Some(node.heard)),
        "operating_system": hardware.os,
        "partitions": node.partitions,
        "port": PORT,
        "reason": reason.map_or("", |r| r.0.as_str()),
        "reason_changed_at": time(reason.map(|r| r.2)),
        "reason_set_by_user": reason.map(|r| user(r.1)).unwrap_or_default(),
        "next_state_after_reboot": node.next.map(next_states).unwrap_or_default(),
        "resume_after": time(node.resumes),
        "reservation": node.reservation,
        "slurmd_start_time": time(Some(node.registered)),
        "state": NodeState::of(node).list(),
        "tres": has(node),
        "tres_used": holds(node),
        "tres_weighted": f64::from(node.cpus_used),
        "version": node.version,
        "weight": node.weight,
    })
}

/// Returns the states of a node after its reboot, as the node then has them beside its usage.
fn next_states(next: NodeAdmin) -> &'static [&'static str] {
    match next {
        NodeAdmin::Resume => &["IDLE"],
        NodeAdmin::Down => &["DOWN"],
        NodeAdmin::Drain => &["IDLE", "DRAIN"],
        NodeAdmin::Fail => &["IDLE", "FAIL"],
    }
}
