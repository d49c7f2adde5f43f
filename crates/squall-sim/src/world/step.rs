//! Simulated step daemons and tasks of a node.

use squall_engine::machine::Machine;
use squall_engine::node::{NodeInput, attempt_of};
use squall_engine::step::{StepAct, StepInput, StepMachine, StepOut, StepSetup};
use squall_model::id::{Incarnation, StepKey, StepNo};
use squall_model::job::{ExitCode, Usage};
use squall_model::report::StepEnd;
use squall_model::step::StepLaunch;
use squall_model::time::{Span, Time};
use squall_model::wire::stepd::{FromStepd, ToStepd};

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::order::{Order, Truth};
use crate::trace::Origin;
use crate::world::node::Folder;
use crate::world::{Happening, World};

/// Number of the signal SIGKILL.
pub(crate) const KILL: i32 = 9;
/// Number of the signal SIGTERM.
const TERM: i32 = 15;
/// Number of the signal SIGCONT.
pub(crate) const CONT: i32 = 18;
/// Number of the signal SIGSTOP.
pub(crate) const STOP: i32 = 19;

/// For how long a keeper of a job's steps would run by itself: ten years.
const FOR_EVER: Span = Span(10 * 365 * 24 * 3600 * 1_000_000);

/// A step daemon and its tasks, or what remains after the daemon was killed.
#[derive(Debug)]
pub(crate) struct StepHost {
    /// The step daemon's state machine. None: the daemon was killed.
    machine: Option<StepMachine>,
    pub(crate) launch: Box<StepLaunch>,
    truth: Truth,
    tasks: Vec<Task>,
    started: Time,
    /// Whether the node daemon has been told that the step daemon has died.
    orphan_told: bool,
    /// Whether step daemon, node daemon and zygote were all down when a task ended, so that its exit code is unknown.
    unseen: bool,
    node_daemon_alive: bool,
    tick_at: Option<Time>,
    /// Whether the step was told to end, or its `srun` has ended. The step daemon then waits only some seconds for
    /// output to be delivered.
    told_to_end: bool,
    /// Whether the tasks are frozen, for a checkpoint.
    frozen: bool,
    /// Whether a signal TERM has come while the tasks were frozen.
    term_waits: bool,
    /// State of the restore of the script from a checkpoint. None: it is not being restored.
    pub(crate) restoring: Option<Restoring>,
}

/// State of a script that is being restored.
#[derive(Debug)]
pub(crate) struct Restoring {
    /// For how long the script would have run on at the checkpoint.
    pub(crate) left: Span,
    /// Inputs for the step daemon's machine that have come since the restore began.
    pub(crate) later: Vec<StepInput>,
    /// Whether this part of a job of several nodes waits for the others.
    pub(crate) held: bool,
}

/// A task of a step: a simulated process.
#[derive(Clone, Debug)]
struct Task {
    rank: u32,
    alive: bool,
    /// Incremented whenever a signal stops, continues or ends the task. An end that was scheduled before is ignored.
    turn: u32,
    left: Span,
    /// Time at which the task last started or continued. None: it is stopped or frozen.
    since: Option<Time>,
    /// Whether a signal has stopped the task.
    stopped: bool,
    exit: ExitCode,
}

impl Task {
    /// Returns the task's exit if no signal ends it. None: the task has ended, or a signal ends it.
    fn natural(&self) -> Option<ExitCode> {
        (self.alive && self.exit.signal == 0).then_some(self.exit)
    }
}

impl StepHost {
    pub(crate) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }
    /// Returns whether any task was started.
    pub(crate) fn has_begun(&self) -> bool {
        !self.tasks.is_empty()
    }
    pub(crate) fn has_live_tasks(&self) -> bool {
        self.tasks.iter().any(|t| t.alive)
    }
    /// Returns whether a live task of the step is not stopped.
    pub(crate) fn runs(&self) -> bool {
        self.tasks.iter().any(|task| task.alive && task.since.is_some())
    }
    /// Returns for how long the step's first task would still run if it were thawed now. None: it does not run.
    pub(crate) fn left(&self) -> Option<Span> {
        self.tasks.first().filter(|task| task.alive && self.machine.is_some()).map(|task| task.left)
    }
    pub(crate) fn daemon_died(&mut self) {
        self.node_daemon_alive = false;
        self.orphan_told = false;
    }
    fn end(&self, now: Time) -> StepEnd {
        let exit = self.tasks.iter().map(|t| t.exit).max().unwrap_or_default();
        StepEnd {
            exit: if self.unseen { ExitCode::default() } else { exit },
            oom: false,
            lost: self.unseen,
            usage: Usage::default(),
            started: self.started,
            ended: now,
            note: None,
            series: None,
        }
    }
}

impl World {
    /// Creates a step's directory at once, and its step daemon a little later.
    pub(crate) fn spawn(&mut self, node: usize, launch: Box<StepLaunch>, script: Option<Vec<u8>>) {
        let (key, life) = (launch.key, self.nodes[node].life);
        let host = &mut self.nodes[node];
        if host.spool.full && !host.spool.steps.contains_key(&key) {
            let failed = NodeInput::Failed { key, error: "no space left on device".into(), node_fault: true };
            return self.tell_node(node, failed);
        }
        host.witness(key);
        host.spool.steps.entry(key).or_insert(Folder { launch, script, forked: false, begun: false, result: None });
        let span = self.seed.span(Span(200), Span::from_millis(3));
        let span = Span(span.0 * self.network.slowness(node));
        self.after(span, Happening::StepFork { node, life, key });
        if self.is_planted(Mutation::LaunchDoubled) {
            self.after(Span(span.0 + 5000), Happening::StepFork { node, life, key });
        }
    }

    /// Starts the step daemon, if the node daemon that requested it is still running.
    pub(crate) fn step_forks(&mut self, node: usize, life: u64, key: StepKey) {
        if !self.nodes[node].lives(life) {
            return;
        }
        let doubled = self.is_planted(Mutation::LaunchDoubled) || self.is_planted(Mutation::StartedTakenForUnstarted);
        let host = &mut self.nodes[node];
        let Some(folder) = host.spool.steps.get_mut(&key).filter(|f| !f.forked || doubled) else { return };
        folder.forked = true;
        let launch = folder.launch.clone();
        let truth = self.clients.truth(&launch);
        let host = StepHost {
            machine: Some(StepMachine::new(StepSetup::of(&launch))),
            launch,
            truth,
            tasks: Vec::new(),
            started: self.now,
            orphan_told: false,
            unseen: false,
            node_daemon_alive: true,
            tick_at: None,
            told_to_end: false,
            frozen: false,
            term_waits: false,
            restoring: None,
        };
        if let Some(old) = self.nodes[node].steps.insert(key, host) {
            self.nodes[node].cores.iter_mut().for_each(|core| *core = None);
            drop(old);
        }
        let span = Span(self.seed.between(200, 4000) * self.network.slowness(node));
        let boot = self.nodes[node].boot;
        self.after(span, Happening::StepReady { node, boot, key });
    }

    /// Starts the step's tasks, once the step daemon has finished its preparations.
    pub(crate) fn step_ready(&mut self, node: usize, boot: u64, key: StepKey) {
        let Some(launch) = self.nodes[node].steps.get(&key).filter(|_| self.nodes[node].boot == boot) else { return };
        let launch = launch.launch.clone();
        let input = self.call_srun(node, key, &launch);
        self.tell_step(node, key, input);
    }

    /// Delivers the node daemon's message to the step daemon, or executes it on orphaned tasks.
    pub(crate) fn step_told(&mut self, node: usize, life: u64, key: StepKey, message: ToStepd) {
        if !self.nodes[node].lives(life) {
            return;
        }
        let Some(step) = self.nodes[node].steps.get(&key) else {
            if self.nodes[node].spool.steps.get(&key).is_some_and(|f| f.result.is_none()) {
                self.after(Span::from_millis(5), Happening::StepTell { node, life, key, message });
            }
            return;
        };
        if step.is_alive() {
            let input = match message {
                ToStepd::Signal { signal, all } => StepInput::Signal { signal, all },
                ToStepd::End { kill_wait_s, why } => StepInput::End { kill_wait_s, why },
                ToStepd::Usage | ToStepd::Letter { .. } | ToStepd::Watch(_) | ToStepd::Notice(_) => return,
            };
            return self.tell_step(node, key, input);
        }
        match message {
            ToStepd::Signal { signal, .. } => self.signal(node, key, signal),
            ToStepd::End { kill_wait_s: 0, .. } => self.signal(node, key, KILL),
            ToStepd::End { .. } => self.signal(node, key, TERM),
            ToStepd::Usage | ToStepd::Letter { .. } | ToStepd::Watch(_) | ToStepd::Notice(_) => {}
        }
    }

    pub(crate) fn step_tick(&mut self, node: usize, boot: u64, key: StepKey) {
        let now = self.now;
        if self.nodes[node].boot != boot {
            return;
        }
        if let Some(step) = self.nodes[node].steps.get_mut(&key).filter(|s| s.tick_at.is_some_and(|at| at <= now)) {
            step.tick_at = None;
            self.tell_step(node, key, StepInput::Tick);
        }
    }

    pub(crate) fn step_drained(&mut self, node: usize, boot: u64, key: StepKey) {
        if self.nodes[node].boot != boot {
            return;
        }
        if !self.has_room(node, key) {
            return self.after(Span::from_millis(200), Happening::StepDrained { node, boot, key });
        }
        let delivered = self.is_delivered(node, key);
        self.tell_step(node, key, StepInput::Drained { delivered });
    }

    /// Tells the step daemon that its `srun` has closed the link.
    pub(crate) fn srun_is_gone(&mut self, node: usize, boot: u64, key: StepKey) {
        if self.nodes[node].boot == boot {
            self.tell_step(node, key, StepInput::ClientLost);
        }
    }

    pub(crate) fn tell_step(&mut self, node: usize, key: StepKey, input: StepInput) {
        let (boot, clock) = (self.nodes[node].boot, self.node_now(node));
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        if step.restoring.is_some() && step.is_alive() {
            return self.told_in_restore(node, key, input);
        }
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        let Some(machine) = &mut step.machine else { return };
        step.told_to_end |= matches!(input, StepInput::End { .. } | StepInput::ClientLost);
        let mut out = StepOut::new();
        machine.step(clock, input, &mut out);
        let deadline = machine.deadline();
        let deadline = deadline.map(|deadline| self.by_node_clock(node, deadline).max(Time(self.now.0 + 1000)));
        if let (Some(at), Some(step)) = (deadline, self.nodes[node].steps.get_mut(&key))
            && step.tick_at.is_none_or(|planned| at < planned)
        {
            step.tick_at = Some(at);
            self.agenda.at(at, Happening::StepTick { node, boot, key });
        }
        for act in out {
            if self.step_dies_now(node, key) {
                return;
            }
            self.step_act(node, key, act);
        }
    }

    /// Kills the step daemon if the number of actions until a planned kill has been reached. Returns whether it was
    /// killed.
    fn step_dies_now(&mut self, node: usize, key: StepKey) -> bool {
        let Some(left) = &mut self.step_dies_after_acts else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.step_dies_after_acts = None;
        self.strike(Fault::StepDaemonKilledInAct, u64::from(key.job.0));
        self.kill_step_daemon(node, key);
        true
    }

    fn step_act(&mut self, node: usize, key: StepKey, act: StepAct) {
        match act {
            StepAct::Spawn => self.start_tasks(node, key),
            StepAct::Signal { signal, .. } => self.signal(node, key, signal),
            StepAct::KillLeft => {
                self.signal(node, key, KILL);
                self.tell_step(node, key, StepInput::Gone);
            }
            StepAct::Drain => {
                let (boot, span) = (self.nodes[node].boot, self.local_delay(node));
                self.after(span, Happening::StepDrained { node, boot, key });
            }
            StepAct::WriteResult(result) => {
                if let Some(folder) = self.nodes[node].spool.steps.get_mut(&key) {
                    folder.result = Some(result);
                }
            }
            StepAct::Node(FromStepd::Ended(_) | FromStepd::Failed { .. }) => {
                let (life, span) = (self.nodes[node].life, self.local_delay(node));
                self.after(span, Happening::StepSpoke { node, life, key });
            }
            StepAct::Node(FromStepd::Ending) => {
                let (life, span) = (self.nodes[node].life, self.local_delay(node));
                self.after(span, Happening::StepHeeds { node, life, key });
            }
            StepAct::Exit => {
                let told = self.nodes[node].steps.get(&key).is_some_and(|step| step.told_to_end);
                self.link_ends(node, key, told);
                self.nodes[node].steps.remove(&key);
            }
            StepAct::Client(message) => self.step_says(node, key, &message),
            StepAct::Node(_) | StepAct::Notice(_) | StepAct::NoticeEnd(_) | StepAct::Report { .. } => {}
        }
    }

    /// Tells the node daemon that a step received the order to end.
    pub(crate) fn step_heeds(&mut self, node: usize, life: u64, key: StepKey) {
        if self.nodes[node].lives(life) {
            self.tell_node(node, NodeInput::Ending { key });
        }
    }

    /// Delivers a step daemon's final report (the step's end or failure) to the node daemon.
    pub(crate) fn step_spoke(&mut self, node: usize, life: u64, key: StepKey) {
        if !self.nodes[node].lives(life) {
            return;
        }
        let Some(folder) = self.nodes[node].spool.steps.get(&key) else { return };
        match folder.result.clone() {
            Some(FromStepd::Ended(end)) => self.tell_node(node, NodeInput::Ended { key, end }),
            Some(FromStepd::Failed { error, node_fault }) => {
                self.tell_node(node, NodeInput::Failed { key, error, node_fault });
            }
            _ => {}
        }
    }

    fn start_tasks(&mut self, node: usize, key: StepKey) {
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        step.started = self.now;
        let launch = step.launch.clone();
        let folder = self.nodes[node].spool.steps.get(&key);
        if folder.is_none() && key.step == StepNo::BATCH {
            // The folder was lost since the step daemon was started: the script can't be executed.
            let error = "the script is gone".to_owned();
            return self.tell_step(node, key, StepInput::Fail { error, node_fault: true });
        }
        let script = folder.and_then(|folder| folder.script.clone());
        let restore = launch.facts.restore.filter(|_| !self.is_planted(Mutation::RestoreForgotten));
        if key.step == StepNo::BATCH {
            self.goes_on(attempt_of(key), restore.map(|from| from.number));
        }
        let place = launch.job_node_index;
        let image = restore.map(|from| self.images(node).get(&(key.job, from.number, place)).map(|image| image.left));
        if image == Some(None) {
            let error = "there is no such checkpoint".to_owned();
            return self.tell_step(node, key, StepInput::Fail { error, node_fault: false });
        }
        if key.step == StepNo::BATCH {
            let tag = Order::tag_of(&launch.facts.spec);
            if script != tag.map(Order::script) {
                self.judge.violate("a job's script is what was submitted", format!("job {}", key.job));
            }
        }
        match image.flatten() {
            Some(left) => self.restore_begins(node, key, left),
            None => self.begin_tasks(node, key, None),
        }
    }

    /// Starts the tasks of a step. `image`: for how long a script that is restored runs on.
    pub(crate) fn begin_tasks(&mut self, node: usize, key: StepKey, image: Option<Span>) {
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        let ranks = match &step.machine {
            Some(machine) => machine.setup().ranks.clone(),
            None => return,
        };
        let (truth, launch) = (step.truth, step.launch.clone());
        self.say(Origin::Node(node as u32), "starts", key.job.0, u64::from(key.attempt.0));
        self.judge.nodes_are_up(attempt_of(launch.key));
        let incarnation = Incarnation(self.nodes[node].incarnation);
        self.judge.node_has_rebooted(attempt_of(launch.key), node, incarnation);
        self.judge.prolog_is_over((node, self.nodes[node].incarnation), attempt_of(launch.key));
        self.judge.processes_start(self.now, node, &mut self.nodes[node].cores, &launch, &self.clients);
        self.restored_begins(key);
        self.part_runs(key);
        self.nodes[node].began(key.job);
        if truth.hides {
            self.judge.hidden.insert((attempt_of(key), node));
        }
        self.script_starts(&launch);
        let boot = self.nodes[node].boot;
        for rank in ranks {
            let pid = self.nodes[node].fresh_pid();
            let run = Span(truth.run.0 * self.network.slowness(node).min(2));
            let run = if launch.has_keeper() { FOR_EVER } else { run };
            let run = image.unwrap_or(run);
            let task =
                Task { rank, alive: true, turn: 0, left: run, since: Some(self.now), stopped: false, exit: truth.exit };
            if let Some(step) = self.nodes[node].steps.get_mut(&key) {
                step.tasks.push(task);
            }
            self.after(run, Happening::ProcessEnds { node, boot, key, rank, turn: 0 });
            if key.step != StepNo::BATCH {
                for at in [Span(0), Span(self.seed.below(run.0)), Span(self.seed.below(run.0))] {
                    self.after(at, Happening::TaskWrites { node, boot, key, rank });
                }
            }
            self.tell_step(node, key, StepInput::Spawned { rank, pid });
        }
        self.switch(node);
    }

    /// Sends a signal to every task of a step.
    pub(crate) fn signal(&mut self, node: usize, key: StepKey, signal: i32) {
        let vacated = self.nodes[node].steps.get(&key).is_some_and(|step| step.frozen && step.has_live_tasks());
        if signal == KILL && vacated {
            self.killed_frozen(node, key);
        }
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        let (stubborn, frozen) = (step.truth.stubborn, step.frozen);
        let mut ended = Vec::new();
        for task in step.tasks.iter_mut().filter(|t| t.alive) {
            match signal {
                KILL => ended.push((task.rank, true)),
                TERM if !stubborn && frozen => step.term_waits = true,
                TERM if !stubborn => ended.push((task.rank, false)),
                STOP | CONT => task.stopped = signal == STOP,
                _ => continue,
            }
            if signal == TERM && frozen {
                continue;
            }
            if matches!(signal, KILL | TERM) {
                task.exit = ExitCode { code: 0, signal: signal as u8 };
                task.turn += 1;
            }
        }
        if matches!(signal, STOP | CONT) {
            self.go_on(node, key);
        }
        for (rank, at_once) in ended {
            if at_once {
                self.task_ends(node, key, rank);
            } else {
                let turn = self.turn_of(node, key, rank);
                self.after(Span(300), Happening::ProcessEnds { node, boot: self.nodes[node].boot, key, rank, turn });
            }
        }
    }

    /// Freezes the tasks of a step, or thaws them.
    pub(crate) fn freeze(&mut self, node: usize, key: StepKey, frozen: bool) {
        let Some(step) = self.nodes[node].steps.get_mut(&key).filter(|step| step.frozen != frozen) else { return };
        step.frozen = frozen;
        if !frozen {
            self.part_runs(key);
        }
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        let term = !frozen && std::mem::take(&mut step.term_waits);
        self.go_on(node, key);
        if term {
            self.signal(node, key, TERM);
        }
    }

    /// Has those tasks of a step run that are neither stopped nor frozen.
    fn go_on(&mut self, node: usize, key: StepKey) {
        let (now, boot) = (self.now, self.nodes[node].boot);
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        for task in step.tasks.iter_mut().filter(|task| task.alive) {
            let stands = task.stopped || step.frozen;
            if let Some(since) = task.since.take_if(|_| stands) {
                task.left = Span(task.left.0.saturating_sub(now.since(since).0));
                task.turn += 1;
            } else if !stands && task.since.is_none() {
                task.since = Some(now);
                let (rank, turn) = (task.rank, task.turn);
                self.agenda.at(now + task.left, Happening::ProcessEnds { node, boot, key, rank, turn });
            }
        }
    }

    fn turn_of(&self, node: usize, key: StepKey, rank: u32) -> u32 {
        let step = self.nodes[node].steps.get(&key);
        step.and_then(|s| s.tasks.iter().find(|t| t.rank == rank)).map_or(0, |t| t.turn)
    }

    pub(crate) fn process_ends(&mut self, node: usize, boot: u64, key: StepKey, rank: u32, turn: u32) {
        if self.nodes[node].boot == boot && self.turn_of(node, key, rank) == turn {
            let exit =
                self.nodes[node].steps.get(&key).and_then(|s| s.tasks.iter().find(|t| t.rank == rank)?.natural());
            if exit.is_some() {
                self.judge.process_done(self.now, node, key);
                self.task_may_write(node, boot, key, rank);
            }
            self.task_ends(node, key, rank);
        }
    }

    /// Has a running task write a piece of output.
    pub(crate) fn task_may_write(&mut self, node: usize, boot: u64, key: StepKey, rank: u32) {
        let Some(step) = self.nodes[node].steps.get(&key).filter(|_| self.nodes[node].boot == boot) else { return };
        let heard = step.is_alive();
        if step.tasks.iter().any(|task| task.rank == rank && task.alive && task.since.is_some()) {
            self.task_writes(node, key, rank, heard);
        }
    }

    fn task_ends(&mut self, node: usize, key: StepKey, rank: u32) {
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        let Some(task) = step.tasks.iter_mut().find(|t| t.rank == rank && t.alive) else { return };
        task.alive = false;
        let exit = task.exit;
        let orphan = step.machine.is_none();
        if orphan && !step.node_daemon_alive {
            step.unseen = true;
        }
        let last = !step.has_live_tasks();
        let launch = step.launch.clone();
        if last {
            let exit = step.end(self.now).exit;
            let unseen = step.unseen;
            self.say(Origin::Node(node as u32), "ends", key.job.0, u64::from(key.attempt.0));
            self.judge.processes_end(self.now, node, &mut self.nodes[node].cores, &launch, (exit, unseen));
            self.restored_loses(node, key, exit);
            self.script_ends(&launch);
        }
        if orphan {
            self.end_orphan_if_empty(node, key, false);
        } else {
            self.tell_step(node, key, StepInput::Exited { rank, exit, usage: Usage::default(), heard: false });
        }
    }

    /// Kills a step daemon (kill -9). Its tasks continue.
    pub(crate) fn kill_step_daemon(&mut self, node: usize, key: StepKey) {
        let (life, alive) = (self.nodes[node].life, self.nodes[node].has_daemon());
        if !self.nodes[node].steps.get(&key).is_some_and(StepHost::is_alive) {
            return;
        }
        self.link_ends(node, key, true);
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        step.machine = None;
        step.node_daemon_alive = alive;
        // Exits that only the step daemon had observed are lost.
        let told = self.nodes[node].spool.steps.get(&key).is_none_or(|folder| folder.result.is_some());
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        if !told && step.tasks.iter().any(|task| !task.alive) {
            step.unseen = true;
            self.judge.lose_sight(key, node);
        }
        if told && !step.has_live_tasks() {
            self.nodes[node].steps.remove(&key);
        }
        self.say(Origin::Node(node as u32), "step daemon dies", key.job.0, u64::from(key.attempt.0));
        let span = self.local_delay(node);
        self.after(span, Happening::OrphanSeen { node, life, key });
    }

    /// Handles the node daemon's discovery that a step daemon has died.
    pub(crate) fn orphan_seen(&mut self, node: usize, life: u64, key: StepKey) {
        if !self.nodes[node].lives(life) {
            return;
        }
        let result = self.nodes[node].spool.steps.get(&key).is_some_and(|f| f.result.is_some());
        if result && !self.nodes[node].steps.contains_key(&key) {
            return self.step_spoke(node, life, key);
        }
        let Some(step) = self.nodes[node].steps.get_mut(&key).filter(|s| !s.orphan_told) else { return };
        if result {
            self.nodes[node].steps.remove(&key);
            return self.step_spoke(node, life, key);
        }
        step.orphan_told = true;
        let (begun, restoring, end) = (step.has_begun(), step.restoring.is_some(), step.end(self.now));
        if !begun {
            self.nodes[node].steps.remove(&key);
            let input = if restoring {
                self.half_restored(key)
            } else {
                NodeInput::Failed { key, error: "its step daemon died".to_owned(), node_fault: true }
            };
            return self.tell_node(node, input);
        }
        if self.is_planted(Mutation::OrphansForgotten) {
            return self.tell_node(node, NodeInput::Ended { key, end });
        }
        self.tell_node(node, NodeInput::Orphaned { key });
        self.end_orphan_if_empty(node, key, true);
    }

    /// Reports the end of an orphaned step to the node daemon when none of its tasks is left. `told`: the node daemon
    /// has been told that the step daemon has died.
    pub(crate) fn end_orphan_if_empty(&mut self, node: usize, key: StepKey, told: bool) {
        if !self.nodes[node].has_daemon() {
            return;
        }
        let Some(step) = self.nodes[node].steps.get_mut(&key) else { return };
        step.node_daemon_alive = true;
        step.orphan_told |= told;
        if step.is_alive() || step.has_live_tasks() || !step.orphan_told {
            return;
        }
        let end = step.end(self.now);
        self.nodes[node].steps.remove(&key);
        if let Some(folder) = self.nodes[node].spool.steps.get_mut(&key) {
            folder.result = Some(FromStepd::Ended(end.clone()));
        }
        self.tell_node(node, NodeInput::Ended { key, end });
    }

    /// Kills a step's daemon and all its tasks. The node daemon then handles the step as one without a daemon.
    pub(crate) fn kill_step(&mut self, node: usize, key: StepKey) {
        let (life, stopped) = (self.nodes[node].life, self.is_stopped(node));
        let ended = self.nodes[node].spool.steps.get(&key).is_some_and(|folder| folder.result.is_some());
        if !ended {
            self.kill_step_daemon(node, key);
            self.signal(node, key, KILL);
        }
        match ended {
            // A guard kills, too, while the node daemon does nothing: that sees it when it goes on.
            true if stopped => self.after(Span(0), Happening::StepSpoke { node, life, key }),
            false if stopped => {}
            true => self.step_spoke(node, life, key),
            false => self.orphan_seen(node, life, key),
        }
    }

    /// Ends all processes of a step at once, after a power loss or a sweep.
    pub(crate) fn lose_step(&mut self, node: usize, key: StepKey) {
        let Some(step) = self.nodes[node].steps.remove(&key) else { return };
        if step.has_live_tasks() {
            let unseen = (ExitCode::default(), true);
            self.judge.processes_end(self.now, node, &mut self.nodes[node].cores, &step.launch, unseen);
            self.script_ends(&step.launch);
        }
    }
}
