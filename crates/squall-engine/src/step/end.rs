//! What one task came to, and what all of them come to together.

use squall_model::job::{ExitCode, Usage};

/// One task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) rank: u32,
    pub(super) pid: Option<u32>,
    pub(super) exit: Option<ExitCode>,
    /// It ended because we ended it: its status says nothing about it.
    pub(super) by_us: bool,
    /// It ended after it was told to, and because of that.
    pub(super) told: bool,
    pub(super) usage: Usage,
}

impl Task {
    pub(super) fn new(rank: u32) -> Self {
        Self { rank, pid: None, exit: None, by_us: false, told: false, usage: Usage::default() }
    }
}

/// Slurm's rule for the exit of a step: tasks that we killed don't count; the first that died by a signal
/// decides, else the highest exit code; if we killed all, the first task's.
pub(super) fn exit_of(tasks: &[Task]) -> ExitCode {
    let own = || tasks.iter().filter(|t| !t.by_us).filter_map(|t| t.exit);
    own()
        .find(|e| e.signal != 0)
        .or_else(|| own().max_by_key(|e| e.code))
        .or_else(|| tasks.first().and_then(|t| t.exit))
        .unwrap_or_default()
}
