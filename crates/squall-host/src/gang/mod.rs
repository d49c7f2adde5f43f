//! The switcher of a node: a process of its own that stops and wakes jobs when their turns come.
//!
//! It sleeps until the next slot begins and never spins; it runs at real-time priority where it may, and holds the
//! memory that it needs. It answers to the node daemon over its standard input; when that ends, and on SIGTERM, it wakes
//! all and is gone: nothing stays stopped, or behind, that nobody is there to wake. When the switcher itself is killed the
//! node daemon wakes all and starts another one.

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

pub(crate) use means::{FREEZE, IDLE};
pub use means::{Hold, Leave, Means, Root};
pub use switcher::serve;
pub use trial::trial;

/// How long an order may take to be taken before the switcher counts as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the node daemon tells its switcher.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Order {
    /// What slots follow from.
    #[n(0)]
    Align {
        /// A reading of the monotonic clock, nanoseconds.
        #[n(0)]
        monotonic_ns: u64,
        /// What time it was then for the controller.
        #[n(1)]
        time: Time,
        /// How long a slot lasts.
        #[n(2)]
        slice: Span,
        /// What is done with jobs that are out of turn.
        #[n(3)]
        policy: Coscheduling,
        /// Whether they step back rather than stop.
        #[n(4)]
        steps_back: bool,
    },
    /// A job, and when it runs.
    #[n(1)]
    Turn {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// Its turn.
        #[n(1)]
        turn: Turn,
        /// Bytes of the folder of its v2 cgroup; none: it has none that can be frozen.
        #[n(2)]
        #[cbor(with = "minicbor::bytes")]
        group: Vec<u8>,
        /// Bytes of the folder of the group by which it steps back; none: it can't.
        #[n(3)]
        #[cbor(with = "minicbor::bytes")]
        idle: Vec<u8>,
        /// Processes of which all descendants belong to the job, for those that have no group.
        #[n(4)]
        roots: Vec<Root>,
    },
    /// The job runs whoever's turn it is.
    #[n(2)]
    Lift(#[n(0)] JobAttempt),
    /// The job is gone.
    #[n(3)]
    Drop(#[n(0)] JobAttempt),
}

/// What the switcher says now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Report {
    /// Slots that began since the last report.
    #[n(0)]
    pub(crate) switches: u64,
    /// How long after a slot had begun all were stopped and woken, at most, microseconds.
    #[n(1)]
    pub(crate) behind_us: u64,
    /// How long stopping and waking took at most, microseconds.
    #[n(2)]
    pub(crate) cost_us: u64,
}

/// The node daemon's side. When it is dropped the switcher wakes all and ends.
#[derive(Debug)]
pub(crate) struct Switcher {
    link: UnixStream,
    _process: OwnedFd,
}

impl Switcher {
    /// Starts it: `program step --switcher`, with the link as its standard input. The second value is where its reports
    /// come from, and its end is seen.
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

    /// Gives an order. After an error the switcher is of no more use.
    pub(crate) fn give(&mut self, order: &Order) -> io::Result<()> {
        let mut bytes = Vec::new();
        codec::encode(order, &mut bytes).map_err(io::Error::other)?;
        self.link.write_all(&bytes)
    }
}

impl Drop for Switcher {
    fn drop(&mut self) {
        // Whoever listens to its reports holds the link, too: closing this end of it would not be seen.
        drop(self.link.shutdown(Shutdown::Both));
    }
}
