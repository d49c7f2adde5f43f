//! Proofs that messages are the controller's, whoever relays them.
//!
//! The messages of a put are the leaves of a Merkle tree (as in RFC 9162). The roots of all puts that the controller
//! sends at the same time are the leaves of another one, of which it signs the root (Ed25519, RFC 8032): one signature,
//! however many puts. Each put carries the signature and the digests that lead from it to the signed root.

use minicbor::{Decode, Encode};

use crate::encoding::ByteBuf;
use crate::id::Epoch;

/// Public half of the key with which the controllers of a cluster sign (Ed25519).
pub type SignerKey = [u8; 32];

/// Bytes of a signature (Ed25519).
pub const SIGNATURE_BYTES: usize = 64;

/// The way from a leaf of a Merkle tree to its root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct TreePath {
    /// Index of the leaf.
    #[n(0)]
    pub leaf: u32,
    /// Number of leaves in the tree.
    #[n(1)]
    pub leaves: u32,
    /// Digests of the siblings on the way, 32 bytes each.
    #[n(2)]
    pub siblings: ByteBuf,
}

/// Proof that the controller sent a put.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Proof {
    /// From the put to the root of all puts that were sent at the same time.
    #[n(0)]
    pub path: TreePath,
    /// Signature of that root.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub signature: [u8; SIGNATURE_BYTES],
}

/// What is checked once more before a process becomes a user: the message with which the controller ordered a step, and
/// the proof that it did. Kept in the step's folder.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Warrant {
    /// Epoch of the controller that sent the message.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the put in that epoch.
    #[n(1)]
    pub seq: u64,
    /// The message, encoded.
    #[n(2)]
    pub message: ByteBuf,
    /// From the message to the root of the put's own tree.
    #[n(3)]
    pub within: TreePath,
    /// The put's proof.
    #[n(4)]
    pub proof: Proof,
}
