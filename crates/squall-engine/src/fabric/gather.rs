//! Reports on their way up the tree to the controller.
//!
//! Reports travel in composites, which are messages of merged reports. One composite is under way at a time, and
//! reports that come meanwhile are merged into the next one. So an idle tree adds no delay, and a busier one sends
//! fewer messages. Reports that nodes owe for the same put (a command to a set of nodes) wait for one another, since a
//! part of them is of no use above. So the end of a job comes as one message from each child, however many nodes are
//! below.

use std::collections::{BTreeMap, VecDeque};

use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Ask, Composite, Window};

/// Most composites (messages of merged reports) that may be unacknowledged at once, even if a waiting one has reached
/// its maximum age. Further reports wait here and are merged.
const CREDIT: usize = 8;

/// Most jobs and steps for which owed reports are tracked. Reports about further ones are sent as they come.
const OWED_MAX: usize = 4096;

/// A child's composite (message of merged reports): the child's connection and the composite's number. It is
/// acknowledged once the parent has acknowledged the composite that it was merged into.
pub(super) type Owed = (u32, u64);

/// Composites (messages of merged reports) that wait to be sent to the parent, and those that it has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Composites to be sent, oldest first. More than one only if merging is off.
    waiting: VecDeque<Waiting>,
    under_way: VecDeque<UnderWay>,
    last: u64,
    window: Window,
    /// For each job or step that is to end, the nodes at and below this one that have not reported it yet.
    owe: BTreeMap<Ask, NodeSet>,
}

#[derive(Debug)]
struct Waiting {
    composite: Composite,
    owed: Vec<Owed>,
    since: Time,
    /// When the oldest report in it was made, by the time that it says it has waited.
    oldest: Time,
    messages: usize,
    /// Whether every report in the composite waits for reports of other nodes about the same job or step, so that it is
    /// held back.
    partial: bool,
    /// Whether all reports in the composite are about jobs and steps of which this relay tracks the end. Relays above
    /// may hold it until further nodes have reported.
    shared: bool,
}

#[derive(Debug)]
struct UnderWay {
    batch: u64,
    shared: bool,
    owed: Vec<Owed>,
}

impl Gather {
    /// Starts over because the path to the controller is new. Reports under way on the old path are sent again by the
    /// nodes that made them.
    pub(super) fn restart(&mut self, window: Window) {
        *self = Self { window, ..Self::default() };
    }

    /// Returns the limits on the number and age of reports that are merged at present.
    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// Records that `nodes` owe reports about the jobs and steps `asks`, because a put (command) that asks for them was
    /// passed down.
    pub(super) fn expect(&mut self, asks: &[Ask], nodes: &NodeSet) {
        if nodes.is_empty() || self.window.messages <= 1 {
            return;
        }
        if self.owe.len() >= OWED_MAX {
            self.owe.clear();
        }
        for ask in asks {
            self.owe.entry(*ask).or_default().union_with(nodes);
        }
    }

    /// Records that no report can come from these nodes any more.
    pub(super) fn give_up(&mut self, nodes: &NodeSet) {
        if nodes.is_empty() {
            return;
        }
        self.owe.retain(|_, owe| {
            owe.subtract(nodes);
            !owe.is_empty()
        });
    }

    /// Removes the reports of a composite from those that are owed. Returns two flags: whether other nodes still owe
    /// reports about every job and step in it, and whether all its reports were owed.
    fn cross_off(&mut self, composite: &Composite) -> (bool, bool) {
        let Composite { lost, ended, failed, gone, knocks, registrations, newer, reports: _, waited_us: _, notes } =
            composite;
        let plain = lost.is_empty() && failed.is_empty() && knocks.is_empty();
        let other = !(plain && registrations.is_empty() && newer.is_empty() && notes.is_none());
        let mut shared = !(other || ended.is_empty() && gone.is_empty());
        let mut partial = shared;
        let ended = ended.iter().flat_map(|(key, ends)| ends.iter().map(|(nodes, _)| (Ask::Step(*key), nodes)));
        for (ask, nodes) in ended.chain(gone.iter().map(|(job, nodes)| (Ask::Job(*job), nodes))) {
            let Some(owe) = self.owe.get_mut(&ask) else {
                (partial, shared) = (false, false);
                continue;
            };
            owe.subtract(nodes);
            if owe.is_empty() {
                self.owe.remove(&ask);
                partial = false;
            }
        }
        (partial, shared)
    }

    /// Adds a composite (message of merged reports) to those to be sent. `owed`: the child that sent it, with the
    /// composite's number; None: this node made it.
    pub(super) fn add(&mut self, now: Time, composite: Composite, owed: Option<Owed>) {
        if composite.is_empty() && owed.is_none() {
            return;
        }
        let (partial, shared) = self.cross_off(&composite);
        let made = Time(now.0.saturating_sub(composite.waited_us));
        if let Some(waiting) = self.waiting.back_mut().filter(|_| self.window.messages > 1) {
            waiting.oldest = waiting.oldest.min(made);
            waiting.composite.merge(composite);
            waiting.owed.extend(owed);
            waiting.messages += 1;
            waiting.partial &= partial;
            waiting.shared &= shared;
        } else {
            let owed = owed.into_iter().collect();
            self.waiting.push_back(Waiting { composite, owed, since: now, oldest: made, messages: 1, partial, shared });
        }
    }

    /// Forgets a child that is gone: its composites are not acknowledged any more, and registration requests through it
    /// are dropped, because their answers could not reach it.
    pub(super) fn forget_child(&mut self, link: u32) {
        for waiting in &mut self.waiting {
            waiting.composite.knocks.retain(|(route, _)| route.last() != Some(&link));
            waiting.owed.retain(|(child, _)| *child != link);
        }
        for under_way in &mut self.under_way {
            under_way.owed.retain(|(child, _)| *child != link);
        }
    }

    /// Returns the next composite that is due, and its number. The caller repeats the call until it returns None.
    pub(super) fn take(&mut self, now: Time) -> Option<(u64, Composite)> {
        let first = self.waiting.front()?;
        let full = first.messages >= self.window.messages as usize || first.since + self.age_max() <= now;
        // Composites that may be held above delay no others, and reports about other nodes delay no registration.
        let idle = self.under_way.iter().all(|one| one.shared);
        let ripe = (idle && !first.partial) || full || first.composite.lets_in();
        let due = self.window.messages <= 1 || first.composite.is_urgent() || (ripe && self.under_way.len() < CREDIT);
        if !due {
            return None;
        }
        let Waiting { mut composite, owed, shared, oldest, .. } = self.waiting.pop_front()?;
        composite.waited_us = now.since(oldest).0;
        self.last += 1;
        self.under_way.push_back(UnderWay { batch: self.last, shared, owed });
        Some((self.last, composite))
    }

    fn age_max(&self) -> Span {
        Span::from_millis(u64::from(self.window.time_ms))
    }

    /// Handles the parent's acknowledgement of the composite number `batch` and of all before it. Returns the
    /// children's composites that were merged into these.
    pub(super) fn taken(&mut self, batch: u64) -> Vec<Owed> {
        let mut owed = Vec::new();
        while self.under_way.front().is_some_and(|first| first.batch <= batch) {
            owed.extend(self.under_way.pop_front().into_iter().flat_map(|first| first.owed));
        }
        owed
    }

    /// Returns when the oldest waiting composite reaches its maximum age. None: no composite waits, or too many are
    /// unacknowledged.
    pub(super) fn deadline(&self) -> Option<Time> {
        let first = self.waiting.front().filter(|_| self.under_way.len() < CREDIT)?;
        Some(first.since + self.age_max())
    }
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;
    use squall_model::wire::fabric::{Composite, Window};

    use super::Gather;

    #[test]
    fn a_composite_says_how_long_its_oldest_report_has_waited() {
        let mut gather = Gather::default();
        gather.restart(Window { messages: 2, time_ms: 1000 });
        let report = |waited_us| Composite { reports: 1, waited_us, ..Composite::default() };
        gather.add(Time(10_000), report(0), None);
        gather.add(Time(11_000), report(4_000), Some((1, 1)));
        let (_, composite) = gather.take(Time(11_500)).unwrap();
        assert_eq!((composite.reports, composite.waited_us), (2, 4_500));
    }
}
