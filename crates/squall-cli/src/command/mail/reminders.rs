//! Mail about parts of time limits: when which running job has used 50, 80 or 90 % of its limit. Those due while no
//! process runs that sends mail are not sent.

use std::collections::BTreeMap;
use std::time::Duration;

use squall_model::id::JobId;
use squall_model::time::{Span, Time};
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind};

use super::letter::{Letter, reminder};

/// Types of mail about parts of the time limit, and the part in percent.
const PARTS: [(&str, u64); 3] = [("TIME_LIMIT_50", 50), ("TIME_LIMIT_80", 80), ("TIME_LIMIT_90", 90)];

/// Mails to be sent at some time, unless their job ends before.
#[derive(Debug, Default)]
pub(super) struct Reminders(BTreeMap<(Time, JobId), (u64, FeedJob)>);

impl Reminders {
    /// Learns from an event that a job has started, or runs no longer.
    pub(super) fn note(&mut self, event: &FeedEvent) {
        let Some(job) = &event.job else { return };
        if event.kind != FeedKind::JobStarted {
            return self.0.retain(|(_, id), _| *id != job.id);
        }
        let Some(wish) = &job.mail else { return };
        let Some((start, limit)) = wish.start.zip(wish.limit) else { return };
        for (_, part) in PARTS.into_iter().filter(|(kind, _)| wish.wants(kind)) {
            let due = start + Span(limit.since(start).0 / 100 * part);
            self.0.insert((due, job.id), (part, job.clone()));
        }
    }

    /// Returns the time until the next mail. None: none is to be sent.
    pub(super) fn due_in(&self, now: Time) -> Option<Duration> {
        self.0.keys().next().map(|(due, _)| Duration::from_micros(due.since(now).0))
    }

    /// Takes the mails that are due.
    pub(super) fn take_due(&mut self, now: Time, cluster: &str) -> Vec<Letter> {
        let mut due = Vec::new();
        while let Some(first) = self.0.first_entry().filter(|first| first.key().0 <= now) {
            let (part, job) = first.remove();
            due.extend(job.mail.as_deref().map(|wish| reminder(&job, wish, part, now, cluster)));
        }
        due
    }
}
