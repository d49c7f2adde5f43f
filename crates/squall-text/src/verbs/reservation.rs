//! `scontrol create reservation`, `update reservation` and the body of `reservation`.

use squall_model::duration::parse_limit;
use squall_model::reservation::Flag;
use squall_model::wire::reservation::{ListChange, ReservationChange};

use super::key::Set::{Names, Own, Text, Time, Truth};
use super::key::{Bad, Key, key, means};

/// Length of a reservation without end, in seconds: a year, as in Slurm.
const INFINITE_S: u64 = 365 * 86_400;

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<ReservationChange>] = &[
    key(&[("ReservationName", 3)], "name", Text(|one, name| one.name = Some(name))),
    key(&[("StartTime", 1)], "start_time", Time(|one, at| one.start = Some(at))),
    key(&[("EndTime", 1)], "end_time", Time(|one, at| one.end = Some(at))),
    key(&[("Duration", 1)], "duration", Own(duration)),
    key(&[("NodeCnt", 5), ("NodeCount", 5)], "node_count", Own(count)),
    key(&[("Nodes", 5), ("NodeList", 5)], "node_list", Own(nodes)),
    key(&[("Features", 2)], "features", Text(|one, names| one.features = Some(names))),
    key(&[("PartitionName", 1)], "partition", Text(|one, name| one.partition = Some(name))),
    key(&[("Users", 1)], "users", Names(|one, sign, names| one.users = Some(list(sign, names)))),
    key(&[("Accounts", 1)], "accounts", Names(|one, sign, names| one.accounts = Some(list(sign, names)))),
    key(&[("Flags", 2)], "flags", Own(flags)),
    key(
        &[("AllowedPartitions", 2)],
        "",
        Names(|one, sign, names| {
            one.allowed_partitions = Some(list(sign, names));
        }),
    ),
    key(&[("Groups", 1)], "groups", Names(|one, sign, names| one.groups = Some(list(sign, names)))),
    key(&[("QOS", 1)], "", Names(|one, sign, names| one.qos = Some(list(sign, names)))),
    key(&[("Comment", 3)], "comment", Text(|one, text| one.comment = Some(text))),
    key(&[("Licenses", 2)], "licenses", Text(|one, names| one.licenses = Some(names))),
    key(&[("TRES", 1)], "tres", Own(tres)),
    key(&[("Skip", 2)], "", Truth(|one, skip| one.skip = skip)),
];

/// Slurm's keys that are not taken, each with its fewest letters, its field in REST bodies and the reason.
pub static NOT_DONE: &[(&str, usize, &str, &str)] = &[
    ("CoreCnt", 5, "core_count", PARTS),
    ("CoreCount", 5, "", PARTS),
    ("CPUCnt", 5, "", PARTS),
    ("CPUCount", 5, "", PARTS),
    ("TRESPerNode", 5, "", PARTS),
    ("BurstBuffer", 2, "burst_buffer", "there are no burst buffers"),
    ("MaxStartDelay", 2, "max_start_delay", "jobs don't borrow reserved nodes (--signal=R:)"),
];

const PARTS: &str = "whole nodes are reserved: give NodeCnt or Nodes";

/// Returns why a key of Slurm is not taken. None: it is taken, or no key of Slurm.
pub fn not_done(word: &str) -> Option<&'static str> {
    NOT_DONE.iter().find(|(name, least, ..)| means(word, name, *least)).map(|(.., why)| *why)
}

/// Reads `node=2,license/fluent=1`, which is `NodeCnt=2 Licenses=fluent:1`.
fn tres(one: &mut ReservationChange, sign: Option<char>, value: &str) -> Result<(), Bad> {
    let mut licenses = Vec::new();
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let (name, amount) = word.split_once('=').filter(|_| sign.is_none()).ok_or(Bad::Value)?;
        match name.to_ascii_lowercase().as_str() {
            "node" => count(one, None, amount)?,
            "cpu" => return Err(Bad::NotDone(format!("{word}: {PARTS}"))),
            gres if gres.starts_with("gres/") => return Err(Bad::NotDone(format!("{word}: {PARTS}"))),
            buffer if buffer.starts_with("bb/") => {
                return Err(Bad::NotDone(format!("{word}: there are no burst buffers")));
            }
            _ => match name.get(.."license/".len()).zip(name.get("license/".len()..)) {
                Some((kind, name)) if kind.eq_ignore_ascii_case("license/") => {
                    licenses.push(format!("{name}:{amount}"));
                }
                _ => return Err(Bad::Value),
            },
        }
    }
    if !licenses.is_empty() {
        one.licenses = Some(licenses.join(","));
    }
    Ok(())
}

/// Changes the nodes. `ALL` means all; with `+=` or `-=`, and with `+` or `-` before a name, nodes are added or taken.
#[expect(clippy::unnecessary_wraps, reason = "as the others of the table")]
fn nodes(one: &mut ReservationChange, sign: Option<char>, value: &str) -> Result<(), Bad> {
    if sign.is_none() && !value.starts_with(['+', '-']) {
        // In REST each name is a value.
        let before = one.nodes.take().map_or_else(String::new, |list| list + ",");
        one.nodes = Some(before + value);
        return Ok(());
    }
    let mut open = 0;
    let apart = |c: char| {
        open += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && open == 0
    };
    for word in value.split(apart).filter(|word| !word.is_empty()) {
        let (sign, name) = match word.strip_prefix(['+', '-']) {
            Some(name) => (word.chars().next(), name),
            None => (sign, word),
        };
        let list = if sign == Some('-') { &mut one.less_nodes } else { &mut one.more_nodes };
        let before = list.take().map_or_else(String::new, |list| list + ",");
        *list = Some(before + name);
    }
    Ok(())
}

fn duration(one: &mut ReservationChange, _: Option<char>, value: &str) -> Result<(), Bad> {
    one.duration_s = match parse_limit(value) {
        Ok(Some(0)) | Err(_) => return Err(Bad::Value),
        Ok(seconds) => Some(seconds.unwrap_or(INFINITE_S)),
    };
    Ok(())
}

fn count(one: &mut ReservationChange, _: Option<char>, value: &str) -> Result<(), Bad> {
    // As in Slurm, `2k` is 2048.
    let (number, factor) = value.strip_suffix(['k', 'K']).map_or((value, 1), |number| (number, 1024));
    let number = number.parse::<u32>().ok().and_then(|count| count.checked_mul(factor));
    one.node_count = Some(number.filter(|count| *count > 0).ok_or(Bad::Value)?);
    Ok(())
}

fn list(sign: Option<char>, names: Vec<String>) -> ListChange {
    match sign {
        Some('+') => ListChange::Add(names),
        Some('-') => ListChange::Remove(names),
        _ => ListChange::Set(names),
    }
}

/// Changes flags. As in Slurm, they are added to the present ones, unless the sign is `-=`, a `-` stands before them, or
/// their names begin with `NO_`. `PURGE_COMP` may have a length of time.
fn flags(one: &mut ReservationChange, sign: Option<char>, value: &str) -> Result<(), Bad> {
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let (sign, word) = match word.strip_prefix(['+', '-']) {
            Some(rest) => (word.chars().next(), rest),
            None => (sign, word),
        };
        let (word, time) = word.split_once('=').map_or((word, None), |(word, time)| (word, Some(time)));
        let unset = word.strip_prefix("NO_").filter(|_| Flag::parse(word).is_none());
        let Some(flag) = Flag::parse(unset.unwrap_or(word)) else {
            let known = Flag::NAMES.map(|(name, _)| name).join(", ");
            return Err(Bad::NotDone(format!("{word} is not known here; these are: {known}")));
        };
        if let Some(time) = time {
            let seconds = parse_limit(time).ok().flatten().filter(|_| flag == Flag::PurgeComp);
            one.purge_s = Some(seconds.ok_or(Bad::Value)?);
        }
        let (adds, name) = (sign != Some('-') && unset.is_none(), vec![flag.name().to_owned()]);
        one.flags = Some(match (one.flags.take(), adds) {
            (None, true) => ListChange::Add(name),
            (None, false) => ListChange::Remove(name),
            (Some(ListChange::Add(names)), true) => ListChange::Add([names, name].concat()),
            (Some(ListChange::Remove(names)), false) => ListChange::Remove([names, name].concat()),
            (Some(_), _) => {
                return Err(Bad::NotDone("Set flags in one request and unset others in another".to_owned()));
            }
        });
    }
    Ok(())
}
