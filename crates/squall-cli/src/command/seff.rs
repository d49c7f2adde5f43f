//! seff: how much of its allocated CPU and memory a job used.

use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

use squall_model::duration::format_elapsed;
use squall_model::resource::Memory;
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::AccountingRow;

use crate::command::listing::call::{Call, Fail, live};
use squall_text::format::accounting::Row;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::report::{JobUsage, amount, percent};

const OPTIONS: &[Flag] = &[
    flag("cluster", 'M', Arg::Needed("names"), "only the cluster here is known"),
    flag("debug", 'd', Arg::None, "").hint("there is no further detail"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `seff` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "seff",
    about: "show how well a job used what it had",
    synopsis: &["[OPTIONS] JOB[_TASK]..."],
    options: Options::Own(OPTIONS),
    notes: "\
What the tasks of a job used of the CPUs and the memory that it held.
",
};

/// Runs seff.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("seff", args, seff)
}

/// Runs seff with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn seff(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    call.check_cluster(given.last("cluster"), false, "slurm_load_accounting error")?;
    if given.operands.is_empty() || given.has("") {
        call.print(&PAGE.help());
        return Err(Fail(1));
    }
    for target in call.targets(&given.operands.join(","))? {
        let query = AccountingQuery { ids: vec![target.job.clone()], ..AccountingQuery::default() };
        let rows = call.accounting("slurm_load_accounting error", query)?;
        if rows.is_empty() {
            call.say("Job not found.");
            return Err(Fail(2));
        }
        let (clock, cluster) = (call.clock(call.now), call.cluster("slurm_load_accounting error")?);
        let row = |data| Row::new(data, &clock, &cluster);
        let (jobs, steps): (Vec<AccountingRow>, Vec<AccountingRow>) =
            rows.into_iter().partition(|data| data.step.is_none());
        for job in jobs {
            let of_it = steps.iter().filter(|s| s.id == job.id && s.attempt == job.attempt);
            let text = report(&row(job.clone()), &of_it.cloned().map(row).collect::<Vec<_>>());
            call.print(&text);
        }
    }
    Ok(())
}

fn report(job: &Row, steps: &[Row]) -> String {
    let data = &job.data;
    let used = JobUsage::of(job, steps);
    let mut text = String::new();
    let _ = writeln!(text, "Job ID: {}", data.id);
    if data.task.is_some() {
        let _ = writeln!(text, "Array Job ID: {}", job.id());
    }
    let _ = writeln!(text, "Cluster: {}\nUser/Group: {}/{}", job.cluster, data.owner.user, data.owner.group);
    let state = job.state();
    let state = state.split(' ').next().unwrap_or_default();
    match job.end() {
        Some(_) => {
            let _ = writeln!(text, "State: {state} (exit code {})", data.exit.code);
        }
        None => {
            let _ = writeln!(text, "State: {state}");
        }
    }
    let (nodes, cpus) = (data.num_nodes.max(1), data.num_cpus.max(data.req_cpus).max(1));
    let _ = if cpus > 1 {
        writeln!(text, "Nodes: {nodes}\nCores per node: {}", cpus / nodes)
    } else {
        writeln!(text, "Cores: {cpus}")
    };
    if data.start.is_none() && job.end().is_none() {
        text.push_str("Efficiency not available for jobs in the PENDING state.\n");
        return text;
    }
    let _ = writeln!(
        text,
        "CPU Utilized: {}\nCPU Efficiency: {:.2}% of {} core-walltime\nJob Wall-clock time: {}",
        format_elapsed(used.cpu_s),
        percent(used.cpu_s, used.held_cpu_s),
        format_elapsed(used.held_cpu_s),
        format_elapsed(job.elapsed())
    );
    let _ = writeln!(text, "Memory Utilized: {}", amount(used.memory_kb));
    let (percent, asked) = (percent(used.memory_kb, used.asked_kb), amount(used.asked_kb));
    let (parts, part) = match data.spec.need.memory {
        Memory::PerCpuMb(_) => (cpus, "core"),
        _ => (nodes, "node"),
    };
    let each = amount(used.asked_kb / u64::from(parts));
    let _ = writeln!(text, "Memory Efficiency: {percent:.2}% of {asked} ({each}/{part})");
    if job.end().is_none() {
        text.push_str("WARNING: Efficiency statistics may be misleading for RUNNING jobs.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::seff;
    use crate::command::listing::fake::{check, transcript};

    #[test]
    fn efficiency_of_jobs() {
        check("seff", &transcript("seff", seff, &[&["40"], &["50"], &["99999"], &["x"]]));
    }
}
