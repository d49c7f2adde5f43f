//! Checks of the events that a follower is sent: those that are durable, each once, in order.

use squall_model::event::{Event, Record};
use squall_model::id::JobId;
use squall_model::wire::feed::{FeedKind, FeedPage, Position};

use super::Judge;

/// A durable event that followers must be sent: record, kind, and job if it is about one.
type ExpectedFeed = (u64, FeedKind, Option<JobId>);

/// The next durable event that a follower must be sent, and the position of the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expects {
    /// Index in the judge's list of events.
    next: usize,
    at: Position,
    /// The record within which the follower began. The judge does not number the events of a record, so it can't say
    /// which of these came before. None: the follower began with a whole record.
    begun_in: Option<u64>,
}

impl Judge {
    /// Records the events of a durable record that followers must be sent. Left out are those of which the judge can't
    /// say whether users see something.
    pub(super) fn note_shown(&mut self, record: &Record) {
        let shown = record.events.iter().filter_map(shown).map(|(kind, job)| (record.seq, kind, job));
        self.shown.extend(shown);
    }

    /// Checks a page that a follower has read. `before`: what it was expected to have; None: it is the first page.
    /// Returns what is expected of the next page.
    pub(crate) fn saw(&mut self, before: Option<Expects>, page: &FeedPage) -> Expects {
        let Some(mut expects) = before else {
            let next = self.shown.partition_point(|(record, ..)| *record < page.next.record);
            let begun_in = Some(page.next.record).filter(|_| page.next.index > 0);
            return Expects { next, at: page.next, begun_in };
        };
        let mut may_miss = page.missed;
        for event in &page.events {
            if event.at <= expects.at {
                let text = format!("{} after {}", event.at, expects.at);
                self.violate("no follower is sent an event twice", text);
            }
            if event.at.record > self.last_record {
                let text = format!("{} is not durable, the last record is {}", event.at, self.last_record);
                self.violate("followers are sent durable events only", text);
            }
            expects.at = event.at;
            let seen = (event.at.record, event.kind, event.job.as_ref().map(|job| job.id));
            if !is_checked(event.kind) {
                continue;
            }
            let rest = self.shown.get(expects.next..).unwrap_or_default();
            let before = |shown: &ExpectedFeed| Some(shown.0) == expects.begun_in && *shown != seen;
            let skipped = if may_miss {
                rest.iter().position(|shown| *shown == seen).unwrap_or(0)
            } else {
                rest.iter().take_while(|shown| before(shown)).count()
            };
            (may_miss, expects.begun_in) = (false, None);
            if rest.get(skipped) != Some(&seen) {
                let text = format!("it was sent {seen:?} at {}, and not {:?}", event.at, rest.get(skipped));
                self.violate("a follower is sent every event, or told that some are missed", text);
            }
            expects.next += skipped + 1;
        }
        if let Some(record) = expects.begun_in.filter(|record| *record < page.next.record) {
            expects.next = expects.next.max(self.shown.partition_point(|shown| shown.0 <= record));
            expects.begun_in = None;
        }
        let due = |shown: &ExpectedFeed| shown.0 < page.next.record;
        if may_miss {
            expects.next = expects.next.max(self.shown.partition_point(due));
            expects.begun_in = Some(page.next.record).filter(|_| page.next.index > 0);
        }
        if let Some(lost) = self.shown.get(expects.next).filter(|shown| due(shown)) {
            let text = format!("it was not sent {lost:?}, and goes on at {}", page.next);
            self.violate("a follower is sent every event, or told that some are missed", text);
        }
        if page.next < expects.at && !page.missed {
            let text = format!("{} after {}", page.next, expects.at);
            self.violate("no follower is sent an event twice", text);
        }
        Expects { at: page.next, ..expects }
    }

    /// Checks at the end that a follower has been sent everything.
    pub(crate) fn saw_all(&mut self, expects: Expects) {
        if let Some(lost) = self.shown.get(expects.next) {
            let text = format!("it was not sent {lost:?}, its position is {}", expects.at);
            self.violate("in the end a follower has every event", text);
        }
    }
}

fn shown(event: &Event) -> Option<(FeedKind, Option<JobId>)> {
    Some(match event {
        Event::ControllerStarted { .. } => (FeedKind::ControllerStarted, None),
        Event::JobSubmitted { id, .. } => (FeedKind::JobSubmitted, Some(*id)),
        Event::JobStarted { id, .. } => (FeedKind::JobStarted, Some(*id)),
        Event::JobHeld { id, .. } => (FeedKind::JobHeld, Some(*id)),
        Event::JobReleased { id, .. } => (FeedKind::JobReleased, Some(*id)),
        Event::JobUpdated { change, .. } if change.independent.is_some() => return None,
        Event::JobUpdated { id, .. } | Event::JobShrunk { id, .. } | Event::NodeReplaced { id, .. } => {
            (FeedKind::JobChanged, Some(*id))
        }
        Event::JobSuspended { id, suspended: true } => (FeedKind::JobSuspended, Some(*id)),
        Event::JobSuspended { id, suspended: false } => (FeedKind::JobResumed, Some(*id)),
        Event::JobPreempted { id, .. } => (FeedKind::JobPreempted, Some(*id)),
        Event::NodeRegistered { .. } => (FeedKind::NodeRegistered, None),
        Event::NodeUp { .. } => (FeedKind::NodeUp, None),
        _ => return None,
    })
}

/// Returns whether each event of this kind stands for one durable event that the judge expects.
fn is_checked(kind: FeedKind) -> bool {
    matches!(
        kind,
        FeedKind::ControllerStarted
            | FeedKind::JobSubmitted
            | FeedKind::JobStarted
            | FeedKind::JobHeld
            | FeedKind::JobReleased
            | FeedKind::JobChanged
            | FeedKind::JobSuspended
            | FeedKind::JobResumed
            | FeedKind::JobPreempted
            | FeedKind::NodeRegistered
            | FeedKind::NodeUp
    )
}
