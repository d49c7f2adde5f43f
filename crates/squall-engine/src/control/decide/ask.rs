//! The context of a request, and the result of the function that handles it.

use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::port::{CallerId, Who};

/// The context of a request: time, connection and user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// When the request is handled.
    pub(crate) now: Time,
    /// The client's connection.
    pub(crate) caller: CallerId,
    /// The user who sent the request.
    pub(crate) who: &'a Who,
}

/// What the handler of a request returns: the answer to send now, None if the answer is sent later, or a refusal.
pub(crate) type Reply = Result<Option<Answer>, Refusal>;
