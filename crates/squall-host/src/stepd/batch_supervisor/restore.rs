//! Restores batch scripts from checkpoints: a process of the script's cgroup has CRIU do that, and the script is a child of
//! the supervisor again when that process has ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use squall_engine::step::StepInput;
use squall_model::encoding::ByteBuf;
use squall_model::id::StepKey;
use squall_model::limits::CHECKPOINT_S;

use super::{BatchSupervisor, Environment, Prepared, Ready, Script, Streams, Ward, null};
use crate::cgroup::members;
use crate::processes::inner_pid;
use crate::stepd::checkpoint::{read_text, restore_command, text_file, told};
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

impl BatchSupervisor {
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
        self.order.launch.facts.restore.is_some_and(|restore| inner_pid(pid) == Some(restore.pid))
    }

    /// Returns the process, still root's, that restores the script in place of starting it.
    pub(super) fn restoring_script(&mut self, script: Prepared, group: File) -> io::Result<Script> {
        let log = text_file()?;
        let Some(restoring) = &self.order.restoring else { return Err(io::ErrorKind::InvalidInput.into()) };
        let dir = Path::new(OsStr::from_bytes(&restoring.dir));
        let task = Prepared {
            program: Ok(c"/proc/self/exe".to_owned()),
            argv: restore_command(&restoring.criu, dir, &self.folder.path),
            env: Environment::parse(b"PATH=/usr/sbin:/usr/bin:/sbin:/bin\0"),
            env_pid: None,
            stdio: [null()?, log.try_clone()?, log.try_clone()?],
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
