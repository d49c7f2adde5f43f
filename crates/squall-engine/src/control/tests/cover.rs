//! Jobs that are stopped while others of a higher partition tier run on their cores, and what makes room where cores are
//! shared.

use squall_model::config::{Config, PartitionConfig};
use squall_model::gang::{OverSubscribe, Preempt, TimeSlice, Turn};
use squall_model::id::JobId;
use squall_model::job::JobState::{self, Pending, Running, Suspended};
use squall_model::job::{EndState, JobSpec, Need};
use squall_model::policy::{
    Account, AssocKey, Association, PolicyChange, PreemptMode, PreemptType, Qos, ROOT, Seconds, User,
};
use squall_model::resource::Memory;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobSelection, Request, StateFilter};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch, these};

fn partition(name: &str, priority_tier: u32) -> PartitionConfig {
    PartitionConfig { name: name.into(), priority_tier, ..PartitionConfig::default() }
}

/// Partitions over all nodes, in rising tiers; jobs of lower ones are suspended for those of higher ones.
fn config(names: &[&str]) -> Config {
    Config {
        partitions: (1..).zip(names).map(|(tier, name)| partition(name, tier)).collect(),
        preempt_type: PreemptType::Partition,
        preempt_mode: Preempt::try_from("SUSPEND,GANG".to_owned()).unwrap(),
        scheduler_time_slice: TimeSlice(Span::from_secs(1)),
        ..Config::default()
    }
}

/// So many nodes of so many CPUs, each with 1000 MiB for each of these.
fn cluster(config: Config, nodes: u32, cpus: u32) -> Driver {
    let mut d = Driver::empty(config);
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), cpus));
    d
}

/// So many tasks in a partition.
fn of(partition: &str, tasks: u32) -> JobSpec {
    let need = Need { ntasks: Some(tasks), ..Need::default() };
    JobSpec { partition: Some(partition.into()), need, ..batch() }
}

/// As `squeue` shows them.
fn shown(d: &mut Driver, jobs: &[JobId]) -> Vec<JobState> {
    let answer = d.ask(7, ADA, Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false });
    let [Answer::Jobs(list)] = &answer[..] else { panic!("{answer:?}") };
    jobs.iter().map(|job| list.jobs.iter().find(|j| j.id == *job).unwrap().state).collect()
}

/// What a node was told last of when a job runs.
fn turn(d: &Driver, name: &str, job: JobId) -> Option<Turn> {
    let told = d.sent.iter().rev().filter(|(node, _)| node == name).filter_map(|(_, message)| match message {
        Down::Turns(turns) => turns.iter().find(|(of, _)| of.job == job).map(|(_, turn)| *turn),
        _ => None,
    });
    told.into_iter().next()
}

const STOPPED: Turn = Turn { slot: 0, mask: 0, of: 1 };
const ALWAYS: Turn = Turn { slot: 0, mask: 1, of: 1 };

#[test]
fn who_is_of_a_lower_tier_stops_and_goes_on_by_itself() {
    let mut d = cluster(config(&["low", "high"]), 1, 2);
    let low = d.submit(JobSpec { time_limit_s: Some(60), ..of("low", 2) });
    d.pass(20);
    let high = d.submit(of("high", 2));
    assert_eq!(shown(&mut d, &[low, high]), [Suspended, Running]);
    assert_eq!((turn(&d, "n1", low), turn(&d, "n1", high)), (Some(STOPPED), Some(ALWAYS)));
    assert!(d.ended().is_empty(), "nobody has to go");
    let others = [d.submit(of("low", 1)), d.submit(of("high", 1))];
    assert_eq!(shown(&mut d, &others), [Pending, Pending], "nor does anybody stop for equals");
    for other in others {
        d.cancel(other);
    }
    let of_state = |state| JobSelection { states: vec![state], ..JobSelection::default() };
    let listed = Request::Jobs { jobs: of_state(StateFilter::Suspended), ended: false, steps: false };
    let [Answer::Jobs(list)] = &d.ask(7, ADA, listed)[..] else { panic!() };
    assert_eq!(list.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [low]);
    d.pass(1000);
    assert_eq!(shown(&mut d, &[low]), [Suspended], "time for which it is stopped is not its own");
    d.finish(high, 0);
    assert_eq!((shown(&mut d, &[low])[0], turn(&d, "n1", low)), (Running, Some(ALWAYS)));
    d.pass(39);
    assert_eq!(shown(&mut d, &[low]), [Running]);
    d.pass(1);
    assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Timeout)));
    assert_eq!(d.c.state().jobs[&low].last_run().unwrap().suspended_total, Span::from_secs(1000));
}

#[test]
fn where_there_is_room_nobody_stops_and_the_fewest_and_youngest_do() {
    let mut d = cluster(config(&["low", "high"]), 1, 6);
    let wide = d.submit(of("low", 2));
    d.pass(5);
    let narrow: Vec<JobId> = (1..=3)
        .map(|_| {
            d.pass(1);
            d.submit(of("low", 1))
        })
        .collect();
    d.pass(5);
    let first = d.submit(of("high", 1));
    assert_eq!(shown(&mut d, &[wide, narrow[2], first]), [Running, Running, Running]);
    let second = d.submit(of("high", 2));
    let all = [wide, narrow[0], narrow[1], narrow[2], second];
    assert_eq!(shown(&mut d, &all), [Running, Running, Suspended, Suspended, Running]);
    // A job that is already stopped costs nothing more.
    d.finish(second, 0);
    let wider = d.submit(of("high", 3));
    assert_eq!(shown(&mut d, &[wide, wider]), [Running, Running]);
    assert_eq!(shown(&mut d, &narrow), [Suspended, Suspended, Suspended]);
}

#[test]
fn memory_must_suffice_for_both() {
    let mut d = cluster(config(&["low", "high"]), 1, 2);
    let with = |partition: &str, mb| {
        let spec = of(partition, 2);
        JobSpec { need: Need { memory: Memory::PerNodeMb(mb), ..spec.need.clone() }, ..spec }
    };
    let low = d.submit(with("low", 1200));
    let high = d.submit(with("high", 900));
    assert_eq!(shown(&mut d, &[low, high]), [Running, Pending]);
    let small = d.submit(with("high", 800));
    d.cancel(high);
    assert_eq!(shown(&mut d, &[low, small]), [Suspended, Running]);
}

#[test]
fn who_is_cancelled_while_stopped_ends_at_once_and_a_stopped_preemptor_stops_nobody() {
    let mut d = cluster(config(&["low", "high"]), 1, 1);
    let low = d.submit(of("low", 1));
    let high = d.submit(of("high", 1));
    d.cancel(low);
    assert_eq!(d.ended().len(), 1);
    let job = d.attempt(low);
    d.report("n1", &[squall_model::report::Report::JobGone { job }]);
    assert!(matches!(d.state_of(low), Some(JobState::Ended(EndState::Cancelled { .. }))));
    assert_eq!(shown(&mut d, &[high]), [Running]);
    // The cores are still the high one's alone.
    let next = d.submit(of("low", 1));
    assert_eq!(shown(&mut d, &[next]), [Pending]);
    d.finish(high, 0);
    assert_eq!(shown(&mut d, &[next]), [Running]);
    let high = d.submit(of("high", 1));
    d.ask(1, 0, Request::Suspend { jobs: these(high), suspend: true });
    assert_eq!(shown(&mut d, &[next, high]), [Running, Suspended]);
    d.ask(1, 0, Request::Suspend { jobs: these(high), suspend: false });
    assert_eq!(shown(&mut d, &[next, high]), [Suspended, Running]);
    // A job that was suspended by hand stays so.
    d.ask(1, 0, Request::Suspend { jobs: these(next), suspend: true });
    d.finish(high, 0);
    assert_eq!(shown(&mut d, &[next]), [Suspended]);
    d.ask(1, 0, Request::Suspend { jobs: these(next), suspend: false });
    assert_eq!(shown(&mut d, &[next]), [Running]);
}

#[test]
fn a_new_controller_knows_who_is_stopped_and_a_dead_node_frees_the_others() {
    let mut d = cluster(config(&["low", "high"]), 2, 1);
    let wide = JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..of("low", 2) };
    let low = d.submit(wide);
    let high = d.submit(of("high", 1));
    let on = d.c.state().node(d.c.state().jobs[&high].run().unwrap().batch_node().unwrap()).unwrap().name.clone();
    assert_eq!((turn(&d, "n1", low), turn(&d, "n2", low)), (Some(STOPPED), Some(STOPPED)), "all of it stops");
    d.restart();
    for name in ["n1", "n2"] {
        let mut known = vec![d.attempt(low)];
        known.extend((name == on).then(|| d.attempt(high)));
        d.register(name, &known);
        assert_eq!(turn(&d, name, low), Some(STOPPED));
    }
    assert_eq!(shown(&mut d, &[low, high]), [Suspended, Running]);
    d.finish(high, 0);
    assert_eq!((turn(&d, "n1", low), turn(&d, "n2", low)), (Some(ALWAYS), Some(ALWAYS)));
    let high = d.submit(of("high", 1));
    assert_eq!(shown(&mut d, &[low, high]), [Suspended, Running]);
    // The node on which it is stopped dies: it runs again from its beginning.
    d.reboot(&on);
    let other = if on == "n1" { "n2" } else { "n1" };
    let job = d.attempt(low);
    d.report(other, &[squall_model::report::Report::JobGone { job }]);
    assert_ne!(shown(&mut d, &[low]), [Suspended]);
}

#[test]
fn each_partition_has_its_own_way_to_make_room() {
    let mut config = config(&["kept", "again", "stops", "high"]);
    config.partitions[0].preempt_mode = Some(PreemptMode::Off);
    config.partitions[1].preempt_mode = Some(PreemptMode::Requeue);
    config.partitions[2].grace_time_s = Seconds(30);
    config.preempt_exempt_time_s = Seconds(30);
    let mut d = cluster(config, 1, 3);
    let jobs = ["kept", "again", "stops"].map(|name| d.submit(of(name, 1)));
    d.pass(40);
    let high = d.submit(of("high", 2));
    assert_eq!(d.state_of(jobs[1]), Some(JobState::Completing(EndState::Preempted)));
    assert_eq!(shown(&mut d, &[jobs[0], jobs[2], high]), [Running, Running, Pending]);
    d.finish(jobs[1], 0);
    assert_eq!(shown(&mut d, &[jobs[0], jobs[2], high]), [Running, Suspended, Running]);
    d.finish(high, 0);
    assert_eq!(shown(&mut d, &jobs), [Running; 3]);
}

#[test]
fn three_tiers_stop_each_other_from_above() {
    let mut d = cluster(config(&["low", "middle", "high"]), 1, 2);
    let low = d.submit(of("low", 2));
    let middle = d.submit(of("middle", 2));
    let high = d.submit(of("high", 1));
    assert_eq!(shown(&mut d, &[low, middle, high]), [Suspended, Suspended, Running]);
    d.finish(high, 0);
    assert_eq!(shown(&mut d, &[low, middle]), [Suspended, Running]);
    d.finish(middle, 0);
    assert_eq!(shown(&mut d, &[low]), [Running]);
}

#[test]
fn ranks_have_rows_of_their_own() {
    let mut config = config(&["low", "high"]);
    for partition in &mut config.partitions {
        partition.oversubscribe = OverSubscribe::Force(2);
    }
    let mut d = cluster(config, 1, 1);
    let low = [d.submit(of("low", 1)), d.submit(of("low", 1))];
    let high = [d.submit(of("high", 1)), d.submit(of("high", 1)), d.submit(of("high", 1))];
    let mask = |d: &Driver, id: JobId| d.c.state().gang.get(&id).map(|place| (place.turn.mask, place.turn.of));
    assert_eq!(low.map(|id| mask(&d, id)), [Some((0, 1)); 2]);
    assert_eq!(high.map(|id| mask(&d, id)), [Some((1, 2)), Some((2, 2)), None]);
    d.finish(high[0], 0);
    assert_eq!(high.map(|id| mask(&d, id))[1..], [Some((2, 2)), Some((1, 2))]);
    d.finish(high[1], 0);
    d.finish(high[2], 0);
    assert_eq!(low.map(|id| mask(&d, id)), [Some((1, 2)), Some((2, 2))]);
}

#[test]
fn usage_stands_still_while_a_job_is_stopped() {
    let mut d = cluster(config(&["low", "high"]), 1, 1);
    let user = format!("u{ADA}");
    let changes = vec![
        PolicyChange::Account("a".into(), Some(Account::default())),
        PolicyChange::Association(
            AssocKey::account("a"),
            Some(Association { parent: ROOT.into(), ..Association::default() }),
        ),
        PolicyChange::User(user.clone(), Some(User { default_account: "a".into(), ..User::default() })),
        PolicyChange::Association(AssocKey::user("a", &user), Some(Association::default())),
    ];
    let version = d.c.state().policy.version;
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version, changes }), [Answer::Done]);
    let _low = d.submit(of("low", 1));
    d.pass(100);
    let high = d.submit(of("high", 1));
    d.pass(50);
    d.finish(high, 0);
    d.pass(25);
    let [Answer::Shares(all)] = &d.ask(5, 0, Request::Shares)[..] else { panic!() };
    let used = all.iter().find(|share| share.user == user).unwrap().raw_usage.0;
    assert!((used - 175.0).abs() < 0.1, "100 and 25 seconds of the one, 50 of the other: {used}");
}

#[test]
fn those_who_share_make_room_too() {
    let mut shared = partition("shared", 1);
    shared.oversubscribe = OverSubscribe::Force(2);
    let mut config = Config { partitions: vec![shared], ..config(&[]) };
    config.preempt_type = PreemptType::Qos;
    config.preempt_mode = Preempt::try_from("REQUEUE,GANG".to_owned()).unwrap();
    let mut d = cluster(config, 1, 2);
    let qos = |name: &str, preempt: &[&str]| {
        let preempt = preempt.iter().map(|name| (*name).to_owned()).collect();
        PolicyChange::Qos(name.into(), Some(Qos { preempt, ..Qos::default() }))
    };
    let changes = vec![qos("low", &[]), qos("high", &["low"])];
    let version = d.c.state().policy.version;
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version, changes }), [Answer::Done]);
    let with = |qos: &str, tasks| JobSpec { qos: Some(qos.into()), ..of("shared", tasks) };
    // Both rows are full: of the first with one wide job, of the second with two narrow ones.
    let wide = d.submit(with("low", 2));
    d.pass(1);
    let narrow = [d.submit(with("low", 1)), d.submit(with("low", 1))];
    let high = d.submit(with("high", 2));
    let gone = |d: &Driver, id| matches!(d.state_of(id), Some(JobState::Completing(_)));
    assert_eq!((gone(&d, wide), narrow.map(|id| gone(&d, id))), (true, [false; 2]), "one is fewer than two");
    // No other job gets into its room.
    let behind = d.submit(with("low", 2));
    d.pass(3);
    d.finish(wide, 0);
    assert_eq!(shown(&mut d, &[wide, behind]), [Pending, Pending]);
    assert_eq!(d.state_of(high), Some(Running));
    d.finish(high, 0);
    assert_eq!(d.state_of(wide), Some(Running));
}
