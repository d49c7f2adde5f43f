//! Registration of a node: compares the jobs and steps that the node reports with those that should be there.

use crate::control::index::leases::is_unwanted;
use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::config::LOW;
use squall_model::event::{Event, NodeAdmin};
use squall_model::hostlist::is_name;
use squall_model::id::{Incarnation, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, Outcome};
use squall_model::limits::SPACE_MB_MAX;
use squall_model::resource::Hardware;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::node::{Down, EndReason, Registration};

use crate::control::controller::Controller;
use crate::control::decide::newer;
use crate::control::decide::notes;
use crate::control::decide::upgrade;
use crate::control::effects::checkpoint;
use crate::control::effects::faults;
use crate::control::effects::gang;
use crate::control::effects::lease;
use crate::control::effects::members::farewell;
use crate::control::effects::nodes;
use crate::control::effects::nodes::Loss;
use crate::control::effects::notice;
use crate::control::effects::power;
use crate::control::effects::programs;
use crate::control::effects::queries;
use crate::control::effects::reboot;
use crate::control::effects::signals;
use crate::control::effects::steps;
use crate::control::effects::work;
use crate::control::index::facts;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Phase;
use crate::control::state::node::Node;
use crate::invariant::invariant;

/// Most CPUs that a node may report, and most sockets, cores and threads.
const CPUS_MAX: u32 = 1 << 16;

/// Handles a registration: a new session begins, and jobs from before a reboot of the node are lost.
pub(crate) fn register(c: &mut Controller, now: Time, said: &Registration, out: &mut Out) {
    // because only the newest offer counts; one to an earlier boot or by a dead connection does not
    let Some(offer) = c.links.take_offer(&said.name, said.session) else { return };
    if let Some(newer) = newer::contradiction(c, said) {
        return newer::doubted(c, now, offer.link(), &newer, out);
    }
    let id = match admit(&c.state, said) {
        Ok(id) => id,
        Err(reason) => return c.links.refuse((offer, said.name.clone()), reason),
    };
    c.met.insert(id);
    c.doubts.remove(&id);
    let before = c.state.node(id).and_then(|node| node.incarnation);
    let unmet = newer::is_from_before(&c.state, said);
    if unmet {
        newer::give_up_missing(c, now, id, said, out);
    }
    bury_earlier_life(c, now, id, said, out);
    let known = c.state.node(id);
    let same = known.is_some_and(|n| n.incarnation == Some(said.incarnation) && n.reported == said.hardware);
    if !same || unmet {
        let (name, hardware) = (said.name.clone(), said.hardware.clone());
        let incarnation = said.incarnation;
        c.commit(now, Event::NodeRegistered { node: id, name, incarnation, hardware }, out);
    }
    judge(c, now, id, said, out);
    return_to_service(c, now, id, (before, said.incarnation), out);
    c.links.welcome(id, (offer, said.name.clone()), (said.version.clone(), said.speaks));
    reboot::registered(c, now, id, before, out);
    let taken_until = queries::registered(c, now, id).filter(|_| same);
    give_up_forgotten(c, now, id, (said, taken_until), out);
    queries::met(c, id, said);
    queries::felt(c, id, &said.health);
    nodes::heard(c, now, id, out);
    nodes::watch(c, now, id);
    for key in &said.steps {
        lease::begun(c, now, *key, out);
    }
    let unknown = newer::unknown(c, now, id, (said, unmet), out);
    reconcile(c, id, said, &unknown);
    steps::registered(c, id, &said.steps);
    signals::registered(c, id);
    gang::registered(c, now, id);
    power::registered(c, now, id, out);
    faults::order(c, id);
    notice::refresh(c, id);
    c.queue.kick = true;
}

/// Returns the id of the registering node, or the reason why the node may not join.
fn admit(state: &State, said: &Registration) -> Result<NodeId, String> {
    if said.name.is_empty() || said.name.len() > squall_model::limits::HOSTNAME_BYTES_MAX {
        return Err("a node needs a name".to_owned());
    }
    if !is_name(&said.name) {
        return Err(format!("{} can't be the name of a node", said.name));
    }
    if said.hardware.cpus == 0 || said.hardware.cpus > CPUS_MAX {
        return Err(format!("{} CPUs can't be", said.hardware.cpus));
    }
    let Hardware { sockets, cores_per_socket, threads_per_core, memory_mb, tmp_disk_mb, .. } = &said.hardware;
    let each = [sockets, cores_per_socket, threads_per_core];
    if each.iter().try_fold(1_u32, |all, count| all.checked_mul((**count).max(1))).is_none_or(|all| all > CPUS_MAX) {
        return Err(format!("{sockets} sockets of {cores_per_socket} cores of {threads_per_core} threads can't be"));
    }
    if (*memory_mb).max(*tmp_disk_mb) > SPACE_MB_MAX {
        return Err(format!("{memory_mb} MiB of memory and {tmp_disk_mb} MiB of scratch space can't be"));
    }
    upgrade::admit(state, said)?;
    match state.ever_id(&said.name) {
        Some(id) if state.node(id).is_some_and(Node::is_gone) => Err(farewell(&said.name)),
        Some(id) => Ok(id),
        None if state.config.open => Ok(NodeId(state.nodes.len() as u32)),
        None => Err(format!("the configuration names no node {} and is not open to others", said.name)),
    }
}

/// Drains a node that has less hardware than is configured, with Slurm's reason. A node that was drained for that
/// reason and now has enough hardware accepts jobs again.
fn judge(c: &mut Controller, now: Time, id: NodeId, said: &Registration, out: &mut Out) {
    let lack = c.state.entry(id).and_then(|entry| entry.lack(&said.hardware));
    let Some(node) = c.state.node(id) else { return invariant!("a node that has registered is counted") };
    let reason = node.reason.as_ref().map_or("", |reason| reason.text.as_str());
    let drained_for_that = node.admin == NodeAdmin::Drain && reason.starts_with(LOW);
    let (admin, reason) = match lack {
        Some(lack) if node.admin == NodeAdmin::Resume => (NodeAdmin::Drain, Some(lack.reason)),
        None if drained_for_that => (NodeAdmin::Resume, None),
        // because the node has what it should have, or an operator has the last word
        _ => return,
    };
    c.commit(now, Event::NodesSet { nodes: NodeSet::one(id), admin, reason, by: 0 }, out);
}

/// Applies `ReturnToService` to a node that registers. With 0 and 1 a node that rebooted by itself is drained, with 2 a
/// node that is down is resumed.
fn return_to_service(
    c: &mut Controller,
    now: Time,
    id: NodeId,
    (before, incarnation): (Option<Incarnation>, Incarnation),
    out: &mut Out,
) {
    let Some(node) = c.state.node(id) else { return invariant!("a node that has registered is counted") };
    let by_itself = before.is_some_and(|before| before != incarnation) && node.reboot.is_none() && !node.sleeps();
    let (nodes, by) = (NodeSet::one(id), 0);
    match (c.state.config.health.return_to_service, node.admin) {
        (Some(0 | 1), NodeAdmin::Resume) if by_itself => {
            notes::drain(c, now, id, "Node unexpectedly rebooted".to_owned(), out);
        }
        (Some(2), NodeAdmin::Down) => {
            c.commit(now, Event::NodesSet { nodes, admin: NodeAdmin::Resume, reason: None, by }, out);
        }
        _ => {}
    }
}

/// Takes a rebooted node from the jobs that ran there before the reboot. A job fails by that unless it has `--no-kill`.
fn bury_earlier_life(c: &mut Controller, now: Time, id: NodeId, said: &Registration, out: &mut Out) {
    // because a node that is new has no earlier life
    let Some(node) = c.state.node(id) else { return };
    if node.incarnation.is_none_or(|incarnation| incarnation == said.incarnation) {
        return;
    }
    for job in work::jobs_on(c, id) {
        // No node was told of a job that waits for nodes to be powered up.
        if c.state.jobs.get(&job).and_then(|job| job.run()).is_some_and(|run| run.booting.is_some()) {
            continue;
        }
        never_began(c, now, job, said, out);
        nodes::give_up(c, now, job, id, Loss::Restarted, out);
    }
    c.strays.remove(&id);
}

/// Records that a job's script was on the node when it restarted and certainly had not begun. The job's next attempt
/// then counts as its first run.
fn never_began(c: &mut Controller, now: Time, id: JobId, said: &Registration, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job on a node is known") };
    let attempt = JobAttempt { job: id, attempt: job.attempt };
    if matches!(job.phase, Phase::Running(_)) && said.unstarted.contains(&attempt) {
        let reason = Some(format!("node restarted before it began: {}", said.name));
        let outcome = Outcome { state: EndState::NodeFail, exit: ExitCode::OK, reason };
        c.commit(now, Event::StepAbandoned { job: id, step: StepNo::BATCH, outcome }, out);
    }
}

/// Gives up jobs with a script that the node received and no longer reports, as nothing shows whether the script ran. A
/// heartbeat that was sent after the script was answered, so the node had received it. Remains of the script were
/// removed before the node registered. A script that the node reports as unstarted is sent again, as is one that the
/// node may not have received.
fn give_up_forgotten(
    c: &mut Controller,
    now: Time,
    id: NodeId,
    (said, taken_until): (&Registration, Option<Time>),
    out: &mut Out,
) {
    // because the node may have answered nothing in its session before, or have rebooted
    let Some(until) = taken_until else { return };
    for job in work::jobs_on(c, id) {
        if programs::are_awaited(c, job) {
            // The script was not sent.
            continue;
        }
        let found = c.state.jobs.get(&job).map(|found| (found.attempt, &found.phase));
        // because the node forgets a job whose end is decided, or that was only leased, without harm
        let Some((attempt, Phase::Running(run))) = found else { continue };
        let script = StepKey { job, attempt, step: StepNo::BATCH };
        let runs = run.steps.get(&StepNo::BATCH).is_some_and(|step| step.left.contains(id));
        let known = said.steps.contains(&script) || said.unstarted.contains(&JobAttempt { job, attempt });
        if runs && run.start < until && !known {
            nodes::give_up(c, now, job, id, Loss::Forgotten, out);
        }
    }
}

/// Returns the jobs of a node. Those in lines come last, in the order of their lines, so that the node queues them again
/// in that order.
fn in_line(c: &Controller, node: NodeId) -> Vec<JobId> {
    let mut jobs = work::jobs_on(c, node);
    let lines = c.state.lines_of(node).flat_map(|(_, members)| members.iter().copied());
    let lined: Vec<JobId> = lines.filter(|id| jobs.remove(id)).collect();
    jobs.into_iter().chain(lined).collect()
}

/// Sends a node the jobs and steps that it lacks, and orders to end those that should not be there.
fn reconcile(c: &mut Controller, id: NodeId, said: &Registration, unknown: &BTreeSet<JobAttempt>) {
    let known: BTreeSet<JobAttempt> = said.jobs.iter().copied().collect();
    let mut strays = known.clone();
    for job in in_line(c, id) {
        let Some(found) = c.state.jobs.get(&job) else {
            invariant!("a job on a node is known");
            continue;
        };
        let attempt = JobAttempt { job, attempt: found.attempt };
        strays.remove(&attempt);
        match &found.phase {
            Phase::Running(_) if c.state.leaves(job, id) => {
                let message = work::leave_message(c, job, id);
                c.links.extend(id, message);
            }
            Phase::Running(run) if run.configures() => {}
            Phase::Running(run) => {
                // The node may have missed a suspension or a resumption.
                if run.suspended.is_some() || run.suspended_total > Span(0) {
                    c.todo.stopping.insert((job, id));
                }
                // A node that lost its report of a failed launch reports the job without its script.
                let script = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
                let runs = run.steps.get(&StepNo::BATCH).is_some_and(|step| step.left.contains(id));
                if !known.contains(&attempt) || (runs && !said.steps.contains(&script)) {
                    let facts = facts::facts(&c.state, job);
                    let message = facts.and_then(|facts| work::start_message(c, Arc::new(facts), job, id));
                    c.links.extend(id, message);
                    c.todo.starting.retain(|starting| *starting != job);
                }
            }
            Phase::Completing(..) => {
                let message = work::end_message(c, job);
                c.links.extend(id, message);
            }
            // The job may have begun here, and even ended: the node decides whether it can still be recalled.
            Phase::Leased(_) if is_unwanted(&c.state, job) => c.links.push(id, Down::Recall { job: attempt }),
            Phase::Leased(_) if known.contains(&attempt) => {}
            Phase::Leased(_) => {
                let facts = facts::facts(&c.state, job);
                let message = facts.and_then(|facts| work::start_message(c, Arc::new(facts), job, id));
                c.links.extend(id, message);
                c.todo.starting.retain(|starting| *starting != job);
            }
            Phase::Pending | Phase::Ended(_) => {}
        }
    }
    checkpoint::again(c, id);
    // The node gets no new jobs before these have ended, as they occupy cores that the state counts as free.
    let kill_wait_s = c.state.config.kill_wait_s;
    for &job in strays.difference(unknown) {
        c.links.push(id, Down::EndJob { job, kill_wait_s, cont: true, why: EndReason::None, exit: None });
    }
    if strays.is_empty() {
        c.strays.remove(&id);
    } else {
        c.strays.insert(id, strays);
    }
}
