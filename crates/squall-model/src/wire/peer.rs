//! Messages between the step daemons of one step, by which its processes exchange addresses and synchronize (PMIx,
//! PMI).

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::set::IndexSet;

/// Message between two step daemons of a step. Either may have opened the connection; each sends `Hello` first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PeerMessage {
    /// First message, from both sides.
    #[n(0)]
    Hello {
        /// Secret of this launch, known to its step daemons only.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
        /// Index of the sender's node in the step's layout.
        #[n(1)]
        place: u32,
    },
    /// Up the tree: all ranks of the sender's node and of those below it have reached the synchronization point.
    #[n(1)]
    Up {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// Data of the ranks, concatenated.
        #[n(1)]
        data: ByteBuf,
    },
    /// Down the tree: all ranks have reached the synchronization point.
    #[n(2)]
    Down {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// Data of all ranks, concatenated.
        #[n(1)]
        data: ByteBuf,
        /// A number unique among the synchronization points of the step under this root.
        #[n(2)]
        context: u64,
    },
    /// A synchronization point failed.
    #[n(3)]
    Failed {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// Reason of the failure.
        #[n(1)]
        fault: Fault,
    },
    /// Direct modex: asks for the data that a rank on the receiver's node has published.
    #[n(4)]
    Ask {
        /// The sender's number for the request.
        #[n(0)]
        ticket: u64,
        /// The rank.
        #[n(1)]
        rank: u32,
    },
    /// Answer to `Ask`.
    #[n(5)]
    Answer {
        /// Number of the request.
        #[n(0)]
        ticket: u64,
        /// Data that the rank has published.
        #[n(1)]
        result: Result<ByteBuf, Fault>,
    },
    /// Publishes data. Sent to the step daemon that stores it for the whole step.
    #[n(6)]
    Post {
        /// The sender's number for the request.
        #[n(0)]
        ticket: u64,
        /// Data to publish, with names.
        #[n(1)]
        notices: Vec<Notice>,
    },
    /// Removes data that a rank has published. Sent to the step daemon that stores it.
    #[n(7)]
    Withdraw {
        /// The sender's number for the request.
        #[n(0)]
        ticket: u64,
        /// The rank that published the data.
        #[n(1)]
        owner: u32,
        /// Names of the data; empty: all of the rank's.
        #[n(2)]
        keys: Vec<String>,
    },
    /// Asks for published data by name. Sent to the step daemon that stores it.
    #[n(8)]
    Find {
        /// The sender's number for the request.
        #[n(0)]
        ticket: u64,
        /// Names of the data.
        #[n(1)]
        keys: Vec<String>,
        /// Whether to delay the answer until data with all of the names is published.
        #[n(2)]
        wait: bool,
    },
    /// Answer to `Post`, `Withdraw` or `Find`, from the step daemon that stores published data.
    #[n(9)]
    Found {
        /// Number of the request.
        #[n(0)]
        ticket: u64,
        /// The data found. Names without data are left out.
        #[n(1)]
        result: Result<Vec<Notice>, Fault>,
    },
    /// Sent instead of `Up` if the data is too long for the tree. The data stays on its node.
    #[n(10)]
    Held {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// Length of the data, bytes.
        #[n(1)]
        bytes: u64,
    },
    /// Like `Down`, when the data is too long for the tree. The data goes round a ring instead, from each node to the
    /// next.
    #[n(11)]
    Round {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// A number unique among the synchronization points of the step under this root.
        #[n(1)]
        context: u64,
    },
    /// Data of the ranks of one node, sent round the ring.
    #[n(12)]
    Piece {
        /// The synchronization point.
        #[n(0)]
        gathering: Gathering,
        /// Index of that node among those that take part.
        #[n(1)]
        origin: u32,
        /// The data, concatenated.
        #[n(2)]
        data: ByteBuf,
    },
    /// New addresses of the sender.
    #[n(13)]
    Endpoint {
        /// `HOST:PORT` of the sender's TCP socket. Empty: none. Between machines the traffic is encrypted with a key
        /// derived from the cookie of the launch.
        #[n(0)]
        tcp: String,
        /// Address of the sender's UCX worker. Empty: none.
        #[n(1)]
        ucx: ByteBuf,
    },
    /// Measures the round trip; the receiver answers with `Pong`.
    #[n(14)]
    Ping {
        /// Number of the ping, rising.
        #[n(0)]
        number: u64,
        /// Payload of any content.
        #[n(1)]
        data: ByteBuf,
    },
    /// Answer to `Ping`.
    #[n(15)]
    Pong {
        /// Number of the ping.
        #[n(0)]
        number: u64,
        /// Payload of the ping.
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
        /// PMIx's code for the range of ranks that get the event.
        #[n(2)]
        range: u8,
        /// Details of the event, as PMIx packs them.
        #[n(3)]
        details: Vec<ByteBuf>,
    },
}

/// Data that a rank published under a name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Notice {
    /// The rank that published the data.
    #[n(0)]
    pub owner: u32,
    /// Name of the data.
    #[n(1)]
    pub key: String,
    /// The data, as PMIx or PMI packs it.
    #[n(2)]
    pub value: ByteBuf,
}

/// A synchronization point: ranks that wait for each other, and perhaps exchange data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Gathering {
    /// Kind of the synchronization point.
    #[n(0)]
    pub what: What,
    /// The ranks that take part.
    #[n(1)]
    pub ranks: IndexSet,
    /// Number of earlier synchronization points of the same kind and ranks.
    #[n(2)]
    pub number: u64,
}

/// Kinds of synchronization points.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum What {
    /// A PMIx fence, with or without data.
    #[n(0)]
    Fence,
    /// A barrier of PMI, which also exchanges the keys that were put.
    #[n(1)]
    Barrier,
    /// `PMIx_Connect`.
    #[n(2)]
    Connect,
    /// `PMIx_Disconnect`.
    #[n(3)]
    Disconnect,
    /// Construction of the PMIx group with this name.
    #[n(4)]
    Group(#[n(0)] String),
    /// Destruction of the PMIx group with this name.
    #[n(5)]
    Ungroup(#[n(0)] String),
    /// A measurement by the step daemons of how long synchronization takes.
    #[n(6)]
    Trial,
}

/// Why an exchange between ranks failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Fault {
    /// Some ranks did not reach the synchronization point in time.
    #[n(0)]
    Timeout,
    /// A node that takes part is unreachable, or its tasks have ended.
    #[n(1)]
    Gone,
    /// The data is too long for a frame.
    #[n(2)]
    TooLarge,
    /// The rank, name or group does not exist.
    #[n(3)]
    NotFound,
    /// The name or group exists already.
    #[n(4)]
    Taken,
}
