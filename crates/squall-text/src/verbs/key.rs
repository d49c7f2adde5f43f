//! The keys of scontrol's verbs, as rows of tables: Slurm's names, the field of REST bodies that sets the same, how the
//! value is read, and what it sets.

use jiff::Zoned;
use serde_json::Value;
use squall_model::duration::{format_elapsed, parse_limit, parse_memory_mb, whole_minutes};
use squall_model::time::Time;

use crate::columns::records::starts;
use crate::options::values::when::{REMEDY, model_time, when};

/// A key of a verb that changes an `U`.
#[derive(Debug)]
pub struct Key<U: 'static> {
    /// Slurm's names of the key, each with the fewest letters of an abbreviation.
    pub names: &'static [(&'static str, usize)],
    /// Field of REST bodies. Empty: there is none.
    pub field: &'static str,
    set: Set<U>,
}

/// How the value of a key is read, and what it sets. REST has numbers and truths, and lists where texts have commas.
#[derive(Debug)]
pub(super) enum Set<U> {
    Text(fn(&mut U, String)),
    /// A text. Empty or `(null)`: the value is removed.
    Optional(fn(&mut U, Option<String>)),
    /// Names with commas between them, and the sign before `=`.
    Names(fn(&mut U, Option<char>, Vec<String>)),
    Number(fn(&mut U, u32)),
    /// `YES`, `NO`, `1`, `0` or an abbreviation.
    Truth(fn(&mut U, bool)),
    /// An amount of memory, MiB.
    Memory(fn(&mut U, u64)),
    /// A time limit in seconds, of whole minutes. None: unlimited. A plain number has minutes.
    Limit(fn(&mut U, Option<u64>)),
    /// A length of time in seconds. None: unlimited. A plain number has minutes, but seconds in REST.
    Length(fn(&mut U, Option<u64>)),
    Time(fn(&mut U, Time)),
    /// A value in a format of its own, with the sign before `=`. In REST each entry of a list is a value.
    Own(fn(&mut U, Option<char>, &str) -> Result<(), Bad>),
}

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is malformed.
    Value,
    /// It is no time limit.
    Limit,
    /// It is no point in time.
    Time,
    /// It is malformed, for this reason.
    Because(String),
    /// It is Slurm's, but Squall can't obey it, for this reason.
    NotDone(String),
}

impl Bad {
    /// Returns the reason, for users.
    pub fn text(&self, value: &str) -> String {
        match self {
            Self::Value => format!("{value} can't be read"),
            Self::Limit => format!("{value} is no time limit"),
            Self::Time => format!("{value}: {REMEDY}"),
            Self::Because(why) | Self::NotDone(why) => why.clone(),
        }
    }
}

/// Returns a row of a table.
pub(super) const fn key<U>(names: &'static [(&'static str, usize)], field: &'static str, set: Set<U>) -> Key<U> {
    Key { names, field, set }
}

/// Returns whether `word` abbreviates `name` with at least `least` letters.
pub fn means(word: &str, name: &str, least: usize) -> bool {
    word.len() >= least && starts(name, word)
}

impl<U> Key<U> {
    /// Returns the first key that a word names.
    pub fn find(keys: &'static [Self], word: &str) -> Option<&'static Self> {
        keys.iter().find(|key| key.names.iter().any(|(name, least)| means(word, name, *least)))
    }

    /// Returns the key's first name.
    pub fn name(&self) -> &'static str {
        self.names.first().map_or("", |(name, _)| name)
    }

    /// Sets the value of `KEY=VALUE`, `KEY+=VALUE` or `KEY-=VALUE`. `now` is the user's time.
    pub fn read(&self, update: &mut U, sign: Option<char>, value: &str, now: &Zoned) -> Result<(), Bad> {
        match self.set {
            Set::Text(set) => set(update, value.to_owned()),
            Set::Optional(set) => set(update, Some(value.to_owned()).filter(|v| !v.is_empty() && v != "(null)")),
            Set::Names(set) => {
                set(update, sign, value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect());
            }
            Set::Number(set) => set(update, value.parse().map_err(|_| Bad::Value)?),
            Set::Truth(set) => set(update, truth(value).ok_or(Bad::Value)?),
            Set::Memory(set) => set(update, parse_memory_mb(value).map_err(|_| Bad::Value)?),
            Set::Limit(set) => set(update, parse_limit(value).map_err(|_| Bad::Limit)?.map(whole_minutes)),
            Set::Length(set) => set(update, parse_limit(value).map_err(|_| Bad::Value)?),
            Set::Time(set) => set(update, when(value, now).map(|at| model_time(at.timestamp())).ok_or(Bad::Time)?),
            Set::Own(set) => set(update, sign, value)?,
        }
        Ok(())
    }

    /// Sets the value of a field. The error comes with the value.
    pub(crate) fn enter(&self, update: &mut U, value: &Value, now: &Zoned) -> Result<(), (Bad, String)> {
        if let (Value::Array(each), Set::Own(_)) = (value, &self.set) {
            return each.iter().try_for_each(|one| self.enter(update, one, now));
        }
        let number = || value.as_i64().or_else(|| value.as_f64().filter(|real| real.fract() == 0.0).map(|n| n as i64));
        let text = match (&self.set, number()) {
            // In Slurm, 0 is no time, but one that is not set.
            (Set::Time(_), Some(0)) => return Ok(()),
            (Set::Time(_), Some(seconds)) if seconds > 0 => format!("uts{seconds}"),
            (Set::Length(_), Some(seconds)) if seconds >= 0 => format_elapsed(seconds.unsigned_abs()),
            (Set::Time(_) | Set::Length(_) | Set::Limit(_), Some(number)) if number < 0 => format!("({number})"),
            (_, Some(number)) => number.to_string(),
            (_, None) => plain(value),
        };
        self.read(update, None, &text, now).map_err(|bad| (bad, text))
    }
}

/// Returns a value as scontrol takes it: a list with commas, a truth as a number.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(truth) => u8::from(*truth).to_string(),
        Value::Array(each) => each.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        text if means(text, "NO", 1) => Some(false),
        text => means(text, "YES", 1).then_some(true),
    }
}

/// Returns a text without the quotes around it.
pub(super) fn unquoted(text: &str) -> String {
    text.trim_matches(['"', '\'']).to_owned()
}
