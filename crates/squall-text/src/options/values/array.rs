//! Values of `--array`: `0-9`, `1,3,5-7` or `0-20:4`, each optionally with `%N`, the number of tasks that may run at
//! once.

use squall_model::job::ArraySpec;
use squall_model::limits::{ARRAY_INDEX_MAX, ARRAY_RANGES_MAX};
use squall_model::set::IndexSet;

/// Reads a value of `--array`. The error describes the problem.
pub fn array(text: &str) -> Result<ArraySpec, String> {
    let (list, limit) = match text.split_once('%') {
        Some((list, limit)) => (list, running_limit(limit)?),
        None => (text, None),
    };
    let shown = if limit.is_none() { list } else { text };
    let list = list.strip_prefix('[').map_or(list, |inner| inner.strip_suffix(']').unwrap_or(inner));
    let mut sets = list.split(',').map(|part| range(part.trim())).collect::<Result<Vec<IndexSet>, String>>()?;
    // Unites neighbours pairwise, so that a list of thousands of indices costs no more than sorting it.
    while sets.len() > 1 {
        sets = sets.chunks(2).map(union).collect();
    }
    let indices = sets.pop().unwrap_or_default();
    if indices.ranges().len() > ARRAY_RANGES_MAX {
        return Err(format!("it has more than {ARRAY_RANGES_MAX} separate ranges; use fewer, longer ones"));
    }
    Ok(ArraySpec { indices, limit, text: shown.to_owned() })
}

/// Reads the number of tasks that may run at once. None: no limit, written as nothing or as 0, as in Slurm.
fn running_limit(text: &str) -> Result<Option<u32>, String> {
    match text.trim_end_matches(']') {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(limit) => Ok(Some(limit).filter(|limit| *limit > 0)),
            Err(_) => Err(format!("`%{text}` must be a number of tasks")),
        },
    }
}

fn union(sets: &[IndexSet]) -> IndexSet {
    let mut all = IndexSet::new();
    for set in sets {
        all.union_with(set);
    }
    all
}

fn range(part: &str) -> Result<IndexSet, String> {
    let (span, step) = match part.split_once(':') {
        Some((span, step)) => (span, number(step)?),
        None => (part, 1),
    };
    let (first, last) = match span.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(span)?, number(span)?),
    };
    if last < first {
        return Err(format!("`{part}` ends before it begins"));
    }
    match step {
        0 => Err(format!("`{part}` has a step of 0")),
        1 => Ok(IndexSet::range(first, last)),
        _ => Ok((first..=last).step_by(step as usize).collect()),
    }
}

fn number(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("`{text}` is not an index; use a list such as 0-9, 1,3,5 or 0-20:4, with %N for a limit"));
    }
    match text.parse() {
        Ok(index) if index < ARRAY_INDEX_MAX => Ok(index),
        _ => Err(format!("index {text} is above the highest, {}", ARRAY_INDEX_MAX - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::array;

    #[test]
    fn forms_of_arrays() {
        for (text, shown, limit) in [
            ("0-9", "0-9", None),
            ("5", "5", None),
            ("1,3,5-7", "1,3,5-7", None),
            ("0-20:4", "0,4,8,12,16,20", None),
            ("1-7:3%2", "1,4,7", Some(2)),
            ("0-999999%50", "0-999999", Some(50)),
            ("[1-3]", "1-3", None),
            ("3,1,2", "1-3", None),
            // faults.md E: nothing or 0 after `%` means no limit.
            ("1-5%", "1-5", None),
            ("1-5%0", "1-5", None),
        ] {
            let spec = array(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((spec.indices.to_string().as_str(), spec.limit), (shown, limit), "{text}");
        }
    }

    #[test]
    fn what_is_no_array() {
        for text in
            ["", "a", "1-", "-1", "5-1", "1-5:0", "1%x", "1,,2", "4000001", "99999999999", "1-2-3", "0-4000000:2"]
        {
            assert!(array(text).is_err(), "{text}");
        }
    }
}
