//! Backups: one file with everything that a cluster's controller knows, made while it runs.
//!
//! A backup is a tar archive, compressed by gzip. It has these files of the state folder, and `manifest` as the last one:
//!
//! | name | holds |
//! |---|---|
//! | `squall.toml`, `gres.conf`, `topology.yaml`, `topology.conf` | the configuration, as far as there is one |
//! | `keys/...` | keys, invitations, revoked tokens |
//! | `cluster`, `clock` | the folder's format and the cluster's name; how far the wall clock is ahead |
//! | `accounts.db` | accounting up to a record of the journal |
//! | `journal/...` | the journal: newest snapshot, later segments, scripts |
//!
//! The journal's part is cut at the end of a flushed record, so everything that was acknowledged before is in it. The
//! manifest names all other files with length and digest. Whoever reads a backup takes only files of these names, as plain
//! files, and none that the manifest does not confirm.

mod manifest;
mod read;
mod restore;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use squall_files::place::CONFIG_FILES;
use squall_store::file::{self, JournalError};

pub use manifest::Manifest;
pub use read::{CheckedBackup, check, receive};
pub(crate) use restore::finish;
pub use restore::{Mark, RestoredBackup, replace_log, restore};
pub use write::{About, Accounting, Scope, write, write_at_rest};

/// Name of the manifest in the archive.
const MANIFEST: &str = "manifest";
/// Names of files and folders of a state folder that are in a backup, apart from the configuration.
const ITEMS: [&str; 5] = ["keys", "cluster", "clock", "accounts.db", "journal"];

/// Why a backup can't be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The journal can't be copied, or the copy can't be replayed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Accounting can't be copied, or the copy is damaged.
    #[error("{0}")]
    Accounting(String),
    /// The backup can't be read to its end.
    #[error("it is no backup, or it is cut off or damaged: {0}")]
    Unreadable(io::Error),
    /// The backup has something that no backup of this version has.
    #[error("it is no backup of this version of squall: it has {0}")]
    Foreign(String),
    /// A file of the backup differs from what the manifest says.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The disk has too little room.
    #[error("{} has no room for {name} of the backup ({bytes} bytes)", path.display())]
    NoRoom {
        /// The folder into which the backup is unpacked.
        path: PathBuf,
        /// The file for which there is no room.
        name: String,
        /// Length of that file, bytes.
        bytes: u64,
    },
    /// The folder has a cluster's state already.
    #[error("{} is there already: restore into a new folder (--state), or move the old state away first", .0.display())]
    InUse(PathBuf),
    /// The backup is said to be the newest state, and can't be.
    #[error("it was made while the cluster ran, which may have gone on since: restore it without --moved")]
    NotNewest,
    /// A system call failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The action that failed, e.g. `write`.
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl BackupError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

/// Whether a backup may have a file of this name.
fn is_name(name: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => CONFIG_FILES.contains(&name) || matches!(name, "cluster" | "clock" | "accounts.db"),
        ["journal", name] => file::is_file_name(name),
        ["keys", name] => plain(name),
        ["keys", folder, name] => plain(folder) && plain(name),
        _ => false,
    }
}

/// Whether a file of a backup may be long. The others are read into memory.
fn is_long(name: &str) -> bool {
    name == "accounts.db" || name.starts_with("journal/")
}

#[cfg(test)]
mod tests;
