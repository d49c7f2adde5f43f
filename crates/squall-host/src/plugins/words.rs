//! Messages between a step daemon or command and the process with its SPANK plugins.

use minicbor::{Decode, Encode};
use squall_model::encoding::ByteBuf;

/// Where plugins are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Context {
    /// Beside `srun`.
    #[default]
    #[n(0)]
    Local,
    /// Beside a step on a node.
    #[n(1)]
    Remote,
    /// Beside `sbatch` or `salloc`.
    #[n(2)]
    Allocator,
    /// Beside a node daemon.
    #[n(3)]
    Slurmd,
    /// On a node, before and after a job.
    #[n(4)]
    JobScript,
}

/// Facts about job and step for which plugins ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Items {
    /// User id of the job.
    #[n(0)]
    pub uid: u32,
    /// Group id of the job.
    #[n(1)]
    pub gid: u32,
    /// All groups of the user.
    #[n(2)]
    pub groups: Vec<u32>,
    /// Number of the job.
    #[n(3)]
    pub job: u32,
    /// Number of the step, as Slurm numbers it.
    #[n(4)]
    pub step: u32,
    /// Number of nodes.
    #[n(5)]
    pub nodes: u32,
    /// Number of this node among them.
    #[n(6)]
    pub node: u32,
    /// Ranks of the tasks on this node.
    #[n(7)]
    pub ranks: Vec<u32>,
    /// Number of tasks on all nodes.
    #[n(8)]
    pub tasks: u32,
    /// CPUs of the step on this node.
    #[n(9)]
    pub cpus: u32,
    /// CPUs of each task.
    #[n(10)]
    pub cpus_per_task: u32,
    /// Cores of the job on this node, as a list.
    #[n(11)]
    pub job_cores: String,
    /// Memory of the job on this node, MiB.
    #[n(12)]
    pub job_memory_mb: u64,
    /// Cores of the step on this node, as a list.
    #[n(13)]
    pub step_cores: String,
    /// Memory of the step on this node, MiB.
    #[n(14)]
    pub step_memory_mb: u64,
    /// How often the job has been requeued.
    #[n(15)]
    pub restarts: u32,
    /// Number of the array; 0: the job is of none.
    #[n(16)]
    pub array: u32,
    /// Index in the array.
    #[n(17)]
    pub array_task: u32,
}

/// What a process with plugins needs to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Order {
    /// Where the plugins are loaded.
    #[n(0)]
    pub context: Context,
    /// Path of the file that lists them.
    #[n(1)]
    pub file: String,
    /// Time that a hook may take, seconds.
    #[n(2)]
    pub timeout_s: u64,
    /// Facts about job and step. None: there is no job yet.
    #[n(3)]
    pub items: Option<Items>,
    /// The job's environment, `NAME=VALUE` each.
    #[n(4)]
    pub env: Vec<ByteBuf>,
    /// The job's command.
    #[n(5)]
    pub argv: Vec<ByteBuf>,
    /// The job's working directory.
    #[n(6)]
    pub dir: ByteBuf,
    /// Release of Slurm that plugins are told. Empty: the default.
    #[n(7)]
    pub release: String,
}

/// A task to be started. Its files come beside: standard input, output and error, and a further one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TaskOrder {
    /// Rank of the task.
    #[n(0)]
    pub rank: u32,
    /// Number of the task on this node.
    #[n(1)]
    pub local: u32,
    /// File to execute. None: it is searched by name after the hooks.
    #[n(2)]
    pub program: Option<ByteBuf>,
    /// The arguments, the program's name first.
    #[n(3)]
    pub argv: Vec<ByteBuf>,
    /// The environment, `NAME=VALUE` each.
    #[n(4)]
    pub env: Vec<ByteBuf>,
    /// Whether the task has a terminal.
    #[n(5)]
    pub terminal: bool,
    /// CPUs of the task; empty: all of the step.
    #[n(6)]
    pub cpus: Vec<u32>,
    /// Soft resource limits: (RLIMIT_* number, value).
    #[n(7)]
    pub rlimits: Vec<(u32, u64)>,
    /// File mode mask (umask).
    #[n(8)]
    pub umask: u32,
    /// Working directory.
    #[n(9)]
    pub dir: ByteBuf,
    /// Whether a further file comes beside.
    #[n(10)]
    pub further: bool,
}

/// An option that the user gave.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Given {
    /// Long name, without dashes.
    #[n(0)]
    pub name: String,
    /// The value. None: given without one.
    #[n(1)]
    pub value: Option<String>,
}

/// An option of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Offered {
    /// Long name, without dashes.
    #[n(0)]
    pub name: String,
    /// Name of the value in the help.
    #[n(1)]
    pub value_name: String,
    /// Text of the help.
    #[n(2)]
    pub usage: String,
    /// Whether it takes a value: 0: no; 1: yes; 2: perhaps.
    #[n(3)]
    pub has_arg: u8,
}

/// A variable with its new value. None: it was removed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Change {
    /// Name of the variable.
    #[n(0)]
    pub name: ByteBuf,
    /// Its value.
    #[n(1)]
    pub value: Option<ByteBuf>,
}

/// Message to a process with plugins.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToPlugins {
    /// The first message.
    #[n(0)]
    Begin(#[n(0)] Box<Order>),
    /// The options that the user gave to the command beside which the plugins are.
    #[n(1)]
    Given(#[n(0)] Vec<Given>),
    /// The job of the command is known.
    #[n(2)]
    Job(#[n(0)] Box<Items>),
    /// Starts a task.
    #[n(3)]
    Task(#[n(0)] Box<TaskOrder>),
    /// Lets the task of this rank execute its program.
    #[n(4)]
    Go(#[n(0)] u32),
    /// The task of this rank has ended with this status, as of wait(2).
    #[n(5)]
    Exited(#[n(0)] u32, #[n(1)] i32),
    /// All is over: the process ends.
    #[n(6)]
    Over,
}

/// Message of a process with plugins.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromPlugins {
    /// The options of the plugins, in the answer to `Begin` beside commands.
    #[n(0)]
    Offers(#[n(0)] Vec<Offered>),
    /// All hooks before tasks have run, and have changed these variables, and, beside commands, these of prologs.
    #[n(1)]
    Ready(#[n(0)] Vec<Change>, #[n(1)] Vec<Change>),
    /// A required plugin does not let the step or job begin, for this reason.
    #[n(2)]
    Refused(#[n(0)] String),
    /// A text for the user.
    #[n(3)]
    Said(#[n(0)] String),
    /// The task of this rank has this process id, and waits for `Go`.
    #[n(4)]
    Born(#[n(0)] u32, #[n(1)] u32),
    /// The task of this rank can't be started, for this reason.
    #[n(5)]
    Unborn(#[n(0)] u32, #[n(1)] String),
}
