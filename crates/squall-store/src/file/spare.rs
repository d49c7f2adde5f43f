//! Prepares one segment in advance, so that appending never waits for the disk's allocator, and a full disk is noticed
//! while there is still room for records that must be written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::is_no_space;
use super::files::{self, SPARE};

/// Smallest size of a segment, bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Largest size of a segment, bytes, unless a single frame needs more.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// Number by which the free bytes of the disk are divided to get the most that one segment may take.
const FREE_SHARE: u64 = 8;
/// Pause before another attempt on a full disk.
const RETRY: Duration = Duration::from_millis(100);

/// A prepared segment file that contains only zeros.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
struct Shelf {
    spare: Option<Spare>,
    wanted: bool,
    trouble: Option<std::io::Error>,
    ended: bool,
}

/// Handle of the thread that prepares the spare segment; the thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SpareKeeper {
    shared: Arc<(Mutex<Shelf>, Condvar)>,
    dir: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// Returns the size for a new segment, bytes: a share of the disk's free bytes, but at most `most`.
pub(crate) fn segment_size(dir: &Path, most: u64) -> u64 {
    let share = files::free_bytes(dir) / FREE_SHARE;
    share.clamp(SEGMENT_BYTES_MIN, most.max(SEGMENT_BYTES_MIN)) / 4096 * 4096
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpareKeeper {
    /// Starts the thread, which begins to make the first spare segment.
    pub(crate) fn start(dir: &Path, most: u64) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(Shelf { wanted: true, ..Shelf::default() }), Condvar::new()));
        let (for_thread, dir_of_thread) = (Arc::clone(&shared), dir.to_owned());
        let thread = std::thread::Builder::new()
            .name("journal-spare".into())
            .spawn(move || keep(&dir_of_thread, most, &for_thread))?;
        Ok(Self { shared, dir: dir.to_owned(), thread: Some(thread) })
    }

    /// Takes the spare segment, if there is one of at least `size` bytes.
    pub(crate) fn take(&self, size: u64) -> Option<Spare> {
        let mut shelf = lock(&self.shared.0);
        if shelf.spare.as_ref().is_some_and(|s| s.size >= size) { shelf.spare.take() } else { None }
    }

    /// Has the next spare segment made. To be called only after the last one was renamed, as it would be overwritten.
    pub(crate) fn wake(&self) {
        let mut shelf = lock(&self.shared.0);
        shelf.wanted = shelf.spare.is_none();
        self.shared.1.notify_all();
    }

    /// Makes a segment of `size` bytes now, in the calling thread.
    pub(crate) fn make(&self, size: u64) -> std::io::Result<Spare> {
        let path = self.dir.join("special.tmp");
        let file = files::zeroed(&path, size)?;
        Ok(Spare { file, path, size })
    }

    /// Returns the bytes of the spare segment; 0: there is none.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.shared.0).spare.as_ref().map_or(0, |s| s.size)
    }

    /// Returns why the last attempt to make a spare segment failed; None: it did not, or there is a spare segment.
    pub(crate) fn trouble(&self) -> Option<String> {
        let shelf = lock(&self.shared.0);
        if shelf.spare.is_some() { None } else { shelf.trouble.as_ref().map(ToString::to_string) }
    }

    /// Waits until there is a spare segment, or a reason why there is none.
    pub(crate) fn await_ready(&self) {
        let mut shelf = lock(&self.shared.0);
        while shelf.wanted && shelf.spare.is_none() && shelf.trouble.is_none() && !shelf.ended {
            shelf = self.shared.1.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for SpareKeeper {
    fn drop(&mut self) {
        lock(&self.shared.0).ended = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn keep(dir: &Path, most: u64, shared: &(Mutex<Shelf>, Condvar)) {
    let path = dir.join(SPARE);
    loop {
        let mut shelf = lock(&shared.0);
        while !shelf.ended && (!shelf.wanted || shelf.spare.is_some()) {
            shelf = shared.1.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
        if shelf.ended {
            return;
        }
        drop(shelf);
        let size = segment_size(dir, most);
        let made = files::zeroed(&path, size);
        let mut shelf = lock(&shared.0);
        match made {
            Ok(file) => {
                shelf.spare = Some(Spare { file, path: path.clone(), size });
                shelf.wanted = false;
                shelf.trouble = None;
                shared.1.notify_all();
            }
            Err(error) => {
                if shelf.trouble.is_none() && !is_no_space(&error) {
                    tracing::error!(file = %path.display(), %error, "cannot reserve room for the journal");
                }
                shelf.trouble = Some(error);
                shared.1.notify_all();
                if !shelf.ended {
                    drop(shared.1.wait_timeout(shelf, RETRY));
                }
            }
        }
    }
}
