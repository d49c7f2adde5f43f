//! The guard of a job with a node fence: a process of its own that ends the job when the controller can't be heard.
//!
//! The node daemon starts one for each such job, and tells all of them by a file in memory when this node sent what the
//! controller has acknowledged last. A guard sleeps until a term is over by the clock since boot, then reads the file. If
//! nothing newer is there, it kills all that is left of the job. So it needs no other process: the node daemon, the step
//! daemon and the zygote may be dead or stopped, and the next node daemon goes on writing the same file. A guard ends when
//! the job's own file in the same folder is removed.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use squall_engine::node::Guard;
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use crate::cgroup;
use crate::processes;
use crate::spool::parse_attempt;
use crate::sys::clock::since_boot_us;
use crate::sys::realtime::stay_in_memory;
use crate::sys::signals::SignalFd;
use crate::sys::spawn::{Session, Spawn};

/// Name of the file with the time up to which this node was heard.
const PROVEN: &str = "proven";

/// Pause between two looks for processes to be killed.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks in a row that find no process, after which a guard ends without an order: 5 minutes.
const LOOKS_MAX: u32 = 6000;

/// The folder through which a node daemon and its guards talk.
#[derive(Debug)]
pub(crate) struct FenceFolder {
    path: PathBuf,
    proven: File,
}

impl FenceFolder {
    /// Opens the folder `path`, which is made if necessary.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let found = fs::symlink_metadata(path)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is another user's", path.display()),
            ));
        }
        // What an earlier daemon has written stays until there is something newer.
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let proven = options.open(path.join(PROVEN))?;
        Ok(Self { path: path.to_owned(), proven })
    }

    /// Tells all guards that what this node sent at this time since boot was heard.
    pub(crate) fn prove(&self, boot_us: u64) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&boot_us.to_le_bytes());
        bytes[8..].copy_from_slice(&boot_us.to_le_bytes());
        self.proven.write_all_at(&bytes, 0)
    }

    /// Starts the guard of a job, unless one is there: `program step --guard ...`. `group`: the folder of the job's cgroup, if
    /// it has one. Returns its process id.
    pub(crate) fn guard(
        &self,
        program: &std::ffi::CStr,
        (job, term): (JobAttempt, Span),
        (steps, group): (&Path, Option<&Path>),
    ) -> io::Result<u32> {
        let mark = self.mark(job);
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&mark)?;
        if let Some(pid) = guard_of(&mark) {
            return Ok(pid);
        }
        file.set_len(0)?;
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let argv = [
            c"squall".to_owned(),
            c"step".to_owned(),
            c"--guard".to_owned(),
            text(&mark)?,
            CString::new(term.0.to_string())?,
            text(steps)?,
            text(group.unwrap_or(Path::new("")))?,
        ];
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let stdio = [null.as_fd(), null.as_fd(), null.as_fd()];
        let spawn = Spawn { dir: Some(c"/"), session: Session::New, ..Spawn::new(program, &argv, stdio) };
        Ok(spawn.start().map_err(|e| e.error)?.pid)
    }

    /// Ends the guard of a job that is gone.
    pub(crate) fn drop(&self, job: JobAttempt) {
        let mark = self.mark(job);
        drop(fs::remove_file(&mark));
        if let Some(pid) = guard_of(&mark) {
            processes::kill_if(pid, |pid| guards(pid, &mark));
        }
    }

    /// Returns the jobs that their guards have ended, by the marks in the folder `path`.
    pub(crate) fn ended(path: &Path) -> BTreeSet<JobAttempt> {
        let marks = fs::read_dir(path).into_iter().flatten().flatten();
        let over = marks.filter(|mark| mark.metadata().is_ok_and(|data| data.is_file() && data.len() > 0));
        over.filter_map(|mark| parse_attempt(mark.file_name().to_str()?)).collect()
    }

    fn mark(&self, job: JobAttempt) -> PathBuf {
        self.path.join(format!("{}.{}", job.job, job.attempt))
    }
}

/// Returns the process that guards the job with this file. None: there is none.
fn guard_of(mark: &Path) -> Option<u32> {
    processes::all().into_iter().find(|pid| guards(*pid, mark))
}

fn guards(pid: u32, mark: &Path) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|&b| b == 0).skip_while(|word| *word != b"--guard");
    words.next().is_some() && words.next() == Some(mark.as_os_str().as_bytes())
}

/// A job as its guard knows it.
struct Guarded {
    mark: PathBuf,
    /// Begin of the names of its steps' folders, as `7.1.`.
    prefix: String,
    steps: PathBuf,
    group: Option<PathBuf>,
}

/// Runs a guard until its job is gone; returns the exit status. The arguments are those that [`FenceFolder::guard`] gives.
pub fn serve(args: &[OsString]) -> i32 {
    let [mark, term, steps, group] = args else { return 2 };
    let Some(term) = term.to_str().and_then(|term| term.parse().ok()).map(Span) else { return 2 };
    let mark = PathBuf::from(mark);
    let Some(name) = mark.file_name().and_then(|name| name.to_str()) else { return 2 };
    let (prefix, group) =
        (format!("{name}."), Some(PathBuf::from(group)).filter(|group| !group.as_os_str().is_empty()));
    let Ok(proven) = File::open(mark.with_file_name(PROVEN)) else { return 1 };
    let job = Guarded { prefix, steps: steps.into(), group, mark };
    // It outlives whoever ends the node daemon, and shortage of memory.
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
    let _blocked = SignalFd::new(&signals);
    let _ = (fs::write("/proc/self/oom_score_adj", "-1000"), stay_in_memory());
    let (mut guard, mut looks, mut marked) = (Guard::new(term), 0, false);
    while job.mark.exists() && looks < LOOKS_MAX {
        if let Some(until) = guard.look(Time(since_boot_us()), read(&proven)) {
            sleep_until(until);
        } else {
            // The next node daemon has to know that the job did not end by itself.
            if !std::mem::replace(&mut marked, true) {
                let _ = fs::write(&job.mark, "over");
            }
            looks = if job.kill() { 0 } else { looks + 1 };
            std::thread::sleep(PAUSE);
        }
    }
    drop(fs::remove_file(&job.mark));
    0
}

/// Returns when this node sent what was acknowledged last, since boot. What can't be read counts as never.
fn read(proven: &File) -> Time {
    let mut bytes = [0; 16];
    for _ in 0..3 {
        let half = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        if proven.read_exact_at(&mut bytes, 0).is_ok() && bytes[..8] == bytes[8..] {
            return Time(half(&bytes[..8]));
        }
    }
    Time(0)
}

fn sleep_until(until: Time) {
    let until = Timespec { tv_sec: (until.0 / 1_000_000) as i64, tv_nsec: (until.0 % 1_000_000 * 1000) as _ };
    // An interrupted sleep is a reason to look, too.
    let _ = clock_nanosleep_absolute(ClockId::Boottime, &until);
}

impl Guarded {
    /// Kills all processes of the job that there are. Returns whether there were any.
    fn kill(&self) -> bool {
        let mut found = false;
        if let Some(group) = &self.group {
            let members = cgroup::members_within(group);
            found |= !members.is_empty();
            // One write kills what is being created meanwhile, too.
            if !members.is_empty() && fs::write(group.join("cgroup.kill"), "1").is_err() {
                for pid in members {
                    processes::kill_if(pid, |pid| cgroup::members_within(group).contains(&pid));
                }
            }
        }
        for (pid, name) in processes::marked(&self.steps).into_iter().filter(|(_, name)| name.starts_with(&self.prefix))
        {
            found = true;
            processes::kill_if(pid, |pid| processes::mark(pid) == Some(self.steps.join(&name)));
        }
        for (pid, name) in processes::step_daemons(&self.steps) {
            if name.starts_with(&self.prefix) {
                found = true;
                processes::kill_if(pid, |pid| processes::serves(pid, &self.steps.join(&name)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;

    use super::{FenceFolder, read};

    #[test]
    fn what_was_proven_is_read_and_survives_the_daemon() {
        let dir = std::env::temp_dir().join(format!("squall-fence-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&dir));
        let folder = FenceFolder::open(&dir).unwrap();
        assert_eq!(read(&folder.proven), Time(0), "nothing yet");
        folder.prove(123_456_789_012).unwrap();
        assert_eq!(read(&folder.proven), Time(123_456_789_012));
        drop(folder);
        let again = FenceFolder::open(&dir).unwrap();
        assert_eq!(read(&again.proven), Time(123_456_789_012));
        std::fs::write(dir.join("proven"), [1; 15]).unwrap();
        assert_eq!(read(&again.proven), Time(0), "a torn file proves nothing");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
