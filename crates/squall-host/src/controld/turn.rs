//! The controller's loop: take, settle, journal, flush, release.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_engine::control::{CallerId, Controller, Input, LinkId, Out, Who};
use squall_engine::machine::Machine;
use squall_model::event::Record;
use squall_model::job::Blob;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal, Request};
use tokio::signal::unix::Signal;
use tokio::task::{JoinError, JoinHandle};

use super::ControllerError;
use super::clock::Clock;
use super::connection::{Arrival, Inbox, Kind};
use super::desk::Desk;
use super::fair::Fair;
use super::meter::{self, Meter};
use crate::accounts::Accounts;
use crate::journal::{Journal, JournalError};
use crate::link::{self, Outgoing};
use crate::logging::say;
use crate::multicast::Mouth;
use crate::place::Place;

/// Inputs of one turn.
const INPUTS_MAX: usize = 4096;
/// Inputs that may wait to be taken.
const WAITING_MAX: usize = 32 << 10;
/// After deciding requests for this long a turn ends: what it has is flushed, and whoever came meanwhile is heard.
const TURN_TIME: Duration = Duration::from_millis(50);
/// How often it is looked whether a slow reader has taken a page of its list.
const READER_POLL: Duration = Duration::from_millis(5);
/// How often memory is looked after.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Inputs that are worth a turn of their own while another one is flushed: each has its price.
const AHEAD_MIN: usize = 64;
/// While there is other work, a page of a list is made after so many times what the last one took.
const LIST_SHARE: u32 = 8;
/// Bytes of scripts and environments after which a turn ends.
const BLOB_BYTES_MAX: usize = 8 << 20;
/// Events of one record; a turn with more makes several.
const EVENTS_MAX: usize = 16 << 10;
/// How often to look whether a full disk has room again.
const DISK_POLL: Duration = Duration::from_millis(100);
/// How long answers may take to leave at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// What a submission's events take in the journal at most, beside script and environment: a guess on the safe side.
const SUBMISSION_BYTES: u64 = 16 << 10;

/// The controller with all that it needs of the world.
pub(super) struct Daemon {
    machine: Controller,
    /// Out of the house only while a flush runs.
    journal: Option<Journal>,
    /// What was true of it when it was at home last.
    disk: Disk,
    accounts: Accounts,
    desk: Desk,
    meter: Meter,
    peers: HashMap<u64, Peer>,
    /// What has arrived and is to be taken.
    waiting: Fair<Arrival>,
    mouth: Option<Mouth>,
    clock: Clock,
    now: Time,
    /// When memory is looked after again.
    trim_at: Instant,
    /// When lists may go on, though others wait.
    list_at: Instant,
    full: bool,
    /// It may end.
    done: bool,
}

/// What a journal says of its room.
struct Disk {
    /// Bytes that can be appended.
    room: u64,
    /// How many of them only what must be written should take.
    reserve: u64,
    /// Why there can't be more.
    trouble: Option<String>,
}

impl Disk {
    fn of(journal: &Journal) -> Self {
        Self { room: journal.room(), reserve: journal.reserve(), trouble: journal.trouble() }
    }
}

struct Peer {
    out: Outgoing,
    node: bool,
}

/// What one turn has decided and not yet released.
#[derive(Default)]
struct Turn {
    out: Out,
    /// Where records end within `out.events`.
    cuts: Vec<usize>,
    inputs: usize,
    blob_bytes: usize,
    /// What deciding requests took.
    took: Duration,
    /// Requests to answer after the flush, without the machine.
    after: Vec<(u64, Who, Box<Request>)>,
}

impl Daemon {
    pub(super) fn new(
        machine: Controller,
        journal: Journal,
        accounts: Accounts,
        place: Place,
        (mouth, clock): (Option<Mouth>, Clock),
    ) -> Self {
        let desk = Desk::new(place, journal.blobs());
        let now = clock.now();
        let (peers, meter) = (HashMap::new(), Meter::new(now));
        let disk = Disk::of(&journal);
        Self {
            machine,
            journal: Some(journal),
            disk,
            accounts,
            desk,
            meter,
            peers,
            waiting: Fair::default(),
            mouth,
            clock,
            now,
            trim_at: Instant::now() + TRIM_EVERY,
            list_at: Instant::now(),
            full: false,
            done: false,
        }
    }

    /// Lets the machine begin its new life, durably.
    pub(super) async fn start(&mut self, input: Input) -> Result<(), ControllerError> {
        let mut turn = self.begin();
        self.step(&mut turn, input);
        self.look_at_clock(&mut turn);
        if let Some(mouth) = &self.mouth {
            let secret = mouth.secret;
            self.step(&mut turn, Input::Multicast { secret });
        }
        self.settle(&mut turn);
        self.complete(turn).await
    }

    /// Turns until the machine says that it is done or a signal comes. While one turn is flushed the next one is
    /// decided if much waits; nothing that it says leaves before it is durable, too.
    pub(super) async fn run(
        mut self,
        mut inbox: Inbox,
        mut terminate: Signal,
        mut interrupt: Signal,
    ) -> Result<(), ControllerError> {
        let (mut flushing, mut decided) = (None::<Flushing>, None::<Turn>);
        let (mut of_nodes, mut of_users) = (Vec::new(), Vec::new());
        while !self.done {
            let room = WAITING_MAX.saturating_sub(self.waiting.len()).min(INPUTS_MAX);
            let timer = tokio::select! {
                biased;
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                flushed = flushed(&mut flushing) => {
                    self.finish(flushed?).await?;
                    flushing = decided.take().and_then(|turn| self.flush(turn));
                    false
                }
                _ = inbox.nodes.recv_many(&mut of_nodes, INPUTS_MAX) => false,
                _ = inbox.users.recv_many(&mut of_users, room), if room > 0 => false,
                () = std::future::ready(()), if flushing.is_none() && self.has_work() => true,
                () = tokio::time::sleep(self.patience()), if flushing.is_none() => true,
            };
            // Whatever woke it, all that has arrived is for the same turn.
            of_nodes.extend(std::iter::from_fn(|| inbox.nodes.try_recv().ok()).take(INPUTS_MAX));
            of_users.extend(std::iter::from_fn(|| inbox.users.try_recv().ok()).take(room - of_users.len()));
            self.sort_in(of_nodes.drain(..).chain(of_users.drain(..)));
            let enough = match &flushing {
                None => timer || self.waiting.len() > 0,
                Some(_) => self.waiting.len() >= AHEAD_MIN && decided.as_ref().is_none_or(Turn::has_room),
            };
            if !enough {
                continue;
            }
            let mut turn = match decided.take() {
                Some(turn) => turn,
                None => self.begin(),
            };
            self.look_at_clock(&mut turn);
            while turn.has_room()
                && let Some((of, arrival)) = self.waiting.pop()
            {
                let took = self.take(&mut turn, arrival);
                if let Some(uid) = of {
                    self.waiting.charge(uid, took);
                }
            }
            if self.machine.deadline().is_some_and(|d| d <= self.now) {
                self.step(&mut turn, Input::Tick);
            }
            self.list(&mut turn, timer && self.waiting.len() == 0);
            self.settle(&mut turn);
            if let Some(newer) = turn.out.newer.take() {
                // The epoch that began with this life is none that a node has heard.
                let state = self.machine.state();
                return Err(ControllerError::Older { newer, ours: state.epoch.0 - 1, last: state.last_id });
            }
            match &flushing {
                None => flushing = self.flush(turn),
                Some(_) => decided = Some(turn),
            }
            self.look_after_memory();
            // Connections run on this thread too: let them hand in and carry out.
            tokio::task::yield_now().await;
        }
        if let Some(flushing) = &mut flushing {
            let flushed = flushing.wait().await?;
            self.finish(flushed).await?;
        }
        if let Some(turn) = decided {
            self.complete(turn).await?;
        }
        self.farewell().await;
        self.close();
        Ok(())
    }

    /// Closes the journal and accounting. What is known of jobs is left to the kernel, which takes back all of a process's
    /// memory at once: a million of them, one by one, take a second.
    fn close(self) {
        let Self { machine, journal, accounts, .. } = self;
        std::mem::forget(machine);
        drop((journal, accounts));
    }

    /// Lets what has arrived wait in its order.
    fn sort_in(&mut self, arrived: impl Iterator<Item = Arrival>) {
        for arrival in arrived {
            match arrival.user() {
                Some(uid) => self.waiting.push(uid, arrival.connection(), arrival),
                None => self.waiting.push_first(arrival),
            }
        }
    }

    /// Whether something waits that can be gone on with.
    fn has_work(&mut self) -> bool {
        self.waiting.len() > 0 || self.next_list()
    }

    /// Has the next page be of a list whose reader has taken what it was told. False: there is none.
    fn next_list(&mut self) -> bool {
        let peers = &self.peers;
        self.machine.turn_lists(|caller| peers.get(&caller.0).is_none_or(|peer| peer.out.has_room()))
    }

    fn look_after_memory(&mut self) {
        if Instant::now() >= self.trim_at {
            link::give_back();
            self.trim_at = Instant::now() + TRIM_EVERY;
        }
    }

    /// How long nothing needs doing.
    fn patience(&self) -> Duration {
        let poll = match () {
            () if self.machine.lists() => READER_POLL,
            () if self.full => DISK_POLL,
            () if link::has_to_give() => TRIM_EVERY,
            () => Duration::from_mins(1),
        };
        let until = self.machine.deadline().map_or(poll, |d| Duration::from_micros(d.since(self.clock.now()).0));
        // A timer that stays due must not keep the others from being heard.
        until.clamp(Duration::from_millis(1), poll)
    }

    /// A turn with nothing in it but what is new of the disk.
    fn begin(&mut self) -> Turn {
        self.now = self.now.max(self.clock.now());
        let mut turn = Turn::default();
        if let Some(journal) = &self.journal {
            self.disk = Disk::of(journal);
        }
        if self.disk.trouble.is_some() != self.full {
            self.full = self.disk.trouble.is_some();
            match &self.disk.trouble {
                Some(why) => {
                    say(&format!("no room for the journal ({why}): submissions are refused, running jobs go on"));
                }
                None => say("there is room for the journal again"),
            }
            self.step(&mut turn, Input::Disk { full: self.full });
        }
        turn
    }

    /// Has the machine follow the wall clock in what people asked for by it, if it was set.
    fn look_at_clock(&mut self, turn: &mut Turn) {
        let Some(by_us) = self.clock.look() else { return };
        let seconds = by_us / 1_000_000;
        say(&format!(
            "the wall clock was set by {seconds} s: what was asked for by it follows, nothing that runs does"
        ));
        self.clock.remember();
        self.step(turn, Input::ClockSet { by_us });
    }

    /// Takes an input, and says how long a request took to decide.
    fn take(&mut self, turn: &mut Turn, arrival: Arrival) -> Duration {
        turn.inputs += 1;
        match arrival {
            Arrival::Opened { id, kind, out } => {
                self.peers.insert(id, Peer { out, node: matches!(kind, Kind::Node(_)) });
                if let Kind::Node(name) = kind {
                    self.step(turn, Input::Opened { link: LinkId(id), name });
                }
            }
            Arrival::Closed { id, .. } => {
                if let Some(peer) = self.peers.remove(&id) {
                    let lost = if peer.node {
                        Input::Lost { link: LinkId(id) }
                    } else {
                        Input::Hangup { caller: CallerId(id) }
                    };
                    self.step(turn, lost);
                }
            }
            Arrival::CastOut { stream } => self.step(turn, Input::CastOut { stream }),
            Arrival::Frame { id, frame } => {
                let kind = meter::frame_kind(&frame);
                let start = Instant::now();
                self.step(turn, Input::Frame { link: LinkId(id), frame });
                self.meter.message(kind, None, start.elapsed());
            }
            Arrival::Asked { id, who, via, request, claim } => {
                let (kind, uid) = (meter::request_kind(&request), who.owner.uid);
                let start = Instant::now();
                match via {
                    Some(node) => self.ask_by_node(turn, id, who, &node, request),
                    None => self.ask(turn, id, who, request),
                }
                let took = start.elapsed();
                self.meter.message(kind, Some(uid), took);
                turn.took += took;
                drop(claim);
                return took;
            }
        }
        Duration::ZERO
    }

    /// A request of a user for whom a node vouches: who has a job there. What such users submit is logged with the node,
    /// and they change no accounts, whatever their level.
    fn ask_by_node(&mut self, turn: &mut Turn, id: u64, who: Who, node: &str, request: Box<Request>) {
        let changes = matches!(*request, Request::ChangePolicy { .. });
        if changes || !self.machine.has_user_on(node, who.owner.uid) {
            turn.out.answers.push((CallerId(id), Answer::Refused(Refusal::AccessDenied)));
            return;
        }
        let user = format!("{} (uid {}, gid {})", who.owner.user, who.owner.uid, who.owner.gid);
        let before = turn.out.answers.len();
        self.ask(turn, id, who, request);
        for (_, answer) in &turn.out.answers[before..] {
            if let Answer::Submitted { job, .. } = answer {
                say(&format!("job {job}: submitted by {user}, for whom node {node} vouches"));
            }
        }
    }

    fn ask(&mut self, turn: &mut Turn, id: u64, who: Who, mut request: Box<Request>) {
        let caller = CallerId(id);
        request.on_clock_ahead(-self.clock.ahead_us());
        match &mut *request {
            Request::Accounting(_) | Request::History | Request::Script { .. } => {
                turn.after.push((id, who, request));
                return;
            }
            Request::Reconfigure { config } => {
                *config = None;
                if who.operator {
                    match self.desk.read_config(&self.machine.state().config.cluster) {
                        Ok(read) => *config = Some(Box::new(read)),
                        Err(refusal) => return turn.out.answers.push((caller, Answer::Refused(refusal))),
                    }
                }
            }
            Request::Diag { reset: true } if who.operator => self.meter.reset_after_answer(),
            Request::Submit { script, env, .. } if !self.has_room(turn, script.len() + env.len()) => {
                return turn.out.answers.push((caller, Answer::Refused(Refusal::DiskFull)));
            }
            Request::SubmitHet { script, env, specs, .. }
                if !self.has_room(turn, script.len() + env.len() + specs.len() * SUBMISSION_BYTES as usize) =>
            {
                return turn.out.answers.push((caller, Answer::Refused(Refusal::DiskFull)));
            }
            Request::Allocate { env, .. } if !self.has_room(turn, env.len()) => {
                return turn.out.answers.push((caller, Answer::Refused(Refusal::DiskFull)));
            }
            _ => {}
        }
        self.step(turn, Input::Ask { caller, who, request });
    }

    /// Whether a submission of that many bytes leaves the reserve for what must be written untouched.
    fn has_room(&self, turn: &Turn, bytes: usize) -> bool {
        let Disk { room, reserve, .. } = self.disk;
        let need = turn.bytes(reserve) + bytes as u64 + SUBMISSION_BYTES.min(reserve / 4);
        need + reserve <= room || (!self.full && self.desk.free_bytes() / 4 > need)
    }

    /// Goes on with a list, if nobody else waits or lists have waited long enough.
    fn list(&mut self, turn: &mut Turn, idle: bool) {
        let start = Instant::now();
        if (idle || start >= self.list_at) && self.next_list() {
            self.step(turn, Input::Page);
            let end = Instant::now();
            self.list_at = end + (end - start) * LIST_SHARE;
        }
    }

    fn step(&mut self, turn: &mut Turn, input: Input) {
        let now = self.now;
        self.run_machine(turn, |machine, out| machine.take(now, input, out));
    }

    /// Draws the consequences of all that the turn has taken.
    fn settle(&mut self, turn: &mut Turn) {
        let now = self.now;
        self.run_machine(turn, |machine, out| machine.settle(now, out));
    }

    fn run_machine(&mut self, turn: &mut Turn, run: impl FnOnce(&mut Controller, &mut Out)) {
        let passes = |machine: &Controller| (machine.diag().cycles, machine.diag().backfill.cycles);
        let before = passes(&self.machine);
        let start = Instant::now();
        let blobs = turn.out.blobs.len();
        run(&mut self.machine, &mut turn.out);
        let after = passes(&self.machine);
        if after.0 != before.0 {
            self.meter.cycle(start.elapsed(), after.1 != before.1);
        }
        turn.blob_bytes += turn.out.blobs[blobs..].iter().map(|b| b.bytes.len()).sum::<usize>();
        let last = turn.cuts.last().copied().unwrap_or(0);
        if turn.out.events.len() - last >= EVENTS_MAX {
            turn.cuts.push(turn.out.events.len());
        }
    }

    /// Has flushed what the turn decided, on another thread; what has nothing to be flushed is released at once.
    fn flush(&mut self, mut turn: Turn) -> Option<Flushing> {
        if turn.out.events.is_empty() {
            self.release(turn, None);
            return None;
        }
        let journal = self.journal.take()?;
        self.disk = Disk::of(&journal);
        // What this turn takes at most is none of the next one's.
        self.disk.room = self.disk.room.saturating_sub(turn.bytes(self.disk.reserve));
        let records = Arc::new(turn.records(journal.next_seq(), self.now));
        let blobs = std::mem::take(&mut turn.out.blobs);
        self.desk.remember(&blobs);
        Some(Flushing { turn: Some(turn), work: append(journal, records, blobs) })
    }

    /// Releases a turn that is durable; where there was no room for it, when there is.
    async fn finish(&mut self, (turn, mut flushed): (Turn, Flushed)) -> Result<(), ControllerError> {
        let mut said = false;
        loop {
            let (journal, records, blobs, done) = flushed;
            match done {
                Ok(appended) => {
                    self.meter.flushed(&records, appended);
                    self.journal = Some(journal);
                    self.release(turn, Some(records));
                    return Ok(());
                }
                Err(e) if e.is_no_space() => {
                    if !said {
                        say(&format!("the journal is out of room, nothing is decided until there is some: {e}"));
                        journal.follower().snapshot();
                    }
                    said = true;
                    tokio::time::sleep(DISK_POLL).await;
                    flushed = append(journal, records, blobs).await.map_err(lost)?;
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Flushes and releases a turn.
    async fn complete(&mut self, turn: Turn) -> Result<(), ControllerError> {
        if let Some(mut flushing) = self.flush(turn) {
            let flushed = flushing.wait().await?;
            self.finish(flushed).await?;
        }
        Ok(())
    }

    /// Lets out what a durable turn justifies. `records`: what was written of it.
    fn release(&mut self, turn: Turn, records: Option<Arc<Vec<Record>>>) {
        self.done |= turn.out.exit;
        for (link, frame) in turn.out.sends {
            let Some(peer) = self.peers.get(&link.0) else { continue };
            let pushed = self.desk.frames(frame).and_then(|frames| frames.iter().try_for_each(|f| peer.out.push(f)));
            if let Err(e) = pushed {
                say(&format!("a frame for a child can't be sent, its connection is closed: {e}"));
                peer.out.close();
            }
        }
        for link in turn.out.drops {
            if let Some(peer) = self.peers.get(&link.0) {
                peer.out.close();
            }
        }
        for cast in turn.out.casts {
            if let Some(mouth) = &self.mouth {
                mouth.say(cast);
            }
        }
        for (caller, answer) in turn.out.answers {
            self.answer(caller.0, answer);
        }
        // After those who wait for it, and before a question about it.
        if let Some(records) = records {
            self.accounts.feed(records);
        }
        for (id, who, request) in turn.after {
            match *request {
                request @ (Request::Accounting(_) | Request::History) => {
                    if let Some(peer) = self.peers.get(&id) {
                        let query = if let Request::Accounting(query) = request { Some(query) } else { None };
                        self.accounts.ask(query, self.clock.ahead_us(), peer.out.clone());
                    }
                }
                Request::Script { job } => {
                    let answer = match self.machine.script_of(&who, job) {
                        Ok(digest) => self.desk.script(&digest),
                        Err(refusal) => Answer::Refused(refusal),
                    };
                    self.answer(id, answer);
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, id: u64, mut answer: Answer) {
        if let Answer::Diag(diag) = &mut answer {
            let children = self.peers.values().filter(|p| p.node).count();
            self.meter.fill(diag, self.now, (self.peers.len() - children) as u64);
        }
        answer.on_clock_ahead(self.clock.ahead_us());
        if let Some(peer) = self.peers.get(&id)
            && let Err(e) = peer.out.push(&answer)
        {
            say(&format!("an answer can't be sent, its connection is closed: {e}"));
            peer.out.close();
        }
    }

    /// Gives the last answers time to leave.
    async fn farewell(&mut self) {
        let drained = async {
            while !self.peers.values().all(|p| p.out.is_drained()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Who doesn't take its answer now must ask again.
        drop(tokio::time::timeout(FAREWELL, drained).await);
    }
}

type Flushed = (Journal, Arc<Vec<Record>>, Vec<Blob>, Result<crate::journal::Appended, JournalError>);

/// A turn on its way to the disk.
struct Flushing {
    /// None: it is there.
    turn: Option<Turn>,
    work: JoinHandle<Flushed>,
}

impl Flushing {
    async fn wait(&mut self) -> Result<(Turn, Flushed), ControllerError> {
        let flushed = (&mut self.work).await.map_err(lost)?;
        Ok((self.turn.take().unwrap_or_default(), flushed))
    }
}

/// Waits for a flush, if one is under way, which is none any more then.
async fn flushed(flushing: &mut Option<Flushing>) -> Result<(Turn, Flushed), ControllerError> {
    match flushing {
        None => std::future::pending().await,
        Some(one) => {
            let flushed = one.wait().await;
            *flushing = None;
            flushed
        }
    }
}

/// Appends on another thread, so that this one goes on meanwhile.
fn append(mut journal: Journal, records: Arc<Vec<Record>>, blobs: Vec<Blob>) -> JoinHandle<Flushed> {
    tokio::task::spawn_blocking(move || {
        let done = journal.append(&records, &blobs);
        (journal, records, blobs, done)
    })
}

fn lost(e: JoinError) -> ControllerError {
    let error = std::io::Error::other(e);
    JournalError::Io { doing: "write to", path: "the journal".into(), error }.into()
}

impl Turn {
    /// Whether it may take more.
    fn has_room(&self) -> bool {
        self.inputs < INPUTS_MAX && self.blob_bytes < BLOB_BYTES_MAX && self.took < TURN_TIME
    }

    /// What it takes in the journal: a guess on the safe side.
    fn bytes(&self, reserve: u64) -> u64 {
        self.blob_bytes as u64 + self.inputs as u64 * SUBMISSION_BYTES.min(reserve / 4)
    }

    fn records(&mut self, first: u64, time: Time) -> Vec<Record> {
        let mut events = std::mem::take(&mut self.out.events);
        let mut cuts = std::mem::take(&mut self.cuts);
        let mut parts = Vec::new();
        while let Some(cut) = cuts.pop() {
            let part = events.split_off(cut);
            if !part.is_empty() {
                parts.push(part);
            }
        }
        parts.push(events);
        let numbered = parts.into_iter().rev().zip(first..);
        numbered.map(|(events, seq)| Record { seq, time, events }).collect()
    }
}
