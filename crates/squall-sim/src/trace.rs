//! The trace of a simulation: one short line per event, a hash of all, and the last lines for failure reports.

use std::collections::VecDeque;
use std::fmt;

use squall_model::time::Time;
use squall_model::wire::client::Answer;

use crate::seed::mix;

/// Number of trailing lines that are kept when the whole trace was not requested.
const KEPT_LINES: usize = 200;

/// Origin of a line in the simulation's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The line is about the controller.
    Controller,
    /// The line is about the node with this index.
    Node(u32),
    /// The line is about the client request with this index.
    Client(u32),
    /// The line is about an injected fault.
    Fault,
}

/// One line of the simulation's trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceLine {
    /// Simulated time of the event.
    pub(crate) time: Time,
    /// Origin of the event.
    pub(crate) who: Origin,
    /// Description of the event.
    pub(crate) what: &'static str,
    /// Job id; 0: the event concerns no job.
    pub(crate) job: u32,
    /// Number that the event is about: an attempt, a step, a record, a count or the like.
    pub(crate) number: u64,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}.{:06} ", self.time.secs(), self.time.0 % 1_000_000)?;
        match self.who {
            Origin::Controller => write!(f, "{:<10}", "controller")?,
            Origin::Node(n) => write!(f, "{:<10}", format!("n{}", n + 1))?,
            Origin::Client(n) => write!(f, "{:<10}", format!("client {n}"))?,
            Origin::Fault => write!(f, "{:<10}", "FAULT")?,
        }
        write!(f, " {}", self.what)?;
        if self.job != 0 {
            write!(f, " job {}", self.job)?;
        }
        write!(f, " {}", self.number)
    }
}

/// Trace lines of a simulation, and their hash.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    all: bool,
    lines: VecDeque<TraceLine>,
}

impl Trace {
    /// Creates an empty trace. `all`: every line is kept.
    pub(crate) fn new(all: bool) -> Self {
        Self { hash: 0, all, lines: VecDeque::new() }
    }
    /// Adds a line to the trace.
    pub(crate) fn say(&mut self, line: TraceLine) {
        let who = match line.who {
            Origin::Controller => 1,
            Origin::Fault => 2,
            Origin::Node(n) => 3 | u64::from(n) << 8,
            Origin::Client(n) => 4 | u64::from(n) << 8,
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
    /// Returns the hash of all lines: equal for equal runs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
    /// Returns the kept lines of the trace as text.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().map(ToString::to_string).collect()
    }
}

/// Returns what the trace says of an answer that reached a client.
pub(crate) fn answer_name(answer: &Answer) -> &'static str {
    match answer {
        Answer::Submitted { .. } => "is told submitted",
        Answer::Allocated(_) => "is told allocated",
        Answer::StepCreated { .. } => "is told step created",
        Answer::StepDone { .. } => "is told step done",
        Answer::Affected { .. } => "is told affected",
        Answer::Refused(_) => "is refused",
        _ => "is answered",
    }
}
