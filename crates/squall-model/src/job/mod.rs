//! What a user asks for (`JobSpec`) and how a job ends (`Outcome`).

pub mod container;
pub mod frequency;
pub mod gpus;
pub mod mail;
pub mod network;
pub mod options;
mod reason;
pub mod spread;

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};
use options::Options;
pub use reason::{NodeTest, PendingReason, Seat, Together};

use crate::id::{Attempt, JobId, NodeId};
use crate::limits::UNLIMITED_S;
use crate::resource::Memory;
use crate::set::IndexSet;
use crate::time::{Span, Time};

/// The user on whose behalf something runs; from the kernel (SO_PEERCRED), never from a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Owner {
    /// Numeric user id.
    #[n(0)]
    pub uid: u32,
    /// Primary group at submission.
    #[n(1)]
    pub gid: u32,
    /// All supplementary groups, for the drop of privileges.
    #[n(2)]
    pub groups: Vec<u32>,
    /// Login name, or the uid in decimal if the user has none.
    #[n(3)]
    pub user: String,
    /// Name of the primary group, or the gid in decimal.
    #[n(4)]
    pub group: String,
}

/// BLAKE3 hash of a script or environment. The journal, the nodes and jobs refer to content by this hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub [u8; 32],
);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the digest of `bytes` with a key: another one than without, or with another key.
    pub fn keyed(key: &[u8; 32], bytes: &[u8]) -> Self {
        Self(*blake3::keyed_hash(key, bytes).as_bytes())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Computes the digest of content that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct Checksum(blake3::Hasher);

impl Checksum {
    /// Adds the next piece of the content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// Returns the digest of all pieces added so far.
    pub fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// Kind of a job: which command submitted it, and what runs in its allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum JobKind {
    /// `sbatch`: a script on the first node.
    #[default]
    #[n(0)]
    Batch,
    /// `salloc`: resources for a program on the submitting host.
    #[n(1)]
    Allocation,
    /// `srun` outside of an allocation: resources for one step.
    #[n(2)]
    Run,
    /// A component of a heterogeneous job other than the first: resources for steps that the first one starts.
    #[n(3)]
    Component,
}

impl JobKind {
    /// Whether the job ends when the command that requested it (`salloc` or `srun`) ends.
    pub fn is_owned(self) -> bool {
        matches!(self, Self::Allocation | Self::Run)
    }
    /// Whether a job of this kind may be requeued after it was stopped.
    pub fn goes_back(self) -> bool {
        matches!(self, Self::Batch | Self::Component)
    }
}

/// Membership of a job in a heterogeneous job. The components of a heterogeneous job have consecutive ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Het {
    /// Id of the first component, which is also the id of the whole heterogeneous job.
    #[n(0)]
    pub leader: JobId,
    /// Number of components.
    #[n(1)]
    pub size: u32,
}

impl Het {
    /// Returns the job ids of all components.
    pub fn ids(self) -> impl Iterator<Item = JobId> + Clone {
        (0..self.size).map(move |offset| JobId(self.leader.0 + offset))
    }
    /// Returns the component number of the job `id`, counted from 0.
    pub fn offset(self, id: JobId) -> u32 {
        id.0 - self.leader.0
    }
}

/// Everything that a submission requests. Immutable once journaled; `scontrol update` makes a changed copy. Equal specs
/// are stored once. Options are named as in Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSpec {
    /// Command that submitted the job (sbatch, salloc or srun), or a component of a heterogeneous job.
    #[n(0)]
    pub kind: JobKind,
    /// `--job-name`; by default the file name of the script or command, or `wrap`.
    #[n(1)]
    pub name: String,
    /// `--partition`, as given: one name, or several separated by commas. None: the default partition.
    #[n(2)]
    pub partition: Option<String>,
    /// `--account`. None: the user's default account.
    #[n(3)]
    pub account: Option<String>,
    /// `--qos`. None: the default QOS.
    #[n(4)]
    pub qos: Option<String>,
    /// `--reservation`: one name, or several separated by commas. None: no reservation.
    #[n(5)]
    pub reservation: Option<String>,
    /// `--wckey`: workload key for accounting.
    #[n(6)]
    pub wckey: Option<String>,
    /// `--comment`: any text of the user.
    #[n(7)]
    pub comment: Option<String>,
    /// Nodes, tasks, CPUs and memory that the job requests.
    #[n(8)]
    pub need: Need,
    /// `--time` in seconds. None: the partition's default. [`UNLIMITED_S`]: no limit.
    #[n(9)]
    pub time_limit_s: Option<u64>,
    /// `--time-min`: shortest time limit that the user accepts, seconds.
    #[n(10)]
    pub time_min_s: Option<u64>,
    /// `--begin`: earliest start. None: at once.
    #[n(11)]
    pub begin: Option<Time>,
    /// `--deadline`: the job does not start if it could not end by this time, and is ended then if it still runs.
    #[n(12)]
    pub deadline: Option<Time>,
    /// `--dependency` on other jobs.
    #[n(13)]
    pub dependency: Option<Dependency>,
    /// `--hold`: the job is held until it is released.
    #[n(14)]
    pub hold: bool,
    /// `--priority`; 0: the job is held. None: calculated by the controller.
    #[n(15)]
    pub priority: Option<u32>,
    /// `--nice`: is subtracted from the priority.
    #[n(16)]
    pub nice: i32,
    /// `--requeue` / `--no-requeue`; None: the cluster's default (requeue).
    #[n(17)]
    pub requeue: Option<bool>,
    /// `--kill-on-invalid-dep`; None: the cluster's default (no).
    #[n(18)]
    pub kill_on_invalid_dep: Option<bool>,
    /// `--no-kill`: the job keeps its allocation when one of its nodes fails.
    #[n(19)]
    pub no_kill: bool,
    /// `--signal` before the time limit.
    #[n(20)]
    pub signal: Option<SignalSpec>,
    /// `--array`. None: the job is not an array.
    #[n(21)]
    pub array: Option<ArraySpec>,
    /// `--chdir`: working directory, absolute.
    #[n(22)]
    pub work_dir: String,
    /// `--input`, a file name pattern. None: /dev/null.
    #[n(23)]
    pub stdin: Option<String>,
    /// `--output`, a file name pattern. None: `slurm-%j.out` or `slurm-%A_%a.out`.
    #[n(24)]
    pub stdout: Option<String>,
    /// `--error`, a file name pattern. None: the same file as standard output.
    #[n(25)]
    pub stderr: Option<String>,
    /// `--open-mode`: true: append; false: truncate. None: truncate at the first attempt, append after a requeue.
    #[n(26)]
    pub append: Option<bool>,
    /// `--mail-type`, as given.
    #[n(27)]
    pub mail_type: Option<String>,
    /// `--mail-user`: users or addresses, separated by commas.
    #[n(28)]
    pub mail_user: Option<String>,
    /// Path of the script as the user named it (absolute), or the command line of srun and salloc.
    #[n(29)]
    pub command: String,
    /// Arguments of the batch script.
    #[n(30)]
    pub args: Vec<String>,
    /// The whole command line of the submission, for `sacct -o SubmitLine`.
    #[n(31)]
    pub submit_line: String,
    /// Digest of the batch script. None: the job has no script.
    #[n(32)]
    pub script: Option<Digest>,
    /// Digest of the environment, which consists of `KEY=VALUE` entries, each ended by a NUL byte.
    #[n(33)]
    pub env: Digest,
    /// File mode creation mask (umask) of the submitting process.
    #[n(34)]
    pub umask: u32,
    /// Soft resource limits to set in the tasks: (RLIMIT_* number, value).
    #[n(35)]
    pub rlimits: Vec<(u32, u64)>,
    /// Host on which the submission command ran.
    #[n(36)]
    pub submit_host: String,
    /// `--get-user-env`: the environment is completed by that of a login shell of the user.
    #[n(37)]
    pub get_user_env: bool,
    /// Options that few jobs set.
    #[n(38)]
    pub options: Options,
    /// Session id (`getsid`) of the process that submitted, which `scontrol show job` shows as `AllocNode:Sid`; None: not
    /// known.
    #[n(39)]
    pub submit_session: Option<u32>,
    /// The job in which the submission command ran. A machine that vouches for its users only within their jobs may change
    /// the new job as it may change that one. None: outside of jobs.
    #[n(45)]
    pub within: Option<JobId>,
    /// The node that vouched for the user at the submission, or at that of the job within which it was made. Commands from
    /// within the job then reach no other jobs of the user. None: the user is known otherwise. The controller sets it.
    #[n(46)]
    pub vouched_by: Option<NodeId>,
}

impl JobSpec {
    /// Whether the job is held from its submission on.
    pub fn is_held(&self) -> bool {
        self.hold || self.priority == Some(0)
    }
    /// Returns the names of the reservations in which the job may run.
    pub fn reservations(&self) -> impl Iterator<Item = &str> {
        self.reservation.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty())
    }
    /// Returns the time limit that the user requested, seconds. None: the partition's default. Some(None): unlimited.
    pub fn limit_s(&self) -> Option<Option<u64>> {
        self.time_limit_s.map(|limit| Some(limit).filter(|s| *s != UNLIMITED_S))
    }
    /// Whether no job of another user may run on the job's nodes (`--exclusive=user`).
    pub fn keeps_others_off(&self) -> bool {
        !self.need.exclusive && self.options.get().is_some_and(|chosen| chosen.exclusive_user)
    }
    /// Whether no other job may run in the blocks of the job's nodes (`--exclusive=topo`).
    pub fn keeps_blocks(&self) -> bool {
        self.need.exclusive && self.options.get().is_some_and(|chosen| chosen.exclusive_topo == Some(true))
    }
    /// Returns the latest start at which the job can still end by its deadline. The job's least run time is
    /// `--time-min`, or else its own time limit `limit_s` in seconds, or else 0. None: the job has no deadline.
    pub fn latest_start(&self, limit_s: Option<u64>) -> Option<Time> {
        let least_s = self.time_min_s.filter(|s| *s > 0).or(limit_s).unwrap_or(0);
        Some(self.deadline? - Span::from_secs(least_s))
    }

    /// Returns every text of the spec that is checked against limits on lengths and on the size of messages. Texts of
    /// `options` are not among these, because they are limited together ([`Options::bytes`]).
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let plain = [&self.name, &self.work_dir, &self.command, &self.submit_line, &self.submit_host];
        let optional = [
            &self.partition,
            &self.account,
            &self.qos,
            &self.reservation,
            &self.wckey,
            &self.comment,
            &self.stdin,
            &self.stdout,
            &self.stderr,
            &self.mail_type,
            &self.mail_user,
            &self.need.nodelist,
            &self.need.exclude,
            &self.need.constraint,
            &self.need.gres,
            &self.need.licenses,
        ];
        plain.into_iter().chain(optional.into_iter().flatten()).map(String::as_str)
    }

    /// Returns an upper estimate of the encoded size of the spec, bytes.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 256;
        let texts: usize = self.texts().map(|text| text.len() + 4).sum();
        let lists = self.args.iter().map(|arg| arg.len() + 4).sum::<usize>();
        let terms = self.dependency.as_ref().map_or(0, |dependency| dependency.terms.len() * 16);
        let array = self.array.as_ref().map_or(0, |array| array.indices.ranges().len() * 10 + array.text.len());
        FIXED + texts + lists + self.options.bytes() + terms + array + self.rlimits.len() * 24
    }
}

/// Resources that a job requests, as given in its options.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Need {
    /// `--nodes`, minimum. None: as many nodes as the tasks need.
    #[n(0)]
    pub nodes_min: Option<u32>,
    /// `--nodes`, maximum. None: the same as the minimum.
    #[n(1)]
    pub nodes_max: Option<u32>,
    /// `--ntasks`. None: one task on each node, or `ntasks_per_node` tasks.
    #[n(2)]
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`: number of tasks on each node.
    #[n(3)]
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`. None: 1 CPU, and SLURM_CPUS_PER_TASK is not set.
    #[n(4)]
    pub cpus_per_task: Option<u32>,
    /// `--mincpus`: minimum number of CPUs of each node.
    #[n(5)]
    pub cpus_min: Option<u32>,
    /// `--mem` or `--mem-per-cpu`: memory for each node or each CPU.
    #[n(6)]
    pub memory: Memory,
    /// `--tmp`, MiB of scratch space on each node.
    #[n(7)]
    pub tmp_disk_mb: u64,
    /// `--exclusive`: the job gets whole nodes.
    #[n(8)]
    pub exclusive: bool,
    /// `--oversubscribe`: other jobs may use the same CPUs.
    #[n(9)]
    pub oversubscribe: bool,
    /// `--overcommit`: there may be more tasks than CPUs.
    #[n(10)]
    pub overcommit: bool,
    /// `--contiguous`: the nodes must have consecutive numbers.
    #[n(11)]
    pub contiguous: bool,
    /// `--spread-job`: the tasks are distributed over as many nodes as possible.
    #[n(12)]
    pub spread: bool,
    /// `--nodelist`, a host list that the allocation must contain.
    #[n(13)]
    pub nodelist: Option<String>,
    /// `--exclude`, a host list of nodes that the job must not get.
    #[n(14)]
    pub exclude: Option<String>,
    /// `--constraint`, as given: features that nodes must have.
    #[n(15)]
    pub constraint: Option<String>,
    /// `--gres`, as given: generic resources of each node.
    #[n(16)]
    pub gres: Option<String>,
    /// `--licenses`, as given: licenses and their numbers.
    #[n(17)]
    pub licenses: Option<String>,
}

impl Need {
    /// Returns the number of tasks that the job will have on `nodes` nodes.
    pub fn tasks_on(&self, nodes: u32) -> u32 {
        self.ntasks.unwrap_or_else(|| nodes.saturating_mul(self.ntasks_per_node.unwrap_or(1)))
    }
    /// Returns the number of CPUs for each task, at least 1.
    pub fn task_cpus(&self) -> u32 {
        self.cpus_per_task.unwrap_or(1).max(1)
    }
}

/// `--array`: indices of the tasks, and how many of these tasks may run at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArraySpec {
    /// Indices of the array's tasks.
    #[n(0)]
    pub indices: IndexSet,
    /// `%N`: maximum number of tasks running at once. None: no limit.
    #[n(1)]
    pub limit: Option<u32>,
    /// The option's value as the user gave it, for display.
    #[n(2)]
    pub text: String,
}

impl ArraySpec {
    /// Returns the job id of the task at position `rank` among the indices of the array `array`. An array reserves as
    /// many consecutive ids as it has tasks. The last task has the array's own id, as in Slurm.
    pub fn task_id(&self, array: JobId, rank: u32) -> JobId {
        let last = self.indices.len() as u32 - 1;
        if rank == last { array } else { JobId(array.0 + 1 + rank) }
    }
    /// Returns the position of a task among the indices, which is the reverse of [`Self::task_id`]. None: `task` is not
    /// a task of the array.
    pub fn rank_of(&self, array: JobId, task: JobId) -> Option<u32> {
        let last = self.indices.len() as u32 - 1;
        if task == array {
            return Some(last);
        }
        let rank = task.0.checked_sub(array.0 + 1)?;
        (rank < last).then_some(rank)
    }
}

/// Identifies one task of a job array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ArrayTask {
    /// Job id of the array.
    #[n(0)]
    pub array: JobId,
    /// The index within the array (SLURM_ARRAY_TASK_ID).
    #[n(1)]
    pub index: u32,
}

/// `--signal=[{R|B}:]SIG[@SECONDS]`: a signal that the job gets before its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SignalSpec {
    /// Signal number.
    #[n(0)]
    pub signal: i32,
    /// How long before the time limit the signal is sent, seconds.
    #[n(1)]
    pub before_s: u32,
    /// `B:` signals only the batch script. Without it, all steps except the script get the signal.
    #[n(2)]
    pub batch_only: bool,
}

/// `--dependency`: conditions on other jobs. Either all must hold (separated by commas) or any (question marks).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Dependency {
    /// The conditions, in the order given.
    #[n(0)]
    pub terms: Vec<DependencyTerm>,
    /// Whether a single condition that holds is enough.
    #[n(1)]
    pub any: bool,
}

/// One condition on another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DependencyTerm {
    /// What must be true of the other job.
    #[n(0)]
    pub when: DependencyKind,
    /// The other job. None only for `singleton`.
    #[n(1)]
    pub job: Option<DependencyJob>,
}

/// The job that a dependency names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DependencyJob {
    /// Id of the job or of the whole array.
    #[n(0)]
    pub id: JobId,
    /// `ID_INDEX`: index of one task of the array. None: the job, or the whole array.
    #[n(1)]
    pub index: Option<u32>,
    /// `after:ID+MINUTES`: minutes to wait after the start of the other job.
    #[n(2)]
    pub delay_min: u32,
}

/// Kinds of conditions in `--dependency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum DependencyKind {
    /// The other job has started or was cancelled.
    #[n(0)]
    After,
    /// The other job has ended.
    #[n(1)]
    AfterAny,
    /// The other job has ended with exit code 0.
    #[n(2)]
    AfterOk,
    /// The other job has ended, but not with exit code 0.
    #[n(3)]
    AfterNotOk,
    /// The task of the other array with the same index as this task has ended with exit code 0.
    #[n(4)]
    AfterCorr,
    /// The same as `AfterAny`, because Squall has no burst buffers to wait for.
    #[n(5)]
    AfterBurstBuffer,
    /// No other job of the same user and name is running or ahead in the queue.
    #[n(6)]
    Singleton,
}

impl DependencyKind {
    /// All kinds, by their words in `--dependency`.
    const WORDS: [(Self, &str); 7] = [
        (Self::After, "after"),
        (Self::AfterAny, "afterany"),
        (Self::AfterOk, "afterok"),
        (Self::AfterNotOk, "afternotok"),
        (Self::AfterCorr, "aftercorr"),
        (Self::AfterBurstBuffer, "afterburstbuffer"),
        (Self::Singleton, "singleton"),
    ];
    /// Returns the word of a kind in `--dependency`.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
    /// Returns the kind with this word, of which the case does not matter.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, own)| own.eq_ignore_ascii_case(word)).map(|(kind, _)| *kind)
    }
}

/// How a process ended: `code:signal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ExitCode {
    /// The exit code, 0 to 255.
    #[n(0)]
    pub code: u8,
    /// Number of the signal that killed the process. 0: it exited by itself.
    #[n(1)]
    pub signal: u8,
}

impl ExitCode {
    /// Success: `0:0`.
    pub const OK: Self = Self { code: 0, signal: 0 };
    /// Exit that Slurm shows of jobs and steps that ran out of memory: `0:125`.
    pub const OUT_OF_MEMORY: Self = Self { code: 0, signal: 125 };
    /// Reads `CODE[:SIGNAL]`. None: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { code: code.parse().ok()?, signal: signal.parse().ok()? })
    }
    /// Whether both exit code and signal are 0.
    pub fn is_ok(self) -> bool {
        self == Self::OK
    }
    /// Returns the exit status that a shell or srun reports: the code, or 128 + signal.
    pub fn shell_status(self) -> i32 {
        if self.signal != 0 { 128 + i32::from(self.signal) } else { i32::from(self.code) }
    }
}

/// How a job or step ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Outcome {
    /// The final state.
    #[n(0)]
    pub state: EndState,
    /// Exit code of the batch script, or the highest exit code of the tasks.
    #[n(1)]
    pub exit: ExitCode,
    /// Cause of the end if the state does not give it; shown as Reason. None: nothing to add.
    #[n(2)]
    pub reason: Option<String>,
}

/// Final states of a job or step. A job leaves them only by a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum EndState {
    /// Ended with exit code 0.
    #[n(0)]
    Completed,
    /// Ended with an exit code other than 0.
    #[n(1)]
    Failed,
    /// Cancelled with `scancel`, or because the job's dependency can never be satisfied. A step also if a signal ended
    /// its tasks.
    #[n(2)]
    Cancelled {
        /// User id of the user who cancelled the job or step; [`EndState::NOBODY`]: no user did.
        #[n(0)]
        by: u32,
    },
    /// Reached its time limit.
    #[n(3)]
    Timeout,
    /// A node of its allocation failed.
    #[n(4)]
    NodeFail,
    /// Exceeded its memory limit.
    #[n(5)]
    OutOfMemory,
    /// Preempted in favour of another job.
    #[n(6)]
    Preempted,
    /// Could no longer end by its deadline, or was still running then.
    #[n(7)]
    Deadline,
    /// The job could not be launched.
    #[n(8)]
    BootFail,
    /// Only this attempt ended: the job returned to the queue.
    #[n(9)]
    Requeued,
}

impl EndState {
    /// User id in `Cancelled` of a step that a signal ended and no user.
    pub const NOBODY: u32 = u32::MAX;

    /// Returns Slurm's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled { .. } => "CANCELLED",
            Self::Timeout => "TIMEOUT",
            Self::NodeFail => "NODE_FAIL",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::Preempted => "PREEMPTED",
            Self::Deadline => "DEADLINE",
            Self::BootFail => "BOOT_FAIL",
            Self::Requeued => "REQUEUED",
        }
    }

    /// Returns whether a step in this state ended by itself, as far as is known: the controller did not end it, and it
    /// lost no node.
    pub fn is_by_itself(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled { by: Self::NOBODY })
    }
}

/// Present state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum JobState {
    /// Waits in the queue and holds no resources.
    #[n(0)]
    Pending,
    /// Holds its allocation, and its processes may run.
    #[n(1)]
    Running,
    /// Holds its allocation, but its processes are stopped.
    #[n(2)]
    Suspended,
    /// The end is decided, but some node has not yet reported that all processes are gone. Shown with the end state.
    #[n(3)]
    Completing(#[n(0)] EndState),
    /// The job has ended, and none of its processes is left.
    #[n(4)]
    Ended(#[n(0)] EndState),
    /// Holds its allocation, and its nodes are not ready: they are powered up, or a program before the job runs.
    #[n(5)]
    Configuring,
}

impl JobState {
    /// Returns Slurm's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Configuring => "CONFIGURING",
            Self::Completing(_) => "COMPLETING",
            Self::Ended(how) => how.name(),
        }
    }
}

/// Identifies one attempt of a job; the key in messages to nodes and in journal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct JobAttempt {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Which attempt of this job.
    #[n(1)]
    pub attempt: Attempt,
}

/// Resources that processes used: sums, and peaks of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Usage {
    /// User CPU time.
    #[n(0)]
    pub user: Span,
    /// System CPU time.
    #[n(1)]
    pub system: Span,
    /// Peak resident memory of the task that used most, KiB.
    #[n(2)]
    pub max_rss_kb: u64,
    /// Rank of the task with the highest peak in `max_rss_kb`.
    #[n(3)]
    pub max_rss_task: u32,
    /// Sum over tasks of the peak resident memory, KiB (for AveRSS).
    #[n(4)]
    pub total_rss_kb: u64,
    /// Peak virtual memory, KiB.
    #[n(5)]
    pub max_vm_kb: u64,
    /// Bytes read.
    #[n(6)]
    pub read_bytes: u64,
    /// Bytes written.
    #[n(7)]
    pub write_bytes: u64,
    /// Major page faults.
    #[n(8)]
    pub major_faults: u64,
    /// What GPUs do when someone asks. None: nobody asked, there are none, or they can't be measured.
    #[n(9)]
    pub gpus: Option<GpuUse>,
    /// Energy that the nodes used meanwhile, joules. None: it was not measured.
    #[n(10)]
    pub energy_j: Option<u64>,
}

/// What GPUs do at a moment, summed over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GpuUse {
    /// Part of the time in which they work, percent: 150 is one and a half.
    #[n(0)]
    pub percent: u64,
    /// Their memory in use, KiB.
    #[n(1)]
    pub used_kb: u64,
}

impl Usage {
    /// Adds the usage of another task or node. Times, bytes and faults are summed, and the higher peak is kept (of
    /// equal peaks that of the lower rank). Order and grouping don't matter.
    pub fn absorb(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.user.0, other.user.0);
        add(&mut self.system.0, other.system.0);
        let peak = |usage: &Self| (usage.max_rss_kb, std::cmp::Reverse(usage.max_rss_task));
        if peak(other) > peak(self) {
            (self.max_rss_kb, self.max_rss_task) = (other.max_rss_kb, other.max_rss_task);
        }
        add(&mut self.total_rss_kb, other.total_rss_kb);
        self.max_vm_kb = self.max_vm_kb.max(other.max_vm_kb);
        add(&mut self.read_bytes, other.read_bytes);
        add(&mut self.write_bytes, other.write_bytes);
        add(&mut self.major_faults, other.major_faults);
        if let Some(other) = other.gpus {
            let own = self.gpus.get_or_insert_default();
            add(&mut own.percent, other.percent);
            add(&mut own.used_kb, other.used_kb);
        }
        if let Some(other) = other.energy_j {
            add(self.energy_j.get_or_insert_default(), other);
        }
    }
}

/// A script or an environment, with its digest.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Blob {
    /// Digest of `bytes`.
    #[n(0)]
    pub digest: Digest,
    /// The content.
    #[n(1)]
    pub bytes: ByteBuf,
}

impl Blob {
    /// Returns a blob of `bytes` with their digest.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes: ByteBuf::from(bytes) }
    }
}
