//! Where the connections of a job's processes lead. CRIU dumps and restores them wherever that is, although the other end
//! knows nothing of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// States of TCP sockets that are not connected, as the kernel shows them: CLOSE, LISTEN.
const UNCONNECTED: [&str; 2] = ["07", "0A"];

/// Ends of a TCP connection as the kernel shows them, in its own notation.
type Ends = (String, String);

/// Returns whether some of the processes are connected with each other by TCP. Err: one is connected to a process
/// outside of the job, as a text for users. `several`: the job has further nodes, to which connections may lead.
pub(super) fn connections(members: &[u32], several: bool) -> Result<bool, String> {
    let owners = sockets(members);
    let Some(first) = members.first().filter(|_| !owners.is_empty()) else { return Ok(false) };
    let mut found: BTreeMap<Ends, u32> = BTreeMap::new();
    for table in TABLES {
        let text = fs::read_to_string(format!("/proc/{first}/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).filter_map(Row::of).filter(|row| !UNCONNECTED.contains(&row.state));
        found.extend(rows.filter_map(|row| Some((row.ends(), *owners.get(&row.inode)?))));
    }
    let inward = |(own, other): &Ends| several || found.contains_key(&(other.clone(), own.clone()));
    let outward = found.iter().find(|(ends, _)| !inward(ends));
    let Some(((_, other), pid)) = outward else { return Ok(!found.is_empty()) };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let other = address(other).map_or_else(|| "another process".to_owned(), |other| other.to_string());
    Err(format!("process {pid} ({}) is connected to {other}, which is no process of the job", name.trim_end()))
}

/// Returns the numbers of all sockets of processes, each with a process that has it.
pub(super) fn sockets(members: &[u32]) -> BTreeMap<u64, u32> {
    let fds = members.iter().flat_map(|pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.filter_map(move |fd| Some((*pid, fs::read_link(fd.path()).ok()?)))
    });
    let sockets = fds.filter_map(|(pid, to)| {
        let inode = to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some((inode.parse().ok()?, pid))
    });
    sockets.collect()
}

/// Names of the kernel's tables of TCP sockets.
pub(super) const TABLES: [&str; 2] = ["tcp", "tcp6"];

/// A line of the kernel's table of TCP sockets.
pub(super) struct Row<'a> {
    own: &'a str,
    other: &'a str,
    /// State of the socket, as the kernel shows it.
    pub(super) state: &'a str,
    /// Number of the socket. 0: no process has it.
    pub(super) inode: u64,
}

impl<'a> Row<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (own, other, state) = (words.next()?, words.next()?, words.next()?);
        Some(Self { own, other, state, inode: words.nth(5)?.parse().ok()? })
    }

    fn ends(&self) -> Ends {
        (plain(self.own), plain(self.other))
    }

    /// Returns the address of this end.
    pub(super) fn own(&self) -> Option<SocketAddr> {
        address(self.own)
    }

    /// Returns the address of the other end.
    pub(super) fn other(&self) -> Option<SocketAddr> {
        address(self.other)
    }
}

/// Returns an address in the notation of IPv4, if it is one that is written as IPv6.
fn plain(end: &str) -> String {
    const MAPPED: &str = "0000000000000000FFFF0000";
    end.strip_prefix(MAPPED).unwrap_or(end).to_owned()
}

/// Parses an address in the kernel's notation: words of four bytes in the order of this machine.
fn address(end: &str) -> Option<SocketAddr> {
    let (address, port) = end.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..]).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Lock of the tests that look at the connections of all of them.
#[cfg(test)]
pub(super) static CONNECTIONS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{CONNECTIONS, Row, address, connections};

    #[test]
    fn connections_are_read_as_the_kernel_shows_them() {
        let line =
            "   1: 0100007F:A2DA 0100007F:9F33 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        let found = Row::of(line).unwrap();
        assert_eq!(found.ends(), ("0100007F:A2DA".to_owned(), "0100007F:9F33".to_owned()));
        assert_eq!((found.state, found.inode, found.own().unwrap().port()), ("01", 4711, 41690));
        let six = line.replace(" 0100007F:9F33", " 0000000000000000FFFF00000100007F:9F33");
        assert_eq!(Row::of(&six).unwrap().ends().1, "0100007F:9F33");
        assert!(Row::of("  sl  local_address").is_none());
        assert_eq!(address("0100007F:9F33").unwrap().to_string(), "127.0.0.1:40755");
        assert_eq!(address("00000000000000000000000001000000:0016").unwrap().to_string(), "[::1]:22");
    }

    #[test]
    fn only_connections_to_others_lead_outward() {
        let _alone = CONNECTIONS.lock();
        let own = [std::process::id()];
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        // Not accepted yet, so no process has the other end.
        let said = connections(&own, false).unwrap_err();
        assert!(said.contains("is connected to 127.0.0.1:"), "{said}");
        assert_eq!(connections(&own, true), Ok(true));
        let _accepted = server.accept().unwrap();
        // Other tests of this process may just be connecting.
        let until = Instant::now() + Duration::from_secs(10);
        while connections(&own, false) != Ok(true) {
            assert!(Instant::now() < until, "{:?}", connections(&own, false));
        }
    }
}
