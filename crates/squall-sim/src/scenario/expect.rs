//! What a story expects.

use squall_model::time::Span;

use super::parse::{job_name, number};

/// `expect …`: everything that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Which job; empty: all of them.
    pub(crate) job: String,
    /// Which task of it.
    pub(crate) index: Option<u32>,
    /// In this state.
    pub(crate) state: Option<State>,
    /// Its script (or first step) was started so many times.
    pub(crate) runs: Option<u32>,
    /// Its last attempt ran on so many nodes.
    pub(crate) nodes: Option<u32>,
    /// Its last attempt ran on these.
    pub(crate) places: Option<Vec<String>>,
    /// It ended with this code.
    pub(crate) exit: Option<u8>,
    /// At no time ran more of its tasks than this.
    pub(crate) at_once: Option<u32>,
    /// Its last process ended before the first of that job started.
    pub(crate) before: Option<String>,
    /// So many of its tasks are in that state.
    pub(crate) count: Option<u32>,
    /// Its last attempt took about this long (within 2 s).
    pub(crate) took: Option<Span>,
}

/// States that stories speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Running,
    Completing,
    Completed,
    Failed,
    Cancelled,
    Timeout,
    NodeFail,
    Preempted,
    Refused,
}

pub(crate) fn parse(words: &[&str]) -> Result<Expectation, String> {
    let Some((job, mut rest)) = words.split_first() else { return Err("expect what?".into()) };
    let mut expected = Expectation::default();
    if *job != "all" {
        (expected.job, expected.index) = job_name(job)?;
    }
    while let Some((word, after)) = rest.split_first() {
        rest = match (*word, after) {
            ("once", _) => set(&mut expected.runs, 1, after),
            ("twice", _) => set(&mut expected.runs, 2, after),
            ("never", _) => set(&mut expected.runs, 0, after),
            ("ran" | "is" | "has", _) => after,
            ("on", [n, "nodes" | "node", tail @ ..]) => set(&mut expected.nodes, number(n)? as u32, tail),
            ("on", [list, tail @ ..]) => set(&mut expected.places, super::parse::names(list)?, tail),
            ("exit", [code, tail @ ..]) => set(&mut expected.exit, number(code)? as u8, tail),
            ("before", [other, tail @ ..]) => set(&mut expected.before, (*other).to_owned(), tail),
            ("at", ["most", n, "at", "once", tail @ ..]) => set(&mut expected.at_once, number(n)? as u32, tail),
            ("took", [time, tail @ ..]) => set(&mut expected.took, super::parse::span(time)?, tail),
            (n, ["times", tail @ ..]) => set(&mut expected.runs, number(n)? as u32, tail),
            (n, ["tasks", tail @ ..]) => set(&mut expected.count, number(n)? as u32, tail),
            (word, _) => set(&mut expected.state, state(word)?, after),
        };
    }
    Ok(expected)
}

fn set<'a, 'b, T>(place: &mut Option<T>, value: T, rest: &'a [&'b str]) -> &'a [&'b str] {
    *place = Some(value);
    rest
}

fn state(word: &str) -> Result<State, String> {
    Ok(match word {
        "pending" => State::Pending,
        "running" => State::Running,
        "completing" => State::Completing,
        "completed" => State::Completed,
        "failed" => State::Failed,
        "cancelled" => State::Cancelled,
        "timeout" => State::Timeout,
        "node-fail" => State::NodeFail,
        "preempted" => State::Preempted,
        "refused" => State::Refused,
        _ => return Err(format!("`{word}` is not something that can be expected")),
    })
}
