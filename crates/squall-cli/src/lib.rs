//! Squall's commands and daemons, lowest first: the hall (printing), what jobs inherit and retries, the commands, and
//! the table of all commands.

/// Prints to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::hall::complain(&format!($($text)*)) };
}

/// Prints a line to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::hall::complain(&(format!($($text)*) + "\n")) };
}

mod capture;
mod command;
mod contact;
mod hall;
mod table;

pub use table::run;
