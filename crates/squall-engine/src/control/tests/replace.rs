//! Failed nodes of running jobs that are replaced while the job goes on.

use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::options::Chosen;
use squall_model::job::{EndState, JobKind, JobSpec, JobState, Need, PendingReason};
use squall_model::places::OnNodeFail;
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobUpdate, Refusal, Request};
use squall_model::wire::fabric::Composite;
use squall_model::wire::info::WhyVacant;
use squall_model::wire::node::Down;
use squall_model::wire::reservation::{ListChange, ReservationChange};

use crate::control::info::job::of_job;
use crate::control::port::Input;
use crate::control::tests::driver::{ADA, Driver, batch, these};

fn job(nodes: u32, action: OnNodeFail, spares: u32) -> JobSpec {
    let options = Chosen {
        on_node_fail: Some(action),
        spare_nodes: Some(spares).filter(|spares| *spares > 0),
        ..Chosen::default()
    };
    let need = Need { nodes_min: Some(nodes), ..Need::default() };
    JobSpec { need, options: options.into(), ..batch() }
}

fn set(d: &mut Driver, node: u32, admin: NodeAdmin) {
    d.commit(Event::NodesSet { nodes: NodeSet::one(NodeId(node)), admin, reason: None, by: 0 });
}

/// The nodes on which steps of a job run, in the order of their places.
fn order(d: &Driver, job: JobId) -> Vec<u32> {
    let run = d.c.state().jobs[&job].run();
    run.map(|run| run.working_nodes().iter().map(|node| node.0).collect()).unwrap_or_default()
}

fn ask_step(d: &mut Driver, caller: u64, job: JobId, tasks: u32) -> Vec<Answer> {
    let spec = Box::new(StepSpec { ntasks: Some(tasks), nodes_min: Some(tasks), ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    d.ask(caller, ADA, Request::CreateStep { job, spec, program, key })
}

/// Names of the nodes of each step that nodes were told to start.
fn started(d: &mut Driver) -> Vec<String> {
    let sent = std::mem::take(&mut d.sent);
    let mut starts: Vec<String> = sent
        .into_iter()
        .filter_map(|(_, message)| match message {
            Down::StartStep(start) => Some(start.layout.nodes.as_str().to_owned()),
            _ => None,
        })
        .collect();
    starts.dedup();
    starts
}

fn held(d: &Driver) -> Vec<usize> {
    d.c.state().nodes.iter().map(|node| node.jobs.len()).collect()
}

/// Checks that the sums of the state are those of its jobs, and that a replay gives the same state.
fn check(d: &mut Driver) {
    let mut again = d.c.state().clone();
    again.retally();
    assert_eq!(again.index.tallies, d.c.state().index.tallies);
    assert!(*d.c.state() == d.replayed(), "the replayed state is another");
}

#[test]
fn a_free_node_takes_the_place_of_a_failed_one_and_the_step_starts_again() {
    let mut d = Driver::new(4, 1);
    let id = d.submit(job(3, OnNodeFail::Replace, 0));
    assert_eq!(order(&d, id), [0, 1, 2]);
    assert!(matches!(ask_step(&mut d, 7, id, 3)[..], [Answer::StepCreated { .. }]));
    assert_eq!(started(&mut d), ["n[1-3]"]);
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!((d.state_of(id), order(&d, id)), (Some(JobState::Running), vec![0, 3, 2]));
    let told = d.take_answers(crate::control::port::CallerId(7));
    assert!(
        told.iter().any(|answer| matches!(answer, Answer::StepPart { nodes, .. } if nodes == "n2")),
        "srun is told which node: {told:?}"
    );
    let key = squall_model::id::StepKey { job: id, attempt: d.attempt(id).attempt, step: StepNo(0) };
    let ends =
        d.sent.iter().filter(|(_, message)| matches!(message, Down::EndStep { key: ended, .. } if *ended == key));
    assert_eq!(ends.count(), 2, "the ranks on the other nodes are ended");
    let end = d.end(0);
    for name in ["n1", "n3"] {
        d.report(name, &[Report::StepEnded { key, end: end.clone() }]);
    }
    let answers = ask_step(&mut d, 7, id, 3);
    assert!(matches!(answers[..], [Answer::StepDone { .. }, Answer::StepCreated { .. }]), "{answers:?}");
    assert_eq!(started(&mut d), ["n[1,4,3]"], "the replacement stands where the failed node stood");
    check(&mut d);
    d.finish(id, 0);
    let attempt = d.attempt(id);
    for name in ["n2", "n3", "n4"] {
        d.report(name, &[Report::JobGone { job: attempt }]);
    }
    assert_eq!((d.state_of(id), held(&d)), (Some(JobState::Ended(EndState::Completed)), vec![0; 4]));
}

#[test]
fn a_step_waits_until_a_node_is_free_that_goes_to_the_job_before_all_others() {
    let mut d = Driver::new(3, 1);
    let id = d.submit(job(2, OnNodeFail::Replace, 0));
    let other = d.submit(batch());
    let third = d.submit(batch());
    assert_eq!((d.state_of(other), d.state_of(third)), (Some(JobState::Running), Some(JobState::Pending)));
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!((order(&d, id), d.c.state().jobs[&id].run().unwrap().vacant().len()), (vec![0], 1));
    assert_eq!(ask_step(&mut d, 7, id, 2), [], "it waits");
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let whole = Request::CreateStep { job: id, spec: Box::new(StepSpec::default()), program, key };
    assert_eq!(d.ask(8, ADA, whole), [], "so does a step on all nodes");
    let updated = d.ask(
        9,
        ADA,
        Request::UpdateJob {
            jobs: these(id),
            change: Box::new(JobUpdate { nodes: Some((1, None)), ..JobUpdate::default() }),
        },
    );
    assert!(
        matches!(&updated[..], [Answer::Affected { refused, .. }] if matches!(refused[0].1, Refusal::NotSupported(_))),
        "{updated:?}"
    );
    // The controller starts again meanwhile.
    d.restart();
    let attempts = [d.attempt(id), d.attempt(other)];
    d.register("n1", &attempts[..1]);
    d.register("n3", &attempts[1..]);
    d.finish(other, 0);
    assert_eq!((order(&d, id), d.state_of(third)), (vec![0, 2], Some(JobState::Pending)));
    check(&mut d);
}

#[test]
fn in_a_list_of_nodes_the_name_of_a_failed_one_stands_for_its_replacement() {
    let mut d = Driver::new(6, 1);
    set(&mut d, 5, NodeAdmin::Drain);
    let id = d.submit(job(3, OnNodeFail::Replace, 0));
    let ask = |d: &mut Driver, job: JobId, node: &str| {
        let spec = StepSpec { ntasks: Some(1), nodelist: Some(node.into()), overlap: true, ..StepSpec::default() };
        let (program, key) = (Box::new(TaskProgram::default()), d.key());
        d.ask(7, ADA, Request::CreateStep { job, spec: Box::new(spec), program, key });
        started(d).concat()
    };
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!(ask(&mut d, id, "n2"), "n4");
    set(&mut d, 3, NodeAdmin::Down);
    assert_eq!(order(&d, id), [0, 4, 2]);
    assert_eq!(
        (ask(&mut d, id, "n2"), ask(&mut d, id, "n4"), ask(&mut d, id, "n3")),
        ("n5".into(), "n5".into(), "n3".into())
    );
    // It waits for the replacement.
    set(&mut d, 4, NodeAdmin::Down);
    assert_eq!(ask(&mut d, id, "n5"), "");
    set(&mut d, 5, NodeAdmin::Resume);
    assert_eq!((order(&d, id), started(&mut d).concat()), (vec![0, 5, 2], "n6".to_owned()));
    check(&mut d);
    // A node that is back, has another place and fails once more stands for the node that has that place now.
    let mut d = Driver::new(4, 1);
    let id = d.submit(job(3, OnNodeFail::Replace, 0));
    let attempt = d.attempt(id);
    let back = |d: &mut Driver, node: u32| {
        set(d, node, NodeAdmin::Down);
        d.report(&format!("n{}", node + 1), &[Report::JobGone { job: attempt }]);
        set(d, node, NodeAdmin::Resume);
    };
    back(&mut d, 1);
    back(&mut d, 2);
    assert_eq!(order(&d, id), [0, 3, 1]);
    back(&mut d, 1);
    assert_eq!((order(&d, id), ask(&mut d, id, "n2")), (vec![0, 3, 2], "n3".into()));
}

#[test]
fn spares_idle_in_the_job_until_they_are_needed() {
    let mut d = Driver::new(4, 1);
    let id = d.submit(job(2, OnNodeFail::Replace, 1));
    assert_eq!((order(&d, id), held(&d)), (vec![0, 1], vec![1, 1, 1, 0]));
    let row = of_job(&d.c, id, &d.c.state().jobs[&id], false, Time(0));
    let spares = row.info.run().places.as_ref().map(|places| places.spares.as_str());
    assert_eq!((row.info.run().nodes.as_str(), spares, row.info.num_nodes), ("n[1-2]", Some("n3"), 2));
    assert!(matches!(ask_step(&mut d, 7, id, 3)[..], [Answer::Refused(_)]), "steps don't run on spares");
    set(&mut d, 3, NodeAdmin::Drain);
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!((order(&d, id), d.state_of(id)), (vec![0, 2], Some(JobState::Running)));
    check(&mut d);
    // A spare that fails is no loss.
    let mut d = Driver::new(4, 1);
    let id = d.submit(job(2, OnNodeFail::Replace, 1));
    assert!(matches!(ask_step(&mut d, 7, id, 2)[..], [Answer::StepCreated { .. }]));
    set(&mut d, 2, NodeAdmin::Down);
    assert_eq!((order(&d, id), d.c.state().jobs[&id].run().unwrap().vacant().len()), (vec![0, 1], 0));
    assert!(!d.sent.iter().any(|(_, message)| matches!(message, Down::EndStep { .. })), "its step runs on");
    check(&mut d);
}

#[test]
fn what_happens_is_what_job_partition_or_cluster_say() {
    use OnNodeFail::{End, Replace, Requeue, Shrink};
    let node_fail = JobState::Completing(EndState::NodeFail);
    for (own, cluster, state, requeues) in [
        (Some(End), None, node_fail, false),
        (Some(Requeue), Some(Shrink), node_fail, true),
        (Some(Shrink), None, JobState::Running, false),
        (None, Some(Replace), JobState::Running, false),
        (None, Some(End), node_fail, false),
        (None, None, node_fail, true),
    ] {
        let mut d = Driver::empty(Config { on_node_fail: cluster, ..Config::default() });
        (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 1));
        let mut spec = job(2, End, 0);
        spec.options.on_node_fail = own;
        let id = d.submit(spec);
        set(&mut d, 1, NodeAdmin::Down);
        assert_eq!(d.state_of(id), Some(state), "{own:?} {cluster:?}");
        if state == node_fail {
            let attempt = d.attempt(id);
            for name in ["n1", "n2"] {
                d.report(name, &[Report::JobGone { job: attempt }]);
            }
            assert_eq!(d.state_of(id) == Some(JobState::Pending), requeues, "{own:?} {cluster:?}");
        }
    }
}

/// A job of three nodes of which the script's has just failed, and another one that waits.
fn restarts(nodes: u32, spares: u32) -> (Driver, JobId, JobId) {
    let mut d = Driver::new(nodes, 1);
    let id = d.submit(job(3, OnNodeFail::Replace, spares));
    assert!(matches!(ask_step(&mut d, 7, id, 3)[..], [Answer::StepCreated { .. }]));
    set(&mut d, 0, NodeAdmin::Down);
    let other = d.submit(batch());
    d.sent.clear();
    assert_eq!(d.state_of(id), Some(JobState::Completing(EndState::NodeFail)));
    (d, id, other)
}

/// Reports that nothing of a job's first attempt is left on nodes.
fn gone(d: &mut Driver, job: JobId, nodes: &[&str]) {
    let attempt = squall_model::job::JobAttempt { job, attempt: squall_model::id::Attempt(1) };
    for node in nodes {
        d.report(node, &[Report::JobGone { job: attempt }]);
    }
}

#[test]
fn a_script_that_lost_its_node_starts_again_in_place_before_all_others() {
    let (mut d, id, other) = restarts(4, 0);
    assert_eq!(d.state_of(other), Some(JobState::Pending), "the free node is kept");
    gone(&mut d, id, &["n1", "n2"]);
    assert_eq!(d.state_of(other), Some(JobState::Pending), "a node of the job is kept");
    assert_eq!(d.state_of(id), Some(JobState::Completing(EndState::NodeFail)), "it waits for the last one");
    gone(&mut d, id, &["n3"]);
    assert_eq!((order(&d, id), d.state_of(id)), (vec![1, 2, 3], Some(JobState::Running)));
    assert_eq!((d.attempt(id).attempt.0, d.c.state().jobs[&id].restarts), (2, 1));
    let script = d.sent.iter().filter_map(|(node, message)| match message {
        Down::StartJob { batch: Some(_), facts } => Some((node.as_str(), facts.key.job, facts.restarts)),
        _ => None,
    });
    assert_eq!(script.collect::<Vec<_>>(), [("n2", id, 1)]);
    assert!(d.c.kept.is_empty());
    check(&mut d);
    // The next failure is another one.
    set(&mut d, 0, NodeAdmin::Resume);
    assert_eq!(d.state_of(other), Some(JobState::Running));
}

#[test]
fn a_script_that_starts_again_has_a_spare_node_of_its_job_in_place_of_the_failed_one() {
    let (mut d, id, other) = restarts(5, 2);
    assert_eq!(d.state_of(other), Some(JobState::Pending));
    gone(&mut d, id, &["n1", "n2", "n3", "n4", "n5"]);
    assert_eq!((order(&d, id), held(&d)), (vec![1, 2, 3], vec![0, 1, 1, 1, 1]));
    check(&mut d);
}

#[test]
fn nodes_that_are_kept_for_a_script_are_free_if_it_does_not_start_again() {
    // No node takes the place of the failed one.
    let (mut d, id, other) = restarts(3, 0);
    gone(&mut d, id, &["n2"]);
    assert_eq!(
        (d.state_of(id), d.state_of(other)),
        (Some(JobState::Completing(EndState::NodeFail)), Some(JobState::Running))
    );
    // Another node can't be used, the user cancels the job, or the controller starts again.
    for what in ["drained", "cancelled", "restarted"] {
        let (mut d, id, other) = restarts(4, 0);
        gone(&mut d, id, &["n1"]);
        match what {
            "drained" => set(&mut d, 2, NodeAdmin::Drain),
            "cancelled" => {
                let cancel = Request::Cancel { jobs: these(id), signal: None, step: None, verbose: false };
                d.ask(9, ADA, cancel);
            }
            _ => {
                d.restart();
                let attempt = d.attempt(id);
                for (node, jobs) in [("n2", &[attempt][..]), ("n3", &[attempt]), ("n4", &[])] {
                    d.register(node, jobs);
                }
            }
        }
        gone(&mut d, id, &["n2", "n3"]);
        let cancelled = JobState::Ended(EndState::Cancelled { by: ADA });
        let expected = Some(if what == "cancelled" { cancelled } else { JobState::Pending });
        assert_eq!((d.state_of(id), d.state_of(other)), (expected, Some(JobState::Running)), "{what}");
        assert!(d.c.kept.is_empty(), "{what}");
    }
}

#[test]
fn a_lost_node_that_is_back_forgets_its_share_before_it_gets_another() {
    let mut d = Driver::new(2, 1);
    let id = d.submit(job(2, OnNodeFail::Replace, 0));
    let attempt = d.attempt(id);
    d.sent.clear();
    // Its share is over, without an order: the node itself takes the vacant place.
    d.report("n2", &[Report::JobGone { job: attempt }]);
    assert_eq!(order(&d, id), [0, 1]);
    let told = d.sent.iter().filter(|(name, _)| name == "n2").filter_map(|(_, message)| match message {
        Down::Known { jobs, .. } => Some(("known", jobs.contains(&attempt))),
        Down::StartJob { facts, .. } => Some(("start", facts.key.job == id)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [("known", true), ("start", true)]);
    check(&mut d);
}

#[test]
fn spares_need_a_number_of_nodes_that_work() {
    let mut d = Driver::new(3, 1);
    let mut spec = job(2, OnNodeFail::Replace, 1);
    spec.need.nodes_min = None;
    let key = d.key();
    let answers = d.submit_with(key, spec);
    assert!(
        matches!(&answers[..], [Answer::Refused(Refusal::InvalidValue { option, .. })] if option == "spare-nodes"),
        "{answers:?}"
    );
}

fn asked(d: &mut Driver, job: JobId, node: &str) -> Result<(), Refusal> {
    match d.ask(8, ADA, Request::Replace(job, node.into())).pop() {
        Some(Answer::Done) => Ok(()),
        Some(Answer::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drained_node_is_replaced_ahead_whatever_the_job_says_of_failures() {
    let mut d = Driver::new(4, 1);
    let id = d.submit(job(3, OnNodeFail::End, 0));
    let why = |refused: Result<(), Refusal>| match refused {
        Err(Refusal::WrongState(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(asked(&mut d, id, "n2")).starts_with("n2 is neither drained nor failing: scontrol update"));
    (0..2).for_each(|node| set(&mut d, node, NodeAdmin::Drain));
    assert_eq!(why(asked(&mut d, id, "n4")), "n4 is no node of job 1");
    assert!(why(asked(&mut d, id, "n1")).starts_with("the script of job 1 runs on n1: requeue"));
    assert_eq!(asked(&mut d, id, "n9"), Err(Refusal::InvalidNode("n9".into())));
    assert_eq!(asked(&mut d, JobId(9), "n2"), Err(Refusal::InvalidJobId));
    assert!(matches!(ask_step(&mut d, 7, id, 3)[..], [Answer::StepCreated { .. }]));
    let other = d.submit(batch());
    assert!(why(asked(&mut d, id, "n2")).starts_with("no node is free that fits"), "n4 has a job");
    assert_eq!(order(&d, id), [0, 1, 2], "a refusal changes nothing");
    d.finish(other, 0);
    d.step(Input::Disk { full: true });
    assert_eq!(asked(&mut d, id, "n2"), Err(Refusal::DiskFull), "its place would stay vacant");
    assert_eq!(order(&d, id), [0, 1, 2]);
    d.step(Input::Disk { full: false });
    assert_eq!(asked(&mut d, id, "n2"), Ok(()));
    assert_eq!((order(&d, id), d.state_of(id)), (vec![0, 3, 2], Some(JobState::Running)));
    check(&mut d);
    let attempt = d.attempt(id);
    d.report("n2", &[Report::JobGone { job: attempt }]);
    assert_eq!((d.state_of(id), held(&d)), (Some(JobState::Running), vec![1, 0, 1, 1]));
    assert!(d.c.state().nodes[1].faults.is_empty(), "it has not failed");
}

#[test]
fn a_vacant_place_is_told_of() {
    let mut d = Driver::new(3, 1);
    let id = d.submit(job(3, OnNodeFail::Replace, 0));
    d.pass(20);
    set(&mut d, 1, NodeAdmin::Down);
    let answers = d.ask(8, ADA, Request::Why { job: id });
    let [Answer::Why(told)] = &answers[..] else { panic!("{answers:?}") };
    let [vacant] = &told.vacant[..] else { panic!("{told:?}") };
    let WhyVacant { lost, place, since, cpus, partition, .. } = vacant;
    assert_eq!((lost.as_str(), *place, *since, *cpus, partition.as_str()), ("n2", 1, d.now, 1, "debug"));
    let row = of_job(&d.c, id, &d.c.state().jobs[&id], false, d.now);
    assert_eq!(row.info.reason, PendingReason::NodeToBeReplaced);
}

/// Numbers of the nodes in the reservation of spare nodes.
fn spare(d: &Driver) -> Vec<u32> {
    let kept = d.c.state().reservations.get("spare_debug");
    kept.map_or(Vec::new(), |kept| kept.nodes.iter().map(|node| node.0).collect())
}

#[test]
fn spare_nodes_of_a_partition_are_kept_for_jobs_that_replace() {
    let text = "[[nodes]]\nname = \"n[1-5]\"\n[[partitions]]\nname = \"debug\"\nspare_nodes = 2\n";
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    (1..=5).for_each(|n| d.add_node(&format!("n{n}"), 1));
    assert_eq!(spare(&d), [3, 4], "the last ones");
    let id = d.submit(job(2, OnNodeFail::Replace, 0));
    let (other, third) = (d.submit(batch()), d.submit(batch()));
    assert_eq!((d.state_of(other), d.state_of(third)), (Some(JobState::Running), Some(JobState::Pending)));
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!((order(&d, id), spare(&d)), (vec![0, 3], vec![4]), "one is less, as a node is down");
    check(&mut d);
    set(&mut d, 2, NodeAdmin::Drain);
    assert_eq!((spare(&d), d.state_of(third)), (vec![], Some(JobState::Running)));
    // Nodes that are back make up for it as soon as they are free.
    let attempt = d.attempt(id);
    d.report("n2", &[Report::JobGone { job: attempt }]);
    (1..3).for_each(|node| set(&mut d, node, NodeAdmin::Resume));
    assert_eq!(spare(&d), [1]);
    d.finish(third, 0);
    assert_eq!(spare(&d), [1, 4]);
    // A reservation of an operator goes before.
    let change = Box::new(ReservationChange {
        name: Some("maint".into()),
        nodes: Some("n5".into()),
        users: Some(ListChange::Set(vec!["ada".into()])),
        start: Some(d.now),
        duration_s: Some(60),
        ..ReservationChange::default()
    });
    let made = d.ask(8, 0, Request::Reserve { change, create: true });
    assert!(matches!(made[..], [Answer::Reserved(_)]), "{made:?}");
    assert_eq!(spare(&d), [1]);
    check(&mut d);
}

/// One report of the tree tells that a job is gone from several nodes.
fn gone_at_once(d: &mut Driver, id: JobId, nodes: &[u32]) {
    let nodes: NodeSet = nodes.iter().copied().map(NodeId).collect();
    let gone = [(d.attempt(id), nodes)].into();
    d.say("n2", |child| child.composite(Composite { gone, reports: 2, ..Composite::default() }));
}

#[test]
fn a_job_that_is_gone_from_several_nodes_at_once_gives_each_of_them_back() {
    let mut d = Driver::new(5, 1);
    // Places on n1 to n3, and n4 as a spare.
    let id = d.submit(job(3, OnNodeFail::Replace, 1));
    gone_at_once(&mut d, id, &[1, 3]);
    assert_eq!(
        (order(&d, id), held(&d)),
        (vec![0, 4, 2], vec![1, 0, 1, 0, 1]),
        "n5 stands in, as the spare is gone too"
    );
    check(&mut d);
    // The script is gone as well: it begins again on nodes that are kept for it and a free one.
    gone_at_once(&mut d, id, &[0, 2, 4]);
    assert_eq!((d.attempt(id).attempt.0, held(&d).iter().sum::<usize>()), (2, 3));
    check(&mut d);
}

#[test]
fn a_job_ends_with_the_last_node_that_it_has_not_given_up() {
    let mut d = Driver::new(3, 1);
    let id = d.submit(JobSpec { kind: JobKind::Allocation, ..job(2, OnNodeFail::Replace, 0) });
    set(&mut d, 2, NodeAdmin::Down);
    set(&mut d, 1, NodeAdmin::Down);
    assert_eq!((order(&d, id), held(&d)), (vec![0], vec![1, 1, 0]), "n2 has not said yet that nothing is left there");
    set(&mut d, 0, NodeAdmin::Down);
    assert!(d.state_of(id).is_some_and(|state| state != JobState::Running), "{:?}", d.state_of(id));
    let attempt = d.attempt(id);
    for node in ["n1", "n2"] {
        d.report(node, &[Report::JobGone { job: attempt }]);
    }
    assert_eq!(d.state_of(id), Some(JobState::Ended(EndState::NodeFail)));
    check(&mut d);
}
