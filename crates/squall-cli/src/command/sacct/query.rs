//! Builds sacct's query to the controller, and filters rows by conditions that the query doesn't have.

use std::sync::Arc;

use squall_model::duration::parse_limit;
use squall_model::hostlist;
use squall_model::id::JobId;
use squall_model::job::ArrayTask;
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, Request};
use squall_model::wire::info::AccountingRow;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{id_of, names, parts, target};
use squall_client::unexpected;
use squall_text::format::when::looking_back;
use squall_text::options::flag::Arguments;

/// Builds the query for a command line.
pub(crate) fn query(call: &mut Call<'_>, given: &Arguments) -> Result<AccountingQuery, Fail> {
    let list = |option: &str| given.last(option).map(names).unwrap_or_default();
    let mut query = AccountingQuery {
        allocations_only: given.has("allocations"),
        duplicates: given.has("duplicates"),
        names: list("name"),
        partitions: list("partition"),
        accounts: list("accounts"),
        nodes: given.last("nodelist").map(str::to_owned),
        ..AccountingQuery::default()
    };
    // The option -j may be repeated: the lists add up.
    for jobs in given.options.iter().filter(|o| o.name == "jobs") {
        for target in call.targets(jobs.text())? {
            query.step = target.step;
            query.ids.push(target.job);
        }
    }
    if query.ids.len() > 1 {
        query.step = None;
    }
    if let Some(nodes) = &query.nodes
        && let Err(e) = hostlist::expand(nodes)
    {
        return call.fail(&format!("Invalid node list {nodes}: {e}"));
    }
    whole_het(call, given, &mut query)?;
    users(call, given, &mut query)?;
    if let Some(states) = given.last("state") {
        query.states = call.states(states)?.unwrap_or_default();
    }
    times(call, given, &mut query)?;
    Ok(query)
}

/// Applies `--whole-hetjob`: selects all components of the jobs of which one is named.
fn whole_het(call: &mut Call<'_>, given: &Arguments, query: &mut AccountingQuery) -> Result<(), Fail> {
    match given.last("whole-hetjob") {
        Some(text) if !["", "yes", "no"].contains(&text) => {
            return call.fail(&format!("Invalid --whole-hetjob value \"{text}\". Valid values: [yes|no]."));
        }
        None | Some("no") => {}
        Some(_) => {
            for job in &mut query.ids {
                if let JobRef::Component(leader, _) = *job {
                    *job = JobRef::Job(leader);
                }
            }
        }
    }
    Ok(())
}

/// Sets the query's users. Slurm's default: the caller's own jobs; all users' for root and where jobs or nodes are
/// named.
fn users(call: &mut Call<'_>, given: &Arguments, query: &mut AccountingQuery) -> Result<(), Fail> {
    let mut everybody =
        given.has("allusers") || !query.ids.is_empty() || query.nodes.is_some() || call.people.me() == 0;
    let mut named = Vec::new();
    for option in given.options.iter().filter(|o| o.name == "user" || o.name == "uid") {
        if option.text() == "-1" {
            everybody = true;
        } else {
            named.extend(call.user_ids(option.text())?);
        }
    }
    query.users = match (named.is_empty(), everybody) {
        (false, _) if !given.has("allusers") => named,
        (_, true) => Vec::new(),
        _ => vec![call.people.me()],
    };
    Ok(())
}

/// Sets the query's period.
fn times(call: &mut Call<'_>, given: &Arguments, query: &mut AccountingQuery) -> Result<(), Fail> {
    let clock = call.clock(call.now);
    let now = clock.local(call.now);
    let mut read = |text: Option<&str>| match text {
        None => Ok(None),
        Some(text) => match looking_back(text, &now) {
            Some(time) => Ok(Some(time)),
            None => call.fail(&format!("Invalid time specification (pos=0): {text}")),
        },
    };
    query.start = read(given.last("starttime"))?;
    query.end = read(given.last("endtime"))?;
    clock.complete_period(query);
    match (query.start, query.end) {
        (Some(start), Some(end)) if start > end => {
            call.fail(&format!("Start time ({}) requested is after end time ({}).", clock.show(start), clock.show(end)))
        }
        _ => Ok(()),
    }
}

/// Drops the rows that don't meet conditions which the controller's query doesn't have.
pub(crate) fn filter(call: &mut Call<'_>, given: &Arguments, rows: &mut Vec<AccountingRow>) -> Result<(), Fail> {
    let list = |option: &str| given.last(option).map(parts);
    if let Some(numbers) = list("associations") {
        let policy = match call.controller.ask(&Request::Policy) {
            Ok(Answer::Policy(policy)) => policy,
            Ok(_) => return call.failed("slurm_load_accounting error", &unexpected()),
            Err(e) => return call.failed("slurm_load_accounting error", &e),
        };
        rows.retain(|r| {
            let own = policy.association(&r.account, &r.owner.user, &r.partition);
            own.is_some_and(|own| numbers.contains(&own.id.to_string().as_str()))
        });
    }
    keep(given, rows).or_else(|problem| call.fail(&problem))?;
    if given.has("use-local-uid") {
        for row in rows.iter_mut() {
            if let Some(uid) = call.people.uid(&row.owner.user) {
                Arc::make_mut(&mut row.owner).uid = uid;
            }
        }
    }
    Ok(())
}

/// Returns whether the rows of a page can be chosen without those of other pages, and without asking anyone.
pub(crate) fn is_by_pages(given: &Arguments) -> bool {
    !["associations", "use-local-uid", "whole-hetjob"].into_iter().any(|option| given.has(option))
}

/// Drops the rows that don't meet conditions on themselves alone. Err: a condition can't be read.
pub(crate) fn keep(given: &Arguments, rows: &mut Vec<AccountingRow>) -> Result<(), String> {
    let list = |option: &str| given.last(option).map(parts);
    if let Some(groups) = list("gid").or(list("group")) {
        rows.retain(|r| groups.iter().any(|g| *g == r.owner.group || g.parse() == Ok(r.owner.gid)));
    }
    if let Some(qos) = list("qos") {
        rows.retain(|r| qos.contains(&r.qos.as_str()));
    }
    if let Some(keys) = list("wckeys") {
        rows.retain(|r| r.spec.wckey.as_ref().is_some_and(|k| keys.contains(&k.as_str())));
    }
    if let Some(reasons) = list("reason") {
        rows.retain(|r| reasons.contains(&r.reason.as_deref().unwrap_or("None")));
    }
    if given.last("whole-hetjob") == Some("no") {
        let named: Vec<JobId> = given
            .options
            .iter()
            .filter(|o| o.name == "jobs")
            .flat_map(|o| parts(o.text()))
            .filter_map(target)
            .map(|t| id_of(&t.job))
            .collect();
        rows.retain(|r| r.het.is_none() || named.is_empty() || named.contains(&r.id));
    }
    if given.has("array") {
        *rows = std::mem::take(rows).into_iter().flat_map(each_task).collect();
    }
    if let Some(wanted) = list("constraints") {
        rows.retain(|r| r.spec.need.constraint.as_ref().is_some_and(|c| wanted.iter().all(|w| c.contains(w))));
    }
    for option in ["nnodes", "ncpus"] {
        let of = |r: &AccountingRow| if option == "nnodes" { r.num_nodes } else { r.num_cpus };
        let Some(text) = given.last(option) else { continue };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (low.parse::<u32>(), high.parse::<u32>()) {
            (Ok(low), Ok(high)) => rows.retain(|r| (low..=high).contains(&of(r))),
            _ => return Err(format!("Invalid --{option} value: {text}")),
        }
    }
    for (option, least) in [("timelimit-min", true), ("timelimit-max", false)] {
        let Some(text) = given.last(option) else { continue };
        let limit = parse_limit(text).map_err(|_| format!("Invalid --{option} value: {text}"))?;
        let limit = limit.unwrap_or(u64::MAX);
        rows.retain(|r| {
            let own = r.time_limit_s.unwrap_or(u64::MAX);
            if least { own >= limit } else { own <= limit }
        });
    }
    Ok(())
}

/// Splits the row of an array's pending tasks into one row for each task.
fn each_task(row: AccountingRow) -> Vec<AccountingRow> {
    let Some(tasks) = &row.pending_tasks else { return vec![row] };
    let of = |index| {
        let array = row.spec.array.as_ref().filter(|array| array.indices.contains(index));
        let id = array.map_or(row.id, |array| array.task_id(row.id, array.indices.rank(index)));
        AccountingRow { id, task: Some(ArrayTask { array: row.id, index }), pending_tasks: None, ..row.clone() }
    };
    tasks.iter().map(of).collect()
}
