//! `squall what-if`: simulates a cluster's past jobs, or a trace, under another policy, with another configuration, or
//! on more nodes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::hostlist;
use squall_model::job::JobSpec;
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, Answer, Request};
use squall_model::wire::info::AccountingRow;
use squall_replay::{Past, again, trace};

use crate::command::listing::call::{Call, Fail, live};
use squall_client::unexpected;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("config", '\0', Arg::Needed("value"), "under this configuration"),
    flag("policy", '\0', Arg::Needed("value"), "under this policy: fcfs, easy or conservative"),
    flag("nodes", '\0', Arg::Needed("value"), "on this many nodes like the first"),
    flag("days", '\0', Arg::Needed("value"), "jobs of the last days"),
    flag("json", '\0', Arg::None, "produce JSON output"),
];

/// What `squall what-if` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall what-if",
    about: "run past jobs once more, under another policy or configuration",
    synopsis: &[
        "[--policy fcfs|easy|conservative] [--config FILE] [--nodes N] [--days N] [--json]",
        "TRACE.swf[.gz] [OPTIONS of squall sim]",
    ],
    options: Options::Own(OPTIONS),
    notes: "\
Runs the jobs of the last days (30, or --days) once more: they come when they came and run as long as they ran, and
the scheduler decides anew when and where; under the configuration that is in force, and under another one (--policy,
a configuration file, so many nodes like the first). Nothing happens to the cluster. Shares, limits of accounts and
reservations have no part in it.
",
};

/// Days of history that are simulated by default.
const DAYS: u64 = 30;

/// Runs `squall what-if`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if trace::is_meant(args) {
        super::sim::replay("squall what-if", args)
    } else {
        live("squall what-if", args, what_if)
    }
}

/// Configuration and hardware of a cluster, real or hypothetical.
struct World {
    config: Config,
    nodes: Vec<(String, Hardware)>,
}

/// Past jobs of the cluster, and their actual start times.
struct History {
    jobs: Vec<Past>,
    starts: Vec<Time>,
    /// Number of jobs that have not started yet, which are left out.
    pending: usize,
}

/// Statistics of the real or a simulated course of the jobs. Times are in seconds.
struct Figures {
    name: String,
    started: usize,
    mean_s: f64,
    median_s: f64,
    p95_s: f64,
    max_s: f64,
    makespan_s: f64,
}

fn what_if(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if let Some(extra) = given.operands.first() {
        return call.fail(&format!("`{extra}` is no trace: their names end in .swf or .swf.gz"));
    }
    let is = match world(call) {
        Ok(world) => world,
        Err(e) => return call.failed("squall what-if", &e),
    };
    let other = match changed(&is, &given) {
        Ok(other) => other,
        Err(problem) => return call.fail(&problem),
    };
    let Ok(days @ 1..=36_500) = given.last("days").map_or(Ok(DAYS), str::parse) else {
        return call.fail("--days: a number from 1 to 36500 is needed");
    };
    let since = Time(call.now.0.saturating_sub(Span::from_secs(days * 86_400).0));
    let query = AccountingQuery { start: Some(since), allocations_only: true, ..AccountingQuery::default() };
    let rows = call.accounting("squall what-if", query)?;
    let history = history(&rows, call.now);
    if history.jobs.is_empty() {
        return call.fail(&format!("no job has started in the last {days} days: there is nothing to run once more"));
    }
    let text = compare(&history, &is, &other, given.has("json"));
    call.print(&text);
    Ok(())
}

/// Asks the controller for the present configuration and nodes.
fn world(call: &mut Call<'_>) -> Result<World, squall_client::ClientError> {
    let Answer::Config(config) = call.controller.ask(&Request::Config)? else { return Err(unexpected()) };
    let Answer::Nodes(nodes) = call.controller.ask(&Request::Nodes)? else { return Err(unexpected()) };
    let known = nodes.into_iter().filter(|node| node.known);
    Ok(World { config: *config, nodes: known.map(|node| (node.name, Arc::unwrap_or_clone(node.hardware))).collect() })
}

/// Returns the hypothetical cluster that the options describe.
fn changed(is: &World, given: &Arguments) -> Result<World, String> {
    let mut config = match given.last("config") {
        None => is.config.clone(),
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            let mut config = Config::from_toml(&text).map_err(|e| format!("{file}: {e}"))?;
            if config.nodes.is_empty() {
                config.nodes.clone_from(&is.config.nodes);
            }
            if config.topology.name.is_empty() {
                config.topology = is.config.topology.clone();
            }
            config.complete();
            config
        }
    };
    if let Some(policy) = given.last("policy") {
        trace::machine::choose(&mut config, policy)?;
    }
    let mut nodes = is.nodes.clone();
    if let Some(count) = given.last("nodes") {
        let count: usize =
            count.parse().ok().filter(|n| (1..=100_000).contains(n)).ok_or("--nodes: a number is needed")?;
        let (_, like) = is.nodes.first().ok_or("--nodes: no node has registered, so node sizes are unknown")?;
        let fresh =
            (1..).map(|n| format!("what-if-{n}")).filter(|name| is.nodes.iter().all(|(other, _)| other != name));
        nodes.extend(fresh.take(count.saturating_sub(is.nodes.len())).map(|name| (name, like.clone())));
        nodes.truncate(count);
        keep_only(&mut config, &nodes);
    }
    Ok(World { config, nodes })
}

/// Reduces the configuration to these nodes, which all get the settings of its first node entry.
fn keep_only(config: &mut Config, nodes: &[(String, Hardware)]) {
    let names: Vec<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
    let entry = config.nodes.first().cloned().unwrap_or_default();
    config.nodes = vec![NodeConfig { name: hostlist::compress(&names), ..entry }];
    // Their places in the network are unknown, and nodes of partitions may be missing: neither is kept.
    config.topology = TopologyFile::default();
    for partition in &mut config.partitions {
        partition.nodes = "ALL".into();
    }
}

/// Returns the jobs that have started; each enters the simulation when it was eligible to start.
fn history(rows: &[AccountingRow], now: Time) -> History {
    let mut history = History { jobs: Vec::new(), starts: Vec::new(), pending: 0 };
    for row in rows.iter().filter(|row| row.step.is_none() && row.pending_tasks.is_none()) {
        let Some(start) = row.start else {
            history.pending += 1;
            continue;
        };
        let spec = JobSpec { time_limit_s: Some(row.time_limit_s.unwrap_or(UNLIMITED_S)), ..(*row.spec).clone() };
        history.starts.push(start);
        history.jobs.push(Past {
            id: row.id,
            spec: Arc::new(spec),
            owner: Arc::clone(&row.owner),
            eligible: row.eligible.max(row.submit).min(start),
            run: row.end.unwrap_or(now).since(start),
        });
    }
    history
}

impl Figures {
    fn of(name: &str, jobs: &[Past], starts: &[Option<Time>]) -> Self {
        let started: Vec<(&Past, Time)> =
            jobs.iter().zip(starts).filter_map(|(job, start)| Some((job, (*start)?))).collect();
        let seconds = |span: Span| span.0 as f64 / 1e6;
        let mut waits: Vec<f64> = started.iter().map(|(job, start)| seconds(start.since(job.eligible))).collect();
        waits.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * waits.len() as f64) as usize;
            waits.get(place.min(waits.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let first = jobs.iter().map(|job| job.eligible).min().unwrap_or_default();
        let last = started.iter().map(|(job, start)| *start + job.run).max().unwrap_or_default();
        Self {
            name: name.to_owned(),
            started: waits.len(),
            mean_s: waits.iter().sum::<f64>() / waits.len().max(1) as f64,
            median_s: at(0.5),
            p95_s: at(0.95),
            max_s: waits.last().copied().unwrap_or_default(),
            makespan_s: seconds(last.since(first)),
        }
    }
    fn json(&self) -> Json {
        json!({
            "course": self.name, "started": self.started, "mean_wait_s": self.mean_s, "median_wait_s": self.median_s,
            "p95_wait_s": self.p95_s, "max_wait_s": self.max_s, "makespan_s": self.makespan_s,
        })
    }
}

fn compare(history: &History, is: &World, other: &World, as_json: bool) -> String {
    let jobs = &history.jobs;
    let was: Vec<Option<Time>> = history.starts.iter().copied().map(Some).collect();
    let same = again(&is.config, &is.nodes, jobs, |_| {}).starts;
    let then = again(&other.config, &other.nodes, jobs, |_| {}).starts;
    let figures = [("actual", &was), ("simulated as configured", &same), ("simulated with changes", &then)]
        .map(|(name, starts)| Figures::of(name, jobs, starts));
    let (mut earlier, mut later) = (0, 0);
    for (before, after) in same.iter().zip(&then).filter_map(|(a, b)| Some(((*a)?, (*b)?))) {
        earlier += usize::from(after < before);
        later += usize::from(after > before);
    }
    let never: Vec<String> =
        jobs.iter().zip(&then).filter(|(_, start)| start.is_none()).map(|(job, _)| job.id.to_string()).collect();
    if as_json {
        let value = json!({
            "jobs": jobs.len(), "left_out": history.pending, "nodes": other.nodes.len(),
            "courses": figures.iter().map(Figures::json).collect::<Vec<_>>(),
            "earlier": earlier, "later": later, "never": never,
        });
        return format!("{value:#}\n");
    }
    let mut text = format!("{} jobs", jobs.len());
    if history.pending > 0 {
        let _ = write!(text, " ({} that have not started are left out)", history.pending);
    }
    let _ = writeln!(
        text,
        "\n{:<23} {:>8} {:>11} {:>11} {:>11} {:>11} {:>11}",
        "seconds", "started", "mean wait", "median", "95 %", "longest", "makespan"
    );
    for one in &figures {
        let _ = writeln!(
            text,
            "{:<23} {:>8} {:>11.1} {:>11.1} {:>11.1} {:>11.1} {:>11.1}",
            one.name, one.started, one.mean_s, one.median_s, one.p95_s, one.max_s, one.makespan_s
        );
    }
    let _ = writeln!(
        text,
        "{earlier} jobs would start earlier and {later} later than in the simulation of the present configuration"
    );
    if !never.is_empty() {
        let _ = writeln!(text, "with the changes these could never start: {}", never.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::config::{Config, NodeConfig, SchedulerType};
    use squall_model::id::JobId;
    use squall_model::job::{JobSpec, Need, Owner};
    use squall_model::resource::Hardware;
    use squall_model::time::{Span, Time};
    use squall_replay::Past;

    use super::{Arguments, History, PAGE, World, changed, compare};

    fn given(line: &str) -> Arguments {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        PAGE.parse(&words).unwrap()
    }

    fn world() -> World {
        let mut config = Config { scheduler_type: SchedulerType::Backfill, ..Config::default() };
        config.nodes.push(NodeConfig { name: "n[1-2]".into(), ..NodeConfig::default() });
        config.complete();
        let hardware = Hardware { cpus: 4, memory_mb: 1000, ..Hardware::default() };
        World { config, nodes: vec![("n1".into(), hardware.clone()), ("n2".into(), hardware)] }
    }

    fn history() -> History {
        let job = |id, nodes, run: u64| {
            let need = Need { nodes_min: Some(nodes), exclusive: true, ..Need::default() };
            let spec = Arc::new(JobSpec { need, time_limit_s: Some(run), ..JobSpec::default() });
            let (owner, eligible) = (Arc::new(Owner::default()), Time::from_secs(1000 + u64::from(id)));
            Past { id: JobId(id), spec, owner, eligible, run: Span::from_secs(run) }
        };
        let jobs = vec![job(1, 1, 100), job(2, 2, 50), job(3, 1, 30)];
        let starts = [1001, 1101, 1003].map(Time::from_secs).to_vec();
        History { jobs, starts, pending: 2 }
    }

    #[test]
    fn as_it_was_as_it_is_and_what_if() {
        let is = world();
        let text = compare(&history(), &is, &changed(&is, &given("--policy fcfs")).unwrap(), false);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("3 jobs (2 that have not started are left out)\n"), "{text}");
        assert_eq!(rows[2][1..], ["3", "33.0", "0.0", "99.0", "99.0", "150.0"], "{text}");
        assert_eq!(rows[3][3..], rows[2][1..], "what is rehearsed as it is comes out as it was: {text}");
        assert_eq!(rows[4][3..], ["3", "82.3", "99.0", "148.0", "148.0", "180.0"], "{text}");
        assert!(
            text.ends_with(
                "0 jobs would start earlier and 1 later than in the simulation of the present configuration\n"
            ),
            "{text}"
        );
        let more = compare(&history(), &is, &changed(&is, &given("--nodes 4")).unwrap(), true);
        let more: serde_json::Value = serde_json::from_str(&more).unwrap();
        assert_eq!((more["earlier"].as_u64(), more["courses"][2]["max_wait_s"].as_f64()), (Some(1), Some(0.0)));
        let fewer = compare(&history(), &is, &changed(&is, &given("--nodes 1")).unwrap(), false);
        assert!(fewer.contains("could never start: 2"), "{fewer}");
    }

    #[test]
    fn what_cannot_be_is_named() {
        let is = world();
        let said = |line: &str| changed(&is, &given(line)).err().unwrap();
        assert_eq!(said("--policy sjf"), "--policy: there is no policy `sjf`; use fcfs, easy or conservative");
        assert!(
            said("--policy easy-sjbf").starts_with("--policy: no controller has `easy-sjbf`, it is for a trace on")
        );
        assert_eq!(said("--nodes none"), "--nodes: a number is needed");
        assert!(said("--config /nowhere.toml").starts_with("/nowhere.toml: "));
    }
}
