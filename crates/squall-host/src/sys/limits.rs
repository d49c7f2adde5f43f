//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open so many files, or as many as the system allows it to.
pub fn raise_open_files_to(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.map(|maximum| maximum.max(files));
    // Only root may raise the hard limit.
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        raise_open_files();
    }
}

/// Lets this process open as many files as the system allows it to.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer files fewer connections are served; nothing else depends on it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
