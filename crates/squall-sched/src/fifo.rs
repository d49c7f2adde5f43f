//! First in, first out: in each partition strictly by priority and age; who can't start holds up those behind.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::job::{Need, PendingReason};
use squall_model::resource::Alloc;
use squall_model::set::CoreSet;

use crate::gate::{Rooms, Share};
use crate::place::{Condition, fits, place};
use crate::request::Request;
use crate::view::{Candidate, Head, Item, PartitionView, Plan, Scratch, Skip, Start, View};

/// What starts now. Costs what it starts and skips, and one look at the first job that can't start in each
/// partition; the length of the queue behind it costs nothing.
pub fn plan(view: &impl View, scratch: &mut Scratch) -> Plan {
    scratch.reset(view);
    let mut plan = Plan::default();
    let mut done = Done::default();
    let mut queues = Vec::new();
    for at in 0..view.partition_count() {
        let partition = view.partition(at);
        if partition.starts {
            queues.push((at, partition, view.queue(at).peekable()));
        }
    }
    loop {
        // The next job over all partitions; few partitions, so a look at each is cheap.
        let next = queues.iter_mut().enumerate().filter_map(|(slot, (_, partition, queue))| {
            let job = queue.peek()?;
            Some(((Reverse(partition.tier), Reverse(job.priority), job.item, slot), slot))
        });
        let Some((_, slot)) = next.min() else { break };
        let (at, partition, queue) = &mut queues[slot];
        let Some(job) = queue.next() else { break };
        if !consider(view, scratch, &mut plan, &mut done, (*at, partition), &job) {
            withhold(scratch, &mut queues, slot);
        }
    }
    plan
}

/// Nodes of a blocked partition are kept from partitions of a lower tier; nobody behind in it is looked at.
fn withhold<T>(scratch: &mut Scratch, queues: &mut Vec<(usize, PartitionView<'_>, T)>, slot: usize) {
    let (_, blocked, _) = queues.remove(slot);
    if queues.iter().any(|(_, other, _)| other.tier < blocked.tier) {
        scratch.withheld.union_with(blocked.nodes);
    }
}

/// Jobs that this plan has dealt with.
#[derive(Default)]
struct Done {
    /// Jobs in several partitions that have started in one.
    started: BTreeSet<Item>,
    /// Starts by array.
    groups: BTreeMap<JobId, u32>,
    /// What limits leave.
    rooms: Rooms,
}

/// Starts one candidate as often as may be. False: it waits for resources.
fn consider(
    view: &impl View,
    scratch: &mut Scratch,
    plan: &mut Plan,
    done: &mut Done,
    (at, partition): (usize, &PartitionView<'_>),
    job: &Candidate<'_>,
) -> bool {
    if done.started.contains(&job.item) {
        return true;
    }
    plan.looked_at += 1;
    if job.group.is_some_and(|group| group.room <= done.groups.get(&group.id).copied().unwrap_or_default()) {
        return true;
    }
    let request = match fitting(view, partition, job) {
        Ok(request) => request,
        Err(reason) => {
            plan.skips.push(Skip { item: job.item, partition: at, reason });
            return true;
        }
    };
    let gates = view.gates(job.item, at);
    for _ in 0..job.copies {
        if let Some(reason) = done.rooms.closed(view, &gates, Share::least(job.need)) {
            plan.skips.push(Skip { item: job.item, partition: at, reason });
            return true;
        }
        if let Some(group) = job.group {
            let started = done.groups.entry(group.id).or_default();
            if *started >= group.room {
                break;
            }
            *started += 1;
        }
        if !licensed(view, scratch, &request) {
            unstart(done, job);
            plan.skips.push(Skip { item: job.item, partition: at, reason: PendingReason::Licenses });
            return true;
        }
        let elsewhere = job.avoid.and_then(|avoid| {
            let mut request = request.clone();
            request.excluded.union_with(avoid);
            place(view, scratch, &request, partition.nodes, Condition::Now)
        });
        let alloc = elsewhere.or_else(|| place(view, scratch, &request, partition.nodes, Condition::Now));
        let Some(alloc) = alloc else {
            unstart(done, job);
            return wait_or_skip(view, scratch, plan, &request, (at, partition), job);
        };
        let share = Share::of(&alloc);
        if let Some(reason) = done.rooms.closed(view, &gates, share) {
            unstart(done, job);
            plan.skips.push(Skip { item: job.item, partition: at, reason });
            return true;
        }
        done.rooms.take(&gates, share);
        book(view, scratch, &alloc);
        if view.topology().is_some() && request.wish.is_sensitive(alloc.nodes().len() as u32) {
            scratch.closed.push(alloc.nodes());
        }
        for (name, count) in &request.licenses {
            *scratch.licenses.entry(name.clone()).or_default() += count;
        }
        plan.starts.push(Start { item: job.item, partition: at, alloc });
        done.started.insert(job.item);
    }
    true
}

/// A copy that was counted does not start.
fn unstart(done: &mut Done, job: &Candidate<'_>) {
    if let Some(group) = job.group {
        done.groups.entry(group.id).and_modify(|started| *started -= 1);
    }
}

/// Whether all licenses of a job are free.
fn licensed(view: &impl View, scratch: &Scratch, request: &Request) -> bool {
    let taken = |name| scratch.licenses.get(name).copied().unwrap_or_default();
    request.licenses.iter().all(|(name, count)| view.licenses(name).saturating_sub(taken(name)) >= *count)
}

/// It does not fit now. False: it waits for its turn; true: it never can as the cluster is.
fn wait_or_skip(
    view: &impl View,
    scratch: &mut Scratch,
    plan: &mut Plan,
    request: &Request,
    (at, partition): (usize, &PartitionView<'_>),
    job: &Candidate<'_>,
) -> bool {
    // With every node down or drained all wait alike: no look at each of them.
    let nothing = !partition.nodes.iter().any(|id| view.node(id).usable);
    if nothing || fits(view, scratch, request, partition.nodes, Condition::Empty) {
        plan.heads.push(Head { item: job.item, partition: at });
        return false;
    }
    let reason = match fits(view, scratch, request, partition.nodes, Condition::Ideal) {
        true => PendingReason::ReqNodeNotAvail,
        false if request.nodes_min > partition.nodes.len() as u32 => PendingReason::PartitionNodeLimit,
        false if partition.nodes.iter().any(|id| view.node(id).hardware.cpus == 0) => PendingReason::ReqNodeNotAvail,
        false => PendingReason::BadConstraints,
    };
    plan.skips.push(Skip { item: job.item, partition: at, reason });
    true
}

/// The request of a job that respects the partition's limits, or why it does not.
fn fitting(view: &impl View, partition: &PartitionView<'_>, job: &Candidate<'_>) -> Result<Request, PendingReason> {
    let over_time = match (job.time_limit_s, partition.time_max_s) {
        (Some(Some(limit)), Some(max)) => limit > max,
        (Some(None), Some(_)) => true,
        _ => false,
    };
    if over_time {
        return Err(PendingReason::PartitionTimeLimit);
    }
    let mut request = Request::of(job.need, view).ok_or(PendingReason::BadConstraints)?;
    request.wish_for(job.wish, job.need, view.topology());
    let most = partition.nodes_max.unwrap_or(u32::MAX);
    if request.nodes_min > most {
        return Err(PendingReason::PartitionNodeLimit);
    }
    request.nodes_max = request.nodes_max.min(most);
    if request.nodes_max < partition.nodes_min {
        return Err(PendingReason::PartitionNodeLimit);
    }
    request.nodes_min = request.nodes_min.max(partition.nodes_min);
    Ok(request)
}

/// Notes in the scratch what an allocation takes.
fn book(view: &impl View, scratch: &mut Scratch, alloc: &Alloc) {
    for group in &alloc.groups {
        for id in group.nodes.iter() {
            let node = view.node(id);
            let (cores, memory_mb): &mut (CoreSet, u64) =
                scratch.taken.entry(id).or_insert_with(|| (node.cores.clone(), node.memory_mb));
            cores.union_with(&group.cores);
            *memory_mb += group.memory_mb;
            if cores.len() >= node.hardware.cpus as usize {
                scratch.open.remove(NodeId(id.0));
            }
        }
    }
}

/// Where a job could run now if nobody were ahead of it; None: nowhere.
pub fn fits_now(view: &impl View, scratch: &mut Scratch, need: &Need, partition: usize) -> Option<Alloc> {
    scratch.reset(view);
    let request = Request::of(need, view)?;
    place(view, scratch, &request, view.partition(partition).nodes, Condition::Now)
}

/// Where a job would run on empty nodes of a partition, all of them up; None: nowhere.
pub fn feasible(view: &impl View, scratch: &mut Scratch, need: &Need, partition: usize) -> Option<Alloc> {
    let request = Request::of(need, view)?;
    place(view, scratch, &request, view.partition(partition).nodes, Condition::Ideal)
}
