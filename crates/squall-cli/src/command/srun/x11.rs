//! X11 forwarding: connects X clients of tasks with the user's display. Clients show a cookie of the step; `srun` puts
//! that of the display in its place, so no node learns it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;

use rustix::event::PollFlags;
use rustix::io::Errno;
use squall_host::poller::Interest;
use squall_host::sys::peer::peer_of;
use squall_model::step::{ToStep, X11};

/// Port of display 0 of a host.
const PORT: u16 = 6000;

/// Most bytes in a message, and of an authority file that is read.
const CHUNK_BYTES: usize = 32 << 10;
const AUTHORITY_BYTES_MAX: u64 = 1 << 20;

/// Most bytes that may wait for the display; above it the X client is cut off.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Name of the way to authenticate by a cookie.
const BY_COOKIE: &[u8] = b"MIT-MAGIC-COOKIE-1";

/// Bytes of a client's first message before its name and data for authentication.
const HEAD_BYTES: usize = 12;

/// An X client of a task: index of its node, and its number there.
pub(crate) type XClient = (u32, u32);

/// The user's display, and the X clients that are connected with it.
#[derive(Debug)]
pub(crate) struct Screen {
    display: Display,
    /// Cookie of the display. None: it wants none.
    real: Option<Vec<u8>>,
    /// Cookie that clients have to show.
    shown: [u8; 16],
    clients: BTreeMap<XClient, Client>,
}

/// A display as DISPLAY names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Display {
    /// The host; empty: this one, by a Unix socket.
    host: String,
    number: u16,
    /// Number of the screen.
    pub(crate) screen: u32,
}

/// An X client of a task.
#[derive(Debug)]
struct Client {
    /// Its first message, until it is complete; then it is connected.
    first: Vec<u8>,
    /// The connection to the display.
    socket: Option<OwnedFd>,
    unsent: Vec<u8>,
}

impl Display {
    /// Returns the display that DISPLAY names, such as `:0`, `unix:0.1` or `localhost:10.0`. None: it names none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, rest) = text.rsplit_once(':')?;
        let (number, screen) = rest.split_once('.').unwrap_or((rest, "0"));
        let host = if host == "unix" { "" } else { host };
        Some(Self { host: host.to_owned(), number: number.parse().ok()?, screen: screen.parse().ok()? })
    }

    fn connect(&self) -> std::io::Result<OwnedFd> {
        let socket: OwnedFd = if self.host.is_empty() {
            let path = format!("/tmp/.X11-unix/X{}", self.number);
            let abstracted = SocketAddr::from_abstract_name(&path).and_then(|name| UnixStream::connect_addr(&name));
            // Any user can take a free name, and would get the display's cookie. The path is in a folder where each keeps
            // its own.
            let trusted = abstracted.and_then(|socket| match peer_of(&socket)?.uid {
                uid if uid == 0 || uid == rustix::process::geteuid().as_raw() => Ok(socket),
                _ => Err(std::io::ErrorKind::PermissionDenied.into()),
            });
            trusted.or_else(|_| UnixStream::connect(&path))?.into()
        } else {
            let stream = TcpStream::connect((self.host.as_str(), PORT.saturating_add(self.number)))?;
            stream.set_nodelay(true)?;
            stream.into()
        };
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }

    /// Returns the display's cookie in an authority file. None: the file has none.
    fn cookie(&self, file: &[u8], host: &[u8]) -> Option<Vec<u8>> {
        let number = self.number.to_string();
        let mut found = None;
        let mut rest = file;
        while let Some((family, [address, display, name, data])) = entry(&mut rest) {
            let fits = (display == number.as_bytes() || display.is_empty()) && name == BY_COOKIE;
            // Entries of this host, or of all, are those of displays that are reached by a Unix socket or through ssh.
            let here = family == 256 && address == host || family == 0xffff;
            if fits && (here || found.is_none()) {
                found = Some(data.to_vec());
                if here {
                    break;
                }
            }
        }
        found
    }
}

/// Takes the next entry of an authority file: its family, and four fields. None: there is none.
fn entry<'a>(rest: &mut &'a [u8]) -> Option<(u16, [&'a [u8]; 4])> {
    fn number(rest: &mut &[u8]) -> Option<u16> {
        let (bytes, after) = rest.split_first_chunk::<2>()?;
        *rest = after;
        Some(u16::from_be_bytes(*bytes))
    }
    let family = number(rest)?;
    let mut fields = [&[][..]; 4];
    for field in &mut fields {
        let length = number(rest)? as usize;
        (*field, *rest) = rest.split_at_checked(length)?;
    }
    Some((family, fields))
}

impl Screen {
    /// Finds the user's display by the variables DISPLAY and XAUTHORITY. Err: the reason why there is none.
    pub(crate) fn find(x11: X11) -> Result<Self, String> {
        let name = std::env::var("DISPLAY").unwrap_or_default();
        let display = Display::parse(&name).ok_or_else(|| format!("DISPLAY={name}: it names no display"))?;
        // What is wrong with the display is said now, and not by each X client.
        display.connect().map_err(|e| format!("DISPLAY={name}: {e}"))?;
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".Xauthority"));
        let path = std::env::var_os("XAUTHORITY").filter(|path: &OsString| !path.is_empty()).map(PathBuf::from);
        let mut file = Vec::new();
        if let Some(opened) = path.or_else(home).and_then(|path| File::open(path).ok()) {
            // A file that can't be read has no cookie.
            drop(opened.take(AUTHORITY_BYTES_MAX).read_to_end(&mut file));
        }
        let host = rustix::system::uname();
        let real = display.cookie(&file, host.nodename().to_bytes());
        Ok(Self { display, real, shown: x11.cookie, clients: BTreeMap::new() })
    }

    /// Returns the descriptors to poll. `has_room`: whether more may be sent to a node.
    pub(crate) fn interests(&self, has_room: impl Fn(u32) -> bool) -> impl Iterator<Item = Interest<'_, XClient>> {
        self.clients.iter().filter_map(move |(who, client)| {
            let reading = if has_room(who.0) { PollFlags::IN } else { PollFlags::empty() };
            let writing = if client.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            Some(Interest::new(*who, client.socket()?, Some(reading | writing)))
        })
    }

    /// Passes what an X client says on to the display; no bytes: it has closed. Returns what its node has to get.
    pub(crate) fn hear(&mut self, who: XClient, bytes: &[u8]) -> Option<ToStep> {
        if bytes.is_empty() {
            self.clients.remove(&who);
            return None;
        }
        let empty = || Client { first: Vec::new(), socket: None, unsent: Vec::new() };
        let client = self.clients.entry(who).or_insert_with(empty);
        if client.socket.is_some() {
            client.unsent.extend_from_slice(bytes);
        } else {
            client.first.extend_from_slice(bytes);
            let real = self.real.as_deref();
            match exchanged(&client.first, &self.shown, real) {
                CookieExchange::Incomplete => return None,
                CookieExchange::Wrong => return Some(self.cut(who)),
                CookieExchange::Done(first) => {
                    client.socket = self.display.connect().ok();
                    client.unsent = first;
                }
            }
        }
        if client.flush().is_err() || client.unsent.len() > UNREAD_BYTES_MAX { Some(self.cut(who)) } else { None }
    }

    /// Handles the readiness of a client's connection to the display; returns what its node has to get.
    pub(crate) fn handle(&mut self, who: XClient) -> Option<ToStep> {
        let client = self.clients.get_mut(&who)?;
        if client.flush().is_err() {
            return Some(self.cut(who));
        }
        let mut bytes = vec![0; CHUNK_BYTES];
        match rustix::io::read(client.socket.as_ref()?, &mut bytes) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Ok(count) if count > 0 => bytes.truncate(count),
            _ => return Some(self.cut(who)),
        }
        Some(ToStep::X11 { client: who.1, bytes: bytes.into() })
    }

    fn cut(&mut self, who: XClient) -> ToStep {
        self.clients.remove(&who);
        ToStep::X11 { client: who.1, bytes: Vec::new().into() }
    }
}

impl Client {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Sends what the display takes now.
    fn flush(&mut self) -> Result<(), Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match rustix::io::write(socket, &self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.unsent.drain(..sent);
        result
    }
}

/// A client's first message after its cookie was exchanged.
#[derive(Debug, PartialEq, Eq)]
enum CookieExchange {
    Incomplete,
    /// It is no such message, or has another cookie.
    Wrong,
    /// The message with the display's cookie, and what follows it.
    Done(Vec<u8>),
}

/// Checks the cookie in a client's first message, and puts the display's in its place, or none.
fn exchanged(first: &[u8], shown: &[u8; 16], real: Option<&[u8]>) -> CookieExchange {
    let Some(head) = first.get(..HEAD_BYTES) else { return CookieExchange::Incomplete };
    let read = match head[0] {
        b'B' => u16::from_be_bytes,
        b'l' => u16::from_le_bytes,
        _ => return CookieExchange::Wrong,
    };
    let length = |at: usize| usize::from(read([head[at], head[at + 1]]));
    let padded = |length: usize| length.next_multiple_of(4);
    let (name, data) = (length(6), length(8));
    let data_at = HEAD_BYTES + padded(name);
    let end = data_at + padded(data);
    let Some(whole) = first.get(..end) else { return CookieExchange::Incomplete };
    if &whole[HEAD_BYTES..HEAD_BYTES + name] != BY_COOKIE || &whole[data_at..data_at + data] != shown {
        return CookieExchange::Wrong;
    }
    let mut message = head.to_vec();
    let write = |length: usize| {
        let length = length as u16;
        if head[0] == b'B' { length.to_be_bytes() } else { length.to_le_bytes() }
    };
    let fields = [if real.is_some() { BY_COOKIE } else { &[] }, real.unwrap_or_default()];
    message[6..8].copy_from_slice(&write(fields[0].len()));
    message[8..10].copy_from_slice(&write(fields[1].len()));
    for field in fields {
        message.extend_from_slice(field);
        message.resize(padded(message.len()), 0);
    }
    message.extend_from_slice(&first[end..]);
    CookieExchange::Done(message)
}

#[cfg(test)]
mod tests {
    use super::{CookieExchange, Display, exchanged};

    #[test]
    fn displays_are_read_as_x_clients_read_them() {
        let display = |text: &str| Display::parse(text).map(|d| (d.host, d.number, d.screen));
        assert_eq!(display(":0"), Some((String::new(), 0, 0)));
        assert_eq!(display("unix:1.2"), Some((String::new(), 1, 2)));
        assert_eq!(display("localhost:10.0"), Some(("localhost".into(), 10, 0)));
        assert_eq!((display("x"), display(":a")), (None, None));
    }

    /// attack-trial.md B7: the abstract name of a display may be anybody's.
    #[test]
    fn b7_an_abstract_socket_of_another_user_gets_no_cookie() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        use std::os::unix::process::CommandExt;
        let display = Display::parse(":40711").unwrap();
        let own = SocketAddr::from_abstract_name("/tmp/.X11-unix/X40711").unwrap();
        let listener = UnixListener::bind_addr(&own).unwrap();
        display.connect().unwrap();
        drop(listener);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let bind = "socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(\"\\0/tmp/.X11-unix/X40711\")) or die; \
                    listen(S, 5); syswrite(STDOUT, \"x\"); sysread(STDIN, $_, 1)";
        let mut bob = std::process::Command::new("perl");
        bob.args(["-MSocket", "-e", bind])
            .uid(2)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        // As root this test is one user, and bob's another.
        let Ok(mut bob) = bob.spawn() else { return eprintln!("skipped: perl is not installed") };
        std::io::Read::read_exact(&mut bob.stdout.take().unwrap(), &mut [0]).unwrap();
        let connected = display.connect();
        drop(bob.stdin.take());
        bob.wait().unwrap();
        assert_eq!(connected.unwrap_err().kind(), std::io::ErrorKind::NotFound, "there is no socket at the path");
    }

    #[test]
    fn the_cookie_of_the_display_is_found() {
        let entry = |family: u16, address: &[u8], number: &[u8], data: &[u8]| {
            let mut bytes = family.to_be_bytes().to_vec();
            for field in [address, number, b"MIT-MAGIC-COOKIE-1", data] {
                bytes.extend((field.len() as u16).to_be_bytes());
                bytes.extend(field);
            }
            bytes
        };
        let file =
            [entry(256, b"other", b"0", b"a"), entry(256, b"me", b"1", b"b"), entry(256, b"me", b"0", b"c")].concat();
        let cookie = |text: &str| Display::parse(text).unwrap().cookie(&file, b"me");
        assert_eq!((cookie(":0"), cookie(":1"), cookie(":2")), (Some(b"c".to_vec()), Some(b"b".to_vec()), None));
        assert_eq!(Display::parse(":0").unwrap().cookie(&file[..40], b"me"), Some(b"a".to_vec()));
    }

    #[test]
    fn cookies_are_exchanged_in_both_byte_orders() {
        let (shown, real) = ([7; 16], [9; 16]);
        let message = |order: u8, cookie: &[u8]| {
            let length = |n: u16| if order == b'B' { n.to_be_bytes() } else { n.to_le_bytes() };
            let head = [&[order, 0], &length(11)[..], &length(0), &length(18), &length(16), &[0, 0]].concat();
            [&head[..], b"MIT-MAGIC-COOKIE-1\0\0", cookie, b"more"].concat()
        };
        for order in [b'B', b'l'] {
            let first = message(order, &shown);
            assert_eq!(exchanged(&first, &shown, Some(&real)), CookieExchange::Done(message(order, &real)));
            assert_eq!(exchanged(&first[..47], &shown, Some(&real)), CookieExchange::Incomplete);
            assert_eq!(exchanged(&message(order, &real), &shown, Some(&real)), CookieExchange::Wrong);
            let CookieExchange::Done(plain) = exchanged(&first, &shown, None) else { panic!("it is whole") };
            assert_eq!(&plain[6..], b"\0\0\0\0\0\0more");
        }
        assert_eq!(exchanged(b"GET / HTTP/1.0", &shown, None), CookieExchange::Wrong);
    }
}
