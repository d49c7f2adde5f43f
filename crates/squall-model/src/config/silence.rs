//! Silence of nodes: how often the controller asks all nodes whether they are there, and which timeouts a cluster may have.

use super::{Config, NodeConfig, RoutePolicy};
use crate::hostlist;
use crate::limits::{HEARTBEAT_S, NODE_FENCE_MIN_S, NODE_TIMEOUT_ANY_S, NODE_TIMEOUT_PER_LEVEL_S};
use crate::time::Span;

/// Beats that a node may miss within `node_timeout_s`: the third one still comes in time.
const BEATS: u64 = 3;

impl Config {
    /// Returns the time between two of the controller's queries to all nodes, called beats: a third of `node_timeout_s`, at
    /// most 10 s. So a node is not down unless it has left two beats unanswered.
    pub fn beat(&self) -> Span {
        Span(Span::from_secs(self.node_timeout_s).0 / BEATS).min(Span::from_secs(HEARTBEAT_S))
    }

    /// Returns the least `node_timeout_s` of a tree of so many nodes, seconds: 3 for each of its levels, at most 30.
    ///
    /// A node leaves a stopped relay after half the timeout, for the controller. Its last answer may be a third of the
    /// timeout old by then. The rest, a sixth, is for the new connection, and for the way down and up again. With 16 children a node these are 6 s for 64 nodes (two levels), 9 s for 1,024 (three) and 12 s
    /// for 10,080 (four). A beat costs the controller two frames for each of its own children, at most 16, whatever the
    /// number of nodes, and about half a microsecond for each node.
    pub fn node_timeout_min_s(&self, nodes: usize) -> u64 {
        // A tree along the switches has two parts, each with a last level that may not be full.
        let more = if self.route_plugin == RoutePolicy::Topology { 2 } else { 0 };
        let levels = levels(nodes, (self.tree_width as usize).max(2)) + more;
        (levels * NODE_TIMEOUT_PER_LEVEL_S).min(NODE_TIMEOUT_ANY_S)
    }

    /// Returns the least term of a node fence, seconds. `several`: there are several controllers. It is more than three beats,
    /// so that two answers may be lost, and time enough to start the controller again, or for another one to take over.
    pub fn node_fence_min_s(&self, several: bool) -> u64 {
        let least = if several { NODE_FENCE_MIN_S.1 } else { NODE_FENCE_MIN_S.0 };
        least.max(self.beat().0 * BEATS / 1_000_000 + 1)
    }

    /// Checks the timeouts of silent nodes. The error is a text for users.
    pub(super) fn check_silence(&self) -> Result<(), String> {
        let names = |entry: &NodeConfig| hostlist::expand(&entry.name).map_or(0, |names| names.len());
        let least = self.node_timeout_min_s(self.nodes.iter().map(names).sum());
        if self.node_timeout_s < least {
            return Err(format!(
                "node_timeout_s = {}: use {least} or more, as less takes down healthy nodes: in a cluster of this size a node \
                 behind a relay that has stopped is heard again after up to {least} s",
                self.node_timeout_s,
            ));
        }
        if self.node_lost_s < self.node_timeout_s {
            return Err(format!(
                "node_lost_s = {}: a node is lost after it is down, use node_timeout_s ({}) or more",
                self.node_lost_s, self.node_timeout_s
            ));
        }
        let least = self.node_fence_min_s(!self.controllers.0.is_empty());
        let of_partitions = self.partitions.iter().map(|partition| (partition.name.as_str(), partition.node_fence_s));
        let all = of_partitions.chain([("", self.node_fence_s)]);
        match all.filter_map(|(name, fence_s)| Some((name, fence_s?))).find(|(_, fence_s)| *fence_s < least) {
            None => Ok(()),
            Some((name, fence_s)) => {
                let place = if name.is_empty() { String::new() } else { format!("partition {name}: ") };
                Err(format!("{place}node_fence_s = {fence_s}: {}", too_short(least)))
            }
        }
    }
}

/// Returns why the term of a node fence is too short, with the least one, as a text for users.
pub fn too_short(least: u64) -> String {
    format!(
        "use {least} or more seconds, as less ends healthy jobs when the controller is started again or two answers are lost"
    )
}

/// Returns the number of levels of a tree of so many nodes, each with up to `width` children; at least 1.
fn levels(nodes: usize, width: usize) -> u64 {
    let (mut levels, mut level, mut all) = (1, width, width);
    while all < nodes {
        level = level.saturating_mul(width);
        all = all.saturating_add(level);
        levels += 1;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::{Config, levels};
    use crate::time::Span;

    fn of(nodes: usize, timeout_s: u64) -> Result<Config, String> {
        Config::from_toml(&format!("node_timeout_s = {timeout_s}\n[[nodes]]\nname = \"n[1-{nodes}]\"\ncpus = 1\n"))
    }

    #[test]
    fn the_least_timeout_grows_with_the_cluster() {
        for (nodes, least) in [(1, 3), (16, 3), (64, 6), (1024, 9), (10_080, 12)] {
            let text = of(nodes, least - 1).expect_err("it is too short");
            let begin =
                format!("node_timeout_s = {}: use {least} or more, as less takes down healthy nodes", least - 1);
            assert!(text.starts_with(&begin), "{text}");
            let config = of(nodes, least).expect("it is long enough");
            assert_eq!(config.beat(), Span::from_secs(least / 3));
        }
        assert_eq!((levels(62, 2), levels(63, 2), levels(100, 2)), (5, 6, 6));
    }

    #[test]
    fn a_fence_is_longer_than_three_beats_and_than_a_restart() {
        let read = |text: &str| Config::from_toml(text);
        let least = |timeout_s, several| of(4, timeout_s).expect("it is long enough").node_fence_min_s(several);
        assert_eq!([least(60, false), least(6, false), least(6, true), least(15, true)], [31, 30, 10, 16]);
        assert_eq!(read("node_fence_s = 31").map(|config| config.node_fence_s), Ok(Some(31)));
        let short = read("node_fence_s = 30").expect_err("it is three beats");
        assert!(short.starts_with("node_fence_s = 30: use 31 or more seconds, as less ends healthy jobs"), "{short}");
        let short = read("[[partitions]]\nname = \"long\"\nnode_fence_s = 5\n").expect_err("it is too short");
        assert!(short.starts_with("partition long: node_fence_s = 5: use 31 or more"), "{short}");
    }

    #[test]
    fn the_beat_is_a_third_of_the_timeout_and_at_most_10_s() {
        let beat = |timeout_s| of(4, timeout_s).expect("it is long enough").beat();
        assert_eq!([beat(4), beat(30), beat(300)], [Span(1_333_333), Span::from_secs(10), Span::from_secs(10)]);
    }
}
