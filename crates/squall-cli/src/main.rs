//! Squall's one binary: all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    squall_cli::run()
}
