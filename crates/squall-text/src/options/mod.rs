//! The table of options of sbatch, srun and salloc. It is used for command lines, `#SBATCH` lines, environment
//! variables and `--help`.

pub mod apply;
pub mod collect;
pub mod counts;
pub mod flag;
pub mod getopt;
pub mod shown;
pub mod submit;
pub mod table;
pub mod values;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::options::submit::SubmitOptions;

/// A command that requests resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `sbatch`: queues a batch script.
    Sbatch,
    /// `srun`: runs tasks, in an existing allocation or in a new one.
    Srun,
    /// `salloc`: gets an allocation for a command on the submitting host.
    Salloc,
}

impl Tool {
    /// Returns the command's name: `sbatch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Srun => "srun",
            Self::Salloc => "salloc",
        }
    }

    /// Returns the beginning of Slurm's message when a request of this command fails.
    pub fn failed(self) -> &'static str {
        match self {
            Self::Sbatch => "Batch job submission failed",
            Self::Srun => "Unable to allocate resources",
            Self::Salloc => "Job submit/allocate failed",
        }
    }

    /// Returns whether this command reads the environment variable `variable` for defaults of options.
    pub fn reads(self, variable: &str) -> bool {
        const SHARED: [&str; 2] = ["SLURM_CLUSTERS", "SLURM_HINT"];
        match self {
            _ if variable.starts_with("PYXIS_") => true,
            Self::Sbatch => variable.starts_with("SBATCH_") || SHARED.contains(&variable),
            Self::Salloc => variable.starts_with("SALLOC_") || SHARED.contains(&variable),
            Self::Srun => variable.starts_with("SLURM") || variable.starts_with("SRUN_"),
        }
    }
}

/// Set of the commands that accept an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tools(u8);

impl Tools {
    /// `sbatch` alone.
    pub const SBATCH: Self = Self(1);
    /// `srun` alone.
    pub const SRUN: Self = Self(2);
    /// `salloc` alone.
    pub const SALLOC: Self = Self(4);
    /// All three commands.
    pub const ALL: Self = Self(7);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Returns whether the set contains this command.
    pub fn has(self, tool: Tool) -> bool {
        let one = match tool {
            Tool::Sbatch => Self::SBATCH,
            Tool::Srun => Self::SRUN,
            Tool::Salloc => Self::SALLOC,
        };
        self.0 & one.0 != 0
    }
}

/// Whether an option takes a value, and the name of the value in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// The option takes no value.
    None,
    /// The option requires a value.
    Needed(&'static str),
    /// The option may have a value, which must be attached: `--nice=5`, `-I30`.
    Maybe(&'static str),
}

/// What Squall does with an option. Shown in the documentation, and for options without effect by `--verbose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The option does what its description says.
    Works,
    /// The option does what its description says, but some values are refused; the text gives which, and why.
    Partly(&'static str),
    /// The value is checked and displayed, but has no effect on what runs; the text gives the reason.
    Hint(&'static str),
    /// The option would change what runs and is refused; the text gives the reason.
    Refused(&'static str),
}

/// Function that stores an option's value in the request.
pub type Setter = fn(&mut SubmitOptions, &GivenOption<'_>) -> Result<(), Stop>;

/// Entry of the option table.
pub struct Opt {
    /// Long name, without dashes.
    pub long: &'static str,
    /// Further long names, without dashes.
    pub aliases: &'static [&'static str],
    /// Short option letter. None: the option has only long names.
    pub short: Option<char>,
    /// Whether the option takes a value.
    pub arg: Arg,
    /// Commands that accept the option.
    pub tools: Tools,
    /// Environment variables that set the option. A command uses those that it reads ([`Tool::reads`]); of several the
    /// last wins.
    pub env: &'static [&'static str],
    /// Description in one line for `--help`. Empty: `--help` does not list the option.
    pub doc: &'static str,
    /// What Squall does with the option.
    pub effect: Effect,
    /// Stores the option's value in the request.
    pub set: Setter,
}

/// Argument of `opt()` for an option without a short letter.
pub const NO: char = '\0';

/// Returns an entry of the option table. Further properties are set by the methods of `Opt`.
pub const fn opt(
    long: &'static str,
    short: char,
    arg: Arg,
    tools: Tools,
    env: &'static [&'static str],
    doc: &'static str,
    set: Setter,
) -> Opt {
    let short = if short == NO { None } else { Some(short) };
    Opt { long, aliases: &[], short, arg, tools, env, doc, effect: Effect::Works, set }
}

impl Opt {
    /// Sets further long names.
    #[must_use]
    pub const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Marks the option as one with refused values; `refused` describes these values and the reason.
    #[must_use]
    pub const fn partly(mut self, refused: &'static str) -> Self {
        self.effect = Effect::Partly(refused);
        self
    }

    /// Marks the option as one without effect, for the reason `why`.
    #[must_use]
    pub const fn hint(mut self, why: &'static str) -> Self {
        self.effect = Effect::Hint(why);
        self
    }

    /// Marks the option as refused, for the reason `why`.
    #[must_use]
    pub const fn refused(mut self, why: &'static str) -> Self {
        self.effect = Effect::Refused(why);
        self
    }
}

impl fmt::Debug for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.long)
    }
}

/// Origin of an option's value, in ascending order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A `#SBATCH` line of the script, by its line number.
    Script(u32),
    /// An environment variable, by name.
    Variable(&'static str),
    /// The command line.
    Line,
}

/// An option as given by the user, with its origin.
#[derive(Debug)]
pub struct GivenOption<'a> {
    /// Entry of the option table.
    pub option: &'static Opt,
    /// Value of the option. None: given without a value.
    pub value: Option<&'a str>,
    /// Command to which the option was given.
    pub tool: Tool,
    /// Origin of the value.
    pub source: &'a Source,
    /// Whether a flag is set. False: a variable, such as `SBATCH_WAIT=0`, resets it.
    pub set: bool,
}

impl GivenOption<'_> {
    /// Returns the value; an empty text if there is none.
    pub fn text(&self) -> &str {
        self.value.unwrap_or_default()
    }
    /// Returns the error for an invalid value: Slurm's message, then the value with `remedy`, a hint at valid values.
    /// Exit code 255.
    pub fn invalid(&self, remedy: &str) -> Stop {
        Stop::Bad {
            lines: vec![format!("Invalid --{} specification", self.option.long), self.remedy(remedy)],
            exit: 255,
        }
    }
    /// Returns a line with option, value and hint: `--nodes=x: use …`, or `--reboot: …` without a value.
    pub fn remedy(&self, remedy: &str) -> String {
        match self.value {
            Some(value) => format!("--{}={value}: {remedy}", self.option.long),
            None => format!("--{}: {remedy}", self.option.long),
        }
    }
    /// Returns the error for a valid value that Squall does not support, because it would change what runs. Exit code
    /// 1.
    pub fn not_done(&self, why: &str) -> Stop {
        // The documentation lists refusals by the table's effects.
        debug_assert!(self.option.effect != Effect::Works, "--{} has refused values: say so", self.option.long);
        Stop::bad(self.remedy(why))
    }
}

/// Why a command ends before it sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A text was requested, such as by `--help`; it is printed on standard output. Exit code 0.
    Show(String),
    /// `--help` was given. Exit code 0.
    Help,
    /// `--usage` was given. Exit code 0.
    Brief,
    /// The command line is malformed: the lines of the message, to which a hint at `--help` is added. Exit code 255.
    Usage(String),
    /// The request is invalid.
    Bad {
        /// Lines of the message. `NAME: error: ` is put before each, or `NAME: fatal: ` if it begins with `fatal: `, or
        /// `NAME: ` if it begins with `plain: `.
        lines: Vec<String>,
        /// Exit code of the command.
        exit: u8,
    },
    /// The message was printed already; ends with this exit code.
    Silent(u8),
}

impl Stop {
    /// Returns an error with one line and exit code 1.
    pub fn bad(line: impl Into<String>) -> Self {
        Self::Bad { lines: vec![line.into()], exit: 1 }
    }

    /// Adds a line with the place of the error, such as the script's line.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Bad { mut lines, exit } => {
                // If the last line is Slurm's message of a refused request, it stays last, because programs match it.
                let last = lines.iter().rposition(|l| !l.contains(" failed: ")).map_or(0, |at| at + 1);
                lines.insert(last, place.to_owned());
                Self::Bad { lines, exit }
            }
            Self::Usage(line) => Self::Usage(format!("{line}\n{place}")),
            other => other,
        }
    }

    /// Returns the text for standard error. Empty for `Show` and `Silent`.
    pub fn complaint(&self, tool: Tool) -> String {
        let name = tool.name();
        match self {
            Self::Show(_) | Self::Help | Self::Brief | Self::Silent(_) => String::new(),
            Self::Usage(lines) => {
                let lines: Vec<String> = lines.lines().map(|line| format!("{name}: {line}\n")).collect();
                format!("{}Try \"{name} --help\" for more information\n", lines.concat())
            }
            Self::Bad { lines, .. } => {
                let whole = |line: &String| match line.split_once(": ") {
                    Some(("fatal", fatal)) => format!("{name}: fatal: {fatal}\n"),
                    Some(("plain", plain)) => format!("{name}: {plain}\n"),
                    _ => format!("{name}: error: {line}\n"),
                };
                lines.iter().map(whole).collect::<Vec<_>>().concat()
            }
        }
    }

    /// Returns the exit code of the command.
    pub fn exit(&self) -> u8 {
        match self {
            Self::Show(_) | Self::Help | Self::Brief => 0,
            Self::Usage(_) => 255,
            Self::Bad { exit, .. } | Self::Silent(exit) => *exit,
        }
    }
}
