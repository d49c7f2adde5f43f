//! Checkpoints of jobs on this node.
//!
//! A job that is to leave the node stays frozen after its checkpoint until the controller ends it. Without a word in
//! time it goes on: the checkpoint is complete all the same, and the report says that the job runs. A daemon that
//! starts finds no frozen job, because its host has thawed them all before.
//!
//! A job of several nodes stays frozen after each checkpoint until the controller knows that all of them have made theirs,
//! and that these fit together. Restored parts of a job wait for each other in the same way.

use squall_model::checkpoint::{CheckpointNote, CheckpointOrder, CheckpointVerb, Made};
use squall_model::id::{JobId, StepNo};
use squall_model::job::JobAttempt;
use squall_model::limits::{CHECKPOINT_FROZEN_S, CHECKPOINT_S};
use squall_model::time::{Span, Time};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::EndReason;

use crate::node::{NodeAct, NodeMachine, NodeOut, Timer};

/// Action on the checkpoints of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointAct {
    /// Freezes the job's processes, dumps them to disk and makes that durable; `Able`: only finds out whether it can.
    /// [`crate::node::NodeInput::Checkpointed`] reports the end. The processes stay frozen if they are to leave the
    /// node, and otherwise are thawed as soon as they are dumped.
    Make(Box<CheckpointOrder>),
    /// Gives up a checkpoint that is being made, and thaws the job. If that kills the dump,
    /// [`crate::node::NodeInput::Damaged`] follows.
    Stop {
        /// The job.
        job: JobAttempt,
    },
    /// Thaws a job that was to leave the node.
    Thaw {
        /// The job.
        job: JobAttempt,
    },
    /// Has a restored part of a job go on, after [`crate::node::NodeInput::Restored`].
    Go {
        /// The job.
        job: JobAttempt,
    },
    /// Removes all checkpoints of a job.
    Forget {
        /// The job.
        job: JobId,
    },
}

/// A checkpoint of a job that is being made, or after which the job stays frozen.
#[derive(Debug)]
pub(super) struct UnderWay {
    order: CheckpointOrder,
    /// What was made, while the job stays frozen. None: it is being made.
    frozen: Option<Made>,
    /// Time at which it is given up, or the job thawed.
    until: Time,
}

impl NodeMachine {
    /// Begins a checkpoint. An order that came before changes nothing.
    pub(super) fn checkpoint(&mut self, now: Time, order: CheckpointOrder, out: &mut NodeOut) {
        let attempt = order.job;
        if order.verb == CheckpointVerb::Go {
            return self.go(attempt, order.number, out);
        }
        // because the job may have ended here
        let Some(job) = self.jobs.get_mut(&attempt) else { return };
        let alone = job.is_alone();
        match &mut job.checkpoint {
            // What is being made serves a later order as well.
            Some(one) if one.order.given >= order.given || one.frozen.is_none() => {
                one.order.given = one.order.given.max(order.given);
                return;
            }
            // because it leaves the node
            Some(_) if alone => return,
            // It stands still, as its part did not fit together with the others.
            again => {
                if let Some(one) = again.take() {
                    self.timers.remove(&(one.until, Timer::Checkpoint(attempt)));
                }
            }
        }
        // A part that was made for an earlier order counts for nothing; but a checkpoint that is whole may count any time.
        if self.outbox.has_checkpoint(attempt, order.number, (!alone).then_some(order.given)) {
            return;
        }
        if let Some(obstacle) = job.obstacle() {
            return self.tell_checkpoint(&order, (None, Some(obstacle.to_owned())));
        }
        let until = now + Span::from_secs(CHECKPOINT_S);
        self.timers.insert((until, Timer::Checkpoint(attempt)));
        out.acts.push(NodeAct::Checkpoint(CheckpointAct::Make(Box::new(order.clone()))));
        job.checkpoint = Some(Box::new(UnderWay { order, frozen: None, until }));
    }

    /// Handles the end of a checkpoint.
    pub(super) fn checkpointed(
        &mut self,
        now: Time,
        (attempt, number): (JobAttempt, u64),
        result: Result<Option<Made>, String>,
    ) {
        let job = self.jobs.get_mut(&attempt);
        let known = job.and_then(|job| job.checkpoint.take_if(|one| one.order.number == number));
        // because the job may have ended meanwhile
        let Some(mut under_way) = known else { return };
        self.timers.remove(&(under_way.until, Timer::Checkpoint(attempt)));
        let (made, error) = match result {
            Ok(made) => (made, None),
            Err(error) => (None, Some(error)),
        };
        self.tell_checkpoint(&under_way.order, (made, error));
        if let Some(job) = self.jobs.get_mut(&attempt)
            && (under_way.order.verb.vacates() || !job.is_alone())
            && made.is_some()
        {
            // Other nodes may have more to write.
            under_way.until = now + Span::from_secs(if job.is_alone() { CHECKPOINT_FROZEN_S } else { CHECKPOINT_S });
            under_way.frozen = made;
            self.timers.insert((under_way.until, Timer::Checkpoint(attempt)));
            job.checkpoint = Some(under_way);
        }
    }

    fn tell_checkpoint(&mut self, order: &CheckpointOrder, (made, error): (Option<Made>, Option<String>)) {
        let CheckpointOrder { job, number, verb, given, .. } = *order;
        let note = CheckpointNote { job, number, verb, made, error, damaged: false, given };
        self.outbox.note(NodeNote::Checkpoint(Box::new(note)));
    }

    /// Has a job of several nodes go on: after a checkpoint, or after its restore.
    fn go(&mut self, attempt: JobAttempt, number: u64, out: &mut NodeOut) {
        // because the job may have ended here
        let Some(job) = self.jobs.get_mut(&attempt) else { return };
        if let Some(one) = job.checkpoint.take_if(|one| one.frozen.is_some() && one.order.number == number) {
            self.timers.remove(&(one.until, Timer::Checkpoint(attempt)));
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Thaw { job: attempt }));
        } else if job.restored == Some(number) {
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Go { job: attempt }));
        }
    }

    /// Notes that this node's part of a job is restored, and waits for the others.
    pub(super) fn restored(&mut self, attempt: JobAttempt, number: u64) {
        // because the job may have ended here
        let Some(job) = self.jobs.get_mut(&attempt).filter(|job| job.is_open()) else { return };
        job.restored = Some(number);
        self.tell_restored(attempt, number);
    }

    fn tell_restored(&mut self, job: JobAttempt, number: u64) {
        let (kept, verb) = (Vec::new(), CheckpointVerb::Go);
        self.tell_checkpoint(&CheckpointOrder { job, number, verb, kept, given: Time(0) }, (None, None));
    }

    /// Tells a controller, which may be another one than before, which parts of jobs wait for its word here.
    pub(super) fn tell_parts(&mut self) {
        let open = || self.jobs.iter().filter(|(_, job)| job.is_open());
        let restored: Vec<_> = open().filter_map(|(attempt, job)| Some((*attempt, job.restored?))).collect();
        let frozen = open().filter(|(_, job)| !job.is_alone()).filter_map(|(_, job)| job.checkpoint.as_deref());
        let frozen: Vec<_> = frozen.filter_map(|one| Some((one.order.clone(), one.frozen?))).collect();
        for (attempt, number) in restored {
            self.tell_restored(attempt, number);
        }
        for (order, made) in frozen {
            self.tell_checkpoint(&order, (Some(made), None));
        }
    }

    /// Ends a job at once of which a dump was killed: its processes may be damaged, and what they do counts for nothing.
    pub(super) fn damaged(&mut self, now: Time, attempt: JobAttempt, error: String, out: &mut NodeOut) {
        let job = self.jobs.get_mut(&attempt).filter(|job| !job.is_gone() && job.damage.is_none());
        // because the job may be gone, or this is known of it
        let Some(job) = job else { return };
        job.damage = Some(error.clone().into());
        // An earlier run of the daemon may have begun the dump.
        let (mut number, mut verb) = (0, CheckpointVerb::Create);
        if let Some(UnderWay { order, until, .. }) = job.checkpoint.take().map(|one| *one) {
            self.timers.remove(&(until, Timer::Checkpoint(attempt)));
            (number, verb) = (order.number, order.verb);
        }
        let (made, error, given) = (None, Some(error), Time(0));
        let note = CheckpointNote { job: attempt, number, verb, made, error, damaged: true, given };
        self.outbox.note(NodeNote::Checkpoint(Box::new(note)));
        self.end_job(now, attempt, 0, false, EndReason::Damaged, out);
    }

    /// Gives up a checkpoint that takes too long, or thaws a job about which the controller has said nothing.
    pub(super) fn checkpoint_overdue(&mut self, attempt: JobAttempt, out: &mut NodeOut) {
        let job = self.jobs.get_mut(&attempt);
        // because the job may have ended
        let Some(under_way) = job.and_then(|job| job.checkpoint.take()) else { return };
        let mut order = under_way.order;
        if under_way.frozen.is_some() {
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Thaw { job: attempt }));
            if self.jobs.get(&attempt).is_some_and(|job| !job.is_alone()) {
                let error = format!("not all nodes have made their parts within {CHECKPOINT_S} s");
                return self.tell_checkpoint(&order, (None, Some(error)));
            }
            order.verb = CheckpointVerb::Create;
            self.tell_checkpoint(&order, (under_way.frozen, None));
        } else {
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Stop { job: attempt }));
            let error = format!("the checkpoint was not made within {CHECKPOINT_S} s");
            self.tell_checkpoint(&order, (None, Some(error)));
        }
    }

    /// Ends what is under way when the job ends. `cont`: the processes are to notice it, so they are thawed.
    pub(super) fn end_checkpoint(&mut self, attempt: JobAttempt, cont: bool, out: &mut NodeOut) {
        // because hardly any job is being checkpointed
        let Some(under_way) = self.jobs.get_mut(&attempt).and_then(|job| job.checkpoint.take()) else { return };
        self.timers.remove(&(under_way.until, Timer::Checkpoint(attempt)));
        if under_way.frozen.is_none() {
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Stop { job: attempt }));
        } else if cont {
            out.acts.push(NodeAct::Checkpoint(CheckpointAct::Thaw { job: attempt }));
        }
    }
}

impl super::work::Job {
    /// Returns why the job can't be checkpointed now, as far as the node's state shows it. The controller knows of steps whose
    /// tasks do not descend from the script.
    fn obstacle(&self) -> Option<&'static str> {
        match () {
            () if !self.is_open() => Some("the job is ending"),
            () if self.lacks(StepNo::BATCH) => Some("the job's script has not begun"),
            () if self.turn.is_some() => Some("jobs that share their CPUs in turns are not checkpointed yet"),
            () => None,
        }
    }
}
