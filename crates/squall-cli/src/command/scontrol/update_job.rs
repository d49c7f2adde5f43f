//! `scontrol update job`: translates Slurm's keys into a `JobUpdate`.

use squall_model::duration::{parse_limit, parse_memory_mb, whole_minutes};
use squall_model::job::network;
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::wire::client::{JobRef, JobSelection, JobUpdate, Request};

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, unsupported};
use crate::command::scontrol::control::{act, select};
use crate::command::scontrol::{Manner, job, means, resize};
use squall_text::format::clock::local;
use squall_text::options::values::dependency::dependency;
use squall_text::options::values::number::node_count;
use squall_text::options::values::when::{model_time, when};

/// Value of `TimeLimit` in an update, seconds.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// The limit is set to this time; None: to unlimited.
    To(Option<u64>),
    /// The limit is changed by this amount, relative to the present limit.
    By(Step),
}

/// Amount by which a time limit is changed, seconds.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Longer(u64),
    Shorter(u64),
}

impl Step {
    /// Returns the new time limit, given the present one, in seconds. Fails if the present one is unlimited or too
    /// small.
    pub(super) fn from(self, call: &mut Call<'_>, limit: Option<u64>) -> Result<u64, Fail> {
        let Some(limit) = limit else {
            return call.fail("Cannot increment/decrement TimeLimit when set to UNLIMITED.");
        };
        match self {
            Self::Longer(more) => Ok(limit.saturating_add(more)),
            Self::Shorter(less) if less > limit => {
                call.fail(&format!("TimeLimit decrement larger than current time limit ({less} > {limit} s)"))
            }
            Self::Shorter(less) => Ok(limit - less),
        }
    }
}

/// Runs `scontrol update job`: applies the changes to the jobs that are named by id or by name.
pub(super) fn update(call: &mut Call<'_>, changes: &[Change<'_>]) -> Result<(), Fail> {
    let (mut ids, mut name) = (None, None);
    let mut update = JobUpdate::default();
    let (mut step, mut user) = (None, None);
    for change in changes {
        let is = |name, least| means(change.key, name, least);
        if is("JobId", 3) {
            ids = Some(change.value.to_owned());
        } else if is("TimeLimit", 5) {
            match time_limit(call, change)? {
                Limit::To(limit) => update.time_limit_s = Some(limit),
                Limit::By(by) => step = Some(by),
            }
        } else if (is("JobName", 4) || is("Name", 2)) && name.is_none() {
            name = Some(change.value.to_owned());
        } else if is("UserID", 4) {
            user = Some(call.user_ids(change.value)?);
        } else if change.sign.is_some() {
            return call.fail(&format!("Option {} does not accept [+|-]= syntax", change.key));
        } else if let Some(result) = number(change, &mut update) {
            if result.is_err() {
                return call.fail(&format!("Invalid {} value: {}", change.key, change.value));
            }
        } else if !text(change, &mut update) && !other(call, change, &mut update)? {
            let why = ABSENT.iter().find(|(key, _)| is(key, 4));
            return match why {
                Some((key, why)) => call.fail(&format!("{key} can't be updated: {why}")),
                None => unsupported(call, change),
            };
        }
    }
    // With an id, JobName is the new name; without one it selects the jobs.
    // UserID restricts jobs that are selected by name; ids need no user.
    let selection = match (&ids, name) {
        (Some(ids), name) => {
            update.name = name;
            select(call, std::slice::from_ref(ids), None)?
        }
        (None, Some(name)) => job::named(call, &name, user.unwrap_or_default())?,
        (None, None) => return call.fail("No job ID specified"),
    };
    if let Some(step) = step {
        return stepwise(call, &selection, &update, step);
    }
    if update == JobUpdate::default() {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    let resizes = update.nodes.is_some() || update.nodelist.is_some();
    let jobs = selection.clone();
    act(call, Manner::default(), &Request::UpdateJob { jobs: selection, change: Box::new(update) }, None)?;
    if resizes { resize::scripts(call, jobs) } else { Ok(()) }
}

/// Parses `TimeLimit=…`, `TimeLimit+=…` or `TimeLimit=+…`.
pub(super) fn time_limit(call: &mut Call<'_>, change: &Change<'_>) -> Result<Limit, Fail> {
    let (sign, value) = match (change.sign, change.value.chars().next()) {
        (Some(sign), _) => (Some(sign), change.value),
        (None, Some(sign @ ('+' | '-'))) if change.value != "-1" => (Some(sign), &change.value[1..]),
        _ => (None, change.value),
    };
    match (parse_limit(value), sign) {
        (Ok(limit), None) => Ok(Limit::To(limit.map(whole_minutes))),
        (Ok(Some(seconds)), Some('+')) => Ok(Limit::By(Step::Longer(whole_minutes(seconds)))),
        (Ok(Some(seconds)), Some(_)) => Ok(Limit::By(Step::Shorter(whole_minutes(seconds)))),
        _ => call.fail("Invalid TimeLimit value"),
    }
}

/// Changes the time limits of jobs by an amount. Each job's present limit is requested first.
fn stepwise(call: &mut Call<'_>, selection: &JobSelection, update: &JobUpdate, step: Step) -> Result<(), Fail> {
    let page = match call.controller.jobs(selection.clone(), false, false) {
        Ok(page) => page,
        Err(e) => return call.failed("slurm_load_jobs error", &e),
    };
    if page.jobs.is_empty() {
        call.say("slurm_load_jobs error: Invalid job id specified");
        return Err(Fail(1));
    }
    let mut result = Ok(());
    for job in &page.jobs {
        let limit = step.from(call, job.time_limit_s)?;
        let change = JobUpdate { time_limit_s: Some(Some(limit)), ..update.clone() };
        let ids = match (&job.pending_tasks, job.task) {
            (Some(tasks), _) => vec![JobRef::Tasks(job.id, tasks.clone())],
            // The last task of an array has the array's own id.
            (None, Some(task)) => vec![JobRef::Tasks(task.array, IndexSet::range(task.index, task.index))],
            (None, None) => vec![JobRef::Job(job.id)],
        };
        let jobs = JobSelection { ids, ..JobSelection::default() };
        result = result.and(act(call, Manner::default(), &Request::UpdateJob { jobs, change: Box::new(change) }, None));
    }
    result
}

/// Keys of Slurm's `update job` that have no effect in Squall, each with the reason.
const ABSENT: [(&str, &str); 16] = [
    ("BurstBuffer", "there are no burst buffers"),
    ("Clusters", "there is one cluster: cancel the job and submit it elsewhere"),
    ("CoreSpec", "cores are kept for the system by CoreSpecCount of nodes, for all jobs alike"),
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

/// Sets a key that takes text. Returns false for any other key.
fn text(change: &Change<'_>, update: &mut JobUpdate) -> bool {
    let is = |name, least| means(change.key, name, least);
    let value = change.value.to_owned();
    let optional = Some(value.clone()).filter(|v| !v.is_empty() && v != "(null)");
    if is("Comment", 3) {
        update.comment = Some(value);
    } else if is("Partition", 2) {
        update.partition = Some(value);
    } else if is("QOS", 2) {
        update.qos = Some(value);
    } else if is("Account", 1) {
        update.account = Some(value);
    } else if is("ExcNodeList", 3) {
        update.exclude = Some(optional);
    } else if is("NodeList", 8) || is("ReqNodeList", 8) {
        update.nodelist = Some(optional);
    } else if is("Features", 1) {
        update.constraint = Some(optional);
    } else if is("StdErr", 6) {
        update.stderr = Some(value);
    } else if is("StdOut", 6) {
        update.stdout = Some(value);
    } else if is("WorkDir", 2) {
        update.work_dir = Some(value);
    } else if is("WCKey", 1) {
        update.wckey = Some(value);
    } else if is("ReservationName", 3) {
        update.reservation = Some(optional);
    } else if is("Gres", 2) || is("TresPerNode", 8) {
        update.gres = Some(optional);
    } else if is("Licenses", 1) {
        update.licenses = Some(optional);
    } else if is("StdIn", 5) {
        update.stdin = Some(value);
    } else if is("AdminComment", 3) {
        update.admin_comment = Some(optional);
    } else if is("Extra", 3) {
        update.extra = Some(optional);
    } else if is("Prefer", 3) {
        update.prefer = Some(optional);
    } else if is("MailUser", 5) {
        update.mail_user = Some(value);
    } else if is("MailType", 5) {
        update.mail_type = Some(value);
    } else {
        return false;
    }
    true
}

/// Sets a key that takes a number. None: any other key. An error: the value is not a number.
fn number(change: &Change<'_>, update: &mut JobUpdate) -> Option<Result<(), NoNumber>> {
    let is = |name, least| means(change.key, name, least);
    let value = change.value;
    let unsigned = || value.parse::<u32>().map_err(|_| NoNumber);
    let memory = || parse_memory_mb(value).map_err(|_| NoNumber);
    Some(if is("Priority", 2) {
        unsigned().map(|n| update.priority = Some(n))
    } else if is("Nice", 2) {
        let nice = if value.is_empty() { "100" } else { value };
        nice.parse().map(|n| update.nice = Some(n)).map_err(|_| NoNumber)
    } else if is("ArrayTaskThrottle", 10) {
        unsigned().map(|n| update.array_limit = Some(Some(n).filter(|n| *n > 0)))
    } else if is("NumTasks", 8) || is("ReqProcs", 8) {
        unsigned().map(|n| update.ntasks = Some(n))
    } else if is("CPUsPerTask", 9) || is("NumCPUs", 6) {
        unsigned().map(|n| update.cpus_per_task = Some(n))
    } else if is("Requeue", 4) {
        unsigned().and_then(|n| if n < 2 { Ok(n) } else { Err(NoNumber) }).map(|n| update.requeue = Some(n == 1))
    } else if is("DelayBoot", 5) {
        parse_limit(value).map(|limit| update.delay_boot_s = Some(limit.unwrap_or(UNLIMITED_S))).map_err(|_| NoNumber)
    } else if is("Reboot", 3) {
        yes_or_no(value).map(|yes| update.reboot = Some(yes)).ok_or(NoNumber)
    } else if is("Contiguous", 3) {
        yes_or_no(value).map(|yes| update.contiguous = Some(yes)).ok_or(NoNumber)
    } else if is("OverSubscribe", 2) || is("Shared", 2) {
        yes_or_no(value).map(|yes| update.oversubscribe = Some((yes, !yes))).ok_or(NoNumber)
    } else if is("MinCPUsNode", 6) {
        unsigned().map(|n| update.cpus_min = Some(n))
    } else if is("MinTmpDiskNode", 5) {
        memory().map(|mb| update.tmp_disk_mb = Some(mb))
    } else if is("TasksPerNode", 2) {
        unsigned().map(|n| update.ntasks_per_node = Some(n))
    } else if is("MinMemoryNode", 10) {
        memory().map(|mb| update.memory = Some(Memory::PerNodeMb(mb)))
    } else if is("MinMemoryCPU", 10) {
        memory().map(|mb| update.memory = Some(Memory::PerCpuMb(mb)))
    } else {
        return None;
    })
}

/// Parses `YES`, `NO`, `1` or `0`.
fn yes_or_no(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "1" | "y" => Some(true),
        "no" | "0" | "n" => Some(false),
        _ => None,
    }
}

/// Error: the value of a key is not the number that the key needs.
struct NoNumber;

/// Sets a key that takes a value in a format of its own. Returns false for any other key.
fn other(call: &mut Call<'_>, change: &Change<'_>, update: &mut JobUpdate) -> Result<bool, Fail> {
    let is = |name, least| means(change.key, name, least);
    if is("NumNodes", 8) || is("ReqNodes", 8) {
        match node_count(change.value) {
            Ok(count) => update.nodes = Some(count),
            Err(problem) => return call.fail(&format!("Invalid {} value: {}: {problem}", change.key, change.value)),
        }
    } else if is("Dependency", 1) {
        match dependency(change.value) {
            Ok(terms) => update.dependency = Some(terms),
            Err(problem) => return call.fail(&format!("Invalid {} value: {}: {problem}", change.key, change.value)),
        }
    } else if is("Switches", 5) {
        let given = Some(change.value).filter(|v| !v.is_empty() && *v != "(null)");
        update.switches = Some(match given.map(network::switches) {
            Some(None) => return call.fail(&format!("Invalid {} value: {}", change.key, change.value)),
            given => given.flatten(),
        });
    } else if is("TimeMin", 5) {
        match parse_limit(change.value) {
            Ok(limit) => update.time_min_s = Some(limit.map_or(0, whole_minutes)),
            Err(_) => return call.fail("Invalid TimeMin value"),
        }
    } else if is("Deadline", 3) || is("EndTime", 3) {
        let Some(at) = when(change.value, &local(call.now, &call.zone)) else {
            return call.fail(&format!("Invalid time specification (pos=0): {}", change.value));
        };
        let at = Some(model_time(at.timestamp()));
        if is("Deadline", 3) {
            update.deadline = at;
        } else {
            update.end = at;
        }
    } else if is("EligibleTime", 2) || is("StartTime", 2) {
        match when(change.value, &local(call.now, &call.zone)) {
            Some(at) => update.begin = Some(model_time(at.timestamp())),
            None => return call.fail(&format!("Invalid time specification (pos=0): {}", change.value)),
        }
    } else {
        return Ok(false);
    }
    Ok(true)
}
