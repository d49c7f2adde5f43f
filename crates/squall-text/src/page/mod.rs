//! Description of a command, from which parser, `--help`, `--usage`, man page and completion are made.

pub mod complete;
mod help;
pub mod job;
mod man;

use std::ffi::OsStr;

use crate::options::flag::{self, Arguments, Flag};
use crate::options::getopt::Shape;
use crate::options::table::{GROUPS, plugins};
use crate::options::{Arg, Effect, Opt, Tool};

/// Description of a command.
#[derive(Debug)]
pub struct Page {
    /// Name by which the command is called: `squeue`, or `squall up`.
    pub name: &'static str,
    /// What the command does, in half a line.
    pub about: &'static str,
    /// Forms of a call, behind the name, such as `[OPTIONS] JOB...`.
    pub synopsis: &'static [&'static str],
    /// The command's options.
    pub options: Options,
    /// Text behind the options: operands, formats, examples.
    pub notes: &'static str,
}

/// Options of a command.
#[derive(Clone, Copy, Debug)]
pub enum Options {
    /// Rows of the table of sbatch, srun and salloc.
    Job(Tool),
    /// A table of its own.
    Own(&'static [Flag]),
}

/// An option as help and man page show it.
struct Row {
    /// Long names; the first is the usual one.
    long: Vec<&'static str>,
    letter: Option<char>,
    arg: Arg,
    doc: String,
    /// Environment variables that set the option.
    variables: Vec<&'static str>,
}

impl Row {
    fn of<O: Shape>(option: &O, doc: &str) -> Self {
        let aliases = option.aliases().iter().copied();
        Self {
            long: std::iter::once(option.long()).chain(aliases).filter(|name| !name.is_empty()).collect(),
            letter: option.short(),
            arg: option.arg(),
            doc: doc.to_owned(),
            variables: Vec::new(),
        }
    }

    fn of_job(option: &Opt, tool: Tool) -> Self {
        let moot = if matches!(option.effect, Effect::Hint(_)) { " (without effect)" } else { "" };
        let mut row = Self::of(option, &format!("{}{moot}", option.doc));
        row.long.truncate(1);
        row.variables = option.env.iter().copied().filter(|name| tool.reads(name)).collect();
        row
    }

    /// Returns the value behind a long name: `=value`, `[=value]`, or nothing.
    fn value(&self) -> String {
        match self.arg {
            Arg::None => String::new(),
            Arg::Needed(value) => format!("={value}"),
            Arg::Maybe(value) => format!("[={value}]"),
        }
    }
}

impl Page {
    /// Parses a command line of a command with its own table. The error is getopt's message, without the command's name.
    pub fn parse(&self, args: &[impl AsRef<OsStr>]) -> Result<Arguments, String> {
        let Options::Own(own) = self.options else { return Err(format!("{} has the table of job options", self.name)) };
        flag::parse(own, &args.iter().map(|arg| arg.as_ref().to_owned()).collect::<Vec<_>>())
    }

    /// Returns the options that users are told of, in titled groups; as in Slurm, those about the command itself are the
    /// last one. The others have no title if they are one group.
    fn groups(&self) -> Vec<(&'static str, Vec<Row>)> {
        let mut groups: Vec<(&str, Vec<Row>)> = match self.options {
            Options::Own(own) => {
                let told = flag::all(own).map(|flag| (flag, flag.told())).filter(|(_, told)| !told.is_empty());
                vec![("", told.map(|(flag, told)| Row::of(flag, &told)).collect())]
            }
            Options::Job(tool) => {
                let shown = |option: &&Opt| option.tools.has(tool) && !option.doc.is_empty();
                let rows = |options: &'static [Opt]| options.iter().filter(shown).map(|o| Row::of_job(o, tool));
                let added = (plugins::TITLE, plugins::added());
                let all = GROUPS.iter().map(|group| (group.title, group.options)).chain([added]);
                all.map(|(title, options)| (title, rows(options).collect())).collect()
            }
        };
        let about = |row: &mut Row| matches!(row.long.first(), Some(&("help" | "usage" | "version")));
        let help = groups.iter_mut().flat_map(|(_, rows)| rows.extract_if(.., about)).collect();
        groups.push(("Help options", help));
        groups.retain(|(_, rows)| !rows.is_empty());
        groups
    }
}
