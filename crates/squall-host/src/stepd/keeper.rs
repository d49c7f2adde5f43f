//! The keeper of a job's steps on a node where the job's script does not run. It stands in for the script there, so that
//! checkpoints of the job contain the steps: like an `srun` in the script, it starts the processes that serve them
//! (`squall step --inside`).

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use squall_model::codec;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::step::Birth;
use tracing::error;

use super::folder::Folder;
use super::surroundings::sockets;
use crate::spool::{file, tasks_in};
use crate::sys::peer::peer_of;
use crate::sys::signals::SignalFd;
use crate::sys::wait::{self, Waited};

/// Option of `squall step` that makes it a keeper.
pub(super) const KEEP: &str = "--keep";
/// Time in which a caller must have said what is to be started.
const SAYING: Duration = Duration::from_secs(10);
/// Most bytes of such a word.
const WORD_BYTES_MAX: u64 = 64 << 20;

/// Returns how the names of the sockets of a job's keepers begin. They end with what can't be guessed.
fn prefix(job: JobId) -> String {
    format!("squall-keeper-{job}-")
}

/// Serves as the keeper of a job, `squall step --keep JOB`, until it is ended; returns the exit status.
pub fn run_keeper(job: u32) -> u8 {
    let ready = || {
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("{}{:032x}", prefix(JobId(job)), u128::from_le_bytes(random));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok::<_, io::Error>((listener, SignalFd::new(&[libc::SIGCHLD])?))
    };
    let (listener, signals) = match ready() {
        Ok(ready) => ready,
        Err(e) => {
            error!(error = %e, "no keeper of the job's steps");
            return 1;
        }
    };
    loop {
        let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)], None);
        while signals.take().is_some() {}
        while let Ok(Waited::Reaped(_)) = wait::reap() {}
        while let Ok((stream, _)) = listener.accept() {
            if let Err(e) = serve(stream) {
                error!(error = %e, "a process for a step is not started");
            }
        }
    }
}

/// Starts what a caller wants to have started, which must be a process of the same user.
fn serve(mut stream: UnixStream) -> io::Result<()> {
    if peer_of(&stream)?.uid != rustix::process::getuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SAYING))?;
    let mut word = Vec::new();
    Read::by_ref(&mut stream).take(WORD_BYTES_MAX).read_to_end(&mut word)?;
    start_inside(&word)
}

/// Starts the process that serves a step inside of its job. `word`: what it reads, [`word_of`].
fn start_inside(word: &[u8]) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("squall").args(["step", "--inside"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = command.spawn()?;
    process.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(word))
}

/// Returns what a process reads that is to serve a step. `name`: of the abstract socket on which it listens.
fn word_of(name: &str, birth: &Birth) -> io::Result<Vec<u8>> {
    let mut word = format!("{name}\n").into_bytes();
    codec::encode(birth, &mut word).map_err(io::Error::other)?;
    Ok(word)
}

/// Starts the process that serves a step as a child of this one.
pub fn bear_inside(name: &str, birth: &Birth) -> io::Result<()> {
    start_inside(&word_of(name, birth)?)
}

/// The keeper of the job of a step on this node.
#[derive(Debug)]
pub(super) struct Keeper {
    job: JobId,
    /// Where its process is noted.
    pids: File,
}

impl Keeper {
    /// Finds the keeper of a step's job, with the rights of root. None: the step needs none.
    pub(super) fn of(folder: &Folder) -> io::Result<Option<Self>> {
        let launch = &folder.launch;
        if !launch.is_inside() || !launch.has_keeper() {
            return Ok(None);
        }
        let own = StepKey { step: StepNo::BATCH, ..launch.key };
        let place = folder.path.with_file_name(own.to_string());
        // It has its second name from when the keeper is started on.
        let pids = File::open(place.join(file::PIDS)).or_else(|_| File::open(place.join(file::UNTAKEN)));
        let pids = pids.or_else(|_| File::open(place.join(file::PIDS)))?;
        Ok(Some(Self { job: launch.key.job, pids }))
    }

    /// Has the keeper start the process that serves a step. Err of the kind `NotFound`: the keeper is not there yet.
    pub(super) fn bear(&self, name: &str, birth: &Birth) -> io::Result<()> {
        let mut pids = self.pids.try_clone()?;
        pids.rewind()?;
        let noted: Vec<u32> = tasks_in(pids).iter().map(|task| task.pid).collect();
        // Other nodes of this machine, or users, may have such names as well. They are not called: one that is just being
        // dumped could not be, with a caller that has left.
        let (own, table) = (sockets(&noted), fs::read_to_string("/proc/net/unix")?);
        let none = || io::Error::new(io::ErrorKind::NotFound, "the job has no keeper on this node");
        let found = named(&table, &prefix(self.job)).find(|(socket, _)| own.contains_key(socket)).ok_or_else(none)?;
        let mut stream = reach(found.1)?;
        if peer_of(&stream)?.pid.is_none_or(|pid| !noted.contains(&pid)) {
            return Err(none());
        }
        stream.write_all(&word_of(name, birth)?)?;
        stream.shutdown(Shutdown::Write)
    }
}

/// Connects to an abstract socket. Does not wait for one that takes no connections: it may be a stranger's.
fn reach(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Returns the sockets with abstract names that begin so in the kernel's table of Unix sockets, each with its number.
fn named<'a>(table: &'a str, beginning: &str) -> impl Iterator<Item = (u64, &'a str)> {
    let names = table.lines().filter_map(|line| {
        let (head, name) = line.split_once(" @")?;
        Some((head.split_ascii_whitespace().nth(6)?.parse().ok()?, name))
    });
    names.filter(move |(_, name)| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn only_abstract_names_with_the_beginning_count() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 17 @squall-keeper-7-aa\n\
            0: 00000002 00000000 00010000 0001 01 18 /tmp/squall-keeper-7-bb\n\
            0: 00000002 00000000 00010000 0001 01 19 @squall-keeper-71-cc\n\
            0: 00000003 00000000 00000000 0001 03 20\n";
        assert_eq!(named(table, "squall-keeper-7-").collect::<Vec<_>>(), [(17, "squall-keeper-7-aa")]);
    }
}
