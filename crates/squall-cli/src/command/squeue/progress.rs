//! `squeue --progress`: one line for each job or whole array, with a bar that shows how far it is.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::duration::format_short;
use squall_model::id::JobId;
use squall_model::job::{EndState, JobState};
use squall_model::wire::info::JobInfo;
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

/// How many tasks of an array are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    listed: u64,
    pub(crate) waiting: u64,
    over: u64,
    failed: u64,
}

impl Tally {
    /// Counts a job of a list: a task, or the tasks that wait.
    pub(crate) fn add(&mut self, job: &JobInfo) {
        let count = job.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64);
        self.listed += count;
        match job.state {
            JobState::Pending => self.waiting += count,
            JobState::Ended(end) => {
                self.over += count;
                self.failed += if end == EndState::Completed { 0 } else { count };
            }
            _ => {}
        }
    }

    /// Returns how many tasks run.
    pub(crate) fn running(&self) -> u64 {
        self.listed - self.waiting - self.over
    }

    /// Returns how many of an array's tasks are done, of how many, and that in words. None: it is over.
    pub(crate) fn progress(&self, all: u64) -> Option<((u64, u64), String)> {
        // What is neither listed nor waits has ended and is forgotten.
        let ended = all.saturating_sub(self.listed).saturating_add(self.over).min(all);
        if ended == all {
            return None;
        }
        let mut said = format!("{ended} of {all} tasks have ended");
        for (count, word) in
            [(self.failed, "of these lately without success"), (self.running(), "run"), (self.waiting, "wait")]
        {
            if count > 0 {
                let _ = write!(said, ", {count} {word}");
            }
        }
        Some(((ended, all), said))
    }
}

/// Returns a bar of this width that is full by `part` of `of`.
pub(crate) fn bar((part, of): (u64, u64), width: u64) -> String {
    let full = part.min(of) * width / of.max(1);
    (0..width).map(|at| if at < full { '#' } else { '.' }).collect()
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
        let Some((far, said)) = whole.progress() else { continue };
        let name: String = first.spec.name.chars().take(16).collect();
        let _ = writeln!(text, "{:>10} {name:16} [{}] {said}", id.0, bar(far, BAR));
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
        let mut tally = Tally::default();
        self.rows.iter().for_each(|row| tally.add(&row.info));
        tally.progress(array.indices.len() as u64)
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
