//! Made-up clusters.

use std::sync::Arc;

use jiff::tz::TimeZone;
use squall_model::config::{Config, PartitionConfig, SwitchConfig};
use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{
    ArrayTask, EndState, ExitCode, JobKind, JobSpec, JobState, Outcome, Owner, PendingReason, Usage,
};
use squall_model::policy::PreemptMode;
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_model::wire::info::{
    AccountingRow, ExpectedStart, JobClass, JobInfo, JobsPage, NodeInfo, PartitionInfo, RunInfo, StepInfo,
};
use squall_text::format::clock::{Clock, Style};

use crate::web::frame::View;
use crate::web::history::Sample;
use crate::web::overview::OverviewData;
use crate::web::record::nothing;

/// 2026-11-21T08:00:00 UTC.
pub(crate) const NOW: Time = Time::from_secs(1_795_248_000);

/// A text that is harmful wherever it is not escaped.
pub(crate) const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=y>\u{202e}\u{7}&";

pub(crate) fn view() -> View {
    View {
        user: "ann".into(),
        uid: 1000,
        operator: true,
        proof: "proof".into(),
        by_cookie: true,
        cluster: "squall".into(),
        done: "",
        clock: Clock { zone: TimeZone::UTC, style: Style::Relative, now: NOW },
        faults: Vec::new(),
    }
}

fn spec(name: &str) -> Arc<JobSpec> {
    let work_dir = "/home/ann".into();
    Arc::new(JobSpec { name: name.into(), work_dir, command: format!("/home/ann/{name}.sh"), ..JobSpec::default() })
}

/// Returns a cluster with this many jobs and nodes. `evil`: all names of users are harmful.
pub(crate) fn cluster(jobs: u32, nodes: u32, evil: bool) -> OverviewData {
    let named = |name: &str| if evil { format!("{name}{EVIL}") } else { name.to_owned() };
    let names = ["relax", "train", "assemble", "fluid", "render"];
    let users = ["ann", "bert", "chloe", "dev", "eve", "fred", "gita", "hans", "ines", "juri", "kim", "lea"];
    let owner = |(at, user): (usize, &&str)| {
        Arc::new(Owner { uid: 1000 + at as u32, gid: 100, groups: vec![100], user: named(user), group: named("users") })
    };
    let page = JobsPage {
        specs: names.iter().map(|name| spec(&named(name))).collect(),
        owners: users.iter().enumerate().map(owner).collect(),
        classes: ["batch", "gpu"]
            .iter()
            .map(|name| Arc::new(JobClass { partition: named(name), account: named("physics"), qos: "normal".into() }))
            .collect(),
        jobs: (1..=jobs).map(|id| job(id, jobs, nodes)).collect(),
        now: NOW,
        ..JobsPage::default()
    };
    let width = nodes.to_string().len().max(2);
    let all: Vec<NodeInfo> = (1..=nodes).map(|n| node(n, width, &named("disk"))).collect();
    let partition = |name: &str| PartitionInfo {
        config: PartitionConfig { name: named(name), max_time_s: Some(86_400), ..PartitionConfig::default() },
        preempt_mode: PreemptMode::Off,
        nodes: format!("n[{:0width$}-{nodes}]", 1),
        num_nodes: nodes,
        num_cpus: nodes * 64,
        billing: None,
    };
    let racks = (0..nodes / 64).map(|rack| SwitchConfig {
        name: format!("rack{:02}", rack + 1),
        nodes: format!("n[{:0width$}-{:0width$}]", rack * 64 + 1, rack * 64 + 64),
    });
    let config = Config { cluster: "squall".into(), switches: racks.collect(), ..Config::default() };
    let history = (0..360_u32).map(|at| {
        let wave = (f64::from(at) / 40.0).sin() * 0.2 + 0.7;
        let cpus = u64::from(nodes) * 64;
        Sample {
            at: NOW - Span::from_secs((360 - u64::from(at)) * 60),
            cpus_used: (cpus as f64 * wave) as u64,
            cpus,
            running: (f64::from(jobs) * wave / 2.0) as u64,
            pending: (f64::from(jobs) * (1.0 - wave)) as u64,
        }
    });
    OverviewData {
        jobs: Arc::new(page),
        nodes: Arc::new(all),
        partitions: Arc::new(vec![partition("batch"), partition("gpu")]),
        config: Arc::new(config),
        history: history.collect(),
        starts: Arc::default(),
        failed: Arc::default(),
    }
}

fn node(n: u32, width: usize, reason: &str) -> NodeInfo {
    let hardware = Hardware { cpus: 64, memory_mb: 262_144, sockets: 2, cores_per_socket: 32, ..Hardware::default() };
    // Jobs lie side by side, so neighbours often are in the same state; every 7th is not.
    let kind = (n / 23).wrapping_mul(2_654_435_761) >> 20;
    let used = match (kind % 8, n % 7) {
        (0..=3, _) | (4..=5, 0) => 64,
        (4..=5, _) => 24,
        _ => 0,
    };
    let (admin, up) = match n % 211 {
        13 => (NodeAdmin::Drain, true),
        57 => (NodeAdmin::Resume, false),
        _ => (NodeAdmin::Resume, true),
    };
    NodeInfo {
        name: format!("n{n:0width$}"),
        up,
        responds: up,
        known: true,
        admin,
        reason: (admin == NodeAdmin::Drain || !up).then(|| (reason.to_owned(), 0, NOW - Span::from_secs(3600))),
        hardware: hardware.into(),
        cpus_used: used,
        memory_used_mb: u64::from(used) * 4096,
        jobs_running: used / 16,
        load_centi: used * 98,
        partitions: vec!["batch".into()],
        ..NodeInfo::default()
    }
}

fn job(id: u32, jobs: u32, nodes: u32) -> JobInfo {
    let state = match id % 10 {
        0 => JobState::Ended(EndState::Completed),
        1 if id % 100 == 1 => JobState::Ended(EndState::Failed),
        2 if id % 100 == 2 => JobState::Ended(EndState::Cancelled { by: 1000 }),
        1..=5 => JobState::Running,
        _ => JobState::Pending,
    };
    let reason = match (state, id % 4) {
        (JobState::Pending, 0) => PendingReason::Resources,
        (JobState::Pending, 1) => PendingReason::Dependency,
        (JobState::Pending, _) => PendingReason::Priority,
        _ => PendingReason::None,
    };
    let submit = NOW - Span::from_secs(60 + u64::from(id) * 157 % 3301);
    let (started, limit) = (state != JobState::Pending, Span::from_secs(3600 * u64::from(id % 5 + 1)));
    let start = submit + Span::from_secs(u64::from(id * 13 % 61));
    let first = id * 7 % nodes.max(1) + 1;
    let width = nodes.to_string().len().max(2);
    let count = id % 4 + 1;
    let ended = match state {
        JobState::Ended(state) => Some(Outcome { state, exit: ExitCode::OK, reason: None }),
        _ => None,
    };
    let run = RunInfo {
        outcome: ended.clone(),
        nodes: hostlist::compress((first..first + count).map(|n| format!("n{:0width$}", n.min(nodes)))),
        steps: vec![StepInfo {
            step: StepNo::BATCH,
            name: "batch".into(),
            nodes: format!("n{first:0width$}"),
            num_nodes: 1,
            num_cpus: 16,
            num_tasks: 1,
            memory_mb: 0,
            start,
            time_limit_s: None,
            end: ended.map(|outcome| (start + Span::from_secs(600), outcome)),
            ports: None,
            cpu_freq: None,
            tres_per_node: None,
        }],
        ..RunInfo::default()
    };
    JobInfo {
        id: JobId(id),
        spec: id % 5,
        owner: (id % 997) * 7 % 61 % 12,
        class: u32::from(id.is_multiple_of(9)),
        state,
        reason,
        attempt: Attempt(u32::from(started)),
        priority: jobs - id + 1,
        submit,
        eligible: submit,
        start: started.then_some(start).or_else(|| (id < 60).then(|| NOW + Span::from_secs(u64::from(id) * 150))),
        end: started.then(|| if matches!(state, JobState::Running) { start + limit } else { start }),
        time_limit_s: Some(limit.secs()),
        num_nodes: count,
        num_cpus: count * 16,
        num_tasks: count,
        memory_mb: 65_536,
        run: started.then(|| Box::new(run)),
        ..nothing()
    }
}

/// Returns expected starts of the first pending jobs.
pub(crate) fn expected(seen: &OverviewData) -> Vec<ExpectedStart> {
    let pending = seen.jobs.jobs.iter().filter(|job| job.state == JobState::Pending).take(50);
    let start = |(at, job): (usize, &JobInfo)| ExpectedStart {
        id: job.id,
        time: NOW + Span::from_secs(600 * (at as u64 + 1)),
        nodes: "n[01-04]".into(),
    };
    pending.enumerate().map(start).collect()
}

/// Returns the rows of accounting of a run of a job, and of its script. `evil`: what users have written is harmful.
pub(crate) fn recorded(id: u32, task: Option<(u32, u32)>, state: JobState, evil: &str) -> [AccountingRow; 2] {
    let owner = Owner { uid: 1000, user: format!("ann{evil}"), ..Owner::default() };
    let spec =
        JobSpec { kind: JobKind::Batch, stdout: Some(format!("out{evil}")), ..(*spec(&format!("fit{evil}"))).clone() };
    let submitted = AccountingRow::submitted(JobId(id), NOW - Span::from_secs(90_000), owner.into(), spec.into());
    let ended = matches!(state, JobState::Ended(_)).then_some(NOW - Span::from_secs(80_000));
    let job = AccountingRow {
        task: task.map(|(array, index)| ArrayTask { array: JobId(array), index }),
        state,
        exit: if state == JobState::Ended(EndState::Failed) { ExitCode { code: 127, signal: 0 } } else { ExitCode::OK },
        start: Some(NOW - Span::from_secs(84_000)),
        end: ended,
        nodes: "n[01-02]".into(),
        num_nodes: 2,
        num_cpus: 32,
        memory_mb: 2048,
        time_limit_s: Some(7200),
        partition: format!("batch{evil}"),
        submit_line: format!("sbatch --array=0-9 fit.sh {evil}"),
        ..submitted
    };
    let used = Usage { user: Span::from_secs(3000), total_rss_kb: 1 << 20, ..Usage::default() };
    let script = AccountingRow { step: Some(StepNo::BATCH), name: "batch".into(), usage: used, ..job.clone() };
    [job, script]
}

/// Returns the rows of an array: tasks that have ended in several ways, one that runs, and some that wait.
pub(crate) fn recorded_array(evil: &str) -> Vec<AccountingRow> {
    let failed = JobState::Ended(EndState::Failed);
    let states =
        [JobState::Ended(EndState::Completed), failed, JobState::Ended(EndState::Timeout), failed, JobState::Running];
    let tasks = (0..).zip(states).flat_map(|(index, state)| recorded(41 + index, Some((40, index)), state, evil));
    let [waits, _] = recorded(40, None, JobState::Pending, evil);
    let waits = AccountingRow { pending_tasks: Some((5..10).collect()), start: None, nodes: String::new(), ..waits };
    tasks.chain([waits]).collect()
}
