//! Gang scheduling: packs jobs into the Ousterhout matrix when jobs come and go, and tells nodes which job runs in
//! which time slice. A time signal (strobe) synchronizes the time slices of nodes.
//!
//! The current slot is not sent: it follows from the time (`squall_model::gang::slot_at`). The journal has each job's
//! place in the matrix, and how long the job stood still in its place before. A late or lost strobe does no harm: nodes
//! continue with the strobes that they have, also while a controller restarts.

use squall_model::event::Event;
use squall_model::gang::{Coscheduling, STROBE, Shift, Strobe, Turn};
use squall_model::id::{JobId, NodeId};
use squall_model::job::JobAttempt;
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Comparison, Tally, Test, Variable};
use squall_model::wire::node::Down;
use squall_sched::Piece;

use crate::control::controller::Controller;
use crate::control::effects::queries;
use crate::control::net::queries::Purpose;
use crate::control::port::Out;
use crate::control::state::job::Run;

/// Interval at which nodes are asked for their clock skew.
const SKEW: Span = Span::from_secs(10);
/// Timeout of the nodes' answer about their clock skew.
const SKEW_WAIT: Span = Span::from_secs(5);

/// Skew that is tested first: less than this many microseconds.
const SKEW_FIRST_US: u64 = 128;

/// Marks the gang scheduling matrix for packing at the start of the controller.
pub(crate) fn started(c: &mut Controller) {
    c.gang.changed = !c.state.gang.is_empty();
}

/// Gives a job that starts a place in the matrix: the row `slot`.
pub(crate) fn enter(c: &mut Controller, now: Time, id: JobId, slot: u32, out: &mut Out) {
    let turn = Turn { slot, ..Turn::default() };
    c.commit(now, Event::Ganged { shifts: vec![Shift { job: id, turn, idle: Span(0) }] }, out);
    c.todo.turns.insert(id);
    c.gang.changed = true;
}

/// Records how long a job stood still in other jobs' time slices, before the job ends or is suspended.
pub(crate) fn before(c: &mut Controller, now: Time, event: &Event, out: &mut Out) {
    // because other events, and jobs outside the matrix, leave time slices as they are
    let (Event::JobEnding { id, .. } | Event::JobSuspended { id, .. }) = event else { return };
    let Some(place) = c.state.gang.get(id).copied() else { return };
    let idle = c.state.idle_since(*id, now);
    if idle > Span(0) {
        c.commit(now, Event::Ganged { shifts: vec![Shift { job: *id, turn: place.turn, idle }] }, out);
    }
}

/// Marks the gang scheduling matrix for packing if an event may change it.
pub(crate) fn after(c: &mut Controller, _now: Time, event: &Event) {
    let may = match event {
        Event::JobEnding { id, .. } | Event::JobSuspended { id, .. } => c.state.gang.contains_key(id),
        Event::NodesReleased { .. } | Event::PartitionChanged { .. } => !c.state.gang.is_empty(),
        Event::Configured { .. } => {
            // The length of a time slice may have changed.
            c.gang.news.union_with(&c.gang.nodes);
            !c.state.gang.is_empty()
        }
        _ => false,
    };
    c.gang.changed |= may;
}

/// Packs the gang scheduling matrix if it may have changed, and records the jobs with a new place in it.
pub(crate) fn pack(c: &mut Controller, now: Time, out: &mut Out) {
    if !std::mem::take(&mut c.gang.changed) {
        return;
    }
    let ranked = c.state.is_ranked();
    let places = c.state.gang.iter().filter_map(|(&id, place)| {
        let job = c.state.jobs.get(&id)?;
        let run = job.run()?;
        let rank = if ranked { c.state.rank(&run.partition) } else { 0 };
        Some((id, (place.turn.slot, rank), held(run), job.is_running() && run.suspended.is_none()))
    });
    let places: Vec<(JobId, (u32, u32), Alloc, bool)> = places.collect();
    let pieces = places.iter().map(|(job, (slot, rank), alloc, runs)| {
        let (job, slot, rank, runs) = (*job, *slot, *rank, *runs);
        Piece { job, slot, rank, alloc, runs }
    });
    let pieces: Vec<Piece<'_>> = pieces.collect();
    c.gang.nodes = pieces.iter().fold(NodeSet::new(), |mut all, piece| {
        all.union_with(&piece.alloc.nodes());
        all
    });
    let rotate = c.state.config.coscheduling() != Coscheduling::Implicit;
    let turns = squall_sched::turns(&pieces, rotate);
    let shifts = turns.into_iter().filter(|(job, turn)| c.state.gang.get(job).is_some_and(|place| place.turn != *turn));
    let shifts: Vec<Shift> =
        shifts.map(|(job, turn)| Shift { job, turn, idle: c.state.idle_since(job, now) }).collect();
    if !shifts.is_empty() {
        c.diag.gang.changes += 1;
        c.todo.turns.extend(shifts.iter().map(|shift| shift.job));
        c.commit(now, Event::Ganged { shifts }, out);
    }
}

/// Returns the part of an allocation that its nodes have not released.
fn held(run: &Run) -> Alloc {
    let groups = run.alloc.groups.iter().filter_map(|group| {
        let nodes = group.nodes.intersection(&run.left);
        (!nodes.is_empty()).then(|| AllocGroup { nodes, ..group.clone() })
    });
    Alloc { groups: groups.collect() }
}

/// Sends nodes new time slices and the time signals (strobes) that are due, and queries their clock skew.
pub(crate) fn settle(c: &mut Controller, now: Time) {
    tell_turns(c);
    if c.state.gang.is_empty() {
        (c.gang.next_strobe, c.gang.next_skew) = (None, None);
        return;
    }
    let due = *c.gang.next_strobe.get_or_insert(now);
    if due <= now {
        c.gang.next_strobe = Some(now + STROBE);
        c.gang.news = c.gang.nodes.clone();
    }
    let news = std::mem::take(&mut c.gang.news);
    if !news.is_empty() {
        let strobe = strobe(c, now);
        c.links.put(&news, Down::Strobe(strobe));
        c.diag.gang.strobes += 1;
    }
    let due = *c.gang.next_skew.get_or_insert(now + SKEW);
    if due <= now {
        c.gang.next_skew = Some(now + SKEW);
        let to = c.gang.nodes.intersection(c.links.connected());
        if c.gang.skew_asked_us == 0 {
            c.gang.skew_asked_us = SKEW_FIRST_US;
        }
        let value = i64::try_from(c.gang.skew_asked_us).unwrap_or(i64::MAX);
        let test = Test { variable: Variable::Skew, comparison: Comparison::Less, value };
        queries::send(c, now, to, (test, false), SKEW_WAIT, Purpose::Skew);
    }
}

/// Returns when [`settle`] must be called again; None: no jobs share cores.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.gang.next_strobe.into_iter().chain(c.gang.next_skew).min()
}

fn strobe(c: &Controller, now: Time) -> Strobe {
    Strobe { at: now, slice: c.state.config.scheduler_time_slice.0, policy: c.state.config.coscheduling() }
}

/// Sends nodes one message with all time slices that changed in this turn.
fn tell_turns(c: &mut Controller) {
    // because most turns change none
    if c.todo.turns.is_empty() {
        return;
    }
    let jobs = std::mem::take(&mut c.todo.turns);
    let (mut to, mut turns) = (NodeSet::new(), Vec::new());
    for id in jobs {
        // because the job may have ended, or left the matrix, in the same turn
        let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running()) else { continue };
        let (Some(place), Some(run)) = (c.state.gang.get(&id), job.run()) else { continue };
        to.union_with(&run.left);
        turns.push((JobAttempt { job: id, attempt: job.attempt }, place.turn));
    }
    // Jobs that stop come first, so that they stop before others run on their cores.
    turns.sort_by_key(|(_, turn)| turn.active());
    if !turns.is_empty() {
        c.gang.news.union_with(&to);
        c.links.put(&to, Down::Turns(turns));
    }
}

/// Sends a node that has registered the current time and the time slices of its jobs.
pub(crate) fn registered(c: &mut Controller, now: Time, id: NodeId) {
    let jobs = c.state.node(id).map(|node| &node.jobs).into_iter().flatten();
    let turns = jobs.filter_map(|job| {
        let found = c.state.jobs.get(job).filter(|job| job.is_running())?;
        Some((JobAttempt { job: *job, attempt: found.attempt }, c.state.gang.get(job)?.turn))
    });
    let mut turns: Vec<(JobAttempt, Turn)> = turns.collect();
    turns.sort_by_key(|(_, turn)| turn.active());
    if !turns.is_empty() {
        c.links.push(id, Down::Strobe(strobe(c, now)));
        c.links.push(id, Down::Turns(turns));
    }
}

/// Handles the nodes' answer about clock skew. If all nodes were within the tested value, the next question tests half
/// of it. Otherwise it tests more than the worst skew.
pub(crate) fn answered(c: &mut Controller, (to, tally): (&NodeSet, &Tally)) {
    let asked = c.gang.skew_asked_us;
    if tally.no.is_empty() && tally.yes == *to {
        c.diag.gang.skew_us = Some(asked);
        c.diag.gang.worst = None;
        c.gang.skew_asked_us = (asked / 2).max(1);
    } else if let Some((node, value)) = tally.witness {
        let name = c.state.node(node).map(|node| node.name.clone()).unwrap_or_default();
        let value = value.unsigned_abs();
        c.diag.gang.skew_us = None;
        c.diag.gang.worst = Some((name, value));
        c.gang.skew_asked_us = value.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    }
}

/// Updates the figures of gang scheduling for `sdiag`.
pub(crate) fn count(c: &mut Controller) {
    let gang = &mut c.diag.gang;
    gang.policy = c.state.config.coscheduling();
    gang.slice = c.state.config.scheduler_time_slice.0;
    gang.jobs = c.state.gang.len() as u64;
    gang.rows = c.state.gang.values().map(|place| place.turn.of).max().unwrap_or(0);
    gang.nodes = c.gang.nodes.len() as u64;
}
