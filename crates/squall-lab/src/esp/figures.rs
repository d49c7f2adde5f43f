//! Results of a workload's runs: tables, pictures and failed checks.

use std::path::Path;

use serde_json::{Value, json};
use squall_model::wire::info::Diag;

use super::drive::WorkloadResult;
use super::workload::{Job, Setup, ideal_s, node_epilogs};
use super::{AggregationMode, Options, report};
use crate::bench::Finding;
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// One run of the workload on a cluster, with its results.
pub(super) struct Run {
    pub(super) way: AggregationMode,
    pub(super) setup: Setup,
    pub(super) scale: f64,
    pub(super) jobs: Vec<Job>,
    pub(super) driven: WorkloadResult,
    /// Number of collectors (relays that aggregate messages) that were killed.
    pub(super) kills: usize,
}

impl Run {
    fn name(&self) -> String {
        match self.way {
            AggregationMode::On => "aggregation on".into(),
            AggregationMode::Off => "aggregation off".into(),
            AggregationMode::Kills => format!("aggregation on, {} collectors killed", self.kills),
        }
    }

    /// Returns the growth of a counter during the run.
    fn grown(&self, counter: fn(&Diag) -> u64) -> u64 {
        counter(&self.driven.after).saturating_sub(counter(&self.driven.before))
    }

    fn messages(&self) -> u64 {
        self.grown(|diag| diag.fabric.messages)
    }

    fn node_epilogs(&self) -> u64 {
        self.grown(|diag| diag.fabric.node_epilogs)
    }

    /// Returns how many ends of jobs on nodes are missing in the controller's count; negative: some were counted twice.
    fn lost(&self) -> i64 {
        node_epilogs(&self.jobs) as i64 - self.node_epilogs() as i64
    }

    fn failed(&self) -> usize {
        self.driven.failed + self.jobs.len() - self.driven.runs.len()
    }

    /// Returns the main figures of the run, by name.
    fn figures(&self) -> Vec<(&'static str, Value)> {
        let runs = &self.driven.runs;
        let elapsed_s = report::elapsed_s(runs);
        let ideal_s = ideal_s(&self.jobs) * self.scale;
        let [p50, p99, most] = report::overheads_ms(runs, [0.5, 0.99, 1.0]);
        vec![
            ("messages", json!(self.messages())),
            ("server_s", rounded(self.grown(|diag| diag.fabric.messages_us) as f64 / 1e6)),
            ("node_epilogs", json!(self.node_epilogs())),
            ("oracle", json!(node_epilogs(&self.jobs))),
            ("lost", json!(self.lost())),
            ("repeats", json!(self.grown(|diag| diag.fabric.repeats))),
            ("kills", json!(self.kills)),
            ("failed", json!(self.failed())),
            ("elapsed_s", rounded(elapsed_s)),
            ("ideal_s", rounded(ideal_s)),
            ("efficiency", rounded(ideal_s / elapsed_s)),
            ("utilisation_percent", rounded(report::mean_utilisation(runs, self.setup.nodes))),
            ("mean_wait_s", rounded(report::mean_wait_s(runs))),
            ("overhead_p50_ms", rounded(p50)),
            ("overhead_p99_ms", rounded(p99)),
            ("overhead_max_ms", rounded(most)),
        ]
    }
}

/// Returns all figures: those of the first run, then the table of all runs.
pub(super) fn finding(options: &Options, name: &'static str, runs: &[Run]) -> Finding {
    let first = &runs[0];
    let off = runs.iter().find(|run| run.way == AggregationMode::Off).filter(|_| first.way != AggregationMode::Off);
    let setup = &first.setup;
    let mut fields = vec![
        ("workload", json!(name)),
        ("nodes", json!(setup.nodes)),
        ("cores_per_node", json!(setup.cores)),
        ("jobs", json!(first.jobs.len())),
        ("scale", json!(first.scale)),
        ("interval_s", json!(setup.interval_s)),
        ("throughput_mode", json!(setup.throughput)),
        ("first", json!(options.manner.first.word())),
        ("window", json!(String::from(options.window))),
    ];
    fields.extend(first.figures().into_iter().skip(1));
    let table = runs.iter().map(|run| row("run", &run.name(), run.figures())).chain(talk()).collect();
    fields.push(("runs", Value::Array(table)));
    fields.push(("messages_by_type", Value::Array(runs.iter().flat_map(by_type).collect())));
    Finding {
        bench: "aggregate",
        figure: first.messages() as f64,
        unit: "messages of nodes at the controller",
        limit: off.map(|off| (off.messages() as f64, "without aggregation, in the same run")),
        fields,
    }
}

fn row(title: &str, name: &str, cells: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let title = (title.to_owned(), json!(name));
    Value::Object(std::iter::once(title).chain(cells.into_iter().map(|(key, value)| (key.to_owned(), value))).collect())
}

/// Figures of Slurm 15.08 with Light-ESP on emulated nodes of 16 cores, from the talk "Message Aggregation" (Slurm User
/// Group 2015): messages are ends of jobs on nodes, or composites. The time of the run on 5040 nodes with aggregation
/// does not fit its count, and is left out.
fn talk() -> impl Iterator<Item = Value> {
    let rows = [
        ("Slurm 15.08, 10080 nodes, on", 7114, Some(331)),
        ("Slurm 15.08, 10080 nodes, off", 230_391, Some(5626)),
        ("Slurm 15.08, 5040 nodes, on", 2580, None),
        ("Slurm 15.08, 5040 nodes, off", 115_324, Some(1006)),
    ];
    rows.into_iter().map(|(name, messages, server_s)| {
        row("run", name, [("messages", json!(messages)), ("server_s", json!(server_s))])
    })
}

/// Returns the counters of all message types, clients' requests included.
fn by_type(run: &Run) -> Vec<Value> {
    let counted = since(&run.driven.before, &run.driven.after);
    let row_of = |(kind, count, us): (&str, u64, u64)| {
        let cells = [
            ("run", json!(run.way.word())),
            ("count", json!(count)),
            ("average_us", json!(us.checked_div(count))),
            ("total_us", json!(us)),
        ];
        row("message_type", kind, cells)
    };
    counted.into_iter().map(row_of).collect()
}

/// Returns name, count and microseconds of each message type between two readings of the counters.
fn since<'a>(before: &Diag, after: &'a Diag) -> Vec<(&'a str, u64, u64)> {
    let earlier = |kind: &str| before.messages.iter().find(|m| m.0 == kind).map_or((0, 0), |m| (m.1, m.2));
    let grown = |(kind, count, us): &'a (String, u64, u64)| {
        let (count_before, us_before) = earlier(kind);
        (kind.as_str(), count.saturating_sub(count_before), us.saturating_sub(us_before))
    };
    after.messages.iter().map(grown).filter(|(_, count, _)| *count > 0).collect()
}

/// Returns descriptions of the checks that the run failed.
pub(super) fn wrong(run: &Run) -> Vec<String> {
    let overtakers = report::overtakers(&run.driven.runs);
    let mut wrong = Vec::new();
    if run.lost() != 0 {
        let (counted, right) = (run.node_epilogs(), node_epilogs(&run.jobs));
        wrong.push(format!("{}: {counted} ends of jobs on nodes were counted, not {right}", run.name()));
    }
    if run.failed() > 0 {
        wrong.push(format!("{}: {} jobs did not end well", run.name(), run.failed()));
    }
    if overtakers > 0 {
        wrong.push(format!("{}: {overtakers} jobs overtook one for the whole machine", run.name()));
    }
    wrong
}

/// Writes the pictures, with a line for each run.
pub(super) fn draw(folder: &Path, name: &str, runs: &[Run]) -> Result<(), String> {
    let Setup { nodes, cores, .. } = runs[0].setup;
    let chart = |what: &str, x: &str, y: &str, points: &dyn Fn(&Run) -> Vec<(f64, f64)>| {
        let axis = |label: &str| Axis { label: label.into(), log: false };
        let series = |(color, run): (usize, &Run)| Series {
            name: run.name(),
            stroke: Stroke::Steps,
            color,
            points: points(run),
        };
        Chart {
            title: format!("{what}, {name}, {nodes} nodes of {cores} cores"),
            x: axis(x),
            y: axis(y),
            series: runs.iter().enumerate().map(series).collect(),
        }
    };
    let used = |run: &Run| report::utilisation(&run.driven.runs, nodes);
    let utilisation = chart("Utilisation", "seconds since the first submission", "% of the nodes", &used);
    write_picture(&utilisation.svg(), folder, "esp-utilisation")?;
    let waits = |run: &Run| report::wait_cdf(&run.driven.runs);
    let waits = chart("Waits", "seconds from submission to start", "% of the jobs that waited no longer", &waits);
    write_picture(&waits.svg(), folder, "esp-waits")
}

/// Rounds to four decimals.
fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use squall_model::wire::info::{Diag, FabricCounts};

    use super::super::drive::WorkloadResult;
    use super::super::report::Ran;
    use super::super::workload::{Setup, Variant, node_epilogs, workload};
    use super::super::{AggregationMode, Options};
    use super::{Run, finding, since, wrong};

    #[test]
    fn counters_are_differences() {
        let counted = |list: &[(&str, u64, u64)]| Diag {
            messages: list.iter().map(|(kind, count, us)| ((*kind).to_owned(), *count, *us)).collect(),
            ..Diag::default()
        };
        let before = counted(&[("MESSAGE_NODE_REPORTS", 10, 100), ("REQUEST_PING", 5, 5)]);
        let after = counted(&[("MESSAGE_COMPOSITE", 3, 30), ("MESSAGE_NODE_REPORTS", 12, 150), ("REQUEST_PING", 5, 5)]);
        assert_eq!(since(&before, &after), [("MESSAGE_COMPOSITE", 3, 30), ("MESSAGE_NODE_REPORTS", 2, 50)]);
    }

    /// Returns a run with jobs of no duration, in which the controller counted `messages` messages and `ends` ends too
    /// many.
    fn run(way: AggregationMode, messages: u64, ends: i64) -> Run {
        let (variant, interval_s, compress) = (Variant::Light, 0, 1.0);
        let setup = Setup { variant, nodes: 64, cores: 16, interval_s, compress, throughput: false };
        let jobs = workload(&setup);
        let node_epilogs = node_epilogs(&jobs).strict_add_signed(ends);
        let fabric = FabricCounts { messages, node_epilogs, ..FabricCounts::default() };
        let after = Diag { fabric, ..Diag::default() };
        let ran = |nodes| Ran { nodes, full: false, submit_s: 0.0, start_s: 0.0, end_s: 1.0, done_s: 1.0, run_s: 1.0 };
        let runs = jobs.iter().map(|job| ran(job.nodes)).collect();
        let driven = WorkloadResult { runs, failed: 0, before: Diag::default(), after };
        Run { way, setup, scale: 1.0, jobs, driven, kills: 0 }
    }

    #[test]
    fn an_end_that_is_lost_or_counted_twice_is_wrong() {
        assert!(wrong(&run(AggregationMode::On, 10, 0)).is_empty());
        assert_eq!(wrong(&run(AggregationMode::On, 10, -1)).len(), 1);
        assert_eq!(wrong(&run(AggregationMode::On, 10, 1)).len(), 1);
        let mut without = run(AggregationMode::On, 10, 0);
        without.driven.runs.pop();
        assert_eq!(wrong(&without).len(), 1, "a job of which nothing is known");
    }

    #[test]
    fn the_figure_stands_beside_the_one_without_aggregation() {
        let runs = [run(AggregationMode::On, 10, 0), run(AggregationMode::Off, 400, 0)];
        let found = finding(&Options::default(), "Light-ESP", &runs);
        assert_eq!(found.limit.map(|limit| limit.0 as u64), Some(400));
        let text = found.show(false);
        assert!(text.contains("aggregation off") && text.contains("7114"), "{text}");
        assert!(finding(&Options::default(), "Light-ESP", &runs[1..]).limit.is_none());
    }
}
