//! Queries that pass through a node: answered for itself, awaited from its children, reduced into one answer.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{Epoch, NodeId};
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Health, Query, Tally, Test, Variable};

/// Queries under way, by incarnation and number.
#[derive(Debug, Default)]
pub(super) struct Asked {
    queries: BTreeMap<(Epoch, u64), One>,
}

#[derive(Debug)]
struct One {
    tally: Tally,
    /// Children that have not answered.
    children: BTreeSet<u32>,
    /// What this node itself still has to answer.
    own: Option<(Test, bool)>,
    health: bool,
    until: Time,
}

/// An answer to be sent up.
pub(super) type Answer = ((Epoch, u64), Tally);

impl Asked {
    /// A query came; `children` are asked too, `own`: so is this node.
    pub(super) fn open(&mut self, now: Time, query: &Query, children: BTreeSet<u32>, own: bool) {
        let one = One {
            tally: Tally::default(),
            children,
            own: own.then(|| (query.test.clone(), query.wait)),
            health: query.health,
            until: now + Span(query.time_us),
        };
        self.queries.insert((query.epoch, query.number), one);
    }

    /// A child's answer.
    pub(super) fn answer(&mut self, child: u32, key: (Epoch, u64), tally: &Tally) {
        if let Some(one) = self.queries.get_mut(&key)
            && one.children.remove(&child)
        {
            one.tally.merge(tally);
        }
    }

    /// A child is gone, and its answers with it.
    pub(super) fn forget_child(&mut self, child: u32) {
        for one in self.queries.values_mut() {
            one.children.remove(&child);
        }
    }

    /// The way up is another one: nobody waits for these answers.
    pub(super) fn clear(&mut self) {
        self.queries.clear();
    }

    /// Answers for this node where that is possible, and takes out what is complete or whose time is up.
    pub(super) fn settle(
        &mut self,
        now: Time,
        node: Option<NodeId>,
        value: impl Fn(&Variable) -> i64,
        health: Health,
    ) -> Vec<Answer> {
        if self.queries.is_empty() {
            return Vec::new();
        }
        let mut complete = Vec::new();
        for (&key, one) in &mut self.queries {
            let late = one.until <= now;
            if let Some(((test, wait), node)) = one.own.as_ref().zip(node) {
                let value = value(&test.variable);
                let holds = test.comparison.holds(value, test.value);
                if holds || !wait || late || test.variable.is_final(value) {
                    if holds {
                        one.tally.yes.insert(node);
                    } else {
                        one.tally.no.insert(node);
                        one.tally.witness = Some((node, value));
                    }
                    one.tally.health.extend(one.health.then_some((node, health)));
                    one.own = None;
                }
            }
            if late || (one.own.is_none() && one.children.is_empty()) {
                complete.push(key);
            }
        }
        complete.into_iter().filter_map(|key| Some((key, self.queries.remove(&key)?.tally))).collect()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.queries.values().map(|one| one.until).min()
    }
}
