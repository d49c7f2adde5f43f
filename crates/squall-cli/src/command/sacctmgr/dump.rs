//! sacctmgr dump and load: all accounts as text, one on each line, in Slurm's format.

use std::collections::BTreeSet;
use std::fmt::Write;

use squall_model::duration::format_limit;
use squall_model::policy::{Account, AdminLevel, AssocKey, Association, Counts, Policy, PolicyChange, ROOT, User};

use super::change;
use super::policy;
use crate::command::listing::call::{Call, Fail};
use squall_text::columns::entities::with_root_if_shown;
use squall_text::columns::records::is_timed;
use squall_text::limits::{self, LimitKind};
use squall_text::options::flag::Arguments;
use squall_text::verbs::accounts::Draft;
use squall_text::verbs::setting::{Setting, Wrong};

const HEAD: &str = "\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:FairShare=399:MaxWallDuration=40:Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:FairShare=1:MaxWallDuration=1:Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# Parent - 'test'
# User - 'adam':MaxTRESPerJob=node=2:MaxJobs=3:FairShare=1:MaxWallDuration=1:AdminLevel='Operator':Coordinator='test'
";

/// Runs `sacctmgr dump`: writes all accounts to a file, by default `./CLUSTER.cfg`.
pub(super) fn dump(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let settings: Vec<Setting> = words.iter().map(|word| Setting::of(word)).collect();
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let named = settings.iter().find(|s| s.is("name", 1) || s.is("clusters", 1)).map(|s| s.value.clone());
    if let Some(other) = named.filter(|name| **name != *cluster) {
        call.say(&format!(" The cluster here is '{cluster}', not '{other}'"));
        return Err(Fail(1));
    }
    let file =
        settings.iter().find(|s| s.is("file", 1)).map_or_else(|| format!("./{cluster}.cfg"), |s| s.value.clone());
    let text = text(&cluster, &with_root_if_shown(policy(call)?));
    if let Err(e) = std::fs::write(&file, text) {
        call.say(&format!("Can't open {file} for writing: {e}"));
        return Err(Fail(1));
    }
    call.print(&format!("sacctmgr: Configuration information has been written to {file}\n"));
    Ok(())
}

fn text(cluster: &str, policy: &Policy) -> String {
    let mut text = HEAD.to_owned();
    let root = policy.associations.get(&AssocKey::account(ROOT)).cloned().unwrap_or_default();
    let _ = writeln!(text, "Cluster - '{cluster}'{}", options(&root));
    below(policy, ROOT, 0, &mut text);
    text
}

fn below(policy: &Policy, account: &str, depth: usize, text: &mut String) {
    let users: Vec<_> =
        policy.associations.iter().filter(|(k, _)| k.account == account && !k.user.is_empty()).collect();
    let children: Vec<_> =
        policy.associations.iter().filter(|(k, own)| k.user.is_empty() && own.parent == account).collect();
    if depth > policy.accounts.len() || (users.is_empty() && children.is_empty()) {
        return;
    }
    let _ = writeln!(text, "Parent - '{account}'");
    for (key, own) in users {
        let user = policy.users.get(&key.user).cloned().unwrap_or_default();
        let admin =
            if user.admin == AdminLevel::None { String::new() } else { format!(":AdminLevel='{:?}'", user.admin) };
        let coordinates = policy.accounts.get(account).is_some_and(|a| a.coordinators.contains(&key.user));
        let coordinates = if coordinates { format!(":Coordinator='{account}'") } else { String::new() };
        let partition =
            if key.partition.is_empty() { String::new() } else { format!(":Partition='{}'", key.partition) };
        let default = &user.default_account;
        let options = options(own);
        let _ =
            writeln!(text, "User - '{}'{partition}{coordinates}{admin}:DefaultAccount='{default}'{options}", key.user);
    }
    for (key, own) in &children {
        let Account { description, organization, .. } = policy.accounts.get(&key.account).cloned().unwrap_or_default();
        let options = options(own);
        let _ = writeln!(
            text,
            "Account - '{}':Description='{description}':Organization='{organization}'{options}",
            key.account
        );
    }
    for (key, _) in children {
        below(policy, &key.account, depth + 1, text);
    }
}

/// Formats an association's settings for a dump: `:Fairshare=1:GrpJobs=3`.
pub(super) fn options(own: &Association) -> String {
    let mut text = match own.shares {
        Some(shares) => format!(":Fairshare={shares}"),
        None => ":Fairshare=parent".to_owned(),
    };
    for (limit, value) in &own.limits {
        let Some(row) = limits::dumped(*limit) else { continue };
        let value = match (row.what, limit.tres(), limit.counts()) {
            // The quotes are needed: colons separate the options.
            (_, _, Counts::Time) => format!("'{}'", format_limit(Some(*value))),
            (LimitKind::Each(scope), Some(tres), _) => {
                format!("{}={}", tres.name(), if is_timed(scope) { value / 60 } else { *value })
            }
            _ => value.to_string(),
        };
        let _ = write!(text, ":{}={value}", row.name);
    }
    if let Some(priority) = own.priority {
        let _ = write!(text, ":Priority={priority}");
    }
    if !own.default_qos.is_empty() {
        let _ = write!(text, ":DefaultQOS='{}'", own.default_qos);
    }
    if !own.qos.is_empty() || own.no_qos == Some(true) {
        let _ = write!(text, ":QOS='{}'", own.qos.join(","));
    }
    text
}

/// Runs `sacctmgr load`: adds the records of a dump that don't exist yet.
pub(super) fn load(call: &mut Call<'_>, given: &Arguments, words: &[String]) -> Result<(), Fail> {
    let settings: Vec<Setting> = words.iter().map(|word| Setting::of(word)).collect();
    let Some(file) = settings.iter().find(|s| s.is("file", 1) || s.is("name", 1)).map(|s| s.value.clone()) else {
        call.say("No filename given to load");
        return Err(Fail(1));
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) => {
            call.say(&format!("Unable to read {file}: {e}"));
            return Err(Fail(1));
        }
    };
    let mut draft = change::draft(call)?;
    let (mut parent, mut accounts, mut users) = (ROOT.to_owned(), String::new(), String::new());
    let mut problems = Vec::new();
    for (at, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let found = load_line(&mut draft, line, &mut parent, (&mut accounts, &mut users));
        problems.extend(found.into_iter().map(|problem| format!("{file}:{at}: {}", problem.trim_start())));
    }
    problems.extend(unknown_levels(&draft));
    if !problems.is_empty() {
        for problem in &problems {
            call.say(problem);
        }
        call.say("Nothing was loaded: mend this and load the file again");
        return Err(Fail(1));
    }
    if draft.changes.is_empty() {
        call.print(" Nothing new added.\n");
        return Ok(());
    }
    for (title, list) in [("Accounts", accounts), ("Users", users)] {
        if !list.is_empty() {
            call.print(&format!(" {title}\n{list}"));
        }
    }
    change::commit(draft, call, given)
}

/// Returns a message about the QOS that the loaded associations name and that do not exist. None: there are none.
fn unknown_levels(draft: &Draft) -> Option<String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for change in &draft.changes {
        if let PolicyChange::Association(_, Some(own)) = change {
            names.extend(draft.unknown_levels(own));
        }
    }
    let names = names.into_iter().collect::<Vec<_>>().join(",");
    (!names.is_empty()).then(|| {
        format!("QOS that are named and do not exist: {names}; a dump has none, so first: sacctmgr add qos {names}")
    })
}

/// Adds what a line names to the draft. Returns what is wrong with it.
fn load_line(
    draft: &mut Draft,
    line: &str,
    parent: &mut String,
    (accounts, users): (&mut String, &mut String),
) -> Vec<String> {
    let Some((kind, rest)) = line.split_once(" - ") else {
        return vec!["`KIND - 'NAME':OPTION=VALUE` is needed".to_owned()];
    };
    let mut problems = Vec::new();
    let mut options = split(rest).into_iter();
    let name = options.next().unwrap_or_default().trim_matches(['\'', '"']).to_owned();
    let (mut own, mut account, mut user) = (Association::default(), Account::default(), User::default());
    let (mut partition, mut coordinates) = (String::new(), false);
    for option in options {
        let setting = Setting::of(&option);
        if setting.is("partition", 4) {
            partition = setting.value;
        } else if setting.is("coordinator", 2) {
            coordinates = setting.list().contains(parent);
        } else {
            let mut done = setting.change_account(&mut account);
            if done == Err(Wrong::Key) {
                done = setting.change_user(&mut user);
            }
            if done == Err(Wrong::Key) {
                done = setting.change_inherited(&mut own, (&draft.policy, parent));
            }
            // A dump has a list of QOS only where it isn't inherited.
            if setting.is("qoslevel", 1) && own.qos.is_empty() {
                own.no_qos = Some(true);
            }
            problems.extend(match done {
                Ok(()) => None,
                Err(Wrong::Key) => Some(format!("unknown option `{option}`")),
                Err(Wrong::Value(problem) | Wrong::NotDone(problem)) => Some(problem),
            });
        }
    }
    match kind.trim() {
        "Cluster" => {}
        "Parent" => *parent = name,
        "Account" => {
            own.parent.clone_from(parent);
            match draft.add_account(&name, &account, &own) {
                Ok(added) if added.record => _ = writeln!(accounts, "  {name}"),
                Ok(_) => {}
                Err(missing) => problems.push(missing.to_string()),
            }
        }
        "User" => {
            let key = AssocKey { partition, ..AssocKey::user(parent, &name) };
            match draft.add_user(key, &user, &own) {
                Ok(added) if added.record => _ = writeln!(users, "  {name}"),
                Ok(_) => {}
                Err(missing) => problems.push(missing.to_string()),
            }
            // The account root has no record, and so no coordinators.
            let coordinates = coordinates && draft.policy.accounts.contains_key(parent);
            if coordinates && let Err(missing) = draft.coordinate(parent, &[name], true) {
                problems.push(missing.to_string());
            }
        }
        other => problems.push(format!("`{other}`: Cluster, Parent, Account or User is meant")),
    }
    problems
}

/// Splits at colons outside quotes.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    for c in text.chars() {
        quoted ^= c == '\'';
        match parts.last_mut() {
            Some(last) if c != ':' || quoted => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}
