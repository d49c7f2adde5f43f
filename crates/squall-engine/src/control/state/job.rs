//! What is known of one job, one running attempt, one step.

use std::collections::BTreeMap;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::event::Requeue;
use squall_model::gres::Grant;
use squall_model::id::{Attempt, ClientKey, StepNo};
use squall_model::job::{ArrayTask, EndState, ExitCode, JobKind, JobSpec, JobState, Outcome, Owner};
use squall_model::report::StepEnd;
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::step::{Layout, StepSpec};
use squall_model::time::{Span, Time};

/// A job of its own: not an array, but perhaps a task of one that was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// What was asked, with all updates.
    pub spec: Arc<JobSpec>,
    /// The client's key at submission; None for array tasks (the array has it).
    pub key: Option<ClientKey>,
    /// Which array task it is.
    pub task: Option<ArrayTask>,
    /// An array task whose spec was changed for itself: updates of the whole array pass it by.
    pub own_spec: bool,
    /// When it was submitted.
    pub submit: Time,
    /// What an update or a hold changed.
    pub queue: Queue,
    /// The latest attempt; 0: it never started.
    pub attempt: Attempt,
    /// How often it went back into the queue.
    pub restarts: u32,
    /// Launches in a row that failed by a node's fault.
    pub launch_failures: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// How the attempt before this one ended: of a job that waits again.
    pub last: Option<Outcome>,
}

/// What decides a pending job's place in the queue, apart from its spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Queue {
    /// Held, and by whom.
    #[n(0)]
    pub hold: Hold,
    /// Priority set by the user or operator, or None: the default.
    #[n(1)]
    pub priority: Option<u32>,
    /// Time limit set by an update; Some(None): unlimited.
    #[n(2)]
    #[cbor(with = "squall_model::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// Does not start before this time (after a requeue).
    #[n(3)]
    pub not_before: Option<Time>,
    /// When it was released first.
    #[n(4)]
    pub released: Option<Time>,
}

/// Whether a pending job is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Hold {
    /// It may start.
    #[default]
    #[n(0)]
    No,
    /// By its user: the user may release it.
    #[n(1)]
    User,
    /// By the operator: only an operator may release it.
    #[n(2)]
    Admin,
    /// By a requeue that asked for it, or after too many failed launches: the user may release it.
    #[n(3)]
    Requeue,
}

/// Where a job is in its life. Running and completing jobs hold resources, leased ones those of their line, others never.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Phase {
    /// Waits in the queue.
    #[n(0)]
    Pending,
    /// Holds its allocation; its end is not decided.
    #[n(1)]
    Running(#[n(0)] Box<Run>),
    /// Its end is decided; some of its nodes have not released it.
    #[n(2)]
    Completing(#[n(0)] Box<Run>, #[n(1)] Box<Ending>),
    /// Nothing is left of it.
    #[n(3)]
    Ended(#[n(0)] Box<Ended>),
    /// A node has it in hand and starts it by itself, in the place of those that are before it in its line.
    #[n(4)]
    Leased(#[n(0)] Box<Run>),
}

/// An attempt that holds resources.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Run {
    /// When it started.
    #[n(0)]
    pub start: Time,
    /// Name of the partition in which it runs.
    #[n(1)]
    pub partition: String,
    /// What it holds, or held at its start.
    #[n(2)]
    pub alloc: Alloc,
    /// Nodes that have not released it yet.
    #[n(3)]
    pub left: NodeSet,
    /// Since when it is suspended.
    #[n(4)]
    pub suspended: Option<Time>,
    /// How long it was suspended before.
    #[n(5)]
    pub suspended_total: Span,
    /// Its steps, ended ones too; without the script when the job has ended. Boxed: a leaf of the tree has room for
    /// eleven, and most jobs have one.
    #[n(6)]
    pub steps: BTreeMap<StepNo, Box<Step>>,
    /// The number of its next step.
    #[n(7)]
    pub next_step: u32,
    /// Generic resources that it holds, or held at last.
    #[n(8)]
    #[cbor(default)]
    pub gres: Vec<Grant>,
    /// When it ends after it was told to make room for other jobs; None: it was not told so.
    #[n(9)]
    pub grace: Option<Time>,
    /// What it gave back on nodes that have not released it yet.
    #[n(10)]
    #[cbor(default)]
    pub leaving: Alloc,
}

/// A decision to end an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ending {
    /// How it ends.
    #[n(0)]
    pub outcome: Outcome,
    /// Goes back into the queue when the last node has released it.
    #[n(1)]
    pub requeue: Option<Requeue>,
    /// When that was decided: the job's end time.
    #[n(2)]
    pub time: Time,
}

/// A job of which nothing is left but what is shown of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ended {
    /// How it ended.
    #[n(0)]
    pub outcome: Outcome,
    /// When.
    #[n(1)]
    pub time: Time,
    /// Its last attempt, if it ever started.
    #[n(2)]
    pub run: Option<Box<Run>>,
}

/// A step of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Step {
    /// The client's key.
    #[n(0)]
    pub key: ClientKey,
    /// What was asked.
    #[n(1)]
    #[cbor(with = "squall_model::encoding::arc")]
    pub spec: Arc<StepSpec>,
    /// What it holds of the job's resources.
    #[n(2)]
    pub alloc: Alloc,
    /// Where its tasks run.
    #[n(3)]
    pub layout: Layout,
    /// When it was created.
    #[n(4)]
    pub start: Time,
    /// Nodes whose share has not ended.
    #[n(5)]
    pub left: NodeSet,
    /// What the nodes that have ended said, merged; None: none has.
    #[n(6)]
    pub tally: Option<StepEnd>,
    /// When and how it ended; None: it runs.
    #[n(7)]
    pub ended: Option<(Time, Outcome)>,
    /// Generic resources that it holds of the job's; None: it shares all of them with other steps.
    #[n(8)]
    pub gres: Option<Vec<Grant>>,
}

impl Job {
    /// The state that users see.
    pub fn state(&self) -> JobState {
        match &self.phase {
            Phase::Pending | Phase::Leased(_) => JobState::Pending,
            Phase::Running(run) if run.suspended.is_some() => JobState::Suspended,
            Phase::Running(_) => JobState::Running,
            Phase::Completing(_, ending) => JobState::Completing(ending.outcome.state),
            Phase::Ended(ended) => JobState::Ended(ended.outcome.state),
        }
    }
    /// The attempt that holds resources: running, completing, or leased.
    pub fn run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Running(run) | Phase::Completing(run, _) | Phase::Leased(run) => Some(run),
            Phase::Pending | Phase::Ended(_) => None,
        }
    }
    /// The attempt that holds resources, or the last one of an ended job, to be changed.
    pub(in crate::control::state) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Running(run) | Phase::Completing(run, _) | Phase::Leased(run) => Some(run),
            Phase::Ended(ended) => ended.run.as_deref_mut(),
            Phase::Pending => None,
        }
    }
    /// The last attempt that began, also of an ended job.
    pub fn last_run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Ended(ended) => ended.run.as_deref(),
            _ => self.run().filter(|_| !self.has_not_begun()),
        }
    }
    /// Whether it waits in the queue.
    pub fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Pending)
    }
    /// Whether a node has it in hand.
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.phase, Phase::Leased(_))
    }
    /// Whether it was leased and nobody has seen it begin, even if its end is decided.
    pub(crate) fn has_not_begun(&self) -> bool {
        let batch = self.spec.kind == JobKind::Batch;
        matches!(&self.phase, Phase::Leased(run) | Phase::Completing(run, _) if batch && run.steps.is_empty())
    }
    /// Whether it runs and its end is not decided (suspended or not).
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }
    /// Whether nothing is left of it.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
    /// How it ends or has ended, as far as decided.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Completing(_, ending) => Some(&ending.outcome),
            Phase::Ended(ended) => Some(&ended.outcome),
            Phase::Pending | Phase::Leased(_) | Phase::Running(_) => None,
        }
    }
    /// Who ended what still ran when the job's end was decided: who cancelled it, else its owner.
    pub fn ended_by(&self) -> Option<u32> {
        let Phase::Completing(_, ending) = &self.phase else { return None };
        Some(if let EndState::Cancelled { by } = ending.outcome.state { by } else { self.owner.uid })
    }
    /// Whether its dependencies are its own, not its array's.
    pub(crate) fn has_own_wants(&self) -> bool {
        self.task.is_none() || self.own_spec
    }
    /// When it ended.
    pub fn end_time(&self) -> Option<Time> {
        if let Phase::Ended(ended) = &self.phase { Some(ended.time) } else { None }
    }
    /// The time limit in force in seconds, as far as user or operator set one (else the partition's default).
    pub fn time_limit_s(&self) -> Option<Option<u64>> {
        self.queue.time_limit_s.or(self.spec.limit_s())
    }
}

impl Run {
    /// Where the batch script runs: the first node.
    pub(crate) fn batch_node(&self) -> Option<squall_model::id::NodeId> {
        self.alloc.nodes().first()
    }
    /// The job has ended: nobody asks for its script any more, as an `srun` may for its own step, and it takes more room
    /// than the rest of the attempt.
    pub(crate) fn forget_script(&mut self) {
        let script = self.steps.remove(&StepNo::BATCH);
        if script.is_some() && self.steps.is_empty() {
            // An emptied tree keeps a leaf.
            self.steps = BTreeMap::new();
        }
    }
    /// Highest exit code of its srun steps.
    pub fn derived_exit(&self) -> ExitCode {
        let steps = self.steps.iter().filter(|(no, _)| **no != StepNo::BATCH);
        steps.filter_map(|(_, s)| s.tally.as_ref()).map(|end| end.exit).max().unwrap_or_default()
    }
    /// How long it ran without suspensions until `now`.
    pub fn elapsed(&self, now: Time) -> Span {
        let standing = self.suspended.map_or(0, |since| now.since(since).0);
        Span(now.since(self.start).0.saturating_sub(self.suspended_total.0 + standing))
    }
}
