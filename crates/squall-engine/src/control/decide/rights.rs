//! Who may do what: one function, no by default.

use squall_model::job::Owner;

use crate::control::port::Who;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed<'a> {
    /// Change, signal, end a job, or read its script: its owner or an operator.
    Job(&'a Owner),
    /// Run steps in an allocation, attach to it: its owner alone (they run as the owner).
    Enter(&'a Owner),
    /// Change nodes, partitions, configuration, counters; shut down; raise priorities; release what an operator held.
    Operate,
}

/// Whether `who` may do `deed`.
pub(crate) fn can(who: &Who, deed: Deed<'_>) -> bool {
    match deed {
        Deed::Job(owner) => who.operator || who.owner.uid == owner.uid,
        Deed::Enter(owner) => who.owner.uid == owner.uid,
        Deed::Operate => who.operator,
    }
}
