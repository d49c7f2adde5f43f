//! Connects this node daemon to others: on its own machine by Unix sockets in the state folder, between machines by
//! TCP, where each side is authenticated by its key.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use squall_engine::fabric::Dial;
use squall_files::durable;
use squall_files::place::{Place, SocketPath};
use squall_model::wire::Role;
use squall_model::wire::join::{Peer, PublicKey, Question, Told};
use tokio::net::{TcpListener, UnixStream};
use tracing::warn;

use super::errands::{Errands, Membership};
use super::net::{Conversation, introduce, name_of};
use crate::auth::is_operator;
use crate::controld::read_config;
use crate::hop::{self, Reader, Writer};
use crate::life;
use crate::link::make_room;
use crate::noise::KeyPair;
use crate::trust::Trust;

/// Interval of the check whether a child's key is still trusted: on the controller's machine, where the check is cheap,
/// and elsewhere.
const REVISITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Pause before a controller that could not be reached at the very first start is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Addresses and keys for connections to other daemons.
#[derive(Clone)]
pub(super) struct Reach {
    place: Place,
    name: String,
    /// Own key and directory of nodes, for connections to other machines. None: the cluster is on one machine only.
    far: Option<Arc<Far>>,
}

/// Own key and directory of nodes, for connections to other machines.
struct Far {
    keys: KeyPair,
    directory: Directory,
    /// Earlier answers of the directory by node name, used while the controller can't be asked.
    found: Mutex<HashMap<String, Peer>>,
}

/// Where addresses and keys of nodes are looked up.
enum Directory {
    /// In the controller's own files: this node is on the controller's machine.
    Here(Trust),
    /// By asking the controller of the cluster that this node has joined, on another machine.
    There(Membership, Errands),
}

impl Reach {
    /// Reads the cluster's configuration, and opens the port for other machines if there are any. `port`: the one to
    /// listen on; None: the configured one.
    pub(super) async fn open(place: &Place, name: &str, port: Option<u16>) -> io::Result<(Self, Option<TcpListener>)> {
        let trust = Trust::of(place);
        let config = read_config(place).map_err(io::Error::other)?;
        let port = port.unwrap_or(config.slurmd_port.0);
        let (far, listener) = match trust.joined()? {
            Some(joined) if joined.login => {
                let problem = "this machine has joined its cluster as a login host: use `squall login`";
                return Err(io::Error::other(problem));
            }
            Some(joined) if joined.name != name => {
                return Err(io::Error::other(format!("this machine has joined its cluster as node {}", joined.name)));
            }
            Some(joined) => {
                let keys = trust.own_key(None)?;
                let listener = hop::listen(None, port).await?;
                let membership = Membership { joined, keys: keys.clone() };
                let errands = Errands::start(membership.clone());
                renew_charter(place, &errands, listener.local_addr()?.port()).await?;
                (Some((keys, Directory::There(membership, errands))), Some(listener))
            }
            None if config.slurmctld_port.0 != 0 => {
                let keys = trust.own_key(Some(name))?;
                let listener = hop::listen(config.slurmctld_host.0.parse().ok(), port).await?;
                trust.own_node(name, &keys.public)?;
                trust
                    .note_address(name, &format!("{}:{}", life::reached_as(&config), listener.local_addr()?.port()))?;
                (Some((keys, Directory::Here(trust))), Some(listener))
            }
            None => (None, None),
        };
        let far = far.map(|(keys, directory)| Arc::new(Far { keys, directory, found: Mutex::default() }));
        Ok((Self { place: place.clone(), name: name.to_owned(), far }, listener))
    }

    /// Returns the path of the socket to which children of this machine connect.
    pub(super) fn door(&self) -> std::path::PathBuf {
        self.place.node_socket(&self.name)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns this node's place in the cluster that it has joined; None: the controller is on this machine.
    pub(super) fn membership(&self) -> Option<&Membership> {
        match &self.far.as_ref()?.directory {
            Directory::There(membership, _) => Some(membership),
            Directory::Here(_) => None,
        }
    }

    /// Returns the controller's address; None: the controller is on this machine.
    pub(super) fn controller_address(&self) -> Option<String> {
        self.membership().map(|membership| membership.joined.controller.clone())
    }

    /// Connects to the parent that `dial` names, and exchanges greetings.
    pub(super) async fn dial(&self, dial: &Dial) -> io::Result<Conversation> {
        let conversation = self.connect(dial).await;
        conversation.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", name_of(dial))))
    }

    async fn connect(&self, dial: &Dial) -> io::Result<Conversation> {
        let (reader, writer) = match (self.far.as_deref(), dial) {
            (Some(Far { directory: Directory::There(membership, _), .. }), Dial::Controller) => {
                membership.call().await?
            }
            (Some(far), Dial::Node(parent)) if !self.place.node_socket(parent).exists() => {
                let peer = far.find(parent).await?;
                let peer = peer.filter(|peer| !peer.address.is_empty());
                let peer = peer.ok_or_else(|| io::Error::other("nobody knows where it is"))?;
                hop::call(&peer.address, &far.keys, &peer.key).await?
            }
            _ => self.connect_here(dial).await?,
        };
        let expected = match dial {
            Dial::Controller => Role::Controller,
            Dial::Node(parent) => Role::Node(parent.clone()),
        };
        introduce(reader, writer, &self.name, &expected).await
    }

    async fn connect_here(&self, dial: &Dial) -> io::Result<(Reader, Writer)> {
        let path = match dial {
            Dial::Controller => self.place.controller_socket(),
            Dial::Node(parent) => self.place.node_socket(parent),
        };
        let stream = UnixStream::connect(SocketPath::new(&path)?.as_path()).await?;
        make_room(&stream);
        let uid = stream.peer_cred()?.uid();
        if !is_operator(uid) {
            return Err(io::Error::other(format!("user {uid} listens on its socket")));
        }
        hop::local(stream)
    }

    /// Returns this node's key pair, for connections from other machines. None: there are none.
    pub(super) fn keys(&self) -> Option<&KeyPair> {
        self.far.as_ref().map(|far| &far.keys)
    }

    /// Whether `key` is the trusted key of the node `name`.
    pub(super) async fn knows(&self, name: &str, key: &PublicKey) -> bool {
        let Some(far) = &self.far else { return false };
        matches!(far.find(name).await, Ok(Some(peer)) if peer.key == *key)
    }

    /// Waits until the key is no longer the trusted key of that node.
    pub(super) async fn revoked(&self, (name, key): (String, PublicKey)) {
        let Some(far) = &self.far else { return };
        let pause = match far.directory {
            Directory::Here(_) => REVISITS.0,
            Directory::There(..) => REVISITS.1,
        };
        loop {
            tokio::time::sleep(pause).await;
            if !self.knows(&name, &key).await {
                return warn!(node = name, "the node has lost its key: its connection is ended");
            }
        }
    }
}

impl Far {
    /// Returns address and key of a node. While the controller can't be asked, its last answer is returned. None: the
    /// node has no key.
    async fn find(&self, name: &str) -> io::Result<Option<Peer>> {
        let errands = match &self.directory {
            Directory::Here(trust) => return trust.peer(name),
            Directory::There(_, errands) => errands,
        };
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match errands.ask(Question::Peer(name.to_owned())).await {
            Ok(Told::Peer(peer)) => {
                match &peer {
                    Some(peer) => found().insert(name.to_owned(), peer.clone()),
                    None => found().remove(name),
                };
                Ok(peer)
            }
            Ok(Told::Refused(reason)) => Err(io::Error::other(reason)),
            Ok(Told::Charter { .. }) => Err(io::ErrorKind::InvalidData.into()),
            Err(e) => found().get(name).cloned().map(Some).ok_or(e),
        }
    }
}

/// Gets the cluster's configuration from the controller. If that can't be reached, an earlier copy is used; without one
/// this waits.
async fn renew_charter(place: &Place, errands: &Errands, port: u16) -> io::Result<()> {
    let mut complaint = String::new();
    loop {
        match errands.ask(Question::Charter { port }).await {
            Ok(Told::Charter { config, address }) => {
                place.note_reached_as(address.rsplit_once(':').map_or("", |(host, _)| host))?;
                return durable::write(&place.config(), config.as_bytes(), 0o644);
            }
            Ok(Told::Refused(reason)) => return Err(io::Error::other(reason)),
            Ok(Told::Peer(_)) => return Err(io::ErrorKind::InvalidData.into()),
            // An earlier release could leave an empty file after a power cut.
            Err(e) if std::fs::metadata(place.config()).is_ok_and(|file| file.len() > 0) => {
                warn!(error = %e, "the controller can't be reached yet: going on with the configuration it gave before");
                return Ok(());
            }
            Err(e) if e.to_string() != complaint => {
                warn!(error = %e, "the controller can't be reached yet: trying on");
                complaint = e.to_string();
            }
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}
