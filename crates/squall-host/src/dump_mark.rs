//! Marks of dumps: files that show whether CRIU is at work on a job's processes, also to a node daemon that was started
//! since.
//!
//! The process that makes a checkpoint holds the lock of its job's mark as long as it lives. The mark is set, which means
//! that it has content, from just before CRIU is started until CRIU has ended by itself. So a mark that is set and not
//! locked shows that CRIU was killed: it may have left the job's processes half-changed. Such a mark stays until the job
//! is gone. The files are `dumps/JOB.ATTEMPT` in the node's spool.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use squall_model::job::JobAttempt;

use crate::spool::{attempt_name, parse_attempt};

/// Name of the folder of all marks in a node's spool.
const DUMPS: &str = "dumps";

/// State of a mark that a starting node daemon finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A process holds its lock.
    Held,
    /// CRIU was killed.
    Set,
    /// No dump is under way.
    Clear,
}

/// Returns the path of a job's mark. `steps`: the folder of all steps in the node's spool.
pub(crate) fn path_of(steps: &Path, job: JobAttempt) -> PathBuf {
    steps.with_file_name(DUMPS).join(attempt_name(job))
}

/// Returns whether CRIU is at work on the job, or was killed.
pub(crate) fn is_set(steps: &Path, job: JobAttempt) -> bool {
    fs::metadata(path_of(steps, job)).is_ok_and(|file| file.len() > 0)
}

/// Returns all marks.
pub(crate) fn all(steps: &Path) -> Vec<(JobAttempt, Found)> {
    let entries = fs::read_dir(steps.with_file_name(DUMPS)).into_iter().flatten().flatten();
    let jobs = entries.filter_map(|entry| parse_attempt(entry.file_name().to_str()?));
    let found = jobs.filter_map(|job| Some((job, state(&path_of(steps, job)).ok()?)));
    found.collect()
}

fn state(path: &Path) -> io::Result<Found> {
    let file = File::open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(Found::Held),
        Err(e) => Err(e.into()),
        Ok(()) if file.metadata()?.len() > 0 => Ok(Found::Set),
        Ok(()) => Ok(Found::Clear),
    }
}

/// Removes a job's mark.
pub(crate) fn remove(steps: &Path, job: JobAttempt) {
    drop(fs::remove_file(path_of(steps, job)));
}

/// A mark, of which this process has the lock.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    path: PathBuf,
}

impl Mark {
    /// Makes a job's mark, or takes over the one that is there, when no other process has its lock any more.
    pub(crate) fn lock(steps: &Path, job: JobAttempt) -> io::Result<Self> {
        let path = path_of(steps, job);
        match DirBuilder::new().mode(0o700).create(steps.with_file_name(DUMPS)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        loop {
            let file = File::options().read(true).append(true).create(true).mode(0o600).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // The process that had it may have removed it.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { file, path });
            }
        }
    }

    /// Waits until no other process has the lock of a mark that is there. None: it is gone.
    pub(crate) fn await_of(steps: &Path, job: JobAttempt) -> io::Result<Option<Self>> {
        let path = path_of(steps, job);
        let file = match File::options().read(true).append(true).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        flock(&file, FlockOperation::LockExclusive)?;
        Ok((file.metadata()?.nlink() > 0).then_some(Self { file, path }))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() > 0)
    }

    pub(crate) fn set(&self) -> io::Result<()> {
        (&self.file).write_all(b"CRIU\n")
    }

    pub(crate) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Removes the mark, unless it is set.
    pub(crate) fn finish(self) {
        if !self.is_set() {
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::{Attempt, JobId};
    use squall_model::job::JobAttempt;

    use super::{Found, Mark, all, is_set, remove};

    #[test]
    fn a_mark_tells_what_became_of_a_dump() {
        let root = std::env::temp_dir().join(format!("squall-dumps-{}", std::process::id()));
        let steps = root.join("steps");
        std::fs::create_dir_all(&steps).unwrap();
        let job = JobAttempt { job: JobId(7), attempt: Attempt(2) };
        let mark = Mark::lock(&steps, job).unwrap();
        assert_eq!((all(&steps), is_set(&steps, job)), (vec![(job, Found::Held)], false));
        mark.set().unwrap();
        assert!(is_set(&steps, job));
        drop(mark);
        assert_eq!(all(&steps), [(job, Found::Set)], "who had it has died");
        let mark = Mark::await_of(&steps, job).unwrap().unwrap();
        mark.finish();
        assert_eq!(all(&steps), [(job, Found::Set)], "it stays as long as the job");
        let mark = Mark::lock(&steps, job).unwrap();
        mark.clear().unwrap();
        mark.finish();
        assert_eq!((all(&steps).len(), Mark::await_of(&steps, job).unwrap().is_none()), (0, true));
        remove(&steps, job);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
