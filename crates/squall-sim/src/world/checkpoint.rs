//! Checkpoints of jobs on simulated nodes, which keep a number in place of an image: for how long the script would have
//! run on.

use std::collections::BTreeMap;

use squall_engine::node::{CheckpointAct, Guard, NodeInput, attempt_of};
use squall_engine::step::StepInput;
use squall_model::checkpoint::{CheckpointOrder, CheckpointVerb, Made};
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, JobId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::time::Span;

use crate::mutation::Mutation;
use crate::world::step::{KILL, Restoring, StepHost};
use crate::world::{Happening, World};

fn script_of(job: JobAttempt) -> StepKey {
    StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }
}

impl World {
    /// Returns the checkpoints in the folder that a node has, or that all nodes share.
    pub(crate) fn images(&mut self, node: usize) -> &mut BTreeMap<(JobId, u64), Span> {
        let folder = if self.setup.config.checkpoint_shared { 0 } else { node };
        &mut self.nodes[folder].images
    }

    pub(crate) fn checkpoint_act(&mut self, node: usize, act: CheckpointAct) {
        match act {
            CheckpointAct::Make(order) => self.make_checkpoint(node, order),
            CheckpointAct::Stop { job } => {
                self.nodes[node].dumps.remove(&job);
                self.freeze(node, script_of(job), false);
            }
            CheckpointAct::Thaw { job } => self.freeze(node, script_of(job), false),
            CheckpointAct::Forget { job } => self.images(node).retain(|(of, _), _| *of != job),
        }
    }

    fn make_checkpoint(&mut self, node: usize, order: Box<CheckpointOrder>) {
        let (job, number, life) = (order.job, order.number, self.nodes[node].life);
        self.images(node).retain(|(of, number), _| *of != job.job || order.kept.contains(number));
        self.nodes[node].dumps.insert(job, number);
        let makes = order.verb != CheckpointVerb::Able;
        self.freeze(node, script_of(job), makes);
        let span = self.seed.span(Span::from_millis(50), Span::from_secs(8));
        self.after(span, Happening::Dumped { node, life, order });
        if makes && self.is_planted(Mutation::CountedBeforeSafe) {
            self.tell_node(node, NodeInput::Checkpointed { job, number, result: Ok(Some(Made::default())) });
        }
    }

    /// Ends a dump, unless it died with its node daemon.
    pub(crate) fn dumped(&mut self, node: usize, life: u64, order: &CheckpointOrder) {
        let (job, number) = (order.job, order.number);
        if !self.nodes[node].lives(life) || self.nodes[node].dumps.remove(&job) != Some(number) {
            return;
        }
        let key = script_of(job);
        let left = self.nodes[node].steps.get(&key).and_then(StepHost::left);
        let makes = order.verb != CheckpointVerb::Able;
        let luck = left.filter(|_| makes).map_or(0, |_| self.seed.below(100));
        let result = match left {
            Some(_) if !makes => Ok(None),
            Some(_) if luck < 3 => return self.damage(node, job, number),
            Some(left) if luck >= 10 => {
                self.images(node).insert((job.job, number), left);
                Ok(Some(Made::default()))
            }
            _ => Err("the dump failed".to_owned()),
        };
        if !order.verb.vacates() || result.is_err() {
            self.freeze(node, key, false);
        }
        let killed = order.verb.vacates() && result.is_ok() && self.is_planted(Mutation::KilledBeforeCounted);
        self.tell_node(node, NodeInput::Checkpointed { job, number, result });
        if killed {
            self.signal(node, key, KILL);
        }
    }

    /// Kills the dump of a job, which may have damaged its processes.
    pub(crate) fn damage(&mut self, node: usize, job: JobAttempt, number: u64) {
        self.nodes[node].dumps.remove(&job);
        let (key, error) = (script_of(job), "the dump was killed".to_owned());
        if !self.nodes[node].steps.get(&key).is_some_and(StepHost::has_live_tasks) {
            return self.tell_node(node, NodeInput::Checkpointed { job, number, result: Err(error) });
        }
        self.judge.damaged.insert(job);
        let ignored = self.is_planted(Mutation::DamageIgnored);
        self.freeze(node, key, !ignored);
        let ended = NodeInput::Checkpointed { job, number, result: Err(error.clone()) };
        self.tell_node(node, if ignored { ended } else { NodeInput::Damaged { job, error } });
    }

    /// Thaws all jobs of a node, as a daemon that starts does. Returns those of which dumps were killed meanwhile, with the
    /// numbers.
    pub(crate) fn thaw_all(&mut self, node: usize) -> Vec<(JobAttempt, u64)> {
        let dumps = std::mem::take(&mut self.nodes[node].dumps);
        let damaged: Vec<_> = dumps.into_iter().filter(|_| self.seed.chance(300_000)).collect();
        for key in self.nodes[node].steps.keys().copied().collect::<Vec<_>>() {
            self.freeze(node, key, false);
        }
        damaged
    }

    /// Begins to restore a script, which takes a while.
    pub(crate) fn restore_begins(&mut self, node: usize, key: StepKey, left: Span) {
        let (boot, span) = (self.nodes[node].boot, self.seed.span(Span::from_millis(50), Span::from_secs(2)));
        if let Some(step) = self.nodes[node].steps.get_mut(&key) {
            step.restoring = Some(Restoring { left, later: Vec::new() });
        }
        self.after(span, Happening::Restored { node, boot, key });
        let left = self.restores_die.get(&key.job).copied().unwrap_or(0);
        self.restores_die.insert(key.job, left.saturating_sub(1));
        if left > 0 || self.seed.chance(100_000) {
            self.kill_step_daemon(node, key);
        }
    }

    /// Ends the restore of a script, which runs on, unless its step daemon was killed meanwhile.
    pub(crate) fn restored(&mut self, node: usize, boot: u64, key: StepKey) {
        if self.nodes[node].boot != boot {
            return;
        }
        let step = self.nodes[node].steps.get_mut(&key).filter(|step| step.is_alive());
        let Some(restoring) = step.and_then(|step| step.restoring.take()) else { return };
        self.begin_tasks(node, key, Some(restoring.left));
        for input in restoring.later {
            self.tell_step(node, key, input);
        }
    }

    /// Takes an input for a step daemon that is restoring a script. If the script is to end, the restore is killed.
    pub(crate) fn told_in_restore(&mut self, node: usize, key: StepKey, input: StepInput) {
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        if let StepInput::End { .. } = input {
            step.restoring = None;
            let error = "the restore was killed".to_owned();
            return self.tell_step(node, key, StepInput::Fail { error, node_fault: false });
        }
        if let Some(restoring) = &mut step.restoring {
            restoring.later.push(input);
        }
    }

    /// Returns what a node daemon finds out about a script of which the restore was killed.
    pub(crate) fn half_restored(&mut self, key: StepKey) -> NodeInput {
        self.judge.half_restored.insert(attempt_of(key));
        if self.is_planted(Mutation::HalfRestoredEnds) {
            let exit = ExitCode { code: 0, signal: KILL as u8 };
            let (started, ended) = (self.now, self.now);
            return NodeInput::Ended { key, end: StepEnd { exit, lost: true, started, ended, ..StepEnd::default() } };
        }
        NodeInput::Failed { key, error: "the restore was killed".to_owned(), node_fault: false }
    }

    /// Checks that checkpoints which count from a durable record on are complete.
    pub(crate) fn checkpoints_count(&mut self, record: &Record) {
        for event in &record.events {
            if let Event::JobEnding { id, outcome, requeue: None } = event
                && outcome.exit.signal == KILL as u8
                && let Some(job) = self.judge.attempt_of(*id).filter(|job| self.judge.half_restored.contains(job))
            {
                let text = format!("job {} attempt {}", job.job, job.attempt);
                self.judge.violate("a job of which a restore was killed goes back", text);
            }
            if let Event::JobEnding { id, outcome, .. } = event
                && outcome.state == EndState::Completed
                && let Some(job) = self.judge.attempt_of(*id).filter(|job| self.judge.damaged.contains(job))
            {
                let text = format!("job {} attempt {}", job.job, job.attempt);
                self.judge.violate("a job of which a dump was killed does not go on", text);
            }
            if let Event::JobEnding { id, outcome, .. } = event
                && outcome.reason.as_deref() == Some("Checkpointed")
                && let Some((&(_, number), attempt)) = self.judge.last_checkpoint(*id)
            {
                let next = JobAttempt { job: *id, attempt: Attempt(attempt.0 + 1) };
                self.judge.aside.insert(next, number);
            }
            let Event::Checkpoint(change) = event else { continue };
            let Some(node) = self.judge.host(change.node) else { continue };
            let job = change.job;
            if change.made.is_none() {
                continue;
            }
            self.judge.checkpoints.insert((job.job, change.number), job.attempt);
            if !self.images(node).contains_key(&(job.job, change.number)) {
                let text = format!("number {} of job {} on {}", change.number, job.job, self.nodes[node].name);
                self.judge.violate("a checkpoint counts only when it is complete", text);
            }
        }
    }

    /// Checks that a job which has stepped aside goes on from its checkpoint. `from`: number of the checkpoint from which
    /// its script begins.
    pub(crate) fn goes_on(&mut self, job: JobAttempt, from: Option<u64>) {
        if let Some(number) = self.judge.aside.get(&job).filter(|number| from != Some(**number)) {
            let text = format!("job {} attempt {}: {from:?}, and not {number}", job.job, job.attempt);
            self.judge.violate("a job that has stepped aside goes on from its checkpoint", text);
        }
    }

    /// Checks that the processes of a job which is to leave its node are killed only when a checkpoint counts, or when its
    /// node fence has passed.
    pub(crate) fn killed_frozen(&mut self, node: usize, key: StepKey) {
        let job = attempt_of(key);
        if self.nodes[node].guards.get(&job).is_some_and(Guard::is_over) {
            return;
        }
        let last = self.images(node).range((key.job, 0)..=(key.job, u64::MAX)).next_back().map(|(of, _)| *of);
        let damaged = self.judge.damaged.contains(&job);
        if !damaged && last.is_none_or(|last| !self.judge.checkpoints.contains_key(&last)) {
            let text = format!("step {key}, {last:?}");
            self.judge.violate("a frozen job is killed only when its checkpoint counts", text);
        }
    }
}
