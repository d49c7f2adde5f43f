//! Planted bugs of several controllers: they alter what passes between a controller's side of the log, etcd and nodes.

use std::sync::Arc;

use squall_engine::replica::Lane;
use squall_engine::replica::etcd::{Ask, Done, Op, Problem, Reply};
use squall_model::encoding;
use squall_model::replica::Head;
use squall_model::time::Span;

use super::PREFIX;
use crate::mutation::Mutation;
use crate::world::World;

/// How old an answer may be that a planted bug takes for a new one.
const OLD: Span = Span::from_millis(1200);

impl World {
    /// Alters a question to etcd as the planted bug requires. Some: it is not asked, and this is the answer.
    pub(super) fn perturb_ask(&mut self, of: usize, lane: Lane, ask: &mut Ask) -> Option<Reply> {
        let mutation = self.setup.mutation?;
        let Ask::Txn(txn) = ask else {
            let renews = matches!(ask, Ask::KeepAlive { .. }) && mutation == Mutation::LeaseFromReply;
            return if renews { self.renewed_before(of) } else { None };
        };
        let puts = |name: &str, op: &Op| matches!(op, Op::Put { key, .. } if key[PREFIX.len()..].starts_with(name));
        let appends = txn.then.iter().any(|op| puts("/log/", op));
        let campaigns = txn.then.iter().any(|op| puts("/leader", op));
        match mutation {
            Mutation::AppendUnfenced if appends => txn.compare.clear(),
            Mutation::EndUncompared if appends => txn.compare.retain(|compare| !compare.key.ends_with("/head")),
            Mutation::LogFoundedAnew if campaigns && self.controllers[of].seq == 0 => txn.compare.clear(),
            Mutation::TrimmedEarly if lane == Lane::Side => {
                for op in &mut txn.then {
                    if let Op::Delete { key, end } = op {
                        *end = Some(format!("{}0", key.trim_end_matches('/')));
                    }
                }
            }
            _ => {}
        }
        None
    }

    /// Returns the answer to an earlier renewal of the lease. None: it is too old, so a true one is needed.
    fn renewed_before(&mut self, of: usize) -> Option<Reply> {
        let now = self.now;
        let peer = self.controllers[of].peer.as_mut()?;
        if now.since(peer.renewed) < OLD {
            return Some(Reply::Alive { exists: true });
        }
        peer.renewed = now;
        None
    }

    /// Alters an answer of etcd as the planted bug requires.
    pub(super) fn perturb_reply(&mut self, of: usize, lane: Lane, reply: &mut Result<Reply, Problem>) {
        let Some(mutation) = self.setup.mutation.filter(|_| lane == Lane::Log) else { return };
        let host = &self.controllers[of];
        let Some(peer) = &host.peer else { return };
        let appends = peer.batch.is_some();
        match (mutation, &mut *reply) {
            (Mutation::DoubtTakenForDone, Err(Problem::Unavailable(_))) if appends => {
                *reply = Ok(Reply::Txn(Done { revision: 0, succeeded: true, results: Vec::new() }));
            }
            (Mutation::DoubtTakenForFailed, Err(Problem::Unavailable(why))) if appends => {
                *reply = Err(Problem::NoSpace(why.clone()));
            }
            (Mutation::CampaignBehind, Ok(Reply::Txn(done))) if host.seq > 0 && done.results.len() == 6 => {
                done.results[5].clear();
                if let Some(pair) = done.results[2].first_mut()
                    && let Ok(end) = encoding::from_slice::<Head>(&pair.value)
                {
                    pair.value = encoding::to_vec(&Head { last: host.seq, ..end });
                }
            }
            (Mutation::LogFoundedAnew, Ok(Reply::Txn(done))) if host.seq == 0 && done.results.len() == 6 => {
                for at in [0, 2] {
                    done.results[at].clear();
                }
            }
            (Mutation::PieceMissing, Ok(Reply::Txn(done))) if done.results.len() == 1 && peer.state.is_some() => {
                if let [first, .., last] = done.results[0].as_mut_slice() {
                    last.value.clone_from(&first.value);
                }
            }
            _ => {}
        }
    }

    /// Decides the batch anew that an append without an answer is about, as a planted bug requires.
    pub(super) fn decide_anew(&mut self, of: usize) {
        if self.is_planted(Mutation::DoubtTakenForFailed)
            && let Some(batch) = self.controllers[of].peer.as_mut().and_then(|peer| peer.batch.as_mut())
        {
            let now = self.now;
            for record in Arc::make_mut(&mut batch.work.records) {
                record.time = now;
            }
        }
    }
}
