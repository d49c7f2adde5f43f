//! Launches for tests.

use std::path::Path;
use std::sync::Arc;

use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobSpec, Owner};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::step::{Distribution, JobFacts, Layout, Program, StepLaunch};
use squall_model::time::Time;

/// Job 12, attempt 1, of whoever runs the test, on node `n1` alone: the batch script, or step 0 with one task.
pub(crate) fn launch(program: Program, dir: &Path) -> StepLaunch {
    let step = if matches!(program, Program::Tasks(_)) { StepNo(0) } else { StepNo::BATCH };
    let key = StepKey { job: JobId(12), attempt: Attempt(1), step };
    let owner = Owner {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: rustix::process::getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw).collect(),
        user: "tester".into(),
        group: "testers".into(),
    };
    let spec =
        JobSpec { name: "trial".into(), work_dir: dir.to_str().unwrap().into(), umask: 0o022, ..JobSpec::default() };
    let facts = JobFacts {
        key,
        owner: owner.into(),
        spec: spec.into(),
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        cluster: "squall".into(),
        nodes: ["n1"].into_iter().collect(),
        ids: NodeSet::one(NodeId(0)),
        cpus: vec![1].into(),
        memory_mb: vec![0].into(),
        tasks: vec![1].into(),
        start: Time::from_secs(1),
        ..JobFacts::default()
    };
    StepLaunch {
        key,
        facts: facts.into(),
        layout: Layout {
            nodes: ["n1"].into_iter().collect(),
            tasks: vec![1].into(),
            distribution: Distribution::Block,
            cpus_per_task: 1,
            ports: None,
        },
        node: "n1".into(),
        cores: CoreSet::first(1),
        program,
        kill_wait_s: 30,
        ..StepLaunch::default()
    }
}

/// What its job asked for, to be changed.
pub(crate) fn spec(launch: &mut StepLaunch) -> &mut JobSpec {
    Arc::make_mut(&mut Arc::make_mut(&mut launch.facts).spec)
}
