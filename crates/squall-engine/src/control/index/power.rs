//! Power of nodes: which nodes wait to be powered up or down, and how many may be at once. Soft state.

use std::collections::BTreeSet;

use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::control::index::pending::Pending;
use crate::control::index::reckon::eligible;
use crate::control::state::State;

/// Times of a node's power: its own partitions' where they have any, of which the longest counts, otherwise the
/// cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// After so long without a job the node is powered down. None: never.
    pub(crate) idle: Option<Span>,
    /// The node needs so long to go down.
    pub(crate) down: Span,
    /// The node has so long to come, or to reboot.
    pub(crate) up: Span,
}

impl Times {
    /// Returns the times of a node.
    pub(crate) fn of(state: &State, id: NodeId) -> Self {
        let (power, health) = (&state.config.power, &state.config.health);
        let own = || state.partitions.iter().filter(|one| one.nodes.contains(id)).map(|one| &one.config);
        let idle_s = own().filter_map(|one| one.suspend_time_s).map(|s| u64::try_from(s).unwrap_or(u64::MAX)).max();
        let idle_s = idle_s.map_or(power.suspend_time_s, |seconds| (seconds < u64::MAX).then_some(seconds));
        let down_s = own().filter_map(|one| one.suspend_timeout_s).max().unwrap_or(power.suspend_timeout_s);
        let up_s = own().filter_map(|one| one.resume_timeout_s).max().unwrap_or(health.resume_timeout_s);
        Self { idle: idle_s.map(Span::from_secs), down: Span::from_secs(down_s), up: Span::from_secs(up_s) }
    }
}

/// Returns until when a pending job gets only nodes that are powered up (`--delay-boot`). None: it may get others now.
pub(crate) fn boots_from(pending: &Pending<'_>) -> Option<Time> {
    let delay_s = pending.spec.options.get()?.delay_boot_s.filter(|seconds| *seconds > 0)?;
    Some(eligible(pending.submit, pending.spec, pending.standing) + Span::from_secs(delay_s))
}

/// Time in which a rate may fall behind and catch up. So nodes go up and down in groups, with a program for each group.
const BURST: Span = Span::from_secs(10);

/// Nodes that wait to be powered up or down.
#[derive(Debug, Default)]
pub(crate) struct Powers {
    /// Whether the configuration says anything about power.
    pub(crate) used: bool,
    /// Nodes that are never powered down for want of jobs.
    pub(crate) spared: NodeSet,
    /// Nodes of which a number stays up.
    pub(crate) kept: Vec<(NodeSet, usize)>,
    /// Nodes that jobs have left of which the partition has idle nodes powered down at once.
    pub(crate) spent: BTreeSet<NodeId>,
    /// Nodes to be powered down, as soon as the rate allows.
    pub(crate) sleepy: BTreeSet<NodeId>,
    /// Nodes to be powered up, as soon as the rate allows.
    pub(crate) wanted: BTreeSet<NodeId>,
    /// Nodes of which the time to come, to go or to idle is over.
    pub(crate) over: BTreeSet<NodeId>,
    /// Nodes that did not come in time, of which `ResumeFailProgram` was not told.
    pub(crate) failed: NodeSet,
    /// The rate of `SuspendRate`.
    pub(crate) down: Pace,
    /// The rate of `ResumeRate`.
    pub(crate) up: Pace,
}

/// A rate of nodes per minute.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the next node is due at an even pace.
    due: Time,
}

impl Pace {
    /// Takes nodes off a list as far as the rate allows; 0: no limit. Also returns when to look for the others.
    pub(crate) fn take(&mut self, now: Time, per_minute: u32, from: &mut BTreeSet<NodeId>) -> (NodeSet, Option<Time>) {
        let gap = Span(60_000_000_u64.checked_div(u64::from(per_minute)).unwrap_or(0));
        self.due = self.due.max(now - BURST);
        let mut taken = NodeSet::new();
        while self.due <= now
            && let Some(id) = from.pop_first()
        {
            taken.insert(id);
            self.due = self.due + gap;
        }
        (taken, (!from.is_empty()).then(|| self.due.max(now + BURST)))
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeId, Pace, Span, Time};

    #[test]
    fn a_rate_holds_over_time_and_groups_are_formed() {
        for per_minute in [1, 6, 60, 300] {
            let (mut pace, begin) = (Pace::default(), Time::from_secs(1000));
            let mut waiting = (0..10_000).map(NodeId).collect();
            let (mut now, mut taken, mut calls) = (begin, 0, 0);
            while now < begin + Span::from_secs(3600) {
                let (some, next) = pace.take(now, per_minute, &mut waiting);
                (taken, calls) = (taken + some.len(), calls + 1);
                now = next.unwrap_or(begin + Span::from_secs(3600));
            }
            let even = (60 * per_minute as usize).min(10_000);
            assert!(
                (even..=even + 1 + per_minute as usize / 6).contains(&taken) || taken == 10_000,
                "{per_minute}: {taken}"
            );
            assert!(calls <= 361, "{per_minute}: {calls} groups");
        }
        let mut waiting = (0..100).map(NodeId).collect();
        assert_eq!(Pace::default().take(Time(5), 0, &mut waiting).0.len(), 100);
    }
}
