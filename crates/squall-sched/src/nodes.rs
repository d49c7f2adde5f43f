//! The resource pool of a cluster: nodes with cores and memory, partitions with limits.

mod licenses;
pub(crate) mod together;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::gang::ROWS_MAX;
use squall_model::gres;
use squall_model::id::{JobId, NodeId};
use squall_model::job::PendingReason;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::explain::hopeless;
use crate::gang::{place_in_rows, row_books};
use crate::gate::{Gate, Rooms, Share};
use crate::place::{Condition, choose, fits, free, place, share_out};
use crate::policy::{Blocked, Cleared, Room};
use crate::preempt::{self, Clearing};
use crate::request::Request;
use crate::scratch::Scratch;
use crate::view::{Bars, Candidate, Closed, Given, PartitionView, Row, Victim, View};
use licenses::Lacks;
pub(crate) use licenses::licensed;
use walk::{Ends, Walk};

/// Expected run time of a job without a time limit, as in Slurm.
pub const UNLIMITED: Span = Span::from_secs(365 * 86_400);

/// Remaining run time that is assumed for a job past its time limit.
const SOON: Span = Span::from_secs(1);

/// Number of failed attempts to find a job's start after which some times are skipped.
const PATIENCE: usize = 16;

/// Part of a partition from which on a job is wide, as its reciprocal: a quarter of the nodes.
const WIDE: usize = 4;

/// A cluster, with the starts and reservations that the present plan adds to it.
#[derive(Debug)]
pub struct Nodes<'a, V> {
    view: &'a V,
    scratch: &'a mut Scratch,
    now: Time,
    /// Latest time at which a reservation for a pending job may begin.
    horizon: Time,
    /// Amounts left of the limit buckets after the starts of this plan.
    rooms: Rooms,
    /// Nodes on which the job tested last could start if nothing were reserved for others, each with the greatest
    /// number of tasks there. None: no such nodes are known.
    could: Option<Vec<(NodeId, u32)>>,
}

impl<'a, V: View> Nodes<'a, V> {
    /// Creates the pool with the cluster's present usage. Reservations begin at most `window` after `now`.
    pub fn new(view: &'a V, scratch: &'a mut Scratch, now: Time, window: Span) -> Self {
        scratch.reset(view, now);
        scratch.closed.iter_mut().for_each(|closed| closed.until = closed.until.max(now + SOON));
        scratch.claims.iter_mut().for_each(|claim| claim.until = claim.until.max(now + SOON));
        Self { view, scratch, now, horizon: now + window, rooms: Rooms::default(), could: None }
    }

    /// Returns when and where a job would start behind all jobs planned so far, if that is before `sooner_than`.
    /// Nothing is reserved. None: it would start later, or the time cannot be determined.
    pub fn foresee(&mut self, job: &Candidate<'_>, at: usize, sooner_than: Option<Time>) -> Option<(Time, Given)> {
        let before = (self.scratch.mark(), self.rooms.clone(), self.horizon);
        self.could = None;
        self.horizon = sooner_than.map_or(before.2, |time| Time(time.0.saturating_sub(1)));
        let found = match self.start(job, at) {
            Ok(given) => Some((self.now, given)),
            // The time at which other jobs will have used less of a limit is unknown.
            Err(Blocked::Never(PendingReason::Limit(..))) => None,
            Err(_) => self.reserve(job, at),
        };
        self.scratch.back_to(before.0);
        (self.rooms, self.horizon) = (before.1, before.2);
        found.filter(|(time, _)| sooner_than.is_none_or(|limit| *time < limit))
    }
}

impl<V: View> Nodes<'_, V> {
    /// Returns what a running job would get now on one more node, which takes the place of a failed one: ahead of all
    /// pending jobs, and whatever is reserved for them. None: no node is free that fits.
    pub fn replacement(&mut self, job: &Candidate<'_>, at: usize) -> Option<Given> {
        // The limits of the partition hold for the job and not for one of its nodes.
        let partition = PartitionView { nodes_min: 1, nodes_max: None, time_max_s: None, ..self.view.partition(at) };
        let request = unbarred(self.view, &partition, job, (at, self.now)).ok()?;
        self.scratch.window = (self.now, self.now);
        let request = apart(self.view, self.scratch, job, request);
        place(self.view, self.scratch, &request, partition.nodes, Condition::Now)
    }
}

impl<V: View> Room for Nodes<'_, V> {
    type Need = Request;
    type Grant = Given;

    fn could(&mut self, job: &Candidate<'_>, at: usize) -> Result<(), Span> {
        let request = job.need;
        let rows = self.rows(job, at);
        self.could = None;
        let crowded = |room: &mut Self| {
            room.scratch.open.len() < request.nodes_min as usize || request.node_cpus() > room.roomiest()
        };
        if rows == 1 && crowded(self) {
            return Err(Span(0));
        }
        let partition = self.view.partition(at);
        let end = self.now + span(&partition, job);
        // An empty window excludes all reservations, which begin after now.
        self.scratch.window = (self.now, self.now);
        let request = unbarred(self.view, &partition, job, (at, self.now))
            .map_err(|_| Span(end.since(self.now).0.saturating_sub(1)))?;
        let request = apart(self.view, self.scratch, job, request);
        self.could = if rows > 1 {
            let ranked = (self.view.rank(at), rows);
            place_in_rows(self.view, self.scratch, &request, partition.nodes, ranked).map(|_| Vec::new())
        } else {
            choose(self.view, self.scratch, &request, partition.nodes, Condition::Now)
        };
        if self.could.is_some() { Ok(()) } else { Err(self.longest(job, end, std::iter::empty())) }
    }

    fn start(&mut self, job: &Candidate<'_>, at: usize) -> Result<Given, Blocked> {
        if job.others.is_empty() {
            return self.start_one(job, at);
        }
        // The stored nodes suit only the first component.
        self.could = None;
        self.start_all(job, at)
    }

    fn may_cover(&self, at: usize) -> bool {
        self.view.rank(at) > 0
    }

    fn cover(&mut self, job: &Candidate<'_>, at: usize) -> Option<Given> {
        let mut victims = self.view.victims(job.item, at);
        victims.retain(|victim| victim.stays);
        if victims.is_empty() || job.alone {
            return None;
        }
        self.begin(job, at, Some(victims)).ok()
    }

    fn reserve(&mut self, job: &Candidate<'_>, at: usize) -> Option<(Time, Given)> {
        if !job.others.is_empty() {
            return self.reserve_all(job, at);
        }
        let partition = self.view.partition(at);
        let request = fitting(&partition, job).ok()?;
        let span = span(&partition, job);
        let found = self.earliest(job, (at, &partition), &request, span);
        if let Some((time, given)) = &found {
            self.keep((job, &request), given, (*time, span));
        }
        self.scratch.forget_gains();
        found
    }

    fn may_preempt(&self, job: &Candidate<'_>, at: usize) -> bool {
        !job.alone && !self.view.victims(job.item, at).is_empty()
    }

    fn make_room(&mut self, job: &Candidate<'_>, at: usize) -> Option<Cleared<Given>> {
        let victims = self.view.victims(job.item, at);
        // Jobs are not preempted for a heterogeneous job.
        if victims.is_empty() || job.alone {
            return None;
        }
        let stay: BTreeSet<JobId> = victims.iter().filter(|victim| victim.stays).map(|victim| victim.id).collect();
        let some_leave = victims.iter().any(|victim| victim.leaves);
        let partition = self.view.partition(at);
        let request = unbarred(self.view, &partition, job, (at, self.now)).ok()?;
        // The job is placed as if the victims left at once. Their resources are not for jobs that start now, so the
        // window begins later.
        let from = self.now + Span(1);
        let until = from + span(&partition, job);
        self.scratch.window = (from, until);
        let request = apart(self.view, self.scratch, job, request);
        let mut way = self.way(at, &request, victims)?;
        // Victims that are only suspended are suspended when the others have ended.
        let asked = way.asked.len();
        way.asked.retain(|id| !stay.contains(id));
        if asked > 0 && way.asked.is_empty() && !some_leave {
            return None;
        }
        let alloc = &way.given.alloc;
        for (group, id) in alloc.groups.iter().flat_map(|group| group.nodes.iter().map(move |id| (group, id))) {
            let free = way.free.get(&id).copied().unwrap_or_default();
            self.scratch.keep(id, (from, until), (group.cores.len() as u32, group.memory_mb), free);
        }
        self.scratch.note((from, until), alloc.nodes(), &way.given.gres);
        self.scratch.claim(job, alloc.nodes(), (from, until));
        if self.view.shares() {
            self.occupy(self.view.rank(at), &way);
        }
        Some(Cleared { time: self.now + SOON, grant: way.given, victims: way.asked })
    }

    fn withhold(&mut self, partition: usize) {
        self.scratch.withheld.union_with(self.view.partition(partition).nodes);
    }
}

impl<V: View> Nodes<'_, V> {
    /// Starts a job, or one component of it, where it fits.
    fn start_one(&mut self, job: &Candidate<'_>, at: usize) -> Result<Given, Blocked> {
        self.begin(job, at, None)
    }

    /// Returns the number of gang matrix rows (time slots) that may share the job's cores. It is 1 for components of a
    /// heterogeneous job, which must always run at the same time.
    fn rows(&self, job: &Candidate<'_>, at: usize) -> u32 {
        if job.alone { 1 } else { self.view.rows(at, job.need) }
    }

    /// Returns the least amounts that a job of this request can add to the limit buckets `gates`.
    fn least_share(&self, (request, at): (&Request, usize), gates: &[Gate], time: Span) -> Share {
        let share = Share::least(request, time);
        if gates.is_empty() {
            return share;
        }
        let devices = || request.gres.kinds(request.nodes_min, request.tasks_on(request.nodes_min));
        share.billed(self.view, at, request, devices)
    }

    /// Returns the amounts that a job adds to the limit buckets `gates` with what it is given.
    fn share_of(&self, given: &Given, (request, at): (&Request, usize), gates: &[Gate], time: Span) -> Share {
        let share = Share::of(&given.alloc, request, time);
        if gates.is_empty() {
            return share;
        }
        let devices = || gres::held_counts(&given.gres, &given.alloc.nodes(), |node| self.view.gres(node));
        share.billed(self.view, at, request, devices)
    }

    /// Starts a job where it fits; with `over` also where it fits when some of these running jobs are suspended.
    fn begin(&mut self, job: &Candidate<'_>, at: usize, over: Option<Vec<Victim<'_>>>) -> Result<Given, Blocked> {
        let partition = self.view.partition(at);
        let could = std::mem::take(&mut self.could);
        let request = unbarred(self.view, &partition, job, (at, self.now)).map_err(Blocked::Never)?;
        let time = span(&partition, job);
        if !licensed(self.view, self.scratch, (job, at), &request, (self.now, time)) {
            return Err(Blocked::Never(PendingReason::Licenses));
        }
        let gates = self.view.gates(job.item, at);
        let least = self.least_share((&request, at), &gates, time);
        if let Some(reason) = self.rooms.closed(self.view, &gates, least) {
            return Err(Blocked::Never(reason));
        }
        let end = self.now + time;
        let rows = self.rows(job, at);
        if could.is_some() && rows == 1 && over.is_none() && self.crowded_beyond(end, &request) {
            return Err(Blocked::Busy(self.longest(job, end, self.scratch.begins())));
        }
        // If no reservation begins while the job would run, it can start on the stored nodes.
        let free = self.view.topology().is_none() && self.scratch.begins().all(|begin| begin >= end);
        let known = could.as_ref().filter(|_| free && rows == 1);
        self.scratch.window = (self.now, end);
        let own = apart(self.view, self.scratch, job, request.clone());
        let elsewhere = job.avoid.and_then(|avoid| {
            let mut request = own.clone().into_owned();
            request.excluded.union_with(avoid);
            place(self.view, self.scratch, &request, partition.nodes, Condition::Now)
        });
        let rank = self.view.rank(at);
        let covers = over.is_some();
        let placed = match over {
            Some(victims) => self.way(at, &own, victims).map(|way| way.given),
            None if rows > 1 => place_in_rows(self.view, self.scratch, &own, partition.nodes, (rank, rows)),
            None => {
                let anywhere = elsewhere.or_else(|| match known {
                    Some(chosen) => Some(share_out(self.view, self.scratch, &own, chosen, Condition::Now)),
                    None => place(self.view, self.scratch, &own, partition.nodes, Condition::Now),
                });
                anywhere.map(|given| self.on_sound_nodes(job, &own, partition.nodes, given))
            }
        };
        let Some(mut given) = placed else {
            let busy = Blocked::Busy(self.longest(job, end, self.scratch.begins()));
            return Err(if could.is_some() { busy } else { self.why(&request, &partition, job).unwrap_or(busy) });
        };
        let share = self.share_of(&given, (&request, at), &gates, time);
        if let Some(reason) = self.rooms.closed(self.view, &gates, share) {
            return Err(Blocked::Never(reason));
        }
        self.rooms.take(self.view, &gates, share);
        self.book(&given, end);
        self.scratch.count_in_cap(&request, &given.alloc, (Time(0), end.max(self.now + SOON)));
        self.scratch.claim(job, given.alloc.nodes(), (Time(0), end.max(self.now + SOON)));
        if self.view.shares() {
            self.scratch.placed.push((Row { rank, slot: given.slot }, given.alloc.clone()));
        }
        if covers || (self.view.yields(at) && !job.alone) {
            given.slot.get_or_insert(0);
        }
        if self.view.topology().is_some() && request.wish.is_sensitive(given.alloc.nodes().len() as u32) {
            // The job ends no sooner than jobs that should have ended already.
            let until = end.max(self.now + SOON);
            self.scratch.closed.push(Closed { nodes: given.alloc.nodes(), from: Time(0), until });
        }
        for (name, count) in &request.licenses {
            *self.scratch.licenses.entry(name.clone()).or_default() += count;
            self.scratch.license_turns.push((end, name.clone(), i64::from(*count)));
        }
        Ok(given)
    }

    /// Returns a placement of a wide job with as few of the nodes with recent faults as a few attempts find. Without such
    /// nodes it is the one that was found before.
    fn on_sound_nodes(&mut self, job: &Candidate<'_>, request: &Request, nodes: &NodeSet, found: Given) -> Given {
        let mut faulty = self.view.faulty();
        let held = |id: &NodeId| found.alloc.groups.iter().any(|group| group.nodes.contains(*id));
        let wide = || found.alloc.nodes().len() * WIDE >= nodes.len();
        if !faulty.iter().any(held) || !wide() {
            return found;
        }
        while !faulty.is_empty() {
            let mut request = request.clone();
            request.excluded.union_with(&faulty.iter().copied().collect());
            if let Some(avoid) = job.avoid {
                request.excluded.union_with(avoid);
            }
            if let Some(given) = place(self.view, self.scratch, &request, nodes, Condition::Now) {
                return given;
            }
            faulty.truncate(faulty.len() / 2);
        }
        found
    }

    /// Returns the smallest set of victims that must be preempted for a job to fit in a partition, with its placement;
    /// all rows of the gang matrix are tried. None: no preemption helps.
    fn way(&mut self, at: usize, request: &Request, victims: Vec<Victim<'_>>) -> Option<Clearing> {
        let (view, nodes) = (self.view, self.view.partition(at).nodes);
        let (rank, rows) = (view.rank(at), view.rows(at, request));
        if rows == 1 {
            let row = view.shares().then_some(Row { rank, slot: None });
            return preempt::clear(view, self.scratch, request, (nodes, row), victims);
        }
        let ways = (0..rows.min(ROWS_MAX)).filter_map(|slot| {
            let row = Row { rank, slot: Some(slot) };
            let mut books = row_books(view, self.scratch, nodes, row);
            let way = preempt::clear(view, &mut books, request, (nodes, Some(row)), victims.clone())?;
            Some(Clearing { given: Given { slot: Some(slot), ..way.given }, ..way })
        });
        ways.min_by_key(|way| way.asked.len())
    }

    /// Marks the cores and memory of a placement after preemption as used for the rest of the plan.
    fn occupy(&mut self, rank: u32, way: &Clearing) {
        let Clearing { given, free, .. } = way;
        for (group, id) in given.alloc.groups.iter().flat_map(|group| group.nodes.iter().map(move |id| (group, id))) {
            let node = self.view.node(id);
            let taken = self.scratch.taken.of(id, &node);
            let free_mb = free.get(&id).map_or(0, |(_, memory_mb)| *memory_mb);
            taken.0.union_with(&group.cores);
            taken.1 = taken.1.max(node.hardware.memory_mb.saturating_sub(free_mb) + group.memory_mb);
            if taken.0.len() >= node.hardware.cpus as usize {
                self.scratch.open.remove(id);
            }
        }
        self.scratch.placed.push((Row { rank, slot: given.slot }, given.alloc.clone()));
    }

    /// Returns the earliest time up to the horizon at which a job fits, with its placement. None: there is none.
    fn earliest(
        &mut self,
        job: &Candidate<'_>,
        (at, partition): (usize, &PartitionView<'_>),
        request: &Request,
        span: Span,
    ) -> Option<(Time, Given)> {
        let (view, scratch) = (self.view, &mut *self.scratch);
        let lacks = Lacks::of(view, scratch, (job, at), request, self.now + SOON);
        let mut walk = Walk::new(view, scratch, request, partition, self.now);
        let turns = view
            .turns()
            .chain(job.wish.patience)
            .chain(view.boots_from(job).map(|(time, _)| time))
            .filter(|time| *time > self.now);
        let mut ends = Ends::new(view.ends(), turns, scratch, self.now, self.now + SOON);
        let (mut tried, mut skip, mut more) = (0, 0, true);
        let mut time = self.now;
        loop {
            if more && walk.may_fit() && !lacks.meet(time, span) {
                if skip == 0 {
                    scratch.window = (time, time + span);
                    scratch.times += 1;
                    if let Ok(request) = unbarred(view, partition, job, (at, time))
                        && let request = apart(view, scratch, job, request)
                        && let Some(given) = place(view, scratch, &request, partition.nodes, Condition::Then)
                    {
                        return Some((time, given));
                    }
                    tried += 1;
                    skip = tried / PATIENCE;
                } else {
                    skip -= 1;
                }
            }
            time = ends.peek()?;
            if time > self.horizon {
                return None;
            }
            more = false;
            ends.pass(time, |turn| more |= walk.happens(scratch, time, turn));
        }
    }

    /// Reserves the placement `given` for a job, from `time` on for the duration `span`.
    fn keep(&mut self, (job, request): (&Candidate<'_>, &Request), given: &Given, (time, span): (Time, Span)) {
        // Only what is free at that moment matters: later changes do not concern jobs that start earlier.
        self.scratch.window = (time, time + Span(1));
        for group in &given.alloc.groups {
            let need = (group.cores.len() as u32, group.memory_mb);
            for id in group.nodes.iter() {
                let free = free(self.view, self.scratch, id, Condition::Then);
                self.scratch.keep(id, (time, time + span), need, free);
            }
        }
        self.scratch.note((time, time + span), given.alloc.nodes(), &given.gres);
        self.scratch.claim(job, given.alloc.nodes(), (time, time + span));
        self.scratch.count_in_cap(request, &given.alloc, (time, time + span));
        for (name, count) in &request.licenses {
            let turns = [(time, -i64::from(*count)), (time + span, i64::from(*count))];
            self.scratch.license_turns.extend(turns.map(|(time, more)| (time, name.clone(), more)));
        }
        self.close(request, given, (time, time + span));
    }

    /// Reserves the network links of a job for it alone, and the unused nodes inside its prism. Does nothing for a job
    /// that shares its links.
    fn close(&mut self, request: &Request, given: &Given, (from, until): (Time, Time)) {
        let nodes = given.alloc.nodes();
        let Some(topology) = self.view.topology().filter(|_| request.wish.is_sensitive(nodes.len() as u32)) else {
            return;
        };
        let mut spare = topology.around(&nodes);
        spare.subtract(&nodes);
        for id in spare.iter().filter(|id| self.view.node(*id).usable) {
            let free = free(self.view, self.scratch, id, Condition::Then);
            self.scratch.keep(id, (from, until), free, free);
        }
        self.scratch.note((from, until), spare, &[]);
        self.scratch.closed.push(Closed { nodes, from, until });
    }

    /// Returns the time limit above which equal requests do not fit either, after a job that would run until `end` did
    /// not fit. `begins`: times at which reservations begin. A job that runs past the last of them before `end` meets
    /// the same reservations.
    fn longest(&self, job: &Candidate<'_>, end: Time, begins: impl Iterator<Item = Time>) -> Span {
        // An equal job may have waited long enough to give up its request for few switches, or for nodes that are up.
        if job.need.wish.switches.is_some() || job.need.delay_boot_s.is_some() {
            return Span(u64::MAX);
        }
        if self.view.topology().is_some() {
            return Span(end.since(self.now).0.saturating_sub(1));
        }
        let last = begins.chain(self.view.turns()).filter(|begin| *begin > self.now && *begin < end).max();
        last.map_or(Span(0), |last| last.since(self.now))
    }

    /// Returns the reason why a job does not fit now. None: other jobs use the resources that it needs.
    fn why(&mut self, request: &Request, partition: &PartitionView<'_>, job: &Candidate<'_>) -> Option<Blocked> {
        // If every node is down or drained, all jobs wait for the same reason, so none is examined.
        let (view, nodes) = (self.view, partition.nodes);
        if nodes.is_empty() {
            return Some(Blocked::Never(PendingReason::PartitionConfig));
        }
        let nothing = !nodes.iter().any(|id| view.node(id).usable);
        if nothing || fits(view, self.scratch, request, nodes, Condition::Empty) {
            return None;
        }
        // Only reservations keep the job from fitting, as long as they exist, or its wait for nodes that are up.
        let own = fitting(partition, job).unwrap_or(Cow::Borrowed(request));
        if own.excluded != request.excluded && fits(view, self.scratch, &own, nodes, Condition::Empty) {
            if view.boots_from(job).is_some_and(|(until, _)| self.now < until) {
                return None;
            }
            return Some(Blocked::Never(PendingReason::ReqNodeNotAvail));
        }
        let request = &*own;
        // A node that was removed is in no partition.
        let removed = |id: NodeId| !nodes.contains(id) && !view.node(id).usable;
        let unknown = nodes.iter().any(|id| view.node(id).hardware.cpus == 0) || request.required.iter().any(removed);
        let comes_back = fits(view, self.scratch, request, nodes, Condition::Ideal);
        Some(Blocked::Never(match hopeless(view, request, nodes) {
            _ if comes_back => PendingReason::ReqNodeNotAvail,
            PendingReason::BadConstraints if unknown => PendingReason::ReqNodeNotAvail,
            reason => reason,
        }))
    }

    /// Records an allocation as used until the time `until`.
    fn book(&mut self, given: &Given, until: Time) {
        self.scratch.hold_gres(self.view, &given.gres);
        for group in &given.alloc.groups {
            for id in group.nodes.iter() {
                let node = self.view.node(id);
                let (cores, memory_mb) = self.scratch.taken.of(id, &node);
                cores.union_with(&group.cores);
                *memory_mb += group.memory_mb;
                if cores.len() >= node.hardware.cpus as usize {
                    self.scratch.open.remove(id);
                }
                self.scratch.begin(until, id, (group.cores.len() as u32, group.memory_mb));
            }
        }
        self.scratch.begun.push((until, Arc::new(given.clone())));
    }

    /// Returns whether reservations leave too few nodes, or too few CPUs on each, for a job that would run until `end`.
    /// False does not prove that enough are left.
    fn crowded_beyond(&mut self, end: Time, request: &Request) -> bool {
        let Some(begin) = self.scratch.begins().filter(|begin| *begin < end).max() else { return false };
        let known = self.scratch.beyond.iter().find(|(time, ..)| *time == begin);
        let (_, nodes, roomiest) = known.copied().unwrap_or_else(|| {
            self.scratch.window = (self.now, begin + Span(1));
            let cpus = self.scratch.open.iter().map(|id| free(self.view, self.scratch, id, Condition::Now).0);
            let (nodes, roomiest) = cpus.filter(|n| *n > 0).fold((0, 0), |(nodes, most), n| (nodes + 1, n.max(most)));
            self.scratch.beyond.push((begin, nodes, roomiest));
            (begin, nodes, roomiest)
        });
        nodes < request.nodes_min as usize || request.node_cpus() > roomiest
    }

    /// Returns an upper bound on the number of free CPUs on a node: the greatest such number at the first call in this
    /// plan.
    fn roomiest(&mut self) -> u32 {
        let Scratch { open, roomiest, .. } = &mut *self.scratch;
        *roomiest.get_or_insert_with(|| {
            let nodes = open.iter().map(|id| self.view.node(id));
            nodes.map(|node| node.hardware.cpus.saturating_sub(node.cores.len() as u32)).max().unwrap_or(0)
        })
    }
}

/// Returns a job's time limit in a partition.
pub(crate) fn span(partition: &PartitionView<'_>, job: &Candidate<'_>) -> Span {
    let limit = job.time_limit_s.unwrap_or(partition.time_default_s);
    limit.map_or(UNLIMITED, Span::from_secs)
}

/// Returns a job's request within the partition's limits (see [`fitting`]) for a start at `time`, without nodes that
/// reservations then bar for the job. A request for few switches is dropped once its maximum wait is over. Error: the
/// reason why the job cannot start then.
fn unbarred<'a>(
    view: &impl View,
    partition: &PartitionView<'_>,
    job: &Candidate<'a>,
    (at, time): (usize, Time),
) -> Result<Cow<'a, Request>, PendingReason> {
    let mut request = fitting(partition, job)?;
    if request.wish.patience.is_some_and(|until| until <= time) {
        let wish = &mut request.to_mut().wish;
        (wish.switches, wish.patience) = (None, None);
    }
    if let Some((_, down)) = view.boots_from(job).filter(|(until, _)| time < *until) {
        request.to_mut().excluded.union_with(down);
    }
    match view.bars(job, at, time) {
        Bars::Open => {}
        Bars::Barred(nodes) => request.to_mut().excluded.union_with(&nodes),
        Bars::Waits(reason) => return Err(reason),
    }
    Ok(request)
}

/// Returns a job's request without nodes that it cannot have in the scratch's time window because of other users' jobs.
fn apart<'a>(
    view: &impl View,
    scratch: &Scratch,
    job: &Candidate<'_>,
    mut request: Cow<'a, Request>,
) -> Cow<'a, Request> {
    let others = scratch.nodes_of_others(view.topology(), job);
    if !others.is_empty() {
        request.to_mut().excluded.union_with(&others);
    }
    request
}

/// Returns a job's request within the partition's limits. Error: the limit that the request exceeds.
pub(crate) fn fitting<'a>(
    partition: &PartitionView<'_>,
    job: &Candidate<'a>,
) -> Result<Cow<'a, Request>, PendingReason> {
    let exempt = job.need.exempt;
    let over_time = match (job.time_limit_s, partition.time_max_s.filter(|_| !exempt.time)) {
        (Some(Some(limit)), Some(max)) => limit > max,
        (Some(None), Some(_)) => true,
        _ => false,
    };
    if over_time {
        return Err(PendingReason::PartitionTimeLimit);
    }
    let mut request = Cow::Borrowed(job.need);
    if request.wish != job.wish {
        request.to_mut().wish = job.wish;
    }
    if partition.least_loaded || partition.cap.is_some() {
        let request = request.to_mut();
        (request.least_loaded, request.cap) = (partition.least_loaded, partition.cap);
    }
    let most = partition.nodes_max.filter(|_| !exempt.nodes_max).unwrap_or(u32::MAX);
    let fewest = if exempt.nodes_min { 0 } else { partition.nodes_min };
    if request.nodes_min > most || request.nodes_max < fewest {
        return Err(PendingReason::PartitionNodeLimit);
    }
    if request.nodes_max > most {
        request.to_mut().nodes_max = most;
    }
    if request.nodes_max < fewest {
        return Err(PendingReason::PartitionNodeLimit);
    }
    if request.nodes_min < fewest {
        request.to_mut().nodes_min = fewest;
    }
    Ok(request)
}
