//! What a user sees of others (`PrivateData`), and of what they have typed.

use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::config::PrivateData;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AdminLevel, AssocKey, Policy};
use squall_model::reservation::{Asker, Reservation};
use squall_model::set::NodeSet;
use squall_model::wire::feed::{FeedEvent, FeedKind};
use squall_model::wire::info::AccountingRow;
use squall_model::wire::priority_info::Share;

use crate::control::port::Who;
use crate::control::state::{Found, State, gates};

/// What one user may see.
#[derive(Clone, Debug)]
pub struct Sight {
    owner: Arc<Owner>,
    /// What is hidden from this user; nothing from operators.
    private: PrivateData,
    /// Whether the user is an operator: operators also see what others have typed.
    operator: bool,
    /// Accounts that the user coordinates, if anything is hidden.
    coordinated: BTreeSet<String>,
    /// Accounts in which the user is, and those above them, if anything is hidden.
    own: BTreeSet<String>,
}

impl Sight {
    /// Returns what a user may see.
    pub(crate) fn of(state: &State, who: &Who) -> Self {
        let (policy, name) = (&state.policy, &who.owner.user);
        let level = policy.users.get(name).map_or(AdminLevel::None, |user| user.admin);
        let operator = who.operator || level >= AdminLevel::Operator;
        let private = if operator { PrivateData::default() } else { state.config.private_data };
        let mut sight =
            Self { owner: who.owner.clone(), private, operator, coordinated: BTreeSet::new(), own: BTreeSet::new() };
        if private != PrivateData::default() {
            let names = policy.accounts.keys().filter(|account| coordinates(policy, name, account));
            sight.coordinated = names.cloned().collect();
            let keys = policy.associations.keys().filter(|key| key.user == *name);
            let above = keys.flat_map(|key| policy.above(&key.account).map(|(name, _)| name.to_owned()));
            sight.own = above.collect();
        }
        sight
    }

    /// Returns the sight of an operator.
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        let (coordinated, own) = Default::default();
        Self { owner: Arc::default(), private: PrivateData::default(), operator: true, coordinated, own }
    }

    /// Returns whether the user sees a job of `owner` in `account`.
    pub(crate) fn job(&self, owner: &Owner, account: &str) -> bool {
        !self.private.jobs || self.is_close(owner.uid, account)
    }

    /// Returns whether the user sees the job, array or array task `id`; false also if there is none.
    pub(crate) fn shows(&self, state: &State, id: JobId) -> bool {
        if !self.private.jobs {
            return true;
        }
        let array = state.arrays.get(&id).map(|array| (&array.owner, &array.spec));
        let found = array.or_else(|| match state.find(id)? {
            Found::Job(job) => Some((&job.owner, &job.spec)),
            Found::Untouched(array, _) => Some((&array.owner, &array.spec)),
        });
        found.is_some_and(|(owner, spec)| self.job(owner, gates::account_of(state, spec)))
    }

    /// Returns whether the user sees nodes.
    pub(crate) fn nodes(&self) -> bool {
        !self.private.nodes
    }

    /// Returns whether the user sees partitions.
    pub(crate) fn partitions(&self) -> bool {
        !self.private.partitions
    }

    /// Returns whether the user sees a reservation.
    pub(crate) fn reservation(&self, reservation: &Reservation) -> bool {
        let accounts: Vec<&str> = self.own.iter().map(String::as_str).chain([""]).collect();
        let who = Asker { owner: &self.owner, accounts: &accounts, qos: None, partitions: &[] };
        !self.private.reservations || reservation.admits_user(who)
    }

    /// Returns whether the user sees what has happened to nodes, reservations and accounts. Cluster-wide sums are made
    /// from it and from all jobs, so it is hidden with any of these.
    pub fn history(&self) -> bool {
        let PrivateData { accounts, events, jobs, reservations, usage, users, .. } = self.private;
        ![accounts, events, jobs, reservations, usage, users].contains(&true)
    }

    /// Returns the only user whose counts of requests the user sees. None: those of all. They tell who is active, and are
    /// hidden with jobs, usage or users.
    pub(crate) fn only_user(&self) -> Option<u32> {
        let PrivateData { jobs, usage, users, .. } = self.private;
        (jobs || usage || users).then_some(self.owner.uid)
    }

    /// Returns whether the user sees a line of `sshare`.
    pub(crate) fn share(&self, share: &Share) -> bool {
        let PrivateData { usage, users, .. } = self.private;
        let coordinated = self.coordinated.contains(&share.account);
        if share.user.is_empty() {
            return !usage || coordinated || self.own.contains(&share.account) || share.depth == 0;
        }
        !(usage || users) || share.user == self.owner.user || coordinated
    }

    /// Returns whether the user sees an event of the cluster.
    pub(crate) fn event(&self, state: &State, event: &FeedEvent, nodes: &NodeSet) -> bool {
        if let Some(job) = &event.job {
            return !self.private.jobs || self.is_close(job.uid, &job.account);
        }
        match event.kind {
            FeedKind::ReservationChanged | FeedKind::ReservationEnded => {
                let known = state.reservations.get(&event.name);
                !self.private.reservations || known.is_some_and(|known| self.reservation(known))
            }
            FeedKind::PartitionChanged | FeedKind::PartitionDeleted => self.partitions(),
            // Others are about nodes, or about the controller.
            _ => nodes.is_empty() || self.nodes(),
        }
    }

    /// Leaves out of accounts, users and associations what the user may not see.
    pub(crate) fn screen(&self, policy: &mut Policy) {
        let PrivateData { accounts, users, .. } = self.private;
        let (name, coordinated) = (&self.owner.user, &self.coordinated);
        let shows = |key: &AssocKey| match key.user.as_str() {
            "" => !accounts || coordinated.contains(&key.account),
            user => !users || user == name || coordinated.contains(&key.account),
        };
        if accounts {
            policy.accounts.retain(|account, _| coordinated.contains(account));
        }
        if users {
            let of = policy.associations.keys().filter(|key| coordinated.contains(&key.account));
            let led: BTreeSet<String> = of.map(|key| key.user.clone()).collect();
            policy.users.retain(|user, _| user == name || led.contains(user));
        }
        policy.associations.retain(|key, _| shows(key));
    }

    /// Removes from a row of accounting what the user may not see. False: the user may not see the row.
    pub fn row(&self, row: &mut AccountingRow) -> bool {
        if (self.private.jobs || self.private.usage) && !self.is_close(row.owner.uid, &row.account) {
            return false;
        }
        if !self.reads(&row.owner) {
            if let Some(line) = without_values(&row.submit_line) {
                row.submit_line = line;
            }
            row.spec = self.typed(&row.spec, &row.owner);
        }
        true
    }

    /// Returns the specification of a job without the values of variables that its user has typed, unless the user
    /// may read them.
    pub(crate) fn typed(&self, spec: &Arc<JobSpec>, owner: &Owner) -> Arc<JobSpec> {
        if self.reads(owner) {
            return spec.clone();
        }
        let line = without_values(&spec.submit_line);
        let export = spec.options.shown.export.as_deref().and_then(hidden);
        if line.is_none() && export.is_none() {
            return spec.clone();
        }
        let mut spec = (**spec).clone();
        if let Some(line) = line {
            spec.submit_line = line;
        }
        if export.is_some() {
            spec.options.shown.export = export;
        }
        Arc::new(spec)
    }

    /// Whether the user may read what the owner of a job has typed.
    fn reads(&self, owner: &Owner) -> bool {
        self.operator || owner.uid == self.owner.uid
    }

    /// Whether something belongs to the user, or to an account that the user coordinates.
    fn is_close(&self, uid: u32, account: &str) -> bool {
        uid == self.owner.uid || self.coordinated.contains(account)
    }
}

/// Returns whether a user coordinates an account or one above it.
pub(crate) fn coordinates(policy: &Policy, user: &str, account: &str) -> bool {
    let mut above = policy.above(account).filter_map(|(name, _)| policy.accounts.get(name));
    above.any(|account| account.coordinators.iter().any(|name| name == user))
}

/// Returns a command line without the values of variables in `--export`; None: it has none. As arguments are not
/// quoted in it, a value may contain spaces: so all that follows is left out.
fn without_values(line: &str) -> Option<String> {
    let mut from = 0;
    while let Some(at) = line[from..].find("--exp").map(|at| from + at) {
        let name_end = line[at..].find(['=', ' ']).map_or(line.len(), |end| at + end);
        from = name_end;
        let begins = at == 0 || line[..at].ends_with(' ');
        if begins && "--export".starts_with(&line[at..name_end]) {
            let value = (name_end + 1).min(line.len());
            let end = line[value..].find(' ').map_or(line.len(), |end| value + end);
            if let Some(kept) = hidden(&line[value..end]) {
                return Some(format!("{}{kept}", &line[..value]));
            }
        }
    }
    None
}

/// Returns a list of variables as in `--export` up to the first value; None: it has no value.
fn hidden(list: &str) -> Option<String> {
    list.split_once('=').map(|(names, _)| format!("{names}=..."))
}

#[cfg(test)]
mod tests {
    use super::without_values;

    #[test]
    fn values_of_variables_are_hidden() {
        let shown = |line: &str| without_values(line).unwrap_or_else(|| line.to_owned());
        assert_eq!(shown("sbatch --export=ALL,SECRET=hunter2 job.sh"), "sbatch --export=ALL,SECRET=...");
        assert_eq!(shown("sbatch --export ALL,SECRET=two words job.sh"), "sbatch --export ALL,SECRET=...");
        assert_eq!(shown("sbatch --expor=A=1,B=2"), "sbatch --expor=A=...");
        for line in ["sbatch --export=ALL job.sh --export", "sbatch --export-file=a=b x", "srun a--export=b=c", ""] {
            assert_eq!(shown(line), line);
        }
    }
}
