//! Reports of nodes: ends of steps and jobs, failed launches. Handled once and in order, and acknowledged when durable.

use std::collections::BTreeMap;

use squall_model::event::{Event, Requeue};
use squall_model::fault::FaultKind;
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, Outcome, Usage};
use squall_model::limits::REPORTS_PER_FRAME_MAX;
use squall_model::report::StepEnd;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Composite, LaunchFailure, Letter, Route, UpFrame, Upward};

use crate::control::controller::Controller;
use crate::control::decide::newer;
use crate::control::decide::notes;
use crate::control::decide::register::register;
use crate::control::effects::answers;
use crate::control::effects::checkpoint;
use crate::control::effects::faults;
use crate::control::effects::fence;
use crate::control::effects::lease;
use crate::control::effects::losses;
use crate::control::effects::nodes;
use crate::control::effects::nodes::Loss;
use crate::control::effects::notice;
use crate::control::effects::preempt;
use crate::control::effects::steps;
use crate::control::index::facts;
use crate::control::index::leases::line_of;
use crate::control::port::{LinkId, Out};
use crate::control::state::job::{Phase, Run, Step};
use crate::control::state::reading::is_by_itself;
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Launches of a node that fail within this time count as one failure.
const FAILURES_APART: Span = Span::from_secs(10);

/// Base of the delay before a failed launch is tried again, seconds. It doubles with each failure: 2 s after the first,
/// at most 64 s. Such a job is never held, because the node was at fault: when a full disk is freed, no job must stay
/// behind.
const LAUNCH_RETRY_S: u64 = 1;
/// Seconds by which a node's clock may be ahead before its times are corrected.
const CLOCK_SLACK_S: u64 = 1;
/// Maximum number of times that the delay `LAUNCH_RETRY_S` is doubled.
const LAUNCH_DOUBLINGS: u32 = 6;

/// Handles a frame that a child in the tree of node daemons sent.
pub(crate) fn frame(c: &mut Controller, now: Time, link: LinkId, mut frame: UpFrame, out: &mut Out) {
    match c.links.next(now, link, &frame) {
        Some(true) => {}
        // because a frame may come twice
        Some(false) => return,
        None => {
            out.drops.push(link);
            return nodes::child_closed(c, link);
        }
    }
    if let Some(keyed) = c.links.keyed(link) {
        keyed.confine(&c.state, &mut frame);
    }
    for say in frame.says {
        match say {
            Upward::Composite { batch, composite } => {
                c.diag.fabric.window(composite.reports);
                c.diag.fabric.waited_max_us = c.diag.fabric.waited_max_us.max(composite.waited_us);
                if composite.reports > 1 {
                    c.diag.fabric.composites += 1;
                    let sum = &mut c.diag.fabric.composite_reports;
                    *sum = sum.saturating_add(composite.reports);
                }
                take(c, now, link, *composite, out);
                c.links.taken(link, batch);
            }
            // Relayed messages go to step daemons; none is addressed to the controller.
            Upward::Chunk(_) => {}
            Upward::Letter(letter) => relay(c, letter),
            Upward::Tally { epoch, number, tally } => answers::tally(c, now, link, (epoch, number), &tally, out),
        }
    }
}

/// Passes a message between step daemons on, if both nodes have the step's job, or a component of it. Others would only fill
/// queues.
fn relay(c: &mut Controller, letter: Box<Letter>) {
    let job = letter.step.job;
    let components: Vec<JobId> = c.state.het_of(job).map_or_else(|| vec![job], |het| het.ids().collect());
    let has = |node| components.iter().any(|id| c.state.node(node).is_some_and(|node| node.jobs.contains(id)));
    if has(letter.sender) && has(letter.to) {
        c.links.letter(letter);
    }
}

/// Handles reports that the tree merged from many nodes. Each report is about something that happens once, so a
/// repeated report changes nothing. All are acknowledged when they are durable.
fn take(c: &mut Controller, now: Time, link: LinkId, composite: Composite, out: &mut Out) {
    for (&node, &session) in &composite.lost {
        if c.links.lost(link, node, session) {
            fence::watch(c, node);
            notice::refresh(c, node);
        }
    }
    // What nodes do not have is acknowledged, so that they forget it, and costs nothing else. Of very much only a part is:
    // they say the rest again.
    let mut strange = 0;
    for (&key, ends) in &composite.ended {
        for (nodes, end) in ends {
            if has(c, nodes, key, &mut strange) {
                step_ended(c, now, nodes, key, end, out);
            } else {
                count_repeats(c, nodes, None);
            }
            if strange <= REPORTS_PER_FRAME_MAX {
                c.links.know_step(key, nodes);
            }
        }
    }
    for (node, failure) in &composite.failed {
        let (nodes, key) = (NodeSet::one(*node), failure.key);
        if has(c, &nodes, key, &mut strange) {
            launch_failed(c, now, *node, failure, out);
        }
        if strange <= REPORTS_PER_FRAME_MAX {
            c.links.know_step(key, &nodes);
        }
    }
    notes::all_noted(c, now, composite.notes.unwrap_or_default(), out);
    for (&job, nodes) in &composite.gone {
        strange += usize::from(held(c, nodes, job).is_none());
        job_gone(c, now, nodes, job, out);
        if strange <= REPORTS_PER_FRAME_MAX {
            c.links.know_job(job, nodes);
        }
    }
    // Only the newest offer to a node counts.
    let knocks: BTreeMap<String, Route> = composite.knocks.into_iter().map(|(route, name)| (name, route)).collect();
    for (name, route) in knocks {
        if !newer::must_come_itself(c, link, &name) {
            c.links.offer(link, route, name);
        }
    }
    for newer in &composite.newer {
        newer::heard_newer(c, now, link, newer, out);
    }
    for said in &composite.registrations {
        register(c, now, said, out);
    }
}

/// Returns whether some of the nodes have the job of a step; otherwise adds one to `strange`.
fn has(c: &Controller, nodes: &NodeSet, key: StepKey, strange: &mut usize) -> bool {
    let has = held(c, nodes, JobAttempt { job: key.job, attempt: key.attempt }).is_some();
    *strange += usize::from(!has);
    has
}

/// Returns those of the given nodes that a job's attempt still holds, with the attempt. None: the attempt holds none of
/// them.
pub(crate) fn held<'a>(c: &'a Controller, nodes: &NodeSet, job: JobAttempt) -> Option<(NodeSet, &'a Run)> {
    let found = c.state.jobs.get(&job.job).filter(|found| found.attempt == job.attempt)?;
    let run = found.run()?;
    let mut held = nodes.clone();
    held.intersect_with(&run.left);
    (!held.is_empty()).then_some((held, run))
}

/// Returns those of the given nodes that have not reported the end of a step. None: there are none.
fn running(c: &Controller, nodes: &NodeSet, key: StepKey) -> Option<NodeSet> {
    let (mut nodes, run) = held(c, nodes, JobAttempt { job: key.job, attempt: key.attempt })?;
    nodes.intersect_with(&run.steps.get(&key.step)?.left);
    (!nodes.is_empty()).then_some(nodes)
}

fn step_ended(c: &mut Controller, now: Time, nodes: &NodeSet, key: StepKey, end: &StepEnd, out: &mut Out) {
    lease::begun(c, now, key, out);
    let fresh = running(c, nodes, key);
    count_repeats(c, nodes, fresh.as_ref());
    // because a report may come twice, or after the step's attempt is over
    let Some(nodes) = fresh else { return };
    if !c.failures.is_empty() {
        c.failures.retain(|node, _| !nodes.contains(*node));
    }
    let StepKey { job, attempt, step } = key;
    let run = c.state.jobs.get(&job).and_then(|job| job.run());
    let known = run.and_then(|run| run.steps.get(&step));
    let on_our_clock = on_our_clock(now, known.map_or(now, |step| step.start), end);
    if let Some(took) = known.and_then(|step| launch_time(step, end)) {
        c.diag.latency.launch.add(took);
    }
    let (cut, of) = (steps::cut(c, key), nodes.clone());
    let is_lost = (end.lost || end.is_fenced()) && !steps::is_ending(c, key);
    if is_lost && c.state.jobs.get(&job).is_some_and(|job| job.is_running()) {
        nodes.iter().for_each(|node| losses::note(c, now, (job, node), (now, Some(&[step])), out));
    }
    c.commit(now, Event::StepNodesEnded { job, attempt, step, nodes: of, end: on_our_clock, cut }, out);
    if step == StepNo::BATCH {
        script_ended(c, now, job, end, out);
    } else if end.note.is_some() || nodes.iter().any(|node| c.state.leaves(job, node)) {
        // Also if the node is replaced before it fails: the step can start again now.
        steps::part_ended(c, key, &nodes, end.exit, out);
    }
}

/// Returns the time from the start message for a step until its first task ran. None: the node's clock is behind, the
/// start is not known, or another node of the step has reported before.
fn launch_time(step: &Step, end: &StepEnd) -> Option<Span> {
    let known = step.tally.is_none() && !end.lost && end.started >= step.start;
    known.then(|| end.started.since(step.start))
}

/// Converts the end of a step that was started at `start` to the controller's clock. If the node's clock differs, the
/// step's duration is kept. Of the usage over time no more is stored than a step may have, whatever the node says.
fn on_our_clock(now: Time, start: Time, end: &StepEnd) -> StepEnd {
    let end = &StepEnd { series: end.series.as_ref().and_then(|series| series.accepted()), ..end.clone() };
    if (start..=now + Span::from_secs(CLOCK_SLACK_S)).contains(&end.ended) {
        return end.clone();
    }
    let took = end.ended.since(end.started);
    let ended = (start + took).min(now);
    StepEnd { started: ended - took, ended, ..end.clone() }
}

/// Ends a job after its script has ended, even if steps still run. If the script ended by itself, a requeue that was
/// decided before is dropped.
fn script_ended(c: &mut Controller, now: Time, id: JobId, end: &StepEnd, out: &mut Out) {
    if end.damage().is_some_and(|error| checkpoint::damaged(c, now, id, error, out)) {
        return;
    }
    let (outcome, requeue) = match c.state.jobs.get(&id).map(|job| &job.phase) {
        Some(Phase::Running(_)) if end.is_fenced() => {
            let requeues = c.state.jobs.get(&id).is_some_and(|job| may_requeue(&c.state, job));
            (
                end.outcome(),
                requeues.then_some(Requeue { hold: false, not_before: None, special: None, expedite: None }),
            )
        }
        Some(Phase::Running(_)) => by_exit(c, id, end, preempt::judge(c, id, end.outcome())),
        Some(Phase::Completing(_, ending)) if ending.requeue.is_some() && end.is_own() && !is_by_itself(ending) => {
            (end.outcome(), None)
        }
        // because the end of the job may be decided already
        _ => return,
    };
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
}

/// Has a job go back to the queue if the cluster says so of its script's exit code (`RequeueExit`, `RequeueExitHold`).
fn by_exit(c: &Controller, id: JobId, end: &StepEnd, judged: (Outcome, Option<Requeue>)) -> (Outcome, Option<Requeue>) {
    // because most sites have no such list, and a job's end is the busiest path there is
    if c.state.config.requeue_exit.is_empty() && c.state.config.requeue_exit_hold.is_empty() {
        return judged;
    }
    let (code, alone) = (end.exit.code, judged.1.is_none() && end.is_own() && end.exit.signal == 0);
    let hold = c.state.config.requeues_after(code).filter(|_| alone);
    let Some(hold) = hold.filter(|_| c.state.jobs.get(&id).is_some_and(|job| may_requeue(&c.state, job))) else {
        return judged;
    };
    let reason = Some(format!("requeued after exit code {code}"));
    let outcome = Outcome { state: EndState::Requeued, reason, ..judged.0 };
    (outcome, Some(Requeue { hold, not_before: None, special: hold.then_some(true), expedite: None }))
}

fn job_gone(c: &mut Controller, now: Time, nodes: &NodeSet, job: JobAttempt, out: &mut Out) {
    if !c.strays.is_empty() {
        rid_of_strays(c, nodes, job);
    }
    let fresh = held(c, nodes, job).map(|(nodes, _)| nodes);
    count_repeats(c, nodes, fresh.as_ref());
    // because a report may come twice, or after the job's attempt is over
    let Some(nodes) = fresh else { return };
    let line = line_of(&c.state, job.job);
    if c.state.jobs.get(&job.job).is_some_and(|job| job.is_leased()) {
        // A leased job that has begun reports the end of its script before or with this.
        c.commit(now, Event::LeaseReturned { id: job.job, attempt: job.attempt }, out);
    } else {
        let mut left = nodes.clone();
        for node in nodes.iter() {
            let runs =
                c.state.jobs.get(&job.job).is_some_and(|found| found.attempt == job.attempt && found.is_running());
            // The job is gone without an order, and had not given back the node: that has lost it.
            if runs && !c.state.leaves(job.job, node) {
                nodes::give_up(c, now, job.job, node, Loss::Vanished, out);
                left.remove(node);
            }
        }
        if !left.is_empty() {
            nodes::steps_gone(c, now, &left, job, out);
            c.commit(now, Event::NodesReleased { id: job.job, attempt: job.attempt, nodes: left }, out);
        }
    }
    lease::advance(c, now, line, out);
}

/// Counts for `sdiag` the reports that repeat an earlier one of the same node. `fresh` are the nodes that reported for
/// the first time.
fn count_repeats(c: &mut Controller, reported: &NodeSet, fresh: Option<&NodeSet>) {
    c.diag.fabric.repeats += (reported.len() - fresh.map_or(0, NodeSet::len)) as u64;
}

/// Records that nodes have ended an attempt that they should not have run; they can then get new jobs again.
fn rid_of_strays(c: &mut Controller, nodes: &NodeSet, job: JobAttempt) {
    let rid = c.strays.iter_mut().filter(|(node, _)| nodes.contains(**node));
    let rid = rid.filter_map(|(&node, strays)| (strays.remove(&job) && strays.is_empty()).then_some(node));
    for node in rid.collect::<Vec<_>>() {
        c.strays.remove(&node);
        notice::refresh(c, node);
        c.queue.kick = true;
    }
}

fn launch_failed(c: &mut Controller, now: Time, node: NodeId, failure: &LaunchFailure, out: &mut Out) {
    let &LaunchFailure { key, ref error, node_fault } = failure;
    let StepKey { job: id, attempt, step } = key;
    lease::begun(c, now, key, out);
    let fresh = running(c, &NodeSet::one(node), key);
    // because a report may come twice, or after the step's attempt is over
    if fresh.is_none() && !keeps(c, node, key) {
        return;
    }
    let exit = ExitCode { code: 1, signal: 0 };
    let note = Some(error.clone());
    if let Some(nodes) = fresh {
        let (usage, oom, lost) = (Usage::default(), false, false);
        let end =
            StepEnd { exit, oom, lost, usage, started: now, ended: now, note: note.clone(), ..StepEnd::default() };
        c.commit(now, Event::StepNodesEnded { job: id, attempt, step, nodes, end, cut: None }, out);
    }
    if node_fault {
        count_failure(c, now, node, error, out);
        faults::found(c, now, node, (FaultKind::Launch, Some(id)), out);
    }
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("the job of a step that has just failed is known") };
    if step != StepNo::BATCH || !matches!(job.phase, Phase::Running(_)) {
        return;
    }
    if !node_fault && checkpoint::restore_failed(c, now, node, id, error, out) {
        return;
    }
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("the job of a step that has just failed is known") };
    let retry = node_fault && (may_requeue(&c.state, job) || job.restore().is_some());
    let failures = job.launch_failures + 1;
    let delay = Span::from_secs(LAUNCH_RETRY_S << failures.min(LAUNCH_DOUBLINGS));
    let hold = c.state.config.max_batch_requeue.is_some_and(|most| failures > most);
    let not_before = (!hold).then(|| now + delay);
    let requeue = retry.then_some(Requeue { hold, not_before, special: None, expedite: None });
    let state = if node_fault { EndState::BootFail } else { EndState::Failed };
    let outcome = Outcome { state, exit, reason: note };
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
}

/// Returns whether this is the keeper of a job's steps on a node, in place of the script that runs on another one.
fn keeps(c: &Controller, node: NodeId, key: StepKey) -> bool {
    let attempt = JobAttempt { job: key.job, attempt: key.attempt };
    let held = held(c, &NodeSet::one(node), attempt).is_some_and(|(_, run)| run.batch_node() != Some(node));
    key.step == StepNo::BATCH && held && facts::facts(&c.state, key.job).is_some_and(|facts| facts.inside == Some(true))
}

/// Counts a launch that failed by the node's fault. A node that fails so many in a row is drained. Those that fail at
/// about the same time count once, as they have one cause: a daemon that died takes many launches with it.
fn count_failure(c: &mut Controller, now: Time, node: NodeId, error: &str, out: &mut Out) {
    let limit = c.state.config.health.launch_failures;
    let (failures, counted) = c.failures.entry(node).or_default();
    if *failures > 0 && now < *counted + FAILURES_APART {
        return;
    }
    (*failures, *counted) = (*failures + 1, now);
    if limit > 0 && *failures >= limit {
        c.failures.remove(&node);
        notes::drain(c, now, node, format!("Launch failed {limit} times: {error}"), out);
    }
}
