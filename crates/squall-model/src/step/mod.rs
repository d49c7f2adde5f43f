//! Steps: what `srun` requests, how tasks are distributed over nodes, and what step daemons get to launch a step.

mod among;
pub mod cpu_bind;
mod defaults;
mod link;
mod plugins;
mod x11;

pub use among::Among;
pub use defaults::StepDefaults;
pub use link::{Birth, FromStep, Inside, ToStep, Watcher};
use minicbor::{Decode, Encode};
pub use plugins::PluginFile;
use std::collections::BTreeMap;
use std::sync::Arc;
pub use x11::{X11, X11Nodes};

use crate::encoding::ByteBuf;
use crate::energy::EnergySource;

use crate::gres::{self, Grant};
use crate::hostlist::HostList;
use crate::id::{ClientKey, NodeId, StepKey, StepNo};
use crate::job::container::Container;
use crate::job::options::{Options, TaskScripts};
use crate::job::{ArrayTask, JobSpec, Owner};
use crate::limits::TASKS_PER_NODE_MAX;
use crate::places::Changed;
use crate::resource::{Alloc, Memory};
use crate::runs::Runs;
use crate::set::{CoreSet, IndexSet, NodeSet};
use crate::time::Time;
use crate::wire::fabric::ContentId;

/// What `srun` requests for a step within an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepSpec {
    /// `--job-name`, by default the command's base name.
    #[n(0)]
    pub name: String,
    /// `--nodes`, minimum. None: all nodes of the allocation.
    #[n(1)]
    pub nodes_min: Option<u32>,
    /// `--nodes`, maximum. None: not given.
    #[n(2)]
    pub nodes_max: Option<u32>,
    /// `--ntasks`. None: one task on each node, or `ntasks_per_node` tasks.
    #[n(3)]
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`: number of tasks on each node.
    #[n(4)]
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`. None: 1 CPU.
    #[n(5)]
    pub cpus_per_task: Option<u32>,
    /// `--mem` or `--mem-per-cpu`: memory of the step for each node or each CPU.
    #[n(6)]
    pub memory: Memory,
    /// `--nodelist`: a host list within the allocation.
    #[n(7)]
    pub nodelist: Option<String>,
    /// `--exclude`: a host list of nodes that the step must not use.
    #[n(8)]
    pub exclude: Option<String>,
    /// `--relative`: first node that the step may use, as an index into the allocation's nodes. None: 0.
    #[n(9)]
    pub relative: Option<u32>,
    /// `--exact` (or implied by other options): only cores that the tasks need; else all cores of the job on the nodes.
    #[n(10)]
    pub exact: bool,
    /// `--overlap`: the step shares cores with other steps.
    #[n(11)]
    pub overlap: bool,
    /// `--overcommit`: there may be more tasks than cores.
    #[n(12)]
    pub overcommit: bool,
    /// `--immediate`: the step is refused rather than waiting for cores that another step holds.
    #[n(13)]
    pub immediate: bool,
    /// `--distribution` of ranks over nodes.
    #[n(14)]
    pub distribution: Distribution,
    /// `--time` of the step, seconds. None: only the job's limit applies.
    #[n(15)]
    pub time_limit_s: Option<u64>,
    /// The whole command line of `srun`, for accounting.
    #[n(16)]
    pub submit_line: String,
    /// `--resv-ports`: number of ports to reserve on the step's nodes. None: one more than the node with the most tasks
    /// has tasks. Without `mpi_ports` of the configuration there are no ports, and any number but 0 is refused.
    #[n(20)]
    pub resv_ports: Option<u32>,
    /// `--cpu-freq` as given, which `scontrol show step` displays. Step daemons read it from the program's options.
    #[n(21)]
    pub cpu_freq: Option<String>,
    /// `--no-kill`: if a node of the step fails, its tasks on the other nodes go on. None: not given.
    #[n(22)]
    pub no_kill: Option<bool>,
    /// `--gres` and `--gpus-per-node` of the step, as `scontrol show step` displays them: `gres/gpu:1`. None: not given.
    /// The controller takes them from the program's options.
    #[n(23)]
    pub tres_per_node: Option<String>,
    /// Some: the tasks descend from the step's `srun`, which its job's checkpoints contain. None: they do not.
    #[n(24)]
    pub inside: Option<Inside>,
}

/// How ranks are assigned to nodes (`--distribution`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Distribution {
    /// Consecutive ranks fill a node before the next node gets any.
    #[default]
    #[n(0)]
    Block,
    /// Rank i runs on node i mod n, as long as all n nodes have tasks left to get.
    #[n(1)]
    Cyclic,
    /// `plane=SIZE`: blocks of SIZE consecutive ranks go to the nodes round-robin.
    #[n(2)]
    Plane(#[n(0)] u32),
    /// For each rank, the index of its node in the layout.
    #[n(3)]
    Arbitrary(
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        Arc<Runs<u32>>,
    ),
}

/// Which task of a step runs on which node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Layout {
    /// Names of the step's nodes, in the allocation's order.
    #[n(0)]
    pub nodes: HostList,
    /// Number of tasks on each of `nodes`, in the same order.
    #[n(1)]
    pub tasks: Runs<u32>,
    /// How ranks are assigned to the nodes.
    #[n(2)]
    pub distribution: Distribution,
    /// Number of CPUs for each task.
    #[n(3)]
    pub cpus_per_task: u32,
    /// Ports that only this step has on its nodes (`SLURM_STEP_RESV_PORTS`). None: it has reserved none.
    #[n(7)]
    pub ports: Option<IndexSet>,
}

impl Layout {
    /// Returns the total number of tasks.
    pub fn ntasks(&self) -> u32 {
        u32::try_from(self.before(u64::MAX)).unwrap_or(u32::MAX)
    }

    /// Returns the ranks on the node with index `i`, in ascending order, at most `TASKS_PER_NODE_MAX`.
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

    /// Returns the index of the node on which `rank` runs. None: there is no such rank.
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        if let Distribution::Arbitrary(places) = &self.distribution {
            return places.get(rank as usize).map(|place| *place as usize);
        }
        let rank = u64::from(rank);
        let most = self.tasks.runs().map(|(tasks, _)| u64::from(*tasks)).max()?;
        // Binary search for the round in which this rank is assigned.
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

    /// Returns how many consecutive ranks a node gets in one round of the distribution.
    fn at_once(&self) -> u64 {
        match self.distribution {
            Distribution::Block | Distribution::Arbitrary(_) => u64::MAX,
            Distribution::Cyclic => 1,
            Distribution::Plane(size) => u64::from(size.max(1)),
        }
    }

    /// Returns how many ranks are assigned when each node has at most `most` tasks.
    fn before(&self, most: u64) -> u64 {
        self.tasks.runs().map(|(tasks, count)| u64::from(*tasks).min(most) * u64::from(count)).sum()
    }

    /// Returns how many ranks a node with `tasks` tasks gets in a round. Before it, nodes have up to `from` ranks.
    fn in_round(&self, tasks: u64, from: u64) -> u64 {
        tasks.saturating_sub(from).min(self.at_once())
    }
}

/// Facts about an allocation: the source of SLURM_JOB_* variables (`squall_engine::environment`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobFacts {
    /// Job, attempt and step. The step is BATCH for the allocation itself.
    #[n(0)]
    pub key: StepKey,
    /// Which task of an array the job is, with the array's whole spec in `spec.array`. None: not of an array.
    #[n(1)]
    pub array: Option<ArrayTask>,
    /// User that the job runs as.
    #[n(2)]
    #[cbor(with = "crate::encoding::arc")]
    pub owner: Arc<Owner>,
    /// The job as submitted.
    #[n(3)]
    #[cbor(with = "crate::wire::shared")]
    pub spec: Arc<JobSpec>,
    /// Name of the partition in which the job runs.
    #[n(4)]
    pub partition: String,
    /// The job's account, or the user's default account.
    #[n(5)]
    pub account: String,
    /// The job's QOS, or the default QOS.
    #[n(6)]
    pub qos: String,
    /// Name of the cluster.
    #[n(7)]
    pub cluster: String,
    /// Names of the allocation's nodes without its spares, in the order of their places: mostly that of node ids.
    #[n(8)]
    pub nodes: HostList,
    /// Ids of the allocation's nodes without its spares.
    #[n(9)]
    pub ids: NodeSet,
    /// CPUs allocated on each of `nodes`, in the same order.
    #[n(10)]
    pub cpus: Runs<u32>,
    /// Memory allocated on each of `nodes`, in the same order, MiB; 0: no limit.
    #[n(11)]
    pub memory_mb: Runs<u64>,
    /// Number of tasks of the job on each of `nodes`, in the same order, for SLURM_TASKS_PER_NODE.
    #[n(12)]
    pub tasks: Runs<u32>,
    /// When the attempt started.
    #[n(13)]
    pub start: Time,
    /// When the time limit ends the attempt. None: no limit.
    #[n(14)]
    pub end: Option<Time>,
    /// How often the job has been requeued.
    #[n(15)]
    pub restarts: u32,
    /// Generic resources allocated to the job.
    #[n(16)]
    pub gres: Vec<Grant>,
    /// Positions of the job's nodes in the network.
    #[n(17)]
    pub addresses: Addresses,
    /// Gang-scheduled: the job's processes may be frozen at any time, so others must not wait for them.
    #[n(18)]
    pub ganged: bool,
    /// In a heterogeneous job's first component, the facts of all components, itself included; otherwise empty.
    #[n(19)]
    pub components: Vec<JobFacts>,
    /// Spare and replaced nodes. None: the job has neither, and its nodes are in the order of their ids.
    #[n(20)]
    pub changed: Option<Box<Changed>>,
    /// The checkpoint from which the script goes on. None: it begins.
    #[n(24)]
    pub restore: Option<crate::checkpoint::Restore>,
    /// Some(true): checkpoints of the job are to contain its steps ([`Inside`]).
    #[n(25)]
    pub inside: Option<bool>,
    /// Addresses of the job's nodes at the checkpoint, each with that of now ([`crate::interface::moved`]). None: the same.
    #[n(26)]
    pub moved: Option<Vec<(u128, u128)>>,
}

impl JobFacts {
    /// Returns the ids of the allocation's nodes, in the order of `nodes`.
    pub fn in_order(&self) -> impl Iterator<Item = NodeId> + '_ {
        let order = self.changed.as_ref().map_or(&[][..], |changed| &changed.order);
        let plain = if order.is_empty() { Some(self.ids.iter()) } else { None };
        order.iter().copied().chain(plain.into_iter().flatten())
    }

    /// Returns the index of a node in the allocation. None: the node is not in it.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        match self.changed.as_ref().filter(|changed| !changed.order.is_empty()) {
            Some(changed) => changed.order.iter().position(|one| *one == node),
            None => self.ids.contains(node).then(|| self.ids.rank(node)),
        }
    }
}

/// Positions of an allocation's nodes in the network: SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Addresses {
    /// Kinds of the parts of an address: `switch.switch.node`. Empty: the cluster has no topology.
    #[n(0)]
    pub pattern: String,
    /// Part of each node's address before its name: `root.s1.`. In the order of the allocation's nodes; or empty.
    #[n(1)]
    pub above: Runs<String>,
}

/// Launch of a step, as sent from the controller to the nodes: the same message for all nodes, however many they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepStart {
    /// Identifies the step and the job's attempt.
    #[n(0)]
    pub key: StepKey,
    /// Facts about the allocation.
    #[n(1)]
    #[cbor(with = "crate::encoding::arc")]
    pub facts: Arc<JobFacts>,
    /// Which task runs on which node.
    #[n(2)]
    pub layout: Layout,
    /// Cores and memory (MiB; 0: no limit) that the step may use on each node. The nodes are those of the layout, which
    /// lists them in ascending order of ids.
    #[n(3)]
    pub shares: Alloc,
    /// Program that the step runs.
    #[n(4)]
    pub program: Program,
    /// Seconds between SIGTERM and SIGKILL when the step is ended.
    #[n(5)]
    pub kill_wait_s: u64,
    /// Generic resources allocated to the step.
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

    /// Returns the launch for the step daemon on `node`. None: the node is not in the step.
    pub fn launch_on(&self, node: NodeId) -> Option<StepLaunch> {
        let share = self.shares.on(node)?;
        let job_place = self.facts.place(node)?;
        // With replaced nodes the order of the step's nodes is not that of their ids.
        let place = if self.facts.changed.is_some() {
            let name = self.facts.nodes.get(job_place)?;
            self.layout.nodes.names().into_iter().position(|one| one == name)?
        } else {
            self.shares.place(node)?
        };
        Some(StepLaunch {
            key: self.key,
            facts: Arc::clone(&self.facts),
            node: self.layout.nodes.get(place)?,
            layout: self.layout.clone(),
            node_index: place as u32,
            job_node_index: job_place as u32,
            cores: share.cores.clone(),
            memory_mb: share.memory_mb,
            program: self.program.clone(),
            kill_wait_s: self.kill_wait_s,
            gres: gres::on_node(&self.gres, node),
            oom_kill_step: self.ends_without_memory(),
            report: false,
            ..StepLaunch::default()
        })
    }
}

/// Launch of a batch script: what is needed in addition to the facts of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BatchStart {
    /// The node that runs the script: the first of the job. Other nodes run nothing for it.
    #[n(0)]
    pub node: NodeId,
    /// Cores allocated to the job on this node.
    #[n(1)]
    pub cores: CoreSet,
    /// Seconds between SIGTERM and SIGKILL when the script is ended.
    #[n(2)]
    pub kill_wait_s: u64,
    /// Leased job: queued on the node, it begins when no process is left of the earlier jobs that hold these cores.
    #[n(3)]
    pub leased: bool,
    /// The script's output ends with a line about the job's end and usage.
    #[n(4)]
    #[cbor(default)]
    pub report: bool,
}

impl BatchStart {
    /// Returns the script's launch as one task with all resources of the job on `node`. None: another node runs it.
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
                ports: None,
            },
            node: name,
            node_index: 0,
            job_node_index: place as u32,
            cores: self.cores.clone(),
            memory_mb: facts.memory_mb.get(place).copied().unwrap_or(0),
            program: Program::Batch,
            kill_wait_s: self.kill_wait_s,
            gres: gres::on_node(&facts.gres, node),
            oom_kill_step: facts.spec.options.oom_kill_step == Some(true),
            report: self.report,
            ..StepLaunch::default()
        })
    }
}

/// Launch of a node's part of a step: all that the step daemon needs. Sent from the node daemon to the step daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepLaunch {
    /// Identifies the step and the job's attempt.
    #[n(0)]
    pub key: StepKey,
    /// Facts about the allocation.
    #[n(1)]
    #[cbor(with = "crate::encoding::arc")]
    pub facts: Arc<JobFacts>,
    /// Which task runs on which node; a batch script is one task on the job's first node.
    #[n(2)]
    pub layout: Layout,
    /// Name of this node.
    #[n(3)]
    pub node: String,
    /// Index of this node in `layout.nodes`.
    #[n(4)]
    pub node_index: u32,
    /// Index of this node in `facts.nodes`.
    #[n(5)]
    pub job_node_index: u32,
    /// Cores that the step may use on this node.
    #[n(6)]
    pub cores: CoreSet,
    /// Memory that the step may use on this node, MiB; 0: no limit.
    #[n(7)]
    pub memory_mb: u64,
    /// Program that the step runs on this node.
    #[n(8)]
    pub program: Program,
    /// Seconds between SIGTERM and SIGKILL when the step is ended.
    #[n(9)]
    pub kill_wait_s: u64,
    /// Generic resources that the step may use on this node: device indices by resource name.
    #[n(10)]
    pub gres: BTreeMap<String, CoreSet>,
    /// The site's prolog and epilog of each task.
    #[n(11)]
    pub site: TaskScripts,
    /// A task that runs out of memory ends all tasks of the step on this node.
    #[n(12)]
    #[cbor(default)]
    pub oom_kill_step: bool,
    /// The output of a batch script ends with a line about the job's end and usage.
    #[n(13)]
    #[cbor(default)]
    pub report: bool,
    /// The site's program that runs OCI containers; empty: the first of the usual ones that the node has.
    #[n(17)]
    #[cbor(default)]
    pub container_runtime: String,
    /// Folders that the job has for itself on this node.
    #[n(18)]
    #[cbor(default)]
    pub private: Vec<PrivateDir>,
    /// The step can open no other GPUs, so programs count those that it has from 0. The numbers before are left out.
    #[n(25)]
    #[cbor(default)]
    pub sees_own_gpus: bool,
    /// Names by which programs choose the step's GPUs that are parts of one (MIG), by index.
    #[n(26)]
    #[cbor(default)]
    pub gpu_ids: BTreeMap<u32, String>,
    /// The step's part of GPUs that it shares with others. None: it has none.
    #[n(27)]
    pub shared: Option<SharedGpus>,
    /// The kernel's numbers of the CPUs near each of the step's GPUs, by index, for `--gpu-bind=closest`. GPUs that are
    /// equally near to all are left out.
    #[n(28)]
    #[cbor(default)]
    pub gpu_cpus: BTreeMap<u32, CoreSet>,
    /// Device files of the step's GPUs, one for each, by which their use is measured.
    #[n(29)]
    #[cbor(default)]
    pub gpu_files: Vec<String>,
    /// The site's SPANK plugins. None: it has none.
    #[n(30)]
    pub plugins: Option<PluginFile>,
    /// By what the energy is measured that the node uses during the step. None: it is not measured.
    #[n(31)]
    pub energy: Option<EnergySource>,
}

/// A step's part of GPUs that several jobs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SharedGpus {
    /// Name of the resource: `shard` or `mps`.
    #[n(0)]
    pub name: String,
    /// Indices of the GPUs.
    #[n(1)]
    pub gpus: CoreSet,
    /// Number of parts that the step has.
    #[n(2)]
    pub count: u32,
    /// Which part of the GPUs that is, percent.
    #[n(3)]
    pub percent: u32,
}

/// A folder that a job has for itself: its processes see `folder` where others see the node's `dir`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PrivateDir {
    /// Path of the job's own folder.
    #[n(0)]
    pub folder: ByteBuf,
    /// Path at which the job sees it, such as `/tmp`.
    #[n(1)]
    pub dir: ByteBuf,
}

impl StepLaunch {
    /// Returns the position of this step among those of other components. None: it is no part of such a set of steps.
    pub fn among(&self) -> Option<Among> {
        let Program::Tasks(program) = &self.program else { return None };
        program.among
    }

    /// Returns the rank that users see: counted through all components of a heterogeneous job.
    pub fn rank_among(&self, rank: u32) -> u32 {
        rank.saturating_add(self.among().unwrap_or_default().tasks_before)
    }

    /// Returns the container in which the step's tasks run. None: they run without one.
    pub fn container(&self) -> Option<&Container> {
        let options = match &self.program {
            Program::Tasks(program) => program.options.get()?,
            Program::Batch => self.facts.spec.options.get()?,
            Program::Timer { .. } => return None,
        };
        options.container()
    }

    /// Returns whether the user needs a folder in the step's on this node: for containers, or for X11.
    pub fn needs_room(&self) -> bool {
        let x11 = matches!(&self.program, Program::Tasks(program) if program.x11.is_some());
        x11 || self.container().is_some()
    }

    /// Returns the user's prolog and epilog of each task: `srun --task-prolog`, `--task-epilog`.
    pub fn own_scripts(&self) -> TaskScripts {
        let Program::Tasks(program) = &self.program else { return TaskScripts::default() };
        program.options.step.scripts.clone()
    }

    /// Returns the ranks of the tasks on this node, in ascending order.
    pub fn ranks(&self) -> Vec<u32> {
        self.layout.ranks_on(self.node_index as usize)
    }
}

/// Program that a step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Program {
    /// The batch script of `facts.spec`. The node has the script and the environment, and finds them by digest.
    #[default]
    #[n(0)]
    Batch,
    /// Tasks that `srun` requested.
    #[n(1)]
    Tasks(#[n(0)] Box<TaskProgram>),
    /// Emulation for benchmarks and emulated nodes: no process runs, and the step ends by itself after a time.
    #[n(2)]
    Timer {
        /// Time after which the step ends, milliseconds.
        #[n(0)]
        run_ms: u64,
        /// Exit code with which the step ends.
        #[n(1)]
        code: u8,
    },
}

/// First step of an allocation, in the request that creates it (`wire::client::Request::Allocate`): like `CreateStep`,
/// for a job that has no id yet.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FirstStep {
    /// The step that is requested.
    #[n(0)]
    pub spec: StepSpec,
    /// Program that the step runs.
    #[n(1)]
    pub program: TaskProgram,
    /// Key of the request, as in `CreateStep`. A `CreateStep` for the same step has the same key.
    #[n(2)]
    pub key: ClientKey,
}

/// Tasks of an `srun` step: the client's part of a launch. Not journaled; a retried request contains it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TaskProgram {
    /// Commands with the ranks that run them; the first for a rank counts. Several only with `--multi-prog`.
    #[n(0)]
    pub commands: Vec<(RankSet, Vec<ByteBuf>)>,
    /// The environment: `KEY=VALUE` entries, each ended by a NUL byte.
    #[n(1)]
    pub env: ByteBuf,
    /// Working directory, absolute.
    #[n(2)]
    pub work_dir: ByteBuf,
    /// File mode creation mask (umask) of the tasks.
    #[n(3)]
    pub umask: u32,
    /// Soft resource limits of the tasks: (RLIMIT_* number, value).
    #[n(4)]
    pub rlimits: Vec<(u32, u64)>,
    /// Source of the tasks' standard input.
    #[n(5)]
    pub stdin: Stream,
    /// Destination of the tasks' standard output.
    #[n(6)]
    pub stdout: Stream,
    /// Destination of the tasks' standard error.
    #[n(7)]
    pub stderr: Stream,
    /// `--open-mode=append`: output files are not truncated.
    #[n(8)]
    pub append: bool,
    /// `--pty`: rank 0 gets a terminal of this size (rows, columns).
    #[n(9)]
    pub pty: Option<(u16, u16)>,
    /// `--kill-on-bad-exit`: the step ends when a task fails.
    #[n(10)]
    pub kill_on_bad_exit: bool,
    /// `--label`: output lines begin with the rank. Set where nodes write the output files.
    #[n(11)]
    pub label: bool,
    /// `--cpu-bind`, as given.
    #[n(12)]
    pub cpu_bind: Option<String>,
    /// Address at which `srun` listens for the step daemons.
    #[n(13)]
    pub client: ClientAddress,
    /// Secret by which `srun` and the step daemon authenticate each other when the daemon connects.
    #[n(14)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
    /// Value of SLURM_EXPORT_ENV. None: `--export` was not given, or was ALL.
    #[n(15)]
    pub export: Option<String>,
    /// Options of `srun` for the step, some of which are passed on in the tasks' environment.
    #[n(16)]
    pub options: Options,
    /// Position among the steps that one `srun` starts in several components of a heterogeneous job. None: only one.
    #[n(17)]
    pub among: Option<Among>,
    /// The step of the same job in which this `srun` was called. None: it was not called in a step.
    #[n(18)]
    pub within: Option<StepNo>,
    /// `--bcast` without a path: the file in the nodes' cache that is executed instead of the command's file.
    #[n(19)]
    pub content: Option<ContentId>,
    /// `--x11`: how X clients reach the user's display. None: they don't.
    #[n(23)]
    pub x11: Option<X11>,
    /// `srun` starts the process that serves the step ([`Inside`]). None: the node does.
    #[n(24)]
    pub inside: Option<bool>,
    /// `--wait-for-children`: a task lasts until the processes that it has left behind have ended. None: it does not.
    #[n(25)]
    pub wait_for_children: Option<bool>,
}

/// A set of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum RankSet {
    /// All ranks of the step.
    #[default]
    #[n(0)]
    All,
    /// Only the ranks in this set.
    #[n(1)]
    Some(#[n(0)] IndexSet),
}

/// Source or destination of a standard stream of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Stream {
    /// The connection to `srun`.
    #[default]
    #[n(0)]
    Client,
    /// The connection to `srun`, but only for this rank; other ranks have /dev/null.
    #[n(1)]
    ClientRank(#[n(0)] u32),
    /// The file /dev/null.
    #[n(2)]
    Null,
    /// A file on the node, opened as the user. Its name is a pattern (`%t`, `%n`, `%N`, `%j`, `%s` …).
    #[n(3)]
    File(#[n(0)] String),
    /// Only for standard error: the same as standard output.
    #[n(4)]
    Joined,
}

/// Address at which an `srun` listens for step daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum ClientAddress {
    /// No address: the step has no streams through `srun`.
    #[default]
    #[n(0)]
    None,
    /// A Unix socket in the abstract namespace of the machine on which `srun` runs.
    #[n(1)]
    Abstract(#[n(0)] String),
    /// `HOST:PORT`. The connection is encrypted, with the step's cookie as the secret.
    #[n(2)]
    Tcp(#[n(0)] String),
    /// A Unix socket for step daemons on the same machine, and a TCP address for those on other machines.
    #[n(3)]
    Anywhere {
        /// Name of the Unix socket in the abstract namespace.
        #[n(0)]
        name: String,
        /// `HOST:PORT`. The connection is encrypted, with the step's cookie as the secret.
        #[n(1)]
        address: String,
    },
}
