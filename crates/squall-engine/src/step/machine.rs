//! State transitions of a step.

use squall_model::job::{ExitCode, Usage};
use squall_model::report::StepEnd;
use squall_model::series::{Sample, Series};
use squall_model::step::FromStep;
use squall_model::time::{Span, Time};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::FromStepd;

use super::end::{Task, exit_of};
use super::{StepAct, StepInput, StepOut, StepSetup};
use crate::invariant::invariant;
use crate::machine::Machine;

/// Numbers of the signals SIGKILL, SIGTERM and SIGCONT.
const KILL: i32 = 9;
const TERM: i32 = 15;
const CONT: i32 = 18;

/// Seconds between TERM and KILL for the other tasks of a step when one task aborts it.
const ABORT_WAIT_S: u64 = 2;

/// Seconds that the output of an ended step has to reach its `srun`, and again as many for the acknowledgement.
const DRAIN_S: u64 = 5;

/// How long the tasks of a job that requeues itself go on after the request, so that its script can receive the
/// answer.
const REQUEUE_HEADSTART: Span = Span::from_millis(200);

/// State of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started yet.
    Idle,
    /// Tasks are running or being started.
    Running,
    /// TERM was sent; KILL follows at `kill_at`.
    Ending { kill_at: Time },
    /// All processes are being killed until none is left.
    Clearing,
    /// No process is left, and output is being sent, until the given time at most. None: without limit.
    Draining { until: Option<Time> },
    /// The final message is sent, and `srun` has yet to acknowledge it, until the given time at most. None: without
    /// limit.
    Parting { until: Option<Time> },
    /// The final message is sent, and the wait for its acknowledgement is over. The step daemon ends.
    Over,
}

/// One node's part of a step.
#[derive(Clone, Debug)]
pub struct StepMachine {
    setup: StepSetup,
    phase: Phase,
    tasks: Vec<Task>,
    /// Time at which a requeue ends the step, a little after the request. None: no requeue was requested.
    requeued: Option<Time>,
    /// Whether the step was ended on request: the wait for an `srun` that does not read its output is then limited.
    ended: bool,
    /// The first reason that was given for ending the step. `None`: none was.
    why: EndReason,
    /// Signals received before the tasks were started: number, and whether for all processes.
    early: Vec<(i32, bool)>,
    started: Time,
    stopped: Time,
    oom: bool,
    note: Option<String>,
    /// Exit of the step set by `Refuse` or `Abort`, which overrides the tasks' exits. None: the tasks' exits decide.
    verdict: Option<ExitCode>,
    orphans: Usage,
    /// What the tasks have used over time. None: nothing was measured yet.
    over_time: Option<Box<OverTime>>,
}

/// Usage over time, with the last measurement and how long after the start it was made.
#[derive(Clone, Debug, Default)]
struct OverTime {
    series: Series,
    at: Span,
    last: Sample,
}

impl StepMachine {
    /// Makes the machine of a step that was launched.
    pub fn new(setup: StepSetup) -> Self {
        let tasks = setup.ranks.iter().map(|&rank| Task::new(rank)).collect();
        Self {
            setup,
            phase: Phase::Idle,
            tasks,
            requeued: None,
            ended: false,
            why: EndReason::None,
            early: Vec::new(),
            started: Time::default(),
            stopped: Time::default(),
            oom: false,
            note: None,
            verdict: None,
            orphans: Usage::default(),
            over_time: None,
        }
    }

    /// Returns the parameters of the launch.
    pub fn setup(&self) -> &StepSetup {
        &self.setup
    }

    /// Returns rank and process id of each task that was started.
    pub fn pids(&self) -> Vec<(u32, u32)> {
        self.tasks.iter().filter_map(|t| t.pid.map(|pid| (t.rank, pid))).collect()
    }

    /// Returns whether the step was ended on request.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the step's final message is sent.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Parting { .. } | Phase::Over)
    }

    fn start(&mut self, now: Time, out: &mut StepOut) {
        if self.phase != Phase::Idle {
            return;
        }
        self.started = now;
        self.stopped = now;
        if self.ended {
            for task in &mut self.tasks {
                task.exit = Some(ExitCode { code: 0, signal: TERM as u8 });
                task.told = true;
            }
            return self.clear(out);
        }
        self.phase = Phase::Running;
        out.push(StepAct::Spawn);
    }

    fn refuse(&mut self, now: Time, exit: ExitCode, note: String, out: &mut StepOut) {
        if self.phase != Phase::Idle {
            return;
        }
        self.started = now;
        self.stopped = now;
        self.verdict = Some(exit);
        out.push(StepAct::Notice(note.clone()));
        self.note = Some(note);
        self.clear(out);
    }

    fn fail(&mut self, error: String, node_fault: bool, out: &mut StepOut) {
        if self.is_over() {
            return;
        }
        self.phase = Phase::Over;
        let notice = FromStep::Notice(format!("error: {error}"));
        let last = FromStepd::Failed { error, node_fault };
        out.extend([
            StepAct::WriteResult(last.clone()),
            StepAct::Node(last),
            StepAct::Client(notice),
            StepAct::Client(FromStep::Done),
            StepAct::Exit,
        ]);
    }

    fn task(&mut self, rank: u32) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|t| t.rank == rank)
    }

    /// Goes on after the last answer to `Spawn`: reports the tasks and sends delayed signals.
    fn launched(&mut self, now: Time, out: &mut StepOut) {
        if self.tasks.iter().any(|t| t.pid.is_none() && t.exit.is_none()) {
            return;
        }
        let tasks = self.pids();
        if !tasks.is_empty() {
            out.push(StepAct::Node(FromStepd::Started { tasks: tasks.clone() }));
            out.push(StepAct::Client(FromStep::Started(tasks)));
        }
        for (signal, all) in std::mem::take(&mut self.early) {
            out.push(StepAct::Signal { signal, all });
        }
        self.after_exit(now, out);
    }

    fn spawn_failed(&mut self, now: Time, rank: u32, code: u8, error: String, out: &mut StepOut) {
        let Some(task) = self.task(rank).filter(|t| t.exit.is_none() && t.pid.is_none()) else {
            return invariant!("the start of a task is answered once");
        };
        task.exit = Some(ExitCode { code, signal: 0 });
        if self.setup.is_batch() {
            out.push(StepAct::Notice(error.clone()));
            self.note = Some(error);
        } else {
            out.push(StepAct::Client(FromStep::Failed { rank, code, error }));
        }
        self.launched(now, out);
    }

    fn unspawned(&mut self, now: Time, rank: u32, out: &mut StepOut) {
        let Some(task) = self.task(rank).filter(|t| t.exit.is_none() && t.pid.is_none()) else {
            return invariant!("the start of a task is answered once");
        };
        task.exit = Some(ExitCode { code: 0, signal: TERM as u8 });
        task.told = true;
        self.launched(now, out);
    }

    fn exited(&mut self, now: Time, rank: u32, (exit, usage): (ExitCode, Usage), heard: bool, out: &mut StepOut) {
        let told = matches!(self.phase, Phase::Ending { .. } | Phase::Clearing);
        let by_us = told && [TERM as u8, KILL as u8].contains(&exit.signal);
        let oom = self.oom && exit.signal == KILL as u8;
        let Some(task) = self.task(rank).filter(|t| t.exit.is_none()) else { return invariant!("a task ends once") };
        task.exit = Some(exit);
        task.by_us = by_us && !oom;
        // A shell returns 128 plus the signal's number if such a signal ended its command.
        task.told = told && (by_us || heard || is_of_signal(exit));
        task.usage = Usage { max_rss_task: rank, total_rss_kb: usage.max_rss_kb, ..usage };
        self.stopped = now;
        out.push(StepAct::Client(FromStep::Exited { rank, exit, oom }));
        self.after_exit(now, out);
    }

    fn after_exit(&mut self, now: Time, out: &mut StepOut) {
        if !matches!(self.phase, Phase::Running | Phase::Ending { .. }) {
            return;
        }
        if self.tasks.iter().all(|t| t.exit.is_some()) {
            return self.clear(out);
        }
        if self.phase != Phase::Running {
            return;
        }
        let failed = self.tasks.iter().any(|t| t.exit.is_some_and(|e| !e.is_ok()));
        if failed && self.setup.kill_on_bad_exit {
            self.end(now, self.setup.kill_wait_s, EndReason::None, out);
        }
    }

    /// Returns what the tasks have used over time. None: nothing was measured yet.
    pub fn series(&self) -> Option<Box<Series>> {
        self.over_time.as_ref().map(|over_time| Box::new(over_time.series.clone()))
    }

    fn sampled(&mut self, now: Time, sample: Sample) {
        if self.started == Time::default() || self.is_over() {
            return;
        }
        let at = now.since(self.started);
        let over_time = self.over_time.get_or_insert_default();
        over_time.series.push((at, &sample), (over_time.at, &over_time.last));
        (over_time.at, over_time.last) = (at, sample);
    }

    fn oom(&mut self, now: Time, kills: u64, (peak_kb, limit_mb): (u64, u64), kill: bool, out: &mut StepOut) {
        if self.is_over() {
            return;
        }
        if !self.oom {
            let key = self.setup.key;
            let text = format!(
                "Detected {kills} oom_kill event{} in StepId={}.{}. Some of the step tasks have been OOM Killed.",
                if kills == 1 { "" } else { "s" },
                key.job,
                key.step
            );
            out.push(StepAct::Notice(text.clone()));
            self.note = Some(format!("{text} Peak memory {} MiB, limit {limit_mb} MiB.", peak_kb.div_ceil(1024)));
        }
        self.oom = true;
        if self.setup.oom_kill_step && self.phase == Phase::Running {
            self.end(now, self.setup.kill_wait_s, EndReason::None, out);
        }
        if kill && matches!(self.phase, Phase::Running | Phase::Ending { .. }) {
            self.clear(out);
        }
    }

    fn signal(&mut self, signal: i32, all: bool, out: &mut StepOut) {
        let launched = self.tasks.iter().all(|t| t.pid.is_some() || t.exit.is_some());
        match self.phase {
            Phase::Idle | Phase::Running if !launched => self.early.push((signal, all)),
            Phase::Running | Phase::Ending { .. } => out.push(StepAct::Signal { signal, all }),
            _ => {}
        }
    }

    /// Ends the step: at once, or for a job that requeues itself after the time its script needs to receive the
    /// answer.
    fn end_for(&mut self, now: Time, kill_wait_s: u64, why: EndReason, out: &mut StepOut) {
        if why == EndReason::RequeuesItself
            && self.phase == Phase::Running
            && kill_wait_s > 0
            && self.requeued.is_none()
        {
            self.requeued = Some(now + REQUEUE_HEADSTART);
        } else {
            self.end(now, kill_wait_s, why, out);
        }
    }

    fn end(&mut self, now: Time, kill_wait_s: u64, why: EndReason, out: &mut StepOut) {
        let first = !self.ended;
        self.ended = true;
        let kill_at = now + Span::from_secs(kill_wait_s);
        if first && why != EndReason::None && matches!(self.phase, Phase::Idle | Phase::Running) {
            out.push(StepAct::NoticeEnd(why));
        }
        match self.phase {
            Phase::Running => {
                // Without a wait TERM is not sent: it would be recorded as the cause of death instead of KILL.
                if kill_wait_s > 0 {
                    out.push(StepAct::Signal { signal: TERM, all: true });
                    out.push(StepAct::Signal { signal: CONT, all: true });
                }
                self.phase = Phase::Ending { kill_at };
            }
            Phase::Ending { kill_at: before } => self.phase = Phase::Ending { kill_at: kill_at.min(before) },
            Phase::Draining { until } => self.phase = Phase::Draining { until: Some(sooner(until, now)) },
            Phase::Parting { until } => self.phase = Phase::Parting { until: Some(sooner(until, now)) },
            Phase::Idle | Phase::Clearing | Phase::Over => {}
        }
        self.tick(now, out);
    }

    /// Ends all tasks of the step, because one of them requested that or ended badly. `srun` passes the abort on to the
    /// other nodes.
    fn abort(&mut self, now: Time, code: u8, text: String, out: &mut StepOut) {
        if self.phase != Phase::Running {
            return;
        }
        out.push(StepAct::Notice(text.clone()));
        self.note = Some(text);
        self.verdict = Some(ExitCode { code, signal: 0 });
        out.push(StepAct::Client(FromStep::Aborted { code }));
        self.end(now, ABORT_WAIT_S, EndReason::None, out);
    }

    fn tick(&mut self, now: Time, out: &mut StepOut) {
        match self.phase {
            Phase::Ending { kill_at } if now >= kill_at => self.clear(out),
            Phase::Running if self.requeued.take_if(|at| now >= *at).is_some() => {
                self.end(now, self.setup.kill_wait_s, EndReason::RequeuesItself, out);
            }
            Phase::Draining { until: Some(until) } if now >= until => self.finish(now, true, out),
            Phase::Parting { until: Some(until) } if now >= until => self.part(out),
            _ => {}
        }
    }

    /// Kills everything that is left. Precondition: every task has ended, or the time between TERM and KILL is over.
    fn clear(&mut self, out: &mut StepOut) {
        self.phase = Phase::Clearing;
        out.push(StepAct::KillLeft);
    }

    fn gone(&mut self, now: Time, out: &mut StepOut) {
        if self.phase == Phase::Clearing {
            let until = self.ended.then(|| now + Span::from_secs(DRAIN_S));
            self.phase = Phase::Draining { until };
            out.push(StepAct::Drain);
        }
    }

    /// Sends the final message. `delivered`: no output can be lost any more, or the wait for it is over.
    fn finish(&mut self, now: Time, delivered: bool, out: &mut StepOut) {
        if !matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        let mut usage = self.orphans;
        for task in &self.tasks {
            usage.absorb(&task.usage);
        }
        let exit = match self.verdict {
            Some(exit) => exit,
            None if self.oom => ExitCode::OUT_OF_MEMORY,
            None => exit_of(&self.tasks),
        };
        let mut end = StepEnd {
            exit,
            oom: self.oom,
            lost: false,
            usage,
            started: self.started,
            ended: self.stopped,
            note: self.note.clone(),
            series: self.over_time.as_ref().and_then(|over_time| over_time.series.kept()),
        };
        if self.setup.is_batch() && self.tasks.iter().any(|task| task.told) {
            end.note_told();
        }
        if self.setup.report {
            out.push(StepAct::Report { end: end.clone(), why: self.why });
        }
        let last = FromStepd::Ended(end);
        out.extend([StepAct::WriteResult(last.clone()), StepAct::Node(last), StepAct::Client(FromStep::Done)]);
        self.phase = Phase::Parting { until: self.ended.then(|| now + Span::from_secs(DRAIN_S)) };
        if delivered {
            self.part(out);
        }
    }

    /// Lets the step daemon exit: `srun` has everything, is gone, or has not answered in time.
    fn part(&mut self, out: &mut StepOut) {
        if matches!(self.phase, Phase::Parting { .. }) {
            self.phase = Phase::Over;
            out.push(StepAct::Exit);
        }
    }
}

/// Returns the time limit for a step that is ended now and may already have had one: the earlier of both.
fn sooner(until: Option<Time>, now: Time) -> Time {
    let limit = now + Span::from_secs(DRAIN_S);
    until.map_or(limit, |until| until.min(limit))
}

/// Returns whether the exit code is one by which a shell reports that TERM or KILL ended its command.
fn is_of_signal(exit: ExitCode) -> bool {
    [128 + TERM as u8, 128 + KILL as u8].contains(&exit.code)
}

impl Machine for StepMachine {
    type Input = StepInput;
    type Out = StepOut;

    fn step(&mut self, now: Time, input: StepInput, out: &mut StepOut) {
        match input {
            StepInput::Start => self.start(now, out),
            StepInput::Refuse { exit, note } => self.refuse(now, exit, note, out),
            StepInput::Fail { error, node_fault } => self.fail(error, node_fault, out),
            StepInput::Spawned { rank, pid } => {
                if let Some(task) = self.task(rank) {
                    task.pid = Some(pid);
                }
                self.launched(now, out);
            }
            StepInput::Unspawned { rank } => self.unspawned(now, rank, out),
            StepInput::SpawnFailed { rank, code, error } => self.spawn_failed(now, rank, code, error, out),
            StepInput::Exited { rank, exit, usage, heard } => self.exited(now, rank, (exit, usage), heard, out),
            StepInput::Orphan { usage } => self.orphans.absorb(&usage),
            StepInput::Sampled { sample } => self.sampled(now, sample),
            StepInput::Oom { kills, peak_kb, limit_mb, kill } => self.oom(now, kills, (peak_kb, limit_mb), kill, out),
            StepInput::Signal { signal, all } => self.signal(signal, all, out),
            StepInput::End { kill_wait_s, why } => {
                if self.why == EndReason::None {
                    self.why = why;
                }
                self.end_for(now, kill_wait_s, why, out);
                out.push(StepAct::Node(FromStepd::Ending));
            }
            StepInput::Abort { code, text } => self.abort(now, code, text, out),
            StepInput::ClientLost if self.is_over() => self.part(out),
            StepInput::ClientLost => self.end(now, self.setup.kill_wait_s, EndReason::None, out),
            StepInput::Gone => self.gone(now, out),
            StepInput::Drained { delivered } => self.finish(now, delivered, out),
            StepInput::Tick => self.tick(now, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Running => self.requeued,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Draining { until } | Phase::Parting { until } => until,
            Phase::Idle | Phase::Clearing | Phase::Over => None,
        }
    }
}
