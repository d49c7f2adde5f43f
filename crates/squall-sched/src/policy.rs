//! One scheduling pass over pending jobs: which start now, which wait, and for which resources are reserved meanwhile.
//!
//! The disciplines differ in the number of pending jobs with a reservation. With none, no job may start before the
//! first pending one (first in, first out). With one, others may start first if they do not delay it (EASY). With all,
//! each job has a promised start (conservative). Placement and run times are up to the resource pool: a cluster, or a
//! plain number of processors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::IntoIter;

use squall_model::id::JobId;
use squall_model::job::PendingReason;
use squall_model::time::{Span, Time};

use crate::view::{Candidate, Eviction, Head, Item, Lanes, Plan, Queues, Reserved, Skip, Start};

/// Discipline that decides which jobs may start before earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// No job starts before the first pending job of its partition.
    Fifo,
    /// A job may start before earlier ones if it does not delay the first pending job of its partition.
    #[default]
    Easy,
    /// As EASY, but behind the first pending job the shortest jobs are tried first.
    EasyShortest,
    /// A job may start before earlier ones if it delays none of the first [`Rules::kept`] pending jobs.
    Conservative,
}

/// Parameters of a scheduling pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rule for the jobs that may start before earlier ones.
    pub discipline: Discipline,
    /// Maximum number of jobs that are tried behind the first pending job of each partition.
    pub depth: usize,
    /// Number of pending jobs in each partition that get a reservation, for disciplines that reserve for more than the
    /// first.
    pub kept: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { discipline: Discipline::Easy, depth: usize::MAX, kept: usize::MAX }
    }
}

/// A resource pool in which jobs are placed.
pub trait Room {
    /// Resource request of a job.
    type Need;
    /// Resources that a job is given.
    type Grant;
    /// Returns whether to try a job again in this pass. If so, resources that an earlier pass promised to it are
    /// released first.
    fn reconsider(&mut self, _job: &Candidate<'_, Self::Need>) -> bool {
        true
    }
    /// Returns whether a job could start now if nothing were reserved for other jobs; may be too optimistic. Error:
    /// equal requests with a time limit above this span could not start either.
    fn could(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Result<(), Span>;
    /// Starts a job now, if that leaves the resources reserved for other jobs free.
    fn start(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Result<Self::Grant, Blocked>;
    /// Returns whether running jobs may be suspended for jobs of this partition.
    fn may_cover(&self, _partition: usize) -> bool {
        false
    }
    /// Starts a job now on cores of running jobs, which are suspended meanwhile. None: that is not permitted or does
    /// not help.
    fn cover(&mut self, _job: &Candidate<'_, Self::Need>, _partition: usize) -> Option<Self::Grant> {
        None
    }
    /// Reserves resources for a job, from the earliest time at which they are free for its whole time limit. None:
    /// there is no such time within reach.
    fn reserve(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Option<(Time, Self::Grant)>;
    /// Returns whether running jobs may be preempted for a job.
    fn may_preempt(&self, _job: &Candidate<'_, Self::Need>, _partition: usize) -> bool {
        false
    }
    /// Preempts running jobs for a job, if that is permitted and helps, and reserves their resources for it. None:
    /// nothing is preempted.
    fn make_room(&mut self, _job: &Candidate<'_, Self::Need>, _partition: usize) -> Option<Cleared<Self::Grant>> {
        None
    }
    /// Blocks further starts in a partition, and on its nodes in partitions of a lower tier.
    fn withhold(&mut self, partition: usize);
}

/// Resources that other jobs release for a job by preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared<G> {
    /// Time at which the job starts, if the preempted jobs end soon.
    pub time: Time,
    /// Resources that the job will be given.
    pub grant: G,
    /// Jobs to be preempted. Empty: the resources of jobs that are ending already suffice.
    pub victims: Vec<JobId>,
}

/// Reason why a job does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Other jobs use resources that the job needs. Equal requests with a time limit above this span do not fit either.
    Busy(Span),
    /// The job cannot start in the cluster's present configuration, whichever jobs end.
    Never(PendingReason),
}

/// Plans one scheduling pass: the jobs that start now, and reservations. Its cost depends on the jobs that start or are
/// skipped, the first pending job of each partition, and one test for each equivalence class behind it.
pub fn plan<Q: Queues, R: Room<Need = Q::Need>>(queues: &Q, room: &mut R, rules: Rules) -> Plan<R::Grant> {
    let mut pass = Pass {
        room,
        rules,
        plan: Plan::default(),
        owed: Vec::new(),
        without: BTreeMap::new(),
        started: BTreeSet::new(),
        groups: BTreeMap::new(),
    };
    let mut lines: Vec<_> = (0..queues.partition_count())
        .filter_map(|at| Some(PartitionQueue::new(at, queues.tier(at)?, queues.queue(at))))
        .collect();
    loop {
        // The next job over all partitions. There are few partitions, so each is examined.
        let next = lines.iter_mut().enumerate().filter_map(|(slot, line)| {
            let tier = line.tier;
            let job = line.peek()?;
            Some(((Reverse(tier), Reverse(job.priority), job.item, slot), slot))
        });
        let Some((_, slot)) = next.min() else { break };
        let line = &mut lines[slot];
        let Some(job) = line.front.take() else { break };
        let Err(longest) = pass.consider(&job, line.partition, line.blocked) else { continue };
        line.stop(rules, longest);
        pass.wait(job, line.partition, line.tests);
        if line.tests > rules.depth || rules.discipline == Discipline::Fifo {
            let line = lines.remove(slot);
            if rules.discipline == Discipline::Fifo && lines.iter().any(|other| other.tier < line.tier) {
                pass.room.withhold(line.partition);
            }
        }
    }
    pass.plan
}

/// State of the queue of one partition during a scheduling pass.
struct PartitionQueue<'a, N, L> {
    partition: usize,
    tier: u32,
    queue: L,
    /// The next job, taken from the queue and not tried yet. None: it is still in the queue.
    front: Option<Candidate<'a, N>>,
    /// The rest of the queue, sorted by time limit. None: the queue is not sorted.
    sorted: Option<IntoIter<Candidate<'a, N>>>,
    /// Whether a job of this partition could not start in this pass.
    blocked: bool,
    /// Number of jobs tried without success after the first one that could not start.
    tests: usize,
}

impl<'a, N, L: Lanes<Candidate<'a, N>>> PartitionQueue<'a, N, L> {
    fn new(partition: usize, tier: u32, queue: L) -> Self {
        Self { partition, tier, queue, front: None, sorted: None, blocked: false, tests: 0 }
    }
    fn peek(&mut self) -> Option<&Candidate<'a, N>> {
        if self.front.is_none() {
            self.front = match &mut self.sorted {
                Some(sorted) => sorted.next(),
                None => self.queue.next(),
            };
        }
        self.front.as_ref()
    }
    /// Records that the job taken last could not start. Later equal requests with a time limit above `longest` are then
    /// skipped.
    fn stop(&mut self, rules: Rules, longest: Span) {
        self.tests += usize::from(self.blocked);
        if rules.discipline == Discipline::EasyShortest && !self.blocked {
            let mut rest: Vec<_> = self.queue.by_ref().collect();
            rest.sort_by_key(|job| job.time_limit_s.flatten().unwrap_or(u64::MAX));
            self.sorted = Some(rest.into_iter());
        } else if (rules.discipline != Discipline::Conservative || self.tests >= rules.kept) && self.sorted.is_none() {
            self.queue.close(longest);
        }
        self.blocked = true;
    }
}

/// State of a scheduling pass in progress.
struct Pass<'a, 'r, N, R: Room<Need = N>> {
    room: &'r mut R,
    rules: Rules,
    plan: Plan<R::Grant>,
    /// Jobs that are to get a reservation, each with its partition, in order. Reservations are placed only when another
    /// job could start.
    owed: Vec<(Candidate<'a, N>, usize)>,
    /// By partition: jobs that must wait and get no reservation, whichever job they are.
    without: BTreeMap<usize, usize>,
    /// Jobs that this pass has started.
    started: BTreeSet<Item>,
    /// Number of tasks that this pass has started of each array with a limit on running tasks.
    groups: BTreeMap<JobId, u32>,
}

impl<'a, N, R: Room<Need = N>> Pass<'a, '_, N, R> {
    /// Starts a job, or as many tasks of an array as may start. Error: it has to wait for resources, and so do equal
    /// requests with a time limit above this span.
    fn consider(&mut self, job: &Candidate<'a, N>, partition: usize, blocked: bool) -> Result<(), Span> {
        if self.started.contains(&job.item) || !self.room.reconsider(job) {
            return Ok(());
        }
        self.plan.looked_at += 1;
        self.plan.behind += u64::from(blocked);
        for _ in 0..job.copies {
            let started = job.group.map(|group| self.groups.get(&group.id).copied().unwrap_or_default());
            if job.group.zip(started).is_some_and(|(group, started)| started >= group.room) {
                return Ok(());
            }
            if blocked || !self.owed.is_empty() {
                match self.room.could(job, partition) {
                    Ok(()) => {
                        self.plan.tried += u64::from(blocked);
                        self.pay();
                    }
                    Err(longest) if blocked => return Err(longest),
                    Err(_) => {}
                }
            }
            let started = match self.room.start(job, partition) {
                // Jobs are not suspended for one behind a pending job.
                Err(Blocked::Busy(longest)) if !blocked && self.room.may_cover(partition) => {
                    self.pay();
                    self.room.cover(job, partition).ok_or(Blocked::Busy(longest))
                }
                started => started,
            };
            match started {
                Ok(given) => {
                    self.plan.backfilled += u64::from(blocked);
                    self.plan.starts.push(Start { item: job.item, partition, given });
                }
                Err(Blocked::Busy(longest)) => return Err(longest),
                Err(Blocked::Never(reason)) => {
                    self.plan.skips.push(Skip { item: job.item, partition, reason });
                    return Ok(());
                }
            }
            if let Some(group) = job.group {
                *self.groups.entry(group.id).or_default() += 1;
            }
            self.started.insert(job.item);
        }
        Ok(())
    }

    /// Handles a job that must wait. `behind`: number of jobs before it that must wait, too.
    fn wait(&mut self, job: Candidate<'a, N>, partition: usize, behind: usize) {
        if behind == 0 {
            self.plan.heads.push(Head { item: job.item, partition });
            if self.make_room(&job, partition) {
                return;
            }
        }
        let without = self.without.entry(partition).or_default();
        let behind = behind.saturating_sub(*without);
        if !job.reserves {
            *without += 1;
            return;
        }
        let first = behind == 0;
        let owed = match self.rules.discipline {
            Discipline::Fifo => false,
            Discipline::Easy | Discipline::EasyShortest => first,
            Discipline::Conservative => behind < self.rules.kept,
        };
        if owed {
            self.owed.push((job, partition));
        }
        // A promise is renewed before the next one is returned, so none gets later.
        if self.rules.discipline == Discipline::Conservative {
            self.pay();
        }
    }

    /// Preempts running jobs for a pending one. Returns whether resources are reserved for it.
    fn make_room(&mut self, job: &Candidate<'a, N>, partition: usize) -> bool {
        // Reservations for jobs of higher tiers are made before, since a job that they keep from starting would preempt
        // others in vain, again and again.
        if !self.owed.is_empty() && self.room.may_preempt(job, partition) {
            self.pay();
        }
        let Plan { evictions, reserved, .. } = &mut self.plan;
        // Jobs are being preempted for it in another partition already.
        if evictions.iter().any(|eviction| eviction.by == job.item) {
            return true;
        }
        let Some(Cleared { time, grant, victims }) = self.room.make_room(job, partition) else { return false };
        for victim in victims {
            if evictions.iter().all(|eviction| eviction.victim != victim) {
                evictions.push(Eviction { victim, by: job.item });
            }
        }
        reserved.push(Reserved { item: job.item, partition, time, given: grant });
        true
    }

    /// Places the reservations for the jobs in `owed`, in order.
    fn pay(&mut self) {
        for (job, partition) in self.owed.drain(..) {
            if let Some((time, given)) = self.room.reserve(&job, partition) {
                self.plan.reserved.push(Reserved { item: job.item, partition, time, given });
            }
        }
    }
}
