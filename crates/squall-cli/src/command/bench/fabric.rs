//! `bench fabric`: all figures of the fabric in one table, each beside what it is to beat and what others have.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Finding, Options, round};

/// How much of the workload's time is played.
const SCALE: &str = "0.1";
/// A disk in memory, on most machines.
const MEMORY: &str = "/dev/shm";

/// A figure of the table.
struct Line {
    what: &'static str,
    /// None: it was not found.
    measured: Option<f64>,
    unit: &'static str,
    /// What it is to be: at most, or at least.
    bar: Bar,
    others: &'static str,
}

#[derive(Clone, Copy)]
enum Bar {
    Most(f64),
    Least(f64),
    Exactly(f64),
}

impl Line {
    fn show(&self) -> Value {
        let (word, bar, holds) = match self.bar {
            Bar::Most(bar) => ("at most", bar, self.measured.is_some_and(|x| x <= bar)),
            Bar::Least(bar) => ("at least", bar, self.measured.is_some_and(|x| x >= bar)),
            Bar::Exactly(bar) => ("exactly", bar, self.measured.is_some_and(|x| (x - bar).abs() < 0.5)),
        };
        json!({
            "what": self.what,
            "measured": self.measured.map(round),
            "unit": self.unit,
            "wanted": format!("{word} {bar}"),
            "holds": if holds { "yes" } else { "NO" },
            "others": self.others,
        })
    }
}

/// What one part found, to be looked up.
struct Found(Value);

impl Found {
    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// The cell of the first row of a table in which these cells are so.
    fn cell(&self, table: &str, is: &[(&str, Value)], cell: &str) -> Option<f64> {
        let rows = self.0.get(table)?.as_array()?;
        let row = rows.iter().find(|row| is.iter().all(|(name, value)| row.get(*name) == Some(value)))?;
        row.get(cell)?.as_f64()
    }
}

/// Runs a part, as its own command, and shows people at once what it found. `in_memory`: what nodes keep lies in memory
/// where there is such a disk, as the talk's did; a journal never does.
fn part(options: &Options, in_memory: bool, args: &str) -> Result<Found, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg("bench").args(args.split_whitespace()).arg("--json").stderr(Stdio::inherit());
    let drawn = ["launch", "put", "query", "aggregate"].iter().any(|bench| args.starts_with(bench));
    if let Some(folder) = options.pictures.as_ref().filter(|_| drawn) {
        let throughput = args.contains("--throughput");
        command.arg("--pictures").arg(if throughput { folder.join("throughput") } else { folder.clone() });
    }
    if in_memory && Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    let output = command.output().map_err(|e| e.to_string())?;
    let found: Value = serde_json::from_slice(&output.stdout).map_err(|_| format!("`bench {args}` failed"))?;
    if !options.json {
        crate::print(&super::text(&found));
    }
    Ok(Found(found))
}

pub(super) fn run(options: &Options) -> Result<Finding, String> {
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
    let held = lines.iter().filter(|line| line.show()["holds"] == "yes").count();
    let limit = Some((lines.len() as f64, "figures"));
    let fields = vec![("figures", lines.iter().map(Line::show).collect())];
    Ok(Finding { bench: "fabric", figure: held as f64, unit: "figures hold", limit, fields })
}

fn launches(wide: &Found, wider: &Found) -> Vec<Line> {
    vec![
        Line {
            what: "srun true, 64 nodes, real processes",
            measured: wide.number("figure"),
            unit: "ms",
            bar: Bar::Most(60.0),
            others: "Slurm 1156, Flux 1470; STORM 110 (12 MB, 64 nodes)",
        },
        Line {
            what: "srun true, 256 nodes, real processes",
            measured: wider.number("figure"),
            unit: "ms",
            bar: Bar::Most(250.0),
            others: "Slurm 4381",
        },
    ]
}

fn puts_and_queries(puts: &Found, query: &Found) -> Vec<Line> {
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
    let line = |what, measured, bar, others| Line { what, measured, unit: "ms", bar: Bar::Most(bar), others };
    vec![
        line("12 MB to 64 emulated nodes, private", sent("private"), 110.0, "Slurm sbcast 2636; STORM 96 (recalled)"),
        line("12 MB to 64 emulated nodes, shared", sent("shared"), 10.0, "Slurm sbcast 2636"),
        line("12 MB again, whatever the size", sent("repeat"), 10.0, "Slurm sends it again"),
        line("query, 64 real node daemons", asked("real", 64), 1.0, "46 log2 n: 0.276 (Gigabit Ethernet)"),
        line("query, 10080 emulated nodes", asked("emulated", 10_080), 10.0, "46 log2 n: 0.612 (Gigabit Ethernet)"),
    ]
}

fn whole_machine(wide: &Found) -> Vec<Line> {
    let took = |what: &str, cell| wide.cell("measured", &[("what", json!(what))], cell);
    let only = |way: &str| took(&format!("an only report, aggregation {way}"), "median_ms");
    let ratio = only("on").zip(only("off")).map(|(on, off)| on / off);
    let line = |what, measured, unit, bar, others| Line { what, measured, unit, bar, others };
    vec![
        line("start of a job on 10080 nodes", wide.number("figure"), "ms", Bar::Most(100.0), ""),
        line(
            "its end to durable completion",
            took("end to durable completion", "median_ms"),
            "ms",
            Bar::Most(100.0),
            "Slurm: 64 epilog messages of 1.3 ms each for 64 nodes",
        ),
        line("reports/s at that end", wide.number("reports_per_s_at_the_end"), "1/s", Bar::Least(100_000.0), ""),
        line(
            "an only report, aggregation on against off",
            ratio,
            "times",
            Bar::Most(1.5),
            "Slurm waits for its window",
        ),
    ]
}

fn messages(esp: &Found, throughput: &Found) -> Vec<Line> {
    let kills = esp.0["runs"].as_array().into_iter().flatten().filter_map(|row| row["run"].as_str());
    let kills = kills.into_iter().find(|run| run.ends_with("killed")).unwrap_or_default().to_owned();
    let of = |run: &str, cell| esp.cell("runs", &[("run", json!(run))], cell);
    let (on, off, kills) = ("aggregation on", "aggregation off", kills.as_str());
    let oracle = esp.number("oracle").unwrap_or_default();
    let line = |what, measured, unit, bar, others| Line { what, measured, unit, bar, others };
    let exact = |what, run| line(what, of(run, "node_epilogs"), "ends", Bar::Exactly(oracle), "");
    vec![
        line(
            "Light-ESP, 10080 nodes: messages",
            of(on, "messages"),
            "",
            Bar::Most(3000.0),
            "talk: 7114 with, 230391 without",
        ),
        line(
            "Light-ESP: controller's time on them",
            of(on, "server_s"),
            "s",
            Bar::Most(1.0),
            "talk: 331 with, 5626 without",
        ),
        exact("Light-ESP, aggregation on: ends of jobs on nodes", on),
        exact("Light-ESP, aggregation off: ends of jobs on nodes", off),
        exact("Light-ESP, collectors killed: ends of jobs on nodes", kills),
        line("collectors killed: longest overhead of a job", of(kills, "overhead_max_ms"), "ms", Bar::Most(1000.0), ""),
        line("throughput mode, longest first: efficiency", throughput.number("efficiency"), "", Bar::Least(0.9), ""),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bar, Found, Line};

    #[test]
    fn a_figure_that_was_not_found_does_not_hold() {
        let line = |measured, bar| Line { what: "x", measured, unit: "ms", bar, others: "" }.show()["holds"].clone();
        assert_eq!(line(None, Bar::Most(1.0)), "NO");
        assert_eq!(line(Some(1.0), Bar::Most(1.0)), "yes");
        assert_eq!(line(Some(0.9), Bar::Least(1.0)), "NO");
        assert_eq!(line(Some(229_999.0), Bar::Exactly(230_000.0)), "NO");
    }

    #[test]
    fn a_cell_is_found_by_its_row() {
        let found = Found(json!({ "rows": [{ "a": 1, "b": 2.0 }, { "a": 2, "b": 3.0 }], "n": 7 }));
        assert_eq!(found.cell("rows", &[("a", json!(2))], "b"), Some(3.0));
        assert_eq!(found.cell("rows", &[("a", json!(3))], "b"), None);
        assert_eq!(found.number("n"), Some(7.0));
    }
}
