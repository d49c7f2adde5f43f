//! The end of a job's output file, for the job's page. A process of the job's owner reads it and ends at once: the
//! controller opens no file of a user, as that could hang it, be a pipe, or lead to what only root may read.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_engine::control::state::{Found, State};
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, JobKind, JobSpec, Owner};
use squall_model::plain::plain;
use squall_model::wire::client::{Refusal, Tail};
use squall_text::format::path;

use crate::sys::identity::Identity;
use crate::sys::pidfd;
use crate::sys::spawn::{Session, Spawn};

/// Most bytes that are read.
const BYTES_MAX: u64 = 8 << 10;
/// Time limit for a process to read.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most processes at one time, with those that hang: of all users, and of one.
const PROCESSES_MAX: usize = 8;
const OF_USER_MAX: usize = 2;

/// The processes that read at the moment, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tails(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A process that reads, counted until this is dropped.
#[derive(Debug)]
struct ReaderCount(Tails, u32);

impl Drop for ReaderCount {
    fn drop(&mut self) {
        let mut all = self.0.all();
        if let Some(own) = all.get_mut(&self.1) {
            *own -= 1;
        }
        all.retain(|_, own| *own > 0);
    }
}

impl Tails {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a process of a user. None: there are as many as allowed.
    fn count(&self, uid: u32) -> Option<ReaderCount> {
        let mut all = self.all();
        if all.values().sum::<usize>() >= PROCESSES_MAX || all.get(&uid).is_some_and(|own| *own >= OF_USER_MAX) {
            return None;
        }
        *all.entry(uid).or_default() += 1;
        Some(ReaderCount(self.clone(), uid))
    }

    /// Has the end of a file read as a user, by a process and a thread of their own; `answer` gets it. Err: too many
    /// processes read already.
    pub(crate) fn read(
        &self,
        owner: &Owner,
        path: String,
        answer: impl FnOnce(Tail) + Send + 'static,
    ) -> Result<(), Refusal> {
        let busy = || Refusal::WrongState("other output is being read: try again in a moment".to_owned());
        let counted = self.count(owner.uid).ok_or_else(busy)?;
        let identity = Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() };
        let work = move || {
            let (found, child) = ask(&identity, &path);
            let (size, bytes, problem) = match found {
                Ok((size, bytes)) => (size, bytes, None),
                Err(problem) => (0, Vec::new(), Some(problem)),
            };
            answer(Tail { path, size, bytes: bytes.into(), problem });
            // A process that hangs counts until it has ended.
            drop(child.map(|child| pidfd::reap(child.as_fd(), true)));
            drop(counted);
        };
        std::thread::Builder::new()
            .name("tail".to_owned())
            .spawn(work)
            .map(drop)
            .map_err(|e| Refusal::WrongState(format!("the controller can't start a thread: {}", plain(&e.to_string()))))
    }
}

/// Has the end of a file read as a user, by a process of that user.
pub fn read_as(owner: &Owner, path: &str) -> Tail {
    let identity = Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() };
    let (found, child) = ask(&identity, path);
    let (size, bytes, problem) = match found {
        Ok((size, bytes)) => (size, bytes, None),
        Err(problem) => (0, Vec::new(), Some(problem)),
    };
    // One that hangs is waited for elsewhere: it is killed already.
    std::thread::spawn(move || drop(child.map(|child| pidfd::reap(child.as_fd(), true))));
    Tail { path: path.to_owned(), size, bytes: bytes.into(), problem }
}

/// Returns the path of a job's standard output, which only the job's owner may read.
pub(crate) fn output_of(state: &State, id: JobId, errors: bool) -> Result<(Arc<Owner>, String), Refusal> {
    let (owner, spec, task, host) = match state.find(id) {
        Some(Found::Job(job)) => {
            let node = job.run().and_then(|run| run.alloc.nodes().first());
            let host = node.and_then(|node| state.node(node)).map_or("", |node| &node.name);
            (&job.owner, &job.spec, job.task, host)
        }
        Some(Found::Untouched(..)) | None => return Err(Refusal::InvalidJobId),
    };
    path_of((id, task), owner, (spec, errors), host).map(|path| (Arc::clone(owner), path))
}

/// Returns the path of the standard output of a batch job, or with `errors` of its standard error. `host`: name of its first node; empty: not known.
pub(crate) fn path_of(
    (id, task): (JobId, Option<ArrayTask>),
    owner: &Owner,
    (spec, errors): (&JobSpec, bool),
    host: &str,
) -> Result<String, Refusal> {
    if spec.kind != JobKind::Batch {
        return Err(Refusal::WrongState("not a batch job".to_owned()));
    }
    let default = if task.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    let pattern = spec.stderr.as_deref().filter(|_| errors).or(spec.stdout.as_deref()).unwrap_or(default);
    let array = task.map(|task| (task.array.0, task.index));
    let known = path::PathValues { job: id.0, array, user: &owner.user, name: &spec.name, host };
    Ok(path::expand(pattern, &spec.work_dir, &known))
}

type End = Result<(u64, Vec<u8>), String>;

/// Has a process of the user read the end of a file. Returns the file's size and its last bytes, and the process, which is
/// still to be reaped.
fn ask(identity: &Identity, path: &str) -> (End, Option<std::os::fd::OwnedFd>) {
    let words = |e: io::Error| plain(&e.to_string());
    let begun = begin(identity, path).map_err(|e| format!("no process of the user can be started: {}", words(e)));
    let (mut answer, child) = match begun {
        Ok(begun) => begun,
        Err(problem) => return (Err(problem), None),
    };
    let read = receive(&mut answer);
    if read.is_err() {
        // It may have ended meanwhile.
        drop(pidfd::signal(child.as_fd(), libc::SIGKILL));
    }
    let found = read.map_err(words).and_then(|bytes| match bytes.split_first_chunk::<8>() {
        Some((size, rest)) if *size != [u8::MAX; 8] => Ok((u64::from_le_bytes(*size), rest.to_vec())),
        Some((_, problem)) => Err(String::from_utf8_lossy(problem).into_owned()),
        None => Err("the process that reads it has ended early".to_owned()),
    });
    (found, Some(child))
}

fn begin(identity: &Identity, path: &str) -> io::Result<(io::PipeReader, std::os::fd::OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    let null = File::open("/dev/null")?;
    let argv = [c"squall".to_owned(), c"step".to_owned(), c"--tail".to_owned(), CString::new(path)?];
    let stdio = [null.as_fd(), writer.as_fd(), null.as_fd()];
    let spawn = Spawn {
        dir: Some(c"/"),
        session: Session::New,
        identity: Some(identity),
        ..Spawn::new(c"/proc/self/exe", &argv, stdio)
    };
    let child = spawn.start().map_err(|e| e.error)?;
    Ok((reader, child.pidfd))
}

/// Reads what the process writes, until it ends or time is over.
fn receive(answer: &mut io::PipeReader) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
        let ready = match poll(&mut [PollFd::new(answer, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready?,
        };
        if ready == 0 {
            return Err(io::Error::other("it can't be read in time: its file system may hang"));
        }
        match answer.read(&mut piece)? {
            0 => return Ok(bytes),
            _ if bytes.len() as u64 > BYTES_MAX + 4096 => return Err(io::Error::other("it gave too much")),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

/// The process that reads: writes the size of the file (8 bytes) and its end to standard output, or 8 bytes of ones and
/// what is wrong.
pub fn serve(path: &OsStr) -> io::Result<()> {
    let mut out = io::stdout();
    match read_end(Path::new(OsStr::from_bytes(path.as_bytes()))) {
        Ok((size, bytes)) => {
            out.write_all(&size.to_le_bytes())?;
            out.write_all(&bytes)?;
        }
        Err(e) => {
            out.write_all(&[u8::MAX; 8])?;
            out.write_all(plain(&e.to_string()).as_bytes())?;
        }
    }
    out.flush()
}

/// Returns the size and the last bytes of a regular file. Nothing else is read: a pipe or a terminal is opened
/// without waiting, and closed.
fn read_end(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let known = file.metadata()?;
    if !known.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let size = known.len();
    file.seek(SeekFrom::Start(size.saturating_sub(BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((size, bytes))
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, OF_USER_MAX, Tails, read_end};

    // Regression test of the kind of A5: files of one user that hang kept all others from reading.
    #[test]
    fn a5_one_users_files_that_hang_keep_nobody_else_from_reading() {
        let tails = Tails::default();
        let held: Vec<_> = (0..10).map_while(|_| tails.count(1001)).collect();
        assert!(held.len() == OF_USER_MAX && tails.count(1002).is_some());
        drop(held);
        assert!(tails.count(1001).is_some());
        assert!(tails.all().is_empty(), "nothing is counted that has ended");
    }

    #[test]
    fn the_end_of_a_regular_file_is_read_and_a_fifo_does_no_harm() {
        let dir = std::env::temp_dir().join(format!("squall-tail-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (file, fifo) = (dir.join("out"), dir.join("fifo"));
        let text: Vec<u8> = (0..20_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
        std::fs::write(&file, &text).unwrap();
        let (size, end) = read_end(&file).unwrap();
        assert_eq!((size, end.as_slice()), (20_000, &text[text.len() - BYTES_MAX as usize..]));
        std::fs::write(&file, b"short").unwrap();
        assert_eq!(read_end(&file).unwrap(), (5, b"short".to_vec()));
        // It has no writer: a plain open would wait for ever.
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(read_end(&fifo).unwrap_err().to_string(), "it is no regular file");
        assert_eq!(read_end(&dir).unwrap_err().to_string(), "it is no regular file");
        assert!(read_end(&dir.join("none")).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
