//! Power saving: nodes without jobs are powered down, and nodes that jobs were placed on are powered up.
//!
//! The journal has the phase of each node ([`Power`]). What is to come follows from it: an idle node goes down after
//! `SuspendTime`, a node that is off and has jobs goes up. A job holds nodes that are going up, but no node hears of
//! the job before all of its nodes are there.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId};
use squall_model::power::{Power, PowerPhase, PowerWish};
use squall_model::reservation::Flag;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::control::controller::Controller;
use crate::control::effects::nodes;
use crate::control::effects::nodes::Loss;
use crate::control::effects::reboot;
use crate::control::effects::work;
use crate::control::index::power::Times;
use crate::control::index::timers::Timer;
use crate::control::info::cluster::names;
use crate::control::port::{BootingJob, Out, PowerProgram};
use crate::control::state::State;
use crate::control::state::job::{Job, Phase};
use crate::invariant::invariant;

/// Most nodes that a program is called with at once.
const CALL_NODES_MAX: usize = 1000;
/// Reason of a node that did not come in time, as in Slurm.
const LATE: &str = "ResumeTimeout reached";

/// Continues what was under way when an earlier run of the controller ended. A program that was cut off runs again, and
/// nodes have their whole time to come or go.
pub(crate) fn started(c: &mut Controller, now: Time, out: &mut Out) {
    let mut owed: [(PowerPhase, NodeSet); 3] =
        [PowerPhase::GoingUp, PowerPhase::GoingDown, PowerPhase::Off].map(|phase| (phase, NodeSet::new()));
    for at in 0..c.state.nodes.len() {
        let id = NodeId(at as u32);
        // because most nodes were never powered down
        let Some(power) = c.state.nodes[at].power else { continue };
        arm(c, now, id, power.phase);
        if let Some((_, nodes)) = owed.iter_mut().find(|(phase, _)| power.owed && *phase == power.phase) {
            nodes.insert(id);
        }
    }
    for (phase, nodes) in owed {
        call(c, now, phase, &nodes, out);
    }
    let boots = |job: &Job| job.run().is_some_and(|run| run.booting.is_some());
    let booting: Vec<JobId> = c.state.jobs.iter().filter(|(_, job)| boots(job)).map(|(id, _)| *id).collect();
    c.todo.waking.extend(booting);
}

/// Sets the timer for the end of a phase.
fn arm(c: &mut Controller, now: Time, id: NodeId, phase: PowerPhase) {
    let times = Times::of(&c.state, id);
    match phase {
        PowerPhase::GoingUp => c.timers.set(Timer::Power(id), now + times.up),
        PowerPhase::GoingDown => c.timers.set(Timer::Power(id), now + times.down),
        PowerPhase::On | PowerPhase::Off => c.timers.clear(Timer::Power(id)),
    }
}

/// Returns whether there is something to do for the power of nodes in this turn.
pub(crate) fn is_due(c: &Controller) -> bool {
    let spent = !c.powers.spent.is_empty() && !c.queue.kick;
    !c.todo.waking.is_empty() || ((!c.todo.power.is_empty() || spent) && may_order(c))
}

/// Returns whether nodes may be ordered up and down now.
fn may_order(c: &Controller) -> bool {
    c.state.runs_programs() && !c.disk_full
}

/// Orders nodes up and down as far as rates allow, and sends jobs to their nodes when all are there.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    // The last ones first, so that the first ones stay up where a number of nodes does.
    while let Some(id) = c.powers.over.pop_last() {
        time_is_over(c, now, id, out);
    }
    while let Some(id) = c.todo.waking.pop_first() {
        wake(c, now, id, out);
    }
    if !may_order(c) {
        return;
    }
    if !c.queue.kick {
        retire(c, now, out);
    }
    while let Some(id) = c.todo.power.pop_first() {
        look(c, now, id, out);
    }
    // Programs that say which nodes are lost come first.
    let failed = std::mem::take(&mut c.powers.failed);
    if !failed.is_empty() {
        call(c, now, PowerPhase::Off, &failed, out);
    }
    if !c.powers.sleepy.is_empty() && c.leaving.is_none() {
        let rate = c.state.config.power.suspend_rate;
        let (nodes, more) = c.powers.down.take(now, rate, &mut c.powers.sleepy);
        order(c, now, PowerPhase::GoingDown, &nodes, more, out);
    }
    if !c.powers.wanted.is_empty() && c.leaving.is_none() {
        let rate = c.state.config.power.resume_rate;
        let (nodes, more) = c.powers.up.take(now, rate, &mut c.powers.wanted);
        order(c, now, PowerPhase::GoingUp, &nodes, more, out);
    }
}

/// Has nodes powered down that jobs have left, as their partition says (`PowerDownOnIdle`). Called when no other job can
/// be placed there.
fn retire(c: &mut Controller, now: Time, out: &mut Out) {
    // because few partitions power their nodes down when they are idle
    if c.powers.spent.is_empty() {
        return;
    }
    let spent = std::mem::take(&mut c.powers.spent);
    let idle = |id: &NodeId| {
        let up = c.state.node(*id).is_some_and(|node| node.power.is_none());
        up && is_idle(c, *id) && !c.powers.spared.contains(*id)
    };
    let nodes: NodeSet = spent.into_iter().filter(idle).collect();
    if !nodes.is_empty() && !c.state.config.power.suspend_program.is_empty() {
        c.commit(now, Event::PowerWished { nodes, wish: PowerWish::Down, by: 0 }, out);
    }
}

/// Looks what is to come of a node.
fn look(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let Some(node) = c.state.node(id) else { return invariant!("a node that is looked at is counted") };
    let (power, free) = (node.power.unwrap_or_default(), node.jobs.is_empty());
    let down = power.wish.is_some_and(|wish| wish != PowerWish::Up);
    match power.phase {
        PowerPhase::On if !is_idle(c, id) => {
            c.powers.sleepy.remove(&id);
            c.timers.clear(Timer::Power(id));
        }
        PowerPhase::On if down => _ = c.powers.sleepy.insert(id),
        PowerPhase::On => rest(c, now, id),
        // `ResumeFailProgram` may still remove what is left of the node.
        PowerPhase::Off if power.owed => _ = c.powers.wanted.remove(&id),
        // The jobs of a node that is down are about to leave it.
        PowerPhase::Off if (!free && node.admin != NodeAdmin::Down) || power.wish == Some(PowerWish::Up) => {
            _ = c.powers.wanted.insert(id);
        }
        PowerPhase::Off => _ = c.powers.wanted.remove(&id),
        PowerPhase::GoingUp if free && power.wish == Some(PowerWish::DownForce) => _ = c.powers.sleepy.insert(id),
        PowerPhase::GoingUp | PowerPhase::GoingDown => {}
    }
    if power.wish == Some(PowerWish::DownForce) {
        let connected = c.links.get(id).is_some();
        for job in work::jobs_on(c, id) {
            if connected {
                nodes::fail(c, now, job, id, Loss::PoweredDown, out);
            } else {
                nodes::give_up(c, now, job, id, Loss::PoweredDown, out);
            }
        }
    }
}

/// Starts the time after which an idle node is powered down, unless it runs already.
fn rest(c: &mut Controller, now: Time, id: NodeId) {
    let waits = c.timers.time(Timer::Power(id)).is_some() || c.powers.sleepy.contains(&id);
    match Times::of(&c.state, id).idle.filter(|_| !c.powers.spared.contains(id) && c.links.get(id).is_some()) {
        Some(_) if waits => {}
        // Full seconds, so that nodes go in groups.
        Some(span) => {
            c.timers.set(Timer::Power(id), Time::from_secs((now + span + Span(999_999)).secs()));
        }
        None => {
            c.powers.sleepy.remove(&id);
            c.timers.clear(Timer::Power(id));
        }
    }
}

/// Returns whether nothing keeps a node from being powered down: no job, no remains of one, no reboot to come.
fn is_idle(c: &Controller, id: NodeId) -> bool {
    let idle = c.state.node(id).is_some_and(|node| node.jobs.is_empty() && node.reboot.is_none());
    idle && !c.strays.contains_key(&id)
}

/// Returns whether a node is in a state in which it is not powered down for want of jobs.
fn is_spared(state: &State, id: NodeId, now: Time) -> bool {
    let Some(node) = state.node(id) else { return true };
    let power = &state.config.power;
    let here = || state.reservations.values().filter(|one| one.active(now) && one.nodes.contains(id));
    let admin = match node.admin {
        NodeAdmin::Resume => "",
        NodeAdmin::Drain => "DRAIN",
        NodeAdmin::Down => "DOWN",
        NodeAdmin::Fail => "FAIL",
    };
    power.spares(admin)
        || (power.spares("CLOUD") && state.is_cloud(id))
        || (power.spares("RESERVED") && here().next().is_some())
        || (power.spares("MAINTENANCE") && here().any(|one| one.is(Flag::Maint)))
}

/// Returns whether a node stays up because a number of its kind does (`SuspendExcNodes=n[1-9]:2`).
fn is_kept(c: &Controller, id: NodeId) -> bool {
    let is_up = |other: &NodeId| {
        let node = c.state.node(*other).filter(|node| node.usable() && (!node.sleeps() || !node.jobs.is_empty()));
        *other != id && node.is_some() && !c.powers.sleepy.contains(other)
    };
    c.powers.kept.iter().any(|(nodes, count)| nodes.contains(id) && nodes.iter().filter(is_up).count() < *count)
}

/// Handles the end of the time that a node had: idle ones to be powered down, others to come or to go.
fn time_is_over(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let Some(node) = c.state.node(id) else { return invariant!("a node with a timer is counted") };
    let (phase, admin) = (node.power.unwrap_or_default().phase, node.admin);
    let nodes = NodeSet::one(id);
    match phase {
        PowerPhase::On if is_spared(&c.state, id, now) || is_kept(c, id) => c.todo.power.extend([id]),
        PowerPhase::On if is_idle(c, id) => c.powers.sleepy.extend([id]),
        PowerPhase::On | PowerPhase::Off => {}
        PowerPhase::GoingDown => {
            // A machine that is switched off leaves its connections as they were. One that is not registers again.
            c.links.forget(id);
            c.commit(now, Event::NodesPower { nodes, phase: PowerPhase::Off, owed: false }, out);
        }
        PowerPhase::GoingUp => {
            let owed = !c.state.config.power.resume_fail_program.is_empty();
            c.commit(now, Event::NodesPower { nodes: nodes.clone(), phase: PowerPhase::Off, owed }, out);
            c.powers.failed.insert(id);
            if admin == NodeAdmin::Down {
                c.todo.condemned.insert(id);
            } else {
                let reason = Some(LATE.to_owned());
                c.commit(now, Event::NodesSet { nodes, admin: NodeAdmin::Down, reason, by: 0 }, out);
            }
        }
    }
}

/// Orders nodes up or down: the phase begins, and its program runs. `more`: when to look for those that wait for the
/// rate.
fn order(c: &mut Controller, now: Time, phase: PowerPhase, nodes: &NodeSet, more: Option<Time>, out: &mut Out) {
    if let Some(more) = more {
        c.timers.set(Timer::PowerRate, more);
    }
    let owed = !program(&c.state.config, phase).is_empty();
    enter(c, now, phase, nodes.clone(), owed, out);
    call(c, now, phase, nodes, out);
}

/// Has nodes enter a phase.
fn enter(c: &mut Controller, now: Time, phase: PowerPhase, nodes: NodeSet, owed: bool, out: &mut Out) {
    if nodes.is_empty() {
        return;
    }
    nodes.iter().for_each(|id| arm(c, now, id, phase));
    c.commit(now, Event::NodesPower { nodes, phase, owed }, out);
}

/// Returns the program of a phase. Empty: none.
fn program(config: &Config, phase: PowerPhase) -> &str {
    match phase {
        PowerPhase::On => "",
        PowerPhase::Off => &config.power.resume_fail_program,
        PowerPhase::GoingUp => &config.power.resume_program,
        PowerPhase::GoingDown => &config.power.suspend_program,
    }
}

/// Has the host run the program of a phase, in calls of not too many nodes.
fn call(c: &mut Controller, now: Time, phase: PowerPhase, nodes: &NodeSet, out: &mut Out) {
    let config = &c.state.config;
    let path = program(config, phase).to_owned();
    if path.is_empty() {
        return ended(c, now, phase, nodes, out);
    }
    let limit_s = config.power_limit_s();
    let all: Vec<NodeId> = nodes.iter().collect();
    for some in all.chunks(CALL_NODES_MAX) {
        let nodes: NodeSet = some.iter().copied().collect();
        let argument = names(&c.state, &nodes);
        let jobs = if phase == PowerPhase::GoingUp { waiting(&c.state, &nodes) } else { Vec::new() };
        out.power.push(PowerProgram { phase, nodes, argument, path: path.clone(), limit_s, jobs });
    }
}

/// Returns the jobs that wait for nodes that are powered up.
fn waiting(state: &State, nodes: &NodeSet) -> Vec<BootingJob> {
    let ids: BTreeSet<JobId> =
        nodes.iter().filter_map(|id| state.node(id)).flat_map(|node| node.jobs.iter().copied()).collect();
    let waits = |id: JobId| {
        let job = state.jobs.get(&id)?;
        let run = job.run().filter(|run| run.booting.is_some())?;
        let all = run.alloc.nodes();
        let (spec, need) = (&job.spec, &job.spec.need);
        Some(BootingJob {
            id,
            partition: run.partition.clone(),
            nodes: names(state, &all),
            resumed: names(state, &all.intersection(nodes)),
            features: need.constraint.clone(),
            reservation: spec.reservation.clone(),
            extra: spec.options.get().and_then(|options| options.notes.extra.clone()),
            exclusive: need.exclusive,
            own_nodes: spec.keeps_others_off(),
            own_blocks: spec.keeps_blocks(),
            oversubscribe: need.oversubscribe,
        })
    };
    ids.into_iter().filter_map(waits).collect()
}

/// Records that a program has ended, for the nodes that are still in its phase.
pub(crate) fn ended(c: &mut Controller, now: Time, phase: PowerPhase, nodes: &NodeSet, out: &mut Out) {
    let owed = |power: Power| power.phase == phase && power.owed;
    let still = nodes.iter().filter(|id| c.state.node(*id).is_some_and(|node| node.power.is_some_and(owed)));
    let nodes: NodeSet = still.collect();
    if !nodes.is_empty() {
        c.commit(now, Event::PowerProgramEnded { nodes, phase }, out);
    }
}

/// Handles the registration of a node: one that was going up, or that was switched on by hand, is there.
pub(crate) fn registered(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let phase = c.state.node(id).and_then(|node| node.power).unwrap_or_default().phase;
    if matches!(phase, PowerPhase::GoingUp | PowerPhase::Off) {
        enter(c, now, PowerPhase::On, NodeSet::one(id), false, out);
    }
}

/// Lets a job begin when all of its nodes are up. Nodes that were never told of a job that ends release it at once.
fn wake(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that waits for its nodes is known") };
    let attempt = job.attempt;
    match &job.phase {
        Phase::Running(run) if run.booting.is_some() && run.left.is_disjoint(&c.state.index.asleep) => {
            let lost = |node: NodeId| c.todo.condemned.contains(&node);
            if run.left.iter().any(|node| lost(node) || reboot::is_awaited(&c.state, job, node)) {
                return;
            }
            c.commit(now, Event::JobAwake { id, attempt }, out);
        }
        Phase::Completing(run, _) if run.booting.is_some() && !run.left.is_empty() => {
            let nodes = run.left.clone();
            c.commit(now, Event::NodesReleased { id, attempt, nodes }, out);
        }
        _ => {}
    }
}
