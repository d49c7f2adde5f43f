//! Jobs of another accounting system, brought into this one while the controller does not run.

use rusqlite::params;
use squall_files::place::Place;
use squall_model::billing::Billing;
use squall_model::config::Server;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, JobSpec, JobState, Outcome, Owner};
use squall_model::time::Time;

use super::book::GENERATION;
use super::book::{Book, SqlResult};
use super::encode::state_columns;
use super::tables;

/// A job that has ended elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastJob {
    /// The job's id there.
    pub id: JobId,
    /// Array and index of an array task; None: the job is no array task.
    pub task: Option<ArrayTask>,
    /// The job's user.
    pub owner: Owner,
    /// What is known of the request: name, account, QOS, comment.
    pub spec: JobSpec,
    /// Name of the partition.
    pub partition: String,
    /// How the job ended.
    pub outcome: Outcome,
    /// Time of submission.
    pub submit: Time,
    /// Start. None: the job never started.
    pub start: Option<Time>,
    /// End.
    pub end: Time,
    /// Time limit, seconds. None: unlimited or unknown.
    pub limit_s: Option<u64>,
    /// Nodes, as a host list. Empty: the job had none.
    pub nodes: String,
    /// Number of nodes.
    pub num_nodes: u32,
    /// Number of CPUs.
    pub num_cpus: u32,
    /// What the job was billed. None: its CPUs.
    pub billing: Option<Billing>,
}

/// How many jobs were brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Jobs that got a row.
    pub added: usize,
    /// Jobs that had one already: same id, same time of submission.
    pub known: usize,
}

/// Adds jobs to the accounting database of a cluster; those that it has already are left alone. The controller must not
/// run. Rows that were brought are not in the journal, so they are lost with the database. `server`: the server that keeps the
/// rows; None: a file does. Err: why the database can't be written; nothing was added.
pub fn bring(place: &Place, server: Option<&Server>, jobs: &[PastJob]) -> Result<Brought, String> {
    let Some(server) = server else {
        let wrong = |e: rusqlite::Error| format!("{}: {e}", place.accounts().display());
        return Book::open(&place.accounts()).and_then(|book| write(&book, jobs)).map_err(wrong);
    };
    let wrong = |e: rusqlite::Error| format!("PostgreSQL at {}: {e}", server.place());
    Book::served(tables::connect(server, None)?).and_then(|book| write(&book, jobs)).map_err(wrong)
}

fn write(book: &Book, jobs: &[PastJob]) -> rusqlite::Result<Brought> {
    book.db.run("BEGIN")?;
    let mut brought = Brought::default();
    for job in jobs {
        if is_known(book, job)? {
            brought.known += 1;
        } else {
            add(book, job)?;
            brought.added += 1;
        }
    }
    book.db.run("COMMIT")?;
    book.checkpoint().map(|()| brought)
}

fn is_known(book: &Book, job: &PastJob) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM jobs WHERE id = ?1 AND submit = ?2";
    let found = book.db.one(sql, params![job.id.0, job.submit.0 as i64], |_| Ok(()))?;
    Ok(found.is_some())
}

/// Adds the row of a job. If its id has been used here, the row is one of an earlier generation: `sacct --duplicates`
/// shows it.
fn add(book: &Book, job: &PastJob) -> SqlResult {
    let sql = "SELECT min(attempt) FROM jobs WHERE id = ?1";
    let lowest: Option<i64> = book.db.one(sql, params![job.id.0], |row| row.get(0))?.flatten();
    // Numbers of attempts of one generation begin at 1.
    let attempt = lowest.map_or(1, |lowest| (lowest.div_euclid(GENERATION) - 1) * GENERATION + 1);
    let (owner, spec) = (book.shared(&job.owner)?, book.shared(&job.spec)?);
    let (state, by) = state_columns(JobState::Ended(job.outcome.state));
    let sql =
        "INSERT INTO jobs (id, attempt, latest, array, task, uid, owner, spec, name, partition, account, qos, state,
        state_by, code, signal, reason, submit, eligible, start, end, limit_s, nodes, num_nodes, num_cpus)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values = params![
        job.id.0,
        attempt,
        lowest.is_none(),
        job.task.map(|task| task.array.0),
        job.task.map(|task| task.index),
        job.owner.uid,
        owner,
        spec,
        job.spec.name,
        job.partition,
        book.account(&job.spec),
        book.qos(&job.spec),
        state,
        by,
        job.outcome.exit.code,
        job.outcome.exit.signal,
        job.outcome.reason,
        job.submit.0 as i64,
        job.submit.0 as i64,
        job.start.map(|time| time.0 as i64),
        job.end.0 as i64,
        job.limit_s.map(|limit| limit as i64),
        job.nodes,
        job.num_nodes,
        job.num_cpus
    ];
    book.db.write(sql, values)?;
    job.billing.map_or(Ok(()), |billing| book.put_billed(job.id, attempt, billing))
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;
    use squall_model::billing::Billing;
    use squall_model::id::JobId;
    use squall_model::job::{EndState, ExitCode, JobSpec, Outcome, Owner};
    use squall_model::time::Time;
    use squall_model::wire::client::AccountingQuery;
    use squall_model::wire::info::AccountingRow;

    use super::{Book, Brought, PastJob, bring};
    use crate::accounts::query::Course;
    use crate::file::tests::Folder;

    fn past(id: u32, submit_s: u64) -> PastJob {
        let at = Time::from_secs;
        PastJob {
            id: JobId(id),
            task: None,
            owner: Owner { uid: 7, user: "ann".into(), ..Owner::default() },
            spec: JobSpec { name: format!("job{id}"), account: Some("phys".into()), ..JobSpec::default() },
            partition: "old".into(),
            outcome: Outcome { state: EndState::Failed, exit: ExitCode { code: 3, signal: 0 }, reason: None },
            submit: at(submit_s),
            start: Some(at(submit_s + 10)),
            end: at(submit_s + 100),
            limit_s: Some(3600),
            nodes: "n[1-2]".into(),
            num_nodes: 2,
            num_cpus: 8,
            billing: None,
        }
    }

    fn rows(place: &Place, duplicates: bool) -> Vec<AccountingRow> {
        let book = Book::open(&place.accounts()).unwrap();
        let mut course = Course::new(&book, Box::new(AccountingQuery { duplicates, ..AccountingQuery::default() }));
        let mut all = Vec::new();
        while !course.go_on(&book, &mut |rows, _, _| all.extend(rows)).unwrap() {}
        all
    }

    #[test]
    fn jobs_are_brought_once_and_ids_in_use_are_kept_apart() {
        let dir = Folder::new();
        let place = Place::at(dir.path()).unwrap();
        let jobs = [PastJob { billing: Some(Billing(40_000_000)), ..past(5, 1000) }, past(6, 2000)];
        assert_eq!(bring(&place, None, &jobs), Ok(Brought { added: 2, known: 0 }));
        assert_eq!(bring(&place, None, &jobs), Ok(Brought { added: 0, known: 2 }));
        let all = rows(&place, false);
        assert_eq!(all.len(), 2);
        let first = &all[0];
        assert_eq!((first.id, first.name.as_str(), first.account.as_str()), (JobId(5), "job5", "phys"));
        assert_eq!((first.exit.code, first.num_cpus, first.nodes.as_str()), (3, 8, "n[1-2]"));
        assert_eq!((first.billing, all[1].billing), (Some(Billing(40_000_000)), None));
        // The same id at another time is another job.
        assert_eq!(bring(&place, None, &[past(5, 9000)]), Ok(Brought { added: 1, known: 0 }));
        assert_eq!((rows(&place, false).len(), rows(&place, true).len()), (2, 3));
    }
}
