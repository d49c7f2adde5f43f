//! Memory that a policy uses again from pass to pass. Its content never matters between passes.

mod taken;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::gres::{Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

use crate::topology::Memory;
use crate::view::{Candidate, Claim, Closed, Given, Row, View};
pub(crate) use taken::{List, Taken};

/// What a plan has done to the cluster so far.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Cores and memory in use on nodes on which this plan has placed something.
    pub(crate) taken: Taken,
    /// Nodes with free cores after what this plan has placed.
    pub(crate) open: NodeSet,
    /// Nodes that wait for blocked partitions of a higher tier.
    pub(crate) withheld: NodeSet,
    /// What this plan has placed, where cores are shared.
    pub(crate) placed: Vec<(Row, Alloc)>,
    /// Nodes that could take tasks, and how many.
    pub(crate) fits: Vec<(NodeId, u32)>,
    /// From when to when the job that is looked at would run.
    pub(crate) window: (Time, Time),
    /// What is kept, by node.
    holds: Vec<Vec<Hold>>,
    /// Nodes of which something is kept.
    held: Vec<NodeId>,
    /// For whom something is kept, in any order.
    pub(crate) kept: Vec<Kept>,
    /// Where something begins to be kept: on how many nodes some CPU is free until after that, and the most on one. Not
    /// less.
    pub(crate) beyond: Vec<(Time, usize, u32)>,
    /// CPUs and memory that will have become free until the time that is looked at, by node.
    gains: Vec<(u32, u64)>,
    /// Nodes where something will.
    gained: Vec<NodeId>,
    /// Nodes with something free for the job that is looked at, at the time that is looked at.
    pub(crate) among: NodeSet,
    /// How many tasks of the job that is looked at each of these could take at that very time.
    pub(crate) tasks: Vec<u32>,
    /// Whether that is known.
    pub(crate) walked: bool,
    /// What this plan has started: until when, and what becomes free then.
    pub(crate) begun: Vec<(Time, Arc<Given>)>,
    /// Generic resources of nodes on which this plan has placed something that holds some.
    pub(crate) gres: BTreeMap<NodeId, NodeGres>,
    /// The same as they will be at the time that is looked at, of nodes where some will have become free.
    later: BTreeMap<NodeId, NodeGres>,
    /// Generic resources that are kept: from when, until when, which.
    kept_gres: Vec<(Time, Time, Grant)>,
    /// How many times were looked at to keep room for somebody.
    pub(crate) times: u64,
    /// What choices by topology keep.
    pub(crate) network: Memory,
    /// Nodes of jobs with links of their own, those that this plan starts or keeps room for included.
    pub(crate) closed: Vec<Closed>,
    /// Nodes of jobs, those that this plan starts or keeps room for included, where users may have to be kept apart.
    pub(crate) claims: Vec<Claim>,
    /// Licenses that what this plan has placed takes.
    pub(crate) licenses: BTreeMap<String, u32>,
    /// When how many more of a license are free, or fewer, by what this plan has placed or keeps.
    pub(crate) license_turns: Vec<(Time, String, i64)>,
    /// The most CPUs that are free on a node, if known. Not less.
    pub(crate) roomiest: Option<u32>,
}

/// What starts and promises change in a [`Scratch`]: for a way back.
#[derive(Debug)]
pub(crate) struct Mark {
    taken: List,
    open: NodeSet,
    placed: usize,
    holds: Vec<Vec<Hold>>,
    held: usize,
    kept: usize,
    begun: usize,
    gres: BTreeMap<NodeId, NodeGres>,
    kept_gres: usize,
    closed: usize,
    claims: usize,
    licenses: BTreeMap<String, u32>,
    license_turns: usize,
}

/// What a node gets back when something ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) node: NodeId,
    pub(crate) cpus: u32,
    pub(crate) memory_mb: u64,
    /// Generic resources, by name; mostly none.
    pub(crate) gres: Vec<(String, CoreSet)>,
}

impl Gain {
    /// What a node gets back of what a job was given.
    pub(crate) fn of(node: NodeId, group: &AllocGroup, gres: &[Grant]) -> Self {
        let gres = gres.iter().filter(|grant| grant.nodes.contains(node));
        let gres = gres.map(|grant| (grant.name.clone(), grant.indices.clone())).collect();
        Self { node, cpus: group.cores.len() as u32, memory_mb: group.memory_mb, gres }
    }
}

/// For whom something is kept: from when, until when and where. What it is stands with each node.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) from: Time,
    pub(crate) until: Time,
    pub(crate) nodes: Arc<NodeSet>,
}

/// Part of a node that is kept for a job.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Time,
    until: Time,
    cpus: u32,
    memory_mb: u64,
    /// What others may have at `from`.
    left: (u32, u64),
}

impl Scratch {
    /// At how many times the last pass looked for room to keep.
    pub fn times(&self) -> u64 {
        self.times
    }

    pub(crate) fn reset(&mut self, view: &impl View, now: Time) {
        self.taken.clear();
        self.placed.clear();
        self.open.clone_from(view.open());
        self.closed.clear();
        self.closed.extend_from_slice(view.closed());
        self.claims.clear();
        self.claims.extend_from_slice(view.claims());
        self.withheld = NodeSet::new();
        self.window = (now, now);
        while let Some(node) = self.held.pop() {
            self.holds[node.index()].clear();
        }
        self.kept.clear();
        self.beyond.clear();
        self.begun.clear();
        self.licenses.clear();
        self.license_turns.clear();
        self.gres.clear();
        self.kept_gres.clear();
        self.times = 0;
        self.roomiest = None;
        self.forget_gains();
    }

    /// How things stand.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            taken: self.taken.saved(),
            open: self.open.clone(),
            placed: self.placed.len(),
            holds: self.holds.clone(),
            held: self.held.len(),
            kept: self.kept.len(),
            begun: self.begun.len(),
            gres: self.gres.clone(),
            kept_gres: self.kept_gres.len(),
            closed: self.closed.len(),
            claims: self.claims.len(),
            licenses: self.licenses.clone(),
            license_turns: self.license_turns.len(),
        }
    }
    /// As if nothing had been started or promised since.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.taken.restore(mark.taken);
        (self.open, self.gres, self.licenses) = (mark.open, mark.gres, mark.licenses);
        self.placed.truncate(mark.placed);
        self.beyond.clear();
        self.holds = mark.holds;
        self.held.truncate(mark.held);
        self.kept.truncate(mark.kept);
        self.begun.truncate(mark.begun);
        self.kept_gres.truncate(mark.kept_gres);
        self.closed.truncate(mark.closed);
        self.claims.truncate(mark.claims);
        self.license_turns.truncate(mark.license_turns);
    }

    /// Returns the nodes of jobs that have their links to themselves at some time in the window of the examined job.
    pub(crate) fn closed_in_window(&self) -> impl Iterator<Item = &NodeSet> {
        let (start, end) = self.window;
        let met = self
            .closed
            .iter()
            .filter(move |closed| (closed.from < end || closed.from == Time(0)) && closed.until > start);
        met.map(|closed| &closed.nodes)
    }

    /// Records that a job holds nodes for a time, if users may have to be kept apart.
    pub(crate) fn claim(&mut self, job: &Candidate<'_>, nodes: NodeSet, (from, until): (Time, Time)) {
        if let Some(user) = job.user {
            self.claims.push(Claim { user, alone: job.need.own_nodes, nodes, from, until });
        }
    }

    /// Returns the nodes that a job cannot have in the window because of jobs of other users: one of the two jobs
    /// excludes other users.
    pub(crate) fn nodes_of_others(&self, job: &Candidate<'_>) -> NodeSet {
        let (start, end) = self.window;
        let mut nodes = NodeSet::new();
        let Some(user) = job.user else { return nodes };
        for claim in self.claims.iter().filter(|claim| claim.user != user && (claim.alone || job.need.own_nodes)) {
            if (claim.from < end || claim.from == Time(0)) && claim.until > start {
                nodes.union_with(&claim.nodes);
            }
        }
        nodes
    }

    /// For one row of the matrix: what is kept from all and what no two rows share, and no cores taken yet.
    pub(crate) fn for_row(&self) -> Self {
        Self {
            withheld: self.withheld.clone(),
            closed: self.closed.clone(),
            window: self.window,
            gres: self.gres.clone(),
            kept_gres: self.kept_gres.clone(),
            placed: self.placed.clone(),
            ..Self::default()
        }
    }

    /// Cores of a node that a job in a row can't have, after what this plan has placed, when some jobs are gone.
    pub(crate) fn row(&self, view: &impl View, node: NodeId, row: Row, without: &BTreeSet<JobId>) -> CoreSet {
        let mut cores = view.row(node, row, without);
        let placed = self.placed.iter().filter(|(of, _)| of.meets(row));
        placed.filter_map(|(_, alloc)| alloc.on(node)).for_each(|group| cores.union_with(&group.cores));
        cores
    }

    /// Notes that a node will have more free at the time that is looked at.
    pub(crate) fn gain(&mut self, view: &impl View, gain: Gain) {
        let Gain { node, cpus, memory_mb, gres } = gain;
        if !gres.is_empty()
            && let Some(now) = self.gres.get(&node).or_else(|| view.gres(node))
        {
            let later = self.later.entry(node).or_insert_with(|| now.clone());
            for (name, indices) in gres {
                later.held.entry(name).or_default().subtract(&indices);
            }
        }
        if self.gains.len() <= node.index() {
            self.gains.resize(node.index() + 1, (0, 0));
        }
        let gain = &mut self.gains[node.index()];
        if *gain == (0, 0) {
            self.gained.push(node);
        }
        *gain = (gain.0 + cpus, gain.1 + memory_mb);
    }
    /// What a node will have more.
    pub(crate) fn gain_of(&self, node: NodeId) -> (u32, u64) {
        self.gains.get(node.index()).copied().unwrap_or_default()
    }
    /// It is looked at now again.
    pub(crate) fn forget_gains(&mut self) {
        while let Some(node) = self.gained.pop() {
            self.gains[node.index()] = (0, 0);
        }
        self.later.clear();
        self.walked = false;
    }

    /// Notes that something is kept for a job on these nodes, and keeps generic resources for it.
    pub(crate) fn note(&mut self, (from, until): (Time, Time), nodes: NodeSet, gres: &[Grant]) {
        self.kept.push(Kept { from, until, nodes: Arc::new(nodes) });
        self.kept_gres.extend(gres.iter().map(|grant| (from, until, grant.clone())));
    }
    /// Generic resources start to be held.
    pub(crate) fn hold_gres(&mut self, view: &impl View, gres: &[Grant]) {
        for grant in gres {
            self.change_gres(view, (std::slice::from_ref(grant), &grant.nodes), CoreSet::union_with);
        }
    }
    /// Generic resources are held, or no longer, on some nodes of those that had them.
    pub(crate) fn change_gres(
        &mut self,
        view: &impl View,
        (gres, nodes): (&[Grant], &NodeSet),
        change: impl Fn(&mut CoreSet, &CoreSet),
    ) {
        for grant in gres {
            for id in grant.nodes.iter().filter(|id| nodes.contains(*id)) {
                let node = self.gres.entry(id).or_insert_with(|| view.gres(id).cloned().unwrap_or_default());
                change(node.held.entry(grant.name.clone()).or_default(), &grant.indices);
            }
        }
    }
    /// What a node has of generic resources: with what is held `then` or now, and what is kept for others in the window.
    pub(crate) fn gres_of<'a>(&'a self, view: &'a impl View, node: NodeId, then: bool) -> Option<Cow<'a, NodeGres>> {
        let later = if then { self.later.get(&node) } else { None };
        let mut gres = Cow::Borrowed(later.or_else(|| self.gres.get(&node)).or_else(|| view.gres(node))?);
        let (start, end) = self.window;
        for (from, until, grant) in &self.kept_gres {
            if *from < end && *until > start && grant.nodes.contains(node) {
                gres.to_mut().held.entry(grant.name.clone()).or_default().union_with(&grant.indices);
            }
        }
        Some(gres)
    }

    /// Keeps part of a node for a job, of what is `free` at `from`.
    pub(crate) fn keep(&mut self, node: NodeId, (from, until): (Time, Time), need: (u32, u64), free: (u32, u64)) {
        if self.holds.len() <= node.index() {
            self.holds.resize(node.index() + 1, Vec::new());
        }
        let left = less(free, need);
        let holds = &mut self.holds[node.index()];
        if holds.is_empty() {
            self.held.push(node);
        }
        for hold in holds.iter_mut().filter(|hold| (from..until).contains(&hold.from)) {
            hold.left = less(hold.left, need);
        }
        holds.push(Hold { from, until, cpus: need.0, memory_mb: need.1, left });
    }
    /// A job has part of a node until then.
    pub(crate) fn begin(&mut self, until: Time, node: NodeId, need: (u32, u64)) {
        for hold in self.holds.get_mut(node.index()).into_iter().flatten().filter(|hold| hold.from < until) {
            hold.left = less(hold.left, need);
        }
    }
    /// What a job may have of `free` throughout the window, given what is kept for others.
    pub(crate) fn outside_holds(&self, node: NodeId, free: (u32, u64)) -> (u32, u64) {
        let (start, end) = self.window;
        let mut free = free;
        let holds = self.holds.get(node.index()).into_iter().flatten();
        for hold in holds.filter(|hold| hold.from < end && hold.until > start) {
            if hold.from > start {
                free = (free.0.min(hold.left.0), free.1.min(hold.left.1));
            } else {
                free = less(free, (hold.cpus, hold.memory_mb));
            }
        }
        free
    }
    /// Whether anything is kept for anybody.
    pub(crate) fn keeps(&self) -> bool {
        !self.held.is_empty()
    }
    /// From when on something is kept.
    pub(crate) fn begins(&self) -> impl Iterator<Item = Time> + '_ {
        self.kept.iter().map(|kept| kept.from)
    }
}

fn less(free: (u32, u64), need: (u32, u64)) -> (u32, u64) {
    (free.0.saturating_sub(need.0), free.1.saturating_sub(need.1))
}
