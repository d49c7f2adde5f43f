//! `sbatch`: accepts a job durably, once for each key; or with `--test-only` returns when it would start.

use std::sync::Arc;

use squall_model::config::{PartitionConfig, Unit, too_short};
use squall_model::event::Event;
use squall_model::gang::OverSubscribe;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::gpus::Gpus;
use squall_model::job::{Blob, Digest, JobKind, JobSpec, Need};
use squall_model::limits::HET_COMPONENTS_MAX;
use squall_model::resource::Memory;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_sched::{Scratch, has_such, have_such};

use crate::control::controller::Controller;
use crate::control::decide::admit;
use crate::control::decide::allocate;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::association;
use crate::control::decide::memory;
use crate::control::decide::rights;
use crate::control::index::lanes::request_of;
use crate::control::index::pending::partitions_of;
use crate::control::index::view::Sight;
use crate::control::info::forecast;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::node::Partition;
use crate::control::state::users::note_content;

/// The script and environment of a submission, in the form in which they are stored.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The batch script; empty for allocations.
    pub(crate) script: Vec<u8>,
    /// The environment, encoded.
    pub(crate) env: Vec<u8>,
}

/// Handles `sbatch`: accepts a batch job and answers with its id.
pub(crate) fn submit(
    c: &mut Controller,
    ask: &Ask<'_>,
    spec: Arc<JobSpec>,
    contents: Contents,
    key: ClientKey,
    out: &mut Out,
) -> Reply {
    if spec.kind != JobKind::Batch {
        return Err(Refusal::NotSupported("only batch jobs are submitted".to_owned()));
    }
    let note = no_mail(&c.state, &spec);
    let (job, _) = accept(c, ask, spec, contents, key, out)?;
    Ok(Some(Answer::Submitted { job, note, message: None }))
}

/// Returns a note for a user that asks for mail on a cluster that sends none. None: there is nothing to note.
pub(crate) fn no_mail(state: &State, spec: &JobSpec) -> Option<Refusal> {
    let wanted = spec.mail_type.as_deref().is_some_and(|types| !types.eq_ignore_ascii_case("none"));
    (wanted && !state.config.sends_mail())
        .then(|| Refusal::NotSupported("no mail is sent: this cluster has neither mail_prog nor mail_relay".to_owned()))
}

/// Accepts a job, or finds the one that was accepted under the same key. Returns its id, and true if it is new.
pub(crate) fn accept(
    c: &mut Controller,
    ask: &Ask<'_>,
    spec: Arc<JobSpec>,
    contents: Contents,
    key: ClientKey,
    out: &mut Out,
) -> Result<(JobId, bool), Refusal> {
    accept_all(c, ask, [spec], contents, key, out)
}

/// Accepts the components of a heterogeneous job, or a single job, as [`accept`] does.
pub(crate) fn accept_all(
    c: &mut Controller,
    ask: &Ask<'_>,
    mut specs: impl AsMut<[Arc<JobSpec>]> + IntoIterator<Item = Arc<JobSpec>>,
    contents: Contents,
    key: ClientKey,
    out: &mut Out,
) -> Result<(JobId, bool), Refusal> {
    let env = Digest::of(&contents.env);
    let each = specs.as_mut();
    let batch = each.first().is_some_and(|spec| spec.kind == JobKind::Batch);
    let script = batch.then(|| Digest::of(&contents.script));
    for (at, spec) in each.iter_mut().enumerate() {
        c.state.lay_contents(spec, env, script.filter(|_| at == 0));
        let (within, vouched_by) = (rights::within(&c.state, ask.who, spec.within), rights::mark(&c.state, ask.who));
        if (spec.within, spec.vouched_by) != (within, vouched_by) {
            let spec = Arc::make_mut(spec);
            (spec.within, spec.vouched_by) = (within, vouched_by);
        }
    }
    let Some(first) = each.first() else { return Err(Refusal::NotSupported("no component".to_owned())) };
    if let Some(&id) = c.state.index.keys.get(&(ask.who.owner.uid, key)) {
        return if same(&c.state, id, first) { Ok((id, false)) } else { Err(Refusal::KeyReused) };
    }
    if c.leaving.is_some() {
        return Err(Refusal::ShuttingDown);
    }
    admit::contents(first.kind, &contents.script, &contents.env)?;
    let bytes = contents.script.len() + contents.env.len();
    for (at, spec) in each.iter_mut().enumerate() {
        note_content(spec, if at == 0 { bytes } else { 0 });
        settle(c, ask, spec)?;
    }
    if each.len() > 1 {
        apart(c, ask.now, each)?;
    }
    if c.disk_full {
        return Err(Refusal::DiskFull);
    }
    let size = each.len() as u32;
    let leader = give_ids(c, ask.now, each, out)?;
    out.blobs.push(Blob { digest: env, bytes: contents.env.into() });
    out.blobs.extend(script.map(|digest| Blob { digest, bytes: contents.script.into() }));
    for (offset, spec) in (0..).zip(specs) {
        let id = JobId(leader.0 + offset);
        let owner = c.state.shared_owner(&ask.who.owner);
        let spec = c.state.shared_spec(&spec);
        c.commit(ask.now, Event::JobSubmitted { id, key, owner, spec }, out);
    }
    if size > 1 {
        c.commit(ask.now, Event::HetFormed { leader, size }, out);
    }
    Ok((leader, true))
}

/// Returns the first of consecutive job ids for these jobs. If too few ids are free, records of ended jobs are removed
/// early.
fn give_ids(c: &mut Controller, now: Time, specs: &[Arc<JobSpec>], out: &mut Out) -> Result<JobId, Refusal> {
    let ids = specs.iter().map(|spec| spec.array.as_ref().map_or(1, |array| array.indices.len() as u64)).sum::<u64>();
    let ids = u32::try_from(ids).map_err(|_| Refusal::OutOfIds)?;
    if let Some(first) = c.state.free_ids(ids, specs) {
        return Ok(first);
    }
    let ended_before = Time(now.0 + 1);
    c.commit(now, Event::Forgotten { ended_before }, out);
    c.state.free_ids(ids, specs).ok_or(Refusal::OutOfIds)
}

/// Returns a job's partitions, with each that is drained or inactive replaced by its alternate. None: all take jobs.
fn alternates(state: &State, spec: &JobSpec) -> Option<String> {
    let named: Vec<&Partition> = state.partitions_of(spec).collect();
    if named.iter().all(|partition| partition.takes_jobs() || partition.config.alternate().is_none()) {
        return None;
    }
    let open = |partition: &Partition| {
        let next = |name: &String| state.partition(name)?.config.alternate().map(str::to_owned);
        let chain = std::iter::successors(Some(partition.config.name.clone()), next).take(state.partitions.len());
        let takes = |name: &String| state.partition(name).is_some_and(Partition::takes_jobs);
        chain.into_iter().find(takes).unwrap_or_else(|| partition.config.name.clone())
    };
    let mut names: Vec<String> = Vec::new();
    for name in named.into_iter().map(open) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names.join(","))
}

/// Returns the partition of the reservation that a job names, if the job names no partition.
fn of_reservation(state: &State, spec: &JobSpec) -> Option<String> {
    let mut names = spec.reservations().filter(|_| spec.partition.is_none());
    let partition = state.reservations.get(names.next()?)?.partition.as_ref()?;
    // Without this partition the job is refused by the name that it gave.
    state.partition(partition).is_some().then(|| partition.clone())
}

/// Fills in the defaults of a job's spec, and refuses a job that can never run.
fn settle(c: &Controller, ask: &Ask<'_>, spec: &mut Arc<JobSpec>) -> Result<(), Refusal> {
    if spec.nice < 0 && !ask.who.operator {
        let problem = "only operators raise a priority".to_owned();
        return Err(Refusal::InvalidValue { option: "nice".to_owned(), value: spec.nice.to_string(), problem });
    }
    if spec.array.as_ref().is_some_and(|array| array.limit == Some(0))
        && let Some(array) = &mut Arc::make_mut(spec).array
    {
        array.limit = None;
    }
    if let Some(partition) = of_reservation(&c.state, spec) {
        Arc::make_mut(spec).partition = Some(partition);
    }
    if let Some(partitions) = alternates(&c.state, spec) {
        Arc::make_mut(spec).partition = Some(partitions);
    }
    association::fill_defaults(&c.state, &ask.who.owner, spec)?;
    inherit(&c.state, spec);
    whole_nodes(&c.state, spec);
    delay_boot(&c.state, spec);
    node_fence(c, spec)?;
    memory::settle(&c.state, spec)?;
    admit::admit(&c.state, ask.now, ask.who, spec)?;
    such_nodes(c, ask.now, spec)
}

/// Refuses a job if none of its partitions has enough suitable nodes as configured: neither the end of another job nor
/// the return of a node could then let it start.
fn such_nodes(c: &Controller, now: Time, spec: &JobSpec) -> Result<(), Refusal> {
    // Most jobs need nothing that only some nodes have.
    let Need { memory, tmp_disk_mb, cpus_min, cpus_per_task, ntasks, ntasks_per_node, nodes_min, .. } = spec.need;
    let sizes =
        [cpus_min, cpus_per_task, ntasks, ntasks_per_node, nodes_min].into_iter().flatten().any(|size| size > 1);
    let Need { nodelist, exclude, constraint, gres, .. } = &spec.need;
    let named = [nodelist, exclude, constraint, gres].into_iter().any(Option::is_some);
    let options = spec.options.get();
    let gpus = options.is_some_and(|options| options.gpus != Gpus::default());
    let inside = options.is_some_and(|options| !options.inside().is_empty());
    if !sizes && !named && !gpus && !inside && memory == Memory::Unset && tmp_disk_mb == 0 {
        return Ok(());
    }
    let Some(request) = request_of(&c.state, spec) else { return Ok(()) };
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut scratch = Scratch::default();
    let mut places = partitions_of(&c.state, spec).peekable();
    if places.peek().is_none() || places.any(|at| has_such(&sight, &mut scratch, &request, at)) {
        return Ok(());
    }
    // `--hint=nomultithread` means it, too.
    let threads = options.is_some_and(|options| options.inside().threads > 0);
    let lacking = match inside {
        true if threads && c.state.config.select_type_parameters.unit == Unit::Cpu => "threads",
        true => "sockets",
        false => "such nodes",
    };
    Err(Refusal::NodeConfigNotAvailable(lacking.to_owned()))
}

/// Refuses a heterogeneous job that can never start because no two of its components share a node, as in Slurm: two of
/// them require the same one, or there are too few nodes for all.
fn apart(c: &Controller, now: Time, specs: &[Arc<JobSpec>]) -> Result<(), Refusal> {
    let read = |spec: &Arc<JobSpec>| Some((request_of(&c.state, spec)?, partitions_of(&c.state, spec).collect()));
    let Some(components) = specs.iter().map(read).collect::<Option<Vec<(_, Vec<usize>)>>>() else { return Ok(()) };
    let mut required = NodeSet::new();
    for (request, _) in &components {
        if let Some(node) = request.required.intersection(&required).first().and_then(|id| c.state.node(id)) {
            let problem = "two components name this node, but no two components share a node".to_owned();
            return Err(Refusal::InvalidValue { option: "nodelist".to_owned(), value: node.name.clone(), problem });
        }
        required.union_with(&request.required);
    }
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    if have_such(&sight, &mut Scratch::default(), &components) {
        return Ok(());
    }
    Err(Refusal::NodeConfigNotAvailable("components".to_owned()))
}

/// Applies what the cluster says of resource limits and output files to a job that says nothing of them itself.
fn inherit(state: &State, spec: &mut Arc<JobSpec>) {
    let config = &state.config;
    let stays = |(number, _): &(u32, u64)| config.propagates(*number);
    if spec.options.names_limits != Some(true) && !spec.rlimits.iter().all(stays) {
        Arc::make_mut(spec).rlimits.retain(stays);
    }
    if config.job_file_append && spec.append.is_none() {
        Arc::make_mut(spec).append = Some(true);
    }
}

/// Applies the cluster's `delay_boot` to a job that says nothing of it, where nodes are powered up for jobs.
fn delay_boot(state: &State, spec: &mut Arc<JobSpec>) {
    let delay_s = state.config.scheduler_parameters.delay_boot_s;
    if delay_s > 0 && !state.config.power.resume_program.is_empty() && spec.options.delay_boot_s.is_none() {
        Arc::make_mut(spec).options.delay_boot_s = Some(delay_s);
    }
}

/// Fills in the term of a job's node fence, and refuses one that is too short, or that has no length although none is
/// configured.
fn node_fence(c: &Controller, spec: &mut Arc<JobSpec>) -> Result<(), Refusal> {
    let asked = spec.options.get().and_then(|options| options.node_fence_s);
    let refuse = |problem: String| {
        let value = asked.filter(|fence_s| *fence_s > 0).map(|fence_s| fence_s.to_string()).unwrap_or_default();
        Err(Refusal::InvalidValue { option: "node-fence".to_owned(), value, problem })
    };
    if c.state.cluster_version < ClusterVersion::NODE_FENCES {
        return match asked {
            Some(_) => refuse("there are no node fences before `scontrol upgrade`".to_owned()),
            None => Ok(()),
        };
    }
    let least = c.state.config.node_fence_min_s(!c.here.controllers.0.is_empty());
    if let Some(fence_s) = asked.filter(|fence_s| *fence_s > 0) {
        return if fence_s < least { refuse(too_short(least)) } else { Ok(()) };
    }
    let of_partition = c.state.partitions_of(spec).find_map(|partition| partition.config.node_fence_s);
    match (of_partition.or(c.state.config.node_fence_s), asked) {
        (Some(fence_s), _) => Arc::make_mut(spec).options.node_fence_s = Some(fence_s),
        (None, Some(_)) => {
            return refuse("no node_fence_s is configured: give the seconds, as --node-fence=60".to_owned());
        }
        (None, None) => {}
    }
    Ok(())
}

/// Applies `OverSubscribe=EXCLUSIVE` of a partition, which gives its jobs whole nodes, as `--reboot` does,
/// `ExclusiveUser=YES`, which keeps other users' jobs off their nodes, and `ExclusiveTopo=YES`, which keeps all other jobs
/// off their blocks.
fn whole_nodes(state: &State, spec: &mut Arc<JobSpec>) {
    if spec.keeps_blocks() {
        return;
    }
    let all = |config: &PartitionConfig| config.oversubscribe == OverSubscribe::Exclusive;
    let none = (false, false, false);
    let (whole, user, blocks) = state.partitions_of(spec).fold(none, |(whole, user, blocks), partition| {
        let config = &partition.config;
        (whole || all(config), user || config.exclusive_user, blocks || config.exclusive_topo)
    });
    if blocks {
        let spec = Arc::make_mut(spec);
        (spec.need.exclusive, spec.options.exclusive_topo) = (true, Some(true));
    } else if spec.need.exclusive {
        // It has whole nodes already.
    } else if whole || spec.options.reboots() {
        Arc::make_mut(spec).need.exclusive = true;
    } else if user && !spec.keeps_others_off() {
        Arc::make_mut(spec).options.exclusive_user = true;
    }
}

/// Handles the submission of a heterogeneous job. The first component has the script or the client; the others are
/// additional resources.
pub(crate) fn submit_het(
    c: &mut Controller,
    ask: &Ask<'_>,
    mut specs: Vec<JobSpec>,
    contents: Contents,
    (key, immediate_s): (ClientKey, Option<u32>),
    out: &mut Out,
) -> Reply {
    if specs.len() < 2 || specs.len() > HET_COMPONENTS_MAX {
        return Err(Refusal::TooManyRequested(format!("{} components", specs.len())));
    }
    if specs.iter().any(|spec| spec.array.is_some()) {
        return Err(Refusal::HetArray);
    }
    let (first, others) = specs.split_at_mut(1);
    let kind = first[0].kind;
    for spec in others {
        spec.kind = JobKind::Component;
        spec.requeue = if kind == JobKind::Batch { first[0].requeue } else { Some(false) };
        (spec.mail_type, spec.mail_user, spec.args) = (None, None, Vec::new());
    }
    let specs: Vec<_> = specs.into_iter().map(Arc::new).collect();
    let (job, fresh) = accept_all(c, ask, specs, contents, key, out)?;
    if kind.is_owned() {
        allocate::own(c, ask, job, immediate_s.filter(|_| fresh));
    }
    Ok(Some(Answer::Submitted { job, note: None, message: None }))
}

/// Returns whether the job `id` came from this submission, compared by fields that updates do not change.
fn same(state: &State, id: JobId, spec: &JobSpec) -> bool {
    let known = state.arrays.get(&id).map(|array| &array.spec);
    let Some(known) = known.or_else(|| state.jobs.get(&id).map(|job| &job.spec)) else { return false };
    // A submit filter may have changed what the job runs, and is not asked again.
    let contents = known.options.get().is_some_and(|options| options.filtered.is_some())
        || (known.script == spec.script && known.env == spec.env);
    contents
        && known.kind == spec.kind
        && known.args == spec.args
        && known.command == spec.command
        && known.submit_line == spec.submit_line
        && known.array.as_ref().map(|array| &array.indices) == spec.array.as_ref().map(|array| &array.indices)
}

/// Handles `sbatch --test-only`: returns when and where the job would start, behind all pending jobs.
pub(crate) fn test(c: &mut Controller, ask: &Ask<'_>, mut spec: Arc<JobSpec>) -> Reply {
    association::fill_defaults(&c.state, &ask.who.owner, &mut spec)?;
    whole_nodes(&c.state, &mut spec);
    memory::settle(&c.state, &mut spec)?;
    let spec = &*spec;
    admit::admit(&c.state, ask.now, ask.who, spec)?;
    let best = forecast::trial(c, ask.now, &ask.who.owner, spec);
    let (time, at, alloc) = best.ok_or_else(|| Refusal::NodeConfigNotAvailable("nodes".to_owned()))?;
    let names = alloc.nodes();
    let names = names.iter().filter_map(|id| c.state.node(id)).map(|node| node.name.as_str());
    let answer = Answer::WouldStart {
        job: c.state.next_id(),
        time,
        cpus: alloc.cpus(),
        nodes: squall_model::hostlist::compress(names),
        partition: c.state.partitions[at].config.name.clone(),
    };
    Ok(Some(answer))
}
