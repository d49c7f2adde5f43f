//! `bench scheduling`: all figures of scheduling in one table, each with its target, and the results of the Blue Waters
//! talk and of others.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::anchors::{self, Anchor};
use super::table::{self, Bar, BenchOutput, FigureRow};
use super::{BenchOptions, Finding};
use squall_replay::trace::is_trace;

/// Allowed deviation of mean waits from the known ones, percent.
const MEAN_PERCENT: f64 = 0.1;
/// Allowed error of the model of the halo exchange, percent.
const HALO_PERCENT: f64 = 15.0;
/// Trace with target rates of its replay, jobs per second: (name, with FCFS, with EASY).
const RATED: (&str, f64, f64) = ("HPC2N-2002-2.1-cln", 1e6, 3e5);

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let traces = all(&options.traces)?;
    let part = |name: &str| {
        let mut command = table::bench()?;
        command.arg(name);
        table::part(options, command)
    };
    // Traces first: an unreadable trace is then reported at once.
    let mut replays = Vec::new();
    for trace in &traces {
        let known = anchors::of(trace);
        let mut command = table::bench()?;
        command.arg("replay").arg(trace);
        if let Some(known) = known {
            command.arg("--procs").arg(known.processors.to_string());
        }
        if let Some(peer) = &options.peer {
            command.arg("--peer").arg(peer);
        }
        replays.extend(replayed(known, &table::part(options, command)?));
    }
    let mut lines = passes(&part("schedule")?);
    lines.extend(replays);
    lines.extend(prisms(&part("place")?));
    lines.extend(layouts(&part("layout")?));
    lines.extend(blue_waters(&part("bluewaters")?));
    lines.extend(live(&part("torus")?));
    Ok(table::of("scheduling", &lines))
}

/// Returns the trace files in `named`: files by themselves, and those in folders.
fn all(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut traces = Vec::new();
    for path in named {
        let problem = |e: std::io::Error| format!("{}: {e}", path.display());
        if !std::fs::metadata(path).map_err(problem)?.is_dir() {
            traces.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).map_err(problem)?;
        let files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        let mut files = files.map_err(problem)?;
        files.retain(|file| is_trace(file));
        if files.is_empty() {
            return Err(format!("{}: there is no trace (.swf, .swf.gz) in this folder", path.display()));
        }
        files.sort();
        traces.extend(files);
    }
    Ok(traces)
}

fn passes(found: &BenchOutput) -> Vec<FigureRow> {
    vec![
        FigureRow::new(
            "a pass over 100000 jobs that wait for 10000 nodes",
            found.number("full_pass_ms"),
            "ms",
            Bar::Most(10.0),
            "",
        ),
        FigureRow::new("the pass after one job's end", found.number("after_one_end_us"), "us", Bar::Most(100.0), ""),
    ]
}

/// Returns the lines of the table for one trace: found results, with the known ones as targets.
fn replayed(known: Option<&Anchor>, found: &BenchOutput) -> Vec<FigureRow> {
    let file = found.0["trace"].as_str().unwrap_or_default();
    let trace = file.split_once(".swf").map_or(file, |(name, _)| name);
    // A different trace with the same name has no known results.
    let known = known.filter(|known| found.0["jobs"].as_u64() == Some(known.jobs));
    let of = |policy: &str, cell: &str| found.cell("policies", &[("policy", json!(policy))], cell);
    let others = |at: usize| known.map_or("", |known| known.others[at]);
    let mean = |pick: fn(&Anchor) -> f64| known.map_or(Bar::Any, |known| Bar::Within(pick(known), MEAN_PERCENT));
    let rate = |bar| if known.is_some_and(|known| known.name == RATED.0) { Bar::Least(bar) } else { Bar::Any };
    let line = |what: &str, measured, unit, bar, others| {
        FigureRow::new(format!("{trace}: {what}"), measured, unit, bar, others)
    };
    let sum = known.map_or(Bar::Any, |known| Bar::Exactly(known.fcfs_sum_s));
    let mut lines = vec![
        line("FCFS, sum of waits", of("fcfs", "sum_wait_s"), "s", sum, others(0)),
        line("EASY, mean wait", of("easy", "mean_wait_s"), "s", mean(|known| known.easy_mean_s), others(1)),
        line("EASY-SJBF, mean wait", of("easy-sjbf", "mean_wait_s"), "s", mean(|known| known.shortest_mean_s), ""),
        line("conservative, mean wait", of("conservative", "mean_wait_s"), "s", Bar::Any, others(2)),
        line("FCFS, replayed", of("fcfs", "jobs_per_s"), "jobs/s", rate(RATED.1), ""),
        line("EASY, replayed", of("easy", "jobs_per_s"), "jobs/s", rate(RATED.2), ""),
    ];
    if let Some(peer) = found.0.get("peer") {
        let (name, speed) = (peer["peer"].as_str().unwrap_or("the peer"), peer["jobs_per_s"].as_f64());
        let own = of("fcfs", "jobs_per_s");
        let ratio = own.zip(speed).map(|(own, speed)| own / speed);
        let said = format!("{name}: {:.0} jobs/s in the same run", speed.unwrap_or_default());
        lines.push(FigureRow::new(format!("{trace}: FCFS beside {name}"), ratio, "times", Bar::Any, said));
    }
    lines
}

fn prisms(found: &BenchOutput) -> Vec<FigureRow> {
    vec![
        FigureRow::new(
            "all closed prisms on 24^3 with 108 holes, p99",
            found.number("figure"),
            "us",
            Bar::Most(300.0),
            "Moab: a table of shapes, slow; Slurm's torus3d: shapes of a list only",
        ),
        FigureRow::new("the same on 64^3", found.number("large_p99_us"), "us", Bar::Most(5000.0), ""),
        FigureRow::new(
            "links that two of a million allocations share",
            found.number("links_shared"),
            "links",
            Bar::Exactly(0.0),
            "",
        ),
    ]
}

fn layouts(found: &BenchOutput) -> Vec<FigureRow> {
    let cell = |row: &Value, name: &str| row[name].as_f64();
    let rows = found.rows("halo");
    let halo = |row: &Value| {
        let talk = cell(row, "talk_ms").unwrap_or_default();
        let what = format!("halo of 32^3 tasks, {}", row["placement"].as_str().unwrap_or_default());
        let said = format!("talk: {talk} measured");
        FigureRow::new(what, cell(row, "model_ms"), "ms (model)", Bar::Within(talk, HALO_PERCENT), said)
    };
    let mut lines: Vec<FigureRow> = rows.iter().map(halo).collect();
    let times: Vec<f64> = rows.iter().filter_map(|row| cell(row, "model_ms")).collect();
    let worse = |row: &&Value| cell(row, "worst") > cell(row, "talk_worst");
    let (none, most) = ((times.len() == rows.len() && !rows.is_empty()).then_some(()), Bar::Exactly(0.0));
    lines.extend([
        FigureRow::new(
            "halo: rows out of the talk's order",
            none.map(|()| out_of_order(&times) as f64),
            "rows",
            most,
            "talk: Default > Grid_order > 8x8x8 > the unbalanced",
        ),
        FigureRow::new(
            "halo: layouts whose worst link carries more than the talk's",
            none.map(|()| rows.iter().filter(worse).count() as f64),
            "rows",
            most,
            "",
        ),
        FigureRow::new(
            "around one hole, messages on the worst link",
            found.number("one_hole_worst"),
            "",
            Bar::Most(24.0),
            format!("only its pencil going round: {}", found.number("one_hole_naive").unwrap_or_default()),
        ),
        FigureRow::new(
            "MILC 21x2x21x24, times faster than grid_order",
            found.number("milc_ratio"),
            "times (model)",
            Bar::Least(2.0),
            format!("talk: {}", found.number("milc_talk_ratio").unwrap_or_default()),
        ),
    ]);
    lines
}

/// Counts durations that break the order of the Blue Waters talk: each of the first three placements is quicker than
/// the one before, and all others are quicker than the third.
fn out_of_order(times: &[f64]) -> usize {
    (1..times.len()).filter(|&at| times[at] >= times[(at - 1).min(2)]).count()
}

fn blue_waters(found: &BenchOutput) -> Vec<FigureRow> {
    let of = |placement: &str, cell: &str| found.cell("placements", &[("placement", json!(placement))], cell);
    let here = |cell: &str| {
        let list = ["default order", "2Y order", "fixed shapes (torus3d-like)"];
        let each = list.map(|name| format!("{name} {}", of(name, cell).unwrap_or_default()));
        each.join(", ")
    };
    let exact = |cell: &str| of("prisms, exact rule", cell);
    vec![
        FigureRow::new(
            "Blue Waters, prisms by the exact rule: utilisation",
            exact("utilisation"),
            "(model)",
            Bar::Least(0.8),
            format!("talk: 0.711 tested, 0.77 hoped for, 0.9 by its list; here: {}", here("utilisation")),
        ),
        FigureRow::new(
            "effective throughput beside the default order's",
            exact("against_default"),
            "times (model)",
            Bar::Least(1.25),
            format!("talk: 1.19; here: {}", here("against_default")),
        ),
        FigureRow::new(
            "the same by the talk's formula",
            exact("by_talk"),
            "times (model)",
            Bar::Least(1.25),
            format!("talk: 1.19; here: {}", here("by_talk")),
        ),
        FigureRow::new(
            "variation of sensitive jobs' run times",
            exact("cov_percent"),
            "% (model)",
            Bar::Most(2.0),
            format!("talk: less than 2; here: {}", here("cov_percent")),
        ),
    ]
}

fn live(found: &BenchOutput) -> Vec<FigureRow> {
    let all = found.number("limit").map_or(Bar::Any, Bar::Exactly);
    vec![FigureRow::new("jobs placed by a live cluster as in the simulator", found.number("figure"), "jobs", all, "")]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::table::{self, BenchOutput, FigureRow};
    use super::{all, anchors, blue_waters, layouts, out_of_order, replayed};

    fn shown(lines: &[FigureRow]) -> Vec<Value> {
        let finding = table::of("x", lines);
        finding.fields[0].1.as_array().unwrap().clone()
    }

    #[test]
    fn a_trace_is_held_against_what_is_known_of_it() {
        let found = |jobs: u64, sum: u64| {
            let row = |policy: &str, mean: f64| json!({ "policy": policy, "sum_wait_s": sum, "mean_wait_s": mean, "jobs_per_s": 2e6 });
            let rows = [row("fcfs", 1.0), row("easy", 10_800.0), row("easy-sjbf", 10_300.0), row("conservative", 1.0)];
            let peer = json!({ "peer": "AccaSim FIFO", "jobs_per_s": 4e3 });
            BenchOutput(json!({ "trace": "HPC2N-2002-2.1-cln.swf.gz", "jobs": jobs, "policies": rows, "peer": peer }))
        };
        let known = anchors::of(Path::new("HPC2N-2002-2.1-cln.swf.gz"));
        let holds = |found: &BenchOutput| -> Vec<String> {
            shown(&replayed(known, found)).iter().map(|row| row["holds"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(holds(&found(202_876, 3_284_308_749)), ["yes", "yes", "NO", "", "yes", "yes", ""]);
        assert_eq!(holds(&found(202_876, 3_284_308_748))[0], "NO", "a second is one too many");
        assert!(holds(&found(7, 1)).iter().all(String::is_empty), "another trace under that name");
        let rows = shown(&replayed(known, &found(202_876, 1)));
        let last = rows.last().unwrap();
        assert_eq!(last["what"], "HPC2N-2002-2.1-cln: FCFS beside AccaSim FIFO");
        assert_eq!(
            (&last["measured"], &last["others"]),
            (&json!(500.0), &json!("AccaSim FIFO: 4000 jobs/s in the same run"))
        );
    }

    #[test]
    fn rows_that_were_not_found_hold_nothing() {
        let nothing = BenchOutput(json!({}));
        let rows = shown(&layouts(&nothing)).into_iter().chain(shown(&blue_waters(&nothing)));
        assert!(rows.into_iter().all(|row| row["holds"] == "NO"));
    }

    #[test]
    fn the_order_is_the_talks() {
        assert_eq!(out_of_order(&[11.0, 7.0, 2.0, 1.0, 1.9]), 0);
        assert_eq!(out_of_order(&[11.0, 7.0, 2.0, 2.5, 1.0]), 1);
        assert_eq!(out_of_order(&[7.0, 11.0, 2.0]), 1);
    }

    #[test]
    fn a_folder_is_its_traces() {
        let folder = std::env::temp_dir().join(format!("squall-traces-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(all(std::slice::from_ref(&folder)).unwrap_err().contains("no trace"));
        for name in ["b.swf.gz", "a.swf", "README.md"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let found = all(&[folder.join("README.md"), folder.clone()]).unwrap();
        assert_eq!(found, ["README.md", "a.swf", "b.swf.gz"].map(|name| folder.join(name)));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(all(&[folder]).is_err());
    }
}
