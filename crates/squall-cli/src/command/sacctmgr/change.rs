//! sacctmgr add, modify, delete: accounts, users and QOS are read, changed here and sent back. The controller refuses
//! the change if they were changed in between.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::policy::{Account, AdminLevel, AssocKey, Association, Policy, PolicyChange, Qos, ROOT, User};
use squall_model::wire::client::{Answer, Refusal, Request};

use squall_text::columns::records::{self, starts};

use super::{job, policy};
use crate::command::listing::call::{Call, Fail};
use squall_client::{ClientError, unexpected};
use squall_text::columns::records::Entity;
use squall_text::options::flag::Arguments;
use squall_text::refusal;
use squall_text::verbs::accounts::Draft;
use squall_text::verbs::setting::{Setting, Wrong};

/// Reads the accounting policy from the controller, as a draft without changes.
pub(super) fn draft(call: &mut Call<'_>) -> Result<Draft, Fail> {
    Ok(Draft::of(policy(call)?))
}

/// Sends all changes of a draft, after the user has confirmed them.
pub(super) fn commit(draft: Draft, call: &mut Call<'_>, given: &Arguments) -> Result<(), Fail> {
    if !given.has("immediate") && !agreed(call) {
        call.print(" Changes Discarded\n");
        return Ok(());
    }
    let request = Request::ChangePolicy { version: draft.policy.version, changes: draft.finish() };
    let problem = match call.controller.ask(&request) {
        Ok(Answer::Done) => return Ok(()),
        Ok(_) => unexpected(),
        Err(e) => e,
    };
    let text = match &problem {
        ClientError::Refused(Refusal::WrongState(why)) => why.clone(),
        ClientError::Refused(Refusal::AccessDenied) => {
            "Access/permission denied: only the cluster's owner, root, administrators and coordinators may".into()
        }
        other => {
            let detail = if let ClientError::Refused(refused) = other { refusal::detail(refused) } else { None };
            let text = other.to_string();
            detail.map_or(text.clone(), |detail| format!("{text}: {detail}"))
        }
    };
    call.say(&format!(" Error with request: {text}"));
    Err(Fail(1))
}

/// Asks the user to confirm.
pub(super) fn agreed(call: &mut Call<'_>) -> bool {
    call.print("Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok() && line.trim_start().starts_with(['y', 'Y'])
}

/// Splits a command into entity, conditions (after `where` or before any keyword) and settings (after `set`), in either
/// order.
fn parts<'a>(
    call: &mut Call<'_>,
    verb: &str,
    words: &'a [String],
) -> Result<(&'a str, Vec<Setting>, Vec<Setting>), Fail> {
    let Some((word, rest)) = words.split_first() else {
        call.say(&format!(
            "No valid entity in {verb} command\nInput line must include \"Account\", \"User\" or \"QOS\""
        ));
        return Err(Fail(1));
    };
    let (mut conditions, mut settings, mut sets) = (Vec::new(), Vec::new(), false);
    for part in rest {
        match part.to_ascii_lowercase().as_str() {
            "where" => sets = false,
            "set" => sets = true,
            _ if sets => settings.push(Setting::of(part)),
            _ => conditions.push(Setting::of(part)),
        }
    }
    Ok((word.as_str(), conditions, settings))
}

fn kind(call: &mut Call<'_>, verb: &str, word: &str) -> Result<&'static Entity, Fail> {
    if let Some(entity) = records::find(word).filter(|e| ["account", "user", "qos", "cluster"].contains(&e.name)) {
        return Ok(entity);
    }
    refuse(
        call,
        &format!("No valid entity in {verb} command\nInput line must include \"Account\", \"User\" or \"QOS\""),
    )
}

pub(super) fn refuse<T>(call: &mut Call<'_>, text: &str) -> Result<T, Fail> {
    call.say(text);
    Err(Fail(1))
}

/// Fails with the reason why a setting is not applied, if it is not.
fn applied(call: &mut Call<'_>, setting: &Setting, done: Result<(), Wrong>) -> Result<(), Fail> {
    match done {
        Ok(()) => Ok(()),
        Err(Wrong::Key) => unknown(call, setting),
        Err(Wrong::Value(problem) | Wrong::NotDone(problem)) => refuse(call, &problem),
    }
}

fn unknown<T>(call: &mut Call<'_>, setting: &Setting) -> Result<T, Fail> {
    refuse(call, &format!(" Unknown option: {}\n Use keyword 'where' to modify condition", setting.text))
}

fn nothing_new(call: &mut Call<'_>) -> Result<(), Fail> {
    call.print(" Nothing new added.\n");
    Err(Fail(1))
}

/// Names in a command, by kind of entity: the records that the command applies to.
#[derive(Default)]
struct Targets {
    names: Vec<String>,
    accounts: Vec<String>,
    users: Vec<String>,
    partitions: Vec<String>,
    parents: Vec<String>,
}

impl Targets {
    /// Takes the names out of a setting that names accounts, users and so on. Returns false if the setting is of
    /// another kind.
    fn take(&mut self, call: &mut Call<'_>, setting: &Setting) -> Result<bool, Fail> {
        if setting.is("names", 1) {
            self.names.extend(setting.list());
        } else if setting.is("accounts", 3) || setting.is("accts", 4) {
            self.accounts.extend(setting.list());
        } else if setting.is("users", 1) {
            self.users.extend(setting.list());
        } else if setting.is("partitions", 4) {
            self.partitions.extend(setting.list());
        } else if setting.is("parents", 4) {
            self.parents.extend(setting.list());
        } else if setting.is("clusters", 1) {
            let here = call.cluster("sacctmgr: error: Problem with the query")?;
            if let Some(other) = setting.list().iter().find(|name| **name != *here) {
                return refuse(
                    call,
                    &format!(
                        " This cluster '{other}' doesn't exist.\n        Contact your admin to add it to accounting."
                    ),
                );
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Spells the names of accounts and, for QOS, those of levels as they are defined. The `names` are of this kind of
    /// entity.
    fn spell(&mut self, entity: &str, policy: &Policy) {
        let names = self.names.iter_mut();
        match entity {
            "account" => names.for_each(|name| *name = defined(&policy.accounts, name)),
            "qos" => names.for_each(|name| *name = defined(&policy.qos, name)),
            _ => {}
        }
        let accounts = self.accounts.iter_mut().chain(&mut self.parents);
        accounts.for_each(|name| *name = defined(&policy.accounts, name));
    }
}

/// Returns the defined name that equals this one apart from case. Without one: the name in small letters, in which Slurm
/// keeps the names of accounts and QOS.
fn defined<T>(known: &BTreeMap<String, T>, name: &str) -> String {
    let same = || known.keys().find(|other| other.eq_ignore_ascii_case(name)).cloned();
    let exact = known.contains_key(name).then(|| name.to_owned());
    exact.or_else(same).unwrap_or_else(|| name.to_lowercase())
}

/// Runs `sacctmgr add`.
pub(super) fn add(call: &mut Call<'_>, given: &Arguments, words: &[String]) -> Result<(), Fail> {
    let (word, mut settings, after) = parts(call, "add", words)?;
    settings.extend(after);
    if word.len() >= 2 && starts("coordinators", word) {
        return coordinators(call, given, &settings, true);
    }
    match kind(call, "add", word)?.name {
        "account" => add_accounts(call, given, &settings),
        "user" => add_users(call, given, &settings),
        "qos" => add_levels(call, given, &settings),
        _ => {
            let mut names = Targets::default();
            for setting in &settings {
                names.take(call, setting)?;
            }
            let here = call.cluster("sacctmgr: error: Problem with the query")?;
            if let Some(other) = names.names.iter().find(|name| **name != *here) {
                return refuse(call, &format!(" The cluster here is '{here}': '{other}' can't be added to it."));
            }
            call.print(&format!(" This cluster {here} already exists.  Not adding.\n"));
            Err(Fail(1))
        }
    }
}

fn add_accounts(call: &mut Call<'_>, given: &Arguments, settings: &[Setting]) -> Result<(), Fail> {
    let (mut names, mut own, mut account) = (Targets::default(), Association::default(), Account::default());
    let mut limits = String::new();
    for setting in settings {
        if !names.take(call, setting)? && setting.change_account(&mut account).is_err() {
            applied(call, setting, setting.change_association(&mut own))?;
            note(&mut limits, setting);
        }
    }
    names.names.append(&mut names.accounts);
    if names.names.is_empty() {
        return refuse(call, " Need name of account to add.");
    }
    let mut draft = draft(call)?;
    names.spell("account", &draft.policy);
    own.parent = names.parents.pop().unwrap_or_else(|| ROOT.to_owned());
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let (mut fresh, mut associations) = (String::new(), String::new());
    for name in &names.names {
        let added = match draft.add_account(name, &account, &own) {
            Ok(added) => added,
            Err(missing) => return refuse(call, &format!(" {missing}\n        Add it first.")),
        };
        if added.record {
            let _ = writeln!(fresh, "  {name}");
        }
        if added.association {
            let _ = writeln!(associations, "  A = {name:<10.10}  C = {cluster:<10.10}");
        }
    }
    if draft.changes.is_empty() {
        return nothing_new(call);
    }
    if !fresh.is_empty() {
        let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
        call.print(&format!(
            " Adding Account(s)\n{fresh} Settings\n  Description     = {}\n  Organization    = {}\n",
            or(&account.description, "Account Name"),
            or(&account.organization, "Parent/Account Name")
        ));
    }
    call.print(&format!(" Associations\n{associations}"));
    if own.parent != ROOT {
        note_value(&mut limits, "Parent", &own.parent);
    }
    if !limits.is_empty() {
        call.print(&format!(" Settings\n{limits}"));
    }
    commit(draft, call, given)
}

fn add_users(call: &mut Call<'_>, given: &Arguments, settings: &[Setting]) -> Result<(), Fail> {
    let (mut names, mut own, mut user) = (Targets::default(), Association::default(), User::default());
    let mut limits = String::new();
    for setting in settings {
        if of_user(setting) {
            applied(call, setting, setting.change_user(&mut user))?;
        } else if !names.take(call, setting)? {
            applied(call, setting, setting.change_association(&mut own))?;
            note(&mut limits, setting);
        }
    }
    names.names.append(&mut names.users);
    if names.names.is_empty() {
        return refuse(call, " Need name of user to add.");
    }
    if !user.default_account.is_empty() && !names.accounts.contains(&user.default_account) {
        names.accounts.push(user.default_account.clone());
    }
    if names.accounts.is_empty() {
        return refuse(call, " Need name of account to add user to.");
    }
    let mut draft = draft(call)?;
    names.spell("user", &draft.policy);
    user.default_account = defined(&draft.policy.accounts, &user.default_account);
    names.accounts.retain(|account| match draft.account_exists(account) {
        Ok(()) => true,
        Err(missing) => {
            call.say(&format!(" {missing}\n        Contact your admin to add this account."));
            false
        }
    });
    if names.partitions.is_empty() {
        names.partitions.push(String::new());
    }
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let text = enter_users(&mut draft, &names, &mut user, (&own, &cluster));
    if draft.changes.is_empty() {
        return nothing_new(call);
    }
    call.print(&text);
    if !limits.is_empty() {
        call.print(&format!(" Non Default Settings\n{limits}"));
    }
    commit(draft, call, given)
}

/// Adds users to the draft, with an association in each of the accounts. Returns the text to print.
fn enter_users(draft: &mut Draft, names: &Targets, user: &mut User, (own, cluster): (&Association, &str)) -> String {
    let (mut fresh, mut associations) = (String::new(), String::new());
    if let Some(first) = names.accounts.first().filter(|_| user.default_account.is_empty()) {
        user.default_account.clone_from(first);
    }
    for name in &names.names {
        for (account, partition) in names.accounts.iter().flat_map(|a| names.partitions.iter().map(move |p| (a, p))) {
            let key = AssocKey { partition: partition.clone(), ..AssocKey::user(account, name) };
            // because the accounts that do not exist were left out
            let Ok(added) = draft.add_user(key, user, own) else { continue };
            if added.record {
                let _ = writeln!(fresh, "  {name}");
            }
            if added.association {
                let _ = write!(associations, "  U = {name:<9.9} A = {account:<10.10} C = {cluster:<10.10}");
                let partition = if partition.is_empty() { String::new() } else { format!(" P = {partition:<10.10}") };
                let _ = writeln!(associations, "{partition}");
            }
        }
    }
    let mut text = String::new();
    if !fresh.is_empty() {
        let _ = write!(text, " Adding User(s)\n{fresh} Settings =\n  Default Account = {}\n", user.default_account);
        if user.admin != AdminLevel::None {
            let _ = writeln!(text, "  Admin Level     = {:?}", user.admin);
        }
    }
    if !associations.is_empty() {
        let _ = write!(text, " Associations =\n{associations}");
    }
    text
}

fn add_levels(call: &mut Call<'_>, given: &Arguments, settings: &[Setting]) -> Result<(), Fail> {
    let (mut names, mut qos, mut limits) = (Targets::default(), Qos::default(), String::new());
    for setting in settings {
        if setting.is("names", 1) {
            names.take(call, setting)?;
            continue;
        }
        applied(call, setting, setting.change_qos(&mut qos))?;
        if !setting.is("description", 1) {
            note(&mut limits, setting);
        }
    }
    if names.names.is_empty() {
        return refuse(call, " Need name of qos to add.");
    }
    let mut draft = draft(call)?;
    names.spell("qos", &draft.policy);
    let mut fresh = String::new();
    for name in names.names.iter().filter(|name| draft.add_qos(name, &qos)) {
        let _ = writeln!(fresh, "  {name}");
    }
    if draft.changes.is_empty() {
        return nothing_new(call);
    }
    let description = if qos.description.is_empty() { "QOS Name" } else { &qos.description };
    call.print(&format!(" Adding QOS(s)\n{fresh} Settings\n  Description    = {description}\n{limits}"));
    commit(draft, call, given)
}

/// Adds or removes coordinators: users who may change the users of an account.
fn coordinators(call: &mut Call<'_>, given: &Arguments, settings: &[Setting], add: bool) -> Result<(), Fail> {
    let mut names = Targets::default();
    for setting in settings {
        if !names.take(call, setting)? {
            return unknown(call, setting);
        }
    }
    names.names.append(&mut names.users);
    let mut draft = draft(call)?;
    names.spell("coordinator", &draft.policy);
    let mut affected = String::new();
    for account in &names.accounts {
        match draft.coordinate(account, &names.names, add) {
            Ok(true) => _ = writeln!(affected, "  {account}"),
            Ok(false) => {}
            Err(missing) => return refuse(call, &format!(" {missing}")),
        }
    }
    if draft.changes.is_empty() {
        if add {
            return nothing_new(call);
        }
        call.print(" Nothing deleted\n");
        return Err(Fail(1));
    }
    let users: String = names.names.iter().fold(String::new(), |text, user| text + "  " + user + "\n");
    let (doing, whose) = if add { ("Adding", "To Account(s)") } else { ("Removing", "From Account(s)") };
    call.print(&format!(" {doing} Coordinator User(s)\n{users} {whose} and all sub-accounts\n{affected}"));
    commit(draft, call, given)
}

fn note(text: &mut String, setting: &Setting) {
    let key = setting.text.split(['=', '+', '-']).next().unwrap_or_default();
    note_value(text, key, &setting.value);
}

fn note_value(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "  {key:<13} = {value}");
}

/// Runs `sacctmgr modify`.
pub(super) fn modify(call: &mut Call<'_>, given: &Arguments, words: &[String]) -> Result<(), Fail> {
    let (word, conditions, settings) = parts(call, "modify", words)?;
    if !word.is_empty() && starts("jobs", word) {
        return job::modify(call, given, &conditions, &settings);
    }
    let entity = kind(call, "modify", word)?;
    if settings.is_empty() {
        return refuse(call, " You didn't give me anything to set");
    }
    if settings.iter().any(|setting| forgets(setting) && setting.value != "0") {
        return refuse(call, "sacctmgr: error: Raw usage can only be set to 0 (zero)");
    }
    let mut names = Targets::default();
    for condition in &conditions {
        if !names.take(call, condition)? {
            return unknown(call, condition);
        }
    }
    let mut draft = draft(call)?;
    names.spell(entity.name, &draft.policy);
    let (mut own, mut associations) = (String::new(), String::new());
    match entity.name {
        "qos" => modify_levels(call, &mut draft, &names, &settings, &mut own)?,
        "user" => modify_users(call, &mut draft, &names, &settings, (&mut own, &mut associations))?,
        "account" => modify_accounts(call, &mut draft, &names, &settings, (&mut own, &mut associations))?,
        _ => {
            let here = call.cluster("sacctmgr: error: Problem with the query")?;
            let meant = chosen(&names.names, &here);
            // Limits of the whole cluster are those of the root account.
            let root = Targets { names: vec![ROOT.to_owned()], ..Targets::default() };
            if meant {
                modify_accounts(call, &mut draft, &root, &settings, (&mut own, &mut associations))?;
            }
        }
    }
    if draft.changes.is_empty() {
        call.print("  Nothing modified\n");
        return Err(Fail(1));
    }
    let plural = if entity.name == "qos" { "qos".to_owned() } else { format!("{}s", entity.name) };
    if !own.is_empty() {
        call.print(&format!(" Modified {plural}...\n{own}"));
    }
    if !associations.is_empty() {
        let whose = if entity.name == "cluster" { "cluster defaults for" } else { entity.name };
        call.print(&format!(" Modified {whose} associations...\n{associations}"));
    }
    commit(draft, call, given)
}

fn chosen(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|n| n == name)
}

fn modify_levels(
    call: &mut Call<'_>,
    draft: &mut Draft,
    names: &Targets,
    settings: &[Setting],
    text: &mut String,
) -> Result<(), Fail> {
    // The QOS `normal` exists by default: changing it creates a record.
    let always = names.names.iter().any(|n| n == squall_model::policy::NORMAL);
    let mut all = draft.policy.qos.clone();
    if always {
        all.entry(squall_model::policy::NORMAL.to_owned())
            .or_insert_with(|| Qos { description: "Normal QOS default".into(), ..Qos::default() });
    }
    for (name, before) in all.into_iter().filter(|(name, _)| chosen(&names.names, name)) {
        let mut qos = before.clone();
        for setting in settings.iter().filter(|setting| !forgets(setting)) {
            applied(call, setting, setting.change_qos(&mut qos))?;
        }
        let _ = writeln!(text, "  {name}");
        if qos != before || !settings.iter().any(forgets) {
            draft.change(PolicyChange::Qos(name.clone(), Some(qos)));
        }
        if settings.iter().any(forgets) {
            draft.change(PolicyChange::ForgetQos(name));
        }
    }
    Ok(())
}

/// Applies settings to an association, without those for which `others` is true. Returns whether any was applied.
fn change_association(
    call: &mut Call<'_>,
    own: &mut Association,
    inherits: (&Policy, &str),
    settings: &[Setting],
    others: impl Fn(&Setting) -> bool,
) -> Result<bool, Fail> {
    let mut changed = false;
    for setting in settings.iter().filter(|setting| !others(setting)) {
        applied(call, setting, setting.change_inherited(own, inherits))?;
        changed = true;
    }
    Ok(changed)
}

fn forgets(setting: &Setting) -> bool {
    setting.is("rawusage", 4)
}

fn of_user(setting: &Setting) -> bool {
    setting.is("defaultaccount", 8) || setting.is("adminlevel", 2)
}

fn of_account(setting: &Setting) -> bool {
    setting.is("description", 1) || setting.is("organization", 1)
}

fn modify_users(
    call: &mut Call<'_>,
    draft: &mut Draft,
    names: &Targets,
    settings: &[Setting],
    (text, associations): (&mut String, &mut String),
) -> Result<(), Fail> {
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let wanted: Vec<String> = names.names.iter().chain(&names.users).cloned().collect();
    for (name, before) in draft.policy.users.clone().into_iter().filter(|(name, _)| chosen(&wanted, name)) {
        let mut user = before.clone();
        for setting in settings.iter().filter(|s| of_user(s)) {
            applied(call, setting, setting.change_user(&mut user))?;
            if setting.is("defaultaccount", 8) {
                let account = defined(&draft.policy.accounts, &setting.value);
                if !draft.policy.associations.contains_key(&AssocKey::user(&account, &name)) {
                    return refuse(call, &format!(" User '{name}' has no association with account '{account}'"));
                }
                user.default_account = account;
            }
        }
        if settings.iter().any(of_user) {
            let _ = writeln!(text, "  {name}");
            draft.change(PolicyChange::User(name.clone(), Some(user)));
        }
    }
    let users = draft.policy.associations.clone().into_iter().filter(|(key, _)| {
        !key.user.is_empty()
            && chosen(&wanted, &key.user)
            && chosen(&names.accounts, &key.account)
            && chosen(&names.partitions, &key.partition)
    });
    for (key, before) in users {
        let mut own = before;
        let inherits = (&draft.policy, key.account.as_str());
        let changed = change_association(call, &mut own, inherits, settings, |s| of_user(s) || forgets(s))?;
        let forgotten = settings.iter().any(forgets);
        if changed || forgotten {
            let partition = if key.partition.is_empty() { String::new() } else { format!(" P = {}", key.partition) };
            let _ =
                writeln!(associations, "  C = {cluster:<10} A = {:<20} U = {:<9}{partition}", key.account, key.user);
        }
        if forgotten {
            draft.change(PolicyChange::Forget(key.clone()));
        }
        if changed {
            draft.change(PolicyChange::Association(key, Some(own)));
        }
    }
    Ok(())
}

fn modify_accounts(
    call: &mut Call<'_>,
    draft: &mut Draft,
    names: &Targets,
    settings: &[Setting],
    (text, associations): (&mut String, &mut String),
) -> Result<(), Fail> {
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let wanted: Vec<String> = names.names.iter().chain(&names.accounts).cloned().collect();
    for (name, before) in draft.policy.accounts.clone().into_iter().filter(|(name, _)| chosen(&wanted, name)) {
        let mut account = before;
        for setting in settings.iter().filter(|s| of_account(s)) {
            applied(call, setting, setting.change_account(&mut account))?;
        }
        if settings.iter().any(of_account) {
            let _ = writeln!(text, "  {name}");
            draft.change(PolicyChange::Account(name.clone(), Some(account)));
        }
    }
    if wanted.iter().any(|name| name == ROOT) && !draft.policy.associations.contains_key(&AssocKey::account(ROOT)) {
        draft.policy.associations.insert(AssocKey::account(ROOT), Association::default());
    }
    let own_associations = draft.policy.associations.clone().into_iter();
    for (key, before) in own_associations.filter(|(key, _)| key.user.is_empty() && chosen(&wanted, &key.account)) {
        let mut own = before;
        let parent = |s: &Setting| s.is("parents", 3);
        let inherits = (&draft.policy, key.account.as_str());
        let others = |s: &Setting| of_account(s) || forgets(s) || parent(s);
        let mut changed = change_association(call, &mut own, inherits, settings, others)?;
        if key.account == ROOT && own.qos.is_empty() && settings.iter().any(|setting| setting.is("qoslevel", 1)) {
            // The root account has nothing to inherit.
            own.no_qos = Some(true);
        }
        for setting in settings.iter().filter(|s| parent(s)) {
            own.parent = defined(&draft.policy.accounts, &setting.value);
            if let Err(missing) = draft.parent_exists(&own) {
                return refuse(call, &format!(" {missing}\n        Add it first."));
            }
            changed = true;
        }
        let forgotten = settings.iter().any(forgets);
        if changed || forgotten {
            let _ = writeln!(associations, "  C = {cluster:<10} A = {:<20}", key.account);
        }
        if forgotten {
            draft.change(PolicyChange::Forget(key.clone()));
        }
        if changed {
            draft.change(PolicyChange::Association(key, Some(own)));
        }
    }
    Ok(())
}

/// Deletes users, or only their associations where accounts or partitions are named. A user without any association is
/// deleted.
fn delete_users(call: &mut Call<'_>, draft: &mut Draft, names: &Targets, text: &mut String) -> Result<(), Fail> {
    let cluster = call.cluster("sacctmgr: error: Problem with the query")?;
    let wanted: Vec<String> = names.names.iter().chain(&names.users).cloned().collect();
    let whole = names.accounts.is_empty() && names.partitions.is_empty();
    let (mut bare, mut defaults) = (String::new(), String::new());
    for name in draft.policy.users.keys().filter(|name| chosen(&wanted, name)).cloned().collect::<Vec<_>>() {
        let default = draft.policy.users.get(&name).map(|user| user.default_account.clone()).unwrap_or_default();
        let removed = draft.delete_associations(|key| {
            key.user == name && chosen(&names.accounts, &key.account) && chosen(&names.partitions, &key.partition)
        });
        if whole {
            let _ = writeln!(text, "  {name}");
            draft.change(PolicyChange::User(name, None));
            continue;
        }
        for key in &removed {
            let _ = writeln!(text, "  C = {cluster:<10} A = {:<20} U = {:<9}", key.account, key.user);
        }
        let left = |account: Option<&str>| {
            let mut all = draft.policy.associations.keys();
            all.any(|key| key.user == name && account.is_none_or(|account| key.account == account))
        };
        if removed.is_empty() {
            continue;
        }
        if !left(None) {
            let _ = writeln!(bare, "  {name}");
            draft.change(PolicyChange::User(name, None));
        } else if removed.iter().any(|key| key.account == default) && !left(Some(&default)) {
            let _ = writeln!(defaults, "  C = {cluster:<10} A = {default:<20} U = {name:<9}");
        }
    }
    if !defaults.is_empty() {
        call.say(&format!(
            " Error with request: You can not remove the default account of a user\n{defaults} You must change the \
             default account of these users or remove the users completely from the affected clusters to allow these \
             changes.\n Changes Discarded"
        ));
        return Err(Fail(1));
    }
    if !bare.is_empty() {
        let _ = write!(text, " Deleting users (No Associations)...\n{bare}");
    }
    Ok(())
}

/// Runs `sacctmgr delete`.
pub(super) fn delete(call: &mut Call<'_>, given: &Arguments, words: &[String]) -> Result<(), Fail> {
    let (word, conditions, _) = parts(call, "delete", words)?;
    if word.len() >= 2 && starts("coordinators", word) {
        return coordinators(call, given, &conditions, false);
    }
    let entity = kind(call, "delete", word)?;
    let mut names = Targets::default();
    for condition in &conditions {
        if !names.take(call, condition)? {
            return unknown(call, condition);
        }
    }
    if conditions.is_empty() {
        return refuse(call, " No conditions given to remove, not executing.");
    }
    let mut draft = draft(call)?;
    names.spell(entity.name, &draft.policy);
    let mut title = match entity.name {
        "qos" => " Deleting QOS(s)...",
        "user" => " Deleting users...",
        "account" => " Deleting accounts...",
        _ => return refuse(call, " The cluster itself can't be deleted; `squall down` ends it"),
    };
    let mut text = String::new();
    match entity.name {
        "qos" => {
            for name in draft.policy.qos.keys().filter(|name| chosen(&names.names, name)).cloned().collect::<Vec<_>>() {
                let _ = writeln!(text, "  {name}");
                draft.delete_level(&name);
            }
        }
        "user" => {
            if !(names.accounts.is_empty() && names.partitions.is_empty()) {
                title = " Deleting user associations...";
            }
            delete_users(call, &mut draft, &names, &mut text)?;
        }
        _ => {
            let wanted: Vec<String> = names.names.iter().chain(&names.accounts).cloned().collect();
            for name in draft.policy.accounts.keys().filter(|n| chosen(&wanted, n)).cloned().collect::<Vec<_>>() {
                let _ = writeln!(text, "  {name}");
                draft.delete_account(&name);
            }
        }
    }
    if draft.changes.is_empty() {
        call.print(" Nothing deleted\n");
        return Err(Fail(1));
    }
    call.print(&format!("{title}\n{text}"));
    commit(draft, call, given)
}
