//! Jobs as accounting has them: each with its steps, ready to be told of.

use std::collections::BTreeMap;
use std::rc::Rc;

use squall_model::id::JobId;
use squall_model::wire::info::{AccountingRow, Why};

use super::Report;
use crate::format::accounting::Row;
use crate::format::clock::Clock;

/// A run of a job, with its steps.
#[derive(Debug)]
pub struct Record {
    /// The job's row.
    pub job: Row,
    /// Rows of its steps.
    pub steps: Vec<Row>,
    /// Why the job is pending. None: it is not, or it is not known.
    pub why: Option<Box<Why>>,
    /// Name of the user who cancelled the job; empty: nobody did.
    pub cancelled_by: String,
    /// Whether what the job has used so far is not known.
    pub is_hidden: bool,
}

impl Record {
    /// Returns the runs of jobs in rows of accounting, in their order. `name`: returns the name of a user.
    pub fn all(
        rows: Vec<AccountingRow>,
        (clock, cluster): (&Rc<Clock>, &Rc<str>),
        mut name: impl FnMut(u32) -> String,
    ) -> Vec<Self> {
        let (jobs, steps): (Vec<AccountingRow>, Vec<AccountingRow>) =
            rows.into_iter().partition(|row| row.step.is_none());
        let row = |data| Row::new(data, clock, cluster);
        let mut steps_of = BTreeMap::<(JobId, u32), Vec<Row>>::new();
        for step in steps {
            steps_of.entry((step.id, step.attempt.0)).or_default().push(row(step));
        }
        let record = |job: AccountingRow| {
            // The number of an array that waits is also that of one of its tasks.
            let own = if job.pending_tasks.is_some() { None } else { steps_of.remove(&(job.id, job.attempt.0)) };
            let job = row(job);
            let cancelled_by = job.cancelled_by().map_or_else(String::new, &mut name);
            Self { job, steps: own.unwrap_or_default(), why: None, cancelled_by, is_hidden: false }
        };
        jobs.into_iter().map(record).collect()
    }

    /// Returns what there is to tell of the run.
    pub fn report(&self) -> Report<'_> {
        let Self { job, steps, why, cancelled_by, is_hidden } = self;
        Report { job, steps, why: why.as_deref(), cancelled_by, is_hidden: *is_hidden }
    }
}
