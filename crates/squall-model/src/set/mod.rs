//! Sets of dense ids: nodes, cores, and index sets of job arrays.

use minicbor::data::Type;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::id::NodeId;
use crate::limits::NODES_MAX;

mod bits;

pub use bits::BitSet;
use bits::Words;

/// A set of cores (hardware threads) of one node.
pub type CoreSet = BitSet;

/// A set of nodes. In messages and the journal it is encoded in the shorter of two forms.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(pub BitSet);

impl<C> Encode<C> for NodeSet {
    /// Encodes the set as a list of alternating gaps and run lengths, or as bytes with one bit for each node, whichever
    /// is shorter.
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        let runs = self.0.runs();
        let number = |n: u32| match n {
            0..24 => 1,
            24..0x100 => 2,
            0x100..0x1_0000 => 3,
            _ => 5,
        };
        let as_runs: usize = runs.iter().map(|(gap, count)| number(*gap) + number(*count)).sum();
        if as_runs <= self.0.written().len() * size_of::<u64>() {
            e.array(2 * runs.len() as u64)?;
            return runs.iter().try_for_each(|(gap, count)| e.u32(*gap)?.u32(*count)?.ok());
        }
        let mut bytes: Vec<u8> = self.0.written().flat_map(u64::to_le_bytes).collect();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        e.bytes(&bytes)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for NodeSet {
    /// Decodes either form of a node set. Refuses ids above the highest node id.
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let too_high = || decode::Error::message("a node's id is above the limit");
        let mut set = BitSet::new();
        if d.datatype()? == Type::Bytes {
            let bytes = d.bytes()?;
            if bytes.len() > NODES_MAX / 8 {
                return Err(too_high());
            }
            let word = |part: &[u8]| part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            set = bytes.chunks(8).map(word).collect::<Words>().into();
            return Ok(Self(set));
        }
        let mut next = 0;
        let mut numbers = d.array_iter::<u32>()?;
        while let Some(gap) = numbers.next() {
            let count = numbers.next().ok_or_else(|| decode::Error::message("a run has no length"))??;
            let first = next + gap? as usize;
            next = first + count as usize;
            if next > NODES_MAX {
                return Err(too_high());
            }
            set.insert_run(first, next);
        }
        Ok(Self(set))
    }
}

impl NodeSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the set that has only this node.
    pub fn one(node: NodeId) -> Self {
        [node].into_iter().collect()
    }
    /// Adds a node. Returns true if it was not a member.
    pub fn insert(&mut self, node: NodeId) -> bool {
        self.0.insert(node.index())
    }
    /// Removes a node. Returns true if it was a member.
    pub fn remove(&mut self, node: NodeId) -> bool {
        self.0.remove(node.index())
    }
    /// Returns whether the node is a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.contains(node.index())
    }
    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Iterates over the nodes in rising order of id.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().map(|i| NodeId(i as u32))
    }
    /// Returns the node with the lowest id. None: the set is empty.
    pub fn first(&self) -> Option<NodeId> {
        self.iter().next()
    }
    /// Adds all nodes of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.0.union_with(&other.0);
    }
    /// Removes all nodes that are in `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.0.subtract(&other.0);
    }
    /// Removes all nodes that are not in `other`.
    pub fn intersect_with(&mut self, other: &Self) {
        self.0.intersect_with(&other.0);
    }
    /// Returns whether the sets have no common node.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }
    /// Returns the nodes of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0))
    }
    /// Returns the number of nodes with a lower id, which is the index of `node` among the members.
    pub fn rank(&self, node: NodeId) -> usize {
        self.0.rank(node.index())
    }
    /// Returns whether every node of this set is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(iter: I) -> Self {
        Self(iter.into_iter().map(NodeId::index).collect())
    }
}

/// A set of array indices as sorted, disjoint, non-adjacent inclusive ranges, so that `0-999999` takes one entry and
/// removing the lowest indices is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode)]
#[cbor(transparent)]
pub struct IndexSet(#[n(0)] Vec<Range>);

impl<'b, C> Decode<'b, C> for IndexSet {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, decode::Error> {
        Vec::<Range>::decode(d, ctx)?.try_into().map_err(decode::Error::message)
    }
}

impl TryFrom<Vec<Range>> for IndexSet {
    type Error = &'static str;

    /// Builds a set from ranges that another process sent. Refuses ranges that are not in the normal form.
    fn try_from(ranges: Vec<Range>) -> Result<Self, Self::Error> {
        let ordered = ranges.windows(2).all(|w| w[0].last < w[1].first && w[1].first - w[0].last > 1);
        let whole = ranges.iter().all(|r| r.first <= r.last && r.last < u32::MAX);
        if ordered && whole { Ok(Self(ranges)) } else { Err("ranges of indices are not in order") }
    }
}

/// A range of indices `first, first+1, … last`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Range {
    /// Lowest index of the range.
    #[n(0)]
    pub first: u32,
    /// Highest index of the range.
    #[n(1)]
    pub last: u32,
}

impl IndexSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the set of all indices from `first` to `last`, both included.
    pub fn range(first: u32, last: u32) -> Self {
        Self(if first <= last { vec![Range { first, last }] } else { Vec::new() })
    }
    /// Returns the ranges of the set, which are sorted, disjoint and not adjacent.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.iter().map(|r| (r.last - r.first) as usize + 1).sum()
    }
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the lowest member. None: the set is empty.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|r| r.first)
    }
    /// Returns the highest member. None: the set is empty.
    pub fn last(&self) -> Option<u32> {
        self.0.last().map(|r| r.last)
    }
    /// Returns whether `i` is a member.
    pub fn contains(&self, i: u32) -> bool {
        let at = self.0.partition_point(|r| r.last < i);
        self.0.get(at).is_some_and(|r| r.first <= i)
    }
    /// Iterates over the members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|r| r.first..=r.last)
    }
    /// Returns the number of members lower than `i`, which is the position of `i` among the members.
    pub fn rank(&self, i: u32) -> u32 {
        self.0.iter().take_while(|r| r.first < i).map(|r| r.last.min(i - 1) - r.first + 1).sum()
    }
    /// Returns the member at position `rank` in rising order. None: the set has fewer members.
    pub fn at(&self, rank: u32) -> Option<u32> {
        let mut left = rank;
        for r in &self.0 {
            let n = r.last - r.first + 1;
            if left < n {
                return Some(r.first + left);
            }
            left -= n;
        }
        None
    }
    /// Adds `i`. Returns true if it was not a member.
    pub fn insert(&mut self, i: u32) -> bool {
        let at = self.0.partition_point(|r| r.last < i);
        if self.0.get(at).is_some_and(|r| r.first <= i) {
            return false;
        }
        let joins_left = at > 0 && self.0[at - 1].last + 1 == i;
        let joins_right = self.0.get(at).is_some_and(|r| i.checked_add(1) == Some(r.first));
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].last = self.0[at].last;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].last = i,
            (false, true) => self.0[at].first = i,
            (false, false) => self.0.insert(at, Range { first: i, last: i }),
        }
        true
    }
    /// Removes `i`. Returns true if it was a member.
    pub fn remove(&mut self, i: u32) -> bool {
        let at = self.0.partition_point(|r| r.last < i);
        let Some(r) = self.0.get(at).copied().filter(|r| r.first <= i) else { return false };
        match (r.first == i, r.last == i) {
            (true, true) => {
                self.0.remove(at);
            }
            (true, false) => self.0[at].first = i + 1,
            (false, true) => self.0[at].last = i - 1,
            (false, false) => {
                self.0[at].last = i - 1;
                self.0.insert(at + 1, Range { first: i + 1, last: r.last });
            }
        }
        true
    }
    /// Adds all members of `other`.
    pub fn union_with(&mut self, other: &Self) {
        let mut all: Vec<Range> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        self.0.clear();
        for r in all {
            match self.0.last_mut() {
                Some(end) if r.first <= end.last.saturating_add(1) => end.last = end.last.max(r.last),
                _ => self.0.push(r),
            }
        }
    }
    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let (mut a, mut b) = (0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            let (first, last) = (x.first.max(y.first), x.last.min(y.last));
            if first <= last {
                out.push(Range { first, last });
            }
            if x.last < y.last { a += 1 } else { b += 1 }
        }
        Self(out)
    }
    /// Returns the members of `self` that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        for r in &self.0 {
            let mut first = r.first;
            let from = other.0.partition_point(|o| o.last < r.first);
            let mut open = true;
            for o in &other.0[from..] {
                if o.first > r.last {
                    break;
                }
                if o.first > first {
                    out.push(Range { first, last: o.first - 1 });
                }
                if o.last >= r.last {
                    open = false;
                    break;
                }
                first = o.last + 1;
            }
            if open {
                out.push(Range { first, last: r.last });
            }
        }
        Self(out)
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Self {
        let mut all: Vec<u32> = iter.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        let mut out: Vec<Range> = Vec::new();
        for i in all {
            match out.last_mut() {
                Some(r) if r.last + 1 == i => r.last = i,
                _ => out.push(Range { first: i, last: i }),
            }
        }
        Self(out)
    }
}

impl std::fmt::Display for IndexSet {
    /// Formats as `1,4-9`, the part in brackets of `123_[1,4-9]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, r) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            if r.first == r.last { write!(f, "{}", r.first)? } else { write!(f, "{}-{}", r.first, r.last)? }
        }
        Ok(())
    }
}
