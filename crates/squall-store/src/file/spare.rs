//! Keeps one segment ready ahead of need, so that appending never waits for the disk's allocator and a full
//! disk is noticed while there is still room for what must be written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::is_no_space;
use super::files::{self, SPARE};

/// Smallest size of a segment, bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Largest size of a segment that is made without need, bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// The share of the free room that one segment may take.
const FREE_SHARE: u64 = 8;
/// How long to wait before trying again on a full disk.
const RETRY: Duration = Duration::from_millis(100);

/// A segment file that holds zeros only.
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

/// The keeper of the spare segment; its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SpareKeeper {
    shared: Arc<(Mutex<Shelf>, Condvar)>,
    dir: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// The size that a segment should have, given the room on its disk and the size that is enough.
pub(crate) fn segment_size(dir: &Path, most: u64) -> u64 {
    let share = files::free_bytes(dir) / FREE_SHARE;
    share.clamp(SEGMENT_BYTES_MIN, most.max(SEGMENT_BYTES_MIN)) / 4096 * 4096
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpareKeeper {
    /// Starts to make the first spare.
    pub(crate) fn start(dir: &Path, most: u64) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(Shelf { wanted: true, ..Shelf::default() }), Condvar::new()));
        let (for_thread, dir_of_thread) = (Arc::clone(&shared), dir.to_owned());
        let thread = std::thread::Builder::new()
            .name("journal-spare".into())
            .spawn(move || keep(&dir_of_thread, most, &for_thread))?;
        Ok(Self { shared, dir: dir.to_owned(), thread: Some(thread) })
    }

    /// Takes the spare if there is one of at least that size.
    pub(crate) fn take(&self, size: u64) -> Option<Spare> {
        let mut shelf = lock(&self.shared.0);
        if shelf.spare.as_ref().is_some_and(|s| s.size >= size) { shelf.spare.take() } else { None }
    }

    /// Has the next spare made. Only after the last one got another name: it would be overwritten.
    pub(crate) fn wake(&self) {
        let mut shelf = lock(&self.shared.0);
        shelf.wanted = shelf.spare.is_none();
        self.shared.1.notify_all();
    }

    /// Makes a segment of that size now, whatever it takes.
    pub(crate) fn make(&self, size: u64) -> std::io::Result<Spare> {
        let path = self.dir.join("special.tmp");
        let file = files::zeroed(&path, size)?;
        Ok(Spare { file, path, size })
    }

    /// Bytes of the spare; 0: there is none.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.shared.0).spare.as_ref().map_or(0, |s| s.size)
    }

    /// Why the last try to make a spare failed, as long as there is none.
    pub(crate) fn trouble(&self) -> Option<String> {
        let shelf = lock(&self.shared.0);
        if shelf.spare.is_some() { None } else { shelf.trouble.as_ref().map(ToString::to_string) }
    }

    /// Waits until there is a spare or a reason why there is none.
    pub(crate) fn settle(&self) {
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
