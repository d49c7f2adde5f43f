//! The SLURM_* variables of jobs, steps and tasks, as a pure function of their data.
//!
//! The launcher of a process adds these to the user's own environment, in this order: [`default_env`] (only where
//! unset), [`job_env`], [`step_env`], [`bind_env`], [`task_env`]. Variables that hand on an option of
//! a job or step are in a table: [`HANDED_ON`].

use squall_model::job::gpus::{GpuBind, GpuCount};
use squall_model::job::options::{AsGiven, Chosen};
use squall_model::job::{ArraySpec, JobKind};
use squall_model::resource::Memory;
use squall_model::runs::Runs;
use squall_model::set::CoreSet;
use squall_model::step::{ClientAddress, Distribution, JobFacts, Program, StepLaunch, TaskProgram};
use squall_model::time::Time;

use squall_model::step::cpu_bind::{BindMethod, CpuBind};

use crate::binding::hex;
use crate::dependency::dependency_text;

/// Environment variables of a process: name and value.
pub type Env = Vec<(String, String)>;

/// Name of an environment variable, and the function that returns its value from the options. None: the option is not
/// set.
type HandedOn = (&'static str, fn(&Chosen) -> Option<String>);

/// Variables of jobs and steps that repeat the value of an option as the user gave it.
const HANDED_ON: [HandedOn; 22] = [
    ("SLURM_X11", |o| o.x11.clone()),
    ("SLURM_CONTAINER", |o| o.bundle().map(str::to_owned)),
    ("SLURM_EXPORT_ENV", |o| o.shown.export.clone()),
    ("SLURM_DISTRIBUTION", |o| text(o.distribution.as_ref())),
    ("SLURM_HINT", |o| Some(o.hint?.name().to_owned())),
    ("SLURM_THREADS_PER_CORE", |o| number(o.inside.threads)),
    ("SLURM_NTASKS_PER_CORE", |o| number(o.inside.tasks_per_core)),
    ("SLURM_NTASKS_PER_SOCKET", |o| number(o.inside.tasks_per_socket)),
    ("SLURM_CPU_FREQ_REQ", |o| o.shown.cpu_freq.clone()),
    ("SLURM_PROFILE", |o| o.shown.profile.clone()),
    ("SLURM_NETWORK", |o| text(o.network.class.as_ref())),
    ("SLURM_MEM_BIND", |o| o.shown.mem_bind.clone()),
    ("SLURM_MPI_TYPE", |o| o.step.mpi.clone()),
    ("SLURM_GPUS", |o| text(o.gpus.total.as_ref())),
    ("SLURM_GPUS_PER_NODE", |o| text(o.gpus.per_node.as_ref())),
    ("SLURM_GPUS_PER_TASK", |o| text(o.gpus.per_task.as_ref())),
    ("SLURM_TRES_PER_TASK", |o| o.shown.tres_per_task.clone()),
    ("SLURM_CPUS_PER_GPU", |o| Some(o.gpus.cpus?.to_string())),
    ("SLURM_MEM_PER_GPU", |o| text(o.gpus.memory_mb.as_ref())),
    ("SLURM_NTASKS_PER_GPU", |o| Some(o.gpus.tasks?.to_string())),
    ("SLURM_GPU_BIND", |o| text(o.gpus.bind.as_ref())),
    ("SLURM_GPU_FREQ", |o| o.shown.gpu_freq.clone()),
];

/// Variables of steps that repeat the value of an option of `srun`. They replace those that the job's options set.
const HANDED_ON_TO_STEP: [HandedOn; 4] = [
    ("SLURM_NTASKS_PER_NODE", |o| Some(o.step.ntasks_per_node?.to_string())),
    ("SLURM_CPUS_PER_TASK", |o| Some(o.step.cpus_per_task?.to_string())),
    ("SLURMD_DEBUG", |o| Some(o.step.slurmd_debug?.to_string())),
    ("SRUN_DEBUG", |o| Some(o.step.srun_debug?.to_string())),
];

fn text<T>(given: Option<&AsGiven<T>>) -> Option<String> {
    given.map(|given| given.text.clone())
}

/// Returns a count as text; None: the count is 0, so the option is not set.
fn number(count: u32) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

/// Variables that [`job_env`], [`step_env`] and [`task_env`] may set, apart from those with a prefix in `OUTPUT_STEMS`.
const OUTPUTS: [&str; 43] = [
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GTIDS",
    "SLURM_JOBID",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_OPEN_MODE",
    "SLURM_OVERCOMMIT",
    "SLURM_PRIO_PROCESS",
    "SLURM_PROCID",
    "SLURM_PTY_WIN_COL",
    "SLURM_PTY_WIN_ROW",
    "SLURM_RESTART_COUNT",
    "SLURM_SPREAD_JOB",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
    "SLURM_STEPID",
    "SRUN_DEBUG",
    "SLURM_SUBMIT_DIR",
    "SLURM_SUBMIT_HOST",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_UMASK",
    "SLURM_WCKEY",
    "SQUALL_SPARE_NODELIST",
];

/// Prefixes of further variables that [`job_env`], [`step_env`] and [`task_env`] may set.
const OUTPUT_STEMS: [&str; 6] =
    ["SLURM_JOB_", "SLURM_STEP_", "SLURM_ARRAY_", "SLURM_TOPOLOGY_", "SLURM_PACK_", "SLURM_HET_"];

/// Variable with the number of components of a heterogeneous job.
const HET_SIZE: &str = "SLURM_HET_SIZE";
/// Text between a variable's name and the number of the component, in the variables of a heterogeneous job.
const HET_GROUP: &str = "_HET_GROUP_";

/// Returns whether Squall may have set this variable in a job. An inner `sbatch` must not carry it into its own job.
pub fn is_output(name: &str) -> bool {
    OUTPUTS.contains(&name)
        || is_handed_on(name)
        || OUTPUT_STEMS.iter().any(|stem| name.starts_with(stem))
        || name.contains(HET_GROUP)
}

/// Returns whether a variable repeats the value of an option as given. A user may set such a variable for the `srun` of
/// a job.
pub fn is_handed_on(name: &str) -> bool {
    HANDED_ON.iter().any(|(variable, _)| *variable == name) || matches!(name, "SLURM_CORE_SPEC" | "SLURM_PRIO_PROCESS")
}

/// Returns whether a variable describes the components of a heterogeneous job.
pub fn is_of_components(name: &str) -> bool {
    name == HET_SIZE || name.contains(HET_GROUP)
}

/// Returns variables that a process gets only if its environment lacks them.
pub fn default_env() -> Env {
    vec![("TMPDIR".into(), "/tmp".into())]
}

/// Returns the variables of every process of a job: the batch script, the command of `salloc`, the tasks of steps.
pub fn job_env(facts: &JobFacts) -> Env {
    let mut env = Builder::default();
    whereabouts(&mut env, facts);
    owner(&mut env, facts);
    counts(&mut env, facts);
    memory(&mut env, facts);
    if let (Some(task), Some(array)) = (facts.array, &facts.spec.array) {
        env.set("SLURM_ARRAY_JOB_ID", task.array);
        env.set("SLURM_ARRAY_TASK_ID", task.index);
        env.set("SLURM_ARRAY_TASK_COUNT", array.indices.len());
        env.set("SLURM_ARRAY_TASK_MIN", array.indices.first().unwrap_or(0));
        env.set("SLURM_ARRAY_TASK_MAX", array.indices.last().unwrap_or(0));
        env.set("SLURM_ARRAY_TASK_STEP", array_step(array));
    }
    options(&mut env, facts);
    components(&mut env, facts);
    env.0
}

/// Adds the variables of each component of a heterogeneous job, with the component's number in their names.
fn components(env: &mut Builder, facts: &JobFacts) {
    let number = |component: &JobFacts| component.key.job.0.saturating_sub(facts.key.job.0);
    // because most jobs have no components
    let Some(last) = facts.components.last() else { return };
    env.set(HET_SIZE, number(last) + 1);
    for component in &facts.components {
        for (name, value) in job_env(component) {
            env.0.push((format!("{name}{HET_GROUP}{}", number(component)), value));
        }
    }
}

/// Variable of jobs of which checkpoints contain the steps: `srun` starts the processes that serve them.
pub const INSIDE: &str = "SQUALL_STEPS_INSIDE";

/// Run time of an unlimited job in SLURM_JOB_END_TIME, seconds: a year, as in Slurm.
const UNLIMITED_S: u64 = 365 * 86_400;

fn whereabouts(env: &mut Builder, facts: &JobFacts) {
    let nodes = facts.nodes.as_str();
    env.set("SLURM_CLUSTER_NAME", &facts.cluster);
    env.set("SLURM_JOB_ID", facts.key.job);
    env.set("SLURM_JOBID", facts.key.job);
    env.set("SLURM_JOB_NAME", &facts.spec.name);
    env.set("SLURM_JOB_NODELIST", nodes);
    env.set("SLURM_NODELIST", nodes);
    env.set("SLURM_JOB_NUM_NODES", facts.nodes.len());
    env.set("SLURM_NNODES", facts.nodes.len());
    if let Some(nodes) = facts.spec.options.segment {
        env.set("SLURM_JOB_SEGMENT_SIZE", nodes);
    }
    env.set("SLURM_JOB_PARTITION", &facts.partition);
    env.set("SLURM_JOB_START_TIME", facts.start.secs());
    env.set("SLURM_JOB_END_TIME", facts.end.map_or(facts.start.secs() + UNLIMITED_S, Time::secs));
    env.set("SLURM_SUBMIT_DIR", facts.spec.options.shown.submit_dir.as_ref().unwrap_or(&facts.spec.work_dir));
    env.set("SLURM_SUBMIT_HOST", &facts.spec.submit_host);
    if facts.restarts > 0 {
        env.set("SLURM_RESTART_COUNT", facts.restarts);
    }
    if let Some(changed) = facts.changed.as_ref().filter(|changed| !changed.spares.is_empty()) {
        env.set("SQUALL_SPARE_NODELIST", changed.spares.as_str());
    }
    if facts.inside == Some(true) {
        env.set(INSIDE, 1);
    }
}

fn owner(env: &mut Builder, facts: &JobFacts) {
    env.set("SLURM_JOB_ACCOUNT", &facts.account);
    env.set("SLURM_JOB_QOS", &facts.qos);
    env.set("SLURM_JOB_UID", facts.owner.uid);
    env.set("SLURM_JOB_USER", &facts.owner.user);
    env.set("SLURM_JOB_GID", facts.owner.gid);
    env.set("SLURM_JOB_GROUP", &facts.owner.group);
}

fn counts(env: &mut Builder, facts: &JobFacts) {
    let need = &facts.spec.need;
    env.set("SLURM_JOB_CPUS_PER_NODE", counts_text(&facts.cpus));
    env.set("SLURM_TASKS_PER_NODE", counts_text(&facts.tasks));
    if need.ntasks.is_some() || need.ntasks_per_node.is_some() {
        let ntasks = need.tasks_on(facts.nodes.len() as u32);
        env.set("SLURM_NTASKS", ntasks);
        env.set("SLURM_NPROCS", ntasks);
    }
    if let Some(tasks) = need.ntasks_per_node {
        env.set("SLURM_NTASKS_PER_NODE", tasks);
    }
    if let Some(cpus) = need.cpus_per_task {
        env.set("SLURM_CPUS_PER_TASK", cpus);
    }
}

/// Sets SLURM_MEM_PER_NODE or SLURM_MEM_PER_CPU, never both. Memory for each GPU is handed on as SLURM_MEM_PER_GPU.
fn memory(env: &mut Builder, facts: &JobFacts) {
    let held = facts.memory_mb.first().copied().unwrap_or(0);
    match facts.spec.need.memory {
        Memory::PerNodeMb(0) => env.set("SLURM_MEM_PER_NODE", held),
        Memory::PerNodeMb(mb) => env.set("SLURM_MEM_PER_NODE", mb),
        Memory::PerCpuMb(mb) => env.set("SLURM_MEM_PER_CPU", mb),
        Memory::Unset if held == 0 || facts.spec.options.gpus.memory_mb.is_some() => {}
        Memory::Unset => {
            env.set("SLURM_MEM_PER_CPU", held / u64::from(facts.cpus.first().copied().unwrap_or(1).max(1)));
        }
    }
}

/// Sets variables to the job's options as given.
fn options(env: &mut Builder, facts: &JobFacts) {
    let spec = &facts.spec;
    if let Some(dependency) = &spec.dependency {
        env.set("SLURM_JOB_DEPENDENCY", dependency_text(dependency));
    }
    if let Some(reservation) = &spec.reservation {
        env.set("SLURM_JOB_RESERVATION", reservation);
    }
    if let Some(licenses) = &spec.need.licenses {
        env.set("SLURM_JOB_LICENSES", licenses);
    }
    if let Some(wckey) = &spec.wckey {
        env.set("SLURM_WCKEY", wckey);
    }
    if let Some(append) = spec.append {
        env.set("SLURM_OPEN_MODE", if append { "a" } else { "t" });
    }
    if spec.need.overcommit {
        env.set("SLURM_OVERCOMMIT", 1);
    }
    if spec.need.spread {
        env.set("SLURM_SPREAD_JOB", 1);
    }
    env.set("SLURM_UMASK", format_args!("{:04o}", spec.umask & 0o777));
    env.set("SLURM_PRIO_PROCESS", 0);
    handed_on(env, &HANDED_ON, &spec.options);
    plane(env, &spec.options);
    // The command of salloc runs outside of the container, for the steps in the allocation.
    if let (JobKind::Allocation, Some(container)) = (spec.kind, spec.options.container()) {
        for (name, value) in container.variables() {
            env.set(name, value);
        }
    }
}

fn handed_on(env: &mut Builder, variables: &[HandedOn], options: &Chosen) {
    for (variable, of) in variables {
        if let Some(value) = of(options) {
            env.set(variable, value);
        }
    }
}

/// Sets the two variables of `--distribution=plane=SIZE`: one for the kind and one for the size.
fn plane(env: &mut Builder, options: &Chosen) {
    if let Some(size) = options.distribution.as_ref().and_then(|given| given.text.strip_prefix("plane=")) {
        env.set("SLURM_DISTRIBUTION", "plane");
        env.set("SLURM_DIST_PLANESIZE", size);
    }
}

/// Returns the step of `--array=FIRST-LAST:STEP`; 1 for any other form.
fn array_step(array: &ArraySpec) -> u32 {
    let text = array.text.split('%').next().unwrap_or_default();
    match text.split_once(':') {
        Some((range, step)) if !range.contains(',') => step.parse().unwrap_or(1),
        _ => 1,
    }
}

/// Returns the variables of every process of a step on this node, in addition to [`job_env`]. For a batch script:
/// variables that only exist on a node, so that `salloc`'s command does not have them.
pub fn step_env(launch: &StepLaunch) -> Env {
    let mut env = Builder::default();
    let node = launch.node.as_str();
    env.set("SLURMD_NODENAME", node);
    let facts = &launch.facts;
    let above = facts.addresses.above.get(launch.job_node_index as usize).map_or("", String::as_str);
    let pattern = if facts.addresses.pattern.is_empty() { "node" } else { &facts.addresses.pattern };
    env.set("SLURM_TOPOLOGY_ADDR", format_args!("{above}{node}"));
    env.set("SLURM_TOPOLOGY_ADDR_PATTERN", pattern);
    env.set("SLURM_CPUS_ON_NODE", launch.cores.len());
    env.set("SLURM_GTIDS", joined(launch.ranks().into_iter().map(|rank| launch.rank_among(rank))));
    if let Some(gpus) = launch.gres.get(GPU).filter(|gpus| !gpus.is_empty()) {
        env.set("SLURM_GPUS_ON_NODE", gpus.len());
        let script = launch.program == Program::Batch;
        env.set(if script { "SLURM_JOB_GPUS" } else { "SLURM_STEP_GPUS" }, joined(gpus.iter()));
        visible(&mut env, launch, gpus);
    } else if let Some(shared) = &launch.shared {
        env.set(if shared.name == "mps" { "SLURM_MPS_ON_NODE" } else { "SLURM_SHARDS_ON_NODE" }, shared.count);
        if shared.name == "mps" {
            env.set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", shared.percent);
        }
        visible(&mut env, launch, &shared.gpus);
    } else if matches!(launch.program, Program::Tasks(_)) && facts.gres.iter().any(|grant| grant.name == GPU) {
        // The step inherits variables from its job's script that name the job's GPUs, but it asked for none.
        env.set("SLURM_GPUS_ON_NODE", 0);
        visible(&mut env, launch, &CoreSet::new());
    }
    match &launch.program {
        Program::Batch => {
            env.set("ENVIRONMENT", "BATCH");
            env.set("HOSTNAME", node);
        }
        Program::Tasks(program) => {
            step_numbers(&mut env, launch);
            let nodes = match launch.layout.distribution {
                // Slurm calls it cyclic if each node has one task.
                Distribution::Block if launch.layout.ntasks() as usize > launch.layout.nodes.len() => "block",
                Distribution::Block | Distribution::Cyclic => "cyclic",
                Distribution::Plane(_) => "plane",
                Distribution::Arbitrary(_) => "arbitrary",
            };
            env.set("SLURM_DISTRIBUTION", nodes);
            env.set("SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", counts_text(&facts.cpus));
            client(&mut env, program);
        }
        Program::Timer { .. } => step_numbers(&mut env, launch),
    }
    env.0
}

/// Name of the generic resource with devices that programs find in environment variables.
const GPU: &str = "gpu";

/// Sets the variables that tell a program which GPUs it may use, for GPUs of any vendor. Programs that can't open other
/// GPUs than their step's count these from 0. Parts of GPUs (MIG) have names.
fn visible(env: &mut Builder, launch: &StepLaunch, gpus: &CoreSet) {
    let all = launch.gres.get(GPU).or_else(|| Some(&launch.shared.as_ref()?.gpus)).filter(|_| launch.sees_own_gpus);
    let own =
        all.map(|all| all.iter().enumerate().filter(|(_, gpu)| gpus.contains(*gpu)).map(|(place, _)| place).collect());
    let numbers = own.as_ref().unwrap_or(gpus);
    for name in ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"] {
        env.set(name, joined(numbers.iter()));
    }
    if gpus.iter().any(|gpu| launch.gpu_ids.contains_key(&(gpu as u32))) {
        let ids = gpus.iter().filter_map(|gpu| launch.gpu_ids.get(&(gpu as u32)));
        env.set("CUDA_VISIBLE_DEVICES", joined(ids));
    }
}

/// Returns the GPUs of one task among those of its step on the node; None: the task shares all of the step's GPUs.
/// `--gpu-bind` has precedence. Without it `--ntasks-per-gpu=N` binds as `single:N`, and `--gpus-per-task=N` as
/// `per_task:N`, as in Slurm. A task for which a binding leaves no GPU gets the first.
fn task_gpus(launch: &StepLaunch, local: u32) -> Option<CoreSet> {
    let Program::Tasks(program) = &launch.program else { return None };
    let gpus = launch.gres.get(GPU)?;
    let asked = &program.options.gpus;
    let local = local as usize;
    // With `single:N`, N consecutive tasks share one GPU.
    let single = |tasks: u32| part(gpus, local / tasks.max(1) as usize % gpus.len().max(1), 1);
    let own: CoreSet = match asked.bind.as_ref().map(|given| &given.value) {
        Some(GpuBind::Map(places)) => {
            let place = *places.get(local % places.len().max(1))?;
            gpus.iter().nth(place as usize).into_iter().collect()
        }
        Some(GpuBind::Mask(masks)) => {
            let mask = masks.get(local % masks.len().max(1))?;
            gpus.iter().enumerate().filter(|(place, _)| mask.contains(*place)).map(|(_, gpu)| gpu).collect()
        }
        Some(GpuBind::PerTask(each)) => part(gpus, local, *each as usize),
        Some(GpuBind::Single(tasks)) => single(*tasks),
        // See `closest_env`.
        Some(GpuBind::None | GpuBind::Closest) => return None,
        None => match (asked.tasks, asked.per_task.as_ref().and_then(GpuCount::count)) {
            (Some(tasks), _) => single(tasks),
            (None, Some(each @ 1..)) => part(gpus, local, each as usize),
            (None, _) => return None,
        },
    };
    let own = if own.is_empty() { part(gpus, 0, 1) } else { own };
    (!own.is_empty()).then_some(own)
}

/// Returns the variables of a task with `--gpu-bind=closest` on these CPUs: of the step's GPUs it may use those that are
/// near one of the CPUs, or all if there are none. Empty: the step has another binding.
pub fn closest_env(launch: &StepLaunch, cpus: &CoreSet) -> Env {
    let mut env = Builder::default();
    if let (Program::Tasks(program), Some(gpus)) = (&launch.program, launch.gres.get(GPU))
        && program.options.gpus.bind.as_ref().is_some_and(|given| given.value == GpuBind::Closest)
    {
        let is_near = |gpu: &usize| launch.gpu_cpus.get(&(*gpu as u32)).is_none_or(|near| !near.is_disjoint(cpus));
        let near: CoreSet = gpus.iter().filter(is_near).collect();
        visible(&mut env, launch, if near.is_empty() { gpus } else { &near });
    }
    env.0
}

/// Returns part number `place`, from 0, of GPUs that are split into parts of `each`.
fn part(gpus: &CoreSet, place: usize, each: usize) -> CoreSet {
    gpus.iter().skip(place.saturating_mul(each)).take(each).collect()
}

fn step_numbers(env: &mut Builder, launch: &StepLaunch) {
    let layout = &launch.layout;
    let tasks = counts_text(&layout.tasks);
    let preserves = |program: &Program| matches!(program, Program::Tasks(p) if p.options.step.preserve_env);
    if !preserves(&launch.program) {
        let own = (layout.nodes.len() as u32, layout.ntasks());
        let (nodes, ntasks) = launch.among().map_or(own, |among| (among.nodes, among.tasks));
        env.set("SLURM_NNODES", nodes);
        env.set("SLURM_NTASKS", ntasks);
        env.set("SLURM_NPROCS", ntasks);
        env.set("SLURM_TASKS_PER_NODE", &tasks);
    }
    env.set("SLURM_STEP_ID", launch.key.step);
    env.set("SLURM_STEPID", launch.key.step);
    env.set("SLURM_STEP_NODELIST", layout.nodes.as_str());
    env.set("SLURM_STEP_NUM_NODES", layout.nodes.len());
    env.set("SLURM_STEP_NUM_TASKS", layout.ntasks());
    env.set("SLURM_STEP_TASKS_PER_NODE", tasks);
    if let Some(ports) = &layout.ports {
        env.set("SLURM_STEP_RESV_PORTS", ports);
    }
    if layout.cpus_per_task > 1 {
        env.set("SLURM_CPUS_PER_TASK", layout.cpus_per_task);
    }
}

/// Sets variables from `srun`'s address and options.
fn client(env: &mut Builder, program: &TaskProgram) {
    let (host, port) = match &program.client {
        ClientAddress::Tcp(address) | ClientAddress::Anywhere { address, .. } => {
            address.rsplit_once(':').map_or((address.as_str(), None), |(host, port)| (host, Some(port)))
        }
        ClientAddress::Abstract(_) | ClientAddress::None => ("127.0.0.1", None),
    };
    env.set("SLURM_LAUNCH_NODE_IPADDR", host);
    env.set("SLURM_SRUN_COMM_HOST", host);
    if let Some(port) = port {
        env.set("SLURM_SRUN_COMM_PORT", port);
        env.set("SLURM_STEP_LAUNCHER_PORT", port);
    }
    env.set("SLURM_UMASK", format_args!("{:04o}", program.umask & 0o777));
    handed_on(env, &HANDED_ON, &program.options);
    plane(env, &program.options);
    handed_on(env, &HANDED_ON_TO_STEP, &program.options);
    if let Some((rows, columns)) = program.pty {
        env.set("SLURM_PTY_WIN_ROW", rows);
        env.set("SLURM_PTY_WIN_COL", columns);
    }
    if let Some(export) = &program.export {
        env.set("SLURM_EXPORT_ENV", export);
    }
}

/// Returns `--cpu-bind` in the four variables that Slurm sets. `masks`: the CPUs of each of the node's tasks; None:
/// they are not bound.
pub fn bind_env(bind: &CpuBind, masks: Option<&[CoreSet]>) -> Env {
    let mut env = Builder::default();
    let verbose = if bind.verbose { "verbose" } else { "quiet" };
    let (kind, list) = match (&bind.way, masks) {
        (BindMethod::Unsaid, None) => ("", String::new()),
        (BindMethod::Rank, _) => ("rank", String::new()),
        (BindMethod::Map(cpus), _) => ("map_cpu:", joined(cpus)),
        (BindMethod::Mask(masks), _) => ("mask_cpu:", joined(masks.iter().map(hex))),
        (BindMethod::Units(_) | BindMethod::Unsaid, Some(masks)) => ("mask_cpu:", joined(masks.iter().map(hex))),
        (BindMethod::None | BindMethod::Units(_), _) => ("none", String::new()),
    };
    env.set("SLURM_CPU_BIND_VERBOSE", verbose);
    env.set("SLURM_CPU_BIND_TYPE", kind);
    env.set("SLURM_CPU_BIND_LIST", &list);
    let comma = if kind.is_empty() { "" } else { "," };
    env.set("SLURM_CPU_BIND", format_args!("{verbose}{comma}{kind}{list}"));
    env.0
}

/// Returns the variables of one task in addition to [`step_env`]. `local` is its position among the node's tasks; the
/// batch script is task 0 of 1. Without `pid`, which is not known before the fork, the caller sets SLURM_TASK_PID.
pub fn task_env(launch: &StepLaunch, local: u32, rank: u32, pid: Option<u32>) -> Env {
    let mut env = Builder::default();
    env.set("SLURM_PROCID", launch.rank_among(rank));
    env.set("SLURM_LOCALID", local);
    env.set("SLURM_NODEID", launch.node_index + launch.among().unwrap_or_default().nodes_before);
    if let Some(pid) = pid {
        env.set("SLURM_TASK_PID", pid);
    }
    if let Some(gpus) = task_gpus(launch, local) {
        visible(&mut env, launch, &gpus);
    }
    env.0
}

/// Returns counts per node with repetitions folded: `4(x2),2`.
pub fn counts_text(counts: &Runs<u32>) -> String {
    let text = |(count, times)| if times == 1 { format!("{count}") } else { format!("{count}(x{times})") };
    joined(counts.runs().map(text))
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// Collected variables; a later value of the same name replaces an earlier one.
#[derive(Default)]
struct Builder(Env);

impl Builder {
    #[expect(clippy::needless_pass_by_value, reason = "reads better at forty places than a reference to each")]
    fn set(&mut self, name: &str, value: impl ToString) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.to_string(),
            None => self.0.push((name.to_owned(), value.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
