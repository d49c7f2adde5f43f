//! Files that operators send to nodes: the requests, the answers, and checks that the answers are true.

use std::sync::Arc;

use squall_engine::control::Cast;
use squall_engine::control::Input;
use squall_model::hostlist;
use squall_model::job::Digest;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::broadcast::{Broadcast, BroadcastTo};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Bytes, Chunk, ContentId};

use crate::world::{Happening, World};

/// Time that a client takes to send one file piece.
const PACE: Span = Span(40);

/// A file and the nodes that it is sent to.
#[derive(Clone)]
pub(crate) struct Parcel {
    /// Name of the file in a scenario.
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) bytes: Arc<[u8]>,
    digest: Digest,
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes {} for {:?}", self.bytes.len(), self.name, self.nodes)
    }
}

impl Parcel {
    /// Creates a file with made-up content; `number` distinguishes files of equal length.
    pub(crate) fn new(name: &str, nodes: Vec<String>, size: usize, number: u64) -> Self {
        let bytes: Arc<[u8]> = (0..size).map(|at| (at as u64 / 5 + number * 7) as u8).collect();
        Self { name: name.to_owned(), nodes, digest: Digest::of(&bytes), bytes }
    }

    /// Returns the file's content id. Its owner is user 0, the operator.
    fn content(&self) -> ContentId {
        ContentId { owner: 0, digest: self.digest }
    }

    pub(crate) fn request(&self) -> Request {
        let to = BroadcastTo::Nodes(hostlist::compress(&self.nodes));
        let (digest, size) = (self.digest, self.bytes.len() as u64);
        let known_as = None;
        Request::Broadcast(Box::new(Broadcast {
            to,
            digest,
            size,
            shared: false,
            place: None,
            time_ms: None,
            known_as,
        }))
    }
}

impl World {
    /// Multicasts file pieces to all nodes that receive the stream. Each node loses pieces independently.
    pub(crate) fn cast(&mut self, of: usize, casts: Vec<Cast>) {
        let (from, lost) = (self.network.controller(of), self.setup.multicast.unwrap_or_default());
        for Cast { stream, key, at, bytes, last, .. } in casts {
            for node in 0..self.nodes.len() {
                let host = &self.nodes[node];
                let Some(&(content, known)) = host.hears.get(&stream).filter(|_| !host.deaf) else { continue };
                if known != key || self.seed.chance(lost) {
                    continue;
                }
                // Multicast pieces may arrive in any order.
                let fate = self.network.fate(self.now, (from, node), &mut Time(0), &mut self.seed);
                let life = self.nodes[node].life;
                for arrival in fate.first.into_iter().chain(fate.second) {
                    let (to, bytes) = (NodeSet::new(), bytes.clone());
                    let chunk = Box::new(Chunk { to, cascade: None, content, at, bytes });
                    self.agenda.at(arrival, Happening::Beside { node, life, chunk });
                }
            }
            if last {
                self.tell_controller(of, Input::CastOut { stream });
            }
        }
    }

    /// Handles an answer to the client that sends a file. Returns true for the last answer.
    pub(crate) fn parcel_answered(&mut self, caller: u64, parcel: &Parcel, answer: &Answer) -> bool {
        match answer {
            Answer::Want { from, through, chunk_bytes } => {
                // Pieces arrive in order on a connection: after those already in flight.
                let busy = self.clients.sending.get(&caller).copied().unwrap_or_default();
                let (mut at, mut after) = (*from as usize, busy.since(self.now));
                while at < *through as usize {
                    let end = (at + *chunk_bytes as usize).min(*through as usize);
                    let request =
                        Box::new(Request::Chunk { at: at as u64, bytes: Bytes(parcel.bytes[at..end].into()) });
                    after = Span(after.0 + PACE.0);
                    self.after(after, Happening::Ask { caller, request });
                    at = end;
                }
                self.clients.sending.insert(caller, self.now + after);
                false
            }
            Answer::Broadcast { failed: None, .. } => {
                for lacking in self.lacking(parcel) {
                    self.judge.violate("who is told that all nodes have a file is right", lacking);
                }
                self.clients.brought.insert(parcel.name.clone(), (true, 0));
                true
            }
            _ => {
                self.clients.brought.insert(parcel.name.clone(), (false, self.lacking(parcel).len()));
                true
            }
        }
    }

    /// Returns the names of the nodes that a file was sent to and that do not have it.
    fn lacking(&self, parcel: &Parcel) -> Vec<String> {
        let lacks = |name: &&String| {
            let node = self.nodes.iter().find(|node| node.name == **name);
            node.is_none_or(|node| !node.files.has(&parcel.content()))
        };
        parcel.nodes.iter().filter(lacks).cloned().collect()
    }

    /// Checks that a scenario's file has arrived. `nowhere` None: all its nodes must have it. Some: it must be missing
    /// on this number of nodes.
    pub(crate) fn check_brought(&self, name: &str, nowhere: Option<usize>) -> Result<(), String> {
        match (self.clients.brought.get(name), nowhere) {
            (Some((true, _)), None) => Ok(()),
            (Some((false, lack)), Some(all)) if *lack == all => Ok(()),
            (Some((true, _)), Some(_)) => Err(format!("{name} is on all its nodes")),
            (Some((false, lack)), _) => Err(format!("{name} could not be brought, {lack} nodes lack it")),
            (None, _) => Err(format!("nothing was said of {name} yet")),
        }
    }
}
