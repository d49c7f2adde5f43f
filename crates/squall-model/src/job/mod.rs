//! What a user asks for (`JobSpec`) and how a job ends (`Outcome`).

pub mod gpus;
pub mod network;
pub mod options;
mod reason;
pub mod spread;

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};
use options::Options;
pub use reason::{NodeTest, PendingReason, Seat, Together};

use crate::id::{Attempt, JobId};
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
    /// Login name, or the uid in decimal where it has none.
    #[n(3)]
    pub user: String,
    /// Name of the primary group, or the gid in decimal.
    #[n(4)]
    pub group: String,
}

/// BLAKE3 of a script or environment: how the journal, the nodes and jobs refer to content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub [u8; 32],
);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The digest of bytes that come one after the other.
#[derive(Clone, Debug, Default)]
pub struct Checksum(blake3::Hasher);

impl Checksum {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// Of all of them.
    pub fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// What kind of job it is: who drives it.
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
    /// A component of a heterogeneous job that is not its first: resources for what the first one starts.
    #[n(3)]
    Component,
}

impl JobKind {
    /// Whether it lives as long as the program that asked for it.
    pub fn is_owned(self) -> bool {
        matches!(self, Self::Allocation | Self::Run)
    }
    /// Whether it waits again, if it may, when it was ended.
    pub fn goes_back(self) -> bool {
        matches!(self, Self::Batch | Self::Component)
    }
}

/// Of which heterogeneous job something is a component: its ids follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Het {
    /// The first component, whose id is the whole job's.
    #[n(0)]
    pub leader: JobId,
    /// How many components there are.
    #[n(1)]
    pub size: u32,
}

impl Het {
    /// All components.
    pub fn ids(self) -> impl Iterator<Item = JobId> + Clone {
        (0..self.size).map(move |offset| JobId(self.leader.0 + offset))
    }
    /// Which of them a job is.
    pub fn offset(self, id: JobId) -> u32 {
        id.0 - self.leader.0
    }
}

/// Everything that a submission asks for. Immutable once journaled; `scontrol update` makes a changed copy.
/// Equal specs are kept once. Option names are Slurm's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSpec {
    /// Batch, salloc or srun.
    #[n(0)]
    pub kind: JobKind,
    /// `--job-name`; the script's file name, the command's, or `wrap`.
    #[n(1)]
    pub name: String,
    /// `--partition`, as given: one name or several with commas; None: the default partition.
    #[n(2)]
    pub partition: Option<String>,
    /// `--account`.
    #[n(3)]
    pub account: Option<String>,
    /// `--qos`.
    #[n(4)]
    pub qos: Option<String>,
    /// `--reservation`.
    #[n(5)]
    pub reservation: Option<String>,
    /// `--wckey`.
    #[n(6)]
    pub wckey: Option<String>,
    /// `--comment`.
    #[n(7)]
    pub comment: Option<String>,
    /// What it needs to run.
    #[n(8)]
    pub need: Need,
    /// `--time` in seconds; None: the partition's default; [`UNLIMITED_S`]: none.
    #[n(9)]
    pub time_limit_s: Option<u64>,
    /// `--time-min` in seconds.
    #[n(10)]
    pub time_min_s: Option<u64>,
    /// `--begin`.
    #[n(11)]
    pub begin: Option<Time>,
    /// `--deadline`: it does not start if it could not end by then, and ends then if it runs.
    #[n(12)]
    pub deadline: Option<Time>,
    /// `--dependency`.
    #[n(13)]
    pub dependency: Option<Dependency>,
    /// `--hold`.
    #[n(14)]
    pub hold: bool,
    /// `--priority`.
    #[n(15)]
    pub priority: Option<u32>,
    /// `--nice`.
    #[n(16)]
    pub nice: i32,
    /// `--requeue` / `--no-requeue`; None: the cluster's default (requeue).
    #[n(17)]
    pub requeue: Option<bool>,
    /// `--kill-on-invalid-dep`; None: the cluster's default (no).
    #[n(18)]
    pub kill_on_invalid_dep: Option<bool>,
    /// `--no-kill`: keep the allocation when one of its nodes fails.
    #[n(19)]
    pub no_kill: bool,
    /// `--signal`.
    #[n(20)]
    pub signal: Option<SignalSpec>,
    /// `--array`.
    #[n(21)]
    pub array: Option<ArraySpec>,
    /// `--chdir`, absolute.
    #[n(22)]
    pub work_dir: String,
    /// `--input`, a pattern; None: /dev/null.
    #[n(23)]
    pub stdin: Option<String>,
    /// `--output`, a pattern; None: `slurm-%j.out` or `slurm-%A_%a.out`.
    #[n(24)]
    pub stdout: Option<String>,
    /// `--error`, a pattern; None: joined to stdout.
    #[n(25)]
    pub stderr: Option<String>,
    /// `--open-mode`: true append, false truncate, None: truncate at the first attempt, append after a requeue.
    #[n(26)]
    pub append: Option<bool>,
    /// `--mail-type`, as given.
    #[n(27)]
    pub mail_type: Option<String>,
    /// `--mail-user`.
    #[n(28)]
    pub mail_user: Option<String>,
    /// Path of the script as the user named it (absolute), or the command line of srun and salloc.
    #[n(29)]
    pub command: String,
    /// Arguments of the batch script.
    #[n(30)]
    pub args: Vec<String>,
    /// The whole command line, for `sacct -o SubmitLine`.
    #[n(31)]
    pub submit_line: String,
    /// Content of the batch script.
    #[n(32)]
    pub script: Option<Digest>,
    /// The environment: `KEY=VALUE` entries, each ended by a NUL byte.
    #[n(33)]
    pub env: Digest,
    /// File mode mask of the submitter.
    #[n(34)]
    pub umask: u32,
    /// Soft resource limits to set in the tasks: (RLIMIT_* number, value).
    #[n(35)]
    pub rlimits: Vec<(u32, u64)>,
    /// Host from which it was submitted.
    #[n(36)]
    pub submit_host: String,
    /// `--get-user-env`: run a login shell of the user to complete the environment.
    #[n(37)]
    pub get_user_env: bool,
    /// Options that few jobs have.
    #[n(38)]
    pub options: Options,
    /// Session id (`getsid`) of the process that submitted, which `scontrol show job` shows as `AllocNode:Sid`; None: not
    /// known.
    #[n(39)]
    pub submit_session: Option<u32>,
}

impl JobSpec {
    /// Whether it comes into the queue held.
    pub fn is_held(&self) -> bool {
        self.hold || self.priority == Some(0)
    }
    /// The reservations that it may run in, by name.
    pub fn reservations(&self) -> impl Iterator<Item = &str> {
        self.reservation.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty())
    }
    /// The time limit as asked, seconds; None: the partition's default; Some(None): unlimited.
    pub fn limit_s(&self) -> Option<Option<u64>> {
        self.time_limit_s.map(|limit| Some(limit).filter(|s| *s != UNLIMITED_S))
    }
    /// `--exclusive=user`: no job of another user runs on its nodes.
    pub fn keeps_others_off(&self) -> bool {
        !self.need.exclusive && self.options.get().is_some_and(|chosen| chosen.exclusive_user)
    }
    /// When it has to have started at the latest to end by its deadline, given the time limit that it has of its own,
    /// seconds: so long before as it runs at least, which is `--time-min`, or else the limit. Without either it ends at
    /// the deadline, however short that makes it. None: it has no deadline.
    pub fn latest_start(&self, limit_s: Option<u64>) -> Option<Time> {
        let least_s = self.time_min_s.filter(|s| *s > 0).or(limit_s).unwrap_or(0);
        Some(self.deadline? - Span::from_secs(least_s))
    }

    /// Every single text in it, but for those of its options, which are limited together ([`Options::bytes`]): what limits
    /// on lengths and on the sizes of messages look at.
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

    /// Estimates, from above, the bytes that it takes in a message.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 256;
        let texts: usize = self.texts().map(|text| text.len() + 4).sum();
        let lists = self.args.iter().map(|arg| arg.len() + 4).sum::<usize>();
        let terms = self.dependency.as_ref().map_or(0, |dependency| dependency.terms.len() * 16);
        let array = self.array.as_ref().map_or(0, |array| array.indices.ranges().len() * 10 + array.text.len());
        FIXED + texts + lists + self.options.bytes() + terms + array + self.rlimits.len() * 24
    }
}

/// The resources that a job needs, as asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Need {
    /// `--nodes` minimum; None: as many as the tasks need.
    #[n(0)]
    pub nodes_min: Option<u32>,
    /// `--nodes` maximum; None: the minimum.
    #[n(1)]
    pub nodes_max: Option<u32>,
    /// `--ntasks`; None: one for each node, or `ntasks_per_node` on each.
    #[n(2)]
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(3)]
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`; None: 1, and SLURM_CPUS_PER_TASK is not set.
    #[n(4)]
    pub cpus_per_task: Option<u32>,
    /// `--mincpus`: least CPUs of each node.
    #[n(5)]
    pub cpus_min: Option<u32>,
    /// `--mem` or `--mem-per-cpu`.
    #[n(6)]
    pub memory: Memory,
    /// `--tmp`, MiB of scratch space on each node.
    #[n(7)]
    pub tmp_disk_mb: u64,
    /// `--exclusive`: whole nodes.
    #[n(8)]
    pub exclusive: bool,
    /// `--oversubscribe`.
    #[n(9)]
    pub oversubscribe: bool,
    /// `--overcommit`: more tasks than CPUs.
    #[n(10)]
    pub overcommit: bool,
    /// `--contiguous`.
    #[n(11)]
    pub contiguous: bool,
    /// `--spread-job`.
    #[n(12)]
    pub spread: bool,
    /// `--nodelist`, a host list that the allocation must contain.
    #[n(13)]
    pub nodelist: Option<String>,
    /// `--exclude`, a host list.
    #[n(14)]
    pub exclude: Option<String>,
    /// `--constraint`, as given.
    #[n(15)]
    pub constraint: Option<String>,
    /// `--gres`, as given.
    #[n(16)]
    pub gres: Option<String>,
    /// `--licenses`, as given.
    #[n(17)]
    pub licenses: Option<String>,
}

impl Need {
    /// Tasks that the job will have on `nodes` nodes.
    pub fn tasks_on(&self, nodes: u32) -> u32 {
        self.ntasks.unwrap_or_else(|| nodes * self.ntasks_per_node.unwrap_or(1))
    }
    /// CPUs for one task.
    pub fn task_cpus(&self) -> u32 {
        self.cpus_per_task.unwrap_or(1).max(1)
    }
}

/// `--array`: which indices, and how many may run at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArraySpec {
    /// The indices.
    #[n(0)]
    pub indices: IndexSet,
    /// `%N`: most tasks running at once.
    #[n(1)]
    pub limit: Option<u32>,
    /// The text as given, for display.
    #[n(2)]
    pub text: String,
}

impl ArraySpec {
    /// The job id of the task at `rank` (its position among the indices) of the array `array`:
    /// an array reserves as many consecutive ids as it has tasks; the last task bears the array's own id, as in Slurm.
    pub fn task_id(&self, array: JobId, rank: u32) -> JobId {
        let last = self.indices.len() as u32 - 1;
        if rank == last { array } else { JobId(array.0 + 1 + rank) }
    }
    /// The reverse of [`Self::task_id`]: the position of a task among the indices, if the id belongs to the array.
    pub fn rank_of(&self, array: JobId, task: JobId) -> Option<u32> {
        let last = self.indices.len() as u32 - 1;
        if task == array {
            return Some(last);
        }
        let rank = task.0.checked_sub(array.0 + 1)?;
        (rank < last).then_some(rank)
    }
}

/// Which task of which array a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ArrayTask {
    /// The array's id.
    #[n(0)]
    pub array: JobId,
    /// The index within the array (SLURM_ARRAY_TASK_ID).
    #[n(1)]
    pub index: u32,
}

/// `--signal=[{R|B}:]SIG[@SECONDS]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SignalSpec {
    /// Signal number.
    #[n(0)]
    pub signal: i32,
    /// Seconds before the time limit.
    #[n(1)]
    pub before_s: u32,
    /// `B:` signal the batch script only; otherwise every step but the script.
    #[n(2)]
    pub batch_only: bool,
}

/// `--dependency`: all of the terms (commas) or any of them (question marks).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Dependency {
    /// The terms, in the order given.
    #[n(0)]
    pub terms: Vec<DependencyTerm>,
    /// True: one term that holds is enough.
    #[n(1)]
    pub any: bool,
}

/// One condition on another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DependencyTerm {
    /// What must hold.
    #[n(0)]
    pub when: DependencyKind,
    /// Of which job: None only for `singleton`.
    #[n(1)]
    pub job: Option<DependencyJob>,
}

/// The job that a dependency names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DependencyJob {
    /// A job or a whole array.
    #[n(0)]
    pub id: JobId,
    /// `ID_INDEX`: one task of an array.
    #[n(1)]
    pub index: Option<u32>,
    /// `after:ID+MINUTES`: minutes to wait after its start.
    #[n(2)]
    pub delay_min: u32,
}

/// The conditions that `--dependency` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum DependencyKind {
    /// It has started or was cancelled.
    #[n(0)]
    After,
    /// It has ended.
    #[n(1)]
    AfterAny,
    /// It has ended with exit code 0.
    #[n(2)]
    AfterOk,
    /// It has ended otherwise.
    #[n(3)]
    AfterNotOk,
    /// The task of the same index in that array has ended with exit code 0.
    #[n(4)]
    AfterCorr,
    /// As AfterAny (there are no burst buffers to wait for).
    #[n(5)]
    AfterBurstBuffer,
    /// No other job of the same name and user is running or ahead in the queue.
    #[n(6)]
    Singleton,
}

/// How a process ended: `code:signal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ExitCode {
    /// The exit code, 0 to 255.
    #[n(0)]
    pub code: u8,
    /// The signal that ended it; 0: none.
    #[n(1)]
    pub signal: u8,
}

impl ExitCode {
    /// `0:0`.
    pub const OK: Self = Self { code: 0, signal: 0 };
    /// Reads `CODE[:SIGNAL]`.
    pub fn parse(text: &str) -> Option<Self> {
        let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { code: code.parse().ok()?, signal: signal.parse().ok()? })
    }
    /// Whether it is `0:0`.
    pub fn is_ok(self) -> bool {
        self == Self::OK
    }
    /// The exit status that a shell or srun reports: the code, or 128 + signal.
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
    /// The batch script's, or the highest of the tasks'.
    #[n(1)]
    pub exit: ExitCode,
    /// What led to it where the state doesn't say: shown as Reason.
    #[n(2)]
    pub reason: Option<String>,
}

/// The states from which there is no return but by requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum EndState {
    /// Exit code 0.
    #[n(0)]
    Completed,
    /// Another exit code.
    #[n(1)]
    Failed,
    /// By `scancel`, or because its dependency can never hold.
    #[n(2)]
    Cancelled {
        /// Who did it.
        #[n(0)]
        by: u32,
    },
    /// Ran into its time limit.
    #[n(3)]
    Timeout,
    /// A node of its allocation died.
    #[n(4)]
    NodeFail,
    /// Went over its memory.
    #[n(5)]
    OutOfMemory,
    /// Ended to make room.
    #[n(6)]
    Preempted,
    /// Could not end by its deadline any more, or ran until then.
    #[n(7)]
    Deadline,
    /// Could not be launched.
    #[n(8)]
    BootFail,
    /// An attempt that was ended to go back into the queue.
    #[n(9)]
    Requeued,
}

/// What a job is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum JobState {
    /// Waits in the queue; holds nothing.
    #[n(0)]
    Pending,
    /// Holds its allocation, and its processes may run.
    #[n(1)]
    Running,
    /// Holds its allocation, its processes are stopped.
    #[n(2)]
    Suspended,
    /// Its end is decided; some node has not yet said that nothing is left of it. Shown with the end state.
    #[n(3)]
    Completing(#[n(0)] EndState),
    /// Nothing is left of it.
    #[n(4)]
    Ended(#[n(0)] EndState),
}

/// Which life of which job: what nodes and journal records are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct JobAttempt {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// The attempt.
    #[n(1)]
    pub attempt: Attempt,
}

/// What processes used, summed or as a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Usage {
    /// User CPU time.
    #[n(0)]
    pub user: Span,
    /// System CPU time.
    #[n(1)]
    pub system: Span,
    /// Peak resident memory over the task with the most, KiB.
    #[n(2)]
    pub max_rss_kb: u64,
    /// The rank of that task.
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
}

impl Usage {
    /// Adds another task's or node's usage: times add, peaks are kept (of equal ones the lowest rank's). Order and
    /// grouping don't matter.
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
    }
}

/// A script or an environment with its name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Blob {
    /// The digest of `bytes`.
    #[n(0)]
    pub digest: Digest,
    /// The content.
    #[n(1)]
    pub bytes: ByteBuf,
}

impl Blob {
    /// Wraps bytes with their digest.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes: ByteBuf::from(bytes) }
    }
}
