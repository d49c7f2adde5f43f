//! What must hold of cells and front, whatever dies: compared are what clients were told and what the disks hold.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::event::{Event, Record};
use squall_model::id::{ClientKey, JobId};

use crate::judge::Violation;

/// What is known, and the first thing that was wrong.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// How many submissions clients have wished for.
    pub(super) wishes: u32,
    /// Which wish a key is for.
    pub(super) keys: BTreeMap<ClientKey, u32>,
    /// Jobs that were acknowledged.
    pub(super) promised: BTreeSet<JobId>,
    /// The key under which each was.
    under: BTreeMap<JobId, ClientKey>,
    /// How far each disk was looked at.
    read: BTreeMap<u32, usize>,
    /// What was accepted for each wish: by which cell, as which job.
    accepted: BTreeMap<u32, (u32, JobId)>,
    /// Which wish each id was given for.
    ids: BTreeMap<JobId, u32>,
    pub(super) violation: Option<Box<Violation>>,
}

impl Judge {
    pub(super) fn violate(&mut self, invariant: &'static str, details: String) {
        self.violation.get_or_insert_with(|| Box::new(Violation { invariant, details }));
    }

    /// How many were accepted.
    pub(super) fn count(&self) -> usize {
        self.accepted.len()
    }

    /// What has come to the disks. What was written is never taken back: a crash only takes what was not.
    pub(super) fn survey(&mut self, disks: &[(u32, &[Record])]) {
        for (cell, disk) in disks {
            let from = self.read.insert(*cell, disk.len()).unwrap_or(0);
            for event in disk[from..].iter().flat_map(|record| &record.events) {
                if let Event::JobSubmitted { id, key, .. } = event {
                    self.accepted(*cell, *id, *key);
                }
            }
        }
    }

    fn accepted(&mut self, cell: u32, id: JobId, key: ClientKey) {
        let Some(&wish) = self.keys.get(&key) else {
            return self.violate("what is accepted was asked for", format!("job {id} in cell {cell}"));
        };
        if let Some((other, job)) = self.accepted.insert(wish, (cell, id)) {
            let text = format!("submission {wish} as job {job} in cell {other} and as job {id} in cell {cell}");
            self.violate("nothing is accepted twice", text);
        }
        if let Some(other) = self.ids.insert(id, wish) {
            self.violate("ids are unique", format!("job {id} for submissions {other} and {wish}"));
        }
    }

    /// A client was told that its submission is accepted.
    pub(super) fn acknowledged(&mut self, wish: u32, key: ClientKey, job: JobId) {
        if self.accepted.get(&wish).map(|(_, id)| *id) != Some(job) {
            let text = format!("submission {wish} was acknowledged as job {job}, which no disk holds");
            self.violate("what is acknowledged is durable", text);
        }
        self.promised.insert(job);
        self.under.insert(job, key);
    }

    /// A list came to its end.
    pub(super) fn listed(&mut self, promised: &BTreeSet<JobId>, seen: &BTreeSet<JobId>, absent: &BTreeSet<u32>) {
        let missing = promised.difference(seen).find(|job| !absent.contains(&self.cell_of(**job)));
        if let Some(job) = missing {
            let cell = self.cell_of(*job);
            self.violate("a list shows all jobs or says what it is without", format!("job {job} of cell {cell}"));
        }
    }

    /// The cell whose disk holds a job.
    fn cell_of(&self, job: JobId) -> u32 {
        let wish = self.ids.get(&job);
        wish.and_then(|wish| self.accepted.get(wish)).map_or(u32::MAX, |(cell, _)| *cell)
    }
}
