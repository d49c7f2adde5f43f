//! Stand-ins for the controllers' signing key, and for what nodes know of it.

use std::sync::atomic::{AtomicU64, Ordering};

use squall_engine::fabric::proof::{Sign, Signers};
use squall_model::id::Epoch;
use squall_model::job::Digest;
use squall_model::rotation::ControllerKeys;
use squall_model::wire::proof::SIGNATURE_BYTES;

/// Stand-in for the controllers' signing key after so many rotations: its secret is known to this module only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(pub(crate) u64);

impl Sign for Secret {
    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let digest = Digest::of(&[b"secret", &self.0.to_le_bytes()[..], bytes].concat()).0;
        let mut signature = [0; SIGNATURE_BYTES];
        signature[..32].copy_from_slice(&digest);
        signature
    }
}

/// What a node knows of the controllers' keys, on its disk: after how many rotations they are.
#[derive(Debug, Default)]
pub(crate) struct NodeKeys(AtomicU64);

impl NodeKeys {
    /// Takes the keys after so many rotations.
    pub(crate) fn keep(&self, rotations: u64) {
        self.0.store(rotations, Ordering::Relaxed);
    }
}

impl Signers for NodeKeys {
    fn are_known(&self) -> bool {
        true
    }

    fn have_signed(&self, bytes: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        Secret(self.0.load(Ordering::Relaxed)).sign(bytes) == *signature
    }

    fn open(&self, _: (Epoch, u64), bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

/// Returns the number of rotations after which the controllers have these keys, in worlds of this module.
pub(crate) fn rotations_of(keys: &ControllerKeys) -> u64 {
    keys.signer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
