//! Choice of jobs to preempt for a job that cannot start: the fewest of the cheapest.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::gres::NodeGres;
use squall_model::id::{JobId, NodeId};
use squall_model::resource::AllocGroup;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

use crate::place::{self, Condition, fits, place};
use crate::request::Request;
use crate::scratch::{List, Scratch};
use crate::view::{Closed, Given, Row, Victim, View};

/// Maximum number of victims that are considered for one job.
const VICTIMS_MAX: usize = 512;

/// A way to make a request fit by preemption.
pub(crate) struct Clearing {
    /// Jobs that must be preempted; empty: the resources of jobs that are ending already suffice.
    pub(crate) asked: Vec<JobId>,
    /// Placement of the request after the preemptions.
    pub(crate) given: Given,
    /// Resources that are free on each node of the placement after the preemptions: CPUs and memory (MiB).
    pub(crate) free: BTreeMap<NodeId, (u32, u64)>,
}

/// Returns the victims that make the request fit if they are preempted, and the request's placement. None: no
/// preemption helps. The trial state is left unchanged. `row`: the gang matrix row of the request, where jobs share
/// cores.
pub(crate) fn clear(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    (nodes, row): (&NodeSet, Option<Row>),
    all: Vec<Victim<'_>>,
) -> Option<Clearing> {
    let before = State::of(scratch);
    let mut gone = Gone { row, jobs: BTreeSet::new() };
    let way = gone.choose(view, scratch, request, nodes, all).and_then(|asked| {
        let given = place(view, scratch, request, nodes, Condition::Now)?;
        let free = |id| (id, place::free(view, scratch, id, Condition::Now));
        let free = given.alloc.nodes().iter().map(free).collect();
        Some(Clearing { asked, given, free })
    });
    before.put_back(scratch);
    way
}

/// The parts of a trial state that removing and restoring victims change.
struct State(List, NodeSet, BTreeMap<NodeId, NodeGres>, Vec<Closed>);

impl State {
    fn of(scratch: &Scratch) -> Self {
        Self(scratch.taken.saved(), scratch.open.clone(), scratch.gres.clone(), scratch.closed.clone())
    }
    fn put_back(self, scratch: &mut Scratch) {
        scratch.taken.restore(self.0);
        (scratch.open, scratch.gres, scratch.closed) = (self.1, self.2, self.3);
    }
}

/// Jobs that the trial has removed from the cluster.
struct Gone {
    row: Option<Row>,
    jobs: BTreeSet<JobId>,
}

impl Gone {
    /// Implements [`clear`]; leaves the trial state with the chosen victims removed.
    fn choose(
        &mut self,
        view: &impl View,
        scratch: &mut Scratch,
        request: &Request,
        nodes: &NodeSet,
        mut all: Vec<Victim<'_>>,
    ) -> Option<Vec<JobId>> {
        all.sort_by_key(|victim| (!victim.leaves, victim.cost, victim.id));
        let asked = all.split_off(all.partition_point(|victim| victim.leaves));
        for victim in &all {
            self.give_back(view, scratch, victim);
        }
        let mut chosen: Vec<&Victim<'_>> = Vec::new();
        let mut rest = asked.iter().take(VICTIMS_MAX);
        while !fits(view, scratch, request, nodes, Condition::Now) {
            let victim = rest.next()?;
            self.give_back(view, scratch, victim);
            chosen.push(victim);
        }
        // Victims that turned out unnecessary are restored, the most expensive first. The last one was needed.
        for at in (0..chosen.len().saturating_sub(1)).rev() {
            let before = State::of(scratch);
            self.take(view, scratch, chosen[at]);
            if fits(view, scratch, request, nodes, Condition::Now) {
                chosen.remove(at);
            } else {
                self.jobs.insert(chosen[at].id);
                before.put_back(scratch);
            }
        }
        Some(chosen.iter().map(|victim| victim.id).collect())
    }

    /// Removes a victim from the trial state. A victim that is only suspended keeps its memory and everything but its
    /// cores.
    fn give_back(&mut self, view: &impl View, scratch: &mut Scratch, victim: &Victim<'_>) {
        self.jobs.insert(victim.id);
        if !victim.stays {
            scratch.change_gres(view, (victim.gres, victim.left), CoreSet::subtract);
            if let Some(at) = closed_by(scratch, victim) {
                scratch.closed[at].until = Time(0);
            }
        }
        self.change(view, scratch, victim, |taken, group| {
            taken.0.subtract(&group.cores);
            taken.1 = taken.1.saturating_sub(group.memory_mb);
        });
    }

    /// Restores a victim in the trial state.
    fn take(&mut self, view: &impl View, scratch: &mut Scratch, victim: &Victim<'_>) {
        self.jobs.remove(&victim.id);
        if !victim.stays {
            scratch.change_gres(view, (victim.gres, victim.left), CoreSet::union_with);
            if let Some(at) = closed_by(scratch, victim) {
                scratch.closed[at].until = Time(u64::MAX);
            }
        }
        self.change(view, scratch, victim, |taken, group| {
            taken.0.union_with(&group.cores);
            taken.1 += group.memory_mb;
        });
    }

    /// Changes the usage of a job's nodes in the trial state. Cores that other jobs may share are counted again.
    fn change(
        &self,
        view: &impl View,
        scratch: &mut Scratch,
        victim: &Victim<'_>,
        change: impl Fn(&mut (CoreSet, u64), &AllocGroup),
    ) {
        for group in &victim.alloc.groups {
            for id in group.nodes.iter().filter(|id| victim.left.contains(*id)) {
                let node = view.node(id);
                let shared = self.row.map(|row| scratch.row(view, id, row, &self.jobs));
                let taken = scratch.taken.of(id, &node);
                let memory_mb = taken.1;
                change(taken, group);
                taken.0 = shared.unwrap_or_else(|| std::mem::take(&mut taken.0));
                if victim.stays {
                    taken.1 = memory_mb;
                }
                if taken.0.len() >= node.hardware.cpus as usize {
                    scratch.open.remove(id);
                } else if node.usable && (!victim.stays || view.reachable().contains(id)) {
                    scratch.open.insert(id);
                }
            }
        }
    }
}

/// Returns the index of the entry that reserves network links for a victim. None: the victim shares its links with
/// others.
fn closed_by(scratch: &Scratch, victim: &Victim<'_>) -> Option<usize> {
    if scratch.closed.is_empty() {
        return None;
    }
    let nodes = victim.alloc.nodes();
    scratch.closed.iter().position(|closed| closed.from == Time(0) && closed.nodes == nodes)
}
