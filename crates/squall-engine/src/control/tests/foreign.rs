//! Dependencies across cells: two controllers and the courier between them, any of which may die.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig};
use squall_model::foreign::{Named, Question, Reply};
use squall_model::id::JobId;
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobSpec, JobState, PendingReason,
};
use squall_model::limits::CELL_IDS;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, AnyRequest, Refusal, Request};
use squall_model::wire::info::AccountingRow;
use squall_sched::Item;

use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, array, batch, these, who};
use crate::front::{Cells, Courier, Errands, News};

/// The front's connection.
const FRONT: u64 = 50;

/// Two cells of one node each, and their front.
struct Two {
    cells: [Driver; 2],
    courier: Courier,
    /// Whether the front is there.
    front: bool,
    /// What accounting says of forgotten jobs.
    accounts: Vec<AccountingRow>,
}

fn config(cell: u32) -> Config {
    let mut config = Config { cell: Some(cell), ..Config::default() };
    config.nodes.push(NodeConfig { name: format!("c{cell}"), ..NodeConfig::default() });
    config.complete();
    config
}

fn courier() -> Courier {
    Courier::new(Arc::new(Cells::new(&[config(0), config(1)]).unwrap()))
}

fn with(terms: &[(DependencyKind, JobId)], any: bool) -> JobSpec {
    let job = |id| Some(DependencyJob { id, index: None, delay_min: 0 });
    let terms = terms.iter().map(|&(when, id)| DependencyTerm { when, job: job(id) }).collect();
    JobSpec { dependency: Some(Dependency { terms, any }), ..batch() }
}

fn after(when: DependencyKind, id: JobId) -> JobSpec {
    with(&[(when, id)], false)
}

fn single() -> JobSpec {
    let term = DependencyTerm { when: DependencyKind::Singleton, job: None };
    JobSpec { dependency: Some(Dependency { terms: vec![term], any: false }), ..batch() }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

const RUNS: Option<JobState> = Some(JobState::Running);
const WAITS: Option<JobState> = Some(JobState::Pending);

impl Two {
    fn new() -> Self {
        let cells = [0, 1].map(|cell| {
            let mut driver = Driver::empty(config(cell));
            driver.add_node(&format!("c{cell}"), 8);
            driver
        });
        let mut two = Self { cells, courier: courier(), front: false, accounts: Vec::new() };
        two.front_starts();
        two
    }
    fn front_starts(&mut self) {
        (self.front, self.courier) = (true, courier());
        (0..2).for_each(|cell| self.tell(News::Met { cell }));
    }
    fn front_dies(&mut self) {
        self.front = false;
        self.cells
            .iter_mut()
            .for_each(|cell| cell.step(crate::control::Input::Hangup { caller: CallerId(FRONT), away: false }));
        self.cells.iter_mut().for_each(|cell| drop(cell.take_answers(CallerId(FRONT))));
    }
    fn cell_dies(&mut self, cell: u32) {
        let driver = &mut self.cells[cell as usize];
        driver.restart();
        let jobs = driver.c.state().jobs.iter().filter(|(_, job)| job.run().is_some());
        let jobs: Vec<JobId> = jobs.map(|(id, _)| *id).collect();
        let jobs: Vec<_> = jobs.into_iter().map(|id| driver.attempt(id)).collect();
        driver.register(&format!("c{cell}"), &jobs);
        if self.front {
            self.tell(News::Lost { cell });
            self.tell(News::Met { cell });
        }
    }
    fn tell(&mut self, news: News) {
        let mut errands = Errands::default();
        self.courier.step(news, &mut errands);
        assert_eq!(errands.drops, []);
        for (cell, request) in errands.sends {
            let AnyRequest::Machine(request) = request else {
                let answer =
                    Box::new(Answer::Accounting { rows: self.accounts.clone(), more: false, lost: Vec::new() });
                self.tell(News::Told { cell, answer });
                continue;
            };
            for answer in self.cells[cell as usize].ask(FRONT, 0, *request) {
                self.tell(News::Told { cell, answer: Box::new(answer) });
            }
        }
    }
    /// All that is to be carried is.
    fn carry(&mut self) {
        while self.front {
            let said = |cell: &mut Driver| cell.take_answers(CallerId(FRONT));
            let answers: Vec<_> =
                (0..2).flat_map(|n| said(&mut self.cells[n]).into_iter().map(move |a| (n, a))).collect();
            if answers.is_empty() {
                return;
            }
            for (cell, answer) in answers {
                self.tell(News::Told { cell: cell as u32, answer: Box::new(answer) });
            }
        }
    }
    fn submit(&mut self, cell: usize, spec: JobSpec) -> JobId {
        let id = self.cells[cell].submit(spec);
        self.carry();
        id
    }
    fn finish(&mut self, cell: usize, id: JobId, code: u8) {
        self.cells[cell].finish(id, code);
        self.carry();
    }
    fn pass(&mut self, seconds: u64) {
        self.cells.iter_mut().for_each(|cell| cell.pass(seconds));
        self.carry();
    }
    fn state(&self, cell: usize, id: JobId) -> Option<JobState> {
        self.cells[cell].state_of(id)
    }
}

#[test]
fn each_kind_waits_for_the_end_in_the_other_cell() {
    for (code, kind, other) in [
        (0, DependencyKind::AfterOk, DependencyKind::AfterNotOk),
        (1, DependencyKind::AfterNotOk, DependencyKind::AfterOk),
    ] {
        let mut two = Two::new();
        let first = two.submit(1, batch());
        assert_eq!(first.cell(), 1);
        let started = two.submit(0, after(DependencyKind::After, first));
        assert_eq!(two.state(0, started), RUNS);
        let jobs = [DependencyKind::AfterAny, kind, other].map(|kind| two.submit(0, after(kind, first)));
        for job in jobs {
            assert_eq!((two.state(0, job), reason(&two.cells[0], job)), (WAITS, PendingReason::Dependency));
        }
        two.finish(1, first, code);
        assert_eq!(jobs.map(|job| two.state(0, job)), [RUNS, RUNS, WAITS]);
        assert_eq!(reason(&two.cells[0], jobs[2]), PendingReason::DependencyNeverSatisfied);
        two.cells[0].cancel(jobs[2]);
        for job in [started, jobs[0], jobs[1]] {
            two.finish(0, job, 0);
        }
        assert!(two.cells[0].c.state().foreign.is_empty(), "nobody depends on it any more");
    }
}

#[test]
fn all_and_any_of_several_cells() {
    let mut two = Two::new();
    let (here, there) = (two.submit(0, batch()), two.submit(1, batch()));
    let terms = [(DependencyKind::AfterOk, here), (DependencyKind::AfterOk, there)];
    let (all, any) = (two.submit(0, with(&terms, false)), two.submit(0, with(&terms, true)));
    two.finish(1, there, 0);
    assert_eq!((two.state(0, all), two.state(0, any)), (WAITS, RUNS));
    two.finish(0, here, 0);
    assert_eq!(two.state(0, all), RUNS);
}

#[test]
fn arrays_and_tasks_of_the_other_cell() {
    let mut two = Two::new();
    let tasks = two.submit(1, array(1, None));
    let whole = two.submit(0, after(DependencyKind::AfterOk, tasks));
    let mut one = after(DependencyKind::AfterOk, tasks);
    one.dependency.as_mut().unwrap().terms[0].job.as_mut().unwrap().index = Some(0);
    let one = two.submit(0, one);
    two.finish(1, JobId(tasks.0 + 1), 0);
    assert_eq!((two.state(0, whole), two.state(0, one)), (WAITS, RUNS));
    two.finish(1, tasks, 0);
    assert_eq!(two.state(0, whole), RUNS);
    let key = two.cells[0].key();
    let answers = two.cells[0].submit_with(key, after(DependencyKind::AfterCorr, tasks));
    assert_eq!(answers, [Answer::Refused(Refusal::DependencyProblem)], "tasks are matched within a cell");
}

#[test]
fn whoever_dies_the_end_is_heard_of() {
    for dies in 0..4 {
        let mut two = Two::new();
        let first = two.submit(1, batch());
        let job = two.submit(0, after(DependencyKind::AfterOk, first));
        match dies {
            0 => two.cell_dies(0),
            1 => two.cell_dies(1),
            2 => {
                two.front_dies();
                two.finish(1, first, 0);
                assert_eq!(two.state(0, job), WAITS);
                two.front_starts();
            }
            _ => {}
        }
        if dies != 2 {
            two.finish(1, first, 0);
        }
        assert_eq!(two.state(0, job), RUNS, "{dies}");
        two.cell_dies(0);
        assert_eq!(two.state(0, job), RUNS);
    }
}

#[test]
fn what_its_cell_has_forgotten_accounting_knows() {
    for (state, expected) in [(EndState::Completed, RUNS), (EndState::Failed, WAITS)] {
        let mut two = Two::new();
        let first = two.submit(1, batch());
        two.front_dies();
        let job = two.submit(0, after(DependencyKind::AfterOk, first));
        two.finish(1, first, u8::from(state != EndState::Completed));
        two.pass(1000);
        assert_eq!(two.state(1, first), None);
        two.accounts = vec![row(first, state, two.cells[1].now)];
        two.front_starts();
        assert_eq!(two.state(0, job), expected);
        two.cells[0].restart();
        if expected == WAITS {
            assert_eq!(reason(&two.cells[0], job), PendingReason::DependencyNeverSatisfied);
        }
    }
}

#[test]
fn a_job_that_never_was_is_never_waited_out() {
    let mut two = Two::new();
    let job = two.submit(0, after(DependencyKind::AfterAny, JobId(CELL_IDS + 500)));
    assert_eq!(reason(&two.cells[0], job), PendingReason::DependencyNeverSatisfied);
    let kill = JobSpec { kill_on_invalid_dep: Some(true), ..after(DependencyKind::AfterAny, JobId(CELL_IDS + 500)) };
    let job = two.submit(0, kill);
    assert_eq!(two.state(0, job), Some(JobState::Ended(EndState::Cancelled { by: ADA })));
    // A job that accounting has lost was there once, and how it ended is not known.
    let gone = two.submit(1, batch());
    two.finish(1, gone, 0);
    two.pass(1000);
    let job = two.submit(0, after(DependencyKind::AfterOk, gone));
    assert_eq!(reason(&two.cells[0], job), PendingReason::DependencyNeverSatisfied);
}

#[test]
fn singletons_of_a_name_run_one_by_one_in_all_cells() {
    let mut two = Two::new();
    let plain = two.submit(1, batch());
    two.pass(1);
    let [a, b, c] = [0, 1, 0].map(|cell| {
        let id = two.submit(cell, single());
        two.pass(1);
        id
    });
    let other = two.submit(0, JobSpec { name: "other".into(), ..single() });
    two.pass(1);
    let states = |two: &Two| [(0, a), (1, b), (0, c), (0, other)].map(|(cell, id)| two.state(cell, id) == RUNS);
    assert_eq!(states(&two), [false, false, false, true]);
    two.finish(1, plain, 0);
    assert_eq!(states(&two), [true, false, false, true]);
    two.cell_dies(0);
    two.cell_dies(1);
    assert_eq!(states(&two), [true, false, false, true]);
    two.finish(0, a, 1);
    assert_eq!(states(&two), [false, true, false, true]);
    two.finish(1, b, 0);
    assert_eq!(states(&two), [false, false, true, true]);
    two.finish(0, c, 0);
    two.finish(0, other, 0);
    assert!(two.cells.iter().all(|cell| cell.c.state().foreign.is_empty()));
}

#[test]
fn a_job_that_is_renamed_stands_in_nobodys_way() {
    let mut two = Two::new();
    let first = two.submit(1, JobSpec { hold: true, ..batch() });
    two.pass(1);
    let job = two.submit(0, single());
    two.pass(1);
    assert_eq!(two.state(0, job), WAITS);
    let spec = Some(Arc::new(JobSpec { name: "another".into(), hold: true, ..batch() }));
    let change = squall_model::event::JobChange { spec, ..Default::default() };
    two.cells[1].commit(squall_model::event::Event::JobUpdated { id: first, change, whole: false });
    two.carry();
    assert_eq!(two.state(0, job), RUNS);
}

#[test]
fn a_dependency_that_is_changed_is_asked_for() {
    let mut two = Two::new();
    let (first, second) = (two.submit(1, batch()), two.submit(1, batch()));
    let job = two.submit(0, after(DependencyKind::AfterOk, first));
    let spec = Some(Arc::new(after(DependencyKind::AfterOk, second)));
    let change = squall_model::event::JobChange { spec, ..Default::default() };
    two.cells[0].commit(squall_model::event::Event::JobUpdated { id: job, change, whole: false });
    two.carry();
    two.finish(1, first, 0);
    assert_eq!(two.state(0, job), WAITS);
    two.finish(1, second, 0);
    assert_eq!(two.state(0, job), RUNS);
}

#[test]
fn only_operators_carry_and_nothing_is_written_that_nobody_asked() {
    let mut two = Two::new();
    let question = Question::Ended(Named { id: JobId(CELL_IDS + 1), index: None });
    let replies = vec![(question.clone(), Reply::Ended { well: true })];
    for request in [
        Request::Unresolved,
        Request::Resolve { questions: vec![question] },
        Request::Resolved { replies: replies.clone() },
    ] {
        assert_eq!(two.cells[0].ask(9, ADA, request), [Answer::Refused(Refusal::AccessDenied)]);
    }
    assert_eq!(two.cells[0].ask(9, 0, Request::Resolved { replies: replies.clone() }), [Answer::Done]);
    assert!(two.cells[0].c.state().foreign.is_empty());
    // Nor a second answer.
    let first = two.submit(1, batch());
    let job = two.submit(0, after(DependencyKind::AfterOk, first));
    two.finish(1, first, 1);
    let question = Question::Ended(Named { id: first, index: None });
    two.cells[0].ask(9, 0, Request::Resolved { replies: vec![(question, Reply::Ended { well: true })] });
    assert_eq!(reason(&two.cells[0], job), PendingReason::DependencyNeverSatisfied);
    assert!(two.cells[0].ask(9, ADA, Request::Release { jobs: these(job) }).len() == 1);
}

fn row(id: JobId, state: EndState, time: Time) -> AccountingRow {
    let submitted = AccountingRow::submitted(id, time, who(ADA).owner, Arc::new(batch()));
    AccountingRow { state: JobState::Ended(state), start: Some(time), end: Some(time), ..submitted }
}
