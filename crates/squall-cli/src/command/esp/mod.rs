//! `squall esp` and `squall bench aggregate`: the ESP workload on a cluster, and what it cost the controller.

mod drive;
mod report;
mod workload;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::Arg;
use serde_json::{Value, json};
use squall_host::place::Place;
use squall_model::wire::info::Diag;

use self::drive::{Driven, Manner, drive};
use self::workload::{Setup, Variant, ideal_s, node_epilogs, workload};
use crate::command::bench::cluster::Cluster;
use crate::command::bench::{Finding, number};
use crate::picture::{Axis, Chart, Series, Stroke};

const USAGE: &str = "\
usage: squall esp [--light | --full] [OPTIONS]
       squall bench aggregate [OPTIONS]

Runs the 230 jobs of the Effective System Performance benchmark and reports utilisation, waits, and how many
messages of nodes reached the controller. `bench aggregate` is the same with -T 0 -t on 10080 emulated nodes.

  --light           run times of Light-ESP (a twelfth; the default)
  --full            run times of ESP-2
  --nodes N         on a cluster of N emulated nodes that is started for it (else on the one that runs)
  --state DIR       on the cluster of that state
  -T, --interval S  mean seconds between submissions after the first 50; 0: all at once [30]
  -C, --compress X  divide these intervals by X
  -t, --throughput  without the two jobs that take the whole machine
  --wide-first      the wider a job, the higher its priority (as PriorityWeightJobSize; needs an operator)
  --scale X         real seconds for each second of the workload [1]
  --pictures DIR    write esp-utilisation and esp-waits there, as SVG and PNG
  --json            one JSON object
";

/// Cores of each emulated node, as in the published runs.
const CORES: u32 = 16;
/// Nodes of `bench aggregate`.
const NODES: u32 = 10_080;

struct Options {
    variant: Variant,
    nodes: Option<u32>,
    state: Option<PathBuf>,
    interval_s: u32,
    compress: f64,
    throughput: bool,
    manner: Manner,
    pictures: Option<PathBuf>,
    json: bool,
}

const SUITE: Options = Options {
    variant: Variant::Light,
    nodes: None,
    state: None,
    interval_s: 30,
    compress: 1.0,
    throughput: false,
    manner: Manner { scale: 1.0, wide_first: false },
    pictures: None,
    json: false,
};

/// Runs `squall esp`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    report("esp", args, SUITE)
}

/// Runs `squall bench aggregate`.
pub(crate) fn aggregate(args: &[OsString]) -> ExitCode {
    report("bench aggregate", args, Options { interval_s: 0, throughput: true, nodes: Some(NODES), ..SUITE })
}

fn report(name: &str, args: &[OsString], defaults: Options) -> ExitCode {
    let options = match parse(args, defaults) {
        Ok(Some(options)) => options,
        Ok(None) => {
            crate::print(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprint!("squall {name}: error: {e}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(figure) => {
            crate::print(&figure.show(options.json));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("squall {name}: error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[OsString], mut options: Options) -> Result<Option<Options>, String> {
    let mut parser = lexopt::Parser::from_args(args.to_vec());
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Arg::Long("light") => options.variant = Variant::Light,
            Arg::Long("full") => options.variant = Variant::Full,
            Arg::Long("nodes") => options.nodes = Some(number(&mut parser)?),
            Arg::Long("state") => {
                let dir = parser.value().map_err(|e| e.to_string())?;
                (options.state, options.nodes) = (Some(dir.into()), None);
            }
            Arg::Long("interval") | Arg::Short('T') => options.interval_s = number(&mut parser)?,
            Arg::Long("compress") | Arg::Short('C') => options.compress = positive(&mut parser)?,
            Arg::Long("throughput") | Arg::Short('t') => options.throughput = true,
            Arg::Long("wide-first") => options.manner.wide_first = true,
            Arg::Long("scale") => options.manner.scale = positive(&mut parser)?,
            Arg::Long("pictures") => options.pictures = Some(parser.value().map_err(|e| e.to_string())?.into()),
            Arg::Long("json") => options.json = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            other => return Err(other.unexpected().to_string()),
        }
    }
    Ok(Some(options))
}

fn positive(parser: &mut lexopt::Parser) -> Result<f64, String> {
    let value: f64 = number(parser)?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(format!("`{value}`: more than 0 is needed")) }
}

fn measure(options: &Options) -> Result<Finding, String> {
    // Ended when the figure is there.
    let (_own, place) = match (&options.state, options.nodes) {
        (Some(dir), _) => (None, Place::at(dir).map_err(|e| format!("{}: {e}", dir.display()))?),
        (None, Some(nodes)) => {
            let cluster = Cluster::rack(nodes, CORES)?;
            let place = cluster.place().clone();
            (Some(cluster), place)
        }
        (None, None) => (None, Place::find().ok_or("no cluster is running here: name one by --state, or use --nodes")?),
    };
    let (nodes, cores) = drive::machine(&place)?;
    let setup = Setup {
        variant: options.variant,
        nodes,
        cores,
        interval_s: options.interval_s,
        compress: options.compress,
        throughput: options.throughput,
    };
    let jobs = workload(&setup);
    let driven = drive(&place, &jobs, options.manner)?;
    if let Some(folder) = &options.pictures {
        draw(folder, &setup, &driven)?;
    }
    Ok(figure(options, &setup, &jobs, &driven))
}

fn figure(options: &Options, setup: &Setup, jobs: &[workload::Job], driven: &Driven) -> Finding {
    let (before, after) = (&driven.before, &driven.after);
    let kinds = since(before, after);
    let (messages, server_us) = kinds.iter().fold((0, 0), |sum, kind| (sum.0 + kind.1, sum.1 + kind.2));
    let oracle = node_epilogs(jobs);
    let counted = after.fabric.node_epilogs - before.fabric.node_epilogs;
    let elapsed_s = report::elapsed_s(&driven.runs);
    let ideal_s = ideal_s(jobs) * options.manner.scale;
    let table: Vec<Value> = kinds
        .iter()
        .map(|(kind, count, us)| {
            let mean_us = us.checked_div(*count);
            json!({ "message_type": kind, "count": count, "average_us": mean_us, "total_us": us })
        })
        .collect();
    let fields = vec![
        ("workload", json!(if setup.variant == Variant::Light { "Light-ESP" } else { "ESP-2" })),
        ("nodes", json!(setup.nodes)),
        ("cores_per_node", json!(setup.cores)),
        ("jobs", json!(jobs.len())),
        ("failed", json!(driven.failed + jobs.len() - driven.runs.len())),
        ("node_epilogs", json!(counted)),
        ("oracle", json!(oracle)),
        ("lost", json!(oracle as i64 - counted as i64)),
        ("server_s", json!(round(server_us as f64 / 1e6))),
        ("elapsed_s", json!(round(elapsed_s))),
        ("ideal_s", json!(round(ideal_s))),
        ("efficiency", json!(round(ideal_s / elapsed_s))),
        ("utilisation_percent", json!(round(report::mean_utilisation(&driven.runs, setup.nodes)))),
        ("mean_wait_s", json!(round(report::mean_wait_s(&driven.runs)))),
        ("overtakers", json!(report::overtakers(&driven.runs))),
        ("scale", json!(options.manner.scale)),
        ("interval_s", json!(setup.interval_s)),
        ("throughput_mode", json!(setup.throughput)),
        ("wide_first", json!(options.manner.wide_first)),
        ("composites", json!(after.fabric.composites - before.fabric.composites)),
        ("repeats", json!(after.fabric.repeats - before.fabric.repeats)),
        ("retransmits", json!(after.fabric.retransmits - before.fabric.retransmits)),
        ("messages_by_type", json!(table)),
    ];
    Finding {
        bench: "aggregate",
        figure: messages as f64,
        unit: "messages of nodes at the controller",
        limit: None,
        fields,
    }
}

/// To a ten thousandth.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Messages of nodes by kind, between two looks at the counters: name, count, microseconds.
fn since<'a>(before: &Diag, after: &'a Diag) -> Vec<(&'a str, u64, u64)> {
    let earlier = |kind: &str| before.messages.iter().find(|m| m.0 == kind).map_or((0, 0), |m| (m.1, m.2));
    // Clients' requests are named REQUEST_…
    let of_nodes = after.messages.iter().filter(|m| m.0.starts_with("MESSAGE_"));
    of_nodes
        .map(|(kind, count, us)| {
            let (count_before, us_before) = earlier(kind);
            (kind.as_str(), count.saturating_sub(count_before), us.saturating_sub(us_before))
        })
        .filter(|(_, count, _)| *count > 0)
        .collect()
}

fn draw(folder: &Path, setup: &Setup, driven: &Driven) -> Result<(), String> {
    let name = if setup.variant == Variant::Light { "Light-ESP" } else { "ESP-2" };
    let title = |what: &str| format!("{what}, {name}, {} nodes of {} cores", setup.nodes, setup.cores);
    let axis = |label: &str| Axis { label: label.into(), log: false };
    let series = |name: &str, points| vec![Series { name: name.into(), stroke: Stroke::Steps, color: 0, points }];
    let utilisation = Chart {
        title: title("Utilisation"),
        x: axis("seconds since the first submission"),
        y: axis("% of the nodes"),
        series: series("nodes that run a job", report::utilisation(&driven.runs, setup.nodes)),
    };
    crate::picture::write(&utilisation, folder, "esp-utilisation")?;
    let waits = Chart {
        title: title("Waits"),
        x: axis("seconds from submission to start"),
        y: axis("% of the jobs"),
        series: series("jobs that waited no longer", report::wait_cdf(&driven.runs)),
    };
    crate::picture::write(&waits, folder, "esp-waits")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use squall_model::wire::info::Diag;

    use super::{SUITE, parse, since};

    #[test]
    fn counters_are_differences_of_what_nodes_said() {
        let counted = |list: &[(&str, u64, u64)]| Diag {
            messages: list.iter().map(|(kind, count, us)| ((*kind).to_owned(), *count, *us)).collect(),
            ..Diag::default()
        };
        let before = counted(&[("MESSAGE_NODE_REPORTS", 10, 100), ("REQUEST_PING", 5, 5)]);
        let after = counted(&[("MESSAGE_COMPOSITE", 3, 30), ("MESSAGE_NODE_REPORTS", 12, 150), ("REQUEST_PING", 9, 9)]);
        assert_eq!(since(&before, &after), [("MESSAGE_COMPOSITE", 3, 30), ("MESSAGE_NODE_REPORTS", 2, 50)]);
    }

    #[test]
    fn options() {
        let parsed =
            |args: &[&str]| parse(&args.iter().map(OsString::from).collect::<Vec<_>>(), SUITE).map(Option::unwrap);
        let given = parsed(&["--full", "-T", "0", "-C", "2.5", "-t", "--scale", "0.01", "--nodes", "64"]).unwrap();
        assert_eq!((given.interval_s, given.compress, given.throughput), (0, 2.5, true));
        assert_eq!((given.manner.scale, given.nodes), (0.01, Some(64)));
        assert_eq!(parsed(&["--nodes", "64", "--state", "/x"]).unwrap().nodes, None);
        for wrong in [&["--scale", "0"][..], &["-C", "-1"], &["--nosuch"], &["x"], &["-T"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
