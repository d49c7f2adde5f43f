//! The report of an import: what became of each line.

use std::fmt::{self, Write as _};

use super::parse::Origin;

/// What became of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It has a counterpart in `squall.toml` or in a file beside it.
    Taken,
    /// There is nothing that it could change here.
    Moot,
    /// Squall lacks it; the text says what happens instead.
    Missing,
    /// Slurm has no such key.
    Unknown,
    /// The value or the line can't be understood.
    Wrong,
}

impl Fate {
    /// All fates, in the order of the summary.
    const ALL: [Self; 5] = [Self::Taken, Self::Moot, Self::Missing, Self::Unknown, Self::Wrong];

    fn word(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Moot => "moot",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Wrong => "wrong",
        }
    }

    /// Returns whether the administrator has to mend it before a cluster can start.
    pub(super) fn is_fault(self) -> bool {
        matches!(self, Self::Unknown | Self::Wrong)
    }
}

/// What became of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) origin: Origin,
    /// The key, or a line's name and key: `PartitionName=gpu Hidden`.
    pub(super) key: String,
    pub(super) fate: Fate,
    /// As what it was taken, why it is moot, or what happens instead.
    pub(super) text: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joint = match self.fate {
            Fate::Taken => "taken as ",
            Fate::Moot => "moot because ",
            Fate::Missing => "missing: ",
            Fate::Unknown => "unknown: ",
            Fate::Wrong => "wrong: ",
        };
        let colon = if self.key.is_empty() { "" } else { ": " };
        write!(f, "{} {}{colon}{joint}{}", self.origin, self.key, self.text)
    }
}

/// What became of all settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Adds a row.
    pub(super) fn add(&mut self, origin: &Origin, key: impl Into<String>, fate: Fate, text: impl Into<String>) {
        self.rows.push(Row { origin: origin.clone(), key: key.into(), fate, text: text.into() });
    }

    /// Returns the number of rows of a fate.
    pub(super) fn count(&self, fate: Fate) -> usize {
        self.rows.iter().filter(|row| row.fate == fate).count()
    }

    /// Returns the rows that `wanted` selects as lines.
    pub(super) fn lines(&self, wanted: impl Fn(Fate) -> bool) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| wanted(row.fate)) {
            let _ = writeln!(text, "{row}");
        }
        text
    }

    /// Returns the numbers of rows: `12 taken, 3 moot, 1 missing`. Unknown and wrong ones are left out if there are
    /// none.
    pub(super) fn summary(&self) -> String {
        let counts = Fate::ALL.iter().map(|fate| (*fate, self.count(*fate)));
        let counts = counts.filter(|(fate, count)| *count > 0 || !fate.is_fault());
        counts.map(|(fate, count)| format!("{count} {}", fate.word())).collect::<Vec<_>>().join(", ")
    }
}
