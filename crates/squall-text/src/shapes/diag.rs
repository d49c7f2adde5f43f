//! JSON of `sdiag --json`: counters of the controller.

use serde_json::{Value, json};
use squall_model::wire::counts::{Histogram, Latencies, NodeCounts};
use squall_model::wire::info::{BackfillCounts, Diag, FabricCounts};

use crate::format::counters::{average, minutes, windows};
use crate::shapes::{number, time};

/// Returns the controller's counters. The blocks `journal`, `fabric`, `latencies` and `node_daemons` don't exist in
/// Slurm.
pub fn statistics(diag: &Diag, name: &dyn Fn(u32) -> String) -> Value {
    let messages: Vec<Value> = diag
        .messages
        .iter()
        .enumerate()
        .map(|(at, (kind, count, total))| {
            json!({
                "message_type": kind, "type_id": at, "count": count,
                "average_time": number(Some(average(*total, *count))), "total_time": total,
            })
        })
        .collect();
    let users: Vec<Value> = diag
        .users
        .iter()
        .map(|(uid, count, total)| {
            json!({
                "user": name(*uid), "user_id": uid, "count": count,
                "average_time": number(Some(average(*total, *count))), "total_time": total,
            })
        })
        .collect();
    let mut all = json!({
        "parts_packed": 1,
        "req_time": time(Some(diag.now)),
        "req_time_start": time(Some(diag.since)),
        "server_thread_count": diag.clients,
        "agent_count": diag.nodes,
        "agent_thread_count": diag.nodes,
        "schedule_cycle_max": diag.cycle_max_us,
        "schedule_cycle_last": diag.cycle_last_us,
        "schedule_cycle_sum": diag.cycle_total_us,
        "schedule_cycle_total": diag.cycles,
        "schedule_cycle_mean": average(diag.cycle_total_us, diag.cycles),
        "schedule_cycle_mean_depth": average(diag.cycle_depth_total, diag.cycles),
        "schedule_cycle_per_minute": diag.cycles.checked_div(minutes(diag)).unwrap_or(0),
        "schedule_cycle_depth": diag.cycle_depth_total,
        "schedule_queue_length": diag.queue_length,
        "jobs_submitted": diag.jobs_submitted,
        "jobs_started": diag.jobs_started,
        "jobs_completed": diag.jobs_completed,
        "jobs_canceled": diag.jobs_canceled,
        "jobs_failed": diag.jobs_failed,
        "jobs_pending": diag.jobs_pending,
        "jobs_running": diag.jobs_running,
        "job_states_ts": time(Some(diag.now)),
        "journal": journal_statistics(diag),
        "fabric": fabric_statistics(&diag.fabric),
        "latencies": latency_statistics(&diag.latency),
        "node_daemons": node_statistics(&diag.node_daemons),
        "rpcs_by_message_type": messages,
        "rpcs_by_user": users,
    });
    if let (Some(all), Value::Object(backfill)) = (all.as_object_mut(), backfill_statistics(&diag.backfill)) {
        all.extend(backfill);
    }
    all
}

fn backfill_statistics(backfill: &BackfillCounts) -> Value {
    json!({
        "bf_backfilled_jobs": backfill.jobs_ever,
        "bf_last_backfilled_jobs": backfill.jobs,
        "bf_cycle_counter": backfill.cycles,
        "bf_cycle_mean": average(backfill.total_us, backfill.cycles),
        "bf_depth_mean": average(backfill.depth.1, backfill.cycles),
        "bf_cycle_last": backfill.last_us,
        "bf_cycle_max": backfill.max_us,
        "bf_queue_len": backfill.queue.0,
        "bf_queue_len_mean": average(backfill.queue.1, backfill.cycles),
        "bf_cycle_sum": backfill.total_us,
        "bf_when_last_cycle": time(backfill.last),
        "bf_last_depth": backfill.depth.0,
        "bf_last_depth_try": backfill.tried.0,
        "bf_depth_sum": backfill.depth.1,
        "bf_depth_try_sum": backfill.tried.1,
        "bf_depth_mean_try": average(backfill.tried.1, backfill.cycles),
        "bf_queue_len_sum": backfill.queue.1,
        "bf_table_size": backfill.times.0,
        "bf_table_size_mean": average(backfill.times.1, backfill.cycles),
    })
}

fn journal_statistics(diag: &Diag) -> Value {
    json!({
        "records": diag.journal_records,
        "events": diag.journal_events,
        "bytes": diag.journal_bytes,
        "flushes": diag.journal_flushes,
        "flush_max": diag.flush_max_us,
        "flush_mean": average(diag.flush_total_us, diag.journal_flushes),
    })
}

fn latency_statistics(latency: &Latencies) -> Value {
    let of = |histogram: &Histogram| {
        json!({
            "count": histogram.count(),
            "total": histogram.total_us,
            "p50": number(histogram.quantile_us(500)),
            "p99": number(histogram.quantile_us(990)),
        })
    };
    latency.all().into_iter().map(|(name, histogram)| (name.to_owned(), of(histogram))).collect()
}

fn node_statistics(counts: &NodeCounts) -> Value {
    json!({
        "steps": counts.steps,
        "tasks": counts.tasks,
        "failed_launches": counts.failed,
        "ended": counts.ended,
        "out_of_memory": counts.out_of_memory,
        "lost": counts.lost,
        "reports": counts.reports,
        "reports_sent_again": counts.repeats,
        "sessions": counts.sessions,
    })
}

fn fabric_statistics(fabric: &FabricCounts) -> Value {
    let windows: Vec<Value> =
        windows(fabric).map(|(reports, count)| json!({ "reports": reports, "count": count })).collect();
    json!({
        "messages": fabric.messages,
        "messages_time": fabric.messages_us,
        "node_epilogs": fabric.node_epilogs,
        "composites": fabric.composites,
        "composite_reports": fabric.composite_reports,
        "report_wait_max": fabric.waited_max_us,
        "repeats": fabric.repeats,
        "retransmits": fabric.retransmits,
        "multicast_bytes": fabric.multicast_bytes,
        "windows": windows,
    })
}
