//! The scheduling policy's view of state and queue.

use crate::control::index::bars::{Claims, bars, kept_licenses};
use crate::control::index::victims::victims;
use crate::control::state::billing;
use crate::control::state::gates;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use squall_model::billing::{BillingWeights, Combine};
use squall_model::gang::Coscheduling;
use squall_model::gres::NodeGres;
use squall_model::id::{JobId, NodeId};
use squall_model::license;
use squall_model::policy::Limit;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_sched::topology::Topology;
use squall_sched::{
    Bars, Candidate, Cap, Claim, Closed, End, Gate, Grain, Item, KeptLicenses, Lanes, Names, NodeView, PartitionView,
    Queues, Request, Row, Victim, View,
};

use crate::control::index::ordered::Ordered;
use crate::control::index::pending::pending;
use crate::control::index::power::boots_from;
use crate::control::index::queue::Queue;
use crate::control::index::{facts, limits};
use crate::control::state::job::Run;
use crate::control::state::node::Partition;
use crate::control::state::{LineId, State};
use crate::invariant::invariant;

/// Added to the weight of a node that is not powered up, so that all others come first.
const SLEEPS: u32 = 1 << 31;

/// State and queue as the scheduling policy sees them, borrowed for a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    /// The journaled state.
    pub(crate) state: &'a State,
    /// The queue.
    pub(crate) queue: &'a Queue,
    /// The time of the scheduling pass.
    pub(crate) now: Time,
}

impl Sight<'_> {
    /// Returns the row of the gang scheduling matrix in which a job runs. A job that shares cores with no job of its
    /// rank is in all rows.
    fn row_of(&self, id: JobId, run: &Run, ranked: bool) -> Row {
        let rank = if ranked { self.state.rank(&run.partition) } else { 0 };
        let asked = self.state.jobs.get(&id).is_some_and(|job| job.spec.need.oversubscribe);
        let rows = |partition: &Partition| partition.config.oversubscribe.rows(asked);
        let alone = ranked && self.state.partition(&run.partition).is_none_or(|partition| rows(partition) == 1);
        let place = self.state.gang.get(&id).filter(|_| !alone);
        Row { rank, slot: place.map(|place| place.turn.slot) }
    }
}

impl Queues for Sight<'_> {
    type Need = Request;

    fn partition_count(&self) -> usize {
        self.state.partitions.len()
    }
    fn tier(&self, partition: usize) -> Option<u32> {
        let partition = &self.state.partitions[partition];
        let waits = !self.queue.completing.is_disjoint(&partition.nodes);
        (partition.starts_jobs() && !waits).then_some(partition.config.priority_tier)
    }
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_>> {
        Ordered::new(*self, partition)
    }
}

impl Names for State {
    fn node_id(&self, name: &str) -> Option<NodeId> {
        // A job that waits for a removed node by name goes on waiting for it.
        self.ever_id(name)
    }
    fn memory_per_cpu_mb(&self) -> u64 {
        self.config.def_mem_per_cpu_mb
    }
}

impl View for Sight<'_> {
    fn partition(&self, at: usize) -> PartitionView<'_> {
        let partition = &self.state.partitions[at];
        let config = &partition.config;
        PartitionView {
            nodes: &partition.nodes,
            tier: config.priority_tier,
            nodes_min: config.min_nodes.max(1),
            nodes_max: config.max_nodes,
            time_max_s: config.max_time_s,
            time_default_s: config.default_time_s.or(config.max_time_s),
            starts: partition.starts_jobs(),
            least_loaded: config.lln || self.state.config.select_type_parameters.least_loaded,
            cap: Cap::of(at, config.max_cpus_per_node, config.max_cpus_per_socket),
        }
    }
    fn ends(&self) -> impl Iterator<Item = End<'_>> {
        // Cores of a suspended job are free when both it and the job that runs there now have ended.
        let held = self.queue.ends.iter().filter(|(_, id)| !self.state.is_covered(*id));
        held.filter_map(|&(time, id)| {
            let run = self.state.jobs.get(&id)?.run()?;
            // Cores of a line are free when its last job has ended.
            let line = if self.state.lines.is_empty() { None } else { LineId::of(&run.alloc) };
            if line.and_then(|line| self.state.lines.get(&line)).is_some_and(|line| line.last() != Some(&id)) {
                return None;
            }
            Some(End { time, alloc: &run.alloc, gres: &run.gres, left: &run.left })
        })
    }
    fn node(&self, id: NodeId) -> NodeView<'_> {
        // Ids come from partitions, which contain existing nodes only.
        let node = &self.state.nodes[id.index()];
        let select = self.state.config.select_type_parameters;
        let grain = Grain::of(select.unit, &node.hardware);
        let grain = if select.dist_block { grain.in_few_sockets(&node.hardware) } else { grain };
        let usable = node.usable();
        NodeView { hardware: &node.hardware, cores: &node.cores, memory_mb: node.memory_mb, usable, grain }
    }
    fn open(&self) -> &NodeSet {
        &self.queue.open
    }
    fn by_weight(&self) -> &[NodeId] {
        match &self.queue.order {
            Some(order) if !self.state.index.asleep.is_empty() => order,
            _ => &self.state.index.by_weight,
        }
    }
    fn weight(&self, id: NodeId) -> u32 {
        let asleep = self.state.index.asleep.contains(id);
        self.state.weight_of(id).saturating_add(if asleep { SLEEPS } else { 0 })
    }
    fn held_by(&self, partition: usize, node: NodeId, time: Time) -> impl Iterator<Item = &CoreSet> {
        let name = &self.state.partitions[partition].config.name;
        // A job past its limit is expected to end soon, but not now.
        let soon = self.now + Span::from_secs(1);
        let runs = move |end: Option<Time>| end.is_none_or(|end| end.max(soon) > time);
        let jobs = self.state.nodes[node.index()].jobs.iter();
        jobs.filter_map(move |id| {
            let job = self.state.jobs.get(id)?;
            let run = job.run().filter(|run| run.partition == *name)?;
            let group = run.alloc.on(node)?;
            runs(facts::end_time(self.state, *id, job, run)).then_some(&group.cores)
        })
    }
    fn packs(&self) -> bool {
        self.state.config.select_type_parameters.pack_nodes
    }
    fn gives_memory(&self) -> bool {
        self.state.config.select_type_parameters.memory
    }
    fn topology(&self) -> Option<&Topology> {
        Some(&*self.state.index.topology).filter(|topology| !topology.is_flat())
    }
    fn closed(&self) -> &[Closed] {
        &self.queue.closed
    }
    fn claims(&self) -> &[Claim] {
        &self.queue.claims
    }
    fn bars(&self, job: &Candidate<'_>, partition: usize, time: Time) -> Bars {
        let state = self.state;
        let own = job.need.reservation.as_deref();
        if state.reservations.is_empty() && own.is_none() {
            return Bars::Open;
        }
        let claims = Claims::of(state, job.item, own, &state.partitions[partition].config.name);
        let partition = self.partition(partition);
        let limit = job.time_limit_s.unwrap_or(partition.time_default_s);
        bars(state, time, &claims, limit, partition.nodes)
    }
    fn kept_licenses(&self, job: &Candidate<'_>, partition: usize) -> Vec<KeptLicenses> {
        let state = self.state;
        if state.reservations.values().all(|one| one.licenses.is_none()) {
            return Vec::new();
        }
        let own = job.need.reservation.as_deref();
        let claims = Claims::of(state, job.item, own, &state.partitions[partition].config.name);
        kept_licenses(state, self.queue, self.now, &claims)
    }
    fn boots_from(&self, job: &Candidate<'_>) -> Option<(Time, &NodeSet)> {
        let (delay_s, asleep) = (job.need.delay_boot_s?, &self.state.index.asleep);
        if asleep.is_empty() {
            return None;
        }
        // A job that is not in the queue would be submitted now.
        let pending = pending(self.state, job.item);
        let until = pending.map_or(Some(self.now + Span::from_secs(delay_s)), |pending| boots_from(&pending));
        until.map(|until| (until, asleep))
    }
    fn turns(&self) -> impl Iterator<Item = Time> {
        self.state.reservations.values().filter(|one| one.floats.is_none()).flat_map(|one| [one.start, one.end])
    }
    fn gres(&self, id: NodeId) -> Option<&NodeGres> {
        self.state.index.gres.get(&id)
    }
    fn licenses(&self, name: &str) -> u32 {
        let held = self.state.index.licenses.get(name).copied().unwrap_or_default();
        self.queue.licenses.get(name).map_or(0, |total| total.saturating_sub(held))
    }
    fn returns(&self) -> Vec<(Time, BTreeMap<String, u32>)> {
        if self.state.index.licenses.is_empty() {
            return Vec::new();
        }
        let returns = self.queue.ends.iter().filter_map(|(time, id)| {
            let held = self.state.jobs.get(id)?.spec.need.licenses.as_deref()?;
            Some((*time, license::parse(held)?))
        });
        returns.collect()
    }
    fn gates(&self, item: Item, partition: usize) -> Vec<Gate> {
        if self.state.policy.is_empty() {
            return Vec::new();
        }
        let (Some(pending), Some(partition)) = (pending(self.state, item), self.state.partitions.get(partition)) else {
            return Vec::new();
        };
        gates::gates(self.state, pending.owner, pending.spec, &partition.config.name)
    }
    fn weights(&self, partition: usize) -> Option<(&BillingWeights, Combine)> {
        billing::weights(self.state, &self.state.partitions[partition])
    }
    fn victims(&self, item: Item, partition: usize) -> Vec<Victim<'_>> {
        victims(self.state, self.now, item, partition)
    }
    fn room(&self, gate: Gate) -> Vec<(Limit, u64)> {
        limits::room(self.state, gate, self.now)
    }
    fn safe(&self) -> bool {
        self.state.config.accounting_storage_enforce.safe
    }
    fn shares(&self) -> bool {
        let rows = |partition: &Partition| partition.config.oversubscribe.rows(true);
        self.state.partitions.iter().any(|partition| rows(partition) > 1) || self.state.is_ranked()
    }
    fn rows(&self, partition: usize, need: &Request) -> u32 {
        match self.state.config.coscheduling() {
            Coscheduling::Batch => 1,
            _ => self.state.partitions[partition].config.oversubscribe.rows(need.oversubscribe),
        }
    }
    fn reachable(&self) -> &NodeSet {
        &self.queue.reachable
    }
    fn faulty(&self) -> Vec<NodeId> {
        let newest = |id: NodeId| self.state.node(id)?.faults.last().filter(|fault| fault.is_recent(self.now));
        let faulty = self.state.index.faulty.iter().filter_map(|id| Some((newest(id)?.time, id)));
        let mut faulty: Vec<(Time, NodeId)> = faulty.collect();
        faulty.sort_unstable_by_key(|(time, id)| (Reverse(*time), *id));
        faulty.into_iter().map(|(_, id)| id).collect()
    }
    fn row(&self, id: NodeId, row: Row, without: &BTreeSet<JobId>) -> CoreSet {
        let ranked = self.state.is_ranked();
        let mut cores = CoreSet::new();
        for job in self.state.nodes[id.index()].jobs.iter().filter(|job| !without.contains(job)) {
            let Some((job, run)) = self.state.jobs.get(job).and_then(|found| Some((*job, found.run()?))) else {
                invariant!("a job on a node has resources");
                continue;
            };
            let own = self.row_of(job, run, ranked);
            if let Some(group) = run.alloc.on(id).filter(|_| own.meets(row)) {
                cores.union_with(&group.cores);
            }
        }
        cores
    }
    fn rank(&self, partition: usize) -> u32 {
        if self.state.is_ranked() { self.state.partitions[partition].config.priority_tier } else { 0 }
    }
    fn yields(&self, partition: usize) -> bool {
        self.state.config.suspends(&self.state.partitions[partition].config)
    }
}
