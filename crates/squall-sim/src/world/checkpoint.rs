//! Checkpoints of jobs on simulated nodes, which keep numbers in place of an image: for how long the script would have
//! run on, and, of a job of several nodes, the state of what its parts say to each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::node::{CheckpointAct, Guard, NodeInput, attempt_of};
use squall_engine::step::StepInput;
use squall_model::checkpoint::{CheckpointOrder, CheckpointVerb, Made};
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::time::Span;

use crate::mutation::Mutation;
use crate::world::node::{Image, address};
use crate::world::step::{KILL, Restoring, StepHost};
use crate::world::{Happening, World};

fn script_of(job: JobAttempt) -> StepKey {
    StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }
}

/// Returns a number that hardly differs from that of others by chance.
fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x51_7c_c1_b7_27_22_0a_95);
    for shift in [30, 27, 31] {
        x = (x ^ (x >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    x
}

impl World {
    /// Returns the checkpoints in the folder that a node has, or that all nodes share: by job, number, and place of the part
    /// among those of the job.
    pub(crate) fn images(&mut self, node: usize) -> &mut BTreeMap<(JobId, u64, u32), Image> {
        let folder = if self.setup.config.checkpoint_shared { 0 } else { node };
        &mut self.nodes[folder].images
    }

    /// Returns the place of a node among those of a job.
    fn place(&self, node: usize, key: StepKey) -> u32 {
        self.nodes[node].steps.get(&key).map_or(0, |step| step.launch.job_node_index)
    }

    /// Returns whether a step is a part of a job of several nodes.
    fn is_part(&self, node: usize, key: StepKey) -> bool {
        self.nodes[node].steps.get(&key).is_some_and(|step| step.launch.facts.nodes.len() > 1)
    }

    /// Notes that a job's script, or the keeper on another node, runs: it may say something to the others.
    pub(crate) fn part_runs(&mut self, key: StepKey) {
        if key.step == StepNo::BATCH {
            *self.talks.entry(attempt_of(key)).or_default() += 1;
        }
    }

    /// Returns the state of a job's connections, and what a part of it says of those with its neighbours in a ring. None: the
    /// job has one node.
    fn links(&mut self, node: usize, key: StepKey) -> Option<(u64, u64)> {
        let launch = self.nodes[node].steps.get(&key).filter(|_| self.is_part(node, key))?.launch.clone();
        let stands = |node: NodeId| {
            let step = self.judge.host(node).and_then(|node| self.nodes[node].steps.get(&key));
            step.is_none_or(|step| !step.runs())
        };
        let still = launch.facts.ids.iter().all(stands);
        let now = self.talks.get(&attempt_of(key)).copied().unwrap_or(0);
        // What another part may just be saying is under way.
        let talk = if still { now } else { self.seed.next() };
        let (place, count) = (u64::from(launch.job_node_index), launch.facts.nodes.len() as u64);
        let links = mixed(place, talk) ^ mixed((place + 1) % count, talk);
        Some((talk, if self.is_planted(Mutation::PartsUncompared) { 0 } else { links }))
    }

    pub(crate) fn checkpoint_act(&mut self, node: usize, act: CheckpointAct) {
        match act {
            CheckpointAct::Make(order) => self.make_checkpoint(node, order),
            CheckpointAct::Stop { job } => {
                self.nodes[node].dumps.remove(&job);
                self.freeze(node, script_of(job), false);
            }
            CheckpointAct::Thaw { job } => self.freeze(node, script_of(job), false),
            CheckpointAct::Go { job } => self.part_goes(node, script_of(job)),
            CheckpointAct::Forget { job } => {
                self.images(node).retain(|(of, ..), _| *of != job);
            }
        }
    }

    fn make_checkpoint(&mut self, node: usize, order: Box<CheckpointOrder>) {
        let (job, number, life) = (order.job, order.number, self.nodes[node].life);
        let own = self.place(node, script_of(job));
        let kept =
            |(of, number, place): &(JobId, u64, u32)| (*of, *place) != (job.job, own) || order.kept.contains(number);
        self.images(node).retain(|image, _| kept(image));
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
                let (talk, links) = self.links(node, key).unzip();
                let (image, place) = (Image { left, talk: talk.unwrap_or(0), at: node }, self.place(node, key));
                self.images(node).insert((job.job, number, place), image);
                Ok(Some(Made { links, ..Made::default() }))
            }
            _ => Err("the dump failed".to_owned()),
        };
        let stays = order.verb.vacates() || (makes && self.is_part(node, key));
        if !stays || result.is_err() {
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
        self.judge.damaged.insert(job, node);
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

    /// Checks that a part of a job knows the addresses of all parts that are elsewhere now.
    fn moved(&mut self, node: usize, key: StepKey, number: u64) {
        let Some(facts) = self.nodes[node].steps.get(&key).map(|step| Arc::clone(&step.launch.facts)) else { return };
        // Otherwise each part is where it was made, and a node's folder may have others of an attempt that did not count.
        if !self.setup.config.checkpoint_shared {
            return;
        }
        let told = facts.moved.clone().filter(|_| !self.is_planted(Mutation::MovesUntold)).unwrap_or_default();
        for (id, place) in facts.ids.iter().zip(0..) {
            let (Some(now), Some(image)) = (self.judge.host(id), self.images(node).get(&(key.job, number, place)))
            else {
                continue;
            };
            let (old, new) = (address(image.at), address(now));
            if old != new && !told.contains(&(old, new)) {
                let text = format!("job {}: part {place} is on {} now", key.job, self.nodes[now].name);
                self.judge.violate("a part that goes on elsewhere can be reached there", text);
            }
        }
    }

    /// Begins to restore a script, which takes a while.
    pub(crate) fn restore_begins(&mut self, node: usize, key: StepKey, left: Span) {
        let (boot, span) = (self.nodes[node].boot, self.seed.span(Span::from_millis(50), Span::from_secs(2)));
        if let Some(restore) = self.nodes[node].steps.get(&key).and_then(|step| step.launch.facts.restore) {
            self.moved(node, key, restore.number);
        }
        if let Some(step) = self.nodes[node].steps.get_mut(&key) {
            step.restoring = Some(Restoring { left, later: Vec::new(), held: false });
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
        let several = self.is_part(node, key);
        let step = self.nodes[node].steps.get_mut(&key).filter(|step| step.is_alive());
        let Some(step) = step.filter(|step| step.restoring.is_some()) else { return };
        if let Some(restoring) = step.restoring.as_mut().filter(|_| several) {
            restoring.held = true;
            self.judge.held.insert((attempt_of(key), node));
            self.tell_held(node, key);
            if !self.is_planted(Mutation::GateUnawaited) {
                return;
            }
        }
        self.part_goes(node, key);
    }

    /// Tells a node daemon, if there is one, that a part of a job is restored and waits for the others.
    pub(crate) fn tell_held(&mut self, node: usize, key: StepKey) {
        let step = self.nodes[node].steps.get(&key).filter(|step| step.is_alive());
        let held = step.filter(|step| step.restoring.as_ref().is_some_and(|restoring| restoring.held));
        let number = held.and_then(|step| Some(step.launch.facts.restore?.number));
        if let Some(number) = number.filter(|_| self.nodes[node].has_daemon()) {
            self.tell_node(node, NodeInput::Restored { job: attempt_of(key), number });
        }
    }

    /// Has a restored script, or a part of a job that has waited for the others, run on.
    fn part_goes(&mut self, node: usize, key: StepKey) {
        let several = self.is_part(node, key);
        let step = self.nodes[node].steps.get_mut(&key).filter(|step| step.is_alive());
        let Some(step) = step else { return };
        let ids = step.launch.facts.ids.clone();
        let ready = |restoring: &mut Restoring| restoring.held || !several;
        let Some(restoring) = step.restoring.take_if(ready) else { return };
        let absent = ids.iter().find(|id| {
            let part = self.judge.host(*id).map(|node| (attempt_of(key), node));
            several && part.is_some_and(|part| !self.judge.held.contains(&part))
        });
        if let Some(absent) = absent {
            let text = format!("job {} goes on on {}, without node {absent}", key.job, self.nodes[node].name);
            self.judge.violate("the parts of a restored job go on together", text);
        }
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
                && let Some(job) = self.judge.attempt_of(*id).filter(|job| self.judge.is_script_damaged(*job))
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
            let parts = change.nodes.iter().flat_map(|nodes| nodes.iter().filter_map(|id| self.judge.host(id)));
            let parts: Vec<usize> = parts.chain(change.nodes.is_none().then_some(node)).collect();
            let mut talks = Vec::new();
            for (place, node) in parts.into_iter().enumerate() {
                if let Some(image) = self.images(node).get(&(job.job, change.number, place as u32)) {
                    talks.push(image.talk);
                } else {
                    let text = format!("number {} of job {} on {}", change.number, job.job, self.nodes[node].name);
                    self.judge.violate("a checkpoint counts only when it is complete", text);
                }
            }
            if talks.iter().any(|talk| Some(talk) != talks.first()) {
                let text = format!("number {} of job {}", change.number, job.job);
                self.judge.violate("the parts of a checkpoint are one state of the job", text);
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
        let place = self.place(node, key);
        if self.judge.is_ending(key.job) && self.judge.last_checkpoint(key.job).is_some() {
            // It goes back to that, as its user wants or another of its nodes has failed.
            return;
        }
        let images = self.images(node).keys();
        let last = images.filter(|image| (image.0, image.2) == (key.job, place)).map(|image| (image.0, image.1)).max();
        let damaged = self.judge.damaged.contains_key(&job);
        if !damaged && last.is_none_or(|last| !self.judge.checkpoints.contains_key(&last)) {
            let text = format!("step {key}, {last:?}");
            self.judge.violate("a frozen job is killed only when its checkpoint counts", text);
        }
    }
}
