//! The terminal of a top: keys in, screens out. It is left as it was, however the top ends.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stdin, stdout};

use super::keys::{KeyCode, Parser};
use super::screen::Screen;
use crate::command::srun::terminal::{Raw, size};

/// Keeps what the terminal shows, hides the cursor, and cuts lines at the right end.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Ends styles, and takes all that back.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Longest time between two bytes of a key.
const KEY: Duration = Duration::from_millis(25);
/// Most times that keys are read before a screen is shown.
const READS: usize = 16;
/// Most columns and lines that are used.
const MOST: u16 = 1000;

/// The terminal of a top. Dropping it leaves the terminal as it was.
#[derive(Debug)]
pub(super) struct Terminal {
    output: File,
    /// None: it is not known.
    shown: Option<Screen>,
    coloured: bool,
    parser: Parser,
    // Ends after `drop`.
    _raw: Raw,
}

impl Terminal {
    /// Takes the terminal of standard input and output.
    pub(super) fn enter(coloured: bool) -> io::Result<Self> {
        let output = File::from(stdout().try_clone_to_owned()?);
        let again = output.try_clone()?;
        let raw = Raw::enter()?;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = (&again).write_all(LEAVE);
            usual(panic);
        }));
        let mut terminal = Self { output, shown: None, coloured, parser: Parser::default(), _raw: raw };
        terminal.output.write_all(ENTER)?;
        Ok(terminal)
    }

    /// Returns columns and lines.
    pub(super) fn size() -> (usize, usize) {
        let (lines, columns) = match size() {
            // A serial line does not know.
            (0, _) | (_, 0) => (24, 80),
            size => size,
        };
        (columns.min(MOST).into(), lines.min(MOST).into())
    }

    /// Shows a screen.
    pub(super) fn show(&mut self, screen: Screen) -> io::Result<()> {
        self.output.write_all(screen.changes(self.shown.as_ref(), self.coloured).as_bytes())?;
        self.shown = Some(screen);
        Ok(())
    }

    /// Returns the keys that were typed.
    pub(super) fn keys(&mut self) -> io::Result<Vec<KeyCode>> {
        let (mut keys, mut bytes) = (Vec::new(), [0; 256]);
        for _ in 0..READS {
            if !readable(if self.parser.waits() { KEY } else { Duration::ZERO }) {
                self.parser.end(&mut keys);
                break;
            }
            let count = rustix::io::read(stdin(), &mut bytes)?;
            for byte in &bytes[..count] {
                self.parser.push(*byte, &mut keys);
            }
        }
        Ok(keys)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The hook of panics has done it. It fails if the terminal was closed, which needs no message.
        if !std::thread::panicking() {
            let _ = self.output.write_all(LEAVE);
        }
    }
}

/// Returns whether something can be read within this time.
fn readable(within: Duration) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) };
    poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], Some(&limit)).is_ok_and(|count| count > 0)
}
