//! Changes of accounts, users and QOS before they are sent: a copy of the accounting policy, on which later changes
//! build.

use squall_model::policy::{AssocKey, Association, Policy, PolicyChange, Qos, ROOT, User};

use crate::columns::entities::with_root;

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
