//! `scontrol create reservation`, `update reservation` and the body of `reservation`.

use squall_model::duration::parse_limit;
use squall_model::reservation::Flag;
use squall_model::wire::reservation::{ListChange, ReservationChange};

use super::key::Set::{Names, Own, Text, Time};
use super::key::{Bad, Key, key};

/// Length of a reservation without end, in seconds: a year, as in Slurm.
const INFINITE_S: u64 = 365 * 86_400;

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<ReservationChange>] = &[
    key(&[("ReservationName", 3)], "name", Text(|one, name| one.name = Some(name))),
    key(&[("StartTime", 1)], "start_time", Time(|one, at| one.start = Some(at))),
    key(&[("EndTime", 1)], "end_time", Time(|one, at| one.end = Some(at))),
    key(&[("Duration", 1)], "duration", Own(duration)),
    key(&[("NodeCnt", 5), ("NodeCount", 5)], "node_count", Own(count)),
    key(&[("Nodes", 5), ("NodeList", 5)], "node_list", Text(|one, nodes| one.nodes = Some(nodes))),
    key(&[("Features", 2)], "features", Text(|one, names| one.features = Some(names))),
    key(&[("PartitionName", 1)], "partition", Text(|one, name| one.partition = Some(name))),
    key(&[("Users", 1)], "users", Names(|one, sign, names| one.users = Some(list(sign, names)))),
    key(&[("Accounts", 1)], "accounts", Names(|one, sign, names| one.accounts = Some(list(sign, names)))),
    key(&[("Flags", 2)], "flags", Own(flags)),
];

fn duration(one: &mut ReservationChange, _: Option<char>, value: &str) -> Result<(), Bad> {
    one.duration_s = match parse_limit(value) {
        Ok(Some(0)) | Err(_) => return Err(Bad::Value),
        Ok(seconds) => Some(seconds.unwrap_or(INFINITE_S)),
    };
    Ok(())
}

fn count(one: &mut ReservationChange, _: Option<char>, value: &str) -> Result<(), Bad> {
    one.node_count = Some(value.parse().ok().filter(|count| *count > 0).ok_or(Bad::Value)?);
    Ok(())
}

fn list(sign: Option<char>, names: Vec<String>) -> ListChange {
    match sign {
        Some('+') => ListChange::Add(names),
        Some('-') => ListChange::Remove(names),
        _ => ListChange::Set(names),
    }
}

/// Changes flags. As in Slurm, they are added to the present ones, unless the sign is `-=` or their names begin with
/// `NO_`.
fn flags(one: &mut ReservationChange, sign: Option<char>, value: &str) -> Result<(), Bad> {
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let unset = word.strip_prefix("NO_").filter(|_| Flag::parse(word).is_none());
        let Some(flag) = Flag::parse(unset.unwrap_or(word)) else {
            let known = Flag::NAMES.map(|(name, _)| name).join(", ");
            return Err(Bad::NotDone(format!("{word} is not known here; these are: {known}")));
        };
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
