//! Messages between the step daemons of one step, by which its processes exchange addresses and synchronize (PMIx,
//! PMI).

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::set::IndexSet;

/// Message between two step daemons of one step. Either side may have opened the connection; each sends `Hello` first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PeerMessage {
    /// First message of each side on a connection between two step daemons.
    #[n(0)]
    Hello {
        /// Secret of this launch of the step, known only to its step daemons.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
        /// Index of the sender's node in the step's list of nodes.
        #[n(1)]
        place: u32,
    },
    /// From child to parent in the tree of step daemons: all ranks on the sender's node and on the nodes below it have
    /// reached the synchronization point.
    #[n(1)]
    Up {
        /// The synchronization point that the ranks have reached.
        #[n(0)]
        gathering: Gathering,
        /// Data that these ranks contribute, concatenated.
        #[n(1)]
        data: ByteBuf,
    },
    /// From parent to child in the tree of step daemons: all participating ranks have reached the synchronization
    /// point.
    #[n(2)]
    Down {
        /// The synchronization point that the ranks have reached.
        #[n(0)]
        gathering: Gathering,
        /// Data of all participating ranks, concatenated.
        #[n(1)]
        data: ByteBuf,
        /// A number that no other synchronization point of the step with the same root has.
        #[n(2)]
        context: u64,
    },
    /// A synchronization point failed; sent to the step daemons that take part in it.
    #[n(3)]
    Failed {
        /// The synchronization point that failed.
        #[n(0)]
        gathering: Gathering,
        /// Why the synchronization failed.
        #[n(1)]
        fault: Fault,
    },
    /// Direct modex (exchange of addresses on demand): asks for the data that a rank on the receiver's node has
    /// published.
    #[n(4)]
    Ask {
        /// Number that the sender gave to the request; the answer repeats it.
        #[n(0)]
        ticket: u64,
        /// The rank that published the data.
        #[n(1)]
        rank: u32,
    },
    /// Answer to `Ask`: the data that a rank has published.
    #[n(5)]
    Answer {
        /// Number of the request that is answered.
        #[n(0)]
        ticket: u64,
        /// Data that the rank has published, or why there is none.
        #[n(1)]
        result: Result<ByteBuf, Fault>,
    },
    /// Publishes data under names. Sent to the step daemon that stores published data for the whole step.
    #[n(6)]
    Post {
        /// Number that the sender gave to the request; the answer repeats it.
        #[n(0)]
        ticket: u64,
        /// Data to publish, with names.
        #[n(1)]
        notices: Vec<Notice>,
    },
    /// Removes data that a rank has published. Sent to the step daemon that stores published data for the whole step.
    #[n(7)]
    Withdraw {
        /// Number that the sender gave to the request; the answer repeats it.
        #[n(0)]
        ticket: u64,
        /// The rank that published the data.
        #[n(1)]
        owner: u32,
        /// Names of the data to remove; empty: all data of the rank.
        #[n(2)]
        keys: Vec<String>,
    },
    /// Looks up published data by name. Sent to the step daemon that stores published data for the whole step.
    #[n(8)]
    Find {
        /// Number that the sender gave to the request; the answer repeats it.
        #[n(0)]
        ticket: u64,
        /// Names of the data to look up.
        #[n(1)]
        keys: Vec<String>,
        /// Whether to delay the answer until data with each of these names is published.
        #[n(2)]
        wait: bool,
    },
    /// Answer to `Post`, `Withdraw` or `Find`, from the step daemon that stores published data.
    #[n(9)]
    Found {
        /// Number of the request that is answered.
        #[n(0)]
        ticket: u64,
        /// The data found, or why the request failed. Names without data are left out.
        #[n(1)]
        result: Result<Vec<Notice>, Fault>,
    },
    /// Sent instead of `Up` if the data is too long to be sent up the tree. The data stays on the node of its ranks.
    #[n(10)]
    Held {
        /// The synchronization point that the ranks have reached.
        #[n(0)]
        gathering: Gathering,
        /// Length of the data on the sender's node and on the nodes below it, bytes.
        #[n(1)]
        bytes: u64,
    },
    /// Sent instead of `Down` if the data is too long to be sent down the tree. Each node then passes the data on to
    /// the next one, in a ring.
    #[n(11)]
    Round {
        /// The synchronization point that the ranks have reached.
        #[n(0)]
        gathering: Gathering,
        /// A number that no other synchronization point of the step with the same root has.
        #[n(1)]
        context: u64,
    },
    /// Data of the ranks of one node, passed on from node to node in a ring.
    #[n(12)]
    Piece {
        /// The synchronization point for which the ranks contributed the data.
        #[n(0)]
        gathering: Gathering,
        /// Position, among the nodes that take part, of the node with the ranks that contributed the data.
        #[n(1)]
        origin: u32,
        /// The data of that node's ranks, concatenated.
        #[n(2)]
        data: ByteBuf,
    },
    /// Addresses at which the sender now receives messages of other step daemons.
    #[n(13)]
    Endpoint {
        /// `HOST:PORT` of the sender's TCP socket. Empty: none. Between machines the traffic is encrypted with a key
        /// derived from the cookie of the launch.
        #[n(0)]
        tcp: String,
        /// Address of the sender's UCX worker, as UCX encodes it. Empty: none.
        #[n(1)]
        ucx: ByteBuf,
    },
    /// Measures the round-trip time between two step daemons; the receiver answers with `Pong`.
    #[n(14)]
    Ping {
        /// Number of this `Ping`, rising.
        #[n(0)]
        number: u64,
        /// Payload, which the receiver sends back.
        #[n(1)]
        data: ByteBuf,
    },
    /// Answer to `Ping`, with the same number and payload.
    #[n(15)]
    Pong {
        /// Number of the `Ping` that is answered.
        #[n(0)]
        number: u64,
        /// Payload of the `Ping` that is answered.
        #[n(1)]
        data: ByteBuf,
    },
    /// A PMIx event that a rank on the sender's node raised.
    #[n(16)]
    Event {
        /// PMIx's status code of the event.
        #[n(0)]
        code: i32,
        /// The rank that raised the event.
        #[n(1)]
        source: u32,
        /// PMIx's code for the range of the event, which says which ranks get it.
        #[n(2)]
        range: u8,
        /// Details of the event, as PMIx packs them.
        #[n(3)]
        details: Vec<ByteBuf>,
    },
}

/// Data that a rank has published under a name, to be looked up by other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Notice {
    /// The rank that published the data.
    #[n(0)]
    pub owner: u32,
    /// Name under which the data is published.
    #[n(1)]
    pub key: String,
    /// The published data, as PMIx or PMI packs it.
    #[n(2)]
    pub value: ByteBuf,
}

/// A synchronization point: ranks that wait for each other, and perhaps exchange data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Gathering {
    /// Kind of the synchronization point, as a fence or a barrier.
    #[n(0)]
    pub what: What,
    /// The ranks that synchronize.
    #[n(1)]
    pub ranks: IndexSet,
    /// Number of earlier synchronization points of the same kind with the same ranks. It tells repeated ones apart.
    #[n(2)]
    pub number: u64,
}

/// Kinds of synchronization points.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum What {
    /// A PMIx fence, with or without data.
    #[n(0)]
    Fence,
    /// A barrier of PMI, which also exchanges the keys that the ranks have put since the last one.
    #[n(1)]
    Barrier,
    /// Connection of processes by `PMIx_Connect`.
    #[n(2)]
    Connect,
    /// Disconnection of processes by `PMIx_Disconnect`.
    #[n(3)]
    Disconnect,
    /// Construction of the PMIx group with this name.
    #[n(4)]
    Group(#[n(0)] String),
    /// Destruction of the PMIx group with this name.
    #[n(5)]
    Ungroup(#[n(0)] String),
    /// A synchronization by which the step daemons measure how long synchronization takes.
    #[n(6)]
    Trial,
}

/// Why a synchronization, or an exchange of data between ranks, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Fault {
    /// Some ranks did not reach the synchronization point in time.
    #[n(0)]
    Timeout,
    /// A node that takes part is unreachable, or its tasks have ended.
    #[n(1)]
    Gone,
    /// The data is longer than a frame may be.
    #[n(2)]
    TooLarge,
    /// The rank, name or group does not exist.
    #[n(3)]
    NotFound,
    /// The name is published already, or the group exists already.
    #[n(4)]
    Taken,
}
