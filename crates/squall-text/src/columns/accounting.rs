//! Fields that sacct can print: one table for `--format` and `--helpformat`.

use squall_model::duration::{format_elapsed, format_limit, whole_minutes};
use squall_model::job::{GpuUse, JobKind};

use crate::format::accounting::{Row, cpu_text};
use crate::format::path;
use crate::format::sheet::Column;
use crate::format::words::{exclusive, exit_code, over_subscribe};

type C = Column<Row>;

/// Every field of sacct, in the order of `--helpformat`.
pub static FIELDS: &[C] = &[
    C::new("Account", 10, |r| r.data.account.clone()),
    C::new("AdminComment", 15, |r| r.job(|d| text(d.spec.options.notes.admin_comment.as_ref()))),
    C::new("AllocCPUS", 10, alloc_cpus),
    C::new("AllocNodes", 10, |r| if r.data.start.is_none() { 0 } else { r.data.num_nodes }.to_string()),
    C::new("AllocTRES", 10, Row::alloc_tres),
    C::new("AssocID", 7, |_| "0".to_owned()),
    C::new("AveCPU", 10, average_cpu),
    C::new("AveCPUFreq", 10, |r| r.step(|_| "0".to_owned())),
    C::new("AveDiskRead", 14, |r| r.step(|d| r.units.disk(r.average(d.usage.read_bytes)))),
    C::new("AveDiskWrite", 14, |r| r.step(|d| r.units.disk(r.average(d.usage.write_bytes)))),
    C::new("AvePages", 10, |r| r.step(|d| r.average(d.usage.major_faults).to_string())),
    C::new("AveRSS", 10, |r| r.step(|d| r.units.kib(r.average(d.usage.total_rss_kb)))),
    C::new("AveVMSize", 10, |r| r.step(|d| r.units.kib(d.usage.max_vm_kb))),
    C::new("BlockID", 16, none),
    C::new("Cluster", 10, |r| r.cluster.to_string()),
    C::new("Comment", 14, |r| r.job(|d| text(d.spec.comment.as_ref()))),
    C::new("Constraints", 19, |r| r.job(|d| text(d.spec.need.constraint.as_ref()))),
    C::new("ConsumedEnergy", 14, |r| r.units.joules(energy(r))),
    C::new("ConsumedEnergyRaw", 17, |r| energy(r).to_string()),
    C::new("Container", 19, none),
    C::new("CPUTime", 10, |r| format_elapsed(r.cpu_time())),
    C::new("CPUTimeRAW", 10, |r| r.cpu_time().to_string()),
    C::new("DBIndex", -21, |r| r.data.id.to_string()),
    C::new("DerivedExitCode", 15, |r| r.job(|d| exit_code(d.derived_exit))),
    C::new("Elapsed", 10, |r| format_elapsed(r.elapsed())),
    C::new("ElapsedRaw", 10, |r| r.elapsed().to_string()),
    C::new("Eligible", 19, |r| r.clock.show_or(Some(r.data.eligible), "Unknown")),
    C::new("End", 19, |r| r.clock.show_or(r.end(), "Unknown")),
    C::new("ETTR", 6, |r| r.job(|d| if d.start.is_some() { format!("{:.3}", r.cost().ettr()) } else { String::new() })),
    C::new("Exclusive", 14, |r| r.job(|d| exclusive(&d.spec).to_owned())),
    C::new("ExitCode", 8, |r| exit_code(r.data.exit)),
    C::new("Extra", 14, |r| r.job(|d| text(d.spec.options.notes.extra.as_ref()))),
    C::new("FailedNode", 8, none),
    C::new("Flags", 19, |r| r.job(|d| if d.attempt.0 > 0 { "SchedMain" } else { "" }.to_owned())),
    C::new("GID", 6, |r| r.job(|d| d.owner.gid.to_string())),
    C::new("Group", 9, |r| r.job(|d| d.owner.group.clone())),
    C::new("JobID", -12, Row::id),
    C::new("JobIDRaw", -12, Row::raw_id),
    C::new("JobName", 10, |r| r.data.name.clone()),
    C::new("Layout", 9, |r| r.step(|_| if r.is_batch() { "Unknown" } else { "Block" }.to_owned())),
    C::new("Licenses", 10, |r| r.job(|d| text(d.spec.need.licenses.as_ref()))),
    C::new("MaxDiskRead", 12, |r| r.step(|d| r.units.disk(d.usage.read_bytes))),
    C::new("MaxDiskReadNode", 15, node),
    C::new("MaxDiskReadTask", 15, task),
    C::new("MaxDiskWrite", 12, |r| r.step(|d| r.units.disk(d.usage.write_bytes))),
    C::new("MaxDiskWriteNode", 16, node),
    C::new("MaxDiskWriteTask", 16, task),
    C::new("MaxPages", 8, |r| r.step(|d| d.usage.major_faults.to_string())),
    C::new("MaxPagesNode", 12, node),
    C::new("MaxPagesTask", 14, task),
    C::new("MaxRSS", 10, |r| r.step(|d| r.units.kib(d.usage.max_rss_kb))),
    C::new("MaxRSSNode", 10, node),
    C::new("MaxRSSTask", 10, task),
    C::new("MaxVMSize", 10, |r| r.step(|d| r.units.kib(d.usage.max_vm_kb))),
    C::new("MaxVMSizeNode", 14, node),
    C::new("MaxVMSizeTask", 14, task),
    C::new("McsLabel", 12, none),
    C::new("MinCPU", 10, average_cpu),
    C::new("MinCPUNode", 10, node),
    C::new("MinCPUTask", 10, task),
    C::new("NCPUS", 10, alloc_cpus),
    C::new("NNodes", 8, |r| r.data.num_nodes.to_string()),
    C::new("NodeList", 15, |r| match r.data.nodes.as_str() {
        "" => "None assigned".to_owned(),
        nodes => nodes.to_owned(),
    }),
    C::new("NTasks", 8, |r| r.step(|d| d.num_tasks.to_string())),
    C::new("OverSubscribe", 14, |r| r.job(|d| over_subscribe(&d.spec).to_owned())),
    C::new("Partition", 10, |r| r.job(|d| d.partition.clone())),
    C::new("Planned", 10, planned),
    C::new("PlannedCPU", 10, |r| r.job(|_| format_elapsed(planned_cpu(r)))),
    C::new("PlannedCPURAW", 13, |r| r.job(|_| planned_cpu(r).to_string())),
    C::new("Priority", 10, |r| r.job(|d| d.spec.priority.map(|p| p.to_string()).unwrap_or_default())),
    C::new("QOS", 10, |r| r.job(|d| d.qos.clone())),
    C::new("QOSRAW", 6, |r| r.job(|_| "1".to_owned())),
    C::new("QOSREQ", 10, |r| r.job(|d| text(d.spec.qos.as_ref()))),
    C::new("Reason", 22, |r| r.job(|_| r.reason())),
    C::new("ReqCPUFreq", 10, unknown),
    C::new("ReqCPUFreqGov", 13, unknown),
    C::new("ReqCPUFreqMax", 13, unknown),
    C::new("ReqCPUFreqMin", 13, unknown),
    C::new("ReqCPUS", 8, |r| r.data.req_cpus.to_string()),
    C::new("ReqMem", 10, |r| r.job(|_| r.units.mib(r.req_memory_mb()))),
    C::new("ReqNodes", 8, |r| r.req_nodes().to_string()),
    C::new("ReqTRES", 10, |r| r.job(|_| r.req_tres())),
    C::new("Reservation", 20, |r| r.job(|d| text(d.spec.reservation.as_ref()))),
    C::new("ReservationId", 13, none),
    C::new("ReqReservation", 20, |r| r.job(|d| text(d.spec.reservation.as_ref()))),
    C::new("Reserved", 10, planned),
    C::new("Restarts", 8, |r| r.job(|d| d.attempt.0.saturating_sub(1).to_string())),
    C::new("ResvCPU", 10, |r| r.job(|_| format_elapsed(planned_cpu(r)))),
    C::new("ResvCPURAW", 10, |r| r.job(|_| planned_cpu(r).to_string())),
    C::new("SegmentSize", 11, |r| r.job(|d| d.spec.options.segment.map_or(String::new(), |size| size.to_string()))),
    C::new("Start", 19, |r| {
        // A job that ended before it started has none, and one that waits has none yet.
        let none = if r.data.end.is_some() { "None" } else { "Unknown" };
        r.clock.show_or(r.data.start, none)
    }),
    C::new("State", 10, Row::state),
    C::new("StdErr", 20, stderr),
    C::new("StdIn", 20, stdin),
    C::new("StdOut", 20, stdout),
    C::new("Submit", 19, |r| {
        let at = if r.is_step() { r.data.start.unwrap_or(r.data.submit) } else { r.data.submit };
        r.clock.show_or(Some(at), "Unknown")
    }),
    C::new("SubmitLine", 20, |r| r.data.submit_line.clone()),
    C::new("Suspended", 10, |r| format_elapsed(r.data.suspended_s)),
    C::new("SystemComment", 15, |r| r.job(|d| text(d.spec.options.notes.system_comment.as_ref()))),
    C::new("SystemCPU", 10, |r| cpu_text(r.data.usage.system)),
    C::new("TimeLost", 10, |r| r.job(|_| format_elapsed(r.cost().lost.sum().secs()))),
    C::new("Timelimit", 10, |r| r.job(|d| format_limit(d.time_limit_s))),
    C::new("TimelimitRaw", 12, |r| {
        r.job(|d| d.time_limit_s.map_or_else(|| "UNLIMITED".to_owned(), |s| (whole_minutes(s) / 60).to_string()))
    }),
    C::new("TotalCPU", 10, |r| cpu_text(r.total_cpu())),
    C::new("TRESUsageInAve", 14, |r| usage_in(r, true)),
    C::new("TRESUsageInMax", 14, |r| usage_in(r, false)),
    C::new("TRESUsageInMaxNode", 18, |r| usage_in_of(r, &r.first_node())),
    C::new("TRESUsageInMaxTask", 18, |r| usage_in_of(r, &r.data.usage.max_rss_task.to_string())),
    C::new("TRESUsageInMin", 14, |r| usage_in(r, true)),
    C::new("TRESUsageInMinNode", 18, |r| usage_in_of(r, &r.first_node())),
    C::new("TRESUsageInMinTask", 18, |r| usage_in_of(r, &r.data.usage.max_rss_task.to_string())),
    C::new("TRESUsageInTot", 14, |r| usage_in(r, false)),
    C::new("TRESUsageOutAve", 15, |r| usage_out(r, true)),
    C::new("TRESUsageOutMax", 15, |r| usage_out(r, false)),
    C::new("TRESUsageOutMaxNode", 19, |r| usage_out_of(r, &r.first_node())),
    C::new("TRESUsageOutMaxTask", 19, |r| usage_out_of(r, &r.data.usage.max_rss_task.to_string())),
    C::new("TRESUsageOutMin", 15, |r| usage_out(r, true)),
    C::new("TRESUsageOutMinNode", 19, |r| usage_out_of(r, &r.first_node())),
    C::new("TRESUsageOutMinTask", 19, |r| usage_out_of(r, &r.data.usage.max_rss_task.to_string())),
    C::new("TRESUsageOutTot", 15, |r| usage_out(r, false)),
    C::new("UID", 6, |r| r.job(|d| d.owner.uid.to_string())),
    C::new("User", 9, |r| r.job(|d| d.owner.user.clone())),
    C::new("UserCPU", 10, |r| cpu_text(r.data.usage.user)),
    C::new("WCKey", 10, |r| r.job(|d| text(d.spec.wckey.as_ref()))),
    C::new("WCKeyID", 10, |r| r.job(|_| "0".to_owned())),
    C::new("WorkDir", 20, |r| r.job(|d| d.spec.work_dir.clone())),
];

/// Names of the fields that sacct prints without `--format`.
pub const DEFAULT: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";

/// Names of the fields that sacct prints with `--brief`.
pub const BRIEF: &str = "jobid,state,exitcode";

/// Names of the fields that sacct prints with `--long`.
pub const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,\
    maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,\
    alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,\
    maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,\
    reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,\
    tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot";

/// Returns the joules that the row's nodes used meanwhile; 0: they were not measured.
fn energy(row: &Row) -> u64 {
    row.data.usage.energy_j.unwrap_or(0)
}

fn none(_: &Row) -> String {
    String::new()
}

fn unknown(row: &Row) -> String {
    row.step(|_| "Unknown".to_owned())
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn node(row: &Row) -> String {
    row.step(|_| row.first_node())
}

fn task(row: &Row) -> String {
    row.step(|d| d.usage.max_rss_task.to_string())
}

fn alloc_cpus(row: &Row) -> String {
    if row.data.start.is_none() { 0 } else { row.data.num_cpus }.to_string()
}

fn average_cpu(row: &Row) -> String {
    row.step(|_| format_elapsed(row.average(row.total_cpu().secs())))
}

fn planned(row: &Row) -> String {
    row.job(|_| format_elapsed(row.planned()))
}

fn planned_cpu(row: &Row) -> u64 {
    row.planned().saturating_mul(u64::from(row.data.req_cpus))
}

fn file(row: &Row, pattern: &str) -> String {
    row.job(|d| {
        let known = path::PathValues {
            job: d.id.0,
            array: d.task.map(|t| (t.array.0, t.index)),
            user: &d.owner.user,
            name: &d.spec.name,
            host: "",
        };
        if d.spec.kind == JobKind::Batch { path::expand(pattern, &d.spec.work_dir, &known) } else { String::new() }
    })
}

/// Returns the path of a job's standard input.
pub fn stdin(row: &Row) -> String {
    file(row, row.data.spec.stdin.as_deref().unwrap_or("/dev/null"))
}

/// Returns the path of a job's standard output.
pub fn stdout(row: &Row) -> String {
    let default = if row.data.task.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    file(row, row.data.spec.stdout.as_deref().unwrap_or(default))
}

/// Returns the path of a job's standard error.
pub fn stderr(row: &Row) -> String {
    row.data.spec.stderr.as_deref().map_or_else(|| stdout(row), |pattern| file(row, pattern))
}

/// Formats what a step has read and used: `cpu=…,energy=…,fs/disk=…,mem=…,pages=…,vmem=…`, per task with `average`; with
/// measured GPUs also `gres/gpumem=…,gres/gpuutil=…`.
fn usage_in(row: &Row, average: bool) -> String {
    row.step(|d| {
        let of = |value: u64| if average { row.average(value) } else { value };
        let memory = if average { row.average(d.usage.total_rss_kb) } else { d.usage.max_rss_kb };
        let gpus = |used: GpuUse| {
            format!("gres/gpumem={},gres/gpuutil={},", row.units.kib(of(used.used_kb)), of(used.percent))
        };
        format!(
            "cpu={},energy={},fs/disk={},{}mem={},pages={},vmem={}",
            format_elapsed(of(row.total_cpu().secs())),
            of(energy(row)),
            of(d.usage.read_bytes),
            d.usage.gpus.map(gpus).unwrap_or_default(),
            row.units.kib(memory),
            of(d.usage.major_faults),
            row.units.kib(d.usage.max_vm_kb),
        )
    })
}

fn usage_in_of(row: &Row, who: &str) -> String {
    row.step(|_| format!("cpu={who},energy={who},fs/disk={who},mem={who},pages={who},vmem={who}"))
}

/// Formats what a step has written: `energy=0,fs/disk=BYTES`, per task with `average`.
fn usage_out(row: &Row, average: bool) -> String {
    let bytes = row.data.usage.write_bytes;
    row.step(|_| format!("energy=0,fs/disk={}", if average { row.average(bytes) } else { bytes }))
}

fn usage_out_of(row: &Row, who: &str) -> String {
    row.step(|_| format!("energy={who},fs/disk={who}"))
}
