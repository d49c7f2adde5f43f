//! A controller's side of the log in etcd: it follows the log, leads while it holds the lease, and is fenced afterwards.
//!
//! Several controllers share one log. One of them *leads*: it holds a lease at etcd, to which the key `leader` is bound,
//! and appends. The others are *standbys*: they apply what the leader appends. When the leader stops renewing its lease
//! (it died, or is cut off), etcd removes the key, and a standby which has applied the whole log campaigns for it.
//!
//! Three things keep an old leader from being heard. Each append is a transaction that compares the revisions of
//! `leader` and of `head` (the log's end), so nothing is appended after another controller has won. The leader counts its
//! lease from the moment at which it *sent* the renewal, and ends itself when that time is over, so it ends before etcd
//! removes its key. Nodes and clients compare epochs, as after every restart of a controller.
//!
//! The machine has no clock and no connection: its host asks etcd what [`Act::Ask`] says, and brings the answer. There
//! are three *lanes*, each with at most one open question, so that a large append does not delay a renewal.
//!
//! Sources: C. Gray and D. Cheriton, "Leases" (SOSP 1989); M. Burrows, "The Chubby lock service" (OSDI 2006).

pub mod etcd;
mod follow;
mod keys;
mod lead;
mod lease;
pub mod model;
mod side;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use squall_model::replica::{Leader, Member, TrustFile};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::join::PublicKey;

use crate::machine::Machine;
use etcd::{Ask, Problem, Reply};
use follow::Follow;
use keys::Keys;
use lead::Lead;
use lease::Lease;
use side::Side;

/// Pause after a question that etcd did not answer.
const RETRY: Span = Span::from_millis(50);
/// What to do when etcd has no room.
pub const MAKE_ROOM: &str = "compact it, defragment it and disarm its alarm (`etcdctl compact`, `defrag`, `alarm disarm`), or \
     raise its quota (--quota-backend-bytes)";
/// Time without an answer after which that is said.
const TROUBLE: Span = Span::from_secs(1);

/// How a controller takes part.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prefix of all keys, e.g. `/squall/mycluster`.
    pub prefix: String,
    /// Its name, as in `[[controllers]]`.
    pub name: String,
    /// Address at which other machines reach it.
    pub address: String,
    /// Release of its program.
    pub release: String,
    /// The newest version of a cluster that it can work with.
    pub speaks: ClusterVersion,
    /// Random number of this run of its process.
    pub run: u64,
    /// When its process started, by the wall clock.
    pub started: Time,
    /// Number of its journal.
    pub journal: u64,
    /// Number of the log that its journal is a copy of. None: of none so far.
    pub log: Option<u64>,
    /// Random number for a log that it founds.
    pub new_log: u64,
    /// Last record of its journal.
    pub last: u64,
    /// Its place in `[[controllers]]`, from 0: the first one leads first.
    pub rank: u32,
    /// Number of controllers in the configuration.
    pub controllers: usize,
    /// Whether its journal counts although etcd has lost the log, or has an older one.
    pub accept_loss: bool,
    /// Length of the leader's lease, seconds.
    pub lease_s: u64,
    /// Bytes that etcd's database may take.
    pub quota: u64,
}

/// A lane of questions to etcd. Each has at most one open question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The lease.
    Lease,
    /// The log: appends of a leader, polls of a standby.
    Log,
    /// Everything that may be late.
    Side,
}

/// Input of a [`Replica`].
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The answer to the open question of a lane.
    Reply {
        /// The lane.
        lane: Lane,
        /// The answer.
        reply: Result<Reply, Problem>,
    },
    /// Append a batch. Only while it leads, and after the last batch was appended.
    Append {
        /// Number of the batch's first record, which follows the last one of the log.
        first: u64,
        /// Number of its last record.
        last: u64,
        /// The encoded batch.
        bytes: Arc<Vec<u8>>,
    },
    /// Lead no more; `to` goes first, or whoever is fastest. Only between two batches.
    Resign {
        /// Name of the controller that goes first.
        to: Option<String>,
    },
    /// Lead no more, and have all controllers end. Only between two batches.
    Stop,
    /// Records up to this one are on this controller's disk.
    Durable {
        /// Number of the last record.
        seq: u64,
    },
    /// Public half of the controllers' key to come, if this controller has it.
    Holds(Option<PublicKey>),
    /// Files of `keys/` were changed here, by their paths below it.
    Trust(Vec<(String, TrustFile)>),
}

/// What the host has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Ask etcd.
    Ask {
        /// The lane.
        lane: Lane,
        /// The question.
        ask: Ask,
    },
    /// The journal is a copy of the log with this number from now on: keep that, durably.
    Adopt {
        /// Number of the log.
        log: u64,
    },
    /// Apply a batch that the leader has appended, and write it to the journal.
    Apply {
        /// Number of the batch's first record.
        first: u64,
        /// Number of its last record.
        last: u64,
        /// The encoded batch.
        bytes: Vec<u8>,
    },
    /// Lead from now on, in the term of this number.
    Lead {
        /// Number of the term: higher than those of all leaders before.
        term: u64,
    },
    /// The batch was appended. Err: there is no room; nothing was appended.
    Appended(Result<(), String>),
    /// Another controller leads, or none: the leader, with the number of its term.
    Leader(Option<(Leader, u64)>),
    /// The controllers that have told of themselves a moment ago, by name.
    Members(Vec<(String, Member)>),
    /// All files of `keys/` that are in etcd, by their paths below it: at the start, and when one was changed.
    Trust(Vec<(String, TrustFile)>),
    /// All files of `keys/` that were given by [`Input::Trust`] are in etcd.
    Shared {
        /// How often files were given so far.
        given: u64,
    },
    /// What comes after this journal is not in etcd any more: fetch a copy from the leader, and start again.
    Behind {
        /// Number of the first record that is in etcd.
        first: u64,
    },
    /// Whether etcd has little room left.
    Full(bool),
    /// etcd does not answer, or has no room (why), or all is well again (None).
    Trouble(Option<String>),
    /// This run is over. Nothing that the controller says counts any more.
    Ended(Why),
}

/// Why a run is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It led, and another controller leads now.
    #[error("another controller leads now{}", .by.as_ref().map(|by| format!(": {by}")).unwrap_or_default())]
    Deposed {
        /// Name of the other one, if there is one at this moment.
        by: Option<String>,
    },
    /// It led, and could not renew its lease in time.
    #[error("the lease could not be renewed in time: etcd did not answer")]
    Expired,
    /// It has resigned, as it was told.
    #[error("it has resigned{}", .to.as_ref().map(|to| format!(" in favour of {to}")).unwrap_or_default())]
    Resigned {
        /// The controller which goes first.
        to: Option<String>,
    },
    /// The cluster was shut down.
    #[error("the cluster was shut down")]
    Stopped,
    /// etcd is empty, but the journal is a copy of a log that was there.
    #[error(
        "etcd has lost the log: it is empty, and this journal, which is a copy of it, ends with record {last}. Restore etcd's \
         data; or start the controller whose copy is longest with --accept-loss, first"
    )]
    Lost {
        /// Last record of the journal.
        last: u64,
    },
    /// The log in etcd ends before this journal.
    #[error(
        "the log in etcd ends with record {head}, but this journal, which is a copy of it, has record {last}: etcd's data is \
         old. Restore newer data; or start the controller whose copy is longest with --accept-loss, first"
    )]
    Older {
        /// Last record of the log.
        head: u64,
        /// Last record of the journal.
        last: u64,
    },
    /// The journal is a copy of another log, or of none.
    #[error(
        "this journal is no copy of the log in etcd ({prefix}): it is of another cluster, or from before the log was founded. \
         Move the folder `journal` away, and start again: the controller then fetches a copy. If it was restored from a \
         backup, name another `prefix` in [log] instead"
    )]
    Foreign {
        /// Prefix of the keys.
        prefix: String,
    },
    /// Another process leads under the same name.
    #[error(
        "another controller leads under this name, {name}, at {address}: give each its own name in [[controllers]]"
    )]
    Twin {
        /// The name.
        name: String,
        /// Where the other one is.
        address: String,
    },
    /// A key holds what this release can't read.
    #[error("cannot read {key} in etcd: {problem}. Nothing was changed; a newer release may have written it")]
    Unreadable {
        /// The key.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

/// What the controller does at the moment.
#[derive(Debug)]
enum Phase {
    Following(Follow),
    Leading(Lead),
    Over,
}

/// A controller's side of the log.
#[derive(Debug)]
pub struct Replica {
    settings: Settings,
    keys: Keys,
    lease: Lease,
    phase: Phase,
    side: Side,
    /// Number of the log that the journal is a copy of.
    log: Option<u64>,
    /// Number of the last record that was applied or appended.
    last: u64,
    /// The leader, with the number of its term.
    leader: Option<(Leader, u64)>,
    /// When it was made, by the clock of its inputs; [`Settings::started`] is the same moment by the wall clock.
    began: Time,
    /// When it had applied the whole log last.
    fresh: Option<Time>,
    /// Since when etcd has not answered.
    silent_since: Option<Time>,
    /// Whether that was said.
    troubled: bool,
}

impl Replica {
    /// Makes the machine of a controller that starts `now`.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            keys: Keys::new(&settings.prefix),
            lease: Lease::new(settings.lease_s),
            phase: Phase::Following(Follow::new(now)),
            side: Side::new(now, settings.last),
            log: settings.log,
            last: settings.last,
            leader: None,
            began: now,
            fresh: None,
            silent_since: None,
            troubled: false,
            settings,
        }
    }

    /// Returns the time until which the word of this controller counts. None: it does not lead, or resigns.
    pub fn leads_until(&self) -> Option<Time> {
        matches!(&self.phase, Phase::Leading(lead) if !lead.resigns()).then(|| self.lease.valid_until())
    }

    /// Returns the number of the last record that was applied or appended.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns when it had applied the whole log last. None: not yet.
    pub fn fresh(&self) -> Option<Time> {
        self.fresh
    }

    fn end(&mut self, why: Why, out: &mut Vec<Act>) {
        self.phase = Phase::Over;
        out.push(Act::Ended(why));
    }

    fn set_leader(&mut self, leader: Option<(Leader, u64)>, out: &mut Vec<Act>) {
        if self.leader != leader {
            self.leader.clone_from(&leader);
            out.push(Act::Leader(leader));
        }
    }

    /// Notes whether etcd answers. A failed comparison is an answer.
    fn hear(&mut self, now: Time, reply: &Result<Reply, Problem>, out: &mut Vec<Act>) {
        let why = match reply {
            Ok(_) => {
                self.silent_since = None;
                if std::mem::take(&mut self.troubled) {
                    // If it has no room either, it says so again.
                    self.side.roomless = false;
                    out.push(Act::Trouble(None));
                }
                return;
            }
            Err(Problem::NoSpace(why)) => {
                (self.silent_since, self.troubled) = (None, false);
                return self.side.lacks_room(why, out);
            }
            Err(Problem::Unavailable(why) | Problem::Refused(why)) => why,
        };
        let since = *self.silent_since.get_or_insert(now);
        if !self.troubled && (now.since(since) >= TROUBLE || matches!(reply, Err(Problem::Refused(_)))) {
            self.troubled = true;
            out.push(Act::Trouble(Some(why.clone())));
        }
    }

    fn take_reply(&mut self, now: Time, lane: Lane, reply: Result<Reply, Problem>, out: &mut Vec<Act>) {
        self.hear(now, &reply, out);
        match lane {
            Lane::Lease => self.lease.take(now, &reply),
            Lane::Side => self.take_side(now, reply, out),
            Lane::Log => match self.phase {
                Phase::Following(_) => self.take_followed(now, reply, out),
                Phase::Leading(_) => self.take_led(now, reply, out),
                Phase::Over => {}
            },
        }
    }

    /// Asks what is due.
    fn proceed(&mut self, now: Time, out: &mut Vec<Act>) {
        if matches!(self.phase, Phase::Leading(_)) && now >= self.lease.valid_until() {
            return self.end(Why::Expired, out);
        }
        match self.phase {
            Phase::Following(_) => self.follow(now, out),
            Phase::Leading(_) => self.lead(now, out),
            // because nothing is due after the end
            Phase::Over => return,
        }
        if let Some(ask) = self.lease.due(now) {
            out.push(Act::Ask { lane: Lane::Lease, ask });
        }
        self.side.applied = self.last;
        self.look_aside(now, out);
    }
}

impl Machine for Replica {
    type Input = Input;
    type Out = Vec<Act>;

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<Act>) {
        match input {
            Input::Tick => {}
            Input::Reply { lane, reply } => self.take_reply(now, lane, reply, out),
            Input::Append { first, last, bytes } => {
                debug_assert!(first == self.last + 1, "numbers follow each other");
                if let Phase::Leading(lead) = &mut self.phase {
                    lead.begin(first, last, bytes);
                }
            }
            Input::Resign { to } => {
                if let Phase::Leading(lead) = &mut self.phase {
                    lead.resign(to, false);
                }
            }
            Input::Stop => {
                if let Phase::Leading(lead) = &mut self.phase {
                    lead.resign(None, true);
                }
            }
            Input::Durable { seq } => self.side.durable = seq,
            Input::Trust(files) => self.side.push(files),
            Input::Holds(next) => self.side.holds = next,
        }
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        let leads = matches!(self.phase, Phase::Leading(_));
        let of_log = match &self.phase {
            Phase::Following(follow) => follow.due(),
            Phase::Leading(lead) => lead.due(),
            Phase::Over => return None,
        };
        let of_side = self.log.and_then(|_| self.side.deadline(leads));
        let end = leads.then(|| self.lease.valid_until());
        of_log.into_iter().chain(end).chain(self.lease.deadline()).chain(of_side).min()
    }
}
