//! Values that are signals, by name or number, and `--signal=[{R|B}:]SIGNAL[@SECONDS]`.

use squall_model::job::SignalSpec;

/// Linux's signals: number, name without `SIG`, and the C library's description (strsignal).
const SIGNALS: [(i32, &str, &str); 31] = [
    (1, "HUP", "Hangup"),
    (2, "INT", "Interrupt"),
    (3, "QUIT", "Quit"),
    (4, "ILL", "Illegal instruction"),
    (5, "TRAP", "Trace/breakpoint trap"),
    (6, "ABRT", "Aborted"),
    (7, "BUS", "Bus error"),
    (8, "FPE", "Floating point exception"),
    (9, "KILL", "Killed"),
    (10, "USR1", "User defined signal 1"),
    (11, "SEGV", "Segmentation fault"),
    (12, "USR2", "User defined signal 2"),
    (13, "PIPE", "Broken pipe"),
    (14, "ALRM", "Alarm clock"),
    (15, "TERM", "Terminated"),
    (16, "STKFLT", "Stack fault"),
    (17, "CHLD", "Child exited"),
    (18, "CONT", "Continued"),
    (19, "STOP", "Stopped (signal)"),
    (20, "TSTP", "Stopped"),
    (21, "TTIN", "Stopped (tty input)"),
    (22, "TTOU", "Stopped (tty output)"),
    (23, "URG", "Urgent I/O condition"),
    (24, "XCPU", "CPU time limit exceeded"),
    (25, "XFSZ", "File size limit exceeded"),
    (26, "VTALRM", "Virtual timer expired"),
    (27, "PROF", "Profiling timer expired"),
    (28, "WINCH", "Window changed"),
    (29, "IO", "I/O possible"),
    (30, "PWR", "Power failure"),
    (31, "SYS", "Bad system call"),
];

/// How long before the time limit a signal is sent if `--signal` gives no time, seconds.
const BEFORE_DEFAULT_S: u32 = 60;

/// Returns the number of a signal given as `USR1`, `SIGUSR1` (in either case) or `10`. None: unknown.
pub fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let name = if name == "IOT" { "ABRT" } else { name };
    SIGNALS.iter().find(|(_, known, _)| *known == name).map(|(number, ..)| *number)
}

/// Returns the name of a signal, without `SIG`; empty: it has none.
pub fn signal_name(number: i32) -> &'static str {
    SIGNALS.iter().find(|(known, ..)| *known == number).map_or("", |(_, name, _)| name)
}

/// Returns the C library's description of a signal: `Killed`.
pub fn signal_text(number: i32) -> String {
    match SIGNALS.iter().find(|(known, ..)| *known == number) {
        Some((_, _, text)) => (*text).to_owned(),
        None if number >= 34 => format!("Real-time signal {}", number - 34),
        None => format!("Unknown signal {number}"),
    }
}

/// Reads the value of `--signal`. None: malformed.
pub fn signal_spec(text: &str) -> Option<SignalSpec> {
    let (flags, rest) = text.split_once(':').unwrap_or(("", text));
    if !flags.chars().all(|c| matches!(c, 'B' | 'b' | 'R' | 'r')) || (flags.is_empty() && text.contains(':')) {
        return None;
    }
    let (name, before_s) = match rest.split_once('@') {
        Some((name, seconds)) => (name, seconds.parse::<u16>().ok()?.into()),
        None => (rest, BEFORE_DEFAULT_S),
    };
    Some(SignalSpec { signal: signal_number(name)?, before_s, batch_only: flags.contains(['B', 'b']) })
}

#[cfg(test)]
mod tests {
    use squall_model::job::SignalSpec;

    use super::{signal_number, signal_spec, signal_text};

    #[test]
    fn signals_by_name_and_number() {
        for (text, number) in [("USR1", 10), ("sigusr2", 12), ("9", 9), ("INT", 2), ("SIGRTMIN", 0), ("0", 0), ("x", 0)]
        {
            assert_eq!(signal_number(text).unwrap_or(0), number, "{text}");
        }
        assert_eq!(signal_text(9), "Killed");
        assert_eq!(signal_text(35), "Real-time signal 1");
    }

    #[test]
    fn signal_option() {
        let spec = |signal, before_s, batch_only| Some(SignalSpec { signal, before_s, batch_only });
        assert_eq!(signal_spec("B:USR2@30"), spec(12, 30, true));
        assert_eq!(signal_spec("USR2@90"), spec(12, 90, false));
        assert_eq!(signal_spec("TERM"), spec(15, 60, false));
        assert_eq!(signal_spec("R:10"), spec(10, 60, false));
        assert_eq!(signal_spec("RB:10@5"), spec(10, 5, true));
        for text in ["", "X:USR1", "NOPE", "USR1@", "USR1@x", "USR1@70000", ":USR1", "B:"] {
            assert_eq!(signal_spec(text), None, "{text}");
        }
    }
}
