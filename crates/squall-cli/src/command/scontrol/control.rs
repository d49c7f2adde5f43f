//! Commands of scontrol that act on jobs (hold, release, requeue, suspend, resume), and on the controller.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::wire::client::{Answer, HostRequest, JobRef, JobSelection, Refusal, Request, StateFilter};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{id_of, target};
use crate::command::scontrol::{Manner, ask_done, checkpoint, config, job};
use squall_client::unexpected;
use squall_text::refusal;
use squall_text::verbs::key::means;

/// Interval at which `wait_job` asks the controller for the job's state.
const WAIT: std::time::Duration = std::time::Duration::from_millis(500);
const SUSPEND: &str = "slurm_suspend error";

/// Runs `scontrol hold`, or `scontrol uhold` with `user`: pending jobs don't start until they are released.
pub(super) fn hold(call: &mut Call<'_>, manner: Manner, words: &[String], user: bool) -> Result<(), Fail> {
    let jobs = selection(call, "hold", words, Some(SUSPEND))?;
    act(call, manner, &Request::Hold { jobs, user }, Some(SUSPEND))
}

/// Runs `scontrol release`: held jobs may start again.
pub(super) fn release(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    let jobs = selection(call, "release", words, Some(SUSPEND))?;
    act(call, manner, &Request::Release { jobs }, Some(SUSPEND))
}

/// Runs `scontrol requeue`, or `scontrol requeuehold` with `hold`: jobs go back into the queue.
pub(super) fn requeue(call: &mut Call<'_>, manner: Manner, words: &[String], hold: bool) -> Result<(), Fail> {
    let (mut special, mut unfinished, mut ids) = (None, false, Vec::new());
    for word in words {
        let (first, rest) = word.split_once(',').unwrap_or((word, ""));
        match word.split_once('=') {
            Some((key, state)) if hold && means(key, "State", 5) && means(state, "SpecialExit", 1) => {
                special = Some(true);
            }
            None if means(first, "incomplete", 1) => {
                unfinished = true;
                ids.extend(Some(rest.to_owned()).filter(|rest| !rest.is_empty()));
            }
            _ => ids.push(word.clone()),
        }
    }
    let mut jobs = selection(call, if hold { "requeuehold" } else { "requeue" }, &ids, None)?;
    if unfinished {
        // Of the named jobs only those that have begun and not ended are requeued.
        jobs.states = vec![StateFilter::Configuring, StateFilter::Running, StateFilter::Suspended];
    }
    let from = call.variable("SLURM_JOB_ID").and_then(|id| id.parse().ok()).map(JobId);
    act(call, manner, &Request::Requeue { jobs, hold, from, special }, None)
}

/// Runs `scontrol top`: moves jobs before all other jobs of their user.
pub(super) fn top(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    let jobs = selection(call, "top", words, None)?;
    act(call, manner, &Request::Top { jobs }, None)
}

/// Runs `scontrol suspend`, or `scontrol resume` without `suspend`.
pub(super) fn suspend(call: &mut Call<'_>, manner: Manner, words: &[String], suspend: bool) -> Result<(), Fail> {
    if suspend && manner.to_disk {
        return checkpoint::to_disk(call, words);
    }
    let jobs = selection(call, if suspend { "suspend" } else { "resume" }, words, None)?;
    act(call, manner, &Request::Suspend { jobs, suspend }, None)
}

/// Runs `scontrol wait_job JOB`: returns when the job runs; fails if the job has ended.
pub(super) fn wait_job(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if let Some(word) = words.first().filter(|word| target(word.trim_start_matches("jobid=")).is_none()) {
        call.say(&format!("Invalid job_id {word}"));
        return Err(Fail(1));
    }
    let jobs = selection(call, "wait_job", words, None)?;
    loop {
        let page = match call.controller.jobs(jobs.clone(), true, false) {
            Ok(page) => page,
            Err(e) => return call.failed("slurm_load_jobs error", &e),
        };
        match page.jobs.first().map(|job| job.state) {
            Some(JobState::Pending | JobState::Configuring) => std::thread::sleep(WAIT),
            Some(JobState::Running | JobState::Suspended) => return Ok(()),
            _ => {
                call.say(&format!("scontrol: Problem running job {}", words.join(",")));
                return Err(Fail(1));
            }
        }
    }
}

/// Sends a request that has no arguments. `what` begins the error message.
pub(super) fn simple(call: &mut Call<'_>, request: &Request, what: &str) -> Result<(), Fail> {
    ask_done(call, request, what)
}

/// Parses jobs: ids separated by commas or blanks, or `jobname=NAME`. An empty list is an error.
fn selection(call: &mut Call<'_>, keyword: &str, words: &[String], what: Option<&str>) -> Result<JobSelection, Fail> {
    if words.is_empty() {
        call.say(&format!("too few arguments for keyword:{keyword}"));
        return Err(Fail(1));
    }
    select(call, words, what)
}

/// Parses a list of jobs: ids or `jobname=NAME`. An empty list is an error.
pub(super) fn select(call: &mut Call<'_>, words: &[String], what: Option<&str>) -> Result<JobSelection, Fail> {
    let mut ids = Vec::new();
    for word in words {
        let lower = word.to_lowercase();
        if let Some((key, name)) = word.split_once('=') {
            if lower.starts_with("jobn") || lower.starts_with("name=") {
                return job::named(call, name, Vec::new());
            }
            if !"jobid".starts_with(&key.to_lowercase()) {
                return call.fail(&format!("Invalid job id {word}"));
            }
        }
        let list = word.split_once('=').map_or(word.as_str(), |(_, list)| list);
        for part in list.split(',').filter(|part| !part.is_empty()) {
            match target(part) {
                Some(target) => ids.push(target.job),
                None => return not_a_job(call, part, what),
            }
        }
    }
    if ids.is_empty() { call.fail("No job ID specified") } else { Ok(JobSelection { ids, ..JobSelection::default() }) }
}

/// Fails with the message for a job that does not exist.
fn not_a_job<T>(call: &mut Call<'_>, word: &str, what: Option<&str>) -> Result<T, Fail> {
    const WORDS: &str = "Invalid job id specified";
    call.say(&format!("{WORDS} for job {word}"));
    if let Some(what) = what {
        call.say(&format!("{what}: {WORDS}"));
    }
    Err(Fail(1))
}

/// Sends a request about jobs and reports each job for which it was refused.
pub(super) fn act(call: &mut Call<'_>, manner: Manner, request: &Request, what: Option<&str>) -> Result<(), Fail> {
    let refused = match call.controller.ask(request) {
        Ok(Answer::Affected { refused, .. }) => refused,
        Ok(Answer::Done) => return Ok(()),
        Ok(_) => return call.failed(what.unwrap_or("scontrol"), &unexpected()),
        Err(e) if e.is_transient() => return call.failed(what.unwrap_or("slurm_requeue error"), &e),
        Err(e) => {
            let words = e.to_string();
            let name = name_of(request);
            call.say(&format!("{words} for job {name}"));
            if let Some(what) = what {
                call.say(&format!("{what}: {words}"));
            }
            return Err(Fail(1));
        }
    };
    for (name, why) in refused.iter().filter(|_| !manner.quiet) {
        let words = refusal::text(why);
        if let Refusal::Filtered(_, message) = why {
            message.lines().for_each(|line| call.say(line));
        }
        call.say(&format!("{words} for job {name}"));
        if let Some(what) = what {
            call.say(&format!("{what}: {words}"));
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Fail(1)) }
}

/// Returns the ids of the jobs that a request names, for messages.
fn name_of(request: &Request) -> String {
    let (Request::Hold { jobs, .. }
    | Request::Release { jobs }
    | Request::Requeue { jobs, .. }
    | Request::Suspend { jobs, .. }
    | Request::Top { jobs }
    | Request::UpdateJob { jobs, .. }) = request
    else {
        return String::new();
    };
    jobs.ids
        .iter()
        .map(|job| match job {
            JobRef::Job(id) => id.to_string(),
            JobRef::Tasks(id, tasks) => format!("{id}_{tasks}"),
            JobRef::Component(leader, offset) => format!("{leader}+{offset}"),
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// Runs `write batch_script JOB [FILE|-]` and `write config [FILE]`.
pub(super) fn write(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if let [kind, rest @ ..] = words
        && means(kind, "config", 1)
    {
        return config::write(call, rest.first().map(String::as_str));
    }
    let [kind, id, rest @ ..] = words else {
        if let Some(kind) = words.first().filter(|kind| !means(kind, "batch_script", 1)) {
            call.say(&format!("invalid write argument:{kind}"));
            return Err(Fail(1));
        }
        call.say("too few arguments for keyword:write");
        return Err(Fail(1));
    };
    if !"batch_script".starts_with(&kind.to_lowercase()) || kind.is_empty() {
        call.say(&format!("invalid write argument:{kind}"));
        return Err(Fail(1));
    }
    let Some(job) = target(id).map(|t| id_of(&t.job)) else {
        call.say("job script retrieval failed: Invalid job id specified");
        return Err(Fail(1));
    };
    let script = match call.controller.ask_host(&HostRequest::Script { job }) {
        Ok(Answer::Script(bytes)) => bytes,
        Ok(_) => return call.failed("job script retrieval failed", &unexpected()),
        Err(e) => return call.failed("job script retrieval failed", &e),
    };
    if rest.first().is_some_and(|f| f == "-") {
        drop(call.out.write_all(&script));
        return Ok(());
    }
    let path = rest.first().cloned().unwrap_or_else(|| format!("slurm-{id}.sh"));
    // A link that somebody has put there, with a script of theirs, would lead to a file of this user's choice no more.
    let flags = libc::O_NOFOLLOW;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&path);
    match file.and_then(|mut file| file.write_all(&script)) {
        Ok(()) => {
            call.print(&format!("batch script for job {id} written to {path}\n"));
            Ok(())
        }
        Err(e) => call.fail(&format!("failed to open file `{path}`: {e}")),
    }
}
