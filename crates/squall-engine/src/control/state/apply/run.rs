//! Starts of jobs and steps, ends of steps, suspension.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use squall_model::gang::Shift;
use squall_model::id::{Attempt, ClientKey, JobId, StepNo};
use squall_model::job::{EndState, ExitCode, JobKind, Outcome};
use squall_model::report::StepEnd;
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::NodeSet;
use squall_model::step::{Layout, StepSpec};
use squall_model::time::{Span, Time};

use crate::control::state::State;
use crate::control::state::apply::places;
use crate::control::state::apply::policy::Sign;
use crate::control::state::gang::InTurn;
use crate::control::state::job::{Phase, Run, Step};

impl State {
    pub(super) fn job_started(&mut self, time: Time, id: JobId, attempt: Attempt, partition: &str, alloc: &Alloc) {
        if !self.touch(id) {
            return;
        }
        if self.jobs.get(&id).is_some_and(|job| job.attempt == attempt && job.has_not_begun()) {
            return self.lease_begun(time, id);
        }
        let configuring = self.runs_programs() && !self.config.hooks.prolog_slurmctld.is_empty();
        let asleep = !self.index.asleep.is_disjoint(&alloc.nodes());
        // because a journal of another version may start a job that does not wait here
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_pending()) else { return };
        let booting = asleep || job.reboots();
        let restore = job.restore();
        job.attempt = attempt;
        let mut steps = BTreeMap::new();
        if job.spec.kind == JobKind::Batch {
            steps.insert(StepNo::BATCH, Box::new(batch_step(time, alloc)));
        }
        job.phase = Phase::Running(Box::new(Run {
            start: time,
            partition: partition.to_owned(),
            alloc: alloc.clone(),
            left: alloc.nodes(),
            suspended: None,
            suspended_total: Span(0),
            steps,
            next_step: 0,
            gres: Vec::new(),
            grace: None,
            leaving: Alloc::default(),
            configuring: configuring.then_some(true),
            booting: booting.then_some(true),
            places: places::at_start(alloc, job.spec.options.spares(), job.spec.need.nodes_min),
            restore,
            progress: None,
            billing: None,
        }));
        if let Some(array) = job.task.and_then(|task| self.arrays.get_mut(&task.array)) {
            array.tally.waiting -= 1;
            array.tally.active += 1;
            array.tally.last_start = Some(time);
        }
        self.index.pending -= 1;
        self.index.active += 1;
        self.index.take_licenses(&job.spec);
        let shares = self.partition(partition).is_some_and(|p| p.config.oversubscribe.rows(true) > 1);
        let shares = shares || self.is_ranked();
        self.hold_resources(id, alloc, shares);
        self.count_job(id, Sign::Plus);
        self.charge_job(time, id, true);
    }

    /// Marks the resources of an allocation as held. Memory is the job's alone, as are cores unless `shares` is set.
    pub(super) fn hold_resources(&mut self, id: JobId, alloc: &Alloc, shares: bool) {
        for group in &alloc.groups {
            for node_id in group.nodes.iter() {
                // because a journal of another version may start a job on a node that is not counted here
                let Some(node) = self.nodes.get_mut(node_id.index()) else { continue };
                debug_assert!(shares || node.cores.is_disjoint(&group.cores), "cores of {} held twice", node.name);
                node.cores.union_with(&group.cores);
                node.memory_mb += group.memory_mb;
                node.jobs.insert(id);
            }
        }
    }

    pub(super) fn step_started(
        &mut self,
        time: Time,
        (job, no): (JobId, StepNo),
        key: ClientKey,
        spec: &Arc<StepSpec>,
        alloc: &Alloc,
        layout: &Layout,
    ) {
        // because a journal of another version may start a step of a job that does not run here
        let Some(Phase::Running(run)) = self.jobs.get_mut(&job).map(|job| &mut job.phase) else { return };
        run.next_step = run.next_step.max(no.0.saturating_add(1));
        let step = Step {
            key,
            spec: Arc::clone(spec),
            alloc: alloc.clone(),
            layout: layout.clone(),
            start: time,
            left: alloc.nodes(),
            tally: None,
            ended: None,
            gres: None,
        };
        run.steps.insert(no, Box::new(step));
    }

    pub(super) fn step_nodes_ended(
        &mut self,
        (job, attempt, no): (JobId, Attempt, StepNo),
        nodes: &NodeSet,
        end: &StepEnd,
        cut: Option<EndState>,
    ) {
        let by = self.jobs.get(&job).and_then(|job| job.cancelled_by());
        // because a journal of another version may end a step that has ended here
        let Some(step) = self.live_step(job, Some(attempt), no) else { return };
        if step.left.is_disjoint(nodes) {
            return;
        }
        step.left.subtract(nodes);
        let tally = match step.tally.take() {
            Some(mut tally) => {
                tally.merge(end);
                tally
            }
            None => end.clone(),
        };
        if step.left.is_empty() {
            step.ended = Some((tally.ended, outcome(&tally, cut, by)));
        }
        step.tally = Some(tally);
    }

    pub(super) fn step_limited(&mut self, job: JobId, no: StepNo, time_limit_s: Option<u64>) {
        // because a journal of another version may limit a step that has ended here
        let Some(step) = self.live_step(job, None, no) else { return };
        Arc::make_mut(&mut step.spec).time_limit_s = time_limit_s;
    }

    pub(super) fn step_abandoned(&mut self, time: Time, job: JobId, no: StepNo, outcome: &Outcome) {
        // because a journal of another version may abandon a step that has ended here
        let Some(step) = self.live_step(job, None, no) else { return };
        step.left = NodeSet::new();
        step.ended = Some((time, outcome.clone()));
    }

    pub(super) fn job_suspended(&mut self, time: Time, id: JobId, suspended: bool) {
        let worked = self.works(id);
        // because a journal of another version may suspend a job that does not run here
        let Some(Phase::Running(run)) = self.jobs.get_mut(&id).map(|job| &mut job.phase) else { return };
        if suspended == run.suspended.is_some() {
            return;
        }
        if suspended {
            run.suspended = Some(time);
        } else if let Some(since) = run.suspended.take() {
            run.suspended_total.0 += time.since(since).0;
        }
        if let Some(place) = self.gang.get_mut(&id) {
            place.since = time;
        }
        self.charge_from(time, id, worked);
    }

    /// Records a job's new place in the gang scheduling matrix, and how long the job stood still in its place before.
    pub(super) fn shifted(&mut self, time: Time, shift: &Shift) {
        let worked = self.works(shift.job);
        let job = self.jobs.get_mut(&shift.job);
        // because a journal of another version may shift a job that has ended here
        let Some(Phase::Running(run) | Phase::Completing(run, _)) = job.map(|job| &mut job.phase) else { return };
        run.suspended_total.0 += shift.idle.0;
        self.gang.insert(shift.job, InTurn { turn: shift.turn, since: time });
        self.charge_from(time, shift.job, worked);
    }

    /// Starts charging for a job if it uses its resources now and did not before (`worked`), and stops in the reverse
    /// case.
    fn charge_from(&mut self, time: Time, id: JobId, worked: bool) {
        let works = self.works(id);
        if works != worked {
            self.charge_job(time, id, works);
        }
    }

    /// Returns a step that has not ended, of a job that holds resources. With Some(attempt) only a step of that
    /// attempt.
    fn live_step(&mut self, job: JobId, attempt: Option<Attempt>, no: StepNo) -> Option<&mut Step> {
        let job = self.jobs.get_mut(&job)?;
        if attempt.is_some_and(|attempt| attempt != job.attempt) {
            return None;
        }
        let (Phase::Running(run) | Phase::Completing(run, _)) = &mut job.phase else { return None };
        run.steps.get_mut(&no).map(|step| &mut **step).filter(|step| step.ended.is_none())
    }
}

/// Returns a step's outcome from the merged reports of its nodes; for `cut` and `by` see [`StepEnd::step_state`].
fn outcome(tally: &StepEnd, cut: Option<EndState>, by: Option<u32>) -> Outcome {
    let state = StepEnd::step_state(tally.exit, (tally.oom, tally.lost), cut, by);
    let exit = if tally.oom { ExitCode::OUT_OF_MEMORY } else { tally.exit };
    Outcome { state, exit, reason: tally.note.clone() }
}

/// The specification of the step that stands for a batch script; it asks for nothing.
static NOTHING: LazyLock<Arc<StepSpec>> = LazyLock::new(Arc::default);

/// Makes the step that stands for a batch script. It holds all of the job's part of the first node; its layout is left
/// empty.
pub(super) fn batch_step(time: Time, alloc: &Alloc) -> Step {
    let first = alloc.nodes().first();
    let group = first.and_then(|node| alloc.on(node).map(|group| (node, group)));
    let groups = group.map(|(node, group)| AllocGroup { nodes: NodeSet::one(node), ..group.clone() });
    Step {
        key: ClientKey(0),
        spec: Arc::clone(&NOTHING),
        alloc: Alloc { groups: groups.into_iter().collect() },
        layout: Layout::default(),
        start: time,
        left: first.into_iter().collect(),
        tally: None,
        ended: None,
        gres: None,
    }
}
