//! swait: waits until no step of a job runs, such as those of `srun --async`.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use squall_model::id::StepNo;
use squall_model::wire::client::{JobRef, JobSelection};
use squall_model::wire::info::JobsPage;

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{id_of, target};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("timeout", '\0', Arg::Needed("SECS"), "wait at most so many seconds; 0, the default: without end"),
    flag("quiet", 'Q', Arg::None, "").hint("only errors are told"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("help", 'h', Arg::None, "show this help"),
    flag("usage", 'u', Arg::None, "show all options in a few lines"),
];

/// What `swait` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "swait",
    about: "wait until no step of a job runs",
    synopsis: &["[OPTIONS] [JOB[_TASK]]"],
    options: Options::Own(OPTIONS),
    notes: "\
Without an operand it waits for the steps of the job in which it runs. The exit
status is 0 if no step runs, 1 after --timeout, and 2 after an error.
",
};

const WHAT: &str = "slurm_get_job_steps error";
/// Time between two looks at the steps: first, and at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Runs swait.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("swait", args, swait)
}

/// Runs swait with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn swait(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    match wait(call, args) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fail(1)),
        Err(Fail(_)) => Err(Fail(2)),
    }
}

/// Waits until no step runs. Returns false if that takes longer than `--timeout`.
fn wait(call: &mut Call<'_>, args: &[String]) -> Result<bool, Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(true) };
    if given.has("") {
        call.print(&PAGE.help());
        return Ok(true);
    }
    let timeout = match given.parsed::<u64>("timeout") {
        Ok(seconds) => seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        Err(problem) => return call.fail(&problem),
    };
    let own = call.variable("SLURM_JOB_ID");
    let name = match (given.operands.as_slice(), own) {
        ([name], _) => name.clone(),
        ([], Some(own)) => own,
        ([], None) => return call.fail("No job given, and SLURM_JOB_ID is not set"),
        _ => return call.fail("too many parameters"),
    };
    let job = match target(&name) {
        Some(target) if target.step.is_none() && is_one(&target.job) => target.job,
        _ => return call.fail(&format!("Invalid job id: {name}")),
    };
    let (begun, mut pause) = (Instant::now(), LOOKS.0);
    loop {
        let jobs = JobSelection { ids: vec![job.clone()], ..JobSelection::default() };
        match call.controller.jobs(jobs, true, true) {
            Ok(page) if page.unknown.contains(&id_of(&job)) => return call.fail(&format!("Invalid job id: {name}")),
            Ok(page) if !has_steps(&page) => return Ok(true),
            Ok(_) => {}
            Err(e) => return call.failed(WHAT, &e),
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        std::thread::sleep(left.unwrap_or(pause).min(pause));
        pause = (pause * 2).min(LOOKS.1);
    }
}

/// Returns whether a reference is to one job: not to several tasks of an array, nor to a component.
fn is_one(job: &JobRef) -> bool {
    match job {
        JobRef::Job(_) => true,
        JobRef::Tasks(_, tasks) => tasks.len() == 1,
        JobRef::Component(..) => false,
    }
}

/// Returns whether a step of srun runs in one of these jobs.
fn has_steps(page: &JobsPage) -> bool {
    let steps = page.jobs.iter().filter_map(|job| job.run.as_ref()).flat_map(|run| &run.steps);
    steps.into_iter().any(|step| step.step != StepNo::BATCH && step.end.is_none())
}

#[cfg(test)]
mod tests {
    use super::swait;
    use crate::command::listing::fake::run;

    #[test]
    fn it_waits_for_steps_no_longer_than_it_is_told() {
        // Job 10 has a running step, 30 is pending.
        let seen = run("swait", swait, &["--timeout=1", "10"]);
        assert_eq!((seen.code, seen.err.as_str()), (1, ""));
        assert_eq!(run("swait", swait, &["30"]).code, 0);
        for (args, says) in [
            (&["41"][..], "swait: error: Invalid job id: 41"),
            (&["10.0"], "Invalid job id: 10.0"),
            (&["5_[1-2]"], "Invalid job id: 5_[1-2]"),
            (&["10", "11"], "too many parameters"),
            (&["--timeout=x", "10"], "--timeout=x"),
            (&[], "No job given, and SLURM_JOB_ID is not set"),
        ] {
            let seen = run("swait", swait, args);
            assert!(seen.code == 2 && seen.err.contains(says), "{args:?}: {} {}", seen.code, seen.err);
        }
    }
}
