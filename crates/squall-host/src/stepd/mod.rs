//! The step daemon, `squall step --spool FOLDER`: the parent of one step's tasks on one node. It keeps running when the
//! node daemon ends.
//!
//! The module `crate::spool` describes how it is started. Its standard input may also be the listening socket, made by
//! the starting process: then connections are possible at once, before the step daemon is ready. Its tasks inherit its
//! CPU affinity.
//!
//! All links carry frames of `squall_model::codec`. On the socket, node daemons connect (as root, or as the user with
//! which the step daemon was started). Each side first sends its `wire::Hello`; then the step daemon sends
//! `FromStepd::Hello` and events, and receives `ToStepd`. The step daemon itself connects to `srun`: first both sides
//! send `wire::Hello`, then `FromStep::Hello` and `ToStep::Hello` with the cookie.
//!
//! It first does all that needs root (take the folder, join cgroups, set the host name), then becomes the user for
//! good, and only then accesses the user's things: files, `srun`, programs. One thread, one loop around `epoll`, no
//! runtime: it is started once for each job, so it has to be cheap.

pub(crate) mod batch_supervisor;
mod binding;
mod checkpoint;
mod container;
mod daemon;
mod environment;
mod exit_recorder;
mod files;
mod folder;
mod frames;
mod images;
mod inside;
mod keeper;
mod links;
mod login;
mod meter;
mod node_link;
mod patterns;
mod plugins;
mod ports;
mod prepare;
mod processes;
mod redirects;
mod restorer;
mod saved_files;
mod scripts;
mod search;
mod srun;
mod starters;
mod streams;
mod surroundings;
mod watchers;
mod wireup;
mod x11;
mod zygote;

/// Whether a program is linked with an MPI library, as far as its file shows.
pub fn is_linked_with_mpi(program: &Path) -> bool {
    wireup::is_linked_with_mpi(program)
}

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::DumpableBehavior;
use squall_engine::step::StepInput;
use squall_model::id::StepNo;
use squall_model::step::{Program, StepLaunch};
use tracing::{error, warn};

use crate::cgroup::StepGroups;
use crate::signing::Authority;
use crate::sys::host::{is_name_of_host, lay_over, rename_for_me};
use crate::sys::identity::{Identity, become_user};
use crate::sys::pidfd::set_child_subreaper;
use crate::sys::signals::SignalFd;
use crate::sys::spawn::SpawnError;
use daemon::Daemon;
use folder::{Folder, FolderError};
use node_link::NodeLinks;
use plugins::Plugins;
use search::{NotFound, find_program};

pub(crate) use checkpoint::{KILLED, folder as checkpoint_folder, set_frozen};
pub use checkpoint::{run_checkpoint, run_criu};
pub use container::run_contained;
pub use daemon::is_end_notice;
pub use inside::{APART, run_inside};
pub use keeper::{bear_inside, run_keeper};
pub use patterns::{Names, expand};
pub(crate) use processes::again_while_busy;
pub use restorer::run_restore;
pub(crate) use saved_files::{jobs_with_rooms, sweep_rooms};
pub use scripts::{run_epilogs, run_task};
pub(crate) use wireup::{speaks_by_tree, sweep_up};
pub(crate) use zygote::LIBRARIES_VARIABLE;
pub use zygote::{Zygote, serve as serve_zygote};

/// Value of `oom_score_adj` of a step daemon: the kernel rarely kills it for lack of memory. Needs root.
const OOM_SCORE: &str = "-900";

/// Runs the step of a spool folder to its end; returns the daemon's exit status. The step's own outcome is in its
/// result; with a status other than 0 there may be none.
pub fn run(spool: &Path) -> i32 {
    let (folder, listener) = match Folder::take(spool) {
        Ok(taken) => taken,
        Err(FolderError::Taken) => return 0,
        Err(e) => {
            error!(folder = %spool.display(), error = %e, "the step's folder can't be taken");
            return 1;
        }
    };
    // Opened before a signal can arrive.
    let signals = match SignalFd::new(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP]) {
        Ok(signals) => signals,
        Err(e) => {
            error!(error = %e, "no descriptor for signals");
            return 1;
        }
    };
    let groups = StepGroups::read(&folder.path).unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    let keeper = keeper::Keeper::of(&folder);
    let ordered = authority(&folder.path).and_then(|known| known.check(&folder.launch, folder.warrant.as_ref()));
    let made = ordered.and_then(|()| make_ready(&folder.launch, &folder.path, &groups));
    let ((spared, plugins), first) = match made {
        Ok(made) => (made, None),
        Err(error) => ((false, None), Some(StepInput::Fail { error, node_fault: true })),
    };
    let nodes = NodeLinks::new(listener, uid);
    if first.is_none() && folder.launch.is_inside() {
        inside::serve(folder, keeper, signals, nodes);
    }
    Daemon::new(folder, signals, nodes, groups, (spared, plugins)).run(first)
}

/// Returns what checks that the controller ordered a step. `folder`: the step's folder.
fn authority(folder: &Path) -> Result<Authority, String> {
    let steps = folder.parent().unwrap_or(folder);
    Authority::of(steps).map_err(|e| format!("the controller's key for signatures: {e}"))
}

/// Does all that may need root, and then drops root's rights. Err: the reason why that failed; no program of the user
/// may be run then. Ok: whether the kernel spares this process when memory is lacking, whatever its size, and the process with
/// the step's plugins.
fn make_ready(launch: &StepLaunch, folder: &Path, groups: &StepGroups) -> Result<(bool, Option<Plugins>), String> {
    if launch.facts.restore.is_some() && launch.key.step == StepNo::BATCH {
        return Err("only the batch supervisor restores jobs from checkpoints, and it does not serve this one".into());
    }
    set_child_subreaper().map_err(|e| format!("cannot become the parent of orphans: {e}"))?;
    groups.join().map_err(|e| format!("cannot join the cgroups of the step: {e}"))?;
    let root = rustix::process::geteuid().is_root();
    // An ordinary user lacks this right, and in a container root may lack it.
    let spared = fs::write("/proc/self/oom_score_adj", OOM_SCORE).is_ok();
    if root {
        name_host(&launch.node);
        private_dirs(launch).map_err(|e| format!("no private folders: {e}"))?;
    }
    let owner = &launch.facts.owner;
    let identity = Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() };
    if launch.needs_room() {
        container::make_room(folder, &identity).map_err(|e| format!("no folder for the user: {e}"))?;
    }
    let plugins = Plugins::start(launch).map_err(|e| format!("no process for SPANK plugins: {e}"))?;
    become_user(&identity).map_err(|e| e.to_string())?;
    if root {
        // It holds files opened as root, so the user must not be able to trace it, whatever the machine's setting.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|e| format!("prctl: {e}"))?;
    }
    let umask = match &launch.program {
        Program::Tasks(program) => program.umask,
        Program::Batch | Program::Timer { .. } => launch.facts.spec.umask,
    };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask & 0o777));
    Ok((spared, plugins))
}

/// Finds a program as a task's is found. Err: the exit code of the task, and the reason.
pub(crate) fn find_in_path(name: &CStr, path: &[u8], here: &Path) -> Result<CString, (i32, String)> {
    find_program(name, path, here).map_err(|why| (why.code.into(), why.error))
}

/// Returns why a task's program was not executed: the exit code of the task, and the reason.
pub(crate) fn why_not(error: &SpawnError, name: &CStr, program: &CStr) -> (i32, String) {
    let why = NotFound::of(error, name, program);
    (why.code.into(), why.error)
}

/// Lets this process and its tasks see the job's own folders in place of the node's.
fn private_dirs(launch: &StepLaunch) -> std::io::Result<()> {
    fn path(bytes: &[u8]) -> &Path {
        Path::new(OsStr::from_bytes(bytes))
    }
    if launch.private.is_empty() {
        return Ok(());
    }
    let pairs: Vec<_> = launch.private.iter().map(|own| (path(&own.folder), path(&own.dir))).collect();
    lay_over(&pairs)
}

/// Runs the batch supervisor of the node with the folders of its steps in `steps`; returns its exit status.
fn run_batch_supervisor(steps: &Path) -> i32 {
    let ready = || {
        set_child_subreaper()?;
        if rustix::process::geteuid().is_root() {
            // Its `oom_score_adj` stays as it is: scripts would inherit the change, and it uses hardly any memory.
            let node = steps.parent().and_then(Path::file_name).unwrap_or_default();
            name_host(&node.to_string_lossy());
            rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        }
        batch_supervisor::BatchSupervisor::new(steps)
    };
    match ready() {
        Ok(supervisor) => supervisor.run(),
        Err(e) => {
            error!(folder = %steps.display(), error = %e, "the batch supervisor can't start");
            1
        }
    }
}

/// Gives this process the node's name as host name, if the machine has another one because several nodes share it.
fn name_host(node: &str) {
    if is_name_of_host(node) {
        return;
    }
    if let Err(e) = rename_for_me(node) {
        warn!(node, error = %e, "the host can't have the node's name");
    }
}
