//! The node: what a node daemon decides.
//!
//! What the world remembers for it, through a kill -9 of the daemon (not through a power loss, which makes a
//! new incarnation): the folder of each step (its launch and, at its end, its result), the mark of each job
//! without one, the life counter, and the last session. From these it makes the [`Boot`] and the `Found…` inputs of
//! the next life. Step daemons and their tasks live on while the node daemon is away.
//!
//! A report is about something that happens once (an attempt's step ends, an attempt is gone), so the controller finds
//! one that it has taken already harmless; the node keeps it until it is known there, and says it again in every
//! session.
//!
//! A launch that failed leaves no trace in the spool. So the controller starts again what it believes running and the
//! registration does not list: a job, or a batch script whose step is missing although its job is listed. Starting
//! what is known here is always harmless. A job whose `JobGone` was reported is not listed any more even if that is
//! not acknowledged: the controller may have recorded it already.
//!
//! A leased job (`lease`) is in memory only until it begins: a daemon that dies forgets it, and the controller, to which it
//! is not listed, sends it again.
//!
//! Every node is a relay of the tree too (`fabric`): the machine has both parts, and one set of connections.

mod content;
mod counted;
#[cfg(test)]
pub(crate) mod disk;
mod gang;
mod lease;
mod link;
mod reports;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use content::ContentAct;
pub use counted::{Counted, Neighbours};
pub use gang::{Alignment, GangAct};
use squall_model::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::{Blob, JobAttempt, Usage};
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::set::NodeSet;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::Time;
pub use squall_model::wire::fabric::Health;
use squall_model::wire::fabric::{ContentId, Holding, Letter, Variable};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::sealed::Sealed;
use squall_model::wire::stepd::ToStepd;

use crate::fabric::{Delivery, NetInput, NetOut, Relay};
use crate::machine::Machine;
use crate::node::content::Contents;
use crate::node::gang::Beat;
use crate::node::lease::Lease;
use crate::node::link::Link;
use crate::node::reports::Outbox;
use crate::node::work::{Finish, Job};

/// What a life of the daemon begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// The node's name.
    pub name: String,
    /// Its incarnation: the same in every life of the daemon until reboot or loss of the spool.
    pub incarnation: Incarnation,
    /// Which life of the daemon this is, from 1; counted durably before the machine is made. Never the same
    /// number twice within an incarnation. At most 32 bits are used.
    pub life: u64,
    /// The newest session of earlier lives ([`NodeAct::SaveSession`]); the default if there was none.
    pub session: Session,
    /// Nodes above it in a healthy tree, its parent first; none: it is attached to the controller.
    pub above: Vec<String>,
    /// What the node has.
    pub hardware: Hardware,
    /// Version of the daemon.
    pub version: String,
}

/// What is known, at the start of a daemon's life, of a step that an earlier life was told to spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundStep {
    /// Proven that no task of it was ever started and none will be: it is forgotten, and the controller, if it still
    /// wants it, starts it again.
    Unstarted,
    /// Its step daemon lives; the world connects to it and reports as if it had spawned it.
    Alive,
    /// Its step daemon died without a result. The world has taken charge of whatever tasks still live, as
    /// after [`NodeInput::Orphaned`], and gives `Ended` when none is left.
    Orphaned,
    /// It has ended.
    Ended(StepEnd),
    /// It could not be started.
    Failed {
        /// Why.
        error: String,
        /// The node's own fault.
        node_fault: bool,
    },
}

/// What the node machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeInput {
    /// A job that an earlier life opened ([`NodeAct::OpenJob`]) and that was not forgotten. All `Found…` inputs
    /// come before the first `Net`, in any order; jobs that only steps tell of need no `FoundJob`.
    FoundJob {
        /// As it was opened.
        facts: Arc<JobFacts>,
    },
    /// A step that an earlier life was told to spawn and that was not forgotten.
    FoundStep {
        /// As it was spawned.
        launch: Box<StepLaunch>,
        /// What has become of it.
        state: FoundStep,
    },
    /// Something of an attempt is still here that the spool does not know: a cgroup, processes. The machine has it swept, and
    /// does not register before that is done: so a registration proves that nothing unlisted is left on the node, and no
    /// sweep can meet an attempt that the controller sends again.
    FoundLeftover {
        /// The attempt.
        job: JobAttempt,
    },
    /// An attempt of which the spool holds something that can't be read. What it is called says whose it is; the controller
    /// knows the rest. It is kept as running until it is known to have ended, and is never started here again.
    FoundUnreadable {
        /// The attempt.
        job: JobAttempt,
        /// The step whose folder it is, and what has become of it; None: the job's mark.
        step: Option<(StepNo, FoundStep)>,
    },
    /// Something happened to the node's connections in the tree. A put that came with it may lead to `Spawn`s among
    /// the acts of the same step; what they need is in the step's `blobs`.
    Net(NetInput),
    /// A step that was to be spawned could not be: by the spool, the system, or its daemon's word. None of its
    /// tasks has run or will run. At most once for each `Spawn`, never together with `Ended`.
    Failed {
        /// The step.
        key: StepKey,
        /// Why.
        error: String,
        /// The node's own fault.
        node_fault: bool,
    },
    /// All tasks of a step have ended, by its daemon's word (socket or result file) or, if that died, by what the
    /// world saw of the tasks. A result that the step daemon wrote always wins over what the world saw.
    /// Given again for the same step: ignored.
    Ended {
        /// The step.
        key: StepKey,
        /// How.
        end: StepEnd,
    },
    /// The step daemon died without a result. Its tasks, which may live on, are in the world's charge now: `Tell`
    /// is carried out on them by the world (`End` sends TERM, or KILL if its wait is 0; the wait is the machine's
    /// business), and `Ended` follows when none is left, at once if none was.
    Orphaned {
        /// The step.
        key: StepKey,
    },
    /// [`NodeAct::Sweep`] is done: no process of that attempt is left here, step daemons included, and its cgroup
    /// is gone. Every `Ended` or `Failed` of its steps that the world will ever give came before.
    Swept {
        /// The job.
        job: JobAttempt,
    },
    /// Time has passed: given at the machine's deadline (or at any time).
    Tick {
        /// For the next heartbeat.
        health: Health,
    },
    /// How the node stands with a file now.
    Content {
        /// Which.
        content: ContentId,
        /// How.
        holding: Holding,
    },
    /// So many bytes of a file that is taken in are kept: more may come.
    Kept {
        /// Which.
        content: ContentId,
        /// Bytes from its beginning on.
        bytes: u64,
    },
    /// A file has been laid down, or could not be.
    Placed {
        /// Epoch and number of the placement.
        key: (Epoch, u64),
        /// The error number; 0: done.
        error: i32,
    },
    /// A step daemon here tells another one of its step, through the tree.
    Letter {
        /// The step.
        key: StepKey,
        /// The other's node.
        to: NodeId,
        /// What.
        message: Sealed<PeerMessage>,
    },
    /// What the tasks of a step have used so far: a step daemon's answer to `ToStepd::Usage`.
    Used {
        /// The step.
        key: StepKey,
        /// What.
        usage: Usage,
    },
    /// A step daemon has heard that its step is to end: no task of it begins any more.
    Ending {
        /// The step.
        key: StepKey,
    },
    /// The switcher has looked back.
    Switched {
        /// How far behind it was at most, microseconds.
        behind_us: u64,
    },
}

/// What the node machine wants done. Carried out in order, before what is for the net in the same step leaves. None of them
/// fails but `Spawn`, which answers by `Failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAct {
    /// Remember the newest session, durably, so that a later life refuses older ones.
    SaveSession(Session),
    /// Make ready for a job: its cgroup, and unless `batch` its mark in the spool (given back as `FoundJob`). Repeated for
    /// the same attempt: nothing. If the disk is full the mark may be missing; then a later life does not know the
    /// job and the controller starts it there again, which is harmless since no step of it ran.
    OpenJob {
        /// The job.
        facts: Arc<JobFacts>,
        /// Memory that the job holds on this node, MiB; 0: no limit.
        memory_mb: u64,
        /// A `Spawn` of its batch script follows in the same acts; its folder is memory enough.
        batch: bool,
    },
    /// Spawn the step daemon. In this order: remember the launch durably, reserve the room for the result, start the
    /// daemon. If memory or room can't be had, nothing is started, nothing is remembered, and `Failed` is given.
    Spawn(Box<StepLaunch>),
    /// Tell a step daemon, as soon as it can be reached; orphaned tasks see [`NodeInput::Orphaned`]. Nothing happens
    /// if the step has ended.
    Tell {
        /// The step.
        key: StepKey,
        /// What.
        message: ToStepd,
    },
    /// Kill a step's daemon and all its tasks: it did not end in its time. `Ended` follows.
    KillStep {
        /// The step.
        key: StepKey,
    },
    /// Kill everything that is left of the job on this node: tasks, their descendants wherever they hid, step daemons
    /// (those that have yet to hand over their result are waited for a moment); then remove its cgroup.
    /// The spool is not touched. Answered by `Swept`; repeated while one is under way: nothing.
    /// Also for a job of which nothing is known.
    Sweep {
        /// The job.
        job: JobAttempt,
    },
    /// The step's end is recorded by the controller: remove its folder, if it has one.
    Forget {
        /// The step.
        key: StepKey,
    },
    /// The job's end is recorded by the controller: remove its mark and the folders of all its steps.
    ForgetJob {
        /// The job.
        job: JobAttempt,
    },
    /// For the log.
    Say(String),
    /// About a file.
    Content(ContentAct),
    /// About turns of jobs that share cores.
    Gang(GangAct),
}

/// What one step of the machine wants done: acts, then `net`, then `exit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOut {
    /// Acts, in order.
    pub acts: Vec<NodeAct>,
    /// Scripts and environments that the acts need.
    pub blobs: Vec<Blob>,
    /// For the neighbours in the tree.
    pub net: NetOut,
    /// The daemon ends. Step daemons that still live are left alone.
    pub exit: bool,
    /// It ends because the controller does not accept it.
    pub refused: bool,
}

/// The node machine. Made anew in each life of the daemon.
#[derive(Debug)]
pub struct NodeMachine {
    boot: Boot,
    link: Link,
    relay: Relay,
    variables: BTreeMap<Variable, i64>,
    contents: Contents,
    beat: Beat,
    jobs: BTreeMap<JobAttempt, Job>,
    /// Attempts that the spool does not know, being swept before the node registers.
    leftovers: BTreeSet<JobAttempt>,
    /// Jobs that an earlier life took and of which nothing ran; until the controller has heard that.
    unstarted: BTreeSet<JobAttempt>,
    /// Jobs that begin when their turn comes, in the order in which they were leased.
    leases: Vec<(JobAttempt, Lease)>,
    outbox: Outbox,
    timers: BTreeSet<(Time, Timer)>,
    /// Ends found at the start; dealt with when everything found is known.
    found: Vec<(StepKey, Finish)>,
    /// The highest id of a job that was started here in this life.
    last_job: JobId,
    /// The daemon is to end when no job is left, or at this time.
    leaving: Option<Time>,
    health: Health,
}

/// What a timer is for. A timer that its object no longer has means nothing when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The step did not end in its time.
    Step(StepKey),
    /// The end of a job's script waits for the sweep, to be told together with it, no longer than this.
    Held(JobAttempt),
    /// A job out of turn runs, so that it hears a signal, no longer than this.
    Lifted(JobAttempt),
}

impl NodeMachine {
    /// A daemon's life begins. `Found…` inputs come next, then `Linked`.
    pub fn new(boot: Boot) -> Self {
        Self {
            link: Link::after(boot.session),
            relay: Relay::new(boot.above.clone()),
            variables: BTreeMap::new(),
            contents: Contents::default(),
            beat: Beat::default(),
            jobs: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            unstarted: BTreeSet::new(),
            leases: Vec::new(),
            outbox: Outbox::default(),
            timers: BTreeSet::new(),
            found: Vec::new(),
            last_job: JobId(0),
            leaving: None,
            health: Health::default(),
            boot,
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.boot.name
    }

    /// The session in force, and the number of the last put that was taken in it.
    pub fn session(&self) -> Option<(Session, u64)> {
        self.link.session()
    }

    /// How many nodes can be reached through this one.
    pub fn below(&self) -> usize {
        self.relay.below()
    }

    /// The nodes that can be reached through a child.
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

    /// A letter of a step daemon here.
    fn post(&mut self, now: Time, step: StepKey, (to, message): (NodeId, Sealed<PeerMessage>), out: &mut NodeOut) {
        let Some(sender) = self.relay.node() else { return };
        let mut local = Vec::new();
        self.relay.post(Box::new(Letter { step, sender, to, message }), &mut local);
        self.deliver_all(now, local, out);
    }

    /// Lets the relay say what there is to say.
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
            Variable::Used(key) => jobs.get(&attempt_of(*key)).map_or(-1, |job| job.measured(key.step)),
            Variable::Unheeded => jobs.values().map(Job::unheeded).sum(),
            Variable::Named(_) => variables.get(variable).copied().unwrap_or_default(),
        };
        let used = |variable: &Variable| match variable {
            Variable::Used(key) => jobs.get(&attempt_of(*key)).and_then(|job| job.used(key.step)),
            _ => None,
        };
        self.relay.settle(now, (value, used, self.health), &mut local, &mut out.net);
        self.deliver_all(now, local, out);
    }

    /// Calls for whatever time has made due.
    fn tick(&mut self, now: Time, out: &mut NodeOut) {
        while let Some(&(due, timer)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.pop_first();
            match timer {
                Timer::Step(key) => self.step_overdue(due, key, out),
                Timer::Held(job) => self.tell_held(job),
                Timer::Lifted(job) => self.lower(job, out),
            }
        }
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
        match input {
            NodeInput::FoundJob { facts } => {
                self.jobs.entry(attempt_of(facts.key)).or_insert_with(|| Job::new(&facts));
            }
            NodeInput::FoundStep { launch, state } => self.found_step(&launch, state, out),
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
            NodeInput::Used { key, usage } => self.used(key, usage),
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
        timer.into_iter().chain(self.leaving).chain(self.link_deadline()).chain(self.relay.deadline()).min()
    }
}

/// Whether it tells what earlier lives left.
fn is_found(input: &NodeInput) -> bool {
    matches!(
        input,
        NodeInput::FoundJob { .. }
            | NodeInput::FoundStep { .. }
            | NodeInput::FoundUnreadable { .. }
            | NodeInput::FoundLeftover { .. }
    )
}

/// The attempt that a step belongs to.
pub fn attempt_of(key: StepKey) -> JobAttempt {
    JobAttempt { job: key.job, attempt: key.attempt }
}
