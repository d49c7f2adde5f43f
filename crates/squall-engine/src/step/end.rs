//! Exit of one task, and of a whole step.

use squall_model::job::{ExitCode, Usage};

/// State of one task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) rank: u32,
    pub(super) pid: Option<u32>,
    pub(super) exit: Option<ExitCode>,
    /// Whether the step machine ended the task, so that the task's exit does not count.
    pub(super) by_us: bool,
    /// Whether the task ended after the step was told to end, and because of that request.
    pub(super) told: bool,
    pub(super) usage: Usage,
}

impl Task {
    pub(super) fn new(rank: u32) -> Self {
        Self { rank, pid: None, exit: None, by_us: false, told: false, usage: Usage::default() }
    }
}

/// Returns the exit of a step by Slurm's rule. Tasks that the step machine killed do not count. The first task that
/// died by a signal decides, otherwise the highest exit code. If all were killed, the first task's exit counts.
pub(super) fn exit_of(tasks: &[Task]) -> ExitCode {
    let own = || tasks.iter().filter(|t| !t.by_us).filter_map(|t| t.exit);
    own()
        .find(|e| e.signal != 0)
        .or_else(|| own().max_by_key(|e| e.code))
        .or_else(|| tasks.first().and_then(|t| t.exit))
        .unwrap_or_default()
}
