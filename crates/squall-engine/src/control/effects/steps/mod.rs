//! Steps: requests that wait for cores, programs of running steps, and clients that wait for their end.
//!
//! The journal has what a step is and how it ended on its nodes, but not what it runs. The program is kept here for
//! nodes that must be sent it again. After a restart of the controller, `srun` sends it again with the same key.

mod grid;
mod launch;
mod ports;

use crate::control::index::desk::Live;
use crate::control::index::desk::Waiting;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::hostlist::{HostList, compress};
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::limits::{OWNER_GRACE_S, STEP_OWNER_GRACE_S, STEPS_RESUMED_MAX};
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::{Down, EndReason};

use crate::control::controller::Controller;
use crate::control::effects::programs;
use crate::control::effects::steps::grid::place_step;
use crate::control::effects::steps::launch::{Offer, wanted};
use crate::control::effects::work;
use crate::control::index::layout::{Placed, Unplaced};
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::control::state::job::{Phase, Run, Step};
use crate::invariant::invariant;

/// Keeps a step request that came with its job's allocation request. It is handled like any other step request in the
/// turn in which the job starts, after the job's client was told of the start.
pub(crate) fn ask_with_job(c: &mut Controller, job: JobId, request: Waiting) {
    c.steps.served.insert((request.caller, job));
    c.steps.first.insert(job, request);
    c.todo.touched.insert(job);
}

/// Handles a new step request: the step starts, waits behind earlier requests, or is refused.
pub(crate) fn ask(c: &mut Controller, now: Time, job: JobId, request: Waiting, out: &mut Out) -> Result<(), Refusal> {
    c.steps.served.insert((request.caller, job));
    let request = in_place(&c.state, job, request);
    if retry(c, now, job, &request, out) {
        return Ok(());
    }
    let suspended = match c.state.jobs.get(&job).map(|job| &job.phase) {
        Some(Phase::Running(run)) => run.suspended.is_some() || run.booting.is_some(),
        // The job may have begun on the node to which it is leased, which has not reported that yet.
        Some(Phase::Leased(_)) => true,
        Some(Phase::Pending) => return Err(Refusal::NotRunning),
        _ => return Err(Refusal::AlreadyDone),
    };
    let first = c.steps.waiting.get(&job).and_then(VecDeque::front).map(|first| wanted(&c.state, job, first, None));
    let offer = if suspended { None } else { Offer::new(&c.state, job, first) };
    let gres = request.gres()?;
    let own = wanted(&c.state, job, &request, gres.as_ref());
    let offered = |offer: Offer| place_step(&c.state, job, offer.to(&request.program), &request, own);
    let placed = offer.map_or(Err(Unplaced::Busy), offered).map_err(|why| until_replaced(c, job, why));
    match placed.and_then(|placed| ports::reserve(c, &request.spec, placed)) {
        Ok(placed) => start(c, now, job, &request, placed, out),
        Err(Unplaced::Never(refusal)) => return Err(refusal),
        Err(Unplaced::Busy) if request.spec.immediate => return Err(Refusal::Busy),
        Err(Unplaced::Busy) => {
            let attempt = c.state.jobs.get(&job).map(|job| job.attempt);
            c.steps.waiting.entry(job).or_default().push_back(Waiting { attempt, ..request });
        }
    }
    Ok(())
}

/// Returns why a step has no layout: a step that does not fit waits as long as a failed node of its job is to be replaced.
fn until_replaced(c: &Controller, job: JobId, why: Unplaced) -> Unplaced {
    if c.vacant.contains(&job) { Unplaced::Busy } else { why }
}

fn start(c: &mut Controller, now: Time, id: JobId, request: &Waiting, placed: Placed, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that gets a step is known") };
    let Some(run) = job.run() else { return invariant!("a job that gets a step has resources") };
    let resumed = request.spec.inside.as_ref().and_then(|inside| inside.resumes).filter(|no| resumes(run, *no));
    let key = StepKey { job: id, attempt: job.attempt, step: resumed.unwrap_or(StepNo(run.next_step)) };
    let event = Event::StepStarted {
        job: id,
        step: key.step,
        key: request.key,
        spec: Arc::clone(&request.spec),
        alloc: placed.alloc,
        layout: placed.layout,
    };
    c.commit(now, event, out);
    if let Some(grants) = placed.gres {
        c.commit(now, Event::GresGranted { job: id, step: Some(key.step), grants }, out);
    }
    adopt(c, now, key, request.caller, &request.program);
    tell_created(c, key, request.caller, out);
    send_start(c, key, &request.program);
}

/// Has a restored step get the nodes where its tasks are.
fn in_place(state: &State, job: JobId, mut request: Waiting) -> Waiting {
    let run = state.jobs.get(&job).and_then(|job| job.run()).filter(|run| run.restore.is_some());
    let places = request.spec.inside.as_ref().and_then(|inside| inside.places.as_ref());
    if let Some((run, places)) = run.zip(places) {
        let nodes = run.working_nodes().into_iter().zip(0..).filter(|(_, place)| places.contains(*place));
        let names: HostList = nodes.filter_map(|(node, _)| state.node(node)).map(|node| &node.name).collect();
        let count = Some(names.len() as u32);
        let spec = StepSpec {
            nodelist: Some(names.as_str().to_owned()),
            nodes_min: count,
            nodes_max: count,
            exclude: None,
            relative: None,
            ..(*request.spec).clone()
        };
        request.spec = Arc::new(spec);
    }
    request
}

/// Returns whether a step that runs since before the checkpoint from which its job goes on may have its number again.
fn resumes(run: &Run, no: StepNo) -> bool {
    run.restore.is_some() && no.0 < STEPS_RESUMED_MAX && !run.steps.contains_key(&no)
}

/// Sends a client the description of a step. A watcher gets the step's end, too.
pub(crate) fn watched(c: &mut Controller, key: StepKey, watcher: Option<CallerId>, caller: CallerId, out: &mut Out) {
    if let Some(watcher) = watcher {
        c.steps.served.insert((watcher, key.job));
        c.steps.live.entry(key).or_default().watchers.push(watcher);
    }
    tell_created(c, key, caller, out);
}

/// Sends the start of a step to all nodes on which it has not ended.
fn send_start(c: &mut Controller, key: StepKey, program: &TaskProgram) {
    let Some(step) = step_of(c, key) else { return invariant!("a step that is sent is known") };
    let Some(start) = launch::start(&c.state, key, program) else {
        return invariant!("the job of a step that is sent has resources");
    };
    let nodes = step.left.clone();
    c.links.put(&nodes, Down::StartStep(start));
}

/// Records the connection of the step's `srun`, and the program that this `srun` sent.
fn adopt(c: &mut Controller, now: Time, key: StepKey, caller: CallerId, program: &Arc<TaskProgram>) {
    watch_limit(c, now, key);
    let live = c.steps.live.entry(key).or_default();
    live.program = Some(Arc::clone(program));
    live.caller = Some(caller);
    live.patience = None;
}

/// Sets the timer for the step's current time limit.
pub(crate) fn watch_limit(c: &mut Controller, now: Time, key: StepKey) {
    if let Some(limit) = limit_of(c, key) {
        c.steps.timers.insert((limit.max(now), key));
    }
}

/// Returns when the step's own time limit ends it; None: it has none.
fn limit_of(c: &Controller, key: StepKey) -> Option<Time> {
    let step = step_of(c, key)?;
    step.spec.time_limit_s.map(|seconds| step.start + Span::from_secs(seconds))
}

fn tell_created(c: &Controller, key: StepKey, caller: CallerId, out: &mut Out) {
    // because the job may have ended before its `srun` came back, which then gets the step's end alone
    let Some(created) = launch::created(&c.state, key) else { return };
    out.answers.push((caller, created));
}

/// Returns a step of a job's attempt, ended or not.
fn step_of(c: &Controller, key: StepKey) -> Option<&Step> {
    let job = c.state.jobs.get(&key.job).filter(|job| job.attempt == key.attempt)?;
    job.last_run()?.steps.get(&key.step).map(|step| &**step)
}

/// Handles a step request that is a repetition: its `srun` lost the connection to the controller and has connected
/// again. Returns whether the request is a repetition.
fn retry(c: &mut Controller, now: Time, job: JobId, request: &Waiting, out: &mut Out) -> bool {
    if let Some(waiting) = c.steps.waiting.get_mut(&job).and_then(|all| all.iter_mut().find(|w| w.key == request.key)) {
        waiting.caller = request.caller;
        return true;
    }
    let Some(found) = c.state.jobs.get(&job) else { return false };
    let Some(run) = found.last_run() else { return false };
    let known = run.steps.iter().find(|(no, step)| **no != StepNo::BATCH && step.key == request.key);
    let Some((&no, step)) = known else { return false };
    let key = StepKey { job, attempt: found.attempt, step: no };
    let ended = step.ended.is_some() || !found.is_running();
    // Its `srun` may have missed what could be told only once.
    let lost = step.tally.as_ref().filter(|tally| tally.note.is_some()).map(|tally| tally.exit);
    let mut over = step.alloc.nodes();
    over.subtract(&step.left);
    tell_created(c, key, request.caller, out);
    adopt(c, now, key, request.caller, &request.program);
    if let Some(exit) = lost {
        part_ended(c, key, &over, exit, out);
    }
    if ended {
        settle(c, now, job, out);
    } else {
        // Nodes that have the step ignore this message; the others have waited for the program.
        send_start(c, key, &request.program);
    }
    true
}

/// Returns how the controller has ended a step that runs; None: it has not.
pub(crate) fn cut(c: &Controller, key: StepKey) -> Option<EndState> {
    c.steps.live.get(&key)?.cut
}

/// Returns whether the controller has ordered the end of a step.
pub(crate) fn is_ending(c: &Controller, key: StepKey) -> bool {
    c.steps.live.get(&key).is_some_and(|live| live.ending.is_some())
}

/// Ends a step: SIGTERM, later SIGKILL. Nodes that are not connected get the order when they come back. The first
/// reason gives the step's state, as `cut` says.
pub(crate) fn end(c: &mut Controller, key: StepKey, why: EndReason, cut: EndState) {
    end_within(c, key, c.state.config.kill_wait_s, why);
    if let Some(live) = c.steps.live.get_mut(&key) {
        live.cut.get_or_insert(cut);
    }
}

/// Ends a step by SIGKILL at once, as [`end`] does.
pub(crate) fn kill(c: &mut Controller, key: StepKey) {
    end_within(c, key, 0, EndReason::None);
}

fn end_within(c: &mut Controller, key: StepKey, kill_wait_s: u64, why: EndReason) {
    // because the step may have ended before
    let Some(step) = step_of(c, key).filter(|step| step.ended.is_none()) else { return };
    let nodes = step.left.clone();
    c.links.put(&nodes, Down::EndStep { key, kill_wait_s, why });
    c.steps.live.entry(key).or_default().ending = Some((kill_wait_s, why));
}

/// Tells a step's `srun` that its tasks on some nodes have ended in a way that their step daemons can't report. If the
/// step has ended with that, its end says so.
pub(crate) fn part_ended(c: &Controller, key: StepKey, nodes: &NodeSet, exit: ExitCode, out: &mut Out) {
    let running = step_of(c, key).is_some_and(|step| step.ended.is_none());
    let caller = c.steps.live.get(&key).and_then(|live| live.caller);
    // because a `srun` that is away hears it when it comes back
    let Some(caller) = caller.filter(|_| running && !nodes.is_empty()) else { return };
    let names = nodes.iter().filter_map(|node| c.state.node(node)).map(|node| node.name.as_str());
    let answer = Answer::StepPart { step: key.step, nodes: compress(names), exit };
    out.answers.push((caller, answer));
}

/// Returns the clients that serve a job's steps on a node: the connection of each step's `srun`.
pub(crate) fn callers_on(c: &Controller, job: JobId, node: NodeId) -> impl Iterator<Item = CallerId> + '_ {
    let live = c.steps.live.range(steps_of(job));
    let here = live.filter(move |(key, _)| step_of(c, **key).is_some_and(|step| step.left.contains(node)));
    here.filter_map(|(_, live)| live.caller)
}

/// Handles steps of a job that has changed (a step ended, the job ends, has ended, or was requeued): sends clients the
/// ends of steps, starts steps that wait for cores, and refuses those that can't run any more. Called once a turn for
/// each changed job, so it must cost little for jobs without steps.
pub(crate) fn settle(c: &mut Controller, now: Time, job: JobId, out: &mut Out) {
    settle_first(c, now, job, out);
    settle_ended(c, job, out);
    settle_waiting(c, now, job, out);
}

fn settle_first(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    if !c.steps.first.contains_key(&id) || programs::are_awaited(c, id) {
        return;
    }
    // because the job may still wait
    let Some(job) = c.state.jobs.get(&id).filter(|job| !job.is_pending()) else { return };
    let ended = job.outcome().is_some();
    // because the message that the job has ended answers the step request, too
    let Some(request) = c.steps.first.remove(&id).filter(|_| !ended) else { return };
    // Nodes must receive the job before its step.
    work::send_starts(c);
    let caller = request.caller;
    if let Err(refusal) = ask(c, now, id, request, out) {
        out.answers.push((caller, Answer::Refused(refusal)));
    }
}

fn settle_ended(c: &mut Controller, job: JobId, out: &mut Out) {
    let keys: Vec<StepKey> = c.steps.live.range(steps_of(job)).map(|(&key, _)| key).collect();
    for key in keys {
        // because most steps still run
        let Some(end) = end_of(c, key) else { continue };
        if step_of(c, key).is_none_or(|step| step.layout.ports.is_some()) {
            ports::freed(c, job);
        }
        let Some(live) = c.steps.live.remove(&key) else {
            invariant!("a step that was listed is kept");
            continue;
        };
        let callers = live.caller.into_iter().chain(live.watchers);
        out.answers.extend(callers.map(|caller| (caller, end.clone())));
    }
}

/// Returns the answer that a step's `srun` gets when the step has ended. None: it has not.
fn end_of(c: &Controller, key: StepKey) -> Option<Answer> {
    let Some(step) = step_of(c, key) else { return Some(Answer::Refused(Refusal::Revoked)) };
    let outcome = match (&step.ended, &c.state.jobs.get(&key.job)?.phase) {
        (Some((_, outcome)), _) => outcome.clone(),
        // A node was lost that had not reported the step's end.
        (None, Phase::Ended(ended)) => Outcome { exit: ExitCode { code: 0, signal: 9 }, ..ended.outcome.clone() },
        (None, _) => return None,
    };
    Some(Answer::StepDone { step: key.step, outcome, lost: lost_by(c, key.job, step) })
}

/// Returns the names of a step's nodes that its running job has lost. None: it has lost none, or does not run.
fn lost_by(c: &Controller, job: JobId, step: &Step) -> Option<String> {
    let Phase::Running(run) = &c.state.jobs.get(&job)?.phase else { return None };
    let mut lost = step.alloc.nodes();
    lost.subtract(&run.alloc.nodes());
    let names = lost.iter().filter_map(|node| c.state.node(node)).map(|node| node.name.as_str());
    (!lost.is_empty()).then(|| compress(names))
}

/// Starts the waiting steps of a job that fit, oldest request first. A request that does not fit blocks later ones only
/// if these would take what the first waiting step needs.
fn settle_waiting(c: &mut Controller, now: Time, job: JobId, out: &mut Out) {
    if !c.steps.waiting.contains_key(&job) {
        return;
    }
    let refusal = match c.state.jobs.get(&job).map(|job| &job.phase) {
        // because steps wait while their job is suspended, boots its nodes, or has not begun
        Some(Phase::Running(run)) if run.suspended.is_some() || run.booting.is_some() => return,
        Some(Phase::Leased(_)) => return,
        Some(Phase::Running(_)) => None,
        _ => Some(Refusal::Revoked),
    };
    let attempt = c.state.jobs.get(&job).map(|job| job.attempt);
    let mut left: VecDeque<Waiting> = VecDeque::new();
    let mut offer = Offer::new(&c.state, job, None);
    for request in c.steps.waiting.remove(&job).unwrap_or_default() {
        // The job may have been requeued and started again within this turn.
        let holds = refusal.is_none() && request.attempt == attempt;
        let Some(open) = offer.as_ref().filter(|_| holds) else {
            out.answers.push((request.caller, Answer::Refused(refusal.clone().unwrap_or(Refusal::Revoked))));
            continue;
        };
        let gres = request.gres().unwrap_or_default();
        let own = wanted(&c.state, job, &request, gres.as_ref());
        let placed = place_step(&c.state, job, open.to(&request.program), &request, own);
        let placed = placed.map_err(|why| until_replaced(c, job, why));
        let stale = match placed.and_then(|placed| ports::reserve(c, &request.spec, placed)) {
            Ok(placed) => {
                start(c, now, job, &request, placed, out);
                true
            }
            Err(Unplaced::Never(refusal)) => {
                out.answers.push((request.caller, Answer::Refused(refusal)));
                false
            }
            Err(Unplaced::Busy) => {
                left.push_back(request);
                left.len() == 1
            }
        };
        if stale {
            offer = Offer::new(&c.state, job, left.front().map(|first| wanted(&c.state, job, first, None)));
        }
    }
    if !left.is_empty() {
        c.steps.waiting.insert(job, left);
    }
}

/// Removes a client after its connection has ended. The running steps of that client are ended unless its `srun`
/// connects again in time: `away`, if it came through another daemon, in more time.
pub(crate) fn hangup(c: &mut Controller, now: Time, caller: CallerId, away: bool) {
    let served: Vec<JobId> =
        c.steps.served.range((caller, JobId(0))..=(caller, JobId(u32::MAX))).map(|s| s.1).collect();
    let patience = now + Span::from_secs(if away { OWNER_GRACE_S } else { STEP_OWNER_GRACE_S });
    for job in served {
        c.steps.served.remove(&(caller, job));
        if c.steps.first.get(&job).is_some_and(|request| request.caller == caller) {
            c.steps.first.remove(&job);
        }
        if let Some(queue) = c.steps.waiting.get_mut(&job) {
            queue.retain(|request| request.caller != caller);
            if queue.is_empty() {
                c.steps.waiting.remove(&job);
            }
        }
        for live in c.steps.live.range_mut(steps_of(job)).map(|(_, live)| live) {
            live.watchers.retain(|watcher| *watcher != caller);
        }
        for (&key, live) in c.steps.live.range_mut(steps_of(job)).filter(|(_, live)| live.caller == Some(caller)) {
            live.caller = None;
            live.patience = Some(patience);
            c.steps.timers.insert((patience, key));
        }
    }
}

/// Returns the range of keys of all steps of a job, in any attempt.
fn steps_of(job: JobId) -> RangeInclusive<StepKey> {
    let first = StepKey { job, attempt: Attempt(0), step: StepNo(0) };
    let last = StepKey { job, attempt: Attempt(u32::MAX), step: StepNo(u32::MAX) };
    first..=last
}

/// Gives the `srun` of each running step time to come back after a start of the controller.
pub(crate) fn started(c: &mut Controller, now: Time, jobs: impl Iterator<Item = JobId>) {
    let patience = now + Span::from_secs(OWNER_GRACE_S);
    let running = jobs.filter_map(|id| {
        let job = c.state.jobs.get(&id)?;
        if let Phase::Running(run) = &job.phase { Some((id, job.attempt, run)) } else { None }
    });
    let keys: Vec<StepKey> = running
        .flat_map(|(job, attempt, run)| {
            let live = run.steps.iter().filter(|(no, step)| **no != StepNo::BATCH && step.ended.is_none());
            live.map(move |(&step, _)| StepKey { job, attempt, step })
        })
        .collect();
    for key in keys {
        c.steps.live.insert(key, Live { patience: Some(patience), ..Live::default() });
        c.steps.timers.insert((patience, key));
        watch_limit(c, now, key);
    }
}

/// Compares the steps that a registered node reports with those that should run there. Sends `StartStep` again if the
/// program is at hand; otherwise the client's retry will bring it. Sends `EndStep` for steps that should not run. The
/// caller handles jobs that should not be on the node at all.
pub(crate) fn registered(c: &mut Controller, node: NodeId, known: &[StepKey]) {
    for &key in known.iter().filter(|key| key.step != StepNo::BATCH) {
        let running = c.state.jobs.get(&key.job).is_some_and(|job| job.attempt == key.attempt && job.is_running());
        let wanted = step_of(c, key).is_some_and(|step| step.left.contains(node));
        if running && !wanted {
            c.send(node, Down::EndStep { key, kill_wait_s: 0, why: EndReason::None });
        }
    }
    let jobs = c.state.node(node).map(|node| node.jobs.clone()).unwrap_or_default();
    for id in jobs {
        let Some(job) = c.state.jobs.get(&id) else {
            invariant!("a job on a node is known");
            continue;
        };
        // because a job that ends, or that was only leased, has no step to start
        let Phase::Running(run) = &job.phase else { continue };
        if c.state.leaves(id, node) {
            // The node was told to end the job: it must not start a step of it after that.
            continue;
        }
        let attempt = job.attempt;
        let here = run.steps.iter().filter(|(no, step)| **no != StepNo::BATCH && step.left.contains(node));
        let keys: Vec<StepKey> = here.map(|(&step, _)| StepKey { job: id, attempt, step }).collect();
        for key in keys {
            remind(c, node, key, known.contains(&key));
        }
    }
}

/// Sends a node that has come back the order about a step that it may have missed: the end, or the start if the node
/// does not have the step.
fn remind(c: &mut Controller, node: NodeId, key: StepKey, known: bool) {
    // because nothing is known of a step between a restart of the controller and the return of its `srun`
    let Some(live) = c.steps.live.get(&key) else { return };
    let message = match (live.ending, &live.program) {
        (Some((kill_wait_s, why)), _) => Down::EndStep { key, kill_wait_s, why },
        (None, Some(program)) if !known => match launch::start(&c.state, key, program) {
            Some(start) => Down::StartStep(start),
            None => return invariant!("the job of a step that runs has resources"),
        },
        // because the node has the step, or its `srun` will bring the program
        (None, _) => return,
    };
    c.send(node, message);
}

/// Extends the patience with each `srun` that is expected to connect again.
pub(crate) fn postpone(c: &mut Controller, span: Span) {
    for (&key, live) in &mut c.steps.live {
        if let Some(patience) = &mut live.patience {
            *patience = *patience + span;
            c.steps.timers.insert((*patience, key));
        }
    }
}

/// Returns when [`timers`] must be called; None: not needed.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.steps.timers.first().map(|(time, _)| *time)
}

/// Ends steps past their time limit, and steps of which the `srun` has not come back in time.
pub(crate) fn timers(c: &mut Controller, now: Time) {
    while let Some(&(time, key)) = c.steps.timers.first().filter(|(time, _)| *time <= now) {
        c.steps.timers.remove(&(time, key));
        // because the step may have ended, or be ending, when its time is up
        let Some(live) = c.steps.live.get(&key).filter(|live| live.ending.is_none()) else { continue };
        if limit_of(c, key).is_some_and(|limit| limit <= now) {
            end(c, key, EndReason::TimeLimit, EndState::Timeout);
        } else if live.patience.is_some() && c.waits.checkpoints.contains_key(&key.job) {
            // Its `srun` stands still, and has parted from the controller for the checkpoint.
            c.steps.timers.insert((now + Span::from_secs(STEP_OWNER_GRACE_S), key));
        } else if live.patience.is_some_and(|patience| patience <= now) {
            end(c, key, EndReason::Cancelled, EndState::Cancelled { by: EndState::NOBODY });
        }
    }
}
