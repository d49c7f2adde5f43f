//! The end of the output of a job that the controller may have forgotten: accounting tells its owner and its path.

use std::sync::{Arc, Mutex, PoisonError};

use squall_model::hostlist;
use squall_model::id::JobId;
use squall_model::job::Owner;
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, Refusal};
use squall_model::wire::info::AccountingRow;
use squall_store::accounts::Reply;

use crate::link::Outgoing;
use crate::tail::{self, Tails};

/// A client that wants to see the output of a past job of its own.
pub(super) struct PastOutput {
    /// The client's connection.
    pub(super) out: Outgoing,
    /// The client's user, as known today. The file is read with these rights: groups may have changed since the job ran.
    pub(super) asker: Arc<Owner>,
    pub(super) job: JobId,
    /// Whether the standard error is meant.
    pub(super) errors: bool,
    pub(super) tails: Tails,
    /// The job's last run, as far as accounting has told.
    pub(super) found: Mutex<Option<AccountingRow>>,
}

impl PastOutput {
    /// Returns the question to accounting.
    pub(super) fn query(&self) -> AccountingQuery {
        let ids = vec![JobRef::Job(self.job)];
        AccountingQuery { ids, allocations_only: true, ..AccountingQuery::default() }
    }

    /// Has the file read, and answered.
    fn finish(&self) -> Result<(), Refusal> {
        let row = self.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let path = path_of(row.as_ref(), &self.asker, self.errors)?;
        let out = self.out.clone();
        self.tails.read(&self.asker, path, move |tail| out.push_or_close(&Answer::Tail(Box::new(tail))))
    }
}

/// Returns the path of a job's standard output, or error. Others' jobs are refused as if there were none.
fn path_of(row: Option<&AccountingRow>, asker: &Owner, errors: bool) -> Result<String, Refusal> {
    // A uid may have had another user when the job ran.
    let own = |row: &&AccountingRow| row.owner.uid == asker.uid && row.owner.user == asker.user;
    let row = row.filter(own).ok_or(Refusal::InvalidJobId)?;
    if row.start.is_none() {
        return Err(Refusal::WrongState("it never ran".to_owned()));
    }
    let host = hostlist::expand(&row.nodes).unwrap_or_default().into_iter().next().unwrap_or_default();
    tail::path_of((row.id, row.task), &row.owner, (&row.spec, errors), &host)
}

impl Reply for PastOutput {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn push(&self, answer: Answer) {
        let Answer::Accounting { rows, more, .. } = answer else { return self.out.push_or_close(&answer) };
        // The id of an array is also that of one of its tasks.
        let wanted = |row: &AccountingRow| row.id == self.job && row.step.is_none() && row.pending_tasks.is_none();
        if let Some(row) = rows.into_iter().rfind(wanted) {
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(row);
        }
        if !more && let Err(refusal) = self.finish() {
            self.out.push_or_close(&Answer::Refused(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::id::JobId;
    use squall_model::job::{JobKind, JobSpec, Owner};
    use squall_model::time::Time;
    use squall_model::wire::client::Refusal;
    use squall_model::wire::info::AccountingRow;

    fn path_of(row: Option<&AccountingRow>, user: &Owner) -> Result<String, Refusal> {
        super::path_of(row, user, false)
    }

    #[test]
    fn only_the_user_whose_job_it_was_gets_its_output() {
        let user = |uid, name: &str| Owner { uid, user: name.to_owned(), ..Owner::default() };
        let spec = JobSpec {
            kind: JobKind::Batch,
            work_dir: "/home/ann".to_owned(),
            stdout: Some("out-%j-%N".to_owned()),
            stderr: Some("err-%j".to_owned()),
            ..JobSpec::default()
        };
        let (submit, owner) = (Time::from_secs(10), Arc::new(user(1001, "ann")));
        let mut row = AccountingRow::submitted(JobId(7), submit, owner, Arc::new(spec));
        row.nodes = "n[3-4]".to_owned();
        assert_eq!(path_of(Some(&row), &user(1001, "ann")), Err(Refusal::WrongState("it never ran".to_owned())));
        row.start = Some(submit);
        assert_eq!(path_of(Some(&row), &user(1001, "ann")).as_deref(), Ok("/home/ann/out-7-n3"));
        let errors = super::path_of(Some(&row), &user(1001, "ann"), true);
        assert_eq!(errors.as_deref(), Ok("/home/ann/err-7"));
        for other in [user(1002, "bob"), user(0, "root"), user(1001, "carl"), user(1002, "ann")] {
            assert_eq!(path_of(Some(&row), &other), Err(Refusal::InvalidJobId), "{other:?}");
        }
        assert_eq!(path_of(None, &user(1001, "ann")), Err(Refusal::InvalidJobId));
        Arc::make_mut(&mut row.spec).kind = JobKind::Allocation;
        assert!(matches!(path_of(Some(&row), &user(1001, "ann")), Err(Refusal::WrongState(_))));
    }
}
