//! Lists of jobs of which there is more to tell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::JobId;
use squall_model::job::Outcome;
use squall_model::limits::ANSWER_JOBS_MAX;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::JobSelection;

use crate::control::index::page::Pages;
use crate::control::port::CallerId;

/// Lists of which there is more to tell, in turn.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) open: VecDeque<(CallerId, List)>,
    /// Most jobs of a page.
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

    /// Brings the first list whose caller is ready to the front. False: there is none.
    pub(crate) fn turn(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        let first = self.open.iter().position(|(caller, _)| ready(*caller));
        self.open.rotate_left(first.unwrap_or_default());
        first.is_some()
    }

    /// A client's connection has ended.
    pub(crate) fn hangup(&mut self, caller: CallerId) {
        self.open.retain(|(of, _)| *of != caller);
    }
}

/// A list, and how far it is.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) wanted: JobSelection,
    pub(crate) ended: bool,
    pub(crate) steps: bool,
    /// None: it has not begun.
    pub(crate) chosen: Option<Chosen>,
    /// Tasks that are entries together and were told: what becomes of them meanwhile must not be told, too.
    pub(crate) told: BTreeMap<JobId, IndexSet>,
    /// Jobs with lower ids are done with.
    pub(crate) next: JobId,
    pub(crate) pages: Pages,
}

/// What is in a list, as it stands when that begins.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Jobs of their own that were named; None: all that fit.
    pub(crate) named: Option<BTreeSet<JobId>>,
    /// Tasks that are entries together and were not told yet; the array with the lowest id last.
    pub(crate) tasks: Vec<Tasks>,
    /// What was named and is not known.
    pub(crate) unknown: Vec<JobId>,
}

/// Tasks of an array that never started; and how they ended, if they did.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(crate) array: JobId,
    pub(crate) indices: IndexSet,
    pub(crate) ended: Option<(Outcome, Time)>,
}
