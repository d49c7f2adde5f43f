//! Where a cluster's files are, and how commands find the cluster without any environment variable.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The environment variable that names the cluster's state folder.
pub const STATE_VARIABLE: &str = "SQUALL_STATE";

/// Longest path of a Unix socket that the kernel takes, bytes.
const SOCKET_PATH_MAX: usize = 107;

/// The state folder of one cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// The cluster whose state is in `dir` (made absolute).
    pub fn at(dir: &Path) -> io::Result<Self> {
        Ok(Self { dir: std::path::absolute(dir)? })
    }

    /// The cluster that commands talk to: `SQUALL_STATE`, else the caller's own running cluster,
    /// else the machine's. None: there is none.
    pub fn find() -> Option<Self> {
        if let Some(dir) = std::env::var_os(STATE_VARIABLE).filter(|d| !d.is_empty()) {
            return Self::at(Path::new(&dir)).ok();
        }
        let uid = rustix::process::getuid().as_raw();
        pointers(uid).iter().find_map(|(folder, owner)| {
            if fs::symlink_metadata(folder).ok().filter(fs::Metadata::is_dir)?.uid() != *owner {
                return None;
            }
            let text = fs::read_to_string(folder.join(POINTER)).ok()?;
            let place = Self { dir: PathBuf::from(text.trim_end_matches('\n')) };
            place.controller_socket().exists().then_some(place)
        })
    }

    /// Makes this cluster the one that [`Place::find`] gives to its owner (or, run by root, to everybody).
    pub fn announce(&self) -> io::Result<()> {
        let uid = rustix::process::getuid().as_raw();
        let mut result = Err(io::ErrorKind::NotFound.into());
        for (folder, owner) in pointers(uid) {
            if owner != uid || !folder.parent().is_some_and(Path::is_dir) {
                continue;
            }
            let mode = if uid == 0 { 0o755 } else { 0o700 };
            match fs::DirBuilder::new().mode(mode).create(&folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    result = result.or(Err(e));
                    continue;
                }
                _ => {}
            }
            let meta = fs::symlink_metadata(&folder)?;
            if !meta.is_dir() || meta.uid() != uid {
                continue;
            }
            let fresh = folder.join(format!("{POINTER}.{}", std::process::id()));
            let mut text = self.dir.as_os_str().to_owned();
            text.push("\n");
            fs::write(&fresh, text.as_encoded_bytes())?;
            fs::rename(&fresh, folder.join(POINTER))?;
            result = Ok(());
        }
        result
    }

    /// Takes back [`Place::announce`], if it is this cluster that is announced.
    pub fn retract(&self) {
        let uid = rustix::process::getuid().as_raw();
        for (folder, _) in pointers(uid).iter().filter(|(_, owner)| *owner == uid) {
            let file = folder.join(POINTER);
            let ours =
                fs::read(&file).is_ok_and(|t| t.strip_suffix(b"\n") == Some(self.dir.as_os_str().as_encoded_bytes()));
            if ours {
                // A pointer that can't be removed is harmless: find() skips clusters without a socket.
                drop(fs::remove_file(&file));
            }
        }
    }

    /// The state folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Sockets and pid files.
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }
    /// Logs of the daemons.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
    /// Journal and snapshots.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }
    /// The accounting database.
    pub fn accounts(&self) -> PathBuf {
        self.dir.join("accounts.db")
    }
    /// The configuration in use.
    pub fn config(&self) -> PathBuf {
        self.dir.join("squall.toml")
    }
    /// What the controller knows of its clock.
    pub(crate) fn clock(&self) -> PathBuf {
        self.dir.join("clock")
    }
    /// Devices of nodes, in the words of Slurm's file of that name; it need not be there.
    pub fn gres_config(&self) -> PathBuf {
        self.dir.join("gres.conf")
    }
    /// The spool of a node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.dir.join("node").join(name)
    }
    /// Files that nodes on this machine share.
    pub(crate) fn content(&self) -> PathBuf {
        self.dir.join("content")
    }
    /// Files that a node keeps.
    pub(crate) fn content_of(&self, name: &str) -> PathBuf {
        self.node(name).join("content")
    }
    /// Where the state of cells is, of a cluster that has some.
    pub fn cells_folder(&self) -> PathBuf {
        self.dir.join(CELLS)
    }
    /// Its cells, by number; none where the cluster is one by itself.
    pub fn cells(&self) -> io::Result<BTreeMap<u32, Self>> {
        let folder = self.cells_folder();
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut cells = BTreeMap::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            cells.extend(number.map(|number| (number, Self { dir: folder.join(name) })));
        }
        Ok(cells)
    }
    /// Whom commands of jobs that run here ask: the front of which this is a cell, or the cluster itself.
    pub(crate) fn for_jobs(&self) -> Self {
        let folder = self.dir.parent().filter(|folder| folder.ends_with(CELLS));
        let front = folder.and_then(Path::parent).map(|dir| Self { dir: dir.to_owned() });
        front.filter(|front| front.run().is_dir()).unwrap_or_else(|| self.clone())
    }
    /// The front's process id.
    pub fn front_pid(&self) -> PathBuf {
        self.run().join("front.pid")
    }
    /// Where the controller listens; the front, where there are cells.
    pub fn controller_socket(&self) -> PathBuf {
        self.run().join("controller.sock")
    }
    /// The controller's process id.
    pub fn controller_pid(&self) -> PathBuf {
        self.run().join("controller.pid")
    }
    /// Where a node daemon listens for its children in the tree.
    pub fn node_socket(&self, name: &str) -> PathBuf {
        self.run().join(format!("node-{name}.sock"))
    }
    /// How other machines of the cluster reach this one (a host's name or address), if it has any.
    pub fn reached_as(&self) -> Option<String> {
        let host = fs::read_to_string(self.run().join(REACHED_AS)).ok()?;
        Some(host.trim_end().to_owned()).filter(|host| !host.is_empty())
    }
    /// Says so, to commands of all users; empty: by none. Needs no room on the disk unless it is news.
    pub(crate) fn note_reached_as(&self, host: &str) -> io::Result<()> {
        if self.reached_as().unwrap_or_default() == host {
            return Ok(());
        }
        let path = self.run().join(REACHED_AS);
        if host.is_empty() {
            return fs::remove_file(path);
        }
        let draft = path.with_extension("tmp");
        fs::write(&draft, format!("{host}\n"))?;
        fs::rename(draft, path)
    }
    /// A node daemon's process id.
    pub fn node_pid(&self, name: &str) -> PathBuf {
        self.run().join(format!("node-{name}.pid"))
    }
}

const POINTER: &str = "current";
const CELLS: &str = "cells";
const REACHED_AS: &str = "reached-as";

/// Folders that may hold a pointer to a running cluster, each with the only owner that is believed.
fn pointers(uid: u32) -> Vec<(PathBuf, u32)> {
    let system = (PathBuf::from("/run/squall"), 0);
    if uid == 0 {
        return vec![system];
    }
    let own = [format!("/run/user/{uid}/squall"), format!("/tmp/squall-{uid}")];
    own.into_iter().map(|p| (PathBuf::from(p), uid)).chain([system]).collect()
}

/// A path by which a socket can be bound or connected although `path` may be too long for the kernel:
/// through an open descriptor of its folder, which must be kept for as long as the path is used.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// For the socket at `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let fd = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(fd) })
    }
    /// The path to use.
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, SocketPath};
    use std::path::Path;

    #[test]
    fn long_socket_paths_work() {
        let deep = std::env::temp_dir().join(format!("squall-place-{}", std::process::id())).join("d".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("controller.sock");
        let listener = std::os::unix::net::UnixListener::bind(SocketPath::new(&path).unwrap().as_path()).unwrap();
        std::os::unix::net::UnixStream::connect(SocketPath::new(&path).unwrap().as_path()).unwrap();
        drop(listener);
        std::fs::remove_dir_all(deep.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_is_noted_already_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("squall-reached-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        std::fs::create_dir_all(place.run()).unwrap();
        place.note_reached_as("").unwrap();
        assert_eq!(place.reached_as(), None);
        place.note_reached_as("head").unwrap();
        let inode = || std::fs::metadata(place.run().join(super::REACHED_AS)).unwrap().ino();
        let before = inode();
        place.note_reached_as("head").unwrap();
        assert_eq!((place.reached_as().as_deref(), inode()), (Some("head"), before));
        place.note_reached_as("").unwrap();
        assert_eq!(place.reached_as(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn places_are_absolute() {
        assert!(Place::at(Path::new("x")).unwrap().dir().is_absolute());
    }
}
