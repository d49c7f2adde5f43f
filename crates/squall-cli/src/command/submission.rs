//! Shared by sbatch, srun and salloc: complete a request from the own process, check cluster names, end the command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use squall_host::sys::command::become_user;
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::info::NodeInfo;

use crate::capture::{self, Vars};
use crate::command::hostfile;
use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::id_of;
use crate::contact::Patience;
use crate::hall::{hint, hints_wanted};
use squall_client::{ClientError, unexpected};
use squall_text::hints::{self, Hint};
use squall_text::options::collect::{self, CommandLine};
use squall_text::options::submit::{RunAs, SubmitOptions};
use squall_text::options::{Stop, Tool, counts, shown};
use squall_text::page::job;

/// Prints why a command stopped, if it failed, and returns its exit code.
pub(crate) fn ended(tool: Tool, result: Result<u8, Stop>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(stop) => {
            match &stop {
                Stop::Show(text) => crate::hall::print(text),
                Stop::Help => crate::hall::print(&job::of(tool).help()),
                Stop::Brief => crate::hall::print(&job::of(tool).usage()),
                _ => {}
            }
            eprint!("{}", stop.complaint(tool));
            // Users may choose an exit code that distinguishes Slurm's errors from those of their programs.
            let chosen = std::env::var("SLURM_EXIT_ERROR").ok().and_then(|code| code.parse().ok()).filter(|c| *c != 0);
            ExitCode::from(if stop.exit() == 1 { chosen.unwrap_or(1) } else { stop.exit() })
        }
    }
}

/// Applies environment variables, then the command line, to a request. Options that the request has already are of
/// lower precedence.
pub(crate) fn apply(asked: &mut SubmitOptions, tool: Tool, line: &CommandLine<'_>, vars: &Vars) -> Result<(), Stop> {
    let lookup = |name: &str| vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.to_string_lossy().into_owned());
    collect::apply_variables(asked, tool, &lookup)?;
    collect::apply_line(asked, tool, line)?;
    if let Some(line) = collect::settle_hint(asked).filter(|_| asked.verbose > 0) {
        eprintln!("{}: {line}", tool.name());
    }
    collect::verify(asked)?;
    hostfile::apply(asked, vars)?;
    counts::complete(asked)?;
    for line in &asked.warnings {
        eprintln!("{}: {line}", tool.name());
    }
    hint_about(asked, tool);
    if asked.verbose > 0 {
        let noted = asked.notes.iter().cloned();
        for line in noted.chain(shown::defined(asked, tool)).chain(shown::without_effect(asked, tool)) {
            eprintln!("{}: {line}", tool.name());
        }
    }
    Ok(())
}

/// Prints hints about `--time` and `--dependency`.
fn hint_about(asked: &SubmitOptions, tool: Tool) {
    hint(tool.name(), asked.given.get("time").and_then(Option::as_deref).and_then(hints::of_time));
    let folder = asked.given.get("chdir").and_then(Option::as_deref).filter(|dir| !Path::new(dir).is_dir());
    hint(tool.name(), folder.map(|dir| Hint::Folder(dir.to_owned())));
    let terms = asked.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
    let ids: BTreeSet<u32> = terms.filter_map(|term| term.job).map(|job| job.id.0).collect();
    if hints_wanted() && !ids.is_empty() {
        let ids: Vec<OsString> = ids.iter().map(|id| id.to_string().into()).collect();
        // Hints change no exit code.
        let _ = live(tool.name(), &ids, hint_dependency);
    }
}

/// Hints at what there is, where a partition or nodes were asked for that there are not.
pub(crate) fn hint_refused(tool: Tool, error: &ClientError) {
    let ClientError::Refused(refusal) = error else { return };
    let wanted = match refusal {
        Refusal::InvalidPartition(name) => !name.is_empty(),
        Refusal::NodeConfigNotAvailable(what) => matches!(what.as_str(), "memory" | "CPUs"),
        _ => false,
    };
    if wanted && hints_wanted() {
        let partition = if let Refusal::InvalidPartition(name) = refusal { vec![name.into()] } else { Vec::new() };
        let _ = live(tool.name(), &partition, hint_available);
    }
}

/// Hints at the partitions, given the name of one that there is not, or at the largest node.
fn hint_available(call: &mut Call<'_>, partition: &[String]) -> Result<(), Fail> {
    let asked = if partition.is_empty() { Request::Nodes } else { Request::Partitions };
    let answer = call.controller.ask(&asked).map_err(|_| Fail(1))?;
    match (partition, answer) {
        ([name], Answer::Partitions(all)) => {
            let known = all.iter().filter(|known| !known.config.hidden).map(|known| known.config.name.clone());
            call.hint(&Hint::Partition(name.clone(), known.collect()));
        }
        (_, Answer::Nodes(nodes)) => {
            let most = |value: fn(&NodeInfo) -> u64| nodes.iter().map(value).max().unwrap_or(0);
            let cpus = most(|node| u64::from(node.hardware.cpus));
            call.hint(&Hint::Largest(cpus as u32, most(|node| node.hardware.memory_mb)));
        }
        _ => {}
    }
    Ok(())
}

/// Hints at those of the jobs `ids` that neither the controller nor accounting knows. Says nothing if it can't find out.
fn hint_dependency(call: &mut Call<'_>, ids: &[String]) -> Result<(), Fail> {
    // A ping is not repeated while the controller is away.
    let ids: Vec<JobRef> = call.targets(&ids.join(","))?.into_iter().map(|target| target.job).collect();
    let selection = JobSelection { ids: ids.clone(), ..JobSelection::default() };
    let listed = call.controller.ask(&Request::Ping).and_then(|_| call.controller.jobs(selection, true, false));
    let unknown = listed.map(|page| page.unknown).unwrap_or_default();
    let ids: Vec<JobRef> = ids.into_iter().filter(|id| unknown.contains(&id_of(id))).collect();
    let query = AccountingQuery { ids: ids.clone(), allocations_only: true, ..AccountingQuery::default() };
    if let Some(Ok(rows)) = (!ids.is_empty()).then(|| call.controller.accounting(query)) {
        let is = |id: JobId| rows.iter().any(|row| row.id == id || row.task.is_some_and(|task| task.array == id));
        ids.iter().map(id_of).filter(|id| !is(*id)).for_each(|id| call.hint(&Hint::Dependency(id)));
    }
    Ok(())
}

/// Applies `--uid` and `--gid`, which root may use: this process becomes that user before its first request, so the
/// kernel confirms the job's owner as for any user.
pub(crate) fn become_owner(run_as: RunAs) -> Result<(), Stop> {
    let RunAs { user, group } = run_as;
    if user.is_none() && group.is_none() {
        return Ok(());
    }
    let (uid, login) = user.unwrap_or((0, 0));
    become_user(uid, group.unwrap_or(login)).map_err(|error| Stop::bad(error.to_string()))
}

/// Adds working directory, umask, limits, host and command line to the request. Returns the current directory.
pub(crate) fn place(asked: &mut SubmitOptions, tool: Tool, args: &[OsString]) -> Result<PathBuf, Stop> {
    let here = capture::folder()?;
    let shown = here.to_string_lossy().into_owned();
    asked.spec.work_dir = match asked.spec.work_dir.as_str() {
        "" => shown,
        dir => {
            asked.spec.options.shown.submit_dir = Some(shown);
            here.join(dir).to_string_lossy().into_owned()
        }
    };
    asked.spec.umask = capture::file_mask();
    asked.spec.rlimits = capture::rlimits(asked.propagate.as_deref())?;
    if asked.propagate.is_some() {
        asked.spec.options.names_limits = Some(true);
    }
    if asked.verbose > 1 && tool != Tool::Salloc {
        for line in capture::propagated(&asked.spec.rlimits, asked.spec.umask) {
            eprintln!("{}: debug:  propagating {line}", tool.name());
        }
    }
    asked.spec.submit_host = capture::host();
    asked.spec.submit_session = capture::session();
    asked.spec.within = capture::job();
    asked.spec.submit_line = capture::submit_line(tool, args);
    Ok(here)
}

/// Prints what the site's submit filter tells the user of a job that it accepts.
pub(crate) fn tell(command: &str, message: Option<&str>) {
    for line in message.unwrap_or_default().lines() {
        eprintln!("{command}: {line}");
    }
}

/// Fails if none of the named clusters is this one. Without names the controller isn't asked.
pub(crate) fn known_cluster(tool: Tool, names: Option<&str>) -> Result<(), Stop> {
    let Some(names) = names else { return Ok(()) };
    let failed = |e: ClientError| Stop::Bad { lines: e.lines(tool.failed()), exit: 1 };
    let cluster = Patience::new(tool.name()).cluster().map_err(failed)?;
    let known = names.split(',').any(|n| n.eq_ignore_ascii_case("all") || n == cluster);
    if known {
        return Ok(());
    }
    Err(Stop::bad(format!(
        "'{names}' can't be reached now, or it is an invalid entry for --cluster.  This is cluster '{cluster}'."
    )))
}

/// Returns the line for `--test-only`, with the time at which the job would start.
pub(crate) fn would_start(tool: Tool, spec: JobSpec) -> Result<String, ClientError> {
    let request = Request::TestSubmit { spec: Arc::new(spec) };
    match Patience::new(tool.name()).ask(&request)?.1 {
        Answer::WouldStart { job, time, cpus, nodes, partition } => Ok(format!(
            "Job {job} to start at {} using {cpus} processors on nodes {nodes} in partition {partition}",
            shown(time)
        )),
        _ => Err(unexpected()),
    }
}

/// Formats a time in the local time zone: `2026-11-21T08:00:00`.
fn shown(time: Time) -> String {
    let at = Timestamp::from_microsecond(time.0 as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::hint_dependency;
    use crate::command::listing::fake::{HINTS, fake, run_with};

    #[test]
    fn a_dependency_on_a_job_that_never_was_is_told() {
        let said = |ids: &[&str], env: &[(&str, &str)]| {
            let seen = run_with(&mut fake(), "sbatch", hint_dependency, ids, env);
            assert_eq!((seen.code, seen.out.as_str()), (0, ""));
            seen.err
        };
        let line =
            "sbatch: hint: --dependency: you can see no job 99999; the new job does not wait for one that never was\n";
        assert_eq!(said(&["10", "40", "99999"], &[HINTS]), line, "job 40 is in accounting only");
        assert_eq!(said(&["99999"], &[]), "");
        let mut away = fake();
        away.down = true;
        assert_eq!(run_with(&mut away, "sbatch", hint_dependency, &["99999"], &[HINTS]).err, "");
    }
}
