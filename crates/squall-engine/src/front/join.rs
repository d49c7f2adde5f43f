//! Merging of several cells' answers into one.

use squall_model::config::Config;
use squall_model::license;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::counts::NodeCounts;
use squall_model::wire::info::{BackfillCounts, Diag, FabricCounts, GangCounts, JobsPage, LicenseInfo, PartitionInfo};

use super::route::How;

/// All results that the cells returned for one request.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) how: How,
    pub(super) goods: Vec<Answer>,
    /// The empty last page, if earlier pages have been sent to the client already; None: none have.
    pub(super) last: Option<Answer>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) absent: Vec<u32>,
}

/// Returns the answers for the client once each cell has answered or is unreachable.
pub(super) fn closing(closing: Closing) -> Vec<Answer> {
    let Closing { how, goods, last, refusals, absent } = closing;
    let away = absent.first().map(|cell| Refusal::CellAway(*cell));
    // A refusal because a name is unknown does not count if another cell knows the name.
    let (unknown, mut serious): (Vec<_>, Vec<_>) = refusals.into_iter().partition(is_unknown);
    match how {
        How::Told(answer) => return vec![*answer],
        How::Change => serious.extend(away.clone()),
        _ => {}
    }
    let told = goods.into_iter().reduce(join).or(last);
    match (serious.into_iter().next(), told) {
        (Some(refusal), _) => vec![Answer::Refused(refusal)],
        (None, Some(answer)) if absent.is_empty() => vec![answer],
        (None, Some(answer)) => vec![Answer::Without(absent), answer],
        (None, None) => {
            let refusal = unknown.into_iter().next().or(away);
            vec![Answer::Refused(refusal.unwrap_or(Refusal::InvalidJobId))]
        }
    }
}

/// Returns whether the refusal only means that the cell has no such thing.
fn is_unknown(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::InvalidJobId
            | Refusal::InvalidPartition(_)
            | Refusal::InvalidNode(_)
            | Refusal::InvalidAccount(_)
            | Refusal::InvalidQos(_)
            | Refusal::NodeConfigNotAvailable(_)
            | Refusal::ReservationInvalid(_)
    )
}

/// Adds what another cell says of its nodes and its version to the answer of the first one.
fn join_pongs(all: &mut Answer, more: Answer) {
    if let (
        Answer::Pong { nodes_up, nodes_expected, trouble, cluster_version, speaks, records, .. },
        Answer::Pong {
            nodes_up: up,
            nodes_expected: expected,
            trouble: other,
            cluster_version: of_other,
            speaks: other_speaks,
            records: other_records,
            ..
        },
    ) = (all, more)
    {
        *nodes_up += up;
        *nodes_expected += expected;
        *trouble = trouble.take().or(other);
        *records = records.take().or(other_records);
        *cluster_version = (*cluster_version).min(of_other);
        *speaks = (*speaks).min(other_speaks);
    }
}

/// Merges a second cell's configuration into the first: nodes, partitions and licenses of both.
fn join_configs(all: &mut Config, more: Config) {
    all.nodes.extend(more.nodes);
    for new in more.partitions {
        match all.partitions.iter_mut().find(|known| known.name == new.name) {
            Some(known) if known.nodes != new.nodes => known.nodes = format!("{},{}", known.nodes, new.nodes),
            Some(_) => {}
            None => all.partitions.push(new),
        }
    }
    let mut licenses = license::parse(&all.licenses).unwrap_or_default();
    for (name, count) in license::parse(&more.licenses).unwrap_or_default() {
        *licenses.entry(name).or_default() += count;
    }
    let licenses: Vec<String> = licenses.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    all.licenses = licenses.join(",");
}

/// Returns whether an answer of this kind comes late and out of order, after answers to later requests.
pub(super) fn comes_when_it_may(answer: &Answer) -> bool {
    matches!(
        answer,
        Answer::Allocated(_)
            | Answer::StepCreated { .. }
            | Answer::StepDone { .. }
            | Answer::StepPart { .. }
            | Answer::Measured(..)
            | Answer::Notice(_)
            | Answer::JobDone { .. }
            | Answer::Script(_)
            | Answer::Tail(_)
            | Answer::Want { .. }
            | Answer::Broadcast { .. }
            | Answer::Why(_)
    )
}

/// Returns whether more pages follow from the same cell.
pub(super) fn is_followed(answer: &Answer) -> bool {
    match answer {
        Answer::Jobs(page) => page.more,
        Answer::Accounting { more, .. } | Answer::History(_, more) => *more,
        _ => false,
    }
}

/// Returns a page of a list, marked as followed by further pages, and the empty page that ends the list.
pub(super) fn followed(page: Answer) -> (Answer, Answer) {
    match page {
        Answer::Jobs(mut page) => {
            page.more = true;
            let last = JobsPage { now: page.now, ..JobsPage::default() };
            (Answer::Jobs(page), Answer::Jobs(Box::new(last)))
        }
        Answer::Accounting { rows, lost, .. } => (
            Answer::Accounting { rows, more: true, lost: Vec::new() },
            Answer::Accounting { rows: Vec::new(), more: false, lost },
        ),
        Answer::History(rows, _) => (Answer::History(rows, true), Answer::History(Vec::new(), false)),
        other => (other, Answer::Done),
    }
}

/// Merges two cells' answers to the same request. Where only one of two values can be kept, it is the first cell's.
fn join(first: Answer, second: Answer) -> Answer {
    match (first, second) {
        (Answer::Affected { mut jobs, mut refused }, Answer::Affected { jobs: more, refused: others }) => {
            jobs.extend(more);
            refused.extend(others);
            Answer::Affected { jobs, refused }
        }
        (Answer::Nodes(all), Answer::Nodes(more)) => Answer::Nodes(both(all, more)),
        (Answer::Expected(all), Answer::Expected(more)) => Answer::Expected(both(all, more)),
        (Answer::Reservations(all), Answer::Reservations(more)) => Answer::Reservations(both(all, more)),
        (Answer::Partitions(all), Answer::Partitions(more)) => Answer::Partitions(partitions(all, more)),
        (Answer::Licenses(all), Answer::Licenses(more)) => Answer::Licenses(licenses(all, more)),
        (Answer::Queried { no, unreachable }, Answer::Queried { no: also, unreachable: too }) => {
            Answer::Queried { no: both(no, also), unreachable: both(unreachable, too) }
        }
        (Answer::Priorities(mut all), Answer::Priorities(more)) => {
            all.jobs.extend(more.jobs);
            Answer::Priorities(all)
        }
        (Answer::Config(mut all), Answer::Config(more)) => {
            join_configs(&mut all, *more);
            Answer::Config(all)
        }
        (mut all @ Answer::Pong { .. }, more @ Answer::Pong { .. }) => {
            join_pongs(&mut all, more);
            all
        }
        (Answer::WouldStart { time, .. }, Answer::WouldStart { job, time: earlier, cpus, nodes, partition })
            if earlier < time =>
        {
            Answer::WouldStart { job, time: earlier, cpus, nodes, partition }
        }
        (Answer::Recalled(None), known @ Answer::Recalled(_)) => known,
        (Answer::Diag(all), Answer::Diag(more)) => Answer::Diag(Box::new(diag(*all, *more))),
        (first, _) => first,
    }
}

fn both<T>(mut all: Vec<T>, more: Vec<T>) -> Vec<T> {
    all.extend(more);
    all
}

/// Merges partition lists. A partition of several cells has the nodes of all of them.
fn partitions(mut all: Vec<PartitionInfo>, more: Vec<PartitionInfo>) -> Vec<PartitionInfo> {
    for new in more {
        let Some(known) = all.iter_mut().find(|known| known.config.name == new.config.name) else {
            all.push(new);
            continue;
        };
        let lists = [&*known.nodes, &*new.nodes].into_iter().filter(|list| !list.is_empty());
        known.nodes = lists.collect::<Vec<_>>().join(",");
        known.num_nodes += new.num_nodes;
        known.num_cpus += new.num_cpus;
    }
    all
}

fn licenses(mut all: Vec<LicenseInfo>, more: Vec<LicenseInfo>) -> Vec<LicenseInfo> {
    for new in more {
        match all.iter_mut().find(|known| known.name == new.name) {
            Some(known) => {
                known.total += new.total;
                known.used += new.used;
                known.reserved += new.reserved;
            }
            None => all.push(new),
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Merges the counters of two cells: counts and totals are added; of values of the last cycle the later one is kept, of
/// maxima the greater one.
fn diag(a: Diag, b: Diag) -> Diag {
    let later = if a.now >= b.now { &a } else { &b };
    let (cycle_last_us, now) = (later.cycle_last_us, later.now);
    Diag {
        since: a.since.min(b.since),
        now,
        jobs_submitted: a.jobs_submitted + b.jobs_submitted,
        jobs_started: a.jobs_started + b.jobs_started,
        jobs_completed: a.jobs_completed + b.jobs_completed,
        jobs_canceled: a.jobs_canceled + b.jobs_canceled,
        jobs_failed: a.jobs_failed + b.jobs_failed,
        jobs_pending: a.jobs_pending + b.jobs_pending,
        jobs_running: a.jobs_running + b.jobs_running,
        cycles: a.cycles + b.cycles,
        cycle_last_us,
        cycle_max_us: a.cycle_max_us.max(b.cycle_max_us),
        cycle_total_us: a.cycle_total_us + b.cycle_total_us,
        cycle_depth_total: a.cycle_depth_total + b.cycle_depth_total,
        queue_length: a.queue_length + b.queue_length,
        journal_records: a.journal_records + b.journal_records,
        journal_events: a.journal_events + b.journal_events,
        journal_bytes: a.journal_bytes + b.journal_bytes,
        journal_flushes: a.journal_flushes + b.journal_flushes,
        flush_total_us: a.flush_total_us + b.flush_total_us,
        flush_max_us: a.flush_max_us.max(b.flush_max_us),
        messages: tally(a.messages, b.messages),
        users: tally(a.users, b.users),
        clients: a.clients + b.clients,
        nodes: a.nodes + b.nodes,
        fabric: fabric(a.fabric, &b.fabric),
        gang: gang(a.gang, b.gang),
        backfill: backfill(&a.backfill, &b.backfill),
        broken: a.broken + b.broken,
        latency: a.latency.merged(&b.latency),
        node_daemons: a.node_daemons.plus(&b.node_daemons, &NodeCounts::default()),
        restored: a.restored.max(b.restored),
        nodes_lost: a.nodes_lost + b.nodes_lost,
        lost: a.lost.plus(&b.lost),
    }
}

/// Adds up two lists of (name, count, time): counts and times of the same name are summed.
fn tally<K: Ord>(all: Vec<(K, u64, u64)>, more: Vec<(K, u64, u64)>) -> Vec<(K, u64, u64)> {
    let mut sums = all;
    for (key, count, time) in more {
        match sums.iter_mut().find(|(known, ..)| *known == key) {
            Some(sum) => (sum.1, sum.2) = (sum.1 + count, sum.2 + time),
            None => sums.push((key, count, time)),
        }
    }
    sums
}

fn fabric(mut a: FabricCounts, b: &FabricCounts) -> FabricCounts {
    a.windows.resize(a.windows.len().max(b.windows.len()), 0);
    a.windows.iter_mut().zip(&b.windows).for_each(|(sum, more)| *sum += more);
    FabricCounts {
        messages: a.messages + b.messages,
        messages_us: a.messages_us + b.messages_us,
        node_epilogs: a.node_epilogs + b.node_epilogs,
        composites: a.composites + b.composites,
        composite_reports: a.composite_reports.saturating_add(b.composite_reports),
        windows: a.windows,
        repeats: a.repeats + b.repeats,
        retransmits: a.retransmits + b.retransmits,
        multicast_bytes: a.multicast_bytes + b.multicast_bytes,
        waited_max_us: a.waited_max_us.max(b.waited_max_us),
    }
}

fn gang(a: GangCounts, b: GangCounts) -> GangCounts {
    GangCounts {
        policy: a.policy,
        slice: a.slice,
        jobs: a.jobs + b.jobs,
        rows: a.rows.max(b.rows),
        nodes: a.nodes + b.nodes,
        changes: a.changes + b.changes,
        strobes: a.strobes + b.strobes,
        skew_us: a.skew_us.max(b.skew_us),
        worst: a.worst.into_iter().chain(b.worst).max_by_key(|(_, skew)| *skew),
    }
}

fn backfill(a: &BackfillCounts, b: &BackfillCounts) -> BackfillCounts {
    let later = if a.last >= b.last { a } else { b };
    let sum = |of: fn(&BackfillCounts) -> (u64, u64)| (of(later).0, of(a).1 + of(b).1);
    BackfillCounts {
        jobs_ever: a.jobs_ever + b.jobs_ever,
        jobs: a.jobs + b.jobs,
        cycles: a.cycles + b.cycles,
        last: later.last,
        last_us: later.last_us,
        max_us: a.max_us.max(b.max_us),
        total_us: a.total_us + b.total_us,
        depth: sum(|counts| counts.depth),
        tried: sum(|counts| counts.tried),
        queue: sum(|counts| counts.queue),
        times: sum(|counts| counts.times),
    }
}
