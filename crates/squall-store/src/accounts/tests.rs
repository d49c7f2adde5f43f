//! What `sacct` shows must follow from the events, after every crash.

use std::sync::Arc;

use squall_model::config::{Config, PartitionConfig};
use squall_model::cost::Loss;
use squall_model::event::{Event, JobChange, Record, Requeue};
use squall_model::id::{Attempt, ClientKey, Incarnation, JobId, NodeId, StepNo};
use squall_model::job::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, EndState, ExitCode, JobSpec, JobState, Outcome, Owner, Usage,
};
use squall_model::limits::SERIES_DAYS;
use squall_model::report::StepEnd;
use squall_model::resource::{Alloc, Hardware};
use squall_model::series::{Point, Series};
use squall_model::set::{CoreSet, IndexSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, StateFilter};
use squall_model::wire::history::Happening;
use squall_model::wire::info::AccountingRow;

mod damage;
mod locked;
mod postgres;
mod purge;
mod readers;
mod served;
mod times;

use super::book::Book;
use super::book::history;
use super::query::Course;
use crate::file::tests::Folder;
use served::opened;

struct Bed {
    dir: Folder,
    records: Vec<Record>,
}

impl Bed {
    fn new() -> Self {
        let mut bed = Self { dir: Folder::new(), records: Vec::new() };
        let mut config = Config::default();
        config.complete();
        bed.happens(Event::Configured { config: Arc::new(config) });
        for (node, name) in [(0, "n1"), (1, "n2")] {
            bed.happens(Event::NodeRegistered {
                node: NodeId(node),
                name: name.into(),
                incarnation: Incarnation(1),
                hardware: Hardware::default(),
            });
        }
        bed
    }
    fn happens(&mut self, event: Event) {
        let seq = self.records.len() as u64 + 1;
        self.records.push(Record { seq, time: Time::from_secs(seq), events: vec![event] });
    }
    fn submits(&mut self, id: u32, array: Option<IndexSet>) {
        let array = array.map(|indices| ArraySpec { indices, ..ArraySpec::default() });
        self.submits_spec(id, JobSpec { name: format!("job{id}"), array, ..JobSpec::default() });
    }
    fn submits_spec(&mut self, id: u32, spec: JobSpec) {
        let (key, owner) = (ClientKey(u128::from(id)), Arc::new(Owner { uid: 7, ..Owner::default() }));
        self.happens(Event::JobSubmitted { id: JobId(id), key, owner, spec: Arc::new(spec) });
    }
    fn starts(&mut self, id: u32, attempt: u32) {
        let mut alloc = Alloc::default();
        alloc.push(NodeId(0), CoreSet::first(2), 100);
        alloc.push(NodeId(1), CoreSet::first(2), 100);
        let partition = "debug".into();
        self.happens(Event::JobStarted { id: JobId(id), attempt: Attempt(attempt), partition, alloc });
    }
    fn ends(&mut self, id: u32, attempt: u32, state: EndState, requeue: bool) {
        let exit = ExitCode { code: 3, signal: 0 };
        let end = StepEnd {
            exit,
            oom: false,
            lost: false,
            usage: Usage { user: Span(5), max_rss_kb: 9, ..Usage::default() },
            started: Time::from_secs(1),
            ended: Time::from_secs(2),
            note: None,
            series: None,
        };
        let (job, attempt) = (JobId(id), Attempt(attempt));
        self.happens(Event::StepNodesEnded {
            job,
            attempt,
            step: StepNo::BATCH,
            nodes: NodeSet::one(NodeId(0)),
            end,
            cut: None,
        });
        let requeue = requeue.then_some(Requeue { hold: false, not_before: None, special: None, expedite: None });
        self.happens(Event::JobEnding { id: job, outcome: Outcome { state, exit, reason: None }, requeue });
        let nodes: NodeSet = [NodeId(0), NodeId(1)].into_iter().collect();
        self.happens(Event::NodesReleased { id: job, attempt, nodes });
    }
    /// Stores all events so far, in transactions of `batch` records, as one run of the follower.
    fn store(&self, batch: usize) {
        let mut book = opened(self.dir.path());
        for records in self.records.chunks(batch) {
            book.store(records.iter()).unwrap();
        }
        assert_eq!(book.position(), self.records.len() as u64);
    }
    fn ask(&self, query: &AccountingQuery) -> Vec<AccountingRow> {
        let book = opened(self.dir.path());
        let mut all = Vec::new();
        let mut course = Course::new(&book, Box::new(query.clone()));
        while !course.go_on(&book, &mut |rows, _, _| all.extend(rows)).unwrap() {}
        all
    }
}

fn states(rows: &[AccountingRow]) -> Vec<(u32, u32, JobState)> {
    rows.iter().filter(|r| r.step.is_none()).map(|r| (r.id.0, r.attempt.0, r.state)).collect()
}

#[test]
fn a_job_from_submission_to_end() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.store(1);
    assert_eq!(states(&bed.ask(&AccountingQuery::default())), [(1, 0, JobState::Pending)]);
    bed.starts(1, 1);
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!(states(&rows), [(1, 1, JobState::Running)]);
    assert_eq!((rows[0].nodes.as_str(), rows[0].num_cpus, rows[0].memory_mb), ("n[1-2]", 4, 200));
    assert_eq!((rows[1].step, rows[1].name.as_str(), rows[1].nodes.as_str()), (Some(StepNo::BATCH), "batch", "n1"));
    bed.ends(1, 1, EndState::Failed, false);
    bed.store(100);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!(states(&rows), [(1, 1, JobState::Ended(EndState::Failed))]);
    assert_eq!((rows[0].exit.code, rows[0].usage.max_rss_kb, rows[0].end), (3, 9, Some(Time::from_secs(7))));
    assert_eq!((rows[1].state, rows[1].end), (JobState::Ended(EndState::Failed), Some(Time::from_secs(2))));
    assert_eq!(bed.ask(&AccountingQuery { allocations_only: true, ..AccountingQuery::default() }).len(), 1);
}

#[test]
fn a_job_that_gave_back_a_node_is_shown_with_what_it_kept() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    let mut alloc = Alloc::default();
    alloc.push(NodeId(0), CoreSet::first(2), 100);
    bed.happens(Event::JobShrunk { id: JobId(1), attempt: Attempt(1), alloc: alloc.clone(), vacant: None });
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!((rows[0].nodes.as_str(), rows[0].num_cpus, rows[0].num_nodes), ("n1", 2, 1));
    // A node takes the place of one that has failed.
    alloc.push(NodeId(2), CoreSet::first(2), 100);
    let (lost, node) = (NodeId(1), NodeId(2));
    bed.happens(Event::NodeReplaced { id: JobId(1), attempt: Attempt(1), lost, node, alloc, gres: Vec::new() });
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!((rows[0].nodes.as_str(), rows[0].num_cpus, rows[0].num_nodes), ("n1,node-2", 4, 2));
    bed.ends(1, 1, EndState::Completed, false);
    bed.happens(Event::NodesReleased { id: JobId(1), attempt: Attempt(1), nodes: NodeSet::one(NodeId(2)) });
    bed.store(100);
    assert_eq!(states(&bed.ask(&AccountingQuery::default())), [(1, 1, JobState::Ended(EndState::Completed))]);
}

#[test]
fn a_job_is_in_the_partition_that_was_made_the_default() {
    let mut bed = Bed::new();
    let config = PartitionConfig { name: "new".into(), default: true, ..PartitionConfig::default() };
    bed.happens(Event::PartitionChanged { name: "new".into(), config: Some(Box::new(config)) });
    bed.submits(1, None);
    bed.happens(Event::PartitionChanged { name: "new".into(), config: None });
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!(rows.iter().map(|row| row.partition.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn a_requeued_job_has_a_row_for_each_attempt() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.ends(1, 1, EndState::NodeFail, true);
    bed.store(2);
    assert_eq!(states(&bed.ask(&AccountingQuery::default())), [(1, 0, JobState::Pending)]);
    bed.starts(1, 2);
    bed.ends(1, 2, EndState::Completed, false);
    bed.store(2);
    assert_eq!(states(&bed.ask(&AccountingQuery::default())), [(1, 2, JobState::Ended(EndState::Completed))]);
    let both = bed.ask(&AccountingQuery { duplicates: true, ..AccountingQuery::default() });
    let expected = [(1, 1, JobState::Ended(EndState::NodeFail)), (1, 2, JobState::Ended(EndState::Completed))];
    assert_eq!(states(&both), expected);
}

#[test]
fn an_attempt_that_was_requeued_is_shown_so() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.ends(1, 1, EndState::Requeued, true);
    bed.starts(1, 2);
    bed.store(1);
    let both = bed.ask(&AccountingQuery { duplicates: true, ..AccountingQuery::default() });
    assert_eq!(states(&both), [(1, 1, JobState::Ended(EndState::Requeued)), (1, 2, JobState::Running)]);
    let requeued = AccountingQuery { duplicates: true, states: vec![StateFilter::Requeued], ..Default::default() };
    assert_eq!(states(&bed.ask(&requeued)), [(1, 1, JobState::Ended(EndState::Requeued))]);
}

#[test]
fn what_is_held_from_the_start_is_eligible_when_it_is_released() {
    let mut bed = Bed::new();
    for (id, begin) in [(1, None), (2, Some(Time::from_secs(1000)))] {
        bed.submits_spec(id, JobSpec { hold: true, begin, ..JobSpec::default() });
    }
    let array = ArraySpec { indices: IndexSet::range(0, 4), ..ArraySpec::default() };
    bed.submits_spec(10, JobSpec { hold: true, array: Some(array), ..JobSpec::default() });
    bed.happens(Event::JobHeld { id: JobId(11), admin: false, whole: false });
    bed.store(1);
    let eligible = |bed: &Bed| {
        bed.ask(&AccountingQuery::default()).iter().map(|r| (r.id.0, r.eligible.secs())).collect::<Vec<_>>()
    };
    assert_eq!(eligible(&bed), [(1, 0), (2, 0), (10, 0), (11, 0)]);
    for _ in 0..2 {
        for (id, whole) in [(1, false), (2, false), (10, true)] {
            bed.happens(Event::JobReleased { id: JobId(id), whole });
        }
    }
    bed.store(1);
    assert_eq!(eligible(&bed), [(1, 8), (2, 1000), (10, 10), (11, 10)]);
    bed.starts(12, 1);
    bed.store(1);
    assert_eq!(eligible(&bed)[4..], [(12, 10), (12, 14)], "a task, and its script");
}

#[test]
fn an_array_is_its_tasks_and_the_rest() {
    let mut bed = Bed::new();
    bed.submits(10, Some(IndexSet::range(0, 4)));
    bed.starts(11, 1);
    bed.store(3);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!(states(&rows), [(10, 0, JobState::Pending), (11, 1, JobState::Running)]);
    assert_eq!(rows[0].pending_tasks.as_ref().unwrap().to_string(), "1-4");
    assert_eq!(rows[1].task.unwrap().index, 0);
    let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
    bed.happens(Event::TasksEnded { array: JobId(10), tasks: IndexSet::range(3, 9), outcome: outcome.clone() });
    bed.happens(Event::JobEnding { id: JobId(12), outcome, requeue: None });
    bed.store(3);
    let rows = bed.ask(&AccountingQuery { allocations_only: true, ..AccountingQuery::default() });
    let gone = JobState::Ended(EndState::Cancelled { by: 7 });
    assert_eq!(states(&rows), [(10, 0, gone), (10, 0, JobState::Pending), (11, 1, JobState::Running), (12, 0, gone)]);
    assert_eq!(rows[0].pending_tasks.as_ref().unwrap().to_string(), "3-4");
    assert_eq!(rows[1].pending_tasks.as_ref().unwrap().to_string(), "2");
    let task = JobRef::Tasks(JobId(10), IndexSet::range(0, 0));
    let rows = bed.ask(&AccountingQuery { ids: vec![task], ..AccountingQuery::default() });
    assert_eq!(states(&rows), [(11, 1, JobState::Running)]);
}

#[test]
fn questions_select_by_every_condition() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.submits(2, None);
    bed.starts(2, 1);
    bed.ends(2, 1, EndState::Failed, false);
    bed.submits(3, None);
    bed.store(100);
    let all = AccountingQuery { allocations_only: true, ..AccountingQuery::default() };
    let ids = |query: AccountingQuery| bed.ask(&query).iter().map(|r| r.id.0).collect::<Vec<_>>();
    assert_eq!(ids(all.clone()), [1, 2, 3]);
    assert_eq!(ids(AccountingQuery { ids: vec![JobRef::Job(JobId(2))], ..all.clone() }), [2]);
    assert!(ids(AccountingQuery { users: vec![8], ..all.clone() }).is_empty());
    assert_eq!(ids(AccountingQuery { names: vec!["job3".into(), "x' OR 1=1".into()], ..all.clone() }), [3]);
    assert_eq!(ids(AccountingQuery { states: vec![StateFilter::Failed], ..all.clone() }), [2]);
    assert_eq!(ids(AccountingQuery { states: vec![StateFilter::Pending], ..all.clone() }), [1, 2, 3]);
    assert_eq!(ids(AccountingQuery { nodes: Some("n[2-9]".into()), ..all.clone() }), [2]);
    assert_eq!(ids(AccountingQuery { start: Some(Time::from_secs(9)), ..all.clone() }), [1, 3]);
    assert_eq!(ids(AccountingQuery { end: Some(Time::from_secs(4)), ..all.clone() }), [1]);
    assert_eq!(ids(AccountingQuery { partitions: vec!["debug".into()], ..all }), [1, 2, 3]);
}

#[test]
fn cve_2018_7033_2019_12838_2023_49934_2026_65139_texts_are_values_and_no_sql() {
    let hostile = ["x'); DROP TABLE jobs; --", "' OR '1'='1", "%", "a\"b;", "x' UNION SELECT * FROM jobs --"];
    let mut bed = Bed::new();
    for (id, text) in (1..).zip(hostile) {
        let text = text.to_owned();
        let spec = JobSpec {
            name: text.clone(),
            account: Some(text.clone()),
            comment: Some(text.clone()),
            work_dir: text,
            ..JobSpec::default()
        };
        bed.submits_spec(id, spec);
    }
    bed.store(2);
    for (id, text) in (1..).zip(hostile) {
        let names = AccountingQuery { names: vec![text.into()], ..AccountingQuery::default() };
        let rows = bed.ask(&names);
        assert_eq!(rows.iter().map(|row| row.id.0).collect::<Vec<_>>(), [id], "{text}");
        assert_eq!((&*rows[0].name, rows[0].spec.comment.as_deref()), (text, Some(text)));
    }
    let nodes = AccountingQuery { nodes: Some("n1' OR '1'='1".into()), ..AccountingQuery::default() };
    assert_eq!(bed.ask(&nodes).len(), 0);
    assert_eq!(bed.ask(&AccountingQuery::default()).len(), hostile.len());
}

#[test]
fn every_record_counts_once_whatever_was_stored_before() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.ends(1, 1, EndState::Completed, true);
    bed.starts(1, 2);
    bed.store(1);
    let once = bed.ask(&AccountingQuery { duplicates: true, ..AccountingQuery::default() });
    for batch in 1..4 {
        bed.store(batch);
        assert_eq!(bed.ask(&AccountingQuery { duplicates: true, ..AccountingQuery::default() }), once);
    }
}

#[test]
fn what_a_step_used_over_time_is_summed_over_its_nodes_and_read_on_request() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    let point = Point { samples: 1, cpu_ms: 5000, time_ms: 10_000, rss_kb: 64, ..Point::default() };
    for node in 0..2 {
        let series = Series { points: vec![point; 2 + node as usize], ..Series::default() };
        let end = StepEnd { started: Time(1), ended: Time(2), series: Some(Box::new(series)), ..StepEnd::default() };
        let (job, attempt, nodes) = (JobId(1), Attempt(1), NodeSet::one(NodeId(node)));
        bed.happens(Event::StepNodesEnded { job, attempt, step: StepNo::BATCH, nodes, end, cut: None });
    }
    bed.store(1);
    let series = |bed: &Bed, series| {
        let rows = bed.ask(&AccountingQuery { series, ..AccountingQuery::default() });
        rows.into_iter().filter_map(|row| row.series).collect::<Vec<_>>()
    };
    assert_eq!(series(&bed, false), []);
    let [sum] = &series(&bed, true)[..] else { panic!("one step has one") };
    assert_eq!((sum.nodes, sum.cpus()), (2, vec![Some(1.0); 3]));
    assert_eq!(sum.memory_kb(), [Some(128.0); 3]);
    // It is not kept for ever.
    bed.submits(2, None);
    bed.starts(2, 1);
    let other = Series { points: vec![point; 2], ..Series::default() };
    let end = StepEnd { series: Some(Box::new(other)), ..StepEnd::default() };
    let (job, attempt, nodes) = (JobId(2), Attempt(1), NodeSet::one(NodeId(0)));
    bed.happens(Event::StepNodesEnded { job, attempt, step: StepNo::BATCH, nodes, end, cut: None });
    let last = bed.records.last_mut().expect("it happened");
    last.time = last.time + Span::from_secs(SERIES_DAYS * 86_400);
    bed.store(1);
    assert_eq!(series(&bed, true).len(), 1);
}

#[test]
fn a_script_that_ends_by_the_signal_of_a_cancellation_was_cancelled() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    let (job, attempt) = (JobId(1), Attempt(1));
    let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
    bed.happens(Event::JobEnding { id: job, outcome, requeue: None });
    let end = StepEnd {
        exit: ExitCode { code: 0, signal: 15 },
        oom: false,
        lost: false,
        usage: Usage::default(),
        started: Time::from_secs(1),
        ended: Time::from_secs(2),
        note: None,
        series: None,
    };
    bed.happens(Event::StepNodesEnded {
        job,
        attempt,
        step: StepNo::BATCH,
        nodes: NodeSet::one(NodeId(0)),
        end,
        cut: None,
    });
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    let shown: Vec<(JobState, u8)> = rows.iter().map(|row| (row.state, row.exit.signal)).collect();
    let cancelled = JobState::Ended(EndState::Cancelled { by: 7 });
    assert_eq!(shown[1], (cancelled, 15));
}

#[test]
fn rows_are_the_same_however_many_records_a_transaction_has() {
    // Each makes a database, which takes a server a while.
    let seeds = if std::env::var_os(served::STORE).is_some() { 1..12 } else { 1..60_u64 };
    for seed in seeds {
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut bed = Bed::new();
        let mut attempts = [0; 4];
        (1..=3).for_each(|id| bed.submits(id, None));
        for _ in 0..12 {
            let id = 1 + draw(3) as u32;
            let job = JobId(id);
            let attempt = &mut attempts[id as usize];
            let state = [EndState::Completed, EndState::Failed, EndState::Cancelled { by: 7 }][draw(3) as usize];
            match draw(6) {
                0 | 1 => {
                    *attempt += 1;
                    bed.starts(id, *attempt);
                }
                2 => bed.ends(id, *attempt, state, draw(4) == 0),
                3 => {
                    let end = StepEnd {
                        exit: ExitCode { code: 0, signal: if draw(3) == 0 { 15 } else { 0 } },
                        oom: false,
                        lost: draw(5) == 0,
                        usage: Usage { user: Span(5), max_rss_kb: 9, ..Usage::default() },
                        started: Time::from_secs(1),
                        ended: Time::from_secs(2),
                        note: (draw(4) == 0).then(|| "note".to_owned()),
                        series: None,
                    };
                    let (attempt, nodes) = (Attempt(*attempt), NodeSet::one(NodeId(0)));
                    bed.happens(Event::StepNodesEnded { job, attempt, step: StepNo::BATCH, nodes, end, cut: None });
                }
                4 => {
                    let outcome = Outcome { state, exit: ExitCode::OK, reason: None };
                    bed.happens(Event::JobEnding { id: job, outcome, requeue: None });
                }
                _ => bed.happens(Event::JobSuspended { id: job, suspended: draw(2) == 0 }),
            }
        }
        let all = AccountingQuery { duplicates: true, ..AccountingQuery::default() };
        bed.store(1);
        let one_by_one = bed.ask(&all);
        for batch in [4, 100] {
            let other = Bed { dir: Folder::new(), records: bed.records.clone() };
            other.store(batch);
            assert_eq!(other.ask(&all), one_by_one, "seed {seed}, {batch} records at once: {:#?}", bed.records);
        }
    }
}

/// Regression test of fault A9 in faults.md.
#[test]
fn a9_pages_are_cut_by_their_bytes() {
    let mut bed = Bed::new();
    for id in 1..=400 {
        bed.submits_spec(id, JobSpec { comment: Some(format!("{id:060000}")), ..JobSpec::default() });
    }
    let long = JobSpec { args: vec!["x".repeat(4 << 20)], ..JobSpec::default() };
    for id in 401..=403 {
        bed.submits_spec(id, long.clone());
        bed.starts(id, 1);
    }
    bed.store(100);
    let book = opened(bed.dir.path());
    let mut course = Course::new(&book, Box::default());
    let (mut rows, mut lasts) = (0, Vec::new());
    let mut send = |page: Vec<AccountingRow>, more: bool, lost| {
        rows += page.len();
        lasts.push(more);
        let mut frame = Vec::new();
        squall_model::codec::encode(&Answer::Accounting { rows: page, more, lost }, &mut frame).unwrap();
    };
    while !course.go_on(&book, &mut send).unwrap() {}
    assert_eq!(rows, 400 + 2 * 3);
    assert!(lasts.len() > 4 && lasts.iter().rposition(|more| !more) == Some(lasts.len() - 1), "{lasts:?}");
    assert_eq!(lasts.iter().filter(|more| !**more).count(), 1, "one page is the last");
}

/// Property: all portions of an answer together have each row once, in the order of ids, wherever they are cut.
#[test]
fn a9_portions_of_an_answer_have_each_row_once() {
    let mut bed = Bed::new();
    let mut expected = Vec::new();
    for id in (10..30_000).step_by(10) {
        if id % 30 == 0 {
            bed.submits(id, Some(IndexSet::range(0, 2)));
            bed.starts(id + 1, 1);
            expected.extend([id, id + 1, id + 1]);
        } else {
            bed.submits(id, None);
            expected.push(id);
        }
    }
    bed.store(1000);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!(rows.iter().map(|row| row.id.0).collect::<Vec<_>>(), expected);
}

/// Regression test of fault C3 in faults.md.
#[test]
fn c3_an_id_that_comes_back_is_another_job() {
    let mut bed = Bed::new();
    bed.submits(5, None);
    bed.starts(5, 1);
    bed.ends(5, 1, EndState::Failed, false);
    bed.submits(10, Some(IndexSet::range(0, 9)));
    bed.starts(11, 1);
    bed.ends(11, 1, EndState::Completed, false);
    let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
    bed.happens(Event::TasksEnded { array: JobId(10), tasks: IndexSet::range(1, 9), outcome });
    bed.submits(100, None);
    // Job ids are used again.
    bed.submits(5, None);
    bed.submits(8, Some(IndexSet::range(0, 4)));
    bed.submits(13, None);
    bed.starts(5, 1);
    bed.starts(11, 1);
    for batch in [1, 7, 100] {
        let again = Bed { dir: Folder::new(), records: bed.records.clone() };
        again.store(batch);
        let of = |duplicates: bool, id: u32| {
            let ids = vec![JobRef::Job(JobId(id))];
            again.ask(&AccountingQuery { duplicates, ids, allocations_only: true, ..AccountingQuery::default() })
        };
        let failed = JobState::Ended(EndState::Failed);
        assert_eq!(states(&of(false, 5)), [(5, 1, JobState::Running)], "{batch} records at once");
        assert_eq!(states(&of(true, 5)), [(5, 1, failed), (5, 1, JobState::Running)]);
        assert_eq!(states(&of(false, 8)), [(8, 0, JobState::Pending), (11, 1, JobState::Running)]);
        assert_eq!(states(&of(false, 11)).last(), Some(&(11, 1, JobState::Running)));
        assert_eq!(states(&of(false, 13)), [(13, 0, JobState::Pending)]);
        assert!(states(&of(false, 10)).is_empty(), "the array of before is shown with duplicates only");
        let gone = JobState::Ended(EndState::Cancelled { by: 7 });
        assert!(states(&of(true, 10)).contains(&(10, 0, gone)));
    }
}

/// Regression test of fault D9 in faults.md: reports need the times when nodes were down, and the reservations.
#[test]
fn d9_nodes_and_accounts_of_the_past_are_kept() {
    let mut bed = Bed::new();
    bed.happens(Event::NodeDown { node: NodeId(1), reason: "Not responding".into() });
    bed.happens(Event::NodeUp { node: NodeId(1) });
    bed.happens(Event::PolicyChanged { changes: Vec::new(), by: 3 });
    bed.happens(Event::ReservationGone { name: "r".into() });
    bed.happens(Event::NodesRemoved { nodes: NodeSet::one(NodeId(1)), by: 0 });
    bed.store(2);
    let book = opened(bed.dir.path());
    let mut after = 0;
    let rows = history::page(&book, &mut after).unwrap();
    let kinds = rows.iter().map(|row| match &row.what {
        Happening::Registered { node, .. } => format!("+{node}"),
        Happening::Silent { node, reason } => format!("{node}: {reason}"),
        Happening::Heard { node } => node.clone(),
        Happening::Removed { nodes, .. } => format!("-{nodes}"),
        other => format!("{other:?}"),
    });
    let kinds: Vec<String> = kinds.collect();
    assert_eq!(kinds, ["+n1", "+n2", "n2: Not responding", "n2", "Unreserved { name: \"r\" }", "-n2"]);
    assert_eq!(history::page(&book, &mut after).unwrap(), [], "the last page is empty");
}

/// Regression test of fault E in faults.md: `sacctmgr modify job`.
#[test]
fn e_what_accounting_keeps_of_an_ended_job_can_be_changed() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.ends(1, 1, EndState::Failed, false);
    let values = [("comment", "bad disk"), ("derived-exit-code", "7:9"), ("wckey", "w"), ("admin-comment", "x")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    bed.happens(Event::Recorded { job: JobId(1), values: values.clone(), by: 0 });
    bed.happens(Event::Recorded { job: JobId(9), values, by: 0 });
    bed.store(1);
    let rows = bed.ask(&AccountingQuery { allocations_only: true, ..AccountingQuery::default() });
    assert_eq!(rows.len(), 1, "an unknown job is nobody's");
    assert_eq!((rows[0].spec.comment.as_deref(), rows[0].spec.wckey.as_deref()), (Some("bad disk"), Some("w")));
    assert_eq!(rows[0].derived_exit, ExitCode { code: 7, signal: 9 });
    assert!(rows[0].spec.options.notes.admin_comment.as_deref() == Some("x"));
}

#[test]
fn nodes_that_a_job_lost_are_told_with_what_followed_until_its_id_is_used_again() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    let (id, attempt, heard) = (JobId(1), Attempt(1), Time::from_secs(4));
    let lost = |node| Event::NodeLost { id, attempt, node: NodeId(node), heard, kept: Time::from_secs(5) };
    bed.happens(lost(0));
    bed.happens(lost(1));
    let alloc = Alloc::default();
    bed.happens(Event::NodeReplaced { id, attempt, lost: NodeId(1), node: NodeId(0), alloc, gres: Vec::new() });
    bed.ends(1, 1, EndState::NodeFail, true);
    bed.starts(1, 2);
    let (attempt, kept) = (Attempt(2), Time::from_secs(13));
    bed.happens(Event::NodeLost { id, attempt, node: NodeId(0), heard: Time::from_secs(90), kept });
    bed.store(3);
    let at = |book: &Book, attempt| book.losses(id, attempt).unwrap().map(|l| (l.earlier.secs(), l.losses));
    let book = opened(bed.dir.path());
    let seconds = |loss: &Loss| {
        let [replaced, again] = [loss.replaced, loss.again].map(|time| time.map_or(0, Time::secs));
        [loss.kept.secs(), loss.heard.secs(), loss.lost.secs(), replaced, again]
    };
    assert_eq!(at(&book, 1).unwrap().1.len(), 2);
    let (earlier, losses) = at(&book, 2).unwrap();
    // Each event comes a second after the one before it.
    let want = [[5, 4, 6, 0, 10], [5, 4, 7, 8, 10], [13, 90, 13, 0, 0]];
    assert_eq!((earlier, losses.iter().map(seconds).collect::<Vec<_>>()), (5, want.to_vec()));
    drop(book);
    bed.submits(1, None);
    bed.store(1);
    assert_eq!(at(&opened(bed.dir.path()), 2), None);
}

/// A database of a release that did not know of lost nodes.
#[test]
fn a_database_without_lost_nodes_is_opened_and_gets_them() {
    let mut bed = Bed::new();
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.store(3);
    let book = opened(bed.dir.path());
    if book.db.is_served() {
        // There, tables come by migrations alone.
        return;
    }
    book.db.run("DROP TABLE losses").unwrap();
    drop(book);
    assert_eq!(bed.ask(&AccountingQuery::default())[0].losses, None);
    let (id, attempt, at) = (JobId(1), Attempt(1), Time::from_secs(5));
    bed.happens(Event::NodeLost { id, attempt, node: NodeId(1), heard: at, kept: at });
    bed.ends(1, 1, EndState::NodeFail, false);
    bed.store(1);
    let rows = bed.ask(&AccountingQuery::default());
    let losses = rows[0].losses.as_ref().expect("it has lost a node");
    assert_eq!((losses.losses.len(), losses.losses[0].again), (1, rows[0].end), "its end is the end of the loss");
    assert!(rows[1..].iter().all(|step| step.losses.is_none()));
}

/// What is read of named jobs is what is found of them among all.
#[test]
fn named_jobs_are_found_without_reading_the_others() {
    let mut bed = Bed::new();
    let mut next = 1;
    for round in 0..300 {
        let id = next;
        match round % 4 {
            0 => {
                bed.submits(id, Some(IndexSet::range(0, 9)));
                bed.starts(id + 1, 1);
                bed.starts(id + 7, 1);
                bed.ends(id + 7, 1, EndState::Failed, true);
                let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
                bed.happens(Event::TasksEnded { array: JobId(id), tasks: IndexSet::range(8, 9), outcome });
                next += 11;
            }
            1 => {
                (id..id + 3).for_each(|id| bed.submits(id, None));
                bed.happens(Event::HetFormed { leader: JobId(id), size: 3 });
                next += 3;
            }
            _ => {
                bed.submits(id, None);
                bed.starts(id, 1);
                next += 1 + round % 3;
            }
        }
    }
    bed.store(1000);
    let all = bed.ask(&AccountingQuery::default());
    let is_of = |row: &AccountingRow, id: JobId| {
        let of = [row.task.map(|task| task.array), row.het.map(|het| het.leader), Some(row.id)];
        of.contains(&Some(id))
    };
    let ask = |ids: Vec<JobRef>| bed.ask(&AccountingQuery { ids, ..AccountingQuery::default() });
    for id in (0..next + 2).map(JobId) {
        let want: Vec<_> = all.iter().filter(|row| is_of(row, id)).cloned().collect();
        assert_eq!(ask(vec![JobRef::Job(id)]), want, "{id}");
    }
    // Many at once, in another order and repeated: each row once, in the order of ids.
    let mut many: Vec<JobRef> = (0..next).rev().step_by(2).map(|id| JobRef::Job(JobId(id))).collect();
    many.extend(many.clone());
    let named = |row: &AccountingRow| many.iter().any(|id| matches!(id, JobRef::Job(id) if is_of(row, *id)));
    let want: Vec<_> = all.iter().filter(|row| named(row)).cloned().collect();
    assert_eq!(ask(many.clone()), want);
    let tasks = ask(vec![JobRef::Tasks(JobId(1), IndexSet::range(6, 8))]);
    assert!(!tasks.is_empty() && tasks.iter().all(|row| is_of(row, JobId(1))), "{tasks:?}");
    let component = ask(vec![JobRef::Component(JobId(12), 1)]);
    assert_eq!(component.iter().map(|row| row.id).collect::<Vec<_>>(), [JobId(13)]);
}

/// A damaged row does not look like the end of all rows.
#[test]
fn a9_rows_after_a_damaged_one_are_read() {
    let mut bed = Bed::new();
    (1..=2500).for_each(|id| bed.submits(id, None));
    bed.store(10_000);
    let book = opened(bed.dir.path());
    book.db.run("UPDATE jobs SET state = 77 WHERE id IN (7, 1500)").unwrap();
    drop(book);
    let rows = bed.ask(&AccountingQuery::default());
    assert_eq!((rows.len(), rows.last().map(|row| row.id)), (2498, Some(JobId(2500))));
}

/// faults F5: a job with a dependency is pending from the time on when that was met, for `sacct -s PD` and for ranges.
#[test]
fn f5_a_dependent_job_is_pending_when_its_dependency_is_met() {
    let dependency = || {
        let on = squall_model::job::DependencyJob { id: JobId(1), index: None, delay_min: 0 };
        let term = DependencyTerm { when: DependencyKind::AfterAny, job: Some(on) };
        Some(Dependency { terms: vec![term], any: false })
    };
    for batch in [1, 100] {
        let mut bed = Bed::new();
        bed.submits(1, None);
        bed.submits_spec(2, JobSpec { dependency: dependency(), ..JobSpec::default() });
        let array = Some(ArraySpec { indices: IndexSet::range(0, 1), ..ArraySpec::default() });
        bed.submits_spec(10, JobSpec { dependency: dependency(), array, ..JobSpec::default() });
        bed.store(batch);
        let ids = |rows: Vec<AccountingRow>| {
            let mut ids: Vec<u32> = rows.iter().filter(|row| row.step.is_none()).map(|row| row.id.0).collect();
            ids.dedup();
            ids
        };
        let pending = |bed: &Bed, from: u64, to: u64| {
            let (start, end) = (Some(Time::from_secs(from)), Some(Time::from_secs(to)));
            let query = AccountingQuery { start, end, ..AccountingQuery::default() };
            (
                ids(bed.ask(&AccountingQuery { states: vec![StateFilter::Pending], ..query.clone() })),
                ids(bed.ask(&query)),
            )
        };
        assert_eq!(pending(&bed, 0, 100), (vec![1], vec![1]), "the others are not eligible yet");
        bed.starts(1, 1);
        bed.ends(1, 1, EndState::Completed, false);
        let met = bed.records.len() as u64 + 1;
        let change = JobChange { independent: Some(true), ..JobChange::default() };
        bed.happens(Event::JobUpdated { id: JobId(2), change: change.clone(), whole: false });
        bed.happens(Event::JobUpdated { id: JobId(10), change, whole: true });
        bed.store(batch);
        let rows = bed.ask(&AccountingQuery::default());
        let eligible: Vec<(u32, u64)> = rows.iter().map(|row| (row.id.0, row.eligible.secs())).collect();
        assert_eq!(eligible[2..], [(2, met), (10, met + 1)]);
        assert_eq!(pending(&bed, 0, met - 1).0, [1]);
        assert_eq!(pending(&bed, 0, met).0, [1, 2]);
        assert_eq!(pending(&bed, met, met + 100), (vec![2, 10], vec![2, 10]));
        bed.starts(2, 1);
        bed.store(batch);
        let rows = bed.ask(&AccountingQuery { ids: vec![JobRef::Job(JobId(2))], ..AccountingQuery::default() });
        assert_eq!(rows[0].eligible.secs(), met, "and not its start");
    }
}
