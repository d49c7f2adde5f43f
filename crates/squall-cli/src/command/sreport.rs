//! sreport: how much CPU time accounts and users have used.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use jiff::Timestamp;
use squall_model::job::JobState;
use squall_model::time::{Span, Time};
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::AccountingRow;

use crate::command::listing::arguments::{Arguments, Known, Value};
use crate::command::listing::call::{Call, Fail, live};
use crate::format::sheet::{Column, Sheet, Style};
use crate::format::when::looking_back;
use crate::format::words;

const OPTIONS: &[Known] = &[
    ("all_clusters", 'a', Value::None),
    ("cluster", 'M', Value::Needed),
    ("federation", '\0', Value::None),
    ("local", '\0', Value::None),
    ("noheader", 'n', Value::None),
    ("parsable", 'p', Value::None),
    ("parsable2", 'P', Value::None),
    ("quiet", 'Q', Value::None),
    ("", 't', Value::Needed),
    ("tres", 'T', Value::Needed),
    ("verbose", 'v', Value::None),
    ("", 'h', Value::None),
];

const HELP: &str = "\
sreport [<OPTION>] <REPORT> [start=TIME] [end=TIME]
    Valid <OPTION> values are:
     -n or --noheader: no header will be added to the beginning of output
     -p or --parsable: output will be '|' delimited with a '|' at the end
     -P or --parsable2: output will be '|' delimited without a '|' at the end
     -t <time_format>: Second, Minute or Hour
     -V or --version: print the version
    Valid <REPORT> values are:
     cluster AccountUtilizationByUser
     cluster UserUtilizationByAccount
     user TopUsage [topcount=N]
  Without times, yesterday's usage is reported.
";

/// What one user used in one account; an empty user: the whole account.
struct Used {
    cluster: String,
    account: String,
    user: String,
    amount: u64,
}

type C = Column<Used>;

static COLUMNS: &[C] = &[
    C::new("Cluster", 9, |u| u.cluster.clone()),
    C::new("Account", 15, |u| u.account.clone()),
    C::new("Login", 9, |u| u.user.clone()),
    C::titled("Proper", "Proper Name", 15, |u| u.user.clone()),
    C::new("Used", 8, |u| u.amount.to_string()),
    C::new("Energy", 8, |_| "0".to_owned()),
];

/// Which report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    /// Accounts, and below each its users.
    Accounts,
    /// Users, each with its accounts.
    Users,
    /// The users with the most.
    Top,
}

/// Runs sreport.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sreport", args, sreport)
}

fn sreport(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(OPTIONS, args, HELP)? else { return Ok(()) };
    // `-t` and `-h` have no long names.
    let unit = given.options.iter().find(|o| o.name.is_empty()).map(|o| o.value.clone());
    let mut words = given.operands.iter().map(String::as_str);
    let (Some(kind), false) = (words.next(), unit == Some(None)) else {
        call.print(HELP);
        return Ok(());
    };
    if kind == "version" {
        call.print(&format!("slurm {}\n", words::slurm_version()));
        return Ok(());
    }
    let report = report(call, kind, words.next().unwrap_or_default())?;
    let (unit, unit_s) = match unit.flatten().as_deref().unwrap_or("m").to_lowercase() {
        text if !text.is_empty() && "seconds".starts_with(&text) => ("Seconds", 1),
        text if !text.is_empty() && "minutes".starts_with(&text) => ("Minutes", 60),
        text if !text.is_empty() && "hours".starts_with(&text) => ("Hours", 3600),
        text => return call.fail(&format!("-t {text}: use Second, Minute or Hour")),
    };
    let (mut start, mut end) = yesterday(call);
    let mut most = 10;
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let now = Timestamp::from_microsecond(call.now.0 as i64).unwrap_or_default().to_zoned(call.zone.clone());
        match (key.to_lowercase().as_str(), looking_back(value, &now)) {
            ("start", Some(time)) => start = time,
            ("end", Some(time)) => end = time.min(call.now),
            ("start" | "end", None) => return call.fail(&format!("Invalid time specification (pos=0): {value}")),
            ("topcount", _) => most = value.parse().unwrap_or(most),
            _ => return call.fail(&format!("Unknown condition: {word}")),
        }
    }
    // Since today, without an end, is an hour, as in Slurm.
    end = end.max(start + Span::from_secs(3600));
    let what = "slurm_load_accounting error";
    let query = AccountingQuery {
        start: Some(start),
        end: Some(end),
        allocations_only: true,
        duplicates: true,
        ..AccountingQuery::default()
    };
    let rows = match call.controller.accounting(query) {
        Ok(rows) => rows,
        Err(e) => return call.failed(what, &e),
    };
    let cluster = call.cluster(what)?;
    let mut used = sums(report, &rows, (start, end.min(call.now)), &cluster);
    if report == Report::Top {
        used.truncate(most);
    }
    for row in &mut used {
        row.amount /= unit_s;
    }
    let head = head(call, report, (start, end), unit);
    let text = print(call, &given, report, &used)?;
    if !given.has("noheader") {
        call.print(&head);
    }
    call.print(&text);
    Ok(())
}

fn report(call: &mut Call<'_>, kind: &str, name: &str) -> Result<Report, Fail> {
    let (kind, name) = (kind.to_lowercase(), name.to_lowercase());
    let is = |a: &str, b: &str| !name.is_empty() && a.starts_with(&kind) && b.starts_with(&name);
    if is("cluster", "accountutilizationbyuser") {
        Ok(Report::Accounts)
    } else if is("cluster", "userutilizationbyaccount") {
        Ok(Report::Users)
    } else if is("user", "topusage") {
        Ok(Report::Top)
    } else {
        call.say(&format!("Not valid report {kind} {name}\nsreport --help lists those that are"));
        Err(Fail(1))
    }
}

/// From midnight to midnight.
fn yesterday(call: &Call<'_>) -> (Time, Time) {
    let now = Timestamp::from_microsecond(call.now.0 as i64).unwrap_or_default().to_zoned(call.zone.clone());
    let today = now.start_of_day().unwrap_or_else(|_| now.clone());
    let before = today.yesterday().unwrap_or_else(|_| today.clone());
    let time = |at: &jiff::Zoned| Time::from_secs(u64::try_from(at.timestamp().as_second()).unwrap_or(0));
    (time(&before), time(&today))
}

/// Seconds of CPUs within a span of time, by account and user.
fn sums(report: Report, rows: &[AccountingRow], (from, to): (Time, Time), cluster: &str) -> Vec<Used> {
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for row in rows {
        let Some(start) = row.start else { continue };
        let over = matches!(row.state, JobState::Ended(_) | JobState::Completing(_));
        let until = row.end.filter(|_| over).unwrap_or(to).min(to);
        let seconds = until.secs().saturating_sub(start.max(from).secs()).saturating_sub(row.suspended_s);
        let amount = seconds * u64::from(row.num_cpus);
        let (account, user) = (row.account.clone(), row.owner.user.clone());
        if report == Report::Accounts {
            *sums.entry((account.clone(), String::new())).or_default() += amount;
        }
        let key = if report == Report::Accounts { (account, user) } else { (user, account) };
        *sums.entry(key).or_default() += amount;
    }
    let mut used: Vec<Used> = sums
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|((first, second), amount)| {
            let (account, user) = if report == Report::Accounts { (first, second) } else { (second, first) };
            Used { cluster: cluster.to_owned(), account, user, amount }
        })
        .collect();
    if report == Report::Top {
        used.sort_by_key(|u| std::cmp::Reverse(u.amount));
    }
    used
}

fn head(call: &Call<'_>, report: Report, (start, end): (Time, Time), unit: &str) -> String {
    let title = match report {
        Report::Accounts => "Cluster/Account/User Utilization",
        Report::Users => "Cluster/User/Account Utilization",
        Report::Top => "Top 10 Users",
    };
    let clock = call.clock(call.now);
    let last = Time::from_secs(end.secs().saturating_sub(1));
    let line = "-".repeat(80);
    let span_s = end.secs().saturating_sub(start.secs());
    format!(
        "{line}\n{title} {} - {} ({span_s} secs)\nUsage reported in CPU {unit}\n{line}\n",
        clock.show(start),
        clock.show(last)
    )
}

fn print(call: &mut Call<'_>, given: &Arguments, report: Report, used: &[Used]) -> Result<String, Fail> {
    let format = match report {
        Report::Accounts => "Cluster,Account,Login,Proper,Used,Energy",
        Report::Users | Report::Top => "Cluster,Login,Proper,Account,Used,Energy",
    };
    let sheet = Sheet::parse(format, COLUMNS).or_else(|bad| call.fail(&format!("Unknown field '{bad}'")))?;
    let style = match given.options.iter().rev().find(|o| o.name.starts_with("parsable")) {
        Some(option) => Style::Parsable { delimiter: "|".to_owned(), ending: option.name == "parsable" },
        None => Style::Table,
    };
    Ok(sheet.lines(!given.has("noheader"), &style, used))
}

#[cfg(test)]
mod tests {
    use super::sreport;
    use crate::command::listing::fake::{check, transcript};

    #[test]
    fn reports() {
        let since = "start=2026-11-20";
        let calls: &[&[&str]] = &[
            &["cluster", "AccountUtilizationByUser", since, "end=now"],
            &["-t", "seconds", "-P", "cluster", "user", since, "end=now"],
            &["-nP", "-t", "Hour", "user", "top", since, "end=now", "topcount=1"],
            &["user", "top", "start=2001-01-01", "end=2001-01-02"],
            &["cluster", "bogus"],
            &["user", "top", "start=bogus"],
        ];
        check("sreport", &transcript("sreport", sreport, calls));
    }
}
