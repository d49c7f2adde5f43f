//! Lists of nodes, partitions and jobs that several commands ask for.

use std::rc::Rc;

use squall_client::{ClientError, unexpected};
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::{JobsPage, NodeInfo, PartitionInfo};
use squall_text::format::clock::Clock;
use squall_text::format::job::{JobRow, rows};
use squall_text::hints::Hint;
use squall_text::options::flag::Arguments;

use super::call::{Call, Fail};
use super::select::parts;

const WHAT: &str = "slurm_load_jobs error";
/// User id that no user has, by which no job is selected.
const NOBODY: u32 = u32::MAX;

/// Asks the controller for all nodes.
pub(crate) fn all_nodes(call: &mut Call<'_>) -> Result<Vec<NodeInfo>, ClientError> {
    match call.controller.ask(&Request::Nodes)? {
        Answer::Nodes(nodes) => Ok(nodes),
        _ => Err(unexpected()),
    }
}

/// Asks the controller for all nodes; with `future` also for those that did not join yet.
pub(crate) fn nodes_with(call: &mut Call<'_>, future: bool) -> Result<Vec<NodeInfo>, ClientError> {
    let mut nodes = all_nodes(call)?;
    if future {
        match call.controller.ask(&Request::FutureNodes)? {
            Answer::Nodes(more) => nodes.extend(more),
            _ => return Err(unexpected()),
        }
    }
    Ok(nodes)
}

/// Asks the controller for all partitions.
pub(crate) fn all_partitions(call: &mut Call<'_>) -> Result<Vec<PartitionInfo>, ClientError> {
    match call.controller.ask(&Request::Partitions)? {
        Answer::Partitions(partitions) => Ok(partitions),
        _ => Err(unexpected()),
    }
}

/// Returns whether hidden partitions and their jobs are listed, too: for root, and where `--all` or a variable asks for
/// them, unless `--hide` comes last.
pub(crate) fn shows_hidden(call: &Call<'_>, given: &Arguments, variable: &str) -> bool {
    let last = given.options.iter().rev().find(|option| matches!(option.name, "all" | "hide"));
    match last {
        Some(option) => option.name == "all",
        None => call.variable(variable).is_some() || call.people.me() == 0,
    }
}

/// Hints at names of partitions that do not exist.
pub(crate) fn hint_partitions(call: &mut Call<'_>, wanted: &[String], known: &[PartitionInfo]) {
    let known: Vec<String> = known.iter().map(|partition| partition.config.name.clone()).collect();
    for name in wanted.iter().filter(|name| !known.contains(name)) {
        call.hint(&Hint::Partition(name.clone(), known.clone()));
    }
}

/// Returns the ids of the users in a list. Unknown names are reported; if all are unknown, the list selects no jobs.
pub(crate) fn known_users(call: &mut Call<'_>, list: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in parts(list) {
        match part.parse().ok().or_else(|| call.people.uid(part)) {
            Some(uid) => all.push(uid),
            None => call.complain(&format!("Invalid user: {part}")),
        }
    }
    if all.is_empty() { vec![NOBODY] } else { all }
}

/// Builds the rows of a page of jobs.
pub(crate) fn job_rows(call: &mut Call<'_>, page: JobsPage) -> Result<Vec<JobRow>, Fail> {
    let mut rows = Vec::new();
    Frame::of(call)?.add_rows(page, &mut rows);
    Ok(rows)
}

/// Data that all rows of the output share.
pub(crate) struct Frame {
    clock: Rc<Clock>,
    cluster: Rc<str>,
    /// Maximum length of a printed list of array tasks, in characters (SLURM_BITSTR_LEN); 0: unlimited. None: Slurm's
    /// default.
    task_list: Option<usize>,
}

impl Frame {
    /// Returns the data for this call.
    pub(crate) fn of(call: &mut Call<'_>) -> Result<Self, Fail> {
        let task_list = call.variable("SLURM_BITSTR_LEN").and_then(|v| v.parse().ok());
        Ok(Self { clock: call.clock(call.now), cluster: call.cluster(WHAT)?, task_list })
    }

    /// Builds the rows of a page of jobs.
    pub(crate) fn add_rows(&self, page: JobsPage, to: &mut Vec<JobRow>) {
        let now = if page.now == Time::default() { self.clock.now } else { page.now };
        let clock = Rc::new(Clock { now, ..Clock::clone(&self.clock) });
        to.extend(rows(page, &clock, &self.cluster, self.task_list));
    }
}

/// Asks for the expected start and nodes of pending jobs, and adds them to the rows.
pub(crate) fn expect(call: &mut Call<'_>, rows: &mut [JobRow]) {
    let waits = |row: &&mut JobRow| row.info.state == JobState::Pending;
    if !rows.iter_mut().any(|row| waits(&row)) {
        return;
    }
    let Ok(Answer::Expected(starts)) = call.controller.ask(&Request::Expected) else { return };
    for row in rows.iter_mut().filter(waits) {
        if let Ok(at) = starts.binary_search_by_key(&row.info.id, |start| start.id) {
            row.info.start = Some(starts[at].time);
            row.expected_nodes.clone_from(&starts[at].nodes);
        }
    }
}
