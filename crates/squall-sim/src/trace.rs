//! The trace: one short line per event, its hash, and the last lines for the report of a failure.

use std::collections::VecDeque;
use std::fmt;

use squall_model::time::Time;

use crate::seed::mix;

/// How many of the last lines are kept when not all are.
const KEPT_LINES: usize = 200;

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The controller's host.
    Controller,
    /// A node's host, by index.
    Node(u32),
    /// A client, by its call.
    Client(u32),
    /// The faults.
    Fault,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// When.
    pub(crate) time: Time,
    /// Who.
    pub(crate) who: Who,
    /// What.
    pub(crate) what: &'static str,
    /// Of which job; 0: none.
    pub(crate) job: u32,
    /// A number that belongs to it (attempt, step, record, count, …).
    pub(crate) number: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}.{:06} ", self.time.secs(), self.time.0 % 1_000_000)?;
        match self.who {
            Who::Controller => write!(f, "{:<10}", "controller")?,
            Who::Node(n) => write!(f, "{:<10}", format!("n{}", n + 1))?,
            Who::Client(n) => write!(f, "{:<10}", format!("client {n}"))?,
            Who::Fault => write!(f, "{:<10}", "FAULT")?,
        }
        write!(f, " {}", self.what)?;
        if self.job != 0 {
            write!(f, " job {}", self.job)?;
        }
        write!(f, " {}", self.number)
    }
}

/// What has happened so far.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    all: bool,
    lines: VecDeque<Line>,
}

impl Trace {
    /// Nothing has happened. With `all`, every line is kept.
    pub(crate) fn new(all: bool) -> Self {
        Self { hash: 0, all, lines: VecDeque::new() }
    }
    /// Something happened.
    pub(crate) fn say(&mut self, line: Line) {
        let who = match line.who {
            Who::Controller => 1,
            Who::Fault => 2,
            Who::Node(n) => 3 | u64::from(n) << 8,
            Who::Client(n) => 4 | u64::from(n) << 8,
        };
        for word in [line.time.0, who, u64::from(line.job), line.number] {
            self.hash = mix(self.hash ^ word).rotate_left(5);
        }
        for &byte in line.what.as_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if !self.all && self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
    /// A number that two runs share only if they did the same.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
    /// The lines that were kept, as text.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().map(ToString::to_string).collect()
    }
}
