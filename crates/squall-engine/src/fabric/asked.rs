//! Queries that pass through a node: answered for itself, awaited from its children, reduced into one answer.

use std::collections::BTreeSet;

use squall_model::id::{Epoch, NodeId};
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Health, Query, Tally, Test, Variable};

/// Queries under way: one as a rule, and never many.
#[derive(Debug, Default)]
pub(super) struct Asked {
    queries: Vec<One>,
}

#[derive(Debug)]
struct One {
    /// Incarnation and number.
    key: (Epoch, u64),
    tally: Tally,
    variable: Variable,
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
        let key = (query.epoch, query.number);
        let one = One {
            key,
            tally: Tally::default(),
            variable: query.test.variable.clone(),
            children,
            own: own.then(|| (query.test.clone(), query.wait)),
            health: query.health,
            until: now + Span(query.time_us),
        };
        self.queries.retain(|one| one.key != key);
        self.queries.reserve_exact(1);
        self.queries.push(one);
    }

    /// A child's answer.
    pub(super) fn answer(&mut self, child: u32, key: (Epoch, u64), tally: &Tally) {
        if let Some(one) = self.queries.iter_mut().find(|one| one.key == key)
            && one.children.remove(&child)
        {
            one.tally.merge(&one.variable, tally);
        }
    }

    /// A child is gone, and its answers with it.
    pub(super) fn forget_child(&mut self, child: u32) {
        for one in &mut self.queries {
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
        let mut at = 0;
        while let Some(one) = self.queries.get_mut(at) {
            let late = one.until <= now;
            if let Some(node) = node {
                one.answer_for(node, late, &value, health);
            }
            if late || (one.own.is_none() && one.children.is_empty()) {
                let one = self.queries.remove(at);
                complete.push((one.key, one.tally));
            } else {
                at += 1;
            }
        }
        if self.queries.is_empty() {
            // Nodes are many, and most of the time nobody asks.
            self.queries = Vec::new();
        }
        complete
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.queries.iter().map(|one| one.until).min()
    }
}

impl One {
    /// This node's own answer, if it can be given already or must be given now.
    fn answer_for(&mut self, node: NodeId, late: bool, value: impl Fn(&Variable) -> i64, health: Health) {
        let Some((test, wait)) = &self.own else { return };
        let value = value(&test.variable);
        let holds = test.comparison.holds(value, test.value);
        if !(holds || !wait || late || test.variable.is_final(value)) {
            return;
        }
        if holds {
            self.tally.yes.insert(node);
        } else {
            self.tally.no.insert(node);
            self.tally.witness = self.variable.reduce(self.tally.witness, Some((node, value)));
        }
        self.tally.health.extend(self.health.then_some((node, health)));
        self.own = None;
    }
}
