//! JSON of `sinfo --json`: groups of a partition's nodes that have the same state and resources.

use serde_json::{Value, json};
use squall_model::wire::info::NodeInfo;

use crate::columns::groups::Group;
use crate::format::node::NodeState;
use crate::shapes::node::PORT;
use crate::shapes::{number, partition};

/// Returns the JSON of a group of nodes.
pub fn group(group: &Group) -> Value {
    let (cpus, nodes) = (group.cpus(), group.counts());
    let sum = |of: fn(&NodeInfo) -> u64| group.nodes.iter().map(|n| of(n)).sum::<u64>();
    let span = |of: fn(&NodeInfo) -> u64| {
        json!({
            "minimum": group.nodes.iter().map(|n| of(n)).min().unwrap_or(0),
            "maximum": group.nodes.iter().map(|n| of(n)).max().unwrap_or(0),
        })
    };
    let first = |of: fn(&NodeInfo) -> &str| group.nodes.first().map_or("", |n| of(n));
    let reason = group.nodes.first().and_then(|n| n.reason.as_ref());
    let reason_user = if reason.is_some() { group.reason_user.as_str() } else { "" };
    let kept = group.nodes.first().and_then(|n| n.kept.clone()).unwrap_or_default();
    let hosts: Vec<&str> = group.nodes.iter().map(|n| n.name.as_str()).collect();
    json!({
        "port": PORT,
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
                "minimum": span(|n| u64::from(n.load_centi))["minimum"],
                "maximum": span(|n| u64::from(n.load_centi))["maximum"],
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
        "weight": span(|n| u64::from(n.weight)),
        "features": {
            "total": group.nodes.first().map(|n| n.features.join(",")).unwrap_or_default(),
            "active": group.nodes.first().map(|n| n.hardware.features.join(",")).unwrap_or_default(),
        },
        "gres": {"total": first(|n| n.gres.as_str()), "used": first(|n| n.gres_used.as_str())},
        "cluster": &*group.cluster,
        "comment": first(|n| n.comment.as_str()),
        "extra": first(|n| n.extra.as_str()),
        "reason": {
            "description": reason.map_or("", |r| r.0.as_str()),
            "time": reason.map_or(0, |r| r.2.secs()),
            "user": reason_user,
        },
        "reason_set_by_user": reason_user,
        "resource_spec": {"cpus": kept.cpu_list, "memory": kept.memory_mb},
        "reservation": first(|n| n.reservation.as_str()),
        "partition": group.partition.as_deref().map_or_else(|| json!({}), |p| partition::partition(p, &group.cluster)),
    })
}
