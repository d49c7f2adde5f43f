//! Keeps open files from other programs.

/// First descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Marks every open file except the standard ones to be closed in programs that this process starts: a daemon must not
/// hold a pipe of the shell that started it.
pub(crate) fn close_others_on_exec() {
    // SAFETY: changes a flag of this process's descriptors and closes none of them.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return;
    }
    // Kernels before 5.11.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<libc::c_int>().ok());
    for fd in open.filter(|fd| *fd >= FIRST as libc::c_int).collect::<Vec<_>>() {
        // SAFETY: sets a flag; a descriptor that was closed meanwhile gives an error that means nothing.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
