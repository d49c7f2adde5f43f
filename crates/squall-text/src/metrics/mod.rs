//! Metrics as text for Prometheus.
//!
//! Existing boards find the names that they know: those of the exporter by Victor Penso
//! (`prometheus-slurm-exporter`) and those of Slurm 25.11's own paths. Names that begin with `squall_` have no
//! counterpart. Where both families have a name, one series serves both; nodes are then counted by the state that
//! `sinfo` shows, each once.

mod exposition;
mod jobs;
mod nodes;
mod own;
mod scheduler;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use squall_model::wire::info::{Diag, LicenseInfo, NodeInfo, PartitionInfo};
use squall_model::wire::priority_info::Share;

use crate::format::node::NodeState;
use exposition::{Metric, Text, gauge, labels};
use jobs::{NAMES_MAX, OTHERS, Tally, most};
use nodes::Totals;

pub use jobs::JobCounts;

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Selection of metrics. `All` has no series for each node or user under Slurm's names, because it has the same ones under
/// the names of prometheus-slurm-exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every metric except those that only `Nodes` and `UsersAndAccounts` have.
    All,
    /// Slurm's metrics of jobs.
    Jobs,
    /// Slurm's metrics of the jobs of each user and account.
    UsersAndAccounts,
    /// Slurm's metrics of nodes.
    Nodes,
    /// Slurm's metrics of partitions.
    Partitions,
    /// Slurm's metrics of the scheduler.
    Scheduler,
}

impl Part {
    /// All parts, each with its path below `/metrics/` (Slurm 25.11's), which is empty for all metrics.
    pub const PATHS: [(&'static str, Self); 6] = [
        ("", Self::All),
        ("jobs", Self::Jobs),
        ("jobs-users-accts", Self::UsersAndAccounts),
        ("nodes", Self::Nodes),
        ("partitions", Self::Partitions),
        ("scheduler", Self::Scheduler),
    ];

    /// Returns the part with this path below `/metrics/`. None: there is no such part.
    pub fn at(path: &str) -> Option<Self> {
        Self::PATHS.into_iter().find(|(known, _)| *known == path).map(|(_, part)| part)
    }
}

/// What the metrics are about.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    /// Counters of the controller.
    pub diag: &'a Diag,
    /// All nodes.
    pub nodes: &'a [NodeInfo],
    /// All partitions.
    pub partitions: &'a [PartitionInfo],
    /// All jobs, counted.
    pub jobs: &'a JobCounts,
    /// All licenses.
    pub licenses: &'a [LicenseInfo],
    /// Shares of accounts and users.
    pub shares: &'a [Share],
}

impl Scrape<'_> {
    /// Returns the metrics as text. `user` returns the name of a user.
    pub fn text(&self, part: Part, user: &dyn Fn(u32) -> String) -> String {
        let mut text = Text::default();
        match part {
            Part::All => self.all(&mut text, user),
            Part::Jobs => text.each("slurm_", jobs::JOBS, &[(String::new(), &self.jobs.all)]),
            Part::UsersAndAccounts => self.owners(&mut text, jobs::JOBS),
            Part::Nodes => {
                let nodes: Vec<_> = self.nodes.iter().map(|node| (labels(&[("node", &node.name)]), node)).collect();
                text.each("", nodes::NODE_OF_SLURM, &nodes);
                text.one(nodes::STATES, &totals(self.nodes));
            }
            Part::Partitions => self.partitions_of_slurm(&mut text),
            Part::Scheduler => text.one(scheduler::SCHEDULER_OF_SLURM, self.diag),
        }
        text.out
    }

    fn all(&self, text: &mut Text, user: &dyn Fn(u32) -> String) {
        let totals = totals(self.nodes);
        text.one(nodes::RESOURCES, &totals);
        text.one(nodes::STATES, &totals);
        let of = |node: &NodeInfo| labels(&[("node", &node.name), ("status", &NodeState::of(node).long())]);
        text.each("", nodes::NODE, &self.nodes.iter().map(|node| (of(node), node)).collect::<Vec<_>>());
        let by_partition = self.nodes_by_partition();
        text.each("", nodes::PARTITION_CPUS, &labelled(&["partition"], &by_partition));
        self.partitions_of_slurm(text);
        text.one(jobs::QUEUE, &self.jobs.all);
        text.each("slurm_", jobs::JOBS, &[(String::new(), &self.jobs.all)]);
        self.owners(text, jobs::BRIEF);
        self.fairshare(text);
        text.one(scheduler::SCHEDULER, self.diag);
        text.one(scheduler::SCHEDULER_OF_SLURM, self.diag);
        self.requests(text, user);
        text.one(own::CONTROLLER, self.diag);
        text.one(own::NODE_DAEMONS, self.diag);
        let causes = self.diag.lost.causes().map(|(cause, span)| (labels(&[("cause", cause)]), span));
        text.each("", own::LOST, &causes.iter().map(|(labels, span)| (labels.clone(), span)).collect::<Vec<_>>());
        let reasons = self.jobs.reasons.iter();
        let reasons: Vec<_> = reasons.map(|(reason, count)| (labels(&[("reason", reason)]), count)).collect();
        text.each("", own::PENDING, &reasons);
        let licenses = self.licenses.iter().map(|one| (labels(&[("license", &one.name)]), one));
        text.each("", own::LICENSE, &licenses.collect::<Vec<_>>());
        own::latencies(text, &self.diag.latency);
    }

    /// Writes metrics of the jobs of each user, then of those of each account. The exporter calls the label of a user
    /// `user`, Slurm `username`: series have both.
    fn owners(&self, text: &mut Text, table: &[Metric<Tally>]) {
        let owners = [
            ("slurm_user_", &["user", "username"][..], &self.jobs.users),
            ("slurm_account_", &["account"], &self.jobs.accounts),
        ];
        for (prefix, names, tallies) in owners {
            text.each(prefix, table, &labelled(names, &most(tallies)));
        }
    }

    fn partitions_of_slurm(&self, text: &mut Text) {
        let (nodes, none) = (self.nodes_by_partition(), Tally::default());
        text.one(&[gauge("slurm_partitions", "Partitions", |n: &usize| *n as f64)], &self.partitions.len());
        text.each("", nodes::PARTITION_NODES, &labelled(&["partition"], &nodes));
        let tally = |name: &String| self.jobs.partitions.get(name).unwrap_or(&none);
        let jobs: Vec<_> = nodes.keys().map(|name| (labels(&[("partition", name)]), tally(name))).collect();
        text.each("slurm_partition_", jobs::JOBS, &jobs);
        text.each("slurm_partition_", jobs::WIDTHS, &jobs);
    }

    /// Returns the nodes of each partition, also of those without nodes, counted.
    fn nodes_by_partition(&self) -> BTreeMap<String, Totals> {
        let names = self.partitions.iter().map(|partition| partition.config.name.clone());
        let mut all: BTreeMap<String, Totals> = names.map(|name| (name, Totals::default())).collect();
        for node in self.nodes {
            for name in &node.partitions {
                if let Some(totals) = all.get_mut(name) {
                    totals.add(node);
                }
            }
        }
        all
    }

    fn fairshare(&self, text: &mut Text) {
        let accounts = self.shares.iter().filter(|share| share.user.is_empty() && share.depth > 0);
        let accounts: BTreeMap<&str, &Share> = accounts.map(|share| (&*share.account, share)).collect();
        let help = "Fair-share level of an account: above 1, it has used less than its share";
        let level = |share: &Share| share.level.0;
        let accounts: Vec<_> =
            accounts.into_iter().map(|(name, share)| (labels(&[("account", name)]), share)).collect();
        text.each("", &[gauge("slurm_account_fairshare", help, level)], &accounts);
    }

    fn requests(&self, text: &mut Text, user: &dyn Fn(u32) -> String) {
        let kinds = self.diag.messages.iter().map(|(kind, count, us)| (kind.clone(), (*count, *us)));
        let kinds: BTreeMap<String, scheduler::Requests> = kinds.collect();
        let kinds = labelled(&["operation"], &kinds);
        text.each("slurm_", scheduler::REQUESTS, &kinds);
        let mut by_count = self.diag.users.clone();
        by_count.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        let mut users: BTreeMap<String, scheduler::Requests> = BTreeMap::new();
        for (at, (uid, count, us)) in by_count.into_iter().enumerate() {
            let name = if at < NAMES_MAX { user(uid) } else { OTHERS.to_owned() };
            let sum = users.entry(name).or_default();
            *sum = (sum.0 + count, sum.1 + us);
        }
        text.each("slurm_user_", scheduler::REQUESTS, &labelled(&["user"], &users));
        text.each("", own::REQUESTS, &kinds);
    }
}

/// Returns the nodes, counted.
fn totals(nodes: &[NodeInfo]) -> Totals {
    let mut all = Totals::default();
    for node in nodes {
        all.add(node);
    }
    all
}

/// Returns things by name, each with its name as the value of these labels.
fn labelled<'a, T>(names: &[&str], things: &'a BTreeMap<String, T>) -> Vec<(String, &'a T)> {
    let of = |value: &String| labels(&names.iter().map(|name| (*name, &**value)).collect::<Vec<_>>());
    things.iter().map(|(name, thing)| (of(name), thing)).collect()
}
