//! Squall's laboratory: benchmarks, the ESP workload, simulation, trace replay, rank layouts, and pictures of their
//! results.
//!
//! The commands print text for people, like those of `squall-cli`, which links this crate with its feature `lab`.
//! Programs that run as root don't need this crate.

/// Prints to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::complain(&format!($($text)*)) };
}

/// Prints a line to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::complain(&(format!($($text)*) + "\n")) };
}

pub mod bench;
pub mod esp;
pub mod layout;
mod picture;
mod progress;
pub mod sim;
pub mod trace;

use std::io::Write;
use std::process::ExitCode;

use squall_client as client;
use squall_model::plain::plain;

/// Writes to standard output; a closed pipe is no error.
fn print(text: &str) {
    drop(std::io::stdout().write_all(plain(text).as_bytes()));
}

/// Writes to standard error without buffering; a closed pipe is no error.
fn complain(text: &str) {
    drop(std::io::stderr().write_all(plain(text).as_bytes()));
}

/// Ends a command: prints its result or its error, and returns the exit code.
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
