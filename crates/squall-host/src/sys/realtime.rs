//! Being on time: before all ordinary processes, and with all of one's memory at hand.

use std::io;

/// Lets the calling thread run before all that are not real-time, if this process may. What it starts is ordinary.
pub fn prefer_me(priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is valid for the call, and 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps this process's memory from being paged out, if it may.
pub(crate) fn stay_in_memory() -> io::Result<()> {
    // SAFETY: no memory of ours is involved.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
