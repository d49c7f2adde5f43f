//! The commit pipeline: the controller's decisions are appended to the log, flushed, and only then released.
//!
//! A *batch* is opened, appended, flushed and released. A batch of a fenced controller is dropped instead. One batch
//! is flushed at a time. Meanwhile the next one may be decided; it is appended when the flush is done. The host of
//! the pipeline does the appending: a daemon writes a file, the simulator a modelled disk. Neither can release
//! anything early, because the pipeline hands out a [`Release`] only when it is told that the batch is durable.
//!
//! Group commit, as in databases (DeWitt et al., "Implementation techniques for main memory database systems", 1984).

use std::sync::Arc;

use squall_model::event::{Event, Record};
use squall_model::job::Blob;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::fabric::{DownFrame, Newer};

use crate::control::{CallerId, Cast, Controller, Input, LinkId, Out, PowerProgram, Program};
use crate::machine::Machine;

/// Number of inputs after which a batch takes no more.
pub const INPUTS_MAX: usize = 4096;
/// Bytes of scripts and environments in a batch after which it takes no more inputs.
pub const BLOB_BYTES_MAX: usize = 8 << 20;
/// Number of events after which a record of the log ends. A batch with more events makes several records.
const EVENTS_MAX: usize = 16 << 10;
/// Upper estimate of a submission's events in the log, without script and environment, bytes.
const SUBMISSION_BYTES: u64 = 16 << 10;

/// Message of a panic about a bug in the host: it calls without [`Pipeline::begin`], and the input would be lost.
const UNOPENED: &str = "no batch is open: call Pipeline::begin first";

/// Space that the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes that can be appended to the log in the space that it already has on the disk.
    pub room: u64,
    /// Bytes of `room` that are kept for events that must be written, such as the ends of jobs.
    pub reserve: u64,
    /// Bytes that are free on the disk, in addition to `room`.
    pub free: u64,
    /// Whether the disk has refused the log more space.
    pub full: bool,
}

impl Capacity {
    /// Capacity of a log that is never full.
    pub const UNBOUNDED: Self = Self { room: u64::MAX, reserve: 0, free: u64::MAX, full: false };
}

/// Data to be made durable.
#[derive(Debug)]
pub struct Append {
    /// Events of the batch, as numbered records. All bear the time at which they were decided.
    pub records: Arc<Vec<Record>>,
    /// Content that the events refer to by digest, such as scripts. It must be durable together with the records.
    pub blobs: Vec<Blob>,
}

/// Messages and actions of a batch, to be sent and carried out once the batch is durable.
#[derive(Debug)]
pub struct Release<L> {
    /// Records that were made durable; None: the batch had no events.
    pub records: Option<Arc<Vec<Record>>>,
    /// Frames to be sent to children in the tree, by connection.
    pub sends: Vec<(LinkId, DownFrame)>,
    /// Connections of children to be closed.
    pub drops: Vec<LinkId>,
    /// Chunks of files to be sent by multicast.
    pub casts: Vec<Cast>,
    /// Answers to clients, each with the id of its caller.
    pub answers: Vec<(CallerId, Answer)>,
    /// Programs around jobs to be run on this host.
    pub programs: Vec<Program>,
    /// Programs for the power of nodes to be run on this host.
    pub power: Vec<PowerProgram>,
    /// Names of nodes; their keys are to be revoked.
    pub gone: Vec<String>,
    /// Actions for the host itself, to be done after everything else of this release.
    pub later: Vec<L>,
    /// Whether the daemon may end now, after a request to shut down.
    pub exit: bool,
}

/// Next action for a batch that was closed.
#[derive(Debug)]
pub enum Commit<L> {
    /// Append these records to the log and flush it, then call [`Pipeline::flushed`].
    Append(Append),
    /// The batch has no events, so nothing has to be flushed: its messages and answers may leave now.
    Release(Release<L>),
    /// Most nodes know of a newer state. Nothing of the batch may leave, and the daemon ends.
    Fenced(Newer),
}

/// A batch that is being decided.
#[derive(Debug)]
struct Batch<L> {
    /// Time of the decisions: all events of a record have the same time (see [`Controller`]).
    now: Time,
    out: Out,
    /// Indices in `out.events` at which a record ends.
    cuts: Vec<usize>,
    inputs: usize,
    blob_bytes: usize,
    later: Vec<L>,
}

/// A controller, with the pipeline that takes its decisions to the log. `L`: type of the actions that the host itself
/// does after a batch.
#[derive(Debug)]
pub struct Pipeline<L> {
    machine: Box<Controller>,
    /// Number of the next record of the log.
    next_seq: u64,
    capacity: Capacity,
    /// The batch that takes inputs; None: no batch is open.
    open: Option<Batch<L>>,
    /// Release of the batch that is being flushed; None: no batch is being flushed.
    flushing: Option<Release<L>>,
}

impl<L> Pipeline<L> {
    /// Makes a pipeline for a controller. `next_seq` is the number of the next record in its log.
    pub fn new(mut machine: Controller, next_seq: u64) -> Self {
        machine.begin_record(next_seq);
        let capacity = Capacity::UNBOUNDED;
        Self { machine: Box::new(machine), next_seq, capacity, open: None, flushing: None }
    }

    /// Returns the controller.
    pub fn machine(&self) -> &Controller {
        &self.machine
    }

    /// Takes the controller out, as at a crash. What was open or being flushed is lost.
    pub fn into_machine(self) -> Box<Controller> {
        self.machine
    }

    /// Returns the time at which the controller needs a tick, unless another input comes before. None: it needs none.
    pub fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    /// Chooses the list request that [`Input::Page`] continues: the first one with a caller that is `ready`. Returns
    /// false if there is none.
    pub fn rotate_lists(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        self.machine.rotate_lists(ready)
    }

    /// Chooses the follower of events that [`Input::Feed`] serves: the first one that has not got all events and is
    /// `ready`. Returns false if there is none.
    pub fn turn_followers(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        self.machine.turn_followers(ready)
    }

    /// Opens a batch that is decided at `now`, or goes on with the open one. Returns the batch's time.
    pub fn begin(&mut self, now: Time) -> Time {
        self.open.get_or_insert_with(|| Batch::new(now)).now
    }

    /// Returns whether a batch is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns whether a batch is being flushed.
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Returns whether the open batch accepts more inputs.
    pub fn has_room(&self) -> bool {
        self.open.as_ref().is_none_or(|batch| batch.inputs < INPUTS_MAX && batch.blob_bytes < BLOB_BYTES_MAX)
    }

    /// Returns the output so far of the open batch, to which the host adds answers of its own. None: no batch is
    /// open.
    pub fn open_out(&mut self) -> Option<&mut Out> {
        self.open.as_mut().map(|batch| &mut batch.out)
    }

    /// Adds an action for the host itself to do after the open batch. Example: a query to accounting, which must see
    /// what was acknowledged before it.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if no batch is open. Other builds ignore the call.
    pub fn later(&mut self, deed: L) {
        debug_assert!(self.is_open(), "{UNOPENED}");
        if let Some(batch) = &mut self.open {
            batch.later.push(deed);
        }
    }

    /// Sets the space that the log has. The open batch tells the controller if the disk became full or has room
    /// again.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if no batch is open. Other builds ignore the call, so that the next call tells the
    /// controller.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        debug_assert!(self.is_open(), "{UNOPENED}");
        if !self.is_open() {
            return;
        }
        let changed = capacity.full != self.capacity.full;
        self.capacity = capacity;
        if changed {
            self.take(Input::Disk { full: capacity.full });
        }
    }

    /// Gives an input to the controller. The controller's decisions join the open batch. A submission for which the log
    /// has no room is refused instead.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if no batch is open. Other builds ignore the call.
    pub fn take(&mut self, input: Input) {
        debug_assert!(self.is_open(), "{UNOPENED}");
        if let Input::Ask { caller, request, .. } = &input
            && let Some(bytes) = stored_bytes(request)
            && !self.has_room_for(bytes)
        {
            let refused = (*caller, Answer::Refused(Refusal::DiskFull));
            return self.open_out().map_or((), |out| out.answers.push(refused));
        }
        self.run(|machine, now, out| machine.take(now, input, out));
        if let Some(batch) = &mut self.open {
            batch.inputs += 1;
        }
    }

    /// Lets the controller complete its decisions on all inputs of the open batch. Does nothing without one.
    pub fn settle(&mut self) {
        self.run(Controller::settle);
    }

    /// Closes the open batch, unless another one is being flushed: then it stays open. None: there is nothing to do
    /// now.
    pub fn commit(&mut self) -> Option<Commit<L>> {
        if self.flushing.is_some() {
            return None;
        }
        let mut batch = self.open.take()?;
        if let Some(newer) = batch.out.newer.take() {
            return Some(Commit::Fenced(newer));
        }
        let blobs = std::mem::take(&mut batch.out.blobs);
        let bytes = batch.bytes(self.capacity.reserve);
        let records = batch.records(self.next_seq);
        let mut release = batch.release();
        if records.is_empty() {
            return Some(Commit::Release(release));
        }
        self.next_seq += records.len() as u64;
        self.machine.begin_record(self.next_seq);
        // The next batch must not count on room that this one may take.
        self.capacity.room = self.capacity.room.saturating_sub(bytes);
        let records = Arc::new(records);
        release.records = Some(records.clone());
        self.flushing = Some(release);
        Some(Commit::Append(Append { records, blobs }))
    }

    /// Ends the flush of a batch, which is now durable. Returns its release; None: no batch was being flushed.
    pub fn flushed(&mut self) -> Option<Release<L>> {
        self.flushing.take()
    }

    /// Returns whether the log has room for a submission with `bytes` of script and environment without using its
    /// reserve.
    fn has_room_for(&self, bytes: u64) -> bool {
        let Capacity { room, reserve, free, full } = self.capacity;
        let taken = self.open.as_ref().map_or(0, |batch| batch.bytes(reserve));
        let need = taken.saturating_add(bytes).saturating_add(submission_bytes(reserve));
        need.saturating_add(reserve) <= room || (!full && free / 4 > need)
    }

    fn run(&mut self, decide: impl FnOnce(&mut Controller, Time, &mut Out)) {
        // because the host may settle without a batch, which is documented to do nothing
        let Some(batch) = &mut self.open else { return };
        let blobs = batch.out.blobs.len();
        decide(&mut self.machine, batch.now, &mut batch.out);
        batch.blob_bytes += batch.out.blobs[blobs..].iter().map(|blob| blob.bytes.len()).sum::<usize>();
        let events = batch.out.events.len();
        if events - batch.cuts.last().copied().unwrap_or(0) >= EVENTS_MAX {
            batch.cuts.push(events);
        }
    }
}

impl<L> Batch<L> {
    fn new(now: Time) -> Self {
        Self { now, out: Out::default(), cuts: Vec::new(), inputs: 0, blob_bytes: 0, later: Vec::new() }
    }

    /// Returns an upper estimate of the batch's bytes in the log.
    fn bytes(&self, reserve: u64) -> u64 {
        self.blob_bytes as u64 + self.inputs as u64 * submission_bytes(reserve)
    }

    /// Removes the batch's events and returns them as records numbered from `first` on.
    fn records(&mut self, first: u64) -> Vec<Record> {
        let mut events = std::mem::take(&mut self.out.events);
        let mut parts: Vec<Vec<Event>> = Vec::new();
        for cut in std::mem::take(&mut self.cuts).into_iter().rev() {
            parts.push(events.split_off(cut));
        }
        parts.push(events);
        let parts = parts.into_iter().rev().filter(|part| !part.is_empty());
        parts.zip(first..).map(|(events, seq)| Record { seq, time: self.now, events }).collect()
    }

    fn release(self) -> Release<L> {
        let Out { blobs: _, events: _, sends, drops, casts, answers, programs, power, gone, newer: _, exit } = self.out;
        Release { records: None, sends, drops, casts, answers, programs, power, gone, later: self.later, exit }
    }
}

/// Returns the estimated size of a submission's events in the log, bytes. The estimate is smaller on a small disk, as
/// it would use up the disk's `reserve`.
fn submission_bytes(reserve: u64) -> u64 {
    SUBMISSION_BYTES.min(reserve / 4)
}

/// Returns the bytes that a request adds to the log. None: the request is taken even if the log is full, or adds
/// little.
fn stored_bytes(request: &Request) -> Option<u64> {
    let bytes = match request {
        Request::Submit { script, env, .. } => script.len() + env.len(),
        Request::SubmitHet { script, env, specs, .. } => {
            script.len() + env.len() + specs.len() * SUBMISSION_BYTES as usize
        }
        Request::Allocate { env, .. } => env.len(),
        _ => return None,
    };
    Some(bytes as u64)
}

#[cfg(test)]
mod tests;
