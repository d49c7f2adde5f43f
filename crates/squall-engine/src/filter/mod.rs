//! The site's submit filter without its processes: what it sees of requests, their order, and what its verdicts make of them.
//!
//! Each job of a submission, and each job that a change names, is a message to a filter process, which answers with a
//! verdict. Nothing of it is durable: if the controller ends amid this, its clients send their requests again.

mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::wire::filter::{ToFilter, Verdict};

pub use request::{Changed, Parts, apply, changed, is_retry, parts, refusal};

/// Most filter processes at once.
const PROCESSES_MAX: usize = 8;
/// Most requests of a user that a process is given at once.
const BATCH: usize = 32;

/// The requests that wait for the filter. Those of one user are filtered in the order in which they came.
///
/// `T` is what waits for the verdicts, for example the connection of a client.
#[derive(Debug)]
pub struct Queue<T> {
    /// Number of processes that filter requests.
    running: usize,
    waiting: BTreeMap<u32, VecDeque<Waiting<T>>>,
    /// Users with waiting requests of whom none is being filtered, the next one first.
    turns: VecDeque<u32>,
    busy: BTreeSet<u32>,
}

/// A request that waits for the filter.
#[derive(Debug)]
struct Waiting<T> {
    parts: Vec<ToFilter>,
    request: T,
}

/// Requests of a user that one process filters, one after the other.
#[derive(Debug)]
pub struct Batch<T> {
    /// The user's id.
    pub uid: u32,
    waiting: VecDeque<Waiting<T>>,
    /// Verdicts on the first request so far.
    verdicts: Vec<Verdict>,
    /// How often a process has ended amid the first request.
    deaths: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { running: 0, waiting: BTreeMap::new(), turns: VecDeque::new(), busy: BTreeSet::new() }
    }
}

impl<T> Queue<T> {
    /// Adds a user's request, which has these parts.
    pub fn add(&mut self, uid: u32, parts: Vec<ToFilter>, request: T) {
        let own = self.waiting.entry(uid).or_default();
        if own.is_empty() && !self.busy.contains(&uid) {
            self.turns.push_back(uid);
        }
        own.push_back(Waiting { parts, request });
    }

    /// Takes the next requests that a process is to filter. None: none wait, or as many processes run as may.
    pub fn take(&mut self) -> Option<Batch<T>> {
        if self.running >= PROCESSES_MAX {
            return None;
        }
        let uid = self.turns.pop_front()?;
        let own = self.waiting.get_mut(&uid)?;
        let waiting = own.drain(..own.len().min(BATCH)).collect();
        if own.is_empty() {
            self.waiting.remove(&uid);
        }
        self.running += 1;
        self.busy.insert(uid);
        Some(Batch { uid, waiting, verdicts: Vec::new(), deaths: 0 })
    }

    /// Notes that the requests of a user which a process was given are filtered.
    pub fn done(&mut self, uid: u32) {
        self.running -= 1;
        self.busy.remove(&uid);
        if self.waiting.contains_key(&uid) {
            self.turns.push_back(uid);
        }
    }

    /// Takes back all requests that no process was given yet.
    pub fn withdraw(&mut self) -> Vec<T> {
        self.turns.clear();
        std::mem::take(&mut self.waiting).into_values().flatten().map(|waiting| waiting.request).collect()
    }
}

impl<T> Batch<T> {
    /// Returns whether all requests are filtered.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns what a new process is to be sent. Each message is answered by a verdict.
    pub fn messages(&self) -> impl Iterator<Item = &ToFilter> {
        self.waiting.iter().flat_map(|waiting| &waiting.parts)
    }

    /// Returns the message that is answered next. None: all are answered.
    pub fn next(&self) -> Option<&ToFilter> {
        self.waiting.front()?.parts.get(self.verdicts.len())
    }

    /// Takes the next verdict. Returns the request that is filtered with it. A script that has reached a limit would do so
    /// again: its verdict is that on the rest of the request, too.
    pub fn take(&mut self, verdict: Verdict) -> Option<(T, Vec<Verdict>)> {
        let count = self.waiting.front()?.parts.len();
        if verdict.ends {
            self.verdicts.resize(count, verdict);
        } else {
            self.verdicts.push(verdict);
        }
        if count > self.verdicts.len() {
            return None;
        }
        self.deaths = 0;
        Some((self.waiting.pop_front()?.request, std::mem::take(&mut self.verdicts)))
    }

    /// Notes that the process has ended, or was ended. The next one filters the first request from its beginning. Returns
    /// that request instead if it is refused: it has taken too long (`is_late`), or a second process has ended amid it.
    pub fn fail(&mut self, is_late: bool) -> Option<T> {
        self.verdicts.clear();
        self.deaths += 1;
        if !is_late && self.deaths < 2 {
            return None;
        }
        self.deaths = 0;
        Some(self.waiting.pop_front()?.request)
    }

    /// Returns the requests that are not filtered, as no process can be started.
    pub fn withdraw(self) -> impl Iterator<Item = T> {
        self.waiting.into_iter().map(|waiting| waiting.request)
    }
}
