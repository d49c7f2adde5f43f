//! A standby: polls the log, applies it, and campaigns when nobody leads.

use squall_model::encoding::{self, Decoded};
use squall_model::replica::{Entry, Handover, Head, Leader};
use squall_model::time::{Span, Time};

use super::etcd::{Ask, Compare, Done, Op, Pair, Problem, Reply, Txn};
use super::lead::Lead;
use super::{Act, Lane, Phase, RETRY, Replica, Settings, Why};

use crate::invariant::invariant;

/// Interval of polls of a standby that has applied the whole log.
const POLL: Span = Span::from_millis(50);
/// Most entries that one poll reads.
const ENTRIES_MAX: i64 = 16;
/// A controller waits this long for each one that precedes it in the configuration before it campaigns.
const PER_RANK: Span = Span::from_millis(50);
/// Time that a controller leaves to the one that the last leader has named.
const COURTESY: Span = Span::from_secs(1);
/// Time after which a leader of the same name is another process, and not an earlier run of this controller with another
/// journal: the lease of that run is over by then. While etcd does not answer no lease ends, so this time has to pass
/// between answers, none of which is later than [`TWIN_GAP`] after the one before.
const TWIN: Span = Span::from_secs(10);
/// Longest time between two answers of etcd within [`TWIN`].
const TWIN_GAP: Span = Span::from_secs(2);

/// The open question of a standby's log lane.
#[derive(Debug, PartialEq)]
enum Outstanding {
    Nothing,
    Poll,
    /// The pieces of an entry, with the number of its first record.
    Pieces(u64, Box<Entry>),
    Campaign,
}

/// A value that was read, with the revision of its last change.
type At<T> = Option<(T, i64)>;

#[derive(Debug)]
pub(super) struct Follow {
    asked: Outstanding,
    next: Time,
    /// When a leader of this controller's own name, but with another journal, was seen first and last, without a gap.
    twin: Option<(Time, Time)>,
    /// Whether any controller has led since the start.
    seen_leader: bool,
    /// Since when no controller leads.
    vacant: Option<Time>,
    /// Revision of `leader` when it was read last. 0: none leads.
    leader_at: i64,
    /// Revision of `head`. 0: there is no log.
    head_at: i64,
    /// Whether the log is to be founded from this journal: for the first time, or because etcd has lost it.
    founds: bool,
    /// The controller that the last leader named to go first.
    named: Option<String>,
    /// Whether everything was applied when etcd was polled last.
    drained: bool,
    /// Whether the key `leader` is this controller's own, of an earlier run.
    own: bool,
}

impl Follow {
    pub(super) fn new(now: Time) -> Self {
        Self {
            asked: Outstanding::Nothing,
            next: now,
            twin: None,
            seen_leader: false,
            vacant: None,
            leader_at: 0,
            head_at: 0,
            founds: false,
            named: None,
            drained: false,
            own: false,
        }
    }

    /// Returns for how long a leader of the same name has been seen, now included.
    pub(super) fn twin_is_there(&mut self, now: Time) -> Span {
        let since = self.twin.filter(|(_, last)| now.since(*last) <= TWIN_GAP).map_or(now, |(first, _)| first);
        self.twin = Some((since, now));
        now.since(since)
    }

    /// Returns when the log lane is needed.
    pub(super) fn due(&self) -> Option<Time> {
        (self.asked == Outstanding::Nothing).then_some(self.next)
    }
}

/// What a poll has read.
struct View {
    leader: At<Leader>,
    handover: Option<Handover>,
    head: At<Head>,
    first: u64,
    trusted: i64,
    entries: Vec<(u64, Entry)>,
}

impl Replica {
    /// Asks what a standby needs next.
    pub(super) fn follow(&mut self, now: Time, out: &mut Vec<Act>) {
        let Phase::Following(follow) = &mut self.phase else { return invariant!("a standby follows") };
        if follow.asked != Outstanding::Nothing {
            return;
        }
        let patient = follow.vacant.is_some_and(|since| now.since(since) >= self.settings.patience(follow));
        let candidate = follow.drained && patient;
        self.lease.want(candidate);
        if candidate && let Some(lease) = self.lease.held(now) {
            follow.asked = Outstanding::Campaign;
            let txn = self.campaign(now, lease);
            out.push(Act::Ask { lane: Lane::Log, ask: Ask::Txn(txn) });
        } else if now >= follow.next {
            follow.asked = Outstanding::Poll;
            let txn = self.poll();
            out.push(Act::Ask { lane: Lane::Log, ask: Ask::Txn(txn) });
        }
    }

    fn poll(&self) -> Txn {
        let keys = &self.keys;
        let single = [&keys.leader, &keys.handover, &keys.head, &keys.first, &keys.trusted].map(|key| Op::get(key));
        let entries = keys.entries(self.last + 1, ENTRIES_MAX);
        Txn { then: single.into_iter().chain([entries]).collect(), ..Txn::default() }
    }

    /// The transaction by which this controller becomes leader: none leads, and the log ends where it was read.
    fn campaign(&self, now: Time, lease: i64) -> Txn {
        let Phase::Following(follow) = &self.phase else { return Txn::default() };
        let (keys, settings) = (&self.keys, &self.settings);
        let log = if follow.founds { settings.new_log } else { self.log.unwrap_or_default() };
        let put = |key: &str, value: Vec<u8>, lease| Op::Put { key: key.to_owned(), value, lease };
        let mut then = vec![
            put(&keys.leader, encoding::to_vec(&self.own(now)), Some(lease)),
            put(&keys.head, encoding::to_vec(&Head { last: self.last, run: settings.run, log }), None),
        ];
        if follow.founds {
            then.extend(keys.everything());
            then.push(put(&keys.first, (self.last + 1).to_string().into_bytes(), None));
        }
        let compare = vec![
            Compare { key: keys.leader.clone(), modified: follow.leader_at },
            Compare { key: keys.head.clone(), modified: follow.head_at },
        ];
        Txn { compare, then, otherwise: Vec::new() }
    }

    pub(super) fn take_followed(&mut self, now: Time, reply: Result<Reply, Problem>, out: &mut Vec<Act>) {
        let Phase::Following(follow) = &mut self.phase else { return invariant!("a standby follows") };
        let asked = std::mem::replace(&mut follow.asked, Outstanding::Nothing);
        follow.next = now;
        // Whether a campaign without an answer was won, and by whom one that was lost, the next poll shows.
        follow.drained &= asked != Outstanding::Campaign;
        let Ok(Reply::Txn(done)) = reply else {
            follow.next = now + RETRY;
            return;
        };
        let taken = match asked {
            Outstanding::Campaign if done.succeeded => {
                self.win(now, done.revision, done.revision, out);
                Ok(())
            }
            Outstanding::Nothing | Outstanding::Campaign => Ok(()),
            Outstanding::Poll => self.read(done).and_then(|view| self.look(now, view, out)),
            Outstanding::Pieces(first, entry) => {
                self.assemble(first, &entry, done.results.into_iter().next().unwrap_or_default(), out);
                Ok(())
            }
        };
        if let Err(why) = taken {
            self.end(why, out);
        }
    }

    /// Reads the answer to a poll.
    fn read(&self, done: Done) -> Result<View, Why> {
        let mut results = done.results.into_iter();
        let mut one = || results.next().and_then(|pairs| pairs.into_iter().next());
        let (leader, handover, head, first, trusted) = (one(), one(), one(), one(), one());
        let mut entries = Vec::new();
        for pair in results.next().unwrap_or_default() {
            // because a newer release may keep other keys there
            let Some(seq) = self.keys.seq(&pair.key) else { continue };
            entries.push((seq, decoded::<Entry>(&pair)?));
        }
        let first = first.and_then(|pair| String::from_utf8(pair.value).ok()?.parse().ok());
        Ok(View {
            leader: leader.map(|pair| Ok((decoded(&pair)?, pair.modified))).transpose()?,
            handover: handover.map(|pair| decoded::<Handover>(&pair)).transpose()?,
            head: head.map(|pair| Ok((decoded(&pair)?, pair.modified))).transpose()?,
            first: first.unwrap_or(1),
            trusted: trusted.map_or(0, |pair| pair.modified),
            entries,
        })
    }

    /// Looks at what a poll has read: the leader, and what is new.
    fn look(&mut self, now: Time, view: View, out: &mut Vec<Act>) -> Result<(), Why> {
        self.side.see_trusted(view.trusted);
        self.side.see_first(view.first);
        let leader = view.leader.as_ref().map(|(leader, _)| leader);
        let stopped = leader.is_none() && view.handover.as_ref().is_some_and(|handover| handover.stop);
        // A controller that was started after the shutdown goes on: it has seen no leader.
        if stopped && matches!(&self.phase, Phase::Following(follow) if follow.seen_leader) {
            return Err(Why::Stopped);
        }
        let own = leader.is_some_and(|leader| self.settings.was(leader));
        let twin = leader.filter(|leader| leader.name == self.settings.name && leader.journal != self.settings.journal);
        if let (Phase::Following(follow), Some(twin)) = (&mut self.phase, twin)
            && follow.twin_is_there(now) >= TWIN
        {
            return Err(Why::Twin { name: twin.name.clone(), address: twin.address.clone() });
        }
        let won = leader.is_some_and(|leader| leader.run == self.settings.run);
        if won && self.lease.held(now).is_some() {
            let revisions = view.leader.zip(view.head).map(|((_, leader), (_, head))| (leader, head));
            if let Some((leader, head)) = revisions {
                self.win(now, leader, head, out);
            }
            return Ok(());
        }
        let other = view.leader.as_ref().filter(|_| !own && !won);
        self.set_leader(other.map(|(leader, at)| (leader.clone(), at.unsigned_abs())), out);
        let founds = self.judge(&view, out)?;
        let Phase::Following(follow) = &mut self.phase else {
            invariant!("a standby follows");
            return Ok(());
        };
        follow.seen_leader |= view.leader.is_some() && !own;
        follow.leader_at = view.leader.as_ref().map_or(0, |(_, at)| *at);
        follow.head_at = view.head.as_ref().map_or(0, |(_, at)| *at);
        (follow.named, follow.own, follow.founds) = (view.handover.map(|handover| handover.to), own, founds);
        follow.vacant = if view.leader.is_some() && !own { None } else { follow.vacant.or(Some(now)) };
        let end = view.head.map_or(0, |(head, _)| head.last);
        if founds {
            follow.drained = true;
        } else if view.first > self.last + 1 && end > self.last {
            out.push(Act::Behind { first: view.first });
            self.phase = Phase::Over;
            return Ok(());
        } else {
            self.catch_up(view.entries, end, out);
        }
        let Phase::Following(follow) = &self.phase else {
            invariant!("a standby follows");
            return Ok(());
        };
        if follow.drained {
            self.fresh = Some(now);
        }
        self.schedule(now);
        Ok(())
    }

    /// Whether the log is to be founded from this journal. Err: the journal does not fit the log.
    fn judge(&mut self, view: &View, out: &mut Vec<Act>) -> Result<bool, Why> {
        let (last, accept) = (self.last, self.settings.accept_loss);
        let Some((head, _)) = &view.head else {
            return match self.log {
                None => Ok(true),
                Some(_) if accept => Ok(true),
                Some(_) => Err(Why::Lost { last }),
            };
        };
        match self.log {
            None if last == 0 => {
                self.log = Some(head.log);
                out.push(Act::Adopt { log: head.log });
            }
            Some(log) if log == head.log => {}
            _ => return Err(Why::Foreign { prefix: self.settings.prefix.clone() }),
        }
        if head.last < last {
            return if accept { Ok(true) } else { Err(Why::Older { head: head.last, last }) };
        }
        Ok(false)
    }

    /// Applies entries up to the log's end, or asks for the pieces of one.
    fn catch_up(&mut self, entries: Vec<(u64, Entry)>, end: u64, out: &mut Vec<Act>) {
        for (first, entry) in entries {
            // An entry below was applied; after a gap, the next poll reads on.
            if first != self.last + 1 {
                continue;
            }
            if entry.pieces > 0 {
                let pieces = self.keys.pieces(first, entry.run, entry.pieces);
                let Phase::Following(follow) = &mut self.phase else { return invariant!("a standby follows") };
                (follow.asked, follow.drained) = (Outstanding::Pieces(first, Box::new(entry)), false);
                let txn = Txn { then: vec![pieces], ..Txn::default() };
                out.push(Act::Ask { lane: Lane::Log, ask: Ask::Txn(txn) });
                return;
            }
            self.last = entry.last;
            out.push(Act::Apply { first, last: entry.last, bytes: entry.bytes });
        }
        let Phase::Following(follow) = &mut self.phase else { return invariant!("a standby follows") };
        follow.drained = self.last >= end;
    }

    /// Puts an entry together. If pieces are missing, it was trimmed meanwhile: the next poll shows that.
    fn assemble(&mut self, first: u64, entry: &Entry, pieces: Vec<Pair>, out: &mut Vec<Act>) {
        if pieces.len() == entry.pieces as usize {
            let bytes = pieces.into_iter().flat_map(|piece| piece.value).collect();
            self.last = entry.last;
            out.push(Act::Apply { first, last: entry.last, bytes });
        }
    }

    /// Sets when to poll again: at once while there is more to apply, otherwise after a pause.
    fn schedule(&mut self, now: Time) {
        let Phase::Following(follow) = &mut self.phase else { return invariant!("a standby follows") };
        follow.next = if follow.drained { now + POLL } else { now };
        if let Some(since) = follow.vacant {
            let patient_at = since + self.settings.patience(follow);
            if patient_at > now {
                follow.next = follow.next.min(patient_at);
            }
        }
    }

    /// Returns what others read of this controller, which leads since `now`.
    fn own(&self, now: Time) -> Leader {
        let Settings { name, address, run, journal, release, started, .. } = self.settings.clone();
        let since = Some(started + now.since(self.began));
        Leader { name, address, run, journal, release, since }
    }

    fn win(&mut self, now: Time, leader_at: i64, head_at: i64, out: &mut Vec<Act>) {
        let Phase::Following(follow) = &self.phase else { return invariant!("a standby follows") };
        if follow.founds {
            self.log = Some(self.settings.new_log);
            self.side.see_first(self.last + 1);
            out.push(Act::Adopt { log: self.settings.new_log });
        }
        self.phase = Phase::Leading(Lead::new(leader_at, head_at));
        self.lease.want(true);
        let term = leader_at.unsigned_abs();
        self.set_leader(Some((self.own(now), term)), out);
        out.push(Act::Lead { term });
    }
}

impl Settings {
    /// Whether that leader is this controller itself, in an earlier run, which is over: the state folder has one lock.
    fn was(&self, leader: &Leader) -> bool {
        leader.name == self.name && leader.journal == self.journal && leader.run != self.run
    }

    /// Returns how long nobody must have led before this controller campaigns.
    fn patience(&self, follow: &Follow) -> Span {
        let rank = Span(PER_RANK.0 * u64::from(self.rank));
        match &follow.named {
            Some(name) if *name == self.name => Span(0),
            Some(_) => Span(COURTESY.0 + rank.0),
            None if follow.own => Span(0),
            None => rank,
        }
    }
}

/// Decodes a value.
pub(super) fn decoded<T: Decoded>(pair: &Pair) -> Result<T, Why> {
    encoding::from_slice(&pair.value).map_err(|problem| Why::Unreadable { key: pair.key.clone(), problem })
}
