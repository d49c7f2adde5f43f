//! Heterogeneous jobs: all components at one time or none, and one end.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobKind, JobSpec, JobState, Need,
    PendingReason,
};
use squall_model::report::Report;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::info::JobInfo;
use squall_model::wire::node::Down;

use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, array, batch, these};
use crate::environment::job_env;

fn on_nodes(nodes: u32) -> JobSpec {
    JobSpec { need: Need { nodes_min: Some(nodes), exclusive: true, ..Need::default() }, ..batch() }
}

fn request(d: &mut Driver, specs: Vec<JobSpec>) -> Request {
    let script: Vec<u8> = if specs[0].kind == JobKind::Batch { b"#!/bin/sh\n".to_vec() } else { Vec::new() };
    Request::SubmitHet { specs, script: script.into(), env: Vec::new().into(), key: d.key(), immediate_s: None }
}

fn submit(d: &mut Driver, specs: Vec<JobSpec>) -> JobId {
    let request = request(d, specs);
    let answers = d.ask(1, ADA, request);
    let Some(Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
    *job
}

fn next(id: JobId) -> JobId {
    JobId(id.0 + 1)
}

fn states(d: &Driver, leader: JobId) -> [Option<JobState>; 2] {
    [d.state_of(leader), d.state_of(next(leader))]
}

fn gone(d: &mut Driver, id: JobId) {
    let job = d.attempt(id);
    let run = d.c.state().jobs[&id].run().unwrap();
    let names: Vec<String> = run.left.iter().map(|node| d.c.state().node(node).unwrap().name.clone()).collect();
    for name in names {
        d.report(&name, &[Report::JobGone { job }]);
    }
}

fn infos(d: &mut Driver, jobs: JobSelection) -> Vec<JobInfo> {
    let answers = d.ask(5, ADA, Request::Jobs { jobs, ended: true, steps: false });
    let [Answer::Jobs(page)] = &answers[..] else { panic!("{answers:?}") };
    page.jobs.clone()
}

const PENDING: Option<JobState> = Some(JobState::Pending);
const RUNNING: Option<JobState> = Some(JobState::Running);

#[test]
fn components_start_together_and_only_the_first_has_the_script() {
    let mut d = Driver::new(3, 2);
    let before = d.submit(on_nodes(2));
    let job = submit(&mut d, vec![on_nodes(1), on_nodes(2)]);
    assert_eq!(states(&d, job), [PENDING, PENDING], "there is room for the first only");
    d.launched();
    d.finish(before, 0);
    assert_eq!(states(&d, job), [PENDING, PENDING], "n2 is not free yet");
    gone(&mut d, before);
    assert_eq!(states(&d, job), [RUNNING, RUNNING]);
    let facts: Vec<_> = d
        .sent
        .iter()
        .filter_map(|(_, message)| match message {
            Down::StartJob { facts, batch } => Some((facts.clone(), batch.is_some())),
            _ => None,
        })
        .collect();
    let scripts: Vec<_> = facts.iter().filter(|(_, script)| *script).map(|(facts, _)| facts).collect();
    let [leader] = scripts[..] else { panic!("{facts:?}") };
    let env = job_env(leader);
    let value = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(value("SLURM_HET_SIZE"), Some("2"));
    assert_eq!(value("SLURM_JOB_ID"), Some(&*job.to_string()));
    assert_eq!(value("SLURM_JOB_ID_HET_GROUP_1"), Some(&*next(job).to_string()));
    assert_eq!(value("SLURM_NNODES_HET_GROUP_0"), Some("1"));
    assert_eq!(value("SLURM_JOB_NUM_NODES_HET_GROUP_1"), Some("2"));
    let nodes = [value("SLURM_JOB_NODELIST_HET_GROUP_0"), value("SLURM_JOB_NODELIST_HET_GROUP_1")];
    assert_ne!(nodes[0], nodes[1]);
    d.finish(job, 3);
    let end = EndState::Failed;
    assert_eq!(states(&d, job), [Some(JobState::Ended(end)), Some(JobState::Completing(end))]);
    gone(&mut d, next(job));
    assert_eq!(states(&d, job)[1], Some(JobState::Ended(end)));
}

#[test]
fn the_component_that_has_least_choice_is_served_first() {
    let mut d = Driver::new(2, 1);
    let mut choosy = on_nodes(1);
    choosy.need.nodelist = Some("n1".into());
    let job = submit(&mut d, vec![on_nodes(1), choosy]);
    assert_eq!(states(&d, job), [RUNNING, RUNNING]);
}

// faults.md F1.
#[test]
fn f1_no_two_components_share_a_node() {
    let mut d = Driver::new(3, 4);
    let nodes = |d: &Driver, leader: JobId| {
        let on = |at| d.c.state().jobs[&JobId(leader.0 + at)].run().unwrap().alloc.nodes().iter().next().unwrap().0;
        (0..3).map(on).collect::<Vec<u32>>()
    };
    let free = submit(&mut d, vec![batch(), batch(), batch()]);
    assert_eq!(nodes(&d, free), [0, 1, 2], "one node would have had the CPUs for all");
    d.cancel(free);
    (0..3).for_each(|at| gone(&mut d, JobId(free.0 + at)));
    // A node that one component requires is no other's, even if that one is placed first.
    let mut wide = batch();
    wide.need = Need { nodes_min: Some(2), nodes_max: Some(2), nodelist: Some("n1".into()), ..wide.need };
    let wide = submit(&mut d, vec![batch(), wide]);
    let held = |at| d.c.state().jobs[&JobId(wide.0 + at)].run().unwrap().alloc.nodes();
    assert!(
        held(0).is_disjoint(&held(1)) && !held(0).contains(squall_model::id::NodeId(0)),
        "{:?} {:?}",
        held(0),
        held(1)
    );
    // Without nodes of their own they wait, though there are CPUs for both.
    let mut d = Driver::new(2, 4);
    d.submit(on_nodes(1));
    let waits = submit(&mut d, vec![batch(), batch()]);
    assert_eq!(states(&d, waits), [PENDING, PENDING]);
}

#[test]
fn room_is_kept_for_all_components_at_one_time() {
    let mut d = Driver::new(3, 1);
    let limit = |spec: JobSpec, seconds| JobSpec { time_limit_s: Some(seconds), ..spec };
    let (short, long) = (d.submit(limit(on_nodes(1), 100)), d.submit(limit(on_nodes(1), 1000)));
    let het = submit(&mut d, vec![limit(on_nodes(1), 100), limit(on_nodes(2), 100)]);
    // The third node is free until the long one has ended, not longer.
    let (fits, delays) = (d.submit(limit(on_nodes(1), 900)), d.submit(limit(on_nodes(1), 1100)));
    assert_eq!((d.state_of(fits), d.state_of(delays)), (RUNNING, PENDING));
    for job in [short, fits] {
        d.finish(job, 0);
    }
    assert_eq!((states(&d, het), d.state_of(delays)), ([PENDING, PENDING], PENDING));
    d.finish(long, 0);
    assert_eq!((states(&d, het), d.state_of(delays)), ([RUNNING, RUNNING], PENDING));
}

#[test]
fn one_name_means_all_and_a_pending_component_takes_the_others_along() {
    for named in [0, 1] {
        let mut d = Driver::new(2, 1);
        let _blocker = d.submit(on_nodes(1));
        let job = submit(&mut d, vec![on_nodes(1), on_nodes(1)]);
        assert_eq!(infos(&mut d, these(job)).len(), 2);
        let jobs = JobSelection { ids: vec![JobRef::Component(job, 1)], ..JobSelection::default() };
        let one = infos(&mut d, jobs);
        assert_eq!(
            (one.len(), one[0].id, one[0].het.map(|het| (het.leader, het.size))),
            (1, next(job), Some((job, 2)))
        );
        d.cancel(JobId(job.0 + named));
        let end = Some(JobState::Ended(EndState::Cancelled { by: ADA }));
        assert_eq!(states(&d, job), [end, end]);
    }
}

#[test]
fn a_running_component_may_end_alone_unless_it_is_the_first() {
    let mut d = Driver::new(2, 1);
    let job = submit(&mut d, vec![on_nodes(1), on_nodes(1)]);
    let end = EndState::Cancelled { by: ADA };
    d.cancel(next(job));
    assert_eq!(states(&d, job), [RUNNING, Some(JobState::Completing(end))]);
    gone(&mut d, next(job));
    assert_eq!(states(&d, job), [RUNNING, Some(JobState::Ended(end))]);
    d.cancel(job);
    assert_eq!(d.state_of(job), Some(JobState::Completing(end)));
}

#[test]
fn holds_and_dependencies_of_one_hold_up_all() {
    let mut d = Driver::new(3, 1);
    let first = d.submit(on_nodes(1));
    let term = DependencyTerm {
        when: DependencyKind::AfterOk,
        job: Some(DependencyJob { id: first, index: None, delay_min: 0 }),
    };
    let after = JobSpec { dependency: Some(Dependency { terms: vec![term], any: false }), ..on_nodes(1) };
    let job = submit(&mut d, vec![on_nodes(1), after]);
    assert_eq!(states(&d, job), [PENDING, PENDING]);
    assert!(infos(&mut d, these(job)).iter().all(|info| info.reason == PendingReason::Dependency));
    d.ask(6, ADA, Request::Hold { jobs: these(job), user: true });
    d.finish(first, 0);
    assert_eq!(states(&d, job), [PENDING, PENDING]);
    d.commit(Event::JobReleased { id: job, whole: false });
    assert_eq!(states(&d, job), [PENDING, PENDING], "the second is held");
    d.ask(6, ADA, Request::Release { jobs: these(job) });
    assert_eq!(states(&d, job), [RUNNING, RUNNING]);
}

#[test]
fn a_lost_node_sends_all_back_and_they_start_together_again() {
    let mut d = Driver::new(2, 1);
    let job = submit(&mut d, vec![on_nodes(1), on_nodes(1)]);
    d.launched();
    d.reboot("n2");
    let states_now = states(&d, job);
    assert!(!states_now.contains(&RUNNING), "{states_now:?}");
    gone(&mut d, job);
    assert_eq!(states(&d, job), [RUNNING, RUNNING]);
    assert_eq!((d.attempt(job).attempt.0, d.attempt(next(job)).attempt.0), (2, 2));
    d.restart();
    assert_eq!(states(&d, job), [RUNNING, RUNNING]);
}

#[test]
fn an_allocation_ends_with_its_owner() {
    let mut d = Driver::new(2, 1);
    let specs = vec![JobSpec { kind: JobKind::Allocation, ..on_nodes(1) }, on_nodes(1)];
    let request = request(&mut d, specs);
    let answers = d.ask(1, ADA, request);
    let [Answer::Submitted { job, .. }, Answer::Allocated(facts)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(facts.components.len(), 2);
    d.step(crate::control::Input::Hangup { caller: CallerId(1), away: false });
    let end = Some(JobState::Completing(EndState::Cancelled { by: ADA }));
    assert_eq!(states(&d, *job), [end, end]);
}

#[test]
fn what_can_never_be_is_refused() {
    let mut d = Driver::new(2, 1);
    let arrays = request(&mut d, vec![batch(), array(3, None)]);
    assert_eq!(d.ask(1, ADA, arrays), [Answer::Refused(Refusal::HetArray)]);
    let mut large = batch();
    large.need.cpus_per_task = Some(64);
    let large = request(&mut d, vec![batch(), large]);
    assert!(matches!(d.ask(1, ADA, large)[..], [Answer::Refused(Refusal::NodeConfigNotAvailable(_))]));
    assert!(d.c.state().jobs.is_empty(), "not even one of them is accepted");
    let named = |node: &str| JobSpec { need: Need { nodelist: Some(node.into()), ..Need::default() }, ..batch() };
    // faults.md F1.
    let same = request(&mut d, vec![named("n1"), named("n1")]);
    let answers = d.ask(1, ADA, same);
    assert!(
        matches!(&answers[..], [Answer::Refused(Refusal::InvalidValue { option, value, .. })]
            if (option.as_str(), value.as_str()) == ("nodelist", "n1")),
        "{answers:?}"
    );
    let three = request(&mut d, vec![batch(), batch(), batch()]);
    let few = Refusal::NodeConfigNotAvailable("components".into());
    assert_eq!(d.ask(1, ADA, three), [Answer::Refused(few)], "there are two nodes");
    assert!(d.c.state().jobs.is_empty());
    let twice = request(&mut d, vec![batch(), batch()]);
    let first = d.ask(1, ADA, twice.clone());
    assert_eq!(d.ask(1, ADA, twice), first);
    assert_eq!(d.c.state().jobs.len(), 2);
}

#[test]
fn nobody_goes_back_into_the_queue_without_a_component_that_is_forgotten() {
    let mut d = Driver::new(3, 2);
    let [ended, runs] = [(); 2].map(|()| submit(&mut d, vec![on_nodes(1), on_nodes(1)]));
    d.launched();
    d.cancel(next(ended));
    gone(&mut d, next(ended));
    d.pass(400);
    assert_eq!(states(&d, ended), [RUNNING, None], "the second has been forgotten");
    let requeue = |d: &mut Driver, id| {
        d.ask(8, ADA, Request::Requeue { jobs: these(id), hold: false, from: None, special: None })
    };
    // What runs and is to run again has nothing to run beside: it ends.
    requeue(&mut d, ended);
    gone(&mut d, ended);
    assert_eq!(d.state_of(ended), Some(JobState::Ended(EndState::Requeued)));
    requeue(&mut d, ended);
    assert_eq!(d.state_of(ended), Some(JobState::Ended(EndState::Requeued)), "nor is it brought back");
    assert_eq!(states(&d, runs), [RUNNING, RUNNING], "their nodes are free");
}
