//! Folders of steps and marks of jobs that have ended, kept to be written over for others.

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

/// Folders that are kept; each takes some 20 KiB of disk.
const SPARES_MAX: usize = 64;

/// Folders whose files stay open, each with up to six descriptors.
const OPEN_MAX: usize = 32;

/// A folder and those of its files that are open: for a short job, to open them costs more than what is written there.
#[derive(Debug)]
pub(super) struct Files {
    folder: OwnedFd,
    open: Vec<(&'static str, File)>,
}

impl Files {
    /// None of them is open yet.
    pub(super) fn of(folder: OwnedFd) -> Self {
        Self { folder, open: Vec::with_capacity(5) }
    }

    /// The folder.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// That file, made if it is not there.
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

    /// What the step's tasks note themselves in, under whichever of its two names. None: nobody has taken the folder.
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

    /// That file is open.
    pub(super) fn keep(&mut self, name: &'static str, file: File) {
        self.open.push((name, file));
    }

    /// That file, if it is open.
    fn if_open(&self, name: &str) -> Option<&File> {
        self.open.iter().find(|(known, _)| *known == name).map(|(_, file)| file)
    }
}

/// What is known of the files in a folder.
#[derive(Debug, Default)]
pub(super) struct Traits {
    /// A step has used it.
    pub(super) used: bool,
    /// Bytes of `cgroups`.
    pub(super) groups: usize,
    /// Bytes of `environment`.
    pub(super) environment: usize,
    /// Its files, as far as they stay open.
    pub(super) files: Option<Files>,
    /// The script that it holds.
    pub(super) script: Option<Script>,
}

/// A script that lies there as it was written: its owner, who may change it, has not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    digest: Digest,
    owner: (u32, u32),
    /// Its inode, and when that was changed last.
    inode: (u64, i64, i64),
}

impl Script {
    /// The script of a launch, just written.
    pub(super) fn of(launch: &StepLaunch, script: BorrowedFd<'_>) -> Option<Self> {
        Self::with(launch, &rustix::fs::fstat(script).ok()?)
    }

    /// Whether it is the script of that launch, and unchanged.
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

/// The folders, by their names.
#[derive(Debug, Default)]
pub(super) struct Spares {
    kept: Vec<(String, Traits)>,
    lent: BTreeMap<StepKey, (String, Traits)>,
    /// Marks of jobs that have ended.
    marks: Vec<String>,
    last: u64,
}

impl Spares {
    /// A file for a job's mark, or the name for a new one.
    pub(super) fn mark(&mut self) -> String {
        self.marks.pop().unwrap_or_else(|| self.name())
    }

    /// A name for a mark that is not used any more. None: there are enough of them.
    pub(super) fn room_for_mark(&mut self) -> Option<String> {
        (self.marks.len() < SPARES_MAX).then(|| self.name())
    }

    /// It has that name.
    pub(super) fn keep_mark(&mut self, name: String) {
        self.marks.push(name);
    }

    pub(super) fn name(&mut self) -> String {
        self.last += 1;
        format!(".{}", self.last)
    }

    /// A folder for a step: one that holds its script if there is one, or else any, or else the name for a new one.
    pub(super) fn take(&mut self, launch: &StepLaunch, batch: bool) -> (String, Traits) {
        let wanted = launch.facts.spec.script.filter(|_| batch);
        let fits = |(_, traits): &(String, Traits)| traits.script.as_ref().map(|script| script.digest) == wanted;
        if is_small(launch) && !self.kept.is_empty() {
            let at = self.kept.iter().rposition(fits).unwrap_or(self.kept.len() - 1);
            return self.kept.swap_remove(at);
        }
        (self.name(), Traits::default())
    }

    /// The step has it.
    pub(super) fn lend(&mut self, launch: &StepLaunch, name: String, mut traits: Traits) {
        if is_small(launch) {
            let of_others = self.kept.iter().chain(self.lent.values());
            if of_others.filter(|(_, traits)| traits.files.is_some()).count() >= OPEN_MAX {
                traits.files = None;
            }
            self.lent.insert(launch.key, (name, Traits { used: true, ..traits }));
        }
    }

    /// A file of the step's folder, if it is open.
    pub(super) fn open_file(&self, key: StepKey, name: &str) -> Option<&File> {
        self.lent.get(&key)?.1.files.as_ref()?.if_open(name)
    }

    /// It will not come back.
    pub(super) fn spoil(&mut self, key: StepKey) {
        self.lent.remove(&key);
    }

    /// The step does not need it any more. None: nobody else can use it.
    pub(super) fn returned(&mut self, key: StepKey) -> Option<(String, Traits)> {
        self.lent.remove(&key).filter(|_| self.kept.len() < SPARES_MAX)
    }

    /// It is ready for another step.
    pub(super) fn keep(&mut self, name: String, traits: Traits) {
        self.kept.push((name, traits));
    }
}

/// Only folders of a single task have files of equal length.
fn is_small(launch: &StepLaunch) -> bool {
    StepSetup::of(launch).ranks.len() == 1
}
