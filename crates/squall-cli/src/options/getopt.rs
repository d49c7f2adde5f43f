//! The command line by the rules of GNU getopt_long: abbreviations, attached values, stop at the first operand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::options::{Arg, Opt, Stop};

/// What the parser must know of an option.
pub(crate) trait Shape: 'static {
    /// Its long name, without dashes; empty: it has none.
    fn long(&self) -> &'static str;
    /// Other long names.
    fn aliases(&self) -> &'static [&'static str];
    /// Its letter.
    fn short(&self) -> Option<char>;
    /// Whether it takes a value.
    fn arg(&self) -> Arg;
    /// Whether the other is the same option by another name, so that their common beginning is not ambiguous.
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

/// Takes options off the front of an argument list, one after another.
pub(crate) struct Getopt<'a, O: Shape> {
    options: Vec<&'static O>,
    rest: &'a [OsString],
    /// Letters of the present `-abc` that are still to be looked at.
    letters: &'a [u8],
    /// `--` was met: nothing after it is an option.
    closed: bool,
}

/// An option with its value.
pub(crate) type Found<O = Opt> = (&'static O, Option<String>);

impl<'a, O: Shape> Getopt<'a, O> {
    /// Starts at the first argument (the command's name is not among them).
    pub(crate) fn new(options: impl Iterator<Item = &'static O>, args: &'a [OsString]) -> Self {
        Self { options: options.collect(), rest: args, letters: &[], closed: false }
    }

    /// The next option; None at the first operand or at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Found<O>>, Stop> {
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

    /// The operand at which [`Self::next`] stopped, for commands that take options after operands, too.
    pub(crate) fn operand(&mut self) -> Option<&'a OsStr> {
        self.take()
    }

    /// What is left after the options.
    pub(crate) fn operands(&self) -> &'a [OsString] {
        self.rest
    }

    fn long(&mut self, bytes: &[u8]) -> Result<Found<O>, Stop> {
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

    /// By its name or an unambiguous beginning of it.
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
            [] => Err(Stop::Usage(format!("unrecognized option '--{whole}'"))),
            [(_, first), others @ ..] if others.iter().all(|(_, other)| first.is(other)) => Ok(first),
            all => {
                let list: Vec<String> = all.iter().map(|(known, _)| format!("'--{known}'")).collect();
                Err(Stop::Usage(format!("option '--{whole}' is ambiguous; possibilities: {}", list.join(" "))))
            }
        }
    }

    fn short(&mut self) -> Result<Found<O>, Stop> {
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

    /// The next argument, as a value.
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
