//! Has checkpoints of jobs made by a process of their own (`stepd::checkpoint`), and thaws and forgets them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use squall_engine::node::{CheckpointAct, NodeInput, attempt_of};
use squall_model::checkpoint::{CheckpointOrder, CheckpointVerb, Made};
use squall_model::config::Config;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::time::Span;
use squall_model::wire::hook::Hook;
use tracing::error;

use super::Daemon;
use super::steps::Served;
use crate::dump_mark::{self, Found};
use crate::hook::{Label, Running};
use crate::removal::remove_apart;
use crate::stepd::batch_supervisor::ToSupervisor;
use crate::stepd::{KILLED, checkpoint_folder, jobs_with_rooms, set_frozen, sweep_rooms, sweep_up};
use crate::sys::signals;

/// Where checkpoints are kept, and those that are being made.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Folder of all checkpoints. Empty: the cluster has none.
    pub(super) dir: PathBuf,
    /// CRIU, by path or name.
    pub(super) criu: String,
    /// Checkpoints that are being made: job and number, by the process that makes each. Number 0: the process waits for
    /// that of an earlier run of the daemon.
    making: BTreeMap<u32, (JobAttempt, u64, Running)>,
    /// Jobs that may have a mark ([`dump_mark`]).
    marked: BTreeSet<JobAttempt>,
    /// Jobs that were restored, or are being restored.
    restored: BTreeSet<JobAttempt>,
}

impl Checkpoints {
    pub(super) fn of(config: &Config) -> Self {
        let criu = if config.criu.is_empty() { "criu" } else { config.criu.as_str() };
        Self {
            dir: PathBuf::from(&config.checkpoint_dir),
            criu: criu.to_owned(),
            making: BTreeMap::new(),
            marked: BTreeSet::new(),
            restored: BTreeSet::new(),
        }
    }
}

impl Daemon {
    pub(super) fn checkpoint(&mut self, act: CheckpointAct) {
        match act {
            CheckpointAct::Make(order) => {
                let (job, number) = (order.job, order.number);
                match self.start_checkpoint(&order) {
                    Ok(running) => self.makes(job, number, running),
                    Err(problem) => {
                        self.inputs.push_back(NodeInput::Checkpointed { job, number, result: Err(problem) });
                    }
                }
            }
            CheckpointAct::Stop { job } => {
                for (pid, _) in self.hooks.checkpoints.making.iter().filter(|(_, (of, ..))| *of == job) {
                    drop(signals::kill_group(*pid, libc::SIGKILL));
                }
                if !dump_mark::is_set(&self.spool.steps_dir(), job) {
                    self.thaw(job);
                }
            }
            CheckpointAct::Thaw { job } => self.thaw(job),
            CheckpointAct::Go { job } => {
                if let Some(supervisor) = &self.supervisor {
                    let key = StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH };
                    supervisor.tell(&ToSupervisor::Go(key));
                }
            }
            CheckpointAct::Forget { job: JobId(job) } => {
                if !self.hooks.checkpoints.dir.as_os_str().is_empty() {
                    remove_apart(vec![checkpoint_folder(&self.hooks.checkpoints.dir, job)]);
                }
            }
        }
    }

    /// Starts the process that makes a checkpoint. Err: why there can be none, as a text for users.
    fn start_checkpoint(&self, order: &CheckpointOrder) -> Result<Running, String> {
        if self.hooks.checkpoints.dir.as_os_str().is_empty() {
            return Err(format!("node {} has no checkpoint_dir: restart its daemon", self.name));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(format!("checkpoints need node daemons that run as root, and that of {} does not", self.name));
        }
        let key = StepKey { job: order.job.job, attempt: order.job.attempt, step: StepNo::BATCH };
        let supervised = self.served.get(&key).is_some_and(Served::is_supervised);
        let group = self.cgroups.group_to_freeze(order.job);
        let Some(group) = group.filter(|_| supervised) else {
            return Err("its script needs a step daemon of its own, or has no cgroup of version 2: such jobs are not \
                        checkpointed yet"
                .to_owned());
        };
        let verb = match order.verb {
            CheckpointVerb::Able => "able",
            verb if verb.vacates() => "vacate",
            _ => "create",
        };
        let kept: Vec<String> = order.kept.iter().map(u64::to_string).collect();
        self.start_helper(key, &group, (verb, order.number), &kept.join(","))
    }

    /// Starts `squall step --checkpoint`.
    fn start_helper(
        &self,
        key: StepKey,
        group: &Path,
        (verb, number): (&str, u64),
        kept: &str,
    ) -> Result<Running, String> {
        let path = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path is not UTF-8");
        let (dir, step, group) = (path(&self.hooks.checkpoints.dir)?, path(&self.spool.step(key))?, path(group)?);
        let number = number.to_string();
        let args = ["step", "--checkpoint", &self.hooks.checkpoints.criu, &dir, &step, &group, &number, verb, kept];
        let label = Label { hook: Hook::Checkpoint, job: key.job.0 };
        let program = Path::new(OsStr::from_bytes(self.program.as_bytes()));
        Running::start(program, &args, &[], &label).map_err(|e| e.to_string())
    }

    fn makes(&mut self, job: JobAttempt, number: u64, running: Running) {
        let checkpoints = &mut self.hooks.checkpoints;
        checkpoints.marked.insert(job);
        checkpoints.making.insert(running.pid, (job, number, running));
    }

    /// Thaws all jobs that earlier runs of the daemon left frozen, but for those on which CRIU is at work or was killed;
    /// returns these.
    pub(super) fn thaw_all(&self) -> Vec<(JobAttempt, Found)> {
        let found = dump_mark::all(&self.spool.steps_dir());
        let spared = found.iter().filter(|(_, found)| *found != Found::Clear).map(|(job, _)| *job);
        self.cgroups.thaw_all(&spared.collect());
        for (job, _) in found.iter().filter(|(_, found)| *found == Found::Set) {
            self.freeze_damaged(*job);
        }
        found
    }

    /// Reports jobs of which dumps were killed, and has a process wait for each dump that is under way.
    pub(super) fn find_dumps(&mut self, found: Vec<(JobAttempt, Found)>) {
        for (job, found) in found {
            let key = StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH };
            let group = self.cgroups.group_to_freeze(job).filter(|_| self.folders.contains(&key));
            match (found, group) {
                (Found::Held, Some(group)) => match self.start_helper(key, &group, ("settle", 0), "") {
                    Ok(running) => self.makes(job, 0, running),
                    Err(e) => error!(job = %job.job, error = %e, "nothing waits for the dump of the job"),
                },
                (Found::Set, Some(_)) => {
                    self.hooks.checkpoints.marked.insert(job);
                    self.inputs.push_back(NodeInput::Damaged { job, error: KILLED.to_owned() });
                }
                (Found::Held | Found::Set | Found::Clear, _) => dump_mark::remove(&self.spool.steps_dir(), job),
            }
        }
    }

    /// Returns what the machine has to know before a script's end: that a dump of it was killed. None: none was.
    pub(super) fn damage_before(&self, input: &NodeInput) -> Option<NodeInput> {
        let NodeInput::Ended { key, .. } = input else { return None };
        let job = attempt_of(*key);
        let made = key.step == StepNo::BATCH && self.hooks.checkpoints.making.values().any(|(of, ..)| *of == job);
        // The job is frozen while CRIU is at work, so it has not ended by itself.
        let damaged = made && dump_mark::is_set(&self.spool.steps_dir(), job);
        damaged.then(|| NodeInput::Damaged { job, error: KILLED.to_owned() })
    }

    /// Notes that the script of a job is to be restored.
    pub(super) fn restores(&mut self, job: JobAttempt) {
        self.hooks.checkpoints.restored.insert(job);
    }

    /// Finds jobs that earlier runs of the daemon have restored.
    pub(super) fn find_restored(&mut self) {
        for job in jobs_with_rooms(&self.spool.steps_dir()) {
            if self.folders.contains(&StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }) {
                self.restores(job);
            } else {
                sweep_rooms(&self.spool.steps_dir(), job);
            }
        }
    }

    /// Removes what a job of which no process is left has left in shared memory, if it was restored or has checkpoints: its
    /// step daemons may have been killed. The next attempt may be restored here, and put it back.
    pub(super) fn sweep_memory(&mut self, job: JobAttempt) {
        let restored = self.hooks.checkpoints.restored.remove(&job);
        if restored {
            sweep_rooms(&self.spool.steps_dir(), job);
        }
        if restored || self.hooks.checkpoints.marked.contains(&job) {
            let launches = self.steps_of(job).into_iter().filter_map(|key| self.spool.launch(key));
            launches.filter(|launch| launch.is_inside()).for_each(|launch| sweep_up(&launch));
        }
    }

    /// Removes the mark of a job of which nothing is left.
    pub(super) fn forget_dumps(&mut self, job: JobAttempt) {
        if self.hooks.checkpoints.marked.remove(&job) {
            dump_mark::remove(&self.spool.steps_dir(), job);
        }
    }

    /// Kills the processes of a script of which the batch supervisor died before it noted that the script is restored. They
    /// may be half-restored, or run already. Returns why the restore failed, as a text for users. None: the script was not
    /// being restored.
    pub(super) fn kill_half_restored(&self, key: StepKey) -> Option<String> {
        let restores = || self.spool.launch(key).is_some_and(|launch| launch.facts.restore.is_some());
        if key.step != StepNo::BATCH || !restores() || !self.spool.has_begun(key) || !self.spool.tasks(key).is_empty() {
            return None;
        }
        self.cgroups.kill_job(attempt_of(key));
        Some("the batch supervisor was killed while it restored the job".to_owned())
    }

    fn freeze_damaged(&self, job: JobAttempt) {
        if let Some(group) = self.cgroups.group_to_freeze(job) {
            drop(set_frozen(&group, true));
        }
    }

    /// Handles the end of a child that makes a checkpoint. False: it is none.
    pub(super) fn checkpoint_died(&mut self, pid: u32, exit: ExitCode) -> bool {
        let Some((job, number, running)) = self.hooks.checkpoints.making.remove(&pid) else { return false };
        let line = running.first_line().unwrap_or_default();
        // Another one that has begun since sees by itself what this one has left.
        let last = self.hooks.checkpoints.making.values().all(|(of, ..)| *of != job);
        if last && dump_mark::is_set(&self.spool.steps_dir(), job) {
            self.freeze_damaged(job);
            let error = if line.is_empty() { KILLED.to_owned() } else { line };
            self.inputs.push_back(NodeInput::Damaged { job, error });
            return true;
        }
        let result = match made(&line) {
            Ok(made) if exit.is_ok() => Ok(made),
            _ => {
                if last {
                    self.thaw(job);
                }
                Err(if line.is_empty() { "the process that makes it was killed".to_owned() } else { line })
            }
        };
        self.inputs.push_back(NodeInput::Checkpointed { job, number, result });
        true
    }

    fn thaw(&self, job: JobAttempt) {
        let Some(group) = self.cgroups.group_to_freeze(job) else { return };
        let own = chown(group.join("cgroup.freeze"), Some(0), None);
        match own.and_then(|()| set_frozen(&group, false)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => error!(job = %job.job, error = %e, "it can't be thawed"),
            _ => {}
        }
    }
}

/// Parses what the process says that has made a checkpoint, or tested whether it can. Err: it has not.
fn made(line: &str) -> Result<Option<Made>, ()> {
    let mut words = line.split(' ');
    if words.next() != Some("made") {
        return if line == "able" { Ok(None) } else { Err(()) };
    }
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(());
    let (bytes, stood, pid) = (number()?, Span(number()?), u32::try_from(number()?).map_err(drop)?);
    Ok(Some(Made { bytes, stood, pid, links: number().ok() }))
}
