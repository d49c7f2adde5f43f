//! `scontrol update jobid=`: changes jobs after their submission.

use std::collections::BTreeSet;
use std::sync::Arc;

use squall_model::event::{Event, JobChange};
use squall_model::id::JobId;
use squall_model::job::{Dependency, JobKind, JobSpec, Owner};
use squall_model::limits::{STRING_BYTES_MAX, UNLIMITED_S};
use squall_model::resource::Alloc;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{JobSelection, JobUpdate, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::admit;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::association;
use crate::control::decide::each::to_each;
use crate::control::decide::memory;
use crate::control::decide::select::{nodes_of, select_to_change};
use crate::control::effects::billing;
use crate::control::index::facts;
use crate::control::index::reckon::Standee;
use crate::control::info::waiting::priority;
use crate::control::port::{Out, Who};
use crate::control::state::State;
use crate::control::state::job::{Hold, Job, Phase, Queue};

/// Changes jobs. Owners may reduce what they asked for. Only an operator may give a running job more time, or raise a
/// job's priority.
pub(crate) fn update_job(
    c: &mut Controller,
    ask: &Ask<'_>,
    jobs: &JobSelection,
    update: &JobUpdate,
    out: &mut Out,
) -> Reply {
    admit::recipients(update.mail_user.as_deref())?;
    let selected = select_to_change(&c.state, ask.who, jobs)?;
    if let Some(limit) = update.array_limit {
        for &id in &selected.whole {
            let change = JobChange { array_limit: Some(limit), ..JobChange::default() };
            c.commit(ask.now, Event::JobUpdated { id, change, whole: true }, out);
        }
    }
    let affected = to_each(
        c,
        &selected,
        out,
        |c, tasks, out| {
            let array = c.state.arrays.get(&tasks.array).ok_or(Refusal::InvalidJobId)?;
            if update.end.is_some() {
                return Err(Refusal::NotRunning);
            }
            let target = Target {
                id: tasks.array,
                owner: &array.owner,
                spec: &array.spec,
                queue: &array.queue,
                priority: weighed(c, ask.now, tasks.array, (&array.owner, &array.spec, &array.queue), array.submit),
                stage: Stage::Waits,
            };
            let decided = target.decide(&c.state, ask.now, update, ask.who)?;
            if tasks.all {
                decided.commit(c, ask.now, tasks.array, true, out);
                return Ok(());
            }
            let ids: Vec<JobId> = tasks.indices.iter().filter_map(|i| array.task_id(tasks.array, i)).collect();
            for id in ids {
                decided.commit(c, ask.now, id, false, out);
            }
            Ok(())
        },
        |c, id, out| {
            let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
            let stage = match &job.phase {
                Phase::Pending => Stage::Waits,
                Phase::Leased(_) => return Err(Refusal::NotPending),
                Phase::Running(run) => Stage::Runs(facts::time_limit_s(&c.state, job, &run.partition)),
                Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
            };
            let priority = weighed(c, ask.now, id, (&job.owner, &job.spec, &job.queue), job.submit);
            let target = Target { id, owner: &job.owner, spec: &job.spec, queue: &job.queue, priority, stage };
            let kept = kept(&c.state, id, job, update)?;
            // For a running job, nodes and node list name what the job keeps, and do not change its request.
            let mut rest = JobUpdate { nodes: None, nodelist: None, ..update.clone() };
            rest.time_limit_s = rest.time_limit_s.or(until(job, ask.now, update)?.map(Some));
            let decided = target.decide(&c.state, ask.now, if job.is_pending() { update } else { &rest }, ask.who)?;
            let attempt = job.attempt;
            decided.commit(c, ask.now, id, false, out);
            if let Some(alloc) = kept {
                c.commit(ask.now, Event::JobShrunk { id, attempt, alloc, vacant: None }, out);
                billing::record(c, ask.now, id, out);
            }
            Ok(())
        },
    );
    Ok(Some(affected.answer()))
}

/// Returns the time limit in seconds by which a running job ends at its new `EndTime`.
fn until(job: &Job, now: Time, update: &JobUpdate) -> Result<Option<u64>, Refusal> {
    let Some(end) = update.end else { return Ok(None) };
    let Some(run) = job.run().filter(|_| job.is_running()) else { return Err(Refusal::NotRunning) };
    if end <= now {
        let problem = "it has passed".to_owned();
        return Err(Refusal::InvalidValue { option: "EndTime".to_owned(), value: String::new(), problem });
    }
    Ok(Some(run.elapsed(now).secs() + end.since(now).secs()))
}

/// Returns what a running job keeps of its allocation: a number of nodes, or the nodes of a list. None: it keeps all.
/// The node of the batch script is always kept.
fn kept(state: &State, id: JobId, job: &Job, update: &JobUpdate) -> Result<Option<Alloc>, Refusal> {
    let Some(run) = job.run().filter(|_| job.is_running()) else { return Ok(None) };
    if update.nodes.is_none() && update.nodelist.is_none() {
        return Ok(None);
    }
    let refuse = |what: &str| Err(Refusal::NotSupported(format!("{what} can't be resized while it runs")));
    if state.het_of(id).is_some() {
        return refuse("a component of a heterogeneous job");
    }
    if state.gang.contains_key(&id) {
        return refuse("a job that shares cores in turns");
    }
    if run.places.is_some() {
        return refuse("a job with spare or replaced nodes");
    }
    let all = run.alloc.nodes();
    let mut nodes = all.clone();
    if let Some(list) = &update.nodelist {
        let list = list.as_deref().unwrap_or_default();
        nodes = nodes_of(state, "NodeList", list)?;
        let own = run.batch_node().filter(|_| job.spec.kind == JobKind::Batch);
        if nodes.is_empty() || !nodes.is_subset(&all) || own.is_some_and(|own| !nodes.contains(own)) {
            return Err(Refusal::InvalidNode(list.to_owned()));
        }
    }
    if let Some((count, _)) = update.nodes {
        if count == 0 || count as usize > nodes.len() {
            return Err(Refusal::TooManyRequested("nodes".to_owned()));
        }
        nodes = nodes.iter().take(count as usize).collect();
    }
    Ok((nodes != all).then(|| run.alloc.split(&nodes).0))
}

fn weighed(
    c: &Controller,
    now: Time,
    id: JobId,
    (owner, spec, standing): (&Owner, &JobSpec, &Queue),
    submit: Time,
) -> u32 {
    priority(c, &Standee { id, owner, spec, standing, submit }, now)
}

/// A job, or tasks of an array without records of their own, to which an update is applied.
struct Target<'a> {
    id: JobId,
    owner: &'a Owner,
    spec: &'a Arc<JobSpec>,
    queue: &'a Queue,
    /// The job's current priority.
    priority: u32,
    /// Whether the job is pending or running, with the running job's time limit.
    stage: Stage,
}

/// The phase of a job as far as an update distinguishes it.
#[derive(Clone, Copy)]
enum Stage {
    Waits,
    /// The job runs with this time limit, seconds; None: unlimited.
    Runs(Option<u64>),
}

/// The changes that an update makes to one job.
struct Decided {
    change: JobChange,
    /// Some if the update holds the job (priority 0): true if an operator does, false if its user does.
    hold: Option<bool>,
}

impl Decided {
    fn commit(&self, c: &mut Controller, now: Time, id: JobId, whole: bool, out: &mut Out) {
        if let Some(admin) = self.hold {
            c.commit(now, Event::JobHeld { id, admin, whole }, out);
        }
        if self.change != JobChange::default() {
            c.commit(now, Event::JobUpdated { id, change: self.change.clone(), whole }, out);
        }
    }
}

impl Target<'_> {
    fn decide(&self, state: &State, now: Time, update: &JobUpdate, who: &Who) -> Result<Decided, Refusal> {
        let operator = who.operator;
        if update.admin_comment.is_some() && !operator {
            return Err(Refusal::AccessDenied);
        }
        if let Stage::Runs(current) = self.stage {
            if wants_pending(update) {
                return Err(Refusal::NotPending);
            }
            if update.time_limit_s.is_some_and(|limit| is_longer(limit, current)) && !operator {
                return Err(Refusal::AccessDenied);
            }
        }
        self.may_progress(state, update)?;
        if update.nice.is_some_and(|nice| nice < self.spec.nice.min(0)) && !operator {
            return Err(Refusal::AccessDenied);
        }
        if let Some(Some(dependency)) = &update.dependency {
            check_dependency(state, self.id, dependency)?;
        }
        let hold = self.hold_by(update, who)?;
        let mut spec = Arc::new(changed(self.spec, update));
        admit::strings(&spec)?;
        if spec.account != self.spec.account || spec.qos != self.spec.qos {
            association::fill_defaults(state, self.owner, &mut spec)?;
        }
        if matches!(self.stage, Stage::Waits) && memory::concerns(self.spec, &spec) {
            memory::settle(state, &mut spec)?;
        }
        let moved =
            spec.partition != self.spec.partition || spec.account != self.spec.account || spec.qos != self.spec.qos;
        let resized = spec.need != self.spec.need || moved;
        if update.deadline.is_some() || update.time_min_s.is_some() {
            let limit = update.time_limit_s.map(|limit| limit.unwrap_or(UNLIMITED_S));
            admit::times(now, &JobSpec { time_limit_s: limit.or(spec.time_limit_s), ..JobSpec::clone(&spec) })?;
        }
        if update.reservation.is_some() || update.qos.is_some() {
            admit::reservation(state, self.owner, &spec)?;
        }
        if update.reboot == Some(true) {
            admit::reboot(state, who, &spec)?;
        }
        let wishes = update.prefer.is_some() || update.switches.is_some();
        if resized || wishes {
            admit::place(state, self.owner, &spec)?;
        }
        if matches!(self.stage, Stage::Waits) && !operator && (resized || update.time_limit_s.is_some()) {
            let limit = update.time_limit_s.map(|limit| limit.unwrap_or(UNLIMITED_S));
            let asked = JobSpec { time_limit_s: limit.or(spec.time_limit_s), ..JobSpec::clone(&spec) };
            admit::within_partitions(state, self.owner, &asked)?;
        }
        Ok(Decided {
            change: JobChange {
                spec: (spec != *self.spec).then_some(spec),
                time_limit_s: update.time_limit_s,
                priority: update.priority.filter(|priority| *priority > 0),
                array_limit: None,
                independent: None,
                progress: update.progress.clone(),
            },
            hold,
        })
    }

    /// Refuses the progress of a job that does not run, and one that is too long.
    fn may_progress(&self, state: &State, update: &JobUpdate) -> Result<(), Refusal> {
        match (&update.progress, self.stage) {
            (Some(_), Stage::Waits) => Err(Refusal::NotRunning),
            // Older controllers would lose it.
            (Some(_), _) if state.cluster_version < ClusterVersion::NODES_REPLACED => {
                Err(Refusal::NotSupported("Progress in a cluster of this version (scontrol upgrade)".to_owned()))
            }
            (Some(progress), Stage::Runs(_)) if progress.len() > STRING_BYTES_MAX => {
                Err(Refusal::TooLarge("Progress".to_owned(), STRING_BYTES_MAX as u64))
            }
            _ => Ok(()),
        }
    }

    /// Returns Some if the update holds the job (priority 0): true if an operator does, false if its user does. Refuses
    /// an update that would release a held job: only `scontrol release` does that.
    fn hold_by(&self, update: &JobUpdate, who: &Who) -> Result<Option<bool>, Refusal> {
        let Some(wanted) = update.priority else { return Ok(None) };
        if wanted == 0 {
            return Ok(Some(who.operator));
        }
        if self.queue.hold != Hold::No {
            return Err(Refusal::Held);
        }
        if wanted > self.priority && !who.operator {
            return Err(Refusal::AccessDenied);
        }
        Ok(None)
    }
}

fn is_longer(limit: Option<u64>, current: Option<u64>) -> bool {
    limit.unwrap_or(u64::MAX) > current.unwrap_or(u64::MAX)
}

/// Returns whether the update changes something that can change only while the job is pending.
fn wants_pending(update: &JobUpdate) -> bool {
    let JobUpdate { ntasks, cpus_per_task, memory, exclude, constraint, .. } = update;
    let needs = ntasks.is_some() || cpus_per_task.is_some() || memory.is_some();
    let places = exclude.is_some() || constraint.is_some() || update.partition.is_some();
    let order = update.nice.is_some() || update.begin.is_some();
    let files = update.stdout.is_some() || update.stderr.is_some() || update.work_dir.is_some();
    let rest = update.dependency.is_some() || update.account.is_some() || update.qos.is_some();
    let shape = update.gres.is_some() || update.licenses.is_some() || update.oversubscribe.is_some();
    let shape = shape || update.contiguous.is_some() || update.cpus_min.is_some() || update.tmp_disk_mb.is_some();
    let when = update.time_min_s.is_some() || update.reservation.is_some() || update.ntasks_per_node.is_some();
    let wishes = update.prefer.is_some() || update.switches.is_some();
    let wishes = wishes || update.reboot.is_some() || update.delay_boot_s.is_some();
    needs || places || order || files || rest || shape || when || wishes
}

fn changed(old: &JobSpec, update: &JobUpdate) -> JobSpec {
    fn set<T: Clone>(field: &mut T, new: Option<&T>) {
        if let Some(new) = new {
            field.clone_from(new);
        }
    }
    fn set_some<T: Clone>(field: &mut Option<T>, new: Option<&T>) {
        if new.is_some() {
            *field = new.cloned();
        }
    }
    let mut spec = old.clone();
    set(&mut spec.name, update.name.as_ref());
    set(&mut spec.nice, update.nice.as_ref());
    set(&mut spec.dependency, update.dependency.as_ref());
    set(&mut spec.work_dir, update.work_dir.as_ref());
    set_some(&mut spec.partition, update.partition.as_ref());
    set_some(&mut spec.account, update.account.as_ref());
    set_some(&mut spec.qos, update.qos.as_ref());
    set_some(&mut spec.comment, update.comment.as_ref());
    set_some(&mut spec.begin, update.begin.as_ref());
    set_some(&mut spec.requeue, update.requeue.as_ref());
    set_some(&mut spec.stdout, update.stdout.as_ref());
    set_some(&mut spec.stderr, update.stderr.as_ref());
    set_some(&mut spec.mail_user, update.mail_user.as_ref());
    set_some(&mut spec.mail_type, update.mail_type.as_ref());
    set_some(&mut spec.deadline, update.deadline.as_ref());
    set_some(&mut spec.time_min_s, update.time_min_s.as_ref());
    set_some(&mut spec.wckey, update.wckey.as_ref());
    set_some(&mut spec.stdin, update.stdin.as_ref());
    set(&mut spec.reservation, update.reservation.as_ref());
    change_options(&mut spec, update);
    let need = &mut spec.need;
    if let Some((least, most)) = update.nodes {
        (need.nodes_min, need.nodes_max) = (Some(least), most);
    }
    set_some(&mut need.ntasks, update.ntasks.as_ref());
    set_some(&mut need.cpus_per_task, update.cpus_per_task.as_ref());
    set(&mut need.memory, update.memory.as_ref());
    set(&mut need.nodelist, update.nodelist.as_ref());
    set(&mut need.exclude, update.exclude.as_ref());
    set(&mut need.constraint, update.constraint.as_ref());
    set(&mut need.gres, update.gres.as_ref());
    set(&mut need.licenses, update.licenses.as_ref());
    set(&mut need.contiguous, update.contiguous.as_ref());
    set(&mut need.tmp_disk_mb, update.tmp_disk_mb.as_ref());
    set_some(&mut need.cpus_min, update.cpus_min.as_ref());
    set_some(&mut need.ntasks_per_node, update.ntasks_per_node.as_ref());
    if let Some((shares, whole)) = update.oversubscribe {
        (need.oversubscribe, need.exclusive) = (shares, whole);
    }
    // A node is rebooted for one job.
    need.exclusive |= spec.options.reboots();
    spec
}

/// Applies an update to the spec's optional settings. Settings that the update does not name keep their value.
fn change_options(spec: &mut JobSpec, update: &JobUpdate) {
    if let Some(text) = &update.admin_comment {
        spec.options.notes.admin_comment.clone_from(text);
    }
    if let Some(text) = &update.extra {
        spec.options.notes.extra.clone_from(text);
    }
    if let Some(features) = &update.prefer {
        spec.options.prefer.clone_from(features);
    }
    if let Some(switches) = &update.switches {
        spec.options.network.switches.clone_from(switches);
    }
    if let Some(reboot) = update.reboot {
        spec.options.reboot = reboot.then_some(true);
    }
    if update.delay_boot_s.is_some() {
        spec.options.delay_boot_s = update.delay_boot_s;
    }
    if update.begin.is_some() && spec.options.begins_after_submission {
        spec.options.begins_after_submission = false;
    }
    if update.oversubscribe.is_some() && (spec.options.exclusive_user || spec.options.exclusive_topo.is_some()) {
        (spec.options.exclusive_user, spec.options.exclusive_topo) = (false, None);
    }
}

/// Checks that a dependency names known jobs, and does not make the job depend on itself, directly or through other
/// jobs.
fn check_dependency(state: &State, id: JobId, dependency: &Dependency) -> Result<(), Refusal> {
    admit::dependable(state, dependency)?;
    let group = |id: JobId| state.array_of(id).map_or(id, |(array, _)| array);
    let own = group(id);
    let mut seen = BTreeSet::new();
    let mut next: Vec<JobId> = targets(dependency).collect();
    while let Some(id) = next.pop() {
        let id = group(id);
        if id == own {
            return Err(Refusal::DependencyProblem);
        }
        if !seen.insert(id) {
            continue;
        }
        let spec = state.arrays.get(&id).map(|array| &array.spec);
        let spec = spec.or_else(|| state.jobs.get(&id).filter(|job| job.is_pending()).map(|job| &job.spec));
        next.extend(spec.and_then(|spec| spec.dependency.as_ref()).into_iter().flat_map(targets));
    }
    Ok(())
}

fn targets(dependency: &Dependency) -> impl Iterator<Item = JobId> {
    dependency.terms.iter().filter_map(|term| term.job).map(|job| job.id)
}
