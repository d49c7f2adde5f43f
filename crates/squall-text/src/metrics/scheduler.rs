//! The counters of `sdiag`, with the names of the exporter by Victor Penso and with Slurm's.

use squall_model::time::Time;
use squall_model::wire::info::Diag;

use super::exposition::{Metric, gauge};
use crate::format::counters::{average, minutes};

/// The scheduler, with the names of the exporter by Victor Penso.
pub(super) const SCHEDULER: &[Metric<Diag>] = &[
    gauge("slurm_scheduler_threads", "Connections of clients", |d| d.clients as f64),
    gauge("slurm_scheduler_queue_size", "Messages to nodes that are sent again later: none", |_| 0.0),
    gauge("slurm_scheduler_dbd_queue_size", "Messages to an accounting daemon: none, there is no such daemon", |_| 0.0),
    gauge("slurm_scheduler_last_cycle", "Duration of the last scheduling pass, microseconds", |d| {
        d.cycle_last_us as f64
    }),
    gauge("slurm_scheduler_mean_cycle", "Mean duration of scheduling passes, microseconds", mean_cycle),
    gauge("slurm_scheduler_cycle_per_minute", "Scheduling passes per minute", |d| {
        d.cycles.checked_div(minutes(d)).unwrap_or(0) as f64
    }),
    gauge("slurm_scheduler_backfill_last_cycle", "Duration of the last backfill pass, microseconds", |d| {
        d.backfill.last_us as f64
    }),
    gauge("slurm_scheduler_backfill_mean_cycle", "Mean duration of backfill passes, microseconds", |d| {
        mean(d, d.backfill.total_us)
    }),
    gauge("slurm_scheduler_backfill_depth_mean", "Mean number of jobs that a backfill pass tries", |d| {
        mean(d, d.backfill.depth.1)
    }),
    gauge(
        "slurm_scheduler_backfilled_jobs_since_start_total",
        "Jobs started ahead of a pending one since the controller started",
        |d| d.backfill.jobs_ever as f64,
    ),
    gauge(
        "slurm_scheduler_backfilled_jobs_since_cycle_total",
        "Jobs started ahead of a pending one since the counters were reset",
        |d| d.backfill.jobs as f64,
    ),
    gauge(
        "slurm_scheduler_backfilled_heterogeneous_total",
        "Components of heterogeneous jobs started ahead of a pending job: not counted apart",
        |_| 0.0,
    ),
];

/// Requests of a kind or of a user: number, and total processing time in microseconds.
pub(super) type Requests = (u64, u64);

/// Requests, with the names of the exporter by Victor Penso.
pub(super) const REQUESTS: &[Metric<Requests>] = &[
    gauge("rpc_stats", "Requests", |r| r.0 as f64),
    gauge("rpc_stats_avg_time", "Mean time to decide a request, microseconds", |r| average(r.1, r.0) as f64),
    gauge("rpc_stats_total_time", "Time to decide all requests, microseconds", |r| r.1 as f64),
];

/// The scheduler, with Slurm's names.
pub(super) const SCHEDULER_OF_SLURM: &[Metric<Diag>] = &[
    gauge("slurm_agent_cnt", "Connections of node daemons", |d| d.nodes as f64),
    gauge("slurm_agent_queue_size", "Messages to nodes that are sent again later: none", |_| 0.0),
    gauge("slurm_agent_thread_cnt", "Connections of node daemons", |d| d.nodes as f64),
    gauge("slurm_backfilled_jobs", "Jobs started ahead of a pending one since the controller started", |d| {
        d.backfill.jobs_ever as f64
    }),
    gauge("slurm_last_backfilled_jobs", "Jobs started ahead of a pending one since the counters were reset", |d| {
        d.backfill.jobs as f64
    }),
    gauge("slurm_bf_cycle_cnt", "Backfill passes", |d| d.backfill.cycles as f64),
    gauge("slurm_bf_cycle_last", "Duration of the last backfill pass, microseconds", |d| d.backfill.last_us as f64),
    gauge("slurm_bf_cycle_max", "Duration of the longest backfill pass, microseconds", |d| d.backfill.max_us as f64),
    gauge("slurm_bf_cycle_tot", "Duration of all backfill passes, microseconds", |d| d.backfill.total_us as f64),
    gauge("slurm_bf_mean_cycle", "Mean duration of backfill passes, microseconds", |d| mean(d, d.backfill.total_us)),
    gauge("slurm_bf_depth_mean", "Mean number of jobs that a backfill pass tries", |d| mean(d, d.backfill.depth.1)),
    gauge("slurm_bf_depth_tot", "Jobs tried in all backfill passes", |d| d.backfill.depth.1 as f64),
    gauge("slurm_bf_last_depth", "Jobs tried in the last backfill pass", |d| d.backfill.depth.0 as f64),
    gauge("slurm_bf_depth_try_tot", "Tried jobs that fit, in all backfill passes", |d| d.backfill.tried.1 as f64),
    gauge("slurm_bf_last_depth_try", "Tried jobs that fit, in the last backfill pass", |d| d.backfill.tried.0 as f64),
    gauge("slurm_bf_try_depth_mean", "Mean number of tried jobs that fit", |d| mean(d, d.backfill.tried.1)),
    gauge("slurm_bf_queue_len", "Pending jobs at the last backfill pass", |d| d.backfill.queue.0 as f64),
    gauge("slurm_bf_queue_len_mean", "Mean number of pending jobs at backfill passes", |d| mean(d, d.backfill.queue.1)),
    gauge("slurm_bf_queue_len_tot", "Pending jobs, summed over all backfill passes", |d| d.backfill.queue.1 as f64),
    gauge("slurm_bf_table_size", "Points in time that the last backfill pass tried", |d| d.backfill.times.0 as f64),
    gauge("slurm_bf_mean_table_sz", "Mean number of points in time", |d| mean(d, d.backfill.times.1)),
    gauge("slurm_bf_table_size_tot", "Points in time, in all backfill passes", |d| d.backfill.times.1 as f64),
    gauge("slurm_bf_when_last_cycle", "Time of the last backfill pass, seconds since 1970; 0: none", |d| {
        d.backfill.last.map_or(0, Time::secs) as f64
    }),
    gauge("slurm_schedule_cycle_cnt", "Scheduling passes", |d| d.cycles as f64),
    gauge("slurm_schedule_cycle_depth", "Jobs tried in all scheduling passes", |d| d.cycle_depth_total as f64),
    gauge("slurm_schedule_cycle_last", "Duration of the last scheduling pass, microseconds", |d| {
        d.cycle_last_us as f64
    }),
    gauge("slurm_schedule_cycle_max", "Duration of the longest scheduling pass, microseconds", |d| {
        d.cycle_max_us as f64
    }),
    gauge("slurm_schedule_cycle_tot", "Duration of all scheduling passes, microseconds", |d| d.cycle_total_us as f64),
    gauge("slurm_sched_mean_cycle", "Mean duration of scheduling passes, microseconds", mean_cycle),
    gauge("slurm_sched_mean_depth_cycle", "Mean number of jobs that a scheduling pass tries", |d| {
        average(d.cycle_depth_total, d.cycles) as f64
    }),
    gauge("slurm_schedule_queue_len", "Pending jobs at the last scheduling pass", |d| d.queue_length as f64),
    gauge("slurm_sched_stats_timestamp", "Time of these counters, seconds since 1970", |d| d.now.secs() as f64),
    gauge("slurm_sdiag_job_states_ts", "Time of the numbers of jobs, seconds since 1970", |d| d.now.secs() as f64),
    gauge("slurm_sdiag_jobs_canceled", "Jobs cancelled since the counters were reset", |d| d.jobs_canceled as f64),
    gauge("slurm_sdiag_jobs_completed", "Jobs completed since the counters were reset", |d| d.jobs_completed as f64),
    gauge("slurm_sdiag_jobs_failed", "Jobs failed since the counters were reset", |d| d.jobs_failed as f64),
    gauge("slurm_sdiag_jobs_pending", "Pending jobs", |d| d.jobs_pending as f64),
    gauge("slurm_sdiag_jobs_running", "Running jobs", |d| d.jobs_running as f64),
    gauge("slurm_sdiag_jobs_started", "Jobs started since the counters were reset", |d| d.jobs_started as f64),
    gauge("slurm_sdiag_jobs_submitted", "Jobs submitted since the counters were reset", |d| d.jobs_submitted as f64),
    gauge("slurm_server_thread_cnt", "Connections of clients", |d| d.clients as f64),
    gauge("slurm_slurmdbd_queue_size", "Messages to an accounting daemon: none, there is no such daemon", |_| 0.0),
];

fn mean_cycle(diag: &Diag) -> f64 {
    average(diag.cycle_total_us, diag.cycles) as f64
}

/// Returns the mean per backfill pass.
fn mean(diag: &Diag, total: u64) -> f64 {
    average(total, diag.backfill.cycles) as f64
}
