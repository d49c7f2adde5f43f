//! Partitions: limits that make jobs wait, states that refuse or hold them, reconfiguration, jobs of several.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig, PartitionConfig, PartitionState, Unit};
use squall_model::event::Event;
use squall_model::gang::OverSubscribe;
use squall_model::id::JobId;
use squall_model::job::options::{Chosen, Hint};
use squall_model::job::{JobSpec, JobState, Need, PendingReason};
use squall_model::limits::UNLIMITED_S;
use squall_model::policy::EnforcePartLimits;
use squall_model::resource::Memory;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobUpdate, Refusal, Request};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, batch, these};

/// `short` (one minute, n1), and `long` (n2), the default.
fn config(short_s: u64) -> Config {
    let partition = |name: &str, nodes: &str| PartitionConfig {
        name: name.into(),
        nodes: nodes.into(),
        ..PartitionConfig::default()
    };
    let short = PartitionConfig { max_time_s: Some(short_s), ..partition("short", "n1") };
    let long = PartitionConfig { default: true, ..partition("long", "n2") };
    Config { partitions: vec![short, long], ..Config::default() }
}

fn cluster() -> Driver {
    let mut d = Driver::empty(config(60));
    d.add_node("n1", 2);
    d.add_node("n2", 2);
    d
}

fn within(partition: &str, time_limit_s: u64) -> JobSpec {
    JobSpec { partition: Some(partition.into()), time_limit_s: Some(time_limit_s), ..batch() }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

fn refused(d: &mut Driver, spec: JobSpec) -> Refusal {
    let key = d.key();
    let answers = d.submit_with(key, spec);
    let [Answer::Refused(refusal)] = &answers[..] else { panic!("{answers:?}") };
    refusal.clone()
}

#[test]
fn too_long_for_the_partition_waits_until_the_limit_is_raised() {
    let mut d = cluster();
    let long = d.submit(within("short", 120));
    let fits = d.submit(within("short", 60));
    assert_eq!((d.state_of(long), reason(&d, long)), (Some(JobState::Pending), PendingReason::PartitionTimeLimit));
    assert_eq!(d.state_of(fits), Some(JobState::Running), "it holds up nobody");
    let whole = JobSpec { need: Need { ntasks: Some(2), ..Need::default() }, ..within("short", 60) };
    let (ahead, behind) = (d.submit(whole), d.submit(within("short", 120)));
    assert_eq!(reason(&d, ahead), PendingReason::Resources);
    assert_eq!(reason(&d, behind), PendingReason::PartitionTimeLimit, "whatever is ahead of it");
    d.commit(Event::Configured { config: Arc::new(config(120)) });
    assert_eq!(d.state_of(long), Some(JobState::Running));
    assert_eq!(d.c.state().jobs[&long].run().unwrap().partition, "short");
}

#[test]
fn part_limits_are_enforced_on_one_or_on_all_partitions() {
    let with = |enforce_part_limits| {
        let mut config = Config { enforce_part_limits, ..config(60) };
        config.partitions[0].max_nodes = Some(1);
        let mut d = Driver::empty(config);
        d.add_node("n1", 2);
        d.add_node("n2", 2);
        d
    };
    let need = |need: Need| JobSpec { need, ..within("short", 60) };
    let wide = || need(Need { nodes_min: Some(2), ..Need::default() });
    let many = || need(Need { ntasks: Some(2), cpus_per_task: Some(2), ..Need::default() });
    let limits = [within("short", 61), within("short", UNLIMITED_S), wide(), many()];

    let mut d = with(EnforcePartLimits::No);
    for spec in limits.clone() {
        d.submit(spec);
    }

    for enforce in [EnforcePartLimits::Any, EnforcePartLimits::All] {
        let mut d = with(enforce);
        let named = limits.clone().map(|spec| match refused(&mut d, spec) {
            Refusal::InvalidValue { option, .. } => option,
            other => format!("{other:?}"),
        });
        assert_eq!(named, ["time", "time", "nodes", "TooManyRequested(\"CPUs\")"]);
        d.submit(within("short", 60));
        d.submit(within("long", 61));
        let both = JobSpec { partition: Some("short,long".into()), ..within("", 61) };
        match enforce {
            EnforcePartLimits::Any => drop(d.submit(both)),
            _ => assert!(matches!(refused(&mut d, both), Refusal::InvalidValue { .. })),
        }
        // Most nodes below the least of the partition; without a word on nodes it has as many as the partition wants.
        let one = need(Need { nodes_max: Some(1), nodes_min: Some(1), ..Need::default() });
        let mut least = config(60);
        (least.enforce_part_limits, least.partitions[0].min_nodes) = (enforce, 2);
        d.commit(Event::Configured { config: Arc::new(least) });
        assert!(matches!(refused(&mut d, one), Refusal::InvalidValue { option, .. } if option == "nodes"));
        let waits = d.submit(within("short", 60));
        let longer = JobUpdate { time_limit_s: Some(Some(61)), ..JobUpdate::default() };
        let longer = Request::UpdateJob { jobs: these(waits), change: Box::new(longer) };
        let refused = |answers: Vec<Answer>| match &answers[..] {
            [Answer::Affected { refused, .. }] => !refused.is_empty(),
            other => matches!(other, [Answer::Refused(_)]),
        };
        assert!(refused(d.ask(9, ADA, longer.clone())), "its user may not, either");
        assert!(!refused(d.ask(9, 0, longer)), "an operator may");
    }
}

#[test]
fn jobs_of_an_exclusive_partition_have_whole_nodes() {
    let mut config = config(60);
    config.partitions[1].oversubscribe = OverSubscribe::Exclusive;
    let mut d = Driver::empty(config);
    d.add_node("n1", 2);
    d.add_node("n2", 2);
    let [first, second, elsewhere, beside] = [within("long", 60), batch(), within("short", 60), within("short", 60)];
    let [first, second, elsewhere, beside] = [first, second, elsewhere, beside].map(|spec| d.submit(spec));
    let cpus = |d: &Driver, id: JobId| d.c.state().jobs[&id].run().map(|run| run.alloc.cpus());
    assert_eq!((cpus(&d, first), cpus(&d, second)), (Some(2), None));
    assert_eq!((cpus(&d, elsewhere), cpus(&d, beside)), (Some(1), Some(1)));
}

#[test]
fn a_job_of_several_partitions_takes_the_first_that_is_free() {
    let mut d = cluster();
    let fill = d.submit(JobSpec { need: Need { ntasks: Some(2), ..Need::default() }, ..within("short", 60) });
    let job = d.submit(JobSpec { partition: Some("short,long".into()), ..batch() });
    assert_eq!(d.state_of(fill), Some(JobState::Running));
    assert_eq!(d.c.state().jobs[&job].run().unwrap().partition, "long");
}

#[test]
fn states_hold_or_refuse() {
    let mut d = cluster();
    let set = |state| Event::PartitionSet { name: "long".into(), state };
    d.commit(set(PartitionState::Down));
    let waits = d.submit(batch());
    assert_eq!((d.state_of(waits), reason(&d, waits)), (Some(JobState::Pending), PendingReason::PartitionDown));
    d.commit(set(PartitionState::Drain));
    assert_eq!(d.state_of(waits), Some(JobState::Running));
    assert_eq!(refused(&mut d, batch()), Refusal::PartitionNotAvailable("long".into()));
}

#[test]
fn what_can_never_be_is_refused_and_what_only_is_too_much_waits() {
    let mut d = cluster();
    let need = |need: Need| JobSpec { need, ..batch() };
    let memory = Memory::PerNodeMb(1 << 40);
    assert_eq!(refused(&mut d, within("nope", 1)), Refusal::InvalidPartition("nope".into()));
    let impossible = need(Need { memory, ..Need::default() });
    assert_eq!(refused(&mut d, impossible), Refusal::NodeConfigNotAvailable("memory".into()));
    let nowhere = need(Need { nodelist: Some("n9".into()), ..Need::default() });
    assert_eq!(refused(&mut d, nowhere), Refusal::InvalidNode("n9".into()));
    let unknown = need(Need { constraint: Some("gpu".into()), ..Need::default() });
    assert!(matches!(refused(&mut d, unknown), Refusal::InvalidValue { .. }));
    let raised = JobSpec { priority: Some(9), ..batch() };
    assert_eq!(refused(&mut d, raised), Refusal::AccessDenied);
    let many = d.submit(need(Need { ntasks: Some(1000), ..Need::default() }));
    assert_eq!((d.state_of(many), reason(&d, many)), (Some(JobState::Pending), PendingReason::PartitionConfig));
    let wide = d.submit(need(Need { nodes_min: Some(2), ..Need::default() }));
    assert_eq!(reason(&d, wide), PendingReason::PartitionNodeLimit);
}

#[test]
fn one_thread_of_each_core_needs_whole_cores_and_the_refusal_says_so() {
    for (unit, refused_as) in [(Unit::Cpu, Some("threads")), (Unit::Core, None)] {
        let node = NodeConfig {
            name: "n1".into(),
            cores_per_socket: Some(2),
            threads_per_core: Some(2),
            force: true,
            ..NodeConfig::default()
        };
        let mut config = Config { nodes: vec![node], ..Config::default() };
        config.select_type_parameters.unit = unit;
        let mut d = Driver::empty(config);
        d.add_node("n1", 4);
        let options = Chosen { hint: Hint::parse("nomultithread"), ..Chosen::default() }.into();
        let (key, job) = (d.key(), JobSpec { options, ..batch() });
        match &d.submit_with(key, job)[..] {
            [Answer::Refused(Refusal::NodeConfigNotAvailable(what))] => assert_eq!(Some(what.as_str()), refused_as),
            [Answer::Submitted { .. }, ..] => assert_eq!(refused_as, None),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_too_few_nodes_have_is_refused_whether_they_are_up_or_not() {
    let node = |name: &str, features: &[&str]| NodeConfig {
        name: name.into(),
        features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        ..NodeConfig::default()
    };
    let partition = |name: &str, nodes: &str| PartitionConfig {
        name: name.into(),
        nodes: nodes.into(),
        default: name == "long",
        ..PartitionConfig::default()
    };
    let mut d = Driver::empty(Config {
        nodes: vec![node("n[1-3]", &["x"]), node("n[4-6]", &[])],
        partitions: vec![partition("long", "n[1-5]"), partition("other", "n[4-6]")],
        ..Config::default()
    });
    (1..=6).for_each(|n| d.add_node(&format!("n{n}"), if n < 3 { 8 } else { 4 }));
    let wide = |nodes: u32, need: Need| JobSpec { need: Need { nodes_min: Some(nodes), ..need }, ..batch() };
    let x = || Need { constraint: Some("x".into()), ..Need::default() };
    let such = Refusal::NodeConfigNotAvailable("such nodes".into());
    let each = |cpus: u32| Need { ntasks_per_node: Some(cpus), ..Need::default() };
    let memory = |mb: u64| Need { memory: Memory::PerNodeMb(mb), ..Need::default() };
    let without = |nodes: &str| Need { exclude: Some(nodes.into()), ..Need::default() };
    for (nodes, need) in [(4, x()), (5, x()), (3, each(5)), (3, memory(4001)), (4, without("n[1-2]"))] {
        assert_eq!(refused(&mut d, wide(nodes, need.clone())), such, "{need:?}");
    }
    // Down is not gone; more than there is of anything waits, as before.
    d.lose("n1");
    d.pass(600);
    let waits = d.submit(wide(3, x()));
    assert_eq!(reason(&d, waits), PendingReason::ReqNodeNotAvail);
    for (nodes, need) in [(6, x()), (2, each(8)), (5, each(6)), (2, memory(4001)), (3, without("n[1-2]"))] {
        d.submit(wide(nodes, need));
    }
    // One partition that has them is enough.
    let both = |need| JobSpec { partition: Some("other,long".into()), ..wide(3, need) };
    d.submit(both(x()));
    assert_eq!(refused(&mut d, JobSpec { partition: Some("other".into()), ..wide(1, x()) }), such);
    assert_eq!(refused(&mut d, both(memory(4001))), such, "neither has three");
}

/// A job names nodes that exist, and wants none that it excludes: lists of any length are compared by node and not by
/// name.
#[test]
fn h2_wanted_and_excluded_nodes_are_compared_as_sets() {
    let mut d = Driver::empty(Config::default());
    (1..=400).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let lists = |wanted: &str, excluded: &str| {
        let need = Need { nodelist: Some(wanted.into()), exclude: Some(excluded.into()), ..Need::default() };
        JobSpec { need, ..batch() }
    };
    let every_second = |first| (first..=400).step_by(2).map(|n| format!("n{n}")).collect::<Vec<_>>().join(",");
    let runs = d.submit(lists(&every_second(1), &every_second(2)));
    assert_eq!(d.state_of(runs), Some(JobState::Running));
    for (wanted, excluded, named) in
        [("n[1-200]", "n300,n[200-201]", "n200"), ("n1,n401", "n2", "n401"), ("n1", "n[399-402]", "n401")]
    {
        assert_eq!(refused(&mut d, lists(wanted, excluded)), Refusal::InvalidNode(named.into()));
    }
}

#[test]
fn an_estimate_names_time_and_place_and_accepts_nothing() {
    let mut d = cluster();
    let all = Need { ntasks: Some(2), ..Need::default() };
    let spec = JobSpec { need: all, time_limit_s: Some(600), ..batch() };
    let estimate = |d: &mut Driver, spec: &JobSpec| {
        let answers = d.ask(1, ADA, Request::TestSubmit { spec: Arc::new(spec.clone()) });
        let [Answer::WouldStart { time, nodes, cpus, .. }] = &answers[..] else { panic!("{answers:?}") };
        (time.since(d.now).secs(), nodes.clone(), *cpus)
    };
    assert_eq!(estimate(&mut d, &spec), (0, "n2".to_owned(), 2));
    d.submit(spec.clone());
    assert_eq!(estimate(&mut d, &spec), (600, "n2".to_owned(), 2));
    assert_eq!(d.c.state().jobs.len(), 1);
}

#[test]
fn priority_goes_before_age_and_age_before_youth() {
    let mut d = cluster();
    let fill = d.submit(JobSpec { need: Need { ntasks: Some(2), ..Need::default() }, ..batch() });
    let (old, young) = (d.submit(batch()), d.submit(batch()));
    let both = JobSpec { need: Need { ntasks: Some(2), ..Need::default() }, ..batch() };
    let urgent = d.submit(both);
    let change = squall_model::event::JobChange { priority: Some(u32::MAX), ..Default::default() };
    d.commit(Event::JobUpdated { id: urgent, change, whole: false });
    assert_eq!((reason(&d, urgent), reason(&d, old)), (PendingReason::Resources, PendingReason::Priority));
    d.finish(fill, 0);
    assert_eq!(d.state_of(urgent), Some(JobState::Running));
    d.finish(urgent, 0);
    assert_eq!([old, young].map(|job| d.state_of(job)), [Some(JobState::Running); 2]);
}

#[test]
fn a_partition_made_meanwhile_stays_as_long_as_jobs_need_it() {
    let mut d = cluster();
    let extra =
        PartitionConfig { name: "extra".into(), nodes: "n1".into(), default: true, ..PartitionConfig::default() };
    let made = Request::ChangePartition { name: "extra".into(), was: None, now: Some(Box::new(extra)) };
    assert_eq!(d.ask(9, 0, made), [Answer::Done]);
    let (job, waits) = (
        d.submit(within("extra", 60)),
        d.submit(JobSpec { begin: Some(d.now + Span::from_secs(500)), ..within("extra", 60) }),
    );
    let names = |d: &Driver| d.c.state.partitions.iter().map(|p| p.config.name.clone()).collect::<Vec<_>>();
    let again = |d: &mut Driver| {
        let config = Some(Box::new(config(60)));
        assert_eq!(d.ask(9, 0, Request::Reconfigure { config }), [Answer::Done]);
    };
    again(&mut d);
    assert_eq!(names(&d), ["short", "long", "extra"]);
    assert_eq!(d.c.state.default_partition().map(|p| p.config.name.as_str()), Some("long"), "as the file says");
    assert_eq!((d.state_of(job), d.state_of(waits)), (Some(JobState::Running), Some(JobState::Pending)));
    d.restart();
    d.register("n1", &[d.attempt(job)]);
    assert_eq!(names(&d), ["short", "long", "extra"], "a new controller keeps it, too");
    d.finish(job, 0);
    again(&mut d);
    assert_eq!(names(&d).len(), 3, "one waits");
    d.cancel(waits);
    again(&mut d);
    assert_eq!(names(&d), ["short", "long"]);
}

#[test]
fn d3_preferred_features_are_tried_first_and_then_done_without() {
    let node = |name: &str, features: &[&str]| NodeConfig {
        name: name.into(),
        features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        ..NodeConfig::default()
    };
    let partition =
        PartitionConfig { name: "all".into(), nodes: "n[1-3]".into(), default: true, ..PartitionConfig::default() };
    let mut d = Driver::empty(Config {
        nodes: vec![node("n1", &["old"]), node("n2", &["old", "fast"]), node("n3", &["new", "fast"])],
        partitions: vec![partition],
        ..Config::default()
    });
    (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let prefers = |features: &str, constraint: Option<&str>| JobSpec {
        need: Need { constraint: constraint.map(str::to_owned), ..Need::default() },
        options: Chosen { prefer: Some(features.to_owned()), ..Chosen::default() }.into(),
        ..batch()
    };
    let unknown = refused(&mut d, prefers("nosuch", None));
    assert!(matches!(unknown, Refusal::InvalidValue { option, .. } if option == "prefer"));
    let together = refused(&mut d, prefers("fast", Some("[old|new]")));
    assert!(matches!(together, Refusal::InvalidValue { option, .. } if option == "prefer"), "it can't be done");
    let node_of = |d: &Driver, id: JobId| {
        let run = d.c.state().jobs[&id].run()?;
        run.alloc.nodes().iter().next().and_then(|id| d.c.state().node(id)).map(|node| node.name.clone())
    };
    let first = d.submit(prefers("fast", Some("old")));
    assert_eq!(node_of(&d, first).as_deref(), Some("n2"), "both, where there is room");
    let second = d.submit(prefers("fast", Some("old")));
    assert_eq!(node_of(&d, second).as_deref(), Some("n1"), "else what it must have");
    let third = d.submit(prefers("fast", Some("old")));
    assert_eq!(d.state_of(third), Some(JobState::Pending), "never without that");
    let fourth = d.submit(prefers("old", None));
    assert_eq!(node_of(&d, fourth).as_deref(), Some("n3"), "a wish never makes a job wait");
}

#[test]
fn a_user_who_wants_to_go_before_others_is_told_that_it_is_not_for_users() {
    let mut d = cluster();
    let refusal = refused(&mut d, JobSpec { nice: -10, ..batch() });
    assert!(matches!(refusal, Refusal::InvalidValue { option, value, .. } if option == "nice" && value == "-10"));
}

// faults.md D2: what so many nodes can never hold is refused at once, with Slurm's words; what is more than the partition
// has waits with Slurm's reason.
#[test]
fn d2_tasks_that_so_many_nodes_can_never_hold_are_refused() {
    let mut d = Driver::new(4, 4);
    let need = |nodes, ntasks| JobSpec {
        need: Need { nodes_min: nodes, nodes_max: nodes, ntasks: Some(ntasks), ..Need::default() },
        ..batch()
    };
    for (nodes, ntasks) in [(1, 5), (1, 8), (2, 9), (3, 13)] {
        let refusal = refused(&mut d, need(Some(nodes), ntasks));
        assert!(matches!(refusal, Refusal::NodeConfigNotAvailable(_)), "{nodes} {ntasks}: {refusal:?}");
    }
    let fits = d.submit(need(Some(2), 8));
    assert_eq!(d.state_of(fits), Some(JobState::Running));
    let many = d.submit(need(None, 17));
    assert_eq!(reason(&d, many), PendingReason::PartitionConfig);
}
