//! Parallel groups of a job (`--groups`): how many nodes stand together, which node each rank gets, and how far groups
//! reach.

use squall_model::id::NodeId;
use squall_model::job::network::{GROUPS_MAX, GroupKind, ranks_of};

use super::segments::domains;
use super::{Topology, TopologyKind};

/// Numbers of ranks in the groups of each kind, the kind with the most traffic first.
///
/// A *cluster* is all ranks that differ in the first few kinds only: with `tp:8,pp:4,dp:16` there are clusters of 8, of 32
/// and of 512 ranks. A cluster's ranks follow each other, and the groups of its kinds lie inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Groups {
    ranks: [u32; GROUPS_MAX],
    kinds: u8,
}

/// How far the groups of one kind reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// Number of blocks, or of leaf switches, of the group that has the most.
    pub most: u32,
    /// Mean of that number over all groups.
    pub mean: f64,
}

impl Groups {
    /// Makes groups of their kinds. None: the kinds are invalid.
    pub fn of(kinds: &[GroupKind]) -> Option<Self> {
        ranks_of(kinds)?;
        let mut groups = Self { kinds: kinds.len() as u8, ..Self::default() };
        groups.ranks.iter_mut().zip(kinds).for_each(|(ranks, kind)| *ranks = kind.ranks);
        Some(groups)
    }

    /// Returns the number of ranks of all groups together.
    pub fn tasks(&self) -> u32 {
        self.kinds().iter().product()
    }

    fn kinds(&self) -> &[u32] {
        &self.ranks[..usize::from(self.kinds)]
    }

    /// Returns the number of ranks on each of so many nodes. None: they don't lie evenly on them.
    pub fn each_on(&self, nodes: usize) -> Option<u32> {
        let nodes = u32::try_from(nodes).ok().filter(|nodes| *nodes > 0)?;
        self.tasks().is_multiple_of(nodes).then(|| self.tasks() / nodes)
    }

    /// Returns the numbers of nodes of the clusters that are whole nodes with `each` ranks, ascending from 1. Each is a
    /// multiple of the one before.
    fn clusters(&self, each: u32) -> Vec<usize> {
        let mut ranks = 1_u32;
        let all = self.kinds().iter().map(|kind| {
            ranks = ranks.saturating_mul(*kind);
            ranks
        });
        let whole =
            all.filter(|ranks| *ranks > each && ranks.is_multiple_of(each)).map(|ranks| (ranks / each) as usize);
        let mut clusters: Vec<usize> = std::iter::once(1).chain(whole).collect();
        clusters.dedup();
        clusters
    }

    /// Returns the number of nodes, of `nodes` with `each` ranks, that stand together: those of the largest cluster that
    /// `fits` in one block. None: all of them fit, or no cluster of several nodes does.
    pub(super) fn unit(&self, (nodes, each): (usize, u32), fits: impl Fn(usize) -> bool) -> Option<usize> {
        let unit = self.clusters(each).into_iter().rev().find(|cluster| *cluster <= nodes && fits(*cluster))?;
        (1 < unit && unit < nodes).then_some(unit)
    }
}

/// Returns a job's nodes in the order in which ranks fill them, so that clusters stand in as few blocks or leaf switches
/// as can be, the small ones before the large ones. None: the network has neither, a node has no place in it, or the ranks
/// don't lie evenly on the nodes.
pub fn order(topology: &Topology, nodes: &[NodeId], groups: &Groups) -> Option<Vec<NodeId>> {
    let each = groups.each_on(nodes.len())?;
    let (walk, levels) = walk(topology)?;
    let mut free: Vec<Vec<NodeId>> = vec![Vec::new(); walk.len()];
    for node in nodes {
        let (group, _) = topology.place(*node)?;
        free[walk[group]].push(*node);
    }
    let mut order = Vec::with_capacity(nodes.len());
    lay(&mut free, &levels, &groups.clusters(each), &mut order);
    (order.len() == nodes.len()).then_some(order)
}

/// Returns the position of each block, or switch, in an order in which neighbours are near, and the numbers of them that
/// are near each other, ascending. None: the network has neither blocks nor switches.
fn walk(topology: &Topology) -> Option<(Vec<usize>, Vec<usize>)> {
    match &topology.kind {
        TopologyKind::Block { blocks, sizes } => {
            let base = sizes.first().copied().unwrap_or(1).max(1);
            let levels = sizes.iter().map(|size| (size / base) as usize).chain([blocks.len()]);
            Some(((0..blocks.len()).collect(), levels.collect()))
        }
        TopologyKind::Tree { switches, .. } => {
            let path = |at: usize| {
                let mut up: Vec<usize> = std::iter::successors(Some(at), |at| switches[*at].parent).collect();
                up.reverse();
                up
            };
            let mut order: Vec<usize> = (0..switches.len()).collect();
            order.sort_by_cached_key(|at| path(*at));
            let mut walk = vec![0; switches.len()];
            order.iter().enumerate().for_each(|(at, switch)| walk[*switch] = at);
            Some((walk, vec![1, switches.len()]))
        }
        TopologyKind::Flat | TopologyKind::Ring(_) | TopologyKind::Torus(_) => None,
    }
}

/// Takes the nodes of one cluster, the last of `clusters`, from the free ones of each block. Where it fits in no block, its
/// parts stand whole in few of them; parts that fit nowhere are divided again.
fn lay(free: &mut [Vec<NodeId>], levels: &[usize], clusters: &[usize], order: &mut Vec<NodeId>) {
    // because a part of one node was not left over: as many nodes are free as the job has
    let Some((whole, inner)) = clusters.split_last() else { return };
    let part = inner.last().copied().unwrap_or(1);
    let count = whole / part;
    let nodes: Vec<usize> = free.iter().map(Vec::len).collect();
    let rooms: Vec<usize> = nodes.iter().map(|nodes| nodes / part).collect();
    let stand = rooms.iter().sum::<usize>().min(count);
    for (at, parts) in domains(&rooms, &nodes, levels, stand).unwrap_or_default() {
        order.extend(free[at].drain(..parts * part));
    }
    (stand..count).for_each(|_| lay(free, levels, inner, order));
}

/// Returns how far the groups of each kind reach if ranks fill these nodes in this order. None: the ranks don't lie evenly
/// on the nodes, or a node has no place in the network.
pub fn spans(topology: &Topology, order: &[NodeId], groups: &Groups) -> Option<Vec<Reach>> {
    let each = groups.each_on(order.len())? as usize;
    let blocks: Vec<usize> = order.iter().map(|node| Some(topology.place(*node)?.0)).collect::<Option<_>>()?;
    let mut seen = vec![0_u32; blocks.iter().max().map_or(0, |most| most + 1)];
    let (mut stamp, mut stride, tasks) = (0, 1_usize, groups.tasks() as usize);
    let span = |kind: &u32| {
        let (ranks, cluster) = (*kind as usize, stride * *kind as usize);
        // Ranks of the same node are in groups with the same nodes.
        let step = if stride.is_multiple_of(each) { each } else { 1 };
        let (mut most, mut sum, mut count) = (0, 0_u64, 0_u64);
        for first in (0..tasks).step_by(cluster).flat_map(|from| (from..from + stride).step_by(step)) {
            stamp += 1;
            let mut reach = 0;
            for block in (0..ranks).map(|member| blocks[(first + member * stride) / each]) {
                reach += u32::from(seen[block] != stamp);
                seen[block] = stamp;
            }
            most = most.max(reach);
            (sum, count) = (sum + u64::from(reach), count + 1);
        }
        stride = cluster;
        Reach { most, mean: sum as f64 / count.max(1) as f64 }
    };
    Some(groups.kinds().iter().map(span).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use squall_model::id::NodeId;
    use squall_model::job::network;

    use super::{Groups, Reach, order, spans};
    use crate::topology::pick::{Memory, Scene, arrange};
    use crate::topology::{Source, Topology, Wish};

    fn groups(text: &str) -> Groups {
        Groups::of(&network::groups(text).expect(text).value).expect(text)
    }

    fn read(text: &str) -> Topology {
        let node = |name: &str| name.strip_prefix('n')?.parse().ok().map(|n: u32| NodeId(n - 1));
        Topology::read(&Source { name: "topology.conf", text, ..Source::default() }, &node, &[]).expect(text)
    }

    /// Blocks of so many nodes, of which two and two are one.
    fn blocks(count: u32, size: u32) -> Topology {
        let line = |at: u32| format!("BlockName=b{at} Nodes=n[{}-{}]\n", at * size + 1, (at + 1) * size);
        read(&format!("{}BlockSizes={size},{}\n", (0..count).map(line).collect::<String>(), 2 * size))
    }

    /// Returns how many nodes of each group of `size` nodes a job gets while others are busy. None: it must wait.
    fn placed(
        topology: &Topology,
        (all, size): (u32, u32),
        wish: Wish,
        nodes: u32,
        busy: &[u32],
    ) -> Option<Vec<usize>> {
        let mut fits: Vec<_> = (0..all).filter(|node| !busy.contains(node)).map(|node| (NodeId(node), 1)).collect();
        let (tasks, tasks_each) = (u64::from(nodes), 1);
        let (idle, up, may) = (&|_: NodeId| true, &|_: NodeId| true, &|_: NodeId| true);
        let scene = Scene { nodes, nodes_max: nodes, tasks, tasks_each, wish, closed: &[], idle, up, may };
        let fine = arrange(topology, &mut Memory::default(), &scene, &mut fits) && fits.len() >= nodes as usize;
        let in_group = |group| fits.iter().take(nodes as usize).filter(|(node, _)| node.0 / size == group).count();
        fine.then(|| (0..all / size).map(in_group).collect())
    }

    #[test]
    fn the_largest_cluster_that_fits_in_a_block_stands_together() {
        let named = groups("tp:8,pp:4,dp:16");
        assert_eq!((named.tasks(), named.each_on(64), named.each_on(60)), (512, Some(8), None));
        let unit = |text: &str, nodes, each, most| groups(text).unit((nodes, each), |unit| unit <= most);
        assert_eq!(unit("tp:8,pp:4,dp:16", 64, 8, 18), Some(4));
        assert_eq!(unit("tp:8,dp:16,pp:4", 64, 8, 18), Some(16));
        assert_eq!(unit("tp:8,pp:4,dp:16", 64, 8, 64), None, "all of them fit");
        assert_eq!(unit("tp:8,pp:4,dp:16", 64, 8, 3), None, "no four nodes do");
        assert_eq!(unit("tp:8,pp:4,dp:16", 128, 4, 3), Some(2), "a group of eight ranks is two nodes");
        assert_eq!(unit("tp:3,pp:4,dp:4", 24, 2, 8), Some(6), "three ranks are not whole nodes");
    }

    #[test]
    fn blocks_and_switches_are_filled_by_whole_clusters() {
        let wish = |text: &str| Wish { groups: Some(groups(text)), ..Wish::default() };
        let network = blocks(4, 6);
        let in_blocks = |text, nodes, busy: &[u32]| placed(&network, (24, 6), wish(text), nodes, busy);
        assert_eq!(in_blocks("pp:4,dp:3", 12, &[]), Some(vec![4, 4, 4, 0]));
        assert_eq!(in_blocks("pp:3,dp:4", 12, &[]), Some(vec![6, 6, 0, 0]));
        // Four and five nodes are free in three blocks, which is one part of three in each.
        assert_eq!(in_blocks("pp:3,dp:4", 12, &[0, 1, 6, 12, 13]), Some(vec![3, 0, 3, 6]));
        assert_eq!(in_blocks("pp:6,dp:2", 12, &[0, 6, 12]), None, "one block has six free");
        let tolerant = Wish { network: network::Class::Tolerant, ..wish("pp:6,dp:2") };
        assert!(placed(&network, (24, 6), tolerant, 12, &[0, 6, 12]).is_some());
        // Leaf switches need not have room for whole parts.
        let network = read("SwitchName=s0 Nodes=n[1-6]\nSwitchName=s1 Nodes=n[7-12]\nSwitchName=top Switches=s[0-1]\n");
        let at_leaves = |text, nodes, busy: &[u32]| placed(&network, (12, 6), wish(text), nodes, busy);
        assert_eq!(at_leaves("pp:4,dp:2", 8, &[]), Some(vec![4, 4]));
        assert_eq!(at_leaves("pp:2,dp:4", 8, &[]), Some(vec![6, 2]));
        assert_eq!(at_leaves("pp:4,dp:2", 8, &[0, 1, 2]), Some(vec![2, 6]));
    }

    #[test]
    fn ranks_follow_the_blocks() {
        // Six, four and two nodes of three blocks: in the order of numbers two of three groups are over a border.
        let network = blocks(3, 12);
        let nodes: Vec<NodeId> = (0..6).chain(12..16).chain(24..26).map(NodeId).collect();
        let named = groups("pp:4,dp:3");
        let means = |order: &[NodeId]| -> Vec<f64> {
            spans(&network, order, &named).expect("even").iter().map(|span| span.mean).collect()
        };
        assert_eq!(means(&nodes), [5.0 / 3.0, 2.5]);
        let laid = order(&network, &nodes, &named).expect("it lies there");
        assert_eq!(laid.iter().map(|node| node.0).collect::<Vec<_>>(), [12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 24, 25]);
        assert_eq!(means(&laid), [4.0 / 3.0, 2.5]);
        // A block that holds a whole group is not divided.
        let nodes: Vec<NodeId> = (0..2).chain(12..16).chain(24..30).map(NodeId).collect();
        let named = groups("pp:6,dp:2");
        let span = |order: &[NodeId]| spans(&network, order, &named).expect("even")[0];
        assert_eq!(span(&nodes), Reach { most: 2, mean: 1.5 });
        let laid = order(&network, &nodes, &named).expect("it lies there");
        assert_eq!(span(&laid), Reach { most: 2, mean: 1.5 });
        assert_eq!(laid[..6].iter().map(|node| node.0).collect::<Vec<_>>(), [24, 25, 26, 27, 28, 29]);
        // Three ranks on each node: a group of two nodes has ranks of a third.
        let means = spans(&network, &nodes, &groups("tp:3,cp:2,pp:6")).expect("even");
        assert_eq!(means[0], Reach { most: 1, mean: 1.0 });
        assert_eq!(order(&network, &nodes, &groups("pp:5,dp:2")), None, "ten ranks on twelve nodes");
        let flat = Topology::default();
        assert_eq!((order(&flat, &nodes, &named), spans(&flat, &nodes, &named)), (None, None));
    }

    proptest! {
        /// Every node is used once, and clusters that could all stand whole in blocks do.
        #[test]
        fn clusters_that_fit_stand_whole(
            kinds in proptest::collection::vec(1_u32..5, 1..5),
            each in 1_u32..4,
            picks in proptest::collection::vec(any::<u8>(), 256)
        ) {
            let names = ["a", "b", "c", "d"];
            let inner = std::iter::once(format!("x:{each}"));
            let text: Vec<String> = inner.chain(kinds.iter().zip(names).map(|(n, name)| format!("{name}:{n}"))).collect();
            let named = groups(&text.join(","));
            let count = named.tasks() / each;
            let network = blocks(5, count);
            let mut rooms = [0_u32; 5];
            let nodes: Vec<NodeId> = picks[..count as usize].iter().map(|pick| {
                let block = u32::from(*pick) % 5;
                rooms[block as usize] += 1;
                NodeId(block * count + rooms[block as usize] - 1)
            }).collect();
            let laid = order(&network, &nodes, &named).expect("the ranks lie evenly");
            let sorted = |nodes: &[NodeId]| { let mut all = nodes.to_vec(); all.sort_unstable(); all };
            prop_assert!(sorted(&laid) == sorted(&nodes));
            for cluster in named.clusters(each) {
                let whole = rooms.iter().map(|room| *room as usize / cluster * cluster).sum::<usize>();
                let cut = laid.chunks(cluster).any(|part| part.iter().any(|node| node.0 / count != part[0].0 / count));
                prop_assert!(whole < count as usize || !cut, "{text:?} {rooms:?} {laid:?}");
            }
            for (span, kind) in spans(&network, &laid, &named).expect("even").iter().zip(std::iter::once(&each).chain(&kinds)) {
                prop_assert!(1.0 <= span.mean && span.mean <= f64::from(span.most) && span.most <= *kind.min(&5));
            }
        }
    }
}
