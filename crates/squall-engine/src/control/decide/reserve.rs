//! `scontrol create|update|delete reservation`.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::id::NodeId;
use squall_model::limits::{RESERVATIONS_MAX, STRING_BYTES_MAX};
use squall_model::reservation::{Flag, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::reservation::{ListChange, ReservationChange};
use squall_sched::Constraint;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::index::facts;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::node::Node;

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
    let reservation = decide(&c.state, ask, change, create)?;
    let name = reservation.name.clone();
    c.commit(ask.now, Event::ReservationSet { reservation: Box::new(reservation) }, out);
    Ok(Some(Answer::Reserved(name)))
}

fn codec_size(change: &ReservationChange) -> usize {
    squall_model::codec::size(change)
}

/// Deletes a reservation that no running job uses.
pub(crate) fn unreserve(c: &mut Controller, ask: &Ask<'_>, name: String, out: &mut Out) -> Reply {
    let Some(known) = c.state.reservations.get(&name) else {
        return Err(invalid(format!("there is no reservation called {name}")));
    };
    let uses =
        |job: &crate::control::state::job::Job| job.run().is_some_and(|run| facts::runs_in(&job.spec, run, known));
    if let Some((id, _)) = c.state.jobs.iter().find(|(_, job)| uses(job)) {
        return Err(Refusal::ReservationBusy(format!("job {id} runs in it")));
    }
    c.commit(ask.now, Event::ReservationGone { name }, out);
    Ok(Some(Answer::Done))
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
    let list = |change: &Option<ListChange>, old: &[String]| change.as_ref().map(|change| change.apply(old));
    new.users = list(&change.users, &new.users).unwrap_or(new.users);
    new.accounts = list(&change.accounts, &new.accounts).unwrap_or(new.accounts);
    if new.users.is_empty() && new.accounts.is_empty() {
        return Err(invalid("Either Users and/or Accounts must be specified"));
    }
    for (list, what) in [(&new.users, "users"), (&new.accounts, "accounts")] {
        let barred = list.iter().filter(|name| name.starts_with('-')).count();
        if barred > 0 && barred < list.len() {
            return Err(invalid(format!("{what}: either all of them are let in, or all are kept out (-NAME)")));
        }
    }
    let words: Vec<String> = new.flags.iter().map(|flag| flag.name().to_owned()).collect();
    let words = list(&change.flags, &words).unwrap_or(words);
    let flag = |word: &String| Flag::parse(word).ok_or_else(|| invalid(format!("{word} is not a known flag")));
    new.flags = words.iter().map(flag).collect::<Result<BTreeSet<_>, _>>()?;
    if new.flags.iter().filter(|flag| flag.recurs()).count() > 1 {
        return Err(invalid("it comes again in one way: HOURLY, DAILY, WEEKDAY, WEEKEND or WEEKLY"));
    }
    new.partition = change.partition.clone().or(new.partition);
    new.features = change.features.clone().or(new.features);
    times(&mut new, change, ask.now)?;
    let moved = create || change.nodes.is_some() || change.node_count.is_some();
    if moved {
        new.nodes = nodes(state, &mut new, change)?;
    }
    new.name = match (&change.name, create) {
        (Some(name), _) => name.clone(),
        (None, _) => fresh_name(state, &new),
    };
    overlaps(state, &new)?;
    if moved || change.start.is_some() {
        jobs_there(state, &new, &new.nodes, known)?;
    }
    Ok(new)
}

fn times(new: &mut Reservation, change: &ReservationChange, now: Time) -> Result<(), Refusal> {
    let lasts = new.end.since(new.start);
    if let Some(start) = change.start {
        new.end = start + lasts;
        new.start = start;
    }
    match (change.end, change.duration_s) {
        (Some(end), _) => new.end = end,
        (None, Some(seconds)) => new.end = new.start + Span::from_secs(seconds),
        (None, None) => {}
    }
    if new.start >= new.end {
        return Err(bad_time("it ends before it begins"));
    }
    if new.end <= now {
        return Err(bad_time("it would be over already"));
    }
    if new.next().is_some_and(|next| next.start < new.end) {
        return Err(bad_time("it lasts longer than it takes to come again"));
    }
    Ok(())
}

/// Makes a name such as `ada_1`: the first user or account, and the first free number.
fn fresh_name(state: &State, new: &Reservation) -> String {
    let stem = new.users.first().or(new.accounts.first()).map_or("resv", |name| name.trim_start_matches('-'));
    let mut names = (1_u32..).map(|number| format!("{stem}_{number}"));
    names.find(|name| !state.reservations.contains_key(name)).unwrap_or_default()
}

/// Chooses the nodes of a reservation: those that the request names, or as many as it asks for that are free while the
/// reservation lasts.
fn nodes(state: &State, new: &mut Reservation, change: &ReservationChange) -> Result<NodeSet, Refusal> {
    let within = match &new.partition {
        None => state.present().filter(|id| state.node(*id).is_some_and(|node| node.removed.is_none())).collect(),
        Some(name) => state.partition(name).ok_or_else(|| Refusal::InvalidPartition(name.clone()))?.nodes.clone(),
    };
    let named = match change.nodes.as_deref() {
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
        if !new.is(Flag::AnyNodes) {
            new.flags.insert(Flag::SpecNodes);
        }
        return Ok(named);
    }
    let Some(count) = change.node_count.filter(|count| *count > 0) else {
        return Err(Refusal::InvalidNode(String::new()));
    };
    let constraint = match &new.features {
        None => None,
        Some(text) => {
            Some(Constraint::parse(text).filter(Constraint::is_of_each).ok_or_else(|| Refusal::InvalidValue {
                option: "constraint".to_owned(),
                value: text.clone(),
                problem: "feature names with & and | are understood".to_owned(),
            })?)
        }
    };
    let fits = |id: &NodeId| {
        let Some(node) = state.node(*id).filter(|node| node.usable()) else { return false };
        let one = Reservation { nodes: NodeSet::one(*id), ..new.clone() };
        constraint.as_ref().is_none_or(|wanted| wanted.holds(&node.hardware.features))
            && overlaps(state, &one).is_ok()
            && jobs_there(state, &one, &one.nodes, None).is_ok()
    };
    let mut free: Vec<NodeId> = within.iter().filter(fits).collect();
    free.sort_by_key(|id| (state.node(*id).map_or(0, |node| node.jobs.len()), *id));
    if free.len() < count as usize {
        return Err(Refusal::Busy);
    }
    Ok(free.into_iter().take(count as usize).collect())
}

/// Refuses a reservation that shares nodes and time with another one, unless one of them allows that.
fn overlaps(state: &State, new: &Reservation) -> Result<(), Refusal> {
    let shares = |one: &Reservation| one.is(Flag::Overlap) || one.is(Flag::Maint);
    if shares(new) {
        return Ok(());
    }
    // Spare nodes of a partition give way to other reservations.
    let counts = |one: &&Reservation| one.name != new.name && !shares(one) && one.spares_of().is_none();
    let mut others = state.reservations.values().filter(counts);
    match others.find(|one| !one.nodes.is_disjoint(&new.nodes) && one.ever_meets(new)) {
        Some(other) => Err(Refusal::ReservationOverlap(format!("{} has some of these nodes then", other.name))),
        None => Ok(()),
    }
}

/// Refuses a reservation if jobs on its nodes may still run when it begins. Jobs in the reservation itself may.
fn jobs_there(state: &State, new: &Reservation, nodes: &NodeSet, known: Option<&Reservation>) -> Result<(), Refusal> {
    if new.is(Flag::IgnoreJobs) {
        return Ok(());
    }
    let jobs = |node: &Node| -> bool {
        node.jobs.iter().filter_map(|&id| Some((id, state.jobs.get(&id)?))).any(|(id, job)| {
            let own = known.is_some_and(|known| job.spec.reservations().any(|name| name == known.name));
            let end = job.run().and_then(|run| facts::end_time(state, id, job, run));
            !own && end.is_none_or(|end| end > new.start)
        })
    };
    if nodes.iter().filter_map(|id| state.node(id)).any(jobs) { Err(Refusal::Busy) } else { Ok(()) }
}
