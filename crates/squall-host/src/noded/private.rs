//! Private folders: each job sees its own `/tmp` and `/dev/shm` on this node, which are removed with the job.
//!
//! A job has a folder of its own, made before its first step: `BASE/NODE/JOB.ATTEMPT`, with a folder for each private
//! one. A step daemon mounts these in a mount namespace of its own, so all steps of a job see the same. What is left by
//! a job that is not known any more is removed when a node daemon starts. The private `/dev/shm` is in the node's, so
//! that it is memory.
//!
//! The job's folder stays root's and closed: its user writes in the private ones only, and reaches them only where they
//! are mounted. So no user can put something else in the place of a folder that root makes, changes or mounts.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};
use squall_files::safe_path;
use squall_model::config::Config;
use squall_model::id::{Attempt, JobId};
use squall_model::job::JobAttempt;
use squall_model::step::PrivateDir;

use crate::removal::{remove, remove_apart};

/// Private folders that are in memory: a job's part of one is in the node's.
const MEMORY: &str = "/dev/shm";

/// Modes of the folder of all jobs, of a job's, and of a private one.
const JOBS_MODE: u32 = 0o711;
const JOB_MODE: u32 = 0o700;
const PRIVATE_MODE: u32 = 0o1777;

/// The private folders of this node's jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivateDirs(Vec<Private>);

/// A folder that each job has for itself.
#[derive(Clone, Debug)]
struct Private {
    /// The folder as jobs see it.
    dir: PathBuf,
    /// The folder with those of jobs, and its path.
    jobs: Arc<OwnedFd>,
    path: PathBuf,
}

/// A path by which the node daemon reaches a file that a job knows by another one.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) path: PathBuf,
    /// The private folder through which the path leads.
    _folder: Option<OwnedFd>,
}

impl PrivateDirs {
    /// Makes the folder of the node. `cluster`: a name for the cluster that no other cluster of this machine has; `state`:
    /// its state folder. Err: jobs can't have private folders as configured.
    pub(super) fn open(config: &Config, (cluster, node): (&str, &str), state: &Path) -> io::Result<Self> {
        if config.private_tmp.is_empty() {
            return Ok(Self::default());
        }
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::other("private_tmp needs a cluster that root runs: leave it out"));
        }
        let base = Path::new(&config.private_tmp);
        let mut dirs = Vec::new();
        for dir in config.private_dirs() {
            for (what, path) in [("the state folder", state), ("private_tmp", base)] {
                if path.starts_with(dir) {
                    let (path, dir) = (path.display(), dir.display());
                    let problem = format!("{what} {path} is in {dir}, which each job has for itself: put it elsewhere");
                    return Err(io::Error::other(problem));
                }
            }
            // Root mounts there, for each job.
            safe_path::open(dir).map_err(unsafe_folder)?;
            let name = format!("squall-jobs-{cluster}-{node}");
            let above = if dir == Path::new(MEMORY) { dir } else { base };
            let jobs = make(above, Path::new(&name))?;
            dirs.push(Private { dir: dir.to_owned(), jobs: Arc::new(jobs), path: above.join(name) });
        }
        Ok(Self(dirs))
    }

    /// Returns whether jobs have private folders.
    pub(super) fn are_on(&self) -> bool {
        !self.0.is_empty()
    }

    /// Makes the folders of a job, unless it has them; returns them for its step daemons.
    pub(super) fn of_job(&self, job: JobAttempt) -> io::Result<Vec<PrivateDir>> {
        let bytes = |path: PathBuf| path.into_os_string().into_vec().into();
        let make = |private: &Private| {
            private.make(job)?;
            let folder = private.path.join(name_of(job)).join(inner(&private.dir));
            Ok(PrivateDir { folder: bytes(folder), dir: bytes(private.dir.clone()) })
        };
        self.0.iter().map(make).collect()
    }

    /// Returns the path under which the node daemon finds a file that the job knows as `path`.
    pub(super) fn seen_by(&self, job: JobAttempt, path: &[u8]) -> Reached {
        let path = Path::new(OsStr::from_bytes(path));
        let inside = self.0.iter().find_map(|private| Some((private, path.strip_prefix(&private.dir).ok()?)));
        // A job without a step has no folders yet.
        match inside.and_then(|(private, rest)| Some((private.find(job).ok()?, rest))) {
            Some((folder, rest)) => {
                Reached { path: safe_path::path_of(folder.as_fd()).join(rest), _folder: Some(folder) }
            }
            None => Reached { path: path.to_owned(), _folder: None },
        }
    }

    /// Removes the folders of a job that has ended, on a thread of its own.
    pub(super) fn remove(&self, job: JobAttempt) {
        let own: Vec<PathBuf> = self.0.iter().map(|private| private.path.join(name_of(job))).collect();
        if own.iter().any(|own| own.exists()) {
            remove_apart(own);
        }
    }

    /// Removes the folders of jobs that are not known.
    pub(super) fn sweep(&self, known: &BTreeSet<JobAttempt>) {
        let is_left = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str).and_then(job_of);
            name.is_some_and(|job| !known.contains(&job))
        };
        let all = self.0.iter().flat_map(|private| fs::read_dir(&private.path).into_iter().flatten().flatten());
        let left: Vec<PathBuf> = all.map(|entry| entry.path()).filter(is_left).collect();
        if !left.is_empty() {
            remove_apart(left);
        }
    }
}

impl Private {
    /// Makes a job's folder with the private one in it, unless they are there.
    fn make(&self, job: JobAttempt) -> io::Result<OwnedFd> {
        let name = name_of(job);
        if let Ok(earlier) = safe_path::open_folder(self.jobs.as_fd(), Path::new(&name)) {
            // In earlier releases it was the user's, who then can't change it any more. What is in it is looked at below.
            rustix::fs::fchown(&earlier, Some(rustix::fs::Uid::ROOT), Some(rustix::fs::Gid::ROOT))?;
        }
        let own = safe_path::make(self.jobs.as_fd(), Path::new(&name), JOB_MODE)?;
        safe_path::make(own.as_fd(), Path::new(&inner(&self.dir)), PRIVATE_MODE)
    }

    /// Opens a job's private folder.
    fn find(&self, job: JobAttempt) -> io::Result<OwnedFd> {
        let own = safe_path::open_folder(self.jobs.as_fd(), Path::new(&name_of(job)))?;
        safe_path::open_folder(own.as_fd(), Path::new(&inner(&self.dir)))
    }
}

/// Makes a folder that users may pass through, and those above it. In a folder in which all may write, another user may
/// have taken its name: what has it then is removed.
fn make(above: &Path, name: &Path) -> io::Result<OwnedFd> {
    let at = safe_path::open_or_make(above, JOBS_MODE).map_err(unsafe_folder)?;
    let path = above.join(name);
    let foreign = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| found.st_uid != 0 || FileType::from_raw_mode(found.st_mode) != FileType::Directory);
    if foreign {
        tracing::warn!(path = %path.display(), "it is no folder of root, but has the name of one: it is removed");
        remove(&safe_path::path_of(at.as_fd()).join(name))?;
    }
    let made = safe_path::make(at.as_fd(), name, JOBS_MODE);
    made.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// Completes the error of a folder that others can replace.
fn unsafe_folder(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("private_tmp: {e}: name a folder that only root can replace"))
}

/// Returns the name of a private folder in a job's folder: `dev-shm` for `/dev/shm`.
fn inner(dir: &Path) -> String {
    dir.to_string_lossy().trim_matches('/').replace('/', "-")
}

fn name_of(job: JobAttempt) -> String {
    format!("{}.{}", job.job, job.attempt)
}

fn job_of(name: &str) -> Option<JobAttempt> {
    let (job, attempt) = name.split_once('.')?;
    Some(JobAttempt { job: JobId(job.parse().ok()?), attempt: Attempt(attempt.parse().ok()?) })
}
