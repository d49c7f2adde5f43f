//! Progress of a long computation, shown on standard error if that is a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Width of the progress bar, characters.
const WIDTH: usize = 40;
/// Shortest time between two updates of the bar.
const PAUSE: Duration = Duration::from_millis(100);

/// A progress bar.
#[derive(Debug)]
pub struct Progress {
    all: usize,
    state: Option<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    done: usize,
    drawn: Instant,
    visible: bool,
}

impl Progress {
    /// Creates a bar that shows 0 of `all` units of work.
    pub fn new(all: usize) -> Self {
        let watched = std::io::stderr().is_terminal();
        let state = State { done: 0, drawn: Instant::now(), visible: false };
        Self { all: all.max(1), state: watched.then(|| Mutex::new(state)) }
    }
    /// Adds `count` to the finished units of work, and redraws the bar if `PAUSE` has passed since the last time.
    pub fn more(&self, count: usize) {
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
    /// Removes the bar from the terminal.
    pub fn end(&self) {
        if let Some(Ok(state)) = self.state.as_ref().map(Mutex::lock)
            && state.visible
        {
            eprint!("\r{}\r", " ".repeat(WIDTH + 10));
        }
    }
}
