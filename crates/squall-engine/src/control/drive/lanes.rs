//! What may start in a partition, in order, and in lanes of those that ask for the same.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use squall_model::gres;
use squall_model::id::JobId;
use squall_model::inside::Inside;
use squall_model::job::{JobSpec, Need};
use squall_model::limits::UNLIMITED_S;
use squall_model::time::Span;
use squall_sched::topology::Wish;
use squall_sched::{Candidate, Item, Lanes, Request, UNLIMITED, View as _, preferred};

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

impl Place {
    /// Before all others.
    const FIRST: Self = Self { key: Reverse(u64::MAX), item: Item { id: JobId(0), array: false } };
    /// Behind all others.
    const LAST: Self = Self { key: Reverse(0), item: Item { id: JobId(u32::MAX), array: true } };
}

/// A need, as number: the same number, the same need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindId(u32);

/// What a job asks for, and for how long as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// What.
    pub(crate) want: Want,
    /// None: as long as the partition lets it by default; `UNLIMITED_S`: without limit.
    pub(crate) limit_s: Option<u64>,
}

/// What a job asks for, for however long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Want {
    /// The need.
    pub(crate) kind: KindId,
    /// With its other components, which nobody else has; None: all that it asks for is said.
    pub(crate) het: Option<JobId>,
    /// The user, where users may have to be kept apart.
    pub(crate) user: Option<u32>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    need: Need,
    gres: gres::Ask,
    wish: Wish,
    prefer: Option<String>,
    inside: Inside,
    /// `--use-min-nodes`: of a range of numbers of nodes the least.
    few: bool,
    reservation: Option<String>,
    /// `--exclusive=user`.
    own_nodes: bool,
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
    pub(super) fn request(&self, id: KindId) -> Option<&Request> {
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
        let plain = Self {
            need: spec.need.clone(),
            gres: gres::Ask::of_job(spec).unwrap_or_default(),
            reservation: spec.reservation.clone(),
            ..Self::default()
        };
        let Some(options) = spec.options.get() else { return plain };
        Self {
            wish: Wish::of(&options.network).unwrap_or_default(),
            prefer: options.prefer().map(str::to_owned),
            inside: options.inside(),
            few: options.use_min_nodes,
            own_nodes: spec.keeps_others_off(),
            ..plain
        }
    }
    fn read(&self, state: &State) -> Option<Request> {
        let mut request = Request::of(&self.need, self.gres.clone(), state)?;
        request.wish_for(self.wish, &self.need, Some(&state.index.topology));
        request.prefer = self.prefer.as_deref().and_then(|text| preferred(self.need.constraint.as_deref(), text));
        request.reservation.clone_from(&self.reservation);
        request.inside = self.inside;
        request.own_nodes = self.own_nodes;
        if self.few {
            request.spread = self.need.spread;
        }
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
    /// The first of each lane, by what they want.
    fronts: BTreeMap<(Want, Place), Option<u64>>,
    /// The first of all that want the same.
    firsts: BTreeMap<Place, Shape>,
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
            kinds.held(shape.want.kind);
            line.leads(shape, None, Some(first));
            let places = run.iter().map(|(_, place)| *place).collect();
            line.lanes.insert(shape, Lane { places, since: passes });
        }
        line
    }
    /// Adds a place. None: it was there; else whether no pass has found its lane without room.
    pub(crate) fn insert(&mut self, kinds: &mut Kinds, shape: Shape, place: Place, passes: u64) -> Option<bool> {
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
    /// Takes a place out. True: it was there.
    pub(crate) fn remove(&mut self, kinds: &mut Kinds, shape: Shape, place: Place) -> bool {
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
    /// The first of all.
    pub(crate) fn first(&self) -> Option<(Place, Shape)> {
        self.firsts.first_key_value().map(|(place, shape)| (*place, *shape))
    }
    /// Whether a place is in a lane.
    pub(crate) fn contains(&self, shape: Shape, place: Place) -> bool {
        self.lanes.get(&shape).is_some_and(|lane| lane.places.contains(&place))
    }
    /// Another one is the first of a lane.
    fn leads(&mut self, shape: Shape, before: Option<Place>, now: Option<Place>) {
        let Shape { want, limit_s } = shape;
        let first = self.fronts_from(want, None).next();
        first.map(|(first, _)| self.firsts.remove(&first));
        before.map(|before| self.fronts.remove(&(want, before)));
        now.map(|now| self.fronts.insert((want, now), limit_s));
        let first = self.fronts_from(want, None).next();
        first.map(|(first, limit_s)| self.firsts.insert(first, Shape { want, limit_s }));
    }
    /// The first of each lane of those who want the same, behind a place.
    fn fronts_from(&self, want: Want, behind: Option<Place>) -> impl Iterator<Item = (Place, Option<u64>)> + '_ {
        let from = match behind {
            Some(place) => Excluded((want, place)),
            None => Included((want, Place::FIRST)),
        };
        let fronts = self.fronts.range((from, Included((want, Place::LAST))));
        fronts.map(|((_, place), limit_s)| (*place, *limit_s))
    }
}

/// A partition's jobs in order.
pub(crate) struct Ordered<'a> {
    sight: Sight<'a>,
    line: Option<&'a Line>,
    /// The time limit of jobs that say none, seconds; None: unlimited.
    default_s: Option<u64>,
    firsts: Option<Peekable<btree_map::Iter<'a, Place, Shape>>>,
    /// The next of those who want the same as one who has passed.
    again: BinaryHeap<Reverse<Next>>,
    /// Whom others follow.
    last: Option<Next>,
    /// Who wants this and may run longer than that is left out.
    closed: BTreeMap<Want, Span>,
}

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    place: Place,
    shape: Shape,
    /// Behind the first of a lane comes that of another lane, too.
    front: bool,
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(sight: Sight<'a>, partition: usize) -> Self {
        let line = sight.queue.line(partition);
        let firsts = line.map(|line| line.firsts.iter().peekable());
        let default_s = sight.partition(partition).time_default_s;
        Self { sight, line, default_s, firsts, again: BinaryHeap::new(), last: None, closed: BTreeMap::new() }
    }
    fn next_place(&mut self) -> Option<Next> {
        if let Some(last) = self.last.take() {
            self.follow(last);
        }
        loop {
            let firsts = self.firsts.as_mut()?;
            let first = firsts.peek().map(|(place, shape)| Next { place: **place, shape: **shape, front: true });
            let again = self.again.peek().map(|Reverse(next)| *next);
            let next = match (first, again) {
                (Some(first), Some(again)) => first.min(again),
                (first, again) => first.or(again)?,
            };
            if Some(next) == first {
                firsts.next();
            } else {
                self.again.pop();
            }
            if self.is_open(next.shape) {
                self.last = Some(next);
                return self.last;
            }
            self.follow(next);
        }
    }
    /// How long a job may run, or unlimited ones are expected to.
    fn limit(&self, shape: Shape) -> Option<u64> {
        shape.limit_s.map_or(self.default_s, |limit| (limit != UNLIMITED_S).then_some(limit))
    }
    /// Whether nobody who wants the same for as long has found no room.
    fn is_open(&self, shape: Shape) -> bool {
        let longest = self.closed.get(&shape.want);
        longest.is_none_or(|longest| self.limit(shape).map_or(UNLIMITED, Span::from_secs) <= *longest)
    }
    /// Who comes behind one of the same lane, and of the same want.
    fn follow(&mut self, Next { place, shape, front }: Next) {
        let Some(line) = self.line else { return };
        if self.is_open(shape)
            && let Some(lane) = line.lanes.get(&shape)
            && let Some(next) = lane.places.range((Excluded(place), Unbounded)).next()
        {
            self.again.push(Reverse(Next { place: *next, shape, front: false }));
        }
        if front {
            self.again.extend(self.next_front(line, place, shape.want).map(Reverse));
        }
    }
    /// The next front of a lane, of those who want the same and may find room. Looked for in two ways at once: by place
    /// from that one on, and among all that may run no longer; the shorter way counts.
    fn next_front(&self, line: &Line, behind: Place, want: Want) -> Option<Next> {
        let longest = self.closed.get(&want).copied().unwrap_or(Span(u64::MAX));
        if longest == Span(0) {
            return None;
        }
        let most = if longest < UNLIMITED { longest.secs() } else { u64::MAX };
        let [least, most] = [None, Some(most)].map(|limit_s| Shape { want, limit_s });
        let mut lanes = line.lanes.range(least..=most);
        let mut first: Option<Next> = None;
        for (place, limit_s) in line.fronts_from(want, Some(behind)) {
            let shape = Shape { want, limit_s };
            if self.is_open(shape) {
                return Some(Next { place, shape, front: true });
            }
            let Some((shape, lane)) = lanes.next() else { return first };
            let front = lane.places.first().filter(|place| **place > behind && self.is_open(*shape));
            let next = front.map(|place| Next { place: *place, shape: *shape, front: true });
            first = [first, next].into_iter().flatten().min();
        }
        None
    }
}

impl<'a> Iterator for Ordered<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        loop {
            let Next { place, shape, .. } = self.next_place()?;
            let Sight { state, queue, .. } = self.sight;
            let Some((pending, need)) = pending(state, place.item).zip(queue.kinds.request(shape.want.kind)) else {
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
                alone: shape.want.het.is_some(),
                others: shape.want.het.map_or(&[], |leader| queue.others(leader)),
                user: shape.want.user,
            });
        }
    }
}

impl<'a> Lanes<Candidate<'a>> for Ordered<'a> {
    fn close(&mut self, longest: Span) {
        let Some(Next { shape, .. }) = self.last else { return };
        let closed = self.closed.entry(shape.want).or_insert(longest);
        *closed = longest.min(*closed);
    }
}
