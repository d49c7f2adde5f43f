//! Output of `bench put`: the table, the model, the picture.

use std::path::Path;

use serde_json::{Value, json};
use squall_engine::fabric::cost::{self, Link, Shape};

use super::super::launch::fit::{Fit, Row as Measured, fit};
use super::super::launch::hop;
use super::super::{Finding, MODEL_NODES, NETWORKS, round};
use super::{Copies, Load, Row};
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// Published send times: system, nodes, bytes, milliseconds. STORM's are quoted from memory; Slurm's were measured on a
/// similar machine.
const PUBLISHED: [(&str, u32, u64, f64); 5] = [
    ("STORM, send (recalled)", 64, 4 << 20, 32.0),
    ("STORM, send (recalled)", 64, 8 << 20, 64.0),
    ("STORM, send (recalled)", 64, 12 << 20, 96.0),
    ("Slurm 22.05, sbcast on such a machine", 8, 12 << 20, 346.0),
    ("Slurm 22.05, sbcast on such a machine", 64, 12 << 20, 2636.0),
];

/// Explanation of private copies, printed with the results.
const PRIVATE: &str = "every node takes in every byte: a real one into a file of its own, an emulated one through a \
                       slot of 16 KiB of its own; bytes handed over in process are hashed once";

/// Returns the benchmark's result for these measurements. The main figure is the time for private copies of the largest
/// file on the most nodes under the load `calm`.
pub(super) fn finding(rows: &[Row], calm: Load, sizes: &[u64], pictures: Option<&Path>) -> Result<Finding, String> {
    let (link, link_residual) = hop::measure()?;
    let size = sizes.iter().copied().max().unwrap_or_default();
    let real = rows.iter().all(|row| row.real);
    let widest = rows.iter().filter(|row| row.real == real).map(|row| row.nodes).max().unwrap_or_default();
    let find = |copies| {
        let same = |row: &&Row| row.load == calm && row.copies == copies && row.real == real;
        rows.iter().filter(same).find(|row| (row.nodes, row.size) == (widest, size)).map_or(0.0, Row::median)
    };
    let [figure, shared, repeat] = Copies::ALL.map(find);
    let models = [false, true].map(|real| model(rows, calm, real));
    if let Some(folder) = pictures {
        write_picture(&chart(rows, calm, size, link).svg(), folder, "put")?;
    }
    let mut fields = vec![
        ("kind", json!(if real { "real" } else { "emulated" })),
        ("nodes", json!(widest)),
        ("bytes", json!(size)),
        ("private_ms", json!(round(figure))),
        ("shared_ms", json!(round(shared))),
        ("repeat_ms", json!(round(repeat))),
        ("private_means", json!(PRIVATE)),
        ("measured", rows.iter().map(|row| show(row, &models[usize::from(row.real)], calm)).collect()),
    ];
    let names = [["fit_start_ms", "fit_per_mib_ms", "fit_per_node_mib_ms", "fit_residual"], REAL_FIT];
    for (model, names) in models.iter().zip(names).filter(|(model, _)| model.residual.is_finite()) {
        let values = model.parameters.map(round).into_iter().chain([round(model.residual)]);
        fields.extend(names.into_iter().zip(values.map(|value| json!(value))));
    }
    fields.extend([
        ("hop_message_us", json!(round(link.message_s * 1e6))),
        ("hop_bytes_per_s", json!(link.bytes_per_s.round())),
        ("hop_residual", json!(round(link_residual))),
        ("model", model_rows(size, link)),
        ("others", PUBLISHED.map(published).to_vec().into()),
    ]);
    let limit = 1e3 * f64::from(widest) * size as f64 / link.bytes_per_s;
    let limit = Some((limit, "ms for as many bytes over one local socket"));
    Ok(Finding { bench: "put", figure, unit: "ms, private copies", limit, fields })
}

const REAL_FIT: [&str; 4] =
    ["fit_real_start_ms", "fit_real_per_mib_ms", "fit_real_per_node_mib_ms", "fit_real_residual"];

/// Fits the cost of private copies on one machine to the measurements with real or emulated nodes under the load
/// `calm`.
fn model(rows: &[Row], calm: Load, real: bool) -> Fit<3> {
    let private = rows.iter().filter(|row| row.real == real && row.load == calm && row.copies == Copies::Private);
    let private: Vec<Measured<3>> = private.map(|row| (factors(row.nodes, row.size), row.median())).collect();
    fit(&private)
}

/// Returns the factors of the model's costs: a fixed one, one for each MiB, and one for each MiB on each node.
fn factors(nodes: u32, size: u64) -> [f64; 3] {
    let mib = size as f64 / f64::from(1 << 20);
    [1.0, mib, f64::from(nodes) * mib]
}

fn show(row: &Row, model: &Fit<3>, calm: Load) -> Value {
    let mut value = json!({
        "copies": row.copies.name(), "kind": row.kind(), "load": row.load.name(), "nodes": row.nodes,
        "bytes": row.size, "median_ms": round(row.median()), "min_ms": round(row.times[0]),
        "max_ms": round(row.times[row.times.len() - 1]),
    });
    if row.copies == Copies::Private && row.load == calm {
        value["fitted_ms"] = json!(round(model.at(factors(row.nodes, row.size))));
    }
    value
}

fn published((name, nodes, bytes, ms): (&str, u32, u64, f64)) -> Value {
    json!({ "who": name, "nodes": nodes, "bytes": bytes, "ms": ms })
}

/// Returns the model's durations of a send over each network. The work of a hop is the one measured here.
fn model_rows(size: u64, link: Link) -> Value {
    let own = ("a hop as measured here", link.bytes_per_s);
    let rows = std::iter::once(own).chain(NETWORKS).flat_map(|(name, bytes_per_s)| {
        MODEL_NODES.map(|nodes| {
            let link = Link { bytes_per_s, ..link };
            let mut row = json!({ "link": name, "nodes": nodes, "model_ms": round(sent_ms(size, nodes, link)) });
            for shape in Shape::ALL {
                row[shape.name()] = json!(round(1e3 * cost::send_s(shape, size, nodes, link)));
            }
            row
        })
    });
    rows.collect()
}

/// Returns the model's duration of a send in milliseconds, with the shape of the tree that Squall would choose.
fn sent_ms(size: u64, nodes: u64, link: Link) -> f64 {
    1e3 * cost::send_s(cost::choose(size, nodes), size, nodes, link)
}

fn chart(rows: &[Row], calm: Load, size: u64, link: Link) -> Chart {
    let mut series = Vec::new();
    for real in [false, true] {
        for (copies, color) in Copies::ALL.into_iter().zip(0..) {
            let same = |row: &&Row| row.real == real && row.load == calm && row.copies == copies && row.size == size;
            let points: Vec<_> = rows.iter().filter(same).map(|row| (f64::from(row.nodes), row.median())).collect();
            if points.is_empty() {
                continue;
            }
            let kind = if real { "real nodes" } else { "emulated nodes" };
            let stroke = if real { Stroke::Dots } else { Stroke::Line };
            series.push(Series { name: format!("{}, {kind}", copies.name()), stroke, color, points });
        }
    }
    for ((name, bytes_per_s), color) in NETWORKS.into_iter().zip(3..) {
        let link = Link { bytes_per_s, ..link };
        let points = (0..=17).map(|power| 1_u64 << power).map(|n| (n as f64, sent_ms(size, n, link)));
        let name = format!("model, {name}");
        series.push(Series { name, stroke: Stroke::Dashes, color, points: points.collect() });
    }
    for (who, color) in [(PUBLISHED[0].0, 5), (PUBLISHED[4].0, 6)] {
        let points = PUBLISHED.iter().filter(|other| other.0 == who && other.2 == size);
        let points = points.map(|other| (f64::from(other.1), other.3)).collect();
        series.push(Series { name: who.into(), stroke: Stroke::Dots, color, points });
    }
    let axis = |label: &str| Axis { label: label.into(), log: true };
    let title = format!("Put of {} MB, {}", size >> 20, calm.name());
    Chart { title, x: axis("nodes"), y: axis("milliseconds"), series }
}

#[cfg(test)]
mod tests {
    use squall_engine::fabric::cost::Link;

    use super::super::{Copies, Load, Row};
    use super::{chart, model};

    #[test]
    fn kinds_of_copies_are_fitted_and_shown_apart() {
        let row =
            |real, copies, nodes, ms| Row { real, load: Load::None, copies, nodes, size: 12 << 20, times: vec![ms] };
        let rows = [
            row(false, Copies::Private, 1, 12.0),
            row(false, Copies::Private, 64, 138.0),
            row(false, Copies::Shared, 64, 9.0),
            row(true, Copies::Private, 4, 50.0),
        ];
        let fitted = model(&rows, Load::None, false);
        assert!(fitted.residual < 1e-6, "{fitted:?}");
        let picture = chart(&rows, Load::None, 12 << 20, Link { message_s: 2e-6, bytes_per_s: 3e9 });
        let names: Vec<&str> = picture.series.iter().map(|series| &*series.name).collect();
        for name in ["private, emulated nodes", "shared, emulated nodes", "private, real nodes", "model, 10 GbE"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"repeat, real nodes"));
    }
}
