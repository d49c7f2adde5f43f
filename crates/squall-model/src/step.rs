//! Steps: what `srun` asks for, how tasks are laid out, and what a step daemon is told to run.

use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::encoding::ByteBuf;

use crate::gres::{self, Grant};
use crate::hostlist::HostList;
use crate::id::{ClientKey, NodeId, StepKey, StepNo};
use crate::job::options::Options;
use crate::job::{ArrayTask, JobSpec, Owner};
use crate::limits::TASKS_PER_NODE_MAX;
use crate::resource::{Alloc, Memory};
use crate::runs::Runs;
use crate::set::{CoreSet, NodeSet};
use crate::time::Time;
use crate::wire::fabric::ContentId;
use crate::wire::node::EndReason;
use crate::wire::peer::PeerMessage;

/// What `srun` asks for within an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepSpec {
    /// Name: the command's base name or `--job-name`.
    #[n(0)]
    pub name: String,
    /// `--nodes` minimum; None: the allocation's.
    #[n(1)]
    pub nodes_min: Option<u32>,
    /// `--nodes` maximum.
    #[n(2)]
    pub nodes_max: Option<u32>,
    /// `--ntasks`; None: one on each node, or `ntasks_per_node` on each.
    #[n(3)]
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(4)]
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`; None: 1.
    #[n(5)]
    pub cpus_per_task: Option<u32>,
    /// `--mem` or `--mem-per-cpu` of the step.
    #[n(6)]
    pub memory: Memory,
    /// `--nodelist`: a host list within the allocation.
    #[n(7)]
    pub nodelist: Option<String>,
    /// `--exclude`.
    #[n(8)]
    pub exclude: Option<String>,
    /// `--relative`: first node within the allocation.
    #[n(9)]
    pub relative: Option<u32>,
    /// `--exact`, or implied by it: only the cores that the tasks need; otherwise all of the job's cores on its nodes.
    #[n(10)]
    pub exact: bool,
    /// `--overlap`: share cores with other steps.
    #[n(11)]
    pub overlap: bool,
    /// `--overcommit`: more tasks than cores.
    #[n(12)]
    pub overcommit: bool,
    /// `--immediate`: refuse rather than wait for cores that another step holds.
    #[n(13)]
    pub immediate: bool,
    /// `--distribution`.
    #[n(14)]
    pub distribution: Distribution,
    /// `--time` of the step, seconds.
    #[n(15)]
    pub time_limit_s: Option<u64>,
    /// The whole command line, for accounting.
    #[n(16)]
    pub submit_line: String,
}

/// How ranks go to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Distribution {
    /// Neighbouring ranks share a node.
    #[default]
    #[n(0)]
    Block,
    /// Rank i goes to node i mod n.
    #[n(1)]
    Cyclic,
    /// `plane=SIZE`: blocks of SIZE ranks go round.
    #[n(2)]
    Plane(#[n(0)] u32),
    /// By rank: the place of its node in the layout.
    #[n(3)]
    Arbitrary(
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        Arc<Runs<u32>>,
    ),
}

/// Which task runs where: how many tasks each node has, and how ranks go round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Layout {
    /// Node names, in the allocation's order.
    #[n(0)]
    pub nodes: HostList,
    /// Tasks on each of these nodes. Same length as `nodes`.
    #[n(1)]
    pub tasks: Runs<u32>,
    /// How ranks go to nodes.
    #[n(2)]
    pub distribution: Distribution,
    /// CPUs for one task.
    #[n(3)]
    pub cpus_per_task: u32,
}

impl Layout {
    /// How many tasks in all.
    pub fn ntasks(&self) -> u32 {
        u32::try_from(self.before(u64::MAX)).unwrap_or(u32::MAX)
    }

    /// Ranks on the node at place `i`, rising; at most `TASKS_PER_NODE_MAX`.
    pub fn ranks_on(&self, i: usize) -> Vec<u32> {
        if let Distribution::Arbitrary(places) = &self.distribution {
            let mut first = 0;
            let mut ranks = Vec::new();
            for (place, count) in places.runs() {
                let here = *place as usize == i;
                ranks.extend((first..first + count).filter(|_| here));
                first += count;
            }
            ranks.truncate(TASKS_PER_NODE_MAX as usize);
            return ranks;
        }
        let tasks = self.tasks.get(i).map_or(0, |tasks| u64::from((*tasks).min(TASKS_PER_NODE_MAX)));
        let mut ranks = Vec::with_capacity(tasks as usize);
        for round in 0_u64.. {
            let from = round.saturating_mul(self.at_once());
            if from >= tasks {
                break;
            }
            let mut first = self.before(from);
            let mut nodes_left = i as u64;
            for (&tasks, count) in self.tasks.runs() {
                let count = u64::from(count).min(nodes_left);
                nodes_left -= count;
                first = first.saturating_add(count * self.in_round(tasks.into(), from));
            }
            let here = self.in_round(tasks, from);
            ranks.extend((first..first.saturating_add(here)).map_while(|rank| u32::try_from(rank).ok()));
        }
        ranks
    }

    /// The place of the node on which a rank runs.
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        if let Distribution::Arbitrary(places) = &self.distribution {
            return places.get(rank as usize).map(|place| *place as usize);
        }
        let rank = u64::from(rank);
        let most = self.tasks.runs().map(|(tasks, _)| u64::from(*tasks)).max()?;
        // The first round after which the rank has been given out.
        let (mut low, mut high) = (0, most.div_ceil(self.at_once()));
        while low < high {
            let round = low.midpoint(high);
            if self.before((round + 1).saturating_mul(self.at_once())) > rank { high = round } else { low = round + 1 }
        }
        let from = low.saturating_mul(self.at_once());
        let mut left = rank.checked_sub(self.before(from))?;
        let mut place = 0;
        for (&tasks, count) in self.tasks.runs() {
            let each = self.in_round(tasks.into(), from);
            let all = each * u64::from(count);
            if left < all {
                return Some(place + (left / each) as usize);
            }
            left -= all;
            place += count as usize;
        }
        None
    }

    /// How many ranks a node gets before it is the next node's turn.
    fn at_once(&self) -> u64 {
        match self.distribution {
            Distribution::Block | Distribution::Arbitrary(_) => u64::MAX,
            Distribution::Cyclic => 1,
            Distribution::Plane(size) => u64::from(size.max(1)),
        }
    }

    /// Ranks given out when each node has at most `most`.
    fn before(&self, most: u64) -> u64 {
        self.tasks.runs().map(|(tasks, count)| u64::from(*tasks).min(most) * u64::from(count)).sum()
    }

    /// Ranks that a node with so many tasks gets in the round before which it had at most `from`.
    fn in_round(&self, tasks: u64, from: u64) -> u64 {
        tasks.saturating_sub(from).min(self.at_once())
    }
}

/// What is known of an allocation by those who run in it: the source of SLURM_JOB_* variables
/// (see `squall_engine::environment`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobFacts {
    /// The job, the attempt, and the step (BATCH for an allocation's own).
    #[n(0)]
    pub key: StepKey,
    /// Which array task it is, with the array's whole spec in `spec.array`.
    #[n(1)]
    pub array: Option<ArrayTask>,
    /// Whose it is.
    #[n(2)]
    #[cbor(with = "crate::encoding::arc")]
    pub owner: Arc<Owner>,
    /// What was asked.
    #[n(3)]
    #[cbor(with = "crate::wire::shared")]
    pub spec: Arc<JobSpec>,
    /// The partition in which it runs.
    #[n(4)]
    pub partition: String,
    /// The account, or the default.
    #[n(5)]
    pub account: String,
    /// The QOS, or the default.
    #[n(6)]
    pub qos: String,
    /// Name of the cluster.
    #[n(7)]
    pub cluster: String,
    /// Node names in the allocation's order, which is that of their ids.
    #[n(8)]
    pub nodes: HostList,
    /// Ids of these nodes.
    #[n(9)]
    pub ids: NodeSet,
    /// CPUs held on each node. Same length as `nodes`.
    #[n(10)]
    pub cpus: Runs<u32>,
    /// Memory held on each node, MiB; 0: no limit. Same length as `nodes`.
    #[n(11)]
    pub memory_mb: Runs<u64>,
    /// Tasks of the job on each node, for SLURM_TASKS_PER_NODE. Same length as `nodes`.
    #[n(12)]
    pub tasks: Runs<u32>,
    /// When the attempt started.
    #[n(13)]
    pub start: Time,
    /// When its time limit ends it.
    #[n(14)]
    pub end: Option<Time>,
    /// How often it was requeued.
    #[n(15)]
    pub restarts: u32,
    /// Generic resources that it holds.
    #[n(16)]
    pub gres: Vec<Grant>,
    /// Where its nodes are in the network.
    #[n(17)]
    pub addresses: Addresses,
    /// It takes turns with others (gang scheduling): it may be frozen at any moment, so that nobody else may have to
    /// wait for a process in it.
    #[n(18)]
    pub ganged: bool,
    /// Of a heterogeneous job's first component: what is known of each, itself included; else empty.
    #[n(19)]
    pub components: Vec<JobFacts>,
}

/// Where nodes of an allocation are in the network: SLURM_TOPOLOGY_ADDR and _PATTERN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Addresses {
    /// What the parts of an address are: `switch.switch.node`; empty: nodes are alike.
    #[n(0)]
    pub pattern: String,
    /// What stands before the node's name: `root.s1.`. Same length as the allocation's nodes, or empty.
    #[n(1)]
    pub above: Runs<String>,
}

impl JobFacts {
    /// The place of a node in the allocation; None: it has no part in it.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.ids.contains(node).then(|| self.ids.rank(node))
    }
}

/// What all nodes of a step are told: the same for each, however many they are. Goes controller → nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepStart {
    /// Which step of which attempt.
    #[n(0)]
    pub key: StepKey,
    /// Facts of the allocation.
    #[n(1)]
    #[cbor(with = "crate::encoding::arc")]
    pub facts: Arc<JobFacts>,
    /// Which task runs where.
    #[n(2)]
    pub layout: Layout,
    /// Cores and memory (MiB; 0: no limit) that the step may use on each node. Its nodes are those of the layout,
    /// which stand there in the order of their ids.
    #[n(3)]
    pub shares: Alloc,
    /// What to run.
    #[n(4)]
    pub program: Program,
    /// Seconds between TERM and KILL.
    #[n(5)]
    pub kill_wait_s: u64,
    /// Generic resources that the step holds.
    #[n(6)]
    pub gres: Vec<Grant>,
}

impl StepStart {
    /// Returns whether a task that runs out of memory ends the step: as the step's own options say, or else the job's.
    fn ends_without_memory(&self) -> bool {
        let own = match &self.program {
            Program::Tasks(tasks) => tasks.options.oom_kill_step,
            Program::Batch | Program::Timer { .. } => None,
        };
        own.or(self.facts.spec.options.oom_kill_step) == Some(true)
    }

    /// A node's share; None: it has no part in the step.
    pub fn launch_on(&self, node: NodeId) -> Option<StepLaunch> {
        let share = self.shares.on(node)?;
        let place = self.shares.place(node)?;
        Some(StepLaunch {
            key: self.key,
            facts: Arc::clone(&self.facts),
            node: self.layout.nodes.get(place)?,
            layout: self.layout.clone(),
            node_index: place as u32,
            job_node_index: self.facts.place(node)? as u32,
            cores: share.cores.clone(),
            memory_mb: share.memory_mb,
            program: self.program.clone(),
            kill_wait_s: self.kill_wait_s,
            gres: gres::on_node(&self.gres, node),
            site: TaskScripts::default(),
            oom_kill_step: self.ends_without_memory(),
        })
    }
}

/// The launch of a batch script, as far as the facts of its job don't say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BatchStart {
    /// Where it runs: on the job's first node. The others have no part in it.
    #[n(0)]
    pub node: NodeId,
    /// The cores held there.
    #[n(1)]
    pub cores: CoreSet,
    /// Seconds between TERM and KILL.
    #[n(2)]
    pub kill_wait_s: u64,
    /// It is leased: it begins when nothing is left of those that came before it and have these cores.
    #[n(3)]
    pub leased: bool,
}

impl BatchStart {
    /// The script as one task on its node, with all that the job has there; None: `node` is another.
    pub fn launch_on(&self, facts: &Arc<JobFacts>, node: NodeId) -> Option<StepLaunch> {
        if node != self.node {
            return None;
        }
        let place = facts.place(node)?;
        let name = facts.nodes.get(place)?;
        Some(StepLaunch {
            key: StepKey { step: StepNo::BATCH, ..facts.key },
            facts: Arc::clone(facts),
            layout: Layout {
                nodes: [&name].into_iter().collect(),
                tasks: [1].into_iter().collect(),
                distribution: Distribution::Block,
                cpus_per_task: self.cores.len() as u32,
            },
            node: name,
            node_index: 0,
            job_node_index: place as u32,
            cores: self.cores.clone(),
            memory_mb: facts.memory_mb.get(place).copied().unwrap_or(0),
            program: Program::Batch,
            kill_wait_s: self.kill_wait_s,
            gres: gres::on_node(&facts.gres, node),
            site: TaskScripts::default(),
            oom_kill_step: facts.spec.options.oom_kill_step == Some(true),
        })
    }
}

/// All that a step daemon needs to run its share of a step. Goes node → step daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepLaunch {
    /// Which step of which attempt.
    #[n(0)]
    pub key: StepKey,
    /// Facts of the allocation.
    #[n(1)]
    #[cbor(with = "crate::encoding::arc")]
    pub facts: Arc<JobFacts>,
    /// Which task runs where; the batch script is one task on the first node.
    #[n(2)]
    pub layout: Layout,
    /// This node's name.
    #[n(3)]
    pub node: String,
    /// This node's place in `layout.nodes`.
    #[n(4)]
    pub node_index: u32,
    /// This node's place in `facts.nodes`.
    #[n(5)]
    pub job_node_index: u32,
    /// Cores that the step may use on this node.
    #[n(6)]
    pub cores: CoreSet,
    /// Memory that the step may use on this node, MiB; 0: no limit.
    #[n(7)]
    pub memory_mb: u64,
    /// What to run.
    #[n(8)]
    pub program: Program,
    /// Seconds between TERM and KILL.
    #[n(9)]
    pub kill_wait_s: u64,
    /// Generic resources that the step may use on this node, by name.
    #[n(10)]
    pub gres: BTreeMap<String, CoreSet>,
    /// What the site runs around each task.
    #[n(11)]
    pub site: TaskScripts,
    /// A task that runs out of memory ends all tasks of the step on this node.
    #[n(12)]
    #[cbor(default)]
    pub oom_kill_step: bool,
}

/// Programs that run as the user before and after each task; empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TaskScripts {
    /// Before: what it prints may change the task's environment.
    #[n(0)]
    pub prolog: String,
    /// After.
    #[n(1)]
    pub epilog: String,
}

impl TaskScripts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.prolog.is_empty() && self.epilog.is_empty()
    }
}

impl StepLaunch {
    /// Its place among those of other components.
    pub fn among(&self) -> Option<Among> {
        let Program::Tasks(program) = &self.program else { return None };
        program.among
    }

    /// A rank as users see it.
    pub fn rank_among(&self, rank: u32) -> u32 {
        rank.saturating_add(self.among().unwrap_or_default().tasks_before)
    }

    /// What the user wants run around each task: `srun --task-prolog`, `--task-epilog`.
    pub fn own_scripts(&self) -> TaskScripts {
        let Program::Tasks(program) = &self.program else { return TaskScripts::default() };
        program.options.step.scripts.clone()
    }

    /// Ranks of the tasks on this node, rising.
    pub fn ranks(&self) -> Vec<u32> {
        self.layout.ranks_on(self.node_index as usize)
    }
}

/// What a step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Program {
    /// The batch script of `facts.spec`, whose script and environment the node has by digest.
    #[default]
    #[n(0)]
    Batch,
    /// Tasks that `srun` started.
    #[n(1)]
    Tasks(#[n(0)] Box<TaskProgram>),
    /// Emulated: nothing runs; ends by itself after that time with that exit code. For benches and racks.
    #[n(2)]
    Timer {
        /// How long it lasts.
        #[n(0)]
        run_ms: u64,
        /// Exit code.
        #[n(1)]
        code: u8,
    },
}

/// The step that an allocation is asked for with (`wire::client::Request::Allocate`): as in `CreateStep`, for a job that
/// has no id yet.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FirstStep {
    /// What.
    #[n(0)]
    pub spec: StepSpec,
    /// What to run.
    #[n(1)]
    pub program: TaskProgram,
    /// As in `CreateStep`, and the same if that is asked for as well.
    #[n(2)]
    pub key: ClientKey,
}

/// The tasks of an `srun` step: the client's part of a launch, never journaled (a retried request brings it again).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TaskProgram {
    /// One command for all, or with `--multi-prog` the commands of rank sets (first match wins).
    #[n(0)]
    pub commands: Vec<(RankSet, Vec<ByteBuf>)>,
    /// The environment, entries ended by NUL.
    #[n(1)]
    pub env: ByteBuf,
    /// Working directory, absolute.
    #[n(2)]
    pub work_dir: ByteBuf,
    /// File mode mask.
    #[n(3)]
    pub umask: u32,
    /// Soft resource limits: (RLIMIT_* number, value).
    #[n(4)]
    pub rlimits: Vec<(u32, u64)>,
    /// Where standard input comes from.
    #[n(5)]
    pub stdin: Stream,
    /// Where standard output goes.
    #[n(6)]
    pub stdout: Stream,
    /// Where standard error goes.
    #[n(7)]
    pub stderr: Stream,
    /// `--open-mode=append`.
    #[n(8)]
    pub append: bool,
    /// `--pty`: rank 0 gets a terminal of this size (rows, columns).
    #[n(9)]
    pub pty: Option<(u16, u16)>,
    /// `--kill-on-bad-exit`: end the step when a task fails.
    #[n(10)]
    pub kill_on_bad_exit: bool,
    /// `--label`, where a node writes the files.
    #[n(11)]
    pub label: bool,
    /// `--cpu-bind`, as given.
    #[n(12)]
    pub cpu_bind: Option<String>,
    /// Where the `srun` listens: step daemons connect there.
    #[n(13)]
    pub client: ClientAddress,
    /// What both sides show each other when the step daemon connects.
    #[n(14)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
    /// `--export` set anything but ALL: the value of SLURM_EXPORT_ENV.
    #[n(15)]
    pub export: Option<String>,
    /// What srun was told of the step, and what is handed on to the tasks' environment.
    #[n(16)]
    pub options: Options,
    /// Its place among the steps that one command starts in several components of a heterogeneous job.
    #[n(17)]
    pub among: Option<Among>,
    /// The step of the same job from whose processes `srun` was called.
    #[n(18)]
    pub within: Option<StepNo>,
    /// `--bcast` without a path: the file in the nodes' keeping that is executed in place of what the command names.
    #[n(19)]
    pub content: Option<ContentId>,
}

/// The place of a component's tasks and nodes among those of all components of a step: tasks are counted, and nodes
/// numbered, through all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Among {
    /// Tasks of the components before it.
    #[n(0)]
    pub tasks_before: u32,
    /// Its own tasks.
    #[n(1)]
    pub own: u32,
    /// Tasks of all.
    #[n(2)]
    pub tasks: u32,
    /// Nodes of the components before it.
    #[n(3)]
    pub nodes_before: u32,
    /// Nodes of all.
    #[n(4)]
    pub nodes: u32,
}

/// Ranks: all, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum RankSet {
    /// Every rank.
    #[default]
    #[n(0)]
    All,
    /// These.
    #[n(1)]
    Some(#[n(0)] crate::set::IndexSet),
}

/// Where a standard stream of a task goes to or comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Stream {
    /// Through the connection to `srun`.
    #[default]
    #[n(0)]
    Client,
    /// Through the connection, but only for this rank; the others' is /dev/null.
    #[n(1)]
    ClientRank(#[n(0)] u32),
    /// /dev/null.
    #[n(2)]
    Null,
    /// A file on the node, a pattern (`%t`, `%n`, `%N`, `%j`, `%s` …), opened as the user.
    #[n(3)]
    File(#[n(0)] String),
    /// stderr only: the same as stdout.
    #[n(4)]
    Joined,
}

/// Where an `srun` listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum ClientAddress {
    /// Nowhere: the step streams nothing.
    #[default]
    #[n(0)]
    None,
    /// A Unix socket in the abstract namespace of this machine.
    #[n(1)]
    Abstract(#[n(0)] String),
    /// `HOST:PORT`; what is said there is encrypted, by the step's cookie.
    #[n(2)]
    Tcp(#[n(0)] String),
    /// Both: on its own machine there, elsewhere here.
    #[n(3)]
    Anywhere {
        /// The Unix socket.
        #[n(0)]
        name: String,
        /// `HOST:PORT`; what is said there is encrypted, by the step's cookie.
        #[n(1)]
        address: String,
    },
}

/// Somebody who listens to what the tasks of a running step say, beside its `srun`, and may speak to them: `sattach`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Watcher {
    /// Where it listens.
    #[n(0)]
    pub client: ClientAddress,
    /// What both sides show each other when a step daemon connects.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
}

/// Frames from a step daemon to its `srun`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromStep {
    /// First frame on the connection.
    #[n(0)]
    Hello {
        /// The cookie of the launch.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
        /// The node's place in the layout.
        #[n(1)]
        node_index: u32,
    },
    /// The tasks run: (rank, pid).
    #[n(1)]
    Started(#[n(0)] Vec<(u32, u32)>),
    /// Some task could not be started.
    #[n(2)]
    Failed {
        /// Which.
        #[n(0)]
        rank: u32,
        /// The exit code that it counts as (2: not found, 13: not executable, …).
        #[n(1)]
        code: u8,
        /// In words: `execve(): nosuchcmd: No such file or directory`.
        #[n(2)]
        error: String,
    },
    /// Output of a task.
    #[n(3)]
    Output {
        /// Which task.
        #[n(0)]
        rank: u32,
        /// True: standard error.
        #[n(1)]
        stderr: bool,
        /// The bytes; empty: the stream has ended.
        #[n(2)]
        bytes: ByteBuf,
    },
    /// A task has ended.
    #[n(4)]
    Exited {
        /// Which task.
        #[n(0)]
        rank: u32,
        /// How.
        #[n(1)]
        exit: crate::job::ExitCode,
        /// It was ended for going over its memory.
        #[n(2)]
        oom: bool,
    },
    /// A notice for the user, shown as `slurmstepd: …`.
    #[n(5)]
    Notice(#[n(0)] String),
    /// Last frame: nothing of the step is left on this node.
    #[n(6)]
    Done,
    /// Whether any task of the node is between MPI_Init and MPI_Finalize; said when it changes.
    #[n(7)]
    Within(#[n(0)] bool),
    /// A task of the node, or its fate, ends the whole step with this exit code.
    #[n(8)]
    Aborted {
        /// The exit code.
        #[n(0)]
        code: u8,
    },
    /// For the step daemon at a place of the layout that is on another machine: `srun`, to which all connect, passes it on.
    #[n(9)]
    Pass {
        /// The place.
        #[n(0)]
        to: u32,
        /// What it is to hear.
        #[n(1)]
        message: Box<PeerMessage>,
    },
}

/// Frames from `srun` to a step daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToStep {
    /// First frame: the cookie of the launch.
    #[n(0)]
    Hello {
        /// The cookie of the launch.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
    },
    /// Input for a task (None: all); empty: end of input.
    #[n(1)]
    Input {
        /// Which task.
        #[n(0)]
        rank: Option<u32>,
        /// The bytes.
        #[n(1)]
        bytes: ByteBuf,
    },
    /// A signal for all tasks.
    #[n(2)]
    Signal(#[n(0)] i32),
    /// The terminal's size changed: rows, columns.
    #[n(3)]
    Resize(#[n(0)] u16, #[n(1)] u16),
    /// End the tasks: TERM, then KILL after so many seconds.
    #[n(4)]
    End {
        /// Seconds between TERM and KILL.
        #[n(0)]
        kill_wait_s: u64,
        /// What is said of it.
        #[n(1)]
        why: EndReason,
    },
    /// From the step daemon at a place of the layout.
    #[n(5)]
    Passed {
        /// The place.
        #[n(0)]
        from: u32,
        /// What it says.
        #[n(1)]
        message: Box<PeerMessage>,
    },
}
