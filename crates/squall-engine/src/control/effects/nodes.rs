//! Nodes that stop responding, are lost, or come back.

use std::collections::BTreeSet;

use squall_model::config::NodeLostAction;
use squall_model::event::{Event, NodeAdmin, Requeue};
use squall_model::fault::FaultKind;
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, Outcome};
use squall_model::places::OnNodeFail;
use squall_model::report::StepEnd;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;

use crate::control::controller::Controller;
use crate::control::effects::billing;
use crate::control::effects::faults;
use crate::control::effects::fence;
use crate::control::effects::losses;
use crate::control::effects::queries;
use crate::control::effects::replace;
use crate::control::effects::restart;
use crate::control::effects::signals;
use crate::control::effects::steps;
use crate::control::effects::work;
use crate::control::index::timers::Timer;
use crate::control::net::queries::Purpose;
use crate::control::port::{CallerId, LinkId, Out};
use crate::control::state::State;
use crate::control::state::job::{Phase, Step};
use crate::control::state::node::Node;
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Reason text of a node that is down because of its silence.
pub(crate) const NOT_RESPONDING: &str = "Not responding";

/// Reason text of a lost node with jobs that wait for the node.
const JOBS_WAIT: &str = "Not responding: its jobs wait until it answers, restarts or is set DOWN";

/// SIGKILL on Linux.
const KILL: u8 = 9;

/// Prefix of the drain reason of a node that knows of a newer state than this one.
pub(crate) const AHEAD: &str = "Knows of a newer state";

/// Returns nodes to service that were drained because they know of a newer state: this one has taken an epoch above theirs.
pub(crate) fn trust_again(c: &mut Controller, now: Time, out: &mut Out) {
    c.doubts.clear();
    let is_doubted = |id: &NodeId| {
        let node = c.state.node(*id).filter(|node| node.admin == NodeAdmin::Drain);
        node.and_then(|node| node.reason.as_ref()).is_some_and(|reason| reason.text.starts_with(AHEAD))
    };
    let nodes: NodeSet = c.state.present().filter(is_doubted).collect();
    if !nodes.is_empty() {
        c.commit(now, Event::NodesSet { nodes, admin: NodeAdmin::Resume, reason: None, by: 0 }, out);
    }
}

/// Gives every node that is up or has jobs the usual time to report after a start of the controller.
pub(crate) fn watch_all(c: &mut Controller, now: Time) {
    for at in 0..c.state.nodes.len() {
        let id = NodeId(at as u32);
        let node = &c.state.nodes[at];
        let (up, busy) = (node.up, !node.jobs.is_empty());
        if up {
            let timeout = Span::from_secs(c.state.config.node_timeout_s).max(greeting_again(c));
            c.timers.set(Timer::Silent(id), now + timeout);
        }
        fence::watch(c, id);
        if busy {
            c.timers.set(Timer::Lost(id), now + Span::from_secs(c.state.config.node_lost_s));
        }
    }
}

/// Lateness from which on the controller doubts itself.
const LATE: Span = Span::from_secs(1);

/// Returns the time that nodes have at least to be heard after the controller was away: two heartbeats, and 10 s to connect
/// again.
fn greeting_again(c: &Controller) -> Span {
    Span(c.state.config.beat().0 * 2).max(Span::from_secs(10))
}

/// Counts no silence of others for the time in which this controller itself did not run, because its process or its machine
/// was stopped or starved: what they have sent meanwhile waits to be read. It knows that from how late it comes to what was
/// due.
pub(crate) fn doubt_itself(c: &mut Controller, now: Time) {
    // because it usually comes in time
    let Some(away) = c.queries.due.map(|due| now.since(due)).filter(|away| *away >= LATE) else { return };
    let (timeout, greeting, beat_wait) =
        (Span::from_secs(c.state.config.node_timeout_s), greeting_again(c), queries::beat_wait(c));
    c.links.excuse(now, away, (now + greeting) - timeout);
    c.timers.postpone(away, now + greeting, Timer::is_of_silence);
    steps::postpone(c, away);
    // An answer to a heartbeat from before still counts, and its absence does not.
    c.queries.asked.retain(|_, asked| !matches!(asked.purpose, Purpose::Beat));
    for asked in c.queries.asked.values_mut() {
        asked.until = (asked.until + away).max(now + beat_wait);
    }
}

/// Handles the end of the connection to a child in the tree: the nodes below it can't be reached for now.
pub(crate) fn child_closed(c: &mut Controller, link: LinkId) {
    queries::child_closed(c, link);
    for node in c.links.closed(link) {
        fence::watch(c, node);
        crate::control::effects::notice::refresh(c, node);
    }
}

/// Closes the connections of children in the tree that have sent nothing for too long.
pub(crate) fn drop_silent_children(c: &mut Controller, now: Time, out: &mut Out) {
    for link in c.links.silent(now) {
        out.drops.push(link);
        child_closed(c, link);
    }
}

/// Records that a node has reported. A node that was down because of silence is up again.
pub(crate) fn heard(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    c.links.hear(now, id);
    signals::heard(c, id);
    if c.state.node(id).is_some_and(Node::is_gone) {
        return;
    }
    if c.state.node(id).is_some_and(|node| !node.up) {
        c.commit(now, Event::NodeUp { node: id }, out);
        watch(c, now, id);
        let stays = c.state.config.health.return_to_service == Some(0);
        if stays && c.state.node(id).is_some_and(|node| node.admin == NodeAdmin::Resume && !node.sleeps()) {
            let (admin, reason) = (NodeAdmin::Drain, Some(NOT_RESPONDING.to_owned()));
            c.commit(now, Event::NodesSet { nodes: NodeSet::one(id), admin, reason, by: 0 }, out);
        }
    }
}

/// Starts the timer that sets a connected node down if the node does not report in time.
pub(crate) fn watch(c: &mut Controller, now: Time, id: NodeId) {
    c.timers.set(Timer::Silent(id), now + Span::from_secs(c.state.config.node_timeout_s));
    c.timers.clear(Timer::Lost(id));
}

/// Records a report of a node that is in no session. The time in which the node can come back starts again.
pub(crate) fn glimpsed(c: &mut Controller, now: Time, id: NodeId) {
    c.links.hear(now, id);
    // because a relay may answer for a node of a newer state than this one
    let Some(node) = c.state.node(id) else { return };
    let (timeout, lost) = (c.state.config.node_timeout_s, c.state.config.node_lost_s);
    if node.up {
        c.timers.set(Timer::Silent(id), now + Span::from_secs(timeout));
    } else if !node.jobs.is_empty() {
        c.timers.set(Timer::Lost(id), now + Span::from_secs(lost));
    }
}

/// Sets a node down that has been silent for too long: it gets no new jobs until it reports again.
pub(crate) fn silent(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let timeout = Span::from_secs(c.state.config.node_timeout_s);
    if let Some(heard) = c.links.heard(id)
        && now < heard + timeout
    {
        c.timers.set(Timer::Silent(id), heard + timeout);
        return;
    }
    if c.state.node(id).is_some_and(Node::sleeps) {
        return;
    }
    if c.state.node(id).is_some_and(|node| node.up) {
        c.commit(now, Event::NodeDown { node: id, reason: NOT_RESPONDING.to_owned() }, out);
    }
    let dead = c.state.node(id).is_some_and(|node| node.admin == NodeAdmin::Down);
    let patience = c.state.config.node_lost_s.saturating_sub(c.state.config.node_timeout_s);
    c.timers.set(Timer::Lost(id), now + Span::from_secs(if dead { 0 } else { patience }));
}

/// Handles a node that stays silent longer than `node_lost_s`. Its jobs wait for the node. They are given up if an
/// operator set the node down or `NodeLostAction` requires it. If the node comes back after that, it is ordered to end
/// those jobs and gets no others before it has ended them.
pub(crate) fn lost(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let Some(node) = c.state.node(id) else { return invariant!("a node with a timer is counted") };
    // A reboot has a time of its own.
    if (node.up && c.links.get(id).is_some()) || node.sleeps() || node.is_rebooting() {
        return;
    }
    if c.state.config.node_lost_action == NodeLostAction::Wait && node.admin != NodeAdmin::Down {
        if !node.jobs.is_empty() {
            c.commit(now, Event::NodeDown { node: id, reason: JOBS_WAIT.to_owned() }, out);
        }
        return;
    }
    for job in work::jobs_on(c, id) {
        give_up(c, now, job, id, Loss::Silent, out);
    }
}

/// Fails the jobs of a node that an operator set down, whether it responds or not.
pub(crate) fn condemn(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    if c.state.node(id).is_none_or(|node| node.admin != NodeAdmin::Down) {
        return;
    }
    let connected = c.links.get(id).is_some();
    for job in work::jobs_on(c, id) {
        // A job that waits for its nodes to boot may go on with this one.
        c.todo.waking.insert(job);
        if connected {
            fail(c, now, job, id, Loss::SetDown { silent: false }, out);
        } else {
            give_up(c, now, job, id, Loss::SetDown { silent: true }, out);
        }
    }
}

/// How a job loses a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The node was silent for too long.
    Silent,
    /// The node was silent until the job's node fence had passed.
    Fenced,
    /// The node has rebooted.
    Restarted,
    /// The node does not name the job any more.
    Forgotten,
    /// The node says that nothing of the job is left there.
    Vanished,
    /// The job may have ended after the backup that the state was restored from.
    Restored,
    /// An operator had the node powered down.
    PoweredDown,
    /// An operator set the node down.
    SetDown {
        /// Whether the node did not answer then.
        silent: bool,
    },
}

impl Loss {
    /// Returns the reason of the job's end, without the node's name.
    fn text(self) -> &'static str {
        match self {
            Self::Silent => "node did not respond",
            Self::Fenced => "node fence passed",
            Self::Restarted => "node restarted",
            Self::Forgotten => "node has forgotten the job",
            Self::Vanished => "the job vanished from node",
            Self::Restored => "gone when the state was restored",
            Self::PoweredDown => "node powered down",
            Self::SetDown { .. } => "node set down",
        }
    }

    /// Whether the node has just registered again.
    fn came_back(self) -> bool {
        matches!(self, Self::Restarted | Self::Forgotten)
    }

    /// Returns the kind of the node's fault. None: the node is not at fault.
    fn fault(self) -> Option<FaultKind> {
        match self {
            Self::Silent | Self::Fenced | Self::Forgotten | Self::Vanished | Self::SetDown { silent: true } => {
                Some(FaultKind::Lost)
            }
            Self::Restarted => Some(FaultKind::Reboot),
            Self::Restored | Self::PoweredDown | Self::SetDown { silent: false } => None,
        }
    }
}

/// Takes a lost node from a job for good. The job fails, or goes on with its other nodes.
pub(crate) fn give_up(c: &mut Controller, now: Time, job: JobId, node: NodeId, loss: Loss, out: &mut Out) {
    fail(c, now, job, node, loss, out);
    let Some(attempt) = c.state.jobs.get(&job).map(|job| job.attempt) else {
        return invariant!("a job that a node is taken from is known");
    };
    steps_gone(c, now, &NodeSet::one(node), JobAttempt { job, attempt }, out);
    c.commit(now, Event::NodesReleased { id: job, attempt, nodes: NodeSet::one(node) }, out);
}

/// Handles that a running job has lost a node.
pub(crate) fn fail(c: &mut Controller, now: Time, id: JobId, node: NodeId, loss: Loss, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that loses a node is known") };
    // because the end of the job may be decided when its node fails
    let (Phase::Running(run) | Phase::Leased(run)) = &job.phase else { return };
    if c.state.leaves(id, node) || !run.left.contains(node) {
        return;
    }
    // A leased job has not begun, as far as is known.
    let kind = loss.fault().filter(|_| job.is_running());
    tell(c, id, node, out);
    if let Some(kind) = kind {
        faults::found(c, now, node, (kind, Some(id)), out);
    }
    decide(c, now, id, node, loss, out);
}

/// Decides what becomes of a running job that has lost a node: with `--on-node-fail=replace` or `shrink` it goes on;
/// otherwise it ends or is requeued. If its script ran on that node, `replace` has it start again.
fn decide(c: &mut Controller, now: Time, id: JobId, node: NodeId, loss: Loss, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that loses a node is known") };
    let (Phase::Running(run) | Phase::Leased(run)) = &job.phase else {
        return invariant!("a fault of its node ends no job by itself");
    };
    let has_script = job.spec.kind == JobKind::Batch && run.batch_node() == Some(node);
    let wanted = replace::wanted(&c.state, job, run);
    // A node that the job has given up may still be there for a while.
    let goes_on =
        run.alloc.nodes().len() > 1 && !has_script && matches!(wanted, OnNodeFail::Replace | OnNodeFail::Shrink);
    let is_hit = |step: &Step| {
        let stays = wanted == OnNodeFail::Shrink && step.spec.no_kill == Some(true);
        step.left.contains(node) && !stays
    };
    let hit: Vec<StepNo> = run.steps.iter().filter(|(_, step)| is_hit(step)).map(|(no, _)| *no).collect();
    let stops = job.is_running() && (!goes_on || !hit.is_empty() && !keeps_nodes(&c.state, id));
    let again = wanted != OnNodeFail::End && may_requeue(&c.state, job);
    let first = job.spec.options.get().is_some_and(|options| options.expedite == Some(true));
    let first = first || wanted == OnNodeFail::Replace;
    if stops {
        let heard = c.links.heard(node).unwrap_or(c.started);
        let heard = if c.links.get(node).is_some() && !loss.came_back() { now } else { heard };
        losses::note(c, now, (id, node), (heard, goes_on.then_some(&hit[..])), out);
    }
    if goes_on {
        return go_on(c, now, id, (node, wanted == OnNodeFail::Replace, true), out);
    }
    // Without nodes that are kept for it, the job starts again before all others.
    if again && has_script && wanted == OnNodeFail::Replace {
        restart::keep(c, now, id, node);
    }
    let name = c.state.node(node).map_or("", |node| node.name.as_str());
    let reason = Some(format!("{}: {name}", loss.text()));
    let outcome = Outcome { state: EndState::NodeFail, exit: ExitCode::OK, reason };
    let requeue =
        again.then_some(Requeue { hold: false, not_before: None, special: None, expedite: first.then_some(true) });
    c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
}

/// Tells the clients of a job that one of its nodes has failed: the owner of the allocation, and the `srun` of each step
/// on that node.
fn tell(c: &Controller, id: JobId, node: NodeId, out: &mut Out) {
    let name = c.state.node(node).map_or("", |node| node.name.as_str());
    let owner = c.waits.owners.get(&id).map(|owner| owner.caller);
    let callers: BTreeSet<CallerId> = steps::callers_on(c, id, node).chain(owner).collect();
    let notice = |caller| (caller, Answer::Notice(format!("error: Node failure on {name}")));
    out.answers.extend(callers.into_iter().map(notice));
}

/// Returns whether a job gives no node back before its end.
fn keeps_nodes(state: &State, id: JobId) -> bool {
    state.gang.contains_key(&id) || state.het_of(id).is_some()
}

/// Has a job go on without a node that has failed, or is about to; with `replace` another node takes its place. As in Slurm its
/// tasks there are killed, and all tasks of those steps there that were not started with `--no-kill` themselves. `lost`: the
/// node has failed, and nothing of the steps is left there.
pub(crate) fn go_on(
    c: &mut Controller,
    now: Time,
    id: JobId,
    (node, replace, lost): (NodeId, bool, bool),
    out: &mut Out,
) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that loses a node is known") };
    let Phase::Running(run) = &job.phase else { return invariant!("a job that has further nodes runs") };
    if keeps_nodes(&c.state, id) {
        return;
    }
    let attempt = job.attempt;
    let mut rest = run.alloc.nodes();
    rest.remove(node);
    let alloc = run.alloc.split(&rest).0;
    let is_frail =
        |no: StepNo, step: &Step| no != StepNo::BATCH && step.left.contains(node) && step.spec.no_kill != Some(true);
    let frail = run.steps.iter().filter(|(no, step)| is_frail(**no, step));
    let frail: Vec<StepKey> = frail.map(|(&step, _)| StepKey { job: id, attempt, step }).collect();
    let idle = run.spares().is_some_and(|spares| spares.contains(node));
    let vacant = Some(node).filter(|_| replace && !idle);
    c.commit(now, Event::JobShrunk { id, attempt, alloc, vacant }, out);
    billing::record(c, now, id, out);
    if lost {
        steps_gone(c, now, &NodeSet::one(node), JobAttempt { job: id, attempt }, out);
    }
    for key in frail {
        steps::kill(c, key);
    }
}

/// Ends the shares of a running job's steps on nodes that the job has no more: nodes that have released it, or that were
/// lost. A node that was lost when the step was launched and came back after the job had given it back never had the
/// step, and reports no end of it.
pub(crate) fn steps_gone(c: &mut Controller, now: Time, nodes: &NodeSet, job: JobAttempt, out: &mut Out) {
    // because the steps of a job that ends end with it
    let Some(Phase::Running(run)) = c.state.jobs.get(&job.job).map(|job| &job.phase) else { return };
    let shares = run.steps.iter().map(|(&step, of)| (step, of.left.intersection(nodes), of.start));
    let shares: Vec<(StepNo, NodeSet, Time)> = shares.filter(|(_, nodes, _)| !nodes.is_empty()).collect();
    let JobAttempt { job, attempt } = job;
    for (step, nodes, started) in shares {
        let exit = ExitCode { code: 0, signal: KILL };
        let note = Some("the job gave back its nodes".to_owned());
        let end = StepEnd { exit, lost: true, started, ended: now, note, ..StepEnd::default() };
        c.commit(now, Event::StepNodesEnded { job, attempt, step, nodes: nodes.clone(), end, cut: None }, out);
        steps::part_ended(c, StepKey { job, attempt, step }, &nodes, exit, out);
    }
}
