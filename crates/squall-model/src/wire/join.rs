//! Requests of a daemon on another machine to the controller, outside of the distribution tree: the cluster's
//! configuration, and addresses and keys of other nodes.

use minicbor::{Decode, Encode};

use crate::encoding::ByteBuf;
use crate::id::JobId;
use crate::wire::proof::SignerKey;

/// The public half of a daemon's key (X25519).
pub type PublicKey = [u8; 32];

/// Name of the authentication scheme ([`super::Proof::Scheme`]) for a join token; its bytes are the token's secret.
pub const TOKEN: &str = "token";

/// Name of the authentication scheme ([`super::Proof::Scheme`]) for the join token of a login host; its bytes are the
/// token's secret.
pub const LOGIN_TOKEN: &str = "login-token";

/// Name of the authentication scheme ([`super::Proof::Scheme`]) for the join token of a controller; its bytes are the
/// token's secret.
pub const CONTROLLER_TOKEN: &str = "controller-token";

/// Name of the authentication scheme ([`super::Proof::Scheme`]) for a client with an identity that a daemon confirms.
/// The scheme's bytes are an encoded [`Vouched`].
pub const VOUCHED: &str = "vouched";

/// Name of the authentication scheme ([`super::Proof::Scheme`]) for a client with a token of the cluster. The scheme's
/// bytes are an encoded [`Bearer`].
pub const BEARER: &str = "jwt";

/// Name of the authentication scheme ([`super::Proof::Scheme`]) by which the cluster's HTTP server speaks for the peer of
/// a socket that it has accepted. The scheme's bytes are the server's secret. When the controller has greeted back, the
/// server sends one byte with the connected socket (`SCM_RIGHTS`), and the kernel tells the controller which user
/// connected to it.
pub const SOCKET: &str = "socket";

/// A token (JWT) of the cluster, and the user as whom its bearer wants to act.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Bearer {
    /// The token, as `scontrol token` prints it.
    #[n(0)]
    pub token: String,
    /// Name of the user to act as: the token's own user, or any if that is an operator. None: the token's own user.
    #[n(1)]
    pub user: Option<String>,
    /// What the HTTP server says that passes the token on. None: another program has it.
    #[n(2)]
    #[cbor(default)]
    pub passed: Option<Passed>,
}

/// The HTTP server's word about a token that it passes on. Tokens of links and browsers are good with it only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Passed {
    /// The server's secret.
    #[n(0)]
    pub secret: String,
    /// Where the token came from: `uid N` for a process of that user on this machine, otherwise `away`.
    #[n(1)]
    pub from: String,
}

/// Identity of a client on another machine, as the daemon there confirms it. The controller accepts it from a login
/// host, and from a node for users that have a job on that node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Vouched {
    /// Name of the node or login host. The connection is authenticated with its key.
    #[n(0)]
    pub node: String,
    /// Uid of the client.
    #[n(1)]
    pub uid: u32,
    /// Gid of the client.
    #[n(2)]
    pub gid: u32,
    /// Whether the client runs under the same uid as the daemon, and this is not root. That user counts as the
    /// cluster's owner, even if it has another uid on the controller's machine.
    #[n(3)]
    pub owner: bool,
    /// Whether the client came over HTTP. Then it gets no token: whoever has one, or controls the HTTP server for a moment,
    /// would otherwise have another for as long as it likes.
    #[n(4)]
    #[cbor(default)]
    pub over_http: bool,
    /// The job on that machine in which the client runs, as its cgroup tells. None: it runs in none, or that is not known.
    #[n(5)]
    pub job: Option<JobId>,
}

/// Request of a daemon on another machine to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Question {
    /// Asks for the cluster's configuration. Sent at every start.
    #[n(0)]
    Charter {
        /// Port on which the sending node daemon listens for its children in the distribution tree. 0: the sender is a
        /// login host, which has none.
        #[n(0)]
        port: u16,
    },
    /// Asks for address and key of the node with this name. Login hosts may not ask this.
    #[n(1)]
    Peer(#[n(0)] String),
    /// Asks for the files that a further controller needs. Only with the join token of a controller.
    #[n(2)]
    Controller,
    /// Asks for the key that signs the tokens of users. Only another controller may ask this.
    #[n(3)]
    TokenKey,
}

/// The controller's answer to a `Question`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JoinAnswer {
    /// Answer to `Question::Charter`: the cluster's configuration.
    #[n(0)]
    Charter {
        /// Text of the controller's `squall.toml`.
        #[n(0)]
        config: String,
        /// Address at which nodes reach the requesting machine, `ADDRESS:PORT`, as the controller sees it.
        #[n(1)]
        address: String,
        /// The key with which the controller signs what it sends to nodes. None: an older release.
        #[n(2)]
        signer: Option<SignerKey>,
        /// The controllers' present public key. None: an older release.
        #[n(3)]
        key: Option<PublicKey>,
    },
    /// Address and key of the requested node. None: the node has no key, or no longer has one.
    #[n(1)]
    Peer(#[n(0)] Option<Peer>),
    /// The request is refused for this reason, and the connection ends.
    #[n(2)]
    Refused(#[n(0)] String),
    /// Answer to `Question::Controller`: the cluster's keys and its configuration.
    #[n(3)]
    Controller(#[n(0)] Vec<StoredFile>),
    /// The machine may not join now, for this reason; it may try again later. Only for tokens that nodes share.
    #[n(4)]
    NotNow(#[n(0)] String),
    /// Answer to `Question::TokenKey`: the key.
    #[n(5)]
    TokenKey(#[n(0)] ByteBuf),
}

/// A file of a state folder.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StoredFile {
    /// Path below the state folder, as `keys/controller`.
    #[n(0)]
    pub path: String,
    /// Content of the file.
    #[n(1)]
    pub bytes: ByteBuf,
}

/// Address and key of a node, as given to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Peer {
    /// The node's public key. Only its holder may act under the node's name.
    #[n(0)]
    pub key: PublicKey,
    /// Address on which the node listens, `ADDRESS:PORT`. Empty: it does not listen yet.
    #[n(1)]
    pub address: String,
}
