//! Folders of ended steps and marks of ended jobs that are kept for reuse by others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, Stat};
use squall_engine::step::StepSetup;
use squall_model::id::StepKey;
use squall_model::job::Digest;
use squall_model::step::StepLaunch;

use super::{file, open_at};

/// Number of folders that are kept at most; each takes some 20 KiB of disk.
const SPARES_MAX: usize = 64;

/// Most folders with files that stay open, each with up to six descriptors.
const OPEN_MAX: usize = 32;

/// A folder with those of its files that are open: for a short job, opening them costs more than writing them.
#[derive(Debug)]
pub(super) struct Files {
    folder: OwnedFd,
    open: Vec<(&'static str, File)>,
}

impl Files {
    /// Takes an open folder, with none of its files open yet.
    pub(super) fn of(folder: OwnedFd) -> Self {
        Self { folder, open: Vec::with_capacity(5) }
    }

    /// Returns the descriptor of the folder.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Returns the file of this name, opening it and making it if needed.
    pub(super) fn file(&mut self, name: &'static str) -> io::Result<&File> {
        let known = self.open.iter().position(|(known, _)| *known == name);
        let at = if let Some(at) = known {
            at
        } else {
            let file = open_at(self.folder.as_fd(), name, OFlags::RDWR | OFlags::CREATE, 0o600)?;
            self.keep(name, file);
            self.open.len() - 1
        };
        Ok(&self.open[at].1)
    }

    /// Returns the file with the lines of the step's tasks, which has two possible names. None: no step daemon has
    /// taken the folder.
    pub(super) fn notes(&mut self) -> io::Result<Option<&File>> {
        if self.if_open(file::PIDS).is_none() {
            match open_at(self.folder.as_fd(), file::PIDS, OFlags::RDWR, 0) {
                Ok(notes) => self.keep(file::PIDS, notes),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.if_open(file::PIDS))
    }

    /// Keeps an open file of this name for later use.
    pub(super) fn keep(&mut self, name: &'static str, file: File) {
        self.open.push((name, file));
    }

    /// Returns the file of this name; None: it is not open.
    fn if_open(&self, name: &str) -> Option<&File> {
        self.open.iter().find(|(known, _)| *known == name).map(|(_, file)| file)
    }
}

/// Properties of the files in a folder.
#[derive(Debug, Default)]
pub(super) struct Traits {
    /// Whether a step has used the folder before.
    pub(super) used: bool,
    /// Length of `cgroups`, bytes.
    pub(super) groups: usize,
    /// Length of `environment`, bytes.
    pub(super) environment: usize,
    /// The open files of the folder; None: they do not stay open.
    pub(super) files: Option<Files>,
    /// The batch script in the folder; None: it has none that can be used again.
    pub(super) script: Option<Script>,
}

/// Identifies a batch script that was left in a reusable folder, and shows whether its owner has changed it since.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    digest: Digest,
    owner: (u32, u32),
    /// Inode number, and time of the inode's last change (seconds, nanoseconds).
    inode: (u64, i64, i64),
}

impl Script {
    /// Records the script of a launch just after it was written. None: the launch has no script, or the file's
    /// properties can't be read.
    pub(super) fn of(launch: &StepLaunch, script: BorrowedFd<'_>) -> Option<Self> {
        Self::with(launch, &rustix::fs::fstat(script).ok()?)
    }

    /// Whether the folder has this launch's script, unchanged.
    pub(super) fn is_for(&self, launch: &StepLaunch, folder: BorrowedFd<'_>) -> bool {
        launch.facts.spec.script == Some(self.digest)
            && rustix::fs::statat(folder, file::SCRIPT, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| Self::with(launch, &stat).as_ref() == Some(self))
    }

    fn with(launch: &StepLaunch, stat: &Stat) -> Option<Self> {
        let owner = &launch.facts.owner;
        let inode = (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec as i64);
        Some(Self { digest: launch.facts.spec.script?, owner: (owner.uid, owner.gid), inode })
    }
}

/// The folders kept for reuse, and those in use by steps, each with its name.
#[derive(Debug, Default)]
pub(super) struct Spares {
    kept: Vec<(String, Traits)>,
    lent: BTreeMap<StepKey, (String, Traits)>,
    /// Names of files that were marks of ended jobs.
    marks: Vec<String>,
    last: u64,
}

impl Spares {
    /// Returns the name of a file to write a job's mark to: a kept one or a new one.
    pub(super) fn mark(&mut self) -> String {
        self.marks.pop().unwrap_or_else(|| self.name())
    }

    /// Returns a name under which to keep an unused mark. None: enough are kept.
    pub(super) fn room_for_mark(&mut self) -> Option<String> {
        (self.marks.len() < SPARES_MAX).then(|| self.name())
    }

    /// Keeps the file `name`, which was the mark of an ended job, for reuse as another mark.
    pub(super) fn keep_mark(&mut self, name: String) {
        self.marks.push(name);
    }

    pub(super) fn name(&mut self) -> String {
        self.last += 1;
        format!(".{}", self.last)
    }

    /// Returns a folder for a step: preferably a kept one with the step's script, otherwise any kept one, otherwise the
    /// name for a new one.
    pub(super) fn take(&mut self, launch: &StepLaunch, batch: bool) -> (String, Traits) {
        let wanted = launch.facts.spec.script.filter(|_| batch);
        let fits = |(_, traits): &(String, Traits)| traits.script.as_ref().map(|script| script.digest) == wanted;
        if is_small(launch) && !self.kept.is_empty() {
            let at = self.kept.iter().rposition(fits).unwrap_or(self.kept.len() - 1);
            return self.kept.swap_remove(at);
        }
        (self.name(), Traits::default())
    }

    /// Records that the step uses the folder.
    pub(super) fn lend(&mut self, launch: &StepLaunch, name: String, mut traits: Traits) {
        if is_small(launch) {
            let of_others = self.kept.iter().chain(self.lent.values());
            if of_others.filter(|(_, traits)| traits.files.is_some()).count() >= OPEN_MAX {
                traits.files = None;
            }
            self.lent.insert(launch.key, (name, Traits { used: true, ..traits }));
        }
    }

    /// Returns a file of a step's folder; None: it is not open.
    pub(super) fn open_file(&self, key: StepKey, name: &str) -> Option<&File> {
        self.lent.get(&key)?.1.files.as_ref()?.if_open(name)
    }

    /// Excludes the step's folder from reuse.
    pub(super) fn spoil(&mut self, key: StepKey) {
        self.lent.remove(&key);
    }

    /// Returns the folder of an ended step for reuse. None: the folder can't be reused, or enough are kept.
    pub(super) fn returned(&mut self, key: StepKey) -> Option<(String, Traits)> {
        self.lent.remove(&key).filter(|_| self.kept.len() < SPARES_MAX)
    }

    /// Keeps a folder that is prepared for another step.
    pub(super) fn keep(&mut self, name: String, traits: Traits) {
        self.kept.push((name, traits));
    }
}

/// Whether a step has a single task: only then have the files of its folder the same lengths as others'.
fn is_small(launch: &StepLaunch) -> bool {
    StepSetup::of(launch).ranks.len() == 1
}
