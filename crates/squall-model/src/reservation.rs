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
    /// Groups whose members may use the reservation, each as `NAME:GID`. Empty: groups do not matter.
    #[n(10)]
    #[cbor(with = "crate::encoding::names", has_nil)]
    pub groups: Vec<String>,
    /// QOS whose jobs may use the reservation; `-NAME`: all QOS but these. Empty: the QOS does not matter.
    #[n(11)]
    #[cbor(with = "crate::encoding::names", has_nil)]
    pub qos: Vec<String>,
    /// Partitions whose jobs may use the reservation; `-NAME`: all partitions but these. Empty: the partition does not
    /// matter.
    #[n(12)]
    #[cbor(with = "crate::encoding::names", has_nil)]
    pub allowed_partitions: Vec<String>,
    /// Comment of an operator.
    #[n(13)]
    pub comment: Option<String>,
    /// Reserved licenses, as `fluent:2,matlab`.
    #[n(14)]
    pub licenses: Option<String>,
    /// Time without jobs after which the reservation ends, seconds (`PURGE_COMP`). None: it stays.
    #[n(15)]
    pub purge_s: Option<u64>,
    /// Since when the active reservation has had no job, as far as its jobs are watched (`PURGE_COMP`). None: it has
    /// jobs.
    #[n(16)]
    pub idle_since: Option<Time>,
    /// How the times move with the clock (`TIME_FLOAT`). None: they stay.
    #[n(17)]
    pub floats: Option<Floating>,
}

/// Times of a reservation that are relative to the present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Floating {
    /// How far ahead of the present it starts, seconds.
    #[n(0)]
    pub ahead_s: u64,
    /// How long it lasts from then on, seconds. None: until its end, which stays.
    #[n(1)]
    pub lasts_s: Option<u64>,
}

/// A job, or its user, that may want to use a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The user.
    pub owner: &'a Owner,
    /// The job's account and those above it.
    pub accounts: &'a [&'a str],
    /// The job's QOS. None: it does not matter here.
    pub qos: Option<&'a str>,
    /// Partitions in which the job would run; one that is admitted is enough. Empty: they do not matter here.
    pub partitions: &'a [&'a str],
}

/// Time without jobs after which a reservation with `PURGE_COMP` ends, unless the flag has another, in seconds.
pub const PURGE_DEFAULT_S: u64 = 300;

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
    /// Jobs of the reservation may use any nodes beside its licenses (`LICENSE_ONLY`).
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
    /// A recurring reservation may be created with a start in the past.
    #[n(15)]
    ForceStart,
    /// Jobs that name no reservation may use this one.
    #[n(16)]
    Magnetic,
    /// The reservation ends when it has had no job for some time.
    #[n(17)]
    PurgeComp,
    /// Nodes that are down, drained or in use by jobs are replaced by idle ones.
    #[n(18)]
    Replace,
    /// Nodes that are down or drained are replaced by idle ones.
    #[n(19)]
    ReplaceDown,
    /// Start (and end, if a duration was given) are relative to the present.
    #[n(20)]
    TimeFloat,
    /// Users who may use the reservation may delete it.
    #[n(21)]
    UserDelete,
}

impl Flag {
    /// Each flag with its name, as users write it.
    pub const NAMES: [(&'static str, Self); 22] = [
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
        ("FORCE_START", Self::ForceStart),
        ("MAGNETIC", Self::Magnetic),
        ("PURGE_COMP", Self::PurgeComp),
        ("REPLACE", Self::Replace),
        ("REPLACE_DOWN", Self::ReplaceDown),
        ("TIME_FLOAT", Self::TimeFloat),
        ("USER_DELETE", Self::UserDelete),
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
    const WORDS: [(&'static str, usize, Self); 23] = [
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
        ("LICENSE_ONLY", 1, Self::AnyNodes),
        ("STATIC_ALLOC", 1, Self::StaticAlloc),
        ("PART_NODES", 2, Self::PartNodes),
        ("MAGNETIC", 3, Self::Magnetic),
        ("PROMISCUOUS", 2, Self::Magnetic),
        ("PURGE_COMP", 2, Self::PurgeComp),
        ("TIME_FLOAT", 1, Self::TimeFloat),
        ("REPLACE", 1, Self::Replace),
        ("REPLACE_DOWN", 8, Self::ReplaceDown),
        ("NO_HOLD_JOBS_AFTER_END", 1, Self::NoHoldJobsAfterEnd),
        ("USER_DELETE", 1, Self::UserDelete),
        ("FORCE_START", 1, Self::ForceStart),
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

/// Returns whether a list admits one of these names. An empty list admits all; one of `-NAME` bars these names alone.
fn admitted(list: &[String], names: &[&str]) -> bool {
    let has = |entry: &str| names.contains(&entry);
    if list.iter().all(|entry| entry.starts_with('-')) {
        return !list.iter().filter_map(|entry| entry.strip_prefix('-')).any(has);
    }
    list.iter().any(|entry| has(entry))
}

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
    /// Returns start and end of the reservation as they are at `now`.
    pub fn times(&self, now: Time) -> (Time, Time) {
        let Some(Floating { ahead_s, lasts_s }) = self.floats else { return (self.start, self.end) };
        let start = now + Span::from_secs(ahead_s);
        match lasts_s {
            Some(lasts_s) => (start, start + Span::from_secs(lasts_s)),
            None => (start.min(self.end), self.end),
        }
    }
    /// Returns whether the reservation is active at `now`.
    pub fn active(&self, now: Time) -> bool {
        let (start, end) = self.times(now);
        start <= now && now < end
    }
    /// Returns whether the reservation is active at some moment between `from` and `until` (None: without end). If it
    /// recurs, only its present or next time is considered. If it floats, its times are those at `from`.
    pub fn meets(&self, from: Time, until: Option<Time>) -> bool {
        let (start, end) = self.times(from);
        from < end && until.is_none_or(|until| start < until)
    }
    /// Returns whether the nodes were chosen by the controller, which replaces those that are down or drained.
    pub fn is_replenished(&self) -> bool {
        let fixed = [Flag::SpecNodes, Flag::AllNodes, Flag::PartNodes, Flag::StaticAlloc, Flag::Maint];
        self.spares_of().is_none() && !self.nodes.is_empty() && !fixed.iter().any(|flag| self.is(*flag))
    }
    /// Returns the names of the groups whose members may use the reservation.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.rsplit_once(':').map_or(group.as_str(), |(name, _)| name))
    }
    /// Returns whether the reservation says who or what may use it.
    pub fn has_access_list(&self) -> bool {
        [&self.users, &self.groups, &self.accounts, &self.qos, &self.allowed_partitions]
            .iter()
            .any(|list| !list.is_empty())
    }
    /// Returns whether jobs of a partition may use the reservation.
    pub fn takes_partition(&self, name: &str) -> bool {
        admitted(&self.allowed_partitions, &[name])
    }
    /// Returns whether a job may use the reservation. Each of its lists that is not empty must admit the job.
    pub fn admits(&self, who: Asker<'_>) -> bool {
        // No job knows when a floating reservation will be there.
        self.has_access_list() && self.floats.is_none() && self.admits_user(who) && {
            let qos = who.qos.is_none_or(|qos| admitted(&self.qos, &[qos]));
            qos && (who.partitions.is_empty() || who.partitions.iter().any(|name| self.takes_partition(name)))
        }
    }
    /// Returns whether a user may use the reservation with some job. A list that names neither users nor accounts admits
    /// all.
    pub fn admits_user(&self, who: Asker<'_>) -> bool {
        let gid = |group: &String| group.rsplit_once(':').and_then(|(_, gid)| gid.parse::<u32>().ok());
        let is_in = |gid: u32| who.owner.gid == gid || who.owner.groups.contains(&gid);
        let by_group = self.groups.is_empty() || self.groups.iter().filter_map(gid).any(is_in);
        by_group && admitted(&self.users, &[&who.owner.user]) && admitted(&self.accounts, who.accounts)
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
    use super::{Asker, Flag, Floating, Reservation};
    use crate::job::Owner;
    use crate::time::{Span, Time};

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
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let owner = Owner { user: "ada".into(), gid: 7, groups: vec![8], ..Owner::default() };
        let of = |users: &[&str], accounts: &[&str]| {
            let reservation = Reservation { users: list(users), accounts: list(accounts), ..Reservation::default() };
            reservation.admits(Asker { owner: &owner, accounts: &["algebra", "maths"], qos: None, partitions: &[] })
        };
        assert!(of(&["ada"], &[]) && of(&["bob", "ada"], &[]) && of(&[], &["maths"]) && of(&[], &["algebra"]));
        assert!(of(&["-bob"], &[]) && !of(&["-ada"], &[]) && !of(&["bob"], &[]) && !of(&[], &[]));
        assert!(of(&["ada"], &["maths"]) && of(&["-bob"], &["-physics"]), "each list admits the job");
        assert!(!of(&["bob"], &["maths"]) && !of(&["ada"], &["physics"]) && !of(&["ada"], &["-maths"]));
        let other = |edit: &dyn Fn(&mut Reservation), qos: &str, partitions: &[&str]| {
            let mut reservation = Reservation::default();
            edit(&mut reservation);
            reservation.admits(Asker { owner: &owner, accounts: &[], qos: Some(qos), partitions })
        };
        assert!(other(&|one| one.groups = list(&["bio:8"]), "normal", &["short"]), "a group beside the first");
        assert!(other(&|one| one.groups = list(&["ada:7"]), "normal", &["short"]));
        assert!(!other(&|one| one.groups = list(&["chem:9"]), "normal", &["short"]));
        assert!(other(&|one| one.qos = list(&["high"]), "high", &["short"]));
        assert!(!other(&|one| one.qos = list(&["high"]), "normal", &["short"]));
        assert!(!other(&|one| one.qos = list(&["-normal"]), "normal", &["short"]));
        assert!(other(&|one| one.allowed_partitions = list(&["long"]), "normal", &["short", "long"]));
        assert!(!other(&|one| one.allowed_partitions = list(&["long"]), "normal", &["short"]));
    }

    #[test]
    fn floating_ones_are_always_ahead() {
        let now = Time::from_secs(1_000_000);
        let ahead = |lasts_s| Reservation {
            start: now,
            end: now + Span::from_secs(5000),
            floats: Some(Floating { ahead_s: 600, lasts_s }),
            ..Reservation::default()
        };
        let after = |seconds: u64| now + Span::from_secs(seconds);
        assert_eq!(ahead(Some(60)).times(after(9000)), (after(9600), after(9660)));
        assert_eq!(ahead(None).times(after(100)), (after(700), after(5000)));
        assert_eq!(ahead(None).times(after(4900)), (after(5000), after(5000)), "it ends when it would");
        assert!(!ahead(Some(60)).active(after(600)));
        assert!(ahead(Some(60)).meets(after(100), Some(after(701))) && ahead(Some(60)).meets(after(100), None));
        assert!(!ahead(Some(60)).meets(after(100), Some(after(700))), "a job of ten minutes always fits before it");
    }

    #[test]
    fn flags_are_read_as_they_are_written() {
        assert!(Flag::NAMES.iter().all(|(name, flag)| Flag::parse(name) == Some(*flag) && flag.name() == *name));
        assert_eq!((Flag::parse("ignore"), Flag::parse("REPLACED")), (Some(Flag::IgnoreJobs), None));
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
            ("pu", Some(Flag::PurgeComp)),
            ("pr", Some(Flag::Magnetic)),
            ("ma", Some(Flag::Maint)),
            ("mag", Some(Flag::Magnetic)),
            ("license_only", Some(Flag::AnyNodes)),
            ("r", Some(Flag::Replace)),
            ("replace_", Some(Flag::ReplaceDown)),
            ("f", Some(Flag::Flex)),
            ("fo", Some(Flag::ForceStart)),
            ("time", Some(Flag::TimeFloat)),
            ("u", Some(Flag::UserDelete)),
            ("any", Some(Flag::AnyNodes)),
            ("", None),
            ("mainte_", None),
        ] {
            assert_eq!(Flag::parse(word), flag, "{word}");
        }
    }
}
