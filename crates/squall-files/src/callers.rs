//! Finds out whose processes have the sockets of this machine: the other end of a TCP connection, and what listens at an
//! address. TCP itself does not say; the kernel does when it is asked for a socket (sock_diag(7)).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

/// Number of a request for sockets by their addresses (`SOCK_DIAG_BY_FAMILY`).
const BY_FAMILY: u16 = 20;
/// Flag of a request (`NLM_F_REQUEST`).
const REQUEST: u16 = 1;
/// A connection that stands (`TCP_ESTABLISHED`), and one of which the other end has sent its last byte
/// (`TCP_CLOSE_WAIT`); a socket that listens (`TCP_LISTEN`); all states, as the kernel wants them in a request.
const STANDING: [u8; 2] = [1, 8];
const LISTENING: u8 = 10;
const ALL_STATES: u32 = u32::MAX;
/// A socket's cookie that means any.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// Length of a netlink header, of a request for a socket, and of its answer, bytes.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// A socket for questions to the kernel about other sockets; None: the kernel answers none, so its tables are read.
#[derive(Debug)]
pub struct Callers(Option<OwnedFd>);

/// A TCP socket of this machine that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The user whose process has opened it.
    pub uid: u32,
    /// Its number, as in `socket:[NUMBER]` of `/proc/PID/fd`.
    pub inode: u32,
    state: u8,
}

impl Callers {
    /// Opens a socket for questions. Kernels without `inet_diag` (some containers) answer none about sockets that are
    /// there, so one of this process is asked about first.
    pub fn open() -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG)).ok();
        let answers = socket.as_ref().is_some_and(|socket| {
            let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|own| Ok((own.local_addr()?, own)));
            own.is_ok_and(|(address, _own)| matches!(ask(socket, address, any(address)), Ok(Some(_))))
        });
        Self(socket.filter(|_| answers))
    }

    /// Returns the user id of the process that connected from `peer` to `local`. None: the connection has no such process
    /// on this machine, or no more.
    pub fn uid(&self, local: impl Into<SocketAddr>, peer: impl Into<SocketAddr>) -> io::Result<Option<u32>> {
        // The other end's socket: its own address first.
        let found = self.find(peer.into(), local.into())?;
        Ok(found.filter(|socket| STANDING.contains(&socket.state)).map(|socket| socket.uid))
    }

    /// Returns the socket that gets connections to an address of this machine. None: none listens there.
    pub fn listener(&self, address: SocketAddr) -> io::Result<Option<Socket>> {
        Ok(self.find(address, any(address))?.filter(|socket| socket.state == LISTENING))
    }

    /// Returns the socket with these addresses, its own and the other end's, if a process has it open.
    fn find(&self, own: SocketAddr, other: SocketAddr) -> io::Result<Option<Socket>> {
        let (own, other) = canonical(own, other);
        let found = match &self.0 {
            Some(socket) => ask(socket, own, other)?,
            None => listed(own, other)?,
        };
        // A socket that its process has closed has no inode, and seems to be root's.
        Ok(found.filter(|socket| socket.inode != 0))
    }
}

/// Returns the address that means any, in the family of another.
fn any(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Returns the addresses of both ends as IPv4 ones if the connection is one, which IPv6 sockets may have.
fn canonical(own: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    let v4 = |address: SocketAddr| match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddr::from((ip, address.port()))),
        IpAddr::V6(_) => None,
    };
    v4(own).zip(v4(other)).unwrap_or((own, other))
}

/// Returns what callers from other machines are counted by: their network, `/24` or `/64`. A machine may have all
/// addresses of the latter, and a site some of the former.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() >> 8 << 8).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

fn ask(socket: &OwnedFd, own: SocketAddr, other: SocketAddr) -> io::Result<Option<Socket>> {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut question = Vec::with_capacity(HEADER + QUESTION);
    question.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([family.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    question.extend(ALL_STATES.to_ne_bytes());
    question.extend(own.port().to_be_bytes());
    question.extend(other.port().to_be_bytes());
    for address in [own, other] {
        match address.ip() {
            IpAddr::V4(ip) => {
                question.extend(ip.octets());
                question.extend([0; 12]);
            }
            IpAddr::V6(ip) => question.extend(ip.octets()),
        }
    }
    question.extend([0; 4]);
    question.extend(ANY_COOKIE);
    send(socket, &question, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    read(&answer[..length])
}

/// Returns the socket in the kernel's answer. Err: the kernel can't tell.
fn read(answer: &[u8]) -> io::Result<Option<Socket>> {
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    match kind {
        Some(BY_FAMILY) if answer.len() >= HEADER + ANSWER => {
            let uid_and_inode = word(HEADER + 64).zip(word(HEADER + 68));
            Ok(uid_and_inode.map(|(uid, inode)| Socket { uid, inode, state: answer[HEADER + 1] }))
        }
        // An error: its number follows the header.
        _ if word(HEADER) == Some((-libc::ENOENT) as u32) => Ok(None),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Returns the socket with these addresses as the kernel's tables list it. A socket that listens may do so at any address.
fn listed(own: SocketAddr, other: SocketAddr) -> io::Result<Option<Socket>> {
    let (v4, v6) = (fs::read_to_string("/proc/net/tcp")?, fs::read_to_string("/proc/net/tcp6").unwrap_or_default());
    let mut owns = vec![own];
    if other == any(other) {
        owns.push(SocketAddr::new(any(own).ip(), own.port()));
        owns.push((Ipv6Addr::UNSPECIFIED, own.port()).into());
    }
    Ok(owns.into_iter().find_map(|own| in_table(&v4, own, other).or_else(|| in_table(&v6, mapped(own), mapped(other)))))
}

/// Returns an address as IPv6 sockets have it. Any address is any address there, too.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv6Addr::UNSPECIFIED, v4.port()).into(),
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        SocketAddr::V6(_) => address,
    }
}

/// Returns the socket with these addresses in a table of connections (`/proc/net/tcp`, `/proc/net/tcp6`).
fn in_table(table: &str, own: SocketAddr, other: SocketAddr) -> Option<Socket> {
    let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes(bytes.try_into().unwrap_or_default()));
    let words = |bytes: &[u8]| bytes.chunks(4).map(word).collect::<Vec<_>>().concat();
    let shown = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => format!("{}:{:04X}", words(&v4.ip().octets()), v4.port()),
        SocketAddr::V6(v6) => format!("{}:{:04X}", words(&v6.ip().octets()), v6.port()),
    };
    let (mine, theirs) = (shown(own), shown(other));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, from, to, state, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        let state = u8::from_str_radix(state, 16).ok()?;
        (from == mine && to == theirs)
            .then(|| Some(Socket { uid: uid.parse().ok()?, inode: inode.parse().ok()?, state }))?
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

    use super::{Callers, network_of};

    #[test]
    fn the_user_of_the_other_end_is_known_until_it_closes() -> Result<(), Box<dyn Error>> {
        let own = Some(rustix::process::geteuid().as_raw());
        // The server's address, and the one by which it is called.
        for (bound, called) in [("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("::1", "::1")] {
            let Ok(listener) = TcpListener::bind((bound, 0)) else { continue };
            let caller = TcpStream::connect((called, listener.local_addr()?.port()))?;
            let (here, peer) = listener.accept()?;
            let local = here.local_addr()?;
            let callers = Callers::open();
            assert_eq!(callers.uid(local, peer)?, own, "{bound}");
            assert_eq!(Callers(None).uid(local, peer)?, own, "{bound}, from the table");
            drop(caller);
            assert_eq!(callers.uid(local, peer)?, None, "a closed socket is not root's");
            assert_eq!(Callers(None).uid(local, peer)?, None);
        }
        let far: SocketAddr = "192.0.2.1:4".parse()?;
        assert_eq!(Callers::open().uid("192.0.2.2:5".parse::<SocketAddr>()?, far)?, None, "of another machine");
        Ok(())
    }

    #[test]
    fn what_listens_at_an_address_is_known() -> Result<(), Box<dyn Error>> {
        let own = rustix::process::geteuid().as_raw();
        for (bound, asked) in
            [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "::1")]
        {
            let Ok(listener) = TcpListener::bind((bound, 0)) else { continue };
            let address = SocketAddr::new(asked.parse()?, listener.local_addr()?.port());
            let found = Callers::open().listener(address)?.ok_or(bound)?;
            assert_eq!(found.uid, own, "{bound}");
            let named = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&listener)))?;
            assert_eq!(named.to_str(), Some(&*format!("socket:[{}]", found.inode)), "{bound}");
            assert_eq!(Callers(None).listener(address)?, Some(found), "{bound}, from the table");
            drop(listener);
            assert_eq!(Callers::open().listener(address)?, None);
            assert_eq!(Callers(None).listener(address)?, None);
        }
        Ok(())
    }

    #[test]
    fn callers_are_counted_by_networks() {
        let network = |text: &str| text.parse::<IpAddr>().map(network_of).map(|ip| ip.to_string());
        for (address, expected) in
            [("10.1.2.3", "10.1.2.0"), ("::ffff:10.1.2.9", "10.1.2.0"), ("2001:db8:0:7:1:2:3:4", "2001:db8:0:7::")]
        {
            assert_eq!(network(address).as_deref(), Ok(expected), "{address}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_no_answer() {
        for length in 0..super::HEADER + super::ANSWER {
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&super::BY_FAMILY.to_ne_bytes());
            }
            assert!(super::read(&answer).is_err(), "{length}");
        }
    }
}
