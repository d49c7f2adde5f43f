//! Checks of the submit filter: each job has passed it once, and what it has refused does not happen.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::job::JobSpec;
use squall_model::wire::client::Refusal;

use super::Judge;
use crate::order::Order;
use crate::world::filter::{MARK, refuses_limit, refuses_order};

/// What the judge knows of a submit filter.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    /// Job orders whose users were told that the filter has refused them. None: there is no filter.
    refused: Option<BTreeSet<usize>>,
}

impl Filtered {
    /// `filter`: whether there is a filter.
    pub(super) fn of(filter: bool) -> Self {
        Self { refused: filter.then(BTreeSet::new) }
    }
}

impl Judge {
    /// Records that a user was told that a submission is refused.
    pub(crate) fn told_refused(&mut self, order: usize, refusal: &Refusal) {
        let Some(orders) = self.filtered.refused.as_mut().filter(|_| matches!(refusal, Refusal::Filtered(..))) else {
            return;
        };
        orders.insert(order);
        if let Some(id) = self.ids.get(&order) {
            self.violate("what the filter has refused is no job", format!("order {order} is job {id}"));
        }
    }

    /// Checks an event that became durable.
    pub(super) fn check_filtered(&mut self, event: &Event) {
        let Some(refused) = &self.filtered.refused else { return };
        match event {
            Event::JobSubmitted { id, spec, .. } => {
                let tag = Order::tag_of(spec);
                if tag.is_some_and(|tag| refuses_order(tag) || refused.contains(&tag)) {
                    self.violate("what the filter has refused is no job", format!("job {id} is of order {tag:?}"));
                } else if !is_marked_once(spec) {
                    self.violate("each job has passed the filter once", format!("job {id} is `{}`", spec.name));
                }
            }
            Event::JobUpdated { id, change, .. } => {
                if let Some(limit_s) = change.time_limit_s.flatten().filter(|limit_s| refuses_limit(*limit_s)) {
                    self.violate("a change that the filter refuses is not made", format!("job {id}: {limit_s} s"));
                }
            }
            _ => {}
        }
    }
}

fn is_marked_once(spec: &JobSpec) -> bool {
    spec.name.strip_suffix(MARK).is_some_and(|rest| !rest.contains(MARK))
}
