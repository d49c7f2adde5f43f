//! The host as a process sees it: its name, its units.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process has given itself a name that is not the host's.
static RENAMED: AtomicBool = AtomicBool::new(false);

/// Gives this process and those that it starts a host name of their own. Needs root.
pub(crate) fn rename_for_me(name: &str) -> io::Result<()> {
    // SAFETY: takes an integer; a new UTS namespace touches no memory and no other process.
    if unsafe { libc::unshare(libc::CLONE_NEWUTS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    RENAMED.store(true, Ordering::Relaxed);
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Whether a node of that name is named after this host: then it is the only one here.
pub(crate) fn is_name_of_host(node: &str) -> bool {
    if RENAMED.load(Ordering::Relaxed) {
        return false;
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_bytes();
    host == node.as_bytes() || host.split(|&b| b == b'.').next() == Some(node.as_bytes())
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: takes an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Microseconds of a tick, in which /proc counts CPU time.
pub(crate) fn tick_us() -> u64 {
    // SAFETY: takes an integer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000 / u64::try_from(per_second).unwrap_or(100).max(1)
}
