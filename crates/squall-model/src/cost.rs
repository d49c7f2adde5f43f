//! What failures of nodes cost a job: time lost by cause, and which part of its run time was not lost.

use minicbor::{Decode, Encode};

use crate::time::{Span, Time};

/// A node that a job lost, and what followed. What a job lost follows from these facts alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Loss {
    /// When work of the job was last kept: at its last progress, or else at the start of what was stopped.
    #[n(0)]
    pub kept: Time,
    /// When the node was heard last.
    #[n(1)]
    pub heard: Time,
    /// When the job gave up the node.
    #[n(2)]
    pub lost: Time,
    /// When the job got a node for it. None: it needed or got none.
    #[n(3)]
    pub replaced: Option<Time>,
    /// When a step started again, or the run of the job ended. None: neither has happened.
    #[n(4)]
    pub again: Option<Time>,
}

/// Nodes that a job has lost until the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Losses {
    /// Duration of the job's runs before this one.
    #[n(0)]
    pub earlier: Span,
    /// The losses, in the order of time.
    #[n(1)]
    pub losses: Vec<Loss>,
}

/// Time lost with nodes, by cause. A moment counts once, even if several nodes failed at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LostTime {
    /// From the last message of a node until the job gave it up.
    #[n(0)]
    pub detect: Span,
    /// Until the job had another node.
    #[n(1)]
    pub replace: Span,
    /// Until its step started again.
    #[n(2)]
    pub launch: Span,
    /// Work between the last progress and the last message of the node.
    #[n(3)]
    pub work: Span,
}

impl LostTime {
    /// Returns what was lost until `end`.
    pub fn until(end: Time, losses: &[Loss]) -> Self {
        let mut lost = Self::default();
        let mut losses = losses.to_vec();
        losses.sort_by_key(|loss| (loss.heard, loss.lost));
        // Times that are counted, in their order.
        let mut counted: Vec<(Time, Time)> = Vec::new();
        for Loss { kept, heard, lost: given_up, replaced, again } in losses {
            let again = again.unwrap_or(end);
            // A job that goes on without the node waits for none.
            let replaced = replaced.unwrap_or(if again < end { given_up } else { end });
            let mut from = kept;
            let LostTime { detect, replace, launch, work } = &mut lost;
            for (sum, until) in [(work, heard), (detect, given_up), (replace, replaced), (launch, again)] {
                let until = until.min(again).min(end).max(from);
                sum.0 += left(&counted, from, until).0;
                from = until;
            }
            counted.insert(counted.partition_point(|(start, _)| *start < kept), (kept, from));
        }
        lost
    }

    /// Returns the time lost by all causes.
    pub fn sum(&self) -> Span {
        Span(self.causes().into_iter().fold(0, |sum, (_, span)| span.0.saturating_add(sum)))
    }

    /// Returns the time lost by each cause, with its name.
    pub fn causes(&self) -> [(&'static str, Span); 4] {
        [("work", self.work), ("detect", self.detect), ("replace", self.replace), ("launch", self.launch)]
    }

    /// Returns the sums of what was lost here and elsewhere.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns what was lost since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn with(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        let of = |cause: fn(&Self) -> Span| Span(join(cause(self).0, cause(other).0));
        Self { detect: of(|l| l.detect), replace: of(|l| l.replace), launch: of(|l| l.launch), work: of(|l| l.work) }
    }
}

/// Returns how much of the time between `from` and `until` is not counted. `counted` is in the order of starts.
fn left(counted: &[(Time, Time)], mut from: Time, until: Time) -> Span {
    let mut left = Span(0);
    for (start, end) in counted.iter().take_while(|(start, _)| *start < until) {
        left.0 += start.since(from).0;
        from = from.max(*end);
    }
    Span(left.0 + until.since(from).0)
}

/// Time that jobs ran, and what of it they lost with nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time lost.
    pub lost: LostTime,
    /// Duration of all runs. Waiting in the queue does not count.
    pub total: Span,
}

impl Cost {
    /// Returns the effective training time ratio: the part of the run time that was not lost, from 0 to 1.
    pub fn ettr(&self) -> f64 {
        if self.total.0 == 0 {
            return 1.0;
        }
        self.total.0.saturating_sub(self.lost.sum().0) as f64 / self.total.0 as f64
    }

    /// Adds what another job lost.
    pub fn add(&mut self, other: &Self) {
        self.lost = self.lost.plus(&other.lost);
        self.total.0 = self.total.0.saturating_add(other.total.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Loss, LostTime};
    use crate::time::{Span, Time};

    fn at(seconds: u64) -> Time {
        Time::from_secs(1000 + seconds)
    }

    fn loss(kept: u64, heard: u64, lost: u64, replaced: Option<u64>, again: Option<u64>) -> Loss {
        Loss { kept: at(kept), heard: at(heard), lost: at(lost), replaced: replaced.map(at), again: again.map(at) }
    }

    fn lost(losses: &[Loss]) -> LostTime {
        LostTime::until(at(1000), losses)
    }

    /// Seconds of work, detect, replace and launch.
    fn seconds(losses: &[Loss]) -> [u64; 4] {
        lost(losses).causes().map(|(_, span)| span.secs())
    }

    #[test]
    fn each_cause_has_its_time() {
        assert_eq!(seconds(&[]), [0; 4]);
        assert_eq!(seconds(&[loss(100, 160, 190, Some(192), Some(195))]), [60, 30, 2, 3]);
        // The job goes on without the node, or its end comes before another node.
        assert_eq!(seconds(&[loss(100, 160, 190, None, Some(195))]), [60, 30, 0, 5]);
        assert_eq!(seconds(&[loss(900, 960, 970, None, None)]), [60, 10, 30, 0]);
        assert_eq!(seconds(&[loss(900, 960, 970, Some(980), None)]), [60, 10, 10, 20]);
        // The work began after the last message of the node.
        assert_eq!(seconds(&[loss(170, 160, 190, Some(190), Some(195))]), [0, 20, 0, 5]);
    }

    #[test]
    fn a_moment_is_lost_once() {
        let two = [loss(100, 160, 190, Some(192), Some(200)), loss(100, 165, 191, Some(196), Some(200))];
        assert_eq!(seconds(&two), [60, 30, 2, 8]);
        // The second one fails before anything was kept again.
        let two = [loss(100, 160, 190, Some(190), Some(200)), loss(200, 220, 230, Some(230), Some(240))];
        assert_eq!(seconds(&two), [80, 40, 0, 20]);
        assert_eq!(LostTime::until(at(210), &two).sum(), Span::from_secs(110));
    }

    #[test]
    fn a_run_that_starts_again_loses_also_what_steps_before_have_done() {
        let two = [loss(100, 160, 190, Some(190), Some(200)), loss(0, 300, 310, None, Some(310))];
        assert_eq!(seconds(&two), [260, 40, 0, 10]);
        let more = lost(&two).since(&lost(&two[..1]));
        assert_eq!(more.causes().map(|(_, span)| span.secs()), [200, 10, 0, 0]);
    }

    #[test]
    fn the_ratio_is_what_was_not_lost() {
        let cost = Cost { lost: lost(&[loss(100, 160, 190, Some(190), Some(200))]), total: Span::from_secs(1000) };
        assert!((cost.ettr() - 0.9).abs() < 1e-9);
        assert!((Cost::default().ettr() - 1.0).abs() < 1e-9);
        let mut sum = cost;
        sum.add(&Cost { total: Span::from_secs(1000), ..Cost::default() });
        assert!((sum.ettr() - 0.95).abs() < 1e-9);
    }
}
