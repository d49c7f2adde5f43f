//! Fair Tree, as in Slurm: among siblings of the account tree, the one that has used least of its share comes first,
//! with everything below it.

use std::collections::BTreeMap;

use squall_model::policy::{AssocKey, Association, Limit, Policy, ROOT, Real, Scope, Tres, Whose};
use squall_model::time::Time;
use squall_model::wire::priority_info::Share;

use crate::control::index::facts;
use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::ledger::Decay;
use crate::invariant::invariant;

/// An account's or user's association in the tree of accounts.
struct Node<'a> {
    key: &'a AssocKey,
    own: &'a Association,
    /// Positions of the associations below this one in the tree's list of all nodes.
    children: Vec<usize>,
    depth: u32,
    usage: f64,
    norm_shares: f64,
    effective_usage: f64,
    level: f64,
    rank: f64,
}

/// The account tree with a rank for every user. In the list, an account comes before what is below it.
pub(crate) struct FairTree<'a>(Vec<Node<'a>>);

impl<'a> FairTree<'a> {
    /// Builds the tree from the usage of each association, which `usage` returns by the association's number. `root` is
    /// used if no root association is defined.
    pub(crate) fn new(policy: &'a Policy, root: &'a (AssocKey, Association), usage: impl Fn(u32) -> f64) -> Self {
        let mut below: BTreeMap<&str, Vec<(&AssocKey, &Association)>> = BTreeMap::new();
        for (key, own) in &policy.associations {
            let above = if key.user.is_empty() { &own.parent } else { &key.account };
            if !(key.user.is_empty() && key.account == ROOT) {
                below.entry(above.as_str()).or_default().push((key, own));
            }
        }
        // Users come before accounts, the order in which `sshare` lists them.
        for children in below.values_mut() {
            children.sort_by_key(|(key, _)| (key.user.is_empty(), *key));
        }
        let own = policy.associations.get_key_value(&root.0).unwrap_or((&root.0, &root.1));
        let mut tree = Self(Vec::new());
        tree.grow(&below, own, 0, &usage);
        tree.weigh(0);
        let users = tree.0.iter().filter(|node| !node.key.user.is_empty()).count();
        let mut left = users;
        let top = tree.0[0].children.clone();
        tree.rank(top, users, &mut left);
        tree
    }

    fn grow(
        &mut self,
        below: &BTreeMap<&str, Vec<(&'a AssocKey, &'a Association)>>,
        (key, own): (&'a AssocKey, &'a Association),
        depth: u32,
        usage: &impl Fn(u32) -> f64,
    ) -> usize {
        let at = self.0.len();
        let used = if key.user.is_empty() { 0.0 } else { usage(own.id) };
        let zero = Node {
            key,
            own,
            children: Vec::new(),
            depth,
            usage: used,
            norm_shares: 0.0,
            effective_usage: 0.0,
            level: 0.0,
            rank: 0.0,
        };
        self.0.push(zero);
        let children = below.get(key.account.as_str()).filter(|_| key.user.is_empty());
        for child in children.into_iter().flatten() {
            let child = self.grow(below, *child, depth + 1, usage);
            self.0[at].children.push(child);
            self.0[at].usage += self.0[child].usage;
        }
        at
    }

    /// Calculates shares, usage and level (share divided by usage) of an association's children relative to each other,
    /// then those of their children, and so on.
    fn weigh(&mut self, at: usize) {
        let children = self.0[at].children.clone();
        let shares = |node: &Node<'_>| f64::from(node.own.shares.unwrap_or(1));
        let all_shares: f64 = children.iter().map(|&child| shares(&self.0[child])).sum();
        let all_usage = self.0[at].usage;
        // A child with `fairshare=parent` counts with the average usage of all such children.
        let pooled: Vec<usize> = children.iter().copied().filter(|&c| self.0[c].own.shares.is_none()).collect();
        let pool = pooled.iter().map(|&child| self.0[child].usage).sum::<f64>() / pooled.len().max(1) as f64;
        for child in children {
            let node = &mut self.0[child];
            node.norm_shares = if all_shares > 0.0 { shares(node) / all_shares } else { 0.0 };
            let usage = if node.own.shares.is_none() { pool } else { node.usage };
            node.effective_usage = if all_usage > 0.0 { node.usage / all_usage } else { 0.0 };
            node.level = match (node.norm_shares > 0.0, usage > 0.0) {
                (false, _) => 0.0,
                (true, false) => f64::INFINITY,
                // Multiply first, so that equal associations get exactly equal values.
                (true, true) => shares(node) * all_usage / (usage * all_shares),
            };
            self.weigh(child);
        }
    }

    /// Gives ranks to all users below some siblings, from the highest level down. Users with equal levels get the same
    /// rank. `left` is the number of users without a rank.
    fn rank(&mut self, mut siblings: Vec<usize>, users: usize, left: &mut usize) {
        siblings.sort_by(|&a, &b| self.0[b].level.total_cmp(&self.0[a].level).then(a.cmp(&b)));
        let mut rest = siblings.as_slice();
        while let Some(&first) = rest.first() {
            let equal = rest.iter().take_while(|&&other| self.0[other].level.total_cmp(&self.0[first].level).is_eq());
            let (equals, after) = rest.split_at(equal.count());
            rest = after;
            let place = *left as f64 / users as f64;
            let mut below = Vec::new();
            for &node in equals {
                if self.0[node].key.user.is_empty() {
                    below.extend(self.0[node].children.iter().copied());
                } else {
                    self.0[node].rank = place;
                    *left -= 1;
                }
            }
            // The children of equal accounts are equals, too.
            self.rank(below, users, left);
        }
    }

    /// Returns the fair-share rank of each user, between 0 and 1, by number of the association.
    pub(crate) fn places(&self) -> BTreeMap<u32, f64> {
        self.0.iter().filter(|node| !node.key.user.is_empty()).map(|node| (node.own.id, node.rank)).collect()
    }

    /// Returns the rows of `sshare`. `minutes`: what users' running jobs may still use. `cpu_s`: the CPU seconds that a
    /// user's association has used; None: as its usage, as CPUs are billed.
    fn shares(&self, minutes: &BTreeMap<u32, Minutes>, cpu_s: Option<&dyn Fn(u32) -> f64>) -> Vec<Share> {
        let total = self.0.first().map_or(0.0, |root| root.usage);
        // Children come after their parents, so the sums are made from the end of the list.
        let mut sums: Vec<Minutes> = vec![[0; 4]; self.0.len()];
        let mut cpus = vec![0.0; self.0.len()];
        for (at, node) in self.0.iter().enumerate().rev() {
            let below = node.children.iter().map(|&child| sums[child]);
            let own = minutes.get(&node.own.id).copied().filter(|_| !node.key.user.is_empty());
            sums[at] = below.chain(own).fold([0; 4], |sum, more| std::array::from_fn(|kind| sum[kind] + more[kind]));
            let own = cpu_s.filter(|_| !node.key.user.is_empty()).map_or(0.0, |cpu_s| cpu_s(node.own.id));
            cpus[at] = own + node.children.iter().map(|&child| cpus[child]).sum::<f64>();
        }
        let share = |((node, [cpu, memory, nodes, billing]), used): ((&Node<'_>, Minutes), f64)| Share {
            id: node.own.id.max(1),
            depth: node.depth,
            account: node.key.account.clone(),
            user: node.key.user.clone(),
            partition: node.key.partition.clone(),
            shares: node.own.shares,
            norm_shares: Real(if node.depth == 0 { 1.0 } else { node.norm_shares }),
            raw_usage: Real(node.usage),
            norm_usage: Real(if total > 0.0 { node.usage / total } else { 0.0 }),
            effective_usage: Real(if node.depth == 0 { f64::from(total > 0.0) } else { node.effective_usage }),
            fairshare: Real(node.rank),
            level: Real(node.level),
            run_minutes: [cpu, memory, nodes],
            group_minutes: group_minutes(node.own),
            cpu_usage: cpu_s.map(|_| Real(used)),
            billing_minutes: Some(billing).filter(|billing| *billing != cpu),
        };
        self.0.iter().zip(sums).zip(cpus).map(share).collect()
    }
}

/// Returns an association's own limits on usage over time, in resource-minutes.
fn group_minutes(own: &Association) -> Vec<(Tres, u64)> {
    let limit = |tres| own.limits.get(&Limit::of(Scope::GrpUsed, tres)).map(|most| (tres, most / 60));
    Tres::ALL.into_iter().filter_map(limit).collect()
}

/// Returns the root association with its defaults.
pub(crate) fn root() -> (AssocKey, Association) {
    (AssocKey::account(ROOT), Association::default())
}

/// Returns the fair-share rank of each user at `now`, between 0 and 1, by number of the association.
pub(crate) fn places(state: &State, now: Time) -> BTreeMap<u32, f64> {
    let (decay, root) = (Decay::of(&state.config), root());
    FairTree::new(&state.policy, &root, |id| state.used(Whose::Association, Tres::Billing, id, now, decay).0).places()
}

/// Returns the rows of `sshare` for all accounts and users.
pub(crate) fn shares(state: &State, now: Time) -> Vec<Share> {
    let (decay, root) = (Decay::of(&state.config), root());
    let used = |tres: Tres| move |id: u32| state.used(Whose::Association, tres, id, now, decay).0;
    let cpus = used(Tres::Cpu);
    let apart = state.usage.contains_key(&(Whose::Association, Tres::Billing));
    let cpu_s = apart.then_some(&cpus as &dyn Fn(u32) -> f64);
    FairTree::new(&state.policy, &root, used(Tres::Billing)).shares(&run_minutes(state, now), cpu_s)
}

/// Minutes of CPUs, of MiB, of nodes and of billing units.
type Minutes = [u64; 4];

/// Returns what running jobs may still use until their time limits, by number of the association. Jobs without a time
/// limit do not count.
fn run_minutes(state: &State, now: Time) -> BTreeMap<u32, Minutes> {
    let mut minutes: BTreeMap<u32, Minutes> = BTreeMap::new();
    for job in state.jobs.values().filter(|job| job.is_running()) {
        let Some(run) = job.run() else {
            invariant!("a running job has resources");
            continue;
        };
        // because a job without an association or a time limit does not count
        let Some(own) = gates::association_of(state, &job.owner, &job.spec, &run.partition) else { continue };
        let Some(limit_s) = facts::time_limit_s(state, job, &run.partition) else { continue };
        let ran_s = run.elapsed(now).0 / 1_000_000;
        let left = limit_s.saturating_sub(ran_s);
        let held = gates::tally_of(&job.spec, run);
        let held = [held.cpus, held.memory_mb, held.nodes, held.billing];
        for (sum, held) in minutes.entry(own.id).or_default().iter_mut().zip(held) {
            *sum += held * left / 60;
        }
    }
    minutes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use squall_model::policy::{Account, AssocKey, Association, Policy, PolicyChange, ROOT, User};

    use crate::control::index::fair::{FairTree, root};

    /// Accounts with shares; users with account, shares and usage.
    fn places(accounts: &[(&str, &str, u32)], users: &[(&str, &str, u32, f64)]) -> BTreeMap<String, f64> {
        let mut policy = Policy::default();
        for (name, parent, shares) in accounts {
            policy.change(&PolicyChange::Account((*name).into(), Some(Account::default())));
            let own = Association { parent: (*parent).into(), shares: Some(*shares), ..Association::default() };
            policy.change(&PolicyChange::Association(AssocKey::account(name), Some(own)));
        }
        for (name, account, shares, _) in users {
            policy.change(&PolicyChange::User((*name).into(), Some(User::default())));
            let own = Association { shares: Some(*shares), ..Association::default() };
            policy.change(&PolicyChange::Association(AssocKey::user(account, name), Some(own)));
        }
        let usage = |id: u32| {
            let key = policy.associations.iter().find(|(_, own)| own.id == id).map(|(key, _)| key.user.clone());
            users.iter().find(|(name, ..)| Some((*name).to_owned()) == key).map_or(0.0, |user| user.3)
        };
        let root = root();
        let places = FairTree::new(&policy, &root, usage).places();
        let name =
            |id: &u32| policy.associations.iter().find(|(_, own)| own.id == *id).map(|(key, _)| key.user.clone());
        places.iter().map(|(id, place)| (name(id).unwrap(), *place)).collect()
    }

    #[test]
    fn the_account_that_is_below_its_share_goes_first_with_all_its_users() {
        let accounts = [("a", ROOT, 1), ("b", ROOT, 1)];
        let users = [("a1", "a", 1, 90.0), ("a2", "a", 1, 0.0), ("b1", "b", 1, 20.0), ("b2", "b", 1, 10.0)];
        let places = places(&accounts, &users);
        let order: Vec<f64> = ["b2", "b1", "a2", "a1"].iter().map(|user| places[*user]).collect();
        assert_eq!(order, [1.0, 0.75, 0.5, 0.25]);
    }

    #[test]
    fn shares_count_and_equals_have_the_same_place() {
        let users = [("x", "a", 3, 30.0), ("y", "a", 1, 10.0), ("z", "a", 1, 40.0)];
        let places = places(&[("a", ROOT, 1)], &users);
        assert_eq!((places["x"], places["y"]), (1.0, 1.0));
        assert!(places["z"] < 0.5);
    }

    #[test]
    fn nobody_has_used_anything() {
        let places = places(&[("a", ROOT, 1), ("b", "a", 5)], &[("x", "a", 1, 0.0), ("y", "b", 1, 0.0)]);
        assert_eq!((places["x"], places["y"]), (1.0, 0.5));
    }
}
