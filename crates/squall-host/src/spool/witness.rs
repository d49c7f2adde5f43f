//! The witness of a spool: a file in memory that lists the steps that the spool must have.
//!
//! The spool is never flushed. It may be rolled back (a restored copy, a snapshot of its disk) or lose files, while the
//! processes that it records continue to run. The kernel keeps the witness as long as these processes: a reboot ends
//! both. A step is listed from when its folder has got its name until shortly before that is removed. So all steps in
//! the witness are in the spool, unless the spool has lost something.
//!
//! The first [`HEAD_BYTES`] bytes are one line with a checksum: incarnation, starts of the daemon, starts of steps,
//! session. Then follows a line of [`SLOT_BYTES`] with a checksum for each step; a blank line is free.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};
use squall_model::id::{Epoch, Session, StepKey};
use squall_model::job::Digest;

use super::memory::{Memory, checked, unchecked};
use super::{open_at, parse_key, read_text};

const HEAD_BYTES: usize = 256;
const SLOT_BYTES: usize = 64;

/// Type of tmpfs as returned by statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The opened witness file: a list, in memory, of the steps that the spool must have.
#[derive(Debug)]
pub(super) struct Witness {
    path: PathBuf,
    file: File,
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    used: BTreeMap<StepKey, usize>,
    free: Vec<usize>,
    count: usize,
}

/// Content of the witness as an earlier start of the daemon left it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WitnessContent {
    pub(super) number: u128,
    pub(super) life: u64,
    pub(super) starts: u64,
    pub(super) session: Session,
    pub(super) steps: Vec<StepKey>,
}

/// Returns the path of the witness of a node's spool; its name is derived from the folder of the cluster's state. None:
/// there is no usable file system in memory.
pub fn place(state: &Path, node: &str) -> Option<PathBuf> {
    let folder = std::fs::metadata(state).ok()?;
    let name = Digest::of(format!("{} {} {}", state.display(), folder.dev(), folder.ino()).as_bytes()).to_string();
    let system = rustix::process::geteuid().is_root().then_some("/run/squall");
    let in_memory = |dir: &&str| {
        let _ = std::fs::DirBuilder::new().mode(0o755).create(dir);
        rustix::fs::statfs(*dir).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
    };
    let dir = system.into_iter().chain(["/dev/shm"]).find(in_memory)?;
    Some(Path::new(dir).join(format!("squall-{}-{node}", &name[..16])))
}

impl Witness {
    /// Reads the witness. None: it is missing, damaged, or belongs to another user.
    pub(super) fn read(path: &Path) -> Option<WitnessContent> {
        let found = std::fs::symlink_metadata(path).ok()?;
        // Another user may have put something in its place, which is not even opened: a pipe would not end.
        if found.uid() != rustix::process::geteuid().as_raw() || !found.is_file() {
            return None;
        }
        let text = read_text(CWD, path.to_str()?).ok()?;
        let mut head = unchecked(text.get(..HEAD_BYTES)?)?.split(' ');
        let number = u128::from_str_radix(head.next()?, 16).ok()?;
        let mut next = || head.next()?.parse().ok();
        let (life, starts, epoch, number_of_session) = (next()?, next()?, next()?, next()?);
        let session = Session { epoch: Epoch(epoch), number: number_of_session };
        let slots = text.as_bytes()[HEAD_BYTES..].chunks_exact(SLOT_BYTES);
        let steps = slots.filter_map(|slot| parse_key(unchecked(std::str::from_utf8(slot).ok()?)?)).collect();
        Some(WitnessContent { number, life, starts, session, steps })
    }

    /// Writes a new witness with these steps.
    pub(super) fn create(path: &Path, memory: &Memory, steps: &[StepKey]) -> io::Result<Self> {
        let name = path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let file = open_at(CWD, name, OFlags::RDWR | OFlags::CREATE, 0o600)?;
        if file.metadata()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{name} belongs to another user")));
        }
        let used: BTreeMap<StepKey, usize> = steps.iter().enumerate().map(|(at, key)| (*key, at)).collect();
        let mut bytes = head(memory);
        for key in steps {
            bytes.extend(line(&key.to_string(), SLOT_BYTES));
        }
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        let slots = Slots { used, free: Vec::new(), count: steps.len() }.into();
        Ok(Self { path: path.to_owned(), file, slots })
    }

    /// Updates the numbers of starts and the session.
    pub(super) fn note(&self, memory: &Memory) -> io::Result<()> {
        self.file.write_all_at(&head(memory), 0)
    }

    /// Adds a step to the list: the spool must have the step from now on.
    pub(super) fn add(&self, key: StepKey, memory: &Memory) -> io::Result<()> {
        self.note(memory)?;
        let slots = &mut *self.slots.borrow_mut();
        let slot = slots.free.pop().unwrap_or(slots.count);
        slots.count = slots.count.max(slot + 1);
        slots.used.insert(key, slot);
        self.file.write_all_at(&line(&key.to_string(), SLOT_BYTES), offset(slot))
    }

    /// Removes a step from the list: the spool may lose the step from now on.
    pub(super) fn remove(&self, key: StepKey) -> io::Result<()> {
        let slots = &mut *self.slots.borrow_mut();
        let Some(slot) = slots.used.remove(&key) else { return Ok(()) };
        slots.free.push(slot);
        self.file.write_all_at(&[b' '; SLOT_BYTES], offset(slot))
    }

    /// Removes the witness file if it lists no step.
    pub(super) fn close(&self) {
        if self.slots.borrow().used.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn offset(slot: usize) -> u64 {
    (HEAD_BYTES + slot * SLOT_BYTES) as u64
}

fn head(memory: &Memory) -> Vec<u8> {
    let (session, number) = (memory.session, memory.number);
    let words = format!("{number:032x} {} {} {} {}", memory.life, memory.starts, session.epoch.0, session.number);
    line(&words, HEAD_BYTES)
}

/// Returns a line with a checksum, filled up with blanks to `length` bytes.
fn line(words: &str, length: usize) -> Vec<u8> {
    let mut bytes = checked(words).into_bytes();
    bytes.resize(length, b' ');
    bytes
}
