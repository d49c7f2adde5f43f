//! Bodies about accounts, users, associations and QOS: their records become changes of the accounting policy. Every field
//! is taken, named in a warning, or refused.

use serde_json::Value;
use squall_model::duration::format_elapsed;
use squall_model::policy::{Account, AdminLevel, AssocKey, Association, PolicyChange, Qos, ROOT, User, Whose};

use super::body::{self, ENDLESS, list, text, warn};
use crate::limits::{self, LimitKind};
use crate::shapes::policy::FLAGS;
use crate::shapes::problem::path;
use crate::shapes::table::Shape;
use crate::shapes::{AnswerKind, Problem, Version, Warning};
use crate::verbs::accounts::{Draft, Missing};
use crate::verbs::setting::{Setting, Wrong};

/// Accounting policy with the changes of a body, and warnings about the body.
#[derive(Debug)]
pub struct Ledger<'a> {
    draft: &'a mut Draft,
    /// Name of the cluster, which records may name.
    cluster: &'a str,
    /// What in the body has no effect.
    pub warnings: Vec<Warning>,
}

type Read = Result<(), Problem>;

/// The version of which a body may have the fields: the ones after it only lack some.
const MOST: Version = Version::V44;
/// Why a user has no default QOS.
const NO_DEFAULT_QOS: &str = "A default QOS is that of an association: set its default.qos";

impl<'a> Ledger<'a> {
    /// Returns a ledger that enters changes into `draft`.
    pub fn new(draft: &'a mut Draft, cluster: &'a str) -> Self {
        Self { draft, cluster, warnings: Vec::new() }
    }

    /// Enters the records of a body: `Accounts`, `Users`, `Associations`, `Qos`, `Wckeys`, `Clusters`, `Tres`, or all of
    /// them (`Config`).
    pub fn enter(&mut self, kind: AnswerKind, given: &Value) -> Read {
        if !given.is_object() {
            return Err(Problem::malformed("", "The body is not an object"));
        }
        let body = body::read(Shape::of(MOST, kind), given, "", &mut self.warnings)?;
        // What a record refers to comes before it.
        let order = [
            AnswerKind::Clusters,
            AnswerKind::Tres,
            AnswerKind::Qos,
            AnswerKind::Accounts,
            AnswerKind::Associations,
            AnswerKind::Users,
            AnswerKind::Wckeys,
        ];
        let mut any = false;
        for kind in order {
            let list = body.get(kind.list()).or_else(|| body.get(kind.name()));
            for (at, record) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
                any = true;
                let place = format!("{}[{at}]", kind.list());
                match kind {
                    AnswerKind::Qos => self.qos(record, &place)?,
                    AnswerKind::Accounts => self.account(record, &place)?,
                    AnswerKind::Associations => self.association(record, &place)?,
                    AnswerKind::Users => self.user(record, &place)?,
                    AnswerKind::Clusters => self.same_cluster(record, "name", &place)?,
                    AnswerKind::Tres => warn(&mut self.warnings, &place, "What is accounted for is fixed"),
                    _ => return Err(Problem::not_done(place, "Workload keys are not kept: a job may have any")),
                }
            }
        }
        if any { Ok(()) } else { Err(Problem::malformed(kind.list(), "The body has no records")) }
    }

    fn same_cluster(&self, record: &Value, field: &str, place: &str) -> Read {
        match text(record, field) {
            Some(name) if !name.is_empty() && name != self.cluster => {
                Err(Problem::not_done(path(place, field), format!("{name}: the cluster here is {}", self.cluster)))
            }
            _ => Ok(()),
        }
    }

    /// Warns of a field that only answers have.
    fn shown_only(&mut self, value: &Value, place: &str) {
        if !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) {
            warn(&mut self.warnings, place, "It is shown, but not set by this request");
        }
    }

    fn account(&mut self, record: &Value, place: &str) -> Read {
        let name = needed(record, "name", place)?;
        let mut account = self.draft.policy.accounts.get(&name).cloned().unwrap_or_default();
        for (field, value) in record.as_object().into_iter().flatten() {
            match field.as_str() {
                "name" => {}
                "description" => value.as_str().unwrap_or_default().clone_into(&mut account.description),
                "organization" => value.as_str().unwrap_or_default().clone_into(&mut account.organization),
                "coordinators" => account.coordinators = names(value),
                _ => self.shown_only(value, &path(place, field)),
            }
        }
        self.draft.add_account(&name, &account, &below_root()).map_err(|missing| not_found(&missing, place))?;
        self.draft.set_account(&name, account);
        Ok(())
    }

    fn user(&mut self, record: &Value, place: &str) -> Read {
        let name = needed(record, "name", place)?;
        let mut user = self.draft.policy.users.get(&name).cloned().unwrap_or_default();
        for (field, value) in record.as_object().into_iter().flatten() {
            let here = path(place, field);
            match field.as_str() {
                "administrator_level" => user.admin = admin(record, field, user.admin, &here)?,
                "default" => {
                    if let Some(account) = text(value, "account").filter(|account| !account.is_empty()) {
                        account.clone_into(&mut user.default_account);
                    }
                    if text(value, "wckey").is_some_and(|key| !key.is_empty()) {
                        warn(&mut self.warnings, &here, "No default workload keys are kept");
                    }
                    if value.get("qos").and_then(Value::as_i64).is_some_and(|id| id != 0) {
                        return Err(Problem::not_done(path(&here, "qos"), NO_DEFAULT_QOS));
                    }
                }
                "coordinators" => {
                    for account in names(value) {
                        let done = self.draft.coordinate(&account, std::slice::from_ref(&name), true);
                        done.map_err(|missing| not_found(&missing, &here))?;
                    }
                }
                "old_name" if value.as_str().is_some_and(|old| !old.is_empty() && old != name) => {
                    return Err(Problem::not_done(here, "Users are not renamed: add the new one, delete the old one"));
                }
                "name" | "old_name" | "flags" => {}
                _ => self.shown_only(value, &here),
            }
        }
        self.draft.set_user(&name, user).map_err(|missing| not_found(&missing, &path(place, "default.account")))
    }

    fn association(&mut self, record: &Value, place: &str) -> Read {
        self.same_cluster(record, "cluster", place)?;
        let part = |name: &str| text(record, name).unwrap_or_default().to_owned();
        let key =
            AssocKey { account: needed(record, "account", place)?, user: part("user"), partition: part("partition") };
        let fresh = if key.user.is_empty() && key.account != ROOT { below_root() } else { Association::default() };
        let mut own = self.draft.policy.associations.get(&key).cloned().unwrap_or(fresh);
        for (field, value) in leaves(record) {
            let here = path(place, &field);
            match field.as_str() {
                "parent_account" if !key.user.is_empty() || value.as_str().is_none_or(str::is_empty) => {}
                "parent_account" => value.as_str().unwrap_or_default().clone_into(&mut own.parent),
                "is_default" if *value == Value::Bool(true) && !key.user.is_empty() => {
                    let user = self.draft.policy.users.get(&key.user).cloned().unwrap_or_default();
                    let user = User { default_account: key.account.clone(), ..user };
                    self.draft.change(PolicyChange::User(key.user.clone(), Some(user)));
                }
                "comment" if value.as_str().is_some_and(|comment| !comment.is_empty()) => {
                    warn(&mut self.warnings, &here, "Associations have no comments");
                }
                "account" | "cluster" | "user" | "partition" | "id" | "lineage" | "is_default" | "flags"
                | "accounting" | "comment" => {}
                field => set(OF_ASSOCIATION, field, value, &here, |setting| setting.change_association(&mut own))?,
            }
        }
        self.set_association(key, own, place)
    }

    fn set_association(&mut self, key: AssocKey, own: Association, place: &str) -> Read {
        if let Some(qos) = self.draft.unknown_levels(&own).next() {
            return Err(Problem::not_found(path(place, "qos"), &format!("QOS {qos}")));
        }
        self.draft.set_association(key, own).map_err(|missing| {
            let field = if matches!(missing, Missing::Parent(_)) { "parent_account" } else { "account" };
            not_found(&missing, &path(place, field))
        })
    }

    fn qos(&mut self, record: &Value, place: &str) -> Read {
        let name = needed(record, "name", place)?;
        let known = self.draft.policy.qos.get(&name).cloned();
        let mut qos = known.clone().unwrap_or_default();
        for (field, value) in leaves(record).into_iter().filter(|(field, _)| !["name", "id"].contains(&field.as_str()))
        {
            set(OF_QOS, &field, value, &path(place, &field), |setting| setting.change_qos(&mut qos))?;
        }
        match known {
            None => _ = self.draft.add_qos(&name, &qos),
            Some(known) if known != qos => self.draft.change(PolicyChange::Qos(name, Some(qos))),
            Some(_) => {}
        }
        Ok(())
    }

    /// Adds accounts with associations: the body of `accounts_association`. Returns their names.
    pub fn add_accounts(&mut self, given: &Value) -> Result<Vec<String>, Problem> {
        let body = body::read(body::shape("openapi_accounts_add_cond_resp"), given, "", &mut self.warnings)?;
        let (wanted, mut own) = self.condition(&body)?;
        let about = |name: &str| body.get("account").and_then(|account| text(account, name)).unwrap_or_default();
        let (description, organization) = (about("description").to_owned(), about("organization").to_owned());
        let mut account = Account { description, organization, coordinators: Vec::new() };
        let accounts = list(wanted, "accounts").unwrap_or_default();
        if accounts.is_empty() {
            return Err(Problem::malformed("association_condition.accounts", "No account is named"));
        }
        if own.parent.is_empty() {
            ROOT.clone_into(&mut own.parent);
        }
        for name in &accounts {
            let known = self.draft.policy.accounts.get(name).map(|known| known.coordinators.clone());
            account.coordinators = known.unwrap_or_default();
            let added = self.draft.add_account(name, &account, &own);
            added.map_err(|missing| not_found(&missing, &path(CONDITION, "association.parent")))?;
            self.draft.set_account(name, account.clone());
            self.set_association(AssocKey::account(name), own.clone(), CONDITION)?;
        }
        Ok(accounts)
    }

    /// Adds users with associations: the body of `users_association`. Returns their names.
    pub fn add_users(&mut self, given: &Value) -> Result<Vec<String>, Problem> {
        let body = body::read(body::shape("openapi_users_add_cond_resp"), given, "", &mut self.warnings)?;
        let (wanted, mut own) = self.condition(&body)?;
        own.parent.clear();
        let of = |name: &str| list(wanted, name).unwrap_or_default();
        let (users, accounts, mut partitions) = (of("users"), of("accounts"), of("partitions"));
        if users.is_empty() || accounts.is_empty() {
            return Err(Problem::malformed(CONDITION, "Users and accounts have to be named"));
        }
        if !of("wckeys").is_empty() {
            warn(&mut self.warnings, CONDITION, "Workload keys are not kept: a job may have any");
        }
        if partitions.is_empty() {
            partitions.push(String::new());
        }
        let about = body.get("user").unwrap_or(&Value::Null);
        if about.get("defaultqos").and_then(Value::as_i64).is_some_and(|id| id != 0) {
            return Err(Problem::not_done("user.defaultqos", NO_DEFAULT_QOS));
        }
        let default = text(about, "defaultaccount").filter(|name| !name.is_empty()).unwrap_or(&accounts[0]).to_owned();
        for name in &users {
            let new = User { default_account: default.clone(), ..User::default() };
            let mut user = self.draft.policy.users.get(name).cloned().unwrap_or(new);
            user.admin = admin(about, "adminlevel", user.admin, "user.adminlevel")?;
            for (account, partition) in accounts.iter().flat_map(|a| partitions.iter().map(move |p| (a, p))) {
                let key = AssocKey { partition: partition.clone(), ..AssocKey::user(account, name) };
                let added = self.draft.add_user(key.clone(), &user, &own);
                added.map_err(|missing| not_found(&missing, &path(CONDITION, "account")))?;
                self.set_association(key, own.clone(), CONDITION)?;
            }
            self.draft.set_user(name, user).map_err(|missing| not_found(&missing, "user.defaultaccount"))?;
        }
        Ok(users)
    }

    /// Returns the condition of a body that adds records, and the association that it describes.
    fn condition<'b>(&self, body: &'b Value) -> Result<(&'b Value, Association), Problem> {
        let Some(wanted) = body.get(CONDITION) else {
            return Err(Problem::malformed(CONDITION, "It is missing"));
        };
        for cluster in list(wanted, "clusters").unwrap_or_default() {
            self.same_cluster(&serde_json::json!({ "name": cluster }), "name", CONDITION)?;
        }
        let mut own = Association::default();
        for (field, value) in wanted.get("association").map(leaves).unwrap_or_default() {
            let here = format!("{CONDITION}.association.{field}");
            match field.as_str() {
                "parent" => value.as_str().unwrap_or_default().clone_into(&mut own.parent),
                field => set(OF_CONDITION, field, value, &here, |setting| setting.change_association(&mut own))?,
            }
        }
        Ok((wanted, own))
    }

    /// Deletes a user. The error: there is no such user.
    pub fn delete_user(&mut self, name: &str) -> Read {
        if !self.draft.policy.users.contains_key(name) {
            return Err(Problem::not_found("name", &format!("user {name}")));
        }
        self.draft.delete_user(name);
        Ok(())
    }

    /// Deletes an account with those below it. Returns the names of all of them. The error: there is no such account.
    pub fn delete_account(&mut self, name: &str) -> Result<Vec<String>, Problem> {
        if !self.draft.policy.accounts.contains_key(name) {
            return Err(Problem::not_found("account_name", &format!("account {name}")));
        }
        Ok(self.draft.delete_account(name))
    }

    /// Deletes a QOS. The error: there is no such QOS.
    pub fn delete_qos(&mut self, name: &str) -> Result<Vec<String>, Problem> {
        if !self.draft.policy.qos.contains_key(name) {
            return Err(Problem::not_found("qos", &format!("QOS {name}")));
        }
        self.draft.delete_level(name);
        Ok(vec![name.to_owned()])
    }

    /// Deletes the associations for which `which` is true. Returns texts about them, as Slurm's.
    pub fn delete_associations(&mut self, which: impl Fn(&AssocKey) -> bool) -> Result<Vec<String>, Problem> {
        let gone = self.draft.delete_associations(which);
        if gone.is_empty() {
            return Err(Problem::not_found("associations", "such an association"));
        }
        for key in gone.iter().filter(|key| !key.user.is_empty()) {
            self.draft.new_default(&key.user);
        }
        let cluster = self.cluster;
        let partition =
            |key: &AssocKey| if key.partition.is_empty() { String::new() } else { format!(" P = {}", key.partition) };
        Ok(gone
            .iter()
            .map(|key| format!("C = {cluster:<10} A = {:<20} U = {:<9}{}", key.account, key.user, partition(key)))
            .collect())
    }
}

const CONDITION: &str = "association_condition";

/// Returns the association of an account that is added without a parent.
fn below_root() -> Association {
    Association { parent: ROOT.to_owned(), ..Association::default() }
}

/// Returns the problem of a missing account, in sacctmgr's words.
fn not_found(missing: &Missing, source: &str) -> Problem {
    Problem { description: missing.to_string(), ..Problem::not_found(source, "") }
}

/// How the value of a field becomes the value of sacctmgr's key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spelling {
    Text,
    /// A list of names.
    Names,
    /// A number; an infinite one is -1. Times are in minutes.
    Number,
    /// A number of seconds, where sacctmgr's key takes minutes.
    Seconds,
    /// Shares, of which two of Slurm's numbers stand for those of the parent account.
    Shares,
    /// A number with a fraction.
    Factor,
    /// Resources: `{"type": "gres", "name": "gpu", "count": 4}`. A negative count clears the limit.
    Resources,
    PreemptMode,
    /// Flags of a QOS: `ADD` and `REMOVE` are followed by those to add or to remove.
    Flags,
}

use Spelling::{Names, Number, Resources, Seconds, Shares};

/// Fields of records and bodies apart from limits: the path of each, sacctmgr's key, and how its value is spelled.
type Fields = &'static [(&'static str, &'static str, Spelling)];

/// Fields of a kind of record, and whether a limit has a path there.
type Record = (Fields, fn(&limits::Row, &str) -> bool);

/// Fields of associations.
const OF_ASSOCIATION: Record = (
    &[
        ("default.qos", "defaultqos", Spelling::Text),
        ("qos", "qoslevel", Names),
        ("priority", "priority", Number),
        ("shares_raw", "fairshare", Shares),
    ],
    |row, path| row.place(Whose::Association).path == path,
);

/// Fields of the association in the bodies that add users and accounts.
const OF_CONDITION: Record = (
    &[
        ("defaultqos", "defaultqos", Spelling::Text),
        ("qoslevel", "qoslevel", Names),
        ("fairshare", "fairshare", Shares),
        ("priority", "priority", Number),
    ],
    |row, key| !row.place(Whose::Association).path.is_empty() && row.name.eq_ignore_ascii_case(key),
);

/// Fields of QOS.
const OF_QOS: Record = (
    &[
        ("description", "description", Spelling::Text),
        ("priority", "priority", Number),
        ("limits.grace_time", "gracetime", Number),
        ("preempt.list", "preempt", Names),
        ("preempt.mode", "preemptmode", Spelling::PreemptMode),
        ("preempt.exempt_time", "preemptexempttime", Seconds),
        ("usage_factor", "usagefactor", Spelling::Factor),
        ("usage_threshold", "usagethreshold", Spelling::Factor),
        ("flags", "flags", Spelling::Flags),
    ],
    |row, path| row.place(Whose::Qos).path == path,
);

/// Returns how the value of a limit is spelled.
fn spelling_of(limit: &limits::Row) -> Spelling {
    if matches!(limit.what, LimitKind::Each(_)) { Resources } else { Number }
}

/// Applies a field as a setting of sacctmgr.
fn set(
    (fields, is_limit): Record,
    field: &str,
    value: &Value,
    place: &str,
    mut apply: impl FnMut(&Setting) -> Result<(), Wrong>,
) -> Read {
    let own = fields.iter().find(|(name, ..)| *name == field).map(|(_, key, spelling)| ((*key).to_owned(), *spelling));
    let limit = || limits::ROWS.iter().find(|row| !field.is_empty() && is_limit(row, field));
    let Some((key, spelling)) = own.or_else(|| limit().map(|row| (row.name.to_lowercase(), spelling_of(row)))) else {
        // A limit that is not kept here may be in the body as long as it is not set.
        let unset = value.as_str() == Some(ENDLESS) || value.as_array().is_some_and(Vec::is_empty);
        return if unset { Ok(()) } else { Err(Problem::not_done(place, "This limit is not kept here")) };
    };
    let mut put = |sign: Option<bool>, value: String, place: &str| {
        let done = apply(&Setting { key: key.clone(), sign, value, text: String::new() });
        done.map_err(|wrong| match wrong {
            Wrong::Value(text) => Problem::malformed(place, text.trim_start()),
            Wrong::NotDone(text) => Problem::not_done(place, text.trim_start()),
            Wrong::Key => Problem::not_done(place, "This limit is not kept here"),
        })
    };
    let value = match spelling {
        Spelling::Text => value.as_str().unwrap_or_default().to_owned(),
        Names => texts(value).join(","),
        Number => count(value, place)?.map_or_else(|| "-1".to_owned(), |number| number.to_string()),
        Seconds => count(value, place)?.map_or_else(|| "-1".to_owned(), format_elapsed),
        Shares => match value.as_u64() {
            Some(0xffff | 0x7fff_ffff) => "parent".to_owned(),
            Some(shares) => shares.to_string(),
            None => return Err(Problem::malformed(place, format!("{value} is no number of shares"))),
        },
        Spelling::Factor if value.as_str() == Some(ENDLESS) => "-1".to_owned(),
        Spelling::Factor => value.as_f64().map_or_else(|| value.to_string(), |factor| factor.to_string()),
        Resources => {
            for (at, one) in value.as_array().into_iter().flatten().enumerate() {
                let here = format!("{place}[{at}]");
                put(None, resource(one, &here)?, &here)?;
            }
            return Ok(());
        }
        Spelling::PreemptMode => preempt_mode(&texts(value), place)?.to_owned(),
        Spelling::Flags => {
            let (sign, names) = flags(&texts(value), place)?;
            return put(sign, names, place);
        }
    };
    put(None, value, place)
}

/// Spells a limit on a resource as sacctmgr does: `gres/gpu=4`.
fn resource(given: &Value, place: &str) -> Result<String, Problem> {
    let (kind, name) = (needed(given, "type", place)?, text(given, "name").unwrap_or_default());
    let full = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    if full.contains([',', '=']) {
        return Err(Problem::malformed(place, format!("{full} is no resource")));
    }
    let amount = given.get("count").and_then(Value::as_i64).filter(|count| *count >= 0).unwrap_or(-1);
    Ok(format!("{full}={amount}"))
}

/// Returns a number. None: it is infinite.
fn count(value: &Value, place: &str) -> Result<Option<u64>, Problem> {
    match value {
        Value::String(text) if text == ENDLESS => Ok(None),
        value => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(Problem::malformed(place, format!("{value} is no whole number from 0 on"))),
        },
    }
}

fn needed(record: &Value, field: &str, place: &str) -> Result<String, Problem> {
    let given = text(record, field).filter(|text| !text.is_empty()).map(str::to_owned);
    given.ok_or_else(|| Problem::malformed(path(place, field), "It is missing"))
}

/// Returns the fields of a record that are no objects, each with its path, as `max.jobs.active`.
fn leaves(record: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    let mut open = vec![(String::new(), record)];
    while let Some((at, value)) = open.pop() {
        match value {
            Value::Object(fields) => open.extend(fields.iter().rev().map(|(name, value)| (path(&at, name), value))),
            value => all.push((at, value)),
        }
    }
    all
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the names of the objects in a list.
fn names(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|one| text(one, "name")).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn admin(record: &Value, field: &str, before: AdminLevel, place: &str) -> Result<AdminLevel, Problem> {
    let mut level = before;
    for word in list(record, field).unwrap_or_default() {
        level = match word.as_str() {
            "Not Set" => level,
            "None" => AdminLevel::None,
            "Operator" => AdminLevel::Operator,
            "Administrator" => AdminLevel::Administrator,
            _ => return Err(Problem::malformed(place, format!("{word}: use None, Operator or Administrator"))),
        };
    }
    Ok(level)
}

/// Returns sacctmgr's word for a preempt mode.
fn preempt_mode(words: &[String], place: &str) -> Result<&'static str, Problem> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["DISABLED"] => Ok("cluster"),
        ["CANCEL"] => Ok("cancel"),
        ["REQUEUE"] => Ok("requeue"),
        ["CHECKPOINT"] | ["CHECKPOINT", "REQUEUE"] => Ok("checkpoint"),
        _ => Err(Problem::not_done(place, "Use DISABLED, CANCEL, REQUEUE or CHECKPOINT: only partitions suspend jobs")),
    }
}

/// Returns sacctmgr's names of flags, and whether they are added (true) or removed. None: they replace the present ones.
fn flags(words: &[String], place: &str) -> Result<(Option<bool>, String), Problem> {
    let has = |word: &str| words.iter().any(|given| given == word);
    let sign = if has("REMOVE") { Some(false) } else { (has("ADD") || has("NOT_SET")).then_some(true) };
    let mut names = Vec::new();
    for word in words.iter().filter(|word| !["ADD", "REMOVE", "NOT_SET"].contains(&word.as_str())) {
        let known = || FLAGS.iter().filter(|(name, _)| Qos::FLAGS.contains(name));
        let Some((name, _)) = known().find(|(_, known)| known == word) else {
            let all: Vec<&str> = known().map(|(_, name)| *name).collect();
            return Err(Problem::not_done(place, format!("{word} is of no effect here: use {}", all.join(", "))));
        };
        names.push(*name);
    }
    Ok((sign, names.join(",")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use squall_model::policy::{AssocKey, Association, Limit, PolicyChange, PreemptMode, Qos, Scope, Tres};

    use super::{Ledger, OF_ASSOCIATION, OF_CONDITION, OF_QOS, Record, Spelling, Whose, limits, set, spelling_of};
    use crate::columns::entities;
    use crate::shapes::policy::records;
    use crate::shapes::{AnswerKind, Problem, Version, Warning, record};
    use crate::verbs::accounts::Draft;
    use squall_model::config::Config;

    fn enter(draft: &mut Draft, kind: AnswerKind, given: &Value) -> Result<Vec<Warning>, Problem> {
        let mut ledger = Ledger::new(draft, "c");
        ledger.enter(kind, given)?;
        Ok(ledger.warnings)
    }

    fn with_account() -> Draft {
        let mut draft = Draft::default();
        enter(&mut draft, AnswerKind::Accounts, &json!({"accounts": [{"name": "phys", "description": "Physics"}]}))
            .unwrap();
        draft
    }

    #[test]
    fn accounts_users_and_associations_are_entered() {
        let mut draft = with_account();
        assert_eq!(draft.policy.accounts["phys"].description, "Physics");
        assert!(draft.policy.associations.contains_key(&AssocKey::account("phys")));
        let users =
            json!({"users": [{"name": "ann", "default": {"account": "phys"}, "administrator_level": ["Operator"]}]});
        enter(&mut draft, AnswerKind::Users, &users).unwrap();
        assert!(draft.policy.associations.contains_key(&AssocKey::user("phys", "ann")));
        let given = json!({"associations": [{
            "account": "phys", "user": "ann", "cluster": "c", "shares_raw": 7, "qos": ["normal"],
            "max": {
                "jobs": {"active": {"set": true, "number": 3}, "per": {"wall_clock": 60, "count": {"infinite": true}}},
                "tres": {"per": {"job": [{"type": "cpu", "count": 8}, {"type": "gres", "name": "gpu", "count": 2}]}},
            },
        }]});
        enter(&mut draft, AnswerKind::Associations, &given).unwrap();
        let own = &draft.policy.associations[&AssocKey::user("phys", "ann")];
        assert_eq!((own.shares, own.limits[&Limit::MaxJobs], own.limits[&Limit::MaxWall]), (Some(7), 3, 3600));
        assert_eq!((own.limits[&Limit::MaxCpu], own.limits[&Limit::of(Scope::Job, Tres::Gpu)]), (8, 2));
        let before = draft.changes.len();
        let same = json!({"accounts": [{"name": "phys", "description": "Physics"}]});
        enter(&mut draft, AnswerKind::Accounts, &same).unwrap();
        assert_eq!(draft.changes.len(), before);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut draft = with_account();
        let mut problem = |kind: AnswerKind, given: &Value| {
            let problem = enter(&mut draft, kind, given).unwrap_err();
            (problem.source, problem.status)
        };
        let other = json!({"associations": [{"account": "phys", "cluster": "d"}]});
        assert_eq!(problem(AnswerKind::Associations, &other), ("associations[0].cluster".into(), 501));
        let unknown = json!({"associations": [{"account": "nosuch", "user": "ann"}]});
        assert_eq!(problem(AnswerKind::Associations, &unknown), ("associations[0].account".into(), 404));
        let accruing = json!({"associations": [{"account": "phys", "max": {"jobs": {"accruing": 3}}}]});
        assert_eq!(problem(AnswerKind::Associations, &accruing), ("associations[0].max.jobs.accruing".into(), 501));
        assert_eq!(problem(AnswerKind::Accounts, &json!({"accounts": [{}]})), ("accounts[0].name".into(), 400));
        assert_eq!(problem(AnswerKind::Accounts, &json!({})), ("accounts".into(), 400));
        let license = json!({"qos": [{"name": "q", "limits": {"max": {"tres": {"total": [{"type": "license", "name": "x", "count": 1}]}}}}]});
        assert_eq!(problem(AnswerKind::Qos, &license), ("qos[0].limits.max.tres.total[0]".into(), 501));
    }

    #[test]
    fn what_is_shown_can_be_entered_again() {
        let mut draft = with_account();
        let qos = json!({"qos": [{
            "name": "high", "priority": 9, "flags": ["DENY_LIMIT"], "usage_factor": 0.5,
            "preempt": {"list": ["normal"], "mode": ["CANCEL"], "exempt_time": 30},
            "limits": {"grace_time": 5, "max": {
                "jobs": {"per": {"user": 4}}, "wall_clock": {"per": {"job": 90}},
                "tres": {"per": {"user": [{"type": "node", "count": 2}]}, "minutes": {"per": {"job": [{"type": "cpu", "count": 3}]}}},
            }},
        }]});
        enter(&mut draft, AnswerKind::Qos, &qos).unwrap();
        let level = draft.policy.qos["high"].clone();
        assert_eq!((level.priority, level.usage_factor, level.preempt_mode), (9, 500_000, Some(PreemptMode::Cancel)));
        assert_eq!((level.limits[&Limit::UserSubmit], level.limits[&Limit::MaxWall]), (4, 5400));
        let config = Config { cluster: "c".into(), ..Config::default() };
        let rows = entities::levels(&draft.policy, &config);
        let (_, key, shown) = records("qos", &rows, false, &draft.policy).unwrap();
        for version in Version::ALL {
            let shown: Vec<Value> = shown
                .as_array()
                .unwrap()
                .iter()
                .cloned()
                .map(|one| serde_json::from_slice(&record(version, AnswerKind::Qos, one)).unwrap())
                .collect();
            let mut again = Draft { policy: draft.policy.clone(), changes: Vec::new() };
            enter(&mut again, AnswerKind::Qos, &json!({key: shown})).unwrap();
            assert_eq!(again.policy.qos["high"], level, "{version:?}");
            assert!(again.changes.iter().all(|change| !matches!(change, PolicyChange::Qos(name, _) if name == "high")));
        }
    }

    #[test]
    fn users_are_added_with_associations_and_deleted() {
        let mut draft = with_account();
        let mut ledger = Ledger::new(&mut draft, "c");
        let given = json!({
            "association_condition": {"accounts": ["phys"], "users": ["bob"], "association": {"maxjobs": 2, "fairshare": 5}},
            "user": {"adminlevel": ["None"]},
        });
        assert_eq!(ledger.add_users(&given), Ok(vec!["bob".to_owned()]));
        let given = json!({"association_condition": {"accounts": ["astro"], "association": {"parent": "phys"}}});
        assert_eq!(ledger.add_accounts(&given), Ok(vec!["astro".to_owned()]));
        assert_eq!(ledger.delete_user("carl").unwrap_err().status, 404);
        assert_eq!(ledger.delete_account("phys"), Ok(vec!["astro".to_owned(), "phys".to_owned()]));
        assert!(draft.policy.users["bob"].default_account.is_empty());
        assert!(!draft.policy.associations.keys().any(|key| key.account == "phys"));
    }

    /// Checks that each row names a key of sacctmgr and spells its value: every field changes the record.
    #[test]
    fn every_field_changes_the_record() {
        let sample = |spelling: Spelling, path: &str| match spelling {
            Spelling::Text => json!("x"),
            Spelling::Names => json!(["x", "y"]),
            Spelling::Number | Spelling::Seconds | Spelling::Shares => json!(7),
            Spelling::Factor => json!(0.5),
            Spelling::Resources => {
                assert!(path.contains("tres"), "{path}");
                json!([{"type": "gres", "name": "gpu", "count": 7}])
            }
            Spelling::PreemptMode => json!(["CANCEL"]),
            Spelling::Flags => json!(["ADD", "DENY_LIMIT"]),
        };
        let all = |record: Record, whose: Whose| {
            let of_limits = limits::ROWS.iter().filter(move |row| !row.place(whose).path.is_empty()).map(move |row| {
                let [path, key] = [row.place(whose).path.to_owned(), row.name.to_lowercase()];
                (if record.1(row, &path) { path } else { key }, spelling_of(row))
            });
            record.0.iter().map(|(path, _, spelling)| ((*path).to_owned(), *spelling)).chain(of_limits)
        };
        for record in [OF_ASSOCIATION, OF_CONDITION] {
            let mut seen = Vec::new();
            for (path, spelling) in all(record, Whose::Association) {
                let mut own = Association { shares: Some(1), ..Association::default() };
                let before = own.clone();
                let given = sample(spelling, &path);
                set(record, &path, &given, &path, |setting| setting.change_association(&mut own)).unwrap();
                assert!(own != before && !seen.contains(&own), "{path} has no key of its own");
                seen.push(own);
            }
        }
        let mut seen = Vec::new();
        for (path, spelling) in all(OF_QOS, Whose::Qos) {
            let mut qos = Qos::default();
            set(OF_QOS, &path, &sample(spelling, &path), &path, |setting| setting.change_qos(&mut qos)).unwrap();
            assert!(qos != Qos::default() && !seen.contains(&qos), "{path} has no key of its own");
            seen.push(qos);
        }
        // Each field that one kind of body takes, the others take, too.
        let keys = |(fields, _): Record| fields.iter().map(|(_, key, _)| *key).collect::<BTreeSet<_>>();
        assert_eq!(keys(OF_ASSOCIATION), keys(OF_CONDITION));
    }
}
