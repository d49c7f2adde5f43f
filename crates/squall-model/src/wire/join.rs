//! What the node daemon of another machine asks the controller beside the fabric: how the cluster is set up, and where
//! other nodes are and by which key they are known.

use minicbor::{Decode, Encode};

/// The public half of a daemon's key (X25519).
pub type PublicKey = [u8; 32];

/// The name of [`super::Proof::Scheme`] for a token: its bytes are the token's secret.
pub const TOKEN: &str = "token";

/// The name of [`super::Proof::Scheme`] for a client that a node vouches for: its bytes are a [`Vouched`].
pub const VOUCHED: &str = "vouched";

/// Who a client on a node's machine is, as the node says. It is believed of users who have a job on that node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Vouched {
    /// The node, whose key the connection has.
    #[n(0)]
    pub node: String,
    /// The client's user.
    #[n(1)]
    pub uid: u32,
    /// The client's group.
    #[n(2)]
    pub gid: u32,
    /// The user is the one who runs the node daemon, which is not root: the cluster's owner, perhaps under another id.
    #[n(3)]
    pub owner: bool,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Question {
    /// How is the cluster set up? Asked at every start.
    #[n(0)]
    Charter {
        /// The port on which the asking daemon listens for its children in the tree.
        #[n(0)]
        port: u16,
    },
    /// Where is the node of that name, and what is its key?
    #[n(1)]
    Peer(#[n(0)] String),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Told {
    /// How the cluster is set up.
    #[n(0)]
    Charter {
        /// The configuration: the text of the controller's `squall.toml`.
        #[n(0)]
        config: String,
        /// Where others find the asking daemon, `ADDRESS:PORT`, as the controller sees it.
        #[n(1)]
        address: String,
    },
    /// What is known of that node; None: it has no key (any more).
    #[n(1)]
    Peer(#[n(0)] Option<Peer>),
    /// No, and the connection ends.
    #[n(2)]
    Refused(#[n(0)] String),
}

/// A node with a key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Peer {
    /// Its key, the only one that may speak for its name.
    #[n(0)]
    pub key: PublicKey,
    /// Where it listens, `ADDRESS:PORT`; empty: nowhere yet.
    #[n(1)]
    pub address: String,
}
