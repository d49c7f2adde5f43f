//! `bench query`: how long all nodes take to answer a question, real node daemons and emulated ones.

use std::time::Instant;

use serde_json::{Value, json};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Comparison, Test, Variable};

use super::cluster::Cluster;
use super::load::Load;
use super::{Finding, Options};
use crate::client::Client;

/// Nodes of the rack, and real ones.
const RACK: u32 = 10_080;
const REAL: u32 = 64;
/// Questions of which the median counts; before them some that do not.
const QUESTIONS: usize = 200;
const WARM: usize = 5;

/// Times of one set of nodes under one load.
struct Row {
    kind: &'static str,
    load: Load,
    nodes: u32,
    /// Microseconds, sorted.
    times: Vec<f64>,
}

pub(super) fn run(options: &Options) -> Result<Finding, String> {
    let rack = options.nodes.unwrap_or(RACK);
    let real = options.real.unwrap_or(REAL);
    let loads = if options.loads.is_empty() { &Load::ALL[..] } else { &options.loads[..] };
    let mut rows = Vec::new();
    if real > 0 {
        measure(&Cluster::nodes(real)?, ("n", "real", real), loads, &mut rows)?;
    }
    if rack > 0 {
        measure(&Cluster::rack(rack, "")?, ("n", "emulated", rack), loads, &mut rows)?;
    }
    let widest = rows.iter().filter(|row| row.load == loads[0]).max_by_key(|row| row.nodes);
    let widest = widest.ok_or("there are no nodes to ask")?;
    let (figure, limit) = (at(&widest.times, 0.5), ethernet_us(widest.nodes));
    let fields = vec![("nodes", json!(widest.nodes)), ("measured", Value::Array(rows.iter().map(Row::show).collect()))];
    Ok(Finding { bench: "query", figure, unit: "us, median", limit: Some((limit, "us, 46*log2(n)")), fields })
}

/// What the talk says of Gigabit Ethernet.
fn ethernet_us(nodes: u32) -> f64 {
    46.0 * f64::from(nodes.max(2)).log2()
}

fn measure(
    cluster: &Cluster,
    (prefix, kind, all): (&str, &'static str, u32),
    loads: &[Load],
    rows: &mut Vec<Row>,
) -> Result<(), String> {
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, all)?;
    let counts = (0..).map(|power| 1_u32 << (3 * power)).take_while(|count| *count < all).chain([all]);
    let counts: Vec<u32> = counts.collect();
    for load in loads {
        let _burden = load.start().map_err(|e| e.to_string())?;
        for &nodes in &counts {
            let list = if nodes == 1 { format!("{prefix}1") } else { format!("{prefix}[1-{nodes}]") };
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

/// Microseconds of one question that is true on all nodes.
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

/// The value below which that part of the values lies.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted.get(((sorted.len() - 1) as f64 * part) as usize).copied().unwrap_or_default()
}

impl Row {
    fn show(&self) -> Value {
        let round = |us: f64| (us * 10.0).round() / 10.0;
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
