//! The host as a process sees it: name, mounts, CPUs, units.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use squall_files::safe_path;

/// Whether this process has given itself another host name.
static RENAMED: AtomicBool = AtomicBool::new(false);

/// Gives this process, and those that it starts, a host name of their own. Needs root.
pub(crate) fn rename_for_me(name: &str) -> io::Result<()> {
    // SAFETY: takes an integer; a new UTS namespace touches no memory and no other process.
    if unsafe { libc::unshare(libc::CLONE_NEWUTS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    RENAMED.store(true, Ordering::Relaxed);
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Mounts files or folders over others, each given first; visible to this process and those that it starts only. Later
/// mounts of the host still appear there. Needs root, and a process without other threads. Err of kind
/// `PermissionDenied`: others can lead one of the paths elsewhere.
pub(crate) fn lay_over(pairs: &[(&Path, &Path)]) -> io::Result<()> {
    part_mounts(0)?;
    let none = std::ptr::null();
    for (file, over) in pairs {
        // Descriptors of the new namespace: those of another one can't be mounted.
        let (file, over) = (safe_path::open(file)?, safe_path::open(over)?);
        let text = |opened: &OwnedFd| CString::new(safe_path::path_of(opened.as_fd()).into_os_string().into_vec());
        let (from, to) = (text(&file)?, text(&over)?);
        // SAFETY: all texts end with NUL and live through the call; where the kernel takes none there is none.
        checked(unsafe { libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast()) })?;
    }
    Ok(())
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process mounts of its own, in which later mounts of the host still appear. `further`: other namespaces that it
/// gets, as of unshare(2).
fn part_mounts(further: libc::c_int) -> io::Result<()> {
    // SAFETY: takes an integer; new namespaces touch no memory and no other process.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS | further) })?;
    let none = std::ptr::null();
    // SAFETY: all texts end with NUL and live through the call; where the kernel takes none there is none.
    checked(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()) })
}

/// Number of the call that returns the user namespace which owns a namespace (ioctl_ns(2)).
const NS_GET_USERNS: libc::c_ulong = 0xb701;

/// Whether a namespace is owned by the user namespace of this process. Otherwise a user may have made it.
pub(crate) fn is_ours(space: &File) -> io::Result<bool> {
    // SAFETY: the call takes no argument, and touches no memory.
    let owner = unsafe { libc::ioctl(space.as_raw_fd(), NS_GET_USERNS) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made this descriptor for us, and nothing else owns it.
    let owner = unsafe { File::from_raw_fd(owner) }.metadata()?;
    let own = std::fs::metadata("/proc/self/ns/user")?;
    Ok((owner.dev(), owner.ino()) == (own.dev(), own.ino()))
}

/// Gives this process mounts of its own, and its later children process ids of their own (pid_namespaces(7)). The first child
/// is process 1 of these, and has to call [`mount_proc`]. Needs root, and a process without other threads.
pub(crate) fn part_pids() -> io::Result<()> {
    part_mounts(libc::CLONE_NEWPID)
}

/// Mounts `/proc` for the process ids that this process has. Needs root.
pub(crate) fn mount_proc() -> io::Result<()> {
    let (name, flags) = (c"proc".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // SAFETY: all texts end with NUL and live through the call; the kernel takes no data here.
    checked(unsafe { libc::mount(name, c"/proc".as_ptr(), name, flags, std::ptr::null()) })
}

/// Whether a node of this name is named after this host; then it is the only one on the machine.
pub(crate) fn is_name_of_host(node: &str) -> bool {
    if RENAMED.load(Ordering::Relaxed) {
        return false;
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_bytes();
    host == node.as_bytes() || host.split(|&b| b == b'.').next() == Some(node.as_bytes())
}

/// Returns the number of CPUs that this process may use. Both its present affinity and its cgroups limit it. The limit
/// of the cgroups is read once, at the first call, and copies of the process keep it.
pub(crate) fn cpus() -> usize {
    static ALLOWED: OnceLock<usize> = OnceLock::new();
    let allowed = *ALLOWED.get_or_init(|| available_parallelism().map_or(1, usize::from));
    let affine = rustix::thread::sched_getaffinity(None).map_or(allowed, |set| set.count() as usize);
    allowed.min(affine)
}

/// Returns the size of a page of memory, bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: takes an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Returns the length of a tick, the unit of CPU times in /proc, microseconds.
pub(crate) fn tick_us() -> u64 {
    // SAFETY: takes an integer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000 / u64::try_from(per_second).unwrap_or(100).max(1)
}
