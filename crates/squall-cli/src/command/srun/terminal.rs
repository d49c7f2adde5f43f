//! The user's terminal while a task has a terminal of its own: all keys go to the task, changes of size are forwarded.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal in raw mode. Dropping it restores the previous mode.
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
        // Fails if the terminal was closed, which needs no message.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Returns rows and columns of standard input's terminal; 24 and 80 if there is none.
pub(crate) fn size() -> (u16, u16) {
    tcgetwinsize(rustix::stdio::stdin()).map_or((24, 80), |size| (size.ws_row, size.ws_col))
}
