//! Output of all commands.

use std::io::{IsTerminal, Write};

use squall_model::plain::plain;
use squall_text::format::colour::clean;

/// Writes to standard output; a closed pipe is no error. On a terminal no control characters come out.
pub(crate) fn print(text: &str) {
    let (text, mut out) = (plain(text), std::io::stdout());
    drop(out.write_all(if out.is_terminal() { clean(&text) } else { text.as_str().into() }.as_bytes()));
}

/// Writes to standard error without buffering and without control characters; a closed pipe is no error.
pub(crate) fn complain(text: &str) {
    drop(std::io::stderr().write_all(clean(&plain(text)).as_bytes()));
}
