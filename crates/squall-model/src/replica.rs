//! What controllers store in etcd, besides the log's records: the leader, the end of the log, the standbys.
//!
//! Keys lie below a cluster's prefix, e.g. `/squall/mycluster/head`. The values are numbered fields
//! ([`crate::encoding`]), so a controller of the release before or after reads them.

use minicbor::{Decode, Encode};

use crate::time::Time;
use crate::version::ClusterVersion;
use crate::wire::join::PublicKey;

/// Value of `leader`. The key is bound to the leader's lease, so it vanishes when the leader stops renewing that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Leader {
    /// Name of the controller, as in `[[controllers]]`.
    #[n(0)]
    pub name: String,
    /// Address at which other machines reach it, e.g. `10.0.0.1:6817`.
    #[n(1)]
    pub address: String,
    /// Random number of this run of its process.
    #[n(2)]
    pub run: u64,
    /// Number of the journal in its state folder. A leader with the same name and journal is this controller itself, in
    /// an earlier run.
    #[n(3)]
    pub journal: u64,
    /// Release of its program, e.g. `0.2.0`.
    #[n(4)]
    pub release: String,
    /// Since when it leads, by its wall clock. None: an older release, which does not tell.
    #[n(5)]
    pub since: Option<Time>,
}

/// Value of `head`: the end of the log. Every append compares and replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Head {
    /// Number of the log's last record. 0: it has none.
    #[n(0)]
    pub last: u64,
    /// Run of the controller which wrote it last.
    #[n(1)]
    pub run: u64,
    /// Random number of the log. A journal that is a copy of another log does not follow this one.
    #[n(2)]
    pub log: u64,
}

/// Value of `log/FIRST`: a batch of records, by the number of its first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// Number of the batch's last record.
    #[n(0)]
    pub last: u64,
    /// Run of the leader which wrote it.
    #[n(1)]
    pub run: u64,
    /// Number of pieces that hold the batch, at `piece/FIRST/RUN/N`. 0: the batch is in `bytes`.
    #[n(2)]
    pub pieces: u32,
    /// The encoded batch.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub bytes: Vec<u8>,
}

/// Value of `member/NAME`: a controller which follows the log, or leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Member {
    /// Address at which other machines reach it.
    #[n(0)]
    pub address: String,
    /// Release of its program.
    #[n(1)]
    pub release: String,
    /// Number of the last record that is on its disk.
    #[n(2)]
    pub durable: u64,
    /// Number of the last record that it has applied.
    #[n(3)]
    pub applied: u64,
    /// When its process started.
    #[n(4)]
    pub since: Time,
    /// Random number of this run of its process.
    #[n(5)]
    pub run: u64,
    /// The newest version of a cluster that it can work with.
    #[n(6)]
    #[cbor(default)]
    pub speaks: ClusterVersion,
    /// Public half of the controllers' key to come, if this controller has it. The numbers from 7 to 18 are left out.
    #[n(19)]
    #[cbor(with = "minicbor::bytes")]
    pub next: Option<PublicKey>,
}

/// Value of `handover`: whom a leader that resigned has named to go first. The key is bound to that leader's lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Handover {
    /// Name of the controller that goes first.
    #[n(0)]
    pub to: String,
    /// Whether all controllers end, as the cluster was shut down.
    #[n(1)]
    #[cbor(default)]
    pub stop: bool,
}

/// Value of `trust/PATH`: a file of the state folder's `keys/` that all controllers have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TrustFile {
    /// Content of the file. None: it was removed.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub content: Option<Vec<u8>>,
    // 1 was the permission bits, which are the same for all.
}
