//! Accounts, users, QOS and trackable resources as rows of a listing, made of the accounting policy.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::gres;
use squall_model::policy::{AdminLevel, AssocKey, Association, NORMAL, Policy, Qos, ROOT, Tres};

use crate::columns::records::{Row, TRES};

/// Adds the user root, an administrator, and its association, which exist by default.
pub fn with_root(mut policy: Policy) -> Policy {
    policy.name_root();
    policy
        .associations
        .entry(AssocKey::user(ROOT, ROOT))
        .or_insert_with(|| Association { id: 1, ..Association::default() });
    policy
}

/// Adds the association of the user root, unless the controller hides that user from the caller (`PrivateData`).
pub fn with_root_if_shown(policy: Policy) -> Policy {
    if policy.users.contains_key(ROOT) { with_root(policy) } else { policy }
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
pub fn associations(config: &Config, policy: &Policy) -> Vec<Row> {
    let root = Association { id: 1, ..Association::default() };
    let row = |key: AssocKey, own: &Association| associated(config, policy, &key, own);
    let mut rows = Vec::new();
    let own = policy.associations.get(&AssocKey::account(ROOT));
    rows.push(row(AssocKey::account(ROOT), own.unwrap_or(&root)));
    if policy.users.contains_key(ROOT) && !policy.associations.contains_key(&AssocKey::user(ROOT, ROOT)) {
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
pub fn users(with_associations: bool, config: &Config, policy: &Policy) -> Vec<Row> {
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
    if !with_associations {
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

/// Returns one row for each account, or with associations one for each of the account's associations.
pub fn accounts(with_associations: bool, config: &Config, policy: &Policy) -> Vec<Row> {
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
    if !with_associations {
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

/// Returns one row for each QOS.
pub fn levels(policy: &Policy, config: &Config) -> Vec<Row> {
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

/// Returns one row for each resource that is accounted for.
pub fn resources(config: &Config) -> Vec<Row> {
    let gpus = gres_types(config).contains("gpu").then_some(Tres::Gpu.name());
    TRES.iter().copied().chain(gpus).map(|name| Row { name: name.to_owned(), ..Row::default() }).collect()
}

/// Returns the row of the cluster, of which the controller runs on `host`.
pub fn cluster(config: &Config, policy: &Policy, host: String) -> Row {
    let own = policy.associations.get(&AssocKey::account(ROOT)).cloned().unwrap_or_default();
    let set = !own.qos.is_empty() || own.no_qos == Some(true);
    Row {
        name: config.cluster.clone(),
        cluster: config.cluster.clone(),
        host,
        qos: if set { own.qos.join(",") } else { config.default_qos.clone() },
        own,
        ..Row::default()
    }
}

/// Returns the names of the generic resources that nodes have.
pub fn gres_types(config: &Config) -> BTreeSet<String> {
    let of_nodes = config.nodes.iter().filter_map(|node| gres::parse(&node.gres)).flatten().map(|count| count.name);
    of_nodes.chain(config.gres.iter().map(|line| line.name.clone())).collect()
}
