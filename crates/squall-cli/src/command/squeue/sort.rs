//! `squeue --sort`: letters of `-o` or names of `-O`, each with `-` for descending order.

use std::cmp::Ordering;

use squall_text::columns::jobs::FIELDS;
use squall_text::format::job::JobRow;
use squall_text::format::words::state_order;
use squall_text::format::{by_letter, by_name};

/// A sort key: whether the order is descending, and a letter of `-o`.
pub(crate) type Key = (bool, char);

/// Parses a list of sort keys. The second value is a key that does not exist, if there is one.
pub(crate) fn keys(order: &str) -> (Vec<Key>, Option<String>) {
    let mut keys: Vec<Key> = Vec::new();
    let mut bad = None;
    for item in order.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (falling, name) = match item.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, item.strip_prefix('+').unwrap_or(item)),
        };
        let mut letters = name.chars();
        let found = match (letters.next(), letters.next()) {
            (Some(letter), None) => by_letter(FIELDS, letter),
            _ => by_name(FIELDS, name).filter(|f| f.letter != '\0'),
        };
        match found {
            Some(field) => keys.push((falling, field.letter)),
            None => bad = Some(name.to_owned()),
        }
    }
    (keys, bad)
}

/// Returns whether one of the keys is the job's or task's number. An array's tasks must then be separate rows.
pub(crate) fn by_number(keys: &[Key]) -> bool {
    keys.iter().any(|(_, letter)| matches!(letter, 'i' | 'A' | 'F' | 'K'))
}

/// Sorts rows; rows that are otherwise equal are ordered by job number.
pub(crate) fn sort(rows: &mut [JobRow], keys: &[Key]) {
    rows.sort_by(|a, b| {
        keys.iter()
            .map(|(falling, letter)| {
                let order = compare(a, b, *letter);
                if *falling { order.reverse() } else { order }
            })
            .find(|order| order.is_ne())
            .unwrap_or_else(|| compare(a, b, 'i'))
    });
}

/// Compares two rows by value where texts would sort wrongly, otherwise by text.
fn compare(a: &JobRow, b: &JobRow, letter: char) -> Ordering {
    match letter {
        'i' | 'A' | 'F' => (a.array_job().unwrap_or(a.info.id.0), index(a), a.info.id).cmp(&(
            b.array_job().unwrap_or(b.info.id.0),
            index(b),
            b.info.id,
        )),
        'K' => index(a).cmp(&index(b)),
        't' | 'T' => state_order(a.info.state).cmp(&state_order(b.info.state)),
        'P' => a.class.partition.cmp(&b.class.partition),
        'j' => a.spec.name.cmp(&b.spec.name),
        'u' => a.owner.user.cmp(&b.owner.user),
        'p' | 'Q' => (a.tier, a.info.priority).cmp(&(b.tier, b.info.priority)),
        'M' => a.time_used().cmp(&b.time_used()),
        'l' => a.info.time_limit_s.unwrap_or(u64::MAX).cmp(&b.info.time_limit_s.unwrap_or(u64::MAX)),
        'L' => left(a).cmp(&left(b)),
        'D' => a.info.num_nodes.cmp(&b.info.num_nodes),
        'C' => a.info.num_cpus.cmp(&b.info.num_cpus),
        'm' => a.info.memory_mb.cmp(&b.info.memory_mb),
        'S' => a.info.start.map_or(u64::MAX, |t| t.0).cmp(&b.info.start.map_or(u64::MAX, |t| t.0)),
        'e' => a.info.end.map_or(u64::MAX, |t| t.0).cmp(&b.info.end.map_or(u64::MAX, |t| t.0)),
        'V' => a.info.submit.cmp(&b.info.submit),
        'U' => a.owner.uid.cmp(&b.owner.uid),
        'G' => a.owner.gid.cmp(&b.owner.gid),
        'y' => a.spec.nice.cmp(&b.spec.nice),
        other => by_letter(FIELDS, other).map_or(Ordering::Equal, |f| f.text(a).cmp(&f.text(b))),
    }
}

fn index(row: &JobRow) -> u32 {
    row.info.task.map(|t| t.index).or_else(|| row.info.pending_tasks.as_ref()?.first()).unwrap_or(0)
}

fn left(row: &JobRow) -> u64 {
    row.info.time_limit_s.map_or(u64::MAX, |limit| limit.saturating_sub(row.time_used()))
}
