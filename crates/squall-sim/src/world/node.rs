//! A simulated node: its power, spool, node daemon, step daemons and processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_engine::fabric::NetInput;
use squall_engine::machine::Machine;
use squall_engine::node::{
    Boot, ContentAct, Counted, FoundStep, Guard, Health, Neighbours, NodeAct, NodeInput, NodeMachine, NodeOut,
    attempt_of,
};
use squall_model::id::{Incarnation, JobId, Session, StepKey};
use squall_model::interface::Interface;
use squall_model::job::{Blob, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{ContentId, Downward, Parcel, Put, StreamKey};
use squall_model::wire::hook::Hook;
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;
use squall_model::wire::stepd::FromStepd;

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::{Seed, mix};
use crate::signers::NodeKeys;
use crate::trace::Origin;
use crate::world::gang::Switcher;
use crate::world::step::StepHost;
use crate::world::{Happening, World};

/// Greatest deviation of a node's clock from true time, in either direction.
pub(crate) const SKEW_MAX: Span = Span::from_secs(3600);

/// Returns the health that every node reports.
fn health() -> Health {
    Health { load_centi: 50, free_mb: 1000, ..Health::default() }
}

/// A complete checkpoint, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// For how long the script would have run on.
    pub(crate) left: Span,
    /// State of the connections between the parts of the job. It changes whenever one of them runs.
    pub(crate) talk: u64,
    /// The node that made it.
    pub(crate) at: usize,
}

/// Returns the address of a node, which has only one.
pub(crate) fn address(node: usize) -> u128 {
    node as u128 + 1
}

/// A simulated node: hardware, daemons, state directory and planned faults.
#[derive(Debug)]
pub(crate) struct NodeHost {
    pub(crate) name: String,
    hardware: Hardware,
    pub(crate) incarnation: u128,
    /// Number of times that the node was powered on.
    pub(crate) boot: u64,
    pub(crate) powered: bool,
    daemon: Option<Daemon>,
    /// Number of daemon starts on this node in the whole simulation. It is not reset when a new incarnation begins.
    pub(crate) life: u64,
    pub(crate) spool: Spool,
    /// Record in the kernel's memory that survives the daemon but not the boot: steps with a directory that the spool
    /// must contain, and the number of started steps.
    witness: (BTreeSet<StepKey>, u64),
    /// Jobs that have a cgroup on the node.
    groups: BTreeSet<JobAttempt>,
    /// An older copy of the spool, which a fault may bring back.
    pub(crate) copy: Option<Spool>,
    /// Live step daemons, and the remaining tasks of killed ones.
    pub(crate) steps: BTreeMap<StepKey, StepHost>,
    /// For each core: the job of the live processes that use it, and their number. None: no process uses the core.
    pub(crate) cores: Vec<Option<(JobAttempt, u32)>>,
    last_pid: u32,
    /// Number of actions until the node daemon is killed. None: no kill is planned.
    pub(crate) dies_after_acts: Option<u32>,
    /// Offset of the node's clock, counted from the slowest possible one, which is [`SKEW_MAX`] behind true time.
    pub(crate) skew: Span,
    /// Inputs that the daemon processes after the present one.
    queue: VecDeque<NodeInput>,
    busy: bool,
    /// An old put (message from the controller) that a planted bug delivers again.
    pub(crate) stale: Option<Sealed<Parcel>>,
    /// The last message that this node changed, if it is rooted.
    pub(crate) seen: Option<Put>,
    /// Pause between a kill and the restart of the daemon. None: it stays down.
    pub(crate) restart: Option<Span>,
    /// Files that the node stores.
    pub(crate) files: Counted,
    /// Time until which the disk is busy with file pieces, which are written one after the other.
    disk_until: Time,
    /// Shortest time that writing a file piece takes.
    pub(crate) disk_takes: Span,
    /// Multicast streams that the daemon receives, by stream number.
    pub(crate) hears: BTreeMap<u64, (ContentId, StreamKey)>,
    /// Whether multicast datagrams are lost on their way to the node.
    pub(crate) deaf: bool,
    pub(crate) switcher: Switcher,
    /// The controller that the node tries first.
    pub(crate) controller: usize,
    /// Highest job of which a step began, with the number of the daemon's start.
    begun: (u64, JobId),
    /// Programs around jobs that run now.
    pub(crate) hooks: BTreeSet<(Hook, Option<JobAttempt>)>,
    /// Jobs of which a checkpoint is being made, with its number.
    pub(crate) dumps: BTreeMap<JobAttempt, u64>,
    /// Complete checkpoints by job and number.
    pub(crate) images: BTreeMap<(JobId, u64, u32), Image>,
    /// What the node knows of the controllers' keys.
    pub(crate) keys: Arc<NodeKeys>,
    /// Time until which the daemon does nothing, as it is stopped.
    pub(crate) stopped_until: Time,
    /// Number of the last message that the daemon got from its present parent. Only planted bugs use it.
    pub(crate) heard_hops: u64,
    /// Guards of jobs with a node fence.
    pub(crate) guards: BTreeMap<JobAttempt, Guard>,
    /// When the node sent, by its own clock, what the controller has acknowledged last.
    pub(crate) proven: Time,
}

/// A running node daemon.
#[derive(Debug)]
struct Daemon {
    machine: NodeMachine,
    /// Number of the connection to the parent in the tree. None: there is no connection.
    parent: Option<u64>,
    /// Whether the daemon has received the order to shut down.
    shut_down: bool,
    tick_at: Option<Time>,
}

/// State directory of a node daemon, which outlasts the daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spool {
    /// Number of daemon starts in this incarnation.
    life: u64,
    session: Session,
    /// Number of steps that were started since the spool was created.
    starts: u64,
    pub(crate) jobs: BTreeMap<JobAttempt, Arc<JobFacts>>,
    pub(crate) steps: BTreeMap<StepKey, Folder>,
    pub(crate) full: bool,
    /// Programs around jobs of which the end was noted.
    pub(crate) passed: BTreeSet<(JobAttempt, Hook)>,
}

/// The directory of a step in a node's spool.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) launch: Box<StepLaunch>,
    /// Content of the step's batch script. None: there is no script, or its content has not arrived.
    pub(crate) script: Option<Vec<u8>>,
    /// Whether a step daemon was started; it is started only once.
    pub(crate) forked: bool,
    /// Whether the step's tasks had started when this older copy of the spool was made; false otherwise.
    pub(crate) begun: bool,
    pub(crate) result: Option<FromStepd>,
}

impl NodeHost {
    pub(crate) fn new(index: usize, name: &str, hardware: &Hardware, seed: &mut Seed) -> Self {
        let mut hardware = hardware.clone();
        let own = Interface { address: address(index), prefix: 64 };
        hardware.interfaces.iter_mut().for_each(|interfaces| interfaces.push(own));
        Self {
            name: name.into(),
            hardware: hardware.clone(),
            incarnation: u128::from(mix(seed.next() ^ index as u64)),
            boot: 1,
            powered: true,
            daemon: None,
            life: 0,
            spool: Spool::default(),
            witness: Default::default(),
            groups: BTreeSet::new(),
            keys: Arc::default(),
            copy: None,
            steps: BTreeMap::new(),
            cores: vec![None; hardware.cpus as usize],
            last_pid: 100,
            dies_after_acts: None,
            skew: SKEW_MAX,
            queue: VecDeque::new(),
            busy: false,
            stale: None,
            seen: None,
            restart: None,
            files: Counted::default(),
            disk_until: Time(0),
            disk_takes: Span(0),
            hears: BTreeMap::new(),
            deaf: false,
            switcher: Switcher::default(),
            controller: 0,
            begun: Default::default(),
            hooks: BTreeSet::new(),
            dumps: BTreeMap::new(),
            images: BTreeMap::new(),
            stopped_until: Time(0),
            heard_hops: 0,
            guards: BTreeMap::new(),
            proven: Time(0),
        }
    }
    /// Returns whether the daemon runs and its start number is `life`.
    pub(crate) fn lives(&self, life: u64) -> bool {
        self.daemon.is_some() && self.life == life
    }
    pub(crate) fn has_daemon(&self) -> bool {
        self.daemon.is_some()
    }
    /// Returns the present connection to the parent in the tree. None: there is no connection.
    pub(crate) fn parent(&self) -> Option<u64> {
        self.daemon.as_ref()?.parent
    }
    /// Replaces the connection to the parent. Returns the previous one.
    pub(crate) fn set_parent(&mut self, hop: Option<u64>) -> Option<u64> {
        std::mem::replace(&mut self.daemon.as_mut()?.parent, hop)
    }
    /// Records in the kernel's memory that a step's directory was created.
    pub(crate) fn witness(&mut self, key: StepKey) {
        self.spool.starts += 1;
        self.witness.1 = self.spool.starts;
        self.witness.0.insert(key);
    }
    /// Returns whether the spool has lost records: it lacks step directories that the kernel's memory lists, or it
    /// counts fewer started steps.
    fn has_forgotten(&self) -> bool {
        self.spool.starts < self.witness.1 || self.witness.0.iter().any(|key| !self.spool.steps.contains_key(key))
    }
    /// Returns the jobs that have processes or a cgroup on the node but no record in the spool.
    fn leftovers(&self) -> BTreeSet<JobAttempt> {
        let processes = self.steps.keys().filter(|key| !self.spool.steps.contains_key(key)).map(|key| attempt_of(*key));
        let known = |job: &JobAttempt| {
            self.spool.jobs.contains_key(job) || self.spool.steps.keys().any(|key| attempt_of(*key) == *job)
        };
        processes.chain(self.groups.iter().copied()).filter(|job| !known(job)).collect()
    }
    /// Notes that this job has come.
    pub(crate) fn began(&mut self, job: JobId) {
        let known = if self.begun.0 == self.life { self.begun.1 } else { JobId(0) };
        self.begun = (self.life, job.max(known));
    }
    /// Returns the highest job that the daemon knows to have come here.
    pub(crate) fn last_job(&self) -> JobId {
        let known = self.attempts().map(|one| one.job).max().unwrap_or_default();
        if self.begun.0 == self.life { known.max(self.begun.1) } else { known }
    }
    /// Returns the attempts of jobs that the spool names.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = JobAttempt> {
        let steps = self.spool.steps.keys().map(|key| JobAttempt { job: key.job, attempt: key.attempt });
        self.spool.jobs.keys().copied().chain(steps)
    }
    /// Returns the newest session that the spool has.
    pub(crate) fn heard(&self) -> Session {
        self.spool.session
    }
    /// Makes the spool claim that the node has heard of a controller so many epochs later.
    pub(crate) fn hear(&mut self, later: u64) {
        self.spool.session.epoch.0 += later;
    }
    pub(crate) fn fresh_pid(&mut self) -> u32 {
        self.last_pid += 1;
        self.last_pid
    }
}

impl World {
    /// Schedules a start of the node's daemon.
    pub(crate) fn start_node(&mut self, node: usize, after: Span) {
        let host = &mut self.nodes[node];
        host.life += 1;
        let life = host.life;
        self.after(after, Happening::NodeStart { node, life });
    }

    /// Starts the daemon: it reads its spool, then connects to its parent.
    pub(crate) fn node_starts(&mut self, node: usize, life: u64) {
        let host = &mut self.nodes[node];
        if !host.powered || host.daemon.is_some() || host.life != life {
            return;
        }
        let above = self.tree.above(node, self.nodes.len());
        let above = above.into_iter().map(|node| self.nodes[node].name.clone()).collect();
        self.look_for_losses(node);
        let pinned = self.pinned(node);
        let host = &mut self.nodes[node];
        host.spool.life += 1;
        let boot = Boot {
            name: host.name.clone(),
            incarnation: Incarnation(host.incarnation),
            life: host.spool.life,
            session: host.spool.session,
            above,
            hardware: host.hardware.clone(),
            version: "sim".into(),
            pinned,
            hooks: self.setup.config.hooks.clone(),
            health: self.setup.config.health.clone(),
            fenced: host.guards.iter().filter(|(_, guard)| guard.is_over()).map(|(job, _)| *job).collect(),
        };
        host.hears.clear();
        host.daemon = Some(Daemon { machine: NodeMachine::new(boot), parent: None, shut_down: false, tick_at: None });
        self.say(Origin::Node(node as u32), "daemon starts", 0, life);
        self.judge.silence.runs_from(node, Some(self.now));
        if self.is_planted(Mutation::SpoolForgotten) {
            let spool = &mut self.nodes[node].spool;
            spool.jobs.clear();
            spool.steps.clear();
        }
        for facts in self.nodes[node].spool.jobs.values().cloned().collect::<Vec<_>>() {
            self.tell_node(node, NodeInput::FoundJob { facts });
        }
        let damaged = self.thaw_all(node);
        self.find_hooks(node);
        for input in self.nodes[node].files.restart(0, &mut Neighbours::default()) {
            self.tell_node(node, input);
        }
        let keys: Vec<StepKey> = self.nodes[node].spool.steps.keys().copied().collect();
        for key in keys {
            self.find_step(node, key);
        }
        if !self.is_planted(Mutation::SpoolForgotten) {
            self.find_leftovers(node);
        }
        for (job, number) in damaged {
            self.damage(node, job, number);
        }
        self.tell_node(node, NodeInput::Tick { health: health() });
    }

    /// Begins a new incarnation with an empty spool if the spool has lost records.
    fn look_for_losses(&mut self, node: usize) {
        if !self.nodes[node].has_forgotten() || self.is_planted(Mutation::ForgettingUnseen) {
            return;
        }
        let fresh = u128::from(self.seed.next());
        let host = &mut self.nodes[node];
        host.incarnation = fresh;
        host.spool = Spool { session: host.spool.session, full: host.spool.full, ..Spool::default() };
        host.witness = Default::default();
        self.say(Origin::Node(node as u32), "has forgotten", 0, 0);
        self.judge.power_lost(node);
    }

    /// Makes the daemon kill leftover processes of jobs that the spool does not contain.
    fn find_leftovers(&mut self, node: usize) {
        for job in self.nodes[node].leftovers() {
            if self.is_planted(Mutation::SweptAfterwards) {
                self.sweep(node, job);
            } else {
                self.tell_node(node, NodeInput::FoundLeftover { job });
            }
        }
    }

    fn find_step(&mut self, node: usize, key: StepKey) {
        let host = &self.nodes[node];
        let Some(folder) = host.spool.steps.get(&key) else { return };
        let launch = folder.launch.clone();
        let step = host.steps.get(&key);
        let state = match (&folder.result, step) {
            (Some(FromStepd::Ended(end)), _) => FoundStep::Ended(end.clone()),
            (Some(FromStepd::Failed { error, node_fault }), _) => {
                FoundStep::Failed { error: error.clone(), node_fault: *node_fault }
            }
            (_, Some(step)) if step.is_alive() => FoundStep::Alive,
            (_, Some(step)) if step.has_begun() => FoundStep::Orphaned,
            (_, Some(step)) if step.restoring.is_some() => match self.half_restored(key) {
                NodeInput::Ended { end, .. } => FoundStep::Ended(end),
                _ => FoundStep::Failed { error: "the restore was killed".to_owned(), node_fault: false },
            },
            // The step of an older copy has begun, but the copy lacks its end.
            _ if folder.begun => {
                self.judge.lose_sight(key, node);
                FoundStep::Ended(StepEnd { lost: true, started: self.now, ended: self.now, ..StepEnd::default() })
            }
            _ => FoundStep::Unstarted,
        };
        let unstarted = self.is_planted(Mutation::StartedTakenForUnstarted);
        let state = if unstarted && state == FoundStep::Alive { FoundStep::Unstarted } else { state };
        let orphaned = state == FoundStep::Orphaned;
        if state == FoundStep::Unstarted
            && let Some(folder) = self.nodes[node].spool.steps.get_mut(&key)
        {
            folder.forked = false;
        }
        self.tell_node(node, NodeInput::FoundStep { launch, state });
        self.tell_held(node, key);
        if orphaned {
            self.end_orphan_if_empty(node, key, true);
        }
    }

    /// Kills the node daemon (kill -9). Step daemons and tasks continue.
    pub(crate) fn kill_node_daemon(&mut self, node: usize) {
        if self.nodes[node].daemon.take().is_none() {
            return;
        }
        if self.is_planted(Mutation::GuardDiesWithDaemon) {
            self.nodes[node].guards.clear();
        }
        self.wake_all(node);
        self.nodes[node].queue.clear();
        self.nodes[node].stopped_until = Time(0);
        self.judge.silence.runs_from(node, None);
        self.judge.variables_lost(self.now, node);
        self.close_all(node, true);
        for step in self.nodes[node].steps.values_mut() {
            step.daemon_died();
        }
        self.say(Origin::Node(node as u32), "daemon dies", 0, self.nodes[node].life);
        if let Some(span) = self.nodes[node].restart {
            self.start_node(node, span);
        }
    }

    /// Cuts a node's power: all processes end, and the spool is lost or replaced by an old image.
    pub(crate) fn cut_power(&mut self, node: usize, old_image: Option<Spool>) {
        self.strike(if old_image.is_some() { Fault::OldImage } else { Fault::PowerLost }, node as u64);
        self.lose_power(node, old_image);
    }

    /// Ends all that runs on a node, by a fault or on purpose.
    pub(crate) fn lose_power(&mut self, node: usize, old_image: Option<Spool>) {
        self.nodes[node].daemon = None;
        self.nodes[node].guards.clear();
        self.nodes[node].stopped_until = Time(0);
        self.judge.silence.runs_from(node, None);
        self.wake_all(node);
        self.judge.variables_lost(self.now, node);
        self.judge.power_lost(node);
        let told = self.seed.chance(500_000);
        self.close_all(node, told);
        let keys: Vec<StepKey> = self.nodes[node].steps.keys().copied().collect();
        for key in keys {
            self.link_vanishes(node, key);
            self.lose_step(node, key);
        }
        self.judge.hidden.retain(|(_, host)| *host != node);
        let kept = self.is_planted(Mutation::IncarnationKept);
        let fresh = u128::from(self.seed.next());
        let host = &mut self.nodes[node];
        host.powered = false;
        host.boot += 1;
        host.life += 1;
        host.witness = Default::default();
        host.groups.clear();
        host.copy = None;
        host.spool = match old_image {
            // A new incarnation takes from an old image only the number that shows that the image is old.
            Some(image) => Spool { life: image.life, ..Spool::default() },
            None => Spool::default(),
        };
        if !kept {
            host.incarnation = fresh;
        }
    }

    /// Schedules the return of a node's power.
    pub(crate) fn restore_power(&mut self, node: usize, after: Span) {
        let boot = self.nodes[node].boot;
        self.after(after, Happening::NodePower { node, boot });
    }

    pub(crate) fn node_boots(&mut self, node: usize, boot: u64) {
        if self.nodes[node].boot != boot || self.nodes[node].powered {
            return;
        }
        self.nodes[node].powered = true;
        self.say(Origin::Node(node as u32), "boots", 0, boot);
        self.start_node(node, Span(0));
    }

    pub(crate) fn node_tick(&mut self, node: usize, life: u64) {
        if !self.nodes[node].lives(life) {
            return;
        }
        let now = self.now;
        let due = self.nodes[node].daemon.as_mut().filter(|d| d.tick_at.is_some_and(|at| at <= now));
        if let Some(daemon) = due {
            daemon.tick_at = None;
            self.feign_parent(node);
            self.tell_node(node, NodeInput::Tick { health: health() });
        }
    }

    /// Passes an input to the node's state machine and executes the actions that it returns. Inputs that result from
    /// these wait until all actions are executed.
    pub(crate) fn tell_node(&mut self, node: usize, input: NodeInput) {
        if let NodeInput::Failed { key, .. } = &input {
            self.judge.could_not_begin(*key);
        }
        self.nodes[node].queue.push_back(input);
        if self.nodes[node].busy {
            return;
        }
        self.nodes[node].busy = true;
        while let Some(input) = self.nodes[node].queue.pop_front() {
            self.node_input(node, input);
        }
        self.nodes[node].busy = false;
    }

    fn node_input(&mut self, node: usize, input: NodeInput) {
        let Some(input) = self.perturb_node_input(node, input) else { return };
        let clock = self.node_now(node);
        let brought = match &input {
            NodeInput::Net(NetInput::FromParent(frame)) => self.judge.brought(node, frame),
            _ => Vec::new(),
        };
        let Some(daemon) = &mut self.nodes[node].daemon else { return };
        daemon.shut_down |= brings_shut_down(&input);
        let asked = daemon.shut_down;
        let mut out = NodeOut::default();
        daemon.machine.step(clock, input, &mut out);
        if let Some(frame) = &out.net.up {
            self.judge.registers(node, frame);
        }
        let (deadline, session) = (daemon.machine.deadline(), daemon.machine.session());
        self.judge.took(self.now, (node, self.nodes[node].life), session, &brought);
        self.plan_node_tick(node, deadline);
        for act in out.acts {
            if self.dies_now(node) {
                return;
            }
            self.node_act(node, act, &out.blobs);
        }
        self.carry_out(node, out.net);
        if out.exit {
            self.say(Origin::Node(node as u32), "daemon exits", 0, 0);
            if !(asked || out.refused && self.may_be_refused(node)) {
                self.judge.violate("no node daemon ends unasked", self.nodes[node].name.clone());
            }
            self.kill_node_daemon(node);
        }
    }

    /// Kills the node daemon if the number of actions until its planned kill has been reached. Returns whether it was
    /// killed.
    fn dies_now(&mut self, node: usize) -> bool {
        let Some(left) = &mut self.nodes[node].dies_after_acts else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.nodes[node].dies_after_acts = None;
        self.strike(Fault::NodeDaemonKilledInAct, node as u64);
        self.kill_node_daemon(node);
        true
    }

    /// Returns the time of the node's own clock, which may be wrong.
    pub(crate) fn node_now(&self, node: usize) -> Time {
        Time(self.now.0 - SKEW_MAX.0 + self.nodes[node].skew.0)
    }

    /// Returns the simulation's time at which the node's clock shows `time`.
    pub(crate) fn by_node_clock(&self, node: usize, time: Time) -> Time {
        Time((time.0 + SKEW_MAX.0).saturating_sub(self.nodes[node].skew.0))
    }

    fn plan_node_tick(&mut self, node: usize, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        let slowness = self.network.slowness(node);
        let at = self.by_node_clock(node, deadline).max(Time(self.now.0 + 1000 * slowness));
        let host = &mut self.nodes[node];
        let life = host.life;
        let Some(daemon) = &mut host.daemon else { return };
        if daemon.tick_at.is_none_or(|planned| at < planned) {
            daemon.tick_at = Some(at);
            self.agenda.at(at, Happening::NodeTick { node, life });
        }
    }

    pub(crate) fn node_act(&mut self, node: usize, act: NodeAct, blobs: &[Blob]) {
        match act {
            NodeAct::Keys(keys) => self.learn(node, &keys),
            NodeAct::SaveSession(session) => self.nodes[node].spool.session = session,
            NodeAct::OpenJob { facts, batch, .. } => {
                self.nodes[node].groups.insert(attempt_of(facts.key));
                self.nodes[node].began(facts.key.job);
                let spool = &mut self.nodes[node].spool;
                if !batch && !spool.full {
                    let job = attempt_of(facts.key);
                    spool.jobs.insert(job, facts);
                    self.judge.job_noted((node, self.nodes[node].incarnation), job);
                }
            }
            NodeAct::Spawn(launch) => {
                self.judge.spawned += 1;
                let script = launch.facts.spec.script.and_then(|digest| blobs.iter().find(|b| b.digest == digest));
                let script = script.map(|b| b.bytes.to_vec());
                self.spawn(node, launch, script);
            }
            NodeAct::Tell { key, message } => {
                let (life, span) = (self.nodes[node].life, self.local_delay(node));
                self.after(span, Happening::StepTell { node, life, key, message });
            }
            NodeAct::KillStep { key } => self.kill_step(node, key),
            NodeAct::Sweep { job } => self.sweep(node, job),
            NodeAct::Forget { key } => {
                self.nodes[node].witness.0.remove(&key);
                self.nodes[node].spool.steps.remove(&key);
            }
            NodeAct::ForgetJob { job } => {
                let spool = &mut self.nodes[node].spool;
                spool.jobs.remove(&job);
                spool.passed.retain(|(of, _)| *of != job);
                spool.steps.retain(|key, _| attempt_of(*key) != job);
                self.nodes[node].witness.0.retain(|key| attempt_of(*key) != job);
                let host = &self.nodes[node];
                self.judge.forgotten(node, job, host);
                self.judge.epilog_is_over((node, host.incarnation), job);
            }
            NodeAct::Gang(act) => self.gang_act(node, act),
            NodeAct::Fence(act) => self.fence_act(node, act),
            NodeAct::Hook(run) => self.run_hook(node, &run),
            NodeAct::KillHook { hook, job } => self.kill_hook(node, hook, job),
            NodeAct::Checkpoint(act) => self.checkpoint_act(node, act),
            NodeAct::Say(_) => {}
            NodeAct::Content(ContentAct::Hear { content, stream, key }) => {
                self.nodes[node].hears.insert(stream, (content, key));
            }
            NodeAct::Content(act) => {
                let span = self.local_delay(node);
                let host = &mut self.nodes[node];
                host.disk_until = host.disk_until.max(self.now) + host.disk_takes + span;
                let (at, life) = (host.disk_until, host.life);
                self.agenda.at(at, Happening::OnDisk { node, life, act });
            }
        }
    }

    /// Executes an operation of a node on a stored file. Simulated nodes share no disks.
    pub(crate) fn on_disk(&mut self, node: usize, life: u64, act: ContentAct) {
        if !self.nodes[node].lives(life) {
            return;
        }
        if let Some(input) = self.nodes[node].files.act(0, act, &mut Neighbours::default()) {
            self.tell_node(node, input);
        }
    }

    /// Returns the duration of a local operation on a node.
    pub(crate) fn local_delay(&mut self, node: usize) -> Span {
        Span(self.seed.between(20, 200) * self.network.slowness(node))
    }

    fn sweep(&mut self, node: usize, job: JobAttempt) {
        let keys: Vec<StepKey> = self.nodes[node].steps.keys().copied().filter(|k| attempt_of(*k) == job).collect();
        if !self.is_planted(Mutation::SweepWithoutKill) {
            for key in keys {
                self.sweep_step(node, key);
            }
            self.judge.hidden.remove(&(job, node));
        }
        let (life, span) = (self.nodes[node].life, self.seed.span(Span(500), Span::from_millis(40)));
        self.after(span, Happening::Swept { node, life, job });
    }

    /// Kills all processes of a step, as part of a sweep of its job.
    fn sweep_step(&mut self, node: usize, key: StepKey) {
        if self.nodes[node].spool.steps.contains_key(&key) {
            self.kill_step(node, key);
        } else {
            // The kernel closes the links of the killed step daemon.
            self.link_ends(node, key, true);
            self.lose_step(node, key);
        }
    }

    pub(crate) fn swept(&mut self, node: usize, life: u64, job: JobAttempt) {
        if self.nodes[node].lives(life) {
            // The sweep is repeated to check that nothing is left.
            let keys = self.nodes[node].steps.keys().copied().filter(|key| attempt_of(*key) == job);
            for key in keys.collect::<Vec<_>>() {
                if self.nodes[node].steps.get(&key).is_some_and(StepHost::has_live_tasks) {
                    self.judge.swept_alive(node, key);
                }
                if !self.is_planted(Mutation::SweepWithoutKill) {
                    self.sweep_step(node, key);
                }
            }
            self.nodes[node].groups.remove(&job);
            let keys: Vec<StepKey> =
                self.nodes[node].spool.steps.keys().copied().filter(|k| attempt_of(*k) == job).collect();
            for key in keys {
                self.step_spoke(node, life, key);
            }
            self.tell_node(node, NodeInput::Swept { job });
        }
    }
}

/// Returns whether a frame contains the order to shut down.
fn brings_shut_down(input: &NodeInput) -> bool {
    let NodeInput::Net(NetInput::FromParent(frame)) = input else { return false };
    let puts = frame.says.iter().filter_map(|say| match say {
        Downward::Put(put) | Downward::Reply { put, .. } => put.parcel.open().ok(),
        _ => None,
    });
    puts.into_iter().any(|parcel| parcel.messages.iter().any(|m| matches!(m, Down::ShutDown { .. })))
}
