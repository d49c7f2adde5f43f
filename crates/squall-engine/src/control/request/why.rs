//! `squall why`: all that keeps a job from starting, and what would let it start now.

use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState, NodeTest, PendingReason, Together};
use squall_model::license;
use squall_model::reservation::Reservation;
use squall_model::resource::Memory;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobName, Refusal};
use squall_model::wire::info::{Why, WhyChange, WhyMisfit, WhyPartition};
use squall_sched::{Candidate, Explained, Misfit, Queues, Scratch, explain};

use super::{Ask, Reply};
use crate::control::Controller;
use crate::control::drive::lanes::request_of;
use crate::control::drive::queue::{self, Pending, partitions_of};
use crate::control::drive::reckon::Standee;
use crate::control::drive::view::Sight;
use crate::control::info::cluster::names;
use crate::control::state::State;
use crate::control::state::job::Hold;
use crate::dependency::dependency_status;

/// Of those ahead, so many are named.
const NAMED_AHEAD: usize = 5;

/// Explains a job.
pub(crate) fn why(c: &mut Controller, ask: &Ask<'_>, id: JobId) -> Reply {
    if c.state.find(id).is_none() && !c.state.arrays.contains_key(&id) {
        return Err(Refusal::InvalidJobId);
    }
    let mut told = Why { job: c.state.name_of(id), state: state_of(&c.state, id), ..Why::default() };
    let item = queue::item_of(&c.state, id);
    let Some(pending) = item.and_then(|item| queue::pending(&c.state, item)) else {
        // It waits at its node for those who run in its place.
        let leased = c.state.jobs.get(&id).is_some_and(|job| job.is_leased());
        told.reasons.extend(leased.then_some(PendingReason::Resources));
        return Ok(Some(Answer::Why(Box::new(told))));
    };
    told.state = JobState::Pending;
    let now = ask.now;
    told.reasons = of_the_job(c, &pending, now);
    told.begin = pending.not_before().filter(|time| *time > now);
    if let Some(dependency) = &pending.spec.dependency {
        told.dependency = dependency_status(dependency, c.queue.open_terms(&c.state, now, pending.item));
    }
    let wanted = pending.spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default();
    let free = |name: &str| {
        let held = c.state.index.licenses.get(name).copied().unwrap_or_default();
        c.queue.licenses.get(name).map_or(0, |total| total.saturating_sub(held))
    };
    told.licenses =
        wanted.into_iter().map(|(name, count)| (free(&name), name, count)).map(|(f, n, w)| (n, w, f)).collect();
    c.queue.look_at_network(&c.state, now);
    let mut scratch = std::mem::take(&mut c.scratch);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    for at in partitions_of(&c.state, pending.spec) {
        let explained = look(&sight, &mut scratch, &pending, pending.spec, at);
        told.reasons.extend(explained.reasons.iter().cloned());
        if !explained.room && explained.reasons.is_empty() {
            told.reasons.push(if explained.empty { PendingReason::Resources } else { no_place(&explained) });
        }
        let ahead = sight.queue(at).take_while(|job| job.item != pending.item);
        let ahead: Vec<JobName> = ahead.map(|job| c.state.name_of(job.item.id)).collect();
        if !ahead.is_empty() && sight.queue(at).any(|job| job.item == pending.item) {
            told.reasons.push(PendingReason::Priority);
            told.ahead_total = told.ahead_total.max(ahead.len() as u32);
            told.ahead.extend(ahead.into_iter().take(NAMED_AHEAD.saturating_sub(told.ahead.len())));
        }
        told.partitions.push(partition(&c.state, pending.spec, at, &explained));
        told.reservations.extend(reservations(&c.state, pending.spec, &explained));
    }
    told.reservations.sort();
    told.reservations.dedup();
    told.changes = changes(&sight, &mut scratch, &pending);
    c.scratch = scratch;
    // The one that counts first, each once.
    let binding = c.queue.reason(&c.state, now, pending.item);
    let all = std::mem::take(&mut told.reasons);
    for reason in std::iter::once(binding).chain(all).filter(|reason| *reason != PendingReason::None) {
        if !told.reasons.contains(&reason) {
            told.reasons.push(reason);
        }
    }
    Ok(Some(Answer::Why(Box::new(told))))
}

fn state_of(state: &State, id: JobId) -> JobState {
    state.jobs.get(&id).map_or(JobState::Pending, |job| job.state())
}

/// What keeps it wherever it would run.
fn of_the_job(c: &Controller, pending: &Pending<'_>, now: Time) -> Vec<PendingReason> {
    let mut reasons = Vec::new();
    match pending.standing.hold {
        Hold::No => {}
        Hold::Admin => reasons.push(PendingReason::JobHeldAdmin),
        Hold::User | Hold::Requeue => reasons.push(PendingReason::JobHeldUser),
    }
    let open = c.queue.open_terms(&c.state, now, pending.item);
    if open.iter().any(|(_, never)| *never) {
        reasons.push(PendingReason::DependencyNeverSatisfied);
    } else if !open.is_empty() {
        reasons.push(PendingReason::Dependency);
    }
    if pending.not_before().is_some_and(|time| time > now) {
        reasons.push(PendingReason::BeginTime);
    }
    if pending.group(&c.state).is_some_and(|group| group.room == 0) {
        reasons.push(PendingReason::JobArrayTaskLimit);
    }
    reasons
}

/// Why there is no place, whatever jobs end.
fn no_place(explained: &Explained) -> PendingReason {
    if explained.ideal { PendingReason::ReqNodeNotAvail } else { PendingReason::BadConstraints }
}

/// What the policy would find for the job with that spec.
fn look(sight: &Sight<'_>, scratch: &mut Scratch, pending: &Pending<'_>, spec: &JobSpec, at: usize) -> Explained {
    let Some(need) = request_of(sight.state, spec) else {
        return Explained { reasons: vec![PendingReason::BadConstraints], ..Explained::default() };
    };
    let job = Candidate {
        item: pending.item,
        priority: sight.queue.reckoning.key(sight.state, &Standee::of(pending), at),
        need: &need,
        time_limit_s: if spec.time_limit_s == pending.spec.time_limit_s {
            pending.standing.time_limit_s.or(spec.limit_s())
        } else {
            spec.limit_s()
        },
        wish: sight.queue.wish(sight.state, pending),
        copies: 1,
        group: pending.group(sight.state),
        avoid: None,
        alone: false,
        others: &[],
    };
    explain(sight, scratch, &job, at, sight.now)
}

fn partition(state: &State, spec: &JobSpec, at: usize, explained: &Explained) -> WhyPartition {
    let partition = &state.partitions[at];
    let test = |(test, nodes): (&NodeTest, &NodeSet)| (*test, names(state, nodes), nodes.len() as u32);
    WhyPartition {
        name: partition.config.name.clone(),
        nodes: partition.nodes.len() as u32,
        nodes_min: explained.nodes_min,
        room: explained.room,
        empty: explained.empty,
        ideal: explained.ideal,
        tests: explained.nodes.iter().map(test).collect(),
        misfit: explained.misfit.as_ref().map(|misfit| named(spec, misfit)),
    }
}

/// What nodes lack that stand apart, with the options that ask for it.
fn named(spec: &JobSpec, misfit: &Misfit) -> WhyMisfit {
    let Misfit { together, free, shapes } = misfit.clone();
    let options: &[&str] = match together {
        Together::Contiguous => &["contiguous"],
        Together::Switches => &["switches"],
        Together::Geometry => &["geometry", "grid", "network"],
        Together::Grid => &["grid", "stencil", "network"],
        Together::Prism => &["network"],
        Together::Ring => &[],
    };
    let mut options: Vec<(String, String)> =
        spec.others.iter().filter(|(option, _)| options.contains(&option.as_str())).cloned().collect();
    if together == Together::Contiguous {
        options.push(("contiguous".to_owned(), String::new()));
    }
    WhyMisfit { together, options, free, shapes }
}

/// The reservations that keep nodes from it, and its own: name, begin, end.
fn reservations(state: &State, spec: &JobSpec, explained: &Explained) -> Vec<(String, Time, Time)> {
    let kept = explained.nodes.get(&NodeTest::Reserved);
    let matters = |one: &&Reservation| {
        let own = spec.reservation.as_deref() == Some(one.name.as_str());
        own || kept.is_some_and(|kept| !kept.is_disjoint(&one.nodes))
    };
    state.reservations.values().filter(matters).map(|one| (one.name.clone(), one.start, one.end)).collect()
}

/// Changes each of which, by itself, would let it start now if nobody were ahead.
fn changes(sight: &Sight<'_>, scratch: &mut Scratch, pending: &Pending<'_>) -> Vec<WhyChange> {
    let places: Vec<usize> = partitions_of(sight.state, pending.spec).collect();
    let mut would =
        |spec: &JobSpec, places: &[usize]| places.iter().any(|&at| look(sight, scratch, pending, spec, at).now());
    let spec = pending.spec;
    if would(spec, &places) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (change, other) in variants(spec) {
        let same = |known: &WhyChange| std::mem::discriminant(known) == std::mem::discriminant(&change);
        if !found.iter().any(same) && would(&other, &places) {
            found.push(change);
        }
    }
    for (at, partition) in sight.state.partitions.iter().enumerate().filter(|(at, _)| !places.contains(at)) {
        if partition.starts_jobs() && would(spec, &[at]) {
            found.push(WhyChange::Partition(partition.config.name.clone()));
        }
    }
    found
}

/// The same job asking for less, the smallest step of each kind first.
fn variants(spec: &JobSpec) -> Vec<(WhyChange, JobSpec)> {
    let mut all = Vec::new();
    let mut with = |change: WhyChange, edit: &dyn Fn(&mut JobSpec)| {
        let mut other = spec.clone();
        edit(&mut other);
        if other != *spec {
            all.push((change, other));
        }
    };
    with(WhyChange::WithoutNodelist, &|spec| spec.need.nodelist = None);
    with(WhyChange::WithoutExclude, &|spec| spec.need.exclude = None);
    with(WhyChange::WithoutConstraint, &|spec| spec.need.constraint = None);
    with(WhyChange::WithoutExclusive, &|spec| spec.need.exclusive = false);
    with(WhyChange::WithoutContiguous, &|spec| spec.need.contiguous = false);
    with(WhyChange::WithoutLicenses, &|spec| spec.need.licenses = None);
    with(WhyChange::WithoutReservation, &|spec| spec.reservation = None);
    with(WhyChange::WithoutGres, &|spec| {
        spec.need.gres = None;
        spec.others.retain(|(option, _)| !option.contains("gpu"));
    });
    for (numerator, denominator) in [(3, 4), (1, 2), (1, 4)] {
        let less = |count: u32| (count * numerator / denominator).max(1);
        if let Some(tasks) = spec.need.ntasks.filter(|tasks| *tasks > 1) {
            with(WhyChange::Tasks(less(tasks)), &|spec| spec.need.ntasks = Some(less(tasks)));
        }
        if let Some(nodes) = spec.need.nodes_min.filter(|nodes| *nodes > 1) {
            with(WhyChange::Nodes(less(nodes)), &|spec| {
                (spec.need.nodes_min, spec.need.nodes_max) = (Some(less(nodes)), None);
            });
        }
        if let Some(cpus) = spec.need.cpus_per_task.filter(|cpus| *cpus > 1) {
            with(WhyChange::CpusPerTask(less(cpus)), &|spec| spec.need.cpus_per_task = Some(less(cpus)));
        }
        let less_mb = |mb: u64| (mb * u64::from(numerator) / u64::from(denominator)).max(1);
        match spec.need.memory {
            Memory::PerNodeMb(mb) if mb > 1 => {
                let memory = Memory::PerNodeMb(less_mb(mb));
                with(WhyChange::Memory(memory), &|spec| spec.need.memory = memory);
            }
            Memory::PerCpuMb(mb) if mb > 1 => {
                let memory = Memory::PerCpuMb(less_mb(mb));
                with(WhyChange::Memory(memory), &|spec| spec.need.memory = memory);
            }
            _ => {}
        }
    }
    for seconds in [86_400, 8 * 3600, 4 * 3600, 2 * 3600, 3600, 1800, 600, 60] {
        if spec.time_limit_s.is_none_or(|limit| limit > seconds) {
            with(WhyChange::TimeLimit(seconds), &|spec| spec.time_limit_s = Some(seconds));
        }
    }
    all
}
