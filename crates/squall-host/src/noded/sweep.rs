//! Sweeps a job: kills all that is left of it and removes its groups.

use squall_engine::node::NodeInput;
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use super::Daemon;
use crate::processes;

/// Pauses between two checks: short at first, for processes that are just ending.
const PAUSES: [Span; 4] = [Span::from_millis(2), Span::from_millis(10), Span::from_millis(50), Span::from_millis(200)];

/// Time that step daemons have to write their results after their tasks were killed.
const DAEMON_WAIT: Span = Span::from_millis(500);

/// Time without success after which a sweep is logged as failing.
const COMPLAINT: Span = Span::from_secs(10);

/// State of a job while its remaining processes and groups are being removed.
pub(super) struct Sweep {
    began: Time,
    looks: usize,
    /// Whether the last check found no remaining processes.
    found_nothing: bool,
    complained: bool,
    /// Time of the next check whether processes remain.
    pub(super) next: Time,
}

impl Daemon {
    /// Begins to kill a job's remaining processes and to remove its groups; done at once if nothing is left.
    pub(super) fn sweep(&mut self, job: JobAttempt) {
        if self.sweeps.contains_key(&job) {
            return;
        }
        let now = self.now();
        self.sweeps.insert(job, Sweep { began: now, looks: 0, found_nothing: false, complained: false, next: now });
        self.advance(job, now);
    }

    pub(super) fn advance_sweeps(&mut self, now: Time) {
        let due: Vec<JobAttempt> =
            self.sweeps.iter().filter(|(_, sweep)| sweep.next <= now).map(|(job, _)| *job).collect();
        for job in due {
            self.advance(job, now);
        }
    }

    fn advance(&mut self, job: JobAttempt, now: Time) {
        let Some(age) = self.sweeps.get(&job).map(|sweep| now.since(sweep.began)) else { return };
        // Where every step daemon of the job was our own and reported that it left nothing, it is enough that its
        // groups can be removed.
        let trusted = self.clean.contains(&job) && self.busy_steps(job).is_empty() && self.cgroups.close_job(job);
        let nothing = trusted || self.clear(job, age);
        let Some(sweep) = self.sweeps.get_mut(&job) else { return };
        if nothing && (trusted || sweep.found_nothing) {
            self.sweeps.remove(&job);
            self.private.remove(job);
            self.sweep_memory(job);
            self.inputs.push_back(NodeInput::Swept { job });
            return;
        }
        sweep.found_nothing = nothing;
        sweep.next = now + PAUSES[sweep.looks.min(PAUSES.len() - 1)];
        sweep.looks += 1;
        if age > COMPLAINT && !sweep.complained {
            sweep.complained = true;
            tracing::error!(job = %job.job, "a process of the job can't be killed: going on without");
        }
    }

    /// Kills what is left of the job. True: nothing was left, and the job's groups are removed.
    fn clear(&mut self, job: JobAttempt, age: Span) -> bool {
        let busy = self.busy_steps(job);
        let daemons: Vec<u32> = busy.iter().filter_map(|key| self.served.get(key)?.own_daemon()).collect();
        if age >= DAEMON_WAIT {
            self.kill_daemons(&busy);
            self.cgroups.kill_job(job);
        }
        for key in &busy {
            self.kill_orphan(*key);
        }
        let members = self.cgroups.members_of_job(job);
        let is_member = |pid: u32| self.cgroups.members_of_job(job).contains(&pid);
        for pid in members.iter().filter(|pid| !daemons.contains(pid)) {
            processes::kill_if(*pid, is_member);
        }
        let marked = self.marked_of(job);
        for (pid, folder) in &marked {
            processes::kill_if(*pid, |pid| processes::mark(pid).is_some_and(|mark| mark == *folder));
        }
        busy.is_empty() && members.is_empty() && marked.is_empty() && self.cgroups.close_job(job)
    }

    /// Returns the processes that have the mark of a step of the job in their environment, with that step's folder.
    fn marked_of(&self, job: JobAttempt) -> Vec<(u32, std::path::PathBuf)> {
        let steps = self.spool.steps_dir();
        let prefix = format!("{}.{}.", job.job, job.attempt);
        let marked = processes::marked(&steps).into_iter().filter(|(_, name)| name.starts_with(&prefix));
        marked.map(|(pid, name)| (pid, steps.join(name))).collect()
    }
}
