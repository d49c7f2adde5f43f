//! Between neighbours in the tree of nodes: what a parent says to a child, and a child to its parent.
//!
//! The controller is the root. A connection between neighbours is a *hop*; what is said on it is numbered, and a gap
//! ends it. What is new above a node (its parent changed, or the parent's parent) reaches it as `Path`, and then it
//! registers anew; so everything between two registrations came in order and without loss, and whatever was lost
//! before is made up for by what the registration compares.

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

/// From parent to child.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DownFrame {
    /// Number of the first thing said; they are numbered 1, 2, 3 … on this connection.
    #[n(0)]
    pub hop: u64,
    /// What is said, in order; nothing: the connection lives.
    #[n(1)]
    pub says: Vec<Downward>,
}

/// From child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UpFrame {
    /// Number of the first thing said; they are numbered 1, 2, 3 … on this connection.
    #[n(0)]
    pub hop: u64,
    /// What is said, in order; nothing: the connection lives.
    #[n(1)]
    pub says: Vec<Upward>,
}

/// The way back to a node that has no known place in the tree yet: at each relay the number of the child's connection,
/// the relay nearest to the root last.
pub type Route = Vec<u32>;

/// One thing that a parent says.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Downward {
    /// The way to the controller stands, anew: whoever lives below registers. First on every connection.
    #[n(0)]
    Path(#[n(0)] Box<Path>),
    /// For the one node at the end of the route. Relays that pass it on learn where `node` is.
    #[n(1)]
    Reply {
        /// What is left of the way.
        #[n(0)]
        route: Route,
        /// The node, once it is admitted.
        #[n(1)]
        node: Option<NodeId>,
        /// What it is told.
        #[n(2)]
        put: Put,
    },
    /// XFER-AND-SIGNAL: for every node of a set.
    #[n(2)]
    Put(#[n(0)] Put),
    /// COMPARE-AND-WRITE's question, for every node of a set.
    #[n(3)]
    Query(#[n(0)] Query),
    /// The composite of that number is with the controller, durably.
    #[n(4)]
    Taken {
        /// Its number on this connection.
        #[n(0)]
        batch: u64,
    },
    /// XFER-AND-SIGNAL of what is too long for a put: a piece of a file, for every node of a set.
    #[n(5)]
    Chunk(#[n(0)] Chunk),
    /// For a step daemon on a node below.
    #[n(6)]
    Letter(#[n(0)] Box<Letter>),
}

/// What a step daemon tells another one of its step through the tree. One that is lost on its way is not sent again.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Letter {
    /// The step of both.
    #[n(0)]
    pub step: StepKey,
    /// Where it comes from.
    #[n(1)]
    pub sender: NodeId,
    /// Where it goes.
    #[n(2)]
    pub to: NodeId,
    /// What it says; nobody on the way opens it.
    #[n(3)]
    pub message: Sealed<PeerMessage>,
}

/// A piece of a file. Passed on as it comes, before the next one is there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// For whom, down the tree.
    #[n(0)]
    pub to: NodeSet,
    /// From each of them on to these.
    #[n(1)]
    pub cascade: Option<Cascade>,
    /// Of which file.
    #[n(2)]
    pub content: ContentId,
    /// Where in the file it begins.
    #[n(3)]
    pub at: u64,
    /// The piece.
    #[n(4)]
    pub bytes: Bytes,
}

/// A tree of its own for a file, narrower than the one for what is short, so that no node sends a long file many times.
/// It is laid out over a list as a heap is: below place `p` are the places `p * width + 1` to `p * width + width`. What
/// is lost on it is sent again down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Cascade {
    /// All who get the file.
    #[n(0)]
    pub nodes: HostList,
    /// The place of who gets this piece.
    #[n(1)]
    pub place: u32,
    /// How many are below each.
    #[n(2)]
    pub width: u32,
}

impl Cascade {
    /// To whom it is passed on.
    pub fn below(&self) -> impl Iterator<Item = (String, Self)> + '_ {
        let first = u64::from(self.place) * u64::from(self.width) + 1;
        let places = first..(first + u64::from(self.width)).min(self.nodes.len() as u64);
        places.filter_map(|place| {
            let name = self.nodes.get(place as usize)?;
            Some((name, Self { nodes: self.nodes.clone(), place: place as u32, width: self.width }))
        })
    }
}

/// What nodes keep files by: the same bytes of two users are two, for nobody gets at a file by knowing its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ContentId {
    /// User id of who brought it.
    #[n(0)]
    pub owner: u32,
    /// BLAKE3 of the bytes.
    #[n(1)]
    pub digest: Digest,
}

/// How a node stands with a file: the values of [`Variable::Content`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// 0: it knows nothing of it.
    #[default]
    Lacks,
    /// 1: it has it.
    Has,
    /// 2: it has all of it, in the shadow: it will have it when it is committed.
    Shadow,
    /// 3: a neighbour that shares its disk takes it in.
    Neighbour,
    /// 4: it takes it in.
    Open,
    /// Below 0: the negative error number of why it can't.
    Failed(i32),
}

impl Holding {
    /// As a variable's value.
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

/// The secret of a file that is sent by multicast: who has it can open the datagrams.
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

/// Bytes that are passed on to several without being copied.
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

/// What a node must know of the tree above it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Path {
    /// Addresses of nodes above the parent, nearest first; the controller, which every node knows, is not among them.
    #[n(0)]
    pub above: Vec<String>,
    /// How reports are gathered.
    #[n(1)]
    pub window: Window,
    /// Seconds between heartbeats.
    #[n(2)]
    pub heartbeat_s: u64,
}

/// How far a relay may gather reports while others are under way (`MsgAggregationParams`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    /// Most messages in one composite; 1: none are gathered.
    #[n(0)]
    pub messages: u32,
    /// Longest wait of a message, milliseconds.
    #[n(1)]
    pub time_ms: u32,
}

/// A block for every node of a set, taken by each at most once: its number must be above all that it has taken.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Put {
    /// The controller's incarnation.
    #[n(0)]
    pub epoch: Epoch,
    /// Rises with every put of that incarnation.
    #[n(1)]
    pub seq: u64,
    /// For whom.
    #[n(2)]
    pub to: NodeSet,
    /// What all of them will report of it, for relays to gather.
    #[n(3)]
    pub asks: Vec<Ask>,
    /// What; only those for whom it is open it.
    #[n(4)]
    pub parcel: Sealed<Parcel>,
}

/// A report that every node of a put owes for it, sooner or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Ask {
    /// The end of its share of the step.
    #[n(0)]
    Step(#[n(0)] StepKey),
    /// That nothing of the job is left.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
}

/// What a put brings.
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
    /// The controller's incarnation. A node of another one does not answer.
    #[n(0)]
    pub epoch: Epoch,
    /// Which query of that incarnation.
    #[n(1)]
    pub number: u64,
    /// Whom it is for.
    #[n(2)]
    pub to: NodeSet,
    /// What is asked.
    #[n(3)]
    pub test: Test,
    /// Answer only when it holds (or time is up).
    #[n(4)]
    pub wait: bool,
    /// Time left for the answer, microseconds.
    #[n(5)]
    pub time_us: u64,
    /// Say also how you feel.
    #[n(6)]
    pub health: bool,
}

/// A comparison of a variable of a node with a value.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Test {
    /// What is compared.
    #[n(0)]
    pub variable: Variable,
    /// How.
    #[n(1)]
    pub comparison: Comparison,
    /// With what.
    #[n(2)]
    pub value: i64,
}

/// A variable that every node has; 0 where nothing was ever written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Variable {
    /// The number of the last put that the node has taken in.
    #[n(0)]
    Heard,
    /// 1: the node knows the job's attempt.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
    /// 1: the node's share of the step runs, 2: it has ended.
    #[n(2)]
    Step(#[n(0)] StepKey),
    /// How the node stands with that file: [`Holding::value`].
    #[n(3)]
    Content(#[n(0)] ContentId),
    /// Written by `Down::Write` only.
    #[n(4)]
    Named(#[n(0)] String),
    /// How many bytes of that file the node has taken in; more than there are: it has all of it, in the shadow at least;
    /// below 0: the negative error number of why it can't. On the way up what nodes have that lack some is added up.
    #[n(5)]
    Taken(#[n(0)] ContentId),
    /// 1: the file of that put has been laid down, below 0: the negative error number of why it could not be.
    #[n(6)]
    Placed(#[n(0)] Epoch, #[n(1)] u64),
    /// Blocks of that file that the node lacks: bit `i` for the block (of [`limits::CAST_BLOCK_BYTES`]) that begins `i`
    /// blocks after that byte. On the way up the bits of all nodes become one answer.
    ///
    /// [`limits::CAST_BLOCK_BYTES`]: crate::limits::CAST_BLOCK_BYTES
    #[n(7)]
    Missing(#[n(0)] ContentId, #[n(1)] u64),
    /// By how many microseconds the node's slots of gang scheduling were out of step at most, in the last seconds.
    #[n(8)]
    Skew,
    /// 1: what the tasks of the node's share of a step have used so far was measured since this was asked; it comes with
    /// the answer. Below 0: nothing of it runs.
    #[n(9)]
    Used(#[n(0)] StepKey),
    /// How many steps of the node were told to end and have not acknowledged that: tasks of theirs may still begin.
    #[n(10)]
    Unheeded,
}

impl Variable {
    /// Whether that value stays: who waits for another one waits in vain.
    pub fn is_final(&self, value: i64) -> bool {
        value < 0 && matches!(self, Self::Content(_) | Self::Taken(_) | Self::Placed(..) | Self::Used(_))
    }

    /// Of two nodes where it does not hold, the witness.
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

/// How a variable is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Comparison {
    /// At least.
    #[n(0)]
    AtLeast,
    /// Less than.
    #[n(1)]
    Less,
    /// Equal.
    #[n(2)]
    Equal,
    /// Not equal.
    #[n(3)]
    Different,
}

/// One thing that a child says.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Upward {
    /// Reports of the child and of those below it.
    #[n(0)]
    Composite {
        /// Rises on this connection.
        #[n(0)]
        batch: u64,
        /// What is reported.
        #[n(1)]
        composite: Box<Composite>,
    },
    /// Answers to a query.
    #[n(1)]
    Tally {
        /// The controller's incarnation.
        #[n(0)]
        epoch: Epoch,
        /// The query.
        #[n(1)]
        number: u64,
        /// The answers.
        #[n(2)]
        tally: Tally,
    },
    /// A piece of a file, from a node that is above this one for that file only.
    #[n(2)]
    Chunk(#[n(0)] Chunk),
    /// For a step daemon on a node that is not below this one.
    #[n(3)]
    Letter(#[n(0)] Box<Letter>),
}

/// Answers to a query: who is in neither set has not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Tally {
    /// Where it holds.
    #[n(0)]
    pub yes: NodeSet,
    /// Where it does not.
    #[n(1)]
    pub no: NodeSet,
    /// One of those where it does not, and the value there ([`Variable::Missing`]: of all of those).
    #[n(2)]
    pub witness: Option<(NodeId, i64)>,
    /// How nodes feel, if that was asked.
    #[n(3)]
    pub health: Vec<(NodeId, Health)>,
    /// What tasks have used ([`Variable::Used`]), of all of the nodes together.
    #[n(4)]
    pub used: Option<Box<Usage>>,
}

/// Reports of many nodes, reduced by meaning. Taken in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Composite {
    /// Nodes that can't be reached on this way any more, with the session that each had there.
    #[n(0)]
    pub lost: BTreeMap<NodeId, u64>,
    /// Ends of steps: nodes whose share ended in the same way stand together.
    #[n(1)]
    pub ended: BTreeMap<StepKey, Vec<(NodeSet, StepEnd)>>,
    /// Launches that failed.
    #[n(2)]
    pub failed: Vec<(NodeId, LaunchFailure)>,
    /// Nodes on which nothing of a job is left.
    #[n(3)]
    pub gone: BTreeMap<JobAttempt, NodeSet>,
    /// Nodes that want to register, and the way to each.
    #[n(4)]
    pub knocks: Vec<(Route, String)>,
    /// Nodes that register.
    #[n(5)]
    pub registrations: Vec<Registration>,
    /// Nodes that have heard a newer controller than the one that answers them.
    #[n(6)]
    pub newer: Vec<Newer>,
    /// Reports that nodes made, however few they have become by reduction.
    #[n(7)]
    pub reports: u64,
}

/// What a node has heard of that the controller which answers it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Newer {
    /// The node.
    #[n(0)]
    pub name: String,
    /// The newest session that it was offered.
    #[n(1)]
    pub session: Session,
    /// The highest job id that it has heard.
    #[n(2)]
    pub last_job: JobId,
}

/// A launch that failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LaunchFailure {
    /// The step.
    #[n(0)]
    pub key: StepKey,
    /// Why, in words.
    #[n(1)]
    pub error: String,
    /// The node's own fault.
    #[n(2)]
    pub node_fault: bool,
}

/// How a node feels.
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
    /// Whether `left` compares so with `right`.
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
    /// Adds the answers of others about a variable. Sets, not counts: an answer that came on two ways counts once.
    pub fn merge(&mut self, variable: &Variable, other: &Self) {
        self.yes.union_with(&other.yes);
        self.no.union_with(&other.no);
        self.witness = variable.reduce(self.witness, other.witness);
        self.health.extend_from_slice(&other.health);
        if let Some(used) = other.used.as_deref() {
            self.used.get_or_insert_default().absorb(used);
        }
    }
    /// Those who answered.
    pub fn answered(&self) -> NodeSet {
        let mut all = self.yes.clone();
        all.union_with(&self.no);
        all
    }
}

impl Composite {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.reports == 0
    }
    /// Whether something in it must not wait for others.
    pub fn is_urgent(&self) -> bool {
        !self.lost.is_empty() || !self.failed.is_empty()
    }
    /// Whether nodes in it want to be let in.
    pub fn lets_in(&self) -> bool {
        !self.knocks.is_empty() || !self.registrations.is_empty() || !self.newer.is_empty()
    }
    /// The end of a step on some nodes.
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
    /// Nothing of a job is left on some nodes.
    pub fn add_gone(&mut self, job: JobAttempt, nodes: &NodeSet) {
        self.gone.entry(job).or_default().union_with(nodes);
    }
    /// Adds all that another one says.
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
