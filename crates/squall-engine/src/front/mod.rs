//! The front of several cells: sends each request to the cell that it is for, or to all, and merges their answers
//! into one.
//!
//! A [`Desk`] serves one connection of one client. It holds only the answers that it still owes there, so a front can
//! die at any moment. No submission is accepted twice: its cell is a function of its key and of the cells'
//! configurations ([`Cells::choose`]). So a retry goes to the same cell, which recognizes the key.

mod cells;
mod courier;
mod join;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, AnyRequest, HostRequest, Refusal, Request};

use crate::machine::Machine;
use join::{Closing, closing};
use route::{How, Route};

pub use cells::Cells;
pub use courier::{Courier, Errands, News};

/// Timeout of a cell's answer to a list request: less than a client waits for a controller.
const LIST_TIME: Span = Span::from_secs(5);
/// Timeout of a cell's answer from accounting, which may have a large database to read.
const ACCOUNTING_TIME: Span = Span::from_secs(50);
/// Number of open requests of one client from which on no further request is read.
const OPEN_MAX: usize = 256;

/// Input of a [`Desk`], which serves one connection of one client.
#[derive(Clone, Debug)]
pub enum Input {
    /// The client sends a request.
    Asked(AnyRequest),
    /// A cell sends an answer.
    Answered {
        /// Number of the cell.
        cell: u32,
        /// Answer that the cell sent.
        answer: Box<Answer>,
    },
    /// A cell could not be reached: it has received nothing that was sent since the last connection.
    Away {
        /// Number of the cell.
        cell: u32,
    },
    /// The connection to a cell has ended: it may have received the last requests or not.
    Lost {
        /// Number of the cell.
        cell: u32,
    },
    /// Time has passed.
    Tick,
}

/// Output of a [`Desk`], which serves one connection of one client.
#[derive(Debug, Default)]
pub struct Out {
    /// Requests to send, each with the number of its cell.
    pub sends: Vec<(u32, AnyRequest)>,
    /// Cells with a connection that is to be closed because the cell is silent. Later answers from that connection must
    /// not be given to the [`Desk`].
    pub drops: Vec<u32>,
    /// Answers for the client, in order.
    pub answers: Vec<Answer>,
    /// Whether to close the client's connection: a cell may have received its request, and the client must retry.
    pub hangup: bool,
}

/// Open requests of one client's connection, with the answers owed to it.
#[derive(Debug)]
pub struct Desk {
    cells: Arc<Cells>,
    /// Requests to be answered in the order in which they came.
    open: VecDeque<Open>,
    /// Number of open requests of each cell with answers that are passed on as they come.
    through: BTreeMap<u32, usize>,
    /// Cell to which the client is sending a file; None: it is sending none.
    bringing: Option<u32>,
}

/// A request that is still owed an answer.
#[derive(Debug)]
struct Open {
    how: How,
    parts: Vec<Part>,
    /// Time after which cells that have not answered are left out. None: there is no limit.
    due: Option<Time>,
    /// The empty last page, if earlier pages have already been sent to the client; None: none have.
    last: Option<Answer>,
}

/// One cell's part of an answer.
#[derive(Debug)]
struct Part {
    cell: u32,
    stands: Stands,
    /// Answers of the cell that have not been passed on to the client yet.
    come: VecDeque<Answer>,
}

/// State of one cell's part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stands {
    Open,
    Done,
    Refused(Refusal),
    Absent,
}

impl Desk {
    /// Makes the desk for a new connection of a client.
    pub fn new(cells: Arc<Cells>) -> Self {
        Self { cells, open: VecDeque::new(), through: BTreeMap::new(), bringing: None }
    }

    /// Returns whether so many requests are open that the client has to wait before the next is read.
    pub fn is_full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    fn asked(&mut self, now: Time, request: AnyRequest, out: &mut Out) {
        let (mut bringing, mut time) = (self.bringing, Some(LIST_TIME));
        match &request {
            AnyRequest::Host(HostRequest::Accounting(_)) => time = Some(ACCOUNTING_TIME),
            AnyRequest::Host(_) => {}
            AnyRequest::Machine(request) => match &**request {
                Request::Broadcast(_) => bringing = None,
                Request::Submit { .. } | Request::ShutDown { .. } => time = None,
                Request::QueryNodes { time_ms, .. } => {
                    time = Some(Span(LIST_TIME.0.saturating_add(time_ms.saturating_mul(1000))));
                }
                _ => {}
            },
        }
        let Route { how, parts } = match route::route(&self.cells, request, bringing) {
            Ok(route) => route,
            Err(refusal) => Route { how: How::Told(Box::new(Answer::Refused(refusal))), parts: Vec::new() },
        };
        if how == How::Through || how == How::Bringing {
            for (cell, request) in parts {
                if how == How::Bringing {
                    self.bringing = Some(cell);
                }
                *self.through.entry(cell).or_default() += usize::from(!is_piece(&request));
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
                // A long list comes page by page: each page renews the timeout.
                open.due = open.due.map(|due| due.max(now + LIST_TIME));
                return;
            }
        }
        out.answers.push(answer);
    }

    /// Handles a cell that sends nothing more on its connection. `heard`: it may have received the last requests.
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

    /// Drops the connections of cells that have kept a list request waiting too long.
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

    /// Passes complete answers on to the client, in the order of the requests.
    fn flow(&mut self, out: &mut Out) {
        while let Some(first) = self.open.front_mut() {
            if !first.flow(out) {
                return;
            }
            self.open.pop_front();
        }
    }
}

/// Returns whether a request is a piece of a file, which is not answered.
fn is_piece(request: &AnyRequest) -> bool {
    matches!(request, AnyRequest::Machine(request) if matches!(**request, Request::Chunk { .. }))
}

impl Open {
    /// Returns the part of this request that a cell's answer belongs to; None: it belongs to another.
    fn awaits(&mut self, cell: u32, answer: &Answer) -> Option<&mut Part> {
        let fits = match answer {
            Answer::Refused(_) => true,
            Answer::Submitted { .. } => self.how == How::InTurn,
            other => self.how != How::InTurn && !join::comes_when_it_may(other),
        };
        self.parts.iter_mut().find(|part| fits && part.cell == cell && part.stands == Stands::Open)
    }

    /// Passes on the answers that can be sent to the client now. Returns whether the request is answered completely.
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
            Input::Asked(request) => self.asked(now, request, out),
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
