//! Fences round a ring: the other way to bring data from each node to all.
//!
//! Each node passes data on to the next. A node sends each byte once, while an inner node of the tree sends it to
//! each of its children. But the last piece passes through every node. So a ring suits much data on few nodes.
//!
//! No node knows beforehand how much the others bring, and all must choose the same way. Small data goes up the tree
//! at once; of large data only the size does. The root knows the sum and decides.

use squall_model::encoding::ByteBuf;
use squall_model::wire::peer::{Fault, Gathering, PeerMessage, What};

use super::exchange::{Acts, Brought, Exchange, ExchangeAct, Open};

use crate::invariant::invariant;

/// Bytes for each node above which a ring is faster than the tree (`bench fence`). An inner node saves fifteen
/// copies, but all nodes have to be woken for each piece.
pub(super) const RING_BYTES_EACH: usize = 32 << 10;

/// Path by which the ranks' data goes to all: `SLURM_PMIX_FENCE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Up and down a tree.
    Tree,
    /// Round a ring.
    Ring,
    /// Tree or ring, by data size and number of nodes.
    #[default]
    Mixed,
}

impl Shape {
    /// Returns whether this gathering goes round the ring whatever its size. A gathering that needs a number uses the
    /// tree, as the tree's root assigns the number.
    pub(super) fn is_ring(self, what: &What, members: usize) -> bool {
        self == Self::Ring && may_ring(what, members)
    }

    /// Returns the most bytes of data that a gathering sends up the tree. Of more data only the size goes up.
    pub(super) fn tree_bytes_max(self, what: &What, members: usize) -> usize {
        if self == Self::Mixed && may_ring(what, members) { members * RING_BYTES_EACH } else { usize::MAX }
    }
}

fn may_ring(what: &What, members: usize) -> bool {
    matches!(what, What::Fence | What::Barrier | What::Trial) && members > 2
}

impl Open {
    /// Returns the indices in `members` of the nodes before and after this one in the ring.
    pub(super) fn around(&self) -> [usize; 2] {
        let n = self.members.len();
        [(self.at + n - 1) % n, (self.at + 1) % n]
    }
}

impl Exchange {
    /// Handles a child's report that all below it have joined; the child keeps their data, of `bytes` bytes.
    pub(super) fn held(&mut self, place: u32, gathering: &Gathering, bytes: u64, out: &mut Acts) {
        self.rise(place, gathering, Brought::Held(bytes), out);
    }

    /// Handles the parent's decision that the data goes round the ring.
    pub(super) fn round(&mut self, place: u32, gathering: &Gathering, context: u64, out: &mut Acts) {
        let told = self.open.get(gathering).is_some_and(|o| o.parent() == Some(place) && o.own.is_some());
        if told {
            self.start_round(gathering, context, out);
        }
    }

    /// Tells the children that the data goes round the ring, and sends this node's piece to the next node.
    pub(super) fn start_round(&mut self, gathering: &Gathering, context: u64, out: &mut Acts) {
        // because the parent's word may come twice
        let Some(open) = self.open.get_mut(gathering).filter(|open| open.round.is_none()) else { return };
        open.round = Some(context);
        for child in open.children() {
            let message = PeerMessage::Round { gathering: gathering.clone(), context };
            out.push(ExchangeAct::Send { place: open.members[child], message });
        }
        if self.is_stuck(gathering) {
            return self.fail(gathering, Fault::Gone, None, out);
        }
        self.begin_round(gathering, out);
    }

    /// Sends this node's piece to the next node. Precondition: the gathering goes round the ring, and all local ranks
    /// have joined.
    pub(super) fn begin_round(&mut self, gathering: &Gathering, out: &mut Acts) {
        let Some(open) = self.open.get(gathering) else { return invariant!("a gathering that goes round is open") };
        let Some(own) = &open.own else { return invariant!("a gathering that goes round has been joined here") };
        let (next, origin, data) = (open.members[open.around()[1]], open.at as u32, own.data.clone());
        self.send_piece(next, gathering, origin, data, out);
        self.close_round(gathering, out);
    }

    fn send_piece(&mut self, place: u32, gathering: &Gathering, origin: u32, data: Vec<u8>, out: &mut Acts) {
        self.stats.sent_bytes += data.len() as u64;
        let message = PeerMessage::Piece { gathering: gathering.clone(), origin, data: ByteBuf::from(data) };
        out.push(ExchangeAct::Send { place, message });
    }

    /// Keeps the piece of another node and passes it on, even if local ranks have not joined yet.
    pub(super) fn piece(&mut self, gathering: &Gathering, origin: u32, data: Vec<u8>, out: &mut Acts) {
        if self.is_past(gathering) || self.failed.contains_key(gathering) {
            return;
        }
        // because a peer may send a piece for ranks that are not here
        let Some(open) = self.opened(gathering) else { return };
        let at = origin as usize;
        if at >= open.members.len() || at == open.at || open.pieces.contains_key(&at) {
            return;
        }
        let next = open.around()[1];
        let place = open.members[next];
        open.pieces.insert(at, data.clone());
        if next != at {
            self.send_piece(place, gathering, origin, data, out);
        }
        if self.is_stuck(gathering) {
            return self.fail(gathering, Fault::Gone, None, out);
        }
        self.close_round(gathering, out);
    }

    /// Ends the gathering if the pieces of all nodes have come round the ring and the local ranks have joined.
    fn close_round(&mut self, gathering: &Gathering, out: &mut Acts) {
        let whole = self.open.get(gathering).is_some_and(|open| {
            open.round.is_some() && open.own.is_some() && open.pieces.len() + 1 == open.members.len()
        });
        if !whole {
            return;
        }
        let Some(mut open) = self.open.remove(gathering) else { return invariant!("a whole gathering is open") };
        let (Some(own), context) = (open.own.take(), open.round.unwrap_or_default()) else {
            return invariant!("a whole gathering has been joined here");
        };
        self.stats.by_ring += 1;
        open.pieces.insert(open.at, own.data);
        let data: Vec<u8> = open.pieces.into_values().flatten().collect();
        out.push(ExchangeAct::Joined { ticket: own.ticket, result: Ok((data, context)) });
    }
}
