//! A page of jobs, as `squeue` gets them.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::{JobClass, JobInfo};
use crate::id::JobId;
use crate::job::{JobSpec, Owner};
use crate::time::Time;

/// A page of jobs in an answer to `squeue`. Specifications, owners and classes that several jobs share are sent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobsPage {
    /// Specifications of the jobs, each once. Jobs refer to them by index.
    #[n(0)]
    #[cbor(with = "crate::encoding::arcs")]
    pub specs: Vec<Arc<JobSpec>>,
    /// Owners (users) of the jobs, each once. Jobs refer to them by index.
    #[n(1)]
    #[cbor(with = "crate::encoding::arcs")]
    pub owners: Vec<Arc<Owner>>,
    /// Partition, account and QOS of the jobs, each combination once. Jobs refer to them by index.
    #[n(2)]
    #[cbor(with = "crate::encoding::arcs")]
    pub classes: Vec<Arc<JobClass>>,
    /// The jobs, by rising id.
    #[n(3)]
    pub jobs: Vec<JobInfo>,
    /// Whether another page follows.
    #[n(4)]
    pub more: bool,
    /// Requested job ids for which no job exists.
    #[n(5)]
    pub unknown: Vec<JobId>,
    /// The controller's time when it made the page.
    #[n(6)]
    pub now: Time,
}

impl JobsPage {
    /// Appends the page that follows this one.
    pub fn append(&mut self, page: Self) {
        let count = |list: usize| list as u32;
        let (specs, owners, classes) = (count(self.specs.len()), count(self.owners.len()), count(self.classes.len()));
        self.specs.extend(page.specs);
        self.owners.extend(page.owners);
        self.classes.extend(page.classes);
        self.jobs.extend(page.jobs.into_iter().map(|mut job| {
            job.spec = job.spec.saturating_add(specs);
            job.owner = job.owner.saturating_add(owners);
            job.class = job.class.saturating_add(classes);
            job
        }));
        self.unknown.extend(page.unknown);
        (self.now, self.more) = (page.now, page.more);
    }

    /// Returns partition, account and QOS of one of the page's jobs. None: the index is out of range.
    pub fn class(&self, job: &JobInfo) -> Option<&JobClass> {
        self.classes.get(job.class as usize).map(|class| &**class)
    }
}
