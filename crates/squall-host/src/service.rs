//! Messages to systemd from a daemon that it has started: that the daemon is ready, that it ends, and that its loop
//! still runs (`WatchdogSec=`). Without systemd all of them do nothing.

use sd_notify::NotifyState;

/// Reports that the daemon is ready.
pub fn ready() {
    tell(NotifyState::Ready);
}

/// Reports that the daemon has begun to end.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Reports, three times within systemd's time limit, that the daemon's loop runs. Has to be a task on the loop's own
/// thread: while the loop is stuck, so is this task. Ends at once if systemd doesn't ask for it.
pub(crate) async fn beat() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    loop {
        tell(NotifyState::Watchdog);
        tokio::time::sleep(limit / 3).await;
    }
}

fn tell(state: NotifyState<'_>) {
    // A daemon that systemd does not hear is restarted by it; nothing else would help.
    if let Err(e) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %e, "systemd can't be notified");
    }
}
