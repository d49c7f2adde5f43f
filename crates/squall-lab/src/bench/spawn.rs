//! `bench spawn`: how many bare processes per second this machine starts and waits for.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{BenchOptions, Finding};

/// Default duration of each measurement, seconds.
const SECONDS: f64 = 2.0;

/// Returns the rate of `/bin/true` and, as a field, that of `sh -c true`.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let workers = options.workers.unwrap_or_else(cores);
    let seconds = options.seconds.unwrap_or(SECONDS);
    let bare = rate(&["/bin/true"], workers, seconds)?;
    let shell = rate(&["/bin/sh", "-c", "true"], workers, seconds)?;
    let fields = vec![("workers", json!(workers)), ("sh_c_true_per_s", json!(shell))];
    Ok(Finding { bench: "spawn", figure: bare, unit: "processes/s", limit: None, fields })
}

/// Returns the processes per second that `workers` threads start with posix_spawn and wait for.
pub(super) fn rate(command: &[&str], workers: usize, seconds: f64) -> Result<f64, String> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let count = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(move || spawn_until(command, end))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a worker panicked".to_owned())?).sum::<Result<u64, String>>()
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Returns the number of hardware threads that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn spawn_until(command: &[&str], end: Instant) -> Result<u64, String> {
    let mut count = 0;
    while Instant::now() < end {
        // The standard library uses posix_spawn if nothing has to run between fork and exec.
        let status = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).status();
        if !status.map_err(|e| format!("{}: {e}", command[0]))?.success() {
            return Err(format!("{} failed", command[0]));
        }
        count += 1;
    }
    Ok(count)
}
