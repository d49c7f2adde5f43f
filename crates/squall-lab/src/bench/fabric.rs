//! `bench fabric`: all figures of the fabric in one table, each with its target and the results of others.

use std::path::Path;

use serde_json::json;

use super::table::{self, Bar, BenchOutput, FigureRow};
use super::{BenchOptions, Finding};

/// Factor by which the times of the ESP workload are multiplied.
const SCALE: &str = "0.1";
/// Folder of a file system in memory that most machines have.
const MEMORY: &str = "/dev/shm";

/// Runs one of the benchmarks in the table. `in_memory`: the nodes' files are kept in memory if possible, as in the
/// STORM talk; a journal never is.
fn part(options: &BenchOptions, in_memory: bool, args: &str) -> Result<BenchOutput, String> {
    let mut command = table::bench()?;
    command.args(args.split_whitespace());
    let drawn = ["launch", "put", "query", "aggregate"].iter().any(|bench| args.starts_with(bench));
    if let Some(folder) = options.pictures.as_ref().filter(|_| drawn) {
        let throughput = args.contains("--throughput");
        command.arg("--pictures").arg(if throughput { folder.join("throughput") } else { folder.clone() });
    }
    if in_memory && Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    table::part(options, command)
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let loads = "--load unloaded --load cpu --load network";
    let launch_64 = part(options, true, &format!("launch --nodes 64 --sizes --emulated 256 {loads}"))?;
    let launch_256 = part(options, true, "launch --nodes 256")?;
    let puts = part(options, true, &format!("put --nodes 256 --real 64 {loads}"))?;
    let query = part(options, true, &format!("query {loads}"))?;
    part(options, false, "hop")?;
    let wide = part(options, false, "wide")?;
    let esp = part(options, false, &format!("aggregate --scale {SCALE} --run on --run off --run kills"))?;
    let throughput = format!("aggregate --scale {SCALE} --run on --throughput --first long");
    let throughput = part(options, false, &throughput)?;
    let mut lines = launches(&launch_64, &launch_256);
    lines.extend(puts_and_queries(&puts, &query));
    lines.extend(whole_machine(&wide));
    lines.extend(messages(&esp, &throughput));
    Ok(table::of("fabric", &lines))
}

fn launches(wide: &BenchOutput, wider: &BenchOutput) -> Vec<FigureRow> {
    vec![
        FigureRow::new(
            "srun true, 64 nodes, real processes",
            wide.number("figure"),
            "ms",
            Bar::Most(60.0),
            "Slurm 1156, Flux 1470; STORM 110 (12 MB, 64 nodes)",
        ),
        FigureRow::new(
            "srun true, 256 nodes, real processes",
            wider.number("figure"),
            "ms",
            Bar::Most(250.0),
            "Slurm 4381",
        ),
    ]
}

fn puts_and_queries(puts: &BenchOutput, query: &BenchOutput) -> Vec<FigureRow> {
    let sent = |copies: &str| {
        let is = [
            ("copies", json!(copies)),
            ("kind", json!("emulated")),
            ("load", json!("unloaded")),
            ("nodes", json!(64)),
            ("bytes", json!(12 << 20)),
        ];
        puts.cell("measured", &is, "median_ms")
    };
    let asked = |kind: &str, nodes: u32| {
        let is = [("kind", json!(kind)), ("load", json!("unloaded")), ("nodes", json!(nodes))];
        query.cell("measured", &is, "median_us").map(|us| us / 1e3)
    };
    let line = |what, measured, bar, others| FigureRow::new(what, measured, "ms", Bar::Most(bar), others);
    vec![
        line("12 MB to 64 emulated nodes, private", sent("private"), 110.0, "Slurm sbcast 2636; STORM 96 (recalled)"),
        line("12 MB to 64 emulated nodes, shared", sent("shared"), 10.0, "Slurm sbcast 2636"),
        line("12 MB again, whatever the size", sent("repeat"), 10.0, "Slurm sends it again"),
        line("query, 64 real node daemons", asked("real", 64), 1.0, "46 log2 n: 0.276 (Gigabit Ethernet)"),
        line("query, 10080 emulated nodes", asked("emulated", 10_080), 10.0, "46 log2 n: 0.612 (Gigabit Ethernet)"),
    ]
}

fn whole_machine(wide: &BenchOutput) -> Vec<FigureRow> {
    let took = |what: &str, cell| wide.cell("measured", &[("what", json!(what))], cell);
    let only = |way: &str| took(&format!("an only report, aggregation {way}"), "median_ms");
    let ratio = only("on").zip(only("off")).map(|(on, off)| on / off);
    vec![
        FigureRow::new("start of a job on 10080 nodes", wide.number("figure"), "ms", Bar::Most(100.0), ""),
        FigureRow::new(
            "its end to durable completion",
            took("end to durable completion", "median_ms"),
            "ms",
            Bar::Most(100.0),
            "Slurm: 64 epilog messages of 1.3 ms each for 64 nodes",
        ),
        FigureRow::new(
            "reports/s at that end",
            wide.number("reports_per_s_at_the_end"),
            "1/s",
            Bar::Least(100_000.0),
            "",
        ),
        FigureRow::new(
            "an only report, aggregation on against off",
            ratio,
            "times",
            Bar::Most(1.5),
            "Slurm waits for its window",
        ),
    ]
}

fn messages(esp: &BenchOutput, throughput: &BenchOutput) -> Vec<FigureRow> {
    let kills = esp.rows("runs").iter().filter_map(|row| row["run"].as_str());
    let kills = kills.into_iter().find(|run| run.ends_with("killed")).unwrap_or_default().to_owned();
    let of = |run: &str, cell| esp.cell("runs", &[("run", json!(run))], cell);
    let (on, off, kills) = ("aggregation on", "aggregation off", kills.as_str());
    let oracle = esp.number("oracle").unwrap_or_default();
    let exact = |what, run| FigureRow::new(what, of(run, "node_epilogs"), "ends", Bar::Exactly(oracle), "");
    vec![
        FigureRow::new(
            "Light-ESP, 10080 nodes: messages",
            of(on, "messages"),
            "",
            Bar::Most(3000.0),
            "talk: 7114 with, 230391 without",
        ),
        FigureRow::new(
            "Light-ESP: controller's time on them",
            of(on, "server_s"),
            "s",
            Bar::Most(1.0),
            "talk: 331 with, 5626 without",
        ),
        exact("Light-ESP, aggregation on: ends of jobs on nodes", on),
        exact("Light-ESP, aggregation off: ends of jobs on nodes", off),
        exact("Light-ESP, collectors killed: ends of jobs on nodes", kills),
        FigureRow::new(
            "collectors killed: longest overhead of a job",
            of(kills, "overhead_max_ms"),
            "ms",
            Bar::Most(1000.0),
            "",
        ),
        FigureRow::new(
            "throughput mode, longest first: efficiency",
            throughput.number("efficiency"),
            "",
            Bar::Least(0.9),
            "",
        ),
    ]
}
