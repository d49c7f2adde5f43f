//! `scontrol show partition`.

use squall_model::config::{PartitionConfig, Share};
use squall_model::duration::{format_limit, format_memory_mb};
use squall_model::limits::OVER_TIME_UNLIMITED;
use squall_model::wire::info::PartitionInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::{all_nodes, all_partitions};
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, count, record};
use squall_text::format::words;
use squall_text::shapes::AnswerKind;
use squall_text::shapes::partition::{billing, job_defaults, partition as shape};

const WHAT: &str = "slurm_load_partitions error";

/// Runs `scontrol show partition`: prints the partitions with these names; without names all.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let wanted: Vec<&str> = ids.iter().flat_map(|id| id.split(',')).filter(|id| !id.is_empty()).collect();
    let (mut partitions, nodes) = match all_partitions(call).and_then(|p| Ok((p, all_nodes(call)?))) {
        Ok(both) => both,
        Err(e) => return call.failed(WHAT, &e),
    };
    count(call, manner, partitions.len());
    let missing: Vec<&&str> = wanted.iter().filter(|w| partitions.iter().all(|p| p.config.name != **w)).collect();
    for name in &missing {
        if !manner.quiet {
            call.print(&format!("Partition {name} not found\n"));
        }
    }
    let result = if missing.is_empty() { Ok(()) } else { Err(Fail(1)) };
    let all = wanted.is_empty();
    let shown = |p: &PartitionConfig| if all { manner.all || !p.hidden } else { wanted.contains(&p.name.as_str()) };
    partitions.retain(|p| shown(&p.config));
    let memory = |p: &PartitionInfo| {
        nodes.iter().filter(|n| n.partitions.contains(&p.config.name)).map(|n| n.hardware.memory_mb).sum::<u64>()
    };
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster(WHAT)?;
        let list: Vec<serde_json::Value> = partitions.iter().map(|p| shape(p, &cluster)).collect();
        let command = ["scontrol", "show", "partitions"];
        document(call, dialect, &cluster, &command, AnswerKind::Partitions, vec![("partitions", list.into())])
    } else {
        partitions.iter().map(|p| record(manner.oneliner, &lines(p, memory(p)))).collect()
    };
    call.print(&text);
    result
}

const fn yes(is: bool) -> &'static str {
    if is { "YES" } else { "NO" }
}

fn over_time_limit(config: &PartitionConfig) -> String {
    match config.over_time_limit_min {
        None => "NONE".to_owned(),
        Some(OVER_TIME_UNLIMITED..) => "UNLIMITED".to_owned(),
        Some(minutes) => minutes.to_string(),
    }
}

fn lines(partition: &PartitionInfo, memory_mb: u64) -> Vec<String> {
    let config = &partition.config;
    let groups = if config.allow_groups.is_empty() { "ALL".to_owned() } else { config.allow_groups.join(",") };
    let most = |cpus: Option<u32>| cpus.map_or_else(|| "UNLIMITED".to_owned(), |cpus| cpus.to_string());
    let default_time = config.default_time_s.map_or_else(|| "NONE".to_owned(), |s| format_limit(Some(s)));
    let max_nodes = most(config.max_nodes);
    let qos = if config.qos.is_empty() { "N/A" } else { &config.qos };
    let memory = if memory_mb > 0 { format!("mem={},", format_memory_mb(memory_mb)) } else { String::new() };
    let hosts = if config.alloc_nodes.is_empty() { "ALL" } else { &config.alloc_nodes };
    let alternate = config.alternate().map_or_else(String::new, |name| format!(" Alternate={name}"));
    let defaults = job_defaults(config);
    let mut lines = vec![
        format!("PartitionName={}", config.name),
        format!("AllowGroups={groups} {} {}", accounts(config), levels(config)),
        format!("AllocNodes={hosts}{alternate} Default={} QoS={qos}", yes(config.default)),
        format!(
            "DefaultTime={default_time} DisableRootJobs={} ExclusiveUser={}{} GraceTime={} Hidden={}",
            yes(config.disable_root_jobs.unwrap_or(false)),
            yes(config.exclusive_user),
            if config.exclusive_topo { " ExclusiveTopo=YES" } else { "" },
            config.grace_time_s.0,
            yes(config.hidden)
        ),
        format!(
            "MaxNodes={max_nodes} MaxTime={} MinNodes={} LLN={} MaxCPUsPerNode={} MaxCPUsPerSocket={}",
            format_limit(config.max_time_s),
            config.min_nodes,
            yes(config.lln),
            most(config.max_cpus_per_node),
            most(config.max_cpus_per_socket)
        ),
        format!("Nodes={}", if partition.nodes.is_empty() { "(null)" } else { &partition.nodes }),
        format!(
            "PriorityJobFactor={} PriorityTier={} RootOnly={} ReqResv={} OverSubscribe={}",
            config.priority_job_factor,
            config.priority_tier,
            yes(config.root_only),
            yes(config.req_resv),
            String::from(config.oversubscribe)
        ),
        format!(
            "OverTimeLimit={} PreemptMode={}",
            over_time_limit(config),
            words::preempt_mode(partition.preempt_mode)
        ),
        format!(
            "State={} TotalCPUs={} TotalNodes={} SelectTypeParameters=NONE",
            words::partition_state_long(config.state),
            partition.num_cpus,
            partition.num_nodes
        ),
        format!("JobDefaults={}", if defaults.is_empty() { "(null)" } else { &defaults }),
        memory_rules(config),
        match (partition.num_cpus, partition.num_nodes) {
            (_, 0) => "TRES=(null)".to_owned(),
            (cpus, nodes) => format!("TRES=cpu={cpus},{memory}node={nodes},billing={}", billing(partition)),
        },
    ];
    let weights = config.tres_billing_weights.as_str();
    lines.extend((!weights.is_empty()).then(|| format!("TRESBillingWeights={weights}")));
    lines.extend(power(config));
    lines.extend(own_settings(config));
    lines
}

/// Returns lines of settings that Slurm does not have.
fn own_settings(config: &PartitionConfig) -> Vec<String> {
    let mut lines = Vec::new();
    if !config.allow_users.is_empty() {
        lines.push(format!("AllowUsers={}", config.allow_users.join(",")));
    }
    if let Some(action) = config.on_node_fail {
        lines.push(format!("OnNodeFail={}", action.name()));
    }
    if let Some(count) = config.spare_nodes {
        lines.push(format!("SpareNodes={count}"));
    }
    if config.spare_billing != Share::default() {
        lines.push(format!("SpareBilling={}", f64::from(config.spare_billing)));
    }
    if config.lease_jobs > 0 {
        lines.push(format!("LeaseJobs={}", config.lease_jobs));
    }
    lines
}

/// Returns the partition's own times of power saving, as Slurm shows them. None: it has none.
fn power(config: &PartitionConfig) -> Option<String> {
    let PartitionConfig { resume_timeout_s, suspend_timeout_s, suspend_time_s, power_down_on_idle, .. } = config;
    let own = resume_timeout_s.is_some() || suspend_timeout_s.is_some() || suspend_time_s.is_some();
    let time = |seconds: Option<u64>| seconds.map_or_else(|| "GLOBAL".to_owned(), |seconds| seconds.to_string());
    let suspend = match suspend_time_s.map(u64::try_from) {
        Some(Err(_)) => "INFINITE".to_owned(),
        seconds => time(seconds.and_then(Result::ok)),
    };
    (own || *power_down_on_idle).then(|| {
        format!(
            "ResumeTimeout={} SuspendTimeout={} SuspendTime={suspend} PowerDownOnIdle={}",
            time(*resume_timeout_s),
            time(*suspend_timeout_s),
            if *power_down_on_idle { "YES" } else { "NO" }
        )
    })
}

/// Returns the partition's own default and limit of memory, as Slurm shows them.
fn memory_rules(config: &PartitionConfig) -> String {
    let shown = |name: &str, per_cpu: u64, per_node: u64| match (per_cpu, per_node) {
        (0, 0) => format!("{name}MemPerNode=UNLIMITED"),
        (0, per_node) => format!("{name}MemPerNode={per_node}"),
        (per_cpu, _) => format!("{name}MemPerCPU={per_cpu}"),
    };
    let default = shown("Def", config.def_mem_per_cpu_mb, config.def_mem_per_node_mb);
    format!("{default} {}", shown("Max", config.max_mem_per_cpu_mb, config.max_mem_per_node_mb))
}

fn accounts(config: &PartitionConfig) -> String {
    allowed("Accounts", &config.allow_accounts, &config.deny_accounts)
}

fn levels(config: &PartitionConfig) -> String {
    allowed("Qos", &config.allow_qos, &config.deny_qos)
}

/// Formats the accounts or QOS that may use the partition: `AllowX=…`, or `DenyX=…` if there is only a list of excluded
/// names.
fn allowed(what: &str, allowed: &[String], denied: &[String]) -> String {
    match (allowed, denied) {
        ([], []) => format!("Allow{what}=ALL"),
        ([], denied) => format!("Deny{what}={}", denied.join(",")),
        (allowed, _) => format!("Allow{what}={}", allowed.join(",")),
    }
}
