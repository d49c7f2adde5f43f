//! Checks of the answers that clients received.

use squall_engine::control::state::State;
use squall_model::id::JobId;
use squall_model::time::Time;
use squall_model::wire::client::Answer;

use super::Judge;
use crate::coverage::Phase;

impl Judge {
    /// Checks and records the job id that a client received for its submission. `before`: the id that it received
    /// earlier, if any.
    pub(crate) fn told_submitted(&mut self, order: usize, id: JobId, before: Option<JobId>) {
        if let Some(before) = before
            && before != id
        {
            let text = format!("order {order} was told job {before}, then job {id}");
            self.violate("the same key gives the same id", text);
        }
        if let Some(&other) = self.acknowledged.get(&id)
            && other != order
        {
            self.violate("no id is given twice", format!("job {id} for orders {other} and {order}"));
        }
        if self.ids.get(&order) != Some(&id) {
            self.violate("what clients are told is durable", format!("order {order} as job {id}"));
        }
        self.acknowledged.insert(id, order);
    }

    /// Records that the cancellation of a job order, or of its array task `index`, was acknowledged to a client.
    pub(crate) fn told_cancelled(&mut self, order: usize, index: Option<u32>, requeue_sent: bool) {
        let files: Vec<JobId> = self.files_of(order, index);
        for id in files {
            let Some(file) = self.files.get_mut(&id) else { continue };
            let phase = file.phase;
            file.cancelled = Some(file.attempt);
            file.requeue_sent |= requeue_sent;
            if !requeue_sent && !matches!(phase, Phase::Ending | Phase::Ended) {
                let text = format!("job {id} was told to be cancelled and is {}", phase.name());
                self.violate("what clients are told is durable", text);
            }
        }
    }

    /// Checks the answer to `sbatch --wait`.
    pub(crate) fn told_done(&mut self, order: usize, answer: &Answer, requeue_sent: bool) {
        let Some(&first) = self.ids.get(&order) else { return };
        if requeue_sent {
            return;
        }
        if !self.is_over(first) {
            self.violate("what clients are told is durable", format!("job {first} has not ended: {answer:?}"));
        }
        let single = self.submitted.get(&first).is_some_and(|s| s.0 == 1);
        let known = self.files.get(&first).and_then(|file| file.outcome.clone());
        if let Answer::JobDone { outcome, .. } = answer
            && single
            && known.as_ref() != Some(outcome)
        {
            self.violate("what clients are told is durable", format!("job {first}: {outcome:?}, durable is {known:?}"));
        }
    }

    /// Checks how much output of a node's tasks an `srun` got: `written` and `read` pieces. `named`: it reported
    /// missing output; `broken`: a cut or a kill on the link excuses a loss.
    pub(crate) fn told_output(&mut self, whose: &str, written: u64, read: u64, (named, broken): (bool, bool)) {
        if read != written && !named {
            let text = format!("{whose}: {read} of {written} pieces came");
            self.violate("srun has all output, or says which tasks' output is missing", text);
        }
        if named && !broken {
            self.violate("no output is lost while links heal", format!("{whose}: {read} of {written} pieces came"));
        }
    }

    /// Checks the answer to a client that listed its own job order.
    pub(crate) fn told_of(&mut self, order: usize, answer: &Answer) {
        let Some(&first) = self.ids.get(&order) else { return };
        if let Answer::Jobs(page) = answer
            && page.unknown.contains(&first)
            && !self.is_over(first)
        {
            self.violate("a client sees what it did", format!("job {first} is not shown"));
        }
    }

    /// Records that a client received the acknowledgement of a hold of its job order.
    pub(crate) fn told_held(&mut self, order: usize) {
        for id in self.files_of(order, None) {
            if let Some(file) = self.files.get_mut(&id).filter(|f| f.phase == Phase::Pending && f.index.is_none()) {
                file.held = true;
            }
        }
    }

    /// Records that a suspension at the time `since` was acknowledged to a client. None: the client is about to resume
    /// the job order.
    pub(crate) fn told_suspended(&mut self, order: usize, since: Option<Time>) {
        for id in self.files_of(order, None) {
            if let Some(file) = self.files.get_mut(&id) {
                file.suspended = since.filter(|_| file.phase == Phase::Running);
            }
        }
    }

    /// Records that a client is about to release a job order from its hold.
    pub(crate) fn release_sent(&mut self, order: usize) {
        for id in self.files_of(order, None) {
            if let Some(file) = self.files.get_mut(&id) {
                file.held = false;
            }
        }
    }

    /// Records that a client is about to requeue a job order.
    pub(crate) fn requeue_sent(&mut self, order: usize) {
        for id in self.files_of(order, None) {
            if let Some(file) = self.files.get_mut(&id) {
                file.requeue_sent = true;
            }
        }
    }

    /// Returns the jobs that the judge knows of submission number `order`, or only those of its array task `index`.
    pub(crate) fn files_of(&self, order: usize, index: Option<u32>) -> Vec<JobId> {
        let Some(&first) = self.ids.get(&order) else { return Vec::new() };
        let count = self.submitted.get(&first).map_or(1, |s| s.0);
        let range = self.files.range(first..JobId(first.0 + count));
        range.filter(|(_, f)| index.is_none() || f.index == index).map(|(&id, _)| id).collect()
    }

    /// Returns whether all jobs of a submission have ended.
    pub(crate) fn is_over(&self, first: JobId) -> bool {
        let Some(&(count, order)) = self.submitted.get(&first) else { return false };
        // The user of a heterogeneous job waits for its first component, which runs the script.
        if self.hets.contains_key(&first) {
            return !self.is_unfinished(first);
        }
        let files = self.files_of(order, None);
        let skipped = self.skipped.get(&first).copied().unwrap_or(0);
        files.len() as u32 + skipped >= count && !files.iter().any(|id| self.is_unfinished(*id))
    }

    /// Checks that every acknowledged job is in a recovered state or has ended.
    pub(crate) fn check_acknowledged(&mut self, state: &State) {
        let lost = self
            .acknowledged
            .keys()
            .find(|id| !self.is_over(**id) && state.find(**id).is_none() && !state.arrays.contains_key(id));
        if let Some(&id) = lost {
            self.violate("no acknowledged job is lost", format!("job {id}"));
        }
    }

    /// Checks a client's lists after the end of the simulation: no job is unfinished, no node has usage.
    pub(crate) fn audit(&mut self, now: Time, answer: &Answer) {
        match answer {
            Answer::Jobs(page) => {
                for job in &page.jobs {
                    let known = self.files.get(&job.id).map(|f| f.phase);
                    if !matches!(job.state, squall_model::job::JobState::Ended(_)) && known != Some(Phase::Pending) {
                        self.violate("every job ends", format!("job {} is shown as {:?}", job.id, job.state));
                    }
                }
            }
            Answer::Nodes(nodes) => {
                for node in nodes.iter().filter(|n| n.cpus_used > 0 || n.memory_used_mb > 0 || n.jobs_running > 0) {
                    let text = format!("{} cpus and {} MiB on {}", node.cpus_used, node.memory_used_mb, node.name);
                    self.violate("nothing leaks", text);
                }
            }
            Answer::Queried { no, unreachable } if self.power_is_settled(now) => {
                if let Some(name) = no.iter().chain(unreachable).find(|name| self.is_up(name)) {
                    self.violate("every node that lives is reached", format!("{name} is not"));
                }
            }
            Answer::Diag(diag) => {
                if diag.fabric.node_epilogs != self.released {
                    let text = format!("{} were counted, {} were", diag.fabric.node_epilogs, self.released);
                    self.violate("node epilogs are counted once", text);
                }
                // Those that a node daemon started shortly before it crashed may be missing.
                if diag.node_daemons.steps > self.spawned {
                    let text = format!("{} were counted, {} were", diag.node_daemons.steps, self.spawned);
                    self.violate("steps that nodes start are counted once", text);
                }
            }
            _ => {}
        }
    }
}
