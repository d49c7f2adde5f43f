//! The lease that a leader holds.

use squall_model::time::{Span, Time};

use super::RETRY;
use super::etcd::{Ask, LeaseId, Problem, Reply};

use crate::invariant::invariant;

/// A lease is renewed this many times in its length.
const RENEWALS: u64 = 4;
/// This part of the length is subtracted: the clocks of two machines need not run equally fast.
const MARGIN: u64 = 10;

/// The lease: none, being granted, or held.
#[derive(Debug)]
pub(super) struct Lease {
    seconds: u64,
    id: Option<LeaseId>,
    /// Whether one is needed.
    wanted: bool,
    /// When the open question was sent. None: none is open.
    sent: Option<Time>,
    next: Time,
    until: Time,
}

impl Lease {
    pub(super) fn new(seconds: u64) -> Self {
        Self { seconds, id: None, wanted: false, sent: None, next: Time(0), until: Time(0) }
    }

    /// Asks for a lease, or lets it expire.
    pub(super) fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Returns the lease if it is valid.
    pub(super) fn held(&self, now: Time) -> Option<LeaseId> {
        self.id.filter(|_| now < self.until)
    }

    /// Returns when it expires at the earliest, counted from the moment at which the last renewal was sent.
    pub(super) fn valid_until(&self) -> Time {
        self.until
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        (self.wanted && self.sent.is_none()).then_some(self.next)
    }

    /// Returns the question that is due.
    pub(super) fn due(&mut self, now: Time) -> Option<Ask> {
        if !self.wanted || self.sent.is_some() || now < self.next {
            return None;
        }
        self.sent = Some(now);
        Some(match self.held(now) {
            Some(lease) => Ask::KeepAlive { lease },
            None => Ask::Grant { seconds: self.seconds },
        })
    }

    pub(super) fn take(&mut self, now: Time, reply: &Result<Reply, Problem>) {
        let Some(sent) = self.sent.take() else { return invariant!("an answer about the lease was asked for") };
        let length = Span::from_secs(self.seconds);
        match reply {
            Ok(Reply::Granted { lease }) => self.id = Some(*lease),
            Ok(Reply::Alive { exists: true }) => {}
            Ok(_) => {
                (self.id, self.until, self.next) = (None, Time(0), now);
                return;
            }
            Err(_) => {
                self.next = now + RETRY;
                return;
            }
        }
        self.until = sent + Span(length.0 - length.0 / MARGIN);
        self.next = now.max(sent + Span(length.0 / RENEWALS));
    }
}
