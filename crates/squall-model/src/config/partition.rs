//! Partitions, as they are configured.

use serde::{Deserialize, Serialize};

use super::{PartitionState, words};
use crate::billing::BillingWeights;
use crate::gang::OverSubscribe;
use crate::hostlist;
use crate::places::OnNodeFail;
use crate::policy::{PreemptMode, Seconds};

/// A partition: a set of nodes with limits and access rules for its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionConfig {
    /// Name of the partition.
    #[serde(alias = "PartitionName")]
    pub name: String,
    /// Nodes of the partition, as a host list. Empty or `ALL`: every node. `NONE`: no node.
    #[serde(alias = "Nodes")]
    pub nodes: String,
    /// Whether jobs without `--partition` use this partition. If no partition has this set, the first that does not set
    /// it to `false` is the default; if all set it to `false`, there is no default.
    #[serde(alias = "Default", deserialize_with = "words::yes")]
    pub default: bool,
    /// Longest time limit of a job: seconds, or a text as in Slurm (`"1-00:00:00"`, `"60"`: minutes). None: unlimited.
    #[serde(alias = "MaxTime", deserialize_with = "words::limit")]
    pub max_time_s: Option<u64>,
    /// Time limit of jobs without `--time`, in the same forms as `MaxTime`. None: `max_time_s`.
    #[serde(alias = "DefaultTime", deserialize_with = "words::limit")]
    pub default_time_s: Option<u64>,
    /// Most nodes of one job. None: no limit.
    #[serde(alias = "MaxNodes", deserialize_with = "words::count")]
    pub max_nodes: Option<u32>,
    /// Fewest nodes of one job. Default 1.
    #[serde(alias = "MinNodes")]
    pub min_nodes: u32,
    /// Names of users that may use the partition. Empty: all.
    #[serde(deserialize_with = "words::names")]
    pub allow_users: Vec<String>,
    /// Names of groups. Their members may use the partition. Empty: all users.
    #[serde(alias = "AllowGroups", deserialize_with = "words::names")]
    pub allow_groups: Vec<String>,
    /// Priority tier. Jobs of a partition with a higher tier are scheduled first. Default 1.
    #[serde(alias = "PriorityTier")]
    pub priority_tier: u32,
    /// Whether the partition accepts and starts jobs.
    #[serde(alias = "State")]
    pub state: PartitionState,
    /// Priority factor of the partition relative to other partitions, used with `priority_weight_partition`. Default 1.
    #[serde(alias = "PriorityJobFactor")]
    pub priority_job_factor: u32,
    /// What happens to preempted jobs of the partition. None: the cluster's `preempt_mode`.
    #[serde(alias = "PreemptMode")]
    pub preempt_mode: Option<PreemptMode>,
    /// Time between warning and end of preempted jobs of the partition, seconds.
    #[serde(alias = "GraceTime", deserialize_with = "Seconds::plain")]
    pub grace_time_s: Seconds,
    /// Name of the QOS with the limits that all jobs of the partition share. Empty: none.
    #[serde(alias = "QOS", alias = "QoS")]
    pub qos: String,
    /// Accounts that may use the partition. Empty: all.
    #[serde(alias = "AllowAccounts", deserialize_with = "words::names")]
    pub allow_accounts: Vec<String>,
    /// Accounts that may not use the partition.
    #[serde(alias = "DenyAccounts", deserialize_with = "words::names")]
    pub deny_accounts: Vec<String>,
    /// QOS that may use the partition. Empty: all.
    #[serde(alias = "AllowQos", deserialize_with = "words::names")]
    pub allow_qos: Vec<String>,
    /// QOS that may not use the partition.
    #[serde(alias = "DenyQos", deserialize_with = "words::names")]
    pub deny_qos: Vec<String>,
    /// How many jobs may hold the same core of the partition at the same time.
    #[serde(alias = "OverSubscribe")]
    pub oversubscribe: OverSubscribe,
    /// Whether all jobs of the partition run as with `--exclusive=user`: no other user's job runs on their nodes.
    #[serde(alias = "ExclusiveUser", deserialize_with = "words::yes")]
    pub exclusive_user: bool,
    /// Whether all jobs of the partition run as with `--exclusive=topo`: no other job runs in the blocks of their nodes.
    /// Written only if set.
    #[serde(alias = "ExclusiveTopo", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub exclusive_topo: bool,
    /// How many jobs a node may prefetch for each running job (leases). It starts prefetched jobs by itself, one after
    /// the other. 0: none. For partitions of short jobs: a prefetched job waits for its node even if other nodes become
    /// free.
    pub lease_jobs: u32,
    /// Memory for each CPU of a job that requests none, MiB. 0: the cluster's. Written only if set.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub def_mem_per_cpu_mb: u64,
    /// Memory on each node of a job that requests none, MiB. 0: the cluster's. Written only if set, as are the keys that follow.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub def_mem_per_node_mb: u64,
    /// Memory for each GPU of a job that requests GPUs and no memory, MiB. 0: the cluster's.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub def_mem_per_gpu_mb: u64,
    /// Most memory for each CPU of a job, MiB. A job that requests more gets more CPUs. 0: the cluster's.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub max_mem_per_cpu_mb: u64,
    /// Most memory on each node of a job, MiB. 0: the cluster's.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub max_mem_per_node_mb: u64,
    /// Most CPUs that all jobs of the partition together hold on a node. None: no limit.
    #[serde(alias = "MaxCPUsPerNode", deserialize_with = "words::count", skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_node: Option<u32>,
    /// Most CPUs that all jobs of the partition together hold on a socket. None: no limit.
    #[serde(alias = "MaxCPUsPerSocket", deserialize_with = "words::count", skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_socket: Option<u32>,
    /// As the cluster's, for jobs of the partition. None: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_fence_s: Option<u64>,
    /// Whether nodes with the most free CPUs are taken first, among nodes of equal weight.
    #[serde(alias = "LLN", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub lln: bool,
    /// Seconds without a job after which a node of the partition is switched off. None: as `[power]` says; -1: never.
    #[serde(alias = "SuspendTime", skip_serializing_if = "Option::is_none")]
    pub suspend_time_s: Option<i64>,
    /// Seconds that a node of the partition needs to go down. None: as `[power]` says.
    #[serde(alias = "SuspendTimeout", skip_serializing_if = "Option::is_none")]
    pub suspend_timeout_s: Option<u64>,
    /// Seconds that a node of the partition has for a reboot or a start. None: as `[health]` says.
    #[serde(alias = "ResumeTimeout", skip_serializing_if = "Option::is_none")]
    pub resume_timeout_s: Option<u64>,
    /// Whether a node is switched off as soon as no job is there, after a job of the partition was.
    #[serde(alias = "PowerDownOnIdle", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub power_down_on_idle: bool,
    /// What happens to a running job when one of its nodes fails. None: as the cluster says.
    #[serde(alias = "OnNodeFail", skip_serializing_if = "Option::is_none")]
    pub on_node_fail: Option<OnNodeFail>,
    /// Number of nodes that are kept free to replace failed ones of jobs of the partition, less those that are down. None: none.
    #[serde(alias = "SpareNodes", skip_serializing_if = "Option::is_none")]
    pub spare_nodes: Option<u32>,
    /// Factor for the usage of the spare nodes that jobs of the partition hold. Default 1.
    #[serde(alias = "SpareBilling", skip_serializing_if = "Share::is_whole")]
    pub spare_billing: Share,
    /// Minutes that jobs run on after their time limit; 65535: they are not ended by it. None: as the cluster says.
    #[serde(
        alias = "OverTimeLimit",
        deserialize_with = "words::some_minutes",
        skip_serializing_if = "Option::is_none"
    )]
    pub over_time_limit_min: Option<u64>,
    /// Whether root may run no jobs here. None: as the cluster says.
    #[serde(alias = "DisableRootJobs", deserialize_with = "words::maybe", skip_serializing_if = "Option::is_none")]
    pub disable_root_jobs: Option<bool>,
    /// Whether only root may submit jobs.
    #[serde(alias = "RootOnly", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub root_only: bool,
    /// Whether jobs must name a reservation.
    #[serde(alias = "ReqResv", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub req_resv: bool,
    /// Whether lists leave the partition and its jobs out unless they are asked for.
    #[serde(alias = "Hidden", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Hosts from which jobs may be submitted, as a host list. Empty or `ALL`: all.
    #[serde(alias = "AllocNodes", skip_serializing_if = "String::is_empty")]
    pub alloc_nodes: String,
    /// Partition that takes new jobs while this one is drained or inactive. Empty or `NONE`: none.
    #[serde(alias = "Alternate", skip_serializing_if = "String::is_empty")]
    pub alternate: String,
    /// CPUs for each GPU of a job that requests GPUs and does not say. 0: the cluster's.
    #[serde(alias = "DefCPUPerGPU", skip_serializing_if = "words::is_zero")]
    pub def_cpu_per_gpu: u64,
    /// What jobs are billed for each resource: `CPU=1.0,Mem=0.25G,GRES/gpu=2.0`. Empty: each CPU is one billing unit.
    #[serde(alias = "TRESBillingWeights", skip_serializing_if = "BillingWeights::is_empty")]
    pub tres_billing_weights: BillingWeights,
}

impl PartitionConfig {
    /// Returns whether jobs may be submitted from a host.
    pub fn takes_jobs_from(&self, host: &str) -> bool {
        let all = self.alloc_nodes.is_empty() || self.alloc_nodes.eq_ignore_ascii_case("ALL");
        all || hostlist::contains(&self.alloc_nodes, host)
    }
    /// Returns the partition that takes new jobs while this one takes none. None: none does.
    pub fn alternate(&self) -> Option<&str> {
        Some(self.alternate.as_str()).filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("NONE"))
    }
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            name: "debug".into(),
            nodes: "ALL".into(),
            default: false,
            max_time_s: None,
            default_time_s: None,
            max_nodes: None,
            min_nodes: 1,
            allow_users: Vec::new(),
            allow_groups: Vec::new(),
            priority_tier: 1,
            state: PartitionState::Up,
            priority_job_factor: 1,
            preempt_mode: None,
            grace_time_s: Seconds(0),
            qos: String::new(),
            allow_accounts: Vec::new(),
            deny_accounts: Vec::new(),
            allow_qos: Vec::new(),
            deny_qos: Vec::new(),
            oversubscribe: OverSubscribe::No,
            exclusive_user: false,
            exclusive_topo: false,
            lease_jobs: 0,
            def_mem_per_cpu_mb: 0,
            def_mem_per_node_mb: 0,
            def_mem_per_gpu_mb: 0,
            max_mem_per_cpu_mb: 0,
            max_mem_per_node_mb: 0,
            max_cpus_per_node: None,
            max_cpus_per_socket: None,
            node_fence_s: None,
            lln: false,
            suspend_time_s: None,
            suspend_timeout_s: None,
            resume_timeout_s: None,
            power_down_on_idle: false,
            on_node_fail: None,
            spare_nodes: None,
            spare_billing: Share::default(),
            over_time_limit_min: None,
            disable_root_jobs: None,
            root_only: false,
            req_resv: false,
            hidden: false,
            alloc_nodes: String::new(),
            alternate: String::new(),
            def_cpu_per_gpu: 0,
            tres_billing_weights: BillingWeights::default(),
        }
    }
}

/// A part of a whole, from 0 to 1. It is stored in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// Returns whether it is the whole.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Share {
    fn default() -> Self {
        Self(Self::WHOLE)
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&number) {
            return Ok(Self((number * f64::from(Self::WHOLE)).round() as u32));
        }
        Err(format!("{number}: a number from 0 to 1 is needed"))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        Self::from(share.0) / Self::from(Share::WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use crate::billing::Combine;
    use crate::config::Config;

    #[test]
    fn weights_of_a_partition_are_read_and_written() {
        let read = |keys: &str| Config::from_toml(&format!("[[partitions]]\nname = \"gpu\"\n{keys}\n"));
        let config = read("tres_billing_weights = \"CPU=1.0,Mem=0.25G\"").expect("this is the key");
        assert_eq!(config.partitions[0].tres_billing_weights.as_str(), "CPU=1.0,Mem=0.25G");
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config.clone()));
        assert_eq!(read("TRESBillingWeights = \"CPU=1.0,Mem=0.25G\""), Ok(config));
        assert!(read("TRESBillingWeights = \"colour=1\"").is_err_and(|problem| problem.contains("`colour=1`")));
        assert!(!read("").and_then(|config| config.to_toml()).expect("text").contains("billing_w"));
        let flags = |text: &str| Config::from_toml(&format!("PriorityFlags = \"{text}\""));
        let max = flags("fair_tree,MAX_TRES").expect("they are flags");
        assert_eq!(
            (max.priority_flags.combine, Config::from_toml(&max.to_toml().expect("text"))),
            (Combine::Max, Ok(max.clone()))
        );
        assert_eq!(flags("MAX_TRES_GRES,MAX_TRES").expect("they are").priority_flags.combine, Combine::MaxAndGres);
        assert!(flags("SMALL_RELATIVE_TO_TIME").is_err_and(|problem| problem.contains("MAX_TRES or MAX_TRES_GRES")));
    }

    #[test]
    fn spare_nodes_of_a_partition_are_read_and_written() {
        let read = |keys: &str| Config::from_toml(&format!("[[partitions]]\nname = \"train\"\n{keys}\n"));
        let config = read("spare_nodes = 2\nspare_billing = 0.25").expect("these are the keys");
        let partition = &config.partitions[0];
        assert_eq!((partition.spare_nodes, f64::from(partition.spare_billing)), (Some(2), 0.25));
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
        assert!(read("SpareNodes = 1\nSpareBilling = 1").is_ok());
        assert!(read("spare_billing = 1.5").is_err_and(|problem| problem.contains("a number from 0 to 1 is needed")));
    }
}
