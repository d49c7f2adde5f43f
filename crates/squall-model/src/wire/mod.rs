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

use std::ops::RangeInclusive;

use minicbor::{Decode, Encode};

/// The versions of messages that this release understands. A change that the other release could misread gets a new one.
pub const PROTOCOLS: RangeInclusive<u16> = 2..=2;

/// The first frame of either side on every link. A side that has no version in common with the other answers with its own
/// `Hello` and closes. `proof` has room for keys and credentials; on local sockets the kernel vouches (`Peer`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The newest version of messages that the side understands: the last of its [`PROTOCOLS`].
    #[n(0)]
    pub protocol: u16,
    /// The cluster's name; empty: any.
    #[n(1)]
    pub cluster: String,
    /// What the side is.
    #[n(2)]
    pub role: Role,
    /// How it proves that.
    #[n(3)]
    pub proof: Proof,
    /// The oldest version that it understands; None: no other than the newest.
    #[n(4)]
    pub oldest: Option<u16>,
    /// Its release, for people.
    #[n(5)]
    pub release: Option<String>,
}

/// The other side has no version of messages in common with this one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is squall {release}, which speaks protocol {protocol}, and this is squall {OWN_RELEASE}, which speaks {}; \
    upgrade the older of the two", PROTOCOLS.end())]
pub struct Incompatible {
    /// The newest version that it understands.
    pub protocol: u16,
    /// Its release.
    pub release: String,
}

const OWN_RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Hello {
    /// The greeting of this release.
    pub fn new(role: Role) -> Self {
        let (oldest, release) = (Some(*PROTOCOLS.start()), Some(OWN_RELEASE.to_owned()));
        Self { protocol: *PROTOCOLS.end(), cluster: String::new(), role, proof: Proof::Peer, oldest, release }
    }

    /// The newest version that both sides understand.
    pub fn agreed(&self) -> Result<u16, Incompatible> {
        let newest = self.protocol.min(*PROTOCOLS.end());
        if newest >= self.oldest.unwrap_or(self.protocol) && PROTOCOLS.contains(&newest) {
            return Ok(newest);
        }
        let release = self.release.clone().unwrap_or_else(|| "0.1".to_owned());
        Err(Incompatible { protocol: self.protocol, release })
    }
}

/// Who is at the end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Role {
    /// The controller.
    #[n(0)]
    Controller,
    /// The node daemon of that name.
    #[n(1)]
    Node(#[n(0)] String),
    /// A step daemon.
    #[n(2)]
    Step,
    /// A client command, by its name.
    #[n(3)]
    Client(#[n(0)] String),
    /// The node daemon of that name, on another machine, with [`join::Question`]s.
    #[n(4)]
    Enquirer(#[n(0)] String),
}

/// How a side proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Proof {
    /// By the peer credentials of a local socket.
    #[n(0)]
    Peer,
    /// By bytes that the scheme of that name understands (keys, credentials).
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
        assert!(before.agreed().unwrap_err().to_string().starts_with("it is squall 0.1, which speaks protocol 1"));
    }
}
