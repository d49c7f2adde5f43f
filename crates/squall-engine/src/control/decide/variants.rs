//! Changed requests with which a pending job might start sooner: one change at a time, the smallest step first.

use std::sync::Arc;

use squall_model::job::JobSpec;
use squall_model::job::gpus::Gpus;
use squall_model::job::network;
use squall_model::resource::Memory;
use squall_model::wire::info::WhyChange;
use squall_sched::Request;
use squall_sched::topology::{TopologyKind, Wish};

use crate::control::index::lanes::request_of;
use crate::control::index::pending::{Pending, partitions_of};
use crate::control::info::forecast::Variant;
use crate::control::state::State;

/// Time limits that are tried as a change of the request, seconds.
const LIMITS_S: [u64; 8] = [86_400, 8 * 3600, 4 * 3600, 2 * 3600, 3600, 1800, 600, 60];

/// Fractions of the requested amounts that are tried, as numerator and denominator.
const SHARES: [(u32, u32); 3] = [(3, 4), (1, 2), (1, 4)];

/// Returns the job's request and changed versions of it (variants). Each changed version comes with its change; the
/// first is the request as it is, with None.
pub(crate) fn variants(state: &State, pending: &Pending<'_>) -> Vec<(Option<WhyChange>, Variant)> {
    let limit_s = pending.limit_s();
    let own = Variant { spec: Arc::clone(pending.spec), limit_s };
    let mut all = Edits { own: own.clone(), all: vec![(None, own)] };
    all.leave_out();
    all.leave_network(state);
    all.no_more_than_there_is(state);
    for share in SHARES {
        all.less(share);
    }
    for seconds in LIMITS_S {
        if limit_s.is_none_or(|limit| limit > seconds) {
            let variant = Variant { limit_s: Some(seconds), ..all.own.clone() };
            all.all.push((Some(WhyChange::TimeLimit(seconds)), variant));
        }
    }
    all.all
}

/// Collects the variants of a job's request.
struct Edits {
    own: Variant,
    all: Vec<(Option<WhyChange>, Variant)>,
}

impl Edits {
    /// Adds a variant, unless the edit changes nothing.
    fn with(&mut self, change: WhyChange, edit: impl FnOnce(&mut JobSpec)) {
        let mut other = JobSpec::clone(&self.own.spec);
        edit(&mut other);
        if other != *self.own.spec {
            self.all.push((Some(change), Variant { spec: Arc::new(other), ..self.own.clone() }));
        }
    }

    fn leave_out(&mut self) {
        self.with(WhyChange::WithoutNodelist, |spec| spec.need.nodelist = None);
        self.with(WhyChange::WithoutExclude, |spec| spec.need.exclude = None);
        self.with(WhyChange::WithoutConstraint, |spec| spec.need.constraint = None);
        self.with(WhyChange::WithoutExclusive, |spec| {
            spec.need.exclusive = false;
            (spec.options.exclusive_user, spec.options.exclusive_topo) = (false, None);
        });
        self.with(WhyChange::WithoutContiguous, |spec| spec.need.contiguous = false);
        self.with(WhyChange::WithoutLicenses, |spec| spec.need.licenses = None);
        self.with(WhyChange::WithoutReservation, |spec| spec.reservation = None);
        self.with(WhyChange::WithoutGres, |spec| {
            spec.need.gres = None;
            spec.options.gpus = Gpus::default();
        });
    }

    /// Adds variants that leave out the job's network options, as far as those matter on this topology.
    fn leave_network(&mut self, state: &State) {
        let wish = Wish::of_job(&self.own.spec.options).unwrap_or_default();
        // because the spec may name a node or a reservation that is gone
        let Some(Request { nodes_min, nodes_max, tasks, .. }) = request_of(state, &self.own.spec) else { return };
        match state.index.topology.kind {
            TopologyKind::Tree { .. } => {
                self.with(WhyChange::WithoutSwitches, |spec| spec.options.network.switches = None);
            }
            TopologyKind::Torus(_) => {
                self.with(WhyChange::WithoutGeometry, |spec| {
                    spec.options.network.geometry = None;
                    // The geometry may have given the number of nodes.
                    if tasks.is_none() {
                        (spec.need.nodes_min, spec.need.nodes_max) = (Some(nodes_min), Some(nodes_max));
                    }
                });
                self.with(WhyChange::WithoutGrid, |spec| {
                    (spec.options.network.grid, spec.options.network.stencil) = (None, None);
                });
                if wish.is_sensitive(nodes_min.max(tasks.unwrap_or(0)))
                    && wish.geometry.is_none()
                    && wish.grid.is_none()
                {
                    self.with(WhyChange::Network, |spec| {
                        spec.options.network.class = Some(network::class("local"));
                    });
                }
            }
            TopologyKind::Block { .. } => {
                self.with(WhyChange::WithoutSegments, |spec| {
                    (spec.options.segment, spec.options.segments) = (None, None);
                });
                self.with(WhyChange::WithoutGroups, |spec| spec.options.network.groups = None);
            }
            TopologyKind::Flat | TopologyKind::Ring(_) => {}
        }
    }

    /// Adds variants with the most nodes and tasks that one of the job's partitions has, if the job asks for more.
    fn no_more_than_there_is(&mut self, state: &State) {
        let need = &self.own.spec.need;
        let (wanted, cpus_each) = (need.ntasks, need.task_cpus());
        let (mut nodes, mut tasks) = (0, 0);
        for at in partitions_of(state, &self.own.spec) {
            let partition = &state.partitions[at];
            let cpus = partition.nodes.iter().filter_map(|id| state.node(id)).map(|node| node.hardware.cpus);
            tasks = tasks.max(cpus.map(|cpus| cpus / cpus_each).sum());
            nodes = nodes.max(partition.nodes.len() as u32);
        }
        if tasks > 0 && wanted.is_some_and(|wanted| wanted > tasks) {
            self.with(WhyChange::Tasks(tasks), |spec| spec.need.ntasks = Some(tasks));
        }
        if nodes > 0 && self.own.spec.need.nodes_min.is_some_and(|wanted| wanted > nodes) {
            self.with(WhyChange::Nodes(nodes), |spec| {
                (spec.need.nodes_min, spec.need.nodes_max) = (Some(nodes), None);
            });
        }
    }

    /// Adds variants with this fraction of each requested amount, one amount at a time.
    fn less(&mut self, (numerator, denominator): (u32, u32)) {
        let less = |count: u32| (u64::from(count) * u64::from(numerator) / u64::from(denominator)).max(1) as u32;
        let need = self.own.spec.need.clone();
        if let Some(tasks) = need.ntasks.filter(|tasks| *tasks > 1) {
            self.with(WhyChange::Tasks(less(tasks)), |spec| spec.need.ntasks = Some(less(tasks)));
        }
        if let Some(nodes) = need.nodes_min.filter(|nodes| *nodes > 1) {
            self.with(WhyChange::Nodes(less(nodes)), |spec| {
                (spec.need.nodes_min, spec.need.nodes_max) = (Some(less(nodes)), None);
            });
        }
        if let Some(cpus) = need.cpus_per_task.filter(|cpus| *cpus > 1) {
            self.with(WhyChange::CpusPerTask(less(cpus)), |spec| spec.need.cpus_per_task = Some(less(cpus)));
        }
        let less_mb = |mb: u64| (mb.saturating_mul(u64::from(numerator)) / u64::from(denominator)).max(1);
        let memory = match need.memory {
            Memory::PerNodeMb(mb) if mb > 1 => Memory::PerNodeMb(less_mb(mb)),
            Memory::PerCpuMb(mb) if mb > 1 => Memory::PerCpuMb(less_mb(mb)),
            // because the memory may be all of a node's, or can't be less
            _ => return,
        };
        self.with(WhyChange::Memory(memory), |spec| spec.need.memory = memory);
    }
}
