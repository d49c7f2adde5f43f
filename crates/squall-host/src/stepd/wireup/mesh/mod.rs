//! Connections between the step daemons of one step, made when there is a message to send, or before (`early`). On one
//! machine the address of a step daemon follows from the launch, so no addresses are exchanged. Between machines the
//! first messages are relayed by `srun`, to which all are connected, together with the sender's address; from then on
//! both step daemons are connected directly.

mod fast;
mod manner;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use squall_model::step::{ClientAddress, StepLaunch, TaskProgram};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::{Hello, Role};

use crate::pipe::Pipe;
use crate::poller::Interest;
use crate::stepd::frames::{Filled, Frames};
use crate::sys::peer::peer_of;
use fast::Fast;
pub(super) use manner::{Manner, Way, is_yes, said};

/// Time from this step daemon's start within which another one must be reachable. After it, the other one has ended or
/// will never start.
const PATIENCE: Duration = Duration::from_secs(30);
/// First pause between attempts to connect to a step daemon that is not reachable. It doubles up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between attempts to connect to a step daemon.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Time limit of a connection to another machine; after it, messages are relayed by `srun`.
const CALL: Duration = Duration::from_secs(2);

/// What a step daemon needs to authenticate the others of its step and to be reached by them.
#[derive(Clone, Debug)]
pub(super) struct Kinship {
    /// The cookie of the launch, which is known within the step only.
    pub(super) cookie: [u8; 16],
    /// User id of the step's owner.
    pub(super) owner: u32,
    /// Index of this node among the step's nodes (the *place* of its step daemon).
    pub(super) here: u32,
    /// Host name or address by which other machines reach this one; empty: that of the connection to `srun`. None: all
    /// nodes of the step are on this machine.
    pub(super) far: Option<String>,
}

impl Kinship {
    /// Derives these values from the launch of the step on this node.
    pub(super) fn of(launch: &StepLaunch, program: &TaskProgram) -> Self {
        let far = match &program.client {
            ClientAddress::Anywhere { address, .. } => address.rsplit_once(':').map(|(host, _)| host.to_owned()),
            ClientAddress::Tcp(_) => Some(String::new()),
            ClientAddress::None | ClientAddress::Abstract(_) => None,
        };
        Self { cookie: program.cookie, owner: launch.facts.owner.uid, here: launch.node_index, far }
    }

    /// Returns a unique name for the step, from which the cookie can't be derived.
    pub(super) fn name(&self) -> String {
        blake3::hash(&self.cookie).to_hex()[..32].to_owned()
    }

    /// Returns a secret of the step for the purpose `what`.
    pub(super) fn secret(&self, what: &str) -> blake3::Hash {
        blake3::keyed_hash(blake3::hash(&self.cookie).as_bytes(), what.as_bytes())
    }

    /// Returns the address on which the step daemon of the node with index `place` listens. Without the cookie it can't
    /// be guessed.
    fn address(&self, place: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("squall-wireup-{}-{place}", self.name()))
    }

    /// Whether the peer may belong to the step: it runs as the step's user or as root.
    fn trusts(&self, stream: &UnixStream) -> bool {
        let peer = peer_of(stream).map(|peer| peer.uid);
        peer.is_ok_and(|uid| uid == self.owner || uid == 0)
    }

    fn greet(&self, frames: &mut Frames) {
        frames.send(&Hello::new(Role::Step));
        frames.send(&PeerMessage::Hello { cookie: self.cookie, place: self.here });
    }
}

/// All connections of one step daemon to the others of its step.
#[derive(Debug)]
pub(super) struct Mesh {
    kinship: Kinship,
    manner: Manner,
    listener: UnixListener,
    /// TCP listener for step daemons on other machines, or (if the route is TCP) for all.
    tcp: Option<TcpListener>,
    /// UCX transport; None: the user does not want it, or it is not available.
    fast: Option<Fast>,
    /// Address of the TCP listener, `HOST:PORT`; empty: there is none.
    endpoint: String,
    links: Vec<Link>,
    /// Messages for step daemons that are not connected yet, by the index of their node in the step.
    calls: BTreeMap<u32, Call>,
    /// Step daemons (index of their node in the step) to which messages are relayed by `srun` until they are reached
    /// directly.
    away: BTreeSet<u32>,
    /// TCP addresses of step daemons on other machines, by the index of their node in the step.
    known: BTreeMap<u32, String>,
    /// Messages that `srun` has to relay, each with the index of the receiving node in the step.
    passes: Vec<(u32, PeerMessage)>,
    /// Messages to be sent through the tree of nodes, each with the index of the receiving node in the step.
    letters: Vec<(u32, PeerMessage)>,
    traffic: Traffic,
    born: Instant,
}

/// Counters: messages sent, by their route; connections made; addresses sent for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Number of messages relayed by `srun`.
    pub(super) relayed: u64,
    /// Number of messages sent through the tree of nodes.
    pub(super) by_nodes: u64,
    /// Number of messages sent over Unix sockets.
    pub(super) unix: u64,
    /// Number of messages sent over TCP.
    pub(super) tcp: u64,
    /// Number of messages sent over UCX.
    pub(super) ucx: u64,
    /// Number of connections made before there was a message to send.
    pub(super) early: u64,
    /// Number of connections made because there was a message to send.
    pub(super) late: u64,
    /// Number of addresses sent to other step daemons; none where they follow from the launch.
    pub(super) addresses: u64,
}

#[derive(Debug)]
struct Link {
    frames: Frames,
    /// Index of the peer's node in the step; None: the peer has not identified itself.
    place: Option<u32>,
    greeted: bool,
    broken: bool,
    tcp: bool,
}

#[derive(Debug)]
struct Call {
    waiting: Vec<PeerMessage>,
    again: Instant,
    pause: Duration,
}

/// Result of reading from the connections.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Received messages, each with the index of the sending node in the step.
    pub(super) messages: Vec<(u32, PeerMessage)>,
    /// Step daemons that can't be reached any more: indexes of their nodes in the step.
    pub(super) lost: Vec<u32>,
}

impl Heard {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.lost.is_empty()
    }
}

impl Mesh {
    /// Opens the listeners for other step daemons. `srun`: the link to the step's `srun`; None: the step has none.
    pub(super) fn open(kinship: Kinship, manner: Manner, srun: Option<&Frames>) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&kinship.address(kinship.here)?)?;
        listener.set_nonblocking(true)?;
        let wanted = manner.way == Way::Tcp || (manner.way == Way::Direct && kinship.far.is_some());
        let host = srun.and_then(Frames::own_address).map(|ip| ip.to_string()).or_else(|| kinship.far.clone());
        let (tcp, endpoint) = match (wanted, kinship.far.is_some(), host) {
            (true, true, Some(host)) if !host.is_empty() => listen("0.0.0.0", &host)?,
            (true, false, _) => listen("127.0.0.1", "127.0.0.1")?,
            _ => (None, String::new()),
        };
        let (links, calls, away, known, passes, letters, traffic) = Default::default();
        let born = Instant::now();
        let fast = None;
        Ok(Self {
            kinship,
            manner,
            listener,
            tcp,
            fast,
            endpoint,
            links,
            calls,
            away,
            known,
            passes,
            letters,
            traffic,
            born,
        })
    }

    /// Has UCX carry direct messages, under the user's settings for it. Err: why UCX can't be used.
    pub(super) fn hasten(&mut self, settings: &[(String, String)]) -> Result<(), String> {
        self.fast = Some(Fast::start(&self.kinship, settings)?);
        Ok(())
    }

    /// Whether step daemons may be on other machines.
    pub(super) fn is_far(&self) -> bool {
        self.kinship.far.is_some()
    }

    /// Returns the counters of messages and connections.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Connects to another step daemon before there is a message to send.
    pub(super) fn meet(&mut self, place: u32) {
        if matches!(self.manner.way, Way::Direct | Way::Tcp) {
            let message = self.introduction();
            self.send(place, message);
        }
    }

    fn introduction(&self) -> PeerMessage {
        PeerMessage::Endpoint {
            tcp: self.endpoint.clone(),
            ucx: self.fast.as_ref().map(Fast::address).unwrap_or_default(),
        }
    }

    /// Sends a message to another step daemon; one that can't be reached is reported by `tick`.
    pub(super) fn send(&mut self, place: u32, message: PeerMessage) {
        // UCX does not report when a message has arrived, so it carries only messages that are answered. A last message
        // is sent where it arrives before the end of the connection.
        let answered = matches!(
            message,
            PeerMessage::Up { .. } | PeerMessage::Ask { .. } | PeerMessage::Ping { .. } | PeerMessage::Pong { .. }
        );
        self.traffic.addresses += u64::from(is_address(&message));
        if answered && self.fast.as_mut().is_some_and(|fast| fast.send(place, &message)) {
            self.traffic.ucx += 1;
            return;
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.place == Some(place) && !link.broken) {
            *(if link.tcp { &mut self.traffic.tcp } else { &mut self.traffic.unix }) += 1;
            return link.frames.send(&message);
        }
        if self.manner.way == Way::Tree {
            self.traffic.by_nodes += 1;
            return self.letters.push((place, message));
        }
        if self.away.contains(&place) {
            return self.pass(place, message);
        }
        let call = self.calls.entry(place).or_insert_with(|| Call {
            waiting: Vec::new(),
            again: Instant::now(),
            pause: PAUSE,
        });
        call.waiting.push(message);
        if call.again <= Instant::now() {
            self.call(place);
        }
    }

    fn pass(&mut self, place: u32, message: PeerMessage) {
        self.traffic.relayed += 1;
        self.passes.push((place, message));
    }

    fn call(&mut self, place: u32) {
        let Some(mut call) = self.calls.remove(&place) else { return };
        let near = self.manner.way == Way::Direct;
        let stream =
            near.then(|| self.kinship.address(place).and_then(|at| UnixStream::connect_addr(&at)).ok()).flatten();
        let frames = stream.filter(|stream| self.kinship.trusts(stream)).and_then(|s| Frames::new(s).ok());
        if let Some(frames) = frames {
            let early = call.waiting.iter().all(|message| matches!(message, PeerMessage::Endpoint { .. }));
            *(if early { &mut self.traffic.early } else { &mut self.traffic.late }) += 1;
            self.connected(place, frames, false);
            call.waiting.into_iter().for_each(|message| self.send(place, message));
        } else if self.kinship.far.is_some() || !near {
            self.away.insert(place);
            if self.tcp.is_some() {
                let message = self.introduction();
                self.traffic.addresses += u64::from(is_address(&message));
                self.pass(place, message);
            }
            call.waiting.into_iter().for_each(|message| self.pass(place, message));
        } else {
            call.pause = (call.pause * 2).min(PAUSE_MAX);
            call.again = Instant::now() + call.pause;
            self.calls.insert(place, call);
        }
    }

    fn connected(&mut self, place: u32, mut frames: Frames, tcp: bool) {
        self.greet(&mut frames);
        self.links.push(Link { frames, place: Some(place), greeted: false, broken: false, tcp });
    }

    /// Handles the received address of another step daemon, connecting to it unless it is connected already.
    pub(super) fn introduced(&mut self, place: u32, tcp: &str, ucx: &[u8]) {
        if let Some(fast) = self.fast.as_mut().filter(|_| !ucx.is_empty()) {
            fast.meet(place, ucx);
        }
        let reached = self.links.iter().any(|link| link.place == Some(place) && !link.broken);
        if tcp.is_empty() || reached || self.tcp.is_none() || self.known.insert(place, tcp.to_owned()).is_some() {
            return;
        }
        let called = Pipe::dial(tcp, self.kinship.cookie, CALL);
        // Messages to one that can't be reached directly are relayed by `srun`, as before.
        if let Ok(pipe) = called {
            self.connected(place, Frames::over(pipe), true);
        }
    }

    /// Takes the messages that `srun` has to relay.
    pub(super) fn passes(&mut self) -> Vec<(u32, PeerMessage)> {
        std::mem::take(&mut self.passes)
    }

    /// Takes the messages to be sent through the tree.
    pub(super) fn letters(&mut self) -> Vec<(u32, PeerMessage)> {
        std::mem::take(&mut self.letters)
    }

    /// Retries connections that are due; returns lost step daemons, and messages received by UCX.
    pub(super) fn tick(&mut self) -> Heard {
        let now = Instant::now();
        let due: Vec<u32> = self.calls.iter().filter(|(_, call)| call.again <= now).map(|(place, _)| *place).collect();
        let mut heard = Heard::default();
        for place in due {
            self.call(place);
            if now.duration_since(self.born) > PATIENCE && self.calls.remove(&place).is_some() {
                heard.lost.push(place);
            }
        }
        heard.messages = self.fast.as_mut().map(Fast::take).unwrap_or_default();
        heard
    }

    /// Returns the time at which `tick` must be called next; None: no connection is to be retried.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.again).min()
    }

    /// Returns the descriptors to poll, with the events to wait for: first the listeners, then the connections.
    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_, ()>> {
        let fast = self.fast.as_ref().map(Fast::interest);
        let listeners = std::iter::once(self.listener.as_fd()).chain(self.tcp.as_ref().map(AsFd::as_fd)).chain(fast);
        let listeners = listeners.map(|fd| Interest::new((), fd, Some(PollFlags::IN)));
        listeners.chain(self.links.iter().map(|link| link.frames.interest(true)))
    }

    /// Handles the ready descriptor at index `at` of `interests`.
    pub(super) fn handle(&mut self, at: usize) -> Heard {
        let mut heard = Heard::default();
        let others = 1 + usize::from(self.tcp.is_some()) + usize::from(self.fast.is_some());
        let Some(at) = at.checked_sub(others) else {
            // Messages received by UCX are taken by `tick`.
            self.accept();
            return heard;
        };
        let cookie = self.kinship.cookie;
        let Some(link) = self.links.get_mut(at).filter(|link| !link.broken) else { return heard };
        link.frames.flush();
        let closed = link.frames.fill() == Filled::Closed;
        while let Ok(Some(message)) = link.take(&cookie) {
            if let (Some(place), false) = (link.place, matches!(message, PeerMessage::Hello { .. })) {
                heard.messages.push((place, message));
            }
        }
        link.broken |= closed;
        if link.broken {
            heard.lost.extend(link.place);
            if let (Some(place), Some(fast)) = (link.place, &mut self.fast) {
                fast.part(place);
            }
        }
        heard
    }

    /// Removes connections that have ended. The indexes of `interests` are different afterwards.
    pub(super) fn sweep(&mut self) {
        self.links.retain(|link| !link.broken);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.kinship.trusts(&stream)
                && let Ok(frames) = Frames::new(stream)
            {
                self.welcome(frames, false);
            }
        }
        while let Some(Ok((stream, _))) = self.tcp.as_ref().map(TcpListener::accept) {
            // The peer can be read only if it has the cookie.
            if let Ok(pipe) = Pipe::called(stream, self.kinship.cookie) {
                self.welcome(Frames::over(pipe), true);
            }
        }
    }

    fn greet(&mut self, frames: &mut Frames) {
        self.kinship.greet(frames);
        if self.fast.is_some() {
            self.traffic.addresses += 1;
            frames.send(&self.introduction());
        }
    }

    fn welcome(&mut self, mut frames: Frames, tcp: bool) {
        self.greet(&mut frames);
        self.links.push(Link { frames, place: None, greeted: false, broken: false, tcp });
    }

    /// Whether all queued messages were sent.
    pub(super) fn is_flushed(&self) -> bool {
        let links = self.links.iter().all(|link| link.broken || link.frames.backlog() == 0);
        links && self.fast.as_ref().is_none_or(Fast::is_flushed)
    }
}

/// Whether a message transfers an address that does not follow from the launch.
fn is_address(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Endpoint { tcp, ucx } if !tcp.is_empty() || !ucx.is_empty())
}

/// Listens on the address `on` of this machine; returns the listener, and the address `HOST:PORT` for other machines.
fn listen(on: &str, host: &str) -> io::Result<(Option<TcpListener>, String)> {
    let listener = TcpListener::bind((on, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((Some(listener), format!("{host}:{port}")))
}

impl Link {
    /// Returns the next message; None: it has not arrived completely. A message that is invalid, or not authenticated,
    /// breaks the link.
    fn take(&mut self, cookie: &[u8; 16]) -> io::Result<Option<PeerMessage>> {
        let taken = self.try_take(cookie);
        self.broken |= taken.is_err();
        taken
    }

    fn try_take(&mut self, cookie: &[u8; 16]) -> io::Result<Option<PeerMessage>> {
        if !self.greeted {
            match self.frames.take::<Hello>().map_err(io::Error::other)? {
                None => return Ok(None),
                Some(hello) => hello.agreed().map(|_| self.greeted = true).map_err(io::Error::other)?,
            }
        }
        let message = self.frames.take::<PeerMessage>().map_err(io::Error::other)?;
        match &message {
            Some(PeerMessage::Hello { cookie: shown, place }) => {
                if shown != cookie || self.place.is_some_and(|known| known != *place) {
                    return Err(io::Error::other("not a step daemon of this step"));
                }
                self.place = Some(*place);
            }
            Some(_) if self.place.is_none() => return Err(io::Error::other("it does not say who it is")),
            _ => {}
        }
        Ok(message)
    }
}
