//! Tests of layouts: the talk's halo table, holes, mappings, and grids that do not fit.

use super::table::{Placement, prism};
use super::{Grid, MILC, Model, Site, TALK, best, grid_order, layouts, shapes, table};
use crate::torus::Frame;

#[test]
fn the_halo_table_is_the_talks() {
    let rows = table(&Model::default(), 0);
    assert_eq!(rows.len(), TALK.len());
    for row in &rows {
        let error = (row.time_ms / row.talk.measured_ms - 1.0).abs();
        assert!(error < 0.15, "{:?}: {:.3} ms", row.talk, row.time_ms);
        assert!(row.worst <= row.talk.worst, "{:?}: {}", row.talk, row.worst);
        assert!(row.talk.placement != Placement::Layout || row.layout.score.hops_max <= 2, "{:?}", row.layout.score);
    }
    let unbalanced = rows[3..].iter().map(|row| row.time_ms).fold(0.0, f64::max);
    assert!(rows[0].time_ms > rows[1].time_ms && rows[1].time_ms > rows[2].time_ms && rows[2].time_ms > unbalanced);
}

#[test]
fn every_rank_has_a_place_and_no_node_too_many() {
    let frame = Frame::blue_waters(false);
    let site = Site::whole(&frame, prism(&[5, 3, 4]), 16);
    for (extents, periodic) in
        [(vec![10, 12, 15], false), (vec![40, 40], true), (vec![4, 3, 5, 24], false), (vec![600], false)]
    {
        let grid = Grid { weights: vec![1.0; extents.len()], extents, periodic };
        let found = layouts(&site, &grid, &Model::default());
        assert!(!found.is_empty(), "{grid:?}");
        for layout in found {
            let mut tasks = vec![0; site.prism.volume() * 2];
            layout.cells.iter().zip(&layout.nodes).for_each(|(cell, node)| tasks[(*cell * 2 + *node) as usize] += 1);
            assert!(tasks.iter().all(|tasks| *tasks <= 16) && layout.cells.len() == grid.tasks());
        }
    }
    let large = Grid::parse("64x64", "").unwrap();
    assert!(layouts(&site, &large, &Model::default()).is_empty(), "4096 tasks do not fit on 120 nodes of 16");
}

#[test]
fn neighbours_of_a_hole_skip_with_it() {
    let frame = Frame::blue_waters(false);
    let grid = Grid::parse("32x32x32", "").unwrap();
    let mut site = Site::whole(&frame, prism(&[8, 8, 9]), 32);
    let cell = (3 * 8 + 4) * 9 + 5;
    site.usable[cell] = 0;
    let found = layouts(&site, &grid, &Model::default());
    let naive = found.iter().find(|layout| layout.name.contains("pencil")).unwrap();
    assert!(naive.score.worst >= 40.0, "{}: {}", naive.name, naive.score.worst);
    assert!(found[0].score.worst <= 24.0, "{}: {}", found[0].name, found[0].score.worst);
    assert!(found[0].cells.iter().all(|at| *at as usize != cell));
}

#[test]
fn milc_is_twice_as_fast_as_with_grid_order() {
    let frame = Frame::blue_waters(false);
    let (extents, size, per_node) = MILC;
    let grid = Grid { extents: extents.to_vec(), periodic: true, weights: vec![1.0; 4] };
    let site = Site::whole(&frame, prism(&size), per_node);
    let model = Model::default();
    let ours = best(&site, &grid, &model, 0).unwrap();
    let theirs = grid_order(&site, &grid, per_node, &[2, 2, 2, 2], &[0, 1, 2], &model).unwrap();
    assert!(theirs.score.time_ms >= 2.0 * ours.score.time_ms, "{:?} {:?}", theirs.score, ours.score);
}

#[test]
fn polishing_unloads_links() {
    let frame = Frame::torus(&[6, 6]).unwrap();
    let site = Site::whole(&frame, prism(&[6, 6]), 1);
    let grid = Grid::parse("6x6:periodic", "").unwrap();
    let model = Model::default();
    let best = best(&site, &grid, &model, 100).unwrap();
    assert!((best.score.worst - 1.0).abs() < 1e-9, "{best:?}");
    // Polishing improves a shuffled layout.
    let mut shuffled = best.clone();
    for cell in &mut shuffled.cells {
        *cell = match *cell {
            0 => 21,
            21 => 0,
            5 => 30,
            30 => 5,
            other => other,
        };
    }
    shuffled.score = super::score::score(&site, &grid, &shuffled.cells, &shuffled.nodes, &model);
    let polished = super::polish::polish(&site, &grid, &model, shuffled.clone(), 5000);
    assert!(polished.score.worst < shuffled.score.worst, "{} {}", polished.score.worst, shuffled.score.worst);
}

#[test]
fn a_grid_says_which_prisms_suit_it() {
    let frame = Frame::blue_waters(false);
    let grid = Grid::parse("32x32x32", "").unwrap();
    let found = shapes(&frame, &grid, 32, Some(1452), usize::MAX);
    assert!(found.iter().take(12).any(|size| size[..3] == [11, 6, 11]), "{:?}", &found[..6]);
    assert!(
        Grid::parse("0x3", "").is_err() && Grid::parse("1x2x3x4x5", "").is_err() && Grid::parse("3x3", "1,x").is_err()
    );
}
