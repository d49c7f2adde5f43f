//! What listens at the addresses of the HTTP server: this cluster's server, nothing, or somebody else's process.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use squall_files::callers::{Callers, Socket};
use squall_files::place::Place;
use squall_files::users;
use squall_model::config::Rest;

use crate::life::Daemon;
use crate::processes;
use crate::sys::peer::peer_of;

/// Asks the kernel what listens at the addresses of a cluster's HTTP server.
#[derive(Debug)]
pub struct Listening<'a> {
    place: &'a Place,
    rest: &'a Rest,
    callers: Callers,
    /// Owner of the state folder.
    owner: u32,
    /// Whether this process may see which process the server is.
    sees: bool,
}

impl<'a> Listening<'a> {
    /// Returns the addresses of the HTTP server of this cluster.
    pub fn of(place: &'a Place, rest: &'a Rest) -> Self {
        let owner = std::fs::metadata(place.dir()).map_or(0, |meta| meta.uid());
        let own = rustix::process::geteuid().as_raw();
        Self { place, rest, callers: Callers::open(), owner, sees: own == 0 || own == owner }
    }

    /// Returns why the cluster's HTTP server can't be reached at one of its addresses. None: it listens at all of them.
    pub fn fault(&self) -> Option<String> {
        let pid = if self.sees { Daemon::Rest.pid(self.place) } else { None };
        if self.sees && pid.is_none() {
            return self.foreign().or_else(|| Some("the HTTP server does not run".to_owned()));
        }
        self.rest.addresses().find_map(|address| self.fault_at(address, pid))
    }

    /// Returns which process has taken one of the addresses. None: none has.
    pub fn foreign(&self) -> Option<String> {
        let pid = if self.sees { Daemon::Rest.pid(self.place) } else { None };
        let taken = |address: SocketAddr| {
            let socket = self.callers.listener(address).ok().flatten().filter(|socket| !self.is_own(socket, pid))?;
            Some(in_use(address.port(), &socket))
        };
        let all = self.rest.addresses().filter(|address| !address.starts_with("unix:"));
        all.filter_map(|address| address.to_socket_addrs().ok()).flatten().find_map(taken)
    }

    fn fault_at(&self, address: &str, pid: Option<i32>) -> Option<String> {
        if let Some(path) = address.strip_prefix("unix:") {
            let peer = UnixStream::connect(path).and_then(|stream| peer_of(&stream));
            return match peer {
                Ok(peer) if pid.is_some_and(|pid| peer.pid.map(u32::cast_signed) == Some(pid)) => None,
                Ok(peer) if pid.is_none() && self.is_trusted(peer.uid) => None,
                Ok(peer) => Some(format!("{path} is the socket of {}", named(None, peer.uid))),
                Err(e) => Some(format!("{path}: {e}")),
            };
        }
        let addresses: Vec<SocketAddr> = match address.to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(e) => return Some(format!("{address}: {e}")),
        };
        let found: Vec<_> = addresses.iter().filter_map(|at| self.callers.listener(*at).ok().flatten()).collect();
        if found.iter().any(|socket| self.is_own(socket, pid)) {
            return None;
        }
        let port = addresses.first().map_or(0, SocketAddr::port);
        Some(found.first().map_or_else(|| format!("nothing listens on port {port}"), |socket| in_use(port, socket)))
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner
    }

    /// Whether a socket is the server's. Who may not see which process has it goes by the user who has opened it: that
    /// is the cluster's owner, and nobody else can be.
    fn is_own(&self, socket: &Socket, pid: Option<i32>) -> bool {
        let of_server =
            || pid.is_some_and(|pid| processes::has_socket(pid.unsigned_abs(), socket.inode) != Some(false));
        self.is_trusted(socket.uid) && (!self.sees || of_server())
    }
}

fn in_use(port: u16, socket: &Socket) -> String {
    format!("port {port} is in use by {}", named(processes::with_socket(socket.inode), socket.uid))
}

/// Names a process and its user: `4711 (bob)`.
fn named(pid: Option<u32>, uid: u32) -> String {
    let user = users::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    pid.map_or_else(|| format!("a process of {user}"), |pid| format!("{pid} ({user})"))
}
