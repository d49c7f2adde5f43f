//! The node daemon's connections in the tree: one to its parent, and listeners for its children.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use squall_engine::fabric::scope::Scope;
use squall_engine::fabric::{Dial, NetInput, NetOut};
use squall_files::place::SocketPath;
use squall_model::codec;
use squall_model::config::Config;
use squall_model::encoding::{Decoded, Encoded};
use squall_model::rotation::ControllerKeys;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Chunk, UpFrame};
use squall_model::wire::join::PublicKey;
use squall_model::wire::proof::SignerKey;
use squall_model::wire::{Hello, Role};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::Sender;
use tracing::{error, info, warn};

use super::Event;
use super::beside::Besides;
use super::reach::Reach;
use crate::auth::is_operator;
use crate::hop::{self, Reader, Writer};
use crate::leader::{Controllers, Met};
use crate::link::{Outgoing, make_room, read, write};
use crate::local::Direct;
use crate::strangers::{Stranger, Strangers};

/// Time within which the peer must send its greeting.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// Most bytes that may be queued for one connection.
const LINK_BYTES_MAX: usize = 512 << 20;

/// Most children at once: more than any tree has, as nodes connect here too when their own parents have died.
const CHILDREN_MAX: usize = 4096;

/// Most connections at once that are not authenticated yet.
const STRANGERS_MAX: usize = 64;

/// An event of the daemon's connections.
pub(super) enum NetEvent {
    /// The attempt to connect to a parent has ended: the connection and to which parent it leads, or the error.
    Dialled(io::Result<(Conversation, Dial)>),
    /// A child has sent its greeting.
    Child(Conversation),
    /// Input from the parent, over the connection of this number.
    Parent(u32, NetInput),
    /// Input from a child, over the connection of this number.
    FromChild(u32, NetInput),
    /// The connection of this number has ended.
    Ended(u32),
    /// A piece of a file was received by multicast.
    Heard(Chunk),
}

/// A connection after the greetings, before it is served.
pub(super) struct Conversation {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Name and key of a child of another machine. The connection is closed when the key is revoked.
    key: Option<(String, PublicKey)>,
    /// Number of the term in which the peer leads, if it is one of several controllers. Otherwise 0.
    term: u64,
    /// The controllers, if the peer is one of several. The connection is closed when another one leads.
    controllers: Option<Controllers>,
    /// The key with which the peer signs, if it is a controller that does.
    pub(super) signer: Option<SignerKey>,
    /// The peer's public key, if it is a controller that says it.
    pub(super) theirs: Option<PublicKey>,
}

impl Conversation {
    fn new(reader: Reader, writer: Writer) -> Self {
        Self { reader, writer, key: None, term: 0, controllers: None, signer: None, theirs: None }
    }

    /// Makes the conversation with a controller that leads.
    pub(super) fn with_leader(met: Met, controllers: Controllers) -> Self {
        let (term, signer, theirs) = (met.term, met.hello.signer, met.hello.key);
        Self { term, signer, theirs, ..Self::new(met.reader, met.writer) }.among(controllers)
    }

    /// Returns the conversation with one of these controllers.
    pub(super) fn among(self, controllers: Controllers) -> Self {
        Self { controllers: Some(controllers), ..self }
    }
}

/// Handle of a served connection. Dropping it closes the connection after all queued frames were sent.
struct Link {
    /// Queue of at most [`LINK_BYTES_MAX`] bytes. The daemon never waits for a peer: one that reads too slowly is
    /// disconnected, and connects again. So no two daemons can wait for each other.
    out: Outgoing,
    /// For a peer on this machine: writes what fits into the kernel's buffer at once, without the queue. None: the peer
    /// is on another machine.
    direct: Option<Direct>,
}

impl Link {
    fn send(&self, frame: &impl Encoded) {
        let mut bytes = Vec::new();
        if let Err(e) = codec::encode(frame, &mut bytes) {
            return error!(error = %e, "a frame could not be made");
        }
        let gone = match &self.direct {
            Some(direct) if self.out.is_drained() => direct.write(&bytes),
            _ => 0,
        };
        if gone < bytes.len() {
            self.out.push_bytes(&bytes[gone..]);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.out.close();
    }
}

/// All connections of the node daemon.
pub(super) struct Net {
    reach: Reach,
    events: Sender<Event>,
    last: u32,
    parent: Option<(u32, Link)>,
    children: HashMap<u32, Link>,
    besides: Besides,
    /// For each child of another machine, the nodes and jobs that its messages may concern.
    scopes: HashMap<u32, Scope>,
    config: Config,
    complaint: String,
}

impl Net {
    /// Opens the listeners for children of this machine and (`far`) of others.
    pub(super) fn open(
        (reach, far): (Reach, Option<TcpListener>),
        config: Config,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let path = reach.door();
        let socket = SocketPath::new(&path)?;
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(socket.as_path())?;
        tokio::task::spawn_local(accept(listener, reach.clone(), events.clone()));
        if let Some(listener) = far {
            tokio::task::spawn_local(accept_far(listener, reach.clone(), events.clone()));
        }
        let (children, scopes, besides, complaint) = Default::default();
        Ok(Self { reach, events, last: 0, parent: None, children, scopes, config, besides, complaint })
    }

    /// Converts an event to an input of the state machine. None: the event concerns a closed connection, or a child for
    /// which there is no room.
    pub(super) fn take(&mut self, event: NetEvent) -> Option<NetInput> {
        match event {
            NetEvent::Dialled(Ok((conversation, dial))) => {
                self.complaint.clear();
                let (number, link) = self.serve(conversation, |number, frame| {
                    NetEvent::Parent(number, NetInput::FromParent(Box::new(frame)))
                });
                self.parent = Some((number, link));
                if dial != Dial::Controller {
                    info!("attached to {}", name_of(&dial));
                }
                Some(NetInput::ParentOpened)
            }
            NetEvent::Dialled(Err(e)) => {
                let text = e.to_string();
                if self.complaint != text {
                    warn!(error = text, "no way to the controller yet: trying on");
                    self.complaint = text;
                }
                Some(NetInput::DialFailed)
            }
            NetEvent::Child(conversation) if self.children.len() < CHILDREN_MAX => {
                let scope = conversation.key.as_ref().map(|(name, _)| Scope::new(&self.config, name.clone()));
                let (number, link) = self.serve(conversation, |link, frame| {
                    NetEvent::FromChild(link, NetInput::FromChild { link, frame: Box::new(frame) })
                });
                self.children.insert(number, link);
                self.scopes.extend(scope.map(|scope| (number, scope)));
                Some(NetInput::ChildOpened { link: number })
            }
            NetEvent::Child(_) => None,
            NetEvent::Heard(chunk) => Some(NetInput::Beside(chunk)),
            NetEvent::Parent(number, input) => self.is_parent(number).then_some(input),
            NetEvent::FromChild(link, input) => self.children.contains_key(&link).then_some(input),
            NetEvent::Ended(number) if self.is_parent(number) => {
                self.parent = None;
                Some(NetInput::ParentClosed)
            }
            NetEvent::Ended(link) => {
                self.scopes.remove(&link);
                self.children.remove(&link).map(|_| NetInput::ChildClosed { link })
            }
        }
    }

    /// Keeps the controllers' new keys.
    pub(super) fn learn(&self, keys: &ControllerKeys) {
        self.reach.learn(keys);
    }

    /// Removes from a child's frame all that the child may not send. `reach`: the nodes that can be reached through the
    /// child; None: there are none.
    pub(super) fn confine(&self, link: u32, frame: &mut UpFrame, reach: Option<&NodeSet>) {
        if let Some(scope) = self.scopes.get(&link) {
            scope.confine(frame, reach.unwrap_or(&NodeSet::new()));
        }
    }

    fn is_parent(&self, number: u32) -> bool {
        self.parent.as_ref().is_some_and(|(parent, _)| *parent == number)
    }

    /// Sends the frames, and closes and makes the connections, that the state machine has decided on.
    pub(super) fn carry_out(&mut self, out: NetOut) {
        if let (Some(frame), Some((_, parent))) = (&out.up, &self.parent) {
            parent.send(frame);
        }
        for (link, frame) in &out.down {
            if let Some(child) = self.children.get(link) {
                child.send(frame);
            }
        }
        for link in out.drop {
            self.children.remove(&link);
        }
        if out.hang_up {
            self.parent = None;
        }
        for (name, chunk) in out.beside {
            self.besides.send(&self.reach, name, chunk);
        }
        if let Some(dial) = out.dial {
            let (reach, events) = (self.reach.clone(), self.events.clone());
            tokio::task::spawn_local(async move {
                let result = reach.dial(&dial).await;
                // Fails only if the daemon is ending.
                drop(events.send(Event::Net(NetEvent::Dialled(result.map(|conversation| (conversation, dial))))).await);
            });
        }
    }

    /// Closes all connections after the queued frames; returns their number. Each is followed by an `Ended` event.
    pub(super) fn hang_up_all(&mut self) -> usize {
        self.parent.take().into_iter().count() + self.children.drain().count()
    }

    /// Serves a connection until either side ends it; returns its number and handle.
    fn serve<T: Decoded + 'static>(
        &mut self,
        conversation: Conversation,
        event: impl Fn(u32, T) -> NetEvent + 'static,
    ) -> (u32, Link) {
        self.last += 1;
        let number = self.last;
        let out = Outgoing::new(LINK_BYTES_MAX);
        let queue = out.clone();
        let direct = match &conversation.writer {
            Writer::Local(writer) => Some(writer.direct()),
            Writer::Sealed(_) => None,
        };
        let (events, reach) = (self.events.clone(), self.reach.clone());
        tokio::task::spawn_local(async move {
            let (key, controllers, term) =
                (conversation.key.clone(), conversation.controllers.clone(), conversation.term);
            let over = async {
                match (key, controllers) {
                    (Some(key), _) => reach.revoked(key).await,
                    (None, Some(controllers)) => {
                        controllers.moved(term).await;
                        info!("another controller leads now");
                    }
                    (None, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                // An error ends this connection only.
                _ = converse(number, conversation, &queue, &events, event) => {}
                () = over => {}
            }
            drop(events.send(Event::Net(NetEvent::Ended(number))).await);
        });
        (number, Link { out, direct })
    }
}

pub(super) fn name_of(dial: &Dial) -> &str {
    match dial {
        Dial::Controller => "the controller",
        Dial::Node(name) => name,
    }
}

async fn accept(listener: UnixListener, reach: Reach, events: Sender<Event>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (reach, events) = (reach.clone(), events.clone());
                tokio::task::spawn_local(async move {
                    if let Ok(conversation) = greet_child(stream, &reach).await {
                        drop(events.send(Event::Net(NetEvent::Child(conversation))).await);
                    }
                });
            }
            Err(e) => refused(&e).await,
        }
    }
}

async fn accept_far(listener: TcpListener, reach: Reach, events: Sender<Event>) {
    let strangers = Strangers::new(STRANGERS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let (reach, events) = (reach.clone(), events.clone());
                let (stranger, ended) = strangers.enter(address.ip());
                tokio::task::spawn_local(async move {
                    if let Ok(conversation) = ended.or(greet_far_child(stream, &reach, &stranger)).await {
                        drop(events.send(Event::Net(NetEvent::Child(conversation))).await);
                    }
                });
            }
            Err(e) => refused(&e).await,
        }
    }
}

async fn refused(e: &io::Error) {
    error!(error = %e, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn greeting(reader: &mut Reader) -> io::Result<Hello> {
    let answer = tokio::time::timeout(HELLO_WAIT, read::<Hello>(reader)).await;
    let answer = answer.map_err(|_| io::Error::other("it does not answer"))??;
    match answer {
        Some(hello) => hello.agreed().map_err(io::Error::other).map(|_| hello),
        None => Err(io::Error::other("it hung up")),
    }
}

async fn greet_child(stream: UnixStream, reach: &Reach) -> io::Result<Conversation> {
    make_room(&stream);
    if !is_operator(stream.peer_cred()?.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (mut reader, mut writer) = hop::local(stream)?;
    let role = greeting(&mut reader).await?.role;
    write(&mut writer, &Hello::new(Role::Node(reach.name().to_owned()))).await?;
    match role {
        Role::Node(_) => Ok(Conversation::new(reader, writer)),
        _ => Err(io::Error::other("it is no node")),
    }
}

async fn greet_far_child(stream: TcpStream, reach: &Reach, stranger: &Stranger) -> io::Result<Conversation> {
    let keys = reach.keys().ok_or(io::ErrorKind::PermissionDenied)?;
    let (mut reader, mut writer, key) = hop::answer(stream, keys, stranger).await?;
    let Role::Node(name) = greeting(&mut reader).await?.role else { return Err(io::Error::other("it is no node")) };
    // The key is checked before the peer gets any information.
    if !reach.knows(&name, &key).await {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    write(&mut writer, &Hello::new(Role::Node(reach.name().to_owned()))).await?;
    Ok(Conversation { key: Some((name, key)), ..Conversation::new(reader, writer) })
}

/// Exchanges greetings with a parent to which this node has connected; it must have the role `expected`.
pub(super) async fn introduce(
    (mut reader, mut writer): (Reader, Writer),
    name: &str,
    expected: &Role,
) -> io::Result<Conversation> {
    write(&mut writer, &Hello::new(Role::Node(name.to_owned()))).await?;
    let hello = greeting(&mut reader).await?;
    if hello.role != *expected {
        return Err(io::Error::other("somebody else answers"));
    }
    let (term, signer, theirs) = (hello.term.unwrap_or(0), hello.signer, hello.key);
    Ok(Conversation { term, signer, theirs, ..Conversation::new(reader, writer) })
}

async fn converse<T: Decoded>(
    number: u32,
    conversation: Conversation,
    out: &Outgoing,
    events: &Sender<Event>,
    event: impl Fn(u32, T) -> NetEvent,
) -> io::Result<()> {
    let Conversation { mut reader, mut writer, .. } = conversation;
    let listen = async {
        while let Some(frame) = read::<T>(&mut reader).await? {
            if events.send(Event::Net(event(number, frame))).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        end = listen => end,
        // Ends when the link is dropped and all is written, or when too much is queued.
        end = out.pump(&mut writer) => end,
    }
}
