//! JSON of `scontrol show partition --json`, also part of each group in `sinfo --json`.

use serde_json::{Value, json};
use squall_model::wire::info::PartitionInfo;

use crate::format::words::partition_state_long;
use crate::shapes::{number, or_infinite};

/// Returns the JSON of a partition.
pub fn partition(partition: &PartitionInfo, cluster: &str) -> Value {
    let config = &partition.config;
    let minutes = |seconds: Option<u64>| seconds.map(|s| s.div_ceil(60));
    json!({
        "nodes": {"configured": partition.nodes, "total": partition.num_nodes},
        "accounts": {"allowed": config.allow_accounts.join(","), "deny": config.deny_accounts.join(",")},
        "groups": {"allowed": config.allow_groups.join(",")},
        "qos": {
            "allowed": config.allow_qos.join(","), "deny": config.deny_qos.join(","), "assigned": config.qos,
        },
        "tres": {
            "configured": format!(
                "cpu={},node={},billing={}", partition.num_cpus, partition.num_nodes, partition.num_cpus
            ),
        },
        "cluster": cluster,
        "cpus": {"total": partition.num_cpus},
        "defaults": {"time": number(minutes(config.default_time_s))},
        "grace_time": config.grace_time_s.0,
        "maximums": {
            "nodes": or_infinite(config.max_nodes.map(u64::from)),
            "shares": 1,
            "oversubscribe": {"jobs": 1},
            "time": or_infinite(minutes(config.max_time_s)),
        },
        "minimums": {"nodes": config.min_nodes},
        "name": config.name,
        "node_sets": config.nodes,
        "priority": {"job_factor": config.priority_job_factor, "tier": config.priority_tier},
        "partition": {"state": [partition_state_long(config.state)]},
    })
}
