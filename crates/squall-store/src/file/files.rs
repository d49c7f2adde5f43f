//! Files of the journal's folder: their names, listing them, making them durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use super::error::JournalError;

/// Name of the spare segment, while it is being made and until it is used.
pub(crate) const SPARE: &str = "spare.tmp";
/// Name of a snapshot that is being written.
pub(crate) const SNAPSHOT_DRAFT: &str = "snapshot.tmp";
/// Name of a pack of blobs that is being written.
pub(crate) const PACK_DRAFT: &str = "pack.tmp";

/// Kinds of numbered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// A file of frames of records and blobs.
    Segment,
    /// A file with the state after the segment of the same number.
    Snapshot,
    /// A file of blobs that were copied from old segments when the snapshot of the same number was made.
    Pack,
}

impl FileKind {
    fn extension(self) -> &'static str {
        match self {
            Self::Segment => "seg",
            Self::Snapshot => "snap",
            Self::Pack => "pack",
        }
    }
    /// Returns the path of the file with this number.
    pub(crate) fn path(self, dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("{number:08}.{}", self.extension()))
    }
}

/// The numbered files of a folder, each kind in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<u64>,
    pub(crate) snapshots: Vec<u64>,
    pub(crate) packs: Vec<u64>,
}

impl Listing {
    /// Lists the folder. Other files are ignored.
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        let mut found = Self::default();
        let entries = std::fs::read_dir(dir).map_err(JournalError::io("list", dir))?;
        for entry in entries {
            let path = entry.map_err(JournalError::io("list", dir))?.path();
            let number = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok());
            let (Some(number), Some(extension)) = (number, path.extension().and_then(|e| e.to_str())) else {
                continue;
            };
            match extension {
                "seg" => found.segments.push(number),
                "snap" => found.snapshots.push(number),
                "pack" => found.packs.push(number),
                _ => {}
            }
        }
        for list in [&mut found.segments, &mut found.snapshots, &mut found.packs] {
            list.sort_unstable();
        }
        Ok(found)
    }
}

/// Creates a file for reading and writing by its owner only, replacing an existing one.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(JournalError::io("flush", dir))
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), JournalError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(JournalError::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Creates a file of `size` zero bytes with its blocks allocated and written, so that a later flush of its content need
/// not allocate.
pub(crate) fn zeroed(path: &Path, size: u64) -> io::Result<File> {
    const CHUNK: usize = 256 << 10;
    let file = create(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(e) => {
            drop(std::fs::remove_file(path));
            return Err(e.into());
        }
    }
    let zeros = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let length = (size - at).min(CHUNK as u64) as usize;
        if let Err(e) = file.write_all_at(&zeros[..length], at) {
            drop(std::fs::remove_file(path));
            return Err(e);
        }
        at += length as u64;
    }
    file.sync_all()?;
    Ok(file)
}

/// Returns the bytes that are free on the disk of this folder.
pub(crate) fn free_bytes(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
}
