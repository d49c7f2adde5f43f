//! Checks of what failures of nodes cost jobs: each loss is recorded once, within the run of its job, and what is lost and
//! what is not are together the time of the run.

use std::collections::BTreeMap;

use squall_model::cost::{Loss, LostTime};
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, JobId, NodeId, StepNo};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;

use super::Judge;

/// Nodes that each job has lost in its run.
pub(super) type Losses = BTreeMap<JobId, Vec<(NodeId, Loss)>>;

impl Judge {
    /// Checks a record that became durable, before its events are counted.
    pub(super) fn check_losses(&mut self, record: &Record) {
        if self.version() < ClusterVersion::NODES_REPLACED {
            return;
        }
        // A step that ended with the node may have told of it before.
        let is_open =
            |id: &JobId| self.losses.get(id).is_some_and(|all| all.iter().any(|(_, loss)| loss.again.is_none()));
        let untold = |id: &JobId| !notes_loss(record, *id) && !is_open(id);
        if let Some(id) = self.lost_runs(record).into_iter().find(untold) {
            self.violate("a node that costs a job its run is recorded as lost", format!("job {id}"));
        }
        let mut started = BTreeMap::new();
        for event in &record.events {
            if let Event::JobStarted { id, attempt, alloc, .. } = event {
                started.insert(*id, (*attempt, alloc.nodes()));
            }
            self.loss_event(record.time, event, &started);
        }
    }

    /// `started`: jobs that an earlier event of the record has started, as a controller that did not run for long may find a
    /// node silent that it gives to a job in the same turn.
    fn loss_event(&mut self, time: Time, event: &Event, started: &BTreeMap<JobId, (Attempt, NodeSet)>) {
        match event {
            Event::NodeLost { id, attempt, node, heard, kept } => {
                let runs = |file: &super::JobFile| file.attempt == attempt.0 && file.nodes.contains(*node);
                let now = started.get(id).filter(|(of, nodes)| of == attempt && nodes.contains(*node)).map(|_| time);
                let start = self.files.get(id).filter(|file| runs(file)).and_then(|file| file.started).or(now);
                let all = self.losses.entry(*id).or_default();
                let is_open = |loss: &Loss| loss.again.or(loss.replaced).is_none() && loss.kept <= *kept;
                // A controller that has just started knows of none before.
                let again = all.iter().any(|(lost, loss)| lost == node && is_open(loss) && self.led_since <= loss.lost);
                all.push((*node, Loss { kept: *kept, heard: *heard, lost: time, replaced: None, again: None }));
                if again || start.is_none_or(|start| *kept < start.min(time)) || time < *kept.max(heard) {
                    let text = format!("job {id} at {time:?}, started {start:?}: {event:?}");
                    self.violate("a lost node is recorded once, within the run of the job", text);
                }
            }
            Event::NodeReplaced { id, lost, .. } => {
                for (node, loss) in self.losses.get_mut(id).into_iter().flatten() {
                    if node == lost && loss.again.is_none() {
                        loss.replaced = Some(time);
                    }
                }
            }
            Event::StepStarted { job, step, .. } if *step != StepNo::BATCH => self.goes_on(*job, time),
            Event::JobEnding { id, .. } => {
                self.goes_on(*id, time);
                let losses = self.losses.remove(id).unwrap_or_default();
                self.check_cost(*id, time, &losses.into_iter().map(|(_, loss)| loss).collect::<Vec<_>>());
            }
            _ => {}
        }
    }

    fn goes_on(&mut self, id: JobId, time: Time) {
        for (_, loss) in self.losses.get_mut(&id).into_iter().flatten() {
            loss.again.get_or_insert(time);
        }
    }

    /// Checks that each moment between the last kept work and the next start is lost once, and no other is.
    fn check_cost(&mut self, id: JobId, end: Time, losses: &[Loss]) {
        let lost = LostTime::until(end, losses).sum();
        let mut spans: Vec<_> = losses.iter().map(|loss| (loss.kept, loss.again.unwrap_or(end))).collect();
        spans.sort();
        let (mut once, mut counted) = (Span(0), Time::default());
        for (kept, again) in spans {
            once.0 += again.since(kept.max(counted)).0;
            counted = counted.max(again);
        }
        let run = self.files.get(&id).and_then(|file| file.started).map_or(Span(0), |start| end.since(start));
        if lost != once || lost > run {
            let text = format!("job {id}: {lost:?} of {run:?}, which should be {once:?}: {losses:?}");
            self.violate("each moment is lost once or counts", text);
        }
    }
}

fn notes_loss(record: &Record, job: JobId) -> bool {
    record.events.iter().any(|event| matches!(event, Event::NodeLost { id, .. } if *id == job))
}
