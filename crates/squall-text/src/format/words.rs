//! Slurm's names for states, codes, reasons and versions.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use squall_model::config::{PartitionState, Release};
use squall_model::job::{EndState, ExitCode, JobSpec, JobState, Outcome, PendingReason};
use squall_model::policy::PreemptMode;
use squall_model::wire::client::StateFilter;

use crate::options::values::signal::signal_text;

/// Place of the release that this process shows, in [`Release::ALL`].
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Sets the release of Slurm that this process shows, which is 24.05 before.
pub fn show_release(release: Release) {
    SHOWN.store(release as usize, Ordering::Relaxed);
}

/// Returns the release of Slurm that this process shows.
pub fn release() -> Release {
    Release::ALL.get(SHOWN.load(Ordering::Relaxed)).copied().unwrap_or_default()
}

/// Returns the version of Slurm that a release stands for: major, minor, micro.
pub fn version_of(release: Release) -> (u32, u32, u32) {
    match release {
        Release::V24 => (24, 5, 8),
        Release::V25 => (25, 11, 7),
        Release::V26 => (26, 5, 3),
    }
}

/// Returns whether others may run on the CPUs of a job.
pub fn over_subscribe(spec: &JobSpec) -> &'static str {
    match (spec.need.exclusive, spec.need.oversubscribe) {
        _ if spec.keeps_others_off() => "USER",
        _ if spec.keeps_blocks() => "TOPO",
        (true, _) => "NO",
        (false, true) => "YES",
        (false, false) => "OK",
    }
}

/// Returns which other jobs may have the nodes of a job, as Slurm 25.11 says it.
pub fn exclusive(spec: &JobSpec) -> &'static str {
    match () {
        () if spec.keeps_others_off() => "USER",
        () if spec.keeps_blocks() => "TOPO",
        () if spec.need.exclusive => "NODE",
        () => "NO",
    }
}

/// Returns the version of Slurm that is shown as text: `24.05.8`.
pub fn slurm_version() -> String {
    let (major, minor, micro) = version_of(release());
    format!("{major}.{minor:02}.{micro}")
}

/// Returns Slurm's name of a preemption mode.
pub fn preempt_mode(mode: PreemptMode) -> &'static str {
    match mode {
        PreemptMode::Off => "OFF",
        PreemptMode::Cancel => "CANCEL",
        PreemptMode::Requeue => "REQUEUE",
        PreemptMode::Suspend => "GANG,SUSPEND",
        PreemptMode::Checkpoint => "CHECKPOINT",
    }
}

/// States that a filter may name: long name, short code, and the filter. `Never`: Squall has no such state.
pub const STATES: &[(&str, &str, StateFilter)] = &[
    ("PENDING", "PD", StateFilter::Pending),
    ("RUNNING", "R", StateFilter::Running),
    ("SUSPENDED", "S", StateFilter::Suspended),
    ("COMPLETED", "CD", StateFilter::Completed),
    ("CANCELLED", "CA", StateFilter::Cancelled),
    ("FAILED", "F", StateFilter::Failed),
    ("TIMEOUT", "TO", StateFilter::Timeout),
    ("NODE_FAIL", "NF", StateFilter::NodeFail),
    ("PREEMPTED", "PR", StateFilter::Preempted),
    ("BOOT_FAIL", "BF", StateFilter::BootFail),
    ("DEADLINE", "DL", StateFilter::Deadline),
    ("OUT_OF_MEMORY", "OOM", StateFilter::OutOfMemory),
    ("COMPLETING", "CG", StateFilter::Completing),
    ("REQUEUED", "RQ", StateFilter::Requeued),
    ("CONFIGURING", "CF", StateFilter::Configuring),
    ("POWER_UP_NODE", "PN", StateFilter::Never),
    ("RECONFIG_FAIL", "RC", StateFilter::Never),
    ("LAUNCH_FAILED", "LF", StateFilter::Never),
    ("RESIZING", "RS", StateFilter::Never),
    ("RESV_DEL_HOLD", "RD", StateFilter::Never),
    ("REQUEUE_FED", "RF", StateFilter::Never),
    ("REQUEUE_HOLD", "RH", StateFilter::Never),
    ("REVOKED", "RV", StateFilter::Never),
    ("SIGNALING", "SI", StateFilter::Never),
    ("SPECIAL_EXIT", "SE", StateFilter::SpecialExit),
    ("STAGE_OUT", "SO", StateFilter::Never),
    ("STOPPED", "ST", StateFilter::Never),
    ("UPDATE_DB", "UD", StateFilter::Never),
    ("EXPEDITING", "EX", StateFilter::Never),
];

/// Returns the filter for a state given by its long name or code. None: unknown.
pub fn state_filter(text: &str) -> Option<StateFilter> {
    let text = if text.eq_ignore_ascii_case("CANCELED") { "CANCELLED" } else { text };
    STATES
        .iter()
        .find(|(long, code, _)| long.eq_ignore_ascii_case(text) || code.eq_ignore_ascii_case(text))
        .map(|(_, _, filter)| *filter)
}

/// Returns long name and short code of an end state.
pub fn end(state: EndState) -> (&'static str, &'static str) {
    let code = match state {
        EndState::Completed => "CD",
        EndState::Failed => "F",
        EndState::Cancelled { .. } => "CA",
        EndState::Timeout => "TO",
        EndState::NodeFail => "NF",
        EndState::OutOfMemory => "OOM",
        EndState::Preempted => "PR",
        EndState::Deadline => "DL",
        EndState::BootFail => "BF",
        EndState::Requeued => "RQ",
    };
    (state.name(), code)
}

/// Returns long name and short code of a state, as squeue and scontrol print them.
pub fn state(state: JobState) -> (&'static str, &'static str) {
    let code = match state {
        JobState::Pending => "PD",
        JobState::Running => "R",
        JobState::Suspended => "S",
        JobState::Configuring => "CF",
        JobState::Completing(_) => "CG",
        JobState::Ended(how) => end(how).1,
    };
    (state.name(), code)
}

/// Returns a state as a list of base state and flags, as in JSON.
pub fn state_list(of: JobState) -> Vec<&'static str> {
    match of {
        JobState::Completing(how) => vec![end(how).0, "COMPLETING"],
        JobState::Configuring => vec!["RUNNING", "CONFIGURING"],
        other => vec![state(other).0],
    }
}

/// Returns the state as sacct prints it: with the id of the user who cancelled the job, and never COMPLETING.
pub fn accounting_state(of: JobState) -> String {
    match of {
        JobState::Completing(EndState::Cancelled { by }) | JobState::Ended(EndState::Cancelled { by })
            if by != EndState::NOBODY =>
        {
            format!("CANCELLED by {by}")
        }
        JobState::Completing(how) | JobState::Ended(how) => end(how).0.to_owned(),
        JobState::Configuring => state(JobState::Running).0.to_owned(),
        other => state(other).0.to_owned(),
    }
}

/// Returns the rank of a state in sorted lists.
pub fn state_order(of: JobState) -> u32 {
    match of {
        JobState::Pending => 0,
        JobState::Running | JobState::Configuring => 1,
        JobState::Suspended => 2,
        JobState::Completing(_) => 20,
        JobState::Ended(how) => match how {
            EndState::Completed => 3,
            EndState::Cancelled { .. } => 4,
            EndState::Failed => 5,
            EndState::Timeout => 6,
            EndState::NodeFail => 7,
            EndState::Preempted => 8,
            EndState::BootFail => 9,
            EndState::Deadline => 10,
            EndState::OutOfMemory => 11,
            EndState::Requeued => 12,
        },
    }
}

/// Returns Slurm's name of the reason why a job is pending, or ours of why a running one waits.
pub fn pending_reason(reason: &PendingReason) -> &'static str {
    match reason {
        PendingReason::None => "None",
        PendingReason::Priority => "Priority",
        PendingReason::Resources => "Resources",
        PendingReason::Dependency => "Dependency",
        PendingReason::DependencyNeverSatisfied => "DependencyNeverSatisfied",
        PendingReason::BeginTime => "BeginTime",
        PendingReason::JobHeldUser | PendingReason::RequeuedHeld | PendingReason::SpecialExit => "JobHeldUser",
        PendingReason::JobHeldAdmin => "JobHeldAdmin",
        PendingReason::JobArrayTaskLimit => "JobArrayTaskLimit",
        PendingReason::PartitionNodeLimit => "PartitionNodeLimit",
        PendingReason::PartitionConfig => "PartitionConfig",
        PendingReason::PartitionTimeLimit => "PartitionTimeLimit",
        PendingReason::PartitionDown => "PartitionDown",
        PendingReason::PartitionInactive => "PartitionInactive",
        PendingReason::ReqNodeNotAvail | PendingReason::NodesNotAvail(_) => "ReqNodeNotAvail",
        PendingReason::BadConstraints => "BadConstraints",
        PendingReason::LaunchFailed(_) => "JobLaunchFailure",
        PendingReason::JobHoldMaxRequeue => "JobHoldMaxRequeue",
        PendingReason::Cleaning => "Cleaning",
        PendingReason::Licenses => "Licenses",
        PendingReason::Reservation => "Reservation",
        PendingReason::ReservationDeleted => "ReservationDeleted",
        PendingReason::Limit(whose, limit) => crate::limits::limit_reason(*whose, *limit),
        PendingReason::NodeNotResponding => "NodeNotResponding",
        PendingReason::NodeToBeReplaced => "NodeToBeReplaced",
        PendingReason::Checkpointed => "Checkpointed",
        PendingReason::UsageThreshold => "QOSUsageThreshold",
    }
}

/// Returns why a job is pending as squeue prints it: Slurm's description, or the name of the reason without one.
pub fn pending_text(reason: &PendingReason) -> Cow<'static, str> {
    match reason {
        PendingReason::RequeuedHeld | PendingReason::SpecialExit => Cow::Borrowed("job requeued in held state"),
        PendingReason::NodesNotAvail(nodes) => Cow::Owned(format!("ReqNodeNotAvail, UnavailableNodes:{nodes}")),
        _ => Cow::Borrowed(pending_reason(reason)),
    }
}

/// Returns Slurm's name of the reason why a job ended; `None`: no reason.
pub fn end_reason(outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else { return "None".to_owned() };
    if let Some(reason) = &outcome.reason {
        return reason.clone();
    }
    match outcome.state {
        EndState::Failed if outcome.exit.code != 0 => "NonZeroExitCode",
        EndState::Failed if outcome.exit.signal != 0 => {
            let number = outcome.exit.signal;
            return format!("RaisedSignal:{number}({})", signal_text(i32::from(number)).replace(' ', "_"));
        }
        EndState::Timeout => "TimeLimit",
        EndState::OutOfMemory => "OutOfMemory",
        EndState::NodeFail => "NodeDown",
        EndState::Deadline => "DeadLine",
        EndState::BootFail => "JobLaunchFailure",
        _ => "None",
    }
    .to_owned()
}

/// Returns the text of `--version`.
pub fn version() -> String {
    format!("slurm {}\n", slurm_version())
}

/// Formats exit code and signal: `0:0`.
pub fn exit_code(exit: ExitCode) -> String {
    format!("{}:{}", exit.code, exit.signal)
}

/// Returns the name of a partition's state: `up`, `down`, `drain`, `inact`.
pub fn partition_state(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "up",
        PartitionState::Down => "down",
        PartitionState::Drain => "drain",
        PartitionState::Inactive => "inact",
    }
}

/// Returns the name of a state: `UP`, `DOWN`, `DRAIN`, `INACTIVE`.
pub fn partition_state_long(of: PartitionState) -> &'static str {
    match of {
        PartitionState::Up => "UP",
        PartitionState::Down => "DOWN",
        PartitionState::Drain => "DRAIN",
        PartitionState::Inactive => "INACTIVE",
    }
}

#[cfg(test)]
mod tests {
    use squall_model::job::{EndState, ExitCode, JobState, Outcome};
    use squall_model::wire::client::StateFilter;

    use super::{STATES, accounting_state, end_reason, slurm_version, state_filter, state_list};

    #[test]
    fn states_by_either_name() {
        assert_eq!(state_filter("pd"), Some(StateFilter::Pending));
        assert_eq!(state_filter("Out_Of_Memory"), Some(StateFilter::OutOfMemory));
        assert_eq!(state_filter("CANCELED"), Some(StateFilter::Cancelled));
        assert_eq!(state_filter("x"), None);
        for code in "BF CA CD CF CG DL F NF OOM PD PR R RD RF RH RQ RS RV S SE SI SO ST TO".split(' ') {
            assert!(state_filter(code).is_some(), "{code}");
        }
        assert!(STATES.iter().all(|(long, code, _)| state_filter(long) == state_filter(code)));
    }

    #[test]
    fn texts() {
        assert_eq!(slurm_version(), "24.05.8");
        assert_eq!(accounting_state(JobState::Ended(EndState::Cancelled { by: 1000 })), "CANCELLED by 1000");
        assert_eq!(state_list(JobState::Completing(EndState::Failed)), ["FAILED", "COMPLETING"]);
        let failed = |exit| end_reason(Some(&Outcome { state: EndState::Failed, exit, reason: None }));
        assert_eq!(failed(ExitCode { code: 0, signal: 9 }), "RaisedSignal:9(Killed)");
        assert_eq!(failed(ExitCode { code: 0, signal: 53 }), "RaisedSignal:53(Real-time_signal_19)");
        assert_eq!(failed(ExitCode { code: 2, signal: 0 }), "NonZeroExitCode");
    }
}
