//! Restores batch scripts from checkpoints: a process of the script's cgroup executes CRIU, which makes the script a
//! child of the supervisor again.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
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
use crate::stepd::checkpoint::{restore_command, told};
use crate::sys::identity::Identity;

/// Most bytes that are read of what a process writes about a restore.
const LOG_BYTES_MAX: u64 = 64 << 10;
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
        let pid = ward.order.launch.facts.restore.map_or(0, |restore| restore.pid);
        let later = ward.starting.take().map(|starting| starting.later).unwrap_or_default();
        let own = self.scripts.get(&pid) == Some(&key);
        if !done {
            if own {
                self.scripts.remove(&pid);
            }
            ward.signal_all(libc::SIGKILL);
            let error = ward.log.take().map(read_log).unwrap_or_default();
            return self.feed(key, StepInput::Fail { error: told(&error), node_fault: false });
        }
        // Without an entry it has ended already.
        ward.pid = own.then_some(pid);
        // From here on the node daemon takes the script for restored, also after this process has died.
        if let Err(e) = ward.folder.note_restored(pid) {
            tracing::error!(step = %key, error = %e, "the restored script can't be noted");
        }
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

impl Ward {
    /// Returns the process, still root's, that restores the script in place of starting it.
    pub(super) fn restoring_script(&mut self, script: Prepared, group: File) -> io::Result<Script> {
        let log = File::from(rustix::fs::memfd_create("restore", rustix::fs::MemfdFlags::CLOEXEC)?);
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
        Ok(Script { key, task, ready, identity, umask: 0o022, group, notes: None, ended })
    }
}

/// Returns what a process has written about a restore.
fn read_log(mut log: File) -> String {
    let mut text = String::new();
    // What can't be read is not there.
    let read = log.rewind().and_then(|()| log.take(LOG_BYTES_MAX).read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}
