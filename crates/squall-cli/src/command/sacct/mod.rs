//! sacct: lists jobs and steps from accounting, with the resources they used.

mod query;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::id::JobId;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef};
use squall_model::wire::info::AccountingRow;

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{id_of, lines};
use crate::command::listing::structured::{dialect, document};
use squall_client::unexpected;
use squall_text::columns::accounting::{BRIEF, DEFAULT, FIELDS, LONG};
use squall_text::format::accounting::{Row, Units};
use squall_text::format::sheet::Sheet;
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, GivenFlag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::{AnswerKind, accounting};

const WHAT: &str = "slurm_load_accounting error";

const OPTIONS: &[Flag] = &[
    flag("accounts", 'A', Arg::Needed("value"), "Comma separated list of accounts"),
    flag("allclusters", 'L', Arg::None, "").hint("only this cluster is known"),
    flag("allocations", 'X', Arg::None, "Only show statistics relevant to the job allocation itself, not its steps"),
    flag("allusers", 'a', Arg::None, "Display jobs for all users"),
    flag("array", '\0', Arg::None, "A line for each task of an array that waits"),
    flag("associations", 'x', Arg::Needed("value"), "Comma separated list of association ids"),
    flag("batch-script", 'B', Arg::None, "Print the batch script of the job"),
    flag("brief", 'b', Arg::None, "Equivalent to '--format=jobid,state,exitcode'"),
    flag("cluster", 'M', Arg::Needed("names"), "only the cluster here is known"),
    flag("clusters", 'M', Arg::Needed("names"), ""),
    flag("completion", 'c', Arg::None, "")
        .refused("Slurm job completion is disabled: accounting has all jobs, ask without it"),
    flag("constraints", 'C', Arg::Needed("value"), "comma separated list of constraints of jobs"),
    flag(
        "delimiter",
        '\0',
        Arg::Needed("value"),
        "Characters that separate the fields with --parsable and --parsable2",
    ),
    flag("duplicates", 'D', Arg::None, "Also show earlier attempts of requeued jobs"),
    flag("endtime", 'E', Arg::Needed("value"), "Select jobs eligible before this time"),
    flag("env-vars", '\0', Arg::None, "").refused("accounting keeps no environments: print it in the script, by `env`"),
    flag("expand-patterns", '\0', Arg::None, "").hint("paths of output files are always shown with their values"),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    flag("fields", 'o', Arg::Needed("value"), ""),
    flag("file", 'f', Arg::Needed("value"), "")
        .refused("there is no file of a job completion log here: ask without it"),
    flag("flags", 'F', Arg::Needed("value"), "")
        .refused("which scheduler started a job is not kept here: ask without it"),
    flag("format", 'o', Arg::Needed("value"), ""),
    flag("gid", 'g', Arg::Needed("value"), "Comma separated list of GIDs or group names"),
    flag("group", 'g', Arg::Needed("value"), ""),
    flag("help-fields", 'e', Arg::None, ""),
    flag("helpformat", 'e', Arg::None, ""),
    flag("helpstate", '\0', Arg::None, "list the names of states"),
    flag("jobs", 'j', Arg::Needed("value"), "Format is <job(.step)>. Display information about this job or these jobs"),
    flag("json", '\0', Arg::Maybe("data_parser"), "Produce JSON output"),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("long", 'l', Arg::None, "Long output: see --helpformat"),
    flag("name", '\0', Arg::Needed("value"), "Display jobs that have any of these names"),
    flag("ncpus", 'I', Arg::Needed("value"), "Return jobs which ran on this many cpus (N = min[-max])"),
    flag("nnodes", 'i', Arg::Needed("value"), "Return jobs which ran on this many nodes (N = min[-max])"),
    flag("noconvert", '\0', Arg::None, "don't convert units from their original type"),
    flag("nodelist", 'N', Arg::Needed("value"), "Display jobs that ran on any of these nodes"),
    flag("noheader", 'n', Arg::None, "No header will be added to the beginning of output"),
    flag("parsable", 'p', Arg::None, "output will be '|' delimited with a '|' at the end"),
    flag("parsable2", 'P', Arg::None, "output will be '|' delimited without a '|' at the end"),
    flag("partition", 'r', Arg::Needed("value"), "Comma separated list of partitions"),
    flag("qos", 'q', Arg::Needed("value"), "Only send data about jobs using these qos"),
    flag("reason", 'R', Arg::Needed("value"), "Comma separated list of reasons"),
    flag(
        "starttime",
        'S',
        Arg::Needed("value"),
        "Select jobs eligible after this time. Default is 00:00:00 of the current day, unless '-s' is set then the default is 'now', or '-j' then there is no limit",
    ),
    flag("state", 's', Arg::Needed("value"), "Select jobs based on their current state"),
    flag("timelimit-max", 'K', Arg::Needed("value"), "with --timelimit-min: only jobs with limits up to this"),
    flag("timelimit-min", 'k', Arg::Needed("value"), "only jobs with this time limit"),
    flag("truncate", 'T', Arg::None, "Truncate time"),
    flag("uid", 'u', Arg::Needed("value"), "Use this comma separated list of uids or user names"),
    flag("units", '\0', Arg::Needed("KMGTP"), "Display values in the specified unit type"),
    flag("use-local-uid", '\0', Arg::None, "User ids as this machine has them"),
    flag("user", 'u', Arg::Needed("value"), ""),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("wckeys", 'W', Arg::Needed("value"), "comma separated list of workload characterization keys"),
    flag(
        "whole-hetjob",
        '\0',
        Arg::Maybe("yes|no"),
        "All components of heterogeneous jobs of which one is named; no: only that one",
    ),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "Produce YAML output"),
    flag("help", 'h', Arg::None, "show this help"),
    flag("usage", 'U', Arg::None, "show all options in a few lines"),
];

/// What `sacct` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sacct",
    about: "show what jobs were and what they used",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: "\
Valid time formats are HH:MM[:SS] [AM|PM], MMDD[YY] or MM/DD[/YY] or MM.DD[.YY], MM/DD[/YY]-HH:MM[:SS],
YYYY-MM-DD[THH:MM[:SS]] and now[{+|-}count[seconds(default)|minutes|hours|days|weeks]].
",
};

/// Runs sacct.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sacct", args, sacct)
}

/// Runs sacct with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sacct(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if let Some(text) = list_of_words(&given) {
        call.print(&text);
        return Ok(());
    }
    if let Some(extra) = given.operands.first() {
        return call.fail(&format!("Unknown arguments:\nsacct: error:  {extra}"));
    }
    let dialect = dialect(call, &given)?;
    let sheet = sheet(call, &given)?;
    let units = units(call, &given)?;
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, WHAT)?;
    let mut query = query::query(call, &given)?;
    if given.has("batch-script") {
        return batch_scripts(call, &query);
    }
    if dialect.is_none() && query::is_by_pages(&given) {
        return list(call, &given, query, &sheet, units);
    }
    let mut rows = call.accounting(WHAT, query.clone())?;
    let leaders: BTreeSet<JobId> = rows.iter().filter_map(|row| row.het).map(|het| het.leader).collect();
    if given.has("whole-hetjob") && given.last("whole-hetjob") != Some("no") && !leaders.is_empty() {
        // Components with job ids of their own: the query is repeated for the whole heterogeneous job.
        query.ids.extend(leaders.into_iter().map(JobRef::Job));
        rows = call.accounting(WHAT, query.clone())?;
    }
    query::filter(call, &given, &mut rows)?;
    if given.has("truncate") {
        for row in &mut rows {
            truncate(row, &query);
        }
    }
    let (clock, cluster) = (call.clock(call.now), call.cluster(WHAT)?);
    let rows: Vec<Row> = rows.into_iter().map(|data| Row { units, ..Row::new(data, &clock, &cluster) }).collect();
    let text = match dialect {
        Some(dialect) => {
            let people = call.people;
            let jobs = accounting::jobs(&rows, &|uid| people.user(uid));
            document(call, dialect, &cluster, &["sacct"], AnswerKind::Accounting, vec![("jobs", jobs.into())])
        }
        None => sheet.lines(!given.has("noheader"), &given.style(), &rows),
    };
    call.print(&text);
    Ok(())
}

/// Prints a table of rows. They are made into text as they come, so that a long list needs the memory of its text only.
fn list(
    call: &mut Call<'_>,
    given: &Arguments,
    query: AccountingQuery,
    sheet: &Sheet<Row>,
    units: Units,
) -> Result<(), Fail> {
    query::keep(given, &mut Vec::new()).or_else(|problem| call.fail(&problem))?;
    let (clock, cluster, style) = (call.clock(call.now), call.cluster(WHAT)?, given.style());
    let titles = sheet.lines(!given.has("noheader"), &style, &[]);
    let mut text = titles.clone();
    let asked = query.clone();
    let answered = call.controller.accounting_pages(query, &mut |page| {
        let Some(mut rows) = page else {
            text.clone_from(&titles);
            return;
        };
        // because the conditions were read above
        let Ok(()) = query::keep(given, &mut rows) else { return };
        let rows = rows.into_iter().map(|mut data| {
            if given.has("truncate") {
                truncate(&mut data, &asked);
            }
            Row { units, ..Row::new(data, &clock, &cluster) }
        });
        text.push_str(&sheet.lines(false, &style, &rows.collect::<Vec<_>>()));
    });
    answered.or_else(|e| call.failed(WHAT, &e))?;
    call.print(&text);
    Ok(())
}

/// Returns the text of options that need no controller, such as `--helpformat`; None: none of these is given.
fn list_of_words(given: &Arguments) -> Option<String> {
    if given.options.iter().any(|o| o.name.is_empty()) {
        return Some(PAGE.help());
    }
    if given.has("helpstate") {
        return Some(lines(words::STATES.iter().map(|(long, _, _)| long)));
    }
    (given.has("helpformat") || given.has("help-fields")).then(|| in_columns(FIELDS.iter().map(|field| field.name)))
}

/// Formats names of fields, four on a line.
pub(crate) fn in_columns(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:<20}")).collect();
    lines(names.chunks(4).map(|four| four.concat().trim_end().to_owned()))
}

fn sheet(call: &mut Call<'_>, given: &Arguments) -> Result<Sheet<Row>, Fail> {
    let mut chosen: Vec<&str> =
        given.options.iter().filter(|o| o.name == "format" || o.name == "fields").map(GivenFlag::text).collect();
    let variable = call.variable("SACCT_FORMAT");
    if chosen.is_empty() {
        chosen.push(if given.has("brief") {
            BRIEF
        } else if given.has("long") {
            LONG
        } else {
            variable.as_deref().unwrap_or(DEFAULT)
        });
    }
    Sheet::parse(&chosen.join(","), FIELDS).or_else(|bad| call.fail(&format!("Invalid field requested: \"{bad}\"")))
}

fn units(call: &mut Call<'_>, given: &Arguments) -> Result<Units, Fail> {
    match given.last("units") {
        None if given.has("noconvert") => Ok(Units::Plain),
        None => Ok(Units::Exact),
        Some(text) => match text.to_ascii_uppercase().as_bytes() {
            [unit @ (b'K' | b'M' | b'G' | b'T' | b'P')] => Ok(Units::In(char::from(*unit))),
            _ => call.fail(&format!("Invalid unit type (--units={text}). Available options are K, M, G, T and P.")),
        },
    }
}

/// Applies `--truncate`: moves start and end of a row into the requested period.
fn truncate(row: &mut AccountingRow, query: &AccountingQuery) {
    let low = query.start.unwrap_or_default();
    let high = query.end.unwrap_or(Time(u64::MAX)).max(low);
    for time in [&mut row.start, &mut row.end] {
        *time = time.map(|t| t.clamp(low, high));
    }
}

fn batch_scripts(call: &mut Call<'_>, query: &AccountingQuery) -> Result<(), Fail> {
    if query.ids.is_empty() {
        return call.fail("-B, --batch-script requires specific jobs to be selected with the -j option.");
    }
    for job in query.ids.iter().map(id_of) {
        let script = match call.controller.ask_host(&HostRequest::Script { job }) {
            Ok(Answer::Script(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(_) => return call.failed("slurm_load_jobs error", &unexpected()),
            Err(e) => return call.failed("slurm_load_jobs error", &e),
        };
        call.print(&format!("Batch Script for {job}\n{:-<80}\n{script}\n", ""));
    }
    Ok(())
}
