//! Memory of submitted jobs: defaults for those that request none, and limits; CPUs of those with GPUs.

use std::sync::Arc;

use squall_model::config::MemoryRules;
use squall_model::duration::format_memory_mb;
use squall_model::job::options::AsGiven;
use squall_model::job::{JobSpec, Need};
use squall_model::resource::Memory;
use squall_model::wire::client::Refusal;

use crate::control::state::State;

/// Fills in the memory of a job that requests none, and makes others keep to the limits of their partitions, as Slurm
/// does: a job with more memory for each CPU than it may have gets more CPUs. The defaults are those of the first
/// partition that the job names.
pub(super) fn settle(state: &State, spec: &mut Arc<JobSpec>) -> Result<(), Refusal> {
    for (at, partition) in state.partitions_of(&Arc::clone(spec)).enumerate() {
        let rules = state.config.memory_rules(&partition.config);
        if at == 0 {
            fill_in(rules, spec);
            cpus_of_gpus(state.config.cpus_per_gpu(&partition.config), spec);
        }
        if gpu_memory(spec).is_some() {
            continue;
        }
        if let Some(need) = limited(rules, &spec.need, &partition.config.name)? {
            Arc::make_mut(spec).need = need;
        }
    }
    Ok(())
}

/// Returns whether a change of a job's spec may take it past the limits on memory: they are then applied again, as at
/// submission. Other changes leave a job's memory alone, even if the configuration has changed meanwhile.
pub(super) fn concerns(old: &JobSpec, new: &JobSpec) -> bool {
    let sizes = |need: &Need| (need.memory, need.cpus_per_task, need.cpus_min, need.ntasks_per_node);
    old.partition != new.partition || sizes(&old.need) != sizes(&new.need)
}

/// Returns the memory for each GPU that the job requests. None: it requests none.
fn gpu_memory(spec: &JobSpec) -> Option<u64> {
    Some(spec.options.get()?.gpus.memory_mb.as_ref()?.value)
}

/// Fills in the default memory of a partition.
fn fill_in(rules: MemoryRules, spec: &mut Arc<JobSpec>) {
    if spec.need.memory != Memory::Unset || gpu_memory(spec).is_some() {
        return;
    }
    if rules.def_per_gpu_mb > 0 && wants_gpus(spec) {
        let memory_mb = AsGiven { text: rules.def_per_gpu_mb.to_string(), value: rules.def_per_gpu_mb };
        Arc::make_mut(spec).options.gpus.memory_mb = Some(memory_mb);
    } else if rules.def_per_node_mb > 0 {
        Arc::make_mut(spec).need.memory = Memory::PerNodeMb(rules.def_per_node_mb);
    } else if rules.def_per_cpu_mb > 0 {
        Arc::make_mut(spec).need.memory = Memory::PerCpuMb(rules.def_per_cpu_mb);
    }
}

/// Fills in the CPUs for each GPU of a job that requests GPUs, and no CPUs for its tasks (`DefCPUPerGPU`).
fn cpus_of_gpus(cpus: Option<u32>, spec: &mut Arc<JobSpec>) {
    let said =
        spec.need.cpus_per_task.is_some() || spec.options.get().is_some_and(|options| options.gpus.cpus.is_some());
    if cpus.is_some() && !said && wants_gpus(spec) {
        Arc::make_mut(spec).options.gpus.cpus = cpus;
    }
}

fn wants_gpus(spec: &JobSpec) -> bool {
    let gpus = spec.options.get().map(|options| &options.gpus);
    let has_gpus = gpus.is_some_and(|gpus| gpus.total.is_some() || gpus.per_node.is_some() || gpus.per_task.is_some());
    has_gpus || spec.need.gres.as_deref().is_some_and(|gres| gres.split(',').any(is_gpu))
}

fn is_gpu(gres: &str) -> bool {
    let name = gres.trim().trim_start_matches("gres/").trim_start_matches("gres:");
    name.split(':').next() == Some("gpu")
}

/// Returns the request within the limits of a partition. None: it keeps to them as it is. A job without a request that
/// has no default either, or that requests all of a node's memory, gets as much as it may have.
fn limited(rules: MemoryRules, need: &Need, partition: &str) -> Result<Option<Need>, Refusal> {
    let changed = |memory| Ok(Some(Need { memory, ..need.clone() }));
    match (rules, need.memory) {
        (MemoryRules { max_per_cpu_mb: most @ 1.., .. }, Memory::PerCpuMb(mb)) if mb > most => {
            let times = mb.div_ceil(most);
            let factor = u32::try_from(times).unwrap_or(u32::MAX);
            let cpus_per_task = Some(need.cpus_per_task.unwrap_or(1).max(1).saturating_mul(factor));
            Ok(Some(Need { cpus_per_task, memory: Memory::PerCpuMb(mb.div_ceil(times)), ..need.clone() }))
        }
        (MemoryRules { max_per_cpu_mb: most @ 1.., .. }, Memory::Unset | Memory::PerNodeMb(0)) => {
            changed(Memory::PerCpuMb(most))
        }
        (MemoryRules { max_per_cpu_mb: most @ 1.., .. }, Memory::PerNodeMb(mb)) => {
            let cpus = u32::try_from(mb.div_ceil(most)).unwrap_or(u32::MAX);
            let enough = need.cpus_min.is_some_and(|has| has >= cpus);
            Ok((!enough).then(|| Need { cpus_min: Some(cpus), ..need.clone() }))
        }
        (MemoryRules { max_per_node_mb: most @ 1.., .. }, Memory::Unset | Memory::PerNodeMb(0)) => {
            changed(Memory::PerNodeMb(most))
        }
        (MemoryRules { max_per_node_mb: most @ 1.., .. }, memory) => {
            let cpus = need.ntasks_per_node.unwrap_or(1).max(1).saturating_mul(need.task_cpus());
            let (option, given, mb) = match memory {
                Memory::PerCpuMb(mb) => {
                    let cpus = cpus.max(need.cpus_min.unwrap_or(1));
                    ("mem-per-cpu", mb, mb.saturating_mul(u64::from(cpus)))
                }
                Memory::PerNodeMb(mb) => ("mem", mb, mb),
                Memory::Unset => return Ok(None),
            };
            if mb <= most {
                return Ok(None);
            }
            let most = format_memory_mb(most);
            let problem = format!("partition {partition} allows {most} on each node (max_mem_per_node_mb)");
            Err(Refusal::InvalidValue { option: option.to_owned(), value: format_memory_mb(given), problem })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use squall_model::config::MemoryRules;
    use squall_model::job::Need;
    use squall_model::resource::Memory;

    use super::{is_gpu, limited};

    #[test]
    fn a_limit_for_each_cpu_raises_cpus_as_in_slurm() {
        let rules = MemoryRules { max_per_cpu_mb: 1000, ..MemoryRules::default() };
        let after = |need: Need| limited(rules, &need, "p").unwrap().unwrap_or(need);
        let per_cpu = |mb| Need { memory: Memory::PerCpuMb(mb), ..Need::default() };
        assert_eq!(after(per_cpu(1000)), per_cpu(1000));
        assert_eq!(after(per_cpu(2500)), Need { cpus_per_task: Some(3), ..per_cpu(834) });
        let wide = Need { cpus_per_task: Some(2), ..per_cpu(1001) };
        assert_eq!(after(wide), Need { cpus_per_task: Some(4), ..per_cpu(501) });
        let per_node = Need { memory: Memory::PerNodeMb(2500), ..Need::default() };
        assert_eq!(after(per_node.clone()), Need { cpus_min: Some(3), ..per_node });
        assert_eq!(after(Need::default()), per_cpu(1000));
        assert_eq!(after(Need { memory: Memory::PerNodeMb(0), ..Need::default() }), per_cpu(1000));
    }

    #[test]
    fn a_limit_for_each_node_refuses_more() {
        let rules = MemoryRules { max_per_node_mb: 1000, ..MemoryRules::default() };
        let fits = |need: &Need| limited(rules, need, "p").is_ok();
        assert!(fits(&Need { memory: Memory::PerNodeMb(1000), ..Need::default() }));
        assert!(!fits(&Need { memory: Memory::PerNodeMb(1001), ..Need::default() }));
        let tasks = |memory| Need { memory, ntasks_per_node: Some(2), cpus_per_task: Some(2), ..Need::default() };
        assert!(fits(&tasks(Memory::PerCpuMb(250))) && !fits(&tasks(Memory::PerCpuMb(251))));
        let most = limited(rules, &Need::default(), "p").unwrap().unwrap();
        assert_eq!(most.memory, Memory::PerNodeMb(1000));
    }

    #[test]
    fn gpus_are_known_by_their_name() {
        assert!(["gpu", "gpu:2", "gpu:a100:1", "gres/gpu:1", "gres:gpu"].into_iter().all(is_gpu));
        assert!(!["gpux:1", "fpga", "shard:gpu"].into_iter().any(is_gpu));
    }
}
