//! Fields of a job that squeue can print: one table for `-o`, `-O` and `--helpformat`.

use std::fmt::{Display, Write};

use squall_model::duration::{Short, format_short, whole_minutes};
use squall_model::job::JobKind;
use squall_model::job::gpus::GpuCount;

use crate::format::Field;
use crate::format::job::{JobRow, as_given};
use crate::format::words;

/// Returns the text, or Slurm's word for a missing value: `(null)`.
fn null(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("(null)").to_owned()
}

fn add(text: &mut String, what: impl Display) {
    // Writing to a text can't fail.
    let _ = write!(text, "{what}");
}

fn none(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

fn na(text: Option<impl Into<String>>) -> String {
    text.map_or_else(|| "N/A".to_owned(), Into::into)
}

fn number(value: Option<u32>) -> String {
    na(value.map(|v| v.to_string()))
}

/// Formats the number of GPUs in an option as `gres/gpu:4`; `N/A` if the option isn't given.
fn gpus(given: Option<&GpuCount>) -> String {
    na(as_given(given).map(|count| format!("gres/gpu:{count}")))
}

/// Formats a minimum number; `*` if it is 0, which means any.
fn at_least(count: u32) -> String {
    if count == 0 { "*".to_owned() } else { count.to_string() }
}

/// Formats a number; `N/A` if it is 0.
fn some(count: u32) -> String {
    number(Some(count).filter(|count| *count > 0))
}

type F = Field<JobRow>;

/// Every field of a job that squeue can print.
pub static FIELDS: &[F] = &[
    F::new(&["Account"], 'a', "ACCOUNT", |j| null(Some(&j.class.account))),
    F::new(&["AccrueTime"], '\0', "ACCRUE_TIME", |j| j.clock.show_or(Some(j.info.eligible), "N/A")),
    F::new(&["admin_comment"], '\0', "ADMIN_COMMENT", |j| null(j.spec.options.notes.admin_comment.as_deref())),
    F::new(&["AllocNodes"], '\0', "ALLOC_NODES", |j| null(Some(&j.spec.submit_host))),
    F::new(&["AllocSID"], '\0', "ALLOC_SID", |_| "0".to_owned()),
    F::new(&["ArrayJobId"], 'F', "ARRAY_JOB_ID", |j| j.array_job().unwrap_or(j.info.id.0).to_string()),
    F::new(&["ArrayTaskId"], 'K', "ARRAY_TASK_ID", |j| na(j.array_task())),
    F::new(&["AssocId"], '\0', "ASSOC_ID", |_| "0".to_owned()),
    F::new(&["BatchFlag"], '\0', "BATCH_FLAG", |j| u32::from(j.is_batch()).to_string()),
    F::new(&["BatchHost"], 'B', "EXEC_HOST", |j| {
        if j.started() && !j.info.run().batch_host.is_empty() {
            j.info.run().batch_host.clone()
        } else {
            "n/a".to_owned()
        }
    }),
    F::new(&["BoardsPerNode"], '\0', "BOARDS_PER_NODE", |_| "N/A".to_owned()),
    F::new(&["BurstBuffer"], '\0', "BURST_BUFFER", |_| null(None)),
    F::new(&["BurstBufferState"], '\0', "BURST_BUFFER_STATE", |_| null(None)),
    F::new(&["Cluster"], '\0', "CLUSTER", |j| j.cluster.to_string()),
    F::new(&["ClusterFeature"], '\0', "CLUSTER_FEATURES", |_| null(None)),
    F::new(&["Command"], 'o', "COMMAND", |j| null(Some(&j.command()))),
    F::new(&["Comment"], 'k', "COMMENT", |j| null(j.spec.comment.as_deref())),
    F::new(&["Container"], '\0', "CONTAINER", |j| null(j.spec.options.bundle())),
    F::new(&["ContainerId"], '\0', "CONTAINERID", |_| null(None)),
    F::new(&["Contiguous"], 'O', "CONTIGUOUS", |j| u32::from(j.spec.need.contiguous).to_string()),
    F::new(&["Cores"], 'I', "CORES_PER_SOCKET", |j| at_least(j.spec.options.inside.cores)),
    F::new(&["CoreSpec"], 'X', "CORE_SPEC", |_| number(None)),
    F::new(&["cpus-per-task", "CPUsPerTask"], '\0', "CPUS_PER_TASK", |j| number(j.spec.need.cpus_per_task)),
    F::new(&["cpus-per-tres"], '\0', "CPUS_PER_TRES", |j| number(j.spec.options.gpus.cpus)),
    F::new(&["CronJob"], '\0', "CRON_JOB", |_| "No".to_owned()),
    F::new(&["Deadline"], '\0', "DEADLINE", |j| j.clock.show_or(j.spec.deadline, "N/A")),
    F::new(&["DelayBoot"], '\0', "DELAY_BOOT", |j| format_short(j.spec.options.delay_boot_s.unwrap_or(0))),
    F::new(&["Dependency"], 'E', "DEPENDENCY", |j| null(Some(&j.info.dependency))),
    F::new(&["DerivedEC"], '\0', "DERIVED_EC", |j| words::exit_code(j.info.run().derived_exit)),
    F::new(&["EligibleTime"], '\0', "ELIGIBLE_TIME", |j| j.clock.show_or(Some(j.info.eligible), "N/A")),
    F::new(&["EndTime"], 'e', "END_TIME", JobRow::end_time),
    F::new(&["Exclusive"], '\0', "EXCLUSIVE", |j| words::exclusive(&j.spec).to_owned()),
    F::new(&["ExcNodes"], 'x', "EXC_NODES", |j| none(j.spec.need.exclude.as_deref())),
    F::new(&["exit_code"], '\0', "EXIT_CODE", |j| words::exit_code(j.exit())),
    F::new(&["Feature"], 'f', "FEATURES", |j| null(j.spec.need.constraint.as_deref())),
    F::new(&["GroupId"], 'G', "GROUP", |j| j.owner.gid.to_string()),
    F::new(&["GroupName"], 'g', "GROUP", |j| j.owner.group.clone()),
    F::new(&["HetJobId", "PackJobId"], '\0', "HET_JOB_ID", |j| number(j.info.het.map(|het| het.leader.0))),
    F::new(&["HetJobIdSet", "PackJobIdSet"], '\0', "HET_JOB_ID_SET", |j| na(j.het_ids())),
    F::new(&["HetJobOffset", "PackJobOffset"], '\0', "HET_JOB_OFFSET", |j| {
        number(j.info.het.map(|het| het.offset(j.info.id)))
    }),
    F::quick(&["JobArrayId"], 'i', "JOBID", JobRow::add_array_id),
    F::new(&["JobId"], 'A', "JOBID", |j| j.info.id.to_string()),
    F::new(&["LastSchedEval"], '\0', "LAST_SCHED_EVAL", |j| j.clock.show_or(Some(j.info.eligible), "N/A")),
    F::new(&["Licenses"], 'W', "LICENSES", |j| null(j.spec.need.licenses.as_deref())),
    F::new(&["LicensesAlloc"], '\0', "LICENSES_ALLOC", |j| {
        null(j.spec.need.licenses.as_deref().filter(|_| j.started()))
    }),
    F::new(&["MaxCPUs"], '\0', "MAX_CPUS", |_| "0".to_owned()),
    F::new(&["MaxNodes"], '\0', "MAX_NODES", |j| j.spec.need.nodes_max.unwrap_or(0).to_string()),
    F::new(&["mem-per-tres"], '\0', "MEM_PER_TRES", |j| na(as_given(j.spec.options.gpus.memory_mb.as_ref()))),
    F::new(&["MCSLabel"], '\0', "MCSLABEL", |_| null(None)),
    F::new(&["MinCPUs"], 'c', "MIN_CPUS", |j| j.min_cpus().to_string()),
    F::new(&["MinMemory"], 'm', "MIN_MEMORY", JobRow::min_memory),
    F::new(&["MinTime"], '\0', "TIME_MIN", |j| na(j.spec.time_min_s.map(|s| format_short(whole_minutes(s))))),
    F::new(&["MinTmpDisk"], 'd', "MIN_TMP_DISK", |j| j.memory(j.spec.need.tmp_disk_mb)),
    F::quick(&["Name"], 'j', "NAME", |j, text| text.push_str(&j.spec.name)),
    F::new(&["Network"], '\0', "NETWORK", |j| null(as_given(j.spec.options.network.class.as_ref()))),
    F::new(&["Nice"], 'y', "NICE", |j| j.spec.nice.to_string()),
    F::quick(&["NodeList"], 'N', "NODELIST", |j, text| text.push_str(&j.info.run().nodes)).whole(),
    F::new(&["NTPerCore"], '\0', "NTASKS_PER_CORE", |j| some(j.spec.options.inside.tasks_per_core)),
    F::new(&["NTPerNode"], '\0', "NTASKS_PER_NODE", |j| number(j.spec.need.ntasks_per_node)),
    F::new(&["NTPerSocket"], '\0', "NTASKS_PER_SOCKET", |j| some(j.spec.options.inside.tasks_per_socket)),
    F::new(&["NTPerBoard"], '\0', "NTASKS_PER_BOARD", |_| "N/A".to_owned()),
    F::new(&["NumCPUs", "cpus"], 'C', "CPUS", |j| j.info.num_cpus.to_string()),
    F::quick(&["NumNodes"], 'D', "NODES", |j, text| add(text, j.info.num_nodes)),
    F::new(&["NumTasks"], '\0', "TASKS", |j| j.info.num_tasks.to_string()),
    F::new(&["Origin"], '\0', "ORIGIN", |_| "NA".to_owned()),
    F::new(&["OriginRaw"], '\0', "ORIGIN_RAW", |_| "NA".to_owned()),
    F::new(&["OverSubscribe", "Shared"], 'h', "OVER_SUBSCRIBE", |j| j.over_subscribe().to_owned()),
    F::quick(&["Partition"], 'P', "PARTITION", |j, text| text.push_str(&j.class.partition)),
    F::new(&["PendingTime"], '\0', "PENDING_TIME", |j| {
        let until = j.info.start.filter(|_| j.started()).unwrap_or(j.clock.now);
        until.secs().saturating_sub(j.info.submit.secs()).to_string()
    }),
    F::new(&["PreemptTime"], '\0', "PREEMPT_TIME", |_| "N/A".to_owned()),
    F::new(&["Prefer"], '\0', "PREFER", |j| null(j.spec.options.prefer.as_deref())),
    F::new(&["Priority"], 'p', "PRIORITY", |j| format!("{:.14}", f64::from(j.info.priority) / f64::from(u32::MAX))),
    F::new(&["PriorityLong"], 'Q', "PRIORITY", |j| j.info.priority.to_string()),
    F::new(&["Profile"], '\0', "PROFILE", |_| "NotSet".to_owned()),
    F::new(&["QOS"], 'q', "QOS", |j| null(Some(&j.class.qos))),
    F::new(&["Reason"], 'r', "REASON", JobRow::reason),
    F::quick(&["ReasonList"], 'R', "NODELIST(REASON)", JobRow::add_nodes_or_reason).whole(),
    F::new(&["Reboot"], '\0', "REBOOT", |j| u32::from(j.spec.options.reboots()).to_string()),
    F::new(&["ReqNodes"], 'n', "REQ_NODES", |j| none(j.spec.need.nodelist.as_deref())),
    F::new(&["ReqSwitch"], '\0', "REQ_SWITCH", |j| {
        as_given(j.spec.options.network.switches.as_ref()).unwrap_or("0").to_owned()
    }),
    F::new(&["Requeue"], '\0', "REQUEUE", |j| u32::from(requeue(j)).to_string()),
    F::new(&["Reservation"], 'v', "RESERVATION", |j| null(j.spec.reservation.as_deref())),
    F::new(&["ResizeTime"], '\0', "RESIZE_TIME", |_| "N/A".to_owned()),
    F::new(&["RestartCnt"], '\0', "RESTART_COUNT", |j| j.restarts().to_string()),
    F::new(&["Runtime"], '\0', "RUNTIME", |j| format_short(j.time_used())),
    F::new(&["SchedNodes"], 'Y', "SCHEDNODES", |j| null(Some(&j.expected_nodes))),
    F::new(&["SCT"], 'z', "S:C:T", |j| {
        let inside = &j.spec.options.inside;
        format!("{}:{}:{}", at_least(inside.sockets), at_least(inside.cores), at_least(inside.threads))
    }),
    F::new(&["SegmentSize"], '\0', "SEGMENT_SIZE", |j| number(j.spec.options.segment)),
    F::new(&["SelectJobInfo"], 's', "SELECT_JOBINFO", |_| String::new()),
    F::new(&["SiblingsActive"], '\0', "ACTIVE_SIBLINGS", |_| "NA".to_owned()),
    F::new(&["SiblingsActiveRaw"], '\0', "ACTIVE_SIBLINGS_RAW", |_| "NA".to_owned()),
    F::new(&["SiblingsViable"], '\0', "VIABLE_SIBLINGS", |_| "NA".to_owned()),
    F::new(&["SiblingsViableRaw"], '\0', "VIABLE_SIBLINGS_RAW", |_| "NA".to_owned()),
    F::new(&["Sockets"], 'H', "SOCKETS_PER_NODE", |j| at_least(j.spec.options.inside.sockets)),
    F::new(&["SPerBoard"], '\0', "SOCKETS_PER_BOARD", |_| "0".to_owned()),
    F::new(&["StartTime"], 'S', "START_TIME", |j| j.clock.show_or(j.start_shown(), "N/A")),
    F::quick(&["State"], 'T', "STATE", |j, text| text.push_str(j.state().0)).state(),
    F::quick(&["StateCompact"], 't', "ST", |j, text| text.push_str(j.state().1)).state(),
    F::new(&["StdErr"], '\0', "STDERR", JobRow::stderr),
    F::new(&["StdIn"], '\0', "STDIN", JobRow::stdin),
    F::new(&["StdOut", "output"], '\0', "STDOUT", JobRow::stdout),
    F::new(&["SubmitTime"], 'V', "SUBMIT_TIME", |j| j.clock.show_or(Some(j.info.submit), "N/A")),
    F::new(&["system_comment"], '\0', "SYSTEM_COMMENT", |_| null(None)),
    F::new(&["Threads"], 'J', "THREADS_PER_CORE", |j| at_least(j.spec.options.inside.threads)),
    F::new(&["TimeLeft"], 'L', "TIME_LEFT", JobRow::time_left),
    F::new(&["TimeLimit"], 'l', "TIME_LIMIT", JobRow::time_limit),
    F::quick(&["TimeUsed"], 'M', "TIME", |j, text| add(text, Short(j.time_used()))),
    F::new(&["tres-alloc", "Tres"], '\0', "TRES_ALLOC", JobRow::tres),
    F::new(&["tres-bind"], '\0', "TRES_BIND", |j| na(as_given(j.spec.options.gpus.bind.as_ref()))),
    F::new(&["tres-freq"], '\0', "TRES_FREQ", |j| na(j.spec.options.shown.gpu_freq.as_deref())),
    F::new(&["tres-per-job"], '\0', "TRES_PER_JOB", |j| gpus(j.spec.options.gpus.total.as_ref())),
    F::new(&["tres-per-node", "Gres"], 'b', "TRES_PER_NODE", |j| {
        na(Some(j.tres_per_node()).filter(|list| !list.is_empty()))
    }),
    F::new(&["tres-per-socket"], '\0', "TRES_PER_SOCKET", |j| na(as_given(j.spec.options.gpus.per_socket.as_ref()))),
    F::new(&["tres-per-task"], '\0', "TRES_PER_TASK", |j| gpus(j.spec.options.gpus.per_task.as_ref())),
    F::new(&["UserId"], 'U', "UID", |j| j.owner.uid.to_string()),
    F::quick(&["UserName"], 'u', "USER", |j, text| text.push_str(&j.owner.user)),
    F::new(&["Wait4Switch"], '\0', "WAIT4SWITCH", |_| "0".to_owned()),
    F::new(&["WCKey"], 'w', "WCKEY", |j| null(j.spec.wckey.as_deref())),
    F::new(&["WorkDir"], 'Z', "WORK_DIR", |j| null(Some(&j.spec.work_dir))),
];

/// Returns whether the job may be requeued.
pub fn requeue(job: &JobRow) -> bool {
    job.spec.kind == JobKind::Batch && job.spec.requeue.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::FIELDS;

    #[test]
    fn every_letter_is_given_and_every_name_is_given_once() {
        let mut letters: Vec<char> = FIELDS.iter().map(|f| f.letter).filter(|l| *l != '\0').collect();
        letters.sort_unstable();
        let all: Vec<char> = ('A'..='Z').chain('a'..='z').collect();
        assert_eq!(letters, all);
        let mut names: Vec<String> = FIELDS.iter().flat_map(|f| f.names).map(|n| n.to_lowercase()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
