//! Parses the command lines of listing and control commands: options and operands in any order.

use std::ffi::OsString;

use crate::format::sheet::Style;
use crate::options::getopt::{Getopt, Shape};
use crate::options::{Arg, Stop};

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The option takes no value.
    None,
    /// The option requires a value.
    Needed,
    /// The option may have a value, which must be attached to it (`--name=value`).
    Maybe,
}

/// Description of an option: long name (empty: none), letter (`\0`: none), whether it takes a value. Entries with the
/// same letter are the same option.
pub(crate) type Known = (&'static str, char, Value);

impl Shape for Known {
    fn long(&self) -> &'static str {
        self.0
    }
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    fn short(&self) -> Option<char> {
        Some(self.1).filter(|letter| *letter != '\0')
    }
    fn arg(&self) -> Arg {
        match self.2 {
            Value::None => Arg::None,
            Value::Needed => Arg::Needed("value"),
            Value::Maybe => Arg::Maybe("value"),
        }
    }
    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.1 != '\0' && self.1 == other.1)
    }
}

/// Options that every listing and control command has.
pub(crate) const SHARED: &[Known] =
    &[("help", '\0', Value::None), ("usage", '\0', Value::None), ("version", 'V', Value::None)];

/// An option on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The option's long name, or its letter where it has none.
    pub(crate) name: &'static str,
    /// Value of the option on the command line. None: it has none.
    pub(crate) value: Option<String>,
}

impl Given {
    /// Returns the option's value, or an empty text.
    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Options in the order given.
    pub(crate) options: Vec<Given>,
    /// Operands: the arguments that are not options.
    pub(crate) operands: Vec<String>,
}

impl Arguments {
    /// Returns whether the option `name` was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|o| o.name == name)
    }
    /// Formats the values of all options in `known` that have a long name, as `--verbose` prints them.
    pub(crate) fn in_force(&self, known: &[Known]) -> String {
        let value = |name| match (self.options.iter().filter(|o| o.name == name).count(), self.last(name)) {
            (0, _) => "(null)".to_owned(),
            (count, Some("")) => count.to_string(),
            (_, value) => value.unwrap_or_default().to_owned(),
        };
        let names = known.iter().map(|option| option.0).filter(|name| !name.is_empty());
        let lines: Vec<String> = names.map(|name| format!("{name:<13}= {}\n", value(name))).collect();
        let rule = "-".repeat(29);
        format!("{rule}\n{}{rule}\n\n", lines.concat())
    }
    /// Returns the last value given for the option `name`.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|o| o.name == name).map(Given::text)
    }

    /// Returns the output style that the last of `--parsable` and `--parsable2` selects, with the separator of sacct's
    /// option `--delimiter`.
    pub(crate) fn style(&self) -> Style {
        let delimiter = self.last("delimiter").unwrap_or("|").to_owned();
        match self.options.iter().rev().find(|o| o.name.starts_with("parsable")) {
            Some(option) => Style::Parsable { delimiter, ending: option.name == "parsable" },
            None => Style::Table,
        }
    }
}

/// Parses a command line. The error is getopt's message, without the command's name.
pub(crate) fn parse(known: &[&'static [Known]], args: &[String]) -> Result<Arguments, String> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let mut getopt = Getopt::new(known.iter().flat_map(|list| list.iter()), &args);
    let mut out = Arguments::default();
    loop {
        match getopt.next() {
            Ok(Some((option, value))) => out.options.push(Given { name: option.0, value }),
            Ok(None) => match getopt.operand() {
                Some(operand) => out.operands.push(operand.to_string_lossy().into_owned()),
                None => return Ok(out),
            },
            Err(Stop::Usage(text) | Stop::Show(text)) => return Err(text),
            Err(Stop::Bad { lines, .. }) => return Err(lines.join("; ")),
            Err(Stop::Silent(_)) => return Err(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::{Arguments, Known, Value, parse};

    const KNOWN: &[Known] = &[
        ("format", 'o', Value::Needed),
        ("Format", 'O', Value::Needed),
        ("noheader", 'h', Value::None),
        ("jobs", 'j', Value::Maybe),
        ("states", 't', Value::Needed),
        ("start", '\0', Value::None),
        ("user", 'u', Value::Needed),
        ("users", 'u', Value::Needed),
    ];

    fn seen(args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let Arguments { options, operands } = parse(&[KNOWN], &args)?;
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
        assert_eq!(seen(&["-x"]).unwrap_err(), "invalid option -- 'x'");
        assert_eq!(seen(&["-o"]).unwrap_err(), "option requires an argument -- 'o'");
        assert_eq!(seen(&["--format"]).unwrap_err(), "option '--format' requires an argument");
        assert_eq!(seen(&["--noheader=x"]).unwrap_err(), "option '--noheader' doesn't allow an argument");
    }

    proptest! {
        #[test]
        fn nothing_panics(args in prop::collection::vec(any::<String>(), 0..6)) {
            let _ = parse(&[KNOWN], &args);
        }
    }
}
