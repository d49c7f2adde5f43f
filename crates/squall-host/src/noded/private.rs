//! Private folders: each job sees its own `/tmp` and `/dev/shm` on this node, which are removed with the job.
//!
//! A job has a folder of its own, made before its first step: `BASE/NODE/JOB.ATTEMPT`, with a folder for each private
//! one. A step daemon mounts these in a mount namespace of its own, so all steps of a job see the same. What is left by
//! a job that is not known any more is removed when a node daemon starts. The private `/dev/shm` is in the node's, so
//! that it is memory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use squall_model::config::Config;
use squall_model::id::{Attempt, JobId};
use squall_model::job::{JobAttempt, Owner};
use squall_model::step::PrivateDir;

use crate::removal::remove_apart;

/// Private folders that are in memory: a job's part of one is in the node's.
const MEMORY: &str = "/dev/shm";

/// The private folders of this node's jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivateDirs {
    /// Each private folder, and the folder that has the jobs' own ones.
    dirs: Vec<(PathBuf, PathBuf)>,
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
            let name = format!("squall-jobs-{cluster}-{node}");
            let jobs = if dir == Path::new(MEMORY) { dir.join(name) } else { base.join(name) };
            make(&jobs)?;
            dirs.push((dir.to_owned(), jobs));
        }
        Ok(Self { dirs })
    }

    /// Returns whether jobs have private folders.
    pub(super) fn are_on(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Makes the folders of a job, unless it has them; returns them for its step daemons.
    pub(super) fn of_job(&self, job: JobAttempt, owner: &Owner) -> io::Result<Vec<PrivateDir>> {
        let make = |(dir, jobs): &(PathBuf, PathBuf)| {
            let own = jobs.join(name_of(job));
            let folder = own.join(inner(dir));
            if !folder.is_dir() {
                // Only the job's user may enter it: others may write in the folder below.
                match DirBuilder::new().mode(0o700).create(&own) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    _ => chown(&own, Some(owner.uid), Some(owner.gid))?,
                }
                fs::create_dir(&folder)?;
                fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777))?;
            }
            let bytes = |path: PathBuf| path.into_os_string().into_vec().into();
            Ok(PrivateDir { folder: bytes(folder), dir: bytes(dir.clone()) })
        };
        self.dirs.iter().map(make).collect()
    }

    /// Returns the path under which the node daemon finds a file that the job knows as `path`.
    pub(super) fn seen_by(&self, job: JobAttempt, path: &[u8]) -> Vec<u8> {
        let path = Path::new(OsStr::from_bytes(path));
        let inside = self
            .dirs
            .iter()
            .find_map(|(dir, jobs)| Some(jobs.join(name_of(job)).join(inner(dir)).join(path.strip_prefix(dir).ok()?)));
        // A job without a step has no folders yet.
        let found = inside
            .filter(|inside| inside.ancestors().skip(1).any(|above| above.ends_with(name_of(job)) && above.is_dir()));
        found.unwrap_or_else(|| path.to_owned()).into_os_string().into_vec()
    }

    /// Removes the folders of a job that has ended, on a thread of its own.
    pub(super) fn remove(&self, job: JobAttempt) {
        let own: Vec<PathBuf> = self.dirs.iter().map(|(_, jobs)| jobs.join(name_of(job))).collect();
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
        let all = self.dirs.iter().flat_map(|(_, jobs)| fs::read_dir(jobs).into_iter().flatten().flatten());
        let left: Vec<PathBuf> = all.map(|entry| entry.path()).filter(is_left).collect();
        if !left.is_empty() {
            remove_apart(left);
        }
    }
}

/// Makes a folder that users may pass through, and its parents.
fn make(folder: &Path) -> io::Result<()> {
    let problem = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display()));
    DirBuilder::new().recursive(true).mode(0o711).create(folder).map_err(problem)?;
    let meta = fs::symlink_metadata(folder).map_err(problem)?;
    if !meta.is_dir() || std::os::unix::fs::MetadataExt::uid(&meta) != 0 {
        return Err(io::Error::other(format!("{}: it is no folder of root: remove it", folder.display())));
    }
    fs::set_permissions(folder, PermissionsExt::from_mode(0o711)).map_err(problem)
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
