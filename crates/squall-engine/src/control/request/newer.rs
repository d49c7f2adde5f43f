//! A node has heard a newer controller than this one: the state is of a backup.

use std::collections::BTreeSet;

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Epoch, JobId, NodeId};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::fabric::Newer;
use squall_model::wire::node::Registration;

use crate::control::drive::nodes;
use crate::control::state::State;
use crate::control::{Controller, LinkId, Out};

/// Goes on above all that the node has heard of, where that is wanted; otherwise nothing more is decided.
pub(super) fn contradicted(c: &mut Controller, now: Time, newer: &Newer, out: &mut Out) {
    // Others were offered by this one, or one that it knows of, before.
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
    // Sessions are of an epoch: all nodes come again.
    c.links.begin(epoch);
    let links: Vec<LinkId> = c.links.children().collect();
    for link in links {
        out.drops.push(link);
        nodes::child_closed(c, link);
    }
}

/// No id that a node has heard is given again.
fn lose_ids(c: &mut Controller, now: Time, last: JobId, out: &mut Out) {
    let last = last.min(JobId(*c.state.config.job_ids().end()));
    if last > c.state.last_id {
        c.commit(now, Event::IdsLost { last }, out);
    }
}

/// Those of a node's jobs of which the state knows nothing, or less than the node, because it is of a backup: they are
/// left alone and end by themselves. The node is drained, which says so.
pub(super) fn unknown(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    said: &Registration,
    out: &mut Out,
) -> BTreeSet<JobAttempt> {
    if c.accepts_loss {
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
    let reason = Some(format!("Runs jobs that the restored state does not know: {}", ids.join(",")));
    let known = c.state.node(node).and_then(|node| node.reason.as_ref()).map(|reason| &reason.text);
    if known != reason.as_ref() {
        let (nodes, admin) = (NodeSet::one(node), NodeAdmin::Drain);
        c.commit(now, Event::NodesSet { nodes, admin, reason, by: 0 }, out);
    }
    all
}

fn is_unknown(state: &State, attempt: JobAttempt) -> bool {
    let lost = |id: JobId| state.lost_ids.range(..=id).next_back().is_some_and(|(_, last)| id <= *last);
    match state.jobs.get(&attempt.job) {
        Some(job) => attempt.attempt > job.attempt,
        None => lost(attempt.job),
    }
}
