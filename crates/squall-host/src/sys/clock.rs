//! The machine's clocks and its time zone.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use squall_model::time::Time;

/// Returns the wall clock's time, for showing to people only, as it can be set. Deadlines use [`steady`].
pub fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Time(since.as_micros() as u64);
    #[cfg(debug_assertions)]
    return now.on_clock_ahead(set_by_test());
    #[cfg(not(debug_assertions))]
    now
}

/// Environment variable with the file by which a test sets the wall clock of daemons.
#[cfg(debug_assertions)]
pub(crate) const TEST_VARIABLE: &str = "SQUALL_TEST_CLOCK";

/// Returns by how many microseconds a test has set this process's wall clock: the content of the file in that variable.
#[cfg(debug_assertions)]
fn set_by_test() -> i64 {
    static FILE: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os(TEST_VARIABLE));
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Whether the machine's clock is synchronised with others, e.g. by NTP. None: the kernel does not tell.
pub(crate) fn is_synchronised() -> Option<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: the pointer is valid for the call, and a request that is all zeros changes nothing.
    match unsafe { libc::adjtimex(state.as_mut_ptr()) } {
        -1 => None,
        code => Some(code != libc::TIME_ERROR),
    }
}

/// Returns the time since boot, suspended time included, microseconds; this clock can't be set.
pub(crate) fn since_boot_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

/// Returns the current time as this process counts it: the wall clock at the first call, plus the time that has passed
/// since.
pub(crate) fn steady() -> Time {
    static BEGAN: OnceLock<(Time, u64)> = OnceLock::new();
    let &(wall, boot_us) = BEGAN.get_or_init(|| (now(), since_boot_us()));
    Time(wall.0 + (since_boot_us() - boot_us))
}

/// Returns the time since boot in ticks, the unit of start times in /proc.
pub(crate) fn boot_ticks() -> u64 {
    since_boot_us() / super::host::tick_us()
}

/// Returns a clock that never goes back and is the same in all processes of this machine, nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Formats a time in the machine's time zone as Slurm does, e.g. `2026-11-21T08:00:00`.
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
