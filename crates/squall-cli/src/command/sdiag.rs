//! sdiag: the controller's counters.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

use squall_model::gang::TimeSlice;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::counts::{Latencies, NodeCounts};
use squall_model::wire::info::{BackfillCounts, Diag, FabricCounts, GangCounts};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::structured::{dialect, document};
use squall_client::unexpected;
use squall_text::format::clock::Clock;
use squall_text::format::counters::{average, minutes, windows};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::AnswerKind;
use squall_text::shapes::diag::statistics;

const OPTIONS: &[Flag] = &[
    flag("all", 'a', Arg::None, "").hint("all statistics are always printed"),
    flag("cluster", 'M', Arg::Needed("names"), "direct the request to a specific cluster"),
    flag("clusters", 'M', Arg::Needed("names"), ""),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output"),
    flag("no-trunc", '\0', Arg::None, "").hint("nothing is ever cut"),
    flag("reset", 'r', Arg::None, "reset statistics"),
    flag("sort-by-id", 'i', Arg::None, "sort RPCs by id"),
    flag("sort-by-time", 't', Arg::None, "sort RPCs by total run time"),
    flag("sort-by-time2", 'T', Arg::None, "sort RPCs by average run time"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `sdiag` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sdiag",
    about: "show the controller's counters",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: "",
};

/// Runs sdiag.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sdiag", args, sdiag)
}

/// Runs sdiag with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sdiag(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("") {
        call.print(&PAGE.help());
        return Ok(());
    }
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, "slurm_get_statistics")?;
    let dialect = dialect(call, &given)?;
    let reset = given.has("reset");
    let mut diag = match call.controller.ask(&Request::Diag { reset }) {
        Ok(Answer::Diag(diag)) => *diag,
        Ok(_) => return call.failed("slurm_get_statistics", &unexpected()),
        Err(e) => return call.failed("slurm_get_statistics", &e),
    };
    if reset {
        call.print("Reset scheduling statistics\n");
        return Ok(());
    }
    sort(&mut diag, given.has("sort-by-id"), given.has("sort-by-time"), given.has("sort-by-time2"));
    let people = call.people;
    let name = |uid: u32| people.user(uid);
    let text = match dialect {
        Some(dialect) => {
            let cluster = call.cluster("slurm_get_statistics")?;
            document(
                call,
                dialect,
                &cluster,
                &["sdiag"],
                AnswerKind::Diag,
                vec![("statistics", statistics(&diag, &name))],
            )
        }
        None => text(&diag, &call.clock(diag.now), &name),
    };
    call.print(&text);
    Ok(())
}

/// Sorts the request counters by the column that an option selects; by default by number of requests, as Slurm does.
fn sort(diag: &mut Diag, by_id: bool, by_time: bool, by_average: bool) {
    if by_id {
        diag.messages.sort_by(|a, b| a.0.cmp(&b.0));
        diag.users.sort_by_key(|u| u.0);
        return;
    }
    let key = |count: u64, total: u64| {
        if by_time {
            total
        } else if by_average {
            average(total, count)
        } else {
            count
        }
    };
    diag.messages.sort_by_key(|m| std::cmp::Reverse(key(m.1, m.2)));
    diag.users.sort_by_key(|u| std::cmp::Reverse(key(u.1, u.2)));
}

fn text(diag: &Diag, clock: &Clock, name: &dyn Fn(u32) -> String) -> String {
    const LINE: &str = "*******************************************************\n";
    let date = |time: Time| date(clock, time);
    let mut out = String::new();
    out.push_str(LINE);
    line(&mut out, format_args!("sdiag output at {}", date(diag.now)));
    line(&mut out, format_args!("Data since      {}", date(diag.since)));
    out.push_str(LINE);
    line(&mut out, format_args!("Server thread count:  {}", diag.clients));
    line(&mut out, format_args!("RPC queue enabled:    0"));
    line(&mut out, format_args!("Agent queue size:     0"));
    line(&mut out, format_args!("Agent count:          {}", diag.nodes));
    line(&mut out, format_args!("Agent thread count:   {}", diag.nodes));
    line(&mut out, format_args!("DBD Agent queue size: 0\n"));
    line(&mut out, format_args!("Jobs submitted: {}", diag.jobs_submitted));
    line(&mut out, format_args!("Jobs started:   {}", diag.jobs_started));
    line(&mut out, format_args!("Jobs completed: {}", diag.jobs_completed));
    line(&mut out, format_args!("Jobs canceled:  {}", diag.jobs_canceled));
    line(&mut out, format_args!("Jobs failed:    {}\n", diag.jobs_failed));
    line(&mut out, format_args!("Job states ts:  {}", date(diag.now)));
    line(&mut out, format_args!("Jobs pending:   {}", diag.jobs_pending));
    line(&mut out, format_args!("Jobs running:   {}", diag.jobs_running));
    schedule(&mut out, diag);
    backfill(&mut out, &diag.backfill, clock);
    journal(&mut out, diag);
    fabric(&mut out, &diag.fabric);
    gang(&mut out, &diag.gang);
    out.push_str("\nRemote Procedure Call statistics by message type\n");
    for (at, (kind, count, total)) in diag.messages.iter().enumerate() {
        let mean = average(*total, *count);
        line(&mut out, format_args!("\t{kind:<40}({at:>5}) count:{count:<6} ave_time:{mean:<6} total_time:{total}"));
    }
    out.push_str("\nRemote Procedure Call statistics by user\n");
    for (uid, count, total) in &diag.users {
        let (user, mean) = (name(*uid), average(*total, *count));
        line(&mut out, format_args!("\t{user:<16}({uid:>8}) count:{count:<6} ave_time:{mean:<6} total_time:{total}"));
    }
    out.push_str("\nPending RPC statistics\n\tNo pending RPCs\n");
    latencies(&mut out, &diag.latency);
    node_daemons(&mut out, &diag.node_daemons);
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

/// Formats a time as `Sun Nov 22 00:59:41 2026 (1795309181)`.
fn date(clock: &Clock, time: Time) -> String {
    format!("{} ({})", clock.local(time).strftime("%a %b %d %H:%M:%S %Y"), time.secs())
}

fn schedule(out: &mut String, diag: &Diag) {
    out.push_str("\nMain schedule statistics (microseconds):\n");
    line(out, format_args!("\tLast cycle:   {}", diag.cycle_last_us));
    line(out, format_args!("\tMax cycle:    {}", diag.cycle_max_us));
    line(out, format_args!("\tTotal cycles: {}", diag.cycles));
    if diag.cycles > 0 {
        line(out, format_args!("\tMean cycle:   {}", average(diag.cycle_total_us, diag.cycles)));
        line(out, format_args!("\tMean depth cycle:  {}", average(diag.cycle_depth_total, diag.cycles)));
    }
    if minutes(diag) > 0 {
        line(out, format_args!("\tCycles per minute: {}", diag.cycles / minutes(diag)));
    }
    line(out, format_args!("\tLast queue length: {}", diag.queue_length));
}

/// Prints the backfill statistics. Squall has no separate backfill scheduler: a cycle here is a scheduling pass that
/// tried jobs behind a pending one with a reservation.
fn backfill(out: &mut String, counts: &BackfillCounts, clock: &Clock) {
    out.push_str("\nBackfilling stats\n");
    line(out, format_args!("\tTotal backfilled jobs (since last slurm start): {}", counts.jobs_ever));
    line(out, format_args!("\tTotal backfilled jobs (since last stats cycle start): {}", counts.jobs));
    line(out, format_args!("\tTotal backfilled heterogeneous job components: 0"));
    line(out, format_args!("\tTotal cycles: {}", counts.cycles));
    let last = counts.last.map_or_else(|| "N/A".to_owned(), |time| date(clock, time));
    line(out, format_args!("\tLast cycle when: {last}"));
    line(out, format_args!("\tLast cycle: {}", counts.last_us));
    line(out, format_args!("\tMax cycle:  {}", counts.max_us));
    let mean = |total: u64| average(total, counts.cycles);
    let some = counts.cycles > 0;
    if some {
        line(out, format_args!("\tMean cycle: {}", mean(counts.total_us)));
        line(out, format_args!("\tDepth Mean: {}", mean(counts.depth.1)));
        line(out, format_args!("\tDepth Mean (try depth): {}", mean(counts.tried.1)));
    }
    line(out, format_args!("\tLast depth cycle: {}", counts.depth.0));
    line(out, format_args!("\tLast depth cycle (try sched): {}", counts.tried.0));
    line(out, format_args!("\tLast queue length: {}", counts.queue.0));
    if some {
        line(out, format_args!("\tQueue length mean: {}", mean(counts.queue.1)));
    }
    line(out, format_args!("\tLast table size: {}", counts.times.0));
    if some {
        line(out, format_args!("\tMean table size: {}", mean(counts.times.1)));
    }
}

/// Prints the median and the 99th percentile of the durations that users and operators wait for.
fn latencies(out: &mut String, latency: &Latencies) {
    out.push_str("\nLatency statistics (microseconds)\n");
    for (name, histogram) in latency.all() {
        let quantile = |permille| histogram.quantile_us(permille).map_or_else(|| "N/A".to_owned(), |us| us.to_string());
        let (count, p50, p99) = (histogram.count(), quantile(500), quantile(990));
        line(out, format_args!("\t{name:<16} count:{count:<10} p50:{p50:<12} p99:{p99}"));
    }
}

/// Prints the counters of all node daemons together.
fn node_daemons(out: &mut String, counts: &NodeCounts) {
    out.push_str("\nNode daemon statistics\n");
    line(out, format_args!("\tSteps started: {}", counts.steps));
    line(out, format_args!("\tTasks started: {}", counts.tasks));
    line(out, format_args!("\tFailed launches: {}", counts.failed));
    line(out, format_args!("\tSteps ended: {}", counts.ended));
    line(out, format_args!("\tOut of memory: {}", counts.out_of_memory));
    line(out, format_args!("\tUnknown exit status: {}", counts.lost));
    line(out, format_args!("\tReports: {}", counts.reports));
    line(out, format_args!("\tReports sent again: {}", counts.repeats));
    line(out, format_args!("\tSessions: {}", counts.sessions));
}

fn journal(out: &mut String, diag: &Diag) {
    out.push_str("\nJournal statistics (microseconds):\n");
    line(out, format_args!("\tRecords: {}", diag.journal_records));
    line(out, format_args!("\tEvents:  {}", diag.journal_events));
    line(out, format_args!("\tBytes:   {}", diag.journal_bytes));
    line(out, format_args!("\tFlushes: {}", diag.journal_flushes));
    line(out, format_args!("\tMax flush:  {}", diag.flush_max_us));
    line(out, format_args!("\tMean flush: {}", average(diag.flush_total_us, diag.journal_flushes)));
    if diag.broken > 0 {
        line(out, format_args!("\nBroken invariants (a fault of Squall, see the controller's log): {}", diag.broken));
    }
}

fn fabric(out: &mut String, fabric: &FabricCounts) {
    out.push_str("\nFabric statistics (microseconds):\n");
    line(out, format_args!("\tMessages of nodes: {}", fabric.messages));
    line(out, format_args!("\tTime spent on them: {}", fabric.messages_us));
    line(out, format_args!("\tNode epilogs: {}", fabric.node_epilogs));
    line(out, format_args!("\tComposites:   {}", fabric.composites));
    line(out, format_args!("\tReports in composites: {}", fabric.composite_reports));
    line(out, format_args!("\tLongest wait of a report: {}", fabric.waited_max_us));
    line(out, format_args!("\tRepeated reports: {}", fabric.repeats));
    line(out, format_args!("\tRetransmits: {}", fabric.retransmits));
    line(out, format_args!("\tMulticast bytes: {}", fabric.multicast_bytes));
    let windows: Vec<String> = windows(fabric).map(|(range, count)| format!("{range}:{count}")).collect();
    let windows = if windows.is_empty() { "N/A".to_owned() } else { windows.join(" ") };
    line(out, format_args!("\tMessages by reports: {windows}"));
}

/// Prints the gang scheduling statistics; nothing if no jobs share nodes.
fn gang(out: &mut String, gang: &GangCounts) {
    if gang.jobs == 0 && gang.changes == 0 {
        return;
    }
    out.push_str("\nGang scheduling statistics:\n");
    line(out, format_args!("\tPolicy: {:?}, a slot lasts {}", gang.policy, TimeSlice(gang.slice)));
    line(out, format_args!("\tJobs: {} on {} nodes, in rounds of up to {} slots", gang.jobs, gang.nodes, gang.rows));
    line(out, format_args!("\tChanges of the matrix: {}", gang.changes));
    line(out, format_args!("\tStrobes: {}", gang.strobes));
    let skew = match (&gang.skew_us, &gang.worst) {
        (Some(us), _) => format!("less than {us} microseconds"),
        (None, Some((node, us))) => format!("{us} microseconds on {node}"),
        (None, None) => "N/A".to_owned(),
    };
    line(out, format_args!("\tOut of step: {skew}"));
}
