//! Has checkpoints of jobs made by a process of their own (`stepd::checkpoint`), and thaws and forgets them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use squall_engine::node::{CheckpointAct, NodeInput};
use squall_model::checkpoint::{CheckpointOrder, CheckpointVerb, Made};
use squall_model::config::Config;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::time::Span;
use squall_model::wire::hook::Hook;
use tracing::error;

use super::Daemon;
use super::steps::Served;
use crate::hook::{Label, Running};
use crate::removal::remove_apart;
use crate::stepd::{checkpoint_folder, set_frozen};
use crate::sys::signals;

/// Where checkpoints are kept, and those that are being made.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Folder of all checkpoints. Empty: the cluster has none.
    pub(super) dir: PathBuf,
    /// CRIU, by path or name.
    pub(super) criu: String,
    /// Checkpoints that are being made: job and number, by the process that makes each.
    making: BTreeMap<u32, (JobAttempt, u64, Running)>,
}

impl Checkpoints {
    pub(super) fn of(config: &Config) -> Self {
        let criu = if config.criu.is_empty() { "criu" } else { config.criu.as_str() };
        Self { dir: PathBuf::from(&config.checkpoint_dir), criu: criu.to_owned(), making: BTreeMap::new() }
    }
}

impl Daemon {
    pub(super) fn checkpoint(&mut self, act: CheckpointAct) {
        match act {
            CheckpointAct::Make(order) => {
                let (job, number) = (order.job, order.number);
                match self.start_checkpoint(&order) {
                    Ok(running) => drop(self.hooks.checkpoints.making.insert(running.pid, (job, number, running))),
                    Err(problem) => {
                        self.inputs.push_back(NodeInput::Checkpointed { job, number, result: Err(problem) });
                    }
                }
            }
            CheckpointAct::Stop { job } => {
                self.hooks.checkpoints.making.retain(|pid, (of, ..)| {
                    if *of == job {
                        drop(signals::kill_group(*pid, libc::SIGKILL));
                    }
                    *of != job
                });
                self.thaw(job);
            }
            CheckpointAct::Thaw { job } => self.thaw(job),
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
        let step = self.spool.step(key);
        let kept: Vec<String> = order.kept.iter().map(u64::to_string).collect();
        let (number, kept) = (order.number.to_string(), kept.join(","));
        let path = |path: &PathBuf| path.to_str().map(str::to_owned).ok_or("a path is not UTF-8");
        let (dir, step, group) = (path(&self.hooks.checkpoints.dir)?, path(&step)?, path(&group)?);
        let args = ["step", "--checkpoint", &self.hooks.checkpoints.criu, &dir, &step, &group, &number, verb, &kept];
        let label = Label { hook: Hook::Checkpoint, job: order.job.job.0 };
        let program = Path::new(OsStr::from_bytes(self.program.as_bytes()));
        Running::start(program, &args, &[], &label).map_err(|e| e.to_string())
    }

    /// Handles the end of a child that makes a checkpoint. False: it is none.
    pub(super) fn checkpoint_died(&mut self, pid: u32, exit: ExitCode) -> bool {
        let Some((job, number, running)) = self.hooks.checkpoints.making.remove(&pid) else { return false };
        let line = running.first_line().unwrap_or_default();
        let result = match made(&line) {
            Ok(made) if exit.is_ok() => Ok(made),
            _ => {
                self.thaw(job);
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
    Ok(Some(Made { bytes, stood, pid }))
}
