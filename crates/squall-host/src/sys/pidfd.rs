//! Processes by file descriptor, which stay valid when a process id is reused.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use squall_model::job::ExitCode;

use super::wait::exit_of;

/// Makes this process the parent of its orphaned descendants. The setting survives exec and is not inherited by fork.
pub(crate) fn set_child_subreaper() -> io::Result<()> {
    // The kernel only tests whether the argument is zero.
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Opens a descriptor of the process with this id; it is readable when the process has ended. Err `ESRCH`: there is no
/// such process.
pub(crate) fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal (any number; 0 only checks). Err `ESRCH`: the process has ended.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is passed (the siginfo pointer is null, which the call allows).
    let got = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reaps a child by its descriptor. None: it has not ended (only without `block`). Err `ECHILD`: it is not a child of
/// this process; see [`exit_info`].
pub(crate) fn reap(pidfd: BorrowedFd<'_>, block: bool) -> io::Result<Option<ExitCode>> {
    let options = WaitIdOptions::EXITED | if block { WaitIdOptions::empty() } else { WaitIdOptions::NOHANG };
    let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options)?;
    Ok(status.map(|s| match (s.exit_status(), s.terminating_signal()) {
        (_, Some(signal)) => ExitCode { code: 0, signal: signal as u8 },
        (code, None) => ExitCode { code: code.unwrap_or(0) as u8, signal: 0 },
    }))
}

/// Returns the exit of a process that is (or was) the child of another process. Kernels from 6.15 report it after the
/// process was reaped, if the descriptor was opened before that. None: it still runs, was not reaped yet, or the kernel
/// is older.
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
