//! `squall report JOB`: what a job used of what it asked for, how it ended and why, and what to ask for next time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;
use squall_model::job::JobState;
use squall_model::time::Span;
use squall_model::wire::client::{AccountingQuery, Answer, Request};
use squall_model::wire::info::{AccountingRow, Why};

use crate::command::listing::call::{Call, Fail, live};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::report::record::Record;
use squall_text::report::{Report, many};

const OPTIONS: &[Flag] = &[
    flag("each", '\0', Arg::None, "report each task of an array"),
    flag("json", '\0', Arg::None, "produce JSON output"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `squall report` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall report",
    about: "say what a job used, how it ended, and what to ask for next time",
    synopsis: &["[JOB] [--each] [--json]"],
    options: Options::Own(OPTIONS),
    notes: "\
JOB is a job, an array or a task: 17, 18, 18_3. Of an array it says how many tasks are in each state,
why some failed, and how to run these again; with --each it reports each task. Without JOB it lists
which of your jobs have ended since yesterday, those that failed first. Of a running job it shows
what its steps have used until now. With --json: an object with a list, `jobs`, and of an array its
summary, `array`; times are seconds.
",
};

/// What begins the message of a request that fails.
const WHAT: &str = "squall report";

/// Runs `squall report`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live(WHAT, args, report)
}

fn report(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let (query, missing) = match given.operands.as_slice() {
        [job] => {
            let ids = call.targets(job)?.into_iter().map(|target| target.job).collect();
            let missing = format!("there is no job {job} that you may see; `sacct` lists yours");
            (AccountingQuery { ids, series: true, ..AccountingQuery::default() }, Some(missing))
        }
        [] => (ended_since_yesterday(call), None),
        [_, more, ..] => return call.fail(&format!("one job at a time: `{more}` is one too many")),
    };
    let mut rows = call.accounting(WHAT, query)?;
    if let Some(missing) = missing.as_ref().filter(|_| rows.iter().all(|row| row.step.is_some())) {
        return call.fail(missing);
    }
    if missing.is_none() {
        rows.retain(|row| matches!(row.state, JobState::Ended(_)));
    }
    let me = call.people.me();
    let mut hidden = BTreeSet::new();
    for row in &mut rows {
        if !measure(call, row) && row.owner.uid != me {
            hidden.insert(row.id);
        }
    }
    let (clock, cluster) = (call.clock(call.now), call.cluster(WHAT)?);
    let mut all = Record::all(rows, (&clock, &cluster), |uid| call.people.user(uid));
    for record in &mut all {
        (record.why, record.is_hidden) = (why(call, &record.job.data), hidden.contains(&record.job.data.id));
    }
    let reports: Vec<Report<'_>> = all.iter().map(Record::report).collect();
    let text = if given.has("json") {
        let ended = || json!({ "jobs": reports.iter().map(Report::json).collect::<Vec<_>>() });
        format!("{:#}\n", if missing.is_some() { many::json(&reports) } else { ended() })
    } else if missing.is_none() {
        many::ended_text("since yesterday", &reports)
    } else if !given.has("each") && many::are_one_array(&reports) {
        many::array_text(&reports)
    } else {
        reports.iter().map(Report::text).collect::<Vec<_>>().join("\n")
    };
    call.print(&text);
    Ok(())
}

/// Returns the query for the caller's jobs that have ended since the beginning of yesterday.
fn ended_since_yesterday(call: &Call<'_>) -> AccountingQuery {
    let clock = call.clock(call.now);
    let today = clock.midnight().unwrap_or(call.now);
    let (users, start) = (vec![call.people.me()], Some(today - Span::from_secs(86_400)));
    AccountingQuery { users, start, ..AccountingQuery::default() }
}

/// Replaces what accounting has of a running step by what it has used until now. Returns false without an answer, which
/// only the job's user and operators get.
fn measure(call: &mut Call<'_>, row: &mut AccountingRow) -> bool {
    let Some(step) = row.step.filter(|_| row.state == JobState::Running) else { return true };
    let answer = call.controller.ask(&Request::Measure { job: row.id, step, lately: false });
    let Ok(Answer::Measured(usage, _, series)) = answer else { return false };
    (row.usage, row.series) = (usage, series);
    true
}

/// Asks why a pending job waits. None: it does not wait, or there is no answer.
fn why(call: &mut Call<'_>, job: &AccountingRow) -> Option<Box<Why>> {
    if job.state != JobState::Pending {
        return None;
    }
    match call.controller.ask(&Request::Why { job: job.id }) {
        Ok(Answer::Why(why)) => Some(why),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::Arc;

    use serde_json::{Value, json};
    use squall_model::id::{JobId, StepNo};
    use squall_model::job::{ArrayTask, EndState, ExitCode, JobSpec, JobState, Need, Owner, PendingReason, Usage};
    use squall_model::resource::Memory;
    use squall_model::series::{Point, Series};
    use squall_model::time::{Span, Time};
    use squall_model::wire::client::{Answer, JobName, Refusal};
    use squall_model::wire::info::{AccountingRow, Why};

    use super::report;
    use crate::command::listing::fake::{Fake, NOW, accounting, check, fake, run_with};

    const NAME: &str = "squall report";

    /// Shows the report of each job: first as text, the last one also as JSON.
    fn shown(fake: &mut Fake, jobs: &[&str]) -> String {
        let mut text = String::new();
        for job in jobs {
            let seen = run_with(fake, NAME, report, &[job], &[]);
            let _ = writeln!(text, "$ {NAME} {job}\n{}{}", seen.out, seen.err);
        }
        text
    }

    /// What a step of two nodes used over 25 minutes, of which it was idle in the last 12.
    fn series() -> Series {
        let point = |at: u32| {
            let milli = if at < 78 { 1000 + at * 10 } else { 0 };
            let (cpu_ms, rss_kb) = (u64::from(milli) * 20, u64::from(at.min(60)) << 14);
            let half = Point { samples: 2, cpu_ms, rss_kb, time_ms: 20_000, ..Point::default() };
            Point { low_milli: milli / 2, high_milli: milli, high_kb: rss_kb, ..half }
        };
        Series { point_s: 10, nodes: 2, points: (0..150).map(point).collect(), ..Series::default() }
    }

    /// Returns the rows of a job that ran for 50 minutes of an hour with 16 GiB, and of its script.
    fn ran(id: u32, end: EndState, exit: ExitCode, cpu_s: u64, peak_kb: u64) -> [AccountingRow; 2] {
        let need = Need { memory: Memory::PerNodeMb(16 << 10), ..Need::default() };
        let row = |step| AccountingRow {
            exit,
            start: Some(Time::from_secs(NOW - 3000)),
            end: Some(Time::from_secs(NOW)),
            spec: Arc::new(JobSpec {
                need: need.clone(),
                stderr: Some("err-%j".into()),
                ..(*accounting(id, None, JobState::Pending).spec).clone()
            }),
            num_nodes: 1,
            nodes: "n1".into(),
            num_cpus: 4,
            memory_mb: 16 << 10,
            usage: Usage { user: Span::from_secs(cpu_s), total_rss_kb: peak_kb, ..Usage::default() },
            ..accounting(id, step, JobState::Ended(end))
        };
        [row(None), row(Some(StepNo::BATCH))]
    }

    #[test]
    fn ends_of_jobs() {
        let mut fake = fake();
        let killed = ExitCode { code: 0, signal: 9 };
        fake.rows.extend(ran(60, EndState::Completed, ExitCode::OK, 2900, 1_200_000));
        fake.rows.extend(ran(61, EndState::Failed, ExitCode { code: 127, signal: 0 }, 10, 1000));
        fake.rows.extend(ran(62, EndState::OutOfMemory, killed, 9000, 16_700_000));
        fake.rows.extend(ran(63, EndState::Timeout, ExitCode { code: 0, signal: 15 }, 11_000, 9_000_000));
        let [mut job, script] = ran(64, EndState::Failed, ExitCode { code: 0, signal: 53 }, 0, 0);
        job.reason = Some("Could not open stdout file /root/x.out: Permission denied".to_owned());
        fake.rows.extend([job, script]);
        check("report", &shown(&mut fake, &["40", "41", "42", "60", "61", "62", "63", "64", "51"]));
    }

    #[test]
    fn a_running_job_is_measured_and_a_waiting_one_asked_why() {
        let mut fake = fake();
        let running = |step| AccountingRow { end: None, ..accounting(70, step, JobState::Running) };
        fake.rows = vec![running(None), running(Some(StepNo(0)))];
        let usage = Usage { user: Span::from_secs(150), total_rss_kb: 1 << 20, ..Usage::default() };
        fake.answers = vec![Answer::Measured(usage, 0, Some(Box::new(series())))];
        let mut text = shown(&mut fake, &["70"]);
        let waiting = AccountingRow { start: None, end: None, ..accounting(71, None, JobState::Pending) };
        fake.rows = vec![AccountingRow { nodes: String::new(), num_cpus: 0, ..waiting }];
        let why = Why {
            job: JobName { id: JobId(71), task: None },
            reasons: vec![PendingReason::Resources],
            ..Why::default()
        };
        fake.answers = vec![Answer::Why(Box::new(why))];
        text += &shown(&mut fake, &["71"]);
        check("report-live", &text);
    }

    #[test]
    fn an_array_is_told_as_a_whole_and_the_line_that_runs_its_failed_tasks_again() {
        let mut fake = fake();
        let failed = (EndState::Failed, ExitCode { code: 3, signal: 0 });
        let ends = [(EndState::Completed, ExitCode::OK), failed, (EndState::Timeout, ExitCode::OK), failed];
        fake.rows.clear();
        for (index, (end, exit)) in ends.into_iter().enumerate() {
            let mut rows = ran(91 + index as u32, end, exit, 10, 1_200_000);
            for row in &mut rows {
                row.task = Some(ArrayTask { array: JobId(90), index: index as u32 });
                row.submit_line = "sbatch -a 0-9 sweep.sh".to_owned();
            }
            fake.rows.extend(rows);
        }
        let left = accounting(90, None, JobState::Pending);
        fake.rows.push(AccountingRow { pending_tasks: Some((4..10).collect()), start: None, end: None, ..left });
        let mut text = shown(&mut fake, &["90"]);
        let told = run_with(&mut fake, NAME, report, &["90", "--json"], &[]).out;
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        let whole = &told["array"];
        assert_eq!((&whole["tasks"], &whole["ended"]), (&json!(10), &json!(4)));
        assert_eq!(
            (&whole["again"], &whole["failed"][1]["tasks"]),
            (&json!("sbatch --array=1-3 sweep.sh"), &json!("2"))
        );
        fake.rows.truncate(4);
        text += &run_with(&mut fake, NAME, report, &["90", "--each"], &[]).out;
        check("report-array", &text);
    }

    #[test]
    fn without_a_job_it_tells_what_has_ended_failed_ones_first() {
        let mut fake = fake();
        fake.rows = ran(60, EndState::Completed, ExitCode::OK, 2900, 1_200_000).into();
        for (id, index) in [(61, 3), (62, 4)] {
            let mut rows = ran(id, EndState::Failed, ExitCode { code: 127, signal: 0 }, 10, 1000);
            for row in &mut rows {
                row.task = Some(ArrayTask { array: JobId(58), index });
            }
            fake.rows.extend(rows);
        }
        let text = run_with(&mut fake, NAME, report, &[], &[]).out;
        fake.rows.clear();
        check("report-ended", &(text + &run_with(&mut fake, NAME, report, &[], &[]).out));
    }

    #[test]
    fn what_another_user_s_job_uses_is_not_known() {
        let mut fake = fake();
        let owner = Arc::new(Owner { uid: 4242, user: "eve".into(), ..Owner::default() });
        let running =
            |step| AccountingRow { end: None, owner: Arc::clone(&owner), ..accounting(70, step, JobState::Running) };
        fake.rows = vec![running(None), running(Some(StepNo(0)))];
        fake.answers = vec![Answer::Refused(Refusal::AccessDenied)];
        check("report-hidden", &shown(&mut fake, &["70"]));
    }

    #[test]
    fn as_json() {
        let mut fake = fake();
        let task = Some(ArrayTask { array: JobId(80), index: 2 });
        fake.rows = ran(82, EndState::Completed, ExitCode::OK, 2900, 1_200_000).into();
        fake.rows.iter_mut().for_each(|row| row.task = task);
        check("report-json", &run_with(&mut fake, NAME, report, &["82", "--json"], &[]).out);
    }

    #[test]
    fn nonsense_is_refused() {
        let said = |args: &[&str]| run_with(&mut fake(), NAME, report, args, &[]).err;
        let many = "squall report: error: one job at a time: `41` is one too many\n";
        assert_eq!(said(&["40", "41"]), many);
        let missing = "squall report: error: there is no job 99999 that you may see; `sacct` lists yours\n";
        assert_eq!(said(&["99999"]), missing);
    }
}
