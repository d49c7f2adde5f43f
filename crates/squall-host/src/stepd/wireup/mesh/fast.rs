//! UCX between the step daemons of a step: carries messages to those with a known worker address. Ordinary
//! connections stay open too: they transfer the workers' addresses, and their end shows that a step daemon has died.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use squall_model::codec;
use squall_model::encoding::ByteBuf;
use squall_model::wire::peer::PeerMessage;

use super::Kinship;
use crate::sys::ucx::{Peer, Worker};

/// Bits of a tag that hold the index of the sender's node in the step. The other bits prove that the sender belongs to
/// the step, as UCX itself accepts any sender.
const PLACE_BITS: u32 = 24;

/// This step daemon's UCX worker, and the connected ones of other step daemons.
#[derive(Debug)]
pub(super) struct Fast {
    worker: Worker,
    /// Secret of the step, in the upper bits of each tag.
    secret: u64,
    here: u64,
    peers: BTreeMap<u32, Peer>,
}

impl Fast {
    /// Loads UCX and starts a worker.
    pub(super) fn start(kinship: &Kinship, settings: &[(String, String)]) -> Result<Self, String> {
        let worker = Worker::start(settings)?;
        let mut secret = [0; 8];
        secret.copy_from_slice(&kinship.secret("UCX").as_bytes()[..8]);
        let secret = u64::from_le_bytes(secret) >> PLACE_BITS << PLACE_BITS;
        Ok(Self { worker, secret, here: u64::from(kinship.here), peers: BTreeMap::new() })
    }

    /// Returns the address of this worker, with which other step daemons connect to it.
    pub(super) fn address(&self) -> ByteBuf {
        ByteBuf::from(self.worker.address())
    }

    /// Connects to the worker of the step daemon on the node with index `place`, given the worker's address.
    pub(super) fn meet(&mut self, place: u32, address: &[u8]) {
        if !self.peers.contains_key(&place)
            && let Ok(peer) = self.worker.connect(address)
        {
            self.peers.insert(place, peer);
        }
    }

    /// Removes the connection to the step daemon on the node with index `place`, which has ended.
    pub(super) fn part(&mut self, place: u32) {
        self.peers.remove(&place);
    }

    /// Sends a message to the step daemon on the node with index `place`. False: its worker is not connected, or
    /// sending failed.
    pub(super) fn send(&mut self, place: u32, message: &PeerMessage) -> bool {
        let Some(peer) = self.peers.get(&place) else { return false };
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes).is_ok() && self.worker.send(*peer, self.secret | self.here, bytes).is_ok()
    }

    /// Returns the received messages, each with the index of the sending node in the step.
    pub(super) fn take(&mut self) -> Vec<(u32, PeerMessage)> {
        let taken = self.worker.take(self.secret, !0 << PLACE_BITS);
        let open = |(tag, bytes): (u64, Vec<u8>)| {
            let (message, _) = codec::take::<PeerMessage>(&bytes).ok()??;
            Some(((tag & !(!0 << PLACE_BITS)) as u32, message))
        };
        taken.into_iter().filter_map(open).collect()
    }

    /// Returns a descriptor that is readable when messages may have arrived.
    pub(super) fn interest(&self) -> BorrowedFd<'_> {
        self.worker.fd()
    }

    /// Whether all messages were sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.worker.is_flushed()
    }
}
