//! Checks of leased jobs: they run one after the other, in the order of their line, and never on a node that
//! returned the lease.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::Config;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::set::NodeSet;
use squall_model::time::Time;

use super::Judge;
use crate::coverage::Phase;
use crate::world::client::Clients;

/// A line: jobs leased to follow a running one in its place. It is identified by the running attempt (job,
/// attempt number).
pub(super) type LeaseLine = (JobId, u32);

/// Facts that the judge has collected about leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Maximum number of leased jobs in a line, as configured.
    most: usize,
    /// Leased jobs that have not started, in the order of their line.
    lines: BTreeMap<LeaseLine, Vec<JobId>>,
    /// Line to which each leased job belongs, or belonged before it started.
    line_of: BTreeMap<JobId, LeaseLine>,
    /// Attempts of jobs with a lease that a node returned, as (job, attempt number): they may not start there.
    returned: BTreeSet<(JobId, u32)>,
    /// Leased attempts with a start that is not durable yet, as (job, attempt number).
    open: BTreeSet<(JobId, u32)>,
}

impl Leases {
    pub(super) fn new(config: &Config) -> Self {
        let most = config.partitions.iter().map(|partition| partition.lease_jobs).max().unwrap_or_default();
        Self { most: most as usize, ..Self::default() }
    }
}

impl Judge {
    pub(super) fn leased_event(&mut self, decided: Time, id: JobId, attempt: u32, behind: JobId, clients: &Clients) {
        let Some((nodes, founder)) = self.files.get(&behind).map(|file| (file.granted.clone(), file.attempt)) else {
            return self.violate("jobs are leased after running ones", format!("job {id} after job {behind}"));
        };
        self.granted_event(decided, id, attempt, nodes, clients);
        let line = self.leases.line_of.get(&behind).copied().unwrap_or((behind, founder));
        self.leases.line_of.insert(id, line);
        self.leases.open.insert((id, attempt));
        self.leases.lines.entry(line).or_default().push(id);
        let unbegun = |id: &&JobId| self.files.get(id).is_some_and(|f| self.leases.open.contains(&(**id, f.attempt)));
        let waiting = self.leases.lines[&line].iter().filter(unbegun).count();
        if waiting > self.leases.most {
            let text = format!("{waiting} wait for the place of job {}", line.0);
            self.violate("no more jobs are leased than may be", text);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.line = Some(line);
        }
    }

    /// Records a durable start. Returns true if it is that of a leased job.
    pub(super) fn has_begun_event(&mut self, id: JobId, attempt: u32) -> bool {
        self.leases.open.remove(&(id, attempt))
    }

    /// Returns whether an attempt is leased, and its start is not durable.
    pub(super) fn is_open(&self, id: JobId, attempt: u32) -> bool {
        self.leases.open.contains(&(id, attempt))
    }

    /// Records that a job is placed outside any line.
    pub(super) fn leave_place(&mut self, id: JobId) {
        self.leases.line_of.remove(&id);
    }

    pub(super) fn returned_event(&mut self, id: JobId, attempt: u32) {
        self.leave_line(id);
        self.leases.returned.insert((id, attempt));
        let ran = self.launched.iter().any(|(key, _)| key.job == id && key.attempt.0 == attempt);
        if ran || !self.leases.open.remove(&(id, attempt)) {
            self.violate("a lease that is given back never ran", format!("job {id} attempt {attempt}"));
        }
        self.move_to(id, Phase::Pending);
        if let Some(file) = self.files.get_mut(&id) {
            file.touched = true;
            file.left = NodeSet::new();
        }
    }

    /// Checks the start of an attempt's first process against the order of its line.
    pub(super) fn begins_in_line(&mut self, key: StepKey) {
        if self.leases.returned.contains(&(key.job, key.attempt.0)) {
            let text = format!("job {} attempt {}", key.job, key.attempt);
            self.violate("a lease that is given back never ran", text);
        }
        let file = self.files.get(&key.job).filter(|file| file.attempt == key.attempt.0);
        let Some(line) = file.and_then(|file| file.line) else { return };
        let first = self.leases.lines.get(&line).and_then(|line| line.first()).copied();
        if let Some(first) = first.filter(|first| *first != key.job) {
            self.violate("leased jobs begin in the order of their line", format!("job {} before {first}", key.job));
        }
        self.leave_line(key.job);
    }

    /// Records that a node failed to start a leased job, which removes the job from its line.
    pub(crate) fn could_not_begin(&mut self, key: StepKey) {
        if key.step == StepNo::BATCH && self.files.get(&key.job).is_some_and(|file| file.attempt == key.attempt.0) {
            self.leave_line(key.job);
        }
    }

    /// Removes a job from its line.
    pub(super) fn leave_line(&mut self, id: JobId) {
        let Some(line) = self.files.get_mut(&id).and_then(|file| file.line.take()) else { return };
        if let Some(waiting) = self.leases.lines.get_mut(&line) {
            waiting.retain(|other| *other != id);
        }
    }

    /// Returns the job and attempt of a lease of this node that has not started. None: it has none.
    pub(crate) fn some_lease(&self, host: usize) -> Option<(JobId, u32)> {
        let here = |id: &&JobId| {
            let nodes = self.files.get(id).map(|file| &file.left);
            nodes.and_then(NodeSet::first).and_then(|node| self.host(node)) == Some(host)
        };
        let id = *self.leases.lines.values().flatten().find(here)?;
        Some((id, self.files.get(&id)?.attempt))
    }
}
