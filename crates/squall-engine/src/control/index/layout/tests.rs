//! Layouts that Slurm's users know, and what must hold of any.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use squall_model::config::Unit;
use squall_model::gres::NodeGres;
use squall_model::id::NodeId;
use squall_model::inside::Inside;
use squall_model::resource::{Hardware, Memory};
use squall_model::set::CoreSet;
use squall_model::step::{Distribution, StepSpec};
use squall_model::wire::client::Refusal;
use squall_sched::Grain;

use crate::control::index::layout::{Placed, Room, Unplaced, Wanted};

fn place(rooms: &[Room], spec: &StepSpec) -> Result<Placed, Unplaced> {
    crate::control::index::layout::place(
        rooms,
        Wanted { spec, inside: Inside::default(), gres: None, most_tasks: 4096 },
    )
}

fn rooms(cores: &[usize]) -> Vec<Room> {
    let room = |(at, &n): (usize, &usize)| Room {
        node: NodeId(at as u32),
        name: format!("n{}", at + 1),
        replaces: Vec::new(),
        cores: CoreSet::first(n),
        free: CoreSet::first(n),
        memory_mb: 1000,
        free_mb: 1000,
        packs: false,
        grain: Grain::CPU,
        threads: 1,
        gres: NodeGres::default(),
        gres_free: NodeGres::default(),
    };
    cores.iter().enumerate().map(room).collect()
}

fn spec(ntasks: u32) -> StepSpec {
    StepSpec { ntasks: Some(ntasks), ..StepSpec::default() }
}

fn take(rooms: &mut [Room], placed: &Placed) {
    for room in rooms {
        if let Some(held) = placed.alloc.on(room.node) {
            room.free.subtract(&held.cores);
            room.free_mb -= held.memory_mb.min(room.free_mb);
        }
    }
}

fn counts(placed: &Placed) -> Vec<usize> {
    ranks(placed).iter().map(Vec::len).collect()
}

fn ranks(placed: &Placed) -> Vec<Vec<u32>> {
    (0..placed.layout.nodes.len()).map(|node| placed.layout.ranks_on(node)).collect()
}

#[test]
fn one_task_on_each_of_four_nodes() {
    let asks = [spec(4), StepSpec { nodes_min: Some(4), ..spec(4) }, StepSpec::default()];
    for ask in asks {
        let placed = place(&rooms(&[4; 4]), &ask).unwrap();
        assert_eq!(ranks(&placed), [[0], [1], [2], [3]]);
        assert_eq!(placed.layout.nodes.names(), ["n1", "n2", "n3", "n4"]);
        assert_eq!(placed.alloc.cpus(), 16, "the whole allocation");
    }
}

/// As with Slurm, `srun -c2` without `-n` runs as many tasks as two CPUs each allow.
#[test]
fn tasks_of_so_many_cpus_fill_the_nodes() {
    let tasks_of = |cpus: u32| StepSpec { cpus_per_task: Some(cpus), ..StepSpec::default() };
    assert_eq!(counts(&place(&rooms(&[8, 4]), &tasks_of(2)).unwrap()), [4, 2]);
    assert_eq!(counts(&place(&rooms(&[8, 4]), &tasks_of(3)).unwrap()), [2, 1]);
    let narrow = StepSpec { nodes_min: Some(1), ..tasks_of(1) };
    assert_eq!(counts(&place(&rooms(&[8, 4]), &narrow).unwrap()), [8]);
    let each = StepSpec { ntasks_per_node: Some(1), ..tasks_of(2) };
    assert_eq!(counts(&place(&rooms(&[8, 4]), &each).unwrap()), [1, 1]);
}

#[test]
fn fewer_tasks_than_nodes_use_the_first_nodes() {
    let placed = place(&rooms(&[2; 4]), &spec(1)).unwrap();
    assert_eq!(placed.layout.nodes.names(), ["n1"]);
    let placed = place(&rooms(&[2; 4]), &StepSpec { nodes_min: Some(4), ..spec(2) }).unwrap();
    assert_eq!(placed.layout.nodes.names(), ["n1", "n2"]);
}

#[test]
fn distributions() {
    let ask = |distribution| StepSpec { nodes_min: Some(2), distribution, ..spec(5) };
    let of = |distribution| ranks(&place(&rooms(&[4; 2]), &ask(distribution)).unwrap());
    assert_eq!(of(Distribution::Block), [vec![0, 1, 2], vec![3, 4]]);
    assert_eq!(of(Distribution::Cyclic), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(of(Distribution::Plane(4)), [vec![0, 1, 2, 3], vec![4]]);
    assert_eq!(of(Distribution::Plane(2)), [vec![0, 1, 4], vec![2, 3]]);
}

#[test]
fn cve_2026_65165_ranks_go_where_a_list_says() {
    let arbitrary = |list: &str, places: &[u32]| {
        let distribution = Distribution::Arbitrary(std::sync::Arc::new(places.iter().copied().collect()));
        place(&rooms(&[4; 3]), &StepSpec { nodelist: Some(list.into()), distribution, ..spec(4) })
    };
    let placed = arbitrary("n3,n1", &[0, 1, 1, 0]).unwrap();
    assert_eq!(placed.layout.nodes.names(), ["n1", "n3"]);
    assert_eq!(ranks(&placed), [vec![1, 2], vec![0, 3]]);
    assert!(matches!(arbitrary("n3,n9", &[0, 1, 1, 0]), Err(Unplaced::Never(Refusal::InvalidNode(_)))));
    for (list, places) in [("n3,n1", &[0, 1, 2, 0][..]), ("n3,n1", &[0, 1]), ("", &[0, 0, 0, 0])] {
        let refused = arbitrary(list, places);
        assert!(matches!(refused, Err(Unplaced::Never(Refusal::InvalidValue { .. }))), "{list} {refused:?}");
    }
    let five = StepSpec { ntasks: Some(5), nodelist: Some("n1".into()), ..spec(5) };
    let distribution = Distribution::Arbitrary(std::sync::Arc::new([0; 5].into_iter().collect()));
    let refused = place(&rooms(&[4; 3]), &StepSpec { distribution, ..five });
    assert_eq!(refused, Err(Unplaced::Never(Refusal::TooManyRequested("processors".into()))));
}

#[test]
fn uneven_nodes_take_what_they_can() {
    let placed = place(&rooms(&[1, 4, 2]), &spec(7)).unwrap();
    assert_eq!(counts(&placed), [1, 4, 2]);
    assert_eq!(
        place(&rooms(&[1, 4, 2]), &spec(8)),
        Err(Unplaced::Never(Refusal::TooManyRequested("processors".into())))
    );
    let placed = place(&rooms(&[1, 4, 2]), &StepSpec { overcommit: true, ..spec(8) }).unwrap();
    assert_eq!(placed.layout.ntasks(), 8);
    let one = StepSpec { nodes_min: Some(1), ..spec(4) };
    assert_eq!(place(&rooms(&[1, 4, 2]), &one).unwrap().layout.nodes.names(), ["n2"]);
}

#[test]
fn nodes_by_name_and_place() {
    let rooms = rooms(&[4; 4]);
    let ask = |change: fn(&mut StepSpec)| {
        let mut spec = spec(2);
        change(&mut spec);
        place(&rooms, &spec).map(|placed| placed.layout.nodes.names())
    };
    let some = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    assert_eq!(ask(|s| s.relative = Some(2)), some(&["n3", "n4"]));
    assert_eq!(ask(|s| s.nodelist = Some("n[2,4]".into())), some(&["n2", "n4"]));
    assert_eq!(ask(|s| s.exclude = Some("n[1-3]".into())), some(&["n4"]));
    assert_eq!(ask(|s| s.ntasks_per_node = Some(1)), some(&["n1", "n2"]));
    let never = |refusal| Err(Unplaced::Never(refusal));
    assert_eq!(ask(|s| s.nodelist = Some("n9".into())), never(Refusal::InvalidNode("n9".into())));
    assert_eq!(ask(|s| s.relative = Some(4)), never(Refusal::TooManyRequested("nodes".into())));
    assert_eq!(ask(|s| s.nodes_min = Some(5)), never(Refusal::TooManyRequested("nodes".into())));
    assert!(matches!(ask(|s| s.nodelist = Some("n[".into())), Err(Unplaced::Never(Refusal::InvalidValue { .. }))));
    assert!(matches!(ask(|s| s.ntasks = Some(0)), Err(Unplaced::Never(Refusal::InvalidValue { .. }))));
}

#[test]
fn nodelist_alone_asks_for_just_those_nodes() {
    let ask = StepSpec { nodelist: Some("n[2-3]".into()), ..StepSpec::default() };
    assert_eq!(place(&rooms(&[4; 4]), &ask).unwrap().layout.nodes.names(), ["n2", "n3"]);
}

#[test]
fn plain_steps_take_whole_nodes_in_turn() {
    let mut rooms = rooms(&[4; 2]);
    let one = StepSpec { nodes_min: Some(1), ..spec(1) };
    for name in ["n1", "n2"] {
        let placed = place(&rooms, &one).unwrap();
        assert_eq!(placed.layout.nodes.names(), [name]);
        take(&mut rooms, &placed);
    }
    assert_eq!(place(&rooms, &one), Err(Unplaced::Busy));
    let overlap = StepSpec { overlap: true, ..one };
    let placed = place(&rooms, &overlap).unwrap();
    assert_eq!((placed.alloc.cpus(), placed.layout.nodes.as_str()), (0, "n1"));
}

#[test]
fn exact_steps_fill_a_node() {
    let mut rooms = rooms(&[4]);
    let exact = StepSpec { exact: true, ..spec(1) };
    for core in 0..4 {
        let placed = place(&rooms, &exact).unwrap();
        assert_eq!(placed.alloc.groups[0].cores.iter().collect::<Vec<_>>(), [core]);
        take(&mut rooms, &placed);
    }
    assert_eq!(place(&rooms, &exact), Err(Unplaced::Busy));
}

#[test]
fn memory_is_shared_out() {
    let mut rooms = rooms(&[4]);
    let ask = |mb| StepSpec { exact: true, memory: Memory::PerNodeMb(mb), ..spec(1) };
    assert_eq!(place(&rooms, &ask(1001)), Err(Unplaced::Never(Refusal::TooManyRequested("memory".into()))));
    let placed = place(&rooms, &ask(600)).unwrap();
    take(&mut rooms, &placed);
    assert_eq!(place(&rooms, &ask(600)), Err(Unplaced::Busy));
    assert!(place(&rooms, &StepSpec { memory: Memory::PerCpuMb(200), ..ask(0) }).is_ok());
    assert!(place(&rooms, &StepSpec { memory: Memory::Unset, ..ask(0) }).is_ok());
}

/// The ranks dealt out like cards: block by block, or in turns.
fn dealt(placed: &Placed) -> Vec<Vec<u32>> {
    let at_once = match &placed.layout.distribution {
        Distribution::Block | Distribution::Arbitrary(_) => u32::MAX,
        Distribution::Cyclic => 1,
        Distribution::Plane(size) => (*size).max(1),
    };
    let tasks: Vec<u32> = placed.layout.tasks.iter().copied().collect();
    let mut hands: Vec<Vec<u32>> = tasks.iter().map(|_| Vec::new()).collect();
    let mut next = 0;
    while next < placed.layout.ntasks() {
        for (hand, tasks) in hands.iter_mut().zip(&tasks) {
            let more = at_once.min(tasks - hand.len() as u32);
            hand.extend(next..next + more);
            next += more;
        }
    }
    hands
}

fn any_spec() -> impl Strategy<Value = StepSpec> {
    let shape =
        (1_u32..40, proptest::option::of(1_u32..6), proptest::option::of(1_u32..5), proptest::option::of(1_u32..4));
    let ways = (any::<bool>(), any::<bool>(), any::<bool>(), 0_u32..5);
    (shape, ways).prop_map(|((ntasks, nodes, per_node, cpus), (exact, overlap, overcommit, way))| StepSpec {
        ntasks: (ntasks < 36).then_some(ntasks),
        nodes_min: nodes,
        ntasks_per_node: per_node,
        cpus_per_task: cpus,
        exact,
        overlap,
        overcommit,
        distribution: match way {
            0 | 1 => Distribution::Block,
            2 => Distribution::Cyclic,
            n => Distribution::Plane(n - 2),
        },
        ..StepSpec::default()
    })
}

proptest! {
    #[test]
    fn ranks_once_and_cores_within_what_is_free(
        cores in proptest::collection::vec(1_usize..9, 1..6),
        asks in proptest::collection::vec(any_spec(), 1..8),
    ) {
        let mut rooms = rooms(&cores);
        for spec in asks {
            let placed = match place(&rooms, &spec) {
                Ok(placed) => placed,
                Err(Unplaced::Never(_)) => continue,
                Err(Unplaced::Busy) => {
                    prop_assert!(!spec.overlap, "sharing steps never wait");
                    prop_assert!(rooms.iter().any(|room| room.free != room.cores), "nothing is held");
                    continue;
                }
            };
            let by_node = ranks(&placed);
            let mut ranks: Vec<u32> = by_node.iter().flatten().copied().collect();
            prop_assert!(by_node.iter().all(|ranks| ranks.is_sorted() && !ranks.is_empty()));
            prop_assert_eq!(&by_node, &dealt(&placed));
            for (node, ranks) in by_node.iter().enumerate() {
                prop_assert!(ranks.iter().all(|rank| placed.layout.node_of(*rank) == Some(node)));
            }
            prop_assert_eq!(placed.layout.node_of(ranks.len() as u32), None);
            ranks.sort_unstable();
            prop_assert_eq!(&ranks, &(0..ranks.len() as u32).collect::<Vec<_>>());
            if let Some(ntasks) = spec.ntasks {
                prop_assert_eq!(ranks.len() as u32, ntasks);
            }
            prop_assert_eq!(placed.layout.nodes.len(), placed.alloc.nodes().len());
            for (name, ranks) in placed.layout.nodes.names().iter().zip(&by_node) {
                let room = rooms.iter().find(|room| room.name == *name).unwrap();
                let held = placed.alloc.on(room.node).unwrap();
                prop_assert!(held.cores.is_subset(&room.free));
                if spec.exact && !spec.overlap && !spec.overcommit {
                    prop_assert_eq!(held.cores.len() as u32, ranks.len() as u32 * placed.layout.cpus_per_task);
                }
                prop_assert!(spec.ntasks.is_some() || spec.ntasks_per_node.is_none_or(|most| ranks.len() as u32 <= most));
            }
            take(&mut rooms, &placed);
        }
    }
}

/// One node of 2 sockets x 8 cores x 2 threads, all of it the job's. CPU `c` is a thread of core `c % 16`.
fn smt(unit: Unit) -> Vec<Room> {
    let hardware = Hardware { cpus: 32, sockets: 2, cores_per_socket: 8, threads_per_core: 2, ..Hardware::default() };
    let mut rooms = rooms(&[32]);
    (rooms[0].grain, rooms[0].threads) = (Grain::of_steps(unit, &hardware, &rooms[0].cores), 2);
    rooms
}

#[test]
fn steps_hold_whole_cores_where_jobs_do() {
    let exact = |ntasks, cpus| StepSpec { exact: true, cpus_per_task: Some(cpus), ..spec(ntasks) };
    let (one_thread, own_cores) =
        (Inside { threads: 1, ..Inside::default() }, Inside { tasks_per_core: 1, ..Inside::default() });
    let none = Inside::default();
    // The numbers of CPUs that a step holds; 0: it never fits.
    let held = |unit, spec: &StepSpec, inside| {
        let placed = super::place(&smt(unit), Wanted { spec, inside, gres: None, most_tasks: 4096 });
        placed.map_or(0, |placed| placed.alloc.cpus())
    };
    for (ntasks, cpus, inside, by_cpu, by_core) in [
        (1, 1, none, 1, 2),
        (3, 1, none, 3, 4),
        (2, 3, none, 6, 6),
        (4, 1, one_thread, 0, 8),
        (16, 1, one_thread, 0, 32),
        (17, 1, one_thread, 0, 0),
        (5, 3, one_thread, 0, 30),
        (3, 1, own_cores, 3, 6),
        (3, 3, own_cores, 9, 12),
        (33, 1, none, 0, 0),
    ] {
        let spec = exact(ntasks, cpus);
        let all = [Unit::Cpu, Unit::Core, Unit::Socket].map(|unit| held(unit, &spec, inside));
        assert_eq!(all, [by_cpu, by_core, by_core], "{ntasks} tasks of {cpus} CPUs, {inside:?}");
    }
    let mut rooms = smt(Unit::Core);
    let mut taken = Vec::new();
    while let Ok(placed) = place(&rooms, &exact(1, 1)) {
        taken.push(placed.alloc.groups[0].cores.iter().collect::<Vec<_>>());
        take(&mut rooms, &placed);
    }
    assert_eq!(
        (taken.len(), &taken[0][..], &taken[15][..]),
        (16, &[0, 16][..], &[15, 31][..]),
        "both threads of a core"
    );
    let over = StepSpec { overlap: true, ..exact(16, 1) };
    let overlap =
        |inside| super::place(&smt(Unit::Core), Wanted { spec: &over, inside, gres: None, most_tasks: 4096 }).unwrap();
    assert_eq!(overlap(one_thread).alloc.cpus(), 0, "steps that overlap hold nothing");
}

#[test]
fn memory_for_each_cpu_counts_the_cpus_of_whole_cores() {
    let per_cpu = |ntasks, mb| StepSpec { exact: true, memory: Memory::PerCpuMb(mb), ..spec(ntasks) };
    let memory = |spec: &StepSpec| place(&smt(Unit::Core), spec).map(|placed| placed.alloc.groups[0].memory_mb);
    assert_eq!(memory(&per_cpu(3, 100)), Ok(400), "of two cores");
    assert_eq!(memory(&per_cpu(3, 250)), Ok(1000));
    assert!(matches!(memory(&per_cpu(3, 251)), Err(Unplaced::Never(Refusal::TooManyRequested(_)))));
}

#[test]
fn steps_of_a_job_that_holds_parts_of_cores_get_single_cpus() {
    let hardware = Hardware { cpus: 8, sockets: 1, cores_per_socket: 4, threads_per_core: 2, ..Hardware::default() };
    let grain = |cpus: &[usize]| Grain::of_steps(Unit::Core, &hardware, &cpus.iter().copied().collect());
    assert_eq!(grain(&[0, 1, 2]), Grain::CPU, "the job started with CR_CPU");
    assert_ne!(grain(&[0, 4, 3, 7]), Grain::CPU);
}

#[test]
fn nodes_are_filled_one_after_the_other_where_they_are_to() {
    let mut rooms = rooms(&[4; 3]);
    assert_eq!(counts(&place(&rooms, &spec(7)).unwrap()), [3, 2, 2]);
    for room in &mut rooms {
        room.packs = true;
    }
    assert_eq!(counts(&place(&rooms, &spec(7)).unwrap()), [4, 2, 1]);
    let cyclic = StepSpec { distribution: Distribution::Cyclic, ..spec(7) };
    assert_eq!(counts(&place(&rooms, &cyclic).unwrap()), [3, 2, 2], "unless the step says otherwise");
}
