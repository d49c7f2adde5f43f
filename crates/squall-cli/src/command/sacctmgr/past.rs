//! Accounting's history as rows: events of nodes, changes of accounts, reservations.

use jiff::Timestamp;
use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::policy::{AssocKey, Policy, PolicyChange};
use squall_model::time::Time;
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::history::{Happening, HistoryRow};

use super::{ListQuery, dump};
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::past;
use squall_text::columns::records::{Past, Row};
use squall_text::format::when::looking_back;

const WHAT: &str = "sacctmgr: error: Problem with the query";

/// Returns the rows of the listing of `entity`: events, transactions or reservations.
pub(super) fn rows(call: &mut Call<'_>, entity: &str, wanted: &ListQuery, config: &Config) -> Result<Vec<Row>, Fail> {
    let history = match call.controller.history() {
        Ok(history) => history,
        Err(e) => return call.failed(WHAT, &e),
    };
    let span = span(call, entity, wanted)?;
    match entity {
        "event" => events(call, wanted, config, &history, span),
        "transaction" => Ok(transactions(call, config, &history, span)),
        _ => reservations(call, config, &history, span),
    }
}

/// Returns the period that `start=` and `end=` name. Events are those since yesterday unless a start is given.
fn span(call: &mut Call<'_>, entity: &str, wanted: &ListQuery) -> Result<(Time, Time), Fail> {
    let now = Timestamp::from_microsecond(call.now.0 as i64).unwrap_or_default().to_zoned(call.zone.clone());
    let yesterday = now.yesterday().and_then(|day| day.start_of_day()).unwrap_or_else(|_| now.clone());
    let yesterday = Time::from_secs(u64::try_from(yesterday.timestamp().as_second()).unwrap_or(0));
    let all = entity != "event" || wanted.all_time || wanted.conditions.iter().any(|(key, _)| *key == "states");
    let (mut from, mut to) = (if all { Time::default() } else { yesterday }, Time(u64::MAX));
    for (key, value) in wanted.conditions.iter().filter(|(key, _)| *key == "start" || *key == "end") {
        match looking_back(value, &now) {
            Some(time) if *key == "start" => from = time,
            Some(time) => to = time,
            None => return call.fail(&format!("Invalid time specification (pos=0): {value}")),
        }
    }
    Ok((from, to))
}

fn events(
    call: &mut Call<'_>,
    wanted: &ListQuery,
    config: &Config,
    history: &[HistoryRow],
    (from, to): (Time, Time),
) -> Result<Vec<Row>, Fail> {
    let nodes = past::seen(call, WHAT, history)?;
    let clock = call.clock(call.now);
    let of = wanted.conditions.iter().rev().find(|(key, _)| *key == "event").map(|(_, value)| value.to_lowercase());
    let wants = |kind: &str| of.as_deref().is_none_or(|of| kind.starts_with(of));
    let mut all = Vec::new();
    if wants("cluster") && !nodes.is_empty() {
        let cpus: u32 = nodes.iter().map(|node| node.cpus).sum();
        let memory: u64 = nodes.iter().map(|node| node.memory_mb).sum();
        let since = nodes.iter().map(|node| node.since).max().unwrap_or_default();
        let past = Past {
            start: clock.show(since),
            end: "Unknown".to_owned(),
            seconds: call.now.secs().saturating_sub(since.secs()),
            info: "Cluster Registered TRES".to_owned(),
            nodes: hostlist::compress(nodes.iter().map(|node| node.node.clone())),
            tres: format!("billing={cpus},cpu={cpus},mem={memory}M,node={}", nodes.len()),
            ..Past::default()
        };
        all.push(Row { cluster: config.cluster.clone(), past, ..Row::default() });
    }
    let outages = past::outages(history).into_iter().filter(|_| wants("node"));
    for outage in outages.filter(|o| o.start < to && o.end.is_none_or(|end| end >= from)) {
        let past = Past {
            node: outage.node,
            start: clock.show(outage.start),
            end: outage.end.map_or_else(|| "Unknown".to_owned(), |end| clock.show(end)),
            seconds: outage.end.unwrap_or(call.now).secs().saturating_sub(outage.start.secs()),
            state: outage.state.to_owned(),
            info: outage.reason,
            ..Past::default()
        };
        let user = outage.by.map(|uid| format!("{}({uid})", call.people.user(uid))).unwrap_or_default();
        all.push(Row { cluster: config.cluster.clone(), user, past, ..Row::default() });
    }
    Ok(all)
}

fn reservations(
    call: &mut Call<'_>,
    config: &Config,
    history: &[HistoryRow],
    (from, to): (Time, Time),
) -> Result<Vec<Row>, Fail> {
    let nodes = past::seen(call, WHAT, history)?;
    let query = AccountingQuery { allocations_only: true, duplicates: true, ..AccountingQuery::default() };
    let jobs = call.accounting(WHAT, query)?;
    let clock = call.clock(call.now);
    let mut all = Vec::new();
    for past::ReservationVersion { reservation, nodes: names, id } in past::reservations(history) {
        if reservation.start >= to || reservation.end < from {
            continue;
        }
        let own = hostlist::expand(&names).unwrap_or_default();
        let cpus: u64 = nodes.iter().filter(|n| own.contains(&n.node)).map(|n| u64::from(n.cpus)).sum();
        let over = reservation.end.min(call.now);
        let seconds = over.secs().saturating_sub(reservation.start.secs());
        let used: u64 = jobs
            .iter()
            .filter(|job| job.spec.reservations().any(|name| name == reservation.name))
            .filter_map(|job| {
                Some((u64::from(job.num_cpus), job.start?.max(reservation.start), job.end.unwrap_or(over)))
            })
            .map(|(cpus, start, end)| cpus * end.min(over).secs().saturating_sub(start.secs()))
            .sum();
        let unused = seconds as f64 - used as f64 / cpus.max(1) as f64;
        let flags: Vec<&str> = reservation.flags.iter().map(|flag| flag.name()).collect();
        let past = Past {
            start: clock.show(reservation.start),
            end: clock.show(reservation.end),
            seconds,
            tres: format!("cpu={cpus}"),
            unused: format!("{unused:.6}"),
            flags: flags.join(","),
            nodes: names,
            ..Past::default()
        };
        let (name, cluster) = (reservation.name, config.cluster.clone());
        all.push(Row { name, cluster, user: reservation.users.join(","), numbered: id, past, ..Row::default() });
    }
    Ok(all)
}

fn transactions(call: &mut Call<'_>, config: &Config, history: &[HistoryRow], (from, to): (Time, Time)) -> Vec<Row> {
    let clock = call.clock(call.now);
    let (mut policy, mut all) = (Policy::default(), Vec::new());
    for HistoryRow { time, what } in history {
        let Happening::Changed { changes, by } = what else { continue };
        for change in changes {
            let (action, to_what, info) = told(&policy, change);
            let (account, user) = match change {
                PolicyChange::Association(key, _) | PolicyChange::Forget(key) => {
                    (key.account.clone(), key.user.clone())
                }
                PolicyChange::Account(name, _) => (name.clone(), String::new()),
                PolicyChange::User(name, _) => (String::new(), name.clone()),
                PolicyChange::Qos(..) | PolicyChange::ForgetQos(_) => (String::new(), String::new()),
            };
            policy.change(change);
            if *time < from || *time >= to {
                continue;
            }
            let past = Past {
                start: clock.show(*time),
                action,
                by: call.people.user(*by),
                to: to_what,
                info,
                ..Past::default()
            };
            all.push(Row { account, user, cluster: config.cluster.clone(), past, ..Row::default() });
        }
    }
    all
}

/// Describes a change of the policy as a transaction: (kind of change, object, new values).
fn told(policy: &Policy, change: &PolicyChange) -> (String, String, String) {
    let verb = |before: bool, after: bool| match (before, after) {
        (false, _) => "Add",
        (true, true) => "Modify",
        (true, false) => "Remove",
    };
    match change {
        PolicyChange::Account(name, value) => {
            let info =
                value.as_ref().map(|v| format!("description='{}', organization='{}'", v.description, v.organization));
            let verb = verb(policy.accounts.contains_key(name), value.is_some());
            (format!("{verb} Accounts"), name.clone(), info.unwrap_or_default())
        }
        PolicyChange::User(name, value) => {
            let info =
                value.as_ref().map(|v| format!("default_acct='{}', admin_level='{:?}'", v.default_account, v.admin));
            (
                format!("{} Users", verb(policy.users.contains_key(name), value.is_some())),
                name.clone(),
                info.unwrap_or_default(),
            )
        }
        PolicyChange::Qos(name, value) => {
            let info = value.as_ref().map(|v| format!("description='{}', priority={}", v.description, v.priority));
            (
                format!("{} QOS", verb(policy.qos.contains_key(name), value.is_some())),
                name.clone(),
                info.unwrap_or_default(),
            )
        }
        PolicyChange::Association(key, value) => {
            let before = policy.associations.get(key);
            let id = before.map_or(policy.last_assoc + 1, |own| own.id);
            let AssocKey { account, user, partition } = key;
            let named = format!("acct='{account}', user='{user}', partition='{partition}'");
            let info = value.as_ref().map(|own| {
                let options = dump::options(own);
                let parent =
                    if own.parent.is_empty() { String::new() } else { format!(", parent_acct='{}'", own.parent) };
                format!("{named}{parent}{}", options.replace(':', ", "))
            });
            let verb = verb(before.is_some(), value.is_some());
            (format!("{verb} Associations"), format!("id_assoc={id}"), info.unwrap_or(named))
        }
        PolicyChange::Forget(key) => {
            let id = policy.associations.get(key).map_or(0, |own| own.id);
            ("Modify Associations".to_owned(), format!("id_assoc={id}"), "RawUsage=0".to_owned())
        }
        PolicyChange::ForgetQos(name) => ("Modify QOS".to_owned(), name.clone(), "RawUsage=0".to_owned()),
    }
}
