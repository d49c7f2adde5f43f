//! The zygote: makes step daemons without exec. The node daemon keeps one process of this program that is loaded and
//! idle, and that copies itself for each step. A copy costs a tenth of an exec. The copies have the command line
//! `squall step --spool FOLDER`. They are the zygote's children, and it stays for as long as it has any, also when the
//! node daemon has ended: so the exit of a task is recorded even if both of its daemons die (`recorder`).

use minicbor::{Decode, Encode};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_model::codec;

use super::batch_supervisor;
use super::exit_recorder::ExitRecorder;
use crate::logging;
use crate::messages::{receive, send};
use crate::spool::file;
use crate::sys::host::cpus;
use crate::sys::offspring::{Born, bear, bind, set_command_line};
use crate::sys::pidfd;
use crate::sys::pmix;
use crate::sys::signals::SignalFd;
use crate::sys::spawn::{Session, Spawn, ignored_signals};

/// Bytes reserved in the zygote's command line for those of its copies: the longest path and the words before it.
const TITLE_BYTES: usize = 4096 + 64;

/// File of the batch supervisor's standard error, in the node's spool.
const SUPERVISOR_LOG: &str = "foster.log";

/// Environment variable with the folders in which step daemons search libpmix and UCX before the system's folders. Its
/// value is that of the process that started the node daemon. Tasks have their own value.
pub(crate) const LIBRARIES_VARIABLE: &str = "LD_LIBRARY_PATH";

/// Time limit for making a copy; after it the zygote counts as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of the check whether the steps of dead step daemons have ended.
const WATCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Request of the node daemon to make a step daemon.
#[derive(Debug, Encode, Decode)]
struct Order {
    /// Absolute path of the spool folder, as bytes.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    folder: Vec<u8>,
    /// CPUs that the step daemon may use; empty: all.
    #[n(1)]
    cpus: Vec<usize>,
    /// Path of the v2 cgroup in which the copy is created, as bytes; empty: that of the zygote.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    group: Vec<u8>,
    /// Whether to make a batch supervisor; then the folder is that of all steps.
    #[n(3)]
    supervisor: bool,
}

impl Order {
    fn folder(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.folder))
    }
}

/// Answer of the zygote to an order.
#[derive(Debug, Encode, Decode)]
enum Answer {
    /// A copy was made; its process id.
    #[n(0)]
    Born(#[n(0)] u32),
    /// No copy was made; the error number.
    #[n(1)]
    Failed(#[n(0)] i32),
}

/// The node daemon's handle of its zygote. When it is dropped, the zygote makes no more copies, and ends after the last
/// one.
#[derive(Debug)]
pub struct Zygote {
    link: UnixStream,
    process: OwnedFd,
}

impl Zygote {
    /// Starts the zygote: `program step --zygote ROOM`, with the link as its standard input. It is a child of this
    /// process and has to be reaped. If it dies before its copies, they become children of this process, provided that
    /// this is a subreaper.
    pub fn start(program: &CStr) -> io::Result<Self> {
        let (link, other) = UnixStream::pair()?;
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        let null = File::open("/dev/null")?;
        let room = CString::new(vec![b' '; TITLE_BYTES])?;
        let argv = [c"squall".to_owned(), c"step".to_owned(), c"--zygote".to_owned(), room];
        let libraries = std::env::var_os(LIBRARIES_VARIABLE).map(OsString::into_encoded_bytes);
        let assign = |value: Vec<u8>| CString::new([LIBRARIES_VARIABLE.as_bytes(), b"=", &value].concat());
        let env: Vec<CString> = libraries.map(assign).transpose()?.into_iter().collect();
        let stdio = [other.as_fd(), null.as_fd(), null.as_fd()];
        let spawn = Spawn { env: &env, dir: Some(c"/"), session: Session::New, ..Spawn::new(program, &argv, stdio) };
        let child = spawn.start().map_err(|e| e.error)?;
        Ok(Self { link, process: child.pidfd })
    }

    /// Makes the step daemon of a folder; returns its process id. After an error the zygote was killed and can't be
    /// used any more, and the daemon may or may not have been made; a second one for the folder does no harm.
    pub fn birth(&mut self, folder: &Path, cpus: &[usize], group: Option<&Path>) -> io::Result<u32> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let group = group.map(bytes).unwrap_or_default();
        self.obtain(&Order { folder: bytes(folder), cpus: cpus.to_vec(), group, supervisor: false })
    }

    /// Makes a batch supervisor for the steps in the folder `steps`; returns its process id.
    pub(crate) fn birth_supervisor(&mut self, steps: &Path) -> io::Result<u32> {
        let folder = steps.as_os_str().as_bytes().to_vec();
        self.obtain(&Order { folder, cpus: Vec::new(), group: Vec::new(), supervisor: true })
    }

    fn obtain(&mut self, order: &Order) -> io::Result<u32> {
        let answer = send(&mut self.link, order).and_then(|()| receive(&mut self.link));
        let error = match answer {
            Ok(Some(Answer::Born(pid))) => return Ok(pid),
            Ok(Some(Answer::Failed(errno))) => io::Error::from_raw_os_error(errno),
            Ok(None) => io::ErrorKind::UnexpectedEof.into(),
            Err(e) => e,
        };
        // It may have ended by itself.
        let _ = pidfd::signal(self.process.as_fd(), libc::SIGKILL);
        Err(error)
    }
}

/// Runs the zygote on its standard input. Returns in the zygote when the link has ended and no child is left, and in
/// each copy with the exit status of its step.
pub fn serve() -> i32 {
    let stdin = io::stdin();
    let Ok(link) = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3) else { return 1 };
    let mut link = Some(UnixStream::from(link));
    // The copies' standard input is empty.
    if File::open("/dev/null").and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?)).is_err() {
        return 1;
    }
    let Ok(signals) = pidfd::set_child_subreaper().and_then(|()| SignalFd::new(&[libc::SIGCHLD])) else { return 1 };
    warm_up();
    let mut recorder = ExitRecorder::default();
    let mut warm = false;
    loop {
        if wait(link.as_ref(), &signals, recorder.watches()) {
            match link.as_mut().map(|link| obey(link, &mut recorder)) {
                Some(Ok(None)) => {}
                Some(Ok(Some(order))) => {
                    drop((link, signals));
                    return grow_up(&order);
                }
                Some(Err(_)) | None => link = None,
            }
        }
        while signals.take().is_some() {}
        if recorder.watches() {
            recorder.kill_left();
        }
        if !recorder.reap() && link.is_none() {
            return 0;
        }
        if std::mem::take(&mut recorder.pmix_wanted) && !std::mem::replace(&mut warm, true) {
            pmix::warm();
        }
    }
}

/// Initializes what is the same in all copies, before there are any: features of the processor, position of the command
/// line, ignored signals.
fn warm_up() {
    blake3::hash(&[0; 4096]);
    let _ = codec::encode(&0_u8, &mut Vec::new());
    // The command line stays the same.
    drop(set_command_line(&[b"squall", b"step", b"--zygote"]));
    ignored_signals();
    cpus();
}

/// Carries out the next order. Some: this process is the copy, and carries out the returned order. Err: the link has
/// ended.
fn obey(link: &mut UnixStream, recorder: &mut ExitRecorder) -> io::Result<Option<Order>> {
    let order: Order = receive(link)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let group = File::open(OsStr::from_bytes(&order.group)).ok();
    let answer = match bear(group.as_ref().map(AsFd::as_fd)) {
        Ok((Born::Copy, _)) => return Ok(Some(order)),
        Ok((Born::Original, pid)) => {
            recorder.add(pid, order.folder());
            Answer::Born(pid)
        }
        Err(e) => Answer::Failed(e.raw_os_error().unwrap_or(libc::EAGAIN)),
    };
    send(link, &answer)?;
    Ok(None)
}

/// Waits for an order or for a child's end; with `watches` for [`WATCH`] at most. Returns whether the link is readable,
/// which includes its end.
fn wait(link: Option<&UnixStream>, signals: &SignalFd, watches: bool) -> bool {
    let fds: [Option<BorrowedFd<'_>>; 2] = [Some(signals.as_fd()), link.map(AsFd::as_fd)];
    let mut fds: Vec<PollFd<'_>> =
        fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&WATCH).filter(|_| watches)).is_ok() && fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
}

/// Turns a copy into a step daemon (or batch supervisor) and runs it; returns the exit status.
fn grow_up(order: &Order) -> i32 {
    let folder = order.folder();
    let ready = || -> io::Result<()> {
        rustix::process::setsid()?;
        if order.supervisor {
            set_command_line(&batch_supervisor::IDLE_TITLE)?;
        } else {
            set_command_line(&[b"squall", b"step", b"--spool", &order.folder])?;
        }
        let log = if order.supervisor { folder.with_file_name(SUPERVISOR_LOG) } else { folder.join(file::LOG) };
        let log = OpenOptions::new().append(true).create(order.supervisor).mode(0o600).open(log)?;
        rustix::stdio::dup2_stderr(&log)?;
        logging::to_stderr();
        if !order.cpus.is_empty() {
            bind(&order.cpus)?;
        }
        Ok(())
    };
    match ready() {
        Ok(()) if order.supervisor => super::run_batch_supervisor(&folder),
        Ok(()) => super::run(&folder),
        // The folder is untouched: the node daemon sees that the step has not started.
        Err(_) => 1,
    }
}
