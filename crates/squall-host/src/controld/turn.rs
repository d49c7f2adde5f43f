//! The controller's loop around the commit pipeline: receives inputs, appends records to the journal, and sends what is
//! durable.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use squall_engine::commit::{Commit, INPUTS_MAX, Pipeline, Release};
use squall_engine::control::{CallerId, Controller, Input, LinkId, Who};
use squall_engine::replica::Why;
use squall_files::place::Place;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, AnyRequest, HostProblem, Origin, Refusal, Request};
use squall_model::wire::fabric::DownFrame;
use squall_model::wire::info::Diag;
use squall_store::accounts::Accounts;
use squall_store::{Log, LogError};
use tracing::{error, info, warn};

use super::backups::Backups;
use super::changes;
use super::clock::Clock;
use super::connection::{Arrival, Asked, Held, Inbox, PeerKind, Via};
use super::fair::{self, Fair};
use super::filter::Filters;
use super::flush::{Flushed, Flushing, append, flushed, lost};
use super::follow::Leadership;
use super::host_files::{CallerFacts, HostFiles};
use super::meter::{self, Meter};
use super::programs::Programs;
use super::room::Room;
use super::sealer::Sealer;
use super::{ControllerError, Signals};
use crate::link::{self, Outgoing};
use crate::logging;
use crate::multicast::MulticastSender;
use crate::service;
use crate::tail::Tails;

/// Most arrivals (events of connections) that may be queued in `Daemon::waiting`.
const WAITING_MAX: usize = 32 << 10;
/// Time for which one iteration of the loop decides requests. Then their records are flushed, and new arrivals are
/// received.
const TURN_TIME: Duration = Duration::from_millis(50);
/// Interval of the check whether a slow reader of a list has received its page.
const READER_POLL: Duration = Duration::from_millis(5);
/// Interval at which freed memory is returned to the system and broken invariants are logged.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Number of queued arrivals from which on a batch is decided while another one is flushed: each batch has a fixed
/// cost.
const AHEAD_MIN: usize = 64;
/// While there is other work, the pause between two pages of a list is this many times what the last page took.
const LIST_SHARE: u32 = 8;
/// Shortest pause between two rounds in which followers are sent events, so that a page has many.
const FEED_EVERY: Duration = Duration::from_millis(10);
/// The pause between two rounds is at least this many times what making and encoding the last pages took.
const FEED_SHARE: u32 = 24;
/// Estimated time for passing one page to the kernel.
const FEED_SEND_TIME: Duration = Duration::from_micros(20);
/// Time after which a round ends although some followers were not served.
const FEED_ROUND_TIME: Duration = Duration::from_millis(2);
/// Interval of the check whether a slow follower has received its page.
const FEED_POLL: Duration = Duration::from_millis(250);
/// Interval of the check whether a full disk has room again.
const DISK_POLL: Duration = Duration::from_millis(100);
/// Time that the last answers have to be sent before the controller ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// The controller's state machine with its journal, connections, clock and caches.
pub(super) struct Daemon {
    pub(super) pipeline: Pipeline<Later>,
    /// The journal. None while a flush runs on another thread.
    log: Option<Box<dyn Log>>,
    pub(super) accounts: Accounts,
    pub(super) backups: Backups,
    programs: Programs,
    pub(super) filters: Filters<Held>,
    pub(super) files: HostFiles,
    room: Room,
    sealer: Sealer,
    meter: Meter,
    pub(super) tails: Tails,
    pub(super) peers: HashMap<u64, Peer>,
    /// Queued arrivals (events of connections), in the order in which they are handled.
    waiting: Fair<Arrival>,
    multicast: Option<MulticastSender>,
    /// The leadership of one of several controllers. None: there is one.
    pub(super) leadership: Option<Leadership>,
    /// The client that has asked for a take-over, and the standby that goes first.
    pub(super) resigns: Option<(CallerId, Option<String>)>,
    pub(super) clock: Clock,
    /// Time as of which the open batch is decided, or the last one if none is open.
    pub(super) now: Time,
    /// When freed memory is next returned to the system, and broken invariants are logged.
    trim_at: Instant,
    /// When the next page of a list may be made although other inputs wait.
    list_at: Instant,
    /// When followers may be sent events again.
    feed_at: Instant,
    full: bool,
    /// Time taken by deciding the requests of the open batch.
    took: Duration,
    /// When the submissions of the open batch arrived.
    submitted: Vec<Instant>,
    /// When the submissions of the batch that is being flushed arrived.
    unanswered: Vec<Instant>,
    /// Whether the state machine has asked to end.
    done: bool,
}

/// What the daemon itself does after a flush.
type Later = Box<dyn FnOnce(&mut Daemon)>;

pub(super) struct Peer {
    pub(super) out: Outgoing,
    node: bool,
    /// Name of the node, if it is on another machine.
    name: Option<String>,
}

impl Daemon {
    pub(super) fn new(
        machine: Controller,
        log: Box<dyn Log>,
        accounts: Accounts,
        (place, known, room): (Place, CallerFacts, Room),
        (multicast, clock, leadership): (Option<MulticastSender>, Clock, Option<Leadership>),
        (backups, sealer, programs, filters): (Backups, Sealer, Programs, Filters<Held>),
    ) -> Self {
        let files = HostFiles::new(place, log.blobs(), known, machine.has_vouched_jobs());
        let now = clock.now();
        let (peers, meter) = (HashMap::new(), Meter::new(now));
        Self {
            pipeline: Pipeline::new(machine, log.next_seq()),
            log: Some(log),
            accounts,
            backups,
            programs,
            filters,
            files,
            room,
            sealer,
            meter,
            tails: Tails::default(),
            peers,
            waiting: Fair::default(),
            multicast,
            leadership,
            resigns: None,
            clock,
            now,
            trim_at: Instant::now() + TRIM_EVERY,
            list_at: Instant::now(),
            feed_at: Instant::now(),
            full: false,
            took: Duration::ZERO,
            submitted: Vec::new(),
            unanswered: Vec::new(),
            done: false,
        }
    }

    /// Starts a new run (epoch) of the state machine, and makes that durable.
    pub(super) async fn start(&mut self, input: Input) -> Result<(), ControllerError> {
        self.begin();
        self.step(input);
        self.look_at_clock();
        if let Some(multicast) = &self.multicast {
            let secret = multicast.secret;
            self.step(Input::Multicast { secret });
        }
        self.run_effects();
        self.begin_filter();
        self.complete().await
    }

    /// Runs until the state machine ends or a signal arrives. While one batch is flushed, the next one is decided if
    /// many inputs wait.
    pub(super) async fn run(mut self, mut inbox: Inbox, mut signals: Signals) -> Result<(), ControllerError> {
        let mut flushing = None::<Flushing>;
        let (mut of_nodes, mut of_users) = (Vec::new(), Vec::new());
        while !self.done && self.resigns.is_none() {
            let room = |queued| WAITING_MAX.saturating_sub(queued).min(INPUTS_MAX);
            let (for_nodes, room) = (room(self.waiting.of_nodes()), room(self.waiting.of_users()));
            let patience = self.patience();
            let timer = tokio::select! {
                biased;
                () = signals.heard() => break,
                why = over(&mut self.leadership) => return Err(ControllerError::Deposed(why)),
                flushed = flushed(&mut flushing) => {
                    self.finish(flushed?).await?;
                    flushing = self.commit()?;
                    false
                }
                _ = inbox.nodes.recv_many(&mut of_nodes, for_nodes), if for_nodes > 0 => false,
                _ = inbox.users.recv_many(&mut of_users, room), if room > 0 => false,
                () = std::future::ready(()), if flushing.is_none() && self.has_work() => true,
                () = tokio::time::sleep(patience), if flushing.is_none() => true,
            };
            // Whichever event woke the loop, all arrivals so far belong to the same turn.
            of_nodes.extend(std::iter::from_fn(|| inbox.nodes.try_recv().ok()).take(for_nodes - of_nodes.len()));
            of_users.extend(std::iter::from_fn(|| inbox.users.try_recv().ok()).take(room - of_users.len()));
            self.sort_in(of_nodes.drain(..).chain(of_users.drain(..)));
            let enough = match &flushing {
                None => timer || self.waiting.len() > 0,
                Some(_) => self.waiting.len() >= AHEAD_MIN && self.has_room(),
            };
            if !enough {
                continue;
            }
            self.begin();
            self.look_at_clock();
            while self.has_room()
                && let Some((of, arrival)) = self.waiting.pop()
            {
                let took = self.ingest(arrival);
                self.waiting.charge(of, took);
            }
            if self.pipeline.deadline().is_some_and(|d| d <= self.now) {
                self.step(Input::Tick);
            }
            self.list(timer && self.waiting.len() == 0);
            self.feed();
            self.run_effects();
            if flushing.is_none() {
                flushing = self.commit()?;
            }
            self.look_after_memory();
            // Connections run on this thread too: lets them queue arrivals and send.
            tokio::task::yield_now().await;
        }
        service::stopping();
        if let Some(flushing) = &mut flushing {
            let flushed = flushing.wait().await?;
            self.finish(flushed).await?;
        }
        self.complete().await?;
        // Followers get the last events, too.
        self.begin();
        self.feed_at = Instant::now();
        self.feed();
        self.complete().await?;
        let resigned = self.resign().await;
        self.farewell().await;
        self.close();
        resigned
    }

    /// Ends the leadership of one of several controllers, so that another one need not wait for its lease to end.
    async fn resign(&mut self) -> Result<(), ControllerError> {
        let Some(leadership) = self.leadership.take() else { return Ok(()) };
        let Some((caller, to)) = self.resigns.take() else {
            if self.done {
                leadership.stop().await;
            } else {
                leadership.resign(None).await;
            }
            return Ok(());
        };
        let why = leadership.resign(to).await;
        self.answer(caller.0, Answer::Done);
        Err(ControllerError::Deposed(why))
    }

    /// Closes journal and accounting. The memory of jobs is not freed but left to the kernel, which reclaims a whole
    /// process at once: freeing a million jobs one by one takes a second.
    fn close(self) {
        let Self { pipeline, log, accounts, .. } = self;
        std::mem::forget(pipeline);
        drop((log, accounts));
    }

    /// Queues arrivals in `waiting`, those of the controller itself first.
    fn sort_in(&mut self, arrived: impl Iterator<Item = Arrival>) {
        for arrival in arrived {
            self.waiting.push(arrival.source(), arrival.connection(), arrival);
        }
    }

    /// Whether an arrival is queued, or a list can be continued, or a follower can be sent events.
    fn has_work(&mut self) -> bool {
        self.waiting.len() > 0 || self.next_list() || self.next_follower()
    }

    /// Selects a follower of events that is sent the next page, as it has received the last one. False: there is no
    /// such follower, or events were sent a moment ago.
    fn next_follower(&mut self) -> bool {
        let peers = &self.peers;
        Instant::now() >= self.feed_at
            && self.pipeline.turn_followers(|caller| peers.get(&caller.0).is_none_or(|peer| peer.out.is_drained()))
    }

    /// Selects a list of which the next page is made, as its reader has received the last one. False: there is no such
    /// list.
    fn next_list(&mut self) -> bool {
        let peers = &self.peers;
        self.pipeline.rotate_lists(|caller| peers.get(&caller.0).is_none_or(|peer| peer.out.has_room()))
    }

    fn look_after_memory(&mut self) {
        if Instant::now() >= self.trim_at {
            logging::report_broken();
            link::give_back();
            self.trim_at = Instant::now() + TRIM_EVERY;
        }
    }

    /// Returns how long the loop may sleep.
    fn patience(&self) -> Duration {
        let poll = match () {
            () if self.pipeline.machine().lists() => READER_POLL,
            () if self.full => DISK_POLL,
            () if self.pipeline.machine().has_news() => match self.feed_at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => FEED_POLL,
                pause => pause,
            },
            () if link::has_to_give() => TRIM_EVERY,
            () => Duration::from_mins(1),
        };
        let until = self.pipeline.deadline().map_or(poll, |d| Duration::from_micros(d.since(self.clock.now()).0));
        // A timer that stays due must not keep arrivals from being received.
        let least = Duration::from_millis(1);
        until.clamp(least, poll.max(least))
    }

    /// Opens a batch, or continues the open one. A new batch is decided with the present capacity of the journal's
    /// disk.
    fn begin(&mut self) {
        if self.pipeline.is_open() {
            return;
        }
        self.took = Duration::ZERO;
        self.now = self.pipeline.begin(self.now.max(self.clock.now()));
        // While a flush runs, the pipeline itself counts the remaining room.
        let Some(log) = &mut self.log else { return };
        let capacity = log.capacity();
        if capacity.full != self.full {
            self.full = capacity.full;
            self.room.full(log.trouble());
            if let Some(why) = log.trouble() {
                error!(error = %why, "no room for the journal: submissions are refused, running jobs go on");
            } else {
                info!("there is room for the journal again");
            }
        }
        self.pipeline.set_capacity(capacity);
    }

    /// Whether the open batch may take more inputs.
    fn has_room(&self) -> bool {
        self.pipeline.has_room() && self.took < TURN_TIME
    }

    /// Checks whether the wall clock was set. If so, has the state machine shift the times that users gave by it, e.g.
    /// those of `--begin`.
    fn look_at_clock(&mut self) {
        let Some(by_us) = self.clock.look() else { return };
        let seconds = by_us / 1_000_000;
        warn!(seconds, "the wall clock was set: times that people asked for by it follow, time limits do not");
        self.clock.remember();
        self.step(Input::ClockSet { by_us });
    }

    /// Passes an arrival on to the state machine; returns how long it took to decide, and to read if that counts.
    fn ingest(&mut self, arrival: Arrival) -> Duration {
        match arrival {
            Arrival::Opened { id, kind: PeerKind::Node(name), out } => {
                self.peers.insert(id, Peer { out, node: true, name: name.clone() });
                self.step(Input::Opened { link: LinkId(id), name });
            }
            Arrival::Opened { id, kind: PeerKind::Client { .. }, out } => {
                self.peers.insert(id, Peer { out, node: false, name: None });
            }
            Arrival::Closed { id, kind } => {
                if let Some(peer) = self.peers.remove(&id) {
                    let lost = if peer.node {
                        Input::Lost { link: LinkId(id) }
                    } else {
                        let away = matches!(kind, PeerKind::Client { away: true, .. });
                        Input::Hangup { caller: CallerId(id), away }
                    };
                    self.step(lost);
                }
            }
            Arrival::CastOut { stream } => self.step(Input::CastOut { stream }),
            Arrival::Sought { node, connected } => drop(connected.send(self.pipeline.machine().has_connected(&node))),
            Arrival::UsersSought { users } => drop(users.send(self.pipeline.machine().users_with_jobs())),
            Arrival::Groups { users } => self.step(Input::Groups { users }),
            Arrival::ProgramEnded { job, hook, error } => self.step(Input::ProgramEnded { job, hook, error }),
            Arrival::PowerProgramEnded { phase, nodes } => self.step(Input::PowerProgramEnded { phase, nodes }),
            Arrival::Frame { id, node: _, frame, bytes, claim: _claim } => {
                let (kind, start) = (meter::frame_kind(&frame), Instant::now());
                self.step(Input::Frame { link: LinkId(id), frame });
                let took = start.elapsed();
                self.meter.message(kind, None, took);
                self.took += took;
                return took + fair::reading(bytes);
            }
            Arrival::Filter(event) => return self.filtered(*event),
            Arrival::Asked { id, who, via, request, at, claim } => {
                let asked = Asked { id, who, via, request, at, claim: Some(claim), changes: Vec::new() };
                if !self.filters.is_on() {
                    return self.decide_asked(asked);
                }
                if let Some(asked) = self.divert(asked) {
                    return self.decide_asked(asked);
                }
            }
        }
        Duration::ZERO
    }

    /// Decides a request; returns how long that took.
    pub(super) fn decide_asked(&mut self, asked: Asked) -> Duration {
        let Asked { id, who, via, request, at, claim, .. } = asked;
        let (kind, uid) = (request.row().kind, who.owner.uid);
        if meter::submits(&request) {
            self.submitted.push(at);
        }
        let start = Instant::now();
        self.ask(id, who, via.as_ref(), request);
        let took = start.elapsed();
        self.meter.message(kind, Some(uid), took);
        self.took += took;
        drop(claim);
        took
    }

    /// Decides a request. `via`: the machine that vouches for the user, if it is another one. If that is a node, the user
    /// must have a job there. Submissions are logged with the machine.
    fn ask(&mut self, id: u64, mut who: Who, via: Option<&Via>, mut request: AnyRequest) {
        request.on_clock_ahead(-self.clock.ahead_us());
        let machine = self.pipeline.machine();
        let by_node = via.filter(|via| !via.login);
        if let Some(node) = by_node {
            who.by = machine.state().node_id(&node.host);
        }
        if let Err(refusal) = admit(machine, &who, via, request.row().origin) {
            return self.refuse(id, refusal);
        }
        if by_node.is_some() {
            self.files.mark();
        }
        let (user, uid, gid) = (who.owner.user.clone(), who.owner.uid, who.owner.gid);
        let before = self.pipeline.open_out().map_or(0, |out| out.answers.len());
        match request {
            AnyRequest::Machine(request) => self.decide(id, who, request),
            AnyRequest::Host(request) => self.answer_host(id, who, request),
        }
        let (Some(via), Some(out)) = (via, self.pipeline.open_out()) else { return };
        let Via { host, login, .. } = via;
        for (_, answer) in &out.answers[before..] {
            if let Answer::Submitted { job, .. } = answer {
                match login {
                    true => info!(%job, user, uid, gid, %host, "job submitted: a login host vouches for its user"),
                    false => info!(%job, user, uid, gid, node = %host, "job submitted: a node vouches for its user"),
                }
            }
        }
    }

    /// Has the state machine decide a request, once what the daemon knows is filled in.
    fn decide(&mut self, id: u64, who: Who, mut request: Box<Request>) {
        let mut refits = false;
        match &mut *request {
            Request::Reconfigure { config } => {
                *config = None;
                refits = who.operator;
                if who.operator {
                    match self.files.read_config(&self.pipeline.machine().state().config.cluster) {
                        Ok(read) => match self.refit(id, &who, Box::new(read)) {
                            Some(read) => *config = Some(read),
                            None => return,
                        },
                        Err(refusal) => return self.refuse(id, refusal),
                    }
                }
            }
            Request::RaiseVersion { others, .. } => {
                *others = self.leadership.as_ref().map(Leadership::others).unwrap_or_default();
            }
            Request::RotateKeys { grace_s, keys } => {
                match self.sealer.ring.prepare(who.operator, *grace_s, self.leadership.as_ref().map(Leadership::nexts))
                {
                    Ok(made) => *keys = Some(made),
                    Err(refusal) => return self.refuse(id, refusal),
                }
            }
            Request::Diag { reset: true } if who.operator => self.meter.reset_after_answer(),
            _ => {}
        }
        self.step(Input::Ask { caller: CallerId(id), who, request });
        if refits {
            self.unfit();
        }
    }

    pub(super) fn refuse(&mut self, id: u64, refusal: Refusal) {
        if let Some(out) = self.pipeline.open_out() {
            out.answers.push((CallerId(id), Answer::Refused(refusal)));
        }
    }

    /// Makes the next page of a list, if no other input waits (`idle`) or lists have paused long enough.
    fn list(&mut self, idle: bool) {
        let start = Instant::now();
        if (idle || start >= self.list_at) && self.next_list() {
            self.step(Input::Page);
            let end = Instant::now();
            self.list_at = end + (end - start) * LIST_SHARE;
        }
    }

    /// Sends pages of events to followers, in a round that takes little of the time.
    fn feed(&mut self) {
        let start = Instant::now();
        let mut pages = 0;
        while start.elapsed() < FEED_ROUND_TIME && self.next_follower() {
            self.step(Input::Feed);
            pages += 1;
        }
        if pages > 0 {
            let end = Instant::now();
            let took = end - start + FEED_SEND_TIME * pages;
            self.feed_at = end + FEED_EVERY.max(took * FEED_SHARE);
        }
    }

    pub(super) fn step(&mut self, input: Input) {
        self.measured(|pipeline| pipeline.take(input));
    }

    /// Runs the effects that are pending after all inputs of the batch.
    fn run_effects(&mut self) {
        self.measured(Pipeline::settle);
    }

    /// Runs `decide` on the pipeline, and counts the scheduling passes and the time they took.
    fn measured(&mut self, decide: impl FnOnce(&mut Pipeline<Later>)) {
        let passes = |diag: &Diag| (diag.cycles, diag.backfill.cycles);
        let before = passes(self.pipeline.machine().diag());
        let start = Instant::now();
        decide(&mut self.pipeline);
        let after = passes(self.pipeline.machine().diag());
        if after.0 != before.0 {
            self.meter.cycle(start.elapsed(), after.1 != before.1);
        }
    }

    /// Starts flushing the open batch on another thread, unless a flush runs. A batch without events is released at
    /// once.
    fn commit(&mut self) -> Result<Option<Flushing>, ControllerError> {
        let batch = self.pipeline.commit();
        // Nothing of a controller that leads no more may leave, not even what it has read.
        if batch.is_some() && self.leadership.as_ref().is_some_and(|leadership| !leadership.counts()) {
            return Err(ControllerError::Deposed(Why::Expired));
        }
        if batch.is_some() {
            std::mem::swap(&mut self.unanswered, &mut self.submitted);
        }
        match batch {
            None => Ok(None),
            Some(Commit::Release(release)) => {
                self.release(release);
                Ok(None)
            }
            Some(Commit::Fenced(newer)) => {
                if let Some(log) = &mut self.log {
                    log.fence();
                }
                // The epoch that began with this run was not announced to any node.
                let state = self.pipeline.machine().state();
                Err(ControllerError::Older { newer, ours: state.epoch.0.saturating_sub(1), last: state.last_id })
            }
            Some(Commit::Append(work)) => {
                self.files.remember(&work.blobs);
                Ok(self.log.take().map(|log| Flushing { work: append(log, work) }))
            }
        }
    }

    /// Releases a batch that is durable. If the disk was full, waits until there is room for it.
    async fn finish(&mut self, mut flushed: Flushed) -> Result<(), ControllerError> {
        let mut said = false;
        loop {
            let (mut log, work, done) = flushed;
            match done {
                Ok(appended) => {
                    self.meter.flushed(&work.records, appended);
                    self.log = Some(log);
                    self.room.stuck(None);
                    if let Some(release) = self.pipeline.flushed() {
                        self.release(release);
                    }
                    return Ok(());
                }
                Err(e @ LogError::NoRoom(_)) => {
                    if !said {
                        error!(error = %e, "the journal is out of room: nothing is decided until there is some");
                        log.take_snapshot();
                    }
                    said = true;
                    self.room.stuck(Some(e.to_string()));
                    tokio::time::sleep(DISK_POLL).await;
                    flushed = append(log, work).await.map_err(lost)?;
                }
                Err(LogError::Fenced) if let Some(leadership) = &mut self.leadership => {
                    return Err(ControllerError::Deposed(leadership.over().await));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Flushes and releases the open batch.
    async fn complete(&mut self) -> Result<(), ControllerError> {
        if let Some(mut flushing) = self.commit()? {
            let flushed = flushing.wait().await?;
            self.finish(flushed).await?;
        }
        Ok(())
    }

    /// Signs frames for nodes, and sends them.
    fn send(&mut self, mut sends: Vec<(LinkId, DownFrame)>) {
        let child = |link: LinkId| self.peers.get(&link.0).and_then(|peer| peer.name.as_deref());
        let state = self.pipeline.machine().state();
        let named = |node| state.node(node).map_or_else(String::new, |node| node.name.clone());
        self.sealer.heed(state.cluster_version);
        self.sealer.seal(&mut self.files, &mut sends, child, named);
        for (link, frame) in sends {
            let Some(peer) = self.peers.get(&link.0) else { continue };
            let pushed = HostFiles::frames(frame).iter().try_for_each(|f| peer.out.push(f));
            if let Err(e) = pushed {
                error!(error = %e, "a frame for a node can't be sent: its connection is closed");
                peer.out.close();
            }
        }
    }

    /// Sends the frames and answers of a durable batch.
    fn release(&mut self, release: Release<Later>) {
        let Release { records, sends, drops, casts, answers, programs, power, gone, later, exit } = release;
        self.programs.start_all(programs, power, &self.pipeline.machine().state().config.cluster);
        self.files.revoke(gone);
        self.done |= exit;
        if let Some(records) = &records {
            changes::log(self.pipeline.machine().state(), records);
        }
        self.send(sends);
        self.sealer.follow(records.iter().flat_map(|all| all.iter()));
        for link in drops {
            if let Some(peer) = self.peers.get(&link.0) {
                peer.out.close();
            }
        }
        for cast in casts {
            if let Some(multicast) = &self.multicast {
                multicast.say(cast);
            }
        }
        for (caller, answer) in answers {
            self.answer(caller.0, answer);
        }
        let answered = Instant::now();
        self.unanswered.drain(..).for_each(|arrived| self.meter.acknowledged(answered - arrived));
        // Accounting follows the answers of the batch, and precedes queries about its records.
        if let Some(records) = records {
            self.accounts.feed(records);
        }
        for deed in later {
            deed(self);
        }
    }

    /// Sends an answer to a client.
    pub(super) fn answer(&mut self, id: u64, mut answer: Answer) {
        if let Answer::Diag(diag) = &mut answer {
            let children = self.peers.values().filter(|p| p.node).count();
            self.meter.fill(diag, self.now, (self.peers.len() - children) as u64);
        }
        self.room.explain(&mut answer);
        if let Answer::Pong { records, .. } = &mut answer {
            *records = self.accounts.lag();
        }
        answer.on_clock_ahead(self.clock.ahead_us());
        let start = matches!(answer, Answer::Followed(_)).then(Instant::now);
        if let Some(peer) = self.peers.get(&id)
            && let Err(e) = peer.out.push(&answer)
        {
            error!(error = %e, "an answer can't be sent: its connection is closed");
            peer.out.close();
        }
        if let Some(start) = start {
            self.feed_at += start.elapsed() * FEED_SHARE;
        }
    }

    /// Waits until the last answers are sent, but at most for `FAREWELL`.
    async fn farewell(&mut self) {
        let drained = async {
            while !self.peers.values().all(|p| p.out.is_drained()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // A client that has not read its answer by now has to send its request again.
        drop(tokio::time::timeout(FAREWELL, drained).await);
    }
}

/// Checks that a request may come from where it does: `via` the machine that vouches for the user, if it is another one.
fn admit(machine: &Controller, who: &Who, via: Option<&Via>, origin: Origin) -> Result<(), Refusal> {
    let by_node = via.filter(|via| !via.login);
    match origin {
        Origin::NotByNode if by_node.is_some() => return Err(Refusal::AccessDenied),
        Origin::Controllers if via.is_some_and(|via| !via.controller) => {
            let why = "a backup has the cluster's secret keys: make it on the controller's machine";
            return Err(Refusal::NotSupported(why.to_owned()));
        }
        Origin::OtherController if via.is_none_or(|via| !via.controller) => return Err(Refusal::AccessDenied),
        _ => {}
    }
    if let Some(node) = by_node.filter(|node| !machine.has_user_on(&node.host, who.owner.uid)) {
        return Err(Refusal::NotFrom(node.host.to_string(), HostProblem::NoJob));
    }
    match (origin, machine.vouching(who)) {
        (Origin::NotByNode, Some(_)) => Err(Refusal::AccessDenied),
        (Origin::NotForNode, Some(node)) => Err(Refusal::NotFrom(node.to_owned(), HostProblem::Token)),
        _ => Ok(()),
    }
}

/// Waits until the leadership of one of several controllers is over; with None it waits forever.
async fn over(leadership: &mut Option<Leadership>) -> Why {
    match leadership {
        None => std::future::pending().await,
        Some(leadership) => leadership.over().await,
    }
}
