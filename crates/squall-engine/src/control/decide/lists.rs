//! Lists of jobs, sent in pages so that a long list does not delay other clients.
//!
//! A list is not a snapshot: a page has the state at the time when it is made. Each job is listed at most once, and a
//! job that matches all the while is listed.

use crate::control::index::lists::Chosen;
use crate::control::index::lists::List;
use crate::control::index::lists::Tasks;
use std::collections::BTreeMap;

use squall_model::id::JobId;
use squall_model::job::ArrayTask;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal};
use squall_model::wire::info::JobsPage;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::{Filter, select_named};
use crate::control::index::page::{Pages, Row};
use crate::control::index::privacy::Sight;
use crate::control::info::job;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;

/// Limit on the jobs examined for one page, matching or not, as a multiple of the jobs that the page may contain.
const LOOKS: usize = 16;
/// A list that is certain to have at most 1/AT_ONCE of a page's jobs is answered at once, as most requests name only a
/// few jobs.
const AT_ONCE: usize = 16;

/// Begins a list for a client. `ended`: with jobs that have ended; `steps`: with their steps.
pub(crate) fn open(
    c: &mut Controller,
    ask: &Ask<'_>,
    wanted: JobSelection,
    (ended, steps): (bool, bool),
    out: &mut Out,
) -> Reply {
    let at_once = (c.lists.page / AT_ONCE).max(1);
    let few = is_few(&c.state, &wanted, at_once);
    let pages = Pages::of(c.lists.page);
    let sight = Sight::of(&c.state, ask.who);
    let mut list = List { sight, wanted, ended, steps, chosen: None, told: BTreeMap::new(), next: JobId(0), pages };
    if few && let Some(last) = list.look(c, ask.now, at_once)? {
        return Ok(Some(Answer::Jobs(Box::new(last))));
    }
    tell(&mut list, ask.caller, ask.now, out);
    c.lists.open.push_back((ask.caller, list));
    Ok(None)
}

/// Returns whether a list certainly has at most `at_once` jobs, because it names so few or because there are so few.
fn is_few(state: &State, wanted: &JobSelection, at_once: usize) -> bool {
    let single = |named: &JobRef| matches!(named, JobRef::Job(id) if !state.arrays.contains_key(id));
    let by_name = !wanted.ids.is_empty() && wanted.ids.len() <= at_once && wanted.ids.iter().all(single);
    by_name || state.jobs.len() + state.arrays.len() <= at_once
}

/// Makes the next page of the first unfinished list and sends it to the client. The list then goes behind the other
/// ones.
pub(crate) fn page(c: &mut Controller, now: Time, out: &mut Out) {
    // because the client of the last list may have gone after the host had looked
    let Some((caller, mut list)) = c.lists.open.pop_front() else { return };
    let answer = match list.look(c, now, c.lists.page * LOOKS) {
        Ok(None) => {
            tell(&mut list, caller, now, out);
            c.lists.open.push_back((caller, list));
            return;
        }
        Ok(Some(last)) => Answer::Jobs(Box::new(last)),
        Err(refusal) => Answer::Refused(refusal),
    };
    out.answers.push((caller, answer));
}

/// Completes the lists of a client that sends another request, as answers must come in the order of requests.
pub(crate) fn hurry(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    while let Some(at) = c.lists.open.iter().position(|(of, _)| *of == caller) {
        let list = c.lists.open.remove(at);
        c.lists.open.extend(list);
        c.lists.open.rotate_right(1);
        page(c, now, out);
    }
}

/// Sends the complete pages of a list to its client.
fn tell(list: &mut List, caller: CallerId, now: Time, out: &mut Out) {
    out.answers.extend(list.pages.take(now).map(|page| (caller, Answer::Jobs(Box::new(page)))));
}

/// Adds a row to the pages, without what its reader may not see.
fn put(pages: &mut Pages, sight: &Sight, row: Row<'_>) {
    let spec = sight.typed(row.spec, row.owner);
    pages.push(Row { spec: &spec, ..row });
}

impl Chosen {
    fn new(state: &State, wanted: &JobSelection, filter: &Filter<'_>) -> Self {
        let selected = select_named(state, filter);
        let untouched =
            selected.tasks.into_iter().map(|of| Tasks { array: of.array, indices: of.indices, ended: None });
        let skipped = selected.skipped.into_iter().map(|(array, how)| {
            let ended = Some((how.outcome, how.time));
            Tasks { array, indices: how.tasks, ended }
        });
        let mut tasks: Vec<_> = untouched.chain(skipped).collect();
        tasks.sort_by_key(|of| std::cmp::Reverse(of.array));
        let named = (!wanted.ids.is_empty()).then_some(selected.jobs);
        let unknown = selected.refused.into_iter().map(|(name, _)| name.id).collect();
        Self { named, tasks, unknown }
    }
}

impl List {
    /// Adds jobs until a page is complete or `looks` jobs have been examined. Returns the last page when the list is
    /// complete; None: more jobs follow.
    fn look(&mut self, c: &Controller, now: Time, looks: usize) -> Result<Option<JobsPage>, Refusal> {
        let state = &c.state;
        let filter = Filter::to_show(state, Some(&self.sight), &self.wanted, self.ended)?;
        let chosen = self.chosen.get_or_insert_with(|| Chosen::new(state, &self.wanted, &filter));
        let jobs = &state.jobs;
        let rest = self.next..JobId(u32::MAX);
        let mut rest: Box<dyn Iterator<Item = _>> = match &chosen.named {
            None => Box::new(jobs.range(rest)),
            Some(ids) => Box::new(ids.range(rest).filter_map(|id| Some((id, jobs.get(id)?)))),
        };
        let mut job = rest.next();
        let mut looks = 0..looks;
        loop {
            let done = chosen.tasks.is_empty() && job.is_none();
            if self.pages.is_turned() || (!done && looks.next().is_none()) {
                return Ok(None);
            }
            // Array tasks without a record of their own come before the array's other tasks.
            if let Some(of) = chosen.tasks.pop_if(|of| job.is_none_or(|(id, _)| of.array <= *id)) {
                // because the record of the array may have been removed since the list began
                let Some(array) = state.arrays.get(&of.array) else { continue };
                self.told.entry(of.array).or_default().union_with(&of.indices);
                let row = job::of_tasks(c, of.array, array, of.indices, of.ended, now);
                put(&mut self.pages, &self.sight, row);
                continue;
            }
            let Some((&id, found)) = job else {
                let unknown = std::mem::take(&mut chosen.unknown);
                return Ok(Some(std::mem::take(&mut self.pages).last(unknown, now)));
            };
            self.next = JobId(id.0 + 1);
            job = rest.next();
            let told = |task: ArrayTask| self.told.get(&task.array).is_some_and(|tasks| tasks.contains(task.index));
            if filter.shows(state, id, found) && !found.task.is_some_and(told) {
                let row = job::of_job(c, id, found, self.steps, now);
                put(&mut self.pages, &self.sight, row);
            }
        }
    }
}
