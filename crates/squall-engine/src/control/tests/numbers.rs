//! Numbers from outside, as high and as low as they can be: nothing overflows, and what can't be is refused.

use squall_model::config::{Config, NodeConfig};
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::gpus::GpuCount;
use squall_model::job::{ExitCode, JobSpec, Need, Usage};
use squall_model::report::{Report, StepEnd};
use squall_model::resource::{Hardware, Memory};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Composite, Health};
use squall_model::wire::node::{Down, Registration};

use crate::control::tests::driver::{ADA, Driver, batch, in_network};

fn cluster() -> Driver {
    let node = NodeConfig { name: "n[1-2]".into(), gres: "gpu:a:2,gpu:b:2".into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config { nodes: vec![node], ..Config::default() });
    for name in ["n1", "n2"] {
        d.add_node(name, 8);
    }
    d
}

fn registers(d: &mut Driver, change: impl FnOnce(&mut Registration)) {
    d.connect("n2");
    d.knock("n2");
    let mut said = d.registration("n2", &[], &[]);
    change(&mut said);
    d.say("n2", |child| child.register(said));
}

#[test]
fn a_node_with_hardware_that_cant_be_is_refused() {
    let most = u32::MAX;
    let all: [fn(&mut Hardware); 6] = [
        |has| (has.sockets, has.cores_per_socket) = (1 << 16, 1 << 16),
        |has| (has.sockets, has.cores_per_socket, has.threads_per_core) = (u32::MAX, u32::MAX, u32::MAX),
        |has| (has.cores_per_socket, has.threads_per_core) = (1 << 31, 2),
        |has| has.memory_mb = u64::MAX,
        |has| has.tmp_disk_mb = u64::MAX,
        |has| has.cpus = u32::MAX,
    ];
    for wrong in all {
        let mut d = cluster();
        registers(&mut d, |said| wrong(&mut said.hardware));
        assert!(d.sent.iter().any(|(to, say)| to == "n2" && matches!(say, Down::Refused { .. })));
        d.submit(batch());
    }
    // What is high and can be is taken.
    let mut d = cluster();
    registers(&mut d, |said| {
        (said.hardware.sockets, said.hardware.cores_per_socket, said.hardware.memory_mb) = (256, 256, 1 << 40);
        (said.hardware.boot_time_s, said.health) =
            (u64::MAX, Health { load_centi: most, free_mb: u64::MAX, run: u64::MAX, ..Health::default() });
    });
    assert!(d.connected("n2"));
}

#[test]
fn reports_with_the_highest_numbers_are_taken() {
    let mut d = cluster();
    for _ in 0..3 {
        d.say("n1", |child| {
            child.composite(Composite { reports: u64::MAX, waited_us: u64::MAX, ..Composite::default() })
        });
    }
    assert_eq!(d.c.diag().fabric.composite_reports, u64::MAX);
    let usage = Usage {
        user: Span(u64::MAX),
        system: Span(u64::MAX),
        max_rss_kb: u64::MAX,
        total_rss_kb: u64::MAX,
        read_bytes: u64::MAX,
        ..Usage::default()
    };
    for (started, ended) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, 0)] {
        let job = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..batch() });
        let attempt = d.attempt(job);
        let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
        let exit = ExitCode { code: 255, signal: 255 };
        let (started, ended, usage) = (Time(started), Time(ended), usage);
        let end = StepEnd { exit, usage, started, ended, ..StepEnd::default() };
        for name in ["n1", "n2"] {
            d.report(name, &[Report::StepEnded { key, end: end.clone() }, Report::JobGone { job: attempt }]);
        }
        assert!(d.c.state().jobs[&job].end_time().is_some_and(|end| end <= d.now));
    }
}

/// Users' numbers: each is refused, or the job waits or runs.
#[test]
fn jobs_that_ask_for_the_highest_numbers_are_answered() {
    let mut d = cluster();
    let (counts, memories) = ([1, 2, 70_000, 1 << 20, u32::MAX - 1, u32::MAX], [0, 1, 1 << 40, u64::MAX - 1, u64::MAX]);
    let mut course = 1_u64;
    let mut any = move |of: usize| {
        course = course.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (course >> 33) as usize % of
    };
    for _ in 0..400 {
        let mut count = |rare: usize| (any(rare) == 0).then(|| counts[any(counts.len())]);
        let (nodes_min, nodes_max, ntasks, ntasks_per_node) = (count(3), count(3), count(3), count(3));
        let (cpus_per_task, cpus_min, per_cpu, overcommit) = (count(3), count(3), count(2), count(2));
        let memory = memories[any(memories.len())];
        let memory = if per_cpu.is_some() { Memory::PerCpuMb(memory) } else { Memory::PerNodeMb(memory) };
        let need = Need {
            nodes_min,
            nodes_max: nodes_max.filter(|most| nodes_min.is_none_or(|least| least <= *most)),
            ntasks,
            ntasks_per_node,
            cpus_per_task,
            cpus_min,
            memory,
            overcommit: overcommit.is_some(),
            ..Need::default()
        };
        let geometry = [("geometry", "4294967295x4294967295x4294967295")];
        let mut options = if any(5) == 0 { in_network(&geometry) } else { in_network(&[]) };
        let gpus = ["a:4294967295,b:4294967295", "4294967295", "a:1"];
        match any(4) {
            0 => options.gpus.total = GpuCount::parse(gpus[any(3)]),
            1 => options.gpus.per_node = GpuCount::parse(gpus[any(3)]),
            2 => options.gpus.per_task = GpuCount::parse(gpus[any(3)]),
            _ => {}
        }
        options.gpus.cpus = (any(4) == 0).then_some(u32::MAX);
        let times = [None, Some(1), Some(u64::MAX)];
        let spec = JobSpec {
            need,
            options,
            time_limit_s: times[any(3)],
            begin: times[any(3)].map(Time),
            nice: [i32::MIN, 0, i32::MAX][any(3)],
            ..batch()
        };
        let key = d.key();
        let answers = d.submit_with(key, spec);
        let [Answer::Submitted { job, .. }] = answers[..] else { continue };
        d.ask(5, ADA, Request::Why { job });
        d.cancel(job);
    }
    assert!(d.submit(batch()) > JobId(20), "some of them were taken");
}
