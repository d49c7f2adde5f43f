//! The command line of listing and control commands by the rules of GNU getopt_long: options and operands in any order.

use std::collections::VecDeque;

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// It takes none.
    None,
    /// It needs one.
    Needed,
    /// It may have one, attached.
    Maybe,
}

/// An option: long name (empty: none), letter (`\0`: none), value.
pub(crate) type Known = (&'static str, char, Value);

/// Options that every command of this kind has.
pub(crate) const SHARED: &[Known] =
    &[("help", '\0', Value::None), ("usage", '\0', Value::None), ("version", 'V', Value::None)];

/// An option as it was given: its long name (or letter) and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The long name, or the letter where there is none.
    pub(crate) name: &'static str,
    /// The value.
    pub(crate) value: Option<String>,
}

impl Given {
    /// The value, or nothing.
    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// A command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The options in order.
    pub(crate) options: Vec<Given>,
    /// What is left.
    pub(crate) operands: Vec<String>,
}

impl Arguments {
    /// Whether an option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|o| o.name == name)
    }
    /// The last value of an option.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|o| o.name == name).map(Given::text)
    }
}

/// Takes a command line apart. The error is what getopt says, without the command's name.
pub(crate) fn parse(known: &[&'static [Known]], args: &[String]) -> Result<Arguments, String> {
    let mut out = Arguments::default();
    let mut rest: VecDeque<&str> = args.iter().map(String::as_str).collect();
    while let Some(arg) = rest.pop_front() {
        if arg == "--" {
            out.operands.extend(rest.drain(..).map(str::to_owned));
        } else if let Some(long) = arg.strip_prefix("--") {
            out.options.push(long_option(known, long, &mut rest)?);
        } else if let Some(letters) = arg.strip_prefix('-').filter(|l| !l.is_empty()) {
            short_options(known, letters, &mut rest, &mut out.options)?;
        } else {
            out.operands.push(arg.to_owned());
        }
    }
    Ok(out)
}

fn long_option(known: &[&'static [Known]], whole: &str, rest: &mut VecDeque<&str>) -> Result<Given, String> {
    let (name, value) = whole.split_once('=').map_or((whole, None), |(name, value)| (name, Some(value)));
    let (long, _, takes) = lookup(known, name)?;
    let value = match (takes, value) {
        (Value::None, Some(_)) => return Err(format!("option '--{long}' doesn't allow an argument")),
        (Value::Needed, None) => {
            Some(rest.pop_front().ok_or_else(|| format!("option '--{long}' requires an argument"))?)
        }
        (_, value) => value,
    };
    Ok(Given { name: long, value: value.map(str::to_owned) })
}

/// By its name or an unambiguous beginning of it. Case counts first, as `--format` and `--Format` differ.
fn lookup(known: &[&'static [Known]], name: &str) -> Result<Known, String> {
    let all = || known.iter().flat_map(|list| list.iter()).filter(|(long, _, _)| !long.is_empty());
    if let Some(found) = all().find(|(long, _, _)| *long == name) {
        return Ok(*found);
    }
    let near: Vec<&Known> = all().filter(|(long, _, _)| long.starts_with(name)).collect();
    match near.as_slice() {
        [] => Err(format!("unrecognized option '--{name}'")),
        [first, others @ ..] if others.iter().all(|o| o.1 == first.1 && first.1 != '\0') => Ok(**first),
        [only] => Ok(**only),
        many => {
            let list: Vec<String> = many.iter().map(|(long, _, _)| format!("'--{long}'")).collect();
            Err(format!("option '--{name}' is ambiguous; possibilities: {}", list.join(" ")))
        }
    }
}

fn short_options(
    known: &[&'static [Known]],
    letters: &str,
    rest: &mut VecDeque<&str>,
    out: &mut Vec<Given>,
) -> Result<(), String> {
    let mut chars = letters.chars();
    while let Some(letter) = chars.next() {
        let found = known.iter().flat_map(|list| list.iter()).find(|(_, short, _)| *short == letter);
        let Some((long, _, takes)) = found.filter(|_| letter != '\0') else {
            return Err(format!("invalid option -- '{letter}'"));
        };
        let attached = chars.as_str();
        let value = match takes {
            Value::None => None,
            Value::Maybe => Some(attached).filter(|a| !a.is_empty()),
            Value::Needed if !attached.is_empty() => Some(attached),
            Value::Needed => {
                Some(rest.pop_front().ok_or_else(|| format!("option requires an argument -- '{letter}'"))?)
            }
        };
        out.push(Given { name: long, value: value.map(|v| v.strip_prefix('=').unwrap_or(v).to_owned()) });
        if *takes != Value::None {
            break;
        }
    }
    Ok(())
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
            "option '--sta' is ambiguous; possibilities: '--states' '--start'"
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
