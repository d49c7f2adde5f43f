//! Followers of events (`squall events`, `squeue --follow`): each is sent pages of the feed, as fast as it reads them.

use squall_model::id::JobId;
use squall_model::limits::FOLLOWERS_MAX;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal};
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, Position};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::{is_in, nodes_of};
use crate::control::index::feed::Wanted;
use crate::control::index::privacy::Sight;
use crate::control::info::cluster::names;
use crate::control::port::Out;
use crate::control::state::State;

/// Adds a follower from a position on; None: from now on.
pub(crate) fn follow(
    c: &mut Controller,
    ask: &Ask<'_>,
    from: Option<Position>,
    jobs: JobSelection,
    kinds: Vec<FeedKind>,
    out: &Out,
) -> Reply {
    if c.feed.followers() >= FOLLOWERS_MAX {
        let text = format!("More than {FOLLOWERS_MAX} followers of events");
        return Err(Refusal::NotSupported(text));
    }
    let nodes = jobs.nodes.as_deref().map(|list| nodes_of(&c.state, "nodelist", list)).transpose()?;
    let sight = Sight::of(&c.state, ask.who);
    let wanted = Wanted { sight, jobs, nodes, kinds };
    let page = c.feed.follow(ask.now, (ask.caller, wanted), from, out.events.is_empty());
    Ok(Some(Answer::Followed(Box::new(page))))
}

/// Sends the next page of events to the first follower that has not got all of them.
pub(crate) fn page(c: &mut Controller, now: Time, out: &mut Out) {
    let state = &c.state;
    let hosts = |nodes: &NodeSet| names(state, nodes);
    let page = c.feed.page(now, |wanted, event, nodes| takes(state, wanted, event, nodes), hosts);
    out.answers.extend(page.map(|(caller, page)| (caller, Answer::Followed(Box::new(page)))));
}

/// Returns whether a follower wants an event. Conditions on jobs leave out events that are about no job.
fn takes(state: &State, wanted: &Wanted, event: &FeedEvent, nodes: &NodeSet) -> bool {
    let kind = wanted.kinds.is_empty() || wanted.kinds.contains(&event.kind);
    if !kind
        || !wanted.sight.event(state, event, nodes)
        || wanted.nodes.as_ref().is_some_and(|wanted| wanted.is_disjoint(nodes))
    {
        return false;
    }
    let w = &wanted.jobs;
    let lists = [&w.partitions, &w.names, &w.accounts, &w.qos];
    let any = w.ids.is_empty() && w.users.is_empty() && w.states.is_empty() && lists.iter().all(|list| list.is_empty());
    any || event.job.as_ref().is_some_and(|job| takes_job(state, w, job, event.kind))
}

fn takes_job(state: &State, w: &JobSelection, job: &FeedJob, kind: FeedKind) -> bool {
    let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
    let set_up = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one.eq_ignore_ascii_case(name));
    let requeued = kind == FeedKind::JobRequeued;
    (w.users.is_empty() || w.users.contains(&job.uid))
        && job.partition.split(',').any(|name| has(&w.partitions, name))
        && has(&w.names, &job.name)
        && set_up(&w.accounts, &job.account)
        && set_up(&w.qos, &job.qos)
        && (w.states.is_empty() || w.states.iter().any(|&filter| is_in(filter, job.state, requeued)))
        && (w.ids.is_empty() || w.ids.iter().any(|named| is_named(state, named, job)))
}

/// Returns whether a request names a job: by itself, as a task of an array, or as a component of a heterogeneous job.
/// An event about several tasks of an array is one about each of them.
fn is_named(state: &State, named: &JobRef, job: &FeedJob) -> bool {
    let leader = |id: JobId| state.het_of(job.id).is_some_and(|het| het.leader == id);
    match named {
        JobRef::Job(id) => job.id == *id || job.task.is_some_and(|task| task.array == *id) || leader(*id),
        JobRef::Tasks(array, indices) => match job.task {
            Some(task) => task.array == *array && indices.contains(task.index),
            None => job.id == *array && job.tasks.is_some(),
        },
        JobRef::Component(id, offset) => job.id.0 == id.0.saturating_add(*offset) && leader(*id),
    }
}
