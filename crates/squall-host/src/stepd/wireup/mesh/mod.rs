//! Connections between the step daemons of one step, made when there is something to say, or before (`early`). On one
//! machine where a step daemon listens follows from the launch: nothing is exchanged before. Between machines the first
//! words go by way of `srun`, to which all are connected, and with them where the speaker can be reached: from then on both
//! speak directly.

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
use fast::Fast;
pub(super) use manner::{Manner, Way, is_yes, said};

/// How long a step daemon may take to be there, counted from our own start: then it has come and gone, or never will come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two calls to one that is not there: at first, and at most.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// How long another machine may take to answer a call; then it is told by way of `srun`.
const CALL: Duration = Duration::from_secs(2);

/// What the step daemons of a step know of each other.
#[derive(Clone, Debug)]
pub(super) struct Kinship {
    /// The cookie of the launch, which only the step's own have.
    pub(super) cookie: [u8; 16],
    /// Whose step it is.
    pub(super) owner: u32,
    /// Our place in the layout.
    pub(super) here: u32,
    /// Others may be on other machines, and know this one by this name or address. Empty: by the one of `srun`'s connection.
    pub(super) far: Option<String>,
}

impl Kinship {
    /// Of a step's launch on this node.
    pub(super) fn of(launch: &StepLaunch, program: &TaskProgram) -> Self {
        let far = match &program.client {
            ClientAddress::Anywhere { address, .. } => address.rsplit_once(':').map(|(host, _)| host.to_owned()),
            ClientAddress::Tcp(_) => Some(String::new()),
            ClientAddress::None | ClientAddress::Abstract(_) => None,
        };
        Self { cookie: program.cookie, owner: launch.facts.owner.uid, here: launch.node_index, far }
    }

    /// A name for the step that no other has, and that tells nothing of the cookie.
    pub(super) fn name(&self) -> String {
        blake3::hash(&self.cookie).to_hex()[..32].to_owned()
    }

    /// What only those of the step can know, for `what`.
    pub(super) fn secret(&self, what: &str) -> blake3::Hash {
        blake3::keyed_hash(blake3::hash(&self.cookie).as_bytes(), what.as_bytes())
    }

    /// Where the step daemon at a place listens: a name that only those who know the cookie can tell.
    fn address(&self, place: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("squall-wireup-{}-{place}", self.name()))
    }

    /// Whether the other end is somebody who may be one of us.
    fn trusts(&self, stream: &UnixStream) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(stream).map(|c| c.uid.as_raw());
        peer.is_ok_and(|uid| uid == self.owner || uid == 0)
    }

    fn greet(&self, frames: &mut Frames) {
        frames.send(&Hello::new(Role::Step));
        frames.send(&PeerMessage::Hello { cookie: self.cookie, place: self.here });
    }
}

/// All connections of one step daemon.
#[derive(Debug)]
pub(super) struct Mesh {
    kinship: Kinship,
    manner: Manner,
    listener: UnixListener,
    /// For those of other machines, or all.
    tcp: Option<TcpListener>,
    /// UCX, if it is wanted and there.
    fast: Option<Fast>,
    /// Where that is: `HOST:PORT`.
    endpoint: String,
    links: Vec<Link>,
    /// Those who are not there yet, and what is for them.
    calls: BTreeMap<u32, Call>,
    /// Those who are told by way of `srun`, until they are reached directly.
    away: BTreeSet<u32>,
    /// Where those of other machines can be reached.
    known: BTreeMap<u32, String>,
    /// What `srun` is to pass on.
    passes: Vec<(u32, PeerMessage)>,
    /// What goes through the tree.
    letters: Vec<(u32, PeerMessage)>,
    traffic: Traffic,
    born: Instant,
}

/// Messages that were sent, by their way; connections that were made, and what had to be told for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// By way of `srun`.
    pub(super) relayed: u64,
    /// Through the tree of nodes.
    pub(super) by_nodes: u64,
    /// Over Unix sockets.
    pub(super) unix: u64,
    /// Over TCP.
    pub(super) tcp: u64,
    /// Over UCX.
    pub(super) ucx: u64,
    /// Connections made before there was anything to say.
    pub(super) early: u64,
    /// Connections made when there was.
    pub(super) late: u64,
    /// Addresses told: none where they follow from the launch.
    pub(super) addresses: u64,
}

#[derive(Debug)]
struct Link {
    frames: Frames,
    /// Who it is, when that is known.
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

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Frames, and from whom.
    pub(super) messages: Vec<(u32, PeerMessage)>,
    /// Who can't be reached any more.
    pub(super) lost: Vec<u32>,
}

impl Heard {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.lost.is_empty()
    }
}

impl Mesh {
    /// Listens. `srun` is our link to it.
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

    /// Has UCX carry what goes directly, under the user's settings for it. The error says why it does not.
    pub(super) fn hasten(&mut self, settings: &[(String, String)]) -> Result<(), String> {
        self.fast = Some(Fast::start(&self.kinship, settings)?);
        Ok(())
    }

    /// Whether others may be on other machines.
    pub(super) fn is_far(&self) -> bool {
        self.kinship.far.is_some()
    }

    /// What went which way.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Makes the connection to another, before there is anything to say.
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

    /// Tells another; who can't be reached is told by `tick`.
    pub(super) fn send(&mut self, place: u32, message: PeerMessage) {
        // UCX does not say when something has arrived: so it gets that to which an answer is waited for. A last word goes
        // where it comes before the end of the connection.
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

    /// Another says how it can be reached. Who has called us first is there already.
    pub(super) fn introduced(&mut self, place: u32, tcp: &str, ucx: &[u8]) {
        if let Some(fast) = self.fast.as_mut().filter(|_| !ucx.is_empty()) {
            fast.meet(place, ucx);
        }
        let reached = self.links.iter().any(|link| link.place == Some(place) && !link.broken);
        if tcp.is_empty() || reached || self.tcp.is_none() || self.known.insert(place, tcp.to_owned()).is_some() {
            return;
        }
        let called = Pipe::dial(tcp, self.kinship.cookie, CALL);
        // Who is not to be reached directly is told by way of `srun`, as before.
        if let Ok(pipe) = called {
            self.connected(place, Frames::over(pipe), true);
        }
    }

    /// What `srun` is to pass on.
    pub(super) fn passes(&mut self) -> Vec<(u32, PeerMessage)> {
        std::mem::take(&mut self.passes)
    }

    /// What is to go through the tree.
    pub(super) fn letters(&mut self) -> Vec<(u32, PeerMessage)> {
        std::mem::take(&mut self.letters)
    }

    /// Calls again those who were not there.
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

    /// When to `tick`.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.again).min()
    }

    /// What to poll for: the listeners first, then the connections.
    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_, ()>> {
        let fast = self.fast.as_ref().map(Fast::interest);
        let listeners = std::iter::once(self.listener.as_fd()).chain(self.tcp.as_ref().map(AsFd::as_fd)).chain(fast);
        let listeners = listeners.map(|fd| Interest::new((), fd, Some(PollFlags::IN)));
        listeners.chain(self.links.iter().map(|link| link.frames.interest(true)))
    }

    /// The interest at that place of the list has come true.
    pub(super) fn handle(&mut self, at: usize) -> Heard {
        let mut heard = Heard::default();
        let others = 1 + usize::from(self.tcp.is_some()) + usize::from(self.fast.is_some());
        let Some(at) = at.checked_sub(others) else {
            // What UCX has is taken by `tick`.
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

    /// Forgets connections that have ended. Not while places of the list are in use.
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
            // It is heard only if it knows the cookie.
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

    /// Whether nothing waits to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        let links = self.links.iter().all(|link| link.broken || link.frames.backlog() == 0);
        links && self.fast.as_ref().is_none_or(Fast::is_flushed)
    }
}

/// Whether it tells somebody what he could not know.
fn is_address(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Endpoint { tcp, ucx } if !tcp.is_empty() || !ucx.is_empty())
}

/// Listens on an address of this machine; that, and where others find it.
fn listen(on: &str, host: &str) -> io::Result<(Option<TcpListener>, String)> {
    let listener = TcpListener::bind((on, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((Some(listener), format!("{host}:{port}")))
}

impl Link {
    /// The next message. One that is not to be believed breaks the link.
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
