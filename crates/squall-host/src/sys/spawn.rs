//! Starts a process as cheaply as the kernel can: the child shares the parent's memory until it has called exec (as in
//! posix_spawn), so that nothing is copied, and the parent learns at once whether it worked.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use super::identity::Identity;

/// Bytes of stack for the child between clone and exec.
const STACK_BYTES: usize = 64 << 10;

/// Flag of clone3(2) that creates the child in a given cgroup; value as in the kernel's `sched.h`.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Process group, session and terminal of the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Session {
    /// The child gets a process group of its own, in its parent's session.
    #[default]
    Group,
    /// The child gets a session of its own.
    New,
    /// The child gets a session of its own, with the child's standard input as the controlling terminal.
    Terminal,
}

/// A process to be started. In the child every descriptor above 2 is closed, except `further`, and no signal is blocked
/// or ignored.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    /// Path of the file to execute; `PATH` is not searched.
    pub(crate) program: &'a CStr,
    /// The process's arguments, the program's name first.
    pub(crate) argv: &'a [CString],
    /// The process's environment, `KEY=VALUE` each.
    pub(crate) env: &'a [CString],
    /// Index of the entry of `env` that ends with [`PID_ROOM`], over which the child writes its process id; None: there
    /// is no such entry.
    pub(crate) env_pid: Option<usize>,
    /// The process's working directory; None: the parent's.
    pub(crate) dir: Option<&'a CStr>,
    /// Standard input, output and error.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// The process's group, session and terminal.
    pub(crate) session: Session,
    /// The process's file mode mask (umask); None: the parent's.
    pub(crate) umask: Option<u32>,
    /// Soft resource limits (RLIMIT_* number, value); values above the hard limit are lowered to it.
    pub(crate) rlimits: &'a [(u32, u64)],
    /// The CPUs that the process may use; empty: the parent's.
    pub(crate) cpus: &'a [usize],
    /// A descriptor that the process gets as number 3. None: only 0 to 2 are open in it.
    pub(crate) further: Option<BorrowedFd<'a>>,
    /// Whether processes below the process that lose their parent become its children.
    pub(crate) keeps_orphans: bool,
    /// User and groups that the process gets before it accesses anything; None: the parent's.
    pub(crate) identity: Option<&'a Identity>,
    /// Line in which the child records its process id first of all, so that a running process is recorded whenever the
    /// parent dies. If the program can't be executed, the child removes the line.
    pub(crate) note: Option<Note<'a>>,
}

impl<'a> Spawn<'a> {
    /// Returns the description of a process that executes `program` with these arguments and files; all else is as in
    /// the parent.
    pub(crate) fn new(program: &'a CStr, argv: &'a [CString], stdio: [BorrowedFd<'a>; 3]) -> Self {
        Self {
            program,
            argv,
            env: &[],
            env_pid: None,
            dir: None,
            stdio,
            session: Session::Group,
            umask: None,
            rlimits: &[],
            cpus: &[],
            further: None,
            keeps_orphans: false,
            identity: None,
            note: None,
        }
    }
}

/// A line to be written into a file, with room for a process id.
#[derive(Clone, Debug)]
pub(crate) struct Note<'a> {
    /// The file to write to.
    pub(crate) file: BorrowedFd<'a>,
    /// Offset in the file at which the line is written.
    pub(crate) offset: u64,
    /// The text of the line.
    pub(crate) line: Vec<u8>,
    /// Offset of [`PID_ROOM`] in the line.
    pub(crate) room: usize,
}

/// Blanks that reserve room for a process id, e.g. at the end of an environment entry.
pub(crate) const PID_ROOM: &str = "          ";

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Child {
    /// The child's process id.
    pub(crate) pid: u32,
    /// The child's pidfd.
    pub(crate) pidfd: OwnedFd,
}

/// Error of a system call in the child before the program was executed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {error}")]
pub(crate) struct SpawnError {
    /// Name of the call.
    pub(crate) call: &'static str,
    /// The call's error.
    pub(crate) error: io::Error,
}

impl SpawnError {
    /// Returns the error number, for exit codes.
    pub(crate) fn errno(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(libc::EIO)
    }
}

/// The child's input, prepared before the clone, as the child must not allocate.
struct Plan {
    program: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    pid_at: *mut c_char,
    dir: *const c_char,
    stdio: [RawFd; 3],
    session: Session,
    umask: Option<u32>,
    rlimits: *const (u32, u64),
    rlimit_count: usize,
    cpus: *const libc::cpu_set_t,
    /// Descriptor to pass on as number 3; -1: none.
    further: RawFd,
    keeps_orphans: bool,
    identity: Option<Person>,
    note: Option<NoteBuffer>,
    /// Set of signals that this process ignores: bit `n - 1` for signal `n`.
    ignored: u64,
    report: *mut Report,
}

/// A [`Note`] in the form that the child uses.
struct NoteBuffer {
    file: RawFd,
    offset: libc::off_t,
    text: *mut c_char,
    length: usize,
    room: *mut c_char,
}

/// An [`Identity`] in the form that the child uses.
struct Person {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: *const libc::gid_t,
    group_count: usize,
}

/// The child's result, in memory that parent and child share.
struct Report {
    /// The call that failed, as index into `CALLS`; 0: none.
    failed: usize,
    errno: c_int,
}

/// Names of the system calls that may fail in the child; `Report::failed` is an index into it.
const CALLS: [&str; 11] = [
    "",
    "setsid",
    "dup2",
    "chdir",
    "setrlimit",
    "sched_setaffinity",
    "close_range",
    "execve",
    "setresuid",
    "pwrite",
    "prctl",
];

impl Spawn<'_> {
    /// Starts the process. Returns when the program was executed, or when a call before that failed (then nothing was
    /// executed).
    pub(crate) fn start(&self) -> Result<Child, SpawnError> {
        self.start_by(clone_vfork)
    }

    /// Starts the process as a member of the v2 cgroup with the folder `cgroup`. That costs the machine much less than
    /// moving it there later. Fails with call `clone` if the kernel (before 5.7) or the cgroup does not allow it, or on
    /// processors other than x86-64.
    pub(crate) fn start_in(&self, cgroup: BorrowedFd<'_>) -> Result<Child, SpawnError> {
        self.start_by(|plan| clone_into(plan, cgroup))
    }

    /// Makes this process what the child of [`Self::start`] becomes. Returns only if that failed. This process may be half
    /// of it then, and should end.
    pub(crate) fn become_it(&self) -> SpawnError {
        let here = |plan: &mut Plan| {
            // SAFETY: the plan is valid; this process has no use for what the calls change.
            let failed = unsafe { in_place(plan) };
            // SAFETY: the report is a local of the caller.
            unsafe { (*plan.report).failed = failed };
            Err(io::Error::last_os_error())
        };
        match self.start_by(here) {
            Err(error) => SpawnError { call: "execve", ..error },
            Ok(_) => SpawnError { call: "execve", error: io::ErrorKind::Other.into() },
        }
    }

    fn start_by(&self, clone: impl FnOnce(&mut Plan) -> io::Result<Child>) -> Result<Child, SpawnError> {
        let failed = |call| move |error| SpawnError { call, error };
        // The child moves its standard descriptors to 0, 1 and 2, so none of the sources may have these numbers.
        let high = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(io::Error::from);
        let mut moved: [Option<OwnedFd>; 3] = [None, None, None];
        let mut stdio = self.stdio.map(|fd| fd.as_raw_fd());
        for (at, fd) in self.stdio.iter().enumerate() {
            if fd.as_raw_fd() < 3 {
                let dup = high(*fd).map_err(failed("dup2"))?;
                stdio[at] = dup.as_raw_fd();
                moved[at] = Some(dup);
            }
        }
        // Likewise for number 3; and a descriptor duplicated onto itself would be closed by exec.
        let further = self.further.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 4)).transpose();
        let further = further.map_err(|e| failed("dup2")(e.into()))?;
        let argv = pointers(self.argv);
        let mut env = pointers(self.env);
        let own_entry = self.env_pid.and_then(|at| self.env.get(at)).map(|entry| entry.as_bytes_with_nul().to_vec());
        let mut own_entry = own_entry.filter(|e| e.len() > PID_ROOM.len() && e.ends_with(b"          \0"));
        let mut pid_at = ptr::null_mut();
        if let (Some(entry), Some(at)) = (&mut own_entry, self.env_pid) {
            let room = entry.len() - 1 - PID_ROOM.len();
            env[at] = entry.as_ptr().cast();
            pid_at = entry[room..].as_mut_ptr().cast();
        }
        let mut note = self.note.clone().filter(|note| note.line[note.room..].starts_with(PID_ROOM.as_bytes()));
        let cpus = (!self.cpus.is_empty()).then(|| cpu_set(self.cpus));
        let mut report = Report { failed: 0, errno: 0 };
        let mut plan = Plan {
            program: self.program.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            pid_at,
            dir: self.dir.map_or(ptr::null(), CStr::as_ptr),
            stdio,
            session: self.session,
            umask: self.umask,
            rlimits: self.rlimits.as_ptr(),
            rlimit_count: self.rlimits.len(),
            cpus: cpus.as_ref().map_or(ptr::null(), ptr::from_ref),
            further: further.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            keeps_orphans: self.keeps_orphans,
            identity: self.identity.map(|identity| Person {
                uid: identity.uid,
                gid: identity.gid,
                groups: identity.groups.as_ptr(),
                group_count: identity.groups.len(),
            }),
            note: note.as_mut().map(|note| NoteBuffer {
                file: note.file.as_raw_fd(),
                offset: note.offset as libc::off_t,
                length: note.line.len(),
                text: note.line.as_mut_ptr().cast(),
                room: note.line[note.room..].as_mut_ptr().cast(),
            }),
            ignored: ignored_signals(),
            report: &raw mut report,
        };
        let child = clone(&mut plan).map_err(failed("clone"))?;
        // SAFETY: a valid pointer to a local; the child, which shares this memory, has written what it will, where the
        // compiler can't see it.
        let report = unsafe { ptr::read_volatile(plan.report) };
        if report.failed == 0 {
            return Ok(child);
        }
        // The program never ran, so no one else waits for the child.
        let _ = super::wait::reap_pid(child.pid);
        Err(SpawnError { call: CALLS[report.failed], error: io::Error::from_raw_os_error(report.errno) })
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is an array of integers; all zero is the empty set.
    let mut set = unsafe { MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init() };
    for &cpu in cpus.iter().filter(|&&c| c < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index is below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

fn clone_vfork(plan: &mut Plan) -> io::Result<Child> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK_BYTES / 16];
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK stops this thread until the child has called exec or _exit, so `plan`, `stack` and `pidfd`
    // outlive its use of them, and nothing here touches them meanwhile. The stack grows down from its aligned end.
    // All signals are blocked meanwhile, so no handler runs in the child on memory that it shares with us.
    let pid = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let pid = libc::clone(child, top, flags, ptr::from_mut(plan).cast(), &raw mut pidfd);
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    // SAFETY: the kernel has made this descriptor for us (CLONE_PIDFD), and nothing else owns it.
    Ok(Child { pid: pid as u32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// What the kernel keeps of a signal: handler, flags, restorer and mask. All zero: the default action.
///
/// The C library hides the signals that it uses itself, 32 and 33, from `sigaction`. But its `posix_spawn` leaves 32
/// ignored in every program that it starts, so in this daemon, too; hence the system call.
type Action = [u64; 4];

/// Size of the kernel's signal set, bytes.
const SIGNAL_SET: usize = 8;

/// Returns the signals that this process ignores, which exec would not change. They are constant, so they are looked up
/// once.
pub(crate) fn ignored_signals() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        let ignores = |signal: &c_int| {
            let (mut now, none): (Action, *const Action) = ([0; 4], ptr::null());
            // SAFETY: a null new action changes nothing; the kernel writes one action at most, for which there is room.
            let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, *signal, none, &raw mut now, SIGNAL_SET) };
            done == 0 && now[0] == libc::SIG_IGN as u64
        };
        (1..=64).filter(ignores).fold(0, |set, signal| set | 1 << (signal - 1))
    })
}

/// Gives these signals their default action. Exec itself resets signals that have handlers.
///
/// Makes system calls only, so that a child may call it before exec.
pub(super) fn reset_signals(signals: u64) {
    let default: Action = [0; 4];
    let old: *mut Action = ptr::null_mut();
    for signal in (1..=64).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        // SAFETY: the kernel reads one action, which is valid; nothing is written.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, old, SIGNAL_SET) };
    }
}

/// Returns an error: creating a child in a cgroup is implemented for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
fn clone_into(_: &mut Plan, _: BorrowedFd<'_>) -> io::Result<Child> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Like `clone_vfork`, but creates the child in a cgroup. The C library's functions can't do that, so the system call
/// is made here.
#[cfg(target_arch = "x86_64")]
fn clone_into(plan: &mut Plan, cgroup: BorrowedFd<'_>) -> io::Result<Child> {
    let mut pidfd: c_int = -1;
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK_BYTES / 16];
    // SAFETY: a clone_args is plain integers; all zero is valid.
    let mut args = unsafe { MaybeUninit::<libc::clone_args>::zeroed().assume_init() };
    args.flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLONE_INTO_CGROUP;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = stack.as_mut_ptr() as u64;
    args.stack_size = STACK_BYTES as u64;
    args.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: as for `clone_vfork`, on a stack of the child's own, which it leaves by exec or _exit only. All signals are
    // blocked meanwhile, so no handler runs in the child.
    let pid = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let (pid, error) = clone3(&mut args, plan);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    // SAFETY: the kernel has made this descriptor for us (CLONE_PIDFD), and nothing else owns it.
    Ok(Child { pid: pid as u32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// Calls clone3 for a child that runs `child`; returns the child's process id or a negative number, and the error.
///
/// # Safety
/// As for `clone_into`: the child shares this memory, and has the stack in `args`.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: &mut libc::clone_args, plan: &mut Plan) -> (i64, io::Error) {
    let pid: i64;
    // SAFETY: the kernel takes rax, rdi and rsi, and overwrites rcx and r11. The parent goes on behind the call with
    // all other registers as they were. The child has the new stack, aligned, on which nothing lies: it calls `child`,
    // which does not return, and touches nothing of this function's frame.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {plan}",
            "call {child}",
            "ud2",
            "2:",
            plan = in(reg) ptr::from_mut(plan),
            child = sym child,
            inlateout("rax") libc::SYS_clone3 => pid,
            in("rdi") ptr::from_mut(args),
            in("rsi") size_of::<libc::clone_args>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    (pid, io::Error::from_raw_os_error(-pid.min(0) as i32))
}

/// Runs in the child, on the parent's memory, so it may only make system calls.
extern "C" fn child(plan: *mut c_void) -> c_int {
    let plan = plan.cast::<Plan>();
    // SAFETY: the parent is stopped and keeps all that the plan points to alive; see `clone_vfork`.
    // `prepare` and execve make system calls and write into the report only.
    unsafe {
        let mut failed = prepare(&*plan);
        if failed == 0 {
            libc::execve((*plan).program, (*plan).argv, (*plan).env);
            failed = 7;
        }
        (*(*plan).report).errno = *libc::__errno_location();
        (*(*plan).report).failed = failed;
        if let Some(line) = &(*plan).note {
            // No program ran, so the record is removed: after the parent's death it would be taken for a lost task.
            libc::pwrite(line.file, c"\n".as_ptr().cast(), 1, line.offset);
        }
        libc::_exit(127)
    }
}

/// Does all that a child does, in this process. Returns the index in `CALLS` of the call that failed.
///
/// # Safety
/// The pointers in `plan` must be valid.
unsafe fn in_place(plan: &Plan) -> usize {
    // SAFETY: as promised.
    unsafe {
        let failed = prepare(plan);
        if failed != 0 {
            return failed;
        }
        libc::execve(plan.program, plan.argv, plan.env);
        7
    }
}

/// Does everything before exec; returns the index in `CALLS` of the call that failed, or 0.
///
/// # Safety
/// The pointers in `plan` must be valid. To be called only in the child of `clone_vfork`.
unsafe fn prepare(plan: &Plan) -> usize {
    // SAFETY: system calls on integers and on the plan's valid pointers.
    unsafe {
        if let Some(line) = &plan.note {
            write_digits(line.room, libc::getpid());
            // Without this record it could not be determined later whether the program ran.
            if libc::pwrite(line.file, line.text.cast(), line.length, line.offset) != line.length as isize {
                return 9;
            }
        }
        let session = match plan.session {
            Session::Group => libc::setpgid(0, 0),
            Session::New | Session::Terminal => libc::setsid(),
        };
        if session < 0 {
            return 1;
        }
        if plan.session == Session::Terminal && libc::ioctl(plan.stdio[0], libc::TIOCSCTTY, 0) != 0 {
            return 1;
        }
        if plan.keeps_orphans && libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 {
            return 10;
        }
        reset_signals(plan.ignored);
        for (to, &from) in plan.stdio.iter().enumerate() {
            if libc::dup2(from, to as c_int) < 0 {
                return 2;
            }
        }
        if let Some(person) = &plan.identity
            && !become_person(person)
        {
            return 8;
        }
        if let Some(umask) = plan.umask {
            libc::umask(umask as libc::mode_t);
        }
        if !plan.dir.is_null() && libc::chdir(plan.dir) != 0 {
            return 3;
        }
        if !limit(plan.rlimits, plan.rlimit_count) {
            return 4;
        }
        if !plan.cpus.is_null() && libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), plan.cpus) != 0 {
            return 5;
        }
        if plan.further >= 0 && libc::dup2(plan.further, 3) < 0 {
            return 2;
        }
        if !close_from(if plan.further >= 0 { 4 } else { 3 }) {
            return 6;
        }
        if !plan.pid_at.is_null() {
            write_pid(plan.pid_at, libc::getpid());
        }
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        0
    }
}

/// Becomes the user, for good, and verifies that. False: a call failed, or the result is wrong. Uses system calls, as
/// the C library's functions would change all threads, including the parent's.
///
/// # Safety
/// `person` must point to its groups. To be called only in a child.
unsafe fn become_person(person: &Person) -> bool {
    let (uid, gid) = (person.uid, person.gid);
    let (mut uids, mut gids) = ([libc::uid_t::MAX; 3], [libc::gid_t::MAX; 3]);
    // SAFETY: the pointers are valid for their calls, which change this process only.
    unsafe {
        libc::syscall(libc::SYS_setgroups, person.group_count, person.groups) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
            && libc::getresuid(&raw mut uids[0], &raw mut uids[1], &raw mut uids[2]) == 0
            && libc::getresgid(&raw mut gids[0], &raw mut gids[1], &raw mut gids[2]) == 0
            && uids == [uid; 3]
            && gids == [gid; 3]
            && (uid == 0 || libc::syscall(libc::SYS_setuid, 0) != 0)
    }
}

/// Sets soft resource limits of the calling process. False: one of them could not be set.
///
/// # Safety
/// `limits` must point to `count` entries.
unsafe fn limit(limits: *const (u32, u64), count: usize) -> bool {
    for at in 0..count {
        // SAFETY: `at` is below `count`; the rlimit is valid for both calls.
        unsafe {
            let (which, soft) = *limits.add(at);
            let mut now = MaybeUninit::<libc::rlimit>::zeroed();
            if libc::getrlimit(which as _, now.as_mut_ptr()) != 0 {
                continue;
            }
            let soft = soft.min((*now.as_ptr()).rlim_max);
            if std::mem::replace(&mut (*now.as_mut_ptr()).rlim_cur, soft) == soft {
                continue;
            }
            if libc::setrlimit(which as _, now.as_ptr()) != 0 {
                return false;
            }
        }
    }
    true
}

/// Has every descriptor from `first` on closed by exec. Kernels before 5.11 close them at once instead, and before 5.9
/// one by one. False: that failed.
fn close_from(first: c_int) -> bool {
    // SAFETY: takes integers; the child has its own table of descriptors (no CLONE_FILES).
    unsafe {
        for how in [libc::CLOSE_RANGE_CLOEXEC, 0] {
            if libc::syscall(libc::SYS_close_range, first, c_int::MAX, how) == 0 {
                return true;
            }
        }
        if *libc::__errno_location() != libc::ENOSYS {
            return false;
        }
        let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) != 0 {
            return false;
        }
        for fd in first..((*limit.as_ptr()).rlim_max.min(1 << 20) as c_int) {
            libc::close(fd);
        }
        true
    }
}

/// Writes a number in decimal, followed by NUL.
///
/// # Safety
/// `at` must point to `PID_ROOM` bytes and a NUL.
unsafe fn write_pid(at: *mut c_char, pid: libc::pid_t) {
    // SAFETY: the digits are at most as many as the room; one behind it is the NUL.
    unsafe {
        let count = write_digits(at, pid);
        *at.add(count) = 0;
    }
}

/// Writes a number in decimal; returns the number of digits.
///
/// # Safety
/// `at` must point to `PID_ROOM` bytes.
unsafe fn write_digits(at: *mut c_char, pid: libc::pid_t) -> usize {
    let mut digits = [0_u8; 10];
    let (mut rest, mut count) = (pid, 0);
    while count == 0 || rest > 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    for place in 0..count {
        // SAFETY: `count` is at most 10, the length of the room.
        unsafe { *at.add(place) = digits[count - 1 - place] as c_char };
    }
    count
}

#[cfg(test)]
mod tests;
