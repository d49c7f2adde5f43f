//! Programs around jobs and on the node: when they run, and what follows from their end.
//!
//! A prolog runs before the job's first step here, or as soon as the job has the node (`PrologFlags=Alloc`). Steps wait
//! for it. An epilog runs after the last process is gone, before the node reports that. The host notes durably that a
//! program has ended before it says so here. A later run of the daemon therefore repeats no prolog that ended and owes
//! every epilog that did not. A program that ended while no daemon ran counts as not run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::id::{StepKey, StepNo};
use squall_model::job::{Blob, ExitCode, JobAttempt, JobKind};
use squall_model::limits::AFTER_FAULT_S;
use squall_model::report::{Report, StepEnd};
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::{Span, Time};
use squall_model::wire::hook::{Hook, NodeNote};
use squall_model::wire::proof::Warrant;

use crate::invariant::invariant;
use crate::node::work::{Job, key_of};
use crate::node::{NodeAct, NodeMachine, NodeOut, Timer, attempt_of};

/// Lateness of a timer from which on the daemon counts as having been stopped.
const LATE: Span = Span::from_secs(5);
/// Signal that a script counts as ended by if its job ends before its prolog.
const SIGTERM: u8 = 15;

/// A run of a program that the host carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRun {
    /// Kind of the program.
    pub hook: Hook,
    /// Facts of the job that the program runs for. None: it runs for the node.
    pub facts: Option<Arc<JobFacts>>,
    /// Exit code of the job, if it is known (epilogs only).
    pub exit: Option<ExitCode>,
}

impl HookRun {
    /// Returns the attempt that the program runs for. None: it runs for the node.
    pub fn job(&self) -> Option<JobAttempt> {
        self.facts.as_ref().map(|facts| attempt_of(facts.key))
    }
}

/// A program is identified by its kind and the job for which it runs.
type HookKey = (Hook, Option<JobAttempt>);

/// Programs of the node that run or wait, and the state of its checks.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// Running programs, each with the time at which it is killed.
    running: BTreeMap<HookKey, Option<Time>>,
    /// Programs that wait until others have ended (`PrologFlags=Serial`).
    queue: VecDeque<HookRun>,
    /// Programs that earlier runs of the daemon have seen end. Later only those of jobs without a mark in the spool, for
    /// example because the disk was full: such a job is opened again.
    passed: BTreeSet<(JobAttempt, Hook)>,
    /// Whether all `Found…` inputs have come.
    pub(super) settled: bool,
    /// Whether the node was checked in this run of the daemon, so that the first check is not delayed.
    checked: bool,
    /// The fault after which the node is to be checked. None: it has passed.
    fault: Option<FaultCheck>,
}

/// A check of the node after a fault.
#[derive(Clone, Copy, Debug)]
struct FaultCheck {
    /// When the newest fault was found, by the controller's clock.
    newest: Time,
    /// When the fault was found for which the program was started last.
    begun: Time,
}

/// What a node keeps of a job with programs around it.
#[derive(Debug)]
pub(super) struct Around {
    facts: Arc<JobFacts>,
    prolog: Prolog,
    /// Whether the epilog is to run.
    epilog: bool,
    /// Launches that wait for the prolog.
    waiting: Vec<Waiting>,
    /// Exit code of the job, if it is known.
    pub(super) exit: Option<ExitCode>,
}

/// State of a job's prolog on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prolog {
    /// It has not been started.
    Owed,
    /// It runs, or waits for other programs.
    Running,
    /// It has succeeded, or there is none.
    Done,
    /// It has failed. The controller ends the job.
    Failed,
}

/// A launch that waits for the prolog, with script and environment.
#[derive(Debug)]
struct Waiting {
    launch: Box<StepLaunch>,
    blobs: Vec<Blob>,
    /// Proof that the controller ordered the launch, if it signs what it sends.
    warrant: Option<Arc<Warrant>>,
}

impl Around {
    /// Returns whether the prolog has been started and has not ended.
    pub(super) fn prolog_runs(&self) -> bool {
        self.prolog == Prolog::Running
    }

    /// Returns the steps that wait for the prolog.
    pub(super) fn waiting(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.waiting.iter().map(|waiting| waiting.launch.key)
    }

    /// Returns whether the job has yet to run its epilog, which runs now.
    pub(super) fn take_epilog(&mut self) -> bool {
        std::mem::take(&mut self.epilog)
    }
}

/// Prologs and epilogs.
impl NodeMachine {
    /// Returns what is kept of a job for the programs around it. None: no program needs anything of jobs.
    pub(super) fn around(&self, facts: &Arc<JobFacts>) -> Option<Box<Around>> {
        let hooks = &self.boot.hooks;
        let states = self.boot.health.node_state;
        let counts_cpus = !self.boot.health.program.is_empty() && states.mixed != states.alloc;
        if !hooks.on_nodes() && !counts_cpus {
            return None;
        }
        let prolog = if hooks.prolog.is_empty() { Prolog::Done } else { Prolog::Owed };
        let epilog = !hooks.epilog.is_empty();
        Some(Box::new(Around { facts: Arc::clone(facts), prolog, epilog, waiting: Vec::new(), exit: None }))
    }

    /// Keeps what programs need of a job that an earlier run of the daemon opened. `began`: a step of it was started, so
    /// that its prolog has ended.
    pub(super) fn found_around(&mut self, facts: &Arc<JobFacts>, began: bool) {
        let around = self.around(facts);
        let Some(job) = self.jobs.get_mut(&attempt_of(facts.key)) else {
            return invariant!("a job that was found is known");
        };
        if job.around.is_none() {
            job.around = around;
        }
        if let Some(around) = job.around.as_mut().filter(|_| began) {
            around.prolog = Prolog::Done;
        }
        self.found_passed(attempt_of(facts.key));
    }

    /// Records that an earlier run of the daemon saw a program end.
    pub(super) fn found_hook(&mut self, job: JobAttempt, hook: Hook) {
        self.hooks.passed.insert((job, hook));
        self.found_passed(job);
    }

    /// Skips the programs of a job that earlier runs of the daemon have seen end. Returns whether its prolog is one.
    fn found_passed(&mut self, attempt: JobAttempt) -> bool {
        let passed = |hook: Hook| self.hooks.passed.contains(&(attempt, hook));
        let (prolog, epilog) = (passed(Hook::Prolog), passed(Hook::Epilog));
        let Some(around) = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut()) else { return false };
        around.epilog &= !epilog;
        if prolog {
            around.prolog = Prolog::Done;
        }
        prolog
    }

    /// Takes up the jobs that earlier runs of the daemon opened, once all are known.
    pub(super) fn found_all(&mut self, now: Time, out: &mut NodeOut) {
        self.hooks.settled = true;
        self.first_check(now, out);
        self.hooks.passed.retain(|(job, _)| !self.jobs.contains_key(job));
        let jobs: Vec<JobAttempt> =
            self.jobs.iter().filter(|(_, job)| job.around.is_some()).map(|(attempt, _)| *attempt).collect();
        for attempt in jobs {
            let name = self.boot.name.as_str();
            let Some(job) = self.jobs.get(&attempt) else {
                invariant!("a job that was listed is known");
                continue;
            };
            let never_ran = job.lacks(StepNo::BATCH);
            let Some(around) = &job.around else {
                invariant!("a job that was listed has programs around it");
                continue;
            };
            let scripted =
                around.facts.spec.kind == JobKind::Batch && around.facts.nodes.get(0).as_deref() == Some(name);
            let done = around.prolog == Prolog::Done;
            if scripted && never_ran {
                // The mark of the job is written before its script's folder, so the script has never run.
                self.unstarted.insert(attempt);
            }
            if done {
                self.tell_prolog(attempt, None);
            } else if self.boot.hooks.prolog_flags.alloc {
                self.begin_prolog(now, attempt, out);
            }
        }
    }

    /// Starts the prolog of a job that has just got this node, if that does not wait for the job's first step.
    pub(super) fn job_opened(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        if self.boot.hooks.prolog_flags.alloc {
            self.begin_prolog(now, attempt, out);
        }
    }

    /// Keeps a launch until the job's prolog has ended. Returns it if it need not wait.
    pub(super) fn hold(&mut self, now: Time, launch: Box<StepLaunch>, out: &mut NodeOut) -> Option<Box<StepLaunch>> {
        let attempt = attempt_of(launch.key);
        let job = self.jobs.get_mut(&attempt);
        let Some(around) = job.and_then(|job| job.around.as_mut()).filter(|around| around.prolog != Prolog::Done)
        else {
            return Some(launch);
        };
        if around.prolog == Prolog::Failed && launch.key.step != StepNo::BATCH {
            self.refuse(launch.key, "the prolog of the job failed".to_owned(), true);
            return None;
        }
        let spec = &launch.facts.spec;
        let wanted = |blob: &&Blob| [spec.script, Some(spec.env)].contains(&Some(blob.digest));
        let blobs = out.blobs.iter().filter(wanted).cloned().collect();
        around.waiting.push(Waiting { launch, blobs, warrant: self.warrant.clone() });
        self.begin_prolog(now, attempt, out);
        None
    }

    /// Opens a job for the programs around it: those that have ended are not run again.
    pub(super) fn job_is_fresh(&mut self, attempt: JobAttempt) {
        if self.found_passed(attempt) {
            self.tell_prolog(attempt, None);
        }
        self.hooks.passed.retain(|(job, _)| *job != attempt);
    }

    fn begin_prolog(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) {
        let around = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut());
        // because the prolog may have begun, have ended, or not be wanted
        let Some(around) = around.filter(|around| around.prolog == Prolog::Owed) else { return };
        around.prolog = Prolog::Running;
        let run = HookRun { hook: Hook::Prolog, facts: Some(Arc::clone(&around.facts)), exit: None };
        self.run_hook(now, run, out);
    }

    /// Runs the job's epilog, if it is owed. Returns whether it runs.
    pub(super) fn begin_epilog(&mut self, now: Time, attempt: JobAttempt, out: &mut NodeOut) -> bool {
        let around = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut());
        let Some(around) = around else { return false };
        if !around.take_epilog() {
            return false;
        }
        let run = HookRun { hook: Hook::Epilog, facts: Some(Arc::clone(&around.facts)), exit: around.exit };
        self.run_hook(now, run, out);
        true
    }

    /// Drops the launches of an ending job that wait for its prolog, and reports that they ended without a process.
    pub(super) fn drop_waiting(&mut self, now: Time, attempt: JobAttempt, only: Option<StepNo>) -> bool {
        let fenced = self.fence.is_over(attempt, now);
        let Some(around) = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut()) else { return false };
        let dropped = |waiting: &mut Waiting| only.is_none_or(|step| step == waiting.launch.key.step);
        let dropped: Vec<Waiting> = around.waiting.extract_if(.., dropped).collect();
        for waiting in &dropped {
            let exit = ExitCode { code: 0, signal: SIGTERM };
            let mut end = StepEnd { exit, started: now, ended: now, ..StepEnd::default() };
            if fenced {
                end.note_fenced();
            } else {
                end.note_told();
            }
            self.outbox.push(Report::StepEnded { key: waiting.launch.key, end });
        }
        !dropped.is_empty()
    }

    fn prolog_ended(&mut self, now: Time, attempt: JobAttempt, error: Option<String>, out: &mut NodeOut) {
        let around = self.jobs.get_mut(&attempt).and_then(|job| job.around.as_mut());
        // because the job may be gone before its prolog ends
        let Some(around) = around.filter(|around| around.prolog == Prolog::Running) else { return };
        if error.is_some() {
            around.prolog = Prolog::Failed;
            let steps = around.waiting.extract_if(.., |waiting| waiting.launch.key.step != StepNo::BATCH);
            for key in steps.map(|waiting| waiting.launch.key).collect::<Vec<_>>() {
                self.refuse(key, "the prolog of the job failed".to_owned(), true);
            }
            self.tell_prolog(attempt, error);
        } else {
            around.prolog = Prolog::Done;
            for Waiting { launch, blobs, warrant } in std::mem::take(&mut around.waiting) {
                out.blobs.extend(blobs);
                let of_message = std::mem::replace(&mut self.warrant, warrant);
                self.launch(now, launch, out);
                self.warrant = of_message;
            }
            self.tell_prolog(attempt, None);
        }
        self.sweep_if_idle(now, attempt, out);
    }

    /// Reports the end of a prolog; success only if the controller waits for it.
    fn tell_prolog(&mut self, job: JobAttempt, error: Option<String>) {
        let around = self.jobs.get(&job).and_then(|job| job.around.as_ref());
        let batch = around.is_some_and(|around| around.facts.spec.kind == JobKind::Batch);
        if error.is_some() || self.boot.hooks.are_awaited(batch) {
            self.outbox.note(NodeNote::Prolog { job, error });
        }
    }
}

/// Programs of any kind.
impl NodeMachine {
    /// Runs a program, now or after those before it.
    fn run_hook(&mut self, now: Time, run: HookRun, out: &mut NodeOut) {
        let around_job = |hook: Hook| matches!(hook, Hook::Prolog | Hook::Epilog);
        let busy = self.hooks.running.keys().any(|(hook, _)| around_job(*hook));
        if self.boot.hooks.prolog_flags.serial && busy && around_job(run.hook) {
            return self.hooks.queue.push_back(run);
        }
        let key = (run.hook, run.job());
        let limit_s = match run.hook {
            Hook::Prolog => self.boot.hooks.prolog_limit_s(),
            Hook::Epilog => self.boot.hooks.epilog_limit_s(),
            Hook::Health | Hook::AfterFault => Some(self.boot.health.timeout_s),
            _ => None,
        };
        let due = limit_s.map(|limit| now + Span::from_secs(limit));
        self.timers.extend(due.map(|due| (due, Timer::Hook(key.0, key.1))));
        self.hooks.running.insert(key, due);
        out.acts.push(NodeAct::Hook(Box::new(run)));
    }

    /// Has a program killed that runs beyond its time limit.
    pub(super) fn hook_overdue(&mut self, due: Time, key: HookKey, out: &mut NodeOut) {
        if self.hooks.running.get(&key) == Some(&Some(due)) {
            out.acts.push(NodeAct::KillHook { hook: key.0, job: key.1 });
        }
    }

    /// Handles the end of a program.
    pub(super) fn hook_ended(&mut self, now: Time, key: HookKey, error: Option<String>, out: &mut NodeOut) {
        // because an earlier run of the daemon may have begun the program
        let Some(due) = self.hooks.running.remove(&key) else { return };
        let overdue = due.is_some_and(|due| due <= now);
        if let Some(due) = due {
            self.timers.remove(&(due, Timer::Hook(key.0, key.1)));
        }
        let error = error.map(|error| if overdue { "it ran beyond its time limit".to_owned() } else { error });
        if let Some(next) = self.hooks.queue.pop_front() {
            self.run_hook(now, next, out);
        }
        match key {
            (Hook::Prolog, Some(job)) => self.prolog_ended(now, job, error, out),
            (Hook::Epilog, Some(job)) => {
                self.outbox.notes(error.map(|error| NodeNote::Epilog { job, error }));
                self.epilog_ended(now, job, out);
            }
            (Hook::Health, _) => self.outbox.note(NodeNote::Health { error }),
            (Hook::AfterFault, _) => self.fault_checked(now, error, out),
            (Hook::Reboot, _) => self.outbox.notes(error.map(|error| NodeNote::Reboot { error })),
            _ => {}
        }
    }

    /// Reboots the node's machine.
    pub(super) fn reboot(&mut self, now: Time, out: &mut NodeOut) {
        if !self.hooks.running.contains_key(&(Hook::Reboot, None)) {
            self.run_hook(now, HookRun { hook: Hook::Reboot, facts: None, exit: None }, out);
        }
    }

    /// Reports that a job's processes can't be killed, and runs the program for that.
    pub(super) fn unkillable(&mut self, now: Time, due: Time, attempt: JobAttempt, out: &mut NodeOut) {
        // because the job may have been swept by then
        let Some(job) = self.jobs.get_mut(&attempt).filter(|job| job.unkillable == Some(due)) else { return };
        if now > due + LATE {
            // The daemon itself was stopped meanwhile, and the end of the sweep may be among what it has yet to hear.
            let again = now + Span::from_secs(self.boot.health.unkillable_step_timeout_s);
            job.unkillable = Some(again);
            self.timers.insert((again, Timer::Unkillable(attempt)));
            return;
        }
        let facts = job.around.as_ref().map(|around| Arc::clone(&around.facts));
        out.acts.push(NodeAct::Say(format!("processes of job {} can't be killed", attempt.job)));
        self.outbox.note(NodeNote::Unkillable { job: attempt });
        if !self.boot.health.unkillable_step_program.is_empty() {
            let facts = facts.unwrap_or_else(|| Arc::new(unknown_facts(attempt)));
            self.run_hook(now, HookRun { hook: Hook::Unkillable, facts: Some(facts), exit: None }, out);
        }
    }
}

/// Returns the facts of a job of which the node knows the attempt only.
fn unknown_facts(attempt: JobAttempt) -> JobFacts {
    JobFacts { key: key_of(attempt, StepNo::BATCH), ..JobFacts::default() }
}

/// Checks of the node.
impl NodeMachine {
    /// Checks the node when its daemon starts. With `CYCLE` the nodes' first checks are spread over the interval.
    fn first_check(&mut self, now: Time, out: &mut NodeOut) {
        let health = &self.boot.health;
        if health.program.is_empty() {
            return;
        }
        let spread = health.node_state.cycle && health.interval_s > 0;
        if spread {
            let interval = Span::from_secs(health.interval_s).0;
            let at = self.boot.name.bytes().fold(5381_u64, |sum, byte| sum.wrapping_mul(33) ^ u64::from(byte));
            self.timers.insert((now + Span(at % interval), Timer::Check));
        } else {
            self.check(now, out);
        }
    }

    /// Checks the node, if it is in one of the states in which it is checked, and sets the time of the next check.
    pub(super) fn check(&mut self, now: Time, out: &mut NodeOut) {
        let health = &self.boot.health;
        let (states, interval) = (health.node_state, health.interval_s);
        if interval > 0 && !states.start_only {
            self.timers.insert((now + Span::from_secs(interval), Timer::Check));
        }
        let first = !std::mem::replace(&mut self.hooks.checked, true);
        let busy = self.hooks.running.contains_key(&(Hook::Health, None));
        if !busy && (first || self.is_in(states.idle, states.mixed, states.alloc)) {
            self.run_hook(now, HookRun { hook: Hook::Health, facts: None, exit: None }, out);
        }
    }

    /// Checks the node after a fault, which the controller has found at the given time.
    pub(super) fn check_after_fault(&mut self, now: Time, fault: Time, out: &mut NodeOut) {
        if self.boot.health.after_fault.is_empty() {
            return self.outbox.note(NodeNote::AfterFault { fault, error: None });
        }
        let begun = self.hooks.fault.map_or(fault, |check| check.begun);
        self.hooks.fault = Some(FaultCheck { newest: fault, begun });
        self.run_fault_check(now, out);
    }

    /// Runs the program that checks the node after a fault, if it does not run and has not passed.
    pub(super) fn run_fault_check(&mut self, now: Time, out: &mut NodeOut) {
        let runs = self.hooks.running.contains_key(&(Hook::AfterFault, None));
        if let Some(check) = self.hooks.fault.as_mut().filter(|_| !runs) {
            check.begun = check.newest;
            self.run_hook(now, HookRun { hook: Hook::AfterFault, facts: None, exit: None }, out);
        }
    }

    /// Reports the end of that program. It runs again if it failed, or if there was another fault meanwhile.
    fn fault_checked(&mut self, now: Time, error: Option<String>, out: &mut NodeOut) {
        let Some(check) = self.hooks.fault else { return invariant!("a check of a fault is for a fault") };
        if error.is_some() {
            let wait_s = Some(self.boot.health.interval_s).filter(|wait| *wait > 0).unwrap_or(AFTER_FAULT_S);
            self.timers.insert((now + Span::from_secs(wait_s), Timer::FaultCheck));
        } else if check.begun == check.newest {
            self.hooks.fault = None;
        }
        self.outbox.note(NodeNote::AfterFault { fault: check.begun, error });
        if check.begun != check.newest {
            self.run_fault_check(now, out);
        }
    }

    /// Returns whether the node is in one of the given states: without jobs, with free CPUs, without free CPUs.
    fn is_in(&self, idle: bool, mixed: bool, alloc: bool) -> bool {
        let live = || self.jobs.values().filter(|job| !job.is_gone());
        if live().next().is_none() {
            return idle;
        }
        if mixed == alloc {
            return mixed;
        }
        let here = self.id;
        let cpus_of = |job: &Job| {
            let facts = &job.around.as_ref()?.facts;
            facts.cpus.get(facts.place(here?)?).copied()
        };
        let held: u32 = live().filter_map(cpus_of).sum();
        if held < self.boot.hardware.cpus { mixed } else { alloc }
    }
}
