//! `squall layout`: where the ranks of a process grid go on a torus.

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use squall_replay::layout::PAGE;

/// Runs `squall layout`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::end("layout", squall_replay::layout::run(args))
}
