//! Options of PBS and LSF in scripts (`#PBS`, `#BSUB`), translated to sbatch's options as Slurm's sbatch does.

use std::ffi::OsString;

use squall_model::hostlist;

use crate::options::Arg::{self, Needed, None as Flag};
use crate::options::getopt::{Getopt, Shape};
use crate::options::submit::SubmitOptions;
use crate::options::{Source, Stop, Tool, collect, table};
use crate::script::Script;

/// Number of lines that are not comments after which the search for options ends, as in Slurm.
const COMMANDS_MAX: usize = 100;

/// Function that applies an option of another scheduler, with its value, to the request.
type Translate = fn(&mut SubmitOptions, &str) -> Result<(), Stop>;

/// An option of another scheduler (PBS or LSF).
struct Foreign {
    long: &'static str,
    short: char,
    arg: Arg,
    translate: Translate,
}

impl Shape for Foreign {
    fn long(&self) -> &'static str {
        self.long
    }
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    fn short(&self) -> Option<char> {
        Some(self.short)
    }
    fn arg(&self) -> Arg {
        self.arg
    }
}

const fn option(long: &'static str, short: char, arg: Arg, translate: Translate) -> Foreign {
    Foreign { long, short, arg, translate }
}

const VALUE: Arg = Needed("value");

/// Options of LSF's `bsub` that are translated.
static BSUB: [Foreign; 10] = [
    option("cwd", 'c', VALUE, |asked, value| give(asked, "chdir", value)),
    option("error_file", 'e', VALUE, |asked, value| give(asked, "error", value)),
    option("job_name", 'J', VALUE, |asked, value| give(asked, "job-name", value)),
    option("hostname", 'm', VALUE, |asked, value| give(asked, "nodelist", &value.replace(' ', ","))),
    option("memory_limit", 'M', VALUE, |asked, value| {
        // LSF's unit of memory is the kilobyte.
        let unit = if value.ends_with(|c: char| c.is_ascii_digit()) { "K" } else { "" };
        give(asked, "mem-per-cpu", &format!("{value}{unit}"))
    }),
    option("", 'n', VALUE, |asked, value| match value.split_once(',') {
        Some((_, "")) => Err(Stop::bad(format!("#BSUB -n format not correct given: '{value}'"))),
        Some((_, most)) => give(asked, "ntasks", most),
        None => give(asked, "ntasks", value),
    }),
    option("output_file", 'o', VALUE, |asked, value| give(asked, "output", value)),
    option("queue_name", 'q', VALUE, |asked, value| give(asked, "partition", value)),
    option("time", 'W', VALUE, |asked, value| give(asked, "time", value)),
    option("exclusive", 'x', Flag, |asked, _| set(asked, "exclusive", None)),
];

/// Options of `qsub`. The last ones name defaults or missing features: sbatch has no counterpart, and they are ignored.
static PBS: [Foreign; 25] = [
    option("start_time", 'a', VALUE, |asked, value| give(asked, "begin", value)),
    option("account", 'A', VALUE, |asked, value| give(asked, "account", value)),
    option("error", 'e', VALUE, |asked, value| give(asked, "error", value)),
    option("hold", 'h', Flag, |asked, _| set(asked, "hold", None)),
    option("job_array", 'J', VALUE, |asked, value| give(asked, "array", value)),
    option("array", 't', VALUE, |asked, value| give(asked, "array", value)),
    option("resource_list", 'l', VALUE, resources),
    option("mail_options", 'm', VALUE, |asked, value| give(asked, "mail-type", &mail(value))),
    option("mail_user_list", 'M', VALUE, |asked, value| give(asked, "mail-user", value)),
    option("job_name", 'N', VALUE, |asked, value| give(asked, "job-name", value)),
    option("out", 'o', VALUE, |asked, value| give(asked, "output", value)),
    option("priority", 'p', VALUE, |asked, value| give(asked, "nice", value)),
    option("destination", 'q', VALUE, |asked, value| give(asked, "partition", value)),
    option("variable_list", 'v', VALUE, |asked, value| {
        let list = asked.export.as_ref().map_or_else(|| value.to_owned(), |before| format!("{before},{value}"));
        give(asked, "export", &list)
    }),
    option("attributes", 'W', VALUE, |asked, value| match value.split_once('=') {
        Some((name, mask)) if name.eq_ignore_ascii_case("umask") => {
            let wrong = |_| Stop::bad(format!("umask={mask}: use an octal number such as 022"));
            asked.batch.umask = Some(u32::from_str_radix(mask, 8).map_err(wrong)? & 0o777);
            Ok(())
        }
        Some((name, list)) if name.eq_ignore_ascii_case("depend") => give(asked, "dependency", list),
        _ => {
            asked.notes.push(format!("Ignored PBS attributes: {value}"));
            Ok(())
        }
    }),
    option("checkpoint", 'c', VALUE, nothing),
    option("working_dir", 'C', VALUE, nothing),
    option("interactive", 'I', Flag, nothing),
    option("join", 'j', VALUE, nothing),
    option("keep", 'k', VALUE, nothing),
    option("rerunable", 'r', VALUE, nothing),
    option("script_path", 'S', VALUE, nothing),
    option("running_user", 'u', VALUE, nothing),
    option("all_env", 'V', Flag, nothing),
    option("no_std", 'z', Flag, nothing),
];

/// Applies the options of one other scheduler: LSF's if there are any, otherwise those of PBS. Returns the words read.
pub fn apply(asked: &mut SubmitOptions, script: &Script) -> Result<Vec<String>, Stop> {
    for (mark, options) in [("#BSUB", &BSUB[..]), ("#PBS", &PBS[..])] {
        let Some(mut words) = script.words_after(mark, COMMANDS_MAX)? else { continue };
        if mark == "#BSUB" {
            // `-cwd` is the only long name that LSF writes with one dash.
            words.iter_mut().filter(|word| *word == "-cwd").for_each(|word| "-c".clone_into(word));
        }
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut getopt = Getopt::new(options.iter(), &args);
        while let Some((option, value)) = getopt.next_option().map_err(unknown)? {
            let value = value.unwrap_or_default();
            let place = format!("{}: {mark} -{} {value}", script.name(), option.short);
            (option.translate)(asked, &value).map_err(|stop| stop.at(&place))?;
        }
        if let Some(word) = getopt.operands().first() {
            return Err(Stop::bad(format!("Invalid argument: {}", word.to_string_lossy())));
        }
        return Ok(words);
    }
    Ok(Vec::new())
}

/// Adds Slurm's message about the other scheduler's options to an error of getopt.
fn unknown(stop: Stop) -> Stop {
    match stop {
        Stop::Usage(line) => {
            let mut lines: Vec<String> = line.lines().map(|line| format!("plain: {line}")).collect();
            lines.push("Unrecognized command line parameter ?".into());
            Stop::Bad { lines, exit: 1 }
        }
        other => other,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands in the table as all the others")]
fn nothing(_: &mut SubmitOptions, _: &str) -> Result<(), Stop> {
    Ok(())
}

fn give(asked: &mut SubmitOptions, long: &str, value: &str) -> Result<(), Stop> {
    set(asked, long, Some(value.to_owned()))
}

/// Applies the option `long` of sbatch to the request.
fn set(asked: &mut SubmitOptions, long: &str, value: Option<String>) -> Result<(), Stop> {
    let option = table::options_of(Tool::Sbatch).find(|option| option.long == long).expect("sbatch has that option");
    collect::apply_option(asked, Tool::Sbatch, &(option, value), &Source::Script(0))
}

/// Translates PBS's `-m`, a list of letters, to values of `--mail-type`.
fn mail(letters: &str) -> String {
    let has = |letter: char| letters.chars().any(|c| c.eq_ignore_ascii_case(&letter));
    if has('n') {
        return "NONE".into();
    }
    let types = [('b', "BEGIN"), ('e', "END"), ('a', "FAIL")];
    types.into_iter().filter(|(letter, _)| has(*letter)).map(|(_, name)| name).collect::<Vec<_>>().join(",")
}

/// Applies `-l`: `nodes=2:ppn=4,walltime=1:00:00,mem=4gb`, or PBS Pro's `select=2:ncpus=4:mpiprocs=2`.
fn resources(asked: &mut SubmitOptions, list: &str) -> Result<(), Stop> {
    let (mut select, mut devices) = ([false; 3], 0);
    let mut rest = list;
    while !rest.is_empty() {
        let (name, after) = rest.split_at(rest.find(['=', ',', ':']).unwrap_or(rest.len()));
        let Some(after) = after.strip_prefix('=') else {
            rest = after.get(1..).unwrap_or_default();
            continue;
        };
        let name = name.to_ascii_lowercase();
        // Times and lists of nodes contain colons.
        let ends: &[char] = match name.as_str() {
            "walltime" | "cput" | "pcput" | "nodes" => &[','],
            _ => &[',', ':'],
        };
        let (value, after) = after.split_at(after.find(ends).unwrap_or(after.len()));
        rest = after.get(1..).unwrap_or_default();
        match name.as_str() {
            "accelerator" if value.eq_ignore_ascii_case("true") => devices = devices.max(1),
            "naccelerators" => {
                let wrong = || Stop::bad(format!("Invalid numeric value \"{value}\" for naccelerators."));
                devices = value.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
            }
            "walltime" | "cput" | "pcput" => give(asked, "time", value)?,
            "mem" => give(asked, "mem", size(value))?,
            "file" => give(asked, "tmp", size(value))?,
            "nice" => give(asked, "nice", value)?,
            "nodes" => nodes(asked, value)?,
            "proc" => {
                let before = asked.spec.need.constraint.as_ref().map(|list| format!(",{list}")).unwrap_or_default();
                give(asked, "constraint", &format!("{value}{before}"))?;
            }
            "select" => (select[0], ()) = (true, give(asked, "nodes", value)?),
            "ncpus" => (select[1], ()) = (true, give(asked, "mincpus", value)?),
            "mpiprocs" => (select[2], ()) = (true, give(asked, "ntasks-per-node", value)?),
            _ => {}
        }
    }
    if select == [true; 3] {
        tasks_of_a_selection(asked)?;
    }
    if devices == 0 {
        return Ok(());
    }
    let before = asked.given.get("gres").and_then(Option::as_deref).map(|list| format!("{list},")).unwrap_or_default();
    give(asked, "gres", &format!("{before}gpu:{devices}"))
}

/// Sets the request's CPUs per task from `ncpus` and `mpiprocs`, PBS Pro's CPUs and tasks of a node.
fn tasks_of_a_selection(asked: &mut SubmitOptions) -> Result<(), Stop> {
    let count = |long| asked.given.get(long).and_then(|value| value.as_deref()?.parse::<u32>().ok());
    match (count("mincpus"), count("ntasks-per-node")) {
        (Some(cpus), Some(tasks)) if tasks > 0 && cpus > tasks => {
            give(asked, "cpus-per-task", &(cpus / tasks).to_string())
        }
        _ => Ok(()),
    }
}

/// Rewrites a size such as `100mb` in Slurm's form: `100m`.
fn size(value: &str) -> &str {
    value.strip_suffix(['b', 'B']).unwrap_or(value)
}

/// Applies `nodes=`: counts and names, with `ppn` (tasks) and `gpus` of each node.
fn nodes(asked: &mut SubmitOptions, list: &str) -> Result<(), Stop> {
    let (mut count, mut tasks) = (0u32, 0u32);
    let mut names = Vec::new();
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u32>().unwrap_or(0)
    };
    for part in list.split([':', '+']) {
        if let Some(gpus) = part.strip_prefix("gpus=") {
            give(asked, "gpus-per-node", gpus)?;
        } else if let Some(each) = part.strip_prefix("ppn=") {
            tasks = tasks.saturating_add(number(each));
        } else if part.starts_with(|c: char| c.is_ascii_digit()) {
            count = count.saturating_add(number(part));
        } else if part.starts_with(|c: char| c.is_ascii_alphabetic()) {
            names.push(part);
        }
    }
    if count > 0 {
        give(asked, "nodes", &count.to_string())?;
    }
    if tasks > 0 {
        give(asked, "ntasks", &tasks.saturating_mul(count.max(1)).to_string())?;
    }
    if names.is_empty() { Ok(()) } else { give(asked, "nodelist", &hostlist::compress(names)) }
}
