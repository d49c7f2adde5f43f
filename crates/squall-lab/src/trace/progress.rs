//! How far a long computation is, on standard error where a person watches.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Cells of the bar.
const WIDTH: usize = 40;
/// No more often than this it is drawn.
const PAUSE: Duration = Duration::from_millis(100);

/// A bar.
pub(super) struct Progress {
    all: usize,
    state: Option<Mutex<State>>,
}

struct State {
    done: usize,
    drawn: Instant,
    visible: bool,
}

impl Progress {
    /// Of so much nothing is done.
    pub(super) fn new(all: usize) -> Self {
        let watched = std::io::stderr().is_terminal();
        let state = State { done: 0, drawn: Instant::now(), visible: false };
        Self { all: all.max(1), state: watched.then(|| Mutex::new(state)) }
    }
    /// So much more is done.
    pub(super) fn more(&self, count: usize) {
        let Some(Ok(mut state)) = self.state.as_ref().map(Mutex::lock) else { return };
        state.done += count;
        if state.drawn.elapsed() >= PAUSE {
            (state.drawn, state.visible) = (Instant::now(), true);
            let cells = (state.done * WIDTH / self.all).min(WIDTH);
            let (bar, rest) = ("#".repeat(cells), "-".repeat(WIDTH - cells));
            eprint!("\r[{bar}{rest}] {:3} %", state.done * 100 / self.all);
            let _ = std::io::stderr().flush();
        }
    }
    /// The line is cleared.
    pub(super) fn end(&self) {
        if let Some(Ok(state)) = self.state.as_ref().map(Mutex::lock)
            && state.visible
        {
            eprint!("\r{}\r", " ".repeat(WIDTH + 10));
        }
    }
}
