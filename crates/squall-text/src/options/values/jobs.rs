//! Jobs and array tasks as users name them.

use squall_model::id::JobId;
use squall_model::limits::ARRAY_INDEX_MAX;
use squall_model::set::IndexSet;
use squall_model::wire::client::JobRef;

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

/// Parses a number of digits only.
pub fn number(text: &str) -> Option<u32> {
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
        if low > high || high >= ARRAY_INDEX_MAX {
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
