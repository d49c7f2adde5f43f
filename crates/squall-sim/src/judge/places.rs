//! Checks of nodes that change places: a vacant place of a job is filled once, and the node that lost it ends its programs;
//! spare nodes of a partition get no ordinary jobs; a node gets no job between a fault and a check that it has passed.

use std::collections::{BTreeMap, BTreeSet};

use squall_engine::node::attempt_of;
use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, JobId, NodeId, StepKey};
use squall_model::job::JobAttempt;
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use super::Judge;
use crate::coverage::Phase;

/// Time that the end of programs on a node which lost its place may take beyond KillWait, seconds.
const SLACK_S: u64 = 60;

/// What the judge knows of places, spare nodes and checks after faults.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Whether a program checks nodes after faults.
    checks: bool,
    /// Nodes that owe a check, with the time of their last fault.
    owed: BTreeMap<usize, Time>,
    /// When the check that runs on a node has begun.
    begun: BTreeMap<usize, Time>,
    /// Nodes that were out of service, other than for a check, when an event about that was durable last.
    out: BTreeSet<usize>,
    /// Spare nodes by reservation.
    spares: BTreeMap<String, NodeSet>,
    /// Vacant places, by the node that failed. A node may lose a second place before the first is filled.
    vacant: Vec<(JobAttempt, NodeId)>,
    /// Nodes that an attempt has given back or lost, with the time.
    left: BTreeMap<(JobAttempt, usize), Time>,
}

impl Places {
    /// Returns what is to be checked with this configuration.
    pub(super) fn of(config: &Config) -> Self {
        Self { checks: !config.health.after_fault.is_empty(), ..Self::default() }
    }
}

impl Judge {
    /// Returns the job orders with a job that has resources on a node, without arrays.
    pub(crate) fn orders_on(&self, host: usize) -> Vec<usize> {
        let holds = |nodes: &NodeSet| nodes.iter().any(|node| self.host(node) == Some(host));
        let runs = |phase| matches!(phase, Phase::Starting | Phase::Running | Phase::Unreported);
        let there = self.files.values().filter(|file| file.index.is_none() && runs(file.phase) && holds(&file.left));
        there.map(|file| file.order).collect()
    }

    /// Records that a program begins to check a node after a fault.
    pub(crate) fn check_begins(&mut self, now: Time, node: usize) {
        self.places.begun.insert(node, now);
    }

    /// Records that a node has passed such a check.
    pub(crate) fn check_passed(&mut self, node: usize) {
        let begun = self.places.begun.get(&node).copied().unwrap_or_default();
        if self.places.owed.get(&node).is_some_and(|fault| *fault <= begun) {
            self.places.owed.remove(&node);
        }
    }

    /// Records that a node needs no check: an operator says that it is well, or it is another one.
    pub(super) fn owes_no_check(&mut self, node: usize) {
        self.places.owed.remove(&node);
    }

    /// Records a durable event, and checks it. It is called before the event is counted. `replaces`: the event starts a job
    /// of which a node had failed that is to be replaced.
    pub(super) fn check_places(&mut self, now: Time, event: &Event, replaces: bool) {
        match event {
            Event::NodeFault(fault) if self.places.checks => {
                let Some(host) = self.host(fault.node) else { return };
                if !self.places.out.contains(&host) {
                    self.places.owed.insert(host, now);
                }
            }
            Event::NodesSet { nodes, admin, .. } => {
                for host in nodes.iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
                    if *admin == NodeAdmin::Resume {
                        self.places.out.remove(&host);
                    } else if !self.places.owed.contains_key(&host) {
                        self.places.out.insert(host);
                    }
                }
            }
            Event::ReservationSet { reservation } if reservation.spares_of().is_some() => {
                self.places.spares.insert(reservation.name.clone(), reservation.nodes.clone());
            }
            Event::ReservationGone { name } => _ = self.places.spares.remove(name),
            Event::JobStarted { id, attempt, alloc, .. } if !self.was_leased(*id, *attempt) => {
                self.check_grant(*id, &alloc.nodes());
                let spare = alloc.nodes().iter().find(|node| self.is_spare(*node));
                let goes_on = self.last_checkpoint(*id).is_some();
                if let Some(node) = spare.filter(|_| !replaces && !goes_on) {
                    self.violate("a spare node gets no ordinary job", format!("job {id} on node {}", node.0));
                }
            }
            Event::JobShrunk { id, attempt, alloc, vacant } => self.note_shrunk(now, (*id, *attempt), alloc, *vacant),
            Event::NodeReplaced { id, attempt, lost, node, .. } => {
                let job = JobAttempt { job: *id, attempt: *attempt };
                if let Some(at) = self.places.vacant.iter().position(|place| *place == (job, *lost)) {
                    self.places.vacant.swap_remove(at);
                } else {
                    let text = format!("job {id}: that of node {} by node {}", lost.0, node.0);
                    self.violate("a vacant place is filled once", text);
                }
                self.check_grant(*id, &NodeSet::one(*node));
                let host = self.host(*node);
                self.places.left.retain(|(of, at), _| (*of, Some(*at)) != (job, host));
            }
            // It had been removed: what was found there is that of the node before.
            Event::NodesCreated { node, .. } => {
                self.hosts_named(&node.name).into_iter().for_each(|host| self.owes_no_check(host));
            }
            Event::JobEnding { id, .. } => self.places.vacant.retain(|(job, _)| job.job != *id),
            _ => {}
        }
    }

    fn is_spare(&self, node: NodeId) -> bool {
        self.places.spares.values().any(|spares| spares.contains(node))
    }

    /// Checks that none of the nodes that a job gets owes a check.
    fn check_grant(&mut self, id: JobId, nodes: &NodeSet) {
        let owes = |host: &usize| self.places.owed.contains_key(host) && !self.is_being_resumed(*host);
        if let Some(host) = nodes.iter().filter_map(|node| self.host(node)).find(owes) {
            let text = format!("job {id} on {}", self.names[host]);
            self.violate("a node with a fault gets no job before it has passed its check", text);
        }
    }

    fn note_shrunk(&mut self, now: Time, (id, attempt): (JobId, Attempt), alloc: &Alloc, vacant: Option<NodeId>) {
        let job = JobAttempt { job: id, attempt };
        self.places.vacant.extend(vacant.map(|lost| (job, lost)));
        let kept = alloc.nodes();
        let left = self.files.get(&id).map(|file| file.left.clone()).unwrap_or_default();
        let gone = left.iter().filter(|node| !kept.contains(*node)).filter_map(|node| self.host(node));
        for host in gone.collect::<Vec<_>>() {
            self.places.left.entry((job, host)).or_insert(now);
        }
    }

    /// Checks the end of a process that has finished its work: its job must not have lost the node long before.
    pub(super) fn check_left(&mut self, now: Time, node: usize, key: StepKey) {
        let since = self.places.left.get(&(attempt_of(key), node)).copied();
        let late = |since: &Time| *since > self.trouble_until && now.since(*since).secs() > self.kill_wait_s + SLACK_S;
        if let Some(since) = since.filter(late) {
            let text = format!("step {key} on {}, {} s later", self.names[node], now.since(since).secs());
            self.violate("programs end on a node that a job has no more", text);
        }
    }
}
