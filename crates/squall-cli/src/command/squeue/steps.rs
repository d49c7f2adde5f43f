//! `squeue --steps`: fields of a step that can be printed.

use std::rc::Rc;

use squall_model::duration::format_short;
use squall_model::wire::info::StepInfo;

use squall_text::format::Field;
use squall_text::format::job::{JobRow, limit_text};

/// A row of `squeue --steps`: a step and its job.
pub(crate) struct StepRow {
    /// The step that the row is about.
    pub(crate) step: StepInfo,
    /// The job to which the step belongs.
    pub(crate) job: Rc<JobRow>,
}

impl StepRow {
    /// Returns the step's id: `123.0` or `123_4.0`.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.job.array_id(), self.step.step)
    }

    fn seconds(&self) -> u64 {
        let until = self.step.end.as_ref().map_or(self.job.clock.now, |(at, _)| *at);
        until.secs().saturating_sub(self.step.start.secs())
    }
}

type F = Field<StepRow>;

/// Every field of a step that squeue can print.
pub(crate) static FIELDS: &[F] = &[
    F::new(&["ArrayJobId"], 'F', "ARRAY_JOB_ID", |s| s.job.array_job().unwrap_or(s.job.info.id.0).to_string()),
    F::new(&["ArrayTaskId"], 'K', "ARRAY_TASK_ID", |s| s.job.array_task().unwrap_or_else(|| "N/A".to_owned())),
    F::new(&["Cluster"], '\0', "CLUSTER", |s| s.job.cluster.to_string()),
    F::new(&["JobId"], '\0', "JOB_ID", |s| s.job.info.id.to_string()),
    F::new(&["Nodes"], 'N', "NODELIST", |s| s.step.nodes.clone()).whole(),
    F::new(&["NumCPUs"], '\0', "NUM_CPUS", |s| s.step.num_cpus.to_string()),
    F::new(&["NumTasks"], 'A', "TASKS", |s| s.step.num_tasks.to_string()),
    F::new(&["Partition"], 'P', "PARTITION", |s| s.job.class.partition.clone()),
    F::new(&["Runtime"], '\0', "RUNTIME", |s| format_short(s.seconds())),
    F::new(&["StartTime"], 'S', "START_TIME", |s| s.job.clock.show(s.step.start)),
    F::new(&["StepId"], 'i', "STEPID", StepRow::id),
    F::new(&["StepName"], 'j', "NAME", |s| s.step.name.clone()),
    F::new(&["StepState"], '\0', "STATE", |s| {
        s.step.end.as_ref().map_or("RUNNING", |(_, how)| squall_text::format::words::end(how.state).0).to_owned()
    })
    .state(),
    F::new(&["TimeLimit"], 'l', "TIME_LIMIT", |s| limit_text(s.step.time_limit_s)),
    F::new(&["TimeUsed"], 'M', "TIME", |s| format_short(s.seconds())),
    F::new(&["tres-per-node", "Gres"], 'b', "TRES_PER_NODE", |_| "N/A".to_owned()),
    F::new(&["UserId"], 'U', "UID", |s| s.job.owner.uid.to_string()),
    F::new(&["UserName"], 'u', "USER", |s| s.job.owner.user.clone()),
];
