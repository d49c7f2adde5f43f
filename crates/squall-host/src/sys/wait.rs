//! Reaps children, and reports what they used.

use std::io;
use std::mem::MaybeUninit;

use squall_model::job::{ExitCode, Usage};
use squall_model::time::Span;

/// A child that has ended. It is reaped, unless `peek` has returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// The child's process id.
    pub pid: u32,
    /// The child's exit code or signal.
    pub exit: ExitCode,
    /// Usage of the child and of all its descendants that were waited for; without bytes read and written.
    pub usage: Usage,
}

/// Result of waiting for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// This child has ended, and `reap` has reaped it.
    Reaped(Reaped),
    /// There are children, and none has ended.
    Running,
    /// There are no children.
    None,
}

/// Reaps one child that has ended, without blocking.
pub(crate) fn reap() -> io::Result<Waited> {
    wait4(-1, libc::WNOHANG)
}

/// Waits until the child `pid` has ended, and reaps it.
pub fn reap_pid(pid: u32) -> io::Result<Waited> {
    wait4(pid as i32, 0)
}

fn wait4(pid: i32, options: i32) -> io::Result<Waited> {
    let mut status = 0;
    let mut rusage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for the call; an all-zero rusage is valid if the kernel writes none.
    let (got, rusage) = unsafe {
        let got = libc::wait4(pid, &raw mut status, options | libc::__WALL, rusage.as_mut_ptr());
        (got, rusage.assume_init())
    };
    match got {
        0 => Ok(Waited::Running),
        pid if pid > 0 => {
            Ok(Waited::Reaped(Reaped { pid: pid as u32, exit: exit_of(status), usage: usage_of(&rusage) }))
        }
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(Waited::None),
            e if e.kind() == io::ErrorKind::Interrupted => Ok(Waited::Running),
            e => Err(e),
        },
    }
}

/// Result of `peek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// This child has ended and is still to be reaped; its /proc entries can still be read.
    Ended(Reaped),
    /// There are children, and none has ended.
    Running,
    /// There are no children.
    None,
}

/// Looks for a child that has ended, without reaping it.
pub fn peek() -> Peeked {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut rusage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: both pointers are valid for the call (its last argument is not offered by the C library); an all-zero
    // siginfo says pid 0, which is "none has ended", and an all-zero rusage is valid.
    let (pid, how, status, rusage) = unsafe {
        let (info_at, rusage_at) = (info.as_mut_ptr(), rusage.as_mut_ptr());
        if libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, info_at, options, rusage_at) != 0 {
            let none = io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
            return if none { Peeked::None } else { Peeked::Running };
        }
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status(), rusage.assume_init())
    };
    let Some(pid) = u32::try_from(pid).ok().filter(|&p| p != 0) else { return Peeked::Running };
    let exited = how == libc::CLD_EXITED;
    let (code, signal) = if exited { (status as u8, 0) } else { (0, status as u8) };
    Peeked::Ended(Reaped { pid, exit: ExitCode { code, signal }, usage: usage_of(&rusage) })
}

/// Returns the peak resident memory of this process, KiB. A child's peak is never less, as it includes the memory
/// shared with this process before exec.
pub(crate) fn own_peak_kb() -> u64 {
    let mut rusage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for the call; an all-zero rusage is valid if the kernel writes none.
    let rusage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, rusage.as_mut_ptr());
        rusage.assume_init()
    };
    rusage.ru_maxrss as u64
}

/// Converts a wait status to exit code and signal.
pub fn exit_of(status: i32) -> ExitCode {
    if libc::WIFSIGNALED(status) {
        ExitCode { code: 0, signal: libc::WTERMSIG(status) as u8 }
    } else {
        ExitCode { code: libc::WEXITSTATUS(status) as u8, signal: 0 }
    }
}

fn usage_of(rusage: &libc::rusage) -> Usage {
    let span = |t: libc::timeval| Span(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    Usage {
        user: span(rusage.ru_utime),
        system: span(rusage.ru_stime),
        max_rss_kb: rusage.ru_maxrss as u64,
        major_faults: rusage.ru_majflt as u64,
        ..Usage::default()
    }
}
