//! The phases of a turn (one iteration of the controller): timers, the queue, the scheduling pass, and messages to
//! nodes and clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::config::{Config, SchedulerType};
use squall_model::event::{Event, JobChange, NodeAdmin, Requeue};
use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, Outcome};
use squall_model::limits::OWNER_GRACE_S;
use squall_model::set::NodeSet;
use squall_model::step::{BatchStart, JobFacts};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::info::Looks;
use squall_model::wire::node::{Down, EndReason, SignalTarget};
use squall_sched::{Discipline, Given, Item, Nodes, Rules, Start};

use crate::control::controller::Controller;
use crate::control::effects::billing;
use crate::control::effects::checkpoint;
use crate::control::effects::fence;
use crate::control::effects::gang;
use crate::control::effects::nodes;
use crate::control::effects::notice;
use crate::control::effects::preempt;
use crate::control::effects::programs;
use crate::control::effects::reboot;
use crate::control::effects::reserve;
use crate::control::effects::resume;
use crate::control::effects::shutdown;
use crate::control::index::depend::Verdict;
use crate::control::index::facts;
use crate::control::index::limits;
use crate::control::index::pending;
use crate::control::index::queue::Entered;
use crate::control::index::timers::Timer;
use crate::control::index::view::Sight;
use crate::control::info::hindrance::too_late;
use crate::control::port::Out;
use crate::control::state::array::Array;
use crate::control::state::job::{Hold, Job, Phase};
use crate::control::state::node::Partition;
use crate::control::state::reading::is_by_itself;
use crate::control::state::reading::outcome_of;
use crate::control::state::reading::{is_unsaved, is_vacated};
use crate::invariant::invariant;

/// How often limits on usage over time are compared with the usage.
const BUDGETS_EVERY: Span = Span::from_secs(60);

/// Does what is due when a timer fires.
pub(crate) fn fire(c: &mut Controller, now: Time, timer: Timer, out: &mut Out) {
    match timer {
        Timer::Ready(item) => {
            c.queue.dirty.insert(item);
            c.queue.kick = true;
        }
        Timer::Deadline(item) => end_pending(c, now, item, EndState::Deadline, None, out),
        Timer::Limit(id) => end_running(c, now, id, limit_met(c, id), None, out),
        Timer::Warn(id) => warn(c, id),
        Timer::Immediate(id) => {
            // because the job may have started, and not be told to its client before the controller's prolog has ended
            let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_pending()) else { return };
            let by = job.owner.uid;
            let why = too_late(c, now, id);
            if let Some(owning) = c.waits.disown(id) {
                out.answers.push((owning.caller, Answer::Refused(why)));
            }
            end_pending(c, now, Item { id, array: false }, EndState::Cancelled { by }, None, out);
        }
        Timer::Owner(id) => abandon(c, now, id, out),
        Timer::Reboot(node) => reboot::failed(c, now, node, "reboot timed out", out),
        Timer::Resume(node) => resume::due(c, now, node, out),
        Timer::Power(node) => _ = c.powers.over.insert(node),
        // The settling of the power of nodes looks at the rates.
        Timer::PowerRate => {}
        Timer::Silent(node) => nodes::silent(c, now, node, out),
        Timer::Lost(node) => nodes::lost(c, now, node, out),
        Timer::Fence(node) => fence::passed(c, now, node, out),
        Timer::Grace(id) => preempt::overdue(c, now, id, out),
        Timer::Checkpoint(id) => checkpoint::due(c, now, id, out),
        Timer::Exempt(_) | Timer::Pass => c.queue.kick = true,
        Timer::Reckon => c.queue.rebuild(&c.state, &mut c.timers, now),
        Timer::Budgets => spend(c, now, out),
        Timer::ShutDown => shutdown::hurry(c),
        Timer::Reservations => reserve::turn(c, now, out),
    }
}

/// Checks limits on usage over time. Jobs that wait for one are examined. As in Slurm, running jobs end when a limit is
/// used up; with `safe` a job starts only if its whole time limit fits.
fn spend(c: &mut Controller, now: Time, out: &mut Out) {
    for id in limits::spent(&c.state, now) {
        end_running(c, now, id, EndState::Timeout, None, out);
    }
    c.queue.wake_budgeted();
}

/// Finds the jobs that are completing for so short a time that no others start in their partitions (`CompleteWait`). When
/// that time is over, another pass is made.
fn await_completion(c: &mut Controller, now: Time) {
    let wait = Span::from_secs(c.state.config.complete_wait_s);
    let mut nodes = NodeSet::new();
    if wait == Span(0) {
        c.queue.completing = nodes;
        return;
    }
    let mut first: Option<Time> = None;
    for id in c.state.nodes.iter().flat_map(|node| &node.jobs) {
        // because most jobs run
        let Some(Phase::Completing(run, ending)) = c.state.jobs.get(id).map(|job| &job.phase) else { continue };
        let until = ending.time + wait;
        if until > now {
            nodes.union_with(&run.left);
            first = Some(first.map_or(until, |first| first.min(until)));
        }
    }
    c.queue.completing = nodes;
    if let Some(time) = first {
        c.timers.set(Timer::Pass, time);
    }
}

/// Returns the end state of a running job when its time is up: by its time limit, or by its deadline if that came
/// first.
fn limit_met(c: &Controller, id: JobId) -> EndState {
    let run = c.state.jobs.get(&id).and_then(|job| Some((job, job.run()?)));
    let end = run.and_then(|(job, run)| facts::kill_time(&c.state, id, job, run));
    let deadline = run.and_then(|(job, run)| facts::deadline_end(&c.state, id, job, run));
    if deadline.is_some() && end == deadline { EndState::Deadline } else { EndState::Timeout }
}

/// Gives the client of an allocation, from which it is cut off, time to connect again (`InactiveLimit`).
pub(crate) fn await_owner(c: &mut Controller, now: Time, id: JobId) {
    match c.state.config.inactive_limit_s.unwrap_or(OWNER_GRACE_S) {
        0 => c.timers.clear(Timer::Owner(id)),
        seconds => c.timers.set(Timer::Owner(id), now + Span::from_secs(seconds)),
    }
}

/// Ends an allocation because its client's connection has ended, or has not been made again in time after a restart of
/// the controller.
pub(crate) fn abandon(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    // because the record may have been removed before the client left
    let Some(job) = c.state.jobs.get(&id) else { return };
    let state = EndState::Cancelled { by: job.owner.uid };
    match job.phase {
        Phase::Pending => end_pending(c, now, Item { id, array: false }, state, None, out),
        // The client of `salloc --no-shell` leaves on purpose: the allocation stays until it is cancelled or its time
        // is up.
        Phase::Running(_) if job.spec.options.no_shell => {}
        Phase::Running(_) => end_running(c, now, id, state, None, out),
        Phase::Completing(..) | Phase::Ended(_) | Phase::Leased(_) => {}
    }
}

/// Sends a job the signal of `--signal`, which is due some time before the job's time limit.
fn warn(c: &mut Controller, id: JobId) {
    let Some(signal) = c.state.jobs.get(&id).filter(|job| job.is_running()).and_then(|job| job.spec.signal) else {
        // because the job may have ended in the same turn
        return;
    };
    let target = if signal.batch_only { SignalTarget::Batch } else { SignalTarget::Steps };
    notice::signal_all(c, id, target, signal.signal);
}

/// Ends a pending job, or all tasks of an array that are still part of the array's record.
pub(crate) fn end_pending(
    c: &mut Controller,
    now: Time,
    item: Item,
    state: EndState,
    reason: Option<String>,
    out: &mut Out,
) {
    let Some(pending) = pending::pending(&c.state, item) else {
        return invariant!("what ends before its start is pending");
    };
    let outcome = Outcome { state, exit: ExitCode::OK, reason };
    let event = match pending.array {
        Some(array) => Event::TasksEnded { array: item.id, tasks: array.tally.untouched.clone(), outcome },
        None => Event::JobEnding { id: item.id, outcome, requeue: None },
    };
    c.commit(now, event, out);
}

/// Decides the end of a running job.
pub(crate) fn end_running(
    c: &mut Controller,
    now: Time,
    id: JobId,
    state: EndState,
    requeue: Option<Requeue>,
    out: &mut Out,
) {
    if c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
        let outcome = Outcome { state, exit: ExitCode::OK, reason: None };
        c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    }
}

/// Examines all pending jobs and arrays that are marked for examination, and gives each its queue position or records
/// why it can't start.
pub(crate) fn enter_all(c: &mut Controller, now: Time, out: &mut Out) {
    while let Some(item) = c.queue.dirty.pop_first() {
        let entered = c.queue.enter(&c.state, &mut c.timers, now, item);
        // because most of what is examined has just started or ended
        let Some(pending) = pending::pending(&c.state, item) else { continue };
        if pending.spec.dependency.is_none() {
            continue;
        }
        let met = || pending.verdict(&c.state, &c.queue.names) == Verdict::Holds;
        let free = pending.standing.hold == Hold::No && pending.standing.independent.is_none();
        if free && met() {
            let change = JobChange { independent: Some(true), ..JobChange::default() };
            c.commit(now, Event::JobUpdated { id: item.id, change, whole: item.array }, out);
            continue;
        }
        if !pending.spec.kill_on_invalid_dep.unwrap_or(c.state.config.kill_invalid_depend) {
            continue;
        }
        let state = EndState::Cancelled { by: pending.owner.uid };
        let why = Some("DependencyNeverSatisfied".to_owned());
        if entered == Entered::Hopeless {
            end_pending(c, now, item, state, why, out);
        } else if item.array {
            let tasks = pending::condemned_tasks(&c.state, item.id);
            if !tasks.is_empty() {
                let outcome = Outcome { state, exit: ExitCode::OK, reason: why };
                c.commit(now, Event::TasksEnded { array: item.id, tasks, outcome }, out);
            }
        }
    }
}

/// Returns the configured rules of scheduling passes.
pub(crate) fn rules(config: &Config) -> Rules {
    let parameters = &config.scheduler_parameters;
    let kept = parameters.kept();
    let discipline = match config.scheduler_type {
        SchedulerType::Builtin => Discipline::Fifo,
        SchedulerType::Backfill if kept == 1 => Discipline::Easy,
        SchedulerType::Backfill => Discipline::Conservative,
    };
    Rules { discipline, depth: parameters.depth(), kept }
}

/// Makes one scheduling pass: starts the jobs that the policy chooses, and preempts jobs for them. Returns whether it
/// preempts any.
pub(crate) fn schedule(c: &mut Controller, now: Time, out: &mut Out) -> bool {
    c.queue.look_around(&c.state, now);
    await_completion(c, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let config = &c.state.config;
    let mut room = Nodes::new(&sight, &mut c.scratch, now, config.scheduler_parameters.window());
    let plan = squall_sched::plan(&sight, &mut room, rules(config));
    c.diag.cycles += 1;
    c.diag.cycle_depth_total += plan.looked_at;
    c.diag.queue_length = c.state.index.pending;
    let looks = Looks { depth: plan.behind, tried: plan.tried, times: c.scratch.times() };
    c.diag.backfill.pass(now, looks, plan.backfilled, c.state.index.pending);
    for skip in plan.skips {
        c.queue.park(&c.state, skip);
    }
    let concerns = c.state.index.tallies.budgets && c.state.index.active + c.state.index.pending > 0;
    if concerns && c.timers.time(Timer::Budgets).is_none() {
        c.timers.set(Timer::Budgets, now + BUDGETS_EVERY);
    }
    c.queue.set_heads(&c.state, &plan.heads);
    // A job that had resources reserved in one partition and started in another no longer delays others there.
    let kept = || {
        let reserved = plan.reserved.iter().map(|kept| (kept.item, kept.partition));
        plan.heads.iter().map(|head| (head.item, head.partition)).chain(reserved)
    };
    let moved = |start: &Start| kept().any(|(item, partition)| item == start.item && partition != start.partition);
    let moved = c.state.partitions.len() > 1 && plan.starts.iter().any(moved);
    // A job for which resources are reserved may get other resources now that a job behind it has started; then another
    // job may start here. With a single reservation that is rare, and the next pass finds it.
    let several = c.state.config.scheduler_parameters.kept() > 1;
    let again = moved || (several && plan.backfilled > 0);
    for mut start in plan.starts {
        let others = std::mem::take(&mut start.given.others);
        for start in std::iter::once(start).chain(others) {
            begin(c, now, start, out);
        }
    }
    let preempts = !plan.evictions.is_empty();
    for eviction in plan.evictions {
        preempt::evict(c, now, eviction.victim, out);
    }
    // Starts and releases of this pass do not need another pass; jobs that may start because of them do.
    c.queue.kick = again;
    preempts
}

fn begin(c: &mut Controller, now: Time, start: Start, out: &mut Out) {
    let Item { id, array } = start.item;
    let id = if array { pending::next_task(&c.state, id) } else { Some(id) };
    let Some(id) = id else { return invariant!("a plan starts no more tasks than an array has") };
    let attempt = c.state.jobs.get(&id).map_or(Attempt(0), |job| job.attempt);
    let Some(Partition { config, .. }) = c.state.partitions.get(start.partition) else {
        return invariant!("a plan starts jobs in partitions that there are");
    };
    let (partition, bills) = (config.name.clone(), !config.tres_billing_weights.is_empty());
    let Given { alloc, gres, slot, .. } = start.given;
    c.commit(now, Event::JobStarted { id, attempt: Attempt(attempt.0 + 1), partition, alloc }, out);
    if !gres.is_empty() {
        c.commit(now, Event::GresGranted { job: id, step: None, grants: gres }, out);
    }
    if bills {
        billing::record(c, now, id, out);
    }
    if let Some(slot) = slot {
        gang::enter(c, now, id, slot, out);
    }
    reboot::before_job(c, now, id, out);
}

/// Sends nodes the start of jobs that started in this turn.
pub(crate) fn send_starts(c: &mut Controller) {
    for id in std::mem::take(&mut c.todo.starting) {
        // because the end of the job may be decided in the same turn, or the controller's prolog runs first
        let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running() || job.is_leased()) else { continue };
        let Some(run) = job.run().filter(|run| !run.configures()) else { continue };
        let mut nodes = run.left.clone();
        let Some(facts) = facts::facts(&c.state, id).map(Arc::new) else {
            invariant!("a job that starts has resources");
            continue;
        };
        // The script goes to the first node only; if checkpoints contain the job's steps, the others get a keeper of these.
        let kept: Vec<NodeId> = if facts.inside == Some(true) { nodes.iter().collect() } else { Vec::new() };
        for node in batch_node(job).into_iter().chain(kept) {
            if nodes.remove(node) {
                let message = start_message(c, Arc::clone(&facts), id, node);
                c.links.extend(node, message);
            }
        }
        if !nodes.is_empty() {
            c.links.put(&nodes, Down::StartJob { facts, batch: None });
        }
    }
}

/// Returns the node on which a running job's script runs.
fn batch_node(job: &Job) -> Option<NodeId> {
    job.run().filter(|_| job.spec.kind == JobKind::Batch)?.batch_node()
}

/// Returns the start message for a node that a job holds: `StartJob`, with the script for the job's first node.
pub(crate) fn start_message(c: &Controller, facts: Arc<JobFacts>, id: JobId, node: NodeId) -> Option<Down> {
    let job = c.state.jobs.get(&id)?;
    let run = job.run()?;
    let begins = batch_node(job) == Some(node) || facts.inside == Some(true);
    let waits = begins && programs::are_awaited(c, id);
    let share = run.alloc.on(node).filter(|_| begins && !waits);
    let kill_wait_s = c.state.config.kill_wait_s;
    // A job behind others in a line waits for them at the node, even if it is recorded as begun: a daemon that died may
    // have forgotten how the earlier ones ended.
    let leased = job.is_leased() || c.state.is_behind(id, &run.alloc);
    let report = job.spec.options.get().and_then(|options| options.report).unwrap_or(c.state.config.job_report);
    let batch = share.map(|share| BatchStart { node, cores: share.cores.clone(), kill_wait_s, leased, report });
    Some(Down::StartJob { facts, batch })
}

/// Sends nodes the order to end the jobs for which the end was decided in this turn.
pub(crate) fn send_ends(c: &mut Controller) {
    while let Some(id) = c.todo.ending.pop_first() {
        // because every node may have released the job in the same turn
        let Some(Phase::Completing(run, _)) = c.state.jobs.get(&id).map(|job| &job.phase) else { continue };
        let nodes = run.left.clone();
        if let Some(message) = end_message(c, id) {
            c.links.put(&nodes, message);
        }
    }
}

/// Sends the order to end a job to the nodes that the running job has given back.
pub(crate) fn send_leaves(c: &mut Controller) {
    while let Some(id) = c.todo.leaving.pop_first() {
        let gone = c.state.jobs.get(&id).and_then(|job| job.run()).map(|run| run.leaving.nodes()).unwrap_or_default();
        let (failed, others): (Vec<NodeId>, Vec<NodeId>) = gone.iter().partition(|node| is_down(c, *node));
        for nodes in [failed, others] {
            if let Some(message) = nodes.first().and_then(|node| leave_message(c, id, *node)) {
                c.links.put(&nodes.into_iter().collect(), message);
            }
        }
    }
}

fn is_down(c: &Controller, node: NodeId) -> bool {
    c.state.node(node).is_some_and(|node| node.admin == NodeAdmin::Down)
}

/// Returns the order to end a job on a node that the running job has given back. On a node that was set down its
/// processes are killed at once.
pub(crate) fn leave_message(c: &Controller, id: JobId, node: NodeId) -> Option<Down> {
    let attempt = JobAttempt { job: id, attempt: c.state.jobs.get(&id)?.attempt };
    Some(Down::EndJob {
        job: attempt,
        kill_wait_s: if is_down(c, node) { 0 } else { c.state.config.kill_wait_s },
        cont: true,
        why: EndReason::None,
        exit: None,
    })
}

/// Stops the processes of suspended jobs on nodes that have come back, and continues there those of resumed jobs.
pub(crate) fn send_stops(c: &mut Controller) {
    while let Some((id, node)) = c.todo.stopping.pop_first() {
        // The time slices of a job in the gang scheduling matrix stop and continue its processes.
        let shares = c.state.gang.contains_key(&id);
        // because the job may have ended in the same turn, or is stopped by its time slices
        let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running() && !shares) else { continue };
        let suspended = job.run().is_some_and(|run| run.suspended.is_some());
        let signal = if suspended { notice::STOP } else { notice::CONT };
        let job = JobAttempt { job: id, attempt: job.attempt };
        c.links.push(node, Down::Signal { job, target: SignalTarget::Full, signal });
    }
}

/// Returns the message that ends a completing job on its nodes. Stopped processes are continued, as they would not get
/// the SIGTERM otherwise. A job that goes back to a checkpoint is killed at once.
pub(crate) fn end_message(c: &Controller, id: JobId) -> Option<Down> {
    let job = c.state.jobs.get(&id)?;
    let Phase::Completing(_, ending) = &job.phase else { return None };
    if is_vacated(ending) {
        let job = JobAttempt { job: id, attempt: job.attempt };
        return Some(Down::EndJob { job, kill_wait_s: 0, cont: false, why: EndReason::None, exit: None });
    }
    let requeued = ending.requeue.is_some() && ending.outcome.state != EndState::Preempted;
    let why = match () {
        () if is_by_itself(ending) => EndReason::RequeuesItself,
        () if requeued => EndReason::Requeued,
        () if is_unsaved(ending) => EndReason::Unsaved,
        () => end_reason(ending.outcome.state),
    };
    let attempt = JobAttempt { job: id, attempt: job.attempt };
    let config = &c.state.config;
    let has_epilog = !config.hooks.epilog.is_empty() || !config.slurm.plugstack.is_empty();
    let exit = has_epilog.then_some(ending.outcome.exit);
    // What a job does after its checkpoint is undone. A signal TERM would only have it remove what the checkpoint needs.
    let back = requeued && job.restore().is_some();
    let kill_wait_s = if back { 0 } else { config.kill_wait_s };
    Some(Down::EndJob { job: attempt, kill_wait_s, cont: !back, why, exit })
}

fn end_reason(state: EndState) -> EndReason {
    match state {
        EndState::Cancelled { .. } => EndReason::Cancelled,
        EndState::Timeout | EndState::Deadline => EndReason::TimeLimit,
        EndState::NodeFail | EndState::BootFail => EndReason::NodeFail,
        EndState::Preempted => EndReason::Preempted,
        EndState::Requeued => EndReason::Requeued,
        EndState::Completed | EndState::Failed | EndState::OutOfMemory => EndReason::None,
    }
}

/// Answers clients that wait for the start or end of this job or array.
pub(crate) fn tell(c: &mut Controller, id: JobId, out: &mut Out) {
    tell_owner(c, id, out);
    checkpoint::settle(c, id, out);
    if c.waits.ends.is_empty() {
        return;
    }
    let size = c.state.arrays.get(&id).map_or(1, Array::size);
    let waited: Vec<JobId> = c.waits.ends.range(id..JobId(id.0.saturating_add(size))).map(|(&id, _)| id).collect();
    for id in waited {
        // because the job may still wait or run
        let Some(outcome) = outcome_of(&c.state, id) else { continue };
        for caller in c.waits.ends.remove(&id).unwrap_or_default() {
            out.answers.push((caller, Answer::JobDone { job: id, outcome: outcome.clone() }));
        }
    }
}

/// Tells the client that owns an allocation when it runs, or when it has ended without a request of that client.
fn tell_owner(c: &mut Controller, id: JobId, out: &mut Out) {
    let waits = programs::are_awaited(c, id);
    // because no client owns most jobs
    let Some(owning) = c.waits.owners.get_mut(&id) else { return };
    let caller = owning.caller;
    let told = owning.told;
    let Some(job) = c.state.jobs.get(&id) else {
        c.waits.disown(id);
        return;
    };
    match &job.phase {
        Phase::Running(_) if !told && !waits => {
            owning.told = true;
            c.timers.clear(Timer::Immediate(id));
            let answer = facts::facts(&c.state, id).map(|facts| Answer::Allocated(Box::new(facts)));
            out.answers.extend(answer.map(|answer| (caller, answer)));
        }
        Phase::Completing(_, ending) => {
            let outcome = ending.outcome.clone();
            c.waits.disown(id);
            let answer = if told { Answer::JobDone { job: id, outcome } } else { Answer::Refused(Refusal::Revoked) };
            out.answers.push((caller, answer));
        }
        Phase::Ended(ended) => {
            let outcome = ended.outcome.clone();
            c.waits.disown(id);
            let answer = if told { Answer::JobDone { job: id, outcome } } else { Answer::Refused(Refusal::Revoked) };
            out.answers.push((caller, answer));
        }
        Phase::Running(_) | Phase::Pending | Phase::Leased(_) => {}
    }
}

/// Returns every job that holds resources on a node.
pub(crate) fn jobs_on(c: &Controller, node: NodeId) -> BTreeSet<JobId> {
    c.state.node(node).map(|node| node.jobs.clone()).unwrap_or_default()
}
