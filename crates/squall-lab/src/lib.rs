//! Squall's laboratory: benchmarks, the ESP workload, simulation, trace replay, rank layouts, and pictures of all that.
//!
//! The commands print for people as those of `squall-cli` do, which links this crate behind its feature `lab`. Programs that
//! run as root need nothing of it.

/// Text for stderr. Who has closed it hears nothing, and that is nobody's error; `std`'s own would panic.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::complain(&format!($($text)*)) };
}

/// The same, a line.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::complain(&(format!($($text)*) + "\n")) };
}

pub mod bench;
pub mod esp;
pub mod layout;
mod picture;
pub mod sim;
pub mod trace;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use squall_client as client;
use squall_model::plain::plain;

/// Whether a command is asked what it is, before anything else.
fn asks_for_help(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "--help" || arg == "-h")
}

/// Writes to stdout; a closed pipe is nobody's error.
fn print(text: &str) {
    drop(std::io::stdout().write_all(plain(text).as_bytes()));
}

/// Writes to stderr at once; a closed pipe is nobody's error.
fn complain(text: &str) {
    drop(std::io::stderr().write_all(plain(text).as_bytes()));
}

/// How a command is over: it prints what it found, or why it could not.
fn end(command: &str, done: Result<String, String>) -> ExitCode {
    match done {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("squall {command}: error: {problem}");
            ExitCode::FAILURE
        }
    }
}
