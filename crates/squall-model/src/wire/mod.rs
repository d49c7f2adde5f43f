//! Every message, by kind of connection: clients, nodes, step daemons.

pub mod broadcast;
pub mod client;
pub mod counts;
pub mod fabric;
pub mod feed;
pub mod filter;
pub mod history;
pub mod hook;
pub mod info;
pub mod join;
pub mod node;
pub mod peer;
pub mod priority_info;
pub mod proof;
pub mod reservation;
pub mod sealed;
pub mod shared;
pub mod stepd;
mod wall;

use std::ops::RangeInclusive;

use minicbor::{Decode, Encode};

/// Protocol versions that this release understands. A change that another release could misread gets a new version.
pub const PROTOCOLS: RangeInclusive<u16> = 2..=2;

/// First message of either side on every connection: protocol versions, role and proof of identity. A side that has no
/// protocol version in common with the other answers with its own `Hello` and closes. On local sockets the kernel
/// identifies the peer ([`Proof::Peer`]); otherwise `proof` carries keys or credentials.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The newest protocol version that the sender understands: the last of its [`PROTOCOLS`].
    #[n(0)]
    pub protocol: u16,
    /// Name of the cluster. Empty: any cluster.
    #[n(1)]
    pub cluster: String,
    /// What kind of process the sender is.
    #[n(2)]
    pub role: Role,
    /// Proof of the sender's identity.
    #[n(3)]
    pub proof: Proof,
    /// The oldest protocol version that the sender understands. None: only the newest.
    #[n(4)]
    pub oldest: Option<u16>,
    /// Release of the sender (as `0.2.1`), for messages to users. None: an older release, which does not send it.
    #[n(5)]
    pub release: Option<String>,
    /// Of a controller that leads among several: number of its term, as in [`Leader`].
    #[n(6)]
    pub term: Option<u64>,
    /// Of a controller: the key with which it signs what it sends to nodes. None: an older release, which does not sign.
    #[n(9)]
    pub signer: Option<proof::SignerKey>,
    /// Of a controller: its public key. If the caller has called it by another one, the keys were rotated since. None: an
    /// older release. The numbers from 10 to 21 are left out.
    #[n(22)]
    #[cbor(with = "minicbor::bytes")]
    pub key: Option<join::PublicKey>,
}

/// Error: the peer has no protocol version in common with this release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is squall {release}, which speaks protocol {protocol}, and this is squall {OWN_RELEASE}, which speaks {}; \
    upgrade the older of the two", PROTOCOLS.end())]
pub struct Incompatible {
    /// The newest protocol version that the peer understands.
    pub protocol: u16,
    /// Release of the peer; `before 0.2.0` if the peer did not send its release.
    pub release: String,
}

const OWN_RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Hello {
    /// Returns the first message of a process of this release with this role.
    pub fn new(role: Role) -> Self {
        let (oldest, release) = (Some(*PROTOCOLS.start()), Some(OWN_RELEASE.to_owned()));
        Self {
            protocol: *PROTOCOLS.end(),
            cluster: String::new(),
            role,
            proof: Proof::Peer,
            oldest,
            release,
            term: None,
            signer: None,
            key: None,
        }
    }

    /// Returns the newest protocol version that this release and the sender of the message both understand.
    pub fn agreed(&self) -> Result<u16, Incompatible> {
        let newest = self.protocol.min(*PROTOCOLS.end());
        if newest >= self.oldest.unwrap_or(self.protocol) && PROTOCOLS.contains(&newest) {
            return Ok(newest);
        }
        let release = self.release.clone().unwrap_or_else(|| "before 0.2.0".to_owned());
        Err(Incompatible { protocol: self.protocol, release })
    }
}

/// Kind of process at the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Role {
    /// The controller of the cluster.
    #[n(0)]
    Controller,
    /// The node daemon of the node with this name.
    #[n(1)]
    Node(#[n(0)] String),
    /// A step daemon, which runs the tasks of one step on one node.
    #[n(2)]
    Step,
    /// A client command with this name, as `squeue`.
    #[n(3)]
    Client(#[n(0)] String),
    /// A daemon on another machine, which sends [`join::Question`]s; the text is the name of its node or login host.
    #[n(4)]
    Enquirer(#[n(0)] String),
    /// A controller that does not lead but follows. Over a network it closes the connection: the caller tries the
    /// leader.
    #[n(5)]
    Standby(#[n(0)] Standby),
    /// A client command with this name that asks the controller of its own host, whether or not that leads.
    #[n(6)]
    Reader(#[n(0)] String),
}

/// What a standby controller knows when it greets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Standby {
    /// The controller that leads. None: none leads at the moment, or it is not known.
    #[n(0)]
    pub leader: Option<Leader>,
    /// Name of the standby.
    #[n(1)]
    pub name: String,
    /// How old the standby's state is at most, milliseconds. None: it has none yet.
    #[n(2)]
    pub age_ms: Option<u64>,
}

/// The controller that leads, among several.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leader {
    /// Its address, `HOST:PORT`.
    #[n(0)]
    pub address: String,
    /// Number of its term: each controller that begins to lead has a higher one than all before.
    #[n(1)]
    pub term: u64,
}

/// How a side proves its identity.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Proof {
    /// The peer credentials of a local socket, as reported by the kernel.
    #[n(0)]
    Peer,
    /// An authentication scheme, by name, and its bytes (a token, a key or credentials).
    #[n(1)]
    Scheme(
        #[n(0)] String,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        Vec<u8>,
    ),
}

#[cfg(test)]
mod tests {
    use super::{Hello, PROTOCOLS, Role};

    #[test]
    fn releases_that_have_a_version_in_common_agree() {
        let own = Hello::new(Role::Step);
        let newest = *PROTOCOLS.end();
        assert_eq!(own.agreed(), Ok(newest));
        let later = Hello { protocol: newest + 5, oldest: Some(newest), ..own.clone() };
        assert_eq!(later.agreed(), Ok(newest));
        let release = Some("9.0".to_owned());
        let text = Hello { oldest: None, release, ..later }.agreed().unwrap_err().to_string();
        assert!(text.starts_with("it is squall 9.0, which speaks protocol 7, and this is squall "), "{text}");
        let before = Hello { protocol: 1, oldest: None, release: None, ..own };
        assert!(
            before.agreed().unwrap_err().to_string().starts_with("it is squall before 0.2.0, which speaks protocol 1")
        );
    }
}
