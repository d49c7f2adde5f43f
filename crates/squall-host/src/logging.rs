//! The daemons' log: one plain line with its time on standard error for each thing worth noting.

use std::borrow::Cow;
use std::io::Write;

use crate::sys::clock;

/// Writes a line. Control characters, which may come from users, are escaped: nobody can write a second line, nor
/// colour what a terminal shows.
pub(crate) fn say(text: &str) {
    let line = format!("{} {}\n", clock::local_text(clock::now()), one_line(text));
    // A daemon whose log can't be written goes on without it.
    drop(std::io::stderr().lock().write_all(line.as_bytes()));
}

fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    Cow::Owned(line)
}

/// Characters that end lines, or make a terminal do something: also those that reorder text.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::one_line;

    /// faults.md M9
    #[test]
    fn m9_no_text_makes_a_second_line_of_a_log() {
        let forged = one_line("/nope/a\n2026-11-25T00:00:00 node n1: FAKE\x1b[31m\r\u{9b}2J\u{202e}");
        assert_eq!(forged, "/nope/a\\n2026-11-25T00:00:00 node n1: FAKE\\u{1b}[31m\\r\\u{9b}2J\\u{202e}");
        assert_eq!(one_line("/home/Zoë/\\n 'x'"), "/home/Zoë/\\n 'x'", "all else stays");
    }
}
