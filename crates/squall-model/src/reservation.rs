//! Reservations: nodes kept for some users for some time.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::job::Owner;
use crate::set::NodeSet;
use crate::time::{Span, Time};

/// Nodes kept for some users for some time, perhaps again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// When it begins; of one that recurs: the present or next time.
    pub start: Time,
    /// When it ends.
    pub end: Time,
    /// Its nodes.
    pub nodes: NodeSet,
    /// The partition from which they were taken.
    pub partition: Option<String>,
    /// Features that they were asked to have.
    pub features: Option<String>,
    /// Users who may use it, by name; `-NAME`: all but these.
    pub users: Vec<String>,
    /// Accounts that may use it; `-NAME`: all but these.
    pub accounts: Vec<String>,
    /// How it differs from others.
    pub flags: BTreeSet<Flag>,
    /// Who made it.
    pub by: u32,
}

/// How a reservation differs from others. Appended to, never changed: they stand in journals by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Flag {
    /// For work on the nodes.
    Maint,
    /// Made although jobs run there.
    IgnoreJobs,
    /// Again every hour.
    Hourly,
    /// Again every day.
    Daily,
    /// Again every working day.
    Weekday,
    /// Again every Saturday and Sunday.
    Weekend,
    /// Again every week.
    Weekly,
    /// Its jobs may begin before it and end after it.
    Flex,
    /// May share nodes with others.
    Overlap,
    /// Any nodes would have done.
    AnyNodes,
    /// The nodes were named.
    SpecNodes,
    /// All nodes.
    AllNodes,
    /// All nodes of the partition.
    PartNodes,
    /// The nodes stay the same.
    StaticAlloc,
    /// Jobs that still wait for it when it has gone are not held.
    NoHoldJobsAfterEnd,
}

impl Flag {
    /// All of them, as users write them.
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
    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, flag)| *flag == self).map_or("", |(name, _)| name)
    }
    /// The flag that a word means: its name, or `IGNORE`, `STATIC_ALLOC`.
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_uppercase().as_str() {
            "IGNORE" | "IGN_JOBS" => Some(Self::IgnoreJobs),
            "STATIC_ALLOC" => Some(Self::StaticAlloc),
            word => Self::NAMES.iter().find(|(name, _)| *name == word).map(|(_, flag)| *flag),
        }
    }
}

const DAY_S: u64 = 86_400;

impl Reservation {
    /// Whether it has that flag.
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
    /// Whether it is on at that time.
    pub fn active(&self, now: Time) -> bool {
        self.start <= now && now < self.end
    }
    /// Whether some of it lies between two times; None: for ever. (One that recurs is on in each longer stretch.)
    pub fn meets(&self, from: Time, until: Option<Time>) -> bool {
        from < self.end && until.is_none_or(|until| self.start < until)
    }
    /// Whether a user with that account may use it.
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
            // A user who is named need not be in an account that is, and the other way round; whoever is barred is.
            (false, false) => listed(&self.users, &owner.user) || listed(&self.accounts, account),
        }
    }
    /// The next time after this one; None: it does not recur.
    pub fn next(&self) -> Option<Self> {
        let days = |after: u64| {
            // The first of January 1970 was a Thursday: 0 is Monday.
            (self.start.secs() / DAY_S + after + 3) % 7
        };
        let step = match () {
            () if self.is(Flag::Hourly) => 3600,
            () if self.is(Flag::Daily) => DAY_S,
            () if self.is(Flag::Weekly) => 7 * DAY_S,
            () if self.is(Flag::Weekday) => (1..=7).find(|&after| days(after) < 5)? * DAY_S,
            () if self.is(Flag::Weekend) => (1..=7).find(|&after| days(after) >= 5)? * DAY_S,
            () => return None,
        };
        let step = Span::from_secs(step);
        Some(Self { start: self.start + step, end: self.end + step, ..self.clone() })
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
    }
}
