//! Checks of nodes that an operator has drained or set down: no job starts there before they are resumed.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::event::{Event, NodeAdmin};
use squall_model::hostlist;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;

use super::Judge;

/// What the judge knows of drained nodes.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    /// Nodes of which the drain was acknowledged, and nothing else requested since.
    drained: BTreeSet<usize>,
    /// The last request about each node, by number of its call.
    last: BTreeMap<usize, usize>,
    /// Requests that nodes be resumed without an answer yet. They may take effect after a later drain.
    resumes: BTreeSet<(usize, usize)>,
}

impl Judge {
    /// Records that an operator requests the draining, setting down or resumption of nodes. `after`: they are to be resumed by
    /// themselves so much later.
    pub(crate) fn admin_sent(&mut self, call: usize, nodes: &str, admin: NodeAdmin, after: Option<Span>) {
        for node in self.hosts_named(nodes) {
            self.drains.last.insert(node, call);
            self.resume_sent(call, node, admin, after);
            if self.resumes_itself(node) {
                self.drains.drained.remove(&node);
            }
            if admin == NodeAdmin::Resume {
                self.owes_no_check(node);
                self.drains.drained.remove(&node);
                self.drains.resumes.insert((node, call));
            }
        }
    }

    /// Records the answer to such a request. `admin`: the requested state of the nodes. `after`: as in [`Self::admin_sent`].
    pub(crate) fn admin_answered(
        &mut self,
        now: Time,
        call: usize,
        nodes: &str,
        (admin, after): (NodeAdmin, Option<Span>),
        answer: &Answer,
    ) {
        let done = *answer == Answer::Done;
        for node in self.hosts_named(nodes) {
            self.resume_answered(now, call, node, after, answer);
            if self.drains.resumes.remove(&(node, call)) {
                self.owes_no_check(node);
            }
            let resumes = self.is_being_resumed(node);
            if done
                && admin != NodeAdmin::Resume
                && after.is_none()
                && !resumes
                && !self.resumes_itself(node)
                && self.drains.last.get(&node) == Some(&call)
            {
                self.drains.drained.insert(node);
            }
        }
    }

    /// Returns the number of the call with the last request about a node.
    pub(crate) fn last_admin(&self, node: usize) -> Option<usize> {
        self.drains.last.get(&node).copied()
    }

    /// Returns whether a request that the node be resumed has no answer yet.
    pub(super) fn is_being_resumed(&self, node: usize) -> bool {
        self.drains.resumes.range((node, 0)..=(node, usize::MAX)).next().is_some()
    }

    /// Records that a node was created again, and so is not drained.
    pub(super) fn is_new(&mut self, node: usize) {
        self.owes_no_check(node);
        self.drains.drained.remove(&node);
        self.drains.last.remove(&node);
        self.resumes_no_more(node);
    }

    pub(super) fn hosts_named(&self, nodes: &str) -> Vec<usize> {
        let named = hostlist::expand(nodes).unwrap_or_default();
        named.iter().filter_map(|name| self.names.iter().position(|other| other == name)).collect()
    }

    /// Checks an event that became durable.
    pub(crate) fn check_drains(&mut self, event: &Event) {
        let Event::JobStarted { id, attempt, alloc, .. } = event else { return };
        // A node may have begun a leased job before it was recalled.
        if self.was_leased(*id, *attempt) {
            return;
        }
        let here = |node| self.host(node).filter(|host| self.drains.drained.contains(host));
        if let Some(host) = alloc.nodes().iter().find_map(here) {
            let text = format!("job {id} on {}", self.names[host]);
            self.violate("no job starts on a drained node", text);
        }
    }
}
