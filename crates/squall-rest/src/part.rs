//! A part of the cluster's state as the server last read it, shared by all who ask.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_client::ClientError;
use tokio::sync::Mutex as Turn;

/// Reading a part takes at most this share of the time: after a read that took 10 ms the next one begins 250 ms later.
const SHARE: u32 = 25;
/// Longest time for which a part is not read again.
const AGE_MAX: Duration = Duration::from_millis(2500);

/// A part of the cluster's state. It is read by one caller at a time, and the others get what that one has read. A part
/// that is due is read again while callers still get the last one; one of twice that age is waited for.
#[derive(Debug)]
pub(crate) struct Part<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    last: Mutex<Option<Read<T>>>,
    reading: Turn<()>,
}

#[derive(Debug)]
struct Read<T> {
    value: Arc<T>,
    /// When the read began: all changes acknowledged before are in the value.
    began: Instant,
    ended: Instant,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self(Arc::new(Shared { last: Mutex::default(), reading: Turn::default() }))
    }
}

impl<T: Send + Sync + 'static> Part<T> {
    /// Returns the part as of `since` or later, and otherwise as recent as the share of time allows. `read` reads it
    /// from the controller.
    pub(crate) async fn get(
        &self,
        since: Option<Instant>,
        read: impl FnOnce() -> Result<Arc<T>, ClientError> + Send + 'static,
    ) -> Result<Arc<T>, ClientError> {
        let shared = &self.0;
        match shared.last(since) {
            Some((value, false)) => Ok(value),
            Some((value, true)) => {
                let shared = Arc::clone(shared);
                // A caller that comes when this fails waits for a read of its own, and gets the error.
                tokio::spawn(async move { shared.renew(since, read).await });
                Ok(value)
            }
            None => shared.renew(since, read).await,
        }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Reads the part, unless another caller has done so meanwhile.
    async fn renew(
        &self,
        since: Option<Instant>,
        read: impl FnOnce() -> Result<Arc<T>, ClientError> + Send + 'static,
    ) -> Result<Arc<T>, ClientError> {
        let _turn = self.reading.lock().await;
        if let Some((value, false)) = self.last(since) {
            return Ok(value);
        }
        let began = Instant::now();
        let value = tokio::task::spawn_blocking(read).await.map_err(|e| ClientError::Lost(e.to_string()))??;
        let read = Read { value: Arc::clone(&value), began, ended: Instant::now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        Ok(value)
    }

    /// Returns the part that was last read, and whether it is due to be read again. None: it is too old, or older than
    /// `since`.
    fn last(&self, since: Option<Instant>) -> Option<(Arc<T>, bool)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let read = last.as_ref()?;
        let (age, due) = (read.ended.elapsed(), ((read.ended - read.began) * SHARE).min(AGE_MAX));
        let is_good = age <= 2 * due && since.is_none_or(|since| since <= read.began);
        is_good.then(|| (Arc::clone(&read.value), age > due))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::Part;

    #[tokio::test]
    async fn many_share_one_read_and_a_later_change_is_seen() {
        let (part, reads) = (Arc::new(Part::default()), Arc::new(AtomicUsize::new(0)));
        let get = |since| {
            let (part, reads) = (Arc::clone(&part), Arc::clone(&reads));
            async move {
                let read = move || {
                    std::thread::sleep(Duration::from_millis(20));
                    Ok(Arc::new(reads.fetch_add(1, Ordering::SeqCst)))
                };
                *part.get(since, read).await.unwrap()
            }
        };
        let all: Vec<_> = (0..20).map(|_| tokio::spawn(get(None))).collect();
        for one in all {
            assert_eq!(one.await.unwrap(), 0);
        }
        assert_eq!(get(Some(Instant::now())).await, 1, "a caller that has changed something sees the change");
        assert_eq!(get(None).await, 1);
    }
}
