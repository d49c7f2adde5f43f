//! Report on usage by accounts, users and workload keys.

use std::collections::BTreeMap;

use squall_model::policy::{Policy, ROOT};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::AccountingRow;

use super::utilization::{nodes, reported};
use super::{ReportQuery, held, ran_s, rows};
use crate::command::listing::call::{Call, Fail};
use squall_text::format::sheet::Column;

/// Property by which usage is summed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Accounts are listed, with the usage of all accounts below them, and their users.
    Account,
    /// Accounts are listed, with the usage of all accounts below them, and their QOS.
    Qos,
    /// Users are listed, each with the accounts used.
    User,
    /// Users are listed, each with the workload keys used.
    UserOfWckey,
    /// Workload keys are listed, each with its users.
    Wckey,
    /// The users with the highest usage are listed.
    Top,
}

/// Usage of one user in one account, as a line of the report. An empty user: the whole account.
struct UsageLine {
    cluster: String,
    /// Name of the account or workload key.
    account: String,
    /// Name of the QOS. Empty: the line is not about one.
    qos: String,
    /// The account as printed: with `tree`, indented by a blank for each account above it.
    shown: String,
    user: String,
    tres: &'static str,
    amount: String,
    energy: String,
}

type C = Column<UsageLine>;

static COLUMNS: &[C] = &[
    C::new("Cluster", 9, |u| u.cluster.clone()),
    C::new("Account", 15, |u| u.shown.clone()),
    C::new("Login", 9, |u| u.user.clone()),
    C::titled("Proper", "Proper Name", 15, |u| u.user.clone()),
    C::titled("TresName", "TRES Name", 14, |u| u.tres.to_owned()),
    C::new("Used", 8, |u| u.amount.clone()),
    C::new("Energy", 8, |u| u.energy.clone()),
    C::new("WCKey", 15, |u| u.account.clone()),
    C::titled("Accounts", "Account", 15, |u| u.shown.clone()),
    // Fields of other reports, which Slurm takes here and leaves empty: an example of sreport(1) names TresCount.
    C::titled("TresCount", "TRES Count", 10, |_| String::new()),
    C::titled("Count", "TRES Count", 10, |_| String::new()),
    C::titled("CpuCount", "TRES Count", 10, |_| String::new()),
    C::new("Allocated", 12, |_| String::new()),
    C::new("Down", 10, |_| String::new()),
    C::new("Idle", 12, |_| String::new()),
    C::titled("Overcommitted", "Over Comm", 9, |_| String::new()),
    C::new("Planned", 9, |_| String::new()),
    C::titled("Reserved", "Planned", 9, |_| String::new()),
    C::titled("PlannedDown", "PLND Down", 10, |_| String::new()),
    C::titled("PLNDDown", "PLND Down", 10, |_| String::new()),
    C::new("Reported", 12, |_| String::new()),
    C::new("Partition", 15, |_| String::new()),
    C::new("QOS", 12, |u| u.qos.clone()),
    C::titled("QOSID", "QOS ID", 8, |_| String::new()),
];

type Key = (String, String);

/// Prints the report on usage.
pub(super) fn usage(call: &mut Call<'_>, asked: &mut ReportQuery, by: By) -> Result<(), Fail> {
    let rows = rows(call, asked)?;
    let policy = match call.controller.ask(&Request::Policy) {
        Ok(Answer::Policy(policy)) => *policy,
        // The front of a cluster divided into cells has no policy: each cell has its own.
        _ => Policy::default(),
    };
    let most = count(call, asked)?;
    let wanted = asked.list("accounts");
    let within = |account: &str| {
        let above = || policy.above(account).any(|(name, _)| wanted.iter().any(|w| w == name));
        wanted.is_empty() || wanted.iter().any(|w| w == account) || above()
    };
    let span = (asked.from, asked.until(call.now));
    // Percentages refer to all resources of the cluster's nodes.
    let there = if asked.unit.percent { nodes(call)?.1 } else { Vec::new() };
    let totals: Vec<u64> = asked.tres.iter().map(|tres| reported(&there, tres, span)).collect();
    let mut sums: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| by == By::UserOfWckey || by == By::Wckey || within(&row.account)) {
        let seconds = ran_s(row, span);
        let amounts: Vec<u64> = asked.tres.iter().map(|tres| held(row, tres) * seconds).collect();
        for key in keys(by, row, &policy, asked.has("group")) {
            add(sums.entry(key).or_insert_with(|| vec![0; amounts.len()]), &amounts);
        }
    }
    sums.retain(|_, amounts| amounts.iter().any(|amount| *amount > 0));
    let mut all: Vec<(Key, Vec<u64>)> = sums.into_iter().collect();
    match by {
        By::Account | By::Qos => {
            all.retain(|((account, _), _)| within(account));
            all.sort_by_key(|((account, user), _)| (lineage(&policy, account), user.clone()));
        }
        By::Top if !asked.by_name => all.sort_by_key(|(_, amounts)| std::cmp::Reverse(amounts[0])),
        _ => {}
    }
    if by == By::Top {
        all.truncate(most.unwrap_or(usize::MAX));
    }
    print(call, asked, (by, most), &policy, &all, &totals)
}

/// Returns the number of users that `topcount=` asks for, by default 10. None: all users, for a negative number.
fn count(call: &mut Call<'_>, asked: &ReportQuery) -> Result<Option<usize>, Fail> {
    match asked.conditions.iter().rev().find(|(key, _)| *key == "topcount") {
        None => Ok(Some(10)),
        Some((_, text)) => match text.parse::<i64>() {
            Ok(count) => Ok(usize::try_from(count).ok()),
            Err(_) => call.fail(&format!("Invalid value for TopCount ({text})")),
        },
    }
}

fn add(to: &mut [u64], amounts: &[u64]) {
    to.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
}

/// Returns the keys (such as account and user) under which an attempt's usage is summed.
fn keys(by: By, row: &AccountingRow, policy: &Policy, group: bool) -> Vec<Key> {
    let (account, user) = (row.account.clone(), row.owner.user.clone());
    let wckey = row.spec.wckey.clone();
    match by {
        By::Account | By::Qos => {
            // In Slurm the lines of accounts have no sum over their QOS.
            let each = if by == By::Qos { row.qos.clone() } else { user };
            let of = |name: &str| (name.to_owned(), if by == By::Qos { each.clone() } else { String::new() });
            let mut all = vec![(account.clone(), each.clone())];
            all.extend((by == By::Account).then(|| of(&account)));
            let above = policy.above(&account).map(|(name, _)| name.to_owned());
            let above = above.chain([ROOT.to_owned()]).filter(|name| *name != account);
            let mut above: Vec<String> = above.collect();
            above.dedup();
            all.extend(above.iter().map(|name| of(name)));
            all
        }
        By::Top if group => vec![(user, String::new())],
        By::User | By::Top => vec![(user, account)],
        By::UserOfWckey => wckey.map(|key| vec![(user, key)]).unwrap_or_default(),
        By::Wckey => wckey.map(|key| vec![(key.clone(), user), (key, String::new())]).unwrap_or_default(),
    }
}

/// Returns the path of accounts from the root down to `account`.
fn lineage(policy: &Policy, account: &str) -> Vec<String> {
    let mut names: Vec<String> = policy.above(account).map(|(name, _)| name.to_owned()).collect();
    if names.is_empty() {
        names.push(account.to_owned());
    }
    if names.last().is_none_or(|name| name != ROOT) {
        names.push(ROOT.to_owned());
    }
    names.reverse();
    names
}

fn print(
    call: &mut Call<'_>,
    asked: &mut ReportQuery,
    (by, most): (By, Option<usize>),
    policy: &Policy,
    all: &[(Key, Vec<u64>)],
    totals: &[u64],
) -> Result<(), Fail> {
    let first = all.iter().flat_map(|(_, amounts)| amounts).copied().max().unwrap_or(0);
    let usual = match (by, asked.tres_text.is_some()) {
        (By::Account, true) => "Cluster,Account,Login,Proper,TresName,Used",
        (By::Account, false) => "Cluster,Account,Login,Proper,Used,Energy",
        (By::Qos, true) => "Cluster,Account,QOS,TresName,Used",
        (By::Qos, false) => "Cluster,Account,QOS,Used,Energy",
        (By::User | By::Top, true) => "Cluster,Login,Proper,Account,TresName,Used",
        (By::User | By::Top, false) => "Cluster,Login,Proper,Account,Used,Energy",
        (By::UserOfWckey, true) => "Cluster,Login,Proper,WCKey,TresName,Used",
        (By::UserOfWckey, false) => "Cluster,Login,Proper,WCKey,Used",
        (By::Wckey, true) => "Cluster,WCKey,Login,Proper,TresName,Used",
        (By::Wckey, false) => "Cluster,WCKey,Login,Proper,Used",
    };
    let tree = asked.has("tree") && matches!(by, By::Account | By::Qos);
    let usual = if tree { usual.replace("Account", "Account%-20") } else { usual.to_owned() };
    let mut sheet = asked.sheet(call, &usual, COLUMNS)?;
    sheet.widen("Used", asked.unit.width(first));
    sheet.widen("Energy", asked.unit.width(0));
    let title = match by {
        By::Account => "Cluster/Account/User Utilization".to_owned(),
        By::Qos => "Cluster/Account/QOS Utilization".to_owned(),
        By::User => "Cluster/User/Account Utilization".to_owned(),
        By::UserOfWckey => "Cluster/User/WCKey Utilization".to_owned(),
        By::Wckey => "Cluster/WCKey/User Utilization".to_owned(),
        By::Top => most.map_or_else(|| "Top ALL Users".to_owned(), |most| format!("Top {most} Users")),
    };
    let depth = |account: &str| lineage(policy, account).len();
    let least = all.iter().filter(|_| tree).map(|((account, _), _)| depth(account)).min().unwrap_or(0);
    let mut lines = Vec::new();
    for ((first, second), amounts) in all {
        let by_account = matches!(by, By::Account | By::Qos | By::Wckey);
        let (account, user) = if by_account { (first, second) } else { (second, first) };
        let (user, qos) = if by == By::Qos { ("", second.as_str()) } else { (user.as_str(), "") };
        let indent = if tree { depth(account) - least + usize::from(!user.is_empty()) } else { 0 };
        let shown = format!("{}{account}", " ".repeat(indent));
        for ((tres, amount), total) in asked.tres.iter().zip(amounts).zip(totals) {
            lines.push(UsageLine {
                cluster: asked.cluster.to_string(),
                account: account.clone(),
                shown: shown.clone(),
                user: user.to_owned(),
                qos: qos.to_owned(),
                tres,
                amount: asked.unit.show(*amount, *total),
                energy: asked.unit.show(0, 0),
            });
        }
    }
    asked.head(call, &title, true, &[asked.usage_in()]);
    let text = sheet.lines(asked.header, &asked.style, &lines);
    call.print(&text);
    Ok(())
}
