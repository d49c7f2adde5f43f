//! Checkpoints of jobs: orders to nodes and their answers, when one counts, and what follows from a failed restore.
//!
//! A checkpoint counts from the journal's event on. A job that leaves its node is ended by the same record, so its
//! frozen processes are killed only when the checkpoint counts.
//!
//! Of a job of several nodes each makes its part, and stays frozen until all have. The parts fit together if every
//! connection of the job ends in another part, and both ends agree on what has arrived ([`Made::links`]): then whatever the
//! parts are restored from is one state of the job. If they don't, all are made again: nothing runs meanwhile, so what was
//! under way has arrived.

use std::sync::Arc;

use squall_model::checkpoint::{Checkpoint, CheckpointChange, CheckpointNote, CheckpointOrder, CheckpointVerb, Made};
use squall_model::event::{Event, JobChange, Requeue};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, JobSpec, Outcome};
use squall_model::limits::{CHECKPOINT_DAMAGES_MAX, CHECKPOINT_TEXT_BYTES};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::effects::{periodic, preempt};
use crate::control::index::elsewhere;
use crate::control::index::facts::contains_steps;
use crate::control::index::waits::Ordered;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::control::state::job::{Job, Phase, Run, Step};
use crate::control::state::reading::{UNSAVED, VACATED, may_requeue};
use crate::invariant::invariant;

/// How often the parts of a checkpoint are made that don't fit together.
const TRIES: u32 = 5;
/// Number of the signal SIGKILL on Linux.
const KILL: u8 = 9;

/// Returns the refusal of a checkpoint for this reason.
pub(crate) fn wrong(why: impl Into<String>) -> Refusal {
    Refusal::WrongState(why.into())
}

/// Orders a checkpoint of a running job that has none under way. `caller`: the client that waits for the answer;
/// `preempts`: the job is preempted.
pub(crate) fn give(
    c: &mut Controller,
    now: Time,
    id: JobId,
    verb: CheckpointVerb,
    (caller, preempts): (Option<CallerId>, bool),
) -> Result<(), Refusal> {
    let (nodes, order) = order(&c.state, now, id, verb)?;
    let damages = c.state.jobs.get(&id).and_then(|job| job.checkpoints.as_ref()).map_or(0, |all| all.damages);
    if caller.is_none() && damages >= CHECKPOINT_DAMAGES_MAX {
        return Err(wrong(format!("{damages} dumps of it were killed, one after the other")));
    }
    c.links.put(&nodes, Down::Checkpoint(Box::new(order.clone())));
    c.waits.checkpoints.insert(id, Ordered { caller, preempts, left: nodes, order, made: None, tries: 0 });
    Ok(())
}

/// Orders that a preempted job leaves its node by a checkpoint, after one that is being made. Err: it can't be
/// checkpointed.
pub(crate) fn vacate(c: &mut Controller, now: Time, id: JobId) -> Result<(), Refusal> {
    if let Some(ordered) = c.waits.checkpoints.get_mut(&id) {
        ordered.preempts = true;
        return Ok(());
    }
    give(c, now, id, CheckpointVerb::Vacate, (None, true))
}

/// Waits no longer for the checkpoint by which a preempted job was to leave its node. False: nothing was awaited.
pub(crate) fn give_up(c: &mut Controller, id: JobId) -> bool {
    let awaited = c.waits.preempts(id);
    if let Some(ordered) = c.waits.checkpoints.get_mut(&id).filter(|_| awaited) {
        ordered.preempts = false;
        if ordered.caller.is_none() {
            c.waits.checkpoints.remove(&id);
        }
    }
    awaited
}

/// Returns the order to the job's nodes, or why the job can't be checkpointed. What only a node knows it says itself.
fn order(state: &State, now: Time, id: JobId, verb: CheckpointVerb) -> Result<(NodeSet, CheckpointOrder), Refusal> {
    let job = state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let run = match &job.phase {
        Phase::Running(run) if !run.configures() => run,
        Phase::Running(_) | Phase::Pending | Phase::Leased(_) => return Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
    };
    if let Some(problem) = without_checkpoints(state) {
        return Err(wrong(problem));
    }
    let nodes = fits(state, id, job, run).map_err(wrong)?;
    let all = job.checkpoints.as_deref();
    let order = CheckpointOrder {
        job: JobAttempt { job: id, attempt: job.attempt },
        number: all.map_or(0, |all| all.last) + 1,
        verb,
        kept: all.iter().flat_map(|all| &all.kept).map(|one| one.number).collect(),
        given: now,
    };
    Ok((nodes, order))
}

/// Returns why the cluster has no checkpoints. None: it has.
pub(crate) fn without_checkpoints(state: &State) -> Option<&'static str> {
    match () {
        () if state.cluster_version < ClusterVersion::CHECKPOINTS => {
            Some("jobs are checkpointed from version 3 of the cluster on: scontrol upgrade")
        }
        () if state.config.checkpoint_dir.is_empty() => {
            Some("the cluster has no folder for checkpoints: set checkpoint_dir in squall.toml")
        }
        () => None,
    }
}

/// Returns the nodes of a job that is of a kind which can be checkpointed, or why it is not.
fn fits(state: &State, id: JobId, job: &Job, run: &Run) -> Result<NodeSet, String> {
    if job.spec.kind != JobKind::Batch {
        return Err("only batch jobs are checkpointed".into());
    }
    let nodes = run.alloc.nodes();
    if run.places.is_some() || state.het_of(id).is_some() {
        return Err("jobs with spare nodes or several components are not checkpointed yet".into());
    }
    if nodes.len() > 1 && !contains_steps(state, id, job, run) {
        return Err("jobs with several nodes are checkpointed only if they are submitted with --checkpoint".into());
    }
    if !run.gres.is_empty() {
        return Err("jobs with GPUs or other devices are not checkpointed yet".into());
    }
    if run.suspended.is_some() {
        return Err("the job is suspended: resume it first".into());
    }
    if state.gang.contains_key(&id) {
        return Err("jobs that share their CPUs in turns are not checkpointed yet".into());
    }
    let outside = |no: StepNo, step: &Step| no != StepNo::BATCH && step.ended.is_none() && step.spec.inside.is_none();
    if let Some((no, _)) = run.steps.iter().find(|(no, step)| outside(**no, step)) {
        return Err(format!("step {no} runs outside of the script: submit the job with --checkpoint"));
    }
    Ok(nodes)
}

/// Handles a node's answer to an order. A repeated one changes nothing.
pub(crate) fn noted(c: &mut Controller, now: Time, node: NodeId, note: &CheckpointNote, out: &mut Out) {
    let JobAttempt { job: id, attempt } = note.job;
    let held = |job: &&Job| job.attempt == attempt && job.run().is_some_and(|run| run.left.contains(node));
    // because the attempt may be over
    let Some(job) = c.state.jobs.get(&id).map(|job| &**job).filter(held).filter(|job| job.is_running()) else { return };
    let nodes = job.run().map(|run| run.alloc.nodes()).unwrap_or_default();
    if note.damaged && damaged(c, now, id, note.error.as_deref().unwrap_or_default(), out) {
        return;
    }
    // A job that has given back nodes has parts as before.
    if nodes.len() > 1 || note.made.is_some_and(|made| made.links.is_some()) {
        return part_noted(c, now, (node, &nodes), note, out);
    }
    if let Some(made) = note.made {
        counts(c, now, &nodes, (note, made), out);
    }
    let answers = |ordered: &Ordered| ordered.order.number == note.number && ordered.order.job == note.job;
    if c.waits.checkpoints.get(&id).is_some_and(answers)
        && let Some(ordered) = c.waits.checkpoints.remove(&id)
    {
        let problem = note.error.as_deref().map(line);
        let late = "the job runs on, as the controller did not answer its node in time; the checkpoint counts";
        let late = (ordered.order.verb != note.verb).then_some(late);
        tell(c, now, &ordered, (problem.as_deref(), late), out);
    }
}

/// Records that a checkpoint counts, unless its number was not ordered. `nodes`: those of the job. Ends the attempt of a job
/// that leaves them.
fn counts(c: &mut Controller, now: Time, nodes: &NodeSet, (note, made): (&CheckpointNote, Made), out: &mut Out) {
    let id = note.job.job;
    let last = c.state.jobs.get(&id).and_then(|job| job.checkpoints.as_ref()).map_or(0, |all| all.last);
    // because a node may number what was not ordered
    let Some(node) = nodes.first().filter(|_| last.checked_add(1) == Some(note.number)) else { return };
    let several = (nodes.len() > 1).then(|| nodes.clone());
    let CheckpointNote { job, number, .. } = *note;
    let interfaces = elsewhere::interfaces(&c.state, id, nodes);
    let change = CheckpointChange {
        job,
        number,
        node,
        made: Some(made),
        error: None,
        damaged: None,
        nodes: several,
        interfaces,
    };
    c.commit(now, Event::Checkpoint(Box::new(change)), out);
    bind(c, now, id, nodes, out);
    if note.verb.vacates() {
        let preempted = c.state.jobs.get(&id).is_some_and(|job| job.run().is_some_and(|run| run.grace.is_some()));
        let state = if preempted { EndState::Preempted } else { EndState::Requeued };
        let outcome = Outcome { state, exit: ExitCode::OK, reason: Some(VACATED.to_owned()) };
        let hold = note.verb == CheckpointVerb::Hold;
        let requeue = Some(Requeue { hold, not_before: None, special: None, expedite: None });
        c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    }
}

/// Answers the client of an order, or goes on by itself. `problem`: why there is no checkpoint; `late`: why the job runs on
/// although there is one.
fn tell(
    c: &mut Controller,
    now: Time,
    ordered: &Ordered,
    (problem, late): (Option<&str>, Option<&str>),
    out: &mut Out,
) {
    let (id, own) = (ordered.order.job.job, ordered.caller.is_none());
    let answer = problem.or(late).map_or(Answer::Done, |why| Answer::Refused(wrong(why)));
    out.answers.extend(ordered.caller.map(|caller| (caller, answer)));
    if ordered.preempts {
        preempt::answered(c, now, id, problem.is_some(), out);
    } else {
        answered(c, now, id, (own, problem), out);
    }
}

/// Handles the answer of one of the nodes of a job. What all have made counts if it fits together.
fn part_noted(c: &mut Controller, now: Time, (node, nodes): (NodeId, &NodeSet), note: &CheckpointNote, out: &mut Out) {
    let id = note.job.job;
    if note.verb == CheckpointVerb::Go {
        return part_restored(c, (node, nodes), note);
    }
    let answers = |ordered: &Ordered| {
        let order = &ordered.order;
        (order.job, order.number, order.given) == (note.job, note.number, note.given)
    };
    if !c.waits.checkpoints.get(&id).is_some_and(answers) {
        // Its order was given up, or given by an earlier controller, and it stands still.
        let made = note.made.is_some() && !c.waits.checkpoints.contains_key(&id);
        if made {
            go(c, &NodeSet::one(node), (note.job, note.number));
        }
        return;
    }
    let Some(mut ordered) = c.waits.checkpoints.remove(&id) else { return invariant!("it was there just now") };
    let tested = (note.verb == CheckpointVerb::Able) != (ordered.order.verb == CheckpointVerb::Able);
    let other = tested.then_some("its nodes were at work on another order: try again");
    if let Some(problem) = note.error.as_deref().or(other).map(line) {
        go(c, nodes, (note.job, note.number));
        return tell(c, now, &ordered, (Some(&problem), None), out);
    }
    if ordered.left.remove(node) {
        ordered.made = together(ordered.made, note.made, nodes.first() == Some(node));
    }
    if !ordered.left.is_empty() {
        c.waits.checkpoints.insert(id, ordered);
        return;
    }
    let Some(made) = ordered.made else { return tell(c, now, &ordered, (None, None), out) };
    if made.links != Some(0) {
        return again_or_not(c, now, ordered, nodes, out);
    }
    let verb = ordered.order.verb;
    let whole = CheckpointNote { verb, ..note.clone() };
    counts(c, now, nodes, (&whole, Made { links: None, ..made }), out);
    if !verb.vacates() {
        go(c, nodes, (note.job, note.number));
    }
    tell(c, now, &ordered, (None, None), out);
}

/// Returns what two nodes have made, or one and those before. `first`: the latter is the first node, which has the script.
fn together(before: Option<Made>, part: Option<Made>, first: bool) -> Option<Made> {
    let Some((before, part)) = before.zip(part) else { return before.or(part) };
    let links = before.links.zip(part.links).map(|(before, part)| before ^ part);
    Some(Made {
        bytes: before.bytes.saturating_add(part.bytes),
        stood: before.stood.max(part.stood),
        pid: if first { part.pid } else { before.pid },
        links,
    })
}

/// Orders the parts of a checkpoint again that did not fit together, or gives it up.
fn again_or_not(c: &mut Controller, now: Time, mut ordered: Ordered, nodes: &NodeSet, out: &mut Out) {
    let id = ordered.order.job.job;
    ordered.tries += 1;
    if ordered.tries < TRIES {
        ordered.order.given = now.max(ordered.order.given + Span(1));
        (ordered.left, ordered.made) = (nodes.clone(), None);
        c.links.put(nodes, Down::Checkpoint(Box::new(ordered.order.clone())));
        c.waits.checkpoints.insert(id, ordered);
        return;
    }
    go(c, nodes, (ordered.order.job, ordered.order.number));
    let problem = "a connection of the job by TCP leads to a process that is none of the job's";
    tell(c, now, &ordered, (Some(problem), None), out);
}

/// Has nodes go on with a job.
fn go(c: &mut Controller, nodes: &NodeSet, (job, number): (JobAttempt, u64)) {
    let (kept, verb) = (Vec::new(), CheckpointVerb::Go);
    c.links.put(nodes, Down::Checkpoint(Box::new(CheckpointOrder { job, number, verb, kept, given: Time(0) })));
}

/// Has a job go on when all of its nodes have restored their parts: not before, as connections between them would be lost.
fn part_restored(c: &mut Controller, (node, nodes): (NodeId, &NodeSet), note: &CheckpointNote) {
    c.waits.restored.entry(note.job.job).or_default().insert(node);
    all_restored(c, nodes, (note.job, note.number));
}

fn all_restored(c: &mut Controller, nodes: &NodeSet, (job, number): (JobAttempt, u64)) {
    if c.waits.restored.get(&job.job).is_some_and(|restored| nodes.is_subset(restored)) {
        c.waits.restored.remove(&job.job);
        go(c, nodes, (job, number));
    }
}

/// Handles that a running job has given back nodes, for the parts of which it may have waited.
pub(crate) fn shrunk(c: &mut Controller, id: JobId) {
    let job = c.state.jobs.get(&id);
    let found = job.and_then(|job| Some((job.attempt, job.run()?.restore?.number, job.run()?.alloc.nodes())));
    // because most jobs were not restored
    let Some((attempt, number, nodes)) = found else { return };
    all_restored(c, &nodes, (JobAttempt { job: id, attempt }, number));
}

/// Sends a job back of which a dump was killed: its node has ended its processes, which may be damaged. It goes back to its
/// last checkpoint, begins again from the start, or ends if it may not be requeued. False: its end is decided already.
pub(crate) fn damaged(c: &mut Controller, now: Time, id: JobId, error: &str, out: &mut Out) -> bool {
    let job = c.state.jobs.get(&id).filter(|job| job.is_running());
    let found = job.and_then(|job| Some((job, job.run()?.alloc.nodes())));
    let found = found.and_then(|(job, nodes)| Some((job, nodes.first()?)));
    // because the end of the job may be decided already
    let Some((job, node)) = found else { return false };
    let back = job.restore().map(|restore| restore.number);
    let requeued = back.is_some() || may_requeue(&c.state, job);
    let then = match back {
        Some(number) => format!("it goes back to checkpoint {number}"),
        None if requeued => "it begins again from the start".to_owned(),
        None => "it ends, as it has no checkpoint and may not be requeued".to_owned(),
    };
    let reason = format!("{}, so its processes may be damaged: {then}", line(error));
    let number = job.checkpoints.as_ref().map_or(0, |all| all.last) + 1;
    let attempt = JobAttempt { job: id, attempt: job.attempt };
    let ordered = c.waits.checkpoints.remove(&id);
    let caller = ordered.and_then(|ordered| ordered.caller);
    out.answers.extend(caller.map(|caller| (caller, Answer::Refused(wrong(reason.as_str())))));
    let change = CheckpointChange {
        job: attempt,
        number,
        node,
        made: None,
        error: Some(reason.clone()),
        damaged: Some(true),
        nodes: None,
        interfaces: None,
    };
    c.commit(now, Event::Checkpoint(Box::new(change)), out);
    let (state, exit) = if requeued {
        (EndState::Requeued, ExitCode::OK)
    } else {
        (EndState::Failed, ExitCode { code: 0, signal: KILL })
    };
    let requeue = requeued.then_some(Requeue { hold: false, not_before: None, special: None, expedite: None });
    c.commit(now, Event::JobEnding { id, outcome: Outcome { state, exit, reason: Some(reason) }, requeue }, out);
    true
}

/// Orders the checkpoint of a job that is due.
pub(crate) fn due(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let found = c.state.jobs.get(&id).filter(|job| job.spec.options.get().is_some_and(|o| o.checkpoint.is_some()));
    let found = found.and_then(|job| Some((job, job.run()?)));
    // because the job may have ended in the same turn
    let Some((job, run)) = found else { return };
    // One that is being made is answered, which sets the timer again.
    if c.waits.checkpoints.contains_key(&id) {
        return;
    }
    let begun = periodic::interval(&c.state, job, run).is_some_and(|interval| now >= run.start + interval);
    let verb = match () {
        () if periodic::leaves(&c.state, id, job, run).is_some_and(|time| time <= now) => CheckpointVerb::Hold,
        () if begun || job.checkpoints.is_some() => CheckpointVerb::Create,
        () => CheckpointVerb::Able,
    };
    match give(c, now, id, verb, (None, false)) {
        Ok(()) => {}
        Err(Refusal::WrongState(problem)) => answered(c, now, id, (true, Some(&problem)), out),
        // because a job whose nodes are being prepared has done nothing yet
        Err(_) => periodic::arm(c, id, Some((now, true))),
    }
}

/// Orders that a job with `--checkpoint` leaves its node, which is to reboot or is drained. One that can't be checkpointed
/// runs on.
pub(crate) fn leave(c: &mut Controller, now: Time, id: JobId) {
    let planned =
        c.state.jobs.get(&id).is_some_and(|job| job.spec.options.get().is_some_and(|o| o.checkpoint.is_some()));
    if planned && !c.waits.checkpoints.contains_key(&id) {
        drop(give(c, now, id, CheckpointVerb::Vacate, (None, false)));
    }
}

/// Handles the answer to an order, after which the next one follows. `own`: nobody else gave it; `problem`: why the
/// job can't be checkpointed.
fn answered(c: &mut Controller, now: Time, id: JobId, (own, problem): (bool, Option<&str>), out: &mut Out) {
    let job = c.state.jobs.get(&id).filter(|job| job.is_running());
    let found = job.and_then(|job| Some((job, job.run()?, job.spec.options.get()?.checkpoint?)));
    // because most jobs have no such plan, and others have left their node
    let Some((job, run, plan)) = found else { return };
    let known = job.checkpoints.as_ref().and_then(|all| all.refused.as_deref());
    let (last, node) = (job.checkpoints.as_ref().map_or(0, |all| all.last), run.alloc.nodes().first());
    let job = JobAttempt { job: id, attempt: job.attempt };
    match problem.filter(|_| own) {
        Some(problem) if plan.must => {
            let exit = ExitCode { code: 1, signal: 0 };
            let outcome = Outcome { state: EndState::Failed, exit, reason: Some(format!("{UNSAVED}{problem}")) };
            return c.commit(now, Event::JobEnding { id, outcome, requeue: None }, out);
        }
        Some(problem) if known != Some(problem) => {
            if let Some(node) = node {
                let error = Some(problem.to_owned());
                let number = last + 1;
                let (damaged, nodes, interfaces) = (None, None, None);
                let change = CheckpointChange { job, number, node, made: None, error, damaged, nodes, interfaces };
                c.commit(now, Event::Checkpoint(Box::new(change)), out);
            }
        }
        Some(_) | None => {}
    }
    periodic::arm(c, id, Some((now, problem.is_some())));
}

/// Binds a job to the nodes that have its checkpoints, if it can't go on from them elsewhere; or frees it again (no nodes).
fn bind(c: &mut Controller, now: Time, id: JobId, nodes: &NodeSet, out: &mut Out) {
    // because the job may have ended
    let Some(job) = c.state.jobs.get(&id) else { return };
    let Some(need) = elsewhere::need(&c.state, job, nodes).filter(|need| *need != job.spec.need) else { return };
    let spec = JobSpec { need, ..(*job.spec).clone() };
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
    let (failed, damaged, nodes, interfaces) = (Some(error.clone()), None, None, None);
    let change = CheckpointChange { job, number, node, made: None, error: failed, damaged, nodes, interfaces };
    c.commit(now, Event::Checkpoint(Box::new(change)), out);
    // The one before may be of other nodes.
    let before = c.state.jobs.get(&id).and_then(|job| job.checkpoints.as_ref()?.kept.last()).map(Checkpoint::holders);
    bind(c, now, id, &before.unwrap_or_default(), out);
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
    if !c.waits.restored.is_empty() && c.state.jobs.get(&id).is_none_or(|job| !job.is_running()) {
        c.waits.restored.remove(&id);
    }
    if c.waits.checkpoints.get(&id).is_some_and(over)
        && let Some(ordered) = c.waits.checkpoints.remove(&id)
    {
        out.answers.extend(ordered.caller.map(|caller| (caller, Answer::Refused(Refusal::AlreadyDone))));
    }
}

/// Sends a node that registers the orders which it may not have got. It does nothing about those that it has.
pub(crate) fn again(c: &mut Controller, node: NodeId) {
    let orders = c.waits.checkpoints.values().filter(|ordered| ordered.left.contains(node));
    for order in orders.map(|ordered| ordered.order.clone()).collect::<Vec<_>>() {
        c.links.push(node, Down::Checkpoint(Box::new(order)));
    }
}

/// Returns a node's text without control characters, and not too long.
fn line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(CHECKPOINT_TEXT_BYTES).collect()
}
