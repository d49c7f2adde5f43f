//! Checks of nodes that were removed: no job starts there before they are created again.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::id::{Attempt, JobId};

use super::Judge;

/// What the judge knows of removed nodes.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Nodes of which the removal was acknowledged, and the creation not requested since.
    left: BTreeSet<usize>,
    /// Leased jobs: a node may have begun one before it was recalled.
    leased: BTreeSet<(JobId, Attempt)>,
    /// Names of the nodes in the configuration in force.
    configured: BTreeSet<String>,
}

impl Judge {
    /// Records that the removal of a node was acknowledged.
    pub(crate) fn member_leaves(&mut self, node: usize) {
        self.members.left.insert(node);
    }

    /// Records that the creation of a node was requested.
    pub(crate) fn member_returns(&mut self, node: usize) {
        self.members.left.remove(&node);
        self.is_new(node);
    }

    /// Returns whether the configuration in force names a node.
    pub(crate) fn is_configured(&self, node: usize) -> bool {
        self.members.configured.contains(&self.names[node])
    }

    /// Returns whether an attempt of a job was leased to its node.
    pub(super) fn was_leased(&self, id: JobId, attempt: Attempt) -> bool {
        self.members.leased.contains(&(id, attempt))
    }

    fn note_config(&mut self, config: &Config) {
        let names = config.nodes.iter().flat_map(|entry| hostlist::expand(&entry.name).unwrap_or_default());
        self.members.configured = names.collect();
        self.note_weights(config);
    }

    /// Checks an event that became durable.
    pub(crate) fn check_members(&mut self, event: &Event) {
        match event {
            Event::Configured { config } => self.note_config(config),
            Event::JobLeased { id, attempt, .. } => drop(self.members.leased.insert((*id, *attempt))),
            Event::JobStarted { id, attempt, alloc, .. } => {
                let here = |node| self.host(node).filter(|host| self.members.left.contains(host));
                let there = alloc.nodes().iter().find_map(here);
                if let Some(host) = there.filter(|_| !self.was_leased(*id, *attempt)) {
                    let text = format!("job {id} on {}", self.names[host]);
                    self.violate("no job starts on a removed node", text);
                }
            }
            _ => {}
        }
    }
}
