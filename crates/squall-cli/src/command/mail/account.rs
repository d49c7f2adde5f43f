//! What a mail about a job that has failed says below its subject: the same as `squall report`, and the last lines of its
//! output. The file is read by a process of the job's owner.

use std::fmt::Write;
use std::rc::Rc;

use squall_client::{Client, ClientError};
use squall_files::place::Place;
use squall_files::users;
use squall_host::sys::clock;
use squall_host::tail;
use squall_model::job::{JobKind, Owner};

use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef};
use squall_model::wire::feed::FeedJob;
use squall_text::columns::accounting::{stderr, stdout};
use squall_text::format::clock::Clock;
use squall_text::format::harmless;
use squall_text::report::record::Record;

/// Most lines of a file, and most bytes of a line.
const LINES: usize = 20;
const LINE_BYTES: usize = 200;

/// Returns the text about a job, or about an array as a whole. Empty: nothing more is known.
pub(super) fn of(place: &Place, job: &FeedJob, is_array: bool) -> String {
    if is_array {
        let array = job.task.map_or(job.id, |task| task.array);
        return format!("`squall report {array}` tells which tasks failed, why, and how to run these again.\n");
    }
    let Ok(Some(record)) = record(place, job) else { return String::new() };
    let report = record.report();
    let mut text = format!("{}\n", report.cause());
    let (row, owner) = (&record.job, &record.job.data.owner);
    if row.data.spec.kind == JobKind::Batch && row.data.start.is_some() {
        let (out, err) = (stdout(row), stderr(row));
        if err != out {
            lines(&mut text, owner, ("errors", &err));
        }
        lines(&mut text, owner, ("output", &out));
    }
    let hints = report.hints();
    if !hints.is_empty() {
        text.push_str("\nNext time:\n");
        for hint in &hints {
            text.extend(["  ", hint, "\n"]);
        }
    }
    let _ = writeln!(text, "\n`squall report {}` tells more.", row.id());
    text
}

/// Asks accounting for the job's last run. None: it does not know the job. Err: it can't be asked now.
pub(super) fn record(place: &Place, job: &FeedJob) -> Result<Option<Record>, ClientError> {
    let mut client = Client::connect_to(place, "mail")?;
    let cluster: Rc<str> = client.cluster()?.into();
    let one = job.task.map(|task| JobRef::Tasks(task.array, [task.index].into_iter().collect()));
    let ids = vec![one.unwrap_or(JobRef::Job(job.id))];
    let query = HostRequest::Accounting(Box::new(AccountingQuery { ids, ..AccountingQuery::default() }));
    let mut rows = Vec::new();
    let mut answer = client.ask(&query)?;
    while let Answer::Accounting { rows: more, more: goes_on, .. } = answer {
        rows.extend(more);
        if !goes_on {
            break;
        }
        answer = client.receive()?;
    }
    let clock = Rc::new(Clock::here(clock::now()));
    let name = |uid| users::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    let all = Record::all(rows, (&clock, &cluster), name);
    Ok(all.into_iter().rfind(|one| one.job.data.id == job.id))
}

/// Appends the last lines of a file of the owner's.
fn lines(text: &mut String, owner: &Owner, (what, path): (&str, &str)) {
    if path == "/dev/null" {
        return;
    }
    let Some(user) = users::by_uid(owner.uid) else { return };
    let owner = Owner { groups: users::groups(&user.name, user.gid), gid: user.gid, ..owner.clone() };
    let tail = tail::read_as(&owner, path);
    let _ = match tail.problem {
        Some(problem) => writeln!(text, "\nIts {what} can't be shown here ({problem}): {}", harmless(path)),
        None if tail.bytes.is_empty() => return,
        None => writeln!(text, "\nThe end of its {what}, {}:\n", harmless(path)),
    };
    let whole = String::from_utf8_lossy(&tail.bytes);
    let all: Vec<&str> = whole.lines().collect();
    for line in &all[all.len().saturating_sub(LINES)..] {
        let cut: String = harmless(line).chars().take(LINE_BYTES).collect();
        text.extend(["  ", &cut, "\n"]);
    }
}
