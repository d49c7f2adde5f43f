//! Tests that words in answers are among those that Slurm lists, because clients refuse others.

use squall_model::config::PartitionState;
use squall_model::job::{EndState, JobState};
use squall_model::reservation::Flag;

use super::job::mail_type;
use crate::format::node::{Base, NodeState};
use crate::format::words::{partition_state_long, state_list};
use crate::options::table::job::MAIL_TYPES;

const JOB_STATES: &str = "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL \
    DEADLINE OUT_OF_MEMORY LAUNCH_FAILED REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESIZING CONFIGURING COMPLETING STOPPED \
    RECONFIG_FAIL POWER_UP_NODE REVOKED REQUEUE_FED RESV_DEL_HOLD SIGNALING STAGE_OUT";
const NODE_STATES: &str =
    "UNKNOWN DOWN IDLE ALLOCATED MIXED FUTURE RESERVED DRAIN COMPLETING NOT_RESPONDING FAIL MAINTENANCE";
const PARTITION_STATES: &str = "INACTIVE UNKNOWN UP DOWN DRAIN";
const MAIL: &str =
    "BEGIN END FAIL REQUEUE TIME=100% TIME=90% TIME=80% TIME=50% STAGE_OUT ARRAY_TASKS INVALID_DEPENDENCY";
const RESERVATION_FLAGS: &str = "MAINT DAILY WEEKLY IGNORE_JOBS ANY_NODES STATIC PART_NODES OVERLAP SPEC_NODES ALL_NODES \
    WEEKDAY WEEKEND FLEX NO_HOLD_JOBS_AFTER_END HOURLY";

fn listed(words: &[&str], all: &str) {
    for word in words {
        assert!(all.split_whitespace().any(|known| known == *word), "{word}");
    }
}

#[test]
fn states_flags_and_events_are_among_slurms() {
    let ends = [
        EndState::Completed,
        EndState::Failed,
        EndState::Cancelled { by: 0 },
        EndState::Timeout,
        EndState::NodeFail,
        EndState::OutOfMemory,
        EndState::Preempted,
        EndState::Deadline,
        EndState::BootFail,
        EndState::Requeued,
    ];
    let going = [JobState::Pending, JobState::Running, JobState::Suspended].into_iter();
    for state in going.chain(ends.map(JobState::Completing)).chain(ends.map(JobState::Ended)) {
        listed(&state_list(state), JOB_STATES);
    }
    for base in [Base::Unknown, Base::Down, Base::Idle, Base::Allocated, Base::Mixed] {
        let all =
            NodeState { silent: true, drain: true, fail: true, completing: true, reserved: true, maint: true, base };
        listed(&all.list(), NODE_STATES);
    }
    for state in [PartitionState::Up, PartitionState::Down, PartitionState::Drain, PartitionState::Inactive] {
        listed(&[partition_state_long(state)], PARTITION_STATES);
    }
    for event in MAIL_TYPES {
        listed(&mail_type(event).iter().map(String::as_str).collect::<Vec<_>>(), MAIL);
    }
    listed(&Flag::NAMES.map(|(name, _)| name), RESERVATION_FLAGS);
}
