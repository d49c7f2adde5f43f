//! Connections of the rack's nodes. Between two nodes of the rack a frame is passed in memory (the in-process
//! transport). The controller and other nodes are reached by sockets, all in one epoll.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recv, send, socket_with,
};
use squall_engine::fabric::{Dial, NetInput, NetOut};
use squall_engine::node::NodeInput;
use squall_files::place::{Place, SocketPath};
use squall_model::codec::{self, HEADER_BYTES};
use squall_model::encoding::Encoded;
use squall_model::rotation::ControllerKeys;
use squall_model::wire::fabric::{DownFrame, UpFrame};
use squall_model::wire::{Hello, Role};

use crate::auth::is_operator;
use crate::link::make_room;
use crate::signing::Known;
use crate::sys::peer::peer_of;

/// Bytes read at once, into one buffer shared by all connections.
const READ_BYTES: usize = 256 << 10;

/// Connections that may wait to be accepted by one node.
const BACKLOG: i32 = 1024;

/// Bit that marks the epoll tokens of listening sockets.
const LISTENER: u64 = 1 << 62;

/// A socket between a node of the rack and another process.
#[derive(Debug)]
pub(super) struct Conn {
    fd: OwnedFd,
    node: u32,
    side: Side,
    /// Whether the peer's greeting was received.
    greeted: bool,
    /// Beginning of a frame that is not complete yet.
    inbox: Vec<u8>,
    outbox: Outbox,
}

/// Queue of bytes that are to be sent over a connection.
#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// How many bytes at the beginning of `bytes` were sent.
    gone: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    /// The peer is the node's parent, which has to greet with this role.
    Parent(Role),
    /// The peer is a child of the node, with this link number.
    Child(u32),
}

/// A node's connection to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Above {
    /// The parent is connected by the socket with this epoll token.
    Socket(u64),
    /// The parent is a node of this rack, and frames are passed in memory: index of the parent, and number of the link
    /// at the parent.
    Inside(u32, u32),
}

/// A node's connection to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    /// The child is connected by the socket with this epoll token.
    Socket(u64),
    /// The child is a node of this rack, and frames are passed in memory: index of the child.
    Inside(u32),
}

/// All connections of one node.
#[derive(Debug, Default)]
struct Hops {
    parent: Option<Above>,
    /// Children by link number.
    children: BTreeMap<u32, Below>,
    last_link: u32,
    /// Whether the node runs and accepts connections.
    open: bool,
    /// Listening socket for children outside the rack; None if none are expected.
    listener: Option<OwnedFd>,
}

impl Hops {
    fn next_link(&mut self) -> u32 {
        self.last_link += 1;
        self.last_link
    }
}

/// Inputs for the state machines of nodes (by index in the rack), in order.
pub(super) type Inbox = Vec<(u32, NodeInput)>;

/// The connections of all nodes of the rack.
pub(super) struct Conns {
    place: Place,
    /// What this machine knows of the controllers' keys.
    known: Arc<Known>,
    all: HashMap<u64, Conn>,
    last: u64,
    hops: Vec<Hops>,
    /// Index of each node of the rack, by name.
    index: HashMap<String, u32>,
    scratch: Vec<u8>,
    frame: Vec<u8>,
    names: Vec<String>,
}

impl Conns {
    /// Keeps the controllers' new keys.
    pub(super) fn learn(&self, keys: &ControllerKeys) {
        self.known.learn(Some(keys.signer));
    }

    pub(super) fn new(place: Place, names: Vec<String>, known: Arc<Known>) -> Self {
        let index = names.iter().enumerate().map(|(at, name)| (name.clone(), at as u32)).collect();
        Self {
            hops: names.iter().map(|_| Hops::default()).collect(),
            index,
            known,
            place,
            all: HashMap::new(),
            last: 0,
            scratch: vec![0; READ_BYTES],
            frame: Vec::new(),
            names,
        }
    }

    /// Returns the connections of a node of this rack.
    fn of(&mut self, node: u32) -> &mut Hops {
        &mut self.hops[node as usize]
    }

    /// Lets a node accept connections; with `outside`, also from nodes outside the rack.
    pub(super) fn open(&mut self, epoll: &OwnedFd, node: u32, name: &str, outside: bool) -> io::Result<()> {
        self.of(node).open = true;
        if outside { self.listen(epoll, node, name) } else { Ok(()) }
    }

    fn listen(&mut self, epoll: &OwnedFd, node: u32, name: &str) -> io::Result<()> {
        let path = self.place.node_socket(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = SocketPath::new(&path)?;
        let fd = unix_socket()?;
        bind(&fd, &SocketAddrUnix::new(socket.as_path())?)?;
        listen(&fd, BACKLOG)?;
        epoll::add(epoll, &fd, EventData::new_u64(LISTENER | u64::from(node)), EventFlags::IN)?;
        self.of(node).listener = Some(fd);
        Ok(())
    }

    /// Handles a socket that is ready for reading, writing or accepting.
    pub(super) fn ready(&mut self, epoll: &OwnedFd, token: u64, flags: EventFlags, inbox: &mut Inbox) {
        if token & LISTENER != 0 {
            return self.accept(epoll, (token & !LISTENER) as u32);
        }
        if flags.contains(EventFlags::OUT) && !self.push_out(token) {
            return self.end(token, inbox);
        }
        let over = flags.intersects(EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP);
        if (over || flags.contains(EventFlags::IN)) && !self.pull_in(token, over, inbox) {
            self.end(token, inbox);
        }
    }

    fn accept(&mut self, epoll: &OwnedFd, node: u32) {
        loop {
            let Some(listener) = &self.of(node).listener else { return };
            let Ok(fd) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
            let friend = peer_of(&fd).is_ok_and(|peer| is_operator(peer.uid));
            if friend {
                let side = Side::Child(self.of(node).next_link());
                self.add(epoll, fd, node, side);
            }
        }
    }

    fn add(&mut self, epoll: &OwnedFd, fd: OwnedFd, node: u32, side: Side) -> Option<u64> {
        self.last += 1;
        let token = self.last;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(e) = epoll::add(epoll, &fd, EventData::new_u64(token), flags) {
            tracing::error!(error = %e, "a connection can't be watched");
            return None;
        }
        self.all.insert(token, Conn { fd, node, side, greeted: false, inbox: Vec::new(), outbox: Outbox::default() });
        Some(token)
    }

    /// Reads all that has arrived; with `over` (the peer has hung up) to the end, as there will be no further event.
    /// False: the connection has ended.
    fn pull_in(&mut self, token: u64, over: bool, inbox: &mut Inbox) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let lives = loop {
            let Some(conn) = self.all.get_mut(&token) else { break true };
            match recv(&conn.fd, &mut scratch[..], RecvFlags::empty()) {
                Ok((0, _)) => break false,
                Ok((length, _)) => {
                    if !self.feed(token, &scratch[..length], inbox) {
                        break false;
                    }
                    if length < scratch.len() && !over {
                        break true;
                    }
                }
                Err(Errno::AGAIN) => break true,
                Err(Errno::INTR) => {}
                Err(_) => break false,
            }
        };
        self.scratch = scratch;
        lives
    }

    /// Processes received bytes. False: they are no valid frames.
    fn feed(&mut self, token: u64, bytes: &[u8], inbox: &mut Inbox) -> bool {
        let Some(conn) = self.all.get_mut(&token) else { return true };
        let mut rest = std::mem::take(&mut conn.inbox);
        let mut at = 0;
        if !rest.is_empty() {
            // Completes the frame that has begun; the following frames are parsed without copying.
            let Ok(lacking) = lacking(&rest, bytes) else { return false };
            rest.extend_from_slice(&bytes[..lacking]);
            at = lacking;
            match self.one(token, &rest, inbox) {
                Ok(0) => {}
                Ok(_) => rest.clear(),
                Err(()) => return false,
            }
        }
        while rest.is_empty() && at < bytes.len() {
            match self.one(token, &bytes[at..], inbox) {
                Ok(0) => {
                    rest.reserve(frame_bytes(&bytes[at..]));
                    rest.extend_from_slice(&bytes[at..]);
                    break;
                }
                Ok(length) => at += length,
                Err(()) => return false,
            }
        }
        if let Some(conn) = self.all.get_mut(&token) {
            if rest.is_empty() {
                // There are many nodes, and most have no incomplete frame: so the memory is freed.
                rest = Vec::new();
            }
            conn.inbox = rest;
        }
        true
    }

    /// Processes the first frame if it is complete; returns its length, or 0. Err: it is invalid.
    fn one(&mut self, token: u64, bytes: &[u8], inbox: &mut Inbox) -> Result<usize, ()> {
        let Some(conn) = self.all.get(&token) else { return Ok(0) };
        let (node, side) = (conn.node, conn.side.clone());
        if !conn.greeted {
            let Some((hello, length)) = codec::take::<Hello>(bytes).map_err(drop)? else { return Ok(0) };
            self.greeted(token, &hello, inbox)?;
            return Ok(length);
        }
        let (input, length) = match side {
            Side::Parent(_) => {
                let Some((frame, length)) = codec::take::<DownFrame>(bytes).map_err(drop)? else { return Ok(0) };
                (NetInput::FromParent(Box::new(frame)), length)
            }
            Side::Child(link) => {
                let Some((frame, length)) = codec::take::<UpFrame>(bytes).map_err(drop)? else { return Ok(0) };
                (NetInput::FromChild { link, frame: Box::new(frame) }, length)
            }
        };
        let current = match side {
            Side::Parent(_) => self.of(node).parent == Some(Above::Socket(token)),
            Side::Child(link) => self.of(node).children.get(&link) == Some(&Below::Socket(token)),
        };
        if current {
            inbox.push((node, NodeInput::Net(input)));
        }
        Ok(length)
    }

    fn greeted(&mut self, token: u64, hello: &Hello, inbox: &mut Inbox) -> Result<(), ()> {
        let Some(conn) = self.all.get_mut(&token) else { return Err(()) };
        conn.greeted = true;
        let node = conn.node;
        if hello.agreed().is_err() {
            return Err(());
        }
        match conn.side.clone() {
            Side::Parent(expected) if hello.role == expected => {
                if expected == Role::Controller {
                    self.known.learn(hello.signer);
                    self.known.learn_controllers(hello.key);
                }
                self.leave(node, inbox);
                self.of(node).parent = Some(Above::Socket(token));
                inbox.push((node, NodeInput::Net(NetInput::ParentOpened)));
                Ok(())
            }
            Side::Child(link) if matches!(hello.role, Role::Node(_)) => {
                self.of(node).children.insert(link, Below::Socket(token));
                let own = Hello::new(Role::Node(self.names_node(node)));
                self.send(token, &own);
                inbox.push((node, NodeInput::Net(NetInput::ChildOpened { link })));
                Ok(())
            }
            _ => Err(()),
        }
    }

    /// Removes a connection that has ended, and reports that to its node.
    fn end(&mut self, token: u64, inbox: &mut Inbox) {
        let Some(conn) = self.all.remove(&token) else { return };
        let node = conn.node;
        let input = match conn.side {
            Side::Parent(_) if self.of(node).parent == Some(Above::Socket(token)) => {
                self.of(node).parent = None;
                NetInput::ParentClosed
            }
            Side::Parent(_) if !conn.greeted => NetInput::DialFailed,
            Side::Child(link) if self.of(node).children.remove(&link).is_some() => NetInput::ChildClosed { link },
            _ => return,
        };
        inbox.push((node, NodeInput::Net(input)));
    }

    /// Sends the frames, and closes and makes the connections, that a node's state machine has decided on.
    pub(super) fn carry_out(&mut self, epoll: &OwnedFd, node: u32, name: &str, out: NetOut, inbox: &mut Inbox) {
        if let Some(frame) = out.up {
            match self.of(node).parent {
                Some(Above::Socket(token)) => self.send(token, &frame),
                Some(Above::Inside(parent, link)) => {
                    let frame = Box::new(frame);
                    inbox.push((parent, NodeInput::Net(NetInput::FromChild { link, frame })));
                }
                None => {}
            }
        }
        for (link, frame) in out.down {
            match self.of(node).children.get(&link) {
                Some(&Below::Socket(token)) => self.send(token, &frame),
                Some(&Below::Inside(child)) => {
                    inbox.push((child, NodeInput::Net(NetInput::FromParent(Box::new(frame)))));
                }
                None => {}
            }
        }
        for link in out.drop {
            self.drop_child(node, link, inbox);
        }
        if out.hang_up {
            self.leave(node, inbox);
        }
        for (name, chunk) in out.beside {
            // A node that can't be reached here gets the piece again down the tree; so do nodes outside the rack.
            if let Some(to) = self.index.get(&name).copied().filter(|to| self.of(*to).open) {
                inbox.push((to, NodeInput::Net(NetInput::Beside(chunk))));
            }
        }
        match out.dial {
            Some(Dial::Node(parent)) if self.index.contains_key(&parent) => self.dial_inside(node, &parent, inbox),
            Some(dial) if self.dial(epoll, node, name, &dial).is_err() => {
                inbox.push((node, NodeInput::Net(NetInput::DialFailed)));
            }
            Some(_) | None => {}
        }
    }

    /// Ends a node's connection to its parent on the node's order: only the parent gets a report.
    fn leave(&mut self, node: u32, inbox: &mut Inbox) {
        match self.of(node).parent.take() {
            Some(Above::Socket(token)) => {
                self.all.remove(&token);
            }
            Some(Above::Inside(parent, link)) if self.of(parent).children.remove(&link).is_some() => {
                inbox.push((parent, NodeInput::Net(NetInput::ChildClosed { link })));
            }
            Some(Above::Inside(..)) | None => {}
        }
    }

    /// Ends a node's connection to a child on the node's order: only the child gets a report.
    fn drop_child(&mut self, node: u32, link: u32, inbox: &mut Inbox) {
        match self.of(node).children.remove(&link) {
            Some(Below::Socket(token)) => {
                self.all.remove(&token);
            }
            Some(Below::Inside(child)) => {
                self.of(child).parent = None;
                inbox.push((child, NodeInput::Net(NetInput::ParentClosed)));
            }
            None => {}
        }
    }

    fn dial_inside(&mut self, node: u32, parent: &str, inbox: &mut Inbox) {
        let Some(parent) = self.index.get(parent).copied().filter(|parent| self.of(*parent).open) else {
            return inbox.push((node, NodeInput::Net(NetInput::DialFailed)));
        };
        self.leave(node, inbox);
        let link = self.of(parent).next_link();
        self.of(parent).children.insert(link, Below::Inside(node));
        self.of(node).parent = Some(Above::Inside(parent, link));
        inbox.push((parent, NodeInput::Net(NetInput::ChildOpened { link })));
        inbox.push((node, NodeInput::Net(NetInput::ParentOpened)));
    }

    fn dial(&mut self, epoll: &OwnedFd, node: u32, name: &str, dial: &Dial) -> io::Result<()> {
        let (path, expected) = match dial {
            Dial::Controller => (self.place.controller_socket(), Role::Controller),
            Dial::Node(parent) => (self.place.node_socket(parent), Role::Node(parent.clone())),
        };
        let path = SocketPath::new(&path)?;
        let fd = unix_socket()?;
        connect(&fd, &SocketAddrUnix::new(path.as_path())?)?;
        if !is_operator(peer_of(&fd)?.uid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let token = self.add(epoll, fd, node, Side::Parent(expected)).ok_or(io::ErrorKind::Other)?;
        self.send(token, &Hello::new(Role::Node(name.to_owned())));
        Ok(())
    }

    /// Sends a frame, after those sent before.
    fn send(&mut self, token: u64, message: &impl Encoded) {
        self.frame.clear();
        if let Err(e) = codec::encode(message, &mut self.frame) {
            return tracing::error!(error = %e, "a frame could not be made");
        }
        let Some(conn) = self.all.get_mut(&token) else { return };
        let mut at = 0;
        while conn.outbox.bytes.is_empty() && at < self.frame.len() {
            match send(&conn.fd, &self.frame[at..], SendFlags::NOSIGNAL) {
                Ok(length) => at += length,
                Err(Errno::INTR) => {}
                // The rest is sent when there is room; if the peer has ended, reading shows it.
                Err(_) => break,
            }
        }
        conn.outbox.bytes.extend_from_slice(&self.frame[at..]);
    }

    /// Sends queued bytes. False: the connection has ended.
    fn push_out(&mut self, token: u64) -> bool {
        let Some(conn) = self.all.get_mut(&token) else { return true };
        let Outbox { bytes, gone } = &mut conn.outbox;
        while *gone < bytes.len() {
            match send(&conn.fd, &bytes[*gone..], SendFlags::NOSIGNAL) {
                Ok(length) => *gone += length,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        conn.outbox = Outbox::default();
        true
    }

    /// Ends all connections of a node and stops accepting. The node itself gets no report.
    pub(super) fn die(&mut self, node: u32, inbox: &mut Inbox) {
        (self.of(node).open, self.of(node).listener) = (false, None);
        self.leave(node, inbox);
        for link in self.of(node).children.keys().copied().collect::<Vec<_>>() {
            self.drop_child(node, link, inbox);
        }
        self.all.retain(|_, conn| conn.node != node);
    }

    fn names_node(&self, node: u32) -> String {
        self.names.get(node as usize).cloned().unwrap_or_default()
    }
}

/// Returns the length of the first frame in `bytes`; 0: its header is not complete.
fn frame_bytes(bytes: &[u8]) -> usize {
    let head = bytes.first_chunk().and_then(|head| codec::header(*head).ok());
    head.map_or(0, |(length, _)| HEADER_BYTES + length)
}

/// Returns how many bytes of `more` belong to the frame that begins with `begun`. Err: `begun` begins no frame.
fn lacking(begun: &[u8], more: &[u8]) -> Result<usize, ()> {
    let mut head: Vec<u8> = begun.iter().take(HEADER_BYTES).copied().collect();
    head.extend(more.iter().take(HEADER_BYTES - head.len()));
    let Some(head) = head.first_chunk() else { return Ok(more.len()) };
    let (length, _) = codec::header(*head).map_err(drop)?;
    Ok((HEADER_BYTES + length).saturating_sub(begun.len()).min(more.len()))
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    make_room(&fd);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::Timespec;
    use rustix::event::epoll;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::{Conns, Known, Side};
    use squall_files::place::Place;

    #[test]
    fn a_peer_that_says_something_and_dies_at_once_is_seen_to_be_dead() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let place = Place::at(&std::env::temp_dir()).unwrap();
        let known = Known::of(&place, None).unwrap().into();
        let mut conns = Conns::new(place, vec!["n1".into()], known);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let token = conns.add(&epoll, here, 0, Side::Child(1)).unwrap();
        send(&there, b"s", SendFlags::empty()).unwrap();
        drop(there);
        let wait = Timespec::try_from(Duration::from_secs(10)).unwrap();
        let mut events = Vec::with_capacity(8);
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).unwrap();
        for event in &events {
            conns.ready(&epoll, event.data.u64(), event.flags, &mut Vec::new());
        }
        assert!(!events.is_empty() && !conns.all.contains_key(&token));
    }
}
