//! `squeue --progress`: one line for each job or whole array, with a bar that shows how far it is.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::duration::format_short;
use squall_model::id::JobId;
use squall_model::job::{EndState, JobState};
use squall_text::format::job::JobRow;

/// Options that would have no effect beside it.
pub(super) const EXCLUDED: [&str; 13] = [
    "array",
    "array-unique",
    "follow",
    "format",
    "Format",
    "json",
    "long",
    "only-job-state",
    "priority",
    "sort",
    "start",
    "steps",
    "yaml",
];
/// Width of a bar, characters.
const BAR: u64 = 24;

/// A job or a whole array.
#[derive(Default)]
struct Whole<'a> {
    rows: Vec<&'a JobRow>,
}

/// Returns the table. `header`: whether it has titles. Jobs that are over are left out, but for tasks of arrays that are
/// not.
pub(super) fn table(rows: &[JobRow], header: bool) -> String {
    let mut all: BTreeMap<JobId, Whole<'_>> = BTreeMap::new();
    for row in rows {
        let id = row.info.task.map_or(row.info.id, |task| task.array);
        all.entry(id).or_default().rows.push(row);
    }
    let mut text = String::new();
    if header {
        let _ = writeln!(text, "{:>10} {:16} {:26} HOW FAR", "JOBID", "NAME", "PROGRESS");
    }
    for (id, whole) in &all {
        let Some(first) = whole.rows.first() else { continue };
        let Some(((part, of), said)) = whole.progress() else { continue };
        let name: String = first.spec.name.chars().take(16).collect();
        let full = part.min(of) * BAR / of.max(1);
        let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
        let _ = writeln!(text, "{:>10} {name:16} [{bar}] {said}", id.0);
    }
    text
}

impl Whole<'_> {
    /// Returns how much of it is done, of how much, and that in words. None: it is over.
    fn progress(&self) -> Option<((u64, u64), String)> {
        let first = *self.rows.first()?;
        let array =
            first.spec.array.as_ref().filter(|_| first.info.task.is_some() || first.info.pending_tasks.is_some());
        let Some(array) = array else { return one(first) };
        let all = array.indices.len() as u64;
        let count = |holds: &dyn Fn(JobState) -> bool| -> u64 {
            let tasks = |row: &&JobRow| row.info.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64);
            self.rows.iter().filter(|row| holds(row.info.state)).map(tasks).sum()
        };
        let waiting = count(&|state| state == JobState::Pending);
        let over = count(&|state| matches!(state, JobState::Ended(_)));
        let failed = count(&|state| matches!(state, JobState::Ended(end) if end != EndState::Completed));
        let listed: u64 = count(&|_| true);
        // What is neither listed nor waits has ended and is forgotten.
        let ended = all.saturating_sub(listed).saturating_add(over).min(all);
        if ended == all {
            return None;
        }
        let mut said = format!("{ended} of {all} tasks have ended");
        for (count, word) in
            [(failed, "of these lately without success"), (listed - waiting - over, "run"), (waiting, "wait")]
        {
            if count > 0 {
                let _ = write!(said, ", {count} {word}");
            }
        }
        Some(((ended, all), said))
    }
}

/// The same of a job that is no array: by its time limit.
fn one(row: &JobRow) -> Option<((u64, u64), String)> {
    let (used, limit) = (row.time_used(), row.info.time_limit_s);
    match row.info.state {
        JobState::Ended(_) => None,
        JobState::Pending => Some(((0, 1), format!("waits: {}", row.reason()))),
        state => {
            let word = if state == JobState::Suspended { "suspended after" } else { "has run" };
            let of = limit.map_or(String::new(), |limit| format!(" of at most {}", format_short(limit)));
            Some(((limit.map_or(0, |_| used), limit.unwrap_or(1)), format!("{word} {}{of}", format_short(used))))
        }
    }
}
