//! `bench layout`: the halo exchange of the Blue Waters talk of 2014, row by row, compared with the layouts found here;
//! the effect of a missing router; MILC.

use serde_json::{Value, json};
use squall_sched::layout::{Grid, MILC, Model, Site, best, grid_order, layouts, table};
use squall_sched::torus::{AXES_MAX, Frame, Prism};

use super::{BenchOptions, Finding, round};

/// Number of exchanges of two routers that are tried to improve each layout.
const TRIALS: u32 = 10_000;

/// Returns the model's largest error, in percent, relative to the measurements of the Blue Waters talk, and the table.
pub(super) fn run(_: &BenchOptions) -> Result<Finding, String> {
    let model = Model::default();
    let rows = table(&model, TRIALS);
    let error = |time: f64, measured: f64| (time / measured - 1.0) * 100.0;
    let most = rows.iter().map(|row| error(row.time_ms, row.talk.measured_ms).abs()).fold(0.0, f64::max);
    let shown: Vec<Value> = rows
        .iter()
        .map(|row| {
            let size = row.talk.size.map(|n| n.to_string()).join("x");
            json!({
                "placement": format!("{:?} {size}", row.talk.placement),
                "talk_ms": row.talk.measured_ms,
                "model_ms": round(row.time_ms),
                "error_percent": round(error(row.time_ms, row.talk.measured_ms)),
                "talk_worst": row.talk.worst,
                "worst": round(row.worst),
                "hops_max": row.layout.score.hops_max,
                "per_node": row.layout.score.per_node,
                "layout": row.layout.name,
            })
        })
        .collect();
    let (naive, around) = hole(&model).ok_or("no layout goes round a hole")?;
    let (theirs, ours) = milc(&model).ok_or("MILC's grid does not fit")?;
    let fields = vec![
        ("halo", Value::Array(shown)),
        ("one_hole_worst", json!(around)),
        ("one_hole_naive", json!(naive)),
        ("milc_grid_order_ms", json!(round(theirs))),
        ("milc_layout_ms", json!(round(ours))),
        ("milc_ratio", json!(round(theirs / ours))),
        ("milc_talk_ratio", json!(round(254.0 / 116.4))),
    ];
    let figure = round(most);
    Ok(Finding { bench: "layout", figure, unit: "% off the talk at most", limit: Some((15.0, "the bar")), fields })
}

fn prism(size: &[u32]) -> Prism {
    let mut extents = [1; AXES_MAX];
    extents[..size.len()].copy_from_slice(size);
    Prism { at: [0; AXES_MAX], size: extents }
}

/// Places 32 x 32 x 32 tasks on 8 x 8 x 9 routers, one of which is missing. Returns the worst link's load if only the
/// row of routers (pencil) with the missing one is laid out differently, and with the best layout. None: no layout is
/// found.
fn hole(model: &Model) -> Option<(f64, f64)> {
    let frame = Frame::blue_waters(false);
    let grid = Grid::parse("32x32x32", "").ok()?;
    let mut site = Site::whole(&frame, prism(&[8, 8, 9]), 32);
    let missing = site.usable.len() / 2 + 41;
    *site.usable.get_mut(missing)? = 0;
    let found = layouts(&site, &grid, model);
    let naive = found.iter().find(|layout| layout.name.ends_with("the pencil"))?;
    Some((naive.score.worst, found.first()?.score.worst))
}

/// Returns MILC's time in milliseconds with Cray's `grid_order -c 2,2,2,2` and with the best layout. None: the grid
/// does not fit.
fn milc(model: &Model) -> Option<(f64, f64)> {
    let frame = Frame::blue_waters(false);
    let (extents, size, per_node) = MILC;
    let grid = Grid { extents: extents.to_vec(), periodic: true, weights: vec![1.0; 4] };
    let site = Site::whole(&frame, prism(&size), per_node);
    let ours = best(&site, &grid, model, 0)?;
    let theirs = grid_order(&site, &grid, per_node, &[2, 2, 2, 2], &[0, 1, 2], model)?;
    Some((theirs.score.time_ms, ours.score.time_ms))
}
