//! Requests of a node daemon on another machine to the controller, outside of the distribution tree: the cluster's
//! configuration, and addresses and keys of other nodes.

use minicbor::{Decode, Encode};

/// The public half of a daemon's key (X25519).
pub type PublicKey = [u8; 32];

/// Name of the [`super::Proof::Scheme`] for a token; its bytes are the token's secret.
pub const TOKEN: &str = "token";

/// Name of the [`super::Proof::Scheme`] for a client whose identity a node daemon confirms; its bytes are a
/// [`Vouched`].
pub const VOUCHED: &str = "vouched";

/// Identity of a client on a node's machine, as the node daemon confirms it. The controller accepts it for users that
/// have a job on that node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Vouched {
    /// Name of the node. The connection uses the node's key.
    #[n(0)]
    pub node: String,
    /// Uid of the client.
    #[n(1)]
    pub uid: u32,
    /// Gid of the client.
    #[n(2)]
    pub gid: u32,
    /// Whether the client's user is the one that runs the node daemon, and this is not root. That user is the cluster's
    /// owner, perhaps under another uid.
    #[n(3)]
    pub owner: bool,
}

/// A request of a node daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Question {
    /// Asks for the cluster's configuration. Sent at every start.
    #[n(0)]
    Charter {
        /// Port on which the sending node daemon listens for its children in the distribution tree.
        #[n(0)]
        port: u16,
    },
    /// Asks for address and key of the node with this name.
    #[n(1)]
    Peer(#[n(0)] String),
}

/// The answer to a `Question`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Told {
    /// The cluster's configuration.
    #[n(0)]
    Charter {
        /// Text of the controller's `squall.toml`.
        #[n(0)]
        config: String,
        /// Address of the sending node daemon for other nodes, `ADDRESS:PORT`, as the controller sees it.
        #[n(1)]
        address: String,
    },
    /// Address and key of the node. None: it has no key (any more).
    #[n(1)]
    Peer(#[n(0)] Option<Peer>),
    /// The request is refused for this reason, and the connection ends.
    #[n(2)]
    Refused(#[n(0)] String),
}

/// Address and key of a node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Peer {
    /// The node's public key. Only its holder may act under the node's name.
    #[n(0)]
    pub key: PublicKey,
    /// Address on which the node listens, `ADDRESS:PORT`. Empty: it does not listen yet.
    #[n(1)]
    pub address: String,
}
