//! Checks of waits that administrators set: no job starts beside one that is completing (`CompleteWait`), and nodes are
//! resumed by themselves (`ResumeAfter`).

use std::collections::BTreeMap;

use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, JobId};
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;

use super::{Judge, LATENESS, Phase};

/// What the judge knows of these waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// How long jobs wait for one that is completing in their partition. Zero: they don't.
    complete: Span,
    /// Names of the partitions of which the nodes are not all nodes, with these nodes by number.
    partitions: BTreeMap<String, Vec<usize>>,
    /// Jobs that are completing, and since when, for as long as others wait for them.
    completing: BTreeMap<JobId, Time>,
    /// Nodes that are to be resumed by themselves: the number of the call that asked for it, and when that is due. None: the
    /// call has no answer yet.
    resumes: BTreeMap<usize, (usize, Option<Time>)>,
}

impl Waits {
    /// Returns what is to be checked with this configuration.
    pub(super) fn of(config: &Config, names: &[String]) -> Self {
        let within = |nodes: &str| {
            let list = squall_model::hostlist::expand(nodes).unwrap_or_default();
            list.iter().filter_map(|name| names.iter().position(|other| other == name)).collect()
        };
        let parts = config.partitions.iter().filter(|partition| partition.nodes != "ALL");
        Self {
            complete: Span::from_secs(config.complete_wait_s),
            partitions: parts.map(|partition| (partition.name.clone(), within(&partition.nodes))).collect(),
            ..Self::default()
        }
    }
}

impl Judge {
    /// Records that an operator requests a state of a node, and perhaps that it is resumed by itself after that time.
    pub(super) fn resume_sent(&mut self, call: usize, node: usize, admin: NodeAdmin, after: Option<Span>) {
        if admin == NodeAdmin::Resume {
            self.waits.resumes.remove(&node);
        } else if after.is_some() && self.hosts.values().any(|host| *host == node) {
            // Of a node that has never registered nothing is known but its name.
            self.waits.resumes.insert(node, (call, None));
        }
    }

    /// Records that the request was answered.
    pub(super) fn resume_answered(
        &mut self,
        now: Time,
        call: usize,
        node: usize,
        after: Option<Span>,
        answer: &Answer,
    ) {
        // because the node has been resumed, or another request came after this one
        let Some(entry) = self.waits.resumes.get_mut(&node).filter(|(asked, _)| *asked == call) else { return };
        match after.filter(|_| *answer == Answer::Done) {
            Some(after) => entry.1 = Some(now + after),
            None => _ = self.waits.resumes.remove(&node),
        }
    }

    /// Returns whether a node is to be resumed by itself.
    pub(super) fn resumes_itself(&self, node: usize) -> bool {
        self.waits.resumes.contains_key(&node)
    }

    /// Records that nothing is known of a node's resumption any more.
    pub(super) fn resumes_no_more(&mut self, node: usize) {
        self.waits.resumes.remove(&node);
    }

    /// Checks an event that became durable.
    pub(super) fn check_waits(&mut self, decided: Time, event: &Event) {
        match event {
            Event::Restored { .. } => self.waits.resumes.clear(),
            Event::NodesSet { nodes, admin: NodeAdmin::Resume, .. } => {
                for node in nodes.iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
                    if self.waits.resumes.remove(&node).is_some() {
                        self.owes_no_check(node);
                    }
                }
            }
            Event::JobEnding { id, .. } if self.files.get(id).is_some_and(|file| file.phase == Phase::Ending) => {
                self.waits.completing.entry(*id).or_insert(decided);
            }
            // A job of which a node failed may start again at once on the nodes that it has kept.
            Event::JobStarted { id, attempt: attempt @ Attempt(1), partition, .. }
                if !self.was_leased(*id, *attempt) =>
            {
                self.check_completing(decided, *id, partition);
            }
            _ => {}
        }
        let from = self.silence.controller_since();
        let is_late = |due: &Time| decided > (*due).max(from) + LATENESS;
        let mut resumes = self.waits.resumes.iter().filter(|(node, _)| self.is_configured(**node));
        let late = resumes.find(|(_, (_, due))| due.as_ref().is_some_and(is_late));
        if let Some(node) = late.map(|(node, _)| *node) {
            self.violate("a node is resumed when its time is over", self.names[node].clone());
        }
    }

    fn check_completing(&mut self, decided: Time, id: JobId, partition: &str) {
        let complete = self.waits.complete;
        self.waits.completing.retain(|_, since| *since + complete > decided);
        let among = self.waits.partitions.get(partition);
        let is_left = |other: &JobId| {
            let file = self.files.get(other).filter(|file| file.phase == Phase::Ending)?;
            // A node that was removed is in no partition.
            let mut left = file.left.iter().filter_map(|node| self.host(node)).filter(|host| self.is_configured(*host));
            left.any(|host| among.is_none_or(|among| among.contains(&host))).then_some(*other)
        };
        if let Some(other) = self.waits.completing.keys().find_map(is_left) {
            let (since, left) = (self.waits.completing.get(&other), self.files.get(&other).map(|file| &file.left));
            let text = format!("job {id} in {partition} at {decided:?}, job {other} on {left:?} since {since:?}");
            self.violate("no job starts beside one that is completing", text);
        }
    }
}
