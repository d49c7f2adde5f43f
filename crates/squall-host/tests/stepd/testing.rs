//! Launches for tests.

use std::path::Path;

use squall_model::id::{Attempt, JobId, StepKey, StepNo};
use squall_model::job::{JobSpec, Owner};
use squall_model::set::CoreSet;
use squall_model::step::{JobFacts, Layout, Program, StepLaunch};
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
        owner,
        spec,
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        cluster: "squall".into(),
        nodes: vec!["n1".into()],
        cpus: vec![1],
        memory_mb: vec![0],
        tasks: vec![1],
        start: Time::from_secs(1),
        ..JobFacts::default()
    };
    StepLaunch {
        key,
        facts,
        layout: Layout { nodes: vec!["n1".into()], ranks: vec![vec![0]], cpus_per_task: 1 },
        cores: CoreSet::first(1),
        program,
        kill_wait_s: 30,
        ..StepLaunch::default()
    }
}
