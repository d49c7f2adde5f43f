//! Finds scripts and environments (blobs) in the journal's files.

use minicbor::{Decode, Encode};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall_model::job::Digest;

use super::error::JournalError;
use super::files::FileKind;
use crate::log::{BlobReader, LogError};

/// Location of a blob's content in the journal's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct BlobPlace {
    /// Whether the blob is in a pack; otherwise it is in a segment.
    #[n(0)]
    pub(crate) packed: bool,
    /// Number of the pack or segment.
    #[n(1)]
    pub(crate) number: u64,
    /// Offset of the content in the file, bytes.
    #[n(2)]
    pub(crate) offset: u64,
    /// Length of the content, bytes.
    #[n(3)]
    pub(crate) length: u64,
}

impl BlobPlace {
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        let kind = if self.packed { FileKind::Pack } else { FileKind::Segment };
        kind.path(dir, self.number)
    }
}

impl BlobReader for Blobs {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, LogError> {
        Ok(self.find(digest)?)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: BlobPlace,
    /// Number of the last segment with an event that needs the blob.
    used: u64,
}

/// Finds and reads blobs. Clones share one index.
#[derive(Clone, Debug)]
pub struct Blobs {
    dir: PathBuf,
    index: Arc<Mutex<HashMap<Digest, Entry>>>,
}

impl Blobs {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), index: Arc::default() }
    }

    fn index(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        // Every change is a single insert or remove, so a panic elsewhere leaves the map consistent.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the location of a blob, and that an event in segment `used` needs it.
    pub(crate) fn put(&self, digest: Digest, place: BlobPlace, used: u64) {
        self.index().insert(digest, Entry { place, used });
    }

    /// Records that an event in segment `used` needs the blob. False: the blob is not in the index.
    pub(crate) fn touch(&self, digest: &Digest, used: u64) -> bool {
        self.index().get_mut(digest).map(|e| e.used = e.used.max(used)).is_some()
    }

    /// Reads a blob's content and checks its digest.
    pub(crate) fn find(&self, digest: &Digest) -> Result<Vec<u8>, JournalError> {
        let mut moved = false;
        loop {
            let Some(place) = self.index().get(digest).map(|e| e.place) else {
                let why = format!("the content {digest} should be in it");
                return Err(JournalError::Missing { path: self.dir.clone(), why });
            };
            match self.read_at(digest, place) {
                // The blob was moved to another file between the look-up and opening.
                Err(JournalError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound && !moved => {
                    moved = true;
                }
                result => return result,
            }
        }
    }

    /// Reads a blob at the given location and checks its digest.
    pub(crate) fn read_at(&self, digest: &Digest, place: BlobPlace) -> Result<Vec<u8>, JournalError> {
        let path = place.path(&self.dir);
        let file = File::open(&path).map_err(JournalError::io("open", &path))?;
        let mut content = vec![0; place.length as usize];
        file.read_exact_at(&mut content, place.offset).map_err(JournalError::io("read", &path))?;
        if Digest::of(&content) == *digest {
            return Ok(content);
        }
        Err(JournalError::Damaged {
            path,
            offset: place.offset,
            what: format!("content {digest}"),
            problem: squall_model::journal::Problem::Checksum,
        })
    }

    /// Reads all blobs and checks their digests.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let mut all: Vec<(Digest, BlobPlace)> = self.index().iter().map(|(digest, e)| (*digest, e.place)).collect();
        all.sort_unstable_by_key(|(_, place)| (place.packed, place.number, place.offset));
        all.iter().try_for_each(|(digest, place)| self.read_at(digest, *place).map(drop))
    }

    /// Removes blobs from the index that nothing needs, as far as they are in segments up to `covered`. Returns the
    /// remaining blobs in files up to that number. A removed blob is written again when it is needed again.
    pub(crate) fn retain(&self, live: &HashSet<Digest>, covered: u64) -> Vec<(Digest, BlobPlace)> {
        let mut index = self.index();
        index.retain(|digest, e| e.place.number > covered || e.used > covered || live.contains(digest));
        index.iter().filter(|(_, e)| e.place.number <= covered).map(|(d, e)| (*d, e.place)).collect()
    }

    /// Records new locations of blobs.
    pub(crate) fn moved(&self, places: &[(Digest, BlobPlace)]) {
        let mut index = self.index();
        for (digest, place) in places {
            if let Some(entry) = index.get_mut(digest) {
                entry.place = *place;
            }
        }
    }

    /// Returns the files that contain blobs: (whether it is a pack, number).
    pub(crate) fn files(&self) -> HashSet<(bool, u64)> {
        self.index().values().map(|e| (e.place.packed, e.place.number)).collect()
    }
}
