//! Parser of command lines by the rules of GNU getopt_long: long names may be abbreviated, values may be attached, and
//! options end at the first operand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use squall_model::config::similar;

use crate::options::{Arg, Opt, Stop};

/// Properties of an option that the parser needs.
pub trait Shape: 'static {
    /// Returns the long name, without dashes; empty: the option has none.
    fn long(&self) -> &'static str;
    /// Returns further long names, without dashes.
    fn aliases(&self) -> &'static [&'static str];
    /// Returns the short option letter. None: the option has none.
    fn short(&self) -> Option<char>;
    /// Returns whether the option takes a value.
    fn arg(&self) -> Arg;
    /// Returns whether `other` is the same option under another name. An abbreviation of both names is then not
    /// ambiguous.
    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Shape for Opt {
    fn long(&self) -> &'static str {
        self.long
    }
    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }
    fn short(&self) -> Option<char> {
        self.short
    }
    fn arg(&self) -> Arg {
        self.arg
    }
}

/// Iterates over the options at the beginning of an argument list.
#[derive(Debug)]
pub struct Getopt<'a, O: Shape> {
    options: Vec<&'static O>,
    rest: &'a [OsString],
    /// Remaining letters of the current group of short options, such as `-abc`.
    letters: &'a [u8],
    /// Whether `--` was read: arguments after it are no options.
    closed: bool,
}

/// An option with its value. None: given without a value.
pub type ParsedOption<O = Opt> = (&'static O, Option<String>);

impl<'a, O: Shape> Getopt<'a, O> {
    /// Returns a parser of `args`, which does not contain the command's name.
    pub fn new(options: impl Iterator<Item = &'static O>, args: &'a [OsString]) -> Self {
        Self { options: options.collect(), rest: args, letters: &[], closed: false }
    }

    /// Returns the next option. None: the next argument is an operand, or there is none.
    pub fn next_option(&mut self) -> Result<Option<ParsedOption<O>>, Stop> {
        if self.closed {
            return Ok(None);
        }
        if !self.letters.is_empty() {
            return self.short().map(Some);
        }
        let rest: &'a [OsString] = self.rest;
        let Some((first, after)) = rest.split_first() else { return Ok(None) };
        match first.as_bytes() {
            b"--" => {
                self.rest = after;
                self.closed = true;
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

    /// Returns the operand at which [`Self::next_option`] stopped, and skips it. For commands that accept options after
    /// operands.
    pub fn operand(&mut self) -> Option<&'a OsStr> {
        self.take()
    }

    /// Returns the remaining arguments, which are operands if [`Self::next_option`] returned None.
    pub fn operands(&self) -> &'a [OsString] {
        self.rest
    }

    fn long(&mut self, bytes: &[u8]) -> Result<ParsedOption<O>, Stop> {
        let whole = String::from_utf8_lossy(bytes).into_owned();
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(at) => (&whole[..whole.find('=').unwrap_or(whole.len())], Some(&bytes[at + 1..])),
            None => (whole.as_str(), None),
        };
        let option = self.lookup(name, &whole)?;
        match (option.arg(), value) {
            (Arg::None, Some(_)) => Err(Stop::Usage(format!("option '--{name}' doesn't allow an argument"))),
            (Arg::Needed(_), None) => match self.take() {
                Some(value) => Ok((option, Some(text(option, value)?))),
                None => Err(Stop::Usage(format!("option '--{}' requires an argument", option.long()))),
            },
            (_, Some(value)) => Ok((option, Some(text(option, OsStr::from_bytes(value))?))),
            (_, None) => Ok((option, None)),
        }
    }

    /// Finds an option by its long name or an unambiguous abbreviation of it; `whole` is the argument, for the error. The
    /// error about an unknown name suggests the most similar one.
    fn lookup(&self, name: &str, whole: &str) -> Result<&'static O, Stop> {
        let mut near: Vec<(&'static str, &'static O)> = Vec::new();
        for option in &self.options {
            let names = std::iter::once(option.long()).chain(option.aliases().iter().copied());
            for known in names.filter(|known| !known.is_empty()) {
                if known == name {
                    return Ok(option);
                }
                if known.starts_with(name) {
                    near.push((known, option));
                }
            }
        }
        match near.as_slice() {
            [] => {
                let names = self.options.iter().map(|option| option.long()).filter(|known| !known.is_empty());
                let meant = similar(name, &names.collect::<Vec<_>>());
                let remedy = meant.map(|known| format!("\ndid you mean '--{known}'?")).unwrap_or_default();
                Err(Stop::Usage(format!("unrecognized option '--{whole}'{remedy}")))
            }
            [(_, first), others @ ..] if others.iter().all(|(_, other)| first.is(other)) => Ok(first),
            all => {
                let list: Vec<String> = all.iter().map(|(known, _)| format!("'--{known}'")).collect();
                Err(Stop::Usage(format!("option '--{whole}' is ambiguous; possibilities: {}", list.join(" "))))
            }
        }
    }

    fn short(&mut self) -> Result<ParsedOption<O>, Stop> {
        let (letter, attached) = match self.letters.split_first() {
            Some((letter, attached)) => (char::from(*letter), attached),
            None => return Err(Stop::Usage("invalid option -- '-'".into())),
        };
        let Some(option) = self.options.iter().copied().find(|o| o.short() == Some(letter)) else {
            return Err(Stop::Usage(format!("invalid option -- '{letter}'")));
        };
        if option.arg() == Arg::None {
            self.letters = attached;
            return Ok((option, None));
        }
        self.letters = &[];
        if !attached.is_empty() {
            return Ok((option, Some(text(option, OsStr::from_bytes(attached))?)));
        }
        match option.arg() {
            Arg::Needed(_) => match self.take() {
                Some(value) => Ok((option, Some(text(option, value)?))),
                None => Err(Stop::Usage(format!("option requires an argument -- '{letter}'"))),
            },
            _ => Ok((option, None)),
        }
    }

    /// Removes and returns the next argument, which is a value or an operand. None: there is none.
    fn take(&mut self) -> Option<&'a OsStr> {
        let (first, after) = self.rest.split_first()?;
        self.rest = after;
        Some(first)
    }
}

fn text<O: Shape>(option: &O, value: &OsStr) -> Result<String, Stop> {
    match value.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Stop::bad(format!(
            "--{}={}: the value is not UTF-8 text; write it in that encoding",
            option.long(),
            value.to_string_lossy()
        ))),
    }
}
