//! Accounts, users, QOS and other entities of sacctmgr as rows of a listing.

use squall_model::config::Config;
use squall_model::gres;
use squall_model::hostlist;
use squall_model::policy::{AdminLevel, AssocKey, Association, NORMAL, Policy, Qos, ROOT, Tres};

use squall_model::wire::client::{Answer, Request};

use super::Wanted;
use super::past;
use super::settings::admin_level;
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::names;
use squall_text::columns::records::{Entity, Row, TRES, preempt_mode};

/// Returns the rows of a listing. As long as no user is set up, all users run in the default account.
pub(super) fn rows(
    call: &mut Call<'_>,
    entity: &Entity,
    wanted: &Wanted,
    config: &Config,
    policy: &Policy,
) -> Result<Vec<Row>, Fail> {
    if !here(&wanted.clusters, &config.cluster) {
        return Ok(Vec::new());
    }
    let all = match entity.name {
        "user" if policy.users.is_empty() => nobody_is_set_up(call, wanted, config, true),
        "user" => users(wanted, config, &with_root(policy.clone())),
        "association" if policy.associations.is_empty() => nobody_is_set_up(call, wanted, config, false),
        "association" => associations(config, policy),
        "account" => accounts(wanted, config, policy),
        "cluster" => vec![Row {
            name: config.cluster.clone(),
            cluster: config.cluster.clone(),
            host: match call.controller.ask(&Request::Ping) {
                Ok(Answer::Pong { host, .. }) => host,
                _ => String::new(),
            },
            qos: config.default_qos.clone(),
            own: policy.associations.get(&AssocKey::account(ROOT)).cloned().unwrap_or_default(),
            ..Row::default()
        }],
        "qos" => levels(policy, config),
        "tres" => {
            let gpus = has_gpus(config).then_some(Tres::Gpu.name());
            TRES.iter().copied().chain(gpus).map(|name| Row { name: name.to_owned(), ..Row::default() }).collect()
        }
        "event" | "transaction" | "reservation" => past::rows(call, entity.name, wanted, config)?,
        _ => Vec::new(),
    };
    Ok(all.into_iter().filter(|row| fits(entity, row, wanted) && fulfils(row, wanted)).collect())
}

/// Returns whether a row meets those conditions of a listing that are the same for all kinds of records.
fn fulfils(row: &Row, wanted: &Wanted) -> bool {
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

/// Returns whether any node has GPUs.
fn has_gpus(config: &Config) -> bool {
    let of_nodes = config.nodes.iter().filter_map(|node| gres::parse(&node.gres)).flatten().map(|count| count.name);
    of_nodes.chain(config.gres.iter().map(|line| line.name.clone())).any(|name| name == "gpu")
}

fn here(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|n| n.eq_ignore_ascii_case(name))
}

fn fits(entity: &Entity, row: &Row, wanted: &Wanted) -> bool {
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
/// names, for root and the caller.
fn nobody_is_set_up(call: &Call<'_>, wanted: &Wanted, config: &Config, as_users: bool) -> Vec<Row> {
    let asked: Vec<&String> = wanted.names.iter().filter(|_| as_users).chain(&wanted.users).collect();
    let mut users: Vec<String> = if asked.is_empty() {
        vec![call.people.user(0), call.people.user(call.people.me())]
    } else {
        asked.into_iter().filter(|name| call.people.uid(name).is_some()).cloned().collect()
    };
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

/// Adds the user root, an administrator, and its association, which exist by default.
pub(crate) fn with_root(mut policy: Policy) -> Policy {
    let root = policy.users.entry(ROOT.to_owned()).or_default();
    root.admin = AdminLevel::Administrator;
    if root.default_account.is_empty() {
        ROOT.clone_into(&mut root.default_account);
    }
    policy
        .associations
        .entry(AssocKey::user(ROOT, ROOT))
        .or_insert_with(|| Association { id: 1, ..Association::default() });
    policy
}

/// Returns an association's row, with inherited limits.
fn associated(config: &Config, policy: &Policy, key: &AssocKey, own: &Association) -> Row {
    let mut own = own.clone();
    own.limits = policy.limits(&key.account, &own).collect();
    if own.default_qos.is_empty() {
        let above = policy.default_qos(&key.account, &own).unwrap_or_default();
        own.default_qos = String::from(above);
    }
    let user = policy.users.get(&key.user);
    let account = policy.accounts.get(&key.account);
    Row {
        name: if key.user.is_empty() { key.account.clone() } else { key.user.clone() },
        user: key.user.clone(),
        account: key.account.clone(),
        cluster: config.cluster.clone(),
        host: String::new(),
        partition: key.partition.clone(),
        parent: own.parent.clone(),
        description: account.map_or_else(root_text, |account| account.description.clone()),
        organization: account.map_or_else(|| ROOT.to_owned(), |account| account.organization.clone()),
        coordinators: account.map(|account| account.coordinators.join(",")).unwrap_or_default(),
        admin: if key.user == ROOT { AdminLevel::Administrator } else { user.map_or(AdminLevel::None, |u| u.admin) },
        default_account: user.map(|user| user.default_account.clone()).unwrap_or_default(),
        qos: policy.allowed_qos(&key.account, &own).join(","),
        own,
        ..Row::default()
    }
}

fn root_text() -> String {
    "default root account".to_owned()
}

/// Returns the tree of associations from the root account down: each account, its users, then the accounts below.
fn associations(config: &Config, policy: &Policy) -> Vec<Row> {
    let root = Association { id: 1, ..Association::default() };
    let row = |key: AssocKey, own: &Association| associated(config, policy, &key, own);
    let mut rows = Vec::new();
    let own = policy.associations.get(&AssocKey::account(ROOT));
    rows.push(row(AssocKey::account(ROOT), own.unwrap_or(&root)));
    if !policy.associations.contains_key(&AssocKey::user(ROOT, ROOT)) {
        rows.push(row(AssocKey::user(ROOT, ROOT), &root));
    }
    below(config, policy, ROOT, 0, &mut rows);
    rows
}

fn below(config: &Config, policy: &Policy, account: &str, depth: usize, rows: &mut Vec<Row>) {
    if depth > policy.accounts.len() {
        return;
    }
    let users = policy.associations.iter().filter(|(key, _)| key.account == account && !key.user.is_empty());
    rows.extend(users.map(|(key, own)| associated(config, policy, key, own)));
    let children = policy.associations.iter().filter(|(key, own)| key.user.is_empty() && own.parent == account);
    for (key, own) in children {
        rows.push(associated(config, policy, key, own));
        below(config, policy, &key.account, depth + 1, rows);
    }
}

/// Returns one row for each user, or with associations one for each of the user's associations.
fn users(wanted: &Wanted, config: &Config, policy: &Policy) -> Vec<Row> {
    let plain = |name: &str, default_account: &str, admin: AdminLevel| {
        let coordinated = policy.accounts.iter().filter(|(_, a)| a.coordinators.iter().any(|c| c == name));
        Row {
            name: name.to_owned(),
            user: name.to_owned(),
            account: default_account.to_owned(),
            default_account: default_account.to_owned(),
            admin,
            coordinators: coordinated.map(|(account, _)| account.as_str()).collect::<Vec<_>>().join(","),
            cluster: config.cluster.clone(),
            ..Row::default()
        }
    };
    let mut all: Vec<Row> =
        policy.users.iter().map(|(name, user)| plain(name, &user.default_account, user.admin)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if !wanted.associations && wanted.accounts.is_empty() && !wants_association(wanted) {
        return all;
    }
    let of_user = |row: Row| -> Vec<Row> {
        let own = policy.associations.iter().filter(|(key, _)| key.user == row.name);
        let mut rows: Vec<Row> = own
            .map(|(key, own)| Row {
                coordinators: row.coordinators.clone(),
                admin: row.admin,
                ..associated(config, policy, key, own)
            })
            .collect();
        if rows.is_empty() {
            rows.push(row);
        }
        rows
    };
    all.into_iter().flat_map(of_user).collect()
}

/// Returns whether the format names fields that only associations have.
fn wants_association(wanted: &Wanted) -> bool {
    let plain = ["user", "defaulta", "def", "admin", "coord", "name"];
    wanted.format.iter().any(|field| {
        let field = field.to_ascii_lowercase();
        let name = field.split('%').next().unwrap_or_default();
        !plain.iter().any(|plain| name.starts_with(plain) || plain.starts_with(name))
    })
}

fn accounts(wanted: &Wanted, config: &Config, policy: &Policy) -> Vec<Row> {
    let fallback = if policy.accounts.is_empty() { config.default_account.as_str() } else { ROOT };
    let text = if policy.accounts.is_empty() { format!("default {fallback} account") } else { root_text() };
    let plain = |name: &str, description: String, organization: String, coordinators: String| Row {
        name: name.to_owned(),
        account: name.to_owned(),
        description,
        organization,
        coordinators,
        cluster: config.cluster.clone(),
        qos: config.default_qos.clone(),
        ..Row::default()
    };
    let mut all: Vec<Row> = policy
        .accounts
        .iter()
        .map(|(name, a)| plain(name, a.description.clone(), a.organization.clone(), a.coordinators.join(",")))
        .collect();
    if !policy.accounts.contains_key(fallback) {
        all.push(plain(fallback, text, fallback.to_owned(), String::new()));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if !wanted.associations {
        return all;
    }
    let of_account = |row: Row| -> Vec<Row> {
        let own = policy.associations.iter().filter(|(key, _)| key.account == row.name);
        let rows: Vec<Row> = own.map(|(key, own)| associated(config, policy, key, own)).collect();
        let named = |mut other: Row| {
            other.name.clone_from(&row.name);
            other
        };
        if rows.is_empty() { vec![row.clone()] } else { rows.into_iter().map(named).collect() }
    };
    all.into_iter().flat_map(of_account).collect()
}

fn levels(policy: &Policy, config: &Config) -> Vec<Row> {
    let row = |name: &str, qos: &Qos| Row {
        name: name.to_owned(),
        own: Association { limits: qos.limits.clone(), ..Association::default() },
        level: qos.clone(),
        ..Row::default()
    };
    let always = if policy.qos.is_empty() { config.default_qos.as_str() } else { NORMAL };
    let normal = Qos { id: 1, description: format!("{always} QOS default"), ..Qos::default() };
    let first = (!policy.qos.contains_key(always)).then(|| row(always, &normal));
    let mut set_up: Vec<Row> = policy.qos.iter().map(|(name, qos)| row(name, qos)).collect();
    set_up.sort_by_key(|row| row.level.id);
    first.into_iter().chain(set_up).collect()
}
