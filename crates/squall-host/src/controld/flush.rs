//! Flushes of the journal, on a thread beside that which decides.

use std::time::Instant;

use squall_engine::commit::Append;
use squall_store::{Log, LogError};
use tokio::task::{JoinError, JoinHandle};

use super::ControllerError;
use super::meter::AppendMeasure;

/// A log, the batch that was appended, and how that has ended.
pub(super) type Flushed = (Box<dyn Log>, Append, Result<AppendMeasure, LogError>);

/// A batch being appended to the journal on another thread.
pub(super) struct Flushing {
    pub(super) work: JoinHandle<Flushed>,
}

impl Flushing {
    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> Result<Flushed, ControllerError> {
        (&mut self.work).await.map_err(lost)
    }
}

/// Waits for the flush that `flushing` holds, and sets it to None; with None it waits forever.
pub(super) async fn flushed(flushing: &mut Option<Flushing>) -> Result<Flushed, ControllerError> {
    match flushing {
        None => std::future::pending().await,
        Some(one) => {
            let flushed = one.wait().await;
            *flushing = None;
            flushed
        }
    }
}

/// Appends and flushes on another thread, so that this one can continue.
pub(super) fn append(mut log: Box<dyn Log>, work: Append) -> JoinHandle<Flushed> {
    tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        let appended = log.append(&work).and_then(|bytes| log.flush().map(|()| bytes));
        let done = appended.map(|bytes| AppendMeasure { bytes, flush: start.elapsed() });
        (log, work, done)
    })
}

/// Returns the error of a thread that has ended.
pub(super) fn lost(e: JoinError) -> ControllerError {
    ControllerError::io("write to", "the journal".into())(std::io::Error::other(e))
}
