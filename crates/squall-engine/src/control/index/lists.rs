//! Job lists of which clients have not received all pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::JobId;
use squall_model::job::Outcome;
use squall_model::limits::ANSWER_JOBS_MAX;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::JobSelection;

use crate::control::index::page::Pages;
use crate::control::index::privacy::Sight;
use crate::control::port::CallerId;

/// Unfinished job lists; they take turns, a page each.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) open: VecDeque<(CallerId, List)>,
    /// Maximum number of jobs in a page.
    pub(crate) page: usize,
}

impl Default for Lists {
    fn default() -> Self {
        Self { open: VecDeque::new(), page: ANSWER_JOBS_MAX }
    }
}

impl Lists {
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Moves the first list with a ready client to the front, and those before it to the end. Returns false if no
    /// client is ready.
    pub(crate) fn turn(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        let first = self.open.iter().position(|(caller, _)| ready(*caller));
        self.open.rotate_left(first.unwrap_or_default());
        first.is_some()
    }

    /// Drops the lists of a client after its connection has ended.
    pub(crate) fn hangup(&mut self, caller: CallerId) {
        self.open.retain(|(of, _)| *of != caller);
    }
}

/// A list of jobs for a client, and how far it has been sent.
#[derive(Debug)]
pub(crate) struct List {
    /// What the client may see.
    pub(crate) sight: Sight,
    pub(crate) wanted: JobSelection,
    pub(crate) ended: bool,
    pub(crate) steps: bool,
    /// The content of the list; None: no page was made yet.
    pub(crate) chosen: Option<Chosen>,
    /// Array tasks that were sent as one entry, by array. They are not sent again if they get a record of their own
    /// meanwhile.
    pub(crate) told: BTreeMap<JobId, IndexSet>,
    /// All jobs with lower ids have been sent.
    pub(crate) next: JobId,
    pub(crate) pages: Pages,
}

/// The content of a list, fixed when its first page is made.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Ids of the single jobs that the client named; None: the client named none, and all jobs that match are sent.
    pub(crate) named: Option<BTreeSet<JobId>>,
    /// Array tasks that are sent as one entry and were not sent yet; the array with the lowest id last.
    pub(crate) tasks: Vec<Tasks>,
    /// Ids that the client named and that don't exist.
    pub(crate) unknown: Vec<JobId>,
}

/// Tasks of an array that never started, sent as one entry, with outcome and end time if they have ended.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(crate) array: JobId,
    pub(crate) indices: IndexSet,
    pub(crate) ended: Option<(Outcome, Time)>,
}
