//! `squall sim`: replays traces; with the simulator it also runs stories and random worlds.

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use squall_replay::trace::PAGE;
use squall_replay::trace::{self, is_meant};
use squall_text::format::harmless_lines;

/// Runs `squall sim`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if is_meant(args) { replay("squall sim", args) } else { simulate(args) }
}

/// Replays the trace that the arguments name. `command`: the name for errors.
pub(crate) fn replay(command: &str, args: &[OsString]) -> ExitCode {
    match trace::run(args) {
        Ok(text) => {
            crate::hall::print(&text);
            ExitCode::SUCCESS
        }
        Err(failed) => {
            eprintln!("{command}: error: {}", harmless_lines(&failed.text));
            ExitCode::from(failed.code)
        }
    }
}

#[cfg(feature = "bench")]
fn simulate(args: &[OsString]) -> ExitCode {
    squall_lab::sim::run(args)
}

#[cfg(not(feature = "bench"))]
fn simulate(args: &[OsString]) -> ExitCode {
    if PAGE.parse(args).is_ok_and(|given| given.has("help")) {
        crate::hall::print(&PAGE.help());
        return ExitCode::SUCCESS;
    }
    eprintln!("squall sim: error: this program runs traces (TRACE.swf) only; `make lab` builds one with the simulator");
    ExitCode::from(2)
}
