//! Files that CRIU opens again at a restore but does not save: those that processes share as memory, and the folders of the
//! job's steps in shared memory, where MPI libraries have such files and sockets. After the steps' end, after a reboot, and on
//! another node they are missing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minicbor::{Decode, Encode};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use squall_model::encoding::ByteBuf;
use squall_model::job::JobAttempt;

use super::checkpoint::launch_of;
use super::wireup::{is_shared_folder, shared_folder_of};
use crate::removal::remove_soon;
use crate::spool::{attempt_name, parse_attempt};

/// Largest file on a disk that is saved; those in memory file systems are saved whatever their size.
const SAVED_BYTES_MAX: u64 = 16 << 20;
/// Magic number of tmpfs.
const TMPFS: u64 = 0x0102_1994;
/// Folders within each other that are saved.
const DEPTH_MAX: usize = 8;
/// Name of the folder in a node's spool with what restores have put back.
const ROOMS: &str = "rooms";

/// A saved file or folder. Its content is in the folder `shared` of the checkpoint, in a file with its index; that of a folder
/// is empty.
#[derive(Debug, Encode, Decode)]
pub(super) struct SavedFile {
    /// Its path.
    #[n(0)]
    path: ByteBuf,
    /// Its type and permissions, as of stat.
    #[n(1)]
    mode: u32,
}

impl SavedFile {
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// Puts it back as it was, if need be in place of another content.
    fn put_back(&self, mut content: File) -> io::Result<()> {
        let path = self.path();
        // After a reboot, or on another node, its folder is missing too.
        let missing = if self.is_folder() { Some(path) } else { path.parent() };
        if let Some(folder) = missing.filter(|folder| !folder.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        if self.is_folder() {
            return Ok(());
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mode = self.mode & 0o7777;
        let options =
            File::options().write(true).create(true).truncate(false).mode(mode).custom_flags(flags).open(path);
        let mut to = options?;
        if !to.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = io::copy(&mut content, &mut to)?;
        to.set_len(length)
    }
}

/// Saves, in a new folder, the files that processes have mapped as shared memory, and what the folders `rooms` contain of
/// user `uid`. The processes stand still.
pub(super) fn save(members: &[u32], rooms: &[PathBuf], uid: u32, folder: &Path) -> io::Result<Vec<SavedFile>> {
    let mut saving = Saving { folder, saved: Vec::new(), seen: BTreeSet::new() };
    for room in rooms {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        saving.add_folder(openat(CWD, room, flags, Mode::empty())?, room, uid, 0)?;
    }
    for pid in members {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for range in maps.split(|byte| *byte == b'\n').filter_map(shared_map) {
            // By its path it might be another file by now.
            let place = format!("/proc/{pid}/map_files/{range}");
            let (Ok(file), Ok(path)) = (File::open(&place), fs::read_link(&place)) else { continue };
            let small = file.metadata()?.len() <= SAVED_BYTES_MAX || rustix::fs::fstatfs(&file)?.f_type as u64 == TMPFS;
            if small {
                saving.add(file, &path)?;
            }
        }
    }
    Ok(saving.saved)
}

/// What was saved so far.
struct Saving<'a> {
    /// Folder for the copies.
    folder: &'a Path,
    saved: Vec<SavedFile>,
    /// Device and inode numbers of what was saved.
    seen: BTreeSet<(u64, u64)>,
}

impl Saving<'_> {
    /// Saves a file or folder, if it still has a name.
    fn add(&mut self, mut file: File, path: &Path) -> io::Result<()> {
        let traits = file.metadata()?;
        let named = traits.nlink() > 0 && (traits.is_file() || traits.is_dir());
        if !named || !self.seen.insert((traits.dev(), traits.ino())) {
            return Ok(());
        }
        if self.saved.is_empty() {
            DirBuilder::new().mode(0o700).create(self.folder)?;
        }
        let copy = self.folder.join(self.saved.len().to_string());
        let mut copy = File::options().write(true).create_new(true).mode(0o600).open(copy)?;
        if traits.is_file() {
            io::copy(&mut file, &mut copy)?;
        }
        self.saved.push(SavedFile { path: path.as_os_str().to_owned().into_vec().into(), mode: traits.mode() });
        Ok(())
    }

    /// Saves a folder with its files and folders. Its user may rename what is in it meanwhile.
    fn add_folder(&mut self, folder: OwnedFd, path: &Path, uid: u32, depth: usize) -> io::Result<()> {
        let traits = rustix::fs::fstat(&folder)?;
        if traits.st_uid != uid || depth > DEPTH_MAX {
            return Ok(());
        }
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            // CRIU makes sockets, which can't be opened.
            let Ok(file) = openat(folder.as_fd(), name, flags, Mode::empty()) else { continue };
            let (file, path) = (File::from(file), path.join(OsStr::from_bytes(name.to_bytes())));
            let traits = file.metadata()?;
            if traits.is_dir() {
                self.add_folder(file.into(), &path, uid, depth + 1)?;
            } else if traits.uid() == uid {
                self.add(file, &path)?;
            }
        }
        self.add(folder.into(), path)
    }
}

/// Parses a line of a process's memory map. Some: the range of a file that is mapped shared and writable.
fn shared_map(line: &[u8]) -> Option<&str> {
    let head = &line[..line.iter().position(|byte| *byte == b'/')?];
    let mut words = std::str::from_utf8(head).ok()?.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    (rights.starts_with("rw") && rights.ends_with('s') && !line.ends_with(b" (deleted)")).then_some(range)
}

/// Returns the folders in shared memory of a job's steps. `step`: the folder of its batch step.
pub(super) fn rooms_of(step: &Path) -> Vec<PathBuf> {
    let (Some(steps), Some(own)) = (step.parent(), step.file_name().and_then(OsStr::to_str)) else { return Vec::new() };
    let job = own.rsplit_once('.').map_or(own, |(job, _)| job);
    let names = fs::read_dir(steps).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names =
        names.filter(|name| name.to_str().and_then(|name| name.rsplit_once('.')).is_some_and(|(of, _)| of == job));
    names.filter_map(|name| shared_folder_of(&launch_of(&steps.join(name)).ok()?)).collect()
}

/// Opens what was saved, for [`put_back`].
pub(super) fn open_saved(files: &[SavedFile], folder: &Path) -> io::Result<Vec<File>> {
    (0..files.len()).map(|index| File::open(folder.join(index.to_string()))).collect()
}

/// Puts files back as they were, with the rights of this process.
pub(super) fn put_back(files: &[SavedFile], saved: Vec<File>) -> io::Result<()> {
    for (file, content) in files.iter().zip(saved) {
        let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.path().display()));
        file.put_back(content).map_err(wrong)?;
    }
    Ok(())
}

/// Notes which folders of steps in shared memory a restore puts back, for [`sweep_rooms`]: in the file `rooms/JOB.ATTEMPT` of the
/// node's spool. `steps`: the folder of all steps there.
pub(super) fn note_rooms(files: &[SavedFile], steps: &Path, job: JobAttempt) -> io::Result<()> {
    let rooms = files.iter().filter(|file| file.is_folder() && is_shared_folder(file.path()));
    let text: Vec<u8> = rooms.flat_map(|room| [room.path.as_slice(), b"\n"].concat()).collect();
    if text.is_empty() {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(steps.with_file_name(ROOMS)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    fs::write(noted_at(steps, job), text)
}

fn noted_at(steps: &Path, job: JobAttempt) -> PathBuf {
    steps.with_file_name(ROOMS).join(attempt_name(job))
}

/// Returns the restored jobs for which folders in shared memory were put back.
pub(crate) fn jobs_with_rooms(steps: &Path) -> Vec<JobAttempt> {
    let entries = fs::read_dir(steps.with_file_name(ROOMS)).into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_attempt(entry.file_name().to_str()?)).collect()
}

/// Removes the folders in shared memory that were put back for a restored job of which nothing is left. It may be restored
/// again.
pub(crate) fn sweep_rooms(steps: &Path, job: JobAttempt) {
    let noted = fs::read(noted_at(steps, job)).unwrap_or_default();
    let rooms = noted.split(|byte| *byte == b'\n').map(|room| PathBuf::from(OsStr::from_bytes(room)));
    for room in rooms.filter(|room| is_shared_folder(room)) {
        remove_soon(&room);
    }
    drop(fs::remove_file(noted_at(steps, job)));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::{open_saved, put_back, save, shared_map};

    #[test]
    fn only_files_that_are_shared_and_writable_count() {
        let line = "7f00-7f10 rw-s 00000000 00:1b 33                         /dev/shm/vader 1";
        assert_eq!(shared_map(line.as_bytes()), Some("7f00-7f10"));
        for other in [line.replace("rw-s", "rw-p"), line.replace("rw-s", "r--s"), format!("{line} (deleted)")] {
            assert_eq!(shared_map(other.as_bytes()), None);
        }
    }

    #[test]
    fn a_folder_comes_back_with_its_files_and_without_what_links_lead_to() {
        let scratch = std::env::temp_dir().join(format!("squall-saved-{}", std::process::id()));
        let (room, copies) = (scratch.join("room"), scratch.join("copies"));
        fs::create_dir_all(room.join("empty")).unwrap();
        fs::create_dir(room.join("deep")).unwrap();
        fs::write(room.join("deep/file"), "content").unwrap();
        fs::set_permissions(room.join("deep/file"), PermissionsExt::from_mode(0o640)).unwrap();
        fs::write(scratch.join("secret"), "secret").unwrap();
        symlink(scratch.join("secret"), room.join("link")).unwrap();
        let _socket = UnixListener::bind(room.join("socket")).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let nothing = save(&[], std::slice::from_ref(&room), uid + 1, &copies).unwrap();
        assert!(nothing.is_empty(), "it is another user's");
        let saved = save(&[], std::slice::from_ref(&room), uid, &copies).unwrap();
        fs::remove_dir_all(&room).unwrap();
        for _ in 0..2 {
            put_back(&saved, open_saved(&saved, &copies).unwrap()).unwrap();
            assert_eq!(fs::read_to_string(room.join("deep/file")).unwrap(), "content");
            assert_eq!(fs::metadata(room.join("deep/file")).unwrap().permissions().mode() & 0o7777, 0o640);
            assert!(room.join("empty").is_dir() && !room.join("link").exists() && !room.join("socket").exists());
            fs::write(room.join("deep/file"), "later, and longer").unwrap();
        }
        fs::remove_dir_all(scratch).unwrap();
    }
}
