//! Colours of states on a terminal.

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
