//! Options about the position of a job's nodes in the network.

use minicbor::{Decode, Encode};

use super::options::AsGiven;
use crate::duration::parse_limit;
use crate::limits::TASKS_MAX;

/// Maximum number of axes of a torus.
pub const AXES_MAX: usize = 6;
/// Maximum number of dimensions of a process grid.
pub const DIMENSIONS_MAX: usize = 4;
/// Maximum number of kinds of parallel groups of a job.
pub const GROUPS_MAX: usize = 6;
/// Maximum length of the name of a kind of groups, bytes.
const GROUP_NAME_BYTES_MAX: usize = 16;
/// Maximum number of processes in a process grid.
const GRID_TASKS_MAX: u64 = 1 << 24;

/// Values of the options about the position of a job's nodes in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Network {
    /// `--network`: sensitivity to the network traffic of other jobs.
    #[n(0)]
    pub class: Option<AsGiven<Class>>,
    /// `--geometry`: extents in routers of the prism (box) that the job occupies on a torus, such as `4x4x8`.
    #[n(1)]
    pub geometry: Option<AsGiven<Vec<u32>>>,
    /// `--grid`: shape of the job's process grid.
    #[n(2)]
    pub grid: Option<AsGiven<GridShape>>,
    /// `--stencil`: relative amount of data that neighbours exchange along each dimension of the grid, in thousandths.
    /// Empty: the same along all dimensions.
    #[n(3)]
    pub stencil: Option<AsGiven<Vec<u32>>>,
    /// `--switches`: maximum number of leaf switches of the job's nodes.
    #[n(4)]
    pub switches: Option<AsGiven<Switches>>,
    /// `--groups`: parallel groups of the job's ranks, those with the most traffic first.
    #[n(5)]
    pub groups: Option<AsGiven<Vec<GroupKind>>>,
}

/// One kind of parallel groups, such as `tp:8`: each group has so many ranks.
///
/// Ranks of a group of the first kind follow each other. In a group of a later kind they are as far apart as the kinds
/// before it have ranks together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GroupKind {
    /// Name that the user gave to the groups.
    #[n(0)]
    pub name: String,
    /// Number of ranks in each group.
    #[n(1)]
    pub ranks: u32,
}

/// How sensitive a job is to the network traffic of other jobs, and how much it disturbs these (`--network`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Class {
    /// Not given: treated as `Sensitive` if the job has more than a few nodes, or requests a geometry or grid.
    #[default]
    #[n(0)]
    Unsaid,
    /// The job needs links that no other job uses.
    #[n(1)]
    Sensitive,
    /// The job communicates mostly between neighbours: it gets a prism of the torus if one is free, otherwise nodes
    /// close to each other.
    #[n(2)]
    Local,
    /// The job neither suffers from other traffic nor disturbs it: it gets a prism if one is free, otherwise nodes that
    /// other jobs can't use well.
    #[n(3)]
    Tolerant,
    /// All nodes are treated as equivalent. Used to test whether only the positions of the free nodes prevent a start.
    #[n(4)]
    Anywhere,
}

/// `--grid`: shape of a job's process grid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GridShape {
    /// Number of processes along each dimension.
    #[n(0)]
    pub extents: Vec<u32>,
    /// Whether the last process along a dimension is a neighbour of the first.
    #[n(1)]
    pub periodic: bool,
}

/// `--switches=COUNT[@TIME]`: a limit on the number of leaf switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Switches {
    /// Maximum number of leaf switches.
    #[n(0)]
    pub count: u32,
    /// How long the job waits for so few switches, seconds. None: as long as the configuration allows any job.
    #[n(1)]
    pub wait_s: Option<u64>,
}

/// Reads `--network`: the first known word counts. Unknown words are ignored; [`knows`] finds them.
pub fn class(text: &str) -> AsGiven<Class> {
    let value = text.split(',').map(word).find(|class| *class != Class::Unsaid).unwrap_or_default();
    AsGiven { text: text.to_owned(), value }
}

fn word(word: &str) -> Class {
    match word.trim().to_ascii_lowercase().as_str() {
        "sensitive" | "commintolerant" | "noisy" => Class::Sensitive,
        "local" | "commlocal" => Class::Local,
        "tolerant" | "commtolerant" | "commtransparent" | "insensitive" => Class::Tolerant,
        _ => Class::Unsaid,
    }
}

/// Returns whether Squall knows all words of `--network`. Words for a switch's own settings are not passed on.
pub fn knows(text: &str) -> bool {
    text.split(',').all(|one| word(one) != Class::Unsaid)
}

/// Reads the value of `--geometry`: `11x8x8`. None: malformed, or too many axes.
pub fn geometry(text: &str) -> Option<AsGiven<Vec<u32>>> {
    AsGiven::of(text, extents(text).filter(|extents| extents.len() <= AXES_MAX))
}

fn extents(text: &str) -> Option<Vec<u32>> {
    text.split(['x', 'X']).map(|part| part.trim().parse().ok().filter(|n| *n > 0)).collect()
}

/// Reads the value of `--grid`: `32x32x32` or `32x32x32:periodic`. None: malformed or too large.
pub fn grid(text: &str) -> Option<AsGiven<GridShape>> {
    AsGiven::of(text, GridShape::parse(text))
}

/// Reads the value of `--stencil`: `4,4,1`. None: malformed.
pub fn stencil(text: &str) -> Option<AsGiven<Vec<u32>>> {
    let thousandths = |weights: Vec<f64>| weights.into_iter().map(|weight| (weight * 1000.0).round() as u32).collect();
    AsGiven::of(text, weights(text).map(thousandths))
}

/// Reads the weights of a stencil, such as `4,4,1`. An empty text and `halo` give an empty list. None: malformed.
pub fn weights(text: &str) -> Option<Vec<f64>> {
    if text.is_empty() || text == "halo" {
        return Some(Vec::new());
    }
    let weight = |part: &str| part.trim().parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    text.split([',', 'x']).map(weight).collect()
}

/// Reads the value of `--groups`: `tp:8,pp:4,dp:16`. None: malformed, too many kinds or ranks, or a name twice.
pub fn groups(text: &str) -> Option<AsGiven<Vec<GroupKind>>> {
    let kind = |part: &str| {
        let (name, ranks) = part.split_once(':')?;
        Some(GroupKind { name: name.trim().to_owned(), ranks: ranks.trim().parse().ok()? })
    };
    let kinds: Option<Vec<GroupKind>> = text.split(',').map(kind).collect();
    AsGiven::of(text, kinds.filter(|kinds| ranks_of(kinds).is_some()))
}

/// Returns the number of ranks of all groups together. None: there are too many kinds or ranks, or a name is malformed or
/// there twice.
pub fn ranks_of(kinds: &[GroupKind]) -> Option<u32> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_name = |name: &str| (1..=GROUP_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain);
    let once = |(at, kind): (usize, &GroupKind)| kinds[..at].iter().all(|before| before.name != kind.name);
    let fine = (1..=GROUPS_MAX).contains(&kinds.len())
        && kinds.iter().all(|kind| is_name(&kind.name))
        && kinds.iter().enumerate().all(once);
    let product = kinds.iter().try_fold(1_u32, |ranks, kind| ranks.checked_mul(kind.ranks));
    product.filter(|ranks| fine && (1..=TASKS_MAX).contains(ranks))
}

/// Reads the value of `--switches`: `COUNT[@TIME]`. None: malformed.
pub fn switches(text: &str) -> Option<AsGiven<Switches>> {
    let (count, time) = text.split_once('@').map_or((text, None), |(count, time)| (count, Some(time)));
    let count = count.parse().ok().filter(|count| *count > 0)?;
    let wait_s = time.and_then(|time| parse_limit(time).ok().flatten());
    AsGiven::of(text, Some(Switches { count, wait_s }))
}

impl GridShape {
    /// Reads a grid's shape: `32x32x32` or `32x32x32:periodic`. None: malformed or too large.
    pub fn parse(text: &str) -> Option<Self> {
        let (list, periodic) = match text.split_once(':') {
            Some((list, word)) if word.eq_ignore_ascii_case("periodic") => (list, true),
            Some(_) => return None,
            None => (text, false),
        };
        Some(Self { extents: extents(list)?, periodic }).filter(Self::is_valid)
    }
    /// Returns whether the numbers of dimensions and of processes are within the limits of a grid.
    pub fn is_valid(&self) -> bool {
        let tasks = self.tasks().unwrap_or(u64::MAX);
        (1..=DIMENSIONS_MAX).contains(&self.extents.len()) && (1..=GRID_TASKS_MAX).contains(&tasks)
    }
    /// Returns the number of processes in the grid. None: the number overflows.
    pub fn tasks(&self) -> Option<u64> {
        self.extents.iter().try_fold(1_u64, |tasks, n| tasks.checked_mul(u64::from(*n)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, class, geometry, grid, groups, knows, ranks_of, stencil, switches};

    #[test]
    fn wishes_of_the_network_are_read() {
        assert_eq!((class("x,CommLocal,noisy").value, class("x").value), (Class::Local, Class::Unsaid));
        assert!(knows("sensitive,local") && !knows("sensitive,x"));
        assert_eq!(geometry("2x4X8").map(|given| given.value), Some(vec![2, 4, 8]));
        assert_eq!((geometry("2x0"), geometry("1x1x1x1x1x1x1"), geometry("")), (None, None, None));
        let read = grid("4x4:Periodic").map(|given| (given.value.extents, given.value.periodic));
        assert_eq!(read, Some((vec![4, 4], true)));
        assert!(["0x3", "1x2x3x4x5", "4x4:x", "99999x99999"].into_iter().all(|text| grid(text).is_none()));
        assert_eq!(stencil("4,0.5").map(|given| given.value), Some(vec![4000, 500]));
        assert_eq!((stencil("halo").map(|given| given.value), stencil("4,-1")), (Some(Vec::new()), None));
        let read = |text| switches(text).map(|given| (given.value.count, given.value.wait_s));
        assert_eq!((read("1@10:00"), read("2"), read("0")), (Some((1, Some(600))), Some((2, None)), None));
    }

    #[test]
    fn groups_are_names_with_numbers_of_ranks() {
        let read = groups("tp:8, pp:4,dp:16").map(|given| given.value);
        let kinds: Vec<(&str, u32)> = read.iter().flatten().map(|kind| (kind.name.as_str(), kind.ranks)).collect();
        assert_eq!(kinds, [("tp", 8), ("pp", 4), ("dp", 16)]);
        assert_eq!(read.as_deref().and_then(ranks_of), Some(512));
        let wrong =
            ["", "8", "tp", "tp:", "tp:0", ":8", "tp:8,", "tp:8,tp:2", "t p:8", "a:2048,b:1024", "a:65536,b:65536"];
        assert!(wrong.iter().all(|text| groups(text).is_none()));
        assert!(groups("a:1,b:1,c:1,d:1,e:1,f:1").is_some() && groups("a:1,b:1,c:1,d:1,e:1,f:1,g:1").is_none());
        assert!(groups("a234567890123456:2").is_some() && groups("a2345678901234567:2").is_none());
    }
}
