//! Placement of heterogeneous jobs: all components start at one time, or none.

use squall_model::job::PendingReason;
use squall_model::time::{Span, Time};

use super::walk::{Ends, Turn};
use super::{Lacks, Nodes, PATIENCE, SOON, apart, span, unbarred};
use crate::place::{Condition, capacity, place};
use crate::policy::Blocked;
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
        if Lacks::of(self.view, self.scratch, &request, self.now + SOON).meet(time, span) {
            return Err(Blocked::Busy(Span(0)));
        }
        self.scratch.window = (time, time + span);
        let request = apart(self.scratch, job, request);
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
        for (job, partitions) in choices {
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
        choices.sort_by_cached_key(|(job, partitions)| self.choice(job, partitions));
        choices
    }

    /// Returns the number of nodes that would suit a component if they were free.
    fn choice(&self, job: &Candidate<'_>, partitions: &[usize]) -> usize {
        let request = job.need;
        if request.required.len() >= request.nodes_max as usize {
            return 0;
        }
        let does =
            |id| !request.excluded.contains(id) && capacity(self.view, self.scratch, request, id, Condition::Ideal) > 0;
        let nodes = |at: &usize| self.view.partition(*at).nodes.iter().filter(|id| does(*id)).count();
        partitions.iter().map(nodes).sum()
    }
}
