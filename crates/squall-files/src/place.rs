//! Where a cluster's files are, and how commands find the cluster without any environment variable.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::durable;
use crate::users;

/// The environment variable that names the cluster's state folder.
pub const STATE_VARIABLE: &str = "SQUALL_STATE";
/// Name of the variable in each task's environment that holds the absolute path of its step's spool folder:
/// how processes that hid from cgroup, session and parent are found.
pub const TASK_MARK: &str = "SQUALL_STEP";

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

    /// Finds the cluster that commands talk to: the one that `SQUALL_STATE` names, otherwise the one in the caller's
    /// default place, otherwise the one in root's. No command starts or ends a cluster elsewhere and changes this. None:
    /// no cluster is in these places.
    pub fn find() -> Option<Self> {
        if let Some(dir) = std::env::var_os(STATE_VARIABLE).filter(|d| !d.is_empty()) {
            return Self::at(Path::new(&dir)).ok();
        }
        let own = Self::default_of(rustix::process::getuid().as_raw());
        let machine = Self { dir: PathBuf::from(MACHINE) };
        own.into_iter().chain([machine]).find(|place| place.controller_socket().exists())
    }

    /// The default place of a user's cluster: the machine's for root, a folder in the home of others, and one in /tmp for
    /// users without a home. None: somebody else has made that folder in /tmp.
    pub fn default_of(uid: u32) -> Option<Self> {
        if uid == 0 {
            return Some(Self { dir: PathBuf::from(MACHINE) });
        }
        let owned = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.is_dir() && meta.uid() == uid);
        let home = users::by_uid(uid).map(|user| PathBuf::from(user.home));
        if let Some(home) = home.filter(|home| fs::metadata(home).is_ok_and(|m| m.is_dir() && m.uid() == uid)) {
            return Some(Self { dir: home.join(".local/state/squall") });
        }
        let own = PathBuf::from(format!("/tmp/squall-{uid}"));
        owned(&own).unwrap_or(true).then(|| Self { dir: own.join("state") })
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
    /// The log of a daemon: `controller`, `front`, `node-NAME` or `rack-FIRST`.
    pub fn log_of(&self, daemon: &str) -> PathBuf {
        self.log().join(format!("{daemon}.log"))
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
    pub fn clock(&self) -> PathBuf {
        self.dir.join("clock")
    }
    /// The spool of a node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.dir.join("node").join(name)
    }
    /// The folders of a node's steps.
    pub fn steps(&self, name: &str) -> PathBuf {
        self.node(name).join(STEPS)
    }
    /// The cluster in whose spool this folder of a step is. None: it is in none.
    pub fn of_step(step: &Path) -> Option<Self> {
        // DIR/node/NAME/steps/STEP
        let dir = step.ancestors().nth(4)?;
        Self::at(dir).ok().filter(|place| place.run().is_dir())
    }
    /// Keys: of the controller, of nodes, and of the cluster that this machine has joined.
    pub fn keys(&self) -> PathBuf {
        self.dir.join("keys")
    }
    /// What a machine that has joined a cluster knows of it.
    pub fn joined(&self) -> PathBuf {
        self.keys().join("joined")
    }
    /// The names of nodes for jobs, laid over /etc/hosts.
    pub fn hosts(&self) -> PathBuf {
        self.run().join("hosts")
    }
    /// Locked by the controller that uses the folder.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }
    /// Says to which cluster the folder belongs, and in which format it is.
    pub fn mark(&self) -> PathBuf {
        self.dir.join("cluster")
    }
    /// Files that nodes on this machine share.
    pub fn content(&self) -> PathBuf {
        self.dir.join(CONTENT)
    }
    /// Files that a node keeps.
    pub fn content_of(&self, name: &str) -> PathBuf {
        self.node(name).join(CONTENT)
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
    #[must_use]
    pub fn for_jobs(&self) -> Self {
        let folder = self.dir.parent().filter(|folder| folder.ends_with(CELLS));
        let front = folder.and_then(Path::parent).map(|dir| Self { dir: dir.to_owned() });
        front.filter(|front| front.run().is_dir()).unwrap_or_else(|| self.clone())
    }
    /// The process id of the daemon of some emulated nodes, by the first one's number.
    pub fn rack_pid(&self, first: impl Display) -> PathBuf {
        self.run().join(format!("rack-{first}.pid"))
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
    pub fn note_reached_as(&self, host: &str) -> io::Result<()> {
        if self.reached_as().unwrap_or_default() == host {
            return Ok(());
        }
        let path = self.run().join(REACHED_AS);
        if host.is_empty() {
            return fs::remove_file(path);
        }
        durable::write(&path, format!("{host}\n").as_bytes(), 0o644)
    }
    /// A node daemon's process id.
    pub fn node_pid(&self, name: &str) -> PathBuf {
        self.run().join(format!("node-{name}.pid"))
    }
}

/// Where root's cluster is by default: the one of the whole machine.
const MACHINE: &str = "/var/lib/squall";
const CELLS: &str = "cells";
/// In a node's folder: the files that it keeps.
pub const CONTENT: &str = "content";
/// In a node's folder: the folders of its steps.
pub const STEPS: &str = "steps";
const REACHED_AS: &str = "reached-as";

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
