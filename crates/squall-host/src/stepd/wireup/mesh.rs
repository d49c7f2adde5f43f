//! Connections between the step daemons of one step, made when there is something to say. Where a step daemon listens
//! follows from the launch: nothing is exchanged before. Those who are not found on this machine, where the cluster has
//! others, are told by way of `srun`, to which all are connected.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use squall_model::codec::PROTOCOL_VERSION;
use squall_model::step::{ClientAddress, StepLaunch, TaskProgram};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::{Hello, Proof, Role};

use crate::stepd::frames::{Filled, Frames};

/// How long a step daemon may take to be there, counted from our own start: then it has come and gone, or never will come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two calls to one that is not there: at first, and at most.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What the step daemons of a step know of each other.
#[derive(Clone, Debug)]
pub(super) struct Kinship {
    /// The cookie of the launch, which only the step's own have.
    pub(super) cookie: [u8; 16],
    /// Whose step it is.
    pub(super) owner: u32,
    /// Our place in the layout.
    pub(super) here: u32,
    /// Others may be on other machines.
    pub(super) far: bool,
}

impl Kinship {
    /// Of a step's launch on this node.
    pub(super) fn of(launch: &StepLaunch, program: &TaskProgram) -> Self {
        let far = matches!(program.client, ClientAddress::Anywhere { .. } | ClientAddress::Tcp(_));
        Self { cookie: program.cookie, owner: launch.facts.owner.uid, here: launch.node_index, far }
    }

    /// A name for the step that no other has, and that tells nothing of the cookie.
    pub(super) fn name(&self) -> String {
        blake3::hash(&self.cookie).to_hex()[..32].to_owned()
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
        let cluster = String::new();
        frames.send(&Hello { protocol: PROTOCOL_VERSION, cluster, role: Role::Step, proof: Proof::Peer });
        frames.send(&PeerMessage::Hello { cookie: self.cookie, place: self.here });
    }
}

/// All connections of one step daemon.
#[derive(Debug)]
pub(super) struct Mesh {
    kinship: Kinship,
    listener: UnixListener,
    links: Vec<Link>,
    /// Those who are not there yet, and what is for them.
    calls: BTreeMap<u32, Call>,
    /// Those who are told by way of `srun`: from the first word on, so that none overtakes another.
    away: BTreeSet<u32>,
    /// What `srun` is to pass on.
    passes: Vec<(u32, PeerMessage)>,
    born: Instant,
}

#[derive(Debug)]
struct Link {
    frames: Frames,
    /// Who it is, when that is known.
    place: Option<u32>,
    greeted: bool,
    broken: bool,
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

impl Mesh {
    /// Listens.
    pub(super) fn open(kinship: Kinship) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&kinship.address(kinship.here)?)?;
        listener.set_nonblocking(true)?;
        let (links, calls, away, passes) = Default::default();
        Ok(Self { kinship, listener, links, calls, away, passes, born: Instant::now() })
    }

    /// Tells another; who can't be reached is told by `tick`.
    pub(super) fn send(&mut self, place: u32, message: PeerMessage) {
        if self.away.contains(&place) {
            return self.passes.push((place, message));
        }
        let known = self.links.iter_mut().find(|link| link.place == Some(place) && !link.broken);
        if let Some(link) = known {
            return link.frames.send(&message);
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

    fn call(&mut self, place: u32) {
        let Some(mut call) = self.calls.remove(&place) else { return };
        let stream = self.kinship.address(place).and_then(|address| UnixStream::connect_addr(&address));
        let frames = stream.ok().filter(|stream| self.kinship.trusts(stream)).and_then(|s| Frames::new(s).ok());
        if let Some(mut frames) = frames {
            self.kinship.greet(&mut frames);
            for message in call.waiting {
                frames.send(&message);
            }
            self.links.push(Link { frames, place: Some(place), greeted: false, broken: false });
        } else if self.kinship.far {
            self.away.insert(place);
            self.passes.extend(call.waiting.into_iter().map(|message| (place, message)));
        } else {
            call.pause = (call.pause * 2).min(PAUSE_MAX);
            call.again = Instant::now() + call.pause;
            self.calls.insert(place, call);
        }
    }

    /// What `srun` is to pass on.
    pub(super) fn passes(&mut self) -> Vec<(u32, PeerMessage)> {
        std::mem::take(&mut self.passes)
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
        heard
    }

    /// When to `tick`.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.again).min()
    }

    /// What to poll for: the listener first, then the connections.
    pub(super) fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listener = std::iter::once((self.listener.as_fd(), PollFlags::IN));
        listener.chain(self.links.iter().map(|link| {
            let out = if link.frames.backlog() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            (link.frames.as_fd(), PollFlags::IN | out)
        }))
    }

    /// The interest at that place of the list has come true.
    pub(super) fn handle(&mut self, at: usize) -> Heard {
        let mut heard = Heard::default();
        let Some(at) = at.checked_sub(1) else {
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
        }
        heard
    }

    /// Forgets connections that have ended. Not while places of the list are in use.
    pub(super) fn sweep(&mut self) {
        self.links.retain(|link| !link.broken);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if !self.kinship.trusts(&stream) {
                continue;
            }
            let Ok(mut frames) = Frames::new(stream) else { continue };
            self.kinship.greet(&mut frames);
            self.links.push(Link { frames, place: None, greeted: false, broken: false });
        }
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.links.iter().all(|link| link.broken || link.frames.backlog() == 0)
    }
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
                Some(hello) if hello.protocol == PROTOCOL_VERSION => self.greeted = true,
                Some(hello) => return Err(io::Error::other(format!("it speaks protocol {}", hello.protocol))),
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
