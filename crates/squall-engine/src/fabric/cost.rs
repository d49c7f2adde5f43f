//! Model of the time it takes to bring a file to many nodes: T = send + execute, and which chunk size makes the send
//! fastest.
//!
//! A file of F bytes goes in m chunks of c bytes down a tree of depth D, in which each node sends every chunk to k
//! children while it receives the next: `(m + D - 1) * k * (o + c / B)`, with o seconds of work for each message and
//! a link of B bytes per second. Pure arithmetic: o and B are measured, or given by the caller.

use squall_model::limits::{CHUNK_BYTES as CHUNK_BYTES_MAX, TREE_WIDTH};

/// Least and most bytes of a chunk. Below, the messages cost more than their contents; above, a chunk would not fit
/// in a frame.
const CHUNK_BYTES: (u64, u64) = (4 << 10, 4 << 20);
/// The mean of the largest of n exponential delays of mean 1 is about `ln n` plus this (Euler's constant).
const EULER: f64 = 0.58;

/// Speed of a connection between neighbours in the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Work of a daemon for each message at each hop, seconds; `o` in the formulas.
    pub message_s: f64,
    /// Bandwidth, bytes per second; `B` in the formulas.
    pub bytes_per_s: f64,
}

/// Assumed link where none is measured: 10 Gb/s, and the work of a daemon that wakes for each message.
pub const LINK: Link = Link { message_s: 20e-6, bytes_per_s: 1.165e9 };
/// Path of a file through the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Down the tree that messages use, in which each node sends to [`TREE_WIDTH`] others.
    Wide,
    /// From node to node: the least work for each, the greatest depth.
    Chain,
    /// Down a binary tree, in which each node sends to two others.
    Binary,
    /// Half of the file down each of two binary trees; inner nodes of one are leaves of the other.
    DoubleTree,
}

impl Shape {
    /// All shapes, implemented or not.
    pub const ALL: [Self; 4] = [Self::Wide, Self::Chain, Self::Binary, Self::DoubleTree];

    /// Returns the shape's name in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wide => "wide tree",
            Self::Chain => "chain",
            Self::Binary => "binary tree",
            Self::DoubleTree => "double tree",
        }
    }

    /// Returns how many children each node has in a tree that is built for the file. None: the shape uses the tree that
    /// carries messages, or is not implemented.
    pub fn width(self) -> Option<u32> {
        match self {
            Self::Chain => Some(1),
            Self::Binary => Some(2),
            Self::Wide | Self::DoubleTree => None,
        }
    }

    /// Returns how often the busiest node sends each chunk.
    fn copies(self, nodes: u64) -> f64 {
        match self {
            Self::Wide => nodes.clamp(1, u64::from(TREE_WIDTH)) as f64,
            Self::Binary => nodes.clamp(1, 2) as f64,
            Self::Chain | Self::DoubleTree => 1.0,
        }
    }

    /// Returns the number of hops to the farthest of `nodes` nodes.
    pub fn depth(self, nodes: u64) -> u64 {
        let levels = u64::from((nodes + 1).next_power_of_two().trailing_zeros()).max(1);
        match self {
            Self::Wide => {
                let (mut levels, mut there) = (1, u64::from(TREE_WIDTH));
                while there < nodes {
                    levels += 1;
                    there = (there + 1) * u64::from(TREE_WIDTH);
                }
                levels
            }
            Self::Chain => nodes.max(1),
            Self::Binary => levels,
            // Both halves pass every node, so the pipeline is twice as long.
            Self::DoubleTree => 2 * levels,
        }
    }
}

/// Returns the chunk size, in bytes, that makes a pipelined send of F = `size` bytes over D = `depth` hops fastest:
/// `sqrt(F * o * B / (D - 1))`, with the work `o` for a message and the bandwidth `B` of the link.
pub fn chunk_bytes(size: u64, link: Link, depth: u64) -> u64 {
    let whole = size.clamp(1, CHUNK_BYTES.1);
    if depth <= 1 {
        return whole;
    }
    let best = (size as f64 * link.message_s * link.bytes_per_s / (depth - 1) as f64).sqrt();
    (best as u64).clamp(CHUNK_BYTES.0, CHUNK_BYTES.1).min(whole)
}

/// Returns how many messages and how many bytes pass each node of a pipelined send, the time to fill the pipeline
/// included. The send takes the messages times `message_s` plus the bytes divided by `bytes_per_s`.
pub fn passing(shape: Shape, size: u64, nodes: u64, chunk: u64) -> (f64, f64) {
    let chunks = size.div_ceil(chunk.max(1)).max(1);
    let turns = (chunks + shape.depth(nodes) - 1) as f64 * shape.copies(nodes);
    (turns, turns * (size as f64 / chunks as f64))
}

/// Returns the seconds until the last of `nodes` nodes has all of `size` bytes, in chunks of the best size.
pub fn send_s(shape: Shape, size: u64, nodes: u64, link: Link) -> f64 {
    let chunk = chunk_bytes(size, link, shape.depth(nodes));
    let (messages, bytes) = passing(shape, size, nodes, chunk);
    messages * link.message_s + bytes / link.bytes_per_s
}

/// Returns the shape in which to send a file: the fastest of those that are implemented, on the assumed link. A file
/// of one chunk takes the tree that messages use.
pub fn choose(size: u64, nodes: u64) -> Shape {
    let built = [Shape::Wide, Shape::Chain, Shape::Binary];
    let seconds = |shape: &Shape| send_s(*shape, size, nodes, LINK);
    let fastest = built.into_iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    fastest.filter(|_| size > u64::from(CHUNK_BYTES_MAX)).unwrap_or(Shape::Wide)
}

/// Returns the chunk size for a file sent in this shape, bytes.
pub fn chunk_for(shape: Shape, size: u64, nodes: u64) -> u32 {
    let (least, most) = (u64::from(CHUNK_BYTES_MAX) / 4, u64::from(CHUNK_BYTES_MAX));
    chunk_bytes(size, LINK, shape.depth(nodes)).clamp(least, most) as u32
}

/// Returns the fastest shape for a send, implemented or not, and the seconds that it takes.
pub fn best(size: u64, nodes: u64, link: Link) -> (Shape, f64) {
    let all = Shape::ALL.map(|shape| (shape, send_s(shape, size, nodes, link)));
    all.into_iter().fold(all[0], |best, other| if other.1 < best.1 { other } else { best })
}

/// Returns the seconds until the last of `nodes` has started the program that was sent. Each needs `start_s` and a
/// random delay, which is exponentially distributed with mean `skew_s`.
pub fn execute_s(nodes: u64, start_s: f64, skew_s: f64) -> f64 {
    start_s + skew_s * delay(nodes)
}

/// Returns the mean of the largest of `nodes` exponential delays, each of mean 1. It is the factor of `skew_s` in
/// `execute_s`.
pub fn delay(nodes: u64) -> f64 {
    if nodes <= 1 { 1.0 } else { (nodes as f64).ln() + EULER }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Link, Shape, best, chunk_bytes, execute_s, send_s};

    const SIZE: u64 = 12 << 20;
    const MESSAGE_S: f64 = 5e-6;
    const ONE_GBE: Link = Link { message_s: MESSAGE_S, bytes_per_s: 0.117e9 };
    const TEN_GBE: Link = Link { message_s: MESSAGE_S, bytes_per_s: 1.165e9 };

    #[test]
    fn the_best_chunk_is_the_best() {
        let depth = Shape::Chain.depth(64);
        let best = chunk_bytes(SIZE, TEN_GBE, depth);
        let cost = |chunk: u64| {
            let (messages, bytes) = super::passing(Shape::Chain, SIZE, 64, chunk);
            messages * TEN_GBE.message_s + bytes / TEN_GBE.bytes_per_s
        };
        assert!((30_000..40_000).contains(&best), "{best}");
        for other in [best / 4, best / 2, best * 2, best * 4] {
            assert!(cost(best) < cost(other), "{best} {other}");
        }
    }

    #[test]
    fn chunks_stay_within_their_bounds() {
        assert_eq!(chunk_bytes(0, TEN_GBE, 10), 1);
        assert_eq!(chunk_bytes(100, TEN_GBE, 10), 100);
        assert_eq!(chunk_bytes(SIZE, TEN_GBE, 1), CHUNK_BYTES.1);
        assert_eq!(chunk_bytes(SIZE, TEN_GBE, 1 << 40), CHUNK_BYTES.0);
        assert_eq!(chunk_bytes(1 << 40, TEN_GBE, 2), CHUNK_BYTES.1);
    }

    /// The expected times come from an independent calculation, which takes 12 µs more for each hop.
    #[test]
    fn model_times_are_those_of_the_closed_form() {
        for (nodes, link, ms) in [(64, ONE_GBE, 121.0), (64, TEN_GBE, 15.7)] {
            let chain = 1e3 * send_s(Shape::Chain, SIZE, nodes, link);
            assert!((chain / ms - 1.0).abs() < 0.07, "{chain} ms, not {ms}");
        }
        let (shape, seconds) = best(SIZE, 1024, TEN_GBE);
        assert_eq!(shape, Shape::DoubleTree);
        assert!(seconds < 0.0247, "no worse than the single trees' {seconds}");
        assert!(send_s(Shape::Binary, SIZE, 1024, TEN_GBE) < send_s(Shape::Chain, SIZE, 1024, TEN_GBE));
        assert!(send_s(Shape::Binary, SIZE, 1024, TEN_GBE) > 0.0216, "each node sends everything twice");
    }

    #[test]
    fn growth_is_logarithmic() {
        let at = |nodes| best(SIZE, nodes, TEN_GBE).1;
        assert!(at(100_000) - at(16_384) < 0.1 * at(16_384));
        assert!((execute_s(16_384, 0.010, 0.001) - 0.010 - 0.001 * (16_384_f64.ln() + 0.58)).abs() < 1e-12);
        assert!((execute_s(1, 0.010, 0.001) - 0.011).abs() < 1e-12);
    }

    #[test]
    fn files_go_narrow_and_what_is_short_goes_wide() {
        let chosen = |size, nodes| super::choose(size, nodes);
        for (size, nodes, shape) in [
            (1000, 64, Shape::Wide),
            (SIZE, 1, Shape::Wide),
            (SIZE, 4, Shape::Chain),
            (SIZE, 64, Shape::Chain),
            (SIZE, 1024, Shape::Binary),
            (SIZE, 16_384, Shape::Binary),
        ] {
            assert_eq!(chosen(size, nodes), shape, "{size} {nodes}");
        }
        let times = |shape| send_s(shape, SIZE, 64, super::LINK) / (SIZE as f64 / super::LINK.bytes_per_s);
        assert!(times(Shape::Wide) > 15.0 && times(Shape::Chain) < 2.0);
        assert_eq!([16, 17, 272, 273].map(|n| Shape::Wide.depth(n)), [1, 2, 2, 3]);
    }

    #[test]
    fn depths() {
        assert_eq!([1, 2, 3, 4, 64, 1023].map(|n| Shape::Binary.depth(n)), [1, 2, 2, 3, 7, 10]);
        assert_eq!((Shape::Chain.depth(64), Shape::DoubleTree.depth(64), Shape::Chain.depth(0)), (64, 14, 1));
    }
}
