//! Processes by file descriptor: no confusion when a number is used again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use squall_model::job::ExitCode;

use super::wait::exit_of;

/// Makes this process the parent of its orphaned descendants. The setting survives exec and is not inherited by fork.
pub(crate) fn set_child_subreaper() -> io::Result<()> {
    // The argument is only "not zero" for the kernel.
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// A descriptor for the process with that id; readable when it has ended. `ESRCH`: there is none.
pub(crate) fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal (any number; 0 only asks). `ESRCH`: it has ended.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is passed (the siginfo pointer is null, which the call allows).
    let got = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reaps a child by its descriptor. None: it has not ended (only without `block`).
/// `ECHILD`: it is not this process's child; see [`exit_info`].
pub(crate) fn reap(pidfd: BorrowedFd<'_>, block: bool) -> io::Result<Option<ExitCode>> {
    let options = WaitIdOptions::EXITED | if block { WaitIdOptions::empty() } else { WaitIdOptions::NOHANG };
    let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options)?;
    Ok(status.map(|s| match (s.exit_status(), s.terminating_signal()) {
        (_, Some(signal)) => ExitCode { code: 0, signal: signal as u8 },
        (code, None) => ExitCode { code: code.unwrap_or(0) as u8, signal: 0 },
    }))
}

/// How a process ended that is (or was) somebody else's child: known from kernel 6.15 on once it was reaped,
/// if the descriptor was opened before that. None: it still lives, was not reaped yet, or the kernel can't say.
pub(crate) fn exit_info(pidfd: BorrowedFd<'_>) -> Option<ExitCode> {
    let mut info = MaybeUninit::<libc::pidfd_info>::zeroed();
    // SAFETY: the struct is plain integers, so zeroed is valid; the ioctl number carries its size, and the kernel
    // writes at most that much. On another kind of descriptor or an old kernel the call only fails.
    let info = unsafe {
        (*info.as_mut_ptr()).mask = u64::from(libc::PIDFD_INFO_EXIT);
        if libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, info.as_mut_ptr()) != 0 {
            return None;
        }
        info.assume_init()
    };
    (info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then(|| exit_of(info.exit_code))
}
