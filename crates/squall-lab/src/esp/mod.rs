//! `squall esp` and `squall bench aggregate`: runs the ESP workload on a cluster and measures the controller's cost.

mod drive;
mod figures;
mod kills;
mod report;
mod workload;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_model::config::Aggregation;

use self::drive::{Manner, PriorityOrder, drive};
use self::figures::{Run, draw, finding, wrong};
use self::kills::Kills;
use self::workload::{Setup, Variant, workload};
use crate::bench::Finding;
use crate::bench::cluster::Cluster;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

/// `squall esp`, for its help, manual page and completion. `squall bench aggregate` has the same options.
pub static PAGE: Page = Page {
    name: "squall esp",
    about: "run the ESP workload on a cluster: utilisation, waits, messages",
    synopsis: &["[--light | --full] [OPTIONS]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Runs the 230 jobs of the Effective System Performance benchmark and reports utilisation, waits, and how many messages of \
nodes reached the controller. Fails if a job did, if a node's end of a job was lost or counted twice, or if a job overtook \
one that waited for the whole machine.\n\
`squall bench aggregate` is the same on 10080 emulated nodes, with all jobs submitted at once, with aggregation and then \
without.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("light", '\0', Arg::None, "run times of Light-ESP (a twelfth; the default)"),
    flag("full", '\0', Arg::None, "run times of ESP-2"),
    flag(
        "nodes",
        '\0',
        Arg::Needed("N"),
        "on a cluster of N emulated nodes that is started for each run (else on the one that runs)",
    ),
    flag("state", '\0', Arg::Needed("DIR"), "on the cluster of that state"),
    flag(
        "run",
        '\0',
        Arg::Needed("HOW"),
        "on, off: with or without aggregation; kills: with it, while collectors are killed; may be repeated",
    ),
    flag(
        "window",
        '\0',
        Arg::Needed("PARAMS"),
        "how far to aggregate, as MsgAggregationParams: WindowMsgs=N,WindowTime=MS",
    ),
    flag("kill-every", '\0', Arg::Needed("S"), "with --run=kills: seconds between two kills [1]"),
    flag("kills", '\0', Arg::Needed("K"), "with --run=kills: number of kills [20]"),
    flag("interval", 'T', Arg::Needed("S"), "mean seconds between submissions after the first 50; 0: all at once [30]"),
    flag("compress", 'C', Arg::Needed("X"), "divide these intervals by X"),
    flag("throughput", 't', Arg::None, "without the two jobs that take the whole machine"),
    flag(
        "first",
        '\0',
        Arg::Needed("ORDER"),
        "which jobs go first: come, or by priority (which takes an operator) wide or long [come]",
    ),
    flag("scale", '\0', Arg::Needed("X"), "real seconds for each second of the workload [1]"),
    flag("pictures", '\0', Arg::Needed("DIR"), "write esp-utilisation and esp-waits there, as SVG"),
    flag("json", '\0', Arg::None, "print one JSON object"),
];

/// Default number of nodes of `bench aggregate`.
const NODES: u32 = 10_080;

/// Whether the cluster aggregates messages in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AggregationMode {
    /// Messages are aggregated.
    On,
    /// Messages are not aggregated.
    Off,
    /// Messages are aggregated, and collectors (relays that aggregate them) are killed meanwhile.
    Kills,
}

impl AggregationMode {
    fn named(word: &str) -> Option<Self> {
        [Self::On, Self::Off, Self::Kills].into_iter().find(|way| way.word() == word)
    }
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Kills => "kills",
        }
    }
}

struct Options {
    variant: Variant,
    nodes: Option<u32>,
    state: Option<PathBuf>,
    ways: Vec<AggregationMode>,
    window: Aggregation,
    kill_every: Duration,
    kills: u32,
    interval_s: u32,
    compress: f64,
    throughput: bool,
    manner: Manner,
    pictures: Option<PathBuf>,
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variant: Variant::Light,
            nodes: None,
            state: None,
            ways: Vec::new(),
            window: Aggregation::default(),
            kill_every: Duration::from_secs(1),
            kills: 20,
            interval_s: 30,
            compress: 1.0,
            throughput: false,
            manner: Manner { scale: 1.0, first: PriorityOrder::Arrival },
            pictures: None,
            json: false,
        }
    }
}

/// Runs `squall esp`.
pub fn run(args: &[OsString]) -> ExitCode {
    report("esp", args, Options::default(), &[AggregationMode::On])
}

/// Runs `squall bench aggregate`.
pub(crate) fn aggregate(args: &[OsString]) -> ExitCode {
    let defaults = Options { interval_s: 0, nodes: Some(NODES), ..Options::default() };
    report("bench aggregate", args, defaults, &[AggregationMode::On, AggregationMode::Off])
}

fn report(name: &str, args: &[OsString], defaults: Options, ways: &[AggregationMode]) -> ExitCode {
    let options = match parse(args, defaults, ways) {
        Ok(Some(options)) => options,
        Ok(None) => {
            crate::print(&PAGE.help());
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("squall {name}: error: {e}; see `squall {name} --help`");
            return ExitCode::from(2);
        }
    };
    let problems = match measure(&options) {
        Ok((finding, problems)) => {
            crate::print(&finding.show(options.json));
            problems
        }
        Err(e) => vec![e],
    };
    for problem in &problems {
        eprintln!("squall {name}: error: {problem}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(args: &[OsString], mut options: Options, ways: &[AggregationMode]) -> Result<Option<Options>, String> {
    let given = PAGE.parse(args)?;
    if given.has("help") {
        return Ok(None);
    }
    if let Some(operand) = given.operands.first() {
        return Err(format!("unexpected argument `{operand}`"));
    }
    for option in &given.options {
        let text = option.text();
        let positive = || positive(option.name, text);
        match option.name {
            "light" => options.variant = Variant::Light,
            "full" => options.variant = Variant::Full,
            "nodes" => options.nodes = given.parsed("nodes")?,
            "state" => (options.state, options.nodes) = (Some(text.into()), None),
            "run" => options.ways.push(word(text, AggregationMode::named)?),
            "window" => options.window = text.to_owned().try_into()?,
            "kill-every" => options.kill_every = Duration::try_from_secs_f64(positive()?).map_err(|e| e.to_string())?,
            "kills" => options.kills = number(option.name, text)?,
            "interval" => options.interval_s = number(option.name, text)?,
            "compress" => options.compress = positive()?,
            "throughput" => options.throughput = true,
            "first" => options.manner.first = word(text, PriorityOrder::named)?,
            "scale" => options.manner.scale = positive()?,
            "pictures" => options.pictures = Some(text.into()),
            _ => options.json = true,
        }
    }
    if options.nodes.is_none() && (given.has("run") || given.has("window")) {
        return Err("--run and --window are for clusters that are started for it: they need --nodes".into());
    }
    if options.ways.is_empty() {
        // A cluster that runs already keeps its configuration.
        options.ways = if options.nodes.is_some() { ways.to_vec() } else { vec![AggregationMode::On] };
    }
    Ok(Some(options))
}

fn word<T>(text: &str, named: fn(&str) -> Option<T>) -> Result<T, String> {
    named(text).ok_or_else(|| format!("`{text}` is no word that is known there"))
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("--{option}={text}: {e}"))
}

fn positive(option: &str, text: &str) -> Result<f64, String> {
    let value: f64 = number(option, text)?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(format!("--{option}={value}: more than 0 is needed")) }
}

/// Runs the workload; returns the figures and the failed checks.
fn measure(options: &Options) -> Result<(Finding, Vec<String>), String> {
    let runs: Vec<Run> = options.ways.iter().map(|&way| run_once(options, way)).collect::<Result<_, _>>()?;
    let name = if options.variant == Variant::Light { "Light-ESP" } else { "ESP-2" };
    if let Some(folder) = &options.pictures {
        draw(folder, name, &runs)?;
    }
    Ok((finding(options, name, &runs), runs.iter().flat_map(wrong).collect()))
}

fn run_once(options: &Options, way: AggregationMode) -> Result<Run, String> {
    // The cluster is shut down when the figures are there.
    let (_own, place) = match (&options.state, options.nodes) {
        (Some(dir), _) => (None, Place::at(dir).map_err(|e| format!("{}: {e}", dir.display()))?),
        (None, Some(nodes)) => {
            let window = if way == AggregationMode::Off { "WindowMsgs=1".to_owned() } else { options.window.into() };
            // No job may overtake one that takes the whole machine.
            let scheduler = "SchedulerType = \"sched/builtin\"";
            let cluster = Cluster::rack(nodes, &format!("msg_aggregation_params = \"{window}\"\n{scheduler}\n"))?;
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
    let kills = match way {
        AggregationMode::Kills => Some(Kills::start(&place, nodes, options.kill_every, options.kills)?),
        AggregationMode::On | AggregationMode::Off => None,
    };
    let driven = drive(&place, &jobs, options.manner)?;
    let kills = kills.map_or(Ok(0), Kills::end)?;
    Ok(Run { way, setup, scale: options.manner.scale, jobs, driven, kills })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use squall_model::wire::fabric::Window;

    use super::drive::PriorityOrder;
    use super::{AggregationMode, Options, parse};

    fn parsed(args: &[&str]) -> Result<Options, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        parse(&args, Options::default(), &[AggregationMode::On, AggregationMode::Off]).map(Option::unwrap)
    }

    #[test]
    fn options() {
        let given = parsed(&["--full", "-T", "0", "-C", "2.5", "-t", "--scale", "0.01", "--nodes", "64"]).unwrap();
        assert_eq!((given.interval_s, given.compress, given.throughput), (0, 2.5, true));
        assert_eq!((given.manner.scale, given.nodes), (0.01, Some(64)));
        assert_eq!(parsed(&["--nodes", "64", "--state", "/x"]).unwrap().nodes, None);
        assert_eq!(parsed(&["--first", "long"]).unwrap().manner.first, PriorityOrder::Long);
        for wrong in [&["--scale", "0"][..], &["-C", "-1"], &["--nosuch"], &["x"], &["-T"], &["--first", "x"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn how_a_cluster_is_run_is_for_own_clusters() {
        let own = parsed(&["--nodes", "64", "--run", "kills", "--run", "off", "--window", "WindowMsgs=10"]).unwrap();
        assert_eq!(own.ways, [AggregationMode::Kills, AggregationMode::Off]);
        assert_eq!(own.window.0, Window { messages: 10, ..Window::default() });
        assert_eq!(parsed(&["--nodes", "64"]).unwrap().ways, [AggregationMode::On, AggregationMode::Off]);
        assert_eq!(parsed(&[]).unwrap().ways, [AggregationMode::On]);
        for wrong in [&["--run", "on"][..], &["--window", "WindowTime=1"], &["--state", "/x", "--run", "off"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
