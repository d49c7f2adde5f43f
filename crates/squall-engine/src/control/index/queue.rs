//! The queue: which pending jobs may start, in which order, and why the others wait. Rebuilt from state.

use crate::control::index::pending::Pending;
use crate::control::index::pending::partitions_of;
use crate::control::index::pending::pending;
use crate::control::index::pending::pending_job;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::SchedulerType;
use squall_model::foreign::Question;
use squall_model::id::JobId;
use squall_model::job::{EndState, Het, JobSpec, Owner, PendingReason};
use squall_model::reservation::Flag;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_sched::{Claim, Closed, Component, Gate, Item, Skip, UNLIMITED};

use crate::control::index::depend;
use crate::control::index::depend::Verdict;
use crate::control::index::facts;
use crate::control::index::lanes::{KindId, Kinds, Line, Place, Shape, Want};
use crate::control::index::names::Names;
use crate::control::index::reckon;
use crate::control::index::reckon::{Reckoning, Standee};
use crate::control::index::starved::Starved;
use crate::control::index::timers::{Timer, Timers};
use crate::control::index::users;
use crate::control::state::gates;
use crate::control::state::job::{Hold, Run};
use crate::control::state::{LineId, State};

/// Jobs that wait for a limit and are looked at when something that it limits has ended.
const WOKEN_AT_ONCE: usize = 64;

/// Soft state of everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// What may start, by partition.
    ready: Vec<Line>,
    /// What those ask for.
    pub(crate) kinds: Kinds,
    /// The other components of the heterogeneous jobs among them.
    pub(crate) hets: BTreeMap<JobId, Vec<Component>>,
    /// How many passes there were.
    passes: u64,
    /// When the time limits of jobs that hold resources end them.
    pub(crate) ends: BTreeSet<(Time, JobId)>,
    /// The same by job.
    pub(crate) end_of: BTreeMap<JobId, Time>,
    /// The first in each partition that had to wait for resources at the last pass.
    heads: Vec<Option<Place>>,
    /// What can't start as the cluster is, and why.
    parked: BTreeMap<Item, PendingReason>,
    /// Of these, who waits for licenses.
    starved: Starved,
    /// How many there are of each license.
    pub(crate) licenses: BTreeMap<String, u32>,
    /// What priorities are made of.
    pub(crate) reckoning: Reckoning,
    /// When job ids last began again, as known at the last calculation of queue positions.
    pub(crate) ids_began: Option<Time>,
    /// Queue positions of pending jobs that a limit blocks, by limit.
    limited: BTreeMap<Gate, BTreeSet<Place>>,
    /// Array tasks that wait until another task of their array ends.
    throttled: BTreeSet<(JobId, Item)>,
    /// Jobs and arrays that depend on a job or array.
    watchers: BTreeMap<JobId, BTreeSet<Item>>,
    /// Jobs by user and name.
    pub(crate) names: Names,
    /// What other cells are to be asked for those that wait: noted when they are looked at.
    pub(crate) questions: BTreeSet<Question>,
    /// Nodes on which launches of a job failed.
    pub(crate) avoid: BTreeMap<JobId, NodeSet>,
    /// When the last pass began.
    pub(crate) now: Time,
    /// Nodes of running jobs that have links of their own.
    pub(crate) closed: Vec<Closed>,
    /// Some job is `--exclusive=user`, or was since the queue was last rebuilt.
    pub(crate) keeps_apart: bool,
    /// The users of occupied nodes. Empty unless `keeps_apart`.
    pub(crate) claims: Vec<Claim>,
    /// Nodes with free cores where jobs may start now.
    pub(crate) open: NodeSet,
    /// Nodes where jobs may start now, if only beside others on the same cores.
    pub(crate) reachable: NodeSet,
    /// Items to be looked at in this turn.
    pub(crate) dirty: BTreeSet<Item>,
    /// Something may be able to start.
    pub(crate) kick: bool,
}

/// What becomes of an item that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is where it belongs.
    Settled,
    /// Its dependency never can come true.
    Hopeless,
}

impl Queue {
    /// What a pending job asks for, and for how long. None: no job in a queue asks for that.
    pub(crate) fn known_shape(&self, pending: &Pending<'_>) -> Option<Shape> {
        Some(self.shaped(pending, self.kinds.find(pending.spec)?))
    }

    fn shaped(&self, pending: &Pending<'_>, kind: KindId) -> Shape {
        let want = Want { kind, het: pending.het.map(|het| het.leader), user: self.user(pending.owner) };
        Shape { want, limit_s: pending.limit_s() }
    }

    /// Puts the queue together anew, all at once: there may be a million jobs in it.
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
        self.kinds = Kinds::default();
        self.keeps_apart = users::keeps_apart(state);
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
            let Some(shape) = self.shape(state, &pending).filter(|_| starts) else { return };
            for at in partitions_of(state, pending.spec) {
                ready[at].push((shape, self.place(state, &pending, at)));
            }
        };
        state.jobs.iter().filter(|(_, job)| job.is_pending()).for_each(|(&id, job)| place(pending_job(state, id, job)));
        let arrays = state.arrays.keys().filter_map(|&id| pending(state, Item { id, array: true }));
        arrays.for_each(place);
        let (kinds, passes) = (&mut self.kinds, self.passes);
        self.ready = ready.into_iter().map(|places| Line::of(places, kinds, passes)).collect();
    }

    /// What a pending item asks for. None: it can't be had here; the item is parked.
    fn shape(&mut self, state: &State, pending: &Pending<'_>) -> Option<Shape> {
        let known = self.gather(state, pending);
        let kind = self.kinds.enter(state, pending.spec).filter(|_| known);
        if kind.is_none() {
            self.parked.insert(pending.item, PendingReason::BadConstraints);
        }
        kind.map(|kind| self.shaped(pending, kind))
    }

    /// Notes when a job's time limit ends it, if it holds resources.
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

    /// How long it will be at most until a leased job begins, from when it was leased.
    fn wait_in_line(&self, state: &State, id: JobId, run: &Run) -> Span {
        let members = LineId::of(&run.alloc).and_then(|line| state.lines.get(&line));
        let before = members.and_then(|members| members.iter().take_while(|member| **member != id).last());
        let end = before.and_then(|before| self.end_of.get(before));
        end.map_or(Span(0), |end| end.since(run.start))
    }

    /// Takes an item out of wherever it stands. To be called while state still says what put it there.
    pub(crate) fn withdraw(&mut self, state: &State, timers: &mut Timers, item: Item) {
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

    /// Looks at a pending item and puts it where it belongs.
    pub(crate) fn enter(&mut self, state: &State, timers: &mut Timers, now: Time, item: Item) -> Entered {
        let Some(pending) = pending(state, item) else { return Entered::Settled };
        if !self.keeps_apart && pending.spec.keeps_others_off() {
            // The first `--exclusive=user` job: the queue is rebuilt with the users of jobs.
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

    /// Whether a pending item may start, with everything set up that may change that.
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
        // Who waits for few switches is looked at again when it has waited long enough.
        if let Some(time) = later.or_else(|| Self::patience(state, pending).filter(|time| *time > now)) {
            timers.set(Timer::Ready(item), time);
        }
        let full = pending.group(state).filter(|group| group.room == 0);
        let waits = matches!(verdict, Verdict::Waits | Verdict::Never) || pending.standing.hold != Hold::No;
        if let Some(group) = full.filter(|_| !waits && later.is_none()) {
            self.throttled.insert((group.id, item));
        }
        let starts = !waits && later.is_none() && full.is_none() && self.is_whole(state, now, pending);
        // Its end is decided when the timer fires, which may be after this turn.
        let starts = starts && too_late.is_none_or(|time| time > now);
        let broken = starts && !state.policy.is_empty() && pending.broken(state).is_some();
        let entered = if verdict == Verdict::Never { Entered::Hopeless } else { Entered::Settled };
        (starts && !broken, entered)
    }

    /// Into the queues of its partitions, or out of them.
    fn put(&mut self, state: &State, pending: &Pending<'_>, ready: bool) {
        if !ready {
            self.take_out(state, pending);
            return;
        }
        let Some(shape) = self.shape(state, pending) else { return };
        let backfills = state.config.scheduler_type == SchedulerType::Backfill;
        // Whoever is kept room for between those who want the same makes a difference; and how long each waits for few
        // switches.
        let switches = self.kinds.request(shape.want.kind).is_some_and(|need| need.wish.switches.is_some());
        let several = switches || state.config.scheduler_parameters.kept() > 1;
        for at in partitions_of(state, pending.spec) {
            let place = self.place(state, pending, at);
            let (Some(line), Some(head)) = (self.ready.get_mut(at), self.heads.get(at)) else { continue };
            // Behind a job that waits for resources nothing starts, but what fits beside it.
            let Some(untried) = line.insert(&mut self.kinds, shape, place, self.passes) else { continue };
            if head.is_none_or(|head| place < head) || (backfills && (untried || several)) {
                self.kick = true;
            }
        }
    }

    /// Out of the queues of its partitions.
    fn take_out(&mut self, state: &State, pending: &Pending<'_>) {
        self.hets.remove(&pending.item.id);
        let Some(shape) = self.known_shape(&pending) else { return };
        let several = state.config.scheduler_parameters.kept() > 1;
        for at in partitions_of(state, pending.spec) {
            let place = self.place(state, pending, at);
            let Some(line) = self.ready.get_mut(at) else { continue };
            if line.remove(&mut self.kinds, shape, place) {
                let first = self.heads[at] == Some(place);
                self.heads[at] = self.heads[at].filter(|_| !first);
                // Room may have been kept for it.
                self.kick |= first || several;
            }
        }
    }

    /// A job or array started, ended or lives again: those who depend on it are looked at.
    pub(crate) fn wake_watchers(&mut self, state: &State, id: JobId) {
        if self.watchers.is_empty() {
            return;
        }
        let target = state.array_of(id).map_or(id, |(array, _)| array);
        if let Some(watchers) = self.watchers.get(&target) {
            self.dirty.extend(watchers.iter().copied());
        }
    }
    /// A task of an array ended, or its limit changed: as many others may go as there is room.
    pub(crate) fn wake_throttled(&mut self, state: &State, id: JobId) {
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
    /// The cluster changed: what could not start on it is looked at again.
    pub(crate) fn wake_parked(&mut self, state: &State) {
        self.kinds.read_names(state);
        self.gather_again(state);
        self.dirty.extend(self.parked.keys().copied());
        self.kick = true;
    }
    /// What may start in a partition.
    pub(crate) fn line(&self, partition: usize) -> Option<&Line> {
        self.ready.get(partition)
    }
    /// Notes which job holds up each partition.
    pub(crate) fn set_heads(&mut self, state: &State, heads: &[squall_sched::Head]) {
        self.passes += 1;
        self.heads.iter_mut().for_each(|head| *head = None);
        for head in heads {
            let Some(pending) = pending(state, head.item) else { continue };
            let place = self.place(state, &pending, head.partition);
            if let Some(slot) = self.heads.get_mut(head.partition) {
                *slot = Some(place);
            }
        }
    }
    /// The first that waits for resources in a partition.
    pub(crate) fn head(&self, partition: usize) -> Option<Item> {
        self.heads.get(partition).copied().flatten().map(|place| place.item)
    }
    /// The first of a partition has gone, and nothing has come free: if who comes next asks for the same as `gone` did it
    /// is the first that waits now, which no pass has to find out.
    pub(crate) fn next_is_alike(&mut self, state: &State, partition: usize, gone: JobId) -> bool {
        let Some((place, shape)) = self.ready.get(partition).and_then(Line::first) else { return true };
        let spec = state.jobs.get(&gone).map(|job| &job.spec);
        let alike = spec.and_then(|spec| self.kinds.find(spec)) == Some(shape.want.kind);
        if alike {
            self.heads[partition] = Some(place);
        }
        alike
    }
    /// Takes a job that can't start in a partition out of its queue.
    pub(crate) fn park(&mut self, state: &State, skip: Skip) {
        let Some(pending) = pending(state, skip.item) else { return };
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
    /// Who waits for licenses, in order.
    pub(crate) fn starved<'a>(&self, state: &'a State) -> Vec<Pending<'a>> {
        let parked = self.parked.iter().filter(|(_, reason)| **reason == PendingReason::Licenses);
        let mut starved: Vec<Pending<'a>> = parked.filter_map(|(item, _)| pending(state, *item)).collect();
        starved.sort_by_cached_key(|pending| self.first_place(state, pending));
        starved
    }
    /// A job with this spec holds its licenses no more.
    pub(crate) fn wake_starved(&mut self, spec: &JobSpec) {
        if spec.need.licenses.is_some() {
            self.dirty.extend(self.starved.woken(spec));
        }
    }

    /// Where a pending item stands in a partition's queue.
    fn place(&self, state: &State, pending: &Pending<'_>, partition: usize) -> Place {
        Place { key: Reverse(self.reckoning.key(state, &Standee::of(pending), partition)), item: pending.item }
    }

    /// Where it stands in its first partition's.
    fn first_place(&self, state: &State, pending: &Pending<'_>) -> Place {
        let first = partitions_of(state, pending.spec).next().unwrap_or_default();
        self.place(state, pending, first)
    }

    /// Takes an item out of those that can't start.
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

    /// A job gave back what it counted for: the first of those that share its limits are looked at.
    pub(crate) fn wake_limited(&mut self, state: &State, owner: &Owner, spec: &JobSpec, partition: &str) {
        if self.limited.is_empty() {
            return;
        }
        for gate in gates::gates(state, owner, spec, partition) {
            let waiting = self.limited.get(&gate).into_iter().flatten();
            self.dirty.extend(waiting.take(WOKEN_AT_ONCE).map(|place| place.item));
        }
    }

    /// All who wait for a limit whose room changes with time are looked at.
    pub(crate) fn wake_budgeted(&mut self) {
        let moves = |reason: &PendingReason| matches!(reason, PendingReason::Limit(_, limit) if limit.moves());
        let waiting = self.parked.iter().filter(|(_, reason)| moves(reason));
        self.dirty.extend(waiting.map(|(item, _)| *item));
        self.kick = true;
    }

    /// Why a pending item waits.
    pub(crate) fn reason(&self, state: &State, now: Time, item: Item) -> PendingReason {
        let Some(own) = pending(state, item) else { return PendingReason::None };
        if own.het.is_none() {
            return self.own_reason(state, now, &own).unwrap_or_else(|| self.place_reason(state, &own));
        }
        // What keeps one component keeps all; where they stand in the queue is where the first stands.
        let others = own.het.into_iter().flat_map(Het::ids).filter_map(|id| pending(state, Item { id, array: false }));
        let all: Vec<Pending<'_>> = std::iter::once(own).chain(others).collect();
        let kept = all.iter().find_map(|one| self.own_reason(state, now, one));
        kept.unwrap_or_else(|| self.place_reason(state, all.get(1).unwrap_or(&own)))
    }

    /// Why a pending item waits, whatever there is room for.
    fn own_reason(&self, state: &State, now: Time, pending: &Pending<'_>) -> Option<PendingReason> {
        match pending.standing.hold {
            Hold::No => {}
            Hold::Admin => return Some(PendingReason::JobHeldAdmin),
            Hold::Requeue if pending.last.is_some_and(|last| last.state == EndState::BootFail) => {
                return Some(PendingReason::JobHoldMaxRequeue);
            }
            Hold::User | Hold::Requeue => return Some(PendingReason::JobHeldUser),
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
        let mut own = pending.spec.reservations().filter_map(|name| state.reservations.get(name)).peekable();
        match own.peek() {
            _ if pending.spec.reservation.is_none() => None,
            None => Some(PendingReason::ReservationDeleted),
            Some(_) => own.all(|own| own.start > now && !own.is(Flag::Flex)).then_some(PendingReason::Reservation),
        }
    }

    /// The terms of a pending item's dependency that do not hold, and whether they never can.
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
        let mut reason = self.parked.get(&pending.item).cloned().unwrap_or_default();
        let Some(shape) = self.known_shape(&pending) else { return reason };
        for at in indices {
            let place = self.place(state, pending, at);
            let (Some(line), Some(head)) = (self.ready.get(at), self.heads.get(at)) else { continue };
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
