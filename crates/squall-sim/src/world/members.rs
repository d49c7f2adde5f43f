//! Nodes that an operator removes while the cluster runs, and creates again. The first removal of a node is a change of
//! the configuration, as the node stands there; later ones are `scontrol delete`.

use squall_model::config::NodeConfig;
use squall_model::hostlist;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Request;

use crate::judge::Violation;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::setup::BEGIN;
use crate::world::client::Wish;
use crate::world::{Happening, World};

/// How long the last jobs of removed nodes may take at the end.
const PATIENCE: Span = Span::from_secs(3 * 3600);
/// Pause after which the daemon of a removed node tries again, as a service does.
const TRIES_AGAIN: Span = Span::from_secs(20);

impl World {
    /// Adds an operator who removes and creates nodes. The randomness is its own, so that other worlds stay as they are.
    pub(crate) fn add_removals(&mut self, seed: u64, until: Time) {
        self.members.seed = Some(Seed::new(seed ^ 0x6d65_6d62));
        self.members.until = until;
        self.after(Span::from_secs(60), Happening::MembersChange);
    }

    /// Removes a node, or creates one that was removed before, and schedules the next change.
    pub(crate) fn members_change(&mut self) {
        let Some(mut seed) = self.members.seed.take() else { return };
        if self.now < self.members.until {
            let gone: Vec<usize> = self.members.removed.iter().copied().collect();
            // A partition may name the first half of the nodes; what it names is not removed.
            let first = self.nodes.len().div_ceil(2) as u64;
            let node = seed.between(first, self.nodes.len() as u64 - 1) as usize;
            match seed.pick(&gone).copied() {
                Some(node) if gone.len() > 1 || seed.chance(500_000) => self.change_member(node, true),
                _ => self.change_member(node, false),
            }
            self.after(Span(seed.between(20_000_000, 200_000_000)), Happening::MembersChange);
        }
        self.members.seed = Some(seed);
    }

    /// Requests the removal or creation of a node, unless one of these is under way.
    pub(crate) fn change_member(&mut self, node: usize, create: bool) {
        if self.members.removed.contains(&node) != create || !self.members.busy.insert(node) {
            return;
        }
        if create {
            self.members.removed.remove(&node);
            self.members.revoked.remove(&node);
            self.judge.member_returns(node);
        } else {
            self.members.removed.insert(node);
            self.members.ever.insert(node);
        }
        self.wish(Wish::Member(node, create));
    }

    /// Returns the request by which a node is removed or created.
    pub(crate) fn member_request(&mut self, node: usize, create: bool) -> Request {
        let name = self.nodes[node].name.clone();
        if create {
            return Request::CreateNodes(Box::new(NodeConfig { name, ..NodeConfig::default() }));
        }
        let entry = &mut self.setup.config.nodes[0];
        let mut named = hostlist::expand(&entry.name).unwrap_or_default();
        if !named.contains(&name) && !self.judge.is_configured(node) {
            return Request::DeleteNodes(name);
        }
        named.retain(|other| *other != name);
        entry.name = hostlist::compress(&named);
        Request::Reconfigure { config: Some(Box::new(self.setup.config.clone())) }
    }

    /// Records the answer to such a request.
    pub(crate) fn member_answered(&mut self, node: usize, create: bool) {
        self.members.busy.remove(&node);
        if !create {
            self.judge.member_leaves(node);
            if self.is_planted(Mutation::RevokedAtOnce) {
                let name = self.nodes[node].name.clone();
                self.revoke(vec![name]);
            }
        }
    }

    /// Revokes the keys of nodes that are gone, as the controller's host does.
    pub(crate) fn revoke(&mut self, gone: Vec<String>) {
        for name in gone {
            let Some(node) = self.nodes.iter().position(|node| node.name == name) else { continue };
            if self.is_planted(Mutation::KeyKept) || !self.members.removed.contains(&node) {
                continue;
            }
            let state = self.controllers[self.leader()].state();
            let jobs = state.and_then(|state| Some(state.node(state.node_id(&name)?)?.jobs.len()));
            if let Some(jobs) = jobs.filter(|jobs| *jobs > 0) {
                self.judge.violate("a node keeps its key while jobs are there", format!("{jobs} on {name}"));
            }
            self.members.revoked.insert(node);
            if let Some(hop) = self.nodes[node].parent() {
                self.break_hop(hop);
            }
        }
    }

    /// Returns whether a node has no valid key, so that no daemon accepts its connection.
    pub(crate) fn is_revoked(&self, node: usize) -> bool {
        self.members.revoked.contains(&node)
    }

    /// Returns whether a node daemon may end because it is refused. It then tries again, as a service does.
    pub(crate) fn may_be_refused(&mut self, node: usize) -> bool {
        let may = self.members.ever.contains(&node);
        if may {
            self.nodes[node].restart.get_or_insert(TRIES_AGAIN);
        }
        may
    }

    /// Returns the names of the nodes that were not removed.
    pub(crate) fn member_names(&self) -> Vec<String> {
        let members = self.nodes.iter().enumerate().filter(|(at, _)| !self.members.removed.contains(at));
        members.map(|(_, node)| node.name.clone()).collect()
    }

    /// Waits until no job is on removed nodes, checks that these are gone, and creates them again.
    pub(crate) fn end_removals(&mut self) -> Result<(), Box<Violation>> {
        if self.members.ever.is_empty() {
            return Ok(());
        }
        let end = self.now + PATIENCE;
        let busy = |world: &Self, node: usize| {
            let state = world.controllers[world.leader()].state();
            let name = &world.nodes[node].name;
            state.is_none_or(|state| {
                let jobs = state.node_id(name).and_then(|id| state.node(id)).map(|node| node.jobs.len());
                jobs.is_some_and(|jobs| jobs > 0)
            })
        };
        self.members.until = BEGIN;
        while self.now < end
            && (!self.members.busy.is_empty() || self.members.removed.iter().any(|node| busy(self, *node)))
        {
            self.run_until(self.now + Span::from_secs(20))?;
        }
        self.run_until(self.now + Span::from_secs(60))?;
        for node in self.members.removed.clone().into_iter().filter(|node| !busy(self, *node)).collect::<Vec<_>>() {
            let (name, leader) = (self.nodes[node].name.clone(), self.leader());
            let shown = self.controllers[leader].state().and_then(|state| state.node_id(&name)).is_some();
            if shown || self.controllers[leader].is_connected(&name) {
                self.judge.violate("a removed node without jobs is gone", name.clone());
            }
            if !self.is_revoked(node) {
                self.judge.violate("the key of a removed node is revoked", name);
            }
        }
        for node in self.members.removed.clone() {
            self.change_member(node, true);
        }
        self.run_until(self.now + Span::from_secs(60))?;
        for node in self.members.ever.clone() {
            if !self.nodes[node].has_daemon() {
                self.start_node(node, Span::from_secs(1));
            }
        }
        self.run_until(self.now + Span::from_secs(60))
    }
}
