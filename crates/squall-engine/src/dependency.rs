//! Dependencies as text, in Slurm's notation.

use std::fmt::Write as _;

use squall_model::id::JobId;
use squall_model::job::{Dependency, DependencyTerm};

/// Returns a dependency as `--dependency` takes it: `afterok:12:13_4,after:15+10`. Terms of one kind are joined.
pub(crate) fn dependency_text(dependency: &Dependency) -> String {
    let separator = separator(dependency);
    let mut text = String::new();
    let mut last = None;
    for term in &dependency.terms {
        let joins = last == Some(term.when) && term.job.is_some() && !dependency.any;
        if joins {
            text.push(':');
        } else {
            if !text.is_empty() {
                text.push(separator);
            }
            text.push_str(term.when.word());
            if term.job.is_some() {
                text.push(':');
            }
        }
        push_job(&mut text, term);
        last = Some(term.when);
    }
    text
}

/// Returns a dependency as `squeue` and `scontrol show job` print it: `afterok:12(unfulfilled),singleton(failed)`.
/// `terms`: the terms that still count, each with whether it can never be fulfilled. A whole array is `ID_*`.
pub(crate) fn dependency_status<'a>(
    dependency: &Dependency,
    terms: impl IntoIterator<Item = (&'a DependencyTerm, bool)>,
    is_array: impl Fn(JobId) -> bool,
) -> String {
    let mut text = String::new();
    for (term, failed) in terms {
        if !text.is_empty() {
            text.push(separator(dependency));
        }
        text.push_str(term.when.word());
        if term.job.is_some() {
            text.push(':');
            push_job(&mut text, term);
            if term.job.is_some_and(|job| job.index.is_none() && job.delay_min == 0 && is_array(job.id)) {
                text.push_str("_*");
            }
        }
        text.push_str(if failed { "(failed)" } else { "(unfulfilled)" });
    }
    text
}

fn separator(dependency: &Dependency) -> char {
    if dependency.any { '?' } else { ',' }
}

fn push_job(text: &mut String, term: &DependencyTerm) {
    // because `singleton` names no job
    let Some(job) = term.job else { return };
    // Writing to a String can't fail.
    let _ = write!(text, "{}", job.id);
    if let Some(index) = job.index {
        let _ = write!(text, "_{index}");
    }
    if job.delay_min > 0 {
        let _ = write!(text, "+{}", job.delay_min);
    }
}
