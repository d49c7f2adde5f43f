//! Tests of files sent to the nodes of a tree: all nodes get a file or none does. A byte is sent once to each node,
//! and again only where a node has died.

use std::collections::VecDeque;

use squall_model::job::Digest;
use squall_model::limits::CHUNK_WINDOW_BYTES;
use squall_model::wire::broadcast::{Broadcast, BroadcastTo};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::Bytes;

use super::grove::{Grove, name};
use crate::control::CallerId;

const CALLER: u64 = 77;

/// A client that sends a file in chunks of a size that it chooses.
struct Sender {
    bytes: Vec<u8>,
    piece: usize,
    wanted: VecDeque<(usize, usize)>,
    pieces: usize,
    /// Result of the transfer: number of nodes, number of those that lacked the file, and failures. None: it is under
    /// way.
    end: Option<(u32, u32, Option<Vec<String>>)>,
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 7 % 251) as u8).collect()
}

impl Sender {
    fn begin(grove: &mut Grove, bytes: &[u8], piece: usize, nodes: &str) -> Self {
        let (digest, size) = (Digest::of(bytes), bytes.len() as u64);
        Self::claiming(grove, bytes, piece, nodes, digest, size)
    }

    fn claiming(grove: &mut Grove, bytes: &[u8], piece: usize, nodes: &str, digest: Digest, size: u64) -> Self {
        let to = BroadcastTo::Nodes(nodes.to_owned());
        let known_as = Some(Digest::of(b"a file"));
        let wanted = Broadcast { to, digest, size, shared: false, place: None, time_ms: None, known_as };
        let mut sender = Self { bytes: bytes.to_vec(), piece, wanted: VecDeque::new(), pieces: 0, end: None };
        grove.ask(CALLER, Request::Broadcast(Box::new(wanted)));
        sender.hear(grove);
        sender
    }

    fn hear(&mut self, grove: &mut Grove) {
        grove.answers.retain(|(caller, answer)| {
            match answer {
                _ if *caller != CallerId(CALLER) => return true,
                Answer::Want { from, through, .. } => self.wanted.push_back((*from as usize, *through as usize)),
                Answer::Broadcast { nodes, sent, failed } => {
                    assert!(self.end.is_none(), "told twice");
                    self.end = Some((*nodes, *sent, failed.as_ref().map(|(names, _)| names.clone())));
                }
                other => panic!("{other:?}"),
            }
            false
        });
    }

    /// Sends one chunk if the controller asks for one; returns whether it did.
    fn send(&mut self, grove: &mut Grove) -> bool {
        let Some((from, through)) = self.wanted.front_mut() else { return false };
        let end = (*from + self.piece).min(*through);
        let (at, bytes) = (*from as u64, Bytes(self.bytes[*from..end].into()));
        *from = end;
        if end == *through {
            self.wanted.pop_front();
        }
        self.pieces += 1;
        grove.ask(CALLER, Request::Chunk { at, bytes });
        self.hear(grove);
        true
    }

    fn send_all(&mut self, grove: &mut Grove) {
        while self.send(grove) {}
    }

    /// Sends until the transfer has ended or `seconds` have passed.
    fn finish(&mut self, grove: &mut Grove, seconds: u64) {
        for _ in 0..seconds {
            self.send_all(grove);
            if self.end.is_some() {
                return;
            }
            grove.pass_s(1);
            self.hear(grove);
        }
    }
}

/// Returns how many files each node has committed.
fn commits(grove: &Grove) -> Vec<u64> {
    grove.nodes.iter().map(|node| node.disk.files.commits()).collect()
}

fn came(grove: &Grove, node: usize) -> u64 {
    grove.nodes[node].disk.files.bytes()
}

#[test]
fn all_nodes_get_it_once_and_what_is_there_is_never_sent() {
    let mut grove = Grove::new(23, 3);
    let bytes = content(10_000);
    let mut some = Sender::begin(&mut grove, &bytes, 900, "n[3-7]");
    some.finish(&mut grove, 1);
    assert_eq!(some.end, Some((5, 5, None)));
    let mut all = Sender::begin(&mut grove, &bytes, 900, "");
    all.finish(&mut grove, 1);
    assert_eq!(all.end, Some((23, 18, None)));
    assert_eq!(commits(&grove), [1; 23]);
    assert!((0..23).all(|node| came(&grove, node) == 10_000));
    let again = Sender::begin(&mut grove, &bytes, 900, "");
    assert_eq!((again.pieces, again.end), (0, Some((23, 0, None))), "told at once");
    let known = [b"a file", b"others"].map(|name| Request::Recall { known_as: Digest::of(name) });
    let known = known.map(|recall| {
        grove.ask(CALLER, recall);
        grove.answers.pop().map(|(_, answer)| answer)
    });
    assert_eq!(known, [Some(Digest::of(&bytes)), None].map(|digest| Some(Answer::Recalled(digest))));
    let mut empty = Sender::begin(&mut grove, &[], 1, "");
    empty.finish(&mut grove, 1);
    assert_eq!(empty.end, Some((23, 0, None)), "there is nothing to send");
}

#[test]
fn what_was_lost_with_an_interior_node_is_sent_again() {
    for when in [1, 5, 11, 12] {
        let mut grove = Grove::new(23, 3);
        let bytes = content(12_000);
        let mut sender = Sender::begin(&mut grove, &bytes, 1000, "");
        for _ in 0..when {
            sender.send(&mut grove);
        }
        let interior = (0..23).find(|&node| grove.above(22).contains(&node)).unwrap();
        grove.kill(interior);
        sender.send_all(&mut grove);
        assert!(commits(&grove).iter().all(|&count| count == 0) || when == 12, "not before all have it");
        grove.boot(interior);
        sender.finish(&mut grove, 60);
        assert_eq!(sender.end.as_ref().map(|end| &end.2), Some(&None), "{when}");
        assert_eq!(commits(&grove), [1; 23], "{when}");
    }
}

#[test]
fn if_one_node_can_not_have_it_none_has() {
    let mut grove = Grove::new(13, 3);
    let bytes = content(5000);
    let mut sender = Sender::begin(&mut grove, &bytes, 1000, "");
    sender.send(&mut grove);
    grove.kill(12);
    sender.finish(&mut grove, 300);
    assert_eq!(sender.end, Some((13, 13, Some(vec![name(12)]))));
    assert_eq!(commits(&grove), [0; 13]);
    // The file is not written either if its bytes do not match the announced digest.
    grove.boot(12);
    grove.pass_s(1);
    let mut wrong = Sender::claiming(&mut grove, &bytes, 1000, "", Digest::of(b"other"), 5000);
    wrong.finish(&mut grove, 300);
    assert!(wrong.end.is_some_and(|end| end.2.is_some()));
    assert_eq!(commits(&grove), [0; 13]);
    // A failed transfer leaves nothing that is in the way of the next.
    let mut right = Sender::begin(&mut grove, &bytes, 1000, "");
    right.finish(&mut grove, 10);
    assert_eq!(right.end, Some((13, 13, None)));
    assert_eq!(commits(&grove), [1; 13]);
}

#[test]
fn a_slow_node_holds_up_nobody_else() {
    let mut grove = Grove::new(4, 2);
    let bytes = content(CHUNK_WINDOW_BYTES as usize * 2 + 12_345);
    let mut sender = Sender::begin(&mut grove, &bytes, 256 << 10, "");
    let slow = (0..4).find(|&node| (0..4).all(|other| !grove.above(other).contains(&node))).unwrap();
    sender.send(&mut grove);
    grove.stall(Some(slow));
    sender.send_all(&mut grove);
    let under_way = sender.pieces * (256 << 10);
    assert!(under_way as u64 <= CHUNK_WINDOW_BYTES, "no more than a window waits for the slow one");
    // The node hangs, but for less than the time after which it counts as dead.
    for _ in 0..12 {
        grove.pass_s(1);
        sender.hear(&mut grove);
        sender.send_all(&mut grove);
    }
    for node in (0..4).filter(|&node| node != slow) {
        assert_eq!(came(&grove, node), bytes.len() as u64, "{node}");
    }
    assert_eq!(sender.end, None, "all or none");
    grove.wake(Some(slow));
    sender.finish(&mut grove, 60);
    assert_eq!(sender.end.as_ref().map(|end| &end.2), Some(&None));
    assert_eq!(commits(&grove), [1; 4]);
    assert!((0..4).filter(|&node| node != slow).all(|node| came(&grove, node) == bytes.len() as u64), "not again");
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let mut grove = Grove::new(7, 2);
    let bytes = content(3000);
    let mut sender = Sender::begin(&mut grove, &bytes, 1000, "");
    sender.send(&mut grove);
    grove.hang_up(CALLER);
    let mut other = Sender::begin(&mut grove, &bytes, 1000, "n[0-3]");
    other.finish(&mut grove, 10);
    assert_eq!(other.end, Some((4, 4, None)));
    assert_eq!(commits(&grove), [1, 1, 1, 1, 0, 0, 0]);
}

#[test]
fn a_long_file_has_a_narrow_tree_of_its_own_and_a_short_one_goes_wide() {
    for (nodes, width, times) in [(17, 16, 1), (64, 16, 1), (200, 4, 2)] {
        let mut grove = Grove::new(nodes, width);
        let bytes = content(CHUNK_WINDOW_BYTES as usize + 77);
        let mut sender = Sender::begin(&mut grove, &bytes, 128 << 10, "");
        sender.finish(&mut grove, 10);
        assert_eq!(sender.end, Some((nodes as u32, nodes as u32, None)));
        assert_eq!(commits(&grove), vec![1; nodes]);
        let most = grove.nodes.iter().map(|node| node.passed).max().unwrap();
        assert_eq!(most, bytes.len() as u64 * times, "no node sends it more often");
        assert!((0..nodes).all(|node| came(&grove, node) == bytes.len() as u64), "and gets it once");
        for node in &mut grove.nodes {
            node.passed = 0;
        }
        let mut short = Sender::begin(&mut grove, &bytes[..5000], 5000, "");
        short.finish(&mut grove, 10);
        let most = grove.nodes.iter().map(|node| node.passed).max().unwrap();
        assert!(most > 5000 || nodes < 18, "in few hops");
    }
}

#[test]
fn what_is_lost_beside_the_tree_comes_down_the_tree() {
    let mut grove = Grove::new(9, 3);
    let bytes = content(CHUNK_WINDOW_BYTES as usize * 2);
    let mut sender = Sender::begin(&mut grove, &bytes, 128 << 10, "");
    sender.send(&mut grove);
    // The nodes behind it on the chain get nothing from now on.
    grove.kill(4);
    sender.send_all(&mut grove);
    assert!(came(&grove, 8) < came(&grove, 3));
    grove.boot(4);
    sender.finish(&mut grove, 60);
    assert_eq!(sender.end.as_ref().map(|end| &end.2), Some(&None));
    assert_eq!(commits(&grove), [1; 9]);
}

/// Sends a file by multicast to `nodes` nodes; returns the tree, and the bytes that each node passed on. `arrives`:
/// whether a chunk arrives at a node, by node and offset.
fn by_multicast(nodes: usize, size: usize, arrives: fn(usize, u64) -> bool) -> (Grove, Vec<u64>) {
    let mut grove = Grove::new(nodes, 3);
    grove.open_air(arrives);
    let bytes = content(size);
    let mut sender = Sender::begin(&mut grove, &bytes, 64 << 10, "");
    sender.finish(&mut grove, 60);
    assert_eq!(sender.end, Some((nodes as u32, nodes as u32, None)));
    assert_eq!(commits(&grove), vec![1; nodes]);
    assert!((0..nodes).all(|node| came(&grove, node) == size as u64), "each byte is taken once");
    let passed = grove.nodes.iter().map(|node| node.passed).collect();
    (grove, passed)
}

#[test]
fn by_multicast_each_byte_leaves_once_and_no_node_passes_any_on() {
    let size = 3 * CHUNK_WINDOW_BYTES as usize + 12_345;
    let (grove, passed) = by_multicast(20, size, |_, _| true);
    assert_eq!(grove.cast, size as u64);
    assert_eq!(passed, [0; 20]);
}

#[test]
fn what_some_lack_is_sent_again_to_all_and_what_they_still_lack_goes_down_the_tree() {
    let size = 2 * CHUNK_WINDOW_BYTES as usize;
    // Every tenth chunk is lost at one node each, for good.
    let (grove, passed) = by_multicast(20, size, |node, at| (at >> 16) % 10 != 0 || (at >> 16) % 20 != node as u64);
    assert!(grove.cast > size as u64 && grove.cast < 2 * size as u64, "{}", grove.cast);
    let repaired: u64 = passed.iter().sum();
    assert!(repaired > 0 && repaired < size as u64, "{repaired}: only what was lost, to those who lost it");
}

#[test]
fn who_hears_nothing_gets_it_down_the_tree_and_the_others_go_on_by_multicast() {
    let size = 3 * CHUNK_WINDOW_BYTES as usize;
    let (mut grove, passed) = by_multicast(20, size, |node, _| node != 19);
    assert_eq!(grove.cast, size as u64, "it is no use to send it again");
    let to_the_deaf: u64 = passed.iter().sum();
    let above = grove.above(19).len() as u64;
    assert_eq!(to_the_deaf, size as u64 * above);
    // The controller remembers that node 19 receives no multicast.
    let mut again = Sender::begin(&mut grove, &content(size + 1), 64 << 10, "");
    let before = grove.now;
    again.finish(&mut grove, 60);
    assert_eq!(again.end, Some((20, 20, None)));
    assert_eq!(grove.now, before, "nobody waits for who does not hear");
}

#[test]
fn where_multicast_is_filtered_a_file_takes_the_way_that_it_takes_without() {
    let size = 3 * CHUNK_WINDOW_BYTES as usize;
    let (grove, passed) = by_multicast(20, size, |_, _| false);
    assert!(grove.cast <= CHUNK_WINDOW_BYTES, "one window is enough to see that");
    let most = passed.into_iter().max().unwrap_or_default();
    assert!(most <= 2 * size as u64 + 3 * CHUNK_WINDOW_BYTES, "{most}: by a chain or a binary tree");
}

#[test]
fn bytes_by_multicast_that_are_not_what_was_said_end_as_a_failure() {
    let mut grove = Grove::new(13, 3);
    grove.open_air(|_, _| true);
    let bytes = content(CHUNK_WINDOW_BYTES as usize + 77);
    let mut wrong = Sender::claiming(&mut grove, &bytes, 64 << 10, "", Digest::of(b"other"), bytes.len() as u64);
    wrong.finish(&mut grove, 600);
    assert!(wrong.end.expect("it is told how it ended").2.is_some());
    assert_eq!(commits(&grove), [0; 13]);
}

#[test]
fn pieces_that_come_early_wait_and_those_that_come_twice_are_taken_once() {
    // Of each window all but the first chunk arrives, at all nodes.
    let size = CHUNK_WINDOW_BYTES as usize + 99;
    let (grove, _) = by_multicast(4, size, |_, at| at % (63 << 16) != 0);
    assert!(grove.cast <= size as u64 + 6 * (64 << 10), "{}: only what is lacking is sent again", grove.cast);
}
