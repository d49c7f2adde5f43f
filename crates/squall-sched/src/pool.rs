//! A resource pool that is a plain number of equal processors, for the replay of workload traces.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::time::{Span, Time};

use crate::policy::{Blocked, Discipline, Room};
use crate::timeline::Timeline;
use crate::view::{Candidate, Item};

/// Usage of processors over time, and reservations.
#[derive(Clone, Debug)]
pub struct Pool {
    now: Time,
    timeline: Timeline,
    /// Reservations for jobs: start, end and number of processors.
    kept: BTreeMap<Item, (Time, Time, i64)>,
    /// Start times of promised reservations, each with its job.
    due: BTreeSet<(Time, Item)>,
    /// Whether reservations are promises, which last from one scheduling pass to the next.
    promises: bool,
    /// Whether processors were returned before their expected time since the last scheduling pass.
    early: bool,
}

impl Pool {
    /// Creates a pool of free processors.
    pub fn new(processors: u32, discipline: Discipline) -> Self {
        let timeline = Timeline::new(i64::from(processors));
        let promises = discipline == Discipline::Conservative;
        Self { now: Time(0), timeline, kept: BTreeMap::new(), due: BTreeSet::new(), promises, early: false }
    }
    /// Returns the number of free processors.
    pub fn free(&self) -> u32 {
        self.timeline.free() as u32
    }
    /// Advances the time. Jobs expected to end by `now` have ended. Reservations that are not promises are dropped.
    pub fn advance(&mut self, now: Time) {
        if !self.promises {
            self.forget();
        }
        self.now = now;
        self.timeline.advance(now);
    }
    /// Makes processors free that were expected to be used until `end`.
    pub fn give_back(&mut self, end: Time, processors: u32) {
        if end > self.now {
            self.timeline.add_now(i64::from(processors));
            self.timeline.add(end, -i64::from(processors));
            self.early = true;
        }
    }
    /// Returns the next time at which a promised start is due, when a scheduling pass must run. None: nothing is
    /// promised.
    pub fn due(&self) -> Option<Time> {
        self.due.first().map(|(time, _)| *time)
    }
    /// Records that a scheduling pass has ended, which took all early returns of processors into account.
    pub fn passed(&mut self) {
        self.early = false;
    }
    fn forget(&mut self) {
        while let Some((_, (start, end, count))) = self.kept.pop_first() {
            self.timeline.take(start, end, -count);
        }
    }
}

/// Returns a job's time limit; 0 if it has none.
fn span(job: &Candidate<'_, u32>) -> Span {
    Span::from_secs(job.time_limit_s.flatten().unwrap_or_default())
}

impl Room for Pool {
    type Need = u32;
    type Grant = ();

    /// Returns whether a job must be tried again: it has no promised start, processors were returned early, or its
    /// promised start is due. If so, its promise is released first.
    fn reconsider(&mut self, job: &Candidate<'_, u32>) -> bool {
        let Some(&(start, end, count)) = self.kept.get(&job.item) else { return true };
        if !self.early && start > self.now {
            return false;
        }
        self.kept.remove(&job.item);
        self.due.remove(&(start, job.item));
        self.give(start, end, count);
        true
    }
    fn could(&mut self, job: &Candidate<'_, u32>, _: usize) -> Result<(), Span> {
        if i64::from(*job.need) <= self.timeline.free() { Ok(()) } else { Err(Span(0)) }
    }
    fn start(&mut self, job: &Candidate<'_, u32>, _: usize) -> Result<(), Blocked> {
        let (count, end) = (i64::from(*job.need), self.now + span(job));
        if let Some(below) = self.timeline.below(self.now, count).filter(|below| *below < end) {
            return Err(Blocked::Busy(below.since(self.now)));
        }
        self.hold(self.now, end, count);
        Ok(())
    }
    fn reserve(&mut self, job: &Candidate<'_, u32>, _: usize) -> Option<(Time, ())> {
        let (count, span) = (i64::from(*job.need), span(job));
        let start = self.timeline.earliest(self.now, span, count)?;
        self.hold(start, start + span, count);
        self.kept.insert(job.item, (start, start + span, count));
        if self.promises {
            self.due.insert((start, job.item));
        }
        Some((start, ()))
    }
    fn withhold(&mut self, _: usize) {}
}

impl Pool {
    fn hold(&mut self, start: Time, end: Time, count: i64) {
        if start > self.now {
            self.timeline.add(start, -count);
        } else {
            self.timeline.add_now(-count);
        }
        self.timeline.add(end, count);
    }
    /// Undoes [`Pool::hold`]. A part of the time that is past is included in the free processors already.
    fn give(&mut self, start: Time, end: Time, count: i64) {
        if start > self.now {
            self.timeline.add(start, count);
        } else {
            self.timeline.add_now(count);
        }
        self.timeline.add(end, -count);
    }
}
