//! Simulated process of the controller: it runs the commit pipeline over a log in memory, with crashes at every
//! position.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_engine::commit::{Append, Commit, Pipeline, Release};
use squall_engine::control::state::State;
use squall_engine::control::{CallerId, Controller, Input, LinkId};
use squall_model::event::{Event, Record};
use squall_model::job::{Blob, Digest};
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{DownFrame, Downward, Parcel, Put};
use squall_model::wire::node::{Down, Registration};
use squall_model::wire::sealed::Sealed;
use squall_store::memory::{Lie, MemoryLog};
use squall_store::{Log, LogError};

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::trace::Who;
use crate::tree::Side;
use crate::world::{Happening, World};

/// Number of records between two snapshots.
const SNAPSHOT_EVERY: u64 = 400;

/// Number of jobs on a page of a list. It is small, so that many events fall between two pages.
pub(crate) const PAGE: usize = 5;

/// Position in a controller iteration at which the controller is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// The controller is killed when the batch is decided and nothing is appended.
    BeforeAppend,
    /// The controller is killed when the batch is appended and not flushed.
    BeforeFlush,
    /// The controller is killed when the batch is flushed and no message is sent.
    BeforeRelease,
    /// The controller is killed when some messages of the batch are sent.
    MidRelease,
    /// The controller is killed while no batch is in progress.
    Idle,
    /// The controller is killed while it reads its journal.
    InRecovery,
    /// Not a crash: an operator shut the controller down.
    ShutDown,
}

impl CrashPoint {
    fn fault(self) -> Fault {
        match self {
            Self::BeforeAppend => Fault::CrashBeforeAppend,
            Self::BeforeFlush => Fault::CrashBeforeFlush,
            Self::BeforeRelease => Fault::CrashBeforeRelease,
            Self::MidRelease => Fault::CrashMidRelease,
            Self::Idle => Fault::CrashIdle,
            Self::InRecovery => Fault::CrashInRecovery,
            Self::ShutDown => Fault::ShutDown,
        }
    }
}

/// A simulated controller process: its pipeline, its log and its planned faults.
#[derive(Debug)]
pub(crate) struct ControllerHost {
    /// The running pipeline. None: the controller is down.
    pipeline: Option<Pipeline<()>>,
    pub(crate) log: MemoryLog,
    /// Number of starts and crashes so far. Events that were scheduled when it was lower are dropped.
    pub(crate) life: u64,
    inbox: Vec<Input>,
    /// Records that were appended to the log and not yet flushed.
    unflushed: Arc<Vec<Record>>,
    /// A batch of records that waits because the log's disk is full.
    pub(crate) roomless: Option<Append>,
    turn_due: bool,
    seq: u64,
    /// Cache of scripts and environments since the controller's last start; all of them are also in the log.
    blobs: BTreeMap<Digest, Blob>,
    tick_at: Option<Time>,
    /// Planned crashes in the order of their occurrence: the crash point, and how many times the controller reaches it
    /// until it crashes.
    pub(crate) plan: VecDeque<(CrashPoint, u32)>,
    /// Pause between a crash and the restart. None: the controller stays down.
    pub(crate) restart: Option<Span>,
    /// Shortest and longest duration of a flush.
    pub(crate) flush_span: (Span, Span),
    /// Number of the last record and the live state at a crash, for comparison with the recovered state.
    at_crash: Option<(u64, Box<State>)>,
    crashes_in_recovery: u32,
    /// An old message that a planted bug delivers a second time, and the time when it does.
    pub(crate) stale: Option<(Time, Parcel)>,
    /// First registration of each node, which a planted bug repeats.
    pub(crate) registered: BTreeMap<String, Registration>,
    /// How far the controller's wall clock is ahead of true time, microseconds; negative: behind.
    pub(crate) wall_ahead_us: i64,
    /// Time that the controller was given last. Only planted bugs use it.
    last_now: Time,
    /// Whether the log was full at the end of the last iteration.
    pub(crate) knows_full: bool,
}

impl ControllerHost {
    pub(crate) fn new(mutation: Option<Mutation>) -> Self {
        let lie = match mutation {
            Some(Mutation::FlushSkipped) => Lie::FlushSkipped,
            Some(Mutation::TornTailKept) => Lie::TornTailKept,
            _ => Lie::None,
        };
        Self {
            pipeline: None,
            log: MemoryLog::new(lie),
            life: 0,
            inbox: Vec::new(),
            unflushed: Arc::default(),
            roomless: None,
            turn_due: false,
            seq: 0,
            blobs: BTreeMap::new(),
            tick_at: None,
            plan: VecDeque::new(),
            restart: None,
            flush_span: (Span(200), Span(3000)),
            at_crash: None,
            crashes_in_recovery: 0,
            stale: None,
            registered: BTreeMap::new(),
            wall_ahead_us: 0,
            last_now: Time(0),
            knows_full: false,
        }
    }
    /// Returns whether the controller accepts connections.
    pub(crate) fn serves(&self) -> bool {
        self.pipeline.is_some()
    }
    /// Returns whether the controller has a session with a node.
    pub(crate) fn is_connected(&self, name: &str) -> bool {
        let machine = self.pipeline.as_ref().map(Pipeline::machine);
        machine.is_some_and(|m| m.state().node_id(name).is_some_and(|node| m.is_connected(node)))
    }
    /// Returns whether the controller has events for a follower and time to send them; the follower is then the next.
    pub(crate) fn has_news(&mut self, follower: CallerId) -> bool {
        let idle = self.pipeline.as_mut().filter(|pipeline| !pipeline.is_open() && !pipeline.is_flushing());
        idle.is_some_and(|pipeline| pipeline.turn_followers(|caller| caller == follower))
    }
    /// Replaces the controller's log.
    pub(crate) fn change_log(&mut self, log: MemoryLog) {
        (self.log, self.at_crash) = (log, None);
        self.plan.clear();
    }
    /// Returns a script or environment from the cache or the log. None: neither has it.
    fn blob(&mut self, digest: Digest) -> Option<Blob> {
        if let Some(blob) = self.blobs.get(&digest) {
            return Some(blob.clone());
        }
        let blob = Blob::new(self.log.blobs().read(&digest).ok()?);
        self.blobs.insert(digest, blob.clone());
        Some(blob)
    }
    /// Returns all records of the log.
    fn records(&self) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        self.log.read_from(1, &mut |record| records.push(record))?;
        Ok(records)
    }
    /// Returns the controller's state. None: it is down.
    pub(crate) fn state(&self) -> Option<&State> {
        self.pipeline.as_ref().map(|pipeline| pipeline.machine().state())
    }
}

impl World {
    /// Schedules a start of the controller.
    pub(crate) fn start_controller(&mut self, after: Span) {
        self.controller.life += 1;
        let life = self.controller.life;
        self.after(after, Happening::ControllerStart { life });
    }

    /// Begins recovery. It takes time, during which the controller may be killed again.
    pub(crate) fn controller_starts(&mut self, life: u64) {
        if life != self.controller.life || self.controller.serves() {
            return;
        }
        if self.is_crash_due(CrashPoint::InRecovery) {
            self.controller.crashes_in_recovery += 1;
            return self.crash_controller(CrashPoint::InRecovery);
        }
        let span = self.seed.span(Span::from_millis(2), Span::from_millis(60));
        self.after(span, Happening::ControllerServe { life });
    }

    /// Ends recovery: the controller serves with the state that the disk holds.
    pub(crate) fn controller_serves(&mut self, life: u64) {
        if life != self.controller.life {
            return;
        }
        let torn_bytes = self.controller.log.recover();
        if torn_bytes > 0 {
            self.strike(Fault::TornTail, torn_bytes);
        }
        let records = self.read_log();
        let surviving = self.judge.recovered(&records);
        if surviving > 0 {
            self.strike(Fault::UnflushedSurvived, surviving);
        }
        self.judge.take_survivors(self.now, &self.clients);
        let mut state = self.rebuild(&records);
        self.controller.seq = records.last().map_or(0, |record| record.seq);
        self.compare_with_crash(&state);
        self.judge.check_acknowledged(&state);
        if self.is_planted(Mutation::IdsReset) {
            state.last_id = squall_model::id::JobId(0);
        }
        self.say(Who::Controller, "serves", 0, self.controller.seq);
        let mut machine = Controller::new(state);
        machine.set_page(PAGE);
        if self.accepts_loss() {
            machine.accept_loss();
        }
        self.controller.pipeline = Some(Pipeline::new(machine, self.controller.log.next_seq()));
        let config = Box::new(self.setup.config.clone());
        self.tell_controller(Input::Start { config, version: "sim".into(), host: "sim".into() });
        if self.setup.multicast.is_some() {
            let secret = std::array::from_fn(|_| self.seed.next() as u8);
            self.tell_controller(Input::Multicast { secret });
        }
    }

    fn read_log(&mut self) -> Vec<Record> {
        let records = self.controller.records();
        records.unwrap_or_else(|error| {
            self.judge.violate("the journal can be read", error.to_string());
            Vec::new()
        })
    }

    fn rebuild(&mut self, records: &[Record]) -> State {
        let mut from = 0;
        let mut state = State::default();
        let snapshot = self.controller.log.snapshot().unwrap_or_else(|error| {
            self.judge.violate("a snapshot can be read", error.to_string());
            None
        });
        let restored = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            (from, state) = (snapshot.seq, snapshot.state);
            if self.is_planted(Mutation::SnapshotAhead) {
                from += 1;
            }
        }
        let skipped = self.is_planted(Mutation::RecordSkipped).then(|| self.seed.between(from + 1, from + 8));
        let twice = self.is_planted(Mutation::RecordReplayedTwice);
        for record in records.iter().filter(|record| record.seq > from) {
            if Some(record.seq) == skipped {
                continue;
            }
            state.apply_record(record);
            if twice {
                state.apply_record(record);
            }
        }
        if restored && self.seed.chance(150_000) {
            let mut full = State::default();
            for record in records {
                full.apply_record(record);
            }
            if full != state {
                self.judge.violate("snapshot and tail equal the full replay", format!("up to record {from}"));
            }
        }
        state
    }

    fn compare_with_crash(&mut self, state: &State) {
        if let Some((seq, live)) = self.controller.at_crash.take()
            && seq == self.controller.seq
            && *live != *state
        {
            self.judge.violate("the replayed state equals the live state", format!("at record {seq}"));
        }
    }

    /// Checks that a replay of the journal gives the live state.
    pub(crate) fn check_replay(&mut self) {
        let Some(pipeline) = self.controller.pipeline.as_ref().filter(|p| !p.is_open() && !p.is_flushing()) else {
            return;
        };
        let live = pipeline.machine().state();
        let mut replayed = State::default();
        for record in self.controller.records().unwrap_or_default() {
            replayed.apply_record(&record);
        }
        if replayed != *live {
            self.judge
                .violate("the replayed state equals the live state", format!("at record {}", self.controller.seq));
        }
    }

    /// Queues an input for the controller's next iteration.
    pub(crate) fn tell_controller(&mut self, input: Input) {
        self.controller.inbox.push(input);
        self.plan_turn();
    }

    /// Schedules a controller iteration, unless one is scheduled or a batch of records is not committed yet.
    pub(crate) fn plan_turn(&mut self) {
        if !self.controller.turn_due && self.controller.pipeline.as_ref().is_none_or(|p| !p.is_open()) {
            self.controller.turn_due = true;
            let life = self.controller.life;
            self.after(Span(20), Happening::Turn { life });
        }
    }

    /// Runs one controller iteration. Its records join the open batch. While a flush is in progress, the batch stays
    /// open for further iterations.
    pub(crate) fn controller_turn(&mut self, life: u64) {
        if life != self.controller.life {
            return;
        }
        self.controller.turn_due = false;
        let now = self.controller_now();
        let Some(mut pipeline) = self.controller.pipeline.take() else { return };
        pipeline.begin(now);
        pipeline.set_capacity(self.controller.log.capacity());
        for input in std::mem::take(&mut self.controller.inbox) {
            if let Some(input) = self.perturb_input(input) {
                pipeline.take(input);
            }
        }
        pipeline.settle();
        let ahead_us = now.0.cast_signed() - self.now.0.cast_signed();
        let deadline = pipeline.deadline().map(|deadline| deadline.on_clock_ahead(-ahead_us));
        let lists = pipeline.machine().lists();
        if let Some(out) = pipeline.open_out() {
            let takes = out.events.iter().any(|event| matches!(event, Event::JobSubmitted { .. }));
            if takes && self.controller.knows_full && self.controller.log.is_full() {
                self.judge.violate("a full disk takes no submissions", format!("after record {}", self.controller.seq));
            }
            self.perturb_out(out);
        }
        self.controller.pipeline = Some(pipeline);
        self.controller.knows_full = self.controller.log.is_full();
        self.plan_tick(deadline);
        self.commit();
        if lists && life == self.controller.life {
            self.tell_controller(Input::Page);
        }
        self.feed_viewer();
    }

    /// Returns the time for the controller. It does not depend on the wall clock, except with planted bugs.
    fn controller_now(&mut self) -> Time {
        let wall = self.now.on_clock_ahead(self.controller.wall_ahead_us);
        let now = match self.setup.mutation {
            Some(Mutation::ClockFollowed) => wall,
            Some(Mutation::ClockFrozen) => self.controller.last_now.max(wall),
            _ => self.now,
        };
        self.controller.last_now = now;
        now
    }

    /// Closes the open batch, unless a flush is in progress.
    fn commit(&mut self) {
        match self.controller.pipeline.as_mut().and_then(Pipeline::commit) {
            None => {}
            Some(Commit::Append(work)) => self.append(work),
            Some(Commit::Release(release)) => self.release(release),
            Some(Commit::Fenced(newer)) => {
                self.controller.log.fence();
                if self.refuses_backup() {
                    return;
                }
                self.judge.violate("nodes have heard nothing that the controller does not know", format!("{newer:?}"));
            }
        }
    }

    /// Appends a batch to the log. A batch that does not fit waits until there is room.
    pub(crate) fn append(&mut self, work: Append) {
        if self.is_crash_due(CrashPoint::BeforeAppend) {
            return self.crash_controller(CrashPoint::BeforeAppend);
        }
        for blob in &work.blobs {
            self.controller.blobs.insert(blob.digest, blob.clone());
        }
        let blobs = if self.is_planted(Mutation::BlobsForgotten) { Vec::new() } else { work.blobs };
        let work = Append { records: work.records, blobs };
        match self.controller.log.append(&work) {
            Ok(_) => {}
            Err(LogError::NoRoom(_)) => {
                self.controller.roomless = Some(work);
                return;
            }
            Err(error) => self.judge.violate("the journal takes every record", error.to_string()),
        }
        for record in work.records.iter() {
            self.controller.seq = record.seq;
            self.say(Who::Controller, "appends", 0, record.seq);
            if record.seq.is_multiple_of(SNAPSHOT_EVERY) {
                self.controller.log.take_snapshot();
            }
        }
        self.controller.unflushed = work.records;
        if self.is_crash_due(CrashPoint::BeforeFlush) {
            return self.crash_controller(CrashPoint::BeforeFlush);
        }
        if self.is_planted(Mutation::ReleaseBeforeFlush) {
            self.release_flushed();
        }
        let (low, high) = self.controller.flush_span;
        let (span, life) = (self.seed.span(low, high), self.controller.life);
        self.after(span, Happening::Flushed { life });
    }

    /// Handles the end of a flush: the appended records are durable, and their messages may be sent.
    pub(crate) fn flushed(&mut self, life: u64) {
        if life != self.controller.life {
            return;
        }
        if let Err(error) = self.controller.log.flush() {
            self.judge.violate("the journal flushes", error.to_string());
        }
        for record in std::mem::take(&mut self.controller.unflushed).iter() {
            self.tell_of(record);
            self.judge.durable(self.now, record, &self.clients);
            self.restored_decides(record);
        }
        if self.is_crash_due(CrashPoint::BeforeRelease) {
            return self.crash_controller(CrashPoint::BeforeRelease);
        }
        self.release_flushed();
        self.commit();
        let news = self.controller.knows_full != self.controller.log.is_full();
        if self.controller.serves() && (news || !self.controller.inbox.is_empty()) {
            self.plan_turn();
        }
        self.feed_viewer();
    }

    /// Sends the messages of the batch that the pipeline reports durable.
    fn release_flushed(&mut self) {
        if let Some(release) = self.controller.pipeline.as_mut().and_then(Pipeline::flushed) {
            self.release(release);
        }
    }

    /// Adds lines to the simulation's trace for a record that became durable.
    fn tell_of(&mut self, record: &Record) {
        for event in &record.events {
            let (what, job, number) = match event {
                Event::JobSubmitted { id, .. } => ("submitted", id.0, 0),
                Event::JobStarted { id, attempt, .. } => ("started", id.0, attempt.0),
                Event::JobEnding { id, requeue, .. } => ("ending", id.0, u32::from(requeue.is_some())),
                Event::NodesReleased { id, nodes, .. } => ("released", id.0, nodes.len() as u32),
                Event::TasksEnded { array, tasks, .. } => ("tasks ended", array.0, tasks.len() as u32),
                Event::JobHeld { id, .. } => ("held", id.0, 0),
                Event::JobReleased { id, .. } => ("let go", id.0, 0),
                Event::JobUpdated { id, .. } => ("updated", id.0, 0),
                Event::JobRequeued { id, .. } => ("requeued", id.0, 0),
                Event::JobSuspended { id, suspended } => ("suspended", id.0, u32::from(*suspended)),
                Event::StepStarted { job, step, .. } => ("step started", job.0, step.0),
                Event::StepNodesEnded { job, nodes, .. } => ("step ended", job.0, nodes.first().unwrap_or_default().0),
                Event::NodeDown { node, .. } => ("node down", 0, node.0),
                Event::NodeUp { node } => ("node up", 0, node.0),
                _ => continue,
            };
            self.say(Who::Controller, what, job, u64::from(number));
        }
    }

    fn release(&mut self, mut release: Release<()>) {
        let crash =
            !(release.sends.is_empty() && release.answers.is_empty()) && self.is_crash_due(CrashPoint::MidRelease);
        if crash {
            let keep = self.seed.below(release.sends.len() as u64 + 1) as usize;
            release.sends.truncate(keep);
            let keep = self.seed.below(release.answers.len() as u64 + 1) as usize;
            release.answers.truncate(keep);
        }
        for (LinkId(link), mut frame) in release.sends {
            self.attach(&mut frame);
            self.perturb_down(&mut frame);
            self.judge.said(&frame);
            self.send_down(link, &frame);
        }
        for LinkId(link) in release.drops {
            self.close(link, Side::Parent);
        }
        self.cast(release.casts);
        self.release_answers(release.answers);
        if crash {
            self.crash_controller(CrashPoint::MidRelease);
        } else if release.exit {
            self.crash_controller(CrashPoint::ShutDown);
        }
    }

    /// Adds the scripts and environments that the messages in a frame refer to.
    fn attach(&mut self, frame: &mut DownFrame) {
        for put in frame.says.iter_mut().filter_map(put_of) {
            let Ok(mut parcel) = put.parcel.open() else { continue };
            let wanted = parcel.messages.iter().flat_map(Down::digests);
            let blobs: Vec<Blob> = wanted.filter_map(|digest| self.controller.blob(digest)).collect();
            if !blobs.is_empty() {
                Arc::make_mut(&mut parcel).blobs = blobs;
                put.parcel = Sealed::Open(parcel);
            }
        }
    }

    pub(crate) fn release_answers(&mut self, answers: Vec<(CallerId, Answer)>) {
        for (CallerId(caller), answer) in answers {
            if let Answer::Followed(page) = answer {
                self.show_viewer(caller, *page);
                continue;
            }
            let delay = self.seed.span(Span(30), Span(300));
            let at = self.clients.in_order(caller, self.now + delay);
            self.agenda.at(at, Happening::Answer { caller, answer: Box::new(answer) });
        }
    }

    fn plan_tick(&mut self, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        let at = deadline.max(self.now + Span(1000));
        if self.controller.tick_at.is_none_or(|planned| at < planned) {
            self.controller.tick_at = Some(at);
            let life = self.controller.life;
            self.agenda.at(at, Happening::ControllerTick { life });
        }
    }

    pub(crate) fn controller_tick(&mut self, life: u64) {
        if life == self.controller.life && self.controller.tick_at.is_some_and(|at| at <= self.now) {
            self.controller.tick_at = None;
            self.tell_controller(Input::Tick);
        }
    }

    /// Returns whether the planned crash is due now; counts down each time this point is reached.
    fn is_crash_due(&mut self, point: CrashPoint) -> bool {
        let Some((_, left)) = self.controller.plan.front_mut().filter(|(planned, _)| *planned == point) else {
            return false;
        };
        *left = left.saturating_sub(1);
        let due = *left == 0;
        if due {
            self.controller.plan.pop_front();
        }
        due
    }

    /// Ends the controller, by kill -9 or a requested shutdown, and schedules the restart.
    pub(crate) fn crash_controller(&mut self, point: CrashPoint) {
        self.strike(point.fault(), self.controller.seq);
        self.controller.life += 1;
        let mut pipeline = self.controller.pipeline.take();
        let open = pipeline.as_mut().and_then(Pipeline::open_out);
        let decided = open.is_some_and(|out| !out.events.is_empty());
        let roomless = self.controller.roomless.take().is_some();
        let decided = decided || roomless;
        let complete = !decided && point != CrashPoint::BeforeAppend && !self.is_planted(Mutation::FlushSkipped);
        if let Some(pipeline) = pipeline.filter(|_| complete) {
            self.controller.at_crash = Some((self.controller.seq, Box::new(pipeline.machine().state().clone())));
        }
        self.controller.inbox.clear();
        self.controller.unflushed = Arc::default();
        self.controller.blobs.clear();
        self.controller.turn_due = false;
        self.controller.tick_at = None;
        self.controller.knows_full = false;
        if point != CrashPoint::InRecovery {
            let loose = self.controller.log.unflushed_bytes();
            let kept = match self.seed.below(4) {
                0 => 0,
                1 => loose,
                _ => self.seed.between(0, loose),
            };
            self.controller.log.crash(kept);
            self.controller.crashes_in_recovery = 0;
        }
        self.close_all(self.network.controller(), true);
        self.clients_lose_controller();
        self.viewer_loses_controller();
        if let Some(span) = self.controller.restart {
            if self.controller.crashes_in_recovery < 3 && self.nemesis.is_active() && self.seed.chance(150_000) {
                self.controller.plan.push_front((CrashPoint::InRecovery, 1));
            }
            self.start_controller(span);
        }
    }
}

/// Calls `deed` for the messages of every put in a frame.
pub(crate) fn for_each_parcel(frame: &mut DownFrame, mut deed: impl FnMut(&mut Parcel)) {
    for put in frame.says.iter_mut().filter_map(put_of) {
        if let Ok(mut parcel) = put.parcel.open() {
            deed(Arc::make_mut(&mut parcel));
            put.parcel = Sealed::Open(parcel);
        }
    }
}

fn put_of(say: &mut Downward) -> Option<&mut Put> {
    match say {
        Downward::Put(put) | Downward::Reply { put, .. } => Some(put),
        _ => None,
    }
}
