//! `sinfo --json`, `scontrol show node --json`: nodes and groups in the shape of Slurm's data parser.

use serde_json::{Value, json};
use squall_model::time::Time;
use squall_model::wire::info::NodeInfo;

use crate::command::sinfo::fields::Group;
use crate::format::json::{joined, number, or_infinite, time};
use crate::format::node::{NodeState, has, holds};

/// A node.
pub(crate) fn node(node: &NodeInfo, cluster: &str, user: &dyn Fn(u32) -> String) -> Value {
    joined([machine(node, cluster), state(node, user)])
}

fn machine(node: &NodeInfo, cluster: &str) -> Value {
    let hardware = &node.hardware;
    let free_cpus = hardware.cpus.saturating_sub(node.cpus_used);
    json!({
        "architecture": hardware.arch,
        "address": hardware.address,
        "hostname": node.name,
        "name": node.name,
        "cluster_name": cluster,
        "boards": 1,
        "boot_time": time(Some(Time::from_secs(hardware.boot_time_s))),
        "comment": "",
        "cores": hardware.cores_per_socket,
        "sockets": hardware.sockets,
        "threads": hardware.threads_per_core,
        "cpus": hardware.cpus,
        "effective_cpus": hardware.cpus,
        "alloc_cpus": node.cpus_used,
        "alloc_idle_cpus": free_cpus,
        "idle_cpus": free_cpus,
        "cpu_load": node.load_centi,
        "real_memory": hardware.memory_mb,
        "alloc_memory": node.memory_used_mb,
        "free_mem": number(node.up.then_some(node.free_mb)),
        "free_memory": node.free_mb,
        "temporary_disk": hardware.tmp_disk_mb,
        "features": hardware.features,
        "active_features": hardware.features,
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
        "owner": "",
        "partitions": node.partitions,
        "port": 6818,
        "reason": reason.map_or("", |r| r.0.as_str()),
        "reason_changed_at": time(reason.map(|r| r.2)),
        "reason_set_by_user": reason.map(|r| user(r.1)).unwrap_or_default(),
        "reservation": node.reservation,
        "slurmd_start_time": time(Some(node.registered)),
        "state": NodeState::of(node).list(),
        "tres": has(node),
        "tres_used": holds(node),
        "version": node.version,
        "weight": 1,
    })
}

/// A group, as `sinfo --json` has it.
pub(crate) fn group(group: &Group) -> Value {
    let (cpus, nodes) = (group.cpus(), group.counts());
    let sum = |of: fn(&NodeInfo) -> u64| group.nodes.iter().map(|n| of(n)).sum::<u64>();
    let span = |of: fn(&NodeInfo) -> u64| {
        json!({
            "minimum": group.nodes.iter().map(|n| of(n)).min().unwrap_or(0),
            "maximum": group.nodes.iter().map(|n| of(n)).max().unwrap_or(0),
        })
    };
    let first = |of: fn(&NodeInfo) -> &str| group.nodes.first().map_or("", |n| of(n));
    let partition = group.partition.as_deref();
    let hosts: Vec<&str> = group.nodes.iter().map(|n| n.name.as_str()).collect();
    json!({
        "node": {"state": group.state().map(NodeState::list).unwrap_or_default()},
        "nodes": {
            "allocated": nodes.allocated, "idle": nodes.idle, "other": nodes.other, "total": nodes.total,
            "hostnames": hosts, "addresses": hosts, "nodes": hosts,
        },
        "cpus": {
            "allocated": cpus.allocated, "idle": cpus.idle, "other": cpus.other, "total": cpus.total,
            "minimum": span(|n| u64::from(n.hardware.cpus))["minimum"],
            "maximum": span(|n| u64::from(n.hardware.cpus))["maximum"],
            "load": {
                "minimum": number(group.nodes.iter().map(|n| u64::from(n.load_centi)).min()),
                "maximum": number(group.nodes.iter().map(|n| u64::from(n.load_centi)).max()),
            },
        },
        "memory": {
            "minimum": span(|n| n.hardware.memory_mb)["minimum"],
            "maximum": span(|n| n.hardware.memory_mb)["maximum"],
            "free": {
                "minimum": number(group.nodes.iter().map(|n| n.free_mb).min()),
                "maximum": number(group.nodes.iter().map(|n| n.free_mb).max()),
            },
            "allocated": sum(|n| n.memory_used_mb),
        },
        "disk": span(|n| n.hardware.tmp_disk_mb),
        "sockets": span(|n| u64::from(n.hardware.sockets)),
        "cores": span(|n| u64::from(n.hardware.cores_per_socket)),
        "threads": span(|n| u64::from(n.hardware.threads_per_core)),
        "weight": {"minimum": 1, "maximum": 1},
        "features": {"total": group.nodes.first().map(|n| n.hardware.features.join(",")).unwrap_or_default()},
        "gres": {"total": first(|n| n.gres.as_str()), "used": first(|n| n.gres_used.as_str())},
        "cluster": &*group.cluster,
        "partition": partition.map(|p| json!({
            "name": p.config.name,
            "nodes": {"configured": p.nodes, "total": p.num_nodes},
            "cpus": {"total": p.num_cpus},
            "maximums": {"time": or_infinite(p.config.max_time_s.map(|s| s.div_ceil(60)))},
            "partition": {"state": [format!("{:?}", p.config.state).to_uppercase()]},
        })),
        "reason": {"description": group.nodes.first().and_then(|n| n.reason.as_ref()).map_or("", |r| r.0.as_str())},
    })
}
