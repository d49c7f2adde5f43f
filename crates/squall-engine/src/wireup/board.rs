//! The board: values that ranks publish under names for others of the step to look up. It is kept at the step's first
//! node.

use std::collections::BTreeMap;

use squall_model::time::Time;
use squall_model::wire::peer::{Fault, Notice, PeerMessage};

use super::exchange::{Acts, Exchange, ExchangeAct};

/// Position in the step's layout of the node that keeps the board (the published values).
const KEEPER: u32 = 0;

/// Most bytes of names and values on the board (the values that ranks publish).
const BYTES_MAX: usize = 64 << 20;

/// The board: values that ranks have published, on the node that keeps them.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    notices: BTreeMap<String, Notice>,
    /// Lookups that wait for keys not published yet: position of the asking node in the layout, its ticket, the keys.
    waiting: Vec<(u32, u64, Vec<String>)>,
}

impl Board {
    fn bytes(&self) -> usize {
        self.notices.values().map(|notice| notice.key.len() + notice.value.len()).sum()
    }

    fn find(&self, keys: &[String]) -> Vec<Notice> {
        keys.iter().filter_map(|key| self.notices.get(key)).cloned().collect()
    }
}

impl Exchange {
    /// Handles a request of a local rank to the board (published values): sends it to the node that keeps the board, or
    /// carries it out if that is this node. `message` is the request.
    pub(super) fn consult(&mut self, now: Time, ticket: u64, message: PeerMessage, out: &mut Acts) {
        if self.here == KEEPER {
            return self.keep(KEEPER, message, out);
        }
        if self.lost.contains(&KEEPER) {
            return out.push(ExchangeAct::Found { ticket, result: Err(Fault::Gone) });
        }
        self.asked.insert(ticket, (KEEPER, now + self.patience));
        out.push(ExchangeAct::Send { place: KEEPER, message });
    }

    /// Handles a request to the board (published values) on the node that keeps it. `place`: position in the layout of
    /// the asking rank's node.
    pub(super) fn keep(&mut self, place: u32, message: PeerMessage, out: &mut Acts) {
        match message {
            PeerMessage::Post { ticket, notices } => {
                let more: usize = notices.iter().map(|notice| notice.key.len() + notice.value.len()).sum();
                let result = if self.board.bytes() + more > BYTES_MAX {
                    Err(Fault::TooLarge)
                } else if notices.iter().any(|notice| self.board.notices.contains_key(&notice.key)) {
                    Err(Fault::Taken)
                } else {
                    self.board.notices.extend(notices.into_iter().map(|notice| (notice.key.clone(), notice)));
                    Ok(Vec::new())
                };
                self.tell(place, ticket, result, out);
                self.tell_waiting(out);
            }
            PeerMessage::Withdraw { ticket, owner, keys } => {
                let goes = |notice: &Notice| notice.owner == owner && (keys.is_empty() || keys.contains(&notice.key));
                self.board.notices.retain(|_, notice| !goes(notice));
                self.tell(place, ticket, Ok(Vec::new()), out);
            }
            PeerMessage::Find { ticket, keys, wait } => {
                let found = self.board.find(&keys);
                if wait && found.len() < keys.len() {
                    self.board.waiting.push((place, ticket, keys));
                } else {
                    self.tell(place, ticket, Ok(found), out);
                }
            }
            _ => {}
        }
    }

    fn tell_waiting(&mut self, out: &mut Acts) {
        for (place, ticket, keys) in std::mem::take(&mut self.board.waiting) {
            let found = self.board.find(&keys);
            if found.len() == keys.len() {
                self.tell(place, ticket, Ok(found), out);
            } else {
                self.board.waiting.push((place, ticket, keys));
            }
        }
    }

    fn tell(&mut self, place: u32, ticket: u64, result: Result<Vec<Notice>, Fault>, out: &mut Acts) {
        if place == self.here {
            out.push(ExchangeAct::Found { ticket, result });
        } else if !self.lost.contains(&place) {
            out.push(ExchangeAct::Send { place, message: PeerMessage::Found { ticket, result } });
        }
    }
}
