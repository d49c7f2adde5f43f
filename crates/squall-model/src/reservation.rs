//! Reservations: nodes kept free for some users during some time.

use minicbor::{Decode, Encode};
use std::collections::BTreeSet;

use crate::job::Owner;
use crate::set::NodeSet;
use crate::time::{Span, Time};

/// A reservation: nodes kept free for some users, once or at recurring times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Reservation {
    /// Name of the reservation.
    #[n(0)]
    pub name: String,
    /// Start of the reservation; if it recurs, start of its present or next time.
    #[n(1)]
    pub start: Time,
    /// End of the reservation; if it recurs, end of its present or next time.
    #[n(2)]
    pub end: Time,
    /// Reserved nodes.
    #[n(3)]
    pub nodes: NodeSet,
    /// Partition from which the nodes were chosen. None: no partition was given.
    #[n(4)]
    pub partition: Option<String>,
    /// Feature expression that the nodes had to satisfy. None: no features were required.
    #[n(5)]
    pub features: Option<String>,
    /// Names of users that may use the reservation; `-NAME`: all users but these. Empty: accounts alone decide.
    #[n(6)]
    pub users: Vec<String>,
    /// Names of accounts that may use the reservation; `-NAME`: all accounts but these. Empty: users alone decide.
    #[n(7)]
    pub accounts: Vec<String>,
    /// Slurm's reservation flags: recurrence, how nodes were chosen, what is allowed.
    #[n(8)]
    pub flags: BTreeSet<Flag>,
    /// Uid of the operator that created the reservation.
    #[n(9)]
    pub by: u32,
}

/// Flag of a reservation. New flags are added at the end, because journals hold their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Flag {
    /// The reservation is for maintenance of the nodes.
    #[n(0)]
    Maint,
    /// The reservation may be created although jobs run on the nodes.
    #[n(1)]
    IgnoreJobs,
    /// The reservation recurs every hour.
    #[n(2)]
    Hourly,
    /// The reservation recurs every day.
    #[n(3)]
    Daily,
    /// The reservation recurs every day from Monday to Friday.
    #[n(4)]
    Weekday,
    /// The reservation recurs every Saturday and Sunday.
    #[n(5)]
    Weekend,
    /// The reservation recurs every week.
    #[n(6)]
    Weekly,
    /// Jobs of the reservation may start before it and end after it.
    #[n(7)]
    Flex,
    /// The reservation may share nodes with other reservations.
    #[n(8)]
    Overlap,
    /// The nodes were chosen by the controller, not given by name.
    #[n(9)]
    AnyNodes,
    /// The nodes were given by name (not chosen by the controller).
    #[n(10)]
    SpecNodes,
    /// The reservation has all nodes of the cluster.
    #[n(11)]
    AllNodes,
    /// The reservation has all nodes of its partition.
    #[n(12)]
    PartNodes,
    /// Reserved nodes are not replaced if they fail.
    #[n(13)]
    StaticAlloc,
    /// Jobs that are still pending in the reservation when it ends are not held.
    #[n(14)]
    NoHoldJobsAfterEnd,
}

impl Flag {
    /// Each flag with its name, as users write it.
    pub const NAMES: [(&'static str, Self); 15] = [
        ("MAINT", Self::Maint),
        ("IGNORE_JOBS", Self::IgnoreJobs),
        ("HOURLY", Self::Hourly),
        ("DAILY", Self::Daily),
        ("WEEKDAY", Self::Weekday),
        ("WEEKEND", Self::Weekend),
        ("WEEKLY", Self::Weekly),
        ("FLEX", Self::Flex),
        ("OVERLAP", Self::Overlap),
        ("ANY_NODES", Self::AnyNodes),
        ("SPEC_NODES", Self::SpecNodes),
        ("ALL_NODES", Self::AllNodes),
        ("PART_NODES", Self::PartNodes),
        ("STATIC", Self::StaticAlloc),
        ("NO_HOLD_JOBS_AFTER_END", Self::NoHoldJobsAfterEnd),
    ];
    /// Returns the flag's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, flag)| *flag == self).map_or("", |(name, _)| name)
    }
    /// Returns whether the flag makes a reservation recur.
    pub fn recurs(self) -> bool {
        matches!(self, Self::Hourly | Self::Daily | Self::Weekday | Self::Weekend | Self::Weekly)
    }
    /// Words that Slurm takes for flags, each with the fewest letters of an abbreviation. Of several words the first one
    /// is meant, as in Slurm: `W` is `WEEKDAY`.
    const WORDS: [(&'static str, usize, Self); 14] = [
        ("MAINTENANCE", 1, Self::Maint),
        ("OVERLAP", 1, Self::Overlap),
        ("FLEX", 1, Self::Flex),
        ("IGNORE_JOBS", 1, Self::IgnoreJobs),
        ("IGN_JOBS", 8, Self::IgnoreJobs),
        ("HOURLY", 1, Self::Hourly),
        ("DAILY", 1, Self::Daily),
        ("WEEKDAY", 1, Self::Weekday),
        ("WEEKEND", 1, Self::Weekend),
        ("WEEKLY", 1, Self::Weekly),
        ("ANY_NODES", 1, Self::AnyNodes),
        ("STATIC_ALLOC", 1, Self::StaticAlloc),
        ("PART_NODES", 2, Self::PartNodes),
        ("NO_HOLD_JOBS_AFTER_END", 1, Self::NoHoldJobsAfterEnd),
    ];
    /// Returns the flag for a word: its name, or an abbreviation. None: there is no such flag.
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_uppercase();
        let named = Self::NAMES.iter().find(|(name, _)| *name == word).map(|(_, flag)| *flag);
        let means = |(name, least, _): &&(&str, usize, Self)| word.len() >= *least && name.starts_with(&word);
        named.or_else(|| Self::WORDS.iter().find(means).map(|(.., flag)| *flag))
    }
}

const DAY_S: u64 = 86_400;
const WEEK_S: u64 = 7 * DAY_S;

impl Reservation {
    /// Returns the name of the reservation that keeps the spare nodes of a partition (`spare_nodes`).
    pub fn name_of_spares(partition: &str) -> String {
        format!("spare_{partition}")
    }
    /// Returns the partition of which the reservation keeps the spare nodes. None: it keeps none.
    pub fn spares_of(&self) -> Option<&str> {
        self.partition.as_deref().filter(|partition| self.name == Self::name_of_spares(partition))
    }
    /// Returns whether the reservation has `flag`.
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
    /// Returns whether the reservation is active at `now`.
    pub fn active(&self, now: Time) -> bool {
        self.start <= now && now < self.end
    }
    /// Returns whether the reservation is active at some moment between `from` and `until` (None: without end). If it
    /// recurs, only its present or next time is considered.
    pub fn meets(&self, from: Time, until: Option<Time>) -> bool {
        from < self.end && until.is_none_or(|until| self.start < until)
    }
    /// Returns whether a job of the user `owner` in `account` may use the reservation.
    pub fn admits(&self, owner: &Owner, account: &str) -> bool {
        let listed = |list: &[String], name: &str| {
            let barred = list.iter().any(|entry| entry.strip_prefix('-') == Some(name));
            let all_but = list.iter().all(|entry| entry.starts_with('-')) && !list.is_empty();
            !barred && (all_but || list.iter().any(|entry| entry == name))
        };
        match (self.users.is_empty(), self.accounts.is_empty()) {
            (true, true) => false,
            (false, true) => listed(&self.users, &owner.user),
            (true, false) => listed(&self.accounts, account),
            // If users and accounts are listed, one of the two is enough, unless the user or account is excluded with
            // `-`.
            (false, false) => listed(&self.users, &owner.user) || listed(&self.accounts, account),
        }
    }
    /// Returns the reservation with start and end of its next time. None: it does not recur.
    pub fn next(&self) -> Option<Self> {
        let step = self.step(self.start)?;
        Some(Self { start: self.start + step, end: self.end + step, ..self.clone() })
    }
    /// Returns whether any time of this reservation overlaps any time of `other`, however often they recur and however
    /// far apart they start.
    pub fn ever_meets(&self, other: &Self) -> bool {
        let later = self.start.max(other.start);
        let until = later + Span::from_secs(2 * WEEK_S);
        let (mut one, mut two) = (self.brought_to(later), other.brought_to(later));
        while one.0 >= two.1 || two.0 >= one.1 {
            // Advance the reservation with the time that ends sooner to its next time. If it has none, the two never
            // overlap.
            let (earlier, whose) = if one.1 <= two.1 { (&mut one, self) } else { (&mut two, other) };
            match whose.step(earlier.0) {
                Some(step) if earlier.0 + step < until => *earlier = (earlier.0 + step, earlier.1 + step),
                _ => return false,
            }
        }
        true
    }
    /// Returns start and end of one of the reservation's times, moved by whole weeks so that the same time a week later
    /// would start after `time`. This is possible because every recurrence repeats weekly.
    fn brought_to(&self, time: Time) -> (Time, Time) {
        let weeks = if self.step(self.start).is_some() { time.since(self.start).secs() / WEEK_S } else { 0 };
        let step = Span::from_secs(weeks * WEEK_S);
        (self.start + step, self.end + step)
    }
    /// Returns how long after the time that starts at `start` the next one starts. None: the reservation does not
    /// recur.
    fn step(&self, start: Time) -> Option<Span> {
        let days = |after: u64| {
            // 1970-01-01 was a Thursday; 0 is Monday.
            (start.secs() / DAY_S + after + 3) % 7
        };
        let step = match () {
            () if self.is(Flag::Hourly) => 3600,
            () if self.is(Flag::Daily) => DAY_S,
            () if self.is(Flag::Weekly) => WEEK_S,
            () if self.is(Flag::Weekday) => (1..=7).find(|&after| days(after) < 5)? * DAY_S,
            () if self.is(Flag::Weekend) => (1..=7).find(|&after| days(after) >= 5)? * DAY_S,
            () => return None,
        };
        Some(Span::from_secs(step))
    }
}

#[cfg(test)]
mod tests {
    use super::{Flag, Reservation};
    use crate::job::Owner;
    use crate::time::Time;

    fn lasting(from_s: u64, until_s: u64, flags: &[Flag]) -> Reservation {
        let flags = flags.iter().copied().collect();
        Reservation { start: Time::from_secs(from_s), end: Time::from_secs(until_s), flags, ..Reservation::default() }
    }

    #[test]
    fn recurring_ones_come_again_on_the_right_days() {
        // 2026-11-20 is a Friday.
        let friday = 1_795_132_800;
        let next = |flag| lasting(friday, friday + 60, &[flag]).next().map(|next| (next.start.secs() - friday) / 3600);
        assert_eq!(next(Flag::Hourly), Some(1));
        assert_eq!(next(Flag::Daily), Some(24));
        assert_eq!(next(Flag::Weekday), Some(72));
        assert_eq!(next(Flag::Weekend), Some(24));
        assert_eq!(next(Flag::Weekly), Some(168));
        assert_eq!(next(Flag::Maint), None);
    }

    #[test]
    fn those_that_recur_meet_others_however_far_apart_they_begin() {
        const H: u64 = 3600;
        const W: u64 = 7 * 24 * H;
        // 2026-11-23 is a Monday.
        let monday = 1_795_392_000;
        let at = |hours: u64, flags: &[Flag]| lasting(monday + hours * H, monday + hours * H + 900, flags);
        let meet = |one: &Reservation, two: &Reservation| {
            assert_eq!(one.ever_meets(two), two.ever_meets(one), "it is mutual");
            one.ever_meets(two)
        };
        let (year, once): (u64, &[Flag]) = (52 * W / H, &[]);
        for flag in [Flag::Hourly, Flag::Daily, Flag::Weekly, Flag::Weekday] {
            assert!(meet(&at(0, &[flag]), &at(year, once)), "{flag:?}");
            assert!(!meet(&at(year, &[flag]), &at(0, once)), "{flag:?}: before the first there is none");
        }
        assert!(meet(&at(0, &[Flag::Hourly]), &at(year + 5, once)));
        assert!(!meet(&at(0, &[Flag::Daily]), &at(year + 5, once)));
        assert!(meet(&at(5 * 24, &[Flag::Weekend]), &at(year + 6 * 24, &[Flag::Weekly])));
        assert!(!meet(&at(0, &[Flag::Weekday]), &at(year + 5 * 24, &[Flag::Weekend])));
        assert!(meet(&at(0, &[Flag::Weekday]), &at(year + 4 * 24, &[Flag::Daily])));
    }

    #[test]
    fn it_admits_who_is_named_and_bars_who_is_named_with_a_minus() {
        let of = |users: &[&str], accounts: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let reservation = Reservation { users: list(users), accounts: list(accounts), ..Reservation::default() };
            reservation.admits(&Owner { user: "ada".into(), ..Owner::default() }, "maths")
        };
        assert!(of(&["ada"], &[]) && of(&["bob", "ada"], &[]) && of(&[], &["maths"]) && of(&["bob"], &["maths"]));
        assert!(of(&["-bob"], &[]) && !of(&["-ada"], &[]) && !of(&["bob"], &[]) && !of(&[], &[]));
    }

    #[test]
    fn flags_are_read_as_they_are_written() {
        assert!(Flag::NAMES.iter().all(|(name, flag)| Flag::parse(name) == Some(*flag) && flag.name() == *name));
        assert_eq!((Flag::parse("ignore"), Flag::parse("REPLACE")), (Some(Flag::IgnoreJobs), None));
        for (word, flag) in [
            ("no_hold_jobs_after", Some(Flag::NoHoldJobsAfterEnd)),
            ("N", Some(Flag::NoHoldJobsAfterEnd)),
            ("maint", Some(Flag::Maint)),
            ("Maintenance", Some(Flag::Maint)),
            ("m", Some(Flag::Maint)),
            ("ign_jobs", Some(Flag::IgnoreJobs)),
            ("W", Some(Flag::Weekday)),
            ("weekl", Some(Flag::Weekly)),
            ("static_a", Some(Flag::StaticAlloc)),
            ("pa", Some(Flag::PartNodes)),
            ("P", None),
            ("purge_comp", None),
            ("any", Some(Flag::AnyNodes)),
            ("", None),
            ("mainte_", None),
        ] {
            assert_eq!(Flag::parse(word), flag, "{word}");
        }
    }
}
