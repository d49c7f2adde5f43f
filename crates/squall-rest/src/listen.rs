//! The sockets at which the server listens, opened while the process may still do so.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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
/// that the kernel reports.
fn unix(path: &Path) -> io::Result<UnixListener> {
    check_folder(path)?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Refuses a folder in which others than root and this process's user may create sockets, since the controller trusts
/// the path.
fn check_folder(path: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let there = fs::metadata(&folder)?;
    if ![0, own].contains(&there.uid()) || there.mode() & 0o022 != 0 {
        let problem =
            format!("others may create files in {}: use a folder that only root may change", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    Ok(())
}
