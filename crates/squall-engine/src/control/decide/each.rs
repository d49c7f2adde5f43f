//! Applies a verb (the handler of a kind of request) to each selected job and collects the results.

use std::collections::BTreeMap;

use squall_model::id::JobId;
use squall_model::wire::client::{Answer, JobName, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::select::{Selected, Tasks};
use crate::control::port::Out;

/// Maximum number of jobs that an answer names. With `REFUSED_BYTES_MAX` it keeps the answer within a frame.
const NAMED_MAX: usize = 500_000;
/// Maximum size of all refusals in an answer, bytes; further refusals are left out.
const REFUSED_BYTES_MAX: usize = 4 << 20;

/// The result of a request for one job or set of array tasks: done, or why it was refused.
type Did = Result<(), Refusal>;

/// Applies a verb (the handler of a kind of request) to the selected tasks that are part of their array's record. Then
/// applies it to each job with a record of its own. An array that was named as a whole gets one result: success if the
/// verb succeeded for any of its tasks.
pub(crate) fn to_each(
    c: &mut Controller,
    selected: &Selected,
    out: &mut Out,
    mut to_tasks: impl FnMut(&mut Controller, &Tasks, &mut Out) -> Did,
    mut to_job: impl FnMut(&mut Controller, JobId, &mut Out) -> Did,
) -> Affected {
    let mut affected = Affected::new(&selected.whole);
    for (name, refusal) in &selected.refused {
        affected.refuse(&[*name], refusal);
    }
    for tasks in &selected.tasks {
        let names = tasks.names(&c.state);
        let did = to_tasks(c, tasks, out);
        affected.note(Some(tasks.array), &names, did);
    }
    for &id in &selected.jobs {
        let name = c.state.name_of(id);
        let did = to_job(c, id, out);
        affected.note(name.task.map(|task| task.array), &[name], did);
    }
    affected
}

/// Collects the result of a request for each of its jobs.
#[derive(Debug, Default)]
pub(crate) struct Affected {
    jobs: Vec<JobName>,
    refused: Vec<(JobName, Refusal)>,
    /// Arrays that get one result as a whole, with that result so far.
    whole: BTreeMap<JobId, Did>,
    refused_bytes: usize,
}

impl Affected {
    fn new(whole: &[JobId]) -> Self {
        let whole = whole.iter().map(|&id| (id, Err(Refusal::AlreadyDone))).collect();
        Self { whole, ..Self::default() }
    }

    fn note(&mut self, array: Option<JobId>, names: &[JobName], did: Did) {
        if let Some(whole) = array.and_then(|id| self.whole.get_mut(&id)) {
            match did {
                Ok(()) => *whole = Ok(()),
                // Keeps the most useful refusal; "already ended" for some tasks is the least useful one.
                Err(refusal) if whole.is_err() && refusal != Refusal::AlreadyDone => *whole = Err(refusal),
                Err(_) => {}
            }
            return;
        }
        match did {
            Ok(()) => self.jobs.extend(names.iter().take(NAMED_MAX.saturating_sub(self.jobs.len()))),
            Err(refusal) => self.refuse(names, &refusal),
        }
    }

    fn refuse(&mut self, names: &[JobName], refusal: &Refusal) {
        let bytes = size_of::<(JobName, Refusal)>() + text_bytes(refusal);
        let room = REFUSED_BYTES_MAX.saturating_sub(self.refused_bytes) / bytes;
        let named = names.iter().take(room);
        self.refused_bytes += named.len() * bytes;
        self.refused.extend(named.map(|name| (*name, refusal.clone())));
    }

    /// Drops those refusals that only report that a job has ended or does not exist.
    pub(crate) fn quiet(mut self) -> Self {
        let moot = |refusal: &Refusal| matches!(refusal, Refusal::AlreadyDone | Refusal::InvalidJobId);
        self.refused.retain(|(_, refusal)| !moot(refusal));
        self.whole.retain(|_, did| !matches!(did, Err(refusal) if moot(refusal)));
        self
    }

    /// Returns the answer for the client, with the results of all jobs.
    pub(crate) fn answer(mut self) -> Answer {
        for (id, did) in std::mem::take(&mut self.whole) {
            let name = JobName { id, task: None };
            match did {
                Ok(()) => self.jobs.push(name),
                Err(refusal) => self.refused.push((name, refusal)),
            }
        }
        self.jobs.sort_unstable();
        Answer::Affected { jobs: self.jobs, refused: self.refused }
    }
}

/// Returns the number of text bytes in a refusal.
fn text_bytes(refusal: &Refusal) -> usize {
    match refusal {
        Refusal::InvalidValue { option, value, problem } => option.len() + value.len() + problem.len(),
        Refusal::InvalidPartition(text)
        | Refusal::PartitionNotAvailable(text)
        | Refusal::InvalidNode(text)
        | Refusal::InvalidAccount(text)
        | Refusal::InvalidQos(text)
        | Refusal::NodeConfigNotAvailable(text)
        | Refusal::TooManyRequested(text)
        | Refusal::WrongState(text)
        | Refusal::TooLarge(text, _)
        | Refusal::NotSupported(text) => text.len(),
        _ => 0,
    }
}
