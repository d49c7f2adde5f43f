//! The word on a log without room: what is full, and what to do. Commands that can't be decided meanwhile are told so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use squall_model::wire::client::{Answer, AnyRequest, Refusal, Request};

/// Time for which commands wait for decisions. There may be room again by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of the log's room; may be cloned.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    /// Why submissions are refused. None: they are not.
    full: Option<String>,
    /// Why nothing can be decided, and since when. None: decisions are made.
    stuck: Option<(String, Instant)>,
}

impl Room {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the log takes no submissions. None: it takes them.
    pub(super) fn full(&self, why: Option<String>) {
        self.words().full = why;
    }

    /// Notes why the log takes nothing, so that nothing can be decided. None: it takes what is decided.
    pub(super) fn stuck(&self, why: Option<String>) {
        let mut words = self.words();
        words.stuck = why.map(|why| (why, words.stuck.as_ref().map_or_else(Instant::now, |(_, since)| *since)));
    }

    /// Says in the answer to a ping what is full. The state machine knows only that something is.
    pub(super) fn explain(&self, answer: &mut Answer) {
        if let Answer::Pong { trouble: Some(trouble), .. } = answer
            && let Some(why) = &self.words().full
        {
            trouble.clone_from(why);
        }
    }

    /// Returns the refusal of a request while nothing can be decided. None: it waits for a decision. That is what those do
    /// on which running work depends.
    pub(super) fn refusal(&self, request: &AnyRequest) -> Option<Refusal> {
        let AnyRequest::Machine(request) = request else { return None };
        let words = self.words();
        let (why, _) = words.stuck.as_ref().filter(|(_, since)| since.elapsed() >= PATIENCE)?;
        match &**request {
            Request::Submit { .. } | Request::SubmitHet { .. } | Request::Allocate { .. } => Some(Refusal::DiskFull),
            Request::Ping
            | Request::TestSubmit { .. }
            | Request::Jobs { .. }
            | Request::Nodes
            | Request::Partitions
            | Request::Config
            | Request::Diag { .. } => Some(Refusal::NotSupported(format!("nothing is decided at the moment: {why}"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use squall_model::wire::client::{HostRequest, Refusal, Request};

    use super::{PATIENCE, Room};

    /// faults.md R9.
    #[test]
    fn who_waits_for_a_decision_that_cant_be_made_is_told_why() {
        let room = Room::default();
        room.stuck(Some("etcd has no room".to_owned()));
        assert_eq!(room.refusal(&Request::Nodes.into()), None, "there may be room in a moment");
        let since = Instant::now().checked_sub(PATIENCE).unwrap();
        room.words().stuck = Some(("etcd has no room".to_owned(), since));
        // Said again, it counts from the first time.
        room.stuck(Some("etcd has no room".to_owned()));
        let Some(Refusal::NotSupported(why)) = room.refusal(&Request::Nodes.into()) else { panic!("it waits") };
        assert!(why.contains("etcd has no room"), "{why}");
        assert!(
            room.refusal(&Request::Ping.into()).is_some() && room.refusal(&HostRequest::Controllers.into()).is_none()
        );
        room.stuck(None);
        assert_eq!(room.refusal(&Request::Nodes.into()), None);
    }
}
