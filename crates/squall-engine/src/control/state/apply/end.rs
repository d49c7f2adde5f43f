//! Ends of jobs: the decision, the release of each node, completion, and the return into the queue.

use squall_model::event::Requeue;
use squall_model::id::{Attempt, JobId, NodeId, StepNo};
use squall_model::job::{EndState, Outcome};
use squall_model::resource::Alloc;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::time::Time;
use squall_model::version::ClusterVersion;

use crate::control::state::State;
use crate::control::state::apply::places;
use crate::control::state::apply::policy::Sign;
use crate::control::state::job::{Ended, Ending, Hold, Job, Phase};
use crate::invariant::invariant;

impl State {
    pub(super) fn job_ending(&mut self, time: Time, id: JobId, outcome: &Outcome, requeue: Option<Requeue>) {
        if !self.touch(id) {
            return;
        }
        if self.works(id) {
            self.charge_job(time, id, false);
        }
        let doubtful = self.jobs.get(&id).is_some_and(|job| self.is_doubtful(job));
        let Some(job) = self.jobs.get_mut(&id) else { return invariant!("a job that was touched is known") };
        match std::mem::replace(&mut job.phase, Phase::Pending) {
            Phase::Pending => {
                let ended = Ended { outcome: outcome.clone(), time, run: None };
                job.phase = Phase::Ended(Box::new(ended));
                if let Some(array) = job.task.and_then(|task| self.arrays.get_mut(&task.array)) {
                    array.tally.waiting -= 1;
                }
                self.index.pending -= 1;
                self.job_ended(id);
            }
            Phase::Running(mut run) | Phase::Leased(mut run) => {
                run.grace = None;
                if let Some(since) = run.suspended.take() {
                    run.suspended_total.0 += time.since(since).0;
                }
                // The attempt may have ended before, and been requeued, in what the restored state lacks.
                let requeue = requeue.map(|requeue| Requeue { hold: requeue.hold || doubtful, ..requeue });
                let ending = Ending { outcome: outcome.clone(), requeue, time };
                job.phase = Phase::Completing(run, Box::new(ending));
                self.complete_if_released(id);
            }
            // The first decision stands, but a later one without a requeue cancels the requeue.
            Phase::Completing(run, mut ending) => {
                if ending.requeue.is_some() && requeue.is_none() {
                    *ending = Ending { outcome: outcome.clone(), requeue, time };
                }
                job.phase = Phase::Completing(run, ending);
            }
            ended @ Phase::Ended(_) => job.phase = ended,
        }
    }

    pub(super) fn nodes_released(&mut self, id: JobId, attempt: Attempt, nodes: &NodeSet) {
        // because a journal of another version may release nodes of an attempt that is over here
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.attempt == attempt) else { return };
        let (Phase::Running(run) | Phase::Completing(run, _)) = &mut job.phase else { return };
        let released = nodes.intersection(&run.left);
        run.left.subtract(&released);
        let alloc = std::mem::take(&mut run.alloc);
        if released.iter().any(|node| alloc.on(node).is_some()) {
            self.let_go(id, &released, &alloc);
        }
        self.let_leave(id, &released);
        if let Some(Phase::Running(run) | Phase::Completing(run, _)) = self.jobs.get_mut(&id).map(|job| &mut job.phase)
        {
            run.alloc = alloc;
        }
        let shared = self.gang.contains_key(&id);
        for node in released.iter() {
            if shared {
                self.hold_again(node);
            }
            self.gres_released(id, node);
        }
        self.complete_if_released(id);
    }

    /// Takes nodes from a running job, which keeps the allocation `kept`. What the job had on the other nodes no longer
    /// counts for it, and is held until those nodes have released the job. The place of `vacant` waits for a node.
    pub(super) fn job_shrunk(
        &mut self,
        time: Time,
        (id, attempt): (JobId, Attempt),
        kept: &Alloc,
        vacant: Option<NodeId>,
    ) {
        let held = vacant.map(|lost| self.held_on(time, id, lost));
        self.holds_anew(time, (id, attempt), |state| {
            let Some(Phase::Running(run)) = state.jobs.get_mut(&id).map(|job| &mut job.phase) else {
                return invariant!("a job that holds other nodes runs");
            };
            let (_, gone) = run.alloc.split(&kept.nodes());
            places::vacate(run, &gone.nodes(), held.flatten());
            run.alloc = kept.clone();
            gone.groups.into_iter().for_each(|group| run.leaving.add(group));
        });
    }

    /// Frees what a job had given back on those nodes that have now released it.
    fn let_leave(&mut self, id: JobId, released: &NodeSet) {
        let Some(run) = self.jobs.get_mut(&id).and_then(|job| job.run_mut()) else {
            return invariant!("a job that releases nodes has resources");
        };
        if run.leaving.groups.is_empty() {
            return;
        }
        let (gone, rest) = run.leaving.split(released);
        run.leaving = rest;
        if !gone.groups.is_empty() {
            self.let_go(id, released, &gone);
        }
    }

    /// Marks cores of a node as held again that a job has just released and that other jobs share with it.
    fn hold_again(&mut self, id: NodeId) {
        // because a journal of another version may have given the job a node that is not counted here
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        let runs = node.jobs.iter().filter_map(|job| self.jobs.get(job)?.run());
        let held = runs.filter_map(|run| run.alloc.on(id).or_else(|| run.leaving.on(id)));
        held.for_each(|group| node.cores.union_with(&group.cores));
    }

    /// Ends a completing job, or returns it to the queue, if no node holds it any more.
    fn complete_if_released(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return invariant!("a job that gives nodes back is known") };
        // because a running job gives nodes back as well: it shrinks, or a node is lost
        let Phase::Completing(run, _) = &job.phase else { return };
        if !run.left.is_empty() || self.jobs.get(&id).is_some_and(|job| self.owes_epilog(job)) {
            return;
        }
        self.complete(id);
    }

    /// Returns whether a job that has begun is to complete only after an epilog on the controller's host.
    pub(crate) fn owes_epilog(&self, job: &Job) -> bool {
        self.runs_programs() && !self.config.hooks.epilog_slurmctld.is_empty() && !job.has_not_begun()
    }

    /// Returns whether the cluster's version allows programs on the controller's host.
    pub(in crate::control) fn runs_programs(&self) -> bool {
        self.cluster_version >= ClusterVersion::PROGRAMS
    }

    /// Records that the controller's prolog of an attempt has succeeded.
    pub(super) fn job_configured(&mut self, id: JobId, attempt: Attempt) {
        let job = self.jobs.get_mut(&id).filter(|job| job.attempt == attempt);
        if let Some(run) = job.and_then(|job| job.run_mut()) {
            run.configuring = None;
        }
    }

    /// Records that the controller's epilog of an attempt has ended, so that the job completes.
    pub(super) fn epilog_ended(&mut self, id: JobId, attempt: Attempt) {
        let job = self.jobs.get(&id).filter(|job| job.attempt == attempt);
        let over = job.is_some_and(|job| matches!(&job.phase, Phase::Completing(run, _) if run.left.is_empty()));
        if over {
            self.complete(id);
        }
    }

    /// Ends a completing job, or returns it to the queue.
    fn complete(&mut self, id: JobId) {
        self.count_job(id, Sign::Minus);
        let Some(job) = self.jobs.get_mut(&id) else { return invariant!("counting a job leaves it where it is") };
        let began = !job.has_not_begun();
        let Phase::Completing(mut run, ending) = std::mem::replace(&mut job.phase, Phase::Pending) else {
            return invariant!("counting a job leaves its phase");
        };
        self.index.active -= 1;
        self.index.return_licenses(&job.spec);
        self.gang.remove(&id);
        let array = job.task.and_then(|task| self.arrays.get_mut(&task.array));
        if let Some(requeue) = ending.requeue {
            let failed = ending.outcome.state == EndState::BootFail;
            job.launch_failures = if failed { job.launch_failures + 1 } else { 0 };
            // A job on a lost node counts as restarted, because it may have run there. It does not if the node reported
            // that the script never began.
            let script = run.steps.get(&StepNo::BATCH);
            let never_began = script.is_some_and(|step| step.ended.is_some() && step.tally.is_none());
            let never_began = never_began || run.booting.is_some();
            let restarted = !never_began && (began || ending.outcome.state == EndState::NodeFail);
            back_to_queue(job, requeue, ending.outcome);
            job.restarts -= u32::from(!restarted);
            self.index.pending += 1;
            if let Some(array) = array {
                array.tally.active -= 1;
                array.tally.waiting += 1;
            }
            return;
        }
        run.forget_script();
        job.phase =
            Phase::Ended(Box::new(Ended { outcome: ending.outcome, time: ending.time, run: began.then_some(run) }));
        if let Some(array) = array {
            array.tally.active -= 1;
        }
        self.job_ended(id);
    }

    /// Records the end of a job, of its task in the array, and of the array if this was its last task.
    fn job_ended(&mut self, id: JobId) {
        self.count_one(id, Sign::Minus);
        let Some(job) = self.jobs.get(&id) else { return invariant!("a job that has just ended is known") };
        let Phase::Ended(ended) = &job.phase else { return invariant!("a job that has just ended is in that phase") };
        let spec = std::sync::Arc::clone(&job.spec);
        self.index.ended.insert((ended.time, id));
        let (task, own_wants) = (job.task, job.has_own_wants());
        if let Some(task) = task
            && let Some(array) = self.arrays.get_mut(&task.array)
        {
            array.tally.count_end(task.index, &ended.outcome, ended.time);
            self.array_ended_perhaps(task.array);
        }
        if own_wants {
            self.unwant(id, &spec);
        }
    }

    pub(super) fn tasks_ended(&mut self, time: Time, id: JobId, tasks: &IndexSet, outcome: &Outcome) {
        // because a journal of another version may end tasks of an array that is forgotten here
        let Some(array) = self.arrays.get_mut(&id) else { return };
        let tasks = array.tally.untouched.intersection(tasks);
        if tasks.is_empty() {
            return;
        }
        let count = array.tally.count_ends(&tasks, outcome, time);
        self.index.pending -= u64::from(count);
        let (owner, spec) = (std::sync::Arc::clone(&array.owner), std::sync::Arc::clone(&array.spec));
        self.index.users.change(owner.uid, |user| user.jobs -= u64::from(count));
        if self.counts() {
            self.count_submitted(&owner, &spec, u64::from(count), Sign::Minus);
        }
        self.array_ended_perhaps(id);
    }

    fn array_ended_perhaps(&mut self, id: JobId) {
        // because other tasks of the array may still wait or run
        let Some(array) = self.arrays.get(&id).filter(|array| array.is_ended()) else { return };
        let spec = std::sync::Arc::clone(&array.spec);
        if let Some(time) = array.tally.last_end
            && self.index.ended_arrays.insert((time, id))
        {
            self.unwant(id, &spec);
        }
    }

    pub(super) fn job_requeued(&mut self, id: JobId, requeue: Requeue) {
        // because a journal of another version may requeue a job that has not ended here
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.spec.kind.goes_back()) else { return };
        let Phase::Ended(ended) = &job.phase else { return };
        let (time, outcome, spec) = (ended.time, ended.outcome.clone(), std::sync::Arc::clone(&job.spec));
        let (task, own_wants) = (job.task, job.has_own_wants());
        back_to_queue(job, requeue, outcome);
        self.index.ended.remove(&(time, id));
        self.index.pending += 1;
        self.count_one(id, Sign::Plus);
        if own_wants {
            self.want(&spec);
        }
        // because most jobs are no tasks, and after a clock was set back an array may be forgotten before its tasks
        let Some(task) = task else { return };
        let Some(array) = self.arrays.get_mut(&task.array) else { return };
        let end = array.is_ended().then_some(array.tally.last_end).flatten();
        array.tally.uncount_end(task.index);
        array.tally.waiting += 1;
        if let Some(end) = end {
            let spec = std::sync::Arc::clone(&array.spec);
            self.index.ended_arrays.remove(&(end, task.array));
            self.want(&spec);
        }
    }
}

fn back_to_queue(job: &mut Job, requeue: Requeue, outcome: Outcome) {
    job.phase = Phase::Pending;
    job.last = Some(outcome);
    job.restarts += 1;
    job.queue.not_before = requeue.not_before;
    job.queue.expedite = requeue.expedite;
    if requeue.hold && job.queue.hold == Hold::No {
        job.queue.hold = Hold::Requeue;
    }
    if requeue.special == Some(true) && job.queue.hold != Hold::Admin {
        job.queue.hold = Hold::Special;
    }
}
