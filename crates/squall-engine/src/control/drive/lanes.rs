//! What may start in a partition, in order, and in lanes of those that ask for the same.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use squall_model::gres;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Need};
use squall_model::limits::UNLIMITED_S;
use squall_sched::topology::Wish;
use squall_sched::{Candidate, Item, Lanes, Request};

use super::queue::pending;
use super::view::Sight;
use crate::control::state::State;

/// A place in a partition's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Higher goes first.
    pub(crate) key: Reverse<u64>,
    /// Who.
    pub(crate) item: Item,
}

/// A need, as number: the same number, the same need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindId(u32);

/// What a job asks for, and for how long as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// What.
    pub(crate) kind: KindId,
    /// None: as long as the partition lets it by default; `UNLIMITED_S`: without limit.
    pub(crate) limit_s: Option<u64>,
    /// With its other components, which nobody else has; None: all that it asks for is said.
    pub(crate) het: Option<JobId>,
}

/// All that is asked for at present, each read once.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    ids: BTreeMap<Key, KindId>,
    all: Vec<Option<Kind>>,
    spare: Vec<KindId>,
    /// What was asked for last: as a rule many ask for the same, one after the other.
    last: Option<(Arc<JobSpec>, KindId)>,
}

/// What a job asks for, as it says it: whoever says the same is looked at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    need: Need,
    gres: gres::Ask,
    wish: Wish,
    reservation: Option<String>,
}

#[derive(Debug)]
struct Kind {
    key: Key,
    request: Request,
    /// Lanes of it.
    lanes: u32,
}

impl Kinds {
    /// The number of a need, which is read if nobody asked for it yet. None: it can't be understood.
    pub(crate) fn enter(&mut self, state: &State, spec: &Arc<JobSpec>) -> Option<KindId> {
        if let Some(id) = self.again(spec) {
            return Some(id);
        }
        let id = self.enter_other(state, spec)?;
        self.last = Some((Arc::clone(spec), id));
        Some(id)
    }
    fn enter_other(&mut self, state: &State, spec: &JobSpec) -> Option<KindId> {
        let key = Key::of(spec);
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let kind = Kind { request: key.read(state)?, key: key.clone(), lanes: 0 };
        let id = self.spare.pop().unwrap_or(KindId(self.all.len() as u32));
        if self.all.len() == id.0 as usize {
            self.all.push(None);
        }
        self.all[id.0 as usize] = Some(kind);
        self.ids.insert(key, id);
        Some(id)
    }
    /// The number of a need.
    pub(crate) fn find(&self, spec: &Arc<JobSpec>) -> Option<KindId> {
        self.again(spec).or_else(|| self.ids.get(&Key::of(spec)).copied())
    }
    /// The number of the need that was asked for last, if this is the same specification.
    fn again(&self, spec: &Arc<JobSpec>) -> Option<KindId> {
        self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, spec)).map(|(_, id)| *id)
    }
    /// Reads again what names nodes: there may be others of these names now.
    pub(crate) fn read_names(&mut self, state: &State) {
        let named = |kind: &&mut Kind| kind.key.need.nodelist.is_some() || kind.key.need.exclude.is_some();
        for kind in self.all.iter_mut().flatten().filter(named) {
            if let Some(request) = kind.key.read(state) {
                kind.request = request;
            }
        }
    }
    fn request(&self, id: KindId) -> Option<&Request> {
        self.all.get(id.0 as usize)?.as_ref().map(|kind| &kind.request)
    }
    /// There is a further lane.
    fn held(&mut self, id: KindId) {
        if let Some(Some(kind)) = self.all.get_mut(id.0 as usize) {
            kind.lanes += 1;
        }
    }
    /// A lane is empty; without any the need is forgotten.
    fn left(&mut self, id: KindId) {
        let Some(slot) = self.all.get_mut(id.0 as usize) else { return };
        let Some(kind) = slot else { return };
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
        Self {
            need: spec.need.clone(),
            gres: gres::Ask::of_job(spec).unwrap_or_default(),
            wish: Wish::of(&spec.others).unwrap_or_default(),
            reservation: spec.reservation.clone(),
        }
    }
    fn read(&self, state: &State) -> Option<Request> {
        let mut request = Request::of(&self.need, self.gres.clone(), state)?;
        request.wish_for(self.wish, &self.need, Some(&state.index.topology));
        request.reservation.clone_from(&self.reservation);
        Some(request)
    }
}

/// What a job asks for, read. None: it can't be understood.
pub(crate) fn request_of(state: &State, spec: &JobSpec) -> Option<Request> {
    Key::of(spec).read(state)
}

/// What may start in a partition.
#[derive(Debug, Default)]
pub(crate) struct Line {
    lanes: BTreeMap<Shape, Lane>,
    /// The first of each lane.
    fronts: BTreeMap<Place, Shape>,
}

/// Jobs that ask for the same.
#[derive(Debug, Default)]
struct Lane {
    places: BTreeSet<Place>,
    /// How many passes there were before there was anybody in it.
    since: u64,
}

impl Line {
    /// All at once.
    pub(crate) fn of(mut places: Vec<(Shape, Place)>, kinds: &mut Kinds, passes: u64) -> Self {
        places.sort_unstable();
        let mut line = Self::default();
        for run in places.chunk_by(|a, b| a.0 == b.0) {
            let (shape, first) = run[0];
            kinds.held(shape.kind);
            line.fronts.insert(first, shape);
            let places = run.iter().map(|(_, place)| *place).collect();
            line.lanes.insert(shape, Lane { places, since: passes });
        }
        line
    }
    /// Adds a place. None: it was there; else whether no pass has found its lane without room.
    pub(crate) fn insert(&mut self, kinds: &mut Kinds, shape: Shape, place: Place, passes: u64) -> Option<bool> {
        let lane = self.lanes.entry(shape).or_insert_with(|| {
            kinds.held(shape.kind);
            Lane { places: BTreeSet::new(), since: passes }
        });
        let first = lane.places.first().copied();
        if !lane.places.insert(place) {
            return None;
        }
        if first.is_none_or(|first| place < first) {
            first.map(|first| self.fronts.remove(&first));
            self.fronts.insert(place, shape);
        }
        Some(lane.since >= passes)
    }
    /// Takes a place out. True: it was there.
    pub(crate) fn remove(&mut self, kinds: &mut Kinds, shape: Shape, place: Place) -> bool {
        let Some(lane) = self.lanes.get_mut(&shape) else { return false };
        if !lane.places.remove(&place) {
            return false;
        }
        if self.fronts.remove(&place).is_some()
            && let Some(first) = lane.places.first()
        {
            self.fronts.insert(*first, shape);
        }
        if lane.places.is_empty() {
            self.lanes.remove(&shape);
            kinds.left(shape.kind);
        }
        true
    }
    /// Whether a place is in a lane.
    pub(crate) fn contains(&self, shape: Shape, place: Place) -> bool {
        self.lanes.get(&shape).is_some_and(|lane| lane.places.contains(&place))
    }
}

/// A partition's jobs in order.
pub(crate) struct Ordered<'a> {
    sight: Sight<'a>,
    line: Option<&'a Line>,
    fronts: Option<Peekable<btree_map::Iter<'a, Place, Shape>>>,
    /// The next of lanes whose first have passed.
    again: BinaryHeap<Reverse<(Place, Shape)>>,
    /// Whom the next of its lane follows.
    last: Option<(Place, Shape)>,
    /// Who asks for this and may run so long or longer is left out; the partition's default stands for itself.
    closed: BTreeMap<Comparable, u64>,
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(sight: Sight<'a>, partition: usize) -> Self {
        let line = sight.queue.line(partition);
        let fronts = line.map(|line| line.fronts.iter().peekable());
        Self { sight, line, fronts, again: BinaryHeap::new(), last: None, closed: BTreeMap::new() }
    }
    fn next_place(&mut self) -> Option<(Place, Shape)> {
        if let Some((place, shape)) = self.last.take()
            && let Some(lane) = self.line.and_then(|line| line.lanes.get(&shape))
            && let Some(next) = lane.places.range((Excluded(place), Unbounded)).next()
        {
            self.again.push(Reverse((*next, shape)));
        }
        loop {
            let fronts = self.fronts.as_mut()?;
            let front = fronts.peek().map(|(place, shape)| (**place, **shape));
            let again = self.again.peek().map(|Reverse(next)| *next);
            let next = match (front, again) {
                (Some(front), Some(again)) => front.min(again),
                (front, again) => front.or(again)?,
            };
            if Some(next) == front {
                fronts.next();
            } else {
                self.again.pop();
            }
            let (key, length) = length(next.1);
            if self.closed.get(&key).is_none_or(|closed| length < *closed) {
                self.last = Some(next);
                return self.last;
            }
        }
    }
}

/// What two shapes must have in common to be told apart by how long they last.
type Comparable = (KindId, bool, Option<JobId>);

/// What is asked for, and for how long: comparable where the first is the same.
fn length(shape: Shape) -> (Comparable, u64) {
    ((shape.kind, shape.limit_s.is_none(), shape.het), shape.limit_s.unwrap_or_default())
}

impl<'a> Iterator for Ordered<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        loop {
            let (place, shape) = self.next_place()?;
            let Sight { state, queue, .. } = self.sight;
            let Some((pending, need)) = pending(state, place.item).zip(queue.kinds.request(shape.kind)) else {
                continue;
            };
            return Some(Candidate {
                item: place.item,
                priority: place.key.0,
                need,
                time_limit_s: shape.limit_s.map(|limit| (limit != UNLIMITED_S).then_some(limit)),
                wish: queue.wish(state, &pending),
                copies: pending.copies(state),
                group: pending.group(state),
                avoid: if place.item.array { None } else { queue.avoid.get(&place.item.id) },
                alone: shape.het.is_some(),
                others: shape.het.map_or(&[], |leader| queue.others(leader)),
            });
        }
    }
}

impl<'a> Lanes<Candidate<'a>> for Ordered<'a> {
    fn close(&mut self) {
        if let Some((_, shape)) = self.last.take() {
            let (key, length) = length(shape);
            let closed = self.closed.entry(key).or_insert(length);
            *closed = length.min(*closed);
        }
    }
}
