//! TCP ports that a job needs when it is restored, and connections of killed processes that the kernel keeps on them.
//!
//! When two connected processes are killed, the kernel keeps the connection for a minute at the end that closed first
//! (TIME-WAIT). Meanwhile nothing can listen on the port of that end, so a server that was killed with its clients could
//! not be restored. Such a connection belongs to no process any more, and is removed. If the other end's machine has died,
//! the kernel keeps the connection for minutes, as nothing is acknowledged (FIN-WAIT-1). Kernels before 6.11 do not remove
//! such ones, so all are removed before their processes are killed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

use super::surroundings::{Row, TABLES, sockets};

/// States of connections of which this end is closed, as the kernel shows them: FIN-WAIT-1, FIN-WAIT-2, TIME-WAIT, LAST-ACK,
/// CLOSING.
const CLOSED: [&str; 5] = ["04", "05", "06", "09", "0B"];
/// State of an open connection, as the kernel shows it.
const ESTABLISHED: &str = "01";
/// Longest time for which the kernel keeps a connection in TIME-WAIT, and some more.
const PATIENCE: Duration = Duration::from_secs(61);
/// Pause between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the TCP ports of processes.
pub(super) fn ports_of(members: &[u32]) -> Vec<u16> {
    let owners = sockets(members);
    let Some(first) = members.first().filter(|_| !owners.is_empty()) else { return Vec::new() };
    let mut ports = BTreeSet::new();
    for table in TABLES {
        let text = fs::read_to_string(format!("/proc/{first}/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).filter_map(Row::of).filter(|row| owners.contains_key(&row.inode));
        ports.extend(rows.filter_map(|row| Some(row.own()?.port())));
    }
    ports.into_iter().collect()
}

/// Removes closed connections that keep these ports. Waits for those that it can't remove, but not longer than the kernel
/// keeps them.
pub(super) fn free(ports: &[u16]) {
    if ports.is_empty() {
        return;
    }
    let until = Instant::now() + PATIENCE;
    let mut link = kernel();
    loop {
        for (own, other) in closed(ports) {
            // What the kernel can't remove is waited for.
            if let Ok(link) = &mut link {
                drop(remove(link, own, other));
            }
        }
        if closed(ports).is_empty() || Instant::now() > until {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Removes the connections of processes to others: of processes that are about to be killed.
pub(super) fn abort(members: &[u32]) {
    let owners = sockets(members);
    let (Some(first), Ok(mut link)) = (members.first().filter(|_| !owners.is_empty()), kernel()) else { return };
    for table in TABLES {
        let text = fs::read_to_string(format!("/proc/{first}/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).filter_map(Row::of);
        let rows = rows.filter(|row| row.state == ESTABLISHED && owners.contains_key(&row.inode));
        for (own, other) in rows.filter_map(|row| Some((row.own()?, row.other()?))) {
            // What the kernel can't remove it closes as usual.
            drop(remove(&mut link, own, other));
        }
    }
}

/// Opens a socket to the kernel, for [`remove`].
fn kernel() -> io::Result<File> {
    let flags = SocketFlags::CLOEXEC;
    Ok(File::from(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?))
}

/// Returns the closed connections that keep ports.
fn closed(ports: &[u16]) -> Vec<(SocketAddr, SocketAddr)> {
    let mut found = Vec::new();
    for table in TABLES {
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        // Only what no process has is without a number.
        let rows = text.lines().skip(1).filter_map(Row::of).filter(|row| row.inode == 0 && CLOSED.contains(&row.state));
        let rows = rows.filter_map(|row| Some((row.own()?, row.other()?)));
        found.extend(rows.filter(|(own, _)| ports.contains(&own.port())));
    }
    found
}

/// Has the kernel remove a connection (`SOCK_DESTROY`). `link`: a socket to the kernel.
fn remove(link: &mut File, own: SocketAddr, other: SocketAddr) -> io::Result<()> {
    link.write_all(&removal(own, other))?;
    let mut answer = [0; 256];
    let length = link.read(&mut answer)?;
    // A header of 16 bytes, and then the error.
    let error = answer[..length].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the request to remove a connection: `struct nlmsghdr`, and then `struct inet_diag_req_v2`.
fn removal(own: SocketAddr, other: SocketAddr) -> Vec<u8> {
    const SOCK_DESTROY: u16 = 21;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const TCP: u8 = 6;
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut body = vec![family.as_raw() as u8, TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(own.port().to_be_bytes());
    body.extend(other.port().to_be_bytes());
    for end in [own, other] {
        let mut address = match end.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        address.resize(16, 0);
        body.extend(address);
    }
    // Any interface, and no cookie.
    body.extend(0_u32.to_ne_bytes());
    body.extend([0xff; 8]);
    let mut request = Vec::new();
    request.extend((16 + body.len() as u32).to_ne_bytes());
    request.extend(SOCK_DESTROY.to_ne_bytes());
    request.extend(REQUEST_AND_ACK.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    request
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, accept, bind, getsockname, listen, socket_with};

    use super::{closed, free, ports_of};
    use crate::stepd::surroundings::CONNECTIONS;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Returns a socket that listens without SO_REUSEADDR, which std sets. None: the port is taken.
    fn server(at: SocketAddr) -> Option<OwnedFd> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &at).ok()?;
        listen(&socket, 1).unwrap();
        Some(socket)
    }

    #[test]
    fn a_port_that_only_a_closed_connection_keeps_becomes_free() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: this needs root");
        }
        let _alone = CONNECTIONS.lock();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Some(listening) = server(any.parse().unwrap()) else {
                eprintln!("skipped: no {any}");
                continue;
            };
            let at = SocketAddr::try_from(getsockname(&listening).unwrap()).unwrap();
            let client = TcpStream::connect(at).unwrap();
            let accepted = accept(&listening).unwrap();
            assert!(ports_of(&[std::process::id()]).contains(&at.port()));
            // The server closes first, and so keeps the connection.
            drop((accepted, listening));
            drop(client);
            // A program that another test just starts may have them for a moment, and the kernel is not done at once.
            let until = Instant::now() + PATIENCE;
            while closed(&[at.port()]).is_empty() || server(at).is_some() {
                assert!(Instant::now() < until, "{:?}", closed(&[at.port()]));
                std::thread::sleep(Duration::from_millis(5));
            }
            free(&[at.port()]);
            assert!(closed(&[at.port()]).is_empty() && server(at).is_some());
        }
    }
}
