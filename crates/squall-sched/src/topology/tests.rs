//! Tests: Slurm's files are parsed, errors are reported with their line, and nodes are chosen by the network.

use squall_model::id::NodeId;
use squall_model::set::NodeSet;

use super::pick::{Memory, Scene, arrange, block_sizes};
use super::segments::{self, Segments};
use super::{Source, Topology, TopologyKind, Wish};
use squall_model::job::network::{self, Class, Network};

fn node(name: &str) -> Option<NodeId> {
    name.strip_prefix('n')?.parse().ok().filter(|n| (1..=64).contains(n)).map(|n: u32| NodeId(n - 1))
}

fn read(name: &str, text: &str) -> Result<Topology, String> {
    Topology::read(&Source { name, text, ..Source::default() }, &node, &[]).map_err(|fault| fault.to_string())
}

const TREE: &str = "# two racks\nSwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-10] LinkSpeed=2\n\
                    SwitchName=top Switches=s[0-1]\n";

const YAML: &str = "---\n- topology: t\n  cluster_default: true\n  tree:\n    switches:\n    - switch: s0\n      nodes: n[1-4]\n    \
    - switch: s1\n      nodes: n[5-8]\n    - {switch: top, children: 's[0-1]'}\n- topology: flat\n  flat: true\n";

proptest::proptest! {
    /// Whatever somebody writes in a topology file is taken or refused with the line; nothing panics or hangs.
    #[test]
    fn any_yaml_is_read_or_refused_with_its_line(
        edits in proptest::collection::vec((proptest::prelude::any::<u16>(), "[-:{}#,' \\[\\]\n\ta0é\"]{0,4}", 0_u8..3), 0..12)
    ) {
        let mut text: Vec<char> = YAML.chars().collect();
        for (at, new, cut) in edits {
            let at = usize::from(at) % (text.len() + 1);
            let end = (at + usize::from(cut)).min(text.len());
            text.splice(at..end, new.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(fault) = read("topology.yaml", &text) {
            proptest::prop_assert!(fault.starts_with("line "), "{fault}");
        }
    }
}

#[test]
fn deep_yaml_is_refused() {
    let nested = (0..5_000).map(|depth| " ".repeat(depth) + "a:\n").collect::<String>();
    assert_eq!(read("topology.yaml", &nested).unwrap_err(), "line 65: more than 64 levels of indentation");
    let flow = format!("- topology: {}", "[".repeat(1_000_000));
    assert_eq!(read("topology.yaml", &flow).unwrap_err(), "line 1: more than 64 brackets in each other");
}

#[test]
fn a_tree_is_read() {
    let topology = read("topology.conf", TREE).unwrap();
    assert_eq!(topology.address(NodeId(4), "n5"), ("top.s1.n5".into(), "switch.switch.node".into()));
    assert_eq!(topology.distance(NodeId(0), NodeId(1)), Some(2));
    assert_eq!(topology.distance(NodeId(0), NodeId(9)), Some(4));
    let levels: Vec<_> =
        topology.domains().into_iter().map(|(level, name, nodes)| (level, name.to_owned(), nodes.len())).collect();
    assert_eq!(levels, [(0, "s0".into(), 4), (0, "s1".into(), 6), (1, "top".into(), 10)]);
    let yaml = "---\n- topology: t\n  cluster_default: true\n  tree:\n    switches:\n    - switch: s0\n      nodes: n[1-4]\n\
                \x20   - switch: s1\n      nodes: n[5-10] # more\n    - switch: top\n      children: s[0-1]\n\
                - topology: other\n  flat: true\n";
    let again = read("topology.yaml", yaml).unwrap();
    assert_eq!(again.place, topology.place);
}

#[test]
fn blocks_rings_and_tori_are_read() {
    let text = "- topology: b\n  block:\n    block_sizes: [4, 8]\n    blocks:\n      - block: b1\n        nodes: n[1-4]\n\
                \x20     - block: b2\n        nodes: n[5-8]\n";
    let TopologyKind::Block { sizes, blocks } = read("topology.yaml", text).unwrap().kind else { panic!() };
    assert_eq!((sizes, blocks.len()), (vec![4, 8], 2));
    let text = "- topology: r\n  ring:\n    rings:\n      - ring: r1\n        nodes: n[1-16]\n";
    let ring = read("topology.yaml", text).unwrap();
    assert_eq!(ring.distance(NodeId(0), NodeId(15)), Some(1));
    let text = "- topology: t\n  torus3d:\n    toruses:\n      - name: pod\n        dims: {x: 4, y: 2, z: 3}\n        \
                nodes: n[1-48]\n        nodes_per_router: 2\n        wrap: [true, true, false]\n        weight: {x: 2, y: 1, z: 2}\n        \
                placements:\n          - dims: {x: 2, y: 2, z: 2}\n";
    let torus = read("topology.yaml", text).unwrap();
    assert_eq!(torus.address(NodeId(2), "n3").0, "pod.1x0x0.n3", "x counts fastest, two nodes at each router");
    assert_eq!(torus.distance(NodeId(0), NodeId(6)), Some(1), "over the edge");
    assert_eq!(torus.distance(NodeId(0), NodeId(47)), Some(1 + 1 + 2), "z has an end");
    let conf =
        read("topology.conf", "TorusName=pod Dims=4x2x3 Nodes=n[1-48] NodesPerRouter=2 Wrap=yes,yes,no Weight=2,1,2\n");
    assert_eq!(conf.unwrap().place, torus.place);
}

#[test]
fn faults_are_named() {
    let conf = |text: &str| read("topology.conf", text).unwrap_err();
    assert_eq!(
        conf("SwitchName=a Switches=b,c\nSwitchName=b Nodes=n1\n"),
        "line 1: switch `a` names an unknown switch `c`"
    );
    assert_eq!(conf("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"), "line 1: switch `a` is below itself");
    assert!(conf("TorusName=t Dims=4x4x4 Nodes=n[1-63]\n").contains("line 1: 63 nodes for 4x4x4 = 64 places"));
    assert!(conf("TorusName=t Dims=4x0x4 Nodes=n[1-63]\n").contains("extent"));
    assert!(conf("TorusName=t Dims=1x1x65 Nodes=n[1-63]\n").contains("at most 64"));
    assert!(conf("Switch=a\n").contains("line 1"));
    let yaml = |text: &str| read("topology.yaml", text).unwrap_err();
    assert_eq!(
        yaml("- topology: a\n  tree:\n    switches:\n    - switch: s\n      node: n1\n"),
        "line 5: unknown key `node`; known here: switch, nodes, children"
    );
    assert!(yaml("- topology: a\n").starts_with("line 1: exactly one of"));
    assert!(yaml("- topology: a\n  flat: yes\n  tree: x\n").starts_with("line 1"));
}

// Finding E of faults.md: a topology.conf that omits, repeats or misnames a node is accepted, and the error is
// reported.
#[test]
fn e_wrong_names_in_a_topology_file_are_told_and_the_rest_holds() {
    let expected: Vec<String> = ["n1", "n2", "n11", "n12"].map(str::to_owned).to_vec();
    let text = "SwitchName=a Nodes=n1,x1\n\nSwitchName=b Nodes=n[1-2]\n";
    let source = Source { name: "topology.conf", text, ..Source::default() };
    let topology = Topology::read(&source, &node, &expected).unwrap();
    let told: Vec<String> = topology.oddities().iter().map(ToString::to_string).collect();
    let nowhere = "line 3: nodes `n[11-12]` of the configuration stand nowhere";
    assert_eq!(told, ["line 1: there is no node `x1`", "line 3: node `n1` stands in line 1 already", nowhere]);
    let id = |name: &str| node(name).unwrap();
    assert_eq!([id("n1"), id("n2"), id("n11")].map(|n| topology.place(n)), [Some((0, 0)), Some((1, 0)), None]);
}

// Finding E of faults.md: a node omitted from the file still runs jobs of one node, when no other is free.
#[test]
fn e_a_node_without_a_place_takes_jobs_of_one_node() {
    let mut topology = read("topology.conf", "SwitchName=a Nodes=n1\n").unwrap();
    topology.place.resize(2, None);
    let free = Wish::default();
    assert_eq!(chosen(&topology, 1, free, &[], &[]), Some(vec![0]));
    assert_eq!(chosen(&topology, 1, free, &[0], &[]), Some(vec![1]));
    assert_eq!(chosen(&topology, 2, free, &[], &[]), Some(vec![0]), "one is not enough, and the caller sees it");
}

/// Returns the nodes chosen for a job of `nodes` nodes while those of `busy` are in use and those of `closed` have
/// links of their own. None: the job must wait.
fn chosen(topology: &Topology, nodes: u32, wish: Wish, busy: &[u32], closed: &[NodeSet]) -> Option<Vec<u32>> {
    let mut fits: Vec<(NodeId, u32)> =
        (0..topology.place.len() as u32).filter(|n| !busy.contains(n)).map(|n| (NodeId(n), 1)).collect();
    let closed: Vec<&NodeSet> = closed.iter().collect();
    let scene = Scene {
        nodes,
        nodes_max: u32::MAX,
        tasks: 0,
        tasks_each: 1,
        wish,
        closed: &closed,
        idle: &|node| !busy.contains(&node.0),
        up: &|_| true,
        may: &|_| true,
    };
    let fine = arrange(topology, &mut Memory::default(), &scene, &mut fits);
    fine.then(|| fits.into_iter().take(nodes as usize).map(|(node, _)| node.0).collect())
}

#[test]
fn the_smallest_switch_that_fits() {
    let topology = read("topology.conf", TREE).unwrap();
    let free = Wish::default();
    assert_eq!(chosen(&topology, 3, free, &[], &[]), Some(vec![0, 1, 2]));
    assert_eq!(chosen(&topology, 3, free, &[0, 1], &[]), Some(vec![4, 5, 6]));
    assert_eq!(chosen(&topology, 8, free, &[], &[]), Some(vec![4, 5, 6, 7, 8, 9, 0, 1]));
    let one = Wish { switches: Some(1), ..free };
    assert_eq!(chosen(&topology, 8, one, &[], &[]), None);
    assert!(chosen(&topology, 6, one, &[], &[]).is_some());
}

#[test]
fn sensitive_jobs_get_prisms_of_their_own() {
    let topology = read("topology.conf", "TorusName=t Dims=4x4x4 Nodes=n[1-64]\n").unwrap();
    let first = chosen(&topology, 16, Wish::default(), &[], &[]).unwrap();
    let closed: Vec<NodeSet> = vec![first.iter().map(|n| NodeId(*n)).collect()];
    assert!(topology.closed(&closed[0]), "{first:?}");
    let second = chosen(&topology, 16, Wish::default(), &first, &closed).unwrap();
    assert!(second.iter().all(|n| !first.contains(n)));
    // Every second plane is used: no legal prism is left for 16 nodes, but enough nodes are free.
    let broken: Vec<u32> = (0..64).filter(|n| n % 4 == 1 || n % 4 == 3).collect();
    let busy: Vec<u32> = broken.iter().copied().chain([0, 2]).collect();
    assert_eq!(chosen(&topology, 16, Wish::default(), &busy, &[]), None);
    let tolerant = Wish { network: Class::Tolerant, ..Wish::default() };
    assert_eq!(chosen(&topology, 16, tolerant, &busy, &[]).map(|nodes| nodes.len()), Some(16));
    let class = Some(network::class("commintolerant"));
    let asked = Network { class, geometry: network::geometry("2x4x2"), ..Network::default() };
    let asked = Wish::of(&asked).unwrap();
    let shaped = chosen(&topology, 16, asked, &[], &[]).unwrap();
    assert!(topology.closed(&shaped.iter().map(|n| NodeId(*n)).collect()));
}

#[test]
fn who_needs_no_prism_takes_one_all_the_same() {
    let topology = read("topology.conf", "TorusName=t Dims=4x4x4 Nodes=n[1-64]\n").unwrap();
    // One node is used in each of four columns. Routers in partly used columns would be far from each other.
    let busy = [0, 21, 42, 63];
    for network in [Class::Unsaid, Class::Tolerant, Class::Local] {
        let nodes = chosen(&topology, 4, Wish { network, ..Wish::default() }, &busy, &[]).unwrap();
        assert!(topology.closed(&nodes.iter().map(|n| NodeId(*n)).collect()), "{network:?}: {nodes:?}");
    }
    // A job of a single node uses no links, and goes to a partly used column.
    let column = |node: u32| node % 16;
    let one = chosen(&topology, 1, Wish::default(), &busy, &[]).unwrap();
    assert!(busy.iter().any(|other| column(*other) == column(one[0])), "{one:?}");
}

#[test]
fn neighbours_on_a_ring() {
    let ring = read("topology.conf", "RingName=r Nodes=n[1-8]\n").unwrap();
    assert_eq!(chosen(&ring, 3, Wish::default(), &[1, 4], &[]), Some(vec![5, 6, 7]));
    assert_eq!(chosen(&ring, 5, Wish::default(), &[1, 4], &[]), None);
}

#[test]
fn where_there_is_no_prism_the_files_order_counts() {
    let order = |order: &str| {
        let topology = read("topology.conf", &format!("TorusName=t Dims=4x4 Nodes=n[1-16] Order={order}\n")).unwrap();
        // Every other position is free, so there is no prism of six.
        let free = [0, 2, 5, 7, 8, 10, 13, 15];
        let busy: Vec<u32> = (0..16).filter(|node| !free.contains(node)).collect();
        let wish = Wish { network: Class::Local, ..Wish::default() };
        chosen(&topology, 6, wish, &busy, &[]).unwrap()
    };
    assert_ne!(order("hilbert"), order("default"));
    assert_ne!(order("1Y"), order("hilbert"));
    let wrong = read(
        "topology.yaml",
        "- topology: t\n  torus3d:\n    toruses:\n      - name: p\n        dims: [2, 2]\n        nodes: n[1-4]\n        order: snake\n",
    );
    assert_eq!(wrong.unwrap_err(), "line 7: there is no order `snake`; use hilbert, 2Y, 4Y or default");
}

#[test]
fn a_shape_of_the_list_comes_first_though_it_is_larger() {
    let topology = read("topology.conf", "TorusName=t Dims=8x8 Nodes=n[1-64] Placements=2x8,8x2\n").unwrap();
    let wish = Wish { network: Class::Sensitive, ..Wish::default() };
    let nodes = chosen(&topology, 14, wish, &[], &[]).unwrap();
    assert!(nodes.iter().all(|node| node % 8 < 2) || nodes.iter().all(|node| node / 8 < 2), "{nodes:?}");
    // At most a quarter more than requested is used. A free prism outside the list is better than none.
    let nodes = chosen(&topology, 12, wish, &[], &[]).unwrap();
    assert!(nodes.iter().any(|node| node % 8 >= 2) && nodes.iter().any(|node| node / 8 >= 2), "{nodes:?}");
}

/// Nodes of a job of so many nodes on four blocks of four, of which two and two are one. None: it must wait.
fn divided(nodes: u32, segments: Segments, busy: &[u32]) -> Option<Vec<u32>> {
    let blocks = (0..4).map(|at| format!("      - block: b{at}\n        nodes: n[{}-{}]\n", at * 4 + 1, at * 4 + 4));
    let text = format!("- topology: b\n  block:\n    block_sizes: [4, 8]\n    blocks:\n{}", blocks.collect::<String>());
    let topology = read("topology.yaml", &text).unwrap();
    let wish = Wish { segments: Some(segments), ..Wish::default() };
    let scene = Scene {
        nodes,
        nodes_max: nodes,
        tasks: 0,
        tasks_each: 1,
        wish,
        closed: &[],
        idle: &|_| true,
        up: &|_| true,
        may: &|_| true,
    };
    let mut fits: Vec<_> = (0..16).filter(|node| !busy.contains(node)).map(|node| (NodeId(node), 1)).collect();
    let fine = arrange(&topology, &mut Memory::default(), &scene, &mut fits);
    (fine && fits.len() >= nodes as usize)
        .then(|| fits.into_iter().take(nodes as usize).map(|(node, _)| node.0).collect())
}

#[test]
fn segments_stand_whole_in_blocks() {
    let plain = |nodes| Segments { nodes, apart: false, together: false };
    let apart = |nodes| Segments { apart: true, ..plain(nodes) };
    let together = |nodes| Segments { together: true, ..plain(nodes) };
    assert_eq!(divided(4, plain(2), &[]), Some(vec![0, 1, 2, 3]), "in few blocks");
    assert_eq!(divided(4, apart(2), &[]), Some(vec![0, 1, 4, 5]));
    assert_eq!(divided(4, plain(2), &[0, 1, 2]), Some(vec![4, 5, 6, 7]));
    assert_eq!(divided(4, plain(2), &[0, 1, 4]), Some(vec![8, 9, 10, 11]), "one block rather than two holes");
    let busy: Vec<u32> = [4, 0, 1].into_iter().chain(8..16).collect();
    assert_eq!(divided(4, plain(2), &busy), Some(vec![2, 3, 5, 6]), "the smaller hole first");
    // Three blocks have three nodes free each, which are four pairs in no way.
    let busy = [3, 7, 11, 12, 13, 14, 15];
    assert_eq!(divided(6, plain(2), &busy), Some(vec![0, 1, 4, 5, 8, 9]));
    assert_eq!(divided(8, plain(2), &busy), None);
    assert_eq!(divided(6, together(2), &busy), None, "eight nodes are the largest block");
    assert_eq!(divided(4, together(2), &busy), Some(vec![0, 1, 4, 5]));
    // A segment larger than a block stands in two that are one.
    assert_eq!(divided(16, plain(8), &[]), Some((0..16).collect()));
    assert_eq!(divided(16, plain(8), &[0]), None);
    // A job in one segment is not divided, and waits for a block as each job does.
    assert_eq!(divided(4, plain(4), &[0, 4, 8]), Some(vec![12, 13, 14, 15]));
    assert_eq!(divided(4, plain(4), &[0, 4, 8, 12]), None);
}

/// Returns how many nodes of each block a job of so many nodes gets on two blocks of four, which are one aggregated block.
/// None: it must wait.
fn on_two_blocks(nodes: u32, segments: Option<Segments>, busy: &[u32]) -> Option<[usize; 2]> {
    let topology =
        read("topology.conf", "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n").unwrap();
    let wish = Wish { segments, ..Wish::default() };
    let got = chosen(&topology, nodes, wish, busy, &[]).filter(|got| got.len() == nodes as usize)?;
    Some([0, 1].map(|block| got.iter().filter(|node| (*node / 4) as usize == block).count()))
}

// The cases of testsuite/python/tests/test_150_1.py and test_150_2.py of Slurm, where they say what runs and what waits.
#[test]
fn blocks_take_jobs_as_in_slurms_tests() {
    let in_parts = |nodes| Some(Segments { nodes, apart: false, together: false });
    // test_const1: two and three nodes run in a block each; three nodes more wait, though three are free.
    assert_eq!(on_two_blocks(2, None, &[]), Some([2, 0]));
    assert_eq!(on_two_blocks(3, None, &[0, 1]), Some([0, 3]));
    assert_eq!(on_two_blocks(3, None, &[0, 1, 4, 5, 6]), None);
    // test_const2: five nodes are more than a block has.
    assert_eq!(on_two_blocks(3, None, &[]), Some([3, 0]));
    assert_eq!(on_two_blocks(5, None, &[0, 1, 2]), Some([1, 4]));
    // test_segment1
    assert_eq!(on_two_blocks(4, in_parts(2), &[]), Some([4, 0]));
    assert_eq!(on_two_blocks(4, in_parts(2), &[0, 1]), Some([0, 4]));
    assert_eq!(on_two_blocks(6, in_parts(3), &[]), Some([3, 3]));
    assert_eq!(on_two_blocks(6, in_parts(3), &[0, 1]), None);
}

#[test]
fn a_job_crosses_no_border_that_it_could_avoid() {
    let text = "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockName=c Nodes=n[9-12]\nBlockName=d \
                Nodes=n[13-16]\nBlockSizes=4,8\n";
    let topology = read("topology.conf", text).unwrap();
    let blocks = |nodes, busy: &[u32]| {
        let got = chosen(&topology, nodes, Wish::default(), busy, &[]).filter(|got| got.len() == nodes as usize)?;
        Some([0, 1, 2, 3].map(|block| got.iter().filter(|node| *node / 4 == block).count()))
    };
    // The fullest block that has room, and the aggregated block that has least more than is needed.
    assert_eq!(blocks(2, &[0, 1, 4]), Some([2, 0, 0, 0]));
    assert_eq!(blocks(6, &[0, 8, 9]), Some([0, 0, 2, 4]));
    assert_eq!(blocks(8, &[0]), Some([0, 0, 4, 4]));
    assert_eq!(blocks(8, &[0, 8]), None, "seven and seven are free: no two blocks hold eight");
    // Larger than every aggregated block: as few of these as can hold it.
    assert_eq!(blocks(12, &[0]), Some([0, 4, 4, 4]));
    // What is down is no block that the job could wait for.
    let with_down = |nodes: u32, down: &[u32]| {
        let mut fits: Vec<_> = (0..16).filter(|node| !down.contains(node)).map(|node| (NodeId(node), 1)).collect();
        let up = |node: NodeId| !down.contains(&node.0);
        let wish = Wish::default();
        let (idle, may) = (&|_: NodeId| true, &|_: NodeId| true);
        let scene = Scene { nodes, nodes_max: nodes, tasks: 0, tasks_each: 1, wish, closed: &[], idle, up: &up, may };
        arrange(&topology, &mut Memory::default(), &scene, &mut fits)
    };
    assert!(with_down(4, &[0, 4, 8]) && with_down(4, &[0, 4, 8, 12]), "no block has four nodes any more");
}

#[test]
fn a_division_that_no_job_can_have_is_refused() {
    let text = "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockName=c Nodes=n[9-12]\nBlockSizes=4,8\n";
    let TopologyKind::Block { blocks, sizes } = read("topology.conf", text).unwrap().kind else { panic!() };
    let check = |nodes, segment, apart, together| {
        segments::check(&block_sizes(&blocks), &sizes, Segments { nodes: segment, apart, together }, Some(nodes))
    };
    assert_eq!(check(8, 4, false, true), Ok(()));
    assert_eq!(check(3, 4, false, false), Ok(()), "one segment");
    assert_eq!(
        check(6, 4, false, false),
        Err("6 nodes can't be divided into parts of 4: ask for a multiple of it".into())
    );
    assert_eq!(check(18, 9, false, false), Err("the largest block has 8 nodes".into()));
    assert_eq!(check(12, 3, true, false), Err("there are 3 blocks for 4 segments apart".into()));
    assert_eq!(check(12, 4, false, true), Err("--consolidate-segments: the largest block has 8 nodes".into()));
}
