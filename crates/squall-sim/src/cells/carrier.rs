//! The front's cross-cell relay (`Courier`) in a simulation of cells, and the cells' accounting answers to it.

use std::sync::Arc;

use squall_engine::front::{Courier, Errands, News};
use squall_model::event::{Event, Record};
use squall_model::foreign::{Question, Reply};
use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::time::Span;
use squall_model::wire::client::{AccountingQuery, Answer, AnyRequest, JobRef, Request};
use squall_model::wire::info::AccountingRow;

use super::{CellLink, Happening, World};
use crate::mutation::Mutation;

/// Session number that stands for connections of the front's cross-cell relay, which belong to no client.
pub(super) const COURIER: u64 = 0;
/// Pause before the relay reconnects to a cell.
const AGAIN: Span = Span::from_secs(1);

impl World {
    /// Starts the front: its relay connects to all cells.
    pub(super) fn front_starts(&mut self) {
        if std::mem::replace(&mut self.front_up, true) {
            return;
        }
        self.courier = Some(Courier::new(Arc::clone(&self.fixed)));
        for cell in self.cells.keys().copied().collect::<Vec<_>>() {
            self.courier_calls(cell);
        }
    }

    pub(super) fn courier_calls(&mut self, cell: u32) {
        if self.courier.is_none() || self.courier_links.contains_key(&cell) {
            return;
        }
        self.numbers += 1;
        let link = self.numbers;
        self.links.insert(link, CellLink { session: COURIER, cell, met: None, waiting: Vec::new() });
        self.courier_links.insert(cell, link);
        self.under_way(link, true, Happening::LinkMeets { link });
        self.courier_hears(News::Met { cell });
    }

    pub(super) fn courier_hears(&mut self, news: News) {
        let Some(courier) = &mut self.courier else { return };
        let met = matches!(news, News::Met { .. });
        let mut errands = Errands::default();
        courier.step(news, &mut errands);
        for (cell, request) in errands.sends {
            let unasked = self.mutation == Some(Mutation::ForeignUnasked) && met;
            let questions = |request: &Request| matches!(request, Request::Resolve { .. });
            if unasked && matches!(&request, AnyRequest::Machine(request) if questions(request)) {
                continue;
            }
            let Some(&link) = self.courier_links.get(&cell) else { continue };
            self.send_over(link, request);
        }
        for cell in errands.drops {
            let link = self.courier_links.get(&cell).copied();
            self.end_link(link, true);
        }
    }

    /// Delivers a cell's answer to the relay. Planted bugs may change the answer.
    pub(super) fn courier_told(&mut self, cell: u32, answer: Answer) {
        let answer = match (self.mutation, answer) {
            (Some(Mutation::ForeignEndLost), Answer::Resolved(_)) if self.seed.chance(300_000) => return,
            (Some(Mutation::ForeignForgotten), Answer::Resolved(mut replies)) => {
                replies.iter_mut().filter(|(_, reply)| *reply == Reply::Forgotten).for_each(|pair| {
                    pair.1 = Reply::Unknown;
                });
                Answer::Resolved(replies)
            }
            (_, answer) => answer,
        };
        if let Answer::Unresolved(questions) = &answer {
            let invented = |question: &Question| match (self.mutation, question) {
                (Some(Mutation::ForeignEndInvented), Question::Ended(_)) => Some(Reply::Ended { well: true }),
                (Some(Mutation::SingleInItsCell), Question::Alone { .. }) => Some(Reply::Alone),
                _ => None,
            };
            let replies = questions.iter().filter_map(|question| Some((question.clone(), invented(question)?)));
            let replies: Vec<(Question, Reply)> = replies.collect();
            if let Some(&link) = self.courier_links.get(&cell).filter(|_| !replies.is_empty()) {
                self.send_over(link, Request::Resolved { replies }.into());
            }
        }
        self.courier_hears(News::Told { cell, answer: Box::new(answer) });
    }

    /// Reports the end of connection `link` to the relay, which reconnects later.
    pub(super) fn courier_loses(&mut self, cell: u32, link: u64) {
        if self.courier_links.get(&cell) != Some(&link) {
            return;
        }
        self.courier_links.remove(&cell);
        self.courier_hears(News::Lost { cell });
        self.after(AGAIN, Happening::CourierCalls { cell });
    }
}

/// Answers an accounting query for jobs from the records on the disk of the cell that ran them.
pub(super) fn accounting(disk: &[Record], query: &AccountingQuery) -> Answer {
    let ids = query.ids.iter().map(|id| match id {
        JobRef::Job(id) | JobRef::Tasks(id, _) | JobRef::Component(id, _) => *id,
    });
    let rows = ids.filter_map(|id| row(disk, id)).collect();
    Answer::Accounting { rows, more: false, lost: Vec::new() }
}

fn row(disk: &[Record], job: JobId) -> Option<AccountingRow> {
    let mut found = None;
    for (time, event) in disk.iter().flat_map(|record| record.events.iter().map(move |event| (record.time, event))) {
        match (event, &mut found) {
            (Event::JobSubmitted { id, owner, spec, .. }, _) if *id == job => {
                found = Some(AccountingRow::submitted(job, time, Arc::clone(owner), Arc::clone(spec)));
            }
            (Event::JobStarted { id, .. }, Some(row)) if *id == job => {
                (row.start, row.state) = (Some(time), JobState::Running);
            }
            (Event::JobEnding { id, outcome, .. }, Some(row)) if *id == job => {
                (row.end, row.state) = (Some(time), JobState::Ended(outcome.state));
            }
            _ => {}
        }
    }
    found
}
