//! `squall why JOB`: every reason why a job is pending, which nodes fail which test, which jobs are ahead, and what
//! would help.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::wire::client::{Answer, Request};

use crate::command::listing::call::{Call, Fail, live};
use squall_client::unexpected;
use squall_text::format::colour::clean;
use squall_text::format::why::{json, text};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[flag("json", '\0', Arg::None, "produce JSON output")];

/// What `squall why` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall why",
    about: "say why a job waits, and what would let it start",
    synopsis: &["JOB [--json]"],
    options: Options::Own(OPTIONS),
    notes: "\
Says why a job waits: every reason with the one that counts first, which nodes fail which test,
who is ahead of it, when it is expected to start, and which change by itself would let it start
sooner. With the variable SQUALL_COLOR=auto, states have colours on a terminal, unless NO_COLOR
is set.
",
};

/// Runs `squall why`: prints why a job is pending.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("squall why", args, why)
}

fn why(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let [job] = given.operands.as_slice() else {
        return call.fail("which job? `squall why JOB`; squeue lists them");
    };
    let target = call.targets(job)?;
    let selection = squall_model::wire::client::JobSelection {
        ids: target.iter().map(|target| target.job.clone()).collect(),
        ..Default::default()
    };
    let found = match call.controller.jobs(selection, true, false) {
        Ok(page) => page.jobs.first().map(|job| {
            let spec = page.specs.get(job.spec as usize);
            (job.id, spec.and_then(|spec| spec.options.get()?.filtered.clone()))
        }),
        Err(e) => return call.failed("squall why", &e),
    };
    let Some((id, filtered)) = found else { return call.fail("Invalid job id specified") };
    let told = match call.controller.ask(&Request::Why { job: id }) {
        Ok(Answer::Why(told)) => *told,
        Ok(_) => return call.failed("squall why", &unexpected()),
        Err(e) => return call.failed("squall why", &e),
    };
    let (clock, coloured) = (call.clock(call.now), call.coloured()?);
    let text = match (given.has("json"), filtered) {
        (true, _) => format!("{:#}\n", json(&told)),
        (false, None) => text(&told, &clock, coloured),
        (false, Some(names)) => {
            let names = names.replace(',', ", ");
            format!("{}The site's submit filter changed: {names}\n", text(&told, &clock, coloured))
        }
    };
    call.print(&clean(&text));
    Ok(())
}
