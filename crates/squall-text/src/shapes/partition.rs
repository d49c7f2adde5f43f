//! JSON of `scontrol show partition --json`, also part of each group in `sinfo --json`.

use serde_json::{Value, json};
use squall_model::billing::Billing;
use squall_model::config::PartitionConfig;
use squall_model::gang::OverSubscribe;
use squall_model::policy::PreemptMode;
use squall_model::wire::info::PartitionInfo;

use crate::format::words::partition_state_long;
use crate::shapes::{number, or_infinite};

/// Returns the JSON of a partition.
pub fn partition(partition: &PartitionInfo, cluster: &str) -> Value {
    let config = &partition.config;
    let positive = |mb: u64| Some(mb).filter(|mb| *mb > 0);
    // As in Slurm, which has one field for both, with 0 for none.
    let of_node = |of_cpu_mb: u64, mb: u64| number(Some(mb).filter(|_| of_cpu_mb == 0));
    let (jobs, flags) = match config.oversubscribe {
        OverSubscribe::No => (1, &[][..]),
        OverSubscribe::Exclusive => (0, &[][..]),
        OverSubscribe::Yes(jobs) => (jobs, &[][..]),
        OverSubscribe::Force(jobs) => (jobs, &["force"][..]),
    };
    // Times of the partition's own, as in Slurm: those that the cluster gives are not set.
    let sleeps = match config.suspend_time_s.map(u64::try_from) {
        Some(Err(_)) => or_infinite(None),
        seconds => number(seconds.and_then(Result::ok)),
    };
    let minutes = |seconds: Option<u64>| seconds.map(|s| s.div_ceil(60));
    json!({
        "nodes": {
            "configured": partition.nodes, "total": partition.num_nodes, "allowed_allocation": config.alloc_nodes,
        },
        "alternate": config.alternate,
        "accounts": {"allowed": config.allow_accounts.join(","), "deny": config.deny_accounts.join(",")},
        "groups": {"allowed": config.allow_groups.join(",")},
        "qos": {
            "allowed": config.allow_qos.join(","), "deny": config.deny_qos.join(","), "assigned": config.qos,
        },
        "tres": {
            "configured": format!(
                "cpu={},node={},billing={}", partition.num_cpus, partition.num_nodes, billing(partition)
            ),
            "billing_weights": config.tres_billing_weights.as_str(),
        },
        "cluster": cluster,
        "cpus": {"total": partition.num_cpus},
        "defaults": {
            "memory_per_cpu": config.def_mem_per_cpu_mb,
            "partition_memory_per_cpu": number(positive(config.def_mem_per_cpu_mb)),
            "partition_memory_per_node": of_node(config.def_mem_per_cpu_mb, config.def_mem_per_node_mb),
            "time": number(minutes(config.default_time_s)),
            "job": job_defaults(config),
        },
        "grace_time": config.grace_time_s.0,
        "maximums": {
            "cpus_per_node": or_infinite(config.max_cpus_per_node.map(u64::from)),
            "cpus_per_socket": or_infinite(config.max_cpus_per_socket.map(u64::from)),
            "memory_per_cpu": config.max_mem_per_cpu_mb,
            "partition_memory_per_cpu": number(positive(config.max_mem_per_cpu_mb)),
            "partition_memory_per_node": of_node(config.max_mem_per_cpu_mb, config.max_mem_per_node_mb),
            "nodes": or_infinite(config.max_nodes.map(u64::from)),
            "shares": jobs,
            "oversubscribe": {"jobs": jobs, "flags": flags},
            "time": or_infinite(minutes(config.max_time_s)),
        },
        "minimums": {"nodes": config.min_nodes},
        "name": config.name,
        "node_sets": config.nodes,
        "priority": {"job_factor": config.priority_job_factor, "tier": config.priority_tier},
        "timeouts": {"resume": number(config.resume_timeout_s), "suspend": number(config.suspend_timeout_s)},
        "suspend_time": sleeps,
        "partition": {
            "state": [partition_state_long(config.state)],
            "exclusive": exclusive(config),
            "oversubscribe": match config.oversubscribe {
                OverSubscribe::No | OverSubscribe::Exclusive => "NO".to_owned(),
                shared => String::from(shared),
            },
        },
        "flags": flags_of(config),
        "preempt_mode": [preempt_mode(config)],
    })
}

/// Returns the whole billing units of a job with all of a partition.
pub fn billing(partition: &PartitionInfo) -> u64 {
    partition.billing.map_or(u64::from(partition.num_cpus), Billing::whole)
}

fn preempt_mode(config: &PartitionConfig) -> &'static str {
    match config.preempt_mode {
        None => "CLUSTER_GLOBAL",
        Some(PreemptMode::Off) => "DISABLED",
        Some(PreemptMode::Cancel) => "CANCEL",
        Some(PreemptMode::Requeue) => "REQUEUE",
        Some(PreemptMode::Suspend) => "SUSPEND",
        Some(PreemptMode::Checkpoint) => "CHECKPOINT",
    }
}

/// Returns defaults of jobs in Slurm's words: `DefCPUPerGPU=4,DefMemPerGPU=1000`. Empty: there are none.
pub fn job_defaults(config: &PartitionConfig) -> String {
    let all = [("DefCPUPerGPU", config.def_cpu_per_gpu), ("DefMemPerGPU", config.def_mem_per_gpu_mb)];
    let set = all.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| format!("{name}={value}"));
    set.collect::<Vec<_>>().join(",")
}

fn exclusive(config: &PartitionConfig) -> &'static str {
    match config.oversubscribe {
        _ if config.exclusive_topo => "TOPO",
        OverSubscribe::Exclusive => "NODE",
        _ if config.exclusive_user => "USER",
        _ => "NO",
    }
}

/// Returns Slurm's words for what is switched on in a partition.
fn flags_of(config: &PartitionConfig) -> Vec<&'static str> {
    let all = [
        ("DEFAULT", config.default),
        ("NO_ROOT", config.disable_root_jobs == Some(true)),
        ("ROOT_ONLY", config.root_only),
        ("REQ_RESV", config.req_resv),
        ("LLN", config.lln),
        ("HIDDEN", config.hidden),
        ("PDOI", config.power_down_on_idle),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(word, _)| word).collect()
}
