//! Between the step daemons of one step: how its processes find each other (PMIx, PMI).

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::set::IndexSet;

/// Frames between two step daemons of a step. Either may have made the connection; each says `Hello` first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// First frame, from both sides.
    Hello {
        /// The cookie of the launch.
        cookie: [u8; 16],
        /// The speaker's place in the layout.
        place: u32,
    },
    /// Up the tree: all below the speaker, and its own ranks, have come; this is what they brought.
    Up {
        /// Where they have come.
        gathering: Gathering,
        /// What they brought, one after the other.
        data: ByteBuf,
    },
    /// Down the tree: all have come.
    Down {
        /// Where.
        gathering: Gathering,
        /// What all brought together.
        data: ByteBuf,
        /// A number that no other gathering of the step under this root has.
        context: u64,
    },
    /// It will not come together.
    Failed {
        /// Which.
        gathering: Gathering,
        /// Why.
        fault: Fault,
    },
    /// Direct modex: what has this rank of yours published?
    Ask {
        /// The speaker's number for it.
        ticket: u64,
        /// Which rank.
        rank: u32,
    },
    /// The answer to `Ask`.
    Answer {
        /// The asker's number.
        ticket: u64,
        /// What the rank has published.
        result: Result<ByteBuf, Fault>,
    },
    /// To the keeper of the board: publish these.
    Post {
        /// The speaker's number for it.
        ticket: u64,
        /// What.
        notices: Vec<Notice>,
    },
    /// To the keeper: take back what a rank has published.
    Withdraw {
        /// The speaker's number for it.
        ticket: u64,
        /// The rank.
        owner: u32,
        /// Under these names; none: all.
        keys: Vec<String>,
    },
    /// To the keeper: what was published under these names?
    Find {
        /// The speaker's number for it.
        ticket: u64,
        /// The names.
        keys: Vec<String>,
        /// Answer when all of them are there.
        wait: bool,
    },
    /// The keeper's answer.
    Found {
        /// The asker's number.
        ticket: u64,
        /// What was found of it.
        result: Result<Vec<Notice>, Fault>,
    },
    /// `Up`, but what they brought is too much for the tree: it stays where it is.
    Held {
        /// Where they have come.
        gathering: Gathering,
        /// How much they brought.
        bytes: u64,
    },
    /// `Down`, but what all brought goes round a ring, from each node to the next.
    Round {
        /// Where all have come.
        gathering: Gathering,
        /// As in `Down`.
        context: u64,
    },
    /// Round the ring: what the ranks of one node brought.
    Piece {
        /// Where.
        gathering: Gathering,
        /// That node's position among those that take part.
        origin: u32,
        /// What they brought.
        data: ByteBuf,
    },
    /// How the speaker can be reached from now on.
    Endpoint {
        /// `HOST:PORT` of its TCP socket, if it has one; what is said there between machines is encrypted, by the cookie of the launch.
        tcp: String,
        /// The address of its UCX worker, if it has one.
        ucx: ByteBuf,
    },
    /// For measuring: say it back.
    Ping {
        /// Counted up.
        number: u64,
        /// Anything.
        data: ByteBuf,
    },
    /// The answer to `Ping`.
    Pong {
        /// Its number.
        number: u64,
        /// Its data.
        data: ByteBuf,
    },
    /// A rank of the speaker's node tells others of something: a PMIx event.
    Event {
        /// What, by PMIx's number.
        code: i32,
        /// The rank.
        source: u32,
        /// Whom it is for, by PMIx's number.
        range: u8,
        /// What belongs to it, as PMIx packs it.
        details: Vec<ByteBuf>,
    },
}

/// Something published under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The rank that has published it.
    pub owner: u32,
    /// Its name.
    pub key: String,
    /// Its value, as the protocol packs it.
    pub value: ByteBuf,
}

/// A point at which ranks wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gathering {
    /// What kind.
    pub what: What,
    /// Which ranks.
    pub ranks: IndexSet,
    /// How many of this kind these ranks had before.
    pub number: u64,
}

/// Kinds of gatherings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    /// A PMIx fence, with or without data.
    Fence,
    /// A barrier of PMI, which brings the keys that were put.
    Barrier,
    /// `PMIx_Connect`.
    Connect,
    /// `PMIx_Disconnect`.
    Disconnect,
    /// A group is made.
    Group(String),
    /// A group is given up.
    Ungroup(String),
    /// Step daemons measure how long it takes.
    Trial,
}

/// Why something between ranks came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Not all came in time.
    Timeout,
    /// A node that takes part can't be reached, or its tasks have ended.
    Gone,
    /// More data than a frame carries.
    TooLarge,
    /// There is no such thing.
    NotFound,
    /// There is such a thing already.
    Taken,
}
