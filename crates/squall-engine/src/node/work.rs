//! Jobs and steps on this node: started once, certain to end, reported until the controller acknowledges.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::gang::Turn;
use squall_model::gres;
use squall_model::id::{Attempt, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt, Usage};
use squall_model::report::{Report, StepEnd};
use squall_model::series::Used;
use squall_model::set::CoreSet;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::{Span, Time};
use squall_model::wire::node::{EndReason, SignalTarget};
use squall_model::wire::stepd::ToStepd;

use crate::invariant::invariant;
use crate::node::checkpoint::UnderWay;
use crate::node::gang::GangAct;
use crate::node::hooks::Around;
use crate::node::{FoundStep, NodeAct, NodeMachine, NodeOut, Timer, attempt_of};

/// Time after KILL was due, after which a step daemon is killed with all its tasks.
const GRACE: Span = Span::from_secs(5);

/// How long the report of a script's end waits until the job's remaining processes are killed, so that both are
/// reported together.
const HOLD: Span = Span::from_secs(1);

const SIGCONT: i32 = 18;
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// One attempt of a job on this node.
#[derive(Debug)]
pub(super) struct Job {
    /// Whether the job runs on this node only, so that the end of its script is the end of the job.
    alone: bool,
    steps: BTreeMap<StepNo, Step>,
    phase: JobPhase,
    /// Report of the script's end, and the latest time to send it. It waits until the job's remaining processes are
    /// killed, so that both are reported together. None: no report waits.
    held: Option<(Time, Report)>,
    /// Time slot in which the job runs, if it shares its cores; None: it runs all the time.
    pub(super) turn: Option<Turn>,
    /// Cores that the job holds until it is gone. Empty if its script is on another node.
    pub(super) cores: CoreSet,
    /// What programs around the job need of it. None: there are none.
    pub(super) around: Option<Box<Around>>,
    /// Time at which processes of the job that are left count as impossible to kill. None: the job is not being swept.
    pub(super) unkillable: Option<Time>,
    /// A checkpoint that is being made, or after which the job stays frozen. None: mostly.
    pub(super) checkpoint: Option<Box<UnderWay>>,
    /// Why a dump was killed, so that the job's processes may be damaged. None: none was.
    pub(super) damage: Option<Box<str>>,
    /// Number of the checkpoint from which this node's part of the job was restored. None: the job began, or it has one node.
    pub(super) restored: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    /// The job accepts steps.
    Open,
    /// The job's steps were told to end, and some are still running.
    Ending,
    /// No step is running; the host kills what is left.
    Sweeping,
    /// The epilog is running. It runs after `Sweeping`, or before it in the job's cgroup (`PrologFlags=RunInJob`).
    Epilog,
    /// Nothing of the job is left, and the controller has not acknowledged that yet.
    Gone,
}

#[derive(Debug)]
struct Step {
    phase: StepPhase,
    /// Whether the step daemon died. The host is then in charge of the tasks.
    orphaned: bool,
    /// Time at which the step is killed if it has not ended. None: it was not told to end.
    overdue: Option<Time>,
    /// Whether the step daemon has acknowledged that the step is to end.
    heeds: bool,
    /// Seconds between TERM and KILL. When the batch script ends, its value applies to the job's other steps too.
    kill_wait_s: u64,
    /// Usage of the step's tasks as the step daemon last reported it; None: its answer is outstanding.
    used: Option<Box<Used>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepPhase {
    /// The step is about to be spawned, or is running.
    Live,
    /// The step has ended, and the controller has not acknowledged the report of that.
    Told,
    /// The controller has acknowledged the step's end. Only a batch script is kept in this state, as long as its job.
    Known,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// All tasks have ended.
    Ended(StepEnd),
    /// The step could not be started.
    Failed {
        /// Error text.
        error: String,
        /// Whether the node is at fault, not the job.
        node_fault: bool,
    },
}

impl Job {
    /// Returns whether the job accepts steps and this one was not started here.
    pub(super) fn lacks(&self, step: StepNo) -> bool {
        self.phase == JobPhase::Open && !self.knows(step)
    }

    /// Returns whether the step was started here or waits for the job's prolog.
    fn knows(&self, step: StepNo) -> bool {
        self.steps.contains_key(&step) || self.waiting().any(|key| key.step == step)
    }

    /// Returns the steps that wait for the job's prolog.
    fn waiting(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.around.iter().flat_map(|around| around.waiting())
    }

    pub(super) fn new(facts: &JobFacts) -> Self {
        let (alone, steps, phase) = (facts.nodes.len() == 1, BTreeMap::new(), JobPhase::Open);
        let (turn, cores) = (None, CoreSet::new());
        Self {
            alone,
            steps,
            phase,
            held: None,
            turn,
            cores,
            around: None,
            unkillable: None,
            checkpoint: None,
            damage: None,
            restored: None,
        }
    }
    /// Makes a job that was not known on this node and is to end. The sweep that follows kills whatever is left of it.
    fn unknown() -> Self {
        let (steps, phase, cores) = (BTreeMap::new(), JobPhase::Sweeping, CoreSet::new());
        let (held, turn, around, unkillable, checkpoint, damage, restored) = Default::default();
        Self { alone: false, steps, phase, held, turn, cores, around, unkillable, checkpoint, damage, restored }
    }
    /// Makes a job with a launch that can't be read. Its cores are not known, so it holds `cores`, all of the node, and
    /// no lease begins before it is gone.
    fn unread(cores: CoreSet) -> Self {
        Self { cores, phase: JobPhase::Open, ..Self::unknown() }
    }
    pub(super) fn is_open(&self) -> bool {
        self.phase == JobPhase::Open
    }

    /// Whether the job runs on this node only.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns whether a step of the job was told to end and is still running.
    pub(super) fn has_ending_steps(&self) -> bool {
        self.steps.values().any(|step| step.is_live() && step.overdue.is_some())
    }

    /// Counts the steps that were told to end and have not acknowledged that. A step with a dead daemon does not count:
    /// its tasks have begun, or never will.
    pub(super) fn unheeded(&self) -> i64 {
        let told = |step: &&Step| step.is_live() && step.overdue.is_some() && !step.orphaned && !step.heeds;
        self.steps.values().filter(told).count() as i64
    }

    pub(super) fn is_gone(&self) -> bool {
        self.phase == JobPhase::Gone
    }

    #[cfg(test)]
    pub(super) fn is_live(&self, step: StepNo) -> bool {
        self.steps.get(&step).is_some_and(Step::is_live)
    }

    /// Returns 1 if the usage of a running step has been measured, 0 if the answer is outstanding, -1 if the step is
    /// not running.
    pub(super) fn measured(&self, step: StepNo) -> i64 {
        let step = self.steps.get(&step).filter(|step| step.is_live());
        step.map_or(-1, |step| i64::from(step.used.is_some()))
    }

    /// Returns the usage of a step's tasks; None: unknown. `lately`: over time only what was used lately.
    pub(super) fn used(&self, step: StepNo, lately: bool) -> Option<Used> {
        let used = self.steps.get(&step)?.used.as_deref()?;
        let series = used.series.as_deref();
        let series = series.map(|series| if lately { series.lately() } else { Box::new(series.clone()) });
        Some(Used { usage: used.usage, series })
    }

    /// Returns 0 if the step was never here, 1 if it is running, 2 if it has ended.
    pub(super) fn progress(&self, step: StepNo) -> i64 {
        self.steps.get(&step).map_or(0, |step| if step.is_live() { 1 } else { 2 })
    }

    /// Returns the steps that are running, and those of which the end is not acknowledged.
    pub(super) fn known_steps(&self, attempt: JobAttempt) -> impl Iterator<Item = StepKey> + '_ {
        let known = self.steps.iter().filter(|(_, step)| step.phase != StepPhase::Known);
        known.map(move |(step, _)| key_of(attempt, *step)).chain(self.waiting())
    }

    pub(super) fn live(&self) -> impl Iterator<Item = StepNo> + '_ {
        self.steps.iter().filter(|(_, step)| step.is_live()).map(|(no, _)| *no)
    }
}

impl Step {
    fn new(kill_wait_s: u64) -> Self {
        Self { phase: StepPhase::Live, orphaned: false, overdue: None, heeds: false, kill_wait_s, used: None }
    }

    fn is_live(&self) -> bool {
        self.phase == StepPhase::Live
    }
}

pub(super) fn key_of(attempt: JobAttempt, step: StepNo) -> StepKey {
    StepKey { job: attempt.job, attempt: attempt.attempt, step }
}

/// Starting of jobs and steps on the node.
impl NodeMachine {
    pub(super) fn found_step(&mut self, launch: &StepLaunch, state: FoundStep, out: &mut NodeOut) {
        let (key, attempt) = (launch.key, attempt_of(launch.key));
        if state == FoundStep::Unstarted {
            // The controller may have given the job up meanwhile.
            self.unstarted.insert(attempt);
            return out.acts.push(NodeAct::Forget { key });
        }
        let job = self.jobs.entry(attempt).or_insert_with(|| Job::new(&launch.facts));
        if key.step == StepNo::BATCH {
            job.cores = launch.cores.clone();
        }
        self.guard(&launch.facts, out);
        self.found_around(&launch.facts, true);
        self.found_as(key, launch.kill_wait_s, state);
    }

    fn found_as(&mut self, key: StepKey, kill_wait_s: u64, state: FoundStep) {
        let Some(job) = self.jobs.get_mut(&attempt_of(key)) else {
            return invariant!("the job of a step that was found is known");
        };
        let step = job.steps.entry(key.step).or_insert_with(|| Step::new(kill_wait_s));
        match state {
            FoundStep::Alive | FoundStep::Unstarted => {}
            FoundStep::Orphaned => step.orphaned = true,
            FoundStep::Ended(end) => self.found.push((key, Finish::Ended(end))),
            FoundStep::Failed { error, node_fault } => self.found.push((key, Finish::Failed { error, node_fault })),
        }
    }

    /// Keeps an attempt with a spool entry that can't be read, by the name of that entry. The job may have further
    /// nodes, so the controller gets a report of the script's end and ends the job itself.
    pub(super) fn found_unreadable(
        &mut self,
        attempt: JobAttempt,
        step: Option<(StepNo, FoundStep)>,
        out: &mut NodeOut,
    ) {
        if let Some((no, FoundStep::Unstarted)) = step {
            self.unstarted.insert(attempt);
            return out.acts.push(NodeAct::Forget { key: key_of(attempt, no) });
        }
        let all = (0..self.boot.hardware.cpus as usize).collect();
        self.jobs.entry(attempt).or_insert_with(|| Job::unread(all));
        if let Some((no, state)) = step {
            self.found_as(key_of(attempt, no), 0, state);
        }
    }

    pub(super) fn start_job(
        &mut self,
        now: Time,
        facts: Arc<JobFacts>,
        batch: Option<Box<StepLaunch>>,
        out: &mut NodeOut,
    ) {
        if self.leaving.is_some() {
            return;
        }
        let attempt = attempt_of(facts.key);
        self.last_job = self.last_job.max(attempt.job);
        // Two attempts of a script must never run at once.
        if self.others(attempt).any(|other| other.attempt > attempt.attempt) {
            return;
        }
        // The launch was refused, and the report is under way. The obstacle may be gone by now, but a start would
        // contradict the report.
        if batch.as_ref().is_some_and(|launch| self.outbox.tells_of(launch.key)) {
            return;
        }
        let older = self.others(attempt).next();
        if let Some((launch, other)) = batch.as_ref().zip(older) {
            let error = format!("attempt {} of job {} is still on this node", other.attempt, other.job);
            return self.refuse(launch.key, error, true);
        }
        let fresh = !self.jobs.contains_key(&attempt);
        if fresh {
            let around = self.around(&facts);
            let place = self.id.and_then(|here| facts.place(here));
            let memory_mb = place.and_then(|place| facts.memory_mb.get(place)).copied().unwrap_or(0);
            // The script's folder comes after the prolog, so it can't be the mark of a job with one.
            let batch = batch.is_some() && around.is_none();
            self.jobs.insert(attempt, Job { around, ..Job::new(&facts) });
            self.job_is_fresh(attempt);
            let gres = self.id.map(|here| gres::on_node(&facts.gres, here)).unwrap_or_default();
            // What an earlier cluster left behind under this id is not meant.
            self.fence.fenced.remove(&attempt);
            self.guard(&facts, out);
            out.acts.push(NodeAct::OpenJob { facts, memory_mb, batch, gres });
        }
        if let Some(launch) = batch
            && let Some(job) = self.jobs.get_mut(&attempt).filter(|job| job.lacks(launch.key.step))
        {
            job.cores = launch.cores.clone();
            self.launch(now, launch, out);
        }
        self.job_opened(now, attempt, out);
    }

    /// Spawns a step, once the job's prolog has ended. One that comes after the job's node fence has passed is refused: a daemon
    /// that was stopped may hear it when the job runs elsewhere.
    pub(super) fn launch(&mut self, now: Time, launch: Box<StepLaunch>, out: &mut NodeOut) {
        if self.fence.is_over(attempt_of(launch.key), now) {
            self.refuse(launch.key, "its node fence has passed".to_owned(), true);
            return self.end_fenced(now, out);
        }
        // because a launch that waits for the prolog of its job is held
        let Some(launch) = self.hold(now, launch, out) else { return };
        let key = launch.key;
        let Some(job) = self.jobs.get_mut(&attempt_of(key)) else {
            return invariant!("the job of a step that is launched is known");
        };
        job.steps.insert(key.step, Step::new(launch.kill_wait_s));
        self.counts.steps += 1;
        self.counts.tasks += launch.ranks().len() as u64;
        out.warrants.extend(self.warrant.clone().map(|warrant| (launch.key, warrant)));
        out.acts.push(NodeAct::Spawn(launch));
    }

    /// Returns the other attempts of the same job that are not gone.
    pub(super) fn others(&self, attempt: JobAttempt) -> impl Iterator<Item = JobAttempt> + '_ {
        let first = JobAttempt { job: attempt.job, attempt: Attempt(0) };
        let last = JobAttempt { job: attempt.job, attempt: Attempt(u32::MAX) };
        let attempts = self.jobs.range(first..=last).filter(move |(other, job)| **other != attempt && !job.is_gone());
        attempts.map(|(other, _)| *other)
    }

    pub(super) fn start_step(&mut self, now: Time, launch: Box<StepLaunch>, out: &mut NodeOut) {
        if self.leaving.is_some() {
            return;
        }
        let key = launch.key;
        let Some(job) = self.jobs.get_mut(&attempt_of(key)) else {
            return self.refuse(key, format!("job {} is not on this node", key.job), false);
        };
        if job.knows(key.step) || self.outbox.tells_of(key) {
            return;
        }
        if job.phase == JobPhase::Open {
            self.launch(now, launch, out);
        } else {
            self.refuse(key, format!("job {} is ending", key.job), false);
        }
    }

    /// Reports a launch as failed without trying it.
    pub(super) fn refuse(&mut self, key: StepKey, error: String, node_fault: bool) {
        if !self.outbox.tells_of(key) {
            self.outbox.push(Report::LaunchFailed { key, error, node_fault });
        }
    }
}

/// Handling of signals, and of requests to end jobs and steps.
impl NodeMachine {
    pub(super) fn signal(
        &mut self,
        now: Time,
        attempt: JobAttempt,
        (target, signal): (SignalTarget, i32),
        out: &mut NodeOut,
    ) {
        if signal == i32::from(SIGKILL) {
            self.lift_briefly(now, attempt, out);
        }
        // because the job may have ended here, or may not have come yet
        let Some(job) = self.jobs.get(&attempt) else { return };
        for step in job.live() {
            let batch = step == StepNo::BATCH;
            let meant = match target {
                SignalTarget::Steps => !batch,
                SignalTarget::All | SignalTarget::Full => true,
                SignalTarget::Batch => batch,
                SignalTarget::Step(no) => step == no,
            };
            if meant {
                let all = target == SignalTarget::Full && batch;
                let message = ToStepd::Signal { signal, all };
                out.acts.push(NodeAct::Tell { key: key_of(attempt, step), message });
            }
        }
    }

    pub(super) fn end_step(&mut self, now: Time, key: StepKey, wait_s: u64, why: EndReason, out: &mut NodeOut) {
        if self.drop_waiting(now, attempt_of(key), Some(key.step)) {
            return;
        }
        let known = self.jobs.get(&attempt_of(key)).and_then(|job| job.steps.get(&key.step));
        match known {
            Some(step) if step.is_live() => {
                self.lift(attempt_of(key), out);
                self.tell_end(now, key, wait_s, why, out);
            }
            Some(_) => {}
            None if self.outbox.tells_of(key) => {}
            None => {
                let end = never_seen(now, "the step was never on this node");
                self.outbox.push(Report::StepEnded { key, end });
            }
        }
    }

    pub(super) fn end_job(
        &mut self,
        now: Time,
        attempt: JobAttempt,
        wait_s: u64,
        cont: bool,
        why: EndReason,
        out: &mut NodeOut,
    ) {
        self.forget_lease(attempt);
        let Some(job) = self.jobs.get_mut(&attempt) else {
            self.jobs.insert(attempt, Job::unknown());
            return self.sweep(now, attempt, out);
        };
        if matches!(job.phase, JobPhase::Sweeping | JobPhase::Epilog | JobPhase::Gone) {
            return;
        }
        job.phase = JobPhase::Ending;
        let live: Vec<StepNo> = job.live().collect();
        self.end_checkpoint(attempt, cont, out);
        self.lift(attempt, out);
        for step in live {
            let key = key_of(attempt, step);
            if cont {
                out.acts.push(NodeAct::Tell { key, message: ToStepd::Signal { signal: SIGCONT, all: true } });
            }
            self.tell_end(now, key, wait_s, why, out);
        }
        self.drop_waiting(now, attempt, None);
        self.sweep_if_idle(now, attempt, out);
    }

    /// Records the exit code of a job that the controller ends, for its epilog.
    pub(super) fn note_exit(&mut self, attempt: JobAttempt, exit: Option<ExitCode>) {
        let around = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut());
        if let Some((around, exit)) = around.zip(exit) {
            around.exit = Some(exit);
        }
    }

    /// Ends all jobs at once, at a shutdown that keeps none.
    pub(super) fn end_all(&mut self, now: Time, out: &mut NodeOut) {
        self.leases.clear();
        let jobs: Vec<JobAttempt> = self.jobs.keys().copied().collect();
        for attempt in jobs {
            self.end_job(now, attempt, 0, true, EndReason::None, out);
        }
    }

    /// Tells the daemon of a running step to end the step, and sets a timer that kills it if it does not.
    fn tell_end(&mut self, now: Time, key: StepKey, kill_wait_s: u64, why: EndReason, out: &mut NodeOut) {
        let Some(step) = self.jobs.get_mut(&attempt_of(key)).and_then(|job| job.steps.get_mut(&key.step)) else {
            return invariant!("a step that is told to end is known");
        };
        let grace = if step.orphaned { Span::default() } else { GRACE };
        let overdue = now + Span::from_secs(kill_wait_s) + grace;
        if step.overdue.is_some_and(|sooner| sooner <= overdue) {
            return;
        }
        step.overdue = Some(overdue);
        step.heeds = false;
        self.timers.insert((overdue, Timer::Step(key)));
        out.acts.push(NodeAct::Tell { key, message: ToStepd::End { kill_wait_s, why } });
    }

    /// Records that the step daemon has acknowledged that the step is to end: it starts no further task.
    pub(super) fn heeded(&mut self, key: StepKey) {
        let job = self.jobs.get_mut(&attempt_of(key));
        if let Some(step) = job.and_then(|job| job.steps.get_mut(&key.step)) {
            step.heeds = true;
        }
    }

    /// Kills a step that did not end in time.
    pub(super) fn step_overdue(&mut self, due: Time, key: StepKey, out: &mut NodeOut) {
        let job = self.jobs.get(&attempt_of(key));
        let step = job.and_then(|job| job.steps.get(&key.step));
        if step.is_some_and(|step| step.is_live() && step.overdue == Some(due)) {
            out.acts.push(NodeAct::KillStep { key });
        }
    }

    /// Asks a step daemon for the usage of its tasks.
    pub(super) fn measure(&mut self, key: StepKey, out: &mut NodeOut) {
        let job = self.jobs.get_mut(&attempt_of(key));
        if let Some(step) = job.and_then(|job| job.steps.get_mut(&key.step)).filter(|step| step.is_live()) {
            step.used = None;
            out.acts.push(NodeAct::Tell { key, message: ToStepd::Usage });
        }
    }

    /// Records the usage of a step's tasks.
    pub(super) fn used(&mut self, key: StepKey, used: Used) {
        let job = self.jobs.get_mut(&attempt_of(key));
        if let Some(step) = job.and_then(|job| job.steps.get_mut(&key.step)).filter(|step| step.is_live()) {
            step.used = Some(Box::new(used));
        }
    }

    /// Records that the step's daemon died. If the step was being ended, this machine alone now times the KILL,
    /// without the daemon's grace time.
    pub(super) fn orphaned(&mut self, now: Time, key: StepKey) {
        let job = self.jobs.get_mut(&attempt_of(key));
        // because the step may have ended before its daemon
        let Some(step) = job.and_then(|job| job.steps.get_mut(&key.step)).filter(|step| step.is_live()) else { return };
        step.orphaned = true;
        if let Some(overdue) = step.overdue.as_mut() {
            *overdue = (*overdue - GRACE).max(now);
            self.timers.insert((*overdue, Timer::Step(key)));
        }
    }
}

/// Ends of steps and jobs, and their consequences.
impl NodeMachine {
    pub(super) fn finished(&mut self, now: Time, key: StepKey, finish: Finish, out: &mut NodeOut) {
        let attempt = attempt_of(key);
        // because the job may have been swept, and the controller may know its end, before the step's daemon ended
        let Some(job) = self.jobs.get_mut(&attempt) else { return };
        let Some(step) = job.steps.get_mut(&key.step).filter(|step| step.is_live()) else { return };
        step.phase = StepPhase::Told;
        if let Some(overdue) = step.overdue {
            self.timers.remove(&(overdue, Timer::Step(key)));
        }
        let kill_wait_s = step.kill_wait_s;
        if let (Finish::Ended(end), Some(around), StepNo::BATCH) = (&finish, &mut job.around, key.step) {
            around.exit = Some(end.exit);
        }
        let told = key.step == StepNo::BATCH && step.overdue.is_some();
        let fenced = self.fence.is_over(attempt, now);
        let report = match finish {
            Finish::Ended(mut end) => {
                // Also after the step's daemon died: the host told the step to end, or it was killed as overdue.
                let by_signal = [SIGTERM, SIGKILL].contains(&end.exit.signal);
                // A script that waits for its end, as one with srun does, says the signal by its exit code.
                let said = end.exit.signal == 0 && [128 + SIGTERM, 128 + SIGKILL].contains(&end.exit.code);
                if let Some(error) = job.damage.as_ref().filter(|_| key.step == StepNo::BATCH) {
                    end.note_damaged(error);
                } else if fenced && (by_signal || end.lost) {
                    end.note_fenced();
                } else if told && (by_signal || said) {
                    end.note = end.note.take().filter(|_| by_signal);
                    end.note_told();
                }
                Report::StepEnded { key, end }
            }
            Finish::Failed { error, node_fault } => Report::LaunchFailed { key, error, node_fault },
        };
        let last = key.step == StepNo::BATCH && job.alone;
        if last && job.live().next().is_none() && job.phase != JobPhase::Sweeping {
            let until = now + HOLD;
            job.held = Some((until, report));
            self.timers.insert((until, Timer::Held(attempt)));
        } else {
            self.outbox.push(report);
        }
        if last {
            self.end_job(now, attempt, kill_wait_s, false, EndReason::None, out);
        } else {
            self.lower(attempt, out);
            self.sweep_if_idle(now, attempt, out);
        }
    }

    /// Kills everything that is left of an ending job (sweeps it), if no step of it is running, nor its prolog. An
    /// epilog that runs in the job's cgroup comes before.
    pub(super) fn sweep_if_idle(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        let Some(job) = self.jobs.get(&attempt) else {
            return invariant!("a job whose step has ended, or that is to end, is known");
        };
        let prolog = job.around.as_ref().is_some_and(|around| around.prolog_runs());
        if job.phase != JobPhase::Ending || prolog || job.live().next().is_some() {
            return;
        }
        let first = self.boot.hooks.prolog_flags.run_in_job && self.begin_epilog(now, attempt, out);
        if first {
            self.enter(attempt, JobPhase::Epilog);
        } else {
            self.sweep(now, attempt, out);
        }
    }

    fn enter(&mut self, attempt: JobAttempt, phase: JobPhase) {
        self.jobs.entry(attempt).and_modify(|job| job.phase = phase);
    }

    /// Has everything killed that is left of a job.
    fn sweep(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        let patience_s = self.boot.health.unkillable_step_timeout_s;
        let Some(job) = self.jobs.get_mut(&attempt) else { return invariant!("a job that is swept is known") };
        job.phase = JobPhase::Sweeping;
        job.unkillable = (patience_s > 0).then(|| now + Span::from_secs(patience_s));
        self.timers.extend(job.unkillable.map(|due| (due, Timer::Unkillable(attempt))));
        out.acts.push(NodeAct::Sweep { job: attempt });
    }

    /// Reports the end of a batch script without waiting longer until the job's remaining processes are killed.
    pub(super) fn tell_held(&mut self, attempt: JobAttempt) {
        let held = self.jobs.get_mut(&attempt).and_then(|job| job.held.take());
        if let Some((until, report)) = held {
            self.timers.remove(&(until, Timer::Held(attempt)));
            self.outbox.push(report);
        }
    }

    pub(super) fn swept(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        self.leftover_swept(now, attempt);
        // because leftovers of jobs that are not known are swept, too
        let Some(job) = self.jobs.get_mut(&attempt).filter(|job| job.phase == JobPhase::Sweeping) else { return };
        if let Some(due) = job.unkillable.take() {
            self.timers.remove(&(due, Timer::Unkillable(attempt)));
        }
        let mut reports = Vec::new();
        let fenced = self.fence.is_over(attempt, now);
        let shared = job.turn.take().is_some();
        out.acts.extend(shared.then_some(NodeAct::Gang(GangAct::Drop { job: attempt })));
        for (no, step) in job.steps.iter_mut().filter(|(_, step)| step.is_live()) {
            step.phase = StepPhase::Told;
            let mut end = never_seen(now, "the node lost sight of the step");
            if let Some(error) = job.damage.as_ref().filter(|_| *no == StepNo::BATCH) {
                end.note_damaged(error);
            } else if fenced {
                end.note_fenced();
            }
            reports.push(Report::StepEnded { key: key_of(attempt, *no), end });
        }
        self.push_reports(reports);
        if self.begin_epilog(now, attempt, out) {
            self.enter(attempt, JobPhase::Epilog);
        } else {
            self.gone(now, attempt, out);
        }
    }

    /// Continues the end of a job after its epilog.
    pub(super) fn epilog_ended(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        if self.boot.hooks.prolog_flags.run_in_job {
            self.sweep(now, attempt, out);
        } else {
            self.gone(now, attempt, out);
        }
    }

    /// Reports that nothing is left of a job.
    fn gone(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        self.tell_held(attempt);
        self.unguard(attempt, out);
        self.enter(attempt, JobPhase::Gone);
        self.outbox.push(Report::JobGone { job: attempt });
        self.next_in_line(now, out);
        if self.leaving.is_some() {
            out.acts.push(NodeAct::Say(format!("job {} was ended by the shutdown", attempt.job)));
        }
    }

    fn push_reports(&mut self, reports: impl IntoIterator<Item = Report>) {
        for report in reports {
            self.outbox.push(report);
        }
    }

    /// Forgets steps and jobs with reports that the controller has journaled.
    pub(super) fn known(&mut self, now: Time, steps: &[StepKey], jobs: &[JobAttempt], out: &mut NodeOut) {
        let mut failed = false;
        for &key in steps {
            failed |= self.outbox.has_failed(key);
            if self.outbox.step_known(key) {
                self.forget_step(key, out);
            }
        }
        if failed {
            self.next_in_line(now, out);
        }
        for &job in jobs {
            if self.outbox.job_known(job) {
                self.jobs.remove(&job);
                out.acts.push(NodeAct::ForgetJob { job });
            }
        }
    }

    fn forget_step(&mut self, key: StepKey, out: &mut NodeOut) {
        // because a launch that was refused leaves nothing to forget
        let Some(job) = self.jobs.get_mut(&attempt_of(key)) else { return };
        let Some(step) = job.steps.get_mut(&key.step).filter(|step| step.phase == StepPhase::Told) else { return };
        if key.step == StepNo::BATCH {
            step.phase = StepPhase::Known;
        } else {
            job.steps.remove(&key.step);
            out.acts.push(NodeAct::Forget { key });
        }
    }
}

/// Returns the end of a step of which nothing can be found out, marked as lost.
fn never_seen(now: Time, note: &str) -> StepEnd {
    StepEnd {
        exit: ExitCode { code: 0, signal: SIGKILL },
        oom: false,
        lost: true,
        usage: Usage::default(),
        started: now,
        ended: now,
        note: Some(note.to_owned()),
        series: None,
    }
}
