//! The node machine: all decisions of a node daemon, without I/O.
//!
//! The host (the daemon or the simulator) keeps state that survives a kill -9 of the daemon, but not a power loss,
//! which makes a new incarnation. That state is the folder of each step (its launch and, at its end, its result), the
//! mark of each job without a step folder, the count of daemon runs, and the last session. From it the host makes the
//! [`Boot`] and the `Found…` inputs of the next run. Step daemons and their tasks go on while the node daemon is
//! away.
//!
//! A report is about something that happens once: an attempt's step ends, or an attempt is gone. So the controller
//! can safely take a report twice. The node keeps each report until the controller acknowledges it, and sends it
//! again in every session.
//!
//! A launch that failed leaves no trace in the spool. So the controller starts again what it holds as running and the
//! registration does not list: a job, or a batch script if its step is missing although its job is listed. A start of
//! something that is already known here is always harmless. A job is no longer listed once its `JobGone` was reported,
//! even before the acknowledgement: the controller may have recorded it already.
//!
//! A leased job (`lease`) is only in memory until it begins. A daemon that dies forgets it. The controller finds it
//! missing from the registration and sends it again.
//!
//! Every node is also a relay of the tree (`fabric`). The machine holds both parts, which share one set of
//! connections.

mod checkpoint;
mod content;
mod counted;
#[cfg(test)]
pub(crate) mod disk;
mod fence;
mod gang;
mod hooks;
mod lease;
mod link;
mod reports;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use checkpoint::CheckpointAct;
pub use content::ContentAct;
pub use counted::{Counted, Neighbours};
pub use fence::{FenceAct, Guard};
pub use gang::{Alignment, GangAct};
pub use hooks::HookRun;
use squall_model::checkpoint::Made;
use squall_model::config::{HealthConfig, Hooks};
use squall_model::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::{Blob, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::rotation::ControllerKeys;
use squall_model::series::Used;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::Time;
use squall_model::wire::counts::NodeCounts;
pub use squall_model::wire::fabric::Health;
use squall_model::wire::fabric::{ContentId, Holding, Letter, Variable};
use squall_model::wire::hook::Hook;
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::proof::Warrant;
use squall_model::wire::sealed::Sealed;
use squall_model::wire::stepd::ToStepd;

use crate::fabric::proof::Pinned;
use crate::fabric::{Delivery, NetInput, NetOut, Relay};
use crate::machine::Machine;
use crate::node::content::Contents;
use crate::node::fence::Fence;
use crate::node::gang::Beat;
use crate::node::lease::Lease;
use crate::node::link::Link;
use crate::node::reports::Outbox;
use crate::node::work::{Finish, Job};

/// Input of a new run of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// The node's name.
    pub name: String,
    /// Incarnation of the node: the same in every run of the daemon until reboot or loss of the spool.
    pub incarnation: Incarnation,
    /// Number of this run of the daemon, from 1; counted durably before the machine is made. Never the same number
    /// twice within an incarnation. At most 32 bits are used.
    pub life: u64,
    /// Newest session of earlier runs ([`NodeAct::SaveSession`]); the default if there was none.
    pub session: Session,
    /// Names of the nodes above this one in a healthy tree, its parent first. Empty: it is attached to the
    /// controller.
    pub above: Vec<String>,
    /// Hardware of the node.
    pub hardware: Hardware,
    /// Version of the daemon.
    pub version: String,
    /// Keys with which the controllers sign what they send.
    pub pinned: Pinned,
    /// Programs that run around jobs.
    pub hooks: Hooks,
    /// How the node is checked and rebooted.
    pub health: HealthConfig,
    /// Jobs of earlier runs that the guards of their node fences have ended.
    pub fenced: BTreeSet<JobAttempt>,
}

/// State, at the start of a daemon's run, of a step that an earlier run was told to spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundStep {
    /// Proven that no task of the step was ever started or will be. The node forgets the step; the controller starts
    /// it again if it still needs it.
    Unstarted,
    /// Its step daemon is running. The host connects to it and reports as if it had spawned it.
    Alive,
    /// Its step daemon died without a result. The host has taken charge of the tasks that still run, as after
    /// [`NodeInput::Orphaned`], and gives `Ended` when none is left.
    Orphaned,
    /// The step has ended.
    Ended(StepEnd),
    /// The step could not be started.
    Failed {
        /// Error text.
        error: String,
        /// Whether the node is at fault, not the job.
        node_fault: bool,
    },
}

/// Input of the node machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeInput {
    /// A job that an earlier run opened ([`NodeAct::OpenJob`]) and that was not forgotten. All `Found…` inputs come
    /// before the first `Net`, in any order. A job with a `FoundStep` needs no `FoundJob`.
    FoundJob {
        /// Facts of the job as it was opened.
        facts: Arc<JobFacts>,
    },
    /// A step that an earlier run was told to spawn and that was not forgotten.
    FoundStep {
        /// Launch that the earlier run was told to spawn.
        launch: Box<StepLaunch>,
        /// State of the step at the start of this run.
        state: FoundStep,
    },
    /// A program around a job of which an earlier run of the daemon saw the end: a prolog that succeeded, or an epilog.
    FoundHook {
        /// The job of the program.
        job: JobAttempt,
        /// Kind of the program.
        hook: Hook,
    },
    /// A remainder of an attempt that the spool does not list, such as a cgroup or processes. The machine has it
    /// swept and does not register before. So a registration proves that nothing unlisted is left on the node, and no
    /// sweep can hit an attempt that the controller sends again.
    FoundLeftover {
        /// Attempt of the job that left the remainder.
        job: JobAttempt,
    },
    /// An attempt with an unreadable entry in the spool. The entry's name gives job, attempt and step; the controller
    /// has the rest. The attempt counts as running until its end is certain, and is never started here again.
    FoundUnreadable {
        /// Attempt with the unreadable entry in the spool.
        job: JobAttempt,
        /// The step with the unreadable folder, and its state. None: the job's mark is unreadable.
        step: Option<(StepNo, FoundStep)>,
    },
    /// An event on the node's connections in the tree. A put that arrives in it may lead to `Spawn`s among the acts
    /// of the same step. Their scripts and environments are in that step's `blobs`.
    Net(NetInput),
    /// A step could not be spawned, because of the spool or the system or as its step daemon reported. None of its
    /// tasks has run or will run. Given at most once for each `Spawn`, never together with `Ended`.
    Failed {
        /// The step that failed.
        key: StepKey,
        /// Error text.
        error: String,
        /// Whether the node is at fault, not the job.
        node_fault: bool,
    },
    /// All tasks of a step have ended. The source is its step daemon (socket or result file) or, if that died, the
    /// host's view of the tasks. A result that the step daemon wrote takes precedence over the host's view. A second
    /// one for the same step is ignored.
    Ended {
        /// The step that ended.
        key: StepKey,
        /// Result of the step.
        end: StepEnd,
    },
    /// The step daemon died without a result. The host is now in charge of its tasks, which may still run, and
    /// carries out `Tell` on them: `End` sends TERM, or KILL if its wait is 0; the machine times the wait. `Ended`
    /// follows when no task is left, at once if none was.
    Orphaned {
        /// The step of the daemon that died.
        key: StepKey,
    },
    /// [`NodeAct::Sweep`] is done: no process of that attempt is left here, step daemons included, and its cgroup is
    /// gone. The host gives every `Ended` or `Failed` of its steps before this.
    Swept {
        /// Attempt that was swept.
        job: JobAttempt,
    },
    /// A program has ended ([`NodeAct::Hook`]), which the host has noted for later runs of the daemon.
    HookEnded {
        /// Kind of the program.
        hook: Hook,
        /// The attempt for which it ran. None: it ran for the node.
        job: Option<JobAttempt>,
        /// Why it failed, as a text for users. None: it succeeded.
        error: Option<String>,
    },
    /// A checkpoint has ended ([`CheckpointAct::Make`]).
    Checkpointed {
        /// The job.
        job: JobAttempt,
        /// Number of the checkpoint.
        number: u64,
        /// The complete checkpoint, or none if only asked whether it could be made; or why it can't.
        result: Result<Option<Made>, String>,
    },
    /// This node's part of a job of several nodes is restored, and waits for [`CheckpointAct::Go`].
    Restored {
        /// The job.
        job: JobAttempt,
        /// Number of the checkpoint.
        number: u64,
    },
    /// A dump was killed, so that the job's processes may be damaged. The host has frozen them as far as it could. Comes
    /// before the end of the job's script, and, if an earlier run of the daemon began the dump, before `Net` and `Tick`.
    Damaged {
        /// The job.
        job: JobAttempt,
        /// How the dump ended, as a text for users.
        error: String,
    },
    /// Time has passed. Given at the machine's deadline, or at any time.
    Tick {
        /// Load and free memory of the node, to be sent with the next heartbeat.
        health: Health,
    },
    /// The state of a file on this node has changed.
    Content {
        /// Identifies the file.
        content: ContentId,
        /// New state of the file.
        holding: Holding,
    },
    /// The first `bytes` bytes of a file are on disk, so the sender may send more.
    Kept {
        /// Identifies the file.
        content: ContentId,
        /// Bytes from the beginning of the file.
        bytes: u64,
    },
    /// A file has been written to its user's path, or that failed.
    Placed {
        /// Epoch and number of the placement.
        key: (Epoch, u64),
        /// Error number; 0: success.
        error: i32,
    },
    /// A step daemon of this node sends a message to another step daemon of its step, through the tree.
    Letter {
        /// The step of both step daemons.
        key: StepKey,
        /// Node of the receiving step daemon.
        to: NodeId,
        /// The message, which the node daemon passes on without decoding it.
        message: Sealed<PeerMessage>,
    },
    /// Resource usage of a step's tasks so far: a step daemon's answer to `ToStepd::Usage`.
    Used {
        /// The step of the measured tasks.
        key: StepKey,
        /// Usage of the tasks so far.
        used: Used,
    },
    /// A step daemon acknowledges that its step is to end: it starts no further task.
    Ending {
        /// The step that is to end.
        key: StepKey,
    },
    /// The gang switcher reports how late its last switches were.
    Switched {
        /// Largest lateness of a switch between time slots, microseconds.
        behind_us: u64,
    },
}

/// Action that the node machine asks of the host. The host carries actions out in order, before it sends the `net`
/// part of the same step. Only `Spawn` can fail, which `Failed` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAct {
    /// Saves the newest session durably, so that a later run refuses older ones.
    SaveSession(Session),
    /// Keeps the controllers' new keys durably: what comes from now on is checked with them.
    Keys(Box<ControllerKeys>),
    /// Prepares for a job: makes its cgroup and, unless `batch`, its mark in the spool (given back as `FoundJob`). A
    /// repetition for the same attempt does nothing. On a full disk the mark may be missing. Then a later run does
    /// not know the job and the controller starts it there again, which is harmless since no step of it ran.
    OpenJob {
        /// Facts of the job.
        facts: Arc<JobFacts>,
        /// Memory that the job holds on this node, MiB; 0: no limit.
        memory_mb: u64,
        /// Whether a `Spawn` of the job's batch script follows in the same acts. The step's folder then serves as the
        /// job's mark.
        batch: bool,
        /// Devices that the job holds on this node: indices by name of the resource.
        gres: BTreeMap<String, CoreSet>,
    },
    /// Spawns a step daemon. In this order: save the launch durably, reserve disk space for the result, start the
    /// daemon. If memory or disk space is lacking, nothing is started or saved, and `Failed` is given.
    Spawn(Box<StepLaunch>),
    /// Sends a message to a step daemon as soon as it can be reached. For orphaned tasks see [`NodeInput::Orphaned`].
    /// Nothing happens if the step has ended.
    Tell {
        /// The step of the daemon that gets the message.
        key: StepKey,
        /// Message for the step daemon.
        message: ToStepd,
    },
    /// Kills a step daemon and all its tasks because the step did not end in time. `Ended` follows.
    KillStep {
        /// The step to be killed.
        key: StepKey,
    },
    /// Kills everything that is left of the job on this node: tasks, all their descendants, step daemons. A step
    /// daemon that has yet to deliver its result gets a moment to do so. Then the job's cgroup is removed. The spool
    /// is not touched. `Swept` reports the end; a repetition during a sweep does nothing. Also valid for an unknown
    /// job.
    Sweep {
        /// The attempt to be swept.
        job: JobAttempt,
    },
    /// Removes the step's folder, if it has one: the controller has recorded the step's end.
    Forget {
        /// The step to be forgotten.
        key: StepKey,
    },
    /// Removes the job's mark and the folders of all its steps: the controller has recorded the job's end.
    ForgetJob {
        /// The attempt to be forgotten.
        job: JobAttempt,
    },
    /// Runs a program as root. `HookEnded` reports its end.
    Hook(Box<HookRun>),
    /// Kills a running program with all processes of its session. `HookEnded` reports its end.
    KillHook {
        /// Kind of the program.
        hook: Hook,
        /// The attempt for which it runs. None: it runs for the node.
        job: Option<JobAttempt>,
    },
    /// Writes a line to the log.
    Say(String),
    /// Action on the checkpoints of a job.
    Checkpoint(CheckpointAct),
    /// Action on a file.
    Content(ContentAct),
    /// Action for the switcher of gangs, on time slots of jobs that share cores.
    Gang(GangAct),
    /// Action for the guards of jobs with a node fence.
    Fence(FenceAct),
}

/// Output of one step of the machine. The host carries out the acts, then sends `net`, then obeys `exit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOut {
    /// Actions for the host, in the order in which it carries them out.
    pub acts: Vec<NodeAct>,
    /// Scripts and environments that the acts need.
    pub blobs: Vec<Blob>,
    /// For each `Spawn` among the acts, the proof that the controller ordered it. Without an entry, proofs are not
    /// checked.
    pub warrants: BTreeMap<StepKey, Arc<Warrant>>,
    /// Messages and connection changes for the neighbours in the tree.
    pub net: NetOut,
    /// Whether the daemon is to end. Step daemons that still run are left alone.
    pub exit: bool,
    /// Whether the daemon ends because the controller does not accept this node.
    pub refused: bool,
}

/// State and decisions of a node daemon, without I/O. Each run of the daemon makes a new machine.
#[derive(Debug)]
pub struct NodeMachine {
    boot: Boot,
    link: Link,
    relay: Relay,
    /// Id of this node, as the controller has told it; None: it has not.
    id: Option<NodeId>,
    /// What proves the message that is being handled.
    warrant: Option<Arc<Warrant>>,
    variables: BTreeMap<Variable, i64>,
    contents: Contents,
    beat: Beat,
    jobs: BTreeMap<JobAttempt, Job>,
    /// Attempts that the spool does not list. Their remaining processes and cgroups are being removed before the node
    /// registers.
    leftovers: BTreeSet<JobAttempt>,
    /// Jobs that an earlier run accepted and of which no step ran. Kept until the controller has been told so.
    unstarted: BTreeSet<JobAttempt>,
    /// Leased (prefetched) jobs that have not begun, in the order in which they came.
    leases: Vec<(JobAttempt, Lease)>,
    outbox: Outbox,
    hooks: hooks::Hooks,
    fence: Fence,
    timers: BTreeSet<(Time, Timer)>,
    /// Ends of steps given by `Found…` inputs; handled once all `Found…` inputs are in.
    found: Vec<(StepKey, Finish)>,
    /// Highest id of a job that was started here in this run of the daemon.
    last_job: JobId,
    /// Time at which the daemon exits at the latest during a shutdown; it exits earlier if no job is left. None: no
    /// shutdown is in progress.
    leaving: Option<Time>,
    /// Load and free memory, as the host measured them last.
    health: Health,
    /// Counters of this run of the daemon, without those of reports.
    counts: NodeCounts,
}

/// Purpose of a timer. A timer that its step or job no longer refers to does nothing when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A checkpoint takes too long, or a job stays frozen for too long.
    Checkpoint(JobAttempt),
    /// Deadline for the end of a step that was told to end.
    Step(StepKey),
    /// Latest time for the report of a batch script's end. The report waits until the job's remaining processes are
    /// killed, to be sent together with the report of that.
    Held(JobAttempt),
    /// End of the short time in which a job runs outside its time slot to receive a signal.
    Lifted(JobAttempt),
    /// Time limit of a program.
    Hook(Hook, Option<JobAttempt>),
    /// Time after which a job's remaining processes count as impossible to kill.
    Unkillable(JobAttempt),
    /// Time of the node's next check.
    Check,
    /// Time of the next check after a fault.
    FaultCheck,
}

impl NodeMachine {
    /// Makes the machine for a new run of the daemon. `Found…` inputs come next, then `Net`.
    pub fn new(boot: Boot) -> Self {
        Self {
            link: Link::after(boot.session),
            relay: Relay::new(boot.above.clone()),
            id: None,
            warrant: None,
            variables: BTreeMap::new(),
            contents: Contents::default(),
            beat: Beat::default(),
            jobs: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            unstarted: BTreeSet::new(),
            leases: Vec::new(),
            outbox: Outbox::default(),
            hooks: hooks::Hooks::default(),
            fence: Fence::of(boot.fenced.clone()),
            timers: BTreeSet::new(),
            found: Vec::new(),
            last_job: JobId(0),
            leaving: None,
            health: Health::default(),
            counts: NodeCounts::default(),
            boot,
        }
    }

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.boot.name
    }

    /// Returns the session in force and the number of the last put (command of the controller) accepted in it; None: no
    /// session is in force.
    pub fn session(&self) -> Option<(Session, u64)> {
        self.link.session()
    }

    /// Returns how many nodes can be reached through this one.
    pub fn below(&self) -> usize {
        self.relay.below()
    }

    /// Returns the nodes reachable through the child on connection `link`; None: there is no such child.
    pub fn reach_of(&self, link: u32) -> Option<&NodeSet> {
        self.relay.reach_of(link)
    }

    fn deliver_all(&mut self, now: Time, local: Vec<Delivery>, out: &mut NodeOut) {
        for delivery in local {
            if !out.exit {
                self.deliver(now, delivery, out);
            }
        }
    }

    /// Sends a message of a step daemon of this node into the tree.
    fn post(&mut self, now: Time, step: StepKey, (to, message): (NodeId, Sealed<PeerMessage>), out: &mut NodeOut) {
        let Some(sender) = self.id else { return };
        let mut local = Vec::new();
        self.relay.post(Box::new(Letter { step, sender, to, message }), &mut local);
        self.deliver_all(now, local, out);
    }

    /// Returns what the node reports of itself with a heartbeat.
    fn health(&self) -> Health {
        let NodeCounts { steps, tasks, sessions, .. } = self.counts;
        let counts = NodeCounts { steps, tasks, sessions, ..self.outbox.counts };
        // A report of before a reboot may come late: the upper half differs then.
        let boot = self.boot.incarnation.0;
        let mark = (boot ^ boot >> 32 ^ boot >> 64 ^ boot >> 96) as u32;
        let run = u64::from(mark) << 32 | self.boot.life & u64::from(u32::MAX);
        Health { run, counts, ..self.health }
    }

    /// Returns whether a job is on this node and was not told to end.
    pub fn has_open(&self, job: JobAttempt) -> bool {
        self.jobs.get(&job).is_some_and(Job::is_open)
    }

    /// Sends due reports and lets the relay send what is pending, with the current values of all variables.
    fn settle(&mut self, now: Time, out: &mut NodeOut) {
        self.send_reports(now);
        let mut local = Vec::new();
        let (link, jobs, variables, contents) = (&self.link, &self.jobs, &self.variables, &self.contents);
        let skew = self.beat.skew_us();
        let value = |variable: &Variable| match variable {
            Variable::Heard => link.last_put() as i64,
            Variable::Job(job) => i64::from(jobs.contains_key(job)),
            Variable::Step(key) => jobs.get(&attempt_of(*key)).map_or(0, |job| job.progress(key.step)),
            Variable::Content(content) => contents.holding(content),
            Variable::Taken(content) => contents.taken(content),
            Variable::Placed(epoch, number) => contents.placed(*epoch, *number),
            Variable::Missing(content, from) => contents.missing(content, *from),
            Variable::Skew => skew,
            Variable::Used(key, _) => jobs.get(&attempt_of(*key)).map_or(-1, |job| job.measured(key.step)),
            Variable::Unheeded => jobs.values().map(Job::unheeded).sum(),
            Variable::Named(_) => variables.get(variable).copied().unwrap_or_default(),
        };
        let used = |variable: &Variable| match variable {
            Variable::Used(key, lately) => jobs.get(&attempt_of(*key)).and_then(|job| job.used(key.step, *lately)),
            _ => None,
        };
        self.relay.settle(now, (value, used, self.health()), &mut local, &mut out.net);
        self.deliver_all(now, local, out);
    }

    /// Handles all timers that are due.
    fn tick(&mut self, now: Time, out: &mut NodeOut) {
        while let Some(&(due, timer)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.pop_first();
            match timer {
                Timer::Step(key) => self.step_overdue(due, key, out),
                Timer::Held(job) => self.tell_held(job),
                Timer::Checkpoint(job) => self.checkpoint_overdue(job, out),
                Timer::Lifted(job) => self.lower(job, out),
                Timer::Hook(hook, job) => self.hook_overdue(due, (hook, job), out),
                Timer::Unkillable(job) => self.unkillable(now, due, job, out),
                Timer::Check => self.check(now, out),
                Timer::FaultCheck => self.run_fault_check(now, out),
            }
        }
        self.end_fenced(now, out);
        self.link_tick(now);
        if self.leaving.is_some_and(|until| until <= now) {
            out.exit = true;
        }
    }
}

impl Machine for NodeMachine {
    type Input = NodeInput;
    type Out = NodeOut;

    fn step(&mut self, now: Time, input: NodeInput, out: &mut NodeOut) {
        if !self.found.is_empty() && !is_found(&input) {
            for (key, finish) in std::mem::take(&mut self.found) {
                self.finished(now, key, finish, out);
            }
        }
        if !self.hooks.settled && matches!(input, NodeInput::Net(_) | NodeInput::Tick { .. }) {
            self.found_all(now, out);
        }
        match input {
            NodeInput::FoundJob { facts } => {
                self.jobs.entry(attempt_of(facts.key)).or_insert_with(|| Job::new(&facts));
                self.guard(&facts, out);
                self.found_around(&facts, false);
            }
            NodeInput::FoundHook { job, hook } => self.found_hook(job, hook),
            NodeInput::HookEnded { hook, job, error } => self.hook_ended(now, (hook, job), error, out),
            NodeInput::FoundStep { launch, state } => self.found_step(&launch, state, out),
            NodeInput::Checkpointed { job, number, result } => self.checkpointed(now, (job, number), result),
            NodeInput::Restored { job, number } => self.restored(job, number),
            NodeInput::Damaged { job, error } => self.damaged(now, job, error, out),
            NodeInput::FoundUnreadable { job, step } => self.found_unreadable(job, step, out),
            NodeInput::FoundLeftover { job } => {
                if self.leftovers.insert(job) {
                    out.acts.push(NodeAct::Sweep { job });
                }
            }
            NodeInput::Net(input) => {
                let mut local = Vec::new();
                self.relay.take(now, input, &mut local, &mut out.net);
                self.deliver_all(now, local, out);
            }
            NodeInput::Failed { key, error, node_fault } => {
                self.finished(now, key, Finish::Failed { error, node_fault }, out);
            }
            NodeInput::Ended { key, end } => self.finished(now, key, Finish::Ended(end), out),
            NodeInput::Orphaned { key } => self.orphaned(now, key),
            NodeInput::Swept { job } => self.swept(now, job, out),
            NodeInput::Tick { health } => {
                self.health = health;
                self.tick(now, out);
            }
            NodeInput::Content { content, holding } => self.contents.became(content, holding, &mut out.acts),
            NodeInput::Kept { content, bytes } => self.contents.kept(&content, bytes),
            NodeInput::Placed { key, error } => self.contents.became_placed(key, error),
            NodeInput::Letter { key, to, message } => self.post(now, key, (to, message), out),
            NodeInput::Used { key, used } => self.used(key, used),
            NodeInput::Ending { key } => self.heeded(key),
            NodeInput::Switched { behind_us } => self.beat.behind_us = behind_us,
        }
        self.settle(now, out);
        if self.leaving.is_some() && self.jobs.values().all(Job::is_gone) {
            out.exit = true;
        }
    }

    fn deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let fence = self.fence.deadline();
        timer
            .into_iter()
            .chain(self.leaving)
            .chain(fence)
            .chain(self.link_deadline())
            .chain(self.relay.deadline())
            .min()
    }
}

/// Returns whether the input describes what earlier runs of the daemon left.
fn is_found(input: &NodeInput) -> bool {
    matches!(
        input,
        NodeInput::FoundJob { .. }
            | NodeInput::FoundStep { .. }
            | NodeInput::FoundHook { .. }
            | NodeInput::FoundUnreadable { .. }
            | NodeInput::FoundLeftover { .. }
            | NodeInput::Damaged { .. }
    )
}

/// Returns the attempt that a step belongs to.
pub fn attempt_of(key: StepKey) -> JobAttempt {
    JobAttempt { job: key.job, attempt: key.attempt }
}
