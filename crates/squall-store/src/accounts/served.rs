//! What the accounting thread does if a server keeps the rows.

use super::Keeper;

impl Keeper {
    /// Returns whether a server lacks records that must be read from the journal, and can be stored now.
    pub(super) fn is_behind(&self) -> bool {
        let book = self.book.as_ref().filter(|_| self.dial.is_some() && self.trouble.is_none());
        book.is_some_and(|book| book.position() < self.behind_up_to)
    }

    /// Notes that records were stored.
    pub(super) fn stored(&mut self) {
        if let Some(dial) = &mut self.dial {
            dial.went_well();
        }
        let behind = self.book.as_ref().filter(|_| self.is_behind()).map(|book| self.behind_up_to - book.position());
        *self.fed.signs.lag() = behind
            .map(|records| format!("the records of accounting lag behind by {records} of the journal, and catch up"));
    }

    /// Ends the session with a server after an error. What it lacks is read from the journal when there is another: it may
    /// have lost what was stored last.
    pub(super) fn leave(&mut self, error: &rusqlite::Error) {
        let (Some(book), Some(dial)) = (self.book.take(), &mut self.dial) else { return };
        // A server that was started again since the last word takes a new session.
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::CannotOpen) => dial.lost(&error.to_string()),
            _ => dial.failed(&error.to_string()),
        }
        self.behind_up_to = self.behind_up_to.max(book.position());
    }
}
