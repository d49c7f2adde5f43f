//! Receives signals by a file descriptor, and sends signals.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Descriptor from which signals to this process are read, instead of handlers.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks these signals and queues them here. Only for processes with one thread.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigemptyset initializes the set before anything reads it; the other calls only use the
        // initialized set; a negative result is checked before the descriptor is owned.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// Returns the descriptor, which is readable when a signal is pending.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Takes the next pending signal, if any.
    pub fn take(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has `size` bytes; all-zero and whatever the kernel writes are valid values of the struct.
        unsafe {
            let got = libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (got == size as isize).then(|| info.assume_init().ssi_signo as i32)
        }
    }
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends any signal number to a process by `kill(2)`. Errors are those of the call (`ESRCH`: no such process).
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().filter(|&p| p > 1) else { return Err(io::ErrorKind::InvalidInput.into()) };
    // SAFETY: no memory is involved, and `pid` names one process, never a group or all processes.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to all processes of a group by `kill(2)`. Errors are those of the call (`ESRCH`: no such group).
pub(crate) fn kill_group(group: u32, signal: i32) -> io::Result<()> {
    let Some(group) = i32::try_from(group).ok().filter(|&g| g > 1) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: no memory is involved; `group` is above 1, so that -1 (all processes) is never passed.
    if unsafe { libc::kill(-group, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
