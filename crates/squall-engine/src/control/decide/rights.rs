//! Rights: one function decides which user may do what.

use squall_model::job::Owner;

use crate::control::port::Who;

/// What a user wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed<'a> {
    /// Change, signal or end a job, or read its script: allowed to its owner and operators.
    Job(&'a Owner),
    /// Run steps in an allocation or attach to it: allowed to its owner only, as steps run as the owner.
    Enter(&'a Owner),
    /// Change nodes, partitions, configuration or counters; shut down; raise priorities; release what an operator held:
    /// allowed to operators.
    Operate,
}

/// Returns whether the user `who` may do `deed`.
pub(crate) fn can(who: &Who, deed: Deed<'_>) -> bool {
    match deed {
        Deed::Job(owner) => who.operator || who.owner.uid == owner.uid,
        Deed::Enter(owner) => who.owner.uid == owner.uid,
        Deed::Operate => who.operator,
    }
}
