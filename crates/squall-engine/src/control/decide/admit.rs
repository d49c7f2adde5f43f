//! Checks whether a job can be accepted. What can never work is refused at once; what only has to wait is accepted.

use squall_model::config::PartitionConfig;
use squall_model::duration::format_limit;
use squall_model::gres::{self, Count, NodeGres};
use squall_model::hostlist;
use squall_model::id::JobId;
use squall_model::job::gpus;
use squall_model::job::mail::is_recipients;
use squall_model::job::network::Network;
use squall_model::job::options::Chosen;
use squall_model::job::{Dependency, DependencyKind, JobKind, JobSpec, Need, Owner};
use squall_model::license;
use squall_model::limits::{
    DEPENDENCY_TERMS_MAX, ENV_BYTES_MAX, NODES_MAX, SCRIPT_BYTES_MAX, SPACE_MB_MAX, STRING_BYTES_MAX, TASKS_MAX,
    TASKS_PER_NODE_MAX,
};
use squall_model::places::OnNodeFail;
use squall_model::policy::{EnforcePartLimits, Limit, Whose};
use squall_model::resource::Memory;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::Refusal;
use squall_sched::{Constraint, preferred};

use crate::control::decide::association;
use crate::control::decide::rights::{Deed, can};
use crate::control::decide::select::nodes_named;
use crate::control::effects::checkpoint::without_checkpoints;
use crate::control::index::bars;
use crate::control::index::lanes::exemptions;
use crate::control::index::network;
use crate::control::port::Who;
use crate::control::state::State;
use crate::control::state::gates::qos_of;
use crate::control::state::node::{Node, Partition};
use crate::control::state::users::content_of;

/// Checks a job's spec in Slurm's order: that everything it names exists, then sizes, resources, array and dependency.
pub(crate) fn admit(state: &State, now: Time, who: &Who, spec: &JobSpec) -> Result<(), Refusal> {
    strings(spec)?;
    container(state, spec)?;
    recipients(spec.mail_user.as_deref())?;
    privileges(who, spec)?;
    reboot(state, who, spec)?;
    node_failures(state, spec)?;
    checkpoints(state, spec)?;
    times(now, spec)?;
    reservation(state, &who.owner, spec)?;
    place(state, &who.owner, spec)?;
    within_partitions(state, &who.owner, spec)?;
    array(state, spec)?;
    network::admit(state, spec, || {
        let partitions = partitions(state, &who.owner, spec).unwrap_or_default();
        tasks_each(state, &partitions, &spec.need)
    })?;
    if let Some(dependency) = &spec.dependency {
        dependable(state, dependency)?;
    }
    let size = spec.array.as_ref().map_or(1, |array| array.indices.len() as u64);
    association::within_limits(state, &who.owner, spec, size)?;
    if !who.operator {
        share(state, who.owner.uid, size, spec)?;
    }
    let most = state.config.max_job_count;
    let full = state.index.pending + state.index.active + size > u64::from(most);
    if full { Err(Refusal::QueueFull(most)) } else { Ok(()) }
}

/// Refuses a submission beyond the limits for one user: number of jobs, and stored bytes of content.
fn share(state: &State, uid: u32, size: u64, spec: &JobSpec) -> Result<(), Refusal> {
    let (has, config) = (state.index.users.of(uid), &state.config);
    if config.max_jobs_per_user > 0 && has.jobs + size > u64::from(config.max_jobs_per_user) {
        return Err(Refusal::Limit(Whose::Qos, Limit::UserSubmit));
    }
    let most = u64::from(config.max_content_per_user_mb) << 20;
    if most > 0 && has.content + content_of(spec) > most {
        return Err(Refusal::TooLarge("content of all jobs of the user (max_content_per_user_mb)".to_owned(), most));
    }
    Ok(())
}

/// Checks that the job's partitions exist and have the resources that the job asks for.
pub(crate) fn place(state: &State, owner: &Owner, spec: &JobSpec) -> Result<(), Refusal> {
    let partitions = partitions(state, owner, spec)?;
    counts(&spec.need)?;
    let most = state.config.max_tasks_per_node.min(TASKS_PER_NODE_MAX);
    if let Some(tasks) = spec.need.ntasks_per_node.filter(|tasks| *tasks > most) {
        let problem = format!("steps have {most} tasks on a node at most (max_tasks_per_node)");
        return Err(invalid("ntasks-per-node", &tasks.to_string(), &problem));
    }
    names(state, spec)?;
    resources(state, &partitions, &spec.need)?;
    devices(state, &partitions, spec)
}

/// Applies `EnforcePartLimits`: refuses a job that exceeds the limits of one of its partitions (`ALL`) or of every one
/// (`ANY`). With `NO` such a job is accepted and waits.
pub(crate) fn within_partitions(state: &State, owner: &Owner, spec: &JobSpec) -> Result<(), Refusal> {
    let enforce = state.config.enforce_part_limits;
    if enforce == EnforcePartLimits::No {
        return Ok(());
    }
    let partitions = partitions(state, owner, spec)?;
    let judged = partitions.iter().map(|partition| within(state, partition, spec));
    match enforce {
        EnforcePartLimits::All => judged.collect(),
        _ => judged.reduce(Result::or).unwrap_or(Ok(())),
    }
}

/// Checks that a job keeps to a partition's limits: time, number of nodes, and total CPUs.
fn within(state: &State, partition: &Partition, spec: &JobSpec) -> Result<(), Refusal> {
    let (config, need) = (&partition.config, &spec.need);
    let name = &config.name;
    let limit = spec.limit_s();
    let exempt = exemptions(state, spec);
    if let Some(most) = config.max_time_s.filter(|_| !exempt.time)
        && limit.is_some_and(|limit| limit.is_none_or(|limit| limit > most))
    {
        let problem = format!("partition {name} allows {} at most", format_limit(Some(most)));
        return Err(invalid("time", &format_limit(limit.flatten()), &problem));
    }
    let least = need.nodes_min.unwrap_or(1);
    let most = config.max_nodes.filter(|_| !exempt.nodes_max).unwrap_or(u32::MAX).min(partition.nodes.len() as u32);
    let fewest = if exempt.nodes_min { 1 } else { config.min_nodes };
    if least > most || need.nodes_max.is_some_and(|most| most < fewest) {
        let problem = format!("jobs of partition {name} have {} to {most} nodes", fewest.max(1));
        return Err(invalid("nodes", &least.to_string(), &problem));
    }
    let tasks = need.ntasks.unwrap_or_else(|| least.saturating_mul(need.ntasks_per_node.unwrap_or(1)));
    let cpus = if need.overcommit { least } else { tasks.saturating_mul(need.cpus_per_task.unwrap_or(1)) };
    let cpus_of = || partition.nodes.iter().filter_map(|id| state.node(id)).map(|node| node.hardware.cpus);
    // A node that has not registered yet may have any number.
    let enough = cpus_of().any(|has| has == 0) || cpus_of().map(u64::from).sum::<u64>() >= u64::from(cpus);
    if enough { Ok(()) } else { Err(Refusal::TooManyRequested("CPUs".to_owned())) }
}

/// Refuses a script or environment that is too large, and a batch job without a script.
pub(crate) fn contents(kind: JobKind, script: &[u8], env: &[u8]) -> Result<(), Refusal> {
    if script.len() > SCRIPT_BYTES_MAX {
        return Err(Refusal::TooLarge("batch script".to_owned(), SCRIPT_BYTES_MAX as u64));
    }
    if env.len() > ENV_BYTES_MAX {
        return Err(Refusal::TooLarge("environment".to_owned(), ENV_BYTES_MAX as u64));
    }
    if kind == JobKind::Batch && script.is_empty() {
        return Err(invalid("script", "", "a batch job needs a script"));
    }
    Ok(())
}

/// Refuses recipients of mail that a mail program could take for something else.
pub(crate) fn recipients(names: Option<&str>) -> Result<(), Refusal> {
    match names {
        Some(names) if !is_recipients(names) => {
            Err(invalid("mail-user", names, "use names of users or addresses, separated by commas"))
        }
        _ => Ok(()),
    }
}

/// Refuses a job in a container where the site has switched containers off.
fn container(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let asked = spec.options.get().and_then(Chosen::container);
    match asked {
        Some(container) if state.config.container_runtime == "none" => {
            let value = container.bundle.as_deref().or(container.image.as_deref()).unwrap_or_default();
            Err(invalid("container", value, "this cluster runs no containers (container_runtime = \"none\")"))
        }
        _ => Ok(()),
    }
}

fn invalid(option: &str, value: &str, problem: &str) -> Refusal {
    Refusal::InvalidValue { option: option.to_owned(), value: value.to_owned(), problem: problem.to_owned() }
}

/// Refuses a spec with a text, an argument list or a list of resource limits that is too long.
pub(crate) fn strings(spec: &JobSpec) -> Result<(), Refusal> {
    let long = spec.texts().any(|text| text.len() > STRING_BYTES_MAX);
    let args: usize = spec.args.iter().map(|arg| arg.len() + 1).sum();
    if long || args > ENV_BYTES_MAX || spec.options.bytes() > STRING_BYTES_MAX || spec.rlimits.len() > 64 {
        return Err(Refusal::TooLarge("option".to_owned(), STRING_BYTES_MAX as u64));
    }
    Ok(())
}

fn privileges(who: &Who, spec: &JobSpec) -> Result<(), Refusal> {
    let raised = spec.priority.is_some_and(|priority| priority != 0);
    if raised && !can(who, Deed::Operate) { Err(Refusal::AccessDenied) } else { Ok(()) }
}

/// Refuses a job that wants its nodes rebooted, if its user may not do that or nothing would reboot them.
pub(crate) fn reboot(state: &State, who: &Who, spec: &JobSpec) -> Result<(), Refusal> {
    if !spec.options.reboots() {
        return Ok(());
    }
    let problem = match () {
        () if !can(who, Deed::Operate) => "only operators may have nodes rebooted",
        () if state.cluster_version < ClusterVersion::PROGRAMS => "nodes are not rebooted before `scontrol upgrade`",
        () if state.config.health.reboot_program.is_empty() => {
            "RebootProgram is not configured: set reboot_program in [health]"
        }
        () => return Ok(()),
    };
    Err(invalid("reboot", "", problem))
}

/// Refuses `--checkpoint` on a cluster without checkpoints.
fn checkpoints(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let asked = spec.options.get().is_some_and(|options| options.checkpoint.is_some());
    match without_checkpoints(state).filter(|_| asked) {
        Some(problem) => Err(invalid("checkpoint", "", problem)),
        None => Ok(()),
    }
}

/// Refuses what a job asks for about failing nodes, if it can't have that.
pub(crate) fn node_failures(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let Some(options) = spec.options.get() else { return Ok(()) };
    let replaces = options.on_node_fail == Some(OnNodeFail::Replace);
    let spares = options.spares() > 0;
    if (replaces || spares) && state.cluster_version < ClusterVersion::NODES_REPLACED {
        let option = if replaces { "on-node-fail" } else { "spare-nodes" };
        return Err(invalid(option, "", "nodes of running jobs are not replaced before `scontrol upgrade`"));
    }
    if (replaces || spares) && options.network != Network::default() {
        let option = if replaces { "on-node-fail" } else { "spare-nodes" };
        let problem =
            "a job that asks for positions of its nodes in the network can't get another node: leave one of both out";
        return Err(invalid(option, "", problem));
    }
    let need = &spec.need;
    let fixed = need.nodes_min.is_some_and(|nodes| nodes > 0 && need.nodes_max.is_none_or(|most| most == nodes));
    if spares && !fixed {
        let value = options.spares().to_string();
        return Err(invalid("spare-nodes", &value, "give the number of nodes that work, too, such as --nodes=4"));
    }
    Ok(())
}

fn partitions<'a>(state: &'a State, owner: &Owner, spec: &JobSpec) -> Result<Vec<&'a Partition>, Refusal> {
    let named: Vec<&str> = match &spec.partition {
        Some(names) => names.split(',').collect(),
        None => state.default_partition().map(|p| p.config.name.as_str()).into_iter().collect(),
    };
    let mut found = Vec::new();
    for name in named {
        let partition = state.partition(name).ok_or_else(|| Refusal::InvalidPartition(name.to_owned()))?;
        let roots = partition.config.disable_root_jobs.unwrap_or(state.config.disable_root_jobs);
        if !allowed(&partition.config, owner) || (owner.uid == 0 && roots) {
            return Err(Refusal::AccessDenied);
        }
        if partition.config.req_resv && spec.reservation.is_none() {
            return Err(invalid("partition", name, "its jobs need a reservation: --reservation=NAME"));
        }
        if !partition.config.takes_jobs_from(&spec.submit_host) {
            let hosts = &partition.config.alloc_nodes;
            return Err(invalid("partition", name, &format!("its jobs are submitted from {hosts}")));
        }
        association::partition_takes(state, &partition.config, spec)?;
        if !partition.takes_jobs() {
            return Err(Refusal::PartitionNotAvailable(name.to_owned()));
        }
        found.push(partition);
    }
    if found.is_empty() { Err(Refusal::InvalidPartition(String::new())) } else { Ok(found) }
}

fn allowed(partition: &PartitionConfig, owner: &Owner) -> bool {
    let user = partition.allow_users.is_empty() || partition.allow_users.contains(&owner.user);
    let group = partition.allow_groups.is_empty() || partition.allow_groups.contains(&owner.group);
    owner.uid == 0 || (user && group && !partition.root_only)
}

pub(crate) fn times(now: Time, spec: &JobSpec) -> Result<(), Refusal> {
    if let (Some(least), Some(limit)) = (spec.time_min_s, spec.time_limit_s)
        && least > limit
    {
        return Err(invalid("time-min", "", "it is longer than --time"));
    }
    if spec.deadline.is_some_and(|deadline| deadline <= now) {
        return Err(invalid("deadline", "", "it has passed"));
    }
    if spec.latest_start(spec.limit_s().flatten()).is_some_and(|latest| latest < now) {
        let problem = "the job could not end by then: ask for less --time, or for a --time-min that it can do with";
        let asked = if spec.time_min_s.is_some_and(|least| least > 0) { "time-min" } else { "deadline" };
        return Err(invalid(asked, "", problem));
    }
    Ok(())
}

/// Checks that the reservations that a job names exist and admit its user. Root may use any.
pub(crate) fn reservation(state: &State, owner: &Owner, spec: &JobSpec) -> Result<(), Refusal> {
    if spec.reservation.is_none() && qos_of(state, spec).is_some_and(|qos| qos.has("RequiresReservation")) {
        let qos = spec.qos.as_deref().unwrap_or(&state.config.default_qos);
        return Err(invalid("qos", qos, "its jobs need a reservation: --reservation=NAME"));
    }
    let partitions: Vec<&str> = match &spec.partition {
        Some(names) => names.split(',').collect(),
        None => state.default_partition().map(|p| p.config.name.as_str()).into_iter().collect(),
    };
    for name in spec.reservations() {
        let known = state.reservations.get(name);
        let known =
            known.ok_or_else(|| Refusal::ReservationInvalid(format!("there is no reservation called {name}")))?;
        if !bars::admits(state, (owner, spec), known, &partitions) {
            return Err(Refusal::ReservationAccess(name.to_owned()));
        }
    }
    Ok(())
}

fn counts(need: &Need) -> Result<(), Refusal> {
    let zero = |count: Option<u32>| count == Some(0);
    if zero(need.nodes_min)
        || zero(need.nodes_max)
        || need.nodes_max.is_some_and(|most| most < need.nodes_min.unwrap_or(1))
    {
        return Err(invalid("nodes", "", "the least number must be at least 1, the most at least the least"));
    }
    if need.nodes_min.is_some_and(|least| least as usize > NODES_MAX) {
        return Err(invalid("nodes", "", "a cluster has at most 1048576 nodes"));
    }
    let tasks = u64::from(need.ntasks.unwrap_or(1));
    let per_node = u64::from(need.ntasks_per_node.unwrap_or(1)) * u64::from(need.nodes_min.unwrap_or(1));
    if zero(need.ntasks) || zero(need.ntasks_per_node) || tasks.max(per_node) > u64::from(TASKS_MAX) {
        return Err(invalid("ntasks", "", "must be at least 1 and at most 1048576"));
    }
    if zero(need.cpus_per_task) {
        return Err(invalid("cpus-per-task", "0", "must be at least 1"));
    }
    if let Some(cpus) = [need.cpus_per_task, need.cpus_min].into_iter().flatten().find(|cpus| *cpus > TASKS_MAX) {
        return Err(invalid("cpus-per-task", &cpus.to_string(), "no node has so many CPUs"));
    }
    let mb = match need.memory {
        Memory::Unset => 0,
        Memory::PerNodeMb(mb) | Memory::PerCpuMb(mb) => mb,
    };
    match [("mem", mb), ("tmp", need.tmp_disk_mb)].into_iter().find(|(_, mb)| *mb > SPACE_MB_MAX) {
        Some((option, mb)) => Err(invalid(option, &format!("{mb}M"), "no node has so much")),
        None => Ok(()),
    }
}

fn names(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let (need, options) = (&spec.need, &spec.options);
    let nodes_in = |list: &Option<String>| {
        let Some(list) = list else { return Ok(NodeSet::default()) };
        let names = hostlist::expand_within(list, state.nodes.len()).map_err(|_| Refusal::InvalidNode(list.clone()))?;
        nodes_named(state, names)
    };
    let (wanted, excluded) = (nodes_in(&need.nodelist)?, nodes_in(&need.exclude)?);
    if let Some(node) = wanted.iter().find(|id| excluded.contains(*id)).and_then(|id| state.node(id)) {
        return Err(Refusal::InvalidNode(node.name.clone()));
    }
    features(state, "constraint", need.constraint.as_deref())?;
    if let Some(text) = options.prefer() {
        features(state, "prefer", Some(text))?;
        if preferred(need.constraint.as_deref(), text).is_none() {
            return Err(invalid(
                "prefer",
                text,
                "with --constraint both are features with & and |, without [ ] and counts",
            ));
        }
    }
    if let Some(given) = options.gpus.per_socket.as_ref().filter(|given| given.count().is_some_and(|count| count > 0)) {
        return Err(Refusal::NotSupported(format!(
            "--gpus-per-socket={}: use --gpus-per-node or --gpus-per-task",
            given.text
        )));
    }
    need.licenses.as_ref().map_or(Ok(()), |text| licenses(state, text))
}

/// Refuses features that no node has, and a text that is no constraint.
fn features(state: &State, option: &str, text: Option<&str>) -> Result<(), Refusal> {
    let Some(text) = text else { return Ok(()) };
    let Some(constraint) = Constraint::parse(text) else {
        return Err(invalid(option, text, "feature names with & and |, [a|b] and a*COUNT are understood"));
    };
    let known = |feature: &str| state.nodes.iter().any(|node| node.hardware.features.iter().any(|f| f == feature));
    if constraint.features().all(known) { Ok(()) } else { Err(invalid(option, text, "no node has such a feature")) }
}

/// Refuses licenses that do not exist, or not in that number.
fn licenses(state: &State, text: &str) -> Result<(), Refusal> {
    let wanted = license::parse(text).ok_or_else(|| invalid("licenses", text, "use NAME:COUNT,NAME:COUNT"))?;
    let totals = state.license_totals();
    for (name, count) in &wanted {
        match totals.get(name) {
            None => return Err(invalid("licenses", text, &format!("there are no licenses called {name}"))),
            Some(total) if total < count => {
                return Err(invalid("licenses", text, &format!("there are {total} of {name} in all")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Refuses generic resources that no node has, and counts that exceed a node or the partition.
fn devices(state: &State, partitions: &[&Partition], spec: &JobSpec) -> Result<(), Refusal> {
    let gres = spec.need.gres.as_deref();
    // The text to name where there are no GPUs: the value of `--gpus`, otherwise the list of `--gres`.
    let given = |option: &str| {
        let gpus = spec.options.gpus.total.as_ref().filter(|_| option == "gpus").map(|given| given.text.as_str());
        gpus.or(gres).unwrap_or_default().to_owned()
    };
    let unreadable =
        || invalid("gres", gres.unwrap_or_default(), "use [NAME:][TYPE:]COUNT, such as gpu:2 or gpu:a100:1");
    if let Some(name) = gpus::mixed(gres, &spec.options.gpus) {
        return Err(Refusal::MixedTypes(name));
    }
    let ask = gres::Ask::of(gres, &spec.options.gpus).ok_or_else(unreadable)?;
    if ask.counts().next().is_none() {
        return Ok(());
    }
    let nodes = partitions.iter().flat_map(|partition| partition.nodes.iter());
    let nodes: Vec<&NodeGres> = nodes.filter_map(|id| state.index.gres.get(&id)).collect();
    let has = |node: &NodeGres, asked: &Count| node.vacant().tasks(&[], std::slice::from_ref(asked)).unwrap_or(0);
    let option = |asked: &Count| if spec.need.gres.is_some() && asked.name != "gpu" { "gres" } else { "gpus" };
    // Number of nodes on which the job may be, one for each task at most.
    let least = spec.need.nodes_min.unwrap_or(1);
    let width = [spec.need.ntasks, spec.need.nodes_max].into_iter().flatten().min();
    let width = width.map_or(usize::MAX, |width| width.max(least) as usize);
    for asked in ask.counts() {
        let one = Count { count: 1, ..asked.clone() };
        let most = nodes.iter().map(|node| has(node, &one)).max().unwrap_or(0);
        let name = Count { model: None, ..one.clone() };
        if most == 0 && one.model.is_some() && nodes.iter().any(|node| has(node, &name) > 0) {
            return Err(Refusal::NodeConfigNotAvailable(format!("no node of the partition has {}", asked.kind())));
        }
        if most == 0 {
            let option = if spec.need.gres.is_some() { "gres" } else { option(asked) };
            return Err(invalid(option, &given(option), &format!("no node of the partition has {}", asked.kind())));
        }
        let of_job = ask.per_job.contains(asked);
        let enough = if of_job { together(nodes.iter().map(|node| has(node, &one)).collect(), width) } else { most };
        if asked.count > enough {
            let has = match width {
                _ if !of_job => "any node has".to_owned(),
                usize::MAX => "the nodes have together".to_owned(),
                1 => "one node has".to_owned(),
                width => format!("{width} nodes have together"),
            };
            let (kind, count) = (asked.kind(), asked.count);
            return Err(Refusal::NodeConfigNotAvailable(format!(
                "{kind}:{count} is more than {has}, which is {enough}"
            )));
        }
    }
    Ok(())
}

/// Returns the sum of the `width` largest counts.
fn together(mut counts: Vec<u32>, width: usize) -> u32 {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.iter().take(width).sum()
}

/// Refuses a request for resources of which no single node has enough. A request for more nodes or tasks than there are
/// is accepted and waits.
fn resources(state: &State, partitions: &[&Partition], need: &Need) -> Result<(), Refusal> {
    let task_cpus = if need.overcommit { 1 } else { need.cpus_per_task.unwrap_or(1) };
    let tasks = need.ntasks_per_node.unwrap_or(1);
    let cpus = task_cpus.saturating_mul(if need.overcommit { 1 } else { tasks }).max(need.cpus_min.unwrap_or(1));
    let memory_mb = match need.memory {
        Memory::Unset => 0,
        Memory::PerNodeMb(mb) => mb,
        Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(cpus)),
    };
    let has_memory = |node: &Node| node.hardware.memory_mb >= memory_mb;
    let has_cpus = |node: &Node| node.hardware.cpus >= cpus;
    let has_disk = |node: &Node| node.hardware.tmp_disk_mb >= need.tmp_disk_mb;
    let mut known = known_nodes(state, partitions).peekable();
    // Usually the first node fits.
    if known.peek().is_none() || known.any(|node| has_memory(node) && has_cpus(node) && has_disk(node)) {
        return Ok(());
    }
    let any = |has: &dyn Fn(&Node) -> bool| known_nodes(state, partitions).any(has);
    let lacking = match () {
        () if !any(&has_memory) => "memory",
        () if !any(&has_cpus) => "CPUs",
        () if !any(&has_disk) => "tmp disk",
        () => "CPUs, memory and tmp disk on one node",
    };
    Err(Refusal::NodeConfigNotAvailable(lacking.to_owned()))
}

/// Returns the most tasks of a job that a node could take by its CPUs; 0: no node has registered yet.
fn tasks_each(state: &State, partitions: &[&Partition], need: &Need) -> u32 {
    let cpus = known_nodes(state, partitions).map(|node| node.hardware.cpus).max().unwrap_or_default();
    let tasks = if need.overcommit {
        need.ntasks_per_node.unwrap_or(cpus)
    } else {
        cpus / need.cpus_per_task.unwrap_or(1).max(1)
    };
    tasks.min(need.ntasks_per_node.filter(|each| *each > 0).unwrap_or(u32::MAX))
}

/// Returns those nodes of the partitions that have reported their hardware.
fn known_nodes<'a>(state: &'a State, partitions: &'a [&Partition]) -> impl Iterator<Item = &'a Node> {
    let nodes = partitions.iter().flat_map(|partition| partition.nodes.iter());
    nodes.filter_map(|id| state.node(id)).filter(|node| node.hardware.cpus > 0)
}

fn array(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let Some(array) = &spec.array else { return Ok(()) };
    let highest = state.config.max_array_size.saturating_sub(1);
    match array.indices.last() {
        None => Err(invalid("array", &array.text, "it names no task")),
        Some(last) if last > highest => Err(Refusal::ArrayTooLarge { highest }),
        Some(_) if spec.kind != JobKind::Batch => Err(invalid("array", &array.text, "only batch jobs have arrays")),
        Some(_) => Ok(()),
    }
}

/// Checks the size of a dependency, and its kinds. Jobs that are not known are accepted, as in Slurm.
pub(crate) fn dependable(state: &State, dependency: &Dependency) -> Result<(), Refusal> {
    if dependency.terms.len() > DEPENDENCY_TERMS_MAX {
        return Err(Refusal::TooLarge("dependency".to_owned(), DEPENDENCY_TERMS_MAX as u64));
    }
    let fine = dependency.terms.iter().all(|term| match term.job {
        None => term.when == DependencyKind::Singleton,
        // Tasks can't be matched with those of an array in another cell.
        Some(job) if state.is_foreign(job.id) => term.when != DependencyKind::AfterCorr,
        Some(job) => job.id != JobId(0),
    });
    if fine { Ok(()) } else { Err(Refusal::DependencyProblem) }
}
