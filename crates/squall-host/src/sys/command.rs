//! Programs started by a process that takes its signals from a descriptor.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the program take signals as any other: what this process blocks for its `SignalFd` is not blocked there.
pub fn unblock_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigemptyset initializes the set before it is used; both calls are async-signal-safe.
        let failed = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(unblock) }
}
