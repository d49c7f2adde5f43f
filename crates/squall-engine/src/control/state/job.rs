//! Records of a job, of a run (attempt) of it, and of a step.

use std::collections::BTreeMap;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::billing::Billing;
use squall_model::checkpoint::{Checkpoints, Restore};
use squall_model::event::Requeue;
use squall_model::gres::Grant;
use squall_model::id::{Attempt, ClientKey, NodeId, StepNo};
use squall_model::job::{ArrayTask, EndState, ExitCode, JobKind, JobSpec, JobState, Outcome, Owner};
use squall_model::places::{Places, Vacancy};
use squall_model::report::StepEnd;
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::step::{Layout, StepSpec};
use squall_model::time::{Span, Time};

/// A job with a record of its own: a single job, or an array task to which something has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The user who submitted the job.
    pub owner: Arc<Owner>,
    /// The specification of the job, with all updates.
    pub spec: Arc<JobSpec>,
    /// Key that the client chose for the submission, so that a repeated one is recognized; None for array tasks, as the
    /// array has it.
    pub key: Option<ClientKey>,
    /// Array and index, if this is an array task.
    pub task: Option<ArrayTask>,
    /// Whether the spec of this array task was changed for the task alone; updates of the whole array then skip the
    /// task.
    pub own_spec: bool,
    /// When the job was submitted.
    pub submit: Time,
    /// Hold, priority and other settings that can change after the submission.
    pub queue: Queue,
    /// Number of the latest attempt; 0: the job never started.
    pub attempt: Attempt,
    /// How often the job was requeued.
    pub restarts: u32,
    /// Number of launches in a row that failed by a node's fault.
    pub launch_failures: u32,
    /// The job's phase, from pending to ended.
    pub phase: Phase,
    /// Outcome of the attempt before, if the job was requeued.
    pub last: Option<Outcome>,
    /// Checkpoints of the job. None: it never had one.
    pub checkpoints: Option<Box<Checkpoints>>,
}

/// What decides a pending job's position in the queue, apart from the job's spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Queue {
    /// Whether the job is held, and who may release it.
    #[n(0)]
    pub hold: Hold,
    /// Priority set by its user or an operator; None: none was set.
    #[n(1)]
    pub priority: Option<u32>,
    /// Time limit set by an update, seconds; Some(None): unlimited; None: no update has set one.
    #[n(2)]
    #[cbor(with = "squall_model::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// Time before which the job does not start, set by a requeue; None: there is no such time.
    #[n(3)]
    pub not_before: Option<Time>,
    /// When the job was first released from a hold; None: it never was.
    #[n(4)]
    pub released: Option<Time>,
    /// When the job's dependency was first met while the job was not held; None: it has none, or it is not met.
    #[n(5)]
    pub independent: Option<Time>,
    /// Some(true): the job goes before all others, as it was requeued after a failure of a node (`--requeue=expedite`).
    #[n(6)]
    pub expedite: Option<bool>,
}

/// Whether a pending job is held, and who may release it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Hold {
    /// Not held: the job may start.
    #[default]
    #[n(0)]
    No,
    /// Held by its user, who may release it.
    #[n(1)]
    User,
    /// Held by an operator; only an operator may release it.
    #[n(2)]
    Admin,
    /// Held by a requeue that asked for it (`scontrol requeuehold`); the user may release it.
    #[n(3)]
    Requeue,
    /// As `Requeue`, with `State=SpecialExit`: users see the state SPECIAL_EXIT.
    #[n(4)]
    Special,
}

/// The phase of a job. Running and completing jobs hold resources, and leased jobs share those of their line.
/// Pending and ended jobs hold none.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Phase {
    /// The job waits in the queue.
    #[n(0)]
    Pending,
    /// The job holds its allocation, and its end is not decided.
    #[n(1)]
    Running(#[n(0)] Box<Run>),
    /// The job's end is decided, and some of its nodes have not released it.
    #[n(2)]
    Completing(#[n(0)] Box<Run>, #[n(1)] Box<Ending>),
    /// The job has ended and holds nothing.
    #[n(3)]
    Ended(#[n(0)] Box<Ended>),
    /// A node has prefetched the job. The node starts it by itself, on the cores of the jobs before it in its slot
    /// queue.
    #[n(4)]
    Leased(#[n(0)] Box<Run>),
}

/// A run (attempt) of a job, which holds resources.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Run {
    /// When the attempt started.
    #[n(0)]
    pub start: Time,
    /// Name of the partition in which the attempt runs.
    #[n(1)]
    pub partition: String,
    /// Resources that the attempt holds, or held at its start.
    #[n(2)]
    pub alloc: Alloc,
    /// Nodes that have not released the attempt yet.
    #[n(3)]
    pub left: NodeSet,
    /// Since when the job is suspended; None: it is not suspended.
    #[n(4)]
    pub suspended: Option<Time>,
    /// Total time that the job stood still: earlier suspensions and, in gang scheduling, other jobs' time slices.
    #[n(5)]
    pub suspended_total: Span,
    /// Steps of the attempt, ended ones included. The record of an ended job has them without the batch script. Boxed,
    /// because a leaf of the tree has room for eleven steps and most jobs have one.
    #[n(6)]
    pub steps: BTreeMap<StepNo, Box<Step>>,
    /// Number that the next step gets.
    #[n(7)]
    pub next_step: u32,
    /// Generic resources that the attempt holds, or held last.
    #[n(8)]
    #[cbor(default)]
    pub gres: Vec<Grant>,
    /// When the grace time of a preempted job ends; None: it was not preempted.
    #[n(9)]
    pub grace: Option<Time>,
    /// Resources that the job gave back on nodes that have not released them yet.
    #[n(10)]
    #[cbor(default)]
    pub leaving: Alloc,
    /// Some: the controller's prolog of the attempt (`PrologSlurmctld`) has not ended, so nodes don't know the attempt.
    /// The numbers before 16 are left out.
    #[n(16)]
    pub configuring: Option<bool>,
    /// Some: nodes of the attempt are being powered up or rebooted, so no node knows the attempt. The numbers before 24
    /// are left out.
    #[n(24)]
    pub booting: Option<bool>,
    /// Spare nodes, and places of failed nodes. None: the job has neither. The number 25 is left out.
    #[n(26)]
    pub places: Option<Box<Places>>,
    /// When the job said something of its progress last, and what. None: it said nothing.
    #[n(27)]
    pub progress: Option<(Time, String)>,
    /// The checkpoint from which the attempt goes on. None: it began from the start.
    #[n(28)]
    pub restore: Option<Restore>,
    /// What the attempt is billed, by the weights of its partition when it got its resources. None: its CPUs.
    #[n(29)]
    pub billing: Option<Billing>,
}

/// The decision to end an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ending {
    /// The outcome that was decided.
    #[n(0)]
    pub outcome: Outcome,
    /// How the job returns to the queue when the last node has released it; None: the job ends.
    #[n(1)]
    pub requeue: Option<Requeue>,
    /// When the end was decided, which is the job's end time.
    #[n(2)]
    pub time: Time,
}

/// The end of a job. Only what users can see of the job is kept.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ended {
    /// How the job ended.
    #[n(0)]
    pub outcome: Outcome,
    /// When the job ended.
    #[n(1)]
    pub time: Time,
    /// The last attempt; None: the job never started.
    #[n(2)]
    pub run: Option<Box<Run>>,
}

/// A step of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Step {
    /// Key that the client chose for the step, so that a repeated request is recognized.
    #[n(0)]
    pub key: ClientKey,
    /// The specification of the step.
    #[n(1)]
    #[cbor(with = "squall_model::encoding::arc")]
    pub spec: Arc<StepSpec>,
    /// The part of the job's cores and memory that the step holds; empty if it shares them (`--overlap`).
    #[n(2)]
    pub alloc: Alloc,
    /// Which tasks run on which node.
    #[n(3)]
    pub layout: Layout,
    /// When the step was created.
    #[n(4)]
    pub start: Time,
    /// Nodes on which the step has not ended.
    #[n(5)]
    pub left: NodeSet,
    /// Merged reports of the nodes on which the step has ended; None: no node has reported yet.
    #[n(6)]
    pub tally: Option<StepEnd>,
    /// When and how the step ended; None: it has not ended.
    #[n(7)]
    pub ended: Option<(Time, Outcome)>,
    /// Those of the job's generic resources that the step holds; None: it shares all of them with other steps.
    #[n(8)]
    pub gres: Option<Vec<Grant>>,
}

impl Job {
    /// Returns the job's state as users see it.
    pub fn state(&self) -> JobState {
        match &self.phase {
            Phase::Pending | Phase::Leased(_) => JobState::Pending,
            Phase::Running(run) if run.suspended.is_some() => JobState::Suspended,
            Phase::Running(_) => JobState::Running,
            Phase::Completing(_, ending) => JobState::Completing(ending.outcome.state),
            Phase::Ended(ended) => JobState::Ended(ended.outcome.state),
        }
    }
    /// Returns the job's state as users see it: a running job that no node knows yet is configuring.
    pub(crate) fn shown_state(&self) -> JobState {
        match &self.phase {
            Phase::Running(run) if run.configures() => JobState::Configuring,
            _ => self.state(),
        }
    }
    /// Returns the attempt of a running, completing or leased job, which holds resources; otherwise None.
    pub fn run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Running(run) | Phase::Completing(run, _) | Phase::Leased(run) => Some(run),
            Phase::Pending | Phase::Ended(_) => None,
        }
    }
    /// Returns the attempt of a running, completing or leased job, or the last one of an ended job, to be changed.
    /// None: there is none.
    pub(in crate::control::state) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Running(run) | Phase::Completing(run, _) | Phase::Leased(run) => Some(run),
            Phase::Ended(ended) => ended.run.as_deref_mut(),
            Phase::Pending => None,
        }
    }
    /// Returns the last attempt that began, also of an ended job. None: there is none.
    pub fn last_run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Ended(ended) => ended.run.as_deref(),
            _ => self.run().filter(|_| !self.has_not_begun()),
        }
    }
    /// Returns whether the job's nodes are rebooted before it starts.
    pub(crate) fn reboots(&self) -> bool {
        self.spec.options.reboots()
    }
    /// Returns whether the job waits in the queue.
    pub fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Pending)
    }
    /// Returns whether a node has the job prefetched (leased).
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.phase, Phase::Leased(_))
    }
    /// Returns whether the job was leased to a node that has not reported its begin. True also if the job's end is
    /// decided meanwhile.
    pub(crate) fn has_not_begun(&self) -> bool {
        let batch = self.spec.kind == JobKind::Batch;
        matches!(&self.phase, Phase::Leased(run) | Phase::Completing(run, _) if batch && run.steps.is_empty())
    }
    /// Returns whether the job runs and its end is not decided; a suspended job counts.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }
    /// Returns whether the job has ended and no node holds it any more.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
    /// Returns how often the job was requeued. A requeue counts as soon as it is decided.
    pub(crate) fn shown_restarts(&self) -> u32 {
        let again = matches!(&self.phase, Phase::Completing(_, ending) if ending.requeue.is_some());
        self.restarts + u32::from(again)
    }
    /// Returns the job's outcome, as soon as it is decided; before that None.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Completing(_, ending) => Some(&ending.outcome),
            Phase::Ended(ended) => Some(&ended.outcome),
            Phase::Pending | Phase::Leased(_) | Phase::Running(_) => None,
        }
    }
    /// Returns the uid of the user who cancelled a completing job. None: it is not completing, or no user cancelled it.
    pub fn cancelled_by(&self) -> Option<u32> {
        let Phase::Completing(_, ending) = &self.phase else { return None };
        if let EndState::Cancelled { by } = ending.outcome.state { Some(by) } else { None }
    }
    /// Returns whether the job has dependencies of its own, and not those of its array.
    pub(crate) fn has_own_wants(&self) -> bool {
        self.task.is_none() || self.own_spec
    }
    /// Returns when the job ended; None: it has not ended.
    pub fn end_time(&self) -> Option<Time> {
        if let Phase::Ended(ended) = &self.phase { Some(ended.time) } else { None }
    }
    /// Returns the time limit that an update or the spec set, seconds; Some(None): unlimited; None: none was set, and
    /// the partition's default applies.
    pub fn time_limit_s(&self) -> Option<Option<u64>> {
        self.queue.time_limit_s.or(self.spec.limit_s())
    }
}

impl Run {
    /// Returns whether the attempt is not ready: no node knows it.
    pub(crate) fn configures(&self) -> bool {
        self.configuring.is_some() || self.booting.is_some()
    }
    /// Returns the node on which the job's batch script runs, which is the first one.
    pub(crate) fn batch_node(&self) -> Option<NodeId> {
        match &self.places {
            None => self.alloc.nodes().first(),
            Some(places) => places.in_order(&self.alloc.nodes()).first().copied(),
        }
    }
    /// Returns the nodes on which the job's steps run, in the order of their places: all but its spares.
    pub(crate) fn working_nodes(&self) -> Vec<NodeId> {
        match &self.places {
            None => self.alloc.nodes().iter().collect(),
            Some(places) => places.in_order(&self.alloc.nodes()),
        }
    }
    /// Returns the place of a node: the node's own, or that of the one that it replaced.
    pub(crate) fn place_of(&self, node: NodeId) -> NodeId {
        self.places.as_ref().map_or(node, |places| places.place_of(node))
    }
    /// Returns the nodes that idle until they replace a failed one; mostly none.
    pub(crate) fn spares(&self) -> Option<&NodeSet> {
        self.places.as_ref().map(|places| &places.spares).filter(|spares| !spares.is_empty())
    }
    /// Returns the places of failed nodes that wait for a node; mostly none.
    pub(crate) fn vacant(&self) -> &[Vacancy] {
        self.places.as_ref().map_or(&[], |places| &places.vacant)
    }
    /// Drops the batch script's step of an ended job. No request needs it any more, and it takes more memory than the
    /// rest of the attempt.
    pub(crate) fn forget_script(&mut self) {
        let script = self.steps.remove(&StepNo::BATCH);
        if script.is_some() && self.steps.is_empty() {
            // An emptied tree keeps a leaf, so it is replaced.
            self.steps = BTreeMap::new();
        }
    }
    /// Returns the highest exit code of the attempt's `srun` steps.
    pub fn derived_exit(&self) -> ExitCode {
        let steps = self.steps.iter().filter(|(no, _)| **no != StepNo::BATCH);
        steps.filter_map(|(_, s)| s.tally.as_ref()).map(|end| end.exit).max().unwrap_or_default()
    }
    /// Returns for how long the job has run at `now` in this attempt and, up to its checkpoint, in those before.
    pub(crate) fn ran(&self, now: Time) -> Span {
        Span(self.elapsed(now).0 + self.restore.map_or(0, |restore| restore.ran.0))
    }
    /// Returns how long the attempt has run at `now`, without suspensions.
    pub fn elapsed(&self, now: Time) -> Span {
        let standing = self.suspended.map_or(0, |since| now.since(since).0);
        Span(now.since(self.start).0.saturating_sub(self.suspended_total.0 + standing))
    }
}
