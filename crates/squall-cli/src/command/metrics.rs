//! `squall metrics`: the cluster's metrics as text for Prometheus.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::wire::client::{Answer, JobSelection, Request};

use crate::command::listing::call::{Call, Controller, Fail, live};
use squall_client::{ClientError, unexpected};
use squall_text::metrics::{JobCounts, Part, Scrape};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("part", '\0', Arg::Needed("part"), "jobs, jobs-users-accts, nodes, partitions or scheduler: as Slurm has it"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `squall metrics` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall metrics",
    about: "print the cluster's metrics as text for Prometheus",
    synopsis: &["[--part=PART]"],
    options: Options::Own(OPTIONS),
    notes: "\
Prints every metric once: the names of prometheus-slurm-exporter, those of Slurm 25.11 and
Squall's own. With --part: what Slurm 25.11 has at the path /metrics/PART.
",
};

/// Runs `squall metrics`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("squall metrics", args, metrics)
}

fn metrics(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if let Some(operand) = given.operands.first() {
        return call.fail(&format!("unexpected argument `{operand}`; see `squall metrics --help`"));
    }
    let wanted = given.last("part").unwrap_or_default();
    let Some(part) = Part::at(wanted) else {
        let names: Vec<&str> = Part::PATHS.into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
        return call.fail(&format!("--part={wanted}: there is no such part; it is one of {}", names.join(", ")));
    };
    let people = call.people;
    match scrape(call.controller, part, &|uid| people.user(uid)) {
        Ok(text) => {
            call.print(&text);
            Ok(())
        }
        Err(e) => call.failed("squall metrics", &e),
    }
}

/// Asks the controller for everything that the metrics are about, and returns them as text.
fn scrape(c: &mut dyn Controller, part: Part, user: &dyn Fn(u32) -> String) -> Result<String, ClientError> {
    let mut jobs = JobCounts::default();
    c.pages(JobSelection::default(), true, false, &mut |page| match page {
        Some(page) => jobs.add(&page),
        None => jobs = JobCounts::default(),
    })?;
    let Answer::Nodes(nodes) = c.ask(&Request::Nodes)? else { return Err(unexpected()) };
    let Answer::Partitions(partitions) = c.ask(&Request::Partitions)? else { return Err(unexpected()) };
    let Answer::Licenses(licenses) = c.ask(&Request::Licenses)? else { return Err(unexpected()) };
    let Answer::Shares(shares) = c.ask(&Request::Shares)? else { return Err(unexpected()) };
    let Answer::Diag(diag) = c.ask(&Request::Diag { reset: false })? else { return Err(unexpected()) };
    let scrape = Scrape {
        diag: &diag,
        nodes: &nodes,
        partitions: &partitions,
        jobs: &jobs,
        licenses: &licenses,
        shares: &shares,
    };
    Ok(scrape.text(part, user))
}
