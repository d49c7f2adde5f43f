//! The least resources that a job will take, from its options.

use squall_model::job::Need;
use squall_model::resource::Memory;

/// The least resources that a job will take.
pub(crate) struct Size {
    /// Least number of nodes that the job will take.
    pub(crate) nodes: u32,
    /// Least number of tasks that the job will have.
    pub(crate) tasks: u32,
    /// Least number of CPUs that the job will take on all nodes together.
    pub(crate) cpus: u32,
    /// Least memory that the job will take on all nodes together, MiB.
    pub(crate) memory_mb: u64,
}

/// Calculates the least resources of a job from its options. `default_mb_per_cpu`: MiB a CPU if it asks for no memory.
pub(crate) fn size(need: &Need, default_mb_per_cpu: u64) -> Size {
    let tasks_per_node = need.ntasks_per_node.filter(|n| *n > 0);
    let by_tasks = match (need.ntasks, tasks_per_node) {
        (Some(tasks), Some(per_node)) => tasks.div_ceil(per_node),
        _ => 1,
    };
    let nodes = need.nodes_min.unwrap_or(by_tasks).max(1);
    let tasks = need.tasks_on(nodes);
    let cpus = tasks.saturating_mul(need.task_cpus()).max(nodes.saturating_mul(need.cpus_min.unwrap_or(1)));
    let cpus = if need.overcommit { nodes.max(need.task_cpus()) } else { cpus };
    let memory_mb = match need.memory {
        Memory::PerNodeMb(mb) => mb.saturating_mul(u64::from(nodes)),
        Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(cpus)),
        Memory::Unset => default_mb_per_cpu.saturating_mul(u64::from(cpus)),
    };
    Size { nodes, tasks, cpus, memory_mb }
}
