//! Log levels of daemons.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::words::Word;

/// Log level: the least severe messages that a daemon logs. Read by Squall's names or Slurm's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub enum LogLevel {
    /// No messages are logged.
    Quiet,
    /// Logs errors: something was lost or can't be done.
    Error,
    /// Logs errors and warnings (an unexpected state).
    Warn,
    /// Logs errors, warnings and what an operator needs: starts and ends of daemons, state changes of nodes.
    #[default]
    Info,
    /// Logs what `Info` does, and state changes of jobs.
    Debug,
    /// Logs what `Debug` does, and details for finding a fault.
    Trace,
}

/// Slurm's names of log levels, with Squall's level for each. The index of an entry is the level's number in Slurm.
const SLURM: [(&str, LogLevel); 10] = [
    ("quiet", LogLevel::Quiet),
    ("fatal", LogLevel::Error),
    ("error", LogLevel::Error),
    ("info", LogLevel::Info),
    ("verbose", LogLevel::Debug),
    ("debug", LogLevel::Debug),
    ("debug2", LogLevel::Trace),
    ("debug3", LogLevel::Trace),
    ("debug4", LogLevel::Trace),
    ("debug5", LogLevel::Trace),
];

impl FromStr for LogLevel {
    type Err = String;

    /// Reads a log level by name, as `info` or `debug2`, or by Slurm's number.
    fn from_str(text: &str) -> Result<Self, String> {
        let own = [("warn", Self::Warn), ("trace", Self::Trace)];
        let named = || SLURM.iter().chain(&own).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let numbered = text.parse::<usize>().ok().and_then(|number| SLURM.get(number));
        numbered
            .or_else(named)
            .map(|(_, level)| *level)
            .ok_or_else(|| format!("`{text}` is no log level: quiet, error, warn, info, debug or trace is needed"))
    }
}

impl TryFrom<Word> for LogLevel {
    type Error = String;

    fn try_from(word: Word) -> Result<Self, String> {
        match word {
            Word::Number(number) => number.to_string().parse(),
            Word::Text(text) => text.trim().parse(),
        }
    }
}

impl From<LogLevel> for String {
    fn from(level: LogLevel) -> Self {
        level.to_string()
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quiet => "quiet",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LogLevel;
    use crate::config::Config;

    #[test]
    fn levels_are_read_in_slurms_words_and_numbers() {
        let level = |value: &str| Config::from_toml(&format!("SlurmctldDebug = {value}\n")).map(|c| c.slurmctld_debug);
        assert_eq!(level("\"debug2\""), Ok(LogLevel::Trace));
        assert_eq!(level("3"), Ok(LogLevel::Info));
        assert_eq!(level("\"WARN\""), Ok(LogLevel::Warn));
        assert!(level("\"loud\"").unwrap_err().contains("`loud` is no log level"));
        assert!(level("10").is_err());
        for level in
            [LogLevel::Quiet, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace]
        {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
    }
}
