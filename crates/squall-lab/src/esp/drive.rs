//! Runs a workload on a cluster as any client could, and reads the results from accounting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use squall_files::place::Place;
use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef, Request};
use squall_model::wire::info::{AccountingRow, Diag};

use super::report::Ran;
use super::workload::Job;
use crate::client::{Client, unexpected};

/// Highest priority that a user can request.
const PRIORITY_TOP: u32 = u32::MAX - 1;
/// Timeout without the end of a job, in addition to the longest job's run time.
const PATIENCE: Duration = Duration::from_mins(2);

/// Options for the submission of the jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Real seconds for each second of the workload.
    pub(crate) scale: f64,
    /// The jobs' order of priority.
    pub(crate) first: PriorityOrder,
}

/// Order of priority among the jobs. `Arrival` sets no priorities; the others set them, which needs an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityOrder {
    /// First come, first served.
    Arrival,
    /// The widest job first, as with PriorityWeightJobSize.
    Wide,
    /// The job with the longest run time first.
    Long,
}

impl PriorityOrder {
    /// Returns the order of priority with this name on the command line. None: there is none.
    pub(crate) fn named(word: &str) -> Option<Self> {
        [Self::Arrival, Self::Wide, Self::Long].into_iter().find(|first| first.word() == word)
    }
    /// Returns the name of the order on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Arrival => "come",
            Self::Wide => "wide",
            Self::Long => "long",
        }
    }
}

/// Results of a workload that has run.
#[derive(Debug)]
pub(crate) struct WorkloadResult {
    /// Jobs that ran, in the order of submission.
    pub(crate) runs: Vec<Ran>,
    /// Number of jobs that ran and did not complete successfully.
    pub(crate) failed: usize,
    /// The controller's counters before the first submission.
    pub(crate) before: Diag,
    /// The controller's counters after the last end.
    pub(crate) after: Diag,
}

/// Returns the number of nodes and the cores of each. Fails if nodes differ: the workload is defined for equal nodes
/// only.
pub(crate) fn machine(place: &Place) -> Result<(u32, u32), String> {
    let Answer::Nodes(nodes) = ask(&mut connect(place)?, &Request::Nodes)? else {
        return Err(unexpected().to_string());
    };
    let up: Vec<_> = nodes.iter().filter(|node| node.up).collect();
    let cores = up.first().map_or(0, |node| node.hardware.cpus);
    if cores == 0 || up.iter().any(|node| node.hardware.cpus != cores) {
        return Err("the workload is defined for nodes that are all alike: these are not".into());
    }
    Ok((up.len() as u32, cores))
}

/// Submits the jobs when they are due and waits until all have ended.
pub(crate) fn drive(place: &Place, jobs: &[Job], manner: Manner) -> Result<WorkloadResult, String> {
    let (mut client, mut watch) = (connect(place)?, connect(place)?);
    let longest = jobs.iter().map(|job| job.run_s).max().unwrap_or(0);
    let patience = Duration::from_secs_f64(f64::from(longest) * manner.scale) + PATIENCE;
    watch.stream().set_read_timeout(Some(patience)).map_err(|e| e.to_string())?;
    let before = diag(&mut client)?;
    let start = Instant::now();
    let run = fresh_keys();
    let mut ids = Vec::with_capacity(jobs.len());
    let mut done = BTreeMap::new();
    for (job, number) in jobs.iter().zip(0_u32..) {
        let due = start + Duration::from_secs_f64(job.submit_s * manner.scale);
        while is_readable(&watch, due.saturating_duration_since(Instant::now()))? {
            hear(&mut watch, &mut done)?;
        }
        let request = submission(job, manner, ClientKey(run | u128::from(number)));
        let Answer::Submitted { job: id, .. } = ask(&mut client, &request)? else {
            return Err(unexpected().to_string());
        };
        watch.send(&Request::AwaitJob { job: id }).map_err(|e| e.to_string())?;
        ids.push(id);
    }
    while done.len() < ids.len() {
        hear(&mut watch, &mut done)
            .map_err(|e| format!("{} of {} jobs have ended, then: {e}", done.len(), ids.len()))?;
    }
    let after = diag(&mut client)?;
    let rows = accounting(&mut client, &ids)?;
    let ended_well = |row: &&AccountingRow| row.state == JobState::Ended(EndState::Completed);
    let failed = ids.len() - rows.values().filter(ended_well).count();
    Ok(WorkloadResult { runs: runs(jobs, manner, &ids, &rows, &done), failed, before, after })
}

/// Waits until an answer arrives, for at most `time`; returns whether there is one.
fn is_readable(client: &Client, time: Duration) -> Result<bool, String> {
    let until = Instant::now() + time;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).map_err(|e| e.to_string())?;
        match poll(&mut [PollFd::new(client.stream(), PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            found => return found.map(|count| count > 0).map_err(|e| e.to_string()),
        }
    }
}

/// Receives the next report of a job's end and records its time.
fn hear(watch: &mut Client, done: &mut BTreeMap<JobId, Time>) -> Result<(), String> {
    let Answer::JobDone { job, .. } = watch.receive().map_err(|e| e.to_string())? else {
        return Err(unexpected().to_string());
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    done.insert(job, Time(now.as_micros() as u64));
    Ok(())
}

/// Converts accounting rows to times in seconds since the first submission.
fn runs(
    jobs: &[Job],
    manner: Manner,
    ids: &[JobId],
    rows: &BTreeMap<JobId, AccountingRow>,
    done: &BTreeMap<JobId, Time>,
) -> Vec<Ran> {
    let Some(zero) = ids.first().and_then(|id| rows.get(id)).map(|row| row.submit) else { return Vec::new() };
    let since = |time: Time| time.since(zero).0 as f64 / 1e6;
    let ran = |(job, id): (&Job, &JobId)| {
        let row = rows.get(id)?;
        Some(Ran {
            nodes: row.num_nodes,
            full: job.is_full(),
            submit_s: since(row.submit),
            start_s: since(row.start?),
            end_s: since(row.end?),
            done_s: since(*done.get(id)?),
            run_s: f64::from(job.run_s) * manner.scale,
        })
    };
    jobs.iter().zip(ids).filter_map(ran).collect()
}

/// Returns the submission of a job that sleeps: an emulated node takes its duration from the comment, a real one runs
/// the script.
fn submission(job: &Job, manner: Manner, key: ClientKey) -> Request {
    let run_s = f64::from(job.run_s) * manner.scale;
    let priority = match () {
        () if job.is_full() => Some(PRIORITY_TOP),
        () => match manner.first {
            PriorityOrder::Arrival => None,
            PriorityOrder::Wide => Some(job.nodes),
            PriorityOrder::Long => Some(job.run_s),
        },
    };
    let need = Need {
        nodes_min: Some(job.nodes),
        nodes_max: Some(job.nodes),
        ntasks: Some(job.tasks),
        exclusive: true,
        ..Need::default()
    };
    let spec = JobSpec {
        name: job.name.clone(),
        comment: Some(format!("timer_ms={}", (run_s * 1000.0).round())),
        need,
        // One and a half times the run time, as the suite requests. With scaled time this is only an upper bound.
        time_limit_s: Some((u64::from(job.run_s) * 3).div_ceil(2)),
        priority,
        work_dir: "/".into(),
        command: job.name.clone(),
        stdout: Some("/dev/null".into()),
        submit_line: "squall esp".into(),
        ..JobSpec::default()
    };
    Request::Submit {
        spec: Arc::new(spec),
        script: ByteBuf::from(format!("#!/bin/sh\nexec sleep {run_s:.3}\n")),
        env: ByteBuf::from(b"PATH=/usr/bin:/bin\0".as_slice()),
        key,
    }
}

/// Returns the base of keys that no other run uses, from the process id and the time.
fn fresh_keys() -> u128 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    (now << 64) | (u128::from(std::process::id()) << 32)
}

fn accounting(client: &mut Client, ids: &[JobId]) -> Result<BTreeMap<JobId, AccountingRow>, String> {
    let ids = ids.iter().map(|id| JobRef::Job(*id)).collect();
    let query = AccountingQuery { ids, allocations_only: true, ..AccountingQuery::default() };
    client.send(&HostRequest::Accounting(Box::new(query))).map_err(|e| e.to_string())?;
    let mut all = BTreeMap::new();
    loop {
        match client.receive().map_err(|e| e.to_string())? {
            Answer::Accounting { rows, more, .. } => {
                all.extend(rows.into_iter().map(|row| (row.id, row)));
                if !more {
                    return Ok(all);
                }
            }
            _ => return Err(unexpected().to_string()),
        }
    }
}

fn diag(client: &mut Client) -> Result<Diag, String> {
    match ask(client, &Request::Diag { reset: false })? {
        Answer::Diag(diag) => Ok(*diag),
        _ => Err(unexpected().to_string()),
    }
}

fn connect(place: &Place) -> Result<Client, String> {
    Client::connect_to(place, "esp").map_err(|e| e.detail().map_or_else(|| e.to_string(), |why| format!("{e}: {why}")))
}

fn ask(client: &mut Client, request: &Request) -> Result<Answer, String> {
    client.ask(request).map_err(|e| e.to_string())
}
