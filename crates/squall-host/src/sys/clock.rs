//! The machine's clock and its time zone.

use std::mem::MaybeUninit;

use squall_model::time::Time;

/// Now.
pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(since.as_micros() as u64)
}

/// Ticks since boot, in which /proc says when a process was started.
pub(crate) fn boot_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    us / super::host::tick_us()
}

/// A clock that never goes back and that all processes of this machine share, nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// `2026-11-21T08:00:00` in the machine's time zone, as Slurm writes times.
pub(crate) fn local_text(time: Time) -> String {
    let secs = time.secs() as libc::time_t;
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call; localtime_r writes only to `parts` and keeps neither.
    let done = unsafe { libc::localtime_r(&raw const secs, parts.as_mut_ptr()) };
    if done.is_null() {
        return format!("@{secs}");
    }
    // SAFETY: zeroed is a valid `tm`, and localtime_r has filled it.
    let tm = unsafe { parts.assume_init() };
    let (year, month) = (tm.tm_year + 1900, tm.tm_mon + 1);
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}", tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec)
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;

    use super::{boot_ticks, local_text};

    #[test]
    fn processes_start_at_ticks_since_boot() {
        let before = boot_ticks();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let start = crate::processes::Stat::of(child.id()).unwrap().start;
        assert!((before..=boot_ticks()).contains(&start), "{start} is not since {before}");
        child.wait().unwrap();
    }

    #[test]
    fn has_the_shape_of_a_time() {
        let text = local_text(Time::from_secs(1_700_000_000));
        assert!(text.starts_with("2023-11-1") && text.len() == 19 && text.as_bytes()[10] == b'T', "{text}");
    }
}
