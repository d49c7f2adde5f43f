//! sacct: lists jobs and steps from accounting, with the resources they used.

pub(crate) mod fields;
mod query;
pub(crate) mod row;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

use squall_model::id::JobId;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, Request};
use squall_model::wire::info::AccountingRow;

use crate::client::unexpected;
use crate::command::listing::arguments::{Arguments, Given, Known, Value};
use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{id_of, lines};
use crate::command::sacct::fields::{BRIEF, DEFAULT, FIELDS, LONG};
use crate::command::sacct::row::{Row, Units};
use crate::format::sheet::Sheet;
use crate::format::words;
use crate::shapes::{Kind, accounting, dialect, document};

const WHAT: &str = "slurm_load_accounting error";

const OPTIONS: &[Known] = &[
    ("accounts", 'A', Value::Needed),
    ("allclusters", 'L', Value::None),
    ("allocations", 'X', Value::None),
    ("allusers", 'a', Value::None),
    ("array", '\0', Value::None),
    ("associations", 'x', Value::Needed),
    ("batch-script", 'B', Value::None),
    ("brief", 'b', Value::None),
    ("cluster", 'M', Value::Needed),
    ("clusters", 'M', Value::Needed),
    ("completion", 'c', Value::None),
    ("constraints", 'C', Value::Needed),
    ("delimiter", '\0', Value::Needed),
    ("duplicates", 'D', Value::None),
    ("endtime", 'E', Value::Needed),
    ("env-vars", '\0', Value::None),
    ("expand-patterns", '\0', Value::None),
    ("federation", '\0', Value::None),
    ("fields", 'o', Value::Needed),
    ("file", 'f', Value::Needed),
    ("flags", 'F', Value::Needed),
    ("format", 'o', Value::Needed),
    ("gid", 'g', Value::Needed),
    ("group", 'g', Value::Needed),
    ("help-fields", 'e', Value::None),
    ("helpformat", 'e', Value::None),
    ("helpstate", '\0', Value::None),
    ("jobs", 'j', Value::Needed),
    ("json", '\0', Value::Maybe),
    ("local", '\0', Value::None),
    ("long", 'l', Value::None),
    ("name", '\0', Value::Needed),
    ("ncpus", 'I', Value::Needed),
    ("nnodes", 'i', Value::Needed),
    ("noconvert", '\0', Value::None),
    ("nodelist", 'N', Value::Needed),
    ("noheader", 'n', Value::None),
    ("parsable", 'p', Value::None),
    ("parsable2", 'P', Value::None),
    ("partition", 'r', Value::Needed),
    ("qos", 'q', Value::Needed),
    ("reason", 'R', Value::Needed),
    ("starttime", 'S', Value::Needed),
    ("state", 's', Value::Needed),
    ("timelimit-max", 'K', Value::Needed),
    ("timelimit-min", 'k', Value::Needed),
    ("truncate", 'T', Value::None),
    ("uid", 'u', Value::Needed),
    ("units", '\0', Value::Needed),
    ("use-local-uid", '\0', Value::None),
    ("user", 'u', Value::Needed),
    ("verbose", 'v', Value::None),
    ("wckeys", 'W', Value::Needed),
    ("whole-hetjob", '\0', Value::Maybe),
    ("yaml", '\0', Value::Maybe),
    ("", 'h', Value::None),
    ("", 'U', Value::None),
];

const HELP: &str = "\
sacct [<OPTION>]
 Valid <OPTION> values are:
     -a, --allusers:           Display jobs for all users.
     -A, --accounts:           Comma separated list of accounts.
     -b, --brief:              Equivalent to '--format=jobid,state,exitcode'.
     -B, --batch-script:       Print the batch script of the job.
     -D, --duplicates:         Also show earlier attempts of requeued jobs.
         --delimiter:          Characters that separate the fields with --parsable and --parsable2.
     -e, --helpformat:         Print a list of fields that can be specified with the '--format' option
     -E, --endtime:            Select jobs eligible before this time.
     -g, --gid, --group:       Comma separated list of GIDs or group names.
     -i, --nnodes:             Return jobs which ran on this many nodes (N = min[-max])
     -I, --ncpus:              Return jobs which ran on this many cpus (N = min[-max])
     -j, --jobs:               Format is <job(.step)>. Display information about this job or these jobs.
         --json:               Produce JSON output
     -l, --long:               Long output: see --helpformat
     -M, --clusters:           Only the cluster here is known.
     -n, --noheader:           No header will be added to the beginning of output.
         --name:               Display jobs that have any of these names.
     -N, --nodelist:           Display jobs that ran on any of these nodes.
     -o, --format:             Comma separated list of fields (see \"--helpformat\").
     -p, --parsable:           output will be '|' delimited with a '|' at the end
     -P, --parsable2:          output will be '|' delimited without a '|' at the end
     -q, --qos:                Only send data about jobs using these qos.
     -r, --partition:          Comma separated list of partitions.
     -s, --state:              Select jobs based on their current state.
     -S, --starttime:          Select jobs eligible after this time. Default is 00:00:00 of the current day,
                               unless '-s' is set then the default is 'now', or '-j' then there is no limit.
     -T, --truncate:           Truncate time.
     -u, --uid, --user:        Use this comma separated list of uids or user names.
         --units=[KMGTP]:      Display values in the specified unit type.
     -V, --version:            output version information and exit
     -R, --reason:             Comma separated list of reasons.
     -x, --associations:       Comma separated list of association ids.
         --array:              A line for each task of an array that waits.
         --whole-hetjob[=yes|no]: All components of heterogeneous jobs of which one is named; no: only that one.
         --use-local-uid:      User ids as this machine has them.
     -X, --allocations:        Only show statistics relevant to the job allocation itself, not its steps.
         --yaml:               Produce YAML output
 Valid time formats are HH:MM[:SS] [AM|PM], MMDD[YY] or MM/DD[/YY] or MM.DD[.YY], MM/DD[/YY]-HH:MM[:SS],
 YYYY-MM-DD[THH:MM[:SS]] and now[{+|-}count[seconds(default)|minutes|hours|days|weeks]].
";

/// Runs sacct.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sacct", args, sacct)
}

/// Runs sacct with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sacct(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(OPTIONS, args, HELP)? else { return Ok(()) };
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
    query::refuse_absent(call, &given)?;
    let mut query = query::query(call, &given)?;
    if given.has("batch-script") {
        return batch_scripts(call, &query);
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
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|data| Row { data, clock: Rc::clone(&clock), cluster: Rc::clone(&cluster), units, pids: String::new() })
        .collect();
    let text = match dialect {
        Some(dialect) => {
            let people = call.people;
            let jobs = accounting::jobs(&rows, &|uid| people.user(uid));
            document(call, dialect, &cluster, &["sacct"], Kind::Accounting, vec![("jobs", jobs.into())])
        }
        None => sheet.lines(!given.has("noheader"), &given.style(), &rows),
    };
    call.print(&text);
    Ok(())
}

/// Returns the text of options that need no controller, such as `--helpformat`; None: none of these is given.
fn list_of_words(given: &Arguments) -> Option<String> {
    if given.options.iter().any(|o| o.name.is_empty()) {
        return Some(HELP.to_owned());
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
        given.options.iter().filter(|o| o.name == "format" || o.name == "fields").map(Given::text).collect();
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
        let script = match call.controller.ask(&Request::Script { job }) {
            Ok(Answer::Script(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(_) => return call.failed("slurm_load_jobs error", &unexpected()),
            Err(e) => return call.failed("slurm_load_jobs error", &e),
        };
        call.print(&format!("Batch Script for {job}\n{:-<80}\n{script}\n", ""));
    }
    Ok(())
}
