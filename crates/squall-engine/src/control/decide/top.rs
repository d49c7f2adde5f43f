//! `scontrol top`: moves jobs before all other pending jobs of their user in the same partition, account and QOS.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::event::{Event, JobChange};
use squall_model::job::JobSpec;
use squall_model::wire::client::{Answer, JobName, JobRef, JobSelection, Refusal};
use squall_sched::Item;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::{Selected, select_to_change, select_to_show};
use crate::control::index::pending::{partitions_of, pending};
use crate::control::index::reckon::Standee;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::job::Hold;
use crate::invariant::invariant;

/// Key of the jobs that are reordered among each other: user, partition, account, QOS.
type Line = (u32, usize, String, String);

/// Moves jobs to the front, in the order in which they are named, by changing `nice` values. Only jobs of the same user
/// change their positions: what one job gains, others lose.
pub(crate) fn top(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, out: &mut Out) -> Reply {
    let (mut affected, mut refused) = (Vec::new(), Vec::new());
    let mut lines: BTreeMap<Line, Vec<Item>> = BTreeMap::new();
    for named in &jobs.ids {
        let one = JobSelection { ids: vec![named.clone()], ..JobSelection::default() };
        let mut selected = select_to_change(&c.state, ask.who, &one)?;
        let known = selected.refused.is_empty();
        refused.append(&mut selected.refused);
        let before = affected.len();
        for item in waiting(&c.state, &selected) {
            // because a job that is held, has a fixed priority or names several partitions keeps its position
            let Some(line) = line_of(&c.state, item) else { continue };
            let all = lines.entry(line).or_default();
            if !all.contains(&item) {
                all.push(item);
            }
            affected.push(name_of(&c.state, item));
        }
        if known && affected.len() == before {
            let (JobRef::Job(id) | JobRef::Tasks(id, _) | JobRef::Component(id, _)) = *named;
            refused.push((JobName { id, task: None }, Refusal::NotPending));
        }
    }
    for (line, first) in lines {
        for (item, nice) in nices(c, &line, &first)? {
            let Some(spec) = pending(&c.state, item).map(|found| JobSpec { nice, ..JobSpec::clone(found.spec) }) else {
                invariant!("a job whose `nice` changes waits");
                continue;
            };
            let change = JobChange { spec: Some(Arc::new(spec)), ..JobChange::default() };
            c.commit(ask.now, Event::JobUpdated { id: item.id, change, whole: item.array }, out);
        }
    }
    Ok(Some(Answer::Affected { jobs: affected, refused }))
}

fn name_of(state: &State, item: Item) -> JobName {
    if item.array { JobName { id: item.id, task: None } } else { state.name_of(item.id) }
}

/// Returns the pending jobs of a selection, and its arrays of which all tasks without a record of their own are
/// selected.
fn waiting<'a>(state: &'a State, selected: &'a Selected) -> impl Iterator<Item = Item> + 'a {
    let arrays = selected.tasks.iter().filter(|tasks| tasks.all).map(|tasks| Item { id: tasks.array, array: true });
    let single = selected.jobs.iter().map(|&id| Item { id, array: false });
    arrays.chain(single).filter(|item| pending(state, *item).is_some())
}

/// Returns the group in which a pending job is reordered. None: it is held, has a fixed priority, or names several
/// partitions.
fn line_of(state: &State, item: Item) -> Option<Line> {
    let found = pending(state, item)?;
    let mut partitions = partitions_of(state, found.spec);
    let (Some(partition), None) = (partitions.next(), partitions.next()) else { return None };
    if found.standing.hold != Hold::No || Standee::of(&found).fixed().is_some() {
        return None;
    }
    let account = gates::account_of(state, found.spec).to_owned();
    Some((found.owner.uid, partition, account, gates::qos_name(state, found.spec).to_owned()))
}

/// Returns the new `nice` of each job of a group (`line`) that must change so that the jobs `first` come first, in
/// their order.
fn nices(c: &Controller, line: &Line, first: &[Item]) -> Result<Vec<(Item, i32)>, Refusal> {
    let own = JobSelection { users: vec![line.0], ..JobSelection::default() };
    let selected = select_to_show(&c.state, None, &own, false)?;
    let all = waiting(&c.state, &selected).filter(|item| line_of(&c.state, *item).as_ref() == Some(line));
    let mut standing: Vec<(f64, Item)> = all
        .filter_map(|item| {
            let found = pending(&c.state, item)?;
            Some((c.queue.reckoning.value(&c.state, &Standee::of(&found), line.1), item))
        })
        .collect();
    standing.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.id.cmp(&other.id)));
    let places: Vec<f64> = standing.iter().map(|(value, _)| *value).collect();
    let place = |item: Item| first.iter().position(|other| *other == item).unwrap_or(first.len());
    standing.sort_by_key(|(_, item)| place(*item));
    let (mut nices, mut above) = (Vec::new(), f64::INFINITY);
    for ((value, item), place) in standing.into_iter().zip(places) {
        // Jobs that had equal priority values must get different ones in the new order.
        let less = (value - place.min(above - 1.0)).ceil();
        above = value - less;
        if let Some(found) = pending(&c.state, item).filter(|_| less != 0.0) {
            nices.push((item, (f64::from(found.spec.nice) + less) as i32));
        }
    }
    Ok(nices)
}
