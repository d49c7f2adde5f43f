//! Whom a job that can't start may ask for room: the fewest of the cheapest.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::gres::{Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

use crate::place::{self, Condition, fits, place};
use crate::request::Request;
use crate::scratch::{List, Scratch};
use crate::view::{Closed, Given, Item, Row, View};

/// More than these are not looked at for one job.
const VICTIMS_MAX: usize = 512;

/// A running job that makes room if it is asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim<'a> {
    /// The job.
    pub id: JobId,
    /// What it was given.
    pub alloc: &'a Alloc,
    /// The generic resources that it was given.
    pub gres: &'a [Grant],
    /// The nodes of these that it still holds.
    pub left: &'a NodeSet,
    /// The lower, the rather it goes.
    pub cost: (u64, u64),
    /// It goes already, whoever asked.
    pub leaves: bool,
    /// It would not go: it is stopped while others run on its cores, and keeps all the rest.
    pub stays: bool,
}

/// A running job makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Who.
    pub victim: JobId,
    /// For whom.
    pub by: Item,
}

/// How room comes about.
pub(crate) struct Way {
    /// Who has to go; nobody: it is enough to wait for those who go already.
    pub(crate) asked: Vec<JobId>,
    /// Where the request fits then.
    pub(crate) given: Given,
    /// CPUs and memory that are free there then.
    pub(crate) free: BTreeMap<NodeId, (u32, u64)>,
}

/// Who has to go so that the request fits. None: nothing helps. The scratch is left as it was. Where cores are held by
/// several it is said in which row the request looks for its own.
pub(crate) fn clear(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    (nodes, row): (&NodeSet, Option<Row>),
    all: Vec<Victim<'_>>,
) -> Option<Way> {
    let before = State::of(scratch);
    let mut gone = Gone { row, jobs: BTreeSet::new() };
    let way = gone.choose(view, scratch, request, nodes, all).and_then(|asked| {
        let given = place(view, scratch, request, nodes, Condition::Now)?;
        let free = |id| (id, place::free(view, scratch, id, Condition::Now));
        let free = given.alloc.nodes().iter().map(free).collect();
        Some(Way { asked, given, free })
    });
    before.put_back(scratch);
    way
}

/// What going and staying change in a scratch.
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

/// Who is gone, as far as is thought of.
struct Gone {
    row: Option<Row>,
    jobs: BTreeSet<JobId>,
}

impl Gone {
    /// [`clear`], with the scratch as it is when they are gone.
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
        // Who was asked in vain on the way is spared, the dearest first. The last was needed.
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

    /// As if a job were gone, or stopped: then its memory and all the rest stay with it.
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

    /// As if it stayed.
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

    /// Changes what is taken on a job's nodes. Cores that others may hold as well are counted anew.
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

/// Where it stands that links are a victim's own.
fn closed_by(scratch: &Scratch, victim: &Victim<'_>) -> Option<usize> {
    if scratch.closed.is_empty() {
        return None;
    }
    let nodes = victim.alloc.nodes();
    scratch.closed.iter().position(|closed| closed.from == Time(0) && closed.nodes == nodes)
}
