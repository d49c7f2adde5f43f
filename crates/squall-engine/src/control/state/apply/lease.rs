//! Leases: jobs that a node has prefetched into the line of a running job, and their return to the pending jobs.
//!
//! A line is the list of jobs that use the same cores of a node one after the other. It holds these cores and
//! memory from the start of its first job to the end of its last, no matter which of its jobs runs.

use std::collections::BTreeMap;

use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::resource::Alloc;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::control::state::apply::policy::Sign;
use crate::control::state::apply::run::batch_step;
use crate::control::state::job::{Phase, Run};
use crate::control::state::{LineId, State};
use crate::invariant::invariant;

impl State {
    pub(super) fn job_leased(&mut self, time: Time, id: JobId, attempt: Attempt, behind: JobId) {
        if !self.touch(id) {
            return;
        }
        let place = self.jobs.get(&behind).and_then(|job| job.run()).filter(|run| !run.left.is_empty());
        let place = place.and_then(|run| Some((LineId::of(&run.alloc)?, run.partition.clone(), run.alloc.clone())));
        // because a journal of another version may lease behind a job that has released its nodes here
        let Some((line, partition, alloc)) = place else { return };
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_pending()) else { return };
        job.attempt = attempt;
        let restore = job.restore();
        job.phase = Phase::Leased(Box::new(Run {
            start: time,
            partition,
            left: alloc.nodes(),
            alloc,
            suspended: None,
            suspended_total: Span(0),
            steps: BTreeMap::new(),
            next_step: 0,
            gres: Vec::new(),
            grace: None,
            leaving: Alloc::default(),
            configuring: None,
            booting: None,
            places: None,
            progress: None,
            restore,
            billing: None,
        }));
        if let Some(array) = job.task.and_then(|task| self.arrays.get_mut(&task.array)) {
            array.tally.waiting -= 1;
            array.tally.active += 1;
        }
        self.lines.entry(line).or_insert_with(|| vec![behind]).push(id);
        if let Some(node) = self.nodes.get_mut(line.0.index()) {
            node.jobs.insert(id);
        }
        self.index.pending -= 1;
        self.index.active += 1;
        self.count_job(id, Sign::Plus);
    }

    /// Records that a leased job runs. If its end is already decided, records that it did run.
    pub(super) fn lease_begun(&mut self, time: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.has_not_begun()) else {
            return invariant!("a lease that begins has not begun before");
        };
        let task = job.task;
        job.phase = match std::mem::replace(&mut job.phase, Phase::Pending) {
            Phase::Leased(mut run) => {
                begin(&mut run, time);
                Phase::Running(run)
            }
            Phase::Completing(mut run, ending) => {
                begin(&mut run, time);
                Phase::Completing(run, ending)
            }
            other => other,
        };
        let (works, line) = (job.is_running(), job.run().and_then(|run| LineId::of(&run.alloc)));
        if let Some(array) = task.and_then(|task| self.arrays.get_mut(&task.array)) {
            array.tally.last_start = Some(time);
        }
        if works {
            self.charge_job(time, id, true);
        }
        self.close_line(line);
    }

    pub(super) fn lease_returned(&mut self, id: JobId, attempt: Attempt) {
        // because a journal of another version may return a lease that is over here
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_leased() && job.attempt == attempt) else { return };
        let Some((nodes, alloc)) = job.run().map(|run| (run.left.clone(), run.alloc.clone())) else {
            return invariant!("a leased job has resources");
        };
        self.count_job(id, Sign::Minus);
        let Some(job) = self.jobs.get_mut(&id) else { return invariant!("counting a job leaves it where it is") };
        job.phase = Phase::Pending;
        self.index.active -= 1;
        self.index.pending += 1;
        if let Some(array) = job.task.and_then(|task| self.arrays.get_mut(&task.array)) {
            array.tally.active -= 1;
            array.tally.waiting += 1;
        }
        self.let_go(id, &nodes, &alloc);
    }

    /// Frees what a job held on nodes that have released it, unless other jobs are in the same line.
    pub(super) fn let_go(&mut self, id: JobId, nodes: &NodeSet, alloc: &Alloc) {
        let freed = !self.leave_line(id, alloc);
        for node_id in nodes.iter() {
            // because the allocation lacks nodes that a job gave back before, and which release it now
            let (Some(node), Some(group)) = (self.nodes.get_mut(node_id.index()), alloc.on(node_id)) else { continue };
            node.jobs.remove(&id);
            if freed {
                node.cores.subtract(&group.cores);
                node.memory_mb -= group.memory_mb;
            }
        }
    }

    /// Removes a job from its line. Returns true if other jobs are left in the queue.
    fn leave_line(&mut self, id: JobId, alloc: &Alloc) -> bool {
        let Some(line) = LineId::of(alloc).filter(|_| !self.lines.is_empty()) else { return false };
        let Some(members) = self.lines.get_mut(&line) else { return false };
        let Some(at) = members.iter().position(|member| *member == id) else { return false };
        members.remove(at);
        let others = !members.is_empty();
        self.close_line(Some(line));
        others
    }

    /// Removes a line in which no job waits and at most one has begun.
    fn close_line(&mut self, line: Option<LineId>) {
        // because most jobs stand in no line
        let Some((line, members)) = line.and_then(|line| Some((line, self.lines.get(&line)?))) else { return };
        let waits = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.has_not_begun());
        if members.len() < 2 && !members.iter().any(waits) {
            self.lines.remove(&line);
        }
    }

    /// Returns the leased job at the head of a line. None: the job at the head has begun, or there is no such
    /// queue.
    pub(crate) fn next_in_line(&self, line: LineId) -> Option<JobId> {
        let first = *self.lines.get(&line)?.first()?;
        self.jobs.get(&first).filter(|job| job.is_leased()).map(|_| first)
    }

    /// Returns whether a job with these resources stands behind another job in a line.
    pub(crate) fn is_behind(&self, id: JobId, alloc: &Alloc) -> bool {
        let Some(line) = LineId::of(alloc).filter(|_| !self.lines.is_empty()) else { return false };
        self.lines.get(&line).is_some_and(|members| members.iter().skip(1).any(|member| *member == id))
    }

    /// Returns the lines on a node, each with its jobs in order.
    pub(crate) fn lines_of(&self, node: NodeId) -> impl Iterator<Item = (LineId, &[JobId])> {
        let lines = self.lines.range(LineId(node, 0)..=LineId(node, u32::MAX));
        lines.map(|(line, members)| (*line, &members[..]))
    }
}

fn begin(run: &mut Run, time: Time) {
    run.start = time;
    run.steps.insert(squall_model::id::StepNo::BATCH, Box::new(batch_step(time, &run.alloc)));
}
