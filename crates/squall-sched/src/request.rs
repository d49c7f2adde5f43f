//! A job's request, parsed once: numbers instead of options, node sets instead of names.

use std::collections::BTreeMap;

use squall_model::gres::{self, Count};
use squall_model::hostlist;
use squall_model::inside::Inside;
use squall_model::job::Need;
use squall_model::license;
use squall_model::places::Vacancy;
use squall_model::resource::Memory;
use squall_model::set::NodeSet;

use crate::constraint::Constraint;
use crate::grain::PerTask;
use crate::topology::{Topology, TopologyKind, Wish};
use crate::view::{Cap, Names};

/// Parsed resource request of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Minimum number of nodes of the job.
    pub nodes_min: u32,
    /// Maximum number of nodes of the job.
    pub nodes_max: u32,
    /// Number of tasks over all nodes; None: `tasks_per_node` on each node.
    pub tasks: Option<u32>,
    /// Maximum number of tasks on a node; without `tasks`: exactly this number.
    pub tasks_per_node: Option<u32>,
    /// Number of CPUs for each task.
    pub task_cpus: u32,
    /// Minimum number of CPUs on a node.
    pub cpus_min: u32,
    /// Memory, for each node or CPU.
    pub memory: Memory,
    /// Temporary disk space on each node, MiB.
    pub tmp_disk_mb: u64,
    /// Whether the job needs whole nodes.
    pub exclusive: bool,
    /// Whether no job of another user may run on the job's nodes.
    pub own_nodes: bool,
    /// Whether the job may share its cores with other jobs.
    pub oversubscribe: bool,
    /// Whether the job may have more tasks than CPUs.
    pub overcommit: bool,
    /// Whether the job's nodes must have consecutive numbers.
    pub contiguous: bool,
    /// Whether the job takes as many nodes as possible, but no more than tasks. Set by `--spread-job` or a range of
    /// node counts.
    pub spread: bool,
    /// Whether nodes with the most free CPUs are taken first, among nodes of equal weight.
    pub least_loaded: bool,
    /// Limits on the CPUs that jobs of the partition hold on a node. None: no limit.
    pub cap: Option<Cap>,
    /// Nodes that must be part of the allocation.
    pub required: NodeSet,
    /// Nodes that must not be part of the allocation.
    pub excluded: NodeSet,
    /// Features that nodes must have.
    pub constraint: Option<Constraint>,
    /// Features that nodes should have, combined with `constraint`. Nodes with these features are tried first.
    pub prefer: Option<Constraint>,
    /// Required sockets, cores and threads of nodes.
    pub inside: Inside,
    /// Requested generic resources.
    pub gres: gres::Ask,
    /// Seconds in which the job gets only nodes that are powered up. None: it gets others, too.
    pub delay_boot_s: Option<u64>,
    /// Name of the reservation in which the job runs. None: it runs outside reservations.
    pub reservation: Option<String>,
    /// Rules that do not hold for the job.
    pub exempt: Exemptions,
    /// Number of licenses by license name.
    pub licenses: BTreeMap<String, u32>,
    /// The job's requirements on the network.
    pub wish: Wish,
}

/// Rules from which a job's QOS exempts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// The partition's longest time limit.
    pub time: bool,
    /// The partition's most nodes of a job.
    pub nodes_max: bool,
    /// The partition's fewest nodes of a job.
    pub nodes_min: bool,
    /// The reservation of resources for a job that waits: others may always go before it.
    pub reserve: bool,
}

impl Request {
    /// Parses a request. None: it names unknown nodes or has a syntax error.
    pub fn of(need: &Need, gres: gres::Ask, view: &impl Names) -> Option<Self> {
        let required = names(need.nodelist.as_deref(), view, true)?;
        let excluded = names(need.exclude.as_deref(), view, false)?;
        let constraint = match need.constraint.as_deref() {
            Some(text) => Some(Constraint::parse(text)?),
            None => None,
        };
        // The counts of a constraint set the number of nodes, unless it is given otherwise.
        let counted = constraint.as_ref().map_or(&[][..], Constraint::counts);
        let counted = counted.iter().fold(0_u32, |sum, (count, _)| sum.saturating_add(*count));
        let nodes_min = need.nodes_min.unwrap_or(counted).max(required.len() as u32).max(1);
        let open_ended = if need.nodes_min.is_some() { nodes_min } else { u32::MAX };
        // Without a number of tasks, more nodes would mean more tasks than requested.
        let of_job = gres.per_job.iter().fold(0_u32, |sum, asked| sum.saturating_add(asked.count));
        let open_ended = match need.ntasks {
            None if of_job > 0 && need.nodes_min.is_none() => of_job,
            None => nodes_min,
            Some(_) => open_ended,
        };
        let mut nodes_max = need.nodes_max.unwrap_or(open_ended);
        // Resources of the whole job are spread over as many nodes as it has tasks at most: none is without a task.
        if let Some(tasks) = need.ntasks.filter(|_| of_job > 0) {
            nodes_max = nodes_max.min(tasks);
        }
        let memory = match need.memory {
            Memory::Unset if view.memory_per_cpu_mb() > 0 => Memory::PerCpuMb(view.memory_per_cpu_mb()),
            memory => memory,
        };
        let mut request = Self {
            nodes_min,
            nodes_max: nodes_max.max(nodes_min),
            tasks: need.ntasks,
            tasks_per_node: need.ntasks_per_node.filter(|n| *n > 0),
            task_cpus: need.cpus_per_task.unwrap_or(1).max(1),
            cpus_min: need.cpus_min.unwrap_or(1).max(1),
            memory,
            tmp_disk_mb: need.tmp_disk_mb,
            exclusive: need.exclusive,
            own_nodes: false,
            oversubscribe: need.oversubscribe,
            overcommit: need.overcommit,
            contiguous: need.contiguous,
            spread: need.spread || need.nodes_max.is_some_and(|most| most > nodes_min),
            least_loaded: false,
            cap: None,
            required,
            excluded,
            constraint,
            prefer: None,
            inside: Inside::default(),
            gres,
            delay_boot_s: None,
            reservation: None,
            exempt: Exemptions::default(),
            licenses: need.licenses.as_deref().map_or(Some(BTreeMap::new()), license::parse)?,
            wish: Wish::default(),
        };
        request.beside_gpus();
        Some(request)
    }

    /// Returns the number of the job's tasks if it runs on `nodes` nodes.
    pub(crate) fn tasks_on(&self, nodes: u32) -> u32 {
        self.tasks.unwrap_or_else(|| self.tasks_per_node.unwrap_or(1).saturating_mul(nodes))
    }

    /// Adds the job's requirements on the network. A requested geometry sets the number of nodes, unless the job
    /// requests that number itself.
    pub fn wish_for(&mut self, wish: Wish, need: &Need, topology: Option<&Topology>) {
        self.wish = wish;
        // The mapping of ranks depends on the positions of the nodes, so a job with a process grid on a torus needs
        // whole nodes.
        let torus = topology.is_some_and(|topology| matches!(topology.kind, TopologyKind::Torus(_)));
        self.exclusive |= torus && wish.grid.is_some();
        if let (Some(size), Some(TopologyKind::Torus(tori)), None, None) =
            (wish.geometry, topology.map(|topology| &topology.kind), need.nodes_min, need.ntasks)
        {
            let per_router = tori.iter().map(|torus| torus.frame.per_router()).max().unwrap_or(1);
            let nodes = size.iter().fold(per_router, |nodes, extent| nodes.saturating_mul(*extent));
            self.nodes_min = self.nodes_min.max(nodes);
            self.nodes_max = self.nodes_max.max(self.nodes_min);
        }
    }

    /// Returns what the CPUs of the job's tasks depend on.
    pub(crate) fn per_task(&self) -> PerTask {
        PerTask { cpus: self.task_cpus, inside: self.inside }
    }

    /// Returns the minimum number of CPUs that must be free on a node of the job.
    pub(crate) fn node_cpus(&self) -> u32 {
        let tasks = if self.tasks.is_none() { self.tasks_per_node.unwrap_or(1) } else { 1 };
        let for_tasks = if self.overcommit { 1 } else { tasks }.saturating_mul(self.task_cpus);
        for_tasks.max(self.cpus_min)
    }

    /// Adds the CPUs and memory that come with requested GPUs.
    fn beside_gpus(&mut self) {
        let per_task = gpus(&self.gres.per_task);
        let per_node = gpus(&self.gres.per_node);
        self.task_cpus = self.task_cpus.max(per_task.saturating_mul(self.gres.cpus_per_gpu));
        self.cpus_min = self.cpus_min.max(per_node.saturating_mul(self.gres.cpus_per_gpu));
        let mb = self.gres.mem_per_gpu_mb;
        if mb > 0 && per_node > 0 {
            self.memory = Memory::PerNodeMb(mb.saturating_mul(u64::from(per_node)));
        } else if mb > 0 && per_task > 0 {
            self.memory = Memory::PerCpuMb(mb.saturating_mul(u64::from(per_task)).div_ceil(u64::from(self.task_cpus)));
        }
    }

    /// Adds spare nodes to a request for a fixed number of nodes. Each node can then take the tasks of any other, so each
    /// gets the CPUs and devices that the busiest one needs.
    pub fn add_spares(&mut self, spares: u32) {
        let nodes = self.nodes_min;
        *self = self.on_nodes(nodes);
        self.tasks_per_node =
            Some(self.tasks.take().map_or(self.tasks_per_node.unwrap_or(1), |all| all.div_ceil(nodes)));
        self.nodes_min = nodes.saturating_add(spares);
        self.nodes_max = self.nodes_min;
        self.spread = false;
    }

    /// Returns the request for a node that takes the place of a failed one: with so many CPUs, this memory and these
    /// devices, and not one of `taken`.
    #[must_use]
    pub fn of_replacement(&self, vacancy: &Vacancy, taken: &NodeSet) -> Self {
        let mut request = self.clone();
        request.gres.per_job.clear();
        request.gres.per_task.clear();
        request.gres.per_node.clone_from(&vacancy.gres);
        (request.nodes_min, request.nodes_max) = (1, 1);
        (request.tasks, request.tasks_per_node) = (None, Some(1));
        (request.task_cpus, request.cpus_min) = (1, vacancy.cpus);
        if !matches!(request.memory, Memory::Unset) {
            request.memory = Memory::PerNodeMb(vacancy.memory_mb);
        }
        request.required = NodeSet::new();
        request.excluded.union_with(taken);
        request.wish = Wish { alone: self.wish.alone, ..Wish::default() };
        request.licenses.clear();
        (request.contiguous, request.spread) = (false, false);
        request
    }

    /// Returns the request on exactly `nodes` nodes, each with the largest share of generic resources requested for
    /// the whole job.
    pub(crate) fn on_nodes(&self, nodes: u32) -> Self {
        let mut request = self.clone();
        let of_job = std::mem::take(&mut request.gres.per_job).into_iter();
        request.gres.per_node.extend(of_job.map(|asked| Count { count: asked.count.div_ceil(nodes), ..asked }));
        (request.nodes_min, request.nodes_max) = (nodes, nodes);
        request.beside_gpus();
        request
    }
}

/// Returns the constraint on nodes that are tried first: the features of `prefer` together with those of `constraint`.
/// None: syntax error, or the combination is not valid.
pub fn preferred(constraint: Option<&str>, prefer: &str) -> Option<Constraint> {
    match constraint {
        Some(constraint) => Constraint::parse(&format!("({constraint})&({prefer})")),
        None => Constraint::parse(prefer),
    }
}

/// Returns the number of GPUs among these counts of generic resources.
pub(crate) fn gpus(counts: &[Count]) -> u32 {
    let all = counts.iter().filter(|asked| asked.name == "gpu");
    all.fold(0, |sum, asked| sum.saturating_add(asked.count))
}

fn names(list: Option<&str>, view: &impl Names, all: bool) -> Option<NodeSet> {
    let Some(list) = list else { return Some(NodeSet::new()) };
    let mut set = NodeSet::new();
    for name in hostlist::expand(list).ok()? {
        match view.node_id(&name) {
            Some(id) => {
                set.insert(id);
            }
            None if all => return None,
            None => {}
        }
    }
    Some(set)
}
