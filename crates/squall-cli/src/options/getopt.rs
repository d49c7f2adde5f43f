//! The command line by the rules of GNU getopt_long: abbreviations, attached values, stop at the first operand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::options::{Arg, Opt, Stop, Tool, table};

/// Takes options off the front of an argument list, one after another.
pub(crate) struct Getopt<'a> {
    tool: Tool,
    rest: &'a [OsString],
    /// Letters of the present `-abc` that are still to be looked at.
    letters: &'a [u8],
}

/// An option with its value.
pub(crate) type Found = (&'static Opt, Option<String>);

impl<'a> Getopt<'a> {
    /// Starts at the first argument (the command's name is not among them).
    pub(crate) fn new(tool: Tool, args: &'a [OsString]) -> Self {
        Self { tool, rest: args, letters: &[] }
    }

    /// The next option; None at the first operand or at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Stop> {
        if !self.letters.is_empty() {
            return self.short().map(Some);
        }
        let rest: &'a [OsString] = self.rest;
        let Some((first, after)) = rest.split_first() else { return Ok(None) };
        match first.as_bytes() {
            b"--" => {
                self.rest = after;
                Ok(None)
            }
            [b'-', b'-', long @ ..] => {
                self.rest = after;
                self.long(long).map(Some)
            }
            [b'-', letters @ ..] if !letters.is_empty() => {
                self.rest = after;
                self.letters = letters;
                self.short().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What is left after the options.
    pub(crate) fn operands(&self) -> &'a [OsString] {
        self.rest
    }

    fn long(&mut self, bytes: &[u8]) -> Result<Found, Stop> {
        let whole = String::from_utf8_lossy(bytes).into_owned();
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(at) => (&whole[..whole.find('=').unwrap_or(whole.len())], Some(&bytes[at + 1..])),
            None => (whole.as_str(), None),
        };
        let option = self.lookup(name, &whole)?;
        match (option.arg, value) {
            (Arg::None, Some(_)) => Err(Stop::Usage(format!("option '--{name}' doesn't allow an argument"))),
            (Arg::Needed(_), None) => match self.take() {
                Some(value) => Ok((option, Some(text(option, value)?))),
                None => Err(Stop::Usage(format!("option '--{}' requires an argument", option.long))),
            },
            (_, Some(value)) => Ok((option, Some(text(option, OsStr::from_bytes(value))?))),
            (_, None) => Ok((option, None)),
        }
    }

    /// By its name or an unambiguous beginning of it.
    fn lookup(&self, name: &str, whole: &str) -> Result<&'static Opt, Stop> {
        let mut near: Vec<(&'static str, &'static Opt)> = Vec::new();
        for option in table::options_of(self.tool) {
            for known in std::iter::once(&option.long).chain(option.aliases) {
                if *known == name {
                    return Ok(option);
                }
                if known.starts_with(name) {
                    near.push((known, option));
                }
            }
        }
        match near.as_slice() {
            [] => Err(Stop::Usage(format!("unrecognized option '--{whole}'"))),
            [(_, first), others @ ..] if others.iter().all(|(_, other)| std::ptr::eq(*first, *other)) => Ok(first),
            all => {
                let list: Vec<String> = all.iter().map(|(known, _)| format!("'--{known}'")).collect();
                Err(Stop::Usage(format!("option '--{whole}' is ambiguous; possibilities: {}", list.join(" "))))
            }
        }
    }

    fn short(&mut self) -> Result<Found, Stop> {
        let (letter, attached) = match self.letters.split_first() {
            Some((letter, attached)) => (char::from(*letter), attached),
            None => return Err(Stop::Usage("invalid option -- '-'".into())),
        };
        let Some(option) = table::options_of(self.tool).find(|o| o.short == Some(letter)) else {
            return Err(Stop::Usage(format!("invalid option -- '{letter}'")));
        };
        if option.arg == Arg::None {
            self.letters = attached;
            return Ok((option, None));
        }
        self.letters = &[];
        if !attached.is_empty() {
            return Ok((option, Some(text(option, OsStr::from_bytes(attached))?)));
        }
        match option.arg {
            Arg::Needed(_) => match self.take() {
                Some(value) => Ok((option, Some(text(option, value)?))),
                None => Err(Stop::Usage(format!("option requires an argument -- '{letter}'"))),
            },
            _ => Ok((option, None)),
        }
    }

    /// The next argument, as a value.
    fn take(&mut self) -> Option<&'a OsStr> {
        let (first, after) = self.rest.split_first()?;
        self.rest = after;
        Some(first)
    }
}

fn text(option: &Opt, value: &OsStr) -> Result<String, Stop> {
    match value.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Stop::bad(format!(
            "--{}={}: the value is not UTF-8 text; write it in that encoding",
            option.long,
            value.to_string_lossy()
        ))),
    }
}
