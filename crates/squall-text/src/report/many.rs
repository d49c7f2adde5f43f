//! What `squall report` tells of many jobs at once: of an array as a whole, and of what has ended since yesterday.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::duration::format_elapsed;
use squall_model::job::{ArrayTask, EndState, JobState};
use squall_model::set::IndexSet;

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
#[derive(Debug, Default)]
struct OfState {
    tasks: usize,
    longest_s: u64,
    peak_kb: u64,
}

/// Returns the report of an array as a whole, from those of its tasks.
pub fn array_text(tasks: &[Report<'_>]) -> String {
    let Some(first) = tasks.first() else { return String::new() };
    let data = &first.job.data;
    let id = data.task.map_or(data.id, |task| task.array);
    let (mut states, mut total) = (BTreeMap::<String, OfState>::new(), 0);
    let mut failed = BTreeMap::<String, IndexSet>::new();
    for task in tasks {
        let count = task.job.data.pending_tasks.as_ref().map_or(1, IndexSet::len);
        total += count;
        let of = states.entry(task.state()).or_default();
        of.tasks += count;
        of.longest_s = of.longest_s.max(task.job.elapsed());
        of.peak_kb = of.peak_kb.max(task.used().memory_kb);
        if let (Some(how), Some(ArrayTask { index, .. })) = (task.ending(), task.job.data.task)
            && has_failed(how)
        {
            failed.entry(format!("{}. {}", task.state(), task.cause())).or_default().insert(index);
        }
    }
    let mut text = format!("Array {id} ({} of {}): {total} tasks\n", harmless(&data.name), data.owner.user);
    let _ = writeln!(text, "  Partition {}, account {}, QOS {}", data.partition, data.account, data.qos);
    let _ = writeln!(text, "\n  {:<14}{:>8}{:>14}{:>16}", "state", "tasks", "longest", "highest memory");
    for (state, of) in &states {
        let line = match of.longest_s {
            0 if of.peak_kb == 0 => format!("  {state:<14}{:>8}", of.tasks),
            longest => {
                format!("  {state:<14}{:>8}{:>14}{:>16}", of.tasks, format_elapsed(longest), amount(of.peak_kb))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    if failed.is_empty() {
        return text;
    }
    text.push_str("\nFailed tasks:\n");
    for (cause, tasks) in failed.iter().take(LINES_MAX) {
        let _ = writeln!(text, "  {tasks}: {cause}");
    }
    if failed.len() > LINES_MAX {
        let _ = writeln!(text, "  ... and {} causes more", failed.len() - LINES_MAX);
    }
    let all: IndexSet = failed.values().flat_map(IndexSet::iter).collect();
    let _ = match again(&data.submit_line, &all) {
        Some(again) => writeln!(text, "\nTo run them again:\n  {}", harmless(&again)),
        None => writeln!(text, "\nTo run them again: submit it with --array={all}"),
    };
    text
}

/// Returns what of a user's jobs has ended `since` a time, as a phrase such as *since yesterday*: those that failed first,
/// the newest first. Tasks of an array that ended alike share a line.
pub fn ended_text(since: &str, jobs: &[Report<'_>]) -> String {
    let mut groups: Vec<(Group<'_>, IndexSet)> = Vec::new();
    let mut by_key = BTreeMap::<(u32, String), usize>::new();
    let mut counts = BTreeMap::<String, usize>::new();
    for job in jobs {
        let Some(how) = job.ending() else { continue };
        *counts.entry(job.state().to_lowercase()).or_default() += 1;
        let group = Group { how, job };
        if let Some(ArrayTask { array, index }) = job.job.data.task {
            let key = (array.0, format!("{how:?} {}", job.cause()));
            if let Some(at) = by_key.get(&key) {
                groups[*at].1.insert(index);
                continue;
            }
            by_key.insert(key, groups.len());
            groups.push((group, [index].into_iter().collect()));
        } else {
            groups.push((group, IndexSet::new()));
        }
    }
    if groups.is_empty() {
        return format!("None of your jobs has ended {since}.\n");
    }
    groups.sort_by_key(|(group, _)| (!has_failed(group.how), std::cmp::Reverse(group.job.job.data.end)));
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let mut text = format!("Of your jobs have ended {since}: {}.\n\n", counts.join(", "));
    let _ = writeln!(text, "  {:<12}{:<14}{:<14}{:<21}{:>9}  why", "job", "name", "state", "ended", "time");
    for (Group { job, .. }, tasks) in groups.iter().take(LINES_MAX) {
        let row = job.job;
        let id = match row.data.task {
            Some(task) if tasks.len() > 1 => format!("{}_[{tasks}]", task.array),
            _ => row.id(),
        };
        let ended = row.end().map_or(String::new(), |end| row.clock.show(end));
        let _ = writeln!(
            text,
            "  {id:<11} {:<13.13} {:<13} {ended:<20} {:>9}  {}",
            harmless(&row.data.name),
            job.state(),
            format_elapsed(row.elapsed()),
            job.cause()
        );
    }
    if groups.len() > LINES_MAX {
        let _ = writeln!(text, "  ... and {} more: sacct -X -S yesterday", groups.len() - LINES_MAX);
    }
    text.push_str("\nMore of one of them: squall report JOB\n");
    text
}

/// A job, or the first one of several that ended alike.
#[derive(Debug)]
struct Group<'a> {
    how: EndState,
    job: &'a Report<'a>,
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
