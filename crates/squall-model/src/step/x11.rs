//! X11 forwarding: X clients of a step's tasks reach the display of `srun`'s user.

use minicbor::{Decode, Encode};

/// How X clients of a step reach the display of its `srun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct X11 {
    /// Nodes of the step on which tasks find a display.
    #[n(0)]
    pub nodes: X11Nodes,
    /// Secret that X clients show to `srun`, which has that of the display itself: no node learns it.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub cookie: [u8; 16],
    /// Number of the display's screen.
    #[n(2)]
    pub screen: u32,
}

/// Nodes of a step on which tasks find a display (`--x11`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum X11Nodes {
    /// `all`: every node.
    #[default]
    #[n(0)]
    All,
    /// `first` or `batch`: the first node.
    #[n(1)]
    First,
    /// `last`: the last node.
    #[n(2)]
    Last,
}

impl X11Nodes {
    /// Reads the value of `--x11`. None: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "" | "all" => Some(Self::All),
            "first" | "batch" => Some(Self::First),
            "last" => Some(Self::Last),
            _ => None,
        }
    }

    /// Returns whether the node with this index is one of them, of a step with `count` nodes.
    pub fn has(self, index: usize, count: usize) -> bool {
        match self {
            Self::All => true,
            Self::First => index == 0,
            Self::Last => index + 1 == count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::X11Nodes;

    #[test]
    fn words_name_nodes() {
        let on = |word: &str| {
            X11Nodes::parse(word).map(|nodes| (0..3).filter(|node| nodes.has(*node, 3)).collect::<Vec<_>>())
        };
        assert_eq!((on(""), on("ALL")), (Some(vec![0, 1, 2]), Some(vec![0, 1, 2])));
        assert_eq!((on("first"), on("batch"), on("last")), (Some(vec![0]), Some(vec![0]), Some(vec![2])));
        assert_eq!(on("some"), None);
    }
}
