//! Colours of states on a terminal.

use std::borrow::Cow;

/// Ends a colour.
pub const END: &str = "\u{1b}[0m";
/// Begins red: failed, down, not answering.
pub const RED: &str = "\u{1b}[31m";
/// Begins green: running, completed, idle.
pub const GREEN: &str = "\u{1b}[32m";
/// Begins yellow: waiting, stopped by a person or for another job.
pub const YELLOW: &str = "\u{1b}[33m";
/// Begins cyan: nodes in use, jobs that end.
pub const CYAN: &str = "\u{1b}[36m";

/// States of jobs and nodes in their long and short forms, by colour.
const STATES: [(&str, &str); 4] = [
    (GREEN, "RUNNING R COMPLETED CD idle"),
    (CYAN, "COMPLETING CG allocated alloc mixed mix completing comp"),
    (
        YELLOW,
        "PENDING PD SUSPENDED S CANCELLED CA PREEMPTED PR REQUEUED RQ draining drng drained drain maint reserved resv",
    ),
    (
        RED,
        "FAILED F TIMEOUT TO NODE_FAIL NF BOOT_FAIL BF DEADLINE DL OUT_OF_MEMORY OOM down fail failing failg unknown unk",
    ),
];

/// Returns what begins the colour of a state of jobs or nodes. None: the text is no state, or one without a colour.
pub fn of_state(state: &str) -> Option<&'static str> {
    // The node does not answer.
    if state.ends_with('*') {
        return Some(RED);
    }
    STATES.iter().find(|(_, states)| states.split(' ').any(|known| known == state)).map(|(colour, _)| *colour)
}

/// Replaces control characters other than ends of lines, tabs and the colours above by `?`, for a terminal: whatever a
/// text was made of, it controls nothing.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && !['\n', '\t'].contains(&c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let (mut cleaned, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let own = [END, RED, GREEN, YELLOW, CYAN].into_iter().find(|code| rest.starts_with(code));
        let length = own.map_or(c.len_utf8(), str::len);
        cleaned.push_str(if own.is_none() && harmful(c) { "?" } else { &rest[..length] });
        rest = &rest[length..];
    }
    Cow::Owned(cleaned)
}

#[cfg(test)]
mod tests {
    use super::{END, RED, clean};

    // Regression test of attack B1.
    #[test]
    fn b1_nothing_but_colours_and_lines_reaches_a_terminal() {
        let own = format!("a\tb {RED}down{END}\n");
        assert_eq!(clean(&own), own);
        assert_eq!(clean("x\u{1b}]0;title\u{7}\r\u{9b}2J\u{1b}[31"), "x?]0;title???2J?[31");
    }
}
