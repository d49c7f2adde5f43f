//! A leader: appends batches, each by transactions that no other leader's can precede.

use std::collections::VecDeque;
use std::sync::Arc;

use squall_model::encoding;
use squall_model::replica::{Entry, Handover, Head, Leader};
use squall_model::time::Time;

use super::etcd::{Ask, Compare, Done, Op, Problem, Reply, Txn};
use super::follow::decoded;
use super::{Act, Lane, Phase, RETRY, Replica, Why};

use crate::invariant::invariant;

/// Longest value of a key, bytes. etcd refuses requests above 1.5 MiB.
const PIECE_BYTES: usize = 1 << 20;

/// The open question of a leader's log lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outstanding {
    Nothing,
    /// A piece of the batch.
    Piece,
    /// The batch's entry, and the new end of the log.
    Append,
    /// The end of the leadership.
    Resign,
}

/// A batch that is being appended.
#[derive(Debug)]
struct Batch {
    first: u64,
    last: u64,
    bytes: Arc<Vec<u8>>,
    /// Number of pieces that hold the batch. 0: it stands in its entry.
    pieces: u32,
    /// Pieces that are written before the entry, by number.
    left: VecDeque<u32>,
}

#[derive(Debug)]
pub(super) struct Lead {
    /// Revision of `leader`, which is this controller's.
    leader_at: i64,
    /// Revision of `head` after the last append.
    head_at: i64,
    batch: Option<Batch>,
    /// Whether it resigns.
    resigns: bool,
    /// The controller that goes first afterwards.
    heir: Option<String>,
    /// Whether all controllers end.
    stops: bool,
    asked: Outstanding,
    next: Time,
}

impl Lead {
    pub(super) fn new(leader_at: i64, head_at: i64) -> Self {
        let (batch, heir, asked, next) = (None, None, Outstanding::Nothing, Time(0));
        Self { leader_at, head_at, batch, resigns: false, heir, stops: false, asked, next }
    }

    pub(super) fn begin(&mut self, first: u64, last: u64, bytes: Arc<Vec<u8>>) {
        let pieces = if bytes.len() > PIECE_BYTES { bytes.len().div_ceil(PIECE_BYTES) as u32 } else { 0 };
        self.batch = Some(Batch { first, last, bytes, pieces, left: (0..pieces).collect() });
    }

    pub(super) fn resign(&mut self, to: Option<String>, stop: bool) {
        (self.resigns, self.heir, self.stops) = (true, to, stop);
    }

    pub(super) fn resigns(&self) -> bool {
        self.resigns
    }

    /// Returns when the log lane is needed. None: it has nothing to do.
    pub(super) fn due(&self) -> Option<Time> {
        let works = self.batch.is_some() || self.resigns;
        (works && self.asked == Outstanding::Nothing).then_some(self.next)
    }

    /// The condition of everything that a leader writes: it still leads.
    pub(super) fn leads(&self, key: &str) -> Compare {
        Compare { key: key.to_owned(), modified: self.leader_at }
    }
}

impl Replica {
    /// Asks what a leader needs next.
    pub(super) fn lead(&mut self, now: Time, out: &mut Vec<Act>) {
        let Phase::Leading(lead) = &mut self.phase else { return invariant!("a leader leads") };
        if lead.asked != Outstanding::Nothing || now < lead.next {
            return;
        }
        let (keys, run) = (&self.keys, self.settings.run);
        let put = |key: String, value: Vec<u8>, lease| Op::Put { key, value, lease };
        let mut txn = Txn { compare: vec![lead.leads(&keys.leader)], ..Txn::default() };
        if let Some(batch) = &lead.batch {
            let (first, last) = (batch.first, batch.last);
            if let Some(piece) = batch.left.front() {
                let begin = *piece as usize * PIECE_BYTES;
                let end = (begin + PIECE_BYTES).min(batch.bytes.len());
                txn.then = vec![put(keys.piece(first, run, *piece), batch.bytes[begin..end].to_vec(), None)];
                lead.asked = Outstanding::Piece;
            } else {
                let pieces = batch.pieces;
                let bytes = if pieces == 0 { batch.bytes.to_vec() } else { Vec::new() };
                let entry = Entry { last, run, pieces, bytes };
                let head = Head { last, run, log: self.log.unwrap_or_default() };
                txn.compare.push(Compare { key: keys.head.clone(), modified: lead.head_at });
                txn.then = vec![
                    put(keys.entry(first), encoding::to_vec(&entry), None),
                    put(keys.head.clone(), encoding::to_vec(&head), None),
                ];
                lead.asked = Outstanding::Append;
            }
        } else if lead.resigns {
            txn.then = vec![Op::Delete { key: keys.leader.clone(), end: None }];
            if lead.stops || lead.heir.is_some() {
                let handover = Handover { to: lead.heir.clone().unwrap_or_default(), stop: lead.stops };
                let named = encoding::to_vec(&handover);
                txn.then.push(put(keys.handover.clone(), named, self.lease.held(now)));
            }
            lead.asked = Outstanding::Resign;
        } else {
            // because there may be nothing to tell
            return;
        }
        txn.otherwise = vec![Op::get(&keys.leader), Op::get(&keys.head)];
        out.push(Act::Ask { lane: Lane::Log, ask: Ask::Txn(txn) });
    }

    pub(super) fn take_led(&mut self, now: Time, reply: Result<Reply, Problem>, out: &mut Vec<Act>) {
        let Phase::Leading(lead) = &mut self.phase else { return invariant!("a leader leads") };
        let asked = std::mem::replace(&mut lead.asked, Outstanding::Nothing);
        lead.next = now;
        match reply {
            Ok(Reply::Txn(done)) if done.succeeded => match asked {
                Outstanding::Nothing => {}
                Outstanding::Piece => {
                    if let Some(batch) = &mut lead.batch {
                        batch.left.pop_front();
                    }
                }
                Outstanding::Append => self.appended(done.revision, out),
                Outstanding::Resign => {
                    let to = lead.heir.take();
                    self.end(Why::Resigned { to }, out);
                }
            },
            Ok(Reply::Txn(done)) if asked != Outstanding::Nothing => self.fenced(&done, out),
            Ok(_) => {}
            Err(Problem::NoSpace(why)) if lead.batch.take().is_some() => out.push(Act::Appended(Err(why))),
            // It is unknown whether that was done. It is asked again: what was done fails the comparison then.
            Err(_) => lead.next = now + RETRY,
        }
    }

    fn appended(&mut self, head_at: i64, out: &mut Vec<Act>) {
        let Phase::Leading(lead) = &mut self.phase else { return invariant!("a leader leads") };
        let Some(batch) = lead.batch.take() else { return invariant!("what was appended was given") };
        lead.head_at = head_at;
        self.last = batch.last;
        out.push(Act::Appended(Ok(())));
    }

    /// A comparison has failed: either what was asked had been done although no answer came, or another controller has
    /// won.
    fn fenced(&mut self, done: &Done, out: &mut Vec<Act>) {
        let mut read = done.results.iter().map(|pairs| pairs.first());
        let (leader, head) = (read.next().flatten(), read.next().flatten());
        let Phase::Leading(lead) = &mut self.phase else { return invariant!("a leader leads") };
        let leads = leader.is_some_and(|pair| pair.modified == lead.leader_at);
        let own = head.and_then(|pair| Some((decoded::<Head>(pair).ok()?, pair.modified)));
        if let (true, Some((head, at)), Some(batch)) = (leads, own, &lead.batch)
            && head.run == self.settings.run
            && head.last == batch.last
        {
            return self.appended(at, out);
        }
        if leader.is_none() && lead.resigns && lead.batch.is_none() {
            let to = lead.heir.take();
            return self.end(Why::Resigned { to }, out);
        }
        let by = leader.and_then(|pair| Some(decoded::<Leader>(pair).ok()?.name));
        self.end(Why::Deposed { by }, out);
    }
}
