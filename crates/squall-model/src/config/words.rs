//! Reads values of configuration files that Slurm writes in another form: `YES`, `UNLIMITED`, `a,b`, times.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::duration::parse_limit;
use crate::limits::{OVER_TIME_UNLIMITED, TASKS_PER_NODE_MAX};

/// A value of a configuration file, as a number or a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a text is needed")]
pub(super) enum Word {
    Number(u64),
    Text(String),
}

/// Returns whether the text is one of Slurm's words for "no limit".
fn is_unlimited(text: &str) -> bool {
    ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

/// Reads a yes-or-no value: `true`, `false`, `"YES"` or `"NO"`.
pub(super) fn yes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "true, false, \"YES\" or \"NO\" is needed")]
    enum Truth {
        Plain(bool),
        Text(String),
    }
    match Truth::deserialize(deserializer)? {
        Truth::Plain(yes) => Ok(yes),
        Truth::Text(text) if text.eq_ignore_ascii_case("yes") => Ok(true),
        Truth::Text(text) if text.eq_ignore_ascii_case("no") => Ok(false),
        Truth::Text(text) => Err(D::Error::custom(format!("`{text}`: true, false, \"YES\" or \"NO\" is needed"))),
    }
}

/// Reads a yes-or-no value as [`yes`] does, where it makes a difference whether there is one.
pub(super) fn maybe<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    yes(deserializer).map(Some)
}

/// Reads a time limit: seconds as a number, or a text as in Slurm. None: unlimited.
pub(super) fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Word::deserialize(deserializer)? {
        Word::Number(seconds) => Ok(Some(seconds)),
        Word::Text(text) if is_unlimited(&text) => Ok(None),
        Word::Text(text) => {
            parse_limit(&text).map_err(|_| D::Error::custom(format!("`{text}` is not a time such as \"1-00:00:00\"")))
        }
    }
}

/// Reads a number of minutes. Slurm's words for "no limit" become 65535, as in Slurm.
pub(super) fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    count(deserializer).map(|minutes| minutes.map_or(OVER_TIME_UNLIMITED, u64::from))
}

/// Reads a number of minutes as [`minutes`] does, where it makes a difference whether there is one.
pub(super) fn some_minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    minutes(deserializer).map(Some)
}

/// Reads a count, as a number or a text. None: unlimited.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let wrong = |text: &str| D::Error::custom(format!("`{text}` is not a number or \"UNLIMITED\""));
    match Word::deserialize(deserializer)? {
        Word::Number(number) => u32::try_from(number).map(Some).map_err(|_| wrong(&number.to_string())),
        Word::Text(text) if is_unlimited(&text) => Ok(None),
        Word::Text(text) => text.trim().parse().map(Some).map_err(|_| wrong(&text)),
    }
}

/// Returns whether a number is the most tasks of a step on a node.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_most_tasks(number: &u32) -> bool {
    *number == TASKS_PER_NODE_MAX
}

/// Reads a list of names, given as a list or as a text with commas. The result is empty for `ALL`, which restricts
/// nothing.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a list of names, or a text with commas, is needed")]
    enum Names {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Names::deserialize(deserializer)? {
        Names::List(names) => names,
        Names::Text(text) if text.eq_ignore_ascii_case("ALL") => Vec::new(),
        Names::Text(text) => {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        }
    })
}

/// Returns whether a number is 0, which is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
