//! Who asks, and what a verb returns.

use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::port::{CallerId, Who};

/// Who asks, when, on which connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// When.
    pub(crate) now: Time,
    /// On which connection.
    pub(crate) caller: CallerId,
    /// Who.
    pub(crate) who: &'a Who,
}

/// What a verb returns: an answer, or None if it comes later.
pub(crate) type Reply = Result<Option<Answer>, Refusal>;
