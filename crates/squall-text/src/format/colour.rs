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

/// Returns what begins the colour of a state of jobs or nodes, given in its long or its short form. None: the text is no
/// state, or one without a colour.
pub fn of_state(state: &str) -> Option<&'static str> {
    Some(match state {
        silent if silent.ends_with('*') => RED,
        "RUNNING" | "R" | "COMPLETED" | "CD" | "idle" => GREEN,
        "COMPLETING" | "CG" | "allocated" | "alloc" | "mixed" | "mix" | "completing" | "comp" => CYAN,
        "PENDING" | "PD" | "SUSPENDED" | "S" | "CANCELLED" | "CA" | "PREEMPTED" | "PR" | "REQUEUED" | "RQ" => YELLOW,
        "draining" | "drng" | "drained" | "drain" | "maint" | "reserved" | "resv" => YELLOW,
        "FAILED" | "F" | "TIMEOUT" | "TO" | "NODE_FAIL" | "NF" | "BOOT_FAIL" | "BF" | "DEADLINE" | "DL" => RED,
        "OUT_OF_MEMORY" | "OOM" | "down" | "fail" | "failing" | "failg" | "unknown" | "unk" => RED,
        _ => return None,
    })
}
