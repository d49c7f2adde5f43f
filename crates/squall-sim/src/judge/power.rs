//! Checks of power saving: no node is on its way for ever, and no job begins before its nodes are there.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::NodeId;
use squall_model::job::JobAttempt;
use squall_model::power::PowerPhase;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use super::{Judge, LATENESS};

/// Time that an event may be late.
const SLACK_S: u64 = 30;
/// Time in which the nodes below one that was switched off find another parent, seconds: three heartbeats, and more.
const UNSETTLED_S: u64 = 90;

/// What the judge knows of the power of nodes.
#[derive(Debug, Default)]
pub(crate) struct Powers {
    /// Phases of nodes that are not up, as far as they are durable, with their beginnings. A new run of the controller
    /// gives nodes their whole time again.
    phases: BTreeMap<NodeId, (PowerPhase, Time)>,
    /// Attempts that wait for their nodes.
    booting: BTreeSet<JobAttempt>,
    /// Longest durations of the ways up and down, seconds.
    up_s: u64,
    down_s: u64,
}

impl Powers {
    /// Returns what is to be checked with this configuration and these nodes.
    pub(super) fn of(config: &Config, names: &[String]) -> Self {
        let Config { health, power, .. } = config;
        let clouds = names.iter().enumerate().filter(|(_, name)| config.is_cloud(name));
        let off = (PowerPhase::Off, Time::default());
        Self {
            phases: clouds.map(|(at, _)| (NodeId(at as u32), off)).collect(),
            booting: BTreeSet::new(),
            up_s: health.resume_timeout_s + SLACK_S,
            down_s: power.suspend_timeout_s + SLACK_S,
        }
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        !self.phases.contains_key(&node)
    }
}

impl Judge {
    /// Records what a durable event says of power, and checks that no node is on its way for too long.
    pub(super) fn power_event(&mut self, decided: Time, event: &Event) {
        match event {
            Event::ControllerStarted { .. } => {
                self.powers.phases.values_mut().for_each(|(_, since)| *since = decided);
            }
            Event::NodesPower { nodes, phase: PowerPhase::On, .. } => {
                nodes.iter().for_each(|node| _ = self.powers.phases.remove(&node));
            }
            Event::NodesPower { nodes, phase, .. } => {
                nodes.iter().for_each(|node| _ = self.powers.phases.insert(node, (*phase, decided)));
            }
            Event::JobStarted { id, attempt, alloc, .. }
                if alloc.nodes().iter().any(|node| !self.powers.is_up(node)) =>
            {
                self.powers.booting.insert(JobAttempt { job: *id, attempt: *attempt });
            }
            Event::JobAwake { id, attempt } => {
                self.powers.booting.remove(&JobAttempt { job: *id, attempt: *attempt });
                let Some(file) = self.files.get_mut(id) else { return };
                (file.limit_from, file.started) = (decided, Some(decided));
                let asleep = file.left.iter().find(|node| !self.powers.is_up(*node));
                if let Some(node) = asleep {
                    let text = format!("job {id} on node {}", node.0);
                    self.violate("a job begins when all of its nodes are up", text);
                }
            }
            _ => {}
        }
        let running_since = self.silence.controller_since();
        let late = self.powers.phases.iter().find(|(_, (phase, since))| {
            let most = match phase {
                PowerPhase::GoingUp => self.powers.up_s,
                PowerPhase::GoingDown => self.powers.down_s,
                PowerPhase::On | PowerPhase::Off => return false,
            };
            // A controller that did not run, or was late, gives nodes that time again.
            decided > (*since).max(running_since) + Span::from_secs(most) + LATENESS
        });
        if let Some((node, (phase, since))) = late {
            let text = format!("node {} is {phase:?} for {} s", node.0, decided.since(*since).secs());
            self.violate("no node is on its way up or down for ever", text);
        }
    }

    /// Checks the start of a program for the power of nodes.
    pub(crate) fn power_program_runs(&mut self, nodes: &NodeSet, phase: PowerPhase) {
        // A node that comes when its time is just over is up, while the program runs that says it did not come; and one that an
        // operator switches on may come before the program runs that would do so.
        let is = |node: &NodeId| match self.powers.phases.get(node) {
            Some((is, _)) => *is == phase,
            None => matches!(phase, PowerPhase::Off | PowerPhase::GoingUp),
        };
        if let Some(node) = nodes.iter().find(|node| !is(node)) {
            let text = format!("{phase:?} of node {}", node.0);
            self.violate("a program for nodes runs after its phase is durable", text);
        }
    }

    /// Checks that a job of which processes start does not wait for nodes.
    pub(crate) fn nodes_are_up(&mut self, job: JobAttempt) {
        if self.powers.booting.contains(&job) {
            self.violate("no process starts before the nodes of its job are up", format!("job {}", job.job));
        }
    }

    /// Returns whether no node has begun to go down lately. The nodes below one that was switched off may take so long to
    /// find another parent.
    pub(super) fn power_is_settled(&self, now: Time) -> bool {
        let lately = |(_, since): &(PowerPhase, Time)| now < *since + Span::from_secs(UNSETTLED_S);
        !self.powers.phases.values().any(lately)
    }

    /// Returns whether the node with this name is up, as far as it is durable.
    pub(super) fn is_up(&self, name: &str) -> bool {
        let at = self.names.iter().position(|known| known == name);
        at.is_none_or(|at| self.powers.is_up(NodeId(at as u32)))
    }
}
