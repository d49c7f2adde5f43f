//! How tasks are distributed over nodes, and over the sockets and cores of a node.

use minicbor::{Decode, Encode};

/// How a node's tasks are distributed over its sockets, and a socket's tasks over its cores: the second and third part
/// of `--distribution`. With the word behind these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Spread {
    /// Distribution of tasks over sockets.
    #[n(0)]
    pub sockets: Turn,
    /// Distribution of tasks over the cores of a socket, used where tasks are bound to threads.
    #[n(1)]
    pub cores: Turn,
    /// `Pack` (true): a step's tasks fill a node before the next one gets more than one task. `NoPack` (false): nodes
    /// get equally many. None: as `CR_Pack_Nodes` of the configuration says.
    #[n(5)]
    pub packs: Option<bool>,
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
    /// Reads `--distribution` but for its first part, such as `block:cyclic:fcyclic,pack`. Without a third part, cores
    /// are used in the same order as sockets.
    pub fn of(distribution: &str) -> Self {
        let turn = |word: &str| match word.to_ascii_lowercase().as_str() {
            "block" => Some(Turn::Block),
            "cyclic" => Some(Turn::Cyclic),
            "fcyclic" => Some(Turn::Full),
            _ => None,
        };
        let mut words = distribution.split(',');
        let mut parts = words.next().unwrap_or_default().split(':').skip(1).map(turn);
        let sockets = parts.next().flatten().unwrap_or_default();
        let is = |word: &str| distribution.split(',').any(|said| said.eq_ignore_ascii_case(word));
        let packs = (is("pack") || is("nopack")).then(|| is("pack"));
        Self { sockets, cores: parts.next().flatten().unwrap_or(sockets), packs }
    }
}
