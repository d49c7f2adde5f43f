//! Options of sbatch, srun and salloc that few jobs have, each in a field of its own.
//!
//! An option that comes later gets a field with the next number, here or in one of the groups.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

use super::ExitCode;
use super::gpus::Gpus;
use super::network::Network;
use super::spread::Spread;
use crate::encoding;
use crate::inside::Inside;
use crate::step::TaskScripts;
use crate::stored::pairs;

/// A value with the text in which it was given, which is shown and handed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AsGiven<T> {
    /// For example `4G`.
    #[n(0)]
    pub text: String,
    /// For example 4096.
    #[n(1)]
    pub value: T,
}

/// The options in [`Chosen`]. A job with none of them pays a pointer.
///
/// It is written as an empty list where there are none, otherwise as a map. Releases before wrote a list of pairs: the
/// option's name and its value.
#[derive(Clone, Debug, Default)]
pub struct Options(Option<Box<Chosen>>);

/// What the options say. Those that are given on their own stand beside each other, the others in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Chosen {
    /// GPUs, and what comes with them.
    #[n(0)]
    #[cbor(default)]
    pub gpus: Gpus,
    /// Sockets, cores and threads of nodes, without what `--hint` adds ([`Chosen::inside`]).
    #[n(1)]
    #[cbor(default)]
    pub inside: Inside,
    /// Where nodes are in the network.
    #[n(2)]
    #[cbor(default)]
    pub network: Network,
    /// `--hint`.
    #[n(3)]
    pub hint: Option<Hint>,
    /// `--distribution` within nodes; its text has every `*` written out: `block:cyclic`.
    #[n(4)]
    pub distribution: Option<AsGiven<Spread>>,
    /// `--prefer`: features of the nodes that are tried first.
    #[n(5)]
    pub prefer: Option<String>,
    /// `--segment`: nodes that stand together in a block.
    #[n(6)]
    pub segment: Option<u32>,
    /// `--use-min-nodes`: the smaller number of nodes goes before an earlier start.
    #[n(7)]
    #[cbor(default)]
    pub use_min_nodes: bool,
    /// `--exclusive=user`, also by its partition: no job of another user runs on its nodes, unless they are whole anyway.
    #[n(8)]
    #[cbor(default)]
    pub exclusive_user: bool,
    /// `--begin=now+1hour`: `begin` is a time from the submission on, which passes whatever the wall clock says.
    #[n(9)]
    #[cbor(default)]
    pub begins_after_submission: bool,
    /// `salloc --no-shell`: the allocation outlives the command that asked for it.
    #[n(10)]
    #[cbor(default)]
    pub no_shell: bool,
    /// Bytes of script, environment and arguments, by the controller's count; 0: few.
    #[n(11)]
    #[cbor(default)]
    pub content_bytes: u64,
    /// Words about the job.
    #[n(12)]
    #[cbor(default)]
    pub notes: Notes,
    /// On these nothing acts.
    #[n(13)]
    #[cbor(default)]
    pub shown: Shown,
    /// What only a step has.
    #[n(14)]
    #[cbor(default)]
    pub step: OfStep,
    /// `--oom-kill-step`: a task that runs out of memory ends all tasks of its step. None: it ends alone.
    #[n(15)]
    pub oom_kill_step: Option<bool>,
}

/// `--hint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Hint {
    /// One thread of each core, all cores.
    #[n(0)]
    ComputeBound,
    /// One thread of each core.
    #[n(1)]
    MemoryBound,
    /// All threads of each core.
    #[n(2)]
    Multithread,
    /// One thread of each core.
    #[n(3)]
    NoMultithread,
}

/// Words about a job, which change at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Notes {
    /// `--extra`.
    #[n(0)]
    pub extra: Option<String>,
    /// `scontrol update AdminComment=`.
    #[n(1)]
    pub admin_comment: Option<String>,
    /// `sacctmgr modify job set SystemComment=`, in accounting only.
    #[n(2)]
    pub system_comment: Option<String>,
    /// `sacctmgr modify job set DerivedExitCode=`, in accounting only.
    #[n(3)]
    pub derived_exit: Option<ExitCode>,
}

/// What is only shown, or handed on by a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Shown {
    /// The directory in which the command was called, if `--chdir` led elsewhere.
    #[n(0)]
    pub submit_dir: Option<String>,
    /// `sbatch --export`.
    #[n(1)]
    pub export: Option<String>,
    /// `--batch`.
    #[n(2)]
    pub batch: Option<String>,
    /// `--cpu-freq`.
    #[n(3)]
    pub cpu_freq: Option<String>,
    /// `--mem-bind`.
    #[n(4)]
    pub mem_bind: Option<String>,
    /// `--profile`.
    #[n(5)]
    pub profile: Option<String>,
    /// `--tres-per-task`, whose parts are in other fields.
    #[n(6)]
    pub tres_per_task: Option<String>,
    /// `--gpu-freq`.
    #[n(7)]
    pub gpu_freq: Option<String>,
}

/// What only `srun` says, of its step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OfStep {
    /// `--gres` of a step in a job that was there before.
    #[n(0)]
    pub gres: Option<String>,
    /// `--cpus-per-task`.
    #[n(1)]
    pub cpus_per_task: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(2)]
    pub ntasks_per_node: Option<u32>,
    /// `--mpi`.
    #[n(3)]
    pub mpi: Option<String>,
    /// `--preserve-env`: SLURM_NNODES and SLURM_NTASKS stay as they are.
    #[n(4)]
    #[cbor(default)]
    pub preserve_env: bool,
    /// `--slurmd-debug`: what step daemons tell of the step, 1 to 4; None: nothing.
    #[n(5)]
    pub slurmd_debug: Option<u32>,
    /// What srun tells, as Slurm counts it: 3 without an option.
    #[n(6)]
    pub srun_debug: Option<u32>,
    /// `--task-prolog` and `--task-epilog`.
    #[n(7)]
    #[cbor(default)]
    pub scripts: TaskScripts,
}

impl Chosen {
    /// Returns what is asked of the insides of nodes, with what `--hint` says of it.
    pub fn inside(&self) -> Inside {
        // One thread of each core, as with --threads-per-core=1, which goes before it.
        let one_thread = self.inside.threads == 0 && self.hint.is_some_and(|hint| hint != Hint::Multithread);
        Inside { threads: if one_thread { 1 } else { self.inside.threads }, ..self.inside }
    }
    /// Returns the features that are tried first.
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

    /// Reads `nomultithread`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(hint, _)| hint)
    }
    /// Returns the hint as it is written.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(hint, _)| *hint == self).map_or("", |(_, name)| name)
    }
}

impl<T> AsGiven<T> {
    /// Returns the value with its text, if it is one.
    pub fn of(text: &str, value: Option<T>) -> Option<Self> {
        Some(Self { text: text.to_owned(), value: value? })
    }
}

impl Options {
    /// Returns the options, if there are any. What is asked of every job asks here, which costs least.
    pub fn get(&self) -> Option<&Chosen> {
        self.0.as_deref()
    }
    /// Estimates, from above, the bytes that they take in a message.
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
            Type::Array => Ok(pairs::options(&Vec::<(String, String)>::decode(d, ctx)?)),
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
