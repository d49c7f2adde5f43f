//! Steps: what `srun` asks for, how tasks are laid out, and what a step daemon is told to run.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::id::{StepKey, StepNo};
use crate::job::{ArrayTask, JobSpec, Owner};
use crate::resource::Memory;
use crate::set::CoreSet;
use crate::time::Time;

/// What `srun` asks for within an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// Name: the command's base name or `--job-name`.
    pub name: String,
    /// `--nodes` minimum; None: the allocation's.
    pub nodes_min: Option<u32>,
    /// `--nodes` maximum.
    pub nodes_max: Option<u32>,
    /// `--ntasks`; None: one on each node, or `ntasks_per_node` on each.
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`.
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`; None: 1.
    pub cpus_per_task: Option<u32>,
    /// `--mem` or `--mem-per-cpu` of the step.
    pub memory: Memory,
    /// `--nodelist`: a host list within the allocation.
    pub nodelist: Option<String>,
    /// `--exclude`.
    pub exclude: Option<String>,
    /// `--relative`: first node within the allocation.
    pub relative: Option<u32>,
    /// `--exact`, or implied by it: only the cores that the tasks need; otherwise all of the job's cores on its nodes.
    pub exact: bool,
    /// `--overlap`: share cores with other steps.
    pub overlap: bool,
    /// `--overcommit`: more tasks than cores.
    pub overcommit: bool,
    /// `--immediate`: refuse rather than wait for cores that another step holds.
    pub immediate: bool,
    /// `--distribution`.
    pub distribution: Distribution,
    /// `--time` of the step, seconds.
    pub time_limit_s: Option<u64>,
    /// The whole command line, for accounting.
    pub submit_line: String,
}

/// How ranks go to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// Neighbouring ranks share a node.
    #[default]
    Block,
    /// Rank i goes to node i mod n.
    Cyclic,
    /// `plane=SIZE`: blocks of SIZE ranks go round.
    Plane(u32),
}

/// Which task runs where: tasks of each node, in the order of the node names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Node names, in the allocation's order.
    pub nodes: Vec<String>,
    /// Ranks on each of these nodes, rising. Same length as `nodes`.
    pub ranks: Vec<Vec<u32>>,
    /// CPUs for one task.
    pub cpus_per_task: u32,
}

impl Layout {
    /// How many tasks in all.
    pub fn ntasks(&self) -> u32 {
        self.ranks.iter().map(|r| r.len() as u32).sum()
    }
}

/// What is known of an allocation by those who run in it: the source of SLURM_JOB_* variables
/// (see `squall_engine::environment`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The job, the attempt, and the step (BATCH for an allocation's own).
    pub key: StepKey,
    /// Which array task it is, with the array's whole spec in `spec.array`.
    pub array: Option<ArrayTask>,
    /// Whose it is.
    pub owner: Owner,
    /// What was asked.
    pub spec: JobSpec,
    /// The partition in which it runs.
    pub partition: String,
    /// The account, or the default.
    pub account: String,
    /// The QOS, or the default.
    pub qos: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Node names in the allocation's order.
    pub nodes: Vec<String>,
    /// CPUs held on each node. Same length as `nodes`.
    pub cpus: Vec<u32>,
    /// Memory held on each node, MiB; 0: no limit. Same length as `nodes`.
    pub memory_mb: Vec<u64>,
    /// Tasks of the job on each node, for SLURM_TASKS_PER_NODE. Same length as `nodes`.
    pub tasks: Vec<u32>,
    /// When the attempt started.
    pub start: Time,
    /// When its time limit ends it.
    pub end: Option<Time>,
    /// How often it was requeued.
    pub restarts: u32,
}

/// All that a step daemon needs to run its share of a step. Goes controller → node → step daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLaunch {
    /// Which step of which attempt.
    pub key: StepKey,
    /// Facts of the allocation.
    pub facts: JobFacts,
    /// Which task runs where; the batch script is one task on the first node.
    pub layout: Layout,
    /// This node's place in `layout.nodes`. Filled in for each receiver.
    pub node_index: u32,
    /// This node's place in `facts.nodes`.
    pub job_node_index: u32,
    /// Cores that the step may use on this node.
    pub cores: CoreSet,
    /// Memory that the step may use on this node, MiB; 0: no limit.
    pub memory_mb: u64,
    /// What to run.
    pub program: Program,
    /// Seconds between TERM and KILL.
    pub kill_wait_s: u64,
}

/// What a step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// The batch script of `facts.spec`, whose script and environment the node has by digest.
    #[default]
    Batch,
    /// Tasks that `srun` started.
    Tasks(Box<TaskProgram>),
    /// Emulated: nothing runs; ends by itself after that time with that exit code. For benches and racks.
    Timer {
        /// How long it lasts.
        run_ms: u64,
        /// Exit code.
        code: u8,
    },
}

/// The tasks of an `srun` step: the client's part of a launch, never journaled (a retried request brings it again).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgram {
    /// One command for all, or with `--multi-prog` the commands of rank sets (first match wins).
    pub commands: Vec<(RankSet, Vec<ByteBuf>)>,
    /// The environment, entries ended by NUL.
    pub env: ByteBuf,
    /// Working directory, absolute.
    pub work_dir: ByteBuf,
    /// File mode mask.
    pub umask: u32,
    /// Soft resource limits: (RLIMIT_* number, value).
    pub rlimits: Vec<(u32, u64)>,
    /// Where standard input comes from.
    pub stdin: Stream,
    /// Where standard output goes.
    pub stdout: Stream,
    /// Where standard error goes.
    pub stderr: Stream,
    /// `--open-mode=append`.
    pub append: bool,
    /// `--pty`: rank 0 gets a terminal of this size (rows, columns).
    pub pty: Option<(u16, u16)>,
    /// `--kill-on-bad-exit`: end the step when a task fails.
    pub kill_on_bad_exit: bool,
    /// `--wait`: seconds after the first task's end until the others are killed; 0: never.
    pub wait_s: u32,
    /// `--cpu-bind`, as given.
    pub cpu_bind: Option<String>,
    /// Where the `srun` listens: step daemons connect there.
    pub client: ClientAddress,
    /// What both sides show each other when the step daemon connects.
    pub cookie: [u8; 16],
    /// `--export` set anything but ALL: the value of SLURM_EXPORT_ENV.
    pub export: Option<String>,
    /// Options that are handed on to the tasks' environment, by long name.
    pub others: Vec<(String, String)>,
    /// The step of the same job from whose processes `srun` was called.
    pub within: Option<StepNo>,
}

/// Ranks: all, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankSet {
    /// Every rank.
    #[default]
    All,
    /// These.
    Some(crate::set::IndexSet),
}

/// Where a standard stream of a task goes to or comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Through the connection to `srun`.
    #[default]
    Client,
    /// Through the connection, but only for this rank; the others' is /dev/null.
    ClientRank(u32),
    /// /dev/null.
    Null,
    /// A file on the node, a pattern (`%t`, `%n`, `%N`, `%j`, `%s` …), opened as the user.
    File(String),
    /// stderr only: the same as stdout.
    Joined,
}

/// Where an `srun` listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAddress {
    /// Nowhere: the step streams nothing.
    #[default]
    None,
    /// A Unix socket in the abstract namespace of this machine.
    Abstract(String),
    /// `HOST:PORT`.
    Tcp(String),
}

/// Frames from a step daemon to its `srun`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStep {
    /// First frame on the connection.
    Hello {
        /// The cookie of the launch.
        cookie: [u8; 16],
        /// The node's place in the layout.
        node_index: u32,
    },
    /// The tasks run: (rank, pid).
    Started(Vec<(u32, u32)>),
    /// Some task could not be started.
    Failed {
        /// Which.
        rank: u32,
        /// The exit code that it counts as (2: not found, 13: not executable, …).
        code: u8,
        /// In words: `execve(): nosuchcmd: No such file or directory`.
        error: String,
    },
    /// Output of a task.
    Output {
        /// Which task.
        rank: u32,
        /// True: standard error.
        stderr: bool,
        /// The bytes; empty: the stream has ended.
        bytes: ByteBuf,
    },
    /// A task has ended.
    Exited {
        /// Which task.
        rank: u32,
        /// How.
        exit: crate::job::ExitCode,
        /// It was ended for going over its memory.
        oom: bool,
    },
    /// A notice for the user, shown as `slurmstepd: …`.
    Notice(String),
    /// Last frame: nothing of the step is left on this node.
    Done,
}

/// Frames from `srun` to a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStep {
    /// First frame: the cookie of the launch.
    Hello {
        /// The cookie of the launch.
        cookie: [u8; 16],
    },
    /// Input for a task (None: all); empty: end of input.
    Input {
        /// Which task.
        rank: Option<u32>,
        /// The bytes.
        bytes: ByteBuf,
    },
    /// A signal for all tasks.
    Signal(i32),
    /// The terminal's size changed: rows, columns.
    Resize(u16, u16),
}
