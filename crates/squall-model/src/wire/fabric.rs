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

use crate::encoding::ByteBuf;
use crate::hostlist::HostList;
use crate::id::{Epoch, JobId, NodeId, Session, StepKey};
use crate::job::{Blob, Digest, JobAttempt, Usage};
use crate::report::StepEnd;
use crate::series::Series;
use crate::set::NodeSet;
use crate::time::Span;
use crate::wire::counts::NodeCounts;
use crate::wire::hook::NodeNote;
use crate::wire::node::{Down, Registration};
use crate::wire::peer::PeerMessage;
use crate::wire::proof::Proof;
use crate::wire::sealed::Sealed;

/// Frame from parent to child in the distribution tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DownFrame {
    /// Number of the first message in the frame. The messages of a connection are numbered 1, 2, 3 … in each direction.
    #[n(0)]
    pub hop: u64,
    /// The messages, in order. Empty: a heartbeat.
    #[n(1)]
    pub says: Vec<Downward>,
}

/// Frame from child to parent in the distribution tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UpFrame {
    /// Number of the first message in the frame. The messages of a connection are numbered 1, 2, 3 … in each direction.
    #[n(0)]
    pub hop: u64,
    /// The messages, in order. Empty: a heartbeat.
    #[n(1)]
    pub says: Vec<Upward>,
}

/// Route from the root to a node that has no known place in the tree yet. Each entry is a relay's number for the
/// connection to the next node; the relay nearest to the root comes last.
pub type Route = Vec<u32>;

/// Message from parent to child in the distribution tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Downward {
    /// The connection to the controller was established, perhaps through another parent. All nodes below register
    /// again. First message on every connection.
    #[n(0)]
    Path(#[n(0)] Box<Path>),
    /// Messages for the one node at the end of the route. Relays on the route store by which child the node with this
    /// id is reached.
    #[n(1)]
    Reply {
        /// The remaining part of the route to the node.
        #[n(0)]
        route: Route,
        /// Id of the node. None: the controller has not accepted its registration yet.
        #[n(1)]
        node: Option<NodeId>,
        /// The messages for the node.
        #[n(2)]
        put: Put,
    },
    /// XFER-AND-SIGNAL: sends messages to every node of a set.
    #[n(2)]
    Put(#[n(0)] Put),
    /// Question of a COMPARE-AND-WRITE, for every node of a set: does a comparison hold?
    #[n(3)]
    Query(#[n(0)] Query),
    /// Acknowledges a composite (combined reports of nodes): it is in the controller's journal.
    #[n(4)]
    Taken {
        /// Number that the composite has on this connection.
        #[n(0)]
        batch: u64,
    },
    /// XFER-AND-SIGNAL of data too long for one message: a piece of a file, for every node of a set.
    #[n(5)]
    Chunk(#[n(0)] Chunk),
    /// A message of one step daemon for another on a node below the receiver.
    #[n(6)]
    Letter(#[n(0)] Box<Letter>),
}

/// A message between step daemons of one step, relayed through the distribution tree. It is not sent again if it is
/// lost.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Letter {
    /// The step to which both step daemons belong.
    #[n(0)]
    pub step: StepKey,
    /// Node of the step daemon that sends the message.
    #[n(1)]
    pub sender: NodeId,
    /// Node of the step daemon that receives the message.
    #[n(2)]
    pub to: NodeId,
    /// The message. Relays don't decode it.
    #[n(3)]
    pub message: Sealed<PeerMessage>,
}

/// A piece of a file, sent to many nodes. A relay passes it on before the next piece arrives.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// Nodes to which the piece is sent down the distribution tree.
    #[n(0)]
    pub to: NodeSet,
    /// The file's own tree, by which each node that has received the piece passes it on to further nodes. None: the
    /// piece is not passed on.
    #[n(1)]
    pub cascade: Option<Cascade>,
    /// The file to which the piece belongs.
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
    /// Position in `nodes` of the node that receives the piece.
    #[n(1)]
    pub place: u32,
    /// Number of children of each node in this tree.
    #[n(2)]
    pub width: u32,
}

impl Cascade {
    /// Returns the children of the receiving node in this tree: the name of each, and the `Cascade` to send to it.
    pub fn below(&self) -> impl Iterator<Item = (String, Self)> + '_ {
        let first = u64::from(self.place) * u64::from(self.width) + 1;
        let places = first..(first + u64::from(self.width)).min(self.nodes.len() as u64);
        places.filter_map(|place| {
            let name = self.nodes.get(place as usize)?;
            Some((name, Self { nodes: self.nodes.clone(), place: place as u32, width: self.width }))
        })
    }
}

/// Identifies a file in nodes' caches, by owner and content. Equal files of two users are separate, so that a user
/// can't get another user's file by knowing its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ContentId {
    /// Uid of the user that sent the file.
    #[n(0)]
    pub owner: u32,
    /// BLAKE3 digest of the file's content.
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
    /// 2: the node has received the whole file and makes it available when the transfer is committed.
    Shadow,
    /// 3: another node that shares this node's disk receives the file.
    Neighbour,
    /// 4: the node is receiving the file.
    Open,
    /// Below 0: the node can't receive the file; the value is the negative errno.
    Failed(i32),
}

impl Holding {
    /// Returns the number that stands for the state as the value of a variable.
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

/// Key of a file transfer by multicast, which decrypts the transfer's datagrams.
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

/// Bytes that are shared without a copy, to be sent to several receivers.
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

/// Data about the part of the tree above a node, sent by its parent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Path {
    /// Addresses of the nodes above the parent, nearest first, without the controller.
    #[n(0)]
    pub above: Vec<String>,
    /// Limits within which relays combine reports.
    #[n(1)]
    pub window: Window,
    /// Time between heartbeats on this connection, seconds, for node daemons of releases that do not know `beat`.
    #[n(2)]
    pub heartbeat_s: u64,
    /// Time between two of the controller's queries to all nodes. A connection to the controller has a heartbeat as often,
    /// one between nodes twice as often. None: the parent is of an earlier release.
    #[n(3)]
    pub beat: Option<Span>,
}

impl Path {
    /// Returns what the controller tells its children.
    pub fn of_controller(window: Window, beat: Span) -> Self {
        Self { above: Vec::new(), window, heartbeat_s: beat.secs().max(1), beat: Some(beat) }
    }
}

/// Limits within which a relay combines reports into one message, called composite, while earlier ones are not
/// acknowledged yet (`MsgAggregationParams`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    /// Most reports in one message. 1: reports are not combined.
    #[n(0)]
    pub messages: u32,
    /// Longest time for which a report is delayed, milliseconds.
    #[n(1)]
    pub time_ms: u32,
}

/// XFER-AND-SIGNAL: messages for every node of a set, called a put. A node processes each put at most once: it ignores
/// a put with a number that is not above all earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Put {
    /// Epoch of the controller that sent the put.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the put, rising within the epoch.
    #[n(1)]
    pub seq: u64,
    /// The receiving nodes.
    #[n(2)]
    pub to: NodeSet,
    /// Reports that every receiver will send later because of the put. Relays combine these reports.
    #[n(3)]
    pub asks: Vec<Ask>,
    /// The messages, which relays don't decode.
    #[n(4)]
    pub parcel: Sealed<Parcel>,
    /// Proof that the controller sent the parcel under this epoch and number. None: the controller does not sign (an
    /// older release).
    #[n(5)]
    #[cbor(with = "crate::encoding::arc_or_none", has_nil)]
    pub proof: Option<Arc<Proof>>,
}

/// A report that every receiver of a put has to send later. Relays combine equal reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Ask {
    /// Report that the node's tasks of this step have ended.
    #[n(0)]
    Step(#[n(0)] StepKey),
    /// Report that this job has no processes left on the node.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
}

/// Content of a put: messages for a set of nodes, with the scripts and environments that these need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Parcel {
    /// The messages, in the order in which nodes process them.
    #[n(0)]
    pub messages: Vec<Down>,
    /// Scripts and environments that the messages refer to. The controller's host process fills them in.
    #[n(1)]
    pub blobs: Vec<Blob>,
    /// The nodes that the messages are for. Unlike the put's own set, which relays narrow, it is signed. None: a put for
    /// one node that names it in its messages, or an older controller.
    #[n(2)]
    pub to: Option<NodeSet>,
    /// In place of `blobs`, if the put may pass relays: the blobs for each node that needs some.
    #[n(3)]
    pub closed: Option<Vec<Closed>>,
    /// Number of the messages. It is a part of what is signed beside the single messages, so that a relay can't take one out.
    /// None: an older controller.
    #[n(4)]
    pub count: Option<u32>,
}

impl Parcel {
    /// Makes a parcel of messages, without scripts and environments. `to`: the nodes that they are for.
    pub fn of(messages: Vec<Down>, to: Option<NodeSet>) -> Self {
        Self { count: Some(messages.len() as u32), messages, to, ..Self::default() }
    }
}

/// Scripts and environments that only one node can read.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Closed {
    /// The node that can read them.
    #[n(0)]
    pub node: NodeId,
    /// The encoded list of blobs, encrypted with a key that only this node and the controller have.
    #[n(1)]
    pub bytes: ByteBuf,
}

/// A question to every node of a set: does a comparison of a variable hold?
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Query {
    /// Epoch of the controller that asks. A node registered under another epoch does not answer.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the query within the epoch.
    #[n(1)]
    pub number: u64,
    /// The nodes to which the question goes.
    #[n(2)]
    pub to: NodeSet,
    /// The comparison that each node makes.
    #[n(3)]
    pub test: Test,
    /// Whether a node delays its answer until the comparison holds or the time is over.
    #[n(4)]
    pub wait: bool,
    /// Time left until the answer is due, microseconds.
    #[n(5)]
    pub time_us: u64,
    /// Whether answers include the load, free memory and counters of each node.
    #[n(6)]
    pub health: bool,
    /// In a heartbeat: earlier heartbeats of this controller, by number, with the nodes of which it has had the answer since
    /// the one before. The terms of these nodes' fences run from when they sent that answer.
    #[n(7)]
    #[cbor(default)]
    pub heard: Vec<(u64, NodeSet)>,
}

/// A comparison of a node's variable with a value, as in `variable >= value`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Test {
    /// Variable on the left of the comparison.
    #[n(0)]
    pub variable: Variable,
    /// The comparison operator.
    #[n(1)]
    pub comparison: Comparison,
    /// The value to compare with.
    #[n(2)]
    pub value: i64,
}

/// A variable that every node has. A variable that was never set is 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Variable {
    /// Number of the last put (messages for a set of nodes) that the node has processed.
    #[n(0)]
    Heard,
    /// 1: the node has this attempt of the job. 0: it does not.
    #[n(1)]
    Job(#[n(0)] JobAttempt),
    /// State of this step on the node. 1: the node's tasks run; 2: they have ended.
    #[n(2)]
    Step(#[n(0)] StepKey),
    /// State of this file on the node, as the number that [`Holding::value`] gives.
    #[n(3)]
    Content(#[n(0)] ContentId),
    /// The variable with this name, for any use. Set by `Down::Write` only.
    #[n(4)]
    Named(#[n(0)] String),
    /// Bytes of this file that the node has received. Above the file's length: the node has all of it, committed or
    /// not. Below 0: it can't receive the file; the negative errno. Relays add up the values of the nodes that lack
    /// some.
    #[n(5)]
    Taken(#[n(0)] ContentId),
    /// Result of the order (epoch, number) to write a file to a path. 1: written; below 0: writing failed; the negative
    /// errno.
    #[n(6)]
    Placed(#[n(0)] Epoch, #[n(1)] u64),
    /// Blocks of this file that the node lacks, from a byte offset on, as bits: bit `i` is set if block `i` after the
    /// offset is lacking (blocks of [`CAST_BLOCK_BYTES`](crate::limits::CAST_BLOCK_BYTES)). Relays combine the bits of
    /// all nodes with OR.
    #[n(7)]
    Missing(#[n(0)] ContentId, #[n(1)] u64),
    /// Largest deviation of the node's gang scheduling slots from the controller's over the last few seconds,
    /// microseconds.
    #[n(8)]
    Skew,
    /// 1: the usage of the node's tasks of this step was measured after the question came, and the answer includes it.
    /// Below 0: no task of the step runs on the node. With `true` what was used over time is cut to what was used lately.
    #[n(9)]
    Used(
        #[n(0)] StepKey,
        #[n(1)]
        #[cbor(default)]
        bool,
    ),
    /// Number of the node's steps that were told to end and have not acknowledged it. Such a step may still start
    /// tasks.
    #[n(10)]
    Unheeded,
}

impl Variable {
    /// Returns whether the variable keeps `value` for ever, so that waiting for another value is useless.
    pub fn is_final(&self, value: i64) -> bool {
        value < 0 && matches!(self, Self::Content(_) | Self::Taken(_) | Self::Placed(..) | Self::Used(..))
    }

    /// Combines the witnesses of two sets of nodes: in each set, a node on which the test does not hold, with the value
    /// of its variable. None: the test holds on all nodes of the set.
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

/// Operator that compares a variable with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Comparison {
    /// Holds if the variable is at least the value.
    #[n(0)]
    AtLeast,
    /// Holds if the variable is less than the value.
    #[n(1)]
    Less,
    /// Holds if the variable equals the value.
    #[n(2)]
    Equal,
    /// Holds if the variable differs from the value.
    #[n(3)]
    Different,
}

/// Message from child to parent in the distribution tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Upward {
    /// Combined reports of the child and the nodes below it.
    #[n(0)]
    Composite {
        /// Number of the composite, rising on this connection. The acknowledgement repeats it.
        #[n(0)]
        batch: u64,
        /// The combined reports.
        #[n(1)]
        composite: Box<Composite>,
    },
    /// Combined answers to a query.
    #[n(1)]
    Tally {
        /// Epoch of the controller that sent the query.
        #[n(0)]
        epoch: Epoch,
        /// Number of the query within the epoch.
        #[n(1)]
        number: u64,
        /// The answers of the child and the nodes below it.
        #[n(2)]
        tally: Tally,
    },
    /// A piece of a file. The sender is the receiver's parent in the file's own tree (`Cascade`), not in the
    /// distribution tree.
    #[n(2)]
    Chunk(#[n(0)] Chunk),
    /// A message of one step daemon for another on a node that is not below the sender.
    #[n(3)]
    Letter(#[n(0)] Box<Letter>),
}

/// Combined answers of nodes to a query. Nodes in neither `yes` nor `no` have not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Tally {
    /// Nodes on which the comparison holds.
    #[n(0)]
    pub yes: NodeSet,
    /// Nodes on which the comparison does not hold.
    #[n(1)]
    pub no: NodeSet,
    /// One of the nodes in `no`, with the value of its variable. For [`Variable::Missing`] and `Variable::Taken` the
    /// value combines those of all nodes in `no`.
    #[n(2)]
    pub witness: Option<(NodeId, i64)>,
    /// Load, free memory and counters of each answering node, if the query requests it.
    #[n(3)]
    pub health: Vec<(NodeId, Health)>,
    /// Resources used by a step's tasks on all answering nodes together ([`Variable::Used`]).
    #[n(4)]
    pub used: Option<Box<Usage>>,
    /// The same over time. None: the step is too young.
    #[n(5)]
    pub series: Option<Box<Series>>,
}

/// Combined reports of many nodes. The controller processes the fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Composite {
    /// Nodes no longer reachable through the sender, with the number of the session that each had through it.
    #[n(0)]
    pub lost: BTreeMap<NodeId, u64>,
    /// Ends of steps on nodes. Nodes on which the tasks ended in the same way share one entry.
    #[n(1)]
    pub ended: BTreeMap<StepKey, Vec<(NodeSet, StepEnd)>>,
    /// Failed launches of steps: node, and what failed.
    #[n(2)]
    pub failed: Vec<(NodeId, LaunchFailure)>,
    /// Nodes on which a job has no processes left, by job.
    #[n(3)]
    pub gone: BTreeMap<JobAttempt, NodeSet>,
    /// Nodes that ask to register: route to the node, and its name.
    #[n(4)]
    pub knocks: Vec<(Route, String)>,
    /// Registrations of nodes, with their hardware and jobs.
    #[n(5)]
    pub registrations: Vec<Registration>,
    /// Nodes that were in contact with a controller of newer state than the one that answers them.
    #[n(6)]
    pub newer: Vec<Newer>,
    /// Number of single reports that are combined here.
    #[n(7)]
    pub reports: u64,
    /// Longest time that one of these reports waited for others on its way, microseconds.
    #[n(8)]
    #[cbor(default)]
    pub waited_us: u64,
    /// Reports of nodes about programs around jobs and about themselves. The controller processes them before `gone`.
    /// None: there are none. The numbers before 14 are left out.
    #[n(14)]
    pub notes: Option<Vec<(NodeId, NodeNote)>>,
}

/// A node's report that the controller which answers it has older state than a controller that it was in contact with.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Newer {
    /// Name of the node.
    #[n(0)]
    pub name: String,
    /// The newest session that any controller offered to the node.
    #[n(1)]
    pub session: Session,
    /// The highest job id that the node has seen.
    #[n(2)]
    pub last_job: JobId,
}

/// A step that a node could not launch.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LaunchFailure {
    /// The step that could not be launched.
    #[n(0)]
    pub key: StepKey,
    /// Why the launch failed, as a text for users.
    #[n(1)]
    pub error: String,
    /// Whether the node is at fault, not the job.
    #[n(2)]
    pub node_fault: bool,
}

/// Load, free memory and counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Health {
    /// Load average over one minute, times 100.
    #[n(0)]
    pub load_centi: u32,
    /// Free memory, MiB.
    #[n(1)]
    pub free_mb: u64,
    /// The node daemon's run: a mark of the node's boot in the upper 32 bits, and a number that rises with each start
    /// in the lower ones.
    #[n(2)]
    #[cbor(default)]
    pub run: u64,
    /// Counters of the node daemon since its start.
    #[n(3)]
    #[cbor(default)]
    pub counts: NodeCounts,
}

impl Default for Window {
    fn default() -> Self {
        Self { messages: 1024, time_ms: 100 }
    }
}

impl Comparison {
    /// Returns whether the comparison holds with `left` as the variable's value and `right` as the value to compare
    /// with.
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
    /// Adds the answers of other nodes to the same query about `variable`. Nodes are kept as sets, not as counts, so an
    /// answer that arrives by two ways counts once.
    pub fn merge(&mut self, variable: &Variable, other: &Self) {
        self.yes.union_with(&other.yes);
        self.no.union_with(&other.no);
        self.witness = variable.reduce(self.witness, other.witness);
        self.health.extend_from_slice(&other.health);
        if let Some(used) = other.used.as_deref() {
            self.used.get_or_insert_default().absorb(used);
        }
        Series::merge_into(&mut self.series, other.series.as_deref());
    }
    /// Returns the nodes that have answered.
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
    /// Returns whether there are reports that relays must not delay: lost nodes, failed launches or programs.
    pub fn is_urgent(&self) -> bool {
        !self.lost.is_empty() || !self.failed.is_empty() || self.notes.is_some()
    }
    /// Returns whether there are requests of nodes to register, registrations, or reports of newer state.
    pub fn lets_in(&self) -> bool {
        !self.knocks.is_empty() || !self.registrations.is_empty() || !self.newer.is_empty()
    }
    /// Adds the report that a step has ended on some nodes.
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
    /// Adds the report that a job has no processes left on some nodes.
    pub fn add_gone(&mut self, job: JobAttempt, nodes: &NodeSet) {
        self.gone.entry(job).or_default().union_with(nodes);
    }
    /// Adds all reports of another composite to this one.
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
        if let Some(notes) = other.notes {
            self.notes.get_or_insert_default().extend(notes);
        }
        self.reports = self.reports.saturating_add(other.reports);
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
