//! Display of the options for `--verbose`: Slurm's block "defined options", with values in Slurm's format.

use jiff::tz::TimeZone;
use squall_model::duration::{format_limit, parse_limit, parse_memory_mb};
use squall_model::time::Time;

use crate::format::clock::local;
use crate::options::submit::SubmitOptions;
use crate::options::values::signal;
use crate::options::{Effect, Opt, Tool, table};

/// Returns a line for each given option that has no effect.
pub fn without_effect(asked: &SubmitOptions, tool: Tool) -> Vec<String> {
    let line = |option: &Opt| match option.effect {
        Effect::Hint(why) if asked.given.contains_key(option.long) => {
            Some(format!("--{} is taken without effect: {why}", option.long))
        }
        _ => None,
    };
    table::options_of(tool).filter_map(line).collect()
}

/// Returns the lines of the block, one for each option given.
pub fn defined(asked: &SubmitOptions, tool: Tool) -> Vec<String> {
    let rule = ["-"; 20].concat();
    let mut lines = vec!["defined options".to_owned(), format!("{rule} {rule}")];
    for (long, value) in &asked.given {
        let shown = match value {
            Some(value) => valued(asked, tool, long, value),
            None => flag(asked, long),
        };
        lines.push(format!("{long:<20}: {shown}"));
    }
    lines.push(format!("{rule} {rule}"));
    lines.push("end of defined options".to_owned());
    lines
}

/// Returns what is displayed for an option given without a value.
fn flag(asked: &SubmitOptions, long: &'static str) -> String {
    match long {
        "verbose" => asked.verbose.to_string(),
        "exclusive" | "oversubscribe" | "requeue" | "no-requeue" => long.to_owned(),
        "get-user-env" => "0".into(),
        "nice" => asked.spec.nice.to_string(),
        "propagate" => "ALL".into(),
        _ => "set".into(),
    }
}

fn valued(asked: &SubmitOptions, tool: Tool, long: &'static str, value: &str) -> String {
    let limit = |text: &str| parse_limit(text).map_or_else(|_| text.to_owned(), format_limit);
    match long {
        "begin" => time(asked.spec.begin, value),
        "deadline" => time(asked.spec.deadline, value),
        "time" => format_limit(asked.spec.limit_s().flatten()),
        "time-min" | "delay-boot" => limit(value),
        "mem" | "mem-per-cpu" | "mem-per-gpu" | "tmp" => {
            parse_memory_mb(value).map_or_else(|_| value.to_owned(), memory)
        }
        "nice" => asked.spec.nice.to_string(),
        "nodes" => match (asked.spec.need.nodes_min, asked.spec.need.nodes_max) {
            (Some(min), Some(max)) if max != min => format!("{min}-{max}"),
            (Some(min), _) => min.to_string(),
            (None, _) => value.to_owned(),
        },
        "gres" if !matches!(value, "none" | "NONE") => value
            .split(',')
            .map(|one| format!("gres:{}", one.trim_start_matches("gres:")))
            .collect::<Vec<_>>()
            .join(","),
        "open-mode" => value.get(..1).unwrap_or_default().to_ascii_lowercase(),
        "output" | "error" if tool == Tool::Sbatch => file(asked, value),
        "profile" => capitalized(value),
        "signal" => sent(value),
        "switches" => match value.split_once('@') {
            Some((count, wait)) => format!("{count}@{}", limit(wait)),
            None => value.to_owned(),
        },
        "mail-type" if value.eq_ignore_ascii_case("ALL") => {
            "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT".to_owned()
        }
        // These options take no value, but a variable that sets them has one.
        "ignore-pbs" | "hold" | "overcommit" | "wait" | "spread-job" | "use-min-nodes" | "parsable" => "set".into(),
        _ => value.to_owned(),
    }
}

fn time(at: Option<Time>, value: &str) -> String {
    let shown = |at| local(at, &TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    at.map_or_else(|| value.to_owned(), shown)
}

/// Formats memory in the largest unit of which it is a multiple; MiB have no unit letter.
fn memory(mb: u64) -> String {
    let (mut amount, mut unit) = (mb, "");
    for larger in ["G", "T", "P"] {
        if amount == 0 || !amount.is_multiple_of(1024) {
            break;
        }
        (amount, unit) = (amount / 1024, larger);
    }
    format!("{amount}{unit}")
}

/// Formats a file name as an absolute path, as sbatch does.
fn file(asked: &SubmitOptions, name: &str) -> String {
    let dir = asked.given.get("chdir").and_then(|dir| dir.as_deref());
    let here = std::env::current_dir().unwrap_or_default();
    match name {
        _ if name.starts_with('/') => name.to_owned(),
        "none" | "NONE" => "/dev/null".to_owned(),
        _ => dir.map_or(here.clone(), |dir| here.join(dir)).join(name).to_string_lossy().into_owned(),
    }
}

fn capitalized(value: &str) -> String {
    let mut letters = value.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Formats the value of `--signal`. `@60` is omitted, because 60 s before the limit is the default.
fn sent(value: &str) -> String {
    let short = value.strip_suffix("@60").unwrap_or(value);
    let (flags, name) =
        short.rsplit_once(':').map_or((String::new(), short), |(flags, name)| (format!("{flags}:"), name));
    let (name, seconds) = name.split_once('@').map_or((name, String::new()), |(name, s)| (name, format!("@{s}")));
    match signal::signal_number(name).map(signal::signal_name) {
        Some(known) if !known.is_empty() => format!("{flags}{known}{seconds}"),
        _ => format!("{flags}{name}{seconds}"),
    }
}
