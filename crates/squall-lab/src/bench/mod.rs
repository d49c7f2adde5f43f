//! `squall bench`: performance figures of this machine, each with the bare limit measured in the same run.

mod anchors;
mod blue;
mod clients;
pub(crate) mod cluster;
mod emulated;
mod fabric;
mod gang;
mod hop;
mod jobs;
mod ladder;
mod launch;
mod layout;
mod load;
mod mpi;
mod place;
mod put;
mod query;
mod replay;
mod restart;
mod schedule;
mod scheduling;
mod shmem;
mod spawn;
mod submit;
mod table;
mod throughput;
mod torus;
mod wide;
mod wires;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::Arg;
use serde_json::{Map, Value, json};

use self::load::Load;

/// Numbers of nodes for which the models give estimates.
const MODEL_NODES: [u64; 5] = [64, 1024, 4096, 16_384, 100_000];
/// Networks for which the models give estimates, in addition to the one measured here: name, bytes per second.
const NETWORKS: [(&str, f64); 2] = [("10 GbE", 1.165e9), ("100 GbE", 9e9)];

const USAGE: &str = "\
usage: squall bench spawn      [--workers N] [--seconds S] [--json]
       squall bench throughput [--jobs N] [--clients C] [--slots N] [--cells N] [--ladder] [--json]
       squall bench throughput --emulated NODES [--jobs N] [--clients C] [--cells N] [--ladder] [--json]
       squall bench submit     [--jobs N] [--clients C] [--json]
       squall bench clients    [--jobs N] [--json]
       squall bench jobs       [--json]                        (throughput, real and emulated, submit, clients in one table)
       squall bench restart    [--pending N] [--running N] [--json]
       squall bench launch     [--nodes N] [--sizes] [--emulated N] [--size BYTES] [--load unloaded|cpu|network]...
                               [--pictures DIR] [--json]
       squall bench put        [--nodes EMULATED] [--real N] [--size BYTES] [--load unloaded|cpu|network]...
                               [--pictures DIR] [--json]
       squall bench query      [--nodes EMULATED] [--real N] [--load unloaded|cpu|network]... [--pictures DIR] [--json]
       squall bench hop        [--size BYTES] [--json]
       squall bench mpi        [--nodes N] [--json]
       squall bench shmem      [--nodes N] [--json]
       squall bench pingpong   [--pictures DIR] [--json]
       squall bench fence      [--nodes N] [--pictures DIR] [--json]
       squall bench wide       [--nodes EMULATED] [--jobs N] [--json]
       squall bench layout     [--json]
       squall bench bluewaters [--seeds N] [--seconds WINDOW] [--pending N] [--variant equal|gpus|patterns|fragmented]...
                               [--pictures DIR] [--swf FILE] [--json]
       squall bench torus      [--nodes EXTENT] [--jobs N] [--seeds SEED] [--json]
       squall bench place      [--jobs ALLOCATIONS] [--json]
       squall bench replay     TRACE.swf[.gz] [--procs N] [--peer COMMAND] [--json]
       squall bench schedule   [--nodes N] [--pending N] [--json]
       squall bench scheduling [TRACE.swf[.gz]|DIR]... [--peer COMMAND] [--json]   (schedule, place, layout, bluewaters,
                                                       torus, and replay of each trace, in one table)
       squall bench gang       [--part policies|switch|strobe|sweep|mpi|mixed|start]... [--quantum US]... [--jobs PAIRS]
                               [--nodes EMULATED] [--pictures DIR] [--json]
       squall bench aggregate  [--help | OPTIONS] [--json]
       squall bench fabric     [--pictures DIR] [--json]       (launch, put, query, hop, wide, aggregate in one table)
";

/// Options of all benchmarks; each benchmark uses some of them.
#[derive(Default)]
struct Options {
    jobs: Option<u64>,
    clients: Option<usize>,
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

/// Runs `squall bench …`.
pub fn run(args: &[OsString]) -> ExitCode {
    let (name, rest) = match args.split_first() {
        Some((name, rest)) => (name.to_string_lossy(), rest),
        None => ("".into(), args),
    };
    let bench: fn(&Options) -> Result<Finding, String> = match &*name {
        "spawn" => spawn::run,
        "throughput" => throughput::run,
        "submit" => submit::run,
        "clients" => clients::run,
        "jobs" => jobs::run,
        "restart" => restart::run,
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
        "scheduling" => scheduling::run,
        "gang" => gang::run,
        "place" => place::run,
        "layout" => layout::run,
        "bluewaters" => blue::run,
        "torus" => torus::run,
        "aggregate" => return super::esp::aggregate(rest),
        "-h" | "--help" => {
            crate::print(USAGE);
            return ExitCode::SUCCESS;
        }
        _ => return usage(&format!("there is no bench `{name}`")),
    };
    let options = match parse(rest) {
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
    eprint!("squall bench: error: {problem}\n{USAGE}");
    ExitCode::from(2)
}

fn parse(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(args.to_vec());
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Arg::Long("jobs") => options.jobs = Some(number(&mut parser)?),
            Arg::Long("clients") => options.clients = Some(number(&mut parser)?),
            Arg::Long("workers") => options.workers = Some(number(&mut parser)?),
            Arg::Long("slots") => options.slots = Some(number(&mut parser)?),
            Arg::Long("cells") => options.cells = Some(number(&mut parser)?),
            Arg::Long("seconds") => options.seconds = Some(number(&mut parser)?),
            Arg::Long("seeds") => options.seeds = Some(number(&mut parser)?),
            Arg::Long("pending") => options.pending = Some(number(&mut parser)?),
            Arg::Long("running") => options.running = Some(number(&mut parser)?),
            Arg::Long("nodes") => options.nodes = Some(number(&mut parser)?),
            Arg::Long("real") => options.real = Some(number(&mut parser)?),
            Arg::Long("size") => options.size = Some(number(&mut parser)?),
            Arg::Long("sizes") => options.sizes = true,
            Arg::Long("ladder") => options.ladder = true,
            Arg::Long("emulated") => options.emulated = Some(number(&mut parser)?),
            Arg::Long("load") => {
                let name = parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned();
                options.loads.push(Load::named(&name).ok_or_else(|| format!("there is no load `{name}`"))?);
            }
            Arg::Long("pictures") => options.pictures = Some(parser.value().map_err(|e| e.to_string())?.into()),
            Arg::Long("swf") => options.swf = Some(parser.value().map_err(|e| e.to_string())?.into()),
            Arg::Long("procs") => options.procs = Some(number(&mut parser)?),
            Arg::Long("peer") => {
                let command = parser.value().map_err(|e| e.to_string())?;
                options.peer = Some(command.to_string_lossy().into_owned());
            }
            Arg::Value(trace) => options.traces.push(trace.into()),
            Arg::Long("part") => {
                options.parts.push(parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned());
            }
            Arg::Long("variant") => {
                options.variants.push(parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned());
            }
            Arg::Long("quantum") => options.quanta_us.push(number(&mut parser)?),
            Arg::Long("json") => options.json = true,
            other => return Err(other.unexpected().to_string()),
        }
    }
    Ok(options)
}

/// Parses an option's value as a number.
pub(crate) fn number<T: std::str::FromStr>(parser: &mut lexopt::Parser) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let text = parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned();
    text.parse().map_err(|e| format!("`{text}`: {e}"))
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
