//! Connections from step daemons: a listening socket without a name in the file system, and one link for each node.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use squall_engine::step::Delivery;
use squall_host::pipe::{Pipe, ROOM_BYTES as READ_BYTES};
use squall_host::sys::peer::peer_of;
use squall_model::codec;
use squall_model::config::Ports;
use squall_model::encoding::Encoded;
use squall_model::set::IndexSet;
use squall_model::step::{ClientAddress, FromStep, Layout, ToStep};
use squall_model::wire::{Hello, Role};

use squall_client::random;

/// Number of bytes of input that may be queued for a slow node; when it is exceeded, srun stops reading input.
const BACKLOG_BYTES_MAX: usize = 1 << 20;

/// Listening socket to which the step daemons of one step connect.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    /// Socket for step daemons on other machines. None: the cluster has no other machines.
    far: Option<TcpListener>,
    /// Address of the socket for other machines: `HOST:PORT`.
    address: Option<String>,
    name: String,
    cookie: [u8; 16],
    /// User ids that may connect: root, this user, and the user who runs the controller.
    users: Vec<u32>,
}

impl Listener {
    /// Opens the socket under a name that can't be guessed. `host`: this machine's name on other machines of the
    /// cluster; None: there are none. `ports`: those at which it may listen for these; None: any.
    pub(crate) fn open(host: Option<&str>, ports: Option<Ports>) -> io::Result<Self> {
        let name = format!("squall-srun-{:032x}", u128::from_le_bytes(random()));
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        let (far, address) = host.map(|host| open_far(host, ports)).transpose()?.unzip();
        let users = vec![0, rustix::process::getuid().as_raw()];
        Ok(Self { socket, far, address, name, cookie: random(), users })
    }

    /// Allows connections from a further user id: that of the user who runs the cluster.
    pub(crate) fn trust(&mut self, runner: u32) {
        self.users.push(runner);
    }

    /// Returns the listener's address, which the step daemons get.
    pub(crate) fn address(&self) -> ClientAddress {
        let name = self.name.clone();
        match self.address.clone() {
            // On a single machine a step has no TCP port, so its daemons don't connect to each other by TCP.
            None => ClientAddress::Abstract(name),
            Some(address) => ClientAddress::Anywhere { name, address },
        }
    }

    /// Returns the socket for step daemons on other machines.
    pub(crate) fn far(&self) -> Option<&TcpListener> {
        self.far.as_ref()
    }

    /// Returns the cookie that a step daemon must present.
    pub(crate) fn cookie(&self) -> [u8; 16] {
        self.cookie
    }

    /// Accepts a connection from a step daemon, if there is one. Strangers are rejected: local ones by user id, remote
    /// ones by their first message.
    pub(crate) fn accept(&self) -> Option<StepConnection> {
        let mut link = StepConnection::new(self.accept_here().or_else(|| self.accept_far())?);
        link.put(&Hello::new(Role::Client("srun".into())));
        link.put(&ToStep::Hello { cookie: self.cookie });
        Some(link)
    }

    fn accept_here(&self) -> Option<Pipe> {
        loop {
            let (stream, _) = self.socket.accept().ok()?;
            let known = peer_of(&stream).is_ok_and(|peer| self.users.contains(&peer.uid));
            if let Some(pipe) = Pipe::local(stream).ok().filter(|_| known) {
                return Some(pipe);
            }
        }
    }

    fn accept_far(&self) -> Option<Pipe> {
        let socket = self.far.as_ref()?;
        loop {
            let (stream, _) = socket.accept().ok()?;
            if let Ok(pipe) = Pipe::called(stream, self.cookie) {
                return Some(pipe);
            }
        }
    }
}

fn open_far(host: &str, ports: Option<Ports>) -> io::Result<(TcpListener, String)> {
    // Without IPv6, IPv4 is all there is.
    let at = |port: u16| {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
    };
    let socket = match ports {
        None => at(0)?,
        Some(ports) => {
            // Commands that begin at the same time begin at different ports.
            let from = (u128::from_le_bytes(random()) % u128::from(ports.len())) as u32;
            let all = (0..ports.len()).map(|step| ports.first + ((from + step) % ports.len()) as u16);
            let text = String::from(ports);
            let full = || {
                io::Error::new(ErrorKind::AddrInUse, format!("all of the ports {text} are in use (srun_port_range)"))
            };
            all.into_iter().find_map(|port| at(port).ok()).ok_or_else(full)?
        }
    };
    socket.set_nonblocking(true)?;
    let address = format!("{host}:{}", socket.local_addr()?.port());
    Ok((socket, address))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Progress of a step daemon's introduction: it sends its protocol version, then its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The step daemon has connected; its protocol version has not arrived yet.
    Called,
    /// The protocol version fits; the cookie has not arrived yet.
    Version,
    /// The cookie was right: the step daemon serves the node with this index in the step's layout.
    Known(u32),
}

/// A buffer for reading, shared by all links.
#[derive(Debug)]
pub(crate) struct Room(Vec<u8>);

impl Default for Room {
    fn default() -> Self {
        Self(vec![0; READ_BYTES])
    }
}

/// The connection to one step daemon. It never blocks.
#[derive(Debug)]
pub(crate) struct StepConnection {
    stream: Pipe,
    stage: Stage,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    open: bool,
    dismissed: bool,
    /// Whether the step daemon's final frame has arrived.
    pub(crate) done: bool,
}

impl StepConnection {
    fn new(stream: Pipe) -> Self {
        Self {
            stream,
            stage: Stage::Called,
            unread: Vec::new(),
            unsent: Vec::new(),
            open: true,
            dismissed: false,
            done: false,
        }
    }

    /// Returns the index of the node in the step's layout. None: the step daemon has not presented its cookie yet.
    pub(crate) fn node(&self) -> Option<u32> {
        if let Stage::Known(node) = self.stage { Some(node) } else { None }
    }

    /// Returns whether more frames may arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.open && !self.done
    }

    /// Returns how much of the step daemon's output has arrived.
    pub(crate) fn delivery(&self) -> Delivery {
        match self.stage {
            Stage::Known(_) if self.done => Delivery::Complete,
            Stage::Known(_) if self.open => Delivery::Open,
            Stage::Known(_) => Delivery::Lost,
            _ if self.open => Delivery::Calling,
            // A rejected stranger has no output to miss.
            _ => Delivery::Complete,
        }
    }

    /// Sends a last message to a step daemon that serves no tasks itself. The link is to be dropped: its socket would lead out
    /// of the job in checkpoints.
    pub(crate) fn dismiss(&mut self, message: &ToStep) {
        self.put(message);
        (self.open, self.dismissed) = (false, true);
    }

    /// Returns whether the link is to be dropped.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed
    }

    /// Turns on detection of a peer machine that vanishes.
    pub(crate) fn watch_peer(&self) {
        if self.is_open()
            && let Err(e) = self.stream.watch_peer()
        {
            eprintln!("srun: error: the link to a step daemon is not watched: {e}");
        }
    }

    /// Returns whether too many bytes are queued for the step daemon, so that srun must stop reading input.
    pub(crate) fn is_full(&self) -> bool {
        self.open && self.unsent.len() + self.stream.backlog() > BACKLOG_BYTES_MAX
    }

    /// Returns whether any bytes are queued for sending.
    pub(crate) fn has_unsent(&self) -> bool {
        self.open && self.unsent.len() + self.stream.backlog() > 0
    }

    /// Queues a frame for the step daemon and sends what it accepts now. Nothing is sent before the step daemon has
    /// presented its cookie.
    pub(crate) fn send(&mut self, message: &ToStep) {
        if self.node().is_some() && self.is_open() {
            self.put(message);
        }
    }

    fn put<T: Encoded>(&mut self, message: &T) {
        if codec::encode(message, &mut self.unsent).is_ok() {
            self.flush();
        }
    }

    /// Sends as many queued bytes as the peer accepts now.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    // Frames that the peer sent before it closed are still to be read.
                    sent = self.unsent.len();
                }
            }
        }
        self.unsent.drain(..sent);
        // Reading reports a broken link.
        drop(self.stream.flush());
    }

    /// Reads available bytes into `room` and appends whole frames in order. An invalid frame or a wrong cookie ends the
    /// link.
    pub(crate) fn read(&mut self, cookie: [u8; 16], room: &mut Room, frames: &mut Vec<FromStep>) {
        let got = match self.stream.read(&mut room.0) {
            Ok(0) => {
                self.open = false;
                0
            }
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(_) => {
                self.open = false;
                0
            }
        };
        self.unread.extend_from_slice(&room.0[..got]);
        while let Some(more) = self.take(cookie, frames) {
            if !more {
                self.open = false;
                self.unread.clear();
            }
        }
    }

    /// Takes the next frame from the received bytes. Some(true): it was valid. Some(false): the link must end. None: it
    /// is not complete yet.
    fn take(&mut self, cookie: [u8; 16], frames: &mut Vec<FromStep>) -> Option<bool> {
        if self.unread.is_empty() {
            return None;
        }
        if self.stage == Stage::Called {
            return match codec::take::<Hello>(&self.unread) {
                Ok(None) => None,
                Ok(Some((hello, length))) => {
                    self.unread.drain(..length);
                    self.stage = Stage::Version;
                    Some(hello.agreed().is_ok())
                }
                Err(_) => Some(false),
            };
        }
        match codec::take::<FromStep>(&self.unread) {
            Ok(None) => None,
            Ok(Some((frame, length))) => {
                self.unread.drain(..length);
                Some(self.accept_frame(frame, cookie, frames))
            }
            Err(_) => Some(false),
        }
    }

    fn accept_frame(&mut self, frame: FromStep, cookie: [u8; 16], frames: &mut Vec<FromStep>) -> bool {
        match frame {
            FromStep::Hello { cookie: shown, node_index } if self.stage == Stage::Version && shown == cookie => {
                self.stage = Stage::Known(node_index);
            }
            FromStep::Birth(birth) if self.stage == Stage::Version && birth.cookie == cookie => {
                frames.push(FromStep::Birth(birth));
            }
            FromStep::Hello { .. } | FromStep::Birth(_) => return false,
            _ if self.node().is_none() => return false,
            FromStep::Done => {
                self.done = true;
                // The hang-up tells a step daemon on another machine that everything has arrived.
                self.stream.hang_up();
            }
            frame => frames.push(frame),
        }
        true
    }
}

/// Returns a message for each node from which the final frame is missing, so that output of its tasks may be
/// incomplete. `first` is the number printed for rank 0.
pub(crate) fn missing_output(links: &[StepConnection], layout: &Layout, first: u32) -> Vec<String> {
    let nodes: IndexSet =
        links.iter().filter(|link| link.delivery().is_missing()).filter_map(StepConnection::node).collect();
    let text = |node: u32| {
        let name = layout.nodes.get(node as usize).unwrap_or_default();
        let ranks: IndexSet = layout.ranks_on(node as usize).into_iter().map(|rank| rank + first).collect();
        let s = if ranks.len() == 1 { "" } else { "s" };
        format!("{name}: output of task{s} {ranks} may be incomplete: the link to its step daemon was lost")
    };
    nodes.iter().map(text).collect()
}

impl AsFd for StepConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    use squall_model::codec;
    use squall_model::step::{ClientAddress, FromStep};
    use squall_model::wire::{Hello, Role};

    use super::{Listener, Room};

    fn call(listener: &Listener, cookie: [u8; 16], after: &[u8]) -> (Vec<FromStep>, Option<u32>, bool) {
        let ClientAddress::Abstract(name) = listener.address() else { panic!("no address") };
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let mut bytes = Vec::new();
        let hello = Hello::new(Role::Step);
        codec::encode(&hello, &mut bytes).unwrap();
        codec::encode(&FromStep::Hello { cookie, node_index: 3 }, &mut bytes).unwrap();
        bytes.extend_from_slice(after);
        stream.write_all(&bytes).unwrap();
        let mut link = listener.accept().unwrap();
        let mut frames = Vec::new();
        link.read(listener.cookie(), &mut Room::default(), &mut frames);
        (frames, link.node(), link.is_open())
    }

    #[test]
    fn a_step_daemon_with_the_cookie_is_heard() {
        let listener = Listener::open(None, None).unwrap();
        let mut after = Vec::new();
        codec::encode(&FromStep::Started(vec![(0, 7)]), &mut after).unwrap();
        assert_eq!(call(&listener, listener.cookie(), &after), (vec![FromStep::Started(vec![(0, 7)])], Some(3), true));
    }

    #[test]
    fn without_the_cookie_or_with_nonsense_it_is_not() {
        let listener = Listener::open(None, None).unwrap();
        let mut after = Vec::new();
        codec::encode(&FromStep::Started(vec![(0, 7)]), &mut after).unwrap();
        let (frames, _, open) = call(&listener, [0; 16], &after);
        assert!(frames.is_empty() && !open);
        let (frames, _, open) = call(&listener, listener.cookie(), &[0xff; 64]);
        assert!(frames.is_empty() && !open);
    }
}
