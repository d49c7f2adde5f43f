//! Pages of made-up clusters: what they say, how large they are and how long they take, and that nothing in them is of
//! users' making but text.

mod answers;
pub(super) mod fixture;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use squall_model::id::{Attempt, JobId};
use squall_model::job::{ArrayTask, EndState, JobState, NodeTest, PendingReason, Usage};
use squall_model::policy::{AssocKey, Association, Limit, Policy, Qos, Real};
use squall_model::reservation::Reservation;
use squall_model::series::{Point, Series as UsageSeries, Used};
use squall_model::time::Span;
use squall_model::wire::client::{JobName, Tail};
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, Position};
use squall_model::wire::info::{
    AccountingRow, Diag, JobsPage, LicenseInfo, ReservationInfo, Why, WhyChange, WhyPartition,
};
use squall_model::wire::priority_info::Share;
use squall_text::options::values::jobs::job_ref;
use squall_text::report::lately::Lately;
use squall_text::report::many;
use squall_text::report::record::Record;

use crate::cluster::Controller;
use crate::web::frame::View;
use crate::web::html::Html;
use crate::web::overview::OverviewData;
use crate::web::{
    accounts, array, assets, events, faults, health, job, nodes, overview, partitions, past, people, queue, record,
    reservations, row,
};
use fixture::{EVIL, NOW, cluster, expected, recorded, recorded_array, view};

/// Function that makes a page.
type Maker<'a> = Box<dyn Fn() -> Html + 'a>;

/// Elements without an end.
const VOID: [&str; 6] = ["meta", "link", "input", "br", "img", "hr"];

/// Fails unless elements are nested, attributes quoted, and there is neither script nor style within the page.
fn check(name: &str, html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>\n").unwrap_or_else(|| panic!("{name} is no page"));
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "{name}: a stray > in {:?}", &rest[..at]);
        let mut quoted = false;
        let end = rest[at..].find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let end = at + end.unwrap_or_else(|| panic!("{name}: an element is not closed: {:.80}", &rest[at..]));
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(ended) = tag.strip_prefix('/') {
            let last = open.pop();
            assert_eq!(last, Some(ended), "{name}: </{ended}> where {last:?} is open, before {rest:.80}");
            continue;
        }
        let element = tag.split([' ', '/']).next().unwrap_or_default();
        assert!(!element.is_empty() && !["img", "iframe", "object", "style"].contains(&element), "{name}: <{tag}>");
        for part in tag.split('"').step_by(2) {
            let handler = part.trim_start().starts_with("on") || part.contains("style=");
            assert!(!handler, "{name}: <{tag}>: no handlers or styles");
        }
        ids.extend(tag.split(" id=\"").skip(1).filter_map(|part| part.split('"').next()));
        if !tag.ends_with('/') && !VOID.contains(&element) {
            open.push(element);
        }
    }
    assert!(open.is_empty(), "{name}: {open:?} are left open");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{name}: an id twice in {ids:?}");
    assert!(html.contains("<h1>") && html.contains("<main id=\"main\""), "{name}");
}

fn told(evil: &str) -> Why {
    Why {
        job: JobName { id: JobId(8), task: None },
        state: JobState::Pending,
        reasons: vec![PendingReason::Resources, PendingReason::Priority],
        partitions: vec![WhyPartition {
            name: format!("batch{evil}"),
            nodes: 12,
            nodes_min: 1,
            room: false,
            empty: true,
            ideal: true,
            tests: vec![(NodeTest::BusyCpus, "n[01-12]".into(), 12)],
            misfit: None,
        }],
        ahead: vec![JobName { id: JobId(6), task: None }],
        ahead_total: 3,
        changes: vec![
            (WhyChange::Nodes(1), NOW),
            (WhyChange::Partition(format!("long{evil}")), NOW + Span::from_secs(600)),
        ],
        ..Why::default()
    }
}

fn fed(evil: &str) -> Vec<Arc<FeedEvent>> {
    let job = FeedJob {
        id: JobId(8),
        task: None,
        tasks: None,
        uid: 1000,
        user: format!("ann{evil}").into(),
        name: format!("train{evil}").into(),
        partition: "batch".into(),
        account: "physics".into(),
        qos: "normal".into(),
        state: JobState::Pending,
        exit: None,
        mail: None,
    };
    let event = |kind, job: Option<FeedJob>, nodes: &str| FeedEvent {
        at: Position::default(),
        time: NOW - Span::from_secs(30),
        kind,
        job,
        step: None,
        nodes: nodes.into(),
        name: String::new(),
        reason: Some(format!("disk{evil}")),
        by: Some(0),
    };
    let events = [event(FeedKind::JobHeld, Some(job), ""), event(FeedKind::NodeDrained, None, "n01")];
    events.into_iter().map(Arc::new).collect()
}

/// Returns a failed job that the controller has forgotten, which had run before.
fn gone(evil: &str) -> job::JobDetails {
    let ran =
        |attempt, state| recorded(70, None, state, evil).map(|row| AccountingRow { attempt: Attempt(attempt), ..row });
    let rows = ran(1, JobState::Ended(EndState::NodeFail)).into_iter().chain(ran(2, JobState::Ended(EndState::Failed)));
    let bytes = format!("starting\nfit: not found {evil}\n").into_bytes();
    let tail = Tail { path: "/home/ann/out".into(), size: bytes.len() as u64, bytes: bytes.into(), problem: None };
    let mut known = job::JobDetails { past: true, tail: Some(Box::new(tail)), ..job::JobDetails::default() };
    known.take(rows.collect(), (JobId(70), Attempt(2)));
    known
}

/// Returns the viewer of a cluster in trouble.
fn troubled(evil: &str) -> View {
    let fault = |node: &str| faults::Fault { node: format!("{node}{evil}"), text: format!("is down: fan{evil}") };
    View { faults: vec![fault("n01"), fault("")], ..view() }
}

/// Returns pages about what is over.
fn past_pages(seen: &OverviewData, evil: &str) -> Vec<(&'static str, Html)> {
    let view = view();
    let gone = gone(evil);
    let rows: Vec<AccountingRow> = recorded_array(evil).into_iter().chain(gone.rows.clone()).collect();
    let failed = many::ended(&record::all(&view, rows.clone()).iter().map(Record::report).collect::<Vec<_>>());
    let mine = OverviewData { starts: Arc::new(expected(seen)), failed: Arc::new(failed), ..seen.clone() };
    let found = past::Found { rows: rows.clone(), cut: true, problem: None };
    let unread = past::Found { problem: Some(format!("There is no user {evil}.")), ..past::Found::default() };
    let search =
        past::PastQuery { user: "*".into(), find: evil.into(), sort: "-time".into(), ..past::PastQuery::default() };
    let why = Some(Box::new(told(evil)));
    let array = array::ArrayDetails { rows: recorded_array(evil), why, ..array::ArrayDetails::default() };
    vec![
        ("mine", overview::page(&troubled(evil), &mine)),
        ("gone", record::past(&view, &gone)),
        ("array", array::page(&view, JobId(40), array)),
        ("past", past::page(&view, &seen.partitions, found, &search)),
        ("unread", past::page(&view, &seen.partitions, unread, &search)),
    ]
}

fn a_share(evil: &str) -> Share {
    Share {
        id: 1,
        depth: 1,
        account: format!("physics{evil}"),
        user: format!("ann{evil}"),
        partition: String::new(),
        shares: Some(10),
        norm_shares: Real(0.25),
        raw_usage: Real(360_000.0),
        norm_usage: Real(0.1),
        effective_usage: Real(0.4),
        fairshare: Real(0.5),
        level: Real(1.0),
        run_minutes: [0; 3],
        group_minutes: Vec::new(),
        cpu_usage: None,
        billing_minutes: None,
    }
}

/// Returns every page of a cluster.
fn pages(count: u32, hosts: u32, evil: bool) -> Vec<(&'static str, Html)> {
    let (seen, view) = (cluster(count, hosts, evil), view());
    let held = View { done: "The job is held.", ..view.clone() };
    let evil = if evil { EVIL } else { "" };
    let share = a_share(evil);
    let mut policy = Policy::default();
    let own = Association { limits: [(Limit::GrpCpu, 512)].into(), ..Association::default() };
    policy.associations.insert(AssocKey::user(&share.account, &share.user), own);
    policy.qos.insert("high".into(), Qos { description: evil.into(), priority: 10, ..Qos::default() });
    let reservation = Reservation {
        name: format!("maint{evil}"),
        start: NOW - Span::from_secs(60),
        end: NOW + Span::from_secs(7200),
        users: vec![format!("ann{evil}")],
        ..Reservation::default()
    };
    let reservation = ReservationInfo { reservation, nodes: "n[01-02]".into(), cores: 64, cpus: 64 };
    let license = LicenseInfo { name: "matlab".into(), total: 10, used: 4, reserved: 1 };
    let diag = Diag { broken: 1, messages: vec![(format!("submit{evil}"), 10, 1000)], ..Diag::default() };
    let jobs = &seen.jobs;
    let known = job::JobDetails { why: Some(Box::new(told(evil))), ..job::JobDetails::default() };
    let running = row::find(jobs, "3").unwrap();
    let usage = Usage { user: Span::from_secs(9000), total_rss_kb: 4_600_000, ..Usage::default() };
    let point = |n: u64| Point {
        samples: 1,
        cpu_ms: 150_000 + n * 100,
        time_ms: 10_000,
        rss_kb: 1_000_000 + n * 60_000,
        gpu_percent: n * 3,
        ..Point::default()
    };
    let series = UsageSeries { points: (0..60).map(point).collect(), ..UsageSeries::default() };
    let used = Used { usage, series: Some(Box::new(series)) };
    let bytes = format!("step 1\n{evil}\u{1b}[31m\n").into_bytes();
    let tail = Tail { path: "/home/ann/out".into(), size: 9000, bytes: bytes.into(), problem: None };
    let measured = job::JobDetails {
        tail: Some(Box::new(tail)),
        used: vec![(running.run().steps[0].step, used)],
        ..job::JobDetails::default()
    };
    let by_load = nodes::NodesQuery { by: "load".into(), ..<_>::default() };
    let by_user = nodes::NodesQuery { by: "user".into(), ..<_>::default() };
    let find = queue::QueueQuery { find: evil.into(), ..<_>::default() };
    let mut all = vec![
        ("overview", overview::page(&view, &seen)),
        ("queue", listed(&view, &seen, &queue::QueueQuery::default())),
        ("found", listed(&view, &seen, &find)),
        ("pending", job::page(&held, jobs, row::find(jobs, "8").unwrap(), &known)),
        ("running", job::page(&view, jobs, running, &measured)),
        ("nodes", nodes::page(&view, &seen.nodes, &seen.config, jobs, &nodes::NodesQuery::default())),
        ("users", nodes::page(&view, &seen.nodes, &seen.config, jobs, &by_user)),
        ("loads", nodes::page(&view, &seen.nodes, &seen.config, jobs, &by_load)),
        ("node", nodes::node_page(&view, &seen.nodes[0], jobs)),
        ("partitions", partitions::page(&view, &seen.partitions)),
        ("reservations", reservations::page(&view, &[reservation], &[license])),
        ("accounts", accounts::page(&view, &[share], &policy, &accounts::AccountsQuery::default())),
        ("events", events::page(&view, &fed(evil), jobs, &seen.nodes)),
        ("health", health::page(&troubled(evil), &Controller::default(), &diag, &seen.nodes)),
        ("login", people::log_in_page(Some("This token is not valid."))),
    ];
    all.extend(past_pages(&seen, evil));
    all
}

/// The list of jobs, of which one is at work and one is idle.
fn listed(view: &View, seen: &OverviewData, asked: &queue::QueueQuery) -> Html {
    let busy = Lately { cpus: 6.2, memory_kb: 3 << 20, idle_s: 0 };
    let idle = Lately { cpus: 0.0, memory_kb: 300 << 10, idle_s: 1500 };
    let used = [(JobId(3), busy), (JobId(4), idle)].into();
    queue::page(view, &seen.jobs, (&expected(seen), &used), (asked, &queue::picked(&seen.jobs, asked)))
}

#[test]
fn pages_are_well_formed_and_users_texts_are_texts() {
    for evil in [false, true] {
        for (name, html) in pages(60, 12, evil) {
            check(name, html.as_str());
            assert!(!html.as_str().contains("<script>") && !html.as_str().contains('\u{202e}'), "{name}");
            assert!(!html.as_str().contains(['\u{7}', '\u{0}']), "{name}");
        }
    }
    for (name, html) in pages(9, 1, false) {
        check(name, html.as_str());
    }
}

/// The address may name any page.
#[test]
fn a_page_of_a_list_may_have_any_number() {
    let (seen, view, page) = (cluster(400, 3, false), view(), usize::MAX);
    let jobs = queue::QueueQuery { page, ..queue::QueueQuery::default() };
    check("queue", listed(&view, &seen, &jobs).as_str());
    let nodes = nodes::NodesQuery { page, ..nodes::NodesQuery::default() };
    check("nodes", nodes::page(&view, &seen.nodes, &seen.config, &seen.jobs, &nodes).as_str());
    let accounts = accounts::AccountsQuery { page, ..accounts::AccountsQuery::default() };
    check("accounts", accounts::page(&view, &[], &Policy::default(), &accounts).as_str());
}

/// All that stands in an address may be an attacker's.
#[test]
fn a_search_takes_any_address() {
    let (view, seen) = (view(), cluster(9, 1, false));
    let long = "9".repeat(100_000) + "\u{20ac}";
    for text in
        ["", "*", "-", "9999-99-99", "0000-00-00", "now+9999999999days", EVIL, "%", "'; DROP TABLE jobs; --", &long]
    {
        let text = text.to_owned();
        let all = |text: &String| past::PastQuery {
            state: text.clone(),
            partition: text.clone(),
            account: text.clone(),
            find: text.clone(),
            since: text.clone(),
            from: text.clone(),
            until: text.clone(),
            sort: text.clone(),
            page: usize::MAX,
            ..past::PastQuery::default()
        };
        let asked = all(&text);
        for asked in [asked.clone(), past::PastQuery { state: String::new(), since: String::new(), ..asked }] {
            let problem = past::query(&view, &asked).err();
            let found = past::Found { problem, rows: recorded_array(""), cut: false };
            check("search", past::page(&view, &seen.partitions, found, &asked).as_str());
        }
    }
    let days = past::PastQuery { from: "2026-11-01".into(), until: "2026-11-02".into(), ..past::PastQuery::default() };
    let query = past::query(&view, &days).unwrap();
    assert_eq!(query.users, [view.uid], "without a user it is about the viewer");
    assert_eq!(query.end.zip(query.start).map(|(end, start)| end.since(start).secs()), Some(2 * 86_400));
}

#[test]
fn past_jobs_are_sorted_by_any_column() {
    let (view, seen) = (view(), cluster(9, 1, false));
    let rows: Vec<AccountingRow> = [(1, 30), (2, 10), (3, 20)]
        .into_iter()
        .map(|(id, cpus)| {
            let [job, _] = recorded(id, None, JobState::Ended(EndState::Completed), "");
            AccountingRow { num_cpus: cpus, end: Some(NOW - Span::from_secs(u64::from(id))), ..job }
        })
        .collect();
    let order = |sort: &str| {
        let asked = past::PastQuery { sort: sort.to_owned(), ..past::PastQuery::default() };
        let found = past::Found { rows: rows.clone(), ..past::Found::default() };
        let html = past::page(&view, &seen.partitions, found, &asked);
        let links = html.as_str().split("data-name=\"Job\"><a href=\"/job/").skip(1);
        links.map(|rest| rest[..1].to_owned()).collect::<String>()
    };
    assert_eq!(
        ["", "-ended", "cpus", "-cpus", "job", "-job", "nonsense"].map(order),
        ["123", "321", "132", "231", "321", "123", "123"]
    );
}

#[test]
fn a_task_with_the_number_of_its_array_has_a_page_of_its_own() {
    let mut jobs = JobsPage::clone(&cluster(9, 1, false).jobs);
    jobs.jobs[2].task = Some(ArrayTask { array: JobId(3), index: 7 });
    jobs.jobs[5].pending_tasks = Some((4..8).collect());
    let named = |text: &str| array::named(&jobs, &job_ref(text).unwrap()).map(|id| id.0);
    let all = ["3", "3_7", "1", "6", "6_4", "6_9", "3_[1-4]", "1+1"].map(named);
    assert_eq!(all, [Some(3), None, None, Some(6), Some(6), None, Some(3), None]);
    assert_eq!(row::path_of(JobId(3), jobs.jobs[2].task), "/job/3_7");
}

#[test]
fn what_is_wrong_names_the_node_and_its_reason() {
    let mut nodes = cluster(9, 12, false).nodes.to_vec();
    for node in &mut nodes[..7] {
        (node.up, node.responds, node.reason) = (false, false, Some(("fan".to_owned(), 0, NOW)));
    }
    nodes[8].responds = false;
    let told = faults::found(&Controller::default(), &Diag::default(), &nodes);
    let told: Vec<String> = told.iter().map(|fault| format!("{} {}", fault.node, fault.text)).collect();
    assert_eq!(told.len(), 7, "{told:?}");
    assert_eq!(
        [&*told[0], &*told[5], &*told[6]],
        ["n01 is down: fan", " 2 more nodes are down.", "n09 does not answer."]
    );
    assert!(faults::found(&Controller::default(), &Diag::default(), &nodes[9..]).is_empty());
}

#[test]
fn small_pages_stay_as_they_are() {
    let lines = |html: &Html| {
        let [css, js] = assets::paths();
        html.as_str().replace(&css, "STYLE").replace(&js, "SCRIPT").replace("><", ">\n<")
    };
    let pages = pages(9, 2, false);
    for wanted in ["pending", "reservations", "login", "gone", "array"] {
        let (name, html) = pages.iter().find(|(name, _)| *name == wanted).unwrap();
        insta::assert_snapshot!(*name, lines(html));
    }
}

#[test]
fn pages_of_a_large_cluster_are_small_and_quick() {
    // Screenshots are taken of these pages, too: `SQUALL_PAGES` is the folder.
    let folder = std::env::var_os("SQUALL_PAGES");
    let (seen, view) = (cluster(100_000, 10_000, false), view());
    let asked = nodes::NodesQuery { by: "user".into(), ..nodes::NodesQuery::default() };
    let last = queue::QueueQuery { page: 1999, ..queue::QueueQuery::default() };
    let makers: Vec<(&str, Maker<'_>)> = vec![
        ("overview", Box::new(|| overview::page(&view, &seen))),
        ("queue", Box::new(|| listed(&view, &seen, &queue::QueueQuery::default()))),
        ("last", Box::new(|| listed(&view, &seen, &last))),
        (
            "nodes",
            Box::new(|| nodes::page(&view, &seen.nodes, &seen.config, &seen.jobs, &nodes::NodesQuery::default())),
        ),
        ("users", Box::new(|| nodes::page(&view, &seen.nodes, &seen.config, &seen.jobs, &asked))),
        ("node", Box::new(|| nodes::node_page(&view, &seen.nodes[77], &seen.jobs))),
        ("events", Box::new(|| events::page(&view, &[], &seen.jobs, &seen.nodes))),
    ];
    let mut told = String::new();
    for (name, make) in makers {
        let began = Instant::now();
        let html = make();
        let took = began.elapsed();
        writeln!(told, "{name}: {} B, {} ms", html.as_str().len(), took.as_millis()).unwrap();
        assert!(html.as_str().len() < 300_000, "{told}");
        if let Some(folder) = &folder {
            std::fs::write(std::path::Path::new(folder).join(format!("{name}.html")), html.as_str()).unwrap();
        }
    }
    if let Some(folder) = &folder {
        std::fs::write(std::path::Path::new(folder).join("sizes.txt"), &told).unwrap();
        for (name, html) in pages(60, 256, false) {
            std::fs::write(std::path::Path::new(folder).join(format!("small-{name}.html")), html.as_str()).unwrap();
        }
        for (path, text) in assets::paths().iter().zip([assets::CSS, assets::JS]) {
            let file = std::path::Path::new(folder).join(path.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
    }
    assert!(assets::JS.len() < 6000);
}
