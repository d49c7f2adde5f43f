//! Effects of the state: messages to nodes, answers to clients, and events that follow from time and reports.

pub(crate) mod answers;
pub(crate) mod billing;
pub(crate) mod broadcasts;
pub(crate) mod cast;
pub(crate) mod checkpoint;
pub(crate) mod faults;
pub(crate) mod feed;
pub(crate) mod fence;
pub(crate) mod foreign;
pub(crate) mod gang;
pub(crate) mod het;
pub(crate) mod lease;
pub(crate) mod losses;
pub(crate) mod members;
pub(crate) mod nodes;
pub(crate) mod notice;
pub(crate) mod periodic;
pub(crate) mod power;
pub(crate) mod preempt;
pub(crate) mod programs;
pub(crate) mod queries;
pub(crate) mod reboot;
pub(crate) mod replace;
pub(crate) mod reserve;
pub(crate) mod restart;
pub(crate) mod resume;
pub(crate) mod shutdown;
pub(crate) mod signals;
pub(crate) mod spares;
pub(crate) mod steps;
pub(crate) mod wall;
pub(crate) mod work;

use crate::control::controller::Observer;
use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::{Epoch, JobId, NodeId};
use squall_model::time::{Span, Time};

use crate::control::controller::Controller;
use crate::control::effects::queries::answer_when_heeded;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::reading::keep_used;
use crate::invariant::invariant;

/// Seconds between checks for ended jobs with a record that is old enough to be removed.
const FORGET_S: u64 = 10;

/// Seconds after the start of a controller in which no record is removed, whatever `MinJobAge` says: clients repeat what
/// was not answered before, and a submission is recognised by its job's record.
const REPEAT_S: u64 = 60;

/// Seconds after a start of the controller at which warnings before time limits are repeated, if they were due before.
const WARN_AGAIN_S: u64 = 5;

/// Most scheduling passes in a turn that preempt jobs. Two jobs that start and end each other would otherwise hold up
/// everything else.
const PREEMPTING_PASSES_MAX: u32 = 1000;

/// Pause after a turn with so many passes.
const PASS_PAUSE: Span = Span::from_secs(1);

/// The pairs of functions that keep soft state up to date, run at each event in this order.
pub(crate) const OBSERVERS: &[Observer] = &[
    Observer { before: Some(gang::before), after: Some(gang::after) },
    Observer { before: Some(notice::before), after: Some(notice::after) },
    Observer { before: Some(lease::before), after: Some(lease::after) },
    Observer { before: None, after: Some(het::after) },
    Observer { before: None, after: Some(losses::after) },
    Observer { before: None, after: Some(feed::after) },
];

/// Begins a new run of the controller: raises the epoch, journals a changed configuration, and builds soft state from
/// the journaled state.
pub(crate) fn start(c: &mut Controller, now: Time, config: Config, version: String, host: String, out: &mut Out) {
    c.host = host;
    *c.here = Config::default().with_here_of(&config);
    c.version.clone_from(&version);
    c.diag.since = now;
    c.forget_checked = now + Span::from_secs(REPEAT_S);
    c.feed.started(now);
    // An empty state lacks nothing.
    let lost = c.restores.take().filter(|_| c.state.epoch > Epoch(0));
    let epoch = next_epoch(c.state.epoch, now, lost.is_some());
    let founds = c.state.epoch == Epoch(0);
    c.commit(now, Event::ControllerStarted { epoch, version }, out);
    if founds && c.speaks > c.state.cluster_version {
        c.commit(now, Event::VersionRaised { to: c.speaks, by: 0 }, out);
    }
    c.links.begin(epoch);
    if let Some(lost) = lost {
        let last = c.state.passed_over(now, lost);
        c.commit(now, Event::Restored { last }, out);
        nodes::trust_again(c, now, out);
    }
    let mut config = config;
    config.have_a_partition();
    keep_used(&c.state, &mut config);
    if *c.state.config != config || c.state.partitions.is_empty() {
        c.commit(now, Event::Configured { config: Arc::new(config) }, out);
    } else {
        notice::cluster_changed(c, now);
    }
    let unfinished = c.state.jobs.iter().filter(|(_, job)| !job.is_ended());
    let active = unfinished.filter(|(_, job)| !job.is_pending() || job.spec.kind.is_owned());
    let active: Vec<(JobId, bool)> = active.map(|(&id, job)| (id, job.spec.kind.is_owned())).collect();
    for &(id, owned) in &active {
        // A warning may or may not have been sent before a crash. It is repeated when nodes have had time to come back,
        // as twice is better than never.
        notice::arm_limit(c, Time(0), id);
        if c.timers.time(Timer::Warn(id)).is_some_and(|warn| warn < now) {
            c.timers.set(Timer::Warn(id), now + Span::from_secs(WARN_AGAIN_S));
        }
        if owned && c.state.jobs.get(&id).is_none_or(|job| job.outcome().is_none()) {
            work::await_owner(c, now, id);
        }
    }
    c.leases.rebuild(&c.state);
    reserve::arm(c, now);
    preempt::again(c, now);
    nodes::watch_all(c, now);
    reboot::started(c, now);
    resume::arm(c, (0..c.state.nodes.len() as u32).map(NodeId));
    power::started(c, now, out);
    members::started(c);
    gang::started(c);
    steps::started(c, now, active.iter().map(|(id, _)| *id));
    for (id, _) in &active {
        programs::changed(c, *id);
        replace::changed(c, *id);
    }
}

/// Returns the epoch of a run that begins. Epochs are counted. A state that lacks its end (`lost`) can't count on: the
/// same number may have been another run's, and nodes and ciphers rely on it. So it takes the time, in microseconds,
/// which no run before it can have had: each began earlier, and was counted on from its own beginning.
fn next_epoch(before: Epoch, now: Time, lost: bool) -> Epoch {
    let next = before.0.saturating_add(1);
    Epoch(if lost { next.max(now.0) } else { next })
}

/// Runs the effects that follow from the state and inputs since the last call. Called after every input.
#[inline(never)]
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    if c.state.epoch == Epoch(0) {
        return;
    }
    nodes::doubt_itself(c, now);
    while let Some(timer) = c.timers.pop(now) {
        work::fire(c, now, timer, out);
    }
    steps::timers(c, now);
    nodes::drop_silent_children(c, now, out);
    broadcasts::settle(c, now);
    answers::settle(c, now, out);
    let mut preempting = 0;
    loop {
        power::settle(c, now, out);
        het::settle(c, now, out);
        if !c.todo.again.is_empty() {
            restart::settle(c, now, out);
        }
        work::enter_all(c, now, out);
        while let Some(node) = c.todo.condemned.pop_first() {
            nodes::condemn(c, now, node, out);
        }
        if !c.queue.dirty.is_empty() || !c.todo.hets.is_empty() {
            continue;
        }
        if !c.disk_full && std::mem::take(&mut c.queue.kick) && c.leaving.is_none() {
            if !c.vacant.is_empty() {
                replace::fill(c, now, out);
            }
            spares::keep(c, now, out);
            if preempting < PREEMPTING_PASSES_MAX {
                preempting += u32::from(work::schedule(c, now, out));
                continue;
            }
            invariant!("no two jobs start and preempt each other for ever");
            c.timers.set(Timer::Pass, now + PASS_PAUSE);
        }
        if !c.disk_full && c.leaving.is_none() {
            reserve::replenish(c, now, out);
        }
        lease::grant(c, now, out);
        if c.queue.kick && !c.disk_full && c.leaving.is_none() {
            continue;
        }
        gang::pack(c, now, out);
        let Some(job) = c.todo.touched.pop_first() else {
            if power::is_due(c) {
                continue;
            }
            break;
        };
        work::tell(c, job, out);
        steps::settle(c, now, job, out);
        foreign::touched(c, now, job);
    }
    // After the answers to clients, as a job's record may be old enough for removal when the last node releases the
    // job.
    forget(c, now, out);
    foreign::settle(c, now, out);
    reboot::settle(c, now, out);
    members::settle(c, now, out);
    programs::settle(c, out);
    work::send_starts(c);
    work::send_ends(c);
    work::send_leaves(c);
    work::send_stops(c);
    answer_when_heeded(c, now);
    gang::settle(c, now);
    feed::settle(c, now, out);
    shutdown::proceed(c, now, out);
    c.links.flush(now, out);
    c.queries.due = answers::deadline(c);
}

/// Returns when [`settle`] must be called again, even if no input comes before; None: nothing is due.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    let first = c.state.index.ended.first().into_iter().chain(c.state.index.ended_arrays.first());
    let first = first.map(|(time, _)| *time).min();
    let old = first.map(|time| time + Span::from_secs(c.state.config.min_job_age_s));
    let forget = old.map(|time| time.max(c.forget_checked + Span::from_secs(FORGET_S)));
    let (bulk, strobe) = (broadcasts::deadline(c), gang::deadline(c));
    let foreign = foreign::deadline(c);
    let queries = [answers::deadline(c), c.feed.due()];
    let all = [foreign, c.timers.next(), forget, steps::deadline(c), c.links.deadline(), bulk, strobe];
    all.into_iter().chain(queries).flatten().min()
}

/// Removes the records of jobs that ended longer ago than `MinJobAge`; checks every `FORGET_S` seconds.
fn forget(c: &mut Controller, now: Time, out: &mut Out) {
    if now < c.forget_checked + Span::from_secs(FORGET_S) {
        return;
    }
    c.forget_checked = now;
    let ended_before = now - Span::from_secs(c.state.config.min_job_age_s);
    let index = &c.state.index;
    let old = |set: &BTreeSet<(Time, JobId)>| {
        let mut old = set.range(..(ended_before, JobId(0)));
        old.any(|(_, id)| !index.wanted.contains_key(id))
    };
    if old(&index.ended) || old(&index.ended_arrays) {
        c.commit(now, Event::Forgotten { ended_before }, out);
    }
}
