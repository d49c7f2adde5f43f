//! The queue: which pending jobs may start, in which order, and why others can't. Rebuilt from the state.

use crate::control::index::pending::Pending;
use crate::control::index::pending::partitions_of;
use crate::control::index::pending::pending;
use crate::control::index::pending::pending_job;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::SchedulerType;
use squall_model::foreign::Question;
use squall_model::id::{JobId, NodeId};
use squall_model::job::{EndState, Het, JobSpec, Owner, PendingReason};
use squall_model::reservation::Flag;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_sched::{Claim, Closed, Component, Gate, Item, Request, Skip, UNLIMITED};

use crate::control::index::depend;
use crate::control::index::depend::Verdict;
use crate::control::index::facts;
use crate::control::index::lanes::{ClassId, Place, ReadyQueue, RequestClasses, Shape, Want, exemptions};
use crate::control::index::names::Names;
use crate::control::index::power;
use crate::control::index::reckon;
use crate::control::index::reckon::{Reckoning, Standee};
use crate::control::index::starved::Starved;
use crate::control::index::timers::{Timer, Timers};
use crate::control::index::users;
use crate::control::state::gates;
use crate::control::state::job::{Hold, Run};
use crate::control::state::{LineId, State};
use crate::invariant::invariant;

/// Maximum number of jobs that are re-examined at once when jobs no longer count against a shared limit.
const WOKEN_AT_ONCE: usize = 64;

/// Soft state of pending jobs and arrays: their order, and what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Jobs that may start, by partition.
    ready: Vec<ReadyQueue>,
    /// Resource requests of the jobs that may start.
    pub(crate) kinds: RequestClasses,
    /// The components after the first of each pending heterogeneous job, by the first component.
    pub(crate) hets: BTreeMap<JobId, Vec<Component>>,
    /// All nodes in the order in which they are allocated, those that are powered up first. None: it is to be found.
    pub(crate) order: Option<Vec<NodeId>>,
    /// Number of scheduling passes so far.
    passes: u64,
    /// Latest ends of jobs that hold resources, sorted by time: by time limit, reservation or deadline. A job with none
    /// of these has a time far in the future.
    pub(crate) ends: BTreeSet<(Time, JobId)>,
    /// The times in `ends`, by job.
    pub(crate) end_of: BTreeMap<JobId, Time>,
    /// Position of the first job that lacked resources in the last scheduling pass, by partition; None: no job did.
    heads: Vec<Option<Place>>,
    /// Jobs and arrays that can't start as the cluster is now and are in no partition's queue, with the reason
    /// ("parked").
    parked: BTreeMap<Item, PendingReason>,
    /// Those parked jobs and arrays that lack licenses.
    starved: Starved,
    /// Total number of each license.
    pub(crate) licenses: BTreeMap<String, u32>,
    /// Parts of priorities that are calculated in advance.
    pub(crate) reckoning: Reckoning,
    /// When job ids last wrapped around, as known at the last calculation of queue positions.
    pub(crate) ids_began: Option<Time>,
    /// Queue positions of pending jobs that a shared limit of an association or QOS blocks, by limit.
    limited: BTreeMap<Gate, BTreeSet<Place>>,
    /// Array tasks that wait until another task of their array ends, because of the array's limit (`%N`): array and
    /// task.
    throttled: BTreeSet<(JobId, Item)>,
    /// Pending jobs and arrays that have a dependency, by the job or array on which they depend.
    watchers: BTreeMap<JobId, BTreeSet<Item>>,
    /// Jobs by user and name, for `singleton`.
    pub(crate) names: Names,
    /// New questions to other cells about dependencies; sent at the end of the turn.
    pub(crate) questions: BTreeSet<Question>,
    /// When the last scheduling pass began.
    pub(crate) now: Time,
    /// Nodes of running jobs that use the network links around them alone.
    pub(crate) closed: Vec<Closed>,
    /// Whether some job has `--exclusive=user`, or had it since the queue was last rebuilt.
    pub(crate) keeps_apart: bool,
    /// Whether some reservation is magnetic, so that users, accounts and QOS matter for what jobs may use.
    pub(crate) magnetic: bool,
    /// Running jobs with their users, nodes and expected ends, to keep users apart. Empty unless `keeps_apart`.
    pub(crate) claims: Vec<Claim>,
    /// Nodes with free cores where jobs may start now.
    pub(crate) open: NodeSet,
    /// Nodes where jobs may start now, even if only on cores that they share with others.
    pub(crate) reachable: NodeSet,
    /// Pending jobs and arrays to be examined in this turn, as something that concerns them has changed.
    pub(crate) dirty: BTreeSet<Item>,
    /// Whether a scheduling pass is needed because some job may be able to start.
    pub(crate) kick: bool,
    /// Nodes of jobs that are completing and for which others in the same partitions wait (`CompleteWait`).
    pub(crate) completing: NodeSet,
}

/// The result of examining a pending job or array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The job or array has its queue position, or the reason why it can't start is recorded.
    Settled,
    /// The dependency of the job or array can never be satisfied.
    Hopeless,
}

impl Queue {
    /// Returns the request and time limit of a pending job. None: no job that may start has that request.
    pub(crate) fn known_shape(&self, pending: &Pending<'_>) -> Option<Shape> {
        Some(self.shaped(pending, self.kinds.find(pending.spec)?))
    }

    fn shaped(&self, pending: &Pending<'_>, kind: ClassId) -> Shape {
        let (het, home) = (pending.het.map(|het| het.leader), pending.home.map(|home| home.node));
        let kin = self.magnetic.then(|| kin(pending));
        let want = Want { kind, het, user: self.user(pending.owner), home, kin };
        Shape { want, limit_s: pending.limit_s() }
    }

    /// Rebuilds the whole queue at once; it may contain a million jobs.
    pub(crate) fn rebuild(&mut self, state: &State, timers: &mut Timers, now: Time) {
        let partitions = state.partitions.len();
        self.reckoning = Reckoning::new(state, now);
        self.ids_began = state.ids_began;
        if reckon::is_multifactor(&state.config) {
            timers.set(Timer::Reckon, now + Span::from_secs(state.config.priority_calc_period_s.0.max(1)));
        }
        self.heads = vec![None; partitions];
        self.parked.clear();
        self.starved = Starved::default();
        self.licenses = state.license_totals();
        self.limited.clear();
        self.throttled.clear();
        self.watchers.clear();
        self.dirty.clear();
        self.names = Names::default();
        self.kinds = RequestClasses::default();
        self.keeps_apart = users::keeps_apart(state);
        self.magnetic = state.reservations.values().any(|one| one.is(Flag::Magnetic));
        self.hets.clear();
        self.kick = true;
        self.ends.clear();
        self.end_of.clear();
        state.jobs.keys().for_each(|&id| self.note_end(state, id));
        let mut ready = vec![Vec::new(); partitions];
        let mut place = |pending: Pending<'_>| {
            let (starts, entered) = self.judge(state, timers, now, &pending);
            if entered == Entered::Hopeless {
                self.dirty.insert(pending.item);
            }
            // because a job that has something to wait for, or fits in no partition, stands in no line
            let Some(shape) = self.shape(state, &pending).filter(|_| starts) else { return };
            for at in partitions_of(state, pending.spec) {
                ready[at].push((shape, self.place(state, &pending, at)));
            }
        };
        state.jobs.iter().filter(|(_, job)| job.is_pending()).for_each(|(&id, job)| place(pending_job(state, id, job)));
        let arrays = state.arrays.keys().filter_map(|&id| pending(state, Item { id, array: true }));
        arrays.for_each(place);
        let (kinds, passes) = (&mut self.kinds, self.passes);
        self.ready = ready.into_iter().map(|places| ReadyQueue::of(places, kinds, passes)).collect();
    }

    /// Returns the request and time limit of a pending job or array; a new request is parsed. None: no partition here
    /// can satisfy the request, which is recorded as the pending reason.
    fn shape(&mut self, state: &State, pending: &Pending<'_>) -> Option<Shape> {
        let known = self.gather(state, pending);
        let kind = self.kinds.enter(state, pending.spec).filter(|_| known);
        if kind.is_none() {
            self.parked.insert(pending.item, PendingReason::BadConstraints);
        }
        kind.map(|kind| self.shaped(pending, kind))
    }

    /// Updates when a job that holds resources ends at the latest; removes the entry of a job that holds none.
    pub(crate) fn note_end(&mut self, state: &State, id: JobId) {
        let job = state.jobs.get(&id);
        let end = job.and_then(|job| {
            let run = job.run()?;
            let end = facts::end_time(state, id, job, run).unwrap_or(run.start + UNLIMITED);
            Some(if job.is_leased() { end + self.wait_in_line(state, id, run) } else { end })
        });
        let before = match end {
            Some(end) => self.end_of.insert(id, end),
            None => self.end_of.remove(&id),
        };
        if before != end {
            before.map(|before| self.ends.remove(&(before, id)));
            self.ends.extend(end.map(|end| (end, id)));
        }
    }

    /// Returns the longest time until a leased job begins, from the time when it was leased: until the latest end of
    /// the job before it in its line.
    fn wait_in_line(&self, state: &State, id: JobId, run: &Run) -> Span {
        let members = LineId::of(&run.alloc).and_then(|line| state.lines.get(&line));
        let before = members.and_then(|members| members.iter().take_while(|member| **member != id).last());
        let end = before.and_then(|before| self.end_of.get(before));
        end.map_or(Span(0), |end| end.since(run.start))
    }

    /// Removes a job or array from the queue. The state must still have the values from which its position was
    /// calculated.
    pub(crate) fn withdraw(&mut self, state: &State, timers: &mut Timers, item: Item) {
        // because the event may be about a job that no longer waits
        let Some(pending) = pending(state, item) else { return };
        self.take_out(state, &pending);
        self.unpark(state, &pending);
        if let Some(task) = pending.task {
            self.throttled.remove(&(task.array, item));
        } else if item.array {
            self.throttled.remove(&(item.id, item));
        }
        if pending.spec.dependency.is_some() {
            for target in depend::targets(state, pending.spec) {
                if let Some(watchers) = self.watchers.get_mut(&target) {
                    watchers.remove(&item);
                    if watchers.is_empty() {
                        self.watchers.remove(&target);
                    }
                }
            }
        }
        if pending.is_single() {
            self.names.want_single(&pending, false);
        }
        if pending.not_before().is_some() || pending.spec.dependency.is_some() {
            timers.clear(Timer::Ready(item));
        }
        if pending.spec.deadline.is_some() {
            timers.clear(Timer::Deadline(item));
        }
    }

    /// Examines a pending job or array. If it may start, it gets its position in the queues of its partitions;
    /// otherwise it is taken out of them.
    pub(crate) fn enter(&mut self, state: &State, timers: &mut Timers, now: Time, item: Item) -> Entered {
        let Some(pending) = pending(state, item) else { return Entered::Settled };
        if !self.keeps_apart && (pending.spec.keeps_others_off() || pending.spec.keeps_blocks()) {
            // For the first `--exclusive=user` or `=topo` job the queue is rebuilt, so that requests contain the user.
            let dirty = std::mem::take(&mut self.dirty);
            self.rebuild(state, timers, now);
            self.dirty.extend(dirty);
            return Entered::Settled;
        }
        self.unpark(state, &pending);
        let (starts, entered) = self.judge(state, timers, now, &pending);
        self.put(state, &pending, starts);
        entered
    }

    /// Returns whether a pending job or array may start. Registers it with everything that may change that: timers,
    /// dependencies, array limits.
    fn judge(&mut self, state: &State, timers: &mut Timers, now: Time, pending: &Pending<'_>) -> (bool, Entered) {
        let item = pending.item;
        let too_late = pending.too_late();
        if let Some(time) = too_late {
            timers.set(Timer::Deadline(item), time);
        }
        let mut earliest = pending.not_before();
        let mut verdict = Verdict::Holds;
        if pending.spec.dependency.is_some() {
            for target in depend::targets(state, pending.spec) {
                self.watchers.entry(target).or_default().insert(item);
            }
            if pending.is_single() {
                self.names.keep(state);
                self.names.want_single(pending, true);
            }
            verdict = pending.verdict(state, &self.names);
            if matches!(verdict, Verdict::Waits | Verdict::At(_)) {
                self.questions.extend(pending.questions(state));
            }
            if let Verdict::At(time) = verdict {
                earliest = earliest.max(Some(time));
            }
        }
        let later = earliest.filter(|time| *time > now);
        // A job that waits for few switches, or for nodes that are up, is examined again at the end of that wait.
        let waits_until = [Self::patience(state, pending), power::boots_from(pending)].into_iter().flatten();
        if let Some(time) = later.or_else(|| waits_until.filter(|time| *time > now).min()) {
            timers.set(Timer::Ready(item), time);
        }
        let full = pending.group(state).filter(|group| group.room == 0);
        let waits = matches!(verdict, Verdict::Waits | Verdict::Never) || pending.standing.hold != Hold::No;
        if let Some(group) = full.filter(|_| !waits && later.is_none()) {
            self.throttled.insert((group.id, item));
        }
        let starts = !waits && later.is_none() && full.is_none() && self.is_whole(state, now, pending);
        // The job ends when its timer fires, which may be after this turn.
        let starts = starts && too_late.is_none_or(|time| time > now);
        let limited = || pending.broken(state).is_some() || self.uses_too_much(state, pending);
        let broken = starts && !state.policy.is_empty() && limited();
        let entered = if verdict == Verdict::Never { Entered::Hopeless } else { Entered::Settled };
        (starts && !broken, entered)
    }

    /// Puts a job or array that may start (`ready`) into the queues of its partitions, or takes it out of them.
    fn put(&mut self, state: &State, pending: &Pending<'_>, ready: bool) {
        if !ready {
            self.take_out(state, pending);
            return;
        }
        // because a job that fits in no partition stands in no line; it was parked with that reason
        let Some(shape) = self.shape(state, pending) else { return };
        let backfills = state.config.scheduler_type == SchedulerType::Backfill;
        // The order among equal requests matters if several jobs get reservations, or if each waits its own time for
        // few switches or nodes that are up.
        let waits = |need: &Request| need.wish.switches.is_some() || need.delay_boot_s.is_some();
        let several =
            self.kinds.request(shape.want.kind).is_some_and(waits) || state.config.scheduler_parameters.kept() > 1;
        for at in partitions_of(state, pending.spec) {
            let place = self.place(state, pending, at);
            let (Some(line), Some(head)) = (self.ready.get_mut(at), self.heads.get(at)) else {
                invariant!("each partition has a line and a head");
                continue;
            };
            // Behind a job that waits for resources, only backfill starts jobs.
            // because the job stood there already, so it changes nothing for others
            let Some(untried) = line.insert(&mut self.kinds, shape, place, self.passes) else { continue };
            if head.is_none_or(|head| place < head) || (backfills && (untried || several)) {
                self.kick = true;
            }
        }
    }

    /// Removes a job or array from the queues of its partitions.
    fn take_out(&mut self, state: &State, pending: &Pending<'_>) {
        self.hets.remove(&pending.item.id);
        // because a job that never could start has no shape
        let Some(shape) = self.known_shape(pending) else { return };
        let several = state.config.scheduler_parameters.kept() > 1;
        for at in partitions_of(state, pending.spec) {
            let place = self.place(state, pending, at);
            let Some(line) = self.ready.get_mut(at) else {
                invariant!("each partition has a line");
                continue;
            };
            if line.remove(&mut self.kinds, shape, place) {
                let first = self.heads[at] == Some(place);
                self.heads[at] = self.heads[at].filter(|_| !first);
                // Resources may have been reserved for this job.
                self.kick |= first || several;
            }
        }
    }

    /// Marks for examination all jobs and arrays that depend on a job or array, as that one started, ended or was
    /// requeued.
    pub(crate) fn wake_watchers(&mut self, state: &State, id: JobId) {
        if self.watchers.is_empty() {
            return;
        }
        let target = state.array_of(id).map_or(id, |(array, _)| array);
        if let Some(watchers) = self.watchers.get(&target) {
            self.dirty.extend(watchers.iter().copied());
        }
    }
    /// Marks for examination tasks of an array that wait for its limit (`%N`), as many as the limit now allows. Called
    /// when a task ended or the limit changed.
    pub(crate) fn wake_throttled(&mut self, state: &State, id: JobId) {
        // because the id may be that of a job, which no limit of an array throttles
        let Some(array) = state.arrays.get(&id) else { return };
        let room = array.limit.map_or(usize::MAX, |limit| limit.saturating_sub(array.tally.active) as usize);
        let from = (id, Item { id: JobId(0), array: false });
        let throttled = self.throttled.range(from..).take_while(|(array, _)| *array == id);
        let woken: Vec<_> = throttled.take(room).copied().collect();
        for throttled in woken {
            self.throttled.remove(&throttled);
            self.dirty.insert(throttled.1);
        }
    }
    /// Marks for examination all pending jobs and arrays that could not start as the cluster was (parked ones), as it
    /// changed.
    pub(crate) fn wake_parked(&mut self, state: &State) {
        self.kinds.read_names(state);
        self.gather_again(state);
        self.dirty.extend(self.parked.keys().copied());
        self.kick = true;
    }
    /// Returns the jobs of a partition that may start.
    pub(crate) fn line(&self, partition: usize) -> Option<&ReadyQueue> {
        self.ready.get(partition)
    }
    /// Records the first job of each partition that lacked resources in the scheduling pass just made.
    pub(crate) fn set_heads(&mut self, state: &State, heads: &[squall_sched::Head]) {
        self.passes += 1;
        self.heads.iter_mut().for_each(|head| *head = None);
        for head in heads {
            let Some(pending) = pending(state, head.item) else {
                invariant!("a job that lacked resources in a pass waits");
                continue;
            };
            let place = self.place(state, &pending, head.partition);
            if let Some(slot) = self.heads.get_mut(head.partition) {
                *slot = Some(place);
            }
        }
    }
    /// Returns the first job of a partition that lacked resources in the last scheduling pass. None: no job did.
    pub(crate) fn head(&self, partition: usize) -> Option<Item> {
        self.heads.get(partition).copied().flatten().map(|place| place.item)
    }
    /// Makes the next job the first one that lacks resources (the head) in a partition, after the former head `gone`
    /// has left the queue without freeing resources. Returns true if the next job has the same request as `gone`, or if
    /// there is no next job: then no job can start, and no scheduling pass is needed.
    pub(crate) fn next_is_alike(&mut self, state: &State, partition: usize, gone: JobId) -> bool {
        let Some((place, shape)) = self.ready.get(partition).and_then(ReadyQueue::first) else { return true };
        let spec = state.jobs.get(&gone).map(|job| &job.spec);
        let alike = !self.magnetic && spec.and_then(|spec| self.kinds.find(spec)) == Some(shape.want.kind);
        if alike {
            self.heads[partition] = Some(place);
        }
        alike
    }
    /// Removes a job that can't start from a partition's queue and records it with the reason as parked.
    pub(crate) fn park(&mut self, state: &State, skip: Skip) {
        let Some(pending) = pending(state, skip.item) else {
            return invariant!("a job that was passed over in a pass waits");
        };
        let (shape, place) = (self.known_shape(&pending), self.place(state, &pending, skip.partition));
        if let Some((line, shape)) = self.ready.get_mut(skip.partition).zip(shape) {
            line.remove(&mut self.kinds, shape, place);
        }
        match skip.reason {
            PendingReason::Licenses => {
                let place = self.first_place(state, &pending);
                let others = pending.het.into_iter().flat_map(Het::ids).filter_map(|id| state.jobs.get(&id));
                others.for_each(|other| self.starved.add(&other.spec, place));
                self.starved.add(pending.spec, place);
            }
            PendingReason::Limit(..) => {
                let place = self.first_place(state, &pending);
                for gate in pending.limiting_gates(state) {
                    self.limited.entry(gate).or_default().insert(place);
                }
            }
            _ => {}
        }
        self.parked.insert(skip.item, skip.reason);
    }
    /// Returns the pending jobs and arrays that lack licenses, in order of their queue positions.
    pub(crate) fn starved<'a>(&self, state: &'a State) -> Vec<Pending<'a>> {
        let parked = self.parked.iter().filter(|(_, reason)| **reason == PendingReason::Licenses);
        let mut starved: Vec<Pending<'a>> = parked.filter_map(|(item, _)| pending(state, *item)).collect();
        starved.sort_by_cached_key(|pending| self.first_place(state, pending));
        starved
    }
    /// Marks for examination jobs that lack licenses, as a job with the given spec has returned its licenses.
    pub(crate) fn wake_starved(&mut self, state: &State, spec: &JobSpec) {
        if spec.need.licenses.is_none() {
            return;
        }
        if state.reservations.values().any(|one| one.licenses.is_some()) {
            // The first jobs may have to leave the licenses to a reservation, and others may not.
            self.wake_parked(state);
        } else {
            let held = |name: &str| state.index.licenses.get(name).copied().unwrap_or_default();
            let free = |name: &str| self.licenses.get(name).map_or(0, |total| total.saturating_sub(held(name)));
            self.dirty.extend(self.starved.woken(spec, free));
        }
    }

    /// Returns the position of a pending job or array in a partition's queue.
    fn place(&self, state: &State, pending: &Pending<'_>, partition: usize) -> Place {
        Place { key: Reverse(self.reckoning.key(state, &Standee::of(pending), partition)), item: pending.item }
    }

    /// Returns the position of a pending job or array in the queue of its first partition.
    fn first_place(&self, state: &State, pending: &Pending<'_>) -> Place {
        let first = partitions_of(state, pending.spec).next().unwrap_or_default();
        self.place(state, pending, first)
    }

    /// Removes a job or array from those that can't start as the cluster is (parked ones).
    fn unpark(&mut self, state: &State, pending: &Pending<'_>) {
        match self.parked.remove(&pending.item) {
            Some(PendingReason::Licenses) => self.starved.remove(self.first_place(state, pending)),
            Some(PendingReason::Limit(..)) => {
                let place = self.first_place(state, pending);
                for gate in pending.limiting_gates(state) {
                    if let Some(limited) = self.limited.get_mut(&gate) {
                        limited.remove(&place);
                        if limited.is_empty() {
                            self.limited.remove(&gate);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Marks for examination the first jobs that wait for a shared limit of the given job, as that job no longer counts
    /// against the limit.
    pub(crate) fn wake_limited(&mut self, state: &State, owner: &Owner, spec: &JobSpec, partition: &str) {
        if self.limited.is_empty() {
            return;
        }
        for gate in gates::gates(state, owner, spec, partition) {
            let waiting = self.limited.get(&gate).into_iter().flatten();
            self.dirty.extend(waiting.take(WOKEN_AT_ONCE).map(|place| place.item));
        }
    }

    /// Marks for examination all jobs that are blocked by a limit on usage over time.
    pub(crate) fn wake_budgeted(&mut self) {
        let moves = |reason: &PendingReason| matches!(reason, PendingReason::Limit(_, limit) if limit.moves());
        let waiting = self.parked.iter().filter(|(_, reason)| moves(reason));
        self.dirty.extend(waiting.map(|(item, _)| *item));
        self.kick = true;
    }

    /// Returns the pending reason of a job or array, as users see it.
    pub(crate) fn reason(&self, state: &State, now: Time, item: Item) -> PendingReason {
        let Some(own) = pending(state, item) else { return PendingReason::None };
        if own.het.is_none() {
            return self.own_reason(state, now, &own).unwrap_or_else(|| self.place_reason(state, &own));
        }
        // What blocks one component of a heterogeneous job blocks all. Their queue position is that of the first
        // component.
        let others = own.het.into_iter().flat_map(Het::ids).filter_map(|id| pending(state, Item { id, array: false }));
        let all: Vec<Pending<'_>> = std::iter::once(own).chain(others).collect();
        let kept = all.iter().find_map(|one| self.own_reason(state, now, one));
        kept.unwrap_or_else(|| self.place_reason(state, all.get(1).unwrap_or(&own)))
    }

    /// Returns what blocks a pending job or array even if resources are free. None: nothing does.
    fn own_reason(&self, state: &State, now: Time, pending: &Pending<'_>) -> Option<PendingReason> {
        match pending.standing.hold {
            Hold::No => {}
            Hold::Admin => return Some(PendingReason::JobHeldAdmin),
            Hold::Requeue if pending.last.is_some_and(|last| last.state == EndState::BootFail) => {
                return Some(PendingReason::JobHoldMaxRequeue);
            }
            Hold::User => return Some(PendingReason::JobHeldUser),
            Hold::Requeue => return Some(PendingReason::RequeuedHeld),
            Hold::Special => return Some(PendingReason::SpecialExit),
        }
        match pending.verdict(state, &self.names) {
            Verdict::Never => return Some(PendingReason::DependencyNeverSatisfied),
            Verdict::Waits => return Some(PendingReason::Dependency),
            Verdict::At(time) if time > now => return Some(PendingReason::Dependency),
            Verdict::At(_) | Verdict::Holds => {}
        }
        if pending.not_before().is_some_and(|time| time > now) {
            let failed = pending.last.filter(|last| last.state == EndState::BootFail);
            return Some(match failed.and_then(|last| last.reason.clone()) {
                Some(reason) if pending.spec.begin.is_none_or(|begin| begin <= now) => {
                    PendingReason::LaunchFailed(reason)
                }
                _ => PendingReason::BeginTime,
            });
        }
        if pending.group(state).is_some_and(|group| group.room == 0) {
            return Some(PendingReason::JobArrayTaskLimit);
        }
        if let Some((whose, limit)) = pending.broken(state) {
            return Some(PendingReason::Limit(whose, limit));
        }
        if self.uses_too_much(state, pending) {
            return Some(PendingReason::UsageThreshold);
        }
        let mut own = pending.spec.reservations().filter_map(|name| state.reservations.get(name)).peekable();
        match own.peek() {
            _ if pending.spec.reservation.is_none() => None,
            None => Some(PendingReason::ReservationDeleted),
            Some(_) => own.all(|own| own.start > now && !own.is(Flag::Flex)).then_some(PendingReason::Reservation),
        }
    }

    /// Returns whether a job waits until the fair-share factor of its user is at the threshold of its QOS again.
    fn uses_too_much(&self, state: &State, pending: &Pending<'_>) -> bool {
        let qos = gates::qos_of(state, pending.spec).filter(|qos| qos.has("EnforceUsageThreshold"));
        // because most QOS have no threshold
        let Some(least) = qos.and_then(|qos| qos.usage_threshold) else { return false };
        let partition = partitions_of(state, pending.spec).next().and_then(|at| state.partitions.get(at));
        let name = partition.map_or("", |partition| partition.config.name.as_str());
        let own = gates::association_of(state, pending.owner, pending.spec, name);
        let factor = own.and_then(|own| self.reckoning.fair_share(own.id));
        factor.is_some_and(|factor| factor * 1e6 < least as f64)
    }

    /// Returns the dependency terms of a pending job or array that are not satisfied, each with whether it can never
    /// be.
    pub(crate) fn open_terms<'a>(
        &self,
        state: &'a State,
        now: Time,
        item: Item,
    ) -> Vec<(&'a squall_model::job::DependencyTerm, bool)> {
        let Some(pending) = pending(state, item) else { return Vec::new() };
        let who = pending.dependent();
        let terms = pending.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        let open = terms.filter_map(|term| match depend::term_verdict(state, &self.names, &who, term) {
            Verdict::Holds => None,
            Verdict::At(time) => (time > now).then_some((term, false)),
            Verdict::Waits => Some((term, false)),
            Verdict::Never => Some((term, true)),
        });
        open.collect()
    }

    fn place_reason(&self, state: &State, pending: &Pending<'_>) -> PendingReason {
        use squall_model::config::PartitionState;
        let indices: Vec<usize> = partitions_of(state, pending.spec).collect();
        let states: Vec<PartitionState> = indices.iter().map(|&at| state.partitions[at].config.state).collect();
        if !states.is_empty() && states.iter().all(|s| matches!(s, PartitionState::Down | PartitionState::Inactive)) {
            let inactive = states.contains(&PartitionState::Inactive);
            return if inactive { PendingReason::PartitionInactive } else { PendingReason::PartitionDown };
        }
        let exempt = exemptions(state, pending.spec);
        let too_long = |&at: &usize| {
            let most = state.partitions[at].config.max_time_s.filter(|_| !exempt.time);
            most.zip(pending.limit_s()).is_some_and(|(most, limit)| limit > most)
        };
        if !indices.is_empty() && indices.iter().all(too_long) {
            return PendingReason::PartitionTimeLimit;
        }
        let mut reason = self.parked.get(&pending.item).cloned().unwrap_or_default();
        let Some(shape) = self.known_shape(pending) else { return reason };
        for at in indices {
            let place = self.place(state, pending, at);
            let (Some(line), Some(head)) = (self.ready.get(at), self.heads.get(at)) else {
                invariant!("each partition has a line and a head");
                continue;
            };
            if !line.contains(shape, place) {
                continue;
            }
            match head {
                Some(head) if *head == place => return PendingReason::Resources,
                Some(head) if *head < place => reason = PendingReason::Priority,
                _ => {}
            }
        }
        reason
    }
}

/// Returns a hash (FNV-1a) of what lets magnetic reservations admit one job and not another.
fn kin(pending: &Pending<'_>) -> u64 {
    let names = [pending.spec.account.as_deref(), pending.spec.qos.as_deref()];
    let names = names.into_iter().flat_map(|name| name.unwrap_or_default().bytes().chain([0]));
    let bytes = pending.owner.uid.to_le_bytes().into_iter().chain(names);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
