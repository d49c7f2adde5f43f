//! `scontrol create|update|delete reservation`.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::license;
use squall_model::limits::{RESERVATIONS_MAX, STRING_BYTES_MAX};
use squall_model::reservation::{Asker, Flag, PURGE_DEFAULT_S, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::reservation::ReservationChange;
use squall_sched::Constraint;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::effects::reserve::remove;
use crate::control::index::facts;
use crate::control::index::limits::knows_qos;
use crate::control::index::reserved::{free_nodes, has_jobs, overlapped, within};
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Job;

/// How long ago a reservation may have begun when it is made, as in Slurm. With `FORCE_START` it may be longer.
const LATE_MAX: Span = Span::from_secs(600);

/// Handles `scontrol create reservation` and `update reservation`.
pub(crate) fn reserve(
    c: &mut Controller,
    ask: &Ask<'_>,
    change: &ReservationChange,
    create: bool,
    out: &mut Out,
) -> Reply {
    if codec_size(change) > STRING_BYTES_MAX {
        return Err(Refusal::TooLarge("reservation".to_owned(), STRING_BYTES_MAX as u64));
    }
    let reservation = match change {
        ReservationChange { skip: true, name, .. } if !create => {
            skipped(&c.state, name.as_deref().unwrap_or_default())?
        }
        ReservationChange { skip: true, .. } => return Err(invalid("Skip is for reservations that are there")),
        _ => decide(&c.state, ask, change, create)?,
    };
    let name = reservation.name.clone();
    c.commit(ask.now, Event::ReservationSet { reservation: Box::new(reservation) }, out);
    Ok(Some(Answer::Reserved(name)))
}

fn codec_size(change: &ReservationChange) -> usize {
    squall_model::codec::size(change)
}

/// Deletes a reservation that no running job uses. Operators may, and with `USER_DELETE` also its users.
pub(crate) fn unreserve(c: &mut Controller, ask: &Ask<'_>, name: &str, out: &mut Out) -> Reply {
    let known = c.state.reservations.get(name);
    if !ask.who.operator && !known.is_some_and(|known| known.is(Flag::UserDelete) && is_user(&c.state, ask, known)) {
        return Err(Refusal::AccessDenied);
    }
    let Some(known) = known else {
        return Err(invalid(format!("there is no reservation called {name}")));
    };
    unused(&c.state, known)?;
    remove(c, ask.now, name, out);
    Ok(Some(Answer::Done))
}

/// Returns whether the user who asks may run jobs in a reservation, under any of the own accounts.
fn is_user(state: &State, ask: &Ask<'_>, known: &Reservation) -> bool {
    let user = &ask.who.owner.user;
    let own = state.policy.associations.keys().filter(|key| key.user == *user).map(|key| key.account.as_str());
    let own: Vec<&str> = own.chain([state.config.default_account.as_str()]).collect();
    let above = own.iter().flat_map(|account| state.policy.above(account).map(|(name, _)| name));
    let accounts: Vec<&str> = own.iter().copied().chain(above).collect();
    known.admits_user(Asker { owner: &ask.who.owner, accounts: &accounts, qos: None, partitions: &[] })
}

/// Refuses a change of a reservation in which a job runs.
fn unused(state: &State, known: &Reservation) -> Result<(), Refusal> {
    let uses = |job: &Job| job.run().is_some_and(|run| facts::runs_in(&job.spec, run, known));
    match state.jobs.iter().find(|(_, job)| uses(job)) {
        Some((id, _)) => Err(Refusal::ReservationBusy(format!("job {id} runs in it"))),
        None => Ok(()),
    }
}

/// Returns a recurring reservation at its next time.
fn skipped(state: &State, name: &str) -> Result<Reservation, Refusal> {
    let known =
        state.reservations.get(name).ok_or_else(|| invalid(format!("there is no reservation called {name}")))?;
    unused(state, known)?;
    let next =
        known.next().ok_or_else(|| invalid(format!("{name} does not come again, so there is nothing to skip to")))?;
    Ok(Reservation { idle_since: None, ..next })
}

fn invalid(problem: impl Into<String>) -> Refusal {
    Refusal::ReservationInvalid(problem.into())
}

fn bad_time(problem: &str) -> Refusal {
    Refusal::InvalidValue { option: "begin".to_owned(), value: String::new(), problem: problem.to_owned() }
}

/// Returns the reservation that results from a change request, or the refusal of the request.
fn decide(state: &State, ask: &Ask<'_>, change: &ReservationChange, create: bool) -> Result<Reservation, Refusal> {
    let known = change.name.as_ref().and_then(|name| state.reservations.get(name));
    let mut new = match (known, create) {
        (Some(known), true) => return Err(invalid(format!("there is a reservation called {} already", known.name))),
        (None, true) if state.reservations.len() >= RESERVATIONS_MAX => {
            return Err(invalid(format!("there are {RESERVATIONS_MAX} reservations, the most that may be")));
        }
        (None, true) => Reservation { by: ask.who.owner.uid, ..Reservation::default() },
        (Some(known), false) => known.clone(),
        (None, false) => {
            let name = change.name.as_deref().unwrap_or_default();
            return Err(invalid(format!("there is no reservation called {name}")));
        }
    };
    access(state, &mut new, change)?;
    flags(state, &mut new, change, create)?;
    let text = |change: &Option<String>, old: Option<String>| change.clone().or(old).filter(|text| !text.is_empty());
    new.comment = text(&change.comment, new.comment);
    new.licenses = text(&change.licenses, new.licenses);
    new.features = text(&change.features, new.features);
    let first = new.allowed_partitions.first().filter(|name| create && !name.starts_with('-')).cloned();
    new.partition = change.partition.clone().or(new.partition).or(first);
    times(&mut new, change, ask.now, create)?;
    let moves = [&change.nodes, &change.more_nodes, &change.less_nodes].iter().any(|list| list.is_some());
    let moved = create || moves || change.node_count.is_some();
    if moved {
        new.nodes = nodes(state, &mut new, change)?;
    }
    new.name = match (&change.name, create) {
        (Some(name), _) => name.clone(),
        (None, _) => fresh_name(state, &new),
    };
    licenses(state, &new)?;
    overlaps(state, &new)?;
    if moved || change.start.is_some() {
        jobs_there(state, &new, known)?;
    }
    Ok(new)
}

/// Changes who may use a reservation.
fn access(state: &State, new: &mut Reservation, change: &ReservationChange) -> Result<(), Refusal> {
    for (list, change) in [
        (&mut new.users, &change.users),
        (&mut new.accounts, &change.accounts),
        (&mut new.groups, &change.groups),
        (&mut new.qos, &change.qos),
        (&mut new.allowed_partitions, &change.allowed_partitions),
    ] {
        if let Some(change) = change {
            *list = change.apply(list);
        }
    }
    if !new.has_access_list() {
        return Err(invalid("Either Users, Groups, Accounts, QOS or AllowedPartitions must be specified"));
    }
    if !new.users.is_empty() && !new.groups.is_empty() {
        return Err(invalid("it is for Users or for Groups, not for both"));
    }
    let lists = [
        (&new.users, "users"),
        (&new.accounts, "accounts"),
        (&new.qos, "QOS"),
        (&new.allowed_partitions, "partitions"),
    ];
    for (list, what) in lists {
        let barred = list.iter().filter(|name| name.starts_with('-')).count();
        if barred > 0 && barred < list.len() {
            return Err(invalid(format!("{what}: either all of them are let in, or all are kept out (-NAME)")));
        }
    }
    if new.groups.iter().any(|group| group.starts_with('-')) {
        return Err(invalid("groups are let in, and can't be kept out (-NAME)"));
    }
    let name = |entry: &String| entry.trim_start_matches('-').to_owned();
    if let Some(unknown) = new.qos.iter().map(name).find(|qos| !knows_qos(state, qos)) {
        return Err(Refusal::InvalidQos(unknown));
    }
    match new.allowed_partitions.iter().map(name).find(|name| state.partition(name).is_none()) {
        Some(unknown) => Err(Refusal::InvalidPartition(unknown)),
        None => Ok(()),
    }
}

/// Changes the flags of a reservation, and refuses those that contradict each other.
fn flags(state: &State, new: &mut Reservation, change: &ReservationChange, create: bool) -> Result<(), Refusal> {
    let before = new.flags.clone();
    let words: Vec<String> = new.flags.iter().map(|flag| flag.name().to_owned()).collect();
    let words = change.flags.as_ref().map_or(words.clone(), |change| change.apply(&words));
    let flag = |word: &String| Flag::parse(word).ok_or_else(|| invalid(format!("{word} is not a known flag")));
    new.flags = words.iter().map(flag).collect::<Result<BTreeSet<_>, _>>()?;
    let recurs = new.flags.iter().filter(|flag| flag.recurs()).count();
    let replaces = [Flag::Replace, Flag::ReplaceDown].into_iter().find(|flag| new.is(*flag));
    let named = change.nodes.is_some() || change.more_nodes.is_some() || new.is(Flag::SpecNodes);
    let problem = match () {
        () if recurs > 1 => "it comes again in one way: HOURLY, DAILY, WEEKDAY, WEEKEND or WEEKLY",
        () if new.is(Flag::TimeFloat) && recurs > 0 => "one that comes again does not float (TIME_FLOAT)",
        () if !create && new.is(Flag::TimeFloat) != before.contains(&Flag::TimeFloat) => {
            "TIME_FLOAT is for a new reservation: delete this one and create another"
        }
        () if new.is(Flag::ForceStart) && recurs == 0 => {
            "FORCE_START is for one that comes again: HOURLY, DAILY, WEEKDAY, WEEKEND or WEEKLY"
        }
        () if replaces.is_some() && named => "REPLACE and REPLACE_DOWN need NodeCnt instead of Nodes",
        () if replaces.is_some() && (new.is(Flag::StaticAlloc) || new.is(Flag::Maint)) => {
            "REPLACE and REPLACE_DOWN contradict STATIC and MAINT, which keep the nodes"
        }
        () => "",
    };
    if !problem.is_empty() {
        return Err(invalid(problem));
    }
    // A standby of an older release could not read these.
    let newer = new.flags.iter().find(|flag| **flag >= Flag::ForceStart);
    if let Some(newer) = newer.filter(|_| state.cluster_version < ClusterVersion::NODES_REPLACED) {
        return Err(invalid(format!("{} comes with `scontrol upgrade`", newer.name())));
    }
    let purge_s = change.purge_s.or(new.purge_s).unwrap_or(PURGE_DEFAULT_S);
    new.purge_s = new.is(Flag::PurgeComp).then_some(purge_s);
    new.idle_since = new.idle_since.filter(|_| new.is(Flag::PurgeComp));
    Ok(())
}

/// Refuses licenses that are not there while the reservation lasts, beside those of other reservations.
fn licenses(state: &State, new: &Reservation) -> Result<(), Refusal> {
    let Some(text) = &new.licenses else { return Ok(()) };
    let refuse =
        |problem: String| Err(Refusal::InvalidValue { option: "licenses".to_owned(), value: text.clone(), problem });
    let Some(counts) = license::parse(text) else { return refuse("NAME:COUNT,... is understood".to_owned()) };
    let totals = state.license_totals();
    let meets = |one: &&Reservation| one.name != new.name && one.ever_meets(new);
    let others: Vec<_> = state.reservations.values().filter(meets).filter_map(|one| one.licenses.as_deref()).collect();
    for (name, count) in counts {
        let kept = others.iter().filter_map(|text| license::parse(text)?.get(&name).copied()).map(u64::from);
        let wanted = kept.sum::<u64>() + u64::from(count);
        let total = totals.get(&name).copied().unwrap_or_default();
        if wanted > u64::from(total) {
            return refuse(format!("with other reservations these are {wanted} of {name}, of which there are {total}"));
        }
    }
    Ok(())
}

fn times(new: &mut Reservation, change: &ReservationChange, now: Time, create: bool) -> Result<(), Refusal> {
    let lasts = new.end.since(new.start);
    if let Some(start) = change.start.or(create.then_some(now)) {
        new.end = start + lasts;
        new.start = start;
    }
    match (change.end, change.duration_s) {
        (Some(end), _) => new.end = end,
        (None, Some(seconds)) => new.end = new.start + Span::from_secs(seconds),
        (None, None) => {}
    }
    if new.is(Flag::TimeFloat) {
        floats(new, change, now);
    }
    if new.start >= new.end {
        return Err(bad_time("it ends before it begins"));
    }
    if new.end <= now {
        return Err(bad_time("it would be over already"));
    }
    if create && new.start + LATE_MAX < now && !new.is(Flag::ForceStart) {
        return Err(bad_time("it would have begun already; one that comes again may with FORCE_START"));
    }
    if new.next().is_some_and(|next| next.start < new.end) {
        return Err(bad_time("it lasts longer than it takes to come again"));
    }
    Ok(())
}

/// Makes the times of a reservation relative to the present, as far as they were given.
fn floats(new: &mut Reservation, change: &ReservationChange, now: Time) {
    let mut floating = new.floats.unwrap_or_default();
    if let Some(start) = change.start {
        floating.ahead_s = start.since(now).secs();
    }
    match (change.end, change.duration_s) {
        (Some(_), _) => floating.lasts_s = None,
        (None, Some(seconds)) => floating.lasts_s = Some(seconds),
        (None, None) => {}
    }
    new.start = now + Span::from_secs(floating.ahead_s);
    if floating.lasts_s.is_some() {
        new.end = new.start + squall_sched::UNLIMITED;
    }
    new.floats = Some(floating);
}

/// Makes a name such as `ada_1`: the first user or account, and the first free number.
fn fresh_name(state: &State, new: &Reservation) -> String {
    let lists =
        [&new.users, &new.accounts, &new.qos, &new.allowed_partitions].into_iter().flatten().map(String::as_str);
    let stem = new.group_names().chain(lists).next().map_or("resv", |name| name.trim_start_matches('-'));
    let mut names = (1_u32..).map(|number| format!("{stem}_{number}"));
    names.find(|name| !state.reservations.contains_key(name)).unwrap_or_default()
}

/// Chooses the nodes of a reservation: those that the request names, or as many as it asks for that are free while the
/// reservation lasts. One for licenses alone has none.
fn nodes(state: &State, new: &mut Reservation, change: &ReservationChange) -> Result<NodeSet, Refusal> {
    let within = within(state, new.partition.as_deref())
        .ok_or_else(|| Refusal::InvalidPartition(new.partition.clone().unwrap_or_default()))?;
    if change.more_nodes.is_some() || change.less_nodes.is_some() {
        return changed_nodes(state, new, change);
    }
    let named = match change.nodes.as_deref().filter(|list| !list.is_empty()) {
        Some(list) if list.eq_ignore_ascii_case("ALL") => {
            let flag = if new.partition.is_some() { Flag::PartNodes } else { Flag::AllNodes };
            new.flags.insert(flag);
            Some(within.clone())
        }
        Some(list) => Some(nodes_of(state, "Nodes", list)?),
        None => None,
    };
    if let Some(named) = named {
        if named.is_empty() {
            return Err(Refusal::InvalidNode(String::new()));
        }
        new.flags.insert(Flag::SpecNodes);
        return Ok(named);
    }
    // With `Nodes=` others are chosen instead of the present ones, as many.
    let same = change.nodes.as_ref().map(|_| new.nodes.len() as u32);
    let Some(count) = change.node_count.or(same).filter(|count| *count > 0) else {
        return match (&new.licenses, new.is(Flag::AnyNodes)) {
            (Some(_), true) => Ok(NodeSet::new()),
            (Some(_), false) => Err(invalid("one for licenses alone needs Flags=LICENSE_ONLY")),
            (None, _) => Err(Refusal::InvalidNode(String::new())),
        };
    };
    for flag in [Flag::SpecNodes, Flag::AllNodes, Flag::PartNodes] {
        new.flags.remove(&flag);
    }
    if let Some(text) = &new.features {
        let _ = Constraint::parse(text).filter(Constraint::is_of_each).ok_or_else(|| Refusal::InvalidValue {
            option: "constraint".to_owned(),
            value: text.clone(),
            problem: "feature names with & and | are understood".to_owned(),
        })?;
    }
    let free = free_nodes(state, new, &within);
    if free.len() < count as usize {
        return Err(Refusal::Busy);
    }
    Ok(free.into_iter().take(count as usize).collect())
}

/// Returns the nodes of a reservation with those that are added (`Nodes+=`) and without those that are taken (`Nodes-=`).
fn changed_nodes(state: &State, new: &mut Reservation, change: &ReservationChange) -> Result<NodeSet, Refusal> {
    let listed = |list: &Option<String>| match list {
        Some(list) => nodes_of(state, "Nodes", list),
        None => Ok(NodeSet::new()),
    };
    let (more, less) = (listed(&change.more_nodes)?, listed(&change.less_nodes)?);
    let mut nodes = new.nodes.clone();
    nodes.union_with(&more);
    nodes.subtract(&less);
    if nodes.is_empty() {
        return Err(Refusal::InvalidNode(String::new()));
    }
    if !more.is_empty() {
        new.flags.insert(Flag::SpecNodes);
    }
    Ok(nodes)
}

/// Refuses a reservation that shares nodes and time with another one, unless one of them allows that.
fn overlaps(state: &State, new: &Reservation) -> Result<(), Refusal> {
    match overlapped(state, new) {
        Some(other) => Err(Refusal::ReservationOverlap(format!("{other} has some of these nodes then"))),
        None => Ok(()),
    }
}

/// Refuses a reservation if jobs on its nodes may still run when it begins. Jobs in the reservation itself may.
fn jobs_there(state: &State, new: &Reservation, known: Option<&Reservation>) -> Result<(), Refusal> {
    if has_jobs(state, new, &new.nodes, known) { Err(Refusal::Busy) } else { Ok(()) }
}
