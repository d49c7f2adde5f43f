//! Messages between neighbours in the distribution tree of nodes: from parent to child and back.
//!
//! The controller is the root. A connection between neighbours is a *hop*. Messages on it are numbered, and a gap ends
//! it. When the tree above a node changes (another parent, or another parent of its parent), the node receives `Path`
//! and registers again. So all messages between two registrations arrive in order and without loss, and earlier losses
//! are repaired when the controller compares the registration with its state.

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hostlist::HostList;
use crate::id::{Epoch, JobId, NodeId, Session, StepKey};
use crate::job::{Blob, Digest, JobAttempt, Usage};
use crate::report::StepEnd;
use crate::set::NodeSet;
use crate::wire::node::{Down, Registration};
use crate::wire::peer::PeerMessage;
use crate::wire::sealed::Sealed;

/// Frame from parent to child.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DownFrame {
    /// Number of the first message; messages are numbered 1, 2, 3 … on this connection.
    #[n(0)]
    pub hop: u64,
    /// The messages, in order. Empty: a heartbeat.
    #[n(1)]
    pub says: Vec<Downward>,
}

/// Frame from child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UpFrame {
    /// Number of the first message; messages are numbered 1, 2, 3 … on this connection.
    #[n(0)]
    pub hop: u64,
    /// The messages, in order. Empty: a heartbeat.
    #[n(1)]
    pub says: Vec<Upward>,
}

/// Way back to a node that has no known place in the tree yet: the number of the child's connection at each relay, the
/// relay nearest to the root last.
pub type Route = Vec<u32>;

/// Message from parent to child.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Downward {
    /// The connection to the controller was established, perhaps by another way. All nodes below register again. First
    /// message on every connection.
    #[n(0)]
    Path(#[n(0)] Box<Path>),
    /// Messages for the node at the end of the route. Relays on the way learn where `node` is.
    #[n(1)]
    Reply {
        /// The rest of the route to the node.
        #[n(0)]
        route: Route,
        /// Id of the node, once it is admitted.
        #[n(1)]
        node: Option<NodeId>,
        /// The messages for the node.
        #[n(2)]
        put: Put,
    },
    /// XFER-AND-SIGNAL: messages for every node of a set.
    #[n(2)]
    Put(#[n(0)] Put),
    /// Question of a COMPARE-AND-WRITE, for every node of a set.
    #[n(3)]
    Query(#[n(0)] Query),
    /// Acknowledges a composite: the controller has journaled it.
    #[n(4)]
    Taken {
        /// Number of the composite on this connection.
        #[n(0)]
        batch: u64,
    },
    /// XFER-AND-SIGNAL of data too long for a put: a piece of a file, for every node of a set.
    #[n(5)]
    Chunk(#[n(0)] Chunk),
    /// A message for a step daemon on a node below.
    #[n(6)]
    Letter(#[n(0)] Box<Letter>),
}

/// A message between step daemons of one step, relayed through the tree. It is not sent again if it is lost.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Letter {
    /// The step of both step daemons.
    #[n(0)]
    pub step: StepKey,
    /// Node of the sender.
    #[n(1)]
    pub sender: NodeId,
    /// Node of the receiver.
    #[n(2)]
    pub to: NodeId,
    /// The message. Relays don't decode it.
    #[n(3)]
    pub message: Sealed<PeerMessage>,
}

/// A piece of a file. A relay passes it on before the next piece arrives.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// Nodes that get the piece down the distribution tree.
    #[n(0)]
    pub to: NodeSet,
    /// Nodes to which each of those passes it on, by a tree of its own.
    #[n(1)]
    pub cascade: Option<Cascade>,
    /// Identifies the file.
    #[n(2)]
    pub content: ContentId,
    /// Offset of the piece in the file, bytes.
    #[n(3)]
    pub at: u64,
    /// Content of the piece.
    #[n(4)]
    pub bytes: Bytes,
}

/// A separate tree for one file, narrower than the distribution tree, so that no node sends a long file many times. It
/// is laid over a list of nodes like a binary heap: the children of place `p` are the places `p * width + 1` to `p *
/// width + width`. Lost pieces are sent again down the distribution tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Cascade {
    /// All nodes that get the file.
    #[n(0)]
    pub nodes: HostList,
    /// Place of the receiver in `nodes`.
    #[n(1)]
    pub place: u32,
    /// Number of children of each node.
    #[n(2)]
    pub width: u32,
}

impl Cascade {
    /// Returns the children in this tree of the node that received the piece: name, and the value to send there.
    pub fn below(&self) -> impl Iterator<Item = (String, Self)> + '_ {
        let first = u64::from(self.place) * u64::from(self.width) + 1;
        let places = first..(first + u64::from(self.width)).min(self.nodes.len() as u64);
        places.filter_map(|place| {
            let name = self.nodes.get(place as usize)?;
            Some((name, Self { nodes: self.nodes.clone(), place: place as u32, width: self.width }))
        })
    }
}

/// Identifies a file in nodes' caches. Equal files of two users are separate, so that no user gets a file by knowing
/// its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ContentId {
    /// Uid of the user that sent it.
    #[n(0)]
    pub owner: u32,
    /// BLAKE3 digest of the content.
    #[n(1)]
    pub digest: Digest,
}

/// State of a file on a node: the values of [`Variable::Content`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// 0: the node does not have the file.
    #[default]
    Lacks,
    /// 1: the node has the file.
    Has,
    /// 2: the node has received all of it and makes it available when it is committed.
    Shadow,
    /// 3: a neighbour that shares the node's disk receives it.
    Neighbour,
    /// 4: the node is receiving it.
    Open,
    /// Below 0: the node can't receive it; the negative errno.
    Failed(i32),
}

impl Holding {
    /// Returns the state as a variable's value.
    pub fn value(self) -> i64 {
        match self {
            Self::Lacks => 0,
            Self::Has => 1,
            Self::Shadow => 2,
            Self::Neighbour => 3,
            Self::Open => 4,
            Self::Failed(error) => -i64::from(error.max(1)),
        }
    }
}

/// Key of a file transfer by multicast. It decrypts the datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct StreamKey(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub [u8; 32],
);

impl std::fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a secret")
    }
}

/// Bytes that can be passed on to several receivers without a copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Arc<[u8]>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl<C> Encode<C> for Bytes {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Bytes {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(Self(d.bytes()?.into()))
    }
}

/// Data about the tree that a parent sends to the nodes below it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Path {
    /// Addresses of the nodes above the parent, nearest first, without the controller.
    #[n(0)]
    pub above: Vec<String>,
    /// How reports are combined into composites.
    #[n(1)]
    pub window: Window,
    /// Seconds between heartbeats.
    #[n(2)]
    pub heartbeat_s: u64,
}

/// Limits within which a relay combines reports into one message while earlier ones are on their way
/// (`MsgAggregationParams`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    /// Most messages in one composite. 1: no aggregation.
    #[n(0)]
    pub messages: u32,
    /// Longest delay of a message, milliseconds.
    #[n(1)]
    pub time_ms: u32,
}

/// Messages for every node of a set. A node processes each put at most once: it ignores one whose number is not above
/// all earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Put {
    /// Epoch of the controller.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the put, rising within the epoch.
    #[n(1)]
    pub seq: u64,
    /// The receivers.
    #[n(2)]
    pub to: NodeSet,
    /// Reports that every receiver will send for it, which relays combine.
    #[n(3)]
    pub asks: Vec<Ask>,
    /// The content, which only receivers decode.
    #[n(4)]
    pub parcel: Sealed<Parcel>,
}

/// A report that every node has to send for a put, sooner or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Ask {
    /// The node's tasks of the step have ended.
    #[n(0)]
    Step(#[n(0)] StepKey),
    /// The job has no processes left on the node.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
}

/// Content of a put: messages for a set of nodes, with the files that they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Parcel {
    /// The messages, in order.
    #[n(0)]
    pub messages: Vec<Down>,
    /// Scripts and environments that the messages refer to. Filled in by the host.
    #[n(1)]
    pub blobs: Vec<Blob>,
}

/// A question to every node of a set.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Query {
    /// Epoch of the controller. A node registered with another one does not answer.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the query within the epoch.
    #[n(1)]
    pub number: u64,
    /// The nodes asked.
    #[n(2)]
    pub to: NodeSet,
    /// The comparison that each node makes.
    #[n(3)]
    pub test: Test,
    /// Whether a node delays its answer until the comparison holds or time is up.
    #[n(4)]
    pub wait: bool,
    /// Time left for the answer, microseconds.
    #[n(5)]
    pub time_us: u64,
    /// Whether the answer includes load and free memory.
    #[n(6)]
    pub health: bool,
}

/// A comparison of a node's variable with a value.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Test {
    /// The variable.
    #[n(0)]
    pub variable: Variable,
    /// The comparison.
    #[n(1)]
    pub comparison: Comparison,
    /// The value to compare with.
    #[n(2)]
    pub value: i64,
}

/// A variable of every node. Variables never written are 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Variable {
    /// Number of the last put that the node has processed.
    #[n(0)]
    Heard,
    /// 1: the node has this attempt of the job.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
    /// 1: the node's tasks of the step run; 2: they have ended.
    #[n(2)]
    Step(#[n(0)] StepKey),
    /// State of this file on the node: [`Holding::value`].
    #[n(3)]
    Content(#[n(0)] ContentId),
    /// A variable with a name. Written by `Down::Write` only.
    #[n(4)]
    Named(#[n(0)] String),
    /// Bytes of this file that the node has received. Above the file's length: it has all of it, committed or not.
    /// Below 0: it can't receive it; the negative errno. Relays add up the values of the nodes that lack some.
    #[n(5)]
    Taken(#[n(0)] ContentId),
    /// 1: the file of this order (epoch, number) has been written; below 0: writing failed; the negative errno.
    #[n(6)]
    Placed(#[n(0)] Epoch, #[n(1)] u64),
    /// Blocks of this file that the node lacks, from a byte offset on: bit `i` for block `i` after it (of
    /// [`limits::CAST_BLOCK_BYTES`]). Relays combine the bits of all nodes with OR.
    ///
    /// [`limits::CAST_BLOCK_BYTES`]: crate::limits::CAST_BLOCK_BYTES
    #[n(7)]
    Missing(#[n(0)] ContentId, #[n(1)] u64),
    /// Largest deviation of the node's gang scheduling slots from the controller's in the last seconds, microseconds.
    #[n(8)]
    Skew,
    /// 1: the usage of the node's tasks of the step was measured after the question came, and is in the answer. Below
    /// 0: no task of the step runs there.
    #[n(9)]
    Used(#[n(0)] StepKey),
    /// Number of the node's steps that were told to end and have not acknowledged it, so that more tasks of theirs may
    /// start.
    #[n(10)]
    Unheeded,
}

impl Variable {
    /// Returns whether `value` can no longer change, so that waiting for another one is useless.
    pub fn is_final(&self, value: i64) -> bool {
        value < 0 && matches!(self, Self::Content(_) | Self::Taken(_) | Self::Placed(..) | Self::Used(_))
    }

    /// Combines the witnesses (node and value) of two sets of nodes on which a test does not hold.
    pub fn reduce(&self, one: Option<(NodeId, i64)>, other: Option<(NodeId, i64)>) -> Option<(NodeId, i64)> {
        match (self, one, other) {
            (Self::Missing(..), Some((node, bits)), Some((_, more))) => Some((node, bits | more)),
            (Self::Taken(_), Some((node, bytes)), Some((_, more))) if bytes.min(more) >= 0 => {
                Some((node, bytes.saturating_add(more)))
            }
            (Self::Taken(_), Some(one), Some(other)) => Some(if one.1 < 0 { one } else { other }),
            _ => one.or(other),
        }
    }
}

/// Comparison of a variable with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Comparison {
    /// The variable is at least the value.
    #[n(0)]
    AtLeast,
    /// The variable is less than the value.
    #[n(1)]
    Less,
    /// The variable equals the value.
    #[n(2)]
    Equal,
    /// The variable differs from the value.
    #[n(3)]
    Different,
}

/// Message from child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Upward {
    /// Reports of the child and the nodes below it.
    #[n(0)]
    Composite {
        /// Number of the composite, rising on this connection.
        #[n(0)]
        batch: u64,
        /// The reports.
        #[n(1)]
        composite: Box<Composite>,
    },
    /// Answers to a query.
    #[n(1)]
    Tally {
        /// Epoch of the query.
        #[n(0)]
        epoch: Epoch,
        /// Number of the query.
        #[n(1)]
        number: u64,
        /// The answers of the child and the nodes below it.
        #[n(2)]
        tally: Tally,
    },
    /// A piece of a file, from a node that is the receiver's parent in that file's own tree only.
    #[n(2)]
    Chunk(#[n(0)] Chunk),
    /// A message for a step daemon on a node that is not below the sender.
    #[n(3)]
    Letter(#[n(0)] Box<Letter>),
}

/// Combined answers to a query. Nodes in neither set have not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Tally {
    /// Nodes on which the comparison holds.
    #[n(0)]
    pub yes: NodeSet,
    /// Nodes on which it does not hold.
    #[n(1)]
    pub no: NodeSet,
    /// One of the nodes on which it does not hold, with its value. For [`Variable::Missing`] and `Variable::Taken`
    /// the value combines all of them.
    #[n(2)]
    pub witness: Option<(NodeId, i64)>,
    /// Load and free memory of each node, if the query asked for it.
    #[n(3)]
    pub health: Vec<(NodeId, Health)>,
    /// Usage of tasks over all answering nodes ([`Variable::Used`]).
    #[n(4)]
    pub used: Option<Box<Usage>>,
}

/// Reports of many nodes, combined. The controller processes the fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Composite {
    /// Nodes no longer reachable by this way, with the number of the session that each had on it.
    #[n(0)]
    pub lost: BTreeMap<NodeId, u64>,
    /// Ends of steps. Nodes whose tasks ended in the same way are combined.
    #[n(1)]
    pub ended: BTreeMap<StepKey, Vec<(NodeSet, StepEnd)>>,
    /// Launches that failed, with the node.
    #[n(2)]
    pub failed: Vec<(NodeId, LaunchFailure)>,
    /// Nodes on which a job has no processes left.
    #[n(3)]
    pub gone: BTreeMap<JobAttempt, NodeSet>,
    /// Names of nodes that ask to register, and the route to each.
    #[n(4)]
    pub knocks: Vec<(Route, String)>,
    /// Registrations of nodes.
    #[n(5)]
    pub registrations: Vec<Registration>,
    /// Nodes that were in contact with a newer controller than the one that answers them.
    #[n(6)]
    pub newer: Vec<Newer>,
    /// Number of reports before they were combined.
    #[n(7)]
    pub reports: u64,
    /// Longest time that one of these reports waited for others on its way, microseconds.
    #[n(8)]
    #[cbor(default)]
    pub waited_us: u64,
}

/// What a node has seen of a newer controller than the present one, which must have older state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Newer {
    /// Name of the node.
    #[n(0)]
    pub name: String,
    /// The newest session that the node was offered.
    #[n(1)]
    pub session: Session,
    /// The highest job id that the node has seen.
    #[n(2)]
    pub last_job: JobId,
}

/// A launch that failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LaunchFailure {
    /// The step.
    #[n(0)]
    pub key: StepKey,
    /// Reason, as a text for users.
    #[n(1)]
    pub error: String,
    /// Whether the cause lies with the node.
    #[n(2)]
    pub node_fault: bool,
}

/// Load and free memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Health {
    /// Load average over one minute, in hundredths.
    #[n(0)]
    pub load_centi: u32,
    /// Free memory, MiB.
    #[n(1)]
    pub free_mb: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { messages: 1024, time_ms: 100 }
    }
}

impl Comparison {
    /// Returns whether the comparison of `left` with `right` holds.
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::AtLeast => left >= right,
            Self::Less => left < right,
            Self::Equal => left == right,
            Self::Different => left != right,
        }
    }
}

impl Tally {
    /// Adds the answers of other nodes about a variable. Nodes are sets and not counts, so an answer that arrives by
    /// two ways counts once.
    pub fn merge(&mut self, variable: &Variable, other: &Self) {
        self.yes.union_with(&other.yes);
        self.no.union_with(&other.no);
        self.witness = variable.reduce(self.witness, other.witness);
        self.health.extend_from_slice(&other.health);
        if let Some(used) = other.used.as_deref() {
            self.used.get_or_insert_default().absorb(used);
        }
    }
    /// Returns the nodes that answered.
    pub fn answered(&self) -> NodeSet {
        let mut all = self.yes.clone();
        all.union_with(&self.no);
        all
    }
}

impl Composite {
    /// Returns whether there are no reports.
    pub fn is_empty(&self) -> bool {
        self.reports == 0
    }
    /// Returns whether it has reports that relays must not delay.
    pub fn is_urgent(&self) -> bool {
        !self.lost.is_empty() || !self.failed.is_empty()
    }
    /// Returns whether nodes in it ask to register.
    pub fn lets_in(&self) -> bool {
        !self.knocks.is_empty() || !self.registrations.is_empty() || !self.newer.is_empty()
    }
    /// Adds the end of a step on some nodes.
    pub fn add_ended(&mut self, key: StepKey, nodes: &NodeSet, end: &StepEnd) {
        let ends = self.ended.entry(key).or_default();
        match ends.iter_mut().find(|(_, known)| known.merges_with(end)) {
            Some((known, merged)) => {
                if nodes.iter().any(|node| known.insert(node)) {
                    known.union_with(nodes);
                    merged.merge(end);
                }
            }
            None => ends.push((nodes.clone(), end.clone())),
        }
    }
    /// Adds that a job has no processes left on some nodes.
    pub fn add_gone(&mut self, job: JobAttempt, nodes: &NodeSet) {
        self.gone.entry(job).or_default().union_with(nodes);
    }
    /// Adds all reports of another composite.
    pub fn merge(&mut self, other: Self) {
        for (node, session) in other.lost {
            let known = self.lost.entry(node).or_default();
            *known = session.max(*known);
        }
        for (key, ends) in &other.ended {
            for (nodes, end) in ends {
                self.add_ended(*key, nodes, end);
            }
        }
        self.failed.extend(other.failed);
        for (job, nodes) in &other.gone {
            self.add_gone(*job, nodes);
        }
        self.knocks.extend(other.knocks);
        self.registrations.extend(other.registrations);
        self.newer.extend(other.newer);
        self.reports += other.reports;
        self.waited_us = self.waited_us.max(other.waited_us);
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentId, Digest, NodeId, Variable};

    #[test]
    fn what_nodes_have_of_a_file_is_added_up_and_an_error_is_not_lost() {
        let taken = Variable::Taken(ContentId { owner: 1, digest: Digest([0; 32]) });
        let says = |node, value| Some((NodeId(node), value));
        assert_eq!(taken.reduce(says(1, 5), says(2, 7)), says(1, 12));
        assert_eq!(taken.reduce(None, says(2, 7)), says(2, 7));
        for (one, other) in [(says(1, 5), says(2, -28)), (says(2, -28), says(1, 5))] {
            assert_eq!(taken.reduce(one, other), says(2, -28));
        }
        assert!(taken.is_final(-28) && !taken.is_final(0));
    }
}
