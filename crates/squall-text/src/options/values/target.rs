//! References to jobs, array tasks and steps, as users write them: `123`, `123_4`, `123_[1-4,9]`, `123+1`, `123.0`.

use squall_model::id::{JobId, StepNo};
use squall_model::set::IndexSet;
use squall_model::wire::client::JobRef;

/// Bound of the array indices in `123_[…]`: each index must be lower.
const INDEX_MAX: u32 = squall_model::limits::ARRAY_INDEX_MAX;

/// A job, tasks of an array, or a step, as a command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The job or the array tasks that are named.
    pub job: JobRef,
    /// The step that is named. None: the job itself is meant.
    pub step: Option<StepNo>,
    /// The words of the command line that name the target.
    pub text: String,
}

/// Splits a list at white space and at commas outside brackets; empty parts are left out.
pub fn parts(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && (c == ',' || c.is_whitespace()) => {
                out.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out.retain(|part| !part.is_empty());
    out
}

/// Parses `123`, `123_4`, `123_[1-4,9]` or `123_*`, each with or without a step: `.0`, `.batch`.
pub fn target(text: &str) -> Option<Target> {
    let (job, step) = match text.split_once('.') {
        Some((job, "batch")) => (job, Some(StepNo::BATCH)),
        Some((job, step)) => (job, Some(StepNo(number(step)?))),
        None => (text, None),
    };
    Some(Target { job: job_ref(job)?, step, text: text.to_owned() })
}

/// Parses `123`, `123_4`, `123_[1-4,9]` or `123+1`.
pub fn job_ref(text: &str) -> Option<JobRef> {
    if let Some((leader, offset)) = text.split_once('+') {
        return Some(JobRef::Component(JobId(job_number(leader)?), number(offset)?));
    }
    let Some((array, tasks)) = text.split_once('_') else { return Some(JobRef::Job(JobId(job_number(text)?))) };
    let array = JobId(job_number(array)?);
    let inside = match tasks.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']')?,
        None => tasks,
    };
    // In `[1-4%2]` the limit `%2` does not select tasks.
    let inside = inside.split_once('%').map_or(inside, |(indices, _)| indices);
    if inside == "*" { Some(JobRef::Job(array)) } else { Some(JobRef::Tasks(array, indices(inside)?)) }
}

fn job_number(text: &str) -> Option<u32> {
    number(text).filter(|n| *n > 0)
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// Parses array indices: `1-4,9` or `0-20:5`.
fn indices(text: &str) -> Option<IndexSet> {
    let mut all = IndexSet::new();
    for item in text.split(',') {
        let (range, step) = match item.split_once(':') {
            Some((range, step)) => (range, number(step).filter(|s| *s > 0)?),
            None => (item, 1),
        };
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (number(low)?, number(high)?);
        if low > high || high >= INDEX_MAX {
            return None;
        }
        if step == 1 {
            all.union_with(&IndexSet::range(low, high));
        } else {
            let stepped: IndexSet = (low..=high).step_by(step as usize).collect();
            all.union_with(&stepped);
        }
    }
    Some(all)
}

/// Returns the job id in a reference: that of the job, of the array, or of the first component.
pub fn id_of(job: &JobRef) -> JobId {
    match job {
        JobRef::Job(id) | JobRef::Tasks(id, _) => *id,
        JobRef::Component(leader, offset) => JobId(leader.0.saturating_add(*offset)),
    }
}
