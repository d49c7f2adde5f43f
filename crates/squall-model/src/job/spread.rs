//! How tasks go to the sockets and cores of a node.

use minicbor::{Decode, Encode};

/// How a node's tasks go to its sockets, and its sockets' tasks to cores: the second and third part of `--distribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Spread {
    /// Over sockets.
    #[n(0)]
    pub sockets: Turn,
    /// Over the cores of a socket, where tasks are bound to threads.
    #[n(1)]
    pub cores: Turn,
}

/// In which order parts of a node are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Turn {
    /// One after the other.
    #[default]
    #[n(0)]
    Block,
    /// A task each in turn.
    #[n(1)]
    Cyclic,
    /// A CPU each in turn, also of one task.
    #[n(2)]
    Full,
}

impl Spread {
    /// Reads `--distribution`: `block:cyclic:fcyclic`. Cores follow sockets where nothing is said of them.
    pub fn of(distribution: &str) -> Self {
        let turn = |word: &str| match word.to_ascii_lowercase().as_str() {
            "block" => Some(Turn::Block),
            "cyclic" => Some(Turn::Cyclic),
            "fcyclic" => Some(Turn::Full),
            _ => None,
        };
        let mut parts = distribution.split(',').next().unwrap_or_default().split(':').skip(1).map(turn);
        let sockets = parts.next().flatten().unwrap_or_default();
        Self { sockets, cores: parts.next().flatten().unwrap_or(sockets) }
    }
}
