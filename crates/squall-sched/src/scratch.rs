//! Memory that a policy reuses from scheduling pass to scheduling pass. Its content has no meaning between passes.

mod taken;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::gres::{Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

use crate::request::Request;
use crate::topology::{Memory, Topology};
use crate::view::{Candidate, Cap, Claim, Closed, Given, Row, View};
pub(crate) use taken::{List, Taken};

/// Trial state: the starts and reservations that a plan has added to the cluster so far, and buffers of the search.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Used cores and memory of the nodes on which this plan has placed something.
    pub(crate) taken: Taken,
    /// Nodes that still have free cores under this plan.
    pub(crate) open: NodeSet,
    /// Nodes on which no job of a lower partition tier may start, because jobs of a higher tier are pending.
    pub(crate) withheld: NodeSet,
    /// Allocations of this plan by gang matrix row, where cores are shared.
    pub(crate) placed: Vec<(Row, Alloc)>,
    /// Buffer for nodes that can take tasks, and how many.
    pub(crate) fits: Vec<(NodeId, u32)>,
    /// Time window: the interval in which the job that is being placed would run.
    pub(crate) window: (Time, Time),
    /// By node number: the parts of the node that are reserved for jobs.
    holds: Vec<Vec<Hold>>,
    /// Nodes of which a part is reserved for a job.
    held: Vec<NodeId>,
    /// All reservations for jobs, in any order.
    pub(crate) kept: Vec<BackfillReservation>,
    /// Upper bounds on free resources, one entry for each start of a reservation: that time, the number of nodes with a
    /// CPU free until after it, and the most free CPUs on one node.
    pub(crate) beyond: Vec<(Time, usize, u32)>,
    /// By node number: CPUs and memory (MiB) that become free on the node until the examined time, the future time at
    /// which the search tries to place a job.
    gains: Vec<(u32, u64)>,
    /// Nodes with an entry in `gains` that is not 0.
    gained: Vec<NodeId>,
    /// Nodes with free resources for the present job at the examined time, the future time at which the search tries to
    /// place it.
    pub(crate) among: NodeSet,
    /// By node number: tasks of the present job that a node in `among` can take at the future time at which the search
    /// tries to place it.
    pub(crate) tasks: Vec<u32>,
    /// Whether `tasks` and `among` are valid for the search in progress.
    pub(crate) walked: bool,
    /// Jobs that this plan starts: expected end, and the resources that become free then.
    pub(crate) begun: Vec<(Time, Arc<Given>)>,
    /// Generic resources of nodes on which this plan has allocated some.
    pub(crate) gres: BTreeMap<NodeId, NodeGres>,
    /// Generic resources at the future time at which the search tries to place a job, for nodes where some become free
    /// until then.
    later: BTreeMap<NodeId, NodeGres>,
    /// Reserved generic resources: start and end of the reservation, and the resources.
    kept_gres: Vec<(Time, Time, Grant)>,
    /// Number of points in time at which reservations were tried.
    pub(crate) times: u64,
    /// Buffers and results that the choice of nodes by topology keeps from one job to the next.
    pub(crate) network: Memory,
    /// Nodes of jobs with network links that no other job may use, including starts and reservations of this plan.
    pub(crate) closed: Vec<Closed>,
    /// Nodes that jobs use, with the jobs' users, including starts and reservations of this plan. Recorded only where a
    /// job may exclude other users from its nodes.
    pub(crate) claims: Vec<Claim>,
    /// Starts and reservations of this plan in partitions with a limit on the CPUs on a node: partition, begin, end.
    capped: Vec<(usize, Time, Time, Alloc)>,
    /// Number of each license that this plan has allocated.
    pub(crate) licenses: BTreeMap<String, u32>,
    /// Future changes of free licenses by starts and reservations of this plan: (time, license, change).
    pub(crate) license_turns: Vec<(Time, String, i64)>,
    /// Upper bound on the number of free CPUs on any node. None: it is not calculated yet.
    pub(crate) roomiest: Option<u32>,
}

/// Copy of the parts of a [`Scratch`] that starts and reservations change, to undo them.
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
    capped: usize,
    licenses: BTreeMap<String, u32>,
    license_turns: usize,
}

/// Resources of a node that become free when a job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) node: NodeId,
    pub(crate) cpus: u32,
    pub(crate) memory_mb: u64,
    /// Generic resources by name; mostly empty.
    pub(crate) gres: Vec<(String, CoreSet)>,
}

impl Gain {
    /// Returns the part of a job's allocation that becomes free on a node when the job ends.
    pub(crate) fn of(node: NodeId, group: &AllocGroup, gres: &[Grant]) -> Self {
        let gres = gres.iter().filter(|grant| grant.nodes.contains(node));
        let gres = gres.map(|grant| (grant.name.clone(), grant.indices.clone())).collect();
        Self { node, cpus: group.cores.len() as u32, memory_mb: group.memory_mb, gres }
    }
}

/// A reservation for a job: from, until and nodes. The reserved amount is stored separately for each node.
#[derive(Clone, Debug)]
pub(crate) struct BackfillReservation {
    pub(crate) from: Time,
    pub(crate) until: Time,
    pub(crate) nodes: Arc<NodeSet>,
}

/// Part of a node that is reserved for a job.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Time,
    until: Time,
    cpus: u32,
    memory_mb: u64,
    /// CPUs and memory (MiB) left for other jobs at `from`.
    left: (u32, u64),
}

impl Scratch {
    /// Returns the number of points in time at which the last scheduling pass tried reservations.
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
        self.capped.clear();
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

    /// Returns a copy of the parts that starts and reservations change, to undo later changes with `back_to`.
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
            capped: self.capped.len(),
            licenses: self.licenses.clone(),
            license_turns: self.license_turns.len(),
        }
    }
    /// Undoes all starts and reservations since `mark` was made.
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
        self.capped.truncate(mark.capped);
        self.license_turns.truncate(mark.license_turns);
    }

    /// Returns the nodes of jobs that run at some time in the time window and have network links that no other job may
    /// use, one set for each job.
    pub(crate) fn closed_in_window(&self) -> impl Iterator<Item = &NodeSet> {
        let (start, end) = self.window;
        let met = self
            .closed
            .iter()
            .filter(move |closed| (closed.from < end || closed.from == Time(0)) && closed.until > start);
        met.map(|closed| &closed.nodes)
    }

    /// Records that a job uses nodes from `from` to `until`, if some job may exclude others from its nodes or blocks.
    pub(crate) fn claim(&mut self, job: &Candidate<'_>, nodes: NodeSet, (from, until): (Time, Time)) {
        if let Some(user) = job.user {
            let (alone, blocks) = (job.need.own_nodes, job.wish.alone);
            self.claims.push(Claim { job: job.item.id, user, alone, blocks, nodes, from, until });
        }
    }

    /// Records that a job holds CPUs in a partition with limits on the CPUs on a node.
    pub(crate) fn count_in_cap(&mut self, request: &Request, alloc: &Alloc, (from, until): (Time, Time)) {
        if let Some(cap) = request.cap {
            self.capped.push((cap.partition, from, until, alloc.clone()));
        }
    }

    /// Returns how many CPUs of a node the limits of the job's partition leave in the time window. `then`: whether the
    /// job would start at the beginning of the window, when some of the running jobs have ended.
    pub(crate) fn left_by_cap(&self, view: &impl View, cap: Cap, id: NodeId, then: bool) -> u32 {
        let (held, reserved) = self.held_in_cap(view, cap, id, then);
        let running = held.iter().map(|cores| cores.len() as u32).sum::<u32>();
        let of_node = cap.cpus.saturating_sub(running);
        let node = view.node(id);
        let of_sockets = cap.socket.map_or(u32::MAX, |most| {
            node.grain.within_sockets(node.hardware, &CoreSet::first(node.hardware.cpus as usize), &held, most).len()
                as u32
        });
        of_node.min(of_sockets).saturating_sub(reserved)
    }

    /// Returns those of a node's free CPUs that the limit of the job's partition on each socket leaves now.
    pub(crate) fn within_cap(&self, view: &impl View, cap: Cap, id: NodeId, free: CoreSet) -> CoreSet {
        let Some(most) = cap.socket else { return free };
        let (held, _) = self.held_in_cap(view, cap, id, false);
        let node = view.node(id);
        node.grain.within_sockets(node.hardware, &free, &held, most)
    }

    /// Returns which CPUs of a node running and planned jobs of the partition hold in the time window, and the number
    /// of CPUs that reservations need there. On which CPUs these will be is not known.
    fn held_in_cap<'a>(&'a self, view: &'a impl View, cap: Cap, id: NodeId, then: bool) -> (Vec<&'a CoreSet>, u32) {
        let (start, end) = self.window;
        let mut held: Vec<&CoreSet> = view.held_by(cap.partition, id, if then { start } else { Time(0) }).collect();
        let mut reserved = 0;
        for (partition, from, until, alloc) in &self.capped {
            let met = (*from < end || *from == Time(0)) && *until > start;
            match alloc.on(id).filter(|_| *partition == cap.partition && met) {
                Some(group) if *from == Time(0) => held.push(&group.cores),
                Some(group) => reserved += group.cores.len() as u32,
                None => {}
            }
        }
        (held, reserved)
    }

    /// Returns the nodes that a job cannot have in the time window: another user's job is there and one of the two
    /// excludes other users, or another job is in their block and one of the two wants the block alone.
    pub(crate) fn nodes_of_others(&self, topology: Option<&Topology>, job: &Candidate<'_>) -> NodeSet {
        let (start, end) = self.window;
        let mut nodes = NodeSet::new();
        let Some(user) = job.user else { return nodes };
        let meets = |claim: &&Claim| (claim.from < end || claim.from == Time(0)) && claim.until > start;
        for claim in self.claims.iter().filter(meets) {
            let blocks = (claim.blocks || job.wish.alone) && !claim.is_of(job);
            if let (true, Some(topology)) = (blocks, topology) {
                nodes.union_with(&topology.blocks_of(&claim.nodes));
            } else if claim.user != user && (claim.alone || job.need.own_nodes) {
                nodes.union_with(&claim.nodes);
            }
        }
        nodes
    }

    /// Returns a trial state for one row of the gang matrix: with the reservations and everything that rows cannot
    /// share, but without used cores.
    pub(crate) fn for_row(&self) -> Self {
        Self {
            withheld: self.withheld.clone(),
            closed: self.closed.clone(),
            capped: self.capped.clone(),
            window: self.window,
            gres: self.gres.clone(),
            kept_gres: self.kept_gres.clone(),
            placed: self.placed.clone(),
            ..Self::default()
        }
    }

    /// Returns the cores of a node that a job in this row of the gang matrix cannot have, after this plan's placements.
    /// Cores of the jobs in `without` are ignored, unless this plan placed them.
    pub(crate) fn row(&self, view: &impl View, node: NodeId, row: Row, without: &BTreeSet<JobId>) -> CoreSet {
        let mut cores = view.row(node, row, without);
        let placed = self.placed.iter().filter(|(of, _)| of.meets(row));
        placed.filter_map(|(_, alloc)| alloc.on(node)).for_each(|group| cores.union_with(&group.cores));
        cores
    }

    /// Records that resources of a node will be free at the examined time (the future time at which a job is to be
    /// placed).
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
    /// Returns the CPUs and memory (MiB) of a node that become free until the examined time (the future time at which a
    /// job is to be placed).
    pub(crate) fn gain_of(&self, node: NodeId) -> (u32, u64) {
        self.gains.get(node.index()).copied().unwrap_or_default()
    }
    /// Resets the time at which a job is to be placed to now: no resources become free until then.
    pub(crate) fn forget_gains(&mut self) {
        while let Some(node) = self.gained.pop() {
            self.gains[node.index()] = (0, 0);
        }
        self.later.clear();
        self.walked = false;
    }

    /// Records a reservation on these nodes, with its generic resources.
    pub(crate) fn note(&mut self, (from, until): (Time, Time), nodes: NodeSet, gres: &[Grant]) {
        self.kept.push(BackfillReservation { from, until, nodes: Arc::new(nodes) });
        self.kept_gres.extend(gres.iter().map(|grant| (from, until, grant.clone())));
    }
    /// Marks generic resources that this plan allocates as used on their nodes.
    pub(crate) fn hold_gres(&mut self, view: &impl View, gres: &[Grant]) {
        for grant in gres {
            self.change_gres(view, (std::slice::from_ref(grant), &grant.nodes), CoreSet::union_with);
        }
    }
    /// Changes the usage of generic resources on their nodes, as far as these are in `nodes`.
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
    /// Returns a node's generic resources with their usage: by running jobs, now or (`then`) at the future time at
    /// which a job is to be placed, and by reservations in the time window. None: the node has none.
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

    /// Reserves part of a node for a job. `need`: reserved CPUs and memory (MiB); `free`: those free when the
    /// reservation starts.
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
    /// Subtracts a started job's part of a node, used until `until`, from the resources that reservations leave to
    /// other jobs.
    pub(crate) fn begin(&mut self, until: Time, node: NodeId, need: (u32, u64)) {
        for hold in self.holds.get_mut(node.index()).into_iter().flatten().filter(|hold| hold.from < until) {
            hold.left = less(hold.left, need);
        }
    }
    /// Returns how much of `free` (CPUs, memory in MiB) a job may use throughout the time window without using reserved
    /// resources.
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
    /// Returns whether any part of a node is reserved for a job.
    pub(crate) fn keeps(&self) -> bool {
        !self.held.is_empty()
    }
    /// Returns the start times of all reservations.
    pub(crate) fn begins(&self) -> impl Iterator<Item = Time> + '_ {
        self.kept.iter().map(|kept| kept.from)
    }
}

fn less(free: (u32, u64), need: (u32, u64)) -> (u32, u64) {
    (free.0.saturating_sub(need.0), free.1.saturating_sub(need.1))
}
