//! The outbox: reports, numbered, kept until the controller has journaled them.

use std::collections::VecDeque;

use squall_model::id::{Session, StepKey};
use squall_model::limits::REPORTS_PER_FRAME_MAX;
use squall_model::report::Report;
use squall_model::time::{Span, Time};
use squall_model::wire::node::UpFrame;

/// Reports that may be under way while more are sent; above it they gather for one frame.
const WINDOW: u64 = 64;

/// After so long without an acknowledgement, reports are sent again.
const RESEND: Span = Span::from_secs(5);

/// Reports that are not acknowledged, oldest first.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<Report>,
    /// Number of the first in `queue`, or of the next to come.
    first: u64,
    /// Number up to which reports were sent in this session.
    sent: u64,
    resend_at: Time,
}

impl Outbox {
    /// For a life of the daemon: its numbers are above those of every earlier life.
    pub(super) fn of_life(life: u64) -> Self {
        let base = life << 32;
        Self { queue: VecDeque::new(), first: base + 1, sent: base, resend_at: Time::default() }
    }

    /// Adds a report.
    pub(super) fn push(&mut self, report: Report) {
        self.queue.push_back(report);
    }

    /// Whether the end of this step waits to be acknowledged.
    pub(super) fn tells_of(&self, key: StepKey) -> bool {
        self.queue.iter().any(|report| match report {
            Report::StepEnded { key: told, .. } | Report::LaunchFailed { key: told, .. } => *told == key,
            Report::JobGone { .. } => false,
        })
    }

    /// The next report that the controller has taken in; to be called until None.
    pub(super) fn take_acknowledged(&mut self, up_to: u64) -> Option<Report> {
        if self.first > up_to {
            return None;
        }
        let report = self.queue.pop_front()?;
        self.first += 1;
        self.sent = self.sent.max(self.first - 1);
        Some(report)
    }

    /// A new session: everything is to be sent again.
    pub(super) fn rewind(&mut self) {
        self.sent = self.first - 1;
    }

    /// The frame to be sent now, if any. It begins with the oldest report.
    pub(super) fn frame(&mut self, now: Time, session: Session) -> Option<UpFrame> {
        let last = self.first + self.queue.len() as u64 - 1;
        let under_way = self.sent + 1 - self.first;
        let fresh = self.sent < last && under_way < WINDOW;
        let again = under_way > 0 && self.resend_at <= now;
        if !fresh && !again {
            return None;
        }
        let reports: Vec<Report> = self.queue.iter().take(REPORTS_PER_FRAME_MAX).cloned().collect();
        self.sent = self.sent.max(self.first + reports.len() as u64 - 1);
        self.resend_at = now + RESEND;
        Some(UpFrame::Reports { session, first: self.first, reports })
    }

    /// When reports are to be sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        (self.sent >= self.first).then_some(self.resend_at)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outbox, RESEND, WINDOW};
    use squall_model::id::{Attempt, JobId, Session};
    use squall_model::job::JobAttempt;
    use squall_model::limits::REPORTS_PER_FRAME_MAX;
    use squall_model::report::Report;
    use squall_model::time::Time;
    use squall_model::wire::node::UpFrame;

    fn gone(n: u32) -> Report {
        Report::JobGone { job: JobAttempt { job: JobId(n), attempt: Attempt(1) } }
    }

    fn numbers(frame: Option<UpFrame>) -> Option<(u64, usize)> {
        match frame {
            Some(UpFrame::Reports { first, reports, .. }) => Some((first, reports.len())),
            _ => None,
        }
    }

    #[test]
    fn frames_begin_with_the_oldest_and_wait_for_news() {
        let (mut outbox, session, now) = (Outbox::of_life(2), Session::default(), Time::from_secs(1));
        assert_eq!(numbers(outbox.frame(now, session)), None);
        outbox.push(gone(1));
        outbox.push(gone(2));
        assert_eq!(numbers(outbox.frame(now, session)), Some(((2 << 32) + 1, 2)));
        assert_eq!(numbers(outbox.frame(now, session)), None);
        outbox.push(gone(3));
        assert_eq!(numbers(outbox.frame(now, session)), Some(((2 << 32) + 1, 3)));
        assert_eq!(outbox.take_acknowledged((2 << 32) + 1), Some(gone(1)));
        assert_eq!(outbox.take_acknowledged((2 << 32) + 1), None);
        assert_eq!(numbers(outbox.frame(now, session)), None);
        assert_eq!(outbox.deadline(), Some(now + RESEND));
        assert_eq!(numbers(outbox.frame(now + RESEND, session)), Some(((2 << 32) + 2, 2)));
        outbox.rewind();
        assert_eq!(outbox.deadline(), None);
        assert_eq!(numbers(outbox.frame(now + RESEND, session)), Some(((2 << 32) + 2, 2)));
    }

    #[test]
    fn an_acknowledgement_of_another_life_takes_nothing() {
        let mut outbox = Outbox::of_life(2);
        outbox.push(gone(1));
        assert_eq!(outbox.take_acknowledged((1 << 32) + 77), None);
        assert_eq!(outbox.take_acknowledged(u64::MAX), Some(gone(1)));
        assert_eq!(outbox.take_acknowledged(u64::MAX), None);
    }

    #[test]
    fn many_reports_gather_while_some_are_under_way() {
        let (mut outbox, session, now) = (Outbox::of_life(1), Session::default(), Time::from_secs(1));
        let mut frames = 0;
        for n in 0..5000 {
            outbox.push(gone(n));
            frames += usize::from(outbox.frame(now, session).is_some());
        }
        assert_eq!(frames as u64, WINDOW);
        let (mut taken, mut up_to) = (0, (1 << 32) + WINDOW);
        while taken < 5000 {
            while outbox.take_acknowledged(up_to).is_some() {
                taken += 1;
            }
            if let Some((first, len)) = numbers(outbox.frame(now, session)) {
                assert!(len <= REPORTS_PER_FRAME_MAX);
                up_to = first + len as u64 - 1;
            }
        }
        assert_eq!(outbox.deadline(), None);
    }
}
