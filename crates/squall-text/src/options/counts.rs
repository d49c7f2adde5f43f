//! Numbers of nodes, tasks and GPUs: derives them from combinations of options, and refuses contradictions.

use std::collections::HashSet;

use squall_model::gres::{self, Count};
use squall_model::hostlist::{compress, expand};
use squall_model::job::gpus::GpuCount;
use squall_model::job::network;
use squall_model::job::options::AsGiven;
use squall_model::step::Distribution;

use crate::options::Stop;
use crate::options::submit::SubmitOptions;

/// Completes and checks the numbers of nodes, tasks and GPUs that the options give together.
pub fn complete(asked: &mut SubmitOptions) -> Result<(), Stop> {
    count_inside(asked);
    let named = named_nodes(asked)?;
    if asked.run.job.is_none() {
        count_gpus(asked)?;
        count_nodes(asked, &named);
    }
    count_gpu_tasks(asked);
    count_grid_tasks(asked);
    Ok(())
}

/// Returns the nodes in `--nodelist`, without repetitions. Raises the minimum number of nodes to their number, because
/// all of them must be in the job. Fails if that is above the maximum; a step gets the first ones then.
fn named_nodes(asked: &mut SubmitOptions) -> Result<Vec<String>, Stop> {
    let need = &mut asked.spec.need;
    let all = need.nodelist.as_deref().and_then(|list| expand(list).ok()).unwrap_or_default();
    let mut seen = HashSet::with_capacity(all.len());
    let names: Vec<String> = all.iter().filter(|name| seen.insert(name.as_str())).cloned().collect();
    if let Some(min) = need.nodes_min {
        let (least, most) = (min.max(names.len() as u32), need.nodes_max.unwrap_or(min));
        if least > most && asked.run.job.is_some() {
            return Ok(names);
        }
        if least > most {
            return Err(Stop::bad(format!("invalid number of nodes (-N {least}-{most})")));
        }
        need.nodes_min = Some(least);
    }
    Ok(names)
}

/// Lowers the number of nodes to the number of tasks, because a job gets no node without a task.
fn count_nodes(asked: &mut SubmitOptions, names: &[String]) {
    let need = &mut asked.spec.need;
    let named = names.len() as u32;
    let arbitrary = matches!(asked.run.distribution, Distribution::Arbitrary(_));
    let least = need.nodes_min.unwrap_or(named);
    if let Some(ntasks) = need.ntasks.filter(|ntasks| *ntasks < least && !arbitrary) {
        if !asked.quiet {
            let warning = format!("Warning: can't run {ntasks} processes on {least} nodes, setting nnodes to {ntasks}");
            asked.warnings.push(warning);
        }
        (need.nodes_min, need.nodes_max) = (Some(ntasks), Some(ntasks));
        if ntasks < named {
            need.nodelist = Some(compress(names.iter().take(ntasks as usize).map(String::as_str)));
        }
    }
}

/// Applies `-B 2:4`: least numbers of sockets and cores, and one task for each core if no other option gives the number
/// of tasks.
fn count_inside(asked: &mut SubmitOptions) {
    let Some(parts) = asked.extra_node_info else { return };
    let inside = &mut asked.spec.options.inside;
    for (field, count) in [&mut inside.sockets, &mut inside.cores, &mut inside.threads].into_iter().zip(parts) {
        if count > 0 {
            *field = count;
        }
    }
    let tasks = parts.iter().filter(|count| **count > 0).fold(1_u32, |tasks, count| tasks.saturating_mul(*count));
    let need = &mut asked.spec.need;
    if need.ntasks.is_none() && need.ntasks_per_node.is_none() && asked.run.job.is_none() {
        need.ntasks = Some(tasks.saturating_mul(need.nodes_min.unwrap_or(1)));
    }
}

/// Returns the number in `4` or `a100:2`. None: not given.
fn number(given: Option<&GpuCount>) -> Option<u32> {
    given.and_then(GpuCount::count)
}

/// Returns the number of GPUs of each node, from `--gres` or `--gpus-per-node`. None: none requested.
fn gpus_of_node(asked: &SubmitOptions) -> Option<u32> {
    let listed = asked.spec.need.gres.as_deref().and_then(gres::parse).unwrap_or_default();
    let value: Vec<Count> = listed.into_iter().filter(|asked| asked.name == "gpu").collect();
    let of_gres = AsGiven { text: String::new(), value };
    of_gres.count().or_else(|| number(asked.spec.options.gpus.per_node.as_ref())).filter(|each| *each > 0)
}

/// Checks, as Slurm does, that the numbers of GPUs of the job, of nodes and of tasks agree.
fn count_gpus(asked: &mut SubmitOptions) -> Result<(), Stop> {
    let options = &asked.spec.options.gpus;
    let positive = |given: &Option<GpuCount>| number(given.as_ref()).filter(|count| *count > 0);
    let (gpus, of_task, of_node) = (positive(&options.total), positive(&options.per_task), gpus_of_node(asked));
    let tasks_per_gpu = options.tasks;
    let need = &asked.spec.need;
    if of_task.is_some() && tasks_per_gpu.is_some() {
        return Err(Stop::bad(
            "fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ));
    }
    let wrong = |problem: &str| {
        let slurm = "Invalid generic resource (gres) specification".to_owned();
        Err(Stop::Bad { lines: vec![problem.to_owned(), slurm], exit: 1 })
    };
    let (nodes, most) = (need.nodes_min.unwrap_or(1), need.nodes_max.or(need.nodes_min).unwrap_or(u32::MAX));
    if options.cpus.is_some() && need.cpus_per_task.is_some() && asked.run.job.is_none() {
        return wrong("--cpus-per-gpu and --cpus-per-task say the same in two ways: leave one of them out");
    }
    if let (Some(all), Some(each)) = (gpus, of_node)
        && (!all.is_multiple_of(each) || !(nodes..=most).contains(&(all / each)))
    {
        return wrong(&format!(
            "{all} GPUs are not {each} for each node: change --gpus, --nodes, or the number of a node"
        ));
    }
    if gpus.is_some_and(|all| all < nodes) {
        return wrong(&format!("fewer GPUs than nodes: --gpus has to be {nodes} at least"));
    }
    if let (Some(all), Some(each)) = (gpus, of_task)
        && (!all.is_multiple_of(each) || need.ntasks.is_some_and(|tasks| tasks != all / each))
    {
        return wrong(&format!("{all} GPUs are not {each} for each task: change --gpus, --ntasks or --gpus-per-task"));
    }
    let counted = need.ntasks.is_some() || need.ntasks_per_node.is_some() || need.nodes_min.is_some();
    if of_task.is_some() && gpus.is_none() && !counted && asked.spec.options.network.grid.is_none() {
        return wrong(
            "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.",
        );
    }
    if tasks_per_gpu.is_some() && gpus.is_none() && of_node.is_none() && need.ntasks.is_none() {
        return wrong("--ntasks-per-gpu needs a number of GPUs or of tasks: add --gpus or --ntasks");
    }
    let any = gpus.is_some() || of_task.is_some() || of_node.is_some() || tasks_per_gpu.is_some();
    if !any && options.memory_mb.as_ref().is_some_and(|given| given.value > 0) && asked.run.job.is_none() {
        return wrong("--mem-per-gpu is about the GPUs of a job, and it asks for none: add --gpus");
    }
    if let (Some(all), Some(tasks), Some(each)) = (gpus, need.ntasks, tasks_per_gpu)
        && all.saturating_mul(each) != tasks
    {
        return wrong(&format!("{all} GPUs with {each} tasks each are not {tasks} tasks: change --gpus or --ntasks"));
    }
    Ok(())
}

/// Derives numbers that are not given. The number of tasks follows from GPUs of the job and tasks for each GPU, or from
/// GPUs for each task. The number of GPUs follows from tasks and tasks for each GPU. The number of nodes follows from
/// GPUs of the job and of each node.
fn count_gpu_tasks(asked: &mut SubmitOptions) {
    let options = &asked.spec.options.gpus;
    let (gpus, per_gpu, per_task) = (number(options.total.as_ref()), options.tasks, number(options.per_task.as_ref()));
    let per_node = gpus_of_node(asked);
    let per_task = per_task.filter(|each| *each > 0);
    let inside = asked.run.job.is_some();
    let need = &mut asked.spec.need;
    if let (Some(all), Some(each), None, None) = (gpus, per_node, need.nodes_min, need.nodes_max)
        && all.is_multiple_of(each)
        && !inside
    {
        (need.nodes_min, need.nodes_max) = (Some(all / each), Some(all / each));
    }
    let nodes = need.nodes_min.unwrap_or(1);
    // A number of tasks for each node takes precedence over a number of GPUs for each node.
    let of_nodes =
        per_node.filter(|_| !inside && need.ntasks_per_node.is_none()).map(|each| each.saturating_mul(nodes));
    // Of several nodes each gets as many tasks as can share its GPUs.
    if let (None, Some(tasks), None, 2.., false) = (need.ntasks, per_gpu, need.ntasks_per_node, nodes, inside) {
        let each = per_node.or_else(|| gpus.map(|all| all.div_ceil(nodes)));
        need.ntasks_per_node = each.map(|each| each.saturating_mul(tasks)).filter(|tasks| *tasks > 0);
    }
    match (need.ntasks, gpus, per_gpu, per_task) {
        (None, Some(gpus), Some(tasks), _) => need.ntasks = Some(gpus.saturating_mul(tasks)),
        (None, Some(gpus), None, Some(each)) => need.ntasks = Some((gpus / each).max(1)),
        (None, None, Some(tasks), None) => {
            need.ntasks = of_nodes.map(|gpus| gpus.saturating_mul(tasks));
        }
        (None, None, None, Some(each)) if !inside && need.ntasks_per_node.is_none() => {
            need.ntasks = Some(of_nodes.map_or(nodes, |gpus| (gpus / each).max(1)));
        }
        // A node gets at most as many tasks as can share its GPUs.
        (Some(_), None, Some(tasks), None)
            if tasks > 0 && !inside && need.ntasks_per_node.is_none() && per_node.is_some() =>
        {
            need.ntasks_per_node = per_node.map(|each| each.saturating_mul(tasks));
        }
        (Some(ntasks), None, Some(tasks), None) if tasks > 0 && per_node.is_none() => {
            asked.spec.options.gpus.total = Some(GpuCount::any(ntasks.div_ceil(tasks)));
        }
        _ => {}
    }
}

/// Derives the number of tasks from the process grid or the groups, if no other option gives it.
fn count_grid_tasks(asked: &mut SubmitOptions) {
    if let (None, Some(grid)) = (asked.spec.need.ntasks, &asked.spec.options.network.grid) {
        asked.spec.need.ntasks = grid.value.tasks().and_then(|tasks| u32::try_from(tasks).ok());
    }
    // Tasks of each node are as many as the groups have ranks, or the controller refuses them.
    if let (None, None, Some(groups)) =
        (asked.spec.need.ntasks, asked.spec.need.ntasks_per_node, &asked.spec.options.network.groups)
    {
        asked.spec.need.ntasks = network::ranks_of(&groups.value);
    }
}
