//! Expected starts of pending jobs, under the assumption that running jobs use their whole time limits and no job is
//! submitted.

use std::cmp::Reverse;
use std::sync::Arc;

use squall_model::config::SchedulerType;
use squall_model::job::{JobSpec, Owner};
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Alloc;
use squall_model::time::{Span, Time};
use squall_sched::topology::Wish;
use squall_sched::{Candidate, Discipline, Given, Item, Lanes, Nodes, Queues, Request, Reserved, Room, Rules, Scratch};

use crate::control::controller::Controller;
use crate::control::index::network;
use crate::control::index::pending::{Pending, partitions_of};
use crate::control::index::reckon::Standee;
use crate::control::index::view::Sight;
use crate::control::index::{lanes::request_of, ordered::Ordered};

/// Maximum number of jobs in each partition for which the start is forecast.
const JOBS_MAX: usize = 200;

/// Limit on the work of a forecast for one job, as jobs ahead of it times nodes, so that a forecast delays the
/// controller for a second at most.
const WORK_MAX: usize = 500_000;
/// Number of jobs ahead that a forecast may consider even if `WORK_MAX` allows fewer.
const AHEAD_MIN: usize = 16;

/// Rules of the scheduling pass that makes a forecast: resources are reserved for each job, in order.
const RULES: Rules = Rules { discipline: Discipline::Conservative, depth: JOBS_MAX, kept: JOBS_MAX };

/// Returns when and where pending jobs are expected to start, at most `JOBS_MAX` in each partition.
pub(crate) fn starts(c: &mut Controller, now: Time) -> Vec<Reserved> {
    c.queue.look_around(&c.state, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut room = Nodes::new(&sight, &mut c.scratch, now, Span(u64::MAX));
    promised(&sight, &mut room)
}

/// Returns when, in which partition and where a job would start if it were submitted now, behind all others. None:
/// never.
pub(crate) fn trial(c: &mut Controller, now: Time, owner: &Owner, spec: &JobSpec) -> Option<(Time, usize, Alloc)> {
    let need = request_of(&c.state, spec)?;
    c.queue.look_around(&c.state, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut room = Nodes::new(&sight, &mut c.scratch, now, Span(u64::MAX));
    promised(&sight, &mut room);
    let item = Item { id: c.state.next_id(), array: false };
    let patience = network::patience_s(&c.state, spec).map(|seconds| now + Span::from_secs(seconds));
    let wish = Wish { patience, ..need.wish };
    let user = c.queue.user(owner);
    let job = Candidate { time_limit_s: spec.limit_s(), wish, user, ..single(item, &need) };
    let mut best: Option<(Time, usize, Alloc)> = None;
    for at in partitions_of(&c.state, spec) {
        let sooner_than = best.as_ref().map(|best| best.0);
        if let Some((time, given)) = room.foresee(&job, at, sooner_than) {
            best = Some((time.max(spec.begin.unwrap_or(now)), at, given.alloc));
        }
    }
    best
}

/// Reserves resources for all pending jobs: first for those in the queues, then for those that lack licenses, which are
/// in no queue.
fn promised(sight: &Sight<'_>, room: &mut Nodes<'_, Sight<'_>>) -> Vec<Reserved> {
    let mut reserved = squall_sched::plan(sight, room, RULES).reserved;
    for pending in sight.queue.starved(sight.state).into_iter().take(JOBS_MAX) {
        reserved.extend(keep(sight, room, &pending));
    }
    reserved
}

/// Reserves resources for a job that is in no queue, in each of its partitions.
fn keep(sight: &Sight<'_>, room: &mut Nodes<'_, Sight<'_>>, pending: &Pending<'_>) -> Vec<Reserved> {
    let state = sight.state;
    let Some(need) = request_of(state, pending.spec) else { return Vec::new() };
    let open = partitions_of(state, pending.spec).filter(|&at| state.partitions[at].starts_jobs());
    let kept = open.filter_map(|partition| {
        let job = candidate(sight, pending, (&need, pending.limit_s()), partition);
        let (time, given) = room.reserve(&job, partition)?;
        Some(Reserved { item: job.item, partition, time, given })
    });
    kept.collect()
}

/// Returns a pending job as the scheduling policy sees it in the partition at position `at`, with the given request and
/// time limit.
pub(crate) fn candidate<'a>(
    sight: &Sight<'a>,
    pending: &Pending<'_>,
    (need, limit_s): (&'a Request, Option<u64>),
    at: usize,
) -> Candidate<'a> {
    let Sight { state, queue, .. } = *sight;
    Candidate {
        priority: queue.reckoning.key(state, &Standee::of(pending), at),
        time_limit_s: limit_s.map(|limit| (limit != UNLIMITED_S).then_some(limit)),
        wish: queue.wish(state, pending),
        group: pending.group(state),
        avoid: if pending.item.array { None } else { state.index.avoid.get(&pending.item.id) },
        alone: pending.het.is_some(),
        others: if pending.het.is_some() { queue.others(pending.item.id) } else { &[] },
        user: queue.user(pending.owner),
        reserves: true,
        ..single(pending.item, need)
    }
}

/// A request of a pending job, changed or not, for which its start is forecast.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// The job's specification with the change.
    pub(crate) spec: Arc<JobSpec>,
    /// The job's time limit with the change, seconds. None: the partition's default; `UNLIMITED_S`: no limit.
    pub(crate) limit_s: Option<u64>,
}

/// Forecasts when and where a job would start in a partition with each of the variants of its request, behind the jobs
/// ahead of it. All variants but the first get a result only if it is sooner than that of the first, and than
/// `sooner_than`. With too many jobs ahead only starts possible now are returned.
pub(crate) fn behind(
    sight: &Sight<'_>,
    scratch: &mut Scratch,
    pending: &Pending<'_>,
    (at, variants, sooner_than): (usize, &[Variant], Option<Time>),
) -> Vec<Option<(Time, Given)>> {
    let Sight { state, queue, now } = *sight;
    let priority = queue.reckoning.key(state, &Standee::of(pending), at);
    let rank = (Reverse(sight.tier(at).unwrap_or_default()), Reverse(priority), pending.item);
    let starved = queue.starved(state);
    let place = starved.iter().position(|other| other.item == pending.item);
    let before = if place.is_some() { None } else { Some(rank) };
    let ahead = Ahead { sight: *sight, before, own: pending.item };
    let most = (WORK_MAX / state.nodes.len().max(1)).clamp(AHEAD_MIN, JOBS_MAX);
    let deep = ahead.queue(at).nth(most).is_some() || place.is_some_and(|place| place > most);
    let mut room = Nodes::new(sight, scratch, now, Span(u64::MAX));
    let rules = if deep { Rules { discipline: Discipline::Easy, ..RULES } } else { RULES };
    let mut kept = squall_sched::plan(&ahead, &mut room, rules).reserved;
    for other in starved.iter().take(place.filter(|_| !deep).unwrap_or_default()) {
        kept.extend(keep(sight, &mut room, other));
    }
    // With `sched/builtin` no job starts before one ahead of it.
    let strict = state.config.scheduler_type == SchedulerType::Builtin;
    let last = kept.iter().filter(|other| strict && other.partition == at).map(|other| other.time).max();
    let mut best = if deep { Some(now + Span(1)) } else { sooner_than };
    let mut when = |first: bool, variant: &Variant| {
        let need = request_of(state, &variant.spec)?;
        let pending = Pending { spec: &variant.spec, ..*pending };
        let unlimited = state.policy.is_empty() || pending.broken(state).is_none();
        let job = candidate(sight, &pending, (&need, variant.limit_s), at);
        let limit = best.filter(|_| deep || !first);
        let (time, given) = room.foresee(&job, at, limit).filter(|_| unlimited)?;
        let time = last.map_or(time, |last| time.max(last));
        if first {
            best = best.into_iter().chain([time]).min();
        }
        (first || best.is_none_or(|best| time < best)).then_some((time, given))
    };
    variants.iter().enumerate().map(|(number, variant)| when(number == 0, variant)).collect()
}

/// Position of a job over the queues of all partitions: tier, sort key, job or array.
type Rank = (Reverse<u32>, Reverse<u64>, Item);

/// The queues of all partitions without the jobs behind a position, and without the job `own`. `before` None: with all
/// jobs.
struct Ahead<'a> {
    sight: Sight<'a>,
    before: Option<Rank>,
    own: Item,
}

impl Queues for Ahead<'_> {
    type Need = Request;

    fn partition_count(&self) -> usize {
        self.sight.partition_count()
    }
    fn tier(&self, partition: usize) -> Option<u32> {
        self.sight.tier(partition)
    }
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_>> {
        let tier = self.tier(partition).unwrap_or_default();
        Until { queue: Ordered::new(self.sight, partition), tier, before: self.before, own: self.own, over: false }
    }
}

/// A partition's queue up to the position `before`, without the job `own`.
struct Until<'a> {
    queue: Ordered<'a>,
    tier: u32,
    before: Option<Rank>,
    own: Item,
    over: bool,
}

impl<'a> Iterator for Until<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        let (tier, before) = (self.tier, self.before);
        let ahead =
            |job: &Candidate<'_>| before.is_none_or(|before| (Reverse(tier), Reverse(job.priority), job.item) < before);
        if self.over {
            return None;
        }
        let next = self.queue.by_ref().find(|job| job.item != self.own).filter(ahead);
        self.over = next.is_none();
        next
    }
}

impl<'a> Lanes<Candidate<'a>> for Until<'a> {
    fn close(&mut self, longest: Span) {
        self.queue.close(longest);
    }
}

/// Returns a job that is in no queue as a candidate of the scheduling policy, with nothing set but the request.
fn single(item: Item, need: &Request) -> Candidate<'_> {
    Candidate {
        item,
        priority: 0,
        need,
        time_limit_s: None,
        wish: need.wish,
        copies: 1,
        group: None,
        avoid: None,
        alone: false,
        others: &[],
        user: None,
        reserves: true,
    }
}
