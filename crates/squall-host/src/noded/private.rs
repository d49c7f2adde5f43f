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
            safe_path::open(dir).map_err(|e| unsafe_folder(&e))?;
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
    let at = safe_path::open_or_make(above, JOBS_MODE).map_err(|e| unsafe_folder(&e))?;
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
fn unsafe_folder(e: &io::Error) -> io::Error {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::Path;

    use squall_model::config::Config;
    use squall_model::id::{Attempt, JobId};
    use squall_model::job::JobAttempt;

    use super::PrivateDirs;

    /// attack-trial.md A2, where the user of a job of an earlier release owns its folder still.
    #[test]
    fn a2_a_folder_that_was_its_users_becomes_roots_and_a_link_in_it_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let base = Path::new("/var/tmp").join(format!("squall-private-unit-{}", std::process::id()));
        let config = format!("private_tmp = \"{}\"\nprivate_tmp_dirs = \"/tmp\"\n", base.display());
        let config = Config::from_toml(&config).unwrap();
        let dirs = PrivateDirs::open(&config, ("c", "n1"), Path::new("/var/lib/squall")).unwrap();
        let job = |id| JobAttempt { job: JobId(id), attempt: Attempt(1) };
        let meta = |path: &str| fs::symlink_metadata(base.join("squall-jobs-c-n1").join(path)).unwrap();
        let users = |id: u32| {
            let own = base.join(format!("squall-jobs-c-n1/{id}.1"));
            fs::create_dir(&own).unwrap();
            chown(&own, Some(1), Some(1)).unwrap();
            own
        };
        fs::create_dir(users(1).join("tmp")).unwrap();
        dirs.of_job(job(1)).unwrap();
        assert_eq!((meta("1.1").uid(), meta("1.1").mode() & 0o7777), (0, 0o700));
        assert_eq!((meta("1.1/tmp").uid(), meta("1.1/tmp").mode() & 0o7777), (0, 0o1777));
        // A link, and a folder of the user's own.
        let target = base.join("target");
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target, users(2).join("tmp")).unwrap();
        let own = users(3).join("tmp");
        fs::create_dir(&own).unwrap();
        chown(&own, Some(1), Some(1)).unwrap();
        assert!(dirs.of_job(job(2)).is_err() && dirs.of_job(job(3)).is_err());
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o700);
        // What a job sees there is reached through what is opened.
        fs::write(base.join("squall-jobs-c-n1/1.1/tmp/file"), "x").unwrap();
        let reached = dirs.seen_by(job(1), b"/tmp/file");
        assert_eq!(fs::read(&reached.path).unwrap(), b"x");
        assert_eq!(dirs.seen_by(job(4), b"/tmp/file").path, Path::new("/tmp/file"));
        fs::remove_dir_all(base).unwrap();
    }

    /// Nobody else may be able to replace the folder, or what it is mounted over.
    #[test]
    fn a2_folders_that_others_can_replace_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let base = Path::new("/var/tmp").join(format!("squall-private-exposed-{}", std::process::id()));
        fs::create_dir_all(base.join("users/jobs")).unwrap();
        fs::create_dir_all(base.join("over")).unwrap();
        chown(base.join("users"), Some(1), None).unwrap();
        let open = |tmp: &str, over: &str| {
            let text = format!("private_tmp = \"{0}/{tmp}\"\nprivate_tmp_dirs = \"{0}/{over}\"\n", base.display());
            PrivateDirs::open(&Config::from_toml(&text).unwrap(), ("c", "n1"), Path::new("/var/lib/squall"))
        };
        open("own", "over").unwrap();
        for (tmp, over) in [("users/jobs", "over"), ("users/none", "over"), ("own", "users/jobs")] {
            let problem = open(tmp, over).unwrap_err().to_string();
            assert!(problem.contains("can replace what is in") && problem.contains("/users"), "{problem}");
        }
        fs::remove_dir_all(base).unwrap();
    }
}
