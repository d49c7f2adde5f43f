//! Free capacity for a job as time advances.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::place::{Condition, capacity};
use crate::request::Request;
use crate::scratch::{Gain, Scratch};
use crate::view::{End, Given, PartitionView, View};

/// Counts, as time advances, the nodes that can take tasks of a job, and these tasks. Resources that are reserved from
/// a later time on count as free. So a job may fail to fit although the counts suffice, but it never fits if they do
/// not.
pub(super) struct Walk<'a, V> {
    view: &'a V,
    request: &'a Request,
    partition: &'a PartitionView<'a>,
    /// Nodes of which the capacity is in the counts.
    seen: NodeSet,
    nodes: i64,
    tasks: i64,
}

impl<'a, V: View> Walk<'a, V> {
    pub(super) fn new(
        view: &'a V,
        scratch: &mut Scratch,
        request: &'a Request,
        partition: &'a PartitionView<'a>,
        now: Time,
    ) -> Self {
        let seen = scratch.open.intersection(partition.nodes);
        let mut walk = Self { view, request, partition, seen: NodeSet::new(), nodes: 0, tasks: 0 };
        scratch.window = (now, now + Span(1));
        scratch.walked = true;
        scratch.among = NodeSet::new();
        for id in seen.iter() {
            walk.count(scratch, 0, id);
        }
        Self { seen, ..walk }
    }
    /// Updates the counts with a node's present capacity; `before` is the capacity counted so far, in tasks.
    fn count(&mut self, scratch: &mut Scratch, before: u32, id: NodeId) {
        let after = capacity(self.view, scratch, self.request, id, Condition::Then);
        if scratch.tasks.len() <= id.index() {
            scratch.tasks.resize(id.index() + 1, 0);
        }
        scratch.tasks[id.index()] = after;
        match (before > 0, after > 0) {
            (false, true) => scratch.among.insert(id),
            (true, false) => scratch.among.remove(id),
            _ => true,
        };
        self.nodes += i64::from(after > 0) - i64::from(before > 0);
        self.tasks += i64::from(after) - i64::from(before);
    }
    /// Applies a change of usage at `time`. Returns whether the capacity may have grown.
    pub(super) fn happens(&mut self, scratch: &mut Scratch, time: Time, turn: Turn) -> bool {
        scratch.window = (time, time + Span(1));
        match turn {
            Turn::Gained(gain) => {
                let id = gain.node;
                let counts = self.partition.nodes.contains(id) && !self.request.excluded.contains(id);
                if counts && self.view.node(id).usable {
                    let before = if self.seen.insert(id) { 0 } else { scratch.tasks[id.index()] };
                    scratch.gain(self.view, gain);
                    self.count(scratch, before, id);
                }
                true
            }
            Turn::Kept { nodes, from_now } => {
                for id in nodes.intersection(&self.seen).iter() {
                    self.count(scratch, scratch.tasks[id.index()], id);
                }
                !from_now
            }
            Turn::Other => true,
        }
    }
    /// Returns whether the counts suffice for the job.
    pub(super) fn may_fit(&self) -> bool {
        let Request { nodes_min, tasks, .. } = self.request;
        self.nodes >= i64::from(*nodes_min) && tasks.is_none_or(|tasks| self.tasks >= i64::from(tasks))
    }
}

/// A change of the usage of nodes at some time.
pub(super) enum Turn {
    /// Resources of a node become free.
    Gained(Gain),
    /// A reservation for a job on these nodes begins (`from_now`) or ends.
    Kept { nodes: Arc<NodeSet>, from_now: bool },
    /// A reservation by an operator begins or ends, or a job has waited long enough for few switches.
    Other,
}

/// A future change of usage that this plan or an operator's reservation causes.
enum Planned {
    /// A job that this plan starts ends and releases these resources.
    Ends(Arc<Given>),
    /// A reservation begins or ends, or a job's wait for few switches is over.
    Turns(Turn),
}

/// All future changes in order of time: ends of running jobs, starts and reservations of this plan, and begins and
/// ends of operators' reservations.
pub(super) struct Ends<'a, I: Iterator<Item = End<'a>>> {
    running: Peekable<I>,
    planned: Peekable<IntoIter<(Time, Planned)>>,
    soon: Time,
}

impl<'a, I: Iterator<Item = End<'a>>> Ends<'a, I> {
    pub(super) fn new(running: I, turns: impl Iterator<Item = Time>, scratch: &Scratch, now: Time, soon: Time) -> Self {
        let begun = scratch.begun.iter().map(|(time, given)| (*time, Planned::Ends(Arc::clone(given))));
        let kept = scratch.kept.iter().flat_map(|kept| {
            [(kept.from, true), (kept.until, false)]
                .map(|(time, from_now)| (time, Planned::Turns(Turn::Kept { nodes: Arc::clone(&kept.nodes), from_now })))
        });
        let turns = turns.map(|time| (time, Planned::Turns(Turn::Other)));
        let mut planned: Vec<_> = begun.chain(kept).chain(turns).filter(|(time, _)| *time > now).collect();
        planned.sort_by_key(|(time, _)| *time);
        Self { running: running.peekable(), planned: planned.into_iter().peekable(), soon }
    }
    /// Returns the time of the next change. None: there are no more.
    pub(super) fn peek(&mut self) -> Option<Time> {
        let running = self.running.peek().map(|end| end.time.max(self.soon));
        let planned = self.planned.peek().map(|(time, _)| *time);
        [running, planned].into_iter().flatten().min()
    }
    /// Calls `happens` for all changes at this time.
    pub(super) fn pass(&mut self, time: Time, mut happens: impl FnMut(Turn)) {
        while self.peek() == Some(time) {
            match self.planned.next_if(|(planned, _)| *planned == time) {
                Some((_, Planned::Turns(turn))) => happens(turn),
                Some((_, Planned::Ends(given))) => {
                    for group in &given.alloc.groups {
                        group.nodes.iter().for_each(|id| happens(Turn::Gained(Gain::of(id, group, &given.gres))));
                    }
                }
                None => {
                    let Some(End { alloc, gres, left, .. }) = self.running.next() else { return };
                    for group in &alloc.groups {
                        let nodes = group.nodes.iter().filter(|id| left.contains(*id));
                        nodes.for_each(|id| happens(Turn::Gained(Gain::of(id, group, gres))));
                    }
                }
            }
        }
    }
}
