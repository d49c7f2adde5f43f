//! Real-time priority, and memory that is never paged out.

use std::io;

/// Gives the calling thread real-time priority, above all ordinary threads, if permitted. Processes that it starts have
/// ordinary priority.
pub fn prefer_me(priority: i32) -> io::Result<()> {
    // SAFETY: of a structure of numbers; with musl it has more than one.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` is valid for the call, and 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps this process's memory from being paged out, if permitted.
pub(crate) fn stay_in_memory() -> io::Result<()> {
    // SAFETY: no memory of ours is involved.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
