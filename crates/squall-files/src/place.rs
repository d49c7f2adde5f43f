//! Paths of a cluster's files, and how commands find the cluster without any environment variable.

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

/// Name of the environment variable that holds the cluster's state folder.
pub const STATE_VARIABLE: &str = "SQUALL_STATE";
/// Name of the variable in each task's environment that holds the absolute path of its step's spool folder. By it
/// processes are found that have left their cgroup, session and parent.
pub const TASK_MARK: &str = "SQUALL_STEP";

/// Names of all files that configure a cluster, in the folder of [`Place::config`]: of Squall, of its devices, and of its
/// topology.
pub const CONFIG_FILES: [&str; 4] = ["squall.toml", "gres.conf", "topology.yaml", "topology.conf"];

/// Longest path of a Unix socket that the kernel accepts, bytes.
const SOCKET_PATH_MAX: usize = 107;

/// The state folder of one cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// Returns the cluster with the state folder `dir`, which is made absolute.
    pub fn at(dir: &Path) -> io::Result<Self> {
        Ok(Self { dir: std::path::absolute(dir)? })
    }

    /// Returns the cluster that commands use: the one that `SQUALL_STATE` names, otherwise the one in the caller's
    /// default folder, otherwise the one in root's. A cluster elsewhere has no influence on this. None: no cluster is
    /// in these places.
    pub fn find() -> Option<Self> {
        if let Some(dir) = std::env::var_os(STATE_VARIABLE).filter(|d| !d.is_empty()) {
            return Self::at(Path::new(&dir)).ok();
        }
        let own = Self::default_of(rustix::process::getuid().as_raw());
        let machine = Self { dir: PathBuf::from(MACHINE) };
        own.into_iter()
            .chain([machine])
            .find(|place| place.controller_socket().exists() || place.head_socket().exists())
    }

    /// Returns the default place of a user's cluster: the machine's for root, a folder in the home of others, and one
    /// in /tmp for users without a home. None: that folder in /tmp belongs to another user.
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

    /// Returns the cluster with the current directory as its state folder, by relative paths: for a process that may
    /// not pass through the folders above it.
    pub fn current() -> Self {
        Self { dir: PathBuf::new() }
    }

    /// Returns the path of the state folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Returns the path of the folder of sockets and pid files.
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }
    /// Returns the path of the folder of the daemons' logs.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
    /// Returns the path of the log file of a daemon: `controller`, `front`, `login`, `node-NAME` or `rack-FIRST`.
    pub fn log_of(&self, daemon: &str) -> PathBuf {
        self.log().join(format!("{daemon}.log"))
    }
    /// Returns the path of the folder of journal and snapshots.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }
    /// Returns the path of the accounting database.
    pub fn accounts(&self) -> PathBuf {
        self.dir.join("accounts.db")
    }
    /// Returns the path of the copy of accounting that other programs read. Its folder has nothing else.
    pub fn records(&self) -> PathBuf {
        self.dir.join("records").join("records.db")
    }
    /// Returns the path of the configuration file in use.
    pub fn config(&self) -> PathBuf {
        self.dir.join("squall.toml")
    }
    /// Returns the path of the file that lists generic resources, which may be missing.
    pub fn devices(&self) -> PathBuf {
        self.dir.join(CONFIG_FILES[1])
    }
    /// Returns the path of the controller's clock state.
    pub fn clock(&self) -> PathBuf {
        self.dir.join("clock")
    }
    /// Returns the path of the spool folder of a node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.dir.join("node").join(name)
    }
    /// Returns the path of the folder with the folders of a node's steps.
    pub fn steps(&self, name: &str) -> PathBuf {
        self.node(name).join(STEPS)
    }
    /// Returns the cluster that has this folder of a step in its spool. None: no cluster has it.
    pub fn of_step(step: &Path) -> Option<Self> {
        // DIR/node/NAME/steps/STEP
        let dir = step.ancestors().nth(4)?;
        Self::at(dir).ok().filter(|place| place.run().is_dir())
    }
    /// Returns the path of the folder of keys: of the controller, other machines, and the cluster that this machine has
    /// joined.
    pub fn keys(&self) -> PathBuf {
        self.dir.join("keys")
    }
    /// Returns the path of the file about the cluster that this machine has joined.
    pub fn joined(&self) -> PathBuf {
        self.keys().join("joined")
    }
    /// Returns the path of the file with the names of nodes for jobs, mounted over /etc/hosts.
    pub fn hosts(&self) -> PathBuf {
        self.run().join("hosts")
    }
    /// Returns the path of the lock file of the controller that uses the state folder.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }
    /// Returns the path of the file that names the cluster of this state folder, and the folder's format.
    pub fn mark(&self) -> PathBuf {
        self.dir.join("cluster")
    }
    /// Returns the path of the file that marks a state restored from a backup, until its controller has started.
    pub fn restored(&self) -> PathBuf {
        self.dir.join("restored")
    }
    /// Returns the path of the folder with a restored state of which not all files are in their places yet.
    pub fn restoring(&self) -> PathBuf {
        self.dir.join("restoring")
    }
    /// Returns the path of the file with the builds that have served the cluster here.
    pub fn builds(&self) -> PathBuf {
        self.dir.join("builds")
    }
    /// Returns the path of the folder of files that nodes on this machine share.
    pub fn content(&self) -> PathBuf {
        self.dir.join(CONTENT)
    }
    /// Returns the path of the folder of files that a node keeps.
    pub fn content_of(&self, name: &str) -> PathBuf {
        self.node(name).join(CONTENT)
    }
    /// Returns the name of the controller that this state folder is for, in a cluster that has several. None: it is the
    /// one with the host's name.
    pub fn controller_name(&self) -> Option<String> {
        let name = fs::read_to_string(self.dir.join(CONTROLLER_NAME)).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }
    /// Records the name of the controller that this state folder is for.
    pub fn note_controller_name(&self, name: &str) -> io::Result<()> {
        if self.controller_name().as_deref() == Some(name) {
            return Ok(());
        }
        durable::write(&self.dir.join(CONTROLLER_NAME), format!("{name}\n").as_bytes(), 0o644)
    }
    /// Returns the path of the folder with the state folders of cells, in a cluster that has some.
    pub fn cells_folder(&self) -> PathBuf {
        self.dir.join(CELLS)
    }
    /// Returns the cells of this cluster, by number; empty if it has none.
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
    /// Returns the cluster that commands of jobs on this machine use: the front if this is a cell of one, otherwise
    /// the cluster itself.
    #[must_use]
    pub fn for_jobs(&self) -> Self {
        let folder = self.dir.parent().filter(|folder| folder.ends_with(CELLS));
        let front = folder.and_then(Path::parent).map(|dir| Self { dir: dir.to_owned() });
        front.filter(|front| front.run().is_dir()).unwrap_or_else(|| self.clone())
    }
    /// Returns the path of the pid file of a rack's daemon, which runs several emulated nodes. `first`: number of its
    /// first node.
    pub fn rack_pid(&self, first: impl Display) -> PathBuf {
        self.run().join(format!("rack-{first}.pid"))
    }
    /// Returns the path of the HTTP server's pid file.
    pub fn rest_pid(&self) -> PathBuf {
        self.run().join("rest.pid")
    }
    /// Returns the path of the file by which the controller knows the HTTP server.
    pub fn rest_key(&self) -> PathBuf {
        self.run().join("rest.key")
    }
    /// Returns the path of the lock of the command that starts daemons.
    pub fn up_lock(&self) -> PathBuf {
        self.run().join("up.lock")
    }
    /// Returns the path of the file that changes with each `squall down`.
    pub fn downs(&self) -> PathBuf {
        self.run().join("downs")
    }
    /// Returns the path of the pid file of the process that sends mail.
    pub fn mail_pid(&self) -> PathBuf {
        self.run().join("mail.pid")
    }
    /// Returns the path of the pid file of the login daemon, of a login host or a head.
    pub fn login_pid(&self) -> PathBuf {
        self.run().join("login.pid")
    }
    /// Returns the path of the front's pid file.
    pub fn front_pid(&self) -> PathBuf {
        self.run().join("front.pid")
    }
    /// Returns the path of the pid file of the supervisor of `squall up --keep`.
    pub fn supervisor_pid(&self) -> PathBuf {
        self.run().join("supervisor.pid")
    }
    /// Returns the path of the socket on which the controller listens, or the front if there are cells.
    pub fn controller_socket(&self) -> PathBuf {
        self.run().join("controller.sock")
    }
    /// Returns the path of the socket on which the login daemon of one of several heads listens: commands go there while
    /// the controller of the head is away.
    pub fn head_socket(&self) -> PathBuf {
        self.run().join("head.sock")
    }
    /// Returns the path of the file with the digest of the shared files of `keys/` that all of several controllers have.
    pub fn keys_shared(&self) -> PathBuf {
        self.run().join("keys-shared")
    }
    /// Returns the path of the controller's pid file.
    pub fn controller_pid(&self) -> PathBuf {
        self.run().join("controller.pid")
    }
    /// Returns the path of the socket on which a node daemon listens for its children in the tree.
    pub fn node_socket(&self, name: &str) -> PathBuf {
        self.run().join(format!("node-{name}.sock"))
    }
    /// Returns the path of the socket on which a node daemon is asked about users who log in on its machine.
    pub fn login_socket(&self, node: &str) -> PathBuf {
        self.run().join(format!("login-{node}.sock"))
    }
    /// Returns the host name or address by which other machines of the cluster reach this one; None: none is
    /// recorded.
    pub fn reached_as(&self) -> Option<String> {
        let host = fs::read_to_string(self.run().join(REACHED_AS)).ok()?;
        Some(host.trim_end().to_owned()).filter(|host| !host.is_empty())
    }
    /// Records the host name or address by which other machines reach this one, for commands of all users. Empty:
    /// they can't.
    pub fn note_reached_as(&self, host: &str) -> io::Result<()> {
        self.note(REACHED_AS, host)
    }
    /// Returns the path of the file that lists SPANK plugins, as the configuration names it. None: it names none.
    pub fn plugins_of(&self, plugstack: &str) -> Option<PathBuf> {
        (!plugstack.is_empty()).then(|| self.dir.join(plugstack))
    }
    /// Returns the path of the file that lists SPANK plugins, for commands of all users. None: the cluster has none.
    pub fn plugins(&self) -> Option<PathBuf> {
        self.plugins_of(fs::read_to_string(self.run().join(PLUGINS)).ok()?.trim_end())
    }
    /// Records which file lists SPANK plugins, as the configuration names it, for commands of all users.
    pub fn note_plugins(&self, plugstack: &str) -> io::Result<()> {
        self.note(PLUGINS, plugstack)
    }
    /// Returns what the configuration says of `srun`, as its writer has written it. None: nothing.
    pub fn srun(&self) -> Option<String> {
        fs::read_to_string(self.run().join(SRUN)).ok()
    }
    /// Records what the configuration says of `srun`, for commands of all users. Empty: nothing.
    pub fn note_srun(&self, text: &str) -> io::Result<()> {
        self.note(SRUN, text)
    }
    /// Returns the name of Slurm's release that commands show. None: the default.
    pub fn release(&self) -> Option<String> {
        Some(fs::read_to_string(self.run().join(RELEASE)).ok()?.trim_end().to_owned())
    }
    /// Records the name of Slurm's release that commands of all users show. Empty: the default.
    pub fn note_release(&self, name: &str) -> io::Result<()> {
        self.note(RELEASE, name)
    }
    /// Records a text for commands of all users. Empty: there is none. Needs no room on the disk unless it has changed.
    fn note(&self, file: &str, text: &str) -> io::Result<()> {
        let path = self.run().join(file);
        if fs::read_to_string(&path).unwrap_or_default().trim_end() == text {
            return Ok(());
        }
        if text.is_empty() {
            return fs::remove_file(path);
        }
        durable::write(&path, format!("{text}\n").as_bytes(), 0o644)
    }
    /// Returns the path of a node daemon's pid file.
    pub fn node_pid(&self, name: &str) -> PathBuf {
        self.run().join(format!("node-{name}.pid"))
    }
}

/// State folder of root's cluster by default: the one of the whole machine.
const MACHINE: &str = "/var/lib/squall";
const CELLS: &str = "cells";
/// Name of the file with the controller's name.
const CONTROLLER_NAME: &str = "controller-name";
/// Name of the folder of files in a node's folder.
pub const CONTENT: &str = "content";
/// Name of the folder of steps in a node's folder.
pub const STEPS: &str = "steps";
const REACHED_AS: &str = "reached-as";
/// Name of the file with what the configuration says of `srun`.
const SRUN: &str = "srun-settings";
const PLUGINS: &str = "plugins";
const RELEASE: &str = "release";

/// Path by which a socket can be bound or connected although its own path may be too long for the kernel. It leads
/// through an open descriptor of the socket's folder, so this must be kept as long as the path is used.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// Makes the path for the socket at `path`.
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
    /// Returns the path by which to bind or connect the socket.
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
        place.note_plugins("").unwrap();
        assert_eq!(place.plugins(), None);
        place.note_plugins("plugstack.conf").unwrap();
        assert_eq!(place.plugins(), Some(place.dir().join("plugstack.conf")));
        place.note_plugins("/etc/slurm/plugstack.conf").unwrap();
        assert_eq!(place.plugins(), Some("/etc/slurm/plugstack.conf".into()));
        place.note_plugins("").unwrap();
        assert_eq!(place.plugins(), None);
        place.note_release("25.11").unwrap();
        assert_eq!(place.release().as_deref(), Some("25.11"));
        place.note_release("").unwrap();
        assert_eq!(place.release(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn places_are_absolute() {
        assert!(Place::at(Path::new("x")).unwrap().dir().is_absolute());
    }
}
