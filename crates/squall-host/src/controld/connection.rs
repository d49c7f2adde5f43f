//! Connections: handshake, identity, limits. Each is served by a task of its own, which can't disturb others. Clients
//! and nodes of this machine connect to a Unix socket, daemons of other machines by TCP (`remote`).

mod phase;
mod remote;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall_engine::control::Who;
use squall_files::users;
use squall_model::config::Config;
use squall_model::encoding;
use squall_model::id::JobId;
use squall_model::job::JobAttempt;
use squall_model::power::PowerPhase;
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, AnyRequest, HostRequest, JobRef, Refusal};
use squall_model::wire::fabric::UpFrame;
use squall_model::wire::hook::Hook;
use squall_model::wire::info::ControllerInfo;
use squall_model::wire::join::{BEARER, Bearer, SOCKET, VOUCHED, Vouched};
use squall_model::wire::{Hello, Leader, Proof, Role};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::fair::Source;
use super::filter::{FilterEvent, Filters};
use super::programs::Programs;
use super::room::Room;
use super::signing_keys::SigningKeys;
use super::{groups, token_key};
use crate::auth::{Account, Authority, Claim, Hosts, Users, is_operator};
use crate::bearer::{Bearers, Borne};
use crate::cgroup::member;
use crate::hop::{self, Reader, Writer};
use crate::link::{self, Outgoing};
use crate::proxy;
use crate::sys::clock;
use crate::sys::peer::peer_of;

pub(super) use phase::Others;
use phase::Phase;
pub(super) use remote::Gate;

/// Most arrivals (events of connections) that may wait in each of the two queues, one for nodes and one for users.
/// Further ones are left unread in their sockets.
const ARRIVALS_MAX: usize = 4096;
/// Number of connections at once, at most.
const CONNECTIONS_MAX: usize = 16 << 10;
/// Most connections at once of one user who is not an operator.
const CONNECTIONS_OF_USER_MAX: usize = CONNECTIONS_MAX / 8;
/// Most connections at once of one machine that forwards its users' requests.
const CONNECTIONS_OF_HOST_MAX: usize = CONNECTIONS_MAX / 8;
/// Most connections at once of a machine that has joined, apart from those of its commands: a daemon needs two, and those
/// from before a cut of the network stand for half a minute.
const CONNECTIONS_OF_DAEMON_MAX: usize = 16;
/// Most bytes that may be queued for sending to one node.
const OUTGOING_BYTES_MAX: usize = 512 << 20;
/// Time within which a peer must send its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Longest time between two looks at the clock for the expiry of a token, seconds.
const EXPIRY_POLL_S: u64 = 60;
/// Time within which a client must send its first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_mins(1);

/// An event of a connection, for the controller's thread. Connection ids (`id`) are never reused within a run.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A peer has sent a valid greeting.
    Opened {
        id: u64,
        kind: PeerKind,
        out: Outgoing,
    },
    Asked {
        id: u64,
        who: Who,
        /// The machine that vouches for the user's identity; None: the kernel does.
        via: Option<Via>,
        request: AnyRequest,
        /// When the request was received.
        at: Instant,
        /// The request's part of its user's allowances; dropped when the request is decided.
        claim: Claim,
    },
    Frame {
        id: u64,
        /// The node that sent it, by which it is charged.
        node: Arc<str>,
        frame: Box<UpFrame>,
        /// Length of the frame, bytes.
        bytes: usize,
        /// The frame's part of its node's allowances; dropped when the frame is handled.
        claim: Claim,
    },
    Closed {
        id: u64,
        kind: PeerKind,
    },
    /// The multicast sender has sent the last piece of a window of the stream `stream`.
    CastOut {
        stream: u64,
    },
    /// A program around a job has ended.
    ProgramEnded {
        job: JobAttempt,
        hook: Hook,
        error: Option<String>,
    },
    /// A program for the power of nodes has ended.
    PowerProgramEnded {
        phase: PowerPhase,
        nodes: NodeSet,
    },
    /// Which users have jobs?
    UsersSought {
        users: oneshot::Sender<Vec<u32>>,
    },
    /// The groups of users with jobs, as their accounts have them.
    Groups {
        users: Vec<(u32, Vec<u32>)>,
    },
    /// The submit filter reports.
    Filter(Box<FilterEvent<Held>>),
    /// A machine wants to join as this node: is one of this name connected?
    Sought {
        node: String,
        connected: oneshot::Sender<bool>,
    },
}

impl Arrival {
    /// Returns the node or user that caused this event; None: the controller itself caused it.
    pub(super) fn source(&self) -> Option<Source> {
        match self {
            Self::Opened { id, kind, .. } | Self::Closed { id, kind } => Some(kind.source(*id)),
            Self::Asked { who, .. } => Some(Source::User(who.owner.uid)),
            Self::Frame { node, .. } => Some(Source::Node(Arc::clone(node))),
            Self::Filter(_)
            | Self::CastOut { .. }
            | Self::Sought { .. }
            | Self::UsersSought { .. }
            | Self::Groups { .. }
            | Self::ProgramEnded { .. }
            | Self::PowerProgramEnded { .. } => None,
        }
    }

    /// Returns the id of the connection to which this event belongs; 0: to none.
    pub(super) fn connection(&self) -> u64 {
        match self {
            Self::Opened { id, .. } | Self::Asked { id, .. } | Self::Closed { id, .. } | Self::Frame { id, .. } => *id,
            Self::Filter(_)
            | Self::CastOut { .. }
            | Self::ProgramEnded { .. }
            | Self::PowerProgramEnded { .. }
            | Self::Sought { .. }
            | Self::UsersSought { .. }
            | Self::Groups { .. } => 0,
        }
    }
}

/// A request that has arrived (`Arrival::Asked`).
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) who: Who,
    pub(super) via: Option<Via>,
    pub(super) request: AnyRequest,
    pub(super) at: Instant,
    /// None: another one has it.
    pub(super) claim: Option<Claim>,
    /// Jobs to change of which the submit filter sees each: what names them, and their ids. Empty: it changes none.
    pub(super) changes: Vec<(JobRef, JobId)>,
}

/// What waits for the submit filter.
#[derive(Debug)]
pub(super) enum Held {
    /// A submission or a change of jobs.
    Asked(Asked),
    /// A new configuration, which names a script.
    Reconfigure { id: u64, who: Who, config: Box<Config> },
}

impl Held {
    /// Returns the connection that waits.
    pub(super) fn id(&self) -> u64 {
        let (Self::Asked(Asked { id, .. }) | Self::Reconfigure { id, .. }) = self;
        *id
    }
}

/// A machine that vouches for the identity of its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Via {
    /// The machine's name.
    pub(super) host: Arc<str>,
    /// Whether it is a login host. Otherwise it is a node, and vouches for users with a job there.
    pub(super) login: bool,
    /// Whether it is a further controller of the cluster.
    pub(super) controller: bool,
}

/// Senders of the arrival queues. Nodes have a queue of their own, so that no number of clients can delay them.
#[derive(Clone, Debug)]
struct Arrivals {
    nodes: mpsc::Sender<Arrival>,
    users: mpsc::Sender<Arrival>,
}

/// Receivers of the arrival queues, read by the controller's thread.
pub(super) struct Inbox {
    /// Events of the connections of nodes.
    pub(super) nodes: mpsc::Receiver<Arrival>,
    /// Events of the connections of clients.
    pub(super) users: mpsc::Receiver<Arrival>,
}

/// The kind of a connection's peer: client or node daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PeerKind {
    /// A client.
    Client {
        /// The user's id.
        uid: u32,
        /// Whether the client may outlive its connection, as it comes through another daemon.
        away: bool,
    },
    /// A node daemon. Some: it is on another machine, and its key proves this node name; its messages may only concern
    /// that node and the nodes below it in the tree. None: it is on this machine.
    Node(Option<String>),
}

impl PeerKind {
    fn source(&self, id: u64) -> Source {
        match self {
            Self::Client { uid, .. } => Source::User(*uid),
            Self::Node(name) => Source::Node(charged(name.as_deref(), id)),
        }
    }
}

/// Returns the name by which a child in the tree is charged. Those of this machine are the owner's own: each connection
/// counts for itself.
fn charged(name: Option<&str>, id: u64) -> Arc<str> {
    name.map_or_else(|| format!("connection {id}").into(), Arc::from)
}

/// Accepts connections and limits their number.
#[derive(Debug)]
pub(super) struct Acceptor {
    cluster: Arc<str>,
    /// The keys of this controller.
    ring: SigningKeys,
    last: AtomicU64,
    arrivals: Arrivals,
    authority: Arc<Authority>,
    seats: Arc<Semaphore>,
    /// Permits for connections of clients; fewer than all, so that nodes find some left.
    clients: Arc<Semaphore>,
    users: Users,
    hosts: Hosts,
    /// Limits the connections and frames of each machine that has joined, apart from those of commands.
    machines: Hosts,
    bearers: Bearers,
    /// Whether it matters in which job a command runs, as a node vouched for the user of some job.
    marks: Arc<AtomicBool>,
    /// The controllers of the cluster, if it has several.
    others: Option<Others>,
    phase: watch::Sender<Phase>,
    room: Room,
}

impl Acceptor {
    /// Makes the acceptor and the queues of its arrivals. `files`: how many files the process may have open. A quarter of
    /// them is reserved for the journal and other files, and an eighth of the connections for nodes. `others`: the
    /// controllers of the cluster, if it has several.
    pub(super) fn new(
        (cluster, ring): (String, SigningKeys),
        files: usize,
        bearers: Bearers,
        others: Option<Others>,
    ) -> (Arc<Self>, Inbox) {
        let (to_nodes, nodes) = mpsc::channel(ARRIVALS_MAX);
        let (to_users, users_inbox) = mpsc::channel(ARRIVALS_MAX);
        let arrivals = Arrivals { nodes: to_nodes, users: to_users };
        let inbox = Inbox { nodes, users: users_inbox };
        let most = CONNECTIONS_MAX.min(files - files / 4);
        let seats = Arc::new(Semaphore::new(most));
        let clients = Arc::new(Semaphore::new(most - most / 8));
        let users = Users::within(CONNECTIONS_OF_USER_MAX, files);
        let hosts = Hosts::of_machines(CONNECTIONS_OF_HOST_MAX, files);
        let machines = Hosts::of_daemons(CONNECTIONS_OF_DAEMON_MAX);
        let (cluster, last, authority) = (cluster.into(), AtomicU64::new(0), Arc::default());
        let (phase, room) = (watch::channel(Phase::Leads(None)).0, Room::default());
        let acceptor = Self {
            cluster,
            ring,
            last,
            arrivals,
            authority,
            seats,
            clients,
            users,
            hosts,
            machines,
            bearers,
            marks: Arc::default(),
            others,
            phase,
            room,
        };
        (Arc::new(acceptor), inbox)
    }

    /// Returns what says whether it matters in which job a command runs.
    pub(super) fn marks(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.marks)
    }

    /// Looks up the groups of users with jobs from now on, if jobs run as their users.
    pub(super) fn look_up_groups(&self) {
        if users::is_root() {
            tokio::task::spawn_local(groups::look_up(self.arrivals.nodes.clone()));
        }
    }

    /// From now on this controller leads, in the term of this number. None: it is the only one.
    pub(super) fn lead(&self, term: Option<u64>) {
        if let (Some(others), Some(term)) = (&self.others, term) {
            // The others ask for it from now on, so a token is good at each of them as soon as it is made.
            if let Err(e) = self.bearers.key() {
                tracing::error!(error = %e, "the key of tokens can't be made: no token is good until it can");
            }
            others.controllers.note(&Leader { address: others.address.clone(), term });
        }
        self.phase.send_replace(Phase::Leads(term));
    }

    /// Returns the word on the log's room, which commands are told.
    pub(super) fn room(&self) -> Room {
        self.room.clone()
    }

    /// Takes in why etcd takes nothing, for commands that find no controller which leads. None: it does.
    pub(super) fn explain(&self, why: Option<String>) {
        if let Some(others) = &self.others {
            others.controllers.explain(why.map(|why| format!("etcd: {why}")));
        }
    }

    /// Takes in what is known of all controllers, for commands that ask.
    pub(super) fn tell(&self, controllers: Vec<ControllerInfo>) {
        if let Some(others) = &self.others {
            others.tell(controllers);
        }
    }

    /// From now on this controller follows `leader`; None: none leads. `as_of`: when its state was last known to be up
    /// to date; None: it has no state yet.
    pub(super) fn follow(&self, leader: Option<&Leader>, as_of: Option<Instant>) {
        if let (Some(others), Some(leader)) = (&self.others, leader) {
            others.controllers.note(leader);
        }
        // Those who watch are told when there is another leader, not at each record.
        self.phase.send_if_modified(|phase| phase.follow(leader, as_of));
    }

    /// Has this controller, while it follows, sign and check tokens by the key of the one that leads.
    pub(super) async fn keep_token_key(self: Arc<Self>) {
        if let Some(others) = &self.others {
            token_key::keep(others, &self.bearers).await;
        }
    }

    /// Returns what runs programs around jobs, and reports their ends like events of nodes.
    pub(super) fn programs(&self) -> Programs {
        Programs::reporting_to(self.arrivals.nodes.clone())
    }

    /// Returns what runs the submit filter, and reports like nodes.
    pub(super) fn filters(&self) -> Filters<Held> {
        Filters::reporting_to(self.arrivals.nodes.clone(), Arrival::Filter)
    }

    /// Returns a function that reports, from any thread, that the last piece of a multicast window was sent.
    pub(super) fn cast_out(&self) -> impl Fn(u64) + Send + 'static {
        let arrivals = self.arrivals.nodes.clone();
        // Sending fails only if the controller has ended.
        move |stream| drop(arrivals.blocking_send(Arrival::CastOut { stream }))
    }

    /// Accepts connections of this machine, without end.
    pub(super) async fn accept(self: Arc<Self>, listener: UnixListener) {
        loop {
            let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::error!(error = %e, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let guest = self.guest();
            tokio::spawn(async move {
                // An error ends this connection only.
                drop(guest.serve(stream).await);
                drop(seat);
            });
        }
    }

    /// Accepts connections of other machines, without end.
    pub(super) async fn accept_remote(self: Arc<Self>, listener: TcpListener, gate: Gate) {
        remote::accept(self, listener, gate).await;
    }

    fn guest(&self) -> Guest {
        Guest {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            cluster: Arc::clone(&self.cluster),
            ring: self.ring.clone(),
            arrivals: self.arrivals.clone(),
            authority: Arc::clone(&self.authority),
            clients: Arc::clone(&self.clients),
            users: self.users.clone(),
            hosts: self.hosts.clone(),
            machines: self.machines.clone(),
            bearers: self.bearers.clone(),
            marks: Arc::clone(&self.marks),
            others: self.others.clone(),
            phase: self.phase.subscribe(),
            room: self.room.clone(),
        }
    }
}

/// One connection being served.
struct Guest {
    id: u64,
    cluster: Arc<str>,
    ring: SigningKeys,
    arrivals: Arrivals,
    authority: Arc<Authority>,
    clients: Arc<Semaphore>,
    users: Users,
    hosts: Hosts,
    machines: Hosts,
    bearers: Bearers,
    marks: Arc<AtomicBool>,
    others: Option<Others>,
    phase: watch::Receiver<Phase>,
    room: Room,
}

impl Guest {
    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        link::make_room(&stream);
        let peer = stream.peer_cred()?;
        let Some(entered) = self.users.enter(peer.uid()) else { return Ok(()) };
        let (mut reader, mut writer) = hop::local(stream)?;
        let Some(hello) = greeting(&mut reader).await? else { return Ok(()) };
        let leader = self.leader();
        if let (Role::Node(_), Some(others)) = (&hello.role, leader) {
            let may = is_operator(peer.uid()) && hello.proof == Proof::Peer && self.understands(&hello);
            return if may {
                proxy::node(&others.controllers, (&mut reader, &mut writer), hello).await
            } else {
                Ok(())
            };
        }
        let asks_this = matches!(hello.role, Role::Reader(_));
        link::write(&mut writer, &self.hello(asks_this)).await?;
        if !self.understands(&hello) {
            return Ok(());
        }
        match hello.role {
            Role::Client(_) | Role::Reader(_) => {
                let Ok(_seat) = self.clients.try_acquire() else { return Ok(()) };
                let ClientIdentity { uid, gid, job, until, link, over_http, relayed } =
                    match self.known(&hello.proof, &reader, peer).await? {
                        Ok(named) => named,
                        Err(problem) => return link::deny(&mut reader, &mut writer, Refusal::BadToken(problem)).await,
                    };
                if let Some(borne) = link {
                    return self.exchange(&mut reader, &mut writer, &borne).await;
                }
                let other = hello.proof != Proof::Peer;
                let Ok(also) = other.then(|| self.users.enter(uid).ok_or(())).transpose() else { return Ok(()) };
                let who = Who { job, ..self.identify(uid, gid).await? };
                if let Some(others) = leader.filter(|_| !asks_this) {
                    let root = rustix::process::geteuid().is_root();
                    let vouched = Vouched { node: others.name.clone(), uid, gid, owner: !root, over_http, job };
                    let near = (&mut reader, &mut writer);
                    return tokio::select! {
                        done = proxy::command(&others.controllers, near, hello, &vouched, true) => done,
                        done = expired(until) => done,
                    };
                }
                let account = also.as_ref().unwrap_or(&entered).account();
                let way = RequestOrigin { via: None, relayed, over_http };
                self.converse(&mut reader, writer, &who, way, account, expired(until)).await
            }
            Role::Node(_) if is_operator(peer.uid()) && hello.proof == Proof::Peer => {
                let out = Outgoing::new(OUTGOING_BYTES_MAX);
                let node = charged(None, self.id);
                let Some(machine) = self.machines.enter_from(&node) else { return Ok(()) };
                self.talk(writer, PeerKind::Node(None), out, self.frames(&mut reader, &node, machine.allowances()))
                    .await
            }
            Role::Node(_) | Role::Controller | Role::Step | Role::Enquirer(_) | Role::Standby(_) => Ok(()),
        }
    }

    /// Returns this controller's greeting. If it follows: for a peer that wants to know that (`as_standby`), otherwise
    /// in the leader's name, to which the peer is passed on.
    fn hello(&self, as_standby: bool) -> Hello {
        let (role, term) = match (&*self.phase.borrow(), &self.others) {
            (Phase::Leads(term), _) => (Role::Controller, *term),
            (following, Some(others)) if as_standby => (Role::Standby(following.standby(&others.name)), None),
            _ => (Role::Controller, None),
        };
        let (cluster, (key, signer)) = (self.cluster.to_string(), self.ring.public());
        Hello { cluster, term, signer: Some(signer), key: Some(key), ..Hello::new(role) }
    }

    /// Returns the way to the controller that leads. None: this one leads.
    fn leader(&self) -> Option<&Others> {
        if matches!(*self.phase.borrow(), Phase::Leads(_)) { None } else { self.others.as_ref() }
    }

    fn understands(&self, hello: &Hello) -> bool {
        hello.agreed().is_ok() && (hello.cluster.is_empty() || *hello.cluster == *self.cluster)
    }

    /// Returns the user as whom a client may act: the one that the kernel reports, the one for whom a front run by an
    /// operator vouches, the one of a token, or, for the HTTP server, the peer of a connection that it has accepted. Inner
    /// Err: why a token is not accepted.
    async fn known(&self, proof: &Proof, reader: &Reader, peer: UCred) -> io::Result<Result<ClientIdentity, String>> {
        let (scheme, bytes) = match proof {
            Proof::Peer => {
                let job = self.job_of(peer.pid())?;
                return Ok(Ok(ClientIdentity { job, ..ClientIdentity::of(peer.uid(), peer.gid()) }));
            }
            Proof::Scheme(scheme, bytes) => (scheme.as_str(), bytes),
        };
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        match scheme {
            VOUCHED if is_operator(peer.uid()) => {
                let vouched: Vouched = encoding::from_slice(bytes).map_err(invalid)?;
                Ok(Ok(ClientIdentity {
                    relayed: true,
                    job: vouched.job,
                    ..ClientIdentity::of(vouched.uid, vouched.gid)
                }))
            }
            BEARER => {
                let bearer: Bearer = encoding::from_slice(bytes).map_err(invalid)?;
                let bearers = self.bearers.clone();
                let borne = tokio::task::spawn_blocking(move || bearers.user(&bearer)).await;
                let named = |borne: Borne| {
                    let (uid, gid, until) = (borne.user.uid, borne.user.gid, Some(borne.until_s));
                    ClientIdentity {
                        until,
                        link: borne.link.is_some().then_some(borne),
                        over_http: true,
                        ..ClientIdentity::of(uid, gid)
                    }
                };
                Ok(borne.map_err(io::Error::other)?.map(named))
            }
            SOCKET => {
                let server = self.bearers.server(bytes)?;
                let socket = timeout(GREETING_TIME, reader.descriptor()).await;
                let socket = socket.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                let (uid, gid) = self.bearers.peer_of(&server, &socket)?;
                let job = self.job_of(peer_of(&socket)?.pid.map(u32::cast_signed))?;
                Ok(Ok(ClientIdentity { over_http: true, job, ..ClientIdentity::of(uid, gid) }))
            }
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Returns the job in which a process of this machine runs. None: it runs in none, or that does not matter.
    fn job_of(&self, pid: Option<i32>) -> io::Result<Option<JobId>> {
        let matters = self.marks.load(Ordering::Relaxed) || self.leader().is_some();
        if matters { member::job_of(pid) } else { Ok(None) }
    }

    /// Serves a client with the token of a link: it gets another token for it, once.
    async fn exchange(&self, reader: &mut Reader, writer: &mut Writer, borne: &Borne) -> io::Result<()> {
        let first = timeout(GREETING_TIME, link::read::<AnyRequest>(reader)).await;
        let refused = |why: &str| Answer::Refused(Refusal::BadToken(why.to_owned()));
        let answer = match first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            None => return Ok(()),
            Some(AnyRequest::Host(HostRequest::Token { user: None, lifespan_s, link: false })) => {
                match self.bearers.exchange(borne, lifespan_s, clock::now().0 / 1_000_000)? {
                    Some(token) => Answer::Token(token),
                    None => refused("the link was used already; `squall web` makes another"),
                }
            }
            Some(_) => refused("the token is that of a link, which is for logging in only"),
        };
        link::write(writer, &answer).await
    }

    async fn identify(&self, uid: u32, gid: u32) -> io::Result<Who> {
        if !rustix::process::geteuid().is_root() && !is_operator(uid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if let Some(who) = self.authority.known(uid, gid) {
            return Ok(who);
        }
        let authority = Arc::clone(&self.authority);
        tokio::task::spawn_blocking(move || authority.look_up(uid, gid)).await.map_err(io::Error::other)
    }

    /// Serves a client until it disconnects or `until` ends.
    async fn converse(
        &self,
        reader: &mut Reader,
        writer: Writer,
        who: &Who,
        way: RequestOrigin<'_>,
        account: &Account,
        until: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let out = Outgoing::of(account);
        let requests = async {
            tokio::select! {
                done = self.requests(reader, who, way, account, &out) => done,
                done = until => done,
            }
        };
        let kind = PeerKind::Client { uid: who.owner.uid, away: way.relayed };
        self.talk(writer, kind, out.clone(), requests).await
    }

    /// Receives and sends messages in parallel, until either ends.
    async fn talk(
        &self,
        mut writer: Writer,
        kind: PeerKind,
        out: Outgoing,
        reading: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        self.arrive(Arrival::Opened { id: self.id, kind: kind.clone(), out: out.clone() }).await?;
        let result = tokio::select! {
            read = reading => read,
            written = out.pump(&mut writer) => written,
        };
        out.close();
        self.arrive(Arrival::Closed { id: self.id, kind }).await?;
        result
    }

    /// Queues a client's requests for the controller, as long as the client reads the answers.
    async fn requests(
        &self,
        reader: &mut Reader,
        who: &Who,
        way: RequestOrigin<'_>,
        account: &Account,
        out: &Outgoing,
    ) -> io::Result<()> {
        let first = timeout(FIRST_REQUEST_TIME, link::read_of::<AnyRequest>(reader, account)).await;
        let mut next = first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        while let Some((request, claim)) = next {
            if let Some(answer) = self.at_once(&request, way) {
                out.push(&answer).map_err(io::Error::other)?;
            } else if let Some(refusal) = self.room.refusal(&request) {
                out.push(&Answer::Refused(refusal)).map_err(io::Error::other)?;
            } else {
                let (id, who, via) = (self.id, who.clone(), way.via.cloned());
                let at = Instant::now();
                self.arrive(Arrival::Asked { id, who, via, request, at, claim }).await?;
            }
            out.room().await;
            next = link::read_of(reader, account).await?;
        }
        Ok(())
    }

    /// Returns the answer to a request that needs no state. None: the controller answers.
    fn at_once(&self, request: &AnyRequest, way: RequestOrigin<'_>) -> Option<Answer> {
        match request {
            AnyRequest::Host(HostRequest::Controllers) => {
                let all = self.others.as_ref().map(|others| others.roll(&self.phase.borrow()));
                Some(Answer::Controllers(all.unwrap_or_default()))
            }
            AnyRequest::Host(HostRequest::Token { .. }) if way.over_http => {
                let why = "no token is made over HTTP, nor by another token: `scontrol token` makes one";
                Some(Answer::Refused(Refusal::BadToken(why.to_owned())))
            }
            _ => None,
        }
    }

    /// Queues the frames of a child in the tree for the controller. A child whose frames wait is not read any further.
    async fn frames(&self, reader: &mut Reader, node: &Arc<str>, account: &Account) -> io::Result<()> {
        while let Some((frame, bytes)) = link::read_sized::<UpFrame>(reader).await? {
            let claim = account.claim(bytes).await;
            let (id, node, frame) = (self.id, Arc::clone(node), Box::new(frame));
            self.arrive(Arrival::Frame { id, node, frame, bytes, claim }).await?;
        }
        Ok(())
    }

    async fn arrive(&self, arrival: Arrival) -> io::Result<()> {
        let of_user = matches!(arrival.source(), Some(Source::User(_)));
        let to = if of_user { &self.arrivals.users } else { &self.arrivals.nodes };
        to.send(arrival).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// How the requests of a client come.
#[derive(Clone, Copy)]
struct RequestOrigin<'a> {
    /// The machine from which they come. None: this one.
    via: Option<&'a Via>,
    /// Whether a daemon passes them on: that of another machine, or a front. If it dies, the client comes back.
    relayed: bool,
    /// Whether the client's user is known by a token, or by the HTTP server's word. With a stolen token no longer one can
    /// be made.
    over_http: bool,
}

/// A user as whom a client may act, and when that ends, seconds since 1970 (None: with the connection).
struct ClientIdentity {
    uid: u32,
    gid: u32,
    /// The job in which the client runs. None: it runs in none, or that is not known.
    job: Option<JobId>,
    until: Option<u64>,
    /// The client's token, if it is that of a link, which may only be exchanged.
    link: Option<Borne>,
    /// Whether a token or the HTTP server says who it is, and not the kernel.
    over_http: bool,
    /// Whether a front passes the client's requests on.
    relayed: bool,
}

impl ClientIdentity {
    fn of(uid: u32, gid: u32) -> Self {
        Self { uid, gid, job: None, until: None, link: None, over_http: false, relayed: false }
    }
}

/// Waits until the time `until_s` has passed (seconds since 1970); None: without end.
async fn expired(until_s: Option<u64>) -> io::Result<()> {
    let Some(until_s) = until_s else { return std::future::pending().await };
    loop {
        let left_s = until_s.saturating_sub(clock::now().0 / 1_000_000);
        if left_s == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tokio::time::sleep(Duration::from_secs(left_s.min(EXPIRY_POLL_S))).await;
    }
}

async fn greeting(reader: &mut Reader) -> io::Result<Option<Hello>> {
    let greeting = timeout(GREETING_TIME, link::read_greeting(reader)).await;
    greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
