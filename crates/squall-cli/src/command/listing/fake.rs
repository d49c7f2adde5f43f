//! A fake controller with jobs, nodes and accounting rows, for tests of the commands.

use std::fmt::Write;
use std::sync::Arc;

use jiff::tz::TimeZone;
use squall_client::FeedSelection;
use squall_model::config::PartitionConfig;
use squall_model::event::NodeAdmin;
use squall_model::hostlist::expand;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{
    ArraySpec, ArrayTask, EndState, ExitCode, JobKind, JobSpec, JobState, Need, Outcome, Owner, PendingReason, Usage,
};
use squall_model::policy::{Policy, PreemptMode, Real, Tres};
use squall_model::resource::Hardware;
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};
use squall_model::wire::Standby;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobSelection, Refusal, Request, StateFilter};
use squall_model::wire::feed::FeedPage;
use squall_model::wire::history::HistoryRow;
use squall_model::wire::info::{
    AccountingRow, BackfillCounts, ControllerInfo, Diag, FabricCounts, JobClass, JobInfo, JobsPage, LicenseInfo,
    NodeInfo, PartitionInfo, RunInfo, StepInfo,
};
use squall_model::wire::priority_info::Share;

use crate::command::listing::call::{Call, Controller, Fail, People};
use crate::command::listing::select::id_of;
use squall_client::ClientError;

/// Current time in all tests, in seconds: 2026-11-21T08:00:00 UTC.
pub(crate) const NOW: u64 = 1_795_248_000;

/// Entry of a test's environment that makes standard output a terminal.
pub(crate) const TERMINAL: (&str, &str) = ("terminal", "yes");

/// Entry of a test's environment with which hints are printed.
pub(crate) const HINTS: (&str, &str) = (squall_text::hints::VARIABLE, "1");

/// A fake cluster: its content, and the requests that it received.
pub(crate) struct Fake {
    pub(crate) page: JobsPage,
    pub(crate) nodes: Vec<NodeInfo>,
    pub(crate) partitions: Vec<PartitionInfo>,
    pub(crate) rows: Vec<AccountingRow>,
    pub(crate) diag: Diag,
    pub(crate) asked: Vec<Request>,
    pub(crate) asked_host: Vec<HostRequest>,
    pub(crate) queries: Vec<AccountingQuery>,
    /// Answers to requests that the fake controller does not handle itself, in the order of these requests.
    pub(crate) answers: Vec<Answer>,
    pub(crate) down: bool,
    pub(crate) policy: Policy,
    pub(crate) history: Vec<HistoryRow>,
    /// Pages of events that followers get. After the last one the controller is gone.
    pub(crate) feed: Vec<FeedPage>,
    /// Requests of followers.
    pub(crate) follows: Vec<FeedSelection>,
    pub(crate) licenses: Vec<LicenseInfo>,
    /// All controllers, if there are several.
    pub(crate) controllers: Vec<ControllerInfo>,
    /// Names and addresses of controllers in the configuration of this machine.
    pub(crate) configured: Vec<(String, String)>,
    /// What the standby on this host says, if the command asks one.
    pub(crate) standby: Option<Standby>,
    /// Whether other users are hidden from the caller (`PrivateData`).
    pub(crate) hides_users: bool,
}

impl Controller for Fake {
    fn cluster(&mut self) -> Result<String, ClientError> {
        if self.down { Err(ClientError::Connect("nobody listens".into())) } else { Ok("squall".into()) }
    }

    fn home(&mut self) -> Option<(std::path::PathBuf, u32)> {
        Some(("/srv/squall/squall.toml".into(), 0))
    }

    fn name_here(&self) -> Option<String> {
        Some("head2".to_owned())
    }

    fn configured(&self) -> Vec<(String, String)> {
        self.configured.clone()
    }

    fn ask_this_host(&mut self) {
        self.standby = Some(Standby { leader: None, name: "head2".to_owned(), age_ms: Some(1234) });
    }

    fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        if self.down {
            return Err(ClientError::Connect("nobody listens".into()));
        }
        self.asked.push(request.clone());
        let answer = match request {
            Request::Nodes => Answer::Nodes(self.nodes.clone()),
            Request::FutureNodes => Answer::Nodes(vec![NodeInfo { future: true, known: false, ..node("f1") }]),
            Request::Partitions => Answer::Partitions(self.partitions.clone()),
            Request::Config => Answer::Config(Box::default()),
            Request::Licenses => Answer::Licenses(self.licenses.clone()),
            Request::Policy => {
                let mut policy = self.policy.clone();
                if !self.hides_users {
                    policy.name_root();
                }
                Answer::Policy(Box::new(policy))
            }
            Request::Shares => Answer::Shares(shares()),
            Request::ChangePolicy { changes, .. } => {
                for change in changes {
                    self.policy.change(change);
                }
                Answer::Done
            }
            Request::Reservations => Answer::Reservations(Vec::new()),
            Request::Diag { .. } => Answer::Diag(Box::new(self.diag.clone())),
            _ if self.answers.is_empty() => Answer::Done,
            _ => self.answers.remove(0),
        };
        if let Answer::Refused(refusal) = answer { Err(ClientError::Refused(refusal)) } else { Ok(answer) }
    }

    fn ask_host(&mut self, request: &HostRequest) -> Result<Answer, ClientError> {
        if self.down {
            return Err(ClientError::Connect("nobody listens".into()));
        }
        self.asked_host.push(request.clone());
        match request {
            HostRequest::Controllers => Ok(Answer::Controllers(self.controllers.clone())),
            _ if self.answers.is_empty() => Ok(Answer::Done),
            _ => match self.answers.remove(0) {
                Answer::Refused(refusal) => Err(ClientError::Refused(refusal)),
                answer => Ok(answer),
            },
        }
    }

    fn pages(
        &mut self,
        jobs: JobSelection,
        ended: bool,
        steps: bool,
        take: &mut dyn FnMut(Option<JobsPage>),
    ) -> Result<(), ClientError> {
        if self.down {
            return Err(ClientError::Connect("nobody listens".into()));
        }
        let named = jobs.nodes.as_deref().map(|list| expand(list).unwrap_or_default()).unwrap_or_default();
        if let Some(name) = named.into_iter().find(|name| !["n1", "n2", "n3", "n4"].contains(&name.as_str())) {
            return Err(ClientError::Refused(Refusal::InvalidNode(name)));
        }
        let mut page = self.page.clone();
        page.unknown = jobs.ids.iter().map(id_of).filter(|id| page.jobs.iter().all(|j| !belongs(j, *id))).collect();
        page.jobs.retain(|j| {
            let over = matches!(j.state, JobState::Ended(_));
            (jobs.ids.is_empty() || jobs.ids.iter().any(|r| belongs(j, id_of(r))))
                && (jobs.names.is_empty() || jobs.names.contains(&self.page.specs[j.spec as usize].name))
                && (jobs.users.is_empty() || jobs.users.contains(&self.page.owners[j.owner as usize].uid))
                && (ended || !over)
                && (jobs.states.is_empty() || jobs.states.contains(&filter_of(j.state)))
                && (jobs.partitions.is_empty() || jobs.partitions.contains(&page.classes[j.class as usize].partition))
        });
        if !steps {
            page.jobs.iter_mut().filter_map(|j| j.run.as_mut()).for_each(|run| run.steps.clear());
        }
        self.asked.push(Request::Jobs { jobs, ended, steps });
        take(Some(page));
        Ok(())
    }

    fn history(&mut self) -> Result<Vec<HistoryRow>, ClientError> {
        Ok(self.history.clone())
    }

    fn follow(&mut self, wanted: FeedSelection) -> Result<(), ClientError> {
        self.follows.push(wanted);
        Ok(())
    }

    fn next_events(&mut self) -> Result<FeedPage, ClientError> {
        if self.feed.is_empty() {
            return Err(ClientError::Connect("nobody listens".into()));
        }
        Ok(self.feed.remove(0))
    }

    fn accounting_pages(
        &mut self,
        query: AccountingQuery,
        take: &mut dyn FnMut(Option<Vec<AccountingRow>>),
    ) -> Result<(), ClientError> {
        if self.down {
            return Err(ClientError::Connect("nobody listens".into()));
        }
        let mut rows = self.rows.clone();
        rows.retain(|r| {
            (query.ids.is_empty()
                || query.ids.iter().any(|j| id_of(j) == r.id || r.task.is_some_and(|t| t.array == id_of(j))))
                && !(query.allocations_only && r.step.is_some())
        });
        self.queries.push(query);
        // The connection broke after a page.
        take(Some(rows.clone()));
        take(None);
        let later = rows.split_off(rows.len() / 2);
        take(Some(rows));
        take(Some(later));
        Ok(())
    }
}

fn shares() -> Vec<Share> {
    let share = |id, depth, account: &str, user: &str, raw: f64, effective: f64, fairshare: f64, level: f64| Share {
        id,
        depth,
        account: account.into(),
        user: user.into(),
        partition: String::new(),
        shares: Some(1),
        norm_shares: Real(0.5),
        raw_usage: Real(raw),
        norm_usage: Real(raw / 400.0),
        effective_usage: Real(effective),
        fairshare: Real(fairshare),
        level: Real(level),
        run_minutes: [raw as u64, 0, 1],
        group_minutes: if user.is_empty() { vec![(Tres::Cpu, 100_000), (Tres::Gpu, 60)] } else { Vec::new() },
        cpu_usage: None,
        billing_minutes: None,
    };
    vec![
        share(1, 0, "root", "", 400.0, 1.0, 0.0, 0.0),
        share(2, 1, "phys", "", 400.0, 1.0, 0.0, 0.5),
        share(3, 2, "phys", "ann", 300.0, 0.75, 0.5, 0.666_667),
        share(4, 2, "phys", "root", 100.0, 0.25, 1.0, f64::INFINITY),
    ]
}

fn belongs(job: &JobInfo, id: JobId) -> bool {
    job.id == id || job.task.is_some_and(|t| t.array == id)
}

fn filter_of(state: JobState) -> StateFilter {
    match state {
        JobState::Pending => StateFilter::Pending,
        JobState::Running => StateFilter::Running,
        JobState::Suspended => StateFilter::Suspended,
        JobState::Configuring => StateFilter::Configuring,
        JobState::Completing(_) => StateFilter::Completing,
        JobState::Ended(EndState::Completed) => StateFilter::Completed,
        JobState::Ended(_) => StateFilter::Failed,
    }
}

struct TestPeople;

impl People for TestPeople {
    fn me(&self) -> u32 {
        1000
    }
    fn uid(&self, name: &str) -> Option<u32> {
        match name {
            "root" => Some(0),
            "ann" => Some(1000),
            _ => None,
        }
    }
    fn gid(&self, name: &str) -> Option<u32> {
        (name == "staff").then_some(50)
    }
    fn user(&self, uid: u32) -> String {
        match uid {
            0 => "root".into(),
            1000 => "ann".into(),
            other => other.to_string(),
        }
    }
    fn group(&self, uid: u32) -> String {
        self.user(uid)
    }
}

/// Result of a command: exit code, standard output, standard error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandResult {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

type Main = fn(&mut Call<'_>, &[String]) -> Result<(), Fail>;

/// Runs a command with the given fake controller and environment.
pub(crate) fn run_with(
    fake: &mut Fake,
    name: &'static str,
    main: Main,
    args: &[&str],
    env: &[(&str, &str)],
) -> CommandResult {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let mut call = Call {
        name,
        controller: fake,
        people: &TestPeople,
        env: &|variable| env.iter().find(|(key, _)| *key == variable).map(|(_, value)| (*value).to_owned()),
        terminal: env.contains(&TERMINAL),
        hints: env.contains(&HINTS),
        zone: TimeZone::UTC,
        now: Time::from_secs(NOW),
        out: &mut out,
        closed: false,
        err: &mut err,
    };
    let code = main(&mut call, &args).map_or_else(|Fail(code)| code, |()| 0);
    CommandResult { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// Runs a command with the usual fake cluster.
pub(crate) fn run(name: &'static str, main: Main, args: &[&str]) -> CommandResult {
    run_with(&mut fake(), name, main, args, &[])
}

fn at(seconds: i64) -> Time {
    Time::from_secs(NOW.saturating_add_signed(seconds))
}

fn owner() -> Arc<Owner> {
    Arc::new(Owner { uid: 1000, gid: 100, groups: vec![100], user: "ann".into(), group: "users".into() })
}

fn spec(name: &str) -> JobSpec {
    JobSpec {
        kind: JobKind::Batch,
        name: name.into(),
        need: Need { ntasks: Some(2), cpus_per_task: Some(1), memory: Memory::PerNodeMb(1024), ..Need::default() },
        work_dir: "/home/ann".into(),
        command: "/home/ann/run.sh".into(),
        args: vec!["x".into()],
        submit_line: format!("sbatch -J {name} run.sh x"),
        comment: Some("for the paper".into()),
        submit_host: "login".into(),
        submit_session: Some(4711),
        ..JobSpec::default()
    }
}

fn job(id: u32, spec: u32, state: JobState) -> JobInfo {
    let held = state != JobState::Pending;
    JobInfo {
        id: JobId(id),
        task: None,
        pending_tasks: None,
        array_limit: None,
        spec,
        owner: 0,
        class: 0,
        state,
        reason: PendingReason::None,
        attempt: Attempt(u32::from(held)),
        priority: 4_294_901_000 + id,
        submit: at(-600),
        eligible: at(-600),
        start: held.then(|| at(-90)),
        end: held.then(|| at(3510)),
        time_limit_s: Some(3600),
        num_nodes: if held { 2 } else { 1 },
        num_cpus: 2,
        num_tasks: 2,
        memory_mb: 2048,
        dependency: String::new(),
        het: None,
        restarts: 0,
        checkpoint: None,
        billing: None,
        run: held.then(|| Box::new(past())),
    }
}

fn past() -> RunInfo {
    RunInfo {
        nodes: "n[1-2]".into(),
        batch_host: "n1".into(),
        per_node: vec![("n[1-2]".into(), "0".into(), 1024)],
        ..RunInfo::default()
    }
}

fn jobs() -> JobsPage {
    let array = ArraySpec { indices: IndexSet::range(1, 9), limit: Some(2), text: "1-9%2".into() };
    let specs = vec![
        Arc::new(spec("a-long-name")),
        Arc::new(JobSpec { array: Some(array), ..spec("sweep") }),
        Arc::new(JobSpec { need: Need { exclusive: true, ..Need::default() }, time_limit_s: None, ..spec("wide") }),
    ];
    let mut running = job(10, 0, JobState::Running);
    running.run.get_or_insert_default().steps = vec![StepInfo {
        step: StepNo(0),
        name: "hostname".into(),
        nodes: "n[1-2]".into(),
        num_nodes: 2,
        num_cpus: 2,
        num_tasks: 2,
        memory_mb: 2048,
        start: at(-30),
        time_limit_s: Some(120),
        end: None,
        ports: None,
        cpu_freq: None,
        tres_per_node: Some("gres/gpu:1".into()),
    }];
    let task = |id, index, state| JobInfo { task: Some(ArrayTask { array: JobId(20), index }), ..job(id, 1, state) };
    let waiting = JobInfo {
        pending_tasks: Some(IndexSet::range(2, 9)),
        array_limit: Some(2),
        reason: PendingReason::JobArrayTaskLimit,
        ..job(20, 1, JobState::Pending)
    };
    let blocked = JobInfo {
        reason: PendingReason::Dependency,
        dependency: "afterok:10(unfulfilled)".into(),
        time_limit_s: None,
        ..job(30, 2, JobState::Pending)
    };
    let ended = |state, code| {
        let outcome = Some(Outcome { state, exit: ExitCode { code, signal: 0 }, reason: None });
        Some(Box::new(RunInfo { outcome, ..past() }))
    };
    let over =
        |id, state, code| JobInfo { run: ended(state, code), end: Some(at(-30)), ..job(id, 0, JobState::Ended(state)) };
    let ending = JobInfo {
        run: ended(EndState::Completed, 0),
        end: Some(at(-1)),
        ..job(33, 0, JobState::Completing(EndState::Completed))
    };
    JobsPage {
        specs,
        owners: vec![owner()],
        classes: vec![Arc::new(JobClass { partition: "debug".into(), account: "root".into(), qos: "normal".into() })],
        jobs: vec![
            running,
            waiting,
            task(21, 1, JobState::Running),
            blocked,
            over(31, EndState::Completed, 0),
            over(32, EndState::Failed, 3),
            ending,
        ],
        more: false,
        unknown: Vec::new(),
        now: at(0),
    }
}

fn partition(name: &str, default: bool, nodes: &str, count: u32) -> PartitionInfo {
    PartitionInfo {
        config: PartitionConfig {
            name: name.into(),
            nodes: nodes.into(),
            default,
            max_time_s: (!default).then_some(7200),
            ..PartitionConfig::default()
        },
        preempt_mode: PreemptMode::Off,
        nodes: nodes.into(),
        num_nodes: count,
        num_cpus: count * 4,
        billing: None,
    }
}

/// Returns an accounting row of a job, or of one of its steps.
pub(crate) fn accounting(id: u32, step: Option<StepNo>, state: JobState) -> AccountingRow {
    AccountingRow {
        id: JobId(id),
        task: None,
        pending_tasks: None,
        attempt: Attempt(1),
        step,
        spec: Arc::new(spec("wrap")),
        owner: owner(),
        name: match step {
            None => "wrap".into(),
            Some(StepNo::BATCH) => "batch".into(),
            Some(_) => "hostname".into(),
        },
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        state,
        exit: ExitCode::OK,
        derived_exit: ExitCode::OK,
        reason: None,
        submit: at(-600),
        eligible: at(-600),
        start: Some(at(-90)),
        end: Some(at(-30)),
        suspended_s: 0,
        time_limit_s: Some(3600),
        nodes: "n[1-2]".into(),
        num_nodes: 2,
        num_cpus: 2,
        req_cpus: 2,
        num_tasks: 2,
        memory_mb: 2048,
        usage: Usage {
            user: Span::from_millis(1500),
            system: Span::from_millis(250),
            max_rss_kb: 2048,
            max_rss_task: 1,
            total_rss_kb: 3000,
            max_vm_kb: 10_000,
            read_bytes: 4096,
            write_bytes: 1 << 20,
            major_faults: 3,
            gpus: None,
            energy_j: Some(12_345),
        },
        submit_line: "sbatch --wrap hostname".into(),
        het: None,
        losses: None,
        series: None,
        billing: None,
        req_billing: None,
    }
}

fn rows() -> Vec<AccountingRow> {
    let done = JobState::Ended(EndState::Completed);
    let failed = AccountingRow {
        exit: ExitCode { code: 0, signal: 9 },
        ..accounting(41, None, JobState::Ended(EndState::Failed))
    };
    let cancelled = JobState::Ended(EndState::Cancelled { by: 1000 });
    let waiting = AccountingRow {
        pending_tasks: Some(IndexSet::range(1, 4)),
        attempt: Attempt(0),
        start: None,
        end: None,
        nodes: String::new(),
        num_cpus: 0,
        ..accounting(50, None, JobState::Pending)
    };
    vec![
        accounting(40, None, done),
        accounting(40, Some(StepNo::BATCH), done),
        accounting(40, Some(StepNo(0)), done),
        failed,
        accounting(42, None, cancelled),
        waiting,
        AccountingRow { task: Some(ArrayTask { array: JobId(50), index: 0 }), ..accounting(51, None, done) },
    ]
}

/// Returns the counters of the fake cluster.
fn diag() -> Diag {
    let messages = vec![("Submit".to_owned(), 12, 2400), ("Jobs".to_owned(), 3, 900)];
    Diag {
        since: at(-3600),
        now: at(0),
        jobs_submitted: 12,
        jobs_started: 11,
        jobs_completed: 9,
        jobs_canceled: 1,
        jobs_failed: 1,
        jobs_pending: 8,
        jobs_running: 2,
        cycles: 20,
        cycle_last_us: 50,
        cycle_max_us: 400,
        cycle_total_us: 2000,
        cycle_depth_total: 100,
        queue_length: 8,
        messages,
        users: vec![(1000, 15, 3300)],
        clients: 1,
        nodes: 4,
        fabric: FabricCounts {
            messages: 5,
            messages_us: 60,
            node_epilogs: 40,
            composites: 3,
            composite_reports: 37,
            windows: vec![2, 0, 0, 1, 2],
            repeats: 1,
            retransmits: 1,
            waited_max_us: 1500,
            multicast_bytes: 12_582_912,
        },
        backfill: BackfillCounts {
            jobs_ever: 5,
            jobs: 3,
            cycles: 4,
            last: Some(at(-60)),
            last_us: 40,
            max_us: 90,
            total_us: 200,
            depth: (7, 24),
            tried: (2, 8),
            queue: (9, 32),
            times: (3, 12),
        },
        ..Diag::default()
    }
}

/// Returns the usual fake cluster: two partitions, four nodes, a few jobs of one user.
pub(crate) fn fake() -> Fake {
    let mut nodes: Vec<NodeInfo> = (1..=4).map(|i| node(&format!("n{i}"))).collect();
    (nodes[0].cpus_used, nodes[0].memory_used_mb, nodes[0].jobs_running) = (1, 1024, 1);
    (nodes[1].cpus_used, nodes[1].memory_used_mb, nodes[1].jobs_running) = (1, 1024, 1);
    nodes[2].partitions.push("long".into());
    nodes[3].partitions.push("long".into());
    nodes[3].admin = NodeAdmin::Drain;
    nodes[3].reason = Some(("bad disk".into(), 0, at(-3600)));
    Fake {
        page: jobs(),
        nodes,
        partitions: vec![partition("debug", true, "n[1-4]", 4), partition("long", false, "n[3-4]", 2)],
        controllers: Vec::new(),
        configured: Vec::new(),
        standby: None,
        rows: rows(),
        diag: diag(),
        asked: Vec::new(),
        asked_host: Vec::new(),
        queries: Vec::new(),
        answers: Vec::new(),
        down: false,
        hides_users: false,
        policy: Policy::default(),
        history: Vec::new(),
        feed: Vec::new(),
        follows: Vec::new(),
        licenses: Vec::new(),
    }
}

/// Returns an answer that refuses the request.
pub(crate) fn refused(refusal: Refusal) -> Answer {
    Answer::Refused(refusal)
}

/// Runs a command several times and returns one text: command line, output, errors, exit code if not 0.
pub(crate) fn transcript(name: &'static str, main: Main, lines: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in lines {
        let seen = run(name, main, args);
        let args: Vec<String> = args
            .iter()
            .map(|a| {
                if a.contains(|c: char| !c.is_ascii_alphanumeric() && !"-=,._/:@+".contains(c)) {
                    format!("'{a}'")
                } else {
                    (*a).to_owned()
                }
            })
            .collect();
        let _ = write!(text, "$ {name} {}\n{}", args.join(" "), seen.out);
        for line in seen.err.lines() {
            let _ = writeln!(text, "! {line}");
        }
        if seen.code != 0 {
            let _ = writeln!(text, "exit {}", seen.code);
        }
        text.push('\n');
    }
    text
}

/// Compares `text` with the stored snapshot `name`.
pub(crate) fn check(name: &str, text: &str) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}

/// Returns an idle node with 4 CPUs.
pub(crate) fn node(name: &str) -> NodeInfo {
    NodeInfo {
        name: name.into(),
        resumes: None,
        up: true,
        responds: true,
        known: true,
        admin: NodeAdmin::Resume,
        reason: None,
        hardware: Hardware {
            cpus: 4,
            sockets: 1,
            cores_per_socket: 2,
            threads_per_core: 2,
            memory_mb: 8000,
            tmp_disk_mb: 0,
            arch: "x86_64".into(),
            os: "Linux 6.1".into(),
            boot_time_s: 1_795_000_000,
            address: name.into(),
            features: Vec::new(),
            confinement: None,
            devices: None,
            interfaces: None,
        }
        .into(),
        features: Vec::new(),
        weight: 1,
        comment: String::new(),
        extra: String::new(),
        instance: (String::new(), String::new()),
        cpus_used: 0,
        memory_used_mb: 0,
        jobs_running: 0,
        jobs_completing: 0,
        load_centi: 12,
        free_mb: 6000,
        registered: Time::from_secs(1_795_240_000),
        heard: Time::from_secs(1_795_248_000),
        partitions: vec!["debug".into()],
        version: "0.1.0".into(),
        gres: String::new(),
        gres_used: String::new(),
        reservation: String::new(),
        maint: false,
        reboot: None,
        power: None,
        cloud: false,
        future: false,
        kept: None,
        next: None,
        faults: Vec::new(),
    }
}
