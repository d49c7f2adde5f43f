//! Connects this node daemon to others: on its own machine by Unix sockets in the state folder, between machines by
//! TCP, where each side is authenticated by its key.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use squall_engine::fabric::Dial;
use squall_files::durable;
use squall_files::place::{Place, SocketPath};
use squall_model::config::Config;
use squall_model::rotation::ControllerKeys;
use squall_model::wire::join::{JoinAnswer, Peer, PublicKey, Question};
use squall_model::wire::{Hello, Role};
use tokio::net::{TcpListener, UnixStream};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::errands::{Errands, Membership, PATIENCE};
use super::net::{Conversation, introduce, name_of};
use crate::auth::is_operator;
use crate::controld::read_config;
use crate::hop;
use crate::leader::Controllers;
use crate::life;
use crate::link::make_room;
use crate::noise::KeyPair;
use crate::plugins::note_for_commands;
use crate::signing::Known;
use crate::trust::Trust;

/// Interval of the check whether a child's key is still trusted: on the controller's machine, where the check is cheap,
/// and elsewhere.
const REVISITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Pause before a controller that could not be reached at the very first start is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit for a connection to another node. One that is stopped takes connections and does not greet; this node then has
/// others to try, before the controller misses its heartbeats.
const RELAY_TIME: Duration = Duration::from_secs(4);
/// Time limit for the greeting of the controller on this machine, if others may lead instead.
const GREETING_TIME: Duration = Duration::from_secs(1);

/// Addresses and keys for connections to other daemons.
#[derive(Clone)]
pub(super) struct Reach {
    place: Place,
    name: String,
    /// Own key and directory of nodes, for connections to other machines. None: the cluster is on one machine only.
    far: Option<Arc<Far>>,
    known: Arc<Known>,
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
    /// In the controller's own files: this node is on the controller's machine. The controllers are all of the cluster,
    /// if it has several.
    Local(Trust, Option<Controllers>),
    /// By asking the controller of the cluster that this node has joined, on another machine. The number is the port on
    /// which this node listens.
    There(Membership, Errands, u16),
}

impl Reach {
    /// Reads the cluster's configuration, and opens the port for other machines if there are any. `port`: the one to
    /// listen on; None: the configured one.
    pub(super) async fn open(place: &Place, name: &str, port: Option<u16>) -> io::Result<(Self, Option<TcpListener>)> {
        let trust = Trust::of(place);
        let config = read_config(place).map_err(io::Error::other)?;
        let port = port.unwrap_or(config.slurmd_port.0);
        let here = || Known::of(place, None);
        let (far, listener, known) = match trust.joined()? {
            Some(joined) if joined.login => {
                let problem = "this machine has joined its cluster as a login host: use `squall login`";
                return Err(io::Error::other(problem));
            }
            Some(joined) if joined.name != name => {
                return Err(io::Error::other(format!("this machine has joined its cluster as node {}", joined.name)));
            }
            Some(joined) => {
                let listener = hop::listen(None, port).await?;
                let port = listener.local_addr()?.port();
                let membership = Membership::new(joined, &trust)?;
                let errands = Errands::start(membership.clone());
                let known = Known::of(place, Some((trust.own_key(None)?, membership.key())))?;
                await_charter((place, &known), &membership, &errands, port).await?;
                (Some((trust.own_key(None)?, Directory::There(membership, errands, port))), Some(listener), known)
            }
            None if config.slurmctld_port.0 != 0 => {
                let keys = trust.own_key(Some(name))?;
                let listener = hop::listen(config.slurmctld_host.0.parse().ok(), port).await?;
                trust.own_node(name, &keys.public)?;
                trust
                    .note_address(name, &format!("{}:{}", life::reached_as(&config), listener.local_addr()?.port()))?;
                let others = others(name, &keys, &trust, &config)?;
                (Some((keys, Directory::Local(trust, others))), Some(listener), here()?)
            }
            None => (None, None, here()?),
        };
        let far = far.map(|(keys, directory)| Arc::new(Far { keys, directory, found: Mutex::default() }));
        Ok((Self { place: place.clone(), name: name.to_owned(), far, known: Arc::new(known) }, listener))
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
            Directory::There(membership, ..) => Some(membership),
            Directory::Local(..) => None,
        }
    }

    /// Returns the controller's address; None: the controller is on this machine.
    pub(super) fn controller_address(&self) -> Option<String> {
        self.membership().and_then(|membership| membership.controllers.addresses().into_iter().next())
    }

    /// Returns what this machine knows of the controllers' keys.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    /// Takes the controllers' new keys, of which a message signed by the one before tells.
    pub(super) fn learn(&self, keys: &ControllerKeys) {
        match self.far.as_deref().map(|far| &far.directory) {
            Some(Directory::There(membership, ..)) => membership.controllers.learn(keys.key),
            Some(Directory::Local(_, Some(controllers))) => controllers.learn(keys.key),
            Some(Directory::Local(_, None)) | None => {}
        }
        self.known.learn(Some(keys.signer));
        self.known.learn_controllers(Some(keys.key));
    }

    /// Connects to the parent that `dial` names, and exchanges greetings.
    pub(super) async fn dial(&self, dial: &Dial) -> io::Result<Conversation> {
        let conversation = match dial {
            Dial::Controller => self.connect(dial).await,
            Dial::Node(_) => match timeout(RELAY_TIME, self.connect(dial)).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
            },
        };
        if let (Dial::Controller, Ok(conversation)) = (dial, &conversation) {
            self.known.learn(conversation.signer);
            self.known.learn_controllers(conversation.theirs);
        }
        conversation.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", name_of(dial))))
    }

    async fn connect(&self, dial: &Dial) -> io::Result<Conversation> {
        match (self.far.as_deref(), dial) {
            (Some(Far { directory: Directory::There(membership, errands, port), .. }), Dial::Controller) => {
                let conversation = self.connect_leader(&membership.controllers).await?;
                // The controller's machine may be another one than before, and name further controllers.
                let (place, known) = (self.place.clone(), self.known());
                let (membership, errands) = (membership.clone(), errands.clone());
                let port = *port;
                tokio::task::spawn_local(async move {
                    if let Err(e) = renew_charter((&place, &known), &membership, &errands, port).await {
                        debug!(error = %e, "going on with the configuration from before");
                    }
                });
                Ok(conversation)
            }
            (Some(Far { directory: Directory::Local(_, Some(controllers)), .. }), Dial::Controller) => {
                match timeout(GREETING_TIME, self.connect_here(dial)).await {
                    Ok(Ok(conversation)) => Ok(conversation.among(controllers.clone())),
                    // The controller of this machine does not run. Another one may lead.
                    Ok(Err(_)) | Err(_) => self.connect_leader(controllers).await,
                }
            }
            (Some(far), Dial::Node(parent)) if !self.place.node_socket(parent).exists() => {
                let peer = far.find(parent).await?;
                let peer = peer.filter(|peer| !peer.address.is_empty());
                let peer = peer.ok_or_else(|| io::Error::other("nobody knows where it is"))?;
                let connection = hop::call(&peer.address, &far.keys, &peer.key).await?;
                introduce(connection, &self.name, &Role::Node(parent.clone())).await
            }
            _ => self.connect_here(dial).await,
        }
    }

    /// Connects to the controller that leads, by TCP. The connection ends when another one leads.
    async fn connect_leader(&self, controllers: &Controllers) -> io::Result<Conversation> {
        let met = controllers.call(&Hello::new(Role::Node(self.name.clone())), PATIENCE).await?;
        Ok(Conversation::with_leader(met, controllers.clone()))
    }

    async fn connect_here(&self, dial: &Dial) -> io::Result<Conversation> {
        let (path, expected) = match dial {
            Dial::Controller => (self.place.controller_socket(), Role::Controller),
            Dial::Node(parent) => (self.place.node_socket(parent), Role::Node(parent.clone())),
        };
        let stream = UnixStream::connect(SocketPath::new(&path)?.as_path()).await?;
        make_room(&stream);
        let uid = stream.peer_cred()?.uid();
        if !is_operator(uid) {
            return Err(io::Error::other(format!("user {uid} listens on its socket")));
        }
        introduce(hop::local(stream)?, &self.name, &expected).await
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
            Directory::Local(..) => REVISITS.0,
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
            Directory::Local(trust, _) => return trust.peer(name),
            Directory::There(_, errands, _) => errands,
        };
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match errands.ask(Question::Peer(name.to_owned())).await {
            Ok(JoinAnswer::Peer(peer)) => {
                match &peer {
                    Some(peer) => found().insert(name.to_owned(), peer.clone()),
                    None => found().remove(name),
                };
                Ok(peer)
            }
            Ok(JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason)) => Err(io::Error::other(reason)),
            Ok(JoinAnswer::Charter { .. } | JoinAnswer::Controller(_) | JoinAnswer::TokenKey(_)) => {
                Err(io::ErrorKind::InvalidData.into())
            }
            Err(e) => found().get(name).cloned().map(Some).ok_or(e),
        }
    }
}

/// Returns the way to all controllers of a cluster that has several, for a node on the machine of one. None: it has
/// one.
fn others(name: &str, keys: &KeyPair, trust: &Trust, config: &Config) -> io::Result<Option<Controllers>> {
    if !config.has_standbys() {
        return Ok(None);
    }
    let addresses = config.controller_addresses().map(str::to_owned).collect();
    Ok(Some(Controllers::new(name, keys.clone(), trust.controller_key()?.public, addresses)))
}

/// Gets the cluster's configuration from the controller. If that can't be reached, an earlier copy is used; without one
/// this waits.
async fn await_charter(
    (place, known): (&Place, &Known),
    membership: &Membership,
    errands: &Errands,
    port: u16,
) -> io::Result<()> {
    let mut complaint = String::new();
    loop {
        match renew_charter((place, known), membership, errands, port).await {
            Ok(Renewed::Stored) => return Ok(()),
            Ok(Renewed::Refused(reason)) => return Err(io::Error::other(reason)),
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

/// Result of a request for the cluster's configuration.
enum Renewed {
    /// The configuration is stored.
    Stored,
    /// The controller refuses it, for this reason.
    Refused(String),
}

/// Asks the controller for the cluster's configuration, and stores it with this machine's address and those of the
/// controllers. Err: the controller can't be asked.
async fn renew_charter(
    (place, known): (&Place, &Known),
    membership: &Membership,
    errands: &Errands,
    port: u16,
) -> io::Result<Renewed> {
    match errands.ask(Question::Charter { port }).await? {
        JoinAnswer::Charter { config, address, signer, key } => {
            // The connection may be older than a rotation of the keys, which this answer then tells of.
            if let Some(key) = key {
                membership.controllers.learn(key);
                known.learn_controllers(Some(key));
            }
            known.learn(signer);
            place.note_reached_as(address.rsplit_once(':').map_or("", |(host, _)| host))?;
            note_slurm(place, &config)?;
            membership.renew(&Trust::of(place), &config)?;
            if std::fs::read(place.config()).is_ok_and(|known| known == config.as_bytes()) {
                return Ok(Renewed::Stored);
            }
            durable::write(&place.config(), config.as_bytes(), 0o644).map(|()| Renewed::Stored)
        }
        JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason) => Ok(Renewed::Refused(reason)),
        JoinAnswer::Peer(_) | JoinAnswer::Controller(_) | JoinAnswer::TokenKey(_) => {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Records which file lists SPANK plugins, and which release is shown, for commands on this machine.
pub(super) fn note_slurm(place: &Place, config: &str) -> io::Result<()> {
    // A configuration that this release can't read says nothing of plugins that it could load.
    Config::from_toml(config).map_or(Ok(()), |config| note_for_commands(place, &config))
}
