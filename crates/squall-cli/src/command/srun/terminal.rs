//! The user's terminal while a task has one of its own: every key goes through, the size follows.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal in raw mode; as it was before, at the end.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// Puts standard input's terminal into raw mode.
    pub(crate) fn enter() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        let (again, usual) = (before.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            let _ = tcsetattr(stdin, OptionalActions::Now, &again);
            usual(panic);
        }));
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The terminal may be gone; there is nobody left to tell.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Rows and columns of standard input's terminal.
pub(crate) fn size() -> (u16, u16) {
    tcgetwinsize(rustix::stdio::stdin()).map_or((24, 80), |size| (size.ws_row, size.ws_col))
}
