//! The cluster's configuration, read from TOML. Unknown keys are errors.

mod accounting;
mod aggregation;
mod binary;
mod controllers;
mod deal;
mod device;
mod energy;
mod health;
mod hooks;
mod inherit;
mod kept;
mod keys;
mod lack;
mod local;
mod log;
mod members;
mod memory;
mod network;
mod node;
mod partition;
mod partition_state;
mod ports;
mod power;
mod privacy;
mod rest;
mod scheduler;
mod select;
mod silence;
mod slurm;
mod srun;
mod store;
mod submit;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::billing::PriorityFlags;
use crate::billing::points::TresPoints;
use crate::gang::{Coscheduling, GangSwitch, Preempt, TimeSlice};
use crate::places::OnNodeFail;
use crate::policy::{Enforce, EnforcePartLimits, PreemptMode, PreemptType, PriorityType, ResetPeriod, Seconds};
use crate::{gres, hostlist, license, limits};
use text::Lines;

pub use accounting::{Accounting, JobCompletion, retention};
pub use aggregation::Aggregation;
pub(crate) use binary::encode_whole;
pub use controllers::{ControllerConfig, SharedLog, endpoint};
pub use device::{Detect, GresConfig, core_list};
pub use energy::Energy;
pub use health::{CheckedStates, HealthConfig};
pub use hooks::{Hooks, PrologFlags};
pub use inherit::{RLIMITS, rlimits};
pub use keys::{Key, SECTIONS, Section, Shown};
pub use lack::{LOW, Lack};
pub use local::Local;
pub use log::LogLevel;
pub use memory::MemoryRules;
pub use network::{RoutePolicy, SwitchConfig, TopologyFile};
pub use node::{NodeConfig, NodeStart};
pub use partition::{PartitionConfig, Share};
pub use partition_state::PartitionState;
pub use ports::Ports;
pub use power::PowerConfig;
pub use privacy::PrivateData;
pub use rest::Rest;
pub use scheduler::{SchedulerParameters, SchedulerType};
pub use select::{SelectTypeParameters, Unit};
pub use silence::too_short;
pub use slurm::{FromSlurm, Release};
pub use srun::SrunDefaults;
pub use store::Server;
pub use submit::Submit;
pub use text::similar;

/// The whole configuration. Every key has a default, so an empty file is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The cluster's name (`SLURM_CLUSTER_NAME`). Default `squall`.
    #[serde(alias = "ClusterName")]
    pub cluster: String,
    /// Number of this cluster among the cells behind one front (their gateway), which determines its range of job ids.
    /// None: it is not a cell.
    pub cell: Option<u32>,
    /// Expected nodes. Others may register too if `open` is set.
    pub nodes: Vec<NodeConfig>,
    /// Partitions. Empty: one partition of all nodes, named `debug`.
    pub partitions: Vec<PartitionConfig>,
    /// Whether nodes that no entry of `nodes` lists may register. Default true.
    pub open: bool,
    /// Seconds between the signals TERM and KILL. Default 30.
    #[serde(alias = "KillWait")]
    pub kill_wait_s: u64,
    /// Seconds that an ended job stays in the controller's memory. Default 300.
    #[serde(alias = "MinJobAge")]
    pub min_job_age_s: u64,
    /// Highest index of an array plus one; 4000001 at most. Default 1001, as in Slurm.
    #[serde(alias = "MaxArraySize")]
    pub max_array_size: u32,
    /// Most jobs in the queue. A submission beyond it is refused. Default 10,000,000.
    #[serde(alias = "MaxJobCount")]
    pub max_job_count: u32,
    /// Most jobs of one user in the queue; each task of an array counts. Root and the user that runs the cluster may
    /// have more. Default 100000; 0: as many as `max_job_count`.
    pub max_jobs_per_user: u32,
    /// Most MiB of scripts and environments of one user's jobs in the controller's memory, jobs that ended lately
    /// included. Root and the user that runs the cluster may have more. The first 64 KiB of each job don't count.
    /// Default 1024; 0: no limit.
    pub max_content_per_user_mb: u32,
    /// The lowest job id. After `max_job_id` numbering starts again here and skips ids in use. Default 1. Not for
    /// cells: their ids follow from their number.
    #[serde(alias = "FirstJobId")]
    pub first_job_id: u32,
    /// The highest job id. Default 67043328, as in Slurm.
    #[serde(alias = "MaxJobId")]
    pub max_job_id: u32,
    /// Whether jobs without `--requeue` or `--no-requeue` are requeued when a node fails. Default true.
    pub job_requeue: bool,
    /// Whether jobs with a dependency that can never be satisfied are cancelled. Default false.
    pub kill_invalid_depend: bool,
    /// Seconds of silence after which a node is down and gets no new work. Default 60; at least 3 for each level of the
    /// distribution tree: 6 for 64 nodes, 9 for 1,024, 12 for 10,080.
    #[serde(alias = "SlurmdTimeout")]
    pub node_timeout_s: u64,
    /// Seconds of silence after which a node is lost and `node_lost_action` applies to its jobs. Default 300; at least
    /// `node_timeout_s`.
    pub node_lost_s: u64,
    /// What happens to the jobs of a lost node, which may still run there: `wait` (default) or `requeue`.
    #[serde(alias = "NodeLostAction")]
    pub node_lost_action: NodeLostAction,
    /// Seconds after which a node that can't show that the controller hears it ends jobs with a node fence. None: only jobs
    /// with `--node-fence=SECONDS` have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_fence_s: Option<u64>,
    /// What happens to a running job when one of its nodes fails. None: it is requeued if it may be, and ends otherwise.
    #[serde(alias = "OnNodeFail")]
    pub on_node_fail: Option<OnNodeFail>,
    /// Account of jobs without `--account`. Default `root`.
    pub default_account: String,
    /// QOS of jobs without `--qos`. Default `normal`.
    pub default_qos: String,
    /// Most children of a node in the distribution tree of node daemons. Default 16.
    #[serde(alias = "TreeWidth")]
    pub tree_width: u32,
    /// How reports of nodes are combined on their way to the controller.
    #[serde(alias = "MsgAggregationParams")]
    pub msg_aggregation_params: Aggregation,
    /// Whether the distribution tree of node daemons follows the order of nodes or the switches.
    #[serde(alias = "RoutePlugin")]
    pub route_plugin: RoutePolicy,
    /// Leaf switches of the network with their nodes. Adjacent switches are next to each other in the list.
    pub switches: Vec<SwitchConfig>,
    /// Kind of network: `topology/tree`, `topology/torus3d` and so on. Empty: as the topology file states.
    #[serde(alias = "TopologyPlugin")]
    pub topology_plugin: String,
    /// Option of the topology plugin: `dragonfly`. Empty: none.
    #[serde(alias = "TopologyParam")]
    pub topology_param: String,
    /// Name and text of `topology.yaml` or `topology.conf`, read from the folder of the configuration file.
    pub topology: TopologyFile,
    /// Memory for each CPU allocated to a job that requests none, MiB. Default 0: no limit.
    pub def_mem_per_cpu_mb: u64,
    /// Memory on each node of a job that requests none, MiB. 0: no limit. Written only if set, as are the keys that follow.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub def_mem_per_node_mb: u64,
    /// Memory for each GPU of a job that requests GPUs and no memory, MiB. 0: no limit.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub def_mem_per_gpu_mb: u64,
    /// CPUs for each GPU of a job that requests GPUs and does not say. 0: none.
    #[serde(alias = "DefCPUPerGPU", skip_serializing_if = "words::is_zero")]
    pub def_cpu_per_gpu: u64,
    /// Most memory for each CPU of a job, MiB. A job that requests more gets more CPUs. 0: no limit.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub max_mem_per_cpu_mb: u64,
    /// Most memory on each node of a job, MiB. 0: no limit.
    #[serde(skip_serializing_if = "words::is_zero")]
    pub max_mem_per_node_mb: u64,
    /// Whether jobs may start before pending jobs that precede them in the queue.
    #[serde(alias = "SchedulerType")]
    pub scheduler_type: SchedulerType,
    /// Limits on how many jobs the scheduler tries, and how far ahead it reserves resources.
    #[serde(alias = "SchedulerParameters")]
    pub scheduler_parameters: SchedulerParameters,
    /// Licenses of the whole cluster, as `fluent:10,matlab:2`.
    #[serde(alias = "Licenses")]
    pub licenses: String,
    /// Whether jobs need an association and a QOS, and how limits apply.
    #[serde(alias = "AccountingStorageEnforce")]
    pub accounting_storage_enforce: Enforce,
    /// What users do not see of other users.
    #[serde(alias = "PrivateData")]
    pub private_data: PrivateData,
    /// Whether jobs that exceed limits of their partitions are refused. Otherwise they stay pending.
    #[serde(alias = "EnforcePartLimits")]
    pub enforce_part_limits: EnforcePartLimits,
    /// Whether pending jobs are ordered by submission time or by several factors.
    #[serde(alias = "PriorityType")]
    pub priority_type: PriorityType,
    /// Weight of the age factor: points for a job that has waited for `priority_max_age_s`; fewer for a shorter wait.
    #[serde(alias = "PriorityWeightAge")]
    pub priority_weight_age: u32,
    /// Weight of fair share: points for jobs of an association that has used none of its share; fewer the more is used.
    #[serde(alias = "PriorityWeightFairshare")]
    pub priority_weight_fairshare: u32,
    /// Weight of the job's size: points for a job that requests the whole cluster; fewer for a smaller one. With
    /// `priority_favor_small` the other way round.
    #[serde(alias = "PriorityWeightJobSize")]
    pub priority_weight_job_size: u32,
    /// Weight of the partition: points for a job in the partition with the highest `priority_job_factor`.
    #[serde(alias = "PriorityWeightPartition")]
    pub priority_weight_partition: u32,
    /// Weight of the QOS: points for a job with the QOS of highest priority.
    #[serde(alias = "PriorityWeightQOS")]
    pub priority_weight_qos: u32,
    /// Weight of the association's priority: points for a job of the association with the highest priority.
    #[serde(alias = "PriorityWeightAssoc")]
    pub priority_weight_assoc: u32,
    /// Seconds of waiting after which the age factor no longer grows. Default 7 days.
    #[serde(alias = "PriorityMaxAge")]
    pub priority_max_age_s: Seconds,
    /// Time after which recorded usage counts half, seconds. Default 7 days; 0: usage does not decay.
    #[serde(alias = "PriorityDecayHalfLife")]
    pub priority_decay_half_life_s: Seconds,
    /// How weighted amounts of resources are combined (`MAX_TRES`, `MAX_TRES_GRES`). Default: they are added. Written only
    /// if set.
    #[serde(alias = "PriorityFlags", skip_serializing_if = "PriorityFlags::is_unset")]
    pub priority_flags: PriorityFlags,
    /// Points of jobs for the resources that they request. Written only if set.
    #[serde(alias = "PriorityWeightTRES", skip_serializing_if = "TresPoints::is_empty")]
    pub priority_weight_tres: TresPoints,
    /// How often the usage of all associations is reset to zero. Default never.
    #[serde(alias = "PriorityUsageResetPeriod")]
    pub priority_usage_reset_period: ResetPeriod,
    /// Whether smaller jobs get more points for their size (`priority_weight_job_size`). Default false.
    #[serde(alias = "PriorityFavorSmall")]
    pub priority_favor_small: bool,
    /// Seconds between two calculations of fair-share factors. Default 300.
    #[serde(alias = "PriorityCalcPeriod")]
    pub priority_calc_period_s: Seconds,
    /// Whether jobs are preempted by QOS, by partition tier or not at all. Default not at all.
    #[serde(alias = "PreemptType")]
    pub preempt_type: PreemptType,
    /// What happens to preempted jobs, unless partition or QOS set it. With `GANG`, jobs that share cores run in turn.
    #[serde(alias = "PreemptMode")]
    pub preempt_mode: Preempt,
    /// Seconds that a job runs before it can be preempted. Default 0.
    #[serde(alias = "PreemptExemptTime")]
    pub preempt_exempt_time_s: Seconds,
    /// Names of generic resources that nodes may have, separated by commas. Empty: any.
    #[serde(alias = "GresTypes")]
    pub gres_types: String,
    /// Devices of generic resources on nodes, one entry for each line of a `gres.conf`.
    pub gres: Vec<GresConfig>,
    /// Name or address by which other machines reach the controller; empty: this host's name. If it is an address, the
    /// controller listens on that address only.
    #[serde(alias = "SlurmctldHost", alias = "ControlMachine")]
    pub slurmctld_host: Local<String>,
    /// Port on which the controller listens for other machines; 0: the cluster is on this machine only.
    #[serde(alias = "SlurmctldPort")]
    pub slurmctld_port: Local<u16>,
    /// The controllers, in order of preference, if there are several. Empty: there is one.
    pub controllers: Local<Vec<ControllerConfig>>,
    /// The log that several controllers share.
    pub log: Local<SharedLog>,
    /// Port on which node daemons listen for each other if nodes are on several machines. 0: a free port.
    #[serde(alias = "SlurmdPort")]
    pub slurmd_port: Local<u16>,
    /// Log level of controller and front (the gateway of cells); default `info`. The environment variable `SQUALL_LOG`
    /// takes precedence.
    #[serde(alias = "SlurmctldDebug")]
    pub slurmctld_debug: LogLevel,
    /// Log level of node daemons; default `info`.
    #[serde(alias = "SlurmdDebug")]
    pub slurmd_debug: LogLevel,
    /// Lowest uid in a credential from a node on another machine that the controller accepts. Commands in jobs there
    /// that claim to be root or a system user are refused. Default 1000, as `UID_MIN` of login.defs.
    pub min_uid: Local<u32>,
    /// Whether commands in a job on another machine may change all jobs of the job's user. Otherwise they may change jobs
    /// that their node has, and those submitted from within them: an attacker in control of a node then controls no
    /// other job.
    pub nodes_vouch_for_users: Local<bool>,
    /// Whether each batch script has a step daemon of its own, instead of one supervising process per node. A step
    /// daemon costs as much as a short job. For sites with user file systems that may hang.
    pub own_step_daemons: Local<bool>,
    /// Most processes and threads of a job on a node, where it has a v2 cgroup with the pids controller; 0: no limit.
    pub max_processes_per_job: Local<u32>,
    /// How nodes stop jobs outside their time slot: `auto`, `freeze` or `idle`.
    pub gang_switch: Local<GangSwitch>,
    /// IPv4 group and port for sending files by UDP multicast, as `239.255.77.1:6819`. Empty: files are sent by TCP
    /// only.
    pub multicast: Local<String>,
    /// Address of the controller's interface for multicast. Empty: `slurmctld_host` if that is an address, otherwise
    /// the kernel's choice. Other machines use the interface by which they reach the controller.
    pub multicast_interface: Local<String>,
    /// Program that runs as the user before each task, the batch script included; empty: none. Of its output, `export
    /// NAME=VALUE` and `unset NAME` change the task's environment, and text after `print` goes to the task's output.
    #[serde(alias = "TaskProlog")]
    pub task_prolog: String,
    /// Program that runs as the user after each task; empty: none.
    #[serde(alias = "TaskEpilog")]
    pub task_epilog: String,
    /// Folder in which each job gets folders of its own in place of `private_tmp_dirs`. Empty: jobs share them. Written
    /// only if set, so that earlier releases can read the configuration.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub private_tmp: String,
    /// Folders that each job has for itself if there is a `private_tmp`, separated by commas. Empty: `/tmp,/dev/shm`.
    /// Written only if set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub private_tmp_dirs: String,
    /// How GPUs of nodes are found, unless a line of devices says for its nodes. Written only if set.
    #[serde(alias = "AutoDetect", skip_serializing_if = "Detect::is_off")]
    pub auto_detect: Detect,
    /// Whether jobs are kept from device files of generic resources that they do not hold. None: on each node as far as
    /// its kernel can. If true, a node on which the kernel can't starts no such job. Written only if set.
    #[serde(alias = "ConstrainDevices", deserialize_with = "words::maybe", skip_serializing_if = "Option::is_none")]
    pub constrain_devices: Option<bool>,
    /// Whether processes can't leave the cores of their step. None: on each node as far as its kernel can. If true, a
    /// node on which the kernel can't starts no step. Written only if set.
    #[serde(alias = "ConstrainCores", deserialize_with = "words::maybe", skip_serializing_if = "Option::is_none")]
    pub constrain_cores: Option<bool>,
    /// Whether jobs with limited memory have no swap space, where the kernel can count it. None: they have none.
    /// Written only if set.
    #[serde(alias = "ConstrainSwapSpace", deserialize_with = "words::maybe", skip_serializing_if = "Option::is_none")]
    pub constrain_swap_space: Option<bool>,
    /// Program that sends mail about jobs, called as `PROGRAM -s SUBJECT USER` with an empty input. Empty: none. Written
    /// only if set, so that earlier releases can read the configuration.
    #[serde(alias = "MailProg", skip_serializing_if = "String::is_empty")]
    pub mail_prog: String,
    /// `HOST:PORT` of the SMTP relay that sends mail about jobs, if there is no `mail_prog`. Empty: none. Written only
    /// if set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mail_relay: String,
    /// Domain of mail to users that are named without one. Empty: such names are passed on as they are. Written only if
    /// set.
    #[serde(alias = "MailDomain", skip_serializing_if = "String::is_empty")]
    pub mail_domain: String,
    /// Program that runs OCI containers (`--container`), by path or name: `crun` or `runc`. Empty: the first of these
    /// that a node has. `none`: jobs that ask for a container are refused. Written only if set, so that earlier releases
    /// can read the configuration.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_runtime: String,
    /// Whether the output of batch jobs ends with a line about the job's end and usage, unless `sbatch --report` says.
    /// Default false. Written only if true, so that earlier releases can read the configuration.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub job_report: bool,
    /// Folder on the nodes for checkpoints of jobs. Empty: jobs are not checkpointed. Written only if set, so that
    /// earlier releases can read the configuration.
    #[serde(alias = "JobCheckpointDir", skip_serializing_if = "String::is_empty")]
    pub checkpoint_dir: String,
    /// Whether all nodes share the folder for checkpoints. Default false. Written only if true.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpoint_shared: bool,
    /// Program that makes and restores checkpoints, by path or name. Empty: `criu`. Written only if set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub criu: String,
    /// Resource limits of the submitting process that jobs get, unless `--propagate` says: `ALL`, `NONE` or names. Empty: all.
    /// Written only if set, as are the keys that follow.
    #[serde(alias = "PropagateResourceLimits", skip_serializing_if = "String::is_empty")]
    pub propagate_limits: String,
    /// Resource limits of the submitting process that jobs do not get, unless `--propagate` says. Empty: none.
    #[serde(alias = "PropagateResourceLimitsExcept", skip_serializing_if = "String::is_empty")]
    pub propagate_limits_except: String,
    /// Whether a step ends when a task fails, unless `srun --kill-on-bad-exit` says.
    #[serde(alias = "KillOnBadExit", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub kill_on_bad_exit: bool,
    /// Seconds from the end of a step's first task until the others are killed, unless `srun --wait` says. 0: no limit.
    #[serde(alias = "WaitTime", skip_serializing_if = "words::is_zero")]
    pub wait_time_s: u64,
    /// Minutes that jobs run on after their time limit. 65535: they are not ended by it.
    #[serde(alias = "OverTimeLimit", deserialize_with = "words::minutes", skip_serializing_if = "words::is_zero")]
    pub over_time_limit_min: u64,
    /// Whether root may run no jobs.
    #[serde(alias = "DisableRootJobs", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub disable_root_jobs: bool,
    /// Exit codes of batch scripts after which their jobs are requeued, as `1-5,100`. Empty: none.
    #[serde(alias = "RequeueExit", skip_serializing_if = "String::is_empty")]
    pub requeue_exit: String,
    /// Exit codes of batch scripts after which their jobs are requeued and held in state SPECIAL_EXIT. Empty: none.
    #[serde(alias = "RequeueExitHold", skip_serializing_if = "String::is_empty")]
    pub requeue_exit_hold: String,
    /// Whether output files of batch jobs are appended to, unless `--open-mode` says.
    #[serde(alias = "JobFileAppend", deserialize_with = "words::yes", skip_serializing_if = "std::ops::Not::not")]
    pub job_file_append: bool,
    /// Minutes that jobs run on after the end of their reservation. 65535: they are not ended by it.
    #[serde(alias = "ResvOverRun", deserialize_with = "words::minutes", skip_serializing_if = "words::is_zero")]
    pub resv_over_run_min: u64,
    /// Most tasks of a step on a node. Default, and the most: 4096.
    #[serde(alias = "MaxTasksPerNode", skip_serializing_if = "words::is_most_tasks")]
    pub max_tasks_per_node: u32,
    /// Seconds for which no jobs start in the partitions of a job with processes that are still ending. 0: none.
    #[serde(alias = "CompleteWait", skip_serializing_if = "words::is_zero")]
    pub complete_wait_s: u64,
    /// Seconds after which an allocation ends if its command on another machine is cut off. 0: never. None: 60.
    #[serde(alias = "InactiveLimit", skip_serializing_if = "Option::is_none")]
    pub inactive_limit_s: Option<u64>,
    /// Most launches of a job in a row that fail by the fault of nodes; after one more it is held. None: no limit.
    #[serde(alias = "MaxBatchRequeue", skip_serializing_if = "Option::is_none")]
    pub max_batch_requeue: Option<u32>,
    /// Ports at which `srun` and `sattach` listen for tasks on other machines. None: any port.
    #[serde(alias = "SrunPortRange", skip_serializing_if = "Option::is_none")]
    pub srun_port_range: Option<Ports>,
    /// Program that `srun` runs before its step, unless `--prolog` says. Empty: none.
    #[serde(alias = "SrunProlog", skip_serializing_if = "String::is_empty")]
    pub srun_prolog: String,
    /// Program that `srun` runs after its step, unless `--epilog` says. Empty: none.
    #[serde(alias = "SrunEpilog", skip_serializing_if = "String::is_empty")]
    pub srun_epilog: String,
    /// Folder on the nodes of which free space is scratch space. Empty: `/tmp`.
    #[serde(alias = "TmpFS", skip_serializing_if = "String::is_empty")]
    pub tmp_fs: String,
    /// Ports that steps reserve on their nodes. None: steps reserve none. Written only if set.
    #[serde(alias = "MpiParams", skip_serializing_if = "Option::is_none")]
    pub mpi_ports: Option<Ports>,
    /// Length of a time slice of gang scheduling. Default 30 s.
    #[serde(alias = "SchedulerTimeSlice")]
    pub scheduler_time_slice: TimeSlice,
    /// The HTTP server of the cluster.
    pub rest: Local<Rest>,
    /// Programs that run as root around each job. Written only if set, so that earlier releases can read the
    /// configuration; `health` likewise.
    #[serde(skip_serializing_if = "Hooks::is_default")]
    pub hooks: Hooks,
    /// How nodes are checked, rebooted and returned to service.
    #[serde(skip_serializing_if = "HealthConfig::is_default")]
    pub health: HealthConfig,
    /// Which nodes are switched off when they idle, and by which programs. Written only if set.
    #[serde(skip_serializing_if = "PowerConfig::is_default")]
    pub power: PowerConfig,
    /// What filters submissions before the controller decides. Written only if set.
    #[serde(skip_serializing_if = "Submit::is_default")]
    pub submit: Submit,
    /// What is taken over from an installation of Slurm as it is. Written only if set.
    #[serde(skip_serializing_if = "FromSlurm::is_default")]
    pub slurm: FromSlurm,
    /// Who reads the records of accounting without Squall. Written only if set.
    #[serde(skip_serializing_if = "Accounting::is_default")]
    pub accounting: Accounting,
    /// How nodes measure the energy that jobs use. Written only if set.
    #[serde(skip_serializing_if = "Energy::is_default")]
    pub energy: Energy,
    /// In which units CPUs of nodes are given to jobs, and which nodes are taken first. Written only if set, so that
    /// earlier releases can read the configuration.
    #[serde(alias = "SelectTypeParameters", skip_serializing_if = "SelectTypeParameters::is_default")]
    pub select_type_parameters: SelectTypeParameters,
    /// How jobs that share cores share their time. None: `gang` if `PreemptMode` has `GANG`, otherwise `implicit`.
    #[serde(alias = "Coscheduling")]
    pub coscheduling: Option<Coscheduling>,
}

/// What happens to the jobs of a node that was silent for `node_lost_s`. Silence does not prove that the jobs have
/// ended: they may still run while the network is cut or the node daemon is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeLostAction {
    /// The jobs count as running until the node answers, has restarted, or an operator sets it DOWN (`scontrol update
    /// nodename=n1 state=down`). So two attempts of a job never run at the same time.
    #[default]
    Wait,
    /// The jobs are given up. Those that may be requeued start on other nodes, although the silent node may still run
    /// them. For sites that switch silent nodes off before `node_lost_s` is over.
    Requeue,
}

impl Default for Config {
    #[expect(clippy::too_many_lines, reason = "a line for each key")]
    fn default() -> Self {
        Self {
            cluster: "squall".into(),
            cell: None,
            nodes: Vec::new(),
            partitions: Vec::new(),
            open: true,
            kill_wait_s: limits::KILL_WAIT_S,
            min_job_age_s: limits::MIN_JOB_AGE_S,
            max_array_size: limits::ARRAY_SIZE,
            max_job_count: 10_000_000,
            max_jobs_per_user: limits::USER_JOBS,
            max_content_per_user_mb: limits::USER_CONTENT_MB,
            first_job_id: 1,
            max_job_id: limits::JOB_ID_MAX,
            job_requeue: true,
            kill_invalid_depend: false,
            node_timeout_s: limits::NODE_TIMEOUT_S,
            node_lost_s: limits::NODE_LOST_S,
            node_lost_action: NodeLostAction::default(),
            node_fence_s: None,
            on_node_fail: None,
            default_account: "root".into(),
            default_qos: "normal".into(),
            tree_width: limits::TREE_WIDTH,
            msg_aggregation_params: Aggregation::default(),
            route_plugin: RoutePolicy::default(),
            switches: Vec::new(),
            topology_plugin: String::new(),
            topology_param: String::new(),
            topology: TopologyFile::default(),
            def_mem_per_cpu_mb: 0,
            def_mem_per_node_mb: 0,
            def_mem_per_gpu_mb: 0,
            def_cpu_per_gpu: 0,
            max_mem_per_cpu_mb: 0,
            max_mem_per_node_mb: 0,
            scheduler_type: SchedulerType::default(),
            scheduler_parameters: SchedulerParameters::default(),
            licenses: String::new(),
            accounting_storage_enforce: Enforce::default(),
            private_data: PrivateData::default(),
            enforce_part_limits: EnforcePartLimits::default(),
            priority_type: PriorityType::Basic,
            priority_weight_age: 0,
            priority_weight_fairshare: 0,
            priority_weight_job_size: 0,
            priority_weight_partition: 0,
            priority_weight_qos: 0,
            priority_weight_assoc: 0,
            priority_max_age_s: Seconds(7 * 86_400),
            priority_flags: PriorityFlags::default(),
            priority_weight_tres: TresPoints::default(),
            priority_decay_half_life_s: Seconds(7 * 86_400),
            priority_usage_reset_period: ResetPeriod::None,
            priority_favor_small: false,
            priority_calc_period_s: Seconds(300),
            preempt_type: PreemptType::None,
            preempt_mode: Preempt::default(),
            preempt_exempt_time_s: Seconds(0),
            gres_types: String::new(),
            gres: Vec::new(),
            slurmctld_host: Local::default(),
            slurmctld_port: Local::default(),
            controllers: Local::default(),
            log: Local::default(),
            slurmd_port: Local::default(),
            slurmctld_debug: LogLevel::default(),
            slurmd_debug: LogLevel::default(),
            min_uid: Local(limits::VOUCHED_UID_MIN),
            nodes_vouch_for_users: Local::default(),
            own_step_daemons: Local::default(),
            max_processes_per_job: Local(limits::JOB_PROCESSES),
            gang_switch: Local::default(),
            multicast: Local::default(),
            task_prolog: String::new(),
            task_epilog: String::new(),
            private_tmp: String::new(),
            private_tmp_dirs: String::new(),
            auto_detect: Detect::default(),
            constrain_devices: None,
            constrain_cores: None,
            constrain_swap_space: None,
            mail_prog: String::new(),
            mail_relay: String::new(),
            mail_domain: String::new(),
            container_runtime: String::new(),
            job_report: false,
            checkpoint_dir: String::new(),
            checkpoint_shared: false,
            criu: String::new(),
            propagate_limits: String::new(),
            propagate_limits_except: String::new(),
            kill_on_bad_exit: false,
            wait_time_s: 0,
            over_time_limit_min: 0,
            resv_over_run_min: 0,
            max_tasks_per_node: limits::TASKS_PER_NODE_MAX,
            complete_wait_s: 0,
            inactive_limit_s: None,
            max_batch_requeue: None,
            srun_port_range: None,
            srun_prolog: String::new(),
            srun_epilog: String::new(),
            tmp_fs: String::new(),
            disable_root_jobs: false,
            requeue_exit: String::new(),
            requeue_exit_hold: String::new(),
            job_file_append: false,
            multicast_interface: Local::default(),
            mpi_ports: None,
            scheduler_time_slice: TimeSlice::default(),
            rest: Local::default(),
            hooks: Hooks::default(),
            health: HealthConfig::default(),
            power: PowerConfig::default(),
            submit: Submit::default(),
            slurm: FromSlurm::default(),
            accounting: Accounting::default(),
            energy: Energy::default(),
            select_type_parameters: SelectTypeParameters::default(),
            coscheduling: None,
        }
    }
}

impl Config {
    /// Reads the text of a configuration file. An error is a text for users with line and key.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mut config: Self = toml::from_str(text).map_err(|e| text::shortened(&e.to_string()))?;
        let lines = Lines::of(text);
        lines.check(text)?;
        config.check()?;
        config.complete_as(&lines);
        config.kill_invalid_depend |= config.scheduler_parameters.has("kill_invalid_depend");
        Ok(config)
    }

    /// Checks values that the parser can't check: lists, ids, timeouts, preemption. The error is a text for users.
    pub fn check(&self) -> Result<(), String> {
        if license::parse(&self.licenses).is_none() {
            return Err(format!("licenses = \"{}\": use NAME:COUNT,NAME:COUNT", self.licenses));
        }
        if self.cell.is_some_and(|cell| cell >= limits::CELLS_MAX) {
            return Err(format!("cell: use a number below {}", limits::CELLS_MAX));
        }
        self.check_silence()?;
        let (hooks, health, power) = (self.hooks.fault(), self.health.fault(), self.power.fault());
        let (rest, submit, slurm) = (self.rest.0.fault(), self.submit.fault(), self.slurm.fault());
        let programs = [("hooks", hooks), ("health", health), ("power", power), ("submit", submit)];
        let (accounting, energy) = (self.accounting.fault(), self.energy.fault());
        let faults = [("rest", rest), ("slurm", slurm), ("accounting", accounting), ("energy", energy)];
        let faults = faults.into_iter().chain(programs);
        if let Some((table, (key, problem))) = faults.into_iter().find_map(|(table, fault)| Some((table, fault?))) {
            return Err(format!("[{table}] {key}: {problem}"));
        }
        if let Some(dir) = self.private_dirs().chain(Some(Path::new(&self.private_tmp))).find(|dir| !is_own_folder(dir))
            && !self.private_tmp.is_empty()
        {
            return Err(format!("private_tmp, private_tmp_dirs: `{}` is no absolute path below /", dir.display()));
        }
        self.check_preemption()?;
        self.check_inherited()?;
        self.check_sleep()?;
        self.check_ids()?;
        let known = |name: &str| self.gres_types.is_empty() || self.gres_types.split(',').any(|t| t.trim() == name);
        let unknown = |name: &str| format!("`{name}` is a generic resource that GresTypes does not name");
        if let Some(fault) = self.memory_fault() {
            return Err(fault);
        }
        for node in &self.nodes {
            if node.state == NodeStart::Cloud && (node.cpus.is_none() || self.power.resume_program.is_empty()) {
                let lack = if node.cpus.is_none() { "cpus" } else { "resume_program in [power]" };
                return Err(format!("node {}: cloud nodes need {lack}", node.name));
            }
            let select = self.select_type_parameters;
            if let Some(fault) = select.fault(node).or_else(|| node.kept_fault(select)) {
                return Err(fault);
            }
            let wrong = || format!("node {}: gres = \"{}\": use NAME[:TYPE]:COUNT", node.name, node.gres);
            for count in gres::parse(&node.gres).ok_or_else(wrong)? {
                if !known(&count.name) {
                    return Err(format!("node {}: {}", node.name, unknown(&count.name)));
                }
                if count.count as usize > limits::GRES_PER_NODE_MAX {
                    return Err(format!("node {}: at most {} of {}", node.name, limits::GRES_PER_NODE_MAX, count.name));
                }
            }
        }
        for line in &self.gres {
            line.check()?;
            if !line.name.is_empty() && !known(&line.name) {
                return Err(unknown(&line.name));
            }
        }
        Ok(())
    }

    /// Checks that the range of job ids is large enough for the largest array.
    fn check_ids(&self) -> Result<(), String> {
        let ids = self.job_ids();
        if self.max_array_size == 0 || self.max_array_size > limits::ARRAY_INDEX_MAX {
            return Err(format!("max_array_size: 1 to {}", limits::ARRAY_INDEX_MAX));
        }
        if ids.end().saturating_sub(*ids.start()) < self.max_array_size {
            return Err("max_job_id: there must be more ids from first_job_id on than max_array_size".to_owned());
        }
        Ok(())
    }

    /// Checks that preemption by SUSPEND is combined with the settings that it needs. Jobs are suspended only for a
    /// partition of a higher tier, and resumed only by the gang scheduler. Checkpoints need a folder.
    fn check_preemption(&self) -> Result<(), String> {
        let modes = self.partitions.iter().filter_map(|partition| partition.preempt_mode);
        let checkpoints = modes.chain([self.preempt_mode.way]).any(|mode| mode == PreemptMode::Checkpoint);
        if checkpoints && self.checkpoint_dir.is_empty() {
            return Err("PreemptMode CHECKPOINT needs checkpoint_dir, the folder for checkpoints".to_owned());
        }
        if self.preempt_mode.way == PreemptMode::Suspend && self.preempt_type == PreemptType::Qos {
            return Err(
                "PreemptMode SUSPEND needs PreemptType = \"preempt/partition_prio\": jobs are suspended for those \
                        of a partition of a higher PriorityTier; with preempt/qos use REQUEUE or CANCEL"
                    .to_owned(),
            );
        }
        let suspends = |partition: &&PartitionConfig| partition.preempt_mode == Some(PreemptMode::Suspend);
        let wrong = self.preempt_type != PreemptType::Partition || !self.preempt_mode.gang;
        match self.partitions.iter().find(suspends).filter(|_| wrong) {
            Some(partition) => Err(format!(
                "PreemptMode SUSPEND of partition {} needs PreemptType = \"preempt/partition_prio\" and GANG in the \
                 cluster's PreemptMode",
                partition.name
            )),
            None => Ok(()),
        }
    }

    /// Returns what happens to jobs of a partition that are preempted for jobs of a higher tier.
    pub fn preempt_mode_of(&self, partition: &PartitionConfig) -> PreemptMode {
        partition.preempt_mode.unwrap_or(self.preempt_mode.way)
    }

    /// Returns whether preempted jobs of a partition are suspended.
    pub fn suspends(&self, partition: &PartitionConfig) -> bool {
        self.preempt_type == PreemptType::Partition && self.preempt_mode_of(partition) == PreemptMode::Suspend
    }

    /// Adds a partition if there is none. Makes the first partition the default if none is.
    pub fn complete(&mut self) {
        self.have_a_partition();
        if !self.partitions.iter().any(|p| p.default) {
            self.partitions[0].default = true;
        }
    }

    /// Adds a default partition of all nodes if there is no partition.
    pub fn have_a_partition(&mut self) {
        if self.partitions.is_empty() {
            self.partitions.push(PartitionConfig { default: true, ..PartitionConfig::default() });
        }
    }

    /// Returns the range of job ids that the cluster may give. Each cell has a range of its own, so that an id
    /// determines its cell.
    pub fn job_ids(&self) -> RangeInclusive<u32> {
        // One below Slurm's value for "no job".
        let highest = u32::MAX - 2;
        let Some(cell) = self.cell else { return self.first_job_id.max(1)..=self.max_job_id.min(highest) };
        let first = cell.min(limits::CELLS_MAX - 1) * limits::CELL_IDS;
        first.max(1)..=(first + (limits::CELL_IDS - 1)).min(highest)
    }

    /// Returns the policy by which jobs share the time of a core (`coscheduling`, or its default).
    pub fn coscheduling(&self) -> Coscheduling {
        let usual = if self.preempt_mode.gang { Coscheduling::Gang } else { Coscheduling::Implicit };
        self.coscheduling.unwrap_or(usual)
    }

    /// Returns how GPUs of a node are found: as the last line of devices for it says, or else as for all.
    pub fn detects(&self, node: &str) -> Detect {
        let applies = |line: &&GresConfig| line.node_name.is_empty() || hostlist::contains(&line.node_name, node);
        self.gres.iter().filter(applies).rev().find_map(|line| line.auto_detect).unwrap_or(self.auto_detect)
    }

    /// Returns the folders that each job has for itself, if any.
    pub fn private_dirs(&self) -> impl Iterator<Item = &Path> {
        let dirs = if self.private_tmp_dirs.is_empty() { "/tmp,/dev/shm" } else { &self.private_tmp_dirs };
        let dirs = if self.private_tmp.is_empty() { "" } else { dirs };
        dirs.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(Path::new)
    }

    /// Returns whether mail about jobs is sent.
    pub fn sends_mail(&self) -> bool {
        !self.mail_prog.is_empty() || !self.mail_relay.is_empty()
    }

    /// Returns whether `squall mail` has something to tell: to users by mail, or to other programs of ended jobs.
    pub fn tells_of_jobs(&self) -> bool {
        self.sends_mail() || self.accounting.completion().is_some()
    }

    /// Returns the partition for jobs without `--partition`. None: jobs must name a partition.
    pub fn default_partition(&self) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|p| p.default)
    }
}

/// Whether a path is absolute and plain, and not the root itself.
fn is_own_folder(path: &Path) -> bool {
    let plain = |part: &std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
    path.is_absolute() && path != Path::new("/") && path.components().skip(1).all(|part| plain(&part))
}
