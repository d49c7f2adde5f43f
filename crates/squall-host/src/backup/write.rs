//! Writes a backup.

use std::fs::{self, File};
use std::io::{self, Cursor, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use squall_files::place::{CONFIG_FILES, Place};
use squall_store::accounts::{Copying, copy_at_rest};
use squall_store::file::{Copier, Cut, StateLock};
use tar::{Builder, EntryType, Header};

use super::{BackupError, MANIFEST, Manifest};
use crate::sys::clock;

/// What a backup is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// Only journal and accounting, for a controller that has configuration and keys.
    Log,
}

/// Properties of a backup that its files do not show.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the cluster.
    pub cluster: String,
    /// This program's version.
    pub release: String,
    /// What the backup is made of.
    pub scope: Scope,
}

/// The accounting to be copied.
#[derive(Debug)]
pub enum Accounting {
    /// The thread of a running controller.
    Running(Copying),
    /// The file of a controller that is stopped.
    AtRest,
    /// There is no controller, and the accounting is in a database on a server.
    Served,
}

/// Writes a backup of the state folder `place` to `out`, while its controller goes on. `copier` is the handle of its
/// journal. Returns the manifest. Only one backup may be written at a time. Blocks.
pub fn write(
    place: &Place,
    copier: &Copier,
    accounting: Accounting,
    about: About,
    out: impl Write,
) -> Result<Manifest, BackupError> {
    let About { cluster, release, scope } = about;
    let stopped = matches!(accounting, Accounting::AtRest | Accounting::Served);
    let time_s = clock::now().secs();
    let (accounts, cut) = prepare(place, copier, accounting)?;
    let manifest = Manifest { cluster, release, time_s, record: cut.seq, stopped, ..Manifest::default() };
    let mut archive = Archive { builder: Builder::new(GzEncoder::new(out, Compression::fast())), manifest };
    if scope == Scope::All {
        archive.configuration(place)?;
    }
    if let Some(accounts) = accounts {
        let length = accounts.metadata().map_err(BackupError::io("look at", &place.accounts()))?.len();
        archive.add("accounts.db", length, accounts, &place.accounts())?;
    }
    for piece in cut.files {
        let path = place.journal().join(&piece.name);
        archive.add(&format!("journal/{}", piece.name), piece.length, piece.file, &path)?;
    }
    archive.finish()
}

/// Writes a backup of the state folder `place`, the controller of which is stopped. Like [`write`]. `served`: the accounting is
/// in a database on a server, which has a backup of its own.
pub fn write_at_rest(place: &Place, about: About, served: bool, out: impl Write) -> Result<Manifest, BackupError> {
    let _lock = StateLock::take(place)?;
    let accounting = if served { Accounting::Served } else { Accounting::AtRest };
    write(place, &Copier::at_rest(&place.journal())?, accounting, about, out)
}

/// Opens all long files of a backup. Nothing is removed from the journal meanwhile.
fn prepare(place: &Place, copier: &Copier, accounting: Accounting) -> Result<(Option<File>, Cut), BackupError> {
    let copy = place.accounts().with_extension("copy");
    let held = copier.hold();
    let copied = match accounting {
        Accounting::Running(copying) => copying.copy(&copy),
        Accounting::AtRest => copy_at_rest(&place.accounts(), &copy),
        Accounting::Served => Ok(0),
    };
    let seen = copied.map_err(BackupError::Accounting)?;
    let file = match File::open(&copy) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        file => Some(file.map_err(BackupError::io("open", &copy))?),
    };
    if file.is_some() {
        fs::remove_file(&copy).map_err(BackupError::io("remove", &copy))?;
    }
    Ok((file, held.cut(seen + 1)?))
}

struct Archive<W: Write> {
    builder: Builder<GzEncoder<W>>,
    manifest: Manifest,
}

impl<W: Write> Archive<W> {
    /// Adds configuration, keys and the other small files.
    fn configuration(&mut self, place: &Place) -> Result<(), BackupError> {
        for name in CONFIG_FILES {
            self.add_small(name, &place.config().with_file_name(name))?;
        }
        self.add_small("cluster", &place.mark())?;
        self.add_small("clock", &place.clock())?;
        self.add_folder("keys", &place.keys(), true)
    }

    /// Adds the files of a folder and, with `deep`, of the folders in it.
    fn add_folder(&mut self, name: &str, path: &Path, deep: bool) -> Result<(), BackupError> {
        let list = BackupError::io;
        let mut names = Vec::new();
        match fs::read_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => {
                for entry in entries.map_err(list("list", path))? {
                    names.push(entry.map_err(list("list", path))?.file_name());
                }
            }
        }
        names.sort_unstable();
        for entry in names {
            let (path, entry) = (path.join(&entry), entry.to_string_lossy());
            // A name with a dot in front is that of a file that is just being written.
            if entry.starts_with('.') {
                continue;
            }
            let name = format!("{name}/{entry}");
            if path.is_dir() && deep {
                self.add_folder(&name, &path, false)?;
            } else {
                self.add_small(&name, &path)?;
            }
        }
        Ok(())
    }

    /// Adds a file, if it exists, as it is at this moment.
    fn add_small(&mut self, name: &str, path: &Path) -> Result<(), BackupError> {
        match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            read => {
                let content = read.map_err(BackupError::io("read", path))?;
                self.add(name, content.len() as u64, Cursor::new(content), path)
            }
        }
    }

    /// Adds the first `length` bytes that `content` gives, which come from the file at `path`.
    fn add(&mut self, name: &str, length: u64, content: impl Read, path: &Path) -> Result<(), BackupError> {
        let mut content = Digesting { content: content.take(length), digest: blake3::Hasher::new(), length: 0 };
        self.append(name, length, &mut content).map_err(BackupError::io("copy", path))?;
        if content.length < length {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(BackupError::io("read", path)(short));
        }
        let digest = content.digest.finalize().to_hex().to_string();
        self.manifest.files.insert(name.to_owned(), (digest, length));
        Ok(())
    }

    fn append(&mut self, name: &str, length: u64, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(length);
        header.set_mode(0o600);
        header.set_mtime(self.manifest.time_s);
        self.builder.append_data(&mut header, name, content)
    }

    fn finish(mut self) -> Result<Manifest, BackupError> {
        let text = self.manifest.to_string();
        let ended = self
            .append(MANIFEST, text.len() as u64, text.as_bytes())
            .and_then(|()| self.builder.into_inner())
            .and_then(GzEncoder::finish)
            .and_then(|mut out| out.flush());
        ended.map_err(BackupError::io("write", Path::new("the backup")))?;
        Ok(self.manifest)
    }
}

/// Reads, and digests what was read.
struct Digesting<R> {
    content: R,
    digest: blake3::Hasher,
    length: u64,
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        self.digest.update(&buffer[..read]);
        self.length += read as u64;
        Ok(read)
    }
}
