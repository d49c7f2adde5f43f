//! `bench query`: time for all nodes to answer a query, with real node daemons and with emulated ones.

use std::time::Instant;

use serde_json::{Value, json};
use squall_engine::fabric::cost::Shape;
use squall_model::limits::TREE_WIDTH;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Comparison, Test, Variable};

use super::cluster::{Cluster, counts, list};
use super::launch::fit::{Fit, fit};
use super::load::Load;
use super::{BenchOptions, Finding, MODEL_NODES, round};
use crate::client::Client;
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// Default number of emulated nodes.
const RACK: u32 = 10_080;
/// Default number of real nodes.
const REAL: u32 = 64;
/// Number of timed queries; the median duration counts.
const QUESTIONS: usize = 200;
/// Number of queries before the timed ones.
const WARM: usize = 5;

/// Measured durations of queries to one set of nodes under one load.
struct Row {
    kind: &'static str,
    load: Load,
    nodes: u32,
    /// Durations in microseconds, in ascending order.
    times: Vec<f64>,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let rack = options.nodes.unwrap_or(RACK);
    let real = options.real.unwrap_or(REAL);
    let loads = if options.loads.is_empty() { &Load::ALL[..] } else { &options.loads[..] };
    let mut rows = Vec::new();
    if real > 0 {
        measure(&Cluster::nodes(real)?, ("real", real), loads, &mut rows)?;
    }
    if rack > 0 {
        measure(&Cluster::rack(rack, "")?, ("emulated", rack), loads, &mut rows)?;
    }
    let widest = rows.iter().filter(|row| row.load == loads[0]).max_by_key(|row| row.nodes);
    let widest = widest.ok_or("there are no nodes to ask")?;
    let model = model(&rows, loads[0]);
    if let Some(folder) = &options.pictures {
        write_picture(&chart(&rows, &model, loads[0]).svg(), folder, "query")?;
    }
    let (figure, limit) = (at(&widest.times, 0.5), ethernet_us(widest.nodes));
    let [start_us, level_us, node_us] = model.parameters.map(round);
    let fields = vec![
        ("nodes", json!(widest.nodes)),
        ("measured", rows.iter().map(Row::show).collect()),
        ("fit_start_us", json!(start_us)),
        ("fit_per_level_us", json!(level_us)),
        ("fit_per_node_us", json!(node_us)),
        ("fit_residual", json!(round(model.residual))),
        ("model", MODEL_NODES.map(|nodes| model_row(&model, nodes)).to_vec().into()),
        ("others", OTHERS.iter().map(|(name, us)| other(name, *us)).collect()),
    ];
    Ok(Finding { bench: "query", figure, unit: "us, median", limit: Some((limit, "us, 46*log2(n)")), fields })
}

/// A network's time in microseconds as a function of the number of nodes.
type Microseconds = fn(f64) -> f64;

/// Query times of networks, from the STORM talk: name, function of the number of nodes.
const OTHERS: [(&str, Microseconds); 5] = [
    ("Gigabit Ethernet, 46 log2 n", |n| 46.0 * n.max(2.0).log2()),
    ("Myrinet, 20 log2 n", |n| 20.0 * n.max(2.0).log2()),
    ("InfiniBand, 20 log2 n", |n| 20.0 * n.max(2.0).log2()),
    ("QsNET, less than", |_| 10.0),
    ("BlueGene/L, less than", |_| 2.0),
];

fn other(name: &str, us: Microseconds) -> Value {
    json!({ "network": name, "at_64_us": round(us(64.0)), "at_16384_us": round(us(16_384.0)) })
}

/// Fits the costs of a query to emulated nodes on this machine: a fixed one, one for each level of the tree, and one
/// for each node.
fn model(rows: &[Row], load: Load) -> Fit<3> {
    let emulated = rows.iter().filter(|row| row.kind == "emulated" && row.load == load);
    let measured: Vec<_> = emulated.map(|row| (factors(row.nodes), at(&row.times, 0.5))).collect();
    fit(&measured)
}

fn factors(nodes: u32) -> [f64; 3] {
    [1.0, Shape::Wide.depth(u64::from(nodes)) as f64, f64::from(nodes)]
}

/// Returns the model's microseconds for separate machines: each level handles its own children only, not all nodes.
fn model_us(model: &Fit<3>, nodes: f64) -> f64 {
    let [start, level, node] = model.parameters;
    let depth = Shape::Wide.depth(nodes as u64) as f64;
    start + depth * (level + node * f64::from(TREE_WIDTH))
}

fn model_row(model: &Fit<3>, nodes: u64) -> Value {
    json!({ "nodes": nodes, "model_us": round(model_us(model, nodes as f64)) })
}

fn chart(rows: &[Row], model: &Fit<3>, load: Load) -> Chart {
    let mut series = Vec::new();
    for (kind, color) in [("real", 0), ("emulated", 1)] {
        let same = rows.iter().filter(|row| row.kind == kind && row.load == load);
        let points = same.map(|row| (f64::from(row.nodes), at(&row.times, 0.5))).collect();
        series.push(Series { name: format!("{kind} nodes here, median"), stroke: Stroke::Dots, color, points });
    }
    let over = |us: &dyn Fn(f64) -> f64| (1..=17).map(|power| f64::from(1 << power)).map(|n| (n, us(n))).collect();
    let name = "model: nodes of their own, the work of a node as measured".to_owned();
    series.push(Series { name, stroke: Stroke::Dashes, color: 1, points: over(&|n| model_us(model, n)) });
    for ((name, us), color) in OTHERS.into_iter().zip(2..) {
        series.push(Series { name: name.to_owned(), stroke: Stroke::Line, color, points: over(&us) });
    }
    let axis = |label: &str| Axis { label: label.into(), log: true };
    Chart { title: "Query".into(), x: axis("nodes"), y: axis("microseconds"), series }
}

/// Returns the STORM talk's query time of Gigabit Ethernet, in microseconds.
fn ethernet_us(nodes: u32) -> f64 {
    46.0 * f64::from(nodes.max(2)).log2()
}

fn measure(
    cluster: &Cluster,
    (kind, all): (&'static str, u32),
    loads: &[Load],
    rows: &mut Vec<Row>,
) -> Result<(), String> {
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, all)?;
    let counts = counts(all, 3);
    for load in loads {
        let _burden = load.start().map_err(|e| e.to_string())?;
        for &nodes in &counts {
            let list = list(nodes);
            for _ in 0..WARM {
                ask(&mut client, &list)?;
            }
            let mut times = (0..QUESTIONS).map(|_| ask(&mut client, &list)).collect::<Result<Vec<_>, _>>()?;
            times.sort_by(f64::total_cmp);
            rows.push(Row { kind, load: *load, nodes, times });
        }
    }
    Ok(())
}

/// Sends one query that is true on all nodes; returns its duration in microseconds.
fn ask(client: &mut Client, nodes: &str) -> Result<f64, String> {
    let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
    let request = Request::QueryNodes { nodes: nodes.to_owned(), test, wait: false, write: None, time_ms: 30_000 };
    let start = Instant::now();
    match client.ask(&request).map_err(|e| e.to_string())? {
        Answer::Queried { no, unreachable } if no.is_empty() && unreachable.is_empty() => {
            Ok(start.elapsed().as_secs_f64() * 1e6)
        }
        other => Err(format!("not all nodes answered: {other:?}").chars().take(200).collect()),
    }
}

/// Returns the quantile of sorted values; `part` is from 0 to 1.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted.get(((sorted.len() - 1) as f64 * part) as usize).copied().unwrap_or_default()
}

impl Row {
    fn show(&self) -> Value {
        json!({
            "kind": self.kind, "load": self.load.name(), "nodes": self.nodes,
            "min_us": round(at(&self.times, 0.0)), "median_us": round(at(&self.times, 0.5)),
            "p99_us": round(at(&self.times, 0.99)), "ethernet_us": round(ethernet_us(self.nodes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{at, ethernet_us};

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn parts_and_the_talks_row() {
        let values: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!([at(&values, 0.0), at(&values, 0.5), at(&values, 0.99), at(&values, 1.0)], [0.0, 50.0, 99.0, 100.0]);
        assert_eq!(ethernet_us(64), 276.0);
    }
}
