//! Restores batch scripts from checkpoints: a process of the script's cgroup has CRIU do that, and the script is a child of
//! the supervisor again when that process has ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use squall_engine::step::StepInput;
use squall_model::encoding::ByteBuf;
use squall_model::id::StepKey;
use squall_model::limits::CHECKPOINT_S;

use super::{BatchSupervisor, Environment, FromSupervisor, Prepared, Ready, Script, Streams, Ward, null};
use crate::cgroup::members;
use crate::processes::inner_pid;
use crate::stepd::checkpoint::{Manifest, read_text, restore_command, restored_from, text_file, told};
use crate::stepd::redirects::redirect;
use crate::sys::identity::Identity;

/// Time limit of a restore from a checkpoint.
pub(super) const RESTORE: Duration = Duration::from_secs(CHECKPOINT_S);
/// Time limit for the rest of a restore after the script's end. CRIU does not notice that a script is killed which it
/// restores, and would wait for it.
pub(super) const RESTORE_OF_ENDED: Duration = Duration::from_secs(5);

/// How scripts are restored from checkpoints.
#[derive(Debug, Encode, Decode)]
pub(crate) struct Restoring {
    /// CRIU, by path or name.
    #[n(0)]
    pub(crate) criu: String,
    /// Folder of all checkpoints.
    #[n(1)]
    pub(crate) dir: ByteBuf,
}

/// How a restored part of a job of several nodes waits for the others.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// The socket of the process that restores. None: the job has one node, or is not being restored.
    link: Option<UnixStream>,
    /// Whether the part is there.
    held: bool,
    /// Process id of the script or keeper, as the job sees it. None: that of the launch.
    pid: Option<u32>,
}

impl Gate {
    /// Returns what is readable when the part is there, as long as it is not.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().filter(|_| !self.held).map(AsFd::as_fd)
    }

    /// Has the part go on.
    pub(super) fn open(&mut self) {
        if let Some(mut link) = self.link.take() {
            // The process that restores may have been killed.
            drop(link.write_all(b"g"));
        }
    }

    /// Returns whether the part has come since the last call.
    fn hear(&mut self) -> bool {
        let Some(link) = self.link.as_mut().filter(|_| !self.held) else { return false };
        match link.read(&mut [0]) {
            Ok(1..) => {
                self.held = true;
                true
            }
            // The process that restores has ended.
            Ok(0) => {
                self.link = None;
                false
            }
            Err(_) => false,
        }
    }
}

impl BatchSupervisor {
    /// Reports the parts of jobs that are restored.
    pub(super) fn hear_gates(&mut self) {
        for ward in self.wards.values_mut() {
            if ward.gate.hear() {
                self.words.extend(ward.held());
            }
        }
    }

    /// Handles the end of the process that restores a script. What ended or was asked for meanwhile comes after it.
    pub(super) fn restored(&mut self, key: StepKey, done: bool) {
        let Some(ward) = self.wards.get_mut(&key) else { return };
        let later = ward.starting.take().map(|starting| starting.later).unwrap_or_default();
        if !done {
            ward.signal_all(libc::SIGKILL);
            let error = ward.log.take().map(|mut log| read_text(&mut log)).unwrap_or_default();
            return self.feed(key, StepInput::Fail { error: told(&error), node_fault: false });
        }
        // None: it has ended already.
        let script = members(ward.group()).into_iter().find(|pid| ward.is_restored_as(*pid));
        ward.pid = script;
        if let Some(pid) = script {
            self.scripts.insert(pid, key);
            // From here on the node daemon takes the script for restored, also after this process has died.
            if let Err(e) = ward.folder.note_restored(pid) {
                tracing::error!(step = %key, error = %e, "the restored script can't be noted");
            }
        }
        let pid = script.unwrap_or_default();
        for input in &later {
            if let StepInput::Exited { exit, usage, .. } = input {
                ward.folder.note_exit(0, *exit, usage);
            }
        }
        for input in [StepInput::Spawned { rank: 0, pid }].into_iter().chain(later) {
            self.feed(key, input);
        }
    }
}

impl BatchSupervisor {
    /// Returns the step of which this ended child is the script, if it ended while it was being restored.
    pub(super) fn restored_script(&self, pid: u32) -> Option<StepKey> {
        let key = self.whose(pid)?;
        self.wards.get(&key).is_some_and(|ward| ward.pid.is_none() && ward.is_restored_as(pid)).then_some(key)
    }
}

impl Ward {
    /// Whether a process of the step is its script, restored: the job sees it under the id that it had.
    fn is_restored_as(&self, pid: u32) -> bool {
        let restore = self.order.launch.facts.restore;
        restore.is_some_and(|restore| inner_pid(pid) == Some(self.gate.pid.unwrap_or(restore.pid)))
    }

    /// Returns what is said of a part of a job that is restored and waits for the others. None: it is no such one.
    pub(super) fn held(&self) -> Option<FromSupervisor> {
        let waits = self.gate.held && self.gate.link.is_some();
        let number = self.order.launch.facts.restore.filter(|_| waits)?.number;
        Some(FromSupervisor::Held(self.order.launch.key, number))
    }

    /// Returns the process, still root's, that restores the script in place of starting it.
    pub(super) fn restoring_script(&mut self, script: Prepared, group: File) -> io::Result<Script> {
        let log = text_file()?;
        let Some(restoring) = &self.order.restoring else { return Err(io::ErrorKind::InvalidInput.into()) };
        let dir = Path::new(OsStr::from_bytes(&restoring.dir));
        let mut stdin = null()?;
        if self.order.launch.facts.nodes.len() > 1 {
            let (own, theirs) = UnixStream::pair()?;
            own.set_nonblocking(true)?;
            stdin = File::from(OwnedFd::from(theirs));
            let from = restored_from(dir, &self.order.launch).ok_or(io::ErrorKind::InvalidInput)?;
            self.gate = Gate { link: Some(own), held: false, pid: Manifest::of(&from)?.pid };
        }
        if let Some(moved) = &self.order.launch.facts.moved
            && let Err(e) = redirect(self.group(), moved)
        {
            tracing::warn!(step = %self.order.launch.key, error = %e, "it can't connect to its nodes by addresses of before");
        }
        let task = Prepared {
            program: Ok(c"/proc/self/exe".to_owned()),
            argv: restore_command(&restoring.criu, dir, &self.folder.path),
            env: Environment::parse(b"PATH=/usr/sbin:/usr/bin:/sbin:/bin\0"),
            env_pid: None,
            stdio: [stdin, log.try_clone()?, log.try_clone()?],
            ..script
        };
        self.log = Some(log);
        let ready = Ready {
            tasks: Vec::new(),
            dir: c"/".to_owned(),
            rlimits: Vec::new(),
            streams: Streams::default(),
            stderr: None,
            stdout: None,
            notes: Vec::new(),
        };
        let (key, ended, identity) =
            (self.order.launch.key, Arc::default(), Identity { uid: 0, gid: 0, groups: Vec::new() });
        Ok(Script { key, task, ready, identity, umask: 0o022, keeps_orphans: false, group, notes: None, ended })
    }
}
