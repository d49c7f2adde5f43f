//! The node daemon's side of node fences: starts the guards of jobs, and tells them when this node was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use squall_engine::node::FenceAct;
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};
use tracing::error;

use super::Daemon;
use crate::fence::FenceFolder;

/// The guards of this node's fenced jobs.
#[derive(Debug)]
pub(super) struct Fences {
    path: PathBuf,
    /// Opened when a job needs it first.
    folder: Option<FenceFolder>,
    /// When this node sent what was acknowledged last, in the time of the state machine.
    proven: Time,
    /// The guarded jobs, with the length of a term, and the process of the guard.
    guards: BTreeMap<JobAttempt, (Span, u32)>,
}

impl Fences {
    /// Returns the state of a node without fenced jobs. `witness`: path of the spool's witness, a file in memory, if there can
    /// be one; the folder is beside it, or else in `spool`.
    pub(super) fn new(witness: Option<&Path>, spool: &Path) -> Self {
        let path = witness.map_or_else(|| spool.join("fence"), |witness| witness.with_extension("fence"));
        Self { path, folder: None, proven: Time(0), guards: BTreeMap::new() }
    }

    /// Returns the jobs that guards have ended while no daemon ran.
    pub(super) fn ended(&self) -> BTreeSet<JobAttempt> {
        FenceFolder::ended(&self.path)
    }

    fn folder(&mut self) -> io::Result<&FenceFolder> {
        match &mut self.folder {
            Some(folder) => Ok(folder),
            none => Ok(none.insert(FenceFolder::open(&self.path)?)),
        }
    }
}

impl Daemon {
    pub(super) fn fence(&mut self, act: FenceAct) {
        match act {
            FenceAct::Proven { sent } => {
                self.fences.proven = sent;
                if !self.fences.guards.is_empty() {
                    self.prove();
                }
            }
            FenceAct::Guard { job, term } => {
                // A daemon that has just started knows less than the guards.
                if self.fences.proven > Time(0) {
                    self.prove();
                }
                self.start_guard(job, term);
            }
            FenceAct::Drop { job } => {
                self.fences.guards.remove(&job);
                if let Ok(folder) = self.fences.folder() {
                    folder.drop(job);
                }
            }
        }
    }

    /// Starts another guard if a process that has ended was one of a job that is still here. Returns whether it was.
    pub(super) fn guard_died(&mut self, pid: u32) -> bool {
        let died =
            self.fences.guards.iter().find(|(_, (_, guard))| *guard == pid).map(|(job, (term, _))| (*job, *term));
        let Some((job, term)) = died else { return false };
        error!(job = %job.job, "the guard of the job's node fence was killed: another one is started");
        self.start_guard(job, term);
        true
    }

    fn start_guard(&mut self, job: JobAttempt, term: Span) {
        let (steps, group) = (self.spool.steps_dir(), self.cgroups.group_of(job));
        let started = self
            .fences
            .folder()
            .and_then(|folder| folder.guard(&self.program, (job, term), (&steps, group.as_deref())));
        match started {
            Ok(pid) => drop(self.fences.guards.insert(job, (term, pid))),
            // Without a guard only this daemon ends the job.
            Err(e) => error!(job = %job.job, error = %e, "no guard for the job's node fence"),
        }
    }

    fn prove(&mut self) {
        let boot_us = self.boot_us(self.fences.proven);
        if let Err(e) = self.fences.folder().and_then(|folder| folder.prove(boot_us)) {
            error!(error = %e, "the guards of node fences can't be told that this node was heard");
        }
    }
}
