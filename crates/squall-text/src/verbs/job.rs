//! `scontrol update job` and the body of `job/{job_id}`.

use squall_model::duration::parse_limit;
use squall_model::job::network;
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;
use squall_model::wire::client::JobUpdate;

use super::key::Set::{Length, Limit, Memory as Size, Number, Optional, Own, Text, Time, Truth};
use super::key::{Bad, Key, key};
use crate::options::values::dependency::dependency;
use crate::options::values::number::node_count;

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<JobUpdate>] = &[
    key(&[("TimeLimit", 5)], "time_limit", Limit(|job, limit| job.time_limit_s = Some(limit))),
    key(&[("JobName", 4), ("Name", 2)], "name", Text(|job, name| job.name = Some(name))),
    key(&[("Priority", 2)], "priority", Number(|job, priority| job.priority = Some(priority))),
    key(&[("Nice", 2)], "nice", Own(nice)),
    key(&[("ArrayTaskThrottle", 10)], "", Number(|job, most| job.array_limit = Some(Some(most).filter(|n| *n > 0)))),
    key(&[("NumTasks", 8), ("ReqProcs", 8)], "tasks", Number(|job, count| job.ntasks = Some(count))),
    key(&[("CPUsPerTask", 9), ("NumCPUs", 6)], "cpus_per_task", Number(|job, count| job.cpus_per_task = Some(count))),
    key(&[("Requeue", 4)], "requeue", Truth(|job, yes| job.requeue = Some(yes))),
    key(&[("DelayBoot", 5)], "delay_boot", Length(|job, limit| job.delay_boot_s = Some(limit.unwrap_or(UNLIMITED_S)))),
    key(&[("Reboot", 3)], "reboot", Truth(|job, yes| job.reboot = Some(yes))),
    key(&[("Contiguous", 3)], "contiguous", Truth(|job, yes| job.contiguous = Some(yes))),
    key(
        &[("OverSubscribe", 2), ("Shared", 2)],
        "oversubscribe",
        Truth(|job, yes| job.oversubscribe = Some((yes, !yes))),
    ),
    key(&[("MinCPUsNode", 6)], "minimum_cpus_per_node", Number(|job, count| job.cpus_min = Some(count))),
    key(&[("MinTmpDiskNode", 5)], "temporary_disk_per_node", Size(|job, mb| job.tmp_disk_mb = Some(mb))),
    key(&[("TasksPerNode", 2)], "tasks_per_node", Number(|job, count| job.ntasks_per_node = Some(count))),
    key(&[("MinMemoryCPU", 10)], "memory_per_cpu", Size(|job, mb| job.memory = Some(Memory::PerCpuMb(mb)))),
    key(&[("MinMemoryNode", 10)], "memory_per_node", Size(|job, mb| job.memory = Some(Memory::PerNodeMb(mb)))),
    key(&[("Comment", 3)], "comment", Text(|job, text| job.comment = Some(text))),
    key(&[("Partition", 2)], "partition", Text(|job, name| job.partition = Some(name))),
    key(&[("QOS", 2)], "qos", Text(|job, name| job.qos = Some(name))),
    key(&[("Account", 1)], "account", Text(|job, name| job.account = Some(name))),
    key(&[("ExcNodeList", 3)], "excluded_nodes", Optional(|job, nodes| job.exclude = Some(nodes))),
    key(&[("NodeList", 8), ("ReqNodeList", 8)], "required_nodes", Optional(|job, nodes| job.nodelist = Some(nodes))),
    key(&[("Features", 1)], "constraints", Optional(|job, names| job.constraint = Some(names))),
    key(&[("StdErr", 6)], "standard_error", Text(|job, path| job.stderr = Some(path))),
    key(&[("StdOut", 6)], "standard_output", Text(|job, path| job.stdout = Some(path))),
    key(&[("WorkDir", 2)], "current_working_directory", Text(|job, path| job.work_dir = Some(path))),
    key(&[("WCKey", 1)], "wckey", Text(|job, key| job.wckey = Some(key))),
    key(&[("ReservationName", 3)], "reservation", Optional(|job, name| job.reservation = Some(name))),
    key(&[("Gres", 2), ("TresPerNode", 8)], "tres_per_node", Optional(|job, gres| job.gres = Some(gres))),
    key(&[("Licenses", 1)], "licenses", Optional(|job, names| job.licenses = Some(names))),
    key(&[("StdIn", 5)], "standard_input", Text(|job, path| job.stdin = Some(path))),
    key(&[("AdminComment", 3)], "admin_comment", Optional(|job, text| job.admin_comment = Some(text))),
    key(&[("Progress", 3)], "", Text(|job, text| job.progress = Some(text))),
    key(&[("Extra", 3)], "extra", Optional(|job, text| job.extra = Some(text))),
    key(&[("Prefer", 3)], "prefer", Optional(|job, names| job.prefer = Some(names))),
    key(&[("MailUser", 5)], "mail_user", Text(|job, user| job.mail_user = Some(user))),
    key(&[("MailType", 5)], "mail_type", Text(|job, events| job.mail_type = Some(events))),
    key(&[("NumNodes", 8), ("ReqNodes", 8)], "nodes", Own(nodes)),
    key(&[("Dependency", 1)], "dependency", Own(depend)),
    key(&[("Switches", 5)], "required_switches", Own(switches)),
    key(&[("TimeMin", 5)], "time_minimum", Limit(|job, limit| job.time_min_s = Some(limit.unwrap_or(0)))),
    key(&[("Deadline", 3)], "deadline", Time(|job, at| job.deadline = Some(at))),
    key(&[("EndTime", 3)], "end_time", Time(|job, at| job.end = Some(at))),
    key(&[("EligibleTime", 2), ("StartTime", 2)], "begin_time", Time(|job, at| job.begin = Some(at))),
];

/// Slurm's keys that have no effect in Squall, each with the reason.
pub const ABSENT: [(&str, &str); 16] = [
    ("BurstBuffer", "there are no burst buffers"),
    ("Clusters", "there is one cluster: cancel the job and submit it elsewhere"),
    ("CoreSpec", "core specialisation of a job is not supported; nodes set cores aside with core_spec_count"),
    ("CronJob", "there is no scrontab"),
    ("GroupID", "who submitted a job is what the kernel said"),
    ("Power", "the power that nodes draw is not limited"),
    ("ReqCores", "requests by cores of a socket change only by a new submission"),
    ("ReqSockets", "requests by sockets change only by a new submission"),
    ("ReqThreads", "requests by threads of a core change only by a new submission"),
    ("ResetAccrueTime", "ages count from the submission or the last release: scontrol hold, then release"),
    ("SiteFactor", "there is no site factor: use Nice or Priority"),
    ("SuspendTime", "it is what happened: scontrol suspend, resume"),
    ("ThreadSpec", "CPUs are kept for the system by CPUSpecList of nodes, for all jobs alike"),
    ("TRESPerJob", "resources of the whole job change only by a new submission: use TresPerNode"),
    ("TRESPerSocket", "resources of sockets change only by a new submission: use TresPerNode"),
    ("TRESPerTask", "resources of tasks change only by a new submission: use TresPerNode"),
];

fn nice(job: &mut JobUpdate, _: Option<char>, value: &str) -> Result<(), Bad> {
    // In Slurm, `Nice` without a value means 100.
    let value = if value.is_empty() { "100" } else { value };
    job.nice = Some(value.parse().map_err(|_| Bad::Value)?);
    Ok(())
}

fn nodes(job: &mut JobUpdate, _: Option<char>, value: &str) -> Result<(), Bad> {
    job.nodes = Some(node_count(value).map_err(Bad::Because)?);
    Ok(())
}

fn depend(job: &mut JobUpdate, _: Option<char>, value: &str) -> Result<(), Bad> {
    job.dependency = Some(dependency(value).map_err(Bad::Because)?);
    Ok(())
}

/// Reads `COUNT` or `COUNT@TIME`.
fn switches(job: &mut JobUpdate, _: Option<char>, value: &str) -> Result<(), Bad> {
    let given = Some(value).filter(|value| !value.is_empty() && *value != "(null)");
    job.switches = Some(given.map(|given| network::switches(given).ok_or(Bad::Value)).transpose()?);
    Ok(())
}

/// Change of a time limit: the new one (None: unlimited), or an amount by which it changes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// The limit is set.
    To(Option<u64>),
    /// The limit grows by this amount.
    Longer(u64),
    /// The limit shrinks by this amount.
    Shorter(u64),
}

/// Reads `TimeLimit=…`, `TimeLimit+=…` or `TimeLimit=+…`. None: malformed.
pub fn time_limit(sign: Option<char>, value: &str) -> Option<LimitChange> {
    let (sign, value) = match (sign, value.chars().next()) {
        (Some(sign), _) => (Some(sign), value),
        (None, Some(sign @ ('+' | '-'))) if value != "-1" => (Some(sign), &value[1..]),
        _ => (None, value),
    };
    let limit = parse_limit(value).ok()?.map(squall_model::duration::whole_minutes);
    match (limit, sign) {
        (limit, None) => Some(LimitChange::To(limit)),
        (Some(more), Some('+')) => Some(LimitChange::Longer(more)),
        (Some(less), Some(_)) => Some(LimitChange::Shorter(less)),
        (None, Some(_)) => None,
    }
}
