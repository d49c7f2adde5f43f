//! Segments of a job in blocks (`--segment`): equal parts, each of which stands together.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::options::Chosen;

/// Returns block and place in it of a node. None: it is in no block.
type Place<'a> = &'a dyn Fn(NodeId) -> Option<(usize, usize)>;

/// Division of a job into parts of equal numbers of nodes. Each part stands in one block, or, where it is larger than a
/// block, in one aggregated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segments {
    /// Number of nodes of each part, at least 1.
    pub nodes: u32,
    /// Whether no two parts stand in the same block (`--spread-segments`).
    pub apart: bool,
    /// Whether all parts stand in one aggregated block (`--consolidate-segments`).
    pub together: bool,
}

impl Segments {
    /// Returns the division that a job's options ask for. None: they ask for none.
    pub fn of(options: &Chosen) -> Option<Self> {
        let nodes = options.segment.filter(|nodes| *nodes > 0)?;
        let placing = options.segments.unwrap_or_default();
        Some(Self { nodes, apart: placing.apart, together: placing.together })
    }
}

/// Returns the number of blocks in which a segment of so many nodes stands. None: it is larger than every aggregated
/// block.
pub(super) fn span(blocks: &[usize], sizes: &[u32], nodes: u32) -> Option<usize> {
    let smallest = blocks.iter().copied().min().unwrap_or(0);
    if nodes as usize <= smallest {
        return Some(1);
    }
    let base = sizes.first().copied().unwrap_or(1).max(1);
    sizes.iter().find(|size| **size >= nodes).map(|size| (size / base) as usize)
}

/// Checks that some job of `nodes` nodes (None: not known yet) can be divided like this. `blocks`: number of nodes of each;
/// `sizes`: the least one, and of aggregated blocks. The error says why none can.
pub fn check(blocks: &[usize], sizes: &[u32], segments: Segments, nodes: Option<u32>) -> Result<(), String> {
    let largest = blocks.iter().map(|nodes| *nodes as u32).min().unwrap_or(0);
    let largest = largest.max(sizes.last().copied().unwrap_or(0));
    let each = segments.nodes;
    // A job in one segment is not divided.
    let Some(nodes) = nodes.filter(|nodes| *nodes > each) else { return Ok(()) };
    if !nodes.is_multiple_of(each) {
        return Err(format!("{nodes} nodes can't be divided into parts of {each}: ask for a multiple of it"));
    }
    let Some(span) = span(blocks, sizes, each) else {
        return Err(format!("the largest block has {largest} nodes"));
    };
    let domains = blocks.len().div_ceil(span);
    if segments.apart && nodes / each > domains as u32 {
        return Err(format!("there are {domains} blocks for {} segments apart", nodes / each));
    }
    if segments.together && nodes > largest {
        return Err(format!("--consolidate-segments: the largest block has {largest} nodes"));
    }
    Ok(())
}

/// Checks that nodes which a job names (`--nodelist`) are whole segments. The error says why they aren't.
pub fn check_named(
    place_of: Place<'_>,
    (blocks, sizes): (&[usize], &[u32]),
    segments: Segments,
    nodes: &[NodeId],
) -> Result<(), String> {
    let each = segments.nodes as usize;
    if nodes.len() <= each {
        return Ok(());
    }
    let span = span(blocks, sizes, segments.nodes).unwrap_or(1);
    let mut counts = BTreeMap::<usize, usize>::new();
    for node in nodes {
        let (block, _) = place_of(*node).ok_or("a node of --nodelist is in no block")?;
        *counts.entry(block / span).or_default() += 1;
    }
    if let Some(count) = counts.values().find(|count| **count % each > 0) {
        return Err(format!("{count} nodes of --nodelist are in one block, which are no whole parts of {each}"));
    }
    if segments.apart && counts.values().any(|count| *count > each) {
        return Err("two parts of --nodelist are in one block: leave --spread-segments out".to_owned());
    }
    Ok(())
}

/// Leaves whole segments of the candidates, in the order of use: those in the smallest aggregated block with enough of
/// them, in few blocks. `wanted` and `most`: number of nodes that the job needs and may have, more than one segment.
/// Nodes beyond whole segments (spare ones) may stand anywhere. Returns false if the job must wait.
pub(super) fn place(
    place_of: Place<'_>,
    (blocks, sizes): (&[usize], &[u32]),
    segments: Segments,
    (wanted, most): (usize, usize),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    let Some(span) = span(blocks, sizes, segments.nodes) else { return false };
    let size = segments.nodes as usize;
    let mut nodes = vec![0; blocks.len().div_ceil(span)];
    fits.iter().filter_map(|(node, _)| place_of(*node)).for_each(|(block, _)| nodes[block / span] += 1);
    let rooms: Vec<usize> =
        nodes.iter().map(|nodes| (nodes / size).min(if segments.apart { 1 } else { usize::MAX })).collect();
    let base = sizes.first().copied().unwrap_or(1).max(1);
    let mut levels: Vec<usize> = sizes.iter().map(|size| ((size / base) as usize).div_ceil(span)).collect();
    if !segments.together {
        levels.push(rooms.len().max(1));
    }
    let found = (wanted / size..=most / size).rev().find_map(|count| domains(&rooms, &nodes, &levels, count));
    let Some(domains) = found else { return false };
    keep(place_of, &domains, (span, size), wanted % size > 0, fits);
    true
}

/// Returns the places that hold `count` segments, with the number in each. `rooms` and `nodes`: number of segments and
/// of candidates in each place. `levels`: number of places in an aggregated block, ascending. None: there is no room.
pub(super) fn domains(rooms: &[usize], nodes: &[usize], levels: &[usize], count: usize) -> Option<Vec<(usize, usize)>> {
    for level in levels {
        let runs = (0..rooms.len()).step_by((*level).max(1)).map(|from| from..(from + level).min(rooms.len()));
        let roomy = runs.map(|run| (rooms[run.clone()].iter().sum::<usize>(), run));
        let best = roomy.filter(|(room, _)| *room >= count).min_by_key(|(room, run)| (*room, run.start));
        let Some((_, run)) = best else { continue };
        // Equal places: the one with the fewest candidates first, so that large holes stay.
        let mut places: Vec<usize> = run.filter(|at| rooms[*at] > 0).collect();
        places.sort_by_key(|at| (nodes[*at], *at));
        let order = best_fit(places.iter().enumerate().map(|(at, place)| (at, rooms[*place])).collect(), count);
        let mut left = count;
        let taken = order.into_iter().map(|at| {
            let here = rooms[places[at]].min(left);
            left -= here;
            (places[at], here)
        });
        return Some(taken.filter(|(_, here)| *here > 0).collect());
    }
    None
}

/// Keeps the candidates of these places (index, number of segments), place by place, and behind them the others if
/// `others` are wanted. `span` and `size`: blocks of a place, nodes of a segment.
pub(super) fn keep(
    place_of: Place<'_>,
    places: &[(usize, usize)],
    (span, size): (usize, usize),
    others: bool,
    fits: &mut Vec<(NodeId, u32)>,
) {
    let mut left: Vec<usize> = places.iter().map(|(_, segments)| segments * size).collect();
    let rank = |node: NodeId| {
        let (group, at) = place_of(node)?;
        let rank = places.iter().position(|(place, _)| *place == group / span).unwrap_or(places.len());
        Some((rank, group, at))
    };
    fits.retain(|(node, _)| rank(*node).is_some());
    fits.sort_by_key(|(node, _)| rank(*node));
    let (chosen, rest): (Vec<_>, Vec<_>) = fits.drain(..).partition(|(node, _)| {
        let room = rank(*node).and_then(|(rank, ..)| left.get_mut(rank)).filter(|room| **room > 0);
        room.map(|room| *room -= 1).is_some()
    });
    fits.extend(chosen);
    if others {
        fits.extend(rest);
    }
}

/// Returns leaf switches in an order that uses few of them: the smallest sufficient leaf, otherwise the largest, and so
/// on. `leaves`: (leaf, number of candidate nodes). `wanted`: number of nodes that the job needs.
pub(super) fn best_fit(mut leaves: Vec<(usize, usize)>, wanted: usize) -> Vec<usize> {
    let (mut left, mut order) = (wanted, Vec::new());
    while left > 0 && !leaves.is_empty() {
        let enough = leaves.iter().filter(|(_, nodes)| *nodes >= left).min_by_key(|(leaf, nodes)| (*nodes, *leaf));
        let next = enough.or_else(|| leaves.iter().min_by_key(|(leaf, nodes)| (Reverse(*nodes), *leaf)));
        let Some(&(leaf, nodes)) = next else { break };
        leaves.retain(|(other, _)| *other != leaf);
        order.push(leaf);
        left = left.saturating_sub(nodes);
    }
    leaves.sort_unstable_by_key(|(leaf, nodes)| (*nodes, *leaf));
    order.extend(leaves.iter().map(|(leaf, _)| *leaf));
    order
}
