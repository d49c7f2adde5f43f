//! Room for bodies of requests. JSON takes up to a hundred times its length in memory, and time to be read: so its values
//! are counted before, over all requests, and it is read and obeyed beside the thread that serves everybody.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::answer::Failure;
use crate::caller::Turns;

/// Most values of one body: a job with a large environment has some thousands, a site's associations some 100,000.
const VALUES_MAX: u32 = 400_000;
/// Values from which on a body is large: of these a user has one at a time, and all together have `VALUES_AT_ONCE`.
const LARGE: u32 = 10_000;
/// Most values of all large bodies at once.
const VALUES_AT_ONCE: usize = 800_000;
/// Most bodies that are read or obeyed at once. Fewer than there are threads: obeying needs another one.
const WORK_MAX: usize = 24;

/// What is free for bodies.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    large: Arc<Turns<u32>>,
    values: Arc<Semaphore>,
    work: Arc<Semaphore>,
}

/// Room that a body takes until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyPermit {
    _held: Option<[OwnedSemaphorePermit; 2]>,
}

impl Default for Room {
    fn default() -> Self {
        let [values, work] = [VALUES_AT_ONCE, WORK_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { large: Arc::new(Turns::new(1)), values, work }
    }
}

impl Room {
    /// Reads a user's JSON once there is room for it. A short body waits for no large one.
    pub(crate) async fn json(&self, uid: u32, body: Bytes) -> Result<(Value, BodyPermit), Failure> {
        let count = values(&body);
        if count > VALUES_MAX {
            let text = format!("the body has {count} values, and at most {VALUES_MAX} are taken");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let held = if count < LARGE {
            None
        } else {
            let turn = self.large.take(uid).await?;
            Some([turn, Arc::clone(&self.values).acquire_many_owned(count).await.map_err(|_| stopped())?])
        };
        let read = self.work(move || serde_json::from_slice(&body)).await?;
        let value = read.map_err(|e| Failure::new(StatusCode::BAD_REQUEST, format!("It is not JSON: {e}")))?;
        Ok((value, BodyPermit { _held: held }))
    }

    /// Does work beside the thread that serves everybody.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        deed: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = Arc::clone(&self.work).acquire_owned().await.map_err(|_| stopped())?;
        let done = spawn_blocking(move || {
            let _turn = turn;
            deed()
        });
        done.await.map_err(|_| stopped())
    }
}

fn stopped() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be worked on")
}

/// Returns how many values JSON has at most: commas, colons and openings outside of texts begin one each.
fn values(json: &[u8]) -> u32 {
    let (mut count, mut within, mut escaped) = (1_u32, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b',' | b':' | b'[' | b'{' if !within => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Bytes;
    use axum::http::StatusCode;
    use serde_json::json;
    use tokio::time::timeout;

    use super::{LARGE, Room, VALUES_AT_ONCE, values};

    #[tokio::test]
    async fn a_body_of_a_million_values_is_refused_and_a_long_script_is_not() {
        let room = Room::default();
        let many = format!("[{}0]", "{\"\":0},".repeat(500_000));
        assert_eq!(room.json(1, many.into()).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        let script = json!({"script": "echo [1,2,{3}],\\\",\n".repeat(200_000)});
        let (read, _taken) = room.json(1, script.to_string().into()).await.unwrap();
        assert_eq!((read, room.values.available_permits()), (script, VALUES_AT_ONCE), "it has few values");
        assert_eq!(room.json(1, "{".into()).await.unwrap_err().status, StatusCode::BAD_REQUEST);
    }

    // Regression test of attack A9: large bodies of one user held up everybody's submissions.
    #[tokio::test]
    async fn a9_a_user_has_one_large_body_at_a_time_and_short_ones_wait_for_none() {
        let room = Room::default();
        let large = || -> Bytes { format!("[{}0]", "0,".repeat(LARGE as usize)).into() };
        let first = room.json(1001, large()).await.unwrap();
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, room.json(1001, large())).await.is_err(), "a second one of the same user waits");
        assert!(timeout(soon * 20, room.json(1002, large())).await.is_ok(), "and no other user's");
        // Even if large bodies have all the room.
        let all = room.values.clone().acquire_many_owned(room.values.available_permits() as u32).await.unwrap();
        assert!(timeout(soon * 20, room.json(1001, "{}".into())).await.is_ok());
        assert!(timeout(soon, room.json(1002, large())).await.is_err());
        drop((first, all));
        assert!(timeout(soon * 20, room.json(1001, large())).await.is_ok());
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        assert_eq!(values(br#"{"a,b": [1, 2, "\",[{"], "c": {}}"#), 1 + 1 + 1 + 1 + 2 + 1 + 1 + 1);
    }
}
