//! sstat: lists running steps with the resources that their tasks have used so far. The nodes are asked for these.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::id::StepNo;
use squall_model::wire::client::{AccountingQuery, Answer, JobSelection, Refusal, Request};
use squall_model::wire::info::AccountingRow;

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{Target, id_of, names, parts, target};
use crate::command::sacct;
use crate::command::scontrol::here;
use squall_client::ClientError;
use squall_text::columns::accounting::FIELDS;
use squall_text::format::accounting::{Row, Units};
use squall_text::format::sheet::{Column, Sheet};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, GivenFlag, flag};
use squall_text::page::{Options, Page};

const WHAT: &str = "slurm_load_accounting error";

const OPTIONS: &[Flag] = &[
    flag("allsteps", 'a', Arg::None, "all running steps of the jobs; otherwise the first numbered one"),
    flag("format", 'o', Arg::Needed("value"), "comma separated list of fields"),
    flag("fields", 'o', Arg::Needed("value"), ""),
    flag("helpformat", 'e', Arg::None, "print a list of fields that can be specified with the '--format' option"),
    flag("jobs", 'j', Arg::Needed("value"), "format is <job(.step)>, separated by commas"),
    flag("noconvert", '\0', Arg::None, "don't convert units from their original type"),
    flag("noheader", 'n', Arg::None, "no header will be added to the beginning of output"),
    flag("parsable", 'p', Arg::None, "output will be '|' delimited with a '|' at the end"),
    flag("parsable2", 'P', Arg::None, "output will be '|' delimited without a '|' at the end"),
    flag("pidformat", 'i', Arg::None, "show the processes of each step"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `sstat` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sstat",
    about: "show running steps",
    synopsis: &["[OPTIONS] -j <job(.stepid)>"],
    options: Options::Own(OPTIONS),
    notes: "\
What tasks use is measured when this command asks. See sacct for steps that have ended.
",
};

/// Names of the fields that sstat prints without `--format`.
const SHOWN: &str = "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,\
MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,\
ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,\
MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,\
TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,\
TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot";

/// Names of all fields, in the order of Slurm's list.
const KNOWN: &str = "AveCPU,AveCPUFreq,AveDiskRead,AveDiskWrite,AvePages,AveRSS,AveVMSize,ConsumedEnergy,ConsumedEnergyRaw,JobID,\
MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,MaxPages,\
MaxPagesNode,MaxPagesTask,MaxRSS,MaxRSSNode,MaxRSSTask,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,MinCPU,\
MinCPUNode,MinCPUTask,Nodelist,NTasks,Pids,ReqCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,\
TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,\
TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,\
TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot";

/// Name of the field with process ids. Only sstat has it, since only running steps have processes.
const PIDS: &str = "Pids";

static PROCESSES: &[Column<Row>] = &[Column::new(PIDS, 20, |row| row.pids.clone())];

/// Names of the fields printed with `-i`.
const OF_PROCESSES: &str = "JobID,NodeList,Pids";

/// Runs sstat.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sstat", args, sstat)
}

/// Runs sstat with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sstat(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("") {
        call.print(&PAGE.help());
        return Ok(());
    }
    if given.has("helpformat") {
        let text = sacct::in_columns(known());
        call.print(&text);
        return Ok(());
    }
    let sheet = sheet(call, &given)?;
    let jobs: Vec<&str> = given.options.iter().filter(|o| o.name == "jobs").map(GivenFlag::text).collect();
    let jobs: Vec<&str> = jobs.into_iter().chain(given.operands.iter().map(String::as_str)).collect();
    if jobs.is_empty() {
        return call.fail("You didn't give me any jobs to stat.");
    }
    let mut rows = Vec::new();
    for target in targets(call, &jobs.join(","))? {
        let mut steps = running(call, &target, given.has("allsteps"))?;
        for row in &mut steps {
            measure(call, row)?;
        }
        if steps.is_empty() {
            let none = why_none(call, &target)?;
            call.complain(&none);
        }
        rows.extend(steps);
    }
    let units = if given.has("noconvert") { Units::Plain } else { Units::Exact };
    let (clock, cluster) = (call.clock(call.now), call.cluster(WHAT)?);
    // Process ids are known on this machine only.
    let processes = if sheet.has(PIDS) { here() } else { Vec::new() };
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|data| {
            let key = (data.id, data.step);
            let own = processes.iter().filter(|process| (process.key.job, Some(process.key.step)) == key);
            let pids = own.map(|process| process.pid.to_string()).collect::<Vec<_>>().join(",");
            Row { units, pids, ..Row::new(data, &clock, &cluster) }
        })
        .collect();
    let text = sheet.lines(!given.has("noheader"), &given.style(), &rows);
    call.print(&text);
    Ok(())
}

/// Parses a list of jobs and steps. An invalid word fails with Slurm's message.
fn targets(call: &mut Call<'_>, list: &str) -> Result<Vec<Target>, Fail> {
    let mut all = Vec::new();
    for part in parts(list) {
        let Some(target) = target(part) else {
            call.say(&format!("sstat: fatal: Bad job/step specified: {part}"));
            return Err(Fail(1));
        };
        all.push(target);
    }
    Ok(all)
}

fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.split(',')
}

fn sheet(call: &mut Call<'_>, given: &Arguments) -> Result<Sheet<Row>, Fail> {
    let chosen: Vec<&str> =
        given.options.iter().filter(|o| o.name == "format" || o.name == "fields").map(GivenFlag::text).collect();
    let format = match chosen.is_empty() {
        true if given.has("pidformat") => OF_PROCESSES.to_owned(),
        true => SHOWN.to_owned(),
        false => chosen.join(","),
    };
    let mut sheet = Sheet::empty();
    for item in names(&format) {
        let name = item.split('%').next().unwrap_or_default().to_lowercase();
        if !known().any(|field| field.to_lowercase().starts_with(&name)) {
            return call.fail(&format!("Invalid field requested: \"{item}\""));
        }
        let columns = if PIDS.to_lowercase().starts_with(&name) { PROCESSES } else { FIELDS };
        match Sheet::parse(item.as_str(), columns) {
            Ok(columns) => sheet.append(columns),
            Err(bad) => return call.fail(&format!("Invalid field requested: \"{bad}\"")),
        }
    }
    Ok(sheet)
}

/// Returns the running steps of a target: the step that it names; with `all` every step of the job; otherwise the
/// numbered step with the lowest number.
fn running(call: &mut Call<'_>, target: &Target, all: bool) -> Result<Vec<AccountingRow>, Fail> {
    let query = AccountingQuery { ids: vec![target.job.clone()], step: target.step, ..AccountingQuery::default() };
    let mut rows = call.accounting(WHAT, query)?;
    rows.retain(|row| row.end.is_none() && row.step.is_some() && (target.step.is_none() || row.step == target.step));
    // The batch script first, then steps by number.
    rows.sort_by_key(|row| (row.step != Some(StepNo::BATCH), row.step));
    if all || target.step.is_some() {
        return Ok(rows);
    }
    rows.retain(|row| row.step != Some(StepNo::BATCH));
    rows.truncate(1);
    Ok(rows)
}

/// Returns Slurm's message for a target without running steps: no such job, no such step, or none running. This is no
/// error.
fn why_none(call: &mut Call<'_>, target: &Target) -> Result<String, Fail> {
    let (id, step) = (id_of(&target.job), target.step);
    let selection = JobSelection { ids: vec![target.job.clone()], ..JobSelection::default() };
    let page = match call.controller.jobs(selection, true, false) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    Ok(match step {
        _ if page.unknown.contains(&id) => format!("couldn't get steps for job {id}"),
        Some(step) => format!("StepId={id}.{step} not found running."),
        None => format!("No steps running for job {id}"),
    })
}

/// Asks the nodes for a step's usage so far and enters it in the row. If the step has just ended, the row keeps
/// accounting's data.
fn measure(call: &mut Call<'_>, row: &mut AccountingRow) -> Result<(), Fail> {
    let Some(step) = row.step else { return Ok(()) };
    match call.controller.ask(&Request::Measure { job: row.id, step, lately: true }) {
        Ok(Answer::Measured(usage, silent, _)) => {
            if silent > 0 {
                call.complain(&format!("{silent} node(s) of StepId={}.{step} did not answer in time", row.id));
            }
            row.usage = usage;
            Ok(())
        }
        Ok(_) | Err(ClientError::Refused(Refusal::InvalidJobId | Refusal::InvalidStepId | Refusal::NotRunning)) => {
            Ok(())
        }
        Err(e) => call.failed(WHAT, &e),
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::StepNo;
    use squall_model::job::JobState;

    use super::{known, sstat};
    use crate::command::listing::fake::{accounting, fake, run, run_with};
    use squall_text::columns::accounting::FIELDS;

    #[test]
    fn every_field_is_one_of_sacct() {
        for name in known().filter(|name| *name != "Pids") {
            assert!(FIELDS.iter().any(|field| field.name.eq_ignore_ascii_case(name)), "{name}");
        }
    }

    /// Checks fault D12: running steps are listed in order.
    #[test]
    fn d12_running_steps_in_order() {
        let mut fake = fake();
        fake.rows = [None, Some(StepNo::BATCH), Some(StepNo(1)), Some(StepNo(0))]
            .into_iter()
            .map(|step| {
                let mut row = accounting(40, step, JobState::Running);
                row.end = None;
                row
            })
            .collect();
        let mut seen = |args: &[&str]| run_with(&mut fake, "sstat", sstat, args, &[]);
        assert_eq!(seen(&["-nP", "-o", "jobid,maxrss", "-j", "40"]).out, "40.0|2M\n");
        // Fault D9: process ids.
        assert_eq!(seen(&["-nP", "-o", "jobid,pids", "-j", "40"]).out, "40.0|\n");
        assert_eq!(seen(&["-P", "-i", "-j", "40"]).out, "JobID|NodeList|Pids\n40.0|n[1-2]|\n");
        assert_eq!(seen(&["40.batch", "-n", "-p", "--format=JobID"]).out, "40.batch|\n");
        assert_eq!(seen(&["-a", "-nP", "-o", "JobID", "40"]).out, "40.batch\n40.0\n40.1\n");
        for (job, said) in [
            ("41", "couldn't get steps for job 41"),
            ("10", "No steps running for job 10"),
            ("10.7", "StepId=10.7 not found running."),
        ] {
            let none = seen(&["-j", job, "-P", "-o", "jobid,ntasks"]);
            assert_eq!((none.code, none.out.as_str()), (0, "JobID|NTasks\n"));
            assert_eq!(none.err, format!("sstat: error: {said}\n"));
        }
    }

    #[test]
    fn what_fails_and_how() {
        assert_eq!(run("sstat", sstat, &[]).err, "sstat: error: You didn't give me any jobs to stat.\n");
        assert_eq!(run("sstat", sstat, &["-j", "x"]).err, "sstat: fatal: Bad job/step specified: x\n");
        assert_eq!(run("sstat", sstat, &["-o", "state", "40"]).code, 1, "not a field of running steps");
    }
}
