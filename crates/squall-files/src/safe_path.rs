//! Paths that nobody else can lead elsewhere. Who may rename a part of a path, or put a link in its place, chooses the
//! file that a process changes by it; where the process is root, that is any file.
//!
//! A path is walked from the root folder, a name at a time, by descriptors. Each folder on the way, and each link, must
//! belong to root, to this process's user, or to the owner of the root folder. No other user may change the names in it:
//! others may write in it only where it is sticky, as /tmp is, and the next name is one of these users'. What was opened
//! so stays the same, whatever happens to its path afterwards.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::users;

/// Most links that are followed in one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Permission of others, and of the group, to change the names in a folder; and the bit that leaves names to their
/// owners.
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Users who can lead a path elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The user with this id.
    User(u32),
    /// The members of the group with this id.
    Group(u32),
    /// All users.
    All,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => match users::by_uid(*uid) {
                Some(user) => f.write_str(&user.name),
                None => write!(f, "user {uid}"),
            },
            Self::Group(gid) => write!(f, "group {gid}"),
            Self::All => f.write_str("every user"),
        }
    }
}

/// A path that others can lead elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The folder, or the link, in which they can.
    pub at: PathBuf,
    /// Who they are.
    pub to: Who,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} can replace what is in {}", self.to, self.at.display())
    }
}

/// Why a path was not walked to its end.
enum Stop {
    Exposed(Exposed),
    Failed(io::Error),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Self::Failed(e.into())
    }
}

impl Stop {
    fn into_error(self, path: &Path) -> io::Error {
        let path = path.display();
        match self {
            Self::Exposed(exposed) => io::Error::new(io::ErrorKind::PermissionDenied, format!("{path}: {exposed}")),
            Self::Failed(e) => io::Error::new(e.kind(), format!("{path}: {e}")),
        }
    }
}

/// Opens what is at a path, by `O_PATH`. Err of kind `PermissionDenied`, which names who and where: others can lead the
/// path elsewhere.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    walk(path, None).map_err(|stop| stop.into_error(path))
}

/// Opens a folder in the same way. Missing folders of the path are made with this mode.
pub fn open_or_make(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    walk(path, Some(mode)).map_err(|stop| stop.into_error(path))
}

/// Returns who can lead a path elsewhere. None: nobody can, as far as it exists.
pub fn exposure(path: &Path) -> Option<Exposed> {
    match walk(path, None) {
        Err(Stop::Exposed(exposed)) => Some(exposed),
        Err(Stop::Failed(_)) | Ok(_) => None,
    }
}

/// Opens a folder in an opened one: it must belong to this process's user, and be no link. It is made if missing, and has
/// this mode then.
pub fn make(at: BorrowedFd<'_>, name: &Path, mode: u32) -> io::Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let folder = open_folder(at, name)?;
    let stat = fstat(&folder)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let text = format!("{} belongs to another user", name.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if stat.st_mode & 0o7777 != mode {
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode))?;
    }
    Ok(folder)
}

/// Opens a folder in an opened one, for reading its names too. A link is not followed.
pub fn open_folder(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// Returns a path that leads to what is opened, whatever its own path is by now. It holds while the descriptor is open, and
/// for this process.
pub fn path_of(opened: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Walks a path. `make`: mode of missing folders; None: they are errors.
fn walk(path: &Path, make: Option<u32>) -> Result<OwnedFd, Stop> {
    let whole = std::path::absolute(path).map_err(Stop::Failed)?;
    let root = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(rustix::fs::CWD, "/", flags, Mode::empty())
    };
    let mut at = root()?;
    let own = rustix::process::geteuid().as_raw();
    let trusted = [0, own, fstat(&at)?.st_uid];
    let mut here = PathBuf::from("/");
    let mut rest: Vec<OsString> = names(&whole).rev().collect();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let folder = fstat(&at)?;
        // What is missing would be this user's.
        if let Some(to) = exposed(&folder, own, &trusted) {
            return Err(Stop::Exposed(Exposed { at: here, to }));
        }
        let next = enter(at.as_fd(), &name, make)?;
        let found = fstat(&next)?;
        match exposed(&folder, found.st_uid, &trusted) {
            // A sticky folder leaves the entry to its owner.
            Some(to @ Who::User(_)) => return Err(Stop::Exposed(Exposed { at: here.join(name), to })),
            Some(to) => return Err(Stop::Exposed(Exposed { at: here, to })),
            None => {}
        }
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let target = readlinkat(&next, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                (at, here) = (root()?, PathBuf::from("/"));
            }
            rest.extend(names(&target).rev());
            continue;
        }
        if name == ".." {
            here.pop();
        } else {
            here.push(name);
        }
        at = next;
    }
    let last = fstat(&at)?;
    if trusted.contains(&last.st_uid) {
        return Ok(at);
    }
    Err(Stop::Exposed(Exposed { at: here, to: Who::User(last.st_uid) }))
}

/// Opens a name of a folder without following a link. `make`: mode of a folder that is made if there is none.
fn enter(at: BorrowedFd<'_>, name: &OsString, make: Option<u32>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match (openat(at, name.as_os_str(), flags, Mode::empty()), make) {
        (Err(Errno::NOENT), Some(mode)) => {
            match mkdirat(at, name.as_os_str(), Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
            openat(at, name.as_os_str(), flags, Mode::empty())
        }
        (opened, _) => opened,
    }
}

/// Returns who can replace an entry of a folder. `owner`: the entry's. None: only users who are trusted.
fn exposed(folder: &Stat, owner: u32, trusted: &[u32]) -> Option<Who> {
    if !trusted.contains(&folder.st_uid) {
        return Some(Who::User(folder.st_uid));
    }
    if folder.st_mode & STICKY != 0 && folder.st_mode & (OTHERS_WRITE | GROUP_WRITES) != 0 {
        return if trusted.contains(&owner) { None } else { Some(Who::User(owner)) };
    }
    match folder.st_mode {
        mode if mode & OTHERS_WRITE != 0 => Some(Who::All),
        mode if mode & GROUP_WRITES != 0 && folder.st_gid != 0 => Some(Who::Group(folder.st_gid)),
        _ => None,
    }
}

/// Returns the names of a path, one after the other.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::{Path, PathBuf};

    use super::{Exposed, Who, exposure, make, open, open_or_make, path_of};

    /// A folder of the test's own in the machine's sticky one, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> std::io::Result<Self> {
            let path = std::env::temp_dir().join(format!("squall-safe-{name}-{}", std::process::id()));
            fs::create_dir_all(&path)?;
            Ok(Self(path.canonicalize()?))
        }
        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn set(path: &Path, mode: u32) -> std::io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    #[test]
    fn others_can_be_in_no_part_of_a_path() -> Result<(), Box<dyn Error>> {
        let folder = Folder::new("parts")?;
        fs::create_dir_all(folder.at("a/b/c"))?;
        fs::write(folder.at("a/b/c/file"), "x")?;
        let file = folder.at("a/b/c/file");
        open(&file)?;
        assert_eq!(exposure(&file), None);
        for (mode, to) in [(0o777, Who::All), (0o757, Who::All), (0o1777, Who::User(0)), (0o755, Who::User(0))] {
            set(&folder.at("a/b"), mode)?;
            let exposed = Exposed { at: folder.at("a/b"), to };
            assert_eq!(exposure(&file), Some(exposed).filter(|_| to == Who::All), "{mode:o}");
            assert_eq!(open(&file).is_err(), to == Who::All, "{mode:o}");
        }
        symlink("../b/./c", folder.at("a/b/link"))?;
        symlink(folder.at("a/b/link"), folder.at("absolute"))?;
        assert_eq!(fs::read(path_of(open(&folder.at("absolute/file"))?.as_fd()))?, b"x");
        symlink("loop", folder.at("loop"))?;
        assert!(open(&folder.at("loop/x")).is_err() && open(&folder.at("none")).is_err());
        assert_eq!(exposure(&folder.at("none/x")), None);
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        // Another user's folder, link, or entry of a sticky folder on the way.
        chown(folder.at("a"), Some(1), None)?;
        assert_eq!(exposure(&file), Some(Exposed { at: folder.at("a"), to: Who::User(1) }));
        let error = open(&file).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("can replace what is in") && error.contains(&folder.at("a").display().to_string()));
        assert_eq!(exposure(&folder.at("absolute/file")), Some(Exposed { at: folder.at("a"), to: Who::User(1) }));
        assert_eq!(exposure(&folder.at("a/none/x")), Some(Exposed { at: folder.at("a"), to: Who::User(1) }));
        chown(folder.at("a"), Some(0), Some(7))?;
        set(&folder.at("a"), 0o775)?;
        assert_eq!(exposure(&file).map(|exposed| exposed.to), Some(Who::Group(7)));
        set(&folder.at("a"), 0o1777)?;
        std::os::unix::fs::lchown(folder.at("a/b"), Some(1), None)?;
        assert_eq!(exposure(&file), Some(Exposed { at: folder.at("a/b"), to: Who::User(1) }));
        Ok(())
    }

    #[test]
    fn a_folder_is_made_once_and_a_link_in_its_place_is_refused() -> Result<(), Box<dyn Error>> {
        let folder = Folder::new("made")?;
        let at = open_or_make(&folder.at("x/y"), 0o711)?;
        let first = make(at.as_fd(), Path::new("z"), 0o1777)?;
        fs::write(path_of(first.as_fd()).join("in"), "x")?;
        let mode = || fs::metadata(folder.at("x/y/z")).map(|meta| meta.permissions().mode() & 0o7777);
        assert_eq!(mode()?, 0o1777);
        set(&folder.at("x/y/z"), 0o700)?;
        let again = make(at.as_fd(), Path::new("z"), 0o1777)?;
        assert_eq!((mode()?, fs::read(path_of(again.as_fd()).join("in"))?.as_slice()), (0o1777, &b"x"[..]));
        // Whatever happens to its path, an opened folder stays the same.
        fs::rename(folder.at("x/y/z"), folder.at("away"))?;
        fs::create_dir(folder.at("other"))?;
        symlink(folder.at("other"), folder.at("x/y/z"))?;
        assert!(make(at.as_fd(), Path::new("z"), 0o1777).is_err());
        assert!(fs::read(path_of(first.as_fd()).join("in")).is_ok());
        assert_ne!(fs::metadata(folder.at("other"))?.permissions().mode() & 0o7777, 0o1777);
        Ok(())
    }
}
