//! The switcher of a node: a process of its own that stops and wakes gang-scheduled jobs at the borders of their slots.
//!
//! It sleeps until the next slot begins and never spins. It runs at real-time priority where permitted, and locks its
//! memory. The node daemon sends it orders over its standard input. When that ends, and on SIGTERM, it wakes all jobs
//! and ends, so that no job stays stopped without a process that would wake it. When the switcher itself is killed, the
//! node daemon wakes all jobs and starts another one.

mod classes;
mod kicks;
mod means;
mod switcher;
mod trial;

use minicbor::{Decode, Encode};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use squall_model::codec;
use squall_model::gang::{Coscheduling, Turn};
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use crate::sys::spawn::{Session, Spawn};

pub use means::{Hold, Leave, Means, Root};
pub use switcher::serve;
pub use trial::trial;

/// Time after which an order that can't be written counts as a failure of the switcher.
const PATIENCE: Duration = Duration::from_secs(5);

/// An order of the node daemon to its switcher.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Order {
    /// Sets clock, slot length and policy, from which slots are derived.
    #[n(0)]
    Align {
        /// A reading of the node's monotonic clock, nanoseconds.
        #[n(0)]
        monotonic_ns: u64,
        /// The controller's time when the monotonic clock was read.
        #[n(1)]
        time: Time,
        /// Length of a time slot.
        #[n(2)]
        slice: Span,
        /// How gang-scheduled jobs share CPUs.
        #[n(3)]
        policy: Coscheduling,
        /// Whether jobs outside their slots run on idle CPUs (step back) rather than stop.
        #[n(4)]
        steps_back: bool,
    },
    /// Adds a job, or changes the slots in which a job runs.
    #[n(1)]
    Turn {
        /// The gang-scheduled job.
        #[n(0)]
        job: JobAttempt,
        /// The slots in which the job runs.
        #[n(1)]
        turn: Turn,
        /// Path of the job's v2 cgroup, as bytes; empty: there is none that can be frozen.
        #[n(2)]
        #[cbor(with = "minicbor::bytes")]
        group: Vec<u8>,
        /// Path of the cgroup by which the job steps back, as bytes; empty: the job can't step back.
        #[n(3)]
        #[cbor(with = "minicbor::bytes")]
        idle: Vec<u8>,
        /// Processes with descendants that all belong to the job; used if the job has no cgroup.
        #[n(4)]
        roots: Vec<Root>,
    },
    /// Has a job run in all slots.
    #[n(2)]
    Lift(#[n(0)] JobAttempt),
    /// Removes a job that has ended.
    #[n(3)]
    Drop(#[n(0)] JobAttempt),
}

/// Figures that the switcher sends to the node daemon from time to time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Report {
    /// Number of slots that began since the last report.
    #[n(0)]
    pub(crate) switches: u64,
    /// Longest time from the beginning of a slot until all jobs were stopped or woken, microseconds.
    #[n(1)]
    pub(crate) behind_us: u64,
    /// Longest time that stopping and waking took, microseconds.
    #[n(2)]
    pub(crate) cost_us: u64,
}

/// The node daemon's handle of its switcher. When it is dropped, the switcher wakes all jobs and ends.
#[derive(Debug)]
pub(crate) struct Switcher {
    link: UnixStream,
    _process: OwnedFd,
}

impl Switcher {
    /// Starts the switcher: `program step --switcher`, with the link as its standard input. The second value is the
    /// stream of its reports; the end of the stream shows that the switcher has ended.
    pub(crate) fn start(program: &CStr) -> io::Result<(Self, UnixStream)> {
        let (link, other) = UnixStream::pair()?;
        link.set_write_timeout(Some(PATIENCE))?;
        let null = File::open("/dev/null")?;
        let argv = [c"squall".to_owned(), c"step".to_owned(), c"--switcher".to_owned()];
        let stdio = [other.as_fd(), null.as_fd(), null.as_fd()];
        let spawn = Spawn { dir: Some(c"/"), session: Session::New, ..Spawn::new(program, &argv, stdio) };
        let child = spawn.start().map_err(|e| e.error)?;
        let reports = link.try_clone()?;
        Ok((Self { link, _process: child.pidfd }, reports))
    }

    /// Sends an order. After an error the switcher can't be used any more.
    pub(crate) fn give(&mut self, order: &Order) -> io::Result<()> {
        let mut bytes = Vec::new();
        codec::encode(order, &mut bytes).map_err(io::Error::other)?;
        self.link.write_all(&bytes)
    }
}

impl Drop for Switcher {
    fn drop(&mut self) {
        // The reader of reports has a copy of the link, so closing this end alone would not be noticed.
        drop(self.link.shutdown(Shutdown::Both));
    }
}
