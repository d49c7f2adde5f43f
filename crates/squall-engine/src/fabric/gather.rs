//! Reports on their way up. One composite is under way at a time; what comes meanwhile is reduced into the next, so
//! an idle tree adds no wait, and a busy one sends the fewer messages the busier it is. What nodes owe for the same put
//! waits for one another: nobody above can do anything with a part of it, and so the end of a job comes as one message
//! from each child, however many nodes are below.

use std::collections::{BTreeMap, VecDeque};

use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Ask, Composite, Window};

/// Most composites under way at once, however old the first of them is: what comes then waits here, and is reduced.
const CREDIT: usize = 8;

/// Most reports that are known to be owed; beyond, all are taken as they come.
const OWED_MAX: usize = 4096;

/// A composite of a child, to be confirmed when what became of it is confirmed.
pub(super) type Owed = (u32, u64);

/// What waits, and what is under way.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Composites to be sent; more than one only where none are gathered.
    waiting: VecDeque<Waiting>,
    under_way: VecDeque<UnderWay>,
    last: u64,
    window: Window,
    /// Which nodes at and below this one have not reported yet what they owe.
    owe: BTreeMap<Ask, NodeSet>,
}

#[derive(Debug)]
struct Waiting {
    composite: Composite,
    owed: Vec<Owed>,
    since: Time,
    messages: usize,
    /// Nothing in it is whole: the rest is to be waited for.
    partial: bool,
    /// All of it is shared with nodes elsewhere: relays above may hold it until they have reported.
    shared: bool,
}

#[derive(Debug)]
struct UnderWay {
    batch: u64,
    shared: bool,
    owed: Vec<Owed>,
}

impl Gather {
    /// A new way up: what was under way on the old one is for those to repeat who reported it.
    pub(super) fn restart(&mut self, window: Window) {
        *self = Self { window, ..Self::default() };
    }

    /// The window in force.
    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// A put went down for which these nodes owe reports.
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

    /// Nothing can come from these nodes any more.
    pub(super) fn give_up(&mut self, nodes: &NodeSet) {
        if nodes.is_empty() {
            return;
        }
        self.owe.retain(|_, owe| {
            owe.subtract(nodes);
            !owe.is_empty()
        });
    }

    /// Crosses off what is reported. Whether all of it is part of something of which more is to come, and whether all
    /// of it is owed by several nodes.
    fn cross_off(&mut self, composite: &Composite) -> (bool, bool) {
        let Composite { lost, ended, failed, gone, knocks, registrations, newer, reports: _ } = composite;
        let plain = lost.is_empty() && failed.is_empty() && knocks.is_empty();
        let other = !(plain && registrations.is_empty() && newer.is_empty());
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

    /// Adds reports.
    pub(super) fn add(&mut self, now: Time, composite: Composite, owed: Option<Owed>) {
        if composite.is_empty() && owed.is_none() {
            return;
        }
        let (partial, shared) = self.cross_off(&composite);
        if let Some(waiting) = self.waiting.back_mut().filter(|_| self.window.messages > 1) {
            waiting.composite.merge(composite);
            waiting.owed.extend(owed);
            waiting.messages += 1;
            waiting.partial &= partial;
            waiting.shared &= shared;
        } else {
            let owed = owed.into_iter().collect();
            self.waiting.push_back(Waiting { composite, owed, since: now, messages: 1, partial, shared });
        }
    }

    /// A child is gone: nodes that knocked through it can't be answered on that way.
    pub(super) fn forget_child(&mut self, link: u32) {
        for waiting in &mut self.waiting {
            waiting.composite.knocks.retain(|(route, _)| route.last() != Some(&link));
            waiting.owed.retain(|(child, _)| *child != link);
        }
        for under_way in &mut self.under_way {
            under_way.owed.retain(|(child, _)| *child != link);
        }
    }

    /// The composite to be sent now, if any; to be called until None.
    pub(super) fn take(&mut self, now: Time) -> Option<(u64, Composite)> {
        let first = self.waiting.front()?;
        let full = first.messages >= self.window.messages as usize || first.since + self.age_max() <= now;
        // What may be held above holds up nothing else; nor is a node kept out by what was reported of others.
        let idle = self.under_way.iter().all(|one| one.shared);
        let ripe = (idle && !first.partial) || full || first.composite.lets_in();
        let due = self.window.messages <= 1 || first.composite.is_urgent() || (ripe && self.under_way.len() < CREDIT);
        if !due {
            return None;
        }
        let Waiting { composite, owed, shared, .. } = self.waiting.pop_front()?;
        self.last += 1;
        self.under_way.push_back(UnderWay { batch: self.last, shared, owed });
        Some((self.last, composite))
    }

    fn age_max(&self) -> Span {
        Span::from_millis(u64::from(self.window.time_ms))
    }

    /// A composite, and all before it, is with the controller: so are these of the children.
    pub(super) fn taken(&mut self, batch: u64) -> Vec<Owed> {
        let mut owed = Vec::new();
        while self.under_way.front().is_some_and(|first| first.batch <= batch) {
            owed.extend(self.under_way.pop_front().into_iter().flat_map(|first| first.owed));
        }
        owed
    }

    /// When the first that waits has waited long enough.
    pub(super) fn deadline(&self) -> Option<Time> {
        let first = self.waiting.front().filter(|_| self.under_way.len() < CREDIT)?;
        Some(first.since + self.age_max())
    }
}
