//! `scontrol listpids` and `pidinfo`: processes of jobs on this machine; `notify`: a message to the user of a job.

use std::fmt::Write as _;

use squall_files::place::Place;
use squall_host::processes::{OfJob, of_jobs};
use squall_model::id::JobId;
use squall_model::time::Span;
use squall_model::wire::client::{JobRef, JobSelection, Request};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{Target, target};
use crate::command::scontrol::ask_done;

/// Remaining time that is reported for a job without a time limit: a year, as in Slurm; seconds.
const UNLIMITED_S: u64 = 365 * 86_400;

/// Returns the processes on this machine that belong to jobs.
pub(crate) fn here() -> Vec<OfJob> {
    Place::find().map(|place| of_jobs(place.dir())).unwrap_or_default()
}

/// Runs `scontrol listpids [JOB[.STEP] [NODE]]`: prints the processes of jobs on this machine.
pub(super) fn list(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if words.len() > 2 {
        call.say("too many arguments for keyword:listpids");
        return Err(Fail(1));
    }
    let wanted = match words.first().map(String::as_str).filter(|word| !word.starts_with('*')) {
        None => None,
        Some(word) => {
            let Some(Target { job: JobRef::Job(job), step, .. }) = target(word) else {
                call.say(&format!("\"{word}\" does not look like a jobid"));
                return Err(Fail(1));
            };
            Some((job, step))
        }
    };
    let mut found = here();
    found.retain(|process| {
        let step = |wanted: (JobId, Option<_>)| {
            wanted.0 == process.key.job && wanted.1.is_none_or(|step| step == process.key.step)
        };
        wanted.is_none_or(step) && words.get(1).is_none_or(|node| *node == process.node)
    });
    let text = table(&found);
    call.print(&text);
    let node = || words.get(1).map_or("(null)", String::as_str);
    match wanted.filter(|_| found.is_empty()) {
        None => Ok(()),
        Some((job, None)) => none(call, &format!("JobId={job} does not exist on node {}.", node())),
        Some((job, Some(step))) => none(call, &format!("StepId={job}.{step} does not exist on node {}.", node())),
    }
}

/// Runs `listjobs` or, with `steps`, `liststeps`: prints the jobs or steps that have processes on this machine.
pub(super) fn jobs(call: &mut Call<'_>, steps: bool) {
    let mut ids: Vec<String> = here().iter().map(|process| id(process, steps)).collect();
    ids.dedup();
    let text = if ids.is_empty() {
        "No slurmstepd's found on this node\n".to_owned()
    } else {
        let title = if steps { "STEPID" } else { "JOBID" };
        std::iter::once(title).chain(ids.iter().map(String::as_str)).fold(String::new(), |text, id| text + id + "\n")
    };
    call.print(&text);
}

fn id(process: &OfJob, steps: bool) -> String {
    if steps { format!("{}.{}", process.key.job, process.key.step) } else { process.key.job.to_string() }
}

fn none(call: &mut Call<'_>, text: &str) -> Result<(), Fail> {
    call.say(text);
    Err(Fail(1))
}

fn table(processes: &[OfJob]) -> String {
    let mut text = format!("{:<8} {:<8} {:<8} {:<7} {:<8}\n", "PID", "JOBID", "STEPID", "LOCALID", "GLOBALID");
    for OfJob { pid, key, task, .. } in processes {
        let [local, global] = match task {
            Some((local, global)) => [local.to_string(), global.to_string()],
            None => ["-".to_owned(), "-".to_owned()],
        };
        let (job, step) = (key.job.to_string(), key.step.to_string());
        let _ = writeln!(text, "{pid:<8} {job:<8} {step:<8} {local:<7} {global:<8}");
    }
    text
}

/// Runs `scontrol pidinfo PID`: prints the job of a process on this machine, its end and the time left.
pub(super) fn of_process(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [word] = words else {
        let many = if words.is_empty() { "missing argument" } else { "too many arguments" };
        call.say(&format!("{many} for keyword:pidinfo"));
        return Err(Fail(1));
    };
    let found = here().into_iter().find(|process| Ok(process.pid) == word.parse());
    let Some(job) = found.map(|process| process.key.job) else {
        call.say("Failed to locate job for requested pid");
        return Err(Fail(1));
    };
    let jobs = JobSelection { ids: vec![JobRef::Job(job)], ..JobSelection::default() };
    let page = match call.controller.jobs(jobs, true, false) {
        Ok(page) => page,
        Err(e) => return call.failed("Failed to get job end time", &e),
    };
    let Some(shown) = page.jobs.first() else {
        call.say("Failed to get job end time: Invalid job id specified");
        return Err(Fail(1));
    };
    let end = shown.end.unwrap_or(page.now + Span::from_secs(UNLIMITED_S));
    let text = format!(
        "Slurm JobId={job} ends at {}\nJob remaining time is {} seconds\n",
        call.clock(page.now).show(end),
        end.since(page.now).0 / 1_000_000
    );
    call.print(&text);
    Ok(())
}

/// Runs `scontrol notify JOB WORD...`: sends a message to the user of a job.
pub(super) fn notify(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [id, text @ ..] = words else { return few(call) };
    if text.is_empty() {
        return few(call);
    }
    let Some(Target { job: JobRef::Job(job), step: None, .. }) = target(id) else {
        call.say("job notify failure: Invalid job id specified");
        return Err(Fail(1));
    };
    ask_done(call, &Request::Notify { job, text: text.join(" ") }, "job notify failure")
}

fn few(call: &mut Call<'_>) -> Result<(), Fail> {
    call.say("too few arguments for keyword:notify");
    Err(Fail(1))
}
