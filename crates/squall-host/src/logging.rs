//! The daemons' log: one plain line with its time on standard error for each thing worth noting.

use std::io::Write;

use crate::sys::clock;

/// Writes a line.
pub(crate) fn say(text: &str) {
    let line = format!("{} {text}\n", clock::local_text(clock::now()));
    // A daemon whose log can't be written goes on without it.
    drop(std::io::stderr().lock().write_all(line.as_bytes()));
}
