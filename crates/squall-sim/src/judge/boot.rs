//! Checks of jobs that have their nodes rebooted, and of jobs that wait for nodes that are up.

use std::collections::BTreeMap;

use squall_model::event::Event;
use squall_model::id::{Incarnation, JobId, NodeId};
use squall_model::job::JobAttempt;
use squall_model::job::options::Chosen;
use squall_model::time::{Span, Time};

use super::Judge;

/// What the judge knows of reboots and waits.
#[derive(Debug, Default)]
pub(crate) struct Boots {
    /// The last durable incarnation of each node.
    incarnations: BTreeMap<NodeId, Incarnation>,
    /// Incarnations of nodes that are to reboot before an attempt begins there.
    before: BTreeMap<(JobAttempt, usize), Incarnation>,
    /// When the jobs of each order were submitted.
    submitted: BTreeMap<JobId, Time>,
}

impl Judge {
    /// Records what a durable event says of reboots before jobs, and checks that no job gets a node that is not up
    /// before it has waited as long as it says. `options`: those of the job order of a job that starts.
    pub(super) fn boot_event(&mut self, decided: Time, event: &Event, options: Option<&Chosen>) {
        match event {
            Event::NodeRegistered { node, incarnation, .. } => {
                self.boots.incarnations.insert(*node, *incarnation);
            }
            Event::JobSubmitted { id, .. } => _ = self.boots.submitted.insert(*id, decided),
            Event::JobStarted { id, attempt, alloc, .. } => {
                let Some(options) = options else { return };
                let first = self.boots.submitted.range(..=*id).next_back().map(|(_, time)| *time);
                let until = first.zip(options.delay_boot_s).map(|(time, delay_s)| time + Span::from_secs(delay_s));
                let given = alloc.nodes();
                let down = given.iter().find(|node| !self.powers.is_up(*node));
                if let Some(node) = down.filter(|_| until.is_some_and(|until| decided < until)) {
                    let text = format!("job {id} on node {}", node.0);
                    return self.violate("a job gets no node that is down before it has waited", text);
                }
                let nodes = given.iter().filter(|node| options.reboots() && self.powers.is_up(*node));
                let known = nodes.filter_map(|node| Some((self.host(node)?, *self.boots.incarnations.get(&node)?)));
                let known: Vec<(usize, Incarnation)> = known.collect();
                let job = JobAttempt { job: *id, attempt: *attempt };
                self.boots.before.extend(known.into_iter().map(|(host, incarnation)| ((job, host), incarnation)));
            }
            _ => {}
        }
    }

    /// Checks that a node has rebooted since it was given to a job that wants that, when a process of the job starts.
    pub(crate) fn node_has_rebooted(&mut self, job: JobAttempt, host: usize, incarnation: Incarnation) {
        if self.boots.before.get(&(job, host)) == Some(&incarnation) {
            let text = format!("job {} on {}", job.job, self.names[host]);
            self.violate("no process starts before its node has rebooted", text);
        }
    }
}
