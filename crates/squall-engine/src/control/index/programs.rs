//! Programs around jobs that run now, as far as jobs wait for them. Soft state.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::JobId;
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;

/// Programs that jobs wait for.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Jobs for which a program runs on this host.
    pub(crate) running: BTreeSet<JobId>,
    /// Nodes on which the prolog of an attempt has succeeded, for jobs that wait for all of theirs. Nodes repeat this
    /// in each session.
    pub(crate) ready: BTreeMap<JobAttempt, NodeSet>,
}
