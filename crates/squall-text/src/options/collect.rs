//! Reads the options from command lines and variables, in the order of their precedence.

use std::ffi::OsString;

use crate::options::getopt::{Getopt, ParsedOption};
use crate::options::submit::SubmitOptions;
use crate::options::table::site::{self, opposite};
use crate::options::{Arg, GivenOption, Opt, Source, Stop, Tool, table};

/// A parsed command line. Its options are not yet applied to a request.
#[derive(Debug)]
pub struct CommandLine<'a> {
    /// Options in the order given.
    pub options: Vec<ParsedOption>,
    /// Arguments after the options.
    pub operands: &'a [OsString],
}

/// Parses a command line. Ends with an error that holds the text at the first `--help`, `--usage` or `--version`.
pub fn line(tool: Tool, args: &[OsString]) -> Result<CommandLine<'_>, Stop> {
    let mut getopt = Getopt::new(table::options_of(tool), args);
    let mut options = Vec::new();
    while let Some(found) = getopt.next_option()? {
        if let "help" | "usage" | "version" = found.0.long {
            apply_option(&mut SubmitOptions::default(), tool, &found, &Source::Line)?;
        }
        options.push(found);
    }
    Ok(CommandLine { options, operands: getopt.operands() })
}

/// Parses a command line with `:` between the components of a heterogeneous job; usually there is only one component.
/// Operands belong to the last.
pub fn lines(tool: Tool, args: &[OsString]) -> Result<Vec<CommandLine<'_>>, Stop> {
    let mut lines = vec![line(tool, args)?];
    while let Some([colon, rest @ ..]) = lines.last().map(|line| line.operands)
        && colon == ":"
    {
        lines.push(line(tool, rest)?);
    }
    Ok(lines)
}

/// Returns the options of a component that also apply to the next one, as in Slurm.
pub fn carried(before: &[ParsedOption]) -> Vec<ParsedOption> {
    before.iter().filter(|(option, _)| CARRIED.contains(&option.long)).cloned().collect()
}

/// Options of a component that also apply to the components after it.
const CARRIED: &[&str] = &[
    "account",
    "acctg-freq",
    "begin",
    "chdir",
    "clusters",
    "comment",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "epilog",
    "error",
    "exclude",
    "export",
    "export-file",
    "get-user-env",
    "gid",
    "hold",
    "immediate",
    "input",
    "job-name",
    "kill-on-bad-exit",
    "label",
    "msg-timeout",
    "nice",
    "no-kill",
    "no-requeue",
    "node-fence",
    "open-mode",
    "output",
    "parsable",
    "priority",
    "profile",
    "propagate",
    "prolog",
    "qos",
    "quiet",
    "quit-on-interrupt",
    "requeue",
    "reservation",
    "signal",
    "test-only",
    "time",
    "time-min",
    "umask",
    "unbuffered",
    "verbose",
    "wait",
    "wckey",
];

impl CommandLine<'_> {
    /// Returns the last value of an option. None: it is not given, or without a value.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.options.iter().rev().find(|(option, _)| option.long == long).and_then(|(_, value)| value.as_deref())
    }

    /// Returns how often an option was given.
    pub fn count(&self, long: &str) -> usize {
        self.options.iter().filter(|(option, _)| option.long == long).count()
    }
}

/// Applies one option to the request.
pub fn apply_option(asked: &mut SubmitOptions, tool: Tool, found: &ParsedOption, source: &Source) -> Result<(), Stop> {
    give(asked, tool, found, source, true)
}

/// Applies one option to the request. `set`: whether it is set. False: it is a flag that goes back to its default.
fn give(asked: &mut SubmitOptions, tool: Tool, found: &ParsedOption, source: &Source, set: bool) -> Result<(), Stop> {
    let (option, value) = found;
    let given = GivenOption { option, value: value.as_deref(), tool, source, set };
    (option.set)(asked, &given)?;
    if set {
        asked.sources.insert(option.long, source.clone());
        asked.given.insert(option.long, value.clone());
    } else {
        asked.sources.remove(option.long);
        asked.given.remove(option.long);
    }
    Ok(())
}

/// Applies all options of the command line to the request.
pub fn apply_line(asked: &mut SubmitOptions, tool: Tool, line: &CommandLine<'_>) -> Result<(), Stop> {
    line.options.iter().try_for_each(|found| apply_option(asked, tool, found, &Source::Line))
}

/// Applies the options set by environment variables to the request. `lookup` returns a variable's value.
pub fn apply_variables(
    asked: &mut SubmitOptions,
    tool: Tool,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Stop> {
    for option in table::options_of(tool) {
        for variable in option.env.iter().filter(|name| tool.reads(name)) {
            let Some(value) = lookup(variable) else { continue };
            let pyxis = variable.starts_with(PYXIS);
            if pyxis && pyxis_is_overridden(asked, option) {
                continue;
            }
            let (value, set) = match option.arg {
                Arg::Needed(_) if value.is_empty() => continue,
                Arg::Maybe(_) if value.is_empty() => (None, true),
                // A variable gives how often it is set.
                Arg::None if option.long == "verbose" => (Some(value), true),
                Arg::None if pyxis => match pyxis_sets_flag(&value) {
                    Some(set) => (None, set),
                    None => continue,
                },
                Arg::None => (None, sets_flag(&value)),
                Arg::Needed(_) | Arg::Maybe(_) => (Some(value), true),
            };
            give(asked, tool, &(option, value), &Source::Variable(variable), set)
                .map_err(|stop| stop.at(&format!("it stands in the variable {variable}")))?;
        }
    }
    Ok(())
}

/// Returns whether the value of a variable sets a flag, as in Slurm: nothing, `yes` and a number other than 0 do. All else
/// resets it.
pub fn sets_flag(value: &str) -> bool {
    let number = value.trim_start();
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    value.is_empty()
        || value.eq_ignore_ascii_case("yes")
        || (digits.bytes().all(|digit| digit.is_ascii_digit()) && digits.bytes().any(|digit| digit != b'0'))
}

/// Beginning of the names of variables that pyxis reads, by rules of its own.
const PYXIS: &str = "PYXIS_";

/// Returns whether the value of a variable of pyxis sets a flag. None: pyxis ignores the value.
fn pyxis_sets_flag(value: &str) -> Option<bool> {
    match value {
        "1" | "true" | "yes" | "y" => Some(true),
        "0" | "false" | "no" | "n" => Some(false),
        _ => None,
    }
}

/// Returns whether the script has this option of pyxis or its opposite. Variables of pyxis count less than the script.
fn pyxis_is_overridden(asked: &SubmitOptions, option: &Opt) -> bool {
    let given = |long: &str| matches!(asked.sources.get(long), Some(Source::Script(_)));
    given(option.long) || opposite(option.long).is_some_and(given)
}

/// Options about the binding of tasks within a node, which take precedence over `--hint`.
const INSTEAD_OF_HINT: [&str; 4] = ["ntasks-per-core", "threads-per-core", "extra-node-info", "cpu-bind"];

/// Resolves conflicts between `--hint` and the options that override it. Given options take precedence over variables,
/// then those other options over `--hint`. Returns a message about an ignored hint for `--verbose`. None: no message.
pub fn settle_hint(asked: &mut SubmitOptions) -> Option<&'static str> {
    let by_variable = |asked: &SubmitOptions, long: &str| matches!(asked.sources.get(long), Some(Source::Variable(_)));
    let given = |asked: &SubmitOptions, long: &str| asked.sources.contains_key(long) && !by_variable(asked, long);
    let quiet = asked.run.cpu_bind.as_deref().is_some_and(|bind| matches!(bind, "v" | "verbose" | "q" | "quiet"));
    let detail = |asked: &SubmitOptions, how: &dyn Fn(&SubmitOptions, &str) -> bool| {
        INSTEAD_OF_HINT.iter().any(|long| how(asked, long) && !(*long == "cpu-bind" && quiet))
    };
    let (hint, details) = (given(asked, "hint"), detail(asked, &given));
    if hint && !details {
        for long in INSTEAD_OF_HINT.iter().filter(|long| by_variable(asked, long)).collect::<Vec<_>>() {
            forget(asked, long);
        }
        return None;
    }
    let of_variables = by_variable(asked, "hint") && detail(asked, &by_variable);
    if details || of_variables {
        forget(asked, "hint");
    }
    match () {
        () if hint && details => Some(
            "Following options are mutually exclusive with --hint: --ntasks-per-core, --threads-per-core, -B and \
             --cpu-bind (other then --cpu-bind=verbose). Ignoring --hint.",
        ),
        () if of_variables => Some(
            "Following options are mutually exclusive with --hint: --ntasks-per-core, --threads-per-core, -B and \
             --cpu-bind, but more than one set by environment variables. Ignoring SLURM_HINT.",
        ),
        () => None,
    }
}

/// Removes `--hint`, or an option that overrides it, from the request.
fn forget(asked: &mut SubmitOptions, long: &str) {
    asked.sources.remove(long);
    asked.given.remove(long);
    match long {
        "cpu-bind" => asked.run.cpu_bind = None,
        "extra-node-info" => asked.extra_node_info = None,
        "hint" => asked.spec.options.hint = None,
        "ntasks-per-core" => asked.spec.options.inside.tasks_per_core = 0,
        _ => asked.spec.options.inside.threads = 0,
    }
}

/// Checks `--batch`: its features must be among those that `--constraint` requires of every node, as the first node
/// runs the script.
fn batch_host(asked: &SubmitOptions) -> Result<(), Stop> {
    let Some(wanted) = &asked.spec.options.shown.batch else { return Ok(()) };
    let all = asked.spec.need.constraint.as_deref().unwrap_or_default();
    let features: Vec<&str> = all.split(['&', ',']).map(str::trim).collect();
    let of_each = !all.contains(['|', '[', '*', '(']);
    if of_each && wanted.split(['&', ',']).all(|feature| features.contains(&feature.trim())) {
        return Ok(());
    }
    let failed = Tool::Sbatch.failed();
    let remedy = format!("--batch={wanted}: use features that --constraint wants of every node, without | and counts");
    let slurm = format!("{failed}: Job --batch option is invalid or not a subset of --constraints");
    Err(Stop::Bad { lines: vec![remedy, slurm], exit: 1 })
}

/// Checks combinations of options, after all of them have been applied.
pub fn verify(asked: &SubmitOptions) -> Result<(), Stop> {
    let need = &asked.spec.need;
    if need.ntasks == Some(0) {
        return Err(Stop::bad("invalid number of tasks (-n 0)"));
    }
    if need.nodes_max == Some(0) || need.nodes_min == Some(0) {
        let (min, max) = (need.nodes_min.unwrap_or(0), need.nodes_max.unwrap_or(0));
        return Err(Stop::bad(format!("invalid number of nodes (-N {min}-{max})")));
    }
    batch_host(asked)?;
    site::verify(asked)?;
    if asked.quiet && asked.verbose > 0 {
        return Err(Stop::bad("don't specify both --verbose (-v) and --quiet (-Q)"));
    }
    if asked.run.exact && asked.run.whole {
        return Err(Stop::bad("--exact and --whole are mutually exclusive."));
    }
    if asked.run.overlap && asked.on_line("exclusive") && asked.on_line("overlap") {
        return Err(Stop::bad("--exclusive and --overlap are mutually exclusive"));
    }
    if asked.spec.deadline.is_some_and(|deadline| asked.spec.begin.is_some_and(|begin| deadline < begin)) {
        return Err(Stop::bad("Incompatible begin and deadline time specification"));
    }
    Ok(())
}
