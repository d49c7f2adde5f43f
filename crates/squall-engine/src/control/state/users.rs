//! Number of jobs and size of stored content of each user.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::job::{JobSpec, Owner};
use squall_model::limits::CONTENT_BYTES_FREE;

/// Number of jobs and size of stored content of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of jobs that have not ended, each array task counted.
    pub jobs: u64,
    /// Bytes of content (scripts, environments, arguments) of all the user's jobs that have a record, ended ones too.
    /// Jobs with little content are not counted.
    pub content: u64,
}

/// Jobs and content by uid; a user who has nothing has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<u32, Share>);

impl Users {
    /// Returns what a user has; zeros if there is no entry.
    pub(crate) fn of(&self, uid: u32) -> Share {
        self.0.get(&uid).copied().unwrap_or_default()
    }

    pub(crate) fn change(&mut self, uid: u32, change: impl FnOnce(&mut Share)) {
        let share = self.0.entry(uid).or_default();
        change(share);
        if *share == Share::default() {
            self.0.remove(&uid);
        }
    }

    /// Returns the uids of users with jobs that have not ended.
    pub(crate) fn with_jobs(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter(|(_, share)| share.jobs > 0).map(|(uid, _)| *uid)
    }

    /// Adds what the users of another table have.
    pub(crate) fn absorb(&mut self, other: &Self) {
        for (&uid, more) in &other.0 {
            self.change(uid, |share| {
                share.jobs += more.jobs;
                share.content += more.content;
            });
        }
    }
}

/// The groups of users as their accounts have them now, by uid. Jobs start with these. Two tables always count as equal, as
/// the state does not depend on them.
#[derive(Clone, Debug, Default)]
pub struct Groups(BTreeMap<u32, Vec<u32>>);

impl PartialEq for Groups {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Groups {}

impl Groups {
    /// Takes what was looked up; earlier entries are forgotten.
    pub(crate) fn note(&mut self, users: Vec<(u32, Vec<u32>)>) {
        self.0 = users.into_iter().collect();
    }

    /// Takes the groups of a user who makes a request: they are newer than what was looked up.
    pub(crate) fn refresh(&mut self, owner: &Owner) {
        if let Some(known) = self.0.get_mut(&owner.uid).filter(|known| **known != owner.groups) {
            known.clone_from(&owner.groups);
        }
    }

    /// Returns a job's owner with the groups of now. The first group stays the one of the submission, which `--gid` may
    /// have chosen. A user whose groups are not known keeps those of the submission.
    pub(crate) fn of_now(&self, owner: &Arc<Owner>) -> Arc<Owner> {
        let Some(now) = self.0.get(&owner.uid) else { return Arc::clone(owner) };
        // Nearly always so, and looked at for each start.
        if *now == owner.groups {
            return Arc::clone(owner);
        }
        let is_now = |group: &u32| *group == owner.gid || now.contains(group);
        if owner.groups.iter().all(is_now) && now.iter().all(|group| owner.groups.contains(group)) {
            return Arc::clone(owner);
        }
        let others = now.iter().copied().filter(|group| *group != owner.gid);
        Arc::new(Owner { groups: std::iter::once(owner.gid).chain(others).collect(), ..(**owner).clone() })
    }
}

/// Returns the bytes of content of a job (script, environment, arguments); 0 if they are too few to be counted.
pub(crate) fn content_of(spec: &JobSpec) -> u64 {
    spec.options.get().map_or(0, |chosen| chosen.content_bytes)
}

/// Writes into a spec how many bytes of content the job has: `bytes`, those of the arguments, and those of variables for
/// prologs. Replaces what a client may have written there.
pub(crate) fn note_content(spec: &mut Arc<JobSpec>, bytes: usize) {
    let variables = spec.options.get().map_or(&[][..], |chosen| &chosen.plugin_env);
    let variables = variables.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum::<u64>();
    let bytes = bytes as u64 + variables + spec.args.iter().map(|arg| arg.len() as u64).sum::<u64>();
    let noted = if bytes > CONTENT_BYTES_FREE { bytes } else { 0 };
    if content_of(spec) != noted {
        Arc::make_mut(spec).options.content_bytes = noted;
    }
}
