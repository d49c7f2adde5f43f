//! Accounting rows for a client, without what it may not see.

use squall_engine::control::Sight;
use squall_model::wire::client::Answer;
use squall_store::accounts::Reply;

use crate::link::Outgoing;

/// A client that queries accounting.
pub(super) struct AccountingClient {
    /// The client's connection.
    pub(super) out: Outgoing,
    /// What the client may see.
    pub(super) sight: Sight,
}

impl Reply for AccountingClient {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn push(&self, mut answer: Answer) {
        if let Answer::Accounting { rows, .. } = &mut answer {
            rows.retain_mut(|row| self.sight.row(row));
        }
        if self.out.push(&answer).is_err() {
            self.out.close();
        }
    }
}
