//! Queries: nodes, partitions, configuration, counters, facts of an allocation.

use std::collections::BTreeMap;

use squall_model::config::{NodeConfig, NodeStart};
use squall_model::hostlist::expand;
use squall_model::id::JobId;
use squall_model::job::Digest;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::info::{BackfillCounts, Diag, ExpectedStart};
use squall_sched::{Given, Item, Reserved};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::rights;
use crate::control::effects::gang;
use crate::control::index::facts;
use crate::control::index::privacy::Sight;
use crate::control::info::cluster;
use crate::control::info::cluster::names;
use crate::control::info::forecast;
use crate::control::port::Who;
use crate::control::state::{Found, State};

/// Answers as whom the controller regards the caller.
pub(crate) fn caller(who: &Who) -> Answer {
    let owner = &who.owner;
    Answer::Caller { uid: owner.uid, user: owner.user.clone(), group: owner.group.clone(), operator: who.operator }
}

/// Returns when the first pending jobs are expected to start: each once, in the partition where it starts first.
pub(crate) fn expected(c: &mut Controller, ask: &Ask<'_>) -> Answer {
    let mut first: BTreeMap<Item, Reserved> = BTreeMap::new();
    for reserved in forecast::starts(c, ask.now) {
        let known = first.get(&reserved.item).is_some_and(|known| known.time <= reserved.time);
        if !known {
            first.insert(reserved.item, reserved);
        }
    }
    let of = |item: Item, time, given: &Given| {
        let nodes = names(&c.state, &given.alloc.nodes());
        ExpectedStart { id: item.id, time, nodes }
    };
    // Components of a heterogeneous job start with the first of them.
    let sight = Sight::of(&c.state, ask.who);
    let shown = first.into_iter().filter(|(item, _)| sight.shows(&c.state, item.id));
    let starts = shown.flat_map(|(item, Reserved { time, given, .. })| {
        let others: Vec<_> = given.others.iter().map(|other| of(other.item, time, &other.given)).collect();
        std::iter::once(of(item, time, &given)).chain(others)
    });
    Answer::Expected(starts.collect())
}

/// Returns nodes, CPUs and other facts about a running allocation. Only its owner gets them, as they allow to start
/// steps in it.
pub(crate) fn facts_of(c: &Controller, id: JobId) -> Reply {
    let refusal = match c.state.find(id) {
        None => return Err(Refusal::InvalidJobId),
        Some(Found::Untouched(..)) => Some(Refusal::NotRunning),
        // A leased job may have begun and ask before its node has reported the begin.
        Some(Found::Job(job)) if job.is_running() || job.is_leased() => None,
        Some(Found::Job(job)) if job.is_pending() => Some(Refusal::NotRunning),
        Some(Found::Job(_)) => Some(Refusal::AlreadyDone),
    };
    match (refusal, facts::facts(&c.state, id)) {
        (None, Some(facts)) => Ok(Some(Answer::Allocated(Box::new(facts)))),
        (refusal, _) => Err(refusal.unwrap_or(Refusal::NotRunning)),
    }
}

/// Returns the digest of a job's script.
pub(crate) fn script_of(state: &State, id: JobId) -> Result<Digest, Refusal> {
    let spec = rights::spec_of(state, id).ok_or(Refusal::InvalidJobId)?;
    spec.script.ok_or_else(|| Refusal::WrongState("not a batch job".into()))
}

/// Returns every node.
pub(crate) fn nodes(c: &Controller, ask: &Ask<'_>) -> Reply {
    if !Sight::of(&c.state, ask.who).nodes() {
        return Err(Refusal::AccessDenied);
    }
    Ok(Some(Answer::Nodes(cluster::nodes(c, ask.now))))
}

/// Returns the nodes that may join some day and have not done so.
pub(crate) fn future_nodes(c: &Controller, ask: &Ask<'_>) -> Reply {
    if !Sight::of(&c.state, ask.who).nodes() {
        return Err(Refusal::AccessDenied);
    }
    Ok(Some(Answer::Nodes(cluster::future_nodes(c, ask.now))))
}

/// Returns every partition.
pub(crate) fn partitions(c: &Controller, ask: &Ask<'_>) -> Reply {
    if !Sight::of(&c.state, ask.who).partitions() {
        return Err(Refusal::AccessDenied);
    }
    Ok(Some(Answer::Partitions(cluster::partitions(&c.state))))
}

/// Returns every reservation that the caller may see.
pub(crate) fn reservations(c: &Controller, ask: &Ask<'_>) -> Answer {
    let sight = Sight::of(&c.state, ask.who);
    let all = cluster::reservations(&c.state, ask.now).into_iter();
    Answer::Reservations(all.filter(|one| sight.reservation(&one.reservation)).collect())
}

/// Returns every license, by name.
pub(crate) fn licenses(c: &Controller, now: Time) -> Answer {
    Answer::Licenses(cluster::licenses(&c.state, now))
}

/// Returns the configuration in force, with the addresses and ports of this run.
pub(crate) fn config(c: &Controller) -> Answer {
    Answer::Config(Box::new(c.state.config.with_here_of(&c.here)))
}

/// Returns the controller's state of health.
pub(crate) fn ping(c: &Controller) -> Answer {
    let expected = |entry: &NodeConfig| expand(&entry.name).map_or(0, |names| names.len() as u32);
    Answer::Pong {
        host: c.host.clone(),
        version: c.version.clone(),
        nodes_up: c.state.nodes.iter().filter(|node| node.up).count() as u32,
        nodes_expected: c
            .state
            .config
            .nodes
            .iter()
            .filter(|entry| entry.state != NodeStart::Future)
            .map(expected)
            .sum(),
        trouble: c.disk_full.then(|| "the disk of the state directory is full".to_owned()),
        started: c.started,
        next_job: c.state.next_id(),
        cluster_version: c.state.cluster_version,
        speaks: c.speaks,
        records: None,
    }
}

/// Returns the counters of `sdiag`; with `reset` they then start again.
pub(crate) fn diag(c: &mut Controller, ask: &Ask<'_>, reset: bool) -> Answer {
    c.diag.now = ask.now;
    gang::count(c);
    c.diag.jobs_pending = c.state.index.pending;
    c.diag.jobs_running = c.state.index.active;
    c.diag.nodes = c.links.connected().len() as u64;
    c.diag.restored = c.state.restored;
    // The host adds the counts of requests: only of the user who is named here, if one is.
    let users = Sight::of(&c.state, ask.who).only_user().map(|uid| (uid, 0, 0)).into_iter().collect();
    let answer = Answer::Diag(Box::new(Diag { users, ..c.diag.clone() }));
    if reset {
        let clients = c.diag.clients;
        let backfill = BackfillCounts { jobs_ever: c.diag.backfill.jobs_ever, ..BackfillCounts::default() };
        c.diag = Diag { since: ask.now, clients, backfill, ..Diag::default() };
    }
    answer
}
