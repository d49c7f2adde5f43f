//! How a running job is preempted, by cluster, partition or QOS.

use squall_model::policy::{PreemptMode, PreemptType};

use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::job::{Job, Run};

/// How a job is preempted: the mode, the seconds of grace time, and the seconds after its start in which it can't be
/// preempted. Grace and exempt time do not apply to jobs that are only suspended.
pub(crate) struct Terms {
    pub(crate) mode: PreemptMode,
    pub(crate) grace_s: u64,
    pub(crate) exempt_s: u64,
}

/// Returns how a running job is preempted.
pub(crate) fn terms(state: &State, job: &Job, run: &Run) -> Terms {
    let config = &state.config;
    let exempt_s = config.preempt_exempt_time_s.0;
    match (config.preempt_type, gates::qos_of(state, &job.spec), state.partition(&run.partition)) {
        (PreemptType::Qos, Some(qos), _) => Terms {
            mode: qos.preempt_mode.unwrap_or(config.preempt_mode.way),
            grace_s: qos.grace_s,
            exempt_s: qos.exempt_s.unwrap_or(exempt_s),
        },
        (PreemptType::Partition, _, Some(partition)) => Terms {
            mode: config.preempt_mode_of(&partition.config),
            grace_s: partition.config.grace_time_s.0,
            exempt_s,
        },
        _ => Terms { mode: config.preempt_mode.way, grace_s: 0, exempt_s },
    }
}
