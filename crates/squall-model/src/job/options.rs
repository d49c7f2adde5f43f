//! Options of sbatch, srun and salloc that few jobs set, each in a field of its own.
//!
//! A new option gets a field with the next number, in `Chosen` or in one of its groups.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

use super::ExitCode;
use super::container::Container;
use super::gpus::Gpus;
use super::network::Network;
use super::spread::Spread;
use crate::checkpoint::CheckpointPlan;
use crate::encoding;
use crate::inside::Inside;
use crate::places::OnNodeFail;
use crate::time::Span;

/// Value of an option, together with the text that the user gave. The text is displayed and passed on to the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AsGiven<T> {
    /// The text that the user gave, for example `4G`.
    #[n(0)]
    pub text: String,
    /// The value read from the text, for example 4096.
    #[n(1)]
    pub value: T,
}

/// The options in [`Chosen`]. A job that sets none of them takes only a pointer.
///
/// Encoded as an empty list if no option is set, otherwise as a map.
#[derive(Clone, Debug, Default)]
pub struct Options(Option<Box<Chosen>>);

/// Values of the options that few jobs set. Related options are grouped in structs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Chosen {
    /// Options about GPUs.
    #[n(0)]
    #[cbor(default)]
    pub gpus: Gpus,
    /// Requirements on sockets, cores and threads of nodes, without the effect of `--hint` ([`Chosen::inside`] includes
    /// it).
    #[n(1)]
    #[cbor(default)]
    pub inside: Inside,
    /// Options about the position of the job's nodes in the network.
    #[n(2)]
    #[cbor(default)]
    pub network: Network,
    /// `--hint`: which threads of each core tasks may use.
    #[n(3)]
    pub hint: Option<Hint>,
    /// `--distribution` within nodes. Its text has every `*` replaced by the default: `block:cyclic`.
    #[n(4)]
    pub distribution: Option<AsGiven<Spread>>,
    /// `--prefer`: features; nodes that have them are tried first.
    #[n(5)]
    pub prefer: Option<String>,
    /// `--segment`: number of nodes in each part that must be in the same block. It means nothing without blocks
    /// topology.
    #[n(6)]
    pub segment: Option<u32>,
    /// `--use-min-nodes`: fewer nodes are preferred to an earlier start.
    #[n(7)]
    #[cbor(default)]
    pub use_min_nodes: bool,
    /// `--exclusive=user`, or the same by setting of the partition: no job of another user runs on the job's nodes.
    /// Without effect if the job gets whole nodes anyway.
    #[n(8)]
    #[cbor(default)]
    pub exclusive_user: bool,
    /// `--begin=now+1hour`: the begin time is relative to the submission, so changes of the wall clock don't affect it.
    #[n(9)]
    #[cbor(default)]
    pub begins_after_submission: bool,
    /// `salloc --no-shell`: the allocation remains after the command that requested it has ended.
    #[n(10)]
    #[cbor(default)]
    pub no_shell: bool,
    /// Bytes of script, environment and arguments, as counted by the controller. 0: at most `CONTENT_BYTES_FREE`, which
    /// don't count against the user's limit.
    #[n(11)]
    #[cbor(default)]
    pub content_bytes: u64,
    /// Comments and notes on the job.
    #[n(12)]
    #[cbor(default)]
    pub notes: Notes,
    /// Options that are only displayed or passed on to the job in variables, and `--cpu-freq`.
    #[n(13)]
    #[cbor(default)]
    pub shown: Shown,
    /// Options that apply only to a step.
    #[n(14)]
    #[cbor(default)]
    pub step: OfStep,
    /// `--oom-kill-step`: a task that runs out of memory ends all tasks of its step. None: it ends alone.
    #[n(15)]
    pub oom_kill_step: Option<bool>,
    /// `sbatch --report`: the batch job's output ends with a line about its end and usage. None: as the cluster's
    /// `job_report` says.
    #[n(16)]
    pub report: Option<bool>,
    /// The container in which the batch script, or the tasks of a step, run. None: they run without one.
    #[n(20)]
    pub container: Option<Box<Container>>,
    /// `--x11` as given: nodes of steps on which X clients reach the user's display.
    #[n(21)]
    pub x11: Option<String>,
    /// `--reboot`: the job's nodes are rebooted before it starts. None: they are not. The numbers 22 to 27 are left out.
    #[n(28)]
    pub reboot: Option<bool>,
    /// `--delay-boot`: seconds from the time when the job could run, in which it gets only nodes that are up. None: as
    /// the cluster's `delay_boot` says.
    #[n(29)]
    pub delay_boot_s: Option<u64>,
    /// `--gres-flags=enforce-binding`: the job gets only CPUs that are near its devices. None: these are preferred.
    #[n(30)]
    pub enforce_binding: Option<bool>,
    /// `--node-fence`: seconds after which a node that can't show that the controller hears it ends the job's processes
    /// there. 0: as many as the partition or the cluster says; the controller replaces it at the submission. None: the job
    /// has no fence, unless the partition or the cluster says so.
    #[n(31)]
    pub node_fence_s: Option<u64>,
    /// `--on-node-fail`: what happens when a node of the running job fails. None: as partition and cluster say.
    #[n(32)]
    pub on_node_fail: Option<OnNodeFail>,
    /// `--spare-nodes`: number of nodes that the job holds in addition, and that idle until they replace a failed one.
    /// None: none.
    #[n(33)]
    pub spare_nodes: Option<u32>,
    /// `--requeue=expedite`: if a node fails, the job is requeued before all others. None: it waits its turn.
    #[n(34)]
    pub expedite: Option<bool>,
    /// `--checkpoint`: the controller checkpoints the running job. None: only users do.
    #[n(35)]
    pub checkpoint: Option<CheckpointPlan>,
    /// Some(true): `--propagate` named the resource limits, so that the cluster's `propagate_limits` says nothing.
    #[n(36)]
    pub names_limits: Option<bool>,
    /// `--spread-segments`, `--consolidate-segments`: where the parts of `segment` nodes stand. None: anywhere.
    #[n(37)]
    pub segments: Option<SegmentPlacing>,
    /// Names of the fields that the site's submit filter changed, separated by commas. The controller's daemon sets it.
    /// None: it changed none.
    #[n(38)]
    pub filtered: Option<String>,
    /// Variables that SPANK plugins beside the command set for prologs and epilogs: names, without `SPANK_`, and values.
    /// A user may have chosen them.
    #[n(39)]
    #[cbor(default, skip_if = "Vec::is_empty")]
    pub plugin_env: Vec<(String, String)>,
    /// `--exclusive=topo`, or the same by setting of the partition: no other job runs in the blocks, or on the ring, of
    /// the job's nodes. The job gets whole nodes, too. None: others may.
    #[n(40)]
    pub exclusive_topo: Option<bool>,
}

/// Where the segments of a job stand in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct SegmentPlacing {
    /// `--spread-segments`: each in a block of its own.
    #[n(0)]
    pub apart: bool,
    /// `--consolidate-segments`: all in one aggregated block.
    #[n(1)]
    pub together: bool,
}

impl Chosen {
    /// Returns the length of a term of the job's node fence. None: it has none.
    pub fn node_fence(&self) -> Option<Span> {
        self.node_fence_s.map(Span::from_secs)
    }
}

/// `--hint`: which hardware threads of each core tasks may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Hint {
    /// `compute_bound`: one thread of each core, on all cores.
    #[n(0)]
    ComputeBound,
    /// `memory_bound`: one thread of each core.
    #[n(1)]
    MemoryBound,
    /// `multithread`: all threads of each core.
    #[n(2)]
    Multithread,
    /// `nomultithread`: one thread of each core.
    #[n(3)]
    NoMultithread,
}

/// Notes on a job, which may be changed at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Notes {
    /// `--extra`: any text of the user.
    #[n(0)]
    pub extra: Option<String>,
    /// Comment by an operator: `scontrol update AdminComment=`.
    #[n(1)]
    pub admin_comment: Option<String>,
    /// Comment that exists only in accounting: `sacctmgr modify job set SystemComment=`.
    #[n(2)]
    pub system_comment: Option<String>,
    /// Exit code that exists only in accounting: `sacctmgr modify job set DerivedExitCode=`.
    #[n(3)]
    pub derived_exit: Option<ExitCode>,
}

/// Options that are displayed or passed on in environment variables. All but `--cpu-freq` have no other effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Shown {
    /// Directory in which the command was called. None: the same as the working directory, because there was no
    /// `--chdir`.
    #[n(0)]
    pub submit_dir: Option<String>,
    /// `sbatch --export`, as given: which variables the job gets.
    #[n(1)]
    pub export: Option<String>,
    /// `--batch`: features that the first node must have.
    #[n(2)]
    pub batch: Option<String>,
    /// `--cpu-freq`, as given: frequency of the CPUs of each step. Node daemons set it.
    #[n(3)]
    pub cpu_freq: Option<String>,
    /// `--mem-bind`: binding of tasks to memory.
    #[n(4)]
    pub mem_bind: Option<String>,
    /// `--profile`: kinds of data to profile.
    #[n(5)]
    pub profile: Option<String>,
    /// `--tres-per-task` as given; the resources in it are stored in other fields.
    #[n(6)]
    pub tres_per_task: Option<String>,
    /// `--gpu-freq`: frequency of the GPUs.
    #[n(7)]
    pub gpu_freq: Option<String>,
}

/// Programs that run, as the job's user, before and after each task. Empty text: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TaskScripts {
    /// Program before the task; what it prints may change the task's environment.
    #[n(0)]
    pub prolog: String,
    /// Program after the task.
    #[n(1)]
    pub epilog: String,
}

impl TaskScripts {
    /// Returns whether there is neither a prolog nor an epilog.
    pub fn is_empty(&self) -> bool {
        self.prolog.is_empty() && self.epilog.is_empty()
    }
}

/// Options of `srun` that apply only to its step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OfStep {
    /// `--gres` of a step in an existing job. None: the step may use all resources of the job.
    #[n(0)]
    pub gres: Option<String>,
    /// `--cpus-per-task` of the step.
    #[n(1)]
    pub cpus_per_task: Option<u32>,
    /// `--ntasks-per-node` of the step.
    #[n(2)]
    pub ntasks_per_node: Option<u32>,
    /// `--mpi`: the kind of MPI library.
    #[n(3)]
    pub mpi: Option<String>,
    /// `--preserve-env`: SLURM_NNODES and SLURM_NTASKS keep their values of the allocation.
    #[n(4)]
    #[cbor(default)]
    pub preserve_env: bool,
    /// `--slurmd-debug`: how much step daemons log about the step, 1 to 4. None: nothing.
    #[n(5)]
    pub slurmd_debug: Option<u32>,
    /// Log level of srun in Slurm's numbers: 3 by default, 2 with `--quiet`, 1 more for each `--verbose`.
    #[n(6)]
    pub srun_debug: Option<u32>,
    /// `--task-prolog` and `--task-epilog`: programs to run before and after each task.
    #[n(7)]
    #[cbor(default)]
    pub scripts: TaskScripts,
}

impl Chosen {
    /// Returns the requirements on sockets, cores and threads of nodes, including the effect of `--hint`.
    pub fn inside(&self) -> Inside {
        // A hint means one thread of each core, like --threads-per-core=1. A number given with that option takes
        // precedence.
        let one_thread = self.inside.threads == 0 && self.hint.is_some_and(|hint| hint != Hint::Multithread);
        Inside { threads: if one_thread { 1 } else { self.inside.threads }, ..self.inside }
    }
    /// Returns the container that was asked for. None: tasks run without one.
    pub fn container(&self) -> Option<&Container> {
        self.container.as_deref().filter(|container| container.is_asked_for())
    }
    /// Returns the folder of the OCI bundle that was asked for. None: there is none.
    pub fn bundle(&self) -> Option<&str> {
        self.container.as_deref()?.bundle.as_deref()
    }
    /// Returns whether the job's nodes are rebooted before it starts (`--reboot`).
    pub fn reboots(&self) -> bool {
        self.reboot == Some(true)
    }
    /// Returns the number of spare nodes that the job holds in addition (`--spare-nodes`).
    pub fn spares(&self) -> u32 {
        self.spare_nodes.unwrap_or(0)
    }
    /// Returns the features of nodes to try first (`--prefer`). None: none given.
    pub fn prefer(&self) -> Option<&str> {
        self.prefer.as_deref().filter(|text| !text.is_empty())
    }
}

impl Hint {
    const ALL: [(Self, &str); 4] = [
        (Self::ComputeBound, "compute_bound"),
        (Self::MemoryBound, "memory_bound"),
        (Self::Multithread, "multithread"),
        (Self::NoMultithread, "nomultithread"),
    ];

    /// Reads a value of `--hint`, such as `nomultithread`. None: unknown.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(hint, _)| hint)
    }
    /// Returns the hint as written in the option: `nomultithread`.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(hint, _)| *hint == self).map_or("", |(_, name)| name)
    }
}

impl<T> AsGiven<T> {
    /// Combines a value with the text that it was read from. None: `value` is None, because the text is malformed.
    pub fn of(text: &str, value: Option<T>) -> Option<Self> {
        Some(Self { text: text.to_owned(), value: value? })
    }
}

impl Options {
    /// Returns the options. None: none is set. The cheapest way to check an option of every job.
    pub fn get(&self) -> Option<&Chosen> {
        self.0.as_deref()
    }
    /// Returns an upper estimate of the encoded size of the options, bytes.
    pub fn bytes(&self) -> usize {
        if self.0.is_some() { encoding::size(self) } else { 1 }
    }
    fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|chosen| **chosen == Chosen::default())
    }
}

impl From<Chosen> for Options {
    fn from(chosen: Chosen) -> Self {
        Self(Some(Box::new(chosen)))
    }
}

impl Deref for Options {
    type Target = Chosen;
    fn deref(&self) -> &Chosen {
        static NONE: LazyLock<Chosen> = LazyLock::new(Chosen::default);
        self.0.as_deref().unwrap_or_else(|| &NONE)
    }
}

impl DerefMut for Options {
    fn deref_mut(&mut self) -> &mut Chosen {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_none() && other.0.is_none()) || **self == **other
    }
}

impl Eq for Options {}

impl<C> Encode<C> for Options {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, ctx: &mut C) -> Result<(), encode::Error<W::Error>> {
        match &self.0 {
            Some(chosen) if !self.is_empty() => chosen.encode(e, ctx),
            _ => e.array(0)?.ok(),
        }
    }
}

impl<'b, C> Decode<'b, C> for Options {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, Error> {
        match d.datatype()? {
            Type::Array if d.array()? == Some(0) => Ok(Self::default()),
            Type::Array => {
                Err(Error::message("options as a list of texts, which only builds before release 0.2.0 wrote"))
            }
            _ => Chosen::decode(d, ctx).map(Self::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, Hint, Options};
    use crate::encoding::{from_slice, to_vec};

    #[test]
    fn no_options_take_a_byte_and_are_equal_however_they_came_about() {
        let mut touched = Options::from(Chosen { use_min_nodes: true, ..Chosen::default() });
        assert_ne!(touched, Options::default());
        assert_eq!(from_slice::<Options>(&to_vec(&touched)).as_ref(), Ok(&touched));
        assert!(touched.bytes() >= to_vec(&touched).len());
        touched.use_min_nodes = false;
        assert_eq!(touched, Options::default());
        assert_eq!(to_vec(&touched), [0x80]);
    }

    #[test]
    fn variables_of_plugins_take_nothing_where_there_are_none() {
        let without = Options::from(Chosen { use_min_nodes: true, ..Chosen::default() });
        let mut with = without.clone();
        with.plugin_env.push(("TMP_SIZE".to_owned(), "4G".to_owned()));
        assert_eq!(from_slice::<Options>(&to_vec(&with)).as_ref(), Ok(&with));
        let key = [0x18, 39];
        let has_key = |options: &Options| to_vec(options).windows(2).any(|two| two == key);
        assert_eq!((has_key(&without), has_key(&with)), (false, true));
    }

    #[test]
    fn a_hint_is_one_thread_of_each_core_where_no_number_is_given() {
        let threads = |hint: &str, threads| {
            let mut chosen = Chosen { hint: Hint::parse(hint), ..Chosen::default() };
            chosen.inside.threads = threads;
            chosen.inside().threads
        };
        assert_eq!((threads("nomultithread", 0), threads("multithread", 0), threads("compute_bound", 2)), (1, 0, 2));
        assert_eq!(Hint::parse("memory_bound").map(Hint::name), Some("memory_bound"));
    }
}
