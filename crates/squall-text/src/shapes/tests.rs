//! Tests that words in answers are among those that Slurm lists, because clients refuse others.

use serde_json::{Value, json};
use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::event::NodeAdmin;
use squall_model::gang::OverSubscribe;
use squall_model::job::{EndState, JobState};
use squall_model::policy::PreemptMode;
use squall_model::power::{PowerPhase, PowerWish};
use squall_model::reservation::{Flag, Reservation};
use squall_model::resource::Hardware;
use squall_model::wire::info::{NodeInfo, PartitionInfo, SpecResources};

use super::job::mail_type;
use super::node::node;
use super::partition::partition;
use super::{AnswerKind, Version, record};
use crate::format::node::{Base, NodeState};
use crate::format::words::{partition_state_long, state_list};
use crate::options::table::job::MAIL_TYPES;

const JOB_STATES: &str = "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL \
    DEADLINE OUT_OF_MEMORY LAUNCH_FAILED REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESIZING CONFIGURING COMPLETING STOPPED \
    RECONFIG_FAIL POWER_UP_NODE REVOKED REQUEUE_FED RESV_DEL_HOLD SIGNALING STAGE_OUT";
const NODE_STATES: &str = "UNKNOWN DOWN IDLE ALLOCATED MIXED FUTURE RESERVED DRAIN COMPLETING NOT_RESPONDING FAIL MAINTENANCE \
    REBOOT_REQUESTED REBOOT_ISSUED CLOUD POWERED_DOWN POWERING_UP POWERING_DOWN POWER_DOWN POWER_UP POWER_DRAIN";
const PARTITION_STATES: &str = "INACTIVE UNKNOWN UP DOWN DRAIN";
const MAIL: &str =
    "BEGIN END FAIL REQUEUE TIME=100% TIME=90% TIME=80% TIME=50% STAGE_OUT ARRAY_TASKS INVALID_DEPENDENCY";
const RESERVATION_FLAGS: &str = "MAINT DAILY WEEKLY IGNORE_JOBS ANY_NODES STATIC PART_NODES OVERLAP SPEC_NODES ALL_NODES \
    WEEKDAY WEEKEND FLEX NO_HOLD_JOBS_AFTER_END HOURLY TIME_FLOAT REPLACE PURGE_COMP MAGNETIC USER_DELETE";

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
    let going = [JobState::Pending, JobState::Running, JobState::Configuring, JobState::Suspended].into_iter();
    for state in going.chain(ends.map(JobState::Completing)).chain(ends.map(JobState::Ended)) {
        listed(&state_list(state), JOB_STATES);
    }
    for base in [Base::Unknown, Base::Down, Base::Idle, Base::Allocated, Base::Mixed, Base::Future] {
        for power in [PowerPhase::On, PowerPhase::GoingDown, PowerPhase::Off, PowerPhase::GoingUp] {
            for wish in [None, Some(PowerWish::Up), Some(PowerWish::Down)] {
                let all = NodeState {
                    silent: true,
                    drain: true,
                    fail: true,
                    completing: true,
                    reserved: true,
                    maint: true,
                    reboot: true,
                    rebooting: true,
                    power,
                    wish,
                    cloud: true,
                    base,
                };
                listed(&all.list(), NODE_STATES);
            }
        }
    }
    for state in [PartitionState::Up, PartitionState::Down, PartitionState::Drain, PartitionState::Inactive] {
        listed(&[partition_state_long(state)], PARTITION_STATES);
    }
    for event in MAIL_TYPES {
        listed(&mail_type(event).iter().map(String::as_str).collect::<Vec<_>>(), MAIL);
    }
    let all = Flag::NAMES.into_iter().map(|(_, flag)| flag).collect();
    listed(&super::reservation::flags(&Reservation { flags: all, ..Reservation::default() }), RESERVATION_FLAGS);
}

#[test]
fn a_partition_has_its_own_times_of_power_saving() {
    let shown = |resume_timeout_s, suspend_timeout_s, suspend_time_s| {
        let config =
            PartitionConfig { resume_timeout_s, suspend_timeout_s, suspend_time_s, ..PartitionConfig::default() };
        let (preempt_mode, nodes) = (PreemptMode::Off, String::new());
        let info = PartitionInfo { config, preempt_mode, nodes, num_nodes: 0, num_cpus: 0, billing: None };
        let bytes = record(Version::V41, AnswerKind::Partitions, partition(&info, "c"));
        let shown = serde_json::from_slice::<Value>(&bytes).expect("it is JSON");
        (shown["timeouts"].clone(), shown["suspend_time"].clone())
    };
    let number = |value: u64| json!({"set": true, "infinite": false, "number": value});
    let unset = || json!({"set": false, "infinite": false, "number": 0});
    let (timeouts, time) = shown(Some(900), Some(60), Some(300));
    assert_eq!((timeouts, time), (json!({"resume": number(900), "suspend": number(60)}), number(300)));
    let (timeouts, time) = shown(None, None, None);
    assert_eq!((timeouts, time), (json!({"resume": unset(), "suspend": unset()}), unset()));
    assert_eq!(shown(None, None, Some(-1)).1["infinite"], true);
}

#[test]
fn what_a_site_limits_and_keeps_stands_in_its_fields() {
    let config = PartitionConfig {
        max_cpus_per_node: Some(24),
        max_cpus_per_socket: Some(12),
        def_mem_per_cpu_mb: 100,
        max_mem_per_node_mb: 4000,
        oversubscribe: OverSubscribe::Force(4),
        ..PartitionConfig::default()
    };
    let (preempt_mode, nodes) = (PreemptMode::Off, String::new());
    let written =
        |kind, value| serde_json::from_slice::<Value>(&record(Version::V41, kind, value)).expect("it is JSON");
    let info = PartitionInfo { config, preempt_mode, nodes, num_nodes: 0, num_cpus: 0, billing: None };
    let shown = partition(&info, "c");
    let shown = written(AnswerKind::Partitions, shown);
    let number = |value: u64| json!({"set": true, "infinite": false, "number": value});
    let most = &shown["maximums"];
    assert_eq!((&most["cpus_per_node"], &most["cpus_per_socket"]), (&number(24), &number(12)));
    assert_eq!(most["oversubscribe"], json!({"jobs": 4, "flags": ["force"]}));
    assert_eq!(most["partition_memory_per_node"], number(4000));
    assert_eq!(shown["defaults"]["partition_memory_per_cpu"], number(100));
    assert_eq!(shown["defaults"]["partition_memory_per_node"]["set"], false);
    let hardware = Hardware { cpus: 30, memory_mb: 3000, ..Hardware::default() };
    let kept = Some(SpecResources { cores: 1, cpus: 2, cpu_list: String::new(), memory_mb: 1000 });
    let of = |next| {
        let info = NodeInfo { hardware: hardware.clone().into(), kept: kept.clone(), next, ..NodeInfo::default() };
        written(AnswerKind::Nodes, node(&info, "c", &|uid| uid.to_string()))
    };
    let shown = of(Some(NodeAdmin::Drain));
    assert_eq!((&shown["cpus"], &shown["effective_cpus"]), (&json!(32), &json!(30)));
    assert_eq!((&shown["real_memory"], &shown["specialized_memory"]), (&json!(4000), &json!(1000)));
    assert_eq!(
        (&shown["specialized_cores"], &shown["next_state_after_reboot"]),
        (&json!(1), &json!(["IDLE", "DRAIN"]))
    );
    assert_eq!(of(None)["next_state_after_reboot"], json!([]));
}
