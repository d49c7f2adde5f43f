//! Nodes and step daemons that are lost under running steps, and signals for nodes that do not answer.

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobKind, JobSpec, JobState, Need, SignalSpec};
use squall_model::report::{Report, StepEnd};
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::node::{Down, SignalTarget};

use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, batch, these};

/// The connections of `salloc` and of its `srun`.
const SALLOC: u64 = 3;
const SRUN: u64 = 9;

/// Asks for an allocation of three nodes, and a step on all of them.
fn allocated(d: &mut Driver, no_kill: bool, step_no_kill: Option<bool>) -> StepKey {
    let need = Need { nodes_min: Some(3), exclusive: true, ..Need::default() };
    let spec = JobSpec { kind: JobKind::Allocation, need, no_kill, ..batch() };
    let request =
        Request::Allocate { spec: spec.into(), env: Vec::new().into(), key: d.key(), immediate_s: None, step: None };
    let answers = d.ask(SALLOC, ADA, request);
    let Some(&Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
    let attempt = d.attempt(job).attempt;
    let spec = Box::new(StepSpec { ntasks: Some(3), no_kill: step_no_kill, ..StepSpec::default() });
    let request = Request::CreateStep { job, spec, program: Box::new(TaskProgram::default()), key: d.key() };
    let answers = d.ask(SRUN, ADA, request);
    assert!(matches!(answers[..], [Answer::StepCreated { .. }]), "{answers:?}");
    StepKey { job, attempt, step: StepNo(0) }
}

fn set_down(d: &mut Driver, node: u32) {
    let nodes = NodeSet::one(NodeId(node));
    d.commit(Event::NodesSet { nodes, admin: NodeAdmin::Down, reason: None, by: 0 });
}

/// What a client has been told of parts of its step and of failures.
fn told(d: &mut Driver, caller: u64) -> Vec<String> {
    let text = |answer| match answer {
        Answer::Notice(text) => Some(text),
        Answer::StepPart { nodes, exit, .. } => Some(format!("{nodes} {}:{}", exit.code, exit.signal)),
        Answer::StepDone { outcome, .. } => Some(format!("done {}:{}", outcome.exit.code, outcome.exit.signal)),
        _ => None,
    };
    d.take_answers(CallerId(caller)).into_iter().filter_map(text).collect()
}

/// Orders to end steps and jobs: node, and seconds from TERM to KILL.
fn ends(d: &mut Driver) -> Vec<(String, u64)> {
    let wait = |(node, message): (String, Down)| match message {
        Down::EndStep { kill_wait_s, .. } | Down::EndJob { kill_wait_s, .. } => Some((node, kill_wait_s)),
        _ => None,
    };
    let mut ends: Vec<_> = std::mem::take(&mut d.sent).into_iter().filter_map(wait).collect();
    ends.sort();
    ends
}

// faults.md R7.
#[test]
fn r7_srun_is_told_of_tasks_that_died_with_their_step_daemon() {
    let mut d = Driver::new(3, 1);
    let key = allocated(&mut d, false, None);
    let killed = ExitCode { code: 0, signal: 9 };
    let note = Some("the step daemon died".to_owned());
    let end = StepEnd { exit: killed, lost: true, note, ..d.end(0) };
    d.report("n3", &[Report::StepEnded { key, end }]);
    assert_eq!(told(&mut d, SRUN), ["n3 0:9"]);
    // An end that the step daemon itself tells of is no news.
    let end = d.end(3);
    d.report("n2", &[Report::StepEnded { key, end }]);
    assert_eq!(told(&mut d, SRUN), Vec::<String>::new());
}

// faults.md R7: the controller was away when the step daemon died.
#[test]
fn r7_srun_that_comes_back_is_told_of_what_it_missed() {
    let mut d = Driver::new(3, 1);
    let key = allocated(&mut d, false, None);
    let request = Request::CreateStep {
        job: key.job,
        spec: Box::new(StepSpec { ntasks: Some(3), ..StepSpec::default() }),
        program: Box::new(TaskProgram::default()),
        key: d.c.state().jobs[&key.job].run().unwrap().steps[&key.step].key,
    };
    let end = StepEnd { exit: ExitCode { code: 0, signal: 9 }, lost: true, note: Some("died".into()), ..d.end(0) };
    d.report("n3", &[Report::StepEnded { key, end }]);
    d.restart();
    let answers = d.ask(SRUN + 1, ADA, request);
    let [Answer::StepCreated { .. }, Answer::StepPart { nodes, exit, .. }] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((nodes.as_str(), exit.signal), ("n3", 9));
}

// faults.md P4.
#[test]
fn p4_an_allocation_goes_on_without_a_node_that_is_set_down() {
    for (of_step, others) in [(Some(true), vec![]), (None, vec![("n1".to_owned(), 0), ("n3".to_owned(), 0)])] {
        let mut d = Driver::new(3, 1);
        let key = allocated(&mut d, true, of_step);
        d.sent.clear();
        set_down(&mut d, 1);
        assert_eq!(d.state_of(key.job), Some(JobState::Running));
        assert_eq!(told(&mut d, SALLOC), ["error: Node failure on n2"]);
        assert_eq!(told(&mut d, SRUN), ["error: Node failure on n2", "n2 0:9"]);
        let mut expected = vec![("n2".to_owned(), 0)];
        expected.extend(others);
        expected.sort();
        assert_eq!(ends(&mut d), expected, "its tasks are killed, those of other nodes unless --no-kill was given");
        let run = d.c.state().jobs[&key.job].run().unwrap();
        assert_eq!(run.alloc.nodes(), [NodeId(0), NodeId(2)].into_iter().collect());
        // The node's own words come late and change nothing.
        let job = d.attempt(key.job);
        let end = StepEnd { exit: ExitCode { code: 0, signal: 9 }, ..d.end(0) };
        d.report("n2", &[Report::StepEnded { key, end }, Report::JobGone { job }]);
        assert_eq!((told(&mut d, SRUN), d.state_of(key.job)), (vec![], Some(JobState::Running)));
        let done = |d: &mut Driver, name: &str| {
            let end = d.end(0);
            d.report(name, &[Report::StepEnded { key, end }]);
        };
        done(&mut d, "n1");
        done(&mut d, "n3");
        assert_eq!(told(&mut d, SRUN), ["done 0:9"], "the step ends without the node that is gone");
        // The node comes back: the job has no part in it.
        let nodes = NodeSet::one(NodeId(1));
        d.commit(Event::NodesSet { nodes, admin: NodeAdmin::Resume, reason: None, by: 0 });
        assert_eq!(d.c.state().node(NodeId(1)).unwrap().jobs.len(), 0);
    }
}

// faults.md P4: the node does not even answer.
#[test]
fn p4_a_step_ends_without_a_silent_node_that_is_set_down() {
    let mut d = Driver::new(3, 1);
    let key = allocated(&mut d, true, Some(true));
    d.lose("n2");
    set_down(&mut d, 1);
    assert_eq!(told(&mut d, SRUN), ["error: Node failure on n2", "n2 0:9"]);
    for name in ["n1", "n3"] {
        let end = d.end(0);
        d.report(name, &[Report::StepEnded { key, end }]);
    }
    assert_eq!((told(&mut d, SRUN), d.state_of(key.job)), (vec!["done 0:9".to_owned()], Some(JobState::Running)));
}

// faults.md P4: those whose job ends are told why, too.
#[test]
fn p4_clients_of_a_job_that_fails_are_told_of_the_node() {
    let mut d = Driver::new(3, 1);
    let key = allocated(&mut d, false, None);
    set_down(&mut d, 1);
    assert!(matches!(d.state_of(key.job), Some(JobState::Completing(_))));
    assert_eq!(told(&mut d, SALLOC)[0], "error: Node failure on n2");
    assert_eq!(told(&mut d, SRUN)[0], "error: Node failure on n2");
}

fn signals(d: &mut Driver) -> Vec<(String, i32)> {
    let signal = |(node, message): &(String, Down)| match message {
        Down::Signal { signal, .. } => Some((node.clone(), *signal)),
        _ => None,
    };
    let signals = d.sent.iter().filter_map(signal).collect();
    d.sent.clear();
    signals
}

fn signalled(d: &mut Driver, job: JobId, signal: i32) {
    let signal = Some((signal, SignalTarget::Steps));
    d.ask(5, ADA, Request::Cancel { jobs: these(job), signal, step: None, verbose: false });
}

fn of(node: &str, signal: i32) -> (String, i32) {
    (node.to_owned(), signal)
}

// faults.md P2.
#[test]
fn p2_signals_for_a_silent_node_are_kept_until_it_answers() {
    let mut d = Driver::new(1, 1);
    let signal = Some(SignalSpec { signal: 10, before_s: 92, batch_only: true });
    let job = d.submit(JobSpec { time_limit_s: Some(120), signal, ..batch() });
    let attempt = d.attempt(job);
    d.lose("n1");
    d.pass_in_silence(40);
    signalled(&mut d, job, 12);
    assert_eq!(signals(&mut d), []);
    d.register("n1", &[attempt]);
    assert_eq!(signals(&mut d), [of("n1", 10), of("n1", 12)], "in the order in which they fell due");
    // The node was heard twice in this session: it has got them.
    d.pass(30);
    d.register("n1", &[attempt]);
    assert_eq!(signals(&mut d), []);
}

// faults.md P2: the connection breaks before the controller knows that the node is cut off.
#[test]
fn p2_signals_sent_into_a_broken_connection_are_sent_again() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    signalled(&mut d, job, 12);
    assert_eq!(signals(&mut d), [of("n1", 12)]);
    d.lose("n1");
    d.register("n1", &[attempt]);
    assert_eq!(signals(&mut d), [of("n1", 12)]);
}

// faults.md P2: the job ended meanwhile.
#[test]
fn p2_signals_of_ended_jobs_are_dropped() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    d.lose("n1");
    signalled(&mut d, job, 12);
    d.cancel(job);
    d.register("n1", &[attempt]);
    assert_eq!(signals(&mut d), []);
}
