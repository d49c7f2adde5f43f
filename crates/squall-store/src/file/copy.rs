//! Copies a journal while it is written: finds the files that make up its durable part, and opens them, so that they
//! can be read at leisure even if they are removed meanwhile.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use super::error::JournalError;
use super::files::{FileKind, Listing};
use super::follower::first_seq;
use super::replay::replay;
use super::snapshot;

/// End of what is durable in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durable {
    /// Number of the last segment.
    pub(super) number: u64,
    /// End of the durable bytes in that segment.
    pub(super) at: u64,
    /// Number of the last durable record; 0: there is none.
    pub(super) seq: u64,
}

/// Keeps files of a journal from being removed. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold(Arc<RwLock<()>>);

impl Hold {
    /// Runs `remove`, unless a copy is being prepared. False: one is, and nothing was run.
    pub(super) fn unless_held<E>(&self, remove: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let _free = match self.0.try_write() {
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Ok(held) => held,
        };
        remove().map(|()| true)
    }
}

/// Handle by which a journal is copied while its controller goes on.
#[derive(Clone, Debug)]
pub struct Copier {
    dir: PathBuf,
    durable: Arc<Mutex<Durable>>,
    hold: Hold,
}

/// A journal of which no file is removed as long as this exists: for the short time in which a copy is prepared.
#[derive(Debug)]
pub struct HeldJournal<'a> {
    copier: &'a Copier,
    _hold: RwLockReadGuard<'a, ()>,
}

/// A consistent copy of a journal: open files, and how much of each belongs to it.
#[derive(Debug)]
pub struct Cut {
    /// The files, in the order in which they should be copied.
    pub files: Vec<Piece>,
    /// Number of the last record in the copy; 0: there is none.
    pub seq: u64,
}

/// A file of a copy.
#[derive(Debug)]
pub struct Piece {
    /// Name of the file in the journal's folder.
    pub name: String,
    /// The open file.
    pub file: File,
    /// Bytes from the file's start that belong to the copy.
    pub length: u64,
}

impl Copier {
    pub(super) fn new(dir: &Path, durable: Durable, hold: Hold) -> Self {
        Self { dir: dir.to_owned(), durable: Arc::new(Mutex::new(durable)), hold }
    }

    /// Returns the handle of a journal that no controller writes. It is replayed first, which finds its end. The caller
    /// holds the lock of the state directory.
    pub fn at_rest(dir: &Path) -> Result<Self, JournalError> {
        let found = replay(dir)?;
        let end = found.end.map(|end| Durable { number: end.number, at: end.at, seq: found.seq });
        Ok(Self::new(dir, end.unwrap_or(Durable { number: 0, at: 0, seq: 0 }), Hold::default()))
    }

    /// Keeps files from being removed, so that a copy can be prepared.
    pub fn hold(&self) -> HeldJournal<'_> {
        HeldJournal { copier: self, _hold: self.hold.0.read().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(super) fn set_durable(&self, durable: Durable) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = durable;
    }
}

impl HeldJournal<'_> {
    /// Opens the files of what is durable now: the newest snapshot, the segments since then, and what the snapshot
    /// refers to. Segments with records from number `from` on are also part of it, as accounting may lack them.
    pub fn cut(&self, from: u64) -> Result<Cut, JournalError> {
        let dir = &self.copier.dir;
        let end = *self.copier.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = Listing::read(dir)?;
        // A snapshot of the segment that `end` names is made only when a later one is durable.
        let covered = listing.snapshots.iter().rfind(|number| **number < end.number).copied();
        let lacking = listing.segments.iter().rfind(|n| first_seq(dir, **n).is_some_and(|first| first <= from));
        let first = lacking.copied().unwrap_or(0).min(covered.map_or(0, |covered| covered + 1));
        let since = listing.segments.iter().filter(|number| (first..=end.number).contains(*number));
        let mut names: BTreeSet<(FileKind, u64)> = since.map(|number| (FileKind::Segment, *number)).collect();
        if let Some(covered) = covered {
            names.insert((FileKind::Snapshot, covered));
            let places = snapshot::places(dir, covered)?;
            let kind = |packed| if packed { FileKind::Pack } else { FileKind::Segment };
            names.extend(places.iter().map(|(_, place)| (kind(place.packed), place.number)));
        }
        let files = names.into_iter().map(|(kind, number)| piece(dir, kind, number, end)).collect::<Result<_, _>>()?;
        Ok(Cut { files, seq: end.seq })
    }
}

fn piece(dir: &Path, kind: FileKind, number: u64, end: Durable) -> Result<Piece, JournalError> {
    let path = kind.path(dir, number);
    let file = File::open(&path).map_err(JournalError::io("open", &path))?;
    let length = if kind == FileKind::Segment && number == end.number {
        end.at
    } else {
        file.metadata().map_err(JournalError::io("look at", &path))?.len()
    };
    Ok(Piece { name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), file, length })
}

/// Whether a file of this name may be part of a journal's copy.
pub fn is_file_name(name: &str) -> bool {
    let number = |number: &str| number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(stem, kind)| number(stem) && matches!(kind, "seg" | "snap" | "pack"))
}
