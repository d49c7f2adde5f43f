//! sreport: usage by accounts, users and reservations, and utilization of nodes, over a period.

mod goodput;
mod reserved;
mod sizes;
mod usage;
mod utilization;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

use jiff::Timestamp;
use squall_model::gres;
use squall_model::job::JobState;
use squall_model::time::{Span, Time};
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::AccountingRow;

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::names;
use crate::command::sacctmgr::TRES;
use squall_text::format::accounting::billed;
use squall_text::format::sheet::{Column, Sheet, Style};
use squall_text::format::when::looking_back;
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

const WHAT: &str = "slurm_load_accounting error";

const OPTIONS: &[Flag] = &[
    flag("all_clusters", 'a', Arg::None, "").hint("only this cluster is known"),
    flag("cluster", 'M', Arg::Needed("names"), "only the cluster here is known"),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    flag("immediate", 'i', Arg::None, "").hint("sreport never asks"),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("noheader", 'n', Arg::None, "no header will be added to the beginning of output"),
    flag("parsable", 'p', Arg::None, "output will be '|' delimited with a '|' at the end"),
    flag("parsable2", 'P', Arg::None, "output will be '|' delimited without a '|' at the end"),
    flag("quiet", 'Q', Arg::None, "").hint("only the report and errors are printed"),
    flag("sort", 's', Arg::Needed("value"), "users of TopUsage by Time or by Name"),
    flag("", 't', Arg::Needed("time_format"), "Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer"),
    flag("tres", 'T', Arg::Needed("value"), "report these resources instead of CPUs, comma separated, or ALL"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `sreport` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sreport",
    about: "report CPU time by account and user",
    synopsis: &["[OPTIONS] <REPORT> [start=TIME] [end=TIME] [CONDITION]..."],
    options: Options::Own(OPTIONS),
    notes: "\
  Valid <REPORT> values are:
   cluster AccountUtilizationByQOS
   cluster AccountUtilizationByUser
   cluster UserUtilizationByAccount
   cluster UserUtilizationByWckey
   cluster WCKeyUtilizationByUser
   cluster Utilization
   job Goodput
   job SizesByAccount [grouping=N,...|individual] [FlatView] [PrintJobCount]
   job SizesByWcKey
   job SizesByAccountAndWcKey
   reservation Utilization
   user TopUsage [topcount=N] [group]
A <CONDITION> is accounts=, users=, wckeys=, partitions=, nodes=, names=, clusters= or format=FIELD[%WIDTH],...
Without times, yesterday's usage is reported.
",
};

/// Runs sreport.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sreport", args, sreport)
}

/// Unit in which amounts of time are printed.
#[derive(Clone, Copy)]
struct Unit {
    /// Name of the unit in the report's head, as in Slurm.
    name: &'static str,
    /// Seconds in one unit; 0: only the percentage is printed.
    seconds: u64,
    /// Whether the percentage of the total is printed, too.
    percent: bool,
}

const UNITS: [(&str, usize, Unit); 7] = [
    ("secper", 6, Unit { name: "Seconds/Percentage of Total", seconds: 1, percent: true }),
    ("minper", 6, Unit { name: "Minutes/Percentage of Total", seconds: 60, percent: true }),
    ("hourper", 6, Unit { name: "Hours/Percentage of Total", seconds: 3600, percent: true }),
    ("seconds", 1, Unit { name: "Seconds", seconds: 1, percent: false }),
    ("minutes", 1, Unit { name: "Minutes", seconds: 60, percent: false }),
    ("hours", 1, Unit { name: "Hours", seconds: 3600, percent: false }),
    ("percent", 1, Unit { name: "Percentage of Total", seconds: 0, percent: true }),
];

impl Unit {
    /// Formats an amount, given in resource-seconds, in this unit and as a percentage of `total`.
    fn show(self, amount: u64, total: u64) -> String {
        let percent = percent(amount, total);
        match (self.seconds, self.percent) {
            (0, _) => percent,
            (seconds, true) => format!("{:.0}({percent})", amount as f64 / seconds as f64),
            (seconds, false) => format!("{:.0}", amount as f64 / seconds as f64),
        }
    }

    /// Returns the width in characters of a column with `most` as its largest amount.
    fn width(self, most: u64) -> usize {
        let digits = most.to_string().len().max(8);
        if self.seconds > 0 && self.percent { digits + 9 } else { digits }
    }
}

fn percent(amount: u64, total: u64) -> String {
    format!("{:.2}%", amount as f64 / total.max(1) as f64 * 100.0)
}

/// Options and conditions of a report.
struct ReportQuery {
    unit: Unit,
    /// Names of the reported resources (TRES).
    tres: Vec<&'static str>,
    /// The value of `--tres` as it was typed.
    tres_text: Option<String>,
    header: bool,
    style: Style,
    by_name: bool,
    cluster: Rc<str>,
    from: Time,
    to: Time,
    /// Arguments `key=value` other than times, under the full names of the keys.
    conditions: Vec<(&'static str, String)>,
    /// Whether an argument was invalid. The report is printed nevertheless, and the exit code is an error.
    wrong: bool,
}

impl ReportQuery {
    /// Returns all values of the condition `key`; empty if it isn't given.
    fn list(&self, key: &str) -> Vec<String> {
        self.conditions.iter().filter(|(known, _)| *known == key).flat_map(|(_, value)| names(value)).collect()
    }

    fn has(&self, key: &str) -> bool {
        self.conditions.iter().any(|(known, _)| *known == key)
    }

    /// Returns whether `value` meets the condition `key`. It does if the condition isn't given.
    fn admits(&self, key: &str, value: &str) -> bool {
        let list = self.list(key);
        list.is_empty() || list.iter().any(|name| name.eq_ignore_ascii_case(value))
    }

    /// Returns the end of the report's period, or now if that is earlier.
    fn until(&self, now: Time) -> Time {
        self.to.min(now)
    }

    /// Returns the fields to print: those named by `format=`, otherwise the usual ones. Unknown fields are reported and
    /// left out.
    fn sheet<R>(&mut self, call: &mut Call<'_>, usual: &str, columns: &'static [Column<R>]) -> Result<Sheet<R>, Fail> {
        let mut fields = self.list("format");
        if fields.is_empty() {
            fields = names(usual);
        }
        fields.retain(|field| {
            let Err(bad) = Sheet::parse(field, columns) else { return true };
            call.say(&format!(" Unknown field '{bad}'"));
            self.wrong = true;
            false
        });
        Sheet::parse(&fields.join(","), columns).map_err(|_| Fail(1))
    }

    /// Prints the lines above a report.
    fn head(&self, call: &mut Call<'_>, title: &str, seconds: bool, units: &[String]) {
        if !self.header {
            return;
        }
        let clock = call.clock(call.now);
        let last = Time::from_secs(self.to.secs().saturating_sub(1));
        let line = "-".repeat(80);
        let span = format!(" ({} secs)", self.to.secs().saturating_sub(self.from.secs()));
        let span = if seconds { span.as_str() } else { "" };
        let (from, to) = (clock.show(self.from), clock.show(last));
        call.print(&format!("{line}\n{title} {from} - {to}{span}\n{}\n{line}\n", units.join("\n")));
    }

    /// Returns the line that names the unit: `Usage reported in CPU Minutes`.
    fn usage_in(&self) -> String {
        let what = if self.tres_text.is_some() { "TRES " } else { "CPU " };
        format!("Usage reported in {}{}", if self.unit.seconds == 0 { "" } else { what }, self.unit.name)
    }
}

/// Runs sreport with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sreport(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    // The options `-t` and `-h` have no long names.
    let unit = given.options.iter().find(|o| o.name.is_empty()).map(|o| o.value.clone());
    let mut words = given.operands.iter().map(String::as_str);
    let (Some(kind), false) = (words.next(), unit == Some(None)) else {
        call.print(&PAGE.help());
        return Ok(());
    };
    let kind = kind.to_ascii_lowercase();
    if kind.len() >= 4 && "version".starts_with(&kind) {
        call.print(&format!("slurm {}\n", words::slurm_version()));
        return Ok(());
    }
    let (reports, valid) = kind_of(call, &kind)?;
    let Some(name) = words.next() else {
        call.say(&format!("too few arguments for keyword:{kind}"));
        return Err(Fail(1));
    };
    let lower = name.to_ascii_lowercase();
    let found = reports.iter().find(|(known, least, _)| lower.len() >= *least && known.starts_with(&lower));
    let Some((_, _, report)) = found else {
        call.say(&format!("Not valid report {name}\nValid {valid}"));
        return Err(Fail(1));
    };
    let mut asked = asked(call, &given, unit.flatten().as_deref())?;
    conditions(call, &mut asked, words)?;
    match report {
        Report::Usage(by) => usage::usage(call, &mut asked, *by)?,
        Report::Utilization => utilization::utilization(call, &mut asked)?,
        Report::Sizes(by) => sizes::sizes(call, &mut asked, *by)?,
        Report::Reserved => reserved::reserved(call, &mut asked)?,
        Report::Goodput => goodput::goodput(call, &mut asked)?,
    }
    if asked.wrong { Err(Fail(1)) } else { Ok(()) }
}

/// A report that sreport prints: its kind, and for some kinds the grouping of its lines.
enum Report {
    Usage(usage::By),
    Utilization,
    Sizes(sizes::By),
    Reserved,
    Goodput,
}

type Reports = &'static [(&'static str, usize, Report)];

/// Returns the reports of a kind, each with its name and the fewest letters that abbreviate it, and the message for an
/// unknown one.
fn kind_of(call: &mut Call<'_>, kind: &str) -> Result<(Reports, &'static str), Fail> {
    let is = |name: &str, least: usize| kind.len() >= least && name.starts_with(kind);
    if is("cluster", 2) {
        let reports: Reports = &[
            ("accountutilizationbyuser", 1, Report::Usage(usage::By::Account)),
            ("accountutilizationbyqos", 21, Report::Usage(usage::By::Qos)),
            ("aq", 2, Report::Usage(usage::By::Qos)),
            ("utilization", 2, Report::Utilization),
            ("userutilizationbyaccount", 2, Report::Usage(usage::By::User)),
            ("ua", 2, Report::Usage(usage::By::User)),
            ("userutilizationbywckey", 18, Report::Usage(usage::By::UserOfWckey)),
            ("uw", 2, Report::Usage(usage::By::UserOfWckey)),
            ("wckeyutilizationbyuser", 1, Report::Usage(usage::By::Wckey)),
        ];
        let valid = "cluster reports are, \"AccountUtilizationByUser\", \"AccountUtilizationByQOS\", \"UserUtilizationByAccount\", \
                     \"UserUtilizationByWckey\", \"Utilization\", and \"WCKeyUtilizationByUser\"";
        Ok((reports, valid))
    } else if is("job", 1) {
        let reports: Reports = &[
            ("sizesbyaccount", 1, Report::Sizes(sizes::By::Account)),
            ("sizesbywckey", 8, Report::Sizes(sizes::By::Wckey)),
            ("sizesbyaccountandwckey", 15, Report::Sizes(sizes::By::Both)),
            ("goodput", 1, Report::Goodput),
        ];
        Ok((reports, "job reports are, \"SizesByAccount, SizesByAccountAndWcKey, and  SizesByWckey\""))
    } else if is("reservation", 1) {
        Ok((&[("utilization", 1, Report::Reserved)], "reservation reports are, \"Utilization\""))
    } else if is("user", 1) {
        Ok((&[("topusage", 1, Report::Usage(usage::By::Top))], "user reports are, \"Top\""))
    } else {
        call.say(&format!("invalid keyword: {kind}"));
        Err(Fail(1))
    }
}

/// Parses the options of a report.
fn asked(call: &mut Call<'_>, given: &Arguments, unit: Option<&str>) -> Result<ReportQuery, Fail> {
    call.check_cluster(given.last("cluster"), false, WHAT)?;
    let text = unit.unwrap_or("m").to_ascii_lowercase();
    let known = UNITS.iter().find(|(name, least, _)| text.len() >= *least && name.starts_with(&text));
    let Some((_, _, unit)) = known.filter(|_| !text.is_empty()) else {
        return call.fail(&format!(
            "unknown time format {text}: use Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer"
        ));
    };
    let by_name = match given.last("sort").map(str::to_ascii_lowercase) {
        Some(text) if !text.is_empty() && "name".starts_with(&text) => true,
        Some(text) if text != "time" => return call.fail(&format!("unknown timesort format {text}: use Name or Time")),
        _ => false,
    };
    let tres_text = given.last("tres").map(str::to_owned).or_else(|| call.variable("SREPORT_TRES"));
    let known = || TRES.iter().copied().chain(["gres/gpu"]);
    let tres: Vec<&'static str> = match &tres_text {
        None => vec!["cpu"],
        Some(text) if text.eq_ignore_ascii_case("all") => known().collect(),
        Some(text) => names(text).iter().filter_map(|name| known().find(|k| k.eq_ignore_ascii_case(name))).collect(),
    };
    let all = tres_text.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("all"));
    if unit.percent && !all && tres.contains(&"node") {
        call.say(
            "sreport: fatal: TRES node usage is no longer reported in percent format reports.  \
             Please use TRES CPU instead.",
        );
        return Err(Fail(1));
    }
    if tres.is_empty() {
        call.say("sreport: fatal: No valid TRES given");
        return Err(Fail(1));
    }
    let (from, to) = yesterday(call);
    Ok(ReportQuery {
        unit: *unit,
        tres,
        tres_text,
        header: !given.has("noheader"),
        style: given.style(),
        by_name,
        cluster: call.cluster(WHAT)?,
        from,
        to,
        conditions: Vec::new(),
        wrong: false,
    })
}

/// Keys of conditions, each with the minimum length of an abbreviation. Words without `=` are flags.
const CONDITIONS: &[(&str, usize)] = &[
    ("accounts", 2),
    ("acct", 4),
    ("format", 2),
    ("gid", 2),
    ("grouping", 2),
    ("ids", 1),
    ("jobs", 1),
    ("names", 2),
    ("nodes", 1),
    ("partitions", 2),
    ("topcount", 1),
    ("users", 1),
    ("wckeys", 2),
];

const FLAGS: &[(&str, usize)] = &[
    ("all_clusters", 1),
    ("acctasparent", 2),
    ("flatview", 2),
    ("group", 1),
    ("printjobcount", 2),
    ("tree", 4),
    ("withdeleted", 5),
];

/// Number of seconds in an hour.
const HOUR_S: u64 = 3600;

/// Reads the arguments `start=` and `end=`, the other conditions and the flags.
fn conditions<'a>(
    call: &mut Call<'_>,
    asked: &mut ReportQuery,
    words: impl Iterator<Item = &'a str>,
) -> Result<(), Fail> {
    let now = Timestamp::from_microsecond(call.now.0 as i64).unwrap_or_default().to_zoned(call.zone.clone());
    let find = |list: &'static [(&'static str, usize)], key: &str| {
        list.iter().find(|(known, least)| key.len() >= *least && known.starts_with(key)).map(|(known, _)| *known)
    };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            match find(FLAGS, &word.to_ascii_lowercase()) {
                Some(flag) => asked.conditions.push((flag, String::new())),
                None => unknown(call, asked, word),
            }
            continue;
        };
        let key = key.to_ascii_lowercase();
        let is = |name: &str| !key.is_empty() && name.starts_with(&key);
        match (find(CONDITIONS, &key), looking_back(value, &now)) {
            _ if is("start") || is("end") => match looking_back(value, &now) {
                Some(time) if is("start") => asked.from = time,
                Some(time) => asked.to = time.min(call.now),
                None => return call.fail(&format!("Invalid time specification (pos=0): {value}")),
            },
            _ if is("clusters") => call.check_cluster(Some(value), false, WHAT)?,
            (Some(known), _) => {
                asked.conditions.push((if known == "acct" { "accounts" } else { known }, value.to_owned()));
            }
            (None, _) => unknown(call, asked, word),
        }
    }
    // The period is rounded outwards to whole hours, in which Slurm keeps usage; it is at least one hour.
    asked.from = Time::from_secs(asked.from.secs() / HOUR_S * HOUR_S);
    asked.to = Time::from_secs(asked.to.secs().div_ceil(HOUR_S) * HOUR_S).max(asked.from + Span::from_secs(HOUR_S));
    Ok(())
}

fn unknown(call: &mut Call<'_>, asked: &mut ReportQuery, word: &str) {
    call.say(&format!(" Unknown condition: {word}\nUse keyword set to modify value"));
    asked.wrong = true;
}

/// Returns yesterday, from midnight to midnight.
fn yesterday(call: &Call<'_>) -> (Time, Time) {
    let now = Timestamp::from_microsecond(call.now.0 as i64).unwrap_or_default().to_zoned(call.zone.clone());
    let today = now.start_of_day().unwrap_or_else(|_| now.clone());
    let before = today.yesterday().unwrap_or_else(|_| today.clone());
    let time = |at: &jiff::Zoned| Time::from_secs(u64::try_from(at.timestamp().as_second()).unwrap_or(0));
    (time(&before), time(&today))
}

/// Returns the attempts of jobs that ran within the report's period and meet its conditions.
fn rows(call: &mut Call<'_>, asked: &ReportQuery) -> Result<Vec<AccountingRow>, Fail> {
    let query = AccountingQuery {
        start: Some(asked.from),
        end: Some(asked.to),
        allocations_only: true,
        duplicates: true,
        nodes: asked.conditions.iter().find(|(key, _)| *key == "nodes").map(|(_, list)| list.clone()),
        ..AccountingQuery::default()
    };
    let mut rows = call.accounting(WHAT, query)?;
    rows.retain(|row| meets(asked, row));
    Ok(rows)
}

/// Returns whether a job meets the report's conditions.
fn meets(asked: &ReportQuery, row: &AccountingRow) -> bool {
    asked.admits("users", &row.owner.user)
        && asked.admits("partitions", &row.partition)
        && asked.admits("gid", &row.owner.gid.to_string())
        && asked.admits("jobs", &row.id.to_string())
        && asked.admits("wckeys", row.spec.wckey.as_deref().unwrap_or_default())
}

/// Returns start and end of an attempt, the end limited to `until`; None: it did not start.
fn ran(row: &AccountingRow, until: Time) -> Option<(Time, Time)> {
    let over = matches!(row.state, JobState::Ended(_) | JobState::Completing(_));
    Some((row.start?, row.end.filter(|_| over).unwrap_or(until).min(until)))
}

/// Returns the seconds that an attempt ran within a period, without the time it was suspended.
fn ran_s(row: &AccountingRow, (from, until): (Time, Time)) -> u64 {
    let Some((start, end)) = ran(row, until) else { return 0 };
    end.secs().saturating_sub(start.max(from).secs()).saturating_sub(row.suspended_s)
}

/// Returns the amount of the resource `tres` that an attempt held (memory in MiB).
fn held(row: &AccountingRow, tres: &str) -> u64 {
    match tres {
        "cpu" => u64::from(row.num_cpus),
        "billing" => billed(row),
        "mem" => row.memory_mb,
        "node" => u64::from(row.num_nodes),
        "gres/gpu" => {
            let asked = gres::Ask::of_job(&row.spec).unwrap_or_default();
            asked.totals(row.num_nodes, row.num_tasks).get("gpu").copied().map_or(0, u64::from)
        }
        _ => 0,
    }
}
