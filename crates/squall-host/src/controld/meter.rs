//! Counters of the controller's host, shown by `sdiag`: journal flushes, messages, times.

use std::collections::BTreeMap;
use std::time::Duration;

use squall_engine::invariant;
use squall_model::event::Record;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AnyRequest, Request};
use squall_model::wire::fabric::{UpFrame, Upward};
use squall_model::wire::info::Diag;

/// Size and duration of an append to the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AppendMeasure {
    /// Bytes written to the journal.
    pub(super) bytes: u64,
    /// Time taken by write and flush.
    pub(super) flush: Duration,
}

/// Counters of the controller's host since the start or the last reset.
#[derive(Debug, Default)]
pub(super) struct Meter {
    since: Time,
    diag: Diag,
    messages: BTreeMap<&'static str, (u64, u64)>,
    users: BTreeMap<u32, (u64, u64)>,
    /// Whether the counters restart after the next answer with figures.
    reset: bool,
}

impl Meter {
    pub(super) fn new(since: Time) -> Self {
        Self { since, ..Self::default() }
    }

    /// Counts a client's request (`uid`), or a node's message (None); `took` is its processing time.
    pub(super) fn message(&mut self, kind: &'static str, uid: Option<u32>, took: Duration) {
        let us = took.as_micros() as u64;
        if uid.is_none() {
            self.diag.fabric.messages += 1;
            self.diag.fabric.messages_us += us;
        }
        let users = uid.map(|uid| self.users.entry(uid).or_default());
        for (count, total) in users.into_iter().chain([self.messages.entry(kind).or_default()]) {
            *count += 1;
            *total += us;
        }
    }

    /// Counts a submission that was answered, `took` after it had arrived.
    pub(super) fn acknowledged(&mut self, took: Duration) {
        self.diag.latency.submit.add(span(took));
    }

    /// Counts a scheduling pass; `backfill`: it tried jobs behind a pending one.
    pub(super) fn cycle(&mut self, took: Duration, backfill: bool) {
        let us = took.as_micros() as u64;
        self.diag.cycle_last_us = us;
        self.diag.cycle_max_us = self.diag.cycle_max_us.max(us);
        self.diag.cycle_total_us += us;
        self.diag.latency.pass.add(span(took));
        if backfill {
            let counts = &mut self.diag.backfill;
            counts.last_us = us;
            counts.max_us = counts.max_us.max(us);
            counts.total_us += us;
        }
    }

    pub(super) fn flushed(&mut self, records: &[Record], appended: AppendMeasure) {
        let us = appended.flush.as_micros() as u64;
        self.diag.journal_records += records.len() as u64;
        self.diag.journal_events += records.iter().map(|r| r.events.len() as u64).sum::<u64>();
        self.diag.journal_bytes += appended.bytes;
        self.diag.journal_flushes += 1;
        self.diag.flush_total_us += us;
        self.diag.flush_max_us = self.diag.flush_max_us.max(us);
        self.diag.latency.flush.add(span(appended.flush));
    }

    /// Has the counters restart after the next call of `fill`.
    pub(super) fn reset_after_answer(&mut self) {
        self.reset = true;
    }

    /// Adds the host's figures to those of the state machine. If that has named a user, only the requests of that one are
    /// counted by user.
    pub(super) fn fill(&mut self, diag: &mut Diag, now: Time, clients: u64) {
        let own = &self.diag;
        diag.since = self.since;
        diag.now = now;
        diag.cycle_last_us = own.cycle_last_us;
        diag.cycle_max_us = own.cycle_max_us;
        diag.cycle_total_us = own.cycle_total_us;
        diag.backfill.last_us = own.backfill.last_us;
        diag.backfill.max_us = own.backfill.max_us;
        diag.backfill.total_us = own.backfill.total_us;
        diag.journal_records = own.journal_records;
        diag.journal_events = own.journal_events;
        diag.journal_bytes = own.journal_bytes;
        diag.journal_flushes = own.journal_flushes;
        diag.flush_total_us = own.flush_total_us;
        diag.flush_max_us = own.flush_max_us;
        diag.messages = self.messages.iter().map(|(kind, (n, us))| ((*kind).to_owned(), *n, *us)).collect();
        let only = diag.users.first().map(|(uid, ..)| *uid);
        let shown = self.users.iter().filter(|(uid, _)| only.is_none_or(|only| only == **uid));
        diag.users = shown.map(|(uid, (n, us))| (*uid, *n, *us)).collect();
        diag.fabric.messages = own.fabric.messages;
        diag.fabric.messages_us = own.fabric.messages_us;
        diag.latency.submit = own.latency.submit.clone();
        diag.latency.flush = own.latency.flush.clone();
        diag.latency.pass = own.latency.pass.clone();
        diag.clients = clients;
        diag.broken = invariant::so_far().0;
        if std::mem::take(&mut self.reset) {
            *self = Self::new(now);
        }
    }
}

fn span(took: Duration) -> Span {
    Span(took.as_micros() as u64)
}

/// Returns whether a request submits a job, so that the time until its answer counts.
pub(super) fn submits(request: &AnyRequest) -> bool {
    let AnyRequest::Machine(request) = request else { return false };
    matches!(**request, Request::Submit { .. } | Request::SubmitHet { .. } | Request::Allocate { .. })
}

/// Returns the name of a child's frame as `sdiag` shows it.
pub(super) fn frame_kind(frame: &UpFrame) -> &'static str {
    let composites = frame.says.iter().filter_map(|say| match say {
        Upward::Composite { composite, .. } => Some(composite),
        Upward::Tally { .. } | Upward::Chunk(_) | Upward::Letter(_) => None,
    });
    let mut kind = match frame.says.first() {
        None => "MESSAGE_KEEPALIVE",
        Some(Upward::Letter(_)) => "MESSAGE_PMIX",
        Some(_) => "RESPONSE_NODE_QUERY",
    };
    for composite in composites {
        kind = match () {
            () if !composite.registrations.is_empty() || !composite.knocks.is_empty() => {
                return "MESSAGE_NODE_REGISTRATION_STATUS";
            }
            () if composite.reports > 1 => "MESSAGE_COMPOSITE",
            () if !composite.gone.is_empty() => "MESSAGE_EPILOG_COMPLETE",
            () if !composite.ended.is_empty() => "REQUEST_STEP_COMPLETE",
            () => "MESSAGE_NODE_REPORTS",
        };
    }
    kind
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use squall_model::time::Time;
    use squall_model::wire::info::Diag;

    use super::Meter;

    // Regression test of attack B8: `sdiag` named users whom private data hide.
    #[test]
    fn b8_counts_of_other_users_are_hidden_where_one_is_named() {
        let mut meter = Meter::new(Time(0));
        for uid in [1001, 1001, 1002] {
            meter.message("REQUEST_PING", Some(uid), Duration::from_micros(5));
        }
        let shown = |named: &[(u32, u64, u64)], meter: &mut Meter| {
            let mut diag = Diag { users: named.to_vec(), ..Diag::default() };
            meter.fill(&mut diag, Time(1), 1);
            diag.users
        };
        assert_eq!(shown(&[], &mut meter), [(1001, 2, 10), (1002, 1, 5)]);
        assert_eq!(shown(&[(1002, 0, 0)], &mut meter), [(1002, 1, 5)]);
        assert_eq!(shown(&[(1003, 0, 0)], &mut meter), []);
    }
}
