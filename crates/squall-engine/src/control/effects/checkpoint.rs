//! Checkpoints of jobs: what a node answers, when one counts, and what follows from a restore that failed.
//!
//! A checkpoint counts from the journal's event on. A job that leaves its node is ended by the same record, so its
//! frozen processes are killed only when the checkpoint counts.

use std::sync::Arc;

use squall_model::checkpoint::{CheckpointChange, CheckpointNote, CheckpointVerb};
use squall_model::event::{Event, JobChange, Requeue};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobAttempt, Outcome};
use squall_model::limits::CHECKPOINT_TEXT_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::index::waits::Ordered;
use crate::control::port::Out;
use crate::control::state::job::Job;
use crate::control::state::reading::VACATED;

/// Handles a node's answer to an order. A repeated one changes nothing.
pub(crate) fn noted(c: &mut Controller, now: Time, node: NodeId, note: CheckpointNote, out: &mut Out) {
    let JobAttempt { job: id, attempt } = note.job;
    let held = |job: &&Job| job.attempt == attempt && job.run().is_some_and(|run| run.left.contains(node));
    // because the attempt may be over
    let Some(job) = c.state.jobs.get(&id).map(|job| &**job).filter(held).filter(|job| job.is_running()) else { return };
    let last = job.checkpoints.as_ref().map_or(0, |all| all.last);
    // One node's word ends no job of several, and numbers nothing that was not ordered.
    let alone = job.run().is_some_and(|run| run.alloc.nodes() == NodeSet::one(node));
    if let Some(made) = note.made.filter(|_| alone && last.checked_add(1) == Some(note.number)) {
        let change = CheckpointChange { job: note.job, number: note.number, node, made: Some(made), error: None };
        c.commit(now, Event::Checkpoint(Box::new(change)), out);
        bind(c, now, id, Some(node), out);
        if note.verb.vacates() {
            let reason = Some(VACATED.to_owned());
            let outcome = Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason };
            let hold = note.verb == CheckpointVerb::Hold;
            let requeue = Some(Requeue { hold, not_before: None, special: None, expedite: None });
            c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
        }
    }
    let answers = |ordered: &Ordered| ordered.order.number == note.number && ordered.order.job == note.job;
    if c.waits.checkpoints.get(&id).is_some_and(answers)
        && let Some(ordered) = c.waits.checkpoints.remove(&id)
    {
        let done = ordered.order.verb == note.verb;
        let late =
            || "the job runs on, as the controller did not answer its node in time; the checkpoint counts".into();
        let answer = match note.error {
            Some(error) => Answer::Refused(Refusal::WrongState(line(&error))),
            None if done => Answer::Done,
            None => Answer::Refused(Refusal::WrongState(late())),
        };
        out.answers.push((ordered.caller, answer));
    }
}

/// Binds a job to the node that has its checkpoints, unless it asks for nodes by name; or frees it again.
fn bind(c: &mut Controller, now: Time, id: JobId, node: Option<NodeId>, out: &mut Out) {
    let name = node.and_then(|node| c.state.node(node)).map(|node| node.name.clone());
    let job = c.state.jobs.get(&id).filter(|job| job.checkpoints.as_ref().is_some_and(|all| all.bound));
    // because most jobs have the node already, or ask for nodes themselves
    let Some(spec) = job.map(|job| &job.spec).filter(|spec| spec.need.nodelist != name) else { return };
    let mut spec = (**spec).clone();
    spec.need.nodelist = name;
    let change = JobChange { spec: Some(Arc::new(spec)), ..JobChange::default() };
    c.commit(now, Event::JobUpdated { id, change, whole: false }, out);
}

/// Handles a script that could not go on from its checkpoint: that one no longer counts, and the job goes back to the
/// queue for the one before, or to begin from the start. Returns false if the script was no such one.
pub(crate) fn restore_failed(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    id: JobId,
    error: &str,
    out: &mut Out,
) -> bool {
    let found = c.state.jobs.get(&id).and_then(|job| Some((job.attempt, job.run()?.restore?.number)));
    // because other scripts fail to start as well
    let Some((attempt, number)) = found else { return false };
    let error = line(error);
    let job = JobAttempt { job: id, attempt };
    let change = CheckpointChange { job, number, node, made: None, error: Some(error.clone()) };
    c.commit(now, Event::Checkpoint(Box::new(change)), out);
    if c.state.jobs.get(&id).is_some_and(|job| job.restore().is_none()) {
        bind(c, now, id, None, out);
    }
    let reason = Some(format!("checkpoint {number} could not be restored: {error}"));
    let outcome = Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason };
    let requeue = Some(Requeue { hold: false, not_before: None, special: None, expedite: None });
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    true
}

/// Answers the client that waits for a checkpoint of a job which has ended meanwhile.
pub(crate) fn settle(c: &mut Controller, id: JobId, out: &mut Out) {
    let over = |ordered: &Ordered| {
        let running = c.state.jobs.get(&id).filter(|job| job.is_running());
        running.is_none_or(|job| job.attempt != ordered.order.job.attempt)
    };
    if c.waits.checkpoints.get(&id).is_some_and(over)
        && let Some(ordered) = c.waits.checkpoints.remove(&id)
    {
        out.answers.push((ordered.caller, Answer::Refused(Refusal::AlreadyDone)));
    }
}

/// Sends a node that registers the orders which it may not have got. It does nothing about those that it has.
pub(crate) fn again(c: &mut Controller, node: NodeId) {
    let orders = c.waits.checkpoints.values().filter(|ordered| ordered.node == node);
    for order in orders.map(|ordered| ordered.order.clone()).collect::<Vec<_>>() {
        c.links.push(node, Down::Checkpoint(Box::new(order)));
    }
}

/// Returns a node's text without control characters, and not too long.
fn line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(CHECKPOINT_TEXT_BYTES).collect()
}
