//! One pass over what waits: who starts now, who has to wait, and for whom room is kept meanwhile.
//!
//! The policies differ in one number: how many of those that wait have room kept for them. With none, nobody may pass
//! the first that waits (first in, first out); with one, others may if they do not delay it (EASY); with all, each has
//! its start promised (conservative). Where jobs run and how long is the room's business: a cluster, or a mere number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::IntoIter;

use squall_model::id::JobId;
use squall_model::job::PendingReason;
use squall_model::time::{Span, Time};

use crate::preempt::Eviction;
use crate::view::{Candidate, Head, Item, Lanes, Plan, Queues, Reserved, Skip, Start};

/// Who may pass whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Nobody passes the first that waits in its partition.
    Fifo,
    /// Who does not delay the first that waits in its partition passes it.
    #[default]
    Easy,
    /// The same; of those behind the first the shortest are tried first.
    EasyShortest,
    /// Who delays none of the first [`Rules::kept`] passes them.
    Conservative,
}

/// How a pass goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who may pass whom.
    pub discipline: Discipline,
    /// How many jobs behind the first that waits are looked at in each partition.
    pub depth: usize,
    /// How many of those that wait in each partition have room kept for them, if it is more than the first.
    pub kept: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { discipline: Discipline::Easy, depth: usize::MAX, kept: usize::MAX }
    }
}

/// Where jobs find room.
pub trait Room {
    /// What a job asks for.
    type Need;
    /// What a job gets.
    type Grant;
    /// Whether to look at a job again. If so, the room that was promised to it is given back first.
    fn reconsider(&mut self, _job: &Candidate<'_, Self::Need>) -> bool {
        true
    }
    /// Whether a job could start now if no room were kept for anybody. May say yes too often. If not: who asks for the
    /// same could not either if it may run longer than that.
    fn could(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Result<(), Span>;
    /// Starts a job now, if room that is kept for others stays free.
    fn start(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Result<Self::Grant, Blocked>;
    /// Whether jobs of a partition may have others stopped.
    fn may_cover(&self, _partition: usize) -> bool {
        false
    }
    /// Starts a job now on cores of running jobs, which are stopped meanwhile.
    fn cover(&mut self, _job: &Candidate<'_, Self::Need>, _partition: usize) -> Option<Self::Grant> {
        None
    }
    /// Keeps room for a job from the earliest time on at which there is enough for as long as it may run.
    fn reserve(&mut self, job: &Candidate<'_, Self::Need>, partition: usize) -> Option<(Time, Self::Grant)>;
    /// Has running jobs make room for a job, if they may be asked and that helps, and keeps that room for it.
    fn make_room(&mut self, _job: &Candidate<'_, Self::Need>, _partition: usize) -> Option<Cleared<Self::Grant>> {
        None
    }
    /// Nothing more starts in a partition, nor on its nodes in partitions of a lower tier.
    fn withhold(&mut self, partition: usize);
}

/// Room that others make for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared<G> {
    /// When it starts if they go soon.
    pub time: Time,
    /// What it gets.
    pub grant: G,
    /// Who is to go. None: it is enough to wait for those who go already.
    pub victims: Vec<JobId>,
}

/// Why a job does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Others have what it needs. Who asks for the same finds no room either if it may run longer than that.
    Busy(Span),
    /// It can't start as the cluster is now, whatever ends.
    Never(PendingReason),
}

/// What starts now, and for whom room is kept. Costs what it starts and skips, the first job that waits in each partition,
/// and one look at each lane behind it.
pub fn plan<Q: Queues, R: Room<Need = Q::Need>>(queues: &Q, room: &mut R, rules: Rules) -> Plan<R::Grant> {
    let mut pass = Pass {
        room,
        rules,
        plan: Plan::default(),
        owed: Vec::new(),
        started: BTreeSet::new(),
        groups: BTreeMap::new(),
    };
    let mut lines: Vec<_> = (0..queues.partition_count())
        .filter_map(|at| Some(Line::new(at, queues.tier(at)?, queues.queue(at))))
        .collect();
    loop {
        // The next job over all partitions; few partitions, so a look at each is cheap.
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

/// What waits in one partition.
struct Line<'a, N, L> {
    partition: usize,
    tier: u32,
    queue: L,
    /// Taken from the queue, not considered yet.
    front: Option<Candidate<'a, N>>,
    /// What is left of the queue, in another order.
    sorted: Option<IntoIter<Candidate<'a, N>>>,
    /// Some job waits.
    blocked: bool,
    /// How many more were looked at since in vain.
    tests: usize,
}

impl<'a, N, L: Lanes<Candidate<'a, N>>> Line<'a, N, L> {
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
    /// The job that was taken last has to wait, and so do others.
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

/// A pass under way.
struct Pass<'a, 'r, N, R: Room<Need = N>> {
    room: &'r mut R,
    rules: Rules,
    plan: Plan<R::Grant>,
    /// Who is to have room kept, in order; nobody has to know where before somebody else could start.
    owed: Vec<(Candidate<'a, N>, usize)>,
    /// Jobs that have started.
    started: BTreeSet<Item>,
    /// Starts by array.
    groups: BTreeMap<JobId, u32>,
}

impl<'a, N, R: Room<Need = N>> Pass<'a, '_, N, R> {
    /// Starts one candidate as often as may be. If it waits for resources: so does who asks for the same and may run
    /// longer than that.
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
                // Nobody has others stopped behind one that waits.
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

    /// A job has to wait, behind so many.
    fn wait(&mut self, job: Candidate<'a, N>, partition: usize, behind: usize) {
        let first = behind == 0;
        if first {
            self.plan.heads.push(Head { item: job.item, partition });
            if self.make_room(&job, partition) {
                return;
            }
        }
        let owed = match self.rules.discipline {
            Discipline::Fifo => false,
            Discipline::Easy | Discipline::EasyShortest => first,
            Discipline::Conservative => behind < self.rules.kept,
        };
        if owed {
            self.owed.push((job, partition));
        }
        // A promise is renewed before the next one is given back: so none becomes worse.
        if self.rules.discipline == Discipline::Conservative {
            self.pay();
        }
    }

    /// Asks running jobs to go for one that waits. True: room is kept for it.
    fn make_room(&mut self, job: &Candidate<'a, N>, partition: usize) -> bool {
        let Plan { evictions, reserved, .. } = &mut self.plan;
        // In another partition room is made for it already.
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

    /// Keeps room for those to whom it is owed.
    fn pay(&mut self) {
        for (job, partition) in self.owed.drain(..) {
            if let Some((time, given)) = self.room.reserve(&job, partition) {
                self.plan.reserved.push(Reserved { item: job.item, partition, time, given });
            }
        }
    }
}
