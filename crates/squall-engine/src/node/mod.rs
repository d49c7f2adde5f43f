//! The node: what a node daemon decides.
//!
//! What the world remembers for it, through a kill -9 of the daemon (not through a power loss, which makes a
//! new incarnation): the folder of each step (its launch and, at its end, its result), the mark of each job
//! without one, the life counter, and the last session. From these it makes the [`Boot`] and the `Found…` inputs of
//! the next life. Step daemons and their tasks live on while the node daemon is away.
//!
//! Reports are numbered `life << 32 | n`, so no number is ever used twice within an incarnation although
//! unacknowledged reports are made anew after a restart. The controller takes any number above the last it took
//! (there are gaps between lives) and finds a report of something that it has already recorded harmless. Every
//! `Reports` frame begins with the oldest report that is not acknowledged, so a lost frame never makes a hole.
//!
//! A launch that failed leaves no trace in the spool. So the controller starts again what it believes running and the
//! registration does not list: a job, or a batch script whose step is missing although its job is listed. Starting
//! what is known here is always harmless. A job whose `JobGone` was reported is not listed any more even if that is
//! not acknowledged: the controller may have recorded it already.
//!
//! After a minute without any frame from the controller the node registers anew, which makes up for frames lost on
//! the way; a controller that answers each heartbeat by an empty frame is never silent.

mod link;
mod reports;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{Incarnation, NodeId, Session, StepKey};
use squall_model::job::JobAttempt;
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::Time;
use squall_model::wire::node::{DownFrame, UpFrame};
use squall_model::wire::stepd::ToStepd;

use crate::machine::Machine;
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

/// How the node feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Load average over one minute, in hundredths.
    pub load_centi: u32,
    /// Free memory, MiB.
    pub free_mb: u64,
}

/// What the node machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeInput {
    /// A job that an earlier life opened ([`NodeAct::OpenJob`]) and that was not forgotten. All `Found…` inputs
    /// come before the first `Linked`, in any order; jobs that only steps tell of need no `FoundJob`.
    FoundJob {
        /// As it was opened.
        facts: Box<JobFacts>,
    },
    /// A step that an earlier life was told to spawn and that was not forgotten.
    FoundStep {
        /// As it was spawned.
        launch: Box<StepLaunch>,
        /// What has become of it.
        state: FoundStep,
    },
    /// A new connection to the controller stands. Frames of an older connection do not arrive after it.
    Linked,
    /// The connection broke. Not given after the machine itself asked for `drop_link`.
    Unlinked,
    /// A frame came from the controller. Its blobs are the world's business: the `Spawn`s that a frame leads to
    /// are among the acts of the same step.
    Frame(Box<DownFrame>),
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
}

/// What the node machine wants done. Carried out in order, before the `sends` of the same step leave. None of them
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
        facts: Box<JobFacts>,
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
}

/// What one step of the machine wants done: acts, then sends, then `drop_link`, then `exit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOut {
    /// Frames for the controller, on the current link. Empty while there is none.
    pub sends: Vec<UpFrame>,
    /// Acts, in order.
    pub acts: Vec<NodeAct>,
    /// Close the link (after the sends) and connect anew.
    pub drop_link: bool,
    /// The daemon ends. Step daemons that still live are left alone.
    pub exit: bool,
}

/// The node machine. Made anew in each life of the daemon.
#[derive(Debug)]
pub struct NodeMachine {
    boot: Boot,
    /// Its id, once a controller has welcomed it.
    id: Option<NodeId>,
    link: Link,
    jobs: BTreeMap<JobAttempt, Job>,
    outbox: Outbox,
    timers: BTreeSet<(Time, Timer)>,
    /// Ends found at the start; dealt with when everything found is known.
    found: Vec<(StepKey, Finish)>,
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
}

impl NodeMachine {
    /// A daemon's life begins. `Found…` inputs come next, then `Linked`.
    pub fn new(boot: Boot) -> Self {
        Self {
            link: Link::after(boot.session),
            jobs: BTreeMap::new(),
            outbox: Outbox::of_life(boot.life),
            timers: BTreeSet::new(),
            found: Vec::new(),
            leaving: None,
            health: Health::default(),
            id: None,
            boot,
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.boot.name
    }

    /// Calls for whatever time has made due.
    fn tick(&mut self, now: Time, out: &mut NodeOut) {
        while let Some(&(due, timer)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.pop_first();
            match timer {
                Timer::Step(key) => self.step_overdue(due, key, out),
                Timer::Held(job) => self.tell_held(job),
            }
        }
        self.link_tick(now, out);
        if self.leaving.is_some_and(|until| until <= now) {
            out.exit = true;
        }
    }
}

impl Machine for NodeMachine {
    type Input = NodeInput;
    type Out = NodeOut;

    fn step(&mut self, now: Time, input: NodeInput, out: &mut NodeOut) {
        if !matches!(input, NodeInput::FoundJob { .. } | NodeInput::FoundStep { .. }) {
            for (key, finish) in std::mem::take(&mut self.found) {
                self.finished(now, key, finish, out);
            }
        }
        match input {
            NodeInput::FoundJob { facts } => {
                self.jobs.entry(attempt_of(facts.key)).or_insert_with(|| Job::new(&facts));
            }
            NodeInput::FoundStep { launch, state } => self.found_step(&launch, state, out),
            NodeInput::Linked => self.linked(now, out),
            NodeInput::Unlinked => self.link.lose(),
            NodeInput::Frame(frame) => self.frame(now, *frame, out),
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
        }
        self.send_reports(now, out);
        if self.leaving.is_some() && self.jobs.values().all(Job::is_gone) {
            out.exit = true;
        }
    }

    fn deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.leaving).chain(self.link_deadline()).min()
    }
}

/// The attempt that a step belongs to.
pub fn attempt_of(key: StepKey) -> JobAttempt {
    JobAttempt { job: key.job, attempt: key.attempt }
}
