//! The verbs of accounts, users, associations and QOS, for sacctmgr, the load of a dump and REST: each changes a copy of
//! the accounting policy, on which later changes build.

use std::fmt;

use squall_model::policy::{Account, AssocKey, Association, NORMAL, Policy, PolicyChange, Qos, ROOT, User};

use crate::columns::entities::with_root;

/// An account that a change names and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Account of an association or of a coordinator.
    Account(String),
    /// Account above another one.
    Parent(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(name) => write!(f, "This account '{name}' doesn't exist."),
            Self::Parent(name) => write!(f, "Parent account '{name}' doesn't exist."),
        }
    }
}

/// What was added: what existed before stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// The record of the account or user was added.
    pub record: bool,
    /// The association was added.
    pub association: bool,
}

/// A copy of the accounting policy, with changes that were not sent to the controller yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The policy with the changes.
    pub policy: Policy,
    /// The changes, in order.
    pub changes: Vec<PolicyChange>,
}

impl Draft {
    /// Returns a draft of the policy without changes.
    pub fn of(policy: Policy) -> Self {
        Self { policy: with_root(policy), changes: Vec::new() }
    }

    /// Applies a change to the copy; later changes build on it.
    pub fn change(&mut self, change: PolicyChange) {
        // Numbers of entries are assigned by the controller, and the version changes there.
        self.policy.change(&change);
        self.changes.push(change);
    }

    /// Returns all changes, to be sent with the version of the policy.
    pub fn finish(self) -> Vec<PolicyChange> {
        let mut changes = self.changes;
        let of_root =
            |change: &PolicyChange| matches!(change, PolicyChange::Association(key, Some(_)) if key.user == ROOT);
        if let Some(root) = self.policy.users.get(ROOT).filter(|_| changes.iter().any(of_root)) {
            // The user root exists by default: its record must be created before an association refers to it.
            changes.insert(0, PolicyChange::User(ROOT.to_owned(), Some(root.clone())));
        }
        changes
    }

    /// Checks that the account of an association exists.
    pub fn account_exists(&self, name: &str) -> Result<(), Missing> {
        let exists = name == ROOT || self.policy.accounts.contains_key(name);
        if exists { Ok(()) } else { Err(Missing::Account(name.to_owned())) }
    }

    /// Checks that the account above another one exists.
    pub fn parent_exists(&self, own: &Association) -> Result<(), Missing> {
        let exists = own.parent.is_empty() || self.account_exists(&own.parent).is_ok();
        if exists { Ok(()) } else { Err(Missing::Parent(own.parent.clone())) }
    }

    /// Returns the QOS that an association names and that do not exist.
    pub fn unknown_levels<'a>(&self, own: &'a Association) -> impl Iterator<Item = &'a str> {
        let named = own.qos.iter().chain([&own.default_qos]).map(String::as_str);
        named.filter(|name| !name.is_empty() && *name != NORMAL && !self.policy.qos.contains_key(*name))
    }

    /// Adds an account and its association. The account's name stands in for texts that `account` lacks.
    pub fn add_account(&mut self, name: &str, account: &Account, own: &Association) -> Result<Additions, Missing> {
        self.parent_exists(own)?;
        if name == ROOT {
            return Ok(Additions::default());
        }
        let record = !self.policy.accounts.contains_key(name);
        if record {
            self.set_account(name, account.clone());
        }
        let association = self.add_association(AssocKey::account(name), own);
        Ok(Additions { record, association })
    }

    /// Sets the record of an account. The account's name stands in for texts that it lacks.
    pub fn set_account(&mut self, name: &str, mut account: Account) {
        for text in [&mut account.description, &mut account.organization] {
            if text.is_empty() {
                name.clone_into(text);
            }
        }
        if self.policy.accounts.get(name) != Some(&account) {
            self.change(PolicyChange::Account(name.to_owned(), Some(account)));
        }
    }

    /// Adds coordinators to an account, or removes them. Returns whether that changes the account.
    pub fn coordinate(&mut self, account: &str, users: &[String], add: bool) -> Result<bool, Missing> {
        let before = self.policy.accounts.get(account).ok_or_else(|| Missing::Account(account.to_owned()))?;
        let mut after = before.clone();
        after.coordinators.retain(|user| add || !users.contains(user));
        let fresh = users.iter().filter(|user| add && !before.coordinators.contains(user));
        after.coordinators.extend(fresh.cloned());
        let changed = after != *before;
        if changed {
            self.change(PolicyChange::Account(account.to_owned(), Some(after)));
        }
        Ok(changed)
    }

    /// Adds a user and an association. A user without a default account gets the association's.
    pub fn add_user(&mut self, key: AssocKey, user: &User, own: &Association) -> Result<Additions, Missing> {
        self.account_exists(&key.account)?;
        let record = !self.policy.users.contains_key(&key.user);
        if record {
            let mut user = user.clone();
            if user.default_account.is_empty() {
                user.default_account.clone_from(&key.account);
            }
            self.change(PolicyChange::User(key.user.clone(), Some(user)));
        }
        Ok(Additions { record, association: self.add_association(key, own) })
    }

    /// Sets the record of a user, who gets an association with the default account.
    pub fn set_user(&mut self, name: &str, user: User) -> Result<(), Missing> {
        if self.policy.users.get(name) == Some(&user) {
            return Ok(());
        }
        let key = AssocKey::user(&user.default_account, name);
        if !key.account.is_empty() {
            self.account_exists(&key.account)?;
        }
        self.change(PolicyChange::User(name.to_owned(), Some(user)));
        if !key.account.is_empty() {
            self.add_association(key, &Association::default());
        }
        Ok(())
    }

    /// Sets an association. A user who does not exist is added.
    pub fn set_association(&mut self, key: AssocKey, own: Association) -> Result<(), Missing> {
        self.parent_exists(&own)?;
        if key.user.is_empty() {
            self.account_exists(&key.account)?;
        } else {
            self.add_user(key.clone(), &User::default(), &own)?;
        }
        if self.policy.associations.get(&key) != Some(&own) {
            self.change(PolicyChange::Association(key, Some(own)));
        }
        Ok(())
    }

    /// Adds an association. Returns whether it did not exist.
    fn add_association(&mut self, key: AssocKey, own: &Association) -> bool {
        let fresh = !self.policy.associations.contains_key(&key);
        if fresh {
            self.change(PolicyChange::Association(key, Some(own.clone())));
        }
        fresh
    }

    /// Adds a QOS, described by its name unless it has a description. Returns whether it did not exist.
    pub fn add_qos(&mut self, name: &str, qos: &Qos) -> bool {
        let fresh = !self.policy.qos.contains_key(name);
        if fresh {
            let description = if qos.description.is_empty() { name } else { &qos.description }.to_owned();
            self.change(PolicyChange::Qos(name.to_owned(), Some(Qos { description, ..qos.clone() })));
        }
        fresh
    }

    /// Deletes associations and returns their keys.
    pub fn delete_associations(&mut self, which: impl Fn(&AssocKey) -> bool) -> Vec<AssocKey> {
        let keys: Vec<AssocKey> = self.policy.associations.keys().filter(|key| which(key)).cloned().collect();
        for key in &keys {
            self.change(PolicyChange::Association(key.clone(), None));
        }
        keys
    }

    /// Deletes a user with all of its associations.
    pub fn delete_user(&mut self, name: &str) {
        self.delete_associations(|key| key.user == name);
        self.change(PolicyChange::User(name.to_owned(), None));
    }

    /// Deletes an account with all accounts and associations below it. Returns the names of the deleted accounts.
    pub fn delete_account(&mut self, name: &str) -> Vec<String> {
        let below = |policy: &Policy, key: &AssocKey| {
            key.account == name || policy.above(&key.account).any(|(above, _)| above == name)
        };
        let keys: Vec<AssocKey> =
            self.policy.associations.keys().filter(|key| below(&self.policy, key)).cloned().collect();
        let mut accounts: Vec<String> = keys.iter().map(|key| key.account.clone()).chain([name.to_owned()]).collect();
        accounts.sort();
        accounts.dedup();
        accounts.retain(|account| self.policy.accounts.contains_key(account));
        for key in &keys {
            self.change(PolicyChange::Association(key.clone(), None));
        }
        for account in &accounts {
            self.change(PolicyChange::Account(account.clone(), None));
        }
        for key in keys.iter().filter(|key| !key.user.is_empty()) {
            self.new_default(&key.user);
        }
        accounts
    }

    /// Chooses another account of a user as default, after the default account was deleted.
    pub fn new_default(&mut self, name: &str) {
        let Some(user) = self.policy.users.get(name).cloned() else { return };
        let mut own = self.policy.associations.keys().filter(|key| key.user == name).map(|key| &key.account);
        if own.clone().any(|account| *account == user.default_account) {
            return;
        }
        let default_account = own.next().cloned().unwrap_or_default();
        self.change(PolicyChange::User(name.to_owned(), Some(User { default_account, ..user })));
    }

    /// Deletes a QOS, also from all lists that name it.
    pub fn delete_level(&mut self, name: &str) {
        let named = |own: &Association| own.qos.iter().any(|q| q == name) || own.default_qos == name;
        let associations: Vec<(AssocKey, Association)> = self
            .policy
            .associations
            .iter()
            .filter(|(_, own)| named(own))
            .map(|(key, own)| (key.clone(), own.clone()))
            .collect();
        for (key, mut own) in associations {
            own.qos.retain(|q| q != name);
            if own.default_qos == name {
                own.default_qos.clear();
            }
            self.change(PolicyChange::Association(key, Some(own)));
        }
        let preempts = |qos: &Qos| qos.preempt.iter().any(|q| q == name);
        let others: Vec<(String, Qos)> =
            self.policy.qos.iter().filter(|(_, qos)| preempts(qos)).map(|(n, q)| (n.clone(), q.clone())).collect();
        for (other, mut qos) in others {
            qos.preempt.retain(|q| q != name);
            self.change(PolicyChange::Qos(other, Some(qos)));
        }
        self.change(PolicyChange::Qos(name.to_owned(), None));
    }
}
