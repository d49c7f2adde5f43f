//! `scontrol show job`.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::checkpoint::CheckpointInfo;
use squall_model::duration::{format_elapsed, format_limit, format_memory_mb};
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::resource::Memory;
use squall_model::wire::client::{JobSelection, StateFilter};
use squall_model::wire::info::NodeInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_nodes;
use crate::command::listing::lists::{expect, job_rows};
use crate::command::listing::select::id_of;
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, count, record};
use squall_text::columns::jobs::requeue;
use squall_text::format::job::{JobRow, as_given};
use squall_text::format::words;
use squall_text::shapes::{self, AnswerKind};

const WHAT: &str = "slurm_load_jobs error";

/// Runs `scontrol show job`: prints the jobs with these ids; without ids all jobs.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let targets = call.targets(&ids.join(","))?;
    let ids: Vec<_> = targets.iter().map(|t| t.job.clone()).collect();
    let no_hidden = ids.is_empty() && !manner.all;
    let selection = JobSelection { ids, no_hidden, ..JobSelection::default() };
    let page = match call.controller.jobs(selection, true, manner.dialect.is_some()) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    count(call, manner, page.jobs.len());
    let missing = targets.iter().any(|t| page.unknown.contains(&id_of(&t.job)));
    if missing || (page.jobs.is_empty() && !targets.is_empty()) {
        if !manner.quiet {
            call.say("slurm_load_jobs error: Invalid job id specified");
        }
        if page.jobs.is_empty() {
            return Err(Fail(1));
        }
    }
    let mut rows = job_rows(call, page)?;
    expect(call, &mut rows);
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster(WHAT)?;
        let jobs: Vec<serde_json::Value> = rows.iter().map(shapes::job::job).collect();
        document(call, dialect, &cluster, &["scontrol", "show", "job"], AnswerKind::Jobs, vec![("jobs", jobs.into())])
    } else if rows.is_empty() {
        "No jobs in the system\n".to_owned()
    } else {
        let nodes = if manner.details { all_nodes(call).unwrap_or_default() } else { Vec::new() };
        rows.iter().map(|row| text(row, manner, &nodes)).collect()
    };
    call.print(&text);
    if missing { Err(Fail(1)) } else { Ok(()) }
}

/// Selects the jobs of a name, and of these users if any are given, that have not ended. An error if there are none.
pub(super) fn named(call: &mut Call<'_>, name: &str, users: Vec<u32>) -> Result<JobSelection, Fail> {
    let states = vec![StateFilter::Pending, StateFilter::SpecialExit, StateFilter::Running, StateFilter::Suspended];
    let of = users.iter().map(|uid| format!("user ID {uid} and ")).collect::<Vec<_>>().concat();
    let selection = JobSelection { names: vec![name.to_owned()], states, users, ..JobSelection::default() };
    match call.controller.jobs(selection.clone(), false, false) {
        Ok(page) if page.jobs.is_empty() => call.fail(&format!("No jobs with {of}name '{name}'")),
        Ok(_) => Ok(selection),
        Err(e) => call.failed(WHAT, &e),
    }
}

/// Runs `completing`: prints jobs that have ended while their nodes still clean up.
pub(super) fn completing(call: &mut Call<'_>) -> Result<(), Fail> {
    let selection = JobSelection { states: vec![StateFilter::Completing], ..JobSelection::default() };
    let page = match call.controller.jobs(selection, false, false) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut text = String::new();
    for row in job_rows(call, page)? {
        let info = &row.info;
        let since = info.end.map_or(0, |end| row.clock.now.secs().saturating_sub(end.secs()));
        let _ = writeln!(
            text,
            "JobId={} EndTime={} CompletingTime={} Nodes(COMPLETING)={}",
            row.array_id(),
            row.end_time(),
            format_elapsed(since),
            info.run().nodes
        );
    }
    call.print(&text);
    Ok(())
}

/// Formats the record of one job. `nodes`: those of the cluster, if details are shown.
fn text(row: &JobRow, manner: Manner, nodes: &[NodeInfo]) -> String {
    let mut lines = identity(row, manner);
    lines.extend(times(row));
    lines.extend(resources(row, manner));
    lines.extend(confinement(row, nodes));
    lines.extend(files(row));
    record(manner.oneliner, &lines)
}

/// Returns lines that say how the job's nodes keep it to what it holds, one for all nodes with the same means. None of
/// their keys is Slurm's: programs take each line with `Nodes=` for one about CPUs.
fn confinement(row: &JobRow, nodes: &[NodeInfo]) -> Vec<String> {
    let own = hostlist::expand(&row.info.run().nodes).unwrap_or_default();
    let mut means: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| own.contains(&node.name)) {
        if let Some(kept) = node.hardware.confinement {
            means.entry(kept.text()).or_default().push(&node.name);
        }
    }
    means
        .into_iter()
        .map(|(text, names)| format!("  Confinement={text} ConfinedNodes={}", hostlist::compress(&names)))
        .collect()
}

/// Returns whether two lists of nodes have a node in common.
fn alike(a: &str, b: &str) -> bool {
    a == b || hostlist::expand(a).unwrap_or_default().iter().any(|name| hostlist::contains(b, name))
}

fn null(text: &str) -> &str {
    if text.is_empty() { "(null)" } else { text }
}

fn or_null(text: Option<&String>) -> &str {
    text.map_or("(null)", |t| null(t))
}

fn identity(row: &JobRow, manner: Manner) -> Vec<String> {
    let (info, spec, owner) = (&row.info, &row.spec, &row.owner);
    let array = match (row.array_job(), row.array_task()) {
        (Some(job), Some(task)) => {
            let (task, throttle) = task.split_once('%').map_or((task.as_str(), None), |(t, n)| (t, Some(n)));
            let throttle = throttle.map(|n| format!(" ArrayTaskThrottle={n}")).unwrap_or_default();
            format!("ArrayJobId={job} ArrayTaskId={task}{throttle} ")
        }
        _ => String::new(),
    };
    let key = spec.wckey.as_ref().map(|k| format!(" WCKey={k}")).unwrap_or_default();
    let het = info.het.map(|het| format!("HetJobId={} HetJobOffset={} ", het.leader, het.offset(info.id)));
    let het = het.unwrap_or_default();
    let mut lines = vec![
        format!("JobId={} {array}{het}JobName={}", info.id, spec.name),
        format!("UserId={}({}) GroupId={}({}) MCS_label=N/A", owner.user, owner.uid, owner.group, owner.gid),
        format!(
            "Priority={} Nice={} Account={} QOS={}{key}",
            info.priority,
            spec.nice,
            null(&row.class.account),
            null(&row.class.qos)
        ),
        format!(
            "JobState={} Reason={} Dependency={}",
            row.state().0,
            row.reason().replace(' ', "_"),
            null(&info.dependency)
        ),
        format!(
            "Requeue={} Restarts={} BatchFlag={} Reboot={} ExitCode={}",
            u32::from(requeue(row)),
            row.restarts(),
            u32::from(row.is_batch()),
            u32::from(spec.options.reboots()),
            words::exit_code(row.exit())
        ),
    ];
    if let Some(checkpoint) = &info.checkpoint {
        lines.push(checkpoint_text(checkpoint, row));
    }
    if let Some(ids) = row.het_ids() {
        lines.insert(1, format!("HetJobIdSet={ids}"));
    }
    if manner.details {
        lines.push(format!("DerivedExitCode={}", words::exit_code(info.run().derived_exit)));
    }
    lines
}

/// Returns the line about a job's last checkpoint: when it was made and where, its size in MiB, and how long the job
/// stood still.
fn checkpoint_text(last: &CheckpointInfo, row: &JobRow) -> String {
    let made = last.time.map_or_else(String::new, |time| {
        let (size, stood) = (last.made.bytes.div_ceil(1 << 20), last.made.stood.0 as f64 / 1e6);
        let (time, node) = (row.clock.show(time), &last.node);
        format!(" CheckpointTime={time} CheckpointNode={node} CheckpointSize={size}M StoodStill={stood:.2}s")
    });
    let texts = [("RestoreFailed", &last.failed), ("CheckpointRefused", &last.refused)];
    let texts =
        texts.into_iter().filter_map(|(key, text)| Some(format!(" {key}={}", text.as_ref()?.replace(' ', "_"))));
    format!("Checkpoint={}{made}{}", last.number, texts.collect::<String>())
}

fn times(row: &JobRow) -> Vec<String> {
    let (info, clock) = (&row.info, &row.clock);
    let minimum = row.spec.time_min_s.map_or_else(|| "N/A".to_owned(), |s| format_limit(Some(s)));
    let suspended = info.run().suspended.filter(|_| info.state != JobState::Pending);
    vec![
        format!(
            "RunTime={} TimeLimit={} TimeMin={minimum}",
            format_elapsed(row.time_used()),
            format_limit(info.time_limit_s)
        ),
        format!(
            "SubmitTime={} EligibleTime={}",
            clock.show(info.submit),
            clock.show_or(Some(info.eligible), "Unknown")
        ),
        format!("AccrueTime={}", clock.show_or(Some(info.eligible), "Unknown")),
        format!(
            "StartTime={} EndTime={} Deadline={}",
            clock.show_or(row.start_shown(), "Unknown"),
            clock.show_or(info.end, "Unknown"),
            clock.show_or(row.spec.deadline, "N/A")
        ),
        format!(
            "SuspendTime={} SecsPreSuspend=0 LastSchedEval={} Scheduler=Main",
            clock.show_or(suspended, "None"),
            clock.show_or(info.start.filter(|_| row.started()).or(Some(info.eligible)), "Unknown")
        ),
    ]
}

fn resources(row: &JobRow, manner: Manner) -> Vec<String> {
    let (info, need) = (&row.info, &row.spec.need);
    let memory = match need.memory {
        Memory::Unset => "MinMemoryNode=0".to_owned(),
        Memory::PerNodeMb(mb) => format!("MinMemoryNode={}", format_memory_mb(mb)),
        Memory::PerCpuMb(mb) => format!("MinMemoryCPU={}", format_memory_mb(mb)),
    };
    let expected = match row.expected_nodes.as_str() {
        "" => String::new(),
        nodes => format!(" SchedNodeList={nodes}"),
    };
    let mut lines = vec![
        format!(
            "Partition={} AllocNode:Sid={}:{}",
            row.class.partition,
            null(&row.spec.submit_host),
            row.spec.submit_session.unwrap_or(0)
        ),
        format!("ReqNodeList={} ExcNodeList={}", or_null(need.nodelist.as_ref()), or_null(need.exclude.as_ref())),
        format!("NodeList={}{expected}", info.run().nodes),
    ];
    if row.started() && !info.run().batch_host.is_empty() {
        lines.push(format!("BatchHost={}", info.run().batch_host));
    }
    if let Some(places) = &info.run().places {
        lines.push(format!("SpareNodes={} NodesToReplace={}", null(&places.spares), null(&places.vacant)));
    }
    lines.extend(info.run().progress.as_ref().map(|text| format!("Progress={text}")));
    lines.push(format!(
        "NumNodes={} NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:0:*:*",
        info.num_nodes,
        info.num_cpus,
        info.num_tasks,
        need.cpus_per_task.map_or_else(|| "1".to_owned(), |n| n.to_string())
    ));
    lines.push(format!("ReqTRES={}", row.tres()));
    lines.push(format!("AllocTRES={}", if row.started() { row.tres() } else { "(null)".to_owned() }));
    lines.push(format!("Socks/Node=* NtasksPerN:B:S:C={}:0:*:* CoreSpec=*", need.ntasks_per_node.unwrap_or(0)));
    if manner.details && !info.run().per_node.is_empty() {
        let held: Vec<String> = row.granted().iter().map(|(kind, count)| format!("{kind}:{count}")).collect();
        lines.push(format!("JOB_GRES={}", null(&held.join(","))));
        lines.extend(info.run().per_node.iter().map(|(hosts, cores, memory)| {
            let here = info.run().gres.iter().filter(|(on, _)| alike(on, hosts));
            let gres: Vec<&str> = here.map(|(_, devices)| devices.as_str()).collect();
            format!("  Nodes={hosts} CPU_IDs={cores} Mem={memory} GRES={}", gres.join(","))
        }));
    }
    lines.push(format!(
        "MinCPUsNode={} {memory} MinTmpDiskNode={}",
        row.min_cpus(),
        format_memory_mb(need.tmp_disk_mb)
    ));
    let delay = format_limit(Some(row.spec.options.delay_boot_s.unwrap_or(0)));
    lines.push(format!("Features={} DelayBoot={delay}", or_null(need.constraint.as_ref())));
    if let Some(name) = &row.spec.reservation {
        lines.push(format!("Reservation={name}"));
    }
    lines.push(format!(
        "OverSubscribe={} Contiguous={} Licenses={} Network={}",
        row.over_subscribe(),
        u32::from(need.contiguous),
        or_null(need.licenses.as_ref()),
        as_given(row.spec.options.network.class.as_ref()).map_or("(null)", null)
    ));
    lines
}

fn files(row: &JobRow) -> Vec<String> {
    let spec = &row.spec;
    let command = row.command();
    let mut lines = vec![format!("Command={}", null(&command)), format!("WorkDir={}", spec.work_dir)];
    let options = &spec.options;
    lines.extend(options.notes.admin_comment.as_ref().map(|text| format!("AdminComment={text} ")));
    if let Some(comment) = &spec.comment {
        lines.push(format!("Comment={comment} "));
    }
    lines.extend(options.notes.extra.as_ref().map(|text| format!("Extra={text}")));
    if row.is_batch() {
        lines.push(format!("StdErr={}", row.stderr()));
        lines.push(format!("StdIn={}", row.stdin()));
        lines.push(format!("StdOut={}", row.stdout()));
    }
    lines.extend(as_given(options.network.switches.as_ref()).map(|text| format!("Switches={text}")));
    lines.extend(as_given(options.network.groups.as_ref()).map(|text| format!("Groups={text}")));
    lines.push("Power=".to_owned());
    lines.extend(options.filtered.as_ref().map(|names| format!("SubmitFilter={names}")));
    lines.extend((options.enforce_binding == Some(true)).then(|| "GresEnforceBind=Yes".to_owned()));
    let asked = |key: &str, list: String| (!list.is_empty()).then(|| format!("{key}={list}"));
    let gpus = |given| as_given(given).map(|count| format!("gres/gpu:{count}")).unwrap_or_default();
    lines.extend(asked("TresPerJob", gpus(options.gpus.total.as_ref())));
    lines.extend(asked("TresPerNode", row.tres_per_node()));
    lines.extend(asked("TresPerTask", gpus(options.gpus.per_task.as_ref())));
    lines.extend(options.gpus.cpus.map(|count| format!("CpusPerTres=gres/gpu:{count}")));
    lines.extend(as_given(options.gpus.memory_mb.as_ref()).map(|size| format!("MemPerTres=gres/gpu:{size}")));
    if spec.mail_user.is_some() || spec.mail_type.is_some() {
        lines.push(format!(
            "MailUser={} MailType={}",
            spec.mail_user.as_deref().unwrap_or(&row.owner.user),
            spec.mail_type.as_deref().unwrap_or("NONE")
        ));
    }
    lines
}
