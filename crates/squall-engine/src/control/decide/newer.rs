//! What nodes know and the state does not, because it was restored from a backup, or is an old copy.
//!
//! A node that registers for the first time since a restoration may know more; that is expected. Any other node that
//! knows more says that this state is old. One machine may lie or err, so its word changes nothing but that machine: the
//! node is drained and gets no session. Only if more than half of the registered nodes say so, each on its own
//! connection, does the controller end; with `--accept-loss` it takes an epoch above theirs.

use std::collections::BTreeSet;

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Epoch, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::Newer;
use squall_model::wire::node::Registration;

use crate::control::controller::Controller;
use crate::control::decide::notes;
use crate::control::effects::nodes::{self, AHEAD, Loss};
use crate::control::effects::{notice, work};
use crate::control::port::{LinkId, Out};
use crate::control::state::State;
use crate::control::state::job::{Job, Phase};

/// Prefix of the drain reason for a node that runs jobs unknown to a restored state.
const REASON: &str = "Runs jobs that the restored state does not know: ";

/// Most jobs that are named in that reason.
const IDS_NAMED: usize = 100;

/// Job ids above the last one that a node knows, after a restoration, which others may know: more than a large array has.
const IDS_ABOVE: u32 = 2000;

/// Number of epochs above its own up to which a controller believes that there was one: many more than it is started.
const EPOCHS_NEAR: u64 = 1 << 20;

/// How far ahead of its clock a controller believes an epoch that was drawn from a clock.
const CLOCKS_APART: Span = Span::from_secs(86_400);

/// Whether a node registers for the first time since the state was restored from a backup. What it knows and the state
/// does not is then explained.
pub(crate) fn is_from_before(state: &State, said: &Registration) -> bool {
    state.ever_id(&said.name).map_or(state.restored.is_some(), |id| state.is_unmet(id))
}

/// Returns what in a registration contradicts the state: a job id that was never assigned here, or an attempt after the
/// latest one here. Epochs do not show it: a restart and a copy that is started both raise the same epoch by one.
pub(crate) fn contradiction(c: &Controller, said: &Registration) -> Option<Newer> {
    if is_from_before(&c.state, said) {
        return None;
    }
    let last_job = last_job(said);
    let node = c.state.ever_id(&said.name);
    // The first registration of a node is compared with the ids of earlier incarnations.
    let met = node.is_some_and(|node| c.met.contains(node));
    let last = if met { c.state.last_id } else { c.began_after };
    let later = |job: &JobAttempt| c.state.jobs.get(&job.job).is_some_and(|known| job.attempt > known.attempt);
    let reason = node.and_then(|node| c.state.node(node)?.reason.as_ref());
    let is_known = reason.is_some_and(|reason| reason.text.starts_with(REASON));
    let newer = c.state.is_ahead(last_job, last) || said.jobs.iter().any(later) && !is_known;
    let session = Session { epoch: Epoch(c.state.epoch.0.saturating_sub(1)), number: 0 };
    newer.then(|| Newer { name: said.name.clone(), session, last_job })
}

/// Returns the highest job id that a registering node knows.
fn last_job(said: &Registration) -> JobId {
    said.jobs.iter().map(|job| job.job).max().unwrap_or_default().max(said.last_job)
}

/// Handles a node's answer that it has heard a newer session than the one it was offered.
pub(crate) fn heard_newer(c: &mut Controller, now: Time, link: LinkId, newer: &Newer, out: &mut Out) {
    // Other sessions were offered by this controller or by an older one.
    if newer.session > c.links.newest_session() {
        doubted(c, now, link, newer, out);
    }
}

/// Handles a node's word that it knows of a newer state. It counts on the node's own connection only, as one machine of
/// the tree does not speak for others. The node gets no offer until it comes on one, which it does after some seconds.
pub(crate) fn doubted(c: &mut Controller, now: Time, link: LinkId, newer: &Newer, out: &mut Out) {
    // because a node that only the newer state has does not count here
    let Some(node) = c.state.node_id(&newer.name) else { return };
    if !c.links.is_own(link, &newer.name) {
        c.doubts.entry(node).or_default();
        return;
    }
    if c.links.get(node).is_some() {
        c.links.forget(node);
        notice::refresh(c, node);
    }
    let reason = format!(
        "{AHEAD} (epoch {}, job {}): if this node alone says so, remove its folder node/{} and start its daemon again; if \
         others do, restore the newest backup",
        newer.session.epoch.0, newer.last_job, newer.name
    );
    notes::drain(c, now, node, reason, out);
    if c.doubts.insert(node, Some(newer.clone())).flatten().is_none() {
        judge(c, now, out);
    }
}

/// Whether a node that asks to register must come on a connection of its own, as one of another machine said that it
/// knows of a newer state.
pub(crate) fn must_come_itself(c: &Controller, link: LinkId, name: &str) -> bool {
    !c.links.is_own(link, name) && c.state.node_id(name).is_some_and(|node| c.doubts.contains_key(&node))
}

/// Ends this controller if more than half of the registered nodes know of a newer state. With `--accept-loss` it takes an
/// epoch above the one that more than half of them have heard, if that can be.
fn judge(c: &mut Controller, now: Time, out: &mut Out) {
    let is_registered = |id: &NodeId| c.state.node(*id).is_some_and(|node| node.incarnation.is_some());
    let none = !c.state.present().any(|id| is_registered(&id));
    let counts = |id: &NodeId| none || is_registered(id);
    let all = c.state.present().filter(counts).count();
    let said = c.doubts.iter().filter(|(id, _)| counts(id));
    let mut said: Vec<&Newer> = said.filter_map(|(_, newer)| newer.as_ref()).collect();
    said.sort_unstable_by_key(|newer| std::cmp::Reverse(newer.session));
    // because fewer than half of the nodes may have said so
    let Some(newer) = said.get(all / 2).map(|newer| (*newer).clone()) else { return };
    let believed = c.state.epoch.0.saturating_add(EPOCHS_NEAR).max((now + CLOCKS_APART).0);
    let above = newer.session.epoch.max(c.state.epoch).0.checked_add(1).filter(|epoch| *epoch <= believed);
    let Some(epoch) = above.map(Epoch).filter(|_| c.accepts_loss) else {
        out.newer = Some(newer);
        return;
    };
    let version = c.version.clone();
    c.commit(now, Event::ControllerStarted { epoch, version }, out);
    nodes::trust_again(c, now, out);
    // Sessions belong to an epoch, so all nodes must register again.
    c.links.begin(epoch);
    let links: Vec<LinkId> = c.links.children().collect();
    for link in links {
        out.drops.push(link);
        nodes::child_closed(c, link);
    }
}

/// Marks the job ids up to the last one that a node has seen, and some above it, as used, so that none of them is
/// assigned again. A node is believed an eighth of all ids: it moves the next one, and nothing else.
fn lose_ids(c: &mut Controller, now: Time, last: JobId, out: &mut Out) {
    let end = *c.state.config.job_ids().end();
    if c.state.is_ahead(last.min(JobId(end)), c.state.last_id) {
        let last = JobId(last.0.saturating_add(IDS_ABOVE).min(end));
        c.commit(now, Event::IdsLost { last }, out);
    }
}

/// Returns those jobs of a node that are missing in the state or have only an earlier attempt there, as the state comes
/// from a backup. They are left alone and run to their end; the node is drained with a reason that names them. `unmet`:
/// the node registers for the first time since the restoration.
pub(crate) fn unknown(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    (said, unmet): (&Registration, bool),
    out: &mut Out,
) -> BTreeSet<JobAttempt> {
    if unmet {
        lose_ids(c, now, last_job(said), out);
    }
    let all: BTreeSet<JobAttempt> = said.jobs.iter().copied().filter(|job| is_unknown(&c.state, *job)).collect();
    if all.is_empty() {
        return all;
    }
    // Only jobs of the backup can run without its knowledge. A node that has registered since has said all that it may.
    let since = c.state.restored.filter(|_| unmet).map(|(time, _)| time);
    for JobAttempt { job, .. } in &all {
        let waits = |job: &Job| job.is_pending() && since.is_some_and(|since| job.submit <= since);
        if c.state.jobs.get(job).is_some_and(|job| waits(job)) {
            c.commit(now, Event::JobHeld { id: *job, admin: true, whole: false }, out);
        }
    }
    let ids: Vec<String> = all.iter().take(IDS_NAMED).map(|job| job.job.to_string()).collect();
    let more = if all.len() > IDS_NAMED { format!(" and {} more", all.len() - IDS_NAMED) } else { String::new() };
    let reason = Some(format!("{REASON}{}{more}", ids.join(",")));
    let known = c.state.node(node).and_then(|node| node.reason.as_ref()).map(|reason| &reason.text);
    if known != reason.as_ref() {
        let (nodes, admin) = (NodeSet::one(node), NodeAdmin::Drain);
        c.commit(now, Event::NodesSet { nodes, admin, reason, by: 0 }, out);
    }
    all
}

/// Gives up the jobs that ran on a node when the backup was made, and that the node does not name: they may have ended
/// since. Called while the node counts as unmet, so jobs that may be requeued wait held.
pub(crate) fn give_up_missing(c: &mut Controller, now: Time, node: NodeId, said: &Registration, out: &mut Out) {
    for id in work::jobs_on(c, node) {
        let missing = c.state.jobs.get(&id).is_some_and(|job| c.state.is_doubtful(job) && !names(said, id, node, job));
        if missing {
            nodes::give_up(c, now, id, node, Loss::Restored, out);
        }
    }
}

/// Whether a registering node has a job's present attempt: its script if one runs there, otherwise anything of it.
fn names(said: &Registration, id: JobId, node: NodeId, job: &Job) -> bool {
    let attempt = JobAttempt { job: id, attempt: job.attempt };
    let script = StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH };
    let batch = match &job.phase {
        Phase::Running(run) => run.steps.get(&StepNo::BATCH),
        _ => None,
    };
    if batch.is_some_and(|step| step.left.contains(node)) {
        said.steps.contains(&script) || said.unstarted.contains(&attempt)
    } else {
        said.jobs.contains(&attempt)
    }
}

fn is_unknown(state: &State, attempt: JobAttempt) -> bool {
    let lost = |id: JobId| state.lost_ids.range(..=id).next_back().is_some_and(|(_, last)| id <= *last);
    match state.jobs.get(&attempt.job) {
        Some(job) => attempt.attempt > job.attempt,
        None => lost(attempt.job),
    }
}
