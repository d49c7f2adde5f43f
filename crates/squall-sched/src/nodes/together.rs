//! Placement of heterogeneous jobs: all components start at one time, or none, and no two of them share a node.

use std::borrow::Cow;

use squall_model::job::PendingReason;
use squall_model::job::network::Class;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use super::walk::{Ends, Turn};
use super::{Lacks, Nodes, PATIENCE, SOON, apart, span, unbarred};
use crate::place::{Condition, capacity, place};
use crate::policy::Blocked;
use crate::request::Request;
use crate::scratch::Scratch;
use crate::topology::Wish;
use crate::view::{Candidate, Given, Start, View};

/// A component, and the partitions in which it may run.
type Choice<'a> = (Candidate<'a>, Vec<usize>);

impl<V: View> Nodes<'_, V> {
    /// Starts all components of a heterogeneous job now.
    pub(super) fn start_all(&mut self, job: &Candidate<'_>, at: usize) -> Result<Given, Blocked> {
        let choices = self.choosiest_first(job, at);
        self.each(&choices, job, Self::start_one)
    }

    /// Reserves resources for all components of a heterogeneous job, from the earliest time at which all fit.
    pub(super) fn reserve_all(&mut self, job: &Candidate<'_>, at: usize) -> Option<(Time, Given)> {
        let choices = self.choosiest_first(job, at);
        let view = self.view;
        let patience = choices.iter().filter_map(|(job, _)| job.wish.patience);
        let boots = choices.iter().filter_map(|(job, _)| view.boots_from(job).map(|(time, _)| time));
        let turns = view.turns().chain(patience).chain(boots).filter(|time| *time > self.now);
        let mut ends = Ends::new(view.ends(), turns, self.scratch, self.now, self.now + SOON);
        self.scratch.among = self.scratch.open.clone();
        let (mut time, mut tried, mut skip) = (self.now, 0, 0);
        let found = loop {
            if skip == 0 {
                self.scratch.times += 1;
                if let Ok(given) = self.each(&choices, job, |room, job, at| room.keep_at(job, at, time)) {
                    break Some((time, given));
                }
                tried += 1;
                skip = tried / PATIENCE;
            } else {
                skip -= 1;
            }
            let Some(next) = ends.peek().filter(|next| *next <= self.horizon) else { break None };
            time = next;
            ends.pass(time, |turn| {
                if let Turn::Gained(gain) = turn
                    && view.node(gain.node).usable
                {
                    self.scratch.among.insert(gain.node);
                    self.scratch.gain(view, gain);
                }
            });
        };
        self.scratch.forget_gains();
        found
    }

    /// Reserves resources for one component of a heterogeneous job from `time` on.
    fn keep_at(&mut self, job: &Candidate<'_>, at: usize, time: Time) -> Result<Given, Blocked> {
        let partition = self.view.partition(at);
        let span = span(&partition, job);
        let request = unbarred(self.view, &partition, job, (at, time)).map_err(Blocked::Never)?;
        if Lacks::of(self.view, self.scratch, (job, at), &request, self.now + SOON).meet(time, span) {
            return Err(Blocked::Busy(Span(0)));
        }
        self.scratch.window = (time, time + span);
        let request = apart(self.view, self.scratch, job, request);
        let given =
            place(self.view, self.scratch, &request, partition.nodes, Condition::Then).ok_or(Blocked::Busy(Span(0)))?;
        self.keep((job, &request), &given, (time, span));
        Ok(given)
    }

    /// Places the components one after the other on the resources that the previous ones leave. If one does not fit,
    /// all changes are undone.
    fn each(
        &mut self,
        choices: &[Choice<'_>],
        leader: &Candidate<'_>,
        mut one: impl FnMut(&mut Self, &Candidate<'_>, usize) -> Result<Given, Blocked>,
    ) -> Result<Given, Blocked> {
        let before = (self.scratch.mark(), self.rooms.clone());
        let mut found: Vec<Start> = Vec::new();
        let required = required(choices.iter().map(|(job, _)| job.need));
        let mut used = NodeSet::new();
        for (job, partitions) in choices {
            let need = beside(job.need, &required, &used);
            let job = &Candidate { need: &*need, ..*job };
            let mut blocked = Blocked::Never(PendingReason::PartitionDown);
            let started = partitions.iter().filter(|at| self.view.partition(**at).starts).find_map(|&at| {
                match one(self, job, at) {
                    Ok(given) => return Some(Start { item: job.item, partition: at, given }),
                    Err(why) if !matches!(blocked, Blocked::Busy(_)) => blocked = why,
                    Err(_) => {}
                }
                None
            });
            let Some(started) = started else {
                self.scratch.back_to(before.0);
                self.rooms = before.1;
                return Err(blocked);
            };
            used.union_with(&started.given.alloc.nodes());
            found.push(started);
        }
        found.sort_by_key(|start| (start.item != leader.item, start.item));
        let others = found.split_off(1);
        let own = found.pop().map(|start| start.given).unwrap_or_default();
        Ok(Given { others, ..own })
    }

    /// Returns the components, the one with the fewest suitable nodes first, so that the others leave these nodes to
    /// it.
    fn choosiest_first<'a>(&self, job: &Candidate<'a>, at: usize) -> Vec<Choice<'a>> {
        let others = job.others.iter().map(|other| (other.candidate(), other.partitions.clone()));
        let mut choices: Vec<Choice<'a>> = std::iter::once((*job, vec![at])).chain(others).collect();
        choices.sort_by_cached_key(|(job, partitions)| choice(self.view, self.scratch, job.need, partitions));
        choices
    }
}

/// Returns whether the components of a heterogeneous job, each with its partitions, could ever run at the same time: on
/// nodes with the requested properties, of which no two components share one. As with `has_such`, state, usage and
/// position in the network of nodes do not count. Also true if a component fits nowhere even alone, which is a different
/// pending reason, or if a node's hardware is unknown.
pub fn have_such(view: &impl View, scratch: &mut Scratch, components: &[(Request, Vec<usize>)]) -> bool {
    let unknown = |at: &usize| view.partition(*at).nodes.iter().any(|id| view.node(id).hardware.cpus == 0);
    if components.iter().flat_map(|(_, partitions)| partitions).any(unknown) {
        return true;
    }
    let network = Class::Anywhere;
    let mut order: Vec<(Request, &Vec<usize>)> = components
        .iter()
        .map(|(request, at)| (Request { wish: Wish { network, ..Wish::default() }, ..request.clone() }, at))
        .collect();
    order.sort_by_cached_key(|(request, partitions)| choice(view, scratch, request, partitions));
    let required = required(order.iter().map(|(request, _)| request));
    let mut used = NodeSet::new();
    for (request, partitions) in &order {
        let mut anywhere = |request: &Request| {
            let on = |at: &usize| place(view, scratch, request, view.partition(*at).nodes, Condition::Ideal);
            partitions.iter().find_map(on)
        };
        match anywhere(&beside(request, &required, &used)) {
            Some(given) => used.union_with(&given.alloc.nodes()),
            None => return anywhere(request).is_none(),
        }
    }
    true
}

/// Returns all nodes that components require.
fn required<'a>(requests: impl Iterator<Item = &'a Request>) -> NodeSet {
    requests.fold(NodeSet::new(), |mut all, request| {
        all.union_with(&request.required);
        all
    })
}

/// Returns a component's request without nodes of the others: those that they have, `used`, and those that some
/// component requires. No two components share a node, as in Slurm.
fn beside<'a>(request: &'a Request, required: &NodeSet, used: &NodeSet) -> Cow<'a, Request> {
    let mut others = required.clone();
    others.subtract(&request.required);
    others.union_with(used);
    let mut request = Cow::Borrowed(request);
    if !others.is_empty() {
        request.to_mut().excluded.union_with(&others);
    }
    request
}

/// Returns the number of nodes that would suit a component if they were free.
fn choice(view: &impl View, scratch: &Scratch, request: &Request, partitions: &[usize]) -> usize {
    if request.required.len() >= request.nodes_max as usize {
        return 0;
    }
    let does = |id| !request.excluded.contains(id) && capacity(view, scratch, request, id, Condition::Ideal) > 0;
    let nodes = |at: &usize| view.partition(*at).nodes.iter().filter(|id| does(*id)).count();
    partitions.iter().map(nodes).sum()
}
