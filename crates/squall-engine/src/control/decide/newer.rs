//! Detects that a node has seen a newer state of the controller, because this state was restored from a backup.

use std::collections::BTreeSet;

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Epoch, JobId, NodeId, Session};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::Newer;
use squall_model::wire::node::Registration;

use crate::control::controller::Controller;
use crate::control::effects::{nodes, work};
use crate::control::port::{LinkId, Out};
use crate::control::state::State;
use crate::control::state::job::Phase;

/// Prefix of the drain reason for a node that runs jobs unknown to a restored state.
const REASON: &str = "Runs jobs that the restored state does not know: ";

/// Whether a node registers for the first time since the state was restored from a backup. What it knows and the state
/// does not is then explained.
pub(crate) fn is_from_before(state: &State, said: &Registration) -> bool {
    state.restored.is_some_and(|(_, epoch)| said.heard.epoch < epoch)
}

/// Returns what in a registration contradicts the state: a job id that was never assigned here, or an attempt after the
/// latest one here. Epochs do not show it: a restart and a restoration from a copy both raise the same epoch by one.
pub(crate) fn contradiction(c: &Controller, said: &Registration) -> Option<Newer> {
    if c.accepts_loss || is_from_before(&c.state, said) {
        return None;
    }
    let node = c.state.ever_id(&said.name);
    // The first registration of a node is compared with the ids of earlier incarnations.
    let met = node.is_some_and(|node| c.met.contains(node));
    let last = if met { c.state.last_id } else { c.began_after };
    let last_job = said.jobs.iter().map(|job| job.job).max().unwrap_or_default().max(said.last_job);
    let later = |job: &JobAttempt| c.state.jobs.get(&job.job).is_some_and(|known| job.attempt > known.attempt);
    let reason = node.and_then(|node| c.state.node(node)?.reason.as_ref());
    let is_known = reason.is_some_and(|reason| reason.text.starts_with(REASON));
    let newer = c.state.is_ahead(last_job, last) || said.jobs.iter().any(later) && !is_known;
    let session = Session { epoch: Epoch(c.state.epoch.0.saturating_sub(1)), number: 0 };
    newer.then(|| Newer { name: said.name.clone(), session, last_job })
}

/// Handles a node's report of a newer controller. With `--accept-loss` this controller goes on with a higher epoch and
/// higher ids than the node has seen. Otherwise it decides nothing more and ends.
pub(crate) fn contradicted(c: &mut Controller, now: Time, newer: &Newer, out: &mut Out) {
    // Other sessions were offered by this controller or by an older one.
    if newer.session <= c.links.newest_session() {
        return;
    }
    if !c.accepts_loss {
        out.newer = Some(newer.clone());
        return;
    }
    let (epoch, version) = (Epoch(newer.session.epoch.0 + 1), c.version.clone());
    c.commit(now, Event::ControllerStarted { epoch, version }, out);
    lose_ids(c, now, newer.last_job, out);
    // Sessions belong to an epoch, so all nodes must register again.
    c.links.begin(epoch);
    let links: Vec<LinkId> = c.links.children().collect();
    for link in links {
        out.drops.push(link);
        nodes::child_closed(c, link);
    }
}

/// Marks the job ids up to the last one that a node has seen as used, so that none of them is assigned again.
fn lose_ids(c: &mut Controller, now: Time, last: JobId, out: &mut Out) {
    let last = last.min(JobId(*c.state.config.job_ids().end()));
    if c.state.is_ahead(last, c.state.last_id) {
        c.commit(now, Event::IdsLost { last }, out);
    }
}

/// Returns those jobs of a node that are missing in the state or have only an earlier attempt there, as the state comes
/// from a backup. They are left alone and run to their end; the node is drained with a reason that names them.
pub(crate) fn unknown(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    said: &Registration,
    out: &mut Out,
) -> BTreeSet<JobAttempt> {
    if c.accepts_loss || is_from_before(&c.state, said) {
        lose_ids(c, now, said.last_job, out);
    }
    let all: BTreeSet<JobAttempt> = said.jobs.iter().copied().filter(|job| is_unknown(&c.state, *job)).collect();
    if all.is_empty() {
        return all;
    }
    for JobAttempt { job, .. } in &all {
        if c.state.jobs.get(job).is_some_and(|job| job.is_pending()) {
            c.commit(now, Event::JobHeld { id: *job, admin: true, whole: false }, out);
        }
    }
    let ids: Vec<String> = all.iter().map(|job| job.job.to_string()).collect();
    let reason = Some(format!("{REASON}{}", ids.join(",")));
    let known = c.state.node(node).and_then(|node| node.reason.as_ref()).map(|reason| &reason.text);
    if known != reason.as_ref() {
        let (nodes, admin) = (NodeSet::one(node), NodeAdmin::Drain);
        c.commit(now, Event::NodesSet { nodes, admin, reason, by: 0 }, out);
    }
    all
}

/// Holds jobs that ran on a node when the backup was made, and that the node does not report: they may have ended since.
/// The node is then taken from them, and they wait held if they may be requeued. Returns until when they began, if the
/// node registers for the first time since the restoration.
pub(crate) fn hold_missing(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    said: &Registration,
    out: &mut Out,
) -> Option<Time> {
    let until = c.state.restored.filter(|_| is_from_before(&c.state, said)).map(|(time, _)| time + Span(1))?;
    for id in work::jobs_on(c, node) {
        let Some(job) = c.state.jobs.get(&id) else { continue };
        let attempt = JobAttempt { job: id, attempt: job.attempt };
        if matches!(&job.phase, Phase::Running(run) if run.start < until && !run.configures())
            && !said.jobs.contains(&attempt)
        {
            c.commit(now, Event::JobHeld { id, admin: false, whole: false }, out);
        }
    }
    Some(until)
}

fn is_unknown(state: &State, attempt: JobAttempt) -> bool {
    let lost = |id: JobId| state.lost_ids.range(..=id).next_back().is_some_and(|(_, last)| id <= *last);
    match state.jobs.get(&attempt.job) {
        Some(job) => attempt.attempt > job.attempt,
        None => lost(attempt.job),
    }
}
