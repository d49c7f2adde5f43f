//! What each user has of the queue, and of the room for what jobs bring.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::job::JobSpec;
use squall_model::limits::CONTENT_BYTES_FREE;

/// What one user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Jobs that have not ended, array tasks one each.
    pub jobs: u64,
    /// Bytes that jobs have brought with them, of all that are known.
    pub content: u64,
}

/// What users have; those who have nothing are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<u32, Share>);

impl Users {
    /// What a user has.
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

    /// Adds what was counted elsewhere.
    pub(crate) fn absorb(&mut self, other: &Self) {
        for (&uid, more) in &other.0 {
            self.change(uid, |share| {
                share.jobs += more.jobs;
                share.content += more.content;
            });
        }
    }
}

/// How much a job has brought; nothing if it is little.
pub(crate) fn content_of(spec: &JobSpec) -> u64 {
    spec.options.get().map_or(0, |chosen| chosen.content_bytes)
}

/// Notes how much a job brings, with its arguments. What a client says of that does not count.
pub(crate) fn note_content(spec: &mut Arc<JobSpec>, bytes: usize) {
    let bytes = bytes as u64 + spec.args.iter().map(|arg| arg.len() as u64).sum::<u64>();
    let noted = if bytes > CONTENT_BYTES_FREE { bytes } else { 0 };
    if content_of(spec) != noted {
        Arc::make_mut(spec).options.content_bytes = noted;
    }
}
