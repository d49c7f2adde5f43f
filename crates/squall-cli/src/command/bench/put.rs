//! `bench put`: how long a file takes to all of n nodes: private copies, shared ones, and again.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use squall_engine::fabric::cost::{self, Link};
use squall_model::limits::CHUNK_BYTES;
use squall_model::wire::client::{Broadcast, BroadcastTo};

use super::cluster::Cluster;
use super::launch::fit::{Fit, Row as Measured, fit};
use super::launch::hop;
use super::load::Load;
use super::{Finding, Options};
use crate::broadcast::{broadcast, digest};
use crate::client::Client;

const NODES: u32 = 64;
/// The sizes of STORM's figures.
const SIZES: [u64; 3] = [4 << 20, 8 << 20, 12 << 20];
/// Puts of which the median counts.
const PUTS: usize = 5;
/// Node counts and links of the model.
const MODEL_NODES: [u64; 5] = [64, 1024, 4096, 16_384, 100_000];
const NETWORKS: [(&str, f64); 2] = [("10 GbE", 1.165e9), ("100 GbE", 9e9)];

/// How a file is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// Each node gets all of it on a connection of its own.
    Private,
    /// Nodes that share a disk share one.
    Shared,
    /// All nodes have it.
    Repeat,
}

impl Copies {
    const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Repeat => "repeat",
        }
    }
}

/// Times of one kind of put.
struct Row {
    load: Load,
    copies: Copies,
    nodes: u32,
    size: u64,
    /// Milliseconds, sorted.
    times: Vec<f64>,
}

impl Row {
    fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }
}

pub(super) fn run(options: &Options) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let loads = if options.loads.is_empty() { &[Load::None][..] } else { &options.loads[..] };
    let sizes: Vec<u64> = options.size.map_or(SIZES.to_vec(), |size| vec![size]);
    let mut rows = Vec::new();
    let kind = if options.real.is_some() { "real" } else { "emulated" };
    {
        let nodes = options.real.unwrap_or(nodes);
        let (cluster, prefix) =
            if options.real.is_some() { (Cluster::nodes(nodes)?, "n") } else { (Cluster::rack(nodes, "")?, "n") };
        let mut client = cluster.client()?;
        Cluster::wait_for(&mut client, nodes)?;
        let mut source = Source::new(&cluster);
        for load in loads {
            let _burden = load.start().map_err(|e| e.to_string())?;
            let counts = (0..).map(|power| 1_u32 << (2 * power)).take_while(|count| *count < nodes).chain([nodes]);
            for count in counts {
                let list = if count == 1 { format!("{prefix}1") } else { format!("{prefix}[1-{count}]") };
                for &size in &sizes {
                    rows.extend(measure(&mut client, &mut source, (*load, count, size), &list)?);
                }
            }
        }
    }
    let (link, link_residual) = hop::measure()?;
    let widest = rows.iter().map(|row| row.nodes).max().unwrap_or_default();
    let size = sizes.iter().copied().max().unwrap_or_default();
    let find = |copies| {
        let row = rows.iter().find(|r| r.load == loads[0] && r.copies == copies && (r.nodes, r.size) == (widest, size));
        row.map_or(0.0, Row::median)
    };
    let (figure, shared, repeat) = (find(Copies::Private), find(Copies::Shared), find(Copies::Repeat));
    let private: Vec<Measured<3>> = rows
        .iter()
        .filter(|row| row.load == loads[0] && row.copies == Copies::Private)
        .map(|row| (factors(row.nodes, row.size), row.median()))
        .collect();
    let model = fit(&private);
    let limit = 1e3 * f64::from(widest) * size as f64 / link.bytes_per_s;
    let mut fields = vec![
        ("kind", json!(kind)),
        ("nodes", json!(widest)),
        ("bytes", json!(size)),
        ("private_ms", json!(round(figure))),
        ("shared_ms", json!(round(shared))),
        ("repeat_ms", json!(round(repeat))),
        ("measured", Value::Array(rows.iter().map(|row| show(row, &model)).collect())),
    ];
    fields.extend(model_fields(&model, (link, link_residual), size));
    let limit = Some((limit, "ms for as many bytes over one local socket"));
    Ok(Finding { bench: "put", figure, unit: "ms, private copies", limit, fields })
}

fn measure(
    client: &mut Client,
    source: &mut Source,
    (load, nodes, size): (Load, u32, u64),
    list: &str,
) -> Result<Vec<Row>, String> {
    let mut times = [Copies::Private, Copies::Shared, Copies::Repeat].map(|copies| (copies, Vec::new()));
    for _ in 0..PUTS {
        for (copies, times) in &mut times {
            if *copies != Copies::Repeat {
                source.renew(size)?;
            }
            let to = BroadcastTo::Nodes(list.to_owned());
            times.push(put(client, source, to, *copies)?);
        }
    }
    let rows = times.map(|(copies, mut times)| {
        times.sort_by(f64::total_cmp);
        Row { load, copies, nodes, size, times }
    });
    Ok(rows.into())
}

/// Milliseconds from the file to its being there on all nodes, its digest included.
fn put(client: &mut Client, source: &Source, to: BroadcastTo, copies: Copies) -> Result<f64, String> {
    let file = File::open(&source.path).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let (digest, size) = digest(&file).map_err(|e| e.to_string())?;
    let wanted = Broadcast { to, digest, size, shared: copies != Copies::Private, place: None, time_ms: None };
    let sent = broadcast(client, &file, wanted).map_err(|e| e.to_string())?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    match sent.failed {
        Some((nodes, error)) => Err(format!("{} nodes could not take it: error {error}", nodes.len())),
        None if copies == Copies::Repeat && sent.lacking > 0 => Err("it was sent again".into()),
        None => Ok(ms),
    }
}

/// A file that is another one each time.
pub(super) struct Source {
    path: PathBuf,
    count: u64,
}

impl Source {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self { path: cluster.place().dir().join("bench.put"), count: 0 }
    }

    fn renew(&mut self, size: u64) -> Result<(), String> {
        self.count += 1;
        let mut x = self.count;
        let words = (0..size.div_ceil(8)).flat_map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            x.to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(size as usize).collect();
        std::fs::write(&self.path, bytes).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// What a put costs on one machine: at once, for each node, for each MiB at each node.
fn factors(nodes: u32, size: u64) -> [f64; 3] {
    let mib = size as f64 / f64::from(1 << 20);
    [1.0, f64::from(nodes), f64::from(nodes) * mib]
}

fn show(row: &Row, model: &Fit<3>) -> Value {
    let mut value = json!({
        "copies": row.copies.name(), "load": row.load.name(), "nodes": row.nodes, "bytes": row.size,
        "median_ms": round(row.median()), "min_ms": round(row.times[0]),
        "max_ms": round(row.times[row.times.len() - 1]),
    });
    if row.copies == Copies::Private {
        value["fitted_ms"] = json!(round(model.at(factors(row.nodes, row.size))));
    }
    value
}

fn model_fields(model: &Fit<3>, (link, residual): (Link, f64), size: u64) -> Vec<(&'static str, Value)> {
    let own = ("a hop as measured here", link.bytes_per_s);
    let rows = std::iter::once(own).chain(NETWORKS).flat_map(|(name, bytes_per_s)| {
        MODEL_NODES.map(|nodes| {
            let link = Link { bytes_per_s, ..link };
            let (shape, seconds) = cost::best(size, nodes, link);
            json!({ "link": name, "nodes": nodes, "shape": shape.name(), "model_ms": round(seconds * 1e3) })
        })
    });
    vec![
        ("fit_start_ms", json!(round(model.parameters[0]))),
        ("fit_per_node_ms", json!(round(model.parameters[1]))),
        ("fit_per_node_mib_ms", json!(round(model.parameters[2]))),
        ("fit_residual", json!(model.residual)),
        ("chunk_bytes", json!(CHUNK_BYTES)),
        ("hop_message_us", json!(link.message_s * 1e6)),
        ("hop_bytes_per_s", json!(link.bytes_per_s)),
        ("hop_residual", json!(residual)),
        ("model", Value::Array(rows.collect())),
    ]
}

/// Microseconds are enough.
fn round(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}
