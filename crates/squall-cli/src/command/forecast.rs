//! `squall forecast [JOB]`: when and where pending jobs are expected to start.

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::{Value, json};
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::client::{JobSelection, StateFilter};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::lists::{expect, job_rows};
use squall_text::columns::jobs::FIELDS;
use squall_text::format::job::JobRow;
use squall_text::format::layout::Layout;
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] =
    &[flag("json", '\0', Arg::None, "produce JSON output"), flag("help", 'h', Arg::None, "show this help")];

/// What `squall forecast` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall forecast",
    about: "say when pending jobs are expected to start",
    synopsis: &["[JOB] [--json]"],
    options: Options::Own(OPTIONS),
    notes: "\
Shows when and where pending jobs are expected to start, the first ones first, as `squeue --start`
does. The times are by time limits: every running job uses all of its time, and nobody submits
another one. So most jobs start earlier. N/A: a job that waits for another one, is held, or is
behind too many others; `squall why JOB` says more.
With --json: an object with `basis` (`limits`) and a list, `jobs`, of objects with `job`, `job_id`,
`start_s` (seconds since 1970, or null) and `nodes`.
",
};

const WHAT: &str = "squall forecast";

/// Runs `squall forecast`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live(WHAT, args, forecast)
}

fn forecast(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let jobs = match given.operands.as_slice() {
        [] => JobSelection { states: vec![StateFilter::Pending], ..JobSelection::default() },
        [job] => {
            let ids = call.targets(job)?.into_iter().map(|target| target.job).collect();
            JobSelection { ids, ..JobSelection::default() }
        }
        [_, more, ..] => return call.fail(&format!("one job at a time: `{more}` is one too many")),
    };
    let named = given.operands.first();
    let page = match call.controller.jobs(jobs, named.is_some(), false) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut rows = job_rows(call, page)?;
    if let Some(job) = named
        && rows.iter().all(|row| row.info.state != JobState::Pending)
    {
        return call.fail(&match rows.first() {
            Some(row) => format!("job {job} does not wait: it is {}", words::state(row.info.state).0),
            None => format!("there is no job {job} that you may see"),
        });
    }
    rows.retain(|row| row.info.state == JobState::Pending);
    expect(call, &mut rows);
    rows.sort_by_key(|row| (row.info.start.is_none(), row.info.start, row.info.id));
    let text = if given.has("json") {
        format!("{:#}\n", json!({ "basis": "limits", "jobs": rows.iter().map(object).collect::<Vec<_>>() }))
    } else if rows.is_empty() {
        "no job is pending\n".to_owned()
    } else {
        let layout = Layout::short("%.18i %.9P %.8j %.8u %.6D %19S %Y", FIELDS);
        layout.lines(true, &rows) + "By time limits: most jobs start earlier, as jobs rarely use all of their time.\n"
    };
    call.print(&text);
    Ok(())
}

fn object(row: &JobRow) -> Value {
    json!({
        "job": row.array_id(),
        "job_id": row.info.id.0,
        "start_s": row.info.start.map(Time::secs),
        "nodes": row.expected_nodes,
    })
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;
    use squall_model::wire::client::Answer;
    use squall_model::wire::info::ExpectedStart;

    use super::{Time, forecast};
    use crate::command::listing::fake::{NOW, check, fake, run_with};

    #[test]
    fn jobs_and_their_expected_starts() {
        let mut text = String::new();
        for args in [&[][..], &["30"], &["30", "--json"], &["10"], &["99999"], &["10", "30"]] {
            let mut fake = fake();
            let start = ExpectedStart { id: JobId(30), time: Time::from_secs(NOW + 60), nodes: "n3".into() };
            fake.answers = vec![Answer::Expected(vec![start])];
            let seen = run_with(&mut fake, "squall forecast", forecast, args, &[]);
            text.extend(["$ squall forecast ", &args.join(" "), "\n", &seen.out, &seen.err]);
        }
        check("forecast", &text);
    }
}
