//! System calls for commands: starting programs, becoming a user.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

use squall_files::users;

use super::identity::{Identity, become_user as become_identity};
use super::spawn::reset_signals;

/// Becomes the user for good, with `gid` as first group and all other groups of the user. Only root can.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let groups = users::by_uid(uid).map_or_else(|| vec![gid], |user| users::groups(&user.name, gid));
    become_identity(&Identity { uid, gid, groups }).map_err(|error| io::Error::other(error.to_string()))
}

/// Signals of the C library, which are never ignored on purpose (see `spawn::reset_signals`).
const OF_LIBRARY: u64 = 1 << 31 | 1 << 32;

/// Makes `command` start its program with no signals blocked, whatever this process blocks for its `SignalFd`. Signals
/// that the user has this process ignore stay so.
pub fn unblock_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        reset_signals(OF_LIBRARY);
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigemptyset initializes the set before it is used; both calls are async-signal-safe.
        let failed = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes system calls and async-signal-safe calls only, and allocates nothing.
    unsafe { command.pre_exec(unblock) }
}
