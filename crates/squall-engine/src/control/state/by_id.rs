//! A map by job id. Ids are assigned in sequence, so the place of a job's entry follows from its id: a page and a slot
//! in it. Pages are made and dropped as needed.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Index, Range};

use squall_model::id::JobId;

/// Number of consecutive job ids in a page.
const SLOTS: u32 = 1024;

/// A map from job ids to values, ordered by id. A lookup costs the same for any number of entries.
#[derive(Clone)]
pub struct ById<V> {
    /// Number of the first page in `pages`: its lowest id divided by `SLOTS`.
    first: u32,
    pages: VecDeque<Option<Page<V>>>,
    len: usize,
}

#[derive(Clone)]
struct Page<V> {
    live: u32,
    slots: Box<[Option<(JobId, V)>]>,
}

impl<V> Page<V> {
    fn new() -> Self {
        Self { live: 0, slots: (0..SLOTS).map(|_| None).collect() }
    }
}

const fn place(id: JobId) -> (u32, usize) {
    (id.0 / SLOTS, (id.0 % SLOTS) as usize)
}

/// Returns the slots of a page that have their ids in the range `ids`.
fn slots_of(ids: &Range<JobId>, page: u32) -> Range<usize> {
    let slot = |id: JobId| id.0.saturating_sub(page * SLOTS).min(SLOTS) as usize;
    slot(ids.start)..slot(ids.end).max(slot(ids.start))
}

impl<V> ById<V> {
    /// Returns the number of entries.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of this id; None: it has none.
    pub fn get(&self, id: &JobId) -> Option<&V> {
        let (page, slot) = place(*id);
        let page = self.pages.get(page.checked_sub(self.first)? as usize)?.as_ref()?;
        page.slots[slot].as_ref().map(|(_, value)| value)
    }

    /// Returns the value of this id, to be changed; None: it has none.
    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut V> {
        let (page, slot) = place(*id);
        let page = self.pages.get_mut(page.checked_sub(self.first)? as usize)?.as_mut()?;
        page.slots[slot].as_mut().map(|(_, value)| value)
    }

    /// Returns whether this id has a value.
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.get(id).is_some()
    }

    /// Sets the value of an id. Returns the value that it had before; None: it had none.
    pub fn insert(&mut self, id: JobId, value: V) -> Option<V> {
        let (page, slot) = place(id);
        if self.pages.is_empty() {
            self.first = page;
        }
        while page < self.first {
            self.pages.push_front(None);
            self.first -= 1;
        }
        let at = (page - self.first) as usize;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let page = self.pages[at].get_or_insert_with(Page::new);
        let before = page.slots[slot].replace((id, value));
        if before.is_none() {
            page.live += 1;
            self.len += 1;
        }
        before.map(|(_, value)| value)
    }

    /// Removes an id. Returns the value that it had; None: it had none.
    pub fn remove(&mut self, id: &JobId) -> Option<V> {
        let (page, slot) = place(*id);
        let room = self.pages.get_mut(page.checked_sub(self.first)? as usize)?;
        let page = room.as_mut()?;
        let (_, value) = page.slots[slot].take()?;
        page.live -= 1;
        self.len -= 1;
        if page.live == 0 {
            *room = None;
            while let Some(None) = self.pages.front() {
                self.pages.pop_front();
                self.first += 1;
            }
            while let Some(None) = self.pages.back() {
                self.pages.pop_back();
            }
        }
        Some(value)
    }

    /// Returns all entries, by rising id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&JobId, &V)> + Clone {
        let slots = self.pages.iter().flatten().flat_map(|page| page.slots.iter().flatten());
        slots.map(|(id, value)| (id, value))
    }

    /// Returns all ids, rising.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &JobId> + Clone {
        self.iter().map(|(id, _)| id)
    }

    /// Returns all values, by rising id.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the entries of a range of ids, by rising id. No slot outside of the range is visited.
    pub fn range(&self, ids: Range<JobId>) -> impl Iterator<Item = (&JobId, &V)> {
        let (pages, first) = (self.pages_of(&ids), self.first);
        let pages = self.pages.range(pages.clone()).zip(pages);
        let slots = pages.filter_map(move |(page, at)| page.as_ref()?.slots.get(slots_of(&ids, first + at as u32)));
        slots.flatten().flatten().map(|(id, value)| (id, value))
    }

    /// Returns the entries of a range of ids, by rising id, to be changed.
    pub fn range_mut(&mut self, ids: Range<JobId>) -> impl Iterator<Item = (&JobId, &mut V)> {
        let (pages, first) = (self.pages_of(&ids), self.first);
        let pages = self.pages.range_mut(pages.clone()).zip(pages);
        let slots = pages.filter_map(move |(page, at)| page.as_mut()?.slots.get_mut(slots_of(&ids, first + at as u32)));
        slots.flatten().flatten().map(|(id, value)| (&*id, value))
    }

    /// Returns the positions in `pages` of the pages that contain a range of ids.
    fn pages_of(&self, ids: &Range<JobId>) -> Range<usize> {
        let end = (ids.end.0.div_ceil(SLOTS).saturating_sub(self.first) as usize).min(self.pages.len());
        let start = ((ids.start.0 / SLOTS).saturating_sub(self.first) as usize).min(end);
        start..end
    }
}

impl<V> Default for ById<V> {
    fn default() -> Self {
        Self { first: 0, pages: VecDeque::new(), len: 0 }
    }
}

impl<V: PartialEq> PartialEq for ById<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<V: Eq> Eq for ById<V> {}

impl<V: fmt::Debug> fmt::Debug for ById<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V> Index<&JobId> for ById<V> {
    type Output = V;

    fn index(&self, id: &JobId) -> &V {
        self.get(id).unwrap_or_else(|| panic!("there is no job {id}"))
    }
}

impl<V> FromIterator<(JobId, V)> for ById<V> {
    fn from_iter<I: IntoIterator<Item = (JobId, V)>>(all: I) -> Self {
        let mut map = Self::default();
        for (id, value) in all {
            map.insert(id, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Strategy, prop_assert_eq, proptest};
    use squall_model::id::JobId;

    use crate::control::state::by_id::ById;

    /// Ids of three neighbourhoods.
    fn ids() -> impl Strategy<Value = JobId> {
        (0..3_u32, 0..2500_u32).prop_map(|(far, near)| JobId(far * 1_000_000 + near))
    }

    proptest! {
        #[test]
        fn it_is_a_map(deeds in proptest::collection::vec((ids(), proptest::bool::ANY), 0..400), from in ids(), to in ids()) {
            let (mut map, mut known) = (ById::default(), BTreeMap::new());
            for (number, (id, goes)) in deeds.into_iter().enumerate() {
                if goes {
                    prop_assert_eq!(map.remove(&id), known.remove(&id));
                } else {
                    prop_assert_eq!(map.insert(id, number), known.insert(id, number));
                }
                prop_assert_eq!((map.get(&id), map.len()), (known.get(&id), known.len()));
            }
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), known.iter().collect::<Vec<_>>());
            if from <= to {
                let these: Vec<_> = map.range(from..to).map(|(id, value)| (*id, *value)).collect();
                let those: Vec<_> = known.range(from..to).map(|(id, value)| (*id, *value)).collect();
                prop_assert_eq!(&these, &those);
                let changed: Vec<_> = map.range_mut(from..to).map(|(id, value)| (*id, *value)).collect();
                prop_assert_eq!(changed, these);
            }
            let again: ById<usize> = map.iter().map(|(id, value)| (*id, *value)).collect();
            prop_assert_eq!(again, map);
        }
    }
}
