//! What nodes report: ends of steps, jobs gone, failed launches. Taken in order, once, acknowledged when durable.

use squall_model::event::{Event, Requeue};
use squall_model::id::{NodeId, Session, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, Outcome, Usage};
use squall_model::report::{Report, StepEnd};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::node::{Down, UpFrame};

use super::register::register;
use crate::control::drive::{may_requeue, nodes, notice};
use crate::control::state::job::{Phase, Run};
use crate::control::{Controller, LinkId, Out};

/// Seconds before the second try of a failed launch; doubled each time, up to a minute. A job is never held for
/// what is a node's fault: a full disk that was freed must not leave jobs behind.
const LAUNCH_RETRY_S: u64 = 1;
/// How often that is doubled.
const LAUNCH_DOUBLINGS: u32 = 6;

/// Takes a frame of a node. Frames of a session that is not in force are dropped.
pub(crate) fn frame(c: &mut Controller, now: Time, link: LinkId, frame: UpFrame, out: &mut Out) {
    match frame {
        UpFrame::Register(said) => register(c, now, link, &said, out),
        UpFrame::Reports { session, first, reports } => {
            if let Some(node) = in_force(c, link, session) {
                nodes::heard(c, now, node, out);
                take(c, now, node, first, &reports, out);
            }
        }
        UpFrame::Heartbeat { session, load_centi, free_mb } => {
            if let Some(node) = in_force(c, link, session) {
                nodes::heard(c, now, node, out);
                if let Some(link) = c.links.get_mut(node) {
                    (link.load_centi, link.free_mb) = (load_centi, free_mb);
                }
                c.links.answer(node);
            }
        }
    }
}

fn in_force(c: &Controller, link: LinkId, session: Session) -> Option<NodeId> {
    let node = c.links.node(link)?;
    (c.links.get(node)?.session() == session).then_some(node)
}

/// Takes reports that were not taken before. A frame begins with the oldest report that the node has not seen
/// acknowledged, so numbers that are skipped (each life of its daemon begins far above the last) hide nothing.
fn take(c: &mut Controller, now: Time, id: NodeId, first: u64, reports: &[Report], out: &mut Out) {
    let Some(node) = c.state.node(id) else { return };
    let (taken, Some(incarnation)) = (node.reports, node.incarnation) else { return };
    let known = taken.saturating_add(1).saturating_sub(first) as usize;
    c.diag.fabric.window(reports.len() as u64);
    c.diag.fabric.repeats += known.min(reports.len()) as u64;
    for report in reports.iter().skip(known) {
        one(c, now, id, report, out);
    }
    let up_to = taken.max(first.saturating_add(reports.len() as u64).saturating_sub(1));
    if up_to > taken {
        c.commit(now, Event::ReportsTaken { node: id, incarnation, up_to }, out);
    }
    c.send(id, Down::Ack { up_to });
}

fn one(c: &mut Controller, now: Time, node: NodeId, report: &Report, out: &mut Out) {
    match report {
        Report::StepEnded { key, end } => step_ended(c, now, node, *key, end, out),
        Report::JobGone { job } => job_gone(c, now, node, *job, out),
        Report::LaunchFailed { key, error, node_fault } => {
            launch_failed(c, now, node, *key, (error, *node_fault), out);
        }
    }
}

/// The attempt that a report is about, if it holds that node.
fn run_of(c: &Controller, node: NodeId, job: JobAttempt) -> Option<&Run> {
    let found = c.state.jobs.get(&job.job).filter(|found| found.attempt == job.attempt)?;
    found.run().filter(|run| run.left.contains(node))
}

fn step_ended(c: &mut Controller, now: Time, node: NodeId, key: StepKey, end: &StepEnd, out: &mut Out) {
    let StepKey { job, attempt, step } = key;
    let Some(run) = run_of(c, node, JobAttempt { job, attempt }) else { return };
    let live = run.steps.get(&step).is_some_and(|step| step.left.contains(node));
    if !live {
        return;
    }
    c.commit(now, Event::StepNodeEnded { job, attempt, step, node, end: end.clone() }, out);
    if step == StepNo::BATCH && c.state.jobs.get(&job).is_some_and(|job| job.is_running()) {
        // The end of the script is the end of the job, whatever else still runs in it.
        let outcome = script_outcome(end);
        c.commit(now, Event::JobEnding { id: job, outcome, requeue: None }, out);
    }
}

/// What the end of its script means for a job.
fn script_outcome(end: &StepEnd) -> Outcome {
    let (state, exit) = match () {
        () if end.oom => (EndState::OutOfMemory, ExitCode { code: 0, signal: 125 }),
        () if end.lost => (EndState::NodeFail, end.exit),
        () if end.exit.is_ok() => (EndState::Completed, end.exit),
        () => (EndState::Failed, end.exit),
    };
    let unknown = end.lost.then(|| "the exit status of the script could not be learnt".to_owned());
    Outcome { state, exit, reason: end.note.clone().or(unknown) }
}

fn job_gone(c: &mut Controller, now: Time, node: NodeId, job: JobAttempt, out: &mut Out) {
    if let Some(strays) = c.strays.get_mut(&node) {
        strays.remove(&job);
        if strays.is_empty() {
            c.strays.remove(&node);
            notice::refresh(c, node);
            c.queue.kick = true;
        }
    }
    if run_of(c, node, job).is_none() {
        return;
    }
    // Gone though nobody ended it: the node has lost it.
    nodes::fail(c, now, job.job, node, "the job vanished from node", out);
    let nodes = NodeSet::one(node);
    c.commit(now, Event::NodesReleased { id: job.job, attempt: job.attempt, nodes }, out);
}

fn launch_failed(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    key: StepKey,
    (error, node_fault): (&str, bool),
    out: &mut Out,
) {
    let StepKey { job: id, attempt, step } = key;
    let Some(run) = run_of(c, node, JobAttempt { job: id, attempt }) else { return };
    if !run.steps.get(&step).is_some_and(|step| step.left.contains(node)) {
        return;
    }
    let exit = ExitCode { code: 1, signal: 0 };
    let note = Some(error.to_owned());
    let (usage, oom, lost) = (Usage::default(), false, false);
    let end = StepEnd { exit, oom, lost, usage, started: now, ended: now, note: note.clone() };
    c.commit(now, Event::StepNodeEnded { job: id, attempt, step, node, end }, out);
    let Some(job) = c.state.jobs.get(&id) else { return };
    if step != StepNo::BATCH || !matches!(job.phase, Phase::Running(_)) {
        return;
    }
    let retry = node_fault && may_requeue(c, job);
    let failures = job.launch_failures + 1;
    let delay = Span::from_secs(LAUNCH_RETRY_S << failures.min(LAUNCH_DOUBLINGS));
    let requeue = retry.then_some(Requeue { hold: false, not_before: Some(now + delay) });
    let state = if node_fault { EndState::BootFail } else { EndState::Failed };
    if retry {
        c.queue.avoid.entry(id).or_default().insert(node);
    }
    let outcome = Outcome { state, exit, reason: note };
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
}
