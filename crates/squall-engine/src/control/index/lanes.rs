//! The jobs that may start in a partition, in order. Jobs with equal request and time limit form a lane.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use squall_model::gres;
use squall_model::id::{JobId, NodeId};
use squall_model::inside::Inside;
use squall_model::job::{JobSpec, Need};
use squall_sched::topology::Wish;
use squall_sched::{Exemptions, Item, Request, preferred};

use crate::control::state::State;
use crate::invariant::invariant;

/// Position of a job or array in a partition's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Sort key from the priority, reversed so that higher values come first.
    pub(crate) key: Reverse<u64>,
    /// The job or array at this position.
    pub(crate) item: Item,
}

impl Place {
    /// Sorts before the positions of all jobs.
    const FIRST: Self = Self { key: Reverse(u64::MAX), item: Item { id: JobId(0), array: false } };
    /// Sorts behind the positions of all jobs.
    const LAST: Self = Self { key: Reverse(0), item: Item { id: JobId(u32::MAX), array: true } };
}

/// Interned id of a resource request; equal requests share an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u32);

/// What the jobs of a lane have in common: request and time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// The request that the jobs have in common.
    pub(crate) want: Want,
    /// Time limit, seconds. None: the partition's default; `UNLIMITED_S`: no limit.
    pub(crate) limit_s: Option<u64>,
}

/// The request of a job, without its time limit: resources, and what else keeps it from sharing a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Want {
    /// Interned id of the request for resources.
    pub(crate) kind: ClassId,
    /// First component of the job's heterogeneous job: its components start together and share no lane with other jobs.
    /// None: the job is not a component.
    pub(crate) het: Option<JobId>,
    /// Uid of the user, if the queue keeps jobs of different users on separate nodes (`--exclusive=user`); otherwise
    /// None.
    pub(crate) user: Option<u32>,
    /// The first node that has the job's checkpoint: it may start on the nodes that have it even where these are spare ones.
    /// None: it has none.
    pub(crate) home: Option<NodeId>,
    /// Hash of user, account and QOS, if the queue keeps jobs apart that magnetic reservations may treat differently;
    /// otherwise None.
    pub(crate) kin: Option<u64>,
}

/// All resource requests of pending jobs, each parsed once.
#[derive(Debug, Default)]
pub(crate) struct RequestClasses {
    ids: BTreeMap<Key, ClassId>,
    all: Vec<Option<RequestClass>>,
    spare: Vec<ClassId>,
    /// The request that was looked up last, with its id. Jobs with the same request often come one after the other.
    last: Option<(Arc<JobSpec>, ClassId)>,
}

/// The options that make up a resource request, as submitted. Requests with equal options are parsed once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    need: Need,
    gres: gres::Ask,
    wish: Wish,
    prefer: Option<String>,
    inside: Inside,
    /// Whether the job has `--use-min-nodes`: it then gets the lowest number of a range of node counts.
    few: bool,
    reservation: Option<String>,
    /// The job's QOS, whose flags may lift limits of partitions.
    qos: Option<String>,
    /// Value of `--delay-boot`, seconds; None: zero.
    delay_boot_s: Option<u64>,
    /// Whether the job has `--exclusive=user`.
    own_nodes: bool,
    /// Number of spare nodes.
    spares: u32,
}

#[derive(Debug)]
struct RequestClass {
    key: Key,
    request: Request,
    /// Number of lanes (groups of jobs with equal request and time limit) with this request.
    pub(crate) lanes: u32,
}

impl RequestClasses {
    /// Returns the id of a spec's resource request, which is parsed if it is new. None: the request is invalid.
    pub(crate) fn enter(&mut self, state: &State, spec: &Arc<JobSpec>) -> Option<ClassId> {
        if let Some(id) = self.again(spec) {
            return Some(id);
        }
        let id = self.enter_other(state, spec)?;
        self.last = Some((Arc::clone(spec), id));
        Some(id)
    }
    fn enter_other(&mut self, state: &State, spec: &JobSpec) -> Option<ClassId> {
        let key = Key::of(spec);
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let kind = RequestClass { request: key.read(state)?, key: key.clone(), lanes: 0 };
        let id = self.spare.pop().unwrap_or(ClassId(self.all.len() as u32));
        if self.all.len() == id.0 as usize {
            self.all.push(None);
        }
        self.all[id.0 as usize] = Some(kind);
        self.ids.insert(key, id);
        Some(id)
    }
    /// Returns the id of a spec's resource request; None: no job that may start has this request.
    pub(crate) fn find(&self, spec: &Arc<JobSpec>) -> Option<ClassId> {
        self.again(spec).or_else(|| self.ids.get(&Key::of(spec)).copied())
    }
    /// Returns the id of the request that was looked up last, if it belongs to the same spec; otherwise None.
    fn again(&self, spec: &Arc<JobSpec>) -> Option<ClassId> {
        self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, spec)).map(|(_, id)| *id)
    }
    /// Parses the requests that name nodes again, as new nodes may have these names.
    pub(crate) fn read_names(&mut self, state: &State) {
        let named = |kind: &&mut RequestClass| kind.key.need.nodelist.is_some() || kind.key.need.exclude.is_some();
        for kind in self.all.iter_mut().flatten().filter(named) {
            if let Some(request) = kind.key.read(state) {
                kind.request = request;
            }
        }
    }
    pub(crate) fn request(&self, id: ClassId) -> Option<&Request> {
        self.all.get(id.0 as usize)?.as_ref().map(|kind| &kind.request)
    }
    /// Counts one more lane (group of jobs with equal request and time limit) with this request.
    fn held(&mut self, id: ClassId) {
        if let Some(Some(kind)) = self.all.get_mut(id.0 as usize) {
            kind.lanes += 1;
        }
    }
    /// Counts one lane (group of jobs with equal request and time limit) less with this request. A request without
    /// lanes is dropped.
    fn left(&mut self, id: ClassId) {
        let Some(slot) = self.all.get_mut(id.0 as usize) else { return invariant!("a lane has a known request") };
        let Some(kind) = slot else { return invariant!("a request with lanes is kept") };
        kind.lanes -= 1;
        if kind.lanes == 0 {
            self.ids.remove(&kind.key);
            *slot = None;
            self.spare.push(id);
            self.last = None;
        }
    }
}

impl Key {
    fn of(spec: &JobSpec) -> Self {
        let plain = Self {
            need: spec.need.clone(),
            gres: gres::Ask::of_job(spec).unwrap_or_default(),
            reservation: spec.reservation.clone(),
            qos: spec.qos.clone(),
            ..Self::default()
        };
        let Some(options) = spec.options.get() else { return plain };
        Self {
            wish: Wish::of_job(options).unwrap_or_default(),
            prefer: options.prefer().map(str::to_owned),
            inside: options.inside(),
            few: options.use_min_nodes,
            delay_boot_s: options.delay_boot_s.filter(|seconds| *seconds > 0),
            own_nodes: spec.keeps_others_off(),
            spares: options.spares(),
            ..plain
        }
    }
    fn read(&self, state: &State) -> Option<Request> {
        let mut request = Request::of(&self.need, self.gres.clone(), state)?;
        request.wish_for(self.wish, &self.need, Some(&state.index.topology));
        request.prefer = self.prefer.as_deref().and_then(|text| preferred(self.need.constraint.as_deref(), text));
        request.reservation.clone_from(&self.reservation);
        request.exempt = exemptions_of(state, self.qos.as_deref());
        request.inside = self.inside;
        request.delay_boot_s = self.delay_boot_s;
        if state.config.select_type_parameters.one_task_per_core && self.inside.tasks_per_core == 0 {
            request.inside.tasks_per_core = 1;
        }
        request.own_nodes = self.own_nodes;
        if self.few {
            request.spread = self.need.spread;
        }
        if self.spares > 0 {
            request.add_spares(self.spares);
        }
        Some(request)
    }
}

/// Returns the rules from which the QOS of a job exempts it.
pub(crate) fn exemptions(state: &State, spec: &JobSpec) -> Exemptions {
    exemptions_of(state, spec.qos.as_deref())
}

fn exemptions_of(state: &State, qos: Option<&str>) -> Exemptions {
    let Some(qos) = state.policy.qos.get(qos.unwrap_or(&state.config.default_qos)) else {
        // because most clusters define no QOS
        return Exemptions::default();
    };
    Exemptions {
        time: qos.has("PartitionTimeLimit"),
        nodes_max: qos.has("PartitionMaxNodes"),
        nodes_min: qos.has("PartitionMinNodes"),
        reserve: qos.has("NoReserve"),
    }
}

/// Parses the resource request of a spec. None: the request is invalid.
pub(crate) fn request_of(state: &State, spec: &JobSpec) -> Option<Request> {
    Key::of(spec).read(state)
}

/// The pending jobs of a partition that may start, grouped in lanes of equal request and time limit.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    pub(crate) lanes: BTreeMap<Shape, Lane>,
    /// The first position of each lane, sorted by request and position. The value is the lane's time limit, seconds;
    /// None: the partition's default.
    fronts: BTreeMap<(Want, Place), Option<u64>>,
    /// The first position of each request over all of its lanes, with request and time limit.
    pub(crate) firsts: BTreeMap<Place, Shape>,
}

/// Positions of pending jobs with equal request and time limit.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) places: BTreeSet<Place>,
    /// Number of scheduling passes that had been made when the lane got its first job.
    since: u64,
}

impl ReadyQueue {
    /// Builds the lanes (jobs with equal request and time limit) of a partition from all of its positions at once.
    pub(crate) fn of(mut places: Vec<(Shape, Place)>, kinds: &mut RequestClasses, passes: u64) -> Self {
        places.sort_unstable();
        let mut line = Self::default();
        for run in places.chunk_by(|a, b| a.0 == b.0) {
            let (shape, first) = run[0];
            kinds.held(shape.want.kind);
            line.leads(shape, None, Some(first));
            let places = run.iter().map(|(_, place)| *place).collect();
            line.lanes.insert(shape, Lane { places, since: passes });
        }
        line
    }
    /// Adds a position to the lane of this request and time limit. None: the position was in the lane already.
    /// Otherwise returns true if no scheduling pass was made since the lane got its first job.
    pub(crate) fn insert(
        &mut self,
        kinds: &mut RequestClasses,
        shape: Shape,
        place: Place,
        passes: u64,
    ) -> Option<bool> {
        let lane = self.lanes.entry(shape).or_insert_with(|| {
            kinds.held(shape.want.kind);
            Lane { places: BTreeSet::new(), since: passes }
        });
        let (first, since) = (lane.places.first().copied(), lane.since);
        if !lane.places.insert(place) {
            return None;
        }
        if first.is_none_or(|first| place < first) {
            self.leads(shape, first, Some(place));
        }
        Some(since >= passes)
    }
    /// Removes a position from the lane of this request and time limit. Returns whether the position was in it.
    pub(crate) fn remove(&mut self, kinds: &mut RequestClasses, shape: Shape, place: Place) -> bool {
        let Some(lane) = self.lanes.get_mut(&shape) else { return false };
        let first = lane.places.first() == Some(&place);
        if !lane.places.remove(&place) {
            return false;
        }
        let next = lane.places.first().copied();
        if first {
            self.leads(shape, Some(place), next);
        }
        if next.is_none() {
            self.lanes.remove(&shape);
            kinds.left(shape.want.kind);
        }
        true
    }
    /// Returns the first position over all lanes, with its request and time limit.
    pub(crate) fn first(&self) -> Option<(Place, Shape)> {
        self.firsts.first_key_value().map(|(place, shape)| (*place, *shape))
    }
    /// Returns whether the lane of this request and time limit contains a position.
    pub(crate) fn contains(&self, shape: Shape, place: Place) -> bool {
        self.lanes.get(&shape).is_some_and(|lane| lane.places.contains(&place))
    }
    /// Updates the tables of first positions: the first position of a lane was `before` and is `now`; None: the lane
    /// was or is empty.
    fn leads(&mut self, shape: Shape, before: Option<Place>, now: Option<Place>) {
        let Shape { want, limit_s } = shape;
        let first = self.fronts_from(want, None).next();
        first.map(|(first, _)| self.firsts.remove(&first));
        before.map(|before| self.fronts.remove(&(want, before)));
        now.map(|now| self.fronts.insert((want, now), limit_s));
        let first = self.fronts_from(want, None).next();
        first.map(|(first, limit_s)| self.firsts.insert(first, Shape { want, limit_s }));
    }
    /// Returns the first position of each lane with the request `want`, with the lane's time limit. With `behind` only
    /// positions after that one are returned.
    pub(crate) fn fronts_from(
        &self,
        want: Want,
        behind: Option<Place>,
    ) -> impl Iterator<Item = (Place, Option<u64>)> + '_ {
        let from = match behind {
            Some(place) => Excluded((want, place)),
            None => Included((want, Place::FIRST)),
        };
        let fronts = self.fronts.range((from, Included((want, Place::LAST))));
        fronts.map(|((_, place), limit_s)| (*place, *limit_s))
    }
}
