//! The courier: carries questions of cells to other cells, and the answers back, over a connection to each.
//!
//! It holds only open questions, and their loss does no harm: on a new connection a cell repeats its questions and is
//! asked again. Each question has one answer, which the cell that asked records. A second copy of it changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::foreign::{Named, Question, Reply};
use squall_model::job::{EndState, JobState};
use squall_model::limits::QUESTIONS_MAX;
use squall_model::set::IndexSet;
use squall_model::wire::client::{AccountingQuery, Answer, AnyRequest, HostRequest, JobRef, Request};
use squall_model::wire::info::AccountingRow;

use super::Cells;

/// Input of the courier, which carries questions between cells.
#[derive(Clone, Debug)]
pub enum News {
    /// A new connection to a cell is open. From now on the courier is given the cell's answers, and the end of the
    /// connection.
    Met {
        /// Number of the cell.
        cell: u32,
    },
    /// The connection to a cell has ended.
    Lost {
        /// Number of the cell.
        cell: u32,
    },
    /// A cell sends an answer.
    Told {
        /// Number of the cell.
        cell: u32,
        /// Answer that the cell sent.
        answer: Box<Answer>,
    },
}

/// Output of the courier, which carries questions between cells.
#[derive(Debug, Default)]
pub struct Errands {
    /// Requests to send, each with the number of its cell.
    pub sends: Vec<(u32, AnyRequest)>,
    /// Cells with a connection that is to be closed, and reopened after a while: the cell can't answer now.
    pub drops: Vec<u32>,
}

/// State of the courier: questions of cells to other cells that are under way.
#[derive(Debug)]
pub struct Courier {
    cells: Arc<Cells>,
    open: BTreeMap<Question, Open>,
    /// For each cell, the questions that wait for its accounting, asked one after the other, and the rows that have
    /// come for the first.
    lookups: BTreeMap<u32, (VecDeque<Question>, Vec<AccountingRow>)>,
}

/// Cells involved in a question that is not answered yet.
#[derive(Debug, Default)]
struct Open {
    /// Cells that asked the question.
    from: BTreeSet<u32>,
    /// Cells that have not answered the question yet.
    to: BTreeSet<u32>,
}

impl Courier {
    /// Makes a courier for these cells, without connections.
    pub fn new(cells: Arc<Cells>) -> Self {
        Self { cells, open: BTreeMap::new(), lookups: BTreeMap::new() }
    }

    /// Handles an input; adds the resulting requests to `errands`.
    pub fn step(&mut self, news: News, errands: &mut Errands) {
        match news {
            News::Met { cell } => self.met(cell, errands),
            News::Lost { cell } => self.lost(cell),
            News::Told { cell, answer } => self.told(cell, *answer, errands),
        }
    }

    fn met(&mut self, cell: u32, errands: &mut Errands) {
        errands.sends.push((cell, Request::Unresolved.into()));
        let owed = self.open.iter().filter(|(_, open)| open.to.contains(&cell));
        ask(cell, &owed.map(|(question, _)| question.clone()).collect::<Vec<_>>(), errands);
    }

    fn lost(&mut self, cell: u32) {
        self.lookups.remove(&cell);
        self.open.retain(|_, open| {
            open.from.remove(&cell);
            !open.from.is_empty()
        });
    }

    fn told(&mut self, cell: u32, answer: Answer, errands: &mut Errands) {
        match answer {
            Answer::Unresolved(questions) => self.wanted(cell, questions, errands),
            Answer::Resolved(replies) => {
                let mut news = Vec::new();
                for (question, reply) in replies {
                    news.extend(self.answered(cell, question, reply, errands));
                }
                self.bring(news, errands);
            }
            Answer::Accounting { rows, more, .. } => {
                // because an answer may come after the connection was lost that the question was asked on
                let Some((_, come)) = self.lookups.get_mut(&cell) else { return };
                come.extend(rows);
                if !more {
                    let found = self.looked_up(cell, errands);
                    self.bring(found.into_iter().collect(), errands);
                }
            }
            Answer::Refused(_) => errands.drops.push(cell),
            _ => {}
        }
    }

    /// Handles questions that `cell` has for other cells.
    fn wanted(&mut self, cell: u32, questions: Vec<Question>, errands: &mut Errands) {
        let (mut fresh, mut news): (BTreeMap<u32, Vec<Question>>, _) = (BTreeMap::new(), Vec::new());
        for question in questions {
            let known = self.open.contains_key(&question);
            let open = self.open.entry(question.clone()).or_default();
            open.from.insert(cell);
            if known {
                continue;
            }
            match &question {
                Question::Started(named) | Question::Ended(named) => open.to.insert(self.cells.of(named.id)),
                Question::Alone { .. } => {
                    open.to.extend(self.cells.numbers().filter(|other| *other != cell));
                    false
                }
            };
            open.to.iter().for_each(|to| fresh.entry(*to).or_default().push(question.clone()));
            if open.to.is_empty() {
                news.push((question, Reply::Alone));
            }
        }
        for (to, questions) in fresh {
            ask(to, &questions, errands);
        }
        self.bring(news, errands);
    }

    /// Records a cell's answer to a question. Returns question and reply if no further answer is needed.
    fn answered(
        &mut self,
        cell: u32,
        question: Question,
        reply: Reply,
        errands: &mut Errands,
    ) -> Option<(Question, Reply)> {
        let open = self.open.get_mut(&question).filter(|open| open.to.contains(&cell))?;
        if reply == Reply::Forgotten {
            let (waiting, _) = self.lookups.entry(cell).or_default();
            if !waiting.contains(&question) {
                waiting.push_back(question);
                if waiting.len() == 1 {
                    self.look_up(cell, errands);
                }
            }
            return None;
        }
        open.to.remove(&cell);
        open.to.is_empty().then_some((question, reply))
    }

    /// Sends replies to the cells that asked the questions.
    fn bring(&mut self, news: Vec<(Question, Reply)>, errands: &mut Errands) {
        let mut by_cell: BTreeMap<u32, Vec<(Question, Reply)>> = BTreeMap::new();
        for (question, reply) in news {
            for cell in self.open.remove(&question).unwrap_or_default().from {
                by_cell.entry(cell).or_default().push((question.clone(), reply));
            }
        }
        for (cell, replies) in by_cell {
            let parts = replies.chunks(QUESTIONS_MAX);
            errands.sends.extend(parts.map(|part| (cell, Request::Resolved { replies: part.to_vec() }.into())));
        }
    }

    /// Asks a cell's accounting about the first question that waits for it.
    fn look_up(&self, cell: u32, errands: &mut Errands) {
        let first = self.lookups.get(&cell).and_then(|(waiting, _)| waiting.front());
        // because no further question may wait for that cell's accounting
        let Some(Question::Started(named) | Question::Ended(named)) = first else { return };
        let job = match named.index {
            Some(index) => JobRef::Tasks(named.id, IndexSet::range(index, index)),
            None => JobRef::Job(named.id),
        };
        let query = AccountingQuery { ids: vec![job], allocations_only: true, ..AccountingQuery::default() };
        errands.sends.push((cell, HostRequest::Accounting(Box::new(query)).into()));
    }

    /// Handles the end of a cell's accounting rows for its first waiting question, and asks its accounting the next
    /// one. Returns the question and the reply if no other cell has to answer it.
    fn looked_up(&mut self, cell: u32, errands: &mut Errands) -> Option<(Question, Reply)> {
        let (waiting, rows) = self.lookups.get_mut(&cell)?;
        let question = waiting.pop_front();
        let rows = std::mem::take(rows);
        self.look_up(cell, errands);
        let question = question?;
        let reply = told_by(&rows, &question);
        self.answered(cell, question, reply, errands)
    }
}

fn ask(cell: u32, questions: &[Question], errands: &mut Errands) {
    let parts = questions.chunks(QUESTIONS_MAX);
    errands.sends.extend(parts.map(|part| (cell, Request::Resolve { questions: part.to_vec() }.into())));
}

/// Returns the reply that accounting's rows give about a job that its cell has forgotten.
fn told_by(rows: &[AccountingRow], question: &Question) -> Reply {
    let (Question::Started(named) | Question::Ended(named)) = question else { return Reply::Unknown };
    let rows: Vec<&AccountingRow> = rows.iter().filter(|row| row.step.is_none() && is_of(row, *named)).collect();
    let started = rows.iter().filter_map(|row| row.start).max();
    match (started, question) {
        _ if rows.is_empty() => Reply::Unknown,
        (Some(time), Question::Started(_)) => Reply::Started(time),
        _ => Reply::Ended { well: rows.iter().all(|row| row.state == JobState::Ended(EndState::Completed)) },
    }
}

fn is_of(row: &AccountingRow, named: Named) -> bool {
    match (row.task, named.index) {
        (Some(task), Some(index)) => (task.array, task.index) == (named.id, index),
        (Some(task), None) => task.array == named.id || row.id == named.id,
        // Tasks that ended without a start share a row.
        (None, Some(index)) => {
            row.id == named.id && row.pending_tasks.as_ref().is_some_and(|tasks| tasks.contains(index))
        }
        (None, None) => row.id == named.id,
    }
}
