//! Squall's laboratory: benchmarks and stories for the simulator; with the feature `research` also random worlds, planted
//! bugs, the ESP workload and the models behind figures of talks.
//!
//! The commands print text for people, like those of `squall-cli`, which links this crate with its features `bench` and
//! `lab`. Packages leave it out.

/// Prints a line to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::complain(&(format!($($text)*) + "\n")) };
}

pub mod bench;
#[cfg(feature = "research")]
mod blue;
#[cfg(feature = "research")]
mod cosched;
pub mod esp;
pub mod sim;
#[cfg(feature = "research")]
mod worlds;

use std::io::Write;

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
