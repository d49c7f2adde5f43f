//! Restores a backup into a state folder.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_files::place::{CONFIG_FILES, Place};
use squall_store::file::StateLock;

use super::read::{CheckedBackup, check, receive};
use super::{BackupError, ITEMS, is_long};
use crate::sys::clock;

/// A restored backup.
#[derive(Debug)]
pub struct RestoredBackup {
    /// The backup.
    pub backup: CheckedBackup,
    /// Whether what came after the backup is lost. False: the backup is the newest state.
    pub loses: bool,
}

/// Mark of a state folder that was restored from a backup and has not been started since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When the backup was made, seconds since 1970.
    pub time_s: u64,
}

impl Mark {
    /// Reads the mark of a state folder. None: it has none.
    pub(crate) fn read(place: &Place) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(place.restored()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let time = text.split_ascii_whitespace().next().and_then(|time| time.parse().ok());
        time.map(|time_s| Some(Self { time_s })).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Restores a backup into a state folder that has no state yet. It is unpacked and checked apart, so that a bad one
/// changes nothing. `moved`: the backup is the cluster's newest state, as its controller was stopped and never ran again.
/// Otherwise the state is marked, for its first start. Blocks.
pub fn restore(place: &Place, from: impl Read, moved: bool) -> Result<RestoredBackup, BackupError> {
    let is_new = !place.dir().exists();
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(place.dir());
    made.map_err(BackupError::io("create", place.dir()))?;
    let _lock = StateLock::take(place)?;
    finish(place).map_err(BackupError::io("put files into", place.dir()))?;
    let restored = refuse_used(place).and_then(|()| put(place, |draft| unpack(draft, from, moved)));
    if restored.is_err() && is_new {
        drop(fs::remove_dir_all(place.dir()));
    }
    restored
}

/// Replaces journal and accounting of a controller, which lacks records, by those of another one of the same cluster, as
/// written with [`Scope::Log`](super::Scope::Log). They are checked before anything is changed. The caller holds the
/// lock of the state directory, and has neither file open. Blocks.
pub fn replace_log(place: &Place, from: impl Read) -> Result<CheckedBackup, BackupError> {
    put(place, |draft| {
        let manifest = receive(from, draft)?;
        if let Some(name) = manifest.files.keys().find(|name| !is_long(name)) {
            return Err(BackupError::Foreign(format!("`{name}`")));
        }
        check(draft, manifest)
    })
}

/// Has `fill` make a draft of a state folder, and puts its files into their places.
fn put<T>(place: &Place, fill: impl FnOnce(&Path) -> Result<T, BackupError>) -> Result<T, BackupError> {
    let draft = place.restoring().with_extension("draft");
    remove(&draft).map_err(BackupError::io("remove", &draft))?;
    fs::DirBuilder::new().mode(0o700).create(&draft).map_err(BackupError::io("create", &draft))?;
    let filled = fill(&draft);
    if filled.is_err() {
        drop(fs::remove_dir_all(&draft));
    }
    let filled = filled?;
    // From here on the files count: a start of the controller puts them into their places, too.
    let renamed = fs::rename(&draft, place.restoring()).and_then(|()| durable::sync_folder(&place.restoring()));
    renamed.map_err(BackupError::io("rename", &draft))?;
    finish(place).map_err(BackupError::io("put files into", place.dir()))?;
    Ok(filled)
}

fn unpack(draft: &Path, from: impl Read, moved: bool) -> Result<RestoredBackup, BackupError> {
    let manifest = receive(from, draft)?;
    if moved && !manifest.stopped {
        return Err(BackupError::NotNewest);
    }
    let backup = check(draft, manifest)?;
    if !moved {
        let (time_s, path) = (backup.manifest.time_s, draft.join("restored"));
        // Earlier releases take the second number for that of the job ids to pass over.
        let since_s = clock::now().secs().saturating_sub(time_s).clamp(1000, u64::from(u32::MAX));
        durable::write(&path, format!("{time_s} {since_s}\n").as_bytes(), 0o600)
            .map_err(BackupError::io("write", &path))?;
    }
    Ok(RestoredBackup { backup, loses: !moved })
}

/// Refuses a folder that has a cluster's state, or a part of it.
fn refuse_used(place: &Place) -> Result<(), BackupError> {
    let is_used = |path: &PathBuf| match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        // The link of a package leads to a configuration that is not there yet.
        Err(_) => path.exists(),
    };
    let names = ITEMS.into_iter().chain(CONFIG_FILES).chain(["cells"]);
    let used = names.map(|name| place.dir().join(name)).find(is_used);
    used.map_or(Ok(()), |path| Err(BackupError::InUse(path)))
}

/// Removes a file, or a folder with all that is in it, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Puts the files of a restored state into their places, if there are any that are not. The caller holds the lock of the
/// state directory.
pub(crate) fn finish(place: &Place) -> io::Result<()> {
    let from = place.restoring();
    if !from.is_dir() {
        return Ok(());
    }
    for name in CONFIG_FILES {
        let (draft, path) = (from.join(name), place.config().with_file_name(name));
        if draft.exists() {
            // The configuration may be elsewhere, behind a link.
            let target = fs::read_link(&path).map_or(path.clone(), |link| place.dir().join(link));
            durable::write(&target, &fs::read(&draft)?, 0o644)?;
        }
    }
    for name in ITEMS.into_iter().chain(["restored"]) {
        let (draft, path) = (from.join(name), place.dir().join(name));
        if draft.exists() {
            remove(&path)?;
            if name == "accounts.db" {
                // SQLite's log of the database before.
                remove(&path.with_extension("db-wal"))?;
            }
            fs::rename(&draft, &path)?;
        }
    }
    durable::sync_folder(&from)?;
    fs::remove_dir_all(&from)?;
    durable::sync_folder(&from)
}
