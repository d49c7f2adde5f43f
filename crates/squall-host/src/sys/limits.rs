//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open as many files as the system allows it to, and returns how many those are.
pub(crate) fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // With fewer files fewer connections are served; nothing else depends on it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    open_files()
}

/// How many files this process may have open.
pub(crate) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}
