//! What a controller asks of etcd, in the terms of etcd's v3 API (<https://etcd.io/docs/v3.4/learning/api/>).

/// Number of a lease. etcd gives none the number 0.
pub type LeaseId = i64;

/// A question to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Grant a lease. Its keys vanish `seconds` after it was last renewed.
    Grant {
        /// Length of the lease, seconds.
        seconds: u64,
    },
    /// Renew a lease.
    KeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// A transaction.
    Txn(Txn),
    /// Forget all versions of keys before this revision.
    Compact {
        /// The revision.
        revision: i64,
    },
    /// How large the database is.
    Usage,
}

/// A transaction: if all of `compare` hold, `then` is done, else `otherwise`; all of it at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold.
    pub compare: Vec<Compare>,
    /// What is done if it holds.
    pub then: Vec<Op>,
    /// What is done if it does not hold.
    pub otherwise: Vec<Op>,
}

/// A condition: the key was last changed at this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// The revision. 0: the key does not exist.
    pub modified: i64,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the keys from `key` on and below `end`, at most `limit` of them, in order. Without an end: one key.
    Get {
        /// The first key.
        key: String,
        /// The key after the last one. None: only `key`.
        end: Option<String>,
        /// Most keys that are returned. 0: all.
        limit: i64,
    },
    /// Write a key. It vanishes with its lease.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// The lease. None: the key stays.
        lease: Option<LeaseId>,
    },
    /// Remove the keys from `key` on and below `end`. Without an end: one key.
    Delete {
        /// The first key.
        key: String,
        /// The key after the last one. None: only `key`.
        end: Option<String>,
    },
}

impl Op {
    /// Reads one key.
    pub(super) fn get(key: &str) -> Self {
        Self::Get { key: key.to_owned(), end: None, limit: 0 }
    }
}

impl Ask {
    /// Whether it may change something at etcd, so that it is unknown after a timeout whether that has happened.
    pub fn changes(&self) -> bool {
        match self {
            Self::Txn(txn) => txn.then.iter().chain(&txn.otherwise).any(|op| !matches!(op, Op::Get { .. })),
            Self::Usage => false,
            Self::Grant { .. } | Self::KeepAlive { .. } | Self::Compact { .. } => true,
        }
    }
}

/// etcd's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A lease was granted.
    Granted {
        /// Its number.
        lease: LeaseId,
    },
    /// A lease was renewed.
    Alive {
        /// Whether it still existed.
        exists: bool,
    },
    /// A transaction was done.
    Txn(Done),
    /// Old versions were forgotten.
    Compacted,
    /// The size of the database.
    Usage {
        /// Bytes that its keys take.
        used: u64,
    },
}

/// Result of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The store's revision after the transaction.
    pub revision: i64,
    /// Whether the comparisons held.
    pub succeeded: bool,
    /// What each operation has read; empty for one that does not read.
    pub results: Vec<Vec<Pair>>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision at which it was last changed.
    pub modified: i64,
}

/// Why etcd has given no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No member answered in time, or the members have no quorum. What was asked may have been done, or may still be.
    Unavailable(String),
    /// The database has reached its quota. Nothing was done.
    NoSpace(String),
    /// etcd refuses: it knows no such user, or the user has no right to the key. Nothing was done.
    Refused(String),
}
