//! A part of the cluster's state as the server last read it, shared by all who ask.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_client::ClientError;
use tokio::sync::Mutex as Turn;

/// Reading a part takes at most this share of the time: after a read that took 10 ms the next one comes 250 ms later.
const SHARE: u32 = 25;
/// Longest time for which a part is not read again.
const AGE_MAX: Duration = Duration::from_secs(5);

/// A part of the cluster's state. It is read by one caller at a time, and the others get what that one has read.
#[derive(Debug)]
pub(crate) struct Part<T> {
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
        Self { last: Mutex::default(), reading: Turn::default() }
    }
}

impl<T: Send + Sync + 'static> Part<T> {
    /// Returns the part as of `since` or later, and otherwise as recent as the share of time allows. `read` reads it
    /// from the controller.
    pub(crate) async fn get(
        &self,
        since: Option<Instant>,
        read: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
    ) -> Result<Arc<T>, ClientError> {
        if let Some(value) = self.fresh(since) {
            return Ok(value);
        }
        let _turn = self.reading.lock().await;
        if let Some(value) = self.fresh(since) {
            return Ok(value);
        }
        let began = Instant::now();
        let value = tokio::task::spawn_blocking(read).await.map_err(|e| ClientError::Lost(e.to_string()))??;
        let value = Arc::new(value);
        let read = Read { value: Arc::clone(&value), began, ended: Instant::now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        Ok(value)
    }

    fn fresh(&self, since: Option<Instant>) -> Option<Arc<T>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let read = last.as_ref()?;
        let age_max = ((read.ended - read.began) * SHARE).min(AGE_MAX);
        let is_fresh = read.ended.elapsed() <= age_max && since.is_none_or(|since| since <= read.began);
        is_fresh.then(|| Arc::clone(&read.value))
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
                    Ok(reads.fetch_add(1, Ordering::SeqCst))
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
