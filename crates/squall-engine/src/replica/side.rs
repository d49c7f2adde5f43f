//! What may be late: what each controller tells of itself, files of `keys/`, trimming the log.

use std::collections::BTreeMap;

use squall_model::encoding;
use squall_model::replica::{Member, TrustFile};
use squall_model::time::{Span, Time};
use squall_model::wire::join::PublicKey;

use super::etcd::{Ask, Done, Op, Problem, Reply, Txn};
use super::follow::decoded;
use super::{Act, Lane, MAKE_ROOM, Phase, RETRY, Replica};

/// Interval at which a controller tells how far its copy is, by which others see that it runs.
const TELL: Span = Span::from_secs(1);
/// Interval at which a leader looks at the others.
const LOOK: Span = Span::from_millis(500);
/// Interval at which a standby does, so that it can tell which controllers run.
const GLANCE: Span = Span::from_secs(1);
/// Time after which a controller that tells nothing more does not run.
const SILENT: Span = Span::from_secs(4);
/// Time for which a controller that tells nothing more is waited for with trimming.
const ABSENT: Span = Span::from_secs(600);
/// Interval of trimming the log.
const TRIM: Span = Span::from_secs(2);
/// Most files of `keys/` that one transaction writes. etcd takes 128 operations.
const PUSHED_MAX: usize = 100;
/// Interval of asking for the size of etcd's database.
const MEASURE: Span = Span::from_secs(3);

/// The open question of the side lane.
#[derive(Clone, Debug, PartialEq)]
enum Outstanding {
    Nothing,
    Tell,
    /// Pass on these files.
    Push(Vec<(String, TrustFile)>),
    Fetch,
    Look,
    /// Remove the records before this one.
    Trim(u64),
    Compact,
    Measure,
}

/// What is known of another controller's copy.
#[derive(Debug)]
struct MemberSeen {
    /// Revision of its last word.
    at: i64,
    /// When that was seen.
    seen: Time,
    durable: u64,
}

#[derive(Debug)]
pub(super) struct Side {
    asked: Outstanding,
    /// Not before this time, after a question without an answer.
    next: Time,
    /// Public half of the controllers' key to come, if this controller has it.
    pub(super) holds: Option<PublicKey>,
    since: Time,
    /// Records up to this one are on the disk.
    pub(super) durable: u64,
    /// Number of the last record that was applied or appended.
    pub(super) applied: u64,
    told_at: Option<Time>,
    /// Files to be passed to other controllers.
    pushes: BTreeMap<String, TrustFile>,
    /// How often files to be passed on were given.
    given: u64,
    /// Revision of `trusted`, 0 if there is none: as seen (None: not yet), and as fetched (None: nothing was).
    trusted: (Option<i64>, Option<i64>),
    looked: Option<Time>,
    members: BTreeMap<String, MemberSeen>,
    trimmed: (u64, Option<Time>),
    /// Revision before which old versions are to be forgotten.
    compact: Option<i64>,
    measured: Option<Time>,
    used: u64,
    full: bool,
    /// Whether etcd has refused to write, and nothing was written since.
    pub(super) roomless: bool,
}

impl Side {
    pub(super) fn new(now: Time, durable: u64) -> Self {
        Self {
            asked: Outstanding::Nothing,
            next: now,
            holds: None,
            since: now,
            durable,
            applied: durable,
            told_at: None,
            pushes: BTreeMap::new(),
            given: 0,
            trusted: (None, None),
            looked: None,
            members: BTreeMap::new(),
            trimmed: (0, None),
            compact: None,
            measured: None,
            used: 0,
            full: false,
            roomless: false,
        }
    }

    pub(super) fn push(&mut self, files: Vec<(String, TrustFile)>) {
        self.given += 1;
        self.pushes.extend(files);
    }

    pub(super) fn see_trusted(&mut self, revision: i64) {
        self.trusted.0 = Some(revision);
    }

    /// Notes the first record that is in etcd. A leader never names an earlier one: its predecessor may have trimmed more
    /// than it would, and a standby which lacks records must see that.
    pub(super) fn see_first(&mut self, first: u64) {
        self.trimmed.0 = first.saturating_sub(1);
    }

    /// Takes in that etcd refuses to write. It then grants no lease either, so that no further controller can lead.
    pub(super) fn lacks_room(&mut self, why: &str, out: &mut Vec<Act>) {
        if !std::mem::replace(&mut self.roomless, true) {
            out.push(Act::Trouble(Some(format!("it has no room: {why}. As its administrator {MAKE_ROOM}"))));
            if !std::mem::replace(&mut self.full, true) {
                out.push(Act::Full(true));
            }
        }
    }

    /// Returns when something is due, for a leader or a standby.
    pub(super) fn deadline(&self, leads: bool) -> Option<Time> {
        let due = if self.work() { self.next } else { self.tell_at().min(self.look_at(leads)) };
        (self.asked == Outstanding::Nothing).then_some(due.max(self.next))
    }

    fn work(&self) -> bool {
        !self.pushes.is_empty() || self.trusted.0 != self.trusted.1
    }

    fn tell_at(&self) -> Time {
        self.told_at.map_or(self.since, |at| at + TELL)
    }

    fn look_at(&self, leads: bool) -> Time {
        self.looked.map_or(self.since, |at| at + if leads { LOOK } else { GLANCE })
    }

    /// Returns the last record that enough controllers have on their disks.
    fn safe(&self, now: Time, own: &str, controllers: usize, quota: u64) -> u64 {
        let present: Vec<u64> = self
            .members
            .iter()
            .filter(|(name, known)| *name != own && now.since(known.seen) < ABSENT)
            .map(|(_, known)| known.durable)
            .chain([self.durable])
            .collect();
        let enough = present.len() >= controllers.min(2) || self.used > quota / 2;
        let slowest = present.into_iter().min().unwrap_or_default();
        match enough {
            false => 0,
            true if self.used > quota / 2 => self.durable,
            true => slowest,
        }
    }
}

impl Replica {
    /// Asks what is due besides lease and log.
    pub(super) fn look_aside(&mut self, now: Time, out: &mut Vec<Act>) {
        if self.side.asked != Outstanding::Nothing || now < self.side.next || self.log.is_none() {
            return;
        }
        if let Some((asked, ask)) = self.choose(now) {
            self.side.asked = asked;
            out.push(Act::Ask { lane: Lane::Side, ask });
        }
    }

    fn choose(&mut self, now: Time) -> Option<(Outstanding, Ask)> {
        let (keys, side) = (&self.keys, &mut self.side);
        let put = |key: String, value| Op::Put { key, value, lease: None };
        let all = |then| Ask::Txn(Txn { then, ..Txn::default() });
        if !side.pushes.is_empty() {
            let files: Vec<(String, TrustFile)> =
                std::iter::from_fn(|| side.pushes.pop_first()).take(PUSHED_MAX).collect();
            let mut then = vec![put(keys.trusted.clone(), b"1".to_vec())];
            then.extend(files.iter().map(|(path, file)| put(keys.trust(path), encoding::to_vec(file))));
            return Some((Outstanding::Push(files), all(then)));
        }
        if side.trusted.0 != side.trusted.1 {
            return Some((Outstanding::Fetch, all(vec![Op::get(&keys.trusted), keys.all("trust")])));
        }
        if now >= side.tell_at() {
            let (address, release) = (self.settings.address.clone(), self.settings.release.clone());
            let (durable, run, since) = (side.durable, self.settings.run, self.settings.started);
            let speaks = self.settings.speaks;
            let next = side.holds;
            let member = Member { address, release, durable, applied: self.last, since, run, speaks, next };
            side.told_at = Some(now);
            return Some((
                Outstanding::Tell,
                all(vec![put(keys.member(&self.settings.name), encoding::to_vec(&member))]),
            ));
        }
        if now >= side.look_at(matches!(self.phase, Phase::Leading(_))) {
            side.looked = Some(now);
            return Some((Outstanding::Look, all(vec![Op::get(&keys.trusted), keys.all("member")])));
        }
        let Phase::Leading(lead) = &self.phase else { return None };
        let due = |last: Option<Time>, pause| last.is_none_or(|at| now >= at + pause);
        if let Some(revision) = side.compact.take() {
            return Some((Outstanding::Compact, Ask::Compact { revision }));
        }
        if due(side.measured, MEASURE) {
            side.measured = Some(now);
            return Some((Outstanding::Measure, Ask::Usage));
        }
        let safe = side.safe(now, &self.settings.name, self.settings.controllers, self.settings.quota);
        if safe > side.trimmed.0 && due(side.trimmed.1, TRIM) {
            side.trimmed.1 = Some(now);
            let first = safe + 1;
            let mut then = keys.before(first).to_vec();
            then.push(put(keys.first.clone(), first.to_string().into_bytes()));
            let txn = Txn { compare: vec![lead.leads(&keys.leader)], then, otherwise: Vec::new() };
            return Some((Outstanding::Trim(safe), Ask::Txn(txn)));
        }
        None
    }

    pub(super) fn take_side(&mut self, now: Time, reply: Result<Reply, Problem>, out: &mut Vec<Act>) {
        let asked = std::mem::replace(&mut self.side.asked, Outstanding::Nothing);
        match (asked, reply) {
            (asked, Err(problem)) => {
                self.side.next = now + if matches!(problem, Problem::NoSpace(_)) { LOOK } else { RETRY };
                match asked {
                    Outstanding::Tell => self.side.told_at = None,
                    // A file that was changed again meanwhile stays as it is now.
                    Outstanding::Push(files) => files.into_iter().for_each(|(path, file)| {
                        self.side.pushes.entry(path).or_insert(file);
                    }),
                    _ => {}
                }
            }
            // Files that were given while this was under way are still to be passed on.
            (Outstanding::Push(_), Ok(Reply::Txn(_))) if self.side.pushes.is_empty() => {
                out.push(Act::Shared { given: self.side.given });
            }
            (Outstanding::Tell, Ok(_)) if self.side.roomless => {
                self.side.roomless = false;
                out.push(Act::Trouble(None));
                self.measured(self.side.used, out);
            }
            (Outstanding::Fetch, Ok(Reply::Txn(done))) => self.fetched(done, out),
            (Outstanding::Look, Ok(Reply::Txn(done))) => self.looked(now, &done, out),
            (Outstanding::Trim(last), Ok(Reply::Txn(done))) if done.succeeded => {
                self.side.trimmed.0 = last;
                self.side.compact = Some(done.revision);
            }
            (Outstanding::Measure, Ok(Reply::Usage { used })) => self.measured(used, out),
            _ => {}
        }
    }

    fn fetched(&mut self, done: Done, out: &mut Vec<Act>) {
        let mut results = done.results.into_iter();
        let marker = results.next().unwrap_or_default();
        self.side.trusted.1 = Some(marker.first().map_or(0, |pair| pair.modified));
        self.side.trusted.0 = self.side.trusted.0.max(self.side.trusted.1);
        let mut files = Vec::new();
        for pair in results.next().unwrap_or_default() {
            // because a newer release may keep other keys there
            let Some(path) = self.keys.trust_path(&pair.key) else { continue };
            // What can't be read is of a newer release, which needs it and this one does not.
            if let Ok(file) = decoded::<TrustFile>(&pair) {
                files.push((path.to_owned(), file));
            }
        }
        out.push(Act::Trust(files));
    }

    fn looked(&mut self, now: Time, done: &Done, out: &mut Vec<Act>) {
        let trusted = done.results.first().and_then(|pairs| pairs.first()).map_or(0, |pair| pair.modified);
        self.side.see_trusted(trusted);
        let mut members = Vec::new();
        for pair in done.results.get(1).into_iter().flatten() {
            // because a newer release may keep other keys there, or more in them
            let Some(name) = self.keys.member_name(&pair.key) else { continue };
            let Ok(member) = decoded::<Member>(pair) else { continue };
            let known = self.side.members.entry(name.to_owned()).or_insert(MemberSeen { at: 0, seen: now, durable: 0 });
            if known.at != pair.modified {
                *known = MemberSeen { at: pair.modified, seen: now, durable: member.durable };
            }
            if now.since(known.seen) < SILENT {
                members.push((name.to_owned(), member));
            }
        }
        out.push(Act::Members(members));
    }

    fn measured(&mut self, used: u64, out: &mut Vec<Act>) {
        self.side.used = used;
        let full = self.side.roomless || used > self.settings.quota / 5 * 4;
        if std::mem::replace(&mut self.side.full, full) != full {
            out.push(Act::Full(full));
        }
    }
}
