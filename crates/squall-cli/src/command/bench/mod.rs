//! `squall bench`: the figures of this machine, each with the bare limit measured in the same run.

mod cluster;
mod restart;
mod spawn;
mod submit;
mod throughput;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use lexopt::Arg;
use serde_json::{Map, Value, json};

const USAGE: &str = "\
usage: squall bench spawn      [--workers N] [--seconds S] [--json]
       squall bench throughput [--jobs N] [--clients C] [--slots N] [--json]
       squall bench submit     [--jobs N] [--clients C] [--json]
       squall bench restart    [--pending N] [--running N] [--json]
";

/// What may be set on the command line; every bench takes what it knows.
struct Options {
    jobs: Option<u64>,
    clients: Option<usize>,
    workers: Option<usize>,
    slots: Option<u32>,
    seconds: Option<f64>,
    pending: Option<u32>,
    running: Option<u32>,
    json: bool,
}

/// What a bench found out. `fields` come after the fixed ones, in order.
struct Finding {
    bench: &'static str,
    figure: f64,
    unit: &'static str,
    /// What it is measured against in the same run: value and name.
    limit: Option<(f64, &'static str)>,
    fields: Vec<(&'static str, Value)>,
}

/// Runs `squall bench …`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let (name, rest) = match args.split_first() {
        Some((name, rest)) => (name.to_string_lossy(), rest),
        None => ("".into(), args),
    };
    let bench: fn(&Options) -> Result<Finding, String> = match &*name {
        "spawn" => spawn::run,
        "throughput" => throughput::run,
        "submit" => submit::run,
        "restart" => restart::run,
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
    let mut options = Options {
        jobs: None,
        clients: None,
        workers: None,
        slots: None,
        seconds: None,
        pending: None,
        running: None,
        json: false,
    };
    let mut parser = lexopt::Parser::from_args(args.to_vec());
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Arg::Long("jobs") => options.jobs = Some(number(&mut parser)?),
            Arg::Long("clients") => options.clients = Some(number(&mut parser)?),
            Arg::Long("workers") => options.workers = Some(number(&mut parser)?),
            Arg::Long("slots") => options.slots = Some(number(&mut parser)?),
            Arg::Long("seconds") => options.seconds = Some(number(&mut parser)?),
            Arg::Long("pending") => options.pending = Some(number(&mut parser)?),
            Arg::Long("running") => options.running = Some(number(&mut parser)?),
            Arg::Long("json") => options.json = true,
            other => return Err(other.unexpected().to_string()),
        }
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(parser: &mut lexopt::Parser) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let text = parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned();
    text.parse().map_err(|e| format!("`{text}`: {e}"))
}

impl Finding {
    fn show(&self, json: bool) -> String {
        if json { format!("{}\n", self.value()) } else { self.text() }
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

    fn text(&self) -> String {
        let mut text = format!("{:<12} {:>12.1} {}", self.bench, self.figure, self.unit);
        if let Some((limit, name)) = self.limit {
            let _ = write!(text, "   = {:.3} of {limit:.1} ({name})", self.figure / limit);
        }
        text.push('\n');
        for (name, value) in &self.fields {
            let _ = writeln!(text, "  {name:<22} {value}");
        }
        text
    }
}
