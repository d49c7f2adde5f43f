//! What is expected: when those that wait start, if what runs takes as long as it may and nobody else comes.

use squall_model::job::JobSpec;
use squall_model::resource::Alloc;
use squall_model::time::{Span, Time};
use squall_sched::{Candidate, Discipline, Item, Nodes, Request, Reserved, Room, Rules};

use super::lanes::request_of;
use super::queue::partitions_of;
use super::view::Sight;
use crate::control::Controller;

/// Of so many jobs in each partition a start is foretold.
const JOBS_MAX: usize = 200;

/// Each has its start promised, in order.
const RULES: Rules = Rules { discipline: Discipline::Conservative, depth: JOBS_MAX, kept: JOBS_MAX };

/// When and where those that wait start.
pub(crate) fn starts(c: &mut Controller, now: Time) -> Vec<Reserved> {
    c.queue.look_at_network(&c.state, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut room = Nodes::new(&sight, &mut c.scratch, now, Span(u64::MAX));
    promised(&sight, &mut room)
}

/// When, in which partition and where a job would start if it were submitted now, behind all others. None: never.
pub(crate) fn trial(c: &mut Controller, now: Time, spec: &JobSpec) -> Option<(Time, usize, Alloc)> {
    let need = request_of(&c.state, spec)?;
    c.queue.look_at_network(&c.state, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut room = Nodes::new(&sight, &mut c.scratch, now, Span(u64::MAX));
    promised(&sight, &mut room);
    let item = Item { id: c.state.next_id(), array: false };
    let job = Candidate { time_limit_s: spec.limit_s(), ..single(item, &need) };
    let mut best: Option<(Time, usize, Alloc)> = None;
    for at in partitions_of(&c.state, spec) {
        let found = match room.start(&job, at) {
            Ok(given) => Some((now, given)),
            Err(_) => room.reserve(&job, at),
        };
        if let Some((time, given)) = found.filter(|(time, _)| best.as_ref().is_none_or(|best| *time < best.0)) {
            best = Some((time.max(spec.begin.unwrap_or(now)), at, given.alloc));
        }
    }
    best
}

/// Room for all that wait: for those in the queues, and behind them for those who wait for licenses, who stand in none.
/// No start is foretold of heterogeneous jobs among these.
fn promised(sight: &Sight<'_>, room: &mut Nodes<'_, Sight<'_>>) -> Vec<Reserved> {
    let mut reserved = squall_sched::plan(sight, room, RULES).reserved;
    let Sight { state, queue, .. } = *sight;
    let starved = queue.starved(state).into_iter().filter(|pending| pending.het.is_none());
    for pending in starved.take(JOBS_MAX) {
        let Some(need) = request_of(state, pending.spec) else { continue };
        let time_limit_s = pending.standing.time_limit_s.or(pending.spec.limit_s());
        let job = Candidate { time_limit_s, wish: queue.wish(state, &pending), ..single(pending.item, &need) };
        for partition in partitions_of(state, pending.spec).filter(|&at| state.partitions[at].starts_jobs()) {
            let found = room.reserve(&job, partition);
            reserved.extend(found.map(|(time, given)| Reserved { item: job.item, partition, time, given }));
        }
    }
    reserved
}

/// A job that stands in no queue.
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
    }
}
