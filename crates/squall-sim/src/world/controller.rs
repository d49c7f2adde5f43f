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
use crate::peers::{Base, Peer};
use crate::setup::BEGIN;
use crate::signers::rotations_of;
use crate::trace::Origin;
use crate::world::filter::FilterHost;
use crate::world::tree::Side;
use crate::world::{Happening, World};

/// Number of records between two snapshots.
const SNAPSHOT_EVERY: u64 = 400;

/// How much too early the clock of a controller is, as it starts, that counts node fences from before.
const UNAWAITED: Span = Span::from_secs(100);

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
    /// The controller is killed while it follows another one.
    Standby,
    /// Not a crash: the controller starts again, because it leads no more, has a new copy of the log or another release.
    Anew(Fault),
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
            Self::Standby => Fault::StandbyKilled,
            Self::Anew(fault) => fault,
        }
    }
}

/// A simulated controller process: its pipeline, its log and its planned faults.
#[derive(Debug)]
pub(crate) struct ControllerHost {
    /// The running pipeline. None: the controller is down, or follows another one.
    pub(crate) pipeline: Option<Pipeline<()>>,
    /// Its part in the log of several controllers. None: there is only one controller, or this one is down.
    pub(crate) peer: Option<Box<Peer>>,
    /// Its machine, if there are several controllers.
    pub(crate) base: Base,
    pub(crate) log: MemoryLog,
    /// Number of starts and crashes so far. Events that were scheduled when it was lower are dropped.
    pub(crate) life: u64,
    inbox: Vec<Input>,
    /// Its submit filter.
    pub(crate) filter: FilterHost,
    /// Records that were appended to the log and not yet flushed.
    unflushed: Arc<Vec<Record>>,
    /// A batch of records that waits because the log's disk is full.
    pub(crate) roomless: Option<Append>,
    turn_due: bool,
    /// Number of the last record in its log.
    pub(crate) seq: u64,
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
    /// How often the keys with which it signs were rotated.
    pub(crate) rotations: u64,
    /// How far the controller's wall clock is ahead of true time, microseconds; negative: behind.
    pub(crate) wall_ahead_us: i64,
    /// Time that the controller was given last. Only planted bugs use it.
    last_now: Time,
    /// Whether the log was full at the end of the last iteration.
    pub(crate) knows_full: bool,
}

impl ControllerHost {
    pub(crate) fn new(of: usize, mutation: Option<Mutation>) -> Self {
        let lie = match mutation {
            Some(Mutation::FlushSkipped) => Lie::FlushSkipped,
            Some(Mutation::TornTailKept) => Lie::TornTailKept,
            _ => Lie::None,
        };
        Self {
            pipeline: None,
            peer: None,
            base: Base::new(of, BEGIN),
            log: MemoryLog::new(lie),
            life: 0,
            inbox: Vec::new(),
            filter: FilterHost::default(),
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
            rotations: 0,
            wall_ahead_us: 0,
            last_now: Time(0),
            knows_full: false,
        }
    }
    /// Returns whether the controller accepts connections.
    pub(crate) fn serves(&self) -> bool {
        self.pipeline.is_some()
    }
    /// Returns whether the controller's process has started: it serves, or follows another controller.
    pub(crate) fn runs(&self) -> bool {
        self.pipeline.is_some() || self.peer.is_some()
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
    /// Forgets the state at the last crash, because the log has changed since.
    pub(crate) fn forget_crash(&mut self) {
        self.at_crash = None;
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
    pub(crate) fn start_controller(&mut self, of: usize, after: Span) {
        self.controllers[of].life += 1;
        let life = self.controllers[of].life;
        self.after(after, Happening::ControllerStart { of, life });
    }

    /// Begins recovery. It takes time, during which the controller may be killed again.
    pub(crate) fn controller_starts(&mut self, of: usize, life: u64) {
        if life != self.controllers[of].life || self.controllers[of].runs() {
            return;
        }
        if self.is_crash_due(of, CrashPoint::InRecovery) {
            self.controllers[of].crashes_in_recovery += 1;
            return self.crash_controller(of, CrashPoint::InRecovery);
        }
        let span = self.seed.span(Span::from_millis(2), Span::from_millis(60));
        self.after(span, Happening::ControllerServe { of, life });
    }

    /// Ends recovery: the controller serves with the state that the disk holds.
    pub(crate) fn controller_serves(&mut self, of: usize, life: u64) {
        if life != self.controllers[of].life {
            return;
        }
        let torn_bytes = self.controllers[of].log.recover();
        if torn_bytes > 0 {
            self.strike(Fault::TornTail, torn_bytes);
        }
        let records = self.read_log(of);
        if self.etcd.is_some() {
            self.judge.recovered_copy(of, &records, self.controllers[of].base.durable);
        } else {
            let surviving = self.judge.recovered(&records);
            if surviving > 0 {
                self.strike(Fault::UnflushedSurvived, surviving);
            }
            self.judge.take_survivors(self.now, &self.clients);
            records.iter().rev().take(surviving as usize).rev().for_each(|record| self.checkpoints_count(record));
            self.restored_finds(&records, surviving);
        }
        let state = self.rebuild(of, &records);
        self.controllers[of].seq = records.last().map_or(0, |record| record.seq);
        self.compare_with_crash(of, &state);
        self.controllers[of].base.durable = self.controllers[of].seq;
        if self.is_too_old_for(of, state.cluster_version) {
            return;
        }
        if self.etcd.is_some() { self.follow(of, state) } else { self.serve(of, state) }
    }

    /// Begins to decide, with the state after the log's last record.
    pub(crate) fn serve(&mut self, of: usize, mut state: State) {
        self.judge.check_acknowledged(&state);
        if self.is_planted(Mutation::IdsReset) {
            state.last_id = squall_model::id::JobId(0);
        }
        self.say(Origin::Controller, "serves", 0, self.controllers[of].seq);
        self.judge.silence.controller_from(self.now);
        self.controllers[of].rotations = state.keys.as_deref().map_or(0, rotations_of);
        let mut machine = Controller::new(state);
        machine.set_page(PAGE);
        machine.speak(self.controllers[of].base.speaks);
        self.note_restored(&mut machine);
        self.controllers[of].pipeline = Some(Pipeline::new(machine, self.controllers[of].log.next_seq()));
        let mut config = Box::new(self.setup.config.clone());
        if self.is_planted(Mutation::RemovalForgotten) {
            config.nodes[0].name = squall_model::hostlist::compress(&self.setup.names);
        }
        self.tell_controller(of, Input::Start { config, version: "sim".into(), host: "sim".into() });
        if self.setup.multicast.is_some() {
            let secret = std::array::from_fn(|_| self.seed.next() as u8);
            self.tell_controller(of, Input::Multicast { secret });
        }
    }

    fn read_log(&mut self, of: usize) -> Vec<Record> {
        let records = self.controllers[of].records();
        records.unwrap_or_else(|error| {
            self.judge.violate("the journal can be read", error.to_string());
            Vec::new()
        })
    }

    fn rebuild(&mut self, of: usize, records: &[Record]) -> State {
        let mut from = 0;
        let mut state = State::default();
        let snapshot = self.controllers[of].log.snapshot().unwrap_or_else(|error| {
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

    fn compare_with_crash(&mut self, of: usize, state: &State) {
        if let Some((seq, live)) = self.controllers[of].at_crash.take()
            && seq == self.controllers[of].seq
            && *live != *state
        {
            self.judge.violate("the replayed state equals the live state", format!("at record {seq}"));
        }
    }

    /// Checks that a replay of each journal gives the live state of its controller.
    pub(crate) fn check_replay(&mut self) {
        (0..self.controllers.len()).for_each(|of| self.check_replay_of(of));
    }

    /// Checks that a replay of a controller's journal gives its live state.
    pub(crate) fn check_replay_of(&mut self, of: usize) {
        if self.etcd.is_some() && self.controllers[of].log.flush().is_err() {
            return;
        }
        let host = &self.controllers[of];
        let idle = host.pipeline.as_ref().filter(|p| !p.is_open() && !p.is_flushing());
        let followed = host.peer.as_ref().and_then(|peer| peer.state.as_ref());
        let Some(live) = idle.map(|pipeline| pipeline.machine().state()).or(followed) else { return };
        let mut replayed = State::default();
        for record in self.controllers[of].records().unwrap_or_default() {
            replayed.apply_record(&record);
        }
        if replayed != *live {
            self.judge
                .violate("the replayed state equals the live state", format!("at record {}", self.controllers[of].seq));
        }
    }

    /// Queues an input for the controller's next iteration.
    pub(crate) fn tell_controller(&mut self, of: usize, input: Input) {
        self.controllers[of].inbox.push(input);
        self.plan_turn(of);
    }

    /// Schedules a controller iteration, unless one is scheduled or a batch of records is not committed yet.
    pub(crate) fn plan_turn(&mut self, of: usize) {
        if !self.controllers[of].turn_due && self.controllers[of].pipeline.as_ref().is_none_or(|p| !p.is_open()) {
            self.controllers[of].turn_due = true;
            let life = self.controllers[of].life;
            self.after(Span(20), Happening::Turn { of, life });
        }
    }

    /// Runs one controller iteration. Its records join the open batch. While a flush is in progress, the batch stays
    /// open for further iterations.
    pub(crate) fn controller_turn(&mut self, of: usize, life: u64) {
        if life != self.controllers[of].life {
            return;
        }
        self.controllers[of].turn_due = false;
        if !self.may_speak(of) {
            return;
        }
        let begins = self.controllers[of].inbox.iter().any(|input| matches!(input, Input::Start { .. }));
        let early = begins && self.is_planted(Mutation::FenceUnawaited);
        let now = self.controller_now(of) - if early { UNAWAITED } else { Span(0) };
        let Some(mut pipeline) = self.controllers[of].pipeline.take() else { return };
        pipeline.begin(now);
        let capacity = self.controllers[of].log.capacity();
        pipeline.set_capacity(self.controllers[of].peer.as_ref().map_or(capacity, |peer| peer.capacity()));
        for input in std::mem::take(&mut self.controllers[of].inbox) {
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
            if takes && self.controllers[of].knows_full && self.controllers[of].log.is_full() {
                self.judge
                    .violate("a full disk takes no submissions", format!("after record {}", self.controllers[of].seq));
            }
            self.perturb_out(out);
        }
        self.controllers[of].pipeline = Some(pipeline);
        self.controllers[of].knows_full = self.controllers[of].log.is_full();
        self.plan_tick(of, deadline);
        self.commit(of);
        if lists && life == self.controllers[of].life {
            self.tell_controller(of, Input::Page);
        }
        self.feed_viewer();
    }

    /// Returns the time for the controller. It does not depend on the wall clock, except with planted bugs.
    fn controller_now(&mut self, of: usize) -> Time {
        let wall = self.now.on_clock_ahead(self.controllers[of].wall_ahead_us);
        let now = match self.setup.mutation {
            Some(Mutation::ClockFollowed) => wall,
            Some(Mutation::ClockFrozen) => self.controllers[of].last_now.max(wall),
            _ => self.now,
        };
        self.controllers[of].last_now = now;
        now
    }

    /// Closes the open batch, unless a flush is in progress.
    fn commit(&mut self, of: usize) {
        match self.controllers[of].pipeline.as_mut().and_then(Pipeline::commit) {
            None => {}
            Some(Commit::Append(work)) => self.append(of, work),
            Some(Commit::Release(release)) => self.release(of, release),
            Some(Commit::Fenced(newer)) => {
                self.controllers[of].log.fence();
                if self.refuses_backup() {
                    return;
                }
                self.judge.violate("nodes have heard nothing that the controller does not know", format!("{newer:?}"));
            }
        }
    }

    /// Appends a batch to the log. A batch that does not fit waits until there is room.
    pub(crate) fn append(&mut self, of: usize, work: Append) {
        if self.is_crash_due(of, CrashPoint::BeforeAppend) {
            return self.crash_controller(of, CrashPoint::BeforeAppend);
        }
        for blob in &work.blobs {
            self.controllers[of].blobs.insert(blob.digest, blob.clone());
        }
        let blobs = if self.is_planted(Mutation::BlobsForgotten) { Vec::new() } else { work.blobs };
        let work = Append { records: work.records, blobs };
        if self.etcd.is_some() {
            return self.append_to_etcd(of, work);
        }
        match self.controllers[of].log.append(&work) {
            Ok(_) => {}
            Err(LogError::NoRoom(_)) => {
                self.controllers[of].roomless = Some(work);
                return;
            }
            Err(error) => self.judge.violate("the journal takes every record", error.to_string()),
        }
        self.note_appended(of, &work.records);
        self.controllers[of].unflushed = work.records;
        if self.is_crash_due(of, CrashPoint::BeforeFlush) {
            return self.crash_controller(of, CrashPoint::BeforeFlush);
        }
        if self.is_planted(Mutation::ReleaseBeforeFlush) {
            self.release_flushed(of);
        }
        let (low, high) = self.controllers[of].flush_span;
        let (span, life) = (self.seed.span(low, high), self.controllers[of].life);
        self.after(span, Happening::Flushed { of, life });
    }

    /// Notes what was written to a controller's journal.
    pub(crate) fn note_appended(&mut self, of: usize, records: &[Record]) {
        for record in records {
            self.controllers[of].seq = record.seq;
            self.say(Origin::Controller, "appends", 0, record.seq);
            if record.seq.is_multiple_of(SNAPSHOT_EVERY) {
                self.controllers[of].log.take_snapshot();
            }
        }
    }

    /// Handles the end of a flush: the appended records are durable, and their messages may be sent.
    pub(crate) fn flushed(&mut self, of: usize, life: u64) {
        if life != self.controllers[of].life {
            return;
        }
        if let Err(error) = self.controllers[of].log.flush() {
            self.judge.violate("the journal flushes", error.to_string());
        }
        if self.etcd.is_some() {
            return self.copy_flushed(of);
        }
        for record in std::mem::take(&mut self.controllers[of].unflushed).iter() {
            self.tell_of(record);
            self.judge.durable(self.now, record, &self.clients);
            self.restored_decides(record);
            self.checkpoints_count(record);
        }
        self.committed(of);
    }

    /// Handles that the batch which was to be made durable is that: its messages leave, and the next one follows.
    pub(crate) fn committed(&mut self, of: usize) {
        if self.is_crash_due(of, CrashPoint::BeforeRelease) {
            return self.crash_controller(of, CrashPoint::BeforeRelease);
        }
        self.release_flushed(of);
        self.commit(of);
        let news = self.controllers[of].knows_full != self.controllers[of].log.is_full();
        if self.controllers[of].serves() && (news || !self.controllers[of].inbox.is_empty()) {
            self.plan_turn(of);
        }
        self.feed_viewer();
    }

    /// Sends the messages of the batch that the pipeline reports durable.
    pub(crate) fn release_flushed(&mut self, of: usize) {
        if let Some(release) = self.controllers[of].pipeline.as_mut().and_then(Pipeline::flushed) {
            self.release(of, release);
        }
    }

    /// Adds lines to the simulation's trace for a record that became durable.
    pub(crate) fn tell_of(&mut self, record: &Record) {
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
                Event::NodeDown { node, reason } => {
                    self.judge_down(record.time, *node, reason);
                    ("node down", 0, node.0)
                }
                Event::NodeUp { node } => ("node up", 0, node.0),
                _ => continue,
            };
            self.say(Origin::Controller, what, job, u64::from(number));
        }
    }

    fn release(&mut self, of: usize, mut release: Release<()>) {
        if !self.may_speak(of) {
            return;
        }
        self.judge_word(of, &release);
        let crash =
            !(release.sends.is_empty() && release.answers.is_empty()) && self.is_crash_due(of, CrashPoint::MidRelease);
        if crash {
            let keep = self.seed.below(release.sends.len() as u64 + 1) as usize;
            release.sends.truncate(keep);
            let keep = self.seed.below(release.answers.len() as u64 + 1) as usize;
            release.answers.truncate(keep);
        }
        for (LinkId(link), mut frame) in release.sends {
            self.attach(of, &mut frame);
            self.perturb_down(&mut frame);
            self.judge.said(&frame);
            self.sign(of, &mut frame);
            self.send_down(link, &frame);
        }
        for event in release.records.iter().flat_map(|records| records.iter()).flat_map(|record| &record.events) {
            if let Event::KeysRotated { keys, .. } = event {
                self.controllers[of].rotations = rotations_of(keys);
            }
        }
        for LinkId(link) in release.drops {
            self.close(link, Side::Parent);
        }
        self.cast(of, release.casts);
        // A program that was not started runs when the controller is there again.
        let started = !crash || self.chance.chance(500_000);
        for program in release.power.into_iter().filter(|_| started) {
            self.run_power(of, program);
        }
        self.revoke(release.gone);
        self.release_answers(release.answers);
        if crash {
            self.crash_controller(of, CrashPoint::MidRelease);
        } else if release.exit {
            self.crash_controller(of, CrashPoint::ShutDown);
        }
    }

    /// Adds the scripts and environments that the messages in a frame refer to.
    fn attach(&mut self, of: usize, frame: &mut DownFrame) {
        for put in frame.says.iter_mut().filter_map(put_of) {
            let Ok(mut parcel) = put.parcel.open() else { continue };
            let wanted = parcel.messages.iter().flat_map(Down::digests);
            let blobs: Vec<Blob> = wanted.filter_map(|digest| self.controllers[of].blob(digest)).collect();
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

    fn plan_tick(&mut self, of: usize, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        let at = deadline.max(self.now + Span(1000));
        if self.controllers[of].tick_at.is_none_or(|planned| at < planned) {
            self.controllers[of].tick_at = Some(at);
            let life = self.controllers[of].life;
            self.agenda.at(at, Happening::ControllerTick { of, life });
        }
    }

    pub(crate) fn controller_tick(&mut self, of: usize, life: u64) {
        if life == self.controllers[of].life && self.controllers[of].tick_at.is_some_and(|at| at <= self.now) {
            self.controllers[of].tick_at = None;
            self.tell_controller(of, Input::Tick);
        }
    }

    /// Returns whether the planned crash is due now; counts down each time this point is reached.
    pub(crate) fn is_crash_due(&mut self, of: usize, point: CrashPoint) -> bool {
        let Some((_, left)) = self.controllers[of].plan.front_mut().filter(|(planned, _)| *planned == point) else {
            return false;
        };
        *left = left.saturating_sub(1);
        let due = *left == 0;
        if due {
            self.controllers[of].plan.pop_front();
        }
        due
    }

    /// Ends the controller, by kill -9 or a requested shutdown, and schedules the restart.
    pub(crate) fn crash_controller(&mut self, of: usize, point: CrashPoint) {
        self.strike(point.fault(), self.controllers[of].seq);
        self.controllers[of].life += 1;
        let mut pipeline = self.controllers[of].pipeline.take();
        let peer = self.controllers[of].peer.take();
        let followed = peer.and_then(|peer| peer.state).map(Box::new);
        let appending = self.etcd.is_some() && pipeline.as_ref().is_some_and(Pipeline::is_flushing);
        let open = pipeline.as_mut().and_then(Pipeline::open_out);
        let decided = open.is_some_and(|out| !out.events.is_empty());
        let roomless = self.controllers[of].roomless.take().is_some();
        let decided = decided || roomless || appending;
        let complete = !decided && point != CrashPoint::BeforeAppend && !self.is_planted(Mutation::FlushSkipped);
        let live = pipeline.filter(|_| complete).map(|pipeline| Box::new(pipeline.machine().state().clone()));
        if let Some(live) = live.or(followed) {
            self.controllers[of].at_crash = Some((self.controllers[of].seq, live));
        }
        self.controllers[of].inbox.clear();
        self.controllers[of].filter = FilterHost::default();
        self.controllers[of].unflushed = Arc::default();
        self.controllers[of].blobs.clear();
        self.controllers[of].turn_due = false;
        self.controllers[of].tick_at = None;
        self.controllers[of].knows_full = false;
        if point != CrashPoint::InRecovery {
            let loose = self.controllers[of].log.unflushed_bytes();
            let kept = match point {
                CrashPoint::Anew(_) => loose,
                _ => match self.seed.below(4) {
                    0 => 0,
                    1 => loose,
                    _ => self.seed.between(0, loose),
                },
            };
            self.controllers[of].log.crash(kept);
            self.controllers[of].crashes_in_recovery = 0;
        }
        self.close_all(self.network.controller(of), true);
        self.clients_lose_controller(of);
        self.viewer_loses_controller(of);
        self.controllers[of].base.paused_until = Time(0);
        if matches!(point, CrashPoint::Anew(_)) {
            let span = self.seed.span(Span::from_millis(5), Span::from_millis(60));
            self.start_controller(of, span);
        } else if let Some(span) = self.controllers[of].restart {
            if self.controllers[of].crashes_in_recovery < 3 && self.nemesis.is_active() && self.seed.chance(150_000) {
                self.controllers[of].plan.push_front((CrashPoint::InRecovery, 1));
            }
            self.start_controller(of, span);
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

/// Returns the put in a message to a child.
pub(crate) fn put_of(say: &mut Downward) -> Option<&mut Put> {
    match say {
        Downward::Put(put) | Downward::Reply { put, .. } => Some(put),
        _ => None,
    }
}
