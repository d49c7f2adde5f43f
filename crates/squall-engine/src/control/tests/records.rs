//! How jobs and steps are recorded: their final states, why they wait, since when they could run (faults F5 to F7, P6,
//! P8, P10, P11).

use squall_model::config::{Config, NodeConfig, NodeStart, PartitionConfig, PowerConfig};
use squall_model::event::Event;
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, ExitCode, JobKind, JobSpec, JobState, Need,
    PendingReason,
};
use squall_model::report::{Report, StepEnd};
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request, StateFilter};
use squall_model::wire::info::JobInfo;
use squall_model::wire::node::SignalTarget;

use crate::control::info::job::of_job;
use crate::control::tests::driver::{ADA, Driver, array, batch, these};

fn info(d: &Driver, id: JobId) -> JobInfo {
    of_job(&d.c, id, &d.c.state().jobs[&id], false, d.now).info
}

fn drain(d: &mut Driver, nodes: NodeSet) {
    let admin = squall_model::event::NodeAdmin::Drain;
    d.commit(Event::NodesSet { nodes, admin, reason: Some("fan".into()), by: 0 });
}

/// Starts a step with a time limit of a minute in a batch job. Returns the job and the step.
fn a_step(d: &mut Driver) -> (JobId, StepKey) {
    let job = d.submit(batch());
    let spec = Box::new(StepSpec { ntasks: Some(1), time_limit_s: Some(60), ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let answers = d.ask(9, ADA, Request::CreateStep { job, spec, program, key });
    assert!(matches!(answers[..], [Answer::StepCreated { .. }]), "{answers:?}");
    (job, StepKey { job, attempt: d.attempt(job).attempt, step: StepNo(0) })
}

/// What is done to a step before its tasks end.
#[derive(Clone, Copy, Debug)]
enum Done {
    Nothing,
    /// `scancel JOB.STEP`, with this signal.
    Cancel(Option<i32>),
    /// Its time limit passes.
    StepLimit,
    /// `scancel JOB`.
    CancelJob,
    /// The job's time limit passes.
    JobLimit,
    /// `scontrol requeue JOB`.
    Requeue,
}

/// Checks faults F6: the state of a step for every way to end, as Slurm's database has it.
#[test]
fn f6_final_states_of_steps() {
    const BY_ADA: EndState = EndState::Cancelled { by: ADA };
    const BY_NOBODY: EndState = EndState::Cancelled { by: EndState::NOBODY };
    let ends = |code, signal| StepEnd { exit: ExitCode { code, signal }, ..StepEnd::default() };
    let oom = StepEnd { oom: true, ..ends(0, 9) };
    let lost = StepEnd { lost: true, ..ends(0, 9) };
    let table = [
        (Done::Nothing, ends(0, 0), EndState::Completed),
        (Done::Nothing, ends(3, 0), EndState::Failed),
        (Done::Nothing, ends(0, 11), BY_NOBODY),
        (Done::Nothing, oom.clone(), EndState::OutOfMemory),
        (Done::Nothing, lost.clone(), EndState::NodeFail),
        (Done::Cancel(None), ends(0, 15), BY_ADA),
        (Done::Cancel(Some(9)), ends(0, 9), BY_ADA),
        (Done::Cancel(Some(10)), ends(0, 10), BY_NOBODY),
        (Done::Cancel(None), ends(0, 0), EndState::Completed),
        (Done::Cancel(None), ends(4, 0), EndState::Failed),
        (Done::StepLimit, ends(0, 15), EndState::Timeout),
        (Done::StepLimit, ends(0, 9), EndState::Timeout),
        (Done::StepLimit, ends(1, 0), EndState::Timeout),
        (Done::StepLimit, ends(0, 0), EndState::Timeout),
        (Done::StepLimit, oom, EndState::OutOfMemory),
        (Done::CancelJob, ends(0, 15), BY_ADA),
        (Done::JobLimit, ends(0, 15), BY_NOBODY),
        (Done::Requeue, ends(0, 15), BY_NOBODY),
    ];
    for (done, end, expected) in table {
        let mut d = Driver::new(1, 2);
        let (job, key) = a_step(&mut d);
        let cancel = |signal: Option<i32>| Request::Cancel {
            jobs: these(job),
            signal: signal.map(|signal| (signal, SignalTarget::Step(key.step))),
            step: Some(key.step),
            verbose: false,
        };
        match done {
            Done::Nothing => {}
            Done::Cancel(signal) => drop(d.ask(8, ADA, cancel(signal))),
            Done::StepLimit => d.pass(61),
            Done::CancelJob => d.cancel(job),
            Done::JobLimit => {
                let outcome = squall_model::job::Outcome { state: EndState::Timeout, exit: ExitCode::OK, reason: None };
                d.commit(Event::JobEnding { id: job, outcome, requeue: None });
            }
            Done::Requeue => {
                drop(d.ask(8, ADA, Request::Requeue { jobs: these(job), hold: false, from: None, special: None }));
            }
        }
        let end = StepEnd { started: d.now, ended: d.now, ..end };
        d.report("n1", &[Report::StepEnded { key, end: end.clone() }]);
        let run = d.c.state().jobs[&job].run().unwrap();
        let found = run.steps[&key.step].ended.as_ref().map(|(_, outcome)| outcome.state);
        assert_eq!(found, Some(expected), "{done:?}, {end:?}");
    }
}

/// Checks faults F6: the state of a job of `srun` follows from the exit that srun reports.
#[test]
fn f6_final_states_of_jobs_of_srun() {
    for (code, signal, state) in [
        (0, 0, EndState::Completed),
        (3, 0, EndState::Failed),
        (0, 11, EndState::Failed),
        (0, 125, EndState::OutOfMemory),
    ] {
        let mut d = Driver::new(1, 1);
        let job = d.submit(JobSpec { kind: JobKind::Allocation, ..batch() });
        let exit = ExitCode { code, signal };
        assert_eq!(d.ask(1, ADA, Request::Finish { job, exit }), [Answer::Done]);
        assert_eq!(d.state_of(job), Some(JobState::Completing(state)), "{exit:?}");
    }
}

fn after(id: JobId) -> JobSpec {
    let job = Some(DependencyJob { id, index: None, delay_min: 0 });
    let terms = vec![DependencyTerm { when: DependencyKind::AfterAny, job }];
    JobSpec { dependency: Some(Dependency { terms, any: false }), ..batch() }
}

/// Checks faults F5: a job with a dependency is eligible from the time on when that is met and it is not held.
#[test]
fn f5_a_dependent_job_is_eligible_when_its_dependency_is_met() {
    let mut d = Driver::new(1, 1);
    let (first, blocker) = (d.submit(batch()), d.submit(batch()));
    let (plain, held) = (d.submit(after(first)), d.submit(JobSpec { hold: true, ..after(first) }));
    let tasks = d.submit(JobSpec { dependency: after(first).dependency, ..array(2, None) });
    d.pass(100);
    let unknown = squall_model::time::Time::default();
    assert_eq!([info(&d, plain).eligible, info(&d, held).eligible], [unknown; 2]);
    d.finish(first, 0);
    assert_eq!(d.state_of(blocker), Some(JobState::Running));
    let met = d.now;
    d.pass(100);
    assert_eq!([info(&d, plain).eligible, info(&d, held).eligible], [met, unknown]);
    assert_eq!(d.c.state().arrays[&tasks].queue.independent, Some(met));
    d.ask(8, ADA, Request::Release { jobs: these(held) });
    let released = d.now;
    d.pass(100);
    assert_eq!([info(&d, plain).eligible, info(&d, held).eligible], [met, released]);
    d.restart();
    assert_eq!([info(&d, plain).eligible, info(&d, held).eligible], [met, released]);
}

/// Checks faults F7 and P6: what `scontrol requeuehold` shows at once, and SPECIAL_EXIT.
#[test]
fn f7_requeued_and_held() {
    for special in [None, Some(true)] {
        let mut d = Driver::new(1, 1);
        let job = d.submit(batch());
        let requeue = Request::Requeue { jobs: these(job), hold: true, from: None, special };
        d.ask(8, ADA, requeue.clone());
        assert_eq!(info(&d, job).restarts, 1, "while its processes end");
        let reports = d.script_end(job, 0);
        d.report("n1", &reports);
        let shown = info(&d, job);
        let reason = if special.is_some() { PendingReason::SpecialExit } else { PendingReason::RequeuedHeld };
        assert_eq!((shown.state, shown.reason, shown.restarts, shown.priority), (JobState::Pending, reason, 1, 0));
        let refused = Answer::Affected {
            jobs: Vec::new(),
            refused: vec![(d.c.state().name_of(job), Refusal::WrongState("pending".into()))],
        };
        assert_eq!(d.ask(8, ADA, requeue), [refused], "as in Slurm");
        for (filter, found) in
            [(StateFilter::SpecialExit, special.is_some()), (StateFilter::Pending, special.is_none())]
        {
            let hold = Request::Hold { jobs: JobSelection { states: vec![filter], ..these(job) }, user: false };
            let affected = matches!(&d.ask(8, ADA, hold)[..], [Answer::Affected { jobs, .. }] if !jobs.is_empty());
            assert_eq!(affected, found, "{filter:?}");
            if found {
                break;
            }
        }
        d.ask(8, ADA, Request::Release { jobs: these(job) });
        assert_eq!(d.state_of(job), Some(JobState::Running), "released");
        assert_eq!(info(&d, job).restarts, 1);
    }
}

/// Checks faults P6: a job that a lost node gave back waits with its restart counted.
#[test]
fn p6_a_restart_counts_while_the_job_waits() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let admin = squall_model::event::NodeAdmin::Down;
    d.lose("n1");
    d.commit(Event::NodesSet { nodes: NodeSet::one(NodeId(0)), admin, reason: None, by: 0 });
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    assert_eq!(info(&d, job).restarts, 1);
}

/// Checks faults P10: the reason of a job that waits for nodes that are drained names them.
#[test]
fn p10_a_job_that_waits_for_a_drained_node_names_it() {
    let mut d = Driver::new(4, 2);
    drain(&mut d, NodeSet::one(NodeId(3)));
    drain(&mut d, NodeSet::one(NodeId(2)));
    let on = |list: &str, nodes| {
        let need = Need { nodelist: Some(list.into()), nodes_min: Some(nodes), ..Need::default() };
        JobSpec { need, ..batch() }
    };
    let wide = JobSpec { need: Need { nodes_min: Some(4), ..Need::default() }, ..batch() };
    let (one, two, all) = (d.submit(on("n4", 1)), d.submit(on("n[3-4]", 2)), d.submit(wide));
    d.pass(10);
    let named = |d: &Driver, id| info(d, id).reason;
    assert_eq!(named(&d, one), PendingReason::NodesNotAvail("n4".into()));
    assert_eq!(named(&d, two), PendingReason::NodesNotAvail("n[3-4]".into()));
    assert_eq!(named(&d, all), PendingReason::NodesNotAvail("n[3-4]".into()));
}

/// Checks faults P11: with a filter, a named job that has ended is refused; without, it is only told with `-v`.
#[test]
fn p11_a_filter_finds_no_job_that_has_ended() {
    let mut d = Driver::new(1, 1);
    let ended = d.submit(batch());
    d.finish(ended, 0);
    let waits = d.submit(JobSpec { hold: true, ..batch() });
    let cancel = |id, states: Vec<StateFilter>, users: Vec<u32>| Request::Cancel {
        jobs: JobSelection { states, users, ..these(id) },
        signal: None,
        step: None,
        verbose: true,
    };
    let mut refused = |id, states, users| match &d.ask(8, ADA, cancel(id, states, users))[..] {
        [Answer::Affected { jobs, refused }] => {
            assert_eq!(jobs, &[]);
            refused.iter().map(|(_, why)| why.clone()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let running = || vec![StateFilter::Running];
    assert_eq!(refused(ended, running(), vec![]), [Refusal::AlreadyDone]);
    assert_eq!(refused(ended, vec![], vec![ADA]), [Refusal::AlreadyDone]);
    assert_eq!(refused(waits, running(), vec![]), []);
    assert_eq!(refused(JobId(99), running(), vec![]), [Refusal::InvalidJobId]);
}

/// Checks faults P8: a cloud node is created with the power programs of the cluster, and as one that may join some day
/// without them.
#[test]
fn p8_cloud_nodes_are_created() {
    for resume_program in ["", "/bin/resume"] {
        let power = PowerConfig { resume_program: resume_program.into(), ..PowerConfig::default() };
        let mut d = Driver::empty(Config { power, ..Config::default() });
        let node = NodeConfig { name: "x[1-2]".into(), state: NodeStart::Cloud, ..NodeConfig::default() };
        assert_eq!(d.ask(8, 0, Request::CreateNodes(Box::new(node))), [Answer::Done]);
        let state = d.c.state();
        let id = state.node_id("x1").unwrap();
        let cloud = !resume_program.is_empty();
        assert_eq!((state.is_cloud(id), state.is_future(id)), (cloud, !cloud));
        assert_eq!(state.node(id).unwrap().sleeps(), cloud, "it is powered up for a job");
        d.restart();
    }
}

/// Checks faults F10: a partition without nodes. Its jobs wait, and run when it gets nodes.
#[test]
fn f10_a_partition_without_nodes() {
    let mut d = Driver::new(2, 1);
    let nodes = |list: &str| PartitionConfig { name: "fresh".into(), nodes: list.into(), ..PartitionConfig::default() };
    let change = |d: &mut Driver, was: Option<&str>, now: &str| {
        let (was, now) = (was.map(|list| Box::new(nodes(list))), Some(Box::new(nodes(now))));
        d.ask(8, 0, Request::ChangePartition { name: "fresh".into(), was, now })
    };
    assert_eq!(change(&mut d, None, "NONE"), [Answer::Done]);
    assert!(d.c.state().node_id("NONE").is_none() && d.c.state().partition("fresh").unwrap().nodes.is_empty());
    let job = d.submit(JobSpec { partition: Some("fresh".into()), ..batch() });
    d.pass(10);
    assert_eq!((d.state_of(job), info(&d, job).reason), (Some(JobState::Pending), PendingReason::PartitionConfig));
    assert_eq!(change(&mut d, Some("NONE"), "n2"), [Answer::Done]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    assert_eq!(change(&mut d, Some("n2"), "NONE"), [Answer::Done]);
    d.add_node("n3", 1);
    assert!(d.c.state().partition("fresh").unwrap().nodes.is_empty());
    d.restart();
}
