//! Reports on their way up. One composite is under way at a time; what comes meanwhile is reduced into the next, so
//! an idle tree adds no wait, and a busy one sends the fewer messages the busier it is.

use std::collections::VecDeque;

use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Composite, Window};

/// Most composites under way at once, however old the first of them is: what comes then waits here, and is reduced.
const CREDIT: usize = 8;

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
}

#[derive(Debug)]
struct Waiting {
    composite: Composite,
    owed: Vec<Owed>,
    since: Time,
    messages: usize,
}

#[derive(Debug)]
struct UnderWay {
    batch: u64,
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

    /// Adds reports.
    pub(super) fn add(&mut self, now: Time, composite: Composite, owed: Option<Owed>) {
        if composite.is_empty() && owed.is_none() {
            return;
        }
        if let Some(waiting) = self.waiting.back_mut().filter(|_| self.window.messages > 1) {
            waiting.composite.merge(composite);
            waiting.owed.extend(owed);
            waiting.messages += 1;
        } else {
            let owed = owed.into_iter().collect();
            self.waiting.push_back(Waiting { composite, owed, since: now, messages: 1 });
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
        let due = self.under_way.is_empty()
            || self.window.messages <= 1
            || first.composite.is_urgent()
            || (full && self.under_way.len() < CREDIT);
        if !due {
            return None;
        }
        let Waiting { composite, owed, .. } = self.waiting.pop_front()?;
        self.last += 1;
        self.under_way.push_back(UnderWay { batch: self.last, owed });
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
