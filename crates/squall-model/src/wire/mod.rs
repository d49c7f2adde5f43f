//! Every message, by kind of link: clients, nodes, step daemons.

pub mod broadcast;
pub mod client;
pub mod fabric;
pub mod history;
pub mod info;
pub mod join;
pub mod node;
pub mod peer;
pub mod reservation;
pub mod sealed;
pub mod shared;
pub mod standing;
pub mod stepd;
mod wall;

use serde::{Deserialize, Serialize};

/// First frame of either side on every link. A side that does not know the version answers with its own
/// Hello and closes. `proof` has room for keys and credentials; on local sockets the kernel vouches (`None`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::codec::PROTOCOL_VERSION`].
    pub protocol: u16,
    /// The cluster's name; empty: whichever it is.
    pub cluster: String,
    /// Who speaks.
    pub role: Role,
    /// How it proves it.
    pub proof: Proof,
}

/// Who is at the end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The controller.
    Controller,
    /// The node daemon of that name.
    Node(String),
    /// A step daemon.
    Step,
    /// A client command, by its name.
    Client(String),
    /// The node daemon of that name, on another machine, with [`join::Question`]s.
    Enquirer(String),
}

/// How a side proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// By the peer credentials of a local socket.
    Peer,
    /// By bytes that the scheme of that name understands (keys, credentials).
    Scheme(String, Vec<u8>),
}
