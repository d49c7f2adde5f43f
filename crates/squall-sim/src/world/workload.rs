//! Generator of the random workload: submissions, operator actions and queries.

use std::sync::Arc;

use squall_model::checkpoint::{CheckpointPlan, CheckpointVerb};
use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::job::{ArraySpec, DependencyKind, JobKind};
use squall_model::limits::CHUNK_WINDOW_BYTES;
use squall_model::places::OnNodeFail;
use squall_model::policy::PreemptType;
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Comparison, Test, Variable};

use crate::order::Order;
use crate::query::Question;
use crate::seed::Seed;
use crate::setup::{FAST, HIGH, LOW, Setup};
use crate::world::client::Wish;
use crate::world::files::Parcel;
use crate::world::{Happening, World};

/// Kinds of dependencies between generated jobs.
const KINDS: [DependencyKind; 5] = [
    DependencyKind::After,
    DependencyKind::AfterAny,
    DependencyKind::AfterOk,
    DependencyKind::AfterNotOk,
    DependencyKind::AfterCorr,
];

/// Greatest size of most generated files, bytes.
const FILE_BYTES_MAX: u64 = 600_000;

/// State of the workload generator.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Time after which the generator submits nothing.
    pub(crate) until: Time,
    /// Mean time between two actions of users.
    gap: Span,
    cores: u32,
    memory_mb: u64,
    /// Number of nodes without spare ones.
    nodes: u32,
    /// Whether there is a second partition.
    fast: bool,
    /// Whether there are two QOS, of which one may preempt the other.
    levels: bool,
    /// Whether jobs can be checkpointed.
    checkpoints: bool,
    /// Whether the configuration lets jobs be leased to nodes.
    leases: bool,
    /// Whether nodes are switched on and rebooted for jobs.
    boots: bool,
    /// Least term of a node fence, seconds. None: jobs have no fences.
    fence_s: Option<u64>,
    /// Whether nodes stand in blocks, which jobs may have alone.
    blocks: bool,
    /// Number of submissions left in the current burst.
    burst: u32,
    drained: Vec<usize>,
}

impl Workload {
    /// Creates a generator of about `per_hour` user actions an hour.
    pub(crate) fn new(until: Time, per_hour: u64, setup: &Setup) -> Self {
        let gap = Span(3_600_000_000 / per_hour.max(1));
        let fast = setup.config.partitions.iter().any(|p| p.name == FAST);
        let (cores, memory_mb, nodes) = (setup.cores, setup.memory_mb, setup.names.len() as u32 - setup.spares());
        let levels = setup.config.preempt_type == PreemptType::Qos;
        let checkpoints = !setup.config.checkpoint_dir.is_empty();
        let leases = setup.config.partitions.iter().any(|partition| partition.lease_jobs > 0);
        let boots = !setup.config.health.reboot_program.is_empty();
        let fence_s = setup.fences.then(|| setup.config.node_fence_min_s(false));
        let blocks = !setup.config.topology.text.is_empty();
        let drained = Vec::new();
        Self {
            until,
            gap,
            cores,
            memory_mb,
            nodes,
            fast,
            levels,
            checkpoints,
            leases,
            boots,
            fence_s,
            blocks,
            burst: 0,
            drained,
        }
    }

    fn order(&self, seed: &mut Seed, before: &[(usize, bool)]) -> Order {
        let kind = match seed.weighted(&[86, 9, 5]) {
            0 => JobKind::Batch,
            1 => JobKind::Run,
            _ => JobKind::Allocation,
        };
        let nodes = seed.spread(1, u64::from(self.nodes.min(8)).max(1)) as u32;
        let run = Span::from_millis(seed.spread(200, 600_000));
        let mut order = Order {
            name: format!("w{}", seed.below(50)),
            kind,
            nodes,
            cores: seed.spread(1, u64::from(self.cores)) as u32,
            memory_mb: if seed.chance(300_000) { seed.between(1, self.memory_mb) } else { 0 },
            run,
            exit: if seed.chance(150_000) { seed.between(1, 255) as u8 } else { 0 },
            vary: if seed.chance(500_000) { seed.next() | 1 } else { 0 },
            stubborn: seed.chance(50_000),
            hides: seed.chance(50_000),
            limit_s: seed.chance(250_000).then(|| seed.spread(1, 900)),
            hold: kind == JobKind::Batch && seed.chance(50_000),
            requeue: seed.chance(100_000).then(|| seed.chance(500_000)),
            steps: seed.between(1, 3) as u32,
            ..Order::default()
        };
        if self.fast && seed.chance(300_000) {
            order.nodes = order.nodes.min(self.nodes / 2).max(1);
            order.partition = Some(if seed.chance(500_000) { FAST.into() } else { format!("{FAST},debug") });
        }
        if self.levels {
            order.qos = [None, Some(LOW), Some(LOW), Some(HIGH)][seed.below(4) as usize].map(str::to_owned);
        }
        if kind != JobKind::Batch {
            order.steps = if kind == JobKind::Run { 1 } else { order.steps };
            return order;
        }
        order.steps = if seed.chance(100_000) { order.steps } else { 0 };
        if seed.chance(80_000) {
            let size = seed.spread(2, 60) as u32;
            let limit = seed.chance(500_000).then(|| seed.spread(1, 8) as u32);
            order.array =
                Some(ArraySpec { indices: IndexSet::range(0, size - 1), limit, text: format!("0-{}", size - 1) });
            order.nodes = 1;
            order.run = Span::from_millis(seed.spread(200, 60_000));
        }
        // An array of many short, equal jobs that use all cores of a node each.
        if self.leases && seed.chance(300_000) {
            let indices = IndexSet::range(0, seed.spread(2, 100) as u32 - 1);
            (order.nodes, order.cores, order.memory_mb, order.steps) = (1, self.cores, 0, 0);
            order.array = Some(ArraySpec { indices, limit: None, text: "many".to_owned() });
            (order.run, order.limit_s) = (Span::from_millis(seed.spread(200, 60_000)), None);
        }
        // Now and then the job gets a second component, if both can ever run at the same time.
        let most = if order.partition.is_some() { self.nodes / 2 } else { self.nodes };
        let beside = 1 + (order.vary >> 16) as u32 % 3;
        if order.vary >> 8 & 7 == 3 && order.array.is_none() && !self.levels && order.nodes + beside <= most {
            order.beside = beside;
        }
        may_lose_nodes(&mut order, most);
        may_be_checkpointed(&mut order, self.checkpoints);
        if seed.chance(120_000) && !before.is_empty() {
            for _ in 0..seed.spread(1, 3) {
                let Some(&(other, is_array)) = seed.pick(before) else { continue };
                let kind = KINDS[seed.below(KINDS.len() as u64) as usize];
                let corresponds = is_array && order.array.is_some();
                let kind =
                    if kind == DependencyKind::AfterCorr && !corresponds { DependencyKind::AfterAny } else { kind };
                order.after.push((kind, other));
            }
            order.any = order.after.len() > 1 && seed.chance(300_000);
        }
        order
    }
}

/// Now and then has the controller checkpoint the job by itself, if the cluster is `able` to.
fn may_be_checkpointed(order: &mut Order, able: bool) {
    if able && order.vary >> 32 & 3 == 1 {
        let every_s = [0, 20, 60, 200][(order.vary >> 34) as usize % 4];
        order.options.checkpoint = Some(CheckpointPlan { every_s, must: false });
    }
}

/// Now and then has a failed node of the job replaced, or left out. `most`: most nodes that the job may have.
fn may_lose_nodes(order: &mut Order, most: u32) {
    if order.vary >> 24 & 3 != 2 || order.array.is_some() || order.beside > 0 {
        return;
    }
    let replaced = order.vary >> 26 & 3 != 0;
    order.options.on_node_fail = Some(if replaced { OnNodeFail::Replace } else { OnNodeFail::Shrink });
    let spares = (order.vary >> 28) as u32 % 2;
    order.options.spare_nodes = Some(spares).filter(|spares| *spares > 0 && order.nodes + spares <= most);
}

impl World {
    /// Does one random user action and schedules the next.
    pub(crate) fn work(&mut self) {
        let Some(mut workload) = self.workload.take() else { return };
        if self.now >= workload.until {
            self.workload = Some(workload);
            return;
        }
        if workload.burst > 0 || self.seed.chance(880_000) {
            workload.burst = workload.burst.saturating_sub(1);
            let from = self.clients.placed.len().saturating_sub(60);
            let recent = self.clients.placed.iter().enumerate().skip(from);
            let before: Vec<(usize, bool)> =
                recent.filter(|(_, p)| p.id.is_some()).map(|(at, p)| (at, p.order.array.is_some())).collect();
            let mut order = workload.order(&mut self.seed, &before);
            if workload.boots && self.seed.chance(100_000) {
                if self.seed.chance(500_000) {
                    order.options.reboot = Some(true);
                } else {
                    order.options.delay_boot_s = Some(self.seed.spread(5, 300));
                }
            }
            if let Some(fence_s) = workload.fence_s.filter(|_| self.seed.chance(600_000)) {
                order.options.node_fence_s = Some(fence_s + self.seed.below(30));
            }
            // The components of a job are jobs of their own: where the one wants its blocks alone, the other may have no block.
            if workload.blocks && order.beside == 0 && self.seed.chance(200_000) {
                order.options.exclusive_topo = Some(true);
            }
            self.submit(order);
        } else {
            self.meddle(&mut workload);
        }
        if workload.burst == 0 && self.seed.chance(10_000) {
            workload.burst = self.seed.spread(5, 60) as u32;
        }
        let gap = if workload.burst > 0 { Span(500) } else { Span(self.seed.between(0, 2 * workload.gap.0)) };
        self.workload = Some(workload);
        self.after(gap, Happening::Work);
    }

    /// Does a random change as a user or the operator, such as a cancellation or a drain.
    fn meddle(&mut self, workload: &mut Workload) {
        let count = self.clients.placed.len() as u64;
        if count == 0 {
            return;
        }
        let order = count.saturating_sub(1 + self.seed.below(80)) as usize;
        let array = self.clients.placed[order].order.array.clone();
        let wish = match self.seed.weighted(&[30, 10, 14, 10, 6, 6, 8, 6, 16, 6]) {
            0 => {
                let index = array.and_then(|a| a.indices.at(self.seed.below(a.indices.len() as u64) as u32));
                let index = index.filter(|_| self.seed.chance(500_000));
                Wish::Cancel { order, index }
            }
            1 => Wish::Hold { order },
            2 => Wish::Release { order },
            3 if !self.setup.config.checkpoint_dir.is_empty() && !order.is_multiple_of(4) => {
                let verbs = [CheckpointVerb::Create, CheckpointVerb::Vacate, CheckpointVerb::Restart];
                Wish::Checkpoint(order, verbs[order % 4 - 1])
            }
            3 => Wish::Requeue { order },
            4 => Wish::Suspend { order, suspend: true },
            5 => Wish::Suspend { order, suspend: false },
            6 => Wish::Update {
                order,
                array_limit: array.map(|_| self.seed.spread(1, 10) as u32),
                time_limit_s: Some(self.seed.spread(5, 900)),
            },
            7 => return self.administer(workload),
            8 => Wish::Query(Box::new(self.question())),
            _ => Wish::Bring(Arc::new(self.parcel())),
        };
        self.wish(wish);
    }

    /// Returns a random file for some neighbouring nodes: a short one, or one larger than the send window.
    fn parcel(&mut self) -> Parcel {
        let count = self.nodes.len() as u64;
        let first = self.seed.below(count) as usize;
        let some = self.seed.spread(1, count) as usize;
        let nodes = self.nodes.iter().skip(first).take(some).map(|node| node.name.clone()).collect();
        let most = if self.seed.chance(100_000) { CHUNK_WINDOW_BYTES * 3 / 2 } else { FILE_BYTES_MAX };
        let size = self.seed.spread(1, most) as usize;
        Parcel::new("", nodes, size, self.seed.below(3))
    }

    /// Returns a random query of all nodes. Most test whether a variable has one value everywhere, and write the next
    /// value if it has.
    fn question(&mut self) -> Question {
        let at = self.seed.below(3);
        let wrong = self.seed.chance(200_000);
        let value = self.judge.value_of(&format!("v{at}")) + i64::from(wrong);
        let comparison = *self.seed.pick(&[Comparison::Equal, Comparison::AtLeast]).unwrap_or(&Comparison::Equal);
        let test = Test { variable: Variable::Named(format!("v{at}")), comparison, value };
        let write = (!wrong && self.seed.chance(700_000)).then(|| (test.variable.clone(), value + 1));
        let time = Span::from_millis(self.seed.spread(10, 10_000));
        Question { name: String::new(), test, wait: self.seed.chance(200_000), write, time }
    }

    fn administer(&mut self, workload: &mut Workload) {
        if let Some(node) = workload.drained.pop().filter(|_| self.seed.chance(500_000)) {
            let nodes = self.nodes[node].name.clone();
            self.wish(Wish::Admin { nodes, admin: NodeAdmin::Resume, after: None });
        } else {
            let node = self.seed.below(self.nodes.len() as u64) as usize;
            workload.drained.push(node);
            let nodes = self.nodes[node].name.clone();
            let admin = if self.seed.chance(200_000) { NodeAdmin::Down } else { NodeAdmin::Drain };
            let after = self.chance.chance(300_000).then(|| Span::from_secs(self.chance.spread(10, 600)));
            self.wish(Wish::Admin { nodes, admin, after });
        }
    }

    /// Removes everything that holds jobs back: holds, drained nodes, suspensions.
    pub(crate) fn free_everything(&mut self) {
        let nodes = hostlist::compress(self.member_names());
        self.wish(Wish::Admin { nodes, admin: NodeAdmin::Resume, after: None });
        for order in 0..self.clients.placed.len() {
            let unfinished = self.judge.ids.get(&order).is_some_and(|id| !self.judge.is_over(*id));
            if unfinished {
                let held = self.judge.files_of(order, None).iter().all(|id| !self.judge.is_started(*id));
                self.wish(if held { Wish::Release { order } } else { Wish::Suspend { order, suspend: false } });
            }
        }
    }
}
