//! Finds out which user's process is at the other end of a connection within this machine (127.0.0.1). TCP itself
//! does not say; the kernel does when it is asked for the other end's socket (sock_diag(7)).

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

/// Number of a request for sockets by their addresses (`SOCK_DIAG_BY_FAMILY`).
const BY_FAMILY: u16 = 20;
/// Flag of a request (`NLM_F_REQUEST`).
const REQUEST: u16 = 1;
/// A connection that stands (`TCP_ESTABLISHED`), and one of which the other end has sent its last byte
/// (`TCP_CLOSE_WAIT`); all states, as the kernel wants them in a request.
const STANDING: [u8; 2] = [1, 8];
const ALL_STATES: u32 = u32::MAX;
/// A socket's cookie that means any.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// Length of a netlink header, of a request for a socket, and of its answer, bytes.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// A socket for questions to the kernel about other sockets; None: the kernel answers none, so its table is read.
#[derive(Debug)]
pub struct Callers(Option<OwnedFd>);

impl Callers {
    /// Opens a socket for questions.
    pub fn open() -> Self {
        let flags = SocketFlags::CLOEXEC;
        Self(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG)).ok())
    }

    /// Returns the user id of the process that connected from `peer` to `local`, both on this machine. None: the
    /// connection has no such process any more.
    pub fn uid(&self, local: SocketAddrV4, peer: SocketAddrV4) -> io::Result<Option<u32>> {
        match self.0.as_ref().map(|socket| ask(socket, local, peer)) {
            Some(Ok(uid)) => Ok(uid),
            // Kernels without `inet_diag` (some containers).
            Some(Err(_)) | None => Ok(listed(&fs::read_to_string("/proc/net/tcp")?, local, peer)),
        }
    }
}

fn ask(socket: &OwnedFd, local: SocketAddrV4, peer: SocketAddrV4) -> io::Result<Option<u32>> {
    let mut question = Vec::with_capacity(HEADER + QUESTION);
    question.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([AddressFamily::INET.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    question.extend(ALL_STATES.to_ne_bytes());
    // The other end's socket: its own address first.
    question.extend(peer.port().to_be_bytes());
    question.extend(local.port().to_be_bytes());
    for address in [peer, local] {
        question.extend(address.ip().octets());
        question.extend([0; 12]);
    }
    question.extend([0; 4]);
    question.extend(ANY_COOKIE);
    send(socket, &question, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    read(&answer[..length])
}

/// Returns the user id in the kernel's answer. Err: the kernel can't tell.
fn read(answer: &[u8]) -> io::Result<Option<u32>> {
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    match kind {
        Some(BY_FAMILY) if answer.len() >= HEADER + ANSWER => {
            let standing = STANDING.contains(&answer[HEADER + 1]);
            let (uid, inode) = (word(HEADER + 64), word(HEADER + 68));
            // A socket that its process has closed has no inode, and seems to be root's.
            Ok(uid.filter(|_| standing && inode.is_some_and(|inode| inode != 0)))
        }
        // An error: its number follows the header.
        _ if word(HEADER) == Some((-libc::ENOENT) as u32) => Err(io::ErrorKind::NotFound.into()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Returns the user id that the kernel's table of connections (`/proc/net/tcp`) has for the other end.
fn listed(table: &str, local: SocketAddrV4, peer: SocketAddrV4) -> Option<u32> {
    let shown =
        |address: SocketAddrV4| format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let (mine, other) = (shown(peer), shown(local));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, from, to, state, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        let standing = u8::from_str_radix(state, 16).is_ok_and(|state| STANDING.contains(&state));
        (from == mine && to == other && standing && inode != "0").then(|| uid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
    use std::{fs, io};

    use super::{Callers, listed};

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        let SocketAddr::V4(address) = address else { unreachable!("bound to an IPv4 address") };
        address
    }

    #[test]
    fn the_user_of_the_other_end_is_known_until_it_closes() -> Result<(), Box<dyn Error>> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let caller = TcpStream::connect(listener.local_addr()?)?;
        let (here, peer) = listener.accept()?;
        let (local, peer) = (v4(here.local_addr()?), v4(peer));
        let own = Some(rustix::process::geteuid().as_raw());
        let callers = Callers::open();
        assert_eq!(callers.uid(local, peer)?, own);
        assert_eq!(Callers(None).uid(local, peer)?, own, "from the table");
        drop(caller);
        assert_eq!(callers.uid(local, peer)?, None, "a closed socket is not root's");
        assert_eq!(listed(&fs::read_to_string("/proc/net/tcp")?, local, peer), None);
        Ok(())
    }

    #[test]
    fn an_answer_that_is_cut_off_is_no_answer() {
        for length in 0..super::HEADER + super::ANSWER {
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&super::BY_FAMILY.to_ne_bytes());
            }
            let read: io::Result<Option<u32>> = super::read(&answer);
            assert!(read.is_err(), "{length}");
        }
    }
}
