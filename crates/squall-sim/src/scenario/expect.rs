//! Expectations of a scenario.

use squall_model::time::Span;

use super::parse::{job_name, number};

/// An `expect` line about a job; all its conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Name of the job order that the line is about; empty: all orders.
    pub(crate) job: String,
    /// Index of the array task that the line is about. None: all tasks.
    pub(crate) index: Option<u32>,
    /// Expected state of the job. None: any.
    pub(crate) state: Option<State>,
    /// Expected number of times that the job's script, or its first step, has started. None: any.
    pub(crate) runs: Option<u32>,
    /// Expected number of nodes of the job's last attempt.
    pub(crate) nodes: Option<u32>,
    /// Expected nodes of the job's last attempt, by name.
    pub(crate) places: Option<Vec<String>>,
    /// Expected exit code of the job. None: any.
    pub(crate) exit: Option<u8>,
    /// Greatest permitted number of the array's tasks that run at the same time.
    pub(crate) at_once: Option<u32>,
    /// Name of another job order. Its first process must start after this job's last process has ended.
    pub(crate) before: Option<String>,
    /// Expected number of tasks that fulfil the other conditions.
    pub(crate) count: Option<u32>,
    /// Expected duration of the job's last attempt; a difference of 2 s is permitted.
    pub(crate) took: Option<Span>,
}

/// Job states that a scenario can expect.
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
