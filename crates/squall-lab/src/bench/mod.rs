//! `squall bench`: performance figures of this machine, each with the bare limit measured in the same run.

#[cfg(feature = "research")]
mod anchors;
#[cfg(feature = "research")]
mod aside;
#[cfg(feature = "research")]
mod blue;
mod clients;
pub(crate) mod cluster;
mod emulated;
#[cfg(feature = "research")]
mod ettr;
mod fabric;
mod gang;
mod groups;
mod hop;
mod jobs;
mod ladder;
mod launch;
#[cfg(feature = "research")]
mod layout;
mod load;
mod mpi;
mod place;
mod put;
mod query;
mod records;
mod replay;
mod restart;
mod schedule;
#[cfg(feature = "research")]
mod scheduling;
mod segments;
mod shmem;
mod spawn;
mod submit;
mod table;
mod throughput;
#[cfg(feature = "research")]
mod torus;
mod wide;
mod wires;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

use self::load::Load;

/// Numbers of nodes for which the models give estimates.
const MODEL_NODES: [u64; 5] = [64, 1024, 4096, 16_384, 100_000];
/// Networks for which the models give estimates, in addition to the one measured here: name, bytes per second.
const NETWORKS: [(&str, f64); 2] = [("10 GbE", 1.165e9), ("100 GbE", 9e9)];

/// `squall bench`, for its help, manual page and completion.
pub static PAGE: Page = Page {
    name: "squall bench",
    about: "measure this machine: throughput, launch, scheduling, MPI, gangs",
    synopsis: &[
        "spawn [--workers N] [--seconds S] [--json]",
        "throughput [--jobs N] [--clients C] [--slots N] [--cells N] [--ladder] [--json]",
        "throughput --emulated NODES [--jobs N] [--clients C] [--cells N] [--ladder] [--json]",
        "submit [--jobs N] [--clients C] [--state DIR] [--json]",
        "clients [--jobs N] [--json]",
        "jobs [--json]",
        "restart [--pending N] [--running N] [--json]",
        "records [--jobs N] [--clients C] [--json]",
        "launch [--nodes N] [--sizes] [--emulated N] [--size BYTES] [--load unloaded|cpu|network]... [--pictures DIR] [--json]",
        "put [--nodes EMULATED] [--real N] [--size BYTES] [--load unloaded|cpu|network]... [--pictures DIR] [--json]",
        "query [--nodes EMULATED] [--real N] [--load unloaded|cpu|network]... [--pictures DIR] [--json]",
        "hop [--size BYTES] [--json]",
        "mpi [--nodes N] [--json]",
        "shmem [--nodes N] [--json]",
        "pingpong [--pictures DIR] [--json]",
        "fence [--nodes N] [--pictures DIR] [--json]",
        "wide [--nodes EMULATED] [--jobs N] [--json]",
        "layout [--json]",
        "bluewaters [--seeds N] [--seconds WINDOW] [--pending N] [--variant equal|gpus|patterns|fragmented]... [--pictures DIR] [--swf FILE] [--json]",
        "torus [--nodes EXTENT] [--jobs N] [--seeds SEED] [--json]",
        "place [--jobs ALLOCATIONS] [--json]",
        "replay TRACE.swf[.gz] [--procs N] [--peer COMMAND] [--json]",
        "schedule [--nodes N] [--pending N] [--json]",
        "segments [--nodes N] [--jobs N] [--seeds N] [--json]",
        "groups [--nodes N] [--seeds N] [--json]",
        "scheduling [TRACE.swf[.gz]|DIR]... [--peer COMMAND] [--json]",
        "gang [--part policies|switch|strobe|sweep|mpi|mixed|start]... [--quantum US]... [--jobs PAIRS] [--nodes EMULATED] [--pictures DIR] [--json]",
        "ettr [--pictures DIR] [--json]",
        "aside TRACE.swf[.gz]... [--procs N] [--seconds COST] [--json]",
        "aggregate [--help | OPTIONS] [--json]",
        "fabric [--pictures DIR] [--json]",
    ],
    options: Options::Own(FLAGS),
    notes: "jobs, fabric and scheduling are tables of several benchmarks. Each benchmark uses some of the options.\n",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("jobs", '\0', Arg::Needed("N"), "number of jobs"),
    flag("clients", '\0', Arg::Needed("N"), "number of clients that submit, or list"),
    flag("state", '\0', Arg::Needed("DIR"), "state folder of a cluster that runs (otherwise one is started)"),
    flag("workers", '\0', Arg::Needed("N"), "number of processes that spawn"),
    flag("slots", '\0', Arg::Needed("N"), "CPUs of the node"),
    flag("cells", '\0', Arg::Needed("N"), "controllers behind a front"),
    flag("seconds", '\0', Arg::Needed("S"), "duration of the measurement"),
    flag("seeds", '\0', Arg::Needed("N"), "number of workloads, or the seed of one"),
    flag("pending", '\0', Arg::Needed("N"), "number of pending jobs"),
    flag("running", '\0', Arg::Needed("N"), "number of running jobs"),
    flag("nodes", '\0', Arg::Needed("N"), "number of nodes"),
    flag("real", '\0', Arg::Needed("N"), "number of nodes that are not emulated"),
    flag("emulated", '\0', Arg::Needed("N"), "number of emulated nodes"),
    flag("size", '\0', Arg::Needed("BYTES"), "size of the program or the message"),
    flag("sizes", '\0', Arg::None, "also send programs of several sizes"),
    flag("ladder", '\0', Arg::None, "also measure the gain of each optimisation"),
    flag("load", '\0', Arg::Needed("LOAD"), "load meanwhile: unloaded, cpu or network; may be repeated"),
    flag("part", '\0', Arg::Needed("PART"), "part of the benchmark to run; may be repeated"),
    flag("variant", '\0', Arg::Needed("NAME"), "variant of the workload; may be repeated"),
    flag("quantum", '\0', Arg::Needed("US"), "time slice, microseconds; may be repeated"),
    flag("procs", '\0', Arg::Needed("N"), "processors of the machine on which a trace is replayed"),
    flag("peer", '\0', Arg::Needed("COMMAND"), "another simulator, for comparison"),
    flag("pictures", '\0', Arg::Needed("DIR"), "draw the result there"),
    flag("swf", '\0', Arg::Needed("FILE"), "write the workload as a trace"),
    flag("json", '\0', Arg::None, "print one JSON object"),
];

/// Options of all benchmarks; each benchmark uses some of them.
#[derive(Default)]
#[cfg_attr(not(feature = "research"), expect(dead_code, reason = "benchmarks of the laboratory use the rest"))]
struct BenchOptions {
    jobs: Option<u64>,
    clients: Option<usize>,
    /// State folder of a cluster that runs. None: the benchmark starts one.
    state: Option<PathBuf>,
    workers: Option<usize>,
    slots: Option<u32>,
    /// Number of cells, which are behind a front. None: the cluster is not divided into cells.
    cells: Option<u32>,
    seconds: Option<f64>,
    seeds: Option<u64>,
    pending: Option<u32>,
    running: Option<u32>,
    nodes: Option<u32>,
    real: Option<u32>,
    size: Option<u64>,
    /// Whether `bench launch` also sends programs of several sizes.
    sizes: bool,
    /// Whether `bench throughput` also measures the gain of each optimisation.
    ladder: bool,
    emulated: Option<u32>,
    /// Workload traces to replay.
    traces: Vec<PathBuf>,
    /// Number of processors of the machine on which traces are replayed. None: as a trace states.
    procs: Option<u32>,
    /// Command that runs another simulator on the same trace, for comparison.
    peer: Option<String>,
    loads: Vec<Load>,
    pictures: Option<PathBuf>,
    /// File to which `bench bluewaters` writes its workload as a trace.
    swf: Option<PathBuf>,
    /// Variants of the synthetic workload of `bench bluewaters`.
    variants: Vec<String>,
    /// Names of the benchmark's parts to run; none: all.
    parts: Vec<String>,
    /// Time slices of gang scheduling to measure, microseconds.
    quanta_us: Vec<u64>,
    json: bool,
}

/// Result of a benchmark. The output has the fixed fields first, then `fields` in this order.
pub(crate) struct Finding {
    pub(crate) bench: &'static str,
    pub(crate) figure: f64,
    pub(crate) unit: &'static str,
    /// Bound of the figure, measured in the same run on this machine: value and name. None: there is no bound.
    pub(crate) limit: Option<(f64, &'static str)>,
    pub(crate) fields: Vec<(&'static str, Value)>,
}

/// A benchmark.
type Bench = fn(&BenchOptions) -> Result<Finding, String>;

/// Returns the benchmark with this name.
fn named(name: &str) -> Option<Bench> {
    let bench: Bench = match name {
        "spawn" => spawn::run,
        "throughput" => throughput::run,
        "submit" => submit::run,
        "clients" => clients::run,
        "jobs" => jobs::run,
        "restart" => restart::run,
        "records" => records::run,
        "launch" => launch::run,
        "put" => put::run,
        "query" => query::run,
        "fabric" => fabric::run,
        "hop" => hop::run,
        "mpi" => mpi::run,
        "shmem" => shmem::run,
        "pingpong" => wires::pingpong,
        "fence" => wires::fence,
        "wide" => wide::run,
        "replay" => replay::run,
        "schedule" => schedule::run,
        "segments" => segments::run,
        "groups" => groups::run,
        "gang" => gang::run,
        "place" => place::run,
        #[cfg(feature = "research")]
        "layout" => layout::run,
        #[cfg(feature = "research")]
        "bluewaters" => blue::run,
        #[cfg(feature = "research")]
        "ettr" => ettr::run,
        #[cfg(feature = "research")]
        "aside" => aside::run,
        #[cfg(feature = "research")]
        "torus" => torus::run,
        #[cfg(feature = "research")]
        "scheduling" => scheduling::run,
        _ => return None,
    };
    Some(bench)
}

/// Runs `squall bench …`.
pub fn run(args: &[OsString]) -> ExitCode {
    let (name, rest) = match args.split_first() {
        Some((name, rest)) => (name.to_string_lossy(), rest),
        None => ("".into(), args),
    };
    match &*name {
        #[cfg(not(feature = "research"))]
        "layout" | "bluewaters" | "torus" | "scheduling" | "ettr" | "aside" => {
            return usage(&format!("target/lab/squall has the bench `{name}`; `make lab` builds it"));
        }
        "aggregate" => return super::esp::aggregate(rest),
        "-h" | "--help" => {
            crate::print(&PAGE.help());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let Some(bench) = named(&name) else { return usage(&format!("there is no bench `{name}`")) };
    let options = match PAGE.parse(rest) {
        Ok(given) if given.has("help") => {
            crate::print(&PAGE.help());
            return ExitCode::SUCCESS;
        }
        given => given.and_then(|given| fits(&name, &given).and_then(|()| parse(&given))),
    };
    let options = match options {
        Ok(options) => options,
        Err(e) => return usage(&e),
    };
    match bench(&options) {
        Ok(figure) => {
            crate::print(&figure.show(options.json));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("squall bench {name}: error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("squall bench: error: {problem}; see `squall bench --help`");
    ExitCode::from(2)
}

/// Returns an error if the benchmark does not use an option, or an argument, that was given.
fn fits(bench: &str, given: &Arguments) -> Result<(), String> {
    let usages = || PAGE.synopsis.iter().filter(|line| line.split(' ').next() == Some(bench));
    let words = |usage: &&str| usage.split(['[', ']', ' ']).map(str::to_owned).collect::<Vec<_>>();
    let used: Vec<String> = usages().flat_map(words).collect();
    for option in &given.options {
        let name = format!("--{}", option.name);
        if !used.contains(&name) {
            return Err(format!("`{bench}` does not use {name}"));
        }
    }
    match given.operands.first() {
        Some(operand) if !used.iter().any(|word| word.starts_with("TRACE")) => {
            Err(format!("`{bench}` takes no argument, such as `{operand}`"))
        }
        _ => Ok(()),
    }
}

fn parse(given: &Arguments) -> Result<BenchOptions, String> {
    let path = |name| given.last(name).map(PathBuf::from);
    let load = |name: &str| Load::named(name).ok_or_else(|| format!("there is no load `{name}`"));
    let micros = |text: &str| text.parse().map_err(|e| format!("--quantum={text}: {e}"));
    Ok(BenchOptions {
        jobs: given.parsed("jobs")?,
        clients: given.parsed("clients")?,
        state: path("state"),
        workers: given.parsed("workers")?,
        slots: given.parsed("slots")?,
        cells: given.parsed("cells")?,
        seconds: given.parsed("seconds")?,
        seeds: given.parsed("seeds")?,
        pending: given.parsed("pending")?,
        running: given.parsed("running")?,
        nodes: given.parsed("nodes")?,
        real: given.parsed("real")?,
        size: given.parsed("size")?,
        sizes: given.has("sizes"),
        ladder: given.has("ladder"),
        emulated: given.parsed("emulated")?,
        traces: given.operands.iter().map(PathBuf::from).collect(),
        procs: given.parsed("procs")?,
        peer: given.last("peer").map(str::to_owned),
        loads: given.every("load").map(load).collect::<Result<_, _>>()?,
        pictures: path("pictures"),
        swf: path("swf"),
        variants: given.every("variant").map(str::to_owned).collect(),
        parts: given.every("part").map(str::to_owned).collect(),
        quanta_us: given.every("quantum").map(micros).collect::<Result<_, _>>()?,
        json: given.has("json"),
    })
}

/// Returns the median; NaN without values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Rounds to three decimals.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Finding {
    /// Returns the result as text, or as one JSON object.
    pub(crate) fn show(&self, json: bool) -> String {
        if json { format!("{}\n", self.value()) } else { text(&self.value()) }
    }

    fn value(&self) -> Value {
        let mut map = Map::new();
        map.insert("bench".into(), json!(self.bench));
        map.insert("figure".into(), json!(self.figure));
        map.insert("unit".into(), json!(self.unit));
        if let Some((limit, name)) = self.limit {
            map.insert("limit".into(), json!(limit));
            map.insert("limit_name".into(), json!(name));
            map.insert("ratio".into(), json!(self.figure / limit));
        }
        map.extend(self.fields.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        Value::Object(map)
    }
}

/// Formats a result as text for people.
fn text(value: &Value) -> String {
    /// Names of the fields that the text output shows in its first line.
    const HEAD: [&str; 6] = ["bench", "figure", "unit", "limit", "limit_name", "ratio"];
    let plain = |name: &str| value[name].as_str().unwrap_or_default();
    let number = |name: &str| value[name].as_f64();
    let digits = |figure: f64| if figure.abs() < 10.0 { 3 } else { 1 };
    let shown = |figure: f64| format!("{figure:.*}", digits(figure));
    let figure = number("figure").map_or_else(|| "not measured:".to_owned(), shown);
    let mut text = format!("{:<12} {figure:>12} {}", plain("bench"), plain("unit"));
    if let (Some(limit), Some(ratio)) = (number("limit"), number("ratio")) {
        let _ = write!(text, "   = {ratio:.3} of {} ({})", shown(limit), plain("limit_name"));
    }
    text.push('\n');
    for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| !HEAD.contains(&name.as_str())) {
        let Value::Array(rows) = value else {
            let value = value.as_f64().filter(|_| value.is_f64()).map_or_else(|| value.to_string(), shown);
            let _ = writeln!(text, "  {name:<22} {value}");
            continue;
        };
        let _ = writeln!(text, "  {name}");
        text.push_str(&table::columns(rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{PAGE, fits};

    // Nothing is taken and ignored.
    #[test]
    fn a_benchmark_refuses_options_of_others() {
        let fits = |bench: &str, words: &[&str]| {
            let words: Vec<_> = words.iter().map(std::ffi::OsString::from).collect();
            fits(bench, &PAGE.parse(&words).unwrap())
        };
        assert_eq!(fits("throughput", &["--emulated", "4", "--jobs", "9", "--json"]), Ok(()));
        assert_eq!(fits("gang", &["--part", "switch", "--quantum=100"]), Ok(()));
        assert_eq!(fits("scheduling", &["a.swf.gz"]), Ok(()));
        assert_eq!(fits("hop", &["--nodes", "3"]), Err("`hop` does not use --nodes".into()));
        assert_eq!(fits("spawn", &["3"]), Err("`spawn` takes no argument, such as `3`".into()));
    }
}
