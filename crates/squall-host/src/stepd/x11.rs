//! X11 forwarding: listens for X clients of the tasks, and passes what they say on to `srun`, which reaches the user's
//! display.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;
use squall_files::callers::Callers;
use squall_model::step::{FromStep, Program, StepLaunch, X11};

use super::environment::Environment;
use crate::poller::Interest;

/// Port of display 0.
const PORT: u16 = 6000;

/// Displays that are tried, as of ssh: lower ones may be real.
const DISPLAYS: std::ops::Range<u16> = 10..1000;

/// Most bytes in a message.
const CHUNK_BYTES: usize = 32 << 10;

/// Most bytes that may wait for an X client which does not read; above it the client is cut off.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Most X clients at once: each takes a descriptor here and at `srun`.
const CLIENTS_MAX: usize = 256;

/// File of the step's own folder with the cookie for X clients.
const AUTHORITY: &str = "xauthority";

/// Family of an entry of that file that holds for every host, as in X11's `Xauth.h`.
const ANY_HOST: u16 = 0xffff;

/// Name of the way to authenticate by a cookie.
const BY_COOKIE: &[u8] = b"MIT-MAGIC-COOKIE-1";

/// A descriptor of X11 forwarding to which a poll event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tap {
    /// The listening socket.
    Caller,
    /// The connection of an X client, by its number.
    Client(u32),
}

/// A display for the tasks of this node.
#[derive(Debug)]
pub(super) struct Display {
    listener: TcpListener,
    /// Value of DISPLAY.
    name: String,
    authority: PathBuf,
    /// User of the step: only its processes and those of root may be X clients.
    uid: u32,
    /// Finds the user of a connection.
    callers: Callers,
    clients: BTreeMap<u32, Client>,
    /// Number of the next client: each is used once.
    next: u32,
}

/// The connection of an X client.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
}

impl Display {
    /// Opens a display for the tasks of a step. `room`: the step's folder in which its user may write. None: the step
    /// has none on this node.
    pub(super) fn open(launch: &StepLaunch, room: &Path) -> io::Result<Option<Self>> {
        let Program::Tasks(program) = &launch.program else { return Ok(None) };
        let on = |x11: &X11| x11.nodes.has(launch.node_index as usize, launch.layout.nodes.len());
        let Some(x11) = program.x11.filter(on) else { return Ok(None) };
        let mut found = DISPLAYS.filter_map(|number| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT + number)).ok()?;
            Some((number, listener))
        });
        let (number, listener) = found.next().ok_or(ErrorKind::AddrInUse)?;
        listener.set_nonblocking(true)?;
        let authority = room.join(AUTHORITY);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&authority)?;
        file.write_all(&entry(number, x11.cookie))?;
        let name = format!("localhost:{number}.{}", x11.screen);
        let uid = rustix::process::geteuid().as_raw();
        let (callers, clients) = (Callers::open(), BTreeMap::new());
        Ok(Some(Self { listener, name, authority, uid, callers, clients, next: 0 }))
    }

    /// Sets the variables by which X clients find the display.
    pub(super) fn equip(&self, env: &mut Environment) {
        env.set("DISPLAY", &self.name);
        env.set("XAUTHORITY", &self.authority.to_string_lossy());
    }

    /// Returns the descriptors to poll. Without `room` for messages to `srun` nothing is read from X clients.
    pub(super) fn interests(&self, room: bool) -> impl Iterator<Item = Interest<'_, Tap>> {
        let clients = self.clients.iter().map(move |(number, client)| {
            let reading = if room { PollFlags::IN } else { PollFlags::empty() };
            let writing = if client.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            Interest::new(Tap::Client(*number), client.stream.as_fd(), Some(reading | writing))
        });
        std::iter::once(Interest::new(Tap::Caller, self.listener.as_fd(), Some(PollFlags::IN))).chain(clients)
    }

    /// Handles a ready descriptor; returns what `srun` has to get.
    pub(super) fn handle(&mut self, tap: Tap) -> Option<FromStep> {
        let Tap::Client(number) = tap else {
            while let Ok((stream, peer)) = self.listener.accept() {
                let room = self.clients.len() < CLIENTS_MAX;
                if room && self.is_own(&stream, peer) && stream.set_nonblocking(true).is_ok() {
                    self.clients.insert(self.next, Client { stream, unsent: Vec::new() });
                    self.next = self.next.wrapping_add(1);
                }
            }
            return None;
        };
        let client = self.clients.get_mut(&number)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let read = client.flush().and_then(|()| client.stream.read(&mut bytes));
        bytes.truncate(match read {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            result => result.unwrap_or(0),
        });
        if bytes.is_empty() {
            self.clients.remove(&number);
        }
        Some(FromStep::X11 { client: number, bytes: bytes.into() })
    }

    /// Returns whether a process of the step's user, or root, is at the other end: others would take descriptors.
    fn is_own(&self, stream: &TcpStream, peer: SocketAddr) -> bool {
        let (Ok(SocketAddr::V4(local)), SocketAddr::V4(peer)) = (stream.local_addr(), peer) else { return false };
        self.callers.uid(local, peer).is_ok_and(|uid| uid.is_some_and(|uid| uid == self.uid || uid == 0))
    }

    /// Passes what the display says on to an X client; no bytes: the display has closed. Returns what `srun` has to
    /// get.
    pub(super) fn hear(&mut self, number: u32, bytes: &[u8]) -> Option<FromStep> {
        let client = self.clients.get_mut(&number)?;
        client.unsent.extend_from_slice(bytes);
        let flushed = client.flush();
        if bytes.is_empty() {
            self.clients.remove(&number);
            return None;
        }
        if flushed.is_err() || client.unsent.len() > UNREAD_BYTES_MAX {
            self.clients.remove(&number);
            return Some(FromStep::X11 { client: number, bytes: Vec::new().into() });
        }
        None
    }
}

impl Client {
    /// Sends what the client takes now.
    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match self.stream.write(&self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.unsent.drain(..sent);
        result
    }
}

/// Returns an entry of an authority file: fields with their lengths, in the order of the network.
fn entry(number: u16, cookie: [u8; 16]) -> Vec<u8> {
    let mut entry = ANY_HOST.to_be_bytes().to_vec();
    for field in [&b""[..], number.to_string().as_bytes(), BY_COOKIE, &cookie] {
        entry.extend((field.len() as u16).to_be_bytes());
        entry.extend(field);
    }
    entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use squall_files::callers::Callers;

    use super::{CLIENTS_MAX, Display, Tap, entry};

    #[test]
    fn other_users_get_no_place_at_a_display_and_its_user_not_all_descriptors() {
        let display = |uid| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let (callers, clients) = (Callers::open(), BTreeMap::new());
            Display { listener, name: String::new(), authority: PathBuf::new(), uid, callers, clients, next: 0 }
        };
        let own = rustix::process::geteuid().as_raw();
        let call = |display: &Display| TcpStream::connect(display.listener.local_addr().unwrap()).unwrap();
        let mut ours = display(own);
        let _held: Vec<_> = (0..3).map(|_| call(&ours)).collect();
        ours.handle(Tap::Caller);
        assert_eq!(ours.clients.len(), 3);
        if own == 0 {
            let mut anns = display(1);
            let port = anns.listener.local_addr().unwrap().port();
            let calls = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo; read");
            let mut bob = Command::new("bash");
            bob.args(["-c", &calls]).uid(2).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut bob = bob.spawn().unwrap();
            bob.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            anns.handle(Tap::Caller);
            assert!(anns.clients.is_empty() && bob.wait().is_ok());
        }
        let mut full = display(own);
        for number in 0..CLIENTS_MAX as u32 {
            let stream = call(&full);
            full.clients.insert(number, super::Client { stream, unsent: Vec::new() });
            drop(full.listener.accept());
        }
        let _one = call(&full);
        full.handle(Tap::Caller);
        assert_eq!(full.clients.len(), CLIENTS_MAX);
    }

    #[test]
    fn an_entry_is_as_xauth_writes_it() {
        let entry = entry(10, [7; 16]);
        assert_eq!(&entry[..10], b"\xff\xff\0\0\0\x0210\0\x12");
        assert_eq!(&entry[10..], [&b"MIT-MAGIC-COOKIE-1\0\x10"[..], &[7; 16]].concat());
    }
}
