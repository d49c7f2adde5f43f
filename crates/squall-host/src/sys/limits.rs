//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open as many files as the system allows it to.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer files fewer connections are served; nothing else depends on it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
