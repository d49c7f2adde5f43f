//! The process of one of several controllers: it follows, takes over, appends, and ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::commit::{Append, Release};
use squall_engine::control::state::State;
use squall_engine::machine::Machine;
use squall_engine::replica::{Act, Input, Replica, Settings, Why};
use squall_model::replica::Leader;
use squall_model::time::{Span, Time};
use squall_store::Log;
use squall_store::entry::Entry;

use super::{Batch, PREFIX, Peer};
use crate::coverage::Fault;
use crate::judge::Violation;
use crate::mutation::Mutation;
use crate::trace::Origin;
use crate::world::controller::{ControllerHost, CrashPoint};
use crate::world::{Happening, World};

/// Functions that run a controller's side of the log.
impl World {
    /// Returns the controller that has taken over last.
    pub(crate) fn leader(&self) -> usize {
        self.etcd.as_ref().map_or(0, |etcd| etcd.leader)
    }

    /// Begins to follow the log in etcd, with the state that the journal gives.
    pub(crate) fn follow(&mut self, of: usize, state: State) {
        let (run, new_log) = (self.seed.next(), self.seed.next());
        let (base, last) = (&self.controllers[of].base, self.controllers[of].seq);
        let settings = Settings {
            prefix: PREFIX.into(),
            name: format!("c{of}"),
            address: format!("c{of}:6817"),
            release: "sim".into(),
            speaks: base.speaks,
            run,
            started: self.now,
            journal: base.journal,
            log: base.log,
            new_log,
            last,
            rank: of as u32,
            controllers: self.controllers.len(),
            accept_loss: false,
            lease_s: 2,
            quota: self.etcd.as_ref().map_or(0, |etcd| etcd.quota),
        };
        let replica = Replica::new(settings, base.shows(self.now));
        self.say(Origin::Controller, "follows", of as u32, last);
        self.controllers[of].peer = Some(Box::new(Peer {
            replica,
            state: Some(state),
            open: BTreeMap::new(),
            tick_at: None,
            batch: None,
            term: 0,
            leader: None,
            full: false,
            renewed: Time(0),
            flush_due: false,
            resigns: false,
        }));
        self.tell_replica(of, Input::Tick);
    }

    /// Gives an input to a controller's side of the log, and does what that wants.
    pub(super) fn tell_replica(&mut self, of: usize, input: Input) {
        let host = &mut self.controllers[of];
        let (now, life) = (host.base.shows(self.now), host.life);
        let Some(peer) = &mut host.peer else { return };
        let mut acts = Vec::new();
        peer.replica.step(now, input, &mut acts);
        for act in acts {
            self.act(of, act);
            if self.controllers[of].life != life {
                return;
            }
        }
        self.check_words(of);
        let host = &mut self.controllers[of];
        let Some(peer) = &mut host.peer else { return };
        let Some(due) = peer.replica.deadline() else { return };
        let at = host.base.when(due).max(self.now + Span(1));
        if peer.tick_at.is_none_or(|planned| at < planned) {
            peer.tick_at = Some(at);
            self.agenda.at(at, Happening::PeerTick { of, life });
        }
    }

    pub(crate) fn peer_tick(&mut self, of: usize, life: u64) {
        let host = &mut self.controllers[of];
        let Some(peer) = host.peer.as_mut().filter(|_| host.life == life) else { return };
        if peer.tick_at.is_some_and(|at| at <= self.now) {
            peer.tick_at = None;
            self.tell_replica(of, Input::Tick);
        }
    }

    fn act(&mut self, of: usize, act: Act) {
        match act {
            Act::Ask { lane, ask } => self.ask_etcd(of, lane, ask),
            Act::Adopt { log } => self.controllers[of].base.log = Some(log),
            Act::Apply { first, last, bytes } => self.apply(of, first, last, &bytes),
            Act::Lead { .. } => self.take_over(of),
            Act::Appended(Ok(())) => self.appended(of),
            Act::Appended(Err(_)) => self.no_room(of),
            Act::Leader(leader) => {
                let leader = leader.and_then(|(leader, _): (Leader, u64)| leader.name.strip_prefix("c")?.parse().ok());
                if let Some(peer) = &mut self.controllers[of].peer {
                    peer.leader = leader;
                }
            }
            Act::Full(full) => {
                if let Some(peer) = &mut self.controllers[of].peer {
                    peer.full = full;
                }
            }
            Act::Behind { first } => self.fetch_copy_later(of, first),
            Act::Ended(why) => self.ended(of, &why),
            Act::Members(_) | Act::Trust(_) | Act::Shared { .. } | Act::Trouble(_) => {}
        }
    }

    /// Applies a batch that the leader has appended.
    fn apply(&mut self, of: usize, first: u64, last: u64, bytes: &[u8]) {
        self.judge.check_entry(of, first, last, bytes);
        let mut entry = match Entry::decode(bytes) {
            Ok(entry) => entry,
            Err(error) => return self.judge.violate("an entry of the log can be read", format!("{first}: {error}")),
        };
        let records = Arc::new(entry.records.clone());
        if self.is_stopped_by(of, &mut entry.records) {
            return;
        }
        let twice = self.mutates(Mutation::EntryAppliedTwice, 20);
        if let Some(state) = self.controllers[of].peer.as_mut().and_then(|peer| peer.state.as_mut()) {
            for record in entry.records.iter().chain(entry.records.iter().filter(|_| twice)) {
                state.apply_record(record);
            }
        }
        self.copy(of, &Append { records, blobs: entry.blobs });
    }

    /// Writes a batch that etcd has to the controller's journal. It is flushed later.
    fn copy(&mut self, of: usize, work: &Append) {
        if let Err(error) = self.controllers[of].log.append(work) {
            self.judge.violate("the journal takes every record", error.to_string());
        }
        self.note_appended(of, &work.records);
        if self.is_planted(Mutation::DurableUntrue) {
            let seq = self.controllers[of].seq;
            self.tell_replica(of, Input::Durable { seq });
        }
        let (low, high) = self.controllers[of].flush_span;
        let life = self.controllers[of].life;
        if let Some(peer) = self.controllers[of].peer.as_mut().filter(|peer| !peer.flush_due) {
            peer.flush_due = true;
            // Nobody waits for it: several batches are flushed together.
            let span = Span(self.seed.span(low, high).0 * 10);
            self.after(span, Happening::Flushed { of, life });
        }
    }

    /// Handles the end of a flush of the journal.
    pub(crate) fn copy_flushed(&mut self, of: usize) {
        let seq = self.controllers[of].seq;
        self.controllers[of].base.durable = seq;
        if let Some(peer) = &mut self.controllers[of].peer {
            peer.flush_due = false;
        }
        self.tell_replica(of, Input::Durable { seq });
    }

    /// Leads from now on.
    fn take_over(&mut self, of: usize) {
        self.strike(Fault::TakenOver, of as u64);
        self.disturb(Span(0));
        let last = self.controllers[of].seq;
        let term = self.judge.leads(self.now, (of, self.controllers[of].base.speaks), last);
        if let Some(etcd) = &mut self.etcd {
            etcd.leader = of;
        }
        let Some(peer) = &mut self.controllers[of].peer else { return };
        peer.term = term;
        peer.leader = Some(of);
        let Some(state) = peer.state.take() else { return };
        self.serve(of, state);
    }

    /// Appends a batch to the log in etcd.
    pub(crate) fn append_to_etcd(&mut self, of: usize, work: Append) {
        let (Some(first), Some(last)) = (work.records.first(), work.records.last()) else { return };
        let (first, last) = (first.seq, last.seq);
        let bytes = Arc::new(Entry::of(&work).encode());
        let Some(peer) = &mut self.controllers[of].peer else { return };
        if peer.resigns && self.setup.mutation == Some(Mutation::HandedOverEarly) {
            return self.release_flushed(of);
        }
        peer.batch = Some(Batch { work, bytes: bytes.clone() });
        let life = self.controllers[of].life;
        self.tell_replica(of, Input::Append { first, last, bytes });
        if self.controllers[of].life != life {
            return;
        }
        if self.is_crash_due(of, CrashPoint::BeforeFlush) {
            self.crash_controller(of, CrashPoint::BeforeFlush);
        }
    }

    /// Handles that etcd has the batch.
    fn appended(&mut self, of: usize) {
        let Some(peer) = &mut self.controllers[of].peer else { return };
        peer.full = false;
        let Some(Batch { work, bytes }) = peer.batch.take() else { return };
        if let (Some(first), Some(last)) = (work.records.first(), work.records.last()) {
            self.judge.check_entry(of, first.seq, last.seq, &bytes);
        }
        self.judge.raised(&work.records);
        self.copy(of, &work);
        self.committed(of);
    }

    /// Handles that etcd has no room for the batch, which is then tried again.
    fn no_room(&mut self, of: usize) {
        self.strike(Fault::AppendRefused, of as u64);
        self.decide_anew(of);
        let life = self.controllers[of].life;
        if let Some(peer) = &mut self.controllers[of].peer {
            peer.full = true;
        }
        let again = self.seed.span(Span::from_millis(100), Span::from_millis(1000));
        self.after(again, Happening::AppendRetries { of, life });
    }

    pub(crate) fn append_retries(&mut self, of: usize, life: u64) {
        let host = &mut self.controllers[of];
        let Some(peer) = host.peer.as_mut().filter(|_| host.life == life) else { return };
        if let Some(batch) = peer.batch.take() {
            self.append_to_etcd(of, batch.work);
        }
    }

    /// Tells a leader to resign, unless it is within a batch.
    pub(crate) fn resign(&mut self, of: usize, to: Option<usize>) {
        let busy = self.controllers[of].pipeline.as_ref().is_none_or(|p| p.is_open() || p.is_flushing());
        let early = self.is_planted(Mutation::HandedOverEarly);
        let Some(peer) = self.controllers[of].peer.as_mut().filter(|_| !busy || early) else { return };
        peer.resigns = true;
        self.strike(Fault::ResignAsked, of as u64);
        if !busy {
            self.tell_replica(of, Input::Resign { to: to.map(|to| format!("c{to}")) });
        }
    }

    /// Returns whether a controller may decide and answer now. One whose lease is over ends here.
    pub(crate) fn may_speak(&mut self, of: usize) -> bool {
        if self.etcd.is_none() || self.is_planted(Mutation::LeaseOutlived) {
            return true;
        }
        let host = &self.controllers[of];
        let Some(peer) = &host.peer else { return false };
        let until = peer.replica.leads_until();
        if until.is_some_and(|until| host.base.shows(self.now) < until) {
            return true;
        }
        if until.is_some() {
            self.tell_replica(of, Input::Tick);
        }
        self.is_planted(Mutation::HandedOverEarly) || self.is_planted(Mutation::ReleaseAfterEnd)
    }

    /// Handles the end of a controller's run.
    fn ended(&mut self, of: usize, why: &Why) {
        let fault = match why {
            Why::Deposed { .. } => Fault::Deposed,
            Why::Expired => Fault::LeaseExpired,
            Why::Resigned { .. } => Fault::SteppedDown,
            why => {
                let text = format!("controller {of}: {why}");
                return self.judge.violate("a controller goes on while etcd has its log", text);
            }
        };
        if fault == Fault::LeaseExpired && self.is_planted(Mutation::LeaseOutlived) {
            return;
        }
        if self.is_planted(Mutation::ReleaseAfterEnd) {
            self.release_flushed(of);
        }
        self.crash_controller(of, CrashPoint::Anew(fault));
        if self.is_planted(Mutation::ReleaseAfterEnd) {
            self.controllers[of].forget_crash();
        }
    }

    /// A copy of a journal that goes on where etcd begins takes some time.
    fn fetch_copy_later(&mut self, of: usize, first: u64) {
        let span = self.seed.span(Span::from_millis(5), Span::from_millis(500));
        let life = self.controllers[of].life;
        self.after(span, Happening::CopyComes { of, life, first });
    }

    /// Takes a copy of the leader's journal in place of the own one, and starts again.
    pub(crate) fn copy_comes(&mut self, of: usize, life: u64, first: u64) {
        if self.controllers[of].life != life {
            return;
        }
        let from = self.leader();
        let holds = |host: &ControllerHost| host.base.durable + 1 >= first;
        if !self.controllers.iter().any(holds) {
            return self.judge.violate("no record is lost", format!("nobody has record {}", first - 1));
        }
        let source = &self.controllers[from];
        if from == of || !source.serves() || !holds(source) || !self.controllers_reach(from, of) {
            return self.fetch_copy_later(of, first);
        }
        let (log, number) = (source.log.backup(), source.base.log);
        let last = log.next_seq() - 1;
        self.controllers[of].change_log(log);
        let base = &mut self.controllers[of].base;
        (base.log, base.durable) = (number, last);
        self.controllers[of].seq = last;
        self.crash_controller(of, CrashPoint::Anew(Fault::CopyFetched));
        // What the process knew is not what the new journal holds.
        self.controllers[of].forget_crash();
    }

    /// Checks that the word of at most one controller counts.
    fn check_words(&mut self, of: usize) {
        let counts = |host: &ControllerHost| {
            let until = host.peer.as_ref().and_then(|peer| peer.replica.leads_until());
            until.is_some_and(|until| host.base.shows(self.now) < until)
        };
        if !counts(&self.controllers[of]) {
            return;
        }
        let other = (0..self.controllers.len()).find(|other| *other != of && counts(&self.controllers[*other]));
        if let Some(other) = other {
            self.judge
                .violate("at most one controller's word counts", format!("controller {of} and controller {other}"));
        }
    }

    /// Waits until every controller has the whole log, which one of them leads; checks that this comes soon.
    pub(crate) fn check_followed(&mut self) -> Result<(), Box<Violation>> {
        for _ in 0..100 {
            let last = self.judge.last_record();
            let leads = self.controllers.iter().filter(|host| host.serves()).count();
            if self.etcd.is_none()
                || (leads == 1 && self.controllers.iter().all(|host| host.runs() && host.seq == last))
            {
                return Ok(());
            }
            self.run_until(self.now + Span::from_millis(100))?;
        }
        let ends: Vec<u64> = self.controllers.iter().map(|host| host.seq).collect();
        let text = format!("{ends:?} of {} records", self.judge.last_record());
        self.judge.violate("in the end all controllers have the whole log, and one leads", text);
        self.judge.check_over()
    }

    /// Notes that a controller says something.
    pub(crate) fn judge_word(&mut self, of: usize, release: &Release<()>) {
        let silent = release.sends.is_empty() && release.answers.is_empty();
        if let Some(peer) = self.controllers[of].peer.as_ref().filter(|_| !silent) {
            self.judge.speaks(of, peer.term);
        }
    }
}
