//! `bench records`: accounting with millions of jobs: `sacct -j`, lists of a day by several readers at once, and jobs
//! per second meanwhile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use squall_model::config::Config;
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, ClientKey, Incarnation, JobId, NodeId, StepNo};
use squall_model::job::{Digest, EndState, ExitCode, JobSpec, Outcome, Owner, Usage};
use squall_model::report::StepEnd;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_store::accounts;

use super::cluster::{Cluster, Scale, status_kb, submission};
use super::{BenchOptions, Finding, median, round};

/// Default number of jobs.
const JOBS: u64 = 10_000_000;
/// Jobs of a day. With fewer than `DAYS` times as many, a day has fewer.
const A_DAY: u64 = 100_000;
/// Least number of days over which jobs are spread.
const DAYS: u64 = 4;
/// Default number of readers at once.
const READERS: usize = 10;
/// Number of `sacct -j` commands.
const LOOKUPS: u64 = 300;
/// Number of emulated nodes.
const NODES: u32 = 100;
/// Jobs that run with and without readers, if there are as many records, and how often.
const BESIDE: u64 = 400_000;
const ROUNDS: u64 = 3;
/// Jobs that have the same specification, one after another.
const ALIKE: u64 = 10;
/// Longest run time, minutes.
const MINUTES_MAX: u64 = 60;
const MINUTES_A_DAY: u64 = 24 * 60;

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let jobs = options.jobs.unwrap_or(JOBS).max(DAYS);
    let readers = options.clients.unwrap_or(READERS).max(1);
    let a_day = A_DAY.min(jobs / DAYS);
    let days = jobs / a_day;
    let start = Instant::now();
    let mut loaded = (0.0, 0);
    let cluster = Cluster::prepared(Scale::Rack(NODES), &format!("first_job_id = {}\n", jobs + 1), true, |place| {
        accounts::project(place, History::new(jobs, a_day))?;
        let bytes = std::fs::metadata(place.accounts()).map_or(0, |file| file.len());
        loaded = (start.elapsed().as_secs_f64(), bytes);
        Ok(())
    })?;
    let start = Instant::now();
    Cluster::wait_for(&mut cluster.client()?, NODES)?;
    lookup(&cluster, 1)?;
    let first = start.elapsed().as_secs_f64();
    let mut lookups: Vec<f64> = Vec::new();
    let mut id = 1_u64;
    for _ in 0..LOOKUPS {
        id = id.wrapping_mul(6_364_136_223_846_793_005_u64).wrapping_add(1_442_695_040_888_963_407) % jobs;
        lookups.push(lookup(&cluster, id + 1)?);
    }
    let mut rows = Vec::new();
    let mut peak_mb = 0;
    for (what, back) in [("yesterday", 2), ("half-way back", days / 2)] {
        for readers in [1, readers] {
            let lists = list_at_once(&cluster, readers, back)?;
            let seconds = lists.iter().map(|list| list.seconds).fold(0.0, f64::max);
            let fewest = lists.iter().map(|list| list.lines).min().unwrap_or_default();
            let mb = lists.iter().map(|list| list.peak_mb).max().unwrap_or_default();
            peak_mb = peak_mb.max(mb);
            rows.push(json!({
                "day": what, "readers": readers, "jobs": fewest, "slowest_s": round(seconds), "sacct_peak_mb": mb,
                "controller_peak_mb": cluster.controller_peak_mb(),
            }));
        }
    }
    let beside = beside(&cluster, readers, BESIDE.min(jobs))?;
    let p50 = median(&mut lookups);
    let mut fields = vec![
        ("jobs", json!(jobs)),
        ("days", json!(days)),
        ("loaded_per_s", json!(round(jobs as f64 / loaded.0))),
        ("database_mb", json!(loaded.1 >> 20)),
        ("start_to_first_answer_s", json!(round(first))),
        ("sacct_j_p99_ms", json!(round(lookups[lookups.len() * 99 / 100]))),
        ("lists", Value::Array(rows)),
    ];
    fields.extend(beside);
    Ok(Finding { bench: "records", figure: p50, unit: "ms, sacct -j, median", limit: None, fields })
}

/// Runs `sacct -j` for one job; returns its duration in milliseconds.
fn lookup(cluster: &Cluster, id: u64) -> Result<f64, String> {
    cluster.command_ms(&["sacct", "-n", "-P", "-j", &id.to_string()])
}

/// How one `sacct` went.
struct List {
    seconds: f64,
    lines: u64,
    /// Highest resident memory of the command, as far as it was seen.
    peak_mb: u64,
}

/// Lists all jobs of one day by `readers` commands at once. `back`: how many days ago the day began.
fn list_at_once(cluster: &Cluster, readers: usize, back: u64) -> Result<Vec<List>, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(|| list(cluster, back, "0"))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a reader panicked".to_owned())?).collect()
    })
}

/// Lists all jobs of one day. `nice`: by how much the command gives way to others.
fn list(cluster: &Cluster, back: u64, nice: &str) -> Result<List, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let start = Instant::now();
    let mut child = Command::new("nice")
        .args(["-n", nice])
        .arg(me)
        .args(["sacct", "-a", "-X", "-n", "-P", "-S", &format!("now-{back}days")])
        .args(["-E", &format!("now-{}days", back - 1)])
        .env("SQUALL_STATE", cluster.place().dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("nice: {e}"))?;
    let output = child.stdout.take().ok_or("the command has no output")?;
    let (mut lines, mut peak_mb) = (0_u64, 0);
    for line in BufReader::new(output).lines() {
        line.map_err(|e| e.to_string())?;
        if lines % 1024 == 0 {
            peak_mb = peak_mb.max(status_kb(child.id(), "VmHWM:") / 1024);
        }
        lines += 1;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("sacct: {status}"));
    }
    Ok(List { seconds: start.elapsed().as_secs_f64(), lines, peak_mb })
}

/// Runs `jobs` jobs in turns without readers and with readers that list a day without a pause.
fn beside(cluster: &Cluster, readers: usize, jobs: u64) -> Result<Vec<(&'static str, Value)>, String> {
    let (mut alone, mut read, mut lists) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        alone.push(rate(cluster, 2 * round, jobs)?);
        let over = AtomicBool::new(false);
        read.push(std::thread::scope(|scope| {
            let threads: Vec<_> = (0..readers)
                .map(|_| {
                    scope.spawn(|| {
                        let mut lists = 0_u64;
                        while !over.load(Ordering::Relaxed) {
                            // Readers on other machines take no processor time from the cluster.
                            // On a busy machine they may get none in time, and then ask again.
                            lists += u64::from(list(cluster, 2, "19").is_ok());
                        }
                        lists
                    })
                })
                .collect();
            let rate = rate(cluster, 2 * round + 1, jobs);
            over.store(true, Ordering::Relaxed);
            for thread in threads {
                lists += thread.join().map_err(|_| "a reader panicked".to_owned())?;
            }
            rate
        })?);
    }
    let mut ratios: Vec<f64> = read.iter().zip(&alone).map(|(read, alone)| read / alone).collect();
    Ok(vec![
        ("jobs_per_s", json!(round(median(&mut alone)))),
        ("jobs_per_s_with_readers", json!(round(median(&mut read)))),
        ("with_readers_of_without", json!(round(median(&mut ratios)))),
        ("lists_meanwhile", json!(lists)),
    ])
}

/// Runs `jobs` no-op jobs, the `nth` ones; returns jobs per second from the first submission to the last end.
fn rate(cluster: &Cluster, nth: u64, jobs: u64) -> Result<f64, String> {
    let start = Instant::now();
    let requests = (0..jobs).map(|number| submission(nth * jobs + number, false));
    let mut watch = cluster.client()?;
    watch.submit(requests, |_, _| {}).map_err(|e| e.to_string())?;
    Cluster::until_completed(&mut watch, (nth + 1) * jobs)?;
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

/// The records of a cluster on which `jobs` jobs ran until now, `a_day` of them each day: one record a minute.
struct History {
    jobs: u64,
    a_day: u64,
    /// Minute of the next record, from the first one on.
    minute: u64,
    /// Time of the first record.
    begin: Time,
    /// Jobs that were submitted.
    submitted: u64,
    /// Jobs that end in a minute.
    ends: BTreeMap<u64, Vec<u64>>,
    owners: Vec<Arc<Owner>>,
    spec: Arc<JobSpec>,
}

impl History {
    fn new(jobs: u64, a_day: u64) -> Self {
        let minutes = jobs * MINUTES_A_DAY / a_day + MINUTES_MAX;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let owner = |n: u32| Owner {
            uid: 20_000 + n,
            gid: 20_000,
            groups: vec![20_000],
            user: format!("user{n}"),
            group: "users".into(),
        };
        Self {
            jobs,
            a_day,
            minute: 0,
            begin: Time::from_secs(now.saturating_sub(minutes * 60)),
            submitted: 0,
            ends: BTreeMap::new(),
            owners: (0..200).map(|n| Arc::new(owner(n))).collect(),
            spec: Arc::default(),
        }
    }

    fn first() -> Vec<Event> {
        let config = Event::Configured { config: Arc::new(Config::default()) };
        let nodes = (0..NODES).map(|n| Event::NodeRegistered {
            node: NodeId(n),
            name: format!("n{}", n + 1),
            incarnation: Incarnation(u128::from(n) + 1),
            hardware: Hardware { cpus: 4, memory_mb: 1 << 14, ..Hardware::default() },
        });
        std::iter::once(config).chain(nodes).collect()
    }

    /// Adds the events with which a job comes and starts.
    fn begin(&mut self, n: u64, events: &mut Vec<Event>) {
        let id = JobId(n as u32 + 1);
        if n.is_multiple_of(ALIKE) {
            let run = n / ALIKE;
            self.spec = Arc::new(JobSpec {
                name: format!("run-{run}"),
                account: Some(format!("project{}", run % 20)),
                work_dir: format!("/home/user{}/runs/{run}", run % 200),
                command: format!("/home/user{}/runs/{run}/run.sh", run % 200),
                submit_line: format!("sbatch --time=60 --mem=2G run.sh {run}"),
                script: Some(Digest::of(&(run % 1000).to_le_bytes())),
                env: Digest::of(b"environment"),
                time_limit_s: Some(3600),
                ..JobSpec::default()
            });
        }
        let owner = Arc::clone(&self.owners[(n / ALIKE) as usize % self.owners.len()]);
        events.push(Event::JobSubmitted { id, key: ClientKey(u128::from(n)), owner, spec: Arc::clone(&self.spec) });
        let mut alloc = Alloc::default();
        alloc.push(node(n), std::iter::once(n as usize % 4).collect::<CoreSet>(), 2048);
        events.push(Event::JobStarted { id, attempt: Attempt(1), partition: "debug".into(), alloc });
        self.ends.entry(self.minute + 1 + n * 7 % MINUTES_MAX).or_default().push(n);
    }
}

/// Returns the node on which a job ran.
fn node(n: u64) -> NodeId {
    NodeId((n % u64::from(NODES)) as u32)
}

/// Adds the events with which a job ends. Of twenty jobs one fails.
fn end(n: u64, (started, ended): (Time, Time), events: &mut Vec<Event>) {
    let (id, attempt) = (JobId(n as u32 + 1), Attempt(1));
    let nodes: NodeSet = std::iter::once(node(n)).collect();
    let fails = n % 20 == 19;
    let exit = ExitCode { code: fails.into(), signal: 0 };
    let usage = Usage { user: Span::from_secs(n % 3600), max_rss_kb: 1000 + n % 100_000, ..Usage::default() };
    let step = StepEnd { exit, usage, started, ended, ..StepEnd::default() };
    events.push(Event::StepNodesEnded {
        job: id,
        attempt,
        step: StepNo::BATCH,
        nodes: nodes.clone(),
        end: step,
        cut: None,
    });
    let state = if fails { EndState::Failed } else { EndState::Completed };
    events.push(Event::JobEnding { id, outcome: Outcome { state, exit, reason: None }, requeue: None });
    events.push(Event::NodesReleased { id, attempt, nodes });
}

impl Iterator for History {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.submitted == self.jobs && self.ends.is_empty() {
            return None;
        }
        let time = Time(self.begin.0 + self.minute * 60_000_000);
        let mut events = if self.minute == 0 { Self::first() } else { Vec::new() };
        for n in self.ends.remove(&self.minute).unwrap_or_default() {
            let minutes = 1 + n * 7 % MINUTES_MAX;
            end(n, (Time(time.0 - minutes * 60_000_000), time), &mut events);
        }
        let come = (self.a_day * (self.minute + 1) / MINUTES_A_DAY).min(self.jobs);
        while self.submitted < come {
            self.begin(self.submitted, &mut events);
            self.submitted += 1;
        }
        self.minute += 1;
        Some(Record { seq: self.minute, time, events })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, History};

    #[test]
    fn every_job_of_the_history_comes_once_and_ends_once() {
        let records: Vec<_> = History::new(1000, 250).collect();
        let events = || records.iter().flat_map(|record| &record.events);
        assert_eq!(events().filter(|event| matches!(event, Event::JobSubmitted { .. })).count(), 1000);
        assert_eq!(events().filter(|event| matches!(event, Event::NodesReleased { .. })).count(), 1000);
        assert!(records.iter().zip(1..).all(|(record, seq)| record.seq == seq));
    }
}
