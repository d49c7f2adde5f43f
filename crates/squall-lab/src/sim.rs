//! `squall sim` of what needs the simulator: stories, and in a laboratory's build random worlds and planted bugs.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_replay::trace::{OF_TRACES, PAGE, WORLD};
use squall_text::options::flag::Arguments;

/// Runs `squall sim` for anything but a trace.
pub fn run(args: &[OsString]) -> ExitCode {
    let ran = PAGE.parse(args).and_then(|given| simulate(&given));
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("squall sim: error: {problem}; see `squall sim --help`");
            ExitCode::from(2)
        }
    }
}

/// Returns whether all that was simulated holds.
fn simulate(given: &Arguments) -> Result<bool, String> {
    if given.has("help") {
        crate::print(&PAGE.help());
        return Ok(true);
    }
    if let Some(option) = OF_TRACES.iter().find(|name| given.has(name)) {
        return Err(format!("--{option} is for a workload trace (TRACE.swf)"));
    }
    if let Some(option) = WORLD.iter().find(|name| given.has(name)) {
        return worlds(given, option);
    }
    if given.operands.is_empty() {
        return Err("nothing to simulate".into());
    }
    Ok(given.operands.iter().filter(|file| !story(file)).count() == 0)
}

#[cfg(feature = "research")]
fn worlds(given: &Arguments, _: &str) -> Result<bool, String> {
    crate::worlds::run(given)
}

#[cfg(not(feature = "research"))]
fn worlds(_: &Arguments, option: &str) -> Result<bool, String> {
    Err(format!("--{option}: target/lab/squall simulates random worlds; `make lab` builds it"))
}

fn story(file: &str) -> bool {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("squall sim: error: {file}: {error}");
            return false;
        }
    };
    match squall_sim::tell(&text) {
        Ok(()) => {
            crate::print(&format!("{file}: holds\n"));
            true
        }
        Err(failure) => {
            crate::print(&format!("{file}: {failure}\n"));
            failure.trace.iter().for_each(|line| eprintln!("  {line}"));
            false
        }
    }
}
