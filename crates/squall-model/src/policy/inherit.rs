//! What associations inherit from the accounts above them, and the user root.

use super::{AdminLevel, AssocKey, Association, Limit, NORMAL, Policy, ROOT};

impl Policy {
    /// Adds the user root, an administrator, who exists without a record.
    pub fn name_root(&mut self) {
        let root = self.users.entry(ROOT.to_owned()).or_default();
        root.admin = AdminLevel::Administrator;
        if root.default_account.is_empty() {
            ROOT.clone_into(&mut root.default_account);
        }
    }

    /// Returns the association of a user's jobs in an account: the one for the partition, otherwise the one for any
    /// partition. None: the user has none there.
    pub fn association(&self, account: &str, user: &str, partition: &str) -> Option<&Association> {
        let mut key = AssocKey { partition: partition.to_owned(), ..AssocKey::user(account, user) };
        if let Some(own) = self.associations.get(&key).filter(|_| !partition.is_empty()) {
            return Some(own);
        }
        key.partition.clear();
        self.associations.get(&key)
    }

    /// Iterates over the associations of `account` and of the accounts above it in the tree, nearest first.
    pub fn above<'a>(&'a self, account: &str) -> impl Iterator<Item = (&'a str, &'a Association)> + use<'a> {
        let at = |name: &str| self.associations.get_key_value(&AssocKey::account(name));
        let next = move |(_, own): &(&'a AssocKey, &'a Association)| at(&own.parent).filter(|_| !own.parent.is_empty());
        // Bounded by the number of accounts, so that a cycle among parents can't loop for ever.
        std::iter::successors(at(account), next)
            .take(self.accounts.len() + 1)
            .map(|(key, own)| (key.account.as_str(), own))
    }

    /// Returns the names of the QOS that jobs of the association `own` in `account` may use.
    pub fn allowed_qos<'a>(&'a self, account: &str, own: &'a Association) -> Vec<&'a str> {
        let mut all = std::iter::once(own).chain(self.above(account).map(|(_, above)| above));
        let set = all.find(|association| !association.qos.is_empty() || association.no_qos == Some(true));
        set.map_or_else(|| vec![NORMAL], |association| association.qos.iter().map(String::as_str).collect())
    }

    /// Returns the QOS of jobs of the association `own` without `--qos`. None: neither it nor an account above sets
    /// one.
    pub fn default_qos<'a>(&'a self, account: &str, own: &'a Association) -> Option<&'a str> {
        let all = std::iter::once(own).chain(self.above(account).map(|(_, above)| above));
        all.map(|association| association.default_qos.as_str()).find(|qos| !qos.is_empty())
    }

    /// Returns the value of a limit for the association `own` in `account`: its own or, if limits of this kind are
    /// inherited, that of the nearest account above. None: no limit.
    pub fn limit(&self, account: &str, own: &Association, limit: Limit) -> Option<u64> {
        let above = self.above(account).filter(|_| limit.is_inherited());
        own.limits.get(&limit).or(above.into_iter().find_map(|(_, above)| above.limits.get(&limit))).copied()
    }

    /// Returns all limits of the association `own` in `account`, its own and those that it inherits.
    pub fn limits(&self, account: &str, own: &Association) -> impl Iterator<Item = (Limit, u64)> {
        let mut all = own.limits.clone();
        for (limit, most) in self.above(account).flat_map(|(_, above)| &above.limits) {
            if limit.is_inherited() {
                all.entry(*limit).or_insert(*most);
            }
        }
        all.into_iter()
    }
}
