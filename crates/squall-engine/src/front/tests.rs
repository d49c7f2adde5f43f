//! Tests of the front: each request reaches its cell, and answers of several become one.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use squall_model::config::{Config, NodeConfig, PartitionConfig};
use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Dependency, DependencyJob, DependencyKind, DependencyTerm, JobSpec};
use squall_model::limits::CELL_IDS;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, AnyRequest, CellsAsked, JobName, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::info::{JobsPage, NodeInfo};

use super::{Cells, Desk, Input, LIST_TIME, Out};
use crate::machine::Machine;

/// Returns three cells: cell 0 has n[1-2], cell 1 has n[3-8] and a partition of its own, cell 2 has n9 with a GPU.
fn configs() -> Vec<Config> {
    let config = |cell, nodes: &str| {
        let mut config = Config { cell: Some(cell), ..Config::default() };
        config.nodes.push(NodeConfig { name: nodes.into(), ..NodeConfig::default() });
        config.complete();
        config
    };
    let mut all = vec![config(0, "n[1-2]"), config(1, "n[3-8]"), config(2, "n9")];
    all[1].partitions.push(PartitionConfig { name: "wide".into(), ..PartitionConfig::default() });
    all[2].nodes[0].gres = "gpu:2".into();
    all[2].nodes[0].features = vec!["fast".into()];
    all
}

fn cells() -> Arc<Cells> {
    Arc::new(Cells::new(&configs()).unwrap())
}

fn submit(spec: JobSpec, key: u128) -> Request {
    Request::Submit { spec: Arc::new(spec), script: ByteBuf::new(), env: ByteBuf::new(), key: ClientKey(key) }
}

fn after(ids: &[u32]) -> JobSpec {
    let job = |id: &u32| Some(DependencyJob { id: JobId(*id), index: None, delay_min: 0 });
    let terms = ids.iter().map(|id| DependencyTerm { when: DependencyKind::AfterOk, job: job(id) });
    JobSpec { dependency: Some(Dependency { terms: terms.collect(), any: false }), ..JobSpec::default() }
}

/// A desk with its clock.
struct Front {
    desk: Desk,
    now: Time,
}

impl Front {
    fn new() -> Self {
        Self { desk: Desk::new(cells()), now: Time::from_secs(1) }
    }
    fn step(&mut self, input: Input) -> Out {
        let mut out = Out::default();
        self.desk.step(self.now, input, &mut out);
        out
    }
    fn ask(&mut self, request: impl Into<AnyRequest>) -> Out {
        self.step(Input::Asked(request.into()))
    }
    fn answer(&mut self, cell: u32, answer: Answer) -> Vec<Answer> {
        self.step(Input::Answered { cell, answer: Box::new(answer) }).answers
    }
}

fn to(out: &Out) -> Vec<u32> {
    out.sends.iter().map(|(cell, _)| *cell).collect()
}

fn cell_for(spec: JobSpec, key: u128) -> Result<u32, Refusal> {
    let out = Front::new().ask(submit(spec, key));
    match &out.answers[..] {
        [Answer::Refused(refusal)] => Err(refusal.clone()),
        _ => Ok(to(&out)[0]),
    }
}

fn submitted(job: u32) -> Answer {
    Answer::Submitted { job: JobId(job), note: None, message: None }
}

fn node(name: &str) -> NodeInfo {
    NodeInfo {
        name: name.into(),
        resumes: None,
        up: true,
        responds: true,
        known: true,
        admin: squall_model::event::NodeAdmin::default(),
        reason: None,
        hardware: Arc::default(),
        features: Vec::new(),
        weight: 1,
        comment: String::new(),
        extra: String::new(),
        instance: (String::new(), String::new()),
        cpus_used: 0,
        memory_used_mb: 0,
        jobs_running: 0,
        jobs_completing: 0,
        load_centi: 0,
        free_mb: 0,
        registered: Time(0),
        heard: Time(0),
        partitions: Vec::new(),
        version: String::new(),
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

#[test]
fn submissions_are_dealt_by_key_and_size() {
    let mut counts = BTreeMap::new();
    for key in 0..9000 {
        *counts.entry(cell_for(JobSpec::default(), key).unwrap()).or_insert(0) += 1;
    }
    // Cells are chosen in proportion to their nodes: 2, 6 and 1 of 9.
    let near = |count: i32, expected: i32| (count - expected).abs() < expected / 8;
    assert!(near(counts[&0], 2000) && near(counts[&1], 6000) && near(counts[&2], 1000), "{counts:?}");
}

#[test]
fn a_submission_goes_where_what_it_names_is() {
    let need = |change: fn(&mut JobSpec)| {
        let mut spec = JobSpec::default();
        change(&mut spec);
        (0..50).map(|key| cell_for(spec.clone(), key).unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(need(|spec| spec.partition = Some("wide".into())).iter().eq(&[1]));
    assert!(need(|spec| spec.need.nodelist = Some("n2".into())).iter().eq(&[0]));
    assert!(need(|spec| spec.need.gres = Some("gpu:1".into())).iter().eq(&[2]));
    assert!(need(|spec| spec.need.constraint = Some("fast".into())).iter().eq(&[2]));
    assert!(need(|spec| spec.need.nodes_min = Some(3)).iter().eq(&[1]));
    assert_eq!(cell_for(after(&[CELL_IDS + 5, CELL_IDS + 6]), 1), Ok(1));
    assert_eq!(cell_for(after(&[2 * CELL_IDS + 5]), 1), Ok(2));
    // Dependencies on several cells allow any cell. A dependency's cell that lacks a requested partition is not used.
    let cells: std::collections::BTreeSet<_> =
        (0..50).map(|key| cell_for(after(&[5, CELL_IDS + 5]), key).unwrap()).collect();
    assert!(cells.iter().eq(&[0, 1, 2]));
    let wide = JobSpec { partition: Some("wide".into()), ..after(&[5]) };
    assert_eq!(cell_for(wide, 1), Ok(1));
    let matched = |ids: &[u32]| {
        let mut spec = after(ids);
        spec.dependency.iter_mut().flat_map(|d| &mut d.terms).for_each(|term| term.when = DependencyKind::AfterCorr);
        spec
    };
    assert_eq!(cell_for(matched(&[2 * CELL_IDS + 5]), 1), Ok(2));
    assert!(matches!(cell_for(matched(&[5, CELL_IDS + 5]), 1), Err(Refusal::NotSupported(_))));
    let apart = JobSpec {
        need: squall_model::job::Need { nodelist: Some("n[2-3]".into()), ..Default::default() },
        ..JobSpec::default()
    };
    assert!(matches!(cell_for(apart, 1), Err(Refusal::NodeConfigNotAvailable(_))));
}

// faults.md C (trial-newcomer.md, cells): a job wider than a cell waited for ever.
#[test]
fn c_a_job_wider_than_any_cell_is_refused() {
    let wide = |nodes, partition: Option<&str>| {
        let need = squall_model::job::Need { nodes_min: Some(nodes), ..Default::default() };
        cell_for(JobSpec { need, partition: partition.map(str::to_owned), ..JobSpec::default() }, 1)
    };
    assert_eq!((wide(6, None), wide(6, Some("wide"))), (Ok(1), Ok(1)));
    for partition in [None, Some("wide")] {
        assert!(
            matches!(wide(7, partition), Err(Refusal::NodeConfigNotAvailable(what)) if what.contains("has 6 nodes"))
        );
    }
}

#[test]
fn nodes_of_other_cells_need_not_be_excluded() {
    let mut spec = JobSpec::default();
    (spec.partition, spec.need.exclude) = (Some("wide".into()), Some("n[2-4]".into()));
    let out = Front::new().ask(submit(spec, 1));
    let [(1, AnyRequest::Machine(request))] = &out.sends[..] else { panic!("{:?}", out.sends) };
    let Request::Submit { spec, .. } = &**request else { panic!("{request:?}") };
    assert_eq!(spec.need.exclude.as_deref(), Some("n[3-4]"));
}

#[test]
fn requests_about_jobs_go_to_their_cells() {
    let mut front = Front::new();
    let ids = [7, CELL_IDS + 7, CELL_IDS + 8].map(|id| JobRef::Job(JobId(id)));
    let jobs = JobSelection { ids: ids.to_vec(), ..JobSelection::default() };
    let out = front.ask(Request::Release { jobs });
    assert_eq!(to(&out), [0, 1]);
    let name = |id| JobName { id: JobId(id), task: None };
    assert_eq!(front.answer(1, Answer::Affected { jobs: vec![name(CELL_IDS + 7)], refused: Vec::new() }), []);
    let answer = front.answer(0, Answer::Affected { jobs: vec![name(7)], refused: Vec::new() });
    assert_eq!(answer, [Answer::Affected { jobs: vec![name(7), name(CELL_IDS + 7)], refused: Vec::new() }]);
    let out = front.ask(Request::AwaitJob { job: JobId(2 * CELL_IDS + 1) });
    assert_eq!(to(&out), [2]);
    // No cell assigns such ids: any cell may refuse them.
    assert_eq!(to(&front.ask(Request::Why { job: JobId(40 * CELL_IDS) })), [0]);
}

#[test]
fn submissions_are_answered_in_their_order() {
    let mut front = Front::new();
    let keys: Vec<u128> = {
        let key_of = |cell| (0..100).find(|key| cell_for(JobSpec::default(), *key) == Ok(cell)).unwrap();
        vec![key_of(0), key_of(1)]
    };
    front.ask(submit(JobSpec::default(), keys[0]));
    front.ask(submit(JobSpec::default(), keys[1]));
    assert_eq!(front.answer(1, submitted(CELL_IDS)), []);
    assert_eq!(front.answer(0, submitted(1)), [submitted(1), submitted(CELL_IDS)]);
}

#[test]
fn lists_are_joined_in_the_order_of_cells() {
    let mut front = Front::new();
    assert_eq!(to(&front.ask(Request::Nodes)), [0, 1, 2]);
    assert_eq!(front.answer(2, Answer::Nodes(vec![node("n9")])), []);
    assert_eq!(front.answer(0, Answer::Nodes(vec![node("n1")])), []);
    let all = front.answer(1, Answer::Nodes(vec![node("n3")]));
    assert_eq!(all, [Answer::Nodes(vec![node("n1"), node("n3"), node("n9")])]);
}

#[test]
fn pages_are_joined_in_the_order_of_cells() {
    let mut front = Front::new();
    let page = |unknown: u32, more| {
        Answer::Jobs(Box::new(JobsPage { unknown: vec![JobId(unknown)], more, ..JobsPage::default() }))
    };
    let end = Answer::Jobs(Box::default());
    front.ask(Request::Jobs { jobs: JobSelection::default(), ended: false, steps: false });
    assert_eq!(front.answer(1, page(3, false)), []);
    assert_eq!(front.answer(0, page(1, true)), [page(1, true)]);
    assert_eq!(front.answer(0, page(2, false)), [page(2, true), page(3, true)]);
    let out = front.step(Input::Away { cell: 2 });
    assert_eq!(out.answers, [Answer::Without(vec![2]), end]);
}

#[test]
fn who_is_away_is_named() {
    let mut front = Front::new();
    front.ask(Request::Nodes);
    front.answer(0, Answer::Nodes(vec![node("n1")]));
    assert_eq!(front.step(Input::Lost { cell: 1 }).answers, []);
    // The last cell is silent and is left out after the timeout.
    front.now = front.now + LIST_TIME;
    let out = front.step(Input::Tick);
    assert_eq!(out.drops, [2]);
    assert_eq!(out.answers, [Answer::Without(vec![1, 2]), Answer::Nodes(vec![node("n1")])]);
    // A change that is incomplete is reported as failed.
    front.ask(Request::Reconfigure { config: None });
    front.answer(0, Answer::Done);
    front.answer(1, Answer::Done);
    assert_eq!(front.step(Input::Away { cell: 2 }).answers, [Answer::Refused(Refusal::CellAway(2))]);
}

#[test]
fn a_submission_that_may_have_been_heard_is_never_called_unheard() {
    let mut front = Front::new();
    let cell = to(&front.ask(submit(JobSpec::default(), 1)))[0];
    let out = front.step(Input::Away { cell });
    assert_eq!((out.answers, out.hangup), (vec![Answer::Refused(Refusal::CellAway(cell))], false));
    front.ask(submit(JobSpec::default(), 1));
    let out = front.step(Input::Lost { cell });
    assert_eq!((out.answers, out.hangup), (Vec::new(), true));
    let mut front = Front::new();
    front.ask(Request::AwaitJob { job: JobId(1) });
    assert!(front.step(Input::Lost { cell: 0 }).hangup);
}

#[test]
fn cells_that_can_not_stand_beside_each_other_are_refused() {
    let mut all = configs();
    all[1].cell = Some(0);
    assert_eq!(Cells::new(&all).unwrap_err(), "there are two cells 0");
    all[1].cell = None;
    assert!(Cells::new(&all).unwrap_err().contains("cell = N is missing"));
    let mut all = configs();
    all[2].nodes[0].name = "n1".into();
    assert_eq!(Cells::new(&all).unwrap_err(), "node n1 is in cell 0 and in cell 2");
    assert!(Cells::new(&[]).is_err());
}

proptest! {
    /// The cell of a submission depends only on its key and the configurations. Otherwise two cells could accept a
    /// retry. If a cell is added, each key stays with its cell or moves to the new one.
    #[test]
    fn a_key_has_one_cell(key: u128, sizes in proptest::collection::vec(1_u32..500, 2..6)) {
        let config = |(cell, size): (u32, &u32)| {
            let mut config = Config { cell: Some(cell), ..Config::default() };
            config.nodes.push(NodeConfig { name: format!("c{cell}n[1-{size}]"), ..NodeConfig::default() });
            config.complete();
            config
        };
        let all: Vec<Config> = (0..).zip(&sizes).map(config).collect();
        let choose = |configs: &[Config]| Cells::new(configs).unwrap().choose(&[JobSpec::default()], ClientKey(key)).unwrap();
        let chosen = choose(&all);
        let mut reversed = all.clone();
        reversed.reverse();
        prop_assert_eq!(choose(&reversed), chosen);
        let fewer = choose(&all[..all.len() - 1]);
        prop_assert!(chosen == fewer || chosen as usize == all.len() - 1);
    }

    /// Whichever cells answer, in whatever order, each list is answered once.
    #[test]
    fn every_list_is_answered_once(order in proptest::collection::vec((0_u32..3, 0_u8..4), 0..20)) {
        const LISTS: usize = 4;
        let mut front = Front::new();
        let mut told = Vec::new();
        let mut owed = [LISTS; 3];
        for _ in 0..LISTS {
            told.extend(front.ask(Request::Nodes).answers);
        }
        for (cell, what) in order {
            // A cell that owes no answer sends none.
            let left = &mut owed[cell as usize];
            let input = match what {
                _ if *left == 0 => continue,
                0 | 1 => Input::Answered { cell, answer: Box::new(Answer::Nodes(Vec::new())) },
                2 => Input::Away { cell },
                _ => Input::Lost { cell },
            };
            *left = if what < 2 { *left - 1 } else { 0 };
            let out = front.step(input);
            prop_assert!(!out.hangup);
            told.extend(out.answers);
        }
        front.now = front.now + LIST_TIME;
        told.extend(front.step(Input::Tick).answers);
        told.retain(|answer| !matches!(answer, Answer::Without(_)));
        prop_assert_eq!(told.len(), LISTS);
        prop_assert!(front.desk.open.is_empty());
    }
}

#[test]
fn events_are_followed_cell_by_cell() {
    let out = Front::new().ask(Request::Follow { from: None, jobs: Box::default(), kinds: Vec::new() });
    let [Answer::Refused(Refusal::NotSupported(text))] = &out.answers[..] else { panic!("{out:?}") };
    assert!(text.contains("SQUALL_STATE"), "{text}");
}

#[test]
fn every_request_goes_where_its_row_says() {
    let job = JobId(CELL_IDS + 1);
    for request in crate::control::decide::tests::rights::every(job) {
        let out = Front::new().ask(request.clone());
        let refused = |text: &str| out.answers == [Answer::Refused(Refusal::NotSupported(text.to_owned()))];
        let row = request.row();
        let fits = match row.cells {
            CellsAsked::OfJob(_) => to(&out) == [1],
            CellsAsked::Lists | CellsAsked::Changes | CellsAsked::Pages => to(&out) == [0, 1, 2],
            CellsAsked::Own(text) => refused(text),
            // It has a rule, which may refuse.
            CellsAsked::Parts => !refused(row.kind),
        };
        assert!(fits, "{request:?}: {out:?}");
    }
}
