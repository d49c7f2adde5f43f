//! The sockets at which the server listens, opened while the process may still do so.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use squall_files::safe_path;
use squall_model::config::Rest;

use crate::secure::Certificate;

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The open sockets of a server, and its certificate.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) unix: Vec<UnixListener>,
    pub(crate) certificate: Option<Certificate>,
}

impl Listeners {
    /// Returns the TCP addresses at which the server listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns the Unix sockets at which the server listens.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.unix.iter().map(AsFd::as_fd)
    }

    /// Whether the server speaks TLS on its TCP addresses.
    pub fn is_secure(&self) -> bool {
        self.certificate.is_some()
    }
}

/// Opens the sockets that the configuration names, and reads the certificate. The error is a text for administrators.
pub fn bind(rest: &Rest) -> Result<Listeners, String> {
    let mut open = Listeners { tcp: Vec::new(), unix: Vec::new(), certificate: None };
    if rest.certificate.is_empty() != rest.certificate_key.is_empty() {
        return Err("[rest] certificate and certificate_key belong together: one is missing".to_owned());
    }
    if !rest.certificate.is_empty() {
        open.certificate = Some(Certificate::read(&rest.certificate, &rest.certificate_key)?);
    }
    for address in rest.addresses() {
        let failed = |e: io::Error| format!("[rest] listen: cannot listen on {address}: {e}");
        match address.strip_prefix("unix:") {
            Some(path) => open.unix.push(unix(Path::new(path)).map_err(failed)?),
            None => open.tcp.push(tcp(address).map_err(failed)?),
        }
    }
    Ok(open)
}

/// Returns a warning about each Unix socket that users may find replaced by another one, since others can lead its path
/// elsewhere.
pub fn exposed_sockets(rest: &Rest) -> Vec<String> {
    let paths = rest.addresses().filter_map(|address| address.strip_prefix("unix:"));
    let warning = |path: &str| {
        let exposed = safe_path::exposure(Path::new(path))?;
        Some(format!(
            "[rest] listen: {exposed}, and so put another socket in the place of {path}: use a folder of root's"
        ))
    };
    paths.filter_map(warning).collect()
}

fn tcp(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => {
                rustix::net::listen(&listener, BACKLOG)?;
                listener.set_nonblocking(true)?;
                return Ok(listener);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Opens a Unix socket, in place of one that a dead server left. Every user may connect: requests are made as the user
/// that the kernel reports. Only this process's user and root may change its folder, which is opened once: whatever a
/// user makes of the path meanwhile, the socket is in it.
fn unix(path: &Path) -> io::Result<UnixListener> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no path of a file"));
    };
    let folder = open_folder(folder)?;
    let exposed = safe_path::exposure(path).is_some();
    let path = if exposed { safe_path::path_of(folder.as_fd()).join(name) } else { path.to_owned() };
    match fs::symlink_metadata(&path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(_) if UnixStream::connect(&path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        Ok(_) => fs::remove_file(&path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Opens the folder of a socket. Refuses one in which others than root and this process's user may create sockets: what
/// they put there would be taken for the server's.
fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())?;
    let (there, own) = (rustix::fs::fstat(&opened)?, rustix::process::geteuid().as_raw());
    if ![0, own].contains(&there.st_uid) || there.st_mode & 0o022 != 0 {
        let problem =
            format!("others may create files in {}: use a folder that only root may change", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    Ok(opened)
}
