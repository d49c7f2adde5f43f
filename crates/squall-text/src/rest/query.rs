//! Parameters of a request's query.

use squall_model::time::Time;
use squall_model::wire::client::AccountingQuery;

use super::body::{Parsed, truth, warn};
use super::change::job_id;
use super::paths::Path;
use crate::format::words::state_filter;
use crate::shapes::{Problem, Warning};

/// Which past jobs a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastJobs {
    /// The conditions. Those on users are in `users`.
    pub query: AccountingQuery,
    /// Names or ids of users, one of which must own a job. Empty: any.
    pub users: Vec<String>,
    /// Whether the answer contains the jobs' scripts.
    pub scripts: bool,
}

/// Returns warnings about parameters that a path does not have.
pub fn unknown(path: &Path, given: &[(String, String)]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (name, _) in given.iter().filter(|(name, _)| !path.query.contains(&name.as_str())) {
        warn(&mut warnings, name, "Unknown parameter: it has no effect");
    }
    warnings
}

/// Returns whether a parameter is given and true.
pub fn flag(given: &[(String, String)], name: &str) -> bool {
    let value = given.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    value.is_some_and(|value| truth(&value.into()).unwrap_or(!value.is_empty()))
}

/// Returns the entries of a list with commas. Empty: it is not given.
pub fn list(given: &[(String, String)], name: &str) -> Vec<String> {
    let values = given.iter().filter(|(known, _)| known == name);
    values.flat_map(|(_, value)| value.split(',')).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

/// Returns a time in seconds since the Unix epoch. None: it is not given, or 0.
pub fn time(given: &[(String, String)], name: &str) -> Result<Option<Time>, Problem> {
    let Some((_, text)) = given.iter().rev().find(|(known, text)| known == name && !text.is_empty()) else {
        return Ok(None);
    };
    let wrong = || Problem::malformed(name, format!("{text}: use seconds since 1970"));
    let seconds: u32 = text.parse().map_err(|_| wrong())?;
    Ok(Some(seconds).filter(|seconds| *seconds > 0).map(|seconds| Time::from_secs(u64::from(seconds))))
}

/// Parameters of past jobs that are conditions, but not kept here.
const NOT_KEPT: &[&str] = &[
    "association",
    "constraints",
    "cpus_max",
    "cpus_min",
    "exit_code",
    "groups",
    "job_altered",
    "job_started",
    "nodes_max",
    "nodes_min",
    "qos",
    "reason",
    "reservation",
    "reservation_id",
    "scheduled_by_backfill",
    "scheduled_by_main",
    "scheduled_on_submit",
    "scheduler_unset",
    "show_job_environment",
    "submit_time",
    "timelimit_max",
    "timelimit_min",
    "usage_time_as_submit_time",
    "wckey",
];

/// Returns which past jobs the query of `/slurmdb/{v}/jobs/` asks for in `cluster`.
pub fn past_jobs(given: &[(String, String)], cluster: &str) -> Result<Parsed<PastJobs>, Problem> {
    let asked =
        |name: &&&str| given.iter().any(|(known, value)| known == **name && !value.is_empty() && value != "false");
    if let Some(name) = NOT_KEPT.iter().find(asked) {
        return Err(Problem::not_done(*name, "Jobs are not selected by it here: leave it out"));
    }
    if let Some(other) = list(given, "cluster").iter().find(|name| *name != cluster) {
        return Err(Problem::not_found("cluster", &format!("cluster {other}")));
    }
    let mut query = AccountingQuery {
        names: list(given, "job_name"),
        partitions: list(given, "partition"),
        accounts: list(given, "account"),
        nodes: Some(list(given, "node").join(",")).filter(|nodes| !nodes.is_empty()),
        start: time(given, "start_time")?,
        end: time(given, "end_time")?,
        allocations_only: flag(given, "skip_steps"),
        duplicates: flag(given, "show_duplicates"),
        ..AccountingQuery::default()
    };
    for name in list(given, "step") {
        query.ids.push(
            job_id(name.split('.').next().unwrap_or_default())
                .map_err(|problem| Problem { source: "step".into(), ..problem })?,
        );
    }
    for word in list(given, "state") {
        let unknown = || Problem::malformed("state", format!("{word}: there is no such state"));
        query.states.push(state_filter(&word).ok_or_else(unknown)?);
    }
    let mut warnings = Vec::new();
    for name in ["format", "disable_truncate_usage_time", "disable_wait_for_result"] {
        if given.iter().any(|(known, _)| known == name) {
            warn(&mut warnings, name, "It has no effect");
        }
    }
    let value = PastJobs { query, users: list(given, "users"), scripts: flag(given, "show_batch_script") };
    Ok(Parsed { value, warnings })
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;
    use squall_model::wire::client::StateFilter;

    use super::{flag, past_jobs, unknown};
    use crate::rest::paths::{Method, find};

    fn query(text: &str) -> Vec<(String, String)> {
        let pair = |part: &str| part.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.split('&').filter_map(pair).collect()
    }

    #[test]
    fn past_jobs_are_chosen() {
        let given = query("users=ann,1001&start_time=1700000000&state=CD,FAILED&skip_steps=true&format=x&cluster=c");
        let taken = past_jobs(&given, "c").unwrap();
        assert_eq!(taken.value.users, ["ann", "1001"]);
        let asked = taken.value.query;
        assert_eq!((asked.start, asked.allocations_only), (Some(Time::from_secs(1_700_000_000)), true));
        assert_eq!((asked.states, taken.warnings.len()), (vec![StateFilter::Completed, StateFilter::Failed], 1));
        assert_eq!(past_jobs(&query("qos=high"), "c").unwrap_err().status, 501);
        assert_eq!(past_jobs(&query("start_time=x"), "c").unwrap_err().source, "start_time");
        assert_eq!(past_jobs(&query("cluster=d"), "c").unwrap_err().status, 404);
    }

    #[test]
    fn unknown_parameters_are_named() {
        let (path, ..) = find(Method::Get, "/slurmdb/v0.0.41/users").unwrap();
        let given = query("with_assocs=1&nosuch=2");
        assert!(flag(&given, "with_assocs") && !flag(&given, "with_deleted"));
        assert_eq!(unknown(path, &given).iter().map(|w| w.source.as_str()).collect::<Vec<_>>(), ["nosuch"]);
    }
}
