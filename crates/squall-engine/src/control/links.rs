//! Connections of nodes: which session each has, and what is to be sent on it.

use std::collections::BTreeMap;

use squall_model::codec;
use squall_model::id::{NodeId, Session};
use squall_model::limits::DOWN_BYTES_MAX;
use squall_model::time::Time;
use squall_model::wire::node::Down;

use super::{LinkId, Out};
use crate::session::Sender;

/// All connections of registered nodes.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_node: BTreeMap<NodeId, Link>,
    by_link: BTreeMap<LinkId, NodeId>,
    outbox: BTreeMap<NodeId, Vec<Down>>,
    /// The newest connection on which each node registered, standing or not.
    newest: BTreeMap<NodeId, LinkId>,
    registrations: u64,
}

/// The connection of one node.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its number.
    pub(crate) id: LinkId,
    /// When the node was heard of last.
    pub(crate) heard: Time,
    /// Load average, hundredths.
    pub(crate) load_centi: u32,
    /// Free memory, MiB.
    pub(crate) free_mb: u64,
    /// Version of its daemon.
    pub(crate) version: String,
    sender: Sender,
}

impl Links {
    /// A node registered on this connection: a new session begins. Returns the connection that it replaces.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        link: LinkId,
        epoch: squall_model::id::Epoch,
        now: Time,
        version: String,
    ) -> Option<LinkId> {
        self.registrations += 1;
        let session = Session { epoch, number: self.registrations };
        let fresh = Link { id: link, heard: now, load_centi: 0, free_mb: 0, version, sender: Sender::new(session) };
        self.outbox.remove(&node);
        self.newest.insert(node, link);
        self.by_link.insert(link, node);
        let old = self.by_node.insert(node, fresh)?.id;
        (old != link).then(|| {
            self.by_link.remove(&old);
            old
        })
    }
    /// Whether the node has registered on a later connection: what comes on this one was said by an earlier life of
    /// it, or before a connection broke. Connections are numbered in the order in which they were made.
    pub(crate) fn is_outdated(&self, node: NodeId, link: LinkId) -> bool {
        self.newest.get(&node).is_some_and(|newest| *newest > link)
    }
    /// The connection has ended; returns the node that it was.
    pub(crate) fn lost(&mut self, link: LinkId) -> Option<NodeId> {
        let node = self.by_link.remove(&link)?;
        self.by_node.remove(&node);
        self.outbox.remove(&node);
        Some(node)
    }
    /// The node on a connection, if it has registered and nobody took over.
    pub(crate) fn node(&self, link: LinkId) -> Option<NodeId> {
        self.by_link.get(&link).copied()
    }
    /// A node's connection.
    pub(crate) fn get(&self, node: NodeId) -> Option<&Link> {
        self.by_node.get(&node)
    }
    /// A node's connection, to note what was heard on it.
    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Link> {
        self.by_node.get_mut(&node)
    }
    /// How many nodes are connected.
    pub(crate) fn len(&self) -> usize {
        self.by_node.len()
    }
    /// Queues a message.
    pub(crate) fn push(&mut self, node: NodeId, message: Down) {
        if self.by_node.contains_key(&node) {
            self.outbox.entry(node).or_default().push(message);
        }
    }
    /// Queues a message if there is one.
    pub(crate) fn extend(&mut self, node: NodeId, message: Option<Down>) {
        if let Some(message) = message {
            self.push(node, message);
        }
    }
    /// Sees to it that the node gets a frame, if an empty one: so it knows that it is heard and has missed nothing.
    pub(crate) fn answer(&mut self, node: NodeId) {
        if self.by_node.contains_key(&node) {
            self.outbox.entry(node).or_default();
        }
    }
    /// Turns what is queued into one frame for each node, or several if it is much.
    pub(crate) fn flush(&mut self, out: &mut Out) {
        while let Some((node, messages)) = self.outbox.pop_first() {
            if let Some(link) = self.by_node.get_mut(&node) {
                let frames = portions(messages).into_iter().map(|messages| link.sender.frame(messages));
                out.sends.extend(frames.map(|frame| (link.id, frame)));
            }
        }
    }
}

/// Messages in portions that fit into a frame, in order; at least one, if an empty one.
fn portions(messages: Vec<Down>) -> Vec<Vec<Down>> {
    if messages.len() < 2 {
        return vec![messages];
    }
    let mut portions = vec![Vec::new()];
    let mut bytes = 0;
    for message in messages {
        let size = codec::size(&message);
        if bytes > 0 && bytes + size > DOWN_BYTES_MAX {
            portions.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        portions.last_mut().expect("there is one from the start").push(message);
    }
    portions
}

impl Link {
    /// The session in force.
    pub(crate) fn session(&self) -> Session {
        self.sender.session()
    }
}

#[cfg(test)]
mod tests {
    use squall_model::limits::DOWN_BYTES_MAX;
    use squall_model::step::{Program, StepStart, TaskProgram};
    use squall_model::wire::node::Down;

    use super::portions;

    #[test]
    fn what_is_too_much_for_a_frame_goes_in_several() {
        let step = |bytes: usize| {
            let program = TaskProgram { env: vec![0; bytes].into(), ..TaskProgram::default() };
            let program = Program::Tasks(Box::new(program));
            Down::StartStep(Box::new(StepStart { program, ..StepStart::default() }))
        };
        let sizes = |messages: Vec<Down>| portions(messages).iter().map(Vec::len).collect::<Vec<_>>();
        let most = DOWN_BYTES_MAX;
        assert_eq!(sizes(vec![]), [0]);
        assert_eq!(sizes(vec![step(2 * most)]), [1], "a single message is what it is");
        assert_eq!(
            sizes(vec![step(most / 2), step(most / 4), step(most / 2), step(10), step(most), step(1)]),
            [2, 2, 1, 1]
        );
        assert_eq!(sizes(vec![Down::Ack { up_to: 1 }; 1000]), [1000]);
    }
}
