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
use tokio::sync::mpsc;

use super::ControllerError;
use super::connection::{Arrival, Kind};
use super::desk::Desk;
use super::meter::{self, Meter};
use crate::accounts::Accounts;
use crate::journal::{Journal, JournalError};
use crate::link::Outgoing;
use crate::logging::say;
use crate::multicast::Mouth;
use crate::place::Place;
use crate::sys::clock;

/// Inputs of one turn.
const INPUTS_MAX: usize = 4096;
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
    accounts: Accounts,
    desk: Desk,
    meter: Meter,
    peers: HashMap<u64, Peer>,
    mouth: Option<Mouth>,
    now: Time,
    full: bool,
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
    /// Requests to answer after the flush, without the machine.
    after: Vec<(u64, Who, Box<Request>)>,
}

impl Daemon {
    pub(super) fn new(
        machine: Controller,
        journal: Journal,
        accounts: Accounts,
        place: Place,
        mouth: Option<Mouth>,
    ) -> Self {
        let desk = Desk::new(place, journal.blobs());
        let now = clock::now();
        let (peers, meter) = (HashMap::new(), Meter::new(now));
        Self { machine, journal: Some(journal), accounts, desk, meter, peers, mouth, now, full: false }
    }

    /// Lets the machine begin its new life, durably.
    pub(super) async fn start(&mut self, input: Input) -> Result<(), ControllerError> {
        let mut turn = Turn::default();
        self.begin(&mut turn);
        self.step(&mut turn, input);
        if let Some(mouth) = &self.mouth {
            let secret = mouth.secret;
            self.step(&mut turn, Input::Multicast { secret });
        }
        self.settle(&mut turn);
        self.commit(&mut turn).await?;
        self.release(turn);
        Ok(())
    }

    /// Turns until the machine says that it is done or a signal comes.
    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Arrival>,
        mut terminate: Signal,
        mut interrupt: Signal,
    ) -> Result<(), ControllerError> {
        loop {
            let first = tokio::select! {
                biased;
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                arrival = inbox.recv() => arrival,
                () = tokio::time::sleep(self.patience()) => None,
            };
            let mut turn = Turn::default();
            self.begin(&mut turn);
            let mut next = first;
            while let Some(arrival) = next {
                self.take(&mut turn, arrival);
                let more = turn.inputs < INPUTS_MAX && turn.blob_bytes < BLOB_BYTES_MAX;
                next = if more { inbox.try_recv().ok() } else { None };
            }
            if self.machine.deadline().is_some_and(|d| d <= self.now) {
                self.step(&mut turn, Input::Tick);
            }
            self.settle(&mut turn);
            self.commit(&mut turn).await?;
            let exit = turn.out.exit;
            self.release(turn);
            if exit {
                break;
            }
            // Connections run on this thread too: let them hand in and carry out.
            tokio::task::yield_now().await;
        }
        self.farewell().await;
        Ok(())
    }

    /// How long nothing needs doing.
    fn patience(&self) -> Duration {
        let poll = if self.full { DISK_POLL } else { Duration::from_mins(1) };
        let until = self.machine.deadline().map_or(poll, |d| Duration::from_micros(d.since(clock::now()).0));
        // A timer that stays due must not keep the others from being heard.
        until.clamp(Duration::from_millis(1), poll)
    }

    fn begin(&mut self, turn: &mut Turn) {
        self.now = self.now.max(clock::now());
        let trouble = self.journal.as_ref().and_then(Journal::trouble);
        if trouble.is_some() != self.full {
            self.full = trouble.is_some();
            match trouble {
                Some(why) => {
                    say(&format!("no room for the journal ({why}): submissions are refused, running jobs go on"));
                }
                None => say("there is room for the journal again"),
            }
            self.step(turn, Input::Disk { full: self.full });
        }
    }

    fn take(&mut self, turn: &mut Turn, arrival: Arrival) {
        turn.inputs += 1;
        match arrival {
            Arrival::Opened { id, kind, out } => {
                self.peers.insert(id, Peer { out, node: kind != Kind::Client });
                if let Kind::Node(name) = kind {
                    self.step(turn, Input::Opened { link: LinkId(id), name });
                }
            }
            Arrival::Closed { id } => {
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
            Arrival::Asked { id, who, via, request } => {
                let (kind, uid) = (meter::request_kind(&request), who.owner.uid);
                let start = Instant::now();
                if via.is_some_and(|node| !self.machine.has_user_on(&node, uid)) {
                    turn.out.answers.push((CallerId(id), Answer::Refused(Refusal::AccessDenied)));
                } else {
                    self.ask(turn, id, who, request);
                }
                self.meter.message(kind, Some(uid), start.elapsed());
            }
        }
    }

    fn ask(&mut self, turn: &mut Turn, id: u64, who: Who, mut request: Box<Request>) {
        let caller = CallerId(id);
        match &mut *request {
            Request::Accounting(_) | Request::Script { .. } => {
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
        let Some(journal) = &self.journal else { return false };
        let need =
            (turn.blob_bytes + bytes) as u64 + (turn.inputs as u64 + 1) * SUBMISSION_BYTES.min(journal.reserve() / 4);
        need + journal.reserve() <= journal.room() || (!self.full && self.desk.free_bytes() / 4 > need)
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

    /// Makes durable what the turn decided. Returns when it is.
    async fn commit(&mut self, turn: &mut Turn) -> Result<(), ControllerError> {
        if turn.out.events.is_empty() {
            return Ok(());
        }
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        let mut records = Arc::new(turn.records(journal.next_seq(), self.now));
        let mut blobs = std::mem::take(&mut turn.out.blobs);
        self.desk.remember(&blobs);
        let mut said = false;
        loop {
            let done;
            (journal, records, blobs, done) = flush(journal, records, blobs).await?;
            match done {
                Ok(appended) => {
                    self.meter.flushed(&records, appended);
                    break;
                }
                Err(e) if e.is_no_space() => {
                    if !said {
                        say(&format!("the journal is out of room, nothing is decided until there is some: {e}"));
                        journal.follower().snapshot();
                    }
                    said = true;
                    tokio::time::sleep(DISK_POLL).await;
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.journal = Some(journal);
        self.accounts.feed(records);
        Ok(())
    }

    /// Lets out what a durable turn justifies.
    fn release(&mut self, turn: Turn) {
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
        for (id, who, request) in turn.after {
            match *request {
                Request::Accounting(query) => {
                    if let Some(peer) = self.peers.get(&id) {
                        self.accounts.ask(*query, peer.out.clone());
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
            self.meter.fill(diag, clock::now(), (self.peers.len() - children) as u64);
        }
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

/// Appends on another thread, so that connections go on meanwhile.
async fn flush(mut journal: Journal, records: Arc<Vec<Record>>, blobs: Vec<Blob>) -> Result<Flushed, ControllerError> {
    let work = move || {
        let done = journal.append(&records, &blobs);
        (journal, records, blobs, done)
    };
    let lost = |e: tokio::task::JoinError| JournalError::Io {
        doing: "write to",
        path: "the journal".into(),
        error: std::io::Error::other(e),
    };
    Ok(tokio::task::spawn_blocking(work).await.map_err(lost)?)
}

impl Turn {
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
