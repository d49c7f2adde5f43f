//! Spare nodes of jobs, and nodes that take the places of failed ones.

use squall_model::gres::{Count, Grant};
use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::places::{Places, Replacement, Vacancy};
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::apply::policy::Sign;
use crate::control::state::job::{Phase, Run};
use crate::invariant::invariant;

/// Returns the places of a job that starts with up to `spares` spare nodes: the last ones of its allocation, as far as
/// `working` nodes are left. None: it has no spares.
pub(super) fn at_start(alloc: &Alloc, spares: u32, working: Option<u32>) -> Option<Box<Places>> {
    if spares == 0 {
        return None;
    }
    let nodes = alloc.nodes();
    let working = nodes.len().saturating_sub(spares as usize).max(working.unwrap_or(0) as usize);
    Some(Box::new(Places { spares: nodes.iter().skip(working).collect(), ..Places::default() }))
}

/// Notes that a job gave up nodes, one of which left its place `vacant`.
pub(super) fn vacate(run: &mut Run, gone: &NodeSet, vacant: Option<Vacancy>) {
    if run.places.is_none() && vacant.is_none() {
        return;
    }
    let places = run.places.get_or_insert_default();
    places.spares.subtract(gone);
    places.replaced.retain(|one| !gone.contains(one.node));
    places.vacant.extend(vacant);
}

impl State {
    /// Returns what a job holds on a node, as a place that is vacant from `time` on. None: the job does not hold the node.
    pub(in crate::control) fn held_on(&self, time: Time, id: JobId, lost: NodeId) -> Option<Vacancy> {
        let run = self.jobs.get(&id)?.run()?;
        let group = run.alloc.on(lost)?;
        let grants = run.gres.iter().filter(|grant| grant.nodes.contains(lost));
        let count = |grant: &Grant| Count { name: grant.name.clone(), model: None, count: grant.indices.len() as u32 };
        Some(Vacancy {
            place: run.place_of(lost),
            lost,
            cpus: group.cores.len() as u32,
            memory_mb: group.memory_mb,
            gres: grants.map(count).collect(),
            since: time,
        })
    }

    /// Gives a vacant place of a running job to a node, which is one of the job's spares or new to it. The job holds `alloc`
    /// from now on, with the devices `gres` on that node.
    pub(super) fn node_replaced(
        &mut self,
        time: Time,
        (id, attempt): (JobId, Attempt),
        (lost, node): (NodeId, NodeId),
        alloc: &Alloc,
        gres: &[Grant],
    ) {
        self.holds_anew(time, (id, attempt), |state| {
            let Some(Phase::Running(run)) = state.jobs.get_mut(&id).map(|job| &mut job.phase) else {
                return invariant!("a job that holds other nodes runs");
            };
            let places = run.places.get_or_insert_default();
            let place = places.vacant.iter().position(|one| one.lost == lost).map(|at| places.vacant.remove(at).place);
            places.spares.remove(node);
            if let Some(place) = place.filter(|place| *place != node || *place != lost) {
                places.replaced.push(Replacement { place, node });
                // In lists of nodes the name of the one that failed stands for the new one, too.
                places.replaced.extend((lost != place).then_some(Replacement { place: lost, node }));
            }
            let is_new = run.alloc.on(node).is_none();
            run.alloc = alloc.clone();
            run.left.insert(node);
            run.gres.extend(gres.iter().cloned());
            if is_new {
                state.hold_resources(id, &alloc.split(&NodeSet::one(node)).0, false);
                for grant in gres {
                    state.index.hold_gres(node, grant);
                }
            }
        });
    }

    /// Changes what a running job holds. The job is charged until now for what it held, and counted again.
    pub(super) fn holds_anew(&mut self, time: Time, (id, attempt): (JobId, Attempt), change: impl FnOnce(&mut Self)) {
        // because a journal of another version may change a job that does not run here
        if !self.jobs.get(&id).is_some_and(|job| job.attempt == attempt && job.is_running()) {
            return;
        }
        self.counts_anew(time, id, change);
    }

    /// Changes what a job that holds resources counts for. It is charged until now for what it counted for before.
    pub(super) fn counts_anew(&mut self, time: Time, id: JobId, change: impl FnOnce(&mut Self)) {
        let works = self.works(id);
        if works {
            self.charge_job(time, id, false);
        }
        self.count_job(id, Sign::Minus);
        change(self);
        self.count_job(id, Sign::Plus);
        if works {
            self.charge_job(time, id, true);
        }
    }
}
