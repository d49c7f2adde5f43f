//! Updates of soft state at each event, before it is applied and after.

use crate::control::index::victims::exempt_until;
use crate::control::port::Out;
use squall_model::event::{Event, NodeAdmin};
use squall_model::foreign::Question;
use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::job::{EndState, JobState};
use squall_model::power::PowerPhase;
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::node::{Down, SignalTarget};
use squall_sched::Item;

use crate::control::controller::Controller;
use crate::control::effects::checkpoint;
use crate::control::effects::periodic;
use crate::control::effects::programs;
use crate::control::effects::replace;
use crate::control::effects::reserve;
use crate::control::effects::restart;
use crate::control::effects::resume;
use crate::control::effects::signals;
use crate::control::index::facts;
use crate::control::index::pending::item_of;
use crate::control::index::reckon::eligible;
use crate::control::index::signals::JobSignal;
use crate::control::index::timers::Timer;
use crate::control::state::LineId;
use crate::control::state::gates::first_partition;
use crate::control::state::job::Phase;
use crate::control::state::node::{Node, Partition};
use crate::invariant::invariant;

/// Number of the signal SIGCONT on Linux.
pub(crate) const CONT: i32 = 18;
/// Number of the signal SIGSTOP on Linux.
pub(crate) const STOP: i32 = 19;

/// Takes the pending jobs and arrays that the event changes out of the queue, while the state still has their old
/// values.
pub(crate) fn before(c: &mut Controller, _now: Time, event: &Event, _out: &mut Out) {
    match event {
        Event::JobStarted { id, .. } | Event::JobLeased { id, .. } | Event::JobEnding { id, .. } => {
            withdraw(c, *id, false);
        }
        Event::NodesReleased { id, nodes, .. } => {
            let run = c.state.jobs.get(id).and_then(|job| job.run());
            let partition = run.and_then(|run| c.state.partition(&run.partition));
            if partition.is_some_and(|partition| partition.config.power_down_on_idle) {
                c.powers.spent.extend(nodes.iter());
            }
        }
        Event::JobHeld { id, whole, .. } | Event::JobReleased { id, whole } => withdraw(c, *id, *whole),
        Event::JobUpdated { id, whole, .. } => {
            withdraw(c, *id, *whole);
            c.queue.names.remove(&c.state, *id);
        }
        Event::TasksEnded { array, .. } => {
            let item = Item { id: *array, array: true };
            c.queue.withdraw(&c.state, &mut c.timers, item);
            c.queue.dirty.insert(item);
        }
        _ => {}
    }
}

/// Takes the pending job, or the array that a pending task is part of, out of the queue and marks it for examination.
/// With `whole` it also does so with the array's tasks that have a record of their own.
fn withdraw(c: &mut Controller, id: JobId, whole: bool) {
    let out = |c: &mut Controller, item: Item| {
        c.queue.withdraw(&c.state, &mut c.timers, item);
        c.queue.dirty.insert(item);
    };
    if whole {
        out(c, Item { id, array: true });
        let pending = c.state.touched(id).filter(|(_, job)| job.is_pending());
        for item in pending.map(|(id, _)| Item { id, array: false }).collect::<Vec<_>>() {
            out(c, item);
        }
        return;
    }
    let Some(item) = item_of(&c.state, id) else { return invariant!("a job that changes is known") };
    if item.array {
        // The event gives the task a record of its own.
        c.queue.dirty.insert(Item { id, array: false });
    }
    out(c, item);
}

/// Updates the queue for nodes after an operator changed their state. With `down` the jobs on these nodes are lost.
fn nodes_changed(c: &mut Controller, nodes: &NodeSet, down: bool) {
    c.queue.order = None;
    for node in nodes.iter() {
        refresh(c, node);
        if down {
            c.todo.condemned.insert(node);
        }
    }
    c.queue.wake_parked(&c.state);
}

/// Updates timers, the queue and pending effects after an event.
#[expect(clippy::too_many_lines, reason = "a table: a row for each event")]
pub(crate) fn after(c: &mut Controller, now: Time, event: &Event) {
    match event {
        Event::Configured { .. }
        | Event::PartitionSet { .. }
        | Event::PartitionChanged { .. }
        | Event::NodesCreated { .. }
        | Event::PolicyChanged { .. } => cluster_changed(c, now),
        Event::NodesRemoved { .. } => {
            cluster_changed(c, now);
            reserve::arm(c, now);
        }
        Event::NodeRegistered { node, .. } | Event::NodeDown { node, .. } | Event::NodeUp { node } => {
            refresh(c, *node);
            c.queue.wake_parked(&c.state);
        }
        Event::NodesSet { nodes, admin, .. } => {
            resume::arm(c, nodes.iter());
            nodes_changed(c, nodes, *admin == NodeAdmin::Down);
        }
        Event::NodesPower { nodes, phase, .. } => {
            if *phase == PowerPhase::On {
                returned(c, nodes);
            }
            nodes_changed(c, nodes, false);
        }
        Event::NodesReboot { nodes, reboot } => {
            if reboot.is_none() {
                returned(c, nodes);
            }
            nodes_changed(c, nodes, false);
        }
        Event::NodesChanged { nodes, .. } => {
            resume::arm(c, nodes.iter());
            nodes_changed(c, nodes, false);
        }
        Event::PowerWished { nodes, .. } => nodes_changed(c, nodes, false),
        Event::JobSubmitted { id, .. } => submitted(c, now, *id),
        Event::JobStarted { id, alloc, .. } => started(c, now, *id, alloc),
        Event::JobLeased { id, .. } => leased(c, *id),
        Event::LeaseReturned { id, .. } | Event::EpilogEnded { id, .. } => {
            c.queue.kick = true;
            released(c, *id);
        }
        Event::StepStarted { job, .. } | Event::StepNodesEnded { job, .. } | Event::StepAbandoned { job, .. } => {
            c.todo.touched.insert(*job);
        }
        Event::JobEnding { id, .. } => ending(c, *id),
        Event::JobAwake { id, .. } => {
            programs::configured(c, *id);
            arm_limit(c, now, *id);
            c.queue.note_end(&c.state, *id);
        }
        Event::JobConfigured { id, .. } => programs::configured(c, *id),
        Event::NodesReleased { id, nodes, .. } => {
            c.diag.fabric.node_epilogs += nodes.len() as u64;
            nodes.iter().for_each(|node| refresh(c, node));
            c.queue.kick = true;
            released(c, *id);
        }
        Event::JobShrunk { id, .. } => shrunk(c, *id),
        Event::NodeReplaced { id, node, .. } => {
            refresh(c, *node);
            replace::changed(c, *id);
            boots(c, *id);
            c.queue.note_end(&c.state, *id);
            c.todo.touched.insert(*id);
        }
        Event::TasksEnded { array, .. } => ended(c, *array),
        Event::ReservationSet { reservation } => reserve::changed(c, now, &reservation.name),
        Event::ReservationGone { name } => reserve::changed(c, now, name),
        Event::ControllerStarted { .. } => c.started = now,
        Event::Forgotten { .. }
        | Event::NodeFault(_)
        | Event::Checkpoint(_)
        | Event::HetFormed { .. }
        | Event::GresGranted { .. }
        | Event::JobBilled { .. }
        | Event::StepLimited { .. }
        | Event::IdsLost { .. }
        | Event::Restored { .. }
        | Event::VersionRaised { .. }
        | Event::KeysRotated { .. }
        | Event::Recorded { .. }
        | Event::NodeLost { .. }
        | Event::JobHeld { .. }
        | Event::JobReleased { .. } => {}
        Event::PowerProgramEnded { nodes, .. } => nodes.iter().for_each(|id| power_touched(c, id)),
        Event::JobUpdated { id, .. } => updated(c, now, *id),
        Event::JobRequeued { id, .. } => {
            c.queue.dirty.insert(Item { id: *id, array: false });
            c.queue.names.note(&c.state, *id);
            c.queue.wake_watchers(&c.state, *id);
        }
        Event::ForeignResolved { replies } => replies.iter().for_each(|(question, _)| resolved(c, question)),
        Event::JobPreempted { id, until, .. } => c.timers.set(Timer::Grace(*id), *until),
        Event::JobSuspended { id, .. } => {
            c.queue.note_end(&c.state, *id);
            arm_limit(c, now, *id);
            c.todo.touched.insert(*id);
        }
        Event::Ganged { shifts } => {
            for shift in shifts {
                arm_limit(c, now, shift.job);
                c.queue.note_end(&c.state, shift.job);
            }
        }
    }
}

/// Marks for examination the pending jobs that asked a question which another cell has now answered.
fn resolved(c: &mut Controller, question: &Question) {
    match question {
        Question::Started(named) | Question::Ended(named) => c.queue.wake_watchers(&c.state, named.id),
        Question::Alone { job, .. } => {
            let single = c.queue.names.single_like(&c.state, *job);
            c.queue.dirty.extend(single);
        }
    }
}

fn submitted(c: &mut Controller, now: Time, id: JobId) {
    if c.queue.ids_began != c.state.ids_began {
        c.queue.rebuild(&c.state, &mut c.timers, now);
    }
    let array = c.state.arrays.get(&id);
    c.diag.jobs_submitted += array.map_or(1, |array| u64::from(array.size()));
    c.queue.dirty.insert(Item { id, array: array.is_some() });
    c.queue.names.note(&c.state, id);
}

fn started(c: &mut Controller, now: Time, id: JobId, alloc: &Alloc) {
    c.diag.jobs_started += 1;
    for group in &alloc.groups {
        group.nodes.iter().for_each(|node| refresh(c, node));
    }
    c.todo.starting.push(id);
    c.todo.touched.insert(id);
    boots(c, id);
    programs::changed(c, id);
    c.queue.note_end(&c.state, id);
    let line = LineId::of(alloc).and_then(|line| c.state.lines.get(&line));
    line.into_iter().flatten().for_each(|next| c.queue.note_end(&c.state, *next));
    arm_limit(c, now, id);
    if let Some(time) = exempt_until(&c.state, id) {
        c.timers.set(Timer::Exempt(id), time);
    }
    let job = c.state.jobs.get(&id);
    if let Some(job) = job.filter(|job| job.attempt == Attempt(1)) {
        c.diag.latency.queue.add(now.since(eligible(job.submit, &job.spec, &job.queue)));
    }
    let whole = job.and_then(|job| job.task).map_or(id, |task| task.array);
    c.queue.names.note(&c.state, whole);
    c.queue.wake_watchers(&c.state, id);
}

/// Updates the queue for a job that was leased to a node. The job counts as running for other jobs, but clients are not
/// told that it runs.
fn leased(c: &mut Controller, id: JobId) {
    c.todo.starting.push(id);
    c.todo.touched.insert(id);
    c.queue.note_end(&c.state, id);
    let whole = c.state.jobs.get(&id).and_then(|job| job.task).map_or(id, |task| task.array);
    c.queue.names.note(&c.state, whole);
}

fn ending(c: &mut Controller, id: JobId) {
    boots(c, id);
    c.vacant.remove(&id);
    programs::changed(c, id);
    periodic::arm(c, id, None);
    for timer in [Timer::Limit(id), Timer::Warn(id), Timer::Grace(id), Timer::Exempt(id)] {
        c.timers.clear(timer);
    }
    match c.state.jobs.get(&id).map(|job| job.state()) {
        Some(JobState::Completing(_)) => {
            c.todo.ending.insert(id);
            c.todo.touched.insert(id);
        }
        Some(JobState::Ended(_)) => ended(c, id),
        _ => released(c, id),
    }
}

/// Has a job looked at that waits for nodes to be powered up or rebooted.
fn boots(c: &mut Controller, id: JobId) {
    if c.state.jobs.get(&id).is_some_and(|job| job.run().is_some_and(|run| run.booting.is_some())) {
        c.todo.waking.insert(id);
    }
}

/// Updates timers and limits after a job has given back nodes.
fn shrunk(c: &mut Controller, id: JobId) {
    c.queue.note_end(&c.state, id);
    replace::changed(c, id);
    boots(c, id);
    checkpoint::shrunk(c, id);
    c.todo.leaving.insert(id);
    c.todo.touched.insert(id);
    let Some((job, run)) = c.state.jobs.get(&id).and_then(|job| Some((job, job.run()?))) else {
        return invariant!("a job that has just shrunk has resources");
    };
    c.queue.wake_limited(&c.state, &job.owner, &job.spec, &run.partition);
}

/// Updates the queue after a node has released a job. The job may have ended by that, or be pending again.
fn released(c: &mut Controller, id: JobId) {
    boots(c, id);
    c.queue.note_end(&c.state, id);
    programs::changed(c, id);
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that was released is known") };
    c.todo.touched.insert(id);
    if matches!(job.phase, Phase::Pending | Phase::Ended(_)) {
        let partition = job.last_run().map_or_else(|| first_partition(&c.state, &job.spec), |run| &run.partition);
        c.queue.wake_limited(&c.state, &job.owner, &job.spec, partition);
    }
    match &job.phase {
        Phase::Running(_) | Phase::Completing(..) | Phase::Leased(_) => {}
        Phase::Ended(_) => ended(c, id),
        Phase::Pending => {
            c.todo.again.extend(c.kept.contains_key(&id).then_some(id));
            let whole = job.task.map_or(id, |task| task.array);
            c.queue.wake_starved(&c.state, &job.spec);
            c.queue.wake_throttled(&c.state, whole);
            c.queue.names.note(&c.state, whole);
            let single = c.queue.names.single_like(&c.state, whole);
            c.queue.dirty.extend(single);
            c.queue.dirty.insert(Item { id, array: false });
        }
    }
}

/// Updates the queue after the end of a job or of array tasks.
fn ended(c: &mut Controller, id: JobId) {
    restart::forget(c, id);
    c.queue.note_end(&c.state, id);
    c.todo.touched.insert(id);
    let job = c.state.jobs.get(&id);
    let task = job.and_then(|job| job.task);
    if let Some(job) = job {
        c.queue.wake_starved(&c.state, &job.spec);
        for node in job.checkpoint_holders(c.state.config.checkpoint_shared) {
            c.links.push(node, Down::ForgetCheckpoints { job: id });
        }
    }
    if let Some(state) = job.and_then(|job| job.outcome()).map(|outcome| outcome.state) {
        match state {
            EndState::Completed => c.diag.jobs_completed += 1,
            EndState::Cancelled { .. } => c.diag.jobs_canceled += 1,
            _ => c.diag.jobs_failed += 1,
        }
    }
    if let Some(task) = task {
        c.queue.wake_throttled(&c.state, task.array);
        c.todo.touched.insert(task.array);
    }
    let whole = task.map_or(id, |task| task.array);
    c.queue.names.note(&c.state, whole);
    c.queue.wake_watchers(&c.state, whole);
    let single = c.queue.names.single_like(&c.state, whole);
    c.queue.dirty.extend(single);
    c.timers.clear(Timer::Owner(id));
    c.timers.clear(Timer::Immediate(id));
}

fn updated(c: &mut Controller, now: Time, id: JobId) {
    c.queue.note_end(&c.state, id);
    c.queue.names.note(&c.state, id);
    c.foreign.renamed();
    c.queue.wake_throttled(&c.state, id);
    let single = c.queue.names.single_like(&c.state, id);
    c.queue.dirty.extend(single);
    arm_limit(c, now, id);
}

/// Sends a signal to a running job on each of its nodes.
pub(crate) fn signal_all(c: &mut Controller, id: JobId, target: SignalTarget, signal: i32) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that gets a signal is known") };
    let Some(run) = job.run() else { return invariant!("a job that gets a signal has resources") };
    let (job, nodes) = (squall_model::job::JobAttempt { job: id, attempt: job.attempt }, run.left.clone());
    signals::send(c, &nodes, JobSignal { job, target, signal });
}

/// Sets the timers of a running job's time limit and of the `--signal` warning before it, or clears them if the job has
/// no limit. A warning that was due before `now` counts as sent.
pub(crate) fn arm_limit(c: &mut Controller, now: Time, id: JobId) {
    periodic::arm(c, id, None);
    let job = c.state.jobs.get(&id);
    let running = job.and_then(|job| match &job.phase {
        // The time of a job begins when its nodes are up.
        Phase::Running(run) if c.state.works(id) && run.booting.is_none() => Some((job, run)),
        _ => None,
    });
    let Some((job, run)) = running else {
        c.timers.clear(Timer::Limit(id));
        c.timers.clear(Timer::Warn(id));
        return;
    };
    let run_start = run.start;
    let kill = facts::kill_time(&c.state, id, job, run);
    let warn = job.spec.signal.and_then(|signal| {
        let before = squall_model::time::Span::from_secs(u64::from(signal.before_s));
        facts::end_time(&c.state, id, job, run).map(|end| end - before)
    });
    match kill {
        Some(kill) => c.timers.set(Timer::Limit(id), kill),
        None => c.timers.clear(Timer::Limit(id)),
    }
    match warn {
        Some(warn) if warn >= now || run_start == now => c.timers.set(Timer::Warn(id), warn),
        Some(_) | None => c.timers.clear(Timer::Warn(id)),
    }
}

/// Finds the nodes that the configuration spares.
fn find_spared(c: &mut Controller) {
    let power = &c.state.config.power;
    let own = |partition: &Partition| partition.config.suspend_time_s.is_some() || partition.config.power_down_on_idle;
    c.powers.used = !power.is_default() || c.state.partitions.iter().any(own);
    let mut spared = NodeSet::new();
    c.powers.kept.clear();
    for (names, count) in power.exceptions().unwrap_or_default() {
        let nodes: NodeSet = names.iter().filter_map(|name| c.state.node_id(name)).collect();
        match count {
            Some(count) => c.powers.kept.push((nodes, count)),
            None => spared.union_with(&nodes),
        }
    }
    for partition in power.suspend_exc_parts.iter().filter_map(|name| c.state.partition(name)) {
        spared.union_with(&partition.nodes);
    }
    c.powers.spared = spared;
}

/// Takes note of a node that may have got or lost jobs, its connection, or its power.
fn power_touched(c: &mut Controller, id: NodeId) {
    if c.powers.used || c.state.node(id).is_some_and(|node| node.power.is_some()) {
        c.todo.power.insert(id);
    }
}

/// Takes note of nodes that are up, or back from a reboot: jobs may be able to begin.
fn returned(c: &mut Controller, nodes: &NodeSet) {
    let jobs = nodes.iter().filter_map(|id| c.state.node(id)).flat_map(|node| node.jobs.iter().copied());
    c.todo.waking.extend(jobs);
}

/// Rebuilds the pending queue after a change of configuration, partitions or accounts.
pub(crate) fn cluster_changed(c: &mut Controller, now: Time) {
    find_spared(c);
    c.queue.order = None;
    for node in 0..c.state.nodes.len() {
        refresh(c, NodeId(node as u32));
    }
    c.queue.rebuild(&c.state, &mut c.timers, now);
}

/// Updates whether the queue may start jobs on a node. The node must be up, connected and free of jobs that it should
/// not have. For `open` it must also have a free core.
pub(crate) fn refresh(c: &mut Controller, id: NodeId) {
    if c.state.node(id).is_some_and(|node| node.reboot.is_some()) {
        c.todo.reboots.insert(id);
    }
    power_touched(c, id);
    if c.state.node(id).is_some_and(Node::is_gone) {
        c.todo.gone.insert(id);
    } else {
        c.dismissed.remove(id);
    }
    let node = c.state.node(id).filter(|node| node.usable());
    let there = c.rehearsal || c.links.get(id).is_some() || node.is_some_and(Node::sleeps);
    let can_be_used = node.is_some() && there && !c.strays.contains_key(&id);
    let reachable = can_be_used && !restart::is_kept(c, id);
    let open = reachable && node.is_some_and(|node| node.free_cpus() > 0);
    for (set, belongs) in [(&mut c.queue.reachable, reachable), (&mut c.queue.open, open)] {
        if belongs {
            set.insert(id);
        } else {
            set.remove(id);
        }
    }
    if !can_be_used {
        restart::node_failed(c, id);
    }
}
