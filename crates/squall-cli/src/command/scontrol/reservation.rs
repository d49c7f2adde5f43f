//! `scontrol create|update|delete|show reservation`, and the list of `sinfo -T`.

use squall_client::{ClientError, unexpected};
use squall_model::duration::format_elapsed;
use squall_model::reservation::Flag;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::ReservationInfo;
use squall_model::wire::reservation::{ListChange, ReservationChange};
use squall_text::format::clock::{Clock, local};
use squall_text::options::values::when::REMEDY;
use squall_text::shapes::reservation::tres;
use squall_text::shapes::{self, AnswerKind};
use squall_text::verbs::key::{Bad, Key, means};
use squall_text::verbs::reservation::{KEYS, not_done};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::structured::document;
use crate::command::scontrol::arguments::{Change, changes};
use crate::command::scontrol::{Manner, record};

/// Runs `create reservation KEY=VALUE …`.
pub(super) fn create(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    const END: &str = "No reservation created.";
    let words = match words.split_first() {
        Some((entity, rest)) if is_entity(entity) => rest,
        _ => words,
    };
    let words = changes(call, words)?;
    let change = read(call, &words, END)?;
    let lacks = match () {
        () if change.start.is_none() => Some("A start time must be given."),
        () if change.end.is_none() && change.duration_s.is_none() => Some("An end time or duration must be given."),
        () if change.nodes.is_none() && change.node_count.is_none() && change.licenses.is_none() => {
            Some("Nodes, NodeCnt or Licenses must be specified.")
        }
        () if !has_access_list(&change) => {
            Some("Either Users/Groups, Accounts, QOS and/or AllowedPartitions must be specified.")
        }
        () => None,
    };
    if let Some(lacks) = lacks {
        return call.fail(&format!("{lacks}  {END}"));
    }
    let name = send(call, change, true, "Error creating the reservation")?;
    call.print(&format!("Reservation created: {name}\n"));
    Ok(())
}

/// Returns whether a change says who or what may use the reservation.
fn has_access_list(change: &ReservationChange) -> bool {
    let lists = [&change.users, &change.groups, &change.accounts, &change.qos, &change.allowed_partitions];
    lists.iter().any(|list| list.is_some())
}

/// Runs `update ReservationName=NAME KEY=VALUE …`.
pub(super) fn update(call: &mut Call<'_>, words: &[Change<'_>]) -> Result<(), Fail> {
    let change = read(call, words, "No reservation update.")?;
    send(call, change, false, "Error updating the reservation")?;
    call.print("Reservation updated.\n");
    Ok(())
}

/// Runs `delete ReservationName=NAME`.
pub(super) fn delete(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let joined = match words {
        [entity, name] if !entity.contains('=') && !name.contains('=') => vec![format!("{entity}={name}")],
        _ => words.to_vec(),
    };
    let all = changes(call, &joined)?;
    let [Change { key, value: name, .. }] = all.as_slice() else {
        call.say("too few arguments for keyword:delete");
        return Err(Fail(1));
    };
    if !is_entity(key) {
        call.say(&format!("Invalid option: {}\nInput line must include \"ReservationName\"", words.join(" ")));
        return Err(Fail(1));
    }
    let what = format!("delete_reservation {}", joined.join(" "));
    match call.controller.ask(&Request::Unreserve { name: (*name).to_owned() }) {
        Ok(Answer::Done) => Ok(()),
        Ok(_) => call.failed(&what, &unexpected()),
        Err(e) => refused(call, &what, &e),
    }
}

/// Returns whether a word is `ReservationName` or an abbreviation such as `reservation` or `res`.
pub(super) fn is_entity(word: &str) -> bool {
    means(word, "ReservationName", 3)
}

fn send(call: &mut Call<'_>, change: ReservationChange, create: bool, what: &str) -> Result<String, Fail> {
    match call.controller.ask(&Request::Reserve { change: Box::new(change), create }) {
        Ok(Answer::Reserved(name)) => Ok(name),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => refused(call, what, &e),
    }
}

/// Prints the error of a refused request, details first, and fails.
fn refused<T>(call: &mut Call<'_>, what: &str, error: &ClientError) -> Result<T, Fail> {
    let lines = error.lines(what);
    let (last, before) = lines.split_last().map_or((what, &[][..]), |(last, before)| (last.as_str(), before));
    for line in before {
        call.say(&format!("scontrol: {line}"));
    }
    call.say(last);
    Err(Fail(1))
}

fn read(call: &mut Call<'_>, words: &[Change<'_>], end: &str) -> Result<ReservationChange, Fail> {
    let mut change = ReservationChange::default();
    let now = local(call.now, &call.zone);
    for Change { key: word, sign, value } in words {
        let value = value.trim_matches(['"', '\'']);
        let Some(key) = Key::find(KEYS, word) else {
            let why = not_done(word).map_or_else(String::new, |why| format!(" ({why})"));
            return call.fail(&format!("Unknown parameter {word}={value}.  {end}{why}"));
        };
        let named = |entry: &&str| call.people.uid(entry.trim_start_matches('-')).is_some();
        let unknown = value.split(',').filter(|entry| !entry.is_empty()).find(|entry| !named(entry));
        if let Some(unknown) = unknown.filter(|_| key.name() == "Users") {
            return call.fail(&format!("Invalid user {unknown}.  {end}"));
        }
        if sign.is_some() && !TAKE_SIGNS.contains(&key.name()) {
            let name = key.name();
            return call.fail(&format!("The +=/-= notation is not supported when updating {name}.  {end}"));
        }
        let what = match key.name() {
            "StartTime" => "start time",
            "EndTime" => "end time",
            "NodeCnt" => "node count",
            "Duration" => "duration",
            other => other,
        };
        match key.read(&mut change, *sign, value, &now) {
            Ok(()) => {}
            Err(Bad::NotDone(why)) if key.name() != "Flags" => {
                return call.fail(&format!("Invalid {} {value}.  {end} ({why})", key.name()));
            }
            Err(Bad::NotDone(_) | Bad::Because(_)) => {
                let unknown = value.split(',').find(|flag| Flag::parse(flag).is_none()).unwrap_or(value);
                let known = Flag::NAMES.map(|(name, _)| name).join(", ");
                return call.fail(&format!("Error parsing flags {unknown}.  {end} (known: {known})"));
            }
            Err(Bad::Time) => return call.fail(&format!("Invalid {what} {value}.  {end} ({REMEDY})")),
            Err(_) => return call.fail(&format!("Invalid {what} {value}.  {end}")),
        }
    }
    for group in change.groups.iter_mut().flat_map(ListChange::entries_mut) {
        match call.people.gid(group) {
            Some(gid) => *group = format!("{group}:{gid}"),
            None => return call.fail(&format!("Invalid group {group}.  {end}")),
        }
    }
    Ok(change)
}

/// Keys whose values are added to or removed from lists.
const TAKE_SIGNS: [&str; 7] = ["Users", "Accounts", "Groups", "QOS", "AllowedPartitions", "Flags", "Nodes"];

/// Returns all reservations.
pub(crate) fn all(call: &mut Call<'_>) -> Result<Vec<ReservationInfo>, Fail> {
    const WHAT: &str = "slurm_load_reservations error";
    match call.controller.ask(&Request::Reservations) {
        Ok(Answer::Reservations(all)) => Ok(all),
        Ok(_) => call.failed(WHAT, &unexpected()),
        Err(e) => call.failed(WHAT, &e),
    }
}

/// Runs `show reservation [NAME]`.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let mut found = all(call)?;
    let none = found.is_empty();
    found.retain(|one| ids.is_empty() || ids.contains(&one.reservation.name));
    let clock = call.clock(call.now);
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster("slurm_load_reservations error")?;
        let each: Vec<serde_json::Value> = found.iter().map(shapes::reservation::reservation).collect();
        let command = ["scontrol", "show", "reservations"];
        document(call, dialect, &cluster, &command, AnswerKind::Reservations, vec![("reservations", each.into())])
    } else if let (true, [name, ..]) = (found.is_empty(), ids) {
        call.print(&format!("Reservation {name} not found\n"));
        return Err(Fail(1));
    } else if none {
        "No reservations in the system\n".to_owned()
    } else {
        found.iter().map(|one| record(manner.oneliner, &lines(one, &clock))).collect()
    };
    call.print(&text);
    Ok(())
}

fn state(one: &ReservationInfo, clock: &Clock) -> &'static str {
    if one.reservation.active(clock.now) { "ACTIVE" } else { "INACTIVE" }
}

fn duration(one: &ReservationInfo) -> String {
    format_elapsed(one.reservation.end.secs().saturating_sub(one.reservation.start.secs()))
}

fn flags(one: &ReservationInfo) -> String {
    let purge_s = one.reservation.purge_s;
    let shown = one.reservation.flags.iter().map(|flag| match (flag, purge_s) {
        (Flag::PurgeComp, Some(seconds)) => format!("{}={}", flag.name(), format_elapsed(seconds)),
        _ => flag.name().to_owned(),
    });
    shown.collect::<Vec<_>>().join(",")
}

fn lines(one: &ReservationInfo, clock: &Clock) -> Vec<String> {
    let own = &one.reservation;
    let or_null = |text: &str| if text.is_empty() { "(null)".to_owned() } else { text.to_owned() };
    let licenses = own.licenses.as_deref().unwrap_or_default();
    let mut lines = vec![
        format!(
            "ReservationName={} StartTime={} EndTime={} Duration={}",
            own.name,
            clock.show(own.start),
            clock.show(own.end),
            duration(one)
        ),
        format!(
            "Nodes={} NodeCnt={} CoreCnt={} Features={} PartitionName={} Flags={}",
            or_null(&one.nodes),
            own.nodes.len(),
            one.cores,
            or_null(own.features.as_deref().unwrap_or_default()),
            or_null(own.partition.as_deref().unwrap_or_default()),
            flags(one)
        ),
        format!("TRES={}", tres(one)),
        format!("AllowedPartitions={} QOS={}", or_null(&own.allowed_partitions.join(",")), or_null(&own.qos.join(","))),
        format!(
            "Users={} Groups={} Accounts={} Licenses={} State={} BurstBuffer=(null) Watts=n/a",
            or_null(&own.users.join(",")),
            or_null(&own.group_names().collect::<Vec<_>>().join(",")),
            or_null(&own.accounts.join(",")),
            or_null(licenses),
            state(one, clock)
        ),
        "MaxStartDelay=(null)".to_owned(),
    ];
    lines.extend(own.comment.as_ref().map(|comment| format!("Comment={comment}")));
    lines
}

/// Prints the reservations for `sinfo -T`.
pub(crate) fn list(call: &mut Call<'_>, header: bool) -> Result<(), Fail> {
    let found = all(call)?;
    if found.is_empty() {
        call.print("No reservations in the system\n");
        return Ok(());
    }
    let clock = call.clock(call.now);
    let width = found.iter().map(|one| one.reservation.name.len()).max().unwrap_or(0).max("RESV_NAME".len());
    let line = |cells: [&str; 6]| {
        let [name, state, start, end, duration, nodes] = cells;
        format!("{name:<width$}  {state:>8}  {start:>19}  {end:>19}  {duration:>11}  {nodes}\n")
    };
    let mut text = String::new();
    if header {
        text.push_str(&line(["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"]));
    }
    for one in &found {
        let own = &one.reservation;
        let (start, end) = (clock.show(own.start), clock.show(own.end));
        text.push_str(&line([&own.name, state(one, &clock), &start, &end, &duration(one), &one.nodes]));
    }
    call.print(&text);
    Ok(())
}
