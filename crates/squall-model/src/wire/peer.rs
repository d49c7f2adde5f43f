//! Between the step daemons of one step: how its processes find each other (PMIx, PMI).

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::set::IndexSet;

/// Frames between two step daemons of a step. Either may have made the connection; each says `Hello` first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PeerMessage {
    /// First frame, from both sides.
    #[n(0)]
    Hello {
        /// The cookie of the launch.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        cookie: [u8; 16],
        /// The speaker's place in the layout.
        #[n(1)]
        place: u32,
    },
    /// Up the tree: all below the speaker, and its own ranks, have come; this is what they brought.
    #[n(1)]
    Up {
        /// Where they have come.
        #[n(0)]
        gathering: Gathering,
        /// What they brought, one after the other.
        #[n(1)]
        data: ByteBuf,
    },
    /// Down the tree: all have come.
    #[n(2)]
    Down {
        /// Where.
        #[n(0)]
        gathering: Gathering,
        /// What all brought together.
        #[n(1)]
        data: ByteBuf,
        /// A number that no other gathering of the step under this root has.
        #[n(2)]
        context: u64,
    },
    /// It will not come together.
    #[n(3)]
    Failed {
        /// Which.
        #[n(0)]
        gathering: Gathering,
        /// Why.
        #[n(1)]
        fault: Fault,
    },
    /// Direct modex: what has this rank of yours published?
    #[n(4)]
    Ask {
        /// The speaker's number for it.
        #[n(0)]
        ticket: u64,
        /// Which rank.
        #[n(1)]
        rank: u32,
    },
    /// The answer to `Ask`.
    #[n(5)]
    Answer {
        /// The asker's number.
        #[n(0)]
        ticket: u64,
        /// What the rank has published.
        #[n(1)]
        result: Result<ByteBuf, Fault>,
    },
    /// To the keeper of the board: publish these.
    #[n(6)]
    Post {
        /// The speaker's number for it.
        #[n(0)]
        ticket: u64,
        /// What.
        #[n(1)]
        notices: Vec<Notice>,
    },
    /// To the keeper: take back what a rank has published.
    #[n(7)]
    Withdraw {
        /// The speaker's number for it.
        #[n(0)]
        ticket: u64,
        /// The rank.
        #[n(1)]
        owner: u32,
        /// Under these names; none: all.
        #[n(2)]
        keys: Vec<String>,
    },
    /// To the keeper: what was published under these names?
    #[n(8)]
    Find {
        /// The speaker's number for it.
        #[n(0)]
        ticket: u64,
        /// The names.
        #[n(1)]
        keys: Vec<String>,
        /// Answer when all of them are there.
        #[n(2)]
        wait: bool,
    },
    /// The keeper's answer.
    #[n(9)]
    Found {
        /// The asker's number.
        #[n(0)]
        ticket: u64,
        /// What was found of it.
        #[n(1)]
        result: Result<Vec<Notice>, Fault>,
    },
    /// `Up`, but what they brought is too much for the tree: it stays where it is.
    #[n(10)]
    Held {
        /// Where they have come.
        #[n(0)]
        gathering: Gathering,
        /// How much they brought.
        #[n(1)]
        bytes: u64,
    },
    /// `Down`, but what all brought goes round a ring, from each node to the next.
    #[n(11)]
    Round {
        /// Where all have come.
        #[n(0)]
        gathering: Gathering,
        /// As in `Down`.
        #[n(1)]
        context: u64,
    },
    /// Round the ring: what the ranks of one node brought.
    #[n(12)]
    Piece {
        /// Where.
        #[n(0)]
        gathering: Gathering,
        /// That node's position among those that take part.
        #[n(1)]
        origin: u32,
        /// What they brought.
        #[n(2)]
        data: ByteBuf,
    },
    /// How the speaker can be reached from now on.
    #[n(13)]
    Endpoint {
        /// `HOST:PORT` of its TCP socket, if it has one; what is said there between machines is encrypted, by the cookie of the launch.
        #[n(0)]
        tcp: String,
        /// The address of its UCX worker, if it has one.
        #[n(1)]
        ucx: ByteBuf,
    },
    /// For measuring: say it back.
    #[n(14)]
    Ping {
        /// Counted up.
        #[n(0)]
        number: u64,
        /// Anything.
        #[n(1)]
        data: ByteBuf,
    },
    /// The answer to `Ping`.
    #[n(15)]
    Pong {
        /// Its number.
        #[n(0)]
        number: u64,
        /// Its data.
        #[n(1)]
        data: ByteBuf,
    },
    /// A rank of the speaker's node tells others of something: a PMIx event.
    #[n(16)]
    Event {
        /// What, by PMIx's number.
        #[n(0)]
        code: i32,
        /// The rank.
        #[n(1)]
        source: u32,
        /// Whom it is for, by PMIx's number.
        #[n(2)]
        range: u8,
        /// What belongs to it, as PMIx packs it.
        #[n(3)]
        details: Vec<ByteBuf>,
    },
}

/// Something published under a name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Notice {
    /// The rank that has published it.
    #[n(0)]
    pub owner: u32,
    /// Its name.
    #[n(1)]
    pub key: String,
    /// Its value, as the protocol packs it.
    #[n(2)]
    pub value: ByteBuf,
}

/// A point at which ranks wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Gathering {
    /// What kind.
    #[n(0)]
    pub what: What,
    /// Which ranks.
    #[n(1)]
    pub ranks: IndexSet,
    /// How many of this kind these ranks had before.
    #[n(2)]
    pub number: u64,
}

/// Kinds of gatherings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum What {
    /// A PMIx fence, with or without data.
    #[n(0)]
    Fence,
    /// A barrier of PMI, which brings the keys that were put.
    #[n(1)]
    Barrier,
    /// `PMIx_Connect`.
    #[n(2)]
    Connect,
    /// `PMIx_Disconnect`.
    #[n(3)]
    Disconnect,
    /// A group is made.
    #[n(4)]
    Group(#[n(0)] String),
    /// A group is given up.
    #[n(5)]
    Ungroup(#[n(0)] String),
    /// Step daemons measure how long it takes.
    #[n(6)]
    Trial,
}

/// Why something between ranks came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Fault {
    /// Not all came in time.
    #[n(0)]
    Timeout,
    /// A node that takes part can't be reached, or its tasks have ended.
    #[n(1)]
    Gone,
    /// More data than a frame carries.
    #[n(2)]
    TooLarge,
    /// There is no such thing.
    #[n(3)]
    NotFound,
    /// There is such a thing already.
    #[n(4)]
    Taken,
}
