//! How tasks are distributed over the sockets and cores of a node.

use minicbor::{Decode, Encode};

/// How a node's tasks are distributed over its sockets, and a socket's tasks over its cores: the second and third part
/// of `--distribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Spread {
    /// Distribution of tasks over sockets.
    #[n(0)]
    pub sockets: Turn,
    /// Distribution of tasks over the cores of a socket, used where tasks are bound to threads.
    #[n(1)]
    pub cores: Turn,
}

/// Order in which tasks get the parts of a node (sockets, or cores of a socket).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Turn {
    /// Consecutive tasks fill one part before the next part is used.
    #[default]
    #[n(0)]
    Block,
    /// Consecutive tasks go to different parts, round-robin.
    #[n(1)]
    Cyclic,
    /// Consecutive CPUs go to different parts, round-robin, even those of one task.
    #[n(2)]
    Full,
}

impl Spread {
    /// Reads the second and third part of `--distribution`, such as `block:cyclic:fcyclic`. Without a third part, cores
    /// are used in the same order as sockets.
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
