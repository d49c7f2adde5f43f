//! The controllers' keys after a rotation: what nodes and the journal keep of them, public halves only.

use minicbor::{Decode, Encode};

use crate::time::Time;
use crate::wire::join::PublicKey;
use crate::wire::proof::SignerKey;

/// The keys that the controllers of a cluster have from some moment on. Both halves of it follow from one private key,
/// which stands on the controllers' disks only.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ControllerKeys {
    /// Public key by which other machines recognize a controller (X25519).
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub key: PublicKey,
    /// Public key of the controllers' signatures (Ed25519).
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub signer: SignerKey,
    /// Time from which on a controller no longer answers to the key before.
    #[n(2)]
    pub until: Time,
}
