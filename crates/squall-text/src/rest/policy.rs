//! Bodies about accounts, users, associations and QOS: their records become changes of the accounting policy. Every field
//! is taken, named in a warning, or refused.

use serde_json::Value;
use squall_model::policy::{
    Account, AdminLevel, AssocKey, Association, Limit, Limits, PolicyChange, PreemptMode, Qos, ROOT, Scope, Tres, User,
};

use super::body::{self, ENDLESS, list, text, warn};
use crate::columns::records::is_timed;
use crate::draft::Draft;
use crate::shapes::problem::path;
use crate::shapes::table::Shape;
use crate::shapes::{Kind, Problem, Version, Warning};

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

impl<'a> Ledger<'a> {
    /// Returns a ledger that enters changes into `draft`.
    pub fn new(draft: &'a mut Draft, cluster: &'a str) -> Self {
        Self { draft, cluster, warnings: Vec::new() }
    }

    /// Enters the records of a body: `Accounts`, `Users`, `Associations`, `Qos`, `Wckeys`, `Clusters`, `Tres`, or all of
    /// them (`Config`).
    pub fn enter(&mut self, kind: Kind, given: &Value) -> Read {
        if !given.is_object() {
            return Err(Problem::malformed("", "The body is not an object"));
        }
        let body = body::read(Shape::of(Version::V43, kind), given, "", &mut self.warnings)?;
        // What a record refers to comes before it.
        let order =
            [Kind::Clusters, Kind::Tres, Kind::Qos, Kind::Accounts, Kind::Associations, Kind::Users, Kind::Wckeys];
        let mut any = false;
        for kind in order {
            let list = body.get(kind.list()).or_else(|| body.get(kind.name()));
            for (at, record) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
                any = true;
                let place = format!("{}[{at}]", kind.list());
                match kind {
                    Kind::Qos => self.qos(record, &place)?,
                    Kind::Accounts => self.account(record, &place)?,
                    Kind::Associations => self.association(record, &place)?,
                    Kind::Users => self.user(record, &place)?,
                    Kind::Clusters => self.same_cluster(record, "name", &place)?,
                    Kind::Tres => warn(&mut self.warnings, &place, "What is accounted for is fixed"),
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
        let known = self.draft.policy.accounts.get(&name).cloned();
        let or_name = |given: &str| if given.is_empty() { name.clone() } else { given.to_owned() };
        let mut account = known.clone().unwrap_or_else(|| Account {
            description: or_name(""),
            organization: or_name(""),
            coordinators: Vec::new(),
        });
        for (field, value) in record.as_object().into_iter().flatten() {
            match field.as_str() {
                "name" => {}
                "description" => account.description = or_name(value.as_str().unwrap_or_default()),
                "organization" => account.organization = or_name(value.as_str().unwrap_or_default()),
                "coordinators" => account.coordinators = names(value),
                _ => self.shown_only(value, &path(place, field)),
            }
        }
        if known.as_ref() != Some(&account) {
            self.draft.change(PolicyChange::Account(name.clone(), Some(account)));
        }
        self.root_account(&name);
        Ok(())
    }

    /// Adds the association of a new account, below the account root.
    fn root_account(&mut self, name: &str) {
        let key = AssocKey::account(name);
        if name != ROOT && !self.draft.policy.associations.contains_key(&key) {
            let own = Association { parent: ROOT.to_owned(), ..Association::default() };
            self.draft.change(PolicyChange::Association(key, Some(own)));
        }
    }

    fn user(&mut self, record: &Value, place: &str) -> Read {
        let name = needed(record, "name", place)?;
        let known = self.draft.policy.users.get(&name).cloned();
        let mut user = known.clone().unwrap_or_default();
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
                }
                "coordinators" => self.coordinate(&name, &names(value), &here)?,
                "old_name" if value.as_str().is_some_and(|old| !old.is_empty() && old != name) => {
                    return Err(Problem::not_done(here, "Users are not renamed: add the new one, delete the old one"));
                }
                "name" | "old_name" | "flags" => {}
                _ => self.shown_only(value, &here),
            }
        }
        if known.as_ref() != Some(&user) {
            self.enter_user(&name, user, &path(place, "default.account"))?;
        }
        Ok(())
    }

    /// Enters a user, with an association in the default account if it has none there.
    fn enter_user(&mut self, name: &str, user: User, place: &str) -> Read {
        let account = user.default_account.clone();
        if !account.is_empty() && account != ROOT && !self.draft.policy.accounts.contains_key(&account) {
            return Err(Problem::not_found(place, &format!("account {account}")));
        }
        self.draft.change(PolicyChange::User(name.to_owned(), Some(user)));
        let key = AssocKey::user(&account, name);
        if !account.is_empty() && !self.draft.policy.associations.contains_key(&key) {
            self.draft.change(PolicyChange::Association(key, Some(Association::default())));
        }
        Ok(())
    }

    /// Makes a user coordinator of accounts.
    fn coordinate(&mut self, user: &str, accounts: &[String], place: &str) -> Read {
        for name in accounts {
            let Some(mut account) = self.draft.policy.accounts.get(name).cloned() else {
                return Err(Problem::not_found(place, &format!("account {name}")));
            };
            if !account.coordinators.iter().any(|known| known == user) {
                account.coordinators.push(user.to_owned());
                self.draft.change(PolicyChange::Account(name.clone(), Some(account)));
            }
        }
        Ok(())
    }

    fn association(&mut self, record: &Value, place: &str) -> Read {
        self.same_cluster(record, "cluster", place)?;
        let part = |name: &str| text(record, name).unwrap_or_default().to_owned();
        let key =
            AssocKey { account: needed(record, "account", place)?, user: part("user"), partition: part("partition") };
        let known = self.draft.policy.associations.get(&key).cloned();
        let mut own = known.clone().unwrap_or_default();
        if known.is_none() && key.user.is_empty() && key.account != ROOT {
            ROOT.clone_into(&mut own.parent);
        }
        for (field, value) in leaves(record) {
            let here = path(place, &field);
            match field.as_str() {
                "parent_account" => self.parent(&key, value, &mut own, &here)?,
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
                field => set(&mut own, field, value, &here)?,
            }
        }
        self.enter_association(key, own, place)
    }

    fn parent(&self, key: &AssocKey, value: &Value, own: &mut Association, place: &str) -> Read {
        let parent = value.as_str().unwrap_or_default();
        if parent.is_empty() || !key.user.is_empty() {
            return Ok(());
        }
        if parent != ROOT && !self.draft.policy.accounts.contains_key(parent) {
            return Err(Problem::not_found(place, &format!("account {parent}")));
        }
        parent.clone_into(&mut own.parent);
        Ok(())
    }

    fn enter_association(&mut self, key: AssocKey, own: Association, place: &str) -> Read {
        let policy = &self.draft.policy;
        if key.account != ROOT && !policy.accounts.contains_key(&key.account) {
            return Err(Problem::not_found(path(place, "account"), &format!("account {}", key.account)));
        }
        if let Some(qos) = own.qos.iter().chain([&own.default_qos]).find(|qos| !self.has_level(qos)) {
            return Err(Problem::not_found(path(place, "qos"), &format!("QOS {qos}")));
        }
        if !key.user.is_empty() && !policy.users.contains_key(&key.user) {
            let user = User { default_account: key.account.clone(), ..User::default() };
            self.draft.change(PolicyChange::User(key.user.clone(), Some(user)));
        }
        if self.draft.policy.associations.get(&key) != Some(&own) {
            self.draft.change(PolicyChange::Association(key, Some(own)));
        }
        Ok(())
    }

    fn has_level(&self, name: &str) -> bool {
        name.is_empty() || name == squall_model::policy::NORMAL || self.draft.policy.qos.contains_key(name)
    }

    fn qos(&mut self, record: &Value, place: &str) -> Read {
        let name = needed(record, "name", place)?;
        let known = self.draft.policy.qos.get(&name).cloned();
        let mut qos = known.clone().unwrap_or_else(|| Qos { description: name.clone(), ..Qos::default() });
        for (field, value) in leaves(record) {
            let here = path(place, &field);
            if let Some(field) = field.strip_prefix("limits.").filter(|field| *field != "grace_time") {
                limit(OF_QOS, &mut qos.limits, field, value, &here)?;
                continue;
            }
            match field.as_str() {
                "name" | "id" => {}
                "description" => value.as_str().unwrap_or_default().clone_into(&mut qos.description),
                "priority" => qos.priority = count(value, &here)?.map_or(0, |n| n.min(u64::from(u32::MAX)) as u32),
                "limits.grace_time" => qos.grace_s = count(value, &here)?.unwrap_or(0),
                "preempt.list" => qos.preempt = texts(value),
                "preempt.mode" => qos.preempt_mode = preempt_mode(&texts(value), &here)?,
                "preempt.exempt_time" => qos.exempt_s = count(value, &here)?,
                "usage_factor" => {
                    let factor = value.as_f64().filter(|factor| (0.0..=1e6).contains(factor));
                    let wrong = || Problem::malformed(&here, format!("{value}: use a number from 0 to 1000000"));
                    qos.usage_factor = (factor.ok_or_else(wrong)? * 1e6).round() as u64;
                }
                "flags" => change_flags(&mut qos.flags, &texts(value), &here)?,
                _ if value.as_str() == Some(ENDLESS) => {}
                _ => return Err(Problem::not_done(here, "QOS have no such limit here")),
            }
        }
        if known.as_ref() != Some(&qos) {
            self.draft.change(PolicyChange::Qos(name, Some(qos)));
        }
        Ok(())
    }

    /// Adds accounts with associations: the body of `accounts_association`. Returns their names.
    pub fn add_accounts(&mut self, given: &Value) -> Result<Vec<String>, Problem> {
        let body = body::read(body::shape("openapi_accounts_add_cond_resp"), given, "", &mut self.warnings)?;
        let (wanted, own) = self.condition(&body)?;
        let about = |name: &str| body.get("account").and_then(|account| text(account, name)).unwrap_or_default();
        let accounts = list(wanted, "accounts").unwrap_or_default();
        if accounts.is_empty() {
            return Err(Problem::malformed("association_condition.accounts", "No account is named"));
        }
        for name in &accounts {
            let record = serde_json::json!({
                "name": name, "description": about("description"), "organization": about("organization"),
            });
            self.account(&record, "account")?;
            let parent = if own.parent.is_empty() { ROOT.to_owned() } else { own.parent.clone() };
            self.enter_association(AssocKey::account(name), Association { parent, ..own.clone() }, CONDITION)?;
        }
        Ok(accounts)
    }

    /// Adds users with associations: the body of `users_association`. Returns their names.
    pub fn add_users(&mut self, given: &Value) -> Result<Vec<String>, Problem> {
        let body = body::read(body::shape("openapi_users_add_cond_resp"), given, "", &mut self.warnings)?;
        let (wanted, own) = self.condition(&body)?;
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
        let default = text(about, "defaultaccount").filter(|name| !name.is_empty()).unwrap_or(&accounts[0]).to_owned();
        for name in &users {
            let known = self.draft.policy.users.get(name).cloned();
            let before = known.clone().unwrap_or(User { default_account: default.clone(), ..User::default() });
            let admin = admin(about, "adminlevel", before.admin, "user.adminlevel")?;
            let user = User { admin, ..before };
            if known.as_ref() != Some(&user) {
                self.draft.change(PolicyChange::User(name.clone(), Some(user)));
            }
            for (account, partition) in accounts.iter().flat_map(|a| partitions.iter().map(move |p| (a, p))) {
                let key = AssocKey { partition: partition.clone(), ..AssocKey::user(account, name) };
                self.enter_association(key, Association { parent: String::new(), ..own.clone() }, CONDITION)?;
            }
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
                "defaultqos" => set(&mut own, "default.qos", value, &here)?,
                "qoslevel" => set(&mut own, "qos", value, &here)?,
                "fairshare" => set(&mut own, "shares_raw", value, &here)?,
                "priority" => set(&mut own, "priority", value, &here)?,
                field => limit(OF_CONDITION, &mut own.limits, field, value, &here)?,
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

/// What a field limits: a count, a time in minutes, or resources.
#[derive(Clone, Copy)]
enum Limited {
    Count(Limit),
    Minutes(Limit),
    Tres(Scope),
}

use Limited::{Count, Minutes, Tres as Resources};

/// Limits of associations, by their fields.
const OF_ASSOCIATION: &[(&str, Limited)] = &[
    ("max.jobs.per.count", Count(Limit::GrpJobs)),
    ("max.jobs.per.submitted", Count(Limit::GrpSubmit)),
    ("max.jobs.per.wall_clock", Minutes(Limit::MaxWall)),
    ("max.jobs.active", Count(Limit::MaxJobs)),
    ("max.jobs.total", Count(Limit::MaxSubmit)),
    ("max.tres.total", Resources(Scope::Grp)),
    ("max.tres.group.minutes", Resources(Scope::GrpUsed)),
    ("max.tres.group.active", Resources(Scope::GrpDue)),
    ("max.tres.minutes.per.job", Resources(Scope::JobDue)),
    ("max.tres.per.job", Resources(Scope::Job)),
    ("max.tres.per.node", Resources(Scope::Node)),
    ("max.per.account.wall_clock", Minutes(Limit::GrpWall)),
];

/// Limits of associations, by the fields of the bodies that add users and accounts.
const OF_CONDITION: &[(&str, Limited)] = &[
    ("grpjobs", Count(Limit::GrpJobs)),
    ("grpsubmitjobs", Count(Limit::GrpSubmit)),
    ("grpwall", Minutes(Limit::GrpWall)),
    ("grptres", Resources(Scope::Grp)),
    ("grptresmins", Resources(Scope::GrpUsed)),
    ("grptresrunmins", Resources(Scope::GrpDue)),
    ("maxjobs", Count(Limit::MaxJobs)),
    ("maxsubmitjobs", Count(Limit::MaxSubmit)),
    ("maxwalldurationperjob", Minutes(Limit::MaxWall)),
    ("maxtresperjob", Resources(Scope::Job)),
    ("maxtrespernode", Resources(Scope::Node)),
    ("maxtresminsperjob", Resources(Scope::JobDue)),
];

/// Limits of QOS, by their fields below `limits`.
const OF_QOS: &[(&str, Limited)] = &[
    ("max.active_jobs.count", Count(Limit::GrpJobs)),
    ("max.jobs.count", Count(Limit::GrpSubmit)),
    ("max.tres.total", Resources(Scope::Grp)),
    ("max.tres.minutes.total", Resources(Scope::GrpUsed)),
    ("max.tres.minutes.per.qos", Resources(Scope::GrpDue)),
    ("max.tres.minutes.per.job", Resources(Scope::JobDue)),
    ("max.tres.per.account", Resources(Scope::Account)),
    ("max.tres.per.job", Resources(Scope::Job)),
    ("max.tres.per.node", Resources(Scope::Node)),
    ("max.tres.per.user", Resources(Scope::User)),
    ("max.wall_clock.per.qos", Minutes(Limit::GrpWall)),
    ("max.wall_clock.per.job", Minutes(Limit::MaxWall)),
    ("max.jobs.active_jobs.per.account", Count(Limit::AccountJobs)),
    ("max.jobs.active_jobs.per.user", Count(Limit::UserJobs)),
    ("max.jobs.per.account", Count(Limit::AccountSubmit)),
    ("max.jobs.per.user", Count(Limit::UserSubmit)),
    ("min.tres.per.job", Resources(Scope::Least)),
];

/// Sets a field of an association.
fn set(own: &mut Association, field: &str, value: &Value, place: &str) -> Read {
    match field {
        "default.qos" => value.as_str().unwrap_or_default().clone_into(&mut own.default_qos),
        "qos" => (own.qos, own.no_qos) = (texts(value), None),
        "priority" => own.priority = count(value, place)?.map(|n| n.min(u64::from(u32::MAX)) as u32),
        // These numbers of Slurm's stand for the shares of the parent account.
        "shares_raw" => match value.as_u64() {
            Some(0xffff | 0x7fff_ffff) => own.shares = None,
            Some(shares) => own.shares = Some(shares.min(u64::from(u32::MAX)) as u32),
            None => return Err(Problem::malformed(place, format!("{value} is no number of shares"))),
        },
        field => return limit(OF_ASSOCIATION, &mut own.limits, field, value, place),
    }
    Ok(())
}

/// Sets the limit of a field: an infinite number clears it.
fn limit(known: &[(&str, Limited)], limits: &mut Limits, field: &str, value: &Value, place: &str) -> Read {
    let put = |limits: &mut Limits, limit: Limit, value: Option<u64>| match value {
        Some(value) => drop(limits.insert(limit, value)),
        None => drop(limits.remove(&limit)),
    };
    match known.iter().find(|(name, _)| *name == field) {
        Some((_, Count(limit))) => put(limits, *limit, count(value, place)?),
        Some((_, Minutes(limit))) => {
            put(limits, *limit, count(value, place)?.map(|minutes| minutes.saturating_mul(60)));
        }
        Some((_, Resources(scope))) => {
            for (at, one) in value.as_array().into_iter().flatten().enumerate() {
                let (limit, amount) = resource(*scope, one, &format!("{place}[{at}]"))?;
                put(limits, limit, amount);
            }
        }
        // A limit that is not kept here, and that is not set.
        None if value.as_str() == Some(ENDLESS) || value.as_array().is_some_and(Vec::is_empty) => {}
        None => return Err(Problem::not_done(place, "This limit is not kept here")),
    }
    Ok(())
}

/// Reads a limit on a resource: `{"type": "gres", "name": "gpu", "count": 4}`. A negative count clears it.
fn resource(scope: Scope, given: &Value, place: &str) -> Result<(Limit, Option<u64>), Problem> {
    let (kind, name) = (needed(given, "type", place)?, text(given, "name").unwrap_or_default());
    let full = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let known = Tres::ALL.into_iter().find(|tres| tres.name() == full);
    let Some(tres) = known.filter(|tres| *tres != Tres::Node || scope != Scope::Node) else {
        return Err(Problem::not_done(place, format!("{full} can't be limited: cpu, mem, node and gres/gpu can")));
    };
    let amount = given.get("count").and_then(Value::as_i64).and_then(|count| u64::try_from(count).ok());
    let unit = if is_timed(scope) { 60 } else { 1 };
    Ok((Limit::of(scope, tres), amount.map(|amount| amount.saturating_mul(unit))))
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

fn preempt_mode(words: &[String], place: &str) -> Result<Option<PreemptMode>, Problem> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["DISABLED"] => Ok(None),
        ["CANCEL"] => Ok(Some(PreemptMode::Cancel)),
        ["REQUEUE"] => Ok(Some(PreemptMode::Requeue)),
        _ => Err(Problem::not_done(place, "Use DISABLED, CANCEL or REQUEUE: only partitions suspend jobs")),
    }
}

/// Changes the flags of a QOS: `ADD` and `REMOVE` are followed by those to add or to remove.
fn change_flags(flags: &mut Vec<String>, words: &[String], place: &str) -> Read {
    let has = |word: &str| words.iter().any(|given| given == word);
    let (adds, removes) = (has("ADD"), has("REMOVE"));
    if !adds && !removes && !has("NOT_SET") {
        flags.clear();
    }
    for word in words.iter().filter(|word| !["ADD", "REMOVE", "NOT_SET"].contains(&word.as_str())) {
        let name = match word.as_str() {
            "DENY_LIMIT" => "DenyOnLimit",
            "NO_DECAY" => "NoDecay",
            _ => return Err(Problem::not_done(place, format!("{word} is of no effect: DENY_LIMIT and NO_DECAY are"))),
        };
        flags.retain(|flag| flag != name);
        if !removes {
            flags.push(name.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use squall_model::policy::{AssocKey, Limit, PolicyChange, PreemptMode, Scope, Tres};

    use super::Ledger;
    use crate::columns::entities;
    use crate::draft::Draft;
    use crate::shapes::policy::records;
    use crate::shapes::{Kind, Problem, Version, Warning, record};
    use squall_model::config::Config;

    fn enter(draft: &mut Draft, kind: Kind, given: &Value) -> Result<Vec<Warning>, Problem> {
        let mut ledger = Ledger::new(draft, "c");
        ledger.enter(kind, given)?;
        Ok(ledger.warnings)
    }

    fn with_account() -> Draft {
        let mut draft = Draft::default();
        enter(&mut draft, Kind::Accounts, &json!({"accounts": [{"name": "phys", "description": "Physics"}]})).unwrap();
        draft
    }

    #[test]
    fn accounts_users_and_associations_are_entered() {
        let mut draft = with_account();
        assert_eq!(draft.policy.accounts["phys"].description, "Physics");
        assert!(draft.policy.associations.contains_key(&AssocKey::account("phys")));
        let users =
            json!({"users": [{"name": "ann", "default": {"account": "phys"}, "administrator_level": ["Operator"]}]});
        enter(&mut draft, Kind::Users, &users).unwrap();
        assert!(draft.policy.associations.contains_key(&AssocKey::user("phys", "ann")));
        let given = json!({"associations": [{
            "account": "phys", "user": "ann", "cluster": "c", "shares_raw": 7, "qos": ["normal"],
            "max": {
                "jobs": {"active": {"set": true, "number": 3}, "per": {"wall_clock": 60, "count": {"infinite": true}}},
                "tres": {"per": {"job": [{"type": "cpu", "count": 8}, {"type": "gres", "name": "gpu", "count": 2}]}},
            },
        }]});
        enter(&mut draft, Kind::Associations, &given).unwrap();
        let own = &draft.policy.associations[&AssocKey::user("phys", "ann")];
        assert_eq!((own.shares, own.limits[&Limit::MaxJobs], own.limits[&Limit::MaxWall]), (Some(7), 3, 3600));
        assert_eq!((own.limits[&Limit::MaxCpu], own.limits[&Limit::of(Scope::Job, Tres::Gpu)]), (8, 2));
        let before = draft.changes.len();
        let same = json!({"accounts": [{"name": "phys", "description": "Physics"}]});
        enter(&mut draft, Kind::Accounts, &same).unwrap();
        assert_eq!(draft.changes.len(), before);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut draft = with_account();
        let mut problem = |kind: Kind, given: &Value| {
            let problem = enter(&mut draft, kind, given).unwrap_err();
            (problem.source, problem.status)
        };
        let other = json!({"associations": [{"account": "phys", "cluster": "d"}]});
        assert_eq!(problem(Kind::Associations, &other), ("associations[0].cluster".into(), 501));
        let unknown = json!({"associations": [{"account": "nosuch", "user": "ann"}]});
        assert_eq!(problem(Kind::Associations, &unknown), ("associations[0].account".into(), 404));
        let accruing = json!({"associations": [{"account": "phys", "max": {"jobs": {"accruing": 3}}}]});
        assert_eq!(problem(Kind::Associations, &accruing), ("associations[0].max.jobs.accruing".into(), 501));
        assert_eq!(problem(Kind::Accounts, &json!({"accounts": [{}]})), ("accounts[0].name".into(), 400));
        assert_eq!(problem(Kind::Accounts, &json!({})), ("accounts".into(), 400));
        let license =
            json!({"qos": [{"name": "q", "limits": {"max": {"tres": {"total": [{"type": "license", "name": "x"}]}}}}]});
        assert_eq!(problem(Kind::Qos, &license), ("qos[0].limits.max.tres.total[0]".into(), 501));
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
        enter(&mut draft, Kind::Qos, &qos).unwrap();
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
                .map(|one| serde_json::from_slice(&record(version, Kind::Qos, one)).unwrap())
                .collect();
            let mut again = Draft { policy: draft.policy.clone(), changes: Vec::new() };
            enter(&mut again, Kind::Qos, &json!({key: shown})).unwrap();
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
}
