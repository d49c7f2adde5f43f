//! Metrics that only Squall has.

use squall_model::time::Span;
use squall_model::wire::counts::Latencies;
use squall_model::wire::info::{Diag, LicenseInfo};

use super::exposition::{Metric, Text, counter, gauge};
use super::scheduler::Requests;

/// Counters of the controller. They are 0 when it starts, and after `sdiag --reset`.
pub(super) const CONTROLLER: &[Metric<Diag>] = &[
    gauge("squall_counters_since_timestamp_seconds", "When the counters were last 0, seconds since 1970", |d| {
        d.since.0 as f64 / 1e6
    }),
    gauge("squall_clients", "Connections of clients", |d| d.clients as f64),
    gauge("squall_nodes_connected", "Nodes with a session", |d| d.nodes as f64),
    counter("squall_jobs_submitted_total", "Jobs submitted; each task of an array counts", |d| d.jobs_submitted as f64),
    counter("squall_jobs_started_total", "Jobs started, repeated starts included", |d| d.jobs_started as f64),
    counter("squall_jobs_completed_total", "Jobs that ended with state COMPLETED", |d| d.jobs_completed as f64),
    counter("squall_jobs_cancelled_total", "Jobs that ended with state CANCELLED", |d| d.jobs_canceled as f64),
    counter("squall_jobs_failed_total", "Jobs that ended with another state", |d| d.jobs_failed as f64),
    counter("squall_jobs_backfilled_total", "Jobs started ahead of a pending one", |d| d.backfill.jobs as f64),
    counter("squall_journal_records_total", "Records written to the journal", |d| d.journal_records as f64),
    counter("squall_journal_events_total", "Events written to the journal", |d| d.journal_events as f64),
    counter("squall_journal_bytes_total", "Bytes written to the journal", |d| d.journal_bytes as f64),
    counter("squall_node_messages_total", "Messages from nodes", |d| d.fabric.messages as f64),
    counter("squall_node_message_seconds_total", "Time spent on messages from nodes", |d| {
        d.fabric.messages_us as f64 / 1e6
    }),
    counter("squall_node_reports_repeated_total", "Reports of nodes that had no effect", |d| d.fabric.repeats as f64),
    counter("squall_composites_total", "Messages that combine reports of several nodes", |d| {
        d.fabric.composites as f64
    }),
    counter("squall_composite_reports_total", "Reports in these messages", |d| d.fabric.composite_reports as f64),
    counter("squall_multicast_bytes_total", "Bytes of files sent to many nodes", |d| d.fabric.multicast_bytes as f64),
    counter("squall_file_retransmits_total", "Pieces of files sent again", |d| d.fabric.retransmits as f64),
    counter("squall_broken_invariants_total", "Faults of the program that it noticed itself", |d| d.broken as f64),
    counter("squall_jobs_nodes_lost_total", "Nodes that running jobs lost, so that their work stopped", |d| {
        d.nodes_lost as f64
    }),
    gauge("squall_gang_jobs", "Jobs that share cores with others", |d| d.gang.jobs as f64),
    gauge("squall_gang_nodes", "Nodes on which jobs share cores", |d| d.gang.nodes as f64),
    counter("squall_gang_changes_total", "Changes of the gang matrix", |d| d.gang.changes as f64),
];

/// Counters of all node daemons together, as far as they have reported them since the controller's counters were 0.
pub(super) const NODE_DAEMONS: &[Metric<Diag>] = &[
    counter("squall_node_steps_started_total", "Steps started by node daemons", |d| d.node_daemons.steps as f64),
    counter("squall_node_tasks_started_total", "Tasks of these steps", |d| d.node_daemons.tasks as f64),
    counter("squall_node_launches_failed_total", "Steps that a node could not launch", |d| {
        d.node_daemons.failed as f64
    }),
    counter("squall_node_steps_ended_total", "Steps ended on nodes", |d| d.node_daemons.ended as f64),
    counter("squall_node_out_of_memory_total", "Steps with processes killed for a memory limit", |d| {
        d.node_daemons.out_of_memory as f64
    }),
    counter("squall_node_steps_lost_total", "Steps without a known exit status", |d| d.node_daemons.lost as f64),
    counter("squall_node_reports_total", "Reports for the controller", |d| d.node_daemons.reports as f64),
    counter("squall_node_reports_sent_again_total", "Reports sent again in a new session", |d| {
        d.node_daemons.repeats as f64
    }),
    counter("squall_node_sessions_total", "Sessions of nodes with the controller, without the first of each", |d| {
        d.node_daemons.sessions as f64
    }),
];

/// A license.
pub(super) const LICENSE: &[Metric<LicenseInfo>] = &[
    gauge("squall_license_total", "Number of this license that the cluster has", |l| l.total.into()),
    gauge("squall_license_used", "Number of this license held by jobs", |l| l.used.into()),
    gauge("squall_license_free", "Number of this license held by no job", |l| l.free().into()),
];

/// Time that jobs lost with nodes by a cause, counted when their work starts again or ends.
pub(super) const LOST: &[Metric<Span>] =
    &[counter("squall_jobs_lost_seconds_total", "Time that jobs lost with nodes", |span| span.0 as f64 / 1e6)];

/// Requests and messages of a kind.
pub(super) const REQUESTS: &[Metric<Requests>] = &[
    counter("squall_requests_total", "Requests of clients and messages of nodes", |r| r.0 as f64),
    counter("squall_request_seconds_total", "Time spent on them", |r| r.1 as f64 / 1e6),
];

/// Jobs that are pending for a reason.
pub(super) const PENDING: &[Metric<u64>] = &[gauge("squall_pending_jobs", "Pending jobs by reason", |n| *n as f64)];

/// Writes the distributions of durations.
pub(super) fn latencies(text: &mut Text, of: &Latencies) {
    let Latencies { submit, queue, launch, flush, pass } = of;
    let mut write = |name, help, of, bounds| text.histogram(name, help, of, bounds);
    write("squall_submit_seconds", "From the arrival of a submission until its answer", submit, 6..=24);
    write("squall_queue_seconds", "From when a job could have started until its first start", queue, 10..=40);
    write("squall_launch_seconds", "From the start message of a step until its first task runs", launch, 8..=26);
    write("squall_flush_seconds", "Write and flush of the journal", flush, 4..=24);
    write("squall_pass_seconds", "Scheduling passes", pass, 2..=24);
}
