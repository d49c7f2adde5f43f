//! scancel: cancels jobs and steps, or sends them signals.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::id::StepNo;
use squall_model::wire::client::{Answer, JobName, JobRef, JobSelection, Refusal, Request, StateFilter};
use squall_model::wire::info::JobInfo;
use squall_model::wire::node::SignalTarget;

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{Target, names, parts, target};
use squall_client::{ClientError, unexpected};
use squall_text::hints::Hint;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::options::values::signal::signal_number;
use squall_text::page::{Options, Page};
use squall_text::refusal;

const SIGKILL: i32 = 9;

const OPTIONS: &[Flag] = &[
    flag("account", 'A', Arg::Needed("account"), "act only on jobs charging this account"),
    flag("admin-comment", '\0', Arg::Needed("text"), "")
        .refused("use `scontrol update jobid=ID admincomment=TEXT`, then cancel the job"),
    flag("batch", 'b', Arg::None, "signal batch shell for specified job"),
    flag("clusters", 'M', Arg::Needed("names"), "clusters to issue commands to"),
    flag("cron", 'c', Arg::None, "").hint("there are no cron jobs"),
    flag("ctld", '\0', Arg::None, "").hint("the controller always sends the signals"),
    flag("full", 'f', Arg::None, "signal batch shell and all steps for specified job"),
    flag("hurry", 'H', Arg::None, "").hint("there are no burst buffers"),
    flag("interactive", 'i', Arg::None, "require response from user for each job"),
    flag("jobname", 'n', Arg::Needed("value"), ""),
    flag("me", '\0', Arg::None, "act only on jobs owned by the user"),
    flag("name", 'n', Arg::Needed("job_name"), ""),
    flag("nodelist", 'w', Arg::Needed("value"), "act only on jobs on these nodes"),
    flag("partition", 'p', Arg::Needed("partition"), "act only on jobs in this partition"),
    flag("qos", 'q', Arg::Needed("qos"), "act only on jobs with this quality of service"),
    flag("quiet", 'Q', Arg::None, "disable warnings"),
    flag("reservation", 'R', Arg::Needed("reservation"), "act only on jobs with this reservation"),
    flag("sibling", '\0', Arg::Needed("value"), "").hint("no federation exists"),
    flag("signal", 's', Arg::Needed("name"), "signal to send to job, default is SIGKILL"),
    flag(
        "state",
        't',
        Arg::Needed("states"),
        "act only on jobs in this state. Valid job states are PENDING, RUNNING and SUSPENDED",
    ),
    flag("user", 'u', Arg::Needed("user_id"), "act only on jobs of this user"),
    flag("verbose", 'v', Arg::None, "verbosity level"),
    flag("wckey", '\0', Arg::Needed("wckey"), "act only on jobs with this workload characterization key"),
];

/// What `scancel` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "scancel",
    about: "end jobs, or send them signals",
    synopsis: &["[OPTIONS] [job_id[_array_id][.step_id]]"],
    options: Options::Own(OPTIONS),
    notes: "",
};

/// Runs scancel.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("scancel", args, scancel)
}

/// Settings of a cancellation: the signal and the other options.
struct CancelOptions {
    signal: Option<i32>,
    batch: bool,
    full: bool,
    verbose: bool,
    quiet: bool,
    interactive: bool,
}

/// Runs scancel with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn scancel(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    call.check_cluster(given.last("clusters"), false, "slurm_load_jobs error")?;
    let way = way(call, &given)?;
    let mut targets = Vec::new();
    for part in given.operands.iter().flat_map(|operand| parts(operand)) {
        match target(part) {
            Some(target) => targets.push(target),
            None => return call.fail(&format!("Invalid job id {part}")),
        }
    }
    let selection = selection(call, &given)?;
    if targets.is_empty() && selection == JobSelection::default() && narrow(&given).is_none() {
        return call.fail("No job identification provided");
    }
    if way.interactive || narrow(&given).is_some() {
        let (targets, unknown) = chosen(call, &given, (&way, selection.clone()), &targets)?;
        let done = if targets.is_empty() { Ok(()) } else { all(call, &way, &JobSelection::default(), &targets) };
        return if unknown { done.and(Err(Fail(1))) } else { done };
    }
    all(call, &way, &selection, &targets)
}

fn way(call: &mut Call<'_>, given: &Arguments) -> Result<CancelOptions, Fail> {
    let signal = match given.last("signal") {
        None => None,
        Some(text) => match signal_number(text) {
            Some(number) => Some(number),
            None => return call.fail(&format!("Unknown job signal: {text}")),
        },
    };
    Ok(CancelOptions {
        signal,
        batch: is_set(call, given, "batch"),
        full: is_set(call, given, "full"),
        verbose: is_set(call, given, "verbose"),
        quiet: given.has("quiet"),
        interactive: is_set(call, given, "interactive"),
    })
}

/// Returns whether a flag is given, or its variable is `true` or `T`. `false` and `F` do not set it; other values are
/// reported.
fn is_set(call: &mut Call<'_>, given: &Arguments, flag: &str) -> bool {
    let variable = format!("SCANCEL_{}", flag.to_ascii_uppercase());
    let Some(value) = call.variable(&variable).filter(|_| !given.has(flag)) else { return given.has(flag) };
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" => true,
        "false" | "f" => false,
        _ => {
            call.complain(&format!("Unrecognized {variable} value: {value}"));
            false
        }
    }
}

fn selection(call: &mut Call<'_>, given: &Arguments) -> Result<JobSelection, Fail> {
    let from = |option: &str, variable: &str, call: &Call<'_>| {
        given.last(option).map(str::to_owned).or_else(|| call.variable(variable))
    };
    let list = |text: Option<String>| text.as_deref().map(names).unwrap_or_default();
    let mut selection = JobSelection {
        partitions: list(from("partition", "SCANCEL_PARTITION", call)),
        names: list(given.last("name").or(given.last("jobname")).map(str::to_owned).or(call.variable("SCANCEL_NAME"))),
        accounts: list(from("account", "SCANCEL_ACCOUNT", call)),
        qos: list(from("qos", "SCANCEL_QOS", call)),
        nodes: given.last("nodelist").map(str::to_owned),
        ..JobSelection::default()
    };
    if let Some(users) = from("user", "SCANCEL_USER", call) {
        selection.users = call.user_ids(&users)?;
    }
    if given.has("me") {
        selection.users = vec![call.people.me()];
    }
    if let Some(states) = from("state", "SCANCEL_STATE", call) {
        let allowed = [StateFilter::Pending, StateFilter::Running, StateFilter::Suspended];
        match call.states(&states)? {
            Some(states) if states.iter().all(|s| allowed.contains(s)) => selection.states = states,
            _ => return call.fail(&format!("Invalid job state {states}: use PENDING, RUNNING or SUSPENDED")),
        }
    }
    Ok(selection)
}

/// Returns the values of `--reservation` and `--wckey`, because of which the jobs must be listed first. None: neither
/// is given.
fn narrow(given: &Arguments) -> Option<(Option<&str>, Option<&str>)> {
    let both = (given.last("reservation"), given.last("wckey"));
    (both != (None, None)).then_some(both)
}

/// Lists jobs and returns those to cancel, each confirmed by the user with `--interactive`, and whether a named one was
/// not found among the jobs that have not ended.
fn chosen(
    call: &mut Call<'_>,
    given: &Arguments,
    (way, mut selection): (&CancelOptions, JobSelection),
    targets: &[Target],
) -> Result<(Vec<Target>, bool), Fail> {
    selection.ids = targets.iter().map(|t| t.job.clone()).collect();
    let page = match call.controller.jobs(selection, false, false) {
        Ok(page) => page,
        Err(e) => return call.failed("slurm_load_jobs error", &e),
    };
    let known = |target: &Target| page.jobs.iter().any(|job| of_job(&target.job, job));
    let unknown = targets.iter().any(|target| !known(target));
    for target in targets.iter().filter(|target| !way.quiet && !known(target)) {
        call.complain(&format!("Kill job error on job id {}: {}", target.text, refusal::text(&Refusal::InvalidJobId)));
    }
    let (reservation, wckey) = narrow(given).unwrap_or_default();
    let mut all = Vec::new();
    for job in &page.jobs {
        let Some(spec) = page.specs.get(job.spec as usize) else { continue };
        let fits = reservation.is_none_or(|r| spec.reservation.as_deref() == Some(r))
            && wckey.is_none_or(|k| spec.wckey.as_deref() == Some(k));
        if !fits {
            continue;
        }
        let name = JobName { id: job.id, task: job.task };
        let meant = targets.iter().filter(|target| of_job(&target.job, job)).map(|target| target.step);
        let whole = targets.is_empty().then_some(None);
        for step in meant.chain(whole) {
            let what = step.map_or_else(|| format!("job_id={name}"), |step| format!("step_id={name}.{step}"));
            let partition = page.class(job).map_or("", |class| &class.partition);
            let question = format!("Cancel {what} name={} partition={partition} [y/n]? ", spec.name);
            if !way.interactive || agreed(call, &question) {
                let job_ref = match &job.pending_tasks {
                    Some(tasks) => JobRef::Tasks(job.id, tasks.clone()),
                    None => JobRef::Job(job.id),
                };
                all.push(Target { job: job_ref, step, text: name.to_string() });
            }
        }
    }
    Ok((all, unknown))
}

/// Returns whether a job is among those that `meant`, a word of the command line, names.
fn of_job(meant: &JobRef, job: &JobInfo) -> bool {
    match meant {
        JobRef::Job(id) | JobRef::Tasks(id, _) => *id == job.id || job.task.is_some_and(|task| task.array == *id),
        JobRef::Component(leader, offset) => job.id.0 == leader.0 + offset,
    }
}

fn agreed(call: &mut Call<'_>, question: &str) -> bool {
    loop {
        call.print(question);
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => match line.trim() {
                "y" | "Y" => return true,
                "n" | "N" => return false,
                _ => {}
            },
        }
    }
}

/// Sends one request for all jobs and one for each step.
fn all(call: &mut Call<'_>, way: &CancelOptions, selection: &JobSelection, targets: &[Target]) -> Result<(), Fail> {
    let mut result = Ok(());
    let jobs: Vec<JobRef> = targets.iter().filter(|t| t.step.is_none()).map(|t| t.job.clone()).collect();
    if !jobs.is_empty() || targets.is_empty() {
        result = one(call, way, JobSelection { ids: jobs, ..selection.clone() }, None);
    }
    for target in targets {
        if let Some(step) = target.step {
            let selection = JobSelection { ids: vec![target.job.clone()], ..selection.clone() };
            result = result.and(one(call, way, selection, Some(step)));
        }
    }
    result
}

fn one(call: &mut Call<'_>, way: &CancelOptions, jobs: JobSelection, step: Option<StepNo>) -> Result<(), Fail> {
    let target = match step {
        _ if way.full => SignalTarget::Full,
        _ if way.batch => SignalTarget::Batch,
        Some(step) => SignalTarget::Step(step),
        None => SignalTarget::Steps,
    };
    // KILL to all processes of a job cancels it, as does no signal.
    let signal = match way.signal {
        None | Some(SIGKILL) if !way.batch && !way.full => None,
        signal => Some((signal.unwrap_or(SIGKILL), target)),
    };
    // With a filter Slurm looks the jobs up first, and a named one that it doesn't find among those that have not ended is
    // an error. Without, that is no failure, and neither is one that ends while the filter finds it.
    let filtered = jobs.is_filtered();
    let named = filtered && !jobs.ids.is_empty();
    let request = Request::Cancel { jobs, signal, step, verbose: way.verbose || filtered || call.hints };
    let (done, refused) = match call.controller.ask(&request) {
        Ok(Answer::Affected { jobs, refused }) => (jobs, refused),
        Ok(Answer::Done) => return Ok(()),
        Ok(_) => return call.failed("Kill job error", &unexpected()),
        Err(e) => {
            let quiet = way.quiet && !e.is_transient();
            if let ClientError::Refused(refusal @ Refusal::NotFrom(..)) = &e
                && let Some(why) = refusal::detail(refusal)
            {
                call.complain(&why);
            }
            return if quiet { Ok(()) } else { call.fail(&format!("Kill job error: {e}")) };
        }
    };
    if way.verbose && done.is_empty() && refused.is_empty() {
        call.complain("No active jobs match ALL job filters");
    } else if !way.quiet && done.is_empty() && refused.is_empty() {
        call.hint(&Hint::NoneMatches);
    }
    if way.verbose {
        for job in done.iter().chain(refused.iter().map(|(job, _)| job)) {
            let name = step.map_or_else(|| job.to_string(), |step| format!("{job}.{step}"));
            let kind = match step {
                _ if way.full => "full job",
                _ if way.batch => "batch job",
                Some(_) => "step",
                None => "job",
            };
            call.say(&match signal {
                None => format!("scancel: Terminating {kind} {name}"),
                Some((number, _)) => format!("scancel: Signal {number} to {kind} {name}"),
            });
        }
    }
    let mut result = Ok(());
    for (job, why) in &refused {
        let unknown = matches!(why, Refusal::InvalidJobId | Refusal::AlreadyDone);
        let harmless = matches!(why, Refusal::InvalidStepId) || (unknown && !named);
        let why = if unknown && named { &Refusal::InvalidJobId } else { why };
        if !way.quiet && (way.verbose || !harmless) {
            let name = step.map_or_else(|| job.to_string(), |step| format!("{job}.{step}"));
            let kind = if step.is_some() { "job step id" } else { "job id" };
            call.complain(&format!("Kill job error on {kind} {name}: {}", refusal::text(why)));
        } else if !way.quiet && unknown {
            call.hint(&Hint::NotThere(job.to_string()));
        }
        if !harmless {
            result = Err(Fail(1));
        }
    }
    result
}
