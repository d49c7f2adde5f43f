//! Tests with ten thousand ranks on a thousand nodes: fences with slow messages, broken connections and dying nodes.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::set::IndexSet;
use squall_model::step::{Distribution, Layout};
use squall_model::time::{Span, Time};
use squall_model::wire::peer::{Fault, PeerMessage, What};

use super::exchange::{Exchange, ExchangeAct, ExchangeInput};
use super::ring::{RING_BYTES_EACH, Shape};
use crate::machine::Machine;

/// Data of each node, in bytes, that is enough to go round a ring.
const MUCH: usize = RING_BYTES_EACH + 5000;

const EACH: u32 = 10;
const PATIENCE: Span = Span::from_secs(30);

/// A message or other event under way. `hops`: number of messages in the longest chain that led to it.
enum Parcel {
    Message { from: u32, message: PeerMessage, hops: u32 },
    Lost { place: u32 },
    Tick,
}

/// Nodes of a step, and what is under way between them, by time of arrival.
struct Wide {
    nodes: Vec<Exchange>,
    dead: BTreeSet<u32>,
    /// Connections that have broken, each as the numbers of its two nodes.
    cut: BTreeSet<(u32, u32)>,
    due: BTreeMap<(Time, u64), (u32, Parcel)>,
    /// Arrival time of the last message from one node to another; no later message arrives before it.
    last: BTreeMap<(u32, u32), Time>,
    /// By node: number of messages in the longest chain that has reached it.
    hops: Vec<u32>,
    joined: Vec<Vec<(Time, Result<usize, Fault>)>>,
    now: Time,
    seed: u64,
    sent: u64,
}

impl Wide {
    fn new(nodes: u32, shape: Shape, seed: u64) -> Self {
        let layout = Layout {
            nodes: (0..nodes).map(|n| format!("n{n}")).collect(),
            tasks: vec![EACH; nodes as usize].into(),
            distribution: Distribution::Block,
            cpus_per_task: 1,
            ports: None,
        };
        Self {
            nodes: (0..nodes).map(|n| Exchange::new(n, layout.clone(), PATIENCE, shape)).collect(),
            dead: BTreeSet::new(),
            cut: BTreeSet::new(),
            due: BTreeMap::new(),
            last: BTreeMap::new(),
            hops: vec![0; nodes as usize],
            joined: vec![Vec::new(); nodes as usize],
            now: Time::from_secs(1000),
            seed,
            sent: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn later(&mut self, at: Time, node: u32, parcel: Parcel) {
        self.sent += 1;
        self.due.insert((at, self.sent), (node, parcel));
    }

    fn tell(&mut self, node: u32, input: ExchangeInput) {
        let mut acts = Vec::new();
        self.nodes[node as usize].step(self.now, input, &mut acts);
        for act in acts {
            match act {
                ExchangeAct::Send { place, message } => {
                    let delay = 20 + self.random(2000);
                    if self.dead.contains(&place) || self.cut.contains(&(node.min(place), node.max(place))) {
                        self.later(self.now + Span(delay), node, Parcel::Lost { place });
                        continue;
                    }
                    let last = self.last.entry((node, place)).or_default();
                    *last = (*last + Span(1)).max(self.now + Span(delay));
                    let (at, hops) = (*last, self.hops[node as usize] + 1);
                    self.later(at, place, Parcel::Message { from: node, message, hops });
                }
                ExchangeAct::Joined { result, .. } => {
                    let result = result.map(|(data, _)| data.len());
                    self.joined[node as usize].push((self.now, result));
                }
                ExchangeAct::Answer { .. } | ExchangeAct::Found { .. } | ExchangeAct::Serve { .. } => {}
            }
        }
        if let Some(at) = self.nodes[node as usize].deadline() {
            self.later(at, node, Parcel::Tick);
        }
    }

    fn join(&mut self, node: u32, bytes: usize) {
        let ranks = IndexSet::range(0, self.nodes.len() as u32 * EACH - 1);
        self.tell(node, ExchangeInput::Join { ticket: 1, what: What::Fence, ranks, data: vec![node as u8; bytes] });
    }

    /// Runs until nothing is under way, or until the given time.
    fn run(&mut self, until: Option<Time>) {
        while self.step(until) {}
        self.now = until.unwrap_or(self.now);
    }

    /// Delivers what arrives next. Returns false if nothing arrives until the given time.
    fn step(&mut self, until: Option<Time>) -> bool {
        let Some(entry) = self.due.first_entry() else { return false };
        let (at, _) = *entry.key();
        if until.is_some_and(|until| at > until) {
            return false;
        }
        let (node, parcel) = entry.remove();
        self.now = at;
        if self.dead.contains(&node) {
            return true;
        }
        match parcel {
            Parcel::Message { from, .. } if self.cut.contains(&(node.min(from), node.max(from))) => {}
            Parcel::Message { from, message, hops } => {
                let most = &mut self.hops[node as usize];
                *most = hops.max(*most);
                self.tell(node, ExchangeInput::Peer { place: from, message });
            }
            Parcel::Lost { place } => self.tell(node, ExchangeInput::Lost { place }),
            Parcel::Tick if self.nodes[node as usize].deadline().is_some_and(|due| due <= at) => {
                self.tell(node, ExchangeInput::Tick);
            }
            Parcel::Tick => {}
        }
        true
    }

    /// Ends a node that is done: its messages arrive, and then its connections end.
    fn leave(&mut self, node: u32) {
        self.dead.insert(node);
        for peer in (0..self.nodes.len() as u32).filter(|&peer| peer != node) {
            let last = self.last.get(&(node, peer)).copied();
            if last.is_some() || self.last.contains_key(&(peer, node)) {
                let at = last.unwrap_or_default().max(self.now) + Span(1);
                self.later(at, peer, Parcel::Lost { place: node });
            }
        }
    }

    /// Kills a node: all its connections end, each after a random delay.
    fn kill(&mut self, node: u32) {
        self.dead.insert(node);
        let peers: BTreeSet<u32> =
            self.last.keys().filter(|(a, b)| *a == node || *b == node).map(|(a, b)| a ^ b ^ node).collect();
        for peer in peers {
            let delay = self.random(5000);
            self.later(self.now + Span(delay), peer, Parcel::Lost { place: node });
        }
    }

    /// Breaks a connection; each end notices after a random delay.
    fn cut(&mut self, a: u32, b: u32) {
        self.cut.insert((a.min(b), a.max(b)));
        for (node, place) in [(a, b), (b, a)] {
            let delay = self.random(5000);
            self.later(self.now + Span(delay), node, Parcel::Lost { place });
        }
    }
}

/// Runs a fence of all ranks; returns the longest chain of messages that it took.
fn fence(nodes: u32, shape: Shape, bytes: usize) -> (u32, Wide) {
    let mut wide = Wide::new(nodes, shape, u64::from(nodes) + 1);
    for node in 0..nodes {
        wide.join(node, bytes);
    }
    wide.run(None);
    let whole = bytes * nodes as usize;
    assert!(wide.joined.iter().all(|joined| joined.len() == 1 && joined[0].1 == Ok(whole)), "{shape:?} {nodes}");
    (wide.hops.iter().copied().max().unwrap_or_default(), wide)
}

#[test]
fn hops_and_bytes_of_tree_and_ring() {
    let hops: Vec<u32> = [1, 16, 17, 273, 1000].iter().map(|&n| fence(n, Shape::Tree, 100).0).collect();
    assert_eq!(hops, [0, 2, 2, 4, 6], "twice the logarithm to the base of sixteen");
    assert_eq!(fence(1000, Shape::Mixed, 100).0, 6, "little data");
    assert_eq!(fence(40, Shape::Ring, 0).0, 39);
    let (hops, wide) = fence(40, Shape::Mixed, MUCH);
    // The last message to a node may come by tree or by ring, depending on which is slower.
    assert!((39..=4 + 39 + 4).contains(&hops), "much data: sizes by the tree, data by the ring: {hops}");
    let most = |wide: &Wide| wide.nodes.iter().map(|node| node.stats().sent_bytes).max();
    let ring = most(&wide).unwrap_or_default();
    let once = 39 * MUCH as u64;
    let small = 40 * RING_BYTES_EACH as u64;
    assert!((once..once + small).contains(&ring), "each node sends what there is once: {ring}");
    let (_, wide) = fence(40, Shape::Tree, 5000);
    assert_eq!(most(&wide), Some(17 * 5000 + 16 * 40 * 5000), "all to each of sixteen children, and theirs up");
}

#[test]
fn one_late_rank_holds_all_whatever_the_shape() {
    for (nodes, shape, bytes) in
        [(1000, Shape::Tree, 50), (1000, Shape::Mixed, 50), (60, Shape::Ring, 50), (30, Shape::Mixed, MUCH)]
    {
        let mut wide = Wide::new(nodes, shape, 5);
        let late = wide.random(u64::from(nodes)) as u32;
        for node in (0..nodes).filter(|&node| node != late) {
            wide.join(node, bytes);
        }
        let until = wide.now + Span::from_millis(200);
        wide.run(Some(until));
        assert!(wide.joined.iter().all(Vec::is_empty), "nobody leaves before the last has come");
        wide.join(late, bytes);
        wide.run(None);
        assert!(wide.joined.iter().all(|joined| joined.len() == 1 && joined[0].1.is_ok() && joined[0].0 >= until));
    }
}

#[test]
fn who_is_done_may_go_before_the_others_have_heard() {
    for (nodes, shape, bytes) in [(100, Shape::Tree, 20), (40, Shape::Ring, 20), (30, Shape::Mixed, MUCH)] {
        let mut wide = Wide::new(nodes, shape, 9);
        for node in 0..nodes {
            wide.join(node, bytes);
        }
        while wide.step(None) {
            let done = (0..nodes).find(|&n| !wide.dead.contains(&n) && !wide.joined[n as usize].is_empty());
            if let Some(done) = done {
                wide.leave(done);
            }
        }
        assert!(wide.joined.iter().all(|joined| matches!(joined[..], [(_, Ok(_))])), "{shape:?}");
    }
}

#[test]
fn deaths_and_broken_connections_end_it_everywhere_within_the_time() {
    for (nodes, shape, bytes) in [(1000, Shape::Tree, 20), (60, Shape::Ring, 20), (30, Shape::Mixed, MUCH)] {
        for seed in 1..4 {
            let mut wide = Wide::new(nodes, shape, seed * 77);
            // One node never joins, so the gathering can't succeed.
            let late = wide.random(u64::from(nodes)) as u32;
            for node in (0..nodes).filter(|&node| node != late) {
                let until = wide.now + Span(wide.random(40));
                wide.run(Some(until));
                wide.join(node, bytes);
            }
            let start = wide.now;
            match seed {
                1 => wide.kill(late),
                2 => {
                    let (a, b) = (wide.random(u64::from(nodes)) as u32, wide.random(u64::from(nodes)) as u32);
                    wide.kill(a);
                    wide.cut(b, (b + 1) % nodes);
                }
                _ => wide.kill(0),
            }
            wide.run(None);
            for (node, joined) in wide.joined.iter().enumerate() {
                if node as u32 == late || wide.dead.contains(&(node as u32)) {
                    continue;
                }
                let [(at, Err(_))] = &joined[..] else { panic!("{shape:?} {seed} node {node}: {joined:?}") };
                assert!(*at <= start + PATIENCE + Span::from_secs(1), "{shape:?} {seed} node {node}");
            }
            wide.join(late, bytes);
            assert!(wide.dead.contains(&late) || matches!(wide.joined[late as usize][..], [(_, Err(_))]));
        }
    }
}
