//! Tests: prisms keep their traffic inside, checked by routing; and the search finds all free prisms.

use std::collections::BTreeMap;

use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{
    AXES_MAX, Ask, Axis, Board, Chooser, Coords, Fits, Frame, Link, Order, Prism, Shapes, earliest, hull, route,
};

fn size(extents: &[u32]) -> Coords {
    let mut size = [1; AXES_MAX];
    size[..extents.len()].copy_from_slice(extents);
    size
}

fn at(place: &[u32]) -> Coords {
    let mut at = [0; AXES_MAX];
    at[..place.len()].copy_from_slice(place);
    at
}

/// Returns all links that traffic between cells of a prism may use, both ways where they are equally short.
fn links(frame: &Frame, prism: &Prism) -> Vec<Link> {
    let mut links = Vec::new();
    for from in prism.cells(frame) {
        for to in prism.cells(frame) {
            for tie in [true, false] {
                route(frame, from, to, tie, |link| links.push(link));
            }
        }
    }
    links.sort();
    links.dedup();
    links
}

#[test]
fn the_rule_is_what_routing_does() {
    for n in [7, 8, 15, 16, 24] {
        let frame = Frame::torus(&[n]).unwrap();
        for extent in 1..=n {
            let prism = Prism { at: at(&[n - 1]), size: size(&[extent]) };
            let inside = links(&frame, &prism).iter().all(|link| {
                let next = (link.cell as u32 + if link.up { 1 } else { n - 1 }) % n;
                let has = |place: u32| prism.contains(&frame, &at(&[place]));
                has(link.cell as u32) && has(next)
            });
            assert_eq!(frame.legal(0, extent), inside, "{extent} of {n}");
        }
    }
    let frame = Frame::torus(&[24]).unwrap();
    assert_eq!((1..=24).filter(|n| frame.legal(0, *n)).collect::<Vec<_>>(), (1..=12).chain([24]).collect::<Vec<_>>());
    let strict = Frame::blue_waters(true);
    assert_eq!((1..=24).filter(|n| strict.legal(0, *n)).count(), 12);
}

#[test]
fn bisections_are_the_talks() {
    let frame = Frame::blue_waters(false);
    assert_eq!(frame.bisection(&size(&[24, 6, 24])), 576);
    assert_eq!(frame.bisection(&size(&[6, 24, 24])), 288);
}

#[test]
fn neighbours_in_a_slab_are_neighbours() {
    let frame = Frame::blue_waters(false);
    for thickness in [2, 4] {
        let cells = Order::Snake(thickness).cells(&frame);
        let apart = |pair: &[usize]| {
            let mut hops = 0;
            route(&frame, pair[0], pair[1], true, |_| hops += 1);
            hops
        };
        let far: Vec<usize> = cells.windows(2).map(apart).filter(|hops| *hops != 1).collect();
        let slabs = 24 / thickness as usize;
        assert_eq!(far, vec![thickness as usize; slabs - 1], "one step but from slab to slab");
    }
    let frame = Frame::torus(&[8, 8, 8]).unwrap();
    let cells = Order::Hilbert.cells(&frame);
    let steps = cells.windows(2).map(|pair| {
        let mut hops = 0;
        route(&frame, pair[0], pair[1], true, |_| hops += 1);
        hops
    });
    assert!(steps.max() == Some(1), "a Hilbert curve goes from neighbour to neighbour");
    let numeric = Order::Numeric(4).cells(&Frame::blue_waters(false));
    assert_eq!(numeric.len(), 13_824);
}

#[test]
fn a_job_gets_a_wide_prism_and_the_next_one_beside_it() {
    let frame = Frame::blue_waters(false);
    let mut board = Board::new(frame.clone());
    let mut chooser = Chooser::new(&frame);
    let placed = chooser.prism(&board, &Ask { nodes: 6912, geometry: None, end: 100 }).unwrap();
    assert!(frame.bisection(&placed.prism.size) >= 288 && frame.closed(&placed.prism.size), "{placed:?}");
    board.close(&placed.prism, 100);
    let asked = size(&[6, 12, 12]);
    let other = chooser.prism(&board, &Ask { nodes: 1000, geometry: Some(asked), end: 100 }).unwrap();
    assert!(!other.prism.meets(&placed.prism, &frame) && other.prism.volume() == 864, "{other:?}");
    assert!(chooser.prism(&board, &Ask { nodes: 27_648, geometry: None, end: 1 }).is_none());
}

#[test]
fn the_earliest_prism_is_the_one_that_ends_first() {
    let frame = Frame::torus(&[4, 4, 4]).unwrap();
    let mut board = Board::new(frame.clone());
    for (x, end) in [(0, 50), (1, 20), (2, 30), (3, 40)] {
        board.close(&Prism { at: at(&[x, 0, 0]), size: size(&[1, 4, 4]) }, end);
    }
    let shapes = Shapes::new(&frame).between(32, 32);
    let found = earliest(&board, &shapes, 32).unwrap();
    assert_eq!((found.from, found.prism.at[0], found.prism.size[0]), (30, 1, 2));
}

#[test]
fn a_hull_goes_over_the_edge() {
    let frame = Frame::torus(&[8, 8]).unwrap();
    let cells = [at(&[7, 2]), at(&[0, 3]), at(&[1, 2])];
    let prism = hull(&frame, cells.iter().map(|place| frame.cell(place))).unwrap();
    assert_eq!((prism.at, prism.size), (at(&[7, 2]), size(&[3, 2])));
    let far = hull(&frame, [at(&[0, 0]), at(&[3, 0]), at(&[6, 0])].iter().map(|p| frame.cell(p))).unwrap();
    assert_eq!(far.size[0], 8, "7 of 8 would let traffic out");
}

fn frame() -> impl Strategy<Value = Frame> {
    let axis = (1..9_u32, proptest::bool::weighted(0.7), 1..3_u32);
    prop::collection::vec(axis, 1..5).prop_map(|axes| {
        let axes = axes.into_iter().map(|(extent, wrap, weight)| Axis { extent, wrap, weight });
        Frame::new(axes.collect(), 2, false).unwrap()
    })
}

proptest! {
    #[test]
    fn all_free_prisms_are_found_and_no_others(frame in frame(), seed in 0..u64::MAX, jumps in any::<bool>()) {
        let mut board = Board::new(frame.clone());
        let mut random = seed | 1;
        for cell in 0..frame.cells() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 60 < 4 {
                board.take(cell, 1, 9);
            }
        }
        let mut fits = Fits::default();
        let last = frame.axes()[frame.axes().len() - 1].extent as usize;
        let mut shapes = Shapes::new(&frame).between(1, 64);
        if jumps {
            // The shapes come in an order in which hardly any result can be shared.
            shapes.sort_by_key(|shape| shape.size.map(|n| n.wrapping_mul(seed as u32 | 1) >> 4));
        }
        for shape in shapes.into_iter().take(150) {
            let anchors = fits.anchors(&frame, board.open(), &shape.size).to_vec();
            for cell in 0..frame.cells() {
                let prism = Prism { at: frame.coords(cell), size: shape.size };
                let inside = frame.axes().iter().enumerate().all(|(a, axis)| {
                    if shape.size[a] == axis.extent { prism.at[a] == 0 }
                    else { axis.wrap || prism.at[a] + shape.size[a] <= axis.extent }
                });
                let free = inside && prism.cells(&frame).all(|cell| board.is_open(cell));
                prop_assert_eq!(anchors[cell / last] >> (cell % last) & 1 == 1, free, "{:?}", prism);
            }
        }
    }

    /// Jobs start and end, and no link is ever used by two of them. Checked by routing every pair of their cells.
    #[test]
    fn sensitive_jobs_share_no_link(jobs in prop::collection::vec((1..60_u32, 0..8_usize), 1..40)) {
        let axes = [(8, 2), (6, 1), (7, 2)].map(|(extent, weight)| Axis { extent, wrap: true, weight });
        let frame = Frame::new(axes.to_vec(), 2, false).unwrap();
        let mut board = Board::new(frame.clone());
        for cell in [3, 77, 200] {
            board.retire(cell, 2);
        }
        let mut chooser = Chooser::new(&frame);
        let mut running: Vec<Prism> = Vec::new();
        for (nodes, ends) in jobs {
            if ends < running.len() {
                board.reopen(&running.remove(ends));
                chooser.renew();
            }
            let Some(placed) = chooser.prism(&board, &Ask { nodes, geometry: None, end: nodes }) else { continue };
            prop_assert!(placed.usable >= nodes);
            board.close(&placed.prism, nodes);
            running.push(placed.prism);
        }
        let mut owner: BTreeMap<Link, usize> = BTreeMap::new();
        for (job, prism) in running.iter().enumerate() {
            for link in links(&frame, prism) {
                prop_assert_eq!(*owner.entry(link).or_insert(job), job, "{:?}", link);
            }
        }
    }
}
