//! The event feed: what happens to jobs, nodes and the cluster, sent to followers in order.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::id::{JobId, StepNo};
use crate::job::mail::MailWish;
use crate::job::{ArrayTask, ExitCode, JobState};
use crate::time::Time;

/// Position of an event in the feed. It stays valid when the controller restarts. Written as `118.2`: the second event
/// of the changes that were made durable together as record 118 of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Position {
    /// Number of the record in the journal.
    #[n(0)]
    pub record: u64,
    /// Number of the event in the record, from 1. 0: the position before its first event.
    #[n(1)]
    pub index: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.record, self.index)
    }
}

impl FromStr for Position {
    type Err = String;

    /// Reads `118.2`, or `118` for the position before the record's first event.
    fn from_str(text: &str) -> Result<Self, String> {
        let (record, index) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (Ok(record), Ok(index), true) = (record.parse(), index.parse(), digits(record) && digits(index)) else {
            return Err(format!("{text}: no position of an event, which looks like 118.2"));
        };
        Ok(Self { record, index })
    }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $number:literal $name:ident = $word:literal,)+) => {
        /// Kind of an event of the feed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(index_only)]
        pub enum FeedKind {
            $($(#[doc = $doc])+ #[n($number)] $name,)+
        }

        impl FeedKind {
            /// All kinds of events.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// Returns the kind's name, such as `job-started`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

kinds! {
    /// A job or array was accepted.
    0 JobSubmitted = "job-submitted",
    /// A job got its resources and starts.
    1 JobStarted = "job-started",
    /// The end of a running job was decided, and some of its nodes still have processes of it. Left out if they have
    /// none.
    2 JobEnding = "job-ending",
    /// A job has ended.
    3 JobEnded = "job-ended",
    /// A job is pending again, after an attempt ended.
    4 JobRequeued = "job-requeued",
    /// A job was held.
    5 JobHeld = "job-held",
    /// A held job was released.
    6 JobReleased = "job-released",
    /// A job was changed, such as its time limit or its nodes.
    7 JobChanged = "job-changed",
    /// A running job was suspended.
    8 JobSuspended = "job-suspended",
    /// A suspended job runs again.
    9 JobResumed = "job-resumed",
    /// A running job was preempted, and ends after its grace time.
    10 JobPreempted = "job-preempted",
    /// A step of a job started. Batch scripts are no steps here.
    11 StepStarted = "step-started",
    /// A step of a job has ended on all of its nodes.
    12 StepEnded = "step-ended",
    /// A node registered for the first time, after a reboot, or with other hardware.
    13 NodeRegistered = "node-registered",
    /// A node that was down responds again.
    14 NodeUp = "node-up",
    /// A node stopped responding, or an operator set it down.
    15 NodeDown = "node-down",
    /// An operator drained nodes, or marked them as failing.
    16 NodeDrained = "node-drained",
    /// An operator let jobs start on nodes again.
    17 NodeResumed = "node-resumed",
    /// An operator changed the description of nodes.
    18 NodeChanged = "node-changed",
    /// A partition was created or changed, or has another state.
    19 PartitionChanged = "partition-changed",
    /// A partition was deleted.
    20 PartitionDeleted = "partition-deleted",
    /// A reservation was created or changed.
    21 ReservationChanged = "reservation-changed",
    /// A reservation has ended or was deleted.
    22 ReservationEnded = "reservation-ended",
    /// Accounts, users, associations or QOS were changed.
    23 AccountsChanged = "accounts-changed",
    /// The configuration was read, and it was another one.
    24 Configured = "configured",
    /// The controller started.
    25 ControllerStarted = "controller-started",
    /// A node of a running job stopped responding. The job waits for it, or is given up after `node_lost_s`.
    26 JobNodeSilent = "job-node-silent",
    /// Work of a running job stopped because the job lost a node.
    27 JobNodeLost = "job-node-lost",
}

impl FromStr for FeedKind {
    type Err = String;

    /// Reads the name of a kind, such as `job-started`.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|kind| kind.name() == text).copied();
        found.ok_or_else(|| format!("{text}: there is no such event"))
    }
}

/// An event of the feed, with all that is needed to show it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FeedEvent {
    /// Position of the event.
    #[n(0)]
    pub at: Position,
    /// When the event happened.
    #[n(1)]
    pub time: Time,
    /// Kind of the event.
    #[n(2)]
    pub kind: FeedKind,
    /// The job that the event is about. None: it is about no job.
    #[n(3)]
    pub job: Option<FeedJob>,
    /// The step that the event is about. None: it is about no step.
    #[n(4)]
    pub step: Option<StepNo>,
    /// Nodes of the job or step, or the nodes that the event is about, as a host list. Empty: none.
    #[n(5)]
    pub nodes: String,
    /// Name of the partition or reservation that the event is about, or the version of the controller. Empty: none.
    #[n(6)]
    pub name: String,
    /// Why it happened, as a text for users. None: no reason is known.
    #[n(7)]
    pub reason: Option<String>,
    /// User id of the operator who caused it. None: none did, or it is not recorded.
    #[n(8)]
    pub by: Option<u32>,
}

/// The job that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FeedJob {
    /// Id of the job, of the array task, or of the array as a whole.
    #[n(0)]
    pub id: JobId,
    /// Array and index of an array task. None: the job is not an array task.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// Indices of the array tasks that the event is about, such as `0-9,12`; a long list is cut and ends in `...`.
    /// None: the event is about one job.
    #[n(2)]
    pub tasks: Option<String>,
    /// User id of the job's user.
    #[n(3)]
    pub uid: u32,
    /// Login name of the job's user.
    #[n(4)]
    #[cbor(with = "crate::encoding::text")]
    pub user: Arc<str>,
    /// Name of the job.
    #[n(5)]
    #[cbor(with = "crate::encoding::text")]
    pub name: Arc<str>,
    /// Partition in which the job runs; for a pending one the partitions that it may run in, separated by commas.
    #[n(6)]
    #[cbor(with = "crate::encoding::text")]
    pub partition: Arc<str>,
    /// Account of the job.
    #[n(7)]
    #[cbor(with = "crate::encoding::text")]
    pub account: Arc<str>,
    /// QOS of the job.
    #[n(8)]
    #[cbor(with = "crate::encoding::text")]
    pub qos: Arc<str>,
    /// State of the job after the event.
    #[n(9)]
    pub state: JobState,
    /// Exit code of the job or step that the event is about. None: it has not ended.
    #[n(10)]
    pub exit: Option<ExitCode>,
    /// What mail about the event needs. None: the job's user wants no mail.
    #[n(14)]
    pub mail: Option<Box<MailWish>>,
}

impl FeedJob {
    /// Returns the job as users write it: `17`, `17_3` or `17_[0-9]`.
    pub fn label(&self) -> String {
        match (self.task, &self.tasks) {
            (Some(task), _) => format!("{}_{}", task.array, task.index),
            (None, Some(tasks)) => format!("{}_[{tasks}]", self.id),
            (None, None) => self.id.to_string(),
        }
    }
}

/// Events that a follower has not got before, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct FeedPage {
    /// The events. May be empty, if only the position has moved on.
    #[n(0)]
    #[cbor(with = "crate::encoding::arcs")]
    pub events: Vec<Arc<FeedEvent>>,
    /// Position from which to follow after this page. Every matching event before it was sent, or counts as missed.
    #[n(1)]
    pub next: Position,
    /// Whether events before those of this page were missed: the follower was too slow or away too long.
    #[n(2)]
    pub missed: bool,
}

#[cfg(test)]
mod tests {
    use super::{FeedKind, Position};

    #[test]
    fn positions_and_kinds_are_read_as_they_are_written() {
        let at = Position { record: 118, index: 2 };
        assert_eq!(at.to_string().parse(), Ok(at));
        assert_eq!("118".parse(), Ok(Position { record: 118, index: 0 }));
        for bad in ["", ".", "1.", ".1", "+1", "1.2.3", "-1", "1.+2", "99999999999999999999"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
        for kind in FeedKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert!("job".parse::<FeedKind>().is_err());
    }
}
