//! What `squall report` tells of many jobs at once: of an array as a whole, and of what has ended since yesterday.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use squall_model::duration::format_elapsed;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, EndState, JobState};
use squall_model::set::IndexSet;
use squall_model::time::Time;

use super::{Report, amount};
use crate::format::harmless;

/// Most lines of one kind that are listed; then it is told how many are left out.
const LINES_MAX: usize = 40;

/// Returns whether a job that ended like this did not do what it was to do, and nobody had ended it.
fn has_failed(how: EndState) -> bool {
    !matches!(how, EndState::Completed | EndState::Cancelled { .. } | EndState::Requeued)
}

/// Returns the line that submits these tasks of an array again: the line that submitted it, with other indices. None: a
/// program other than sbatch has submitted it, or the quotes around its command are not known.
fn again(submit_line: &str, tasks: &IndexSet) -> Option<String> {
    let mut words: Vec<&str> = submit_line.split(' ').collect();
    let is_sbatch = words.first().is_some_and(|program| program.rsplit('/').next() == Some("sbatch"));
    if !is_sbatch || words.iter().any(|word| word.starts_with("--wrap")) {
        return None;
    }
    let own = format!("--array={tasks}");
    let short = |word: &str| word.strip_prefix("-a").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if let Some(at) = words.iter().position(|word| word.starts_with("--array=") || short(word)) {
        words[at] = &own;
    } else if let Some(at) = words.iter().position(|word| ["--array", "-a"].contains(word))
        && at + 1 < words.len()
    {
        words.remove(at + 1);
        words[at] = &own;
    } else {
        words.insert(1, &own);
    }
    Some(words.join(" "))
}

/// What the tasks of an array in one state have in common.
#[derive(Clone, Copy, Debug)]
pub struct OfState {
    /// The state of one of them.
    pub state: JobState,
    /// Number of tasks.
    pub tasks: usize,
    /// Longest time that one ran, seconds.
    pub longest_s: u64,
    /// Highest memory of one, KiB.
    pub peak_kb: u64,
}

/// An array as a whole.
#[derive(Clone, Debug)]
pub struct ArraySummary {
    /// Id of the array.
    pub id: JobId,
    /// Number of tasks.
    pub total: usize,
    /// The tasks by the name of their state.
    pub states: BTreeMap<String, OfState>,
    /// Tasks that failed, by the sentence that says why.
    pub failed: BTreeMap<String, IndexSet>,
    /// The line that runs the failed tasks again. None: none failed, or the line is not known.
    pub again: Option<String>,
}

impl ArraySummary {
    /// Returns what there is to say of an array from the reports of its tasks. None: there are none.
    pub fn of(tasks: &[Report<'_>]) -> Option<Self> {
        let data = &tasks.first()?.job.data;
        let (mut states, mut total) = (BTreeMap::<String, OfState>::new(), 0);
        let mut failed = BTreeMap::<String, IndexSet>::new();
        for task in tasks {
            let (row, count) = (&task.job.data, task.job.data.pending_tasks.as_ref().map_or(1, IndexSet::len));
            total += count;
            let none = OfState { state: row.state, tasks: 0, longest_s: 0, peak_kb: 0 };
            let of = states.entry(task.state()).or_insert(none);
            of.tasks += count;
            of.longest_s = of.longest_s.max(task.job.elapsed());
            of.peak_kb = of.peak_kb.max(task.used().memory_kb);
            if let (Some(how), Some(ArrayTask { index, .. })) = (task.ending(), row.task)
                && has_failed(how)
            {
                failed.entry(format!("{}. {}", task.state(), task.cause())).or_default().insert(index);
            }
        }
        let mut whole = Self { id: data.task.map_or(data.id, |task| task.array), total, states, failed, again: None };
        whole.again = if whole.failed.is_empty() { None } else { again(&data.submit_line, &whole.all_failed()) };
        Some(whole)
    }

    /// Returns the indices of all tasks that failed.
    pub fn all_failed(&self) -> IndexSet {
        self.failed.values().flat_map(IndexSet::iter).collect()
    }

    /// Returns how many tasks have ended.
    pub fn ended(&self) -> usize {
        let ended = |of: &&OfState| matches!(of.state, JobState::Ended(_));
        self.states.values().filter(ended).map(|of| of.tasks).sum()
    }

    /// Returns how to run the failed tasks again, in words. None: none failed.
    pub fn remedy(&self) -> Option<String> {
        match &self.again {
            _ if self.failed.is_empty() => None,
            Some(again) => Some(again.clone()),
            None => Some(format!("submit it with --array={}", self.all_failed())),
        }
    }

    /// Returns the summary as a JSON object.
    pub fn json(&self) -> Value {
        let states = self.states.iter().map(|(state, of)| {
            let (longest, peak) = (of.longest_s, of.peak_kb);
            json!({ "state": state, "tasks": of.tasks, "longest_seconds": longest, "memory_peak_kb": peak })
        });
        let failed = self.failed.iter().map(|(cause, tasks)| json!({ "tasks": tasks.to_string(), "cause": cause }));
        json!({
            "array_job_id": self.id.0,
            "tasks": self.total,
            "ended": self.ended(),
            "states": states.collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
            "again": self.again,
        })
    }
}

/// Returns the report of an array as a whole, from those of its tasks.
pub fn array_text(tasks: &[Report<'_>]) -> String {
    let (Some(first), Some(whole)) = (tasks.first(), ArraySummary::of(tasks)) else { return String::new() };
    let data = &first.job.data;
    let (id, total) = (whole.id, whole.total);
    let mut text = format!("Array {id} ({} of {}): {total} tasks\n", harmless(&data.name), data.owner.user);
    let _ = writeln!(text, "  Partition {}, account {}, QOS {}", data.partition, data.account, data.qos);
    let _ = writeln!(text, "\n  {:<14}{:>8}{:>14}{:>16}", "state", "tasks", "longest", "highest memory");
    for (state, of) in &whole.states {
        let line = match of.longest_s {
            0 if of.peak_kb == 0 => format!("  {state:<14}{:>8}", of.tasks),
            longest => {
                format!("  {state:<14}{:>8}{:>14}{:>16}", of.tasks, format_elapsed(longest), amount(of.peak_kb))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    if whole.failed.is_empty() {
        return text;
    }
    text.push_str("\nFailed tasks:\n");
    for (cause, tasks) in whole.failed.iter().take(LINES_MAX) {
        let _ = writeln!(text, "  {tasks}: {cause}");
    }
    if whole.failed.len() > LINES_MAX {
        let _ = writeln!(text, "  ... and {} causes more", whole.failed.len() - LINES_MAX);
    }
    let remedy = whole.remedy().unwrap_or_default();
    let _ = match &whole.again {
        Some(again) => writeln!(text, "\nTo run them again:\n  {}", harmless(again)),
        None => writeln!(text, "\nTo run them again: {remedy}"),
    };
    text
}

/// Returns the reports of jobs as a JSON object: a list, `jobs`, and the summary if they are one array, `array`.
pub fn json(jobs: &[Report<'_>]) -> Value {
    let mut all = json!({ "jobs": jobs.iter().map(Report::json).collect::<Vec<_>>() });
    if let Some(whole) = ArraySummary::of(jobs).filter(|_| are_one_array(jobs)) {
        all["array"] = whole.json();
    }
    all
}

/// Jobs of a user that have ended alike: one job, or tasks of an array.
#[derive(Clone, Debug)]
pub struct EndedGroup {
    /// How they ended.
    pub how: EndState,
    /// The id as users write it: `12`, `12_3`, `12_[3,5]`.
    pub id: String,
    /// The number in the address of its page: of the job, the task, or the array of several tasks.
    pub page: String,
    /// Name of the job.
    pub name: String,
    /// Name of the state.
    pub state: String,
    /// When the last of them ended.
    pub ended: Option<Time>,
    /// How long the first one ran, seconds.
    pub ran_s: u64,
    /// Why, in a sentence.
    pub cause: String,
    /// Number of jobs.
    pub count: usize,
}

impl EndedGroup {
    /// Returns whether they did not do what they were to do, and nobody had ended them.
    pub fn has_failed(&self) -> bool {
        has_failed(self.how)
    }
}

/// Returns jobs that have ended: those that failed first, the newest first. Tasks of an array that ended alike are
/// together.
pub fn ended(jobs: &[Report<'_>]) -> Vec<EndedGroup> {
    let mut groups: Vec<(EndedGroup, Option<ArrayTask>, IndexSet)> = Vec::new();
    let mut by_key = BTreeMap::<(u32, String), usize>::new();
    for job in jobs {
        let (Some(how), row) = (job.ending(), job.job) else { continue };
        let (cause, task) = (job.cause(), row.data.task);
        if let Some(ArrayTask { array, index }) = task {
            let at = *by_key.entry((array.0, format!("{how:?} {cause}"))).or_insert(groups.len());
            if let Some((group, _, tasks)) = groups.get_mut(at) {
                tasks.insert(index);
                group.ended = group.ended.max(row.end());
                continue;
            }
        }
        let group = EndedGroup {
            how,
            id: row.id(),
            page: row.id(),
            name: row.data.name.clone(),
            state: job.state(),
            ended: row.end(),
            ran_s: row.elapsed(),
            cause,
            count: 1,
        };
        groups.push((group, task, task.iter().map(|task| task.index).collect()));
    }
    for (group, task, tasks) in &mut groups {
        if let Some(task) = task.filter(|_| tasks.len() > 1) {
            (group.id, group.page) = (format!("{}_[{tasks}]", task.array), task.array.to_string());
            group.count = tasks.len();
        }
    }
    let mut groups: Vec<EndedGroup> = groups.into_iter().map(|(group, ..)| group).collect();
    groups.sort_by_key(|group| (!group.has_failed(), std::cmp::Reverse(group.ended)));
    groups
}

/// Returns what of a user's jobs has ended `since` a time, as a phrase such as *since yesterday*: those that failed first,
/// the newest first.
pub fn ended_text(since: &str, jobs: &[Report<'_>]) -> String {
    let groups = ended(jobs);
    let Some(clock) = jobs.first().map(|job| &job.job.clock).filter(|_| !groups.is_empty()) else {
        return format!("None of your jobs has ended {since}.\n");
    };
    let mut counts = BTreeMap::<String, usize>::new();
    for group in &groups {
        *counts.entry(group.state.to_lowercase()).or_default() += group.count;
    }
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let mut text = format!("Of your jobs have ended {since}: {}.\n\n", counts.join(", "));
    let _ = writeln!(text, "  {:<12}{:<14}{:<14}{:<21}{:>9}  why", "job", "name", "state", "ended", "time");
    for group in groups.iter().take(LINES_MAX) {
        let _ = writeln!(
            text,
            "  {:<11} {:<13.13} {:<13} {:<20} {:>9}  {}",
            group.id,
            harmless(&group.name),
            group.state,
            group.ended.map_or(String::new(), |end| clock.show(end)),
            format_elapsed(group.ran_s),
            group.cause
        );
    }
    if groups.len() > LINES_MAX {
        let _ = writeln!(text, "  ... and {} more: sacct -X -S yesterday", groups.len() - LINES_MAX);
    }
    text.push_str("\nMore of one of them: squall report JOB\n");
    text
}

/// Returns whether these are tasks of one array.
pub fn are_one_array(jobs: &[Report<'_>]) -> bool {
    let of = |report: &Report<'_>| {
        let data = &report.job.data;
        data.task.map(|task| task.array).or_else(|| data.pending_tasks.as_ref().map(|_| data.id))
    };
    let first = jobs.first().and_then(of);
    first.is_some()
        && (jobs.len() > 1
            || jobs.iter().any(|job| job.job.data.state == JobState::Pending && job.job.data.pending_tasks.is_some()))
        && jobs.iter().all(|job| of(job) == first)
}

#[cfg(test)]
mod tests {
    use super::again;

    #[test]
    fn the_failed_tasks_are_submitted_as_the_array_was() {
        let tasks = [3, 17].into_iter().collect();
        for (line, expected) in [
            ("sbatch sweep.sh a b", "sbatch --array=3,17 sweep.sh a b"),
            ("sbatch --array=0-199%5 -J x sweep.sh", "sbatch --array=3,17 -J x sweep.sh"),
            ("/usr/bin/sbatch -a 1-9 sweep.sh", "/usr/bin/sbatch --array=3,17 sweep.sh"),
            ("sbatch -a1-9 --array sweep.sh", "sbatch --array=3,17 --array sweep.sh"),
        ] {
            assert_eq!(again(line, &tasks).as_deref(), Some(expected));
        }
        assert_eq!(again("", &tasks), None);
        assert_eq!(again("python submit.py", &tasks), None);
        assert_eq!(again("sbatch --array=1-4 --wrap=echo a b", &tasks), None);
    }
}
