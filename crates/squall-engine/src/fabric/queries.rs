//! Queries that pass through a node: it adds its own answer and those of its children, and sends up one.

use std::collections::BTreeSet;

use squall_model::id::{Epoch, NodeId};
use squall_model::series::{Series, Used};
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Health, Query, Tally, Test, Upward, Variable};

/// Queries that this node has passed down and not answered yet: usually one, never many.
#[derive(Debug, Default)]
pub(super) struct OpenQueries {
    queries: Vec<One>,
}

#[derive(Debug)]
struct One {
    /// Epoch of the controller and number of the query.
    key: (Epoch, u64),
    tally: Tally,
    test: Test,
    /// Connections of the children that have not answered.
    children: BTreeSet<u32>,
    /// Whether this node itself still has to answer the query.
    own: bool,
    /// Whether this node delays its own answer until the query's test holds.
    wait: bool,
    health: bool,
    until: Time,
}

impl OpenQueries {
    /// Adds a query that was sent to `children`, given by connection. `own`: whether this node itself is asked too.
    pub(super) fn open(&mut self, now: Time, query: &Query, children: BTreeSet<u32>, own: bool) {
        let key = (query.epoch, query.number);
        let one = One {
            key,
            tally: Tally::default(),
            test: query.test.clone(),
            children,
            own,
            wait: query.wait,
            health: query.health,
            until: now + Span(query.time_us),
        };
        self.queries.retain(|one| one.key != key);
        self.queries.reserve_exact(1);
        self.queries.push(one);
    }

    /// Adds the answer of a child to the results of the query `key`. Returns an answer that comes too late for that: the
    /// query is not open any more, or the child has answered before, for those of its nodes that were in time.
    pub(super) fn answer(&mut self, child: u32, key: (Epoch, u64), tally: Tally) -> Option<Tally> {
        let Some(one) = self.queries.iter_mut().find(|one| one.key == key) else { return Some(tally) };
        if !one.children.remove(&child) {
            return Some(tally);
        }
        one.tally.merge(&one.test.variable, &tally);
        None
    }

    /// Stops waiting for answers of a child that is gone, given by connection.
    pub(super) fn forget_child(&mut self, child: u32) {
        for one in &mut self.queries {
            one.children.remove(&child);
        }
    }

    /// Drops all queries, because the path to the controller has changed and their answers are no longer awaited.
    pub(super) fn clear(&mut self) {
        self.queries.clear();
    }

    /// Answers for this node where possible, and sends up each answer that is complete or overdue.
    pub(super) fn settle(
        &mut self,
        now: Time,
        node: Option<NodeId>,
        (value, used, health): (impl Fn(&Variable) -> i64, impl Fn(&Variable) -> Option<Used>, Health),
        says: &mut Vec<Upward>,
    ) {
        if self.queries.is_empty() {
            return;
        }
        let mut at = 0;
        while let Some(one) = self.queries.get_mut(at) {
            let late = one.until <= now;
            if let Some(node) = node.filter(|_| one.own) {
                one.answer_for(node, late, (&value, &used), health);
            }
            if late || (!one.own && one.children.is_empty()) {
                let One { key: (epoch, number), tally, .. } = self.queries.remove(at);
                // Memory for exactly one message: most frames hold one, and a rack has many frames under way at once.
                says.reserve_exact(1);
                says.push(Upward::Tally { epoch, number, tally });
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.queries.iter().map(|one| one.until).min()
    }
}

impl One {
    /// Adds this node's own answer to the results if the query's test holds or need not be waited for, if the tested
    /// value is final, or if the time is up.
    fn answer_for(
        &mut self,
        node: NodeId,
        late: bool,
        (value, used): (impl Fn(&Variable) -> i64, impl Fn(&Variable) -> Option<Used>),
        health: Health,
    ) {
        let test = &self.test;
        let value = value(&test.variable);
        let holds = test.comparison.holds(value, test.value);
        if !(holds || !self.wait || late || test.variable.is_final(value)) {
            return;
        }
        if holds {
            self.tally.yes.insert(node);
            if let Some(Used { usage, series }) = used(&test.variable) {
                self.tally.used.get_or_insert_default().absorb(&usage);
                Series::merge_into(&mut self.tally.series, series.as_deref());
            }
        } else {
            self.tally.no.insert(node);
            self.tally.witness = test.variable.reduce(self.tally.witness, Some((node, value)));
        }
        self.tally.health.extend(self.health.then_some((node, health)));
        self.own = false;
    }
}
