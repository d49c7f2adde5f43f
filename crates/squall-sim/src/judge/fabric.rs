//! Invariants of the tree: every put (message to a set of nodes) arrives as it was sent, once, in order and without
//! gaps; every answer was true at some time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_model::id::{Epoch, Session};
use squall_model::time::Time;
use squall_model::wire::fabric::{DownFrame, Downward, Parcel, Put, Test, Variable};
use squall_model::wire::node::Down;

use super::Judge;

/// Number of puts (messages to sets of nodes) that are remembered: more than are ever in flight.
const REMEMBERED: usize = 1 << 14;

/// Identity of a put (message to a set of nodes): the controller incarnation that sent it, and its number.
type Key = (Epoch, u64);

/// Values that a variable had on a node, each with the time from which it held.
type History = Vec<(Time, i64)>;

/// Facts that the judge has collected about the tree.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    /// Puts (messages to sets of nodes) that the controller has sent, by identity.
    said: BTreeMap<Key, Arc<Parcel>>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Puts (messages) that were sent to this node and have not arrived yet, oldest first.
    owed: VecDeque<Key>,
    /// Last put (message) that the node accepted: daemon start number, session and put number. None: it has accepted
    /// none yet.
    taken: Option<(u64, Session, u64)>,
    newest: Session,
    values: BTreeMap<String, History>,
}

/// A put (message to a set of nodes) that a frame delivers to a node.
#[derive(Debug)]
pub(crate) struct Brought {
    key: Key,
    parcel: Arc<Parcel>,
    /// Whether the message is for this node alone and belongs to no session, as the answer to a registration.
    reply: bool,
}

impl Fabric {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { said: BTreeMap::new(), nodes: std::iter::repeat_with(Node::default).take(nodes).collect() }
    }
}

impl Judge {
    /// Records the puts (messages to sets of nodes) in a frame that the controller sends.
    pub(crate) fn said(&mut self, frame: &DownFrame) {
        for say in &frame.says {
            match say {
                Downward::Put(put) if self.remember(put) => {
                    for host in put.to.iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
                        // Earlier puts may still be sent on other connections.
                        let (owed, key) = (&mut self.fabric.nodes[host].owed, (put.epoch, put.seq));
                        if let Err(at) = owed.binary_search(&key) {
                            owed.insert(at, key);
                        }
                    }
                }
                Downward::Reply { put, .. } => drop(self.remember(put)),
                _ => {}
            }
        }
    }

    /// Remembers a put (message to a set of nodes) that the controller sends. Returns false if it cannot be decoded.
    fn remember(&mut self, put: &Put) -> bool {
        let Ok(parcel) = put.parcel.open() else { return false };
        if self.fabric.said.len() == REMEMBERED && !self.fabric.said.contains_key(&(put.epoch, put.seq)) {
            self.fabric.said.pop_first();
        }
        self.fabric.said.insert((put.epoch, put.seq), parcel);
        true
    }

    /// Returns the puts (messages) of a frame that are for the node that the frame reaches.
    pub(crate) fn brought(&self, host: usize, frame: &DownFrame) -> Vec<Brought> {
        let owed = &self.fabric.nodes[host].owed;
        let brought = frame.says.iter().filter_map(|say| {
            let (put, reply) = match say {
                Downward::Put(put) => (put, false),
                Downward::Reply { put, route, .. } if route.is_empty() => (put, true),
                _ => return None,
            };
            let key = (put.epoch, put.seq);
            (reply || owed.binary_search(&key).is_ok()).then_some((put, key, reply))
        });
        brought.filter_map(|(put, key, reply)| Some(Brought { key, parcel: put.parcel.open().ok()?, reply })).collect()
    }

    /// Checks the puts (messages) that a node accepted from a frame. `session`: the node's session after the frame, and
    /// the number of the last put that it accepted.
    pub(crate) fn took(
        &mut self,
        now: Time,
        (host, life): (usize, u64),
        session: Option<(Session, u64)>,
        brought: &[Brought],
    ) {
        let Some((session, last)) = session else {
            self.fabric.nodes[host].taken = None;
            return;
        };
        let node = &mut self.fabric.nodes[host];
        let same = node.taken.filter(|&(in_life, before, _)| in_life == life && before == session);
        node.taken = Some((life, session, last));
        if same.is_none() && session < std::mem::replace(&mut node.newest, session) {
            let text = format!("{}: {session:?}", self.names[host]);
            return self.violate("sessions only rise", text);
        }
        // A session begins with the answer to its registration.
        let welcome = || brought.iter().find(|b| b.reply && b.key.1 > session.number).map(|b| b.key.1);
        let from = same.map_or_else(|| welcome().unwrap_or(last), |(_, _, before)| before);
        if last < from {
            return self.violate("puts are taken in order", format!("{}: {last} after {from}", self.names[host]));
        }
        let mut at = from;
        for put in brought {
            let fresh = put.key.0 == session.epoch && put.key.1 > at && put.key.1 <= last;
            if fresh || (put.reply && put.key.1 == from && same.is_none()) {
                at = put.key.1;
                self.take(now, host, put);
            }
        }
        if at != last {
            let text = format!("{} says it took {last}, was given {at}", self.names[host]);
            return self.violate("a node takes what is for it", text);
        }
        self.settle_debts(host, (session.epoch, from), (session.epoch, last), brought);
    }

    /// Checks the content of a put (message) that a node accepts, and records the variables that it writes.
    fn take(&mut self, now: Time, host: usize, put: &Brought) {
        if self.fabric.said.get(&put.key).is_some_and(|said| !Arc::ptr_eq(said, &put.parcel) && **said != *put.parcel) {
            let text = format!("{}: put {} of epoch {}", self.names[host], put.key.1, put.key.0.0);
            self.violate("puts arrive as they were said", text);
        }
        for message in &put.parcel.messages {
            if let Down::Write { variable: Variable::Named(name), value } = message {
                self.fabric.nodes[host].values.entry(name.clone()).or_default().push((now, *value));
            }
        }
    }

    /// Checks that a node has received every put (message) that was sent to it between two puts of one session, `from`
    /// and `last`.
    fn settle_debts(&mut self, host: usize, from: Key, last: Key, brought: &[Brought]) {
        while let Some(&key) = self.fabric.nodes[host].owed.front().filter(|key| **key <= last) {
            self.fabric.nodes[host].owed.pop_front();
            if key > from && !brought.iter().any(|put| put.key == key) {
                let text = format!("{} took {} and not {}", self.names[host], last.1, key.1);
                self.violate("no put is left out", text);
            }
        }
    }

    /// Records that a node daemon was killed, which resets its variables.
    pub(crate) fn variables_lost(&mut self, now: Time, host: usize) {
        for history in self.fabric.nodes[host].values.values_mut() {
            history.push((now, 0));
        }
    }

    /// Returns the first node's value of a variable (0 if it was never written), as an estimate of the value on all
    /// nodes.
    pub(crate) fn value_of(&self, name: &str) -> i64 {
        let node = self.fabric.nodes.first();
        node.and_then(|node| node.values.get(name)?.last()).map_or(0, |(_, value)| *value)
    }

    /// Checks a client's answer that a condition holds on all nodes but `others`: on each it must have held at some
    /// time between query and answer.
    pub(crate) fn told_so(&mut self, (asked, answered): (Time, Time), others: &[String], test: &Test) {
        let Variable::Named(name) = &test.variable else { return };
        for host in 0..self.names.len() {
            let never = |history: Option<&History>| {
                let begin = std::iter::once((Time::default(), 0));
                let times: Vec<(Time, i64)> = begin.chain(history.into_iter().flatten().copied()).collect();
                let ends = times.iter().skip(1).map(|(time, _)| *time).chain([answered]);
                let mut held =
                    times.iter().zip(ends).filter(|((since, _), until)| *since <= answered && *until >= asked);
                !held.any(|((_, value), _)| test.comparison.holds(*value, test.value))
            };
            let silent = others.contains(&self.names[host]);
            if !silent && never(self.fabric.nodes[host].values.get(name)) {
                let text = format!("{} never had {name} so: {:?}", self.names[host], test);
                return self.violate("a query's yes was true", text);
            }
        }
    }
}
