//! The front of several cells: each request goes to the cell that it is for, or to all, whose answers become one.
//!
//! A [`Desk`] serves one connection of one client and remembers nothing but what it still owes there, so a front can die
//! at any moment. That nothing is accepted twice follows from one rule: which cell takes a submission is a function of
//! its key and of the cells' configurations ([`Cells::choose`]), so whoever says it again says it to the same cell,
//! which knows the key.

mod cells;
mod courier;
mod join;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal, Request};

use crate::machine::Machine;
use join::{Closing, closing};
use route::{How, Route};

pub use cells::Cells;
pub use courier::{Courier, Errands, News};

/// How long a cell may keep a list waiting: less than a client waits for a controller.
const LIST_TIME: Span = Span::from_secs(5);
/// The same of accounting, which may have a large database to read.
const ACCOUNTING_TIME: Span = Span::from_secs(50);
/// Requests of one client that may be open.
const OPEN_MAX: usize = 256;

/// What a desk is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// The client asks.
    Asked(Box<Request>),
    /// A cell answers.
    Answered {
        /// Which.
        cell: u32,
        /// What.
        answer: Box<Answer>,
    },
    /// A cell could not be reached: nothing of what was sent since the last connection to it was heard.
    Away {
        /// Which.
        cell: u32,
    },
    /// The connection to a cell has ended: whether it heard the last requests is not known.
    Lost {
        /// Which.
        cell: u32,
    },
    /// Time has passed.
    Tick,
}

/// What a desk wants done.
#[derive(Debug, Default)]
pub struct Out {
    /// Requests for cells.
    pub sends: Vec<(u32, Request)>,
    /// Connections to be closed: the cell says nothing. What still comes from them must not be told.
    pub drops: Vec<u32>,
    /// Answers for the client.
    pub answers: Vec<Answer>,
    /// The client's connection is to be closed: what it asked may have been heard, and it must ask again.
    pub hangup: bool,
}

/// What one client is owed.
#[derive(Debug)]
pub struct Desk {
    cells: Arc<Cells>,
    /// Requests that are answered in their order.
    open: VecDeque<Open>,
    /// Cells whose answers pass as they come, and for how many requests.
    through: BTreeMap<u32, usize>,
    /// The cell to which the client brings a file.
    bringing: Option<u32>,
}

/// A request to which an answer is owed.
#[derive(Debug)]
struct Open {
    how: How,
    parts: Vec<Part>,
    /// Whoever has not answered by then is left out.
    due: Option<Time>,
    /// Pages have left already: the empty one that is the last.
    last: Option<Answer>,
}

/// What one cell has to say to it.
#[derive(Debug)]
struct Part {
    cell: u32,
    stands: Stands,
    /// What has come and was not passed on.
    come: VecDeque<Answer>,
}

/// How far a cell is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stands {
    Open,
    Done,
    Refused(Refusal),
    Absent,
}

impl Desk {
    /// For a client that has just come.
    pub fn new(cells: Arc<Cells>) -> Self {
        Self { cells, open: VecDeque::new(), through: BTreeMap::new(), bringing: None }
    }

    /// Whether it owes so much that the client has to wait before it is heard again.
    pub fn is_full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    fn asked(&mut self, now: Time, request: Request, out: &mut Out) {
        let bringing = match &request {
            Request::Broadcast(_) => None,
            _ => self.bringing,
        };
        let time = match &request {
            Request::Accounting(_) => Some(ACCOUNTING_TIME),
            Request::Submit { .. } | Request::ShutDown { .. } => None,
            Request::QueryNodes { time_ms, .. } => Some(Span(LIST_TIME.0.saturating_add(time_ms.saturating_mul(1000)))),
            _ => Some(LIST_TIME),
        };
        let Route { how, parts } = match route::route(&self.cells, request, bringing) {
            Ok(route) => route,
            Err(refusal) => Route { how: How::Told(Box::new(Answer::Refused(refusal))), parts: Vec::new() },
        };
        if how == How::Through || how == How::Bringing {
            for (cell, request) in parts {
                if how == How::Bringing {
                    self.bringing = Some(cell);
                }
                *self.through.entry(cell).or_default() += usize::from(!matches!(request, Request::Chunk { .. }));
                out.sends.push((cell, request));
            }
            return;
        }
        let cells = parts.iter().map(|(cell, _)| Part { cell: *cell, stands: Stands::Open, come: VecDeque::new() });
        let due = time.filter(|_| how != How::InTurn).map(|time| now + time);
        self.open.push_back(Open { how, parts: cells.collect(), due, last: None });
        out.sends.extend(parts);
    }

    fn answered(&mut self, now: Time, cell: u32, answer: Answer, out: &mut Out) {
        for open in &mut self.open {
            if let Some(part) = open.awaits(cell, &answer) {
                part.take(answer);
                // Of a long list page follows page.
                open.due = open.due.map(|due| due.max(now + LIST_TIME));
                return;
            }
        }
        out.answers.push(answer);
    }

    /// A cell says nothing more on this connection. `heard`: it may have heard what it was sent.
    fn gone(&mut self, cell: u32, heard: bool, out: &mut Out) {
        match self.through.remove(&cell) {
            Some(_) if heard => out.hangup = true,
            Some(requests) => {
                out.answers.extend(std::iter::repeat_n(Answer::Refused(Refusal::CellAway(cell)), requests));
            }
            None => {}
        }
        for open in &mut self.open {
            for part in open.parts.iter_mut().filter(|part| part.cell == cell && part.stands == Stands::Open) {
                part.stands = Stands::Absent;
                out.hangup |= heard && open.how == How::InTurn;
            }
        }
    }

    /// Whoever kept a list waiting too long is left out.
    fn late(&mut self, now: Time, out: &mut Out) {
        let late = self.open.iter().filter(|open| open.due.is_some_and(|due| due <= now));
        let open = late.flat_map(|open| &open.parts).filter(|part| part.stands == Stands::Open);
        let mut cells: Vec<u32> = open.map(|part| part.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        for cell in cells {
            out.drops.push(cell);
            self.gone(cell, true, out);
        }
    }

    /// Passes on what is complete, in the order in which it was asked.
    fn flow(&mut self, out: &mut Out) {
        while let Some(first) = self.open.front_mut() {
            if !first.flow(out) {
                return;
            }
            self.open.pop_front();
        }
    }
}

impl Open {
    /// The part that a cell's answer belongs to, if it is one.
    fn awaits(&mut self, cell: u32, answer: &Answer) -> Option<&mut Part> {
        let fits = match answer {
            Answer::Refused(_) => true,
            Answer::Submitted { .. } => self.how == How::InTurn,
            other => self.how != How::InTurn && !join::comes_when_it_may(other),
        };
        self.parts.iter_mut().find(|part| fits && part.cell == cell && part.stands == Stands::Open)
    }

    /// Passes on what can be. True: all is said.
    fn flow(&mut self, out: &mut Out) -> bool {
        if self.how == How::Pages {
            let open = self.parts.iter().position(|part| part.stands == Stands::Open);
            let ready = open.map_or(self.parts.len(), |at| at + 1);
            let pages = self.parts[..ready].iter_mut().flat_map(|part| part.come.drain(..));
            for page in pages {
                let (page, last) = join::followed(page);
                self.last = Some(last);
                out.answers.push(page);
            }
        }
        if self.parts.iter().any(|part| part.stands == Stands::Open) {
            return false;
        }
        let (mut goods, mut refusals, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for part in &mut self.parts {
            match std::mem::replace(&mut part.stands, Stands::Done) {
                Stands::Refused(refusal) => refusals.push(refusal),
                Stands::Absent => absent.push(part.cell),
                Stands::Open | Stands::Done => goods.extend(part.come.drain(..)),
            }
        }
        let how = std::mem::replace(&mut self.how, How::Pages);
        let end = closing(Closing { how, goods, last: self.last.take(), refusals, absent });
        out.answers.extend(end);
        true
    }
}

impl Part {
    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Refused(refusal) => self.stands = Stands::Refused(refusal),
            answer => {
                if !join::is_followed(&answer) {
                    self.stands = Stands::Done;
                }
                self.come.push_back(answer);
            }
        }
    }
}

impl Machine for Desk {
    type Input = Input;
    type Out = Out;

    fn step(&mut self, now: Time, input: Input, out: &mut Out) {
        match input {
            Input::Asked(request) => self.asked(now, *request, out),
            Input::Answered { cell, answer } => self.answered(now, cell, *answer, out),
            Input::Away { cell } => self.gone(cell, false, out),
            Input::Lost { cell } => self.gone(cell, true, out),
            Input::Tick => self.late(now, out),
        }
        if !out.hangup {
            self.flow(out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.open.iter().filter_map(|open| open.due).min()
    }
}
