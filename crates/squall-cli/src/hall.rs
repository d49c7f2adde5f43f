//! Output of all commands.

use std::io::{IsTerminal, Write};

use squall_model::plain::plain;
use squall_text::format::colour::clean;
use squall_text::hints::{self, Hint};

/// Writes to standard output; a closed pipe is no error. On a terminal no control characters come out.
pub(crate) fn print(text: &str) {
    let (text, mut out) = (plain(text), std::io::stdout());
    drop(out.write_all(if out.is_terminal() { clean(&text) } else { text.as_str().into() }.as_bytes()));
}

/// Writes to standard error without buffering and without control characters; a closed pipe is no error.
pub(crate) fn complain(text: &str) {
    drop(std::io::stderr().write_all(clean(&plain(text)).as_bytes()));
}

/// Writes hints of the command `name` to standard error, if the user wants them.
pub(crate) fn hint(name: &str, all: impl IntoIterator<Item = Hint>) {
    if hints_wanted() {
        all.into_iter().for_each(|hint| complain(&format!("{name}: hint: {hint}\n")));
    }
}

/// Returns whether hints are printed: on a terminal, unless a variable decides.
pub(crate) fn hints_wanted() -> bool {
    hints::are_wanted(std::env::var(hints::VARIABLE).ok().as_deref(), std::io::stderr().is_terminal())
}
