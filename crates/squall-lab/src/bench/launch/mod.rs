//! `bench launch`: time to start and end a program on n nodes with real daemons and processes, and a model of it for
//! more nodes than a machine can hold.

pub(super) mod fit;
pub(super) mod hop;
mod published;
mod sizes;

use std::ffi::OsStr;

use serde_json::{Value, json};
use squall_engine::fabric::cost::{self, Link, Shape};

use self::fit::{Fit, Row};
use self::published::{LAUNCHERS, SLURM};
use self::sizes::SizeResult;
use super::cluster::{Cluster, counts};
use super::load::Load;
use super::put::Copies;
use super::{BenchOptions, Finding, MODEL_NODES, NETWORKS, round, spawn};
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

const NODES: u32 = 64;
/// Size of the program in STORM's figures, in bytes.
const SIZE: u64 = 12 << 20;
/// Number of launches on each number of nodes; the median duration counts.
const LAUNCHES: usize = 9;

/// Measured times for one node count under one load.
struct Point {
    load: Load,
    nodes: u32,
    /// Durations of the launches in milliseconds, in ascending order.
    times: Vec<f64>,
}

impl Point {
    fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }
}

/// Model of a launch's duration: the costs of sending and of executing a program.
struct Model {
    link: Link,
    link_residual: f64,
    /// Fitted costs of executing, milliseconds: fixed; for each node, on this machine's cores; and for the delay of the
    /// slowest of n nodes.
    execute: Fit<3>,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let loads = if options.loads.is_empty() { &[Load::None] } else { &options.loads[..] };
    let bare = spawn::rate(&["/bin/true"], spawn::cores(), 1.0)?;
    let (mut points, mut sent) = (Vec::new(), Vec::new());
    for load in loads {
        // Each load has its own cluster: programs that nodes have cached disappear with it.
        let cluster = Cluster::nodes(nodes)?;
        points.extend(measure(&cluster, nodes, *load)?);
        if options.sizes {
            sent.extend(sizes::measure(&cluster, (true, nodes), *load, options.size)?);
        }
    }
    if let Some(emulated) = options.emulated {
        for load in loads {
            let cluster = Cluster::rack(emulated, "")?;
            sent.extend(sizes::measure(&cluster, (false, emulated), *load, options.size)?);
        }
    }
    let (link, link_residual) = hop::measure()?;
    let calm: Vec<&Point> = points.iter().filter(|point| point.load == loads[0]).collect();
    let rows: Vec<Row<3>> = calm.iter().map(|point| (factors(u64::from(point.nodes)), point.median())).collect();
    let model = Model { link, link_residual, execute: fit::fit(&rows) };
    let size = options.size.unwrap_or(SIZE);
    if let Some(folder) = &options.pictures {
        write_picture(&chart(&calm, &sent, &model, size).svg(), folder, "launch")?;
    }
    let widest = calm.last().map_or(0.0, |point| point.median());
    let limit = (1e3 * f64::from(nodes) / bare, "ms for as many bare posix_spawn+wait of /bin/true");
    let fields = fields(nodes, &points, &sent, &model, size);
    Ok(Finding { bench: "launch", figure: widest, unit: "ms, srun true", limit: Some(limit), fields })
}

/// Measures launches on 1, 2, 4, … and all nodes.
fn measure(cluster: &Cluster, nodes: u32, load: Load) -> Result<Vec<Point>, String> {
    let _burden = load.start().map_err(|e| e.to_string())?;
    let mut points = Vec::new();
    for count in counts(nodes, 1) {
        launch(cluster, count)?;
        let mut times = (0..LAUNCHES).map(|_| launch(cluster, count)).collect::<Result<Vec<_>, _>>()?;
        times.sort_by(f64::total_cmp);
        points.push(Point { load, nodes: count, times });
    }
    Ok(points)
}

/// Returns the milliseconds of one `srun -N nodes true`.
fn launch(cluster: &Cluster, nodes: u32) -> Result<f64, String> {
    srun(cluster, nodes, &["true".as_ref()])
}

/// Returns the milliseconds of one `srun -N nodes` with further arguments.
fn srun(cluster: &Cluster, nodes: u32, args: &[&OsStr]) -> Result<f64, String> {
    let count = nodes.to_string();
    cluster.command_ms(&[&["srun".as_ref(), "-N".as_ref(), count.as_ref()], args].concat())
}

fn factors(nodes: u64) -> [f64; 3] {
    [1.0, nodes as f64, cost::delay(nodes)]
}

impl Model {
    /// Returns the estimated time to execute a program on separate machines, milliseconds: each executes its own part,
    /// on as many cores as this machine has.
    fn execute_ms(&self, nodes: u64) -> f64 {
        let [start, share, skew] = self.execute.parameters;
        cost::execute_s(nodes, start + share * spawn::cores() as f64, skew)
    }

    /// Returns how a program would be sent over a link: the tree's shape, the chunk size in bytes, and the
    /// milliseconds.
    fn send(&self, size: u64, nodes: u64, bytes_per_s: f64) -> (Shape, u64, f64) {
        let link = Link { bytes_per_s, ..self.link };
        let shape = cost::choose(size, nodes);
        let seconds = cost::send_s(shape, size, nodes, link);
        (shape, cost::chunk_bytes(size, link, shape.depth(nodes)), seconds * 1e3)
    }

    fn rows(&self, size: u64) -> Vec<Value> {
        let own = ("a hop as measured here", self.link.bytes_per_s);
        let links = std::iter::once(own).chain(NETWORKS);
        links
            .flat_map(|(name, bytes_per_s)| MODEL_NODES.map(|nodes| (name, bytes_per_s, nodes)))
            .map(|row| self.row(size, row))
            .collect()
    }

    fn row(&self, size: u64, (name, bytes_per_s, nodes): (&str, f64, u64)) -> Value {
        let (shape, chunk, send_ms) = self.send(size, nodes, bytes_per_s);
        let execute_ms = self.execute_ms(nodes);
        json!({
            "link": name, "nodes": nodes, "shape": shape.name(), "chunk_bytes": chunk,
            "send_ms": round(send_ms), "execute_ms": round(execute_ms), "total_ms": round(send_ms + execute_ms),
        })
    }
}

fn fields(nodes: u32, points: &[Point], sent: &[SizeResult], model: &Model, size: u64) -> Vec<(&'static str, Value)> {
    let measured: Vec<Value> = points
        .iter()
        .map(|point| {
            let fitted = round(model.execute.at(factors(u64::from(point.nodes))));
            json!({
                "load": point.load.name(), "nodes": point.nodes, "median_ms": round(point.median()),
                "min_ms": round(point.times[0]), "max_ms": round(point.times[point.times.len() - 1]),
                "fitted_ms": fitted,
            })
        })
        .collect();
    let largest = sent.iter().filter(|sized| sized.real && sized.nodes == nodes).max_by_key(|sized| sized.size);
    let slurm = SLURM.iter().find(|(n, _)| *n == nodes).map(|(_, seconds)| seconds * 1e3);
    let [start_ms, share_ms, skew_ms] = model.execute.parameters;
    vec![
        ("nodes", json!(nodes)),
        ("slurm_ms", json!(slurm)),
        // `true` is not sent: it is in the file system that all nodes share.
        ("sent_bytes", json!(largest.map(|sized| sized.size))),
        ("send_ms", json!(largest.map(|sized| round(sized.private_ms)))),
        ("execute_ms", json!(largest.map(|sized| round(sized.execute_ms)))),
        ("measured", json!(measured)),
        ("programs", sent.iter().map(SizeResult::show).collect()),
        ("fit_start_ms", json!(round(start_ms))),
        ("fit_per_node_ms", json!(round(share_ms))),
        ("fit_skew_ms", json!(round(skew_ms))),
        ("fit_residual", json!(model.execute.residual)),
        ("hop_message_us", json!(model.link.message_s * 1e6)),
        ("hop_bytes_per_s", json!(model.link.bytes_per_s)),
        ("hop_residual", json!(model.link_residual)),
        ("model_bytes", json!(size)),
        ("model", json!(model.rows(size))),
        ("recalled", json!(recalled())),
    ]
}

/// Returns the published launchers, with the times that their fits give for more nodes.
fn recalled() -> Vec<Value> {
    LAUNCHERS
        .iter()
        .map(|launcher| {
            let (what, nodes, seconds) = launcher.point;
            json!({
                "launcher": launcher.name, "what": what, "published_nodes": nodes, "published_s": seconds,
                "fit_4096_s": round((launcher.fit)(4096.0)), "fit_16384_s": round((launcher.fit)(16_384.0)),
            })
        })
        .collect()
}

fn chart(points: &[&Point], sent: &[SizeResult], model: &Model, size: u64) -> Chart {
    let powers = |to: u32| (0..=to).map(|power| f64::from(1_u32 << power));
    let mut series: Vec<Series> = LAUNCHERS
        .iter()
        .zip(2..)
        .map(|(launcher, color)| Series {
            name: format!("{} (fit, recalled)", launcher.name),
            stroke: Stroke::Line,
            color,
            points: powers(14).map(|n| (n, (launcher.fit)(n))).collect(),
        })
        .collect();
    let own = |name: String, stroke, points| Series { name, stroke, color: 0, points };
    let measured = points.iter().map(|point| (f64::from(point.nodes), point.median() / 1e3)).collect();
    series.push(own("Squall, real processes on this machine".into(), Stroke::Dots, measured));
    for (real, copies, color) in [(true, Copies::Private, 2), (true, Copies::Shared, 4), (false, Copies::Private, 3)] {
        let load = points.first().map_or(Load::None, |point| point.load);
        let same = sent.iter().filter(|sized| (sized.real, sized.size, sized.load) == (real, size, load));
        let points: Vec<_> = same.map(|sized| (f64::from(sized.nodes), sized.total_ms(copies) / 1e3)).collect();
        let (name, kind) = (copies.name(), if real { "real" } else { "emulated" });
        let name = format!("Squall, {} MB, {name} copies, {kind} nodes here", size >> 20);
        if !points.is_empty() {
            series.push(Series { name, stroke: Stroke::Dots, color, points });
        }
    }
    let slurm = SLURM.iter().map(|(n, seconds)| (f64::from(*n), *seconds)).collect();
    series.push(Series { name: "Slurm 22.05 on such a machine".into(), stroke: Stroke::Dots, color: 1, points: slurm });
    for ((name, bytes_per_s), color) in NETWORKS.into_iter().zip([0, 6]) {
        let total = |n: f64| (model.send(size, n as u64, bytes_per_s).2 + model.execute_ms(n as u64)) / 1e3;
        let name = format!("Squall, model, {} MB over {name}", size >> 20);
        let points = powers(17).map(|n| (n, total(n))).collect();
        series.push(Series { name, stroke: Stroke::Dashes, color, points });
    }
    let axis = |label: &str| Axis { label: label.into(), log: true };
    Chart { title: "Launch".into(), x: axis("nodes"), y: axis("seconds"), series }
}

#[cfg(test)]
mod tests {
    use squall_engine::fabric::cost::Link;

    use super::fit::Fit;
    use super::{Load, Model, Point, SizeResult, chart, factors, fields, fit};

    fn model() -> Model {
        let execute = Fit { parameters: [5.0, 1.5, 0.5], residual: 0.1 };
        Model { link: Link { message_s: 5e-6, bytes_per_s: 2e9 }, link_residual: 0.1, execute }
    }

    #[test]
    fn the_share_of_this_machine_is_not_taken_for_that_of_a_cluster() {
        let rows = [1_u64, 4, 16, 64].map(|n| (factors(n), 5.0 + 1.5 * n as f64));
        let [start, share, skew] = fit::fit(&rows).parameters;
        assert!((start - 5.0).abs() < 1e-6 && (share - 1.5).abs() < 1e-6 && skew.abs() < 1e-6);
        let model = model();
        assert!(model.execute_ms(16_384) < 5.0 + 1.5 * super::spawn::cores() as f64 + 0.5 * 10.5);
        assert!(model.send(12 << 20, 16_384, 1.165e9).2 < 135.0, "less than STORM's model");
    }

    #[test]
    fn a_figure_says_what_is_measured_and_what_is_model() {
        let point = Point { load: Load::None, nodes: 64, times: vec![40.0, 50.0, 70.0] };
        let picture = chart(&[&point], &[], &model(), 12 << 20);
        assert_eq!(picture.series.iter().filter(|s| s.name.contains("recalled")).count(), 6);
        assert_eq!(picture.series.iter().filter(|s| s.name.contains("model, 12 MB")).count(), 2);
        let row = |nodes| SizeResult {
            real: true,
            load: Load::None,
            nodes,
            size: 12 << 20,
            private_ms: 100.0,
            shared_ms: 10.0,
            execute_ms: 50.0,
        };
        let fields = fields(64, &[point], &[row(1), row(64)], &model(), 12 << 20);
        let of = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1.clone()).unwrap();
        assert_eq!((of("slurm_ms"), of("execute_ms")), (1156.0.into(), 50.0.into()));
        assert_eq!(of("programs")[1]["total_private_ms"], 150.0);
        assert_eq!(of("measured")[0]["fitted_ms"], super::round(5.0 + 96.0 + 0.5 * (64_f64.ln() + 0.58)));
        assert_eq!(of("model").as_array().map(Vec::len), Some(15));
    }
}
