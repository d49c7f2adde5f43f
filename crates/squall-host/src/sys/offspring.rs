//! Calls for a process that makes copies of itself: fork, command line, exit, CPU affinity.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use super::spawn::CLONE_INTO_CGROUP;

/// Which of the two processes the caller is after [`bear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Born {
    /// The caller is still the process that called `bear`.
    Original,
    /// The caller is the copy.
    Copy,
}

/// Copies this process (fork). The second value is the copy's process id in the original, and 0 in the copy. Only for
/// processes with one thread. The copy is created in the v2 cgroup with the folder `cgroup`, if the kernel (from 5.7)
/// and the cgroup allow it, otherwise in this process's own.
pub(crate) fn bear(cgroup: Option<BorrowedFd<'_>>) -> io::Result<(Born, u32)> {
    let mut pid = -1;
    if let Some(cgroup) = cgroup {
        // SAFETY: a clone_args is plain integers; all zero is valid.
        let mut args = unsafe { MaybeUninit::<libc::clone_args>::zeroed().assume_init() };
        args.flags = CLONE_INTO_CGROUP;
        args.exit_signal = libc::SIGCHLD as u64;
        args.cgroup = cgroup.as_raw_fd() as u64;
        // SAFETY: as below; `args` is valid for the call.
        pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    }
    if pid < 0 {
        // SAFETY: without CLONE_VM this is fork(2). The process has one thread, so no lock is held that the copy could
        // wait for; a null stack means that the copy goes on with its copy of this one.
        pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    }
    match pid {
        0 => Ok((Born::Copy, 0)),
        pid if pid > 0 => Ok((Born::Original, pid as u32)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Overwrites this process's command line as `ps` shows it. Err: `words` are longer than the original command line.
pub(crate) fn set_command_line(words: &[&[u8]]) -> io::Result<()> {
    // The same in all copies of a process.
    static PLACE: OnceLock<Option<(usize, usize)>> = OnceLock::new();
    let Some((start, end)) = *PLACE.get_or_init(command_line) else { return Err(io::ErrorKind::InvalidData.into()) };
    let line: Vec<u8> = words.iter().flat_map(|w| w.iter().copied().chain([0])).collect();
    let room = end.saturating_sub(start);
    if start == 0 || line.len() > room {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: from `start` to `end` lie the argument strings that the kernel wrote onto this process's own stack; they are
    // writable, and nothing in this program keeps a reference to them (std copies arguments when asked for them).
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(start);
        std::ptr::copy_nonoverlapping(line.as_ptr(), at, line.len());
        // Bytes that are NUL already are not written: in a copy that would copy their memory page.
        let last = (line.len()..room).rfind(|&i| at.add(i).read() != 0);
        std::ptr::write_bytes(at.add(line.len()), 0, last.map_or(0, |last| last + 1 - line.len()));
    }
    Ok(())
}

/// Returns the addresses of the first byte of this process's command line and of the byte behind the last. None: the
/// kernel does not report them.
fn command_line() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let field = |number: usize| {
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(number - 3)?.parse::<usize>().ok()
    };
    Some((field(48)?, field(49)?))
}

/// Ends this process at once, without the functions registered to run at exit. Those may have been registered by the
/// process of which this is a copy, or by a library with threads in an unknown state.
pub(crate) fn leave(status: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Returns the CPUs to which this process is restricted.
pub(crate) fn bound() -> io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Restricts this process to these CPUs.
pub(crate) fn bind(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus.iter().filter(|&&c| c < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
