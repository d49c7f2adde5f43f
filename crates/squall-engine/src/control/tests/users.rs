//! What depends on a job's user: `--exclusive=user` (a job shares its nodes only with jobs of the same user, faults.md E),
//! and the groups that the job starts with.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId};
use squall_model::job::options::Chosen;
use squall_model::job::{JobSpec, JobState, Need, NodeTest};
use squall_model::places::OnNodeFail;
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, Request};

use crate::control::port::{Input, Who};
use crate::control::tests::driver::{ADA, Driver, batch, who};

const BOB: u32 = 1001;

fn submit(d: &mut Driver, uid: u32, spec: JobSpec) -> JobId {
    let (script, key) = (b"#!/bin/sh\n".to_vec().into(), d.key());
    let request = Request::Submit { spec: Arc::new(spec), script, env: Vec::new().into(), key };
    let answers = d.ask(1, uid, request);
    let [Answer::Submitted { job, .. }] = answers[..] else { panic!("{answers:?}") };
    job
}

fn tasks(ntasks: u32) -> JobSpec {
    JobSpec { need: Need { ntasks: Some(ntasks), ..Need::default() }, time_limit_s: Some(600), ..batch() }
}

fn own_nodes(spec: JobSpec) -> JobSpec {
    JobSpec { options: Chosen { exclusive_user: true, ..Chosen::default() }.into(), ..spec }
}

/// Returns CPUs and first node of a running job.
fn has(d: &Driver, id: JobId) -> Option<(u32, u32)> {
    let run = d.c.state().jobs.get(&id)?.run()?;
    Some((run.alloc.cpus(), run.alloc.nodes().first()?.0))
}

#[test]
fn e_exclusive_user_has_as_many_cpus_as_it_asks_for_and_no_other_users_beside_it() {
    let mut d = Driver::new(2, 4);
    let alone = submit(&mut d, ADA, own_nodes(tasks(1)));
    assert_eq!(has(&d, alone), Some((1, 0)));
    let (own, other) = (submit(&mut d, ADA, tasks(1)), submit(&mut d, BOB, tasks(1)));
    assert_eq!((has(&d, own), has(&d, other)), (Some((1, 0)), Some((1, 1))));
    // Each of two users has jobs on one node: an exclusive job goes to the node of its own user.
    let more = submit(&mut d, BOB, own_nodes(tasks(2)));
    assert_eq!(has(&d, more), Some((2, 1)));
    let wide = submit(&mut d, BOB, tasks(2));
    assert_eq!(d.state_of(wide), Some(JobState::Pending), "one CPU of the own node, two of another's");
    d.finish(alone, 0);
    assert_eq!(has(&d, wide), Some((2, 0)), "the other's jobs that do not mind stay");
}

#[test]
fn e_exclusive_user_waits_for_others_to_end_and_is_kept_room_for() {
    let mut d = Driver::new(1, 4);
    let other = submit(&mut d, BOB, tasks(1));
    let alone = submit(&mut d, ADA, own_nodes(tasks(1)));
    let longer = submit(&mut d, BOB, JobSpec { time_limit_s: Some(1200), ..tasks(1) });
    let shorter = submit(&mut d, BOB, JobSpec { time_limit_s: Some(300), ..tasks(1) });
    let states = [alone, longer, shorter].map(|id| d.state_of(id));
    let (waits, runs) = (Some(JobState::Pending), Some(JobState::Running));
    assert_eq!(states, [waits, waits, runs], "the node is kept for it from the other's end on");
    let answers = d.ask(2, ADA, Request::Why { job: alone });
    let [Answer::Why(why)] = &answers[..] else { panic!("{answers:?}") };
    let tests: Vec<_> = why.partitions[0].tests.iter().map(|test| (test.0, test.2)).collect();
    assert_eq!(tests, [(NodeTest::OtherUsers, 1)]);
    d.finish(shorter, 0);
    assert_eq!(d.state_of(alone), waits);
    d.finish(other, 0);
    assert_eq!([alone, longer].map(|id| d.state_of(id)), [runs, waits]);
    d.restart();
    d.register("n1", &[d.attempt(alone)]);
    assert_eq!(d.state_of(longer), waits, "a controller that comes back knows it");
    d.finish(alone, 0);
    assert_eq!(d.state_of(longer), runs);
}

#[test]
fn e_exclusive_user_array_runs_side_by_side() {
    let mut d = Driver::new(2, 4);
    let mut spec = own_nodes(crate::control::tests::driver::array(7, None));
    spec.time_limit_s = Some(60);
    submit(&mut d, ADA, spec);
    let running = d.c.state().jobs.iter().filter(|(_, job)| job.is_running()).count();
    assert_eq!(running, 8);
    let other = submit(&mut d, BOB, tasks(1));
    assert_eq!(d.state_of(other), Some(JobState::Pending));
}

/// Two blocks of two nodes.
fn blocks() -> Driver {
    let text = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n".to_owned();
    let topology = TopologyFile { name: "topology.conf".into(), text };
    let node = NodeConfig { name: "n[1-4]".into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { topology, nodes: vec![node], ..Config::default() });
    for n in 1..=4 {
        d.add_node(&format!("n{n}"), 4);
    }
    d
}

fn own_blocks(spec: JobSpec) -> JobSpec {
    let need = Need { exclusive: true, ..spec.need };
    JobSpec { need, options: Chosen { exclusive_topo: Some(true), ..Chosen::default() }.into(), ..spec }
}

#[test]
fn a_script_does_not_start_again_in_the_block_of_a_job_that_has_it_alone() {
    let mut d = blocks();
    let options = Chosen { on_node_fail: Some(OnNodeFail::Replace), ..Chosen::default() };
    let need = Need { nodes_min: Some(2), exclusive: true, ..Need::default() };
    let id = submit(&mut d, ADA, JobSpec { need, options: options.into(), ..batch() });
    let job = d.attempt(id);
    d.commit(Event::NodesSet { nodes: NodeSet::one(NodeId(0)), admin: NodeAdmin::Down, reason: None, by: 0 });
    let kept: Vec<_> = d.c.kept.values().map(|kept| kept.alloc.nodes()).collect();
    assert_eq!(kept, [[NodeId(1), NodeId(2)].into_iter().collect()], "with the first node of the other block");
    let alone = submit(&mut d, BOB, own_blocks(tasks(1)));
    assert_eq!(has(&d, alone), Some((4, 3)));
    for node in ["n1", "n2"] {
        d.report(node, &[Report::JobGone { job }]);
    }
    assert_eq!(d.state_of(id), Some(JobState::Pending));
    d.finish(alone, 0);
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

#[test]
fn exclusive_topo_has_its_block_alone() {
    let (waits, runs) = (Some(JobState::Pending), Some(JobState::Running));
    let mut d = blocks();
    let other = submit(&mut d, BOB, tasks(1));
    let alone = submit(&mut d, ADA, own_blocks(tasks(1)));
    assert_eq!((has(&d, other), has(&d, alone)), (Some((1, 0)), Some((4, 2))), "the block of the other is not for it");
    // Of the rest of its block no one gets anything, its own user neither.
    let wide = submit(&mut d, ADA, JobSpec { need: Need { ntasks: Some(8), ..Need::default() }, ..tasks(1) });
    let more = submit(&mut d, ADA, own_blocks(tasks(1)));
    assert_eq!([wide, more].map(|id| d.state_of(id)), [waits, waits]);
    let answers = d.ask(2, ADA, Request::Why { job: more });
    let [Answer::Why(why)] = &answers[..] else { panic!("{answers:?}") };
    let tests: Vec<_> = why.partitions[0].tests.iter().map(|test| (test.0, test.2)).collect();
    assert!(tests.contains(&(NodeTest::OtherUsers, 2)) && why.partitions[0].misfit.is_none(), "{tests:?}");
    d.cancel(wide);
    d.finish(other, 0);
    assert_eq!((d.state_of(more), has(&d, more).map(|(_, node)| node)), (runs, Some(0)));
    d.finish(alone, 0);
    d.finish(more, 0);
    // It is kept room for: the block that is free first is its own.
    let first = submit(&mut d, BOB, JobSpec { need: Need { ntasks: Some(5), ..Need::default() }, ..tasks(1) });
    let second = submit(&mut d, BOB, JobSpec { time_limit_s: Some(300), ..tasks(4) });
    let alone = submit(&mut d, ADA, own_blocks(tasks(1)));
    let longer = submit(&mut d, BOB, JobSpec { time_limit_s: Some(1200), ..tasks(1) });
    assert_eq!([first, second, alone, longer].map(|id| d.state_of(id)), [runs, runs, waits, runs]);
    assert_eq!(
        has(&d, longer).map(|(_, node)| node),
        has(&d, first).map(|(_, node)| node + 1),
        "beside what ends later"
    );
    d.finish(second, 0);
    assert_eq!(d.state_of(alone), runs);
}

/// Returns the groups with which a job's processes run.
fn groups(d: &mut Driver, job: JobId) -> Vec<u32> {
    let answers = d.ask(2, ADA, Request::Facts { job });
    let [Answer::Allocated(facts)] = &answers[..] else { panic!("{answers:?}") };
    facts.owner.groups.clone()
}

// attack-trial.md L7: a job that had waited for weeks kept a group that was taken away from its user meanwhile.
#[test]
fn l7_a_job_starts_with_the_groups_that_its_user_has_then() {
    let mut d = Driver::new(1, 1);
    let first = submit(&mut d, ADA, tasks(1));
    let mut next = Vec::new();
    for _ in 0..3 {
        next.push(submit(&mut d, ADA, tasks(1)));
    }
    assert_eq!(groups(&mut d, first), [ADA], "as at the submission, until something else is known");
    d.step(Input::Groups { users: vec![(ADA, vec![ADA, 50]), (BOB, vec![BOB])] });
    d.finish(first, 0);
    // The user makes a request: what the request says of the groups is newer than what was looked up.
    assert_eq!(groups(&mut d, next[0]), [ADA]);
    d.step(Input::Groups { users: vec![(ADA, vec![50, ADA, 60])] });
    let facts = crate::control::index::facts::facts(d.c.state(), next[0]).unwrap();
    assert_eq!(facts.owner.groups, [ADA, 50, 60], "the first group stays");
    let Who { owner, .. } = who(ADA);
    assert_eq!(d.c.state().jobs[&next[0]].owner, owner, "what is stored is not changed");
    // Nothing is known of a user whose account is gone: the groups of the submission count.
    d.step(Input::Groups { users: Vec::new() });
    d.finish(next[0], 0);
    let facts = crate::control::index::facts::facts(d.c.state(), next[1]).unwrap();
    assert_eq!(facts.owner.groups, [ADA]);
}
