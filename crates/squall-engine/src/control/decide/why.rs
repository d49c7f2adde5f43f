//! `squall why`: all that keeps a job from starting, its expected start, and changes that would let it start sooner.

use std::cmp::Reverse;
use std::sync::Arc;

use squall_model::gres::GPU;
use squall_model::id::{JobId, NodeId};
use squall_model::job::network::{GroupKind, Network};
use squall_model::job::{JobSpec, JobState, NodeTest, PendingReason, Together};
use squall_model::license;
use squall_model::places::Vacancy;
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::info::{Why, WhyChange, WhyMisfit, WhyPartition, WhySpan, WhyStart, WhyVacant};
use squall_sched::topology::Wish;
use squall_sched::topology::groups::{self, Groups, Reach};
use squall_sched::{Explained, Misfit, Queues, Scratch, explain};

use crate::control::controller::Controller;
use crate::control::decide::admit;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::variants::variants;
use crate::control::index::lanes::request_of;
use crate::control::index::pending;
use crate::control::index::pending::{Pending, partitions_of};
use crate::control::index::privacy;
use crate::control::index::reckon::Standee;
use crate::control::index::view::Sight;
use crate::control::info::cluster::names;
use crate::control::info::forecast;
use crate::control::info::forecast::Variant;
use crate::control::info::silent;
use crate::control::state::State;
use crate::control::state::job::{Hold, Job};
use crate::dependency::dependency_status;

/// Maximum number of jobs ahead in the queue that an answer names.
const NAMED_AHEAD: usize = 5;

/// Maximum number of the job's partitions for which a start is forecast, and separately of other partitions.
const PARTITIONS_MAX: usize = 4;

/// Explains why a job does not run, or where it runs.
pub(crate) fn why(c: &mut Controller, ask: &Ask<'_>, id: JobId) -> Reply {
    let Some(id) = meant(&c.state, id) else { return Err(Refusal::InvalidJobId) };
    let sees = privacy::Sight::of(&c.state, ask.who);
    if !sees.shows(&c.state, id) {
        return Err(Refusal::InvalidJobId);
    }
    let mut told = Why { job: c.state.name_of(id), state: state_of(&c.state, id), ..Why::default() };
    let item = pending::item_of(&c.state, id);
    let Some(pending) = item.and_then(|item| pending::pending(&c.state, item)) else {
        of_running(c, id, &mut told);
        return Ok(Some(Answer::Why(Box::new(told))));
    };
    told.state = JobState::Pending;
    let now = ask.now;
    told.reasons = of_the_job(c, &pending, now);
    told.begin = pending.not_before().filter(|time| *time > now);
    if let Some(dependency) = &pending.spec.dependency {
        let open = c.queue.open_terms(&c.state, now, pending.item);
        told.dependency = dependency_status(dependency, open, |id| c.state.arrays.contains_key(&id));
    }
    let wanted = pending.spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default();
    let free = |name: &str| {
        let held = c.state.index.licenses.get(name).copied().unwrap_or_default();
        c.queue.licenses.get(name).map_or(0, |total| total.saturating_sub(held))
    };
    told.licenses =
        wanted.into_iter().map(|(name, count)| (free(&name), name, count)).map(|(f, n, w)| (n, w, f)).collect();
    c.queue.look_around(&c.state, now);
    let mut scratch = std::mem::take(&mut c.scratch);
    let mut never = Vec::new();
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    for at in partitions_of(&c.state, pending.spec) {
        let explained = look(&sight, &mut scratch, &pending, at);
        told.reasons.extend(explained.reasons.iter().cloned());
        if !explained.room && explained.reasons.is_empty() {
            told.reasons.push(no_place(&explained));
        }
        never.push(explained.never.clone());
        ahead(&sight, &pending, at, &mut told);
        told.partitions.push(partition(&c.state, pending.spec, at, &explained));
        told.reservations.extend(reservations(&c.state, pending.spec, &explained));
    }
    told.reservations.sort();
    told.reservations.dedup();
    // A start cannot be predicted while a hold, a dependency or another task of the array blocks the job.
    if of_the_job(c, &pending, now).is_empty() && pending.het.is_none_or(|het| het.leader == pending.item.id) {
        outlook(&sight, &mut scratch, &pending, &mut told);
    }
    c.scratch = scratch;
    told.ahead.retain(|job| sees.shows(&c.state, job.id));
    // The binding reason comes first, each reason once. A job that never fits waits for no resources and no other job.
    let never: Option<Vec<PendingReason>> = never.into_iter().collect();
    let never = never.and_then(|reasons| reasons.into_iter().next());
    let mut all = std::mem::take(&mut told.reasons);
    if never.is_some() {
        all.retain(|reason| !matches!(reason, PendingReason::Priority | PendingReason::Resources));
        (told.ahead_total, told.ahead) = (0, Vec::new());
    }
    let binding = never.unwrap_or_else(|| c.queue.reason(&c.state, now, pending.item));
    for reason in std::iter::once(binding).chain(all).filter(|reason| *reason != PendingReason::None) {
        if !told.reasons.contains(&reason) {
            told.reasons.push(reason);
        }
    }
    let restores = c.state.jobs.get(&id).filter(|_| !pending.item.array).is_some_and(|job| job.restore().is_some());
    told.reasons.extend(restores.then_some(PendingReason::Checkpointed));
    Ok(Some(Answer::Why(Box::new(told))))
}

/// Tells of a job that does not wait in the queue: where it runs, and what became of its nodes.
fn of_running(c: &Controller, id: JobId, told: &mut Why) {
    // because an array as a whole runs nowhere
    let Some(job) = c.state.jobs.get(&id) else { return };
    // A leased job waits on its node for the jobs before it in its line.
    told.reasons.extend(job.is_leased().then_some(PendingReason::Resources));
    told.silent = silent::of_job(c, job);
    told.vacant = vacant(&c.state, job);
    if job.is_running() || told.silent.is_some() {
        told.runs = job.run().map(|run| {
            let nodes = run.alloc.nodes();
            let wish = Wish::of_job(&job.spec.options).unwrap_or_default();
            (names(&c.state, &nodes), c.state.index.topology.seat(&nodes, &wish))
        });
        told.spans = spans(&c.state, job).unwrap_or_default();
    }
}

/// Returns how far the groups of a running job reach, as a step of all its tasks lays its ranks. None: it has no groups, or
/// the network has no blocks or switches.
fn spans(state: &State, job: &Job) -> Option<Vec<WhySpan>> {
    let kinds = &job.spec.options.get()?.network.groups.as_ref()?.value;
    let groups = Groups::of(kinds)?;
    let (topology, nodes) = (&state.index.topology, job.run()?.working_nodes());
    let order = groups::order(topology, &nodes, &groups)?;
    let spans = groups::spans(topology, &order, &groups)?;
    let told = |(kind, span): (&GroupKind, Reach)| WhySpan {
        name: kind.name.clone(),
        most: span.most,
        mean_hundredths: (span.mean * 100.0).round() as u32,
    };
    Some(kinds.iter().zip(spans).map(told).collect())
}

/// Returns the places of a running job that wait for another node.
fn vacant(state: &State, job: &Job) -> Vec<WhyVacant> {
    let Some(run) = job.run().filter(|_| job.is_running()) else { return Vec::new() };
    // The places are those of the nodes that the job had at its start.
    let mut places: Vec<NodeId> = run.working_nodes().into_iter().map(|node| run.place_of(node)).collect();
    places.extend(run.vacant().iter().map(|one| one.place));
    places.sort_unstable();
    let one = |one: &Vacancy| WhyVacant {
        lost: state.node(one.lost).map_or_else(String::new, |node| node.name.clone()),
        place: places.iter().position(|place| *place == one.place).unwrap_or_default() as u32,
        since: one.since,
        cpus: one.cpus,
        memory_mb: one.memory_mb,
        gres: one.gres.iter().map(|gres| format!("{}:{}", gres.name, gres.count)).collect::<Vec<_>>().join(","),
        partition: run.partition.clone(),
    };
    run.vacant().iter().map(one).collect()
}

/// Adds the jobs ahead of a pending job to the explanation, if the job is in this partition's queue.
fn ahead(sight: &Sight<'_>, pending: &Pending<'_>, at: usize, told: &mut Why) {
    let priority = sight.queue.reckoning.key(sight.state, &Standee::of(pending), at);
    let (mut count, mut named, mut stands) = (0, Vec::new(), false);
    for job in sight.queue(at) {
        stands = job.item == pending.item;
        if stands || (Reverse(job.priority), job.item) > (Reverse(priority), pending.item) {
            break;
        }
        count += 1;
        if named.len() < NAMED_AHEAD {
            named.push(sight.state.name_of(job.item.id));
        }
    }
    if stands && count > 0 {
        told.reasons.push(PendingReason::Priority);
        told.ahead_total = told.ahead_total.max(count);
        told.ahead.extend(named.into_iter().take(NAMED_AHEAD.saturating_sub(told.ahead.len())));
    }
}

/// Returns the job, array or task that a question is about: of an array without untouched tasks the first task that
/// waits. None: there is none with this id.
fn meant(state: &State, id: JobId) -> Option<JobId> {
    let Some(array) = state.arrays.get(&id) else { return state.find(id).map(|_| id).or_else(|| skipped(state, id)) };
    if !array.tally.untouched.is_empty() || array.tally.waiting == 0 {
        return Some(id);
    }
    let tasks = state.jobs.range(id..JobId(id.0.saturating_add(array.size())));
    tasks.into_iter().find(|(_, job)| job.is_pending()).map_or(Some(id), |(task, _)| Some(*task))
}

/// Returns the id if it is that of a task that ended without a start or record of its own.
fn skipped(state: &State, id: JobId) -> Option<JobId> {
    let (first, array) = state.array_of(id)?;
    let index = array.index_of(first, id)?;
    array.tally.skipped.iter().any(|skipped| skipped.tasks.contains(index)).then_some(id)
}

fn state_of(state: &State, id: JobId) -> JobState {
    if let Some(job) = state.jobs.get(&id).filter(|_| !state.arrays.contains_key(&id)) {
        return job.state();
    }
    let Some((first, array)) = state.array_of(id) else { return JobState::Pending };
    if id == first {
        let now = if array.tally.active > 0 { JobState::Running } else { JobState::Pending };
        return array.outcome().map_or(now, |outcome| JobState::Ended(outcome.state));
    }
    let index = array.index_of(first, id);
    let skipped = array.tally.skipped.iter().find(|skipped| index.is_some_and(|index| skipped.tasks.contains(index)));
    skipped.map_or(JobState::Pending, |skipped| JobState::Ended(skipped.outcome.state))
}

/// Returns the reasons that keep a job from starting in every partition: hold, dependency, begin time, array task
/// limit.
fn of_the_job(c: &Controller, pending: &Pending<'_>, now: Time) -> Vec<PendingReason> {
    let mut reasons = Vec::new();
    match pending.standing.hold {
        Hold::No => {}
        Hold::Admin => reasons.push(PendingReason::JobHeldAdmin),
        Hold::User => reasons.push(PendingReason::JobHeldUser),
        Hold::Requeue => reasons.push(PendingReason::RequeuedHeld),
        Hold::Special => reasons.push(PendingReason::SpecialExit),
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

/// Returns the pending reason to show when a job does not fit into a partition now.
fn no_place(explained: &Explained) -> PendingReason {
    match &explained.never {
        _ if explained.empty => PendingReason::Resources,
        Some(never) => never.clone(),
        None => PendingReason::ReqNodeNotAvail,
    }
}

/// Returns the scheduling policy's explanation for the job in the partition at position `at`.
fn look(sight: &Sight<'_>, scratch: &mut Scratch, pending: &Pending<'_>, at: usize) -> Explained {
    let Some(need) = request_of(sight.state, pending.spec) else {
        return Explained { reasons: vec![PendingReason::BadConstraints], ..Explained::default() };
    };
    let job = forecast::candidate(sight, pending, (&need, pending.limit_s()), at);
    explain(sight, scratch, &job, at, sight.now)
}

fn partition(state: &State, spec: &JobSpec, at: usize, explained: &Explained) -> WhyPartition {
    let partition = &state.partitions[at];
    let test = |(test, nodes): (&NodeTest, &NodeSet)| (*test, names(state, nodes), nodes.len() as u32);
    // If the job never fits, nodes that are only busy do not matter.
    let matters = |(test, _): &(&NodeTest, &NodeSet)| explained.never.is_none() || !passes(**test);
    WhyPartition {
        name: partition.config.name.clone(),
        nodes: partition.nodes.len() as u32,
        nodes_min: explained.nodes_min,
        room: explained.room,
        empty: explained.empty,
        ideal: explained.ideal,
        tests: explained.nodes.iter().filter(matters).map(test).collect(),
        misfit: explained.misfit.as_ref().map(|misfit| named(spec, misfit)),
    }
}

/// Returns whether a node with this test result has what a job asks for, whether or not other jobs use it now.
fn passes(test: NodeTest) -> bool {
    use NodeTest as T;
    matches!(test, T::Free | T::Silent | T::BusyCpus | T::BusyMemory | T::BusyGres | T::OtherUsers | T::Unusable)
}

/// Describes what free nodes lack as a set (such as contiguity), with the job's options that ask for it.
fn named(spec: &JobSpec, misfit: &Misfit) -> WhyMisfit {
    let Misfit { together, free, shapes } = misfit.clone();
    let Network { class, geometry, grid, stencil, switches, groups } = &spec.options.network;
    let empty = String::new();
    let network = class.as_ref().map(|given| ("network", &given.text));
    let grid = grid.as_ref().map(|given| ("grid", &given.text));
    let segment = spec.options.segment.map(|nodes| nodes.to_string());
    let options = match together {
        Together::Contiguous => vec![Some(("contiguous", &empty))],
        Together::Switches => vec![switches.as_ref().map(|given| ("switches", &given.text))],
        Together::Geometry => vec![geometry.as_ref().map(|given| ("geometry", &given.text)), grid, network],
        Together::Grid => vec![grid, network, stencil.as_ref().map(|given| ("stencil", &given.text))],
        Together::Prism => vec![network],
        Together::Ring | Together::Block => Vec::new(),
        Together::Segments => {
            let placing = spec.options.segments.unwrap_or_default();
            let flag = |set: bool, option| Some((option, &empty)).filter(|_| set);
            let apart = flag(placing.apart, "spread-segments");
            vec![
                segment.as_ref().map(|nodes| ("segment", nodes)),
                apart,
                flag(placing.together, "consolidate-segments"),
                groups.as_ref().map(|given| ("groups", &given.text)),
            ]
        }
    };
    let options = options.into_iter().flatten().map(|(option, value)| (option.to_owned(), value.clone())).collect();
    WhyMisfit { together, options, free, shapes }
}

/// Returns name, begin and end of the reservations that keep nodes from a job, and of the reservations that the job
/// names.
fn reservations(state: &State, spec: &JobSpec, explained: &Explained) -> Vec<(String, Time, Time)> {
    let kept = explained.nodes.get(&NodeTest::Reserved);
    let matters = |one: &&Reservation| {
        let own = spec.reservations().any(|name| name == one.name);
        own || kept.is_some_and(|kept| !kept.is_disjoint(&one.nodes))
    };
    state.reservations.values().filter(matters).map(|one| (one.name.clone(), one.start, one.end)).collect()
}

/// Forecasts when the job starts in any of its partitions, behind the jobs ahead of it, and finds changes each of which
/// alone would let it start sooner.
fn outlook(sight: &Sight<'_>, scratch: &mut Scratch, pending: &Pending<'_>, told: &mut Why) {
    let state = sight.state;
    let variants = variants(state, pending);
    let mut found: Vec<Option<Time>> = vec![None; variants.len()];
    let asked: Vec<Variant> = variants.iter().map(|(_, variant)| variant.clone()).collect();
    let places: Vec<usize> =
        partitions_of(state, pending.spec).filter(|&at| state.partitions[at].starts_jobs()).collect();
    let mut first: Option<(Time, usize, NodeSet)> = None;
    for &at in places.iter().take(PARTITIONS_MAX) {
        let sooner_than = first.as_ref().map(|first| first.0);
        let times = forecast::behind(sight, scratch, pending, (at, &asked, sooner_than));
        for (best, time) in found.iter_mut().zip(&times) {
            *best = best.iter().copied().chain(time.as_ref().map(|(time, _)| *time)).min();
        }
        if let Some((time, given)) = times.into_iter().next().flatten()
            && first.as_ref().is_none_or(|first| time < first.0)
        {
            first = Some((time, at, given.alloc.nodes()));
        }
    }
    let expected = first.as_ref().map(|first| first.0);
    if expected == Some(sight.now) {
        return start(state, told, first);
    }
    let mut changes: Vec<(WhyChange, Time)> = Vec::new();
    for ((change, _), time) in variants.into_iter().zip(found) {
        let time = time.filter(|time| is_sooner(sight.now, *time, expected));
        // because the variant may be the job as it is, or start no earlier
        let Some((change, time)) = change.zip(time) else { continue };
        let alike = |known: &WhyChange| std::mem::discriminant(known) == std::mem::discriminant(&change);
        // A larger change is listed only if it gains more.
        if changes.iter().all(|(known, before)| !alike(known) || time < *before) {
            changes.push((change, time));
        }
    }
    // Nodes with GPUs are for jobs that use them.
    let with_gpus = places.iter().any(|&at| has_gpus(state, at));
    let others = state
        .partitions
        .iter()
        .enumerate()
        .filter(|(at, other)| !places.contains(at) && other.starts_jobs() && (with_gpus || !has_gpus(state, *at)));
    for (at, other) in others.take(PARTITIONS_MAX) {
        let spec = JobSpec { partition: Some(other.config.name.clone()), ..JobSpec::clone(pending.spec) };
        if admit::place(state, pending.owner, &spec).is_err() {
            continue;
        }
        let variant = Variant { spec: Arc::new(spec), limit_s: asked[0].limit_s };
        let time = forecast::behind(sight, scratch, pending, (at, &[variant], expected)).into_iter().next().flatten();
        if let Some((time, _)) = time.filter(|(time, _)| is_sooner(sight.now, *time, expected)) {
            changes.push((WhyChange::Partition(other.config.name.clone()), time));
        }
    }
    // A shorter time limit changes no result.
    changes.sort_by_key(|(change, time)| (!matches!(change, WhyChange::TimeLimit(_)), *time));
    told.changes = changes;
    start(state, told, first);
}

/// Returns whether a partition has nodes with GPUs.
fn has_gpus(state: &State, at: usize) -> bool {
    let gpus = |id| state.index.gres.get(&id).is_some_and(|gres| gres.kinds.iter().any(|kind| kind.name == GPU));
    state.partitions[at].nodes.iter().any(gpus)
}

/// Returns whether a change is worth telling: the job starts at once, or sooner than expected by at least a minute and a
/// twentieth of the wait.
fn is_sooner(now: Time, time: Time, expected: Option<Time>) -> bool {
    // because without an expected start any start is sooner
    let Some(expected) = expected else { return true };
    let gain = expected.since(time);
    let least = Span::from_secs(60).max(Span(expected.since(now).0 / 20));
    time < expected && (time <= now || gain >= least)
}

/// Sets when and where the job is expected to start; `first` None: no expected start is known.
fn start(state: &State, told: &mut Why, first: Option<(Time, usize, NodeSet)>) {
    told.start = first.map(|(time, at, nodes)| WhyStart {
        time,
        partition: state.partitions[at].config.name.clone(),
        nodes: names(state, &nodes),
        prism: state.index.topology.prism_of(&nodes),
    });
}
