//! Options of all commands but sbatch, srun and salloc: their tables, and parsed command lines with options and operands
//! in any order.

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

use crate::format::sheet::Style;
use crate::options::getopt::{Getopt, Shape};
use crate::options::{Arg, Effect, Stop};

/// Entry of a command's option table. Parser, `--help`, man page and completion use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Long name, without dashes; empty: the option has only a letter.
    pub long: &'static str,
    /// Option letter; `\0`: none. Entries with the same letter are the same option.
    pub letter: char,
    /// Whether the option takes a value, and the value's name.
    pub arg: Arg,
    /// Description in one line. Empty: another name of an entry with the same letter, or nothing that users need, or all
    /// is said by `effect`.
    pub doc: &'static str,
    /// What Squall does with the option. [`parse`] refuses those that are refused.
    pub effect: Effect,
}

/// Returns an entry of an option table.
pub const fn flag(long: &'static str, letter: char, arg: Arg, doc: &'static str) -> Flag {
    Flag { long, letter, arg, doc, effect: Effect::Works }
}

impl Flag {
    /// Marks the option as one without effect, for the reason `why`.
    #[must_use]
    pub const fn hint(mut self, why: &'static str) -> Self {
        self.effect = Effect::Hint(why);
        self
    }

    /// Marks the option as one with refused values; `refused` describes these values and the reason.
    #[must_use]
    pub const fn partly(mut self, refused: &'static str) -> Self {
        self.effect = Effect::Partly(refused);
        self
    }

    /// Marks the option as refused, for the reason `why`, which names the remedy.
    #[must_use]
    pub const fn refused(mut self, why: &'static str) -> Self {
        self.effect = Effect::Refused(why);
        self
    }

    /// Returns the description for users; empty: they are not told of the option.
    pub fn told(&self) -> String {
        match self.effect {
            Effect::Hint(why) if self.doc.is_empty() => format!("{why}: taken and without effect"),
            Effect::Hint(why) => format!("{} (without effect: {why})", self.doc),
            Effect::Partly(refused) => format!("{} ({refused})", self.doc),
            Effect::Works | Effect::Refused(_) => self.doc.to_owned(),
        }
    }

    /// Returns the error for this option if it is refused: its name, its value, and the reason with the remedy.
    fn refusal(&self, value: Option<&str>) -> Option<String> {
        let Effect::Refused(why) = self.effect else { return None };
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        Some(format!("--{}{value}: {why}", self.long))
    }
}

/// Options that every command has; a command's own table may give them letters.
pub const SHARED: &[Flag] = &[
    flag("help", '\0', Arg::None, "show this help"),
    flag("usage", '\0', Arg::None, "show all options in a few lines"),
    flag("version", 'V', Arg::None, "show the version"),
];

/// Returns all options of a command with the table `own`.
pub fn all(own: &'static [Flag]) -> impl Iterator<Item = &'static Flag> + Clone {
    own.iter().chain(SHARED.iter().filter(|shared| own.iter().all(|flag| flag.long != shared.long)))
}

impl Shape for Flag {
    fn long(&self) -> &'static str {
        self.long
    }
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    fn short(&self) -> Option<char> {
        Some(self.letter).filter(|letter| *letter != '\0')
    }
    fn arg(&self) -> Arg {
        self.arg
    }
    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.letter != '\0' && self.letter == other.letter)
    }
}

/// An option on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenFlag {
    /// The option's long name; empty where it has none.
    pub name: &'static str,
    /// Value of the option on the command line. None: it has none.
    pub value: Option<String>,
}

impl GivenFlag {
    /// Returns the option's value, or an empty text.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Options in the order given.
    pub options: Vec<GivenFlag>,
    /// Operands: the arguments that are not options.
    pub operands: Vec<String>,
}

impl Arguments {
    /// Returns whether the option `name` was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|o| o.name == name)
    }

    /// Formats the values of all options in `table` that have a long name, as `--verbose` prints them.
    pub fn in_force(&self, table: &[Flag]) -> String {
        let value = |name| match (self.options.iter().filter(|o| o.name == name).count(), self.last(name)) {
            (0, _) => "(null)".to_owned(),
            (count, Some("")) => count.to_string(),
            (_, value) => value.unwrap_or_default().to_owned(),
        };
        let names = table.iter().map(|option| option.long).filter(|name| !name.is_empty() && *name != "help");
        let lines: Vec<String> = names.map(|name| format!("{name:<13}= {}\n", value(name))).collect();
        let rule = "-".repeat(29);
        format!("{rule}\n{}{rule}\n\n", lines.concat())
    }

    /// Returns the last value given for the option `name`.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|o| o.name == name).map(GivenFlag::text)
    }

    /// Returns the values given for the option `name`, in order.
    pub fn every(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |o| o.name == name).map(GivenFlag::text)
    }

    /// Returns the last value given for the option `name`, parsed. None: the option is not given. The error names option,
    /// value and problem.
    pub fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.last(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|problem| format!("--{name}={text}: {problem}"))
    }

    /// Returns the output style that the last of `--parsable` and `--parsable2` selects, with the separator of sacct's
    /// option `--delimiter`.
    pub fn style(&self) -> Style {
        let delimiter = self.last("delimiter").unwrap_or("|").to_owned();
        match self.options.iter().rev().find(|o| o.name.starts_with("parsable")) {
            Some(option) => Style::Parsable { delimiter, ending: option.name == "parsable" },
            None => Style::Table,
        }
    }
}

/// Parses a command line of a command with the table `own`. The error is getopt's message, without the command's name.
pub fn parse(own: &'static [Flag], args: &[OsString]) -> Result<Arguments, String> {
    let mut getopt = Getopt::new(all(own), args);
    let mut out = Arguments::default();
    loop {
        match getopt.next_option() {
            Ok(Some((option, value))) => match option.refusal(value.as_deref()) {
                Some(problem) => return Err(problem),
                None => out.options.push(GivenFlag { name: option.long, value }),
            },
            Ok(None) => match getopt.operand() {
                Some(operand) => out.operands.push(operand.to_string_lossy().into_owned()),
                None => return Ok(out),
            },
            Err(Stop::Usage(text) | Stop::Show(text)) => return Err(text),
            Err(Stop::Bad { lines, .. }) => return Err(lines.join("; ")),
            Err(Stop::Silent(_) | Stop::Help | Stop::Brief) => return Err(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use proptest::prelude::{any, prop, proptest};

    use super::{Arg, Arguments, Flag, flag, parse};

    const FLAGS: &[Flag] = &[
        flag("format", 'o', Arg::Needed("format"), ""),
        flag("Format", 'O', Arg::Needed("format"), ""),
        flag("noheader", 'h', Arg::None, ""),
        flag("jobs", 'j', Arg::Maybe("jobs"), ""),
        flag("states", 't', Arg::Needed("states"), ""),
        flag("start", '\0', Arg::None, ""),
        flag("user", 'u', Arg::Needed("users"), ""),
        flag("users", 'u', Arg::Needed("users"), ""),
        flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
        flag("pty", '\0', Arg::Maybe("name"), "").refused("there is no terminal: leave it out"),
    ];

    fn seen(args: &[&str]) -> Result<String, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let Arguments { options, operands } = parse(FLAGS, &args)?;
        let options: Vec<String> =
            options.iter().map(|o| o.value.as_ref().map_or(o.name.to_owned(), |v| format!("{}={v}", o.name))).collect();
        Ok(format!("{} | {}", options.join(" "), operands.join(" ")))
    }

    #[test]
    fn as_getopt_does() {
        assert_eq!(
            seen(&["-ho", "%i", "x", "--sta=PD"]).unwrap_err(),
            "option '--sta=PD' is ambiguous; possibilities: '--states' '--start'"
        );
        assert_eq!(seen(&["-ho", "%i", "x", "--state=PD"]).unwrap(), "noheader format=%i states=PD | x");
        assert_eq!(seen(&["-o%i", "-j", "12", "-j12", "--jobs=1,2"]).unwrap(), "format=%i jobs jobs=12 jobs=1,2 | 12");
        assert_eq!(seen(&["--For", "a", "--for", "b", "--use", "me"]).unwrap(), "Format=a format=b user=me | ");
        assert_eq!(seen(&["--", "-h"]).unwrap(), " | -h");
        assert_eq!(seen(&["-"]).unwrap(), " | -");
        assert_eq!(seen(&["--nosuch"]).unwrap_err(), "unrecognized option '--nosuch'");
        let meant = "unrecognized option '--no-haeder=1'\ndid you mean '--noheader'?";
        assert_eq!(seen(&["--no-haeder=1"]).unwrap_err(), meant);
        assert_eq!(seen(&["-x"]).unwrap_err(), "invalid option -- 'x'");
        assert_eq!(seen(&["-o"]).unwrap_err(), "option requires an argument -- 'o'");
        assert_eq!(seen(&["--format"]).unwrap_err(), "option '--format' requires an argument");
        assert_eq!(seen(&["--noheader=x"]).unwrap_err(), "option '--noheader' doesn't allow an argument");
    }

    #[test]
    fn what_is_refused_is_named_with_its_remedy() {
        assert_eq!(seen(&["--pty"]).unwrap_err(), "--pty: there is no terminal: leave it out");
        assert_eq!(seen(&["--pty=x", "-h"]).unwrap_err(), "--pty=x: there is no terminal: leave it out");
        assert_eq!(seen(&["--local"]).unwrap(), "local | ");
        let told = |name: &str| FLAGS.iter().find(|flag| flag.long == name).expect(name).told();
        assert_eq!((&*told("local"), &*told("pty")), ("only this cluster is known: taken and without effect", ""));
    }

    proptest! {
        #[test]
        fn nothing_panics(args in prop::collection::vec(any::<String>(), 0..6)) {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            let _ = parse(FLAGS, &args);
        }
    }
}
