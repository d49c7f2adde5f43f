//! Removes folders that users have filled, as deep and as full as they like. The time that it takes grows with their
//! content; stack, memory and open files do not.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use squall_files::safe_path;

/// Names that are read of a folder before they are removed: it may have millions.
const NAMES_MAX: usize = 1024;

/// Removes a file, or a folder with all that it contains. Symbolic links are removed, not followed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match rustix::fs::unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let mut removal = Removal { top: open(CWD, path)?, moved: 0 };
    while removal.sweep()? {}
    Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Removes these on a thread of its own. What can't be removed is logged.
pub(crate) fn remove_apart(paths: Vec<PathBuf>) {
    let work = move || {
        for path in paths {
            match remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(folder = %path.display(), error = %e, "what a job has left can't be removed");
                }
                _ => {}
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("remove".to_owned()).spawn(work) {
        tracing::error!(error = %e, "what jobs have left can't be removed");
    }
}

/// Has a folder gone from its place when this returns, and removes it on a thread of its own.
pub(crate) fn remove_soon(path: &Path) {
    let mut gone = path.as_os_str().to_owned();
    gone.push(".gone");
    // There may be one that could not be removed.
    let moved = std::fs::rename(path, &gone).is_ok();
    remove_apart(vec![if moved { gone.into() } else { path.to_owned() }]);
}

/// A folder that is being emptied. What is deep in it is moved up before it is removed, so that nothing has to be kept
/// of the way down.
struct Removal {
    top: OwnedFd,
    /// Number of folders that were moved up.
    moved: u64,
}

impl Removal {
    /// Removes some entries. False: there were none.
    fn sweep(&mut self) -> io::Result<bool> {
        let names = some_names(self.top.as_fd())?;
        for name in &names {
            if is_folder(self.top.as_fd(), name)? {
                self.remove_folder(name)?;
            }
        }
        Ok(!names.is_empty())
    }

    fn remove_folder(&mut self, name: &CString) -> io::Result<()> {
        let folder = open(self.top.as_fd(), name.as_c_str())?;
        loop {
            let names = some_names(folder.as_fd())?;
            if names.is_empty() {
                return Ok(rustix::fs::unlinkat(&self.top, name.as_c_str(), AtFlags::REMOVEDIR)?);
            }
            for inner in names {
                if is_folder(folder.as_fd(), &inner)? {
                    self.move_up(folder.as_fd(), &inner)?;
                }
            }
        }
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CString) -> io::Result<()> {
        loop {
            self.moved += 1;
            match rustix::fs::renameat(from, name.as_c_str(), &self.top, format!(".moved-{}", self.moved)) {
                // The user has such a name.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
                // Only the owner of a folder without the right to write in it can't move it.
                Err(Errno::ACCESS) => drop(open(from, name.as_c_str())?),
                result => return Ok(result?),
            }
        }
    }
}

/// Removes a file. True: it is a folder, and there.
fn is_folder(at: BorrowedFd<'_>, name: &CString) -> io::Result<bool> {
    match rustix::fs::unlinkat(at, name.as_c_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(false),
        // POSIX has another error for it than Linux.
        Err(Errno::ISDIR | Errno::PERM) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Opens a folder, and lets its owner remove what is in it. A link is never followed, also one that its user puts in the
/// folder's place at this moment.
fn open(at: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(&at, name, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let found = rustix::fs::openat(&at, name, flags | OFlags::PATH, Mode::empty())?;
            let path = safe_path::path_of(found.as_fd());
            rustix::fs::chmod(&path, Mode::RWXU)?;
            rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?
        }
        opened => opened?,
    };
    if !rustix::process::geteuid().is_root() {
        rustix::fs::fchmod(&folder, Mode::RWXU)?;
    }
    Ok(folder)
}

fn some_names(folder: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == NAMES_MAX {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::remove;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("squall-removal-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A user ended the node daemon so, by a stack overflow, at each of its starts.
    #[test]
    fn a_folder_may_be_as_deep_as_a_user_likes() {
        let path = folder("deep");
        let mut at = rustix::fs::openat(rustix::fs::CWD, &path, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", 0o755.into()).unwrap();
            at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
        }
        drop(at);
        // The stack of a small thread is enough.
        let target = path.clone();
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(move || remove(&target)).unwrap().join().unwrap().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_closed_full_or_oddly_named_goes_too_and_links_are_not_followed() {
        let (path, other) = (folder("odd"), folder("other"));
        fs::write(other.join("kept"), "").unwrap();
        let at = |name: &str| path.join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all(at("a/.moved-1/full")).unwrap();
        fs::create_dir_all(at(".moved-2/full")).unwrap();
        fs::write(at(".moved-3"), "").unwrap();
        fs::write(path.join(std::ffi::OsStr::from_bytes(b"a/\xff\n")), "").unwrap();
        symlink(&other, at("link")).unwrap();
        symlink(&other, at("a/b/link")).unwrap();
        for number in 0..3000 {
            fs::write(at(&format!("a/b/{number}")), "").unwrap();
        }
        for name in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(at(name), PermissionsExt::from_mode(0o000)).unwrap();
        }
        remove(&path).unwrap();
        assert!(!path.exists());
        assert!(other.join("kept").exists());
        symlink(&other, &path).unwrap();
        remove(&path).unwrap();
        assert!(other.join("kept").exists());
        fs::remove_dir_all(other).unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
