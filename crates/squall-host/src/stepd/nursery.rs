//! Step daemons without exec: the node daemon keeps one process of this program that has loaded and does nothing, and that
//! copies itself for each step. A copy costs a tenth of an exec. The copies are children of the node
//! daemon, and look like what they are: `squall step --spool FOLDER`.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use squall_model::codec;

use crate::spool::file;
use crate::sys::offspring::{Born, bear, bind, dismiss, set_command_line};
use crate::sys::spawn::{Session, Spawn};

/// Room in the nursery's command line for those of its copies: the longest path and the words before it.
const TITLE_BYTES: usize = 4096 + 64;

/// How long a copy may take to be made before the nursery counts as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// A step daemon to be made.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// Bytes of the spool folder's absolute path.
    folder: Vec<u8>,
    /// CPUs that it may use; none: all.
    cpus: Vec<usize>,
    /// Bytes of the path of the v2 cgroup to be born in; none: the nursery's own.
    group: Vec<u8>,
}

/// What came of an order.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The process.
    Born(u32),
    /// The error number.
    Failed(i32),
}

/// The node daemon's side.
#[derive(Debug)]
pub struct Nursery {
    link: UnixStream,
    pid: u32,
}

impl Nursery {
    /// Starts it: `program step --nursery ROOM`, with the link as its standard input. It ends when the link does.
    pub fn start(program: &CStr) -> io::Result<Self> {
        let (link, other) = UnixStream::pair()?;
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        let null = File::open("/dev/null")?;
        let room = CString::new(vec![b' '; TITLE_BYTES])?;
        let argv = [c"squall".to_owned(), c"step".to_owned(), c"--nursery".to_owned(), room];
        let spawn = Spawn {
            program,
            argv: &argv,
            env: &[],
            env_pid: None,
            dir: Some(c"/"),
            stdio: [other.as_fd(), null.as_fd(), null.as_fd()],
            session: Session::New,
            umask: None,
            rlimits: &[],
            cpus: &[],
        };
        let child = spawn.start().map_err(|e| e.error)?;
        Ok(Self { link, pid: child.pid })
    }

    /// Makes the step daemon of that folder; its process, a child of this one. After an error the nursery is of no more
    /// use, and the daemon may or may not have been made; a second one for the folder does no harm.
    pub fn birth(&mut self, folder: &Path, cpus: &[usize], group: Option<&Path>) -> io::Result<u32> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let group = group.map(bytes).unwrap_or_default();
        let order = Order { folder: bytes(folder), cpus: cpus.to_vec(), group };
        send(&mut self.link, &order)?;
        match receive(&mut self.link)? {
            Some(Answer::Born(pid)) => Ok(pid),
            Some(Answer::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        dismiss(self.pid);
    }
}

/// The nursery's side, over its standard input. Returns in the nursery when the link has ended, and in each copy
/// with the exit status of its step.
pub fn serve() -> i32 {
    let stdin = io::stdin();
    let Ok(link) = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3) else { return 1 };
    let mut link = UnixStream::from(link);
    // The copies' standard input is empty.
    if File::open("/dev/null").and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?)).is_err() {
        return 1;
    }
    while let Ok(Some(order)) = receive::<Order>(&mut link) {
        let group = File::open(OsStr::from_bytes(&order.group)).ok();
        let answer = match bear(group.as_ref().map(AsFd::as_fd)) {
            Ok((Born::Copy, _)) => {
                drop((link, group));
                return grow_up(&order);
            }
            Ok((Born::Original, pid)) => Answer::Born(pid),
            Err(e) => Answer::Failed(e.raw_os_error().unwrap_or(libc::EAGAIN)),
        };
        if send(&mut link, &answer).is_err() {
            break;
        }
    }
    0
}

/// In a copy: becomes what an executed step daemon would have been.
fn grow_up(order: &Order) -> i32 {
    let folder = PathBuf::from(OsStr::from_bytes(&order.folder));
    let ready = || -> io::Result<()> {
        rustix::process::setsid()?;
        set_command_line(&[b"squall", b"step", b"--spool", &order.folder])?;
        let log = OpenOptions::new().append(true).open(folder.join(file::LOG))?;
        rustix::stdio::dup2_stderr(&log)?;
        if !order.cpus.is_empty() {
            bind(&order.cpus)?;
        }
        Ok(())
    };
    match ready() {
        Ok(()) => super::run(&folder),
        // Nothing was touched: the node daemon sees that it has not started.
        Err(_) => 1,
    }
}

fn send<T: Serialize>(link: &mut UnixStream, message: &T) -> io::Result<()> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).map_err(io::Error::other)?;
    link.write_all(&bytes)
}

/// None: the link has ended.
fn receive<T: serde::de::DeserializeOwned>(link: &mut UnixStream) -> io::Result<Option<T>> {
    let mut head = [0; codec::HEADER_BYTES];
    match link.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let (length, crc) = codec::header(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    link.read_exact(&mut body)?;
    codec::decode(&body, crc).map(Some).map_err(io::Error::other)
}
