//! Accounts, users, QOS and other entities of sacctmgr as rows of a listing.

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::policy::{AdminLevel, Policy, ROOT};

use squall_model::wire::client::{Answer, Request};

use super::ListQuery;
use super::past;
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::names;
use squall_text::columns::entities;
use squall_text::columns::records::{Entity, Row, preempt_mode};
use squall_text::verbs::setting::admin_level;

/// Returns the rows of a listing. As long as no user is set up, all users run in the default account.
pub(super) fn rows(
    call: &mut Call<'_>,
    entity: &Entity,
    wanted: &ListQuery,
    config: &Config,
    policy: &Policy,
) -> Result<Vec<Row>, Fail> {
    if !here(&wanted.clusters, &config.cluster) {
        return Ok(Vec::new());
    }
    let all = match entity.name {
        "user" if policy.users.keys().all(|name| name == ROOT) => nobody_is_set_up(call, wanted, config, policy, true),
        "user" => {
            let associations = wanted.associations || !wanted.accounts.is_empty() || wants_association(wanted);
            entities::users(associations, config, &entities::with_root_if_shown(policy.clone()))
        }
        "association" if policy.associations.is_empty() => nobody_is_set_up(call, wanted, config, policy, false),
        "association" => entities::associations(config, policy),
        "account" => entities::accounts(wanted.associations, config, policy),
        "cluster" => {
            let host = match call.controller.ask(&Request::Ping) {
                Ok(Answer::Pong { host, .. }) => host,
                _ => String::new(),
            };
            vec![entities::cluster(config, policy, host)]
        }
        "qos" => entities::levels(policy, config),
        "tres" => entities::resources(config),
        "event" | "transaction" | "reservation" => past::rows(call, entity.name, wanted, config)?,
        _ => Vec::new(),
    };
    Ok(all.into_iter().filter(|row| fits(entity, row, wanted) && fulfils(row, wanted)).collect())
}

/// Returns whether a row meets those conditions of a listing that are the same for all kinds of records.
fn fulfils(row: &Row, wanted: &ListQuery) -> bool {
    let any = |value: &str, texts: &[&str]| {
        let mut names = names(value).into_iter();
        names.any(|name| texts.iter().any(|text| name.eq_ignore_ascii_case(text)))
    };
    wanted.conditions.iter().all(|(key, value)| match *key {
        "actions" => any(value, &[&row.past.action]),
        "actors" => any(value, &[&row.past.by]),
        "adminlevel" => admin_level(value) == Some(row.admin),
        "defaultaccount" => any(value, &[&row.default_account]),
        "defaultqos" => any(value, &[&row.own.default_qos]),
        "descriptions" => any(value, &[&row.description, &row.level.description]),
        "flags" => any(value, &row.level.flags.iter().map(String::as_str).collect::<Vec<_>>()),
        "ids" => any(value, &[&row.number().to_string()]),
        "nodes" => hostlist::expand(value).is_ok_and(|names| names.contains(&row.past.node)),
        "organizations" => any(value, &[&row.organization]),
        "parents" => any(value, &[&row.parent]),
        "partitions" => any(value, &[&row.partition]),
        "preemptmode" => any(value, &[preempt_mode(row.level.preempt_mode)]),
        "qoslevel" => any(value, &row.qos.split(',').collect::<Vec<_>>()),
        "reasons" => any(value, &[&row.past.info]),
        "states" => any(value, &row.past.state.split(['+', '*']).collect::<Vec<_>>()),
        "type" => any(value, &[row.name.split('/').next().unwrap_or_default()]),
        // Squall keeps no default wckey: only an empty value fits.
        "defaultwckey" | "wckeys" => value.is_empty(),
        _ => true,
    })
}

fn here(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|n| n.eq_ignore_ascii_case(name))
}

fn fits(entity: &Entity, row: &Row, wanted: &ListQuery) -> bool {
    let account = here(&wanted.accounts, &row.account);
    match entity.name {
        "user" => (here(&wanted.names, &row.name) && here(&wanted.users, &row.name)) && account,
        "association" => here(&wanted.users, &row.user) && account,
        "account" => here(&wanted.names, &row.name) && account,
        "transaction" => account && here(&wanted.users, &row.user),
        "event" => here(&wanted.users, row.user.split('(').next().unwrap_or_default()),
        "tres" | "cluster" | "qos" | "reservation" => here(&wanted.names, &row.name),
        _ => true,
    }
}

/// Returns the rows to list as long as no user is set up: for the named users, if they exist on this machine; without
/// names, for root and the caller. If the controller hides other users, only the caller is listed.
fn nobody_is_set_up(call: &Call<'_>, wanted: &ListQuery, config: &Config, policy: &Policy, as_users: bool) -> Vec<Row> {
    let asked: Vec<&String> = wanted.names.iter().filter(|_| as_users).chain(&wanted.users).collect();
    let mut users: Vec<String> = if asked.is_empty() {
        vec![call.people.user(0), call.people.user(call.people.me())]
    } else {
        asked.into_iter().filter(|name| call.people.uid(name).is_some()).cloned().collect()
    };
    if !policy.users.contains_key(ROOT) {
        let me = call.people.user(call.people.me());
        users.retain(|name| *name == me);
    }
    users.sort();
    users.dedup();
    let row = |user: &str| Row {
        name: user.to_owned(),
        user: user.to_owned(),
        account: config.default_account.clone(),
        default_account: config.default_account.clone(),
        cluster: config.cluster.clone(),
        qos: config.default_qos.clone(),
        admin: if user == ROOT { AdminLevel::Administrator } else { AdminLevel::None },
        ..Row::default()
    };
    let account = (!as_users && wanted.users.is_empty()).then(|| row(""));
    account.into_iter().chain(users.iter().map(|user| row(user))).collect()
}

/// Returns whether the format names fields that only associations have.
fn wants_association(wanted: &ListQuery) -> bool {
    let plain = ["user", "defaulta", "def", "admin", "coord", "name"];
    wanted.format.iter().any(|field| {
        let field = field.to_ascii_lowercase();
        let name = field.split('%').next().unwrap_or_default();
        !plain.iter().any(|plain| name.starts_with(plain) || plain.starts_with(name))
    })
}
