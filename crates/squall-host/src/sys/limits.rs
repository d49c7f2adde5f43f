//! Resource limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit, and returns the new number.
pub(crate) fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // On failure fewer connections are served, with no other consequence.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    open_files()
}

/// Returns how many files this process may have open.
pub(crate) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}
