//! Reads a backup, which may come from anywhere, and checks it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use flate2::bufread::GzDecoder;
use squall_store::accounts;
use squall_store::file::{Replay, replay};
use tar::{Archive, Entry, EntryType};

use super::{BackupError, MANIFEST, Manifest, is_long, is_name};

/// Most files in a backup.
const FILES_MAX: usize = 1 << 20;
/// Longest file, bytes, apart from those of journal and accounting.
const SMALL_BYTES_MAX: u64 = 128 << 20;
/// Most bytes behind the archive's last file, which are zeros.
const END_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// A backup that was checked.
#[derive(Debug)]
pub struct CheckedBackup {
    /// The list of its files.
    pub manifest: Manifest,
    /// Number of jobs and arrays.
    pub jobs: u64,
    /// Number of pending jobs that are not held, each task of an array counted.
    pub pending: u64,
}

/// Unpacks a backup into the empty folder `folder`, durably, with the names of a state folder, and checks it against its
/// manifest. Nothing outside of the folder is touched, whatever the backup has. Blocks.
pub fn receive(from: impl Read, folder: &Path) -> Result<Manifest, BackupError> {
    let mut decoder = GzDecoder::new(io::BufReader::with_capacity(PIECE_BYTES, from));
    let mut archive = Archive::new(&mut decoder);
    let (mut files, mut manifest) = (BTreeMap::new(), None);
    // Raw entries: no name is taken from an extension, and no content from another entry.
    let entries = archive.entries().map_err(BackupError::Unreadable)?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(BackupError::Unreadable)?;
        let name = name_of(&entry)?;
        if manifest.is_some() || files.contains_key(&name) || files.len() > FILES_MAX {
            return Err(BackupError::Foreign(format!("`{name}` at a wrong place")));
        }
        let length = entry.size();
        if name == MANIFEST {
            let mut text = String::new();
            refuse_long(&name, length)?;
            entry.read_to_string(&mut text).map_err(BackupError::Unreadable)?;
            manifest = Some(Manifest::parse(&text).ok_or_else(|| BackupError::Foreign("another manifest".to_owned()))?);
            continue;
        }
        if !is_long(&name) {
            refuse_long(&name, length)?;
        }
        let free = rustix::fs::statvfs(folder).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
        if length > free {
            return Err(BackupError::NoRoom { path: folder.to_owned(), name, bytes: length });
        }
        let digest = unpack(&mut entry, folder, &name)?;
        files.insert(name, (digest, length));
    }
    let rest = io::copy(&mut (&mut decoder).take(END_BYTES_MAX), &mut io::sink()).map_err(BackupError::Unreadable)?;
    let Some(manifest) = manifest.filter(|_| rest < END_BYTES_MAX) else {
        return Err(BackupError::Unreadable(io::ErrorKind::UnexpectedEof.into()));
    };
    confirm(&manifest, &files)?;
    sync_folders(folder).map_err(BackupError::io("flush", folder))?;
    Ok(manifest)
}

/// Returns the name of an entry. Err: it is not a plain file, or has a name that no backup has.
fn name_of(entry: &Entry<'_, impl Read>) -> Result<String, BackupError> {
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    if entry.header().entry_type() != EntryType::Regular {
        return Err(BackupError::Foreign(format!("`{name}`, which is no plain file")));
    }
    if name == MANIFEST || is_name(&name) { Ok(name) } else { Err(BackupError::Foreign(format!("`{name}`"))) }
}

fn refuse_long(name: &str, length: u64) -> Result<(), BackupError> {
    if length <= SMALL_BYTES_MAX {
        return Ok(());
    }
    Err(BackupError::Foreign(format!("`{name}` of {length} bytes")))
}

/// Writes an entry to its file, durably; returns its digest.
fn unpack(entry: &mut impl Read, folder: &Path, name: &str) -> Result<String, BackupError> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(BackupError::io("create", parent))?;
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = created.map_err(BackupError::io("create", &path))?;
    let (mut digest, mut piece) = (blake3::Hasher::new(), vec![0; PIECE_BYTES]);
    loop {
        match entry.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                digest.update(&piece[..read]);
                file.write_all(&piece[..read]).map_err(BackupError::io("write", &path))?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(BackupError::Unreadable(e)),
        }
    }
    file.sync_all().map_err(BackupError::io("flush", &path))?;
    Ok(digest.finalize().to_hex().to_string())
}

/// Compares the files with the manifest.
fn confirm(manifest: &Manifest, files: &BTreeMap<String, (String, u64)>) -> Result<(), BackupError> {
    for (name, stated) in &manifest.files {
        match files.get(name) {
            None => return Err(BackupError::Damaged(format!("{name} is missing"))),
            Some(found) if found != stated => {
                return Err(BackupError::Damaged(format!("{name} is not what the manifest says")));
            }
            Some(_) => {}
        }
    }
    let other = files.keys().find(|name| !manifest.files.contains_key(*name));
    other.map_or(Ok(()), |name| Err(BackupError::Damaged(format!("the manifest does not name {name}"))))
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_folders(&path)?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Checks a backup that was unpacked into `folder`: its journal is replayed, all scripts and all pages of accounting are
/// read. Blocks.
pub fn check(folder: &Path, manifest: Manifest) -> Result<CheckedBackup, BackupError> {
    let journal = folder.join("journal");
    let (mut jobs, mut pending) = (0, 0);
    let mut cluster = 0;
    if journal.is_dir() {
        let found: Replay = replay(&journal)?;
        if found.seq != manifest.record {
            let problem = format!("its journal ends with record {}, not {}", found.seq, manifest.record);
            return Err(BackupError::Damaged(problem));
        }
        found.check_contents()?;
        jobs = (found.state.jobs.len() + found.state.arrays.len()) as u64;
        pending = found.state.waiting();
        cluster = found.cluster();
    }
    let accounts = folder.join("accounts.db");
    if accounts.exists() {
        accounts::check_copy(&accounts, cluster, manifest.record).map_err(BackupError::Accounting)?;
    }
    Ok(CheckedBackup { manifest, jobs, pending })
}
