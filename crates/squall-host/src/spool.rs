//! The spool of a node: what survives a kill -9 of its daemon, and the contract with its step daemons.
//!
//! `DIR/node/NAME/` holds `incarnation`, `life`, `session`, `jobs/JOB.ATTEMPT` (marks of jobs without a batch script here)
//! and `steps/JOB.ATTEMPT.STEP/` (one folder for each step). A step's folder is complete when it gets its name, and
//! holds:
//!
//! | file | written by | holds |
//! |---|---|---|
//! | `launch` | node daemon | one frame (`model::codec`): the `StepLaunch` |
//! | `slurm_script`, `environment` | node daemon | content of the two blobs (batch only); the script belongs to the user, mode 0500 |
//! | `cgroups` | node daemon | the cgroup folders for the tasks (`cgroup::StepGroups::read`); no lines: none |
//! | `result` | node daemon, then step daemon | [`RESULT_BYTES`] zero bytes, over which the step daemon writes, in place, one frame of `FromStepd::Ended` or `FromStepd::Failed` before it sends it |
//! | `pids` | step daemon | created with `O_EXCL` before the first task is forked: who fails to create it exits without a trace, so that no step starts twice; then a line `RANK PID START` for each task (start: field 22 of /proc/PID/stat) |
//! | `sock` | step daemon | where it listens for the node daemon, from its very start |
//! | `log` | step daemon | its standard error; goes into the node's log when the folder is removed |
//!
//! The step daemon is started as `squall step --spool FOLDER`, as root or the cluster's owner, with an empty environment,
//! in a session of its own, with `/dev/null` as standard input and output and `log` as standard error. It opens what it needs of the
//! folder before it drops privileges, is a child subreaper (so that what its tasks leave behind becomes its child and, should it die,
//! the node daemon's), and gives each task the variable [`TASK_MARK`] with the absolute path of the folder.

/// Name of the variable in each task's environment that holds the absolute path of its step's spool folder:
/// how processes that hid from cgroup, session and parent are found.
pub const TASK_MARK: &str = "SQUALL_STEP";

/// The room reserved for a step's result, bytes, frame header included; a longer note is cut.
pub const RESULT_BYTES: usize = 4096;

/// Names of the files in a step's folder.
pub mod file {
    /// The launch.
    pub const LAUNCH: &str = "launch";
    /// The batch script.
    pub const SCRIPT: &str = "slurm_script";
    /// The batch job's environment: entries ended by NUL.
    pub const ENVIRONMENT: &str = "environment";
    /// Cgroup folders.
    pub const CGROUPS: &str = "cgroups";
    /// The result.
    pub const RESULT: &str = "result";
    /// Tasks started.
    pub const PIDS: &str = "pids";
    /// The step daemon's socket.
    pub const SOCK: &str = "sock";
    /// The step daemon's standard error.
    pub const LOG: &str = "log";
}
