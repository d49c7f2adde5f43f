//! The next start of a job, for which nodes are kept.

use squall_model::gres::Grant;
use squall_model::resource::Alloc;

/// What a job gets at its next start, which no other job gets before.
#[derive(Clone, Debug)]
pub(crate) struct NextStart {
    pub(crate) partition: String,
    pub(crate) alloc: Alloc,
    pub(crate) gres: Vec<Grant>,
}
