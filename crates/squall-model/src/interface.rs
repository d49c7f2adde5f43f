//! Addresses of nodes, and which one stands in for which when a job goes on elsewhere.

use minicbor::{Decode, Encode};

/// An address of a node, with the length of the prefix that all addresses of its network have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Interface {
    /// The address, as one of IPv6; those of IPv4 are mapped (RFC 4291, 2.5.5.2).
    #[n(0)]
    pub address: u128,
    /// Length of the prefix, bits of 128.
    #[n(1)]
    pub prefix: u8,
}

impl Interface {
    /// Returns whether another address is of the same network.
    pub fn has(self, other: Self) -> bool {
        let ignored = 128_u32.saturating_sub(u32::from(self.prefix));
        let network = |address: u128| address.checked_shr(ignored).unwrap_or(0);
        self.prefix == other.prefix && network(self.address) == network(other.address)
    }
}

/// Returns the addresses of before that are others now, each with the one that stands in for it: of the node with the same
/// place, in the same network.
pub fn moved(before: &[Vec<Interface>], now: &[Vec<Interface>]) -> Vec<(u128, u128)> {
    let nodes = before.iter().zip(now);
    let pairs = nodes.flat_map(|(before, now)| {
        let left = before.iter().filter(|old| !now.iter().any(|new| new.address == old.address));
        left.filter_map(|old| Some((old.address, now.iter().find(|new| old.has(**new))?.address)))
    });
    pairs.collect()
}
