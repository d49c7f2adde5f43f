//! Several controllers: each follows the log in etcd or leads, and keeps a copy of the log.

mod ask;
mod bugs;
mod etcd;
mod faults;
mod process;
mod releases;
mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::commit::{Append, Capacity};
use squall_engine::control::state::State;
use squall_engine::replica::{Lane, Replica};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;

pub(crate) use etcd::{Answer, Etcd, Question};

/// Greatest difference between the rates of a controller's clock and of etcd's, parts per million.
const RATE_MAX_PPM: u64 = 20_000;
/// Prefix of the keys at etcd.
const PREFIX: &str = "/squall/sim";

/// The machine that a controller runs on, one of several: what outlasts the process.
#[derive(Debug)]
pub(crate) struct Base {
    /// Number of the journal.
    journal: u64,
    /// Number of the log that the journal is a copy of.
    log: Option<u64>,
    /// Number of the last record that was flushed to the journal.
    pub(crate) durable: u64,
    /// How much faster than true time the machine's clock runs, parts per million.
    rate_ppm: i64,
    /// The process does nothing before this time.
    pub(crate) paused_until: Time,
    /// Time at which all clocks showed the same.
    equal_at: Time,
    /// The newest version of a cluster that the installed release can work with.
    pub(crate) speaks: ClusterVersion,
}

impl Base {
    pub(crate) fn new(of: usize, equal_at: Time) -> Self {
        let speaks = ClusterVersion::OWN;
        Self { journal: of as u64 + 1, log: None, durable: 0, rate_ppm: 0, paused_until: Time(0), equal_at, speaks }
    }

    /// Returns what the machine's clock shows at a time.
    fn shows(&self, time: Time) -> Time {
        let since = time.since(self.equal_at).0.cast_signed();
        Time(self.equal_at.0.saturating_add_signed(since + since / 1_000 * self.rate_ppm / 1_000))
    }

    /// Returns a time at which the clock shows that time or a little more.
    fn when(&self, shown: Time) -> Time {
        let since = shown.since(self.equal_at).0.cast_signed();
        let mut time = Time(self.equal_at.0.saturating_add_signed(since - since / 1_000 * self.rate_ppm / 1_000));
        while self.shows(time) < shown {
            time = time + Span(1 + shown.since(self.shows(time)).0);
        }
        time
    }
}

/// A batch that is being appended to the log in etcd.
#[derive(Debug)]
struct Batch {
    work: Append,
    bytes: Arc<Vec<u8>>,
}

/// What the process of one of several controllers has, besides pipeline and journal.
#[derive(Debug)]
pub(crate) struct Peer {
    replica: Replica,
    /// State after the last record that was applied. None: the controller leads, and its pipeline has the state.
    pub(crate) state: Option<State>,
    /// Number of the open question of each lane.
    open: BTreeMap<Lane, u64>,
    tick_at: Option<Time>,
    batch: Option<Batch>,
    /// Number of its leadership, rising. 0: it has not led.
    term: u64,
    /// The leader, as far as the controller knows.
    leader: Option<usize>,
    /// Whether etcd has little room.
    full: bool,
    /// When the lease was truly renewed, if a planted bug does that seldom.
    renewed: Time,
    /// Whether a flush of the journal is due.
    flush_due: bool,
    /// Whether it was told to resign.
    resigns: bool,
}

impl Peer {
    /// Returns the room at etcd.
    pub(crate) fn capacity(&self) -> Capacity {
        let room = if self.full { 0 } else { u64::MAX };
        Capacity { room, reserve: 0, free: room, full: self.full }
    }
}
