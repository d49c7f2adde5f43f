//! Programs around jobs that the start or end of a job waits for: `PrologSlurmctld` and `EpilogSlurmctld` on this host,
//! and prologs on nodes.
//!
//! Which programs of this host are owed follows from the state: a job that is configuring owes its prolog, a completing
//! job that no node holds owes its epilog. So a program that was cut off by a restart of the controller runs again.

use squall_model::event::{Event, Requeue};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, Outcome};
use squall_model::time::{Span, Time};
use squall_model::wire::hook::Hook;

use crate::control::controller::Controller;
use crate::control::index::facts;
use crate::control::port::{Out, Program};
use crate::control::state::State;
use crate::control::state::job::{Job, Phase};
use crate::control::state::node::Node;
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Delay before a job starts again after its `PrologSlurmctld` failed.
const RETRY: Span = Span::from_secs(30);
/// Word of `SchedulerParameters`: a job is not held because of prologs that fail.
const NO_HOLD: &str = "nohold_on_prolog_fail";

/// Returns the program that the host owes a job; None: none.
fn owed(state: &State, job: &Job) -> Option<Hook> {
    match &job.phase {
        Phase::Running(run) if run.configuring.is_some() => Some(Hook::PrologSlurmctld),
        Phase::Completing(run, _) if run.left.is_empty() && state.owes_epilog(job) => Some(Hook::EpilogSlurmctld),
        _ => None,
    }
}

/// Starts the programs that are owed to the jobs that changed. A program of a job waits for one that runs for it.
pub(crate) fn settle(c: &mut Controller, out: &mut Out) {
    while let Some(id) = c.todo.programs.pop_first() {
        // because the record may have been removed before the program ended
        let Some(job) = c.state.jobs.get(&id) else { continue };
        let attempt = JobAttempt { job: id, attempt: job.attempt };
        // because the job may owe no program, or one may still run for it
        let Some(hook) = owed(&c.state, job).filter(|_| !c.programs.running.contains(&id)) else { continue };
        let hooks = &c.state.config.hooks;
        let (paths, limit_s) = match hook {
            Hook::PrologSlurmctld => (hooks.prolog_slurmctld.clone(), hooks.prolog_limit_s()),
            _ => (hooks.epilog_slurmctld.clone(), hooks.epilog_limit_s()),
        };
        let exit = match &job.phase {
            Phase::Completing(_, ending) => Some(ending.outcome.exit),
            _ => None,
        };
        let derived = exit.map(|_| highest_exit(job));
        let Some(facts) = facts::facts(&c.state, id) else {
            invariant!("a job that owes a program has resources");
            continue;
        };
        c.programs.running.insert(id);
        out.programs.push(Program { hook, job: attempt, facts: Box::new(facts), paths, limit_s, exit, derived });
    }
}

/// Returns the highest exit code of a job's steps.
fn highest_exit(job: &Job) -> ExitCode {
    let steps = job.run().into_iter().flat_map(|run| run.steps.values());
    let exits = steps.filter_map(|step| step.tally.as_ref().map(|tally| tally.exit));
    exits.max().unwrap_or(ExitCode::OK)
}

/// Handles the end of a program of this host.
pub(crate) fn ended(
    c: &mut Controller,
    now: Time,
    (job, hook): (JobAttempt, Hook),
    error: Option<String>,
    out: &mut Out,
) {
    let JobAttempt { job: id, attempt } = job;
    c.programs.running.remove(&id);
    c.todo.programs.insert(id);
    // because the attempt may be over when its program ends
    let Some(found) = c.state.jobs.get(&id).filter(|found| found.attempt == attempt) else { return };
    if owed(&c.state, found) != Some(hook) {
        return;
    }
    match (hook, error) {
        (Hook::PrologSlurmctld, None) => c.commit(now, Event::JobConfigured { id, attempt }, out),
        (Hook::PrologSlurmctld, Some(error)) => {
            fail_start(c, now, id, None, format!("PrologSlurmctld error: {error}"), out);
        }
        // As in Slurm, the job has ended whatever its epilog says.
        _ => c.commit(now, Event::EpilogEnded { id, attempt }, out),
    }
}

/// Returns whether the start of a job's script, or of its `salloc`, waits for programs.
pub(crate) fn are_awaited(c: &Controller, id: JobId) -> bool {
    let Some(job) = c.state.jobs.get(&id) else { return false };
    let Phase::Running(run) = &job.phase else { return false };
    if run.configures() {
        return true;
    }
    if !c.state.config.hooks.are_awaited(job.spec.kind == JobKind::Batch) {
        return false;
    }
    let attempt = JobAttempt { job: id, attempt: job.attempt };
    let ready = c.programs.ready.get(&attempt);
    !ready.is_some_and(|ready| run.left.iter().all(|node| ready.contains(node)))
}

/// Records that a job's prolog has succeeded on a node. After the last one the job starts.
pub(crate) fn prolog_succeeded(c: &mut Controller, node: NodeId, attempt: JobAttempt) {
    let found = c.state.jobs.get(&attempt.job).filter(|found| found.attempt == attempt.attempt);
    if !found.is_some_and(|job| job.is_running()) || !are_awaited(c, attempt.job) {
        return;
    }
    c.programs.ready.entry(attempt).or_default().insert(node);
    if !are_awaited(c, attempt.job) {
        c.todo.starting.push(attempt.job);
        c.todo.touched.insert(attempt.job);
    }
}

/// Has a job sent to its nodes, after the prolog of this host.
pub(crate) fn configured(c: &mut Controller, id: JobId) {
    c.todo.starting.push(id);
    c.todo.touched.insert(id);
}

/// Takes note of a job that has started, that is ending, or that nodes have released.
pub(crate) fn changed(c: &mut Controller, id: JobId) {
    let hooks = &c.state.config.hooks;
    if !hooks.prolog_slurmctld.is_empty() || !hooks.epilog_slurmctld.is_empty() {
        c.todo.programs.insert(id);
    }
    if !c.programs.ready.is_empty() && !c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
        c.programs.ready.retain(|attempt, _| attempt.job != id);
    }
}

/// Ends a running job of which a prolog failed. A batch job is requeued; it avoids the node at fault, and is held if no
/// other node could run it.
pub(crate) fn fail_start(c: &mut Controller, now: Time, id: JobId, at: Option<NodeId>, reason: String, out: &mut Out) {
    // because the end of the job may be decided before its prolog fails
    let Some(job) = c.state.jobs.get(&id).filter(|job| matches!(job.phase, Phase::Running(_))) else { return };
    let forced = c.state.config.hooks.prolog_flags.force_requeue;
    let retry = job.spec.kind.goes_back() && (forced || may_requeue(&c.state, job));
    let parameters = &c.state.config.scheduler_parameters;
    let hold = at.is_some() && !parameters.has(NO_HOLD) && !has_other_node(&c.state, job);
    // A program of the controller's host would probably fail again at once.
    let not_before = at.is_none().then(|| now + RETRY);
    let requeue = retry.then_some(Requeue { hold, not_before, special: None, expedite: None });
    let exit = ExitCode { code: 1, signal: 0 };
    let outcome = Outcome { state: EndState::BootFail, exit, reason: Some(reason) };
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
}

/// Returns whether a node of the running job's partition accepts jobs.
fn has_other_node(state: &State, job: &Job) -> bool {
    let partition = job.run().and_then(|run| state.partition(&run.partition));
    let usable = |id: NodeId| state.node(id).is_some_and(Node::usable);
    partition.is_some_and(|partition| partition.nodes.iter().any(usable))
}
