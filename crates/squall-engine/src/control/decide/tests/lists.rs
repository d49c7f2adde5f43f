//! What lists show.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig};
use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::gpus::GpuCount;
use squall_model::job::{
    ArraySpec, Dependency, DependencyJob, DependencyKind, DependencyTerm, JobSpec, JobState, Need, PendingReason,
};
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobSelection, Request, StateFilter};
use squall_model::wire::info::{JobInfo, JobsPage};

use DependencyKind::{AfterAny, AfterNotOk, AfterOk};

use crate::control::decide::tests::{ADA, BOB, World, these, user};

fn pages(world: &mut World, jobs: JobSelection, ended: bool) -> Vec<JobsPage> {
    let mut turn = world.ask(&user(BOB), Request::Jobs { jobs, ended, steps: true });
    while world.c.lists() {
        let more = world.list_on(turn.caller);
        turn.answers.extend(more.answers);
    }
    let page = |(_, answer)| match answer {
        Answer::Jobs(page) => *page,
        answer => panic!("{answer:?}"),
    };
    turn.answers.into_iter().map(page).collect()
}

fn list(world: &mut World, jobs: JobSelection, ended: bool) -> Vec<JobInfo> {
    pages(world, jobs, ended).into_iter().flat_map(|page| page.jobs).collect()
}

fn ids(jobs: &[JobInfo]) -> Vec<u32> {
    jobs.iter().map(|job| job.id.0).collect()
}

#[test]
fn ended_jobs_are_shown_on_request() {
    let mut world = World::new();
    let (ended, waits, runs) = (world.ended(ADA), world.submit(ADA, JobSpec::default()), world.running(BOB));
    assert_eq!(ids(&list(&mut world, these(&[]), false)), [waits.0, runs.0]);
    assert_eq!(ids(&list(&mut world, these(&[]), true)), [ended.0, waits.0, runs.0]);
    assert_eq!(ids(&list(&mut world, these(&[ended, waits]), false)), [waits.0]);
    let completed = JobSelection { states: vec![StateFilter::Completed], ..Default::default() };
    assert_eq!(ids(&list(&mut world, completed, false)), [ended.0]);
    let never = JobSelection { states: vec![StateFilter::Never], ..Default::default() };
    assert_eq!(ids(&list(&mut world, never, true)), [0; 0]);
    let page = &pages(&mut world, these(&[JobId(88), waits, JobId(99)]), false)[0];
    assert_eq!(page.unknown, [JobId(88), JobId(99)]);
}

#[test]
fn pending_tasks_are_one_entry() {
    let mut world = World::new();
    let array = world.array(ADA, 999_999);
    world.start(JobId(array.0 + 3), 1, 1);
    let jobs = list(&mut world, these(&[]), false);
    assert_eq!(ids(&jobs), [array.0, array.0 + 3]);
    assert_eq!(jobs[0].pending_tasks.as_ref().unwrap().to_string(), "0-1,3-999999");
    assert_eq!(jobs[1].task.unwrap().index, 2);
    let one = list(&mut world, crate::control::decide::tests::tasks(array, 1, 3), false);
    assert_eq!(one[0].pending_tasks.as_ref().unwrap().to_string(), "1,3");
}

#[test]
fn pages_share_specs_and_end() {
    let mut world = World::new();
    let spec = JobSpec { name: "same".into(), ..JobSpec::default() };
    for _ in 0..5000 {
        world.submit(ADA, spec.clone());
    }
    let pages = pages(&mut world, these(&[]), false);
    assert_eq!(pages.iter().map(|page| page.jobs.len()).collect::<Vec<_>>(), [1024, 1024, 1024, 1024, 904]);
    assert_eq!(pages.iter().map(|page| page.more).collect::<Vec<_>>(), [true, true, true, true, false]);
    assert!(pages.iter().all(|page| page.specs.len() == 1 && page.owners.len() == 1));
    let bytes: usize = pages.iter().map(|page| squall_model::encoding::to_vec(page).len()).sum();
    assert!(bytes < 1 << 20, "{bytes}");
}

#[test]
fn pages_stay_below_a_frame() {
    let mut world = World::new();
    for at in 0..300 {
        world.submit(ADA, JobSpec { comment: Some(format!("{at}{}", "x".repeat(60_000))), ..JobSpec::default() });
    }
    let pages = pages(&mut world, these(&[]), false);
    assert_eq!(pages.iter().map(|page| page.jobs.len()).sum::<usize>(), 300);
    for page in pages {
        assert!(squall_model::encoding::to_vec(&page).len() < squall_model::limits::FRAME_BYTES_MAX / 2);
    }
}

#[test]
fn a_running_job_in_full() {
    let mut world = World::new();
    let need = Need { ntasks: Some(4), nodes_min: Some(2), ..Need::default() };
    let id = world.submit(ADA, JobSpec { need, time_limit_s: Some(60), ..JobSpec::default() });
    world.start(id, 2, 2);
    let job = list(&mut world, these(&[id]), false).remove(0);
    let run = job.run();
    assert_eq!((run.nodes.as_str(), run.batch_host.as_str()), ("n[1-2]", "n1"));
    assert_eq!((job.num_nodes, job.num_cpus, job.num_tasks, job.memory_mb), (2, 4, 4, 2000));
    assert_eq!(run.per_node, [("n[1-2]".to_owned(), "0-1".to_owned(), 1000)]);
    assert_eq!(job.end.unwrap().secs() - job.start.unwrap().secs(), 60);
    assert_eq!(run.steps[0].name, "batch");
    assert_eq!(run.steps[0].num_cpus, 2);
}

#[test]
fn a_waiting_jobs_size_is_what_it_asks_for() {
    let mut world = World::new();
    let need = Need {
        ntasks: Some(6),
        ntasks_per_node: Some(2),
        cpus_per_task: Some(3),
        memory: Memory::PerCpuMb(10),
        ..Need::default()
    };
    let id = world.submit(ADA, JobSpec { need, ..JobSpec::default() });
    let job = list(&mut world, these(&[id]), false).remove(0);
    assert_eq!((job.num_nodes, job.num_cpus, job.num_tasks, job.memory_mb), (3, 18, 6, 180));
}

#[test]
fn reasons_and_dependencies() {
    let mut world = World::new();
    let (ended, runs) = (world.ended(ADA), world.running(ADA));
    let term = |when, id| DependencyTerm { when, job: Some(DependencyJob { id, index: None, delay_min: 0 }) };
    let on = |terms| {
        let dependency = Some(Dependency { terms, any: false });
        JobSpec { dependency, ..JobSpec::default() }
    };
    let waits = world.submit(ADA, on(vec![term(AfterOk, ended), term(AfterOk, runs), term(AfterAny, runs)]));
    let never = world.submit(ADA, on(vec![term(AfterNotOk, ended)]));
    let met = world.submit(ADA, on(vec![term(AfterOk, ended)]));
    let held = world.submit(ADA, JobSpec { hold: true, ..JobSpec::default() });
    let later = JobSpec { begin: Some(Time(world.now.0 + 1)), ..JobSpec::default() };
    let later = world.submit(ADA, later);
    let mut shown = |id| {
        let job = list(&mut world, these(&[id]), false).remove(0);
        (job.reason, job.dependency)
    };
    let open = format!("afterok:{runs}(unfulfilled),afterany:{runs}(unfulfilled)");
    assert_eq!(shown(waits), (PendingReason::Dependency, open));
    assert_eq!(shown(never), (PendingReason::DependencyNeverSatisfied, format!("afternotok:{ended}(failed)")));
    assert_eq!(shown(met).1, "");
    assert_eq!(shown(held).0, PendingReason::JobHeldUser);
    assert_eq!(shown(later).0, PendingReason::BeginTime);
    let held = list(&mut world, these(&[held]), false).remove(0);
    assert_eq!(held.priority, 0);
}

#[test]
fn a_requeued_job_is_found_as_such() {
    let mut world = World::new();
    let id = world.ended(ADA);
    world.commit(Event::JobRequeued {
        id,
        requeue: squall_model::event::Requeue { hold: false, not_before: None, special: None, expedite: None },
    });
    let requeued = JobSelection { states: vec![StateFilter::Requeued], ..Default::default() };
    let jobs = list(&mut world, requeued, false);
    assert_eq!((ids(&jobs), jobs[0].state), (vec![id.0], JobState::Pending));
}

#[test]
fn a_job_is_eligible_when_nothing_of_its_own_keeps_it() {
    let mut world = World::new();
    let begun = world.now;
    let held = |begin| JobSpec { hold: true, begin, ..JobSpec::default() };
    let later = Time::from_secs(begun.secs() + 1000);
    let (plain, waits, begins) =
        (world.submit(ADA, JobSpec::default()), world.submit(ADA, held(None)), world.submit(ADA, held(Some(later))));
    let array = ArraySpec { indices: IndexSet::range(0, 3), limit: None, text: "0-3".into() };
    let array = world.submit(ADA, JobSpec { array: Some(array), ..held(None) });
    let term = DependencyTerm { when: AfterAny, job: Some(DependencyJob { id: plain, index: None, delay_min: 0 }) };
    let dependency = Some(Dependency { terms: vec![term], any: false });
    let depends = world.submit(ADA, JobSpec { dependency, ..JobSpec::default() });
    let all = [plain, waits, begins, array, depends];
    let eligible = |world: &mut World| all.map(|id| list(world, these(&[id]), true)[0].eligible);
    let unknown = Time::default();
    assert_eq!(eligible(&mut world), [begun, unknown, unknown, unknown, unknown]);
    for wait_s in [100, 200] {
        world.now = Time::from_secs(begun.secs() + wait_s);
        world.answer(&user(ADA), Request::Release { jobs: these(&all) });
        let released = Time::from_secs(begun.secs() + 100);
        assert_eq!(eligible(&mut world), [begun, released, later, released, unknown]);
        world.answer(&user(ADA), Request::Hold { jobs: these(&all), user: true });
    }
}

#[test]
fn nodes_partitions_and_ping() {
    let mut world = World::new();
    world.running(ADA);
    let Answer::Nodes(nodes) = world.answer(&user(ADA), Request::Nodes) else { panic!() };
    assert_eq!(nodes.len(), 4);
    assert_eq!((nodes[0].cpus_used, nodes[0].jobs_running, nodes[1].cpus_used), (1, 1, 0));
    assert_eq!(nodes[0].partitions, ["debug"]);
    let Answer::Partitions(partitions) = world.answer(&user(ADA), Request::Partitions) else { panic!() };
    assert_eq!((partitions[0].nodes.as_str(), partitions[0].num_cpus), ("n[1-4]", 16));
    let Answer::Pong { nodes_up, trouble, .. } = world.answer(&user(ADA), Request::Ping) else { panic!() };
    assert_eq!((nodes_up, trouble), (4, None));
    world.c.disk_full = true;
    let Answer::Pong { trouble, .. } = world.answer(&user(ADA), Request::Ping) else { panic!() };
    assert!(trouble.is_some());
    let Answer::Diag(diag) = world.answer(&user(ADA), Request::Diag { reset: false }) else { panic!() };
    assert_eq!((diag.jobs_running, diag.nodes), (1, 4));
    // Ports are not journaled: after a restart those of this run are told.
    world.c.here.slurmctld_port.0 = 7777;
    let Answer::Config(config) = world.answer(&user(ADA), Request::Config) else { panic!() };
    assert_eq!((config.slurmctld_port.0, config.nodes.len()), (7777, world.c.state.config.nodes.len()));
}

/// faults.md E: `%D` of `-n 16` before it starts.
#[test]
fn e_the_nodes_of_a_waiting_job_are_estimated_by_its_tasks() {
    let mut world = World::new();
    let cpus = world.c.state.nodes[0].hardware.cpus;
    let need = Need { ntasks: Some(cpus * 2 + 1), ..Need::default() };
    let id = world.submit(ADA, JobSpec { need: need.clone(), ..JobSpec::default() });
    let most = world.submit(ADA, JobSpec { need: Need { nodes_max: Some(2), ..need }, ..JobSpec::default() });
    let nodes = |world: &mut World, id| {
        let job = &world.c.state.jobs[&id];
        crate::control::info::job::of_job(&world.c, id, job, false, world.now).info.num_nodes
    };
    assert_eq!((nodes(&mut world, id), nodes(&mut world, most)), (3, 2));
}

/// faults.md E: the last waiting task of `--array=1-3%2`.
#[test]
fn e_the_last_waiting_task_of_an_array_is_shown_as_a_job() {
    let mut world = World::new();
    let array = world.array(ADA, 1);
    let shown = |world: &World| {
        let all = &world.c.state.arrays[&array];
        let tasks = all.tally.untouched.clone();
        let row = crate::control::info::job::of_tasks(&world.c, array, all, tasks, None, world.now);
        (row.info.id, row.info.task.map(|task| task.index), row.info.pending_tasks)
    };
    assert_eq!(shown(&world), (array, None, Some(IndexSet::range(0, 1))));
    world.start(JobId(array.0 + 1), 1, 1);
    assert_eq!(shown(&world), (array, Some(1), None));
}

// faults.md E: `squeue -o %D` of jobs that wait.
#[test]
fn e_nodes_of_a_pending_job_are_those_that_it_will_have() {
    let mut world = World::new();
    let mut config = Config::default();
    config.nodes.push(NodeConfig { name: "n[1-4]".into(), gres: "gpu:4".into(), ..NodeConfig::default() });
    config.complete();
    world.commit(Event::Configured { config: Arc::new(config) });
    let mut nodes = |need: Need, gpus: &str| {
        let mut spec = JobSpec { need, hold: true, ..JobSpec::default() };
        spec.options.gpus.total = GpuCount::parse(gpus).filter(|given| !given.value.is_empty());
        let id = world.submit(ADA, spec);
        list(&mut world, these(&[id]), false)[0].num_nodes
    };
    let tasks = |ntasks| Need { ntasks: Some(ntasks), ..Need::default() };
    let range = |least, most| Need { nodes_min: Some(least), nodes_max: Some(most), ..Need::default() };
    assert_eq!([1, 5, 16].map(|n| nodes(tasks(n), "")), [1, 2, 4]);
    assert_eq!([(2, 3), (1, 9), (2, 2)].map(|(least, most)| nodes(range(least, most), "")), [3, 4, 2]);
    assert_eq!(nodes(Need { ntasks: Some(2), ..range(1, 4) }, ""), 2, "no node without a task");
    assert_eq!(["1", "4", "6", "a100:9"].map(|gpus| nodes(Need::default(), gpus)), [1, 1, 2, 3]);
}

// faults.md E, D12: what waits for a whole array says so.
#[test]
fn e_a_dependency_on_an_array_is_shown_as_all_of_it() {
    let mut world = World::new();
    let array = world.array(ADA, 3);
    let whole = DependencyJob { id: array, index: None, delay_min: 0 };
    let shown = [whole, DependencyJob { index: Some(1), ..whole }].map(|job| {
        let terms = vec![DependencyTerm { when: AfterOk, job: Some(job) }];
        let dependency = Some(Dependency { terms, any: false });
        let id = world.submit(ADA, JobSpec { dependency, ..JobSpec::default() });
        list(&mut world, these(&[id]), false)[0].dependency.clone()
    });
    assert_eq!(shown, [format!("afterok:{array}_*(unfulfilled)"), format!("afterok:{array}_1(unfulfilled)")]);
}
