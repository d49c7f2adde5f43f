//! One table of options for sbatch, srun and salloc; it feeds the command line, `#SBATCH` lines, variables and `--help`.

pub(crate) mod asked;
pub(crate) mod collect;
pub(crate) mod counts;
pub(crate) mod getopt;
pub(crate) mod help;
pub(crate) mod shown;
pub(crate) mod table;
pub(crate) mod values;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::options::asked::Asked;

/// A command that asks for resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Queues a batch script.
    Sbatch,
    /// Runs tasks, in an allocation or in one of its own.
    Srun,
    /// Gets an allocation for a command on this host.
    Salloc,
}

impl Tool {
    /// As users call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Srun => "srun",
            Self::Salloc => "salloc",
        }
    }

    /// What a failed request of it is called.
    pub(crate) fn failed(self) -> &'static str {
        match self {
            Self::Sbatch => "Batch job submission failed",
            Self::Srun => "Unable to allocate resources",
            Self::Salloc => "Job submit/allocate failed",
        }
    }

    /// Whether this command reads its defaults from that variable.
    pub(crate) fn reads(self, variable: &str) -> bool {
        const SHARED: [&str; 2] = ["SLURM_CLUSTERS", "SLURM_HINT"];
        match self {
            Self::Sbatch => variable.starts_with("SBATCH_") || SHARED.contains(&variable),
            Self::Salloc => variable.starts_with("SALLOC_") || SHARED.contains(&variable),
            Self::Srun => variable.starts_with("SLURM") || variable.starts_with("SRUN_"),
        }
    }
}

/// Which commands know an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tools(u8);

impl Tools {
    pub(crate) const SBATCH: Self = Self(1);
    pub(crate) const SRUN: Self = Self(2);
    pub(crate) const SALLOC: Self = Self(4);
    pub(crate) const ALL: Self = Self(7);

    /// Either's.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Whether the command is among them.
    pub(crate) fn has(self, tool: Tool) -> bool {
        let one = match tool {
            Tool::Sbatch => Self::SBATCH,
            Tool::Srun => Self::SRUN,
            Tool::Salloc => Self::SALLOC,
        };
        self.0 & one.0 != 0
    }
}

/// Whether an option takes a value, and what `--help` calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    /// It takes none.
    None,
    /// It needs one.
    Needed(&'static str),
    /// It may have one, attached: `--nice=5`, `-I30`.
    Maybe(&'static str),
}

/// What giving an option leads to. The documentation and `--verbose` say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The option does what its line says.
    Works,
    /// It does so, but some values are refused: which, and why.
    Partly(&'static str),
    /// It is checked and shown, but nothing acts on it: why. It changes nothing of what runs.
    Hint(&'static str),
    /// It would change what runs, and is refused: why.
    Refused(&'static str),
}

/// Puts an option's value into the request.
pub(crate) type Setter = fn(&mut Asked, &Given<'_>) -> Result<(), Stop>;

/// One option.
pub(crate) struct Opt {
    /// Long name, without dashes.
    pub(crate) long: &'static str,
    /// Other long names.
    pub(crate) aliases: &'static [&'static str],
    /// Short letter.
    pub(crate) short: Option<char>,
    /// Whether it takes a value.
    pub(crate) arg: Arg,
    /// Which commands know it.
    pub(crate) tools: Tools,
    /// Variables that set it, as far as [`Tool::reads`] them; a later one wins.
    pub(crate) env: &'static [&'static str],
    /// What it does, in one line; empty: not shown by `--help`.
    pub(crate) doc: &'static str,
    /// What giving it leads to.
    pub(crate) effect: Effect,
    /// Puts it into the request.
    pub(crate) set: Setter,
}

/// No short letter.
pub(crate) const NO: char = '\0';

/// An entry of the table.
pub(crate) const fn opt(
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
    /// With other long names.
    pub(crate) const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Some of its values are refused.
    pub(crate) const fn partly(mut self, refused: &'static str) -> Self {
        self.effect = Effect::Partly(refused);
        self
    }

    /// Nothing acts on it.
    pub(crate) const fn hint(mut self, why: &'static str) -> Self {
        self.effect = Effect::Hint(why);
        self
    }

    /// It is refused.
    pub(crate) const fn refused(mut self, why: &'static str) -> Self {
        self.effect = Effect::Refused(why);
        self
    }
}

impl fmt::Debug for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.long)
    }
}

/// Where a value comes from. A later one overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A `#SBATCH` line of the script: its number.
    Script(u32),
    /// A variable.
    Variable(&'static str),
    /// The command line.
    Line,
}

/// An option as it was given.
pub(crate) struct Given<'a> {
    /// Which.
    pub(crate) option: &'static Opt,
    /// Its value, if it has one.
    pub(crate) value: Option<&'a str>,
    /// For which command.
    pub(crate) tool: Tool,
    /// Where.
    pub(crate) source: &'a Source,
}

impl Given<'_> {
    /// The value, or nothing.
    pub(crate) fn text(&self) -> &str {
        self.value.unwrap_or_default()
    }
    /// Slurm's words for a value that can't be, then which it is and what would be right. Exit code 255.
    pub(crate) fn invalid(&self, remedy: &str) -> Stop {
        Stop::Bad {
            lines: vec![format!("Invalid --{} specification", self.option.long), self.remedy(remedy)],
            exit: 255,
        }
    }
    /// `--nodes=x: use …`, or `--reboot: …` without a value.
    pub(crate) fn remedy(&self, remedy: &str) -> String {
        match self.value {
            Some(value) => format!("--{}={value}: {remedy}", self.option.long),
            None => format!("--{}: {remedy}", self.option.long),
        }
    }
    /// A value that is understood but changes what runs in a way that Squall does not do. Exit code 1.
    pub(crate) fn not_done(&self, why: &str) -> Stop {
        Stop::bad(self.remedy(why))
    }
}

/// Why a command ends before it asks anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was asked for a text (`--help`).
    Show(String),
    /// The command line is none: lines as they are, and where to look. Exit code 255.
    Usage(String),
    /// Something is wrong with what was asked.
    Bad {
        /// Each after `NAME: error: `; those that begin with `fatal: ` or `plain: ` are shown as that.
        lines: Vec<String>,
        /// The exit code.
        exit: u8,
    },
    /// Everything was said already.
    Silent(u8),
}

impl Stop {
    /// One line, exit code 1.
    pub(crate) fn bad(line: impl Into<String>) -> Self {
        Self::Bad { lines: vec![line.into()], exit: 1 }
    }

    /// Adds a line that says where it was.
    #[must_use]
    pub(crate) fn at(self, place: &str) -> Self {
        match self {
            Self::Bad { mut lines, exit } => {
                // The last line of a refusal in the controller's words stays last: programs match it.
                let last = lines.iter().rposition(|l| !l.contains(" failed: ")).map_or(0, |at| at + 1);
                lines.insert(last, place.to_owned());
                Self::Bad { lines, exit }
            }
            Self::Usage(line) => Self::Usage(format!("{line}\n{place}")),
            other => other,
        }
    }

    /// What the user sees on standard error (`Show` has nothing to say there).
    pub(crate) fn complaint(&self, tool: Tool) -> String {
        let name = tool.name();
        match self {
            Self::Show(_) | Self::Silent(_) => String::new(),
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

    /// The exit code.
    pub(crate) fn exit(&self) -> u8 {
        match self {
            Self::Show(_) => 0,
            Self::Usage(_) => 255,
            Self::Bad { exit, .. } | Self::Silent(exit) => *exit,
        }
    }
}
